//! Jobs that wait for a place: how they begin, and how they end before that.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corona_journal::DiskStorage;
use corona_mapreduce::{Counters, HistoryRecord, JobId, JobState, PerKind};
use corona_model::types::{SessionPriority, SessionStatus};
use corona_process::panics::caught;
use corona_session_driver::StartError;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::submission::Description;
use super::waiting::Waiting;
use super::{JOURNAL, SubmitError, Submitter, blocking};
use crate::clock;
use crate::jobs::job::end_record;
use crate::jobs::owed::Debt;
use crate::jobs::store::{ARRIVING_PAUSE, KnownJob, Retired};
use crate::pages::events;
use corona_job_engine::parent::ParentInput;
use corona_job_engine::{JobInput, JobProgress};

/// The pause before a job that could not begin is tried again.
const AGAIN_PAUSE: Duration = Duration::from_secs(2);

/// What became of a job that had a place.
enum Begun {
    Yes,
    /// It may begin later.
    Later(SubmitError),
    /// It never will.
    Never(SubmitError),
}

impl Begun {
    fn not(error: SubmitError) -> Begun {
        match error {
            SubmitError::Refused(_)
            | SubmitError::Id(_)
            | SubmitError::Lost
            | SubmitError::Broken
            | SubmitError::NoJobTrackers
            | SubmitError::Session(StartError::Refused(_) | StartError::Failed(_)) => {
                Begun::Never(error)
            }
            // A file of the job is gone.
            SubmitError::Keep { error: ref gone } if gone.kind() == io::ErrorKind::NotFound => {
                Begun::Never(error)
            }
            SubmitError::Files(_)
            | SubmitError::Keep { .. }
            | SubmitError::Log(_)
            | SubmitError::Session(_)
            | SubmitError::NoReply(_)
            | SubmitError::UnknownSlots(_)
            | SubmitError::Killed
            | SubmitError::Ask(_) => Begun::Later(error),
        }
    }
}

impl Submitter {
    /// Takes a job that waits: its files are here, and it is kept. Its session begins when it has a place.
    pub(crate) async fn line_up(
        &self,
        description: Description,
        total: PerKind<u32>,
    ) -> Result<KnownJob, SubmitError> {
        let (id, user) = (description.id.clone(), description.user.clone());
        let priority = description.priority;
        let job = Waiting::new(description, clock::now(), priority, total);
        let known = self.write_waiting(job).await?;
        tracing::info!(job = %id, %user, "a job {}", self.jobs.store.places().reason());
        Ok(known)
    }

    /// Keeps a job that waits before anybody knows of it.
    async fn write_waiting(&self, job: Waiting) -> Result<KnownJob, SubmitError> {
        let (directory, sync) =
            (self.jobs.dirs.data_dir(job.description.id.as_str()), self.settings.journal_sync);
        let written = job.clone();
        blocking(move || written.write(&directory, sync)).await??;
        let known = KnownJob::Waiting(Arc::new(job.clone()), self.jobs.store.places().clone());
        self.jobs.store.wait(job);
        Ok(known)
    }

    /// Gives a job another priority if it waits, and returns whether it does. One that is about to begin is
    /// waited for.
    pub(crate) async fn set_priority_of_waiting(
        &self,
        id: &JobId,
        priority: SessionPriority,
    ) -> Result<bool, SubmitError> {
        while matches!(self.jobs.store.get(id), Some(KnownJob::Waiting(..))) {
            let turn = self.jobs.store.waiting_files.lock().await;
            if let Some(job) = self.jobs.store.set_priority(id, priority) {
                let (directory, sync) =
                    (self.jobs.dirs.data_dir(id.as_str()), self.settings.journal_sync);
                blocking(move || job.write(&directory, sync)).await??;
                return Ok(true);
            }
            drop(turn);
            sleep(ARRIVING_PAUSE).await;
        }
        Ok(false)
    }

    /// Lets jobs that wait begin when there are places, and ends those that are killed meanwhile. When it stops,
    /// so do they: the next start goes on with them.
    pub(crate) async fn serve_waiting(self: Arc<Self>) {
        let mut working = JoinSet::new();
        loop {
            while let Some(job) = self.jobs.store.next_to_end() {
                let shared = self.clone();
                working.spawn(async move {
                    shared.end_waiting(&job, JobState::Killed, "killed before it began").await;
                });
            }
            while let Some(job) = self.jobs.store.next_to_begin() {
                working.spawn(self.clone().begin_waiting(job));
            }
            tokio::select! {
                () = self.jobs.store.changed() => {}
                Some(_) = working.join_next() => {}
            }
        }
    }

