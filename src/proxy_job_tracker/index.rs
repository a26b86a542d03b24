//! The index of finished jobs: what is listed and searched. It is built in the background from the
//! directory of the sessions, and stored, so that a restart has it at once.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use corona_filesystem::{FileStatus, FileSystem, FsError, FsPath, Listing};
use corona_mapreduce::counters::JOB_GROUP;
use corona_mapreduce::history_reader::Records;
use corona_mapreduce::{Counters, JobHistory, JobId, history::JobState};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::ProxyContext;
use super::histories::{
    DONE, conf_name, is_session_dir, job_of_classic, pool_of, read_part, status,
};

/// A history up to this size is read as a whole, in bytes.
const SMALL: u64 = 256 << 10;
/// Of a longer one, its first and last bytes.
const HEAD: u64 = 16 << 10;
const TAIL: u64 = 128 << 10;
/// Bytes of a configuration in which the pool is looked for.
const MAX_CONF: u64 = 1 << 20;
/// Histories that are read at a time. Each takes a thread, and what the thread allocates.
const READERS: usize = 4;
/// After so many new jobs the index is published: a list is useful before the index is complete.
const BATCH: usize = 2000;
/// Reported pools that are kept until their jobs are in the index, the latest ones.
const MAX_POOLS: usize = 10_000;
/// The longest id of a job, and the longest name of a pool, in a report, in bytes.
const MAX_NAME: usize = 256;
/// The form of the stored index.
const FORM: u32 = 3;
/// The largest stored index that is read, in bytes.
const MAX_STORED: u64 = 1 << 30;

/// One job in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) id: Box<str>,
    pub(super) name: Box<str>,
    pub(super) user: Box<str>,
    pub(super) pool: Box<str>,
    /// None for one whose end is not in its history.
    pub(super) state: Option<JobState>,
    pub(super) submit_ms: i64,
    pub(super) launch_ms: i64,
    pub(super) finish_ms: i64,
    pub(super) maps: u32,
    pub(super) reduces: u32,
    /// Attempts that failed, without those that were killed; of a job that did not succeed, tasks that
    /// failed.
    pub(super) failed_maps: u32,
    pub(super) failed_reduces: u32,
    /// The directory of its history; empty for one of a classic job tracker.
    pub(super) directory: Box<str>,
    /// The name of the file of a classic job tracker; empty where the id is the name.
    pub(super) file: Box<str>,
    pub(super) is_done: bool,
    bytes: u64,
    modified_ms: i64,
}

impl Entry {
    /// The name of its state for people and for programs.
    pub(super) fn state_name(&self) -> &'static str {
        state_name(self.state)
    }
}

/// The name of a state for people and for programs.
pub(super) fn state_name(state: Option<JobState>) -> &'static str {
    match state {
        Some(JobState::Succeeded) => "succeeded",
        Some(JobState::Failed) => "failed",
        Some(JobState::Killed) => "killed",
        _ => "incomplete",
    }
}

/// What is looked for. Empty texts match everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    /// In the id, name or user.
    pub(super) text: String,
    pub(super) user: String,
    /// A part of the name.
    pub(super) name: String,
    pub(super) pool: String,
    pub(super) state: String,
    /// Submitted at or after, in milliseconds since the Unix epoch.
    pub(super) from_ms: Option<i64>,
    /// Submitted before.
    pub(super) until_ms: Option<i64>,
}

impl Query {
    fn wants(&self, entry: &Entry) -> bool {
        let has = |text: &str, part: &str| part.is_empty() || contains(text, part);
        let is = |text: &str, wanted: &str| wanted.is_empty() || text == wanted;
        let pool = &*self.pool;
        is(&entry.user, &self.user)
            && is(entry.state_name(), &self.state)
            && (is(&entry.pool, pool) || entry.pool.split('.').any(|part| part == pool))
            && self.from_ms.is_none_or(|from| entry.submit_ms >= from)
            && self.until_ms.is_none_or(|until| entry.submit_ms < until)
            && has(&entry.name, &self.name)
            && (self.text.is_empty()
                || contains(&entry.id, &self.text)
                || contains(&entry.name, &self.text)
                || contains(&entry.user, &self.text))
    }
}

