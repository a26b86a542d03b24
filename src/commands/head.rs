//! `corona head`: the head of a cluster of several machines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use corona::access::{Authority, AuthorityError, NewGrant, Role};
use corona::api::cluster::Nodes;
use corona::api::jobs::Jobs;
use corona::config::{ClientSource, HostPort};
use corona::session_driver::{Endpoint, address_towards};
use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{Override, parse_override};
use super::closed;
use super::cluster::block_on;
use super::daemon::{tell_systemd, usable};
use super::daemons::{CONF_FOLDER, Daemons, Home, PID, PROBLEM, Renewal};
use super::invitation::{ClusterFacts, HeadPorts, Marker, read_private, write_private};
use super::parts::{HEAD_FOLDERS, Site, is_secret};
use super::signals::shutdown_signal;
use super::web::Web;
use corona::process::machine_name;
use corona_terminal::console::{Console, FormArguments, printable};

const EXAMPLES: &str = "\
Examples:
  The head of a cluster, on the machine that others know as alpha:
    corona head --host alpha
  What it prints is for the other machines:
    corona join corona1:node:alpha:8889:...
    corona login corona1:submit:alpha:8889:...
  Whether it runs, with its nodes and jobs:
    corona head status

The ports are 8881 to 8889, and 8890 to 8892 on nodes; --port-base shifts them
all. Everything is in one directory, by default /var/lib/corona-head for root
and ~/.local/share/corona/head for others. Started again on it, the cluster
and its jobs go on. SIGHUP starts its parts again one after another, a new
version of the program if there is one; jobs go on, and no task runs again.
Exit status: 0 stopped; 1 could not start, or does not run, with one line on
stderr; 2 wrong usage.";

/// The file that keeps under which name and ports a head serves.
const HEAD_FILE: &str = "head.json";
/// The version of its form.
const VERSION: u32 = 1;
/// What nodes and users get.
const CLUSTER_FILE: &str = "cluster.json";
/// By which nodes find out whether they see the same files.
const MARKER_FILE: &str = "marker";
/// The strings for others, which only the head's user can read.
const STRINGS_FILE: &str = "strings.json";
/// An address of no machine, by which the way to others is found.
const ELSEWHERE: &str = "192.0.2.1";
/// How long a part of the head may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Run the head of a cluster of several machines
///
/// Starts a cluster manager, a job tracker and a proxy job tracker, which serve
/// on fixed ports, and prints the lines by which other machines become nodes
/// ('corona join') and users get access ('corona login'). There is nothing else
/// to configure, and no directory needs to be shared.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    start: Start,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Show whether a head runs, its nodes and jobs, and its lines for others
    Status(Status),
}

#[derive(Args, Clone, Debug)]
struct Directory {
    /// Directory of all files of the head; made if it does not exist
    ///
    /// [default: /var/lib/corona-head for root, else
    /// ~/.local/share/corona/head]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct Start {
    #[command(flatten)]
    directory: Directory,

    /// Name or address under which other machines reach this one
    ///
    /// Names that lead to this machine alone are refused; 127.0.0.1 is for
    /// clusters of one machine. [default: that of the last start, else the
    /// machine's name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// First of the ports, which all follow it [default: that of the last
    /// start, else 8880]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(HeadPorts::RANGE))]
    port_base: Option<u16>,

    /// Set a configuration key of all machines; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,
}

#[derive(Args, Clone, Debug)]
struct Status {
    #[command(flatten)]
    directory: Directory,

    #[command(flatten)]
    output: FormArguments,
}

/// Under which name and ports a head serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Serves {
    version: u32,
    host: String,
    port_base: HeadPorts,
}

/// The strings for others, and the head that they lead to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Strings {
    serves: Serves,
    /// For nodes.
    node: String,
    /// For a user, and who that is.
    login: String,
    user: String,
}

/// How a head is, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct HeadStatus {
    /// Whether all its parts answer.
    runs: bool,
    host: String,
    pages: String,
    directory: PathBuf,
    /// `closed`: only members have access.
    access: &'static str,
    /// The numbers of the processes of its parts.
    processes: BTreeMap<String, u32>,
    /// What is wrong with parts that do not serve, and are started again.
    problems: Vec<String>,
    nodes: Option<u64>,
    running_jobs: Option<u64>,
    /// The lines for others.
    node: String,
    user: String,
}

