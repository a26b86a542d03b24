//! An archive of the classes of the Hadoop install, which lets processes of Java start sooner.
//!
//! It is made once for each install, while the first task of Java already runs: a child is started as
//! for a task, and sets up a job that no job tracker has and that has no output. The list of classes
//! that it has loaded is what Java archives (class data sharing, `-Xshare:dump`). No task depends on
//! the archive: without one, tasks start as ever, and a Java that does not like it ignores it.
//!
//! Java takes an archive only for class paths that begin with the one that it was made for, and
//! archives nothing behind a directory. So the jars of the install come first, if no file of a
//! directory is in a jar that it would come before: then the order makes no difference.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use thiserror::Error;
use tokio::process::Command;

use crate::layout;
use crate::programs::{RunError, first_line, run};
use corona_config::{JobConf, SiteProperties, keys};
use corona_hadoop::writables::{JvmId, Task, TaskAttemptId, TaskKind};
use corona_model::text::shell_word;
use corona_process::panics::{blocking, caught};

/// The directory in a local directory that has the archives.
const DIRECTORY: &str = "corona-class-archives";
/// The oldest Java that archives classes of applications without further options.
const LEAST_JAVA: u32 = 11;
/// The class that is started, as for a task of the original.
const CHILD: &str = "org.apache.hadoop.mapred.CoronaChild";
/// The attempt that the child is started for. No job has it.
const ATTEMPT: &str = "attempt_0.0_0001_m_000000_0";
/// The number of its process.
const JVM_NUMBER: i32 = 0;
/// Files and directories of a class path that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// How deep its directories are looked at.
const MAX_DEPTH: usize = 64;
/// Classes that most tasks of the original load after they have got a task: maps and reduces of its
/// examples with text, sequences and no input. What a Java or an install does not have is left out.
const TASK_CLASSES: &str = include_str!("task_classes.txt");
/// Options with which Java compiles methods later than by default, so that a task's start is not
/// mostly compilation: the default thresholds of calls, times four. Those of loops stay, so what a task
/// repeats is compiled as soon as ever.
pub(super) const COMPILATION: [&str; 6] = [
    "-XX:Tier3InvocationThreshold=800",
    "-XX:Tier3MinInvocationThreshold=400",
    "-XX:Tier3CompileThreshold=8000",
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
];
/// The same for processes that end after a short task: only the compiler that is quick itself.
pub(super) const COMPILATION_OF_SHORT: [&str; 1] = ["-XX:TieredStopAtLevel=1"];

/// The archive of an install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassArchive {
    /// The archive's file.
    pub file: PathBuf,
    /// The class path of the install as the archive needs it.
    pub class_path: String,
}

/// The Java of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaVersion {
    /// Its number, such as 17; 8 for `1.8`.
    pub number: u32,
    /// Its exact version.
    pub exact: String,
}

/// The archive of the install of this node: made when it is first wanted.
#[derive(Debug)]
pub struct ClassArchives {
    install: ArchivedInstall,
    state: Mutex<ArchiveState>,
    /// The configuration of the job that the child sets up, while it may.
    job_file: Mutex<Option<PathBuf>>,
}

/// What an archive is made of.
#[derive(Clone, Debug)]
pub struct ArchivedInstall {
    /// The program `java`.
    pub java: PathBuf,
    /// Its version; `None` if it is not known.
    pub version: Option<JavaVersion>,
    /// The class path of the install.
    pub class_path: String,
    /// The local directory in which the archive is kept.
    pub local_dir: PathBuf,
    /// Where the child that shows what is to be archived reports to.
    pub umbilical: SocketAddr,
    /// The time for each of the two runs of Java that make it.
    pub limit: Duration,
    /// The properties of the node, which the child reads.
    pub site: SiteProperties,
}

#[derive(Clone, Debug)]
enum ArchiveState {
    Unwanted,
    Making,
    Ready(Arc<ClassArchive>),
    None(String),
}

