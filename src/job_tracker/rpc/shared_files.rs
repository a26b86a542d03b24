//! Whether the machines of the cluster see the files of a job: asked for by a client before it submits a job
//! that reads or writes files of machines (`file:`), so that no task runs where it would read nothing, or
//! write where nobody looks.
//!
//! The client leaves a file with a token where the output will be. This machine and each node look for it,
//! and each node for some of the inputs. A node that does not answer, or is of another program, says nothing.

use std::path::Path;
use std::time::Duration;

use corona_api::cluster::Nodes;
use corona_api::node::Unseen;
use corona_filesystem::sees_token;
use corona_hadoop::rpc::Fault;
use corona_web::exchange::encode_segment;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::job_files::FileCalls;
use crate::http::{self, Target};
use crate::launch::hosts::is_usable;
use corona_hadoop::protocols::job_files::BUSY;

/// Nodes that are asked for one job.
const MOST_NODES: usize = 1_000;
/// What all questions may do at a time: ask nodes, and be worked on. Others wait.
static ASKED: Semaphore = Semaphore::const_new(32);
static QUESTIONS: Semaphore = Semaphore::const_new(8);
/// How long a question may take. What is not known by then is not missing; without a turn by then the client
/// asks again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the answer of a node.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Files that are asked for, and bytes of their names.
const MOST_FILES: usize = 32;
const MOST_NAME_BYTES: usize = 16 << 10;
/// Machines that are named.
const MOST_NAMED: usize = 3;

/// What is to be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// A file with a token, where the output will be; empty for none.
    pub(crate) marker: String,
    pub(crate) token: String,
    /// Inputs with their lengths.
    pub(crate) files: Vec<(String, i64)>,
}

impl Wanted {
    /// As a client asks.
    pub(crate) fn new(
        marker: String,
        token: String,
        files: Vec<String>,
        lengths: Vec<i64>,
    ) -> Result<Wanted, Fault> {
        let names = files.iter().chain([&marker, &token]).map(String::len).sum::<usize>();
        let is_whole = files
            .iter()
            .chain([&marker])
            .all(|path| (path.starts_with('/') || path.is_empty()) && !path.contains('\0'));
        if files.len() != lengths.len()
            || files.len() > MOST_FILES
            || names > MOST_NAME_BYTES
            || !is_whole
        {
            return Err(Fault::io("this is no list of files to be seen"));
        }
        Ok(Wanted { marker, token, files: files.into_iter().zip(lengths).collect() })
    }

    /// The question to a node.
    fn query(&self) -> String {
        let mut query = String::from("/api/v1/sees?");
        if !self.marker.is_empty() {
            let (marker, token) = (encode_segment(&self.marker), encode_segment(&self.token));
            query.push_str(&format!("marker={marker}&token={token}"));
        }
        for (path, bytes) in &self.files {
            query.push_str(&format!("&file={}&bytes={bytes}", encode_segment(path)));
        }
        query
    }

    /// Whether this machine sees the file with the token.
    fn is_marker_seen(&self) -> bool {
        self.marker.is_empty() || sees_token(Path::new(&self.marker), &self.token)
    }
}

impl FileCalls {
    /// What machines do not see, as a sentence; none if all that answer see everything.
    ///
    /// # Errors
    /// Too many others ask.
    pub(crate) async fn unseen(&self, wanted: Wanted) -> Result<Option<String>, Fault> {
        let until = Instant::now() + PATIENCE;
        let turn = timeout_at(until, QUESTIONS.acquire()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Fault::of(BUSY, "many clients ask which files machines see; try again"));
        };
        let own = wanted.clone();
        // A file system that does not answer keeps the turn.
        let is_seen = tokio::task::spawn_blocking(move || (own.is_marker_seen(), turn));
        let (is_seen, _turn) = match timeout_at(until, is_seen).await {
            Ok(Ok((is_seen, turn))) => (is_seen, Some(turn)),
            Ok(Err(_)) | Err(_) => (true, None),
        };
        let mut unseen = Vec::new();
        if !is_seen {
            let directory = parent(&wanted.marker);
            unseen
                .push(format!("the job tracker at {} does not see {directory}", self.sources.name));
        }
        let nodes = timeout_at(until, self.sources.manager.nodes(MOST_NODES)).await;
        let nodes = nodes.ok().and_then(Result::ok).unwrap_or_default();
        let query = wanted.query();
        let mut asked = JoinSet::new();
        for host in hosts(nodes) {
            let target = Target::new(&host, self.sources.settings.node_pages_port, &query);
            asked.spawn(async move {
                let _turn = ASKED.acquire().await;
                let answer = http::get(&target, MAX_ANSWER_BYTES).await;
                missing(answer.ok()?).map(|path| format!("the node {host} does not see {path}"))
            });
        }
        while let Ok(Some(found)) = timeout_at(until, asked.join_next()).await {
            unseen.extend(found.ok().flatten());
        }
        Ok(sentence(unseen))
    }
}

