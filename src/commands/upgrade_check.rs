//! `corona admin upgrade-check`: which daemon runs which version, what to restart in which order, and what stands in the
//! way of going back.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use corona::api::cluster::{Node, NodeProblem};
use corona::api::{Index, cluster as api};
use corona::config::HostPort;
use corona::model::types::Span;
use corona_terminal::console::{Console, FormArguments, printable};
use corona_terminal::counted;
use corona_terminal::table::{Cell, Column, Table, Tone};
use corona_terminal::wrap::wrapped;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::EXIT_FAILED;
use super::cluster::{CallAndPageArguments, ClusterArguments, block_on, parse_address};
use super::nodes;
use super::version::VERSION;
use super::web::{Answer, Web, leader_of};

/// Nodes that are asked at once.
const AT_ONCE: usize = 32;
/// How long a daemon has for its version.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nodes that are listed each, where they have another version or none.
const MOST_NODES: usize = 20;

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Pages of a further daemon, such as a standby whose port differs from the
    /// leader's; may be repeated
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    pages: Vec<HostPort>,

    #[command(flatten)]
    form: FormArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// The part of a cluster that a daemon has, in the order in which they are upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Standby,
    Leader,
    ClusterManager,
    ProxyJobTracker,
    JobTracker,
    Node,
}

/// A daemon, and the version that it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Daemon {
    part: Part,
    /// Where its pages are.
    address: String,
    /// Its name at the cluster manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Daemon {
    /// A node that cannot be asked, or all of them.
    fn unknown(node: Option<String>, problem: String) -> Daemon {
        let (address, problem) = (String::new(), Some(problem));
        Daemon { part: Part::Node, address, node, version: None, problem }
    }
}

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    /// The version of this program.
    version: &'static str,
    /// Whether all daemons have it.
    all_have_it: bool,
    daemons: Vec<Daemon>,
    /// How many nodes, sessions and instances of the cluster manager have which version, as it knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<api::Versions>,
    /// For how long there has been more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed_ms: Option<i64>,
    /// What is to be done, in this order.
    steps: Vec<String>,
    /// What is to be heeded before a daemon goes back to the version that it has now.
    going_back: Vec<String>,
}

/// What a version writes that earlier ones do not read.
struct Later {
    /// The first version that writes it.
    since: &'static str,
    part: Part,
    text: &'static str,
}

/// In `docs/reference/compatibility-of-versions.md` each has its row.
const LATER: &[Later] = &[
    Later {
        since: "0.2.0",
        part: Part::ClusterManager,
        text: "The cluster manager: versions before 0.2.0 do not read drained nodes, queues of more \
               than two levels, and reserved nodes. Undo drains ('corona nodes drain --undo'), take \
               such queues out of the pools file, and wait until corona_journal_image_timestamp_seconds \
               is later than that.",
    },
    Later {
        since: "0.2.0",
        part: Part::JobTracker,
        text: "The job tracker: stop it with SIGTERM. After a kill -9 a version before 0.2.0 takes the \
               journals of its jobs for in use.",
    },
];

/// The first version whose job tracker and nodes start again in their process.
const IN_PLACE: &str = "0.2.0";

