//! What a member of a cluster is given by `corona head`, and what it learns there.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use corona::access::{AccessString, Identity, IdentityError, Role, use_in_clients};
use corona::config::ClientSource;
use corona::filesystem::sees_token;
use corona::hadoop::protocols::job_files::JobFilesClient;
use corona::hadoop::rpc::{ClientOptions, User};
use corona::hadoop::writables::InetAddress;
use corona::session_driver::{Endpoint, address_towards};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::closed::required;
use super::daemon::usable;
use super::parts::{HeadAddresses, Site};

/// The file of a string that was given on the command line, until it is read.
const GIVEN_FILE: &str = "string.given";
/// The version of what a head gives to its members.
const VERSION: u32 = 1;
/// The longest line that is read from a file or from stdin, in bytes.
const MOST_STRING_BYTES: u64 = 4096;
/// What to do with a string of other daemons than those of a head.
const OTHER_CLUSTERS: &str = "; a string of a mini-cluster, or of daemons with configuration files, is for \
    'corona access enrol - --directory DIR', after which -D corona.tls.directory=DIR shows the certificate";
/// How long a head may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a cluster is, and what the holder of the string becomes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invitation {
    pub(super) access: AccessString,
    pub(super) ports: HeadPorts,
}

impl FromStr for Invitation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Invitation> {
        let access: AccessString = text.parse()?;
        let ports = HeadPorts::with_pages_at(access.port);
        let ports = ports.ok_or_else(|| {
            anyhow!("port {} of the string is of no head{OTHER_CLUSTERS}", access.port)
        })?;
        Ok(Invitation { access, ports })
    }
}

impl Invitation {
    /// Reads a string as it is given on a command line: itself, `@FILE` for the first line of a file, or `-`
    /// for that of stdin, so that lists of processes do not show it.
    ///
    /// # Errors
    /// There is none, or it is for another role.
    pub(super) fn read(given: &str, role: Role) -> anyhow::Result<Invitation> {
        let text = match given.strip_prefix('@') {
            None if given == "-" => first_line(std::io::stdin())?,
            None => given.to_owned(),
            Some(path) => {
                let file = fs::File::open(path).with_context(|| format!("cannot read {path}"))?;
                first_line(file).with_context(|| format!("cannot read {path}"))?
            }
        };
        let invitation: Invitation = text.parse()?;
        let command = |is_node| if is_node { "corona join" } else { "corona login" };
        let (is_node, wants_node) = (invitation.access.role == Role::Node, role == Role::Node);
        ensure!(
            is_node == wants_node,
            "this string is for '{}'; '{}' needs one that begins with corona1:{role}:",
            command(is_node),
            command(wants_node),
        );
        Ok(invitation)
    }

