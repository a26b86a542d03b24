//! The task tracker's settings, and how they come from the keys.
//!
//! Settings of a job for its tasks are in [`JobConf`](super::JobConf). It reads no file.

use std::path::PathBuf;
use std::time::Duration;

use super::access::TlsSettings;
use super::keys;
use super::problem::{ConfigErrors, ProblemKind};
use super::service::LoadedService;
use super::settings::SettingsReader;
use super::typed::{self, HostPort, Wrong};
use super::{InForce, Source, web};
use corona_model::settings::Partitioning;

/// Everything that the task tracker can be configured with.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTrackerSettings {
    /// Whether TLS is spoken.
    pub tls: TlsSettings,
    /// The cluster manager's Thrift service.
    pub cluster_manager: HostPort,
    /// Where its pages are, as this configuration has it.
    pub cluster_manager_pages: HostPort,
    /// Where the proxy job tracker shows finished jobs; `None` if that is not configured.
    pub finished_jobs: Option<HostPort>,
    /// The proxy job tracker's Thrift service, which reports the end of safe mode.
    pub proxy_job_tracker: HostPort,
    /// Slots by CPU count.
    pub partitioning: Partitioning,
    /// Tasks that are run at a time, in times of the slots, at least 1.
    pub slot_multiplier: u32,
    /// Pause between heartbeats to the cluster manager.
    pub heartbeat_interval: Duration,
    /// How long a connection to its Thrift service may be silent; zero is forever.
    pub callback_timeout: Duration,
    /// The port for the orders of job trackers; 0 for any.
    pub action_port: u16,
    /// The port of the service for the cluster manager; 0 for any.
    pub callback_port: u16,
    /// Whether that service listens on the address of the host alone.
    pub callbacks_on_host_only: bool,
    /// Without an answer of the cluster manager for longer than this it has forgotten the node.
    pub node_expiry: Duration,
    /// CPUs that are reported; `None`: counted.
    pub num_cpus: Option<i16>,
    /// The name under which others reach this machine; `None`: its host name.
    pub host: Option<String>,
    /// How map output, task logs and pages are served.
    pub http: TrackerHttpSettings,
    /// Connections that each of the two servers for calls holds at most.
    pub rpc_max_connections: usize,
    /// Bytes of unfinished calls that each of the two servers for calls holds at most.
    pub rpc_max_total_inflight_bytes: usize,
    /// What a restart in place hands over at most, in bytes.
    pub handover_max_bytes: usize,
    /// Where tasks report to.
    pub report_address: HostPort,
    /// The reports to job trackers.
    pub job_trackers: JobTrackerSettings,
    /// Where files of tasks lie.
    pub local: LocalSettings,
    /// How files of jobs are fetched.
    pub files: JobFileSettings,
    /// Settings common to all tasks.
    pub child: ChildSettings,
    /// How remote job trackers are run; `None`: not at all.
    pub remote_job_trackers: Option<RemoteJobTrackerSettings>,
    /// How logs of tasks are kept.
    pub logs: TaskLogSettings,
    /// How the memory of tasks is looked after.
    pub memory: MemorySettings,
    /// How the kernel limits tasks; `None`: not at all.
    pub cgroups: Option<CgroupSettings>,
    /// The health script; `None`: there is none.
    pub health: Option<HealthSettings>,
    /// Memory for the indexes of map output, in bytes.
    pub index_cache_bytes: u64,
}

/// How map output, task logs and pages are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerHttpSettings {
    /// Where.
    pub address: HostPort,
    /// Connections that may be open at a time.
    pub max_connections: usize,
    /// Those of one peer among them.
    pub max_connections_per_peer: usize,
    /// Threads that read disks and make pages for peers.
    pub threads: usize,
    /// How long a peer may leave written data unread.
    pub write_timeout: Duration,
    /// Further names under which it is served; `*` for every name.
    pub hosts: Vec<Box<str>>,
}

/// The reports to job trackers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTrackerSettings {
    /// How long the first connection to one is tried.
    pub connect_timeout: Duration,
    /// Whether news are reported at once, and not with the next heartbeat.
    pub out_of_band: bool,
    /// The build that they must be of; `None`: any.
    pub build_version: Option<String>,
}

