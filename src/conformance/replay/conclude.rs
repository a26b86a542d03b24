//! The end of a run: the notifications and connections of the whole run, compared.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::kind_name;
use super::ledger::{NoticeEntry, Topic, TopicEntries, ids};
use super::play::{CLOSED, Play};
use super::world::{Arrival, ReplayTarget};
use crate::answers::show;
use crate::report::times::{Interval, Pair};
use crate::report::{Finding, Rule, Subject};

impl<W: ReplayTarget> Play<W> {
    /// There must be no unsolicited messages.
    pub(super) fn conclude_connections(&mut self, at: Duration) {
        let mut surplus = Vec::new();
        let mut in_flight = Vec::new();
        for (connection, known) in &mut self.connections {
            while let Some(arrival) = self.world.present_arrival(*connection) {
                // The recording ends before the reply, or the end of the connection in its place.
                if let Some(call) = known.unanswered.pop_front() {
                    in_flight.push(call.name);
                    continue;
                }
                let what = match arrival {
                    Arrival::Message(message) => show(&message),
                    _ if known.may_end() => break,
                    Arrival::Nonsense(why) => format!("not a message: {why}"),
                    Arrival::Closed => CLOSED.to_owned(),
                };
                surplus.push((*connection, what));
            }
            in_flight.extend(known.unanswered.drain(..).map(|call| call.name));
        }
        in_flight.iter().for_each(|method| self.report.leaves_out_call(method));
        self.report.in_flight += in_flight.len();
        surplus.sort_by_key(|(connection, _)| *connection);
        for (connection, what) in surplus {
            let place = format!("connection {}, at the end", connection.0);
            self.run_differs(at, &place, "nothing more".to_owned(), what);
        }
    }

    /// Compares the notifications of the run up to this time.
    pub(super) fn conclude(&mut self, at: Duration) {
        let pages: Vec<(Topic, TopicEntries)> =
            self.ledger.pages().map(|(topic, page)| (topic.clone(), page.clone())).collect();
        self.find_new_pool_revocations(&pages);
        for (topic, mut page) in pages {
            self.report.notices.recorded += page.recorded.len();
            self.report.notices.live += page.live.len();
            if self.options.compare_notices && self.leaves_out_entries(at, &topic, &mut page) {
                self.conclude_topic(at, &topic, &page);
            }
        }
        self.report.notices.recorded += self.not_judged.values().map(Vec::len).sum::<usize>();
        self.conclude_times();
        self.report_what_is_not_compared();
        if self.options.compare_safe_mode && self.safe_mode.0 != self.safe_mode.1 {
            let words = |flags: &[bool]| {
                let word = |on: &bool| if *on { "on" } else { "off" };
                format!("safe mode {}", flags.iter().map(word).collect::<Vec<_>>().join(", "))
            };
            let (recorded, live) = (words(&self.safe_mode.0), words(&self.safe_mode.1));
            self.run_differs(at, "safe mode calls to the proxy job tracker", recorded, live);
        }
        let slots = self.options.partitioning.as_deref().and_then(slots);
        let counts = self.options.counts_resources;
        for node in slots.map(|slots| self.cluster.overfull(slots, counts)).unwrap_or_default() {
            self.run_differs(at, "slots", "no node is overfull".to_owned(), node);
        }
    }

