//! `corona nodes drain`: has nodes granted nothing more, and waits until no job would lose anything with them.
//!
//! The cluster manager knows the grants on a node and the sessions that ever had some. Only their job trackers
//! know whether reduces may still fetch what maps have left there; those of the original do not say it, so
//! their sessions count until they end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use corona::api::cluster::{Node, NodeDetail, NodeDraining, NodeProblem, Visitor};
use corona::config::HostPort;
use corona::engine::types::ResourceType;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::cluster::{WebArguments, block_on};
use super::nodes;
use super::signals::StopSignals;
use super::watch::parse_seconds;
use super::web::{Answer, Web};
use super::{EXIT_FAILED, one_line};
use corona_terminal::console::{Console, FormArguments, TextForm, printable};

/// Exit status when the time to wait is over.
const EXIT_WAITED: u8 = 3;
/// Exit status after Ctrl-C, as shells count it.
const EXIT_INTERRUPTED: u8 = 130;

/// The pause between two looks at the nodes.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a job tracker may take for its answer, and how many are asked at a time.
const JOB_TRACKER_TIMEOUT: Duration = Duration::from_secs(5);
const ASKED_AT_ONCE: usize = 32;
/// Sessions that are shown of each node.
const SHOWN: usize = 10;

const EXAMPLES: &str = "\
Examples:
  Before a node is stopped for a repair:
    corona nodes drain tt-000.dc1.example.com --wait
  Let it serve again without a restart:
    corona nodes drain tt-000.dc1.example.com --undo

A drain is in force until --undo, or until the node leaves the cluster; it
survives restarts and fail-overs of the cluster manager. A task tracker that is
started again is granted slots. To keep a machine out for longer, name its host
in the file of cm.hosts.exclude and run 'corona admin refresh-nodes'.

Exit status: 0 done, and with --wait: nothing is lost with the nodes; 1 failed;
2 wrong usage; 3 the time of --wait=SECONDS is over; 130 Ctrl-C. After 3 and 130
the drain stays in force.";

/// Have nodes granted nothing more, so that they can be stopped
///
/// Running tasks go on. With --wait the command ends when none runs on the
/// nodes and no running job needs the output of maps there: stopping them then
/// costs no job anything. Job trackers of the original do not say what they
/// need; their sessions are waited for.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Names of nodes, or of hosts for all nodes there
    #[arg(required = true, value_name = "NODE")]
    names: Vec<String>,

    /// Let them serve again
    #[arg(long, conflicts_with = "wait")]
    undo: bool,

    /// Wait until nothing is lost with the nodes, for at most SECONDS if given
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = parse_seconds)]
    wait: Option<Option<Duration>>,

    #[command(flatten)]
    output: FormArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// The result for programs.
#[derive(Debug, Serialize)]
struct Report {
    nodes: Vec<NodeReport>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    node: String,
    /// Whether it drains.
    draining: bool,
    /// With `--wait`: whether nothing is lost with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<bool>,
    #[serde(flatten)]
    load: Option<Load>,
}

/// What would be lost with a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Load {
    /// Grants there, by type.
    grants: BTreeMap<ResourceType, usize>,
    /// The sessions that need it apart from their grants.
    needed_by: Vec<Need>,
    /// Sessions with grants there, now or before, that the cluster manager has not listed: there are too many.
    not_listed: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Need {
    session: String,
    user: String,
    /// What its job tracker says; absent if it says nothing, so that its end is waited for.
    #[serde(flatten)]
    of: Option<NodeUse>,
}

/// The answer of a job tracker of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeUse {
    running_attempts: usize,
    map_outputs: usize,
}

/// How a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Draining(Load),
    /// Somebody has ended the drain.
    Undone,
    /// It has left the cluster.
    Left,
    /// The cluster manager did not say it.
    Unknown(String),
}

/// Why the wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Over,
    TimeOut(Duration),
    Interrupted,
}

impl Load {
    pub(super) fn is_nothing(&self) -> bool {
        self.grants.is_empty() && self.needed_by.is_empty() && self.not_listed == 0
    }

