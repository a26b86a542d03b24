//! `corona mini-cluster`: a whole cluster on this machine, each daemon in a process of its own.
//!
//! The process itself only writes the configuration, starts the daemons, starts them again when they end,
//! and stops them. So whatever happens to one of them happens to it as on a machine of its own.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use corona_net::Reserved;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::arguments::{Override, parse_override};
use super::daemon::PARENT;
use super::signals::shutdown_signal;
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  A cluster of two nodes until Ctrl-C:
    corona mini-cluster --nodes 2 --dir /tmp/cluster
  A job on it, from another terminal:
    corona job run --conf-dir /tmp/cluster/conf --input notes.txt \\
      --output /tmp/words --mapper builtin:wc --reducer builtin:wc

All daemons listen on loopback addresses only: the cluster manager on port 8888,
its pages on 8889, the job tracker on 8021, its pages on 50030, the proxy job
tracker on 50035 and 50036, its pages on 50032, and node N on port 50060 of
127.0.0.N. If one of them is taken, all are 100 higher, or 200,
and so on. The directory keeps them: started again on it, the cluster has the
same ports, and its jobs go on.
A daemon that ends is started again; its log is in DIR/logs, the number of its
process in DIR/run.
Exit status: 0 stopped; 1 could not start, with one line on stderr that says
why; 2 wrong usage.";

/// The most nodes.
const MOST_NODES: u8 = 50;
/// How often the documented ports are moved by [`SHIFT`] before they count as taken.
const MOST_SHIFTS: u16 = 50;
const SHIFT: u16 = 100;
/// How long a daemon may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a daemon may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a daemon is started again, and what it grows to while the daemon ends at once.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A daemon that ran for so long does not end at once.
const LONG_RUN: Duration = Duration::from_secs(10);
/// A log that is larger is set aside, in place of the one that was set aside before.
const MOST_LOG_BYTES: u64 = 64 << 20;
/// The pause between two looks how large the logs are.
const LOG_LOOK: Duration = Duration::from_secs(60);

/// Run a whole cluster on this machine, for a first try and for tests
///
/// Starts a cluster manager, nodes that run jobs without Java, a job tracker,
/// and a proxy job tracker, which shows finished jobs, each in a process of its
/// own, and keeps all their files in one directory. DIR/conf is the --conf-dir of every other command. When the
/// cluster is ready it prints one line with the URL that leads to all pages.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Number of nodes, from 1 to 50
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
    nodes: u8,

    /// Directory of all files of the cluster; made if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Slots of each node for maps, and as many for reduces
    ///
    /// [default: the processors of this machine divided by the nodes, at least
    /// 2]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    slots: Option<u8>,

    /// Use any free ports instead of the documented ones
    #[arg(long)]
    free_ports: bool,

    /// Set a configuration key of all daemons; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,
}

/// Runs the cluster until a signal stops it.
///
/// # Errors
/// When a part of it cannot start; the text says what is missing or wrong.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    // The daemons are children of the thread that starts them, and end with it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(serve(arguments, console))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<()> {
    let stop = shutdown_signal().context("cannot listen for signals")?;
    tokio::pin!(stop);
    let home = Home::open(&arguments.dir)?;
    // Until the end: the daemons may be started again.
    let (ports, _reserved) = home.ports(arguments.nodes, arguments.free_ports)?;
    home.write_configuration(&arguments, &ports)?;
    let mut cluster = Cluster::new(&home)?;
    let started = tokio::select! {
        started = start(&mut cluster, &home, &ports, arguments.nodes) => started.map(|()| true),
        _ = &mut stop => Ok(false),
    };
    match started {
        Ok(true) => {
            console.print(&format!(
                "corona mini-cluster ready: pages http://{}:{}/ nodes {} conf {}\n",
                Ipv4Addr::LOCALHOST,
                ports.pages,
                arguments.nodes,
                home.conf().display()
            ))?;
            let mut look = tokio::time::interval(LOG_LOOK);
            loop {
                tokio::select! {
                    _ = look.tick() => set_large_logs_aside(&home.root.join("logs"), MOST_LOG_BYTES),
                    news = cluster.news.recv() => match news {
                        Some(news) => console.complain(&format!("{news}\n")),
                        None => break,
                    },
                    signal = &mut stop => {
                        console.complain(&format!("stopping after {signal}\n"));
                        break;
                    }
                }
            }
        }
        Ok(false) => {}
        Err(error) => {
            cluster.stop().await;
            return Err(error);
        }
    }
    cluster.stop().await;
    Ok(())
}