impl Arguments {
    pub(super) fn run(
        self,
        before: ClusterArguments,
        console: &mut Console<'_>,
    ) -> anyhow::Result<ExitCode> {
        let form = self.form;
        let further = self.pages;
        let (cluster, pages) = self.cluster.after(before).find()?;
        let pages = pages.context("the address of the pages is not known: add --http-address")?;
        let (daemons, status) = block_on(async {
            let settings = &cluster.settings;
            let services = [
                (Part::ProxyJobTracker, "proxy job tracker", &settings.finished_jobs),
                (Part::JobTracker, "job tracker", &settings.running_jobs),
            ];
            let mut daemons = instances(&pages, further).await;
            for (part, service, address) in services {
                if let Some(address) = address {
                    let web = Web::of(service, address.clone(), PATIENCE).within(cluster.timeout);
                    daemons.push(asked(part, None, web).await);
                }
            }
            match of_nodes(&pages, settings.node_pages_port, cluster.timeout).await {
                Ok(nodes) => daemons.extend(nodes),
                Err(error) => {
                    let problem = format!("the nodes are not known: {error:#}");
                    daemons.push(Daemon::unknown(None, problem));
                }
            }
            Ok((daemons, pages.found::<api::Status>("/api/v1/status").await))
        })?;
        let mut report = Report::new(daemons);
        if let Some((versions, now_ms)) = status.and_then(|it| Some((it.versions?, it.now_ms))) {
            report.mixed_ms = versions.mixed_since_ms.map(|since| now_ms.saturating_sub(since));
            report.versions = Some(versions);
        }
        form.show(console, &report, |console| report.text(console))?;
        Ok(if report.all_have_it { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
    }
}

/// All instances of the cluster manager that are known.
async fn instances(pages: &Web, further: Vec<HostPort>) -> Vec<Daemon> {
    let mut addresses = vec![pages.address().clone()];
    addresses.extend(further);
    if let Ok(Some(standby)) = pages.standby().await {
        addresses.extend(leader_of(&standby));
    }
    let mut guesses = Vec::new();
    let mut daemons = Vec::new();
    let mut seen = BTreeSet::new();
    for address in addresses {
        if !seen.insert(address.to_string()) {
            continue;
        }
        let web = Web::new(address, PATIENCE);
        if let Some(status) = web.found::<api::Status>("/api/v1/status").await {
            // Of a standby its leader knows the host.
            guesses.extend(status.ha.into_iter().flat_map(|ha| ha.standbys).filter_map(
                |standby| {
                    let (host, _) = standby.instance.rsplit_once(':')?;
                    Some(HostPort { host: host.into(), port: pages.address().port })
                },
            ));
        }
        daemons.push(asked(Part::ClusterManager, None, web).await);
    }
    for address in guesses {
        // Instances whose pages were named have told already.
        let on_host = |daemon: &Daemon| daemon.address.rsplit_once(':').map(|it| it.0.to_owned());
        let is_known = |daemon: &Daemon| {
            daemon.part == Part::Standby && on_host(daemon).as_deref() == Some(&*address.host)
        };
        if daemons.iter().any(is_known) || !seen.insert(address.to_string()) {
            continue;
        }
        let mut daemon = asked(Part::ClusterManager, None, Web::new(address, PATIENCE)).await;
        if let Some(problem) = &mut daemon.problem {
            daemon.part = Part::Standby;
            problem.push_str("; if its pages are elsewhere, name them with --pages");
        }
        daemons.push(daemon);
    }
    daemons
}

/// The nodes that the cluster manager lists. It knows the versions of those that name them; others are asked.
async fn of_nodes(
    pages: &Web,
    port: Option<u16>,
    timeout: Duration,
) -> anyhow::Result<Vec<Daemon>> {
    let mut list = nodes::read(pages).await?;
    let (known, unnamed): (Vec<_>, Vec<_>) =
        list.nodes.into_iter().partition(|node| node.program.is_some());
    list.nodes = unnamed;
    let known = known.into_iter().map(|node| named(node, port));
    // Of several names of a host the last one that was heard of: the others are former nodes.
    list.nodes.sort_by_key(|node| std::cmp::Reverse(node.last_heartbeat_ms));
    let mut hosts = BTreeSet::new();
    list.nodes.retain(|node| {
        node.address.as_ref().is_none_or(|address| hosts.insert(address.host.to_string()))
    });
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut asking = JoinSet::new();
    for node in list.nodes {
        let address = node.address.map(|address| address.host).zip(port);
        let room = room.clone();
        asking.spawn(async move {
            // It is never closed.
            let _room = room.acquire().await;
            match address {
                Some((host, port)) => {
                    let address = HostPort { host: host.into(), port };
                    let web = Web::of("node", address, PATIENCE.min(timeout));
                    asked(Part::Node, Some(node.name), web).await
                }
                None => {
                    let problem = "the address of its pages is not known".to_owned();
                    Daemon::unknown(Some(node.name), problem)
                }
            }
        });
    }
    let mut daemons: Vec<Daemon> = known.chain(asking.join_all().await).collect();
    daemons.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(daemons)
}

/// A node that names its program in heartbeats. What a node runs that sends none any more is not known.
fn named(node: Node, port: Option<u16>) -> Daemon {
    let host = node.address.map(|address| address.host);
    let address = host.map(|host| match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    });
    let is_late = node.problems.contains(&NodeProblem::Late);
    let problem = "it sends no heartbeats; the cluster manager lists it until it expires";
    Daemon {
        part: Part::Node,
        address: address.unwrap_or_default(),
        node: Some(node.name),
        version: node.program.filter(|_| !is_late).map(|program| program.version),
        problem: is_late.then(|| problem.to_owned()),
    }
}

/// Asks a daemon for its version.
async fn asked(part: Part, node: Option<String>, web: Web) -> Daemon {
    let address = web.address().to_string();
    let mut daemon = Daemon { part, address, node, version: None, problem: None };
    match version_of(part, &web).await {
        Ok((part, version)) => {
            daemon.part = part;
            daemon.version = version;
            if daemon.version.is_none() {
                daemon.problem = Some("it shows no version: another program".to_owned());
            }
        }
        Err(error) => daemon.problem = Some(format!("{error:#}")),
    }
    daemon
}

async fn version_of(part: Part, web: &Web) -> anyhow::Result<(Part, Option<String>)> {
    if let Some(standby) = web.standby().await? {
        return Ok((Part::Standby, Some(standby.version)));
    }
    let mut part = part;
    if let Some(status) = web.found::<api::Status>("/api/v1/status").await
        && status.ha.is_some_and(|ha| ha.role == "leader")
    {
        part = Part::Leader;
    }
    if let Answer::Found(index) = web.api::<Index>("/api/v1").await? {
        return Ok((part, Some(index.version)));
    }
    let metrics = web.page_if_any("/metrics").await?.unwrap_or_default();
    let line = metrics.lines().find_map(|line| line.split_once("build_info{version=\""));
    let version = line.and_then(|(_, rest)| rest.split_once('"'));
    Ok((part, version.map(|(version, _)| version.to_owned())))
}

/// Compares versions; a version with a suffix, such as `-dev`, comes just before the one without.
fn order_of(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| {
        let text = text.split_whitespace().next().unwrap_or_default();
        let (numbers, suffix) = text.split_once('-').unwrap_or((text, ""));
        let numbers: Vec<u64> = numbers.split('.').map(|it| it.parse().unwrap_or(0)).collect();
        (numbers, suffix.is_empty(), suffix.to_owned())
    };
    parts(a).cmp(&parts(b))
}

/// Whether a version is one before a release, whose versions in the making count for it.
fn is_before(version: &str, release: &str) -> bool {
    let numbers = version.split(['-', ' ']).next().unwrap_or_default();
    order_of(numbers, release) == Ordering::Less
}

impl Report {
    fn new(mut daemons: Vec<Daemon>) -> Report {
        daemons.sort_by(|a, b| (a.part, &a.node).cmp(&(b.part, &b.node)));
        let own = VERSION.split_whitespace().next().unwrap_or(VERSION);
        for daemon in &mut daemons {
            if daemon.version.as_deref().is_some_and(|it| order_of(it, own) == Ordering::Greater) {
                daemon.problem = Some("it is newer than this program".to_owned());
            }
        }
        let all_have_it = daemons.iter().all(|daemon| daemon.version.as_deref() == Some(own));
        let steps = steps(&daemons, own);
        let going_back = going_back(&daemons);
        let (versions, mixed_ms) = (None, None);
        Report { version: own, all_have_it, daemons, versions, mixed_ms, steps, going_back }
    }

