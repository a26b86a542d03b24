//! `corona jobs`: the jobs of a job tracker, this program's service or a classic Java one.
//!
//! Uses the calls of the original's clients only.

mod failures;
pub(super) mod hadoop;
mod logs;
mod summary;
mod used;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use corona::api::cluster::handle_order;
use corona::api::jobs::JobDetail;
use corona::config::keys;
use corona::config::{
    ClientSettings, ClientSource, ConfigErrors, HostPort, JobConf, LoadedJobTracker,
};
use corona::filesystem::FileSystemSettings;
use corona::hadoop::protocols::job_files::JobFilesClient;
use corona::hadoop::protocols::job_submission::JobSubmissionClient;
use corona::hadoop::rpc::{CallError, ClientOptions, User};
use corona::hadoop::writables::{
    Counters, InetAddress, JobId, JobProfile, JobStatus, TaskReport, TaskReportState,
};
use serde::Serialize;

use super::UsageError;
use super::arguments::{
    FoundSource, Override, conf_dir_of_client, no_cluster_hint, parse_override,
};
use super::cluster::{WebArguments, block_on, parse_address};
use super::daemon::usable;
use super::finished_jobs::{self, Finished, Wanted};
use super::hadoop::generic::Generic;
use super::parts::start_of;
use super::sessions::explain;
use super::times::{Ago, Date};
use super::web::Web;
use corona_terminal::console::{Console, Form, OutputArguments, printable};
use corona_terminal::counted;
use corona_terminal::table::{Cell, Column, Table, Tone};
use corona_terminal::wrap::wrapped;
use failures::Counts;
pub(super) use failures::{Failure, Reports};
use logs::Logs;
pub(super) use summary::{summary, wrote_nothing};

/// How long services other than the cluster manager may take when a job is explained.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a job tracker may take if no option says so, and how long one that is being restarted is waited for.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);
/// How long a job tracker is called that refuses connections where nothing names a cluster.
const NO_CLUSTER_PATIENCE: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

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
  What its attempts that failed wrote:
    corona jobs logs job_202611221033.7_0001

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
    /// Describe a job: its state, times and tasks, and why it failed
    #[command(aliases = ["describe", "show"])]
    Info(One),
    /// List the tasks of a job
    Tasks(Tasks),
    /// Show the counters of a job
    Counters(One),
    /// Print the logs of attempts of a job
    Logs(Logs),
    /// Kill a job
    Kill(One),
    /// Set the priority of a job
    SetPriority(SetPriority),
    /// Print the history file of a job
    History(History),
    /// Explain why a job waits for slots; after its end, what it used of what it
    /// asked for
    Explain(Explain),
}

/// Which job tracker.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job tracker")]
pub(super) struct Which {
    /// Address of the job tracker, overriding corona.jt.address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    job_tracker: Option<HostPort>,

    /// Directory of the configuration files [default: $HADOOP_CONF_DIR,
    /// else the cluster of 'corona login', else the head of this user here]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Property files that are read after those of the directory.
    #[arg(skip)]
    conf_files: Vec<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    /// Seconds to wait for the job tracker [default: 60, and longer while it
    /// takes a new job]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    timeout: Option<u16>,
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
struct SetPriority {
    #[command(flatten)]
    one: One,