    /// How many grants are in use there.
    pub(super) fn grants(&self) -> usize {
        self.grants.values().sum()
    }
}

impl Standing {
    fn is_final(&self) -> bool {
        match self {
            Standing::Draining(load) => load.is_nothing(),
            Standing::Undone | Standing::Left => true,
            Standing::Unknown(_) => false,
        }
    }

    fn is_drained(&self) -> bool {
        matches!(self, Standing::Draining(load) if load.is_nothing())
    }
}

/// Drains the nodes, and waits if that is wanted.
///
/// # Errors
/// A node that does not exist, a cluster manager that does not drain or does not answer.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let web = arguments.web.clone().find()?;
    block_on(drain(&arguments, &web, console))
}

async fn drain(
    arguments: &Arguments,
    web: &Web,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    // Before the first change, so that Ctrl-C never leaves an unexplained state.
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let all = nodes::read(web).await?.nodes;
    let names = meant(&arguments.names, &all)?;
    let is_json = arguments.output.output == TextForm::Json;
    for name in &names {
        let draining = set(web, name, !arguments.undo).await?;
        if !is_json {
            let does = if draining { "drains" } else { "does not drain" };
            console.print(&format!("{} {does}\n", printable(name)))?;
        }
    }
    let Some(limit) = arguments.wait else {
        if is_json {
            let report =
                |node| NodeReport { node, draining: !arguments.undo, drained: None, load: None };
            console.print_json(&Report { nodes: names.into_iter().map(report).collect() })?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut seen = BTreeMap::new();
    let waited = watch(web, &names, &mut seen, |text| match is_json {
        true => Ok(()),
        false => Ok(console.print(text)?),
    });
    let end = tokio::select! {
        biased;
        _ = signals.next() => End::Interrupted,
        () = until(limit) => End::TimeOut(limit.unwrap_or_default()),
        done = waited => done.map(|()| End::Over)?,
    };
    if is_json {
        console.print_json(&report(&names, &seen))?;
    }
    Ok(conclude(end, &seen, console))
}

async fn until(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep_until(Instant::now() + limit).await,
        None => std::future::pending().await,
    }
}

/// The nodes of these names and hosts.
pub(super) fn meant(names: &[String], all: &[Node]) -> anyhow::Result<Vec<String>> {
    let mut meant = Vec::new();
    for name in names {
        let is_on = |node: &&Node| node.address.as_ref().is_some_and(|at| at.host == *name);
        let found: Vec<&Node> = match all.iter().find(|node| node.name == *name) {
            Some(node) => vec![node],
            None => all.iter().filter(is_on).collect(),
        };
        if found.is_empty() {
            bail!("there is no node {name}, and none on a host of this name");
        }
        meant.extend(found.into_iter().map(|node| node.name.clone()));
    }
    let mut known = std::collections::BTreeSet::new();
    meant.retain(|name| known.insert(name.clone()));
    Ok(meant)
}

/// Has a node drain or serve again.
pub(super) async fn set(web: &Web, name: &str, on: bool) -> anyhow::Result<bool> {
    let path = format!("{}/drain", nodes::path_of(name));
    let fields = [("on", if on { "1" } else { "0" })];
    match web.send_form::<NodeDraining>(&path, &fields).await? {
        Answer::Found(done) => Ok(done.draining),
        Answer::NotFound(what) => bail!("{what}"),
        Answer::NoApi => bail!(
            "{} cannot drain: name the hosts in the file of cm.hosts.exclude, run 'corona admin \
             refresh-nodes', and wait until the sessions that run now have ended ('corona sessions \
             list')",
            web.who()
        ),
    }
}

/// Looks at the nodes until nothing is to be waited for, and shows what has changed.
async fn watch(
    web: &Web,
    names: &[String],
    seen: &mut BTreeMap<String, Standing>,
    mut show: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        for name in names {
            if seen.get(name).is_some_and(Standing::is_final) {
                continue;
            }
            let standing = look(web, name).await;
            if seen.get(name) != Some(&standing) {
                show(&text_of(name, &standing))?;
                seen.insert(name.clone(), standing);
            }
        }
        if names.iter().all(|name| seen.get(name).is_some_and(Standing::is_final)) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}

pub(super) async fn look(web: &Web, name: &str) -> Standing {
    let detail = match web.api::<NodeDetail>(&nodes::path_of(name)).await {
        Ok(Answer::Found(detail)) => detail,
        Ok(Answer::NotFound(_)) => return Standing::Left,
        Ok(Answer::NoApi) => return Standing::Unknown(format!("{} say nothing", web.who())),
        Err(error) => return Standing::Unknown(one_line(&error)),
    };
    if !detail.node.problems.contains(&NodeProblem::Draining) {
        return Standing::Undone;
    }
    let mut grants = BTreeMap::<ResourceType, usize>::new();
    for grant in &detail.grants {
        *grants.entry(grant.kind).or_default() += 1;
    }
    let not_listed = detail.visitors_total.saturating_sub(detail.visitors.len());
    Standing::Draining(Load { grants, needed_by: needs(name, detail.visitors).await, not_listed })
}

/// The sessions that need the node, as far as their job trackers know.
async fn needs(node: &str, visitors: Vec<Visitor>) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut visitors = visitors.into_iter().peekable();
    while visitors.peek().is_some() {
        let mut asked = JoinSet::new();
        for (at, visitor) in visitors.by_ref().take(ASKED_AT_ONCE).enumerate() {
            let node = node.to_owned();
            asked.spawn(async move {
                let of = match visitor.url.as_deref().and_then(|url| JobTracker::of(url, &node)) {
                    Some(job_tracker) => job_tracker.ask().await,
                    None => None,
                };
                (at, Need { session: visitor.session, user: visitor.user, of })
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(at, _)| *at);
        needs.extend(answers.into_iter().map(|(_, need)| need));
    }
    needs.retain(|need| need.of != Some(NodeUse::default()));
    needs
}

/// Where the job tracker of a session says what it would lose with a node.
#[derive(Debug, PartialEq, Eq)]
struct JobTracker {
    address: HostPort,
    path: String,
}

impl JobTracker {
    /// From the page that the session names: `http://HOST:PORT/jobdetails.jsp?jobid=JOB`, or the same behind a
    /// proxy job tracker, `http://PROXY/proxy?host=HOST&port=PORT&path=PAGE&jobid=JOB`.
    fn of(url: &str, node: &str) -> Option<JobTracker> {
        let (address, rest) = url.strip_prefix("http://")?.split_once('/')?;
        let (page, query) = rest.split_once('?')?;
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let behind = match page {
            "proxy" => {
                let (host, port) = (query.get("host")?, query.get("port")?.parse::<u16>().ok()?);
                format!("/proxy/{}:{port}", encoded(host))
            }
            _ => String::new(),
        };
        let job = encoded(query.get("jobid")?);
        let path = format!("{behind}/api/v1/jobs/{job}/nodes/{}", encoded(node));
        Some(JobTracker { address: address.parse().ok()?, path })
    }

    /// None: it does not say it.
    async fn ask(self) -> Option<NodeUse> {
        let web = Web::of("job tracker", self.address, JOB_TRACKER_TIMEOUT);
        web.found(&self.path).await
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// How a node stands, in lines.
fn text_of(name: &str, standing: &Standing) -> String {
    let name = printable(name);
    let load = match standing {
        Standing::Draining(load) if load.is_nothing() => {
            return format!("{name} is drained\n");
        }
        Standing::Draining(load) => load,
        Standing::Undone => return format!("{name} does not drain\n"),
        Standing::Left => return format!("{name} has left the cluster\n"),
        Standing::Unknown(why) => return format!("{why}; trying again\n"),
    };
    let mut text = format!("{name} is not drained yet:\n");
    let mut add = |line: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {line}");
    };
    if !load.grants.is_empty() {
        let grants = load.grants.iter().map(|(kind, count)| format!("{count} {}", kind.name()));
        add(format!("slots in use: {}", grants.collect::<Vec<_>>().join(", ")));
    }
    for Need { session, user, of } in load.needed_by.iter().take(SHOWN) {
        let what = match of {
            None => "needs not known; until its end".to_owned(),
            Some(NodeUse { running_attempts, map_outputs: 0 }) => {
                counted(*running_attempts, "running attempt", "running attempts")
            }
            Some(NodeUse { map_outputs, .. }) => {
                counted(*map_outputs, "map output to fetch", "map outputs to fetch")
            }
        };
        add(format!("session {} of {}: {what}", printable(session), printable(user)));
    }
    let more = load.needed_by.len().saturating_sub(SHOWN);
    if more > 0 {
        add(format!("and {}", counted(more, "more session", "more sessions")));
    }
    if load.not_listed > 0 {
        add(format!(
            "{} that cannot be asked yet",
            counted(load.not_listed, "session", "sessions")
        ));
    }
    text
}

fn report(names: &[String], seen: &BTreeMap<String, Standing>) -> Report {
    let node = |name: &String| {
        let standing = seen.get(name);
        NodeReport {
            node: name.clone(),
            draining: !matches!(standing, Some(Standing::Undone | Standing::Left)),
            drained: Some(standing.is_some_and(Standing::is_drained)),
            load: match standing {
                Some(Standing::Draining(load)) => Some(load.clone()),
                _ => None,
            },
        }
    };
    Report { nodes: names.iter().map(node).collect() }
}

fn conclude(end: End, seen: &BTreeMap<String, Standing>, console: &mut Console<'_>) -> ExitCode {
    const STAYS: &str = "the drain stays in force until 'nodes drain --undo'";
    let (why, status) = match end {
        End::Over => match seen.values().all(Standing::is_drained) {
            true => return ExitCode::SUCCESS,
            false => (anyhow!("a node was undone or left before it was drained"), EXIT_FAILED),
        },
        End::TimeOut(limit) => {
            (anyhow!("not drained within {} s; {STAYS}", limit.as_secs_f64()), EXIT_WAITED)
        }
        End::Interrupted => (anyhow!("interrupted; {STAYS}"), EXIT_INTERRUPTED),
    };
    console.complain(&format!("corona: {why}\n"));
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_trackers_are_asked_where_their_sessions_pages_are() {
        for (url, expected) in [
            (
                "http://jt:81/jobdetails.jsp?jobid=j_1",
                Some(("jt:81", "/api/v1/jobs/j%5F1/nodes/n%201")),
            ),
            (
                "http://pjt:9/proxy?host=n1&port=81&path=coronajobdetails.jsp&jobid=j",
                Some(("pjt:9", "/proxy/n1:81/api/v1/jobs/j/nodes/n%201")),
            ),
            ("http://jt:81/jobdetails.jsp", None),
            ("http://jt/jobdetails.jsp?jobid=j", None),
            ("http://pjt:9/proxy?host=n1&port=x&jobid=j", None),
            ("ftp://jt:81/a?jobid=j", None),
            ("", None),
        ] {
            let found = JobTracker::of(url, "n 1");
            let found = found.map(|it| (it.address.to_string(), it.path));
            let expected = expected.map(|(at, path)| (at.to_owned(), path.to_owned()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_node_with_sessions_that_are_not_listed_is_not_drained() {
        let mut load = Load { not_listed: 1, ..Load::default() };
        let text = text_of("n", &Standing::Draining(load.clone()));
        assert_eq!(text, "n is not drained yet:\n  1 session that cannot be asked yet\n");
        load.not_listed = 0;
        assert!(Standing::Draining(load).is_drained());
    }

    #[test]
    fn lines_of_many_sessions_are_cut_and_fit() {
        let need = |number| Need {
            session: format!("202611210005.{number}"),
            user: "alexandra".into(),
            of: None,
        };
        let load = Load { needed_by: (1..=17).map(need).collect(), ..Load::default() };
        let text = text_of(&"n".repeat(58), &Standing::Draining(load));
        assert_eq!(text.lines().count(), 1 + SHOWN + 1);
        assert!(text.ends_with("  and 7 more sessions\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
