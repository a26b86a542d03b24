//! The command line of a task: the one of the original's task tracker, or the job's own program.
//!
//! Pure: it looks at nothing but its arguments. Spec: mapreduce/04 §4.5.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::class_archive::{COMPILATION, COMPILATION_OF_SHORT, ClassArchive};
use super::logs::LogFile;
use super::profile;
use crate::localise::{LocalAttempt, TaskKind};
use corona_config::{JobConf, NativeTasks, keys};
use corona_mapreduce::native::NativeJob;
use corona_model::text::shell_word;
use corona_process::memory::SMALL_PAGES;

/// Parts of options of Java with which an archive is not used: it would be another one, or be ignored.
const OPTIONS_WITHOUT_ARCHIVE: [&str; 8] = [
    "-Xshare",
    "SharedArchiveFile",
    "-Xbootclasspath",
    "-javaagent",
    "-agentlib",
    "-agentpath",
    "--patch-module",
    "--upgrade-module-path",
];
/// The subcommand that runs a native task.
const NATIVE_TASK: &str = "task-child";
/// Java options of set-up and clean-up tasks that name none.
const DEFAULT_JAVA_OPTIONS: &str = "-Xmx200m";

/// The programs that a machine runs tasks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// The program `java`.
    pub java: PathBuf,
    /// The class path of the install.
    pub class_path: String,
    /// Directories of native libraries with colons between; may be empty.
    pub library_path: String,
    /// How tasks run without Java.
    pub native: Native,
}

/// How tasks run without Java.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// The program that has `task-child` as a subcommand: this one.
    pub program: PathBuf,
    /// Which jobs run so.
    pub allowed: NativeTasks,
}

/// The inputs of a launch besides the attempt.
#[derive(Clone)]
pub struct Launch<'a> {
    /// The programs on the machine.
    pub install: &'a Install,
    /// `hadoop.log.dir`
    pub log_dir: &'a Path,
    /// The directory of this attempt's logs.
    pub task_log_dir: &'a Path,
    /// Where the task reports to.
    pub umbilical: SocketAddr,
    /// The number that the task names itself by.
    pub jvm_number: i32,
    /// The files of `jars/lib`, in the order in which they stand on the class path.
    pub jar_libraries: &'a [PathBuf],
    /// Whether its work is expected to be short.
    pub is_work_short: bool,
    /// Whether a native task can read the map's input.
    pub is_input_native: bool,
    /// Returns the archive of the classes of the install, if there is one. Only tasks of Java ask.
    pub archive: &'a dyn Fn() -> Option<Arc<ClassArchive>>,
}

/// The command: `bash -c <line>`, in a directory, with changes to the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCommand {
    /// The line for the shell.
    pub line: String,
    /// The same without a shell, where none is needed.
    pub direct: Option<DirectCommand>,
    /// The directory that it runs in.
    pub work: PathBuf,
    /// Directories that must exist.
    pub directories: Vec<PathBuf>,
    /// Variables that are set over those of the task tracker.
    pub environment: Vec<(String, String)>,
    /// Whether it runs Java, which may take several tasks.
    pub is_java: bool,
}

/// A program that is started without a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectCommand {
    /// Its path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The file to which its stdout is appended.
    pub stdout: PathBuf,
    /// The same for stderr.
    pub stderr: PathBuf,
}

/// Why there is no command line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The job's variables cannot be read. The wording is the original's.
    #[error(
        "Invalid User environment settings : {0}. Failed to parse user-passed environment param. \
         Expecting : env1=value1,env2=value2..."
    )]
    Environment(String),
    /// The job asks for native tasks.
    #[error(
        "the job asks for native tasks (corona.task.native), which this node does not run: \
         corona.tt.native.tasks is none"
    )]
    NativeNotAllowed,
    /// A value with a zero byte, which no process can be given.
    #[error("{0} has a zero byte")]
    ZeroByte(&'static str),
}

