//! Finding a cluster and calling it: the arguments with its addresses, and connections that fail
//! with one clear line.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use corona::config::{ClientSettings, ClientSource, ConfigErrors, HostPort, keys};
use corona::filesystem::FileSystemSettings;
use corona::wire::calls::{ClusterManager, ProxyJobTracker};
use corona::wire::client::{CallError, Client, ClientOptions, ConnectError};
use corona::wire::{Exception, Malformed, Service};
use tokio::runtime::Builder;

use super::arguments::{
    Override, conf_dir_of_client, no_cluster_hint, note_conf_dir, parse_override,
};
use super::daemon::usable;
use super::web::Web;

/// The configuration with the cluster's addresses, and the timeout.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
struct ConfigurationArguments {
    /// Directory of the configuration files [default: $HADOOP_CONF_DIR,
    /// else the cluster of 'corona login', else the head of this user here]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Also read this property file, after those of the directory; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    conf_file: Vec<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    /// Timeout for connecting, and again for the reply [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
}

/// Which cluster a command calls over Thrift.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArguments {
    /// Address for calls, overriding cm.server.address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    address: Option<HostPort>,

    #[command(flatten)]
    configuration: ConfigurationArguments,
}

/// Which cluster a command calls over Thrift, and whose pages it reads for data
/// that no call returns.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct CallAndPageArguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    /// Address of the pages, overriding cm.server.http.address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    http_address: Option<HostPort>,
}

impl CallAndPageArguments {
    /// Merges the arguments before a subcommand; those after it take
    /// precedence.
    pub(super) fn after(self, before: ClusterArguments) -> CallAndPageArguments {
        CallAndPageArguments { cluster: before.then(self.cluster), ..self }
    }

    /// As [`ClusterArguments::find`]. The pages are those of `--http-address`,
    /// else those of the configuration. With `--address` alone there are none,
    /// because the configured pages may be another cluster manager's.
    pub(super) fn find(self) -> anyhow::Result<(Cluster, Option<Web>)> {
        let CallAndPageArguments { cluster, http_address } = self;
        let is_key = |set: &Override| set.0 == keys::HTTP_ADDRESS.name;
        let are_named = cluster.configuration.overrides.iter().any(is_key);
        let cluster = cluster.find()?;
        let of_configuration = (cluster.address.is_none() || are_named)
            .then(|| cluster.settings.http_address.clone())
            .filter(|address| address.port != 0);
        let pages = http_address.or(of_configuration);
        let pages = pages.map(|address| Web::new(address, cluster.timeout));
        Ok((cluster, pages))
    }
}

/// Which cluster manager's pages a command reads.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct WebArguments {
    /// Address of the pages, overriding cm.server.http.address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    http_address: Option<HostPort>,

    #[command(flatten)]
    configuration: ConfigurationArguments,
}

