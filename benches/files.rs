//! Reads and writes of HDFS against plain copies over a socket with the same checksums, the files of
//! a job on a node, and how much memory a read and a write take.
//!
//!     cargo bench --bench files [-- MEBIBYTES ROUNDS]
//!
//! The name nodes, the data nodes and the plain servers are in a process of their own. The data nodes
//! that reads and writes are measured with do no more than the plain servers: they use blocking
//! threads, generate the bytes that are read, and keep nothing of what is written. The files of a job are on the
//! data nodes of the tests, which keep them.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corona::config::Source;
use corona::filesystem::hdfs::transfer::{
    Ack, HEADER_BYTES, HEARTBEAT, Layout, Next, PacketHeader, ReadAnswer, ReadEnd, ReadReply,
    ReadRequest, Request, SumKind, Sums, VERSION, WriteRequest, request_bytes,
};
use corona::filesystem::testing::{MiniCluster, NameNode};
use corona::filesystem::{
    CreateOptions, FileSystem, FileSystemSettings, FileSystems, FsPath, Replay,
};
use corona::hadoop::io::formats::Writable;
use corona::hadoop::io::{DecodeError, Reader as Decoder, Writer};
use corona::hadoop::writables::{DatanodeAdminState, DatanodeInfo};
use corona::process::procfs::Usage;
use corona::task_tracker::deletion::Deletion;
use corona::task_tracker::job_files;
use corona::task_tracker::local_dirs::LocalDirs;
use corona::task_tracker::localise::{AttemptSpec, JobSpec, Localiser, TaskKind};

/// Data and checksums of a packet of a plain copy.
const DATA: usize = 64 << 10;
const COVERED: usize = 512;
const SUMS: usize = DATA / COVERED * 4;
const BLOCK: u64 = 64 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let serves = words.first().is_some_and(|word| word == "serve");
    let mut runtime = match serves {
        true => tokio::runtime::Builder::new_multi_thread(),
        // As `corona fs` has it.
        false => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build().expect("threads can be started");
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => return runtime.block_on(serve()),
        ["memory", name_node, "read", bytes] => {
            let bytes = bytes.parse().expect("a number");
            return runtime.block_on(memory_of_a_read(name_node, bytes));
        }
        ["memory", name_node, replication, bytes] => {
            let replication = replication.parse().expect("a number");
            let bytes = bytes.parse().expect("a number");
            return runtime.block_on(memory_of_a_write(name_node, replication, bytes));
        }
        _ => {}
    }
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (bytes, rounds) = (number(0).unwrap_or(256) << 20, number(1).unwrap_or(7));
    let mut server = Server::start();
    runtime.block_on(async {
        let bench = Bench { server: &mut server, bytes, rounds };
        bench.run().await;
    });
}

/// The transfer that the client is compared with.
struct Server {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The name node of data nodes that keep what they get, and the one of those that do not.
    name_node: String,
    lean: String,
    plain: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let program = std::env::current_exe().expect("this program has a name");
        let mut serving = Command::new(program);
        let serving = serving.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = serving.spawn().expect("this program can be started again");
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (orders, answers) = (orders.expect("is piped"), answers.expect("is piped"));
        let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let answers = BufReader::new(answers);
        let (name_node, lean) = (String::new(), String::new());
        let mut server = Server { child, orders, answers, name_node, lean, plain };
        server.name_node = server.answer();
        server.lean = server.answer();
        server.plain = server.answer().parse().expect("an address");
        server
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server says something");
        line.trim().to_owned()
    }

    /// Has the server do something, and waits until it is done.
    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the server listens");
        assert_eq!(self.answer(), "done");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is a child of this process");
    }
}

async fn serve() {
    let cluster = MiniCluster::start(2).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let lean = MiniCluster::start(0).await;
    let is_inline = Arc::new(AtomicBool::new(false));
    let nodes: Vec<_> =
        (0..2).map(|number| lean_node(number, &lean.name_node, &is_inline)).collect();
    lean.name_node.set_data_nodes(nodes);
    println!("{}\n{}", cluster.address(), lean.address());
    println!("{}", listener.local_addr().expect("its address"));
    let plain = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || serve_plain(stream, plain));
        }
    });
    for order in std::io::stdin().lines() {
        match order.expect("an order").as_str() {
            "inline" => is_inline.store(true, Ordering::Relaxed),
            "front" => is_inline.store(false, Ordering::Relaxed),
            "clear" => cluster.data_nodes.iter().for_each(|node| node.forget_replicas()),
            other => panic!("{other:?} is no order"),
        }
        println!("done");
    }
}

