//! Actions, calls and reports in sequence, and the effects of each.

mod recorded;

use std::time::Instant;

use super::*;
use crate::attempt::tests::{at, kind};
use corona_hadoop::writables::{InetAddress, JvmContext, Phase, SessionTrackers, TaskStatus};

/// A table, and the time.
struct Bench {
    table: AttemptTable,
    begun: Instant,
    second: u64,
}

fn session(handle: &str) -> SessionInfo {
    let job_tracker = InetAddress { host: "jt".to_owned(), port: 7 };
    let trackers = SessionTrackers { job_tracker, secondary: None };
    SessionInfo { handle: Some(handle.to_owned()), trackers }
}

fn by(handle: &str, action: Action) -> TaskTrackerAction {
    TaskTrackerAction { session: Some(session(handle)), action }
}

fn jvm(number: i32, job: &JobId) -> JvmId {
    JvmId { number, job: job.clone(), is_map: true }
}

/// The start of the process with this number, whose tasks keep these files.
fn started(number: i32, job: &JobId, keep: Keep, has_more: bool) -> Started {
    let job_file = "/local/job.xml".to_owned();
    Started { jvm: jvm(number, job), job_file, keep, has_more }
}

fn run(task: &Task, number: u64) -> AttemptRun {
    AttemptRun { attempt: task.attempt.clone(), number }
}

/// A map of the job with this number.
fn map_of(job: i32) -> Task {
    let mut task = kind("map");
    task.attempt.task.job.number = job;
    task
}

impl Bench {
    fn new() -> Bench {
        Bench::limited(TableLimits::default())
    }

    fn limited(limits: TableLimits) -> Bench {
        Bench { table: AttemptTable::new(limits), begun: Instant::now(), second: 0 }
    }

    fn now(&mut self) -> Now {
        self.second += 1;
        at(self.begun, self.second)
    }

    fn act(&mut self, action: Action) -> Result<Vec<Order>, Ignored> {
        let now = self.now();
        self.table.submit(by("s", action), now)
    }

    fn launch(&mut self, task: &Task) -> Result<Vec<Order>, Ignored> {
        self.act(Action::Launch(Box::new(task.clone())))
    }

    fn start(&mut self, run: &AttemptRun, number: i32) -> bool {
        self.start_as(run, started(number, run.attempt.job(), Keep::Nothing, false))
    }

    fn start_as(&mut self, run: &AttemptRun, started: Started) -> bool {
        let now = self.now();
        self.table.start(run, started, now)
    }

    fn launch_and_start(&mut self, task: &Task, number: u64) -> AttemptRun {
        let run = run(task, number);
        assert!(self.launch(task).unwrap().contains(&Order::Start(run.clone())));
        assert!(self.start(&run, i32::try_from(number).unwrap()));
        run
    }

    fn done(&mut self, task: &Task) -> Vec<Order> {
        let now = self.now();
        self.table.done(&task.attempt, now)
    }

    fn exit(&mut self, run: &AttemptRun) -> Vec<Order> {
        let now = self.now();
        self.table.exited(run, "it broke", now)
    }

    fn reports(&mut self, task: &Task) -> Vec<TaskStatus> {
        let now = self.now();
        self.table.reports(task.attempt.job(), |_| Some(9), now)
    }

    fn asked(&mut self, number: i32, task: &Task) -> (bool, Option<Task>) {
        let context = JvmContext { jvm: jvm(number, task.attempt.job()), pid: "1".to_owned() };
        let answer = self.table.get_task(&context);
        (answer.should_die, answer.task)
    }
}

fn states(reports: &[TaskStatus]) -> Vec<String> {
    reports.iter().map(|report| report.state.to_string()).collect()
}

