//! Who has done what: the actions of members that change the cluster or a job, in the log and, the last ones of
//! each daemon, at a path of its pages.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use time::OffsetDateTime;

use crate::certificate::Identified;
use crate::rights::Change;

/// Characters of an outcome.
const MAX_OUTCOME: usize = 200;
/// Actions that a daemon remembers, of each kind.
const KEPT: usize = 1000;

/// The last actions of each kind: many jobs do not displace what an administrator has done.
static LAST: Mutex<Last> = Mutex::new(Last { cluster: VecDeque::new(), jobs: VecDeque::new() });

struct Last {
    cluster: VecDeque<String>,
    jobs: VecDeque<String>,
}

/// An action that a member has begun. It is noted when its outcome is known, or that it was not ended.
#[derive(Debug, Default)]
#[must_use]
pub struct Noted(Option<Begun>);

#[derive(Debug)]
struct Begun {
    change: Change,
    who: Arc<Identified>,
    from: SocketAddr,
    action: String,
}

impl Noted {
    pub(crate) fn begin(
        change: Change,
        who: Arc<Identified>,
        from: SocketAddr,
        action: String,
    ) -> Noted {
        Noted(Some(Begun { change, who, from, action }))
    }

    /// Whether the action is not noted.
    pub fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Notes the outcome: `Err` says why nothing was done.
    pub fn end(mut self, outcome: Result<(), &dyn fmt::Display>) {
        if let Some(begun) = self.0.take() {
            match outcome {
                Ok(()) => begun.note("done"),
                Err(reason) => begun.note(&format!("failed: {reason}")),
            }
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(begun) = self.0.take() {
            begun.note("the connection ended first");
        }
    }
}

impl Begun {
    fn note(self, outcome: &str) {
        let Begun { change, who, from, action } = self;
        note(change, &who, from, &action, outcome);
    }
}

/// Notes an action of a member.
pub(crate) fn note(
    change: Change,
    who: &Identified,
    from: SocketAddr,
    action: &str,
    outcome: &str,
) {
    tracing::info!(target: "audit", %who, %from, action, outcome, "Privileged action");
    let line = line(SystemTime::now(), who, from, action, outcome);
    let mut last = lock();
    let last = match change {
        Change::Cluster => &mut last.cluster,
        Change::Jobs => &mut last.jobs,
    };
    if last.len() >= KEPT {
        last.pop_front();
    }
    last.push_back(line);
}

/// The last actions of members, first those that change the cluster, then those that change jobs, a line for each:
/// when, from where, who, what, and what became of it.
pub fn last_actions() -> String {
    let last = lock();
    last.cluster.iter().chain(&last.jobs).map(String::as_str).collect()
}

fn line(at: SystemTime, who: &Identified, from: SocketAddr, action: &str, outcome: &str) -> String {
    let at = OffsetDateTime::from(at);
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    // A path and the reason of a failure have text of the peer.
    let outcome: String = outcome.chars().take(MAX_OUTCOME).collect();
    let (action, outcome) = (action.escape_default(), outcome.escape_default());
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z {from} {who}: {action}: {outcome}\n")
}

fn lock() -> MutexGuard<'static, Last> {
    // Each change is one call, so it can be used after a panic too.
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;
    use crate::table::GrantId;
    use std::time::{Duration, UNIX_EPOCH};

    fn ann() -> Identified {
        Identified { role: Role::Admin, name: "ann".to_owned(), grant: GrantId::HEAD }
    }

    #[test]
    fn a_line_says_who_did_what_when_and_from_where() {
        let at = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let from = "10.0.0.9:4711".parse().unwrap();
        assert_eq!(
            line(at, &ann(), from, "POST /a\nb", "failed: no\nnode"),
            "2027-01-15T08:00:00Z 10.0.0.9:4711 admin ann (access 00000000): POST /a\\nb: failed: no\\nnode\n"
        );
    }

    #[test]
    fn the_last_actions_are_kept_with_their_outcomes() {
        let from = "10.0.0.9:1".parse().unwrap();
        let begin = |change, action: String| Noted::begin(change, Arc::new(ann()), from, action);
        begin(Change::Cluster, "kill a session".to_owned()).end(Err(&"no such session"));
        drop(begin(Change::Cluster, "drain a node".to_owned()));
        Noted::default().end(Ok(()));
        (0..=KEPT).for_each(|job| begin(Change::Jobs, format!("submit {job}")).end(Ok(())));
        let last = last_actions();
        let actions: Vec<&str> =
            last.lines().filter_map(|line| line.split_once("): ")?.1.into()).collect();
        assert_eq!(actions.len(), KEPT + 2);
        assert_eq!(actions[0], "kill a session: failed: no such session");
        assert_eq!(actions[1], "drain a node: the connection ended first");
        assert_eq!(actions[2], "submit 1: done");
        assert_eq!(actions.last(), Some(&&*format!("submit {KEPT}: done")));
    }
}
