//! Fetches outputs of maps by a [`Plan`]: threads with a connection each. Spec: mapreduce/04 §4.9.
//!
//! An output goes into memory if it fits into the free part of the shuffle's memory, else into a
//! file. When a set part of that memory is full, its outputs are merged into one file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use corona_access::rights::HTTP;
use corona_access::{BlockingStream, dial_blocking};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::writables::{ShuffleHeader, TaskAttemptId};
use corona_process::budget::{Budget, Limits, Use};
use thiserror::Error;

use crate::codec;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::ifile::{CHECKSUM_BYTES, Checked, InMemory};
use crate::scratch::Scratch;
use crate::segment::{DataSettings, DiskPart, Segment, write_merged};
use crate::shuffle::{Failure, Plan, Request, RetrySettings};
use crate::status::Status;
use crate::umbilical::MapEvents;

/// Bytes that a node must send in a second on average while a reduce waits for it, over twice the read timeout.
const LEAST_BYTES_PER_SECOND: u64 = 1024;
/// Bytes by which a compressed output may exceed its records, beside an eighth of them.
const CODEC_OVERHEAD_BYTES: u64 = 64 << 10;

/// Memory of a copy beside what it fetches: its thread, and its buffers.
const COPY_BYTES: u64 = 1 << 20;

/// Memory, connections and patience of a shuffle.
#[derive(Clone, Debug)]
pub struct ShuffleSettings {
    /// Memory for outputs, in bytes.
    pub memory_bytes: u64,
    /// How much of it is filled before it is merged to disk.
    pub merge_bytes: u64,
    /// Connections at a time.
    pub connections: usize,
    /// For a connection.
    pub connect_timeout: Duration,
    /// For the next bytes of a node.
    pub read_timeout: Duration,
    /// When fetches are repeated and reported.
    pub retries: RetrySettings,
    /// Pause between questions for new events.
    pub poll_interval: Duration,
    /// How the data is read and written.
    pub data: DataSettings,
}

/// Why an output has not come.
#[derive(Debug, Error)]
enum FetchError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the node replied {0:?}")]
    Refused(String),
    #[error("the node does not have the output")]
    NotFound,
    #[error("the node sent {0}")]
    Wrong(String),
    /// This machine fails, not the node.
    #[error(transparent)]
    Own(Box<TaskError>),
}

impl FetchError {
    fn failure(&self) -> Failure {
        match self {
            FetchError::Connect(_) | FetchError::Broken(_) | FetchError::Own(_) => {
                Failure::Connection
            }
            FetchError::Refused(_) | FetchError::NotFound | FetchError::Wrong(_) => {
                Failure::Serious
            }
        }
    }
}

/// State that the threads of a shuffle share.
struct ShuffleContext<'a> {
    state: Mutex<ShuffleState>,
    changed: Condvar,
    settings: ShuffleSettings,
    job: String,
    reduce: i32,
    begun: Instant,
    scratch: &'a Scratch,
    counters: &'a TaskCounters,
    status: &'a Status,
}

struct ShuffleState {
    plan: Plan,
    memory: Vec<InMemory>,
    memory_bytes: u64,
    disk: Vec<DiskPart>,
    merges: usize,
    failed: Option<TaskError>,
    is_over: bool,
}

impl ShuffleState {
    fn new(plan: Plan, is_over: bool) -> ShuffleState {
        ShuffleState {
            plan,
            memory: Vec::new(),
            memory_bytes: 0,
            disk: Vec::new(),
            merges: 0,
            failed: None,
            is_over,
        }
    }
}

/// How many outputs may be fetched at a time: as many as are configured, or fewer where the process has less.
fn allowed_copies(limits: Limits, connections: usize) -> usize {
    const COPIES: &str = "copies at a time";
    let copies = Use::new(COPIES, connections).files(2).threads(1).memory(COPY_BYTES);
    Budget::new(limits, &[copies]).of(COPIES)
}

