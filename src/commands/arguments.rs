//! Values that several subcommands take.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{anyhow, ensure};
use clap::Args;
use corona::config::{ClientSource, HostPort, Networks, Source, keys};

use super::parts::start_of;
use super::profile::Profile;

/// A configuration key, such as `cm.server.address`, and the value that overrides the files: `-D key=value`. The value
/// is everything after the first `=`, blanks included.
pub(super) type Override = (String, String);

/// Splits `key=value` at the first `=`. The error names the mistake in the text.
pub(super) fn parse_override(text: &str) -> Result<Override, String> {
    let (key, value) = text.split_once('=').ok_or("expected key=value")?;
    let key = key.trim();
    if key.is_empty() {
        return Err("the key before '=' is empty".into());
    }
    Ok((key.into(), value.into()))
}

/// The directory of the configuration files: the given one, else
/// `$HADOOP_CONF_DIR`, else none for the defaults.
pub(super) fn existing_conf_dir(
    named: Option<PathBuf>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Option<PathBuf>> {
    let from_environment =
        || variable("HADOOP_CONF_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let conf_dir = named.or_else(from_environment);
    if let Some(dir) = &conf_dir {
        let shown = dir.display();
        ensure!(
            dir.exists(),
            "configuration directory {shown} does not exist; name one with --conf-dir"
        );
        ensure!(
            dir.is_dir(),
            "{shown} is a file; name the directory of core-site.xml with --conf-dir"
        );
    }
    Ok(conf_dir)
}

/// The directory of the configuration files of a command of users: as [`existing_conf_dir`], else that of the
/// cluster of `corona login`, else that of the head that this user has started here.
pub(super) fn conf_dir_of_client(
    named: Option<PathBuf>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Option<PathBuf>> {
    let found = existing_conf_dir(named, &variable)?;
    let of_login = || Profile::of_user(variable)?.conf_dir();
    Ok(found.or_else(of_login).or_else(super::head::conf_dir_of_own_head))
}

/// The directory of the configuration that this process has read, for [`no_cluster_hint`].
static CONF_DIR: OnceLock<PathBuf> = OnceLock::new();

/// Has hints of this process be about the cluster of this configuration.
pub(super) fn note_conf_dir(conf_dir: Option<&Path>) {
    if let Some(conf_dir) = conf_dir {
        // A command reads one configuration.
        let _ = CONF_DIR.set(conf_dir.to_owned());
    }
}

/// What to do if nothing answers at an address: how the cluster of the configuration is started, or where a cluster
/// would be found if nothing names one.
pub(super) fn no_cluster_hint(
    address: &HostPort,
    variable: impl Fn(&str) -> Option<OsString>,
) -> String {
    let of_client = || conf_dir_of_client(None, &variable).ok().flatten();
    let conf_dir = CONF_DIR.get().cloned().or_else(of_client);
    if let Some(conf_dir) = &conf_dir {
        let start = start_of(conf_dir).filter(|_| is_of(conf_dir, address));
        return start
            .map_or_else(String::new, |start| format!("; start the cluster with '{start}'"));
    }
    let is_default = [keys::SERVER_ADDRESS, keys::HTTP_ADDRESS, keys::JT_ADDRESS]
        .iter()
        .any(|key| key.default.parse::<HostPort>().is_ok_and(|default| default == *address));
    if !is_default {
        return String::new();
    }
    match Profile::of_user(&variable).and_then(|profile| profile.lost()) {
        Some(name) => format!(
            "; the profile of {name}, the cluster in use, is gone: log in again with 'corona login', \
             or forget it with 'corona logout'"
        ),
        None => {
            "; no cluster runs here: start one with 'corona mini-cluster --dir cluster' and add \
                 --conf-dir cluster/conf, or name yours with --conf-dir or 'corona login'"
                .to_owned()
        }
    }
}

/// Whether an address is one of the cluster of this configuration.
fn is_of(conf_dir: &Path, address: &HostPort) -> bool {
    let source = ClientSource { conf_dir: Some(conf_dir), ..ClientSource::default() };
    let Ok(settings) = source.load() else { return false };
    let of_cluster = [
        Some(&settings.server_address),
        Some(&settings.http_address),
        Some(&settings.job_tracker),
        Some(&settings.proxy_job_tracker_address),
        settings.finished_jobs.as_ref(),
    ];
    of_cluster.into_iter().flatten().any(|one| one == address)
}

/// The sources of a program's settings, as options.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SourceArguments {
    /// Directory of the configuration files
    ///
    /// [default: $HADOOP_CONF_DIR, else built-in defaults only]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,
}

impl SourceArguments {
    /// The sources, with the environment of this process.
    pub(super) fn found(self) -> anyhow::Result<FoundSource> {
        self.found_with(|name| std::env::var_os(name))
    }

    /// The sources, with the environment as an argument.
    pub(super) fn found_with(
        self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> anyhow::Result<FoundSource> {
        let conf_dir = existing_conf_dir(self.conf_dir, variable)?;
        Ok(FoundSource { conf_dir, overrides: self.overrides })
    }
}

/// Sources of settings that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSource {
    /// `None`: embedded defaults only.
    pub(super) conf_dir: Option<PathBuf>,
    /// Keys and values that override the files, in the given order.
    pub(super) overrides: Vec<Override>,
}

impl FoundSource {
    /// The source of a service's settings.
    pub(super) fn of_service(&self) -> Source<'_> {
        let conf_dir = self.conf_dir.as_deref();
        Source { conf_dir, overrides: &self.overrides, ..Source::default() }
    }

    /// The source of a client's settings.
    pub(super) fn of_client(&self) -> ClientSource<'_> {
        let conf_dir = self.conf_dir.as_deref();
        ClientSource { conf_dir, overrides: &self.overrides, ..ClientSource::default() }
    }
}

