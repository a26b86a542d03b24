//! The command line of a job tracker that runs on this node: the original's, or a program of the
//! operator's.
//!
//! Pure: it looks at nothing but its arguments. Spec: mapreduce/04 §4.12.

use std::path::{Path, PathBuf};

use super::command::{ChildCommand, CommandError, Install, checked, library_path};
use crate::ids::AttemptId;
use corona_config::{JobConf, keys};
use corona_hadoop::writables::InetAddress;
use corona_model::text::shell_word;
use corona_process::memory::FRUGAL;

/// Its main class.
const CLASS: &str = "org.apache.hadoop.mapred.CoronaJobTracker";

/// The inputs of a job tracker's start.
#[derive(Clone, Debug)]
pub struct JobTrackerLaunch<'a> {
    /// The programs on the machine.
    pub install: &'a Install,
    /// A program that is run instead of Java, with its first arguments; empty for Java.
    pub program: &'a [String],
    /// The name under which it runs.
    pub attempt: &'a AttemptId,
    /// The job's configuration.
    pub conf: &'a JobConf,
    /// The directory that it runs in.
    pub work: &'a Path,
    /// `hadoop.log.dir` of job trackers.
    pub log_dir: &'a Path,
    /// The directory of its own logs.
    pub own_log_dir: &'a Path,
    /// The session driver that waits for it.
    pub parent: &'a InetAddress,
    /// Where its logs are served: the name of this machine, and the port.
    pub http: (&'a str, u16),
    /// The directory of jobs' files.
    pub system_dir: &'a str,
    /// The number that it is given as if it were a task.
    pub jvm_number: i32,
}

