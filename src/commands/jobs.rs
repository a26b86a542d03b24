//! `corona jobs`: the jobs of a job tracker, this program's service or a classic Java one.
//!
//! Uses the calls of the original's clients only.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use corona::config::{ClientSource, ConfigErrors, HostPort, JobConf, LoadedJobTracker};
use corona::filesystem::FileSystemSettings;
use corona::hadoop::protocols::job_submission::JobSubmissionClient;
use corona::hadoop::rpc::{CallError, ClientOptions, User};
use corona::hadoop::writables::{
    Counters, InetAddress, JobId, JobProfile, JobStatus, TaskReport, TaskReportState,
};
use serde::Serialize;

use super::arguments::{FoundSource, Override, existing_conf_dir, pairs, parse_override};
use super::cluster::{WebArguments, block_on};
use super::daemon::usable;
use super::finished_jobs::{self, Finished, Wanted};
use super::sessions::explain;
use super::terminal::console::{Console, Form, OutputArguments, printable};
use super::terminal::table::{Cell, Column, Table, Tone};
use super::web::Web;

const EXAMPLES: &str = "\
Examples:
  The jobs that run:
    corona jobs list --job-tracker jt.example.com:8021
  All that the job tracker remembers, as JSON:
    corona jobs list --all --output json
  Why a job gets no slots:
    corona jobs explain job_202611221033.7_0001
  The jobs of alice that failed, from their histories:
    corona jobs list --finished --user alice --state failed
  What the reduces of a job do:
    corona jobs tasks job_202611221033.7_0001 --type reduce

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// List, describe, explain and kill jobs of a job tracker
///
/// Asks the job tracker at corona.jt.address: 'corona job-tracker', or a Java
/// job tracker of the classic kind. 'history' and 'list --finished' ask the
/// proxy job tracker at mapred.job.tracker.corona.proxyaddr; without one, or if
/// it fails, they ask 'corona job-tracker'. 'explain' requires the pages of a
/// cluster manager of this program.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List the jobs that run
    List(List),
    /// Describe a job
    Info(One),
    /// List the tasks of a job
    Tasks(Tasks),
    /// Show the counters of a job
    Counters(One),
    /// Kill a job
    Kill(One),
    /// Print the history file of a job
    History(History),
    /// Explain why a job waits for slots
    Explain(Explain),
}

/// Which job tracker.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job tracker")]
pub(super) struct Which {
    /// Address of the job tracker, overriding corona.jt.address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    job_tracker: Option<HostPort>,

    /// Directory of the configuration files [default: $HADOOP_CONF_DIR]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<std::path::PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    /// Seconds to wait for the job tracker
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    timeout: u16,
}

#[derive(Args, Clone, Debug)]
struct List {
    /// Those that have ended as well
    #[arg(long)]
    all: bool,

    /// Those that have ended, from their histories
    #[arg(long, conflicts_with = "all")]
    finished: bool,

    #[command(flatten)]
    wanted: Wanted,

    #[command(flatten)]
    histories: Histories,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    which: Which,
}

/// Which proxy job tracker.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Proxy job tracker")]
struct Histories {
    /// Address of the proxy job tracker's pages, overriding
    /// mapred.job.tracker.corona.proxyaddr
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    proxy_job_tracker: Option<HostPort>,
}

#[derive(Args, Clone, Debug)]
struct History {
    #[command(flatten)]
    one: One,

    #[command(flatten)]
    histories: Histories,
}

#[derive(Args, Clone, Debug)]
struct One {
    /// The job's id
    #[arg(value_name = "JOB")]
    job: JobId,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    which: Which,
}

#[derive(Args, Clone, Debug)]
struct Tasks {
    #[command(flatten)]
    one: One,

    /// Which tasks
    #[arg(long = "type", value_enum, default_value_t = Kind::Map)]
    kind: Kind,
}

#[derive(Args, Clone, Debug)]
struct Explain {
    /// The job's id
    #[arg(value_name = "JOB")]
    job: JobId,

    /// Also list the slots that it holds
    #[arg(long)]
    grants: bool,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// A kind of tasks.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Maps
    Map,
    /// Reduces
    Reduce,
    /// Those that prepare the job
    Setup,
    /// Those that clean up after it
    Cleanup,
}

fn parse_address(text: &str) -> Result<HostPort, String> {
    text.parse().map_err(|wrong| format!("{wrong}"))
}

