//! Localisation as a whole, on real directories, with a file system whose calls are counted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::unpack::tests::zip_of;
use super::*;
use crate::deletion::Deletion;
use crate::ids::AttemptId;
use crate::job_files::{Answer, FileStatus, JobFiles, LocalFiles};
use crate::layout;
use crate::local_dirs::LocalDirs;
use crate::local_dirs::tests::settings;
use corona_config::{JobConf, JobFileSettings, LocalSettings, Source};
use corona_net::testing::until;

/// Files of this machine; a copy takes a permit, and the test sets their number.
struct Counted {
    files: LocalFiles,
    fetches: AtomicUsize,
    permits: Semaphore,
}

impl JobFiles for Counted {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        self.files.status(location)
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            self.files.fetch(location, to).await
        })
    }
}

struct TestLocaliser {
    root: TempDir,
    localiser: Localiser,
    files: Arc<Counted>,
}

impl TestLocaliser {
    /// Two local directories; `cache_entries` as configured.
    fn new(permits: usize, cache_entries: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|dir| root.path().join(dir));
        let local = LocalSettings { cache_entries, ..settings(&[&a, &b]) };
        let settings = JobFileSettings {
            system_dir: "/".into(),
            default_fs: "file:///".into(),
            hadoop_command: "hadoop".into(),
            timeout: Duration::from_secs(600),
            max_bytes: 1 << 20,
            max_unpacked_bytes: 1 << 20,
            max_unpacked_entries: 100,
        };
        let files = Arc::new(Counted {
            files: LocalFiles { timeout: settings.timeout, max_bytes: settings.max_bytes },
            fetches: AtomicUsize::new(0),
            permits: Semaphore::new(permits),
        });
        let site = Source::default().load_task_tracker().unwrap().site;
        let deletion = Deletion::start(&local.dirs).unwrap();
        let dirs = Arc::new(LocalDirs::open(&local).unwrap());
        let host = Some("node1".to_owned());
        let localiser = Localiser::new(site, host, &settings, dirs, files.clone(), deletion);
        TestLocaliser { root, localiser, files }
    }

    /// Writes a file and returns its URI.
    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.root.path().join(name);
        fs::write(&path, content).unwrap();
        format!("file:{}", path.display())
    }

    fn modified_ms(&self, name: &str) -> String {
        let modified = fs::metadata(self.root.path().join(name)).unwrap().modified().unwrap();
        modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis().to_string()
    }

    /// A job with this configuration.
    fn job(&self, properties: &[(&str, &str)]) -> JobSpec {
        let properties = properties.iter().map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        });
        let xml = format!("<configuration>{}</configuration>", properties.collect::<String>());
        JobSpec {
            id: "job_20.1_0001".parse().unwrap(),
            job_file: Location::from_path(&self.file("submitted.xml", xml.as_bytes())).unwrap(),
            job_tracker: "jt:4000".into(),
            secondary: None,
        }
    }

    fn fetches(&self) -> usize {
        self.files.fetches.load(Ordering::SeqCst)
    }

    fn dirs(&self) -> &LocalDirs {
        self.localiser.dirs()
    }

    /// The contents of a file with this name in a local directory.
    fn read(&self, relative: &Path) -> String {
        fs::read_to_string(self.dirs().find(relative).unwrap()).unwrap()
    }
}

fn has(xml: &str, name: &str, value: &str) -> bool {
    xml.contains(&format!("<name>{name}</name><value>{value}</value>"))
}

fn attempt(kind: TaskKind, is_map: bool) -> AttemptSpec {
    let letter = if is_map { "m" } else { "r" };
    AttemptSpec {
        id: format!("attempt_20.1_0001_{letter}_000003_0").parse().unwrap(),
        kind,
        is_map,
        partition: 3,
        num_maps: 7,
        split: is_map.then(|| (*b"split").into()),
        memory_managed: false,
    }
}