#[test]
fn a_map_from_launch_to_the_end_of_its_job() {
    let mut bench = Bench::new();
    let task = kind("map");
    let (id, job) = (task.attempt.clone(), task.attempt.job().clone());
    let run = run(&task, 1);
    let orders = bench.launch(&task);
    let reporter = Order::StartReporter(job.clone(), session("s"));
    assert_eq!(orders, Ok(vec![reporter, Order::Start(run.clone())]));
    assert_eq!(bench.launch(&task), Err(Ignored::Launched));
    assert_eq!(bench.asked(1, &task), (true, None), "it has not been started");
    assert!(bench.start(&run, 1));
    assert!(!bench.start(&run, 1), "twice");
    assert_eq!(bench.asked(2, &task), (true, None), "another process");
    let local = Task { job_file: "/local/job.xml".to_owned(), ..task.clone() };
    assert_eq!(bench.asked(1, &task), (false, Some(local)));
    assert!(bench.table.ping(&id));
    let status = bench.table.attempts(&job).next().unwrap().status().clone();
    let pending = TaskStatus { state: TaskState::CommitPending, progress: 0.9, ..status };
    let now = bench.now();
    let orders = bench.table.commit_pending(&id, pending, now);
    assert_eq!(orders, [Order::ReportSoon(job.clone())]);
    assert_eq!(states(&bench.reports(&task)), ["COMMIT_PENDING"]);
    assert!(!bench.table.can_commit(&id));
    assert_eq!(bench.act(Action::Commit(id.clone())), Ok(vec![]));
    assert!(bench.table.can_commit(&id));
    let released = [Order::Release(run.clone()), Order::ReportSoon(job.clone())];
    assert_eq!(bench.done(&task), released);
    assert_eq!(bench.done(&task), [], "twice");
    assert_eq!(bench.asked(1, &task), (true, None), "one task to a process");
    assert!(!bench.table.can_commit(&id));
    assert_eq!(bench.exit(&run), [Order::DeleteWork(id.clone())]);
    let sent = bench.reports(&task);
    assert_eq!((states(&sent), sent[0].output_size), (vec!["SUCCEEDED".to_owned()], 9));
    bench.table.reported(&job, &sent);
    assert!(!bench.table.has_reports(&job));
    assert!(bench.table.ping(&id), "its output is served");
    let lost = [Order::End(run.clone()), Order::ReportSoon(job.clone())];
    assert_eq!(bench.table.lose_output(&id, "disk"), lost);
    let sent = bench.reports(&task);
    assert_eq!(states(&sent), ["FAILED"]);
    bench.table.reported(&job, &sent);
    assert!(!bench.table.ping(&id));
    assert_eq!(bench.table.failures(), 0);
    let orders = bench.act(Action::KillJob(job.clone()));
    assert_eq!(orders, Ok(vec![Order::StopReporter(job.clone()), Order::DeleteJob(job.clone())]));
    assert_eq!(bench.act(Action::KillJob(job)), Err(Ignored::Unknown));
}

#[test]
fn a_process_that_ends_early_fails_its_attempt_which_comes_back_to_be_cleaned_up_after() {
    let mut bench = Bench::new();
    let task = kind("map");
    let (id, job) = (task.attempt.clone(), task.attempt.job().clone());
    let first = bench.launch_and_start(&task, 1);
    let orders = bench.exit(&first);
    let ended = [Order::End(first.clone()), Order::ReportSoon(job.clone())];
    assert_eq!(orders, [&ended[..], &[Order::DeleteAttempt(id.clone())]].concat());
    assert_eq!(bench.table.failures(), 1);
    let sent = bench.reports(&task);
    assert_eq!(states(&sent), ["FAILED_UNCLEAN"]);
    assert_eq!(sent[0].diagnostics, "it broke");
    bench.table.not_reported(&sent);
    let sent = bench.reports(&task);
    assert_eq!(sent[0].diagnostics, "it broke", "it is said again");
    // The clean-up may be launched before the answer to the heartbeat is here.
    let cleanup = kind("cleanup of failed");
    let second = bench.launch_and_start(&cleanup, 2);
    bench.table.reported(&job, &sent);
    assert_eq!(states(&bench.reports(&task)), ["FAILED_UNCLEAN"], "it cleans up");
    assert_eq!(bench.exit(&first), [], "the old process changes nothing");
    let orders = bench.done(&cleanup);
    assert_eq!(orders, [Order::Release(second), Order::ReportSoon(job.clone())]);
    let sent = bench.reports(&task);
    assert_eq!(states(&sent), ["FAILED"]);
    bench.table.reported(&job, &sent);
    assert!(!bench.table.ping(&id));
}

