//! Every call of every service and every kind of page of a closed cluster, with each role, without a
//! certificate, and without TLS: what the table of rights says, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use corona::access::rights::{self, Row};
use corona::access::{Identity, Role};
use corona::hadoop::io::Writer;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::object::{Class, Object};
use corona::hadoop::protocols;
use corona::hadoop::rpc::{Call, ConnectionHeader, MAGIC, Method, Protocol, User};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::several_machines::Machines;

/// The longest pause within a reply.
const QUIET: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);
const NOT_THIS_ROLE: &str = "may not do this";
/// Calls that close the connection of a member that may make them, if they have no arguments.
const CLOSING: [&str; 4] =
    ["grantResource", "revokeResource", "processDeadNode", "sessionHeartbeatV2"];
const NO_ACCESS: &str = "access to this cluster is needed";

/// The first bytes of each protocol, and the only reply to them that gives nothing.
const FIRST_BYTES: [(&[u8], &str); 5] = [
    (b"hrpc\x03", "HTTP/1.1 400 "),
    (b"\0\0\0\x04\x80\x01\0\x01", "HTTP/1.1 400 "),
    (b"\x80\x01\0\x01", "HTTP/1.1 400 "),
    (b"?", "HTTP/1.1 400 "),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 401 "),
];

/// One who calls.
enum Caller {
    Plain,
    /// Within TLS, without a certificate.
    Unknown(Arc<ClientConfig>),
    Member(Role, Box<Identity>),
}

/// How a reply is compared with a row.
type Check = fn(&Caller, &Row, &str);

trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

impl Caller {
    fn name(&self) -> String {
        match self {
            Caller::Plain => "plain".to_owned(),
            Caller::Unknown(_) => "unknown".to_owned(),
            Caller::Member(role, _) => role.to_string(),
        }
    }

    /// What a port replies to some bytes: all, or the beginning where the connection stays open.
    async fn asks(&self, port: u16, bytes: &[u8]) -> String {
        let asking = async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let mut stream: Box<dyn Connection> = match self {
                Caller::Plain => Box::new(stream),
                Caller::Unknown(config) => {
                    let name = ServerName::try_from("127.0.0.1").unwrap();
                    let connector = tokio_rustls::TlsConnector::from(config.clone());
                    Box::new(connector.connect(name, stream).await.unwrap())
                }
                Caller::Member(_, identity) => {
                    Box::new(identity.connect(stream, &Role::ALL).await.unwrap())
                }
            };
            // One that is not let in may have lost its connection.
            let _ = stream.write_all(bytes).await;
            let _ = stream.flush().await;
            let mut reply = Vec::new();
            if bytes.ends_with(b"\r\n\r\n") {
                let _ = stream.read_to_end(&mut reply).await;
            } else {
                // A reply has no end of its own that all protocols share: it is there once no more comes.
                let mut wait = PATIENCE;
                while let Ok(Ok(1..)) = timeout(wait, stream.read_buf(&mut reply)).await {
                    wait = QUIET;
                }
            }
            String::from_utf8_lossy(&reply).into_owned()
        };
        let text = || format!("{} at {port}: {}", self.name(), String::from_utf8_lossy(bytes));
        timeout(2 * PATIENCE, asking).await.unwrap_or_else(|_| panic!("no reply to {}", text()))
    }

    /// Whether a reply is the one that the row asks for.
    fn check(&self, row: &Row, reply: &str) {
        let text = || format!("{}: {} {}: {reply:?}", self.name(), row.of, row.name);
        match self {
            Caller::Plain => assert_eq!(reply, "", "{}", text()),
            Caller::Unknown(_) => {
                assert!(reply.is_empty() || reply.contains(NO_ACCESS), "{}", text());
            }
            Caller::Member(role, _) => {
                let is_refused = reply.contains(NOT_THIS_ROLE);
                assert!(!reply.is_empty() || CLOSING.contains(&row.name), "{}", text());
                assert_eq!(!is_refused, row.rights.allow(*role), "{}", text());
            }
        }
    }

    /// The same for a page.
    fn check_page(&self, row: &Row, reply: &str) {
        let text = || format!("{}: {} {}: {reply:?}", self.name(), row.of, row.name);
        let is_status = |status: &str| reply.starts_with(&format!("HTTP/1.1 {status} "));
        match self {
            // What it gives is given within TLS.
            Caller::Plain if row.name == rights::SESSION_PATH => {
                assert!(is_status("401"), "{}", text());
            }
            _ if row.rights.is_everybody() => assert!(!is_status("401"), "{}", text()),
            Caller::Plain | Caller::Unknown(_) => {
                let is_refused = row.of == "HEAD" || reply.contains(NO_ACCESS);
                assert!(is_status("401") && is_refused, "{}", text());
            }
            Caller::Member(role, _) => {
                let is_refused = is_status("403") && reply.contains(NOT_THIS_ROLE);
                assert!(reply.starts_with("HTTP/1.1 "), "{}", text());
                assert_eq!(!is_refused, row.rights.allow(*role), "{}", text());
            }
        }
    }
}

