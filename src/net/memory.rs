//! The memory of messages that are arriving and of replies that are leaving, of all connections
//! together.
//!
//! The sum has a limit. When it is exceeded, the connections that hold most of the memory are
//! closed, and never the one that happens to need a little more at that moment. The bytes are added
//! up by peer first, so that a peer gains nothing by spreading them over many connections: of the
//! peer that holds most, the largest connection goes first, and so on until there is room again.
//!
//! It knows no sockets: the owner of a connection watches its [`Holding`] and closes it.

use std::collections::{BinaryHeap, HashMap};
use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;
use thiserror::Error;
use tokio::sync::Notify;

use super::{Counters, Ending, peer_of};

/// A connection that holds less than this is not looked at when there is no room, so that short
/// messages cost nothing but an addition.
const SMALL_BYTES: usize = 4 * 1024;
/// When there is no room, so much more is freed than is needed at once: this part of the limit.
const SLACK: u64 = 16;

/// The memory that a server's connections share.
#[derive(Debug)]
pub struct Memory {
    counters: Arc<Counters>,
    limit: u64,
    /// Connections that hold less are not in a list.
    listed_from: usize,
    /// Bytes of connections that are being closed to make room.
    leaving: AtomicU64,
    listed: Mutex<Slab<Arc<Holder>>>,
}

/// A connection is closed, because all connections together hold too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the memory for messages is exhausted, and this connection holds the most")]
pub struct Revoked;

impl From<Revoked> for Ending {
    fn from(_: Revoked) -> Ending {
        Ending::Memory
    }
}

/// One connection's use of memory, as others see it.
#[derive(Debug)]
struct Holder {
    peer: IpAddr,
    bytes: AtomicUsize,
    revoked: AtomicBool,
    /// The bytes that it held when it was revoked. Written while the list is locked.
    leaving: AtomicU64,
    told: Notify,
}

