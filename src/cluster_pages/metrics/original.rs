//! The same numbers under the original's names and in its two formats, for existing scripts.
//!
//! Spec: cluster-manager/08 §4. A context holds records, a record holds sets of tags and metrics.
//! Totals are since the start of the process, as the original's context adds them up.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::exposition::Gauges;
use super::fairness::{Unfairness, fairness};
use super::{Counter, Metrics};
use crate::original::whole_part;
use corona_engine::{PoolView, SlotCounts};
use corona_model::types::{PerType, PoolName, ResourceType, SessionStatus};

/// The context that all records belong to.
const CONTEXT: &str = "clustermanager";

/// All records as they are now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Records(BTreeMap<String, Record>);

/// One set of metrics. Every record of the cluster manager has one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Record {
    tags: BTreeMap<&'static str, String>,
    metrics: BTreeMap<String, Number>,
}

/// A value: the original has both kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i64),
    Float(f32),
}

impl Record {
    fn set(&mut self, name: impl Into<String>, value: Number) {
        self.metrics.insert(name.into(), value);
    }

    fn whole(&mut self, name: impl Into<String>, value: impl TryInto<i64>) {
        self.set(name, Number::Whole(value.try_into().unwrap_or(i64::MAX)));
    }

    fn whole_of(&mut self, name: &str, kind: ResourceType, value: impl TryInto<i64>) {
        self.whole(format!("{name}_{}", kind.name().to_lowercase()), value);
    }

    fn counters(&mut self, name: &str, kinds: &[ResourceType], counters: &PerType<Counter>) {
        for kind in kinds {
            self.whole_of(name, *kind, counters[*kind].get());
        }
    }
}

impl Records {
    /// Collects the present values. `host_name` is the name of this machine.
    pub(crate) fn new(metrics: &Metrics, gauges: &Gauges, host_name: &str) -> Records {
        let mut records = BTreeMap::new();
        records.insert(CONTEXT.to_owned(), cluster(metrics, gauges, host_name));
        for view in &gauges.pools.views {
            let (name, record) = match &view.pool {
                Some(pool) => {
                    (format!("pool-{}.{pool}", view.group), pool_record(view, pool, gauges))
                }
                None => (format!("poolgroup-{}", view.group), group_record(view, gauges)),
            };
            records.insert(name, record);
        }
        Records(records)
    }

    /// `/metrics` of the original: names and values, indented.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{CONTEXT}\n");
        for (name, record) in &self.0 {
            let tags: Vec<String> = record
                .tags
                .iter()
                .map(|(tag, value)| format!("{tag}={}", one_line(value)))
                .collect();
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {}\n    {{{}}}:", one_line(name), tags.join(","));
            for (metric, value) in &record.metrics {
                let _ = writeln!(text, "      {metric}={}", shown(*value));
            }
        }
        text
    }

    /// `/metrics?format=json` of the original.
    pub(crate) fn to_json(&self) -> String {
        let records = self.0.iter().map(|(name, record)| {
            let tags = record.tags.iter().map(|(tag, value)| (*tag, json_string(value)));
            let metrics = record.metrics.iter().map(|(name, value)| (&**name, shown(*value)));
            let set = format!("[[{},{}]]", object(tags), object(metrics));
            (&**name, set)
        });
        object([(CONTEXT, object(records))].into_iter())
    }
}

