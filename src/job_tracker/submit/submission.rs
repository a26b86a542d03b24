//! A job as its client left it in the system directory: its configuration and its splits, read and
//! checked. The files are read with rights that the client does not have, so links are refused, and sizes are
//! bounded. Spec: mapreduce/05 §5.1, mapreduce/07 §7.3.

use std::path::Path;
use std::sync::Arc;

use corona_config::{ConfigErrors, JobConf, JobTrackerServiceSettings, SiteProperties, keys};
use corona_filesystem::{ErrorKind, FileSystems, FsError};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::writables as wire;
use corona_mapreduce::settings::{NO_POOL_GROUP, pool_of_job};
use corona_mapreduce::{JobId, JobSettings, Split};
use corona_model::types::{PoolName, SessionPriority};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use corona_job_engine::JobSpec;
use corona_job_engine::parent::ParentSettings;

/// The largest `job.xml`, in bytes.
pub(crate) const MAX_CONF_BYTES: u64 = 16 << 20;
/// Its name, and that of the split file, in the system directory and here.
pub(crate) const CONF: &str = "job.xml";
pub(crate) const SPLITS: &str = "job.split";
/// How long other hosts than those that failed are waited for, in milliseconds.
const EXCLUSION_WAIT_MS: i64 = 3_000;
/// The most hosts of a split that are looked at; a split of many blocks may name more.
const MAX_HOSTS: usize = 100;

/// What does not change of a job, and is not the engine's business.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The job's id, which this job tracker gave out.
    pub(crate) id: JobId,
    /// Its name for people.
    pub(crate) name: Arc<str>,
    /// The user whose job it is.
    pub(crate) user: Arc<str>,
    /// The queue that clients see.
    pub(crate) queue: Arc<str>,
    /// Where its configuration is, as task trackers fetch it.
    pub(crate) conf: Arc<str>,
    /// Its page.
    pub(crate) url: Arc<str>,
    /// The pool that it asks for.
    pub(crate) pool: PoolName,
    /// The priority that it began with.
    pub(crate) priority: SessionPriority,
    /// Whom to notify of its end, and how often.
    pub(crate) end_notice: Option<EndNotice>,
    /// The directory of its output, if it has one.
    pub(crate) output: Option<Arc<str>>,
}

impl Description {
    /// Of a job of which only the id is known.
    pub(crate) fn of_lost(id: JobId) -> Description {
        Description {
            id,
            name: "".into(),
            user: "".into(),
            queue: "".into(),
            conf: "".into(),
            url: "".into(),
            pool: PoolName::new(NO_POOL_GROUP, "defaultpool"),
            priority: SessionPriority::Normal,
            end_notice: None,
            output: None,
        }
    }
}

/// Who wants to be notified of the end of a job. Spec: mapreduce/07 §7.9.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndNotice {
    /// The address, with `$jobId` and `$jobStatus` in it.
    pub(crate) url: String,
    /// Further tries.
    pub(crate) retries: u32,
    /// The pause between them, in milliseconds.
    pub(crate) pause_ms: u64,
}

/// Why a job is refused. The text is for its user.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    /// Its configuration cannot be read.
    #[error("job.xml cannot be used: {0}")]
    Conf(#[from] ConfigErrors),
    /// Its split file cannot be read.
    #[error("the split file cannot be used: {0}")]
    Splits(#[from] DecodeError),
    /// It has too many tasks.
    #[error("{id} has {tasks} tasks; at most {most} are allowed (corona.jt.max.tasks.per.job)")]
    TooManyTasks {
        /// The job's id.
        id: JobId,
        /// How many.
        tasks: usize,
        /// The limit.
        most: usize,
    },
    /// Its tasks want too much memory. Spec: mapreduce/09 §C.
    #[error(
        "{key} asks for a heap of {mib} MiB; at most {most} MiB are allowed \
         (mapred.child.java.max.memory.mb)"
    )]
    Heap {
        /// Which options.
        key: &'static str,
        /// How much they ask for.
        mib: u64,
        /// The limit.
        most: u64,
    },
}

/// Bounds for jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_tasks: usize,
    pub(crate) max_heap_mib: u64,
}

impl Bounds {
    pub(crate) fn of(settings: &JobTrackerServiceSettings) -> Bounds {
        Bounds { max_tasks: settings.max_tasks, max_heap_mib: settings.max_java_heap_mib }
    }
}

