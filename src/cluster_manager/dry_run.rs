//! A cluster manager without sockets: it takes calls, and returns its replies and the notifications
//! that it would send.
//!
//! It is the live service without sockets: it has the same translation, engine, racks and
//! configuration. The decisions of another cluster manager are entered with [`DryRun::observe`].

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::access::Access;
use super::arrivals::Arrivals;
use super::calls::Calls;
use super::clock::Clock;
use super::core::Core;
use super::large_calls::Entrance;
use super::metrics::Metrics;
use super::names::{Names, Resolver};
use super::outlet::Outlet;
use super::racks::Racks;
use super::reload::Reloader;
use super::{StartError, new_engine};
use corona_config::Loaded;
use corona_engine::{Engine, Input, Notification, Observed, Record, Reply};
use corona_model::types::{Address, Millis};
use corona_process::Boxed;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Answered};
use corona_wire::server::Answer;

/// The cluster manager without ends.
#[derive(Debug)]
pub struct DryRun {
    calls: Calls,
    core: Arc<Core>,
    collected: Arc<Collected>,
    reloader: Arc<Reloader>,
}

/// A notification that the dry run would have sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A session would have been notified.
    Notice(Arc<str>, Notification),
    /// A session has ended, and would not be notified any more.
    Ended(Arc<str>),
}

/// Keeps what sessions would have been notified of.
#[derive(Debug, Default)]
struct Collected(Mutex<Vec<Told>>);

impl Collected {
    fn push(&self, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Outlet for Collected {
    fn notify(&self, handle: Arc<str>, _to: Address, notification: Notification) {
        self.push(Told::Notice(handle, notification));
    }

    fn forget_session(&self, handle: &Arc<str>) {
        self.push(Told::Ended(handle.clone()));
    }

    fn resume_notifications(&self) {}

    fn record(&self, _now: Millis, _record: &Record, _arrivals: &Arrivals) {}

    fn records(&self, _records: &[Record]) {}

    fn pass(&self, _records: &[Record], _took: Duration) {}
}

impl DryRun {
    /// Starts with nothing but a configuration, out of safe mode. No state file is read or written.
    ///
    /// Errors: the host files cannot be read, or the clock is wrong.
    pub fn start(loaded: &Loaded) -> Result<DryRun, StartError> {
        let settings = loaded.settings.clone();
        let hosts = settings.host_files.load()?.hosts;
        let clock = Clock::new();
        let engine = new_engine(&settings, clock.now(), hosts)?;
        let collected = Arc::new(Collected::default());
        let core = Core::new(engine, clock, collected.clone(), Arc::new(Metrics::new()));
        let core = Arc::new(core);
        let resolver = Resolver::system();
        let entrance = Entrance::new(&settings);
        let names = Names::new(&settings.names, resolver.clone());
        let calls = Calls {
            core: core.clone(),
            access: Arc::new(Access::new(settings.access, names)),
            racks: Racks::new(settings.topology, settings.racks, &resolver),
            host_files: settings.host_files,
            entrance,
        };
        let reloader = Arc::new(Reloader::new(loaded, core.clone()));
        Ok(DryRun { calls, core, collected, reloader })
    }

    /// What `peer` would be answered. None for calls that would change something outside, which are
    /// not made: `setSafeMode` and `persistState`.
    pub fn call(&self, peer: SocketAddr, call: Call) -> Boxed<'_, Option<Answer<Answered>>> {
        Box::pin(self.answer(peer, call))
    }

    async fn answer(&self, peer: SocketAddr, call: Call) -> Option<Answer<Answered>> {
        match call {
            Call::SetSafeMode { .. } | Call::PersistState => None,
            call => Some(match self.calls.objection(peer, &call).await {
                Some(objection) => objection,
                None => self.calls.answer(peer, call).await,
            }),
        }
    }

    /// Turns safe mode on or off, without notifying the proxy job tracker.
    pub fn set_safe_mode(&self, on: bool) {
        // The engine never refuses this input.
        let _ = self.core.apply(Input::SetSafeMode { on });
    }

    /// Does what time and the calls so far make due. Gives when to come back, if nothing happens
    /// before. Others may be late themselves: what passed unseen for `late_ms` is no silence.
    pub async fn settle(&self, late_ms: i64) -> Option<Instant> {
        let mut late_ms = Some(late_ms);
        self.core.settle(|| late_ms.take().unwrap_or(0)).await
    }

    /// What sessions would have been told since the last call, in order.
    pub fn told(&self) -> Vec<Told> {
        self.collected.take()
    }

    /// Enters a decision of another cluster manager. Returns whether that could be done.
    pub fn observe(&self, observed: Observed) -> bool {
        let reply = self.core.apply(Input::Observed(observed));
        matches!(reply, Ok(Reply::Observed { entered: true }))
    }

    /// Looks at the books.
    pub fn look<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        self.core.look(|engine, _| look(engine))
    }

    /// Looks after changed scheduling files, as the live service does, until `stop` becomes true.
    pub fn watch_files(&self, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + use<> {
        self.reloader.clone().run(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_engine::{Notification, Standing};
    use corona_wire::generated as wire;

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn node(name: &str) -> Call {
        let address = wire::InetAddress::new(name.to_owned(), 5);
        let total = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
        let apps = std::collections::BTreeMap::from([(wire::ResourceType::MAP, "app".to_owned())]);
        let node = wire::ClusterNodeInfo::new(name.to_owned(), address, total, None, apps);
        Call::NodeHeartbeat { node: Some(node) }
    }

    #[tokio::test]
    async fn it_answers_decides_and_observes_without_telling_anybody() {
        let loaded = corona_config::load(None, &[]).unwrap();
        let manager = DryRun::start(&loaded).unwrap();
        let id_prefix = "202611220900".into();
        assert!(manager.observe(Observed::Identity { id_prefix, sessions_numbered: 4 }));
        let call = async |call| manager.call(peer(), call).await;
        let id = match call(Call::GetNextSessionId).await {
            Some(Answer::Reply(Answered::GetNextSessionId(id))) => id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id, "202611220900.5");
        let address = wire::InetAddress::new("driver".to_owned(), 5);
        let info = wire::SessionInfo::new(
            address,
            "n".to_owned(),
            "u".to_owned(),
            None,
            None,
            None,
            None,
            None,
            None,
        );
        let handle = Some(id.clone());
        let start = Call::SessionStart { handle: handle.clone(), info: Some(info) };
        assert!(matches!(call(start).await, Some(Answer::Reply(_))));
        let request = wire::ResourceRequest::new(3, None, None, wire::ResourceType::MAP, None);
        let requests = Some(vec![request]);
        call(Call::RequestResource { handle: handle.clone(), requests }).await;
        for name in ["a", "b"] {
            assert!(matches!(call(node(name)).await, Some(Answer::Reply(_))));
            manager.settle(0).await;
        }
        let told = manager.told();
        let [Told::Notice(session, Notification::Granted(grants))] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((&**session, &*grants[0].node_name), (&*id, "a"));
        let granted = |id: &str, request| Observed::Granted {
            handle: id.into(),
            id: request,
            node: "b".into(),
        };
        assert!(manager.observe(granted(&id, 3)));
        assert!(!manager.observe(granted(&id, 4)), "there is no such request");
        let standing = manager.look(|engine| engine.standing(&id, 3));
        assert_eq!(standing, Some(Standing::Granted("b".into())));
        call(Call::SessionEnd { handle, status: None }).await;
        assert_eq!(manager.told(), [Told::Ended(id.as_str().into())]);
        assert!(call(Call::PersistState).await.is_none());
    }
}