#[tokio::test]
async fn a_job_is_brought_here_once_however_many_ask() {
    let world = TestLocaliser::new(2, 100);
    let jar = world.file("x.jar", &zip_of(&[("lib/a.jar", b"a"), ("classes/B.class", b"b")]));
    let spec = world.job(&[("mapred.jar", &jar), ("a", "${b}")]);
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let (localiser, spec) = (world.localiser.clone(), spec.clone());
            tokio::spawn(async move { localiser.job(&spec).await.map(|job| job.jar.clone()) })
        })
        .collect();
    for answer in asked {
        let jar = answer.await.unwrap().unwrap().unwrap();
        let dir = jar.parent().unwrap();
        assert!(jar.ends_with("taskTracker/jobcache/job_20.1_0001/jars/job.jar"));
        assert!(dir.join("lib/a.jar").is_file() && dir.join("classes/B.class").is_file());
    }
    assert_eq!(world.fetches(), 2);
    let job = world.localiser.job(&spec).await.unwrap();
    assert!(job.work.is_dir());
    let xml = world.read(&layout::job_xml(&spec.id));
    for (name, value) in [
        ("a", "${b}"),
        ("mapred.jar", job.jar.as_ref().unwrap().to_str().unwrap()),
        ("job.local.dir", job.work.to_str().unwrap()),
        ("mapred.taskrunner.child.class", "org.apache.hadoop.mapred.CoronaChild"),
        ("mapred.direct.task.umbilical.address", "jt:4000"),
    ] {
        assert!(has(&xml, name, value), "{name} {xml}");
    }
    assert!(!xml.contains("umbilical.secondary"));
}

