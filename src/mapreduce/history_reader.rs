//! Reads history files, the original's and ours: as far as they go, whatever is wrong with them.
//! Spec: mapreduce/08 §8.2 to §8.4.
//!
//! [`Records`] finds the records in bytes that arrive in pieces, [`JobHistory`] puts them together. A file
//! may be unfinished, cut in the middle of a record, or damaged; a record that cannot be read is counted
//! and left out. Memory has bounds, whatever a file contains. Counters of tasks and attempts are left
//! out: [`AttemptCounters`] finds those of one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use corona_model::text::cut;

use crate::history::{JobState, TaskRole};
use crate::ids::{TaskKey, TaskKind};

/// The longest record, in bytes; the original has no limit.
const MAX_RECORD: usize = 8 << 20;
/// Tasks and attempts of one job that are kept.
const MAX_PARTS: usize = 1_000_000;
/// Bytes of one text, such as an error, that are kept.
const MAX_TEXT: usize = 8 << 10;
/// Bytes of errors and states of one job that are kept.
const MAX_TEXTS: usize = 32 << 20;
/// The key with the longest value of tasks and attempts, and the last one.
const LONGEST: &str = "COUNTERS";
/// Different hosts and task trackers that are kept once each.
const MAX_NAMES: usize = 100_000;

/// The types of records that the original writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The version of the format.
    Meta,
    /// The job: its submission, launch and end.
    Job,
    /// A task: its start and end.
    Task,
    /// An attempt at a map.
    MapAttempt,
    /// An attempt at a reduce.
    ReduceAttempt,
    /// A classic job tracker.
    JobTracker,
}

impl RecordKind {
    const ALL: [(RecordKind, &'static str); 6] = [
        (RecordKind::Meta, "Meta"),
        (RecordKind::Job, "Job"),
        (RecordKind::Task, "Task"),
        (RecordKind::MapAttempt, "MapAttempt"),
        (RecordKind::ReduceAttempt, "ReduceAttempt"),
        (RecordKind::JobTracker, "Jobtracker"),
    ];
}

/// One record of a file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its type.
    pub kind: RecordKind,
    /// The pairs, as they are in the file.
    pairs: &'a [u8],
    is_escaped: bool,
}

impl<'a> Record<'a> {
    /// The keys with their values. It ends where a pair cannot be read.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        self.pairs_up_to("")
    }

    /// The same up to and with this key, whose value is not looked at but empty here: it may be much
    /// longer than all others.
    fn pairs_up_to(
        &self,
        end: &'static str,
    ) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        let is_escaped = self.is_escaped;
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (key, value) = key(rest)?;
            if key == end {
                rest = &[];
                return Some((key, Cow::Borrowed("")));
            }
            let (raw, after) = value_of(value, is_escaped)?;
            rest = after;
            Some((key, text(raw, is_escaped)))
        })
    }

    /// The value of a key.
    pub fn get(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.pairs;
        while let Some((key, raw, after)) = pair(rest, self.is_escaped) {
            if key == wanted {
                return Some(text(raw, self.is_escaped));
            }
            rest = after;
        }
        None
    }
}

/// The first pair: its key, its raw value, and what follows.
fn pair(bytes: &[u8], is_escaped: bool) -> Option<(&str, &[u8], &[u8])> {
    let (key, value) = key(bytes)?;
    let (raw, after) = value_of(value, is_escaped)?;
    Some((key, raw, after))
}

/// The key of the first pair, and what follows the quote behind it.
fn key(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let bytes = bytes.trim_ascii_start();
    let length = bytes.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')?;
    let (key, rest) = bytes.split_at_checked(length)?;
    let value = rest.strip_prefix(b"=\"")?;
    let key = std::str::from_utf8(key).ok().filter(|key| !key.is_empty())?;
    Some((key, value))
}

/// The raw value up to the quote that ends it, and what follows that.
fn value_of(value: &[u8], is_escaped: bool) -> Option<(&[u8], &[u8])> {
    let (raw, after) = value.split_at_checked(end_of_value(value, is_escaped)?)?;
    Some((raw, after.get(1..).unwrap_or_default()))
}

