//! Files and jobs on objects of a store, which is other people's server (moto) behind a relay that can misbehave.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use compat_tests::clients::{python, skipped};
use compat_tests::corona_program;
use compat_tests::serving::free_address;
use compat_tests::task_tracker::PATIENCE;
use compat_tests::task_tracker::node::{interruptible, signal};
use tempfile::TempDir;

use super::mini_cluster::{MiniCluster, corona, shell, stderr, text, until};

const KEY: &str = "KEYFORTESTS";
const SECRET: &str = "SECRET/FOR+TESTS";

struct Relay {
    /// How many of the next requests are answered that the store is busy.
    storm: usize,
    open: Vec<TcpStream>,
}

/// A server of objects, and the relay that clients know.
struct Store {
    server: Child,
    address: SocketAddr,
    relayed: SocketAddr,
    relay: Arc<Mutex<Relay>>,
    /// A home directory without settings of somebody.
    home: TempDir,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Store {
    fn start() -> Store {
        let store = Store::start_by(&["-m", "moto.server", "-H", "127.0.0.1", "-p"], &[]);
        assert!(store.ask("PUT", "/bucket").0 == 200);
        store
    }

    /// Starts a server with these arguments of Python before its port, and those behind it.
    fn start_by(before: &[&str], behind: &[&str]) -> Store {
        let address = free_address();
        let home = tempfile::tempdir().unwrap();
        let log = fs::File::create(home.path().join("server.log")).unwrap();
        let mut command = Command::new(python());
        command.args(before).arg(address.port().to_string()).args(behind);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = command.spawn().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relayed = listener.local_addr().unwrap();
        let relay = Arc::new(Mutex::new(Relay { storm: 0, open: Vec::new() }));
        let store = Store { server, address, relayed, relay: relay.clone(), home };
        until("the server of objects", || TcpStream::connect(address).ok());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let relay = relay.clone();
                std::thread::spawn(move || relay_one(client, address, &relay));
            }
        });
        store
    }

    /// The connections that there are end, so that each request from here on sees it.
    fn storm(&self, requests: usize) {
        let mut relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        relay.storm = requests;
        for open in relay.open.drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// An unsigned request to the server itself: its status and its body.
    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        self.send(method, path, "", "")
    }

    /// The same with further lines of the head, and a body.
    fn send(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let (address, length) = (self.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{head}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    fn uploads(&self) -> usize {
        self.ask("GET", "/bucket?uploads").1.matches("<Upload>").count()
    }

    /// The names of all objects that begin so.
    fn names(&self, prefix: &str) -> BTreeSet<String> {
        let (_, body) = self.ask("GET", &format!("/bucket?list-type=2&prefix={prefix}"));
        let keys = body.split("<Key>").skip(1);
        keys.map(|key| key.split('<').next().unwrap().to_owned()).collect()
    }

    fn with_keys<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        command
            .env("HOME", self.home.path())
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.relayed));
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    /// `corona fs`, or `hadoop fs` with an option.
    fn fs(&self, arguments: &[&str]) -> Output {
        let mut command = corona();
        match arguments[0].starts_with('-') {
            true => command.args(["hadoop", "fs"]),
            false => command.arg("fs"),
        };
        self.with_keys(command.args(arguments).current_dir(self.home.path())).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.fs(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one line that a command says which fails.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.fs(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains(SECRET), "{said}");
        said
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

/// Passes a connection on, or answers its requests.
fn relay_one(mut client: TcpStream, server: SocketAddr, relay: &Mutex<Relay>) {
    let lock = || relay.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().storm > 0 {
        let Some(head) = read_request(&mut client) else { return };
        let mut state = lock();
        state.storm = state.storm.saturating_sub(1);
        drop(state);
        let body = match head.starts_with("HEAD") {
            true => "",
            false => "<Error><Code>SlowDown</Code><Message>of the test</Message></Error>",
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 503 Slow Down\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let _ = client.write_all(answer.as_bytes());
        return;
    }
    let Ok(upstream) = TcpStream::connect(server) else { return };
    let copies = (client.try_clone(), upstream.try_clone());
    let (Ok(from_client), Ok(from_server)) = copies else { return };
    lock().open.extend(client.try_clone());
    let up = std::thread::spawn(move || pass(from_client, upstream));
    pass(from_server, client);
    let _ = up.join();
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Reads the head of a request, and its body.
fn read_request(client: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        (client.read(&mut byte).ok()? == 1).then_some(())?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let lower = head.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
    std::io::copy(&mut client.take(length.unwrap_or(0)), &mut std::io::sink()).ok()?;
    Some(head)
}

#[test]
fn objects_are_listed_read_and_written_like_files() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let large: String = (0..2_000_000).map(|n| format!("{n:09}\n")).collect();
    store.write("large", &large);
    store.write("dir/a b&c=d", "one\n");
    store.write("dir/sub/ü.txt", "two\n");
    store.done(&["put", "large", "s3://bucket/in/large"]);
    store.done(&["put", "dir", "s3://bucket/in"]);
    assert!(store.done(&["cat", "s3://bucket/in/large"]) == large);
    let listed = store.done(&["ls", "--recursive", "s3://bucket/in"]);
    for name in ["in/large", "in/dir/a b&c=d", "in/dir/sub/ü.txt"] {
        assert!(listed.contains(&format!(" /{name}\n")), "{listed}");
    }
    assert_eq!(
        store.done(&["cat", "s3://bucket/in/dir/a*", "s3://bucket/in/dir/sub/*.txt"]),
        "one\ntwo\n"
    );
    store.done(&["get", "s3://bucket/in", "copy"]);
    assert!(fs::read_to_string(store.home.path().join("copy/large")).unwrap() == large);
    // The commands of the original.
    assert_eq!(store.done(&["-text", "s3://bucket/in/dir/sub/ü.txt"]), "two\n");
    assert!(store.done(&["-tail", "s3://bucket/in/large"]).ends_with("001999999\n"));
    assert!(store.done(&["-dus", "s3://bucket/in"]).contains(&(large.len() + 8).to_string()));
    store.done(&["-test", "-d", "s3://bucket/in/dir"]);
    of_two_puts_at_a_time_one_is_refused(&store);
    // Nothing is replaced that was not to be, and nothing is there before it is whole.
    let said = store.refused(&["put", "large", "s3://bucket/in/large"]);
    assert!(said.contains("Target s3://bucket/in/large already exists"), "{said}");
    store.done(&["put", "--force", "dir/sub/ü.txt", "s3://bucket/in/large"]);
    assert_eq!(store.done(&["cat", "s3://bucket/in/large"]), "two\n");
    store.done(&["mv", "s3://bucket/in/large", "s3://bucket/in/small"]);
    assert_eq!(store.done(&["cat", "s3://bucket/in/small"]), "two\n");
    // As consoles make a directory.
    assert_eq!(store.ask("PUT", "/bucket/in/empty/").0, 200);
    assert!(store.done(&["ls", "s3://bucket/in"]).contains(" /in/empty\n"));
    store.done(&["rm", "-r", "-f", "s3://bucket/in"]);
    assert_eq!((store.names("in"), store.uploads()), (BTreeSet::new(), 0));
    let said = store.refused(&["cat", "s3://bucket/in/large"]);
    assert!(said.contains("File does not exist: s3://bucket/in/large"), "{said}");
}

/// Both have seen that there is no such object before either has written it.
fn of_two_puts_at_a_time_one_is_refused(store: &Store) {
    // A pipe does not hold it: when it is written, the command has looked, and reads.
    let text = |letter: &str| letter.repeat(200 << 10);
    let begin = |letter: &str, options: &[&str]| {
        let mut command = corona();
        command.args(["fs", "put", "-", "s3://bucket/in/raced"]).args(options);
        store.with_keys(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(text(letter).as_bytes()).unwrap();
        child
    };
    let (first, second) = (begin("1", &[]), begin("2", &[]));
    let last = begin("3", &["--force"]);
    assert!(first.wait_with_output().unwrap().status.success());
    let refused = second.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stderr(&refused), "put: Target s3://bucket/in/raced already exists\n");
    assert!(store.done(&["cat", "s3://bucket/in/raced"]) == text("1"));
    assert!(last.wait_with_output().unwrap().status.success());
    assert!(store.done(&["cat", "s3://bucket/in/raced"]) == text("3"));
}

fn random(most: u64) -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new().hash_one(0) % most
}

/// A put of its input that has begun to upload, and reads until the input ends.
fn begin_put(store: &Store, command: &mut Command) -> Child {
    let stdin = command.current_dir(store.home.path()).stdin(Stdio::piped());
    let mut child = store.with_keys(stdin.stderr(Stdio::piped())).spawn().unwrap();
    // Of several parts.
    child.stdin.as_mut().unwrap().write_all(&vec![b'x'; 20 << 20]).unwrap();
    until("an upload", || (store.uploads() > 0).then_some(()));
    child
}

/// Deletes what a put has left. The server may still have a request of a program that was killed.
fn delete_puts(store: &Store) {
    until("the end of all uploads and objects", || {
        store.done(&["rm", "-r", "-f", "s3://bucket/put"]);
        (store.uploads() == 0 && store.names("put").is_empty()).then_some(())
    });
}

#[test]
fn a_put_that_is_killed_leaves_nothing_that_rm_does_not_delete() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let put = ["fs", "put", "-", "s3://bucket/put/large"];
    let of_hadoop = ["hadoop", "fs", "-put", "-", "s3://bucket/put/large"];
    for arguments in [&put[..], &of_hadoop] {
        for (name, status) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
            let mut child = begin_put(&store, &mut interruptible(corona().args(arguments)));
            let input = child.stdin.take();
            signal(name, child.id());
            let output = child.wait_with_output().unwrap();
            drop(input);
            assert_eq!(output.status.code(), status, "{arguments:?} {name}");
            if status.is_some() {
                let expected =
                    format!("stopped by SIG{name}; what was unfinished has been given up\n");
                assert_eq!(stderr(&output), expected);
            }
            let left = usize::from(status.is_none());
            assert_eq!((store.uploads(), store.names("put")), (left, BTreeSet::new()), "{name}");
            delete_puts(&store);
        }
    }
    // A store that does not answer keeps what was uploaded.
    let mut child = begin_put(&store, &mut interruptible(corona().args(put)));
    let input = child.stdin.take();
    signal("STOP", store.server.id());
    until("the end of the put", || {
        signal("INT", child.id());
        child.try_wait().unwrap()
    });
    signal("CONT", store.server.id());
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(130), 1), "{said}");
    assert!(said.starts_with("stopped by SIGINT; NAME, an unfinished upload of it or"), "{said}");
    delete_puts(&store);
}