/// Runs the head until a signal stops it, or shows how it is.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Some(Action::Status(status)) => status.show(console),
        None => {
            // The daemons are children of the thread that starts them, and end with it.
            block_on(arguments.start.serve(console))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The directory of a part of a cluster that no option names.
pub(super) fn usual_directory(part: &str) -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(Path::new("/var/lib").join(format!("corona-{part}")));
    }
    let variable = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty());
    let data = variable("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share")));
    let data = data.ok_or_else(|| anyhow!("there is no $HOME; name a directory with --dir"))?;
    Ok(data.join("corona").join(part))
}

impl Directory {
    fn find(&self) -> anyhow::Result<PathBuf> {
        self.dir.clone().map_or_else(|| usual_directory("head"), Ok)
    }
}

impl Start {
    async fn serve(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let is_access = |set: &&Override| closed::KEYS.contains(&&*set.0);
        if let Some((key, _)) = self.overrides.iter().find(is_access) {
            bail!("-D {key}: a head makes a closed cluster, whose certificates it keeps itself");
        }
        let stop = shutdown_signal().context("cannot listen for signals")?;
        tokio::pin!(stop);
        let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        let home = Home::open(&self.directory.find()?, "head", &HEAD_FOLDERS)?;
        let serves = self.serves(&home)?;
        let address = reachable(&serves.host).await?;
        write_private(&home.root.join(HEAD_FILE), &serde_json::to_string(&serves)?)?;
        let strings = serves.open_access(&home.root)?;
        self.write_configuration(&home, &serves, address)?;
        let mut daemons = Daemons::new(&home)?;
        let started = tokio::select! {
            started = start(&mut daemons, &home) => started.map(|()| true),
            _ = &mut stop => Ok(false),
        };
        let ended = match started {
            Ok(true) => {
                // A failure to write it does not end the head.
                let is_shown = io::stdout().is_terminal();
                let _ = console.print(&serves.ready(&home, &strings, is_shown));
                tell_systemd(NotifyState::Ready);
                while daemons.watch(&home, console, stop.as_mut(), hangup.recv()).await.is_some() {
                    let renewed = tokio::select! {
                        renewed = renew(&mut daemons) => renewed,
                        _ = &mut stop => break,
                    };
                    // What does not serve is tried on.
                    console.complain(&match renewed {
                        Ok(version) => format!("SIGHUP: all parts run {version}\n"),
                        Err(error) => format!("SIGHUP: {error:#}\n"),
                    });
                }
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        tell_systemd(NotifyState::Stopping);
        daemons.stop().await;
        ended
    }

    /// As told, else as before.
    fn serves(&self, home: &Home) -> anyhow::Result<Serves> {
        let kept = Serves::read(&home.root)?;
        let host = self.host.clone().or_else(|| Some(kept.as_ref()?.host.clone()));
        let host = host.map_or_else(machine_name, Ok);
        let host = host.context("cannot read the machine's name; name it with --host")?;
        let ports = self.port_base.map(HeadPorts::from).or_else(|| Some(kept?.port_base));
        let port_base = ports.unwrap_or(HeadPorts::from(HeadPorts::BASE));
        Ok(Serves { version: VERSION, host, port_base })
    }

    /// The configuration of the parts of the head, and what nodes and users get of it.
    fn write_configuration(
        &self,
        home: &Home,
        serves: &Serves,
        address: IpAddr,
    ) -> anyhow::Result<()> {
        let mut shared = Site::default();
        shared.set([
            ("corona.loopback.only", address.is_loopback().to_string()),
            ("cm.node.expiryinterval", "60000".to_owned()),
        ]);
        // Members get what is shared.
        let (secret, known): (Vec<Override>, Vec<Override>) =
            self.overrides.iter().cloned().partition(|set| is_secret(&set.0));
        shared.override_with(&known);
        let marker = Marker::write(&home.root.join(MARKER_FILE))?;
        let facts = ClusterFacts::new(&shared, marker).to_json()?;
        let cluster = home.root.join(CLUSTER_FILE);
        fs::write(&cluster, facts)
            .with_context(|| format!("cannot write {}", cluster.display()))?;
        let mut site = Site::of_cluster(&serves.port_base.addresses(&serves.host));
        site.add_files_of_head(home);
        site.set([
            ("corona.jt.notification.port", serves.port_base.notifications().to_string()),
            ("corona.jt.deliver.files", "true".to_owned()),
            ("corona.jt.cluster.file", cluster.display().to_string()),
            // Job trackers on nodes have ports that no firewall could know.
            ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1,"REDUCE":1}}"#.to_owned()),
        ]);
        site.set(closed::keys(&home.root));
        site.override_with(shared.settings());
        site.override_with(&secret);
        site.write(&home.conf(), "corona head")
    }
}

async fn start(daemons: &mut Daemons, home: &Home) -> anyhow::Result<()> {
    daemons.start_cluster_manager(home).await?;
    daemons.start_job_tracker(home, Vec::new()).await
}

