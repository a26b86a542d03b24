//! Hosts and racks by number. A host name becomes a small integer when it is first seen and is
//! forgotten when nothing refers to it any more, so that names sent by peers do not pile up.
//!
//! Spec: cluster-manager/03 §3. Racks are looked up outside the engine; hosts without a rack are in
//! the default rack.

mod image;

use std::sync::Arc;

pub(super) use self::image::TopologyImage;
use super::arena::Arena;
use super::check::hold;
use super::index::{HostIdx, Idx, IdxVec, RackIdx};
use super::lookup::{HashSeed, Lookup};

/// The rack of hosts without a known rack.
pub const DEFAULT_RACK: &str = "/default-rack";

#[derive(Debug)]
struct Rack {
    path: Arc<str>,
    uses: u32,
}

/// All hosts and racks that something refers to.
#[derive(Debug)]
pub(super) struct Topology {
    hosts: Arena<HostIdx, Arc<str>>,
    // By the host's number. Each request has its hosts counted and placed, so these are kept dense.
    uses: IdxVec<HostIdx, u32>,
    /// [`RackIdx::NONE`] while the host is only excluded, so that its rack is not known.
    host_racks: IdxVec<HostIdx, RackIdx>,
    host_by_name: Lookup<Arc<str>, HostIdx>,
    racks: Arena<RackIdx, Rack>,
    rack_by_path: Lookup<Arc<str>, RackIdx>,
    default_rack: Arc<str>,
}

impl Topology {
    pub(super) fn new(seed: HashSeed) -> Self {
        Topology {
            hosts: Arena::new(),
            uses: IdxVec::new(),
            host_racks: IdxVec::new(),
            host_by_name: Lookup::new(seed),
            racks: Arena::new(),
            rack_by_path: Lookup::new(seed),
            default_rack: DEFAULT_RACK.into(),
        }
    }

    /// The number of `name`, counted as one more use. `rack` is called for a host whose rack is not
    /// known yet.
    pub(super) fn acquire(
        &mut self,
        name: &Arc<str>,
        rack: impl FnOnce() -> Option<Arc<str>>,
    ) -> HostIdx {
        let host = self.acquire_unplaced(name);
        if self.host_racks[host] == RackIdx::NONE {
            let path = rack().unwrap_or_else(|| self.default_rack.clone());
            self.host_racks[host] = self.acquire_rack(path);
        }
        host
    }

    /// As [`Self::acquire`], for a host that is only to be avoided: its rack does not matter.
    pub(super) fn acquire_unplaced(&mut self, name: &Arc<str>) -> HostIdx {
        if let Some(host) = self.host_by_name.get(name) {
            self.uses[*host] += 1;
            return *host;
        }
        let host = self.hosts.insert(name.clone());
        self.uses.reach(host, 0);
        self.host_racks.reach(host, RackIdx::NONE);
        self.uses[host] = 1;
        self.host_racks[host] = RackIdx::NONE;
        self.host_by_name.insert(name.clone(), host);
        host
    }

    /// Gives one use of `host` back; with the last one the host is forgotten.
    pub(super) fn release(&mut self, host: HostIdx) {
        let uses = &mut self.uses[host];
        *uses -= 1;
        if *uses == 0 {
            self.forget(host);
        }
    }

    fn forget(&mut self, host: HostIdx) {
        let name = self.hosts.remove(host);
        self.host_by_name.remove(&name);
        let number = self.host_racks[host];
        if number == RackIdx::NONE {
            return;
        }
        let rack = &mut self.racks[number];
        rack.uses -= 1;
        if rack.uses == 0 {
            let rack = self.racks.remove(number);
            self.rack_by_path.remove(&rack.path);
        }
    }

    /// Whether the hosts that are known are those with uses in `uses`, which has a number for each
    /// host by its index, and the racks those of these hosts.
    pub(super) fn audit(&self, uses: &IdxVec<HostIdx, u32>) -> Result<(), String> {
        let mut rack_uses = IdxVec::of(0, self.racks.places());
        for (host, name) in self.hosts.iter() {
            let (noted, rack) = (self.uses[host], self.host_racks[host]);
            let counted = uses.get(host).copied().unwrap_or(0);
            hold(noted == counted && counted > 0, || {
                format!("host {name} is used {counted} times, not {noted}")
            })?;
            let named = self.host_by_name.get(name) == Some(&host);
            hold(named, || format!("host {name} is not found by name"))?;
            if rack != RackIdx::NONE {
                rack_uses[rack] += 1;
            }
        }
        let used = uses.iter().filter(|uses| **uses > 0).count();
        hold(used == self.hosts.len(), || format!("{used} hosts of {} exist", self.hosts.len()))?;
        hold(self.host_by_name.len() == self.hosts.len(), || "hosts by name: too many".into())?;
        for (rack, entry) in self.racks.iter() {
            let named = self.rack_by_path.get(&entry.path) == Some(&rack);
            hold(named && entry.uses == rack_uses[rack] && entry.uses > 0, || {
                format!("rack {} has {} hosts, not {}", entry.path, rack_uses[rack], entry.uses)
            })?;
        }
        hold(self.rack_by_path.len() == self.racks.len(), || "racks by path: too many".into())
    }

    /// The number of a host that something refers to.
    #[cfg(test)]
    fn find(&self, name: &str) -> Option<HostIdx> {
        self.host_by_name.get(name).copied()
    }

    pub(super) fn host_name(&self, host: HostIdx) -> &Arc<str> {
        &self.hosts[host]
    }

    /// The rack of a host that was acquired with one.
    pub(super) fn rack_of(&self, host: HostIdx) -> RackIdx {
        self.host_racks[host]
    }

    pub(super) fn rack_path(&self, rack: RackIdx) -> &Arc<str> {
        &self.racks[rack].path
    }

    fn acquire_rack(&mut self, path: Arc<str>) -> RackIdx {
        if let Some(rack) = self.rack_by_path.get(&path) {
            self.racks[*rack].uses += 1;
            return *rack;
        }
        let rack = self.racks.insert(Rack { path: path.clone(), uses: 1 });
        self.rack_by_path.insert(path, rack);
        rack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_rack_while_it_is_used_and_leaves_nothing_behind() {
        let mut topology = Topology::new(HashSeed(1));
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let first = topology.acquire(&a, || Some("/r1".into()));
        let again = topology.acquire(&a, || Some("/r2".into()));
        let other = topology.acquire(&b, || None);
        assert_eq!(first, again);
        assert_eq!(&**topology.rack_path(topology.rack_of(first)), "/r1");
        assert_eq!(&**topology.rack_path(topology.rack_of(other)), DEFAULT_RACK);
        topology.release(first);
        assert_eq!(topology.find("a"), Some(first));
        topology.release(first);
        topology.release(other);
        assert_eq!((topology.find("a"), topology.hosts.len(), topology.racks.len()), (None, 0, 0));
    }

    #[test]
    fn a_host_that_was_only_avoided_is_placed_when_somebody_says_where_it_is() {
        let mut topology = Topology::new(HashSeed(1));
        let name: Arc<str> = "a".into();
        let avoided = topology.acquire_unplaced(&name);
        let wanted = topology.acquire(&name, || Some("/r1".into()));
        assert_eq!(avoided, wanted);
        assert_eq!(&**topology.rack_path(topology.rack_of(wanted)), "/r1");
        topology.release(wanted);
        topology.release(avoided);
        let avoided = topology.acquire_unplaced(&name);
        topology.release(avoided);
        assert_eq!((topology.hosts.len(), topology.racks.len()), (0, 0));
    }
}
