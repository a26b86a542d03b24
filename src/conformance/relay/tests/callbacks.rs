//! The relay between a cluster manager and session drivers.

use super::*;
use crate::samples::{message, word};
use corona_wire::Framing;
use corona_wire::Service;
use corona_wire::calls::ClusterManager;
use corona_wire::value::{Message, MessageKind, StreamReader, Value};

/// A session whose driver is at this host, which may be a name.
fn info_at(host: &str, port: u16) -> Value {
    let address = vec![("host", word(host)), ("port", Value::I32(i32::from(port)))];
    let address = Value::Struct(address);
    Value::Struct(vec![("address", address), ("name", word("n")), ("userId", word("u"))])
}

fn info(of: SocketAddr) -> Value {
    info_at(&of.ip().to_string(), of.port())
}

fn start(handle: &str, info: Value) -> Message {
    let body = vec![("handle", word(handle)), ("info", info)];
    message(MessageKind::Call, "sessionStart", body)
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(ClusterManager::schema(), Framing::Framed, &mut bytes).unwrap();
    bytes
}

async fn send(stream: &mut TcpStream, message: &Message) {
    stream.write_all(&bytes(message)).await.unwrap();
}

/// Listeners on loopback, and the channel that gets each of them.
fn listeners(
    host: Option<&str>,
    max_listeners: usize,
    is_own: fn(IpAddr) -> bool,
) -> (Arc<CallbackListeners>, mpsc::Receiver<Stand>) {
    let (stands, new_stands) = mpsc::channel(16);
    let rules = Rules {
        listen_on: Ipv4Addr::LOCALHOST.into(),
        host: host.map(Into::into),
        max_listeners,
        linger: Duration::from_secs(60),
        idle: Duration::from_secs(60),
    };
    let guard = Arc::new(Guard::new(None, None, is_own));
    (CallbackListeners::new(rules, guard, stands), new_stands)
}

async fn receive(stream: &mut TcpStream) -> Message {
    let mut reader = StreamReader::new(ClusterManager::schema(), Framing::Framed, 1 << 20);
    let mut byte = [0];
    loop {
        soon(stream.read_exact(&mut byte)).await.unwrap();
        reader.push(&byte);
        if let Some(message) = reader.next_message().unwrap() {
            return message;
        }
    }
}

/// The session driver's address in a message.
fn told(message: &Message, field: &str) -> SocketAddr {
    let address = message.body.as_ref().unwrap().field(field).unwrap().field("address").unwrap();
    let (Some(Value::String(host)), Some(Value::I32(port))) =
        (address.field("host"), address.field("port"))
    else {
        panic!("no address")
    };
    SocketAddr::new(host.parse().unwrap(), *port as u16)
}