/// Why there is no archive.
#[derive(Debug, Error)]
enum ArchiveError {
    #[error("Java {0} cannot archive classes of applications; {LEAST_JAVA} can")]
    OldJava(u32),
    #[error("the version of Java is not known")]
    UnknownJava,
    #[error("the class path has no jars")]
    NoJars,
    #[error("{} has a file that is also in {}, so the order of the class path matters: {name}", dir.display(), jar.display())]
    Order { dir: PathBuf, jar: PathBuf, name: String },
    #[error("the class path has more than {MAX_ENTRIES} files")]
    TooMany,
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{what}: {why}")]
    Java { what: &'static str, why: String },
    #[error("{0}")]
    Panic(String),
}

impl ClassArchives {
    /// Nothing is made before [`get`](Self::get).
    pub fn new(install: ArchivedInstall) -> Arc<ClassArchives> {
        let (state, job_file) = (Mutex::new(ArchiveState::Unwanted), Mutex::default());
        Arc::new(ClassArchives { install, state, job_file })
    }

    /// The archive, if it is there. If it was never wanted before, it is made on the executor that
    /// this is called on.
    pub fn get(self: &Arc<Self>) -> Option<Arc<ClassArchive>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            ArchiveState::Ready(archive) => return Some(archive.clone()),
            ArchiveState::Making | ArchiveState::None(_) => return None,
            ArchiveState::Unwanted => *state = ArchiveState::Making,
        }
        let archives = self.clone();
        tokio::spawn(async move {
            let made = caught(archives.make()).await;
            let made = made.unwrap_or_else(|panic| Err(ArchiveError::Panic(panic.to_string())));
            let state = match made {
                Ok(archive) => {
                    let path = archive.file.display();
                    tracing::info!(%path, "tasks of Java start with an archive of the classes of the install");
                    ArchiveState::Ready(Arc::new(archive))
                }
                Err(error) => {
                    tracing::info!(%error, "tasks of Java start without an archive of classes");
                    ArchiveState::None(error.to_string())
                }
            };
            *archives.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        });
        None
    }

    /// Answers `getTask` of the child that shows what is to be archived. `None` for other processes.
    pub fn task(&self, jvm: &JvmId) -> Option<Task> {
        let id: TaskAttemptId = ATTEMPT.parse().ok()?;
        let is_child = *jvm == (JvmId { number: JVM_NUMBER, job: id.job().clone(), is_map: true });
        let job_file = self.job_file.lock().unwrap_or_else(PoisonError::into_inner);
        let job_file = job_file.as_ref().filter(|_| is_child)?.display().to_string();
        Some(setup(id, job_file))
    }

    /// Whether this is the attempt of that child.
    pub fn is_own(&self, attempt: &TaskAttemptId) -> bool {
        let job_file = self.job_file.lock().unwrap_or_else(PoisonError::into_inner);
        job_file.is_some() && attempt.to_string() == ATTEMPT
    }

    /// Its state, for people.
    pub fn status(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            ArchiveState::Unwanted => "not needed yet".to_owned(),
            ArchiveState::Making => "being made".to_owned(),
            ArchiveState::Ready(_) => "ready".to_owned(),
            ArchiveState::None(why) => format!("none: {why}"),
        }
    }
}

