//! `corona load jobs`: whole jobs through a job tracker service.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use corona::access::use_in_clients;
use corona::load::{JobTrackersPlan, JobsPlan, JobsReport, median, number, run_jobs};

use super::Form;
use crate::commands::EXIT_FAILED;
use crate::commands::closed::required;
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  Launches per second of one large job:
    corona load jobs --address localhost:9090 --job-tracker localhost:8021 \\
        --nodes 1000 --maps 100000
  500 small jobs at once, with tasks of two seconds:
    corona load jobs --address localhost:9090 --job-tracker localhost:8021 \\
        --nodes 1000 --jobs 500 --maps 10 --reduces 1 --task-ms 2000

Exit status: 0 all jobs succeeded; 1 they did not, or the run could not begin;
2 wrong usage.";

/// Run whole jobs on emulated task trackers, through a job tracker service
///
/// The task trackers join the cluster manager, take the job tracker's launches
/// over Hadoop RPC, and report that each task has succeeded. Emulated clients
/// submit the jobs, all at once, and follow them. The directory for the files
/// of jobs (corona.system.dir) must be on this machine. Use it only on a
/// cluster without other users.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Address of the cluster manager (cm.server.address)
    #[arg(long, value_name = "HOST:PORT")]
    address: String,

    /// Address of the job tracker (corona.jt.address)
    #[arg(long, value_name = "ADDRESS")]
    job_tracker: String,

    /// Emulated task trackers
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,

    /// CPUs of each, for which the cluster manager's configuration says the
    /// slots
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(i16).range(1..))]
    cpus: i16,

    /// Jobs
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    jobs: u32,

    /// Maps of each job
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    maps: u32,

    /// Reduces of each job
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    reduces: u32,

    /// How long each task takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    task_ms: u64,

    /// Have job trackers on the emulated nodes run the jobs; processes of this
    /// program with the configuration of this directory
    #[arg(long, value_name = "DIR")]
    remote_conf_dir: Option<PathBuf>,

    /// Kill the job tracker of each job when half of its maps have succeeded
    #[arg(long, requires = "remote_conf_dir")]
    lose_job_tracker: bool,

    /// Nodes to lose when half of all maps have succeeded, in percent
    ///
    /// The cluster manager notices after cm.node.expiryinterval.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=50))]
    lose_nodes: u32,

    /// How long the jobs may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    seconds: u64,

    /// Directory of a certificate of the cluster, with which all connections are
    /// TLS: that of an administrator
    #[arg(long, value_name = "DIR")]
    tls_directory: Option<PathBuf>,

    /// Process id of the job tracker, to report its memory and CPU time
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Output as text for people or as JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    output: Form,
}

/// Makes the run and prints the report.
pub(super) fn run(arguments: &Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &arguments.tls_directory {
        use_in_clients(&required(directory))?;
    }
    let directory = arguments.remote_conf_dir.as_ref().map(|_| tempfile::tempdir());
    let directory = directory.transpose().context("cannot make a directory")?;
    let job_trackers = match (&arguments.remote_conf_dir, &directory) {
        (Some(conf), Some(directory)) => Some(JobTrackersPlan {
            command: job_tracker_command(conf)?,
            directory: directory.path().to_owned(),
            lose_first: arguments.lose_job_tracker,
        }),
        _ => None,
    };
    let plan = JobsPlan {
        manager: resolve(&arguments.address)?,
        job_tracker: resolve(&arguments.job_tracker)?,
        nodes: arguments.nodes,
        cpus: arguments.cpus,
        jobs: arguments.jobs,
        maps: arguments.maps,
        reduces: arguments.reduces,
        task: Duration::from_millis(arguments.task_ms),
        patience: Duration::from_secs(arguments.seconds),
        process_id: arguments.pid,
        job_trackers,
        lose_nodes: arguments.lose_nodes,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the threads of the load")?;
    let report = runtime.block_on(run_jobs(plan))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    match arguments.output {
        Form::Json => console.print(&(serde_json::to_string(&report)? + "\n"))?,
        Form::Text => console.print(&text(&report))?,
    }
    let good = report.errors.is_empty() && report.succeeded == arguments.jobs as usize;
    Ok(ExitCode::from(if good { 0 } else { EXIT_FAILED }))
}

/// What starts a job tracker of one job, before the arguments that name the job.
fn job_tracker_command(conf: &Path) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let conf = conf.canonicalize().with_context(|| format!("cannot use {}", conf.display()))?;
    Ok(vec![
        program.display().to_string(),
        "job-tracker".to_owned(),
        "--remote".to_owned(),
        "--conf-dir".to_owned(),
        conf.display().to_string(),
    ])
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let mut found =
        address.to_socket_addrs().with_context(|| format!("cannot resolve {address}"))?;
    found.next().with_context(|| format!("{address} has no address"))
}

fn text(report: &JobsReport) -> String {
    let plan = &report.plan;
    let mut text = format!(
        "{} of {} jobs succeeded, each of {} maps and {} reduces of {} ms, on {} nodes\n",
        report.succeeded,
        plan.jobs,
        number(plan.maps.into()),
        number(plan.reduces.into()),
        plan.task.as_millis(),
        number(plan.nodes.into()),
    );
    text += &format!(
        "launches                 {} in {:.2} s, {} per second\n",
        number(report.launches),
        report.launch_seconds,
        number(report.launches_per_second() as u64),
    );
    let median_ms = median(&report.submit_to_end_ms);
    text += &format!(
        "submit to end            {median_ms:.0} ms at the median, {:.0} ms at most",
        report.submit_to_end_ms.last().copied().unwrap_or(0.0),
    );
    if report.own_ms > 0.0 {
        let ratio = median_ms / report.own_ms;
        text += &format!("; the tasks take {:.0} ms, ratio {ratio:.2}", report.own_ms);
    }
    text += &format!(
        "\nlast report to clean-up   {:.2} ms at the median\n",
        median(&report.report_to_action_us) / 1e3
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    if let Some((idle, used)) = report.idle.zip(report.process) {
        text += &format!(
            "memory of the job tracker {:.1} MiB before, {:.1} MiB at the end, {:.1} MiB at most; {:.1} s of CPU, {} threads\n",
            mib(idle.resident_bytes),
            mib(used.resident_bytes),
            mib(used.peak_resident_bytes),
            used.cpu_seconds - idle.cpu_seconds,
            used.threads,
        );
    }
    if let Some(remote) = report.remote {
        text += &format!(
            "job tracker on a node     {:.1} MiB at the end of its job, {:.1} MiB at most, {:.1} s of CPU\n",
            mib(remote.resident_bytes),
            mib(remote.peak_resident_bytes),
            remote.cpu_seconds,
        );
    }
    if !report.fail_over_ms.is_empty() {
        text += &format!(
            "loss to next launch       {:.0} ms at the median, {:.0} ms at most\n",
            median(&report.fail_over_ms),
            report.fail_over_ms.last().copied().unwrap_or(0.0),
        );
    }
    if plan.job_trackers.is_some() || report.lost_nodes > 0 {
        text += &format!(
            "finished maps run again   {}, {} nodes lost\n",
            number(report.repeated),
            number(report.lost_nodes.into()),
        );
    }
    for error in &report.errors {
        text += &format!("WRONG: {error}\n");
    }
    text
}
