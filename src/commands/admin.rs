//! `corona admin`: administrative calls to a cluster manager, like the original's CoronaAdmin.
//!
//! The texts are the original's. Unlike the original's, the exit status shows whether the call
//! succeeded, and a second line gives the reason of a failure. Spec: cluster-manager/06 §7.3, 09
//! 7.15.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use corona::api::cluster as api;
use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTrackerCall,
    ProxyJobTrackerReply,
};
use corona::wire::generated::RestartNodesArgs;

use serde::Serialize;
use serde::de::IgnoredAny;

use super::EXIT_FAILED;
use super::cluster::{CallAndPageArguments, Cluster, ClusterArguments, block_on, mismatch};
use super::rolling;
use super::status::{self, ShownArguments};
use super::upgrade_check;
use super::watch::parse_seconds;
use super::web::{Answer, Web};
use corona_terminal::console::{Console, FormArguments, TextForm, printable};

const EXAMPLES: &str = "\
Examples:
  Check whether safe mode is on, and which calls failed last:
    corona admin status
  Save the state before replacing the cluster manager, with jobs running:
    corona admin set-safe-mode && corona admin persist-state
  Reload the host files after a change:
    corona admin refresh-nodes
  Before and after an upgrade: who runs which version, and what comes next:
    corona admin upgrade-check
  Restart the task trackers of all nodes, with their tasks going on:
    corona admin restart-nodes --rolling
  The same as the original does it, 50 at a time:
    corona admin restart-nodes --batch 50

The spellings of the original are accepted too: -setSafeMode, -unsetSafeMode,
-persistState, -refreshNodes, -restartTaskTracker [n],
-forceRestartTaskTracker [n], -forceSetSafeModeOnPJT,
-forceUnsetSafeModeOnPJT, -help [cmd], after -conf FILE and -D KEY=VALUE.

Exit status: 0 done; 1 not done: stderr has the original's line, and then one
with the reason; 2 wrong usage.";

/// Administer a cluster manager: safe mode, state, nodes
///
/// Calls any cluster manager, the original or this one, at the configured cm.server.address. Prints
/// the same texts as the original's CoronaAdmin.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(super) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Show safe mode, uptime, sessions, nodes, state file and problems
    ///
    /// The same as 'corona status'. Of an original cluster manager it shows
    /// the data of its calls and its page.
    Status(Status),
    /// Turn safe mode on: no slots are granted, and sessions have to wait
    ///
    /// The proxy job tracker is notified first; if that fails, safe mode stays off.
    SetSafeMode(Plain),
    /// Turn safe mode off
    ///
    /// The proxy job tracker is notified too; if that fails, safe mode is off
    /// only in the cluster manager, and the command fails.
    UnsetSafeMode(Plain),
    /// Write the state file; requires safe mode
    PersistState(Plain),
    /// Reload the include and exclude host files
    RefreshNodes(Plain),
    /// Restart the task trackers of all nodes, in batches
    ///
    /// As the original: the cluster manager gives up the nodes of a batch, their
    /// tasks end, and run again elsewhere. With --rolling tasks go on: nodes
    /// that can start again in place, and others drain first. No queue lacks more
    /// than --share of its slots at a time, and one node may always be away. The
    /// command shows what it does until it is done. Exit status: 0 all nodes have
    /// restarted; 1 some have not; 130 Ctrl-C, which undoes drains.
    RestartNodes(Restart),
    /// Have the leader hand over to a standby
    ///
    /// The leader answers the calls in flight, waits until the standby has
    /// everything, and becomes a standby itself. It is refused if no standby may
    /// take over. Needs the address of the leader's pages.
    StepDown(Plain),
    /// List the versions of all daemons, and how to upgrade those that differ
    ///
    /// Asks the pages of the instances of the cluster manager, of the proxy job
    /// tracker, the job tracker and the nodes. Gateways have no pages. Lists what
    /// to restart in which order, and what an earlier version would not read if it
    /// were started again. Exit status: 0 all daemons have the version of this
    /// program; 1 one has another version, or does not answer.
    UpgradeCheck(upgrade_check::Arguments),
    /// Turn safe mode on in the proxy job tracker only
    ///
    /// For a proxy job tracker that was down when safe mode was set. --address
    /// overrides corona.proxy.job.tracker.thriftaddr.
    #[command(name = "force-set-safe-mode-on-pjt")]
    ForceSetSafeModeOnPjt(Plain),
    /// Turn safe mode off in the proxy job tracker only
    ///
    /// --address overrides corona.proxy.job.tracker.thriftaddr.
    #[command(name = "force-unset-safe-mode-on-pjt")]
    ForceUnsetSafeModeOnPjt(Plain),
}

