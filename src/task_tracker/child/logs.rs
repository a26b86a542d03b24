//! Logs of tasks: `<hadoop.log.dir>/userlogs/<attempt>/{stdout,stderr,syslog,...}`.
//!
//! A Java task writes `log.index` beside them, which lists its own part of each file. Its content
//! is not trusted to be well formed. Everything here blocks. Spec: mapreduce/04 §4.11.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, fallocate};

use crate::ids::AttemptId;
use corona_config::TaskLogSettings;

/// The longest `log.index` that is read.
const MAX_INDEX_BYTES: u64 = 64 << 10;
/// The unit in which most file systems free space.
const BLOCK_BYTES: u64 = 4096;
/// The most directories of logs that one scan reads.
const MAX_DIRECTORIES: usize = 1_000_000;

/// The logs of a task tracker's tasks.
#[derive(Clone, Debug)]
pub struct Logs {
    settings: TaskLogSettings,
}

/// One of the logs of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// Its log.
    Syslog,
    /// The profile of its virtual machine, if it is profiled.
    Profile,
    /// The output of its debug script.
    Debugout,
}

/// A part of a file.
#[derive(Debug)]
pub struct LogPart {
    /// The file, at the beginning of the part.
    pub file: File,
    /// The length of the part in bytes. The file may end before.
    pub bytes: u64,
}

/// The place of a log, and a part of it.
struct LogRange {
    path: PathBuf,
    start: u64,
    bytes: u64,
}

impl LogFile {
    /// All, in the order in which they are shown.
    pub const ALL: [LogFile; 5] =
        [LogFile::Stdout, LogFile::Stderr, LogFile::Syslog, LogFile::Debugout, LogFile::Profile];

    /// The name of the file in the attempt's directory of logs.
    pub fn file_name(self) -> &'static str {
        match self {
            LogFile::Stdout => "stdout",
            LogFile::Stderr => "stderr",
            LogFile::Syslog => "syslog",
            LogFile::Profile => "profile.out",
            LogFile::Debugout => "debugout",
        }
    }

    /// The log that a request names, in any case.
    pub fn of_filter(filter: &str) -> Option<Self> {
        let filter_of = |log: &LogFile| log.file_name().trim_end_matches(".out");
        LogFile::ALL.into_iter().find(|log| filter_of(log).eq_ignore_ascii_case(filter))
    }
}

impl Logs {
    /// As configured.
    pub fn new(settings: TaskLogSettings) -> Self {
        Logs { settings }
    }

    /// `hadoop.log.dir`
    pub fn log_dir(&self) -> &Path {
        &self.settings.log_dir
    }

    /// The directory of an attempt's logs.
    pub fn dir(&self, attempt: &AttemptId) -> PathBuf {
        self.userlogs().join(attempt.as_str())
    }

