//! A framework that is not MapReduce: it has some work to do, asks a cluster manager for a slot for
//! each piece, holds the slot while it works on the piece, and releases it. Work whose slot is
//! revoked, or dies with its node, is repeated elsewhere.
//!
//!     cargo run --release --example slots -- --demo
//!     cargo run --release --example slots -- --cluster-manager HOST:PORT --pool research.slots
//!
//! With `--demo` it brings its own cluster: an embedded cluster manager, emulated nodes of which
//! one dies, and a rival whose pool takes slots back. With `--sessions N` it measures instead the
//! costs of N sessions in one process.

mod demo;
mod many;
mod screen;
mod work;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use corona::session_driver::{Endpoint, Options, PoolName};

use demo::Demo;
use screen::Screen;
use work::Work;

/// Takes slots from a cluster manager, holds them for a while and gives them back.
#[derive(Debug, Parser)]
#[command(name = "slots", term_width = 80)]
struct Arguments {
    /// Bring a cluster along: a manager, nodes and a rival
    #[arg(long, conflicts_with = "cluster_manager")]
    demo: bool,
    /// Where the cluster manager takes calls (cm.server.address)
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "demo")]
    cluster_manager: Option<Endpoint>,
    /// The service that knows whether it is down on purpose (corona.proxy.job.tracker.thriftaddr)
    #[arg(long, value_name = "HOST:PORT")]
    proxy_job_tracker: Option<Endpoint>,
    /// The pool
    #[arg(long, value_name = "GROUP.POOL", default_value = "research.slots")]
    pool: PoolName,
    /// Slots to ask for: pieces of work to be done
    #[arg(long, value_name = "N", default_value_t = 40)]
    slots: usize,
    /// Hosts to be near to; in the demo 10.0.0.1 and 10.0.0.2
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    near: Vec<String>,
    /// Milliseconds for which a slot is held
    #[arg(long, value_name = "MS", default_value_t = 2500)]
    hold_ms: u64,
    /// Milliseconds between heartbeats: less than the sessions' expiry interval
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    heartbeat_ms: u64,
    /// Measure the cost of so many sessions instead
    #[arg(long, value_name = "N")]
    sessions: Option<usize>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.demo && arguments.near.is_empty() {
        arguments.near = vec!["10.0.0.1".into(), "10.0.0.2".into()];
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run(&arguments));
        // Abandoned sessions may still report their end.
        runtime.shutdown_timeout(Duration::from_secs(2));
        result
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            use io::Write;
            // When stderr is closed the error cannot be reported.
            let _ = writeln!(io::stderr(), "slots: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all that was to be done is done.
async fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let demo = if arguments.demo { Some(Demo::start().await?) } else { None };
    let address = match &demo {
        Some(demo) => demo.cluster_manager(),
        None => arguments.cluster_manager.clone().ok_or_else(|| anyhow::anyhow!("no address"))?,
    };
    let user = std::env::var("USER").unwrap_or_else(|_| "nobody".into());
    let mut options = Options::new(address, user);
    options.proxy_job_tracker = arguments.proxy_job_tracker.clone();
    options.name = Some("slots".into());
    options.pool = arguments.pool.clone();
    options.timers.heartbeat_interval = Duration::from_millis(arguments.heartbeat_ms.max(1));
    if let Some(count) = arguments.sessions {
        many::measure(count, &options).await?;
        return Ok(true);
    }
    let hold = Duration::from_millis(arguments.hold_ms);
    let mut work = Work::start(options.clone(), arguments.slots, &arguments.near, hold).await?;
    if let Some(demo) = &demo {
        demo.make_trouble(&options);
    }
    let mut screen = Screen::new();
    work.run(&mut screen).await
}
