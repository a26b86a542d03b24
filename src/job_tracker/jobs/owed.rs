//! What the service owes the cluster manager: the ends of sessions, each with the feedback on nodes that goes
//! before it. A session is noted in a file before it may start; the journal of its job takes its place, and
//! gives it back when the job ends. The file stays until the cluster manager has acknowledged the end, so that
//! neither an outage of the cluster manager nor a death of the service leaves a session that nobody ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_config::JournalSync;
use corona_job_engine::NodeUsage;
use corona_model::types::SessionStatus;
use corona_process::panics::{TaskPanicked, restart_on_panic, run_essential};
use corona_session_driver::{DriverHost, Ending, Options, SessionDriver, StartError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::session_types::{self, usage};

/// The form of the files. **It is a promise** to later versions; what changes it gets a number of its own.
const FORM: u8 = 1;
/// The beginning of the name of a file that is being written.
const NEW: &str = "new-";
/// The pause before another attempt to end a session that this process has not let go yet.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// An end that a session must come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Debt {
    /// The session.
    pub(crate) handle: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) status: SessionStatus,
    pub(crate) feedback: Vec<NodeUsage>,
}

/// The ends that are owed.
#[derive(Debug)]
pub(crate) struct Owed {
    directory: PathBuf,
    sync: JournalSync,
    host: DriverHost,
    /// For sessions of the service.
    options: Options,
    /// The sessions that are noted.
    open: watch::Sender<BTreeSet<Arc<str>>>,
    /// Notes are written one after the other.
    writing: Mutex<()>,
}

