//! A job that the service runs: its engine, the outlet of what that decides, and what others see of both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use corona_mapreduce::history::JobEnd;
use corona_mapreduce::{AttemptKey, HistoryRecord, JobState, PerKind};
use corona_model::types::Millis;
use corona_process::panics::{Panic, caught, spawn_detached};
use corona_session_driver::{Contact, SessionEvents, Silence};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

pub(crate) use super::actor::AskError;
use super::actor::{Actor, JobClock, Records, SessionChange, Subject, queued};
use super::history::HistoryStanding;
use super::inbox::{Inbox, Incoming, Look, Message, Reply};
use super::log::Log;
use super::outlet::{Outlet, carry_out};
use crate::clock::now;
use crate::submit::submission::Description;
use corona_job_engine::{JobEffect, JobEngine, JobInput, JobProgress, JobRefusal, JobReply, Order};

/// Progress is published at most this often, unless the state or the priority changes: it takes a look at each
/// task.
const PUBLISH_PAUSE: Duration = Duration::from_millis(200);
/// A job at work. Copies are the same job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    description: Arc<Description>,
    inbox: Inbox,
    progress: watch::Receiver<Arc<JobProgress>>,
    contact: Option<Contact>,
    history: Option<watch::Receiver<HistoryStanding>>,
    ahead_ms: i64,
}

/// Begins the note of a job that has ended and has no history.
pub(crate) const WITHOUT_HISTORY: &str = "without a history: ";
/// How long a look at a job that has ended waits for the end of its history.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

/// What the task of a job is made of.
pub(crate) struct Parts {
    pub(crate) description: Arc<Description>,
    pub(crate) engine: JobEngine,
    pub(crate) log: Option<Log>,
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) events: Option<SessionEvents>,
    /// Whether the cluster manager answers its session, if it has one.
    pub(crate) contact: Option<Contact>,
    /// Of its history, if the service writes that.
    pub(crate) history: Option<watch::Receiver<HistoryStanding>>,
    pub(crate) inbox: (Inbox, Incoming),
    /// The time of the first input, if that is not now: when a job was submitted that has waited.
    pub(crate) first_at: Option<Millis>,
    /// Becomes true when the program ends.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Job {
    /// Starts the task of a job with this first input.
    pub(crate) fn start(parts: Parts, first: JobInput) -> Job {
        Job::run(parts, first, None)
    }

    /// Goes on with a job of the former program of this process. Of the launches that it sent, those run again that no
    /// task tracker reports within this time.
    pub(crate) fn resume_in_place(parts: Parts, patience: Duration) -> Job {
        let attempts = parts.engine.attempts_in_doubt();
        Job::run(parts, JobInput::ResumedInPlace, Some((Instant::now() + patience, attempts)))
    }

    fn run(parts: Parts, first: JobInput, in_doubt: Option<InDoubt>) -> Job {
        let Parts { description, engine, log, outlet, events, contact, history, .. } = parts;
        let Parts { inbox, first_at, stop, .. } = parts;
        let (sender, inbox) = inbox;
        let (publish, progress) = watch::channel(Arc::new(engine.progress()));
        let clock = JobClock::after(engine.last());
        let (id, ahead_ms) = (description.id.clone(), clock.ahead_ms());
        let subject = JobWork {
            engine,
            records: Records::new(id.clone(), log),
            outlet,
            publish,
            published: None,
            unpublished: false,
            next: Vec::new(),
            in_doubt,
            first_at,
            retired: false,
            effects: Vec::new(),
            after: Vec::new(),
        };
        let mut actor = Actor { subject, mail: inbox, events, clock, stop };
        tokio::spawn(async move {
            if let Err(panic) = caught(actor.run(vec![first])).await {
                tracing::error!(job = %id, %panic, "the handling of a job panicked; the job fails");
                actor.subject.lost(&panic).await;
            }
        });
        Job { description, inbox: sender, progress, contact, history, ahead_ms }
    }

    /// How far its time is before that of this process: see [`JobClock`].
    pub(crate) fn ahead_ms(&self) -> i64 {
        self.ahead_ms
    }

    /// What does not change of it.
    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.description
    }

    /// How far it was a moment ago.
    pub(crate) fn progress(&self) -> Arc<JobProgress> {
        self.progress.borrow().clone()
    }

    /// What people must know while the job runs: that the cluster manager does not answer, or that its history
    /// cannot be written; and after its end: that it has no history.
    pub(crate) fn note(&self) -> Option<String> {
        let contact = self.contact.as_ref();
        let silence = contact.and_then(|it| note_of_silence(it, &self.progress.borrow()));
        match (self.history_note(), silence) {
            (Some(note), Some(silence)) => Some(format!("{silence}; {note}")),
            (note, silence) => note.or(silence),
        }
    }

    /// What is wrong with its history, if anything is.
    pub(crate) fn history_note(&self) -> Option<String> {
        let HistoryStanding { trouble, is_lost, .. } = self.history.as_ref()?.borrow().clone();
        let trouble = trouble?;
        Some(match (self.progress.borrow().finished_at, is_lost) {
            (Some(_), _) => format!("{WITHOUT_HISTORY}{trouble}"),
            (None, true) => format!("it will have no history: {trouble}"),
            (None, false) => {
                format!("its history cannot be written: {trouble}; it is tried again")
            }
        })
    }

    /// Waits, for some seconds at most, until the history of a job that has ended is complete or given up.
    pub(crate) async fn history_is_settled(&self) {
        let Some(mut history) = self.history.clone() else { return };
        if self.progress.borrow().finished_at.is_some() {
            // One that is not written any more does not change.
            let _ = timeout(HISTORY_PATIENCE, history.wait_for(|it| it.is_settled)).await;
        }
    }

    /// Gives it an input. Returns when that cannot be lost any more.
    pub(crate) async fn apply(&self, input: JobInput) -> Result<JobReply, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Input(input, reply)).await?;
        Ok(answer.await.map_err(|_| AskError::Gone)??)
    }

    /// Notes an input for it, and waits for nothing.
    pub(crate) fn notify(&self, input: JobInput) {
        self.inbox.note(input);
    }

    /// Looks at its engine.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&JobEngine) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let (tell, told) = oneshot::channel();
        let look: Look = Box::new(move |engine| {
            let _ = tell.send(look(engine));
        });
        self.send(Message::Look(look)).await?;
        told.await.map_err(|_| AskError::Gone)
    }

    /// Lets its details go.
    pub(crate) async fn retire(&self) {
        // A forgotten job has none.
        let _ = self.send(Message::Retire).await;
    }

    /// Whether its details are let go, or its handling panicked.
    pub(crate) fn is_gone(&self) -> bool {
        self.inbox.is_closed()
    }

    async fn send(&self, message: Message) -> Result<(), AskError> {
        queued(self.inbox.send(message)).await
    }
}