impl ClassArchives {
    async fn make(&self) -> Result<ClassArchive, ArchiveError> {
        let install = &self.install;
        let version = install.version.as_ref().ok_or(ArchiveError::UnknownJava)?;
        if version.number < LEAST_JAVA {
            return Err(ArchiveError::OldJava(version.number));
        }
        let class_path = install.class_path.clone();
        let ordered = blocking(move || Ordered::of(&class_path)).await?;
        let dir = install.local_dir.join(DIRECTORY);
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        let name = format!("{:016x}", install.hash(&version.exact, &ordered)?);
        let file = dir.join(format!("{name}.jsa"));
        let archive = ClassArchive { file: file.clone(), class_path: ordered.class_path() };
        if file.is_file() {
            return Ok(archive);
        }
        // Those of an earlier install, and what an earlier run has not finished.
        for left in fs::read_dir(&dir).map_err(at(&dir))?.flatten() {
            let path = left.path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        let scratch = dir.join(format!("{name}.new"));
        let logs = scratch.join("userlogs").join(ATTEMPT);
        fs::create_dir_all(&logs).map_err(at(&logs))?;
        let job_file = scratch.join(layout::JOB_XML);
        fs::write(&job_file, install.job(&scratch)?).map_err(at(&job_file))?;
        let child_may = |job_file| {
            *self.job_file.lock().unwrap_or_else(PoisonError::into_inner) = job_file;
        };
        child_may(Some(job_file));
        let made = install.make_in(&scratch, &ordered, &file).await;
        child_may(None);
        // What stays is deleted by the next run.
        let _ = fs::remove_dir_all(&scratch);
        made.map(|()| archive)
    }
}

/// The task of the child: it sets up a job without output.
fn setup(attempt: TaskAttemptId, job_file: String) -> Task {
    let kind = TaskKind::Map { split: None };
    let mut task = Task::new(attempt, job_file, String::new(), kind);
    (task.job_setup, task.write_skipped, task.status.output_size) = (true, false, -1);
    task
}

impl ArchivedInstall {
    /// The configuration of the job that the child sets up: that of the node, and what a task needs.
    fn job(&self, scratch: &Path) -> Result<String, ArchiveError> {
        let failed =
            |why: String| ArchiveError::Java { what: "the configuration of the child", why };
        let empty = scratch.join("empty.xml");
        fs::write(&empty, "<configuration/>").map_err(at(&empty))?;
        let mut conf =
            JobConf::read(&self.site, &empty).map_err(|error| failed(error.to_string()))?;
        let scratch = scratch.display().to_string();
        let (job, tip) = ("job_0.0_0001", "task_0.0_0001_m_000000");
        for (name, value) in [
            ("mapred.local.dir", &*scratch),
            ("job.local.dir", &*scratch),
            ("mapred.job.tracker", "corona"),
            ("mapred.job.id", job),
            ("mapred.tip.id", tip),
            ("mapred.task.id", ATTEMPT),
            ("mapred.task.is.map", "true"),
            ("mapred.task.partition", "0"),
            (keys::JOB_REUSE.name, "1"),
        ] {
            conf.set(name, value);
        }
        conf.remove("mapred.output.dir");
        conf.to_xml().map_err(|error| failed(error.to_string()))
    }

    /// Makes the archive with the help of a directory.
    async fn make_in(
        &self,
        scratch: &Path,
        ordered: &Ordered,
        file: &Path,
    ) -> Result<(), ArchiveError> {
        let list = scratch.join("classes");
        let dump = format!("-XX:DumpLoadedClassList={}", list.display());
        let log_dir = format!("-Dhadoop.log.dir={}", scratch.display());
        let task = format!("-Dhadoop.tasklog.taskid={ATTEMPT}");
        let (host, port) = (self.umbilical.ip().to_string(), self.umbilical.port().to_string());
        let number = JVM_NUMBER.to_string();
        let class_path = ordered.class_path();
        let child = [
            "-Xmx200m",
            &*dump,
            "-classpath",
            &*class_path,
            &*log_dir,
            "-Dhadoop.root.logger=INFO,TLA",
            &*task,
            "-Dhadoop.tasklog.totalLogFileSize=0",
            CHILD,
            &*host,
            &*port,
            ATTEMPT,
            &*number,
        ];
        // Before a task the original's child deletes what is in its working directory.
        let work = scratch.join("work");
        fs::create_dir_all(&work).map_err(at(&work))?;
        // It need not end well: what it has loaded counts.
        let _ = self.java("the child to be archived", &child, &work).await;
        let mut classes = fs::read_to_string(&list).map_err(at(&list))?;
        classes.push_str(TASK_CLASSES);
        fs::write(&list, classes).map_err(at(&list))?;
        let new = scratch.join("classes.jsa");
        let (list, archive) = (
            format!("-XX:SharedClassListFile={}", list.display()),
            format!("-XX:SharedArchiveFile={}", new.display()),
        );
        let jars = ordered.jars();
        // A Java that does not know the options that tasks get with the archive makes none.
        let dump = ["-Xshare:dump", &*list, &*archive, "-classpath", &*jars];
        let dump = [&COMPILATION[..], &dump].concat();
        self.java("java -Xshare:dump", &dump, scratch).await?;
        fs::rename(&new, file).map_err(at(&new))
    }