/// Whether a text has a part, whatever the case of its ASCII letters.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let Some(first) = part.first() else { return true };
    let mut places =
        memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text);
    places.any(|at| {
        text.get(at..at + part.len()).is_some_and(|found| found.eq_ignore_ascii_case(part))
    })
}

/// All jobs, the last submitted first.
pub(super) type Jobs = Arc<Vec<Arc<Entry>>>;

/// The index, as pages see it.
#[derive(Debug, Default)]
pub(super) struct Index {
    jobs: Mutex<Jobs>,
    /// The pools of jobs, as their job trackers have reported them, until the index has them.
    pools: Mutex<VecDeque<(Box<str>, Box<str>)>>,
    /// When the last search ended, in milliseconds since the Unix epoch; 0: none has.
    pub(super) searched_ms: AtomicI64,
    /// Whether the last search could not read everything.
    pub(super) has_failed: AtomicBool,
    /// Jobs for which there was no room.
    pub(super) left_out: AtomicU64,
    /// Attempts to read a history that failed.
    pub(super) unreadable: AtomicU64,
    /// Histories, and other entries of their directories, that the last search could not read.
    pub(super) unreadable_now: AtomicU64,
}

impl Index {
    pub(super) fn jobs(&self) -> Jobs {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The jobs that match.
    pub(super) fn find(&self, query: &Query) -> Vec<Arc<Entry>> {
        self.jobs().iter().filter(|entry| query.wants(entry)).cloned().collect()
    }

    /// A job tracker has reported in which pool a job was. Its configuration need not name one.
    pub(super) fn note_pool(&self, job: &str, pool: &str) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = job.len() <= MAX_NAME && (1..=MAX_NAME).contains(&pool.len());
        if fits && job.parse::<JobId>().is_ok() {
            pools.truncate(MAX_POOLS - 1);
            pools.push_front((job.into(), pool.into()));
        }
    }

    /// A job.
    pub(super) fn job(&self, id: &str) -> Option<Arc<Entry>> {
        self.jobs().iter().find(|entry| &*entry.id == id).cloned()
    }

    fn publish<'a>(&self, entries: impl Iterator<Item = &'a Arc<Entry>>) {
        let mut jobs: Vec<Arc<Entry>> = entries.cloned().collect();
        jobs.sort_by(|a, b| (b.submit_ms, &b.id).cmp(&(a.submit_ms, &a.id)));
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(jobs);
    }
}

/// The directory of sessions that stands for the directories of classic job trackers.
const CLASSIC: &str = "";
/// Stands for the directory of all sessions itself.
const ROOT: &str = "/";
/// After this time without a change a directory is not listed again until it changes.
const SETTLED_MS: i64 = 3000;

/// The histories in a directory, by job.
type Found = HashMap<String, (FileStatus, bool)>;

/// What is known of a directory before its histories are read.
struct Search {
    found: Found,
    /// When the directory of ended jobs has changed, if there is one.
    done_ms: Option<i64>,
    /// That directory has not changed since it was listed.
    is_known: bool,
    /// Entries that cannot be looked at.
    unreadable: u64,
}

/// The index on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    form: u32,
    /// The directories of the sessions and of classic job trackers.
    root: String,
    entries: Vec<Arc<Entry>>,
    /// Directories of finished jobs that need not be listed again while they have this time.
    listed: Vec<(String, i64)>,
}

/// Builds the index.
pub(super) struct Builder {
    shared: Arc<ProxyContext>,
    file: PathBuf,
    entries: HashMap<Box<str>, Arc<Entry>>,
    listed: HashMap<String, i64>,
    /// Histories that cannot be read, by directory.
    unreadable: HashMap<String, u64>,
    /// Jobs that are new since the index was published.
    unpublished: usize,
}

/// Searches for new histories until the program ends.
pub(super) async fn keep(shared: Arc<ProxyContext>) {
    let interval = shared.settings.scan_interval;
    let mut builder = Builder::open(shared).await;
    loop {
        builder.search().await;
        tokio::time::sleep(interval).await;
    }
}