/// A job that can run.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) description: Description,
    pub(crate) spec: JobSpec,
    pub(crate) files: SubmittedFiles,
}

/// The files of a job, beside what its engine knows of them.
#[derive(Debug)]
pub(crate) struct SubmittedFiles {
    pub(crate) splits: SplitStore,
    pub(crate) conf: JobConf,
}

impl Submission {
    #[allow(clippy::too_many_arguments, reason = "what a job consists of")]
    /// Reads the job's configuration at `job_xml` and the bytes of its split file. `conf` is where
    /// task trackers find the configuration, `pages` the address before a page of a job.
    pub(crate) fn read(
        id: JobId,
        user: &str,
        site: &SiteProperties,
        job_xml: &Path,
        split_file: Vec<u8>,
        conf_uri: &str,
        pages: &str,
        bounds: Bounds,
    ) -> Result<Submission, Refused> {
        let conf = JobConf::read(site, job_xml)?;
        check_heaps(&conf, bounds.max_heap_mib)?;
        let (splits, of_engine) = SplitStore::read(split_file)?;
        let reduces = count(&conf, &keys::JOB_REDUCES);
        let tasks = of_engine.len().saturating_add(reduces as usize);
        if tasks > bounds.max_tasks {
            return Err(Refused::TooManyTasks { id, tasks, most: bounds.max_tasks });
        }
        let queue: Arc<str> = conf.text(&keys::JOB_QUEUE).into();
        let description = Description {
            name: conf.text(&keys::JOB_NAME).into(),
            user: user.into(),
            conf: conf_uri.into(),
            url: format!("{pages}jobdetails.jsp?jobid={id}").into(),
            pool: pool_of_job(&conf, user, &queue),
            priority: priority(&conf.text(&keys::JOB_PRIORITY)).unwrap_or_default(),
            end_notice: end_notice(&conf),
            output: output(&conf).map(Into::into),
            queue,
            id: id.clone(),
        };
        let spec = JobSpec {
            id,
            name: description.name.clone(),
            user: description.user.clone(),
            conf: description.conf.clone(),
            tracker: "null:null:null".into(),
            splits: of_engine,
            reduces,
            settings: JobSettings::of(&conf).limited(&JobSettings::of(&JobConf::of_site(site))),
            racks: Vec::new(),
        };
        Ok(Submission { description, spec, files: SubmittedFiles { splits, conf } })
    }
}

/// Where the job's output goes. A relative directory starts at the one that its client worked in.
pub(crate) fn output(conf: &JobConf) -> Option<String> {
    let given = |name| conf.get(name).filter(|dir: &String| !dir.is_empty());
    let dir = given("mapred.output.dir")?;
    let first = dir.split('/').next().unwrap_or_default();
    let is_relative = !first.is_empty() && !first.contains(':');
    Some(match given("mapred.working.dir").filter(|_| is_relative) {
        Some(working) => format!("{}/{dir}", working.trim_end_matches('/')),
        None => dir,
    })
}

/// The longest pause between two notices of the end of a job: its directories are kept as long.
const MOST_PAUSE_MS: i64 = 10 * 60 * 1000;

fn end_notice(conf: &JobConf) -> Option<EndNotice> {
    let pause_ms = conf.number(&keys::JOB_END_PAUSE).unwrap_or(0);
    Some(EndNotice {
        url: conf.text_if_set(&keys::JOB_END_URL)?,
        retries: count(conf, &keys::JOB_END_RETRIES).min(100),
        pause_ms: pause_ms.clamp(0, MOST_PAUSE_MS).unsigned_abs(),
    })
}

/// A whole number of a job's configuration, or the default of its key: from 0 to `u32::MAX`.
pub(crate) fn count(conf: &JobConf, key: &keys::Key) -> u32 {
    u32::try_from(conf.number(key).unwrap_or(0).max(0)).unwrap_or(u32::MAX)
}

/// A priority by its name on the wire.
pub(crate) fn priority(name: &str) -> Option<SessionPriority> {
    SessionPriority::ALL.into_iter().find(|priority| priority.name() == name)
}