/// Fetches all outputs of the maps of a job for a reduce.
#[expect(clippy::too_many_arguments, reason = "each is another part of the task")]
pub(crate) fn shuffle(
    job: &str,
    reduce: i32,
    maps: usize,
    events: &mut MapEvents,
    settings: ShuffleSettings,
    scratch: &Scratch,
    counters: &TaskCounters,
    status: &Status,
) -> Result<Vec<Segment>, TaskError> {
    let state = ShuffleState::new(Plan::new(maps, settings.retries), maps == 0);
    let shared = ShuffleContext {
        state: Mutex::new(state),
        changed: Condvar::new(),
        settings,
        job: job.to_owned(),
        reduce,
        begun: Instant::now(),
        scratch,
        counters,
        status,
    };
    std::thread::scope(|threads| {
        let copies = allowed_copies(Limits::of_process(), shared.settings.connections).min(maps);
        for number in 0..copies {
            let started = Builder::new().spawn_scoped(threads, || shared.work());
            if let Err(error) = started {
                match number {
                    0 => shared.fail(TaskError::Task(format!("cannot start a thread: {error}"))),
                    _ => tracing::warn!(%error, copies = number, "no more copies at a time"),
                }
                break;
            }
        }
        shared.follow(events, maps);
    });
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.failed {
        return Err(error);
    }
    let memory = state.memory.into_iter().map(Segment::Memory);
    Ok(state.disk.into_iter().map(Segment::Disk).chain(memory).collect())
}