/// A shorter silence of the cluster manager is nothing that people must know.
const SHOWN_SILENCE: Duration = Duration::from_secs(3);

pub(crate) fn is_shown(silence: &Silence) -> bool {
    silence.lasts >= SHOWN_SILENCE
}

/// What people must know of a cluster manager that does not answer a job that runs.
pub(crate) fn note_of_silence(contact: &Contact, progress: &JobProgress) -> Option<String> {
    let silence = contact.silence().filter(is_shown)?;
    progress.finished_at.is_none().then(|| text_of_silence(silence, progress.live))
}

fn text_of_silence(silence: Silence, live: PerKind<u32>) -> String {
    match live.map.saturating_add(live.reduce) {
        0 => format!("{silence}; no task runs"),
        1 => format!("{silence}; 1 task continues"),
        tasks => format!("{silence}; {tasks} tasks continue"),
    }
}

/// The engine of a job, and what surrounds it.
struct JobWork {
    engine: JobEngine,
    records: Records,
    outlet: Box<dyn Outlet>,
    publish: watch::Sender<Arc<JobProgress>>,
    published: Option<Instant>,
    unpublished: bool,
    /// Inputs of its own making.
    next: Vec<JobInput>,
    in_doubt: Option<InDoubt>,
    first_at: Option<Millis>,
    retired: bool,
    /// What follows from the inputs of this turn.
    effects: Vec<JobEffect>,
    after: Vec<After>,
}

/// The attempts that the former program of this process launched and that no task tracker has reported, and how long
/// they have for that.
type InDoubt = (Instant, BTreeSet<AttemptKey>);

/// What waits until the inputs before it are safe.
enum After {
    Reply(Reply, Result<JobReply, JobRefusal>),
    Look(Look),
}

impl Subject for JobWork {
    type Input = JobInput;
    type Message = Message;

