//! What a job that has ended used of what it asked for, and what to ask for next time.
//!
//! From its history, which has counters for maps and for reduces; while there is none, from the counters of its job
//! tracker, which has them for the whole job.

use std::collections::BTreeMap;

use corona::api::finished::{FinishedJobDetail, FinishedProperties};
use corona::api::jobs::{JobCounters, JobProperties};
use corona::config::keys::{self, Key};
use corona::hadoop::writables::JobId;
use corona::model::resources::Dimension;
use corona_terminal::table::{Column, Table, number};
use serde::Serialize;

use super::summary::{JOB, TASK};
use crate::commands::cluster::block_on;
use crate::commands::web::Web;

const MIB: u64 = 1 << 20;
/// What is suggested beyond the most that was seen, as its reciprocal: a quarter.
const SPARE: u64 = 4;
/// Suggestions are multiples of so many megabytes.
const STEP_MB: u64 = 64;

/// The counters and the properties of a job, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct KnownUse {
    /// By group and name.
    total: Values,
    maps: Values,
    reduces: Values,
    properties: BTreeMap<String, String>,
}

type Values = BTreeMap<String, BTreeMap<String, i64>>;

impl KnownUse {
    /// From the history of a finished job; none if there is none yet.
    pub(super) fn of_history(pages: &Web, job: &JobId) -> Option<KnownUse> {
        let path = format!("/api/v1/jobs/{job}");
        let of_conf = format!("{path}/configuration");
        let both = async {
            let Some(found) = pages.found::<FinishedJobDetail>(&path).await else {
                return Ok(None);
            };
            Ok(Some((found, pages.found::<FinishedProperties>(&of_conf).await)))
        };
        let (found, properties) = block_on(both).ok()??;
        let FinishedJobDetail { counters: total, map_counters, reduce_counters, .. } = found;
        let properties = properties.unwrap_or_default();
        Some(KnownUse { total, maps: map_counters, reduces: reduce_counters, properties })
    }

    /// From the pages of the job tracker; none if they do not have the job.
    pub(super) fn of_job_tracker(pages: &Web, job: &JobId) -> Option<KnownUse> {
        let path = format!("/api/v1/jobs/{job}");
        let (of_counters, of_conf) = (format!("{path}/counters"), format!("{path}/configuration"));
        let both = async {
            let Some(found) = pages.found::<JobCounters>(&of_counters).await else {
                return Ok(None);
            };
            Ok(Some((found, pages.found::<JobProperties>(&of_conf).await)))
        };
        let (found, properties) = block_on(both).ok()??;
        let mut total = Values::new();
        for counter in found.total {
            total.entry(counter.group).or_default().insert(counter.name, counter.value);
        }
        let properties = properties.into_iter().flat_map(|it| it.properties);
        let properties = properties.map(|it| (it.name, it.value)).collect();
        Some(KnownUse { total, properties, ..KnownUse::default() })
    }

    fn of_job(&self, name: &str) -> Option<u64> {
        positive(&self.total, JOB, name)
    }

    fn asked(&self, key: &Key) -> Option<u64> {
        let asked = self.properties.get(key.name)?.trim().parse().ok();
        asked.filter(|asked| *asked > 0)
    }
}

/// A counter that was counted.
fn positive(values: &Values, group: &str, name: &str) -> Option<u64> {
    let value = values.get(group)?.get(name)?;
    u64::try_from(*value).ok().filter(|value| *value > 0)
}

/// What tasks of one kind used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Used {
    /// `maps` or `reduces`.
    tasks: &'static str,
    /// The memory that each could have.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_memory_mb: Option<u64>,
    /// The most memory that one of them was seen to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_bytes: Option<u64>,
    /// The memory to ask for next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_memory_mb: Option<u64>,
    /// The CPUs that were requested for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_cpus: Option<u64>,
    /// Processor time by the time in slots, of all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_cpus: Option<f64>,
    /// The CPUs to ask for next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_cpus: Option<u64>,
    #[serde(skip)]
    memory_key: &'static str,
    #[serde(skip)]
    cpus_key: &'static str,
}

/// What the maps and the reduces of a job used; empty if no counter tells it.
pub(super) fn used(known: &KnownUse) -> Vec<Used> {
    let of = |tasks, values, names: [&str; 2], memory: &'static Key, cpus: &'static Key| {
        let [peak, slots] = names;
        let peak_memory_bytes = known.of_job(peak);
        let cpu_ms = positive(values, TASK, "CPU_MILLISECONDS");
        let average_cpus =
            cpu_ms.zip(known.of_job(slots)).map(|(cpu, slot)| cpu as f64 / slot as f64);
        Used {
            tasks,
            asked_memory_mb: known.asked(memory),
            peak_memory_bytes,
            suggested_memory_mb: peak_memory_bytes.map(memory_for),
            asked_cpus: known.asked(cpus),
            average_cpus,
            suggested_cpus: average_cpus.map(|average| (average.ceil() as u64).max(1)),
            memory_key: memory.name,
            cpus_key: cpus.name,
        }
    };
    let maps = ["MAX_MAP_RSS_MEM_BYTES", "SLOTS_MILLIS_MAPS"];
    let reduces = ["MAX_REDUCE_RSS_MEM_BYTES", "SLOTS_MILLIS_REDUCES"];
    let all = [
        of("maps", &known.maps, maps, &keys::JOB_MAP_MEMORY, &keys::JOB_MAP_CPUS),
        of("reduces", &known.reduces, reduces, &keys::JOB_REDUCE_MEMORY, &keys::JOB_REDUCE_CPUS),
    ];
    all.into_iter()
        .filter(|used| used.peak_memory_bytes.is_some() || used.average_cpus.is_some())
        .collect()
}