#[derive(Args, Clone, Debug)]
struct Status {
    #[command(flatten)]
    shown: ShownArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// An action without options of its own.
#[derive(Args, Clone, Debug)]
struct Plain {
    #[command(flatten)]
    form: FormArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

#[derive(Args, Clone, Debug)]
struct Restart {
    /// Nodes that restart together [default: corona.node.restart.batch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    batch: Option<i32>,

    /// Discard nodes that still wait for an earlier restart
    #[arg(long)]
    force: bool,

    /// Let tasks go on, or end: restart in place, or after a drain
    #[arg(long, conflicts_with_all = ["batch", "force"])]
    rolling: bool,

    /// With --rolling: the most that any queue lacks of its slots at a time, and
    /// the cluster of all slots
    #[arg(long, value_name = "PERCENT", default_value_t = 10, requires = "rolling")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    share: u8,

    /// With --rolling: how long a node drains at most; tasks that still run then
    /// run again elsewhere
    #[arg(long, value_name = "SECONDS", default_value = "1800", requires = "rolling")]
    #[arg(value_parser = parse_seconds)]
    wait: Duration,

    /// With --rolling: only these nodes, or all nodes of these hosts
    #[arg(value_name = "NODE", requires = "rolling")]
    nodes: Vec<String>,

    #[command(flatten)]
    form: FormArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// Calls the cluster manager and prints the result.
///
/// # Errors
/// When the cluster manager cannot be reached or does not reply.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let Arguments { cluster: before, action } = arguments;
    let (operation, form, behind) = match action {
        Action::Status(Status { shown, cluster }) => {
            let (cluster, pages) = cluster.after(before).find()?;
            return status::show(&cluster, pages.as_ref(), shown, console);
        }
        Action::SetSafeMode(Plain { form, cluster }) => {
            (Operation::SetSafeMode(true), form, cluster)
        }
        Action::UnsetSafeMode(Plain { form, cluster }) => {
            (Operation::SetSafeMode(false), form, cluster)
        }
        Action::PersistState(Plain { form, cluster }) => (Operation::PersistState, form, cluster),
        Action::RefreshNodes(Plain { form, cluster }) => (Operation::RefreshNodes, form, cluster),
        Action::RestartNodes(Restart {
            rolling: true, share, wait, nodes, form, cluster, ..
        }) => {
            let (_, pages) = cluster.after(before).find()?;
            let pages =
                pages.context("the address of the pages is not known: add --http-address")?;
            let wanted = rolling::Wanted { share, wait, names: nodes };
            return block_on(rolling::run(&pages, wanted, form.output, console));
        }
        Action::RestartNodes(Restart { batch, force, form, cluster, .. }) => {
            (Operation::RestartNodes { batch, force }, form, cluster)
        }
        Action::StepDown(Plain { form, cluster }) => {
            let (_, pages) = cluster.after(before).find()?;
            let outcome = block_on(step_down(pages))?;
            return show(&outcome, form.output, console);
        }
        Action::UpgradeCheck(check) => return check.run(before, console),
        Action::ForceSetSafeModeOnPjt(Plain { form, cluster }) => {
            (Operation::ForceOnPjt(true), form, cluster)
        }
        Action::ForceUnsetSafeModeOnPjt(Plain { form, cluster }) => {
            (Operation::ForceOnPjt(false), form, cluster)
        }
    };
    let (cluster, pages) = behind.after(before).find()?;
    let outcome = block_on(async {
        let mut outcome = operation.perform(&cluster).await?;
        if let (Operation::RefreshNodes, Outcome::Done(text)) = (operation, &mut outcome) {
            let files = match &pages {
                Some(pages) => status::host_files(pages).await,
                None => None,
            };
            *text =
                files.filter(|files| !files.is_empty()).unwrap_or_else(|| READ_AGAIN.to_owned());
        }
        if let Outcome::NotDone { why: why @ None, .. } = &mut outcome {
            *why = operation.why_not(&cluster, pages.as_ref()).await;
        }
        Ok(outcome)
    })?;
    show(&outcome, form.output, console)
}

fn show(outcome: &Outcome, form: TextForm, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let (report, status) = match outcome {
        Outcome::Done(text) => {
            if form == TextForm::Text {
                console.print(&printable_lines(text))?;
            }
            let message = Some(text.trim_end()).filter(|text| !text.is_empty());
            (Report { done: true, message, reason: None }, ExitCode::SUCCESS)
        }
        Outcome::NotDone { text, why } => {
            console.complain(&format!("{text}\n"));
            if let Some(why) = why {
                console.complain(&format!("{}\n", printable(why)));
            }
            let message = Some(text.trim_end());
            (Report { done: false, message, reason: why.as_deref() }, ExitCode::from(EXIT_FAILED))
        }
    };
    if form == TextForm::Json {
        console.print_json(&report)?;
    }
    Ok(status)
}

/// Text with names from a peer, line by line.
fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    done: bool,
    /// The original's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The result of an action.
enum Outcome {
    /// It succeeded; text for stdout.
    Done(String),
    /// It failed, as the peer reports.
    NotDone {
        /// Text for stderr, with the original's wording.
        text: String,
        /// The reason, on a separate line.
        why: Option<String>,
    },
}

impl Outcome {
    fn done(text: &str) -> Outcome {
        Outcome::Done(text.to_owned())
    }