const CHECKSUMS: Sums = Sums { kind: SumKind::Crc32, covered: COVERED };

/// Starts a data node that generates the bytes that are read, and keeps none.
fn lean_node(number: usize, name_node: &Arc<NameNode>, inline: &Arc<AtomicBool>) -> DatanodeInfo {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let (name_node, inline) = (name_node.clone(), inline.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (name_node, inline) = (name_node.clone(), inline.clone());
            std::thread::spawn(move || {
                stream.set_nodelay(true).expect("an option of sockets");
                let (mut arrived, mut piece) = (vec![], [0; 4096]);
                let request = loop {
                    match Request::decode(&mut Decoder::partial(&arrived, 1 << 16)) {
                        Err(DecodeError::Truncated) => {}
                        decoded => break decoded.expect("a request"),
                    }
                    let read = stream.read(&mut piece).expect("a request");
                    arrived.extend_from_slice(piece.get(..read).unwrap_or_default());
                };
                match request {
                    Request::Read(read) => lean_read(stream, &read, inline.load(Ordering::Relaxed)),
                    Request::Write(write) => lean_write(stream, &write, &name_node, number),
                }
            });
        }
    });
    DatanodeInfo {
        name: format!("127.0.0.1:{port}"),
        storage: format!("DS-{number}-127.0.0.1-{port}"),
        info_port: 0,
        ipc_port: 0,
        capacity: 1 << 40,
        used: 0,
        remaining: 1 << 40,
        last_update_ms: 0,
        transfers: 0,
        rack: "/default-rack".to_owned(),
        host: String::new(),
        admin_state: DatanodeAdminState::Normal,
    }
}

fn encoded(object: &impl Writable) -> Vec<u8> {
    let mut writer = Writer::new(1 << 10);
    object.encode(&mut writer);
    writer.finish().expect("it is small")
}

/// Sends packets of 64 KiB with the checksums in front, or sixteen at a time of 4 KiB with inline ones.
fn lean_read(mut stream: TcpStream, read: &ReadRequest, is_inline: bool) {
    let reply = ReadReply { sums: CHECKSUMS, first_chunk: read.offset };
    stream.write_all(&encoded(&ReadAnswer::Packets(reply))).expect("somebody reads");
    let end = read.offset + read.length;
    let data = if is_inline { 4096 } else { DATA };
    let chunks = data / COVERED;
    let layout = if is_inline { Layout::Inline } else { Layout::SumsFirst };
    let payload = data + 4 * chunks;
    let mut sent = vec![7; (HEADER_BYTES + payload) * (DATA / data)];
    let (mut at, mut seqno) = (read.offset, 0);
    while at < end {
        for packet in sent.chunks_exact_mut(HEADER_BYTES + payload) {
            let flags = u8::from(at + data as i64 == end);
            let header = PacketHeader { payload, layout, offset: at, seqno, flags, data };
            let (head, rest) = packet.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(&header.bytes());
            if is_inline {
                for chunk in rest.chunks_exact_mut(COVERED + 4) {
                    let (chunk, sum) = chunk.split_at_mut(COVERED);
                    sum.copy_from_slice(&crc32fast::hash(chunk).to_be_bytes());
                }
            } else {
                add_sums(rest);
            }
            (at, seqno) = (at + data as i64, seqno + 1);
        }
        // A reader that has enough may have disconnected by now.
        if stream.write_all(&sent).is_err() {
            return;
        }
    }
    let visible = i64::try_from(BLOCK).expect("a small number");
    let end = [vec![0; 4], encoded(&ReadEnd { finalized: true, visible })].concat();
    let _ = stream.write_all(&end).and_then(|()| stream.read_exact(&mut [0; 2]));
}