#[test]
fn cleaning_up_after_an_attempt_ends_what_still_runs_of_it() {
    let mut bench = Bench::new();
    let first = bench.launch_and_start(&kind("map"), 1);
    let cleanup = kind("cleanup of killed");
    let orders = bench.launch(&cleanup);
    assert_eq!(orders, Ok(vec![Order::End(first), Order::Start(run(&cleanup, 2))]));
    assert_eq!(bench.launch(&cleanup), Err(Ignored::Launched));
    assert_eq!(bench.asked(1, &cleanup), (true, None));
    assert_eq!(bench.done(&cleanup), [], "it has not been started: the old process speaks");
    assert_eq!(states(&bench.reports(&cleanup)), ["KILLED_UNCLEAN"]);
}

#[test]
fn killing() {
    let mut bench = Bench::new();
    let task = kind("map");
    let (id, job) = (task.attempt.clone(), task.attempt.job().clone());
    let kill = || Action::KillTask(id.clone());
    assert_eq!(bench.act(kill()), Err(Ignored::Unknown));
    bench.launch(&task).unwrap();
    let stopped = vec![Order::End(run(&task, 1)), Order::ReportSoon(job.clone())];
    assert_eq!(bench.act(kill()), Ok(stopped));
    assert!(!bench.start(&run(&task, 1), 1), "it was killed while it waited");
    assert_eq!(states(&bench.reports(&task)), ["KILLED"]);

    let second = bench.launch_and_start(&task, 2);
    let ended = vec![Order::End(second.clone()), Order::ReportSoon(job.clone())];
    assert_eq!(bench.act(Action::Commit(id.clone())), Ok(vec![]));
    assert_eq!(bench.act(kill()), Ok(ended));
    assert_eq!(bench.act(kill()), Ok(vec![]));
    assert!(!bench.table.can_commit(&id), "another attempt may commit now");
    assert_eq!(bench.exit(&second), [Order::DeleteAttempt(id.clone())]);
    assert_eq!(states(&bench.reports(&task)), ["KILLED_UNCLEAN"]);
    assert_eq!(bench.table.failures(), 0);

    let third = bench.launch_and_start(&task, 3);
    let now = bench.now();
    let orders = bench.table.kill(&second, Cause::Failure, "too late", now);
    assert_eq!(orders, [], "that run has ended");
    let orders = bench.table.kill(&third, Cause::Failure, "too much memory", now);
    assert_eq!(orders, [Order::End(third), Order::ReportSoon(job.clone())]);
    let sent = bench.reports(&task);
    assert_eq!(
        (states(&sent).join(""), sent[0].diagnostics.as_str()),
        ("FAILED_UNCLEAN".to_owned(), "too much memory")
    );

    bench.launch_and_start(&task, 4);
    bench.done(&task);
    assert_eq!(bench.act(kill()), Ok(vec![Order::DeleteAttempt(id.clone())]));
    assert!(!bench.table.ping(&id), "its output is gone");
    assert_eq!(bench.exit(&run(&task, 4)), [Order::DeleteAttempt(id.clone())]);
}

