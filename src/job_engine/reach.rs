//! Which silent task trackers count as lost. One that does not answer may have died, or the machine of the
//! job tracker may be cut off from the network. A refused connection is the answer of a machine whose task
//! tracker is gone. Where nothing answers, the others decide: if most machines are silent at the same time,
//! it is the job tracker itself that cannot be reached. Then nobody is lost, and the time counts as nobody's
//! silence. Lost nodes are left to the cluster manager meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_model::types::Millis;

use super::Tracker;

/// The result of an attempt to connect to a silent task tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is a connection.
    Connected,
    /// Its machine refuses the connection.
    Refused,
    /// There is no answer.
    Nothing,
    /// The attempt was not made, for a reason of this machine.
    NotTried,
}

/// What follows from the attempts of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Task trackers that have not answered for too long.
    pub lost: Vec<Tracker>,
    /// For how long this machine was cut off, since the round before.
    pub cut_off_ms: i64,
    /// The nodes that it could not reach meanwhile. Those that it could are as silent as they seem.
    pub out_of_reach: BTreeSet<Arc<str>>,
}

/// The task trackers that do not answer.
#[derive(Debug)]
pub struct Reach {
    unreachable_ms: i64,
    /// Since when.
    missed: BTreeMap<Tracker, Millis>,
    /// When the last round was.
    last: Option<Millis>,
}

impl Reach {
    /// A task tracker is lost when it has not answered for so long.
    pub fn new(unreachable_ms: i64) -> Reach {
        Reach { unreachable_ms, missed: BTreeMap::new(), last: None }
    }

    /// Judges a round: the attempts to connect to all task trackers that are silent. `in_contact` are the
    /// machines of those that are not, and others that have answered.
    pub fn judge(
        &mut self,
        now: Millis,
        in_contact: &BTreeSet<&str>,
        attempts: &[(Tracker, Answer)],
    ) -> Judgement {
        let before = self.last.replace(now);
        self.missed.retain(|at, _| attempts.iter().any(|(other, _)| other == at));
        if is_cut_off(in_contact, attempts) {
            // The first one that answers afterwards shows nothing about the others.
            self.missed.clear();
            let cut_off_ms = before.map_or(0, |before| now.since(before));
            let is_out = |answer: Answer| matches!(answer, Answer::Nothing | Answer::NotTried);
            let out_of_reach = attempts.iter().filter(|it| is_out(it.1));
            let out_of_reach = out_of_reach.map(|(at, _)| at.node.clone()).collect();
            return Judgement { lost: Vec::new(), cut_off_ms, out_of_reach };
        }
        let mut lost = Vec::new();
        for (at, answer) in attempts {
            if matches!(answer, Answer::Connected | Answer::NotTried) {
                self.missed.remove(at);
                continue;
            }
            let since = *self.missed.entry(at.clone()).or_insert(now);
            if now.since(since) >= self.unreachable_ms {
                self.missed.remove(at);
                lost.push(at.clone());
            }
        }
        Judgement { lost, ..Judgement::default() }
    }
}

/// Whether more machines are silent than are not.
fn is_cut_off(in_contact: &BTreeSet<&str>, attempts: &[(Tracker, Answer)]) -> bool {
    let mut heard = in_contact.clone();
    let answers = |answer: Answer| matches!(answer, Answer::Connected | Answer::Refused);
    heard.extend(attempts.iter().filter(|it| answers(it.1)).map(|(at, _)| machine(at)));
    let silent: BTreeSet<&str> = attempts.iter().map(|(at, _)| machine(at)).collect();
    silent.difference(&heard).count() > heard.len()
}

/// The machine of a task tracker.
pub fn machine(at: &Tracker) -> &str {
    at.address.rsplit_once(':').map_or(&at.address, |(host, _)| host)
}
