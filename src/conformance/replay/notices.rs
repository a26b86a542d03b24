//! Calls of the cluster manager under test to sessions and the proxy job tracker during a run.

use std::time::Duration;

use super::ledger::Topic;
use super::play::Play;
use super::world::{Callback, World};
use crate::inspect::{Shape, body_text};
use crate::report::{Finding, Subject};
use corona_wire::calls::{SessionDriver, SessionDriverCall};
use corona_wire::value::RawMessage;

impl<W: World> Play<W> {
    /// The recording contains this notification: waits until the manager under test has sent as many
    /// entries.
    pub(super) async fn notice(&mut self, at: Duration, call: &SessionDriverCall) {
        if !self.options.compare_notices {
            return;
        }
        match call {
            SessionDriverCall::GrantResource { handle: Some(handle), granted: Some(granted) } => {
                for grant in granted {
                    let topic = Topic::Granted(handle.clone(), grant.type_.0);
                    self.ledger.record(topic, [grant.id]);
                    self.recorded_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
                for grant in revoked.iter().flatten() {
                    self.ledger.record(Topic::Revoked(handle.clone(), grant.type_.0), [grant.id]);
                }
            }
            SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
                let topic = Topic::DeadNode(handle.clone(), node.clone());
                self.ledger.record(topic.clone(), [0]);
                if !self.cluster.has_used(handle, node) {
                    // Its grants are on other nodes here, so that it is not notified of this one's death.
                    self.ledger.forgive(&topic);
                }
            }
            _ => {}
        }
        let deadline = self.clock.due(at) + self.options.notice_within;
        loop {
            let missing = self.ledger.missing();
            if missing.is_empty() {
                return;
            }
            match self.world.callback(deadline).await {
                Some(callback) => self.called_back(callback),
                // Entries that are still missing at the end are reported there.
                None => return missing.iter().for_each(|topic| self.ledger.forgive(topic)),
            }
        }
    }

    pub(super) async fn safe_mode(&mut self, at: Duration, flag: bool) {
        if !self.options.compare_safe_mode {
            return self.report.does_not_compare(NO_PROXY);
        }
        self.safe_mode.0.push(flag);
        let deadline = self.clock.due(at) + self.options.notice_within;
        while self.safe_mode.1.len() < self.safe_mode.0.len() {
            match self.world.callback(deadline).await {
                Some(callback) => self.called_back(callback),
                None => return,
            }
        }
    }

    /// Takes the calls that have arrived.
    pub(super) fn take_callbacks(&mut self) {
        while let Some(callback) = self.world.present_callback() {
            self.called_back(callback);
        }
    }

    pub(super) fn called_back(&mut self, callback: Callback) {
        match callback {
            Callback::SafeMode(flag) => self.safe_mode.1.push(flag),
            Callback::Session(port, call) => {
                for complaint in self.notified(port, &call) {
                    let message = RawMessage::of_call::<SessionDriver>(&call);
                    let name = message.as_ref().map_or("a notice", |message| &message.name);
                    let place = format!("{name} to a session");
                    let recorded = "nothing that a correct manager does not do".to_owned();
                    let both = (recorded, complaint);
                    let found = Finding::of_words(self.now(), Subject::Notice, place, both);
                    let arguments = message.map(|raw| body_text(&raw.decode(), Shape::Short));
                    let arguments = arguments.unwrap_or_default();
                    self.report.add(Finding { arguments, ..found });
                }
            }
        }
    }

    /// Enters a notification in the books, and returns the rule that it violates, if any.
    fn notified(&mut self, port: u16, call: &SessionDriverCall) -> Vec<String> {
        let (SessionDriverCall::GrantResource { handle, .. }
        | SessionDriverCall::RevokeResource { handle, .. }
        | SessionDriverCall::ProcessDeadNode { handle, .. }) = call;
        let Some(live) = handle else { return vec!["no session is named".to_owned()] };
        let handle = self.names.recorded_session(live);
        let mut complaints = Vec::new();
        let driver = self.cluster.driver(&handle);
        let driver = driver.and_then(|(host, port)| self.names.live_driver(host, *port));
        if driver.is_none_or(|(_, expected)| *expected != i32::from(port)) {
            complaints.push("sent to the driver of another session".to_owned());
        }
        match call {
            SessionDriverCall::GrantResource { granted, .. } => {
                for grant in granted.iter().flatten() {
                    complaints.extend(self.cluster.granted(&handle, grant).err());
                    complaints.extend(not_now(grant.granted_time, self.world.epoch_ms()));
                    self.ledger.arrive(Topic::Granted(handle.clone(), grant.type_.0), [grant.id]);
                    self.live_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { revoked, force, .. } => {
                if *force {
                    complaints.push("force is set, which the original never does".to_owned());
                }
                for grant in revoked.iter().flatten() {
                    complaints.extend(self.cluster.revoked(&handle, grant.id).err());
                    self.ledger.arrive(Topic::Revoked(handle.clone(), grant.type_.0), [grant.id]);
                }
            }
            SessionDriverCall::ProcessDeadNode { node, .. } => {
                let Some(node) = node else { return vec!["no node is named".to_owned()] };
                complaints.extend(self.cluster.died(&handle, node).err());
                self.ledger.arrive(Topic::DeadNode(handle.clone(), node.clone()), [0]);
            }
        }
        complaints
    }

    /// The present as recorded time.
    fn now(&self) -> Duration {
        let passed = self.world.now().saturating_sub(self.clock.base);
        let passed = passed.as_secs_f64() * self.clock.speed;
        // Where there are no pauses, there is only the order of steps.
        let passed = Duration::try_from_secs_f64(passed);
        passed.map_or(self.at, |passed| self.clock.zero + passed)
    }
}

const NO_PROXY: &str =
    "Calls to the proxy job tracker: the cluster manager under test calls another one.";

/// A grant's time is the present time. A minute is far more than any delay here.
fn not_now(granted_ms: i64, now_ms: i64) -> Option<String> {
    let off_ms = now_ms.saturating_sub(granted_ms).saturating_abs();
    (off_ms > 60_000).then(|| format!("the time of the grant is {off_ms} ms off"))
}
