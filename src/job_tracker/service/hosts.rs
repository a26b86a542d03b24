//! Which hosts there are, as the cluster manager's pages list them, so that what a job excludes never
//! covers all of them. Some of them are enough: no task fails on dozens of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use corona_mapreduce::{JobId, PerKind, TaskKind};
use serde_json::Value;
use tokio::time::sleep;

use super::Shared;
use super::http::{self, Target};
use super::store::Known;
use corona_job_engine::JobInput;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// A job needs to know no more nodes than these.
const MOST_NODES: usize = 64;
/// The longest list that is read, in bytes.
const MAX_BYTES: usize = 4 << 20;

type Hosts = PerKind<Vec<Arc<str>>>;

impl Shared {
    /// Passes the list of hosts to the running jobs, for as long as the service runs. A Java cluster
    /// manager does not list them in a form that is read here: its jobs wait instead, see
    /// `corona.jt.exclusion.wait.ms`.
    pub(super) async fn follow_hosts(self: Arc<Self>) {
        let pages = &self.settings.cluster_manager_pages;
        if pages.port == 0 {
            return;
        }
        let path = format!("/api/v1/nodes?limit={MOST_NODES}");
        let target = Target::new(&pages.host, pages.port, &path);
        let mut sent = BTreeMap::<JobId, Hosts>::new();
        loop {
            sleep(PAUSE).await;
            let jobs = self.store.all().into_iter().filter_map(|known| match known {
                Known::Job(job) if job.progress().finished_at.is_none() => Some(job),
                _ => None,
            });
            let jobs: Vec<_> = jobs.collect();
            sent.retain(|id, _| jobs.iter().any(|job| job.description().id == *id));
            if jobs.is_empty() {
                continue;
            }
            let hosts = match http::get(&target, MAX_BYTES).await {
                Ok((200, body)) => {
                    serde_json::from_slice(&body).ok().and_then(|nodes| hosts(&nodes))
                }
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(%error, "the cluster manager's pages do not answer");
                    continue;
                }
            };
            let hosts = hosts.unwrap_or_default();
            for job in jobs {
                let sent = sent.entry(job.description().id.clone()).or_default();
                for kind in TaskKind::ALL.into_iter().filter(|kind| sent[*kind] != hosts[*kind]) {
                    job.notify(JobInput::HostsKnown { kind, hosts: hosts[kind].clone() });
                }
                *sent = hosts.clone();
            }
        }
    }
}

/// The hosts that can serve requests of each kind; none if it is no list.
fn hosts(nodes: &Value) -> Option<Hosts> {
    let nodes = nodes.get("nodes")?.as_array()?;
    Some(PerKind::of(|kind| {
        let slots = match kind {
            TaskKind::Map => "MAP",
            TaskKind::Reduce => "REDUCE",
        };
        let usable = nodes.iter().filter(|node| {
            let problems = node["problems"].as_array();
            let is_well = problems.is_none_or(|problems| problems.iter().all(|it| it == "late"));
            let slots = &node["slots"][slots];
            is_well && slots["total"].as_u64() > Some(0) && slots["blacklisted"] != true
        });
        let names = usable.filter_map(|node| node["address"]["host"].as_str());
        names.map(Arc::from).collect::<BTreeSet<Arc<str>>>().into_iter().collect()
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(host: &str, problems: &[&str], reduces: u64) -> Value {
        json!({
            "name": format!("tracker_{host}"),
            "problems": problems,
            "address": { "host": host, "port": 1 },
            "slots": {
                "MAP": { "total": 2, "used": 0, "blacklisted": false },
                "REDUCE": { "total": reduces, "used": 0, "blacklisted": host == "d" },
            },
        })
    }

    #[test]
    fn hosts_of_nodes_that_can_be_granted_are_listed() {
        let nodes = json!({ "total": 5, "nodes": [
            node("b", &[], 1), node("a", &["late"], 1), node("a", &[], 0), node("c", &["excluded"], 1),
            node("d", &[], 1),
        ]});
        let found = hosts(&nodes).unwrap();
        let names =
            |hosts: &[Arc<str>]| hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&found.map), ["a", "b", "d"]);
        assert_eq!(names(&found.reduce), ["a", "b"]);
        for other in [json!({}), json!([]), json!({ "nodes": 1 }), json!(null)] {
            assert_eq!(hosts(&other), None);
        }
        assert_eq!(hosts(&json!({ "nodes": [1, {}, null] })), Some(Hosts::default()));
    }
}