    fn report_what_is_not_compared(&mut self) {
        let older = self.older.sessions.len();
        if older > 0 {
            self.report.does_not_compare(&format!(
                "{older} sessions that are older than the recording, with {} calls. Nor the grants of other \
                 sessions: the slots that the older ones held are free here.",
                self.older.calls
            ));
        } else if !self.older.nodes.is_empty() {
            let nodes: Vec<&str> =
                self.older.nodes.iter().take(NAMED).map(String::as_str).collect();
            self.report.does_not_compare(&format!(
                "Grants and revocations: {} nodes sent no heartbeat between the beginning of the recording \
                 and their first grant ({}), and their slots do not exist here.",
                self.older.nodes.len(),
                nodes.join(", ")
            ));
        } else if !self.options.compare_notices {
            self.report.does_not_compare(NO_NOTICES);
        }
        let seconds = |at: Duration| at.saturating_sub(self.clock.zero).as_secs_f64();
        let gaps = &self.gaps;
        if gaps.bytes > 0 {
            let mut what = format!(
                "Gaps: {} bytes of {} connections are not in the recording, the first at {:.1} s \
                 (lost packets, or a capture with --snaplen). Calls and notifications in them, and \
                 replies to them",
                gaps.bytes,
                gaps.places,
                gaps.first_at.map_or(0.0, seconds),
            );
            if let Some(at) = gaps.changes_at {
                what += &format!(
                    ". From {:.1} s on missing calls may have changed what was granted: grants and \
                     lists of sessions",
                    seconds(at)
                );
            }
            self.report.does_not_compare(&(what + "."));
        }
        if self.report.in_flight > 0 {
            let what = format!(
                "{} calls and notifications in flight when the recording or the replay ended.",
                self.report.in_flight
            );
            self.report.does_not_compare(&what);
        }
    }

    /// Leaves out the entries of a topic that cannot be compared, and those that are a free choice.
    /// False if nothing of it is to be compared.
    fn leaves_out_entries(&mut self, at: Duration, topic: &Topic, page: &mut TopicEntries) -> bool {
        let (Topic::Granted(handle, _) | Topic::Revoked(handle, _) | Topic::DeadNode(handle, _)) =
            topic;
        let port = self.cluster.driver(handle).and_then(|(_, port)| u16::try_from(*port).ok());
        if port.is_some_and(|port| self.gaps.drivers.contains(&port)) {
            self.report.notices.not_compared += page.recorded.len();
            return false;
        }
        if let Some(later) = self.not_judged.get(topic) {
            let mut later = later.clone();
            page.live.retain(|entry| match later.iter().position(|id| *id == entry.id) {
                Some(place) if !page.recorded.iter().any(|known| known.id == entry.id) => {
                    later.swap_remove(place);
                    false
                }
                _ => true,
            });
        }
        self.leave_out_exchanged(at, topic, page);
        let until = self.gaps.changes_at.map_or(at, |changes_at| changes_at.min(at));
        let is_cut = until < at || self.report.ended.is_some();
        let (only_recorded, only_live) = page.difference();
        let is_late = |entry: &NoticeEntry| entry.at.saturating_add(IN_FLIGHT) >= until;
        let recorded_in_flight: Vec<NoticeEntry> =
            only_recorded.into_iter().filter(|entry| is_cut && is_late(entry)).collect();
        let live_in_flight: Vec<NoticeEntry> = only_live
            .into_iter()
            .filter(|entry| self.may_be_in_flight(topic, entry, until))
            .collect();
        page.recorded.retain(|entry| !recorded_in_flight.contains(entry));
        page.live.retain(|entry| !live_in_flight.contains(entry));
        self.report.notices.not_compared += recorded_in_flight.len();
        self.report.in_flight += recorded_in_flight.len() + live_in_flight.len();
        true
    }

    /// Whether the recorded manager may have made this decision after the recording: it is still
    /// wanted at its end, and the original may have taken longer.
    fn may_be_in_flight(&self, topic: &Topic, entry: &NoticeEntry, until: Duration) -> bool {
        let is_wanted = match topic {
            Topic::Granted(handle, _) | Topic::Revoked(handle, _) => {
                !self.cluster.has_ended(handle)
            }
            Topic::DeadNode(_, node) => {
                let both = self.cluster.heartbeat_at(node).zip(self.options.node_expiry);
                return both.is_some_and(|(heartbeat_at, expiry)| {
                    let due = heartbeat_at.saturating_add(expiry);
                    entry.at.saturating_add(IN_FLIGHT) >= due
                        && due.saturating_add(expiry / 2).saturating_add(IN_FLIGHT) > until
                });
            }
        };
        is_wanted && entry.at.saturating_add(IN_FLIGHT) >= until
    }