    async fn begin_waiting(self: Arc<Self>, job: Arc<Waiting>) {
        self.conclude(&job, self.try_to_begin(&job)).await;
    }

    /// Lets a job begin, and decides what happens to it if it could not.
    async fn conclude(&self, job: &Waiting, begin: impl Future<Output = Result<(), SubmitError>>) {
        let id = &job.description.id;
        let begun = match without_panic(id, begin).await {
            Ok(()) => Begun::Yes,
            // It has begun, and its own handling counts.
            Err(SubmitError::Broken) if !self.waits(id) => Begun::Yes,
            Err(error) => Begun::not(error),
        };
        match begun {
            Begun::Yes => tracing::info!(job = %id, "a job that has waited begins"),
            Begun::Later(SubmitError::Killed) => {
                self.jobs.store.wait_again(id, "it was killed", Duration::ZERO);
            }
            Begun::Later(error) => {
                tracing::warn!(job = %id, %error, "a job that has waited cannot begin; it is tried again");
                self.jobs.store.wait_again(id, &error.to_string(), AGAIN_PAUSE);
                sleep(AGAIN_PAUSE).await;
                self.jobs.store.look_again();
            }
            Begun::Never(error) => {
                tracing::error!(job = %id, %error, "a job that has waited cannot begin; it fails");
                self.end_waiting(job, JobState::Failed, &error.to_string()).await;
            }
        }
    }

    fn waits(&self, id: &JobId) -> bool {
        matches!(self.jobs.store.get(id), Some(KnownJob::Waiting(..)))
    }

    /// As for a job that begins when it is submitted, its session is noted until its journal is safe.
    async fn try_to_begin(&self, job: &Waiting) -> Result<(), SubmitError> {
        let id = &job.description.id;
        let handle: Arc<str> = id.session().ok_or_else(|| SubmitError::Id(id.clone()))?.into();
        let settled = timeout(self.patience(), self.jobs.owed.settled(&handle));
        tokio::select! {
            settled = settled => settled.map_err(|_| self.no_reply())?,
            () = self.jobs.store.killed(id) => return Err(SubmitError::Killed),
        }
        let user = job.description.user.clone();
        let (status, feedback) = (SessionStatus::Killed, Vec::new());
        let debt = Debt { handle: handle.clone(), user, status, feedback };
        self.jobs.owed.note(debt.clone()).await?;
        let directory = self.jobs.dirs.data_dir(id.as_str());
        match without_panic(id, self.begin_kept(job)).await {
            Ok(()) => {
                self.forget_waiting(&directory).await;
                self.jobs.owed.settle(&handle).await;
                self.restore_priority(job).await;
                Ok(())
            }
            // It has begun, and its own handling counts.
            Err(_) if !self.waits(id) => {
                self.forget_waiting(&directory).await;
                Ok(())
            }
            Err(error) => {
                // A journal without its session must not be found.
                let journal = directory.join(JOURNAL);
                let removed = blocking(move || DiskStorage::remove_all(&journal)).await;
                if let Ok(Err(error)) = removed {
                    tracing::warn!(job = %id, %error, "cannot remove the journal of a job that did not begin");
                }
                self.jobs.owed.pay(debt);
                Err(error)
            }
        }
    }