/// The command for a job tracker. `variable` gives variables of the task tracker's environment.
pub fn job_tracker(
    launch: &JobTrackerLaunch<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ChildCommand, CommandError> {
    let temporary_dir = temporary_dir(launch);
    let mut words = match launch.program {
        [] => java(launch, &temporary_dir),
        program => program.to_vec(),
    };
    words.extend([
        launch.attempt.job().as_str().to_owned(),
        launch.attempt.as_str().to_owned(),
        launch.parent.host.clone(),
        launch.parent.port.to_string(),
        launch.http.0.to_owned(),
        launch.http.1.to_string(),
        launch.jvm_number.to_string(),
    ]);
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let log = |name| shell_word(&launch.own_log_dir.join(name).display().to_string());
    let line = format!(
        " export JVM_PID=`echo $$` ; exec {}  < /dev/null  1>> {} 2>> {}",
        words.join(" "),
        log("stdout"),
        log("stderr")
    );
    let mut environment = vec![library_path(launch.work, variable)];
    if !launch.program.is_empty() {
        // A job tracker of a small job has a few megabytes.
        environment.extend(FRUGAL.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    checked(ChildCommand {
        line,
        direct: None,
        work: launch.work.to_owned(),
        directories: vec![launch.work.to_owned(), temporary_dir],
        environment,
        is_java: launch.program.is_empty(),
    })
}

fn java(launch: &JobTrackerLaunch<'_>, temporary_dir: &Path) -> Vec<String> {
    let JobTrackerLaunch { install, conf, attempt, .. } = launch;
    let mut words = vec![install.java.display().to_string()];
    let options = conf.text(&keys::JOB_TRACKER_JAVA_OPTIONS).replace("@taskid@", attempt.as_str());
    words.extend(options.split(' ').filter(|option| !option.is_empty()).map(str::to_owned));
    words.push(format!("-Djava.io.tmpdir={}", temporary_dir.display()));
    words.push("-classpath".into());
    let debug = conf.text_if_set(&keys::JOB_DEBUG_CLASS_PATH);
    let debug = debug.map_or_else(String::new, |path| format!("{path}:"));
    words.push(format!("{debug}{}:", install.class_path));
    let limit_bytes = conf.number(&keys::JOB_LOG_LIMIT).unwrap_or(0).saturating_mul(1024);
    words.push(format!("-Dhadoop.log.dir={}", launch.log_dir.display()));
    words.push("-Dhadoop.root.logger=INFO,TLA".into());
    words.push(format!("-Dhadoop.tasklog.taskid={attempt}"));
    words.push(format!("-Dhadoop.tasklog.totalLogFileSize={limit_bytes}"));
    words.push(format!("-Dmapred.system.dir={}", launch.system_dir));
    words.push(CLASS.into());
    words
}

fn temporary_dir(launch: &JobTrackerLaunch<'_>) -> PathBuf {
    // Only for looks: ./tmp and tmp are the same directory.
    let configured = launch.conf.text(&keys::JOB_TEMPORARY_DIR);
    launch.work.join(configured.strip_prefix("./").unwrap_or(&configured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_config::Source;

    fn line(program: &[&str], xml: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("job.xml");
        std::fs::write(&file, format!("<configuration>{xml}</configuration>")).unwrap();
        let site = Source::default().load_task_tracker().unwrap().site;
        let conf = JobConf::read(&site, &file).unwrap();
        let install = Install {
            java: "/jdk/bin/java".into(),
            class_path: "/conf:/core.jar".into(),
            library_path: "/native".into(),
            native: super::super::Native::default(),
        };
        let program: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
        let launch = JobTrackerLaunch {
            install: &install,
            program: &program,
            attempt: &"attempt_20.1_0001_m_100000_0".parse().unwrap(),
            conf: &conf,
            work: Path::new("/l/work"),
            log_dir: Path::new("/logs/jtlogs"),
            own_log_dir: Path::new("/logs/jtlogs/userlogs/a"),
            parent: &InetAddress { host: "p".into(), port: 7 },
            http: ("n1", 50060),
            system_dir: "hdfs://nn/system",
            jvm_number: -5,
        };
        let command = job_tracker(&launch, &|_| None).unwrap();
        // Java knows nothing of the allocator of this program.
        let mut environment = vec![("LD_LIBRARY_PATH", "/l/work")];
        if !program.is_empty() {
            environment
                .extend([("MIMALLOC_ARENA_EAGER_COMMIT", "0"), ("MIMALLOC_PURGE_DELAY", "10")]);
        }
        let of_command = command.environment.iter().map(|(name, value)| (&**name, &**value));
        assert_eq!(of_command.collect::<Vec<_>>(), environment);
        assert_eq!(command.work, PathBuf::from("/l/work"));
        command.line
    }

    const ARGUMENTS: &str =
        "'job_20.1_0001' 'attempt_20.1_0001_m_100000_0' 'p' '7' 'n1' '50060' '-5'";
    const END: &str = "  < /dev/null  1>> '/logs/jtlogs/userlogs/a/stdout' 2>> \
                       '/logs/jtlogs/userlogs/a/stderr'";

    #[test]
    fn java_is_started_as_the_original_does() {
        let expected = " export JVM_PID=`echo $$` ; exec '/jdk/bin/java' '-Xmx200m' \
            '-Djava.io.tmpdir=/l/work/tmp' '-classpath' '/conf:/core.jar:' \
            '-Dhadoop.log.dir=/logs/jtlogs' '-Dhadoop.root.logger=INFO,TLA' \
            '-Dhadoop.tasklog.taskid=attempt_20.1_0001_m_100000_0' \
            '-Dhadoop.tasklog.totalLogFileSize=102400' '-Dmapred.system.dir=hdfs://nn/system' \
            'org.apache.hadoop.mapred.CoronaJobTracker' ";
        assert_eq!(line(&[], ""), format!("{expected}{ARGUMENTS}{END}"));
    }

    #[test]
    fn a_job_chooses_the_options_and_cannot_leave_its_word() {
        let property = |name: &str, value: &str| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        };
        let xml = [
            property("mapred.corona.standalonecjt.java.opts", "-Xmx1g  -Did=@taskid@ '; reboot'"),
            property("mapred.child.tmp", "/scratch"),
            property("mapred.task.debug.runtime.classpath", "/debug.jar"),
            property("mapred.userlog.limit.kb", "0"),
        ];
        let line = line(&[], &xml.concat());
        for words in [
            "'/jdk/bin/java' '-Xmx1g' '-Did=attempt_20.1_0001_m_100000_0' ''\\''; reboot'\\'''",
            "'-Djava.io.tmpdir=/scratch' '-classpath' '/debug.jar:/conf:/core.jar:'",
            "'-Dhadoop.tasklog.totalLogFileSize=0'",
        ] {
            let split = words.replace("''\\''; reboot'\\'''", "''\\'';' 'reboot'\\'''");
            assert!(line.contains(&split), "{split} is not in {line}");
        }
    }

    #[test]
    fn another_program_gets_the_same_arguments() {
        let expected =
            format!(" export JVM_PID=`echo $$` ; exec '/opt/jt' '--fast' {ARGUMENTS}{END}");
        assert_eq!(line(&["/opt/jt", "--fast"], ""), expected);
    }
}