/// Takes packets, passes them on to the next node, checks and acknowledges them.
fn lean_write(mut stream: TcpStream, write: &WriteRequest, name_node: &NameNode, number: usize) {
    let nodes = write.targets.len() + 1;
    let mut next = write.targets.split_first().map(|(target, behind)| {
        let mut next = TcpStream::connect(&target.name).expect("it listens");
        next.set_nodelay(true).expect("an option of sockets");
        let (depth, targets) = (write.depth - 1, behind.to_vec());
        let request = Request::Write(WriteRequest { depth, targets, ..write.clone() });
        next.write_all(&request_bytes(&request)).expect("it reads");
        next.read_exact(&mut [0]).expect("an answer");
        next
    });
    stream.write_all(&[0]).expect("somebody reads");
    // Acknowledgements of the nodes behind are passed on as they come.
    let passing = next.as_ref().map(|next| {
        let mut from = next.try_clone().expect("a handle");
        let mut to = stream.try_clone().expect("a handle");
        std::thread::spawn(move || {
            let mut behind = vec![0; 8 + 2 * (nodes - 1)];
            while from.read_exact(&mut behind).is_ok() {
                let ack = [behind.as_slice(), &[0; 2]].concat();
                to.write_all(&ack).expect("somebody reads");
            }
        })
    });
    let (mut packet, mut stored) = (vec![], 0);
    loop {
        packet.resize(HEADER_BYTES, 0);
        stream.read_exact(&mut packet).expect("a packet");
        let decoded = PacketHeader::decode(&mut Decoder::new(&packet), VERSION, CHECKSUMS, 1 << 20);
        let Ok(Next::Packet(header)) = decoded else { panic!("{decoded:?} is no packet") };
        let mark = if header.is_last() { 4 } else { 0 };
        packet.resize(HEADER_BYTES + header.payload + mark, 0);
        let rest = packet.get_mut(HEADER_BYTES..).unwrap_or_default();
        stream.read_exact(rest).expect("a packet");
        if let Some(next) = &mut next {
            next.write_all(&packet).expect("somebody reads");
        }
        if header.seqno != HEARTBEAT {
            let payload = packet.get(HEADER_BYTES..HEADER_BYTES + header.payload);
            let payload = payload.unwrap_or_default();
            check_sums_of(payload.split_at(header.payload - header.data));
            stored = header.offset + header.data as i64;
        }
        if header.is_last() {
            name_node.stored(write.block, stored);
            name_node.received(write.block, number, stored);
        }
        if next.is_none() {
            let ack = Ack { seqno: header.seqno, bad: None };
            stream.write_all(&ack.bytes(1)).expect("somebody reads");
        }
        if header.is_last() {
            break;
        }
    }
    if let Some(passing) = passing {
        passing.join().expect("all is acknowledged");
    }
}

/// Fills in the checksums of a packet.
fn add_sums(packet: &mut [u8]) {
    let (sums, data) = packet.split_at_mut(SUMS);
    for (sum, chunk) in sums.chunks_mut(4).zip(data.chunks(COVERED)) {
        sum.copy_from_slice(&crc32fast::hash(chunk).to_be_bytes());
    }
}

fn check_sums(packet: &[u8]) {
    check_sums_of(packet.split_at(SUMS));
}

fn check_sums_of((sums, data): (&[u8], &[u8])) {
    for (sum, chunk) in sums.chunks(4).zip(data.chunks(COVERED)) {
        assert_eq!(sum, crc32fast::hash(chunk).to_be_bytes());
    }
}

/// Sends or receives packets. An order has three numbers: the operation, the number of packets, and the
/// number of nodes that the data is passed on to.
fn serve_plain(mut stream: TcpStream, behind: SocketAddr) {
    stream.set_nodelay(true).expect("an option of sockets");
    let mut order = [0; 6];
    stream.read_exact(&mut order).expect("an order");
    let [kind, nodes, count @ ..] = order;
    let mut packet = vec![7; SUMS + DATA];
    let mut next = (kind == b'w' && nodes > 1).then(|| order_plain(behind, b'w', nodes - 1, count));
    for _ in 0..u32::from_be_bytes(count) {
        if kind == b'r' {
            add_sums(&mut packet);
            stream.write_all(&packet).expect("somebody reads");
        } else {
            stream.read_exact(&mut packet).expect("a packet");
            if let Some(next) = &mut next {
                next.write_all(&packet).expect("somebody reads");
            }
            check_sums(&packet);
        }
    }
    if let Some(next) = &mut next {
        next.read_exact(&mut [0]).expect("an answer");
    }
    if kind == b'w' {
        stream.write_all(&[0]).expect("somebody reads");
    }
}

fn order_plain(to: SocketAddr, kind: u8, nodes: u8, count: [u8; 4]) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.set_nodelay(true).expect("an option of sockets");
    let [a, b, c, d] = count;
    stream.write_all(&[kind, nodes, a, b, c, d]).expect("the server reads");
    stream
}