    fn text(&self, console: &Console<'_>) -> String {
        let mut table = Table::new(&[
            Column::whole("DAEMON"),
            Column::text("ADDRESS", 16),
            Column::whole("VERSION"),
            Column::text("PROBLEM", 20),
        ]);
        let is_same = |daemon: &Daemon| daemon.version.as_deref() == Some(self.version);
        let is_node = |daemon: &&Daemon| daemon.part == Part::Node;
        let others = self.daemons.iter().filter(|it| is_node(it) && !is_same(it)).count();
        let mut listed = 0;
        for daemon in &self.daemons {
            if is_node(&daemon) && (is_same(daemon) || listed >= MOST_NODES) {
                continue;
            }
            listed += usize::from(is_node(&daemon));
            let tone = match (&daemon.version, is_same(daemon)) {
                (_, true) => Tone::Plain,
                (Some(_), false) => Tone::Strong,
                (None, false) => Tone::Bad,
            };
            table.row([
                daemon.part.name().into(),
                daemon.address.as_str().into(),
                Cell::new(printable(daemon.version.as_deref().unwrap_or("?")), tone),
                printable(daemon.problem.as_deref().unwrap_or("")).into(),
            ]);
        }
        let mut text = format!("This program has the version {}.\n\n", self.version);
        text.push_str(&table.render(console, false));
        if others > listed {
            let _ = writeln!(text, "and {}", counted((others - listed) as u64, "node"));
        }
        let same = self.daemons.iter().filter(|it| is_node(it) && is_same(it)).count();
        if same > 0 {
            let _ = writeln!(text, "{} with this version", counted(same as u64, "node"));
        }
        if let Some(mixed_ms) = self.mixed_ms {
            let _ = writeln!(text, "Versions have been mixed for at least {}.", Span(mixed_ms));
        }
        let sessions = self.versions.iter().flat_map(|of| &of.versions);
        let sessions = sessions.filter(|of| of.sessions > 0 && of.version != self.version);
        for of in sessions {
            let sessions = counted(of.sessions as u64, "session");
            let _ = writeln!(text, "{sessions} of job trackers with version {}", of.version);
        }
        let mut list = |head: &str, entries: &[String]| {
            if !entries.is_empty() {
                let _ = writeln!(text, "\n{head}:");
            }
            for (number, entry) in entries.iter().enumerate() {
                let entry = format!("{}. {}", number + 1, printable(entry));
                text.push_str(&wrapped(&entry, "  ", console.width));
            }
        };
        list("To upgrade, in this order", &self.steps);
        list("Before going back to the versions above", &self.going_back);
        text
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Standby => "standby",
            Part::Leader => "leader",
            Part::ClusterManager => "cluster manager",
            Part::ProxyJobTracker => "proxy job tracker",
            Part::JobTracker => "job tracker",
            Part::Node => "node",
        }
    }
}

