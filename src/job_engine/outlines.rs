//! Outlines of all tasks, attempts and nodes of a job: small and without texts, so that a page of a
//! large job costs little.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_mapreduce::{Counters, PerKind, TaskKey, TaskKind, TaskRole, TaskState};

use super::nodes::{Node, NodeIdx};
use super::tasks::Stage;
use super::{JobEngine, JobStage, Task};

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskStanding {
    /// No attempt runs and none has succeeded.
    Pending,
    /// An attempt runs.
    Running,
    /// An attempt has succeeded.
    Complete,
    /// Too many attempts failed.
    Failed,
    /// The job ended without it.
    Killed,
}

/// A task in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskOutline {
    /// Which one.
    pub task: TaskKey,
    /// Its purpose.
    pub role: TaskRole,
    /// How it stands.
    pub standing: TaskStanding,
    /// From 0 to 1.
    pub progress: f32,
    /// When its first attempt was launched, in milliseconds since the Unix epoch; 0 if none was.
    pub launched_ms: i64,
    /// When the attempt began that succeeded, or else the one that is ahead; 0 if there is none.
    pub start_ms: i64,
    /// When the attempt that succeeded ended; 0 if there is none.
    pub finish_ms: i64,
    /// Attempts.
    pub attempts: u32,
    /// Attempts that run.
    pub live: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Attempts that were killed.
    pub killed: u32,
}

/// When an attempt did what, in milliseconds since the Unix epoch; 0 for what has not happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptSpan {
    /// Its task's kind.
    pub kind: TaskKind,
    /// Its task's purpose.
    pub role: TaskRole,
    /// Where it stands.
    pub state: TaskState,
    /// It began.
    pub start_ms: i64,
    /// A reduce had all map outputs.
    pub shuffle_ms: i64,
    /// A reduce had merged them.
    pub sort_ms: i64,
    /// It ended.
    pub finish_ms: i64,
}

/// What a job would lose with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// Attempts that run there.
    pub running_attempts: usize,
    /// Outputs of maps there that reduces may still fetch.
    pub map_outputs: usize,
}

/// A node on which the job has or had a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutline {
    /// Its name.
    pub node: Arc<str>,
    /// Whether the cluster manager has given it up.
    pub lost: bool,
    /// Whether the job starts nothing there any more.
    pub faulty: bool,
    /// Attempts launched.
    pub launched: u32,
    /// Attempts that succeeded.
    pub succeeded: u32,
    /// Attempts that were killed, also with the job.
    pub killed: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Attempts that reported nothing for too long.
    pub timeouts: u32,
    /// Calls that failed.
    pub failed_connections: u32,
}

/// The phases of an attempt that was looked up by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTimes {
    /// When it was launched, in milliseconds since the Unix epoch.
    pub launched_ms: i64,
    /// When a reduce had all map outputs; 0 if it has not.
    pub shuffle_ms: i64,
    /// When a reduce had merged them; 0 if it has not.
    pub sort_ms: i64,
    /// How often other tasks could not fetch its output.
    pub fetch_failures: u32,
}