/// A job as JSON.
#[derive(Debug, Serialize)]
struct Job {
    id: String,
    state: &'static str,
    user: String,
    priority: String,
    started_ms: i64,
    setup_progress: f32,
    map_progress: f32,
    reduce_progress: f32,
    cleanup_progress: f32,
    scheduling_info: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

/// What does not change of a job, as JSON.
#[derive(Debug, Serialize)]
struct Profile {
    name: String,
    queue: String,
    job_file: String,
    url: String,
}

/// A task as JSON.
#[derive(Debug, Serialize)]
struct Task {
    id: String,
    state: &'static str,
    attempts: Vec<String>,
    progress: f32,
    started_ms: i64,
    finished_ms: i64,
    status: String,
    diagnostics: Vec<String>,
}

/// A counter as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Counter {
    group: String,
    name: String,
    display_name: String,
    value: i64,
}

/// Asks and prints.
///
/// # Errors
/// When the job tracker does not answer, refuses, or does not know the job.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List(list) => list.run(console)?,
        Action::Info(one) => one.info(console)?,
        Action::Tasks(tasks) => tasks.run(console)?,
        Action::Counters(one) => one.counters(console)?,
        Action::Kill(one) => one.kill(console)?,
        Action::History(history) => history.run(console)?,
        // The session of a job is the middle part of its id.
        Action::Explain(Explain { job, grants, output, web }) => {
            return explain(job.tracker, grants, output, web, console);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A job tracker that can be called, and its name for errors.
pub(super) struct Caller {
    pub(super) client: JobSubmissionClient,
    pub(super) who: String,
}

impl Which {
    /// What the configuration says of jobs, with the settings of `-D`.
    pub(super) fn job_conf(&self) -> anyhow::Result<JobConf> {
        self.with_source(|source| source.job_conf())
    }

    /// The configuration of a job in a file, over what the configuration says of jobs, below `-D`.
    pub(super) fn job_conf_of(&self, job_xml: &Path) -> anyhow::Result<JobConf> {
        let further = [job_xml.to_owned()];
        self.with_source(|source| ClientSource { further: &further, ..source }.job_conf())
    }

    /// The settings of a job tracker service with this configuration.
    pub(super) fn service(&self) -> anyhow::Result<LoadedJobTracker> {
        let conf_dir = existing_conf_dir(self.conf_dir.clone(), |name| std::env::var_os(name))?;
        let overrides = self.settings();
        let source = FoundSource { conf_dir, overrides };
        usable(source.of_service().load_job_tracker())
    }

    /// How files are read and written.
    pub(super) fn file_systems(&self) -> anyhow::Result<FileSystemSettings> {
        self.with_source(|source| source.load_file_systems())
    }

    /// The settings of `-D`.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        pairs(self.overrides.clone())
    }

    fn with_source<T>(
        &self,
        read: impl FnOnce(ClientSource<'_>) -> Result<T, ConfigErrors>,
    ) -> anyhow::Result<T> {
        let conf_dir = existing_conf_dir(self.conf_dir.clone(), |name| std::env::var_os(name))?;
        let overrides = self.settings();
        let source =
            ClientSource { conf_dir: conf_dir.as_deref(), further: &[], overrides: &overrides };
        usable(read(source))
    }

    pub(super) fn caller(&self) -> anyhow::Result<Caller> {
        let address = match &self.job_tracker {
            Some(address) => address.clone(),
            None => self.with_source(|source| source.load())?.job_tracker,
        };
        self.caller_at(address)
    }

    /// A caller of the job tracker at an address.
    pub(super) fn caller_at(&self, address: HostPort) -> anyhow::Result<Caller> {
        let files = self.file_systems()?;
        let mut groups = files.groups;
        if groups.is_empty() {
            groups.push(files.user.clone());
        }
        let due = std::time::Duration::from_secs(self.timeout.into());
        let options = ClientOptions {
            call_timeout: Some(due),
            attempt_timeout: due,
            connect_patience: std::time::Duration::ZERO,
            ..ClientOptions::new(User { name: files.user, groups })
        };
        let who = format!("the job tracker at {address}");
        let address = InetAddress { host: address.host.to_string(), port: address.port };
        Ok(Caller { client: JobSubmissionClient::new(address, options), who })
    }
}

impl Caller {
    /// What a call returned, or an error that names the job tracker.
    pub(super) fn checked<T>(&self, result: Result<T, CallError>) -> anyhow::Result<T> {
        result.map_err(|error| match error {
            CallError::Remote(error) => anyhow!("{} refuses: {}", self.who, error.message()),
            other => anyhow!("{}: {other}", self.who),
        })
    }

    fn known<T>(&self, result: Result<Option<T>, CallError>, job: &JobId) -> anyhow::Result<T> {
        self.checked(result)?.with_context(|| format!("{} knows no job {job}", self.who))
    }
}

impl Histories {
    /// The pages of the proxy job tracker, if its address is known.
    fn pages(&self, which: &Which) -> anyhow::Result<Option<Web>> {
        let address = match &self.proxy_job_tracker {
            Some(address) => Some(address.clone()),
            None => which.with_source(|source| source.load())?.finished_jobs,
        };
        let due = std::time::Duration::from_secs(which.timeout.into());
        Ok(address.map(|address| finished_jobs::pages(address, due)))
    }
}

const NO_PROXY: &str = "mapred.job.tracker.corona.proxyaddr is not set: name the pages of the \
                        proxy job tracker with --proxy-job-tracker";

impl List {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        if self.finished {
            return self.finished(console);
        }
        let mut caller = self.which.caller()?;
        let all = self.all;
        let jobs = block_on(async {
            let jobs = match all {
                true => caller.client.get_all_jobs().await,
                false => caller.client.jobs_to_complete().await,
            };
            // A Java job tracker inside a client returns nothing.
            Ok(caller.checked(jobs)?.unwrap_or_default())
        })?;
        match self.output.output {
            Form::Json => {
                let jobs: Vec<Job> = jobs.iter().map(|status| job(status, None)).collect();
                console.print_json(&jobs)
            }
            Form::Table if jobs.is_empty() => Ok(console.print("No jobs.\n")?),
            Form::Table => Ok(console.print(&jobs_table(&jobs).render(console, self.output.wide))?),
        }
    }
}