/// Starts all parts again from the file of the program that is there by now, one after another, and says which version
/// that is. Jobs go on: the cluster manager resumes from its journal, and the job tracker keeps its connections.
async fn renew(daemons: &mut Daemons) -> anyhow::Result<String> {
    let version = daemons.installed_version().await.context("nothing is started again")?;
    daemons.renew("cluster-manager", Renewal::Process).await?;
    daemons.renew("proxy-job-tracker", Renewal::Process).await?;
    daemons.renew("job-tracker", Renewal::InPlace).await?;
    Ok(version)
}

/// The address of a name that other machines can reach. An address of the loopback network is taken if it
/// is named itself.
async fn reachable(host: &str) -> anyhow::Result<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        ensure!(!address.is_unspecified(), "--host {host}: no machine can connect to this address");
        return Ok(address);
    }
    let instead = match address_towards(&Endpoint::new(ELSEWHERE, 9)).await {
        Ok(own) if !own.is_loopback() => {
            format!("name one that the other machines can reach, such as --host {own}")
        }
        _ => "name one that the other machines can reach with --host".to_owned(),
    };
    let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, 0)).await {
        Ok(found) => found.collect(),
        Err(error) => bail!("the name {host} has no address ({error}); {instead}"),
    };
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let address = first.map(SocketAddr::ip);
    let address = address.ok_or_else(|| anyhow!("the name {host} has no address; {instead}"))?;
    ensure!(
        !address.is_loopback(),
        "the name {host} leads to {address} here, which other machines cannot reach; {instead}; for a \
         cluster of this machine alone: --host 127.0.0.1"
    );
    Ok(address)
}

impl Serves {
    /// What an earlier start has kept; none if there was none.
    fn read(root: &Path) -> anyhow::Result<Option<Serves>> {
        let path = root.join(HEAD_FILE);
        let shown = path.display();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(format!("cannot read {shown}")),
        };
        let serves: Serves = serde_json::from_str(&text).with_context(|| {
            format!("{shown} cannot be read; delete it to choose the name and the ports again")
        })?;
        let version = serves.version;
        ensure!(version == VERSION, "{shown} has the unknown form {version}: a later version's");
        Ok(Some(serves))
    }

    /// The same where a head must have been started.
    fn started(root: &Path) -> anyhow::Result<Serves> {
        Serves::read(root)?.ok_or_else(|| {
            anyhow!("no head was ever started in {}; name another with --dir", root.display())
        })
    }

    fn pages(&self) -> String {
        let addresses = self.port_base.addresses(&self.host);
        format!("https://{}:{}/", addresses.host, addresses.pages)
    }

    /// Opens the certificate authority of the cluster, and gives the head a certificate. Returns the strings
    /// for others: those of before, unless the name or the ports are other ones.
    fn open_access(&self, root: &Path) -> anyhow::Result<Strings> {
        let at = (&*self.host, self.port_base.pages());
        let authority = closed::open(root, at, std::slice::from_ref(&self.host))?;
        let now = SystemTime::now();
        let path = root.join(STRINGS_FILE);
        if path.exists() {
            let kept = Strings::read(root)?;
            let accepted = [&kept.node, &kept.login].map(|string| is_accepted(&authority, string));
            if kept.serves == *self && accepted == [true, true] {
                return Ok(kept);
            }
        }
        let user = usable(ClientSource::default().load_file_systems())?.user;
        let grant = |role, user| {
            let new = NewGrant { role, user, valid_secs: None, uses: None };
            match authority.grant(&new, at, now) {
                Ok((_, string)) => Ok(string.to_string()),
                // Its members have access nevertheless; 'corona head status' says that there are none.
                Err(AuthorityError::Full) => Ok(String::new()),
                Err(error) => Err(error),
            }
        };
        let strings = Strings {
            serves: self.clone(),
            node: grant(Role::Node, None)?,
            login: grant(Role::Submit, Some(user.clone()))?,
            user,
        };
        write_private(&path, &serde_json::to_string(&strings)?)?;
        Ok(strings)
    }

    /// The lines that are printed when it serves. What goes to a file, such as the journal of the system, others may
    /// read: the strings are shown to a person only.
    fn ready(&self, home: &Home, strings: &Strings, is_shown: bool) -> String {
        let Strings { node, login, user, .. } = strings;
        let (pages, dir) = (self.pages(), home.root.display());
        let begin = format!("corona head ready: pages {pages} dir {dir}\n{CLOSED}\n");
        if !is_shown {
            return format!("{begin}They are shown by: corona head status --dir {dir}\n");
        }
        format!(
            "{begin}On each machine that is to be a node:\n  corona join {node}\n\
             For the user {user}, on any machine:\n  corona login {login}\n"
        )
    }
}