    /// Makes the directory, without which a task does not start.
    pub fn create(&self, attempt: &AttemptId) -> io::Result<PathBuf> {
        let dir = self.dir(attempt);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// `hadoop.log.dir` of job trackers that this task tracker starts.
    pub fn job_tracker_log_dir(&self) -> PathBuf {
        self.settings.log_dir.join("jtlogs")
    }

    /// Makes the directory of a job tracker's logs.
    pub fn create_for_job_tracker(&self, attempt: &AttemptId) -> io::Result<PathBuf> {
        let dir = self.job_tracker_logs().join(attempt.as_str());
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// A part of a log, from `start` to before `end`. Negative numbers count from the end: -1 is
    /// the end. A deleted beginning is left out.
    pub fn open(
        &self,
        attempt: &AttemptId,
        log: LogFile,
        is_cleanup: bool,
        start: i64,
        end: i64,
    ) -> io::Result<LogPart> {
        let place = self.place(attempt, log, is_cleanup)?;
        let position = |asked: i64| match u64::try_from(asked) {
            Ok(asked) => asked.min(place.bytes),
            Err(_) => place.bytes.saturating_add(1).saturating_sub(asked.unsigned_abs()),
        };
        let (start, end) = (position(start), position(end).min(place.bytes));
        let (start, end) = (place.start.saturating_add(start), place.start.saturating_add(end));
        let mut file = open_file(&place.path)?;
        let mut first = start;
        if end > start {
            // An error means that everything was deleted.
            first = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(start)).unwrap_or(start);
        }
        file.seek(SeekFrom::Start(first))?;
        Ok(LogPart { file, bytes: end.saturating_sub(first) })
    }

    /// Deletes the older half of a running task's output if it exceeds the limit. The task
    /// continues to append at the same position. Returns the logs that were shortened.
    pub fn limit_output(&self, attempt: &AttemptId) -> io::Result<Vec<LogFile>> {
        let mut cut = Vec::new();
        let Some(max) = self.settings.max_output_bytes else { return Ok(cut) };
        for log in [LogFile::Stdout, LogFile::Stderr] {
            let path = self.dir(attempt).join(log.file_name());
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata,
                _ => continue,
            };
            // Cut parts occupy no space any more.
            if metadata.blocks().saturating_mul(512) <= max {
                continue;
            }
            let file = fs::OpenOptions::new().write(true).open(&path)?;
            // Half a block would stay, as zeros.
            let gone = metadata.len().saturating_sub(max / 2) / BLOCK_BYTES * BLOCK_BYTES;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if gone == 0 || fallocate(&file, hole, 0, gone).is_err() {
                // Not every file system can; then the whole log is deleted.
                file.set_len(0)?;
            }
            cut.push(log);
        }
        Ok(cut)
    }

    /// Deletes logs that are too old, and where there are still too many, the older half. Those of
    /// attempts that are running stay. Returns the number of deleted logs.
    pub fn clean_up(&self, now: SystemTime, is_running: &dyn Fn(&str) -> bool) -> usize {
        let roots = [self.userlogs(), self.job_tracker_logs()];
        let mut deleted = 0;
        for root in roots {
            let mut dirs = directories(&root, is_running);
            dirs.sort();
            let old = dirs.partition_point(|(modified, _)| {
                now.duration_since(*modified).is_ok_and(|age| age > self.settings.retain)
            });
            let left = dirs.len() - old;
            let too_many = if left > self.settings.max_attempts { left / 2 } else { 0 };
            for (_, path) in dirs.iter().take(old + too_many) {
                match fs::remove_dir_all(path) {
                    Ok(()) => deleted += 1,
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "cannot delete logs");
                    }
                }
            }
        }
        deleted
    }

    fn userlogs(&self) -> PathBuf {
        self.settings.log_dir.join("userlogs")
    }

    /// Job trackers that a task tracker has started write theirs here.
    fn job_tracker_logs(&self) -> PathBuf {
        self.job_tracker_log_dir().join("userlogs")
    }

    /// The place that the index names; without an index, the file in the attempt's directory, then
    /// a job tracker's.
    fn place(&self, attempt: &AttemptId, log: LogFile, is_cleanup: bool) -> io::Result<LogRange> {
        if let Some(place) = self.in_index(attempt, log, is_cleanup)? {
            return Ok(place);
        }
        let name = log.file_name();
        let own = self.dir(attempt).join(name);
        let path = match fs::symlink_metadata(&own) {
            Ok(_) => own,
            Err(_) => self.job_tracker_logs().join(attempt.as_str()).join(name),
        };
        let bytes = fs::symlink_metadata(&path)?.len();
        Ok(LogRange { path, start: 0, bytes })
    }

    fn in_index(
        &self,
        attempt: &AttemptId,
        log: LogFile,
        is_cleanup: bool,
    ) -> io::Result<Option<LogRange>> {
        let name = if is_cleanup { "log.index.cleanup" } else { "log.index" };
        let file = match open_file(&self.dir(attempt).join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut index = String::new();
        file.take(MAX_INDEX_BYTES).read_to_string(&mut index)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged"));
        let mut lines = index.lines();
        let location = lines.next().and_then(|line| line.strip_prefix("LOG_DIR:"));
        let location: AttemptId =
            location.and_then(|location| location.parse().ok()).ok_or_else(damaged)?;
        if matches!(log, LogFile::Profile | LogFile::Debugout) {
            let path = self.dir(attempt).join(log.file_name());
            let bytes = fs::symlink_metadata(&path)?.len();
            return Ok(Some(LogRange { path, start: 0, bytes }));
        }
        let path = self.dir(&location).join(log.file_name());
        let part = lines.find_map(|line| line.strip_prefix(log.file_name())?.strip_prefix(':'));
        let (start, bytes) = part.and_then(|part| part.split_once(' ')).ok_or_else(damaged)?;
        let start = start.parse().map_err(|_| damaged())?;
        let bytes = match bytes.trim().parse::<i64>().map_err(|_| damaged())? {
            // The file is still written to.
            -1 => fs::symlink_metadata(&path)?.len(),
            bytes => u64::try_from(bytes).map_err(|_| damaged())?,
        };
        Ok(Some(LogRange { path, start, bytes }))
    }
}

