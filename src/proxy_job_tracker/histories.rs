//! Where histories of jobs are, and their contents. Only files of the form that job trackers give them,
//! in the directory of the sessions, are opened. Spec: mapreduce/08 §8.1, §8.8.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corona_config::{ClassicHistories, ProxyJobTrackerSettings};
use corona_filesystem::{ErrorKind, FileStatus, FileSystem, FileSystems, FsError, FsPath};
use corona_mapreduce::history_reader::{AttemptCounters, Record, Records};
use corona_mapreduce::{JobHistory, JobId};
use corona_model::types::session_directory;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// Files that are read at a time. Each may wait for a file system that does not answer.
const READERS: usize = 8;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// The largest configuration that is shown, in bytes.
const MAX_CONF: u64 = 16 << 20;
/// The directory of the histories of jobs that have ended.
pub(super) const DONE: &str = "done";

/// A piece of a file, or why there is no further one.
pub(super) type Piece = std::io::Result<hyper::body::Bytes>;

/// Why a history cannot be shown.
#[derive(Debug, Error)]
pub(super) enum HistoryError {
    /// There is none.
    #[error("there is no history of this job")]
    NotFound,
    /// Too many are being read.
    #[error("too many files of histories are being read")]
    Busy,
    /// The file system did not answer in time.
    #[error("the file system of the histories does not answer in time")]
    Late,
    /// The file system refused.
    #[error("{0}")]
    Files(#[from] FsError),
}

/// The file of a history: which directory of sessions, which job, and whether it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistoryFile {
    /// Such as `202611210043.0`; empty for the history of a classic job tracker.
    pub(super) directory: String,
    pub(super) job: JobId,
    pub(super) is_done: bool,
    /// The name that a classic job tracker gave the file; empty where the job's id is the name.
    pub(super) name: Box<str>,
}

/// A history in its file system.
struct Located {
    system: Arc<dyn FileSystem>,
    /// The configured directory that it is in.
    root: FsPath,
    path: FsPath,
    /// The job's configuration beside it.
    conf: FsPath,
}

/// The directories of classic job trackers. Spec: mapreduce/08 §8.1.
pub(super) struct ClassicDirectories {
    /// Histories of jobs that run.
    pub(super) running: (Arc<dyn FileSystem>, FsPath),
    /// Histories of jobs that have ended.
    pub(super) done: (Arc<dyn FileSystem>, FsPath),
}

/// The job of a classic job tracker's history: `<host>_<start>_<job>_<user>_<name>`.
pub(super) fn job_of_classic(name: &str) -> Option<JobId> {
    let mut parts = name.splitn(6, '_');
    let (_host, start) = (parts.next()?, parts.next()?);
    let is_history = !name.ends_with("_conf.xml") && !name.ends_with(".recover");
    let is_start = !start.is_empty() && start.bytes().all(|byte| byte.is_ascii_digit());
    let (prefix, tracker, number) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().filter(|_| is_history && is_start && prefix == "job")?;
    format!("job_{tracker}_{number}").parse().ok()
}

/// The name of the configuration beside a history of this name.
pub(super) fn conf_name(file: &str, job: &str) -> String {
    let before = file.find(job).and_then(|at| file.get(..at)).unwrap_or_default();
    format!("{before}{job}_conf.xml")
}

/// The contents of a history.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) file: HistoryFile,
    pub(super) path: String,
    pub(super) history: JobHistory,
    /// Records that could not be read.
    pub(super) damaged: u64,
    /// The rest of the file was not read, since it is too long.
    pub(super) is_cut: bool,
    bytes: u64,
    modified_ms: i64,
}

/// Finds and reads histories.
pub(super) struct Histories {
    system: Arc<dyn FileSystem>,
    root: FsPath,
    classic: Option<ClassicDirectories>,
    per_dir: i32,
    patience: Duration,
    max_bytes: u64,
    turns: Arc<Semaphore>,
    kept: Mutex<VecDeque<Arc<Contents>>>,
    most_kept: usize,
}