    /// The job has begun: a restart finds its journal, which counts.
    async fn forget_waiting(&self, directory: &Path) {
        let _turn = self.jobs.store.waiting_files.lock().await;
        let directory = directory.to_owned();
        let forgotten = blocking(move || Waiting::forget(&directory)).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "cannot remove what was kept of a job that waited; its journal counts");
        }
    }

    async fn begin_kept(&self, job: &Waiting) -> Result<(), SubmitError> {
        let submission = self.read_submission(&job.description).await?;
        let submitted = Some(job.progress.submitted);
        match self.to_node(&submission) {
            Some(settings) => self.hand_over(submission, settings, submitted).await.map(drop),
            None => self.run_here(submission, submitted).await.map(drop),
        }
    }

    /// The priority that it was given while it waited.
    async fn restore_priority(&self, job: &Waiting) {
        let priority = job.progress.priority;
        if priority == job.description.priority {
            return;
        }
        let set = match self.jobs.store.get(&job.description.id) {
            Some(KnownJob::Job(running)) => {
                running.apply(JobInput::SetPriority { priority }).await.map(drop)
            }
            Some(KnownJob::Remote(remote)) => {
                remote.apply(ParentInput::SetPriority { priority }).await.map(drop)
            }
            _ => Ok(()),
        };
        if let Err(error) = set {
            tracing::warn!(job = %job.description.id, %error, "a job has lost the priority that it was given while it waited");
        }
    }

    /// Ends a job that has not begun. After a restart it is ended again, until nothing is left of it.
    pub(crate) async fn end_waiting(&self, job: &Waiting, state: JobState, why: &str) {
        let description = job.description.clone();
        let progress = Arc::new(JobProgress {
            state,
            // Spec: mapreduce/09 §H.
            work: PerKind { map: 1.0, reduce: 1.0 },
            cleanup: 1.0,
            finished_at: Some(clock::now()),
            ..JobProgress::clone(&job.progress)
        });
        let retired = || Retired {
            description: description.clone(),
            progress: progress.clone(),
            counters: Counters::default(),
            reason: Some(format!("{why}; it has no history").into()),
        };
        let ended = caught(self.jobs.keep(retired(), "")).await;
        self.jobs.meter.job_ended(state);
        // Whatever happens, the job ends for those who ask, and its place is free.
        self.jobs.store.lost(retired());
        let ended = match ended {
            Ok(()) => caught(self.clean_up(&description, &progress)).await,
            panicked => panicked,
        };
        if let Err(panic) = ended {
            let job = &description.id;
            tracing::error!(%job, %panic, "the end of a job that has waited panicked; the next start ends it again");
        }
    }

    async fn clean_up(&self, description: &Description, progress: &JobProgress) {
        let id = description.id.clone();
        let record: HistoryRecord = end_record(progress);
        if let Some(event) = events::of_record(&id, &record) {
            self.sources.events.add(clock::now(), event, 0);
        }
        self.remove_waiting(description, progress.state).await;
    }

    /// The last of what follows the end of a job that has not begun.
    pub(crate) async fn remove_waiting(&self, description: &Description, state: JobState) {
        self.jobs.close(description, state, None).await;
        self.jobs.remove_data(description, None).await;
    }
}

