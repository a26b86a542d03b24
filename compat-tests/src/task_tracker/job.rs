//! Jobs of tests: their configuration as a file, and their tasks as a job tracker sends them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corona::hadoop::writables::{
    CleanupState, JobId, Split, Task, TaskAttemptId, TaskId, TaskKind, TaskState,
};

use super::notes::Notes;
use super::steps::TaskRole;

/// Number of the task that prepares or cleans up, well beyond those that work.
const OTHER_TASK: i32 = 1000;

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// How many maps it has.
    pub maps: i32,
    /// How many reduces it has.
    pub reduces: i32,
    directory: PathBuf,
    properties: Vec<(String, String)>,
}

impl Job {
    /// A job of one map of a session, whose files and notes lie in `directory`. Its tasks run `program`.
    ///
    /// Errors: the directory cannot be made.
    pub fn new(session: &str, directory: &Path, program: &Path) -> io::Result<Job> {
        fs::create_dir_all(directory)?;
        let id = JobId { number: 1, tracker: session.to_owned() };
        let mut job =
            Job { id, maps: 1, reduces: 0, directory: directory.to_owned(), properties: vec![] };
        job.set("corona.task.command", &program.display().to_string());
        job.set("test.directory", &directory.display().to_string());
        job.set("mapred.job.tracker", "corona");
        Ok(job.sized(1, 0))
    }

    /// With so many maps and reduces.
    #[must_use]
    pub fn sized(mut self, maps: i32, reduces: i32) -> Job {
        (self.maps, self.reduces) = (maps, reduces);
        self.set("mapred.map.tasks", &maps.to_string());
        self.set("mapred.reduce.tasks", &reduces.to_string());
        self
    }

    /// Its tasks run Java.
    #[must_use]
    pub fn in_java(mut self) -> Job {
        self.properties.retain(|(name, _)| name != "corona.task.command");
        self
    }

    /// With these steps for tasks of this role.
    #[must_use]
    pub fn steps(mut self, role: TaskRole, steps: &str) -> Job {
        self.set(&format!("test.steps.{}", role.name()), steps);
        self
    }

    /// With these steps for the first attempt at a map.
    #[must_use]
    pub fn map_steps(mut self, number: i32, steps: &str) -> Job {
        self.set(&format!("test.steps.{}", self.map(number)), steps);
        self
    }

    /// With this property.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Job {
        self.set(name, value);
        self
    }

    /// Without this property, and its value if it had one.
    #[must_use]
    pub fn without(mut self, name: &str) -> (Job, Option<String>) {
        let at = self.properties.iter().position(|(known, _)| known == name);
        let value = at.map(|at| self.properties.remove(at).1);
        (self, value)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.properties.retain(|(known, _)| known != name);
        self.properties.push((name.to_owned(), value.to_owned()));
    }

    /// Where its tasks leave notes.
    pub fn notes(&self) -> Notes {
        Notes::new(&self.directory)
    }

    /// Its configuration, as a path.
    pub fn path(&self) -> PathBuf {
        self.directory.join("job.xml")
    }

    /// Writes its configuration.
    ///
    /// Errors: those of the system.
    pub fn write(&self) -> io::Result<()> {
        let escaped =
            |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let property = |(name, value): &(String, String)| {
            let (name, value) = (escaped(name), escaped(value));
            format!("<property><name>{name}</name><value>{value}</value></property>\n")
        };
        let properties: String = self.properties.iter().map(property).collect();
        let xml =
            format!("<?xml version=\"1.0\"?>\n<configuration>\n{properties}</configuration>\n");
        fs::write(self.path(), xml)
    }

    /// The first attempt at a map.
    pub fn map(&self, number: i32) -> TaskAttemptId {
        self.attempt(true, number)
    }

    /// The first attempt at a reduce.
    pub fn reduce(&self, number: i32) -> TaskAttemptId {
        self.attempt(false, number)
    }

    /// The attempt that prepares the job.
    pub fn setup(&self) -> TaskAttemptId {
        self.attempt(true, OTHER_TASK + 1)
    }

    /// The attempt that cleans up after the job.
    pub fn cleanup(&self) -> TaskAttemptId {
        self.attempt(true, OTHER_TASK)
    }

    fn attempt(&self, is_map: bool, number: i32) -> TaskAttemptId {
        TaskAttemptId { number: 0, task: TaskId { number, job: self.id.clone(), is_map } }
    }

    /// The task of an attempt that works.
    pub fn task(&self, attempt: &TaskAttemptId) -> Task {
        let is_map = attempt.task.is_map;
        let kind = match is_map {
            true => {
                let data = attempt.to_string().into_bytes();
                TaskKind::Map { split: Some(Split { class: "test.Split".to_owned(), data }) }
            }
            false => TaskKind::Reduce { maps: self.maps },
        };
        let job_file = format!("file:{}", self.path().display());
        let mut task = Task::new(attempt.clone(), job_file, "test".to_owned(), kind);
        task.status.output_size = -1;
        task
    }

    /// The task that prepares the job.
    pub fn setup_task(&self) -> Task {
        let kind = TaskKind::Map { split: None };
        Task { job_setup: true, kind, ..self.task(&self.setup()) }
    }

    /// The task that cleans up after the job.
    pub fn cleanup_task(&self) -> Task {
        let kind = TaskKind::Map { split: None };
        let job_cleanup = Some(CleanupState::Succeeded);
        Task { job_cleanup, kind, ..self.task(&self.cleanup()) }
    }

    /// The task that cleans up after an attempt in this state.
    pub fn task_cleanup(&self, attempt: &TaskAttemptId, state: TaskState) -> Task {
        let mut task = self.task(attempt);
        task.task_cleanup = true;
        task.status.state = state;
        if task.is_map() {
            task.kind = TaskKind::Map { split: None };
        }
        task
    }
}

/// The part of a map's output that a reduce of a test gets: so many bytes of its own.
pub fn map_output(attempt: &TaskAttemptId, reduce: i32, bytes: usize) -> Vec<u8> {
    let line = format!("{attempt} to {reduce}\n");
    line.bytes().cycle().take(bytes).collect()
}

/// The length of that part, from the property `test.output.bytes`: another one for each reduce.
pub fn output_bytes(configured: Option<&str>, reduce: i32) -> usize {
    let bytes = configured.and_then(|bytes| bytes.parse().ok()).unwrap_or(1000);
    bytes + usize::try_from(reduce).unwrap_or_default()
}