/// Starts all daemons and waits until they are ready: the cluster manager first.
async fn start(cluster: &mut Cluster, home: &Home, ports: &Ports, nodes: u8) -> anyhow::Result<()> {
    // A state file, of 'corona admin persist-state', must not keep it from going on.
    cluster.launch("cluster-manager", &["cluster-manager", "--prefer-journal"], home, &[])?;
    cluster.until_ready(&["cluster-manager".to_owned()]).await?;
    // The nodes and job trackers ask it whether the cluster manager is in safe mode.
    cluster.launch("proxy-job-tracker", &["proxy-job-tracker"], home, &[])?;
    let mut awaited = vec!["proxy-job-tracker".to_owned(), "job-tracker".to_owned()];
    for number in 1..=nodes {
        let name = format!("node-{number}");
        let dir = home.root.join(&name);
        let host = Ipv4Addr::new(127, 0, 0, number);
        let settings = [
            ("slave.host.name", host.to_string()),
            ("mapred.task.tracker.http.address", format!("{host}:{}", ports.nodes)),
            ("mapred.local.dir", dir.join("local").display().to_string()),
            ("hadoop.log.dir", dir.join("logs").display().to_string()),
            ("hadoop.tmp.dir", dir.join("tmp").display().to_string()),
        ];
        cluster.launch(&name, &["task-tracker"], home, &settings)?;
        awaited.push(name);
    }
    cluster.launch("job-tracker", &["job-tracker"], home, &[])?;
    cluster.until_ready(&awaited).await
}

/// The directory of a cluster, which one process uses at a time.
struct Home {
    root: PathBuf,
    _lock: File,
}

/// The ports of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ports {
    thrift: u16,
    pages: u16,
    job_tracker: u16,
    job_pages: u16,
    /// Of each node, on an address of its own.
    nodes: u16,
    #[serde(flatten)]
    proxy: Option<ProxyPorts>,
}

/// Those of the proxy job tracker, which a directory of an earlier version does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProxyPorts {
    proxy_thrift: u16,
    proxy_rpc: u16,
    proxy_pages: u16,
}

impl Ports {
    fn shifted(by: u16) -> Ports {
        let [thrift, pages, job_tracker, job_pages, nodes] = [8888, 8889, 8021, 50030, 50060];
        let proxy =
            ProxyPorts { proxy_thrift: 50036 + by, proxy_rpc: 50035 + by, proxy_pages: 50032 + by };
        Ports {
            proxy: Some(proxy),
            thrift: thrift + by,
            pages: pages + by,
            job_tracker: job_tracker + by,
            job_pages: job_pages + by,
            nodes: nodes + by,
        }
    }

    fn write(&self, path: &Path) -> anyhow::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The addresses that a cluster of so many nodes listens on, each with what it is for.
    fn addresses(self, nodes: u8) -> Vec<(&'static str, Ipv4Addr, u16)> {
        let own = Ipv4Addr::LOCALHOST;
        let mut all = vec![
            ("the cluster manager", own, self.thrift),
            ("the pages of the cluster manager", own, self.pages),
            ("the job tracker", own, self.job_tracker),
            ("the pages of the job tracker", own, self.job_pages),
        ];
        if let Some(ProxyPorts { proxy_thrift, proxy_rpc, proxy_pages }) = self.proxy {
            all.push(("the proxy job tracker", own, proxy_thrift));
            all.push(("the proxy job tracker", own, proxy_rpc));
            all.push(("the pages of the proxy job tracker", own, proxy_pages));
        }
        let of_node = |number| ("a node", Ipv4Addr::new(127, 0, 0, number), self.nodes);
        all.extend((1..=nodes).map(of_node));
        all
    }

    /// The first address that is taken.
    fn taken(self, nodes: u8) -> Option<(&'static str, Ipv4Addr, u16)> {
        self.addresses(nodes).into_iter().find(|(_, host, port)| !is_free(*host, *port))
    }

