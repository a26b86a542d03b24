//! What the cluster manager says, from its pages: why a session waits, slots and pools. A Java cluster
//! manager has no such interface, and one that does not answer delays a page only for a moment.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corona_model::types::PoolName;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::super::http::{self, Target};

/// For how long an answer counts as new.
const AGE: Duration = Duration::from_secs(2);
/// How long a page waits for one.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer that is read, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// Answers that are kept.
const MOST: usize = 64;

/// How often a question goes on to the leader: leaders change.
const MAX_HOPS: usize = 3;
/// Pools that are listed as queues.
const MOST_POOLS: usize = 10_000;

/// An answer, and when it came.
type Kept = (Instant, Result<Value, NoAnswer>);

/// Asks the cluster manager's pages.
#[derive(Debug)]
pub(in crate::service) struct Manager {
    host: String,
    port: u16,
    kept: Mutex<HashMap<String, Kept>>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::service) enum NoAnswer {
    /// It is another program, or does not know what was asked.
    #[error(
        "The cluster manager does not say it: it is of another kind, or does not know the session."
    )]
    Unknown,
    /// It is one of several, and none leads.
    #[error("No cluster manager leads at the moment.")]
    NoLeader,
    /// It did not answer in time.
    #[error("The cluster manager's pages do not answer (cm.server.http.address).")]
    Silent,
}

/// Requests that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(in crate::service) struct Wait {
    /// The type of the slots: `MAP` or `REDUCE`.
    #[serde(rename = "type")]
    pub(in crate::service) kind: String,
    /// How many.
    pub(in crate::service) requests: u64,
    /// Why, in English.
    pub(in crate::service) text: String,
}

impl Manager {
    pub(in crate::service) fn new(host: &str, port: u16) -> Manager {
        Manager { host: host.to_owned(), port, kept: Mutex::default() }
    }

    /// The JSON at a path of its interface.
    pub(in crate::service) async fn ask(&self, path: &str) -> Result<Value, NoAnswer> {
        if self.port == 0 {
            return Err(NoAnswer::Unknown);
        }
        let kept = |kept: &HashMap<_, (Instant, Result<Value, NoAnswer>)>| {
            let found = kept.get(path).filter(|(at, _)| at.elapsed() < AGE);
            found.map(|(_, answer)| answer.clone())
        };
        if let Some(answer) = kept(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)) {
            return answer;
        }
        let asked = timeout(PATIENCE, self.fetch(path)).await;
        let answer = asked.unwrap_or(Err(NoAnswer::Silent));
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, (at, _)| at.elapsed() < AGE);
        }
        if all.len() < MOST {
            all.insert(path.to_owned(), (Instant::now(), answer.clone()));
        }
        answer
    }

    /// An instance that does not lead names the leader's pages, which are asked then.
    async fn fetch(&self, path: &str) -> Result<Value, NoAnswer> {
        let mut target = Target::new(&self.host, self.port, path);
        for _ in 0..MAX_HOPS {
            let reply = http::get(&target, MAX_BYTES).await;
            match reply.map_err(|_| NoAnswer::Silent)? {
                (200, body) => {
                    return serde_json::from_slice(&body).map_err(|_| NoAnswer::Unknown);
                }
                (503, body) => {
                    let status: Value =
                        serde_json::from_slice(&body).map_err(|_| NoAnswer::Unknown)?;
                    let pages = status["ha"]["leader_pages"].as_str().ok_or(NoAnswer::NoLeader)?;
                    let url = format!("{}{path}", pages.trim_end_matches('/'));
                    target = Target::parse(&url).ok_or(NoAnswer::Unknown)?;
                }
                _ => return Err(NoAnswer::Unknown),
            }
        }
        Err(NoAnswer::NoLeader)
    }

    /// The pools, by name, without their groups.
    pub(in crate::service) async fn pools(&self) -> Result<Vec<PoolName>, NoAnswer> {
        pools(&self.ask("/api/v1/pools").await?).ok_or(NoAnswer::Unknown)
    }

    /// The names of the nodes with a problem, the first 2,000.
    pub(in crate::service) async fn nodes_with(
        &self,
        problem: &str,
    ) -> Result<Vec<String>, NoAnswer> {
        let list = self.ask(&format!("/api/v1/nodes?problem={problem}&limit=2000")).await?;
        nodes_with(&list, problem).ok_or(NoAnswer::Unknown)
    }

    /// Why requests of a session wait.
    pub(in crate::service) async fn waits(&self, session: &str) -> Result<Vec<Wait>, NoAnswer> {
        let path = format!("/api/v1/sessions/{}", corona_web::exchange::encode_segment(session));
        waits(&self.ask(&path).await?).ok_or(NoAnswer::Unknown)
    }
}

