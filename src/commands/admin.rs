//! `corona admin`: what an operator tells a cluster manager, as CoronaAdmin does.
//!
//! Texts are the original's. The exit status says what happened, which the original's does not.
//! Spec: cluster-manager/06 §7.3, 09 7.15.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTrackerCall,
    ProxyJobTrackerReply,
};
use corona::wire::generated::RestartNodesArgs;

use super::EXIT_FAILED;
use super::cluster::{Cluster, ClusterArguments, block_on, mismatch};
use super::console::Console;

const EXAMPLES: &str = "\
Examples:
  Before the cluster manager is replaced, with jobs running:
    corona admin set-safe-mode && corona admin persist-state
  After hosts were added to the include file or the exclude file:
    corona admin refresh-nodes
  New task trackers on all nodes, 50 at a time:
    corona admin restart-nodes --batch 50

The spellings of the original are accepted too: -setSafeMode, -unsetSafeMode,
-persistState, -refreshNodes, -restartTaskTracker [n],
-forceRestartTaskTracker [n], -forceSetSafeModeOnPJT,
-forceUnsetSafeModeOnPJT, -help [cmd], after -conf FILE and -D KEY=VALUE.

Exit status: 0 done; 1 not done, with one line on stderr; 2 wrong usage.";

/// Operate a cluster manager: safe mode, state, nodes
///
/// Speaks to any cluster manager, the original or this one, at
/// cm.server.address of the configuration. Prints what the original's
/// CoronaAdmin prints.
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
    /// Turn safe mode on: nothing is granted, sessions are asked to wait
    ///
    /// The proxy job tracker is told first; if it cannot be, safe mode stays
    /// off.
    SetSafeMode(ClusterArguments),
    /// Turn safe mode off
    ///
    /// The proxy job tracker is told too; if it cannot be, safe mode is off in
    /// the cluster manager only, and this fails.
    UnsetSafeMode(ClusterArguments),
    /// Write the state file; needs safe mode
    PersistState(ClusterArguments),
    /// Read the include and exclude host files again
    RefreshNodes(ClusterArguments),
    /// Have the task trackers of all nodes restarted, in batches
    RestartNodes(Restart),
    /// Turn safe mode on in the proxy job tracker only
    ///
    /// For a proxy job tracker that was away when safe mode was set. --address
    /// is then its own, in place of corona.proxy.job.tracker.thriftaddr.
    #[command(name = "force-set-safe-mode-on-pjt")]
    ForceSetSafeModeOnPjt(ClusterArguments),
    /// Turn safe mode off in the proxy job tracker only
    ///
    /// --address is then its own, in place of
    /// corona.proxy.job.tracker.thriftaddr.
    #[command(name = "force-unset-safe-mode-on-pjt")]
    ForceUnsetSafeModeOnPjt(ClusterArguments),
}

#[derive(Args, Clone, Debug)]
struct Restart {
    /// Nodes that restart together [default: corona.node.restart.batch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    batch: Option<i32>,

    /// Forget nodes that still wait for an earlier restart
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Tells the cluster manager, and prints what came of it.
///
/// # Errors
/// When it cannot be reached or does not answer.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let outcome = block_on(arguments.action.perform(arguments.cluster))?;
    match outcome {
        Outcome::Done(text) => {
            console.print(text)?;
            Ok(ExitCode::SUCCESS)
        }
        Outcome::NotDone(text) => {
            console.complain(&format!("{text}\n"));
            Ok(ExitCode::from(EXIT_FAILED))
        }
    }
}

/// What came of an action.
enum Outcome {
    /// It is done; for stdout.
    Done(&'static str),
    /// It is not done, as the peer says; for stderr, in the original's words.
    NotDone(String),
}

impl Action {
    async fn perform(self, before: ClusterArguments) -> anyhow::Result<Outcome> {
        let cluster = |behind: ClusterArguments| before.then(behind).find();
        match self {
            Action::SetSafeMode(behind) => set_safe_mode(&cluster(behind)?, true).await,
            Action::UnsetSafeMode(behind) => set_safe_mode(&cluster(behind)?, false).await,
            Action::PersistState(behind) => persist_state(&cluster(behind)?).await,
            Action::RefreshNodes(behind) => {
                let cluster = cluster(behind)?;
                unless_in_safe_mode(
                    cluster.cluster_manager().await?.call(&Call::RefreshNodes).await?,
                )
            }
            Action::RestartNodes(restart) => {
                let cluster = cluster(restart.cluster)?;
                let configured =
                    || i32::try_from(cluster.settings.restart_batch).unwrap_or(i32::MAX);
                let batch_size = restart.batch.unwrap_or_else(configured);
                let args = Some(RestartNodesArgs { force: restart.force, batch_size });
                let call = Call::RestartNodes { args };
                unless_in_safe_mode(cluster.cluster_manager().await?.call(&call).await?)
            }
            Action::ForceSetSafeModeOnPjt(behind) => {
                Ok(force_on_pjt(&cluster(behind)?, true).await)
            }
            Action::ForceUnsetSafeModeOnPjt(behind) => {
                Ok(force_on_pjt(&cluster(behind)?, false).await)
            }
        }
    }
}

async fn set_safe_mode(cluster: &Cluster, on: bool) -> anyhow::Result<Outcome> {
    let call = Call::SetSafeMode { safe_mode: on };
    match cluster.cluster_manager().await?.call(&call).await?? {
        Reply::SetSafeMode(true) if on => Ok(Outcome::Done("The safeMode is: ON\n")),
        Reply::SetSafeMode(true) => Ok(Outcome::Done("The safeMode is: OFF\n")),
        Reply::SetSafeMode(false) => Ok(Outcome::NotDone("Could not set the safeMode flag".into())),
        _ => Err(mismatch()),
    }
}

async fn persist_state(cluster: &Cluster) -> anyhow::Result<Outcome> {
    match cluster.cluster_manager().await?.call(&Call::PersistState).await?? {
        Reply::PersistState(true) => Ok(Outcome::Done("")),
        // With a blank at the end, as the original has it.
        Reply::PersistState(false) => {
            Ok(Outcome::NotDone("Persisting Cluster Manager state failed. ".into()))
        }
        _ => Err(mismatch()),
    }
}

/// For calls that answer with nothing, and are refused in safe mode.
fn unless_in_safe_mode(answer: Result<Reply, Exception>) -> anyhow::Result<Outcome> {
    match answer {
        Ok(_) => Ok(Outcome::Done("")),
        Err(Exception::SafeMode(_)) => {
            Ok(Outcome::NotDone("ClusterManager is in Safe Mode".into()))
        }
        Err(other) => Err(other.into()),
    }
}

/// Errors of any kind are told in the original's words.
async fn force_on_pjt(cluster: &Cluster, on: bool) -> Outcome {
    let tell = async {
        let call = ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag: on };
        match cluster.proxy_job_tracker().await?.call(&call).await?? {
            ProxyJobTrackerReply::SetClusterManagerSafeModeFlag => Ok(()),
            _ => Err(mismatch()),
        }
    };
    match tell.await {
        Ok(()) => Outcome::Done(""),
        Err(error) => {
            Outcome::NotDone(format!("Could not set the Safe Mode flag on the PJT: {error:#}"))
        }
    }
}
