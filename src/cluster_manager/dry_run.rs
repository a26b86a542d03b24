//! A cluster manager that decides and tells nobody: it has no sockets, is given calls, and gives
//! back what it would answer and what sessions would be told.
//!
//! It is the live service but for its ends: the same translation, engine, racks and configuration.
//! What another cluster manager decides can be entered into its books with [`DryRun::follow`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::access::Access;
use super::core::{Clock, Core, Told};
use super::large_calls::Entrance;
use super::metrics::Metrics;
use super::names::Resolver;
use super::notifier::{Notifier, Reach};
use super::persist::Persist;
use super::racks::Racks;
use super::reload::Reloader;
use super::rpc::Rpc;
use super::safe_mode::SafeModeSwitch;
use super::web::events::Events;
use super::{StartError, new_engine, patience};
use corona_config::Loaded;
use corona_engine::{Engine, Input};
use corona_model::types::Millis;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Answered};
use corona_wire::server::{Answer, Handler};

/// The cluster manager without ends.
#[derive(Debug)]
pub struct DryRun {
    rpc: Rpc,
    core: Arc<Core>,
    reloader: Arc<Reloader>,
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
        let metrics = Arc::new(Metrics::new());
        let reach = Reach::alone(&settings.names);
        let access = Arc::new(Access::new(settings.access.clone(), reach.names.clone()));
        let notifier = Notifier::new(patience(&settings), metrics.clone(), reach);
        let events = Arc::new(Events::new(clock.now(), 1));
        let core = Core::new(engine, clock, notifier, metrics.clone(), events).telling_nobody();
        let core = Arc::new(core);
        let entrance = Entrance::new(&settings);
        let safe_mode = SafeModeSwitch::new(settings.proxy_job_tracker_address, clock);
        let safe_mode = Arc::new(safe_mode);
        let persist = Persist::new(
            core.clone(),
            safe_mode.clone(),
            settings.state_file,
            settings.compress_state,
        );
        let rpc = Rpc {
            core: core.clone(),
            metrics,
            access,
            racks: Racks::new(settings.topology, settings.racks, &Resolver::system()),
            host_files: settings.host_files,
            safe_mode,
            persist: Arc::new(persist),
            operations: Arc::default(),
            entrance,
        };
        let reloader = Arc::new(Reloader::new(loaded, core.clone()));
        Ok(DryRun { rpc, core, reloader })
    }

    /// What `peer` would be answered. None for calls that would change something outside, which are
    /// not made: `setSafeMode` and `persistState`.
    pub async fn call(&self, peer: SocketAddr, call: Call) -> Option<Answer<Answered>> {
        match call {
            Call::SetSafeMode { .. } | Call::PersistState => None,
            call => Some(self.rpc.call(peer, call).await),
        }
    }

    /// Turns safe mode on or off, and tells nobody.
    pub fn set_safe_mode(&self, on: bool) {
        // The engine never refuses this input.
        let _ = self.core.apply(Input::SetSafeMode { on });
    }

    /// Does what time and the calls so far make due. Gives when to come back, if nothing happens
    /// before. Others may be late themselves: what passed unseen for `late_ms` is no silence.
    pub async fn settle(&self, late_ms: i64) -> Option<Instant> {
        self.core.settle(late_ms).await
    }

    /// What sessions would have been told since the last call, in order.
    pub fn told(&self) -> Vec<Told> {
        self.core.take_told()
    }

    /// Enters something into the books that another cluster manager has decided.
    /// See `engine::Engine::follow_grant` and its neighbours.
    pub fn follow<T>(&self, enter: impl FnOnce(&mut Engine, Millis) -> T) -> T {
        self.core.follow(enter)
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
    async fn it_answers_decides_and_follows_without_telling_anybody() {
        let loaded = corona_config::load(None, &[]).unwrap();
        let manager = DryRun::start(&loaded).unwrap();
        manager.follow(|engine, _| engine.take_identity("202611220900".into(), 4));
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
        assert!(manager.follow(|engine, now| engine.follow_grant(now, &id, 3, "b")));
        let standing = manager.look(|engine| engine.standing(&id, 3));
        assert_eq!(standing, Some(Standing::Granted("b".into())));
        call(Call::SessionEnd { handle, status: None }).await;
        assert_eq!(manager.told(), [Told::Ended(id.as_str().into())]);
        assert!(call(Call::PersistState).await.is_none());
    }
}
