//! The scenarios with their loads and defaults.

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Arg, Args, Subcommand, ValueEnum};
use corona::load::{Connections, Crowd, Driver, Heartbeats, Job, Nodes, Placement, Plan};

use super::RunArguments;

/// The emulated load.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Scenario {
    /// Heartbeats of nodes, as fast as replies arrive or at an interval
    ///
    /// 1,000 nodes over 16 connections. Each connection sends the next
    /// heartbeat when the previous one is answered. With --interval, each node
    /// sends one heartbeat per interval, over up to 200 connections; a
    /// heartbeat that is sent late counts as overdue, and its time is measured
    /// from when it was due.
    #[command(mut_arg("nodes", with_default("1000")))]
    Heartbeats(Plain),

    /// Sessions that request many slots and release each grant at once
    ///
    /// 4,000 nodes and 10 sessions of 5,000 maps, each near 3 hosts. A session
    /// that has had all its maps ends, and a new one starts.
    #[command(mut_arg("nodes", with_default("4000")))]
    #[command(mut_arg("sessions", with_default("10")))]
    #[command(mut_arg("maps", with_default("5000")))]
    #[command(mut_arg("reduces", with_default("0")))]
    #[command(mut_arg("hold", with_default("0")))]
    Churn(WithSessions),

    /// Short jobs, one after another
    ///
    /// 1,000 nodes; 20 concurrent sessions, each of 10 maps near 3 hosts and 1 reduce.
    #[command(mut_arg("nodes", with_default("1000")))]
    #[command(mut_arg("sessions", with_default("20")))]
    #[command(mut_arg("maps", with_default("10")))]
    #[command(mut_arg("reduces", with_default("1")))]
    #[command(mut_arg("hold", with_default("0")))]
    SmallJobs(WithSessions),

    /// Large and small jobs and single requests, while nodes heartbeat
    ///
    /// 5,000 nodes; 200 sessions of 100 maps near 3 hosts that are held for a
    /// second; 5 sessions of 10 maps and 1 reduce; and one session that
    /// requests one map after another. The options for sessions apply to the
    /// 200.
    #[command(mut_arg("nodes", with_default("5000")))]
    #[command(mut_arg("sessions", with_default("200")))]
    #[command(mut_arg("maps", with_default("100")))]
    #[command(mut_arg("reduces", with_default("0")))]
    #[command(mut_arg("hold", with_default("1")))]
    Mixed(WithSessions),

    /// The time from a request to its grant on an otherwise idle cluster
    ///
    /// 1,000 nodes; one session that requests one map, releases it, pauses for
    /// a millisecond and repeats.
    #[command(mut_arg("nodes", with_default("1000")))]
    #[command(mut_arg("sessions", with_default("1")))]
    #[command(mut_arg("maps", with_default("1")))]
    #[command(mut_arg("reduces", with_default("0")))]
    #[command(mut_arg("hold", with_default("0")))]
    RequestToGrant(WithSessions),

    /// The effect of dead and stuck session drivers on the others
    ///
    /// 1,000 nodes and 1,000 sessions of 5 maps that are held for a second. In
    /// the second half two more sessions start: one whose address refuses
    /// connections, and one whose listener never replies. Both halves are
    /// reported.
    #[command(mut_arg("nodes", with_default("1000")))]
    #[command(mut_arg("sessions", with_default("1000")))]
    #[command(mut_arg("maps", with_default("5")))]
    #[command(mut_arg("reduces", with_default("0")))]
    #[command(mut_arg("hold", with_default("1")))]
    SlowDrivers(SlowDrivers),

    /// All nodes lose their connections and reconnect at the same time
    ///
    /// 5,000 nodes with one connection each. When the last heartbeat is
    /// answered, all connections are closed, and 0.2 seconds later the next
    /// storm starts. --connections and --interval have no effect.
    #[command(mut_arg("nodes", with_default("5000")))]
    Reconnect(Plain),

    /// Idle connections
    ///
    /// 10,000 connections, each with one heartbeat at the start and one at the
    /// end. With --pid the report has the memory per connection. A cluster
    /// manager may close connections that are idle for cm.server.sotimeout, by
    /// default a minute. --connections sets the number; --interval has no
    /// effect.
    #[command(mut_arg("nodes", with_default("100")))]
    IdleConnections(Plain),
}

/// The option's help with the default that it has in a scenario.
fn with_default(default: &'static str) -> impl FnOnce(Arg) -> Arg {
    move |option| {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        option.help(format!("{help} [default: {default}]"))
    }
}

/// A scenario without sessions.
#[derive(Args, Clone, Debug)]
pub(super) struct Plain {
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    nodes: NodeArguments,
}

/// A scenario with sessions.
#[derive(Args, Clone, Debug)]
pub(super) struct WithSessions {
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    nodes: NodeArguments,
    #[command(flatten)]
    sessions: SessionArguments,
}

