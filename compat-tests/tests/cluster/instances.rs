//! Two instances and a real ZooKeeper, where something other than the leader fails: ZooKeeper, both
//! machines, a standby that does not keep up, a stranger at the port for instances.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use compat_tests::with_tls;
use compat_tests::zookeeper::ZooKeeper;
use corona::access::{AccessString, Authority, Identity, NewGrant, Role};
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona::wire::client::{CallError, Client, ClientOptions};
use corona::wire::generated as wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::failover::{Instance, pair, roles, shown, tool, wait_for_role};
use super::hostile::resident_kib;
use super::kills::{PATIENCE, started};

async fn connect(manager: SocketAddr) -> Client<ClusterManager> {
    Client::connect(manager, ClientOptions::default()).await.unwrap()
}

/// Starts a session without requests, and returns its handle.
async fn start_session(client: &mut Client<ClusterManager>, name: &str) -> String {
    let Ok(Reply::GetNextSessionId(handle)) = client.call(&Call::GetNextSessionId).await else {
        panic!("no id")
    };
    let address = wire::InetAddress::new(Ipv4Addr::LOCALHOST.to_string(), 1);
    let (name, user) = (name.to_owned(), "user".to_owned());
    let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
    let start = Call::SessionStart { handle: Some(handle.clone()), info: Some(info) };
    client.call(&start).await.unwrap();
    handle
}

/// The names of the sessions that run, by an instance that leads.
async fn session_names(leader: &Instance) -> Vec<String> {
    let mut client = connect(leader.running.thrift()).await;
    let Ok(Reply::GetSessions(sessions)) = client.call(&Call::GetSessions).await else {
        panic!("no sessions")
    };
    let mut names: Vec<String> = sessions.into_iter().map(|session| session.name).collect();
    names.sort();
    names
}

/// The place of the instance that leads, whether or not there is a standby.
async fn leader(instances: &[Instance]) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (place, instance) in instances.iter().enumerate() {
            if instance.role().await.as_deref() == Some("leader") {
                return place;
            }
        }
        if Instant::now() > deadline {
            panic!("no leader: {}", shown(instances).await);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn start_again(instance: &mut Instance) {
    let launch = instance.launch.clone();
    instance.running = started(launch).await;
}

/// A standby that is stopped would hold every reply up for a minute, if replies waited for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_acknowledgements_nobody_waits_for_a_standby() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.ha.ack", "none"), ("corona.cm.ha.ack.timeout.ms", "60000")];
    let mut instances = pair(&zookeeper, directory.path(), &settings).await;
    let (leads, stands_by) = roles(&instances).await;
    let mut client = connect(instances[leads].running.thrift()).await;
    start_session(&mut client, "before").await;
    let last = journal_record(&instances[leads]).await;
    let deadline = Instant::now() + PATIENCE;
    while acknowledged(&instances[leads]).await < last {
        assert!(Instant::now() < deadline, "{}", shown(&instances).await);
        sleep(Duration::from_millis(10)).await;
    }
    instances[stands_by].signal("-STOP");
    let asked = Instant::now();
    let answered = timeout(PATIENCE / 2, start_session(&mut client, "meanwhile")).await;
    instances[stands_by].signal("-CONT");
    assert!(answered.is_ok(), "no answer in {:?}", asked.elapsed());
    // It takes over with what it has received.
    instances[leads].running.stop();
    wait_for_role(&instances[stands_by], "leader").await;
    let names = session_names(&instances[stands_by]).await;
    assert!(names.contains(&"before".to_owned()), "{names:?}");
}

