//! The history of a job: a file that is written as the job goes, the job's configuration beside it, and
//! a copy of both for its user. What is slow here delays nothing else. Spec: mapreduce/08 §8.1 to §8.5.
//!
//! The same lines are kept in a file of the service, from which a restart writes the history again: an image of
//! a job stands for inputs, and not for the history that followed from them. A history that cannot be written is
//! begun again from there too.
//!
//! No file is open between two writes, where the file system allows that: many jobs run at once.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_filesystem::{
    CreateOptions, FileReader, FileSystem, FileSystems, FileWriter, FsError, FsPath, ObjectAccess,
};
use corona_mapreduce::history::JobEnd;
use corona_mapreduce::{HistoryRecord, JobId};
use corona_process::descriptors;
use corona_process::panics::caught;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::submit::submission::Description;

/// Bytes of records that wait to be written; with more, the job has no history.
const MAX_WAITING: usize = 64 << 20;
/// The pause between two writes, unless a caller waits for one. The lines of a busy job share them.
/// Why a history has lost records.
const TOO_SLOW: &str = "it cannot be written fast enough";
const FAILED: &str = "the part that writes it has failed";
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before a history that could not be written is begun again while its job runs; how often that is
/// tried at the end of the job, and the pause between.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
const LAST_TRIES: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// What is done at a time for all jobs with the lines that are kept, with histories, and with copies for users:
/// each opens two files at most. What has waited for so long does not wait any more: others may hang.
static KEEPING: Semaphore = Semaphore::const_new(8);
static WRITING: Semaphore = Semaphore::const_new(12);
static COPYING: Semaphore = Semaphore::const_new(8);
const TURN_PATIENCE: Duration = Duration::from_secs(10);
/// Files of histories of all jobs that may be open at a time.
pub(crate) const FILES_OF_HISTORIES: usize = 2 * (8 + 12 + 8);
/// Permissions of the files, and where files of jobs that are over lie.
const MODE: u16 = 0o744;
const DONE: &str = "done";
/// Characters of a job's name in the name of its user's copy.
const MAX_NAME: usize = 50;
/// Bytes of a line that may be left without its end.
const MAX_LINE: usize = 16 << 20;
/// Bytes that are copied at a time.
const PIECE: usize = 256 << 10;

/// Writes a job's history in a task of its own.
#[derive(Debug)]
pub(crate) struct History {
    job: JobId,
    queue: Arc<Queue>,
    full: bool,
    /// Bytes of all lines so far.
    bytes: u64,
}

/// How a history stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistoryStanding {
    /// Why it cannot be written, or could not.
    pub(crate) trouble: Option<Arc<str>>,
    /// It has lost records: it is not tried again.
    pub(crate) is_lost: bool,
    /// Nothing is written any more.
    pub(crate) is_settled: bool,
}

/// Waits for its turn to open files.
async fn turn(of: &'static Semaphore) -> Option<SemaphorePermit<'static>> {
    timeout(TURN_PATIENCE, of.acquire()).await.ok()?.ok()
}

/// What a job and the task that writes its history share.
#[derive(Debug, Default)]
struct Queue {
    standing: watch::Sender<HistoryStanding>,
    pending: Mutex<Pending>,
    /// Something is pending.
    arrived: Notify,
    /// A caller waits.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// Lines that are not written.
    lines: String,
    /// For the answer once all lines so far are durable.
    keep: Vec<oneshot::Sender<()>>,
    /// For the answer once the files are complete.
    close: Option<oneshot::Sender<()>>,
    /// No more lines will come, or the writing task has ended.
    ended: bool,
}

/// The end of the queue that the writing task has. Once it is dropped, callers no longer wait.
struct Incoming(Arc<Queue>);

/// The lines that the service keeps for a restart.
#[derive(Clone, Debug)]
pub(crate) struct KeptHistory {
    /// The file.
    pub(crate) path: PathBuf,
    /// Bytes of it that belong to the history; what is behind them is cut off.
    pub(crate) bytes: u64,
}

/// A place in the history of a job.
#[derive(Debug)]
pub(crate) struct Mark {
    bytes: u64,
    safe: oneshot::Receiver<()>,
}

impl Mark {
    /// One whose lines are durable.
    #[cfg(test)]
    pub(crate) fn kept(bytes: u64) -> Mark {
        let (tell, safe) = oneshot::channel();
        let _ = tell.send(());
        Mark { bytes, safe }
    }

    /// One whose lines could not be kept.
    #[cfg(test)]
    pub(crate) fn lost(bytes: u64) -> Mark {
        Mark { bytes, safe: oneshot::channel().1 }
    }

    /// Bytes of the lines before it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns once all lines before it are durable where a restart finds them; false if they are not kept.
    pub(crate) async fn wait_until_safe(self) -> bool {
        self.safe.await.is_ok()
    }
}

/// Where the files of a history go.
#[derive(Clone, Debug)]
pub(crate) struct HistoryTarget {
    pub(crate) files: Arc<FileSystems>,
    /// The directory that the cluster manager has chosen for the session.
    pub(crate) log_path: String,
    /// The configuration, as the original writes it.
    pub(crate) conf: String,
    pub(crate) user_copy: Option<UserCopy>,
}

/// The copy for the user of a job, which `hadoop job -history` reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserCopy {
    /// Whose it is, and with whose rights it is written.
    pub(crate) user: String,
    /// The directory of the copy.
    pub(crate) directory: String,
    /// The name of the copy of the history.
    pub(crate) history: String,
    /// The name of the copy of the configuration.
    pub(crate) conf: String,
}

