//! What a cluster manager of any kind says of running sessions in calls, for the commands that show and end them.

use anyhow::anyhow;
use corona::api::cluster::PoolName;
use corona::engine::types::{ResourceType, SessionPriority};
use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona::wire::generated::{self as wire, RunningSession};

use super::cluster::{Peer, mismatch};

/// All running sessions, or why the cluster manager does not list them.
pub(super) async fn running(
    manager: &mut Peer<ClusterManager>,
) -> anyhow::Result<Result<Vec<RunningSession>, Exception>> {
    match manager.call(&Call::GetSessions).await? {
        Ok(Reply::GetSessions(sessions)) => Ok(Ok(sessions)),
        Ok(_) => Err(mismatch()),
        Err(refused) => Ok(Err(refused)),
    }
}

/// What cannot be done in safe mode, in the original's words.
pub(super) const KILL: &str = "kill session yet";

pub(super) fn unless_in_safe_mode<T>(
    answer: Result<T, Exception>,
    what: &str,
) -> anyhow::Result<T> {
    answer.map_err(|refused| match refused {
        Exception::SafeMode(_) => anyhow!("Cannot {what}, ClusterManager is in Safe Mode"),
        other => other.into(),
    })
}

/// A session's description of itself; none if it does not run.
pub(super) async fn session_info(
    manager: &mut Peer<ClusterManager>,
    handle: &str,
) -> anyhow::Result<Result<Option<wire::SessionInfo>, Exception>> {
    let call = Call::GetSessionInfo { handle: Some(handle.to_owned()) };
    match manager.call(&call).await? {
        Ok(Reply::GetSessionInfo(info)) => Ok(Ok(Some(info))),
        Ok(_) => Err(mismatch()),
        Err(Exception::InvalidSessionHandle(_)) => Ok(Ok(None)),
        Err(other) => Ok(Err(other)),
    }
}

/// No priority means NORMAL.
pub(super) fn priority_name(priority: Option<wire::SessionPriority>) -> &'static str {
    let known = priority.and_then(|priority| SessionPriority::from_number(priority.0));
    known.unwrap_or_default().name()
}

/// Slots of a type that a session holds, if the cluster manager reports them.
pub(super) fn granted(session: &RunningSession, kind: ResourceType) -> Option<i32> {
    let running = session.running_resources.as_ref()?;
    let (_, granted) = running.iter().find(|(of, _)| usize::try_from(of.0) == Ok(kind.index()))?;
    Some(*granted)
}

pub(super) fn pool_text(pool: &PoolName) -> String {
    format!("{}.{}", pool.group, pool.pool)
}

pub(super) fn pool_name(pool: &wire::PoolInfoStrings) -> PoolName {
    PoolName { group: pool.pool_group_name.clone(), pool: pool.pool_name.clone() }
}