impl List {
    fn finished(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let (jobs, total) = match self.histories.pages(&self.which)? {
            None if self.wanted.needs_histories() => bail!(NO_PROXY),
            None => {
                console.complain(&format!("{NO_PROXY}; asking the job tracker\n"));
                self.finished_of_the_job_tracker()?
            }
            Some(pages) => match self.wanted.list(&pages) {
                Err(error) if !self.wanted.needs_histories() => {
                    console.complain(&format!("{error:#}; asking the job tracker\n"));
                    self.finished_of_the_job_tracker()?
                }
                listed => listed?,
            },
        };
        match self.output.output {
            Form::Json => console.print_json(&jobs),
            Form::Table if jobs.is_empty() => Ok(console.print("No jobs.\n")?),
            Form::Table => {
                let table = finished_jobs::table(&jobs).render(console, self.output.wide);
                console.print(&table)?;
                if total > jobs.len() as u64 {
                    console.print(&format!("{} of {total} jobs; see --limit\n", jobs.len()))?;
                }
                Ok(())
            }
        }
    }

    /// Those that the job tracker remembers, the last submitted first, and how many there are.
    fn finished_of_the_job_tracker(&self) -> anyhow::Result<(Vec<Finished>, u64)> {
        let mut caller = self.which.caller()?;
        let jobs = block_on(async {
            let jobs = caller.client.get_all_jobs().await;
            Ok(caller.checked(jobs)?.unwrap_or_default())
        })?;
        let mut ended: Vec<JobStatus> =
            jobs.into_iter().filter(|status| is_over(status.run_state)).collect();
        ended.sort_by_key(|status| std::cmp::Reverse(status.start_time_ms));
        let mut jobs: Vec<Finished> = ended
            .iter()
            .map(|status| Finished {
                id: status.job.to_string(),
                state: state(status.run_state).to_lowercase(),
                user: status.user.clone(),
                history: None,
            })
            .filter(|job| self.wanted.wants(job))
            .collect();
        let total = jobs.len() as u64;
        jobs.truncate(self.wanted.limit());
        Ok((jobs, total))
    }
}

impl History {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let History { one, histories } = self;
        let text = match histories.pages(&one.which)? {
            None => one.history()?,
            Some(pages) => match finished_jobs::history(&pages, &one.job.to_string()) {
                Ok(text) => text,
                Err(error) => {
                    console.complain(&format!("{error:#}; asking the job tracker\n"));
                    one.history()?
                }
            },
        };
        let lines: Vec<String> = text.lines().map(|line| printable(line).to_string()).collect();
        match one.output.output {
            Form::Json => console.print_json(&serde_json::json!({ "history": lines })),
            Form::Table => Ok(console.print(&format!("{}\n", lines.join("\n")))?),
        }
    }
}