/// Opens a file, and nothing else: a pipe would hold us up, a link could lead anywhere.
fn open_file(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    File::open(path)
}

/// The directories in a directory, with the times at which something was last made in them.
fn directories(root: &Path, is_running: &dyn Fn(&str) -> bool) -> Vec<(SystemTime, PathBuf)> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let idle = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| !is_running(name)));
    let with_time = idle.filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_dir)?;
        Some((metadata.modified().ok()?, entry.path()))
    });
    with_time.take(MAX_DIRECTORIES).collect()
}

#[cfg(test)]
pub(in super::super) mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    pub(in super::super::super) fn logs(root: &Path) -> Logs {
        Logs::new(TaskLogSettings {
            log_dir: root.to_owned(),
            task_log_dir: None,
            retain: Duration::from_secs(3600),
            cleanup_interval: Duration::from_secs(60),
            max_attempts: 4,
            max_output_bytes: Some(1 << 20),
        })
    }

    fn attempt(number: u32) -> AttemptId {
        format!("attempt_20.1_0001_m_{number:06}_0").parse().unwrap()
    }

    fn read(logs: &Logs, log: LogFile, start: i64, end: i64) -> io::Result<String> {
        let part = logs.open(&attempt(0), log, false, start, end)?;
        let mut text = String::new();
        part.file.take(part.bytes).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn parts_of_a_log() {
        let root = tempfile::tempdir().unwrap();
        let logs = logs(root.path());
        let dir = logs.create(&attempt(0)).unwrap();
        assert!(dir.ends_with("userlogs/attempt_20.1_0001_m_000000_0"));
        fs::write(dir.join("stdout"), "0123456789").unwrap();
        for (start, end, expected) in [
            (0, -1, "0123456789"),
            (0, 4, "0123"),
            (7, 100, "789"),
            (-4, -1, "789"),
            (-100, -8, "012"),
            (0, -100, ""),
            (8, 2, ""),
            (20, 30, ""),
            (i64::MIN, i64::MAX, "0123456789"),
        ] {
            assert_eq!(
                read(&logs, LogFile::Stdout, start, end).unwrap(),
                expected,
                "{start} {end}"
            );
        }
        assert_eq!(
            read(&logs, LogFile::Stderr, 0, -1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let job_tracker = root.path().join("jtlogs/userlogs").join(attempt(0).as_str());
        fs::create_dir_all(&job_tracker).unwrap();
        fs::write(job_tracker.join("stderr"), "jt").unwrap();
        assert_eq!(read(&logs, LogFile::Stderr, 0, -1).unwrap(), "jt");
        std::os::unix::fs::symlink("/etc/passwd", dir.join("syslog")).unwrap();
        assert!(read(&logs, LogFile::Syslog, 0, -1).is_err());
    }

    #[test]
    fn the_index_says_which_part() {
        let root = tempfile::tempdir().unwrap();
        let logs = logs(root.path());
        let dir = logs.create(&attempt(0)).unwrap();
        let other = logs.create(&attempt(1)).unwrap();
        fs::write(other.join("stdout"), "before-mine-after").unwrap();
        fs::write(other.join("syslog"), "more lines").unwrap();
        fs::write(dir.join("debugout"), "debug").unwrap();
        let index = format!("LOG_DIR:{}\nstdout:7 4\nstderr:0 0\nsyslog:5 -1\n", attempt(1));
        fs::write(dir.join("log.index"), &index).unwrap();
        assert_eq!(read(&logs, LogFile::Stdout, 0, -1).unwrap(), "mine");
        assert_eq!(read(&logs, LogFile::Stdout, -3, -1).unwrap(), "ne");
        assert_eq!(read(&logs, LogFile::Syslog, 0, -1).unwrap(), "lines");
        assert_eq!(read(&logs, LogFile::Debugout, 0, -1).unwrap(), "debug");
        let cleanup = logs.open(&attempt(0), LogFile::Stdout, true, 0, -1);
        assert_eq!(cleanup.unwrap_err().kind(), io::ErrorKind::NotFound);
        for damaged in [
            "",
            "LOG_DIR:../../x\nstdout:0 1\n",
            "nonsense",
            &index.replace("7 4", "x 4"),
            &index.replace("7 4", "7"),
            &index.replace("7 4", "7 -2"),
            &index.replace("stdout", "x"),
        ] {
            fs::write(dir.join("log.index"), damaged).unwrap();
            let error = read(&logs, LogFile::Stdout, 0, -1).unwrap_err();
            assert_eq!(error.to_string(), "log.index is damaged", "{damaged}");
        }
    }

    #[test]
    fn a_flood_is_cut_and_the_newest_lines_stay() {
        let root = tempfile::tempdir().unwrap();
        let logs = logs(root.path());
        let dir = logs.create(&attempt(0)).unwrap();
        let path = dir.join("stdout");
        let mut task = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        fs::write(dir.join("stderr"), "small").unwrap();
        task.write_all(&vec![b'x'; 3 << 20]).unwrap();
        task.write_all(b"last line").unwrap();
        task.sync_all().unwrap();
        assert_eq!(logs.limit_output(&attempt(0)).unwrap(), [LogFile::Stdout]);
        task.write_all(b", and one more").unwrap();
        task.sync_all().unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() * 512 <= 1 << 20);
        assert_eq!(logs.limit_output(&attempt(0)).unwrap(), []);
        let text = read(&logs, LogFile::Stdout, 0, -1).unwrap();
        assert!(text.ends_with(", and one more") && text.len() <= 1 << 20, "{}", text.len());
        assert!(!text.contains('\0'));
        assert_eq!(read(&logs, LogFile::Stderr, 0, -1).unwrap(), "small");
    }

    #[test]
    fn old_logs_go_and_those_of_running_attempts_stay() {
        let root = tempfile::tempdir().unwrap();
        let logs = logs(root.path());
        let now = SystemTime::now() + Duration::from_secs(86400);
        let age = |number: u32, seconds: u64| {
            let dir = logs.create(&attempt(number)).unwrap();
            File::open(dir).unwrap().set_modified(now - Duration::from_secs(seconds)).unwrap();
        };
        age(0, 4000);
        age(1, 4000);
        age(2, 3000);
        let running = attempt(1);
        let is_running = |name: &str| name == running.as_str();
        let left = || fs::read_dir(root.path().join("userlogs")).unwrap().count();
        assert_eq!(logs.clean_up(now, &is_running), 1);
        assert!(!logs.dir(&attempt(0)).exists() && logs.dir(&running).exists());
        for number in 3..7 {
            age(number, 100 - u64::from(number));
        }
        assert_eq!(left(), 6);
        assert_eq!(logs.clean_up(now, &is_running), 2);
        assert!(!logs.dir(&attempt(2)).exists() && !logs.dir(&attempt(3)).exists());
        assert_eq!((left(), logs.clean_up(now, &is_running)), (4, 0));
    }
}