/// The hosts of nodes that could be given tasks.
fn hosts(list: Nodes) -> impl Iterator<Item = String> {
    let usable = list.nodes.into_iter().filter(is_usable);
    usable.filter_map(|node| Some(node.address?.host))
}

/// What a node says is missing. A directory is named where its file with the token is.
fn missing((status, body): (u16, Vec<u8>)) -> Option<String> {
    let answer: Unseen = (status == 200).then(|| serde_json::from_slice(&body).ok()).flatten()?;
    answer.marker.as_deref().map(parent).or(answer.file)
}

fn parent(path: &str) -> String {
    let parent = Path::new(path).parent().unwrap_or(Path::new("/"));
    parent.display().to_string()
}

fn sentence(mut unseen: Vec<String>) -> Option<String> {
    unseen.sort();
    let more = unseen.len().saturating_sub(MOST_NAMED);
    unseen.truncate(MOST_NAMED);
    let mut text = unseen.join(", ");
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::service::tests::service_with;

    #[test]
    fn questions_are_bounded_and_encoded() {
        let wanted = |marker: &str, files: &[&str], lengths: &[i64]| {
            let files = files.iter().map(|file| (*file).to_owned()).collect();
            Wanted::new(marker.into(), "t".into(), files, lengths.to_vec())
        };
        let query = wanted("/data/.m", &["/in/a b&c"], &[7]).unwrap().query();
        assert_eq!(
            query,
            "/api/v1/sees?marker=%2Fdata%2F.m&token=t&file=%2Fin%2Fa%20b%26c&bytes=7"
        );
        assert!(wanted("", &[], &[]).unwrap().is_marker_seen());
        for (marker, files, lengths) in [
            ("relative", &[][..], &[][..]),
            ("/m", &["relative"][..], &[1][..]),
            ("/m", &["/a"][..], &[][..]),
            ("/m", &["/a"; 33][..], &[1; 33][..]),
            (&*format!("/{}", "m".repeat(20_000)), &[][..], &[][..]),
        ] {
            assert!(wanted(marker, files, lengths).is_err(), "{marker:.20}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_ends_though_others_ask_and_nothing_answers() {
        // It takes connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pages = silent.local_addr().unwrap().to_string();
        let root = tempfile::tempdir().unwrap();
        let manager = [("cm.server.http.address", pages.as_str())];
        let shared = service_with(root.path(), &manager).await.calls.files;
        let begun = Instant::now();
        assert_eq!(shared.unseen(Wanted::default()).await.unwrap(), None);
        let turns = QUESTIONS.acquire_many(8).await.unwrap();
        let refused = shared.unseen(Wanted::default()).await.unwrap_err().to_string();
        assert!(refused.contains("try again"), "{refused}");
        assert!(begun.elapsed() <= 2 * PATIENCE + Duration::from_secs(1), "{:?}", begun.elapsed());
        drop(turns);
        assert_eq!(shared.unseen(Wanted::default()).await.unwrap(), None);
    }

    #[test]
    fn only_what_a_node_says_is_missing_counts() {
        let answer = |status, body: Value| missing((status, body.to_string().into_bytes()));
        assert_eq!(answer(200, json!({})), None);
        assert_eq!(answer(200, json!({ "file": "/in/a" })).as_deref(), Some("/in/a"));
        assert_eq!(answer(200, json!({ "marker": "/data/.m" })).as_deref(), Some("/data"));
        // A node of another program, or of an earlier version.
        assert_eq!(answer(404, json!({ "marker": "/data/.m" })), None);
        assert_eq!(missing((200, b"<html>".to_vec())), None);
    }

    #[test]
    fn a_few_machines_are_named() {
        assert_eq!(sentence(Vec::new()), None);
        let all = ["d", "b", "a", "c", "e"].map(str::to_owned).to_vec();
        assert_eq!(sentence(all).as_deref(), Some("a, b, c, and 2 more"));
    }
}
