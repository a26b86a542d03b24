//! Thrift's library still writes the golden bytes of the wire.

use std::process::Command;

use compat_tests::clients::{python, run, skipped};
use compat_tests::repository;

#[test]
fn the_golden_bytes_are_what_the_python_library_writes() {
    if !skipped() {
        let script = repository().join("scripts/golden-bytes");
        run(Command::new(python()).arg(script).arg("--check"));
    }
}