impl ShuffleContext<'_> {
    fn lock(&self) -> MutexGuard<'_, ShuffleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: TaskError) {
        let mut state = self.lock();
        state.failed.get_or_insert(error);
        state.is_over = true;
        self.changed.notify_all();
    }

    /// Asks for events until all outputs are here.
    fn follow(&self, events: &mut MapEvents, maps: usize) {
        let mut errors = 0;
        loop {
            if self.lock().is_over {
                return;
            }
            // A reduce that waits for maps is no task that hangs.
            self.counters.progressed();
            match events.poll() {
                Ok(news) => {
                    errors = 0;
                    let mut state = self.lock();
                    if news.is_restart {
                        state.plan.restart();
                    }
                    for event in &news.events {
                        state.plan.event(event);
                    }
                    state.is_over |= state.plan.is_done();
                    self.changed.notify_all();
                }
                Err(error) if errors + 1 >= crate::umbilical::MOST_ERRORS => {
                    let why =
                        format!("cannot get the events of maps from the job tracker: {error}");
                    return self.fail(TaskError::Shuffle(why));
                }
                Err(error) => {
                    errors += 1;
                    tracing::warn!(%error, "cannot get the events of maps; retrying");
                }
            }
            let state = self.lock();
            let done = state.plan.done();
            self.status.set_progress(done as f32 / maps.max(1) as f32 / 3.0);
            self.status.set_text(&format!("reduce > copy ({done} of {maps})"));
            if state.is_over {
                return;
            }
            // Threads wake this one when all is over.
            drop(self.changed.wait_timeout(state, self.settings.poll_interval));
        }
    }

    /// The work of one thread.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            let request = loop {
                if state.is_over {
                    return;
                }
                if let Some(request) = state.plan.next(self.begun.elapsed()) {
                    break request;
                }
                let pause = self.settings.poll_interval.min(Duration::from_millis(500));
                let waited = self.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            };
            drop(state);
            if let Err(error) = self.fetch(&request) {
                return self.fail(error);
            }
        }
    }

    /// Fetches the outputs of a request. An error ends the reduce.
    fn fetch(&self, request: &Request) -> Result<(), TaskError> {
        let mut missing = Vec::new();
        let mut outputs = request.attempts.iter();
        let fetched = self.connect(request).and_then(|mut stream| {
            for attempt in outputs.by_ref() {
                match self.output(attempt, &mut stream) {
                    Ok(()) => {
                        self.counters.progressed();
                    }
                    // The bytes of the next one follow.
                    Err(FetchError::NotFound) => missing.push((attempt.clone(), Failure::Serious)),
                    Err(error) => {
                        missing.push((attempt.clone(), error.failure()));
                        return Err(error);
                    }
                }
            }
            Ok(())
        });
        if let Err(error) = fetched {
            tracing::warn!(at = request.at, %error, "cannot fetch map outputs; retrying later");
            if missing.is_empty() {
                let failed = outputs.by_ref().map(|attempt| (attempt.clone(), error.failure()));
                missing.extend(failed);
            }
            missing.extend(outputs.map(|attempt| (attempt.clone(), Failure::NotTried)));
            if let FetchError::Own(error) = error {
                return Err(*error);
            }
        }
        let merge = {
            let mut state = self.lock();
            let ended = state.plan.ended(&request.at, &missing, self.begun.elapsed());
            let reports = state.plan.take_reports();
            self.status.change_reduce(|reduce| reduce.failed_fetches.extend(reports));
            ended.map_err(TaskError::Shuffle)?;
            state.is_over |= state.plan.is_done();
            self.changed.notify_all();
            self.full_memory(&mut state)
        };
        self.merge_memory(merge)
    }

    /// Takes the outputs in memory if that is full enough, with the name of their file.
    fn full_memory(&self, state: &mut ShuffleState) -> Option<(Vec<InMemory>, String)> {
        let held: u64 = state.memory.iter().map(|run| run.bytes() as u64).sum();
        if state.is_over || held < self.settings.merge_bytes || state.memory.len() < 2 {
            return None;
        }
        state.merges += 1;
        Some((std::mem::take(&mut state.memory), format!("memory.{}.out", state.merges)))
    }

    fn merge_memory(&self, merge: Option<(Vec<InMemory>, String)>) -> Result<(), TaskError> {
        let Some((runs, name)) = merge else { return Ok(()) };
        let bytes: u64 = runs.iter().map(|run| run.bytes() as u64).sum();
        let segments = runs.into_iter().map(Segment::Memory).collect();
        let part = write_merged(segments, &name, &self.settings.data, self.scratch, self.counters)?;
        let mut state = self.lock();
        state.disk.push(part);
        state.memory_bytes = state.memory_bytes.saturating_sub(bytes);
        Ok(())
    }

    /// Opens a connection and reads the head of the response. Follows one redirect.
    fn connect(&self, request: &Request) -> Result<Body, FetchError> {
        let maps: Vec<String> = request.attempts.iter().map(ToString::to_string).collect();
        let query =
            format!("/mapOutput?job={}&map={}&reduce={}", self.job, maps.join(","), self.reduce);
        let at = request.at.trim_end_matches('/');
        match self.get(&format!("{at}{query}"))? {
            Response::Body(body) => Ok(body),
            Response::Redirect(to) => match self.get(&to)? {
                Response::Body(body) => Ok(body),
                Response::Redirect(to) => {
                    Err(FetchError::Refused(format!("a second redirect to {to:?}")))
                }
            },
        }
    }

    fn get(&self, url: &str) -> Result<Response, FetchError> {
        let (host, path) = parts_of(url)?;
        let with_port = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let stream = self.open(&with_port).map_err(FetchError::Connect)?;
        let mut stream = stream;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: corona\r\nConnection: close\r\n\r\n"
        )?;
        let paced = Paced::new(stream, self.settings.read_timeout.saturating_mul(2));
        let mut stream = BufReader::with_capacity(64 << 10, paced);
        let head = read_head(&mut stream)?;
        Response::of(stream, &head)
    }

    fn open(&self, address: &str) -> io::Result<BlockingStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.settings.connect_timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(self.settings.read_timeout))?;
                    stream.set_write_timeout(Some(self.settings.read_timeout))?;
                    return dial_blocking(HTTP, stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reads one output.
    fn output(
        &self,
        attempt: &TaskAttemptId,
        stream: &mut (impl BufRead + Send),
    ) -> Result<(), FetchError> {
        let header = read_header(stream)?;
        if !header.found {
            return Err(FetchError::NotFound);
        }
        let wrong = |what: &str| FetchError::Wrong(format!("{what}: {header:?}"));
        if header.attempt != attempt.to_string() || header.reduce != self.reduce {
            return Err(wrong("another output"));
        }
        let (Ok(part), Ok(raw)) =
            (u64::try_from(header.part_length), u64::try_from(header.raw_length))
        else {
            return Err(wrong("a negative length"));
        };
        if part < 6 || raw < 2 {
            return Err(wrong("a length that is too small"));
        }
        if !self.is_likely(part, raw) {
            return Err(wrong("lengths that contradict each other"));
        }
        match self.reserve(raw) {
            true => {
                let read = self.read_to_memory(stream, part, raw);
                let kept = read.map(|run| self.keep_memory(attempt, run));
                if !matches!(kept, Ok(true)) {
                    self.lock().memory_bytes -= raw;
                }
                kept.map(|_| ())?;
            }
            false => self.copy_to_disk(attempt, stream, part)?,
        }
        self.counters.add(Count::ReduceShuffleBytes, part);
        Ok(())
    }

    /// Whether an output of these lengths can hold records of that length.
    fn is_likely(&self, part: u64, raw: u64) -> bool {
        match self.settings.data.codec {
            None => raw.checked_add(CHECKSUM_BYTES) == Some(part),
            Some(_) => part <= raw.saturating_add(raw / 8).saturating_add(CODEC_OVERHEAD_BYTES),
        }
    }

    /// Takes memory for an output. False: there is not enough, or it would take too large a part.
    fn reserve(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        let fits = bytes <= self.settings.memory_bytes / 4
            && state.memory_bytes + bytes <= self.settings.memory_bytes;
        if fits {
            state.memory_bytes += bytes;
        }
        fits
    }

    fn read_to_memory(
        &self,
        stream: &mut (impl BufRead + Send),
        part: u64,
        raw: u64,
    ) -> Result<InMemory, FetchError> {
        let mut bytes = Vec::new();
        let mut checked = Checked::new(stream.take(part), part);
        let decoded = match self.settings.data.codec {
            None => (&mut checked).take(raw.saturating_add(1)).read_to_end(&mut bytes),
            Some(codec) => codec::read_bounded(codec, &mut checked, raw, &mut bytes),
        };
        decoded.map_err(of_part)?;
        // Bytes that the decoder left unread, and the checksum.
        io::copy(&mut checked, &mut io::sink()).map_err(of_part)?;
        if bytes.len() as u64 != raw {
            let held = bytes.len();
            return Err(FetchError::Wrong(format!("{held} bytes of records where {raw} were due")));
        }
        Ok(InMemory::new(bytes))
    }

    fn keep_memory(&self, attempt: &TaskAttemptId, run: InMemory) -> bool {
        let mut state = self.lock();
        let is_wanted = state.plan.fetched(attempt);
        if is_wanted {
            state.memory.push(run);
        }
        is_wanted
    }

    /// Copies an output as it is into a file, comparing its checksum.
    fn copy_to_disk(
        &self,
        attempt: &TaskAttemptId,
        stream: &mut impl BufRead,
        part: u64,
    ) -> Result<(), FetchError> {
        let own = |error: TaskError| FetchError::Own(Box::new(error));
        let name = format!("map_{}.{}.out", attempt.task.number, attempt.number);
        // How large an output is only its node says. One that no disk here could hold is its node's fault.
        let (free, all) = self.scratch.room();
        if part > all {
            return Err(FetchError::Wrong(format!(
                "{part} bytes, where the local disks hold {all}"
            )));
        }
        if part > free {
            let path = self.scratch.place(&name).map_err(own)?;
            return Err(own(TaskError::Local { path, error: rustix::io::Errno::NOSPC.into() }));
        }
        let (path, mut file) = self.scratch.create(&name).map_err(own)?;
        let mut checked = Checked::new(stream.take(part), part);
        let copied = copy(&mut checked, &mut file, self.counters);
        if let Err(error) = copied {
            self.scratch.remove(&path);
            return Err(match error {
                CopyError::Read(error) => of_part(error),
                CopyError::Write(error) => own(TaskError::Local { path, error }),
            });
        }
        file.write_all(&checked.sum().to_be_bytes())
            .map_err(|error| own(TaskError::local(&path)(error)))?;
        let mut state = self.lock();
        match state.plan.fetched(attempt) {
            true => {
                self.counters.add(Count::FileWritten, part);
                state.disk.push(DiskPart { path, start: 0, part_bytes: part, is_whole_file: true });
            }
            false => self.scratch.remove(&path),
        }
        Ok(())
    }
}