struct Bench<'a> {
    server: &'a mut Server,
    bytes: u64,
    rounds: u64,
}

/// Times of one kind of work, and the processor time of both processes.
#[derive(Default)]
struct Times(Vec<Duration>, u64);

impl Times {
    fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

impl Bench<'_> {
    async fn run(mut self) {
        let systems = systems(&self.server.lean);
        let (files, path) = systems.resolve("/bench").expect("a path");
        println!("{} MiB, {} rounds, load {}", self.bytes >> 20, self.rounds, load());
        for layout in ["front", "inline"] {
            self.server.order(layout);
            write(&*files, &path, 1, Replay::Kept, self.bytes).await;
            // Once before it counts, as for writes.
            read(&*files, &path, self.bytes).await;
            let (mut plain, mut ours) = (Times::default(), Times::default());
            for _ in 0..self.rounds {
                let before = self.used();
                plain.0.push(self.plain_read());
                let between = self.used();
                let began = Instant::now();
                read(&*files, &path, self.bytes).await;
                ours.0.push(began.elapsed());
                (plain.1, ours.1) = (plain.1 + between - before, ours.1 + self.used() - between);
            }
            self.show(&format!("read, checksums {layout}"), &plain, &ours);
            self.memory("read");
            self.forget(&*files, &path).await;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("source");
        std::fs::write(&source, vec![7; self.bytes as usize]).expect("a file");
        for replication in [1, 2] {
            for kept in [true, false] {
                let replay = || match kept {
                    true => Replay::Kept,
                    false => Replay::From(Arc::new(std::fs::File::open(&source).expect("a file"))),
                };
                // A first pass that does not count: the data nodes allocate their memory.
                write(&*files, &path, replication, replay(), self.bytes).await;
                self.forget(&*files, &path).await;
                let (mut plain, mut ours) = (Times::default(), Times::default());
                for _ in 0..self.rounds {
                    let before = self.used();
                    plain.0.push(self.plain_write(replication));
                    let between = self.used();
                    let began = Instant::now();
                    write(&*files, &path, replication, replay(), self.bytes).await;
                    ours.0.push(began.elapsed());
                    (plain.1, ours.1) =
                        (plain.1 + between - before, ours.1 + self.used() - between);
                    self.forget(&*files, &path).await;
                }
                let kind = if kept { "kept" } else { "from a file" };
                self.show(&format!("write, replication {replication}, {kind}"), &plain, &ours);
            }
            self.memory(&replication.to_string());
            self.forget(&*files, &path).await;
        }
        self.job().await;
        println!("load {}", load());
    }

    fn systems(&self) -> FileSystems {
        systems(&self.server.name_node)
    }

    /// Measures, in a process of its own, the memory that reading or writing takes, so that earlier
    /// work is not counted.
    fn memory(&self, what: &str) {
        let program = std::env::current_exe().expect("this program has a name");
        let (name_node, bytes) = (&self.server.lean, self.bytes.to_string());
        let words = ["memory", name_node, what, &bytes];
        let done = Command::new(program).args(words).output().expect("it can be started again");
        print!("  memory: {}", String::from_utf8_lossy(&done.stdout));
    }

    async fn forget(&mut self, files: &dyn FileSystem, path: &FsPath) {
        files.delete(path, false).await.expect("it can be deleted");
        self.server.order("clear");
    }

    fn show(&self, what: &str, plain: &Times, ours: &Times) {
        let rate = |time: Duration| (self.bytes >> 20) as f64 / time.as_secs_f64();
        let used = |times: &Times| times.1 as f64 * 10.0 / self.rounds.max(1) as f64;
        let used = (used(ours), used(plain));
        let (plain, ours) = (rate(plain.median()), rate(ours.median()));
        println!(
            "{what}: {ours:.0} MiB/s, plain {plain:.0} MiB/s, ratio {:.2}; \
             processor time {:.0} ms a round, plain {:.0} ms",
            ours / plain,
            used.0,
            used.1
        );
    }

    /// Processor time of this process and of the server so far, in hundredths of a second.
    fn used(&self) -> u64 {
        let both = [Usage::own(), Usage::of(self.server.child.id())];
        let seconds: f64 = both.iter().filter_map(|usage| usage.cpu_seconds).sum();
        (seconds * 100.0).round() as u64
    }

    fn count(&self) -> [u8; 4] {
        ((self.bytes / DATA as u64) as u32).to_be_bytes()
    }

    fn plain_read(&self) -> Duration {
        let began = Instant::now();
        let mut stream = order_plain(self.server.plain, b'r', 1, self.count());
        let mut packet = vec![0; SUMS + DATA];
        for _ in 0..self.bytes / DATA as u64 {
            stream.read_exact(&mut packet).expect("a packet");
            check_sums(&packet);
        }
        began.elapsed()
    }

    fn plain_write(&self, nodes: i16) -> Duration {
        let began = Instant::now();
        let mut stream = order_plain(self.server.plain, b'w', nodes as u8, self.count());
        let mut packet = vec![7; SUMS + DATA];
        for _ in 0..self.bytes / DATA as u64 {
            add_sums(&mut packet);
            stream.write_all(&packet).expect("the server reads");
        }
        stream.read_exact(&mut [0]).expect("an answer");
        began.elapsed()
    }

    /// A job's files, from the order to start its first task until that could be started.
    async fn job(&mut self) {
        let systems = self.systems();
        let mut uris = vec![];
        for (name, bytes) in [("c1", 1 << 20), ("c2", 1 << 20), ("c3", 1 << 20), ("jar", 5 << 20)] {
            let (files, path) = systems.resolve(&format!("/job/{name}")).expect("a path");
            let content = if name == "jar" { zip(bytes) } else { vec![7; bytes] };
            put(&*files, &path, &content).await;
            let modified = files.status(&path).await.expect("a status").modified_ms;
            uris.push((path.to_string(), modified.to_string()));
        }
        let cached: Vec<_> = uris.iter().take(3).collect();
        let list = |values: Vec<&str>| values.join(",");
        let mut properties = vec![
            ("mapred.cache.files", list(cached.iter().map(|(uri, _)| uri.as_str()).collect())),
            ("mapred.cache.files.timestamps", {
                list(cached.iter().map(|(_, time)| time.as_str()).collect())
            }),
            ("mapred.jar", uris.last().map(|(uri, _)| uri.clone()).unwrap_or_default()),
            ("corona.task.command", "/bin/cat".to_owned()),
        ];
        properties.extend((0..600).map(|_| ("padding", "x".repeat(40))));
        let numbered = properties.iter().enumerate().map(|(number, (name, value))| {
            let number = if *name == "padding" { number.to_string() } else { String::new() };
            format!("<property><name>{name}{number}</name><value>{value}</value></property>\n")
        });
        let xml = format!("<configuration>{}</configuration>", numbered.collect::<String>());
        let (files, path) = systems.resolve("/job/job.xml").expect("a path");
        put(&*files, &path, xml.as_bytes()).await;
        let mut times = Times::default();
        for _ in 0..self.rounds.max(1) * 3 {
            times.0.push(self.localise(&path).await);
        }
        let shown: Vec<_> = times.0.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        let (least, most) = shown
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), time| (least.min(*time), most.max(*time)));
        println!(
            "files of a job (job.xml of {} KiB): median {:.1} ms, {least:.1} to {most:.1} ms",
            xml.len() >> 10,
            times.median().as_secs_f64() * 1e3
        );
    }

    async fn localise(&self, job_file: &FsPath) -> Duration {
        let root = tempfile::tempdir().expect("a directory");
        let loaded = Source {
            overrides: &[
                ("fs.default.name".to_owned(), format!("hdfs://{}/", self.server.name_node)),
                ("mapred.local.dir".to_owned(), root.path().display().to_string()),
                // Starting this would fail.
                ("corona.tt.hadoop.command".to_owned(), "/no/such/program".to_owned()),
            ],
            ..Source::default()
        };
        let loaded = loaded.load_task_tracker().expect("sound settings");
        let files = job_files::FileSystems::new(&loaded.settings.files, loaded.file_systems);
        let files = files.expect("sound settings");
        let dirs = LocalDirs::open(&loaded.settings.local).expect("a directory");
        let deletion = Deletion::start(&loaded.settings.local.dirs).expect("a directory");
        let localiser = Localiser::new(
            loaded.site,
            None,
            &loaded.settings.files,
            Arc::new(dirs),
            Arc::new(files),
            deletion,
        );
        let job = JobSpec {
            id: "job_20.1_0001".parse().expect("an id"),
            job_file: job_files::Location::from_path(&job_file.to_string()).expect("a location"),
            job_tracker: "localhost:1".to_owned(),
            secondary: None,
        };
        let attempt = AttemptSpec {
            id: "attempt_20.1_0001_m_000000_0".parse().expect("an id"),
            kind: TaskKind::Work,
            is_map: true,
            partition: 0,
            num_maps: 1,
            split: Some((*b"split").into()),
            memory_managed: false,
        };
        let began = Instant::now();
        let job = localiser.job(&job).await.expect("the job can be brought here");
        let made = localiser.attempt(&job, &attempt).await.expect("the attempt can be made");
        assert_eq!(made.held.len(), 3);
        began.elapsed()
    }
}

