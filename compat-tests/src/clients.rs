//! The programs that tests with clients in Java and Python need, and whether they are wanted.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::repository;
use crate::skipping::{Missing, skip};

/// Whether this test, which needs other people's libraries, is left out.
pub fn skipped() -> bool {
    let skipped = env::var_os("CORONA_SKIP_CLIENTS").is_some_and(|value| value == "1");
    if skipped {
        skip(Missing::Clients);
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

/// The classes of our own Java child of a task tracker. They are compiled once for each state of their sources, below
/// `target`, since tests are processes of their own.
///
/// # Panics
/// When they cannot be compiled.
pub fn java_child() -> PathBuf {
    let folder = repository().join("compat-tests/clients/java/child/org/apache/hadoop/mapred");
    let entries = fs::read_dir(folder).expect("the child's sources");
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    sources.sort();
    let mut state = DefaultHasher::new();
    for source in &sources {
        fs::read(source).expect("a source").hash(&mut state);
    }
    let clients = repository().join("target/clients");
    let classes = clients.join(format!("child-{:016x}", state.finish()));
    if !classes.is_dir() {
        fs::create_dir_all(&clients).expect("a directory for classes");
        let made = tempfile::tempdir_in(&clients).expect("a directory for classes");
        let mut javac = Command::new("javac");
        run(javac.args(["-nowarn", "-encoding", "UTF-8", "-d"]).arg(made.path()).args(&sources));
        // Another test may have been faster.
        if let Err(error) = fs::rename(made.path(), &classes) {
            assert!(classes.is_dir(), "{}: {error}", classes.display());
        }
    }
    classes
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
