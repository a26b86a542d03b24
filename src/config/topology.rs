//! How hosts are put into racks: which of the original's mapping classes, and its parameters.
//!
//! Spec: cluster-manager/06 §6. It runs nothing and resolves nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::typed::Wrong;

/// The way from a host to its rack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Topology {
    /// Every host is in `/default-rack`.
    #[default]
    DefaultRack,
    /// A program is asked. `ScriptBasedMapping`
    Script {
        /// The program.
        path: PathBuf,
        /// The maximum number of hosts for one run, at least 1.
        args_per_call: usize,
    },
    /// The header and the first three numbers of the IPv4 address. `IPv4AddressTruncationMapping`
    Ipv4Truncation {
        /// The prefix; starts with a slash.
        header: Arc<str>,
    },
    /// The header and the first 64 bits of the IPv6 address. `IPv6AddressTruncationMapping`
    Ipv6Truncation {
        /// The prefix; starts with a slash.
        header: Arc<str>,
    },
    /// A table; other hosts are in `/default-rack`. `StaticMapping`
    Static {
        /// Racks by host; each starts with a slash.
        racks: BTreeMap<Arc<str>, Arc<str>>,
    },
}

/// The mapping classes of the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mapping {
    #[default]
    Script,
    Ipv4Truncation,
    Ipv6Truncation,
    Static,
}

const CLASSES: [(&str, Mapping); 4] = [
    ("org.apache.hadoop.net.ScriptBasedMapping", Mapping::Script),
    ("org.apache.hadoop.net.IPv4AddressTruncationMapping", Mapping::Ipv4Truncation),
    ("org.apache.hadoop.net.IPv6AddressTruncationMapping", Mapping::Ipv6Truncation),
    ("org.apache.hadoop.net.StaticMapping", Mapping::Static),
];

/// The mapping of a class name.
pub(super) fn mapping(class: &str) -> Result<Mapping, Wrong> {
    CLASSES.iter().find(|(name, _)| *name == class.trim()).map(|(_, mapping)| *mapping).ok_or_else(
        || {
            let known = CLASSES.map(|(name, _)| name).join(", ");
            Wrong::new("is not a known class", format!("one of {known}"))
        },
    )
}

/// The prefix that the truncation mappings add to the address.
pub(super) fn header(text: &str) -> Result<Arc<str>, Wrong> {
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err(Wrong::new("does not start with a slash", "the start of a rack, such as /")),
    }
}

/// The table of the static mapping: `host=/rack,host=/rack`.
pub(super) fn racks(text: &str) -> Result<BTreeMap<Arc<str>, Arc<str>>, Wrong> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| match item.split_once('=') {
            Some((host, rack)) if !host.is_empty() && rack.starts_with('/') => {
                Ok((host.into(), rack.into()))
            }
            _ => Err(Wrong::new(
                format!("has the illegal item {item:?}"),
                "host=/rack, with commas between",
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_classes_only() {
        for (class, expected) in CLASSES {
            assert_eq!(mapping(class), Ok(expected));
        }
        let wrong = mapping("com.example.MyMapping").unwrap_err();
        assert_eq!(wrong.wrong, "is not a known class");
        assert!(wrong.expected.contains("ScriptBasedMapping, "), "{}", wrong.expected);
    }

    #[test]
    fn headers_and_tables() {
        assert_eq!(header("/dc1/").as_deref(), Ok("/dc1/"));
        assert!(header("dc1").is_err());
        assert!(header("").is_err());
        let table = racks("a=/r1, b=/r2/x,").unwrap();
        let table: Vec<(&str, &str)> =
            table.iter().map(|(host, rack)| (&**host, &**rack)).collect();
        assert_eq!(table, [("a", "/r1"), ("b", "/r2/x")]);
        assert_eq!(racks(""), Ok(BTreeMap::new()));
        for bad in ["a", "a=r", "=/r", "a=/r,b"] {
            assert!(racks(bad).is_err(), "{bad}");
        }
    }
}
