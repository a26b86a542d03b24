//! A task's conversation with its task tracker.

use std::time::Duration;

use compat_tests::task_tracker::job_tracker::client_options;
use compat_tests::task_tracker::steps::{Step, TaskRole};
use corona::hadoop::protocols::task_umbilical::TaskUmbilicalClient;
use corona::hadoop::writables::{
    Counter, CounterGroup, Counters, InetAddress, JvmContext, JvmId, Phase, ReduceProgress, Task,
    TaskState, TaskStatus,
};
use tokio::time::sleep;

use super::{Failure, Itself, UNKNOWN, fetch, variable};

/// Pause between two looks, questions or signs of life.
const PAUSE: Duration = Duration::from_millis(20);

/// The conversation, and the data that the task has from it.
pub(super) struct Umbilical {
    client: TaskUmbilicalClient,
    jvm: JvmId,
    task: Option<Task>,
    phase: Phase,
    state: TaskState,
    progress: f32,
    reduce: ReduceProgress,
}

impl Umbilical {
    pub(super) fn new(itself: &Itself) -> Result<Umbilical, Failure> {
        let address = variable("CORONA_UMBILICAL")?;
        let (host, port) = address.rsplit_once(':').ok_or("no port to report to")?;
        let address = InetAddress { host: host.to_owned(), port: port.parse()? };
        let jvm = JvmId {
            number: variable("CORONA_JVM_NUMBER")?.parse()?,
            job: itself.attempt.job().clone(),
            is_map: itself.attempt.task.is_map,
        };
        Ok(Umbilical {
            client: TaskUmbilicalClient::new(address, client_options()),
            jvm,
            task: None,
            phase: Phase::Starting,
            state: TaskState::Running,
            progress: 0.0,
            reduce: ReduceProgress::default(),
        })
    }

    /// The task, asked for if it is not there. None if the process is to end.
    pub(super) async fn task(&mut self, itself: &Itself) -> Result<Option<&Task>, Failure> {
        while self.task.is_none() {
            let pid = std::process::id().to_string();
            let answer = self.client.get_task(JvmContext { jvm: self.jvm.clone(), pid }).await?;
            if answer.should_die {
                itself.note("told to die", "")?;
                return Ok(None);
            }
            let Some(task) = answer.task else {
                sleep(PAUSE).await;
                continue;
            };
            if task.attempt != itself.attempt {
                return Err(format!("got {} for {}", task.attempt, itself.attempt).into());
            }
            let role = TaskRole::of(&task);
            itself.note("task", role.name())?;
            self.state = match task.status.state {
                TaskState::Unassigned => TaskState::Running,
                state => state,
            };
            self.phase = match role {
                TaskRole::Cleanup | TaskRole::TaskCleanup => Phase::Cleanup,
                _ if task.is_map() => Phase::Map,
                _ => Phase::Shuffle,
            };
            self.task = Some(task);
        }
        Ok(self.task.as_ref())
    }

    /// Takes a step that needs the tracker. The task ends with the status that this gives, if it does.
    pub(super) async fn step(
        &mut self,
        itself: &Itself,
        step: Step,
    ) -> Result<Option<u8>, Failure> {
        if self.task(itself).await?.is_none() {
            return Ok(Some(0));
        }
        let id = itself.attempt.clone();
        match step {
            Step::Update(progress) => return self.report(itself, progress).await,
            Step::CleanUp => {
                self.phase = Phase::Cleanup;
                return self.report(itself, self.progress).await;
            }
            Step::Wait => return self.live(itself, || itself.notes.may_go(&itself.name)).await,
            Step::Hang => return self.live(itself, || false).await,
            Step::Output => fetch::write_output(itself)?,
            Step::Fetch => return self.fetch(itself).await,
            Step::Commit => return self.commit(itself).await,
            Step::Done => {
                self.client.done(id).await?;
                itself.note("done", "")?;
            }
            Step::Diagnose(text) => self.client.report_diagnostic_info(id, Some(text)).await?,
            Step::ShuffleError(text) => self.client.shuffle_error(id, Some(text)).await?,
            Step::FsError(text) => self.client.fs_error(id, Some(text)).await?,
            Step::FatalError(text) => self.client.fatal_error(id, Some(text)).await?,
            // It has been asked for; the others need no tracker.
            _ => {}
        }
        Ok(None)
    }