/// What an instance replies to a member within TLS.
async fn ask_within_tls(member: &Identity, instance: SocketAddr) -> Result<(), String> {
    let stream = TcpStream::connect(instance).await.map_err(|error| error.to_string())?;
    let stream = member.connect(stream, &[Role::Admin]).await.map_err(|error| error.to_string())?;
    let mut client = Client::<ClusterManager>::over(stream, ClientOptions::default());
    client.call(&Call::GetSessions).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_shared_authority_keep_their_access_over_a_fail_over() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = with_tls(directory.path(), true);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (&**k, &**v)).collect();
    let mut instances = pair(&zookeeper, directory.path(), &settings).await;
    let (leads, stands_by) = roles(&instances).await;
    let at = |instance: &Instance| instance.running.thrift();
    let authority = Authority::open(&directory.path().join("ca")).unwrap();
    let new = NewGrant { role: Role::Admin, user: None, valid_secs: None, uses: Some(1) };
    let head = ("127.0.0.1", at(&instances[leads]).port());
    let (id, string) = authority.grant(&new, head, SystemTime::now()).unwrap();
    let member = Identity::enrol(&directory.path().join("member"), &string, "ann", &[]).await;
    let member = member.unwrap();
    // A standby passes TLS on to the leader.
    for instance in &instances {
        ask_within_tls(&member, at(instance)).await.unwrap();
    }
    instances[leads].running.stop();
    let leader = &instances[stands_by];
    wait_for_role(leader, "leader").await;
    ask_within_tls(&member, at(leader)).await.unwrap();
    // An access string that was used, or revoked, at one instance is refused by the other one.
    let again = AccessString { port: at(leader).port(), ..string };
    let refused = Identity::enrol(&directory.path().join("second"), &again, "bob", &[]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("used as often as it may be"), "{refused}");
    authority.revoke(id).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask_within_tls(&member, at(leader)).await {
            Ok(()) => assert!(Instant::now() < deadline, "the access does not end"),
            Err(refused) => {
                assert!(refused.contains("revoked"), "{refused}");
                return;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn journal_record(leader: &Instance) -> u64 {
    let status = leader.status().await.unwrap();
    status["journal"]["last_record"].as_u64().unwrap()
}

/// The last record that the only standby of a leader has stored.
async fn acknowledged(leader: &Instance) -> u64 {
    let status = leader.status().await.unwrap();
    status["ha"]["standbys"][0]["acknowledged_record"].as_u64().unwrap_or_default()
}

/// Without ZooKeeper no instance leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_instance_leads_without_zookeeper() {
    let Some(mut zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.ha.ack", "standby")];
    let instances = pair(&zookeeper, directory.path(), &settings).await;
    let (led, _) = roles(&instances).await;
    let mut client = connect(instances[led].running.thrift()).await;
    start_session(&mut client, "before").await;
    zookeeper.stop();
    let lost = Instant::now();
    wait_for_role(&instances[led], "fenced").await;
    // Neither the connection that was open nor a new one, to either instance, is answered.
    for instance in &instances {
        let mut new = connect(instance.running.thrift()).await;
        let asked = timeout(Duration::from_millis(500), new.call(&Call::GetNextSessionId)).await;
        assert!(!matches!(asked, Ok(Ok(_))), "{asked:?}");
    }
    let asked = timeout(Duration::from_millis(500), client.call(&Call::GetNextSessionId)).await;
    assert!(matches!(asked, Err(_) | Ok(Err(CallError::Closed | CallError::Io(_)))), "{asked:?}");
    for instance in &instances {
        assert_ne!(instance.role().await.as_deref(), Some("leader"));
        // The tools say so at once, and do not wait for a connection that is held.
        let (thrift, web) = (instance.running.thrift(), instance.running.http().unwrap());
        let addresses = ["--address", &thrift.to_string(), "--http-address", &web.to_string()];
        // The one that was fenced starts again, and refuses connections until it has.
        loop {
            let told = tool(&[&["status"], &addresses[..]].concat()).await;
            let error = String::from_utf8_lossy(&told.stderr).into_owned();
            assert!(!told.status.success(), "{told:?}");
            if error.contains("ZooKeeper") {
                break;
            }
            assert!(error.contains("refused") && lost.elapsed() < PATIENCE, "{error}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    zookeeper.start_again();
    let (leads, _) = roles(&instances).await;
    assert_eq!(session_names(&instances[leads]).await, ["before"]);
}

/// An instance that knows no leader keeps new connections for as long as is configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_held_as_long_as_configured() {
    const HOLD: Duration = Duration::from_secs(10);
    let Some(mut zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    zookeeper.stop();
    let settings = [("corona.cm.ha.hold.ms", "10000")];
    let instance = Instance::start(&zookeeper, directory.path(), &settings).await;
    let connected = Instant::now();
    let mut held = connect(instance.running.thrift()).await;
    // It is counted when it has been taken up, which is before it is given up.
    loop {
        let status = instance.status().await.unwrap();
        if status["ha"]["relayed_connections"] == 1 {
            break;
        }
        assert!(connected.elapsed() < HOLD, "{status}");
    }
    let ended = timeout(PATIENCE, held.call(&Call::GetNextSessionId)).await.unwrap();
    let took = connected.elapsed();
    assert!(matches!(ended, Err(CallError::Closed | CallError::Io(_))), "{ended:?}");
    assert!(took >= HOLD, "{took:?}");
    // One that is held when a leader is found is answered.
    zookeeper.start_again();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut held = connect(instance.running.thrift()).await;
        if matches!(held.call(&Call::GetNextSessionId).await, Ok(Reply::GetNextSessionId(_))) {
            return;
        }
        assert!(Instant::now() < deadline, "{}", instance.running.log());
    }
}

/// What waits for a standby is bounded, whatever the time for its acknowledgements is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_may_be_behind_by_so_many_bytes_only() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [
        ("corona.cm.ha.ack", "none"),
        ("corona.cm.ha.ack.timeout.ms", "600000"),
        ("corona.cm.ha.max.lag.bytes", "1048576"),
    ];
    let instances = pair(&zookeeper, directory.path(), &settings).await;
    let (leads, stands_by) = roles(&instances).await;
    let mut client = connect(instances[leads].running.thrift()).await;
    let handle = start_session(&mut client, "busy").await;
    instances[stands_by].signal("-STOP");
    let hosts: Vec<String> =
        (0..8).map(|host| format!("{}{host}.example.com", "a".repeat(100))).collect();
    let request =
        |id| wire::ResourceRequest::new(id, hosts.clone(), None, wire::ResourceType::MAP, None);
    let deadline = Instant::now() + PATIENCE;
    let dropped = "corona.cm.ha.max.lag.bytes";
    let mut next = 0;
    // The buffers of the connection take some megabytes.
    while !instances[leads].running.log().contains(dropped) {
        assert!(Instant::now() < deadline, "{}", instances[leads].running.log());
        let ids: Vec<i32> = (next..next + 500).collect();
        next += 500;
        let requests = Some(ids.iter().map(|id| request(*id)).collect());
        client
            .call(&Call::RequestResource { handle: Some(handle.clone()), requests })
            .await
            .unwrap();
        let release = Call::ReleaseResource { handle: Some(handle.clone()), ids: Some(ids) };
        client.call(&release).await.unwrap();
    }
    let status = instances[leads].status().await.unwrap();
    let in_sync = |standby: &serde_json::Value| standby["in_sync"] == true;
    let standbys = status["ha"]["standbys"].as_array().unwrap();
    assert!(!standbys.iter().any(in_sync), "{status}");
    // It copies everything again, and may take over then.
    instances[stands_by].signal("-CONT");
    assert_eq!(roles(&instances).await, (leads, stands_by));
}

/// Whatever arrives at the port for instances, the standby that copies there does not notice it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_at_the_port_for_instances_disturb_no_standby() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.ha.ack", "standby")];
    let instances = pair(&zookeeper, directory.path(), &settings).await;
    let (leads, stands_by) = roles(&instances).await;
    let (leader, standby) = (&instances[leads], &instances[stands_by]);
    let status = leader.status().await.unwrap();
    let door: SocketAddr = status["ha"]["instance"].as_str().unwrap().parse().unwrap();
    let name = status["ha"]["standbys"][0]["instance"].as_str().unwrap().to_owned();
    let mut client = connect(leader.running.thrift()).await;
    // More half-open connections than are allowed to wait, and all that stay open until the end.
    let mut open = Vec::new();
    for number in 0..1100_usize {
        let mut stranger = TcpStream::connect(door).await.unwrap();
        let opening: Vec<u8> = match number % 4 {
            // Nothing, a part of an opening, and a copy that is never asked for.
            0 => vec![],
            1 => b"CORONA-".to_vec(),
            2 => b"CORONA-COPY\n\x05\0".to_vec(),
            // A relay that does not finish its header.
            _ => b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec(),
        };
        // It may have been closed already.
        let _ = stranger.write_all(&opening).await;
        open.push(stranger);
    }
    // Connections that send nonsense, or too much, are closed and allocate nothing.
    let frame = |length: u32| {
        let mut bytes = b"CORONA-COPY\n".to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend([0xff; 64]);
        bytes
    };
    let header = |length: u16| {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        bytes.extend(length.to_be_bytes());
        bytes.extend([0x7f; 64]);
        bytes
    };
    let nonsense = [
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        frame(u32::MAX),
        frame(64),
        header(u16::MAX),
    ];
    for bytes in nonsense {
        let mut stranger = TcpStream::connect(door).await.unwrap();
        let _ = stranger.write_all(&bytes).await;
        let mut answer = Vec::new();
        let closed = timeout(PATIENCE, stranger.read_to_end(&mut answer)).await;
        assert!(closed.is_ok() && answer.is_empty(), "{bytes:?}: {closed:?}, {answer:?}");
    }
    // Replies wait for the standby, so it has stored these records.
    for number in 0..50 {
        let called = timeout(PATIENCE, start_session(&mut client, &format!("s{number}"))).await;
        assert!(called.is_ok(), "{}", leader.running.log());
    }
    let log = leader.running.log();
    assert_eq!(log.matches(&format!("Standby {name} connected")).count(), 1, "{log}");
    assert!(!log.contains(&format!("Standby {name} disconnected")), "{log}");
    drop(open);
    assert_eq!(standby.role().await.as_deref(), Some("standby"));
    let resident = resident_kib(leader.running.process_id());
    assert!(resident < 512 << 10, "{resident} KiB");
}

/// Both machines are lost and restarted in either order: one with a complete journal leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_instances_come_back_in_either_order() {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = [("corona.cm.ha.ack", "standby")];
    let mut instances = pair(&zookeeper, directory.path(), &settings).await;
    let mut expected = Vec::new();
    for led_first in [true, false] {
        let (led, stood_by) = roles(&instances).await;
        let name = format!("first {led_first}");
        start_session(&mut connect(instances[led].running.thrift()).await, &name).await;
        expected.push(name);
        expected.sort();
        instances[led].running.stop();
        instances[stood_by].running.stop();
        let (first, second) = if led_first { (led, stood_by) } else { (stood_by, led) };
        // The first one leads without the other: it has everything.
        start_again(&mut instances[first]).await;
        wait_for_role(&instances[first], "leader").await;
        assert_eq!(session_names(&instances[first]).await, expected);
        start_again(&mut instances[second]).await;
        assert_eq!(leader(&instances).await, first);
        assert_eq!(roles(&instances).await, (first, second));
    }
}