fn systems(name_node: &str) -> FileSystems {
    let settings = FileSystemSettings {
        default_fs: format!("hdfs://{name_node}/"),
        user: "alice".to_owned(),
        block_bytes: BLOCK,
        ..FileSystemSettings::default()
    };
    FileSystems::new(settings).expect("sound settings")
}

/// Reads first a little and then everything, and reports the difference in memory.
async fn memory_of_a_read(name_node: &str, bytes: u64) {
    let systems = systems(name_node);
    let (files, path) = systems.resolve("/bench").expect("a path");
    let mut reader = files.open(&path).await.expect("it can be opened");
    reader.read(&mut [0; 100]).await.expect("it can be read");
    drop(reader);
    println!("{} KiB for a read", memory(read(&*files, &path, bytes)).await);
}

async fn memory_of_a_write(name_node: &str, replication: i16, bytes: u64) {
    let systems = systems(name_node);
    let (files, path) = systems.resolve("/bench").expect("a path");
    put(&*files, &path, b"x").await;
    files.delete(&path, false).await.expect("it can be deleted");
    let writing = write(&*files, &path, replication, Replay::Kept, bytes);
    println!("{} KiB for a write", memory(writing).await);
}

async fn put(files: &dyn FileSystem, path: &FsPath, content: &[u8]) {
    let options = CreateOptions { overwrite: true, replication: Some(1), ..Default::default() };
    let mut writer = files.create(path, options).await.expect("it can be made");
    writer.write(content).await.expect("it can be written");
    writer.close().await.expect("it can be closed");
}

