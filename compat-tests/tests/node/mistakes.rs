//! The most usual mistakes of newcomers with `corona job run`, and the text that each one gets: what happened, where, and
//! what to do. `docs/use/jobs.md` lists them. What the parser of options refuses, `src/commands/mistakes.rs` tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use compat_tests::corona_program;
use compat_tests::skipping::{Missing, skip};

use super::mini_cluster::{MiniCluster, corona, stderr};

/// A mistake: the arguments besides `--output out/NAME`, the exit status, and texts of stderr.
struct Mistake {
    name: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    says: &'static [&'static str],
}

const fn mistake(
    name: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    says: &'static [&'static str],
) -> Mistake {
    Mistake { name, arguments, status, says }
}

/// One attempt is enough to fail.
const ONCE: [&str; 2] = ["-D", "mapred.map.max.attempts=1"];

const MISTAKES: &[Mistake] = &[
    mistake(
        "missing input",
        &["--input", "nope.txt", "--mapper", "cat"],
        1,
        &["input nope.txt: there is no such file or directory (file:/"],
    ),
    mistake(
        "pattern without a match",
        &["--input", "in/*.zip", "--mapper", "cat"],
        1,
        &["input in/*.zip: no file or directory matches this pattern (file:/"],
    ),
    mistake(
        "quoted tilde",
        &["--input", "~/notes.txt", "--mapper", "cat"],
        2,
        &[
            "a shell replaces ~ by the home directory only at the start of a word and without quotes",
        ],
    ),
    mistake(
        "input that is named twice",
        &["--input", "in/a.txt", "in/a.txt", "--mapper", "cat"],
        0,
        &["note: --input names in/a.txt more than once, so its lines are read as often"],
    ),
    mistake(
        "input in an object store, as other programs name it",
        &["--input", "s3a://bucket/a.txt", "--mapper", "cat"],
        1,
        &["scheme s3a: write s3: in its place"],
    ),
    mistake(
        "input on an HDFS that does not run",
        &["--input", "hdfs://localhost:1/a.txt", "--mapper", "cat", "-D", AT_ONCE],
        1,
        &[
            "no name node answers there: check its address, or name a file of this machine without hdfs:",
        ],
    ),
    mistake(
        "empty input",
        &["--input", "empty", "--mapper", "cat"],
        0,
        &["note: the input is empty (0 files), and so will the output be"],
    ),
    mistake(
        "mapper that is not shipped",
        &["--input", "in/a.txt", "--mapper", "./map.py"],
        1,
        &[
            "note: --mapper names ./map.py, a file of this directory, which the tasks do not get; if they \
             need it, add --file map.py",
            "cannot start ./map.py",
            "give the tasks a file of your own with --file FILE",
        ],
    ),
    mistake(
        "script of an interpreter that is not shipped",
        &["--input", "in/a.txt", "--mapper", "python3 gone.py"],
        1,
        &[
            "note: --mapper names gone.py, which is neither here nor a file of the job",
            "(gone.py is not among the files of the job; give it to the tasks with --file gone.py)",
        ],
    ),
    mistake(
        "file that is shipped under another name",
        &["--input", "in/a.txt", "--mapper", "python3 scripts/map.py", "--file", "scripts/map.py"],
        1,
        &[
            "note: --mapper names scripts/map.py, but --file gives it to the tasks as map.py, in their working \
             directory; write map.py in the command",
            "(scripts/map.py is map.py in the working directory of the tasks; write map.py in the command)",
        ],
    ),
    mistake(
        "program that no node has",
        &["--input", "in/a.txt", "--mapper", "no-such-program-here"],
        1,
        &["it is neither a file of the job nor a program on the PATH of the task", "log http://"],
    ),
    mistake(
        "script without a first line",
        &["--input", "in/a.txt", "--mapper", "./plain.py", "--file", "plain.py"],
        1,
        &["the program has no first line such as #!/usr/bin/env python3"],
    ),
    mistake(
        "pattern that looks like a script",
        &["--input", "in/a.txt", "--mapper", "grep foo.js"],
        1,
        &["in the map: grep foo.js", "grep exits with 1 where no line matches"],
    ),
    mistake(
        "script with line ends of Windows",
        &["--input", "in/a.txt", "--mapper", "./returns.sh", "--file", "returns.sh"],
        1,
        &["the first line of the script ends in a carriage return", "sed -i 's/\\r$//' FILE"],
    ),
    mistake(
        "program that fails",
        &["--input", "in/a.txt", "--mapper", "echo ModuleNotFoundError >&2; exit 1"],
        1,
        &[
            "subprocess failed with code 1\n  in the map: echo ModuleNotFoundError >&2; exit 1\n",
            "Last lines of stderr:\n  ModuleNotFoundError\n",
            "(the program needs a package that this node does not have",
        ],
    ),
    mistake(
        "reducer that fails",
        &["--input", "in/a.txt", "--mapper", "cat", "--reducer", "python3 -c 'exit(3)'"],
        1,
        &["subprocess failed with code 3\n  in the reduce: python3 -c 'exit(3)'\n"],
    ),
    mistake(
        "grep without a match",
        &["--input", "in/a.txt", "--mapper", "grep zzz"],
        1,
        &["grep exits with 1 where no line matches", "builtin:grep TEXT"],
    ),
    mistake(
        "program that does not read its input",
        &["--input", "in/long.txt", "--mapper", "true"],
        1,
        &["true ended before it had read its input", "{ head -n 5; cat > /dev/null; }"],
    ),
    mistake(
        "program that is missing before a pipe",
        &["--input", "in/a.txt", "--mapper", "{ cat > /dev/null; no-such-program-here; } | cat"],
        0,
        &["note: the job has written no records; this prints", "  corona jobs logs job_"],
    ),
    mistake(
        "compressed file that is damaged",
        &["--input", "in/damaged.gz", "--mapper", "cat"],
        1,
        &["in/damaged.gz: ", "it is damaged, or of another kind than its name says"],
    ),
    mistake(
        "program that was killed",
        &["--input", "in/a.txt", "--mapper", "kill -9 $$"],
        1,
        &[
            "137: signal 9 ended the program, as the system does when memory runs out. Give each task less to \
             read with --split-size 16m",
        ],
    ),
    mistake(
        "program that is silent for too long",
        &["--input", "in/a.txt", "--mapper", "sleep 600", "-D", "mapred.task.timeout=1000"],
        1,
        &["failed to report status for 1 seconds", "-D mapred.task.timeout=MILLISECONDS"],
    ),
    mistake(
        "quote that does not end, before anything is run",
        &["--input", "in/a.txt", "--mapper", "grep 'x", "--dry-run"],
        2,
        &[
            "--mapper grep 'x: a shell cannot read this command (",
            "Put single quotes around the whole",
        ],
    ),
    mistake(
        "file that does not exist, before anything is run",
        &["--input", "in/a.txt", "--mapper", "cat", "--file", "none.py", "--dry-run"],
        1,
        &["corona: --file none.py: No such file or directory"],
    ),
    mistake(
        "job tracker that does not run",
        &[
            "--input",
            "in/a.txt",
            "--mapper",
            "cat",
            "--job-tracker",
            "127.0.0.1:1",
            "--timeout",
            "2",
        ],
        1,
        &[
            "the job tracker at 127.0.0.1:1 cannot be reached: Connection refused",
            "; nothing listens there: check the address, or start the cluster",
        ],
    ),
    mistake(
        "name with a blank",
        &["--input", "in/a.txt", "--mapper", "./my map.sh", "--file", "my map.sh"],
        1,
        &[
            "the name of this file has a blank; quote it for the shell of the tasks: --mapper \"'./my map.sh'\"",
        ],
    ),
    mistake(
        "line that is too long",
        &["--input", "in/line", "--mapper", "cat", "-D", "corona.task.max.record.bytes=2048"],
        1,
        &[
            "in/line: a line has more than 2048 bytes (corona.task.max.record.bytes)",
            "--skip-bad-records leaves them out",
        ],
    ),
    mistake(
        "reducer without reduces",
        &["--input", "in/a.txt", "--mapper", "cat", "--reducer", "uniq -c", "--reduces", "0"],
        2,
        &["--reducer has no effect without reduces"],
    ),
    mistake(
        "setting that is mistyped",
        &["--input", "in/a.txt", "--mapper", "cat", "-D", "mapred.reduce.task=3"],
        0,
        &[
            "note: -D mapred.reduce.task: corona reads no such setting; did you mean mapred.reduce.tasks?",
        ],
    ),
    mistake(
        "memory that no node has",
        &["--input", "in/a.txt", "--mapper", "cat", "-D", "mapred.job.map.memory.mb=99999999"],
        0,
        &[
            "note: -D mapred.job.map.memory.mb=99999999: no node has so much memory, the largest has ",
        ],
    ),
    mistake(
        "setting with a wrong value",
        &["--input", "in/a.txt", "--mapper", "cat", "-D", "mapred.task.timeout=10s"],
        2,
        &["-D mapred.task.timeout: value \"10s\" is not a whole number; expected milliseconds"],
    ),
    mistake(
        "job tracker of another name, before anything is run",
        &[
            "--input",
            "in/a.txt",
            "--mapper",
            "cat",
            "-D",
            "mapred.job.tracker=127.0.0.1:1",
            "--dry-run",
        ],
        2,
        &["use --job-tracker 127.0.0.1:1"],
    ),
];