/// The pools of the list, which has an entry for each group as well.
fn pools(list: &Value) -> Option<Vec<PoolName>> {
    let pools =
        list.get("pools")?.as_array()?.iter().filter_map(|pool| {
            Some(PoolName::new(pool["group"].as_str()?, pool["pool"].as_str()?))
        });
    Some(pools.take(MOST_POOLS).collect())
}

/// Those with a problem among the nodes of a list: an earlier version lists the others as well.
fn nodes_with(list: &Value, problem: &str) -> Option<Vec<String>> {
    let nodes = list.get("nodes")?.as_array()?.iter().filter(|node| {
        node["problems"].as_array().is_some_and(|problems| problems.iter().any(|it| it == problem))
    });
    Some(nodes.filter_map(|node| Some(node["name"].as_str()?.to_owned())).collect())
}

/// Why a request waits. The cluster manager cannot know that hosts are excluded because attempts have failed
/// there, and only for a while.
fn text_of(wait: &Value) -> String {
    let text = wait["text"].as_str().or(wait["reason"].as_str()).unwrap_or("?");
    let never = [": it can never be served", ": they can never be served"];
    match never.iter().find_map(|end| text.strip_suffix(end)) {
        Some(rest) if text.contains(" the host") => format!(
            "{rest}, since attempts have failed there; it is requested again without that in some seconds"
        ),
        _ => text.to_owned(),
    }
}

/// The reasons in the detail of a session.
fn waits(detail: &Value) -> Option<Vec<Wait>> {
    let waits = detail.get("waits")?.as_array()?.iter().map(|wait| Wait {
        kind: wait["type"].as_str().unwrap_or("?").to_owned(),
        requests: wait["requests"].as_u64().unwrap_or(0),
        text: text_of(wait),
    });
    Some(waits.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons_are_read_and_other_answers_are_none() {
        let detail = json!({ "waits": [
            { "type": "MAP", "requests": 7, "text": "all slots are taken" },
            { "type": 5 },
            { "type": "MAP", "requests": 1, "text":
                "it excludes the hosts of all 2 nodes that could serve it: it can never be served" },
        ]});
        let found = waits(&detail).unwrap();
        assert_eq!((&*found[0].kind, found[0].requests), ("MAP", 7));
        assert_eq!(found[0].text, "all slots are taken");
        assert_eq!(found[1].text, "?");
        let excluded = "it excludes the hosts of all 2 nodes that could serve it, since attempts have failed \
             there; it is requested again without that in some seconds";
        assert_eq!(found[2].text, excluded);
        for other in [json!({}), json!([]), json!({ "waits": 5 })] {
            assert_eq!(waits(&other), None);
        }
    }

    #[test]
    fn pools_are_read_without_their_groups() {
        let list = json!({ "now_ms": 1, "pools": [
            { "group": "a" }, { "group": "a", "pool": "x" }, { "group": "b", "pool": "y" }, 7, { "pool": "z" },
        ]});
        assert_eq!(pools(&list).unwrap(), [PoolName::new("a", "x"), PoolName::new("b", "y")]);
        for other in [json!({}), json!([]), json!({ "pools": 5 })] {
            assert_eq!(pools(&other), None);
        }
    }

    #[test]
    fn nodes_with_a_problem_are_read() {
        let list = json!({ "total": 3, "nodes": [
            { "name": "a", "problems": [] }, { "name": "b", "problems": ["late", "blacklisted"] }, 7,
            { "problems": ["blacklisted"] },
        ]});
        assert_eq!(nodes_with(&list, "blacklisted").unwrap(), ["b"]);
        assert_eq!(nodes_with(&list, "excluded").unwrap(), [""; 0]);
        assert_eq!(nodes_with(&json!({}), "late"), None);
    }

    #[tokio::test]
    async fn a_cluster_manager_that_is_not_there_is_not_asked_all_the_time() {
        // A port that was just closed has no listener.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let manager = Manager::new("127.0.0.1", port);
        assert_eq!(manager.waits("1.1").await, Err(NoAnswer::Silent));
        assert_eq!(manager.kept.lock().unwrap().len(), 1);
        assert_eq!(manager.waits("1.1").await, Err(NoAnswer::Silent));
        assert_eq!(Manager::new("h", 0).waits("1.1").await, Err(NoAnswer::Unknown));
    }
}
