//! The history of a job: a file that is written as the job goes, the job's configuration beside it, and
//! a copy of both for its user. What is slow here delays nothing else. Spec: mapreduce/08 §8.1 to §8.5.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corona_filesystem::{CreateOptions, FileSystem, FileSystems, FileWriter, FsError, FsPath};
use corona_mapreduce::{HistoryRecord, JobId};
use tokio::sync::{mpsc, oneshot};

use super::submission::Description;

/// Bytes of records that wait to be written; with more, the job has no history.
const MAX_WAITING: usize = 64 << 20;
const MAX_RECORDS: usize = 100_000;
/// Lines that are written at a time.
const BATCH: usize = 256;
/// Permissions of the files, and where files of jobs that are over lie.
const MODE: u16 = 0o744;
const DONE: &str = "done";
/// Characters of a job's name in the name of its user's copy.
const MAX_NAME: usize = 50;
/// The largest history that is copied for its user, in bytes.
const MAX_COPY: u64 = 256 << 20;

/// Writes a job's history in a task of its own.
#[derive(Debug)]
pub(super) struct History {
    job: JobId,
    sender: mpsc::Sender<Order>,
    waiting: Arc<AtomicUsize>,
    full: bool,
}

#[derive(Debug)]
enum Order {
    Write(String),
    Close(oneshot::Sender<()>),
}

/// Where the files of a history go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) files: Arc<FileSystems>,
    /// The directory that the cluster manager has chosen for the session.
    pub(super) log_path: String,
    /// The configuration, as the original writes it.
    pub(super) conf: String,
    pub(super) user_copy: Option<UserCopy>,
}

/// The copy for the user of a job, which `hadoop job -history` reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserCopy {
    /// The directory of the copy.
    pub(super) directory: String,
    /// The name of the copy of the history.
    pub(super) history: String,
    /// The name of the copy of the configuration.
    pub(super) conf: String,
}

impl UserCopy {
    /// The copy for a job that has an output directory, unless its user wants it elsewhere or not at all.
    /// Spec: mapreduce/08 §8.1, §8.5.
    pub(super) fn of(
        job: &Description,
        location: Option<&str>,
        host: &str,
        started_ms: i64,
    ) -> Option<UserCopy> {
        let base = match location.filter(|location| !location.is_empty()) {
            Some("none") => return None,
            Some(location) => location,
            None => job.output.as_deref()?,
        };
        let or_none = |text: &str| match text {
            "" => "NA".to_owned(),
            text => text.chars().take(MAX_NAME).collect(),
        };
        let host = host.replace('_', "-");
        let name =
            format!("{host}_{started_ms}_{}_{}_{}", job.id, or_none(&job.user), or_none(&job.name));
        Some(UserCopy {
            directory: format!("{}/_logs/history", base.trim_end_matches('/')),
            history: url_encoded(&name),
            conf: format!("{}_{started_ms}_{}_conf.xml", url_encoded(&host), job.id),
        })
    }
}

/// As Java's `URLEncoder` does.
fn url_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl History {
    /// Begins the history of a job with these lines. A file of the same name is replaced.
    pub(super) fn begin(job: JobId, place: Place, first: String) -> History {
        let (sender, orders) = mpsc::channel(MAX_RECORDS);
        let waiting = Arc::<AtomicUsize>::default();
        let writing = write(job.clone(), place, first, orders, waiting.clone());
        tokio::spawn(writing);
        History { job, sender, waiting, full: false }
    }

    /// Adds a record. It is written soon, and can be read then.
    pub(super) fn record(&mut self, record: &HistoryRecord) {
        let lines = record.lines(&self.job);
        if self.full {
            return;
        }
        let waiting = self.waiting.fetch_add(lines.len(), Ordering::Relaxed) + lines.len();
        let sent = self.sender.try_send(Order::Write(lines));
        // A writer that has failed has said so.
        let is_full = matches!(sent, Err(mpsc::error::TrySendError::Full(_)));
        if is_full || waiting > MAX_WAITING {
            self.full = true;
            let job = &self.job;
            tracing::error!(%job, "the history of a job cannot be written fast enough; it ends here");
        }
    }

    /// Returns when the files are complete and where they stay.
    pub(super) async fn close(self) {
        let (tell, told) = oneshot::channel();
        if self.sender.send(Order::Close(tell)).await.is_ok() {
            let _ = told.await;
        }
    }
}