impl Strings {
    fn read(root: &Path) -> anyhow::Result<Strings> {
        let path = root.join(STRINGS_FILE);
        let text = read_private(&path)?;
        serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; without it, the head makes other strings", path.display())
        })
    }
}

/// Whether a string of before still lets members in.
fn is_accepted(authority: &Authority, string: &str) -> bool {
    let string = string.parse().ok();
    string.is_some_and(|string| authority.accepts(&string, SystemTime::now()).unwrap_or_default())
}

/// The certificate authority of the head in a directory, and where others reach it.
///
/// # Errors
/// No head was ever started there, or its files cannot be used.
pub(super) fn authority_of(directory: &Path) -> anyhow::Result<(Authority, HostPort)> {
    let serves = Serves::started(directory)?;
    let (host, port) = (serves.host.as_str().into(), serves.port_base.pages());
    Ok((closed::authority(directory)?, HostPort { host, port }))
}

/// The usual directory of a head, if one was started there.
pub(super) fn usual_head() -> Option<PathBuf> {
    usual_directory("head").ok().filter(|directory| directory.join(HEAD_FILE).is_file())
}

/// The configuration of the head that this user has started here. That of another user's head is not readable.
pub(super) fn conf_dir_of_own_head() -> Option<PathBuf> {
    let directory = usual_head()?;
    let owner = fs::metadata(&directory).ok()?.uid();
    (owner == rustix::process::geteuid().as_raw()).then(|| directory.join(CONF_FOLDER))
}

/// What is to be known of the access to the cluster.
const CLOSED: &str = "This cluster is closed: only those that hold one of these strings have access. \
                      'corona access' gives and takes more.";

impl Status {
    fn show(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        let directory = self.directory.find()?;
        let serves = Serves::started(&directory)?;
        let strings = Strings::read(&directory)?;
        let authority = closed::authority(&directory)?;
        closed::act_as_head(&directory)?;
        let line = |command: &str, role: &str, string: &str| match is_accepted(&authority, string) {
            true => format!("corona {command} {string}"),
            false if string.is_empty() => {
                "there are too many access strings; 'corona access revoke' makes room".to_owned()
            }
            false => {
                format!("the string was taken back; 'corona access create {role}' makes another")
            }
        };
        let (nodes, jobs) = block_on(async { Ok(serves.ask().await) })?;
        let shown = HeadStatus {
            runs: nodes.is_some() && jobs.is_some(),
            pages: serves.pages(),
            processes: processes(&directory),
            problems: problems(&directory),
            access: "closed",
            nodes,
            running_jobs: jobs,
            node: line("join", "node", &strings.node),
            user: line("login", "submit --user NAME", &strings.login),
            host: serves.host,
            directory,
        };
        self.output.show(console, &shown, |_| shown.text())?;
        Ok(if shown.runs { ExitCode::SUCCESS } else { ExitCode::from(super::EXIT_FAILED) })
    }
}

impl HeadStatus {
    fn text(&self) -> String {
        let state = if self.runs { "runs" } else { "does not run, or not all of it" };
        let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        let processes: Vec<String> =
            self.processes.iter().map(|(name, pid)| format!("{name} {pid}")).collect();
        let mut text = format!(
            "head          {state}\npages         {}\ndirectory     {}\naccess        {}\n\
             processes     {}\nnodes         {}\nrunning jobs  {}\na node        {}\na user        {}\n",
            self.pages,
            self.directory.display(),
            self.access,
            if processes.is_empty() { "none".to_owned() } else { processes.join(", ") },
            count(self.nodes),
            count(self.running_jobs),
            self.node,
            self.user,
        );
        for problem in &self.problems {
            text.push_str(&format!("problem       {}\n", printable(problem)));
        }
        text
    }
}

impl Serves {
    /// How many nodes and running jobs there are, as far as the parts answer.
    async fn ask(&self) -> (Option<u64>, Option<u64>) {
        let addresses = self.port_base.addresses(&self.host);
        let at = |port| HostPort { host: self.host.as_str().into(), port };
        let manager = Web::new(at(addresses.pages), PATIENCE);
        let tracker = Web::of("job tracker", at(addresses.job_pages), PATIENCE);
        let nodes = manager.found::<Nodes>("/api/v1/nodes?limit=1");
        let jobs = tracker.found::<Jobs>("/api/v1/jobs?ended=0&limit=1000");
        let (nodes, jobs) = tokio::join!(nodes, jobs);
        (nodes.map(|nodes| nodes.total as u64), jobs.map(|found| found.jobs.len() as u64))
    }
}

