//! Compares the cluster manager's count of used slots with the possible grants of sessions.

use std::collections::HashMap;
use std::sync::Arc;

use super::faults::FaultKind;
use super::session::LoadSession;
use super::world::{Failure, LoadWorld};
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Reply};

/// Requests the slot counts of all sessions, and records those that have more than possible: more
/// than all their requests minus the answered releases.
pub(super) async fn audit(world: &LoadWorld) -> Result<(), Failure> {
    let mut caller = world.connect().await?;
    let released: Vec<(Arc<LoadSession>, u64)> = world
        .sessions()
        .into_iter()
        .map(|session| (session.clone(), session.acknowledged()))
        .collect();
    let measure = world.meter.measure("getSessions");
    let (reply, _) = world.call(&mut caller, &measure, Call::GetSessions).await;
    let reply = reply.map_err(|error| Failure(format!("getSessions: {error}")))?;
    let Reply::GetSessions(running) = reply else { return Ok(()) };
    let in_use: HashMap<&str, u64> = running
        .iter()
        .map(|session| {
            let slots = session.running_resources.iter().flatten();
            let slots = slots.map(|(_, slots)| u64::try_from(*slots).unwrap_or(0)).sum();
            (session.handle.as_str(), slots)
        })
        .collect();
    for (session, released) in released {
        let most = session.asked().saturating_sub(released);
        let counted = in_use.get(session.handle.as_str()).copied().unwrap_or(0);
        let lost = counted.saturating_sub(most);
        world.faults.note_times(FaultKind::LostRelease, lost, || {
            let handle = &session.handle;
            format!("session {handle} counts as having {counted} slots; it can have {most}")
        });
    }
    Ok(())
}