impl Histories {
    /// # Errors
    /// The directory of the sessions is in no file system that can be used.
    pub(super) fn new(
        files: &FileSystems,
        settings: &ProxyJobTrackerSettings,
    ) -> Result<Histories, FsError> {
        let (system, root) = files.resolve(&settings.sessions_dir)?;
        let classic = match &settings.classic_histories {
            Some(ClassicHistories { running, done }) => Some(ClassicDirectories {
                running: files.resolve(running)?,
                done: files.resolve(done)?,
            }),
            None => None,
        };
        Ok(Histories {
            system,
            root,
            classic,
            per_dir: settings.sessions_per_dir,
            patience: settings.file_timeout,
            max_bytes: settings.max_history_bytes,
            turns: Arc::new(Semaphore::new(READERS)),
            kept: Mutex::default(),
            most_kept: settings.cached_histories,
        })
    }

    pub(super) fn system(&self) -> Arc<dyn FileSystem> {
        self.system.clone()
    }

    pub(super) fn root(&self) -> &FsPath {
        &self.root
    }

    /// The configured directories, as text.
    pub(super) fn roots(&self) -> String {
        match &self.classic {
            None => self.root.to_string(),
            Some(classic) => format!("{}, {}, {}", self.root, classic.done.1, classic.running.1),
        }
    }

    /// The configured directory of histories in a directory of sessions, or of classic job trackers if
    /// that is empty.
    pub(super) fn root_of(&self, directory: &str, is_done: bool) -> (Arc<dyn FileSystem>, FsPath) {
        match self.classic.as_ref().filter(|_| directory.is_empty()) {
            None => (self.system.clone(), self.root.clone()),
            Some(classic) if is_done => classic.done.clone(),
            Some(classic) => classic.running.clone(),
        }
    }

    pub(super) fn classic(&self) -> Option<&ClassicDirectories> {
        self.classic.as_ref()
    }

    /// Where a file is; none for one of classic job trackers if no directory of theirs is configured.
    fn locate(&self, file: &HistoryFile) -> Option<Located> {
        let (system, root, directory, name) = match &*file.name {
            "" => {
                let directory = self.root.join(&file.directory);
                let directory = if file.is_done { directory.join(DONE) } else { directory };
                (&self.system, &self.root, directory, file.job.as_str())
            }
            name => {
                let classic = self.classic.as_ref()?;
                let (system, directory) =
                    if file.is_done { &classic.done } else { &classic.running };
                (system, directory, directory.clone(), name)
            }
        };
        Some(Located {
            system: system.clone(),
            root: root.clone(),
            path: directory.join(name),
            conf: directory.join(&conf_name(name, file.job.as_str())),
        })
    }

    /// The file that a path names, if it is the history of a job below a configured directory.
    pub(super) fn file_of(&self, path: &str) -> Option<HistoryFile> {
        let own = self.root.root()?;
        let path = FsPath::parse(path).ok()?.qualified(own, "/").ok()?;
        if !path.is_within(&self.root) {
            return self.classic_file_of(&path);
        }
        let rest = path.path().strip_prefix(self.root.path().trim_end_matches('/'))?;
        let parts: Vec<&str> = rest.trim_start_matches('/').split('/').collect();
        let (directory, job, is_done) = match parts[..] {
            [directory, DONE, job] => (directory, job, true),
            [directory, job] => (directory, job, false),
            _ => return None,
        };
        let job = job.parse().ok()?;
        is_session_dir(directory).then(|| HistoryFile {
            directory: directory.to_owned(),
            job,
            is_done,
            name: Box::default(),
        })
    }

    fn classic_file_of(&self, path: &FsPath) -> Option<HistoryFile> {
        let classic = self.classic.as_ref()?;
        let parent = path.parent()?;
        let is_done = parent == classic.done.1;
        // Addresses of configurations name files without their last parts.
        let job =
            job_of_classic(path.name()).or_else(|| job_of_classic(&format!("{}_", path.name())));
        let job = job.filter(|_| is_done || parent == classic.running.1)?;
        Some(HistoryFile { directory: String::new(), job, is_done, name: path.name().into() })
    }

