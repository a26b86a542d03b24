//! A map that runs the commands of a list, one after the other, and writes their results. A command that fails
//! is tried again alone, and fails neither the others nor the map.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use corona_mapreduce::commands::{CommandList, CommandResult, parse_line};
use corona_net::Backoff;
use corona_process::cgroups::number_after;
use corona_process::machine_name_or_localhost;
use corona_process::memory::SMALL_PAGES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::child::Work;
use crate::counters::Count;
use crate::error::TaskError;
use crate::hints;
use crate::map::Input;

/// The pauses between two looks at a command that runs: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const PAUSES: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_millis(500));
/// How long a command may take to end after its time is over, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// The variable that has the number of a command.
const NUMBER: &str = "CORONA_TASK_ID";
/// The exit statuses of the shell for a program that is missing, and one that cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;
/// The hint for a program that a node does not have.
const UNKNOWN: &str = "it is no program on the PATH of this node, and commands run in a directory of their own; name a \
                       file that all machines see by its whole path";

/// Runs the commands of a part of the list.
pub(crate) fn run(
    work: &Work<'_>,
    partition: i32,
    list: &CommandList,
    input: &mut Input<'_>,
) -> Result<(), TaskError> {
    let path = format!("{}/part-{partition:05}", work.output_dir()?);
    let failed = |error| TaskError::Output { path: path.clone(), error };
    let mut out = work.files.create(&path)?;
    let runner = Runner { work, list, node: machine_name_or_localhost() };
    input.each(|record| {
        let line = std::str::from_utf8(record.line).ok().and_then(parse_line);
        let (number, value) = line.ok_or_else(|| {
            TaskError::Task("a line of the list has no number and value".to_owned())
        })?;
        let done = runner.run(number, value)?;
        done.write(&mut out).map_err(failed)?;
        work.counters.add(Count::MapOutputRecords, 1);
        if !done.result.is_success() {
            work.counters.add_own("Commands", "FAILED", 1);
        }
        Ok(())
    })?;
    out.close().map_err(failed)
}

struct Runner<'a> {
    work: &'a Work<'a>,
    list: &'a CommandList,
    node: String,
}

/// A result, and where its outputs lie.
struct Done {
    result: CommandResult,
    outputs: [PathBuf; 2],
}

impl Done {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let line = serde_json::to_string(&self.result).map_err(io::Error::other)?;
        to.write_all(line.as_bytes())?;
        to.write_all(b"\n")?;
        let lengths = [self.result.stdout_bytes, self.result.stderr_bytes];
        for (path, length) in self.outputs.iter().zip(lengths) {
            if length > 0 {
                let copied = io::copy(&mut File::open(path)?.take(length), to)?;
                if copied < length {
                    return Err(io::Error::other("an output of a command has become shorter"));
                }
            }
        }
        Ok(())
    }
}

/// How an attempt ended.
struct End {
    status: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
    memory_bytes: Option<u64>,
}