    /// Ports that are free on all the addresses, reserved so that the system gives them to no other program.
    fn free(nodes: u8) -> anyhow::Result<(Ports, Vec<Reserved>)> {
        let mut reserved = Vec::new();
        let mut choose = || -> io::Result<u16> {
            let chosen = Reserved::new((Ipv4Addr::LOCALHOST, 0).into())?;
            let port = chosen.address().port();
            reserved.push(chosen);
            Ok(port)
        };
        for _ in 0..MOST_SHIFTS {
            let ports = Ports {
                thrift: choose()?,
                pages: choose()?,
                job_tracker: choose()?,
                job_pages: choose()?,
                nodes: choose()?,
                proxy: Some(ProxyPorts {
                    proxy_thrift: choose()?,
                    proxy_rpc: choose()?,
                    proxy_pages: choose()?,
                }),
            };
            if let Ok(more) = ports.reserved(nodes) {
                reserved.extend(more);
                return Ok((ports, reserved));
            }
        }
        bail!("no port is free on all addresses of the nodes")
    }

    /// Keeps all the addresses from programs that ask for any free port.
    fn reserved(self, nodes: u8) -> io::Result<Vec<Reserved>> {
        let reserve = |(_, host, port)| Reserved::new(SocketAddr::from((host, port)));
        self.addresses(nodes).into_iter().map(reserve).collect()
    }
}

/// Whether nothing listens there. What a connection leaves behind for a minute does not count.
fn is_free(host: Ipv4Addr, port: u16) -> bool {
    // The standard library sets the option that lets a daemon listen again at once.
    TcpListener::bind((host, port)).is_ok()
}

/// Sets logs of daemons aside that are larger, as `NAME.log.old`. The daemons go on to append to the same file; a line
/// that is written meanwhile may be lost. A log that cannot be set aside goes on to grow.
pub(super) fn set_large_logs_aside(dir: &Path, most_bytes: u64) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let log = entry.path();
        let is_log = log.extension().is_some_and(|extension| extension == "log");
        let is_large = entry.metadata().is_ok_and(|file| file.is_file() && file.len() > most_bytes);
        // An earlier one is replaced only by a whole one.
        let (copy, old) = (log.with_extension("log.new"), log.with_extension("log.old"));
        let set_aside = || fs::copy(&log, &copy).and_then(|_| fs::rename(&copy, &old));
        if is_log && is_large && set_aside().map_err(|_| fs::remove_file(&copy)).is_ok() {
            let _ = File::options().write(true).open(&log).and_then(|log| log.set_len(0));
        }
    }
}

impl Home {
    fn open(dir: &Path) -> anyhow::Result<Home> {
        let shown = dir.display();
        fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {shown}"))?;
        let root = dir.canonicalize().with_context(|| format!("cannot use {shown}"))?;
        let is_usable = |c: char| !matches!(c, ',' | '%' | '#') && !c.is_control();
        ensure!(
            root.to_str().is_some_and(|text| text.chars().all(is_usable) && !text.contains("${")),
            "--dir {}: a path with a comma, %, #, ${{ or characters that are not UTF-8 cannot be \
             written into a configuration; name another directory",
            root.display()
        );
        let lock = File::options().create(true).append(true).open(root.join("lock"));
        let lock = lock.with_context(|| format!("cannot write into {shown}"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another mini-cluster uses {shown}; stop it, or name another directory")
            }
            Err(error) => return Err(error).context(format!("cannot lock {shown}/lock")),
        }
        for name in [
            "conf",
            "logs",
            "run",
            "cluster-manager",
            "job-tracker",
            "proxy-job-tracker",
            "history",
            "tmp",
        ] {
            let made = root.join(name);
            fs::create_dir_all(&made)
                .with_context(|| format!("cannot make the directory {}", made.display()))?;
        }
        Ok(Home { root, _lock: lock })
    }

    fn conf(&self) -> PathBuf {
        self.root.join("conf")
    }