    /// Starts this program again without the string among its arguments, where every user of the machine could read
    /// it; a file in this directory keeps it. Returns only if that is not needed.
    ///
    /// # Errors
    /// The string is wrong, or the file cannot be written.
    pub(super) fn hide(given: &str, role: Role, directory: &Path) -> anyhow::Result<()> {
        if given == "-" || given.starts_with('@') {
            return Ok(());
        }
        // It is checked first, so that a mistake is about what was given.
        Invitation::read(given, role)?;
        let path = directory.join(GIVEN_FILE);
        let path = std::path::absolute(&path).unwrap_or(path);
        write_private(&path, given)?;
        let instead = format!("@{}", path.display());
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|it| if it == *given { instead.clone().into() } else { it });
        let program = std::env::current_exe().context("cannot find this program")?;
        let error = std::process::Command::new(program).args(arguments).exec();
        Invitation::forget_given(directory);
        Err(error).context("cannot start this program again")
    }

    /// Removes the file of [`Invitation::hide`], once it was read.
    pub(super) fn forget_given(directory: &Path) {
        let _ = fs::remove_file(directory.join(GIVEN_FILE));
    }

    /// Where the parts of the head are.
    pub(super) fn addresses(&self) -> HeadAddresses {
        self.ports.addresses(&self.access.host)
    }

    /// The address of the head's pages.
    pub(super) fn pages(&self) -> String {
        format!("https://{}:{}/", shown_host(&self.access.host), self.ports.pages())
    }

    /// The address of this machine from which it reaches the head.
    ///
    /// # Errors
    /// The name of the head has no address, or there is no way to it.
    pub(super) async fn own_address(&self) -> anyhow::Result<IpAddr> {
        let head = Endpoint::new(self.access.host.clone(), self.ports.job_tracker());
        address_towards(&head).await.with_context(|| {
            format!(
                "there is no way to the head {}; if this machine does not know the name, start the head \
                 with --host and an address",
                self.access.host
            )
        })
    }

    /// Whether something listens where the job tracker of a head is.
    ///
    /// # Errors
    /// The head does not answer, or the string is of daemons that have other ports.
    pub(super) async fn reach_job_tracker(&self) -> anyhow::Result<()> {
        let (host, port) = (&*self.access.host, self.ports.job_tracker());
        let failed = |why: &dyn std::fmt::Display| {
            anyhow!(
                "the head at {}:{port} cannot be reached: {why}{OTHER_CLUSTERS}",
                shown_host(host)
            )
        };
        match timeout(PATIENCE, TcpStream::connect((host, port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(failed(&"it does not answer")),
        }
    }

    /// The certificate of this member in a directory, which the string is exchanged for unless there is one that
    /// is valid. The calls of this process show it from now on.
    ///
    /// # Errors
    /// The head does not answer, or refuses.
    pub(super) async fn enrol(&self, directory: &Path, name: &str) -> anyhow::Result<()> {
        let needs_one = match Identity::open(directory) {
            Ok(identity) => identity.has_expired(SystemTime::now()),
            Err(IdentityError::Missing(_)) => true,
            Err(error) => return Err(error.into()),
        };
        if needs_one {
            Identity::enrol(directory, &self.access, name, &[name.to_owned()]).await?;
        }
        Ok(use_in_clients(&required(directory))?)
    }

    /// What the head gives to its members.
    ///
    /// # Errors
    /// It does not answer, or is of another version.
    pub(super) async fn learn(&self) -> anyhow::Result<ClusterFacts> {
        let user = usable(ClientSource::default().load_file_systems())?.user;
        let user = User { groups: vec![user.clone()], name: user };
        let options = ClientOptions {
            call_timeout: Some(PATIENCE),
            attempt_timeout: PATIENCE,
            connect_patience: Duration::ZERO,
            ..ClientOptions::new(user)
        };
        let (host, port) = (self.access.host.clone(), self.ports.job_tracker());
        let who = format!("the head at {}:{port}", shown_host(&host));
        let address = InetAddress { host, port };
        let asked = JobFilesClient::new(address, options).cluster().await;
        let text = asked.with_context(|| format!("{who} cannot be reached"))?;
        let text = text.ok_or_else(|| anyhow!("{who} was not started by 'corona head'"))?;
        ClusterFacts::parse(&text).with_context(|| format!("{who} gave what cannot be used"))
    }
}

fn first_line(from: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(MOST_STRING_BYTES).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn shown_host(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// The ports of a cluster: a block that begins at one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct HeadPorts {
    base: u16,
}

impl HeadPorts {
    /// Where the block begins by default.
    pub(super) const BASE: u16 = 8880;
    /// The smallest and the largest beginning.
    pub(super) const RANGE: std::ops::RangeInclusive<i64> = 1024..=65_500;
    const PAGES: u16 = 9;

    pub(super) fn from(base: u16) -> HeadPorts {
        HeadPorts { base }
    }

    fn with_pages_at(port: u16) -> Option<HeadPorts> {
        let base = port.checked_sub(HeadPorts::PAGES)?;
        HeadPorts::RANGE.contains(&base.into()).then_some(HeadPorts { base })
    }

    fn number(self, number: u16) -> u16 {
        self.base.saturating_add(number)
    }

    /// The pages of the cluster manager.
    pub(super) fn pages(self) -> u16 {
        self.number(HeadPorts::PAGES)
    }

    /// The job tracker.
    pub(super) fn job_tracker(self) -> u16 {
        self.number(1)
    }

    /// The pages of the job tracker.
    pub(super) fn job_pages(self) -> u16 {
        self.number(2)
    }

    /// The job tracker's, for notifications of the cluster manager.
    pub(super) fn notifications(self) -> u16 {
        self.number(3)
    }

    /// A node's pages and map output.
    pub(super) fn node(self) -> u16 {
        self.number(10)
    }

    /// A node's, for orders of the job tracker.
    pub(super) fn node_actions(self) -> u16 {
        self.number(11)
    }

    /// A node's, for calls of the cluster manager.
    pub(super) fn node_callbacks(self) -> u16 {
        self.number(12)
    }

    /// Where a head of this name is reached.
    pub(super) fn addresses(self, host: &str) -> HeadAddresses {
        HeadAddresses {
            host: shown_host(host),
            thrift: self.number(8),
            pages: self.pages(),
            job_tracker: self.job_tracker(),
            job_pages: self.job_pages(),
            proxy: Some([4, 5, 6].map(|number| self.number(number))),
            nodes: self.node(),
        }
    }
}

/// A file of the head by which a machine finds out whether it sees the same files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) path: String,
    pub(super) token: String,
}

impl Marker {
    /// Writes a marker.
    pub(super) fn write(path: &Path) -> anyhow::Result<Marker> {
        let failed = || format!("cannot write {}", path.display());
        let token = random_token().with_context(failed)?;
        fs::write(path, &token).with_context(failed)?;
        Ok(Marker { path: path.display().to_string(), token })
    }

    /// Whether this machine sees it.
    pub(super) fn is_seen(&self) -> bool {
        sees_token(Path::new(&self.path), &self.token)
    }
}

/// A number that nobody else has, as text.
pub(super) fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the members of a cluster need to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterFacts {
    version: u32,
    /// Settings of all machines.
    pub(super) settings: BTreeMap<String, String>,
    /// By which they find out whether they share the head's directory.
    pub(super) marker: Marker,
}

impl ClusterFacts {
    pub(super) fn new(site: &Site, marker: Marker) -> ClusterFacts {
        let settings = site.settings().iter().cloned().collect();
        ClusterFacts { version: VERSION, settings, marker }
    }

    /// Reads what a head gave.
    ///
    /// # Errors
    /// It is of a later version, or something else.
    pub(super) fn parse(text: &str) -> anyhow::Result<ClusterFacts> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } =
            serde_json::from_str(text).context("it is no JSON of a head")?;
        ensure!(
            version == VERSION,
            "it has the form {version}, and this version of corona reads {VERSION}: install the \
             version of the head here"
        );
        serde_json::from_str(text).context("it is no JSON of a head")
    }

    /// As text.
    pub(super) fn to_json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).context("the settings of the cluster")
    }

    /// The settings of a member that reaches the head in this way.
    pub(super) fn site(&self, at: &HeadAddresses) -> Site {
        let mut site = Site::of_cluster(at);
        site.set(self.settings.iter().map(|(key, value)| (&**key, value.clone())));
        site
    }
}