impl Builder {
    async fn open(shared: Arc<ProxyContext>) -> Builder {
        let file = shared.settings.data_dir.join("history.index");
        let root = shared.histories.roots();
        let at = file.clone();
        let stored = tokio::task::spawn_blocking(move || load(&at, &root)).await.ok().flatten();
        let (entries, listed) = stored.map(|it| (it.entries, it.listed)).unwrap_or_default();
        let entries: HashMap<_, _> =
            entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
        if !entries.is_empty() {
            tracing::info!(jobs = entries.len(), "the stored index of finished jobs is loaded");
            shared.index.publish(entries.values());
        }
        Builder {
            shared,
            file,
            entries,
            listed: listed.into_iter().collect(),
            unreadable: HashMap::new(),
            unpublished: 0,
        }
    }

    async fn search(&mut self) {
        let mut changed = 0;
        let searched = self.search_all(&mut changed).await;
        changed += self.take_pools();
        let index = &self.shared.index;
        let before = index.has_failed.swap(searched.is_err(), Ordering::Relaxed);
        match searched {
            Ok(()) => index.searched_ms.store(super::now().0, Ordering::Relaxed),
            Err(error) if !before => {
                tracing::warn!(%error, "the histories cannot be searched; trying again later");
            }
            Err(_) => {}
        }
        if changed > 0 {
            index.publish(self.entries.values());
            self.store().await;
        }
    }

    /// Gives jobs the pools that were reported. Returns how many have changed.
    fn take_pools(&mut self) -> usize {
        let mut pools = self.shared.index.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let before = pools.len();
        // The history of a job may appear after the report.
        pools.retain(|(job, pool)| match self.entries.get_mut(job) {
            Some(entry) if entry.is_done => {
                if entry.pool.is_empty() {
                    Arc::make_mut(entry).pool = pool.clone();
                }
                false
            }
            _ => true,
        });
        before - pools.len()
    }

    async fn search_all(&mut self, changed: &mut usize) -> Result<(), FsError> {
        // What cannot be read keeps nothing else from being searched.
        let sessions = self.search_sessions(changed).await;
        let classic = self.search_classic(changed).await;
        let unreadable = self.unreadable.values().sum();
        self.shared.index.unreadable_now.store(unreadable, Ordering::Relaxed);
        sessions.and(classic)
    }

    async fn search_sessions(&mut self, changed: &mut usize) -> Result<(), FsError> {
        let (system, root) = (self.shared.histories.system(), self.shared.histories.root().clone());
        let Some(listed) = entries(&*system, &root).await? else { return Ok(()) };
        let directories: Vec<FileStatus> = listed
            .entries
            .into_iter()
            .filter(|entry| entry.is_directory && is_session_dir(entry.path.name()))
            .collect();
        let before = self.entries.len();
        // What is known of a directory stays known while it cannot be looked at.
        let is_there = |name: &str| {
            name == CLASSIC
                || directories.iter().any(|entry| entry.path.name() == name)
                || listed.odd.iter().any(|odd| odd.name == name)
        };
        self.entries.retain(|_, entry| is_there(&entry.directory));
        self.listed.retain(|name, _| is_there(name));
        self.unreadable.retain(|name, _| is_there(name));
        self.count_unreadable(ROOT, listed.odd.len() as u64);
        *changed += before - self.entries.len();
        let mut failed = Ok(());
        for directory in &directories {
            if let Err(error) = self.search_session(&system, &root, directory, changed).await {
                failed = Err(error);
            }
        }
        failed
    }

    /// Reads what is new in the directory of some sessions.
    async fn search_session(
        &mut self,
        system: &Arc<dyn FileSystem>,
        root: &FsPath,
        directory: &FileStatus,
        changed: &mut usize,
    ) -> Result<(), FsError> {
        let name = directory.path.name().to_owned();
        let done = directory.path.join(DONE);
        let done_ms = status(&**system, root, &done).await.ok().map(|status| status.modified_ms);
        let list = entries(&**system, &directory.path).await?.unwrap_or_default();
        let mut unreadable = list.odd.len() as u64;
        let is_known = self.listed.get(&name) == Some(&done_ms.unwrap_or(0));
        let mut found = Found::new();
        if done_ms.is_some() && !is_known {
            let done = entries(&**system, &done).await?.unwrap_or_default();
            unreadable += done.odd.len() as u64;
            for file in done.entries {
                found.insert(file.path.name().to_owned(), (file, true));
            }
        }
        for file in list.entries {
            found.entry(file.path.name().to_owned()).or_insert((file, false));
        }
        found.retain(|name, (file, _)| !file.is_directory && name.parse::<JobId>().is_ok());
        let listing = Search { found, done_ms, is_known, unreadable };
        self.take(name, listing, changed).await;
        Ok(())
    }

