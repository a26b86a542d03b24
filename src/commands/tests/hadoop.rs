//! `corona hadoop`, and the program under the name `hadoop`, on a small HDFS and on files of this machine.

use std::fs;

use super::peers::Hdfs;
use super::*;

fn hadoop(words: &[&str]) -> Done {
    run_as("/opt/x/bin/hadoop", words)
}

impl Hdfs {
    fn hadoop_fs(&self, words: &[&str]) -> Done {
        let default = format!("hdfs://{}/", self.cluster.address());
        let own = ["fs", "-fs", &default, "-D", "hadoop.job.ugi=ann,users", "-Ddfs.replication=1"];
        hadoop(&[&own[..], words].concat())
    }

    #[track_caller]
    fn is(&self, words: &[&str], status: u8, out: &str, err: &str) {
        let at = self.cluster.address().to_string();
        let Done { status: found, out: found_out, err: found_err } = self.hadoop_fs(words);
        let found = (found, found_out.replace(&at, "nn"), found_err.replace(&at, "nn"));
        assert_eq!(found, (ExitCode::from(status), out.to_owned(), err.to_owned()), "{words:?}");
    }
}

#[test]
fn files_are_handled_with_the_words_and_statuses_of_the_original() {
    let hdfs = Hdfs::start(1);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("one"), "1\n").unwrap();
    fs::write(at("two"), "22\n").unwrap();
    hdfs.is(&["-mkdir", "in"], 0, "", "");
    hdfs.is(&["-mkdir", "in"], 255, "", "mkdir: cannot create directory in: File exists\n");
    hdfs.is(&["-mkdir", "-p", "in/sub"], 0, "", "");
    hdfs.is(&["-put", &at("one"), &at("two"), "in"], 0, "", "");
    let exists = "put: Target hdfs://nn/user/ann/in/one already exists\n";
    hdfs.is(&["-put", &at("one"), "in"], 255, "", exists);
    hdfs.is(&["-put", "-f", &at("one"), "in"], 0, "", "");
    hdfs.is(&["-cat", "in/o*", "in/two"], 0, "1\n22\n", "");
    hdfs.is(&["-cat", "none"], 255, "", "cat: File does not exist: hdfs://nn/user/ann/none\n");
    hdfs.is(&["-cat", "none*"], 0, "", "");
    hdfs.is(&["-cat", "in"], 255, "", "cat: Source must be a file.\n");
    let listed = hdfs.hadoop_fs(&["-ls", "in"]).out;
    assert!(listed.starts_with("Found 3 items\n-rw-r--r--   1 ann users          2 "), "{listed}");
    let listed = hdfs.hadoop_fs(&["-lsr", "in"]).out;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let missing = "ls: Cannot access none: No such file or directory.\n";
    hdfs.is(&["-ls", "none"], 255, "", missing);
    hdfs.is(&["-dus", "in"], 0, "hdfs://nn/user/ann/in\t5\n", "");
    let sizes = "Found 2 items\n2           hdfs://nn/user/ann/in/one\n3           hdfs://nn/user/ann/in/two\n";
    hdfs.is(&["-rmdir", "in/sub"], 0, "", "Deleted hdfs://nn/user/ann/in/sub\n");
    hdfs.is(&["-du", "in"], 0, sizes, "");
    let counts = format!("{:>12} {:>12} {:>18} hdfs://nn/user/ann/in\n", 1, 2, 5);
    hdfs.is(&["-count", "in"], 0, &counts, "");
    for (flag, path, status) in [
        ("-e", "in", 0),
        ("-e", "none", 1),
        ("-d", "in", 0),
        ("-d", "in/one", 1),
        ("-z", "in/one", 1),
    ] {
        hdfs.is(&["-test", flag, path], status, "", "");
    }
    hdfs.is(&["-test", "-q", "in"], 255, "", "test: Unknown flag: q\n");
    hdfs.is(&["-stat", "%n %b", "in/one"], 0, "one 2\n", "");
    hdfs.is(&["-tail", "in/two"], 0, "22\n", "");
    hdfs.is(&["-head", "in/two"], 0, "22\n\n", "");
    hdfs.is(&["-getmerge", "in", &at("all")], 0, "", "");
    assert_eq!(fs::read_to_string(at("all")).unwrap(), "1\n22\n");
    hdfs.is(&["-get", "in/one", &at("got")], 0, "", "");
    hdfs.is(&["-cp", "in", "copy"], 0, "", "");
    hdfs.is(&["-cat", "copy/two"], 0, "22\n", "");
    hdfs.is(
        &["-cp", "in/one", "copy/one"],
        255,
        "",
        "cp: Target hdfs://nn/user/ann/copy/one already exists\n",
    );
    hdfs.is(&["-mv", "copy/two", "copy/2"], 0, "", "");
    hdfs.is(&["-touchz", "copy/empty"], 0, "", "");
    hdfs.is(&["-touchz", "copy/2"], 255, "", "touchz: copy/2 must be a zero-length file\n");
    hdfs.is(&["-chmod", "-R", "go-r", "copy"], 0, "", "");
    let listed = hdfs.hadoop_fs(&["-ls", "copy/2"]).out;
    assert!(listed.contains("-rw-------"), "{listed}");
    hdfs.is(&["-setrep", "2", "copy/2"], 0, "Replication 2 set: hdfs://nn/user/ann/copy/2\n", "");
    let directory = "rm: Cannot remove directory \"hdfs://nn/user/ann/copy\", use -rmr instead\n";
    hdfs.is(&["-rm", "copy"], 255, "", directory);
    hdfs.is(&["-rm", "copy/2"], 0, "", "Moved to trash: hdfs://nn/user/ann/copy/2\n");
    hdfs.is(&["-rmr", "-skipTrash", "copy"], 0, "", "Deleted hdfs://nn/user/ann/copy\n");
    let gone = "rmr: cannot remove hdfs://nn/user/ann/copy: No such file or directory.\n";
    hdfs.is(&["-rmr", "copy"], 255, "", gone);
    hdfs.is(&["-rm", "-R", "-f", "-skipTrash", "copy"], 0, "", "");
    fs::write(
        at("z"),
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0xe4, 2, 0, 0x53, 0xfc, 0x51, 0x67, 2, 0, 0, 0],
    )
    .unwrap();
    hdfs.is(&["-put", &at("z"), "in"], 0, "", "");
    hdfs.is(&["-text", "in/z", "in/one"], 0, "1\n1\n", "");
}

