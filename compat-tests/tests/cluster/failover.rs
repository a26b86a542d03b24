//! Two instances, a real ZooKeeper and a gateway: leaders are killed, stopped, cut off from ZooKeeper
//! and asked to step down under load. Afterwards the ledgers of the sessions agree with what the leader
//! shows.
//!
//! `CORONA_FAILOVERS` is the number of rounds, each with one fail-over of every kind; 1 if it is not set.
//! `CORONA_FAILOVER_NODES` and `CORONA_FAILOVER_SESSIONS` are the numbers of emulated nodes and sessions.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use compat_tests::corona_program;
use compat_tests::daemons::first_line;
use compat_tests::serving::free_address;
use compat_tests::zookeeper::ZooKeeper;
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::calls::{ClusterManager, ClusterManagerCall as Call};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated as wire;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::kills::{KillContext, PATIENCE, SLOTS, Size, check_ledgers, started};

/// Of ZooKeeper's sessions.
pub(super) const SESSION: Duration = Duration::from_secs(4);

/// How the leader is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Killed,
    Stopped,
    CutOff,
    SteppedDown,
}

/// An instance, and the relay through which it reaches ZooKeeper.
pub(super) struct Instance {
    pub(super) launch: Launch,
    pub(super) running: LaunchedManager,
    zookeeper: watch::Sender<bool>,
}

impl Loss {
    const ALL: [Loss; 4] = [Loss::SteppedDown, Loss::Killed, Loss::Stopped, Loss::CutOff];
}

impl Instance {
    /// Starts an instance with these settings on top.
    pub(super) async fn start(
        zookeeper: &ZooKeeper,
        directory: &Path,
        settings: &[(&str, &str)],
    ) -> Instance {
        let address = free_address();
        let (connected, cut) = watch::channel(true);
        let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = relay.local_addr().unwrap();
        tokio::spawn(relay_to(relay, zookeeper.servers().parse().unwrap(), cut));
        let local = |address: SocketAddr| format!("localhost:{}", address.port());
        let own = [
            ("cm.server.address", &*local(free_address())),
            ("cm.server.http.address", &local(free_address())),
            ("cm.state", &directory.join("cm.state").display().to_string()),
            ("cm.cpu.to.resource.partitioning", &format!("{{\"1\":{{\"MAP\":{SLOTS}}}}}")),
            ("corona.cm.journal.dir", &directory.join("journal").display().to_string()),
            ("cm.session.expiryinterval", "600000"),
            ("cm.node.expiryinterval", "600000"),
            ("cm.notifier.pollinterval", "20"),
            ("cm.notifier.retry.interval.start", "20"),
            ("cm.notifier.retry.interval.factor", "1"),
            ("cm.notifier.retry.max", "10000"),
            ("corona.cm.ha.zookeeper", &through.to_string()),
            ("corona.cm.ha.session.timeout.ms", &SESSION.as_millis().to_string()),
            ("corona.cm.ha.replication.address", &address.to_string()),
            ("corona.cm.ha.instances", "127.0.0.1"),
        ];
        let launch = compat_tests::launch(&[&own, settings].concat());
        let running = started(launch.clone()).await;
        Instance { launch, running, zookeeper: connected }
    }

    /// What it shows of itself. `None` while it does not answer.
    pub(super) async fn status(&self) -> Option<Json> {
        let web = self.running.http()?;
        let body = tokio::time::timeout(Duration::from_secs(5), get(web, "/api/v1/status")).await;
        body.ok()?.ok()
    }

    pub(super) async fn role(&self) -> Option<String> {
        Some(self.status().await?["ha"]["role"].as_str()?.to_owned())
    }

    pub(super) fn signal(&self, signal: &str) {
        let id = self.running.process_id().to_string();
        let done = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(done.success());
    }
}