/// A call without arguments.
fn thrift(name: &str, is_framed: bool) -> Vec<u8> {
    let mut call = b"\x80\x01\0\x01".to_vec();
    call.extend((name.len() as u32).to_be_bytes());
    call.extend(name.as_bytes());
    call.extend(b"\0\0\0\x01\0");
    if is_framed {
        call.splice(..0, (call.len() as u32).to_be_bytes());
    }
    call
}

/// A call whose arguments are nulls and zeros.
fn hadoop(protocol: &Protocol, method: &Method) -> Vec<u8> {
    let parameters = method.parameters.iter().map(|class| match Class::parse(class).unwrap() {
        Class::Boolean => Object::Boolean(false),
        Class::Int => Object::Int(0),
        Class::Long => Object::Long(0),
        Class::Short => Object::Short(0),
        Class::String => Object::String("job_202601010000_1".to_owned()),
        Class::Array(items) => Object::Array(*items, vec![]),
        class => Object::Null(class),
    });
    let parameters = parameters.collect();
    let mut bytes = MAGIC.to_vec();
    let user = Some(User { name: "mallory".to_owned(), groups: vec![] });
    let mut add = |write: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new(1 << 20);
        write(&mut writer);
        let part = writer.finish().unwrap();
        bytes.extend((part.len() as u32).to_be_bytes());
        bytes.extend(part);
    };
    let header = ConnectionHeader { protocol: protocol.name.to_owned(), user };
    add(&|writer| header.encode(writer));
    let call = Call { id: 1, method: method.name.to_owned(), parameters };
    add(&|writer| call.encode(writer));
    bytes
}

