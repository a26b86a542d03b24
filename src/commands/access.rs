//! `corona access`: the certificate authority of a cluster, and who has access to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use corona::access::{
    AccessString, Authority, Entry, GrantId, Identity, NewGrant, Role, TlsMode, TlsSettings,
};
use corona::config::{ClientSource, HostPort, user_of_process};
use corona::process::machine_name_or_localhost;
use serde::Serialize;

use super::arguments::existing_conf_dir;
use super::closed;
use super::cluster::{block_on, parse_address};
use super::daemon::usable;
use super::head::{authority_of, usual_head};
use super::profile::Profile;
use super::times::Date;
use corona_terminal::console::{Console, FormArguments, OutputArguments, printable};
use corona_terminal::table::{Cell, Column, Table, number};

const EXAMPLES: &str = "\
Examples:
  On the machine of 'corona head', or as an administrator who has logged in:
    corona access create submit --user alice --hours 24 --uses 1
    corona access list
  Take access back, with all certificates:
    corona access revoke 1f3a9c04
  Who has done what:
    corona access audit
  The same for daemons with configuration files, on their machine:
    corona access list --conf-dir /etc/corona
  For daemons with configuration files: an authority, and their certificate:
    corona access init --authority /var/lib/corona/ca --directory /var/lib/corona/own \\
      --address head.example:8888
    corona access create node --authority /var/lib/corona/ca --address head.example:8888
  Use an access string; it is read from stdin, so that no process list shows it:
    corona access enrol - --directory ~/.config/corona/access

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// Give, list and take back access to a cluster
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    Init(Init),
    Create(Create),
    List(List),
    Audit(Audit),
    Revoke(Revoke),
    Rotate(Rotate),
    Enrol(Enrol),
}

/// Make a certificate authority, and a certificate for the head's daemons
#[derive(Args, Clone, Debug)]
#[command(override_usage = "corona access init --authority <DIR> --directory <DIR> \\\n         \
                            --address <HOST:PORT>")]
struct Init {
    /// Directory of the authority; one that is there is kept
    #[arg(long, value_name = "DIR")]
    authority: PathBuf,

    /// Directory of the certificate of the head's daemons
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,

    /// Where other members reach the daemon that issues certificates
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    address: HostPort,
}

/// Print a new access string
#[derive(Args, Clone, Debug)]
struct Create {
    /// What its holders become
    #[arg(value_parser = roles())]
    role: Role,

    /// The user, for submit: as whom jobs run
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// How long the string can be used [default: without end]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    hours: Option<u32>,

    /// How many members it lets in [default: any number]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,

    #[command(flatten)]
    of: Of,
}

/// List access strings, without their secrets
#[derive(Args, Clone, Debug)]
struct List {
    #[command(flatten)]
    of: Of,

    #[command(flatten)]
    output: OutputArguments,
}

/// Show who has changed the cluster and its jobs, when and from where
///
/// Each daemon keeps the last 1,000 changes of the cluster and the last 1,000 of
/// jobs, until it ends; its log has them for longer.
#[derive(Args, Clone, Debug)]
struct Audit {
    /// A port of another daemon, such as the job tracker's [default: the head's
    /// cluster manager]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    at: Option<HostPort>,

    #[command(flatten)]
    of: Of,

    #[command(flatten)]
    output: FormArguments,
}

/// Take access back: the strings and all certificates issued for them
#[derive(Args, Clone, Debug)]
struct Revoke {
    /// Ids, as shown in the list
    #[arg(required = true)]
    ids: Vec<GrantId>,

    #[command(flatten)]
    of: Of,
}

/// Print an access string with another secret; certificates stay valid
#[derive(Args, Clone, Debug)]
struct Rotate {
    /// The id, as shown in the list
    id: GrantId,

    #[command(flatten)]
    of: Of,
}

/// Exchange an access string for a certificate
#[derive(Args, Clone, Debug)]
struct Enrol {
    /// File with the access string; - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Directory for the certificate and its key
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,

    /// The name of this machine, for nodes and logs [default: the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// The authority: on this machine, or that of a head where this member is an administrator.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
struct Of {
    /// Directory of 'corona head' on this machine [default: --conf-dir, else the
    /// usual one, if a head was started there; else the cluster of 'corona
    /// login', whose administrator this user must be]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["authority", "directory"])]
    dir: Option<PathBuf>,

    /// Directory of the configuration files of daemons, with the authority or
    /// the certificate of an administrator [default: $HADOOP_CONF_DIR, if
    /// corona.tls is set there]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "authority", "directory"])]
    conf_dir: Option<PathBuf>,

    /// Directory of the authority, for daemons with configuration files
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    authority: Option<PathBuf>,

    /// Directory of the certificate of an administrator, over the network
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// With --authority: the address of the head that new strings name
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    address: Option<HostPort>,
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name)).try_map(|name| name.parse::<Role>())
}

/// An authority that is on this machine or is asked.
enum At {
    Here { authority: Box<Authority>, address: Option<HostPort> },
    There(Box<Identity>),
}