/// What is to be done so that all daemons have this version.
fn steps(daemons: &[Daemon], own: &str) -> Vec<String> {
    // The oldest version of a part decides: what it bears the later ones bear as well.
    let earlier = |part: Part| {
        let of_part = daemons.iter().filter(move |daemon| daemon.part == part);
        let versions = of_part.filter_map(|it| it.version.as_deref());
        let earlier = versions.filter(|version| order_of(version, own) == Ordering::Less);
        earlier.min_by(|a, b| order_of(a, b))
    };
    let has_standby = daemons.iter().any(|daemon| daemon.part == Part::Standby);
    let mut steps = Vec::new();
    if earlier(Part::Standby).is_some() {
        steps.push(
            "The standby: stop it, start this version, and wait until 'corona status' shows it in sync."
                .to_owned(),
        );
    }
    if earlier(Part::Leader).is_some() {
        steps.push(match has_standby {
            true => {
                "The leader: 'corona admin step-down', then stop it and start this version.".into()
            }
            false => {
                "The leader, which has no standby: stop it and start this version; sessions wait \
                      meanwhile."
                    .into()
            }
        });
    }
    if let Some(version) = earlier(Part::ClusterManager) {
        steps.push(match is_before(version, IN_PLACE) {
            false => "The cluster manager: stop it and start this version, which resumes from the \
                      journal; sessions wait meanwhile."
                .to_owned(),
            true => "The cluster manager: stop it and start this version, which resumes from the \
                     journal if there is one; else turn safe mode on and persist the state before."
                .to_owned(),
        });
    }
    if earlier(Part::Standby).or(earlier(Part::Leader)).is_some() {
        steps.push("Gateways, which show no version: one after another.".to_owned());
    }
    if earlier(Part::ProxyJobTracker).is_some() {
        steps.push("The proxy job tracker: stop it and start this version.".to_owned());
    }
    if let Some(version) = earlier(Part::JobTracker) {
        steps.push(match is_before(version, IN_PLACE) {
            false => "The job tracker: replace the program and send SIGHUP ('systemctl reload'); jobs \
                      and clients go on."
                .to_owned(),
            true => format!(
                "The job tracker: stop it and start this version. Jobs go on; Java clients that wait \
                 for {version} have to be started again."
            ),
        });
    }
    if let Some(version) = earlier(Part::Node) {
        steps.push(match is_before(version, IN_PLACE) {
            false => {
                "The nodes, one after another: replace the program and send SIGHUP ('systemctl \
                      reload'); tasks go on."
                    .to_owned()
            }
            true => {
                "The nodes, one after another: 'corona nodes drain NODE --wait', stop it, start \
                     this version."
                    .to_owned()
            }
        });
    }
    steps
}

