//! `corona fs` against a small HDFS.

use std::fs;
use std::path::Path;

use corona::filesystem::testing::MiniCluster;
use serde_json::Value;

use super::*;

/// A small HDFS on threads of its own.
struct Hdfs {
    cluster: MiniCluster,
    _runtime: tokio::runtime::Runtime,
}

impl Hdfs {
    fn start(data_nodes: usize) -> Hdfs {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(MiniCluster::start(data_nodes));
        Hdfs { cluster, _runtime: runtime }
    }

    /// Runs `corona fs` with these words. Gives status, stdout and stderr.
    fn fs(&self, words: &[&str]) -> (bool, String, String) {
        let default = format!("fs.default.name=hdfs://{}/", self.cluster.address());
        let own = ["corona", "fs", "-D", &default, "-D", "hadoop.job.ugi=alice,users"];
        let small = ["-D", "dfs.block.size=65536", "-D", "dfs.replication=2"];
        let words = own.iter().chain(&small).chain(words).map(|word| (*word).into());
        let (mut out, mut err) = (vec![], vec![]);
        let status = run(words, &mut Console::of_test(&mut out, &mut err));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status == ExitCode::SUCCESS, text(out), text(err))
    }

    fn done(&self, words: &[&str]) -> String {
        let (done, out, err) = self.fs(words);
        assert!(done, "{words:?}: {err}");
        assert_eq!(err, "", "{words:?}");
        out
    }

    fn failed(&self, words: &[&str]) -> String {
        let (done, _, err) = self.fs(words);
        assert!(!done, "{words:?}");
        err
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_are_put_listed_read_moved_and_removed() {
    let hdfs = Hdfs::start(2);
    let address = hdfs.cluster.address();
    let dir = tempfile::tempdir().unwrap();
    let local = dir.path().join("a file");
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| b'a' + (n % 23) as u8).collect();
    fs::write(&local, &bytes).unwrap();

    assert_eq!(hdfs.done(&["mkdir", "in"]), "");
    assert_eq!(hdfs.failed(&["mkdir", "in"]), "mkdir: cannot create directory in: File exists\n");
    assert_eq!(hdfs.done(&["mkdir", "--parents", "in"]), "");
    assert_eq!(hdfs.done(&["put", text(&local), "in"]), "");
    let again = hdfs.failed(&["put", text(&local), "in"]);
    let whole = format!("hdfs://{address}/user/alice/in/a file");
    assert_eq!(again, format!("put: Target {whole} already exists\n"));
    hdfs.done(&["put", "--force", text(&local), "in/a file"]);
    let listed = hdfs.done(&["ls", "in"]);
    assert!(
        listed.starts_with("Found 1 items\n-rw-r--r--   2 alice users     200000 "),
        "{listed}"
    );
    assert!(listed.ends_with(" /user/alice/in/a file\n"), "{listed}");
    assert_eq!(hdfs.done(&["cat", "in/a*"]).as_bytes(), bytes);
    let to = dir.path().join("to");
    hdfs.done(&["get", "in/a*", text(&to)]);
    assert!(fs::read(&to).unwrap() == bytes);
    let exists = hdfs.failed(&["get", "in/a*", text(&to)]);
    assert_eq!(exists, format!("get: Target {} already exists\n", to.display()));

    let json: Value = serde_json::from_str(&hdfs.done(&["--json", "ls", "in"])).unwrap();
    assert_eq!(json[0]["path"], whole.as_str());
    assert_eq!((&json[0]["bytes"], &json[0]["type"]), (&200_000.into(), &"file".into()));
    assert_eq!(json[0]["permission"], "644");
    let stat = hdfs.done(&["stat", "in/a file"]);
    assert!(stat.contains(": regular file, 200000 bytes, -rw-r--r-- alice:users"), "{stat}");

    hdfs.done(&["mv", "in/a file", "in/b"]);
    let missing = hdfs.failed(&["mv", "in/a file", "in/c"]);
    assert_eq!(missing, format!("mv: {whole}: No such file or directory\n"));
    let removed = hdfs.done(&["rm", "in/b"]);
    assert_eq!(removed, format!("Moved to trash: hdfs://{address}/user/alice/in/b\n"));
    assert_eq!(hdfs.cluster.name_node.files(), ["/user/alice/.Trash/Current/user/alice/in/b"]);
    let directory = hdfs.failed(&["rm", "in"]);
    assert!(directory.starts_with("rm: Cannot remove directory \"hdfs://"), "{directory}");
    let removed = hdfs.done(&["rm", "--recursive", "--skip-trash", "in"]);
    assert_eq!(removed, format!("Deleted: hdfs://{address}/user/alice/in\n"));
    let missing = hdfs.failed(&["ls", "in"]);
    assert_eq!(missing, "ls: Cannot access in: No such file or directory.\n");
    let missing = hdfs.failed(&["stat", "in"]);
    assert_eq!(missing, "stat: cannot stat `in': No such file or directory\n");
    let refused = hdfs.failed(&["ls", "har://x/a"]);
    assert!(refused.starts_with("ls: har://x/a: scheme har: Hadoop archives"), "{refused}");
}

#[test]
fn directories_are_copied_whole_and_one_failure_does_not_stop_the_rest() {
    let hdfs = Hdfs::start(1);
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("one"), "1").unwrap();
    fs::write(tree.join("sub/two"), "22").unwrap();
    hdfs.done(&["put", text(&tree), "/copy"]);
    assert_eq!(hdfs.cluster.name_node.files(), ["/copy/one", "/copy/sub/two"]);
    let listed = hdfs.done(&["ls", "--recursive", "/copy"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let back = dir.path().join("back");
    hdfs.done(&["get", "/copy", text(&back)]);
    assert_eq!(fs::read_to_string(back.join("sub/two")).unwrap(), "22");
    assert!(back.join("sub/empty").is_dir());
    let (done, out, err) = hdfs.fs(&["cat", "/copy/one", "/nothing", "/copy/sub", "/copy/sub/two"]);
    assert!(!done);
    assert_eq!(out, "122");
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(
        err.contains("File does not exist: ") && err.contains("Source must be a file."),
        "{err}"
    );
    hdfs.cluster.name_node.set_safe_mode(true);
    let refused = hdfs.failed(&["mkdir", "/x"]);
    assert_eq!(refused, "mkdir: Cannot create directory /x. Name node is in safe mode.\n");
}
