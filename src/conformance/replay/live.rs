//! The world of a replay that runs: sockets, listening ports, and the clock of this machine.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::NoRestart;
use super::peers::RecordedPeers;
use super::socket::ClientSocket;
use super::stalls::Stalls;
use super::world::{Arrival, Callback, ReplayTarget};
use crate::capture::ConnectionId;

/// Sockets and the clock. `R` restarts the manager and returns its new address.
pub(super) struct LiveWorld<R> {
    started: Instant,
    target: SocketAddr,
    sockets: HashMap<ConnectionId, ClientSocket>,
    peers: RecordedPeers,
    callbacks: mpsc::Receiver<(Instant, Callback)>,
    restart: R,
    watch: StallWatch,
    /// Stalls before the last restart.
    earlier_stalls: Stalls,
}

impl<R> LiveWorld<R> {
    /// For a manager at `target`, which calls `peers`; their calls arrive in `callbacks`.
    pub(super) fn new(
        target: SocketAddr,
        peers: RecordedPeers,
        callbacks: mpsc::Receiver<(Instant, Callback)>,
        restart: R,
    ) -> LiveWorld<R> {
        LiveWorld {
            started: Instant::now(),
            target,
            sockets: HashMap::new(),
            peers,
            callbacks,
            restart,
            watch: StallWatch::start(),
            earlier_stalls: Stalls::default(),
        }
    }
}

impl<R: AsyncFnMut() -> Result<SocketAddr, NoRestart>> ReplayTarget for LiveWorld<R> {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn epoch_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    async fn wait_until(&mut self, due: Duration) {
        sleep_until(self.started + due).await;
    }

    async fn connect(&mut self, connection: ConnectionId) -> io::Result<()> {
        let socket = ClientSocket::connect(self.target).await?;
        self.sockets.insert(connection, socket);
        Ok(())
    }

    async fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> io::Result<()> {
        match self.sockets.get_mut(&connection) {
            Some(socket) => socket.send(bytes).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    async fn hang_up(&mut self, connection: ConnectionId, broken: bool) {
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.hang_up(broken).await;
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.sockets.remove(&connection);
    }

    async fn arrival(&mut self, connection: ConnectionId, deadline: Duration) -> Option<Arrival> {
        let socket = self.sockets.get_mut(&connection)?;
        timeout_at(self.started + deadline, socket.arrival()).await.ok()
    }

    fn present_arrival(&mut self, connection: ConnectionId) -> Option<Arrival> {
        self.sockets.get_mut(&connection)?.present_arrival()
    }

    async fn callback(&mut self, deadline: Duration) -> Option<(Duration, Callback)> {
        let next = timeout_at(self.started + deadline, self.callbacks.recv()).await;
        let (at, callback) = next.ok().flatten()?;
        Some((at.saturating_duration_since(self.started), callback))
    }

    fn present_callback(&mut self) -> Option<(Duration, Callback)> {
        let (at, callback) = self.callbacks.try_recv().ok()?;
        Some((at.saturating_duration_since(self.started), callback))
    }

    async fn set_proxy(&mut self, listens: bool) -> io::Result<()> {
        self.peers.set_proxy(listens).await
    }

    async fn open_driver(&mut self, recorded: &(String, i32)) -> io::Result<SocketAddr> {
        self.peers.set_driver(recorded, true).await
    }

    async fn restart(&mut self) -> Result<(), NoRestart> {
        self.earlier_stalls.add(&self.watch.seen());
        let restarted = (self.restart)().await;
        // Waiting for a process may have stalled all tasks of this runtime.
        self.watch = StallWatch::start();
        self.target = restarted?;
        self.sockets.clear();
        Ok(())
    }

    fn stalls(&self) -> Stalls {
        let mut stalls = self.earlier_stalls;
        stalls.add(&self.watch.seen());
        stalls
    }
}

/// How often the watch looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Records stalls of its runtime.
struct StallWatch {
    seen: Arc<Mutex<Stalls>>,
    looking: JoinHandle<()>,
}

impl StallWatch {
    fn start() -> StallWatch {
        let seen = Arc::new(Mutex::new(Stalls::default()));
        let noted = Arc::clone(&seen);
        let looking = tokio::spawn(async move {
            loop {
                let due = Instant::now() + LOOK_EVERY;
                sleep_until(due).await;
                noted.lock().unwrap_or_else(PoisonError::into_inner).woke(due.elapsed());
            }
        });
        StallWatch { seen, looking }
    }

    /// The stalls so far.
    fn seen(&self) -> Stalls {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::super::stalls::TOLERATED;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_blocked_runtime_is_a_stall() {
        let watch = StallWatch::start();
        // The watch has to be asleep before it can wake late.
        tokio::task::yield_now().await;
        let blocked = TOLERATED * 4;
        tokio::time::advance(blocked).await;
        tokio::task::yield_now().await;
        let seen = watch.seen();
        assert_eq!((seen.pauses, seen.longest), (1, blocked - LOOK_EVERY), "{seen}");
    }
}
