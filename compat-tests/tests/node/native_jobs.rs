//! Jobs of native tasks on a small cluster: what people's programs, inputs and settings mean.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use compat_tests::repository;

use super::mini_cluster::{MiniCluster, corona, stderr};

/// A mapper and a reducer that write a line a second, where a task may make no progress for four.
fn slow_steps_live(cluster: &MiniCluster) {
    cluster.write("seven", "1\n2\n3\n4\n5\n6\n7\n");
    let slow = "while read line; do echo \"$line\"; sleep 1; done";
    let settings = ["-D", "mapred.task.timeout=4000", "-D", "corona.task.report.ms=200"];
    let steps = ["--input", "seven", "--output", "slow", "--mapper", slow, "--reducer", slow];
    cluster.run(&[&steps[..], &settings, &["-D", "mapred.map.max.attempts=1"]].concat());
    assert_eq!(cluster.lines("slow").len(), 7);
}

fn compressed_inputs_are_read_and_bzip2_is_written(cluster: &MiniCluster) {
    let golden = repository().join("src/task/golden");
    fs::create_dir(cluster.path("compressed")).unwrap();
    for name in ["lines.xz", "lines.zst", "lines-9.bz2"] {
        fs::copy(golden.join(name), cluster.path("compressed").join(name)).unwrap();
    }
    cluster.run(&[
        "--input",
        "compressed",
        "--output",
        "same",
        "--mapper",
        "cksum",
        "--reduces",
        "0",
    ]);
    let sums = cluster.lines("same");
    let different: BTreeSet<&String> = sums.iter().collect();
    assert_eq!((sums.len(), different.len()), (3, 1), "{sums:?}");
    let codec = "mapred.output.compression.codec=org.apache.hadoop.io.compress.BZip2Codec";
    cluster.run(&[
        "--input",
        "seven",
        "--output",
        "bz2",
        "--mapper",
        "builtin:sort",
        "--reducer",
        "builtin:sort",
        "-D",
        "mapred.output.compress=true",
        "-D",
        codec,
    ]);
    cluster.run(&[
        "--input",
        "bz2",
        "--output",
        "text",
        "--mapper",
        "builtin:sort",
        "--reduces",
        "0",
    ]);
    assert_eq!(cluster.lines("text").concat(), "1234567");
}

fn lines_of_a_length_are_left_out(cluster: &MiniCluster) {
    cluster.write("long", "abc\nabcd\nabcde\n\nx");
    let steps = ["--input", "long", "--output", "short", "--mapper", "cat", "--reduces", "0"];
    cluster.run(&[&steps[..], &["-D", "mapred.linerecordreader.maxlength=5"]].concat());
    assert_eq!(cluster.lines("short"), ["\t", "abc\t", "x\t"]);
}

fn reducers_take_values_that_are_numbers_or_missing(cluster: &MiniCluster) {
    let once = ["-D", "mapred.map.max.attempts=1", "-D", "mapred.reduce.max.attempts=1"];
    let steps = ["--input", "seven", "--output", "none", "--mapper", "sed 's/$/\\tfoo/'"];
    let text = cluster.fails(&[&steps[..], &["--reducer", "builtin:wc"], &once].concat());
    assert!(text.contains("the value of \"1\" is \"foo\""), "{text}");
    // Words without numbers are counted.
    cluster.run(&[
        "--input",
        "seven",
        "--output",
        "ones",
        "--mapper",
        "cat",
        "--reducer",
        "builtin:wc",
    ]);
    assert_eq!(cluster.lines("ones")[..2], ["1\t1", "2\t1"]);
    // A reduce without records writes nothing.
    let steps = ["--input", "seven", "--output", "empty", "--mapper", "sed d"];
    cluster.run(&[&steps[..], &["--reducer", "echo a; cat"]].concat());
    assert_eq!(cluster.lines("empty"), [""; 0]);
}

