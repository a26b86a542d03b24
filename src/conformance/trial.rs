//! A whole replay: recorded conversations against a program that is started for it, or against a
//! cluster manager that runs already.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use crate::conformance::Traffic;
use crate::conformance::conversation::Conversation;
use crate::conformance::launch::{Launch, LaunchError, Running};
use crate::conformance::recording::{Header, Origin};
use crate::conformance::replay::{NoRestart, Progress, ReplayOptions, Report, Stage};
use crate::conformance::setup::RecordedSetup;
use crate::wire::calls::ClusterManager;
use crate::wire::client::{Client, ClientOptions};

/// A program that is started with a recorded configuration.
#[derive(Clone, Debug)]
pub struct Program {
    /// The `corona` program.
    pub path: PathBuf,
    /// The directory of the recorded configuration.
    pub conf_dir: PathBuf,
    /// What was read there.
    pub setup: RecordedSetup,
    /// How long a start may take.
    pub ready_within: Duration,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Servers of the replay cannot be set up.
    #[error("cannot play the recorded peers: {0}")]
    Stage(io::Error),
    /// There is no place for the files of the program.
    #[error("cannot create a directory for the files of the cluster manager: {0}")]
    Scratch(io::Error),
    /// The program was not ready.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The program ended during the play.
    #[error("the cluster manager ended during the play; its log ends with:\n{0}")]
    Ended(String),
    /// The cluster manager is on another machine.
    #[error(
        "{0} is not an address of this machine: the session drivers of a replay listen on loopback, \
         so it must run where the cluster manager does"
    )]
    Elsewhere(IpAddr),
    /// Nobody answers there.
    #[error("no cluster manager answers at {target}: {why}")]
    NoAnswer {
        /// Where.
        target: SocketAddr,
        /// What happened instead.
        why: String,
    },
}

/// What the kind of file says about how its traffic can be compared.
pub fn fitting(options: ReplayOptions, traffic: &Traffic) -> ReplayOptions {
    let without_callbacks =
        |header: &Header| header.origin == Origin::Relay && !header.relay_callbacks;
    let compare_notices = !traffic.recording.as_ref().is_some_and(without_callbacks);
    ReplayOptions { compare_notices, ..options }
}

/// Plays against a program, which is started for it and ended afterwards. Blocks the thread while
/// the program starts. Who `follows` is told how far the play is.
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
        overrides: program.setup.overrides(speed, stage.proxy_job_tracker(), &state_file),
        arguments: vec![],
        ready_within: program.ready_within,
    };
    let mut manager = launch.start()?;
    let again = Launch { arguments: vec!["--recover-from-disk".into()], ..launch };
    let target = manager.thrift();
    // A program that does not tell was not held up as far as anybody knows.
    let account = |manager: &Running| manager.held_up().unwrap_or_default();
    let mut held_up = Duration::ZERO;
    let restart = async || {
        held_up += account(&manager);
        manager.stop();
        manager = again.start().map_err(|error| NoRestart::Failed(error.to_string()))?;
        Ok(manager.thrift())
    };
    follow(stage.progress());
    let mut report = stage.play(target, restart).await;
    if !manager.is_alive() {
        return Err(TrialError::Ended(manager.log()));
    }
    report.hold_ups.manager = held_up + account(&manager);
    Ok(report)
}

/// Plays against a cluster manager of this machine that runs already. The report says what could not
/// be compared. Who `follows` is told how far the play is.
pub async fn against_address(
    conversations: &[Conversation],
    options: ReplayOptions,
    target: SocketAddr,
    follow: impl FnOnce(watch::Receiver<Progress>),
) -> Result<Report, TrialError> {
    if !is_own(target.ip()) {
        return Err(TrialError::Elsewhere(target.ip()));
    }
    let sessions = sessions_at(target).await?;
    let speed = options.speed;
    let options = ReplayOptions { compare_safe_mode: false, ..options };
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

/// Whether an address is one of this machine: only then something can be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// How many sessions run there.
async fn sessions_at(target: SocketAddr) -> Result<usize, TrialError> {
    let no_answer = |why: String| TrialError::NoAnswer { target, why };
    let client = Client::<ClusterManager>::connect(target, ClientOptions::default()).await;
    let mut client = client.map_err(|error| no_answer(error.to_string()))?;
    let sessions = client.get_sessions().await;
    sessions.map(|sessions| sessions.len()).map_err(|error| no_answer(error.to_string()))
}

/// A directory that only this process uses, gone when this is dropped.
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
        // What stays behind is small, and in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Program {
    /// A program with the configuration in `conf_dir`.
    ///
    /// Errors: what is wrong with the configuration.
    pub fn read(path: &Path, conf_dir: &Path) -> Result<Program, crate::config::ConfigErrors> {
        Ok(Program {
            path: path.to_owned(),
            conf_dir: conf_dir.to_owned(),
            setup: RecordedSetup::read(conf_dir)?,
            ready_within: Duration::from_secs(20),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

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

    #[tokio::test]
    async fn only_a_cluster_manager_of_this_machine_is_played_against() {
        let play = async |target: SocketAddr| {
            let report = against_address(&[], ReplayOptions::default(), target, |_| {}).await;
            report.unwrap_err().to_string()
        };
        // Of a network that is kept for examples: no machine has it.
        let elsewhere = play("192.0.2.1:9".parse().unwrap()).await;
        assert!(
            elsewhere.starts_with("192.0.2.1 is not an address of this machine"),
            "{elsewhere}"
        );
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let refused = play(nobody).await;
        assert!(refused.starts_with("no cluster manager answers at 127.0.0.1:"), "{refused}");
    }
}