fn http(method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Believes every server: what it shows is checked elsewhere.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn without_certificate() -> Caller {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    Caller::Unknown(Arc::new(builder.with_no_client_auth()))
}

fn member(world: &Machines, role: Role) -> Caller {
    let user: &[&str] = if role == Role::Submit { &["--user", "alice"] } else { &[] };
    let create = [&["access", "create", role.name(), "--dir", "head"], user].concat();
    let string = world.succeeds(&create);
    let name = format!("member-{role}");
    let mut enrol = world.command(&["access", "enrol", "-", "--directory", &name]);
    let mut enrol = enrol.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    enrol.stdin.take().unwrap().write_all(string.as_bytes()).unwrap();
    assert!(enrol.wait().unwrap().success());
    Caller::Member(role, Box::new(Identity::open(&world.path(&name)).unwrap()))
}

/// The ports at which a daemon listens; `None` if this user does not see them: the memory and the files of a daemon
/// with a key are hidden from all but root.
fn listening(pid: u32) -> Option<BTreeSet<u16>> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let sockets: BTreeSet<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let rows = rows.filter_map(|row| {
        let row: Vec<&str> = row.split_whitespace().collect();
        let is_listener = row.get(3) == Some(&"0A") && sockets.contains(*row.get(9)?);
        let port = row.get(1)?.rsplit(':').next()?;
        is_listener.then(|| u16::from_str_radix(port, 16).unwrap())
    });
    Some(rows.collect())
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_role_may_do_what_its_rows_say_and_nobody_else_anything() {
    let world = Machines::new();
    let head = world.first_head();
    let string = head.line("join");
    let node = world.node(1, &[&string]);
    let login = head.line("login");
    world.succeeds(&["login", &login]);
    world.until_nodes(1);
    let mut everybody = vec![Arc::new(Caller::Plain), Arc::new(without_certificate())];
    everybody.extend(Role::ALL.map(|role| Arc::new(member(&world, role))));

    let port = |number| world.base + number;
    let services = BTreeMap::from([
        ("ClusterManagerService", (port(8), true)),
        ("SessionDriverService", (port(3), false)),
        ("CoronaTaskTrackerService", (port(12), false)),
        ("CoronaProxyJobTrackerService", (port(4), true)),
    ]);
    let of_protocol = |name: &str| match name.rsplit('.').next().unwrap() {
        "InterTrackerProtocol" | "JobSubmissionProtocol" | "JobFiles" => Some(port(1)),
        "CoronaTaskTrackerProtocol" => Some(port(11)),
        "CoronaJobAggregator" | "ClusterManagerSafeModeProtocol" => Some(port(5)),
        // A job tracker on a node alone serves it, and there is none in a cluster of 'corona head'.
        "InterCoronaJobTrackerProtocol" => None,
        other => panic!("{other} is served at no port of this test"),
    };
    let known: Vec<&Protocol> =
        protocols::ALL.iter().copied().chain([&protocols::job_files::PROTOCOL]).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for who in &everybody {
            let mut asked = JoinSet::new();
            let mut ask = |row: &'static Row, port, bytes: Vec<u8>, check: Check| {
                let who = who.clone();
                asked.spawn(async move { check(&who, row, &who.asks(port, &bytes).await) });
            };
            for row in rights::THRIFT {
                let (port, is_framed) = services[row.of];
                ask(row, port, thrift(row.name, is_framed), Caller::check);
            }
            for row in rights::HADOOP {
                let Some(port) = of_protocol(row.of) else { continue };
                let protocol = known.iter().find(|protocol| protocol.name == row.of).unwrap();
                let methods = protocol.methods.iter();
                for method in methods.filter(|method| method.name == row.name) {
                    ask(row, port, hadoop(protocol, method), Caller::check);
                }
            }
            for row in rights::PAGES {
                let path = row.name.replace('*', "/no/such/page");
                for number in [9, 2, 6, 10] {
                    ask(row, port(number), http(row.of, &path), Caller::check_page);
                }
            }
            while let Some(checked) = asked.join_next().await {
                checked.unwrap();
            }
        }
        // Every port of every daemon is one of these, but for that of the tasks of a node on its own machine.
        let plain = &everybody[0];
        let mut scan = JoinSet::new();
        let daemons = [
            ("head", &["cluster-manager", "job-tracker", "proxy-job-tracker"][..]),
            ("node-1", &["node"]),
        ];
        for (directory, names) in daemons {
            for name in names {
                let block = world.base..world.base + 13;
                let open = listening(world.pid(directory, name)).unwrap_or_else(|| {
                    let is_open =
                        |port: &u16| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok();
                    block.clone().filter(is_open).collect()
                });
                let (in_block, others): (Vec<u16>, Vec<u16>) =
                    open.into_iter().partition(|port| block.contains(port));
                assert!(!in_block.is_empty(), "{name}");
                assert!(others.len() <= usize::from(*name == "node"), "{name}: {others:?}");
                for port in in_block {
                    for (bytes, status) in FIRST_BYTES {
                        let plain = plain.clone();
                        scan.spawn(async move {
                            let reply = plain.asks(port, bytes).await;
                            let is_nothing = reply.is_empty() || reply.starts_with(status);
                            assert!(is_nothing, "{port}: {reply}");
                        });
                    }
                }
            }
        }
        while let Some(scanned) = scan.join_next().await {
            scanned.unwrap();
        }
    });
    // A change of the cluster is noted with its author, and connections without TLS are counted.
    let admin =
        everybody.iter().find(|who| matches!(***who, Caller::Member(Role::Admin, _))).unwrap();
    let page = |path| runtime.block_on(admin.asks(port(9), &http("GET", path)));
    let audit = page(rights::AUDIT_PATH);
    let call = "ClusterManagerService killSessions: ";
    assert!(audit.lines().any(|line| line.contains(" admin ") && line.contains(call)), "{audit}");
    let of_readers = |line: &&str| line.contains(" read ") && !line.contains("become a member");
    assert_eq!(audit.lines().find(of_readers), None, "a refused call changes nothing");
    for path in ["/", "/conf", "/api/v1/status", "/metrics", "/access/audit?output=json"] {
        let (shown, secret) = (page(path), string.rsplit(':').next().unwrap());
        assert!(shown.starts_with("HTTP/1.1 200 ") && !shown.contains(secret), "{path}: {shown}");
    }
    let peers = page(rights::PEERS_PATH);
    let own = peers.lines().find_map(|line| line.strip_prefix("127.0.0.1 0 ")).unwrap();
    assert!(own.parse::<u32>().unwrap() > 0, "{peers}");
    let token = world.succeeds(&["open", "--token"]);
    assert_eq!(token.trim().split('/').nth(1), Some("submit"), "{token}");
    node.stop();
    head.stop();
}
