//! `corona admin restart-nodes --rolling`: starts the nodes again, a few at a time. A node that can starts again in its
//! process, and its tasks go on. Another one drains first.
//!
//! [`Window`] decides which nodes may be away at a time; the cluster manager only passes the orders on. So nothing is lost
//! when it fails over, and the command can be started again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use corona::api::cluster::{Node, NodeDetail, NodeProblem, NodeRestarting, Pools};
use corona::engine::types::ResourceType;
use corona::model::text::natural_order;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::drain::{self, Standing};
use super::nodes;
use super::signals::StopSignals;
use super::web::{Answer, Web};
use super::{EXIT_FAILED, one_line};
use corona_terminal::console::{Console, TextForm, printable};
use corona_terminal::counted;

/// Exit status after Ctrl-C, as shells count it.
const EXIT_INTERRUPTED: u8 = 130;
/// The pause between two looks at the cluster, at least.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a node may take to come back, and to say that it does not.
const RETURN: Duration = Duration::from_secs(120);
/// How long a node may be late before it is left out.
const LATE: Duration = Duration::from_secs(60);
/// An order that a fail-over of the cluster manager may have lost is given again after this time.
const ORDER_AGAIN: Duration = Duration::from_secs(15);
/// Nodes that are looked at in a round, to find some that may be away.
const CANDIDATES: usize = 32;

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The share of a queue's slots that may be on nodes that are away, in percent.
    pub(super) share: u8,
    /// How long a node may drain.
    pub(super) wait: Duration,
    /// The names of nodes or hosts; all nodes if there are none.
    pub(super) names: Vec<String>,
}

/// Slots in use, by queue and type.
type Used = BTreeMap<(String, ResourceType), u64>;

/// What a node takes with it while it is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Taken {
    used: Used,
    /// All slots of the node, in use or not.
    slots: BTreeMap<ResourceType, u64>,
}

/// Which nodes may be away at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Window {
    share: u64,
    /// What each queue has in use, and all slots of the cluster.
    all: Taken,
}

/// A node that is away, or on its way there.
struct Away {
    name: String,
    host: String,
    /// Names of nodes of its host that are not the one that follows it.
    known: BTreeSet<String>,
    taken: Taken,
    step: Step,
    since: Instant,
    ordered: Instant,
    /// What ran there when it was ended.
    ended: usize,
}

enum Step {
    /// It starts again in its process; when the former program was started.
    InPlace {
        former: i64,
    },
    Draining,
    /// Its process ends.
    Exiting,
    /// It has not come back.
    Lost,
}

/// How a node fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    /// Its tasks went on.
    RestartedInPlace,
    /// It drained first.
    Restarted,
    /// It goes on as before.
    Refused,
    /// Nothing was done.
    Skipped,
    /// It has not come back.
    Lost,
}

/// The result for a node.
#[derive(Debug, Serialize)]
struct Done {
    node: String,
    result: Fate,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Grants that were in use when its process was ended; their tasks run again.
    ended_grants: usize,
    seconds: f64,
}

/// The result for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether all nodes have started again.
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    nodes: &'a [Done],
    /// Nodes whose turn did not come.
    remaining: usize,
}

impl Window {
    /// Whether a node may go away beside those that are. One alone always may: else nothing would ever be done where a
    /// queue uses few slots.
    fn admits<'a>(&self, away: impl Iterator<Item = &'a Taken> + Clone, node: &Taken) -> bool {
        let has_room = |all: u64, taken: u64| taken.saturating_mul(100) <= all * self.share;
        if away.clone().next().is_none() {
            return true;
        }
        let queues = node.used.iter().all(|(queue, used)| {
            let others: u64 = away.clone().filter_map(|taken| taken.used.get(queue)).sum();
            has_room(self.all.used.get(queue).copied().unwrap_or_default(), others + used)
        });
        let types = node.slots.iter().all(|(kind, slots)| {
            let others: u64 = away.clone().filter_map(|taken| taken.slots.get(kind)).sum();
            has_room(self.all.slots.get(kind).copied().unwrap_or_default(), others + slots)
        });
        queues && types
    }
}