impl Runner<'_> {
    /// Runs a command until it succeeds, or has no attempts left.
    fn run(&self, number: u64, value: &str) -> Result<Done, TaskError> {
        let words = self.list.words_of(value);
        let place = &self.work.programs.work;
        let outputs = [place.join(".command.stdout"), place.join(".command.stderr")];
        let mut attempts = 0;
        loop {
            attempts += 1;
            let began = Instant::now();
            let end = self.attempt(number, &words, &outputs)?;
            let failed = end.status != Some(0) || end.reason.is_some();
            if failed && attempts <= self.list.retries {
                continue;
            }
            let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
            let [stdout, stderr] = &outputs;
            let result = CommandResult {
                id: number,
                status: end.status,
                signal: end.signal,
                reason: end.reason,
                attempts,
                seconds: (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
                memory_bytes: end.memory_bytes,
                node: self.node.clone(),
                stdout_bytes: length(stdout),
                stderr_bytes: length(stderr),
            };
            return Ok(Done { result, outputs });
        }
    }

    fn attempt(
        &self,
        number: u64,
        words: &[String],
        [stdout, stderr]: &[PathBuf; 2],
    ) -> Result<End, TaskError> {
        let programs = &self.work.programs;
        let Some((program, arguments)) = words.split_first() else {
            return Err(TaskError::Task("the list names no program".to_owned()));
        };
        let executable = programs.executable(program);
        let mut command = Command::new(&executable);
        command
            .args(arguments)
            .current_dir(&programs.work)
            .env_remove(SMALL_PAGES.0)
            .envs(programs.environment.iter().map(|(name, value)| (name, value)))
            .env(NUMBER, number.to_string())
            .stdin(Stdio::null())
            .stdout(new_file(stdout)?)
            .stderr(new_file(stderr)?)
            .process_group(0);
        let mut child = match programs.started(&mut command)? {
            Ok(child) => child,
            Err(error) => {
                let found = hints::find(&executable);
                let missing = error.kind() == io::ErrorKind::NotFound;
                let found = found.as_deref().unwrap_or(&executable);
                let why = hints::of_start(found, &error, UNKNOWN);
                return Ok(End {
                    status: Some(if missing { NOT_FOUND } else { NOT_RUN }),
                    signal: None,
                    reason: Some(format!("cannot start {program}: {why}")),
                    memory_bytes: None,
                });
            }
        };
        let ended = self.wait(&mut child);
        programs.ended(&child);
        let (exit, is_late, memory_bytes) = ended.map_err(TaskError::local("(a command)"))?;
        let late = format!("ended after {} s, its time", self.list.time_ms as f64 / 1000.0);
        Ok(End {
            status: exit.code(),
            signal: exit.signal(),
            reason: is_late.then_some(late),
            memory_bytes,
        })
    }

    /// Waits for the end of a command, and ends it when its time is over. Says whether it was.
    fn wait(&self, child: &mut Child) -> io::Result<(ExitStatus, bool, Option<u64>)> {
        let pid = Pid::from_child(child);
        let end = pidfd_open(pid, PidfdFlags::empty()).ok();
        let began = Instant::now();
        let limit = Duration::from_millis(self.list.time_ms);
        let (mut pauses, mut memory, mut signalled) = (PAUSES, None, None::<Instant>);
        loop {
            if let Some(exit) = child.try_wait()? {
                if signalled.is_some() {
                    // What it has started and left behind. There may be nothing.
                    let _ = kill_process_group(pid, Signal::KILL);
                }
                return Ok((exit, signalled.is_some(), memory));
            }
            memory = memory_of(child.id()).max(memory);
            self.work.counters.progressed();
            if self.list.time_ms > 0 && began.elapsed() >= limit {
                let signal = match signalled {
                    None => Some(Signal::TERM),
                    Some(at) if at.elapsed() >= GRACE => Some(Signal::KILL),
                    Some(_) => None,
                };
                if let Some(signal) = signal {
                    // It may have ended meanwhile.
                    let _ = kill_process_group(pid, signal);
                    signalled.get_or_insert_with(Instant::now);
                }
            }
            let pause = pauses.pause();
            let left = match self.list.time_ms {
                0 => pause,
                _ => pause.min(limit.saturating_sub(began.elapsed()).max(FIRST_PAUSE)),
            };
            match &end {
                Some(end) => {
                    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
                    // An interrupted wait only means an earlier look.
                    let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&timeout));
                }
                None => std::thread::sleep(left),
            }
        }
    }
}

/// A new file, which no process of an earlier command has open.
fn new_file(path: &Path) -> Result<File, TaskError> {
    let made = match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    };
    made.map_err(TaskError::local(path.display().to_string()))
}

/// The most memory that a process has had so far.
fn memory_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    number_after(&text, "VmHWM:").map(|kib| kib << 10)
}
