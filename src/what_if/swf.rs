//! Traces in the Standard Workload Format of the Parallel Workloads Archive: a line for each job with 18 numbers,
//! -1 for what is not known; comments after `;`, of which some name properties of the machine.
//!
//! Format: <https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use corona_model::types::{ComputeSpecs, PoolName, ResourceType};

use crate::file::MOST_TASKS;
use crate::workload::{MOST_MS, Node, Reading, Session, Task, Workload};

/// A line is at most so long.
const MOST_BYTES: u64 = 1 << 16;
/// Processors of a machine at most.
const MOST_PROCESSORS: i64 = 1_000_000;
/// CPUs of a node where the trace names no nodes.
const CPUS: i64 = 16;

/// Whether a file may be such a trace: its first line is a comment with `;`, or 18 numbers.
pub fn looks_like_one(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    first.is_some_and(|line| line.starts_with(';') || fields(line).is_some())
}

/// The 18 numbers of a job.
fn fields(line: &str) -> Option<[f64; 18]> {
    let mut numbers = [-1.0; 18];
    let mut words = line.split_whitespace();
    for number in &mut numbers {
        *number = words.next()?.parse().ok().filter(|number: &f64| number.is_finite())?;
    }
    words.next().is_none().then_some(numbers)
}

/// Reads a trace. Each job becomes a session of its user, in a pool of its queue, with a map for each processor.
///
/// # Errors
/// Those of the source.
pub fn read(name: &str, mut from: impl BufRead) -> io::Result<Reading> {
    let mut trace = Trace::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        trace.line(&String::from_utf8_lossy(&line));
        if trace.tasks > MOST_TASKS {
            trace.left_out.push(format!("Jobs after the first {MOST_TASKS} processors of jobs."));
            break;
        }
    }
    Ok(trace.finish(name))
}

#[derive(Default)]
struct Trace {
    head: BTreeMap<String, String>,
    sessions: Vec<Session>,
    places: BTreeMap<i64, u32>,
    tasks: usize,
    /// Processors that a job took at a time, and those that it gave back, which are negative.
    taken: Vec<(i64, i64)>,
    until_ms: i64,
    wrong: usize,
    never_ran: usize,
    queues: BTreeSet<i64>,
    left_out: Vec<String>,
}