#[test]
fn a_put_in_the_background_of_a_script_goes_on_at_the_interrupt_of_another_program() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let program = corona_program().display();
    // As shells start a command before a `&`.
    let script = format!("trap '' INT; exec '{program}' fs put - s3://bucket/put/large");
    let mut child = begin_put(&store, Command::new("sh").args(["-c", &script]));
    signal("INT", child.id());
    child.stdin.as_mut().unwrap().write_all(b"end").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(store.done(&["cat", "s3://bucket/put/large"]).ends_with("xend"));
}

#[test]
fn refusals_of_a_store_are_one_line_each() {
    if skipped() {
        return;
    }
    let store = Store::start();
    store.write("a", "text\n");
    store.done(&["put", "a", "s3://bucket/a"]);
    for arguments in [
        &["ls", "s3://nobucket/"][..],
        &["cat", "s3://nobucket/a"],
        &["put", "a", "s3://nobucket/b"],
    ] {
        let said = store.refused(arguments);
        assert!(said.contains("there is no bucket nobucket"), "{said}");
    }
    // Short storms are waited for.
    store.storm(3);
    assert_eq!(store.done(&["cat", "s3://bucket/a"]), "text\n");
    store.storm(3);
    store.done(&["put", "a", "s3://bucket/b"]);
    for arguments in
        [&["ls", "s3://bucket/"][..], &["cat", "s3://bucket/a"], &["put", "a", "s3://bucket/c"]]
    {
        store.storm(usize::MAX);
        let patience = ["-D", "corona.fs.object.patience.ms=500"];
        let said = store.refused(&[arguments, &patience].concat());
        assert!(said.contains("after retries"), "{said}");
    }
    store.storm(0);
    assert_eq!((store.names(""), store.uploads()), (["a", "b"].map(str::to_owned).into(), 0));
    let mut none = corona();
    store.with_keys(none.args(["fs", "ls", "s3://bucket/"]));
    let none = none.env_remove("AWS_SECRET_ACCESS_KEY").output().unwrap();
    assert!(
        stderr(&none).contains("there is AWS_ACCESS_KEY_ID and no AWS_SECRET_ACCESS_KEY"),
        "{}",
        stderr(&none)
    );
    let said = store.refused(&["ls", "s3a://bucket/"]);
    assert!(said.contains("write s3: in its place"), "{said}");
}