impl UserCopy {
    /// The copy for a job that has an output directory, unless its user wants it elsewhere or not at all.
    /// Spec: mapreduce/08 §8.1, §8.5.
    pub(crate) fn of(
        job: &Description,
        location: Option<&str>,
        host: &str,
        started_ms: i64,
    ) -> Option<UserCopy> {
        let base = match location.filter(|location| !location.is_empty()) {
            Some("none") => return None,
            Some(location) => location,
            // There a part of an output that is seen would not go with the job.
            None => job.output.as_deref().filter(|output| !ObjectAccess::is_for(output))?,
        };
        let or_none = |text: &str| match text {
            "" => "NA".to_owned(),
            text => text.chars().take(MAX_NAME).collect(),
        };
        let host = host.replace('_', "-");
        let name =
            format!("{host}_{started_ms}_{}_{}_{}", job.id, or_none(&job.user), or_none(&job.name));
        Some(UserCopy {
            user: job.user.to_string(),
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
    /// Begins the history of a job with the lines that are kept, if any are kept, and these, or with its first
    /// record. A file of the same name is replaced.
    pub(crate) fn begin(
        job: JobId,
        place: HistoryTarget,
        kept: Option<KeptHistory>,
        first: String,
    ) -> History {
        let queue = Arc::<Queue>::default();
        let bytes = kept.as_ref().map_or(0, |kept| kept.bytes) + first.len() as u64;
        let (writing, standing) =
            (write(job.clone(), place, kept, first, Incoming(queue.clone())), queue.clone());
        let id = job.clone();
        tokio::spawn(async move {
            if let Err(panic) = caught(writing).await {
                tracing::error!(job = %id, %panic, "the writer of the history of a job panicked; the history ends here");
                standing.lose(FAILED);
            }
        });
        History { job, queue, full: false, bytes }
    }

    /// How it stands, also after its end.
    pub(crate) fn standing(&self) -> watch::Receiver<HistoryStanding> {
        self.queue.standing.subscribe()
    }

    /// The present end of the history; none if it is not complete.
    pub(crate) fn mark(&mut self) -> Option<Mark> {
        let (tell, safe) = oneshot::channel();
        let mut pending = self.queue.lock();
        if pending.ended || self.full {
            return None;
        }
        pending.keep.push(tell);
        drop(pending);
        self.queue.hurry();
        Some(Mark { bytes: self.bytes, safe })
    }

    /// Adds a record. It is written soon, and can be read then.
    pub(crate) fn record(&mut self, record: &HistoryRecord) {
        if self.full {
            return;
        }
        let lines = record.lines(&self.job);
        self.bytes += lines.len() as u64;
        let mut pending = self.queue.lock();
        // A task that has ended has logged why.
        if !pending.ended {
            pending.lines.push_str(&lines);
        }
        self.full = pending.lines.len() > MAX_WAITING;
        drop(pending);
        self.queue.arrived.notify_one();
        if self.full {
            let job = &self.job;
            tracing::error!(%job, "the history of a job cannot be written fast enough; it ends here");
            self.queue.lose(TOO_SLOW);
        }
    }

    /// Returns when the files are complete and where they stay, or the reason why they are not.
    pub(crate) async fn close(self) -> Option<Arc<str>> {
        let (tell, told) = oneshot::channel();
        self.queue.close(tell);
        // Without the task that writes there is nothing to wait for.
        let is_written = told.await.is_ok();
        self.queue.standing.send_modify(|standing| {
            if !is_written && standing.trouble.is_none() {
                standing.trouble = Some(FAILED.into());
            }
            standing.is_settled = true;
        });
        self.queue.standing.borrow().trouble.clone()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.queue.lock().ended = true;
        self.queue.hurry();
    }
}

impl Queue {
    /// No panic happens while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is this trouble, or none any more. A history that has lost records stays incomplete.
    fn trouble(&self, trouble: Option<Arc<str>>) {
        self.standing.send_modify(|standing| {
            if !standing.is_lost {
                standing.trouble = trouble;
            }
        });
    }

    /// It has lost records, for this reason.
    fn lose(&self, why: &str) {
        self.standing.send_modify(|standing| {
            standing.is_lost = true;
            standing.trouble = Some(why.into());
        });
    }

    /// Takes what is pending, and returns whether the queue has ended.
    fn take(&self) -> (Option<Pending>, bool) {
        let mut pending = self.lock();
        let ended = pending.ended;
        let is_empty =
            pending.lines.is_empty() && pending.keep.is_empty() && pending.close.is_none();
        let rest = Pending { ended, ..Pending::default() };
        ((!is_empty).then(|| std::mem::replace(&mut *pending, rest)), ended)
    }

    /// Asks for complete files, unless the writing task has ended.
    fn close(&self, tell: oneshot::Sender<()>) {
        let mut pending = self.lock();
        if !pending.ended {
            pending.close = Some(tell);
        }
        drop(pending);
        self.hurry();
    }

    /// Asks the writing task to write at once.
    fn hurry(&self) {
        self.arrived.notify_one();
        self.urgent.notify_one();
    }
}

impl Incoming {
    /// Waits until something is pending, and takes it. `None` if the queue has ended.
    async fn next(&self) -> Option<Pending> {
        loop {
            let (taken, ended) = self.0.take();
            if taken.is_some() || ended {
                return taken;
            }
            self.0.arrived.notified().await;
        }
    }

    /// Waits while more lines may come that can be written together.
    async fn pause(&self) {
        // The end of the pause is the usual case.
        let _ = timeout(PAUSE, self.0.urgent.notified()).await;
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        *self.0.lock() = Pending { ended: true, ..Pending::default() };
    }
}

async fn write(
    job: JobId,
    place: HistoryTarget,
    kept: Option<KeptHistory>,
    first: String,
    incoming: Incoming,
) {
    // A job that waits to begin needs no files.
    let has_begun = !first.is_empty() || kept.as_ref().is_some_and(|kept| kept.bytes > 0);
    let mut next = match has_begun {
        true => None,
        false => match incoming.next().await {
            None => return,
            pending => pending,
        },
    };
    let mut lines = Lines::open(&job, kept).await;
    let not_kept = match lines.path {
        Some(_) => {
            lines.write(first).await;
            String::new()
        }
        None => first,
    };
    let queue = incoming.0.clone();
    let mut writer = Writer { job, place, lines, files: None, failed: None, queue };
    writer.begin().await;
    writer.add(&not_kept).await;
    loop {
        let taken = match next.take() {
            None => incoming.next().await,
            pending => pending,
        };
        let Some(Pending { lines: text, keep, close, .. }) = taken else { return };
        writer.write(text).await;
        // Lines that came behind the mark do no harm: what an image does not count is cut off.
        if !keep.is_empty() && writer.lines.sync().await {
            // A caller may have given up.
            for tell in keep {
                let _ = tell.send(());
            }
        }
        let Some(tell) = close else {
            incoming.pause().await;
            continue;
        };
        writer.finish().await;
        // Who waited may have given up.
        let _ = tell.send(());
        return;
    }
}

/// What writes a history.
struct Writer {
    job: JobId,
    place: HistoryTarget,
    lines: Lines,
    /// Absent while they cannot be written.
    files: Option<Files>,
    /// When that was tried last.
    failed: Option<Instant>,
    queue: Arc<Queue>,
}

impl Writer {
    /// Makes the files, with all lines that are kept.
    async fn begin(&mut self) {
        let _turn = turn(&WRITING).await;
        let begun = match Files::begin(&self.job, self.place.clone()).await {
            Ok(mut files) => self.lines.copy(&mut files).await.map(|()| files),
            Err(error) => Err(error),
        };
        match begun {
            Ok(mut files) => {
                files.writer.rest();
                self.files = Some(files);
                if self.failed.take().is_some() {
                    self.queue.trouble(None);
                    tracing::info!(job = %self.job, "the history of a job is written again");
                }
            }
            Err(error) => self.lose(&error),
        }
    }

    fn lose(&mut self, error: &FsError) {
        let job = &self.job;
        if self.failed.is_none() {
            tracing::warn!(%job, %error, "the history of a job cannot be written; it is tried again");
        }
        self.files = None;
        self.failed = Some(Instant::now());
        self.queue.trouble(Some(error.to_string().into()));
    }

    async fn add(&mut self, text: &str) {
        let _turn = turn(&WRITING).await;
        if let Some(files) = &mut self.files
            && let Err(error) = files.write(text).await
        {
            self.lose(&error);
        }
    }

    async fn write(&mut self, text: String) {
        self.add(&text).await;
        self.lines.write(text).await;
        let is_due = self.failed.is_some_and(|failed| failed.elapsed() >= RETRY_PAUSE);
        if is_due && self.can_begin_again() {
            self.begin().await;
        }
    }

    /// Whether all lines are kept, so that nothing is lost with the files.
    fn can_begin_again(&self) -> bool {
        self.lines.path.is_some()
    }

    /// Completes the files, and moves them to where they stay.
    async fn finish(mut self) {
        for _ in 0..LAST_TRIES {
            if self.files.is_some() || !self.can_begin_again() {
                break;
            }
            sleep(LAST_PAUSE).await;
            self.begin().await;
        }
        let Some(files) = self.files.take() else {
            tracing::error!(job = %self.job, "a job has no history");
            return;
        };
        match files.finish().await {
            Ok(()) => {}
            Err(error) => {
                self.queue.trouble(Some(error.to_string().into()));
                tracing::error!(job = %self.job, %error, "the history of a job is not where it should be");
            }
        }
    }
}

/// The lines that the service keeps. After an error there are none, and a restart has no image to resume from.
struct Lines {
    job: JobId,
    path: Option<PathBuf>,
}

impl Lines {
    async fn open(job: &JobId, kept: Option<KeptHistory>) -> Lines {
        let mut lines = Lines { job: job.clone(), path: None };
        let Some(kept) = kept else { return lines };
        let options = File::options().write(true).create(true).truncate(false).clone();
        let path = kept.path.clone();
        let opened = lines.blocking(move || {
            let file = descriptors::patiently(|| options.open(&kept.path))?;
            if file.metadata()?.len() < kept.bytes {
                tracing::warn!(path = %kept.path.display(), "the kept history of a job is not whole");
            }
            file.set_len(kept.bytes)
        });
        lines.path = opened.await.map(|()| path);
        lines
    }

    async fn write(&mut self, text: String) {
        if !text.is_empty() {
            self.on(move |mut file| file.write_all(text.as_bytes())).await;
        }
    }

    /// Whether all lines are durable now.
    async fn sync(&mut self) -> bool {
        self.on(|file| file.sync_data()).await;
        self.path.is_some()
    }

    /// Does something with the file, which is open only meanwhile.
    async fn on(&mut self, act: impl FnOnce(File) -> io::Result<()> + Send + 'static) {
        let Some(path) = self.path.take() else { return };
        let file = path.clone();
        let done = self.blocking(move || {
            let open = || File::options().append(true).open(&file);
            act(descriptors::patiently(open)?)
        });
        self.path = done.await.map(|()| path);
    }

    /// Copies all lines into the files of the history.
    async fn copy(&mut self, files: &mut Files) -> Result<(), FsError> {
        let mut at = 0;
        while let Some(path) = self.path.take() {
            let file = path.clone();
            let read = self.blocking(move || read_piece(&file, at));
            let Some(piece) = read.await else { break };
            self.path = Some(path);
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            files.write_bytes(&piece).await?;
        }
        Ok(())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let _turn = turn(&KEEPING).await;
        let done = tokio::task::spawn_blocking(work).await;
        let error = match done {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(job = %self.job, error, "cannot keep the history of a job for a restart");
        None
    }
}

fn read_piece(path: &Path, at: u64) -> io::Result<Vec<u8>> {
    let mut file = descriptors::patiently(|| File::open(path))?;
    let mut piece = Vec::with_capacity(PIECE);
    file.seek(SeekFrom::Start(at))?;
    Read::take(&file, PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece)
}

/// The files of a history while they are written.
struct Files {
    system: Arc<dyn FileSystem>,
    directory: FsPath,
    names: [String; 2],
    writer: Box<dyn FileWriter>,
    place: HistoryTarget,
}

impl Files {
    async fn begin(job: &JobId, place: HistoryTarget) -> Result<Files, FsError> {
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
        self.write_bytes(text.as_bytes()).await
    }

    async fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), FsError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.writer.write(bytes).await?;
        self.writer.flush().await?;
        self.writer.rest();
        Ok(())
    }

    /// Moves both files to where those of jobs that are over lie, and copies them for the user. A copy that
    /// cannot be made is logged.
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
        let written = child(&done, &names[0])?;
        let _turn = turn(&COPYING).await;
        if let Some(copy) = &place.user_copy
            && let Err(error) = copy_for_user(&*system, &written, &place, copy).await
        {
            tracing::warn!(job = names[0], %error, "the user of a job has no copy of its history");
        }
        Ok(())
    }
}

async fn copy_for_user(
    system: &dyn FileSystem,
    written: &FsPath,
    place: &HistoryTarget,
    copy: &UserCopy,
) -> Result<(), FsError> {
    let history = system.open(written).await?;
    let (system, directory) = place.files.as_user(&copy.user, None).resolve(&copy.directory)?;
    copy_file(history, &*system, &child(&directory, &copy.history)?).await?;
    create(&*system, &child(&directory, &copy.conf)?, place.conf.as_bytes()).await
}

/// Ends the history that a lost job tracker of a job has left, and moves it to where those of jobs that
/// are over lie. A part of a line at its end is left out. Returns false if there is none, or only a
/// whole one.
pub(crate) async fn complete(
    files: &FileSystems,
    log_path: &str,
    job: &JobId,
    end: JobEnd,
) -> Result<bool, FsError> {
    let (system, directory) = files.resolve(log_path)?;
    let from = child(&directory, job.as_str())?;
    if system.find(&from).await?.is_none() {
        return Ok(false);
    }
    let done = child(&directory, DONE)?;
    system.mkdirs(&done, Some(0o755)).await?;
    let to = child(&done, job.as_str())?;
    let mut reader = system.open(&from).await?;
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut writer = system.create(&to, options).await?;
    let (mut piece, mut line) = (vec![0; PIECE], Vec::new());
    loop {
        let length = reader.read(&mut piece).await?;
        let read = piece.get(..length).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        match read.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => {
                let (whole, rest) = read.split_at(at + 1);
                line.extend_from_slice(whole);
                writer.write(&line).await?;
                line = rest.to_vec();
            }
            None if line.len() < MAX_LINE => line.extend_from_slice(read),
            None => {}
        }
    }
    writer.write(HistoryRecord::Ended(Box::new(end)).lines(job).as_bytes()).await?;
    writer.close().await?;
    system.set_permission(&to, MODE).await?;
    let conf = format!("{job}_conf.xml");
    let (conf, conf_done) = (child(&directory, &conf)?, child(&done, &conf)?);
    if system.find(&conf).await?.is_some() {
        system.delete(&conf_done, false).await?;
        system.rename(&conf, &conf_done).await?;
    }
    // It goes last: while it is there, all this is done again.
    system.delete(&from, false).await?;
    Ok(true)
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

/// Copies a file, a piece at a time.
async fn copy_file(
    mut from: Box<dyn FileReader>,
    system: &dyn FileSystem,
    path: &FsPath,
) -> Result<(), FsError> {
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut writer = system.create(path, options).await?;
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece).await? {
            0 => break,
            length => writer.write(piece.get(..length).unwrap_or_default()).await?,
        }
    }
    writer.close().await?;
    system.set_permission(path, MODE).await
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;
    use corona_mapreduce::JobState;

    use super::*;
    use crate::submit::submission::tests::submission;

    fn place(root: &std::path::Path, user_copy: Option<UserCopy>) -> HistoryTarget {
        let settings =
            FileSystemSettings { default_fs: "file:///".into(), ..FileSystemSettings::default() };
        HistoryTarget {
            files: Arc::new(FileSystems::new(settings).unwrap()),
            log_path: format!("file:{}", root.join("202611210043.0").display()),
            conf: "<configuration/>".into(),
            user_copy,
        }
    }

    fn kept(root: &std::path::Path, bytes: u64) -> KeptHistory {
        KeptHistory { path: root.join("kept"), bytes }
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
        let mut history = History::begin(
            job.id.clone(),
            place(dir.path(), copy),
            Some(kept(dir.path(), 0)),
            String::new(),
        );
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

    #[tokio::test]
    async fn leftovers_of_a_lost_job_tracker_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let HistoryTarget { files, log_path, .. } = place(dir.path(), None);
        let job = submission(&[], 1).description.id;
        let directory = dir.path().join("202611210043.0");
        std::fs::create_dir_all(&directory).unwrap();
        let (left, done) = (directory.join(job.as_str()), directory.join("done"));
        let whole = format!("{}{}", HistoryRecord::Version.lines(&job), record().lines(&job));
        let long = "x".repeat(PIECE * 2);
        let end = JobEnd::without_counts(JobState::Failed, 9);
        let last = HistoryRecord::Ended(Box::new(end.clone())).lines(&job);
        for (text, expected) in [
            ("Task TASKID=\"t".to_owned(), String::new()),
            (format!("{whole}Task TASKID=\"t"), whole.clone()),
            (format!("{whole}{long}\n"), format!("{whole}{long}\n")),
            (String::new(), String::new()),
        ] {
            std::fs::write(&left, text).unwrap();
            std::fs::write(directory.join(format!("{job}_conf.xml")), "<configuration/>").unwrap();
            assert!(complete(&files, &log_path, &job, end.clone()).await.unwrap());
            let written = std::fs::read_to_string(done.join(job.as_str())).unwrap();
            assert_eq!(written, format!("{expected}{last}"));
            assert!(done.join(format!("{job}_conf.xml")).exists() && !left.exists());
        }
        assert!(!complete(&files, &log_path, &job, end).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_busy_job_are_written_together_and_callers_do_not_wait() {
        let queue = Arc::<Queue>::default();
        let job = submission(&[], 1).description.id;
        let mut history = History { job: job.clone(), queue: queue.clone(), full: false, bytes: 0 };
        let incoming = Incoming(queue);
        let line = record().lines(&job);
        history.record(&record());
        assert_eq!(incoming.next().await.unwrap().lines, line, "the first line is written at once");
        let begun = tokio::time::Instant::now();
        for _ in 0..3 {
            history.record(&record());
        }
        incoming.pause().await;
        assert_eq!(begun.elapsed(), PAUSE);
        assert_eq!(incoming.next().await.unwrap().lines, line.repeat(3));
        let mark = history.mark().unwrap();
        incoming.pause().await;
        assert_eq!(begun.elapsed(), PAUSE, "a caller ends the pause");
        assert_eq!(incoming.next().await.unwrap().keep.len(), 1);
        assert!(!mark.wait_until_safe().await, "nobody has answered");
        drop(incoming);
        history.record(&record());
        assert!(history.mark().is_none());
        history.close().await;
    }

    #[test]
    fn a_user_may_want_the_copy_elsewhere_or_not_at_all() {
        let mut job = submission(&[], 1).description;
        assert_eq!(UserCopy::of(&job, None, "jt", 1), None, "no output, no copy");
        job.output = Some("hdfs://nn/out/".into());
        let copy = UserCopy::of(&job, None, "jt", 1).unwrap();
        assert_eq!((&*copy.user, &*copy.directory), ("alice", "hdfs://nn/out/_logs/history"));
        assert!(copy.history.ends_with("_alice_NA"), "{copy:?}");
        assert_eq!(UserCopy::of(&job, Some("none"), "jt", 1), None);
        let copy = UserCopy::of(&job, Some("/elsewhere"), "jt", 1).unwrap();
        assert_eq!(copy.directory, "/elsewhere/_logs/history");
        job.name = "x".repeat(60).into();
        let copy = UserCopy::of(&job, None, "jt", 1).unwrap();
        assert!(copy.history.ends_with(&format!("_{}", "x".repeat(MAX_NAME))));
    }

    #[tokio::test]
    async fn a_job_whose_history_cannot_be_written_goes_on_and_the_history_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let in_the_way = dir.path().join("202611210043.0");
        std::fs::write(&in_the_way, "a file").unwrap();
        let job = submission(&[], 1).description;
        let kept = kept(dir.path(), 0);
        let mut history = History::begin(
            job.id.clone(),
            place(dir.path(), None),
            Some(kept.clone()),
            String::new(),
        );
        history.record(&record());
        // A restart may have more luck.
        let mark = history.mark().unwrap();
        let lines = record().lines(&job.id);
        assert_eq!(mark.bytes(), lines.len() as u64);
        assert!(mark.wait_until_safe().await);
        assert_eq!(std::fs::read_to_string(kept.path).unwrap(), lines);
        std::fs::remove_file(&in_the_way).unwrap();
        history.close().await;
        let done = in_the_way.join("done").join(job.id.as_str());
        assert_eq!(std::fs::read_to_string(done).unwrap(), lines);
    }

    #[tokio::test]
    async fn a_history_that_cannot_be_written_says_why_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let in_the_way = dir.path().join("202611210043.0");
        std::fs::write(&in_the_way, "a file").unwrap();
        let job = submission(&[], 1).description.id;
        let begin = || {
            let kept = Some(kept(dir.path(), 0));
            let place = place(dir.path(), None);
            let mut history = History::begin(job.clone(), place, kept, String::new());
            history.record(&record());
            (history.standing(), history)
        };
        let (mut standing, history) = begin();
        standing.wait_for(|it| it.trouble.is_some()).await.unwrap();
        let reason = history.close().await.unwrap();
        assert!(reason.contains("202611210043.0"), "{reason}");
        let HistoryStanding { trouble, is_settled, .. } = standing.borrow().clone();
        assert_eq!((trouble, is_settled), (Some(reason), true));
        let (mut standing, history) = begin();
        standing.wait_for(|it| it.trouble.is_some()).await.unwrap();
        std::fs::remove_file(&in_the_way).unwrap();
        assert_eq!(history.close().await, None);
        assert!(standing.borrow().is_settled);
    }

    #[tokio::test]
    async fn a_history_goes_on_from_the_lines_that_an_image_stands_for() {
        let dir = tempfile::tempdir().unwrap();
        let job = submission(&[], 1).description;
        std::fs::write(dir.path().join("kept"), "before the image; after it").unwrap();
        let mut history = History::begin(
            job.id.clone(),
            place(dir.path(), None),
            Some(kept(dir.path(), "before the image; ".len() as u64)),
            "once more; ".into(),
        );
        history.record(&record());
        history.close().await;
        let expected = format!("before the image; once more; {}", record().lines(&job.id));
        let done = dir.path().join("202611210043.0/done").join(job.id.as_str());
        assert_eq!(std::fs::read_to_string(done).unwrap(), expected);
        assert_eq!(std::fs::read_to_string(dir.path().join("kept")).unwrap(), expected);
    }

    #[tokio::test]
    async fn without_a_place_for_its_lines_a_history_is_written_and_has_no_mark() {
        let dir = tempfile::tempdir().unwrap();
        let job = submission(&[], 1).description;
        let kept = KeptHistory { path: dir.path().join("missing/kept"), bytes: 0 };
        let place = place(dir.path(), None);
        let mut history = History::begin(job.id.clone(), place, Some(kept), String::new());
        history.record(&record());
        assert!(!history.mark().unwrap().wait_until_safe().await);
        history.close().await;
        let done = dir.path().join("202611210043.0/done").join(job.id.as_str());
        assert_eq!(std::fs::read_to_string(done).unwrap(), record().lines(&job.id));
    }
}