    /// Reads what is new in the directories of classic job trackers.
    async fn search_classic(&mut self, changed: &mut usize) -> Result<(), FsError> {
        let shared = self.shared.clone();
        let Some(classic) = shared.histories.classic() else { return Ok(()) };
        let mut found = Found::new();
        let (system, done) = &classic.done;
        let done_ms = system.status(done).await.ok().map(|status| status.modified_ms);
        let is_known = self.listed.get(CLASSIC) == Some(&done_ms.unwrap_or(0));
        let mut unreadable = 0;
        let mut add = |list: Option<Listing>, is_done| {
            let list = list.unwrap_or_default();
            unreadable += list.odd.len() as u64;
            for file in list.entries.into_iter().filter(|file| !file.is_directory) {
                if let Some(job) = job_of_classic(file.path.name()) {
                    found.entry(job.to_string()).or_insert((file, is_done));
                }
            }
        };
        if done_ms.is_some() && !is_known {
            add(entries(&**system, done).await?, true);
        }
        let (system, running) = &classic.running;
        add(entries(&**system, running).await?, false);
        let listing = Search { found, done_ms, is_known, unreadable };
        self.take(CLASSIC.to_owned(), listing, changed).await;
        Ok(())
    }

    /// Takes the histories of a directory into the index.
    async fn take(&mut self, name: String, listing: Search, changed: &mut usize) {
        let Search { found, done_ms, is_known, unreadable } = listing;
        let before = self.entries.len();
        self.entries.retain(|id, entry| {
            let stays = entry.is_done && is_known && done_ms.is_some();
            *entry.directory != *name || stays || found.contains_key(&**id)
        });
        *changed += before - self.entries.len();
        let is_new = |(id, (file, is_done)): &(String, (FileStatus, bool))| {
            self.entries.get(&**id).is_none_or(|entry| {
                let known = (entry.bytes, entry.modified_ms, entry.is_done);
                // A finished job's file of the time when it ran is of no interest.
                let is_later = *is_done || !entry.is_done;
                is_later && known != (file.bytes, file.modified_ms, *is_done)
            })
        };
        let new: Vec<(String, (FileStatus, bool))> = found.into_iter().filter(is_new).collect();
        let unreadable = unreadable + self.read(&name, &new, changed).await;
        self.count_unreadable(&name, unreadable);
        // What could not be read is tried again.
        if let Some(done_ms) = done_ms.filter(|_| !is_known && unreadable == 0)
            && super::now().0 - done_ms > SETTLED_MS
        {
            self.listed.insert(name, done_ms);
        }
    }

    fn count_unreadable(&mut self, directory: &str, count: u64) {
        match count {
            0 => self.unreadable.remove(directory),
            some => self.unreadable.insert(directory.to_owned(), some),
        };
    }