    /// Requests that only one side has granted before they were withdrawn, because the other served
    /// another session first.
    fn leave_out_exchanged(&mut self, at: Duration, topic: &Topic, page: &mut TopicEntries) {
        let Topic::Granted(handle, kind) = topic else { return };
        let is_exchanged =
            |entry: &NoticeEntry| self.exchanged.contains(&(handle.clone(), entry.id));
        let (recorded, live) = page.difference();
        let [recorded, live] =
            [recorded, live].map(|side| Vec::from_iter(side.into_iter().filter(is_exchanged)));
        if recorded.is_empty() && live.is_empty() {
            return;
        }
        page.retain(|entry| !recorded.contains(entry), |entry| !live.contains(entry));
        self.report.notices.free += recorded.len();
        self.report.notices.grants_free += recorded.len();
        let (kind, session) = (kind_name(*kind), self.both_names(handle));
        let place = format!("{kind} grants to session {session}, given up before they were made");
        let both = (ids(&recorded), ids(&live));
        self.notice_differs(at, place, Some(Rule::FREE_ORDER), both.0, both.1);
    }

    fn conclude_topic(&mut self, at: Duration, topic: &Topic, page: &TopicEntries) {
        let (only_recorded, only_live) = page.difference();
        let same = only_recorded.is_empty() && only_live.is_empty();
        let requests = |side: &[NoticeEntry]| format!("requests {}", ids(side));
        let (recorded, live) = (requests(&page.recorded), requests(&page.live));
        let count = page.recorded.len();
        self.pair_times(topic, page);
        match topic {
            Topic::Granted(handle, kind) => {
                let (kind, session) = (kind_name(*kind), self.both_names(handle));
                let place = format!("{kind} grants to session {session}");
                if !same || !page.is_same() {
                    self.notice_differs(at, place, None, recorded, live);
                } else {
                    self.conclude_nodes(at, place, handle, &page.recorded);
                }
            }
            Topic::Revoked(handle, kind) => {
                let (kind, session) = (kind_name(*kind), self.both_names(handle));
                let place = format!("{kind} revocations from session {session}");
                if !same && count == page.live.len() {
                    self.report.notices.free += count;
                    self.notice_differs(at, place, Some(Rule::FREE_ORDER), recorded, live);
                } else if !same || !page.is_same() {
                    self.notice_differs(at, place, None, recorded, live);
                } else {
                    self.report.notices.exact += count;
                }
            }
            Topic::DeadNode(handle, node) => {
                let session = self.both_names(handle);
                let place = format!("dead node {node}, sent to session {session}");
                let times = |side: &[NoticeEntry]| match side.len() {
                    0 => "not sent".to_owned(),
                    1 => "sent".to_owned(),
                    count => format!("sent {count} times"),
                };
                let (recorded, live) = (times(&page.recorded), times(&page.live));
                if !same && page.live.is_empty() && !self.cluster.has_used(handle, node) {
                    self.report.notices.free += count;
                    self.notice_differs(at, place, Some(Rule::FREE_NODE), recorded, live);
                } else if !same {
                    self.notice_differs(at, place, None, recorded, live);
                } else {
                    self.report.notices.exact += count;
                }
            }
        }
    }