#[test]
fn files_of_attempts_that_have_failed_stay_where_their_job_wants_that() {
    // A report of the process, and the results for its attempt and files.
    type Say = fn(&mut Bench, &Task);
    let nothing: Say = |_, _| {};
    let done: Say = |bench, task| drop(bench.done(task));
    let fails: Say = |bench, task| {
        let known = bench.table.attempts(task.attempt.job()).next().unwrap();
        let status = TaskStatus { phase: Phase::Cleanup, ..known.status().clone() };
        let now = bench.now();
        bench.table.status_update(&task.attempt, status, now);
    };
    let killed: Say = |bench, task| {
        bench.act(Action::KillTask(task.attempt.clone())).unwrap();
    };
    let (all, work) = (Order::DeleteAttempt as fn(_) -> _, Order::DeleteWork as fn(_) -> _);
    let cases = [
        ("map", fails, "FAILED", Some(all), None),
        ("map", nothing, "FAILED_UNCLEAN", Some(all), Some(all)),
        ("cleanup of failed", nothing, "FAILED", Some(all), None),
        ("map", killed, "KILLED_UNCLEAN", Some(all), Some(all)),
        ("map", done, "SUCCEEDED", Some(work), Some(work)),
        ("reduce", done, "SUCCEEDED", Some(work), Some(all)),
    ];
    for (name, say, state, else_gone, gone) in cases {
        for (keep, gone) in [(Keep::Nothing, else_gone), (Keep::Failed, gone), (Keep::All, None)] {
            let mut bench = Bench::new();
            let task = kind(name);
            let (id, run) = (task.attempt.clone(), run(&task, 1));
            bench.launch(&task).unwrap();
            assert!(bench.start_as(&run, started(1, id.job(), keep, false)));
            say(&mut bench, &task);
            let deletes = |orders: Vec<Order>| -> Vec<Order> {
                let is_other =
                    |order: &Order| matches!(order, Order::End(_) | Order::ReportSoon(_));
                orders.into_iter().filter(|order| !is_other(order)).collect()
            };
            let expected: Vec<Order> = gone.map(|gone| gone(id.clone())).into_iter().collect();
            assert_eq!(deletes(bench.exit(&run)), expected, "{name} {state} {keep:?}");
            assert_eq!(states(&bench.reports(&task)), [state], "{name}");
            // Files that are served until the end of the job do not stay with its files.
            let orders = bench.act(Action::KillJob(id.job().clone())).unwrap();
            let served = keep == Keep::Failed && state == "SUCCEEDED";
            assert_eq!(orders.contains(&Order::DeleteAttempt(id)), served, "{name} {state}");
        }
    }
}

#[test]
fn a_process_takes_one_task_after_another() {
    let mut bench = Bench::new();
    let (first, mut second) = (kind("map"), kind("map"));
    second.attempt.task.number += 1;
    let (one, two) = (run(&first, 1), run(&second, 2));
    bench.launch(&first).unwrap();
    bench.launch(&second).unwrap();
    let started = |has_more| started(7, first.attempt.job(), Keep::Nothing, has_more);
    assert!(bench.start_as(&one, started(true)));
    let now = bench.now();
    assert!(!bench.table.is_given(&one));
    assert_eq!(bench.asked(7, &first).1.unwrap().attempt, first.attempt);
    assert!(bench.table.is_given(&one));
    bench.done(&first);
    assert_eq!(bench.asked(7, &first), (false, None), "it waits for the next task");
    assert_eq!(bench.table.released(&one), [Order::DeleteWork(first.attempt.clone())]);
    assert_eq!(bench.asked(7, &first), (false, None));
    // The next one is its last.
    assert!(bench.start_as(&two, started(false)));
    assert_eq!(bench.asked(7, &first).1.unwrap().attempt, second.attempt);
    bench.done(&second);
    assert_eq!(bench.asked(7, &first), (true, None));
    assert_eq!(bench.exit(&two), [Order::DeleteWork(second.attempt.clone())]);
    bench.table.jvm_gone(&jvm(7, first.attempt.job()));
    assert_eq!(states(&bench.table.reports(first.attempt.job(), |_| None, now)), ["SUCCEEDED"; 2]);
    let orders = bench.act(Action::KillJob(first.attempt.job().clone())).unwrap();
    assert!(!orders.iter().any(|order| matches!(order, Order::End(_))), "{orders:?}");
}

#[test]
fn a_process_between_two_tasks_ends_with_its_job() {
    let mut bench = Bench::new();
    let task = kind("map");
    let run = run(&task, 1);
    bench.launch(&task).unwrap();
    assert!(bench.start_as(&run, started(7, task.attempt.job(), Keep::Job, true)));
    bench.done(&task);
    bench.table.released(&run);
    let orders = bench.act(Action::KillJob(task.attempt.job().clone())).unwrap();
    assert!(orders.contains(&Order::End(run)), "{orders:?}");
    assert_eq!(bench.asked(7, &task), (true, None));
}

