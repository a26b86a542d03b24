//! The calls that a session makes, and the queue in which they wait.

use std::collections::VecDeque;
use std::sync::Arc;

use super::options::{Bounds, Endpoint};
use super::translate;
use super::types::{NodeUsage, PoolName, Request, ResourceType, SessionPriority, SessionStatus};
use corona_wire::calls::ClusterManagerCall;
use corona_wire::generated as wire;

/// A session's registration. Fields that are `None` do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InfoUpdate {
    /// Name for people.
    pub name: Option<String>,
    /// Priority within the pool.
    pub priority: Option<SessionPriority>,
    /// A page about the session.
    pub url: Option<String>,
    /// When the session's work should be done: milliseconds since the Unix epoch.
    pub deadline_ms: Option<i64>,
}

/// The registration that the cluster manager last received.
#[derive(Clone, Debug)]
pub(super) struct Info {
    pub(super) address: Endpoint,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) pool: PoolName,
    pub(super) priority: SessionPriority,
    pub(super) no_preempt: bool,
    pub(super) url: Option<String>,
    pub(super) deadline_ms: Option<i64>,
}

impl Info {
    pub(super) fn update(&mut self, update: InfoUpdate) {
        let InfoUpdate { name, priority, url, deadline_ms } = update;
        if let Some(name) = name {
            self.name = name;
        }
        if let Some(priority) = priority {
            self.priority = priority;
        }
        self.url = url.or(self.url.take());
        self.deadline_ms = deadline_ms.or(self.deadline_ms);
    }

    pub(super) fn to_wire(&self) -> wire::SessionInfo {
        wire::SessionInfo {
            address: wire::InetAddress {
                host: self.address.host.clone(),
                port: self.address.port.into(),
            },
            name: self.name.clone(),
            user_id: self.user.clone(),
            group_ids: None,
            pool_info_strings: Some(translate::pool(&self.pool)),
            priority: Some(translate::priority(self.priority)),
            no_preempt: Some(self.no_preempt),
            url: self.url.clone(),
            deadline: self.deadline_ms,
        }
    }
}

/// A queued call, with its arguments as of the time when it was made.
#[derive(Clone, Debug)]
pub(super) enum OutgoingCall {
    UpdateInfo(Info),
    Request(Vec<Request>),
    Release(Vec<i32>),
    Feedback(Vec<NodeUsage>),
    End(SessionStatus),
    /// The end of another session, such as that of a job tracker that this one had started.
    EndOther(Arc<str>),
}

impl OutgoingCall {
    pub(super) fn to_wire(&self, handle: &str) -> ClusterManagerCall {
        let own = Some(handle.to_owned());
        match self {
            OutgoingCall::UpdateInfo(info) => {
                ClusterManagerCall::SessionUpdateInfo { handle: own, info: Some(info.to_wire()) }
            }
            OutgoingCall::Request(requests) => ClusterManagerCall::RequestResource {
                handle: own,
                requests: Some(requests.iter().map(translate::request).collect()),
            },
            OutgoingCall::Release(ids) => {
                ClusterManagerCall::ReleaseResource { handle: own, ids: Some(ids.clone()) }
            }
            OutgoingCall::Feedback(usages) => ClusterManagerCall::NodeFeedback {
                handle: own,
                // The original always names these two.
                types: Some(
                    [ResourceType::Map, ResourceType::Reduce].map(translate::resource_type).into(),
                ),
                reports: Some(usages.iter().map(translate::usage).collect()),
            },
            OutgoingCall::End(status) => ClusterManagerCall::SessionEnd {
                handle: own,
                status: Some(translate::status(*status)),
            },
            OutgoingCall::EndOther(other) => ClusterManagerCall::SessionEnd {
                handle: Some(other.to_string()),
                status: Some(translate::status(SessionStatus::TimedOut)),
            },
        }
    }

    /// Whether the session goes on without it: it only says something to the cluster manager.
    pub(super) fn is_dispensable(&self) -> bool {
        matches!(
            self,
            OutgoingCall::UpdateInfo(_) | OutgoingCall::Feedback(_) | OutgoingCall::EndOther(_)
        )
    }

    /// Whether a reply that the session is unknown leaves this session alive.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, OutgoingCall::End(_) | OutgoingCall::EndOther(_))
    }
}

/// How many of the last calls are looked at for one that another can be joined with.
const JOIN_DEPTH: usize = 8;

/// Calls in the order in which they are to be made.
#[derive(Debug, Default)]
pub(super) struct Queue {
    calls: VecDeque<Arc<OutgoingCall>>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn push(&mut self, call: OutgoingCall) {
        self.calls.push_back(Arc::new(call));
    }

    /// Adds a call, to one that waits if there are many, as after a long outage of the cluster manager: a
    /// session must not end because its calls wait.
    pub(super) fn push_within(&mut self, call: OutgoingCall, bounds: &Bounds) {
        let call = match self.calls.len() >= bounds.max_outgoing / 2 {
            true => self.join(call, bounds.max_ids_per_call),
            false => Some(call),
        };
        if let Some(call) = call {
            self.push(call);
        }
    }

