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
use compat_tests::serving::free_address;
use compat_tests::skipping::{Missing, skip};
use compat_tests::zookeeper::ZooKeeper;
use corona::conformance::launch::{Launch, LaunchedManager};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::kills::{PATIENCE, SLOTS, Size, World, check_ledgers, started};

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
        let overrides = [
            ("cm.server.address", format!("localhost:{}", free_address().port())),
            ("cm.server.http.address", format!("localhost:{}", free_address().port())),
            ("cm.state", directory.join("cm.state").display().to_string()),
            ("cm.cpu.to.resource.partitioning", format!("{{\"1\":{{\"MAP\":{SLOTS}}}}}")),
            ("cm.session.expiryinterval", "600000".to_owned()),
            ("cm.node.expiryinterval", "600000".to_owned()),
            ("cm.notifier.pollinterval", "20".to_owned()),
            ("cm.notifier.retry.interval.start", "20".to_owned()),
            ("cm.notifier.retry.interval.factor", "1".to_owned()),
            ("cm.notifier.retry.max", "10000".to_owned()),
            ("corona.cm.ha.zookeeper", through.to_string()),
            ("corona.cm.ha.session.timeout.ms", SESSION.as_millis().to_string()),
            ("corona.cm.ha.replication.address", address.to_string()),
            ("corona.cm.ha.instances", "127.0.0.1".to_owned()),
        ];
        let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let overrides = overrides.into_iter().chain(settings);
        let launch = Launch {
            program: corona_program().to_path_buf(),
            conf_dir: None,
            overrides: overrides.map(|(key, value)| (key.to_owned(), value)).collect(),
            arguments: vec![],
            ready_within: PATIENCE,
        };
        let running = started(launch.clone()).await;
        Instance { launch, running, zookeeper: connected }
    }

    /// What it shows of itself. `None` while it does not answer.
    pub(super) async fn status(&self) -> Option<Json> {
        let web = self.running.http()?;
        let body = tokio::time::timeout(Duration::from_secs(2), get(web, "/api/v1/status")).await;
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
    use std::io::{BufRead, BufReader};

    let mut child = Command::new(corona_program())
        .arg("gateway")
        .env_remove("HADOOP_CONF_DIR")
        .args(["-D", &format!("corona.cm.ha.zookeeper={}", zookeeper.servers())])
        .args(["-D", "corona.gateway.address=localhost:0"])
        .args(["-D", "corona.cm.ha.session.timeout.ms=4000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
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
async fn wait_for_grants(world: &World, more: u64, instances: &[Instance]) {
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

#[allow(clippy::print_stderr, reason = "the times stand in docs/performance.md")]
async fn fail_over(ack: &str) {
    let rounds = asked_for("CORONA_FAILOVERS").unwrap_or(1);
    let size = Size {
        nodes: asked_for("CORONA_FAILOVER_NODES").unwrap_or(Size::SMALL.nodes),
        sessions: asked_for("CORONA_FAILOVER_SESSIONS").unwrap_or(Size::SMALL.sessions),
    };
    let zookeeper = ZooKeeper::start();
    let directory = tempfile::tempdir().unwrap();
    let mut instances = pair(&zookeeper, directory.path(), &[("corona.cm.ha.ack", ack)]).await;
    let (_gateway, manager) = gateway(&zookeeper);
    let world = World::new(manager, size);
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
    if !ZooKeeper::is_installed() {
        return skip("nothing_acknowledged_is_lost_when_leaders_are_lost", Missing::ZooKeeper);
    }
    fail_over("standby").await;
}

/// An instance that does not lead takes calls: they are relayed, with the address of their peer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_relay_calls_and_refuse_strangers() {
    if !ZooKeeper::is_installed() {
        return skip("standbys_relay_calls_and_refuse_strangers", Missing::ZooKeeper);
    }
    let zookeeper = ZooKeeper::start();
    let directory = tempfile::tempdir().unwrap();
    let instances = pair(&zookeeper, directory.path(), &[]).await;
    let (leader, standby) = roles(&instances).await;
    let through = instances[standby].running.thrift();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(corona_program())
            .args(["admin", "refresh-nodes", "--address", &through.to_string()])
            .output()
            .unwrap()
    });
    let output = output.await.unwrap();
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
    // The port for instances does not reply to other programs.
    let door = instances[leader].status().await.unwrap()["ha"]["instance"].clone();
    let mut stranger = TcpStream::connect(door.as_str().unwrap()).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    let done = step_down(instances[leader].running.http().unwrap()).await;
    assert!(done.status.success(), "{done:?}");
    wait_for_role(&instances[standby], "leader").await;
    wait_for_role(&instances[leader], "standby").await;
}

async fn step_down(web: SocketAddr) -> std::process::Output {
    let run = move || {
        Command::new(corona_program())
            .args(["admin", "step-down", "--http-address", &web.to_string()])
            .env_remove("HADOOP_CONF_DIR")
            .output()
            .unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}