/// Spec: cluster-manager/08 §4.1.
fn cluster(metrics: &Metrics, gauges: &Gauges, host_name: &str) -> Record {
    let kinds = &gauges.overview.kinds;
    let mut record = Record::default();
    record.tags.insert("hostName", host_name.to_owned());
    record.whole("alive_nodes", gauges.nodes.alive);
    record.whole("dead_nodes", gauges.nodes.dead);
    record.whole("blacklisted_nodes", gauges.nodes.blacklisted);
    record.whole("num_running_sessions", gauges.overview.sessions);
    record.whole("num_pending_calls", gauges.queues.calls);
    record.whole("num_task_tracker_restarted", metrics.nodes_added.get());
    record.whole("num_remotejt_timedout", metrics.remote_job_trackers_timed_out.get());
    for kind in kinds {
        record.whole_of("pending", *kind, gauges.waiting(*kind));
        record.whole_of("running", *kind, gauges.running(*kind));
        record.whole_of("total", *kind, gauges.overview.all_slots[*kind].total);
        let SlotCounts { total, used } = gauges.overview.all_slots[*kind];
        record.whole_of("free", *kind, total.saturating_sub(used));
        // One pass serves all types.
        record.whole_of("scheduler_runtime", *kind, metrics.last_pass().as_millis());
    }
    record.counters("requested", kinds, &metrics.requested);
    record.counters("granted", kinds, &metrics.granted);
    record.counters("revoked", kinds, &metrics.revoked);
    record.counters("released", kinds, &metrics.released);
    record.whole("total_sessions", metrics.sessions_started.get());
    let ended = |status: SessionStatus| metrics.ended(status).get();
    record.whole("num_cjt_failures", ended(SessionStatus::FailedJobtracker));
    for status in SessionStatus::ALL.into_iter().filter(|status| *status != SessionStatus::Running)
    {
        record.whole(format!("{}_sessions", status.name().to_lowercase()), ended(status));
    }
    if let Some(fairness) = fairness(&gauges.pools.views, kinds) {
        for kind in kinds {
            set_fairness(&mut record, kind.name(), &fairness.by_type[*kind]);
        }
        set_fairness(&mut record, "all", &fairness.all);
    }
    record
}

fn set_fairness(record: &mut Record, of: &str, measure: &Unfairness) {
    record.whole(format!("fairness_difference_count_{of}"), measure.difference);
    for (name, value) in [
        ("percent_unfair", measure.percent),
        ("difference_per_pool", measure.per_pool),
        ("unfair_std_dev", measure.deviation),
    ] {
        record.set(format!("fairness_{name}_{of}"), Number::Float(value));
    }
}

/// Spec: cluster-manager/08 §4.2.
fn pool_record(view: &PoolView, pool: &str, gauges: &Gauges) -> Record {
    let mut record = group_record(view, gauges);
    let first_wait = first_wait_ms(gauges, &view.group, pool);
    for kind in &gauges.overview.kinds {
        record.whole_of("weight", *kind, whole_part(view.weight));
        record.whole_of("starvingtime", *kind, gauges.starving_ms(view, *kind) / 1000);
        record.whole_of("averagefirstwaitms", *kind, first_wait(*kind));
    }
    record
}

/// The average wait of a pool's sessions for their first slot, where those that have had none count
/// until now; 0 when none ever asked.
pub(crate) fn first_wait_ms(
    gauges: &Gauges,
    group: &str,
    pool: &str,
) -> impl Fn(ResourceType) -> i64 + use<> {
    let waits = gauges.pools.first_waits.java_ms.get(&PoolName::new(group, pool)).copied();
    move |kind| waits.and_then(|waits| waits[kind]).unwrap_or(0)
}

/// Spec: cluster-manager/08 §4.3.
fn group_record(view: &PoolView, gauges: &Gauges) -> Record {
    let mut record = Record::default();
    for kind in &gauges.overview.kinds {
        record.whole_of("sessions", *kind, view.sessions);
        record.whole_of("requested", *kind, view.counts[*kind].requested);
        record.whole_of("granted", *kind, view.counts[*kind].granted);
        record.whole_of("share", *kind, whole_part(view.share[*kind]));
        record.whole_of("min", *kind, view.minimum[*kind]);
        record.whole_of("max", *kind, view.maximum[*kind]);
    }
    record
}

