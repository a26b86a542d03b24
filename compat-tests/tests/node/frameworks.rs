//! Frameworks that are not MapReduce, as their authors have them: the examples, on a whole cluster.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use compat_tests::clients::{generate, python, skipped};
use compat_tests::task_tracker::node::signal;
use compat_tests::{example, repository};

use super::mini_cluster::{MiniCluster, configured, until};

/// More than the cluster of a test has slots on a machine with few processors.
const COMMANDS: usize = 6;
/// The fewest slots of a cluster of two nodes.
const SLOTS: usize = 4;

/// A cluster, and commands that each wait until they may end.
struct Stage {
    cluster: MiniCluster,
    manager: String,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(&[])
    }

    fn with(settings: &[&str]) -> Stage {
        let cluster = MiniCluster::start(settings);
        let root = cluster.root.path().display();
        let command = |number| {
            format!(
                "cd {root}; echo {number} >>ran; until [ -e go-{number} ]; do sleep 0.05; done; echo {number} >>ended\n"
            )
        };
        cluster.write("commands", (1..=COMMANDS).map(command).collect::<String>());
        let manager = configured(&cluster, "cm.server.address");
        Stage { cluster, manager }
    }

    fn spawn(&self, command: &mut Command) -> Child {
        let said = fs::File::options().create(true).append(true).open(self.cluster.path("said"));
        command.current_dir(self.cluster.root.path()).stdin(Stdio::null());
        command.stdout(said.unwrap()).spawn().unwrap()
    }

    /// The numbers in a file, in order of their writing.
    fn numbers(&self, file: &str) -> Vec<usize> {
        let text = fs::read_to_string(self.cluster.path(file)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn until_started(&self, count: usize) {
        let enough = || (self.numbers("ran").len() >= count).then_some(());
        until(&format!("the start of {count} commands"), enough);
    }

    fn let_end(&self, number: usize) {
        self.cluster.write(&format!("go-{number}"), "");
    }

    /// Every command has run once, on slots of one session, which has ended.
    fn check(self, mut framework: Child) {
        let status = until("the end of the framework", || framework.try_wait().ok().flatten());
        let said = fs::read_to_string(self.cluster.path("said")).unwrap();
        assert!(status.success(), "{status}\n{said}");
        for file in ["ran", "ended"] {
            let mut numbers = self.numbers(file);
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=COMMANDS).collect::<Vec<_>>(), "{file}\n{said}");
        }
        let sessions: Vec<&str> =
            said.lines().filter_map(|line| line.strip_prefix("session ")).collect();
        assert!(sessions.iter().all(|session| *session == sessions[0]), "{said}");
        let listed = self.cluster.tool(&["sessions", "list"]);
        assert!(!listed.contains(sessions[0]), "{listed}");
        self.cluster.stop();
    }
}

/// The crate is used as from outside: the example is a workspace of its own.
#[test]
fn a_framework_survives_restarts_of_the_cluster_manager_and_of_itself() {
    let program = example("framework");
    let stage = Stage::new();
    let start = || stage.spawn(Command::new(&program).args([&stage.manager, "state", "commands"]));
    let mut framework = start();
    stage.until_started(SLOTS);
    stage.cluster.crash("cluster-manager");
    let first = stage.numbers("ran")[0];
    stage.let_end(first);
    stage.until_started(SLOTS + 1);
    signal("KILL", framework.id());
    framework.wait().unwrap();
    let second = stage.numbers("ran")[1];
    stage.let_end(second);
    until("the end of a command meanwhile", || {
        stage.numbers("ended").contains(&second).then_some(())
    });
    let framework = start();
    stage.until_started(COMMANDS);
    (1..=COMMANDS).for_each(|number| stage.let_end(number));
    stage.check(framework);
}

/// Each node has memory for one command at a time, and more slots than that.
#[test]
fn a_framework_names_the_resources_of_its_commands() {
    let program = example("framework");
    let stage = Stage::with(&["corona.cm.resources=cpus,memory", "corona.tt.memory.mb=1000"]);
    let arguments = [&stage.manager, "state", "commands", "1", "600"];
    let framework = stage.spawn(Command::new(&program).args(arguments));
    stage.until_started(2);
    let listed = stage.cluster.tool(&["nodes", "list"]);
    assert_eq!(listed.matches(" 600 MB/1000 MB ").count(), 2, "{listed}");
    let spread = "800 MB of memory are free, the largest place has 400 MB";
    assert!(listed.contains(spread), "{listed}");
    for number in 1..=COMMANDS {
        assert!(stage.numbers("ran").len() - stage.numbers("ended").len() <= 2);
        stage.let_end(number);
    }
    stage.check(framework);
}

#[test]
fn the_python_framework_runs_its_commands() {
    if skipped() {
        return;
    }
    let stage = Stage::new();
    let generated = stage.cluster.path("generated");
    fs::create_dir(&generated).unwrap();
    generate("py", &generated);
    let program = repository().join("examples/python-framework/framework.py");
    let framework = stage.spawn(
        Command::new(python())
            .arg("-B")
            .args([&program, &generated])
            .arg(&stage.manager)
            .arg(Path::new("commands")),
    );
    stage.until_started(SLOTS);
    stage.cluster.crash("cluster-manager");
    let first = stage.numbers("ran")[0];
    stage.let_end(first);
    stage.until_started(SLOTS + 1);
    (1..=COMMANDS).for_each(|number| stage.let_end(number));
    stage.check(framework);
}
