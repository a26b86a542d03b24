//! What the cluster manager says, from its pages: why a session waits, slots and pools. A Java cluster
//! manager has no such interface, and one that does not answer delays a page only for a moment.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use corona_api::cluster::{
    Node, NodeProblem, Nodes, Pool, Pools, SessionWaits, StandbyStatus, Wait,
};
use corona_api::jobs::JobWait;
use corona_model::types::PoolName;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::http::{self, Target};

/// For how long an answer counts as new.
const AGE: Duration = Duration::from_secs(2);
/// How long a page waits for one, and a job that is submitted or runs for the list of nodes.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_FOR_NODES: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// Answers that are kept.
const MOST: usize = 64;

/// How often a question goes on to the leader: leaders change.
const MAX_HOPS: usize = 3;
/// Pools that are listed as queues.
const MOST_POOLS: usize = 10_000;

/// An answer, and when it came.
type KeptAnswer = (Instant, Result<Bytes, NoAnswer>);

/// Asks the cluster manager's pages.
#[derive(Debug)]
pub(crate) struct Manager {
    host: String,
    port: u16,
    kept: Mutex<HashMap<String, KeptAnswer>>,
    /// What could not be read, by the beginning of its path: it is logged once, until it can be read again.
    odd: Mutex<BTreeSet<String>>,
}

/// An answer with a list, of which single entries may be left out.
trait Listed: DeserializeOwned {
    /// The member with the list.
    const LIST: &'static str;
    type Entry: DeserializeOwned;
}

impl Listed for Nodes {
    const LIST: &'static str = "nodes";
    type Entry = Node;
}

impl Listed for Pools {
    const LIST: &'static str = "pools";
    type Entry = Pool;
}

impl Listed for SessionWaits {
    const LIST: &'static str = "waits";
    type Entry = Wait;
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// It is another program, or does not know what was asked.
    #[error(
        "The cluster manager does not say it: it is of another kind, or does not know the session."
    )]
    Unknown,
    /// It answered, but not in the form that this version reads.
    #[error(
        "The answer of the cluster manager cannot be read: its version may not fit (the log has the details)."
    )]
    Unreadable,
    /// It is one of several, and none leads.
    #[error("No cluster manager leads at the moment.")]
    NoLeader,
    /// It did not answer in time.
    #[error("The cluster manager's pages do not answer (cm.server.http.address).")]
    Silent,
}

impl Manager {
    pub(crate) fn new(host: &str, port: u16) -> Manager {
        let (kept, odd) = Default::default();
        Manager { host: host.to_owned(), port, kept, odd }
    }

