//! Which hosts there are, as the cluster manager's pages list them, so that what a job excludes never
//! covers all of them. Some of them are enough: no task fails on dozens of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use corona_api::cluster::{Node, NodeProblem, Nodes};
use corona_mapreduce::{JobId, PerKind, TaskKind};
use tokio::time::sleep;

use crate::jobs::store::KnownJob;
use crate::pages::manager::NoAnswer;
use crate::pages::sources::PageSources;
use corona_job_engine::JobInput;
use corona_model::types::ResourceType;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// A job needs to know no more nodes than these.
const MOST_NODES: usize = 64;

type Hosts = PerKind<Vec<Arc<str>>>;

/// Passes the list of hosts to the running jobs, for as long as the service runs. A Java cluster
/// manager does not list them in a form that is read here: its jobs wait instead, see
/// `corona.jt.exclusion.wait.ms`.
pub(crate) async fn follow_hosts(sources: Arc<PageSources>) {
    if sources.settings.cluster_manager_pages.port == 0 {
        return;
    }
    let mut sent = BTreeMap::<JobId, Hosts>::new();
    loop {
        sleep(PAUSE).await;
        let jobs = sources.store.all().into_iter().filter_map(|known| match known {
            KnownJob::Job(job) if job.progress().finished_at.is_none() => Some(job),
            _ => None,
        });
        let jobs: Vec<_> = jobs.collect();
        sent.retain(|id, _| jobs.iter().any(|job| job.description().id == *id));
        if jobs.is_empty() {
            continue;
        }
        let hosts = match sources.manager.nodes(MOST_NODES).await {
            Ok(nodes) => hosts(&nodes),
            Err(NoAnswer::Unknown | NoAnswer::Unreadable) => Hosts::default(),
            Err(error @ (NoAnswer::NoLeader | NoAnswer::Silent)) => {
                tracing::debug!(%error, "no list of nodes; asking again later");
                continue;
            }
        };
        for job in jobs {
            let sent = sent.entry(job.description().id.clone()).or_default();
            for kind in TaskKind::ALL.into_iter().filter(|kind| sent[*kind] != hosts[*kind]) {
                job.notify(JobInput::HostsKnown { kind, hosts: hosts[kind].clone() });
            }
            *sent = hosts.clone();
        }
    }
}

/// Whether a node can be granted at all. Nodes that are late may come back.
pub(crate) fn is_usable(node: &Node) -> bool {
    node.problems.iter().all(|problem| *problem == NodeProblem::Late)
}

/// The hosts that can serve requests of each kind.
fn hosts(nodes: &Nodes) -> Hosts {
    PerKind::of(|kind| {
        let slots = match kind {
            TaskKind::Map => ResourceType::Map,
            TaskKind::Reduce => ResourceType::Reduce,
        };
        let serves = |node: &&Node| {
            let slots = node.slots.as_ref().and_then(|of| of.get(&slots));
            is_usable(node) && slots.is_some_and(|slots| slots.total > 0 && !slots.blacklisted)
        };
        let names = nodes.nodes.iter().filter(serves).filter_map(|node| node.address.as_ref());
        names.map(|at| Arc::from(&*at.host)).collect::<BTreeSet<Arc<str>>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        let found = hosts(&serde_json::from_value(nodes).unwrap());
        let names =
            |hosts: &[Arc<str>]| hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&found.map), ["a", "b", "d"]);
        assert_eq!(names(&found.reduce), ["a", "b"]);
    }
}
