//! Limits on the resources of one peer of a Thrift server.

use std::time::Duration;

use super::scan::Bounds;

/// The limits of a server. A peer that exceeds a limit is disconnected; others are not affected.
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
    /// most of them are closed, see [`memory`](corona_net::memory).
    pub max_total_inflight_bytes: usize,
    /// How long a connection may be silent between messages; zero is forever.
    /// `cm.server.sotimeout`, spec: cluster-manager/01 §1.1.
    pub idle_timeout: Duration,
    /// How long a frame or message may take to arrive once it has begun.
    pub frame_timeout: Duration,
    /// How long the peer may take to receive written data.
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
    /// Limits on one message.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { max_bytes: self.max_frame_bytes, max_depth: self.max_depth }
    }
}