#[test]
fn a_task_that_is_not_taken_goes_elsewhere() {
    let mut bench = Bench::new();
    let task = kind("map");
    let run = run(&task, 1);
    bench.launch(&task).unwrap();
    let started = |number| started(number, task.attempt.job(), Keep::Nothing, true);
    assert!(!bench.table.start_elsewhere(&run, started(8)), "it was not started");
    assert!(bench.start_as(&run, started(7)));
    assert!(bench.table.start_elsewhere(&run, started(8)));
    assert_eq!(bench.asked(7, &task), (false, None));
    assert_eq!(bench.asked(8, &task).1.unwrap().attempt, task.attempt);
    assert!(!bench.table.start_elsewhere(&run, started(9)), "it has been taken");
    bench.act(Action::KillTask(task.attempt.clone())).unwrap();
    assert_eq!(bench.asked(8, &task), (true, None), "no further task after one that was killed");
}

#[test]
fn use_of_attempts_is_added_up_and_not_released() {
    let mut bench = Bench::new();
    let task = kind("map");
    let run = bench.launch_and_start(&task, 1);
    let usage = |cpu_ms, memory_bytes| TaskUsage {
        cpu_ms,
        memory_bytes,
        peak_memory_bytes: memory_bytes,
        ..TaskUsage::default()
    };
    for (cpu_ms, memory_bytes, expected) in
        [(10, 5, (10, 5, 5)), (7, 3, (10, 3, 5)), (12, 0, (12, 0, 5))]
    {
        bench.table.used(&run, usage(cpu_ms, memory_bytes));
        let TaskUsage { cpu_ms, memory_bytes, peak_memory_bytes, .. } =
            bench.table.usage(&task.attempt);
        assert_eq!((cpu_ms, memory_bytes, peak_memory_bytes), expected);
    }
    bench.act(Action::KillJob(task.attempt.job().clone())).unwrap();
    bench.table.used(&run, usage(99, 0));
    assert_eq!(bench.table.usage_of_all(), usage(12, 0));
    assert_eq!(bench.table.usage(&task.attempt), TaskUsage::default());
}

#[test]
fn tasks_are_short_when_enough_of_their_kind_were_and_none_was_long() {
    let limits = TableLimits { short_cpu_ms: 100, ..TableLimits::default() };
    // The processor times of the maps of a job, and whether the next one is expected to be short.
    for (times, expected) in [
        (&[][..], false),
        (&[10, 10], false),
        (&[10, 100, 0], true),
        (&[10, 101, 10, 10, 10], false),
        (&[10, 10, 10, 10, 101], false),
    ] {
        let mut bench = Bench::limited(limits);
        let mut task = kind("map");
        for (number, cpu_ms) in (1..).zip(times) {
            task.attempt.task.number += 1;
            let run = bench.launch_and_start(&task, number);
            bench.table.used(&run, TaskUsage { cpu_ms: *cpu_ms, ..TaskUsage::default() });
            bench.table.count_length(&run);
        }
        let mut reduce = task.attempt.clone();
        reduce.task.is_map = false;
        assert_eq!(bench.table.is_short(&task.attempt), expected, "{times:?}");
        assert!(!bench.table.is_short(&reduce), "{times:?}");
        let mut other = task.attempt.clone();
        other.task.job.number += 1;
        assert!(!bench.table.is_short(&other), "{times:?}");
    }
    let mut bench = Bench::limited(TableLimits { short_cpu_ms: 0, ..limits });
    let mut task = kind("map");
    for number in 1..6 {
        task.attempt.task.number += 1;
        let run = bench.launch_and_start(&task, number);
        bench.table.count_length(&run);
    }
    assert!(!bench.table.is_short(&task.attempt), "no task is short with 0");
}

