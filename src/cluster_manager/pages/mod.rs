//! The service as its pages see it.

use std::sync::Arc;

use super::Parts;
use super::commits::Commits;
use corona_api::cluster::{
    HaStatus, JournalStatus, ProxyJobTrackerStatus, SafeModeStatus, StateFileStatus, Versions,
};
use corona_cluster_pages::metrics::Metrics;
use corona_cluster_pages::operations::Operations;
use corona_cluster_pages::{ConfigStatus, Manager, Programs, QueueCounts, Restart};
use corona_engine::{Engine, Input, Refusal, Reply};
use corona_model::types::Millis;

/// The events of the cluster manager.
pub(super) type Events = corona_web::events::Events<Commits>;

impl Manager for Parts {
    type Commits = Commits;

    fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T {
        self.core.look(look)
    }

    async fn apply(&self, input: Input) -> Result<Reply, Refusal> {
        let reply = self.core.apply(input);
        self.core.committed().await;
        reply
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn operations(&self) -> &Operations {
        &self.operations
    }

    fn queues(&self) -> QueueCounts {
        self.notifier.counts()
    }

    fn configuration(&self) -> ConfigStatus {
        self.reloader.status()
    }

    fn safe_mode(&self, on: bool) -> (SafeModeStatus, ProxyJobTrackerStatus) {
        self.safe_mode.to_api(on)
    }

    fn state_file(&self) -> StateFileStatus {
        self.persist.to_api()
    }

    fn journal(&self) -> Option<JournalStatus> {
        self.journal.as_ref().map(|journal| journal.to_api())
    }

    fn ha(&self) -> Option<HaStatus> {
        self.ha.as_ref().map(|role| role.to_api())
    }

    fn step_down(&self) -> Result<(), String> {
        let Some(role) = &self.ha else { return Ok(()) };
        role.request_step_down().map_err(|none| none.to_string())
    }

    fn programs(&self) -> Arc<dyn Programs> {
        self.programs.clone()
    }

    fn versions(&self, started: Millis) -> Versions {
        let standbys = self.ha.as_ref().map(|role| role.programs()).unwrap_or_default();
        let mut instances = vec![(env!("CARGO_PKG_VERSION"), started)];
        instances.extend(standbys.iter().map(|(version, started)| (&**version, *started)));
        self.programs.versions(&self.core, &instances)
    }

    fn restart(&self, node: &str, restart: Restart) {
        self.programs.order(&self.core, node, restart);
    }
}

#[cfg(test)]
mod tests;