/// The memory to ask for if at most so much was used: a quarter more, in whole steps.
fn memory_for(peak_bytes: u64) -> u64 {
    let peak_mb = peak_bytes.div_ceil(MIB);
    (peak_mb + peak_mb.div_ceil(SPARE)).next_multiple_of(STEP_MB)
}

/// The use for people.
pub(super) fn table(all: &[Used]) -> Table {
    let mut table = Table::new(&[
        Column::whole("TASKS"),
        Column::whole("RESOURCE"),
        Column::number("ASKED"),
        Column::number("USED"),
        Column::text("NEXT TIME", 20),
    ]);
    let short = |mb: u64| Dimension::Memory.short(mb);
    for used in all {
        if let (Some(peak), Some(next)) = (used.peak_memory_bytes, used.suggested_memory_mb) {
            table.row([
                used.tasks.into(),
                "memory".into(),
                number(used.asked_memory_mb.map(short)),
                short(peak.div_ceil(MIB)).into(),
                format!("{}={next}", used.memory_key).into(),
            ]);
        }
        if let (Some(average), Some(next)) = (used.average_cpus, used.suggested_cpus) {
            table.row([
                used.tasks.into(),
                "CPUs".into(),
                number(used.asked_cpus),
                format!("{average:.1}").into(),
                format!("{}={next}", used.cpus_key).into(),
            ]);
        }
    }
    table
}

/// How the numbers are meant.
pub(super) const MEANING: &str =
    "Memory is the most that one task was seen to use, CPUs the average of all while they ran.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use corona_terminal::console::Console;

    fn known(total: &[(&str, i64)], map_cpu_ms: i64, properties: &[(&str, &str)]) -> KnownUse {
        let counters = total.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let cpu = [("CPU_MILLISECONDS".to_owned(), map_cpu_ms)].into();
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        KnownUse {
            total: [(JOB.to_owned(), counters)].into(),
            maps: [(TASK.to_owned(), cpu)].into(),
            reduces: Values::new(),
            properties: properties.iter().map(text).collect(),
        }
    }

    #[test]
    fn a_job_is_compared_with_what_it_asked_for() {
        let mib = MIB as i64;
        let counters = [
            ("MAX_MAP_RSS_MEM_BYTES", 180 * mib + 1),
            ("SLOTS_MILLIS_MAPS", 10_000),
            ("MAX_REDUCE_RSS_MEM_BYTES", 3_000 * mib),
            ("SLOTS_MILLIS_REDUCES", 5_000),
        ];
        let asked = [
            ("mapred.job.map.memory.mb", "1024"),
            ("corona.job.map.cpus", "4"),
            ("mapred.job.reduce.memory.mb", "-1"),
        ];
        let all = used(&known(&counters, 15_000, &asked));
        let [maps, reduces] = &all[..] else { panic!("{all:?}") };
        // A quarter more than 181 MB, in steps of 64.
        assert_eq!((maps.asked_memory_mb, maps.suggested_memory_mb), (Some(1_024), Some(256)));
        let cpus = (maps.asked_cpus, maps.average_cpus, maps.suggested_cpus);
        assert_eq!(cpus, (Some(4), Some(1.5), Some(2)));
        let memory = (reduces.asked_memory_mb, reduces.suggested_memory_mb);
        assert_eq!(memory, (None, Some(3_776)));
        assert_eq!((reduces.average_cpus, reduces.suggested_cpus), (None, None));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        console.width = Some(80);
        let text = table(&all).render(&console, false);
        let expected = "\
TASKS    RESOURCE  ASKED    USED  NEXT TIME
maps     memory     1 GB  181 MB  mapred.job.map.memory.mb=256
maps     CPUs          4     1.5  corona.job.map.cpus=2
reduces  memory        -  2.9 GB  mapred.job.reduce.memory.mb=3776
";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_said_of_what_was_not_counted() {
        assert_eq!(used(&KnownUse::default()), []);
        let idle = known(&[("MAX_MAP_RSS_MEM_BYTES", 0), ("SLOTS_MILLIS_MAPS", 0)], 5, &[]);
        assert_eq!(used(&idle), []);
        for (bytes, mb) in [(1, 64), (51 * MIB, 64), (52 * MIB, 128), (u64::MAX, 21990232555520)] {
            assert_eq!(memory_for(bytes), mb, "{bytes}");
        }
    }
}
