//! `corona fs` and its library on any HDFS: always on a small one of this process, and on a real
//! cluster when its address is given.
//!
//!     cargo test -p compat-tests --test tools any_hdfs
//!     CORONA_TARGET_HDFS=namenode:8020 CORONA_TARGET_HDFS_UGI=alice,users \
//!         cargo test -p compat-tests --test tools any_hdfs
//!
//! The cluster needs `dfs.support.append`. Everything happens in a new directory below the user's home, which is deleted at the end. The
//! user needs the right to make it.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use compat_tests::PATIENCE;
use compat_tests::corona_program;
use compat_tests::skipping::{Missing, skip};
use corona::filesystem::{
    CreateOptions, ErrorKind, FileReader, FileSystem, FileSystemSettings, FileSystems, FsError,
};
use corona_filesystem::testing::MiniCluster;
use serde_json::Value;
use tokio::runtime::Runtime;

/// Bytes of a block: files of some hundred kilobytes have several.
const BLOCK: usize = 64 << 10;

/// A cluster, and a directory on it that only this test uses.
struct Hdfs {
    address: String,
    ugi: String,
    directory: String,
    runtime: Runtime,
    _small: Option<MiniCluster>,
}

impl Hdfs {
    fn small() -> Hdfs {
        let runtime = runtime();
        let small = runtime.block_on(MiniCluster::start(2));
        Hdfs::new(small.address(), "alice,users".to_owned(), runtime, Some(small))
    }

    /// The cluster that the environment names.
    fn given() -> Option<Hdfs> {
        let address = env::var("CORONA_TARGET_HDFS").ok()?;
        let address = address.trim_start_matches("hdfs://").trim_end_matches('/').to_owned();
        let ugi = env::var("CORONA_TARGET_HDFS_UGI").unwrap_or("alice,users".to_owned());
        Some(Hdfs::new(address, ugi, runtime(), None))
    }

