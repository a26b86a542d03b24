//! `corona mini-cluster`: a whole cluster on this machine, each daemon in a process of its own.
//!
//! The process itself only writes the configuration, starts the daemons, starts them again when they end,
//! and stops them. So whatever happens to one of them happens to it as on a machine of its own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use corona::model::form::FileVersion;
use corona::process::procfs::Machine;
use corona_net::{ListenOn, Reserved};
use serde::{Deserialize, Serialize};

use super::arguments::{Override, parse_override};
use super::closed;
use super::cluster::block_on;
use super::daemons::{Daemons, Home};
use super::parts::{HEAD_FOLDERS, HeadAddresses, NodePart, Site};
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
With --closed, 'corona open --conf-dir DIR/conf' prints a link to the pages.
A daemon that ends is started again; its log is in DIR/logs, the number of its
process in DIR/run.
Exit status: 0 stopped; 1 could not start, with one line on stderr that says
why; 2 wrong usage.";

/// The most nodes.
const MOST_NODES: u8 = 50;
/// How often the documented ports are moved by [`SHIFT`] before they count as taken.
const MOST_SHIFTS: u16 = 50;
const SHIFT: u16 = 100;
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

    /// Let only those in who hold a certificate; DIR/conf has that of an
    /// administrator. Without it every user of this machine may run programs as
    /// the user that runs the cluster
    #[arg(long)]
    closed: bool,

    /// Set a configuration key of all daemons; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,
}

