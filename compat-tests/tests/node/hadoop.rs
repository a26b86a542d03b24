//! The program under the name `hadoop` on a small cluster: streaming jobs as people write them, the commands of
//! job clients, and jobs of mrjob.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compat_tests::clients::{python, skipped};
use compat_tests::{corona_program, repository};
use tempfile::TempDir;

use super::mini_cluster::{MiniCluster, stderr};

/// A directory like `HADOOP_HOME`, with the program under the name `hadoop`.
struct Home(TempDir);

impl Home {
    fn make() -> Home {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        symlink(corona_program(), dir.path().join("bin/hadoop")).unwrap();
        Home(dir)
    }

    /// A command of the shell, which finds this `hadoop` and the cluster.
    fn shell(&self, cluster: &MiniCluster, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(cluster.root.path());
        command.env("PATH", format!("{}:{path}", self.0.path().join("bin").display()));
        command.env("HADOOP_HOME", self.0.path());
        command.env("HADOOP_CONF_DIR", cluster.path("cluster/conf"));
        command
    }

    fn run(&self, cluster: &MiniCluster, line: &str) -> Output {
        let output = self.shell(cluster, line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        output
    }
}

const MAPPER: &str = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    for word in line.split():\n        print('%s\\t%s' % (word, 1))\n";
const REDUCER: &str = "#!/usr/bin/env python3\nimport sys\nfrom itertools import groupby\npairs = (line.rstrip('\\n').split('\\t', 1) for line in sys.stdin)\nfor word, group in groupby(pairs, lambda pair: pair[0]):\n    print('%s\\t%d' % (word, sum(int(count) for _, count in group)))\n";
const AGGREGATOR: &str = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    print('LongValueSum:' + line.split('\\t')[0].rstrip('\\n') + '\\t' + '1')\n";

/// Lines of a shell as they stand in the original's guide, in tutorials and in answers to questions, and the sorted
/// lines of their output.
const LINES: &[(&str, &str, &[&str])] = &[
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -input myInputDirs -output myOutputDir -mapper /bin/cat -reducer /bin/wc",
        "myOutputDir",
        &["      3       6      19\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -input myInputDirs -output myOutputDir -mapper org.apache.hadoop.mapred.lib.IdentityMapper \
         -reducer /bin/wc",
        "myOutputDir",
        &["      3       6      19\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -input myInputDirs -output myOutputDir -mapper myPythonScript.py -reducer /bin/wc \
         -file myPythonScript.py",
        "myOutputDir",
        &["      6      12      28\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -input myInputDirs -output myOutputDir -mapper myPythonScript.py -reducer /bin/wc \
         -file myPythonScript.py -file myDictionary.txt",
        "myOutputDir",
        &["      6      12      28\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -input myInputDirs -output myOutputDir \
         -mapper org.apache.hadoop.mapred.lib.IdentityMapper -reducer /bin/wc \
         -jobconf mapred.reduce.tasks=1",
        "myOutputDir",
        &["      3       6      19\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -D stream.map.output.field.separator=. -D stream.num.map.output.key.fields=4 \
         -input dotted -output myOutputDir \
         -mapper org.apache.hadoop.mapred.lib.IdentityMapper \
         -reducer org.apache.hadoop.mapred.lib.IdentityReducer",
        "myOutputDir",
        &["11.11.4.1\t", "11.12.1.1\t", "11.12.1.2\t", "11.14.2.2\t", "11.14.2.3\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -D stream.map.output.field.separator=. -D stream.num.map.output.key.fields=4 \
         -D map.output.key.field.separator=. -D mapred.text.key.partitioner.options=-k1,2 \
         -D mapred.reduce.tasks=12 -input dotted -output myOutputDir \
         -mapper org.apache.hadoop.mapred.lib.IdentityMapper \
         -reducer org.apache.hadoop.mapred.lib.IdentityReducer \
         -partitioner org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner",
        "myOutputDir",
        &["11.11.4.1\t", "11.12.1.1\t", "11.12.1.2\t", "11.14.2.2\t", "11.14.2.3\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -D mapred.output.key.comparator.class=org.apache.hadoop.mapred.lib.KeyFieldBasedComparator \
         -D stream.map.output.field.separator=. -D stream.num.map.output.key.fields=4 \
         -D map.output.key.field.separator=. -D mapred.text.key.comparator.options=-k2,2nr \
         -D mapred.reduce.tasks=1 -input dotted -output myOutputDir \
         -mapper org.apache.hadoop.mapred.lib.IdentityMapper \
         -reducer org.apache.hadoop.mapred.lib.IdentityReducer",
        "myOutputDir",
        &["11.11.4.1\t", "11.12.1.1\t", "11.12.1.2\t", "11.14.2.2\t", "11.14.2.3\t"],
    ),
    (
        "$HADOOP_HOME/bin/hadoop  jar $HADOOP_HOME/hadoop-streaming.jar \
         -D mapred.reduce.tasks=12 -input myInputDirs -output myOutputDir \
         -mapper myAggregatorForKeyCount.py -reducer aggregate -file myAggregatorForKeyCount.py",
        "myOutputDir",
        &["a b a\t1", "b\t1", "the end\t1"],
    ),
    (
        "bin/hadoop jar contrib/streaming/hadoop-0.20.2-streaming.jar \
         -mapper mapper.py -file mapper.py -reducer reducer.py -file reducer.py \
         -input gutenberg/* -output gutenberg-output",
        "gutenberg-output",
        &["a\t2", "b\t2", "end\t1", "the\t1"],
    ),
    (
        "hadoop jar /usr/lib/hadoop-0.20-mapreduce/contrib/streaming/hadoop-streaming-2.0.0-mr1-cdh4.1.1.jar \
         -mapper mapper.py -reducer reducer.py -file mapper.py -file reducer.py \
         -input myinput -output joboutput",
        "joboutput",
        &["a\t2", "b\t2", "end\t1", "the\t1"],
    ),
    (
        "hadoop jar /usr/local/hadoop/share/hadoop/tools/lib/hadoop-streaming-2.7.1.jar \
         -files mapper.py,reducer.py -mapper mapper.py -reducer reducer.py -input books -output books-output",
        "books-output",
        &["a\t2", "b\t2", "end\t1", "the\t1"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -D mapreduce.job.reduces=2 -D mapreduce.job.name='Word count' \
         -files mapper.py,reducer.py -mapper 'python3 mapper.py' -combiner 'python3 reducer.py' \
         -reducer 'python3 reducer.py' -input books -output wordcount",
        "wordcount",
        &["a\t2", "b\t2", "end\t1", "the\t1"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -input books -output out -mapper cat -numReduceTasks 0",
        "out",
        &["a b a\t", "b\t", "the end\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -D mapred.reduce.tasks=0 -input books -output out \
         -mapper 'grep -v end'",
        "out",
        &["a b a\t", "b\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -input books -output out -mapper cat -reducer NONE",
        "out",
        &["a b a\t", "b\t", "the end\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -input books -output out -mapper cat -reducer 'uniq -c' \
         -cmdenv LC_ALL=C -verbose -numReduceTasks 1",
        "out",
        &["      1 a b a\t", "      1 b\t", "      1 the end\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -inputformat KeyValueTextInputFormat -input tabbed -output out \
         -mapper cat -numReduceTasks 0",
        "out",
        &["k\tv w", "x\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -D mapred.line.input.format.linespermap=2 \
         -inputformat org.apache.hadoop.mapred.lib.NLineInputFormat -input books -output out \
         -mapper 'sh -c \"cat; echo end of a map\"' -numReduceTasks 0",
        "out",
        &["0\ta b a", "6\tb", "8\tthe end", "end of a map\t", "end of a map\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -input books -output out -archives words.tar.gz#words \
         -mapper 'sh -c \"cat > /dev/null; cat words/words.txt\"' -numReduceTasks 0",
        "out",
        &["packed\t"],
    ),
    (
        "hadoop jar hadoop-streaming.jar -input books -output out -numReduceTasks 0 \
         -mapper 'sh -c \"env; cat dict; cat > /dev/null\"' \
         -cmdenv EXAMPLE_DIR=/home/example/dictionaries/ -cacheFile file://$PWD/myDictionary.txt#dict",
        "out",
        &[],
    ),
];

fn prepare(cluster: &MiniCluster) {
    for directory in ["myInputDirs", "gutenberg", "myinput", "books"] {
        fs::create_dir(cluster.path(directory)).unwrap();
        cluster.write(&format!("{directory}/text"), "a b a\nb\nthe end\n");
    }
    cluster.write("dotted", "11.12.1.2\n11.14.2.3\n11.11.4.1\n11.12.1.1\n11.14.2.2\n");
    cluster.write("tabbed", "k\tv w\nx\n");
    cluster.write("myDictionary.txt", "word\n");
    for name in ["mapper.py", "myPythonScript.py"] {
        cluster.write(name, MAPPER);
    }
    cluster.write("reducer.py", REDUCER);
    cluster.write("myAggregatorForKeyCount.py", AGGREGATOR);
    cluster.write("words.txt", "packed\n");
    let mut tar = Command::new("tar");
    tar.args(["czf", "words.tar.gz", "words.txt"]);
    assert!(tar.current_dir(cluster.root.path()).status().unwrap().success());
    fs::create_dir(cluster.path("bin")).unwrap();
    symlink(corona_program(), cluster.path("bin/hadoop")).unwrap();
}

fn streaming_lines_of_tutorials_run_unchanged(cluster: &MiniCluster, home: &Home) {
    assert_eq!(LINES.len(), 21);
    for (line, output, expected) in LINES {
        let done = home.run(cluster, line);
        let log = stderr(&done);
        assert!(log.contains(" INFO streaming.StreamJob: Running job: job_"), "{log}");
        assert!(log.contains(&format!("INFO streaming.StreamJob: Output: {output}\n")), "{log}");
        let lines = cluster.lines(output);
        match expected.is_empty() {
            true => {
                for line in ["EXAMPLE_DIR=/home/example/dictionaries/\t", "word\t"] {
                    assert!(lines.contains(&line.to_owned()), "{line}: {lines:?}");
                }
            }
            false => assert_eq!(lines, *expected, "{line}"),
        }
        fs::remove_dir_all(cluster.path(output)).unwrap();
    }
}

fn failures_have_the_statuses_of_the_original(cluster: &MiniCluster, home: &Home) {
    fs::create_dir(cluster.path("there")).unwrap();
    for (options, status, expected) in [
        (
            "-input books -output failed -mapper 'sh -c \"exit 3\"' -D mapred.map.max.attempts=1",
            1,
            "ERROR streaming.StreamJob: Job not Successful!",
        ),
        (
            "-input none -output x -mapper cat",
            5,
            "Error Launching job : Input path does not exist: file:",
        ),
        ("-input 'none*' -output x -mapper cat", 5, "matches 0 files"),
        (
            "-input books -output there -mapper cat",
            4,
            "Output path already exists : Output directory file:",
        ),
        (
            "-input books -output x -mapper cat -D mapred.output.committer.class=org.x.C",
            3,
            "mapred.output.committer.class is \"org.x.C\"",
        ),
        ("-input books -output x -mapper org.x.My", 1, "-mapper org.x.My: the class needs Java"),
        (
            "-input books -output x -mapper cat -D mapred.job.priority=URGENT",
            3,
            "mapred.job.priority: value \"URGENT\" is no priority; expected one of",
        ),
    ] {
        let line = format!("hadoop jar hadoop-streaming.jar {options}");
        let output = home.shell(cluster, &line).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{line}: {text}");
        assert!(text.contains(expected), "{line}: {text}");
        assert!(text.ends_with("Streaming Job Failed!\n"), "{text}");
        // A job that has run leaves the directory of its logs.
        assert!(!cluster.path("x/_SUCCESS").exists(), "{line}");
    }
}

fn job_clients_are_answered(cluster: &MiniCluster, home: &Home) {
    let line = "hadoop jar hadoop-streaming.jar -input books -output waits -mapper 'sh -c \"cat; sleep 600\"' \
                -background";
    let started = stderr(&home.run(cluster, line));
    let (_, rest) = started.split_once("Running job: ").unwrap();
    let job = rest.lines().next().unwrap();
    let text = |line: &str| String::from_utf8(home.run(cluster, line).stdout).unwrap();
    let list = text("hadoop job -list");
    assert!(list.starts_with("1 jobs currently running\nJobId\tState\tStartTime\t"), "{list}");
    assert!(list.contains(&format!("\n{job}\t")), "{list}");
    let status = text(&format!("hadoop job -status {job}"));
    assert!(status.starts_with(&format!("\nJob: {job}\nfile: ")), "{status}");
    assert!(status.contains("\nmap() completion: ") && status.contains("\nCounters: "), "{status}");
    assert_eq!(text(&format!("hadoop job -set-priority {job} HIGH")), "Changed job priority.\n");
    let events = text(&format!("hadoop job -events {job} 0 10"));
    assert!(
        events.starts_with(&format!("Task completion events for {job}\nNumber of ev")),
        "{events}"
    );
    assert_eq!(text(&format!("hadoop job -counter {job} no.such group")), "0\n");
    assert_eq!(text(&format!("hadoop job -kill {job}")), format!("Killed job {job}\n"));
    let unknown = home.shell(cluster, "hadoop job -status job_201201010000_0001").output().unwrap();
    assert_eq!(unknown.status.code(), Some(255));
    assert_eq!(unknown.stdout, b"Could not find job job_201201010000_0001\n");
    assert!(text("hadoop job -list all").contains("jobs submitted\nStates are:\n\tRunning : 1\t"));
    assert_eq!(text("hadoop job -list-active-trackers").lines().count(), 2);
}

/// Files that Hadoop's classes wrote go through jobs as text, and as sequence files again.
fn sequence_files_are_input_and_output(cluster: &MiniCluster, home: &Home) {
    fs::create_dir(cluster.path("seq")).unwrap();
    let golden = |name: &str| {
        let file = repository().join(format!("src/task/golden/sequence/{name}.seq"));
        fs::read(file).unwrap()
    };
    for name in ["none-text", "record-default", "block-bzip2"] {
        cluster.write(&format!("seq/{name}.seq"), golden(name));
    }
    let text = |line: &str| {
        let text = String::from_utf8(home.run(cluster, line).stdout).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let job = |options: &str| {
        home.run(cluster, &format!("hadoop jar hadoop-streaming.jar {options}"));
    };
    let all = text("hadoop fs -text 'seq/*.seq'");
    assert_eq!(all.len(), 60 + 60 + 200);
    let read = "-inputformat SequenceFileAsTextInputFormat -D mapred.map.tasks=100 -input seq";
    for compression in ["NONE", "RECORD", "BLOCK"] {
        job(&format!(
            "{read} -output again -mapper cat -reducer cat -D mapred.output.compress=true \
             -D mapred.output.compression.type={compression} -outputformat SequenceFileOutputFormat"
        ));
        assert_eq!(text("hadoop fs -text again/part-00000"), all, "{compression}");
        fs::remove_dir_all(cluster.path("again")).unwrap();
    }
    job(&format!("{read} -output maps -mapper 'sh -c \"cat >/dev/null; echo end\"' -reducer NONE"));
    assert!(cluster.lines("maps").len() > 3, "files of 12 kB are cut at their marks");
    // What programs see of bytes depends on the format.
    cluster.write("bytes.seq", golden("none-bytes"));
    for (format, expected) in [("AsText", "3e 45\t5d 64 6b"), ("", ">E\t]dk")] {
        job(&format!(
            "-inputformat SequenceFile{format}InputFormat -input bytes.seq -output bytes -reducer NONE \
             -mapper 'sed -n 3p'"
        ));
        assert_eq!(cluster.lines("bytes"), [expected]);
        fs::remove_dir_all(cluster.path("bytes")).unwrap();
    }
    let cut = golden("none-text");
    cluster.write("cut.seq", &cut[..cut.len() - 1]);
    for (options, expected) in [
        ("-input cut.seq", "cut.seq: the sequence file ends in the middle of a record"),
        ("-input books", "/books/text is no sequence file, which -inputformat or"),
        ("-input seq -inputformat SequenceFileAsBinaryInputFormat", "the class needs Java"),
        (
            "-input seq -D mapred.output.key.class=org.apache.hadoop.io.BytesWritable",
            "mapred.output.key.class is \"org.apache.hadoop.io.BytesWritable\"",
        ),
    ] {
        let line = format!(
            "hadoop jar hadoop-streaming.jar -inputformat SequenceFileInputFormat {options} -output wrong \
             -mapper cat -D mapred.map.max.attempts=1"
        );
        let output = home.shell(cluster, &line).output().unwrap();
        assert!(!output.status.success(), "{line}");
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
        assert!(!cluster.path("wrong/part-00000").exists(), "{line}");
        // A job that has run leaves the directory of its logs.
        let _ = fs::remove_dir_all(cluster.path("wrong"));
    }
    let shown = home.shell(cluster, "hadoop fs -text cut.seq").output().unwrap();
    assert_eq!(shown.status.code(), Some(255));
    assert!(stderr(&shown).contains("the sequence file ends in the middle of a record"));
}

#[test]
fn scripts_of_hadoop_run_without_java() {
    let cluster = MiniCluster::start(&[]);
    let home = Home::make();
    prepare(&cluster);
    sequence_files_are_input_and_output(&cluster, &home);
    streaming_lines_of_tutorials_run_unchanged(&cluster, &home);
    failures_have_the_statuses_of_the_original(&cluster, &home);
    job_clients_are_answered(&cluster, &home);
}

/// The directory of mrjob's example jobs.
fn examples(python: &Path) -> PathBuf {
    let code = "import os, mrjob.examples; print(os.path.dirname(mrjob.examples.__file__))";
    let output = Command::new(python).args(["-c", code]).output().unwrap();
    assert!(output.status.success(), "run scripts/test, which installs mrjob: {}", stderr(&output));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

#[test]
fn jobs_of_mrjob_have_the_results_of_its_inline_runner() {
    if skipped() {
        return;
    }
    let (python, cluster, home) = (python(), MiniCluster::start(&[]), Home::make());
    let examples = examples(&python);
    cluster.write(
        "text",
        "It was the best of times,\nit was the worst of times.\nNine nice numbers under it\n",
    );
    cluster.write("mrjob.conf", "runners: {}\n");
    fs::create_dir(cluster.path("shared")).unwrap();
    let line = |runner: &str, job: &str, options: &str| {
        let (python, job) = (python.display(), examples.join(job));
        format!("{python} {} -c mrjob.conf -r {runner} {options} text", job.display())
    };
    let results = |runner: &str, job: &str, options: &str| {
        let output = home.run(&cluster, &line(runner, job, options));
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            // As with the original, a line without a tab is a key, and a tab is written behind it.
            let line = line.trim_end_matches('\t');
            // Python puts the members of an object into another order each time.
            let line = match line.split_once('\t') {
                Some((key, value)) => match serde_json::from_str::<serde_json::Value>(value) {
                    Ok(value) => format!("{key}\t{value}"),
                    Err(_) => line.to_owned(),
                },
                None => line.to_owned(),
            };
            *lines.entry(line).or_default() += 1;
        }
        lines
    };
    let shared = cluster.path("shared");
    let options = format!(
        "--hadoop-streaming-jar hadoop-streaming.jar --hadoop-tmp-dir file://{} --python-bin {}",
        shared.display(),
        python.display()
    );
    let documents =
        format!("{0}/america*.txt {0}/b*.txt", examples.join("docs-to-classify").display());
    // All that need no jar, no Spark and no further package. The inline runner starts no commands.
    for (job, runner, own) in [
        ("mr_word_freq_count.py", "inline", ""),
        ("mr_most_used_word.py", "inline", ""),
        ("mr_next_word_stats.py", "inline", ""),
        ("mr_wc.py", "inline", ""),
        ("mr_count_lines_right.py", "inline", ""),
        ("mr_log_sampler.py", "inline", "--sample-size 3 --expected-length 3"),
        ("mr_text_classifier.py", "inline", &documents),
        ("mr_words_containing_u_freq_count.py", "local", ""),
        ("mr_grep.py", "local", "-e of"),
    ] {
        let expected = results(runner, job, own);
        assert!(!expected.is_empty(), "{job}");
        assert_eq!(results("hadoop", job, &format!("{options} {own}")), expected, "{job}");
    }
    // Names of files, and numbers of lines for each map, differ between runners.
    let sum = |runner: &str, job: &str, options: &str| {
        let results = results(runner, job, options);
        let numbers = results.iter().map(|(line, count)| {
            line.rsplit('\t').next().unwrap().parse::<usize>().unwrap() * count
        });
        numbers.sum::<usize>()
    };
    for job in ["mr_count_lines_by_file.py", "mr_count_lines_wrong.py"] {
        assert_eq!((sum("inline", job, ""), sum("hadoop", job, &options)), (3, 3), "{job}");
    }
    // It has deleted what it had left there.
    let left: Vec<_> = walk(&shared).collect();
    assert!(left.is_empty(), "{left:?}");
    // mrjob leaves the files of a job that has failed, as with the original.
    for (runner, options) in [("inline", ""), ("hadoop", &options)] {
        let line = line(runner, "mr_boom.py", options);
        assert!(!home.shell(&cluster, &line).output().unwrap().status.success(), "{line}");
    }
}

/// The files below a directory.
fn walk(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let (mut files, mut waiting) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { waiting.push(path) } else { files.push(path) }
        }
    }
    files.into_iter()
}
