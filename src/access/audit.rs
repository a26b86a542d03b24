//! Who has done what: the actions that change the cluster or a job, in the log and, the last ones of each daemon,
//! at a path of its pages and for its stream of events.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::certificate::Identified;
use crate::rights::Change;
use crate::role::Role;
use crate::table::GrantId;

/// Characters of an outcome.
const MAX_OUTCOME: usize = 200;
/// Actions that a daemon remembers, of each kind.
const KEPT: usize = 1000;

static LAST: Mutex<Last> =
    Mutex::new(Last { number: 0, cluster: VecDeque::new(), jobs: VecDeque::new() });
/// The number of the last action.
static NEWEST: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

/// The last actions of each kind: many jobs do not displace what an administrator has done.
struct Last {
    number: u64,
    cluster: VecDeque<Numbered>,
    jobs: VecDeque<Numbered>,
}

#[derive(Clone)]
struct Numbered {
    number: u64,
    at: SystemTime,
    action: Arc<Action>,
}

/// Something that was done to the cluster or to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What it changes.
    pub changes: Change,
    /// The role of a member; a plain peer and a user of the head's machine have none.
    pub role: Option<Role>,
    /// The member, or who else it was.
    pub name: String,
    /// The access string that the member's certificate was issued for.
    pub access: Option<GrantId>,
    /// The address and the port, or where else it was.
    pub from: String,
    /// The call, or the path of the page.
    pub action: String,
    /// `done`, perhaps with a result, or why not.
    pub outcome: String,
}

/// An action and when it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// In milliseconds since 1970.
    pub time_ms: i64,
    /// What was done.
    #[serde(flatten)]
    pub action: Arc<Action>,
}

/// Who acts.
#[derive(Clone, Debug)]
pub(crate) enum Actor {
    Member(Arc<Identified>),
    /// One without a certificate, where such may call.
    Plain,
}

/// An action that a peer has begun. It is noted when its outcome is known, or that it was not ended.
#[derive(Debug, Default)]
#[must_use]
pub struct Noted(Option<Begun>);

#[derive(Debug)]
struct Begun {
    change: Change,
    who: Actor,
    from: SocketAddr,
    action: String,
}

impl Noted {
    pub(crate) fn begin(change: Change, who: Actor, from: SocketAddr, action: String) -> Noted {
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

/// Notes an action of a peer.
pub(crate) fn note(change: Change, who: &Actor, from: SocketAddr, action: &str, outcome: &str) {
    let (role, name, access) = match who {
        Actor::Member(who) => (Some(who.role), who.name.clone(), Some(who.grant)),
        Actor::Plain => (None, "a plain peer".to_owned(), None),
    };
    // The reason of a failure may have text of the peer.
    let outcome = outcome.chars().take(MAX_OUTCOME).collect();
    let (from, action) = (from.to_string(), action.to_owned());
    keep(SystemTime::now(), Action { changes: change, role, name, access, from, action, outcome });
}

/// Notes what a user of this machine has done with the authority.
pub(crate) fn note_here(at: SystemTime, user: String, action: String) {
    let (from, outcome) = ("this machine".to_owned(), "done".to_owned());
    let (role, access) = (None, None);
    keep(at, Action { changes: Change::Cluster, role, name: user, access, from, action, outcome });
}

fn keep(at: SystemTime, action: Action) {
    let who = who(&action);
    let Action { from, action: what, outcome, .. } = &action;
    tracing::info!(target: "audit", who, from, action = what, outcome, "Privileged action");
    let mut last = lock();
    last.number += 1;
    let number = last.number;
    let kept = match action.changes {
        Change::Cluster => &mut last.cluster,
        Change::Jobs => &mut last.jobs,
    };
    if kept.len() >= KEPT {
        kept.pop_front();
    }
    kept.push_back(Numbered { number, at, action: Arc::new(action) });
    drop(last);
    NEWEST.send_replace(number);
}

/// The last actions, first those that change the cluster, then those that change jobs.
pub fn last_actions() -> Vec<Done> {
    let last = lock();
    last.cluster.iter().chain(&last.jobs).map(Numbered::done).collect()
}

/// The same as text, a line for each: when, from where, who, what, and what became of it.
pub fn last_actions_as_text() -> String {
    last_actions().iter().map(|done| format!("{done}\n")).collect()
}

/// Follows what is done from now on.
#[derive(Debug)]
pub struct Following {
    newest: watch::Receiver<u64>,
    seen: u64,
}

impl Following {
    /// What was done before is left out.
    pub fn new() -> Following {
        let newest = NEWEST.subscribe();
        let seen = *newest.borrow();
        Following { newest, seen }
    }

    /// The next actions, in the order in which they were done. Dropping the future loses nothing. Of more than are
    /// kept, the first ones are left out.
    pub async fn next(&mut self) -> Vec<Done> {
        let seen = self.seen;
        let newest = self.newest.wait_for(|newest| *newest > seen).await.map(|newest| *newest);
        // The sender lives as long as the process.
        let Ok(newest) = newest else { return std::future::pending().await };
        let last = lock();
        let all = last.cluster.iter().chain(&last.jobs);
        let mut new: Vec<&Numbered> =
            all.filter(|action| action.number > seen && action.number <= newest).collect();
        new.sort_unstable_by_key(|action| action.number);
        self.seen = newest;
        new.into_iter().map(Numbered::done).collect()
    }
}

impl Default for Following {
    fn default() -> Following {
        Following::new()
    }
}

impl Numbered {
    fn done(&self) -> Done {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Done { time_ms, action: self.action.clone() }
    }
}

/// A line: when, from where, who, what, and what became of it.
impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.time_ms).saturating_mul(1_000_000);
        let at =
            OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (date, (hour, minute, second)) = (at.date(), at.to_hms());
        let Action { from, action, outcome, .. } = &*self.action;
        let who = who(&self.action);
        // A path and the reason of a failure have text of the peer.
        let (action, outcome) = (action.escape_default(), outcome.escape_default());
        write!(f, "{date}T{hour:02}:{minute:02}:{second:02}Z {from} {who}: {action}: {outcome}")
    }
}

