//! `corona fs` against a small HDFS.

use std::fs;
use std::path::Path;

use corona::filesystem::testing::Faults;

use super::peers::Hdfs;
use super::*;

impl Hdfs {
    /// Runs `corona fs` with these words. Gives status, stdout and stderr.
    fn fs(&self, words: &[&str]) -> (bool, String, String) {
        let default = format!("fs.default.name=hdfs://{}/", self.cluster.address());
        let own = ["fs", "-D", &default, "-D", "hadoop.job.ugi=alice,users"];
        let small = ["-D", "dfs.block.size=65536", "-D", "dfs.replication=2"];
        let done = corona_words(&[&own[..], &small, words].concat());
        (done.status == ExitCode::SUCCESS, done.out, done.err)
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
    let lines: Vec<&str> = stat.lines().collect();
    assert_eq!(lines[0], whole);
    assert_eq!(lines[1], "  regular file, 200000 bytes, replication 2, blocks of 65536 bytes");
    assert!(lines[2].starts_with("  -rw-r--r-- alice:users, modified 20"), "{stat}");
    assert!(lines[1..].iter().all(|line| line.chars().count() <= 80), "{stat}");

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

#[test]
fn every_command_takes_both_names_of_json() {
    let hdfs = Hdfs::start(1);
    let address = hdfs.cluster.address();
    let dir = tempfile::tempdir().unwrap();
    let local = dir.path().join("a");
    fs::write(&local, "one\n").unwrap();
    let (from, back) = (text(&local), dir.path().join("back"));
    let whole = |name: &str| format!("hdfs://{address}/user/alice/{name}");
    let table: [(&[&str], &str, &str); 7] = [
        (&["mkdir", "d"], "path", "d"),
        (&["put", from, "d/a"], "to", "d/a"),
        (&["ls", "d"], "path", "d/a"),
        (&["stat", "d/a"], "path", "d/a"),
        (&["get", "d/a", text(&back)], "path", "d/a"),
        (&["mv", "d/a", "d/b"], "to", "d/b"),
        (&["rm", "--skip-trash", "d/b"], "path", "d/b"),
    ];
    for (words, field, name) in table {
        let shown = hdfs.done(&[words, &["--output", "json"]].concat());
        let json: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(1), "{words:?}: {shown}");
        assert_eq!(json[0][field], whole(name).as_str(), "{words:?}");
    }
    assert_eq!(fs::read(&back).unwrap(), b"one\n");
    assert_eq!(hdfs.done(&["ls", "d", "--json"]), hdfs.done(&["--output", "json", "ls", "d"]));
    assert_eq!(hdfs.done(&["ls", "d", "--json"]), "[]\n", "an empty directory");
}

#[test]
fn contents_are_printed_as_they_are_in_every_form() {
    let hdfs = Hdfs::start(1);
    let dir = tempfile::tempdir().unwrap();
    let local = dir.path().join("a");
    fs::write(&local, "one\n").unwrap();
    hdfs.done(&["put", &format!("file://{}", local.display()), "/a"]);
    for form in [&[][..], &["--json"], &["--output", "json"]] {
        assert_eq!(hdfs.done(&[&["cat", "/a"], form].concat()), "one\n", "{form:?}");
        assert_eq!(hdfs.done(&[&["get", "/a", "-"], form].concat()), "one\n", "{form:?}");
        let (done, out, err) = hdfs.fs(&[&["cat", "/no"], form].concat());
        assert!(!done && out.is_empty() && err.starts_with("cat: File does not exist: "), "{err}");
    }
}

#[test]
fn existing_files_are_not_replaced_or_mixed_unless_requested() {
    let hdfs = Hdfs::start(1);
    let address = hdfs.cluster.address();
    let dir = tempfile::tempdir().unwrap();
    let (file, tree) = (dir.path().join("f"), dir.path().join("tree"));
    fs::write(&file, "new").unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "new").unwrap();
    hdfs.done(&["put", text(&tree), "/in"]);
    hdfs.done(&["put", text(&tree), "/in"]);
    assert_eq!(hdfs.cluster.name_node.files(), ["/in/f", "/in/tree/f"]);
    let whole = |path: &str| format!("hdfs://{address}{path}");
    let table = [
        // The directory lies in the target by now.
        (vec!["put", text(&tree), "/in"], format!("Target {} is a directory", whole("/in/tree"))),
        (vec!["put", text(&file), "/in"], format!("Target {} already exists", whole("/in/f"))),
        (vec!["put", "/no/such/file", "/in"], "File /no/such/file does not exist.".to_owned()),
        (vec!["put", text(&file), text(&file), "/in/f"], {
            "When copying multiple files, destination should be a directory.".to_owned()
        }),
        (vec!["put", "-", "/in"], {
            "When source is stdin, destination must be a file.".to_owned()
        }),
    ];
    for (words, expected) in table {
        assert_eq!(hdfs.failed(&words), format!("put: {expected}\n"), "{words:?}");
    }
    fs::write(tree.join("g"), "more").unwrap();
    hdfs.done(&["put", "--force", text(&tree), "/in"]);
    assert_eq!(hdfs.cluster.name_node.files(), ["/in/f", "/in/tree/f", "/in/tree/g"]);
}