impl Owed {
    /// The ends in a directory, which is created if needed, and those that an earlier run has left.
    /// A file that cannot be read is logged and left.
    pub(crate) fn open(
        directory: PathBuf,
        sync: JournalSync,
        host: DriverHost,
        options: Options,
    ) -> io::Result<(Owed, Vec<Debt>)> {
        fs::create_dir_all(&directory)?;
        let mut debts = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NEW)) {
                // It was not complete, so nothing was done that it is for.
                fs::remove_file(&path)?;
                continue;
            }
            match read(&path) {
                Ok(debt) => debts.push(debt),
                Err(error) => tracing::error!(
                    file = %path.display(), %error,
                    "cannot read which session is to be ended; it ends when it expires"
                ),
            }
        }
        let open = debts.iter().map(|debt| debt.handle.clone()).collect();
        let writing = Mutex::default();
        let open = watch::Sender::new(open);
        Ok((Owed { directory, sync, host, options, open, writing }, debts))
    }

    /// Notes that a session must come to this end, in place of what was noted before.
    pub(crate) async fn note(self: &Arc<Self>, debt: Debt) -> io::Result<()> {
        let owed = self.clone();
        let written = tokio::task::spawn_blocking(move || owed.write(&debt)).await;
        written.map_err(io::Error::other)?
    }

    fn write(&self, debt: &Debt) -> io::Result<()> {
        // A job tracker on a node names its session itself.
        if !is_file_name(&debt.handle) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no id of a session"));
        }
        let bytes = postcard::to_extend(debt, vec![FORM]).map_err(io::Error::other)?;
        let _one = self.lock();
        let new = self.directory.join(format!("{NEW}{}", debt.handle));
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        if self.sync == JournalSync::Always {
            file.sync_all()?;
        }
        fs::rename(&new, self.directory.join(&*debt.handle))?;
        self.sync_directory()?;
        self.open.send_if_modified(|open| open.insert(debt.handle.clone()));
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        match self.sync {
            JournalSync::Always => File::open(&self.directory)?.sync_all(),
            JournalSync::Write => Ok(()),
        }
    }

    /// A session has ended, or the journal of its job knows it.
    pub(crate) async fn settle(self: &Arc<Self>, handle: &Arc<str>) {
        let (owed, handle) = (self.clone(), handle.clone());
        // What remains is ended again after a restart.
        let _ = tokio::task::spawn_blocking(move || owed.remove(&handle)).await;
    }

    fn remove(&self, handle: &Arc<str>) {
        let _one = self.lock();
        if let Err(error) = fs::remove_file(self.directory.join(&**handle))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(session = %handle, %error, "cannot forget that a session was ended");
        }
        self.open.send_if_modified(|open| open.remove(handle));
    }

    /// Whether a session is noted.
    pub(crate) fn has(&self, handle: &str) -> bool {
        self.open.borrow().contains(handle)
    }

    /// Returns when a session is not noted any more.
    pub(crate) async fn settled(&self, handle: &str) {
        // Its sender lives as long as this.
        let _ = self.open.subscribe().wait_for(|open| !open.contains(handle)).await;
    }

    /// Ends a session that has a driver: the end is noted when this returns, and delivered when the task has
    /// ended.
    pub(crate) async fn end(
        self: &Arc<Self>,
        driver: Arc<SessionDriver>,
        debt: Debt,
    ) -> JoinHandle<Result<Arc<Ending>, TaskPanicked>> {
        let Debt { handle, status, feedback, .. } = debt.clone();
        if let Err(error) = self.note(debt).await {
            tracing::error!(
                session = %handle, %error,
                "cannot keep that a session is to be ended; a restart does not know it"
            );
        }
        // The session may be lost already.
        let _ = driver.feedback(feedback.into_iter().map(usage).collect());
        let owed = self.clone();
        tokio::spawn(run_essential("the end of a session", async move {
            let ended = driver.end(session_types::status(status)).await;
            if ended.is_settled() {
                owed.settle(&handle).await;
            }
            ended
        }))
    }

    /// Ends a session that has no driver and is noted, in the background.
    pub(crate) fn pay(self: &Arc<Self>, debt: Debt) {
        let owed = self.clone();
        tokio::spawn(async move {
            restart_on_panic("the end of a session", || owed.pay_now(debt.clone())).await;
        });
    }

    async fn pay_now(self: &Arc<Self>, debt: Debt) {
        let Debt { handle, user, status, feedback } = debt;
        let feedback: Vec<_> = feedback.into_iter().map(usage).collect();
        loop {
            let mut options = self.options.clone();
            options.user = user.to_string();
            let status = session_types::status(status);
            let end = self.host.end_left(handle.clone(), options, status, feedback.clone());
            match end.await {
                Ok(ended) if ended.is_settled() => {
                    tracing::info!(session = %handle, %ended, "ended a session that was left");
                    return self.settle(&handle).await;
                }
                // The driver of a failed start still ends it.
                Err(StartError::HandleTaken(_)) => sleep(BUSY_PAUSE).await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_file_name(handle: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=200).contains(&handle.len())
        && handle.starts_with(|first: char| first.is_ascii_digit())
        && handle.bytes().all(is_plain)
}

fn read(path: &Path) -> io::Result<Debt> {
    let bytes = fs::read(path)?;
    match bytes.split_first() {
        Some((&FORM, debt)) => postcard::from_bytes(debt).map_err(io::Error::other),
        Some((form, _)) => Err(io::Error::other(format!(
            "the file has form {form}, which this version cannot read"
        ))),
        None => Err(io::Error::other("the file is empty")),
    }
}

#[cfg(test)]
mod tests {
    use corona_session_driver::{Endpoint, Listen};

    use super::*;

    async fn open(directory: &Path) -> (Arc<Owed>, Vec<Debt>) {
        let nobody = Endpoint::new("127.0.0.1", 1);
        let host = DriverHost::open(&nobody, &Listen::default()).await.unwrap();
        let options = Options::new(nobody, "service");
        let (owed, debts) =
            Owed::open(directory.to_owned(), JournalSync::Always, host, options).unwrap();
        (Arc::new(owed), debts)
    }

    fn debt(handle: &str) -> Debt {
        let usage = NodeUsage {
            node: "n".into(),
            total: 3,
            succeeded: 2,
            killed: 0,
            failed: 1,
            timeouts: 0,
            failed_connections: 0,
        };
        Debt {
            handle: handle.into(),
            user: "alice".into(),
            status: SessionStatus::Failed,
            feedback: vec![usage],
        }
    }

    #[tokio::test]
    async fn an_end_is_owed_over_restarts_until_it_is_settled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owed");
        let (owed, debts) = open(&path).await;
        assert_eq!(debts, []);
        for handle in ["202611210043.1", "202611210043.2"] {
            owed.note(debt(handle)).await.unwrap();
        }
        owed.settle(&"202611210043.1".into()).await;
        owed.settled("202611210043.1").await;
        fs::write(path.join("new-202611210043.3"), "half").unwrap();
        fs::write(path.join("202611210043.4"), [9, 1, 2]).unwrap();
        let (owed, debts) = open(&path).await;
        assert_eq!(debts, [debt("202611210043.2")]);
        assert!(owed.has("202611210043.2") && !owed.has("202611210043.1"));
        assert!(path.join("202611210043.4").exists(), "a later version may read it");
        assert!(read(&path.join("202611210043.4")).unwrap_err().to_string().contains("form 9"));
        for handle in ["", "../1", "1/../2", ".", "new-1", &"1".repeat(201)] {
            let refused = owed.note(debt(handle)).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{handle}");
        }
    }

    #[test]
    fn files_of_the_first_version_are_read() {
        let bytes = [
            &[1, 14][..],
            b"202611210043.2",
            &[5],
            b"alice",
            &[1, 1, 1],
            b"n",
            &[3, 2, 0, 1, 0, 0],
        ]
        .concat();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("202611210043.2");
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path).unwrap(), debt("202611210043.2"));
    }
}