fn who(action: &Action) -> String {
    match (action.role, action.access, &action.name) {
        (Some(role), Some(access), name) => format!("{role} {name} (access {access})"),
        (_, _, name) => name.clone(),
    }
}

fn lock() -> MutexGuard<'static, Last> {
    // Each change can be used after a panic too.
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ann() -> Actor {
        Actor::Member(Arc::new(Identified {
            role: Role::Admin,
            name: "ann".to_owned(),
            grant: GrantId::HEAD,
        }))
    }

    #[test]
    fn a_line_says_who_did_what_when_and_from_where() {
        let at = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let action = Action {
            changes: Change::Cluster,
            role: Some(Role::Admin),
            name: "ann".to_owned(),
            access: Some(GrantId::HEAD),
            from: "10.0.0.9:4711".to_owned(),
            action: "POST /a\nb".to_owned(),
            outcome: "failed: no\nnode".to_owned(),
        };
        let numbered = Numbered { number: 1, at, action: Arc::new(action) };
        assert_eq!(
            format!("{}\n", numbered.done()),
            "2027-01-15T08:00:00Z 10.0.0.9:4711 admin ann (access 00000000): POST /a\\nb: failed: no\\nnode\n"
        );
        assert_eq!(
            serde_json::to_string(&numbered.done()).unwrap(),
            r#"{"time_ms":1800000000000,"changes":"cluster","role":"admin","name":"ann","access":"00000000","from":"10.0.0.9:4711","action":"POST /a\nb","outcome":"failed: no\nnode"}"#
        );
    }

    #[tokio::test]
    async fn the_last_actions_are_kept_with_their_outcomes() {
        let from = "10.0.0.9:1".parse().unwrap();
        let mut following = Following::new();
        let begin = |change, who, action: String| Noted::begin(change, who, from, action);
        begin(Change::Cluster, ann(), "kill a session".to_owned()).end(Err(&"no such session"));
        drop(begin(Change::Cluster, Actor::Plain, "drain a node".to_owned()));
        Noted::default().end(Ok(()));
        note_here(UNIX_EPOCH, "root".to_owned(), "revoke access 00000001".to_owned());
        (0..=KEPT).for_each(|job| begin(Change::Jobs, ann(), format!("submit {job}")).end(Ok(())));
        // Tests of one process act beside each other.
        let own = |line: &&str| line.contains(" 10.0.0.9:1 ") || line.contains("access 00000001");
        let last = last_actions_as_text();
        let lines: Vec<&str> = last.lines().filter(own).collect();
        assert_eq!(lines.len(), KEPT + 3);
        for (at, expected) in [
            (0, "admin ann (access 00000000): kill a session: failed: no such session"),
            (1, "10.0.0.9:1 a plain peer: drain a node: the connection ended first"),
            (2, "1970-01-01T00:00:00Z this machine root: revoke access 00000001: done"),
            (3, "submit 1: done"),
            (KEPT + 2, &format!("submit {KEPT}: done")),
        ] {
            assert!(lines[at].ends_with(expected), "{}", lines[at]);
        }
        // A follower sees what is kept in the order in which it was done.
        let followed = following.next().await;
        let own = |done: &&Done| done.action.from == "10.0.0.9:1" || done.time_ms == 0;
        let followed: Vec<&str> =
            followed.iter().filter(own).map(|done| &*done.action.action).collect();
        assert_eq!(
            followed[..4],
            ["kill a session", "drain a node", "revoke access 00000001", "submit 1"]
        );
        assert_eq!(followed.len(), KEPT + 3);
    }
}