/// Why a copy ended early.
#[derive(Debug)]
pub(crate) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> io::Error {
        let (CopyError::Read(error) | CopyError::Write(error)) = error;
        error
    }
}

/// Copies a stream into a file; each step is progress.
pub(crate) fn copy(
    from: &mut impl Read,
    to: &mut File,
    counters: &TaskCounters,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; 128 << 10];
    loop {
        let read = from.read(&mut buffer).map_err(CopyError::Read)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).map_err(CopyError::Write)?;
        counters.progressed();
    }
}

/// A part whose bytes are wrong is the node's fault; one that stops may come whole the next time.
fn of_part(error: io::Error) -> FetchError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            FetchError::Wrong(error.to_string())
        }
        _ => FetchError::Broken(error),
    }
}

/// The host, perhaps with a port, and the path with the query of an address.
fn parts_of(url: &str) -> Result<(&str, &str), FetchError> {
    let refused = || FetchError::Refused(format!("is no address: {url:?}"));
    let is_address = |rest: &&str| rest.bytes().all(|byte| byte.is_ascii_graphic());
    let rest = url.strip_prefix("http://").filter(is_address).ok_or_else(refused)?;
    Ok(rest.split_at(rest.find('/').ok_or_else(refused)?))
}

/// The body of a response.
type Body = BufReader<Paced<BlockingStream>>;

/// A stream that fails when it brings next to nothing: with a byte now and then a node passes every read timeout.
#[derive(Debug)]
struct Paced<S> {
    stream: S,
    /// Over how much waiting it is judged.
    window: Duration,
    waited: Duration,
    bytes: u64,
}