/// Spec: mapreduce/05 §5.1, mapreduce/09 §C.
fn check_heaps(conf: &JobConf, most: u64) -> Result<(), Refused> {
    for key in
        [&keys::JOB_JAVA_OPTIONS, &keys::JOB_MAP_JAVA_OPTIONS, &keys::JOB_REDUCE_JAVA_OPTIONS]
    {
        let options = conf.text(key);
        if let Some(mib) = heap_mib(&options).filter(|mib| *mib > most) {
            return Err(Refused::Heap { key: key.name, mib, most });
        }
    }
    Ok(())
}

/// The first `-Xmx` of Java options, in MiB.
fn heap_mib(options: &str) -> Option<u64> {
    let value = options.split_whitespace().find_map(|option| option.strip_prefix("-Xmx"))?;
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    Some(match value.strip_prefix(digits).unwrap_or_default() {
        "k" | "K" => number >> 10,
        "m" | "M" => number,
        "g" | "G" => number.saturating_mul(1024),
        _ => number >> 20,
    })
}

/// The splits of a job: the bytes of its split file, and where each split lies.
#[derive(Debug, Default)]
pub(crate) struct SplitStore {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl SplitStore {
    /// Reads a split file, once; the part for the engine comes beside it. Errors: the file is no split file.
    pub(crate) fn read(bytes: Vec<u8>) -> Result<(SplitStore, Vec<Split>), DecodeError> {
        let mut reader = Reader::new(&bytes);
        let count = wire::SplitFile::begin(&mut reader)?;
        let mut places = Vec::with_capacity(count);
        let mut splits = Vec::with_capacity(count);
        // Blocks lie on few hosts: each name is kept once.
        let mut names = std::collections::BTreeSet::<Arc<str>>::new();
        let mut name = |host: String| match names.get(host.as_str()) {
            Some(known) => known.clone(),
            None => {
                let host: Arc<str> = host.into();
                names.insert(host.clone());
                host
            }
        };
        for _ in 0..count {
            let start = reader.position();
            let split = wire::RawSplit::decode(&mut reader)?;
            places.push((start, reader.position()));
            let hosts = split.hosts.into_iter().take(MAX_HOSTS).map(&mut name).collect();
            splits.push(Split { length: split.length, hosts });
        }
        Ok((SplitStore { bytes, places }, splits))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// What a map reads.
    pub(crate) fn get(&self, map: u32) -> Option<wire::Split> {
        let (start, end) = *self.places.get(map as usize)?;
        let raw = wire::RawSplit::decode(&mut Reader::new(self.bytes.get(start..end)?)).ok()?;
        Some(wire::Split { class: raw.class, data: raw.data })
    }
}

/// The settings of a job that is to be run by a remote job tracker; none for one that is not. At
/// most `max_state_bytes` of state are kept for it.
pub(crate) fn parent_settings(
    conf: &JobConf,
    maps: u32,
    reduces: u32,
    max_state_bytes: usize,
) -> Option<ParentSettings> {
    let threshold = conf.number(&keys::JOB_REMOTE_THRESHOLD);
    let is_large = threshold.is_some_and(|threshold| i64::from(maps) > threshold);
    if !is_large && !conf.is_true(&keys::JOB_FORCE_REMOTE) {
        return None;
    }
    // A job that would start over needs another id, which its users do not know.
    let restores = conf.is_true(&keys::JOB_REMOTE_RESTORES);
    let start_s = conf.number(&keys::JOB_REMOTE_START_TIMEOUT).unwrap_or(0);
    Some(ParentSettings {
        maps,
        reduces,
        max_restarts: if restores { count(conf, &keys::JOB_REMOTE_RESTARTS) } else { 0 },
        start_attempts: count(conf, &keys::JOB_REMOTE_STARTS),
        start_timeout_ms: start_s.saturating_mul(1000),
        exclude_failed: conf.is_true(&keys::JOB_REMOTE_EXCLUDES),
        exclusion_wait_ms: EXCLUSION_WAIT_MS,
        max_state_bytes,
    })
}

/// A whole file that a client has put into the directory of its job, of at most so many bytes.
pub(crate) async fn read_staged(
    files: &FileSystems,
    directory: &str,
    name: &str,
    most: u64,
) -> Result<Vec<u8>, FsError> {
    let (files, directory) = files.resolve(directory)?;
    let path = directory.join(name);
    let mut reader = files.open_staged(&directory, name).await?;
    let length = reader.length();
    if length > most {
        let message = format!("it has {length} bytes; at most {most} are allowed");
        return Err(FsError::new(ErrorKind::Invalid, "read", &path, message));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    reader.read_exact_at(0, &mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use corona_config::Source;

    use super::*;

    pub(crate) fn split(number: usize, hosts: &[&str]) -> wire::RawSplit {
        wire::RawSplit {
            class: "test.Split".into(),
            length: 100 - number as i64,
            data: vec![number as u8; number],
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        }
    }

    pub(crate) fn split_file(splits: Vec<wire::RawSplit>) -> Vec<u8> {
        let mut writer = corona_hadoop::io::Writer::new(1 << 20);
        wire::SplitFile { splits }.encode(&mut writer);
        writer.finish().unwrap()
    }

    /// A `job.xml` with these properties.
    pub(crate) fn write_conf(path: &Path, properties: &[(&str, &str)]) {
        let property = |(name, value): &(&str, &str)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        };
        let properties: String = properties.iter().map(property).collect();
        std::fs::write(path, format!("<configuration>{properties}</configuration>")).unwrap();
    }

    /// The configuration of a job with these properties.
    pub(crate) fn conf(properties: &[(&str, &str)]) -> JobConf {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        write_conf(&path, properties);
        let site = Source::default().load_job_tracker().unwrap().site;
        JobConf::read(&site, &path).unwrap()
    }

    fn read(properties: &[(&str, &str)], splits: Vec<u8>) -> Result<Submission, Refused> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        write_conf(&path, properties);
        let site = Source::default().load_job_tracker().unwrap().site;
        let bounds = Bounds { max_tasks: 10, max_heap_mib: 4096 };
        let id = "job_202611210043.1_0001".parse().unwrap();
        Submission::read(
            id,
            "alice",
            &site,
            &path,
            splits,
            "file:/j/job.xml",
            "http://jt:1/",
            bounds,
        )
    }

    #[test]
    fn notices_of_the_end_have_bounds() {
        let notice = |retries, pause| {
            end_notice(&conf(&[
                ("job.end.notification.url", "http://h/"),
                ("job.end.retry.attempts", retries),
                ("job.end.retry.interval", pause),
            ]))
            .map(|notice| (notice.retries, notice.pause_ms))
        };
        assert_eq!(end_notice(&conf(&[])), None);
        for (retries, pause, expected) in [
            ("3", "30000", (3, 30_000)),
            ("-1", "-1", (0, 30_000)),
            ("1000000", "3600000", (100, 600_000)),
        ] {
            assert_eq!(notice(retries, pause), Some(expected));
        }
    }

    #[test]
    fn a_relative_output_directory_starts_where_the_client_worked() {
        for (working, dir, expected) in [
            ("file:/home/alice", "words", Some("file:/home/alice/words")),
            ("hdfs://n:1/user/alice/", "a/b", Some("hdfs://n:1/user/alice/a/b")),
            ("/home/alice", "/out", Some("/out")),
            ("/home/alice", "file:/out", Some("file:/out")),
            ("", "words", Some("words")),
            ("/home/alice", "", None),
        ] {
            let conf = conf(&[("mapred.working.dir", working), ("mapred.output.dir", dir)]);
            assert_eq!(output(&conf).as_deref(), expected, "{working} {dir}");
        }
    }

    /// A job of so many maps.
    pub(crate) fn submission(properties: &[(&str, &str)], maps: usize) -> Submission {
        read(properties, split_file((0..maps).map(|number| split(number, &["a"])).collect()))
            .unwrap()
    }

    #[test]
    fn splits_are_read_once_and_given_to_their_maps() {
        let splits = vec![split(1, &["a", "b"]), split(2, &[]), split(3, &["b", "b"])];
        let submission = read(&[("mapred.reduce.tasks", "2")], split_file(splits)).unwrap();
        let lengths: Vec<i64> = submission.spec.splits.iter().map(|split| split.length).collect();
        assert_eq!(lengths, [99, 98, 97]);
        let hosts: Vec<&str> = submission.spec.splits[2].hosts.iter().map(|host| &**host).collect();
        assert_eq!(hosts, ["b", "b"]);
        assert_eq!(submission.files.splits.get(1).unwrap().data, [2, 2]);
        assert_eq!(submission.files.splits.get(3), None);
        assert_eq!(submission.spec.reduces, 2);
    }

    #[test]
    fn files_that_are_none_are_refused() {
        assert!(matches!(read(&[], b"SPX\0\0".to_vec()), Err(Refused::Splits(_))));
        let whole = split_file(vec![split(1, &["a"])]);
        for cut in 0..whole.len() {
            assert!(matches!(read(&[], whole[..cut].to_vec()), Err(Refused::Splits(_))), "{cut}");
        }
        // A number that no file of this size can hold.
        let many = [&b"SPL\0"[..], &[0x8c, 0x7f, 0xff, 0xff, 0xff]].concat();
        assert!(matches!(read(&[], many), Err(Refused::Splits(_))));
        let error = read(&[("mapred.reduce.tasks", "10")], whole.clone()).unwrap_err();
        assert!(error.to_string().contains("has 11 tasks; at most 10"), "{error}");
        let heap = ("mapred.map.child.java.opts", "-server -Xmx5g -Xmx1m");
        let error = read(&[heap], whole).unwrap_err();
        assert!(error.to_string().contains("map.child.java.opts asks for a heap of 5120 MiB"));
    }

    #[test]
    fn heaps_are_read_as_java_reads_them() {
        for (options, mib) in [
            ("-Xmx200m", Some(200)),
            ("-ea -Xmx2G", Some(2048)),
            ("-Xmx2097152", Some(2)),
            ("-Xmx4096k", Some(4)),
            ("-Xmx", None),
            ("", None),
        ] {
            assert_eq!(heap_mib(options), mib, "{options}");
        }
    }

    #[test]
    fn a_job_lands_in_the_pool_that_it_names() {
        // Spec: mapreduce/05 §5.2, mapreduce/07 §7.7.
        let splits = || split_file(vec![]);
        for (properties, expected) in [
            (&[][..], "default.alice"),
            (&[("mapred.fairscheduler.pool", "ads.hourly")], "ads.hourly"),
            (&[("mapred.fairscheduler.pool", "hourly")], "default.hourly"),
            (&[("mapred.job.queue.name", "ads.q")], "ads.q"),
            (&[("mapred.job.queue.name", "default")], "default.alice"),
            (&[("mapred.fairscheduler.pool", "p"), ("mapred.job.queue.name", "q")], "default.p"),
            (
                &[("mapred.fairscheduler.poolnameproperty", "group.name"), ("group.name", "staff")],
                "default.staff",
            ),
            (&[("mapred.fairscheduler.poolnameproperty", "not.set")], "default.defaultpool"),
        ] {
            let description = read(properties, splits()).unwrap().description;
            assert_eq!(description.pool.to_string(), expected, "{properties:?}");
        }
    }

    fn of_parent(properties: &[(&str, &str)], maps: u32) -> Option<ParentSettings> {
        parent_settings(&conf(properties), maps, 2, 1)
    }

    #[test]
    fn large_and_forced_jobs_are_run_on_nodes() {
        const THRESHOLD: &str = "mapred.coronajobtracker.remote.threshold";
        const FORCE: (&str, &str) = ("mapred.coronajobtracker.forceremote", "true");
        const RESTARTS: (&str, &str) = ("mapred.coronajobtracker.restart.count", "3");
        assert_eq!(of_parent(&[], 1_000_000), None);
        assert_eq!(of_parent(&[(THRESHOLD, "10")], 10), None);
        let large = of_parent(&[(THRESHOLD, "10")], 11).unwrap();
        let expected = ParentSettings {
            maps: 11,
            reduces: 2,
            max_restarts: 0,
            start_attempts: 4,
            start_timeout_ms: 60_000,
            exclude_failed: true,
            exclusion_wait_ms: EXCLUSION_WAIT_MS,
            max_state_bytes: 1,
        };
        assert_eq!(large, expected);
        assert_eq!(of_parent(&[FORCE, RESTARTS], 0).unwrap().max_restarts, 3);
        let no_state = ("mapred.coronajobtracker.remote.state.restoring", "false");
        assert_eq!(of_parent(&[FORCE, RESTARTS, no_state], 0).unwrap().max_restarts, 0);
    }
}