fn jobs_table(jobs: &[JobStatus]) -> Table {
    let mut table = Table::new(&[
        Column::whole("JOB"),
        Column::whole("STATE"),
        Column::text("USER", 8),
        Column::whole("PRIORITY"),
        Column::number("MAPS"),
        Column::number("REDUCES"),
    ]);
    for status in jobs {
        table.row([
            status.job.to_string().into(),
            Cell::new(state(status.run_state), tone(status.run_state)),
            status.user.clone().into(),
            status.priority.to_string().into(),
            percent(status.map_progress).into(),
            percent(status.reduce_progress).into(),
        ]);
    }
    table
}

impl One {
    fn info(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        let id = &self.job;
        let (status, profile) = block_on(async {
            let status = caller.client.get_job_status(id.clone()).await;
            let status = caller.known(status, id)?;
            let profile = caller.client.get_job_profile(id.clone()).await;
            Ok((status, caller.known(profile, id)?))
        })?;
        match self.output.output {
            Form::Json => console.print_json(&job(&status, Some(profile))),
            Form::Table => {
                let mut table = Table::new(&[Column::whole("JOB"), Column::text(" ", 20)]);
                for (name, value) in [
                    ("id", status.job.to_string()),
                    ("name", profile.name),
                    ("user", profile.user),
                    ("queue", profile.queue),
                    ("state", state(status.run_state).to_owned()),
                    ("priority", status.priority.to_string()),
                    ("set-up", percent(status.setup_progress)),
                    ("maps", percent(status.map_progress)),
                    ("reduces", percent(status.reduce_progress)),
                    ("clean-up", percent(status.cleanup_progress)),
                    ("note", note(&status).unwrap_or_default().to_owned()),
                    ("job file", profile.job_file),
                    ("page", profile.url),
                ] {
                    table.row([name.into(), value.into()]);
                }
                Ok(console.print(&table.render(console, true))?)
            }
        }
    }

    fn counters(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        let counters = block_on(async {
            let counters = caller.client.get_job_counters(self.job.clone()).await;
            caller.known(counters, &self.job)
        })?;
        let counters = listed(counters);
        match self.output.output {
            Form::Json => console.print_json(&counters),
            Form::Table => {
                let table = counters_table(&counters).render(console, self.output.wide);
                Ok(console.print(&table)?)
            }
        }
    }

    /// The history is on the pages of the service, whose address is in the profile of the job.
    fn history(&self) -> anyhow::Result<String> {
        let due = std::time::Duration::from_secs(self.which.timeout.into());
        let mut caller = self.which.caller()?;
        let profile = block_on(async {
            let profile = caller.client.get_job_profile(self.job.clone()).await;
            caller.known(profile, &self.job)
        })?;
        let url = profile.url;
        let pages = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
        let pages = pages.and_then(|pages| pages.parse::<HostPort>().ok());
        let pages = pages.with_context(|| format!("the page of the job is at {url:?}"))?;
        let web = Web::of("job tracker", pages, due);
        block_on(web.page(&format!("/jobs/{}/history", self.job)))
    }

    fn kill(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        block_on(async {
            // An id that is not known is no error of the call.
            let status = caller.client.get_job_status(self.job.clone()).await;
            let status = caller.known(status, &self.job)?;
            if is_over(status.run_state) {
                bail!("{} has ended already: {}", self.job, state(status.run_state));
            }
            let killed = caller.client.kill_job(self.job.clone()).await;
            caller.checked(killed)
        })?;
        match self.output.output {
            Form::Json => {
                console.print_json(&serde_json::json!({ "killed": self.job.to_string() }))
            }
            Form::Table => Ok(console.print(&format!("Killed {}\n", self.job))?),
        }
    }
}