    fn stalled(ms: i64) -> JobInput {
        JobInput::Stalled { ms }
    }

    fn tick() -> JobInput {
        JobInput::Tick
    }

    fn session_input(&mut self, change: SessionChange) -> JobInput {
        match change {
            SessionChange::Granted(slots) => JobInput::Granted { slots },
            SessionChange::Revoked(ids) => JobInput::Revoked { ids },
            SessionChange::NodeLost(node) => JobInput::NodeLost { node },
            SessionChange::Ended(_) => JobInput::SessionLost { aborted: false },
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.engine.next_deadline()
    }

    fn wakes_at(&self) -> Option<Instant> {
        let published = self.published.filter(|_| self.unpublished);
        let publishes_at = published.map(|published| published + PUBLISH_PAUSE);
        let in_doubt_until = self.in_doubt.as_ref().map(|(until, _)| *until);
        publishes_at.into_iter().chain(in_doubt_until).min()
    }

    fn is_done(&self) -> bool {
        self.retired
    }

    fn own_inputs(&mut self) -> Vec<JobInput> {
        let mut own = std::mem::take(&mut self.next);
        let over = self.in_doubt.take_if(|(until, _)| *until <= Instant::now());
        own.extend(over.map(|(_, attempts)| JobInput::NotLaunched { attempts }));
        own
    }

    fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    fn apply(&mut self, now: Millis, input: JobInput) {
        // Nobody waits for the reply.
        let _ = self.replied(now, input);
    }

    fn take(&mut self, now: Millis, message: Message) {
        match message {
            Message::Input(input, reply) => {
                let result = self.replied(now, input);
                self.after.push(After::Reply(reply, result));
            }
            Message::Look(look) => self.after.push(After::Look(look)),
            Message::Retire => self.retired = true,
        }
    }

    async fn follow(&mut self) {
        if carry_out(std::mem::take(&mut self.effects), &mut *self.outlet).is_err() {
            self.next.push(JobInput::SessionLost { aborted: true });
        }
        let shows_progress = self.is_progress_due();
        let stores_image = self.is_image_due();
        if shows_progress || stores_image {
            // Both look at each task. What this thread has just woken, such as a launch, goes first.
            yield_now().await;
        }
        if shows_progress {
            self.show_progress();
        }
        self.unpublished = !shows_progress;
        if stores_image {
            self.store_image();
        }
        if self.is_over() {
            // What follows the end writes the last record.
            self.records.close();
        }
        for after in std::mem::take(&mut self.after) {
            match after {
                // Who asked may have given up.
                After::Reply(reply, result) => drop(reply.send(result)),
                After::Look(look) => look(&self.engine),
            }
        }
    }

    /// Leaves a job that runs to the next process. One that is over ends here.
    fn leave(&mut self) {
        if !self.is_over() {
            self.outlet.leave();
        }
    }
}

impl JobWork {
    fn replied(&mut self, now: Millis, input: JobInput) -> Result<JobReply, JobRefusal> {
        let submitted = self.first_at.filter(|_| matches!(input, JobInput::Submitted));
        let at = submitted.unwrap_or(now);
        if !self.is_over() {
            self.records.append(|log| log.input(at, &input));
        }
        if let (Some((_, attempts)), JobInput::Heartbeat { node, reports, .. }) =
            (&mut self.in_doubt, &input)
        {
            // A clean-up has the name of an attempt that another node may still report.
            for report in reports.iter().filter(|it| self.engine.is_on(it.attempt, node)) {
                attempts.remove(&report.attempt);
            }
            self.in_doubt.take_if(|(_, attempts)| attempts.is_empty());
        }
        let outcome = self.engine.apply(at, input);
        self.effects.extend(outcome.effects);
        outcome.reply
    }

    /// Ends a job whose handling panicked: it has failed for everybody who asks or waits.
    async fn lost(&mut self, panic: &Panic) {
        let known = JobProgress::clone(&self.publish.borrow());
        if known.finished_at.is_some() {
            return;
        }
        let state = if self.is_over() { self.engine.state() } else { JobState::Failed };
        let progress = JobProgress {
            state,
            // Spec: mapreduce/09 §H.
            work: PerKind { map: 1.0, reduce: 1.0 },
            cleanup: 1.0,
            live: PerKind::default(),
            requested: 0,
            finished_at: Some(now()),
            ..known
        };
        // The engine may panic again.
        let trackers = caught(async { self.engine.trackers() }).await.unwrap_or_default();
        for at in trackers {
            self.outlet.order(at, Order::KillJob);
        }
        self.outlet.record(&end_record(&progress));
        let progress = Arc::new(progress);
        self.outlet.lost(progress.clone(), &lost_reason(panic));
        self.publish.send_replace(progress);
    }