#[test]
fn roots_and_homes_of_hdfs_are_neither_deleted_nor_moved() {
    let hdfs = Hdfs::start(1);
    let address = hdfs.cluster.address();
    hdfs.done(&["mkdir", "-p", "/user/alice/d"]);
    let whole = |path: &str| format!("hdfs://{address}{path}");
    let root = format!("{}: it is the root directory", whole("/"));
    let home = "it has the home directory /user/alice; --force-root removes it";
    let table: [(&[&str], String); 8] = [
        (&["rm", "-r", "/"], format!("rm: cannot remove {root}")),
        (&["rm", "-r", "--skip-trash", "--force-root", "/"], format!("rm: cannot remove {root}")),
        (&["mv", "/", "/x"], format!("mv: cannot move {root}")),
        (&["rm", "-r", "/user"], format!("rm: cannot remove {}: {home}", whole("/user"))),
        (&["rm", "-r", "--skip-trash", "."], {
            format!("rm: cannot remove {}: {home}", whole("/user/alice"))
        }),
        (&["rm", "-r", "--force-root", "/user"], {
            let user = whole("/user");
            format!("rm: Cannot move \"{user}\" to the trash, as it contains the trash")
        }),
        (&["mv", "d", "d/below"], {
            let d = whole("/user/alice/d");
            format!("mv: cannot move {d} to {d}/below, which lies in it")
        }),
        (&["mv", "/user", "/user/alice"], {
            let user = whole("/user");
            format!("mv: cannot move {user} to {user}/alice/user, which lies in it")
        }),
    ];
    for (words, expected) in table {
        assert_eq!(hdfs.failed(words), format!("{expected}\n"), "{words:?}");
    }
    let calls = hdfs.cluster.name_node.calls();
    let changes =
        calls.iter().filter(|call| call.starts_with("delete") || call.starts_with("rename"));
    assert_eq!(changes.count(), 0, "{calls:?}");
    assert_eq!(hdfs.failed(&["rm", "no"]).lines().count(), 1);
    assert_eq!(hdfs.done(&["rm", "--force", "no"]), "");
    hdfs.done(&["rm", "-r", "--skip-trash", "--force-root", "/user"]);
    assert_eq!(
        hdfs.failed(&["ls", "/user"]),
        "ls: Cannot access /user: No such file or directory.\n"
    );
}

#[test]
fn directories_of_this_machine_are_deleted_when_that_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let rm = |words: &[&str], answers: Option<&'static str>| {
        let (mut out, mut err) = (vec![], vec![]);
        let console = Console::of_test(&mut out, &mut err);
        let mut console = match answers {
            Some(answers) => console.with_answers(answers),
            None => console,
        };
        let own = ["corona", "fs", "rm"];
        let status = run(own.iter().chain(words).map(|word| (*word).into()), &mut console);
        assert_eq!(status, ExitCode::SUCCESS, "{words:?}");
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let path = format!("file:{}", at("d").display());
    let question = format!("delete {path} and all that is in it? [y/N] ");
    for (words, answers, is_left, asked) in [
        (&["-r", &path][..], Some("n\n"), true, &question[..]),
        (&["-r", &path], Some(""), true, &question),
        (&["-r", &path], Some("y\n"), false, &question),
        (&["-rf", &path], Some("n\n"), false, ""),
        (&["-r", &path], None, false, ""),
    ] {
        fs::create_dir_all(at("d/sub")).unwrap();
        fs::write(at("d/sub/f"), "x").unwrap();
        let (out, err) = rm(words, answers);
        assert_eq!(err, asked, "{words:?}");
        let done = if is_left { "Kept" } else { "Deleted" };
        assert_eq!(out, format!("{done}: {path}\n"), "{words:?} {answers:?}");
        assert_eq!(at("d/sub/f").exists(), is_left, "{words:?} {answers:?}");
    }
    // A link goes, and what it leads to stays.
    fs::create_dir_all(at("kept")).unwrap();
    std::os::unix::fs::symlink("/", at("root")).unwrap();
    std::os::unix::fs::symlink(at("kept"), at("link")).unwrap();
    for name in ["root", "link"] {
        let link = format!("file:{}", at(name).display());
        assert_eq!(rm(&["-r", &link], Some("")).1, "", "{name}");
        assert!(!at(name).is_symlink(), "{name}");
    }
    assert!(at("kept").is_dir());
}