/// A panic of this program on the way to the begin of a job is an error as others are.
async fn without_panic(
    job: &JobId,
    work: impl Future<Output = Result<(), SubmitError>>,
) -> Result<(), SubmitError> {
    caught(work).await.unwrap_or_else(|panic| {
        tracing::error!(%job, %panic, "the begin of a job that has waited panicked");
        Err(SubmitError::Broken)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corona_hadoop::writables as wire;
    use corona_net::testing::until;

    use super::*;
    use crate::jobs::store::NoPlace;
    use crate::rpc::answers;
    use crate::service::tests::service_with;
    use crate::submit::submission::tests::{split, split_file, write_conf};
    use crate::submit::waiting::{FILE, FORM};

    const ONE_PLACE: [(&str, &str); 3] = [
        ("corona.jt.max.jobs", "1"),
        ("corona.jt.max.waiting.jobs", "3"),
        ("corona.jt.submission.wait.ms", "200"),
    ];

    async fn service(root: &Path) -> Arc<Submitter> {
        service_with(root, &ONE_PLACE).await.submitter
    }

    fn id(number: u32) -> JobId {
        JobId::new(&format!("202611210043.{number}"), 1).unwrap()
    }

    /// A job of alice takes the only place, as one that is being submitted.
    fn take_the_place(shared: &Submitter) {
        shared.jobs.store.give(id(99), "alice".into());
        assert!(shared.jobs.store.arrive(&id(99), "alice").is_ok());
    }

    /// Submits a job of two maps, whose files lie where its client has left them.
    async fn submit(
        shared: &Submitter,
        number: u32,
        priority: &str,
    ) -> Result<wire::JobStatus, String> {
        let splits = split_file(vec![split(1, &["a"]), split(2, &[])]);
        submit_with(shared, number, priority, &splits).await
    }

    async fn submit_with(
        shared: &Submitter,
        number: u32,
        priority: &str,
        splits: &[u8],
    ) -> Result<wire::JobStatus, String> {
        let job = id(number);
        shared.jobs.store.give(job.clone(), "alice".into());
        let (_, directory) =
            shared.jobs.dirs.files.resolve(&shared.jobs.dirs.job_dir(job.as_str())).unwrap();
        let directory = Path::new(directory.path());
        fs::create_dir_all(directory).unwrap();
        let properties = [("mapred.job.priority", priority), ("mapred.reduce.tasks", "0")];
        write_conf(&directory.join("job.xml"), &properties);
        fs::write(directory.join("job.split"), splits).unwrap();
        let submitted = shared.submit(&answers::job_id(&job).unwrap(), "alice").await;
        submitted.map_err(|fault| fault.to_string())
    }

    fn state(shared: &Submitter, number: u32) -> Option<(JobState, String)> {
        let status = shared.jobs.store.get(&id(number))?.status()?;
        Some((answers::state_of(status.run_state)?, status.scheduling_info))
    }

    #[tokio::test]
    async fn a_job_whose_begin_panics_fails_and_the_next_one_gets_its_place() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await;
        take_the_place(&shared);
        for number in [1, 2] {
            submit(&shared, number, "NORMAL").await.unwrap();
        }
        shared.jobs.store.give_up(&id(99));
        let job = shared.jobs.store.next_to_begin().unwrap();
        shared.conclude(&job, async { panic!("a test") }).await;
        let (failed, reason) = state(&shared, 1).unwrap();
        assert_eq!(failed, JobState::Failed);
        assert!(reason.contains("a part of the job tracker has failed"), "{reason}");
        let directory = shared.jobs.dirs.data_dir(id(1).as_str());
        until("the end of its directory", || !directory.exists()).await;
        assert_eq!(shared.jobs.store.next_to_begin().unwrap().description.id, id(2));
        // One that had begun before the panic goes on.
        shared.conclude(&job, async { panic!("a test") }).await;
        assert_eq!(shared.jobs.store.running(), 1);
    }

    #[tokio::test]
    async fn a_job_without_a_place_is_accepted_and_waits_also_after_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let reason = "waits: 1 jobs run, the limit of 1 comes from corona.jt.max.jobs";
        let submitted = {
            let shared = service(root.path()).await;
            take_the_place(&shared);
            let mut submitted = Vec::new();
            for number in [1, 2, 3] {
                let status = submit(&shared, number, "NORMAL").await.unwrap();
                assert_eq!(answers::state_of(status.run_state), Some(JobState::Prep));
                assert_eq!(status.scheduling_info, reason);
                assert!(!shared.jobs.dirs.data_dir(id(number).as_str()).join(JOURNAL).exists());
                submitted.push(status.start_time_ms);
            }
            let again = submit(&shared, 2, "NORMAL").await.unwrap();
            assert_eq!(again.start_time_ms, submitted[1], "a client may ask twice");
            assert!(!shared.jobs.owed.has(id(1).session().unwrap()), "nothing is owed for it");
            let refused = submit(&shared, 4, "NORMAL").await.unwrap_err();
            assert!(refused.contains("corona.jt.max.waiting.jobs"), "{refused}");
            let high = SessionPriority::High;
            assert!(shared.set_priority_of_waiting(&id(3), high).await.unwrap());
            submitted
        };
        let started = service_with(root.path(), &ONE_PLACE).await;
        assert_eq!(started.resumed(), 3);
        let shared = started.submitter;
        assert_eq!(shared.jobs.store.load().waiting, 3);
        let status = shared.jobs.store.get(&id(3)).unwrap().status().unwrap();
        assert_eq!(
            (status.start_time_ms, status.priority),
            (submitted[2], wire::JobPriority::High)
        );
        let mut order = Vec::new();
        while let Some(job) = shared.jobs.store.next_to_begin() {
            order.push(job.description.id.clone());
            let again = shared.jobs.store.arrive(&job.description.id, "alice").is_ok();
            assert!(again, "it is known");
            let other = shared.jobs.store.arrive(&job.description.id, "bob");
            assert!(matches!(other, Err(NoPlace::NotOwner { .. })));
            shared.end_waiting(&job, JobState::Failed, "a test").await;
        }
        assert_eq!(order, [id(3), id(1), id(2)]);
    }

    /// The cluster manager of these tests does not answer.
    #[tokio::test]
    async fn a_job_that_cannot_begin_says_why_and_can_be_killed() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await;
        take_the_place(&shared);
        submit(&shared, 1, "NORMAL").await.unwrap();
        let serving = tokio::spawn(shared.clone().serve_waiting());
        shared.jobs.store.give_up(&id(99));
        until("a reason", || {
            let (state, note) = state(&shared, 1).unwrap();
            assert_eq!(state, JobState::Prep);
            note.contains("the cluster manager")
        })
        .await;
        assert!(!shared.jobs.dirs.data_dir(id(1).as_str()).join(JOURNAL).exists());
        shared.jobs.store.kill_waiting(&id(1)).await;
        assert_eq!(state(&shared, 1).unwrap().0, JobState::Killed);
        until("a free place", || shared.jobs.store.running() == 0).await;
        serving.abort();
    }

    #[tokio::test]
    async fn a_job_whose_files_are_damaged_while_it_waits_fails_with_the_reason() {
        for (bytes, reason) in [(Some("no splits"), "the split file cannot be used"), (None, "")] {
            let root = tempfile::tempdir().unwrap();
            let shared = service(root.path()).await;
            take_the_place(&shared);
            submit(&shared, 1, "NORMAL").await.unwrap();
            let splits = shared.jobs.dirs.data_dir(id(1).as_str()).join("job.split");
            match bytes {
                Some(bytes) => fs::write(splits, bytes).unwrap(),
                None => fs::remove_file(splits).unwrap(),
            }
            let serving = tokio::spawn(shared.clone().serve_waiting());
            shared.jobs.store.give_up(&id(99));
            until("the end of the job", || state(&shared, 1).unwrap().0 == JobState::Failed).await;
            let (_, note) = state(&shared, 1).unwrap();
            assert!(note.contains(reason), "{note}");
            until("a free place", || shared.jobs.store.running() == 0).await;
            serving.abort();
        }
    }

    /// The file that says that a job waits may be there although it has begun: then its journal counts.
    #[tokio::test]
    async fn a_journal_that_cannot_be_read_is_not_taken_for_that_of_a_job_that_waits() {
        let root = tempfile::tempdir().unwrap();
        let directory = {
            let shared = service(root.path()).await;
            take_the_place(&shared);
            submit(&shared, 1, "NORMAL").await.unwrap();
            shared.jobs.dirs.data_dir(id(1).as_str())
        };
        let journal = directory.join(JOURNAL);
        fs::create_dir(&journal).unwrap();
        let segment = journal.join("00000000000000000001.journal");
        fs::write(&segment, b"damaged, and no journal at all").unwrap();
        let shared = service(root.path()).await;
        let (state, reason) = state(&shared, 1).unwrap();
        assert_eq!(state, JobState::Failed, "{reason}");
        assert!(segment.exists(), "it is evidence");
    }

    /// Otherwise a restart would list it as a job whose journal is lost.
    #[tokio::test]
    async fn a_refused_job_has_no_directory_any_more_when_its_note_goes() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await;
        let owed = shared.jobs.owed.clone();
        let mut seen = false;
        // On a busy machine the directory comes and goes between two looks.
        for number in 1..=200 {
            if seen {
                break;
            }
            let job = id(number);
            let directory = shared.jobs.dirs.data_dir(job.as_str());
            let submitting = submit_with(&shared, number, "NORMAL", b"no splits");
            let mut submitting = std::pin::pin!(submitting);
            let refused = loop {
                let is_noted = owed.has(job.session().unwrap());
                let exists = directory.exists();
                assert!(is_noted || !exists, "a directory without a note");
                seen |= exists;
                tokio::select! {
                    biased;
                    refused = &mut submitting => break refused.unwrap_err(),
                    () = tokio::task::yield_now() => {}
                }
            };
            assert!(refused.contains("the split file cannot be used"), "{refused}");
            assert!(!directory.exists());
        }
        assert!(seen);
    }

    #[tokio::test]
    async fn an_unknown_form_of_a_waiting_job_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        {
            let shared = service(root.path()).await;
            take_the_place(&shared);
            submit(&shared, 1, "NORMAL").await.unwrap();
            fs::write(shared.jobs.dirs.data_dir(id(1).as_str()).join(FILE), [FORM + 1, 0]).unwrap();
        }
        let shared = service(root.path()).await;
        let (state, note) = state(&shared, 1).unwrap();
        assert_eq!(state, JobState::Failed);
        assert!(note.contains("waiting has form 2, which this version cannot read"), "{note}");
        assert!(shared.jobs.dirs.data_dir(id(1).as_str()).exists());
    }
}