/// What this version writes that the versions of the daemons do not read.
fn going_back(daemons: &[Daemon]) -> Vec<String> {
    let concerns = |later: &Later, daemon: &Daemon| {
        let is_instance =
            matches!(daemon.part, Part::Standby | Part::Leader | Part::ClusterManager);
        let is_part =
            daemon.part == later.part || (later.part == Part::ClusterManager && is_instance);
        let version = daemon.version.as_deref();
        is_part && version.is_some_and(|version| is_before(version, later.since))
    };
    let of_daemons = |later: &&Later| daemons.iter().any(|daemon| concerns(later, daemon));
    LATER.iter().filter(of_daemons).map(|later| later.text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use corona::api::cluster::Program;

    use super::*;

    fn daemon(part: Part, version: &str) -> Daemon {
        Daemon {
            part,
            address: "a:1".to_owned(),
            node: None,
            version: (!version.is_empty()).then(|| version.to_owned()),
            problem: None,
        }
    }

    #[test]
    fn versions_have_an_order() {
        for (a, b, order) in [
            ("0.1.0", "0.2.0-dev", Ordering::Less),
            ("0.2.0-dev", "0.2.0", Ordering::Less),
            ("0.10.0", "0.9.9", Ordering::Greater),
            ("0.2.0", "0.2.0", Ordering::Equal),
        ] {
            assert_eq!(order_of(a, b), order, "{a} {b}");
        }
        assert!(is_before("0.1.0", "0.2.0") && !is_before("0.2.0-dev", "0.2.0"));
    }

    #[test]
    fn the_order_of_an_upgrade_is_that_of_its_daemons() {
        let parts =
            [Part::Node, Part::JobTracker, Part::Leader, Part::ProxyJobTracker, Part::Standby];
        let daemons: Vec<Daemon> = parts.map(|part| daemon(part, "0.1.0")).into();
        let report = Report::new(daemons);
        assert!(!report.all_have_it);
        let begins: Vec<&str> =
            report.steps.iter().map(|step| step.split([':', ',']).next().unwrap()).collect();
        let expected =
            ["The standby", "The leader", "Gateways", "The proxy job tracker", "The job tracker"];
        assert_eq!(begins[..5], expected);
        assert!(report.steps[5].contains("drain"), "{:?}", report.steps);
        assert_eq!(report.going_back.len(), 2, "{:?}", report.going_back);
    }

    #[test]
    fn a_node_without_heartbeats_has_a_problem_and_no_version() {
        let version = VERSION.split_whitespace().next().unwrap().to_owned();
        for (problems, has_it) in [(vec![], true), (vec![NodeProblem::Late], false)] {
            let program = Program { version: version.clone(), ..Program::default() };
            let node = Node { problems, program: Some(program), ..Node::default() };
            let daemon = named(node, Some(1));
            assert_eq!(daemon.problem.is_none(), has_it);
            assert_eq!(Report::new(vec![daemon]).all_have_it, has_it);
        }
    }

    #[test]
    fn how_long_versions_have_been_mixed_is_said_and_whose_sessions_run() {
        let mut report = Report::new(vec![daemon(Part::Node, "0.1.0")]);
        report.mixed_ms = Some(3 * 24 * 60 * 60 * 1000);
        let version = "0.1.0".to_owned();
        let of = api::VersionCount { version, sessions: 2, ..api::VersionCount::default() };
        report.versions = Some(api::Versions { versions: vec![of], mixed_since_ms: Some(1) });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let text = report.text(&Console::of_test(&mut out, &mut err));
        assert!(text.contains("Versions have been mixed for at least 3 d"), "{text}");
        assert!(text.contains("2 sessions of job trackers with version 0.1.0"), "{text}");
    }

    #[test]
    fn the_oldest_version_of_a_part_decides_and_newer_ones_are_named() {
        let nodes = ["0.2.0-dev", "0.1.0", "999.0.0"].map(|version| daemon(Part::Node, version));
        let report = Report::new(nodes.into());
        assert!(report.steps.len() == 1 && report.steps[0].contains("drain"), "{report:?}");
        let newer = report.daemons.iter().find(|it| it.version.as_deref() == Some("999.0.0"));
        assert_eq!(newer.unwrap().problem.as_deref(), Some("it is newer than this program"));
        let report = Report::new(vec![daemon(Part::Node, "999.0.0")]);
        assert!(!report.all_have_it && report.steps.is_empty(), "{report:?}");
    }

    #[test]
    fn nothing_is_to_be_done_where_all_have_the_version() {
        let own = VERSION.split_whitespace().next().unwrap();
        let report = Report::new(vec![daemon(Part::ClusterManager, own), daemon(Part::Node, own)]);
        assert!(report.all_have_it && report.steps.is_empty() && report.going_back.is_empty());
        let report = Report::new(vec![daemon(Part::ClusterManager, own), daemon(Part::Node, "")]);
        assert!(!report.all_have_it, "a node that does not answer may have another version");
    }
}