    /// The directory of a job's history, as its session says; none for a job of no session.
    pub(super) fn directory_of(&self, job: &JobId) -> Option<String> {
        session_directory(job.session()?, self.per_dir)
    }

    /// The history of a job in one directory of sessions: that of its end, or else of one that runs, or
    /// whose job tracker died.
    pub(super) async fn find(
        &self,
        directory: &str,
        job: &JobId,
    ) -> Result<Option<HistoryFile>, HistoryError> {
        if !is_session_dir(directory) {
            return Ok(None);
        }
        let (directory, job, name) = (directory.to_owned(), job.clone(), Box::default());
        self.find_file(HistoryFile { directory, job, is_done: true, name }).await
    }

    /// The file of that name, of the job's end or else of one that runs.
    pub(super) async fn find_file(
        &self,
        file: HistoryFile,
    ) -> Result<Option<HistoryFile>, HistoryError> {
        for is_done in [true, false] {
            let file = HistoryFile { is_done, ..file.clone() };
            let Some(Located { system, root, path, .. }) = self.locate(&file) else {
                return Ok(None);
            };
            let found = self.work(async move {
                match status(&*system, &root, &path).await {
                    Ok(status) => Ok(!status.is_directory),
                    Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(error.into()),
                }
            });
            if found.await? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The contents of a history; those in memory unless the file has changed.
    pub(super) async fn read(&self, file: &HistoryFile) -> Result<Arc<Contents>, HistoryError> {
        let at = file.clone();
        let Located { system, root, path, .. } = self.locate(file).ok_or(HistoryError::NotFound)?;
        let kept = self.kept(&path.to_string());
        let most = self.max_bytes;
        let contents = self.work(async move {
            let status = status(&*system, &root, &path).await?;
            if let Some(kept) = kept
                && (kept.bytes, kept.modified_ms) == (status.bytes, status.modified_ms)
            {
                return Ok(kept);
            }
            let mut history = JobHistory::default();
            let mut take = |record: Record<'_>| history.take(record);
            let (damaged, is_cut) = records_of(&*system, &path, most, &mut take).await?;
            Ok(Arc::new(Contents {
                path: path.to_string(),
                file: at,
                history,
                damaged,
                is_cut,
                bytes: status.bytes,
                modified_ms: status.modified_ms,
            }))
        });
        let contents = contents.await?;
        self.keep(contents.clone());
        Ok(contents)
    }

    /// The counters of an attempt or a task, in their text form.
    pub(super) async fn counters(
        &self,
        file: &HistoryFile,
        id: &str,
    ) -> Result<Option<String>, HistoryError> {
        let Located { system, root, path, .. } = self.locate(file).ok_or(HistoryError::NotFound)?;
        let most = self.max_bytes;
        let mut one = AttemptCounters::of(id);
        self.work(async move {
            status(&*system, &root, &path).await?;
            records_of(&*system, &path, most, &mut |record| one.take(record)).await?;
            Ok(one.found)
        })
        .await
    }

    /// The bytes of a history, in pieces, as far as they may be read. Each piece is read in turn with
    /// what others want, so that a slow reader keeps no turn.
    pub(super) async fn pieces(
        self: &Arc<Self>,
        file: &HistoryFile,
    ) -> Result<mpsc::Receiver<Piece>, HistoryError> {
        let Located { system, root, path, .. } = self.locate(file).ok_or(HistoryError::NotFound)?;
        let mut reader = self
            .work(async move {
                status(&*system, &root, &path).await?;
                Ok(system.open(&path).await?)
            })
            .await?;
        let (sender, pieces) = mpsc::channel(1);
        let histories = self.clone();
        tokio::spawn(async move {
            let mut left = histories.max_bytes;
            while left > 0 {
                let read = histories.work(async move {
                    let room = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
                    let mut piece = vec![0; room];
                    let read = reader.read(&mut piece).await?;
                    piece.truncate(read);
                    Ok((reader, piece))
                });
                match read.await {
                    Ok((own, piece)) => {
                        reader = own;
                        left -= piece.len() as u64;
                        if piece.is_empty() || sender.send(Ok(piece.into())).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        // The reader's connection ends with it.
                        let _ = sender.send(Err(std::io::Error::other(error))).await;
                        return;
                    }
                }
            }
        });
        Ok(pieces)
    }

    /// The names and values of a job's configuration.
    pub(super) async fn conf(
        &self,
        file: &HistoryFile,
    ) -> Result<Vec<(String, String)>, HistoryError> {
        let Located { system, root, conf: path, .. } =
            self.locate(file).ok_or(HistoryError::NotFound)?;
        self.work(async move {
            status(&*system, &root, &path).await?;
            let bytes = read_part(&*system, &path, 0, MAX_CONF).await?;
            Ok(properties(&String::from_utf8_lossy(&bytes)))
        })
        .await
    }

    /// Forgets the history of a job that is in memory.
    pub(super) fn forget(&self, job: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|contents| contents.file.job.as_str() != job);
    }

    fn kept(&self, path: &str) -> Option<Arc<Contents>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|contents| contents.path == path).cloned()
    }

    fn keep(&self, contents: Arc<Contents>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.path != contents.path);
        kept.push_front(contents);
        kept.truncate(self.most_kept);
    }

    /// Does work with files, in turn. A caller does not wait longer than configured; the work keeps its
    /// turn until the file system answers, so that one that does not takes a few threads and no more.
    async fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, HistoryError>> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let turn = timeout(self.patience, self.turns.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or(HistoryError::Busy)?;
        let working = tokio::spawn(async move {
            let _turn = turn;
            work.await
        });
        match timeout(self.patience, working).await {
            Ok(Ok(done)) => match done {
                Err(HistoryError::Files(error)) if error.kind == ErrorKind::NotFound => {
                    Err(HistoryError::NotFound)
                }
                done => done,
            },
            Ok(Err(_)) => Err(HistoryError::Busy),
            Err(_) => Err(HistoryError::Late),
        }
    }
}