/// The scenario with session drivers that fail.
#[derive(Args, Clone, Debug)]
pub(super) struct SlowDrivers {
    #[command(flatten)]
    common: WithSessions,

    /// Sessions whose address refuses connections
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    dead: usize,

    /// Sessions whose listener accepts connections and never replies
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    stuck: usize,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
struct NodeArguments {
    /// How many
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,

    /// CPUs of each
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    cpus: i16,

    /// MAP slots of such a node by the cluster manager's
    /// cm.cpu.to.resource.partitioning; more is an error [default: one for each
    /// CPU]
    #[arg(long, value_name = "COUNT")]
    map_slots: Option<u32>,

    /// Connections that they share [default: 200; 16 in a closed loop; or one
    /// each]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,

    /// Time between two heartbeats of a node [default: 3, but see heartbeats]
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sessions")]
struct SessionArguments {
    /// Number of concurrent sessions
    #[arg(long, value_name = "COUNT")]
    sessions: Option<usize>,

    /// MAP slots that each requests
    #[arg(long, value_name = "COUNT")]
    maps: Option<u32>,

    /// REDUCE slots that each requests
    #[arg(long, value_name = "COUNT")]
    reduces: Option<u32>,

    /// Preferred hosts of each map; 0 for none [default: 3, for request-to-grant 0]
    #[arg(long, value_name = "COUNT")]
    hosts: Option<u32>,

    /// How the preferred hosts are chosen
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Chosen::Scattered)]
    placement: Chosen,

    /// How long a grant is held
    #[arg(long, value_name = "SECONDS")]
    hold: Option<f64>,

    /// Time between two jobs of a session [default: 0, for request-to-grant 0.001]
    #[arg(long, value_name = "SECONDS")]
    pause: Option<f64>,

    /// Requests in one call
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    request_batch: u32,

    /// Slots released in one call, if as many are held within 5 milliseconds
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    release_batch: u32,

