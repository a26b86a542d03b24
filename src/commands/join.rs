//! `corona join`: makes this machine a node of a cluster that `corona head` runs.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use corona::access::{EnrolError, Identity, IdentityError, Role};
use corona::hadoop::rpc::CallError;
use sd_notify::NotifyState;
use tokio::time::sleep;

use super::closed::required_keys;
use super::cluster::block_on;
use super::daemon::tell_systemd;
use super::daemons::{Daemons, Home, PID, hang_up};
use super::head::usual_directory;
use super::invitation::{ClusterFacts, Invitation, write_private};
use super::parts::{NodePart, Site};
use super::profile::removed;
use super::signals::{StopSignal, on_hangup, shutdown_signal};
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  With the line that 'corona head' prints:
    corona join corona1:node:alpha:8889:...
  The same from stdin, so that neither the history of the shell nor a list of
  processes shows the line: enter the command, then paste the line
    corona join -
  The same from a file, as the service corona-node does:
    corona join @/etc/corona/node
  Again after a stop, and with eight tasks at a time:
    corona join --slots 8

The head needs to reach the ports 8890 to 8892 of this machine, and other nodes
8890, or those that follow the head's --port-base. Everything is in one
directory, by default /var/lib/corona-node for root and
~/.local/share/corona/node for others.
SIGHUP starts the task tracker again in place, a new version of the program if
there is one: its tasks go on.
Exit status: 0 stopped; 1 could not start, with one line on stderr; 2 wrong
usage.";

/// The file that keeps where the head is.
const STRING_FILE: &str = "string";
/// The file that keeps what the head said last.
const FACTS_FILE: &str = "cluster.json";
/// The certificate of the node, and one that is to replace it.
const IDENTITY: &str = "identity";
const NEW_IDENTITY: &str = "identity.new";
const NODE: &str = "node";
/// How long a head that was never reached is waited for.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two tries to reach the head, and between two looks at this machine's address.
const PAUSE: Duration = Duration::from_secs(2);
const ADDRESS_LOOK: Duration = Duration::from_secs(10);

/// Make this machine a node of a cluster
///
/// Starts a task tracker with the cores and the memory of this machine, which
/// runs jobs without Java. It learns everything from the head, is started again
/// when it ends, and waits for a head that is away.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The string that 'corona head' prints for nodes; @FILE: the first line of
    /// a file, -: of stdin [default: that of the last start]
    #[arg(value_name = "STRING")]
    string: Option<String>,

    /// Directory of all files of the node; made if it does not exist
    ///
    /// [default: /var/lib/corona-node for root, else
    /// ~/.local/share/corona/node]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Name or address under which other machines reach this one [default: the
    /// address from which it reaches the head]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Maps, and as many reduces, at a time [default: the machine's cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    slots: Option<u16>,
}

/// Runs the node until a signal stops it.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    // The daemon is a child of the thread that starts it, and ends with it.
    block_on(arguments.serve(console))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the head, or another cluster's, has answered that it will not let this machine in.