/// Makes a user who may do everything, and has the server check each request from here on. Returns the user's keys.
fn with_user(store: &Store) -> [String; 2] {
    let scope = "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, \
                 SignedHeaders=host, Signature=0\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let all = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C\
               %22Action%22%3A%22s3%3A*%22%2C%22Resource%22%3A%22*%22%7D%5D%7D";
    let mut said = String::new();
    for action in [
        "CreateUser".to_owned(),
        "CreateAccessKey".to_owned(),
        format!("PutUserPolicy&PolicyName=all&PolicyDocument={all}"),
    ] {
        let body = format!("Action={action}&UserName=tests&Version=2010-05-08");
        let (status, answer) = store.send("POST", "/", scope, &body);
        assert_eq!(status, 200, "{answer}");
        said.push_str(&answer);
    }
    let (status, answer) =
        store.send("POST", "/moto-api/reset-auth", "Content-Type: text/plain\r\n", "0");
    assert_eq!(status, 200, "{answer}");
    ["AccessKeyId", "SecretAccessKey"].map(|name| {
        let (_, rest) = said.split_once(&format!("<{name}>")).unwrap();
        rest.split('<').next().unwrap().to_owned()
    })
}

/// The server computes the signature of each request itself.
#[test]
fn requests_are_signed_as_a_server_checks_it() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let [id, secret] = with_user(&store);
    let large: String = (0..1_000_000).map(|n| format!("{n:09}\n")).collect();
    store.write("large", &large);
    store.write("small", "text\n");
    let run = |id: &str, secret: &str, arguments: &[&str]| {
        let mut command = corona();
        store.with_keys(command.arg("fs").args(arguments).current_dir(store.home.path()));
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        command.output().unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = run(&id, &secret, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // Reads, lists, uploads in parts, copies, and deletes of many.
    done(&["put", "large", "s3://bucket/in/large"]);
    done(&["put", "small", "s3://bucket/in/small.txt"]);
    assert!(done(&["cat", "s3://bucket/in/large"]) == large);
    done(&["mv", "s3://bucket/in/small.txt", "s3://bucket/in/moved"]);
    assert_eq!(done(&["cat", "s3://bucket/in/mo*"]), "text\n");
    for (id, secret, expected) in [
        (id.as_str(), "wrong", "the secret key is not that of the access key"),
        ("NOBODY", secret.as_str(), "does not know the access key"),
    ] {
        for arguments in [
            &["ls", "s3://bucket/in"][..],
            &["cat", "s3://bucket/in/moved"],
            &["put", "small", "s3://bucket/in/other"],
            &["put", "large", "s3://bucket/in/other"],
            &["rm", "s3://bucket/in/moved"],
        ] {
            let output = run(id, secret, arguments);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
            assert!(said.contains(expected) && said.lines().count() == 1, "{arguments:?}: {said}");
        }
    }
    let listed = done(&["ls", "s3://bucket/in"]);
    assert!(listed.contains(" /in/large\n") && listed.contains(" /in/moved\n"), "{listed}");
    assert!(!listed.contains("other"), "{listed}");
    done(&["rm", "-r", "-f", "s3://bucket/in"]);
    assert!(!run(&id, &secret, &["ls", "s3://bucket/in"]).status.success());
}

/// Of a server of others, which needs a second for a page. The server has the objects from the start.
mod many {
    use super::*;

    const OBJECTS: usize = 100_000;
    const SERVER: &str = "\
import sys
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import main
store = s3_backends[DEFAULT_ACCOUNT_ID]['aws']
store.create_bucket('bucket', 'us-east-1')
for number in range(int(sys.argv[2])):
    store.put_object('bucket', 'many/%06d' % number, b'1')
main(['-H', '127.0.0.1', '-p', sys.argv[1]])
";
    /// On top of what a list of one object needs.
    const MOST_KIB: i64 = 64 << 10;

    #[test]
    fn a_hundred_thousand_objects_are_listed_in_bounded_memory() {
        if skipped() {
            return;
        }
        let objects = OBJECTS.to_string();
        let store = Store::start_by(&["-c", SERVER], &[&objects]);
        let peak = || {
            use nix::sys::resource::{UsageWho, getrusage};
            getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss()
        };
        assert!(store.done(&["ls", "s3://bucket/many/000001"]).contains(" /many/000001\n"));
        let before = peak();
        let listed = store.done(&["ls", "s3://bucket/many"]);
        let names = listed.lines().filter_map(|line| line.split_once(" /many/")).map(|it| it.1);
        assert!(names.eq((0..OBJECTS).map(|number| format!("{number:06}"))));
        let needed = peak() - before;
        assert!(needed <= MOST_KIB, "{needed} KiB");
    }
}

/// A job on the objects.
fn job(store: &Store, cluster: &MiniCluster, arguments: &[&str]) -> Command {
    let mut job = cluster.job(arguments);
    store.with_keys(&mut job);
    job
}

fn succeeds(job: &mut Command) {
    let output = job.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn begin(job: &mut Command) -> Child {
    job.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What a job says that fails.
fn fails(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// The files below a directory that have a text.
fn files_with(directory: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_with(&path, text, found),
            Ok(kind) if kind.is_file() => {
                let bytes = fs::read(&path).unwrap_or_default();
                let is_in = bytes.windows(text.len()).any(|window| window == text.as_bytes());
                found.extend(is_in.then_some(path));
            }
            _ => {}
        }
    }
}

#[test]
fn jobs_read_and_write_objects_with_the_keys_of_their_user() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let cluster = MiniCluster::start(&[]);
    fs::create_dir(cluster.path("in")).unwrap();
    for n in 0..40 {
        cluster.write(&format!("in/{n}.txt"), text().replace("line", &format!("line{n}")));
    }
    shell(cluster.root.path(), "gzip in/39.txt");
    let put = store.fs(&["put", cluster.path("in").to_str().unwrap(), "s3://bucket/in"]);
    assert!(put.status.success(), "{}", stderr(&put));
    let steps = [
        "--mapper",
        "builtin:wc",
        "--combiner",
        "builtin:wc",
        "--reducer",
        "builtin:wc",
        "--reduces",
        "3",
    ];
    let of_objects =
        ["--input", "s3://bucket/in", "--output", "s3://bucket/words", "--split-size", "20k"];
    succeeds(&mut job(&store, &cluster, &[&of_objects[..], &steps].concat()));
    cluster.run(&[&["--input", "in", "--output", "words"], &steps[..]].concat());
    let names = store.names("words");
    let expected =
        ["_SUCCESS", "part-00000", "part-00001", "part-00002"].map(|name| format!("words/{name}"));
    assert_eq!(names, expected.into());
    assert_eq!(store.uploads(), 0);
    let mut found: Vec<String> =
        store.done(&["cat", "s3://bucket/words/part-*"]).lines().map(str::to_owned).collect();
    found.sort();
    assert_eq!(found, cluster.lines("words"));
    // An output is replaced as a whole, and only on demand.
    let again = [&of_objects[..], &steps].concat();
    let refused = job(&store, &cluster, &again).output().unwrap();
    assert!(stderr(&refused).contains("already exists"), "{}", stderr(&refused));
    store.ask("PUT", "/bucket/words/mine");
    let refused = job(&store, &cluster, &[&again[..], &["--overwrite"]].concat()).output().unwrap();
    assert!(
        stderr(&refused).contains("more than the output of a job: mine"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(store.names("words").len(), 5);
    store.done(&["rm", "s3://bucket/words/mine"]);
    succeeds(&mut job(&store, &cluster, &[&again[..], &["--overwrite"]].concat()));
    assert_eq!(store.names("words").len(), 4);
    // A map without a reduce, with nothing to write.
    let empty = [
        "--input",
        "s3://bucket/in/1.txt",
        "--output",
        "s3://bucket/none",
        "--mapper",
        "sed d",
        "--reduces",
        "0",
    ];
    succeeds(&mut job(&store, &cluster, &empty));
    assert_eq!(store.names("none"), ["none/_SUCCESS", "none/part-00000"].map(str::to_owned).into());
    storms_are_waited_for_and_end(&store, &cluster);
    keys_are_for_nodes_alone(&store, &cluster);
    objects_that_change_fail_their_job(&store, &cluster);
    cluster.stop();
}

/// A store that answers that it is busy, for a while and then without end.
fn storms_are_waited_for_and_end(store: &Store, cluster: &MiniCluster) {
    let arguments = |output| {
        ["--input", "s3://bucket/in/1.txt", "--output", output, "--mapper", "cat", "--reduces", "0"]
    };
    store.storm(10);
    succeeds(&mut job(store, cluster, &arguments("s3://bucket/stormy")));
    let written = store.done(&["cat", "s3://bucket/stormy/part-*"]);
    assert_eq!(written.replace('\t', ""), store.done(&["cat", "s3://bucket/in/1.txt"]));
    // The storm begins when the map writes.
    let wait = "cat; touch DIR/writes; while ! [ -e DIR/storms ]; do sleep 0.1; done";
    let mapper = wait.replace("DIR", cluster.root.path().to_str().unwrap());
    let reads = ["--input", "s3://bucket/in/1.txt", "--output", "s3://bucket/lost", "--mapper"];
    let once = ["--reduces", "0", "-D", "mapred.map.max.attempts=1"];
    let patience = ["-D", "corona.fs.object.patience.ms=1000"];
    let arguments = [&reads[..], &[&mapper], &once, &patience].concat();
    let child = begin(&mut job(store, cluster, &arguments));
    until("a map that writes", || cluster.path("writes").exists().then_some(()));
    store.storm(usize::MAX);
    cluster.write("storms", "");
    let said = fails(child);
    assert!(said.contains("still answers SlowDown after retries"), "{said}");
    store.storm(0);
    assert_eq!(store.names("lost/part"), BTreeSet::new());
    store.done(&["rm", "-r", "-f", "s3://bucket/lost"]);
    nothing_is_left(store, "lost");
}

/// While a job runs, and afterwards.
fn keys_are_for_nodes_alone(store: &Store, cluster: &MiniCluster) {
    let wait = "cat; while ! [ -e DIR/go ]; do sleep 0.1; done";
    let mapper = wait.replace("DIR", cluster.root.path().to_str().unwrap());
    let waits =
        ["--input", "s3://bucket/in/1.txt", "--output", "s3://bucket/waits", "--mapper", &mapper];
    let child = begin(&mut job(store, cluster, &[&waits[..], &["--reduces", "0"]].concat()));
    let with_secret = || {
        let mut found = Vec::new();
        files_with(&cluster.path("cluster"), SECRET, &mut found);
        found
    };
    until("a task with the keys", || {
        let is_at_node = |path: &PathBuf| path.to_str().unwrap().contains("jobcache");
        with_secret().iter().any(is_at_node).then_some(())
    });
    for path in &with_secret() {
        assert_eq!(path.file_name().unwrap(), "object-access", "{}", path.display());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o077;
        let is_hidden = path
            .ancestors()
            .take_while(|above| *above != cluster.root.path())
            .any(|at| mode(at) == 0);
        assert!(is_hidden, "{}", path.display());
    }
    let shown = shell(cluster.root.path(), "ps -eo args; cat cluster/logs/*");
    assert!(shown.iter().all(|line| !line.contains(SECRET)));
    cluster.write("go", "");
    assert!(child.wait_with_output().unwrap().status.success());
    until("the removal of the keys", || with_secret().is_empty().then_some(()));
}

/// The object is replaced while a map reads it.
fn objects_that_change_fail_their_job(store: &Store, cluster: &MiniCluster) {
    let line = "x".repeat(1023) + "\n";
    store.write("large", line.repeat(40 << 10));
    store.done(&["put", "large", "s3://bucket/large"]);
    let wait = "head -c 1000000 >/dev/null; touch DIR/reads; while ! [ -e DIR/changed ]; do sleep 0.1; done; cat >/dev/null";
    let mapper = wait.replace("DIR", cluster.root.path().to_str().unwrap());
    let reads =
        ["--input", "s3://bucket/large", "--output", "s3://bucket/changed", "--mapper", &mapper];
    let once = ["--reduces", "0", "--split-size", "1g", "-D", "mapred.map.max.attempts=1"];
    let child = begin(&mut job(store, cluster, &[&reads[..], &once].concat()));
    until("a map that reads", || cluster.path("reads").exists().then_some(()));
    store.write("other", line.replace('x', "y").repeat(40 << 10));
    store.done(&["put", "--force", "other", "s3://bucket/large"]);
    cluster.write("changed", "");
    let said = fails(child);
    assert!(said.contains("s3://bucket/large: it has changed since it was listed"), "{said}");
    nothing_is_left(store, "changed");
}

fn milliseconds(number: u64) -> std::time::Duration {
    std::time::Duration::from_millis(number)
}

/// Kills the process of some task of a cluster, if there is one. Returns whether it did.
fn kill_a_task(cluster: &MiniCluster) -> bool {
    let root = cluster.root.path().canonicalize().unwrap();
    let is_task = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let place = fs::read_link(process.join("cwd")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("task-child") && place.starts_with(&root)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let tasks: Vec<PathBuf> = processes.filter(|process| is_task(process)).collect();
    let Some(task) = (!tasks.is_empty()).then(|| &tasks[random(tasks.len() as u64) as usize])
    else {
        return false;
    };
    let number = task.file_name().and_then(|name| name.to_str()).unwrap().parse().unwrap();
    signal("KILL", number);
    true
}

/// No object that is seen, no note of an upload, and no upload.
fn nothing_is_left(store: &Store, prefix: &str) {
    let left = || (store.names(prefix), store.uploads());
    let deadline = std::time::Instant::now() + PATIENCE;
    while left() != (BTreeSet::new(), 0) && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(left(), (BTreeSet::new(), 0));
}

#[test]
fn jobs_that_are_killed_at_any_moment_leave_no_object_and_no_upload() {
    if skipped() {
        return;
    }
    let store = Store::start();
    let cluster = MiniCluster::start(&[]);
    store.write("in/a", text());
    store.done(&["put", "in", "s3://bucket/in"]);
    // Some maps have committed, some write, some wait.
    let steps = "cat; sleep 0.$((RANDOM % 9))";
    let arguments = |output: &str| {
        let arguments =
            ["--input", "s3://bucket/in", "--output", output, "--split-size", "2k", "--mapper"];
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        // Killed attempts count as failed.
        let more =
            [&format!("bash -c '{steps}'"), "--reduces", "0", "-Dmapred.map.max.attempts=100"];
        let more = more.map(str::to_owned);
        arguments.chain(more).collect::<Vec<_>>()
    };
    // A job that is somewhere in the writing of its output.
    let writes = |output: &str| {
        let arguments = arguments(&format!("s3://bucket/{output}"));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut job = interruptible(&job(&store, &cluster, &arguments));
        let child = job.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("an upload", || (store.uploads() > 0).then_some(()));
        std::thread::sleep(std::time::Duration::from_millis(random(1500)));
        child
    };
    for round in 0..4 {
        let output = format!("killed-{round}");
        let mut child = writes(&output);
        signal("INT", child.id());
        let killed = until("the end of a job", || child.try_wait().unwrap());
        // It may have been faster.
        if killed.success() {
            let names = store.names(&format!("{output}/"));
            assert!(names.contains(&format!("{output}/_SUCCESS")), "{names:?}");
            store.done(&["rm", "-r", "-f", &format!("s3://bucket/{output}")]);
        }
        nothing_is_left(&store, &output);
    }
    let outcome = |output: &str, succeeded: bool| {
        if succeeded {
            let lines = store.done(&["cat", &format!("s3://bucket/{output}/part-*")]);
            let mut lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
            lines.sort_unstable();
            let whole = text();
            let mut whole: Vec<&str> = whole.lines().collect();
            whole.sort_unstable();
            assert!(lines == whole, "{output}: {} lines", lines.len());
            let names = store.names(&format!("{output}/"));
            assert!(names.iter().all(|name| !name.contains("_temporary")), "{names:?}");
            until("the end of all uploads", || (store.uploads() == 0).then_some(()));
            store.done(&["rm", "-r", "-f", &format!("s3://bucket/{output}")]);
        }
        nothing_is_left(&store, output);
    };
    // Tasks are killed again and again, and with every second job the job itself somewhere in between.
    let mut killed = 0;
    for round in 0..4 {
        let output = format!("tasks-{round}");
        let mut child = writes(&output);
        let mut of_round = 0;
        let jobs_end =
            (round % 2 == 1).then(|| std::time::Instant::now() + milliseconds(random(2000)));
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if jobs_end.is_some_and(|end| end < std::time::Instant::now()) {
                signal("INT", child.id());
                break until("the end of a job", || child.try_wait().unwrap());
            }
            // The job gets on in the end.
            if of_round < 12 && kill_a_task(&cluster) {
                of_round += 1;
            }
            std::thread::sleep(milliseconds(random(400)));
        };
        killed += of_round;
        outcome(&output, status.success());
    }
    assert!(killed > 3, "{killed}");
    for (daemon, round) in [("node-1", 0), ("job-tracker", 1), ("node-2", 2)] {
        let output = format!("crashed-{round}");
        let mut child = writes(&output);
        cluster.crash(daemon);
        let status = until("the end of a job", || child.try_wait().unwrap());
        outcome(&output, status.success());
    }
    cluster.stop();
}