async fn write(files: &dyn FileSystem, path: &FsPath, replication: i16, replay: Replay, all: u64) {
    let options =
        CreateOptions { replication: Some(replication), replay, ..CreateOptions::default() };
    let mut writer = files.create(path, options).await.expect("it can be made");
    let piece = vec![7; 256 << 10];
    for _ in 0..all / piece.len() as u64 {
        writer.write(&piece).await.expect("it can be written");
    }
    writer.close().await.expect("it can be closed");
}

async fn read(files: &dyn FileSystem, path: &FsPath, all: u64) {
    let mut reader = files.open(path).await.expect("it can be opened");
    let (mut piece, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match reader.read(&mut piece).await.expect("it can be read") {
            0 => break,
            read => bytes += read as u64,
        }
    }
    assert_eq!(bytes, all);
}

/// A jar of so many bytes: one class file that is stored, not compressed.
fn zip(bytes: usize) -> Vec<u8> {
    let content = vec![7; bytes];
    let sum = crc32fast::hash(&content).to_le_bytes();
    let (size, name) = ((bytes as u32).to_le_bytes(), b"A.class");
    let fields = |of: &mut Vec<u8>| {
        of.extend([0; 8]);
        of.extend([sum, size, size].as_flattened());
        of.extend([name.len() as u8, 0, 0, 0]);
    };
    let mut zip = b"PK\x03\x04\x0a\x00".to_vec();
    fields(&mut zip);
    zip.extend(name);
    zip.extend(&content);
    let directory = zip.len() as u32;
    zip.extend(b"PK\x01\x02\x0a\x00\x0a\x00");
    fields(&mut zip);
    zip.extend([0; 14]);
    zip.extend(name);
    let length = zip.len() as u32 - directory;
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend([length.to_le_bytes(), directory.to_le_bytes()].as_flattened());
    zip.extend([0, 0]);
    zip
}

/// By how many KiB the memory of this process grew at most while something was done.
async fn memory(work: impl Future<Output = ()>) -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak can be reset");
    let before = Usage::own().resident_bytes.unwrap_or(0);
    work.await;
    let most = Usage::own().peak_resident_bytes.unwrap_or(0);
    most.saturating_sub(before) / 1024
}

fn load() -> String {
    let load = std::fs::read_to_string(Path::new("/proc/loadavg")).unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
