//! Strings, the authority, and both ends of connections.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::string::hex;
use crate::table::Table;

fn now() -> SystemTime {
    SystemTime::now()
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 3600)
}

fn new_grant(role: Role) -> NewGrant {
    let user = (role == Role::Submit).then(|| "alice".to_owned());
    NewGrant { role, user, valid_secs: None, uses: None }
}

/// A string as it is handed over.
fn example() -> String {
    format!("corona1:submit:head.example:8021:{}:{}", "ab".repeat(32), "cd".repeat(32))
}

#[test]
fn a_string_comes_back_and_its_secret_is_not_shown() {
    for (host, port) in [("head.example", 8021), ("10.0.0.1", 1), ("2001:db8::1", 65535)] {
        let mut string: AccessString = example().parse().unwrap();
        (string.host, string.port) = (host.to_owned(), port);
        let text = string.to_string();
        assert_eq!(text.parse::<AccessString>().unwrap(), string, "{text}");
        assert!(!format!("{string:?}").contains("cdcd"), "{string:?}");
    }
}

#[test]
fn a_wrong_string_says_what_is_wrong() {
    let whole = example();
    let without = |from: &str, to: &str| whole.replacen(from, to, 1);
    let cases = [
        (String::new(), "not an access string"),
        ("hello".into(), "not an access string"),
        ("corona:submit".into(), "not an access string"),
        (without("corona1", "corona2"), "has the form \"corona2\""),
        ("corona1".into(), "the role is missing"),
        ("corona1:node".into(), "the address is missing"),
        ("corona1:node:host".into(), "the port is missing"),
        ("corona1:node:host:80".into(), "the hash of the CA is missing"),
        (format!("corona1:node:host:80:{}", "ab".repeat(32)), "the secret is missing"),
        (whole[..whole.len() - 3].into(), "the end of the secret is missing"),
        (without("submit", "root"), "unknown role \"root\""),
        (without("8021", "0"), "illegal address \"head.example:0\""),
        (without("8021", "80210"), "illegal address"),
        (without("head.example", "he ad"), "illegal address"),
        (without("head.example", "[::zz]"), "illegal address"),
        (without("head.example", "[::1"), "the port is missing"),
        (without("abab", "xbab"), "damaged hash"),
        (without("cdcd", "xdcd"), "damaged secret"),
        ("corona1:".repeat(1000), "longer than"),
    ];
    for (text, expected) in cases {
        let error = text.parse::<AccessString>().unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        assert!(!error.contains("cdcd"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader_of_strings(text in any::<String>(), cut in 0usize..200) {
        let _ = text.parse::<AccessString>();
        let _ = format!("corona1:{text}").parse::<AccessString>();
        let whole = example();
        let part = &whole[..cut.min(whole.len())];
        prop_assert_eq!(part.parse::<AccessString>().is_ok(), part == whole);
    }
}

/// A cluster with a daemon of its head that answers every member's byte with the byte.
struct Head {
    directory: TempDir,
    authority: Arc<Authority>,
    gate: Arc<Gate>,
    address: SocketAddr,
}

impl Head {
    async fn start(mode: TlsMode) -> Head {
        Head::start_at(mode, now(), &[]).await
    }

    /// A head whose own certificate was issued at this time.
    async fn start_at(mode: TlsMode, issued: SystemTime, plain: &[&str]) -> Head {
        let directory = TempDir::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let authority = Authority::create(&directory.path().join("ca"), issued).unwrap();
        let authority = Arc::new(authority);
        let (own, hosts) = (directory.path().join("own"), ["127.0.0.1".to_owned()]);
        let at = ("127.0.0.1", address.port());
        let own = Identity::own(&own, &authority, "head", at, &hosts, issued).unwrap();
        let plain_networks = plain.join(",").parse().unwrap();
        let settings = TlsSettings { mode, plain_networks, ..TlsSettings::default() };
        let own = Some(Arc::new(own));
        let gate = Gate::new(settings, own, Some(authority.clone())).unwrap();
        tokio::spawn(echo(listener, gate.clone()));
        Head { directory, authority, gate, address }
    }

    fn grant(&self, new: &NewGrant) -> (GrantId, AccessString) {
        self.authority.grant(new, ("127.0.0.1", self.address.port()), now()).unwrap()
    }

    async fn enrol(
        &self,
        name: &str,
        string: &AccessString,
    ) -> Result<Arc<Identity>, IdentityError> {
        Identity::enrol(&self.path(name), string, name, &[]).await.map(Arc::new)
    }

    async fn member(&self, name: &str, role: Role) -> Arc<Identity> {
        let (_, string) = self.grant(&new_grant(role));
        self.enrol(name, &string).await.unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// What the daemon replies to a member.
    async fn reply(&self, member: &Identity) -> std::io::Result<String> {
        let mut stream = member.connect(self.connect().await, &[Role::Admin]).await?;
        exchange(&mut stream).await
    }
}

async fn exchange(stream: &mut Stream) -> std::io::Result<String> {
    stream.write_all(b"x").await?;
    stream.flush().await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    Ok(reply)
}

/// Replies to a byte with what is known about the peer.
async fn echo(listener: TcpListener, gate: Arc<Gate>) {
    loop {
        let (stream, address) = listener.accept().await.unwrap();
        let gate = gate.clone();
        tokio::spawn(async move {
            let Ok((mut stream, peer)) = gate.admit(stream, address, false).await else { return };
            let mut byte = [0];
            if stream.read_exact(&mut byte).await.is_ok() {
                let known = peer.identified().map_or("plain".to_owned(), ToString::to_string);
                let allowed = peer.objection(|| Rights::SUBMIT).unwrap_or("may submit".to_owned());
                let _ = stream.write_all(format!("{known}: {allowed}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
    }
}

#[tokio::test]
async fn members_are_known_by_role_user_and_access_string() {
    let head = Head::start(TlsMode::Require).await;
    for (role, expected) in [
        (Role::Admin, "may submit"),
        (Role::Node, "the role node may not do this"),
        (Role::Submit, "may submit"),
        (Role::Read, "the role read may not do this"),
    ] {
        let (id, string) = head.grant(&new_grant(role));
        let name = format!("{role}-1");
        let member = head.enrol(&name, &string).await.unwrap();
        let known = if role == Role::Submit { "alice" } else { &*name };
        let expected = format!("{role} {known} (access {id}): {expected}");
        assert_eq!(head.reply(&member).await.unwrap(), expected);
        // It is kept.
        let again = Identity::open(&head.path(&name)).unwrap();
        assert_eq!(head.reply(&again).await.unwrap(), expected);
        assert_eq!(again.head(), ("127.0.0.1".to_owned(), head.address.port()));
    }
}

#[tokio::test]
async fn keys_and_secrets_are_for_their_owner_and_secrets_are_kept_as_hashes() {
    use std::os::unix::fs::PermissionsExt;

    let head = Head::start(TlsMode::Require).await;
    let (_, string) = head.grant(&new_grant(Role::Node));
    head.enrol("node", &string).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for directory in ["ca", "own", "node"].map(|name| head.path(name)) {
        assert_eq!(mode(&directory), 0o700);
        for file in std::fs::read_dir(&directory).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
    }
    let table = std::fs::read_to_string(head.path("ca").join("access.json")).unwrap();
    assert!(table.contains(&string.secret.hash()) && !table.contains(&string.secret.expose()));
    let key = head.path("node").join("key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Identity::open(&head.path("node")).unwrap_err().to_string();
    assert!(error.contains("others may read") && error.contains("chmod 600"), "{error}");
}

#[tokio::test]
async fn strings_that_give_no_access_are_refused_with_the_reason() {
    let (head, other) = tokio::join!(Head::start(TlsMode::Require), Head::start(TlsMode::Require));
    let (revoked_id, revoked) = head.grant(&new_grant(Role::Node));
    head.authority.revoke(revoked_id).unwrap();
    let (_, expired) = head.grant(&NewGrant { valid_secs: Some(0), ..new_grant(Role::Node) });
    let (_, once) = head.grant(&NewGrant { uses: Some(1), ..new_grant(Role::Node) });
    head.enrol("first", &once).await.unwrap();
    let (rotated_id, rotated) = head.grant(&new_grant(Role::Node));
    let fresh = head.authority.rotate(rotated_id, ("127.0.0.1", head.address.port())).unwrap();
    head.enrol("rotated", &fresh).await.unwrap();
    let (_, mut foreign) = other.grant(&new_grant(Role::Node));
    foreign.port = head.address.port();
    for (string, expected) in [
        (revoked, "has been revoked"),
        (expired, "has expired"),
        (once, "as often as it may be"),
        (rotated, "is unknown here"),
        (foreign, "is of another cluster"),
    ] {
        let error = head.enrol("refused", &string).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert!(!error.contains(&string.secret.expose()), "{error}");
    }
    head.member("innocent", Role::Node).await;
}

#[tokio::test]
async fn a_member_of_another_cluster_is_refused_on_both_sides() {
    let (head, other) = tokio::join!(Head::start(TlsMode::Allow), Head::start(TlsMode::Allow));
    let (innocent, foreign) =
        tokio::join!(head.member("mine", Role::Submit), other.member("theirs", Role::Submit));
    let error = head.reply(&foreign).await.unwrap_err().to_string();
    assert!(error.contains("is of another cluster"), "{error}");
    // One that does not check the server.
    let config = Arc::new(client(&head, &foreign));
    let connected = identity::handshake(config, head.connect().await).await;
    let error = match connected {
        // With TLS 1.3 the refusal arrives after the handshake.
        Ok(mut stream) => {
            let read = stream.read_u8().await.unwrap_err();
            verify::explain(&read)
        }
        Err(error) => error.to_string(),
    };
    assert!(error.contains("does not accept our certificate"), "{error}");
    assert!(head.reply(&innocent).await.unwrap().contains("alice"));
}

/// Trusts the head, and shows the certificate of this member.
fn client(head: &Head, member: &Identity) -> rustls::ClientConfig {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let file = |name: &str| member.directory().join(name);
    let chain = vec![CertificateDer::from_pem_file(file("certificate.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let trust = verify::Trust::Authority(head.authority.certificate().clone());
    verify::client(trust, (chain, key), None).unwrap()
}

#[tokio::test]
async fn a_wrong_clock_is_named() {
    for (issued, expected) in [
        (now() - days(40), "has expired, or one of the two clocks is wrong"),
        (now() + days(2), "not valid yet: one of the two clocks is wrong"),
    ] {
        let head = Head::start_at(TlsMode::Require, issued, &[]).await;
        let (_, string) = head.grant(&new_grant(Role::Node));
        let error = head.enrol("node", &string).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn revoked_members_lose_their_access_at_once() {
    let head = Head::start(TlsMode::Require).await;
    let admin = head.member("admin", Role::Admin).await;
    let (id, string) = head.grant(&new_grant(Role::Submit));
    let (submit, innocent) = (
        head.enrol("a", &string).await.unwrap(),
        head.enrol("b", &head.grant(&new_grant(Role::Submit)).1).await.unwrap(),
    );
    // After a renewal of the daemon's own certificate as before.
    head.gate.identity().unwrap().reload().unwrap();
    // A connection that is open already.
    let mut open = submit.connect(head.connect().await, &[Role::Admin]).await.unwrap();
    tokio::io::AsyncWriteExt::flush(&mut open).await.unwrap();
    admin.revoke(id).await.unwrap();
    // It was admitted before or after; either way it may do nothing.
    if let Ok(reply) = exchange(&mut open).await {
        assert!(reply.is_empty() || reply.contains("has been revoked"), "{reply}");
    }
    let error = head.reply(&submit).await.unwrap_err();
    assert!(error.to_string().contains("our access to this cluster has been revoked"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(head.reply(&innocent).await.unwrap().ends_with("may submit"));
    let error = submit.one_time_code("127.0.0.1", head.address.port()).await.unwrap_err();
    assert!(error.to_string().contains("has been revoked"), "{error}");
    assert!(head.authority.list().unwrap().iter().any(|entry| entry.id == id && entry.revoked));
}

#[tokio::test]
async fn administrators_alone_give_access_over_the_network() {
    let head = Head::start(TlsMode::Require).await;
    let admin = head.member("admin", Role::Admin).await;
    let (id, string) = admin.grant(new_grant(Role::Submit)).await.unwrap();
    assert_eq!((&*string.host, string.port), ("127.0.0.1", head.address.port()));
    let submit = head.enrol("alice", &string).await.unwrap();
    let again = admin.rotate(id).await.unwrap();
    assert_ne!(again.secret, string.secret);
    assert!(!head.authority.accepts(&string, now()).unwrap());
    assert!(head.authority.accepts(&again, now()).unwrap());
    let listed = admin.list().await.unwrap();
    assert_eq!(listed.iter().filter(|entry| !entry.own).count(), 2);
    let refused = [
        submit.grant(new_grant(Role::Admin)).await.map(drop),
        submit.list().await.map(drop),
        submit.revoke(id).await,
        submit.rotate(id).await.map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("the role submit may not do this"), "{error}");
    }
    for (new, expected) in [
        (NewGrant { user: None, ..new_grant(Role::Submit) }, "needs the name of a user"),
        (NewGrant { user: Some("a".into()), ..new_grant(Role::Node) }, "names a user"),
        (NewGrant { user: Some("a/b".into()), ..new_grant(Role::Submit) }, "cannot be in"),
    ] {
        let error = admin.grant(new).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn certificates_are_renewed_for_the_same_key_until_access_is_revoked() {
    let head = Head::start(TlsMode::Require).await;
    let (id, string) = head.grant(&NewGrant { uses: Some(2), ..new_grant(Role::Submit) });
    let member = head.enrol("alice", &string).await.unwrap();
    let other = head.enrol("other", &string).await.unwrap();
    let certificate = || std::fs::read(head.path("alice").join("certificate.pem")).unwrap();
    let first = certificate();
    assert!(!member.renew_if_due(now() + days(19)).await.unwrap());
    assert!(member.renew_if_due(now() + days(21)).await.unwrap());
    assert_ne!(certificate(), first);
    assert!(head.reply(&member).await.unwrap().contains("alice"));
    head.authority.revoke(id).unwrap();
    let error = other.renew_if_due(now() + days(21)).await.unwrap_err().to_string();
    assert!(error.contains("has been revoked"), "{error}");
}

#[tokio::test]
async fn plain_peers_are_served_counted_or_refused() {
    for (mode, networks, served) in [
        (TlsMode::Allow, &[][..], true),
        (TlsMode::Require, &[][..], false),
        (TlsMode::Require, &["10.0.0.0/8"][..], false),
        (TlsMode::Require, &["127.0.0.0/8"][..], true),
    ] {
        let head = Head::start_at(mode, now(), networks).await;
        let member = head.member("member", Role::Submit).await;
        let mut plain = Stream::from(head.connect().await);
        let reply = exchange(&mut plain).await.unwrap_or_default();
        assert_eq!(reply, if served { "plain: may submit" } else { "" }, "{mode} {networks:?}");
        let (counts, others) = head.gate.plain_peers().counts();
        let counted = PlainPeer { served: served.into(), refused: (!served).into() };
        assert_eq!(counts, [("127.0.0.1".parse().unwrap(), counted)], "{mode} {networks:?}");
        assert_eq!(others, PlainPeer::default());
        assert!(head.reply(&member).await.unwrap().contains("alice"));
    }
}

#[tokio::test]
async fn a_peer_that_sends_one_byte_or_none_or_rubbish_is_refused_and_delays_nobody() {
    let head = Head::start(TlsMode::Require).await;
    let member = head.member("member", Role::Submit).await;
    let silent = head.connect().await;
    let mut one_byte = head.connect().await;
    one_byte.write_all(&[gate::TLS_FIRST_BYTE]).await.unwrap();
    // A record that is longer than TLS allows, and a hello that never ends.
    let mut long = head.connect().await;
    long.write_all(&[0x16, 3, 1, 0xff, 0xff]).await.unwrap();
    let mut endless = head.connect().await;
    let record = [&[0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 0x4000 - 4]].concat();
    let _ = endless.write_all(&record.repeat(8)).await;
    for mut refused in [long, endless] {
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(60), refused.read_to_end(&mut rest))
            .await
            .expect("refused at once");
    }
    assert!(head.reply(&member).await.unwrap().contains("alice"));
    tokio::time::pause();
    for mut waiting in [silent, one_byte] {
        let mut rest = Vec::new();
        let _ = waiting.read_to_end(&mut rest).await;
    }
}

#[tokio::test]
async fn tls_on_a_plain_port_says_so() {
    let head = Head::start(TlsMode::Require).await;
    let member = head.member("member", Role::Submit).await;
    // As a plain service does with bytes that are not a message of it: closes, or replies.
    for reply in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 16];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(reply).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let plain = TcpStream::connect(address).await.unwrap();
        let error = member.connect(plain, &[Role::Admin]).await.unwrap_err();
        assert!(error.to_string().contains("not speak TLS"), "{error}");
        let is_reply = error.kind() == std::io::ErrorKind::Unsupported;
        assert_eq!(is_reply, !reply.is_empty(), "{error}");
        serving.await.unwrap();
    }
}

/// A plain server with a reply to an `x`, and one to everything else. Returns its address and how many connections
/// it has accepted.
async fn plain_server(to_others: &'static [u8]) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicU32::new(0));
    let counted = accepted.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            let reply = if byte == *b"x" { b"served" } else { to_others };
            stream.write_all(reply).await.unwrap();
        }
    });
    (address, accepted)
}

fn dialer(mode: TlsMode, identity: &Arc<Identity>) -> dialer::Dialer {
    let settings = TlsSettings { mode, ..TlsSettings::default() };
    dialer::Dialer::new(settings, identity.clone(), identity::Keeper::Gate)
}

#[tokio::test]
async fn a_peer_that_replies_without_tls_is_called_without_it_where_that_is_allowed() {
    let head = Head::start(TlsMode::Require).await;
    let identity = Arc::new(head.member("member", Role::Node).await);
    for mode in [TlsMode::Allow, TlsMode::Require] {
        let (address, accepted) = plain_server(NO_TLS).await;
        let dialer = dialer(mode, &identity);
        for _ in 0..2 {
            let stream = TcpStream::connect(address).await.unwrap();
            match dialer.dial(rights::HTTP, stream).await {
                Ok(mut stream) if mode == TlsMode::Allow => {
                    assert_eq!(exchange(&mut stream).await.unwrap(), "served");
                }
                Err(error) if mode == TlsMode::Require => {
                    assert!(error.to_string().contains("not speak TLS"), "{error}");
                }
                other => panic!("{mode}: {other:?}"),
            }
        }
        // It is asked for TLS once, and called without it from then on.
        let expected = if mode == TlsMode::Allow { 3 } else { 2 };
        assert_eq!(accepted.load(SeqCst), expected, "{mode}");
        // One that speaks TLS is called within it.
        let stream = dialer.dial(rights::HTTP, head.connect().await).await.unwrap();
        assert!(stream.is_tls(), "{mode}");
    }
}

#[tokio::test]
async fn a_peer_that_closes_the_connection_is_never_called_without_tls() {
    let head = Head::start(TlsMode::Require).await;
    let identity = Arc::new(head.member("member", Role::Node).await);
    let (address, accepted) = plain_server(b"").await;
    let dialer = dialer(TlsMode::Allow, &identity);
    for calls in 1..3 {
        let stream = TcpStream::connect(address).await.unwrap();
        let error = dialer.dial(rights::HTTP, stream).await.unwrap_err().to_string();
        assert!(error.contains("it may not speak TLS"), "{error}");
        assert_eq!(accepted.load(SeqCst), calls);
    }
}

#[tokio::test]
async fn a_peer_that_has_spoken_tls_is_never_called_without_it() {
    let head = Head::start(TlsMode::Require).await;
    let identity = Arc::new(head.member("member", Role::Node).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dialer = dialer(TlsMode::Allow, &identity);
    let (dialed, admitted) = tokio::join!(
        async { dialer.dial(rights::HTTP, TcpStream::connect(address).await.unwrap()).await },
        async {
            let (stream, from) = listener.accept().await.unwrap();
            head.gate.admit(stream, from, true).await
        }
    );
    assert!(dialed.unwrap().is_tls() && admitted.is_ok());
    let (dialed, ()) = tokio::join!(
        async { dialer.dial(rights::HTTP, TcpStream::connect(address).await.unwrap()).await },
        async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            stream.write_all(NO_TLS).await.unwrap();
        }
    );
    assert!(dialed.unwrap_err().to_string().contains("not speak TLS"));
}

#[tokio::test]
async fn a_server_with_another_role_is_not_taken_for_the_head() {
    let head = Head::start(TlsMode::Require).await;
    let (impostor, member) =
        tokio::join!(head.member("mallory", Role::Submit), head.member("node", Role::Node));
    let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
    let gate = Gate::new(settings, Some(impostor), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(echo(listener, gate));
    let connect = || TcpStream::connect(address);
    let error = member.connect(connect().await.unwrap(), &[Role::Admin]).await.unwrap_err();
    assert!(error.to_string().contains("the server is a submit"), "{error}");
    let mut session = member.connect(connect().await.unwrap(), &[Role::Submit]).await.unwrap();
    assert!(exchange(&mut session).await.unwrap().starts_with("node node"));
    // It is asked for nothing either.
    let at = ("127.0.0.1", address.port());
    let error = member.ask_at::<()>(at, &[Role::Admin], &enrol::Request::List).await.unwrap_err();
    assert!(error.to_string().contains("the server is a submit"), "{error}");
}

/// Ends each handshake of [`verify::ACCESS_PROTOCOL`] as this member, and sends what it gets.
async fn eavesdrop(impostor: &Identity) -> (SocketAddr, tokio::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(impostor.access_server());
    let (heard, hearing) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut got = vec![];
            let _ = stream.read_buf(&mut got).await;
            if !got.is_empty() {
                // All that has been revoked, for a request that asks that.
                let _ = stream.write_all(b"{\"ok\":[]}\n").await;
                let _ = stream.shutdown().await;
            }
            heard.send(got).await.unwrap();
        }
    });
    (address, hearing)
}

#[tokio::test]
async fn a_member_that_answers_in_place_of_the_head_gets_no_secret_and_is_not_believed() {
    let head = Head::start(TlsMode::Require).await;
    for role in [Role::Read, Role::Submit, Role::Node] {
        let impostor = head.member(&format!("mallory-{role}"), role).await;
        let (address, mut heard) = eavesdrop(&impostor).await;
        let (_, mut string) = head.grant(&new_grant(Role::Admin));
        string.port = address.port();
        let error = head.enrol("refused", &string).await.unwrap_err().to_string();
        assert!(error.contains(&format!("the server is a {role}")), "{error}");
        assert_eq!(heard.recv().await.unwrap(), b"", "no secret");
        // Of a member that has a certificate.
        let about = head.path(&format!("misled-{role}")).join("identity.json");
        let member = head.member(&format!("misled-{role}"), Role::Admin).await;
        member.learn(&[GrantId::HEAD]).unwrap();
        let text = std::fs::read_to_string(&about).unwrap();
        let from = format!("\"port\": {}", head.address.port());
        let to = format!("\"port\": {}", address.port());
        std::fs::write(&about, text.replace(&from, &to)).unwrap();
        member.reload().unwrap();
        assert!(member.refresh_revoked().await.is_err());
        assert!(member.revoked().contains(GrantId::HEAD), "as before");
        assert!(member.grant(new_grant(Role::Node)).await.is_err());
        assert!(member.renew_if_due(now() + days(21)).await.is_err());
        for _ in 0..3 {
            assert_eq!(heard.recv().await.unwrap(), b"", "no request");
        }
    }
}

#[test]
fn a_service_is_believed_to_servers_of_its_roles_only() {
    use Role::{Admin, Node, Read, Submit};

    let services = rights::THRIFT.iter().chain(rights::HADOOP).map(|row| row.of);
    let services: std::collections::BTreeSet<&str> =
        services.chain([rights::HTTP, rights::INSTANCE, "New"]).collect();
    for service in services {
        for caller in Role::ALL {
            let expected: &[Role] = match (service.rsplit('.').next().unwrap(), caller) {
                ("SessionDriverService", _) => &[Admin, Node, Submit],
                ("JobSubmissionProtocol", Admin | Node) => &[Admin, Node],
                ("JobSubmissionProtocol" | "JobFiles" | "Instance", _)
                | ("ClusterManagerService" | "CoronaProxyJobTrackerService", _)
                | ("CoronaJobAggregator" | "ClusterManagerSafeModeProtocol", _) => &[Admin],
                _ => &[Admin, Node],
            };
            let believed = rights::servers(service, caller);
            let believed: Vec<Role> =
                Role::ALL.into_iter().filter(|role| believed.contains(role)).collect();
            assert_eq!(believed, expected, "{service}, called by {caller}");
            assert!(!believed.contains(&Read));
        }
    }
}

#[tokio::test]
async fn every_connection_shows_its_certificate_anew() {
    let head = Head::start(TlsMode::Require).await;
    let member = head.member("member", Role::Submit).await;
    // A client that would resume.
    let mut config = client(&head, &member);
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    for _ in 0..3 {
        let mut stream = identity::handshake(config.clone(), head.connect().await).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.contains("alice"), "{reply}");
        let kind = stream.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::Full));
        assert_eq!(stream.get_ref().1.tls13_tickets_received(), 0);
    }
    assert!(head.reply(&member).await.unwrap().contains("alice"));
}

#[tokio::test]
async fn a_peer_without_a_certificate_is_let_in_to_pages_only() {
    let head = Head::start(TlsMode::Require).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let roots = rustls::ClientConfig::builder_with_provider(verify::provider());
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(head.authority.certificate().clone()).unwrap();
    let roots = roots.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let browser = Arc::new(roots.with_root_certificates(trusted).with_no_client_auth());
    for pages in [true, false] {
        let connecting = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = rustls::pki_types::ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
            let mut stream =
                tokio_rustls::TlsConnector::from(browser.clone()).connect(name, stream).await?;
            stream.read_to_end(&mut vec![]).await
        };
        let admitting = async {
            let (stream, peer) = listener.accept().await.unwrap();
            head.gate.admit(stream, peer, pages).await.map(|(_, peer)| peer)
        };
        let (_, admitted) = tokio::join!(connecting, admitting);
        match (pages, admitted) {
            (true, Ok(peer)) => {
                assert!(peer.is_tls());
                assert_eq!(peer.objection(|| Rights::EVERYBODY), None);
                assert!(peer.objection(|| Rights::MEMBERS).unwrap().contains("access"));
            }
            (false, Err(refused)) => {
                assert!(refused.to_string().contains("shows no certificate"), "{refused}");
            }
            (_, admitted) => panic!("{admitted:?}"),
        }
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_renewed_does_not_keep_revocations_away() {
    let head = Head::start(TlsMode::Require).await;
    let about = head.path("node").join("identity.json");
    head.member("node", Role::Node).await;
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&about).unwrap()).unwrap();
    value["renew_at"] = 0.into();
    std::fs::write(&about, value.to_string()).unwrap();
    let identity = Arc::new(Identity::open(&head.path("node")).unwrap());
    let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
    let gate = Gate::new(settings, Some(identity.clone()), None).unwrap();
    let (revoked, _) = head.grant(&new_grant(Role::Submit));
    head.authority.revoke(revoked).unwrap();
    std::fs::remove_dir_all(head.path("node")).unwrap();
    let error = gate.maintain_once(&identity).await.unwrap_err();
    assert!(error.contains("cannot use"), "{error}");
    assert!(identity.revoked().contains(revoked));
}

#[test]
fn observers_and_users_are_who_their_certificate_names() {
    let user = |role: Role| {
        let grant = GrantId::HEAD;
        Identified { role, name: "root".to_owned(), grant }.own_user()
    };
    assert_eq!(user(Role::Submit).as_deref(), Some("root"));
    assert_eq!(user(Role::Read).as_deref(), Some("read:root"), "no account");
    assert_eq!((user(Role::Node), user(Role::Admin)), (None, None), "they act for all users");
}

#[tokio::test]
async fn browsers_get_a_session_for_a_code() {
    let head = Head::start(TlsMode::Require).await;
    let member = head.member("member", Role::Submit).await;
    let ticket = member.one_time_code("127.0.0.1", head.address.port()).await.unwrap();
    let session = head.gate.redeem(&ticket.value).unwrap();
    assert_eq!(head.gate.redeem(&ticket.value), None);
    let peer = head.gate.browser(&session, head.address).unwrap();
    assert!(head.gate.holder(&session, head.address).is_none(), "it is no token of a script");
    assert_eq!(peer.user(), Some("alice"));
    assert!(!format!("{ticket:?}").contains(&ticket.value));
    let script = member.token("127.0.0.1", head.address.port()).await.unwrap();
    assert!(head.gate.holder(&script.value, head.address).is_some());
    assert!(head.gate.holder(&hex(&[7; 32]), head.address).is_none());
}

#[test]
fn an_authority_is_whole_and_instances_share_it() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    assert!(matches!(Authority::open(&path("a")), Err(AuthorityError::Missing(_))));
    let first = Authority::open_or_create(&path("a"), now()).unwrap();
    assert!(matches!(Authority::create(&path("a"), now()), Err(AuthorityError::Exists(_))));
    let (id, _) = first.grant(&new_grant(Role::Node), ("head", 1), now()).unwrap();
    // Instances that share the directory see one table.
    let shared = Authority::open(&path("a")).unwrap();
    shared.revoke(id).unwrap();
    assert_eq!(first.revoked().unwrap(), [id]);
    // It is read again when it has changed, and not otherwise.
    assert!(Arc::ptr_eq(&first.table().unwrap(), &first.table().unwrap()));
    let (other, _) = shared.grant(&new_grant(Role::Read), ("head", 1), now()).unwrap();
    assert_eq!(first.list().unwrap().last().unwrap().id, other);
    // A newer form is refused by name.
    let table = path("a").join("access.json");
    let newer = std::fs::read_to_string(&table).unwrap().replacen(": 1", ": 2", 1);
    std::fs::write(&table, newer).unwrap();
    let error = Authority::open(&path("a")).unwrap_err().to_string();
    assert!(error.contains("access.json is damaged: it has the unknown version 2"), "{error}");
}

#[tokio::test]
async fn a_certificate_is_renewed_now_and_then_only() {
    let head = Head::start(TlsMode::Require).await;
    let [greedy, innocent] =
        [head.member("a", Role::Node).await, head.member("b", Role::Node).await];
    let later = now() + days(21);
    assert!(greedy.renew_if_due(later).await.unwrap());
    let issued = || head.authority.list().unwrap().iter().map(|entry| entry.issued).sum::<u64>();
    let before = issued();
    for _ in 0..3 {
        let request = enrol::Request::Renew { hosts: vec![] };
        let refused = greedy.ask::<enrol::Enrolled>(&request).await.unwrap_err().to_string();
        assert!(refused.contains("was renewed within the last 600s"), "{refused}");
    }
    assert_eq!(issued(), before);
    assert!(innocent.renew_if_due(later).await.unwrap());
}

#[test]
fn a_full_table_of_strings_keeps_no_daemon_of_the_head_from_starting() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let authority = Authority::create(&path("ca"), now()).unwrap();
    let mut full = Table::empty();
    let secret = Secret::random().unwrap();
    while !full.is_full() {
        full.add(&new_grant(Role::Read), &secret, now()).unwrap();
    }
    let content = full.write().unwrap();
    crate::files::replace(&path("ca").join("access.json"), &content).unwrap();
    let refused = authority.grant(&new_grant(Role::Read), ("head", 1), now());
    assert!(matches!(refused, Err(AuthorityError::Full)));
    for _ in 0..2 {
        Identity::own(&path("own"), &authority, "head", ("head", 1), &[], now()).unwrap();
    }
    assert_eq!(authority.list().unwrap().iter().filter(|entry| entry.own).count(), 1);
}

#[test]
fn a_daemon_notes_once_what_users_of_the_machine_have_done() {
    let directory = TempDir::new().unwrap();
    let authority = Authority::create(&directory.path().join("ca"), now()).unwrap();
    // What a daemon does by itself is no act of a user.
    authority.grant(&new_grant(Role::Node), ("head", 1), now()).unwrap();
    let user = Authority::open(&directory.path().join("ca")).unwrap();
    let user = user.acting_for("root (uid 0)".to_owned());
    let (id, _) = user.grant(&new_grant(Role::Submit), ("head", 1), now()).unwrap();
    user.rotate(id, ("head", 1)).unwrap();
    user.revoke(id).unwrap();
    assert!(user.revoke("00000001".parse().unwrap()).is_err(), "it has changed nothing");
    let acts = authority.take_acts().unwrap();
    assert!(acts.iter().all(|act| act.user == "root (uid 0)"), "{acts:?}");
    let actions: Vec<String> = acts.into_iter().map(|act| act.action).collect();
    assert_eq!(
        actions,
        [
            format!("create access {id} for submit as alice"),
            format!("replace the secret of access {id}"),
            format!("revoke access {id}")
        ]
    );
    assert_eq!(authority.take_acts().unwrap(), []);
}

#[test]
fn entries_are_forgotten_once_their_certificates_have_expired() {
    let directory = TempDir::new().unwrap();
    let authority = Authority::create(&directory.path().join("ca"), now()).unwrap();
    let grant = |new: &NewGrant, at| authority.grant(new, ("head", 1), at).unwrap().0;
    let revoked = grant(&new_grant(Role::Node), now());
    let expired = grant(&NewGrant { valid_secs: Some(5), ..new_grant(Role::Node) }, now());
    let good = grant(&new_grant(Role::Node), now());
    authority.revoke(revoked).unwrap();
    let ids = || authority.list().unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>();
    let soon = grant(&new_grant(Role::Read), now() + days(30));
    assert_eq!(ids(), [revoked, expired, good, soon]);
    let late = grant(&new_grant(Role::Read), now() + days(32));
    assert_eq!(ids(), [good, soon, late]);
}

#[test]
fn a_daemon_of_the_head_has_an_entry_that_can_be_revoked() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let authority = Authority::create(&path("ca"), now()).unwrap();
    let own = |name: &str| Identity::own(&path(name), &authority, name, ("head", 1), &[], now());
    let first = own("first").unwrap().identified();
    assert_eq!((first.role, &*first.name), (Role::Admin, "first"));
    // It keeps the entry over a restart, and another machine has its own.
    assert_eq!(own("first").unwrap().identified(), first);
    let second = own("second").unwrap().identified();
    let listed = authority.list().unwrap();
    let ids: Vec<_> = listed.iter().map(|entry| (entry.id, entry.own, entry.issued)).collect();
    assert_eq!(ids, [(first.grant, true, 2), (second.grant, true, 1)]);
    authority.revoke(first.grant).unwrap();
    assert_eq!(authority.revoked().unwrap(), [first.grant]);
    let key = certificate::new_key().unwrap();
    let key = certificate::PublicKey::of(&certificate::self_signed(&key).unwrap().into()).unwrap();
    let renewed = authority.renew(&first, &key, &[], now()).unwrap_err().to_string();
    assert!(renewed.contains("revoked"), "{renewed}");
    // One of before has none yet, and gets it when it is renewed.
    let before = Identified { grant: GrantId::HEAD, ..(*second).clone() };
    let renewed = authority.renew(&before, &key, &[], now()).unwrap().identified;
    assert_ne!(renewed.grant, GrantId::HEAD);
    assert!(authority.list().unwrap().iter().any(|entry| entry.own && entry.id == renewed.grant));
}

#[tokio::test]
async fn a_daemon_with_a_key_shows_its_memory_to_nobody() {
    let head = Head::start(TlsMode::Require).await;
    let settings = TlsSettings {
        mode: TlsMode::Require,
        directory: Some(head.path("own")),
        ..TlsSettings::default()
    };
    Gate::open(&settings).unwrap();
    let behavior = rustix::process::dumpable_behavior().unwrap();
    assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
}

#[tokio::test]
async fn no_name_is_looked_up_for_a_stranger() {
    let head = Head::start(TlsMode::Require).await;
    let (_, string) = head.grant(&new_grant(Role::Node));
    let wrong = AccessString { secret: Secret::random().unwrap(), ..string.clone() };
    let hosts = ["a.invalid", "b.invalid", "c.invalid", "d.invalid"].map(str::to_owned);
    // Each look-up waits for a turn that does not come.
    let _places = gate::LOOK_UPS.acquire_many(gate::MAX_LOOK_UPS).await.unwrap();
    let path = |name: &str| head.path(name);
    let (stranger, member) = (path("stranger"), path("member"));
    let mut member = std::pin::pin!(Identity::enrol(&member, &string, "member", &hosts[..1]));
    let refused = tokio::select! {
        refused = Identity::enrol(&stranger, &wrong, "stranger", &hosts) => refused.unwrap_err(),
        let_in = &mut member => panic!("before the stranger: {let_in:?}"),
    };
    assert!(refused.to_string().contains("is unknown here"), "{refused}");
    member.await.unwrap();
    // Nor where no certificates are issued.
    let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
    let own = Arc::new(Identity::open(&path("own")).unwrap());
    let gate = Gate::new(settings, Some(own), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let elsewhere = AccessString { port, ..string.clone() };
    tokio::spawn(echo(listener, gate));
    let error = Identity::enrol(&stranger, &elsewhere, "late", &hosts).await.unwrap_err();
    assert!(error.to_string().contains("not issued here"), "{error}");
}

#[tokio::test]
async fn revocations_outlive_restarts_and_hold_for_all_that_use_the_directory() {
    let head = Head::start(TlsMode::Require).await;
    let node = head.member("node", Role::Node).await;
    let (revoked, _) = head.grant(&new_grant(Role::Submit));
    let task = Identity::open(&head.path("node")).unwrap();
    head.authority.revoke(revoked).unwrap();
    node.refresh_revoked().await.unwrap();
    assert!(node.revoked().contains(revoked));
    assert!(!task.revoked().contains(revoked));
    task.reload().unwrap();
    let later = Identity::open(&head.path("node")).unwrap();
    assert!(task.revoked().contains(revoked) && later.revoked().contains(revoked));
    // A list that has not changed is not sent again.
    let known = revoked::name(&[revoked]);
    let same: Option<Vec<GrantId>> = node.ask(&enrol::Request::Revoked { known }).await.unwrap();
    assert_eq!(same, None);
    node.refresh_revoked().await.unwrap();
    // The daemon with the authority knows it from its first connection on.
    let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
    let own = Arc::new(Identity::open(&head.path("own")).unwrap());
    Gate::new(settings, Some(own.clone()), Some(head.authority.clone())).unwrap();
    assert!(own.revoked().contains(revoked));
    let kept = head.path("node").join("revoked.json");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn files_of_later_versions_are_refused_by_their_numbers() {
    let head = Head::start(TlsMode::Require).await;
    let member = head.member("node", Role::Node).await;
    drop(member);
    for (file, content) in [
        ("identity.json", r#"{"version":2}"#),
        ("revoked.json", r#"{"version":2,"revoked":["other"]}"#),
    ] {
        let path = head.path("node").join(file);
        let kept = std::fs::read(&path).ok();
        std::fs::write(&path, content).unwrap();
        let error = Identity::open(&head.path("node")).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("unknown version 2;"), "{error}");
        match kept {
            Some(kept) => std::fs::write(&path, kept).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    Identity::open(&head.path("node")).unwrap();
    let refused = table::Table::read(br#"{"version":2,"grants":{}}"#).unwrap_err();
    assert!(refused.starts_with("it has the unknown version 2;"), "{refused}");
}

/// Files as this version writes them, which later versions must read.
#[test]
fn files_of_the_first_version_are_read() {
    let fixture = include_str!("../../fixtures/versions/access.json");
    let table = table::Table::read(fixture.as_bytes()).unwrap();
    let ids: Vec<String> = table.entries().map(|entry| entry.id.to_string()).collect();
    assert_eq!(ids, ["0719cb09", "1a2b3c4d"]);
    assert_eq!(String::from_utf8(table.write().unwrap()).unwrap(), fixture.trim_end());
    let directory = TempDir::new().unwrap();
    let revoked = include_str!("../../fixtures/versions/revoked.json");
    std::fs::write(directory.path().join("revoked.json"), revoked).unwrap();
    let revoked = revoked::Revoked::open(directory.path()).unwrap();
    assert!(revoked.contains("1a2b3c4d".parse().unwrap()));
}

#[test]
fn nothing_is_accepted_again_because_the_head_has_an_older_table() {
    let directory = TempDir::new().unwrap();
    let open = || revoked::Revoked::open(directory.path()).unwrap();
    let revoked = open();
    let [first, second]: [GrantId; 2] = ["00000001", "00000002"].map(|id| id.parse().unwrap());
    revoked.learn(&[first], now()).unwrap();
    revoked.learn(&[second], now() + days(1)).unwrap();
    revoked.learn(&[], now() + days(2)).unwrap();
    for known in [&revoked, &open()] {
        assert!(known.contains(first) && known.contains(second));
    }
    // Until all certificates have expired.
    revoked.learn(&[second], now() + days(32)).unwrap();
    for known in [&revoked, &open()] {
        assert!(!known.contains(first) && known.contains(second));
    }
}

#[test]
fn the_rights_of_directories_that_exist_are_not_changed() {
    use std::os::unix::fs::PermissionsExt;

    let directory = TempDir::new().unwrap();
    let shared = directory.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let set = |mode| {
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o755);
    let error = Authority::create(&shared, now()).unwrap_err().to_string();
    assert!(error.contains("others may enter") && error.contains("chmod 700"), "{error}");
    assert_eq!(std::fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0);
    set(0o700);
    Authority::create(&shared, now()).unwrap();
}

#[test]
fn threads_that_replace_one_file_do_not_meet() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    std::thread::scope(|scope| {
        for byte in [b'a', b'b', b'c', b'd'] {
            let path = &path;
            scope.spawn(move || {
                for length in 1..40 {
                    files::replace(path, &vec![byte; length * 100]).unwrap();
                    let read = files::read_private(path).unwrap();
                    assert!(
                        read.len().is_multiple_of(100)
                            && read.iter().all(|other| *other == read[0])
                    );
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_silent_peer_that_is_served_as_a_plain_one_is_counted() {
    let head = Head::start(TlsMode::Allow).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, address) = listener.accept().await.unwrap();
    tokio::time::pause();
    let (_, peer) = head.gate.admit(stream, address, false).await.unwrap();
    assert_eq!(peer.objection(|| Rights::ADMIN), None);
    let (counts, _) = head.gate.plain_peers().counts();
    assert_eq!(counts, [(address.ip(), PlainPeer { served: 1, refused: 0 })]);
}

#[test]
fn requests_are_shown_without_their_secrets() {
    let (secret, name) = (Secret::random().unwrap(), "host".to_owned());
    let request = enrol::Request::Enrol { secret: secret.expose(), name, hosts: vec![] };
    assert_eq!(format!("{request:?}"), "get access as host");
}

#[tokio::test]
async fn a_certificate_is_renewed_at_its_age_by_the_clock_of_the_head() {
    let age = |days_ago| async move {
        let head = Head::start_at(TlsMode::Require, now() - days(days_ago), &[]).await;
        let about = std::fs::read(head.path("own").join("identity.json")).unwrap();
        let about: serde_json::Value = serde_json::from_slice(&about).unwrap();
        about["renew_at"].as_u64().unwrap() <= seconds(now())
    };
    assert!(!age(19).await);
    assert!(age(21).await);
}
