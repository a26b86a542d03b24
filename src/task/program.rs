//! A program of a job: lines in, lines out, and messages on stderr, as Hadoop Streaming runs it.
//!
//! Three threads serve a program: the caller feeds it, one takes its lines, one reads its stderr. A
//! program that does not read, does not write or does not end blocks them; the task tracker ends the task
//! when no progress was reported for `mapred.task.timeout`.

use std::collections::VecDeque;
use std::io::{self, BufWriter, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corona_mapreduce::native::LineFormat;
use corona_process::memory::SMALL_PAGES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{ioctl_fionbio, retry_on_intr};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::builtin::split;
use crate::counters::TaskCounters;
use crate::error::{TaskError, cut};
use crate::hints;
use crate::lines::Lines;
use crate::skipped::{GROUP, PROCESSED_GROUPS, PROCESSED_RECORDS};
use crate::spill::Collector;
use crate::status::Status;

/// Bytes that pass to and from a program at a time.
const PIPE_BYTES: usize = 128 << 10;
/// The longest line of stderr that is looked at; the rest of a longer one is a line of its own.
const MOST_STDERR_LINE: usize = 64 << 10;
/// The most bytes of a line of stderr that are kept for the reason of a failure.
const MOST_KEPT_BYTES: usize = 1000;
/// The most bytes of a command that are shown in the reason of a failure.
const MOST_COMMAND_BYTES: usize = 200;
/// How long output of a program is awaited after its task has failed.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program of a job.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The step that runs it: `map`, `combine` or `reduce`.
    pub step: &'static str,
    /// Its name and arguments.
    pub words: &'a [String],
}

impl Program<'_> {
    fn name(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }

    /// `in the map: grep 'a b'`, for the reason of a failure.
    fn shown(&self) -> String {
        let command = match self.words {
            [shell, option, command] if shell == "sh" && option == "-c" => command.clone(),
            words => words.join(" "),
        };
        let shown = cut(&command, MOST_COMMAND_BYTES);
        let more = if shown.len() < command.len() { " ..." } else { "" };
        format!("in the {}: {shown}{more}", self.step)
    }
}

/// Settings common to all programs of a task.
#[derive(Debug)]
pub struct Programs {
    /// The directory that they run in.
    pub work: PathBuf,
    /// Variables that they get besides those of the task.
    pub environment: Vec<(String, String)>,
    /// The prefix of lines of stderr that are meant for the task.
    pub reporter_prefix: String,
    /// Whether another status than 0 is a failure.
    pub exit_status_counts: bool,
    /// Lines of stderr that are kept.
    pub stderr_lines: usize,
    /// The largest line.
    pub max_line_bytes: usize,
    /// What one of them may write to stdout; 0 for any number of bytes.
    pub max_output_bytes: u64,
    /// Whether few of its records may be in flight to a program, for an attempt that looks for a bad one.
    pub small_pipes: bool,
    /// The words that precede those of a profiled program.
    pub profiler: Vec<String>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    is_stopped: bool,
    programs: Vec<Pid>,
    /// Those that have processes of their own.
    groups: Vec<Pid>,
}

impl Programs {
    /// Programs in a directory, with the original's settings.
    pub fn new(work: &Path) -> Programs {
        Programs {
            work: work.to_owned(),
            environment: Vec::new(),
            reporter_prefix: "reporter:".to_owned(),
            exit_status_counts: true,
            stderr_lines: 20,
            max_line_bytes: 64 << 20,
            max_output_bytes: 0,
            small_pipes: false,
            profiler: Vec::new(),
            running: Mutex::default(),
        }
    }

