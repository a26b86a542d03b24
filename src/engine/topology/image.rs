//! Hosts and racks in an [`Image`](crate::Image).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DEFAULT_RACK, Rack, Topology};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{HostIdx, Idx, IdxVec, RackIdx};
use crate::lookup::{HashSeed, Lookup};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopologyImage {
    hosts: ArenaImage<HostImage>,
    /// Paths.
    racks: ArenaImage<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HostImage {
    name: Arc<str>,
    /// Absent while the host is only avoided.
    rack: Option<RackIdx>,
    uses: u32,
}

impl Topology {
    pub(crate) fn image(&self) -> TopologyImage {
        TopologyImage {
            hosts: self.hosts.image(|host, name| HostImage {
                name: name.clone(),
                rack: Some(self.host_racks[host]).filter(|rack| *rack != RackIdx::NONE),
                uses: self.uses[host],
            }),
            racks: self.racks.image(|_, rack| rack.path.clone()),
        }
    }

    pub(crate) fn from_image(image: TopologyImage, seed: HashSeed) -> Result<Self, ImageError> {
        let TopologyImage { hosts, racks } = image;
        let mut rack_by_path = Lookup::new(seed);
        let mut racks = Arena::from_image(racks, |rack, path| {
            let known = rack_by_path.insert(path.clone(), rack);
            check(known.is_none(), "a rack has two numbers")?;
            Ok(Rack { path, uses: 0 })
        })?;
        let mut uses = IdxVec::of(0, hosts.entries.len());
        let mut host_racks = IdxVec::of(RackIdx::NONE, hosts.entries.len());
        let mut host_by_name = Lookup::new(seed);
        let hosts = Arena::from_image(hosts, |host: HostIdx, image: HostImage| {
            uses[host] = image.uses;
            if let Some(number) = image.rack {
                let rack = racks.get_mut(number);
                rack.ok_or_else(|| ImageError::new("a host is in no rack"))?.uses += 1;
                host_racks[host] = number;
            }
            let known = host_by_name.insert(image.name.clone(), host);
            check(known.is_none(), "a host has two numbers")?;
            Ok(image.name)
        })?;
        let default_rack = DEFAULT_RACK.into();
        Ok(Topology { hosts, uses, host_racks, host_by_name, racks, rack_by_path, default_rack })
    }

    /// Checks the number of a host that something is near to.
    pub(crate) fn check_placed(&self, host: HostIdx) -> Result<(), ImageError> {
        let rack = self.host_racks.get(host).filter(|rack| **rack != RackIdx::NONE);
        check(rack.is_some(), "something is near to a host that is nowhere")
    }

    /// Checks the number of a host.
    pub(crate) fn check_host(&self, host: HostIdx) -> Result<(), ImageError> {
        check(self.hosts.contains(host), "a host is not known")
    }

    /// Hosts, and racks, have numbers below these.
    pub(crate) fn places(&self) -> (usize, usize) {
        (self.hosts.places(), self.racks.places())
    }
}
