//! The programs that tests with clients in Java and Python need, and whether they are wanted.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::repository;
use crate::skipping::{Missing, skip};

/// Whether this test, which needs other people's libraries, is left out.
pub fn skipped(test: &str) -> bool {
    let skipped = env::var_os("CORONA_SKIP_CLIENTS").is_some_and(|value| value == "1");
    if skipped {
        skip(test, Missing::Clients);
    }
    skipped
}

/// Where Debian keeps Thrift's library for Java and its dependencies.
pub const JAVA_LIBRARIES: &str =
    "/usr/share/java/thrift.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar";

/// The interpreter that has Thrift's library.
///
/// # Panics
/// When it is not installed.
pub fn python() -> PathBuf {
    let python = repository().join("target/clients/python/bin/python");
    let missing = "Thrift's library for Python is missing: run scripts/test, which installs it, or \
                   set CORONA_SKIP_CLIENTS=1";
    assert!(python.is_file(), "{missing}");
    python
}

/// Makes code of the contract in a directory with Thrift's compiler.
///
/// # Panics
/// When the compiler is not installed.
pub fn generate(generator: &str, directory: &Path) {
    let contract = repository().join("thrift/ClusterManager.thrift");
    run(Command::new("thrift").args(["--gen", generator, "-out"]).arg(directory).arg(contract));
}

/// Runs a command, which must succeed, and returns its output.
///
/// # Panics
/// When it cannot be started or fails.
pub fn run(command: &mut Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    let hint = "scripts/test installs it; CORONA_SKIP_CLIENTS=1 leaves this test out";
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{name}: {error}; {hint}"));
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{name}: {status}\n{stderr}");
    String::from_utf8_lossy(&stdout).into_owned()
}