    /// Joins a call with one of the last that wait, or returns it. No release comes before its request.
    fn join(&mut self, call: OutgoingCall, max_ids: usize) -> Option<OutgoingCall> {
        // The first one may be on its way.
        let waiting = self.calls.iter_mut().skip(1).rev().take(JOIN_DEPTH);
        for waiting in waiting {
            match (Arc::make_mut(waiting), &call) {
                (OutgoingCall::Request(to), OutgoingCall::Request(more))
                    if to.len() + more.len() <= max_ids =>
                {
                    to.extend_from_slice(more);
                    return None;
                }
                (OutgoingCall::Release(to), OutgoingCall::Release(more))
                    if to.len() + more.len() <= max_ids =>
                {
                    to.extend_from_slice(more);
                    return None;
                }
                (OutgoingCall::Request(to), OutgoingCall::Release(ids))
                    if to.iter().any(|request| ids.contains(&request.id)) =>
                {
                    break;
                }
                (OutgoingCall::UpdateInfo(to), OutgoingCall::UpdateInfo(new)) => {
                    to.clone_from(new);
                    return None;
                }
                _ => {}
            }
        }
        Some(call)
    }

    pub(super) fn head(&self) -> Option<Arc<OutgoingCall>> {
        self.calls.front().cloned()
    }

    /// Lets others pass a call that the cluster manager cannot carry out now. Requests and releases stay behind
    /// a request: their order matters.
    pub(super) fn postpone(&mut self, call: &Arc<OutgoingCall>) {
        if !self.calls.front().is_some_and(|head| Arc::ptr_eq(head, call)) {
            return;
        }
        let Some(head) = self.calls.pop_front() else { return };
        let stays = |other: &Arc<OutgoingCall>| {
            matches!(*head, OutgoingCall::Request(_))
                && matches!(**other, OutgoingCall::Request(_) | OutgoingCall::Release(_))
        };
        let (behind, before): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.calls).into_iter().partition(stays);
        self.calls = before;
        self.calls.push_back(head);
        self.calls.extend(behind);
    }

    /// Takes out a call that has been answered, unless the queue was cleared meanwhile.
    pub(super) fn answered(&mut self, call: &Arc<OutgoingCall>) {
        if self.calls.front().is_some_and(|head| Arc::ptr_eq(head, call)) {
            self.calls.pop_front();
        }
    }

    /// Drops calls that no longer matter when the session ends.
    pub(super) fn clear_for_end(&mut self, status: SessionStatus) {
        let matters = |call: &Arc<OutgoingCall>| {
            matches!(**call, OutgoingCall::Feedback(_) | OutgoingCall::EndOther(_))
        };
        self.calls.retain(matters);
        self.push(OutgoingCall::End(status));
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::SlotRequest;
    use super::*;

    fn request(id: i32) -> OutgoingCall {
        let slot = Arc::new(SlotRequest::new(ResourceType::Map));
        OutgoingCall::Request(vec![Request { id, slot }])
    }

    fn release(id: i32) -> OutgoingCall {
        OutgoingCall::Release(vec![id])
    }

    fn shown(queue: &Queue) -> Vec<String> {
        let show = |call: &Arc<OutgoingCall>| match &**call {
            OutgoingCall::Request(requests) => {
                let ids: Vec<i32> = requests.iter().map(|request| request.id).collect();
                format!("request {ids:?}")
            }
            OutgoingCall::Release(ids) => format!("release {ids:?}"),
            other => format!("{other:?}"),
        };
        queue.calls.iter().map(show).collect()
    }

    #[test]
    fn calls_that_wait_are_joined_when_there_are_many() {
        let bounds = Bounds { max_outgoing: 6, max_ids_per_call: 3, ..Bounds::default() };
        let mut queue = Queue::default();
        for call in [request(1), release(1), request(2)] {
            queue.push_within(call, &bounds);
        }
        assert_eq!(
            shown(&queue),
            ["request [1]", "release [1]", "request [2]"],
            "few are left alone"
        );
        // A release stays behind its request; the rest finds a place before.
        for call in [request(3), release(7), release(2), request(4), release(8), request(5)] {
            queue.push_within(call, &bounds);
        }
        let expected =
            ["request [1]", "release [1, 7]", "request [2, 3, 4]", "release [2, 8]", "request [5]"];
        assert_eq!(shown(&queue), expected);
        // The head may be in flight.
        let head = queue.head().unwrap();
        queue.push_within(release(9), &bounds);
        queue.answered(&head);
        assert_eq!(shown(&queue)[2], "release [2, 8, 9]");
    }

    #[test]
    fn a_call_that_is_refused_is_passed_by_those_that_do_not_depend_on_it() {
        let update = || OutgoingCall::EndOther("other".into());
        for (calls, expected) in [
            (
                [request(1), release(1), update(), release(9), request(2)],
                ["EndOther(\"other\")", "request [1]", "release [1]", "release [9]", "request [2]"],
            ),
            (
                [release(1), request(2), update(), release(9), request(3)],
                ["request [2]", "EndOther(\"other\")", "release [9]", "request [3]", "release [1]"],
            ),
        ] {
            let mut queue = Queue::default();
            calls.into_iter().for_each(|call| queue.push(call));
            let head = queue.head().unwrap();
            queue.postpone(&head);
            assert_eq!(shown(&queue), expected);
            // It is not the head any more.
            queue.postpone(&head);
            assert_eq!(shown(&queue), expected);
        }
    }

    #[test]
    fn an_outage_however_long_does_not_fill_the_queue() {
        let bounds = Bounds { max_outgoing: 20, ..Bounds::default() };
        let mut queue = Queue::default();
        for id in 0..10_000 {
            queue.push_within(request(id), &bounds);
            queue.push_within(release(id - 1), &bounds);
        }
        assert!(queue.len() < 20, "{}", queue.len());
        let seen: usize = queue
            .calls
            .iter()
            .map(|call| match &**call {
                OutgoingCall::Request(requests) => requests.len(),
                OutgoingCall::Release(ids) => ids.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(seen, 20_000);
    }
}
