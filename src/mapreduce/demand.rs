//! What the tasks of a job take of a node, as its configuration names it: for the requests of its job tracker.

use corona_config::{JobConf, keys};
use corona_model::types::{ComputeSpecs, ResourceType};

use crate::ids::PerKind;

/// The resources that a job names for its tasks. What it does not name remains as the original's job trackers
/// request it, which cluster managers replace by their own defaults where they count resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskDemand(PerKind<Named>);

/// Each is absent where the job does not name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    cpus: Option<i16>,
    memory_mb: Option<i32>,
    disk_gb: Option<i32>,
    network_mbps: Option<i16>,
}

impl TaskDemand {
    /// That of a job's configuration.
    pub fn of(conf: &JobConf) -> TaskDemand {
        let named = |cpus, memory, disk, network| Named {
            cpus: amount(conf, cpus),
            memory_mb: amount(conf, memory),
            disk_gb: amount(conf, disk),
            network_mbps: amount(conf, network),
        };
        TaskDemand(PerKind {
            map: named(
                &keys::JOB_MAP_CPUS,
                &keys::JOB_MAP_MEMORY,
                &keys::JOB_MAP_DISK,
                &keys::JOB_MAP_NETWORK,
            ),
            reduce: named(
                &keys::JOB_REDUCE_CPUS,
                &keys::JOB_REDUCE_MEMORY,
                &keys::JOB_REDUCE_DISK,
                &keys::JOB_REDUCE_NETWORK,
            ),
        })
    }

    /// The CPUs that the job names for a task.
    pub fn cpus(&self, kind: ResourceType) -> Option<u32> {
        self.named(kind)?.cpus.and_then(|cpus| u32::try_from(cpus).ok())
    }

    fn named(&self, kind: ResourceType) -> Option<Named> {
        match kind {
            ResourceType::Map => Some(self.0.map),
            ResourceType::Reduce => Some(self.0.reduce),
            ResourceType::JobTracker => None,
        }
    }

    /// The resources of a request, with those that the job names in place of its own.
    pub fn applied(&self, kind: ResourceType, specs: Option<ComputeSpecs>) -> Option<ComputeSpecs> {
        let Some(named) = self.named(kind).filter(|named| *named != Named::default()) else {
            return specs;
        };
        // Beside a number that the job names, the usual numbers of the original would count as named too.
        Some(ComputeSpecs {
            num_cpus: named.cpus.unwrap_or(1),
            memory_mb: named.memory_mb,
            disk_gb: named.disk_gb,
            network_mbps: named.network_mbps,
        })
    }
}

/// An amount that the job sets itself. Nonsense, and what means no limit, counts as not set.
fn amount<T: TryFrom<i64>>(conf: &JobConf, key: &keys::Key) -> Option<T> {
    conf.text_if_set(key)?;
    let amount = conf.number(key).filter(|amount| *amount > 0)?;
    T::try_from(amount).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_config::Source;

    fn demand(set: &[(&str, &str)]) -> TaskDemand {
        let all = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let overrides: Vec<(String, String)> = all.collect();
        let source = Source { overrides: &overrides, ..Source::default() };
        TaskDemand::of(&JobConf::of_site(&source.load_job_tracker().unwrap().site))
    }

    #[test]
    fn a_request_takes_what_its_job_names() {
        let usual = Some(ComputeSpecs {
            num_cpus: 1,
            network_mbps: Some(10),
            memory_mb: Some(1024),
            disk_gb: Some(10),
        });
        let none = demand(&[("mapred.job.reduce.memory.mb", "-1"), ("corona.job.map.cpus", "x")]);
        for kind in ResourceType::ALL {
            assert_eq!(none.applied(kind, usual), usual, "{kind}");
        }
        let some = demand(&[
            ("mapred.job.map.memory.mb", "300"),
            ("corona.job.reduce.cpus", "4"),
            ("corona.job.reduce.disk.gb", "7"),
            ("corona.job.reduce.network.mbps", "8"),
        ]);
        let nothing = ComputeSpecs { num_cpus: 1, ..ComputeSpecs::default() };
        let map = Some(ComputeSpecs { memory_mb: Some(300), ..nothing });
        assert_eq!(some.applied(ResourceType::Map, usual), map);
        let reduce = ComputeSpecs { num_cpus: 4, disk_gb: Some(7), ..nothing };
        let reduce = Some(ComputeSpecs { network_mbps: Some(8), ..reduce });
        assert_eq!(some.applied(ResourceType::Reduce, usual), reduce);
        assert_eq!(some.applied(ResourceType::JobTracker, usual), usual);
        assert_eq!(ResourceType::ALL.map(|kind| some.cpus(kind)), [None, Some(4), None]);
    }
}