    /// Runs Java with low priority.
    async fn java(
        &self,
        what: &'static str,
        arguments: &[&str],
        dir: &Path,
    ) -> Result<(), ArchiveError> {
        let java = self.java.display().to_string();
        let words: Vec<String> =
            std::iter::once(&*java).chain(arguments.iter().copied()).map(shell_word).collect();
        let mut bash = Command::new("bash");
        // The child reads its number from the variable.
        let line = format!("export JVM_PID=$$; exec nice -n 19 {}", words.join(" "));
        bash.arg("-c").arg(line).current_dir(dir);
        let failed = |why: String| ArchiveError::Java { what, why };
        let printed = run(bash, self.limit).await.map_err(|error| match error {
            RunError::Io(error) => failed(error.to_string()),
            RunError::Timeout { .. } => {
                failed(format!("did not end within {} s", self.limit.as_secs()))
            }
        })?;
        match printed.status.success() {
            true => Ok(()),
            false => {
                let lines = [first_line(&printed.stderr), first_line(&printed.stdout)];
                let line = lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default();
                Err(failed(format!("{line} ({})", printed.status)))
            }
        }
    }

    /// A number that changes with everything that makes an archive useless.
    fn hash(&self, version: &str, ordered: &Ordered) -> Result<u64, ArchiveError> {
        let mut hasher = DefaultHasher::new();
        (&self.java, version, ordered.class_path(), TASK_CLASSES, COMPILATION).hash(&mut hasher);
        for jar in &ordered.jars {
            let metadata = fs::metadata(jar).map_err(at(jar))?;
            let modified =
                metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            (metadata.len(), modified).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |error| ArchiveError::Io { path, error }
}

/// A class path with its jars first.
#[derive(Debug, PartialEq, Eq)]
struct Ordered {
    jars: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl Ordered {
    /// Puts the jars of a class path first, if that makes no difference for Java. It blocks.
    fn of(class_path: &str) -> Result<Ordered, ArchiveError> {
        let mut ordered = Ordered { jars: vec![], others: vec![] };
        // The files of the directories so far, each with its directory.
        let mut files: HashSet<(PathBuf, String)> = HashSet::new();
        for path in entries(class_path)? {
            if path.is_dir() {
                let mut names = Vec::new();
                names_in(&path, Path::new(""), &mut names)?;
                files.extend(names.into_iter().map(|name| (path.clone(), name)));
                ordered.others.push(path);
            } else if path.is_file() {
                ordered.check(&path, &files)?;
                ordered.jars.push(path);
            } else {
                ordered.others.push(path);
            }
        }
        if ordered.jars.is_empty() {
            return Err(ArchiveError::NoJars);
        }
        Ok(ordered)
    }

    /// Whether a jar may come before the directories with these files.
    fn check(&self, jar: &Path, files: &HashSet<(PathBuf, String)>) -> Result<(), ArchiveError> {
        if files.is_empty() {
            return Ok(());
        }
        let file = File::open(jar).map_err(at(jar))?;
        let at_zip = |error: zip::result::ZipError| at(jar)(io::Error::other(error.to_string()));
        let zip = zip::ZipArchive::new(io::BufReader::new(file)).map_err(at_zip)?;
        let names: Result<HashSet<_>, _> = zip.file_names().collect();
        let inside = names.map_err(at_zip)?;
        match files.iter().find(|(_, name)| inside.contains(name.as_str())) {
            None => Ok(()),
            Some((dir, name)) => Err(ArchiveError::Order {
                dir: dir.clone(),
                jar: jar.to_owned(),
                name: name.clone(),
            }),
        }
    }

    fn jars(&self) -> String {
        joined(self.jars.iter())
    }

    fn class_path(&self) -> String {
        joined(self.jars.iter().chain(&self.others))
    }
}

fn joined<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

/// The parts of a class path; `dir/*` stands for the jars in a directory.
fn entries(class_path: &str) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut entries = Vec::new();
    for part in class_path.split(':').filter(|part| !part.is_empty()) {
        let Some(dir) = part.strip_suffix("/*").map(Path::new) else {
            entries.push(part.into());
            continue;
        };
        let found = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_jar =
            |path: &PathBuf| path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("jar"));
        let mut jars: Vec<PathBuf> = found.filter(is_jar).take(MAX_ENTRIES).collect();
        jars.sort();
        entries.extend(jars);
    }
    if entries.len() > MAX_ENTRIES { Err(ArchiveError::TooMany) } else { Ok(entries) }
}

/// The files in a directory and below it, as a jar would name them.
fn names_in(root: &Path, below: &Path, names: &mut Vec<String>) -> Result<(), ArchiveError> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).map_err(at(&dir))?.flatten() {
        let name = below.join(entry.file_name());
        let kind = entry.file_type().map_err(at(&dir))?;
        if names.len() >= MAX_ENTRIES || below.components().count() > MAX_DEPTH {
            return Err(ArchiveError::TooMany);
        }
        match kind.is_dir() {
            true => names_in(root, &name, names)?,
            false => names.push(name.to_string_lossy().into_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use corona_config::Source;
    use corona_net::testing::some;

    struct TestArchive {
        root: tempfile::TempDir,
    }

    impl TestArchive {
        /// A configuration in a directory, and two jars.
        fn new() -> TestArchive {
            let world = TestArchive { root: tempfile::tempdir().unwrap() };
            fs::create_dir_all(world.path("conf/sub")).unwrap();
            fs::write(world.path("conf/core-site.xml"), "").unwrap();
            fs::write(world.path("conf/sub/x"), "").unwrap();
            fs::create_dir(world.path("lib")).unwrap();
            world.jar("core.jar", &["A.class", "sub/y"]);
            world.jar("lib/b.jar", &["B.class"]);
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn jar(&self, name: &str, files: &[&str]) {
            let mut zip = zip::ZipWriter::new(File::create(self.path(name)).unwrap());
            for file in files {
                zip.start_file(*file, zip::write::SimpleFileOptions::default()).unwrap();
                zip.write_all(b"x").unwrap();
            }
            zip.finish().unwrap();
        }

        fn class_path(&self, parts: &[&str]) -> String {
            let shown = |part: &&str| self.path(part).display().to_string();
            parts.iter().map(shown).collect::<Vec<_>>().join(":")
        }

        /// An install whose Java is this script.
        fn install(&self, java: &str, number: u32) -> ArchivedInstall {
            let path = self.path("java");
            fs::write(&path, format!("#!/bin/bash\n{java}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            ArchivedInstall {
                java: path,
                version: Some(JavaVersion { number, exact: format!("{number}.0.1") }),
                class_path: self.class_path(&["conf", "core.jar", "lib/*"]),
                local_dir: self.path("local"),
                umbilical: "127.0.0.1:7".parse().unwrap(),
                limit: Duration::from_secs(60),
                site: Source::default().load_task_tracker().unwrap().site,
            }
        }
    }

    #[test]
    fn jars_come_first_where_that_makes_no_difference() {
        let world = TestArchive::new();
        let of = |parts: &[&str]| Ordered::of(&world.class_path(parts));
        let ordered = of(&["conf", "core.jar", "missing", "lib/*"]).unwrap();
        assert_eq!(ordered.jars(), world.class_path(&["core.jar", "lib/b.jar"]));
        let all = world.class_path(&["core.jar", "lib/b.jar", "conf", "missing"]);
        assert_eq!(ordered.class_path(), all);
        world.jar("clash.jar", &["sub/x"]);
        let error = of(&["conf", "core.jar", "clash.jar"]).unwrap_err().to_string();
        assert!(
            error.contains("clash.jar, so the order of the class path matters: sub/x"),
            "{error}"
        );
        assert!(of(&["clash.jar", "conf", "core.jar"]).is_ok(), "the jar was first anyway");
        assert!(matches!(of(&["conf"]), Err(ArchiveError::NoJars)));
        fs::write(world.path("bad.jar"), "no zip").unwrap();
        assert!(matches!(of(&["conf", "bad.jar"]), Err(ArchiveError::Io { .. })));
    }

    /// A Java that writes what it is asked for.
    const JAVA: &str = "echo \"$*\" >> $(dirname $0)/runs
        for word; do case $word in
            -XX:DumpLoadedClassList=*) echo A > ${word#*=}; rm -rf ./*;;
            -XX:SharedClassListFile=*) grep -q ReduceTask ${word#*=} || exit 9;;
            -XX:Tier4CompileThreshold=*) tier=1;;
            -XX:SharedArchiveFile=*) [ \"$tier\" ] || exit 8; echo archive > ${word#*=};;
        esac; done";

    async fn wanted(archives: &Arc<ClassArchives>) -> Result<Arc<ClassArchive>, String> {
        let reason = || Some(archives.status().strip_prefix("none: ")?.to_owned());
        some("an archive", || archives.get().map(Ok).or_else(|| reason().map(Err))).await
    }

    #[tokio::test]
    async fn an_archive_is_made_once_for_an_install() {
        let world = TestArchive::new();
        let runs = || fs::read_to_string(world.path("runs")).unwrap().lines().count();
        let archives = ClassArchives::new(world.install(JAVA, 17));
        assert_eq!(archives.status(), "not needed yet");
        assert_eq!(archives.get(), None);
        let archive = wanted(&archives).await.unwrap();
        assert_eq!(fs::read_to_string(&archive.file).unwrap(), "archive\n");
        assert_eq!(archive.class_path, world.class_path(&["core.jar", "lib/b.jar", "conf"]));
        assert_eq!(runs(), 2);
        // The next run of the task tracker finds it; another Java or jar needs another one.
        let again = ClassArchives::new(world.install(JAVA, 17));
        assert_eq!((wanted(&again).await.unwrap(), runs()), (archive.clone(), 2));
        let other = ClassArchives::new(world.install(JAVA, 21));
        let other = wanted(&other).await.unwrap();
        assert!(other.file != archive.file && !archive.file.exists());
        world.jar("core.jar", &["A.class", "C.class"]);
        let newer = ClassArchives::new(world.install(JAVA, 21));
        assert_ne!(wanted(&newer).await.unwrap().file, other.file);
        assert_eq!(fs::read_dir(world.path("local").join(DIRECTORY)).unwrap().count(), 1);
    }

    #[test]
    fn the_child_sets_up_a_job_of_its_own_while_it_may() {
        let world = TestArchive::new();
        let archives = ClassArchives::new(world.install(JAVA, 17));
        let id: TaskAttemptId = ATTEMPT.parse().unwrap();
        let jvm = JvmId { number: JVM_NUMBER, job: id.job().clone(), is_map: true };
        assert_eq!((archives.task(&jvm), archives.is_own(&id)), (None, false));
        *archives.job_file.lock().unwrap() = Some("/l/job.xml".into());
        let task = archives.task(&jvm).unwrap();
        assert!(task.job_setup && task.job_file == "/l/job.xml" && task.attempt == id);
        assert!(archives.is_own(&id));
        assert_eq!(archives.task(&JvmId { number: 1, ..jvm }), None);
        let other = "attempt_0.0_0001_m_000001_0".parse().unwrap();
        assert!(!archives.is_own(&other));
        let xml = archives.install.job(world.root.path()).unwrap();
        assert!(xml.contains("<name>mapred.task.id</name><value>attempt_0.0_0001_m_000000_0<"));
    }

    #[tokio::test]
    async fn failures_leave_no_archive_and_a_reason() {
        let world = TestArchive::new();
        let why = async |install: ArchivedInstall| {
            wanted(&ClassArchives::new(install)).await.unwrap_err()
        };
        assert!(why(world.install(JAVA, 8)).await.starts_with("Java 8 cannot archive"));
        let unknown = ArchivedInstall { version: None, ..world.install(JAVA, 17) };
        assert_eq!(why(unknown).await, "the version of Java is not known");
        assert!(why(world.install("exit 0", 17)).await.contains("classes: No such file"));
        let broken = format!("{JAVA}\necho no memory; exit 1");
        let error = why(world.install(&broken, 17)).await;
        assert_eq!(error, "java -Xshare:dump: no memory (exit status: 1)");
        // The child is not slow, so that what it writes is there.
        let slow = format!("{JAVA}\n[ -z \"$tier\" ] || sleep 600");
        let limit = Duration::from_secs(20);
        let slow = ArchivedInstall { limit, ..world.install(&slow, 17) };
        assert_eq!(why(slow).await, "java -Xshare:dump: did not end within 20 s");
        assert_eq!(fs::read_dir(world.path("local").join(DIRECTORY)).unwrap().count(), 0);
    }
}