    /// How urgent the job is
    #[arg(value_enum, ignore_case = true)]
    priority: Priority,
}

/// How urgent a job is.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
enum Priority {
    VeryLow,
    Low,
    Normal,
    High,
    VeryHigh,
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

/// A job as JSON.
#[derive(Debug, Serialize)]
struct Job {
    id: String,
    state: &'static str,
    user: String,
    priority: String,
    started_ms: i64,
    /// From 0 to 1; none of a job that failed or was killed, as the other three.
    setup_progress: Option<f32>,
    map_progress: Option<f32>,
    reduce_progress: Option<f32>,
    cleanup_progress: Option<f32>,
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
#[derive(Clone, Debug, Serialize)]
pub(super) struct Counter {
    pub(super) group: String,
    /// The displayed name of the group.
    #[serde(skip)]
    pub(super) group_name: String,
    name: String,
    pub(super) display_name: String,
    pub(super) value: i64,
}

/// Asks and prints.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List(list) => list.run(console)?,
        Action::Info(one) => one.info(console)?,
        Action::Tasks(tasks) => tasks.run(console)?,
        Action::Counters(one) => one.counters(console)?,
        Action::Logs(logs) => logs.run(console)?,
        Action::Kill(one) => one.kill(console)?,
        Action::SetPriority(set) => set.run(console)?,
        Action::History(history) => history.run(console)?,
        Action::Explain(Explain { job, grants, output, web }) => {
            // It is the middle part of the job's id, but for a job whose job tracker is on a node.
            let session = session_of(&job, &web).unwrap_or_else(|| job.tracker.clone());
            return match explain(session, grants, output, web.clone(), console) {
                Ok(code) => Ok(code),
                Err(error) => Err(explain_end(&job, output, &web, console).unwrap_or(error)),
            };
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A job tracker that can be called, and its name for errors.
pub(super) struct Caller {
    address: InetAddress,
    pub(super) client: JobSubmissionClient,
    pub(super) who: String,
    options: ClientOptions,
    /// What to do if it refuses connections.
    pub(super) hint: String,
    pub(super) retry: Retry,
}

impl Which {
    /// The job tracker and the configuration that options of the original's tools name.
    pub(super) fn of_generic(generic: &Generic) -> Which {
        Which {
            job_tracker: generic.job_tracker.clone(),
            conf_dir: generic.conf_dir.clone(),
            conf_files: generic.conf_files.clone(),
            overrides: generic.settings.clone(),
            timeout: None,
        }
    }

    /// What the configuration says of jobs, with the settings of `-D`.
    pub(super) fn job_conf(&self) -> anyhow::Result<JobConf> {
        self.with_source(|source| source.job_conf())
    }

    /// The configuration of a job in a file, over what the configuration says of jobs, below `-D`.
    pub(super) fn job_conf_of(&self, job_xml: &Path) -> anyhow::Result<JobConf> {
        let further = [&self.conf_files[..], &[job_xml.to_owned()]].concat();
        self.with_source(|source| ClientSource { further: &further, ..source }.job_conf())
    }

    /// The settings of a job tracker service with this configuration.
    pub(super) fn service(&self) -> anyhow::Result<LoadedJobTracker> {
        let conf_dir = conf_dir_of_client(self.conf_dir.clone(), |name| std::env::var_os(name))?;
        let overrides = self.settings();
        let source = FoundSource { conf_dir, overrides };
        usable(source.of_service().load_job_tracker())
    }

    /// The addresses of the cluster.
    pub(super) fn client(&self) -> anyhow::Result<ClientSettings> {
        self.with_source(|source| source.load())
    }

    /// How files are read and written.
    pub(super) fn file_systems(&self) -> anyhow::Result<FileSystemSettings> {
        let mut settings = self.with_source(|source| source.load_file_systems())?;
        if self.timeout.is_some() {
            for time in [
                &mut settings.call_timeout,
                &mut settings.connect_patience,
                &mut settings.socket_timeout,
                &mut settings.object_patience,
            ] {
                *time = self.patience().min(*time);
            }
        }
        Ok(settings)
    }

    /// The settings of `-D`.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        self.overrides.clone()
    }

    fn with_source<T>(
        &self,
        read: impl FnOnce(ClientSource<'_>) -> Result<T, ConfigErrors>,
    ) -> anyhow::Result<T> {
        let conf_dir = conf_dir_of_client(self.conf_dir.clone(), |name| std::env::var_os(name))?;
        let source = ClientSource {
            conf_dir: conf_dir.as_deref(),
            further: &self.conf_files,
            overrides: &self.overrides,
        };
        // Whatever is read, and whatever else is wrong: nothing is called in another way than this says.
        corona::access::use_in_clients(&usable(source.tls())?)?;
        usable(read(source))
    }

    pub(super) fn caller(&self) -> anyhow::Result<Caller> {
        let address = match &self.job_tracker {
            Some(address) => address.clone(),
            None => self.configured()?,
        };
        let mut caller = self.caller_at(address.clone())?;
        if self.job_tracker.is_some() {
            return Ok(caller);
        }
        let variable = |name: &str| std::env::var_os(name);
        let conf_dir = conf_dir_of_client(self.conf_dir.clone(), variable)?;
        if let Some(start) = conf_dir.as_deref().and_then(start_of) {
            caller.hint = format!("; start the cluster with '{start}'");
        } else if address.to_string() == keys::JT_ADDRESS.default {
            caller.who = format!("{} (the default: no configuration names one)", caller.who);
            caller.hint = match &conf_dir {
                Some(dir) => without_site(dir),
                None => no_cluster_hint(&address, variable),
            };
            if caller.hint != NOTHING_LISTENS {
                caller.retry.until_connected = caller.retry.within.min(NO_CLUSTER_PATIENCE);
            }
        }
        Ok(caller)
    }

    /// The address of the job tracker by the configuration.
    fn configured(&self) -> anyhow::Result<HostPort> {
        let address = self.client()?.job_tracker;
        // The original's name of the address, which clients of this program do not read.
        let other = self.settings().into_iter().rev().find(|(key, _)| key == "mapred.job.tracker");
        match other {
            Some((key, value)) if value != address.to_string() => bail!(UsageError(format!(
                "-D {key}={value} does not choose the job tracker of this command; use --job-tracker {value}"
            ))),
            _ => Ok(address),
        }
    }

    /// The pages of the cluster manager, if their address is known. With `--job-tracker` alone there are none:
    /// those of the configuration may be another cluster's.
    pub(super) fn manager(&self) -> Option<Web> {
        let is_other = self.job_tracker.is_some() && self.conf_dir.is_none();
        let address = self.client().ok().filter(|_| !is_other)?.http_address;
        (address.port != 0).then(|| Web::new(address, self.patience()))
    }

    /// How long a call may take.
    fn patience(&self) -> Duration {
        let named = self.timeout.map(|seconds| Duration::from_secs(seconds.into()));
        named.unwrap_or(USUAL_PATIENCE)
    }

    /// A caller of the job tracker at an address.
    pub(super) fn caller_at(&self, address: HostPort) -> anyhow::Result<Caller> {
        let mut caller = Caller::new(address, self.file_systems()?, self.patience());
        caller.retry.is_bound = self.timeout.is_some();
        Ok(caller)
    }
}

const NOTHING_LISTENS: &str = "; nothing listens there: check the address, or start the cluster";

/// The hint for a directory of a configuration that names no job tracker.
fn without_site(dir: &Path) -> String {
    let inner = dir.join("conf");
    match (dir.join("core-site.xml").exists(), inner.join("core-site.xml").exists()) {
        (true, _) => NOTHING_LISTENS.to_owned(),
        (false, true) => {
            format!("; {} has no core-site.xml: use --conf-dir {}", dir.display(), inner.display())
        }
        (false, false) => format!(
            "; {} has no core-site.xml: name the directory that has it with --conf-dir",
            dir.display()
        ),
    }
}

impl Caller {
    fn new(address: HostPort, files: FileSystemSettings, due: Duration) -> Caller {
        let mut groups = files.groups;
        if groups.is_empty() {
            groups.push(files.user.clone());
        }
        let options = ClientOptions {
            call_timeout: Some(due),
            attempt_timeout: due,
            connect_patience: Duration::ZERO,
            ..ClientOptions::new(User { name: files.user, groups })
        };
        let who = format!("the job tracker at {address}");
        let address = InetAddress { host: address.host.to_string(), port: address.port };
        let client = JobSubmissionClient::new(address.clone(), options.clone());
        let hint = NOTHING_LISTENS.to_owned();
        let retry = Retry { within: due, until_connected: due, is_bound: false };
        Caller { client, address, who, options, hint, retry }
    }

    /// A caller of the job tracker that these arguments configure, and the address of the pages of finished
    /// jobs.
    fn of(web: &WebArguments) -> anyhow::Result<(Caller, Option<HostPort>)> {
        let (settings, files) = web.client_settings()?;
        Ok((Caller::new(settings.job_tracker, files, PATIENCE), settings.finished_jobs))
    }

    /// Where the job tracker is.
    pub(super) fn address(&self) -> &InetAddress {
        &self.address
    }

    /// A client of the same job tracker as a keeper of files.
    pub(super) fn files(&self) -> JobFilesClient {
        JobFilesClient::new(self.address.clone(), self.options.clone())
    }

    /// What a call returned, or an error that names the job tracker.
    pub(super) fn checked<T>(&self, result: Result<T, CallError>) -> anyhow::Result<T> {
        const OWN_PORT: &str = "name the port of corona.jt.address with --job-tracker";
        let who = &self.who;
        result.map_err(|error| match error {
            CallError::Remote(error) if error.message().starts_with("Unknown protocol") => anyhow!(
                "{who} refuses: {}; this is no job tracker, perhaps a proxy job tracker: {OWN_PORT}",
                error.message()
            ),
            CallError::Remote(error) => anyhow!("{who} refuses: {}", error.message()),
            CallError::Closed => anyhow!(
                "{who} closed the connection instead of answering: if this is the port of a \
                 cluster manager or of another Thrift service, {OWN_PORT}"
            ),
            other if other.is_http() => anyhow!(
                "{who} answered with HTTP: this looks like the port of the pages; {OWN_PORT}"
            ),
            CallError::Connect { error, .. } => {
                let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                let hint = if is_refused { &*self.hint } else { "; check the address" };
                anyhow!("{who} cannot be reached: {error}{hint}")
            }
            other => anyhow!("{who}: {other}"),
        })
    }

    /// How calls are repeated when one has been answered: there is a cluster.
    pub(super) fn has_answered(&mut self) {
        self.retry.until_connected = self.retry.within;
    }

    /// The names of these jobs and what else does not change of them, as far as the job tracker knows
    /// them: a call for each, so only of the first ones.
    async fn profiles(&mut self, jobs: &[JobStatus]) -> anyhow::Result<Vec<Option<JobProfile>>> {
        let mut profiles = Vec::with_capacity(jobs.len());
        for status in jobs.iter().take(MOST_PROFILES) {
            profiles.push(match self.client.get_job_profile(status.job.clone()).await {
                // It may have been forgotten meanwhile, or be another user's.
                Err(CallError::Remote(_)) => None,
                profile => self.checked(profile)?,
            });
        }
        profiles.resize_with(jobs.len(), || None);
        Ok(profiles)
    }

    fn known<T>(&self, result: Result<Option<T>, CallError>, job: &JobId) -> anyhow::Result<T> {
        self.checked(result)?.with_context(|| {
            format!("{} knows no job {job}; 'corona jobs list --all' lists its jobs", self.who)
        })
    }

    /// How a job stands.
    async fn status(&mut self, job: &JobId) -> anyhow::Result<JobStatus> {
        let status = self.client.get_job_status(job.clone()).await;
        self.known(status, job)
    }

    /// The same of a job that has not ended.
    async fn running(&mut self, job: &JobId) -> anyhow::Result<JobStatus> {
        let status = self.status(job).await?;
        if is_over(status.run_state) {
            bail!("{job} has ended already: {}", state(status.run_state));
        }
        Ok(status)
    }

    /// What does not change of a job.
    async fn profile(&mut self, job: &JobId) -> anyhow::Result<JobProfile> {
        let profile = self.client.get_job_profile(job.clone()).await;
        self.known(profile, job)
    }

    /// The tasks of a job.
    async fn reports(
        &mut self,
        kind: Kind,
        job: &JobId,
    ) -> Result<Option<Vec<TaskReport>>, CallError> {
        let (client, job) = (&mut self.client, job.clone());
        match kind {
            Kind::Map => client.get_map_task_reports(job).await,
            Kind::Reduce => client.get_reduce_task_reports(job).await,
            Kind::Setup => client.get_setup_task_reports(job).await,
            Kind::Cleanup => client.get_cleanup_task_reports(job).await,
        }
    }

    /// Whether the job tracker has no task of a job, not even one that sets it up or cleans up after it. Jobs
    /// have those until their details are forgotten.
    async fn has_no_tasks(&mut self, job: &JobId) -> anyhow::Result<bool> {
        let mut all = Vec::new();
        for kind in [Kind::Setup, Kind::Cleanup, Kind::Map, Kind::Reduce] {
            all.push(self.reports(kind, job).await);
        }
        for reports in all {
            if self.checked(reports)?.is_some_and(|reports| !reports.is_empty()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Histories {
    /// The pages of the proxy job tracker, if its address is known.
    fn pages(&self, which: &Which) -> anyhow::Result<Option<Web>> {
        let address = match &self.proxy_job_tracker {
            Some(address) => Some(address.clone()),
            None => which.with_source(|source| source.load())?.finished_jobs,
        };
        Ok(address.map(|address| finished_jobs::pages(address, which.patience())))
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
        let (jobs, profiles) = block_on(async {
            let jobs = match all {
                true => caller.client.get_all_jobs().await,
                false => caller.client.jobs_to_complete().await,
            };
            // A Java job tracker inside a client returns nothing.
            let mut jobs = caller.checked(jobs)?.unwrap_or_default();
            jobs.sort_by(|a, b| job_order(&a.job, &b.job));
            let profiles = caller.profiles(&jobs).await?;
            Ok((jobs, profiles))
        })?;
        let jobs: Vec<Job> =
            jobs.iter().zip(profiles).map(|(status, profile)| job(status, profile)).collect();
        match self.output.output {
            Form::Json => console.print_json(&jobs),
            Form::Table if jobs.is_empty() && !self.all => {
                Ok(console
                    .print("No running jobs; --all lists those that have ended as well.\n")?)
            }
            Form::Table if jobs.is_empty() => Ok(console.print("No jobs.\n")?),
            Form::Table => {
                let waiting = waiting_lines(&jobs);
                let table = jobs_table(jobs).render(console, self.output.wide);
                Ok(console.print(&format!("{table}{waiting}"))?)
            }
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
                let whole = finished_jobs::table(&jobs, false);
                let table = match whole.fits(console, self.output.wide) {
                    true => whole,
                    false => finished_jobs::table(&jobs, true),
                };
                console.print(&table.render(console, self.output.wide))?;
                if total > jobs.len() {
                    console.print(&format!("{} of {total} jobs; see --limit\n", jobs.len()))?;
                }
                Ok(())
            }
        }
    }

    /// Those that the job tracker remembers, the last submitted first, and how many there are.
    fn finished_of_the_job_tracker(&self) -> anyhow::Result<(Vec<Finished>, usize)> {
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
        let total = jobs.len();
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
        let text = format!("{}\n", lines.join("\n"));
        one.output.show(console, &serde_json::json!({ "history": lines }), |_| text)
    }
}

/// The order of jobs: by session and number, so that `job_202611221033.2_0001` precedes
/// `job_202611221033.10_0001`.
fn job_order(a: &JobId, b: &JobId) -> Ordering {
    handle_order(&a.tracker, &b.tracker).then(a.number.cmp(&b.number))
}

/// Why jobs have not begun: a line for each reason, with the number of jobs.
fn waiting_lines(jobs: &[Job]) -> String {
    let mut reasons = BTreeMap::<&str, u64>::new();
    for job in jobs.iter().filter(|job| job.state == "PREP") {
        if let Some(reason) = said(&job.scheduling_info) {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let line = |(reason, count): (&str, u64)| {
        format!("{}: {}\n", counted(count, "job"), printable(reason))
    };
    reasons.into_iter().map(line).collect()
}

fn jobs_table(jobs: Vec<Job>) -> Table {
    let mut table = Table::new(&[
        Column::whole("JOB"),
        Column::whole("STATE"),
        Column::text("USER", 8),
        Column::whole("PRIORITY"),
        Column::number("MAPS"),
        Column::number("REDUCES"),
        Column::text("NAME", 12),
    ]);
    for job in jobs {
        let tone = match job.state {
            "FAILED" => Tone::Bad,
            "KILLED" => Tone::Notable,
            _ => Tone::Plain,
        };
        table.row([
            job.id.into(),
            Cell::new(job.state, tone),
            job.user.into(),
            job.priority.into(),
            percent(job.map_progress).into(),
            percent(job.reduce_progress).into(),
            job.profile.map(|profile| profile.name).unwrap_or_default().into(),
        ]);
    }
    table
}

/// The session in which a job requests its slots, as the pages of its job tracker name it; none if they do
/// not answer, as those of a Java job tracker.
fn session_of(job: &JobId, web: &WebArguments) -> Option<String> {
    let mut caller = Caller::of(web).ok()?.0;
    let profile = block_on(caller.profile(job));
    let pages = pages_at(&profile.ok()?.url, PATIENCE)?;
    let path = format!("/api/v1/jobs/{job}");
    block_on(async { Ok(pages.found::<JobDetail>(&path).await) }).ok()??.session
}

/// The address of a page for a browser: job trackers name it as in an open cluster.
pub(super) fn for_browsers(url: &str) -> String {
    match url.strip_prefix("http://").filter(|_| corona::access::is_required_of_clients()) {
        Some(rest) => format!("https://{rest}"),
        None => url.to_owned(),
    }
}

/// The pages of the job tracker whose page of a job has this address.
pub(super) fn pages_at(url: &str, timeout: Duration) -> Option<Web> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split('/').next()?;
    Some(Web::of("job tracker", authority.parse().ok()?, timeout))
}

/// Explains a job that waits for nothing: what it used, why tasks failed. Returns how it stands; none if there is
/// nothing to say.
fn explain_end(
    job: &JobId,
    output: OutputArguments,
    web: &WebArguments,
    console: &mut Console<'_>,
) -> Option<anyhow::Error> {
    let stands = how_stands(job, web)?;
    let used = if stands.is_over { used_by(job, web) } else { Vec::new() };
    if !used.is_empty() {
        let shown = output.show(console, &used, |console| {
            used::table(&used).render(console, output.wide) + used::MEANING
        });
        if let Err(error) = shown {
            return Some(error);
        }
    }
    for failure in &stands.failures {
        console.complain_wrapped(&failure.text());
    }
    Some(anyhow!("{job} {}", stands.how))
}

/// What a job that has ended used, from its history or else from its job tracker.
fn used_by(job: &JobId, web: &WebArguments) -> Vec<used::Used> {
    let Ok((mut caller, finished_jobs)) = Caller::of(web) else { return Vec::new() };
    let of_history = finished_jobs.and_then(|address| {
        used::KnownUse::of_history(&finished_jobs::pages(address, PATIENCE), job)
    });
    let known = of_history.or_else(|| {
        let profile = block_on(caller.profile(job));
        used::KnownUse::of_job_tracker(&pages_at(&profile.ok()?.url, PATIENCE)?, job)
    });
    known.map(|known| used::used(&known)).unwrap_or_default()
}

/// How a job stands that is not explained by the cluster manager.
struct Stands {
    how: String,
    is_over: bool,
    failures: Vec<Failure>,
}

/// The end of a job and the tasks that failed, from its job tracker or its history, or what the job tracker says
/// of one that runs; none if there is nothing to say, or neither knows the job.
fn how_stands(job: &JobId, web: &WebArguments) -> Option<Stands> {
    let (mut caller, finished_jobs) = Caller::of(web).ok()?;
    let known = block_on(async {
        let status = caller.client.get_job_status(job.clone()).await;
        caller.checked(status)
    });
    if let Ok(Some(status)) = known {
        if !is_over(status.run_state) {
            let how = note(&status).map(|note| match state(status.run_state) {
                "PREP" => format!("has not begun: {note}"),
                _ => format!("runs: {note}"),
            });
            return how.map(|how| Stands { how, is_over: false, failures: Vec::new() });
        }
        let ended = state(status.run_state);
        let note = note(&status).map(|note| format!(", {note}")).unwrap_or_default();
        let failures = block_on(async {
            let reports = Reports::of(&mut caller, job).await;
            anyhow::Ok(reports.failures(&mut caller, job).await)
        });
        let how = format!("has ended: {ended}{note}; see 'corona jobs info {job}'");
        let failures = failures.unwrap_or_default();
        return Some(Stands { how, is_over: true, failures });
    }
    let pages = finished_jobs::pages(finished_jobs?, PATIENCE);
    let ended = finished_jobs::state(&pages, &job.to_string())?;
    let how = format!("has ended: {ended}; see 'corona jobs history {job}'");
    Some(Stands { how, is_over: true, failures: Vec::new() })
}

impl One {
    fn info(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        let id = &self.job;
        let info = block_on(async {
            let status = caller.status(id).await?;
            let profile = caller.profile(id).await?;
            let reports = Reports::of(&mut caller, id).await;
            let (maps, reduces) = (Counts::of(&reports.maps), Counts::of(&reports.reduces));
            let ended_ms = reports.last_end_ms().filter(|_| is_over(status.run_state));
            let failures = match status.run_state {
                SUCCEEDED => Vec::new(),
                _ => reports.failures(&mut caller, id).await,
            };
            Ok(Info { job: job(&status, Some(profile)), ended_ms, maps, reduces, failures })
        })?;
        self.output.show(console, &info, |console| info.text(console))
    }

    fn counters(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        let counters = block_on(async {
            let counters = caller.client.get_job_counters(self.job.clone()).await;
            caller.known(counters, &self.job)
        })?;
        let counters = listed(counters);
        self.output.show(console, &counters, |console| {
            let table = counters_table(&counters).render(console, self.output.wide);
            let summary = summary(&counters, None);
            let gap = if summary.is_empty() { "" } else { "\n" };
            format!("{summary}{gap}{table}")
        })
    }

    /// The history is on the pages of the service, whose address is in the profile of the job.
    fn history(&self) -> anyhow::Result<String> {
        let due = self.which.patience();
        let mut caller = self.which.caller()?;
        let url = block_on(caller.profile(&self.job))?.url;
        let web = pages_at(&url, due);
        let web = web.with_context(|| format!("the page of the job is at {url:?}"))?;
        block_on(web.page(&format!("/jobs/{}/history", self.job)))
    }

    fn kill(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let mut caller = self.which.caller()?;
        block_on(async {
            // An id that is not known is no error of the call.
            caller.running(&self.job).await?;
            let killed = caller.client.kill_job(self.job.clone()).await;
            caller.checked(killed)
        })?;
        let killed = serde_json::json!({ "killed": self.job.to_string() });
        self.output.show(console, &killed, |_| format!("Killed {}\n", self.job))
    }
}

/// A job with its tasks and failures, as JSON.
#[derive(Debug, Serialize)]
struct Info {
    #[serde(flatten)]
    job: Job,
    /// When its last task ended; none of a job that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<i64>,
    maps: Counts,
    reduces: Counts,
    failures: Vec<Failure>,
}

impl Info {
    fn text(&self, console: &Console<'_>) -> String {
        let job = &self.job;
        let note = said(&job.scheduling_info);
        let profile = |of: fn(&Profile) -> &String| job.profile.as_ref().map(of).cloned();
        let ran = self.ended_ms.map(|now_ms| Ago { now_ms, then_ms: job.started_ms }.span());
        let part =
            |part: Option<f32>, counts: Counts| format!("{} ({})", percent(part), counts.text());
        let lines = [
            ("Job", Some(job.id.clone())),
            ("Name", profile(|profile| &profile.name)),
            ("User", Some(job.user.clone())),
            ("Queue", profile(|profile| &profile.queue)),
            ("State", Some(job.state.to_owned())),
            ("Priority", Some(job.priority.clone())),
            ("Submitted", Some(Date(job.started_ms).to_string())),
            ("Ended", self.ended_ms.map(|ms| Date(ms).to_string())),
            ("Ran", ran),
            ("Set-up", Some(percent(job.setup_progress))),
            ("Maps", Some(part(job.map_progress, self.maps))),
            ("Reduces", Some(part(job.reduce_progress, self.reduces))),
            ("Clean-up", Some(percent(job.cleanup_progress))),
            ("Note", note.map(str::to_owned)),
            ("Job file", profile(|profile| &profile.job_file)),
            ("Page", job.profile.as_ref().map(|profile| for_browsers(&profile.url))),
        ];
        let mut text = String::new();
        for (label, value) in lines {
            if let Some(value) = value {
                text.push_str(&format!("{:<12} {}\n", format!("{label}:"), printable(&value)));
            }
        }
        for failure in &self.failures {
            text.push('\n');
            text.push_str(&wrapped(&failure.text(), "", console.width));
        }
        text
    }
}

impl SetPriority {
    /// The call of the original's clients. Job trackers ignore it for a job that has ended.
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let One { job, output, which } = self.one;
        let priority = self.priority.to_possible_value();
        let priority = priority.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut caller = which.caller()?;
        let before = block_on(async {
            let status = caller.running(&job).await?;
            let set = caller.client.set_job_priority(job.clone(), priority.clone()).await;
            caller.checked(set)?;
            Ok(status.priority.to_string())
        })?;
        let done = serde_json::json!({
            "job": job.to_string(),
            "priority": priority,
            "before": before,
        });
        let text = format!("Priority of {job}: {priority} (was {before})\n");
        output.show(console, &done, |_| text)
    }
}

impl Tasks {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let One { job, output, which } = self.one;
        let mut caller = which.caller()?;
        let kind = self.kind;
        let (reports, has_none) = block_on(async {
            let state = caller.status(&job).await?.run_state;
            let reports = caller.reports(kind, &job).await;
            let reports = caller.checked(reports)?.unwrap_or_default();
            let has_none =
                reports.is_empty() && is_over(state) && caller.has_no_tasks(&job).await?;
            anyhow::Ok((reports, has_none))
        })?;
        let tasks: Vec<Task> = reports.into_iter().map(task).collect();
        match output.output {
            Form::Json => console.print_json(&tasks),
            Form::Table if has_none => Ok(console.print(&format!(
                "No tasks are kept of {job}; see 'corona jobs history {job}'.\n"
            ))?),
            Form::Table if tasks.is_empty() => Ok(console.print("No tasks.\n")?),
            Form::Table => {
                let mut table = Table::new(&[
                    Column::whole("TASK"),
                    Column::whole("STATE"),
                    Column::number("PROGRESS"),
                    Column::text("STATUS", 20),
                ]);
                let mut errors = String::new();
                for task in tasks {
                    errors.push_str(&errors_of(&task, console.width.filter(|_| !output.wide)));
                    table.row([
                        task.id.into(),
                        task.state.into(),
                        percent(Some(task.progress)).into(),
                        task.status.into(),
                    ]);
                }
                let table = table.render(console, output.wide);
                Ok(console.print(&format!("{table}{errors}"))?)
            }
        }
    }
}

/// The errors of the attempts of a task in whole: those that repeat the one before are left out.
fn errors_of(task: &Task, width: Option<usize>) -> String {
    let mut errors: Vec<&str> = task.diagnostics.iter().map(|error| error.trim_end()).collect();
    errors.dedup();
    if errors.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}:\n", task.id);
    for error in errors {
        let lines: Vec<_> = error.lines().map(printable).collect();
        text.push_str(&wrapped(&lines.join("\n"), "  ", width));
    }
    text
}

/// How calls are repeated while the job tracker cannot be reached, as during a restart. The calls of a client
/// can all be repeated: the second submission of a job only returns its status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    /// For how long.
    within: Duration,
    /// The same while there is no connection.
    until_connected: Duration,
    /// Whether the user has chosen the time, so that nothing takes longer.
    is_bound: bool,
}

impl Retry {
    /// Makes a call until it is answered.
    pub(super) async fn again<T>(
        self,
        mut call: impl AsyncFnMut() -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let began = tokio::time::Instant::now();
        loop {
            let left = self.within.saturating_sub(began.elapsed());
            let error = match tokio::time::timeout(left, call()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                // This call may have arrived, however earlier ones ended.
                Err(_) => return Err(CallError::Timeout(self.within)),
            };
            let most = if error.is_connect() { self.until_connected } else { self.within };
            if error.is_answer() || began.elapsed() + RETRY_PAUSE > most {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// The same for a call that waits for the cluster manager too: a job tracker that takes long is asked again
    /// for as long as it takes, unless the user has chosen a time.
    pub(super) async fn patiently<T>(
        self,
        mut call: impl AsyncFnMut() -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        loop {
            match self.again(&mut call).await {
                Err(CallError::Timeout(_)) if !self.is_bound => {}
                answer => return answer,
            }
        }
    }
}

/// States of jobs on the wire.
const RUNNING: i32 = 1;
const SUCCEEDED: i32 = 2;
const FAILED: i32 = 3;
const PREPARING: i32 = 4;
const KILLED: i32 = 5;
/// Jobs of a list whose names are asked for.
const MOST_PROFILES: usize = 1_000;

/// Whether a job in this state has ended.
pub(super) fn is_over(run_state: i32) -> bool {
    !matches!(run_state, RUNNING | PREPARING)
}

pub(super) fn state(run_state: i32) -> &'static str {
    match run_state {
        RUNNING => "RUNNING",
        SUCCEEDED => "SUCCEEDED",
        FAILED => "FAILED",
        PREPARING => "PREP",
        KILLED => "KILLED",
        _ => "UNKNOWN",
    }
}

/// How far a part of a job is. Job trackers say that all parts of a job that failed or was killed are
/// complete, so nothing is known of them.
fn progress(status: &JobStatus, part: f32) -> Option<f32> {
    (!matches!(status.run_state, FAILED | KILLED)).then_some(part)
}

fn percent(part: Option<f32>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", f64::from(part) * 100.0))
}

fn job(status: &JobStatus, profile: Option<JobProfile>) -> Job {
    Job {
        id: status.job.to_string(),
        state: state(status.run_state),
        user: status.user.clone(),
        priority: status.priority.to_string(),
        started_ms: status.start_time_ms,
        setup_progress: progress(status, status.setup_progress),
        map_progress: progress(status, status.map_progress),
        reduce_progress: progress(status, status.reduce_progress),
        cleanup_progress: progress(status, status.cleanup_progress),
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
    said(&status.scheduling_info)
}

fn said(scheduling_info: &str) -> Option<&str> {
    Some(scheduling_info).filter(|info| !matches!(*info, "" | "NA"))
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
        let group = counter.group_name.trim().to_owned();
        table.row([group.into(), counter.name.clone().into(), value.into()]);
    }
    table
}

/// All counters, by group and name.
pub(super) fn listed(counters: Counters) -> Vec<Counter> {
    let mut all: Vec<Counter> = counters
        .groups
        .into_iter()
        .flat_map(|group| {
            let (name, group_name) = (group.name, group.display_name);
            group.counters.into_iter().map(move |counter| Counter {
                group: name.clone(),
                group_name: group_name.clone(),
                display_name: counter.display_name.unwrap_or_else(|| counter.name.clone()),
                name: counter.name,
                value: counter.value,
            })
        })
        .collect();
    all.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(id: &str, run_state: i32) -> JobStatus {
        JobStatus {
            job: id.parse().unwrap(),
            setup_progress: 1.0,
            map_progress: 1.0,
            reduce_progress: 1.0,
            cleanup_progress: 1.0,
            run_state,
            start_time_ms: 1,
            user: "alice".to_owned(),
            priority: corona::hadoop::writables::JobPriority::Normal,
            scheduling_info: "NA".to_owned(),
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        which: Which,
    }

    #[test]
    fn calls_for_files_take_no_longer_than_the_timeout() {
        use clap::Parser;
        let times = |more: &[&str]| {
            let files = Line::parse_from([&["x"], more].concat()).which.file_systems().unwrap();
            [
                files.call_timeout,
                files.connect_patience,
                files.socket_timeout,
                files.object_patience,
            ]
        };
        let usual = times(&[]);
        assert_eq!(times(&["--timeout", "2"]), usual.map(|time| time.min(Duration::from_secs(2))));
        assert!(usual.iter().all(|time| *time > Duration::from_secs(2)), "{usual:?}");
        assert_eq!(times(&["--timeout", "60000"]), usual);
    }

    #[test]
    fn the_job_tracker_is_the_configured_one_and_the_default_is_named_as_such() {
        use clap::Parser;
        let conf = tempfile::tempdir().unwrap();
        let who = |more: &[&str]| {
            let line = [&["x", "--conf-dir", conf.path().to_str().unwrap()], more].concat();
            let caller = Line::parse_from(line).which.caller();
            caller.map(|caller| caller.who).map_err(|error| format!("{error:#}"))
        };
        let default = "the job tracker at localhost:8021 (the default: no configuration names one)";
        for (more, expected) in [
            (&[][..], Ok(default)),
            (&["--job-tracker", "localhost:8021"], Ok("the job tracker at localhost:8021")),
            (&["-D", "corona.jt.address=h:1"], Ok("the job tracker at h:1")),
            (
                &["-D", "mapred.job.tracker=h:1"],
                Err(
                    "-D mapred.job.tracker=h:1 does not choose the job tracker of this command; use \
                     --job-tracker h:1",
                ),
            ),
        ] {
            assert_eq!(who(more).as_deref().map_err(|error| &**error), expected, "{more:?}");
        }
    }

    #[test]
    fn a_directory_above_that_of_the_configuration_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        assert!(without_site(dir.path()).contains("name the directory that has it"));
        std::fs::create_dir(dir.path().join("conf")).unwrap();
        std::fs::write(dir.path().join("conf/core-site.xml"), "").unwrap();
        let hint = without_site(dir.path());
        let expected = format!("use --conf-dir {}", dir.path().join("conf").display());
        assert!(hint.ends_with(&expected), "{hint}");
        assert_eq!(without_site(&dir.path().join("conf")), NOTHING_LISTENS);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_repeated_within_their_time() {
        use std::io::ErrorKind::ConnectionRefused;
        let seconds = Duration::from_secs;
        let refused = || CallError::Connect {
            address: InetAddress { host: "h".to_owned(), port: 1 },
            error: ConnectionRefused.into(),
        };
        let usual = Retry { within: seconds(60), until_connected: seconds(60), is_bound: false };
        let named = Retry { within: seconds(5), until_connected: seconds(5), is_bound: true };
        let unknown = Retry { until_connected: seconds(2), ..usual };
        for (retry, most) in [(usual, 60), (named, 5), (unknown, 2)] {
            let began = tokio::time::Instant::now();
            let ended = retry.patiently(async || Err::<(), _>(refused())).await;
            assert!(ended.is_err_and(|error| error.is_connect()), "{retry:?}");
            let took = began.elapsed();
            assert!(seconds(most - 1) <= took && took <= seconds(most), "{retry:?}: {took:?}");
        }
        // One that does not answer.
        let silent = async || {
            tokio::time::sleep(seconds(50)).await;
            Err::<(), _>(CallError::Timeout(seconds(50)))
        };
        let began = tokio::time::Instant::now();
        let ended = named.patiently(silent).await;
        assert!(matches!(ended, Err(CallError::Timeout(_))), "{ended:?}");
        assert_eq!(began.elapsed(), seconds(5));
        // One that answers late, and was reached before.
        let mut calls = 0;
        let late = async || {
            calls += 1;
            match calls {
                1 => Err(CallError::Timeout(seconds(50))),
                2..20 => Err(refused()),
                _ => Ok(calls),
            }
        };
        assert_eq!(usual.patiently(late).await.unwrap(), 20);
    }

    #[test]
    fn errors_of_attempts_are_shown_once_and_in_whole() {
        let of = |diagnostics: &[&str]| Task {
            id: "task_1".to_owned(),
            state: "FAILED",
            attempts: vec![],
            progress: 0.0,
            started_ms: 0,
            finished_ms: 0,
            status: String::new(),
            diagnostics: diagnostics.iter().map(|text| (*text).to_owned()).collect(),
        };
        let task = of(&["no luck at all\n", "no luck at all\n", "Traceback:\n    line 1\u{1b}"]);
        let expected = "\ntask_1:\n  no luck at\n  all\n  Traceback:\n      line\n      1\\u{1b}\n";
        assert_eq!(errors_of(&task, Some(12)), expected);
        assert_eq!(errors_of(&of(&[]), Some(80)), "");
    }

    #[test]
    fn jobs_are_in_the_order_of_their_numbers() {
        let sorted = [
            "job_202611221033.2_0001",
            "job_202611221033.10_0001",
            "job_202611221033.10_0002",
            "job_202611221033.10_10000",
            "job_202611230000.1_0001",
        ];
        let mut ids: Vec<JobId> = sorted.iter().rev().map(|id| id.parse().unwrap()).collect();
        ids.sort_by(job_order);
        assert_eq!(ids.iter().map(ToString::to_string).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn nothing_is_known_of_the_progress_of_a_job_that_did_not_succeed() {
        for (run_state, map_progress, shown) in
            [(1, Some(1.0), "100 %"), (2, Some(1.0), "100 %"), (3, None, "-"), (5, None, "-")]
        {
            let job = job(&status("job_202611221033.2_0001", run_state), None);
            assert_eq!(job.map_progress, map_progress, "{run_state}");
            assert_eq!(percent(job.map_progress), shown);
        }
    }
}