/// Replaces a file that only its owner may read.
pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;

    let failed = || format!("cannot write {}", path.display());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    // One that a crash has left may have other rights.
    let _ = fs::remove_file(&fresh);
    let mut options = fs::File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(&fresh);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&fresh, path)).with_context(failed)
}

/// Reads a file that nobody but this user may read.
///
/// # Errors
/// It cannot be read, or others may read it.
pub(super) fn read_private(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let failed = || format!("cannot read {shown}");
    let mut file = fs::File::open(path).with_context(failed)?;
    let mode = file.metadata().with_context(failed)?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others may read {shown}, which holds secrets: run chmod 600 {shown}"
    );
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn string(role: &str, port: u16) -> String {
        let hex = "0123456789abcdef".repeat(4);
        format!("corona1:{role}:h:{port}:{hex}:{hex}")
    }

    #[test]
    fn the_port_of_a_string_leads_to_all_others() {
        let shifted: Invitation = string("node", 9009).parse().unwrap();
        assert_eq!(shifted.addresses().job_tracker, 9001);
        assert_eq!(shifted.addresses().thrift, 9008);
        assert_eq!(shifted.pages(), "https://h:9009/");
        for (wrong, why) in [
            ("corona1:node:h:8889", "truncated"),
            (&*string("node", 8), "of no head"),
            (&*string("node", 1000), "of no head"),
        ] {
            let error = wrong.parse::<Invitation>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_file_with_secrets_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("strings.json");
        write_private(&path, "secret").unwrap();
        assert_eq!(read_private(&path).unwrap(), "secret");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_private(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_string_comes_from_a_file_and_is_for_one_role() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("string");
        fs::write(&path, format!("{}\nmore\n", string("node", 8889))).unwrap();
        let given = format!("@{}", path.display());
        assert_eq!(Invitation::read(&given, Role::Node).unwrap().access.host, "h");
        let error = Invitation::read(&given, Role::Submit).unwrap_err().to_string();
        assert!(error.contains("this string is for 'corona join'"), "{error}");
        assert!(Invitation::read("@/no/such/file", Role::Node).is_err());
        for role in ["submit", "read", "admin"] {
            fs::write(&path, string(role, 8889)).unwrap();
            assert!(Invitation::read(&given, Role::Submit).is_ok(), "{role}");
        }
    }

    #[test]
    fn a_later_form_of_facts_is_refused_by_name() {
        let marker = Marker { path: "/x".into(), token: "t".into() };
        let mut site = Site::default();
        site.set([("cm.server.address", "h:1".to_owned())]);
        let facts = ClusterFacts::new(&site, marker);
        assert_eq!(ClusterFacts::parse(&facts.to_json().unwrap()).unwrap(), facts);
        let fixture = include_str!("../../fixtures/versions/cluster-facts.json");
        assert_eq!(facts.to_json().unwrap(), fixture.trim_end());
        assert_eq!(ClusterFacts::parse(fixture).unwrap(), facts);
        let error = ClusterFacts::parse(r#"{"version":2}"#).unwrap_err().to_string();
        assert!(error.contains("it has the form 2"), "{error}");
        assert!(ClusterFacts::parse("nonsense").is_err());
        let addresses = HeadPorts::from(9000).addresses("head");
        assert_eq!(facts.site(&addresses).get("cm.server.address"), Some("h:1"));
        assert_eq!(facts.site(&addresses).get("corona.jt.address"), Some("head:9001"));
    }

    #[test]
    fn a_marker_is_seen_where_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let marker = Marker::write(&dir.path().join("marker")).unwrap();
        assert!(marker.is_seen());
        let other = Marker::write(&dir.path().join("marker")).unwrap();
        assert!(other.is_seen() && !marker.is_seen(), "another machine's file of the same name");
    }
}