async fn write(
    job: JobId,
    place: Place,
    first: String,
    mut orders: mpsc::Receiver<Order>,
    waiting: Arc<AtomicUsize>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut file = match Files::begin(&job, place).await {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(%job, %error, "a job has no history");
            return;
        }
    };
    if let Err(error) = file.write(&first).await {
        tracing::warn!(%job, %error, "the history of a job ends here");
        return;
    }
    drop(first);
    while orders.recv_many(&mut batch, BATCH).await > 0 {
        let mut text = String::new();
        let mut close = None;
        for order in batch.drain(..) {
            match order {
                Order::Write(lines) => text.push_str(&lines),
                Order::Close(tell) => close = Some(tell),
            }
        }
        waiting.fetch_sub(text.len(), Ordering::Relaxed);
        if let Err(error) = file.write(&text).await {
            tracing::warn!(%job, %error, "the history of a job ends here");
            return;
        }
        let Some(tell) = close else { continue };
        if let Err(error) = file.finish().await {
            tracing::warn!(%job, %error, "the history of a job is not where it should be");
        }
        // Who waited may have given up.
        let _ = tell.send(());
        return;
    }
}

/// The files of a history while they are written.
struct Files {
    system: Arc<dyn FileSystem>,
    directory: FsPath,
    names: [String; 2],
    writer: Box<dyn FileWriter>,
    place: Place,
}

impl Files {
    async fn begin(job: &JobId, place: Place) -> Result<Files, FsError> {
        let (system, directory) = place.files.resolve(&place.log_path)?;
        let names = [job.to_string(), format!("{job}_conf.xml")];
        let conf = child(&directory, &names[1])?;
        create(&*system, &conf, place.conf.as_bytes()).await?;
        let path = child(&directory, &names[0])?;
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let writer = system.create(&path, options).await?;
        system.set_permission(&path, MODE).await?;
        Ok(Files { system, directory, names, writer, place })
    }

    async fn write(&mut self, text: &str) -> Result<(), FsError> {
        if text.is_empty() {
            return Ok(());
        }
        self.writer.write(text.as_bytes()).await?;
        self.writer.flush().await
    }

    /// Moves both files to where those of jobs that are over lie, and copies them for the user.
    async fn finish(self) -> Result<(), FsError> {
        let Files { system, directory, names, writer, place } = self;
        writer.close().await?;
        let done = child(&directory, DONE)?;
        system.mkdirs(&done, Some(0o755)).await?;
        for name in &names {
            let (from, to) = (child(&directory, name)?, child(&done, name)?);
            system.delete(&to, false).await?;
            system.rename(&from, &to).await?;
            system.set_permission(&to, MODE).await?;
        }
        let Some(copy) = &place.user_copy else { return Ok(()) };
        let history = read(&*system, &child(&done, &names[0])?).await?;
        let (system, directory) = place.files.resolve(&copy.directory)?;
        create(&*system, &child(&directory, &copy.history)?, &history).await?;
        create(&*system, &child(&directory, &copy.conf)?, place.conf.as_bytes()).await
    }
}

fn child(directory: &FsPath, name: &str) -> Result<FsPath, FsError> {
    Ok(FsPath::parse(&format!("{directory}/{name}"))?)
}

async fn create(system: &dyn FileSystem, path: &FsPath, bytes: &[u8]) -> Result<(), FsError> {
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut writer = system.create(path, options).await?;
    writer.write(bytes).await?;
    writer.close().await?;
    system.set_permission(path, MODE).await
}