impl Taken {
    fn of(detail: &NodeDetail) -> Taken {
        let mut used = Used::new();
        for grant in &detail.grants {
            let queue = format!("{}.{}", grant.pool.group, grant.pool.pool);
            *used.entry((queue, grant.kind)).or_default() += 1;
        }
        Taken { used, slots: slots_of(&detail.node) }
    }
}

fn slots_of(node: &Node) -> BTreeMap<ResourceType, u64> {
    let slots = node.slots.iter().flatten();
    slots.map(|(kind, slots)| (*kind, slots.total)).filter(|(_, total)| *total > 0).collect()
}

/// Restarts the nodes, and shows what it does.
///
/// # Errors
/// A cluster manager that does not answer at the beginning, or is another program.
pub(super) async fn run(
    web: &Web,
    wanted: Wanted,
    form: TextForm,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let mut all = all_nodes(web).await?;
    all.sort_by(|a, b| natural_order(&a.name, &b.name));
    if !wanted.names.is_empty() {
        let meant: BTreeSet<String> = drain::meant(&wanted.names, &all)?.into_iter().collect();
        all.retain(|node| meant.contains(&node.name));
    }
    let mut rolling = Rolling {
        web,
        wanted,
        waiting: all.into(),
        away: Vec::new(),
        done: Vec::new(),
        followers: BTreeSet::new(),
        late_since: BTreeMap::new(),
        idle_since: None,
        text: String::new(),
    };
    let is_json = form == TextForm::Json;
    let mut interrupted = false;
    let stuck = loop {
        let began = Instant::now();
        let stepped = {
            // A step is ended before the command leaves: else nodes would be left drained.
            let mut step = pin!(rolling.step());
            loop {
                tokio::select! {
                    biased;
                    _ = signals.next(), if !interrupted => interrupted = true,
                    stepped = step.as_mut() => break stepped,
                }
            }
        };
        let text = std::mem::take(&mut rolling.text);
        if !is_json {
            console.print(&text)?;
        }
        if interrupted {
            break Some("interrupted".to_owned());
        }
        match stepped {
            Ok(Stepped::Over) => break None,
            Ok(Stepped::Stuck(why)) => break Some(why),
            Ok(Stepped::GoesOn) => {}
            // A cluster manager may restart in between.
            Err(error) => {
                console.complain(&format!("corona: {}; trying again\n", one_line(&error)))
            }
        }
        // A large cluster is not asked all the time.
        tokio::select! {
            () = sleep(PAUSE.max(began.elapsed() * 4)) => {}
            _ = signals.next() => {
                interrupted = true;
                break Some("interrupted".to_owned());
            }
        }
    };
    rolling.leave_off().await;
    let status = match (&stuck, rolling.all_restarted()) {
        (None, true) => ExitCode::SUCCESS,
        _ if interrupted => ExitCode::from(EXIT_INTERRUPTED),
        _ => ExitCode::from(EXIT_FAILED),
    };
    rolling.conclude(stuck.as_deref(), is_json, console)?;
    Ok(status)
}

/// All nodes, from a cluster manager of this program.
async fn all_nodes(web: &Web) -> anyhow::Result<Vec<Node>> {
    let list = nodes::read(web).await?;
    if list.nodes.iter().any(|node| node.address.is_none()) {
        bail!("{} are of another program: restart the nodes without --rolling", web.who());
    }
    Ok(list.nodes)
}

enum Stepped {
    GoesOn,
    Over,
    /// Nothing more can be done, for this reason.
    Stuck(String),
}

/// The nodes that wait, that are away and that are done.
struct Rolling<'a> {
    web: &'a Web,
    wanted: Wanted,
    waiting: VecDeque<Node>,
    away: Vec<Away>,
    done: Vec<Done>,
    /// Nodes that have followed one that was away.
    followers: BTreeSet<String>,
    /// Since when nodes that wait are late.
    late_since: BTreeMap<String, Instant>,
    /// Since when nothing has begun although nodes wait.
    idle_since: Option<Instant>,
    /// Lines to show.
    text: String,
}

