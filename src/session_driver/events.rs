//! The events of a session: grants, losses and its end.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::books::Lost;
use super::driver::SharedDriver;
use super::host::Notification;
use super::link::CallFailure;
use super::types::{Grant, SessionStatus};

/// Something that a session learns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Slots that the session holds from now on. Each is reported once, and only if it was
    /// requested and not released meanwhile.
    Granted(Vec<Grant>),
    /// Slots that were revoked. Their work has to stop; the cluster manager counts them as free
    /// already. See [`SessionDriver::replace`](super::SessionDriver::replace).
    Revoked(Vec<Lost>),
    /// A node is dead, and the grants on it are lost.
    DeadNode {
        /// The node's name, as in grants.
        node: Arc<str>,
        /// The slots that were held there; may be empty.
        lost: Vec<Lost>,
    },
    /// The session is over. Nothing comes after this.
    Ended(Arc<Ending>),
}

/// How a session came to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Ending {
    /// It was ended here, and the cluster manager knows.
    #[error("ended as {}", .0.name())]
    Ended(SessionStatus),
    /// It was ended here, and the cluster manager could not be notified: it expires there.
    #[error("ended as {}, but the cluster manager was not notified: {failure}", .status.name())]
    NotTold {
        /// The status that should have been sent.
        status: SessionStatus,
        /// Why it was not.
        failure: CallFailure,
    },
    /// The cluster manager does not know the session any more: it has expired or was killed, or
    /// the cluster manager has lost its state.
    #[error("the cluster manager has no session {handle} any more")]
    Gone {
        /// The session.
        handle: Arc<str>,
    },
    /// The cluster manager refused something for good, such as more requests than a pool may make.
    #[error("the cluster manager replied: {0}")]
    Refused(String),
    /// The task of the session has ended, because its runtime was shut down, or because a part of the
    /// driver panicked: it expires at the cluster manager.
    #[error("the task of the session has ended: its runtime was shut down, or the driver panicked")]
    Abandoned,
}

impl Ending {
    /// Whether the cluster manager has the session no more, or never had it: nothing is left to be
    /// ended there.
    pub fn is_settled(&self) -> bool {
        match self {
            Ending::Ended(_) | Ending::Gone { .. } | Ending::Refused(_) => true,
            Ending::NotTold { .. } | Ending::Abandoned => false,
        }
    }
}

/// The events of a session, in order. At most [`Bounds::max_incoming`](super::Bounds::max_incoming)
/// notifications wait to be taken; an owner that takes none for long loses the session, because the
/// cluster manager gives up sessions that it cannot notify.
///
/// Dropping it ends the session as killed, because slots that are not used would be held for
/// nothing.
#[derive(Debug)]
pub struct SessionEvents {
    pub(super) shared: Arc<SharedDriver>,
    pub(super) incoming: mpsc::Receiver<Notification>,
    pub(super) ended: watch::Receiver<Option<Arc<Ending>>>,
    pub(super) over: bool,
}

impl SessionEvents {
    /// Waits for the next event. `None` after [`Event::Ended`].
    ///
    /// Slots change when an event is taken, not when it arrives: a grant counts as held, also in
    /// heartbeats, from then on. Dropping the future before its end loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        loop {
            let notification = tokio::select! {
                biased;
                ending = ending(&mut self.ended) => {
                    self.over = true;
                    return Some(Event::Ended(ending));
                }
                notification = take(&self.shared, &mut self.incoming) => notification,
            };
            if let Some(event) = self.shared.take_in(notification) {
                return Some(event);
            }
        }
    }
}

impl Drop for SessionEvents {
    fn drop(&mut self) {
        self.shared.begin_end(SessionStatus::Killed);
    }
}

/// Waits for the end of the session.
pub(super) async fn ending(ended: &mut watch::Receiver<Option<Arc<Ending>>>) -> Arc<Ending> {
    match ended.wait_for(Option::is_some).await {
        Ok(ending) => ending.clone().unwrap_or_else(|| Arc::new(Ending::Abandoned)),
        Err(_) => Arc::new(Ending::Abandoned),
    }
}

/// Taking an event may cause a call, so that there must be room for one.
async fn take(shared: &SharedDriver, incoming: &mut mpsc::Receiver<Notification>) -> Notification {
    shared.room_for_a_call().await;
    match incoming.recv().await {
        Some(notification) => notification,
        // The session has ended; the event is about to follow.
        None => std::future::pending().await,
    }
}
