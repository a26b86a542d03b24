//! `corona hadoop job`: the commands of the original's `JobClient`, with its words and exit statuses.

use std::process::ExitCode;

use clap::ValueEnum;
use corona::hadoop::writables::{
    Counters, JobId, JobStatus, TaskAttemptId, TaskReport, TaskReportState,
};

use super::super::cluster::block_on;
use super::super::hadoop::generic::Generic;
use super::super::hadoop::table::{self, Command, Fate};
use super::super::job;
use super::{Caller, Kind, Which, job_order};
use corona_terminal::console::{Console, printable};

/// The original's -1.
const FAILED: u8 = 255;
const PRIORITIES: [&str; 5] = ["VERY_HIGH", "HIGH", "NORMAL", "LOW", "VERY_LOW"];

/// Runs a command: its name, then its words.
pub(in crate::commands) fn run(
    words: &[String],
    generic: &Generic,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let Some((name, words)) = words.split_first() else {
        console.complain(&usage(None));
        return Ok(FAILED.into());
    };
    let Some(command) = table::find(table::JOB, name) else {
        console.complain(&format!("{}: Unknown command\n{}", printable(name), usage(None)));
        return Ok(FAILED.into());
    };
    if let Fate::Refused(why) = command.fate {
        console.complain(&format!("{name} is refused: {why}\n"));
        return Ok(FAILED.into());
    }
    let (least, most) = command.count;
    if !(least..=most).contains(&words.len()) {
        console.complain(&usage(Some(command)));
        return Ok(FAILED.into());
    }
    let which = Which::of_generic(generic);
    if let ("-submit", [file]) = (command.name, words) {
        let id = console.capture(|console| job::submit(file, which, console))?;
        console.print(&format!("Created job {id}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut caller = which.caller()?;
    let done = block_on(asked(command, words, &mut caller))?;
    let (status, text) = match done {
        Asked::Done(text) => (0, text),
        Asked::Failed(text) => (FAILED, text),
        Asked::Usage => {
            console.complain(&usage(Some(command)));
            return Ok(FAILED.into());
        }
    };
    console.print(&text)?;
    Ok(status.into())
}

fn usage(of: Option<&Command>) -> String {
    let line = |command: &Command| {
        let words = [command.name, command.arguments].join(" ");
        format!("[{}]", words.trim_end())
    };
    match of {
        Some(command) => {
            let values = match command.name {
                "-set-priority" => format!(". Values of priorities: {}", PRIORITIES.join(" ")),
                _ => String::new(),
            };
            format!("Usage: JobClient {}{values}\n", line(command))
        }
        None => {
            let known = table::JOB.iter().filter(|it| !matches!(it.fate, Fate::Refused(_)));
            let lines: String = known.map(|command| format!("\t{}\n", line(command))).collect();
            format!("Usage: JobClient <command> <args>\n{lines}")
        }
    }
}

/// The outcome of a command, with what it prints.
enum Asked {
    Done(String),
    Failed(String),
    /// The command does not take one of the words.
    Usage,
}

async fn asked(command: &Command, words: &[String], caller: &mut Caller) -> anyhow::Result<Asked> {
    let client = &mut caller.client;
    match (command.name, words) {
        ("-list", []) => {
            let jobs = client.jobs_to_complete().await;
            let jobs = caller.checked(jobs)?.unwrap_or_default();
            let head = format!("{} jobs currently running\n", jobs.len());
            return Ok(Asked::Done(head + &listed(jobs)));
        }
        ("-list", [all]) if all == "all" => {
            let jobs = client.get_all_jobs().await;
            let jobs = caller.checked(jobs)?.unwrap_or_default();
            let head = format!(
                "{} jobs submitted\nStates are:\n\tRunning : 1\tSucceded : 2\tFailed : 3\tPrep : 4\n",
                jobs.len()
            );
            return Ok(Asked::Done(head + &listed(jobs)));
        }
        ("-list-active-trackers" | "-list-blacklisted-trackers", _) => {
            let status = client.get_cluster_status(true).await;
            let status = caller.checked(status)?;
            let names = status.map(|status| match command.name {
                "-list-active-trackers" => status.active_names,
                _ => status.blacklisted_names,
            });
            let names = names.unwrap_or_default();
            let lines = names.iter().map(|name| format!("{}\n", printable(name)));
            return Ok(Asked::Done(lines.collect()));
        }
        ("-kill-task" | "-fail-task", [attempt]) => {
            return kill_attempt(command.name, attempt, caller).await;
        }
        _ => {}
    }
    let Some(Ok(job)) = words.first().map(|word| word.parse::<JobId>()) else {
        return Ok(Asked::Usage);
    };
    of_job(command, &job, words.get(1..).unwrap_or_default(), caller).await
}

async fn of_job(
    command: &Command,
    job: &JobId,
    words: &[String],
    caller: &mut Caller,
) -> anyhow::Result<Asked> {
    let client = &mut caller.client;
    let status = caller.retry.again(async || client.get_job_status(job.clone()).await).await;
    let Some(status) = caller.checked(status)? else {
        return Ok(Asked::Failed(format!("Could not find job {job}\n")));
    };
    let client = &mut caller.client;
    match (command.name, words) {
        ("-status", []) => {
            let profile = client.get_job_profile(job.clone()).await;
            let counters = client.get_job_counters(job.clone()).await;
            let (profile, counters) = (caller.checked(profile)?, caller.checked(counters)?);
            let (file, url) =
                profile.map(|profile| (profile.job_file, profile.url)).unwrap_or_default();
            let counters = match counters {
                Some(counters) => counted(&counters),
                None => "Counters not available. Job is retired.\n".to_owned(),
            };
            Ok(Asked::Done(format!(
                "\nJob: {job}\nfile: {}\ntracking URL: {}\nmap() completion: {}\n\
                 reduce() completion: {}\n{counters}",
                printable(&file),
                printable(&url),
                part(status.map_progress),
                part(status.reduce_progress),
            )))
        }
        ("-counter", [group, name]) => {
            let counters = client.get_job_counters(job.clone()).await;
            let Some(counters) = caller.checked(counters)? else {
                let text = format!("Counters not available for retired job {job}\n");
                return Ok(Asked::Failed(text));
            };
            Ok(Asked::Done(format!("{}\n", counter(&counters, group, name))))
        }
        ("-kill", []) => {
            let killed = client.kill_job(job.clone()).await;
            caller.checked(killed)?;
            Ok(Asked::Done(format!("Killed job {job}\n")))
        }
        ("-set-priority", [priority]) => {
            if !PRIORITIES.contains(&&**priority) {
                return Ok(Asked::Usage);
            }
            let set = client.set_job_priority(job.clone(), priority.clone()).await;
            caller.checked(set)?;
            Ok(Asked::Done("Changed job priority.\n".to_owned()))
        }
        ("-events", [from, most]) => {
            let (Ok(from), Ok(most)) = (from.parse::<i32>(), most.parse::<i32>()) else {
                return Ok(Asked::Usage);
            };
            let events = client.get_task_completion_events(job.clone(), from, most).await;
            let events = caller.checked(events)?.unwrap_or_default();
            let mut text = format!(
                "Task completion events for {job}\nNumber of events (from {from}) are: {}\n",
                events.len()
            );
            for event in events {
                let attempt = event.attempt;
                let at = event.tracker_http.unwrap_or_default();
                let at = printable(&at);
                text.push_str(&format!(
                    "{} {attempt} {at}/tasklog?plaintext=true&taskid={attempt}\n",
                    event.status
                ));
            }
            Ok(Asked::Done(text))
        }
        ("-list-attempt-ids", [kind, state]) => {
            let Ok(kind) = Kind::from_str(kind, false) else { return Ok(Asked::Usage) };
            let reports = caller.reports(kind, job).await;
            let reports = caller.checked(reports)?.unwrap_or_default();
            Ok(Asked::Done(reports.into_iter().flat_map(|it| attempts(it, state)).collect()))
        }
        _ => Ok(Asked::Usage),
    }
}

async fn kill_attempt(command: &str, attempt: &str, caller: &mut Caller) -> anyhow::Result<Asked> {
    let Ok(id) = attempt.parse::<TaskAttemptId>() else { return Ok(Asked::Usage) };
    let fails = command == "-fail-task";
    let killed = caller.client.kill_task(id, fails).await;
    Ok(match (caller.checked(killed)?, fails) {
        (true, false) => Asked::Done(format!("Killed task {attempt}\n")),
        (true, true) => Asked::Done(format!("Killed task {attempt} by failing it\n")),
        (false, false) => Asked::Failed(format!("Could not kill task {attempt}\n")),
        (false, true) => Asked::Failed(format!("Could not fail task {attempt}\n")),
    })
}

/// The lines of a task's attempts, if it is in this state.
fn attempts(report: TaskReport, state: &str) -> Vec<String> {
    let attempts = match (report.state, state) {
        (TaskReportState::Running(attempts), "running") => attempts,
        (TaskReportState::Complete(attempt), "completed") => vec![attempt],
        _ => Vec::new(),
    };
    attempts.iter().map(|attempt| format!("{attempt}\n")).collect()
}

/// The table of jobs.
fn listed(mut jobs: Vec<JobStatus>) -> String {
    jobs.sort_by(|a, b| job_order(&a.job, &b.job));
    let mut text = "JobId\tState\tStartTime\tUserName\tPriority\tSchedulingInfo\n".to_owned();
    for job in jobs {
        text.push_str(&format!(
            "{}\t{}\t{}\t{}\t{}\t{}\n",
            job.job,
            job.run_state,
            job.start_time_ms,
            printable(&job.user),
            job.priority,
            printable(&job.scheduling_info),
        ));
    }
    text
}

/// A part as Java writes a float: with a fraction in any case.
fn part(part: f32) -> String {
    format!("{part:?}")
}

/// All counters by their shown names.
fn counted(counters: &Counters) -> String {
    let count: usize = counters.groups.iter().map(|group| group.counters.len()).sum();
    let mut text = format!("Counters: {count}\n");
    for group in &counters.groups {
        text.push_str(&format!("\t{}\n", printable(&group.display_name)));
        for counter in &group.counters {
            let name = counter.display_name.as_deref().unwrap_or(&counter.name);
            text.push_str(&format!("\t\t{}={}\n", printable(name), counter.value));
        }
    }
    text
}

/// A counter, 0 if there is none, as in the original.
fn counter(counters: &Counters, group: &str, name: &str) -> i64 {
    let groups = counters.groups.iter().filter(|it| it.name == group);
    let mut found = groups.flat_map(|group| &group.counters).filter(|it| it.name == name);
    found.next().map_or(0, |counter| counter.value)
}