/// Bytes as whole mebibytes, rounded up.
pub(super) fn mib(bytes: usize) -> i64 {
    i64::try_from(bytes.div_ceil(1 << 20)).unwrap_or(i64::MAX)
}

/// The memory of a task, as [`parse_size`] reads it.
pub(super) fn parse_memory(text: &str) -> Result<usize, String> {
    match parse_size(text)? {
        0 => Err("a task needs memory; expected a size such as 2g".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A number of bytes, such as `64m`: `k`, `m` and `g` are powers of 1024.
pub(super) fn parse_size(text: &str) -> Result<usize, String> {
    let expected = || format!("expected a number of bytes such as 64m, not {text:?}");
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase();
    let factor: usize = match unit.as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(expected()),
    };
    let number: usize = digits.parse().map_err(|_| expected())?;
    number.checked_mul(factor).filter(|size| *size > 0).ok_or_else(expected)
}

/// The first address of `HOST:PORT`.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| format!("expected HOST:PORT: {error}"))?;
    // For a name with addresses of both families, other peers get the first one too.
    found.into_iter().next().ok_or_else(|| "the name has no address".to_owned())
}

/// Networks separated by commas, at least one.
pub(super) fn parse_networks(text: &str) -> Result<Networks, String> {
    let networks: Networks = text.parse().map_err(|wrong| format!("{wrong}"))?;
    if networks.are_all() {
        return Err("expected networks; 0.0.0.0/0,::/0 are all of them".to_owned());
    }
    Ok(networks)
}

/// Creates an output file of the command. An existing file is replaced only
/// with `--force`.
///
/// # Errors
/// When the file exists, or the system refuses.
pub(super) fn create_file(path: &Path, force: bool) -> anyhow::Result<File> {
    let mut options = File::options();
    match force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow!("{} exists already; --force overwrites it", path.display())
        }
        _ => anyhow!("cannot create {}: {error}", path.display()),
    })
}

/// Whether both paths name the same existing file.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cluster_the_next_command_is_named() {
        let hint = |address: &str, conf: Option<&str>| {
            let variable = |name: &str| conf.filter(|_| name == "HADOOP_CONF_DIR").map(Into::into);
            no_cluster_hint(&address.parse().unwrap(), variable)
        };
        for address in ["localhost:8021", "localhost:8888", "localhost:8889"] {
            let said = hint(address, None);
            for command in ["'corona mini-cluster --dir cluster'", "--conf-dir", "'corona login'"] {
                assert!(said.contains(command), "{address}: {said}");
            }
            assert_eq!(hint(address, Some("/")), "");
        }
        assert_eq!(hint("h:8021", None), "");
    }

    #[test]
    fn a_profile_that_is_gone_and_a_cluster_that_was_stopped_are_named() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().to_owned();
        let variable = |conf: Option<PathBuf>| {
            let home = home.clone();
            move |name: &str| match name {
                "HOME" => Some(home.clone().into()),
                "HADOOP_CONF_DIR" => conf.clone().map(Into::into),
                _ => None,
            }
        };
        let profile = Profile::of_user(variable(None)).unwrap();
        profile.root().unwrap();
        profile.choose("alpha").unwrap();
        let said = no_cluster_hint(&"localhost:8888".parse().unwrap(), variable(None));
        assert!(said.contains("profile of alpha") && said.contains("corona logout"), "{said}");

        let conf = home.join("cluster").join("conf");
        fs::create_dir_all(&conf).unwrap();
        let mut site = super::super::parts::Site::default();
        site.set([("cm.server.address", "127.0.0.1:18021".to_owned())]);
        site.write(&conf, "corona mini-cluster").unwrap();
        let hint = |address: &str| {
            no_cluster_hint(&address.parse().unwrap(), variable(Some(conf.clone())))
        };
        let said = hint("127.0.0.1:18021");
        assert!(said.starts_with("; start the cluster with 'corona mini-cluster --dir "), "{said}");
        assert_eq!(hint("127.0.0.1:18022"), "", "another cluster");
    }

    #[test]
    fn sizes_have_units() {
        for (text, size) in
            [("1", 1), ("64k", 64 << 10), ("2M", 2 << 20), ("1g", 1 << 30), ("100", 100)]
        {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for wrong in ["", "m", "0", "0k", "-1", "1t", "1mm", "1.5m", "99999999999999999999g"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn override_splits_at_the_first_equals_sign() {
        for (text, key, value) in [
            ("cm.server.address=h:1", "cm.server.address", "h:1"),
            ("a=b=c", "a", "b=c"),
            (" a = b ", "a", " b "),
            ("empty=", "empty", ""),
        ] {
            let expected = (key.to_owned(), value.to_owned());
            assert_eq!(parse_override(text), Ok(expected), "{text}");
        }
        for wrong in ["", "key", "=value", "  =value"] {
            assert!(parse_override(wrong).is_err(), "{wrong:?}");
        }
    }
}