    fn not_done(text: impl Into<String>) -> Outcome {
        Outcome::NotDone { text: text.into(), why: None }
    }
}

/// An administrative call.
#[derive(Clone, Copy, Debug)]
enum Operation {
    SetSafeMode(bool),
    PersistState,
    RefreshNodes,
    RestartNodes { batch: Option<i32>, force: bool },
    ForceOnPjt(bool),
}

impl Operation {
    async fn perform(self, cluster: &Cluster) -> anyhow::Result<Outcome> {
        match self {
            Operation::SetSafeMode(on) => set_safe_mode(cluster, on).await,
            Operation::PersistState => persist_state(cluster).await,
            Operation::RefreshNodes => unless_in_safe_mode(
                cluster.cluster_manager().await?.call(&Call::RefreshNodes).await?,
            ),
            Operation::RestartNodes { batch, force } => {
                let configured =
                    || i32::try_from(cluster.settings.restart_batch).unwrap_or(i32::MAX);
                let batch_size = batch.unwrap_or_else(configured);
                let call =
                    Call::RestartNodes { args: Some(RestartNodesArgs { force, batch_size }) };
                unless_in_safe_mode(cluster.cluster_manager().await?.call(&call).await?)
            }
            Operation::ForceOnPjt(on) => Ok(force_on_pjt(cluster, on).await),
        }
    }

    /// The call's name in a cluster manager's status.
    fn name(self) -> &'static str {
        match self {
            Operation::SetSafeMode(true) => "set_safe_mode",
            Operation::SetSafeMode(false) => "unset_safe_mode",
            Operation::PersistState => "persist_state",
            Operation::RefreshNodes => "refresh_nodes",
            Operation::RestartNodes { .. } => "restart_nodes",
            Operation::ForceOnPjt(_) => "",
        }
    }

