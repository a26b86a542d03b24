//! Workloads as files: JSON, a line for each node and each session, optionally compressed with gzip.
//!
//! The format is described in `docs/operate/what-if.md`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;

use corona_model::types::{ComputeSpecs, ResourceType, SessionPriority};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use crate::workload::{MOST_MS, Node, Reading, Session, Task, Workload, is_zero, pool_of};

/// The newest version of the format.
pub const VERSION: u32 = 1;
/// A line is at most so long.
const MOST_BYTES: u64 = 256 << 20;
/// Tasks of a workload at most.
pub const MOST_TASKS: usize = 20_000_000;

/// Why a file is no workload.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system's error.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is some other file.
    #[error("is no workload: its first line is no object with \"corona_workload\"")]
    NotAWorkload,
    /// A newer program wrote it. The version of its format.
    #[error(
        "has version {0} of the format of workloads; this program knows versions up to {VERSION}"
    )]
    Newer(u32),
    /// A line that cannot be used.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    corona_workload: u32,
    #[serde(default)]
    name: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    began_ms: i64,
    #[serde(default)]
    until_ms: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assumptions: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    Node(Node),
    Session(SessionLine),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionLine {
    id: Arc<str>,
    #[serde(default)]
    name: Arc<str>,
    #[serde(default)]
    user: Arc<str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<SessionPriority>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_preempt: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<i64>,
    #[serde(default)]
    at_ms: i64,
    /// The id of a session that stands before it, and a time after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    follows: Option<(Arc<str>, i64)>,
    #[serde(default, skip_serializing_if = "is_zero")]
    lingers_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recorded_ms: Option<i64>,
    #[serde(default)]
    tasks: Vec<TaskLine>,
}

/// Tasks that are alike.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskLine {
    #[serde(rename = "type")]
    kind: ResourceType,
    ms: i64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    count: u32,
    /// What it requests of a node; what is absent it does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpus: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_mb: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk_gb: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_mbps: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    away_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "is_none")]
    after: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    delay_ms: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shuffles: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held_ms: Option<i64>,
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Writes a workload.
///
/// # Errors
/// Those of the writer.
pub fn write(workload: &Workload, mut to: impl Write) -> io::Result<()> {
    let Workload { name, began_ms, until_ms, assumptions, .. } = workload;
    let head = Head {
        corona_workload: VERSION,
        name: name.clone(),
        began_ms: *began_ms,
        until_ms: *until_ms,
        assumptions: assumptions.iter().cloned().collect(),
    };
    line(&mut to, &head)?;
    for node in &workload.nodes {
        line(&mut to, &Line::Node(node.clone()))?;
    }
    for session in &workload.sessions {
        line(&mut to, &Line::Session(SessionLine::of(session, workload)))?;
    }
    to.flush()
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

impl SessionLine {
    fn of(session: &Session, workload: &Workload) -> SessionLine {
        let follows = session.follows.and_then(|(place, delay)| {
            Some((workload.sessions.get(place as usize)?.id.clone(), delay))
        });
        let mut tasks: Vec<TaskLine> = Vec::new();
        let mut last: Option<&Task> = None;
        for task in &session.tasks {
            match tasks.last_mut() {
                Some(line) if last == Some(task) => line.count += 1,
                _ => tasks.push(TaskLine::of(task)),
            }
            last = Some(task);
        }
        SessionLine {
            id: session.id.clone(),
            name: session.name.clone(),
            user: session.user.clone(),
            groups: session.groups.to_vec(),
            pool: session.pool.as_ref().map(ToString::to_string),
            priority: session.priority,
            no_preempt: session.no_preempt,
            deadline_ms: session.deadline_ms,
            at_ms: session.at_ms,
            follows,
            lingers_ms: session.lingers_ms,
            recorded_ms: session.recorded_ms,
            tasks,
        }
    }
}

impl TaskLine {
    fn of(task: &Task) -> TaskLine {
        let takes = task.takes.unwrap_or_default();
        TaskLine {
            kind: task.kind,
            ms: task.ms,
            count: 1,
            cpus: Some(takes.num_cpus).filter(|cpus| *cpus > 0),
            memory_mb: takes.memory_mb,
            disk_gb: takes.disk_gb,
            network_mbps: takes.network_mbps,
            away_ms: task.away_ms,
            after: task.after,
            delay_ms: task.delay_ms,
            shuffles: task.shuffles,
            hosts: task.hosts.to_vec(),
            exclude: task.exclude.to_vec(),
            waited_ms: task.waited_ms,
            held_ms: task.held_ms,
        }
    }
}

/// Reads a workload. A file that ends early or is damaged is used up to the last whole line.
///
/// # Errors
/// The file is none, is of a newer version, or a line before the last one is wrong.
pub fn read(from: impl Read) -> Result<Reading, FileError> {
    let mut source = BufReader::with_capacity(1 << 16, from);
    if source.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return read_lines(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(source)));
    }
    read_lines(source)
}

