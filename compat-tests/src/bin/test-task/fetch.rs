//! Map output: written by maps, fetched over HTTP by reduces.

use std::fs;
use std::path::{Path, PathBuf};

use compat_tests::task_tracker::job::{map_output, output_bytes};
use compat_tests::task_tracker::job_tracker::client_options;
use corona::hadoop::io::Reader;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::protocols::inter_tracker::InterTrackerClient;
use corona::hadoop::writables::{
    EventStatus, IndexRecord, InetAddress, ShuffleHeader, SpillIndex, TaskAttemptId,
    TaskCompletionEvent, TaskKind,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Failure, Itself};

/// The bytes of a part of a real output beyond the records.
const CHECKSUM_BYTES: usize = 4;

/// Writes the output of a map below one of its local directories.
pub(super) fn write_output(itself: &Itself) -> Result<(), Failure> {
    let get = |name: &str| itself.conf.get(name).ok_or_else(|| format!("{name} is missing"));
    let dirs = get("mapred.local.dir")?;
    let dir = Path::new(dirs.split(',').next().ok_or("no local directory")?);
    let output: PathBuf = dir
        .join("taskTracker/jobcache")
        .join(itself.attempt.job().to_string())
        .join(itself.attempt.to_string())
        .join("output");
    fs::create_dir_all(&output)?;
    let (mut file, mut index) = (Vec::new(), SpillIndex::default());
    for reduce in 0..get("mapred.reduce.tasks")?.parse()? {
        let bytes = output_bytes(itself.conf.get("test.output.bytes").as_deref(), reduce);
        index.records.push(IndexRecord {
            start: i64::try_from(file.len())?,
            raw_length: i64::try_from(bytes.saturating_sub(CHECKSUM_BYTES))?,
            part_length: i64::try_from(bytes)?,
        });
        file.extend(map_output(&itself.attempt, reduce, bytes));
    }
    fs::write(output.join("file.out"), file)?;
    fs::write(output.join("file.out.index"), index.encode())?;
    itself.note("output", &output.display().to_string())
}

/// Fetches the parts of one reduce.
pub(super) struct Fetcher {
    job_tracker: InterTrackerClient,
    reduce: i32,
    maps: usize,
    /// Events read.
    read: i32,
    /// Outputs still to be fetched.
    waiting: Vec<TaskCompletionEvent>,
    fetched: Vec<TaskAttemptId>,
}

impl Fetcher {
    pub(super) fn new(itself: &Itself, reduce: i32, kind: &TaskKind) -> Result<Fetcher, Failure> {
        let TaskKind::Reduce { maps } = kind else { return Err("only reduces fetch".into()) };
        let address = itself.conf.get("mapred.direct.task.umbilical.address");
        let address = address.ok_or("no address of a job tracker")?;
        let (host, port) = address.split_once(':').ok_or("no port of a job tracker")?;
        let address = InetAddress { host: host.to_owned(), port: port.parse()? };
        Ok(Fetcher {
            job_tracker: InterTrackerClient::new(address, client_options()),
            reduce,
            maps: usize::try_from(*maps)?,
            read: 0,
            waiting: vec![],
            fetched: vec![],
        })
    }

    pub(super) fn has_all(&self) -> bool {
        self.fetched.len() >= self.maps
    }

    /// Requests events and fetches the available outputs. Returns the maps whose output is not
    /// there.
    pub(super) async fn look(&mut self, itself: &Itself) -> Result<Vec<TaskAttemptId>, Failure> {
        let job = itself.attempt.job().clone();
        let events = self.job_tracker.get_task_completion_events(job, self.read, i32::MAX).await?;
        self.read += i32::try_from(events.len())?;
        self.waiting.extend(
            events
                .into_iter()
                .filter(|event| event.is_map && event.status == EventStatus::Succeeded),
        );
        let mut failed = vec![];
        for event in std::mem::take(&mut self.waiting) {
            if self.fetched.iter().any(|known| known.task == event.attempt.task) {
                continue;
            }
            match get(itself, &event, self.reduce).await? {
                Some(part) => {
                    self.compare(itself, &event.attempt, &part)?;
                    self.fetched.push(event.attempt);
                }
                None => failed.push(event.attempt),
            }
        }
        Ok(failed)
    }

    fn compare(&self, itself: &Itself, map: &TaskAttemptId, part: &[u8]) -> Result<(), Failure> {
        let bytes = output_bytes(itself.conf.get("test.output.bytes").as_deref(), self.reduce);
        if part != map_output(map, self.reduce, bytes) {
            return Err(format!("the output of {map} is not what it wrote").into());
        }
        itself.note("fetched", &format!("{map} {}", part.len()))
    }
}

/// The part of one map's output, if it is there. The response must have the form of the original's
/// shuffle server: two lines, a header, so many bytes, the end of the connection.
async fn get(
    itself: &Itself,
    event: &TaskCompletionEvent,
    reduce: i32,
) -> Result<Option<Vec<u8>>, Failure> {
    let server = event.tracker_http.as_deref().and_then(|url| url.strip_prefix("http://"));
    let server = server.ok_or("no place to fetch from")?;
    let (job, map) = (itself.attempt.job(), &event.attempt);
    let mut stream = TcpStream::connect(server).await?;
    let request = format!(
        "GET /mapOutput?job={job}&map={map}&reduce={reduce} HTTP/1.1\r\nHost: {server}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let body = answer.strip_prefix(b"HTTP/1.1 200 OK\r\n\r\n").ok_or("no output is served")?;
    let mut reader = Reader::new(body);
    let header = ShuffleHeader::decode(&mut reader)?;
    if header.attempt != map.to_string() || header.reduce != reduce {
        return Err(format!("{header:?} is not for {map}").into());
    }
    if !header.found {
        return Ok(None);
    }
    let part = reader.rest();
    if i64::try_from(part.len())? != header.part_length {
        return Err(format!("{} bytes after {header:?}", part.len()).into());
    }
    Ok(Some(part.to_vec()))
}