    /// Kills all of them; none is started any more.
    pub fn stop(&self) {
        let mut running = self.running();
        running.is_stopped = true;
        for program in &running.programs {
            // It may have ended.
            let _ = kill_process(*program, Signal::KILL);
        }
        for group in &running.groups {
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The words that start a program of the job, with those of a profiler before it.
    pub(crate) fn profiled(&self, words: &[String]) -> Vec<String> {
        let (Some((program, arguments)), false) = (words.split_first(), self.profiler.is_empty())
        else {
            return words.to_vec();
        };
        let program = self.executable(program).display().to_string();
        self.profiler.iter().chain([&program]).chain(arguments).cloned().collect()
    }

    /// Runs a program. `feed` writes its input; the records in its lines go to `to`.
    pub fn run(
        &self,
        running: Program<'_>,
        format: &LineFormat,
        counters: &TaskCounters,
        status: &Status,
        to: &mut dyn Collector,
        feed: impl FnOnce(&mut dyn Write) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let program = running.name().to_owned();
        let pipe = io::pipe();
        let not_started = |error: io::Error| TaskError::Start {
            program: program.clone(),
            why: error.to_string(),
        };
        let (failed, fail) = pipe.map_err(not_started)?;
        let mut child = self.start(running.words)?;
        let pid = Pid::from_child(&child);
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let tail = Mutex::new(VecDeque::new());
        let failure = Failure { pid, fail: Mutex::new(Some(fail)) };
        let stdout = stdout.map(|inner| Output::new(inner, &failed));
        let stderr = stderr.map(|inner| Output::new(inner, &failed));
        let (fed, taken) = std::thread::scope(|threads| {
            let taking = threads.spawn(|| {
                let taken = self.take_lines(stdout, format, &program, to);
                if taken.is_err() {
                    // Its lines have no reader any more.
                    failure.kill();
                }
                taken
            });
            threads.spawn(|| self.read_stderr(stderr, counters, status, &tail));
            let stdin = Stdin::new(stdin, &failed, counters).map_err(of_pipe);
            let fed = stdin.and_then(|stdin| {
                let mut pipe = BufWriter::with_capacity(PIPE_BYTES, stdin);
                let fed = feed(&mut pipe).and_then(|()| pipe.flush().map_err(of_pipe));
                // Bytes left in the buffer after a failure have no reader.
                drop(pipe.into_parts());
                fed
            });
            if fed.as_ref().is_err_and(|error| !is_broken_pipe(error)) {
                failure.kill();
            }
            (fed, taking.join())
        });
        self.running().programs.retain(|other| *other != pid);
        let exit = child.wait().map_err(not_started)?;
        let stopped = self.running().is_stopped;
        taken
            .unwrap_or_else(|_| Err(TaskError::Task("a thread of the task panicked".to_owned())))?;
        if stopped {
            return Err(TaskError::Stopped);
        }
        let tail = tail.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.conclude(fed, exit, running, &last_lines(&tail))
    }

    fn conclude(
        &self,
        fed: Result<(), TaskError>,
        exit: ExitStatus,
        running: Program<'_>,
        stderr: &str,
    ) -> Result<(), TaskError> {
        let (program, step, stderr) = (running.name(), running.shown(), stderr.to_owned());
        let code = exit.code().unwrap_or_else(|| 128 + exit.signal().unwrap_or(0));
        match fed {
            Err(error) if !is_broken_pipe(&error) => return Err(error),
            _ if code != 0 && self.exit_status_counts => {
                let executable = self.executable(program);
                let hint = hints::of_status(running.words, &executable, &self.work, code);
                return Err(TaskError::Exit { code, step, hint, stderr });
            }
            Err(_) => {
                let program = program.to_owned();
                return Err(TaskError::Unread { program, step, stderr });
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn start(&self, words: &[String]) -> Result<Child, TaskError> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(TaskError::Task("the job names an empty program".to_owned()));
        };
        let executable = self.executable(program);
        let mut command = Command::new(&executable);
        command.args(arguments);
        // A program that is started while all are stopped would outlive them.
        let mut running = self.running();
        if running.is_stopped {
            return Err(TaskError::Stopped);
        }
        let mut started = self.with_pipes(&mut command).spawn();
        if let Err(error) = &started
            && hints::is_for_the_shell(&executable, error)
        {
            // A script without an interpreter: Java gives it to the shell.
            let mut shell = Command::new("/bin/sh");
            shell.arg(&executable).args(arguments);
            started = self.with_pipes(&mut shell).spawn();
        }
        let child = started.map_err(|error| {
            let found = hints::find(&executable);
            let why =
                hints::of_start(found.as_deref().unwrap_or(&executable), &error, hints::NO_PROGRAM);
            TaskError::Start { program: program.clone(), why }
        })?;
        running.programs.push(Pid::from_child(&child));
        if let Some(stdin) = child.stdin.as_ref().filter(|_| self.small_pipes) {
            // The system makes it one page. A larger pipe only means more records that are suspect.
            let _ = rustix::pipe::fcntl_setpipe_size(stdin, 1);
        }
        Ok(child)
    }

    /// Starts a command of a list, which [`Self::stop`] ends with all of its group. The inner error is that of
    /// the start.
    pub(crate) fn started(&self, command: &mut Command) -> Result<io::Result<Child>, TaskError> {
        let mut running = self.running();
        if running.is_stopped {
            return Err(TaskError::Stopped);
        }
        let child = command.spawn();
        if let Ok(child) = &child {
            running.groups.push(Pid::from_child(child));
        }
        Ok(child)
    }

    /// Notes the end of a command of a list.
    pub(crate) fn ended(&self, child: &Child) {
        let pid = Pid::from_child(child);
        self.running().groups.retain(|other| *other != pid);
    }

    /// A command in the environment of the task.
    fn with_pipes<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(&self.work)
            // Memory of programs is their own affair.
            .env_remove(SMALL_PAGES.0)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
    }

    /// A file of the job, which is made executable, or a program of the machine.
    pub(crate) fn executable(&self, program: &str) -> PathBuf {
        let own = self.work.join(program);
        if Path::new(program).is_absolute() || !own.is_file() {
            return program.into();
        }
        if let Ok(metadata) = own.metadata() {
            let mut permissions = metadata.permissions();
            permissions.set_mode(permissions.mode() | 0o111);
            // If that is refused, the start fails with the reason.
            let _ = std::fs::set_permissions(&own, permissions);
        }
        own
    }

    /// Hands the records in the lines of a program to `to`.
    fn take_lines(
        &self,
        stdout: Option<Output<'_, ChildStdout>>,
        format: &LineFormat,
        program: &str,
        to: &mut dyn Collector,
    ) -> Result<(), TaskError> {
        let Some(stdout) = stdout else { return Ok(()) };
        let mut lines = Lines::new(stdout, PIPE_BYTES, self.max_line_bytes);
        let (mut bytes, most) = (0, self.max_output_bytes);
        loop {
            let line = lines
                .next_line()
                .map_err(|error| TaskError::ProgramOutput { program: program.to_owned(), error })?;
            let Some(line) = line else { return Ok(()) };
            bytes += line.bytes as u64;
            if most > 0 && bytes > most {
                return Err(TaskError::Task(format!(
                    "{program} has written more than {most} bytes (corona.task.max.output.bytes)"
                )));
            }
            let (key, value) = split(line.text, &format.output_separator, format.key_fields);
            to.collect(key, value)?;
        }
    }

    /// Reads stderr to its end: orders to the task are carried out, the rest goes to the log.
    fn read_stderr(
        &self,
        stderr: Option<Output<'_, ChildStderr>>,
        counters: &TaskCounters,
        status: &Status,
        tail: &Mutex<VecDeque<String>>,
    ) {
        let Some(mut stderr) = stderr else { return };
        let mut buffer = vec![0; 8 << 10];
        let mut line = Vec::new();
        let mut is_behind_return = false;
        let take = |line: &mut Vec<u8>| {
            let text = String::from_utf8_lossy(line);
            match text.strip_prefix(self.reporter_prefix.as_str()) {
                Some(order) => report(order.trim_end(), counters, status),
                None => self.keep(&text, tail),
            }
            counters.progressed();
            line.clear();
        };
        while let Ok(read) = stderr.read(&mut buffer) {
            if read == 0 {
                break;
            }
            for byte in buffer.get(..read).unwrap_or_default() {
                // A line ends with a line feed, a carriage return, or both.
                let is_end = matches!(byte, b'\n' | b'\r');
                let is_rest_of_end = *byte == b'\n' && is_behind_return;
                if (is_end && !is_rest_of_end) || line.len() >= MOST_STDERR_LINE {
                    take(&mut line);
                }
                if !is_end {
                    line.push(*byte);
                }
                is_behind_return = *byte == b'\r';
            }
        }
        if !line.is_empty() {
            take(&mut line);
        }
    }

    /// Writes a line to the log of the task, and keeps it among the last ones.
    fn keep(&self, line: &str, tail: &Mutex<VecDeque<String>>) {
        // The stderr of the task is its log. A full disk must not end the program.
        let _ = writeln!(io::stderr().lock(), "{line}");
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() >= self.stderr_lines {
            tail.pop_front();
        }
        if self.stderr_lines > 0 {
            tail.push_back(cut(line, MOST_KEPT_BYTES).to_owned());
        }
    }
}

/// Ends a program whose task has failed.
struct Failure {
    pid: Pid,
    /// The other end of the pipe is readable when this one is closed.
    fail: Mutex<Option<PipeWriter>>,
}

impl Failure {
    fn kill(&self) {
        // It may have ended.
        let _ = kill_process(self.pid, Signal::KILL);
        self.fail.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Waits until a pipe of a program is ready, or its task has failed; returns whether it has failed.
fn has_failed_before(
    pipe: &impl AsFd,
    is_ready: PollFlags,
    failed: &PipeReader,
) -> io::Result<bool> {
    let mut polled = [PollFd::new(pipe, is_ready), PollFd::new(failed, PollFlags::IN)];
    retry_on_intr(|| poll(&mut polled, None))?;
    let [_, of_task] = polled;
    Ok(!of_task.revents().is_empty())
}

/// What a program writes. It ends with the last process that can write there, or a short time after a
/// failure of the task: processes that the program has started may outlive it, and the task tracker ends
/// them after the task.
struct Output<'a, R> {
    inner: R,
    failed: &'a PipeReader,
    deadline: Option<Instant>,
}

impl<'a, R> Output<'a, R> {
    fn new(inner: R, failed: &'a PipeReader) -> Output<'a, R> {
        Output { inner, failed, deadline: None }
    }
}

impl<R: AsFd> Output<'_, R> {
    /// Waits until there is something to read. False: it is not awaited any longer.
    fn is_ready(&mut self) -> io::Result<bool> {
        if self.deadline.is_none() {
            if !has_failed_before(&self.inner, PollFlags::IN, self.failed)? {
                return Ok(true);
            }
            self.deadline = Some(Instant::now() + PATIENCE);
        }
        let deadline = self.deadline.unwrap_or_else(Instant::now);
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.inner, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut polled, Some(&left)))?;
        Ok(ready > 0 && Instant::now() < deadline)
    }
}

impl<R: Read + AsFd> Read for Output<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.is_ready()? {
            true => self.inner.read(buffer),
            false => Ok(0),
        }
    }
}