impl<S> Paced<S> {
    fn new(stream: S, window: Duration) -> Paced<S> {
        Paced { stream, window, waited: Duration::ZERO, bytes: 0 }
    }

    /// Judges the last window, if it is over.
    fn judge(&mut self) -> io::Result<()> {
        if self.waited < self.window {
            return Ok(());
        }
        let (waited, bytes) = (std::mem::take(&mut self.waited), std::mem::take(&mut self.bytes));
        match bytes < LEAST_BYTES_PER_SECOND.saturating_mul(waited.as_secs()) {
            true => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("only {bytes} bytes came in {} s", waited.as_secs()),
            )),
            false => Ok(()),
        }
    }
}

impl<S: Read> Read for Paced<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.judge()?;
        let begun = Instant::now();
        let read = self.stream.read(buffer)?;
        self.waited = self.waited.saturating_add(begun.elapsed());
        self.bytes = self.bytes.saturating_add(read as u64);
        Ok(read)
    }
}

enum Response {
    Body(Body),
    Redirect(String),
}

/// The longest head of a response.
const MOST_HEAD_BYTES: u64 = 16 << 10;

fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = Vec::new();
    let mut limited = stream.take(MOST_HEAD_BYTES);
    loop {
        let before = head.len();
        limited.read_until(b'\n', &mut head)?;
        match head.get(before..) {
            Some(b"\r\n" | b"\n") => break,
            Some(line) if line.ends_with(b"\n") => {}
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

impl Response {
    fn of(stream: Body, head: &str) -> Result<Response, FetchError> {
        let line = head.lines().next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/").and_then(|line| line.split(' ').nth(1));
        match status {
            Some("200") => Ok(Response::Body(stream)),
            Some("301" | "302" | "307") => {
                let location = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
                });
                location.map(Response::Redirect).ok_or_else(|| FetchError::Refused(line.to_owned()))
            }
            _ => Err(FetchError::Refused(line.chars().take(200).collect())),
        }
    }
}