/// The command for an attempt. `variable` gives variables of the task tracker's environment.
pub fn command(
    attempt: &LocalAttempt,
    launch: &Launch<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ChildCommand, CommandError> {
    let builder = Builder { attempt, conf: &attempt.conf, launch };
    let own = builder.conf.text_if_set(&keys::JOB_COMMAND);
    let is_native = own.is_none() && builder.is_native()?;
    let words = match &own {
        Some(program) => builder.program(program),
        None if is_native => builder.native(),
        None => builder.java(),
    };
    let mut environment = builder.environment(variable)?;
    if own.is_some() || is_native {
        environment.extend(builder.for_programs());
    }
    if is_native {
        // A short task would spend most of its start on clearing pages that it does not use.
        let (name, value) = SMALL_PAGES;
        environment.push((name.to_owned(), value.to_owned()));
        let file = profile::file(&attempt.conf, attempt.is_map, launch.task_log_dir);
        environment.extend(file.map(|file| (profile::FILE.to_owned(), file.display().to_string())));
    }
    let line = builder.line(&words);
    let direct = is_native.then(|| builder.native_without_shell()).flatten();
    let (work, directories) =
        (attempt.work.clone(), vec![attempt.work.clone(), builder.temporary_dir()]);
    let is_java = own.is_none() && !is_native;
    checked(ChildCommand { line, direct, work, directories, environment, is_java })
}

/// The command, if a process can be given it.
pub(super) fn checked(command: ChildCommand) -> Result<ChildCommand, CommandError> {
    if command.line.contains('\0') {
        return Err(CommandError::ZeroByte("the command line"));
    }
    let has_zero = |text: &String| text.contains('\0');
    if command.environment.iter().any(|(name, value)| has_zero(name) || has_zero(value)) {
        return Err(CommandError::ZeroByte("the environment"));
    }
    Ok(command)
}

/// Where native libraries are sought: the working directory, then where the task tracker seeks.
pub(super) fn library_path(
    work: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> (String, String) {
    const LIBRARIES: &str = "LD_LIBRARY_PATH";
    let libraries = match variable(LIBRARIES) {
        None => work.display().to_string(),
        Some(others) => format!("{}:{others}", work.display()),
    };
    (LIBRARIES.to_owned(), libraries)
}

struct Builder<'a> {
    attempt: &'a LocalAttempt,
    conf: &'a JobConf,
    launch: &'a Launch<'a>,
}

impl Builder<'_> {
    /// The line for the shell, which becomes the task: its process keeps its number.
    fn line(&self, words: &[String]) -> String {
        let mut line = String::from(" export JVM_PID=`echo $$` ; ");
        if let Some(limit) = self.ulimit() {
            line.push_str(&format!("'ulimit' '-v' '{limit}' ;"));
        }
        line.push_str("exec ");
        line.push_str(&words.join(" "));
        let log = |name| shell_word(&self.launch.task_log_dir.join(name).display().to_string());
        line.push_str(&format!("  < /dev/null  1>> {} 2>> {}", log("stdout"), log("stderr")));
        line
    }

    /// The words of a Java task, quoted.
    fn java(&self) -> Vec<String> {
        let launch = self.launch;
        let mut words = self.nice();
        words.push(shell_word(&launch.install.java.display().to_string()));
        let libraries = self.library_path();
        let mut options = self.java_options();
        let own_libraries =
            options.iter_mut().find(|option| option.starts_with("-Djava.library.path="));
        match own_libraries {
            Some(option) => option.push_str(&format!(":{libraries}")),
            None => words.push(shell_word(&format!("-Djava.library.path={libraries}"))),
        }
        let archive = self.archive(&options);
        if let Some(archive) = &archive {
            words.extend(archive_options(archive).map(|option| shell_word(&option)));
            if !options.iter().any(|option| is_of_compilation(option)) {
                words.extend(self.compilation().iter().copied().map(shell_word));
            }
        }
        words.extend(as_the_original_quotes(&options));
        let temporary_dir = self.temporary_dir();
        words.push(shell_word(&format!("-Djava.io.tmpdir={}", temporary_dir.display())));
        words.push(shell_word("-classpath"));
        let system = archive.map(|archive| archive.class_path.clone());
        words.push(shell_word(&self.class_path(system)));
        words.push(shell_word(&format!("-Dhadoop.log.dir={}", launch.log_dir.display())));
        words.push(shell_word("-Dhadoop.root.logger=INFO,TLA"));
        words.push(shell_word(&format!("-Dhadoop.tasklog.taskid={}", self.attempt.id)));
        let limit_bytes = self.conf.number(&keys::JOB_LOG_LIMIT).unwrap_or(0).saturating_mul(1024);
        words.push(shell_word(&format!("-Dhadoop.tasklog.totalLogFileSize={limit_bytes}")));
        if let Some(option) = profile::option(self.conf, self.attempt.is_map, launch.task_log_dir) {
            words.push(shell_word(&option));
        }
        words.push(shell_word(&self.conf.text(&keys::JOB_CHILD_CLASS)));
        words.push(shell_word(&launch.umbilical.ip().to_string()));
        words.push(shell_word(&launch.umbilical.port().to_string()));
        words.push(shell_word(self.attempt.id.as_str()));
        words.push(shell_word(&launch.jvm_number.to_string()));
        words
    }

    /// The words of the job's own program, quoted.
    fn program(&self, program: &str) -> Vec<String> {
        let mut words = self.nice();
        let program = program.replace("@taskid@", self.attempt.id.as_str());
        words.extend(program.split_whitespace().map(shell_word));
        words
    }

    /// Whether the task runs without Java. A job that asks for that and cannot have it learns why from the
    /// task; any other job that native tasks cannot run is one for Java.
    fn is_native(&self) -> Result<bool, CommandError> {
        let is_marked = NativeJob::is_marked(self.conf);
        Ok(match self.launch.install.native.allowed {
            NativeTasks::None if is_marked => return Err(CommandError::NativeNotAllowed),
            NativeTasks::None => false,
            NativeTasks::Jobs => is_marked,
            NativeTasks::Streaming => {
                is_marked || (self.launch.is_input_native && NativeJob::of(self.conf).is_ok())
            }
        })
    }

    /// The words of a native task, quoted.
    fn native(&self) -> Vec<String> {
        let mut words = self.nice();
        words.push(shell_word(&self.launch.install.native.program.display().to_string()));
        words.push(shell_word(NATIVE_TASK));
        words
    }

    /// The start of a native task without a shell, which takes milliseconds; none if a limit or a priority
    /// is to be set before.
    fn native_without_shell(&self) -> Option<DirectCommand> {
        if self.ulimit().is_some() || !self.nice().is_empty() {
            return None;
        }
        let log = |file: LogFile| self.launch.task_log_dir.join(file.file_name());
        Some(DirectCommand {
            program: self.launch.install.native.program.clone(),
            arguments: vec![NATIVE_TASK.to_owned()],
            stdout: log(LogFile::Stdout),
            stderr: log(LogFile::Stderr),
        })
    }

    /// The words that lower the priority.
    fn nice(&self) -> Vec<String> {
        match self.conf.text(&keys::JOB_NICE_LEVEL).parse::<i32>() {
            Ok(level) => ["nice", "-n", &level.to_string()].map(shell_word).to_vec(),
            Err(_) => Vec::new(),
        }
    }

    fn java_options(&self) -> Vec<String> {
        let of_kind = match self.attempt.kind {
            TaskKind::Work => Some(self.conf.text(&keys::JOB_JAVA_OPTIONS)),
            TaskKind::JobSetup => self.conf.text_if_set(&keys::JOB_SETUP_JAVA_OPTIONS),
            TaskKind::JobCleanup => self.conf.text_if_set(&keys::JOB_CLEANUP_JAVA_OPTIONS),
            TaskKind::AttemptCleanup => self.conf.text_if_set(&keys::JOB_TASK_CLEANUP_JAVA_OPTIONS),
        };
        let of_type = self.by_type(&keys::JOB_MAP_JAVA_OPTIONS, &keys::JOB_REDUCE_JAVA_OPTIONS);
        let options = of_type.or(of_kind).unwrap_or_else(|| DEFAULT_JAVA_OPTIONS.to_owned());
        let admin = self.conf.text(&keys::JOB_ADMIN_JAVA_OPTIONS);
        let all = format!("{options} {admin}").replace("@taskid@", self.attempt.id.as_str());
        all.split(' ').filter(|option| !option.is_empty()).map(str::to_owned).collect()
    }

    /// The value that a job sets for maps or for reduces.
    fn by_type(&self, map: &keys::Key, reduce: &keys::Key) -> Option<String> {
        self.conf.text_if_set(if self.attempt.is_map { map } else { reduce })
    }

    fn ulimit(&self) -> Option<i64> {
        let key =
            if self.attempt.is_map { &keys::JOB_MAP_ULIMIT } else { &keys::JOB_REDUCE_ULIMIT };
        let limit = self.conf.number(key).or_else(|| self.conf.number(&keys::JOB_ULIMIT));
        limit.filter(|limit| *limit >= 0)
    }

    fn library_path(&self) -> String {
        let work = self.attempt.work.display();
        match &*self.launch.install.library_path {
            "" => work.to_string(),
            libraries => format!("{libraries}:{work}"),
        }
    }

    fn temporary_dir(&self) -> PathBuf {
        // Only for looks: ./tmp and tmp are the same directory.
        let configured = self.conf.text(&keys::JOB_TEMPORARY_DIR);
        self.attempt.work.join(configured.strip_prefix("./").unwrap_or(&configured))
    }

    /// The archive of the classes of the install, if the class path of the task begins with it and no
    /// option is in its way.
    fn archive(&self, options: &[String]) -> Option<Arc<ClassArchive>> {
        let is_in_the_way =
            |option: &String| OPTIONS_WITHOUT_ARCHIVE.iter().any(|part| option.contains(part));
        let is_usable = !self.conf.is_true(&keys::JOB_USER_CLASSES_FIRST)
            && !self.conf.is_true(&keys::JOB_PROFILE)
            && self.conf.text_if_set(&keys::JOB_DEBUG_CLASS_PATH).is_none()
            && !options.iter().any(is_in_the_way);
        if is_usable { (self.launch.archive)() } else { None }
    }

    /// The options that limit what Java compiles. A process that only sets a job up, or cleans up after an
    /// attempt, is short, as is one whose task does what earlier ones did in a short time. Cleaning up
    /// after a job may be long, as may be any further task of the process.
    fn compilation(&self) -> &'static [&'static str] {
        let is_short = match self.attempt.kind {
            TaskKind::JobSetup | TaskKind::AttemptCleanup => true,
            TaskKind::Work => self.launch.is_work_short,
            TaskKind::JobCleanup => false,
        };
        let has_one_task = self.conf.number(&keys::JOB_REUSE) == Some(1);
        if is_short && has_one_task { &COMPILATION_OF_SHORT } else { &COMPILATION }
    }

    /// Every part has a colon before it, as the original's have. `system` takes the place of the class
    /// path of the install.
    fn class_path(&self, system_path: Option<String>) -> String {
        let mut system = Vec::new();
        system.extend(self.conf.text_if_set(&keys::JOB_DEBUG_CLASS_PATH));
        system.push(system_path.unwrap_or_else(|| self.launch.install.class_path.clone()));
        let mut own: Vec<String> = Vec::new();
        let shown = |path: &Path| path.display().to_string();
        if let Some(jars) = self.attempt.jar.as_deref().and_then(Path::parent) {
            own.extend(self.launch.jar_libraries.iter().map(|library| shown(library)));
            own.push(shown(&jars.join("classes")));
            own.push(shown(jars));
        }
        own.extend(self.attempt.cached_classes.iter().map(|path| shown(path)));
        own.push(shown(&self.attempt.work));
        let parts = match self.conf.is_true(&keys::JOB_USER_CLASSES_FIRST) {
            true => [own, system],
            false => [system, own],
        };
        parts.concat().iter().map(|part| format!(":{part}")).collect()
    }

    fn environment(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, CommandError> {
        let mut environment = vec![library_path(&self.attempt.work, variable)];
        let user = self
            .by_type(&keys::JOB_MAP_ENVIRONMENT, &keys::JOB_REDUCE_ENVIRONMENT)
            .unwrap_or_else(|| self.conf.text(&keys::JOB_ENVIRONMENT));
        for setting in user.trim_end_matches(',').split(',').filter(|_| !user.is_empty()) {
            let (name, value) = setting
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| CommandError::Environment(user.clone()))?;
            let known = environment.iter().find(|(known, _)| known == name);
            let before = known.map(|(_, value)| value.clone()).or_else(|| variable(name));
            let value = value.replace(&format!("${name}"), &before.unwrap_or_default());
            environment.retain(|(known, _)| known != name);
            environment.push((name.to_owned(), value));
        }
        Ok(environment)
    }

    /// The environment of a program that gets no additional arguments: properties under the names
    /// that Hadoop Streaming uses, and the address to report to.
    fn for_programs(&self) -> Vec<(String, String)> {
        let mut variables: Vec<(String, String)> = [
            "mapred.task.id",
            "mapred.tip.id",
            "mapred.task.is.map",
            "mapred.task.partition",
            "mapred.job.id",
            "job.local.dir",
            "mapred.local.dir",
        ]
        .into_iter()
        .filter_map(|name| Some((name.replace('.', "_"), self.conf.get(name)?)))
        .collect();
        let own = [
            ("CORONA_UMBILICAL", self.launch.umbilical.to_string()),
            ("CORONA_JVM_NUMBER", self.launch.jvm_number.to_string()),
            ("CORONA_JOB_XML", self.attempt.job_xml.display().to_string()),
        ];
        variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
        variables
    }
}

