//! The Thrift service of a task tracker: calls that purge or blacklist sessions.
//!
//! The messages are bare. No program of the original calls it, but it must exist: its port is the
//! node's address. Spec: mapreduce/03 §3.10.

use std::time::Duration;

use tokio::net::TcpListener;

use corona_wire::calls::{
    CoronaTaskTracker, CoronaTaskTrackerCall as Call, CoronaTaskTrackerReply as Reply,
};
use corona_wire::server::{Answer, Handler, Limits, Peer, Server};

/// The actions on a session.
pub trait Sessions: Send + Sync + 'static {
    /// Ends and forgets all its jobs. One that is not known is no error.
    fn purge_session(&self, handle: &str);

    /// Refuses further tasks of the session. Its jobs continue.
    fn blacklist_session(&self, handle: &str);
}

/// Calls go to these sessions.
#[derive(Debug)]
pub struct Callbacks<S>(S);

impl<S: Sessions> Callbacks<S> {
    /// Serves on this listener. `idle_timeout` limits the silence of a connection; zero means no
    /// limit.
    pub fn serve(sessions: S, listener: TcpListener, idle_timeout: Duration) -> Server<Self> {
        // A call is one handle.
        let limits = Limits {
            max_frame_bytes: 64 << 10,
            max_depth: 16,
            max_connections: 256,
            max_inflight_bytes: 128 << 10,
            max_total_inflight_bytes: 16 << 20,
            idle_timeout,
            ..Limits::default()
        };
        Server::new(listener, Callbacks(sessions), limits)
    }
}

impl<S: Sessions> Handler<CoronaTaskTracker> for Callbacks<S> {
    async fn call(&self, peer: Peer, call: Call) -> Answer<Reply> {
        match call {
            Call::PurgeSession { handle } => {
                tracing::info!(%peer, ?handle, "purging a session on request");
                // Java's null is a session that is not known.
                self.0.purge_session(&handle.unwrap_or_default());
                Answer::Reply(Reply::PurgeSession)
            }
            Call::BlacklistSession { handle } => {
                tracing::info!(%peer, ?handle, "blacklisting a session on request");
                if let Some(handle) = handle {
                    self.0.blacklist_session(&handle);
                }
                Answer::Reply(Reply::BlacklistSession)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::watch;

    use super::*;
    use corona_wire::client::{Client, ClientOptions};
    use corona_wire::server::{ListenOn, listen};

    #[derive(Clone, Default)]
    struct RecordedCalls(Arc<Mutex<Vec<String>>>);

    impl Sessions for RecordedCalls {
        fn purge_session(&self, handle: &str) {
            self.0.lock().unwrap().push(format!("purge {handle}"));
        }

        fn blacklist_session(&self, handle: &str) {
            self.0.lock().unwrap().push(format!("blacklist {handle}"));
        }
    }

    #[tokio::test]
    async fn sessions_are_purged_and_blacklisted() {
        let listener = listen(ListenOn::Address("127.0.0.1:0".parse().unwrap())).unwrap();
        let told = RecordedCalls::default();
        let server = Callbacks::serve(told.clone(), listener, Duration::ZERO);
        let address = server.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(server.run::<CoronaTaskTracker>(stopped));
        let options = ClientOptions::default();
        let mut client = Client::<CoronaTaskTracker>::connect(address, options).await.unwrap();
        client.purge_session("s.1".to_owned()).await.unwrap();
        client.blacklist_session("s.2".to_owned()).await.unwrap();
        client.call(&Call::PurgeSession { handle: None }).await.unwrap();
        client.call(&Call::BlacklistSession { handle: None }).await.unwrap();
        assert_eq!(*told.0.lock().unwrap(), ["purge s.1", "blacklist s.2", "purge "]);
        stop.send_replace(true);
        serving.await.unwrap();
    }
}