/// A place in the list, until it is dropped.
#[derive(Debug)]
struct Listed {
    memory: Arc<Memory>,
    place: usize,
    holder: Arc<Holder>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let holder = self.memory.listed().remove(self.place);
        self.memory.leaving.fetch_sub(holder.leaving.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Memory {
    /// Memory for `limit` bytes, which `connections` connections will share at most.
    pub fn new(limit: usize, connections: usize) -> Arc<Memory> {
        // Those that are in no list must not exceed the limit by themselves.
        let fair = limit / connections.max(1) / 2;
        Arc::new(Memory {
            counters: Arc::default(),
            limit: limit as u64,
            listed_from: fair.clamp(1, SMALL_BYTES),
            leaving: AtomicU64::new(0),
            listed: Mutex::default(),
        })
    }

    /// Where the bytes are counted, with everything else that a server counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The account of a connection from or to `peer`: nothing yet.
    pub fn holding(self: &Arc<Self>, peer: IpAddr) -> Holding {
        Holding { memory: self.clone(), peer: peer_of(peer), bytes: 0, listed: None }
    }

    /// The excess over the limit, apart from memory that is being freed already.
    fn excess(&self, total: u64) -> u64 {
        total.saturating_sub(self.leaving.load(Ordering::Relaxed)).saturating_sub(self.limit)
    }

    /// Revokes the memory of the largest holders, until there is room.
    fn make_room(&self) {
        let listed = self.listed();
        let excess = self.excess(self.counters.inflight_bytes());
        if excess == 0 {
            return;
        }
        let mut by_peer: HashMap<IpAddr, (usize, BinaryHeap<(usize, usize)>)> = HashMap::new();
        for (place, holder) in listed.iter() {
            let bytes = holder.bytes.load(Ordering::Relaxed);
            if bytes > 0 && !holder.revoked.load(Ordering::Relaxed) {
                let (sum, connections) = by_peer.entry(holder.peer).or_default();
                *sum += bytes;
                connections.push((bytes, place));
            }
        }
        let mut peers: BinaryHeap<(usize, IpAddr)> =
            by_peer.iter().map(|(peer, (sum, _))| (*sum, *peer)).collect();
        let wanted = excess.saturating_add(self.limit / SLACK);
        let mut freed = 0;
        while freed < wanted {
            let Some((sum, peer)) = peers.pop() else { return };
            let largest = by_peer.get_mut(&peer).and_then(|(_, connections)| connections.pop());
            let Some((bytes, place)) = largest else { continue };
            let Some(holder) = listed.get(place) else { continue };
            holder.leaving.store(bytes as u64, Ordering::Relaxed);
            self.leaving.fetch_add(bytes as u64, Ordering::Relaxed);
            holder.revoked.store(true, Ordering::Release);
            holder.told.notify_one();
            tracing::warn!(
                %peer,
                bytes,
                limit = self.limit,
                "closing a connection: the memory for messages is exhausted, and its peer holds most"
            );
            freed += bytes as u64;
            peers.push((sum - bytes, peer));
        }
    }

    /// No panic happens while the lock is held.
    fn listed(&self) -> MutexGuard<'_, Slab<Arc<Holder>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory that a connection, or a part of it, holds. Released when it is dropped.
#[derive(Debug)]
pub struct Holding {
    memory: Arc<Memory>,
    peer: IpAddr,
    bytes: usize,
    listed: Option<Arc<Listed>>,
}

impl Holding {
    /// Holds `bytes` from now on, instead of the earlier number.
    ///
    /// Errors: there is not so much room, and the connection is one of those that hold most.
    pub fn set(&mut self, bytes: usize) -> Result<(), Revoked> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let total = self.memory.counters.move_inflight(before, bytes);
        if self.listed.is_none() && bytes >= self.memory.listed_from {
            self.list(before);
        }
        if let Some(listed) = &self.listed {
            let held = &listed.holder.bytes;
            if bytes >= before {
                held.fetch_add(bytes - before, Ordering::Relaxed);
            } else {
                held.fetch_sub(before - bytes, Ordering::Relaxed);
            }
        }
        if bytes <= before {
            return Ok(());
        }
        if self.memory.excess(total) > 0 {
            self.memory.make_room();
        }
        if self.is_revoked() { Err(Revoked) } else { Ok(()) }
    }

    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Another part of the same connection, which holds nothing yet.
    pub fn part(&mut self) -> Holding {
        if self.listed.is_none() {
            self.list(self.bytes);
        }
        Holding {
            memory: self.memory.clone(),
            peer: self.peer,
            bytes: 0,
            listed: self.listed.clone(),
        }
    }

    /// Whether the connection is to be closed.
    pub fn is_revoked(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.holder.revoked.load(Ordering::Acquire))
    }

    /// Waits until the connection is to be closed. One task of a connection may wait.
    pub async fn revoked(&self) {
        match &self.listed {
            Some(listed) if !self.is_revoked() => listed.holder.told.notified().await,
            Some(_) => {}
            None => pending().await,
        }
    }

    fn list(&mut self, bytes: usize) {
        let holder = Arc::new(Holder {
            peer: self.peer,
            bytes: AtomicUsize::new(bytes),
            revoked: AtomicBool::new(false),
            leaving: AtomicU64::new(0),
            told: Notify::new(),
        });
        let place = self.memory.listed().insert(holder.clone());
        self.listed = Some(Arc::new(Listed { memory: self.memory.clone(), place, holder }));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.memory.counters.move_inflight(self.bytes, 0);
        if let Some(listed) = &self.listed {
            listed.holder.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn those_who_hold_most_are_revoked_and_nobody_else() {
        let memory = Memory::new(1_000_000, 10);
        let hold = |peer, bytes| {
            let mut holding = memory.holding(ip(peer));
            holding.set(bytes).unwrap();
            holding
        };
        // One peer holds most in many pieces, another one has the largest piece.
        let spread: Vec<Holding> = (1..=7).map(|n| hold(1, 90_000 + n)).collect();
        let large = hold(2, 300_000);
        let mut innocent = hold(3, 50_000);
        let mut small = hold(4, 10);
        assert_eq!(small.set(20_000), Ok(()), "it does not pay for others");
        let revoked = |list: &[Holding]| list.iter().filter(|h| h.is_revoked()).count();
        assert_eq!(revoked(&spread), 1, "so much is enough");
        assert!(spread[6].is_revoked(), "the largest");
        assert!(!large.is_revoked());
        // Memory that is being freed counts as free.
        assert_eq!(innocent.set(60_000), Ok(()));
        assert_eq!(revoked(&spread), 1);
        drop(spread);
        assert_eq!(memory.leaving.load(Ordering::Relaxed), 0);
        assert_eq!(memory.counters().inflight_bytes(), 300_000 + 60_000 + 20_000);
        drop((large, innocent, small));
        assert_eq!(memory.counters().inflight_bytes(), 0);
        assert_eq!(memory.listed().len(), 0);
    }

    #[tokio::test]
    async fn the_largest_holder_is_notified_whether_it_grows_or_waits() {
        let memory = Memory::new(100_000, 10);
        let mut grows = memory.holding(ip(1));
        assert_eq!(grows.set(100_001), Err(Revoked));
        grows.revoked().await;
        drop(grows);

        let mut waits = memory.holding(ip(1));
        let mut part = waits.part();
        waits.set(40_000).unwrap();
        part.set(50_000).unwrap();
        let mut other = memory.holding(ip(2));
        other.set(20_000).unwrap();
        waits.revoked().await;
        assert!(part.is_revoked() && !other.is_revoked());
        drop(waits);
        assert_eq!(memory.counters().inflight_bytes(), 70_000, "a part may last longer");
        drop((part, other));
        assert_eq!(memory.leaving.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn connections_too_small_to_be_listed_cannot_fill_the_memory() {
        for (limit, connections) in [(1 << 30, 100_000), (1 << 20, 100_000), (100, 1000)] {
            let memory = Memory::new(limit, connections);
            assert!((memory.listed_from - 1) * connections < limit, "{limit} {connections}");
        }
    }
}