/// The status of a file below the directory of the sessions. A symbolic link on the way counts as
/// nothing: it may lead elsewhere.
pub(super) async fn status(
    system: &dyn FileSystem,
    root: &FsPath,
    path: &FsPath,
) -> Result<FileStatus, FsError> {
    let not_found = || FsError::new(ErrorKind::NotFound, "open", path, "no such file".to_owned());
    if root.root().is_some_and(|root| root.scheme() == "file") {
        let below = path.path().strip_prefix(root.path()).unwrap_or_default().to_owned();
        let mut at = PathBuf::from(root.path());
        let links = tokio::task::spawn_blocking(move || {
            below.split('/').filter(|part| !part.is_empty()).any(|part| {
                at.push(part);
                fs::symlink_metadata(&at).is_ok_and(|metadata| metadata.is_symlink())
            })
        });
        if links.await.unwrap_or(true) {
            return Err(not_found());
        }
    }
    system.status(path).await
}

/// Hands on the records of a file. Returns how many are damaged, and whether the file is longer than
/// what was read.
async fn records_of(
    system: &dyn FileSystem,
    path: &FsPath,
    most: u64,
    take: &mut (impl FnMut(Record<'_>) + Send),
) -> Result<(u64, bool), FsError> {
    let mut reader = system.open(path).await?;
    let mut records = Records::new();
    let mut buffer = vec![0; PIECE];
    let mut left = most;
    loop {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        let read = match buffer.get_mut(..room) {
            Some(buffer) if room > 0 => reader.read(buffer).await?,
            _ => break,
        };
        if read == 0 {
            break;
        }
        left -= read as u64;
        records.push(buffer.get(..read).unwrap_or_default(), take);
        // Others get their turn between two pieces.
        tokio::task::yield_now().await;
    }
    records.finish(take);
    Ok((records.damaged(), left == 0 && reader.length() > most))
}

/// A part of a file; shorter where the file ends.
pub(super) async fn read_part(
    system: &dyn FileSystem,
    path: &FsPath,
    from: u64,
    most: u64,
) -> Result<Vec<u8>, FsError> {
    let mut reader = system.open(path).await?;
    let length = reader.length().saturating_sub(from).min(most);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    reader.read_exact_at(from, &mut bytes).await?;
    Ok(bytes)
}

/// `<digits>.<digits>`
pub(super) fn is_session_dir(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split_once('.').is_some_and(|(start, number)| is_number(start) && is_number(number))
}

/// The properties in a configuration file, as far as it can be read.
fn properties(xml: &str) -> Vec<(String, String)> {
    let between = |text: &str, tag: &str| -> Option<String> {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let rest = text.split_once(&*open)?.1;
        Some(decoded(rest.split_once(&*close)?.0))
    };
    let parts = xml.split("<property>").skip(1);
    let parts = parts.map(|part| part.split("</property>").next().unwrap_or_default());
    let pairs = parts.filter_map(|part| {
        let name = between(part, "name")?;
        Some((name, between(part, "value").unwrap_or_default()))
    });
    pairs.collect()
}

/// The text of an element.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (entity, behind) = after.split_once(';').unwrap_or((after, ""));
        let code = entity.strip_prefix('#').and_then(|code| match code.strip_prefix('x') {
            Some(code) => u32::from_str_radix(code, 16).ok(),
            None => code.parse().ok(),
        });
        match (entity, code.and_then(char::from_u32)) {
            ("amp", _) => out.push('&'),
            ("lt", _) => out.push('<'),
            ("gt", _) => out.push('>'),
            ("quot", _) => out.push('"'),
            ("apos", _) => out.push('\''),
            (_, Some(character)) => out.push(character),
            _ => {
                out.push('&');
                rest = after;
                continue;
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// The pool that a job's configuration names.
pub(super) fn pool_of(conf: &[u8]) -> Option<String> {
    let name = b"<name>mapred.fairscheduler.pool</name>";
    let at = memchr::memmem::find(conf, name)?;
    let rest = conf.get(at + name.len()..)?;
    let rest = rest.get(..rest.len().min(4096))?;
    let end = memchr::memmem::find(rest, b"</property>").unwrap_or(rest.len());
    let text = String::from_utf8_lossy(rest.get(..end)?);
    let value = text.split_once("<value>")?.1.split_once("</value>")?.0;
    let pool = decoded(value);
    (!pool.is_empty() && pool.len() <= 256).then_some(pool)
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;

    use super::*;

    #[test]
    fn files_of_classic_job_trackers_have_names_with_their_job() {
        let of = |name: &str| job_of_classic(name).map(|job| job.to_string());
        let job = Some("job_202611221033_0008".to_owned());
        for (name, expected) in [
            ("localhost_1795343630800_job_202611221033_0008_root_bad+%22map%22+%3D+a.b", &job),
            ("h_1_job_202611221033_0008_a_b_c_d", &job),
            ("h_1_job_202611221033_0008_a_", &job),
            ("h_1_job_202611221033_0008_conf.xml", &None),
            ("h_1_job_202611221033_0008_a_b.recover", &None),
            ("h_1_job_202611221033_0008", &None),
            ("h_x_job_202611221033_0008_a_b", &None),
            ("h_1_job_.._0008_a_b", &None),
            ("job_202611221049.2_0001", &None),
        ] {
            assert_eq!(of(name), *expected, "{name}");
        }
        assert_eq!(
            conf_name("h_1_job_202611221033_0008_a_b", "job_202611221033_0008"),
            "h_1_job_202611221033_0008_conf.xml"
        );
        assert_eq!(conf_name("job_1.2_0001", "job_1.2_0001"), "job_1.2_0001_conf.xml");
    }

    fn histories(root: &std::path::Path) -> Histories {
        let settings =
            FileSystemSettings { default_fs: "file:///".into(), ..FileSystemSettings::default() };
        let files = FileSystems::new(settings).unwrap();
        let overrides = [("corona.sessions.log.dir".to_owned(), root.display().to_string())];
        let source =
            corona_config::Source { overrides: &overrides, ..corona_config::Source::default() };
        Histories::new(&files, &source.load_proxy_job_tracker().unwrap().settings).unwrap()
    }

    #[tokio::test]
    async fn only_histories_below_the_directory_of_the_sessions_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sessions");
        let done = root.join("202611221049.0/done");
        fs::create_dir_all(&done).unwrap();
        let job = "job_202611221049.2_0001";
        fs::write(done.join(job), "Meta VERSION=\"1\" .\nJob USER=\"alice\" .\n").unwrap();
        let histories = histories(&root);
        let shown = root.display();
        for path in [
            format!("{shown}/202611221049.0/done/{job}"),
            format!("file:{shown}/202611221049.0/done/{job}"),
            format!("file://{shown}/202611221049.0/x/../done/{job}"),
        ] {
            let file = histories.file_of(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(histories.read(&file).await.unwrap().history.user, "alice");
        }
        for path in [
            "/etc/passwd".to_owned(),
            format!("{shown}/../sessions/202611221049.0/done/passwd"),
            format!("{shown}/202611221049.0/done/../../../{job}"),
            format!("{shown}/elsewhere/done/{job}"),
            format!("{shown}x/202611221049.0/done/{job}"),
            format!("hdfs://nn{shown}/202611221049.0/done/{job}"),
        ] {
            assert_eq!(histories.file_of(&path), None, "{path}");
        }
        let id: JobId = job.parse().unwrap();
        assert_eq!(histories.directory_of(&id).as_deref(), Some("202611221049.0"));
        assert!(histories.find("202611221049.0", &id).await.unwrap().unwrap().is_done);
        // A link may lead anywhere.
        let secret = dir.path().join("secret");
        fs::write(&secret, "Job USER=\"root\" .\n").unwrap();
        let other: JobId = "job_202611221049.3_0001".parse().unwrap();
        std::os::unix::fs::symlink(&secret, done.join(other.as_str())).unwrap();
        assert_eq!(histories.find("202611221049.0", &other).await.unwrap(), None);
        let (directory, name) = ("202611221049.0".into(), Box::default());
        let file = HistoryFile { directory, job: other, is_done: true, name };
        assert!(matches!(histories.read(&file).await, Err(HistoryError::NotFound)));
    }

    #[tokio::test]
    async fn a_history_is_read_again_when_it_has_changed_or_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("202611221049.0");
        fs::create_dir_all(&at).unwrap();
        let job = "job_202611221049.2_0001";
        fs::write(at.join(job), "Meta VERSION=\"1\" .\nJob USER=\"a\" .\n").unwrap();
        let histories = histories(dir.path());
        let file = histories.find("202611221049.0", &job.parse().unwrap()).await.unwrap().unwrap();
        let first = histories.read(&file).await.unwrap();
        assert!(Arc::ptr_eq(&first, &histories.read(&file).await.unwrap()));
        histories.forget(job);
        assert!(!Arc::ptr_eq(&first, &histories.read(&file).await.unwrap()));
        fs::write(at.join(job), "Meta VERSION=\"1\" .\nJob USER=\"longer\" .\n").unwrap();
        assert_eq!(histories.read(&file).await.unwrap().history.user, "longer");
    }

    #[test]
    fn properties_are_read_as_far_as_they_go() {
        let xml = "<configuration>\n<property><!--x--><name>a</name><value>&lt;1&gt; &amp;&#65;&x</value></property>\n\
                   <property><name>mapred.fairscheduler.pool</name><value>g.p</value></property><property><name>c";
        let expected = [("a", "<1> &A&x"), ("mapred.fairscheduler.pool", "g.p")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(properties(xml), expected);
        assert_eq!(pool_of(xml.as_bytes()).as_deref(), Some("g.p"));
        assert_eq!(pool_of(b"<name>mapred.fairscheduler.pool</name>"), None);
    }
}
