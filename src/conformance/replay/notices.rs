//! Calls of the cluster manager under test to sessions and the proxy job tracker during a run.

use std::time::Duration;

use super::ledger::Topic;
use super::play::Play;
use super::world::{Callback, ReplayTarget};
use crate::inspect::{Shape, body_text};
use crate::report::{Finding, Subject};
use corona_wire::calls::{SessionDriver, SessionDriverCall};
use corona_wire::value::RawMessage;

impl<W: ReplayTarget> Play<W> {
    /// The recording contains this notification: waits until the manager under test has sent as many
    /// entries.
    pub(super) async fn notice(&mut self, at: Duration, call: &SessionDriverCall) {
        if !self.options.compare_notices {
            return self.does_not_judge(call);
        }
        if self.gaps.changes_at.is_some_and(|changes_at| at >= changes_at) {
            return self.does_not_judge(call);
        }
        match call {
            SessionDriverCall::GrantResource { handle: Some(handle), granted: Some(granted) } => {
                for grant in granted {
                    let topic = Topic::Granted(handle.clone(), grant.type_.0);
                    self.ledger.record(topic, grant.id, at);
                    let verdict = self.recorded_cluster.granted(handle, grant);
                    self.check_recorded(at, "grantResource", handle, verdict);
                    self.recorded_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
                for grant in revoked.iter().flatten() {
                    let topic = Topic::Revoked(handle.clone(), grant.type_.0);
                    self.ledger.record(topic, grant.id, at);
                    let verdict = self.recorded_cluster.revoked(handle, grant);
                    self.check_recorded(at, "revokeResource", handle, verdict);
                }
            }
            SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
                let topic = Topic::DeadNode(handle.clone(), node.clone());
                self.ledger.record(topic.clone(), 0, at);
                let _ = self.recorded_cluster.died(handle, node);
                if !self.cluster.has_used(handle, node) {
                    // Its grants are on other nodes here, so that it is not notified of this one's death.
                    self.ledger.forgive(&topic);
                }
            }
            _ => {}
        }
        let began = self.world.now();
        let deadline = self.clock.due(at) + self.patience;
        loop {
            let missing = self.ledger.missing();
            if missing.is_empty() {
                if self.world.now().saturating_sub(began) > self.patience / 4 {
                    self.patience = (self.patience * 2).min(self.options.notice_within);
                }
                return;
            }
            match self.world.callback(deadline).await {
                Some((came, callback)) => self.called_back(came, callback),
                // Entries that are still missing at the end are reported there.
                None => {
                    let waited = self.world.now().saturating_sub(began);
                    for topic in &missing {
                        self.ledger.forgive(topic);
                        self.ledger.waited(topic, waited);
                    }
                    self.silence.waited(waited);
                    // Another session may have been served first, and then the entry comes only after
                    // further calls, however long they are put off.
                    let least = LEAST_PATIENCE.min(self.options.notice_within);
                    self.patience = (self.patience / 2).max(least);
                    return;
                }
            }
        }
    }

    /// A recorded notification is not compared, and may come here.
    pub(super) fn does_not_judge(&mut self, call: &SessionDriverCall) {
        let mut note = |topic: Topic, id| {
            self.report.notices.not_compared += 1;
            self.not_judged.entry(topic).or_default().push(id);
        };
        match call {
            SessionDriverCall::GrantResource { handle: Some(handle), granted } => {
                for grant in granted.iter().flatten() {
                    note(Topic::Granted(handle.clone(), grant.type_.0), grant.id);
                }
            }
            SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
                for grant in revoked.iter().flatten() {
                    note(Topic::Revoked(handle.clone(), grant.type_.0), grant.id);
                }
            }
            SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
                note(Topic::DeadNode(handle.clone(), node.clone()), 0);
            }
            _ => {}
        }
    }

    /// A recorded grant or revocation must be one that a correct manager makes, like those of this run.
    fn check_recorded(
        &mut self,
        at: Duration,
        method: &str,
        handle: &str,
        verdict: Result<(), String>,
    ) {
        let is_certain = self.older.is_empty() && self.gaps.changes_at.is_none();
        if let Err(complaint) = verdict
            && is_certain
        {
            let place = format!("{method} to session {handle}, as it was recorded");
            let here = "a correct cluster manager does not send this".to_owned();
            let both = (complaint, here);
            self.report.add(Finding::of_words(at, Subject::Notice, place, both));
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
                Some((came, callback)) => self.called_back(came, callback),
                None => return self.silence.waited(self.options.notice_within),
            }
        }
    }

    /// Takes the calls that have arrived.
    pub(super) fn take_callbacks(&mut self) {
        while let Some((came, callback)) = self.world.present_callback() {
            self.called_back(came, callback);
        }
    }

    /// The manager under test has called at this time of the world.
    pub(super) fn called_back(&mut self, came: Duration, callback: Callback) {
        match callback {
            Callback::SafeMode(flag) => self.safe_mode.1.push(flag),
            Callback::Session(port, call) => {
                let at = self.recorded_time(came);
                for complaint in self.notified(at, port, &call) {
                    let message = RawMessage::of_call::<SessionDriver>(&call);
                    let name = message.as_ref().map_or("a notice", |message| &message.name);
                    let place = format!("{name} to a session");
                    let recorded = "a correct cluster manager does not send this".to_owned();
                    let both = (recorded, complaint);
                    let found = Finding::of_words(at, Subject::Notice, place, both);
                    let arguments = message.map(|raw| body_text(&raw.decode(), Shape::Short));
                    let arguments = arguments.unwrap_or_default();
                    self.report.add(Finding { arguments, ..found });
                }
            }
        }
    }

    /// Enters a notification in the books, and returns the rule that it violates, if any.
    fn notified(&mut self, at: Duration, port: u16, call: &SessionDriverCall) -> Vec<String> {
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
                    let topic = Topic::Granted(handle.clone(), grant.type_.0);
                    self.ledger.arrive(topic, grant.id, at);
                    self.live_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { revoked, force, .. } => {
                if *force {
                    complaints.push("force is set, which the original never does".to_owned());
                }
                for grant in revoked.iter().flatten() {
                    complaints.extend(self.cluster.revoked(&handle, grant).err());
                    let topic = Topic::Revoked(handle.clone(), grant.type_.0);
                    self.ledger.arrive(topic, grant.id, at);
                }
            }
            SessionDriverCall::ProcessDeadNode { node, .. } => {
                let Some(node) = node else { return vec!["no node is named".to_owned()] };
                complaints.extend(self.cluster.died(&handle, node).err());
                self.ledger.arrive(Topic::DeadNode(handle.clone(), node.clone()), 0, at);
            }
        }
        complaints
    }

    /// A time of the world as recorded time.
    fn recorded_time(&self, at: Duration) -> Duration {
        let passed = at.saturating_sub(self.clock.base);
        let passed = passed.as_secs_f64() * self.clock.speed;
        // Where there are no pauses, there is only the order of steps.
        let passed = Duration::try_from_secs_f64(passed);
        passed.map_or(self.at, |passed| self.clock.zero + passed)
    }
}

/// After waits without a result, notifications are waited for at least this long.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

const NO_PROXY: &str =
    "Calls to the proxy job tracker: the cluster manager under test calls another one.";

/// A grant's time is the present time. A minute is far more than any delay here.
fn not_now(granted_ms: i64, now_ms: i64) -> Option<String> {
    let off_ms = now_ms.saturating_sub(granted_ms).saturating_abs();
    (off_ms > 60_000).then(|| format!("the time of the grant is {off_ms} ms off"))
}
