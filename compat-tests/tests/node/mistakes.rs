//! The most usual mistakes of newcomers with `corona job run`, and the text that each one gets: what happened, where, and
//! what to do. `docs/use/jobs.md` lists them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use super::mini_cluster::{MiniCluster, stderr};

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
        1,
        &["a shell replaces ~ by the home directory only where it is not quoted"],
    ),
    mistake(
        "input with subdirectories",
        &["--input", "nested", "--mapper", "cat"],
        1,
        &["nested/sub is a directory; add a pattern such as", "mapred.input.dir.recursive=true"],
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
        &["(gone.py is not among the files of the job; give it to the tasks with --file gone.py)"],
    ),
    mistake(
        "file that is shipped under another name",
        &["--input", "in/a.txt", "--mapper", "python3 scripts/map.py", "--file", "scripts/map.py"],
        1,
        &["note: --mapper names scripts/map.py, but --file gives it to the tasks as map.py"],
    ),
    mistake(
        "file that does not exist here",
        &["--input", "in/a.txt", "--mapper", "cat", "--file", "none.py"],
        1,
        &["--file none.py: none.py: No such file or directory"],
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
        "script with line ends of Windows",
        &["--input", "in/a.txt", "--mapper", "./returns.sh", "--file", "returns.sh"],
        1,
        &["the first line of the script ends in a carriage return", "sed -i 's/\\r$//' FILE"],
    ),
    mistake(
        "program that fails",
        &["--input", "in/a.txt", "--mapper", "echo ModuleNotFoundError >&2; exit 1"],
        1,
        &["subprocess failed with code 1", "Last lines of stderr:\n  ModuleNotFoundError\n"],
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
        &["--input", "in/a.txt", "--mapper", "no-such-program-here | cat"],
        0,
        &["note: the job has written no records; this prints", "  corona jobs logs job_"],
    ),
    mistake(
        "plain file with the name of a compressed one",
        &["--input", "in/plain.gz", "--mapper", "cat"],
        1,
        &["in/plain.gz: ", "(the ending of the file's name decides how it is read"],
    ),
    mistake(
        "options with one hyphen",
        &["-input", "in/a.txt", "-mapper", "cat"],
        2,
        &["tip: '-input' is read as options of one letter; write '--input'"],
    ),
    mistake(
        "number of reduces in words",
        &["--input", "in/a.txt", "--mapper", "cat", "--reduces", "two"],
        2,
        &["invalid value 'two' for '--reduces <COUNT>': expected a whole number"],
    ),
    mistake(
        "program that was killed",
        &["--input", "in/a.txt", "--mapper", "kill -9 $$"],
        1,
        &["137: signal 9 ended the program, as the system does when memory runs out"],
    ),
    mistake(
        "program that is silent for too long",
        &["--input", "in/a.txt", "--mapper", "sleep 600", "-D", "mapred.task.timeout=1000"],
        1,
        &["failed to report status for 1 seconds", "-D mapred.task.timeout=MILLISECONDS"],
    ),
    mistake(
        "quote that does not end",
        &["--input", "in/a.txt", "--mapper", "grep 'x"],
        1,
        &["subprocess failed with code 2", "Last lines of stderr:\n  sh: "],
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
        "setting with a wrong value",
        &["--input", "in/a.txt", "--mapper", "cat", "-D", "mapred.task.timeout=10s"],
        2,
        &["-D mapred.task.timeout: value \"10s\" is not a whole number; expected milliseconds"],
    ),
    mistake(
        "job tracker of another name",
        &["--input", "in/a.txt", "--mapper", "cat", "-D", "mapred.job.tracker=127.0.0.1:1"],
        2,
        &["use --job-tracker 127.0.0.1:1"],
    ),
];

fn prepare(cluster: &MiniCluster) {
    for directory in ["in", "nested/sub", "empty", "scripts", "out"] {
        fs::create_dir_all(cluster.path(directory)).unwrap();
    }
    cluster.write("in/a.txt", "a b c\n");
    cluster.write("in/long.txt", "a line of text\n".repeat(100_000));
    cluster.write("in/line", "a".repeat(10_000));
    cluster.write("in/plain.gz", "a b c\n");
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
fn usual_mistakes_are_explained() {
    let cluster = MiniCluster::start(&[]);
    prepare(&cluster);
    let mut wrong = Vec::new();
    for (number, mistake) in MISTAKES.iter().enumerate() {
        let output = run(&cluster, mistake, &format!("out/{number}"));
        let text = stderr(&output);
        let silent = mistake.says.iter().filter(|part| !text.contains(**part)).collect::<Vec<_>>();
        if output.status.code() != Some(mistake.status) || !silent.is_empty() {
            wrong.push(format!("{}: {}, without {silent:?}:\n{text}", mistake.name, output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // An output that exists is kept.
    let taken = mistake("output that exists", &["--input", "in/a.txt", "--mapper", "cat"], 1, &[]);
    let text = stderr(&run(&cluster, &taken, "in"));
    assert!(
        text.contains("already exists; delete it, name another --output, or add --overwrite"),
        "{text}"
    );
    assert!(cluster.path("in/a.txt").exists());
}
