//! The files of daemons that one process keeps. Whole clusters run in `compat-tests`.

use std::fs::{self, File};
use std::io::Write;

use crate::commands::daemons::set_large_logs_aside;

#[test]
fn large_logs_are_set_aside_while_daemons_write_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let mut daemon = File::options().create(true).append(true).open(path("node-1.log")).unwrap();
    daemon.write_all(b"first\n").unwrap();
    fs::write(path("small.log"), "small").unwrap();
    fs::write(path("other.txt"), "no log of a daemon").unwrap();
    set_large_logs_aside(dir.path(), 5);
    assert_eq!((read("node-1.log"), read("node-1.log.old")), (String::new(), "first\n".into()));
    daemon.write_all(b"second\n").unwrap();
    assert_eq!(read("node-1.log"), "second\n", "it goes on at the beginning");
    set_large_logs_aside(dir.path(), 5);
    assert_eq!(read("node-1.log.old"), "second\n");
    assert!(!path("small.log.old").exists() && !path("other.txt.old").exists());
    set_large_logs_aside(&path("missing"), 5);
}