impl JobEngine {
    /// All tasks: maps, then reduces, those that set the job up or clean up after it last of each.
    pub fn task_outlines(&self) -> impl Iterator<Item = TaskOutline> + use<'_> {
        self.keys().map(|key| self.outline(key))
    }

    fn outline(&self, key: TaskKey) -> TaskOutline {
        let task = self.task(key);
        let live = task.live().count() as u32;
        let shown = match task.stage {
            Stage::Complete(number) => task.attempts.get(number as usize),
            _ => task.live().map(|(_, it)| it).max_by(|a, b| a.progress.total_cmp(&b.progress)),
        };
        TaskOutline {
            task: key,
            role: self.role(key),
            standing: standing(task, live),
            progress: task.progress(),
            launched_ms: task.first_launch.0,
            start_ms: shown.map_or(0, |attempt| attempt.start_ms),
            finish_ms: shown.filter(|_| task.is_complete()).map_or(0, |attempt| attempt.finish_ms),
            attempts: task.attempts.len() as u32,
            live,
            failed: task.failed,
            killed: task.killed,
        }
    }

    /// When all attempts did what.
    pub fn attempt_spans(&self) -> impl Iterator<Item = AttemptSpan> + use<'_> {
        self.keys().flat_map(|key| {
            let role = self.role(key);
            self.task(key).attempts.iter().map(move |attempt| AttemptSpan {
                kind: key.kind,
                role,
                state: attempt.state,
                start_ms: attempt.start_ms,
                shuffle_ms: attempt.shuffle_ms,
                sort_ms: attempt.sort_ms,
                finish_ms: attempt.finish_ms,
            })
        })
    }

    /// The phases of the attempts of a task, by number.
    pub fn attempt_times(&self, key: TaskKey) -> Vec<AttemptTimes> {
        let Some(task) = self.tasks[key.kind].get(key.number as usize) else { return Vec::new() };
        let times = task.attempts.iter().map(|attempt| AttemptTimes {
            launched_ms: attempt.launched.0,
            shuffle_ms: attempt.shuffle_ms,
            sort_ms: attempt.sort_ms,
            fetch_failures: attempt.fetch_failures,
        });
        times.collect()
    }

    /// What the job would lose with a node.
    pub fn use_of_node(&self, name: &str) -> NodeUse {
        let mut found = NodeUse::default();
        let node = self.nodes.find(name).filter(|node| !self.nodes[*node].lost);
        let Some(node) = node.filter(|_| !matches!(self.stage, JobStage::Over(_))) else {
            return found;
        };
        let needs_output = self.needs_map_output();
        for key in self.keys() {
            let task = self.task(key);
            for (number, attempt) in task.numbered().filter(|(_, attempt)| attempt.node == node) {
                let is_output = needs_output
                    && self.role(key) == TaskRole::Map
                    && task.stage == Stage::Complete(number);
                found.running_attempts += usize::from(attempt.state.is_live());
                found.map_outputs += usize::from(is_output);
            }
        }
        found
    }

    /// The nodes of the job, in the order of their first grants.
    pub fn node_outlines(&self) -> Vec<NodeOutline> {
        // What a node counts itself is for its cluster manager: attempts that left output only.
        let mut ended = BTreeMap::<NodeIdx, (u32, u32)>::new();
        for key in self.keys() {
            for (number, attempt) in self.task(key).numbered() {
                let (is_failed, is_killed) = (attempt.state.is_failed(), attempt.state.is_killed());
                if is_failed || is_killed {
                    let ran_on = self.ran_on.0.get(&key.attempt(number)).unwrap_or(&attempt.node);
                    let (failed, killed) = ended.entry(*ran_on).or_default();
                    *failed += u32::from(is_failed);
                    *killed += u32::from(is_killed);
                }
            }
        }
        let outline = |(at, node): (NodeIdx, &Node)| NodeOutline {
            node: node.name.clone(),
            lost: node.lost,
            faulty: node.is_faulty(&self.spec.settings),
            launched: node.launched,
            succeeded: node.succeeded,
            killed: ended.get(&at).map_or(0, |(_, killed)| *killed),
            failed: ended.get(&at).map_or(0, |(failed, _)| *failed),
            timeouts: node.timeouts,
            failed_connections: node.failed_connections,
        };
        self.nodes.numbered().map(outline).collect()
    }

    /// The sums of the counters of the tasks of a kind.
    pub fn counters_of_kind(&self, kind: TaskKind) -> Counters {
        self.counters_of(kind)
    }

    /// The counters of the job, given those of its maps and reduces.
    pub fn counters_with(&self, by_kind: &PerKind<Counters>) -> Counters {
        let mut all = self.own_counters();
        all.add(&by_kind.map);
        all.add(&by_kind.reduce);
        all
    }

    /// The attempts of all tasks that failed or were killed: at most `most`, those of early tasks first.
    pub fn ended_attempts(&self, most: usize) -> Vec<corona_mapreduce::AttemptKey> {
        let ended = self.keys().flat_map(|key| {
            let numbered = self.task(key).numbered();
            let ended =
                numbered.filter(|(_, it)| !it.state.is_live() && it.state != TaskState::Succeeded);
            ended.map(move |(number, _)| key.attempt(number))
        });
        ended.take(most).collect()
    }
}

fn standing(task: &Task, live: u32) -> TaskStanding {
    match task.stage {
        Stage::Complete(_) => TaskStanding::Complete,
        Stage::Failed => TaskStanding::Failed,
        Stage::Killed => TaskStanding::Killed,
        Stage::Open if live > 0 => TaskStanding::Running,
        Stage::Open => TaskStanding::Pending,
    }
}
