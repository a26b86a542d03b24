//! The events of the cluster manager, for `/api/v1/events`. `docs/operate/web.md` lists them.

use std::sync::Arc;

use serde::Serialize;

use corona_access::{Action, Rights};
use corona_engine::{Record, Starvation};
use corona_model::types::{PoolName, ResourceType, SessionStatus};
use corona_web::events::PRIVILEGED_ACTION;

pub(crate) use corona_web::events::Wanted;

/// All events, and the channel to their subscribers.
pub type Events<C> = corona_web::events::Events<Happening, C>;
/// An event with its number and time.
pub(crate) type Event = corona_web::events::Event<Happening>;

/// Something that happened, under the name of its variant in snake case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Happening {
    /// A session has started.
    SessionStarted {
        /// Its handle.
        session: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// The pool in which it is scheduled.
        #[serde(flatten)]
        pool: PoolName,
    },
    /// A session was given slots.
    SessionGranted {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// Slots of a session were taken back.
    SessionRevoked {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// A session has ended.
    SessionEnded {
        /// Its handle.
        session: Arc<str>,
        /// How.
        status: SessionStatus,
    },
    /// A node has come.
    NodeAdded {
        /// Its name.
        node: Arc<str>,
    },
    /// A node expired or restarted.
    NodeLost {
        /// Its name.
        node: Arc<str>,
        /// Whether it was silent for too long; otherwise it restarts.
        expired: bool,
    },
    /// A node has missed too many heartbeats.
    NodeLate {
        /// Its name.
        node: Arc<str>,
        /// The time since its last heartbeat in milliseconds.
        silent_ms: i64,
    },
    /// A late node is on time again.
    NodeOnTime {
        /// Its name.
        node: Arc<str>,
    },
    /// A node is given no more work of a type.
    NodeBlacklisted {
        /// Its name.
        node: Arc<str>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// An operator has lifted the blacklisting of a node.
    BlacklistCleared {
        /// Its name.
        node: Arc<str>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// An operator drains a node, or lets it serve again.
    NodeDraining {
        /// Its name.
        node: Arc<str>,
        /// Whether it drains from now on.
        on: bool,
    },
    /// The access of a node was revoked, or it has another access now.
    NodeRevoked {
        /// Its name.
        node: Arc<str>,
        /// The access that was revoked.
        access: String,
        /// Whether it is without access from now on.
        on: bool,
    },
    /// A pool may take slots from others.
    PoolStarving {
        /// Its name.
        #[serde(flatten)]
        pool: PoolName,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// The pool's lack: `minimum` or `share`.
        cause: &'static str,
        /// Slots that it has.
        granted: i64,
    },
    /// Safe mode was switched.
    SafeMode {
        /// Whether it is on now.
        on: bool,
    },
    /// Changed configuration files are in force.
    ConfigurationReloaded {},
    /// Somebody has changed the cluster or the access to it.
    PrivilegedAction(Arc<Action>),
    /// This instance leads from now on.
    LeaderElected {
        /// Its name.
        instance: Arc<str>,
        /// The number of the leadership.
        epoch: u64,
    },
    /// The leader was asked to hand over to a standby.
    SteppingDown {
        /// The leader's name.
        instance: Arc<str>,
    },
    /// A standby has a complete copy of the journal and may take over.
    StandbyReady {
        /// Its name.
        instance: Arc<str>,
    },
    /// A standby may not take over any more.
    StandbyLost {
        /// Its name.
        instance: Arc<str>,
    },
}

impl Happening {
    /// `None` for records that are not published.
    pub fn of(record: &Record) -> Option<Happening> {
        let happening = match record {
            Record::SessionStarted { handle, name, scheduling_pool, .. } => {
                Happening::SessionStarted {
                    session: handle.clone(),
                    name: name.clone(),
                    pool: scheduling_pool.clone(),
                }
            }
            Record::Assigned { handle, kind, count, .. } => {
                Happening::SessionGranted { session: handle.clone(), kind: *kind, count: *count }
            }
            Record::Revoked { handle, kind, count } => {
                Happening::SessionRevoked { session: handle.clone(), kind: *kind, count: *count }
            }
            Record::SessionEnded { handle, status, .. } => {
                Happening::SessionEnded { session: handle.clone(), status: *status }
            }
            Record::NodeAdded { report, .. } => Happening::NodeAdded { node: report.name.clone() },
            Record::NodeLost { name, expired, .. } => {
                Happening::NodeLost { node: name.clone(), expired: *expired }
            }
            Record::NodeLate { name, silent_ms } => {
                Happening::NodeLate { node: name.clone(), silent_ms: *silent_ms }
            }
            Record::NodeOnTime { name } => Happening::NodeOnTime { node: name.clone() },
            Record::NodeBlacklisted { name, kind } => {
                Happening::NodeBlacklisted { node: name.clone(), kind: *kind }
            }
            Record::BlacklistCleared { name, kind } => {
                Happening::BlacklistCleared { node: name.clone(), kind: *kind }
            }
            Record::NodeDraining { name, on } => {
                Happening::NodeDraining { node: name.clone(), on: *on }
            }
            Record::NodeRevoked { name, access, on, .. } => {
                Happening::NodeRevoked { node: name.clone(), access: access.to_string(), on: *on }
            }
            Record::PoolStarving { pool, kind, cause, granted, .. } => Happening::PoolStarving {
                pool: pool.clone(),
                kind: *kind,
                cause: match cause {
                    Starvation::Minimum => "minimum",
                    Starvation::Share => "share",
                },
                granted: *granted,
            },
            Record::SafeMode { on } => Happening::SafeMode { on: *on },
            Record::SettingsChanged => Happening::ConfigurationReloaded {},
            _ => return None,
        };
        Some(happening)
    }
}

impl corona_web::events::Happening for Happening {
    fn name(&self) -> &'static str {
        match self {
            Happening::SessionStarted { .. } => "session_started",
            Happening::SessionGranted { .. } => "session_granted",
            Happening::SessionRevoked { .. } => "session_revoked",
            Happening::SessionEnded { .. } => "session_ended",
            Happening::NodeAdded { .. } => "node_added",
            Happening::NodeLost { .. } => "node_lost",
            Happening::NodeLate { .. } => "node_late",
            Happening::NodeOnTime { .. } => "node_on_time",
            Happening::NodeBlacklisted { .. } => "node_blacklisted",
            Happening::BlacklistCleared { .. } => "blacklist_cleared",
            Happening::NodeDraining { .. } => "node_draining",
            Happening::NodeRevoked { .. } => "node_revoked",
            Happening::PoolStarving { .. } => "pool_starving",
            Happening::SafeMode { .. } => "safe_mode",
            Happening::ConfigurationReloaded {} => "configuration_reloaded",
            Happening::PrivilegedAction(_) => PRIVILEGED_ACTION,
            Happening::LeaderElected { .. } => "leader_elected",
            Happening::SteppingDown { .. } => "stepping_down",
            Happening::StandbyReady { .. } => "standby_ready",
            Happening::StandbyLost { .. } => "standby_lost",
        }
    }

    fn is_notable(&self) -> bool {
        // Everybody who sees the pages reads the notable ones.
        !matches!(self, Happening::SessionGranted { .. } | Happening::PrivilegedAction(_))
    }

    fn rights(&self) -> Rights {
        match self {
            Happening::PrivilegedAction(_) => Rights::ADMIN,
            _ => Rights::MEMBERS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_one_line_of_json_with_its_fields() {
        let pool = PoolName::new("g", "p");
        let session: Arc<str> = "2026.1\n\"".into();
        let kind = ResourceType::Map;
        for (happening, json) in [
            (
                Happening::SessionStarted {
                    session: session.clone(),
                    name: "<b>".into(),
                    pool: pool.clone(),
                },
                r#"{"session":"2026.1\n\"","name":"<b>","group":"g","pool":"p"}"#,
            ),
            (
                Happening::SessionRevoked { session, kind, count: 3 },
                r#"{"session":"2026.1\n\"","type":"MAP","count":3}"#,
            ),
            (
                Happening::PoolStarving { pool, kind, cause: "share", granted: 2 },
                r#"{"group":"g","pool":"p","type":"MAP","cause":"share","granted":2}"#,
            ),
            (Happening::SafeMode { on: true }, r#"{"on":true}"#),
            (Happening::ConfigurationReloaded {}, r#"{}"#),
        ] {
            assert_eq!(serde_json::to_string(&happening).unwrap(), json);
        }
    }
}
