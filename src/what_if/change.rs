//! Changes of a workload: more or fewer nodes, a larger load, nodes that fail, names made anonymous.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use corona_model::types::PoolName;

use crate::workload::{Failure, Node, Workload};

/// So many copies of a session at most.
pub const MOST_LOAD: f64 = 100.0;

/// So many nodes at most.
pub const MOST_NODES: usize = 1_000_000;

/// Sets the number of nodes: the first ones stay, or further ones like them are added.
pub fn resize(workload: &mut Workload, count: usize) {
    let known = workload.nodes.len();
    workload.nodes.truncate(count);
    if known == 0 {
        return;
    }
    for number in known..count {
        let Some(like) = workload.nodes.get(number % known).cloned() else { return };
        let name: Arc<str> = format!("added-{}", number - known + 1).into();
        workload.nodes.push(Node { name: name.clone(), host: name, ..like });
    }
    if count > known {
        workload.assume("Added nodes are like the known ones, in turn, and no task prefers them.");
    }
}

/// Spreads the nodes over so many racks, one after the other.
pub fn spread(workload: &mut Workload, racks: NonZeroU32) {
    for (place, node) in workload.nodes.iter_mut().enumerate() {
        let number = place % racks.get() as usize + 1;
        node.rack = Some(format!("/rack{number}").into()).filter(|_| racks.get() > 1);
    }
}

/// Lets sessions come so many times as often. Sessions that follow one another are copied or left out together;
/// copies are spread evenly over these chains, and each starts up to a minute after the chain that it copies.
pub fn load(workload: &mut Workload, factor: f64) {
    let factor = factor.clamp(0.0, MOST_LOAD);
    if factor == 1.0 {
        return;
    }
    let originals = std::mem::take(&mut workload.sessions);
    let chains = chains(&originals);
    let mut places: BTreeMap<(u32, u64), u32> = BTreeMap::new();
    let mut all = Vec::new();
    for (place, session) in originals.into_iter().enumerate() {
        let chain = chains.get(place).copied().unwrap_or(0);
        let copies = ((chain + 1) as f64 * factor) as u64 - (chain as f64 * factor) as u64;
        for copy in 0..copies {
            let mut one = session.clone();
            one.follows =
                one.follows.and_then(|(of, delay)| Some((*places.get(&(of, copy))?, delay)));
            places.insert((place as u32, copy), all.len() as u32);
            if copy > 0 {
                one.id = format!("{}+{copy}", session.id).into();
                let shift = (chain as i64 * 7_919 + copy as i64 * 104_729) % 60_000;
                one.at_ms = one.at_ms.saturating_add(shift);
                one.deadline_ms = one.deadline_ms.map(|at| at.saturating_add(shift));
                forget(&mut one);
            }
            all.push(one);
        }
    }
    workload.sessions = all;
    workload.assume(
        "For another load, sessions are copied or left out evenly, those that follow one another together; a copy \
         starts up to a minute after its original.",
    );
}

/// The number of the chain of each session. A session that follows none begins one.
fn chains(sessions: &[crate::Session]) -> Vec<usize> {
    let (mut chains, mut count) = (Vec::with_capacity(sessions.len()), 0);
    for session in sessions {
        let before = session.follows.and_then(|(of, _)| chains.get(of as usize).copied());
        chains.push(before.unwrap_or_else(|| {
            count += 1;
            count - 1
        }));
    }
    chains
}

fn forget(session: &mut crate::Session) {
    session.recorded_ms = None;
    for task in &mut session.tasks {
        (task.waited_ms, task.held_ms) = (None, None);
    }
}

/// Lets nodes fail: those of these names, or the first so many.
///
/// # Errors
/// A node that the workload does not have, by name.
pub fn fail(
    workload: &mut Workload,
    which: &str,
    at_ms: i64,
    for_ms: Option<i64>,
) -> Result<(), String> {
    let until_ms = for_ms.map(|span| at_ms.saturating_add(span));
    let names: Vec<Arc<str>> = match which.parse::<usize>() {
        Ok(count) => workload.nodes.iter().take(count).map(|node| node.name.clone()).collect(),
        Err(_) => which.split(',').map(Arc::from).collect(),
    };
    for node in names {
        if !workload.nodes.iter().any(|known| known.name == node) {
            return Err(node.to_string());
        }
        workload.failures.push(Failure { node, at_ms, until_ms });
    }
    Ok(())
}

/// Replaces the names of users, groups, pools, sessions, nodes, hosts and racks by numbered ones, the same name
/// by the same one.
pub fn anonymise(workload: &mut Workload) {
    let mut names = Names::default();
    workload.name = "anonymous".to_owned();
    for node in &mut workload.nodes {
        node.name = names.of("node", &node.name);
        node.host = names.of("host", &node.host);
        node.rack = node.rack.as_ref().map(|rack| names.of("/rack", rack));
    }
    for failure in &mut workload.failures {
        failure.node = names.of("node", &failure.node);
    }
    for (place, session) in workload.sessions.iter_mut().enumerate() {
        session.id = format!("s{}", place + 1).into();
        session.name = names.of("job", &session.name);
        session.user = names.of("user", &session.user);
        session.groups = session.groups.iter().map(|of| names.of("usergroup", of)).collect();
        session.pool = session.pool.as_ref().map(|pool| PoolName {
            group: names.of("group", &pool.group),
            pool: names.of("pool", &pool.pool),
        });
        for task in &mut session.tasks {
            task.hosts = task.hosts.iter().map(|host| names.of("host", host)).collect();
            task.exclude = task.exclude.iter().map(|host| names.of("host", host)).collect();
        }
    }
}

#[derive(Default)]
struct Names(BTreeMap<(&'static str, Arc<str>), Arc<str>>, BTreeMap<&'static str, usize>);

impl Names {
    fn of(&mut self, kind: &'static str, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.0.get(&(kind, name.clone())) {
            return known.clone();
        }
        let number = self.1.entry(kind).or_default();
        *number += 1;
        let new: Arc<str> = format!("{kind}{number}").into();
        self.0.insert((kind, name.clone()), new.clone());
        new
    }
}