/// Does it and prints it.
///
/// # Errors
/// When files cannot be used, or the head cannot be reached or refuses.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::Init(init) => init.run(console)?,
        Action::Create(create) => create.run(console)?,
        Action::List(list) => list.run(console)?,
        Action::Audit(audit) => audit.run(console)?,
        Action::Revoke(Revoke { ids, of }) => {
            let at = of.open()?;
            let known = at.list()?;
            for id in ids {
                at.revoke(id)?;
                let entry = known.iter().find(|entry| entry.id == id);
                console.print(&format!("{}\n", revoked(id, entry)))?;
            }
        }
        Action::Rotate(Rotate { id, of }) => print(&of.open()?.rotate(id)?, console)?,
        Action::Enrol(enrol) => enrol.run(console)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Init {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let now = SystemTime::now();
        let HostPort { host, port } = &self.address;
        ensure!(*port != 0, "port 0 stands for any free port; name the one that others can use");
        let authority = Authority::open_or_create(&self.authority, now)?;
        let hosts = [host.to_string()];
        let head = (&**host, *port);
        Identity::own(
            &self.directory,
            &authority,
            &machine_name_or_localhost(),
            head,
            &hosts,
            now,
        )?;
        let text = format!(
            "corona.tls.authority.directory  {}\ncorona.tls.directory            {}\nCA  {}\n",
            self.authority.display(),
            self.directory.display(),
            authority.ca_hash()
        );
        Ok(console.print(&text)?)
    }
}

impl Create {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let new = NewGrant {
            role: self.role,
            user: self.user,
            valid_secs: self.hours.map(|hours| u64::from(hours) * 3600),
            uses: self.uses,
        };
        print(&self.of.open()?.grant(new)?, console)
    }
}

impl List {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let entries = self.of.open()?.list()?;
        let (output, shown) =
            (self.output, entries.iter().map(EntryAsJson::of).collect::<Vec<_>>());
        output.show(console, &shown, |console| table(&entries).render(console, output.wide))
    }
}

impl Audit {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let Some(directory) = self.of.identity()? else {
            return Err(anyhow!(
                "the daemons tell administrators only: name the directory of a certificate with --directory"
            ));
        };
        let administrator = Identity::open(&directory)?;
        let at = self.at.as_ref().map(|at| (&*at.host, at.port));
        let actions = block_on(async { Ok(administrator.audit(at).await?) })?;
        self.output.show(console, &actions, |_| {
            actions.iter().map(|done| format!("{}\n", printable(&done.to_string()))).collect()
        })
    }
}

impl Enrol {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let string = if self.file == Path::new("-") {
            std::io::read_to_string(std::io::stdin().lock())
        } else {
            fs::read_to_string(&self.file)
        };
        let string = string.with_context(|| format!("cannot read {}", self.file.display()))?;
        let string: AccessString = string.parse()?;
        let name = self.name.unwrap_or_else(machine_name_or_localhost);
        let hosts = [name.clone()];
        let member = block_on(async {
            Ok(Identity::enrol(&self.directory, &string, &name, &hosts).await?)
        })?;
        Ok(console.print(&format!("{}\n", member.identified()))?)
    }
}

impl Of {
    /// The directory of the certificate with which daemons are asked.
    fn identity(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.authority.is_some() || self.directory.is_some() {
            return Ok(self.directory.clone());
        }
        let configured = self.configured()?.and_then(|configured| configured.directory);
        let here = || self.dir.clone().or_else(usual_head).map(|head| closed::identity(&head));
        let of_login = || Profile::of_user(|name| std::env::var_os(name))?.identity_in_use();
        Ok(configured.or_else(here).or_else(of_login))
    }

    /// What the configuration files say, if some are named and the cluster speaks TLS.
    ///
    /// # Errors
    /// They cannot be read, or `--conf-dir` names the files of an open cluster.
    fn configured(&self) -> anyhow::Result<Option<TlsSettings>> {
        if self.dir.is_some() {
            return Ok(None);
        }
        let found = existing_conf_dir(self.conf_dir.clone(), |name| std::env::var_os(name))?;
        let Some(conf_dir) = found else { return Ok(None) };
        let source = ClientSource { conf_dir: Some(&conf_dir), ..ClientSource::default() };
        let tls = usable(source.tls())?;
        ensure!(
            tls.mode != TlsMode::Off || self.conf_dir.is_none(),
            "the cluster of {} is open: corona.tls is off there",
            conf_dir.display()
        );
        Ok(Some(tls).filter(|tls| tls.mode != TlsMode::Off))
    }