#[tokio::test]
async fn callbacks_come_through_the_relay() {
    let (manager, upstream) = listener().await;
    let (driver, real) = listener().await;
    let relay = Running::start(upstream, |options| {
        options.relay_callbacks = true;
        options.listener_linger = Duration::from_millis(50);
    });
    let mut client = relay.connect().await;
    let (mut served, _) = soon(manager.accept()).await.unwrap();

    let start = |of| start("1.1", info(of));
    send(&mut client, &start(real)).await;
    let heard = receive(&mut served).await;
    let between = told(&heard, "info");
    assert_ne!(between, real);
    assert_eq!(heard, start(between), "nothing else has changed");

    // The manager calls back.
    let mut callback = TcpStream::connect(between).await.unwrap();
    callback.write_all(b"grant").await.unwrap();
    let (mut called, _) = soon(driver.accept()).await.unwrap();
    let mut grant = [0; 5];
    soon(called.read_exact(&mut grant)).await.unwrap();
    assert_eq!(&grant, b"grant");

    // The manager's reply has the address, and the client sees its own.
    let answer = |of| message(MessageKind::Reply, "getSessionInfo", vec![("success", info(of))]);
    send(&mut served, &answer(between)).await;
    assert_eq!(receive(&mut client).await, answer(real));
    let elsewhere = "127.0.0.1:9".parse().unwrap();
    send(&mut served, &answer(elsewhere)).await;
    assert_eq!(receive(&mut client).await, answer(elsewhere), "not an address of the relay");

    // The same driver has the same listener, and a session's news keep it.
    send(&mut client, &start(real)).await;
    assert_eq!(told(&receive(&mut served).await, "info"), between);
    let update = |of| {
        message(
            MessageKind::Call,
            "sessionUpdateInfo",
            vec![("handle", word("1.1")), ("info", info(of))],
        )
    };
    send(&mut client, &update(real)).await;
    assert_eq!(receive(&mut served).await, update(between));

    // When the session is over its listener closes, but calls in flight complete.
    let status = Value::Enum(3, None);
    let end =
        message(MessageKind::Call, "sessionEnd", vec![("handle", word("1.1")), ("status", status)]);
    send(&mut client, &end).await;
    receive(&mut served).await;
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(between).await.is_ok() {
        assert!(Instant::now() < deadline, "the listener is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    called.write_all(b"done").await.unwrap();
    soon(callback.read_exact(&mut [0; 4])).await.unwrap();

    drop((client, served, callback, called));
    let (_, disk) = relay.end().await;
    let traffic = disk.traffic();
    let callback = traffic
        .capture
        .connections
        .iter()
        .position(|connection| {
            connection.opening.server == real
                && connection.accepted
                && !connection.events.is_empty()
        })
        .expect("the callback is recorded with the driver's own address");
    let id = traffic.capture.connections[callback].id;
    assert_eq!(traffic.services.get(&id), Some(&Offered::SessionDriver));
    assert_eq!(story(&traffic, callback)[0], (Side::Client, data(b"grant")));
    // The recording has the client's view of the messages.
    let conversations = traffic.conversations(&Default::default());
    let said: Vec<&Message> = conversations[0].messages().map(|(_, message)| message).collect();
    assert_eq!(*said[0], start(real));
    assert_eq!(*said[1], answer(real));
}

#[tokio::test]
async fn listeners_are_bounded_and_the_stalest_goes() {
    let (callbacks, mut new_stands) = listeners(Some("relay"), 2, guard::is_own_address);
    let own = Ipv4Addr::LOCALHOST.into();
    let mut transforms = callbacks.transforms(own, own);
    let client = transforms.from_client.as_mut().unwrap();
    let mut start = |handle: &str, port: u16| {
        let bytes = bytes(&start(handle, info((Ipv4Addr::LOCALHOST, port).into())));
        let mut sent = Vec::new();
        client.pass(&bytes, &mut sent);
        assert_ne!(sent, bytes);
    };
    start("a", 1);
    start("b", 2);
    start("a", 1);
    start("c", 3);
    assert_eq!(callbacks.listeners(), 2);
    let mut open = Vec::new();
    while let Ok(mut stand) = new_stands.try_recv() {
        // A dropped sender closes the listener.
        let is_open = stand.open.has_changed().is_ok();
        stand.open.mark_unchanged();
        open.push((stand.driver.port, is_open));
    }
    assert_eq!(open, [(1, true), (2, false), (3, true)]);
}

#[tokio::test]
async fn a_host_with_many_drivers_loses_its_own_listeners() {
    let (callbacks, mut new_stands) = listeners(None, 3, |_| false);
    let start = |host: [u8; 4], port: u16| {
        let mut transforms = callbacks.transforms(Ipv4Addr::LOCALHOST.into(), host.into());
        let bytes = bytes(&start("h", info((host, port).into())));
        transforms.from_client.as_mut().unwrap().pass(&bytes, &mut Vec::new());
    };
    start([127, 0, 0, 2], 1);
    (10..20).for_each(|port| start([127, 0, 0, 3], port));
    let mut open = Vec::new();
    while let Ok(stand) = new_stands.try_recv() {
        if stand.open.has_changed().is_ok() {
            open.push(stand.driver.port);
        }
    }
    assert_eq!(open, [1, 18, 19]);
}

/// Three hosts, of which each has an address of loopback: the cluster manager's and the relay's, that
/// of a job tracker, and an attacker's.
#[tokio::test]
async fn a_listener_is_for_the_cluster_manager_and_leads_to_the_sessions_own_host() {
    const INNOCENT: [u8; 4] = [127, 0, 0, 2];
    const ATTACKER: [u8; 4] = [127, 0, 0, 3];
    let connect = async |from: [u8; 4], to: SocketAddr| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        soon(socket.connect(to)).await.unwrap()
    };
    let (manager, upstream) = listener().await;
    let driver = TcpListener::bind(SocketAddr::from((INNOCENT, 0))).await.unwrap();
    let (internal, of_relay) = listener().await;
    let relay = Running::start(upstream, |options| {
        options.relay_callbacks = true;
        options.is_own_address = |_| false;
    });
    let mut innocent = connect(INNOCENT, relay.address).await;
    let (mut of_innocent, _) = soon(manager.accept()).await.unwrap();
    let mut attacker = connect(ATTACKER, relay.address).await;
    let (mut of_attacker, _) = soon(manager.accept()).await.unwrap();

    let real = driver.local_addr().unwrap();
    send(&mut innocent, &start("1.1", info_at("127.0.0.2", real.port()))).await;
    let between = told(&receive(&mut of_innocent).await, "info");
    assert_ne!(between, real);

    // Nothing is opened for a driver on another host; the manager learns the address as it is.
    for (host, port) in [("127.0.0.1", of_relay.port()), ("127.0.0.2", real.port())] {
        let call = start("1.2", info_at(host, port));
        send(&mut attacker, &call).await;
        assert_eq!(receive(&mut of_attacker).await, call);
    }
    // A name shows where it leads when the manager calls back.
    send(&mut attacker, &start("1.3", info_at("localhost", of_relay.port()))).await;
    let named = told(&receive(&mut of_attacker).await, "info");
    let mut callback = TcpStream::connect(named).await.unwrap();
    assert!(!matches!(soon(callback.read(&mut [0])).await, Ok(1..)), "it leads nowhere");
    // Nor does it lead to the right host if another peer calls.
    for from in [ATTACKER, INNOCENT] {
        let mut callback = connect(from, between).await;
        let _ = callback.write_all(b"spy").await;
        assert!(!matches!(soon(callback.read(&mut [0])).await, Ok(1..)));
    }

    // The manager's own callbacks arrive all the while, and they alone.
    let mut callback = TcpStream::connect(between).await.unwrap();
    callback.write_all(b"grant").await.unwrap();
    let (mut called, _) = soon(driver.accept()).await.unwrap();
    let mut grant = [0; 5];
    soon(called.read_exact(&mut grant)).await.unwrap();
    assert_eq!(&grant, b"grant");
    let nobody = Duration::from_millis(50);
    for listener in [&internal, &driver] {
        assert!(tokio::time::timeout(nobody, listener.accept()).await.is_err());
    }
    relay.end().await;
}
