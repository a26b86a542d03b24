//! Limits on the resources of one peer of a server.

use std::time::Duration;

/// The limits of a server. A peer that exceeds a limit is disconnected or waits; others are not
/// affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one call. The original has no limit.
    pub max_call_bytes: usize,
    /// Bytes of one reply. Instead of a longer one the caller gets an error.
    pub max_reply_bytes: usize,
    /// Bytes of a connection's header.
    pub max_header_bytes: usize,
    /// Connections open at once. One more is accepted and closed at once, and counted as refused.
    pub max_connections: usize,
    /// Calls of one connection that are carried out at once; more wait to be read.
    pub max_calls: usize,
    /// Calls of all connections that are carried out at once; more wait.
    pub max_running_calls: usize,
    /// Bytes of one connection's calls that are carried out at once; a call beyond waits to be read.
    pub max_inflight_bytes: usize,
    /// Bytes of all connections that have arrived and are not handled, and of replies that are not
    /// written. When they are more, the connections that hold most of them are closed.
    pub max_total_inflight_bytes: usize,
    /// How long a connection without calls may be silent. The original's clients close after ten
    /// seconds and connect again at their next call.
    pub idle_timeout: Duration,
    /// How long a header or a call may take to arrive once it has begun.
    pub frame_timeout: Duration,
    /// How long the peer may take to receive written data.
    pub write_timeout: Duration,
    /// How long a stopping server waits for calls that are carried out.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_call_bytes: 64 << 20,
            max_reply_bytes: 64 << 20,
            max_header_bytes: 64 << 10,
            max_connections: 16_384,
            max_calls: 64,
            max_running_calls: 1024,
            max_inflight_bytes: 128 << 20,
            max_total_inflight_bytes: 1 << 30,
            idle_timeout: Duration::from_secs(600),
            frame_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(5),
        }
    }
}