impl Rolling<'_> {
    async fn step(&mut self) -> anyhow::Result<Stepped> {
        let list = all_nodes(self.web).await?;
        let mut away = std::mem::take(&mut self.away).into_iter();
        while let Some(mut node) = away.next() {
            let seen = self.look(&mut node, &list).await;
            match seen {
                Ok(Some((fate, reason))) => self.finish(&node, fate, reason),
                Ok(None) => self.away.push(node),
                Err(error) => {
                    self.away.push(node);
                    self.away.extend(away);
                    return Err(error);
                }
            }
        }
        let began = self.begin_some(&list).await?;
        let is_busy = self.away.iter().any(|node| !matches!(node.step, Step::Lost));
        if is_busy || began > 0 {
            self.idle_since = None;
            return Ok(Stepped::GoesOn);
        }
        if self.waiting.is_empty() {
            return Ok(Stepped::Over);
        }
        let lost = self.away.len();
        if lost == 0 {
            // It has heard none of them since its start.
            let since = *self.idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() <= RETURN {
                return Ok(Stepped::GoesOn);
            }
            return Ok(Stepped::Stuck(format!(
                "{} have heard nothing of {} since their start; are they in safe mode?",
                self.web.who(),
                counted(self.waiting.len() as u64, "node")
            )));
        }
        Ok(Stepped::Stuck(format!(
            "{} not come back: no other node may be away beside {}",
            counted_nodes(lost, "has", "have"),
            if lost == 1 { "it" } else { "them" }
        )))
    }

    /// Looks how far a node is, and has it take the next step. Returns its fate when it is done.
    async fn look(
        &mut self,
        away: &mut Away,
        list: &[Node],
    ) -> anyhow::Result<Option<(Fate, Option<String>)>> {
        let node = list.iter().find(|node| node.name == away.name);
        match &away.step {
            Step::InPlace { former } => {
                let Some(node) = node else {
                    // Its process has ended.
                    away.step = Step::Exiting;
                    away.ordered = Instant::now();
                    return Ok(None);
                };
                if let Some(program) = &node.program {
                    if program.started_ms != *former {
                        return Ok(Some((Fate::RestartedInPlace, None)));
                    }
                    if let Some(reason) = &program.restart_refused {
                        return Ok(Some((Fate::Refused, Some(reason.clone()))));
                    }
                }
                if away.since.elapsed() > RETURN {
                    if node.problems.contains(&NodeProblem::Late) {
                        // Neither program runs: the next nodes would fare like it.
                        self.say(&away.name, "has not come back");
                        away.step = Step::Lost;
                        return Ok(None);
                    }
                    let why = "it has not started again after the order".to_owned();
                    return Ok(Some((Fate::Refused, Some(why))));
                }
                if away.ordered.elapsed() > ORDER_AGAIN {
                    self.order(away, "in-place").await?;
                }
            }
            Step::Draining => match drain::look(self.web, &away.name).await {
                Standing::Draining(load) => {
                    let is_late = away.since.elapsed() > self.wanted.wait;
                    if load.is_nothing() || is_late {
                        away.ended = load.grants();
                        away.step = Step::Exiting;
                        let ends = match away.ended {
                            0 => String::new(),
                            many => format!(
                                "; it has drained for long enough, and {} run elsewhere again",
                                counted(many as u64, "task")
                            ),
                        };
                        self.say(&away.name, &format!("restarts{ends}"));
                        self.order(away, "exit").await?;
                    }
                }
                Standing::Undone => {
                    return Ok(Some((Fate::Skipped, Some("its drain was undone".to_owned()))));
                }
                Standing::Left => {
                    away.step = Step::Exiting;
                    away.ordered = Instant::now();
                }
                Standing::Unknown(_) => {}
            },
            Step::Exiting | Step::Lost => {
                let follower = list.iter().find(|node| {
                    is_on(node, &away.host)
                        && !away.known.contains(&node.name)
                        && !self.followers.contains(&node.name)
                        && !node.problems.contains(&NodeProblem::Late)
                });
                if let (None, Some(follower)) = (node, follower) {
                    self.followers.insert(follower.name.clone());
                    return Ok(Some((Fate::Restarted, None)));
                }
                if matches!(away.step, Step::Lost) {
                    return Ok(None);
                }
                if away.ordered.elapsed() > RETURN {
                    self.say(&away.name, "has not come back");
                    away.step = Step::Lost;
                } else if node.is_some() && away.ordered.elapsed() > ORDER_AGAIN {
                    self.order(away, "exit").await?;
                }
            }
        }
        Ok(None)
    }

    /// Has the next nodes begin that may be away. Returns how many.
    async fn begin_some(&mut self, list: &[Node]) -> anyhow::Result<usize> {
        let window = self.window(list).await?;
        let count = self.waiting.len().min(CANDIDATES);
        let names: Vec<String> =
            self.waiting.iter().take(count).map(|node| node.name.clone()).collect();
        let details = details(self.web, &names).await?;
        let mut began = 0;
        for name in names {
            let Some(node) = self.waiting.pop_front() else { break };
            let Some(detail) = details.get(&name) else {
                self.skip(&name, "it has left the cluster");
                continue;
            };
            if let Some(why) = unfit(&detail.node) {
                self.skip(&name, why);
                continue;
            }
            if detail.node.problems.contains(&NodeProblem::Late) {
                // As after a restart of the cluster manager or a gateway.
                let since = *self.late_since.entry(name.clone()).or_insert_with(Instant::now);
                if since.elapsed() > LATE {
                    self.skip(&name, "it is late: its heartbeats do not come");
                } else {
                    self.waiting.push_back(node);
                }
                continue;
            }
            self.late_since.remove(&name);
            let taken = Taken::of(detail);
            // A cluster manager that has just started does not know yet what runs it.
            if !detail.node.heard {
                self.waiting.push_back(node);
                continue;
            }
            if !window.admits(self.away.iter().map(|away| &away.taken), &taken) {
                self.waiting.push_back(node);
                continue;
            }
            match self.begin(detail, taken, list).await {
                Ok(()) => began += 1,
                Err(error) => {
                    self.waiting.push_front(node);
                    return Err(error);
                }
            }
        }
        Ok(began)
    }

    /// What queues use now, and all slots.
    async fn window(&self, list: &[Node]) -> anyhow::Result<Window> {
        let pools = match self.web.api::<Pools>("/api/v1/pools").await? {
            Answer::Found(pools) => pools,
            Answer::NotFound(_) | Answer::NoApi => bail!("{} list no queues", self.web.who()),
        };
        let mut all = Taken::default();
        for pool in pools.pools {
            let Some(name) = pool.pool else { continue };
            let queue = format!("{}.{name}", pool.group);
            for (kind, counts) in pool.types {
                let granted = u64::try_from(counts.granted).unwrap_or_default();
                *all.used.entry((queue.clone(), kind)).or_default() += granted;
            }
        }
        for node in list {
            for (kind, slots) in slots_of(node) {
                *all.slots.entry(kind).or_default() += slots;
            }
        }
        Ok(Window { share: self.wanted.share.into(), all })
    }

    async fn begin(
        &mut self,
        detail: &NodeDetail,
        taken: Taken,
        list: &[Node],
    ) -> anyhow::Result<()> {
        let node = &detail.node;
        let host = node.address.as_ref().map(|at| at.host.clone()).unwrap_or_default();
        let now = Instant::now();
        let mut away = Away {
            name: node.name.clone(),
            known: names_on(list, &host),
            host,
            taken,
            step: Step::Draining,
            since: now,
            ordered: now,
            ended: 0,
        };
        match &node.program {
            Some(program) => {
                away.step = Step::InPlace { former: program.started_ms };
                self.order(&mut away, "in-place").await?;
                self.say(&away.name, "restarts in place");
            }
            None => {
                if let Err(error) = drain::set(self.web, &node.name, true).await {
                    // Without its answer nothing says whether the node drains.
                    let _ = drain::set(self.web, &node.name, false).await;
                    return Err(error);
                }
                self.say(&away.name, "drains, since it cannot restart in place");
            }
        }
        self.away.push(away);
        Ok(())
    }

    /// Has a node start again.
    async fn order(&mut self, away: &mut Away, how: &str) -> anyhow::Result<()> {
        away.ordered = Instant::now();
        let path = format!("{}/restart", nodes::path_of(&away.name));
        match self.web.send_form::<NodeRestarting>(&path, &[("how", how)]).await? {
            // One that has left comes back under another name, or is missed.
            Answer::Found(_) | Answer::NotFound(_) => Ok(()),
            Answer::NoApi => bail!("{} restart no nodes: upgrade them first", self.web.who()),
        }
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.say(name, &format!("is left as it is: {why}"));
        self.done.push(Done {
            node: name.to_owned(),
            result: Fate::Skipped,
            reason: Some(why.to_owned()),
            ended_grants: 0,
            seconds: 0.0,
        });
    }

    fn finish(&mut self, away: &Away, fate: Fate, reason: Option<String>) {
        let seconds = away.since.elapsed().as_secs_f64();
        let why = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let said = match fate {
            Fate::RestartedInPlace => format!("restarted in place after {seconds:.1} s"),
            Fate::Restarted => format!("restarted after {seconds:.1} s"),
            Fate::Refused => format!("does not restart{why}"),
            Fate::Skipped => format!("is left as it is{why}"),
            Fate::Lost => "has not come back".to_owned(),
        };
        self.say(&away.name, &said);
        self.done.push(Done {
            node: away.name.clone(),
            result: fate,
            reason,
            ended_grants: away.ended,
            seconds,
        });
    }

    fn say(&mut self, name: &str, text: &str) {
        self.text.push_str(&format!("{} {}\n", printable(name), printable(text)));
    }

    /// Undoes drains of nodes that are not ended any more, and counts those that have not come back.
    async fn leave_off(&mut self) {
        for away in std::mem::take(&mut self.away) {
            match away.step {
                Step::Draining => {
                    let undone = drain::set(self.web, &away.name, false).await;
                    let why = match undone {
                        Ok(_) => "its drain is undone".to_owned(),
                        Err(error) => format!("its drain goes on: {}", one_line(&error)),
                    };
                    self.finish(&away, Fate::Skipped, Some(why));
                }
                Step::Lost => {
                    let why = format!("no node of host {} has followed it", away.host);
                    self.finish(&away, Fate::Lost, Some(why));
                }
                Step::InPlace { .. } | Step::Exiting => {
                    let why = "it was restarting when the command ended".to_owned();
                    self.finish(&away, Fate::Skipped, Some(why));
                }
            }
        }
    }

    fn all_restarted(&self) -> bool {
        let is_done = |done: &Done| matches!(done.result, Fate::RestartedInPlace | Fate::Restarted);
        self.waiting.is_empty() && self.done.iter().all(is_done)
    }

    fn conclude(
        mut self,
        stuck: Option<&str>,
        is_json: bool,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        let text = std::mem::take(&mut self.text);
        if is_json {
            console.print_json(&Report {
                done: self.all_restarted(),
                reason: stuck,
                nodes: &self.done,
                remaining: self.waiting.len(),
            })?;
        } else {
            console.print(&text)?;
            console.print(&self.summary())?;
        }
        if let Some(why) = stuck {
            let left = match self.waiting.len() {
                0 => String::new(),
                left => format!("; {} not begun", counted_nodes(left, "was", "were")),
            };
            console.complain(&format!("corona: {why}{left}\n"));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let count = |fate| self.done.iter().filter(|done| done.result == fate).count();
        let ended: usize = self.done.iter().map(|done| done.ended_grants).sum();
        let mut parts = vec![format!("{} restarted in place", count(Fate::RestartedInPlace))];
        for (fate, words) in [
            (Fate::Restarted, "restarted after a drain"),
            (Fate::Refused, "refused"),
            (Fate::Skipped, "left as they were"),
            (Fate::Lost, "not come back"),
        ] {
            if count(fate) > 0 {
                parts.push(format!("{} {words}", count(fate)));
            }
        }
        let tasks = match ended {
            0 => String::new(),
            ended => format!("; {} run again", counted(ended as u64, "task")),
        };
        format!("{}: {}{tasks}\n", counted(self.done.len() as u64, "node"), parts.join(", "))
    }
}

