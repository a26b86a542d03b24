//! What an instance that does not lead shows of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::copy_in::Held;
use super::instance_role::Leader;
use super::relay::Counts;
use corona_api::cluster::{StandbyState, StandbyStatus};
use corona_standby::Role;

/// What an instance knows of itself and of the leader before it leads.
#[derive(Debug)]
pub(super) struct StandbyView {
    pub(super) instance: Arc<str>,
    pub(super) leader: watch::Receiver<Option<Leader>>,
    /// Whether there is a leader; otherwise `leader` has the last one.
    pub(super) is_led: watch::Receiver<bool>,
    pub(super) is_connected: watch::Receiver<bool>,
    /// Why this instance was fenced; `None` if it is a standby.
    pub(super) fenced: watch::Receiver<Option<String>>,
    pub(super) held: Arc<Held>,
    pub(super) relayed: Arc<Counts>,
}

impl StandbyView {
    /// What this instance is.
    pub(super) fn status(&self) -> StandbyStatus {
        let progress = self.held.progress();
        let fenced = self.fenced.borrow().clone();
        let role = if fenced.is_some() { Role::Fenced } else { Role::Standby };
        let leader = self.leader.borrow().clone().filter(|_| *self.is_led.borrow());
        StandbyStatus {
            error: match (&leader, &fenced) {
                (Some(leader), _) => {
                    format!("{}; the leader's pages are at http://{}/", what(role), leader.http)
                }
                (None, Some(why)) => {
                    format!("{}: {why}; it knows no other leader yet", what(role))
                }
                (None, None) if !*self.is_connected.borrow() => {
                    format!("{}; it cannot reach ZooKeeper, and knows no leader", what(role))
                }
                (None, None) => format!("{}; at the moment no instance leads", what(role)),
            },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ha: StandbyState {
                role: role.name().to_owned(),
                instance: self.instance.to_string(),
                leader: leader.as_ref().map(|leader| leader.instance.clone()),
                leader_pages: leader.as_ref().map(|leader| format!("http://{}/", leader.http)),
                epoch: leader.as_ref().map(|leader| leader.epoch),
                zookeeper_connected: *self.is_connected.borrow(),
                copying: progress.is_connected,
                copy_complete: progress.is_complete,
                last_record: progress.record,
                relayed_connections: self.relayed.open.load(Ordering::Relaxed),
                fenced_because: fenced,
            },
        }
    }
}

/// The role as the beginning of a sentence.
fn what(role: Role) -> &'static str {
    match role {
        Role::Standby => "this instance is a standby",
        Role::Leader => "this instance leads",
        Role::Fenced => "this instance was fenced",
    }
}