#[test]
fn errors_of_processes_end_their_attempts() {
    type Call = fn(&mut AttemptTable, &TaskAttemptId, &str, Now) -> Vec<Order>;
    let table: [(Call, &str); 3] = [
        (AttemptTable::shuffle_error, "noted. Shuffle Error: why"),
        (AttemptTable::fs_error, "noted. FSError: why"),
        (AttemptTable::fatal_error, "noted. Error: why"),
    ];
    for (call, diagnostics) in table {
        let mut bench = Bench::new();
        let task = kind("reduce");
        let now = bench.now();
        assert_eq!(call(&mut bench.table, &task.attempt, "why", now), [], "it is not known");
        let run = bench.launch_and_start(&task, 1);
        bench.table.report_diagnostic_info(&task.attempt, "noted. ");
        let now = bench.now();
        let orders = call(&mut bench.table, &task.attempt, "why", now);
        assert_eq!(orders, [Order::End(run), Order::ReportSoon(task.attempt.job().clone())]);
        assert_eq!(bench.table.failures(), 1);
        let sent = bench.reports(&task);
        assert_eq!(states(&sent), ["FAILED_UNCLEAN"]);
        assert_eq!(sent[0].diagnostics, diagnostics);
    }
}

#[test]
fn a_session_ends_with_its_jobs_and_no_others() {
    let mut bench = Bench::new();
    let (mine, other) = (map_of(1), map_of(2));
    let started = bench.launch_and_start(&mine, 1);
    let now = bench.now();
    bench.table.submit(by("t", Action::Launch(Box::new(other.clone()))), now).unwrap();
    let mut next = mine.clone();
    next.attempt.task.number += 1;
    bench.launch(&next).unwrap();
    let job = mine.attempt.job().clone();
    let ended = [
        Order::StopReporter(job.clone()),
        Order::End(started),
        Order::End(run(&next, 3)),
        Order::DeleteJob(job.clone()),
    ];
    assert_eq!(bench.table.purge_session("s"), ended);
    assert_eq!(bench.table.purge_session("s"), []);
    let left: Vec<_> =
        bench.table.jobs().map(|(job, session)| (job.number, session.handle.clone())).collect();
    assert_eq!(left, [(2, Some("t".to_owned()))]);
    assert!(!bench.table.ping(&mine.attempt) && bench.table.ping(&other.attempt));
    assert_eq!(bench.reports(&mine), []);
    bench.table.blacklist_session("s");
    assert_eq!(bench.launch(&mine), Err(Ignored::Blacklisted));
}

#[test]
fn unknown_reports_are_ignored_and_kept_ones_bounded() {
    let limits = TableLimits { jobs: 2, attempts: 3, blacklisted: 2, ..TableLimits::default() };
    let mut bench = Bench::limited(limits);
    let now = bench.now();
    let nobody = TaskTrackerAction { session: None, action: Action::Reinit };
    assert_eq!(bench.table.submit(nobody, now), Err(Ignored::NoSession));
    let mut nameless = by("s", Action::Reinit);
    nameless.session.as_mut().unwrap().handle = None;
    assert_eq!(bench.table.submit(nameless, now), Err(Ignored::NoSession));
    let absurd = by(&"s".repeat(MAX_HANDLE_BYTES + 1), Action::Reinit);
    assert_eq!(bench.table.submit(absurd, now), Err(Ignored::NoSession));
    assert_eq!(bench.act(Action::Reinit), Err(Ignored::Reinit));
    assert_eq!(bench.act(Action::Commit(kind("map").attempt)), Err(Ignored::Unknown));
    assert!(bench.launch(&map_of(1)).is_ok() && bench.launch(&map_of(2)).is_ok());
    assert_eq!(bench.launch(&map_of(3)), Err(Ignored::Full));
    let mut next = map_of(2);
    next.attempt.task.number += 1;
    assert!(bench.launch(&next).is_ok());
    next.attempt.task.number += 1;
    assert_eq!(bench.launch(&next), Err(Ignored::Full));
    assert!(bench.act(Action::KillJob(map_of(2).attempt.job().clone())).is_ok());
    assert!(bench.launch(&map_of(3)).is_ok(), "there is room again");
    for handle in ["a", "b", "b", "c"] {
        bench.table.blacklist_session(handle);
    }
    let mut refused = |handle| {
        let answer = bench.table.submit(by(handle, Action::Reinit), now);
        answer == Err(Ignored::Blacklisted)
    };
    assert_eq!(["a", "b", "c"].map(&mut refused), [false, true, true]);
}