impl Tasks {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let One { job, output, which } = self.one;
        let mut caller = which.caller()?;
        let kind = self.kind;
        let reports = block_on(async {
            let status = caller.client.get_job_status(job.clone()).await;
            caller.known(status, &job)?;
            let client = &mut caller.client;
            let reports = match kind {
                Kind::Map => client.get_map_task_reports(job.clone()).await,
                Kind::Reduce => client.get_reduce_task_reports(job.clone()).await,
                Kind::Setup => client.get_setup_task_reports(job.clone()).await,
                Kind::Cleanup => client.get_cleanup_task_reports(job.clone()).await,
            };
            Ok(caller.checked(reports)?.unwrap_or_default())
        })?;
        let tasks: Vec<Task> = reports.into_iter().map(task).collect();
        match output.output {
            Form::Json => console.print_json(&tasks),
            Form::Table if tasks.is_empty() => Ok(console.print("No tasks.\n")?),
            Form::Table => {
                let mut table = Table::new(&[
                    Column::whole("TASK"),
                    Column::whole("STATE"),
                    Column::number("PROGRESS"),
                    Column::text("STATUS", 20),
                    Column::text("ERRORS", 20),
                ]);
                for task in tasks {
                    let errors = task.diagnostics.join("; ");
                    table.row([
                        task.id.into(),
                        task.state.into(),
                        percent(task.progress).into(),
                        task.status.into(),
                        errors.into(),
                    ]);
                }
                Ok(console.print(&table.render(console, output.wide))?)
            }
        }
    }
}

/// States of jobs on the wire.
const RUNNING: i32 = 1;
const PREPARING: i32 = 4;

/// Whether a job in this state has ended.
pub(super) fn is_over(run_state: i32) -> bool {
    !matches!(run_state, RUNNING | PREPARING)
}

pub(super) fn state(run_state: i32) -> &'static str {
    match run_state {
        RUNNING => "RUNNING",
        2 => "SUCCEEDED",
        3 => "FAILED",
        PREPARING => "PREP",
        5 => "KILLED",
        _ => "UNKNOWN",
    }
}

fn tone(run_state: i32) -> Tone {
    match run_state {
        3 => Tone::Bad,
        5 => Tone::Notable,
        _ => Tone::Plain,
    }
}

fn percent(part: f32) -> String {
    format!("{:.0} %", f64::from(part) * 100.0)
}

fn job(status: &JobStatus, profile: Option<JobProfile>) -> Job {
    Job {
        id: status.job.to_string(),
        state: state(status.run_state),
        user: status.user.clone(),
        priority: status.priority.to_string(),
        started_ms: status.start_time_ms,
        setup_progress: status.setup_progress,
        map_progress: status.map_progress,
        reduce_progress: status.reduce_progress,
        cleanup_progress: status.cleanup_progress,
        scheduling_info: status.scheduling_info.clone(),
        profile: profile.map(|profile| Profile {
            name: profile.name,
            queue: profile.queue,
            job_file: profile.job_file,
            url: profile.url,
        }),
    }
}

/// What a job tracker adds to the state of a job, such as why it has ended it.
pub(super) fn note(status: &JobStatus) -> Option<&str> {
    Some(&*status.scheduling_info).filter(|info| !matches!(*info, "" | "NA"))
}

fn task(report: TaskReport) -> Task {
    let (state, attempts) = match report.state {
        TaskReportState::Pending => ("PENDING", Vec::new()),
        TaskReportState::Running(attempts) => ("RUNNING", attempts),
        TaskReportState::Complete(attempt) => ("COMPLETE", vec![attempt]),
        TaskReportState::Killed => ("KILLED", Vec::new()),
        TaskReportState::Failed => ("FAILED", Vec::new()),
    };
    Task {
        id: report.task.to_string(),
        state,
        attempts: attempts.iter().map(ToString::to_string).collect(),
        progress: report.progress,
        started_ms: report.start_time_ms,
        finished_ms: report.finish_time_ms,
        status: report.state_string,
        diagnostics: report.diagnostics,
    }
}

/// The counters for people.
pub(super) fn counters_table(counters: &[Counter]) -> Table {
    let columns = [Column::text("GROUP", 20), Column::whole("COUNTER"), Column::number("VALUE")];
    let mut table = Table::new(&columns);
    for counter in counters {
        let value = counter.value.to_string();
        table.row([counter.group.clone().into(), counter.name.clone().into(), value.into()]);
    }
    table
}

/// All counters, by group and name.
pub(super) fn listed(counters: Counters) -> Vec<Counter> {
    let mut all: Vec<Counter> = counters
        .groups
        .into_iter()
        .flat_map(|group| {
            let name = group.name;
            group.counters.into_iter().map(move |counter| Counter {
                group: name.clone(),
                display_name: counter.display_name.unwrap_or_else(|| counter.name.clone()),
                name: counter.name,
                value: counter.value,
            })
        })
        .collect();
    all.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    all
}
