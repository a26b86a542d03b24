//! The inputs of what-if, told apart by their contents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use corona::cluster_manager::{JournalWatcher, watch_journal};
use corona::config::{JobConf, Loaded, keys};
use corona::conformance::Traffic;
use corona::conformance::capture::{Ending, Limits};
use corona::conformance::conversation::Ports;
use corona::engine::{Engine, Input, Outcome};
use corona::journal::DiskStorage;
use corona::mapreduce::history_reader::Records;
use corona::mapreduce::{JobHistory, JobSettings, TaskDemand, settings::pool_of_job};
use corona::model::types::{Millis, SessionPriority};
use corona::what_if::job_histories::{Configured, JobHistories};
use corona::what_if::journaled::Journaled;
use corona::what_if::{Reading, file, recorded, swf};
use flate2::read::MultiGzDecoder;

use super::super::traffic::{ending_text, one_manager};
use corona_terminal::console::printable;
use corona_terminal::progress::WatchedFile;

/// Histories of a directory at most.
const MOST_HISTORIES: usize = 1_000_000;
/// Directories below one another at most.
const MOST_DEPTH: usize = 16;
/// Bytes of a history that are read at a time.
const PIECE: usize = 1 << 20;

/// Reads the input, whatever its form. Nodes of histories become as large as what ran there needs under these settings.
pub(super) fn read(path: &Path, base: &Loaded) -> anyhow::Result<Reading> {
    let shown = path.display().to_string();
    let shown = printable(&shown).into_owned();
    if path.is_dir() {
        return match is_journal(path) {
            true => read_journal(path),
            false => read_histories(path, base),
        }
        .with_context(|| shown.clone());
    }
    let open = || WatchedFile::open(path).with_context(|| format!("cannot open {shown}"));
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let start = start_of(open()?).with_context(|| shown.clone())?;
    let text = start.trim_ascii_start();
    if text.starts_with(b"{") {
        let mut reading = file::read(open()?).map_err(|error| anyhow!("{shown}: {error}"))?;
        if reading.workload.name.is_empty() {
            reading.workload.name = name.into_owned();
        }
        return Ok(reading);
    }
    if swf::looks_like_one(&start) {
        let source = BufReader::with_capacity(1 << 16, open()?);
        return Ok(match is_gzip(path)? {
            true => swf::read(&name, BufReader::new(MultiGzDecoder::new(source))),
            false => swf::read(&name, source),
        }?);
    }
    if start.starts_with(b"Meta VERSION=") || start.starts_with(b"Job JOBID=") {
        return read_histories(path, base).with_context(|| shown.clone());
    }
    let port = base.settings.server_address.port;
    let mut limits = Limits::default();
    limits.server_ports.extend([port]);
    let traffic = Traffic::read(open()?, &limits).with_context(|| shown.clone())?;
    let ports = Ports { cluster_manager: port, ..Ports::default() };
    let conversations = traffic.conversations(&ports);
    one_manager(&conversations, port).with_context(|| shown.clone())?;
    let began_ms = i64::try_from(traffic.capture.started_at_us / 1_000).unwrap_or(0);
    let expiry_ms = base.settings.engine.node_expiry_ms;
    let mut reading = recorded::read(&name, &conversations, began_ms, expiry_ms);
    ensure!(
        !reading.workload.sessions.is_empty() || !reading.workload.nodes.is_empty(),
        "{shown} has no calls to a cluster manager at port {port}; name its configuration with --conf-dir"
    );
    if !matches!(traffic.capture.ending, Ending::Complete | Ending::Stopped) {
        reading.left_out.extend(
            ending_text(traffic.capture.ending).map(|text| format!("Of the input, {text}.")),
        );
    }
    Ok(reading)
}

/// So much of a file shows what it is.
const START: u64 = 4 << 10;

fn start_of(mut source: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut start = Vec::new();
    source.by_ref().take(START).read_to_end(&mut start)?;
    ensure!(!start.is_empty(), "the file is empty");
    if !start.starts_with(&[0x1f, 0x8b]) {
        return Ok(start);
    }
    let mut text = Vec::new();
    // What is compressed goes on after this.
    let _ = MultiGzDecoder::new(&start[..]).take(START).read_to_end(&mut text);
    Ok(text)
}

fn is_gzip(path: &Path) -> anyhow::Result<bool> {
    let mut start = [0; 2];
    let read = File::open(path)?.read(&mut start)?;
    Ok(read == 2 && start == [0x1f, 0x8b])
}

