//! The wheel for Python, installed as its users install it: its tests and the examples of its page on a small cluster.

use std::fs;
use std::path::Path;
use std::process::Command;

use compat_tests::clients::{python, run, skipped};
use compat_tests::{corona_program, repository};

use super::mini_cluster::MiniCluster;

/// Makes the wheel, and installs it into a directory.
fn install(into: &Path) {
    let made = tempfile::tempdir().unwrap();
    let backend = repository().join("src/python/build_backend.py");
    let wheel = run(Command::new(python()).arg(backend).arg(made.path()));
    let mut pip = Command::new(python());
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    run(pip.arg("--target").arg(into).arg(made.path().join(wheel.trim())));
}

/// The interpreter with the wheel, on the cluster and in a directory of it.
fn interpreter(cluster: &MiniCluster, directory: &str) -> Command {
    let mut command = Command::new(python());
    command.current_dir(cluster.path(directory)).env("PYTHONPATH", cluster.path("site"));
    command.env("CORONA_BIN", corona_program());
    command.env("HADOOP_CONF_DIR", cluster.path("cluster/conf"));
    command
}

/// The blocks of Python of a page, each as a program.
fn examples(page: &str) -> impl Iterator<Item = String> {
    let blocks = page.split("```python\n").skip(1);
    blocks.map(|block| format!("import corona\n{}", block.split("```").next().unwrap()))
}

#[test]
fn the_wheel_runs_commands_and_jobs() {
    if skipped() {
        return;
    }
    let cluster = MiniCluster::start(&[]);
    install(&cluster.path("site"));
    let tests = repository().join("compat-tests/clients/python/test_corona.py");
    fs::create_dir(cluster.path("tests")).unwrap();
    run(interpreter(&cluster, "tests").arg(tests));
    let page = fs::read_to_string(repository().join("docs/use/python.md")).unwrap();
    fs::create_dir(cluster.path("page")).unwrap();
    let mut printed = String::new();
    for (number, example) in examples(&page).enumerate() {
        let file = format!("example{number}.py");
        cluster.write(&file, example);
        printed += &run(interpreter(&cluster, "page").arg(cluster.path(&file)));
    }
    for expected in [
        "1 0 ONE\n2 0 TWO\n",
        "2 commands failed; command 1: exit status 1 [2, 2]\n",
        "{'be': '2', 'not': '1', 'or': '1', 'to': '2'}\n",
        "['be\\t2', 'not\\t1', 'or\\t1', 'to\\t2']\n",
        "words SUCCEEDED 1.0 Tasks(tasks=1, complete=1,",
        "[0, 1, 4, 9, 16, 25,",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn the_package_has_right_types() {
    if skipped() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let mut mypy = Command::new(python());
    mypy.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache.path());
    mypy.args(["corona", "build_backend.py"]).current_dir(repository().join("src/python"));
    run(&mut mypy);
}