/// The default timeout of a tool.
const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn parse_address(text: &str) -> Result<HostPort, String> {
    text.parse().map_err(|wrong| format!("{wrong}"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    const MOST: u32 = 86_400;
    match text.parse() {
        Ok(seconds @ 1..=MOST) => Ok(Duration::from_secs(u64::from(seconds))),
        _ => Err(format!("expected whole seconds from 1 to {MOST}")),
    }
}

impl ClusterArguments {
    /// The arguments before a subcommand and those after it; the latter take
    /// precedence.
    pub(super) fn then(self, later: ClusterArguments) -> ClusterArguments {
        ClusterArguments {
            address: later.address.or(self.address),
            configuration: self.configuration.then(later.configuration),
        }
    }

    /// Reads the configuration. A given address overrides the configured one.
    ///
    /// # Errors
    /// A file that cannot be read, or a wrong value of a key that is needed here.
    pub(super) fn find(self) -> anyhow::Result<Cluster> {
        let timeout = self.configuration.timeout.unwrap_or(USUAL_TIMEOUT);
        let settings = self.configuration.read(|name| std::env::var_os(name))?;
        Ok(Cluster { settings, address: self.address, timeout })
    }
}

impl WebArguments {
    /// The pages.
    pub(super) fn find(self) -> anyhow::Result<Web> {
        self.address().map(|(address, timeout)| Web::new(address, timeout))
    }

    /// The address of the pages, and how long to wait for them.
    fn address(self) -> anyhow::Result<(HostPort, Duration)> {
        let timeout = self.configuration.timeout.unwrap_or(USUAL_TIMEOUT);
        let settings = self.configuration.read(|name| std::env::var_os(name))?;
        let address = self.http_address.unwrap_or(settings.http_address);
        ensure!(
            address.port != 0,
            "the port of the pages is not known: cm.server.http.address is {address}, where 0 stands \
             for any free port; name the one in the cluster manager's ready line with --http-address"
        );
        Ok((address, timeout))
    }

    /// The addresses of the cluster, and how files are read, which says who the user is.
    pub(super) fn client_settings(&self) -> anyhow::Result<(ClientSettings, FileSystemSettings)> {
        self.configuration.clone().look(
            |name| std::env::var_os(name),
            |source| Ok((source.load()?, source.load_file_systems()?)),
        )
    }

    /// The token that actions of operators need over HTTP, if the configuration has one.
    ///
    /// # Errors
    /// A file that cannot be read, or a token that is too short.
    pub(super) fn operator_token(&self) -> anyhow::Result<Option<String>> {
        let configuration = self.configuration.clone();
        configuration.look(|name| std::env::var_os(name), |source| source.operator_token())
    }
}

impl ConfigurationArguments {
    fn then(self, later: ConfigurationArguments) -> ConfigurationArguments {
        ConfigurationArguments {
            conf_dir: later.conf_dir.or(self.conf_dir),
            conf_file: [self.conf_file, later.conf_file].concat(),
            overrides: [self.overrides, later.overrides].concat(),
            timeout: later.timeout.or(self.timeout),
        }
    }

    fn read(self, variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<ClientSettings> {
        self.look(variable, |source| source.load())
    }

    fn look<T>(
        self,
        variable: impl Fn(&str) -> Option<OsString>,
        read: impl FnOnce(&ClientSource<'_>) -> Result<T, ConfigErrors>,
    ) -> anyhow::Result<T> {
        let conf_dir = conf_dir_of_client(self.conf_dir, variable)?;
        note_conf_dir(conf_dir.as_deref());
        let source = ClientSource {
            conf_dir: conf_dir.as_deref(),
            further: &self.conf_file,
            overrides: &self.overrides,
        };
        // Whatever is read, and whatever else is wrong: nothing is called in another way than this says.
        corona::access::use_in_clients(&usable(source.tls())?)?;
        usable(read(&source))
    }
}

/// A cluster that was found in the configuration and not called yet.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) settings: ClientSettings,
    /// The given address, overriding the configured one.
    address: Option<HostPort>,
    /// For a connection, and for a call.
    pub(super) timeout: Duration,
}

impl Cluster {
    /// Where the cluster manager takes calls.
    pub(super) fn address(&self) -> &HostPort {
        self.address.as_ref().unwrap_or(&self.settings.server_address)
    }

    /// Connects to the cluster manager.
    pub(super) async fn cluster_manager(&self) -> anyhow::Result<Peer<ClusterManager>> {
        Peer::connect("cluster manager", self.address(), self.timeout).await
    }

    /// Connects to the proxy job tracker, or to the given address.
    pub(super) async fn proxy_job_tracker(&self) -> anyhow::Result<Peer<ProxyJobTracker>> {
        let address = self.address.as_ref().unwrap_or(&self.settings.proxy_job_tracker_address);
        Peer::connect("proxy job tracker", address, self.timeout).await
    }
}

/// A connection to a service of the cluster.
#[derive(Debug)]
pub(super) struct Peer<S> {
    client: Client<S>,
    /// The service with its address, for errors.
    who: String,
}

impl<S: Service> Peer<S> {
    async fn connect(role: &str, address: &HostPort, timeout: Duration) -> anyhow::Result<Peer<S>> {
        let who = format!("the {role} at {address}");
        if address.port == 0 {
            bail!("{who} cannot be called: port 0 stands for any free port");
        }
        let options = ClientOptions {
            connect_timeout: timeout,
            call_timeout: timeout,
            ..ClientOptions::default()
        };
        match Client::connect((&*address.host, address.port), options).await {
            Ok(client) => Ok(Peer { client, who }),
            Err(ConnectError::Timeout(due)) => {
                bail!("{who} did not accept a connection {}", Within(due))
            }
            Err(ConnectError::Io(error)) => {
                let hint = no_cluster_hint(address, |name| std::env::var_os(name));
                bail!("{who} cannot be reached: {error}{hint}")
            }
        }
    }

    /// Makes a call. The inner result is a reply, or an exception of the
    /// contract.
    ///
    /// # Errors
    /// When there is no such reply.
    pub(super) async fn call(
        &mut self,
        call: &S::Call,
    ) -> anyhow::Result<Result<S::Reply, Exception>> {
        let method = S::method_name(call);
        let who = &self.who;
        Err(match self.client.call(call).await {
            Ok(reply) => return Ok(Ok(reply)),
            Err(CallError::Exception(exception)) => return Ok(Err(exception)),
            Err(CallError::Closed) => {
                anyhow!("{who} closed the connection instead of answering {method}")
            }
            Err(CallError::Timeout(due)) => {
                anyhow!("{who} did not answer {method} {}; it may still do it", Within(due))
            }
            Err(CallError::Fault(fault)) => {
                let reason = fault.message.strip_prefix(method).unwrap_or(&fault.message);
                anyhow!("{who} refused {method}: {}", reason.trim_start_matches(": "))
            }
            Err(other) if is_http(&other) => anyhow!(
                "{who} answered {method} with HTTP: this looks like the port of the pages; name the \
                 port of cm.server.address with --address"
            ),
            Err(other) => anyhow!("{who} failed in {method}: {other}"),
        })
    }
}

/// Whether the received bytes are the start of an HTTP response, read as the
/// length of a message.
fn is_http(error: &CallError) -> bool {
    const LENGTH: u32 = u32::from_be_bytes(*b"HTTP");
    let CallError::Malformed(Malformed::TooLarge { bytes, .. }) = error else { return false };
    *bytes == u64::from(LENGTH)
}

/// A span in an error: `within 60 s`.
struct Within(Duration);

impl std::fmt::Display for Within {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "within {} s", self.0.as_secs())
    }
}

/// The error for a reply that belongs to another method, which the wire
/// prevents.
pub(super) fn mismatch() -> anyhow::Error {
    anyhow!("the answer belongs to another call")
}

/// Runs a command that calls others.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_on(&mut Builder::new_current_thread(), work)?
}