/// Carries out a program's order to the task: `counter:group,name,amount` or `status:text`.
fn report(order: &str, counters: &TaskCounters, status: &Status) {
    if let Some(text) = order.strip_prefix("status:") {
        return status.set_text(text.trim());
    }
    let Some(counter) = order.strip_prefix("counter:") else {
        return tracing::warn!(order, "cannot parse a reporter line; ignoring it");
    };
    let mut columns: Vec<&str> = counter.trim().split(',').collect();
    // Java leaves out the empty ones at the end.
    while columns.last().is_some_and(|column| column.is_empty()) {
        columns.pop();
    }
    match &columns[..] {
        [group, name, amount] => match amount.parse() {
            Ok(amount) if counters.add_own(group, name, amount) => {
                if *group == GROUP && [PROCESSED_RECORDS, PROCESSED_GROUPS].contains(name) {
                    status.processed_records(amount);
                }
            }
            Ok(_) => tracing::warn!(counter, "too many counters; ignoring one"),
            Err(_) => tracing::warn!(counter, "cannot parse a counter increment; ignoring it"),
        },
        _ => tracing::warn!(counter, "cannot parse a counter line; ignoring it"),
    }
}

fn last_lines(tail: &VecDeque<String>) -> String {
    if tail.is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = tail.iter().map(String::as_str).collect();
    format!("\nLast lines of stderr:\n{}", lines.join("\n"))
}