/// Where files of tasks lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// The local directories, at least one, best one a disk.
    pub dirs: Vec<PathBuf>,
    /// A new task is only taken when one of them has more free bytes than this.
    pub min_space_start_bytes: u64,
    /// Free bytes that each must keep for a new task, at most a twentieth of its file system.
    pub reserved_bytes: u64,
    /// Tasks are killed when none of them has; `None`: never.
    pub min_space_kill_bytes: Option<u64>,
    /// Bytes of the distributed cache in one of them above which unused files are deleted.
    pub cache_bytes: u64,
    /// The same by number.
    pub cache_entries: usize,
}

/// How files of jobs are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileSettings {
    /// The directory of jobs' files, as a URI or a path in the default file system.
    pub system_dir: String,
    /// The file system of paths that name none.
    pub default_fs: String,
    /// The program of a Hadoop install.
    pub hadoop_command: PathBuf,
    /// Time for the copy of one file.
    pub timeout: Duration,
    /// The largest file that is copied.
    pub max_bytes: u64,
    /// The largest unpacked size of an archive.
    pub max_unpacked_bytes: u64,
    /// Files and directories that an archive may hold.
    pub max_unpacked_entries: usize,
}

/// Settings common to all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSettings {
    /// Where `bin/java` is; `None`: to be found otherwise.
    pub java_home: Option<PathBuf>,
    /// Class path of tasks, without the job's own; `None`: ask the Hadoop installation.
    pub class_path: Option<String>,
    /// Directories of native libraries, with colons between; may be empty.
    pub library_path: String,
    /// The time that a task has between SIGTERM and SIGKILL.
    pub sigkill_delay: Duration,
    /// Which jobs run without Java.
    pub native_tasks: NativeTasks,
    /// How long a process that may take a further task waits for one.
    pub jvm_idle: Duration,
    /// The time that a job's debug script has.
    pub debug_timeout: Duration,
    /// Whether processes of Java start with an archive of the classes of the install.
    pub class_archive: bool,
    /// The time for each of the two runs of Java that make it.
    pub class_archive_timeout: Duration,
    /// The processor time up to which a task of Java is short. 0: no task is.
    pub short_task: Duration,
}

/// Which jobs run without Java.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeTasks {
    /// None.
    #[default]
    None,
    /// Those that ask for it.
    Jobs,
    /// Also streaming jobs that native tasks can run.
    Streaming,
}

/// How remote job trackers are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteJobTrackerSettings {
    /// Which program is one.
    pub command: JobTrackerCommand,
    /// The build that they report to task trackers, if it is configured; else that of the Hadoop installation.
    pub build_version: Option<String>,
}

/// The program of a remote job tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTrackerCommand {
    /// This one.
    Own,
    /// The original's, in Java.
    Java,
    /// Another one, with its first arguments.
    Program(Vec<String>),
}

/// How logs of tasks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLogSettings {
    /// `hadoop.log.dir`; the logs are in `userlogs` below it.
    pub log_dir: PathBuf,
    /// A directory whose free space bounds the reported free space.
    pub task_log_dir: Option<PathBuf>,
    /// How long they are kept.
    pub retain: Duration,
    /// Pause between looks for those that are too old.
    pub cleanup_interval: Duration,
    /// Attempts whose logs are kept.
    pub max_attempts: usize,
    /// Bytes of stdout or stderr of a running task above which the older half is deleted.
    pub max_output_bytes: Option<u64>,
}

/// How the memory of tasks is looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// The most memory that the node has for tasks and reports; `None`: all that the machine has.
    pub most_bytes: Option<u64>,
    /// Bytes that tasks must leave free; `None`: not looked at.
    pub reserved_bytes: Option<u64>,
    /// Pause between looks.
    pub interval: Duration,
    /// Whether each task is limited to the memory that its job names, by the kernel if it can.
    pub is_strict: bool,
}

/// How the kernel limits tasks, by control groups of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupSettings {
    /// Whether it limits their memory.
    pub memory: bool,
    /// Whether it divides the CPUs by slots.
    pub cpu: bool,
    /// The directory below which groups are made; `None`: that of the task tracker's own group.
    pub root: Option<PathBuf>,
    /// The most that a task may use of one CPU for each of its slots, in percent; 0 for no limit.
    pub cpu_percent: u32,
}