fn read_lines(mut source: impl BufRead) -> Result<Reading, FileError> {
    let mut text = Vec::new();
    next_line(&mut source, &mut text)?;
    let head: Head = serde_json::from_slice(&text).map_err(|_| FileError::NotAWorkload)?;
    if head.corona_workload > VERSION {
        return Err(FileError::Newer(head.corona_workload));
    }
    within_bounds([head.began_ms, head.until_ms].into_iter())
        .map_err(|what| FileError::Line { line: 1, what })?;
    let mut reading = Reading::default();
    let workload = &mut reading.workload;
    (workload.name, workload.began_ms, workload.until_ms) =
        (head.name, head.began_ms, head.until_ms);
    workload.assumptions = head.assumptions.into_iter().collect();
    let mut places = std::collections::BTreeMap::new();
    let mut tasks = 0;
    for number in 2.. {
        let whole = match next_line(&mut source, &mut text) {
            Ok(whole) => whole,
            Err(error) => {
                reading
                    .left_out
                    .push(format!("The file cannot be read after line {}: {error}.", number - 1));
                break;
            }
        };
        if text.is_empty() {
            break;
        }
        let read = serde_json::from_slice(&text).map_err(|error| error.to_string());
        let read = read.and_then(|line| add(workload, &mut places, &mut tasks, line));
        match read {
            Ok(()) => {}
            Err(_) if !whole => {
                reading.left_out.push(format!("The file ends within line {number}."));
                break;
            }
            Err(what) => return Err(FileError::Line { line: number, what }),
        }
    }
    sort(workload);
    Ok(reading)
}

/// Reads a line without its end; whether it has one.
fn next_line(source: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        text.clear();
        let read = source.by_ref().take(MOST_BYTES).read_until(b'\n', text)?;
        let whole = text.last() == Some(&b'\n');
        if read == 0 || text.iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Ok(whole);
        }
    }
}