    /// Jobs of a session before it ends [default: 1, for request-to-grant all]
    #[arg(long, value_name = "COUNT")]
    jobs_per_session: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chosen {
    /// Two in one rack of 40, others anywhere, as a file system spreads blocks
    Scattered,
    /// Side by side
    Neighbours,
}

impl Scenario {
    /// The plan, and where and how it runs.
    ///
    /// # Errors
    /// When the cluster manager's host cannot be resolved, or a time is
    /// invalid.
    pub(super) fn into_plan(self) -> anyhow::Result<(RunArguments, Plan)> {
        let of = |crowd: Crowd, name, arguments: &SessionArguments| {
            Ok::<_, anyhow::Error>(Crowd { name, ..arguments.over(crowd)? })
        };
        Ok(match self {
            Scenario::Heartbeats(Plain { run, nodes }) => {
                let beat = match nodes.interval {
                    Some(interval) => Heartbeats::Every(span(interval)?),
                    None => Heartbeats::ClosedLoop,
                };
                let plan = plan("heartbeats", &run, &nodes, (1_000, beat), vec![])?;
                (run, plan)
            }
            Scenario::Churn(WithSessions { run, nodes, sessions }) => {
                let crowd = of(crowd(10, 5_000, Duration::ZERO), "churn", &sessions)?;
                let plan = plan("churn", &run, &nodes, (4_000, nodes.paced()?), vec![crowd])?;
                (run, plan)
            }
            Scenario::SmallJobs(WithSessions { run, nodes, sessions }) => {
                let crowd = of(small_jobs(20), "small jobs", &sessions)?;
                let plan = plan("small-jobs", &run, &nodes, (1_000, nodes.paced()?), vec![crowd])?;
                (run, plan)
            }
            Scenario::Mixed(WithSessions { run, nodes, sessions }) => {
                let large = crowd(200, 100, Duration::from_secs(1));
                let crowds = vec![of(large, "large jobs", &sessions)?, small_jobs(5), probe()];
                let plan = plan("mixed", &run, &nodes, (5_000, nodes.paced()?), crowds)?;
                (run, plan)
            }
            Scenario::RequestToGrant(WithSessions { run, nodes, sessions }) => {
                let crowds = vec![of(probe(), "single", &sessions)?];
                let nodes_of = (1_000, nodes.paced()?);
                let plan = plan("request-to-grant", &run, &nodes, nodes_of, crowds)?;
                (run, plan)
            }
            Scenario::Reconnect(Plain { run, nodes }) => {
                let mut plan = plan("reconnect", &run, &nodes, (5_000, nodes.paced()?), vec![])?;
                plan.nodes.connections = 0;
                plan.connections = Connections::Storms;
                (run, plan)
            }
            Scenario::IdleConnections(Plain { run, nodes }) => {
                let idle = nodes.connections.unwrap_or(10_000);
                let (few, beat) = (100, nodes.paced()?);
                let mut plan = plan("idle-connections", &run, &nodes, (few, beat), vec![])?;
                plan.nodes.connections = 0;
                plan.connections = Connections::Idle(idle);
                (run, plan)
            }
            Scenario::SlowDrivers(SlowDrivers { common, dead, stuck }) => {
                let WithSessions { run, nodes, sessions } = common;
                let healthy = crowd(1_000, 5, Duration::from_secs(1));
                let healthy = of(healthy, "healthy", &sessions)?;
                let job = healthy.job.clone();
                let late = [("dead", dead, Driver::Dead), ("stuck", stuck, Driver::Stuck)];
                let late = late.into_iter().filter(|(_, count, _)| *count > 0);
                let late = late.map(|(name, sessions, driver)| {
                    let job = job.clone();
                    Crowd { name, sessions, job, jobs_per_session: None, driver }
                });
                let crowds = vec![healthy];
                let mut plan = plan("slow-drivers", &run, &nodes, (1_000, nodes.paced()?), crowds)?;
                plan.late_crowds = late.collect();
                (run, plan)
            }
        })
    }
}

fn plan(
    scenario: &'static str,
    run: &RunArguments,
    nodes: &NodeArguments,
    (count, heartbeats): (usize, Heartbeats),
    crowds: Vec<Crowd>,
) -> anyhow::Result<Plan> {
    let address = &run.address;
    let found = address.to_socket_addrs();
    let found = found.with_context(|| format!("{address} is not a HOST:PORT that is known"))?;
    // Java programs listen on IPv4 where there is a choice.
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    let manager = *found.first().with_context(|| format!("{address} has no address"))?;
    let count = nodes.nodes.unwrap_or(count);
    let usual = if heartbeats == Heartbeats::ClosedLoop { 16 } else { 200 };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    Ok(Plan {
        scenario,
        manager,
        warm_up: Duration::from_secs(run.warm_up),
        duration: Duration::from_secs(run.seconds),
        nodes: Nodes {
            count,
            cpus: nodes.cpus,
            map_slots: nodes.map_slots.or(u32::try_from(nodes.cpus).ok()).unwrap_or(0),
            connections: nodes.connections.unwrap_or(usual.min(count)),
            heartbeats,
        },
        crowds,
        late_crowds: vec![],
        connections: Connections::None,
        threads: run.threads.unwrap_or(threads),
        reconnect: Duration::from_secs(run.reconnect),
        process_id: run.pid,
    })
}

impl NodeArguments {
    fn paced(&self) -> anyhow::Result<Heartbeats> {
        Ok(Heartbeats::Every(span(self.interval.unwrap_or(3.0))?))
    }
}

impl SessionArguments {
    /// Options that override the defaults of a scenario.
    fn over(&self, crowd: Crowd) -> anyhow::Result<Crowd> {
        let said = |value: Option<f64>, usual| value.map_or(Ok(usual), span);
        let usual = crowd.job;
        let job = Job {
            maps: self.maps.unwrap_or(usual.maps),
            reduces: self.reduces.unwrap_or(usual.reduces),
            hosts: self.hosts.unwrap_or(usual.hosts),
            placement: match self.placement {
                Chosen::Scattered => Placement::Scattered,
                Chosen::Neighbours => Placement::Neighbours,
            },
            hold: said(self.hold, usual.hold)?,
            request_batch: self.request_batch,
            release_batch: self.release_batch,
            pause: said(self.pause, usual.pause)?,
        };
        Ok(Crowd {
            sessions: self.sessions.unwrap_or(crowd.sessions),
            job,
            jobs_per_session: self.jobs_per_session.or(crowd.jobs_per_session),
            ..crowd
        })
    }
}

/// Sessions with this many maps near three hosts, each for one job.
fn crowd(sessions: usize, maps: u32, hold: Duration) -> Crowd {
    let job = Job {
        maps,
        reduces: 0,
        hosts: 3,
        placement: Placement::Scattered,
        hold,
        request_batch: 1_000,
        release_batch: 1,
        pause: Duration::ZERO,
    };
    Crowd { name: "sessions", sessions, job, jobs_per_session: Some(1), driver: Driver::Prompt }
}

fn small_jobs(sessions: usize) -> Crowd {
    let crowd = crowd(sessions, 10, Duration::ZERO);
    Crowd { name: "small jobs", job: Job { reduces: 1, ..crowd.job }, ..crowd }
}

/// One session that requests one slot after another.
fn probe() -> Crowd {
    let crowd = crowd(1, 1, Duration::ZERO);
    let job = Job { hosts: 0, pause: Duration::from_millis(1), ..crowd.job };
    Crowd { name: "single", job, jobs_per_session: None, ..crowd }
}

fn span(seconds: f64) -> anyhow::Result<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok();
    ensure!(span.is_some(), "{seconds} is not a time in seconds");
    Ok(span.unwrap_or_default())
}
