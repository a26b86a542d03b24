//! The cluster manager that the suite looks at.

use std::env;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use compat_tests::{launch, repository, start};
use corona::conformance::launch::{Launch, LaunchedManager};

use super::expected::Kind;

/// Where the suite is its proxy job tracker, unless `CORONA_TARGET_PROXY` names another port: the
/// one in the configuration in `fixtures/config/any_manager`.
const PROXY_PORT: u16 = 18802;

/// A cluster manager that runs.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Where it expects its proxy job tracker.
    pub(crate) proxy: TcpListener,
    /// Ours, which ends with the suite.
    _running: Option<(LaunchedManager, tempfile::TempDir)>,
}

impl Target {
    /// The address of another cluster manager, if the suite is to look at one.
    pub(crate) fn named() -> Option<String> {
        env::var("CORONA_TARGET").ok()
    }

    /// The cluster manager at this address.
    pub(crate) fn another(named: &str) -> Target {
        let found = named.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = found.unwrap_or_else(|| panic!("CORONA_TARGET: {named:?} is no host:port"));
        let port = env::var("CORONA_TARGET_PROXY").map_or(PROXY_PORT, |port| {
            port.parse().unwrap_or_else(|_| panic!("CORONA_TARGET_PROXY: {port:?} is no port"))
        });
        let proxy = TcpListener::bind(("127.0.0.1", port))
            .unwrap_or_else(|error| panic!("the port {port} of the proxy job tracker: {error}"));
        Target { address, proxy, _running: None }
    }

    pub(crate) fn kind_from_environment() -> Kind {
        match env::var("CORONA_TARGET_KIND").as_deref() {
            Ok("original") => Kind::Original,
            Ok("ours") => Kind::Ours,
            Ok(other) => panic!("CORONA_TARGET_KIND: {other:?}; expected \"original\" or \"ours\""),
            Err(_) if env::var_os("CORONA_TARGET").is_some() => Kind::Original,
            Err(_) => Kind::Ours,
        }
    }

    /// The built program with the suite's configuration.
    pub(crate) fn ours() -> Target {
        Target::ours_with(&[])
    }

    /// The same with further settings.
    pub(crate) fn ours_with(further: &[(String, String)]) -> Target {
        let conf_dir = repository().join("fixtures/config/any_manager");
        let proxy = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let scratch = tempfile::tempdir().expect("a directory for the state file");
        let file = |name: &str| conf_dir.join(name).display().to_string();
        let mut launch = launch(&[
            ("corona.proxy.job.tracker.thriftaddr", &proxy.local_addr().unwrap().to_string()),
            ("cm.config.file", &file("corona.xml")),
            ("cm.pools.config.file", &file("pools.xml")),
            ("cm.hosts.exclude", &file("exclude")),
            ("cm.state", &scratch.path().join("cm.state").display().to_string()),
        ]);
        launch.overrides.extend_from_slice(further);
        let running = start(&Launch { conf_dir: Some(conf_dir), ..launch });
        Target { address: running.thrift(), proxy, _running: Some((running, scratch)) }
    }
}