    /// What a path of its API returns. An answer that is JSON but not of the shape is logged: the versions of
    /// the two programs do not fit.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, NoAnswer> {
        self.read(path, &self.body(path, PATIENCE).await?)
    }

    async fn list<T: Listed>(&self, path: &str, patience: Duration) -> Result<T, NoAnswer> {
        self.read_list(path, &self.body(path, patience).await?)
    }

    async fn body(&self, path: &str, patience: Duration) -> Result<Bytes, NoAnswer> {
        if self.port == 0 {
            return Err(NoAnswer::Unknown);
        }
        let kept = |kept: &HashMap<_, KeptAnswer>| {
            let found = kept.get(path).filter(|(at, _)| at.elapsed() < AGE);
            found.map(|(_, answer)| answer.clone())
        };
        if let Some(answer) = kept(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)) {
            return answer;
        }
        let asked = timeout(patience, self.fetch(path)).await;
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
    async fn fetch(&self, path: &str) -> Result<Bytes, NoAnswer> {
        let mut target = Target::new(&self.host, self.port, path);
        for _ in 0..MAX_HOPS {
            let reply = http::get(&target, MAX_BYTES).await;
            match reply.map_err(|_| NoAnswer::Silent)? {
                (200, body) => return Ok(body.into()),
                (503, body) => {
                    let standby: StandbyStatus = self.read(path, &body)?;
                    let pages = standby.ha.leader_pages.ok_or(NoAnswer::NoLeader)?;
                    let url = format!("{}{path}", pages.trim_end_matches('/'));
                    target = Target::parse(&url).ok_or(NoAnswer::Unknown)?;
                }
                _ => return Err(NoAnswer::Unknown),
            }
        }
        Err(NoAnswer::NoLeader)
    }

    /// The pools, by name, without their groups.
    pub(crate) async fn pools(&self) -> Result<Vec<PoolName>, NoAnswer> {
        Ok(names(self.list("/api/v1/pools", PATIENCE).await?))
    }

    /// The first nodes by name, at most so many.
    pub(crate) async fn nodes(&self, most: usize) -> Result<Nodes, NoAnswer> {
        self.list(&format!("/api/v1/nodes?limit={most}"), PATIENCE_FOR_NODES).await
    }

    /// The names of the nodes with a problem, the first 2,000.
    pub(crate) async fn nodes_with(&self, problem: NodeProblem) -> Result<Vec<String>, NoAnswer> {
        let name = NodeProblem::NAMED.iter().find(|(_, named)| *named == problem);
        let name = name.ok_or(NoAnswer::Unknown)?.0;
        let path = format!("/api/v1/nodes?problem={name}&limit=2000");
        Ok(nodes_with(self.list(&path, PATIENCE).await?, problem))
    }

    /// Why requests of a session wait.
    pub(crate) async fn waits(&self, session: &str) -> Result<Vec<JobWait>, NoAnswer> {
        let path = format!("/api/v1/sessions/{}", corona_web::exchange::encode_segment(session));
        let SessionWaits { waits } = self.list(&path, PATIENCE).await?;
        Ok(waits.ok_or(NoAnswer::Unknown)?.iter().map(job_wait).collect())
    }

    /// A shape from the answer to a path. A page that is not JSON is another program's.
    fn read<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, NoAnswer> {
        match serde_json::from_slice(body) {
            Ok(read) => {
                self.is_fine(path);
                Ok(read)
            }
            Err(_) if serde_json::from_slice::<IgnoredAny>(body).is_err() => Err(NoAnswer::Unknown),
            Err(error) => {
                if self.is_new(path) {
                    tracing::warn!(path, %error, "cannot read the cluster manager's answer; going on without it");
                }
                Err(NoAnswer::Unreadable)
            }
        }
    }

    /// The same for a list, without the entries that cannot be read.
    fn read_list<T: Listed>(&self, path: &str, body: &[u8]) -> Result<T, NoAnswer> {
        if let Some((list, left_out, error)) = without_odd_entries(body) {
            if self.is_new(path) {
                tracing::warn!(path, left_out, %error, "cannot read entries of the cluster manager's answer; going on without them");
            }
            return Ok(list);
        }
        self.read(path, body)
    }

    fn is_fine(&self, path: &str) {
        self.lock_odd().remove(beginning(path));
    }

    /// Whether it was fine before.
    fn is_new(&self, path: &str) -> bool {
        self.lock_odd().insert(beginning(path).to_owned())
    }

    fn lock_odd(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path up to the name of what it lists, such as `/api/v1/nodes`: there are few of them.
fn beginning(path: &str) -> &str {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    path.match_indices('/').nth(3).and_then(|(at, _)| path.get(..at)).unwrap_or(path)
}

/// A list that can be read only without some of its entries: how many they are, and what is wrong with the first.
fn without_odd_entries<T: Listed>(body: &[u8]) -> Option<(T, usize, serde_json::Error)> {
    if serde_json::from_slice::<T>(body).is_ok() {
        return None;
    }
    let mut answer: Value = serde_json::from_slice(body).ok()?;
    let entries = answer.get_mut(T::LIST)?.as_array_mut()?;
    let (mut first, before) = (None, entries.len());
    entries.retain(|entry| match T::Entry::deserialize(entry) {
        Ok(_) => true,
        Err(error) => {
            first.get_or_insert(error);
            false
        }
    });
    let left_out = before - entries.len();
    Some((serde_json::from_value(answer).ok()?, left_out, first?))
}

/// The pools of the list, which has an entry for each group as well.
fn names(list: Pools) -> Vec<PoolName> {
    let pools =
        list.pools.iter().filter_map(|of| Some(PoolName::new(&of.group, of.pool.as_deref()?)));
    pools.take(MOST_POOLS).collect()
}

/// Those with a problem among the nodes of a list: an earlier version lists the others as well.
fn nodes_with(list: Nodes, problem: NodeProblem) -> Vec<String> {
    let nodes = list.nodes.into_iter().filter(|node| node.problems.contains(&problem));
    nodes.map(|node| node.name).collect()
}

/// Why a request waits. The cluster manager cannot know that hosts are excluded because attempts have failed
/// there, and only for a while.
fn text_of(wait: &Wait) -> String {
    let text = wait.text.as_deref().unwrap_or(wait.reason.name());
    let never = [": it can never be served", ": they can never be served"];
    match never.iter().find_map(|end| text.strip_suffix(end)) {
        Some(rest) if text.contains(" the host") => format!(
            "{rest}, since attempts have failed there; it is requested again without that in some seconds"
        ),
        _ => text.to_owned(),
    }
}

fn job_wait(wait: &Wait) -> JobWait {
    JobWait { kind: wait.kind.name().into(), requests: wait.requests, text: text_of(wait) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a reader of the shape sees in an answer.
    fn seen<T: DeserializeOwned>(answer: serde_json::Value) -> Result<T, NoAnswer> {
        Manager::new("h", 1).read("/", answer.to_string().as_bytes())
    }

    #[test]
    fn reasons_are_read_of_older_and_newer_cluster_managers() {
        let waits: Vec<Wait> = seen(json!([
            { "type": "MAP", "requests": 7, "text": "all slots are taken", "reason": "of_2031", "moon": 3 },
            { "type": "REDUCE", "requests": 1, "reason": "safe_mode" },
            { "type": "MAP", "requests": 1, "reason": "hosts_excluded", "nodes": 2, "never": true, "text":
                "it excludes the hosts of all 2 nodes that could serve it: it can never be served" },
        ]))
        .unwrap();
        let found: Vec<JobWait> = waits.iter().map(job_wait).collect();
        assert_eq!((&*found[0].kind, found[0].requests), ("MAP", 7));
        assert_eq!(found[0].text, "all slots are taken");
        assert_eq!((&*found[1].kind, &*found[1].text), ("REDUCE", "safe_mode"));
        let excluded = "it excludes the hosts of all 2 nodes that could serve it, since attempts have failed \
             there; it is requested again without that in some seconds";
        assert_eq!(found[2].text, excluded);
    }

    #[test]
    fn pools_are_read_without_their_groups() {
        let entry = |group: &str, pool: Option<&str>| {
            let mut entry = json!({ "group": group, "sessions": 0, "types": {}, "depth": 2 });
            if let Some(pool) = pool {
                entry["pool"] = pool.into();
            }
            entry
        };
        let pools = [entry("a", None), entry("a", Some("x")), entry("b", Some("y"))];
        let list = seen(json!({ "now_ms": 1, "pools": pools })).unwrap();
        assert_eq!(names(list), [PoolName::new("a", "x"), PoolName::new("b", "y")]);
    }

    #[test]
    fn nodes_with_a_problem_are_read() {
        let list: Nodes = seen(json!({ "total": 3, "nodes": [
            { "name": "a", "problems": [] }, { "name": "b", "problems": ["late", "blacklisted"] },
            { "name": "c", "problems": ["of_2031"], "moon": 3 },
        ]}))
        .unwrap();
        assert_eq!(nodes_with(list.clone(), NodeProblem::Blacklisted), ["b"]);
        assert_eq!(nodes_with(list, NodeProblem::Excluded), [""; 0]);
    }

    #[test]
    fn answers_of_other_shapes_and_other_programs_are_told_apart() {
        let manager = Manager::new("h", 1);
        let list = |body: &[u8]| manager.read_list::<Nodes>("/", body);
        for other in
            [json!({}), json!([]), json!({ "nodes": 1 }), json!({ "total": "1", "nodes": [7] })]
        {
            assert_eq!(list(other.to_string().as_bytes()), Err(NoAnswer::Unreadable), "{other}");
        }
        assert_eq!(list(b"<html>"), Err(NoAnswer::Unknown));
    }

    #[test]
    fn an_odd_entry_is_left_out_and_logged_once() {
        let manager = Manager::new("h", 1);
        let (path, more) = ("/api/v1/nodes?limit=1", "/api/v1/nodes?problem=late&limit=2");
        let fine = json!({ "name": "a", "problems": ["late"] });
        let odd = json!({ "name": 7, "problems": [] });
        let answer = |nodes: &[&Value]| json!({ "total": 3, "nodes": nodes }).to_string();
        let logged = || manager.lock_odd().len();
        for path in [path, more] {
            let read = manager.read_list::<Nodes>(path, answer(&[&odd, &fine, &odd]).as_bytes());
            assert_eq!(nodes_with(read.unwrap(), NodeProblem::Late), ["a"]);
            assert_eq!(logged(), 1, "both are lists of nodes");
        }
        assert!(!manager.is_new(path));
        let (_, left_out, error) =
            without_odd_entries::<Nodes>(answer(&[&odd, &fine, &odd]).as_bytes()).unwrap();
        assert_eq!(left_out, 2);
        assert!(error.to_string().contains("string"), "{error}");
        // Fine answers make the next odd one news again.
        manager.read_list::<Nodes>(path, answer(&[&fine]).as_bytes()).unwrap();
        assert_eq!(logged(), 0);
        assert!(without_odd_entries::<Nodes>(answer(&[&fine]).as_bytes()).is_none());
        let waits = json!({ "waits": [{ "type": "MAP" }, { "type": "MAP", "requests": 1, "reason": "safe_mode" }] });
        let waits: SessionWaits =
            manager.read_list("/api/v1/sessions/1.1", waits.to_string().as_bytes()).unwrap();
        assert_eq!(waits.waits.unwrap().len(), 1);
        assert_eq!(beginning("/api/v1/sessions/2026.7"), "/api/v1/sessions");
    }

    #[tokio::test]
    async fn a_cluster_manager_that_is_not_there_is_not_asked_all_the_time() {
        let nobody = corona_net::testing::nobody();
        let manager = Manager::new("127.0.0.1", nobody.address().port());
        assert_eq!(manager.waits("1.1").await, Err(NoAnswer::Silent));
        assert_eq!(manager.kept.lock().unwrap().len(), 1);
        assert_eq!(manager.waits("1.1").await, Err(NoAnswer::Silent));
        assert_eq!(Manager::new("h", 0).waits("1.1").await, Err(NoAnswer::Unknown));
    }
}