/// Two instances with these settings on top.
pub(super) async fn pair(
    zookeeper: &ZooKeeper,
    directory: &Path,
    settings: &[(&str, &str)],
) -> Vec<Instance> {
    let mut instances = Vec::new();
    for name in ["a", "b"] {
        let directory = directory.join(name);
        std::fs::create_dir(&directory).unwrap();
        instances.push(Instance::start(zookeeper, &directory, settings).await);
    }
    instances
}

/// Relays connections while it is connected; cutting it closes all of them and refuses new ones.
async fn relay_to(listener: TcpListener, server: SocketAddr, connected: watch::Receiver<bool>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut connected = connected.clone();
        if !*connected.borrow_and_update() {
            continue;
        }
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                _ = connected.wait_for(|connected| !*connected) => {}
            }
        });
    }
}

async fn get(web: SocketAddr, path: &str) -> std::io::Result<Json> {
    exchange(web, &format!("GET {path}")).await
}

async fn exchange(web: SocketAddr, what: &str) -> std::io::Result<Json> {
    let mut stream = TcpStream::connect(web).await?;
    let request = format!(
        "{what} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        web.port()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(std::io::Error::other)
}

/// A program of ours that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a gateway, and returns where it listens.
fn gateway(zookeeper: &ZooKeeper) -> (Ended, SocketAddr) {
    gateway_at(&zookeeper.servers())
}

fn gateway_at(zookeeper: &str) -> (Ended, SocketAddr) {
    let mut child = Command::new(corona_program())
        .arg("gateway")
        .env_remove("HADOOP_CONF_DIR")
        .args(["-D", &format!("corona.cm.ha.zookeeper={zookeeper}")])
        .args(["-D", "corona.gateway.address=localhost:0"])
        .args(["-D", "corona.cm.ha.session.timeout.ms=4000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = first_line(&mut child);
    let address = line.trim().rsplit(' ').next().unwrap().parse();
    (Ended(child), address.unwrap_or_else(|_| panic!("{line}")))
}

/// What the instances show, for a test that fails.
pub(super) async fn shown(instances: &[Instance]) -> String {
    let mut text = String::new();
    for instance in instances {
        let status = instance.status().await;
        text.push_str(&format!("\n{status:?}\n{}", instance.running.log()));
    }
    text
}

/// The places of the leader and of a standby that may take over.
pub(super) async fn roles(instances: &[Instance]) -> (usize, usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (place, instance) in instances.iter().enumerate() {
            let Some(status) = instance.status().await else { continue };
            let standbys = status["ha"]["standbys"].as_array().cloned().unwrap_or_default();
            if status["ha"]["role"] == "leader"
                && standbys.iter().any(|standby| standby["in_sync"] == true)
            {
                return (place, 1 - place);
            }
        }
        if Instant::now() > deadline {
            panic!("no leader with a standby: {}", shown(instances).await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) async fn wait_for_role(instance: &Instance, role: &str) {
    let deadline = Instant::now() + PATIENCE;
    while instance.role().await.as_deref() != Some(role) {
        assert!(Instant::now() < deadline, "not {role}: {}", instance.running.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for grants that sessions are notified of.
async fn wait_for_grants(world: &KillContext, more: u64, instances: &[Instance]) {
    let enough = world.grants.load(Ordering::SeqCst) + more;
    let deadline = Instant::now() + PATIENCE;
    while world.grants.load(Ordering::SeqCst) < enough {
        if Instant::now() > deadline {
            panic!("no grants any more: {}", shown(instances).await);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The time from a loss until the other instance shows that it leads.
async fn lose(instances: &mut [Instance], loss: Loss) -> Duration {
    let (leader, standby) = roles(instances).await;
    let lost = Instant::now();
    match loss {
        Loss::Killed => instances[leader].running.stop(),
        Loss::Stopped => instances[leader].signal("-STOP"),
        Loss::CutOff => drop(instances[leader].zookeeper.send_replace(false)),
        Loss::SteppedDown => {
            let web = instances[leader].running.http().unwrap();
            let answer = exchange(web, "POST /api/v1/step-down").await.unwrap();
            assert_eq!(answer["stepping_down"], true, "{answer}");
        }
    }
    wait_for_role(&instances[standby], "leader").await;
    let took = lost.elapsed();
    match loss {
        Loss::Killed => {
            let launch = instances[leader].launch.clone();
            instances[leader].running = started(launch).await;
        }
        Loss::Stopped => instances[leader].signal("-CONT"),
        Loss::CutOff => {
            wait_for_role(&instances[leader], "fenced").await;
            instances[leader].zookeeper.send_replace(true);
            wait_for_role(&instances[leader], "standby").await;
        }
        Loss::SteppedDown => {}
    }
    took
}

/// The number that an environment variable has, if it is set.
fn asked_for(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

#[allow(clippy::print_stderr, reason = "the times stand in docs/reference/performance.md")]
async fn fail_over(ack: &str, resources: &str) {
    let rounds = asked_for("CORONA_FAILOVERS").unwrap_or(1);
    let size = Size {
        nodes: asked_for("CORONA_FAILOVER_NODES").unwrap_or(Size::SMALL.nodes),
        sessions: asked_for("CORONA_FAILOVER_SESSIONS").unwrap_or(Size::SMALL.sessions),
    };
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.ha.ack", ack), ("corona.cm.resources", resources)];
    let mut instances = pair(&zookeeper, directory.path(), &settings).await;
    let (_gateway, manager) = gateway(&zookeeper);
    let world = KillContext::new(manager, size);
    let (nodes, sessions) = world.populate();
    let mut all_times = Loss::ALL.map(|loss| (loss, Vec::new()));
    for _ in 0..rounds {
        for (loss, times) in &mut all_times {
            wait_for_grants(&world, 60, &instances).await;
            roles(&instances).await;
            world.take_longest_gap();
            let led_after = lose(&mut instances, *loss).await;
            wait_for_grants(&world, 60, &instances).await;
            let silent = world.take_longest_gap();
            eprintln!(
                "ack {ack}, {loss:?}: the other instance led after {} ms, no reply for {} ms",
                led_after.as_millis(),
                silent.as_millis()
            );
            times.push((silent, led_after));
            let limit = if *loss == Loss::SteppedDown { SESSION } else { 3 * SESSION };
            assert!(led_after < limit && silent < limit + SESSION, "{loss:?}: {times:?}");
        }
    }
    for (loss, mut times) in all_times {
        times.sort_unstable();
        let at = |place: usize| times.get(place).map_or(0, |(silent, _)| silent.as_millis());
        eprintln!(
            "{} nodes, {} sessions, {} times {loss:?}: no reply for {} ms at the median, {} ms at most",
            size.nodes,
            size.sessions,
            times.len(),
            at(times.len() / 2),
            at(times.len() - 1)
        );
    }
    let (leader, standby) = roles(&instances).await;
    let web = instances[leader].running.http().unwrap();
    let shown = instances[standby].status().await.unwrap();
    assert_eq!(shown["ha"]["leader_pages"], format!("http://127.0.0.1:{}/", web.port()));
    check_ledgers(&world, nodes, sessions, web).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_leaders_are_lost() {
    fail_over("standby", "slots").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_where_resources_are_counted() {
    fail_over("standby", "memory").await;
}

/// An instance that does not lead takes calls: they are relayed, with the address of their peer. The tools find the
/// leader through any instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_relay_calls_and_tools_follow_the_leader() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let instances = pair(&zookeeper, directory.path(), &[]).await;
    let (leader, standby) = roles(&instances).await;
    let through = instances[standby].running.thrift();
    let output = tool(&["admin", "refresh-nodes", "--address", &through.to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    let status = instances[leader].status().await.unwrap();
    let refreshed = &status["operations"][0];
    assert_eq!(refreshed["operation"], "refresh_nodes", "{status}");
    // Callers on this machine have the address that they call.
    assert_eq!(refreshed["last"]["caller"], through.ip().to_string(), "{status}");
    // Step-down is refused by what does not lead, which says where the leader is.
    let web = instances[standby].running.http().unwrap();
    let refused = step_down(web).await;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(error.contains("standby") && error.contains("http://127.0.0.1:"), "{error}");
    for instance in &instances {
        let (thrift, web) = (instance.running.thrift(), instance.running.http().unwrap());
        for arguments in [&["status"][..], &["sessions", "list"]] {
            let addresses = ["--address", &thrift.to_string(), "--http-address", &web.to_string()];
            let asked = tool(&[arguments, &addresses].concat()).await;
            assert!(asked.status.success(), "{arguments:?}: {asked:?}");
        }
    }
    // A leader that hands over is followed by another one before the command ends.
    let done = step_down(instances[leader].running.http().unwrap()).await;
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("with epoch 2"), "{text}");
    assert_eq!(instances[standby].role().await.as_deref(), Some("leader"));
    wait_for_role(&instances[leader], "standby").await;
}

/// Whatever a server of ZooKeeper sends, programs live on, and end when they are asked to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_zookeeper_ends_no_program_and_keeps_none_from_ending() {
    let event = [&[0xff; 4][..], &[0xff; 8], &[0; 4], &[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, b'/']];
    let event = event.concat();
    let frame = |message: &[u8]| [&(message.len() as u32).to_be_bytes()[..], message].concat();
    for hostile in [
        frame(&event),
        (1_u32 << 30).to_be_bytes().to_vec(),
        frame(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        vec![0; 4],
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let connections = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = connections.clone();
        let session = [&[0; 4][..], &60_000_i32.to_be_bytes(), &[1; 8], &[0, 0, 0, 16], &[3; 16]];
        let welcome = frame(&[&session.concat()[..], &[0]].concat());
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (welcome, hostile) = (welcome.clone(), hostile.repeat(1000));
                tokio::spawn(async move {
                    let mut opening = [0; 48];
                    stream.read_exact(&mut opening).await?;
                    stream.write_all(&welcome).await?;
                    loop {
                        stream.write_all(&hostile).await?;
                    }
                    #[allow(unreachable_code, reason = "gives the block its type")]
                    Ok::<(), std::io::Error>(())
                });
            }
        });
        let (mut gateway, _) = gateway_at(&server);
        let deadline = Instant::now() + PATIENCE;
        while connections.load(Ordering::SeqCst) < 5 {
            assert_eq!(gateway.0.try_wait().unwrap(), None, "the gateway has ended");
            assert!(Instant::now() < deadline, "it does not reconnect");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let asked = Instant::now();
        let id = gateway.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        while gateway.0.try_wait().unwrap().is_none() {
            assert!(asked.elapsed() < PATIENCE, "it does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(gateway.0.wait().unwrap().success());
        serving.abort();
    }
}

/// Nodes and sessions have the same age in the eyes of the next leader, so that those which are gone expire
/// however often leaders change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_counted_over_changes_of_the_leader() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("cm.node.expiryinterval", "6000")];
    let instances = pair(&zookeeper, directory.path(), &settings).await;
    let (leader, _) = roles(&instances).await;
    let manager = instances[leader].running.thrift();
    let mut client: Client<ClusterManager> =
        Client::connect(manager, ClientOptions::default()).await.unwrap();
    let address = wire::InetAddress::new("h".to_owned(), 1);
    let specs = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
    let node = wire::ClusterNodeInfo::new("n".to_owned(), address, specs, None, None, None, None);
    client.node_heartbeat(node).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (leader, _) = roles(&instances).await;
        let web = instances[leader].running.http().unwrap();
        // The leader may have changed since.
        let nodes = get(web, "/api/v1/nodes").await.unwrap_or_default()["nodes"].clone();
        if nodes.as_array().is_some_and(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < deadline, "{nodes} {}", shown(&instances).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Time counts up to the last call: somebody else is heard.
        let manager = instances[leader].running.thrift();
        let mut client: Client<ClusterManager> =
            Client::connect(manager, ClientOptions::default()).await.unwrap();
        client.call(&Call::GetNextSessionId).await.unwrap();
        // It may have no standby by now.
        let _ = exchange(web, "POST /api/v1/step-down").await;
    }
}

/// A leader that was stopped for longer than its lease and shorter than its session gives it up when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_fences_itself_gives_the_leadership_up() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let instances = pair(&zookeeper, directory.path(), &[]).await;
    // A machine that is busy may let the session time out.
    for _ in 0..10 {
        let (leader, standby) = roles(&instances).await;
        instances[leader].signal("-STOP");
        tokio::time::sleep(SESSION * 7 / 10).await;
        instances[leader].signal("-CONT");
        let goes_on = Instant::now();
        wait_for_role(&instances[standby], "leader").await;
        let is_early = goes_on.elapsed() < SESSION;
        let log = instances[leader].running.log();
        if is_early && log.contains("two thirds") && log.contains("Gave the leadership up") {
            return;
        }
    }
    panic!("no leader gave it up: {}", shown(&instances).await);
}

/// The disk of a leader hangs, as far as the journal can tell: the threads that write it stand still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_hangs_lets_another_instance_lead() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.journal.sync", "always"), ("corona.cm.ha.ack", "standby")];
    let instances = pair(&zookeeper, directory.path(), &settings).await;
    for by_step_down in [false, true] {
        let (leader, standby) = roles(&instances).await;
        let world = KillContext::new(instances[leader].running.thrift(), Size::SMALL);
        let hung = Hung::threads(instances[leader].running.process_id(), "journal-");
        let _peers = world.populate();
        if by_step_down {
            let done = step_down(instances[leader].running.http().unwrap()).await;
            assert!(done.status.success(), "{done:?}");
        }
        wait_for_role(&instances[standby], "leader").await;
        let log = instances[leader].running.log();
        assert!(by_step_down || log.contains("the disk hangs"), "{log}");
        wait_for_role(&instances[leader], "standby").await;
        drop(hung);
    }
}

async fn step_down(web: SocketAddr) -> std::process::Output {
    tool(&["admin", "step-down", "--http-address", &web.to_string()]).await
}

pub(super) async fn tool(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(corona_program());
    command.args(arguments).env_remove("HADOOP_CONF_DIR");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Threads of a process that stand still until this is dropped, or until they end.
struct Hung {
    _holds: Vec<std::sync::mpsc::SyncSender<()>>,
}

impl Hung {
    fn threads(process: u32, name: &str) -> Hung {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let named = threads.filter_map(|thread| {
            let path = thread.unwrap().path();
            let its_name = std::fs::read_to_string(path.join("comm")).ok()?;
            its_name.starts_with(name).then(|| path.file_name()?.to_str()?.parse().ok())?
        });
        let holds: Vec<_> = named.map(hang).collect();
        assert!(!holds.is_empty(), "no thread {name}");
        Hung { _holds: holds }
    }
}

/// Stops one thread, by a thread that lives as long as it is to stand still.
fn hang(thread: i32) -> std::sync::mpsc::SyncSender<()> {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (stopped, is_stopped) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let thread = nix::unistd::Pid::from_raw(thread);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        let wait = |more| waitpid(thread, Some(WaitPidFlag::__WALL | more));
        wait(WaitPidFlag::empty()).unwrap();
        stopped.send(()).unwrap();
        // One that was killed is waited for, or its process could not end.
        while released.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            match wait(WaitPidFlag::WNOHANG) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(20)),
                _ => return,
            }
        }
        let _ = ptrace::detach(thread, None);
    });
    is_stopped.recv().unwrap();
    release
}