/// Where the quote is that ends a value.
fn end_of_value(value: &[u8], is_escaped: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = value.get(at..)?;
        match is_escaped {
            false => return memchr::memchr(b'"', rest).map(|found| at + found),
            true => {
                let found = memchr::memchr2(b'"', b'\\', rest)?;
                if rest.get(found) == Some(&b'"') {
                    return Some(at + found);
                }
                at += found + 2;
            }
        }
    }
}

fn text(raw: &[u8], is_escaped: bool) -> Cow<'_, str> {
    if !is_escaped || memchr::memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escaped)) =
        memchr::memchr(b'\\', rest).and_then(|at| rest.split_at_checked(at))
    {
        out.extend_from_slice(plain);
        // A backslash at the end stands for itself.
        out.push(escaped.get(1).copied().unwrap_or(b'\\'));
        rest = escaped.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Finds the records in the bytes of a file, which arrive in pieces.
#[derive(Debug, Default)]
pub struct Records {
    /// The lines of a record that has not ended, and a line that has not.
    held: Vec<u8>,
    /// Where the line begins that has not ended.
    line: usize,
    /// The file says that its values are escaped.
    is_escaped: bool,
    /// A record that is too long is being left out.
    is_skipping: bool,
    /// Records and lines that could not be read.
    damaged: u64,
}

impl Records {
    /// At the beginning of a file.
    pub fn new() -> Records {
        Records::default()
    }

    /// In the middle of a file of the current version: what comes before a record begins is left out.
    pub fn in_the_middle() -> Records {
        Records { is_escaped: true, is_skipping: true, ..Records::default() }
    }

    /// Records and lines so far that could not be read.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Takes further bytes, and hands on each record that ends in them.
    pub fn push(&mut self, mut bytes: &[u8], take: &mut impl FnMut(Record<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            self.held.extend_from_slice(line);
            bytes = rest.get(1..).unwrap_or_default();
            self.line_ends(take);
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() > MAX_RECORD {
            self.give_up();
        }
    }

    /// The end of the file. Hands on what there is of an unfinished record.
    pub fn finish(&mut self, take: &mut impl FnMut(Record<'_>)) {
        if !self.held.is_empty() {
            self.line_ends(take);
        }
        if !self.held.is_empty() {
            self.damaged += u64::from(!self.is_skipping);
            self.hand_on(self.held.len(), take);
        }
        self.held.clear();
        self.line = 0;
    }

    fn give_up(&mut self) {
        self.damaged += u64::from(!self.is_skipping);
        self.is_skipping = true;
        self.held.clear();
        self.line = 0;
    }

    fn line_ends(&mut self, take: &mut impl FnMut(Record<'_>)) {
        let line = self.held.get(self.line..).unwrap_or_default();
        let begins = begins_record(line);
        let trimmed = line.trim_ascii_end();
        let ends = match self.is_escaped {
            true => trimmed.ends_with(b".") && !trimmed.ends_with(b"\\."),
            false => trimmed.ends_with(b"\"") || trimmed.ends_with(b" ."),
        };
        let is_blank = trimmed.is_empty();
        if begins && self.line > 0 {
            // The record before was cut: no value contains what begins a record.
            self.damaged += u64::from(!self.is_skipping);
            self.hand_on(self.line, take);
            self.held.drain(..self.line);
            self.line = 0;
        }
        if begins {
            self.is_skipping = false;
        }
        if self.line == 0 && !begins {
            if !is_blank && !self.is_skipping {
                self.damaged += 1;
                self.is_skipping = true;
            }
            self.held.clear();
            return;
        }
        if ends && !self.is_skipping {
            self.hand_on(self.held.len(), take);
            self.held.clear();
            self.line = 0;
            return;
        }
        self.held.push(b'\n');
        self.line = self.held.len();
        if self.held.len() > MAX_RECORD {
            self.give_up();
        }
    }

    fn hand_on(&mut self, end: usize, take: &mut impl FnMut(Record<'_>)) {
        let held = self.held.get(..end).unwrap_or_default();
        let Some((kind, pairs)) = kind_of(held) else { return };
        let record = Record { kind, pairs, is_escaped: self.is_escaped };
        if kind == RecordKind::Meta {
            self.is_escaped = record.get("VERSION").is_some_and(|version| version != "0");
            return;
        }
        take(record);
    }
}

fn kind_of(line: &[u8]) -> Option<(RecordKind, &[u8])> {
    let end = memchr::memchr(b' ', line.get(..16.min(line.len()))?)?;
    let (name, rest) = line.split_at_checked(end)?;
    let found = RecordKind::ALL.iter().find(|(_, own)| own.as_bytes() == name);
    found.map(|(kind, _)| (*kind, rest))
}

/// Whether a line begins a record: a type, a blank, and a key with a quote. In a value the quote would be
/// escaped.
fn begins_record(line: &[u8]) -> bool {
    let Some((_, pairs)) = kind_of(line) else { return false };
    let pairs = pairs.trim_ascii_start();
    let key = pairs.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
    key > 0 && pairs.get(key..).is_some_and(|rest| rest.starts_with(b"=\""))
}

/// How an attempt or a task ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartState {
    /// Its end is not in the file.
    #[default]
    Unfinished,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was killed.
    Killed,
}

impl PartState {
    /// The name in a history file; empty for one whose end is not in it.
    pub fn name(self) -> &'static str {
        match self {
            PartState::Unfinished => "",
            PartState::Succeeded => "SUCCESS",
            PartState::Failed => "FAILED",
            PartState::Killed => "KILLED",
        }
    }

    fn of(name: &str) -> PartState {
        match name {
            "SUCCESS" => PartState::Succeeded,
            "FAILED" => PartState::Failed,
            "KILLED" => PartState::Killed,
            _ => PartState::Unfinished,
        }
    }
}

/// What a file says of a job. Numbers that are not in it are 0, texts empty.
#[derive(Clone, Debug, Default)]
pub struct JobHistory {
    /// Its id, such as `job_201401011200_0001`.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// The user whose job it is.
    pub user: String,
    /// Where its configuration was.
    pub conf: String,
    /// `<host>:<port>:<attempt>` of a remote job tracker, `null` for each that there is not.
    pub job_tracker: String,
    /// When it was submitted, in milliseconds since the Unix epoch.
    pub submit_ms: i64,
    /// When its tasks were made.
    pub launch_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// Maps of its work.
    pub maps: u64,
    /// Reduces of its work.
    pub reduces: u64,
    /// Maps that succeeded, as its end says.
    pub finished_maps: u64,
    /// Reduces that succeeded, as its end says.
    pub finished_reduces: u64,
    /// Attempts at maps that failed or were killed, as its end says.
    pub failed_maps: u64,
    /// The same of reduces.
    pub failed_reduces: u64,
    /// Attempts at maps that were killed, as its end says.
    pub killed_maps: u64,
    /// The same of reduces.
    pub killed_reduces: u64,
    /// How it stands: none where the file does not say so.
    pub state: Option<JobState>,
    /// Its counters in their text form: those of maps, of reduces, and all.
    pub counters: [String; 3],
    /// Its tasks, those of set-up and clean-up too.
    pub tasks: BTreeMap<TaskKey, HistoryTask>,
    /// Records that were read.
    pub records: u64,
    /// Tasks, attempts and texts that found no room.
    pub left_out: u64,
    parts: usize,
    texts: usize,
    names: HashSet<Arc<str>>,
}

/// What a file says of a task.
#[derive(Clone, Debug)]
pub struct HistoryTask {
    /// What it is for.
    pub role: TaskRole,
    /// When its first attempt was launched, in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// How it ended.
    pub state: PartState,
    /// Why it failed.
    pub error: Box<str>,
    /// The hosts of its split, with commas between.
    pub splits: Arc<str>,
    /// Whether the file has its counters.
    pub has_counters: bool,
    /// Its attempts, in the order of the file.
    pub attempts: Vec<HistoryAttempt>,
}

/// What a file says of an attempt.
#[derive(Clone, Debug, Default)]
pub struct HistoryAttempt {
    /// Its number among those of its task.
    pub number: u32,
    /// How it ended.
    pub state: PartState,
    /// When it was started, in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// When a reduce had all map output.
    pub shuffle_ms: i64,
    /// When a reduce had sorted it.
    pub sort_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// Its task tracker's name.
    pub tracker: Arc<str>,
    /// The name of its host, as the file has it.
    pub host: Arc<str>,
    /// The port of its task tracker's pages; 0 where none is known.
    pub http_port: u16,
    /// Why it failed or was killed.
    pub error: Box<str>,
    /// What it said last.
    pub state_text: Box<str>,
    /// Whether the file has its counters: an attempt that failed or was killed has none.
    pub has_counters: bool,
}

impl JobHistory {
    /// Whether its end is in the file.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, Some(JobState::Succeeded | JobState::Failed | JobState::Killed))
    }

    /// Takes a record.
    pub fn take(&mut self, record: Record<'_>) {
        self.records += 1;
        match record.kind {
            RecordKind::Job => self.take_job(record),
            RecordKind::Task => self.take_task(record),
            RecordKind::MapAttempt | RecordKind::ReduceAttempt => self.take_attempt(record),
            RecordKind::Meta | RecordKind::JobTracker => {}
        }
    }

    /// Takes a record if it is of the job itself.
    pub fn take_job_only(&mut self, record: Record<'_>) {
        if record.kind == RecordKind::Job {
            self.take(record);
        }
    }

    fn take_job(&mut self, record: Record<'_>) {
        const MAX_COUNTERS: usize = MAX_RECORD;
        for (key, value) in record.pairs() {
            match key {
                "JOBID" => self.id = cut(&value, 128).to_owned(),
                "JOBNAME" => self.name = cut(&value, MAX_TEXT).to_owned(),
                "USER" => self.user = cut(&value, 256).to_owned(),
                "JOBCONF" => self.conf = cut(&value, MAX_TEXT).to_owned(),
                "JOBTRACKERID" => self.job_tracker = cut(&value, 512).to_owned(),
                "SUBMIT_TIME" => self.submit_ms = number(&value),
                "LAUNCH_TIME" => self.launch_ms = number(&value),
                "FINISH_TIME" => self.finish_ms = number(&value),
                "TOTAL_MAPS" => self.maps = count(&value),
                "TOTAL_REDUCES" => self.reduces = count(&value),
                "FINISHED_MAPS" => self.finished_maps = count(&value),
                "FINISHED_REDUCES" => self.finished_reduces = count(&value),
                "FAILED_MAPS" => self.failed_maps = count(&value),
                "FAILED_REDUCES" => self.failed_reduces = count(&value),
                "KILLED_MAPS" => self.killed_maps = count(&value),
                "KILLED_REDUCES" => self.killed_reduces = count(&value),
                "JOB_STATUS" => self.state = state_of(&value).or(self.state),
                "MAP_COUNTERS" => self.counters[0] = cut(&value, MAX_COUNTERS).to_owned(),
                "REDUCE_COUNTERS" => self.counters[1] = cut(&value, MAX_COUNTERS).to_owned(),
                "COUNTERS" => self.counters[2] = cut(&value, MAX_COUNTERS).to_owned(),
                _ => {}
            }
        }
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.parts < MAX_PARTS;
        match has_room {
            true => self.parts += 1,
            false => self.left_out += 1,
        }
        has_room
    }

    fn task(&mut self, id: &str, role: Option<TaskRole>) -> Option<&mut HistoryTask> {
        let key = task_key(id)?;
        if !self.tasks.contains_key(&key) && !self.has_room() {
            return None;
        }
        let task = self.tasks.entry(key).or_insert_with(|| HistoryTask {
            role: match key.kind {
                TaskKind::Map => TaskRole::Map,
                TaskKind::Reduce => TaskRole::Reduce,
            },
            start_ms: 0,
            finish_ms: 0,
            state: PartState::Unfinished,
            error: Box::default(),
            splits: Arc::default(),
            has_counters: false,
            attempts: Vec::new(),
        });
        if let Some(role) = role {
            task.role = role;
        }
        Some(task)
    }

    fn take_task(&mut self, record: Record<'_>) {
        let Some(id) = record.get("TASKID") else { return };
        let role = record.get("TASK_TYPE").and_then(|role| role_of(&role));
        let mut error = Box::default();
        let mut splits = Arc::default();
        for (key, value) in record.pairs_up_to(LONGEST) {
            match key {
                "ERROR" => error = self.keep(&value),
                "SPLITS" => splits = self.name(cut(&value, MAX_TEXT)),
                _ => {}
            }
        }
        let Some(task) = self.task(&id, role) else { return };
        if !error.is_empty() {
            task.error = error;
        }
        if !splits.is_empty() {
            task.splits = splits;
        }
        for (key, value) in record.pairs_up_to(LONGEST) {
            match key {
                "START_TIME" => task.start_ms = number(&value),
                "FINISH_TIME" => task.finish_ms = number(&value),
                "TASK_STATUS" => task.state = PartState::of(&value),
                LONGEST => task.has_counters = true,
                _ => {}
            }
        }
    }

    fn take_attempt(&mut self, record: Record<'_>) {
        let (mut task_id, mut id) = (None, None);
        let mut role = None;
        let (mut tracker, mut host) = (None, None);
        let (mut error, mut state_text) = (None, None);
        for (key, value) in record.pairs_up_to(LONGEST) {
            match key {
                "TASKID" => task_id = Some(value),
                "TASK_ATTEMPT_ID" => id = Some(value),
                "TASK_TYPE" => role = role_of(&value),
                "TRACKER_NAME" => tracker = Some(self.name(cut(&value, 512))),
                "HOSTNAME" => host = Some(self.name(cut(&value, 512))),
                "ERROR" => error = Some(self.keep(&value)),
                "STATE_STRING" => state_text = Some(self.keep(&value)),
                _ => {}
            }
        }
        let (Some(task_id), Some(id)) = (task_id, id) else { return };
        let Some(own) = id.rsplit('_').next().and_then(|own| own.parse().ok()) else { return };
        let Some(task) = self.task(&task_id, role) else { return };
        if !task.attempts.iter().any(|attempt| attempt.number == own) {
            if !self.has_room() {
                return;
            }
            let Some(task) = self.task(&task_id, role) else { return };
            task.attempts.push(HistoryAttempt { number: own, ..HistoryAttempt::default() });
        }
        let Some(task) = self.task(&task_id, role) else { return };
        let attempts = task.attempts.iter_mut();
        let Some(attempt) = attempts.rev().find(|attempt| attempt.number == own) else { return };
        for (key, value) in record.pairs_up_to(LONGEST) {
            match key {
                "TASK_STATUS" => attempt.state = PartState::of(&value),
                "START_TIME" => attempt.start_ms = number(&value),
                "SHUFFLE_FINISHED" => attempt.shuffle_ms = number(&value),
                "SORT_FINISHED" => attempt.sort_ms = number(&value),
                "FINISH_TIME" => attempt.finish_ms = number(&value),
                "HTTP_PORT" => attempt.http_port = value.parse().unwrap_or(attempt.http_port),
                LONGEST => attempt.has_counters = true,
                _ => {}
            }
        }
        if let Some(tracker) = tracker {
            attempt.tracker = tracker;
        }
        if let Some(host) = host {
            attempt.host = host;
        }
        if let Some(error) = error {
            attempt.error = error;
        }
        if let Some(text) = state_text {
            attempt.state_text = text;
        }
    }

    /// A text that is kept with its owner, if there is room.
    fn keep(&mut self, value: &str) -> Box<str> {
        let kept = cut(value, MAX_TEXT);
        if self.texts + kept.len() > MAX_TEXTS {
            self.left_out += 1;
            return Box::default();
        }
        self.texts += kept.len();
        kept.into()
    }

    /// A name that many have, kept once.
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        if self.names.len() < MAX_NAMES {
            self.names.insert(name.clone());
        }
        name
    }
}

/// Finds the counters of one attempt or task among the records of a file.
#[derive(Clone, Debug)]
pub struct AttemptCounters {
    /// The id of the attempt, or of the task.
    id: String,
    /// Their text form; the last one in the file holds.
    pub found: Option<String>,
}

impl AttemptCounters {
    /// Looks for those of this attempt or task.
    pub fn of(id: &str) -> AttemptCounters {
        AttemptCounters { id: id.to_owned(), found: None }
    }

    /// Takes a record.
    pub fn take(&mut self, record: Record<'_>) {
        let key = match record.kind {
            RecordKind::Task => "TASKID",
            RecordKind::MapAttempt | RecordKind::ReduceAttempt => "TASK_ATTEMPT_ID",
            _ => return,
        };
        if record.get(key).as_deref() == Some(&*self.id)
            && let Some(counters) = record.get("COUNTERS")
        {
            self.found = Some(counters.into_owned());
        }
    }
}

/// The task in `task_202611210043.1_0001_m_000002`, or in the id of one of its attempts.
pub fn task_key(id: &str) -> Option<TaskKey> {
    let mut parts = id.split('_').skip(3);
    let kind = match parts.next()? {
        "m" => TaskKind::Map,
        "r" => TaskKind::Reduce,
        _ => return None,
    };
    Some(TaskKey { kind, number: parts.next()?.parse().ok()? })
}

fn role_of(name: &str) -> Option<TaskRole> {
    let roles = [TaskRole::Map, TaskRole::Reduce, TaskRole::Setup, TaskRole::Cleanup];
    roles.into_iter().find(|role| role.name() == name)
}

fn state_of(name: &str) -> Option<JobState> {
    let states = [
        JobState::Prep,
        JobState::Running,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Killed,
    ];
    states.into_iter().find(|state| state.history_name() == name)
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

fn count(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{AttemptEnd, AttemptResult, HistoryRecord};
    use crate::{Counters, JobId};

    fn read(bytes: &[u8], piece: usize) -> (JobHistory, u64) {
        let (mut records, mut history) = (Records::new(), JobHistory::default());
        for bytes in bytes.chunks(piece) {
            records.push(bytes, &mut |record| history.take(record));
        }
        records.finish(&mut |record| history.take(record));
        (history, records.damaged())
    }

    fn whole() -> String {
        let job: JobId = "job_202611210043.1_0001".parse().unwrap();
        let task = TaskKey { kind: TaskKind::Reduce, number: 2 };
        let end = |number, result| {
            HistoryRecord::Attempt(Box::new(AttemptEnd {
                attempt: task.attempt(number),
                role: TaskRole::Reduce,
                start_ms: 10,
                tracker: "tracker_h:localhost/127.0.0.1:3".into(),
                http_port: Some(81),
                finish_ms: 20,
                host: "h".into(),
                result,
            }))
        };
        let mut counters = Counters::default();
        counters.set("a.b", "c(1)", 5);
        let error = "java.io.IOException: \"x\" = y.\n\tat a.b.C.d(C.java:1)\nJob JOBID=\"no\" .\n";
        let records = [
            HistoryRecord::Version,
            HistoryRecord::Submitted {
                name: "a \"name\" = b.c\\".into(),
                user: "alice".into(),
                submit_ms: 1,
                conf: "file:/x/job.xml".into(),
                tracker: "null:null:null".into(),
            },
            HistoryRecord::Launched { launch_ms: 2, maps: 0, reduces: 1 },
            HistoryRecord::TaskStarted {
                task,
                role: TaskRole::Reduce,
                start_ms: 9,
                hosts: vec!["a".into(), "b".into()],
            },
            end(0, AttemptResult::Failed { error: error.into() }),
            end(
                1,
                AttemptResult::Succeeded {
                    phases: Some((12, 13)),
                    state_string: "reduce > reduce".into(),
                    counters: counters.clone(),
                },
            ),
            HistoryRecord::TaskSucceeded { task, role: TaskRole::Reduce, finish_ms: 21, counters },
        ];
        records.iter().map(|record| record.lines(&job)).collect()
    }

    #[test]
    fn own_histories_read_back_in_pieces_of_any_size() {
        let text = whole();
        for piece in [1, 7, 64, text.len()] {
            let (history, damaged) = read(text.as_bytes(), piece);
            assert_eq!(damaged, 0);
            assert_eq!((&*history.name, &*history.user), ("a \"name\" = b.c\\", "alice"));
            assert_eq!((history.submit_ms, history.launch_ms, history.reduces), (1, 2, 1));
            assert!(!history.has_ended());
            let task = history.tasks.values().next().unwrap();
            assert_eq!(
                (task.state, task.finish_ms, &*task.splits),
                (PartState::Succeeded, 21, "a,b")
            );
            let [first, second] = &task.attempts[..] else { panic!("{task:?}") };
            assert!(first.error.contains("Job JOBID=\"no\" .\n"), "{}", first.error);
            assert_eq!((first.state, second.state), (PartState::Failed, PartState::Succeeded));
            assert_eq!((second.shuffle_ms, second.sort_ms, second.http_port), (12, 13, 81));
            assert_eq!(&*second.state_text, "reduce > reduce");
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_read_as_far_as_it_goes() {
        let text = whole();
        let (all, _) = read(text.as_bytes(), 100);
        for end in 0..text.len() {
            let (history, damaged) = read(&text.as_bytes()[..end], 50);
            assert!(history.records <= all.records && damaged <= 1, "{end}: {damaged}");
        }
        // A cut record, and whole ones after it.
        let torn =
            text.replacen("JOBTRACKERID", "\nJob JOBID=\"j\" LAUNCH_TIME=\"7\" .\nMeta X", 1);
        let (history, damaged) = read(torn.as_bytes(), 64);
        assert!(damaged > 0);
        assert_eq!(history.tasks.len(), 1);
        assert_eq!(&*history.user, "alice", "what precedes the cut is kept");
    }

    #[test]
    fn hostile_files_cost_bounded_memory() {
        let long = format!("Meta VERSION=\"1\" .\nJob JOBNAME=\"{}", "x".repeat(MAX_RECORD + 5));
        let (history, damaged) = read(long.as_bytes(), 1 << 16);
        assert_eq!((history.records, damaged), (0, 1));
        let garbage = [0xff, b'\n', b'\\', b'"', 0, b'=', b'.', b'\n'].repeat(1000);
        assert_eq!(read(&garbage, 3).0.records, 0);
        let mut history = JobHistory { parts: MAX_PARTS, ..JobHistory::default() };
        let mut records = Records::new();
        records.push(whole().as_bytes(), &mut |record| history.take(record));
        assert!(history.tasks.is_empty() && history.left_out > 0);
    }

    #[test]
    fn files_of_version_0_have_no_escapes() {
        let text = "Job JOBID=\"job_1_2\" JOBNAME=\"a\\b\" USER=\"u\"\nJob JOBID=\"job_1_2\" JOB_STATUS=\"SUCCESS\"\n";
        let (history, damaged) = read(text.as_bytes(), 10);
        assert_eq!(
            (&*history.name, history.state, damaged),
            ("a\\b", Some(JobState::Succeeded), 0)
        );
    }

    #[test]
    fn the_counters_of_one_attempt_are_found() {
        let text = whole();
        let mut records = Records::new();
        let mut one = AttemptCounters::of("attempt_202611210043.1_0001_r_000002_1");
        records.push(text.as_bytes(), &mut |record| one.take(record));
        let counters = Counters::of_text(&one.found.unwrap()).unwrap();
        assert_eq!(counters.get("a.b", "c(1)"), Some(5));
    }
}
