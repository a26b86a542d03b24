//! Why connections end, and a server's counters of them.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The peer did not read the written data.
    SlowReader,
    /// The peer sent something that is no message, or is too large.
    Malformed,
    /// It holds too many bytes, or most of those that all connections together may hold.
    Memory,
    /// The handler requested it, or returned a reply that the method does not have.
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

/// Counters of a server since its start. Numbers only grow, except `open` and the bytes in flight.
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
        self.ended.get(ending as usize).map_or(0, |ended| ended.load(Ordering::Relaxed))
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
        if let Some(ended) = self.ended.get(ending as usize) {
            ended.fetch_add(1, Ordering::Relaxed);
        }
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