impl Trace {
    fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            if let Some((key, value)) = comment.split_once(':') {
                self.head.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
            }
            return;
        }
        if line.is_empty() {
            return;
        }
        match fields(line) {
            Some(numbers) => self.job(&numbers),
            None => self.wrong += 1,
        }
    }

    fn job(&mut self, fields: &[f64; 18]) {
        let [number, submitted, waited, ran, allocated, used_kb, requested, kb] =
            [0, 1, 2, 3, 4, 6, 7, 9].map(|place: usize| fields[place]);
        let [user, group, queue, before, think] =
            [11, 12, 14, 16, 17].map(|place| fields[place] as i64);
        let processors = if allocated > 0.0 { allocated } else { requested } as i64;
        if ran <= 0.0 || processors <= 0 || submitted < 0.0 || processors > MOST_PROCESSORS {
            self.never_ran += 1;
            return;
        }
        let ms = |seconds: f64| (seconds * 1_000.0).clamp(0.0, MOST_MS as f64) as i64;
        // Of each processor: as requested, or as used.
        let kb = [kb, used_kb].into_iter().find(|kb| *kb > 0.0);
        let memory_mb = kb.map(|kb| (kb / 1_024.0).ceil() as i32);
        let takes =
            memory_mb.map(|_| ComputeSpecs { num_cpus: 1, memory_mb, ..ComputeSpecs::default() });
        let task = Task {
            takes,
            waited_ms: (waited >= 0.0).then(|| ms(waited)),
            held_ms: Some(ms(ran)),
            ..Task::new(ResourceType::Map, ms(ran))
        };
        let follows = self.places.get(&before).copied().filter(|_| before > 0 && think >= 0);
        self.places.insert(number as i64, self.sessions.len() as u32);
        let began_ms = ms(submitted).saturating_add(ms(waited.max(0.0)));
        let ended_ms = began_ms.saturating_add(ms(ran));
        self.taken.extend([(began_ms, processors), (ended_ms, -processors)]);
        self.until_ms = self.until_ms.max(ended_ms);
        self.tasks += processors as usize;
        self.queues.insert(queue);
        let group = if group >= 0 { format!("group{group}") } else { "default".to_owned() };
        let queue = if queue >= 0 { format!("queue{queue}") } else { "default".to_owned() };
        self.sessions.push(Session {
            id: format!("{}", number as i64).into(),
            name: format!("job {}", number as i64).into(),
            user: if user >= 0 { format!("user{user}").into() } else { "unknown".into() },
            pool: Some(PoolName::new(&group, &queue)),
            at_ms: ms(submitted),
            follows: follows.map(|place| (place, think.saturating_mul(1_000).min(MOST_MS))),
            recorded_ms: (waited >= 0.0).then(|| ms(waited) + ms(ran)),
            tasks: vec![task; processors as usize],
            ..Session::default()
        });
    }

    fn number(&self, key: &str) -> Option<i64> {
        let value = self.head.get(key)?.split_whitespace().next()?;
        value.parse().ok().filter(|number| (1..=MOST_PROCESSORS).contains(number))
    }

    /// The most processors that were in use at a time. At the end of a job its processors are free for others.
    fn most_in_use(&mut self) -> i64 {
        self.taken.sort_unstable();
        let in_use = self.taken.iter().scan(0_i64, |in_use, (_, change)| {
            *in_use = in_use.saturating_add(*change);
            Some(*in_use)
        });
        in_use.max().unwrap_or(0).min(MOST_PROCESSORS)
    }

    fn finish(mut self, name: &str) -> Reading {
        let most_in_use = self.most_in_use();
        let named = self.number("MaxProcs").or_else(|| self.number("MaxNodes"));
        let processors = named.unwrap_or(most_in_use);
        let count = self.number("MaxNodes").filter(|nodes| *nodes <= processors);
        let count = count.unwrap_or_else(|| (processors + CPUS - 1) / CPUS).max(1);
        let node = |number: i64| {
            let name: Arc<str> = format!("node{}", number + 1).into();
            // Together they have the processors of the machine.
            let cpus = processors * (number + 1) / count - processors * number / count;
            Node {
                name: name.clone(),
                host: name,
                cpus: cpus.clamp(1, 32_000) as i16,
                ..Node::default()
            }
        };
        let began_s = self.head.get("UnixStartTime").and_then(|text| text.parse::<i64>().ok());
        let mut workload = Workload {
            name: name.to_owned(),
            began_ms: began_s.unwrap_or(0).saturating_mul(1_000).clamp(0, MOST_MS),
            until_ms: self.until_ms,
            nodes: if processors > 0 { (0..count).map(node).collect() } else { Vec::new() },
            sessions: self.sessions,
            ..Workload::default()
        };
        workload.assume(
            "Each processor of a job is a map of its own: a trace's jobs get all their processors at once, \
             sessions get slots one by one.",
        );
        if named.is_none() {
            workload.assume(&format!(
                "The trace names no machine. It is taken for one of {processors} processors, the most that were in use at \
                 a time."
            ));
        }
        workload
            .assume("A job that follows another one starts its think time after that one's end.");
        let mut left_out = self.left_out;
        if self.wrong > 0 {
            left_out.push(format!("{} lines that are no jobs.", self.wrong));
        }
        if self.never_ran > 0 {
            left_out.push(format!(
                "{} jobs that never ran, or whose processors are not known.",
                self.never_ran
            ));
        }
        Reading { workload, left_out }
    }
}