    /// Reports. Ends if the tracker does not know the attempt.
    async fn report(&mut self, itself: &Itself, progress: f32) -> Result<Option<u8>, Failure> {
        self.progress = progress;
        let known = self.client.status_update(itself.attempt.clone(), self.status(itself)).await?;
        Ok((!known).then_some(UNKNOWN))
    }

    fn status(&self, itself: &Itself) -> TaskStatus {
        let task = self.task.as_ref();
        let counter = Counter {
            name: "STEPS".to_owned(),
            display_name: Some("Steps of a test".to_owned()),
            value: 7,
        };
        let group = CounterGroup {
            name: "test".to_owned(),
            display_name: "Test".to_owned(),
            counters: vec![counter],
        };
        let told = task.is_some_and(|task| task.status.counters.is_some());
        TaskStatus {
            progress: self.progress,
            slots: task.map_or(1, |task| task.slots),
            state_string: format!("at {}", self.progress),
            phase: self.phase,
            counters: told.then(|| Counters { groups: vec![group] }),
            reduce: task.is_some_and(|task| !task.is_map()).then(|| self.reduce.clone()),
            ..TaskStatus::new(itself.attempt.clone(), self.state)
        }
    }

    /// Gives signs of life until something holds.
    async fn live(
        &mut self,
        itself: &Itself,
        enough: impl Fn() -> bool,
    ) -> Result<Option<u8>, Failure> {
        itself.note("waits", "")?;
        while !enough() {
            if !self.client.ping(itself.attempt.clone()).await? {
                return Ok(Some(UNKNOWN));
            }
            sleep(PAUSE).await;
        }
        Ok(None)
    }

    /// The three phases of a reduce.
    async fn fetch(&mut self, itself: &Itself) -> Result<Option<u8>, Failure> {
        let Some(Task { partition, kind, .. }) = &self.task else { return Ok(None) };
        let mut fetcher = fetch::Fetcher::new(itself, *partition, kind)?;
        loop {
            let failed = fetcher.look(itself).await?;
            if fetcher.has_all() {
                break;
            }
            self.reduce.failed_fetches = failed;
            if let Some(code) = self.report(itself, 0.1).await? {
                return Ok(Some(code));
            }
            self.reduce.failed_fetches.clear();
            sleep(PAUSE).await;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let now = i64::try_from(now.as_millis())?;
        self.reduce.failed_fetches.clear();
        self.reduce.shuffle_finish_time_ms = now;
        self.phase = Phase::Sort;
        if let Some(code) = self.report(itself, 0.3).await? {
            return Ok(Some(code));
        }
        self.reduce.sort_finish_time_ms = now;
        self.phase = Phase::Reduce;
        self.report(itself, 0.6).await
    }

    /// Waits for the permission to commit, as a task with output does.
    async fn commit(&mut self, itself: &Itself) -> Result<Option<u8>, Failure> {
        self.state = TaskState::CommitPending;
        let status = self.status(itself);
        self.client.commit_pending(itself.attempt.clone(), status).await?;
        itself.note("commit pending", "")?;
        while !self.client.can_commit(itself.attempt.clone()).await? {
            // An attempt that was ended meanwhile is not notified otherwise.
            if !self.client.ping(itself.attempt.clone()).await? {
                return Ok(Some(UNKNOWN));
            }
            sleep(PAUSE).await;
        }
        itself.note("commits", "")?;
        Ok(None)
    }
}