/// The numbers of the processes of a head, by their names.
fn processes(directory: &Path) -> BTreeMap<String, u32> {
    let number = |(name, text): (String, String)| Some((name, text.trim().parse().ok()?));
    notes(directory, PID).filter_map(number).collect()
}

/// What is wrong with parts of a head.
fn problems(directory: &Path) -> Vec<String> {
    let mut problems: Vec<(String, String)> = notes(directory, PROBLEM).collect();
    problems.sort();
    problems.into_iter().map(|(_, text)| text.trim().to_owned()).collect()
}

/// The files of daemons whose names end so: the names of the daemons, and the texts.
fn notes(directory: &Path, ending: &str) -> impl Iterator<Item = (String, String)> {
    let entries = fs::read_dir(directory.join("run")).into_iter().flatten().flatten();
    let is_one = move |path: &PathBuf| path.extension().is_some_and(|found| found == ending);
    entries.map(|entry| entry.path()).filter(is_one).filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        Some((name, fs::read_to_string(path).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn names_that_lead_to_this_machine_alone_are_refused_with_the_reason() {
        let refused = reachable("localhost").await.unwrap_err().to_string();
        assert!(refused.contains("the name localhost leads to 127."), "{refused}");
        assert!(refused.contains("--host 127.0.0.1"), "{refused}");
        assert!(reachable("0.0.0.0").await.is_err());
        let refused = reachable("no-such-host.invalid").await.unwrap_err().to_string();
        assert!(refused.contains("has no address"), "{refused}");
        for address in ["127.0.0.1", "10.1.2.3", "fd00::1"] {
            assert_eq!(reachable(address).await.unwrap(), address.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn secrets_are_shown_to_a_person_only_and_given_to_no_member() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path(), "head", &HEAD_FOLDERS).unwrap();
        let serves =
            Serves { version: VERSION, host: "alpha".into(), port_base: HeadPorts::from(9000) };
        let strings = Strings {
            serves: serves.clone(),
            node: "corona1:node:NODE".into(),
            login: "corona1:submit:LOGIN".into(),
            user: "ann".into(),
        };
        let shown = serves.ready(&home, &strings, true);
        assert!(shown.contains("NODE") && shown.contains("LOGIN"), "{shown}");
        let printed = serves.ready(&home, &strings, false);
        assert!(!printed.contains("corona1:") && printed.contains("head status"), "{printed}");

        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let start = Start {
            directory: Directory { dir: None },
            host: None,
            port_base: None,
            overrides: vec![set("corona.cm.web.kill.token", "hush"), set("mapred.map.tasks", "7")],
        };
        start.write_configuration(&home, &serves, [10, 0, 0, 1].into()).unwrap();
        let read = |path: &Path| fs::read_to_string(home.root.join(path)).unwrap();
        let own = Path::new("conf/core-site.xml");
        let mode = fs::metadata(home.root.join(own)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (own, given) = (read(own), read(Path::new(CLUSTER_FILE)));
        assert!(own.contains("hush"), "{own}");
        assert!(given.contains("mapred.map.tasks") && !given.contains("hush"), "{given}");
    }

    #[test]
    fn a_head_keeps_its_name_and_ports() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path(), "head", &HEAD_FOLDERS).unwrap();
        let start = |host: Option<&str>, port_base| Start {
            directory: Directory { dir: None },
            host: host.map(str::to_owned),
            port_base,
            overrides: Vec::new(),
        };
        let first = start(Some("alpha"), Some(9000)).serves(&home).unwrap();
        write_private(&home.root.join(HEAD_FILE), &serde_json::to_string(&first).unwrap()).unwrap();
        assert_eq!(start(None, None).serves(&home).unwrap(), first);
        let fixture = include_str!("../../fixtures/versions/head.json");
        assert_eq!(serde_json::to_string(&first).unwrap(), fixture.trim_end());
        assert_eq!(serde_json::from_str::<Serves>(fixture).unwrap(), first);
        let moved = start(Some("beta"), None).serves(&home).unwrap();
        assert_eq!((&*moved.host, moved.port_base), ("beta", HeadPorts::from(9000)));
        fs::write(home.root.join(HEAD_FILE), r#"{"version":2,"host":"a","port_base":1}"#).unwrap();
        let refused = start(None, None).serves(&home).unwrap_err().to_string();
        assert!(refused.contains("unknown form 2"), "{refused}");
        let another = Home::open(dir.path(), "head", &[]).err().unwrap().to_string();
        assert!(another.contains("another head uses"), "{another}");
    }
}