    async fn read(
        &mut self,
        directory: &str,
        new: &[(String, (FileStatus, bool))],
        changed: &mut usize,
    ) -> u64 {
        let mut unreadable = 0;
        let mut reading = JoinSet::new();
        let mut waiting = new.iter();
        loop {
            while reading.len() < READERS
                && let Some((id, (file, is_done))) = waiting.next()
            {
                let (system, root) = self.shared.histories.root_of(directory, *is_done);
                let (id, file, is_done) = (id.clone(), file.clone(), *is_done);
                let directory: Box<str> = directory.into();
                reading.spawn(async move {
                    entry(&*system, &root, directory, &id, &file, is_done).await
                });
            }
            let Some(read) = reading.join_next().await else { return unreadable };
            let Ok(Ok(mut entry)) = read else {
                unreadable += 1;
                self.shared.index.unreadable.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let has_room = self.entries.len() < self.shared.settings.max_jobs;
            let before = self.entries.get(&entry.id);
            if has_room || before.is_some() {
                if let Some(before) = before.filter(|_| entry.pool.is_empty()) {
                    entry.pool = before.pool.clone();
                }
                self.entries.insert(entry.id.clone(), Arc::new(entry));
                *changed += 1;
                self.unpublished += 1;
                if self.unpublished >= BATCH {
                    self.unpublished = 0;
                    self.shared.index.publish(self.entries.values());
                }
            } else {
                self.shared.index.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes the index. A failure costs only the time to build it again.
    async fn store(&self) {
        let stored = Stored {
            form: FORM,
            root: self.shared.histories.roots(),
            entries: self.entries.values().cloned().collect(),
            listed: self.listed.iter().map(|(name, at)| (name.clone(), *at)).collect(),
        };
        let file = self.file.clone();
        let written = tokio::task::spawn_blocking(move || write(&file, &stored)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "cannot store the index of finished jobs (corona.pjt.data.dir)");
        }
    }
}

fn write(file: &Path, stored: &Stored) -> std::io::Result<()> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    let new = file.with_extension("new");
    // Piece by piece: the whole would be in memory twice.
    let mut out = BufWriter::new(fs::File::create(&new)?);
    postcard::to_io(stored, &mut out).map_err(std::io::Error::other)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    fs::rename(&new, file)
}

/// The stored index, if there is one of this form and directory.
fn load(file: &Path, root: &str) -> Option<Stored> {
    let length = fs::metadata(file).ok()?.len();
    if length > MAX_STORED {
        return None;
    }
    let bytes = fs::read(file).ok()?;
    // The number of the form comes first in every form.
    match postcard::take_from_bytes::<u32>(&bytes) {
        Ok((form, _)) if form != FORM => {
            tracing::info!(
                "the stored index of finished jobs has form {form}, and this version reads {FORM}; building it again"
            );
            return None;
        }
        _ => {}
    }
    let stored: Result<Stored, _> = postcard::from_bytes(&bytes);
    match stored {
        Ok(stored) => (stored.root == root).then_some(stored),
        Err(error) => {
            tracing::warn!(%error, "the stored index of finished jobs is damaged; building it again");
            None
        }
    }
}

/// All entries of a directory; none if it does not exist.
async fn entries(system: &dyn FileSystem, path: &FsPath) -> Result<Option<Listing>, FsError> {
    const MOST: usize = 1_000_000;
    match system.list_all(path, MOST).await {
        Ok(listing) => Ok(Some(listing)),
        Err(error) if error.kind == corona_filesystem::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what the index keeps of a job.
async fn entry(
    system: &dyn FileSystem,
    root: &FsPath,
    directory: Box<str>,
    id: &str,
    file: &FileStatus,
    is_done: bool,
) -> Result<Entry, FsError> {
    status(system, root, &file.path).await?;
    let mut history = JobHistory::default();
    let mut take_all = |bytes: &[u8], mut records: Records| {
        records.push(bytes, &mut |record| history.take_job_only(record));
        records.finish(&mut |record| history.take_job_only(record));
        history.has_ended()
    };
    if file.bytes <= SMALL {
        take_all(&read_part(system, &file.path, 0, SMALL).await?, Records::new());
    } else {
        take_all(&read_part(system, &file.path, 0, HEAD).await?, Records::new());
        let tail = read_part(system, &file.path, file.bytes - TAIL, TAIL).await?;
        let has_ended = take_all(&tail, Records::in_the_middle());
        if !has_ended && is_done {
            // The end may stand before the last records.
            const MORE: u64 = 8 << 20;
            let from = file.bytes.saturating_sub(MORE);
            let tail = read_part(system, &file.path, from, MORE).await?;
            take_all(&tail, Records::in_the_middle());
        }
    }
    let conf = file.path.parent().map(|parent| parent.join(&conf_name(file.path.name(), id)));
    let conf = match conf {
        Some(conf) if status(system, root, &conf).await.is_ok() => {
            read_part(system, &conf, 0, MAX_CONF).await.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    // The end of a job that failed or was killed counts no attempts; its counters count failed tasks.
    let counters = Counters::of_text(&history.counters[2]).unwrap_or_default();
    // A history counts killed attempts among the failed ones. Spec: mapreduce/08.
    let failed = |ended: u64, killed: u64, counter: &str| {
        let tasks = counters.get(JOB_GROUP, counter).unwrap_or_default();
        number(ended.saturating_sub(killed).max(u64::try_from(tasks).unwrap_or_default()))
    };
    let short = |text: &str| text.chars().take(200).collect::<String>().into_boxed_str();
    Ok(Entry {
        id: id.into(),
        name: short(&history.name),
        user: short(&history.user),
        pool: pool_of(&conf).unwrap_or_default().into(),
        state: history.state.filter(|_| history.has_ended()),
        submit_ms: history.submit_ms,
        launch_ms: history.launch_ms,
        finish_ms: history.finish_ms,
        maps: number(history.maps),
        reduces: number(history.reduces),
        failed_maps: failed(history.failed_maps, history.killed_maps, "NUM_FAILED_MAPS"),
        failed_reduces: failed(
            history.failed_reduces,
            history.killed_reduces,
            "NUM_FAILED_REDUCES",
        ),
        file: if file.path.name() == id { "" } else { file.path.name() }.into(),
        directory,
        is_done,
        bytes: file.bytes,
        modified_ms: file.modified_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, user: &str, name: &str, pool: &str, submit_ms: i64) -> Arc<Entry> {
        Arc::new(Entry {
            id: id.into(),
            name: name.into(),
            user: user.into(),
            pool: pool.into(),
            state: Some(JobState::Succeeded),
            submit_ms,
            launch_ms: 0,
            finish_ms: 0,
            maps: 1,
            reduces: 0,
            failed_maps: 0,
            failed_reduces: 0,
            directory: "1.0".into(),
            file: "".into(),
            is_done: true,
            bytes: 1,
            modified_ms: 1,
        })
    }

    #[test]
    fn jobs_are_found_by_all_that_they_have_and_the_last_comes_first() {
        let index = Index::default();
        let all = [
            entry("job_1.1_0001", "alice", "Word Count", "ads.hourly", 10),
            entry("job_1.2_0001", "bob", "sort", "default.bob", 20),
        ];
        index.publish(all.iter());
        let found = |query: Query| -> Vec<String> {
            index.find(&query).iter().map(|entry| entry.id.to_string()).collect()
        };
        let both = ["job_1.2_0001", "job_1.1_0001"];
        let query = Query::default;
        assert_eq!(found(query()), both);
        for (query, expected) in [
            (Query { user: "alice".into(), ..query() }, &both[1..]),
            (Query { name: "word c".into(), ..query() }, &both[1..]),
            (Query { name: "COUNT".into(), ..query() }, &both[1..]),
            (Query { name: "counts".into(), ..query() }, &[]),
            (Query { text: "1.2_".into(), ..query() }, &both[..1]),
            (Query { pool: "hourly".into(), ..query() }, &both[1..]),
            (Query { pool: "default.bob".into(), ..query() }, &both[..1]),
            (Query { state: "failed".into(), ..query() }, &[]),
            (Query { state: "succeeded".into(), ..query() }, &both[..]),
            (Query { from_ms: Some(11), ..query() }, &both[..1]),
            (Query { until_ms: Some(20), ..query() }, &both[1..]),
        ] {
            assert_eq!(found(query.clone()), expected, "{query:?}");
        }
    }

    #[test]
    fn pools_that_are_reported_without_a_history_are_forgotten_in_the_end() {
        let index = Index::default();
        for number in 0..MAX_POOLS + 7 {
            index.note_pool(&format!("job_1.{number}_0001"), "g.p");
        }
        for (job, pool) in
            [("nonsense", "g.p"), ("job_1.1_0001", ""), ("job_1.1_0001", &"x".repeat(300))]
        {
            index.note_pool(job, pool);
        }
        let pools = index.pools.lock().unwrap();
        let last = format!("job_1.{}_0001", MAX_POOLS + 6);
        assert_eq!((pools.len(), &*pools[0].0), (MAX_POOLS, &*last));
    }

    #[test]
    fn a_stored_index_reads_back_and_a_damaged_one_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pjt/history.index");
        let entries = vec![entry("job_1.1_0001", "alice", "w", "", 10)];
        let listed = vec![("1.0".to_owned(), 5)];
        let stored = Stored { form: FORM, root: "file:/h".into(), entries, listed };
        write(&file, &stored).unwrap();
        let read = load(&file, "file:/h").unwrap();
        assert_eq!((read.entries, read.listed), (stored.entries, stored.listed));
        assert!(load(&file, "file:/other").is_none());
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        assert!(load(&file, "file:/h").is_none());
        fs::write(&file, [&[FORM as u8 + 1], &bytes[1..]].concat()).unwrap();
        assert!(load(&file, "file:/h").is_none());
    }
}