#[test]
fn nothing_is_copied_into_itself() {
    let hdfs = Hdfs::start(1);
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let at = |name: &str| real.join(name);
    fs::create_dir_all(at("d/sub")).unwrap();
    fs::write(at("d/f"), "content").unwrap();
    std::os::unix::fs::symlink(at("d"), at("link")).unwrap();
    let (d, file) = (at("d").display().to_string(), at("d/f").display().to_string());
    let uri = |path: &str| format!("file:{}", at(path).display());
    let in_it = |to: &str| format!("cannot copy {d} to {d}/{to}, which lies in it");
    let same = format!("{file} and {file} are the same");
    for (words, expected) in [
        (vec!["put", &d, &uri("d/sub")], format!("put: {}", in_it("sub/d"))),
        (vec!["put", &d, &uri("d/new")], format!("put: {}", in_it("new"))),
        (vec!["put", &d, &uri("link/new")], format!("put: {}", in_it("new"))),
        (vec!["put", "-f", &file, &uri("d")], format!("put: {same}")),
        (vec!["get", &uri("d"), &format!("{d}/new")], format!("get: {}", in_it("new"))),
        (vec!["get", &uri("link/f"), &file], format!("get: {same}")),
        (vec!["mv", &uri("d"), &uri("d/sub")], {
            let d = uri("d");
            format!("mv: cannot move {d} to {d}/sub/d, which lies in it")
        }),
    ] {
        assert_eq!(hdfs.failed(&words), format!("{expected}\n"), "{words:?}");
    }
    assert_eq!(fs::read_dir(at("d")).unwrap().count(), 2, "nothing was made");
    assert_eq!(fs::read(at("d/f")).unwrap(), b"content");
    // Links back to a directory above, of which two would make more copies than there is room for.
    for name in ["one", "two"] {
        std::os::unix::fs::symlink("..", at("d/sub").join(name)).unwrap();
    }
    let refused = hdfs.failed(&["put", &d, "/copy"]);
    assert_eq!(
        refused.matches("a link leads back to a directory above it").count(),
        2,
        "{refused}"
    );
    assert_eq!(hdfs.cluster.name_node.files(), ["/copy/f"]);
    let listed = hdfs.done(&["ls", "-r", &uri("d")]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
}

#[test]
fn a_name_node_whose_directory_contains_itself_is_listed_to_an_end() {
    let hdfs = Hdfs::start(1);
    hdfs.done(&["mkdir", "/loop"]);
    hdfs.cluster.name_node.set_loop("/loop", "again");
    let (done, out, err) = hdfs.fs(&["ls", "-r", "/loop"]);
    assert!(!done);
    assert_eq!((out.lines().count(), err.lines().count()), (999, 1), "{err}");
    assert!(err.contains("is longer than any name node takes"), "{err}");
}

#[test]
fn nothing_is_left_of_a_file_that_no_data_node_takes() {
    let hdfs = Hdfs::start(2);
    let dir = tempfile::tempdir().unwrap();
    let local = dir.path().join("a");
    fs::write(&local, "one\n").unwrap();
    for node in &hdfs.cluster.data_nodes {
        node.set_faults(Faults { is_dead: true, ..Faults::default() });
    }
    hdfs.failed(&["put", text(&local), "/a"]);
    assert_eq!(hdfs.cluster.name_node.files(), [""; 0]);
}