    fn new(address: String, ugi: String, runtime: Runtime, small: Option<MiniCluster>) -> Hdfs {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let directory = format!("any_hdfs_{}_{}", since.as_millis(), std::process::id());
        Hdfs { address, ugi, directory, runtime, _small: small }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(corona_program());
        command.env_remove("HADOOP_CONF_DIR").env_remove("RUST_LOG").arg("fs");
        for (key, value) in [
            ("fs.default.name", format!("hdfs://{}/", self.address)),
            ("hadoop.job.ugi", self.ugi.clone()),
            ("dfs.block.size", BLOCK.to_string()),
            ("dfs.replication", "1".to_owned()),
        ] {
            command.arg("-D").arg(format!("{key}={value}"));
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `corona fs`, in which `@` is the directory of the test.
    fn run(&self, words: &[&str]) -> Output {
        let words: Vec<String> = words.iter().map(|word| self.path(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.command(&words).output().unwrap()
    }

    fn path(&self, word: &str) -> String {
        match word.strip_prefix('@') {
            Some(rest) => format!("{}{rest}", self.directory),
            None => word.to_owned(),
        }
    }

    fn done(&self, words: &[&str]) -> Vec<u8> {
        let Output { status, stdout, stderr } = self.run(words);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stderr.is_empty(), "{words:?}: {stderr}");
        stdout
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_slice(&self.done(&[words, &["--output", "json"]].concat())).unwrap()
    }

    /// The stderr of a command that must fail.
    fn failed(&self, words: &[&str]) -> String {
        let Output { status, stderr, .. } = self.run(words);
        assert_eq!(status.code(), Some(1), "{words:?}");
        String::from_utf8(stderr).unwrap()
    }

    /// The library, as another client.
    fn client(&self) -> FileSystems {
        let mut names = self.ugi.split(',').map(str::to_owned);
        FileSystems::new(FileSystemSettings {
            default_fs: format!("hdfs://{}/", self.address),
            user: names.next().unwrap_or_default(),
            groups: names.collect(),
            replication: 1,
            block_bytes: BLOCK as u64,
            create_retries: 0,
            ..FileSystemSettings::default()
        })
        .unwrap()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 9) ^ (at >> 17)) as u8).collect()
}

#[test]
fn any_hdfs_small() {
    all_cases(&Hdfs::small());
}

#[test]
fn any_hdfs_given() {
    match Hdfs::given() {
        Some(hdfs) => all_cases(&hdfs),
        None => skip(Missing::Hdfs),
    }
}

fn all_cases(hdfs: &Hdfs) {
    hdfs.done(&["mkdir", "@"]);
    let dir = tempfile::tempdir().unwrap();
    files_of_all_lengths(hdfs, dir.path());
    standard_streams(hdfs);
    existing_files_stay(hdfs, dir.path());
    moves(hdfs, dir.path());
    names_and_patterns(hdfs, dir.path());
    appended_files(hdfs, dir.path());
    hdfs.runtime.block_on(async {
        tokio::time::timeout(PATIENCE, the_library(hdfs))
            .await
            .expect("it takes too long")
            .unwrap();
        tokio::time::timeout(PATIENCE, appends(hdfs)).await.expect("it takes too long").unwrap();
    });
    removals(hdfs, dir.path());
    hdfs.done(&["rm", "--recursive", "--skip-trash", "@"]);
    assert!(hdfs.failed(&["ls", "@"]).starts_with("ls: Cannot access "));
}

fn files_of_all_lengths(hdfs: &Hdfs, dir: &Path) {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    let lengths = [0, 1, 511, 512, 513, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 77];
    for length in lengths {
        fs::write(tree.join("sub").join(length.to_string()), content(length)).unwrap();
    }
    hdfs.done(&["put", tree.to_str().unwrap(), "@/tree"]);
    let listed = hdfs.json(&["ls", "--recursive", "@/tree"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), lengths.len() + 1, "and the directory between");
    let back = dir.join("back");
    hdfs.done(&["get", "@/tree", back.to_str().unwrap()]);
    for length in lengths {
        let name = length.to_string();
        assert!(fs::read(back.join("sub").join(&name)).unwrap() == content(length), "{length}");
        let stat = hdfs.json(&["stat", &format!("@/tree/sub/{name}")]);
        assert_eq!(stat[0]["bytes"], length, "{stat}");
        assert_eq!((&stat[0]["replication"], &stat[0]["type"]), (&1.into(), &"file".into()));
        assert_eq!(stat[0]["block_bytes"], BLOCK);
    }
}

fn standard_streams(hdfs: &Hdfs) {
    let bytes = content(3 * BLOCK + 5);
    let path = hdfs.path("@/stdin");
    let mut putting = hdfs.command(&["put", "-", &path]).stdin(Stdio::piped()).spawn().unwrap();
    putting.stdin.take().unwrap().write_all(&bytes).unwrap();
    let done = putting.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(hdfs.done(&["cat", "@/stdin"]) == bytes);
    assert!(hdfs.done(&["get", "@/stdin", "-", "--json"]) == bytes);
    // A reader of only the beginning ends it.
    let mut printing = hdfs.command(&["cat", &path]).spawn().unwrap();
    printing.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    assert!(printing.wait().unwrap().success());
}

fn existing_files_stay(hdfs: &Hdfs, dir: &Path) {
    let (old, new) = (dir.join("old"), dir.join("new"));
    fs::write(&old, "old").unwrap();
    fs::write(&new, "new").unwrap();
    hdfs.done(&["put", old.to_str().unwrap(), "@/file"]);
    let exists = hdfs.failed(&["put", new.to_str().unwrap(), "@/file"]);
    assert!(
        exists.starts_with("put: Target ") && exists.ends_with(" already exists\n"),
        "{exists}"
    );
    assert_eq!(hdfs.done(&["cat", "@/file"]), b"old");
    hdfs.done(&["put", "--force", new.to_str().unwrap(), "@/file"]);
    assert_eq!(hdfs.done(&["cat", "@/file"]), b"new");
    let exists = hdfs.failed(&["get", "@/file", old.to_str().unwrap()]);
    assert_eq!(exists, format!("get: Target {} already exists\n", old.display()));
    let exists = hdfs.failed(&["mkdir", "@"]);
    assert!(exists.ends_with(": File exists\n"), "{exists}");
    let names = hdfs.json(&["ls", "@"]);
    let unfinished = |entry: &Value| entry["path"].as_str().unwrap().ends_with(".tmp");
    assert!(!names.as_array().unwrap().iter().any(unfinished), "{names}");
}

fn moves(hdfs: &Hdfs, dir: &Path) {
    let (one, two) = (dir.join("one"), dir.join("two"));
    fs::write(&one, content(2 * BLOCK + 1)).unwrap();
    fs::write(&two, "two").unwrap();
    hdfs.done(&["mkdir", "@/moved"]);
    hdfs.done(&["put", one.to_str().unwrap(), two.to_str().unwrap(), "@"]);
    hdfs.done(&["mv", "@/one", "@/other"]);
    hdfs.done(&["mv", "@/other", "@/moved"]);
    assert!(hdfs.done(&["cat", "@/moved/other"]) == content(2 * BLOCK + 1));
    for (words, text) in [
        (["mv", "@/nothing", "@/x"], "No such file or directory"),
        (["mv", "@/two", "@/moved/other"], "Failed to rename"),
        (["mv", "@/moved", "@/two"], "cannot overwrite non directory"),
    ] {
        let failed = hdfs.failed(&words);
        assert!(failed.contains(text), "{words:?}: {failed}");
    }
}

fn names_and_patterns(hdfs: &Hdfs, dir: &Path) {
    let names = ["a b", "d\u{e9}\u{20ac}\u{1f600}", "part-00000", "part-00001", "part-00010"];
    let local = dir.join("names");
    fs::create_dir(&local).unwrap();
    for name in names {
        fs::write(local.join(name), name).unwrap();
    }
    hdfs.done(&["put", local.to_str().unwrap(), "@/names"]);
    let found = |pattern: &str| -> BTreeSet<String> {
        let listed = hdfs.json(&["ls", &format!("@/names/{pattern}")]);
        let entries = listed.as_array().unwrap().iter();
        let path = |entry: &Value| entry["path"].as_str().unwrap().to_owned();
        entries.map(|entry| path(entry).rsplit('/').next().unwrap().to_owned()).collect()
    };
    for (pattern, expected) in [
        ("*", &names[..]),
        ("part-0000[0-1]", &names[2..4]),
        ("part-000?0", &["part-00000", "part-00010"]),
        ("{a b,part-00010}", &["a b", "part-00010"]),
        ("[^ap]*", &names[1..2]),
    ] {
        let expected = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(found(pattern), expected, "{pattern}");
    }
    assert_eq!(hdfs.done(&["cat", "@/names/part-*"]), b"part-00000part-00001part-00010");
    assert!(hdfs.failed(&["ls", "@/names/x*"]).contains("No such file or directory"));
}

async fn read_all(files: &dyn FileSystem, path: &corona::filesystem::FsPath) -> Vec<u8> {
    let mut reader = files.open(path).await.unwrap();
    let mut bytes = vec![0; reader.length() as usize];
    (&mut *reader as &mut dyn FileReader).read_exact_at(0, &mut bytes).await.unwrap();
    bytes
}

/// Operations that only programs use: flushes that others see, ranges, attributes, and a lease that
/// is held.
async fn the_library(hdfs: &Hdfs) -> Result<(), FsError> {
    let (own, other) = (hdfs.client(), hdfs.client());
    let (files, path) = own.resolve(&hdfs.path("@/open"))?;
    let (others, _) = other.resolve("/")?;
    let bytes = content(2 * BLOCK + 3000);
    let mut writer = files.create(&path, CreateOptions::default()).await?;
    let mut written = 0;
    for upto in [1, 511, 2000, BLOCK - 1, BLOCK + 1, BLOCK + 2000] {
        writer.write(&bytes[written..upto]).await?;
        writer.flush().await?;
        written = upto;
        let seen = read_all(&*others, &path).await;
        assert!(seen == bytes[..upto], "{} of {upto} are seen", seen.len());
    }
    let over = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let taken = others.create(&path, over).await.err().unwrap();
    assert_eq!(taken.kind, ErrorKind::BeingWritten, "{taken}");
    writer.write(&bytes[written..]).await?;
    writer.close().await?;
    let mut reader = others.open(&path).await?;
    let reader: &mut dyn FileReader = &mut *reader;
    for (from, to) in [(0, 1), (BLOCK - 3, BLOCK + 3), (1000, 2 * BLOCK + 10), (10, 11)] {
        let mut range = vec![0; to - from];
        reader.read_exact_at(from as u64, &mut range).await?;
        assert!(range == bytes[from..to], "{from} to {to}");
    }
    files.set_permission(&path, 0o640).await?;
    files.set_times(&path, Some(1_700_000_000_123), None).await?;
    files.set_replication(&path, 2).await?;
    let status = others.status(&path).await?;
    assert_eq!((status.permission, status.modified_ms), (0o640, 1_700_000_000_123));
    assert_eq!((status.replication, status.bytes), (2, bytes.len() as u64));
    let summary = others.summary(&path).await?;
    assert_eq!((summary.files, summary.bytes), (1, bytes.len() as u64));
    // Dropped before it is closed, a file goes.
    let (_, dropped) = own.resolve(&hdfs.path("@/dropped"))?;
    drop(files.create(&dropped, CreateOptions::default()).await?);
    while others.find(&dropped).await?.is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn appended_files(hdfs: &Hdfs, dir: &Path) {
    let (one, two) = (dir.join("first"), dir.join("second"));
    fs::write(&one, content(700)).unwrap();
    fs::write(&two, content(BLOCK)).unwrap();
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let expected = [content(700), content(700), content(BLOCK), b"stdin".to_vec()].concat();
    hdfs.done(&["put", "--append", one, "@/log"]);
    hdfs.done(&["put", "--append", one, two, "@/log"]);
    let path = hdfs.path("@/log");
    let mut putting = hdfs.command(&["put", "--append", "-", &path]);
    let mut putting = putting.stdin(Stdio::piped()).spawn().unwrap();
    putting.stdin.take().unwrap().write_all(b"stdin").unwrap();
    let done = putting.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(hdfs.done(&["cat", "@/log"]) == expected);
    let local = dir.join("log");
    let to = format!("file:{}", local.display());
    hdfs.done(&["put", "--append", one, one, &to]);
    assert!(fs::read(&local).unwrap() == [content(700), content(700)].concat());
    assert!(dir.join(".log.crc").exists());
    hdfs.done(&["cat", &to]);
    let failed = hdfs.failed(&["put", "--append", one, "@"]);
    assert!(failed.contains("Is a directory"), "{failed}");
}

/// What readers see of files that are written on, who waits for whom, and what stays.
async fn appends(hdfs: &Hdfs) -> Result<(), FsError> {
    let (own, other) = (hdfs.client(), hdfs.client());
    let (others, _) = other.resolve("/")?;
    let bytes = content(4 * BLOCK);
    let lengths = [(0, 10), (1, 600), (511, 1), (512, 700), (700, BLOCK), (BLOCK - 1, 2)];
    for (begun, more) in lengths.into_iter().chain([(BLOCK, 5), (BLOCK + 5, 2 * BLOCK)]) {
        let (files, path) = own.resolve(&hdfs.path(&format!("@/append-{begun}")))?;
        let mut writer = files.create(&path, CreateOptions::default()).await?;
        writer.write(&bytes[..begun]).await?;
        writer.close().await?;
        let mut writer = files.append(&path).await?;
        let taken = others.append(&path).await.err().unwrap();
        assert_eq!(taken.kind, ErrorKind::BeingWritten, "{taken}");
        let middle = begun + more / 2;
        writer.write(&bytes[begun..middle]).await?;
        writer.flush().await?;
        let seen = read_all(&*others, &path).await;
        assert!(seen == bytes[..middle], "{begun} and {more}: {} are seen", seen.len());
        writer.write(&bytes[middle..begun + more]).await?;
        writer.close().await?;
        assert!(read_all(&*others, &path).await == bytes[..begun + more], "{begun} and {more}");
        let mut writer = others.append(&path).await?;
        writer.write(b"end").await?;
        writer.close().await?;
        let whole = [&bytes[..begun + more], b"end"].concat();
        assert!(read_all(&*files, &path).await == whole, "{begun} and {more}");
    }
    // Dropped before it is closed, a file that was there stays, with what was flushed.
    let (files, path) = own.resolve(&hdfs.path("@/append-0"))?;
    let before = read_all(&*files, &path).await;
    let mut writer = files.append(&path).await?;
    writer.write(b" flushed").await?;
    writer.flush().await?;
    drop(writer);
    let mut writer = loop {
        match others.append(&path).await {
            // The writer gives it up in the background.
            Err(error) if matches!(error.kind, ErrorKind::Lease | ErrorKind::BeingWritten) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            opened => break opened?,
        }
    };
    writer.write(b" again").await?;
    writer.close().await?;
    others.append(&path).await?.abort().await?;
    let expected = [before.as_slice(), b" flushed again"].concat();
    assert!(read_all(&*files, &path).await == expected);
    Ok(())
}

fn removals(hdfs: &Hdfs, dir: &Path) {
    let file = dir.join("remove");
    fs::write(&file, "x").unwrap();
    hdfs.done(&["mkdir", "@/removed"]);
    hdfs.done(&["put", file.to_str().unwrap(), "@/removed"]);
    let refused = hdfs.failed(&["rm", "@/removed"]);
    assert!(refused.contains("Cannot remove directory "), "{refused}");
    let moved = String::from_utf8(hdfs.done(&["rm", "@/removed/remove"])).unwrap();
    assert!(moved.starts_with("Moved to trash: "), "{moved}");
    let home = format!(".Trash/Current/user/{}", hdfs.ugi.split(',').next().unwrap_or_default());
    assert_eq!(hdfs.done(&["cat", &format!("{home}/{}/removed/remove", hdfs.directory)]), b"x");
    hdfs.done(&["rm", "-r", "--skip-trash", &format!("{home}/{}", hdfs.directory)]);
    let deleted = String::from_utf8(hdfs.done(&["rm", "-r", "--skip-trash", "@/removed"])).unwrap();
    assert!(deleted.starts_with("Deleted: "), "{deleted}");
}

/// The most memory that a process has had, in KiB; or its present memory.
fn memory(child: &Child, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes that are written and read, and by how many KiB the program may grow meanwhile.
const LARGE: usize = 48 << 20;
const MOST_KIB: u64 = 4 << 10;

#[test]
fn a_copy_takes_little_memory_however_large_the_file_is() {
    let hdfs = Hdfs::small();
    let piece = content(1 << 20);
    let mut putting = hdfs.command(&["put", "-", "/large"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = putting.stdin.take().unwrap();
    stdin.write_all(&piece).unwrap();
    let small = hdfs._small.as_ref().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The first block is on its way.
    while small.name_node.count("addBlockAndFetchMetaInfo") == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = memory(&putting, "VmRSS");
    for _ in 1..LARGE >> 20 {
        stdin.write_all(&piece).unwrap();
    }
    let grown = memory(&putting, "VmHWM").saturating_sub(before);
    drop(stdin);
    assert!(putting.wait().unwrap().success());
    assert!(grown < MOST_KIB, "a write took {grown} KiB");

    let mut printing = hdfs.command(&["cat", "/large"]).spawn().unwrap();
    let mut stdout = printing.stdout.take().unwrap();
    let mut read = vec![0; 1 << 20];
    stdout.read_exact(&mut read).unwrap();
    let before = memory(&printing, "VmRSS");
    for _ in 2..LARGE >> 20 {
        stdout.read_exact(&mut read).unwrap();
    }
    let grown = memory(&printing, "VmHWM").saturating_sub(before);
    stdout.read_exact(&mut read).unwrap();
    assert!(read == piece);
    drop(stdout);
    assert!(printing.wait().unwrap().success());
    assert!(grown < MOST_KIB, "a read took {grown} KiB");
}