fn is_final(error: &anyhow::Error) -> bool {
    let is_revoked = |cause: &(dyn std::error::Error + 'static)| {
        let error = match cause.downcast_ref() {
            Some(CallError::Connect { error, .. }) => Some(error),
            _ => cause.downcast_ref::<io::Error>(),
        };
        error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    match error.downcast_ref() {
        Some(IdentityError::Enrol(EnrolError::Refused { .. })) => true,
        Some(IdentityError::Enrol(EnrolError::Handshake { error, .. })) => {
            error.kind() == io::ErrorKind::InvalidData
        }
        Some(IdentityError::File(_)) => false,
        _ => error.chain().any(is_revoked),
    }
}

/// What a node begins with.
struct Beginning {
    facts: ClusterFacts,
    host: String,
}

impl Arguments {
    async fn serve(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        tokio::pin!(stop);
        let directory = self.dir.clone().map_or_else(|| usual_directory(NODE), Ok)?;
        let home = Home::open(&directory, NODE, &["local", "tmp"])?;
        let pid = home.root.join("run").join(format!("{NODE}.{PID}"));
        // SIGHUP is passed on to the task tracker, which starts again in place.
        on_hangup(move || hang_up(&pid))?;
        if let Some(given) = &self.string {
            Invitation::hide(given, Role::Node, &home.root)?;
        }
        let invitation = self.invitation(&home)?;
        // Once it is read, nothing but the kept string is needed.
        Invitation::forget_given(&home.root);
        loop {
            let beginning = tokio::select! {
                beginning = self.beginning(&home, &invitation, console) => beginning?,
                _ = &mut stop => return Ok(()),
            };
            if !self.serve_as(&home, &invitation, &beginning, console, stop.as_mut()).await? {
                return Ok(());
            }
        }
    }

    /// The given string, else the kept one. One that was given is kept once the head has accepted it.
    fn invitation(&self, home: &Home) -> anyhow::Result<Invitation> {
        if let Some(given) = &self.string {
            return Invitation::read(given, Role::Node);
        }
        let path = home.root.join(STRING_FILE);
        match fs::read_to_string(&path) {
            Ok(kept) => kept.parse().with_context(|| format!("cannot use {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
                "this machine has joined no cluster yet: name the string that 'corona head' prints"
            ),
            Err(error) => Err(error).context(format!("cannot read {}", path.display())),
        }
    }

    /// Whether the given string is another one than that by which this machine is a node.
    fn is_other(home: &Home, invitation: &Invitation) -> bool {
        let kept = fs::read_to_string(home.root.join(STRING_FILE));
        kept.ok().and_then(|kept| kept.parse().ok()).as_ref() != Some(invitation)
    }

    /// What the head says, or has said when it was reached last, and the name of this machine.
    async fn beginning(
        &self,
        home: &Home,
        invitation: &Invitation,
        console: &mut Console<'_>,
    ) -> anyhow::Result<Beginning> {
        let path = home.root.join(FACTS_FILE);
        let is_kept = !Arguments::is_other(home, invitation);
        let kept = fs::read_to_string(&path).ok().filter(|_| is_kept);
        let kept = kept.and_then(|kept| ClusterFacts::parse(&kept).ok());
        let began = Instant::now();
        let mut said = false;
        loop {
            let error = match (self.learn(home, invitation).await, &kept) {
                (Ok(facts), _) => {
                    write_private(&path, &facts.to_json()?)?;
                    match self.own_host(invitation).await {
                        Ok(host) => return Ok(Beginning { facts, host }),
                        // A name that is wrong stays wrong.
                        Err(error) if self.host.is_some() => return Err(error),
                        Err(error) => error,
                    }
                }
                (Err(error), _) if is_final(&error) => return Err(error),
                (Err(_), Some(kept)) => match self.own_host(invitation).await {
                    Ok(host) => return Ok(Beginning { facts: kept.clone(), host }),
                    Err(error) => error,
                },
                (Err(error), None) => error,
            };
            if kept.is_none() && began.elapsed() >= FIRST_PATIENCE {
                return Err(error);
            }
            if !said {
                console.complain(&format!("{error:#}; trying again\n"));
                said = true;
            }
            sleep(PAUSE).await;
        }
    }

    /// Gets the certificate of this node, if it has none, and what the head says. A string that the head does not
    /// accept leaves everything as it was.
    async fn learn(&self, home: &Home, invitation: &Invitation) -> anyhow::Result<ClusterFacts> {
        let name = match &self.host {
            Some(name) => name.clone(),
            None => invitation.own_address().await?.to_string(),
        };
        // Names of certificates have no colon.
        let name = name.replace(':', "-");
        let identity = home.root.join(IDENTITY);
        if Arguments::is_other(home, invitation) {
            let fresh = home.root.join(NEW_IDENTITY);
            removed(&fresh)?;
            Identity::enrol(&fresh, &invitation.access, &name, std::slice::from_ref(&name)).await?;
            // What another head has said is nothing here.
            let _ = fs::remove_file(home.root.join(FACTS_FILE));
            removed(&identity)?;
            fs::rename(&fresh, &identity)
                .with_context(|| format!("cannot replace {}", identity.display()))?;
            write_private(&home.root.join(STRING_FILE), &invitation.access.to_string())?;
        }
        invitation.enrol(&identity, &name).await?;
        invitation.learn().await
    }

    /// The name under which others reach this machine.
    async fn own_host(&self, invitation: &Invitation) -> anyhow::Result<String> {
        let own = invitation.own_address().await?;
        let Some(name) = &self.host else { return Ok(own.to_string()) };
        let found = tokio::net::lookup_host((name.as_str(), 0)).await;
        let found = found.with_context(|| format!("the name {name} has no address"))?;
        let address = found.map(|address| address.ip()).next();
        let address = address.ok_or_else(|| anyhow!("the name {name} has no address"))?;
        ensure!(
            !address.is_loopback() || own.is_loopback(),
            "the name {name} leads to {address} here, which other machines cannot reach; leave --host \
             out for {own}, or name an address"
        );
        Ok(name.clone())
    }

    /// Runs the task tracker until a signal comes (false), or until this machine has another address.
    async fn serve_as(
        &self,
        home: &Home,
        invitation: &Invitation,
        beginning: &Beginning,
        console: &mut Console<'_>,
        mut stop: Pin<&mut impl Future<Output = StopSignal>>,
    ) -> anyhow::Result<bool> {
        let host = &beginning.host;
        self.site(invitation, &beginning.facts, home).write(&home.conf(), "corona join")?;
        let mut daemons = Daemons::new(home)?;
        let (http_port, directory) = (invitation.ports.node(), &*home.root);
        daemons.start_node(home, &NodePart { name: NODE, host, http_port, directory });
        let awaited = [NODE.to_owned()];
        let started = tokio::select! {
            started = daemons.until_ready(&awaited) => started.map(|()| true),
            _ = &mut stop => Ok(false),
        };
        let goes_on = match started {
            Ok(true) => {
                // A failure to write it does not end the node.
                let _ = console.print(&self.ready(invitation, beginning, &home.root));
                tell_systemd(NotifyState::Ready);
                let changed = self.changed_host(invitation, host);
                let changed = daemons.watch(home, console, stop, changed).await;
                if let Some(now) = &changed {
                    console.complain(&format!(
                        "this machine is {now} now, and was {host}; starting again\n"
                    ));
                }
                Ok(changed.is_some())
            }
            other => other,
        };
        daemons.stop().await;
        goes_on
    }

    fn site(&self, invitation: &Invitation, facts: &ClusterFacts, home: &Home) -> Site {
        let ports = invitation.ports;
        let mut site = facts.site(&invitation.addresses());
        site.set([
            ("corona.tt.action.port", ports.node_actions().to_string()),
            ("corona.tt.callback.port", ports.node_callbacks().to_string()),
            ("corona.tt.job.trackers", "false".to_owned()),
            ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1,"REDUCE":1}}"#.to_owned()),
            ("mapred.system.dir", format!("file:{}", home.at("tmp/none"))),
        ]);
        site.set(required_keys(&home.root.join(IDENTITY)));
        if let Some(slots) = self.slots {
            site.set([("mapred.coronatasktracker.num.cpus", slots.to_string())]);
        }
        site
    }

    /// The lines that are printed when it serves.
    fn ready(&self, invitation: &Invitation, beginning: &Beginning, dir: &Path) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = self.slots.map_or(cores, usize::from);
        let marker = &beginning.facts.marker;
        let path: &Path = marker.path.as_ref();
        let shared = path.parent().unwrap_or(path).display();
        let files = match marker.is_seen() {
            true => format!("files: this machine sees {shared} of the head"),
            false => "files: no directory is known to be shared with the head; jobs read and write on HDFS, or in a \
                 directory that all machines mount"
                .to_owned(),
        };
        format!(
            "corona node ready: host {} slots {slots} cluster {} dir {}\n{files}\n",
            beginning.host,
            invitation.pages(),
            dir.display()
        )
    }

    /// Completes with another name of this machine. A machine that has none for the moment is waited for.
    async fn changed_host(&self, invitation: &Invitation, host: &str) -> String {
        loop {
            sleep(ADDRESS_LOOK).await;
            match invitation.own_address().await {
                Ok(own) if self.host.is_none() && own.to_string() != host => {
                    return own.to_string();
                }
                _ => {}
            }
        }
    }
}