/// The stdin of a program. It is closed when the last process that could read it has ended, or when the
/// task has failed: processes that the program has started may keep it open and not read it.
struct Stdin<'a> {
    inner: Option<ChildStdin>,
    failed: &'a PipeReader,
    counters: &'a TaskCounters,
}

impl<'a> Stdin<'a> {
    fn new(
        inner: Option<ChildStdin>,
        failed: &'a PipeReader,
        counters: &'a TaskCounters,
    ) -> io::Result<Stdin<'a>> {
        if let Some(inner) = &inner {
            // Its readers have an end of their own, which waits as before.
            ioctl_fionbio(inner, true)?;
        }
        Ok(Stdin { inner, failed, counters })
    }

    /// Waits until there is room. False: the task has failed.
    fn has_room(&self) -> io::Result<bool> {
        let Some(inner) = &self.inner else { return Ok(false) };
        Ok(!has_failed_before(inner, PollFlags::OUT, self.failed)?)
    }
}

impl Write for Stdin<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while let Some(inner) = &mut self.inner {
            match inner.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    // A program that takes its input works on it.
                    self.counters.progressed();
                    return done;
                }
            }
            if !self.has_room()? {
                break;
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Translates a failure to write to a program, for its feeder.
pub(crate) fn of_pipe(error: io::Error) -> TaskError {
    TaskError::Local { path: "(pipe)".into(), error }
}

fn is_broken_pipe(error: &TaskError) -> bool {
    matches!(error, TaskError::Local { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
}

/// Variables of a program for the properties of a job: characters other than letters and digits
/// become `_`. A value too long for the system is left out.
pub fn environment<'a>(
    properties: impl Iterator<Item = (&'a str, String)>,
) -> Vec<(String, String)> {
    const MOST_VALUE: usize = 100 << 10;
    /// The most bytes of all together, of the 2 MiB that Linux usually allows.
    const MOST: usize = 1 << 20;
    let mut bytes = 0;
    let mut variables = Vec::new();
    for (name, value) in properties {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(safe).collect();
        let size = name.len() + value.len() + 16;
        if !name.is_empty()
            && !value.contains('\0')
            && value.len() <= MOST_VALUE
            && bytes + size <= MOST
        {
            bytes += size;
            variables.push((name, value));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Count;
    use crate::testing::Found;

    struct Ran {
        result: Result<(), TaskError>,
        found: Vec<(String, String)>,
        counters: TaskCounters,
        status: Status,
    }

    fn format() -> LineFormat {
        LineFormat {
            input_separator: b"\t".to_vec(),
            output_separator: b"\t".to_vec(),
            key_fields: 1,
            ignores_key: true,
        }
    }

    fn run(programs: &Programs, script: &str, input: &[u8], copies: usize) -> Ran {
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        let mut found = Found::default();
        let words = ["sh", "-c", script].map(str::to_owned);
        let result = programs.run(map(&words), &format(), &counters, &status, &mut found, |pipe| {
            (0..copies).try_for_each(|_| pipe.write_all(input).map_err(of_pipe))
        });
        Ran { result, found: found.0, counters, status }
    }

    fn map(words: &[String]) -> Program<'_> {
        Program { step: "map", words }
    }

    fn programs() -> Programs {
        Programs { max_line_bytes: 1000, stderr_lines: 2, ..Programs::new(&std::env::temp_dir()) }
    }

    #[test]
    fn lines_pass_through_a_program() {
        let ran = run(&programs(), "tr a-z A-Z", b"a\tb\nc\n", 1);
        ran.result.unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(ran.found, [pair("A", "B"), pair("C", "")]);
    }

    #[test]
    fn stderr_counts_and_reports() {
        let script = "cat > /dev/null; echo reporter:counter:g,n,3 >&2; echo reporter:counter:g,n,x >&2; \
             echo reporter:status:at work >&2; echo reporter:counter:g,n,4, >&2; echo plain >&2; \
             echo reporter:counter:g,n,100,1 >&2; echo reporter:counter:g,n,,, >&2";
        let ran = run(&programs(), script, b"x\n", 1);
        ran.result.unwrap();
        assert_eq!(ran.counters.report().get("g", "n"), Some(7));
        assert_eq!(ran.status.text(), "at work");
        assert_eq!(ran.counters.get(Count::MapInputRecords), 0);
    }

    #[test]
    fn a_carriage_return_ends_a_line_of_stderr() {
        let script = "printf '10 %%\\r20 %%\\rreporter:counter:g,n,3\\r\\nreporter:counter:g,n,4\\rlast' >&2; \
             cat > /dev/null; exit 7";
        let ran = run(&Programs { stderr_lines: 9, ..programs() }, script, b"x\n", 1);
        assert_eq!(ran.counters.report().get("g", "n"), Some(7));
        let told = ran.result.unwrap_err().to_string();
        assert!(told.ends_with("Last lines of stderr:\n10 %\n20 %\nlast"), "{told}");
    }

    #[test]
    fn a_program_that_takes_its_input_makes_progress() {
        let programs = programs();
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        let words = ["sh", "-c", "while :; do head -c 4096; sleep 0.01; done > /dev/null"];
        let (words, found) = (words.map(str::to_owned), &mut Found::default());
        let mut pieces = 0;
        let result = programs.run(map(&words), &format(), &counters, &status, found, |pipe| {
            counters.take_progress();
            // More than the buffer and the pipe hold: the program takes what is before.
            while pieces < 100 {
                pipe.write_all(&[b'x'; 64 << 10]).map_err(of_pipe)?;
                pieces += 1;
                if pieces > 10 {
                    assert!(counters.take_progress() || pieces % 2 == 0, "{pieces}");
                }
            }
            programs.stop();
            Ok(())
        });
        assert!(matches!(result, Err(TaskError::Stopped)), "{result:?}");
    }

    /// A program that shows its progress again and again on one line, and nothing else.
    #[test]
    fn a_progress_bar_is_progress() {
        let programs = programs();
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let words = ["sh", "-c", "while :; do printf '%%\\r' >&2; sleep 0.01; done"];
                let words = words.map(str::to_owned);
                let found = &mut Found::default();
                programs.run(map(&words), &format(), &counters, &status, found, |_| Ok(()))
            });
            for _ in 0..3 {
                while !counters.take_progress() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            programs.stop();
        });
    }

    #[test]
    fn failures_carry_the_last_lines_of_stderr() {
        let script = "cat > /dev/null; for i in 1 2 3; do echo line $i >&2; done; exit 7";
        let told = run(&programs(), script, b"x\n", 1).result.unwrap_err().to_string();
        assert_eq!(
            told,
            format!(
                "PipeMapRed.waitOutputThreads(): subprocess failed with code 7\nin the map: {script}\n\
                 Last lines of stderr:\nline 2\nline 3"
            )
        );
        let lenient = Programs { exit_status_counts: false, ..programs() };
        assert!(run(&lenient, script, b"x\n", 1).result.is_ok());
        let killed = run(&programs(), "kill -9 $$", b"", 0).result.unwrap_err().to_string();
        assert!(killed.contains("code 137"), "{killed}");
    }

    #[test]
    fn a_failure_names_the_step_and_its_command() {
        let shown = |step, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Program { step, words: &words }.shown()
        };
        assert_eq!(shown("reduce", &["uniq", "-c"]), "in the reduce: uniq -c");
        assert_eq!(shown("map", &["sh", "-c", "grep 'a b'"]), "in the map: grep 'a b'");
        let long = shown("combine", &["sh", "-c", &"x".repeat(10_000)]);
        assert_eq!(long, format!("in the combine: {} ...", "x".repeat(MOST_COMMAND_BYTES)));
    }

    #[test]
    fn a_program_that_does_not_read_its_input_fails() {
        let told =
            run(&programs(), "exit 0", &[b'x'; 1000], 10_000).result.unwrap_err().to_string();
        assert!(told.starts_with("Broken pipe: sh ended before it had read its input"), "{told}");
    }

    #[test]
    fn a_program_that_writes_without_end_is_killed_when_its_task_fails() {
        let told = run(&programs(), "yes", b"", 0).result.unwrap_err().to_string();
        assert_eq!(told, "enough");
        let told =
            run(&programs(), "tr '\\0' x < /dev/zero", b"", 0).result.unwrap_err().to_string();
        assert!(told.contains("corona.task.max.record.bytes"), "{told}");
    }

    /// Processes in the background keep stdout and stderr open.
    #[test]
    fn a_task_that_failed_does_not_wait_for_what_its_program_has_started() {
        let began = Instant::now();
        // More than a pipe holds.
        let large = "line\n".repeat(100_000);
        for (script, input) in
            [("sleep 30 & yes", ""), ("sleep 30 & yes | cat", ""), ("sleep 30 <&0 & yes", &*large)]
        {
            let told = run(&programs(), script, input.as_bytes(), 0).result;
            assert_eq!(told.unwrap_err().to_string(), "enough", "{script}");
        }
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        let words = ["sh", "-c", "sleep 30 & cat"].map(str::to_owned);
        let feed = |_: &mut dyn Write| Err(TaskError::Task("no input".to_owned()));
        let to = &mut Found::default();
        let result = programs().run(map(&words), &format(), &counters, &status, to, feed);
        assert_eq!(result.unwrap_err().to_string(), "no input");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_program_that_hangs_ends_with_its_task() {
        let programs = programs();
        std::thread::scope(|threads| {
            let hanging =
                threads.spawn(|| run(&programs, "exec sleep 600", &[b'x'; 1000], 10_000).result);
            while programs.running().programs.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            programs.stop();
            assert!(matches!(hanging.join().unwrap(), Err(TaskError::Stopped)));
        });
        assert!(matches!(run(&programs, "true", b"", 0).result, Err(TaskError::Stopped)));
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        let (words, found) = (["no-such-program".to_owned()], &mut Found::default());
        let result = programs().run(map(&words), &format(), &counters, &status, found, |_| Ok(()));
        let told = result.unwrap_err().to_string();
        assert_eq!(
            told,
            "cannot start no-such-program: No such file or directory (os error 2): it is neither a \
             file of the job nor a program on the PATH of the task; give the tasks a file of your own \
             with --file FILE, or install the program on every node"
        );
    }

    /// The error of a file of the job with this content.
    fn started(content: &[u8]) -> Result<Vec<(String, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("m.py"), content).unwrap();
        let (counters, status) = (TaskCounters::default(), Status::new(true));
        let (words, mut found) = (["m.py", "x"].map(str::to_owned), Found::default());
        let programs = Programs::new(dir.path());
        let result =
            programs.run(map(&words), &format(), &counters, &status, &mut found, |_| Ok(()));
        result.map(|()| found.0).map_err(|error| error.to_string())
    }

    #[test]
    fn a_script_that_cannot_start_names_its_interpreter() {
        for (content, expected) in [
            (&b"#!/no/such/python\n"[..], "\"/no/such/python\""),
            (b"#!/bin/sh\r\necho a\r\n", "carriage return"),
            (b"#!/usr/bin/env sh\r\necho a\r\n", "carriage return"),
            (b"#!/tmp\n", "\"/tmp\" is not executable"),
            (b"\x7fELF\x02\x01\x01\0\0\0", "no program for this machine"),
            (b"#!/bin/sh\nno-such-program\n", "127: a shell or env did not find a program"),
        ] {
            let told = started(content).unwrap_err();
            assert!(told.contains(expected), "{content:?}: {told}");
        }
    }

    #[test]
    fn a_script_without_an_interpreter_is_given_to_the_shell() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(started(b"echo \"$1\"\n"), Ok(vec![pair("x", "")]));
    }

    #[test]
    fn a_profiler_starts_the_program_of_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let words = ["own.sh", "a"].map(str::to_owned);
        let mut programs = Programs::new(dir.path());
        assert_eq!(programs.profiled(&words), words);
        programs.profiler = vec!["nice".to_owned(), "-n".to_owned(), "1".to_owned()];
        assert_eq!(programs.profiled(&words), ["nice", "-n", "1", "own.sh", "a"]);
        std::fs::write(dir.path().join("own.sh"), "").unwrap();
        let own = dir.path().join("own.sh").display().to_string();
        assert_eq!(programs.profiled(&words), ["nice", "-n", "1", own.as_str(), "a"]);
    }

    #[test]
    fn properties_become_variables() {
        let properties = [
            ("mapred.task.id", "a".to_owned()),
            ("x-y", "b".to_owned()),
            ("large", "x".repeat(200 << 10)),
            ("zero", "a\0b".to_owned()),
        ];
        let variables = environment(properties.into_iter());
        let expected =
            [("mapred_task_id", "a"), ("x_y", "b")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(variables, expected);
    }
}