/// The script that reports the health of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// The program.
    pub script: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Pause between two runs.
    pub interval: Duration,
    /// The time that it has.
    pub timeout: Duration,
}

/// A task tracker's configuration that can be used.
pub type LoadedTaskTracker = LoadedService<TaskTrackerSettings>;

impl Source<'_> {
    /// Reads the property files as a task tracker does. The errors are all that is wrong.
    /// Spec: mapreduce/04 §4.1, cluster-manager/06 §1.
    pub fn load_task_tracker(&self) -> Result<LoadedTaskTracker, ConfigErrors> {
        self.load_service(|reader| reader.read_task_tracker())
    }
}

const MIB: u64 = 1 << 20;

impl SettingsReader<'_> {
    pub(super) fn read_task_tracker(mut self) -> (TaskTrackerSettings, Vec<InForce>) {
        let settings = TaskTrackerSettings {
            tls: self.tls(),
            cluster_manager: self.value(&keys::SERVER_ADDRESS, typed::address),
            cluster_manager_pages: self.value(&keys::HTTP_ADDRESS, typed::address),
            finished_jobs: self.finished_jobs(),
            proxy_job_tracker: self.value(&keys::PROXY_JOB_TRACKER_THRIFT, typed::address),
            partitioning: self.partitioning(),
            slot_multiplier: self.number(&keys::TT_SLOT_MULTIPLIER),
            heartbeat_interval: self.span(&keys::TT_HEARTBEAT),
            callback_timeout: self.span(&keys::TT_CALLBACK_TIMEOUT),
            callback_port: self.number(&keys::TT_CALLBACK_PORT),
            action_port: self.number(&keys::TT_ACTION_PORT),
            callbacks_on_host_only: self.value(&keys::LOOPBACK_ONLY, typed::boolean),
            node_expiry: self.span(&keys::NODE_EXPIRY),
            num_cpus: self.is_set(&keys::TT_CPUS).then(|| self.number(&keys::TT_CPUS)),
            host: self.value(&keys::TT_HOST, typed::host),
            http: TrackerHttpSettings {
                address: self.value(&keys::TT_HTTP_ADDRESS, typed::address),
                max_connections: self.number(&keys::TT_HTTP_CONNECTIONS),
                max_connections_per_peer: self.number(&keys::TT_HTTP_PER_PEER),
                threads: self.number(&keys::TT_HTTP_THREADS),
                write_timeout: self.span(&keys::TT_HTTP_WRITE_TIMEOUT),
                hosts: self.value(&keys::TT_HTTP_HOSTS, web::hosts),
            },
            rpc_max_connections: self.number(&keys::TT_RPC_CONNECTIONS),
            rpc_max_total_inflight_bytes: self.number(&keys::TT_RPC_TOTAL),
            handover_max_bytes: self.number(&keys::TT_HANDOVER_BYTES),
            report_address: self.value(&keys::TT_REPORT_ADDRESS, typed::address),
            job_trackers: self.job_trackers(),
            local: LocalSettings {
                dirs: self.value(&keys::TT_LOCAL_DIRS, directories),
                min_space_start_bytes: self.number(&keys::TT_MIN_SPACE_START),
                reserved_bytes: self.number(&keys::TT_RESERVED_DISK),
                min_space_kill_bytes: self.number_or_off(&keys::TT_MIN_SPACE_KILL),
                cache_bytes: self.number(&keys::TT_CACHE_SIZE),
                cache_entries: self.number(&keys::TT_CACHE_ENTRIES),
            },
            files: JobFileSettings {
                system_dir: self.text(&keys::TT_SYSTEM_DIR),
                default_fs: self.text(&keys::TT_DEFAULT_FS),
                hadoop_command: self.text(&keys::TT_HADOOP_COMMAND).into(),
                timeout: self.span(&keys::TT_FETCH_TIMEOUT),
                max_bytes: self.number(&keys::TT_FETCH_MAX),
                max_unpacked_bytes: self.number(&keys::TT_UNPACK_MAX),
                max_unpacked_entries: self.number(&keys::TT_UNPACK_ENTRIES),
            },
            child: ChildSettings {
                java_home: self.path(&keys::TT_JAVA_HOME),
                class_path: Some(self.text(&keys::TT_CHILD_CLASS_PATH))
                    .filter(|path| !path.is_empty()),
                library_path: self.text(&keys::TT_LIBRARY_PATH),
                sigkill_delay: self.span(&keys::TT_SIGKILL_DELAY),
                native_tasks: self.value(&keys::TT_NATIVE_TASKS, |text| match text.trim() {
                    "none" => Ok(NativeTasks::None),
                    "jobs" => Ok(NativeTasks::Jobs),
                    "streaming" => Ok(NativeTasks::Streaming),
                    _ => Err(Wrong::new("is not one of the choices", "none, jobs or streaming")),
                }),
                jvm_idle: self.span(&keys::TT_JVM_IDLE),
                debug_timeout: self.span(&keys::TT_DEBUG_TIMEOUT),
                class_archive: self.value(&keys::TT_CLASS_ARCHIVE, typed::boolean),
                class_archive_timeout: self.span(&keys::TT_CLASS_ARCHIVE_TIMEOUT),
                short_task: self.span(&keys::TT_SHORT_TASK),
            },
            remote_job_trackers: self.remote_job_trackers(),
            logs: self.task_logs(),
            memory: MemorySettings {
                most_bytes: self.number_or_off(&keys::TT_MEMORY).map(|mib| mib * MIB),
                reserved_bytes: self.number_or_off(&keys::TT_RESERVED_MEMORY).map(|mib| mib * MIB),
                interval: self.span(&keys::TT_MEMORY_INTERVAL),
                is_strict: self.value(&keys::TT_CGROUP_MEMORY, typed::boolean),
            },
            cgroups: self.cgroups(),
            health: self.health(),
            index_cache_bytes: self.number::<u64>(&keys::TT_INDEX_CACHE) * MIB,
        };
        self.look_at_the_rest();
        (settings, self.in_force)
    }

    fn job_trackers(&mut self) -> JobTrackerSettings {
        let is_checked = self.value(&keys::TT_BUILD_CHECK, typed::boolean);
        let build = self.text(&keys::TT_BUILD_VERSION);
        JobTrackerSettings {
            connect_timeout: self.span(&keys::TT_JOB_TRACKER_TIMEOUT),
            out_of_band: self.value(&keys::TT_OUT_OF_BAND, typed::boolean),
            build_version: Some(build).filter(|build| is_checked && !build.is_empty()),
        }
    }

    fn remote_job_trackers(&mut self) -> Option<RemoteJobTrackerSettings> {
        let command = self.text(&keys::TT_JOB_TRACKER_COMMAND);
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let command = match command.as_slice() {
            [] => JobTrackerCommand::Own,
            [java] if java == "java" => JobTrackerCommand::Java,
            _ => JobTrackerCommand::Program(command),
        };
        let builds = [&keys::JT_BUILD_VERSION, &keys::TT_BUILD_VERSION].map(|key| self.text(key));
        let build_version = builds.into_iter().find(|build| !build.is_empty());
        self.value(&keys::TT_JOB_TRACKERS, typed::boolean)
            .then_some(RemoteJobTrackerSettings { command, build_version })
    }

    fn cgroups(&mut self) -> Option<CgroupSettings> {
        let settings = CgroupSettings {
            memory: self.value(&keys::TT_CGROUP_MEMORY, typed::boolean),
            cpu: self.value(&keys::TT_CGROUP_CPU, typed::boolean),
            root: self.path(&keys::TT_CGROUP_ROOT),
            cpu_percent: self.number(&keys::TT_CGROUP_CPU_PERCENT),
        };
        Some(settings).filter(|settings| settings.memory || settings.cpu)
    }

    fn health(&mut self) -> Option<HealthSettings> {
        let script = self.path(&keys::TT_HEALTH_SCRIPT);
        let args = self.text(&keys::TT_HEALTH_ARGS);
        let args = args.split(',').filter(|arg| !arg.is_empty()).map(str::to_owned).collect();
        let interval = self.span(&keys::TT_HEALTH_INTERVAL);
        let timeout = self.span(&keys::TT_HEALTH_TIMEOUT);
        script.map(|script| HealthSettings { script, args, interval, timeout })
    }

    fn task_logs(&mut self) -> TaskLogSettings {
        TaskLogSettings {
            log_dir: self.text(&keys::TT_LOG_DIR).into(),
            task_log_dir: self.path(&keys::TT_TASK_LOG_DIR),
            retain: Duration::from_secs(3600 * self.number::<u64>(&keys::TT_USERLOG_RETAIN)),
            cleanup_interval: self.span(&keys::TT_USERLOG_CLEANUP),
            max_attempts: self.number(&keys::TT_USERLOG_FILES),
            max_output_bytes: self.number_or_off(&keys::TT_TASK_LOG_MAX).map(|mib| mib * MIB),
        }
    }

    /// A number for which 0 means "off".
    fn number_or_off(&mut self, key: &'static keys::Key) -> Option<u64> {
        Some(self.number(key)).filter(|number| *number != 0)
    }
}