    /// The same requests were granted: on which nodes?
    fn conclude_nodes(&mut self, at: Duration, place: String, handle: &str, all: &[NoticeEntry]) {
        let mut nodes = (Vec::new(), Vec::new());
        let mut local = (0, 0);
        for NoticeEntry { id, .. } in all {
            let key = (handle.to_owned(), *id);
            let (Some(recorded), Some(live)) =
                (self.recorded_grants.get(&key), self.live_grants.get(&key))
            else {
                continue;
            };
            local.0 += usize::from(self.cluster.is_local(handle, recorded));
            local.1 += usize::from(self.cluster.is_local(handle, live));
            if recorded.node_name != live.node_name {
                nodes.0.push(format!("{id} on {}", recorded.node_name));
                nodes.1.push(format!("{id} on {}", live.node_name));
            }
        }
        let (free, notices) = (nodes.0.len(), &mut self.report.notices);
        if local.1 < local.0 {
            let count = |local| format!("{local} on a preferred host");
            return self.notice_differs(at, place, None, count(local.0), count(local.1));
        }
        notices.exact += all.len() - free;
        notices.free += free;
        notices.grants_exact += all.len() - free;
        notices.grants_free += free;
        if free > 0 {
            let both = (nodes.0.join("; "), nodes.1.join("; "));
            self.notice_differs(at, place, Some(Rule::FREE_NODE), both.0, both.1);
        }
    }

    /// The times of the decisions of a topic that both sides made.
    fn pair_times(&mut self, topic: &Topic, page: &TopicEntries) {
        if !self.times_are_comparable() {
            return;
        }
        let pairs = match topic {
            Topic::Revoked(..) => page.revocation_pairs(),
            _ => page.pairs(),
        };
        for (recorded, live) in pairs {
            let Some((kind, since, place)) = self.interval(topic, &recorded) else { continue };
            let [recorded, live] = [recorded.at, live.at].map(|at| at.saturating_sub(since));
            let both_at = [recorded, live].map(|time| since.saturating_add(time));
            let at = both_at[0].saturating_sub(self.clock.zero);
            let pair = Pair { at, place, recorded, live };
            match self.new_pool_revocations.iter().any(|one| one.explains(both_at)) {
                true => self.report.times.explained(kind, &pair),
                false => self.report.times.add(kind, pair),
            }
        }
    }

    /// Finds the revocations that the original made as soon as it looked at a pool that was new, and this
    /// program when the pool had starved.
    fn find_new_pool_revocations(&mut self, pages: &[(Topic, TopicEntries)]) {
        let Some(starving_times) = self.options.starving_times else { return };
        if !self.times_are_comparable() {
            return;
        }
        let tolerance = self.options.time_tolerance;
        for (topic, page) in pages {
            let Topic::Revoked(handle, kind) = topic else { continue };
            for (recorded, live) in page.revocation_pairs() {
                let (recorded, live) = (recorded.at, live.at);
                let one = NewPoolRevocation { recorded, live };
                let new = self.cluster.new_pool_before(*kind, recorded, AT_ONCE);
                let Some(new) = new.filter(|_| live > recorded.saturating_add(tolerance)) else {
                    continue;
                };
                let has_starved = starving_times.into_iter().any(|time| {
                    let due = new.saturating_add(time);
                    let latest = due.saturating_add(2 * AT_ONCE).saturating_add(tolerance);
                    (due.saturating_sub(AT_ONCE).saturating_sub(tolerance)..=latest).contains(&live)
                });
                if !has_starved || self.new_pool_revocations.contains(&one) {
                    continue;
                }
                self.new_pool_revocations.push(one);
                let ms = |at: Duration| {
                    let time = at.saturating_sub(new).as_millis();
                    format!("{time} ms after the first request of a pool")
                };
                let session = self.both_names(handle);
                let place = format!("{} revocation from session {session}", kind_name(*kind));
                let at = recorded.saturating_sub(self.clock.zero);
                let both = (ms(recorded), ms(live));
                self.notice_differs(at, place, Some(Rule::NEW_POOL_WAITS), both.0, both.1);
            }
        }
    }