    /// The ports that the directory keeps, else free ones, which it keeps from then on. No other program
    /// gets them while the second value exists, unless it asks for them.
    fn ports(&self, nodes: u8, any: bool) -> anyhow::Result<(Ports, Vec<Reserved>)> {
        let path = self.root.join("ports.json");
        match fs::read(&path) {
            Ok(kept) => {
                let mut ports: Ports = serde_json::from_slice(&kept).with_context(|| {
                    format!("{} cannot be read; delete it to get other ports", path.display())
                })?;
                if ports.proxy.is_none() {
                    ports.proxy = Ports::free(nodes)?.0.proxy;
                    ports.write(&path)?;
                }
                if let Some((what, host, port)) = ports.taken(nodes) {
                    bail!(
                        "{host}:{port}, the address of {what} in {}, is taken; stop the program \
                         that listens there, or delete {} to get other ports",
                        self.root.display(),
                        path.display()
                    );
                }
                let reserved = ports.reserved(nodes).context("cannot reserve ports")?;
                return Ok((ports, reserved));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
        }
        let (ports, reserved) = if any {
            Ports::free(nodes)?
        } else {
            let shifts = (0..MOST_SHIFTS).map(|number| Ports::shifted(number * SHIFT));
            let mut free = shifts.filter(|ports| ports.taken(nodes).is_none());
            let found = free.find_map(|ports| Some((ports, ports.reserved(nodes).ok()?)));
            found.ok_or_else(|| {
                anyhow!("all documented ports are taken; use --free-ports for any others")
            })?
        };
        ports.write(&path)?;
        Ok((ports, reserved))
    }

    /// Writes `conf/core-site.xml`, each time, and files for the user's own settings if there are none.
    fn write_configuration(&self, arguments: &Arguments, ports: &Ports) -> anyhow::Result<()> {
        let own = Ipv4Addr::LOCALHOST;
        let at = |name: &str| self.root.join(name).display().to_string();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = match arguments.slots {
            Some(slots) => usize::from(slots),
            None => processors.div_ceil(usize::from(arguments.nodes)).clamp(2, 64),
        };
        let mut settings: Vec<(&str, String)> = vec![
            ("cm.server.address", format!("{own}:{}", ports.thrift)),
            ("cm.server.http.address", format!("{own}:{}", ports.pages)),
            ("corona.jt.address", format!("{own}:{}", ports.job_tracker)),
            ("mapred.job.tracker", format!("{own}:{}", ports.job_tracker)),
            ("mapred.job.tracker.http.address", format!("{own}:{}", ports.job_pages)),
            // The port of all nodes, from which the cluster manager's pages link to them.
            ("mapred.task.tracker.http.address", format!("{own}:{}", ports.nodes)),
            ("corona.loopback.only", "true".to_owned()),
            ("cm.cpu.to.resource.partitioning", partitioning(slots)),
            ("mapred.coronatasktracker.num.cpus", slots.to_string()),
            ("fs.default.name", "file:///".to_owned()),
            ("hadoop.tmp.dir", at("tmp")),
            ("cm.state", at("cluster-manager/cm.state")),
            ("corona.cm.journal.dir", at("cluster-manager/journal")),
            ("corona.sessions.log.dir", at("history")),
            ("corona.jt.data.dir", at("job-tracker")),
            ("corona.pjt.data.dir", at("proxy-job-tracker")),
            ("corona.system.dir", format!("file:{}", at("system"))),
            ("mapred.system.dir", format!("file:{}", at("system"))),
            ("corona.tt.native.tasks", "streaming".to_owned()),
        ];
        if let Some(ProxyPorts { proxy_thrift, proxy_rpc, proxy_pages }) = ports.proxy {
            let of_proxy = [
                ("corona.proxy.job.tracker.thriftaddr", proxy_thrift),
                ("corona.proxy.job.tracker.rpcaddr", proxy_rpc),
                ("mapred.job.tracker.corona.proxyaddr", proxy_pages),
            ];
            settings.extend(of_proxy.map(|(key, port)| (key, format!("{own}:{port}"))));
        }
        settings.extend(FAST.iter().map(|(key, value)| (*key, (*value).to_owned())));
        for Override { key, value } in &arguments.overrides {
            settings.retain(|(known, _)| known != key);
            settings.push((key, value.clone()));
        }
        let mut xml = String::from(
            "<?xml version=\"1.0\"?>\n<!-- corona mini-cluster writes this file at each start. Put \
             settings of your own into\n     mapred-site.xml, which has the last word. -->\n\
             <configuration>\n",
        );
        for (key, value) in settings {
            xml.push_str(&format!(
                "  <property><name>{}</name><value>{}</value></property>\n",
                escaped(key),
                escaped(&value)
            ));
        }
        xml.push_str("</configuration>\n");
        let write = |name: &str, text: &str| {
            let path = self.conf().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("core-site.xml", &xml)?;
        for name in ["mapred-site.xml", "corona.xml"] {
            if !self.conf().join(name).exists() {
                write(name, "<?xml version=\"1.0\"?>\n<configuration>\n</configuration>\n")?;
            }
        }
        Ok(())
    }
}

/// Slots of a node for so many maps, as many reduces, and one job tracker.
fn partitioning(slots: usize) -> String {
    let of_one = r#""1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1}"#;
    match slots {
        1 => format!("{{{of_one}}}"),
        _ => format!(r#"{{{of_one},"{slots}":{{"MAP":{slots},"REDUCE":{slots},"JOBTRACKER":1}}}}"#),
    }
}

/// Times that suit one machine: a small job takes a second or two.
const FAST: &[(&str, &str)] = &[
    ("corona.clustermanager.heartbeat.interval", "1000"),
    ("corona.jobtracker.heartbeat.interval", "200"),
    ("mapreduce.tasktracker.outofband.heartbeat", "true"),
    ("mapred.event.sleep.ms", "100"),
    ("corona.pjt.index.interval.ms", "500"),
    ("corona.task.report.ms", "500"),
    ("corona.task.shuffle.retry.ms", "1000"),
    ("mapred.tasktracker.tasks.sleeptime.before.sigkill", "1000"),
    ("cm.node.expiryinterval", "20000"),
    ("corona.jt.exclusion.wait.ms", "2000"),
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What happens to daemons.
#[derive(Debug)]
enum News {
    /// It serves.
    Ready { name: String },
    /// It ended, and is started again after a pause.
    Ended { name: String, how: String, last: String },
    /// It cannot be started.
    Failed { name: String, why: String },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Ready { name } => write!(f, "{name}: ready again"),
            News::Ended { name, how, last } if last.is_empty() => {
                write!(f, "{name}: ended ({how}); starting it again")
            }
            News::Ended { name, how, last } => {
                write!(f, "{name}: ended ({how}: {last}); starting it again")
            }
            News::Failed { name, why } => write!(f, "{name}: cannot be started: {why}"),
        }
    }
}

/// The daemons that run.
struct Cluster {
    program: PathBuf,
    daemons: Vec<Daemon>,
    tell: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
}

/// A daemon that is kept running.
struct Daemon {
    stop: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Cluster {
    fn new(home: &Home) -> anyhow::Result<Cluster> {
        // The file as it is now: one that is replaced meanwhile has another version.
        let program = std::env::current_exe().context("cannot find this program")?;
        for entry in fs::read_dir(home.root.join("run"))? {
            // Numbers of processes of an earlier run would mislead.
            let _ = fs::remove_file(entry?.path());
        }
        let (tell, news) = mpsc::channel(100);
        Ok(Cluster { program, daemons: Vec::new(), tell, news })
    }

    /// Starts a daemon and keeps it running.
    fn launch(
        &mut self,
        name: &str,
        command: &[&str],
        home: &Home,
        settings: &[(&str, String)],
    ) -> anyhow::Result<()> {
        let log = home.root.join("logs").join(format!("{name}.log"));
        let mut arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        arguments.push("--conf-dir".to_owned());
        arguments.push(home.conf().display().to_string());
        for (key, value) in settings {
            arguments.extend(["-D".to_owned(), format!("{key}={value}")]);
        }
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper {
            name: name.to_owned(),
            program: self.program.clone(),
            arguments,
            log,
            pid: home.root.join("run").join(format!("{name}.pid")),
            directory: home.root.clone(),
            tell: self.tell.clone(),
            stopped,
        };
        let keeper = tokio::spawn(keeper.keep());
        self.daemons.push(Daemon { stop, keeper });
        Ok(())
    }

    /// Waits until these daemons serve for the first time.
    async fn until_ready(&mut self, names: &[String]) -> anyhow::Result<()> {
        let mut awaited: Vec<&String> = names.iter().collect();
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        while !awaited.is_empty() {
            let news = tokio::time::timeout_at(deadline, self.news.recv()).await;
            match news {
                Ok(Some(News::Ready { name })) => awaited.retain(|other| **other != name),
                Ok(Some(News::Failed { name, why })) => bail!("{name} cannot be started: {why}"),
                Ok(Some(News::Ended { name, how, last })) => {
                    let last = last.strip_prefix("corona: ").unwrap_or(&last);
                    bail!("{name} cannot start: {}", if last.is_empty() { &how } else { last })
                }
                Ok(None) => bail!("a part of the program failed"),
                Err(_) => {
                    let names: Vec<&str> = awaited.iter().map(|name| name.as_str()).collect();
                    let seconds = START_TIMEOUT.as_secs();
                    bail!("not ready after {seconds} s: {}", names.join(", "))
                }
            }
        }
        Ok(())
    }

    /// Stops the daemons: job tracker, nodes, proxy job tracker, cluster manager. Running jobs resume at the next start.
    async fn stop(mut self) {
        while let Some(Daemon { stop, keeper }) = self.daemons.pop() {
            stop.send_replace(true);
            // News that nobody reads must not block it.
            self.news.close();
            // A panic has ended the daemon with it.
            let _ = keeper.await;
        }
    }
}

/// Keeps one daemon running.
struct Keeper {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    pid: PathBuf,
    directory: PathBuf,
    tell: mpsc::Sender<News>,
    stopped: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(self) {
        let mut stopped = self.stopped.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let from = fs::metadata(&self.log).map_or(0, |log| log.len());
            let mut child = match self.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let (name, why) = (self.name.clone(), format!("{error:#}"));
                    // Nobody listens only when all is over.
                    let _ = self.tell.send(News::Failed { name, why }).await;
                    return;
                }
            };
            let status = tokio::select! {
                status = self.follow(&mut child) => status,
                _ = wait_for(&mut stopped) => {
                    end(&mut child).await;
                    let _ = fs::remove_file(&self.pid);
                    return;
                }
            };
            let _ = fs::remove_file(&self.pid);
            let how = match status {
                Ok(status) => shown(status),
                Err(error) => error.to_string(),
            };
            let (name, last) = (self.name.clone(), last_line(&self.log, from));
            let _ = self.tell.send(News::Ended { name, how, last }).await;
            if began.elapsed() >= LONG_RUN {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = wait_for(&mut stopped) => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot open {}", self.log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env_remove("HADOOP_CONF_DIR")
            .env_remove("NOTIFY_SOCKET")
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            // Ctrl-C at the terminal reaches this process alone, which stops them in order.
            .process_group(0);
        let child = command.spawn().context("the program cannot be started")?;
        if let Some(pid) = child.id() {
            // A file that cannot be written is missed by people only.
            let _ = fs::write(&self.pid, format!("{pid}\n"));
        }
        Ok(child)
    }

    /// Reports that a daemon is ready, and waits for its end.
    async fn follow(&self, child: &mut Child) -> io::Result<ExitStatus> {
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            // Its first line says that it is ready; the end of the lines is its end, or near.
            if let Ok(Some(_)) = lines.next_line().await {
                let _ = self.tell.send(News::Ready { name: self.name.clone() }).await;
                while let Ok(Some(_)) = lines.next_line().await {}
            }
        }
        child.wait().await
    }
}

async fn wait_for(stopped: &mut watch::Receiver<bool>) -> bool {
    stopped.wait_for(|stopped| *stopped).await.is_ok()
}

/// Ends a daemon: asks it first.
async fn end(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn shown(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;

    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last line of a log from a place on, if it is a complaint of this program.
fn last_line(log: &Path, from: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};

    const TAIL: u64 = 8 << 10;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL))))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let tail = read().unwrap_or_default();
    let last = tail.lines().last().unwrap_or_default().trim();
    if last.starts_with("corona: ") { last.to_owned() } else { String::new() }
}