/// Absolute paths with commas between, at least one, none twice.
fn directories(text: &str) -> Result<Vec<PathBuf>, Wrong> {
    let expected = "absolute paths with commas between";
    let mut dirs = Vec::new();
    for dir in text.split(',').map(str::trim).filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir.strip_prefix("file://").unwrap_or(dir));
        if !dir.is_absolute() {
            return Err(Wrong::new("has a path that is not absolute", expected));
        }
        if dirs.contains(&dir) {
            return Err(Wrong::new("has a path twice", expected));
        }
        dirs.push(dir);
    }
    if dirs.is_empty() { Err(Wrong::new("names no directory", expected)) } else { Ok(dirs) }
}

/// The message for an unreadable value of a job, for which the default is used.
pub(super) fn unusable(value: &str, Wrong { wrong, expected }: Wrong) -> ProblemKind {
    ProblemKind::Value { value: value.into(), wrong: wrong.into(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    fn load(overrides: &[(&str, &str)]) -> Result<LoadedTaskTracker, String> {
        let overrides = tests::overrides(overrides);
        Source { overrides: &overrides, ..Source::default() }
            .load_task_tracker()
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let LoadedTaskTracker { settings, warnings, .. } =
            load(&[("hadoop.tmp.dir", "/scratch")]).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(settings.heartbeat_interval, Duration::from_secs(3));
        assert_eq!((settings.num_cpus, settings.memory.most_bytes), (None, None));
        assert_eq!(settings.host, None);
        let own = RemoteJobTrackerSettings { command: JobTrackerCommand::Own, build_version: None };
        assert_eq!(settings.remote_job_trackers, Some(own));
        assert_eq!(settings.callback_timeout, Duration::from_secs(30));
        assert_eq!(settings.node_expiry, Duration::from_secs(600));
        let http = &settings.http;
        assert_eq!(http.address.to_string(), "0.0.0.0:50060");
        assert_eq!((http.max_connections, http.max_connections_per_peer), (1024, 256));
        assert_eq!((http.threads, http.write_timeout), (40, Duration::from_secs(180)));
        assert_eq!(settings.report_address.to_string(), "127.0.0.1:0");
        assert_eq!(settings.local.dirs, [PathBuf::from("/scratch/mapred/local")]);
        assert_eq!(settings.local.min_space_kill_bytes, None);
        assert_eq!(settings.local.cache_bytes, 10 << 30);
        assert_eq!(settings.files.system_dir, "/scratch/mapred/system");
        assert_eq!(settings.logs.log_dir, PathBuf::from("/scratch/logs"));
        assert_eq!(settings.logs.retain, Duration::from_secs(86400));
        assert_eq!(settings.logs.max_output_bytes, Some(1 << 30));
        assert_eq!(settings.memory.reserved_bytes, None);
        assert_eq!(settings.child.sigkill_delay, Duration::from_secs(5));
        assert_eq!(settings.index_cache_bytes, 10 << 20);
    }

    #[test]
    fn builds_are_compared_if_ours_is_known_and_that_is_wanted() {
        let own = ("corona.tt.build.version", "1 from 2 by me on a day");
        let off = ("mapreduce.tasktracker.build.version.check", "false");
        let cases = [(&[][..], None), (&[own][..], Some(own.1)), (&[own, off][..], None)];
        for (overrides, expected) in cases {
            let job_trackers = load(overrides).unwrap().settings.job_trackers;
            assert_eq!(job_trackers.build_version.as_deref(), expected);
            assert!(!job_trackers.out_of_band);
            assert_eq!(job_trackers.connect_timeout, Duration::from_secs(60));
        }
    }

    #[test]
    fn every_key_of_the_task_tracker_is_read() {
        let cpus = ("mapred.coronatasktracker.num.cpus", "8");
        let loaded = load(&[cpus]).unwrap();
        assert_eq!(loaded.settings.num_cpus, Some(8));
        tests::every_key_is_read(&loaded.in_force, [keys::Use::Tracker, keys::Use::TrackerOwn]);
        assert!(loaded.in_force.iter().all(|in_force| !in_force.value.contains("${")));
    }

    /// A value of each key, and how the setting that it names reads then.
    const EFFECTS: &[(&str, &str, &str)] = &[
        ("corona.tt.http.hosts", "seven", "hosts: [\"seven\"]"),
        ("corona.clustermanager.heartbeat.interval", "1234", "heartbeat_interval: 1.234s"),
        ("corona.task.tracker.server.clienttimeout", "1234", "callback_timeout: 1.234s"),
        ("corona.loopback.only", "true", "callbacks_on_host_only: true"),
        ("corona.tt.callback.port", "7", "callback_port: 7"),
        ("corona.tt.action.port", "7", "action_port: 7"),
        ("mapred.coronatasktracker.num.cpus", "7", "num_cpus: Some(7)"),
        ("corona.tt.memory.mb", "7", "most_bytes: Some(7340032)"),
        ("corona.slot.multiplier", "7", "slot_multiplier: 7"),
        ("slave.host.name", "node7", "host: Some(\"node7\")"),
        ("mapred.task.tracker.http.address", "10.0.0.7:7", "port: 7"),
        ("mapred.task.tracker.report.address", "127.0.0.1:77", "port: 77"),
        ("mapreduce.tasktracker.outofband.heartbeat", "true", "out_of_band: true"),
        ("corona.jobtracker.connect.timeout.msec", "1234", "connect_timeout: 1.234s"),
        ("mapred.local.dir", "/seven", "dirs: [\"/seven\"]"),
        ("mapred.local.dir.minspacestart", "7", "min_space_start_bytes: 7"),
        ("mapred.local.dir.minspacekill", "7", "min_space_kill_bytes: Some(7)"),
        ("corona.tt.reserved.disk.bytes", "7", "reserved_bytes: 7"),
        ("mapred.system.dir", "/seven", "system_dir: \"/seven\""),
        ("fs.default.name", "hdfs://seven", "default_fs: \"hdfs://seven\""),
        ("hadoop.log.dir", "/seven", "log_dir: \"/seven\""),
        ("mapred.tasktracker.log.dir", "/seven", "task_log_dir: Some(\"/seven\")"),
        ("mapred.userlog.retain.hours", "1", "retain: 3600s"),
        ("mapred.userlog.cleanup.interval", "1234", "cleanup_interval: 1.234s"),
        ("mapred.userlog.files.limit", "7", "max_attempts: 7"),
        ("mapred.tasktracker.tasks.sleeptime.before.sigkill", "1234", "sigkill_delay: 1.234s"),
        ("local.cache.size", "7", "cache_bytes: 7"),
        ("local.cache.numbersubdir", "7", "cache_entries: 7"),
        ("mapred.tasktracker.indexcache.mb", "7", "index_cache_bytes: 7340032"),
        ("mapred.tasktracker.reserved.physicalmemory.mb", "7", "reserved_bytes: Some(7340032)"),
        ("mapred.tasktracker.taskmemorymanager.monitoring-interval", "1234", "interval: 1.234s"),
        ("corona.tt.hadoop.command", "/seven", "hadoop_command: \"/seven\""),
        ("corona.tt.java.home", "/seven", "java_home: Some(\"/seven\")"),
        ("corona.tt.child.class.path", "/seven", "class_path: Some(\"/seven\")"),
        ("corona.tt.library.path", "/seven", "library_path: \"/seven\""),
        ("corona.tt.native.tasks", "streaming", "native_tasks: Streaming"),
        ("corona.tt.jvm.idle.ms", "1234", "jvm_idle: 1.234s"),
        ("corona.tt.debug.script.timeout.ms", "1234", "debug_timeout: 1.234s"),
        ("mapred.tasktracker.cgroup.mem", "true", "is_strict: true"),
        ("mapred.tasktracker.cgroup.cpu", "true", "cpu: true"),
        ("corona.tt.class.archive", "false", "class_archive: false"),
        ("corona.tt.class.archive.timeout.ms", "1234", "class_archive_timeout: 1.234s"),
        ("corona.tt.java.short.task.ms", "1234", "short_task: 1.234s"),
        ("corona.tt.fetch.timeout.ms", "1234", "timeout: 1.234s"),
        ("corona.tt.fetch.max.bytes", "7", "max_bytes: 7,"),
        ("corona.tt.unpack.max.bytes", "7", "max_unpacked_bytes: 7"),
        ("corona.tt.unpack.max.entries", "7", "max_unpacked_entries: 7"),
        ("corona.tt.task.log.max.mb", "7", "max_output_bytes: Some(7340032)"),
        ("corona.tt.http.max.connections", "7", " max_connections: 7,"),
        ("corona.tt.rpc.max.connections", "7", "rpc_max_connections: 7"),
    ];

    #[test]
    fn each_key_changes_the_setting_that_it_names() {
        tests::values_reach_their_settings(EFFECTS, |set| load(set).unwrap().settings);
    }

    #[test]
    fn job_trackers_run_unless_they_are_not_wanted() {
        let command = ("corona.tt.job.tracker.command", " /opt/jt  --fast ");
        let unwanted = ("corona.tt.job.trackers", "false");
        assert_eq!(load(&[command, unwanted]).unwrap().settings.remote_job_trackers, None);
        let java = ("corona.tt.job.tracker.command", "java");
        let program = JobTrackerCommand::Program(vec!["/opt/jt".into(), "--fast".into()]);
        for (set, expected) in [
            (vec![], JobTrackerCommand::Own),
            (vec![java], JobTrackerCommand::Java),
            (vec![command], program),
        ] {
            let found = load(&set).unwrap().settings.remote_job_trackers.unwrap();
            assert_eq!(found.command, expected);
        }
    }

    #[test]
    fn lists_of_directories() {
        let cases = [
            ("/a", Ok(vec!["/a"])),
            (" /a, /b ,,file:///c", Ok(vec!["/a", "/b", "/c"])),
            ("", Err("names no directory")),
            (" , ", Err("names no directory")),
            ("a", Err("has a path that is not absolute")),
            ("/a,hdfs://n/b", Err("has a path that is not absolute")),
            ("/a,/a", Err("has a path twice")),
        ];
        for (text, expected) in cases {
            let dirs = directories(text).map_err(|wrong| wrong.wrong);
            let expected = expected
                .map(|dirs| dirs.into_iter().map(PathBuf::from).collect::<Vec<_>>())
                .map_err(str::to_owned);
            assert_eq!(dirs, expected, "{text:?}");
        }
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key() {
        let cases = [
            ("mapred.local.dir", "here", "has a path that is not absolute"),
            ("mapred.coronatasktracker.num.cpus", "0", "is out of range"),
            ("mapred.task.tracker.http.address", "50060", "is not a host:port pair"),
            ("corona.tt.fetch.timeout.ms", "10m", "is not a whole number"),
            ("slave.host.name", "node:7", "is not a legal host name"),
        ];
        for (name, value, wrong) in cases {
            let told = load(&[(name, value)]).unwrap_err();
            assert!(told.starts_with(&format!("-D: {name}: value {value:?} {wrong}")), "{told}");
        }
        let unknown = load(&[("corona.tt.java_home", "/jdk")]).unwrap().warnings;
        assert_eq!(unknown.len(), 1);
        assert_eq!(
            unknown[0].to_string(),
            "-D: corona.tt.java_home: unknown key, ignored; did you mean corona.tt.java.home? It is not set"
        );
    }
}