async fn read(system: &dyn FileSystem, path: &FsPath) -> Result<Vec<u8>, FsError> {
    let mut reader = system.open(path).await?;
    let length = reader.length().min(MAX_COPY);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    reader.read_exact_at(0, &mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;

    use super::super::submission::tests::submission;
    use super::*;

    fn place(root: &std::path::Path, user_copy: Option<UserCopy>) -> Place {
        let settings =
            FileSystemSettings { default_fs: "file:///".into(), ..FileSystemSettings::default() };
        Place {
            files: Arc::new(FileSystems::new(settings).unwrap()),
            log_path: format!("file:{}", root.join("202611210043.0").display()),
            conf: "<configuration/>".into(),
            user_copy,
        }
    }

    fn record() -> HistoryRecord {
        HistoryRecord::Launched { launch_ms: 5, maps: 1, reduces: 0 }
    }

    #[tokio::test]
    async fn a_history_can_be_read_while_it_grows_and_is_moved_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut job = submission(&[], 1).description;
        job.output = Some(format!("file:{}", dir.path().join("out").display()).into());
        job.name = "word count =\"x\"".into();
        let copy = UserCopy::of(&job, None, "jt_1.example.com", 77);
        let mut history = History::begin(job.id.clone(), place(dir.path(), copy), String::new());
        history.record(&HistoryRecord::Version);
        history.record(&record());
        let running = dir.path().join("202611210043.0").join(job.id.as_str());
        let expected =
            format!("{}{}", HistoryRecord::Version.lines(&job.id), record().lines(&job.id));
        for _ in 0..1000 {
            if std::fs::read_to_string(&running).unwrap_or_default() == expected {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(std::fs::read_to_string(&running).unwrap(), expected);
        history.close().await;
        let done = dir.path().join("202611210043.0/done");
        assert!(!running.exists());
        assert_eq!(std::fs::read_to_string(done.join(job.id.as_str())).unwrap(), expected);
        let conf = done.join(format!("{}_conf.xml", job.id));
        assert_eq!(std::fs::read_to_string(conf).unwrap(), "<configuration/>");
        // What `hadoop job -history` looks for: host, start time and the three parts of the id.
        let copies = dir.path().join("out/_logs/history");
        let name = format!("jt-1.example.com_77_{}_alice_word+count+%3D%22x%22", job.id);
        assert_eq!(std::fs::read_to_string(copies.join(name)).unwrap(), expected);
        assert!(copies.join(format!("jt-1.example.com_77_{}_conf.xml", job.id)).exists());
    }

    #[test]
    fn a_user_may_want_the_copy_elsewhere_or_not_at_all() {
        let mut job = submission(&[], 1).description;
        assert_eq!(UserCopy::of(&job, None, "jt", 1), None, "no output, no copy");
        job.output = Some("hdfs://nn/out/".into());
        let copy = UserCopy::of(&job, None, "jt", 1).unwrap();
        assert_eq!(copy.directory, "hdfs://nn/out/_logs/history");
        assert!(copy.history.ends_with("_alice_NA"), "{copy:?}");
        assert_eq!(UserCopy::of(&job, Some("none"), "jt", 1), None);
        let copy = UserCopy::of(&job, Some("/elsewhere"), "jt", 1).unwrap();
        assert_eq!(copy.directory, "/elsewhere/_logs/history");
        job.name = "x".repeat(60).into();
        let copy = UserCopy::of(&job, None, "jt", 1).unwrap();
        assert!(copy.history.ends_with(&format!("_{}", "x".repeat(MAX_NAME))));
    }

    #[tokio::test]
    async fn a_job_whose_history_cannot_be_written_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("202611210043.0"), "a file").unwrap();
        let job = submission(&[], 1).description;
        let mut history = History::begin(job.id.clone(), place(dir.path(), None), String::new());
        history.record(&record());
        history.close().await;
    }
}