    fn open(self) -> anyhow::Result<At> {
        let here = |directory: &Path, address| {
            let authority = Box::new(Authority::open(directory)?.acting_for(this_user()));
            anyhow::Ok(At::Here { authority, address })
        };
        let there = |directory: &Path| anyhow::Ok(At::There(Box::new(Identity::open(directory)?)));
        if let Some(directory) = self.authority {
            return here(&directory, self.address);
        }
        if let Some(directory) = self.directory {
            return there(&directory);
        }
        if let Some(TlsSettings { directory, authority, .. }) = self.configured()? {
            // Where it is, this user may not be the one of the daemons.
            let readable = authority.filter(|authority| Authority::open(authority).is_ok());
            return match (readable, directory) {
                (Some(authority), Some(own)) => {
                    let (host, port) = Identity::open(&own)?.head();
                    let head = HostPort { host: host.into(), port };
                    here(&authority, Some(self.address.unwrap_or(head)))
                }
                (Some(authority), None) => here(&authority, self.address),
                (None, Some(own)) => there(&own),
                (None, None) => Err(anyhow!("the configuration sets no corona.tls.directory")),
            };
        }
        let profile = Profile::of_user(|name| std::env::var_os(name));
        let of_login = profile.and_then(|profile| profile.identity_in_use());
        match (self.dir.or_else(usual_head), of_login) {
            (Some(directory), _) => {
                let (authority, at) = authority_of(&directory)?;
                let address = Some(self.address.unwrap_or(at));
                Ok(At::Here { authority: Box::new(authority.acting_for(this_user())), address })
            }
            (None, Some(directory)) => there(&directory),
            (None, None) => Err(anyhow!(
                "no head was started on this machine, and no closed cluster is known to this user: name \
                 one with --dir, --conf-dir, --authority or --directory, or use 'corona login'"
            )),
        }
    }
}

impl At {
    fn grant(&self, new: NewGrant) -> anyhow::Result<AccessString> {
        match self {
            At::Here { authority, address } => {
                Ok(authority.grant(&new, named(address)?, SystemTime::now())?.1)
            }
            At::There(admin) => block_on(async { Ok(admin.grant(new).await?.1) }),
        }
    }

    fn list(&self) -> anyhow::Result<Vec<Entry>> {
        match self {
            At::Here { authority, .. } => Ok(authority.list()?),
            At::There(admin) => block_on(async { Ok(admin.list().await?) }),
        }
    }

    fn revoke(&self, id: GrantId) -> anyhow::Result<()> {
        match self {
            At::Here { authority, .. } => Ok(authority.revoke(id)?),
            At::There(admin) => block_on(async { Ok(admin.revoke(id).await?) }),
        }
    }

    fn rotate(&self, id: GrantId) -> anyhow::Result<AccessString> {
        match self {
            At::Here { authority, address } => Ok(authority.rotate(id, named(address)?)?),
            At::There(admin) => block_on(async { Ok(admin.rotate(id).await?) }),
        }
    }
}

/// How access ends: daemons ask for what has been revoked every 15 seconds.
fn revoked(id: GrantId, entry: Option<&Entry>) -> String {
    let holder = entry.map_or_else(String::new, |Entry { role, user, .. }| {
        user.as_ref().map_or_else(|| format!(" ({role})"), |user| format!(" ({role} {user})"))
    });
    format!("revoked {id}{holder}: the string and all certificates issued for it, within 15 s")
}

/// The user as whom this process acts, for the audit.
fn this_user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    user_of_process().map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

fn named(address: &Option<HostPort>) -> anyhow::Result<(&str, u16)> {
    let address =
        address.as_ref().context("--address is needed: the head that the string names")?;
    Ok((&address.host, address.port))
}

fn print(string: &AccessString, console: &mut Console<'_>) -> anyhow::Result<()> {
    Ok(console.print(&format!("{string}\n"))?)
}

/// An access string as JSON.
#[derive(Serialize)]
struct EntryAsJson<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    state: &'static str,
}

impl EntryAsJson<'_> {
    fn of(entry: &Entry) -> EntryAsJson<'_> {
        EntryAsJson { entry, state: state(entry) }
    }
}

/// Whether a string lets members in, in one word.
fn state(entry: &Entry) -> &'static str {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match entry {
        Entry { revoked: true, .. } => "revoked",
        Entry { own: true, .. } => "head",
        Entry { uses_left: Some(0), .. } => "used",
        Entry { expires: Some(expires), .. } if Duration::from_secs(*expires) <= now => "expired",
        _ => "valid",
    }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        Column::whole("ID"),
        Column::whole("ROLE"),
        Column::text("USER", 8),
        Column::whole("STATE"),
        Column::number("USES LEFT"),
        Column::number("ISSUED"),
        Column::text("LAST TO", 15),
        Column::whole("CREATED"),
    ]);
    for entry in entries {
        let created = i64::try_from(entry.created.saturating_mul(1000)).unwrap_or(i64::MAX);
        table.row([
            Cell::from(entry.id.to_string()),
            Cell::from(entry.role.to_string()),
            Cell::from(entry.user.clone().unwrap_or_default()),
            Cell::from(state(entry).to_owned()),
            number(entry.uses_left),
            number(Some(entry.issued)),
            Cell::from(entry.last_name.clone().unwrap_or_default()),
            Cell::from(Date(created).to_the_minute()),
        ]);
    }
    table
}