/// Runs the cluster until a signal stops it.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    // The daemons are children of the thread that starts them, and end with it.
    block_on(serve(arguments, console))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<()> {
    let stop = shutdown_signal().context("cannot listen for signals")?;
    tokio::pin!(stop);
    let home = Home::open(&arguments.dir, "mini-cluster", &HEAD_FOLDERS)?;
    ensure!(
        arguments.closed || !closed::is_closed(&home.root),
        "the cluster in {} is closed; start it again with --closed, or another one in another directory",
        home.root.display()
    );
    // Until the end: the daemons may be started again.
    let (ports, _reserved) = Ports::of(&home, arguments.nodes, arguments.free_ports)?;
    let mut site = configuration(&home, &arguments, &ports);
    let scheme = if arguments.closed {
        let hosts = (1..=arguments.nodes).map(|number| node_host(number).to_string());
        let at = Ipv4Addr::LOCALHOST.to_string();
        closed::open(&home.root, (&at, ports.pages), &hosts.collect::<Vec<_>>())?;
        site.set(closed::keys(&home.root));
        "https"
    } else {
        "http"
    };
    site.write(&home.conf(), "corona mini-cluster")?;
    let mut cluster = Daemons::new(&home)?;
    let started = tokio::select! {
        started = start(&mut cluster, &home, &ports, arguments.nodes) => started.map(|()| true),
        _ = &mut stop => Ok(false),
    };
    let ended = match started {
        Ok(true) => {
            console.print(&format!(
                "corona mini-cluster ready: pages {scheme}://{}:{}/ nodes {} conf {}\n",
                Ipv4Addr::LOCALHOST,
                ports.pages,
                arguments.nodes,
                home.conf().display()
            ))?;
            cluster.watch(&home, console, stop.as_mut(), std::future::pending::<()>()).await;
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    cluster.stop().await;
    ended
}

/// Starts all daemons and waits until they are ready: the cluster manager first.
async fn start(cluster: &mut Daemons, home: &Home, ports: &Ports, nodes: u8) -> anyhow::Result<()> {
    cluster.start_cluster_manager(home).await?;
    let mut names = Vec::new();
    for number in 1..=nodes {
        let name = format!("node-{number}");
        let host = node_host(number).to_string();
        let directory = home.root.join(&name);
        let (host, http_port) = (&*host, ports.nodes);
        let node = NodePart { name: &name, host, http_port, directory: &directory };
        cluster.start_node(home, &node);
        names.push(name);
    }
    cluster.start_job_tracker(home, names).await
}

fn node_host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

/// The version of the form of the file of ports. One that had no version was the first.
const VERSION: u32 = 1;

/// The file of ports.
#[derive(Serialize, Deserialize)]
struct PortsFile {
    #[serde(flatten)]
    version: FileVersion,
    #[serde(flatten)]
    ports: Ports,
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
        fs::write(
            path,
            serde_json::to_vec(&PortsFile {
                version: FileVersion { version: VERSION },
                ports: *self,
            })?,
        )
        .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The ports that a file keeps.
    ///
    /// # Errors
    /// It is damaged, or of a later version.
    fn parse(kept: &[u8], path: &Path) -> anyhow::Result<Ports> {
        let wrong = || format!("{} cannot be read; delete it to get other ports", path.display());
        let FileVersion { version } = serde_json::from_slice(kept).with_context(wrong)?;
        ensure!(
            version == VERSION,
            "{} has form {version}, which this version of corona does not know; delete it to get other ports",
            path.display()
        );
        Ok(serde_json::from_slice::<PortsFile>(kept).with_context(wrong)?.ports)
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
        let of_node = |number| ("a node", node_host(number), self.nodes);
        all.extend((1..=nodes).map(of_node));
        all
    }

    /// The first address that is taken.
    fn taken(self, nodes: u8) -> Option<(&'static str, Ipv4Addr, u16)> {
        self.addresses(nodes).into_iter().find(|(_, host, port)| !is_free(*host, *port))
    }

    /// Ports that are free on all addresses, reserved so that the system gives them to no other program.
    fn free() -> anyhow::Result<(Ports, Vec<Reserved>)> {
        let mut reserved = Vec::new();
        let mut choose = || -> anyhow::Result<u16> {
            let chosen = Reserved::new(ListenOn::AnyAddress(0)).context("no port is free")?;
            let port = chosen.address().port();
            reserved.push(chosen);
            Ok(port)
        };
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
        Ok((ports, reserved))
    }

    /// Keeps all the addresses from programs that ask for any free port.
    fn reserved(self, nodes: u8) -> io::Result<Vec<Reserved>> {
        let reserve = |(_, host, port)| Reserved::new(ListenOn::Address((host, port).into()));
        self.addresses(nodes).into_iter().map(reserve).collect()
    }
}

/// Whether nothing listens there. What a connection leaves behind for a minute does not count.
fn is_free(host: Ipv4Addr, port: u16) -> bool {
    // The standard library sets the option that lets a daemon listen again at once.
    TcpListener::bind((host, port)).is_ok()
}

impl Ports {
    /// The ports that the directory keeps, else free ones, which it keeps from then on. No other program
    /// gets them while the second value exists, unless it asks for them.
    fn of(home: &Home, nodes: u8, any: bool) -> anyhow::Result<(Ports, Vec<Reserved>)> {
        let path = home.root.join("ports.json");
        match fs::read(&path) {
            Ok(kept) => {
                let mut ports = Ports::parse(&kept, &path)?;
                if ports.proxy.is_none() {
                    ports.proxy = Ports::free()?.0.proxy;
                    ports.write(&path)?;
                }
                if let Some((what, host, port)) = ports.taken(nodes) {
                    bail!(
                        "{host}:{port}, the address of {what} in {}, is taken; stop the program \
                         that listens there, or delete {} to get other ports",
                        home.root.display(),
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
            Ports::free()?
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
}

/// The settings of all daemons.
fn configuration(home: &Home, arguments: &Arguments, ports: &Ports) -> Site {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let slots = match arguments.slots {
        Some(slots) => usize::from(slots),
        None => processors.div_ceil(usize::from(arguments.nodes)).clamp(2, 64),
    };
    // Each node has its part, so that all together have what the machine has.
    let memory_mib = (Machine::allowed().memory_bytes >> 20) / u64::from(arguments.nodes);
    let proxy = ports.proxy.map(|proxy| [proxy.proxy_thrift, proxy.proxy_rpc, proxy.proxy_pages]);
    let mut site = Site::of_cluster(&HeadAddresses {
        host: Ipv4Addr::LOCALHOST.to_string(),
        thrift: ports.thrift,
        pages: ports.pages,
        job_tracker: ports.job_tracker,
        job_pages: ports.job_pages,
        nodes: ports.nodes,
        proxy,
    });
    site.add_files_of_head(home);
    site.set([
        ("corona.loopback.only", "true".to_owned()),
        ("cm.cpu.to.resource.partitioning", partitioning(slots)),
        ("mapred.coronatasktracker.num.cpus", slots.to_string()),
        ("corona.tt.memory.mb", memory_mib.to_string()),
        ("cm.node.expiryinterval", "20000".to_owned()),
    ]);
    site.override_with(&arguments.overrides);
    site
}

/// Slots of a node for so many maps, as many reduces, and one job tracker.
fn partitioning(slots: usize) -> String {
    let of_one = r#""1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1}"#;
    match slots {
        1 => format!("{{{of_one}}}"),
        _ => format!(r#"{{{of_one},"{slots}":{{"MAP":{slots},"REDUCE":{slots},"JOBTRACKER":1}}}}"#),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_later_version_are_refused_by_its_number() {
        let fixture = include_str!("../../fixtures/versions/mini-cluster-ports.json");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        let ports = Ports::shifted(0);
        ports.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), fixture.trim_end());
        let parse = |text: &str| Ports::parse(text.as_bytes(), &path);
        assert_eq!(parse(fixture).unwrap(), ports);
        // Those of earlier programs had no version, and of the first one no proxy job tracker.
        assert_eq!(parse(&fixture.replace("\"version\":1,", "")).unwrap(), ports);
        let (first, _) = fixture.split_once(",\"proxy_thrift\"").unwrap();
        assert_eq!(parse(&format!("{first}}}")).unwrap(), Ports { proxy: None, ..ports });
        let refused = parse(r#"{"version":2}"#).unwrap_err().to_string();
        assert!(
            refused.contains("has form 2, which this version of corona does not know"),
            "{refused}"
        );
        for damaged in ["", "{", r#"{"version":1}"#, r#"{"version":"x"}"#] {
            let error = parse(damaged).unwrap_err().to_string();
            assert!(error.contains("cannot be read; delete it"), "{damaged}: {error}");
        }
    }
}