/// Reads the header of an output, byte by byte, since its length is not known before.
fn read_header(stream: &mut impl BufRead) -> Result<ShuffleHeader, FetchError> {
    /// No attempt has a longer name.
    const MOST_BYTES: usize = 1024;
    let mut bytes = Vec::with_capacity(64);
    while bytes.len() < MOST_BYTES {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.extend(byte);
        match ShuffleHeader::decode(&mut Reader::partial(&bytes, MOST_BYTES)) {
            Ok(header) => return Ok(header),
            Err(DecodeError::Truncated) => {}
            Err(error) => {
                return Err(FetchError::Wrong(format!("no header of an output: {error}")));
            }
        }
    }
    Err(FetchError::Wrong("a header that is too long".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::codec::Codec;
    use crate::ifile::{self, Lengths};
    use crate::segment::merged;
    use crate::testing;
    use crate::vint;
    use corona_hadoop::io::Writer;
    use corona_hadoop::writables::{EventStatus, TaskCompletionEvent};

    /// A node that answers its connections with these responses, in turn, and returns the requests.
    fn node(responses: Vec<Vec<u8>>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let serving = thread::spawn(move || {
            let serve = |response: Vec<u8>| {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                let request = read_head(&mut stream).unwrap();
                // A client that has enough closes the connection.
                let _ = stream.get_mut().write_all(&response);
                request
            };
            responses.into_iter().map(serve).collect()
        });
        (at, serving)
    }

    fn event(attempt: &str, at: &str) -> TaskCompletionEvent {
        testing::event(attempt.parse().unwrap(), EventStatus::Succeeded, at)
    }

    struct Fetched {
        result: Result<Vec<Segment>, TaskError>,
        scratch: Scratch,
        counters: TaskCounters,
        status: Status,
        _dir: tempfile::TempDir,
    }

    fn data_settings(codec: Option<Codec>) -> DataSettings {
        let order = std::sync::Arc::default();
        DataSettings { order, codec, factor: 10, max_record_bytes: 1 << 20 }
    }

    fn settings(memory_bytes: u64, codec: Option<Codec>) -> ShuffleSettings {
        let timeout = Duration::from_secs(20);
        ShuffleSettings {
            memory_bytes,
            merge_bytes: memory_bytes * 2 / 3,
            connections: 3,
            connect_timeout: timeout,
            read_timeout: timeout,
            retries: RetrySettings {
                report_after: 1,
                abort_after: 3,
                pause: Duration::from_millis(1),
            },
            poll_interval: Duration::from_millis(5),
            data: data_settings(codec),
        }
    }

    fn fetch(events: &[TaskCompletionEvent], settings: ShuffleSettings) -> Fetched {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let (counters, status) = (TaskCounters::default(), Status::new(false));
        let mut plan = Plan::new(events.len(), settings.retries);
        events.iter().for_each(|event| plan.event(event));
        let state = ShuffleState::new(plan, false);
        let job = events[0].attempt.job().to_string();
        let (state, changed, begun) = (Mutex::new(state), Condvar::new(), Instant::now());
        let (scratch_of, counters_of, status_of) = (&scratch, &counters, &status);
        let shared = ShuffleContext {
            state,
            changed,
            settings,
            job,
            reduce: 0,
            begun,
            scratch: scratch_of,
            counters: counters_of,
            status: status_of,
        };
        thread::scope(|threads| {
            (0..3).for_each(|_| drop(threads.spawn(|| shared.work())));
        });
        let state = shared.state.into_inner().unwrap();
        let disk = state.disk.into_iter().map(Segment::Disk);
        let all = disk.chain(state.memory.into_iter().map(Segment::Memory)).collect();
        let result = state.failed.map_or(Ok(all), Err);
        Fetched { result, scratch, counters, status, _dir: dir }
    }

    fn records(fetched: Fetched, codec: Option<Codec>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let data = data_settings(codec);
        let segments = fetched.result.unwrap();
        let mut run = merged(segments, &data, &fetched.scratch, &fetched.counters).unwrap();
        let mut records = Vec::new();
        while run.advance().unwrap() {
            records.push((run.key().to_vec(), run.value().to_vec()));
        }
        records
    }

    /// A node's response for an output with these keys.
    fn output(
        attempt: &str,
        keys: &[&str],
        codec: Option<Codec>,
        header: impl Fn(&mut ShuffleHeader),
    ) -> Vec<u8> {
        let mut writer = ifile::Writer::new(Vec::new(), codec);
        for key in keys {
            let mut text = Vec::new();
            vint::put_text(key.as_bytes(), &mut text);
            writer.append(&text, b"v").unwrap();
        }
        let (bytes, Lengths { raw, part }) = writer.finish().unwrap();
        let mut of = ShuffleHeader {
            attempt: attempt.to_owned(),
            part_length: part as i64,
            raw_length: raw as i64,
            reduce: 0,
            found: true,
        };
        header(&mut of);
        let mut out = Writer::new(1024);
        of.encode(&mut out);
        let mut out = out.finish().unwrap();
        if of.found {
            out.extend(bytes);
        }
        out
    }

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    const MAP: &str = "attempt_20.1_0001_m_000000_0";
    const OTHER: &str = "attempt_20.1_0001_m_000001_0";

    /// The outputs of two Java maps, as a Java node sent them to a Java reduce in the recorded sleep job.
    #[test]
    fn outputs_of_java_maps_are_read_from_a_java_node() {
        let recorded = include_bytes!("golden/two-maps.response").to_vec();
        for memory in [1 << 20, 0] {
            let (at, serving) = node(vec![recorded.clone()]);
            let maps = [0, 1].map(|map| format!("attempt_202611210043.1_0001_m_00000{map}_0"));
            let events = maps.clone().map(|map| event(&map, &at));
            let fetched = fetch(&events, settings(memory, None));
            assert_eq!(fetched.counters.get(Count::ReduceShuffleBytes), 24);
            assert_eq!(records(fetched, None), vec![(vec![0; 4], vec![]); 2]);
            let request = serving.join().unwrap().remove(0);
            let expected = format!(
                "GET /mapOutput?job=job_202611210043.1_0001&map={}&reduce=0 HTTP/1.1\r\n",
                maps.join(",")
            );
            assert!(request.starts_with(&expected), "{request}");
        }
    }

    /// The same two Java maps and a native one feed one reduce.
    #[test]
    fn outputs_of_java_and_native_maps_are_merged_in_one_reduce() {
        let recorded = include_bytes!("golden/two-maps.response").to_vec();
        let java = [0, 1].map(|map| format!("attempt_202611210043.1_0001_m_00000{map}_0"));
        let native = "attempt_202611210043.1_0001_m_000002_0";
        let response = [OK, &output(native, &["\0\0", "a"], None, |_| ())].concat();
        for memory in [1 << 20, 0] {
            let (of_java, java_serves) = node(vec![recorded.clone()]);
            let (of_native, native_serves) = node(vec![response.clone()]);
            let mut events: Vec<_> = java.iter().map(|map| event(map, &of_java)).collect();
            events.push(event(native, &of_native));
            let fetched = fetch(&events, settings(memory, None));
            let keys: Vec<Vec<u8>> =
                records(fetched, None).into_iter().map(|(key, _)| key).collect();
            // By the bytes behind the first one: \0\0, twice \0\0\0, a.
            let expected = [&b"\x02\0\0"[..], &[0; 4], &[0; 4], b"\x01a"];
            assert_eq!(keys, expected);
            java_serves.join().unwrap();
            native_serves.join().unwrap();
        }
    }

    #[test]
    fn no_more_outputs_are_fetched_at_a_time_than_the_process_has_files_memory_and_threads_for() {
        let limits = |open_files, memory, threads| Limits { open_files, memory, threads };
        for (limits, copies) in [
            (limits(None, None, None), 20),
            (limits(Some(1024), Some(1 << 30), Some(4096)), 20),
            (limits(Some(148), None, None), 10),
            (limits(None, Some(69 << 20), None), 5),
            (limits(None, None, Some(67)), 3),
            (limits(Some(0), Some(0), Some(0)), 1),
        ] {
            assert_eq!(allowed_copies(limits, 20), copies, "{limits:?}");
        }
    }

    #[test]
    fn outputs_go_to_memory_or_to_disk_compressed_or_not() {
        for codec in [None, Some(Codec::Deflate), Some(Codec::Gzip)] {
            for memory in [0, 1 << 20] {
                let other = [OK.to_vec(), output(OTHER, &["b"], codec, |_| {})].concat();
                let (elsewhere, second) = node(vec![other]);
                let moved =
                    format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}/mapOutput?x\r\n\r\n");
                let (at, first) = node(vec![moved.into_bytes()]);
                let body = [OK.to_vec(), output(MAP, &["a", "c"], codec, |_| {})].concat();
                let (direct, third) = node(vec![body]);
                let fetched =
                    fetch(&[event(MAP, &direct), event(OTHER, &at)], settings(memory, codec));
                let keys: Vec<_> =
                    records(fetched, codec).into_iter().map(|(key, _)| key).collect();
                assert_eq!(keys, [b"\x01a", b"\x01b", b"\x01c"]);
                for serving in [first, second, third] {
                    serving.join().unwrap();
                }
            }
        }
    }

    /// A redirect names the next address.
    #[test]
    fn nothing_in_an_address_ends_the_request_line() {
        let table = [
            ("http://node:1/mapOutput?x", Some(("node:1", "/mapOutput?x"))),
            ("http://node/", Some(("node", "/"))),
            ("http://node", None),
            ("https://node/", None),
            ("http://node/x\rX-Evil: 1", None),
            ("http://node/x\r\nX-Evil: 1", None),
            ("http://node/x HTTP/1.1", None),
            ("http://node\r/x", None),
            ("http://node/\u{1}", None),
            ("http://node/\u{202e}", None),
            ("", None),
        ];
        for (url, expected) in table {
            assert_eq!(parts_of(url).ok(), expected, "{url:?}");
        }
    }

    #[test]
    fn full_memory_is_merged_to_disk() {
        let body = |attempt: &str, key: &str| output(attempt, &[key; 20], None, |_| {});
        let names: Vec<String> =
            (0..12).map(|map| format!("attempt_20.1_0001_m_{map:06}_0")).collect();
        let (mut events, mut nodes) = (Vec::new(), Vec::new());
        for (at, name) in names.iter().enumerate() {
            let response = [OK.to_vec(), body(name, &format!("{at:02}"))].concat();
            let (at, serving) = node(vec![response]);
            events.push(event(name, &at));
            nodes.push(serving);
        }
        let fetched = fetch(&events, settings(450, None));
        let segments = fetched.result.as_ref().unwrap();
        assert!(segments.iter().any(|segment| matches!(segment, Segment::Disk(_))));
        let keys: Vec<_> = records(fetched, None).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), 240);
        assert!(keys.is_sorted());
        nodes.into_iter().for_each(|serving| drop(serving.join().unwrap()));
    }

    /// Whatever a node sends, another attempt to fetch is made, and failures are reported.
    #[test]
    fn bad_responses_are_reported_and_repeated() {
        let good = [OK.to_vec(), output(MAP, &["a"], None, |_| {})].concat();
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let huge = |h: &mut ShuffleHeader| (h.part_length, h.raw_length) = (i64::MAX, i64::MAX);
        let vast = |h: &mut ShuffleHeader| (h.part_length, h.raw_length) = ((1 << 50) + 4, 1 << 50);
        let more = |h: &mut ShuffleHeader| h.part_length += 1;
        for (bad, memory) in [
            (b"HTTP/1.1 500 no\r\n\r\n".to_vec(), 1 << 20),
            (b"".to_vec(), 1 << 20),
            (b"SSH-2.0".repeat(10_000), 1 << 20),
            (damaged.clone(), 1 << 20),
            (damaged, 0),
            (good[..good.len() - 3].to_vec(), 1 << 20),
            ([OK, &[0x70; 3000]].concat(), 1 << 20),
            ([OK.to_vec(), output(OTHER, &["a"], None, |_| {})].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, |h| h.reduce = 1)].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, |h| h.part_length = -1)].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, |h| h.raw_length = 3)].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, huge)].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, vast)].concat(), 1 << 20),
            ([OK.to_vec(), output(MAP, &["a"], None, more)].concat(), 0),
            ([OK.to_vec(), output(MAP, &["a"], None, |h| h.found = false)].concat(), 1 << 20),
        ] {
            let shown = String::from_utf8_lossy(&bad).chars().take(80).collect::<String>();
            let (at, serving) = node(vec![bad, good.clone()]);
            let fetched = fetch(&[event(MAP, &at)], settings(memory, None));
            let attempt: TaskAttemptId = MAP.parse().unwrap();
            let report = fetched.status.report(&attempt, 1, None).reduce.unwrap();
            assert_eq!(report.failed_fetches, [attempt], "{shown}");
            assert_eq!(records(fetched, None).len(), 1, "{shown}");
            serving.join().unwrap();
        }
    }

    #[test]
    fn an_output_for_which_the_disks_have_no_room_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (_, all) = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1").room();
        let all = i64::try_from(all).unwrap();
        // It fits the file system, and not what is free of it.
        let full = |h: &mut ShuffleHeader| (h.part_length, h.raw_length) = (all, all - 4);
        let (at, serving) = node(vec![[OK.to_vec(), output(MAP, &["a"], None, full)].concat()]);
        let fetched = fetch(&[event(MAP, &at)], settings(0, None));
        let told = fetched.result.unwrap_err().to_string();
        assert!(told.ends_with("map_0.0.out: No space left on device (os error 28)"), "{told}");
        let place = fetched.scratch.place("map_0.0.out").unwrap();
        assert!(!place.exists());
        serving.join().unwrap();
    }

    #[test]
    fn compressed_outputs_are_not_much_larger_than_their_records() {
        let good = [OK.to_vec(), output(MAP, &["a"], Some(Codec::Gzip), |_| {})].concat();
        let inflated = |h: &mut ShuffleHeader| h.part_length = 1 << 20;
        let bad = [OK.to_vec(), output(MAP, &["a"], Some(Codec::Gzip), inflated)].concat();
        let (at, serving) = node(vec![bad, good]);
        let fetched = fetch(&[event(MAP, &at)], settings(0, Some(Codec::Gzip)));
        let report = fetched.status.report(&MAP.parse().unwrap(), 1, None).reduce.unwrap();
        assert_eq!(report.failed_fetches, [MAP.parse().unwrap()]);
        assert_eq!(records(fetched, Some(Codec::Gzip)).len(), 1);
        serving.join().unwrap();
    }

    /// Brings the same number of bytes each time.
    struct Drops(usize);

    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            Ok(self.0.min(buffer.len()))
        }
    }

    #[test]
    fn a_node_that_sends_a_byte_now_and_then_is_given_up() {
        let second = Duration::from_secs(1);
        for (bytes, is_given_up) in [(1, true), (1023, true), (1024, false), (64 << 10, false)] {
            let mut paced = Paced::new(Drops(bytes), second * 10);
            let mut buffer = vec![0; 64 << 10];
            let mut read = || {
                let read = paced.read(&mut buffer)?;
                // As if it had waited for them.
                paced.waited += second;
                Ok::<usize, io::Error>(read)
            };
            let failed = (0..100).find_map(|_| read().err());
            assert_eq!(failed.is_some(), is_given_up, "{bytes}");
            if let Some(error) = failed {
                let expected = format!("only {} bytes came in 10 s", bytes * 10);
                assert_eq!(error.to_string(), expected);
            }
        }
    }

    #[test]
    fn a_node_that_is_away_ends_the_reduce_in_the_end() {
        let nobody = corona_net::testing::nobody();
        let closed = nobody.address();
        let fetched = fetch(&[event(MAP, &format!("http://{closed}"))], settings(1 << 20, None));
        let told = fetched.result.unwrap_err().to_string();
        assert!(told.starts_with("Exceeded the abort failure limit"), "{told}");
    }
}
