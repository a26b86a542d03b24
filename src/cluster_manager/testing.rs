//! Helpers that tests of several modules share.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::arrivals::Arrivals;
use super::names::{Names, Resolver};
use super::notifier::{Reach, Wake};
use super::outlet::Outlet;
use corona_config::NameSettings;
use corona_engine::{Notification, Record};
use corona_model::types::{Address, Millis};
use corona_net::memory::Memory;
use corona_wire::calls::{SessionDriver, SessionDriverCall, SessionDriverReply};
use corona_wire::server::{Answer, Limits, ListenOn, Server, listen};

/// Sessions are reached by the resolver of the system, with memory of their own.
pub(crate) fn reach(settings: &NameSettings) -> Reach {
    let Limits { max_total_inflight_bytes, max_connections, .. } = Limits::default();
    Reach {
        names: Names::new(settings, Resolver::system()),
        memory: Memory::new(max_total_inflight_bytes, max_connections),
    }
}

/// A driver that answers, on this port or on a free one: its port, the ids that each call grants, and its end.
pub(crate) fn driver(port: u16) -> (u16, mpsc::Receiver<Vec<i32>>, watch::Sender<bool>) {
    let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, port).into())).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel(1000);
    let answer = move |_peer, call| {
        let tell = tell.clone();
        async move {
            let SessionDriverCall::GrantResource { granted, .. } = call else {
                return Answer::Close;
            };
            let ids = granted.unwrap_or_default().iter().map(|grant| grant.id).collect();
            let _ = tell.send(ids).await;
            Answer::Reply(SessionDriverReply::GrantResource)
        }
    };
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(Server::new(listener, answer, Limits::default()).run::<SessionDriver>(stopped));
    (port, told, stop)
}

/// Something that the engine wanted done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SeenEffect {
    Notified(Arc<str>, Notification),
    Forgotten(Arc<str>),
    Resumed,
    Record(Record),
}

/// An outlet that keeps everything and does nothing.
#[derive(Debug, Default)]
pub(crate) struct Effects(Mutex<Vec<SeenEffect>>);

impl Effects {
    /// The effects requested since the last call, in order.
    pub(crate) fn take(&self) -> Vec<SeenEffect> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn push(&self, told: SeenEffect) {
        self.0.lock().unwrap().push(told);
    }
}

impl Outlet for Effects {
    fn notify(&self, handle: Arc<str>, _to: Address, notification: Notification) -> Option<Wake> {
        self.push(SeenEffect::Notified(handle, notification));
        None
    }

    fn forget_session(&self, handle: &Arc<str>) {
        self.push(SeenEffect::Forgotten(handle.clone()));
    }

    fn resume_notifications(&self) {
        self.push(SeenEffect::Resumed);
    }

    fn record(&self, _now: Millis, record: &Record, _arrivals: &Arrivals) {
        self.push(SeenEffect::Record(record.clone()));
    }

    fn records(&self, _records: &[Record]) {}

    fn pass(&self, _records: &[Record], _took: Duration) {}
}
