//! `corona client`: the original's CoronaClient with its own spellings, for existing scripts.
//!
//! `corona sessions` is the variant for people. Spec: cluster-manager/06 §7.4.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use corona::engine::types::ResourceType;
use corona::wire::calls::ClusterManagerCall as Call;
use corona::wire::generated::RunningSession;

use super::cluster::{Cluster, ClusterArguments, block_on};
use super::session_calls::{
    KILL, granted, priority_name, running, session_info, unless_in_safe_mode,
};
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Usage as the original has it:
  corona client [-conf FILE] [-D KEY=VALUE]... -list
  corona client [-conf FILE] [-D KEY=VALUE]... -kill <session id>

'corona sessions' does the same and more, for people and as JSON.

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// List or end sessions as the original's CoronaClient does
///
/// Prints exactly the output of CoronaClient: a line with the number of sessions,
/// a header line, and a line for each session, separated by tabs.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List running sessions: -list
    List(ClusterArguments),
    /// End a session: -kill
    Kill(Kill),
}

#[derive(Args, Clone, Debug)]
struct Kill {
    /// The session's id
    session: String,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Acts as CoronaClient.
///
/// # Errors
/// When the cluster manager cannot be reached, does not answer, or is in safe mode.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List(behind) => list(&arguments.cluster.then(behind).find()?, console)?,
        Action::Kill(Kill { session, cluster }) => {
            kill(&arguments.cluster.then(cluster).find()?, session, console)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(cluster: &Cluster, console: &mut Console<'_>) -> anyhow::Result<()> {
    let answer = block_on(async { running(&mut cluster.cluster_manager().await?).await })?;
    Ok(console.print(&listing(&unless_in_safe_mode(answer, "list sessions")?))?)
}

fn kill(cluster: &Cluster, session: String, console: &mut Console<'_>) -> anyhow::Result<()> {
    console.print(&format!("Killing {session}"))?;
    match block_on(kill_one(cluster, &session)) {
        Ok(()) => {
            console.complain(&format!("{session} killed"));
            Ok(())
        }
        Err(error) => {
            // So that the error has a line of its own.
            console.print("\n")?;
            Err(error)
        }
    }
}

async fn kill_one(cluster: &Cluster, session: &str) -> anyhow::Result<()> {
    let mut manager = cluster.cluster_manager().await?;
    // The original closes the connection on an unknown id, this program's passes it over.
    let info = session_info(&mut manager, session).await?;
    if unless_in_safe_mode(info, KILL)?.is_none() {
        bail!("no session {session} is running");
    }
    let call = Call::KillSession { id: Some(session.to_owned()) };
    unless_in_safe_mode(manager.call(&call).await?, KILL).map(drop)
}

/// The names of the columns, which the original's scripts look for.
const HEADS: [&str; 9] = [
    "SessionID",
    "Session Name",
    "Session User",
    "Session Poolgroup",
    "Session Pool",
    "Session Priority",
    "Running Mappers",
    "Running Reducers",
    "Running Jobtrackers",
];

fn listing(sessions: &[RunningSession]) -> String {
    let mut text =
        format!("{} sessions currently running:\n{}\n", sessions.len(), HEADS.join("\t"));
    for session in sessions {
        let name = session.name.replace('\t', "\\t").replace('\n', "\\n");
        let pool = &session.pool_info;
        let priority = priority_name(session.priority);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{}\t{name}\t{}\t{}\t{}\t{priority}",
            session.handle, session.user_id, pool.pool_group_name, pool.pool_name
        );
        for kind in ResourceType::ALL {
            let _ = match granted(session, kind) {
                Some(granted) => write!(text, "\t{granted}"),
                None => write!(text, "\tnull"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use corona::wire::generated as wire;

    #[test]
    fn the_list_is_the_originals_byte_for_byte() {
        let session = |handle: &str, name: &str, priority, running_resources| RunningSession {
            handle: handle.into(),
            name: name.into(),
            user_id: "u1".into(),
            pool_info: wire::PoolInfoStrings {
                pool_group_name: "default".into(),
                pool_name: "defaultpool".into(),
            },
            priority,
            deadline: Some(0),
            running_resources,
        };
        let some = BTreeMap::from([(wire::ResourceType(0), 4), (wire::ResourceType(2), 1)]);
        let sessions = [
            session("202611210037.2", "Sleep\tjob\nx", Some(wire::SessionPriority(4)), Some(some)),
            session("202611210037.3", "é", None, None),
        ];
        assert_eq!(
            listing(&sessions),
            "2 sessions currently running:\n\
             SessionID\tSession Name\tSession User\tSession Poolgroup\tSession Pool\t\
             Session Priority\tRunning Mappers\tRunning Reducers\tRunning Jobtrackers\n\
             202611210037.2\tSleep\\tjob\\nx\tu1\tdefault\tdefaultpool\tVERY_HIGH\t4\tnull\t1\n\
             202611210037.3\té\tu1\tdefault\tdefaultpool\tNORMAL\tnull\tnull\tnull\n"
        );
        assert!(listing(&[]).starts_with("0 sessions currently running:\nSessionID\t"));
    }
}