/// Why a node is left alone.
fn unfit(node: &Node) -> Option<&'static str> {
    let has = |problem| node.problems.contains(&problem);
    if has(NodeProblem::Revoked) {
        return Some("its access was revoked");
    }
    if node.program.is_none() && has(NodeProblem::Draining) {
        return Some("an operator drains it, and it would serve again");
    }
    None
}

fn is_on(node: &Node, host: &str) -> bool {
    node.address.as_ref().is_some_and(|at| at.host == host)
}

fn names_on(list: &[Node], host: &str) -> BTreeSet<String> {
    list.iter().filter(|node| is_on(node, host)).map(|node| node.name.clone()).collect()
}

fn counted_nodes(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", counted(count as u64, "node"), if count == 1 { one } else { many })
}

/// The nodes of these names that are there.
async fn details(web: &Web, names: &[String]) -> anyhow::Result<BTreeMap<String, NodeDetail>> {
    let mut asking = JoinSet::new();
    for name in names {
        let (web, name) = (web.clone(), name.clone());
        asking.spawn(async move {
            let detail = web.api::<NodeDetail>(&nodes::path_of(&name)).await;
            (name, detail)
        });
    }
    let mut found = BTreeMap::new();
    for (name, answer) in asking.join_all().await {
        if let Answer::Found(detail) = answer? {
            found.insert(name, detail);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(used: &[(&str, u64)], slots: u64) -> Taken {
        let of = |(queue, used): &(&str, u64)| (((*queue).to_owned(), ResourceType::Map), *used);
        Taken { used: used.iter().map(of).collect(), slots: [(ResourceType::Map, slots)].into() }
    }

    fn window(share: u64) -> Window {
        Window { share, all: taken(&[("a", 100), ("b", 8)], 200) }
    }

    #[test]
    fn no_queue_and_no_cluster_lacks_more_than_its_share() {
        for (share, away, node, expected) in [
            // Ten of a hundred, and not one more.
            (10, vec![taken(&[("a", 6)], 2)], taken(&[("a", 4)], 2), true),
            (10, vec![taken(&[("a", 6)], 2)], taken(&[("a", 5)], 2), false),
            // A small queue has its share too.
            (10, vec![taken(&[("a", 1)], 2)], taken(&[("b", 1)], 2), false),
            (25, vec![taken(&[("b", 1)], 2)], taken(&[("b", 1)], 2), true),
            // A queue that uses nothing anywhere else.
            (10, vec![taken(&[], 2)], taken(&[("c", 1)], 2), false),
            // Nodes without tasks take room from all.
            (10, vec![taken(&[], 18)], taken(&[], 2), true),
            (10, vec![taken(&[], 18)], taken(&[], 3), false),
            (100, vec![taken(&[("a", 99)], 150)], taken(&[("a", 1)], 50), true),
        ] {
            let window = window(share);
            assert_eq!(window.admits(away.iter(), &node), expected, "{share} {away:?} {node:?}");
        }
    }

    #[test]
    fn one_node_alone_may_always_be_away() {
        let all = taken(&[("a", 100), ("b", 8)], 200);
        assert!(window(1).admits([].iter(), &all));
        assert!(!window(1).admits([taken(&[], 1)].iter(), &all));
    }

    #[test]
    fn nodes_that_would_be_lost_are_left_alone() {
        let node = |problems: &[NodeProblem], has_program: bool| Node {
            problems: problems.to_vec(),
            program: has_program.then(Default::default),
            ..Node::default()
        };
        for (node, is_fit) in [
            (node(&[], false), true),
            (node(&[NodeProblem::Blacklisted], true), true),
            (node(&[NodeProblem::Draining], true), true),
            (node(&[NodeProblem::Draining], false), false),
            (node(&[NodeProblem::Late], true), true),
            (node(&[NodeProblem::Revoked], true), false),
        ] {
            assert_eq!(unfit(&node).is_none(), is_fit, "{node:?}");
        }
    }
}
