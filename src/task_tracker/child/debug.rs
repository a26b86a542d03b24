//! A job's debug script, which runs when one of its tasks has failed: its command line, its time and
//! the end of its output.
//!
//! Spec: the original's `TaskTracker.TaskInProgress.taskFinished` and `TaskLog.captureDebugOut`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::LogFile;
use super::logs::Logs;
use crate::localise::LocalAttempt;
use crate::programs::{RunError, run_for};
use corona_config::{JobConf, keys};
use corona_model::text::shell_word;
use corona_process::panics::blocking;

/// How much of the output of a debug script is kept, in bytes.
pub const MAX_DEBUG_BYTES: usize = 1 << 20;

/// The debug script of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugScript {
    line: String,
    work: PathBuf,
    output: PathBuf,
    lines: i64,
}

impl DebugScript {
    /// The script that the job has for such attempts, if it has one.
    pub fn of(attempt: &LocalAttempt, logs: &Logs) -> Option<DebugScript> {
        let conf = &attempt.conf;
        let key = if attempt.is_map { &keys::JOB_MAP_DEBUG } else { &keys::JOB_REDUCE_DEBUG };
        let script = conf.text_if_set(key)?;
        let logs = logs.dir(&attempt.id);
        let lines = conf.number(&keys::JOB_DEBUG_LINES).unwrap_or(-1);
        Some(DebugScript {
            line: line(&script, &logs, &attempt.job_xml, conf),
            work: attempt.work.clone(),
            output: logs.join(LogFile::Debugout.file_name()),
            lines,
        })
    }

    /// Runs it in the directory of the task, and writes its output to the logs of the task. When its
    /// time is over, it is ended with its process group. Returns the text for the diagnostics.
    pub async fn run(&self, limit: Duration) -> Result<String, io::Error> {
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(&self.line).current_dir(&self.work);
        let printed = run_for(bash, limit, MAX_DEBUG_BYTES).await;
        let printed = match printed {
            Ok(printed) => printed.stdout,
            Err(RunError::Timeout { stdout }) => {
                format!("{stdout}\nThe debug script did not end within {} s.\n", limit.as_secs())
            }
            Err(RunError::Io(error)) => return Err(error),
        };
        let (output, lines) = (self.output.clone(), self.lines);
        blocking(move || {
            std::fs::write(&output, &printed)?;
            Ok(shown(&printed, lines))
        })
        .await
    }
}

/// The line for the shell. The words of the job's command are as it has them, so that the shell
/// replaces variables in them; the paths after them are not changed by the shell.
fn line(script: &str, logs: &Path, job_xml: &Path, conf: &JobConf) -> String {
    let mut words = vec![script.to_owned()];
    for log in [LogFile::Stdout, LogFile::Stderr, LogFile::Syslog] {
        words.push(shell_word(&logs.join(log.file_name()).display().to_string()));
    }
    words.push(shell_word(&job_xml.display().to_string()));
    let pipes = conf.text_if_set(&keys::JOB_PIPES_PROGRAM);
    let program = pipes.as_deref().and_then(|uri| uri.split_once('#'));
    words.extend(program.map(|(_, program)| shell_word(program)));
    format!("exec {} 2>&1", words.join(" "))
}

/// The last lines of the output, or all, below the original's title; nothing if there are none.
fn shown(printed: &str, lines: i64) -> String {
    let all: Vec<&str> = printed.lines().collect();
    let first = match usize::try_from(lines) {
        Ok(lines) => all.len().saturating_sub(lines),
        Err(_) => 0,
    };
    let last = all.get(first..).unwrap_or_default();
    if last.is_empty() {
        return String::new();
    }
    let text: String = last.iter().flat_map(|line| [line, "\n"]).collect();
    format!("\n-------------------- DEBUG OUT---------------------\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localise::tests::conf;

    #[test]
    fn a_script_gets_the_logs_and_the_configuration() {
        let built = |properties: &[(&str, &str)]| {
            let (logs, job_xml) = (Path::new("/logs/A"), Path::new("/l/it's/job.xml"));
            line("./debug.sh $USER", logs, job_xml, &conf(properties))
        };
        let plain = r"exec ./debug.sh $USER '/logs/A/stdout' '/logs/A/stderr' '/logs/A/syslog' '/l/it'\''s/job.xml' 2>&1";
        assert_eq!(built(&[]), plain);
        let pipes = built(&[("hadoop.pipes.executable", "hdfs://n/bin/wc#wc")]);
        assert_eq!(pipes, plain.replace(" 2>&1", " 'wc' 2>&1"));
        assert_eq!(built(&[("hadoop.pipes.executable", "/bin/wc")]), plain);
    }

    #[test]
    fn the_last_lines_become_diagnostics() {
        let title = "\n-------------------- DEBUG OUT---------------------\n";
        for (printed, lines, expected) in [
            ("a\nb\nc\n", -1, "a\nb\nc\n"),
            ("a\nb\nc", 2, "b\nc\n"),
            ("a\n", 5, "a\n"),
            ("a\nb\n", 0, ""),
            ("", -1, ""),
        ] {
            let expected =
                if expected.is_empty() { String::new() } else { format!("{title}{expected}") };
            assert_eq!(shown(printed, lines), expected, "{printed:?} {lines}");
        }
    }

    fn script(dir: &Path, line: &str) -> DebugScript {
        let (line, work, output) = (line.to_owned(), dir.to_owned(), dir.join("debugout"));
        DebugScript { line, work, output, lines: -1 }
    }

    #[tokio::test]
    async fn output_and_errors_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let script = script(dir.path(), "{ pwd; echo wrong >&2; exit 3; } 2>&1");
        let told = script.run(Duration::from_secs(60)).await.unwrap();
        let printed = std::fs::read_to_string(dir.path().join("debugout")).unwrap();
        assert_eq!(printed, format!("{}\nwrong\n", dir.path().display()));
        assert!(told.ends_with(&printed), "{told}");
    }

    #[tokio::test]
    async fn a_script_that_hangs_or_prints_without_end_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (second, file) = (Duration::from_millis(300), dir.path().join("debugout"));
        let hangs = script(dir.path(), "echo before; sleep 600 & wait");
        let told = hangs.run(second).await.unwrap();
        assert!(told.contains("before\n") && told.ends_with("did not end within 0 s.\n"), "{told}");
        let floods = script(dir.path(), "exec yes");
        assert!(floods.run(second).await.unwrap().ends_with("did not end within 0 s.\n"));
        let bytes = std::fs::metadata(&file).unwrap().len();
        assert!(bytes < 2 * MAX_DEBUG_BYTES as u64, "{bytes}");
    }
}
