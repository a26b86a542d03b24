//! The events of the cluster manager, for `/api/v1/events`.

use corona_api::events::Event;
use corona_engine::{Record, Starvation};

/// `None` for records that are not published.
pub fn event_of(record: &Record) -> Option<Event> {
    let event = match record {
        Record::SessionStarted { handle, name, scheduling_pool, .. } => Event::SessionStarted {
            session: handle.clone(),
            name: name.clone(),
            group: scheduling_pool.group.clone(),
            pool: scheduling_pool.pool.clone(),
        },
        Record::Assigned { handle, kind, count, .. } => {
            Event::SessionGranted { session: handle.clone(), kind: *kind, count: *count }
        }
        Record::Revoked { handle, kind, count } => {
            Event::SessionRevoked { session: handle.clone(), kind: *kind, count: *count }
        }
        Record::SessionEnded { handle, status, .. } => {
            Event::SessionEnded { session: handle.clone(), status: *status }
        }
        Record::NodeAdded { report, .. } => Event::NodeAdded { node: report.name.clone() },
        Record::NodeLost { name, expired, .. } => {
            Event::NodeLost { node: name.clone(), expired: *expired }
        }
        Record::NodeLate { name, silent_ms } => {
            Event::NodeLate { node: name.clone(), silent_ms: *silent_ms }
        }
        Record::NodeOnTime { name } => Event::NodeOnTime { node: name.clone() },
        Record::NodeBlacklisted { name, kind } => {
            Event::NodeBlacklisted { node: name.clone(), kind: *kind }
        }
        Record::BlacklistCleared { name, kind } => {
            Event::BlacklistCleared { node: name.clone(), kind: *kind }
        }
        Record::NodeDraining { name, on } => Event::NodeDraining { node: name.clone(), on: *on },
        Record::NodeRevoked { name, access, on, .. } => {
            Event::NodeRevoked { node: name.clone(), access: access.to_string(), on: *on }
        }
        Record::PoolStarving { pool, kind, cause, granted, .. } => Event::PoolStarving {
            group: pool.group.clone(),
            pool: pool.pool.clone(),
            kind: *kind,
            cause: match cause {
                Starvation::Minimum => "minimum".to_owned(),
                Starvation::Share => "share".to_owned(),
            },
            granted: *granted,
        },
        Record::SafeMode { on } => Event::SafeMode { on: *on },
        Record::SettingsChanged => Event::ConfigurationReloaded,
        _ => return None,
    };
    Some(event)
}
