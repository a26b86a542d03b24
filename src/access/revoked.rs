//! The access strings whose certificates are not accepted: what the head has listed, kept in the directory of the
//! identity, so that it outlives a restart and holds for clients and tasks that use the directory too.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::certificate::VALID;
use crate::files::{self, FileError, Stamp, damaged, file};
use crate::seconds;
use crate::string::{hex, sha256};
use crate::table::GrantId;

const FILE: &str = "revoked.json";
/// The version of the form of [`FILE`].
const VERSION: u32 = 1;
/// For how long an access string is kept that the head does not list any more: until all certificates that were
/// issued for it have expired. The head may have been replaced by an older copy.
const KEPT: Duration = VALID.saturating_add(Duration::from_secs(24 * 3600));

/// Access strings whose certificates are not accepted.
#[derive(Debug)]
pub(crate) struct Revoked {
    path: PathBuf,
    /// When the head has listed each of them last, in seconds since 1970.
    ids: watch::Sender<HashMap<GrantId, u64>>,
    /// The file as it was read or written last.
    seen: Mutex<Option<Stamp>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// When the head has listed them last, in seconds since 1970.
    revoked: HashMap<GrantId, u64>,
}

impl Revoked {
    /// Those that are known in a directory.
    pub(crate) fn open(directory: &Path) -> Result<Revoked, FileError> {
        let path = directory.join(FILE);
        let revoked = Revoked { path, ids: watch::Sender::default(), seen: Mutex::default() };
        revoked.reload()?;
        Ok(revoked)
    }

    /// Whether certificates of this access string are not accepted.
    pub(crate) fn contains(&self, id: GrantId) -> bool {
        self.ids.borrow().contains_key(&id)
    }

    /// Waits until this access is revoked.
    pub(crate) async fn wait_for(&self, id: GrantId) {
        // It has no other end than this one: the sender is not dropped before.
        let _ = self.ids.subscribe().wait_for(|ids| ids.contains_key(&id)).await;
    }

    /// Follows what is revoked from now on.
    pub(crate) fn follow(self: &Arc<Self>) -> Revocations {
        Revocations { changes: self.ids.subscribe(), _source: self.clone() }
    }

    /// Learns what the head lists. Nothing is accepted again as long as certificates may be valid.
    ///
    /// Errors: the file cannot be written. What is learnt counts nevertheless.
    pub(crate) fn learn(&self, listed: &[GrantId], now: SystemTime) -> Result<(), FileError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seconds(now);
        let is_new = self.ids.send_if_modified(|ids| {
            let before: Vec<GrantId> = ids.keys().copied().collect();
            ids.extend(listed.iter().map(|id| (*id, now)));
            ids.retain(|_, last| last.saturating_add(KEPT.as_secs()) > now);
            before.len() != ids.len() || before.iter().any(|id| !ids.contains_key(id))
        });
        if !is_new && seen.is_some() {
            return Ok(());
        }
        let stored = Stored { version: VERSION, revoked: self.ids.borrow().clone() };
        let content = serde_json::to_vec(&stored).map_err(|error| damaged(&self.path, error))?;
        let replaced = files::replace(&self.path, &content);
        let stamp = replaced.and_then(|()| files::stamp(&self.path));
        *seen = Some(stamp.map_err(file(&self.path))?);
        Ok(())
    }

    /// Reads what another process has written since, if anything.
    pub(crate) fn reload(&self) -> Result<(), FileError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let path = &self.path;
        let stamp = match files::stamp(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            stamp => stamp.map_err(file(path))?,
        };
        if *seen == Some(stamp) {
            return Ok(());
        }
        let content = files::read(path).map_err(file(path))?;
        let stored: Stored =
            files::versioned(&content, VERSION).map_err(|problem| damaged(path, problem))?;
        self.ids.send_modify(|ids| ids.extend(stored.revoked));
        *seen = Some(stamp);
        Ok(())
    }

    /// How long ago the file was written; `None` if there is none.
    pub(crate) fn age(&self) -> Option<Duration> {
        std::fs::metadata(&self.path).ok()?.modified().ok()?.elapsed().ok()
    }
}

/// Which access has been revoked, as a daemon knows it.
#[derive(Clone, Debug)]
pub struct Revocations {
    changes: watch::Receiver<HashMap<GrantId, u64>>,
    /// It has the sender.
    _source: Arc<Revoked>,
}

impl Revocations {
    /// All that is revoked, in no particular order.
    pub fn all(&self) -> Vec<GrantId> {
        self.changes.borrow().keys().copied().collect()
    }

    /// Whether this access is revoked.
    pub fn contains(&self, id: GrantId) -> bool {
        self.changes.borrow().contains_key(&id)
    }

    /// Waits for a change since the last call, or since this was made.
    pub async fn changed(&mut self) {
        // The sender lives as long as this.
        let _ = self.changes.changed().await;
    }
}

/// Names a list, so that it needs not be sent again.
pub(crate) fn name(listed: &[GrantId]) -> String {
    let mut sorted = listed.to_vec();
    sorted.sort_unstable();
    let text: Vec<String> = sorted.iter().map(GrantId::to_string).collect();
    hex(&sha256(text.join(" ").as_bytes()))
}