/// The documentation lists all variables that are no properties of the job, and the usual ones that are.
fn the_environment_is_the_documented_one(cluster: &MiniCluster) {
    let steps =
        ["--input", "seven", "--output", "env", "--mapper", "env; cat > seen", "--reduces", "0"];
    cluster.run(&[&steps[..], &["--env", "OWN=a ${user.name} ${no.such}"]].concat());
    let lines = cluster.lines("env");
    let names: BTreeSet<&str> =
        lines.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let own = lines.iter().find(|line| line.starts_with("OWN=")).unwrap();
    assert!(own.ends_with(" ${no.such}\t") && !own.contains("user.name"), "{own}");
    let page = fs::read_to_string(repository().join("docs/use/native-tasks.md")).unwrap();
    let (_, section) = page.split_once("\n## Environment of programs\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    // The first cells of the rows, but for those that describe names.
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let documented = rows.flat_map(|names| names.split('`')).filter(is_name);
    let documented: BTreeSet<&str> = documented.filter(|name| !name.is_empty()).collect();
    assert!(documented.len() > 20, "{documented:?}");
    for name in &documented {
        // Only a profiled task has the one.
        assert!(names.contains(name) || *name == "CORONA_PROFILE", "{name}: {names:?}");
    }
    // Variables of the task tracker are inherited, and properties have dots in their names.
    let inherited: BTreeSet<String> = std::env::vars().map(|(name, _)| name).collect();
    for name in names {
        let is_property = name.contains('_') && !name.starts_with("CORONA_");
        let is_known = documented.contains(name) || inherited.contains(name);
        // Those of the shell, and of a task tracker that the small cluster has started.
        let is_of_shell = ["PWD", "OLDPWD", "SHLVL", "_", "CORONA_PARENT"].contains(&name);
        assert!(is_property || is_known || is_of_shell || name == "OWN", "{name}");
    }
}

fn no_input_is_left_out_without_a_word(cluster: &MiniCluster) {
    fs::create_dir(cluster.path("odd")).unwrap();
    fs::write(cluster.path("odd/a"), "1\n").unwrap();
    fs::write(cluster.path("odd").join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "2\n").unwrap();
    let steps = ["--input", "odd", "--output", "odd-out", "--mapper", "cat"];
    let text = cluster.fails(&steps);
    assert!(text.contains(r"caf\xe9: its name is not UTF-8"), "{text}");
    let directory = format!("file:{}", cluster.path("odd").display());
    let listed = corona().args(["fs", "ls", &directory]).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(
        out.contains("/odd/a") && err.contains(r"caf\xe9: its name is not UTF-8"),
        "{out}{err}"
    );
    assert!(!listed.status.success());
}

fn a_submitted_job_is_cut_and_described_as_by_the_original(cluster: &MiniCluster) {
    let root = cluster.path("");
    let root = root.display().to_string();
    let root = root.trim_end_matches('/');
    fs::create_dir_all(cluster.path("in,put/sub")).unwrap();
    cluster.write("in,put/a", "x\n".repeat(3000));
    cluster.write("in,put/sub/b", "x\n".repeat(3000));
    cluster.write("words.txt", "found\n");
    let properties = [
        ("corona.task.native", "true"),
        ("corona.task.mapper", "sh wc -l; cat words"),
        ("mapred.reduce.tasks", "0"),
        ("mapred.create.symlink", "yes"),
        ("mapred.input.dir", &format!("file:{root}/in\\,put")),
        ("mapred.input.dir.recursive", "true"),
        ("mapred.map.tasks", "4"),
        ("mapred.output.dir", &format!("file:{root}/submitted")),
        ("mapred.cache.files", &format!("file:{root}/words.txt#words")),
    ];
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let xml: String = properties.iter().map(property).collect();
    cluster.write("job.xml", format!("<configuration>{xml}</configuration>"));
    let submit =
        |settings: &[&str]| cluster.output(&[&["job", "submit", "job.xml"], settings].concat());
    let ended = submit(&[]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let lines = cluster.lines("submitted");
    let found = lines.iter().filter(|line| line.starts_with("found")).count();
    let counts = lines.iter().filter_map(|line| line.trim().parse::<u32>().ok());
    assert_eq!((found, counts.sum::<u32>()), (4, 6000), "{lines:?}");
    let output = format!("mapred.output.dir=file:{root}/submitted-2");
    let ended = submit(&["-D", &output, "-D", "mapred.min.split.size=1000000"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let lines = cluster.lines("submitted-2");
    assert_eq!(lines.iter().filter(|line| line.starts_with("found")).count(), 2, "{lines:?}");
    let output = format!("mapred.output.dir=file:{root}/submitted-3");
    let refused = submit(&["-D", &output, "-D", "mapred.jobtracker.maxtasks.per.job=1"]);
    let text = stderr(&refused);
    assert!(text.contains("exceeds the configured limit 1"), "{text}");
}

#[test]
fn native_jobs_do_what_people_expect() {
    let cluster = MiniCluster::start(&[]);
    slow_steps_live(&cluster);
    compressed_inputs_are_read_and_bzip2_is_written(&cluster);
    lines_of_a_length_are_left_out(&cluster);
    reducers_take_values_that_are_numbers_or_missing(&cluster);
    the_environment_is_the_documented_one(&cluster);
    no_input_is_left_out_without_a_word(&cluster);
    a_submitted_job_is_cut_and_described_as_by_the_original(&cluster);
    cluster.stop();
}
