//! A whole replay: recorded conversations against a program that is started for it, or against a
//! cluster manager that runs already.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use crate::Traffic;
use crate::conversation::Conversation;
use crate::launch::{Launch, LaunchError, LaunchedManager};
use crate::recording::{Header, Origin};
use crate::relay::guard::own_address;
use crate::replay::{NoRestart, Progress, ReplayOptions, Report, Stage};
use crate::setup::RecordedSetup;
use corona_wire::calls::ClusterManager;
use corona_wire::client::{Client, ClientOptions};

/// A program that is started with a recorded configuration.
#[derive(Clone, Debug)]
pub struct Program {
    /// The `corona` program.
    pub path: PathBuf,
    /// The directory of the recorded configuration.
    pub conf_dir: PathBuf,
    /// The configuration there.
    pub setup: RecordedSetup,
    /// Settings besides those of the recording.
    pub further: Vec<(String, String)>,
    /// How long a start may take.
    pub ready_within: Duration,
}

/// The reason why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Servers of the replay cannot be set up.
    #[error("cannot play the recorded peers: {0}")]
    Stage(io::Error),
    /// There is no directory for the files of the program.
    #[error("cannot create a directory for the files of the cluster manager: {0}")]
    Scratch(io::Error),
    /// The program was not ready.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The cluster manager's machine cannot be reached.
    #[error("no address of this machine leads to {0}: {1}")]
    NoWay(IpAddr, io::Error),
    /// No cluster manager answers there.
    #[error("no cluster manager answers at {target}: {why}")]
    NoAnswer {
        /// Where.
        target: SocketAddr,
        /// The error.
        why: String,
    },
}

/// The options for a file: traffic without callbacks cannot be compared in full.
pub fn fitting(options: ReplayOptions, traffic: &Traffic) -> ReplayOptions {
    let without_callbacks =
        |header: &Header| header.origin == Origin::Relay && !header.relay_callbacks;
    let compare_notices = !traffic.recording.as_ref().is_some_and(without_callbacks);
    ReplayOptions { compare_notices, ..options }
}

/// Replays against a program, which is started for it and ended afterwards. Blocks the thread while
/// the program starts. `follows` receives the progress.
pub async fn against_program(
    conversations: &[Conversation],
    options: ReplayOptions,
    program: &Program,
    follow: impl FnOnce(watch::Receiver<Progress>),
) -> Result<Report, TrialError> {
    let scratch = Scratch::new().map_err(TrialError::Scratch)?;
    let speed = options.speed;
    let stage = Stage::set(conversations, options).await.map_err(TrialError::Stage)?;
    let state_file = scratch.0.join("cm.state");
    let launch = Launch {
        program: program.path.clone(),
        conf_dir: Some(program.conf_dir.clone()),
        overrides: [
            program.setup.overrides(speed, stage.proxy_job_tracker(), &state_file),
            program.further.clone(),
        ]
        .concat(),
        arguments: vec![],
        ready_within: program.ready_within,
    };
    let mut manager = launch.start()?;
    let again = Launch { arguments: vec!["--recover-from-disk".into()], ..launch };
    let target = manager.thrift();
    // A program without this metric counts as not stalled.
    let account = |manager: &LaunchedManager| manager.held_up().unwrap_or_default();
    let mut held_up = Duration::ZERO;
    let restart = async || {
        held_up += account(&manager);
        manager.stop();
        manager = again.start().map_err(|error| NoRestart::Failed(error.to_string()))?;
        Ok(manager.thrift())
    };
    follow(stage.progress());
    let mut report = stage.play(target, restart).await;
    if manager.is_alive() {
        report.stalls.manager = held_up + account(&manager);
    } else {
        report.manager_ended(&manager.log());
    }
    Ok(report)
}

/// Replays against a running cluster manager, on this machine or on one that can connect to it: the
/// session drivers listen on the local address that leads to it. The report lists the parts that
/// could not be compared. `follows` receives the progress.
pub async fn against_address(
    conversations: &[Conversation],
    options: ReplayOptions,
    target: SocketAddr,
    follow: impl FnOnce(watch::Receiver<Progress>),
) -> Result<Report, TrialError> {
    let own_address = own_address(target).map_err(|error| TrialError::NoWay(target.ip(), error))?;
    let sessions = sessions_at(target).await?;
    let speed = options.speed;
    let options = ReplayOptions { compare_safe_mode: false, own_address, ..options };
    let stage = Stage::set(conversations, options).await.map_err(TrialError::Stage)?;
    follow(stage.progress());
    let mut report = stage.play(target, async || Err(NoRestart::NotPossible)).await;
    let mut cannot = vec![format!(
        "What the cluster manager had before: nodes and sessions that are not in the recording \
         change answers and grants. It had {sessions} sessions."
    )];
    if speed != 1.0 {
        let own = "When nodes and sessions expire: pauses were shorter than recorded, its intervals \
                   are its own.";
        cannot.push(own.to_owned());
    }
    cannot.append(&mut report.not_compared);
    report.not_compared = cannot;
    Ok(report)
}

/// How many sessions run there.
async fn sessions_at(target: SocketAddr) -> Result<usize, TrialError> {
    let no_answer = |why: String| TrialError::NoAnswer { target, why };
    let client = Client::<ClusterManager>::connect(target, ClientOptions::default()).await;
    let mut client = client.map_err(|error| no_answer(error.to_string()))?;
    let sessions = client.get_sessions().await;
    sessions.map(|sessions| sessions.len()).map_err(|error| no_answer(error.to_string()))
}

/// A directory that only this process uses; it is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Scratch> {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        let mut number = 0;
        loop {
            let name = format!("corona-replay-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match builder.create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is small, and a temporary one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Program {
    /// A program with the configuration in `conf_dir`.
    ///
    /// Errors: problems of the configuration.
    pub fn read(path: &Path, conf_dir: &Path) -> Result<Program, corona_config::ConfigErrors> {
        Ok(Program {
            path: path.to_owned(),
            conf_dir: conf_dir.to_owned(),
            setup: RecordedSetup::read(conf_dir)?,
            further: vec![],
            ready_within: Duration::from_secs(20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_apart_and_gone_in_the_end() {
        let (one, other) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        assert_ne!(one.0, other.0);
        std::fs::write(one.0.join("cm.state"), "x").unwrap();
        let paths = [one.0.clone(), other.0.clone()];
        drop((one, other));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn session_drivers_are_where_packets_to_the_target_come_from() {
        for own in ["127.0.0.1:9", "[::1]:9"] {
            let target: SocketAddr = own.parse().unwrap();
            // A machine without this kind of address has no way there.
            let Ok(found) = own_address(target) else { continue };
            assert_eq!(found, target.ip());
        }
    }

    #[tokio::test]
    async fn a_target_that_does_not_answer_is_an_error() {
        let nobody = corona_net::testing::nobody();
        let at = nobody.address();
        let refused = against_address(&[], ReplayOptions::default(), at, |_| {}).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with("no cluster manager answers at 127.0.0.1:"), "{refused}");
    }
}