/// The same with a second thread, which reads, checks or decompresses what the first one sends.
pub(super) fn block_on_two_threads<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    run_on(Builder::new_multi_thread().worker_threads(2), work)
}

fn run_on<T>(builder: &mut Builder, work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = builder.enable_all().build().context("cannot start")?;
    // In a box: one copy of the driving code for all commands.
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(work);
    let done = runtime.block_on(work);
    // A hanging name look-up must not delay the end.
    runtime.shutdown_background();
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(overrides: &[(&str, &str)]) -> ConfigurationArguments {
        let overrides =
            overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigurationArguments { overrides: overrides.collect(), ..Default::default() }
    }

    fn at(address: &str) -> ClusterArguments {
        ClusterArguments { address: Some(address.parse().unwrap()), ..Default::default() }
    }

    #[test]
    fn later_options_win_and_lists_grow() {
        let file = |name: &str| ConfigurationArguments {
            conf_file: vec![name.into()],
            ..ConfigurationArguments::default()
        };
        let all = file("a").then(said(&[("k", "1")])).then(file("b")).then(said(&[("k", "2")]));
        assert_eq!(all.conf_file, [PathBuf::from("a"), PathBuf::from("b")]);
        let values: Vec<_> = all.overrides.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(values, [("k", "1"), ("k", "2")]);

        for (first, later, expected) in [
            (at("h:1"), ClusterArguments::default(), "h:1"),
            (ClusterArguments::default(), at("h:2"), "h:2"),
            (at("h:1"), at("h:2"), "h:2"),
        ] {
            assert_eq!(first.then(later).address.unwrap().to_string(), expected);
        }
    }

    #[test]
    fn the_configuration_says_where_the_cluster_is() {
        let dir = tempfile::tempdir().unwrap();
        let site = "<configuration><property><name>cm.server.address</name>\
            <value>from.file:1</value></property></configuration>";
        std::fs::write(dir.path().join("core-site.xml"), site).unwrap();
        let variable = |name: &str| (name == "HADOOP_CONF_DIR").then(|| dir.path().into());
        let found =
            |said: ConfigurationArguments| said.read(variable).unwrap().server_address.to_string();
        assert_eq!(found(said(&[])), "from.file:1");
        assert_eq!(found(said(&[("cm.server.address", "from.line:2")])), "from.line:2");

        let wrong = said(&[("cm.server.address", "x"), ("corona.node.restart.batch", "y")]);
        let error = wrong.read(|_| None).unwrap_err().to_string();
        let (first, second) = error.split_once("; -D: ").unwrap();
        assert!(first.contains("cm.server.address") && second.contains("node.restart"), "{error}");

        let conf_dir = Some("/no/such/dir".into());
        let absent = ConfigurationArguments { conf_dir, ..ConfigurationArguments::default() };
        assert!(absent.read(|_| None).unwrap_err().to_string().contains("/no/such/dir"));
    }

    #[test]
    fn a_port_of_the_pages_is_needed() {
        let web = |http: Option<&str>, overrides: &[(&str, &str)]| {
            let http_address = http.map(|address| address.parse().unwrap());
            // A directory of its own, so that the test does not depend on the environment.
            let dir = tempfile::tempdir().unwrap();
            let conf_dir = Some(dir.path().to_path_buf());
            let configuration = ConfigurationArguments { conf_dir, ..said(overrides) };
            let found = WebArguments { http_address, configuration }.address();
            found.map(|(address, _)| address.to_string()).map_err(|error| error.to_string())
        };
        let any = [("cm.server.http.address", "localhost:0")];
        let error = web(None, &any).unwrap_err();
        assert!(error.contains("localhost:0") && error.contains("--http-address"), "{error}");
        assert_eq!(web(None, &[]), Ok("localhost:8889".into()));
        assert_eq!(web(Some("h:1"), &[]), Ok("h:1".into()));
        assert_eq!(web(None, &[("cm.server.http.address", "h:2")]), Ok("h:2".into()));
    }

    #[test]
    fn seconds_and_addresses_are_checked() {
        assert_eq!(parse_seconds("5"), Ok(Duration::from_secs(5)));
        for wrong in ["0", "-1", "1.5", "", "86401", "5s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "host", "host:", "host:http", "host:99999", "a b:1"] {
            assert!(parse_address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_address("[::1]:5").unwrap().to_string(), "[::1]:5");
    }
}