#[tokio::test]
async fn another_job_tracker_is_written_down() {
    let world = TestLocaliser::new(10, 100);
    let spec = world.job(&[]);
    world.localiser.job(&spec).await.unwrap();
    let (job_tracker, secondary) = ("other:5".to_owned(), Some("third:6".to_owned()));
    let moved = JobSpec { job_tracker, secondary, ..spec.clone() };
    world.localiser.job(&moved).await.unwrap();
    let xml = world.read(&layout::job_xml(&spec.id));
    assert!(has(&xml, "mapred.direct.task.umbilical.address", "other:5"), "{xml}");
    assert!(has(&xml, "mapred.direct.task.umbilical.secondary", "third:6"), "{xml}");
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn failed_localisations_leave_nothing_and_are_retried() {
    let world = TestLocaliser::new(10, 100);
    let bad_jar = world.file("bad.jar", b"no jar");
    let missing = format!("file:{}", world.root.path().join("none.jar").display());
    for jar in [&*bad_jar, &missing, "relative.jar"] {
        let spec = world.job(&[("mapred.jar", jar)]);
        let error = world.localiser.job(&spec).await.unwrap_err();
        assert!(!error.to_string().is_empty());
        assert_eq!(world.dirs().find(&layout::job(&spec.id)), None, "{jar}");
    }
    let spec = world.job(&[]);
    world.localiser.job(&spec).await.unwrap();
    let broken = world.file("submitted.xml", b"<configuration>");
    world.localiser.forget(&spec.id).await;
    let spec = JobSpec { job_file: Location::from_path(&broken).unwrap(), ..spec };
    let error = world.localiser.job(&spec).await.unwrap_err();
    assert!(matches!(error, LocaliseError::Configuration(_)), "{error}");
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_stop_the_copy() {
    let world = TestLocaliser::new(0, 100);
    let spec = world.job(&[]);
    let first = tokio::spawn({
        let (localiser, spec) = (world.localiser.clone(), spec.clone());
        async move { localiser.job(&spec).await.map(|_| ()) }
    });
    until("the copy begins", || world.fetches() == 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // Forgetting waits for the copy, so no part of it is left behind.
    let forgetting = tokio::spawn({
        let (localiser, id) = (world.localiser.clone(), spec.id.clone());
        async move { localiser.forget(&id).await }
    });
    world.files.permits.add_permits(10);
    forgetting.await.unwrap();
    assert_eq!(world.dirs().find(&layout::job(&spec.id)), None);
    world.localiser.job(&spec).await.unwrap();
    assert_eq!(world.fetches(), 2);
}

#[tokio::test]
async fn an_attempt_has_its_directories_and_configuration() {
    let world = TestLocaliser::new(10, 100);
    let spec = world.job(&[("mapred.local.dir", "/elsewhere"), ("mapred.map.tasks", "2")]);
    let job = world.localiser.job(&spec).await.unwrap();
    let map = world.localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.unwrap();
    assert!(map.work.ends_with("job_20.1_0001/attempt_20.1_0001_m_000003_0/work"));
    let dir = map.job_xml.parent().unwrap();
    assert!(map.work.is_dir() && map.job_xml.ends_with("attempt_20.1_0001_m_000003_0/job.xml"));
    assert_eq!(fs::read(dir.join("split.dta")).unwrap(), b"split");
    let shared = dir.parent().unwrap().join("work");
    assert_eq!(fs::canonicalize(shared).unwrap(), fs::canonicalize(&job.work).unwrap());
    let xml = fs::read_to_string(&map.job_xml).unwrap();
    let dirs = world.dirs().as_property();
    for (name, value) in [
        ("mapred.local.dir", &*dirs),
        ("slave.host.name", "node1"),
        ("mapred.task.id", "attempt_20.1_0001_m_000003_0"),
        ("mapred.tip.id", "task_20.1_0001_m_000003"),
        ("mapred.task.is.map", "true"),
        ("mapred.task.partition", "3"),
        ("mapred.job.id", "job_20.1_0001"),
        ("mapred.map.tasks", "2"),
    ] {
        assert!(has(&xml, name, value), "{name} {xml}");
    }
    assert!(!xml.contains("task.memory.mgmt.enabled"));

    let managed = AttemptSpec { memory_managed: true, ..attempt(TaskKind::AttemptCleanup, false) };
    let reduce = world.localiser.attempt(&job, &managed).await.unwrap();
    assert!(reduce.work.ends_with("attempt_20.1_0001_r_000003_0.cleanup/work"));
    assert!(!reduce.job_xml.with_file_name("split.dta").exists());
    let xml = fs::read_to_string(&reduce.job_xml).unwrap();
    assert!(has(&xml, "mapred.map.tasks", "7") && has(&xml, "mapred.task.is.map", "false"));
    assert!(has(&xml, "task.memory.mgmt.enabled", "true"));
}

#[tokio::test]
async fn forgetting_an_attempt_keeps_the_output_that_is_served() {
    let world = TestLocaliser::new(10, 100);
    let job = world.localiser.job(&world.job(&[])).await.unwrap();
    let spec = attempt(TaskKind::Work, true);
    world.localiser.attempt(&job, &spec).await.unwrap();
    let output = world.dirs().for_write(&layout::map_output(&spec.id), None).unwrap();
    fs::write(&output, "1").unwrap();
    let work = layout::attempt(&spec.id, false).join("work");
    // Java tasks merge in a directory of their own beside the job's.
    let merged = Path::new(spec.id.as_str()).join("intermediate.1");
    let merge = || fs::write(world.dirs().for_write(&merged, None).unwrap(), "1").unwrap();
    merge();
    world.localiser.forget_attempt(&spec.id, spec.kind, true).await.unwrap();
    assert!(output.exists() && world.dirs().find(&work).is_none());
    assert_eq!(world.dirs().find(Path::new(spec.id.as_str())), None);
    // The same attempt again starts from nothing.
    world.localiser.attempt(&job, &spec).await.unwrap();
    assert!(!output.exists() && world.dirs().find(&work).is_some());
    world.localiser.forget_attempt(&spec.id, spec.kind, false).await.unwrap();
    assert_eq!(world.dirs().find(&layout::attempt(&spec.id, false)), None);
    assert!(world.dirs().find(&layout::job_xml(&spec.id.job().clone())).is_some());
    // Files left with the job are deleted with it, and no files of another job.
    merge();
    let other = Path::new("attempt_20.1_0002_m_000003_0/intermediate.1");
    fs::write(world.dirs().for_write(other, None).unwrap(), "1").unwrap();
    world.localiser.forget(spec.id.job()).await;
    assert!(world.dirs().find(&merged).is_none() && world.dirs().find(other).is_some());
}

#[tokio::test]
async fn cached_files_are_shared_and_listed_for_the_task() {
    let world = TestLocaliser::new(100, 100);
    let text = world.file("words.txt", b"words");
    let archive = world.file("lib.zip", &zip_of(&[("x/run.sh", b"run")]));
    let plain = world.file("plain.dat", b"data");
    let zip_path = world.root.path().join("lib.zip");
    let (files, times) = (
        format!("{text}#w,{plain}"),
        ["words.txt", "plain.dat"].map(|f| world.modified_ms(f)).join(","),
    );
    let spec = world.job(&[
        ("mapred.cache.files", &files),
        ("mapred.cache.files.timestamps", &times),
        ("mapred.cache.archives", &archive),
        ("mapred.cache.archives.timestamps", &world.modified_ms("lib.zip")),
        ("mapred.job.classpath.archives", zip_path.to_str().unwrap()),
        ("mapred.create.symlink", "yes"),
        ("corona.task.command", "/bin/cat"),
    ]);
    let job = world.localiser.job(&spec).await.unwrap();
    let map = world.localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.unwrap();
    assert_eq!(world.fetches(), 4);
    let local = |key| map.conf.get(key).unwrap();
    let paths: Vec<PathBuf> =
        local("mapred.cache.localFiles").split(',').map(PathBuf::from).collect();
    assert_eq!(paths.len(), 2);
    assert_eq!(fs::read(&paths[0]).unwrap(), b"words");
    assert!(paths[1].ends_with(format!("file{}", world.root.path().join("plain.dat").display())));
    let unpacked = PathBuf::from(local("mapred.cache.localArchives"));
    assert_eq!(fs::read(unpacked.join("x/run.sh")).unwrap(), b"run");
    assert!(unpacked.join("lib.zip").is_file());
    // As beside each file that the original copies.
    let sums = fs::read(unpacked.join(".lib.zip.crc")).unwrap();
    assert!(sums.starts_with(b"crc\0\0\0\x02\0") && sums.len() > 8);
    let mode = fs::metadata(unpacked.join("x/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o555, 0o555);
    assert_eq!(map.cached_classes, [unpacked]);
    assert_eq!(fs::read(map.work.join("w")).unwrap(), b"words");
    let again = world.localiser.attempt(&job, &attempt(TaskKind::Work, false)).await.unwrap();
    assert_eq!(world.fetches(), 4);
    assert_eq!(again.conf.get("mapred.cache.localFiles"), map.conf.get("mapred.cache.localFiles"));
}

#[tokio::test]
async fn cached_files_are_copied_eight_at_a_time() {
    // One permit, for the job's configuration: no copy of a cached file ends.
    let world = TestLocaliser::new(1, 100);
    let names: Vec<String> = (0..10).map(|number| format!("f{number}")).collect();
    let uris: Vec<String> = names.iter().map(|name| world.file(name, b"x")).collect();
    let times: Vec<String> = names.iter().map(|name| world.modified_ms(name)).collect();
    let spec = world.job(&[
        ("mapred.cache.files", &uris.join(",")),
        ("mapred.cache.files.timestamps", &times.join(",")),
        ("corona.task.command", "/bin/cat"),
    ]);
    let job = world.localiser.job(&spec).await.unwrap();
    let localiser = world.localiser.clone();
    let making = tokio::spawn(async move {
        localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.map(|made| made.held.len())
    });
    until("eight copies begin", || world.fetches() == 1 + 8).await;
    world.files.permits.add_permits(1);
    until("a ninth begins when one has ended", || world.fetches() == 1 + 9).await;
    world.files.permits.add_permits(100);
    assert_eq!(making.await.unwrap().unwrap(), 10);
    assert_eq!(world.fetches(), 1 + 10);
}

#[tokio::test]
async fn cached_files_of_the_class_path_and_shared_ones_reach_the_task() {
    let world = TestLocaliser::new(100, 100);
    let jar = world.file("plain.jar", &zip_of(&[("A.class", b"a")]));
    let shared = world.file("shared.dat", b"data");
    let jar_path = world.root.path().join("plain.jar");
    let spec = world.job(&[
        ("mapred.cache.files", &jar),
        ("mapred.cache.files.timestamps", &world.modified_ms("plain.jar")),
        ("mapred.job.classpath.files", jar_path.to_str().unwrap()),
        ("mapred.cache.shared.enabled", "true"),
        ("mapred.cache.shared.files", &shared),
        ("mapred.create.symlink", "yes"),
        ("corona.task.command", "/bin/cat"),
    ]);
    let job = world.localiser.job(&spec).await.unwrap();
    let map = world.localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.unwrap();
    let [class_path] = &map.cached_classes[..] else { panic!("{:?}", map.cached_classes) };
    assert!(class_path.ends_with("plain.jar") && class_path.is_file(), "{class_path:?}");
    let shared = map.conf.get("mapred.cache.shared.localFiles").unwrap();
    assert_eq!(fs::read(shared).unwrap(), b"data");
}

#[tokio::test]
async fn a_changed_file_and_lists_that_do_not_fit_fail_the_attempt() {
    let world = TestLocaliser::new(100, 100);
    let text = world.file("words.txt", b"words");
    let cases = [
        ("12345", format!("File: {text} has changed on HDFS since job started")),
        ("1,2", "mapred.cache.files has 1 entries, mapred.cache.files.timestamps has 2".into()),
        ("soon", "mapred.cache.files has 1 entries, mapred.cache.files.timestamps has 0".into()),
    ];
    for (times, expected) in cases {
        let spec =
            world.job(&[("mapred.cache.files", &text), ("mapred.cache.files.timestamps", times)]);
        let job = world.localiser.job(&spec).await.unwrap();
        let error =
            world.localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        world.localiser.forget(&spec.id).await;
    }
    let bad_link = format!("{text}#../../link");
    let times = world.modified_ms("words.txt");
    let spec = world.job(&[
        ("mapred.cache.files", &bad_link),
        ("mapred.cache.files.timestamps", &times),
        ("mapred.create.symlink", "yes"),
        ("corona.task.command", "/bin/cat"),
    ]);
    let job = world.localiser.job(&spec).await.unwrap();
    let error = world.localiser.attempt(&job, &attempt(TaskKind::Work, true)).await.unwrap_err();
    assert!(error.to_string().ends_with("is not a valid name of a link"), "{error}");
}

#[tokio::test]
async fn a_shared_jar_comes_from_the_cache() {
    let world = TestLocaliser::new(100, 100);
    let jar = world.file("abc.jar", &zip_of(&[("lib/a.jar", b"a")]));
    let spec = world.job(&[
        ("mapred.cache.shared.enabled", "true"),
        ("mapred.jar", "/somewhere/job.jar"),
        ("mapred.cache.shared.archives", &jar),
    ]);
    let job = world.localiser.job(&spec).await.unwrap();
    for is_map in [true, false] {
        world.localiser.attempt(&job, &attempt(TaskKind::Work, is_map)).await.unwrap();
        let local = job.jar.as_deref().unwrap();
        assert!(local.is_file() && local.with_file_name("lib/a.jar").is_file());
    }
    assert_eq!(world.fetches(), 2);
}

#[tokio::test]
async fn unused_files_are_deleted_when_the_cache_is_too_large() {
    let world = TestLocaliser::new(100, 1);
    let cache = world.localiser.cache().clone();
    let location = |name: &str| Location::from_path(&world.file(name, b"1")).unwrap();
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| location(&format!("{name}.txt")));
    let first = cache.get(&names[0], None, false).await.unwrap();
    for name in &names[1..] {
        cache.get(name, None, false).await.unwrap();
    }
    // Two local directories may have one each; held entries stay in any case.
    let count = || {
        let in_dirs = world.dirs().all(&layout::cache());
        in_dirs.iter().map(|dir| fs::read_dir(dir).unwrap().count()).sum::<usize>()
    };
    assert!(count() <= 3, "{}", count());
    assert!(first.path.exists());
    let before = world.fetches();
    cache.get(&names[0], None, false).await.unwrap();
    assert_eq!(world.fetches(), before);
    // Their directories determine which ones stayed; at least three are deleted.
    for name in &names[1..] {
        cache.get(name, None, false).await.unwrap();
    }
    assert!(world.fetches() >= before + 3, "{} after {before}", world.fetches());
}

#[tokio::test]
async fn a_copy_to_the_cache_that_fails_leaves_nothing() {
    let world = TestLocaliser::new(100, 100);
    let cache = world.localiser.cache();
    let bad = Location::from_path(&world.file("bad.tgz", b"no archive")).unwrap();
    let error = cache.get(&bad, None, true).await.unwrap_err();
    assert!(error.to_string().contains("bad.tgz: "), "{error}");
    for dir in world.dirs().all(&layout::cache()) {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    }
    let id: AttemptId = "attempt_20.1_0001_m_000003_0".parse().unwrap();
    assert_eq!(world.dirs().find(&layout::attempt(&id, false)), None);
}

/// The configuration of a job with these properties.
pub(crate) fn conf(properties: &[(&str, &str)]) -> JobConf {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.xml");
    std::fs::write(&path, "<configuration/>").unwrap();
    let site = Source::default().load_task_tracker().unwrap().site;
    let mut conf = JobConf::read(&site, &path).unwrap();
    for (name, value) in properties {
        conf.set(name, value);
    }
    conf
}