#[test]
fn the_choice_of_an_attempt_to_kill_for_room() {
    let mut bench = Bench::new();
    assert_eq!(bench.table.cheapest(), None);
    let mut tasks = vec![];
    for (number, (name, progress)) in
        [("map", 0.2), ("map", 0.1), ("reduce", 0.9), ("reduce", 0.8)].into_iter().enumerate()
    {
        let mut task = kind(name);
        task.attempt.task.number = i32::try_from(number).unwrap();
        let run = bench.launch_and_start(&task, u64::try_from(number).unwrap() + 1);
        let status = bench.table.attempts(task.attempt.job()).last().unwrap().status().clone();
        let status = TaskStatus { attempt: task.attempt.clone(), progress, ..status };
        let status = TaskStatus { reduce: kind(name).status.reduce, ..status };
        let now = bench.now();
        assert!(bench.table.status_update(&task.attempt, status, now));
        tasks.push(run);
    }
    let mut waits = kind("reduce");
    waits.attempt.task.number = 9;
    bench.launch(&waits).unwrap();
    for expected in [3, 2, 1, 0] {
        let run = bench.table.cheapest().unwrap();
        assert_eq!(run, tasks[expected]);
        let now = bench.now();
        assert_ne!(bench.table.kill(&run, Cause::Request, "no room", now), []);
    }
    assert_eq!(bench.table.cheapest(), None);
}

#[test]
fn silence_counts_for_what_runs() {
    let mut bench = Bench::new();
    let task = kind("map");
    bench.launch(&task).unwrap();
    let run = run(&task, 1);
    let now = bench.now();
    assert_eq!(bench.table.silence(&run, now), None, "it waits");
    assert!(bench.start(&run, 1));
    let now = bench.now();
    assert_eq!(bench.table.silence(&run, now), Some(Duration::from_secs(1)));
    assert!(bench.table.ping(&task.attempt));
    let now = bench.now();
    assert_eq!(bench.table.silence(&run, now), Some(Duration::from_secs(2)), "a ping is no report");
    let status = bench.table.attempts(task.attempt.job()).next().unwrap().status().clone();
    let now = bench.now();
    assert!(bench.table.status_update(&task.attempt, status, now));
    let now = bench.now();
    assert_eq!(bench.table.silence(&run, now), Some(Duration::from_secs(1)));
    bench.done(&task);
    let now = bench.now();
    assert_eq!(bench.table.silence(&run, now), None);
}

#[test]
fn large_tasks_wait_for_room() {
    let mut large = kind("map");
    large.extra_data = vec![0; 1000];
    let task_bytes = large.bytes() + kind("map").bytes() + 100;
    let mut bench = Bench::limited(TableLimits { task_bytes, ..TableLimits::default() });
    assert!(bench.launch(&large).is_ok());
    let mut next = large.clone();
    next.attempt.task.number += 1;
    assert_eq!(bench.launch(&next), Err(Ignored::Full));
    assert!(bench.launch(&map_of(2)).is_ok(), "a small one fits");
    assert!(bench.act(Action::KillJob(large.attempt.job().clone())).is_ok());
    let run = bench.launch_and_start(&next, 3);
    bench.exit(&run);
    assert_eq!(bench.launch(&next), Err(Ignored::Full), "its first run is to be reported");
    let sent = bench.reports(&next);
    bench.table.reported(next.attempt.job(), &sent);
    assert!(bench.launch(&next).is_ok());
    assert!(bench.act(Action::KillJob(next.attempt.job().clone())).is_ok());
    assert!(bench.act(Action::KillJob(map_of(2).attempt.job().clone())).is_ok());
    assert_eq!((bench.table.task_bytes, bench.table.attempts), (0, 0));
}