fn add(
    workload: &mut Workload,
    places: &mut std::collections::BTreeMap<Arc<str>, u32>,
    tasks: &mut usize,
    line: Line,
) -> Result<(), String> {
    let line = match line {
        Line::Node(node) => {
            if node.cpus < 1 || node.name.is_empty() || node.host.is_empty() {
                return Err("a node needs a name, a host and at least 1 CPU".to_owned());
            }
            positive(None, node.memory_mb, node.disk_gb, node.network_mbps)?;
            in_order(&node.away)?;
            in_order(&node.drained)?;
            let away = node.away.iter().chain(&node.drained);
            let away = away.flat_map(|(from, until)| [*from, *until]);
            within_bounds([node.from_ms].into_iter().chain(node.until_ms).chain(away))?;
            workload.nodes.push(node);
            return Ok(());
        }
        Line::Session(line) => line,
    };
    let of_tasks = line.tasks.iter().flat_map(|task| {
        [Some(task.ms), task.away_ms, Some(task.delay_ms), task.waited_ms, task.held_ms]
    });
    let delay = line.follows.as_ref().map(|(_, delay)| *delay);
    let times =
        [Some(line.at_ms), delay, Some(line.lingers_ms), line.recorded_ms, line.deadline_ms];
    within_bounds(times.into_iter().chain(of_tasks).flatten())?;
    for task in &line.tasks {
        positive(task.cpus, task.memory_mb, task.disk_gb, task.network_mbps)?;
    }
    *tasks += line.tasks.iter().map(|task| task.count as usize).sum::<usize>();
    if *tasks > MOST_TASKS {
        return Err(format!("more than {MOST_TASKS} tasks"));
    }
    let follows = match &line.follows {
        Some((id, delay)) => Some((
            *places.get(id).ok_or_else(|| format!("no session {id} stands before this one"))?,
            *delay,
        )),
        None => None,
    };
    let mut session = Session {
        id: line.id.clone(),
        name: line.name,
        user: line.user,
        groups: line.groups.into(),
        pool: line.pool.as_deref().map(pool_of),
        priority: line.priority,
        no_preempt: line.no_preempt,
        deadline_ms: line.deadline_ms,
        at_ms: line.at_ms,
        follows,
        lingers_ms: line.lingers_ms,
        recorded_ms: line.recorded_ms,
        tasks: Vec::new(),
    };
    for task in line.tasks {
        let count = task.count as usize;
        session.tasks.extend(std::iter::repeat_n(Task::from(task), count));
    }
    if places.insert(line.id.clone(), workload.sessions.len() as u32).is_some() {
        return Err(format!("session {} stands twice", line.id));
    }
    workload.sessions.push(session);
    Ok(())
}

/// Fails for times that are not from 0 to [`MOST_MS`].
fn within_bounds(mut times: impl Iterator<Item = i64>) -> Result<(), String> {
    match times.find(|ms| !(0..=MOST_MS).contains(ms)) {
        None => Ok(()),
        Some(ms) => Err(format!("the time {ms} is not from 0 to {MOST_MS} ms")),
    }
}

/// Fails for spans of time that end before they begin, or before the one that stands before them.
fn in_order(spans: &[(i64, i64)]) -> Result<(), String> {
    let mut former = i64::MIN;
    for (from, until) in spans {
        if from > until || *from < former {
            return Err(format!(
                "the span [{from}, {until}] is not from a time to a later one, after the spans before it"
            ));
        }
        former = *until;
    }
    Ok(())
}

/// Fails for amounts of resources below 1.
fn positive(
    cpus: Option<i16>,
    memory_mb: Option<i32>,
    disk_gb: Option<i32>,
    network_mbps: Option<i16>,
) -> Result<(), String> {
    let mut all =
        [cpus.map(i32::from), memory_mb, disk_gb, network_mbps.map(i32::from)].into_iter();
    match all.find(|amount| amount.is_some_and(|amount| amount < 1)).flatten() {
        None => Ok(()),
        Some(amount) => Err(format!("{amount} is no amount of a resource; leave it out")),
    }
}

impl From<TaskLine> for Task {
    fn from(line: TaskLine) -> Task {
        let takes = ComputeSpecs {
            num_cpus: line.cpus.unwrap_or(0),
            network_mbps: line.network_mbps,
            memory_mb: line.memory_mb,
            disk_gb: line.disk_gb,
        };
        Task {
            kind: line.kind,
            takes: Some(takes).filter(|takes| *takes != ComputeSpecs::default()),
            ms: line.ms,
            away_ms: line.away_ms,
            after: line.after,
            delay_ms: line.delay_ms,
            shuffles: line.shuffles,
            hosts: line.hosts.into(),
            exclude: line.exclude.into(),
            waited_ms: line.waited_ms,
            held_ms: line.held_ms,
        }
    }
}

/// The end of what is known is no earlier than the last start.
fn sort(workload: &mut Workload) {
    let last = workload.sessions.iter().map(|session| session.at_ms).max().unwrap_or(0);
    workload.until_ms = workload.until_ms.max(last);
}
