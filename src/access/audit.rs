//! Who has done what: the actions of members that change the cluster or a job, in the log and, the last ones of
//! each daemon, at a path of its pages.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use time::OffsetDateTime;

use crate::certificate::Identified;

/// Actions that a daemon remembers.
const KEPT: usize = 1000;

static LAST: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Notes an action of a member.
pub(crate) fn note(who: &Identified, from: SocketAddr, action: &str, outcome: &str) {
    tracing::info!(target: "audit", %who, %from, action, outcome, "Privileged action");
    let line = line(SystemTime::now(), who, from, action, outcome);
    let mut last = lock();
    if last.len() >= KEPT {
        last.pop_front();
    }
    last.push_back(line);
}

/// The last actions of members, a line for each: when, from where, who, what, and what became of it.
pub fn last_actions() -> String {
    lock().iter().map(String::as_str).collect()
}

fn line(at: SystemTime, who: &Identified, from: SocketAddr, action: &str, outcome: &str) -> String {
    let at = OffsetDateTime::from(at);
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    // A path is the peer's text.
    let action = action.escape_default();
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z {from} {who}: {action}: {outcome}\n")
}

fn lock() -> MutexGuard<'static, VecDeque<String>> {
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
            line(at, &ann(), from, "POST /a\nb", "allowed"),
            "2027-01-15T08:00:00Z 10.0.0.9:4711 admin ann (access 00000000): POST /a\\nb: allowed\n"
        );
    }

    #[test]
    fn the_last_actions_are_kept() {
        let from = "10.0.0.9:1".parse().unwrap();
        (0..=KEPT).for_each(|number| note(&ann(), from, &format!("call {number}"), "allowed"));
        let last = last_actions();
        assert_eq!(last.lines().count(), KEPT);
        assert!(last.ends_with(&format!("call {KEPT}: allowed\n")), "{last}");
    }
}
