//! Helpers of the tests of the whole program: finding the built program, playing recordings against
//! it, and all peers of a cluster manager or a task tracker.
//!
//! The program under test is the one named by the variable `CORONA_BIN`; without it, `corona` is
//! built the way these tests were, once, and taken from the same target directory. So a test never
//! runs against a program older than the source.

pub mod browser;
pub mod clients;
pub mod cluster_peers;
pub mod daemons;
pub mod fuzzing;
pub mod nested;
pub mod serving;
pub mod skipping;
pub mod task_tracker;
pub mod zookeeper;

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use corona::access::{Authority, Identity};
use corona::conformance::capture::{Ending, Limits};
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::conformance::open;
use corona::conformance::replay::Report;
use corona::conformance::setup::RecordedSetup;
use corona::conformance::trial::{Program, against_program, fitting};

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What `look` finds, once it finds something.
///
/// # Panics
/// When it finds nothing in time; `what` names the missing thing.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        sleep(Duration::from_millis(20));
    }
}

/// The program under test.
///
/// # Panics
/// When it cannot be built or is not where cargo puts it.
pub fn corona_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match env::var_os("CORONA_BIN") {
        Some(named) => PathBuf::from(named),
        None => build(),
    })
}

/// The program under test with these arguments, with nothing of this process's environment that it looks at, and with
/// pipes for what it prints.
pub fn corona(arguments: &[&str]) -> Command {
    let mut command = Command::new(corona_program());
    command.args(arguments);
    for variable in ["HADOOP_CONF_DIR", "NOTIFY_SOCKET", "COLUMNS", "NO_COLOR", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn build() -> PathBuf {
    let program = build_in(repository(), "corona", &["--workspace", "--bins"]);
    assert!(program.is_file(), "no program {}; name one with CORONA_BIN", program.display());
    program
}

/// The program of an example that is a workspace of its own, built as these tests were.
///
/// # Panics
/// When it cannot be built.
pub fn example(name: &str) -> PathBuf {
    let program = build_in(&repository().join("examples").join(name), name, &["--locked"]);
    assert!(program.is_file(), "no program {}", program.display());
    program
}

/// Builds a program. A test lies in `<target>/<profile>/deps`, the program in `<target>/<profile>`.
fn build_in(directory: &Path, program: &str, arguments: &[&str]) -> PathBuf {
    let test = env::current_exe().expect("the path of this test is known");
    let profile = test.parent().and_then(Path::parent).expect("a test lies in a target directory");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(directory).args(["build", "--quiet"]).args(arguments);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "{program} cannot be built: {status}");
    profile.join(format!("{program}{}", env::consts::EXE_SUFFIX))
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the repository")
}

/// The program under test on embedded defaults and free ports.
///
/// # Panics
/// When the program does not start.
pub fn start_plain() -> LaunchedManager {
    start_with(&[])
}

/// The same with these settings.
///
/// # Panics
/// When the program does not start.
pub fn start_with(settings: &[(&str, &str)]) -> LaunchedManager {
    start(&launch(settings))
}

/// The same with a recorded configuration; `scratch` is for its state. No proxy job tracker listens.
///
/// # Panics
/// When the program does not start.
pub fn start_recorded(conf_dir: &Path, scratch: &Path) -> LaunchedManager {
    let setup = RecordedSetup::read(conf_dir).expect("the recorded configuration");
    let nobody = (Ipv4Addr::LOCALHOST, 9).into();
    let overrides = setup.overrides(1.0, nobody, &scratch.join("cm.state"));
    start(&Launch { conf_dir: Some(conf_dir.to_path_buf()), overrides, ..launch(&[]) })
}

/// How to start the program under test as a cluster manager on free ports, with these settings. Without a journal unless
/// they name one or a state file, which it lies beside, since tests run side by side, and none resumes from the journal
/// of another one.
pub fn launch(settings: &[(&str, &str)]) -> Launch {
    let ports = [("cm.server.address", "localhost:0"), ("cm.server.http.address", "localhost:0")];
    let has_state_file = settings.iter().any(|(key, _)| *key == "cm.state");
    let no_journal = (!has_state_file).then_some(("corona.cm.journal.dir", "none"));
    let overrides = ports.iter().chain(&no_journal).chain(settings);
    Launch {
        program: corona_program().to_path_buf(),
        conf_dir: None,
        overrides: overrides.map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        arguments: vec![],
        ready_within: Duration::from_secs(60),
    }
}

/// Starts a cluster manager.
///
/// # Panics
/// When it does not start.
pub fn start(launch: &Launch) -> LaunchedManager {
    launch.start().unwrap_or_else(|error| panic!("{error}"))
}

/// Settings of a daemon with a certificate of its own in a directory, which speaks TLS beside plain peers, or requires it
/// of all that are not on this machine. Java programs are called without TLS in the networks that are named only, as
/// the peers of tests are.
///
/// # Panics
/// When the certificate cannot be made.
pub fn with_tls(directory: &Path, is_required: bool) -> Vec<(String, String)> {
    let (ca, own, now) = (directory.join("ca"), directory.join("own"), SystemTime::now());
    let authority = Authority::create(&ca, now).expect("an authority");
    Identity::own(&own, &authority, "head", ("localhost", 1), &[], now).expect("a certificate");
    let mode = if is_required { "require" } else { "allow" };
    [
        ("corona.tls", mode.to_owned()),
        ("corona.tls.directory", own.display().to_string()),
        ("corona.tls.authority.directory", ca.display().to_string()),
        ("corona.tls.plain.networks", "127.0.0.0/8,::1".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

/// Plays the recording `name` below `fixtures/recordings` against the program under test, freshly
/// started with the recorded configuration, with pauses and expiry intervals `speed` times shorter.
///
/// # Panics
/// When the recording cannot be read or the program does not start.
pub fn replay(name: &str, speed: f64) -> Report {
    replay_with(name, speed, &[])
}

/// The same with further settings.
///
/// # Panics
/// As [`replay`].
pub fn replay_with(name: &str, speed: f64, settings: &[(String, String)]) -> Report {
    let directory = repository().join("fixtures/recordings").join(name);
    let program = Program::read(corona_program(), &directory).expect("the recorded configuration");
    let program = Program { further: settings.to_vec(), ..program };
    let traffic = open(&directory.join("traffic.pcap"), &Limits::default());
    let traffic = traffic.expect("the recorded traffic");
    assert_eq!(traffic.capture.ending, Ending::Complete, "{name}");
    let conversations = traffic.conversations(&program.setup.ports);
    let options = fitting(program.setup.options(name, speed), &traffic);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the recorded peers");
    let report = runtime.block_on(against_program(&conversations, options, &program, |_| {}));
    report.unwrap_or_else(|error| panic!("{name}: {error}"))
}
