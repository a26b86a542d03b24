//! Events about instances, in the leader's stream.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use corona_api::events::Event;

use super::instance_role::{InstanceRole, Phase};
use crate::core::Core;
use crate::pages::Events;

/// Publishes that this instance leads, and which standbys may take over.
#[derive(Debug)]
pub(crate) struct RoleEvents {
    pub(crate) instance_role: Arc<InstanceRole>,
    pub(crate) events: Arc<Events>,
    pub(crate) core: Arc<Core>,
}

impl RoleEvents {
    /// Publishes forever.
    pub(crate) async fn run(self) {
        if let Phase::Leading(epoch) = *self.instance_role.phase().borrow() {
            self.publish(Event::LeaderElected { instance: self.instance_role.me.clone(), epoch });
        }
        let mut ready: BTreeSet<Arc<str>> = BTreeSet::new();
        let (mut in_sync, mut step_down) =
            (self.instance_role.in_sync(), self.instance_role.step_down());
        loop {
            let now = in_sync.borrow_and_update().clone();
            for instance in now.difference(&ready) {
                self.publish(Event::StandbyReady { instance: instance.clone() });
            }
            for instance in ready.difference(&now) {
                self.publish(Event::StandbyLost { instance: instance.clone() });
            }
            ready = now;
            // The senders live as long as the role.
            tokio::select! {
                _ = in_sync.changed() => {}
                _ = step_down.changed() => {
                    self.publish(Event::SteppingDown { instance: self.instance_role.me.clone() });
                    pending::<()>().await;
                }
            }
        }
    }

    /// Nothing of it is in the journal.
    fn publish(&self, event: Event) {
        self.events.add(self.core.look(|_, now| now), event, 0);
    }
}