#[test]
fn wrong_commands_say_so_in_the_first_line_and_do_nothing() {
    for (words, status, expected) in [
        (&["fs", "-nope"][..], 255, "nope: Unknown command"),
        (&["fs", "-cat"], 255, "cat: Illegal number of arguments"),
        (&["fs", "-ls", "-x"], 255, "ls: Illegal option -x"),
        (
            &["fs", "-get", "-crc", "-ignoreCrc", "a", "b"],
            255,
            "get: -ignoreCrc is refused: files are not",
        ),
        (&["fs", "-expunge"], 255, "expunge: is refused: name nodes empty the trash"),
        (&["fs", "-D", "x", "-ls"], 1, "hadoop: -D x: expected key=value"),
        (&["job", "-nope"], 255, "-nope: Unknown command"),
        (&["job", "-status"], 255, "Usage: JobClient [-status <job-id>]"),
        (&["job", "-history", "x"], 255, "-history is refused: `corona jobs history JOB`"),
        (&["namenode"], 1, "hadoop: namenode: a service of HDFS"),
        (&["org.x.Main"], 1, "hadoop: org.x.Main is no command, and a class needs Java"),
        (&["jar"], 255, "RunJar jarFile [mainClass] args..."),
        (&["jar", "/none/x.jar"], 1, "hadoop: Error opening job jar: /none/x.jar: No such file"),
        (&["jar", "/none/streaming.jar", "-input", "x"], 1, "Required argument: -output <path>"),
    ] {
        let Done { status: found, out, err } = hadoop(words);
        assert_eq!(found, ExitCode::from(status), "{words:?}: {err}");
        assert_eq!(out, "", "{words:?}");
        assert!(err.starts_with(expected), "{words:?}: {err}");
    }
    let Done { status, out, .. } = hadoop(&["version"]);
    assert!(status == ExitCode::SUCCESS && out.starts_with("Hadoop 0.20\nCorona "), "{out}");
    let jar = tempfile::NamedTempFile::with_suffix(".jar").unwrap();
    fs::write(jar.path(), "PK\x03\x04").unwrap();
    let err = hadoop(&["jar", jar.path().to_str().unwrap(), "org.x.Main"]).err;
    assert!(err.contains("needs Java, which is not started here"), "{err}");
    // The same as a command of the program.
    corona("hadoop version").is(0, &out, "");
}