    fn is_over(&self) -> bool {
        !matches!(self.engine.state(), JobState::Prep | JobState::Running)
    }

    /// Whether an image of the job is to be stored. A job that is over needs none.
    fn is_image_due(&self) -> bool {
        !self.is_over() && self.records.log().is_some_and(Log::image_is_due)
    }

    fn store_image(&mut self) {
        let Some(log) = self.records.log() else { return };
        if let Some(image) = log.image(&self.engine, || self.outlet.history_mark()) {
            spawn_detached("the image of a job", image.store());
        }
    }

    fn is_progress_due(&self) -> bool {
        let changed = {
            let shown = self.publish.borrow();
            (shown.state, shown.priority) != (self.engine.state(), self.engine.priority())
        };
        changed || self.published.is_none_or(|published| published.elapsed() >= PUBLISH_PAUSE)
    }

    fn show_progress(&mut self) {
        self.publish.send_replace(Arc::new(self.engine.progress()));
        self.published = Some(Instant::now());
    }
}

/// Why a job failed whose handling panicked, for its user.
pub(crate) fn lost_reason(panic: &Panic) -> String {
    format!("a bug in the job tracker ended the job ({panic}); report it, and submit the job again")
}

/// The last record of a job whose counts are not known.
pub(crate) fn end_record(progress: &JobProgress) -> HistoryRecord {
    let finish_ms = progress.finished_at.map_or(0, |at| at.0);
    HistoryRecord::Ended(Box::new(JobEnd {
        finished_maps: progress.finished.map as usize,
        finished_reduces: progress.finished.reduce as usize,
        ..JobEnd::without_counts(progress.state, finish_ms)
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use corona_job_engine::GrantedSlot;
    use corona_mapreduce::{TaskKey, TaskKind, TaskState, TaskStatus};
    use corona_model::types::{ResourceRequest, SessionPriority, SessionStatus};

    use super::*;
    use crate::jobs::inbox::inbox;
    use crate::jobs::log::tests::{base, breakable, journals};
    use crate::jobs::outlet::NoSession;
    use crate::submit::submission::tests::submission;
    use corona_job_engine::{Launch, NodeUsage, RequestId, Tracker};

    /// An outlet that notes what it is given.
    #[derive(Clone, Default)]
    pub(crate) struct Notes {
        notes: Arc<Mutex<Vec<String>>>,
        has_no_session: bool,
    }

    impl Notes {
        fn add(&self, note: impl Into<String>) {
            self.notes.lock().unwrap().push(note.into());
        }

        pub(crate) fn all(&self) -> Vec<String> {
            self.notes.lock().unwrap().clone()
        }
    }

    impl Outlet for Notes {
        fn request(&mut self, requests: Vec<ResourceRequest>) -> Result<(), NoSession> {
            let ids: Vec<String> = requests.iter().map(|request| request.id.to_string()).collect();
            self.add(format!("request {}", ids.join(",")));
            if self.has_no_session { Err(NoSession) } else { Ok(()) }
        }

        fn release(&mut self, ids: Vec<RequestId>) -> Result<(), NoSession> {
            self.add(format!("release {}", ids.len()));
            Ok(())
        }

        fn launch(&mut self, launch: Launch) {
            self.add(format!("launch {}", launch.attempt.task.number));
        }

        fn order(&mut self, _at: Tracker, order: Order) {
            self.add(format!("{order:?}"));
        }

        fn record(&mut self, _record: &HistoryRecord) {}

        fn priority(&mut self, priority: SessionPriority) {
            self.add(priority.name());
        }

        fn flush(&mut self) {}

        fn end(&mut self, status: SessionStatus, _feedback: Vec<NodeUsage>) {
            self.add(format!("end {}", status.name()));
        }

        fn lost(&mut self, progress: Arc<JobProgress>, reason: &str) {
            self.add(format!("lost {:?}: {reason}", progress.state));
        }

        fn leave(&mut self) {
            self.add("leave");
        }
    }

    /// A job of one map, with the sender that stops it.
    pub(crate) fn start(notes: &Notes, log: Option<Log>) -> (Job, watch::Sender<bool>) {
        let submission = submission(&[("mapred.reduce.tasks", "0")], 1);
        let engine = JobEngine::new(submission.spec);
        start_engine(notes, log, submission.description, engine, JobInput::Submitted)
    }

    /// A job that was submitted by a clock that has been set back since.
    pub(crate) fn start_ahead(notes: &Notes, ms: i64) -> (Job, watch::Sender<bool>) {
        let submission = submission(&[("mapred.reduce.tasks", "0")], 1);
        let mut engine = JobEngine::new(submission.spec);
        let _ = engine.apply(now().plus_ms(ms), JobInput::Submitted);
        start_engine(notes, None, submission.description, engine, JobInput::Tick)
    }

    fn start_engine(
        notes: &Notes,
        log: Option<Log>,
        description: Description,
        engine: JobEngine,
        first: JobInput,
    ) -> (Job, watch::Sender<bool>) {
        let (stop, stopped) = watch::channel(false);
        let parts = parts(notes, log, description, engine, stopped);
        (Job::start(parts, first), stop)
    }

    fn parts(
        notes: &Notes,
        log: Option<Log>,
        description: Description,
        engine: JobEngine,
        stop: watch::Receiver<bool>,
    ) -> Parts {
        Parts {
            description: Arc::new(description),
            engine,
            log,
            outlet: Box::new(notes.clone()),
            events: None,
            contact: None,
            history: None,
            inbox: inbox(4),
            first_at: None,
            stop,
        }
    }

    /// Launches of the former program run again without a report in time, and those of this one do not.
    #[tokio::test(start_paused = true)]
    async fn launches_before_a_restart_in_place_are_in_doubt_only_without_a_report() {
        const PATIENCE: Duration = Duration::from_secs(10);
        // A task tracker reports an attempt before it has started it.
        for (launched, reported, launches_more) in [
            (true, Some(TaskState::Succeeded), true),
            (true, Some(TaskState::Unassigned), false),
            (true, None, false),
            (false, None, false),
        ] {
            let notes = Notes::default();
            let (job, _stop) = resumed(&notes, launched, PATIENCE);
            job.look(|_| ()).await.unwrap();
            let at_once = notes.all();
            // A request that the cluster manager may not know is filed again.
            assert_eq!(at_once.is_empty(), launched, "{at_once:?}");
            tokio::time::sleep(PATIENCE * 3 / 4).await;
            if let Some(state) = reported {
                job.apply(report(2, state)).await.unwrap();
            }
            job.look(|_| ()).await.unwrap();
            assert_eq!(notes.all().contains(&"launch 0".into()), launches_more);
            tokio::time::sleep(PATIENCE).await;
            job.look(|_| ()).await.unwrap();
            let given_up = notes.all().iter().any(|note| note.starts_with("Kill("));
            assert_eq!(given_up, launched && reported.is_none(), "{:?}", notes.all());
        }
    }

    /// A job after a restart in place, whose set-up was launched and not heard of, or waits for its slot.
    fn resumed(notes: &Notes, launched: bool, patience: Duration) -> (Job, watch::Sender<bool>) {
        let submission = submission(&[("mapred.reduce.tasks", "0")], 1);
        let mut engine = JobEngine::new(submission.spec);
        let _ = engine.apply(now(), JobInput::Submitted);
        if launched {
            let _ = engine.apply(now(), grant(1));
        }
        assert_eq!(engine.attempts_in_doubt().len(), usize::from(launched));
        let (stop, stopped) = watch::channel(false);
        let parts = parts(notes, None, submission.description, engine, stopped);
        (Job::resume_in_place(parts, patience), stop)
    }

    fn grant(id: i32) -> JobInput {
        grant_at(id, "a:2")
    }

    pub(crate) fn grant_at(id: i32, address: &str) -> JobInput {
        let slot = GrantedSlot {
            id: RequestId(id),
            node: "tracker_a:1".into(),
            host: "a".into(),
            address: address.into(),
        };
        JobInput::Granted { slots: vec![slot] }
    }

    pub(crate) fn report(number: u32, state: TaskState) -> JobInput {
        let task = TaskKey { kind: TaskKind::Map, number };
        JobInput::Heartbeat {
            node: "tracker_a:1".into(),
            host: "a".into(),
            http_port: 1,
            reports: vec![TaskStatus::new(task.attempt(0), state)],
        }
    }

    /// Set-up, the map, clean-up: each on the slot of the one before.
    pub(crate) async fn all_succeed(job: &Job) {
        for number in [2, 0, 1] {
            job.apply(report(number, TaskState::Succeeded)).await.unwrap();
        }
        job.look(|_| ()).await.unwrap();
    }

    #[tokio::test]
    async fn a_job_is_carried_out_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log =
            Log::begin(&dir.path().join("journal"), &journals(1 << 20), &base(1, "0")).unwrap();
        let notes = Notes::default();
        let (job, _stop) = start(&notes, Some(log));
        job.apply(grant(1)).await.unwrap();
        all_succeed(&job).await;
        let progress = job.progress();
        assert_eq!(progress.state, JobState::Succeeded);
        let expected =
            ["request 1", "launch 2", "launch 0", "launch 1", "KillJob", "end SUCCESSFUL"];
        assert_eq!(notes.all(), expected);
        assert_eq!(job.apply(JobInput::KillJob).await, Ok(JobReply::Done));
        let refused = job.apply(report(0, TaskState::Running)).await;
        assert_eq!(refused, Err(AskError::Refused(JobRefusal::Ended)));
        job.retire().await;
        // One that was queued beside it may still be answered.
        let _ = job.look(|_| ()).await;
        assert_eq!(job.look(|_| ()).await, Err(AskError::Gone));
    }

    #[tokio::test]
    async fn a_changed_priority_is_shown_at_once() {
        let (job, _stop) = start(&Notes::default(), None);
        for priority in [SessionPriority::High, SessionPriority::Low, SessionPriority::Normal] {
            job.apply(JobInput::SetPriority { priority }).await.unwrap();
            assert_eq!(job.progress().priority, priority);
        }
    }

    #[tokio::test]
    async fn a_job_whose_journal_fails_goes_on_and_a_restart_does_not_go_back() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("journal");
        let (log, faults) = breakable(&directory, &base(1, "0"));
        let notes = Notes::default();
        let (job, _stop) = start(&notes, Some(log));
        job.apply(grant(1)).await.unwrap();
        faults.fail_writes(std::io::ErrorKind::StorageFull);
        all_succeed(&job).await;
        assert_eq!(job.progress().state, JobState::Succeeded);
        // Another start must not do again what was done since.
        for _ in 0..1000 {
            if !directory.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let opened = Log::open(&directory, &journals(1 << 20));
        assert!(matches!(opened, Ok(super::super::log::Opened::Empty)));
    }

    #[tokio::test]
    async fn a_job_without_a_session_ends() {
        let notes = Notes { has_no_session: true, ..Notes::default() };
        let (job, _stop) = start(&notes, None);
        let mut progress = job.progress.clone();
        progress.wait_for(|progress| progress.state == JobState::Killed).await.unwrap();
        job.look(|_| ()).await.unwrap();
        assert_eq!(notes.all(), ["request 1", "end KILLED_ABORTED"]);
    }

    #[tokio::test]
    async fn a_job_is_left_to_the_next_process_when_the_program_stops() {
        let notes = Notes::default();
        let (job, stop) = start(&notes, None);
        job.look(|_| ()).await.unwrap();
        stop.send_replace(true);
        stop.closed().await;
        assert_eq!(notes.all(), ["request 1", "leave"]);
        assert_eq!(job.look(|_| ()).await, Err(AskError::Gone));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_job_that_is_busy_delays_no_other() {
        let (busy, _stop) = start(&Notes::default(), None);
        let (other, _stop) = start(&Notes::default(), None);
        // Neither task is to be queued behind the other on a thread that is about to be blocked.
        for job in [&busy, &other] {
            job.look(|_| ()).await.unwrap();
        }
        let (let_go, held) = std::sync::mpsc::sync_channel::<()>(1);
        let look = tokio::spawn({
            let busy = busy.clone();
            async move { busy.look(move |_| held.recv().is_ok()).await }
        });
        // Its queue fills, and nothing that must not wait for it does.
        for _ in 0..100 {
            busy.notify(JobInput::Tick);
        }
        other.apply(grant(1)).await.unwrap();
        assert_eq!(busy.progress().state, JobState::Prep);
        let_go.send(()).unwrap();
        assert_eq!(look.await.unwrap(), Ok(true));
    }
}