/// The first call of a name node that does not answer is the last.
const AT_ONCE: &str = "corona.fs.connect.patience.ms=0";

fn prepare(cluster: &MiniCluster) {
    for directory in ["in", "nested/sub", "empty", "scripts", "out"] {
        fs::create_dir_all(cluster.path(directory)).unwrap();
    }
    cluster.write("in/a.txt", "a b c\n");
    cluster.write("in/long.txt", "a line of text\n".repeat(100_000));
    cluster.write("in/line", "a".repeat(10_000));
    cluster.write("in/damaged.gz", b"\x1f\x8b\x08 and no more");
    cluster.write("nested/sub/x", "x\n");
    for (name, text) in [
        ("map.py", "#!/usr/bin/env python3\n"),
        ("scripts/map.py", "#!/usr/bin/env python3\n"),
        ("plain.py", "import sys\nfor line in sys.stdin: print(line)\n"),
        ("returns.sh", "#!/bin/sh\r\ncat\r\n"),
        ("my map.sh", "#!/bin/sh\ncat\n"),
    ] {
        cluster.write(name, text);
        fs::set_permissions(cluster.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn run(cluster: &MiniCluster, mistake: &Mistake, output: &str) -> Output {
    let mut job = cluster.job(mistake.arguments);
    job.args(["--output", output]).args(ONCE).output().unwrap()
}

#[test]
#[allow(clippy::print_stdout, reason = "people read all texts together, with --nocapture")]
fn usual_mistakes_are_explained() {
    let cluster = MiniCluster::start(&[]);
    prepare(&cluster);
    let mut wrong = Vec::new();
    for (number, mistake) in MISTAKES.iter().enumerate() {
        let output = run(&cluster, mistake, &format!("out/{number}"));
        let text = stderr(&output);
        println!("== {}: {:?}\n{text}", mistake.name, mistake.arguments);
        let silent = mistake.says.iter().filter(|part| !text.contains(**part)).collect::<Vec<_>>();
        if output.status.code() != Some(mistake.status) || !silent.is_empty() {
            wrong.push(format!("{}: {}, without {silent:?}:\n{text}", mistake.name, output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // An output that exists is kept.
    let inner =
        mistake("output in the input", &["--input", "nested/sub", "--mapper", "cat"], 0, &[]);
    let text = stderr(&run(&cluster, &inner, "nested/sub/out"));
    assert!(text.contains("nested/sub/out lies in the input file:/"), "{text}");
    let taken = mistake("output that exists", &["--input", "in/a.txt", "--mapper", "cat"], 1, &[]);
    for (output, expected) in [
        (
            "scripts",
            "scripts already exists; nothing is overwritten: name a new directory with --output; ",
        ),
        ("in", "/in/a.txt, which is not overwritten: name a new directory with --output"),
    ] {
        let text = stderr(&run(&cluster, &taken, output));
        println!("== {}: {output}\n{text}", taken.name);
        assert!(text.contains(expected), "{text}");
    }
    assert!(cluster.path("in/a.txt").exists() && cluster.path("scripts/map.py").exists());
    // A cluster that does not run any more.
    let root = cluster.stop();
    let words = ["jobs", "list", "--conf-dir", "cluster/conf", "--timeout", "5"];
    let output = corona().args(words).current_dir(root.path()).output().unwrap();
    let text = stderr(&output);
    println!("== {words:?}\n{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("; start the cluster with 'corona mini-cluster --dir /"), "{text}");
}

/// In a user namespace, where root has no rights beyond the modes of files.
#[test]
fn a_journal_that_may_not_be_written_is_named_with_the_user() {
    let without_rights = || {
        let mut command = Command::new("unshare");
        command.arg("--user");
        command
    };
    if !without_rights().arg("true").output().is_ok_and(|probe| probe.status.success()) {
        return skip(Missing::Namespaces);
    }
    let root = tempfile::tempdir().unwrap();
    let journal = root.path().join("journal");
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o555)).unwrap();
    let mut manager = without_rights();
    manager.arg(corona_program()).args(["cluster-manager", "-D", "cm.server.address=127.0.0.1:0"]);
    manager.args(["-D", "cm.server.http.address=127.0.0.1:0"]);
    manager.arg("-D").arg(format!("corona.cm.journal.dir={}", journal.display()));
    manager.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET").current_dir(root.path());
    let output = manager.output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap();
    let start = format!(
        "corona: cannot use the journal in {} (corona.cm.journal.dir): ",
        journal.display()
    );
    assert!(last.starts_with(&start), "{text}");
    assert!(last.contains("Permission denied (os error 13); this process runs as user "), "{text}");
}

/// On a machine of its own, where the addresses of a cluster that is not configured are free.
#[test]
fn without_a_cluster_the_command_that_starts_one_is_named_at_once() {
    let alone = || {
        let mut alone = Command::new("unshare");
        alone.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
        alone.arg("ip link set lo up && exec \"$0\" \"$@\"");
        alone
    };
    if !alone().arg("true").output().is_ok_and(|probe| probe.status.success()) {
        return skip(Missing::Namespaces);
    }
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("a.txt"), "a\n").unwrap();
    for words in [
        &["job", "run", "--input", "a.txt", "--output", "out", "--mapper", "cat"][..],
        &["jobs", "list"],
        &["status"],
    ] {
        let began = Instant::now();
        let mut command = alone();
        command.arg(corona_program()).args(words).current_dir(home.path());
        command.env_remove("HADOOP_CONF_DIR").env_remove("XDG_CONFIG_HOME");
        let output = command.env("HOME", home.path()).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains("cannot be reached: Connection refused"), "{text}");
        assert!(last.contains("start one with 'corona mini-cluster --dir cluster'"), "{text}");
        assert_eq!(text.matches("mini-cluster").count(), 1, "{text}");
        // A restart of a job tracker would be waited for.
        assert!(began.elapsed() < Duration::from_secs(30), "{words:?}");
    }
}
