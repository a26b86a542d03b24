//! What one peer may cost, and what has been counted of all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::scan::Bounds;

/// What a server allows. A peer that exceeds a limit loses its connection; nobody else notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one frame, and of one message on any stream. A longer reply is not sent either.
    pub max_frame_bytes: usize,
    /// Structs and containers inside one another. The contract itself needs five.
    pub max_depth: usize,
    /// Connections open at once. One more is accepted and closed at once, and counted as refused.
    pub max_connections: usize,
    /// Bytes of one connection that have arrived and are not handled, and replies not written.
    /// Beyond it, replies are written before more is handled; a connection is closed whose input
    /// alone exceeds it. That takes a message over several frames, so a sensible value is at least
    /// twice `max_frame_bytes`.
    pub max_inflight_bytes: usize,
    /// The same bytes of all connections together. When they are more, the connections that hold
    /// most of them are closed, see [`memory`](super::memory).
    pub max_total_inflight_bytes: usize,
    /// How long a connection may be silent between messages; zero is for ever.
    /// `cm.server.sotimeout`, spec: cluster-manager/01 §1.1.
    pub idle_timeout: Duration,
    /// How long a frame or message may take to arrive once it has begun.
    pub frame_timeout: Duration,
    /// How long the peer may take to receive what is written to it.
    pub write_timeout: Duration,
    /// How long a stopping server waits for calls that are being handled.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_frame_bytes: 64 << 20,
            max_depth: 64,
            max_connections: 100_000,
            max_inflight_bytes: 128 << 20,
            max_total_inflight_bytes: 1 << 30,
            idle_timeout: Duration::from_secs(60),
            frame_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// What one message may hold.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { max_bytes: self.max_frame_bytes, max_depth: self.max_depth }
    }
}

/// Why a server's connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed it between messages.
    Peer,
    /// The peer closed it in the middle of a message, or it broke.
    Broken,
    /// Nothing came for too long.
    Idle,
    /// A frame or message began and did not end in time.
    SlowFrame,
    /// The peer did not take what was written to it.
    SlowReader,
    /// The peer sent what cannot be a message, or too much.
    Malformed,
    /// It holds too many bytes, or most of those that all connections together may hold.
    Memory,
    /// The handler asked for it, or gave an answer that the method does not have.
    Handler,
    /// The handler panicked.
    Panic,
    /// The server stops.
    Shutdown,
}

impl Ending {
    /// All endings, in a fixed order.
    pub const ALL: [Ending; 10] = [
        Ending::Peer,
        Ending::Broken,
        Ending::Idle,
        Ending::SlowFrame,
        Ending::SlowReader,
        Ending::Malformed,
        Ending::Memory,
        Ending::Handler,
        Ending::Panic,
        Ending::Shutdown,
    ];

    /// A word for metrics, such as `slow_reader`.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Peer => "peer",
            Ending::Broken => "broken",
            Ending::Idle => "idle",
            Ending::SlowFrame => "slow_frame",
            Ending::SlowReader => "slow_reader",
            Ending::Malformed => "malformed",
            Ending::Memory => "memory",
            Ending::Handler => "handler",
            Ending::Panic => "panic",
            Ending::Shutdown => "shutdown",
        }
    }
}

/// What a server has counted since it started. Numbers only grow, except `open` and the bytes in
/// flight.
#[derive(Debug, Default)]
pub struct Counters {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    accept_errors: AtomicU64,
    calls: AtomicU64,
    faults: AtomicU64,
    inflight_bytes: AtomicU64,
    ended: [AtomicU64; Ending::ALL.len()],
}

impl Counters {
    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections accepted and served.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed at once because too many were open.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Attempts to accept a connection that failed.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Calls handed to the handler.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Messages answered with a fault that no handler saw: unknown methods and missing fields.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Bytes that have arrived and are not handled, and replies not written, of all connections.
    pub fn inflight_bytes(&self) -> u64 {
        self.inflight_bytes.load(Ordering::Relaxed)
    }

    /// Connections that ended in this way.
    pub fn ended(&self, ending: Ending) -> u64 {
        self.ended[ending as usize].load(Ordering::Relaxed)
    }

    /// Counts a refused connection.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed accept.
    pub fn count_accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call.
    pub fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message answered with a fault.
    pub fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an accepted connection.
    pub fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub fn count_ended(&self, ending: Ending) {
        self.ended[ending as usize].fetch_add(1, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Changes the bytes in flight of one connection and gives those of all.
    pub fn move_inflight(&self, before: usize, after: usize) -> u64 {
        if after >= before {
            let more = (after - before) as u64;
            self.inflight_bytes.fetch_add(more, Ordering::Relaxed) + more
        } else {
            let less = (before - after) as u64;
            self.inflight_bytes.fetch_sub(less, Ordering::Relaxed) - less
        }
    }
}