    /// The reason of the failure: from the cluster manager's pages if they have one, else derived
    /// from the reply, which is all that the original has.
    async fn why_not(self, cluster: &Cluster, pages: Option<&Web>) -> Option<String> {
        if let Some(pages) = pages
            && let Some(reason) = status::reason_of_failure(pages, self.name()).await
        {
            return Some(reason);
        }
        let why = match self {
            Operation::SetSafeMode(true) => {
                "The proxy job tracker could not be notified, so safe mode has not changed; the cluster manager's log says why."
            }
            Operation::SetSafeMode(false) => {
                "Safe mode is off in the cluster manager, but the proxy job tracker could not be \
                 notified, so clients keep waiting; the cluster manager's log says why."
            }
            Operation::PersistState => match is_in_safe_mode(cluster).await? {
                false => "It is not in safe mode: 'corona admin set-safe-mode' turns it on.",
                true => "The state file cannot be written; the cluster manager's log says why.",
            },
            Operation::RefreshNodes | Operation::RestartNodes { .. } => {
                "'corona admin unset-safe-mode' turns it off."
            }
            Operation::ForceOnPjt(_) => return None,
        };
        Some(why.to_owned())
    }
}

/// What is known of the host files where the pages do not show them.
const READ_AGAIN: &str = "The cluster manager has read its host files again. What they have is on its pages (--http-address).\n";

/// How long another instance may take to lead after the leader was asked to hand over.
const SUCCESSOR: Duration = Duration::from_secs(30);

async fn step_down(pages: Option<Web>) -> anyhow::Result<Outcome> {
    let pages =
        pages.context("the address of the leader's pages is not known: add --http-address")?;
    // A leader is asked by its own address: another one is not asked instead.
    if let Ok(Some(standby)) = pages.standby().await {
        bail!("{}: {}", pages.who(), standby.error);
    }
    let before = leadership(&pages).await.context("the pages show no leader")?;
    match pages.send_form::<IgnoredAny>("/api/v1/step-down", &[]).await? {
        Answer::Found(_) => {}
        Answer::NotFound(why) => bail!("{why}"),
        Answer::NoApi => bail!("{} know no fail-over", pages.who()),
    }
    let deadline = Instant::now() + SUCCESSOR;
    loop {
        // The pages of the former leader are away for a moment.
        if let Some((instance, epoch)) = leadership(&pages).await.filter(|now| now.1 > before.1) {
            return Ok(Outcome::Done(format!("{instance} leads, with epoch {epoch}\n")));
        }
        if Instant::now() > deadline {
            let text = format!(
                "{} was asked to hand over, but no other instance leads after {} s",
                before.0,
                SUCCESSOR.as_secs()
            );
            return Ok(Outcome::not_done(text));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The leading instance, as far as these pages know, and the number of its leadership.
async fn leadership(pages: &Web) -> Option<(String, u64)> {
    let pages = pages.within(Duration::from_secs(2));
    if let Ok(Some(standby)) = pages.standby().await {
        return standby.ha.leader.zip(standby.ha.epoch);
    }
    let status = pages.found::<api::Status>("/api/v1/status").await?;
    status.ha.filter(|ha| ha.role == "leader").map(|ha| (ha.instance, ha.epoch))
}

/// None if the cluster manager does not report it.
async fn is_in_safe_mode(cluster: &Cluster) -> Option<bool> {
    match cluster.cluster_manager().await.ok()?.call(&Call::GetSessions).await.ok()? {
        Ok(_) => Some(false),
        Err(Exception::SafeMode(_)) => Some(true),
        Err(_) => None,
    }
}

async fn set_safe_mode(cluster: &Cluster, on: bool) -> anyhow::Result<Outcome> {
    let call = Call::SetSafeMode { safe_mode: on };
    match cluster.cluster_manager().await?.call(&call).await?? {
        Reply::SetSafeMode(true) if on => Ok(Outcome::done("The safeMode is: ON\n")),
        Reply::SetSafeMode(true) => Ok(Outcome::done("The safeMode is: OFF\n")),
        Reply::SetSafeMode(false) => Ok(Outcome::not_done("Could not set the safeMode flag")),
        _ => Err(mismatch()),
    }
}

async fn persist_state(cluster: &Cluster) -> anyhow::Result<Outcome> {
    match cluster.cluster_manager().await?.call(&Call::PersistState).await?? {
        Reply::PersistState(true) => Ok(Outcome::done("")),
        // With a blank at the end, as the original has it.
        Reply::PersistState(false) => {
            Ok(Outcome::not_done("Persisting Cluster Manager state failed. "))
        }
        _ => Err(mismatch()),
    }
}

/// For calls without a result that are refused in safe mode.
fn unless_in_safe_mode(answer: Result<Reply, Exception>) -> anyhow::Result<Outcome> {
    match answer {
        Ok(_) => Ok(Outcome::done("")),
        Err(Exception::SafeMode(_)) => Ok(Outcome::not_done("ClusterManager is in Safe Mode")),
        Err(other) => Err(other.into()),
    }
}

/// Errors of any kind are reported with the original's wording.
async fn force_on_pjt(cluster: &Cluster, on: bool) -> Outcome {
    let tell = async {
        let call = ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag: on };
        match cluster.proxy_job_tracker().await?.call(&call).await?? {
            ProxyJobTrackerReply::SetClusterManagerSafeModeFlag => Ok(()),
            _ => Err(mismatch()),
        }
    };
    match tell.await {
        Ok(()) => Outcome::done(""),
        Err(error) => {
            Outcome::not_done(format!("Could not set the Safe Mode flag on the PJT: {error:#}"))
        }
    }
}