/// Whether a directory is that of a journal.
fn is_journal(directory: &Path) -> bool {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    names.map(|entry| entry.path()).any(|path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_of_one = path.extension().is_some_and(|end| end == "journal" || end == "image");
        is_of_one && !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Hands on what a journal shows.
#[derive(Default)]
struct Watching(Journaled);

impl JournalWatcher for Watching {
    fn state(&mut self, engine: &Engine) {
        self.0.state(engine);
    }

    fn input(&mut self, at: Millis, input: &Input, outcome: &Outcome) {
        self.0.input(at, input, outcome);
    }
}

fn read_journal(directory: &Path) -> anyhow::Result<Reading> {
    let mut watching = Watching::default();
    let found = watch_journal(&DiskStorage::look(directory)?, &mut watching);
    let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy();
    match (watching.0.finish(&name), found) {
        (Some(mut reading), found) => {
            match found {
                Err(error) => reading.left_out.push(format!("The rest of the journal: {error}.")),
                Ok(found) if found.torn_bytes > 0 => reading.left_out.push(format!(
                    "The last {} bytes of the journal, which are no whole record.",
                    found.torn_bytes
                )),
                Ok(_) => {}
            }
            Ok(reading)
        }
        (None, Err(error)) => Err(error.into()),
        (None, Ok(_)) => Err(anyhow!("the journal is empty")),
    }
}

/// Reads histories of jobs: those of a directory and all below it, or one file.
fn read_histories(path: &Path, base: &Loaded) -> anyhow::Result<Reading> {
    let (mut files, mut left_out) = (BTreeMap::new(), Vec::new());
    find_histories(path, 0, &mut files, &mut left_out)?;
    ensure!(
        !files.is_empty(),
        "the directory has neither a journal nor histories of jobs (files named job_...)"
    );
    let mut histories = JobHistories::default();
    let (mut damaged, mut cut) = (0, 0);
    for path in files.values() {
        let shown = printable(&path.to_string_lossy()).into_owned();
        match read_history(path) {
            Ok((history, bad)) if history.records > 0 => {
                damaged += bad;
                cut += history.left_out;
                histories.add(&history, configured(path, &history).as_ref());
            }
            Ok(_) => left_out.push(format!("{shown}: no history of a job.")),
            Err(error) => left_out.push(format!("{shown}: {error}.")),
        }
    }
    if damaged > 0 {
        left_out.push(format!("{damaged} records of histories that are not whole."));
    }
    if cut > 0 {
        left_out.push(format!("{cut} parts of histories that are too large."));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut reading = histories.finish(&name, &base.settings.engine);
    reading.left_out.extend(left_out);
    Ok(reading)
}

/// Finds files with the names of histories. Of a job that ran and is done the file of the done one counts.
fn find_histories(
    path: &Path,
    depth: usize,
    files: &mut BTreeMap<String, PathBuf>,
    left_out: &mut Vec<String>,
) -> anyhow::Result<()> {
    if !path.is_dir() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let of_job = name.find("job_").and_then(|at| name.get(at..)).unwrap_or(&name);
        let id: Vec<&str> = of_job.splitn(4, '_').take(3).collect();
        let id = id.join("_");
        let is_done = path.parent().is_some_and(|parent| parent.ends_with("done"));
        if is_done || !files.contains_key(&id) {
            files.insert(id, path.to_owned());
        }
        return Ok(());
    }
    if depth > MOST_DEPTH {
        left_out.push(format!("{}: too many directories below one another.", path.display()));
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        let is_history = kind.is_file()
            && (name.starts_with("job_") || name.contains("_job_"))
            && ![".xml", ".crc", ".recover"].iter().any(|end| name.ends_with(end));
        if (kind.is_dir() || is_history) && files.len() < MOST_HISTORIES {
            let found = find_histories(&entry.path(), depth + 1, files, left_out);
            if let Err(error) = found {
                left_out.push(format!("{}: {error}.", entry.path().display()));
            }
        }
    }
    Ok(())
}

fn read_history(path: &Path) -> anyhow::Result<(JobHistory, u64)> {
    let file = File::open(path)?;
    let mut source: Box<dyn Read> = match is_gzip(path)? {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let (mut records, mut history) = (Records::new(), JobHistory::default());
    let mut piece = vec![0; PIECE];
    loop {
        match source.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                let read = piece.get(..read).unwrap_or_default();
                records.push(read, &mut |record| history.take(record));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // What is whole of it counts.
            Err(_) if history.records > 0 => {
                records.finish(&mut |record| history.take(record));
                return Ok((history, records.damaged() + 1));
            }
            Err(error) => return Err(error.into()),
        }
    }
    records.finish(&mut |record| history.take(record));
    Ok((history, records.damaged()))
}

/// What the configuration beside a history says of its job, if there is one.
fn configured(path: &Path, job: &JobHistory) -> Option<Configured> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let before = name.find(&job.id).and_then(|at| name.get(..at)).unwrap_or_default();
    let conf = path.with_file_name(format!("{before}{}_conf.xml", job.id));
    if !conf.is_file() {
        return None;
    }
    let conf = JobConf::localised(&conf).ok()?;
    let priority = conf.text(&keys::JOB_PRIORITY);
    Some(Configured {
        pool: pool_of_job(&conf, &job.user, &conf.text(&keys::JOB_QUEUE)),
        priority: SessionPriority::ALL.into_iter().find(|one| one.name() == priority),
        settings: JobSettings::of(&conf),
        demand: TaskDemand::of(&conf),
    })
}