/// As Java prints it: a float always has a fraction.
fn shown(number: Number) -> String {
    match number {
        Number::Whole(whole) => whole.to_string(),
        Number::Float(float) => format!("{float:?}"),
    }
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> =
        members.map(|(name, value)| format!("{}:{value}", json_string(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// A JSON string that is harmless in an HTML page too, since the response has that content type.
fn json_string(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Names are chosen by peers; a line of this form stays a line.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use std::sync::Arc;

    use super::*;
    use crate::metrics::exposition::tests::{gauges, pool_view};

    fn records() -> Records {
        let metrics = Metrics::default();
        metrics.granted[ResourceType::Map].add(3);
        Records::new(&metrics, &gauges(), "manager.example.com")
    }

    #[test]
    fn text_is_indented_as_the_original_does() {
        let text = records().to_text();
        let head = "clustermanager\n  clustermanager\n    {hostName=manager.example.com}:\n      \
                    alive_nodes=2\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("\n  pool-g.p\n    {}:\n      averagefirstwaitms_jobtracker=0\n"));
        assert!(text.contains("\n      averagefirstwaitms_map=700\n"));
        assert!(text.contains("\n      granted_map=3\n"), "{text}");
        assert!(text.contains("\n      starvingtime_jobtracker=-180\n"));
        assert!(text.contains("\n      fairness_percent_unfair_MAP=0.0\n"));
    }

    /// The recorded text has no values, since nothing collected them; but names of records.
    #[test]
    fn records_have_the_names_that_the_original_showed() {
        let recorded = "clustermanager\n  clustermanager\n  pool-default.default\n  \
                        pool-default.defaultpool\n  pool-group_a.pool_nonsla\n  \
                        pool-group_a.pool_sla\n  poolgroup-default\n  poolgroup-group_a\n";
        let mut gauges = gauges();
        Arc::make_mut(&mut gauges.pools).views = [
            ("default", None),
            ("default", Some("default")),
            ("default", Some("defaultpool")),
            ("group_a", None),
            ("group_a", Some("pool_nonsla")),
            ("group_a", Some("pool_sla")),
        ]
        .map(|(group, pool)| pool_view(group, pool))
        .to_vec();
        let text = Records::new(&Metrics::default(), &gauges, "h").to_text();
        let names: String =
            text.split_inclusive('\n').filter(|line| !line.starts_with("    ")).collect();
        assert_eq!(names, recorded);
    }

    #[test]
    fn json_has_the_shape_of_the_original() {
        let json: Value = serde_json::from_str(&records().to_json()).unwrap();
        let record = &json["clustermanager"]["clustermanager"];
        assert_eq!(record[0][0]["hostName"], "manager.example.com");
        assert_eq!(record[0][1]["free_reduce"], 11);
        assert_eq!(record[0][1]["fairness_unfair_std_dev_all"], 0.0);
        assert_eq!(record.as_array().map(Vec::len), Some(1));
        let pool = &json["clustermanager"]["pool-g.p"][0];
        assert_eq!(pool[0], Value::Object(serde_json::Map::new()));
        assert_eq!(pool[1]["max_map"], i32::MAX);
        assert_eq!(pool[1]["share_map"], 3);
        assert_eq!(pool[1]["weight_map"], 1);
        assert!(json["clustermanager"]["poolgroup-g"][0][1].get("weight_map").is_none());
    }

    #[test]
    fn hostile_names_are_text_in_both_forms() {
        let mut gauges = gauges();
        Arc::make_mut(&mut gauges.pools).views = vec![pool_view("<script>\n\"", None)];
        let records = Records::new(&Metrics::default(), &gauges, "h");
        let json = records.to_json();
        assert!(!json.contains('<'), "{json}");
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert!(parsed["clustermanager"].get("poolgroup-<script>\n\"").is_some());
        assert!(records.to_text().contains("\n  poolgroup-<script> \"\n"));
    }

    /// The table of the documentation names every name of the original, and no other.
    #[test]
    fn the_documentation_maps_every_name() {
        let document = include_str!("../../../docs/operate/metrics.md");
        let section = document.split("## The original's names").nth(1).unwrap();
        let documented: BTreeSet<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let records = records();
        let names = records.0.iter().flat_map(|(record, of)| {
            let record = record.split('-').next().unwrap_or_default();
            of.metrics.keys().map(move |metric| (record, metric))
        });
        let general = |(record, metric): (&str, &String)| {
            let metric = ResourceType::ALL.iter().fold(metric.clone(), |name, kind| {
                name.replace(&format!("_{}", kind.name().to_lowercase()), "_t")
                    .replace(&format!("_{}", kind.name()), "_X")
            });
            let metric = metric.replace("failed_t_sessions", "failed_jobtracker_sessions");
            format!("{record}: {}", metric.replace("_all", "_X"))
        };
        let shown: BTreeSet<String> = names.map(general).collect();
        let shown: BTreeSet<&str> = shown.iter().map(String::as_str).collect();
        assert_eq!(documented, shown);
    }
}
