//! Peers that came without TLS, by address, so that an operator sees when TLS can be required.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Addresses that are counted; connections of further ones are counted together.
pub(crate) const MAX_PLAIN_PEERS: usize = 1024;

/// Counts of plain connections by address.
#[derive(Debug, Default)]
pub struct PlainPeers(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    peers: BTreeMap<IpAddr, PlainPeer>,
    others: PlainPeer,
}

/// Plain connections of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainPeer {
    /// Connections that were served.
    pub served: u64,
    /// Connections that were refused.
    pub refused: u64,
}

impl PlainPeers {
    /// Those of all listeners of this process.
    pub fn of_process() -> Arc<PlainPeers> {
        static OF_PROCESS: LazyLock<Arc<PlainPeers>> = LazyLock::new(Arc::default);
        OF_PROCESS.clone()
    }

    /// The counts of all addresses together.
    pub fn total(&self) -> PlainPeer {
        let counts = self.lock();
        counts.peers.values().fold(counts.others, |sum, peer| PlainPeer {
            served: sum.served + peer.served,
            refused: sum.refused + peer.refused,
        })
    }

    /// Counts a connection. Whether it is the first one of this kind of an address that is counted.
    pub(crate) fn count(&self, address: IpAddr, served: bool) -> bool {
        let mut counts = self.lock();
        let has_room = counts.peers.len() < MAX_PLAIN_PEERS;
        let address = address.to_canonical();
        let is_known = has_room || counts.peers.contains_key(&address);
        let peer = match is_known {
            true => counts.peers.entry(address).or_default(),
            false => &mut counts.others,
        };
        let count = if served { &mut peer.served } else { &mut peer.refused };
        *count += 1;
        is_known && *count == 1
    }

    /// The counts by address, and those of all further addresses together.
    pub fn counts(&self) -> (Vec<(IpAddr, PlainPeer)>, PlainPeer) {
        let counts = self.lock();
        (counts.peers.iter().map(|(address, peer)| (*address, *peer)).collect(), counts.others)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Counts are right after a panic too.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