    /// The kind of time that ends with a recorded decision, when it began, and where.
    fn interval(&self, topic: &Topic, entry: &NoticeEntry) -> Option<(Interval, Duration, String)> {
        Some(match topic {
            Topic::Granted(handle, _) => {
                let (since, prefers) = self.cluster.requested(handle, entry.id)?;
                let grant = self.recorded_grants.get(&(handle.clone(), entry.id));
                let near = grant.is_some_and(|grant| self.cluster.is_local(handle, grant));
                let kind = match (prefers, near) {
                    (false, _) => Interval::GrantAnywhere,
                    (true, true) => Interval::GrantPreferred,
                    (true, false) => Interval::GrantElsewhere,
                };
                (kind, since, format!("request {} of session {handle}", entry.id))
            }
            Topic::Revoked(handle, kind) => {
                let since = self.cluster.last_request_before(*kind, entry.at)?;
                let place = format!("request {} of session {handle}", entry.id);
                (Interval::Revocation, since, place)
            }
            Topic::DeadNode(_, node) => {
                let since = self.cluster.heartbeat_before(node, entry.at)?;
                (Interval::NodeExpiry, since, format!("node {node}"))
            }
        })
    }

    /// Whether time passes as it was recorded.
    fn times_are_comparable(&self) -> bool {
        self.clock.speed == 1.0
    }

    fn conclude_times(&mut self) {
        if !self.options.compare_notices {
            return;
        }
        if !self.times_are_comparable() {
            return self.report.does_not_compare(NO_TIMES);
        }
        for finding in self.report.times.findings() {
            self.report.add(finding);
        }
    }

    /// A session by its recorded id and by its id in this run.
    fn both_names(&self, recorded: &str) -> String {
        match self.names.live_text(recorded) {
            live if live == recorded => live,
            live => format!("{live}, recorded as {recorded}"),
        }
    }

    /// The notifications of a session differ from the recorded ones.
    fn notice_differs(
        &mut self,
        at: Duration,
        place: String,
        rule: Option<Rule>,
        recorded: String,
        live: String,
    ) {
        let found = Finding::of_words(at, Subject::Notice, place, (recorded, live));
        self.report.add(Finding { rule, ..found });
    }
}

/// So many older nodes are named.
const NAMED: usize = 5;

const NO_NOTICES: &str = "Notifications of grants, revocations and dead nodes: the recording has none. \
    'corona record --relay-callbacks' records them.";

/// How much earlier than the end of a recording a decision may be made that the recorded manager made
/// after it.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// A revocation for a pool that was new, which this program makes later than the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewPoolRevocation {
    recorded: Duration,
    live: Duration,
}

/// Within this time of a request the original has looked at all pools: a round of its preemption, and
/// a turn of its scheduler. Spec: cluster-manager/04 §9.
const AT_ONCE: Duration = Duration::from_millis(1_200);

impl NewPoolRevocation {
    /// Whether a decision that was made at these times, recorded and live, belongs to it or follows
    /// from it at once.
    fn explains(self, [recorded, live]: [Duration; 2]) -> bool {
        let follows = |first: Duration, at| (first..=first.saturating_add(AT_ONCE)).contains(&at);
        follows(self.recorded, recorded) && follows(self.live, live)
    }
}

const NO_TIMES: &str = "Times: pauses were not played as recorded, but the intervals of the scheduling \
    files are. Without --speed times are compared.";

/// Slots by number of CPUs and type. Spec: cluster-manager/03 §2.
fn slots(partitioning: &str) -> Option<impl Fn(i16, i32) -> usize + use<>> {
    let table: BTreeMap<String, BTreeMap<String, usize>> =
        serde_json::from_str(partitioning).ok()?;
    Some(move |cpus: i16, kind: i32| {
        let name = match kind {
            0 => "MAP",
            1 => "REDUCE",
            _ => "JOBTRACKER",
        };
        let of = |cpus: i16| table.get(&cpus.to_string());
        let count = |row: &BTreeMap<String, usize>| row.get(name).copied().unwrap_or(0);
        match (of(cpus), of(1)) {
            (Some(row), _) => count(row),
            (None, Some(one)) => count(one).saturating_mul(usize::try_from(cpus).unwrap_or(0)),
            (None, None) => 0,
        }
    })
}