/// The options of Java that use an archive. It is ignored where it does not fit, without a word: tasks
/// have their output for themselves.
fn archive_options(archive: &ClassArchive) -> [String; 3] {
    let file = format!("-XX:SharedArchiveFile={}", archive.file.display());
    ["-Xshare:auto".to_owned(), file, "-Xlog:cds*=off".to_owned()]
}

/// Whether an option says what Java compiles, and when.
fn is_of_compilation(option: &str) -> bool {
    ["Tier", "Compil", "JVMCI", "-Xint", "-Xcomp"].iter().any(|part| option.contains(part))
}

/// Words in single quotes, quotes in them left as they are: the original does it so, and options
/// with quotes of their own, with blanks between them, rely on it. Where the line would not end as it
/// began they are quoted in full.
fn as_the_original_quotes(words: &[String]) -> Vec<String> {
    let quotes: usize = words.iter().map(|word| word.matches('\'').count()).sum();
    match quotes % 2 {
        0 => words.iter().map(|word| format!("'{word}'")).collect(),
        _ => words.iter().map(|word| shell_word(word)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localise::tests::conf;
    use crate::table::Keep;

    fn attempt(properties: &[(&str, &str)], kind: TaskKind, is_map: bool) -> LocalAttempt {
        LocalAttempt {
            id: "attempt_20.1_0001_m_000000_0".parse().unwrap(),
            kind,
            is_map,
            work: "/l/A/work".into(),
            job_xml: "/l/A/job.xml".into(),
            conf: conf(properties),
            jar: None,
            cached_classes: Vec::new(),
            held: Vec::new(),
            keep: Keep::Nothing,
        }
    }

    fn built(attempt: &LocalAttempt, libraries: &[PathBuf]) -> Result<ChildCommand, CommandError> {
        built_where(attempt, libraries, NativeTasks::None, true)
    }

    fn built_where(
        attempt: &LocalAttempt,
        libraries: &[PathBuf],
        allowed: NativeTasks,
        is_input_native: bool,
    ) -> Result<ChildCommand, CommandError> {
        built_with(attempt, libraries, allowed, is_input_native, &|| None, false)
    }

    fn built_with(
        attempt: &LocalAttempt,
        libraries: &[PathBuf],
        allowed: NativeTasks,
        is_input_native: bool,
        archive: &dyn Fn() -> Option<Arc<ClassArchive>>,
        is_work_short: bool,
    ) -> Result<ChildCommand, CommandError> {
        let install = Install {
            java: "/jdk/bin/java".into(),
            class_path: "/conf:/core.jar".into(),
            library_path: "/usr/lib".into(),
            native: Native { program: "/bin/corona".into(), allowed },
        };
        let launch = Launch {
            install: &install,
            log_dir: Path::new("/logs"),
            task_log_dir: Path::new("/logs/userlogs/A"),
            umbilical: "127.0.0.1:35789".parse().unwrap(),
            jvm_number: -1_483_528_459,
            jar_libraries: libraries,
            is_work_short,
            is_input_native,
            archive,
        };
        command(attempt, &launch, &|name| match name {
            "LD_LIBRARY_PATH" => Some("/old".into()),
            "PATH" => Some("/bin".into()),
            _ => None,
        })
    }

    /// The words that the shell would hand to `exec`, without their surroundings.
    fn words(properties: &[(&str, &str)], kind: TaskKind, is_map: bool) -> String {
        let line = built(&attempt(properties, kind, is_map), &[]).unwrap().line;
        let (_, words) = line.split_once("exec ").unwrap();
        words.split_once("  < /dev/null").unwrap().0.to_owned()
    }

    #[test]
    fn native_tasks_run_where_an_operator_allows_them() {
        let marked = &[("corona.task.native", "true")][..];
        let streaming = &[
            ("mapred.mapper.class", "org.apache.hadoop.streaming.PipeMapper"),
            ("stream.map.streamprocessor", "cat"),
            ("mapred.reduce.tasks", "0"),
        ][..];
        let java = &[("mapred.mapper.class", "com.x.Mapper")][..];
        let own = &[("corona.task.native", "true"), ("corona.task.command", "/bin/true")][..];
        let (none, jobs, all) = (NativeTasks::None, NativeTasks::Jobs, NativeTasks::Streaming);
        for (properties, allowed, is_readable, expected) in [
            (marked, none, true, None),
            (marked, jobs, false, Some("'/bin/corona' 'task-child'")),
            (marked, all, false, Some("'/bin/corona' 'task-child'")),
            (streaming, none, true, Some("'/jdk/bin/java'")),
            (streaming, jobs, true, Some("'/jdk/bin/java'")),
            (streaming, all, true, Some("'/bin/corona' 'task-child'")),
            (streaming, all, false, Some("'/jdk/bin/java'")),
            (java, all, true, Some("'/jdk/bin/java'")),
            (own, none, true, Some("'/bin/true'")),
        ] {
            let attempt = attempt(properties, TaskKind::Work, true);
            let child = built_where(&attempt, &[], allowed, is_readable);
            match (child, expected) {
                (Ok(child), Some(words)) => {
                    assert!(child.line.contains(&format!("exec {words} ")), "{}", child.line);
                    let knows_node =
                        child.environment.iter().any(|(name, _)| name == "CORONA_UMBILICAL");
                    assert_eq!(knows_node, !words.contains("java"), "{properties:?}");
                }
                (Err(error), None) => assert_eq!(error, CommandError::NativeNotAllowed),
                (child, _) => panic!("{properties:?} {allowed:?}: {child:?}"),
            }
        }
    }

    #[test]
    fn the_line_is_that_of_the_original() {
        let child = built(&attempt(&[("mapred.userlog.limit.kb", "0")], TaskKind::Work, true), &[]);
        let child = child.unwrap();
        let expected = " export JVM_PID=`echo $$` ; exec '/jdk/bin/java' \
            '-Djava.library.path=/usr/lib:/l/A/work' '-Xmx200m' '-Djava.io.tmpdir=/l/A/work/tmp' \
            '-classpath' ':/conf:/core.jar:/l/A/work' '-Dhadoop.log.dir=/logs' \
            '-Dhadoop.root.logger=INFO,TLA' '-Dhadoop.tasklog.taskid=attempt_20.1_0001_m_000000_0' \
            '-Dhadoop.tasklog.totalLogFileSize=0' 'org.apache.hadoop.mapred.CoronaChild' \
            '127.0.0.1' '35789' 'attempt_20.1_0001_m_000000_0' '-1483528459'  < /dev/null  \
            1>> '/logs/userlogs/A/stdout' 2>> '/logs/userlogs/A/stderr'";
        assert_eq!(child.line, expected);
        assert_eq!(child.work, Path::new("/l/A/work"));
        assert_eq!(child.directories, ["/l/A/work", "/l/A/work/tmp"].map(PathBuf::from));
        assert_eq!(child.environment, [("LD_LIBRARY_PATH".into(), "/l/A/work:/old".into())]);
    }

    #[test]
    fn with_an_archive_java_compiles_later_unless_the_job_says_when() {
        let archive =
            ClassArchive { file: "/l/a.jsa".into(), class_path: "/core.jar:/conf".into() };
        let archive = Arc::new(archive);
        let with_archive = |options: &str| {
            let attempt = attempt(&[("mapred.child.java.opts", options)], TaskKind::Work, true);
            let get = || Some(archive.clone());
            built_with(&attempt, &[], NativeTasks::None, true, &get, false).unwrap().line
        };
        let line = with_archive("-Xmx1g");
        let all = "'-Xshare:auto' '-XX:SharedArchiveFile=/l/a.jsa' '-Xlog:cds*=off' \
            '-XX:Tier3InvocationThreshold=800' '-XX:Tier3MinInvocationThreshold=400' \
            '-XX:Tier3CompileThreshold=8000' '-XX:Tier4InvocationThreshold=20000' \
            '-XX:Tier4MinInvocationThreshold=2400' '-XX:Tier4CompileThreshold=60000' '-Xmx1g'";
        assert!(line.contains(all), "{line}");
        assert!(line.contains("'-classpath' ':/core.jar:/conf:/l/A/work'"), "{line}");
        for own in ["-XX:TieredStopAtLevel=1", "-Xint", "-XX:CompileThreshold=9", "-Xcomp"] {
            let line = with_archive(own);
            assert!(line.contains("a.jsa") && !line.contains("Tier3"), "{line}");
        }
        let line = with_archive("-Xshare:off");
        assert!(!line.contains("a.jsa") && !line.contains("Tier3"), "{line}");
    }

    #[test]
    fn a_process_that_is_short_gets_the_quick_compiler_only() {
        let archive = ClassArchive { file: "/l/a.jsa".into(), class_path: "/core.jar".into() };
        let archive = Arc::new(archive);
        let is_quick_if = |is_work_short, kind, properties: &[(&str, &str)]| {
            let get = || Some(archive.clone());
            let attempt = attempt(properties, kind, true);
            let line = built_with(&attempt, &[], NativeTasks::None, true, &get, is_work_short);
            let line = line.unwrap().line;
            assert_ne!(line.contains("TieredStopAtLevel=1"), line.contains("Tier3"), "{line}");
            line.contains("'-XX:TieredStopAtLevel=1'")
        };
        let is_quick = |kind, properties: &_| is_quick_if(false, kind, properties);
        assert!(is_quick(TaskKind::JobSetup, &[]));
        assert!(is_quick(TaskKind::AttemptCleanup, &[]));
        assert!(!is_quick(TaskKind::JobCleanup, &[]), "its committer may have much to do");
        assert!(!is_quick(TaskKind::Work, &[]));
        assert!(is_quick_if(true, TaskKind::Work, &[]), "earlier ones were short");
        assert!(!is_quick_if(true, TaskKind::JobCleanup, &[]));
        for reuse in ["-1", "2"] {
            let reuse = ("mapred.job.reuse.jvm.num.tasks", reuse);
            assert!(!is_quick_if(true, TaskKind::Work, &[reuse]), "further tasks may be long");
            assert!(!is_quick(TaskKind::JobSetup, &[reuse]), "further tasks may be long");
        }
    }

    #[test]
    fn java_options() {
        let all = [
            ("mapred.child.java.opts", "-A"),
            ("mapred.jobsetup.child.java.opts", "-S"),
            ("mapred.admin.child.java.opts", " -Dt=@taskid@  -Z "),
        ];
        let admin = "'-Dt=attempt_20.1_0001_m_000000_0' '-Z'";
        let reduce = ("mapred.reduce.child.java.opts", "-R -Djava.library.path=/x");
        let quotes = ("mapred.child.java.opts", "-XX:OnError='kill -9 %p' -B");
        let odd = ("mapred.child.java.opts", "-D'=x y");
        type Case<'a> = (&'a [(&'a str, &'a str)], TaskKind, bool, String);
        let cases: [Case<'_>; 7] = [
            (&all, TaskKind::Work, true, format!("'-A' {admin} ")),
            (&all, TaskKind::JobSetup, true, format!("'-S' {admin} ")),
            (&all, TaskKind::JobCleanup, false, format!("'-Xmx200m' {admin} ")),
            (&all[..1], TaskKind::AttemptCleanup, true, "'-Xmx200m' '-Djava.io".into()),
            (
                &[all[0], reduce],
                TaskKind::JobSetup,
                false,
                "'/jdk/bin/java' '-R' '-Djava.library.path=/x:/usr/lib:/l/A/work' '-Djava.io"
                    .into(),
            ),
            (&[quotes], TaskKind::Work, true, "'-XX:OnError='kill' '-9' '%p'' '-B' '-D".into()),
            (&[odd], TaskKind::Work, true, r"'-D'\''=x' 'y' ".into()),
        ];
        for (properties, kind, is_map, expected) in cases {
            let words = words(properties, kind, is_map);
            assert!(words.contains(&expected), "{expected}\n{words}");
        }
    }

    #[test]
    fn class_paths() {
        let path = |properties: &[(&str, &str)]| {
            let mut attempt = attempt(properties, TaskKind::Work, true);
            attempt.jar = Some("/l/jars/job.jar".into());
            attempt.cached_classes = vec!["/l/c.zip".into(), "/l/d.jar".into()];
            let libraries = ["/l/jars/lib/a.jar", "/l/jars/lib/b.jar"].map(PathBuf::from);
            let line = built(&attempt, &libraries).unwrap().line;
            let (_, path) = line.split_once("'-classpath' '").unwrap();
            path.split_once('\'').unwrap().0.to_owned()
        };
        let own = ":/l/jars/lib/a.jar:/l/jars/lib/b.jar:/l/jars/classes:/l/jars:/l/c.zip:/l/d.jar:/l/A/work";
        assert_eq!(path(&[]), format!(":/conf:/core.jar{own}"));
        let debug = ("mapred.task.debug.runtime.classpath", "/debug");
        let first = ("mapreduce.job.user.classpath.first", "true");
        assert_eq!(path(&[debug, first]), format!("{own}:/debug:/conf:/core.jar"));
    }

    #[test]
    fn limits_and_priorities() {
        let line = |properties: &[(&str, &str)], is_map| {
            built(&attempt(properties, TaskKind::Work, is_map), &[]).unwrap().line
        };
        let all = [("mapred.child.ulimit", "1000"), ("mapred.map.child.ulimit", "2000")];
        assert!(line(&all, true).contains("; 'ulimit' '-v' '2000' ;exec "));
        assert!(line(&all, false).contains("; 'ulimit' '-v' '1000' ;exec "));
        assert!(!line(&[("mapred.child.ulimit", "-1")], true).contains("ulimit"));
        assert!(
            line(&[("mapred.task.nicelevel", "5")], true).contains("exec 'nice' '-n' '5' '/jdk")
        );
        assert!(!line(&[("mapred.task.nicelevel", "; rm")], true).contains("nice"));
    }

    #[test]
    fn variables_of_the_job() {
        let with = |value: &str| {
            let child = built(&attempt(&[("mapred.child.env", value)], TaskKind::Work, true), &[])?;
            let pairs = child.environment.iter().map(|(name, value)| format!("{name}={value}"));
            Ok::<_, CommandError>(pairs.collect::<Vec<_>>().join(" "))
        };
        let base = "LD_LIBRARY_PATH=/l/A/work:/old";
        let cases = [
            ("A=1", format!("{base} A=1")),
            ("A=1,B=$A:2,", format!("{base} A=1 B=$A:2")),
            ("PATH=/x:$PATH,N=$N:1", format!("{base} PATH=/x:/bin N=:1")),
            ("LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/y", format!("{base}:/y")),
            ("A=b=c", format!("{base} A=b=c")),
            ("A=", format!("{base} A=")),
        ];
        for (value, expected) in cases {
            assert_eq!(with(value).unwrap(), expected, "{value}");
        }
        for value in ["A", "A=1,,B=2", "=1"] {
            let told = with(value).unwrap_err().to_string();
            assert!(told.starts_with(&format!("Invalid User environment settings : {value}. ")));
        }
        assert_eq!(with("A=\0"), Err(CommandError::ZeroByte("the environment")));
        let maps = [("mapred.map.child.env", "M=1"), ("mapred.child.env", "A=1")];
        let child = built(&attempt(&maps, TaskKind::Work, true), &[]).unwrap();
        assert_eq!(child.environment[1], ("M".into(), "1".into()));
    }

    #[test]
    fn a_program_of_the_job_runs_instead_of_java() {
        let properties =
            [("corona.task.command", "/bin/wc -l @taskid@"), ("mapred.job.id", "job_20.1_0001")];
        assert_eq!(
            words(&properties, TaskKind::Work, true),
            "'/bin/wc' '-l' 'attempt_20.1_0001_m_000000_0'"
        );
        let child = built(&attempt(&properties, TaskKind::Work, true), &[]).unwrap();
        for (name, value) in [
            ("mapred_job_id", "job_20.1_0001"),
            ("CORONA_UMBILICAL", "127.0.0.1:35789"),
            ("CORONA_JVM_NUMBER", "-1483528459"),
            ("CORONA_JOB_XML", "/l/A/job.xml"),
        ] {
            assert!(child.environment.contains(&(name.into(), value.into())), "{name}");
        }
    }

    #[test]
    fn a_native_task_has_a_shell_only_where_it_needs_one() {
        let direct = |more: &[(&str, &str)]| {
            let own = [("corona.task.native", "true")];
            let attempt = attempt(&[&own, more].concat(), TaskKind::Work, true);
            built_where(&attempt, &[], NativeTasks::Jobs, true).unwrap().direct
        };
        let expected = DirectCommand {
            program: "/bin/corona".into(),
            arguments: vec!["task-child".to_owned()],
            stdout: "/logs/userlogs/A/stdout".into(),
            stderr: "/logs/userlogs/A/stderr".into(),
        };
        assert_eq!(direct(&[]), Some(expected));
        assert_eq!(direct(&[("mapred.child.ulimit", "1000")]), None);
        assert_eq!(direct(&[("mapred.task.nicelevel", "5")]), None);
        let program = attempt(&[("corona.task.command", "/bin/wc")], TaskKind::Work, true);
        assert_eq!(built(&program, &[]).unwrap().direct, None);
        assert_eq!(built(&attempt(&[], TaskKind::Work, true), &[]).unwrap().direct, None);
    }

    #[test]
    fn a_native_task_is_told_where_its_profile_belongs() {
        let told = |partition: &str| {
            let properties = [
                ("corona.task.native", "true"),
                ("mapred.task.profile", "true"),
                ("mapred.task.partition", partition),
            ];
            let attempt = attempt(&properties, TaskKind::Work, true);
            let child = built_where(&attempt, &[], NativeTasks::Jobs, true).unwrap();
            assert!(!child.line.contains("hprof"), "{}", child.line);
            child.environment.into_iter().find(|(name, _)| name == profile::FILE)
        };
        assert_eq!(told("2").unwrap().1, "/logs/userlogs/A/profile.out");
        assert_eq!(told("3"), None);
    }

    /// Each key of options, limits and variables, the kind of task that it is for, and a word of the
    /// command line or a variable that follows from it. Other tasks do not have it.
    #[test]
    fn options_limits_and_variables_go_by_the_kind_of_task() {
        use TaskKind::{AttemptCleanup, JobCleanup, JobSetup, Work};
        let tasks = [
            (Work, true),
            (Work, false),
            (JobSetup, true),
            (JobCleanup, true),
            (AttemptCleanup, true),
        ];
        type Case<'a> = (&'a str, &'a str, &'a str, fn(TaskKind, bool) -> bool);
        let cases: [Case<'_>; 12] = [
            ("mapred.child.java.opts", "-Done", "'-Done'", |kind, _| kind == Work),
            ("mapred.map.child.java.opts", "-Done", "'-Done'", |_, is_map| is_map),
            ("mapred.reduce.child.java.opts", "-Done", "'-Done'", |_, is_map| !is_map),
            ("mapred.jobsetup.child.java.opts", "-Done", "'-Done'", |kind, _| kind == JobSetup),
            ("mapred.jobcleanup.child.java.opts", "-Done", "'-Done'", |kind, _| kind == JobCleanup),
            ("mapred.taskcleanup.child.java.opts", "-Done", "'-Done'", |kind, _| {
                kind == AttemptCleanup
            }),
            ("mapred.map.child.ulimit", "77", "'-v' '77'", |_, is_map| is_map),
            ("mapred.reduce.child.ulimit", "77", "'-v' '77'", |_, is_map| !is_map),
            ("mapred.map.child.env", "SEVEN=7", "SEVEN=7", |_, is_map| is_map),
            ("mapred.reduce.child.env", "SEVEN=7", "SEVEN=7", |_, is_map| !is_map),
            ("mapred.child.tmp", "./seven", "'-Djava.io.tmpdir=/l/A/work/seven'", |_, _| true),
            ("mapred.taskrunner.child.class", "a.Seven", "'a.Seven'", |_, _| true),
        ];
        for (key, value, expected, applies) in cases {
            for (kind, is_map) in tasks {
                let child = built(&attempt(&[(key, value)], kind, is_map), &[]).unwrap();
                let variables =
                    child.environment.iter().map(|(name, value)| format!("{name}={value}"));
                let all = format!("{} {}", child.line, variables.collect::<Vec<_>>().join(" "));
                let is_there = all.contains(expected);
                assert_eq!(is_there, applies(kind, is_map), "{key} {kind:?} {is_map}\n{all}");
            }
        }
    }

    #[test]
    fn any_path_is_one_word() {
        let mut strange = attempt(&[], TaskKind::Work, true);
        strange.work = "/l/it's $(here)".into();
        let line = built(&strange, &[]).unwrap().line;
        assert!(line.contains(r"'-Djava.io.tmpdir=/l/it'\''s $(here)/tmp'"), "{line}");
    }
}
