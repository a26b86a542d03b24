//! The profile of a user: the clusters that `corona login` has made known, and which one is in use.
//!
//! Each cluster is a directory of configuration files, so that commands read it as they read any other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use corona::access::{GrantId, Identity};

use super::invitation::write_private;
use super::parts::Site;

/// The file with the name of the cluster that is in use.
const CURRENT: &str = "current";
const CLUSTERS: &str = "clusters";
/// The directory of the user's certificate in a cluster, and of one that is to replace it.
const IDENTITY: &str = "identity";
const NEW_IDENTITY: &str = "identity.new";
/// The longest name of a cluster.
const MOST_NAME_BYTES: usize = 100;
/// A property with the address of the pages of the head.
pub(super) const HEAD_KEY: &str = "corona.login.head";

/// The directory of a user's clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile(PathBuf);

/// What is wrong with the name of a cluster.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if name.is_empty() || name.len() > MOST_NAME_BYTES || !name.chars().all(is_usual) {
        return Err("expected letters, digits and -._: only, at most 100 of them");
    }
    if name.starts_with('.') {
        return Err("expected a name that does not begin with a dot");
    }
    Ok(())
}

impl Profile {
    /// That of the user of this environment; none if it names no directory.
    pub(super) fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<Profile> {
        let named = |name: &str| variable(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let directory =
            named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
        Some(Profile(directory.join("corona")))
    }

    /// The directory of the configuration of the cluster that is in use, if there is one.
    pub(super) fn conf_dir(&self) -> Option<PathBuf> {
        let directory = self.directory(&self.current()?);
        directory.is_dir().then_some(directory)
    }

    /// The name of the cluster that is in use, if its configuration is gone.
    pub(super) fn lost(&self) -> Option<String> {
        self.current().filter(|name| !self.directory(name).is_dir())
    }

    /// Forgets a cluster, and that it is in use. Returns the directory that was removed.
    pub(super) fn forget(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.directory(name);
        removed(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
        if self.current().as_deref() == Some(name) {
            let current = self.0.join(CURRENT);
            fs::remove_file(&current)
                .with_context(|| format!("cannot remove {}", current.display()))?;
        }
        Ok(directory)
    }

    /// The access of the user in a cluster, if that is a closed one.
    pub(super) fn access(&self, name: &str) -> Option<GrantId> {
        let identity = Identity::open(&self.directory(name).join(IDENTITY)).ok()?;
        Some(identity.identified().grant)
    }

    /// The name of the cluster that is in use.
    pub(super) fn current(&self) -> Option<String> {
        let name = fs::read_to_string(self.0.join(CURRENT)).ok()?;
        let name = name.trim();
        check_name(name).ok().map(|()| name.to_owned())
    }

    /// The names of all clusters.
    pub(super) fn names(&self) -> anyhow::Result<BTreeSet<String>> {
        let directory = self.0.join(CLUSTERS);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => {
                return Err(error).context(format!("cannot read {}", directory.display()));
            }
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| check_name(name).is_ok()).collect())
    }

    /// The address of the pages of a cluster; empty if it is not known.
    pub(super) fn head(&self, name: &str) -> String {
        let xml = fs::read_to_string(self.directory(name).join("core-site.xml"));
        let xml = xml.unwrap_or_default();
        let value = xml.split_once(&format!("<name>{HEAD_KEY}</name><value>"));
        value
            .and_then(|(_, rest)| rest.split_once("</value>"))
            .map_or("", |(value, _)| value)
            .to_owned()
    }

    /// Keeps the configuration of a cluster; only the user can read it. Returns its directory.
    pub(super) fn keep(&self, name: &str, site: &Site) -> anyhow::Result<PathBuf> {
        let directory = self.directory(name);
        make_private(&directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        site.write(&directory, "corona login")?;
        let files = fs::read_dir(&directory)?.flatten();
        for entry in files.filter(|entry| entry.path().is_file()) {
            fs::set_permissions(entry.path(), Permissions::from_mode(0o600))
                .with_context(|| format!("cannot protect {}", entry.path().display()))?;
        }
        Ok(directory)
    }

    /// The directory of everything that is known, for this user alone.
    pub(super) fn root(&self) -> anyhow::Result<&Path> {
        let made = make_private(&self.0);
        made.with_context(|| format!("cannot make the directory {}", self.0.display()))?;
        Ok(&self.0)
    }

    /// A directory for a new certificate of the user, which is not in use yet.
    pub(super) fn new_identity(&self) -> anyhow::Result<PathBuf> {
        let fresh = self.root()?.join(NEW_IDENTITY);
        removed(&fresh).with_context(|| format!("cannot remove {}", fresh.display()))?;
        Ok(fresh)
    }

    /// The directory of the user's certificate in the cluster that is in use, if that is a closed one.
    pub(super) fn identity_in_use(&self) -> Option<PathBuf> {
        let identity = self.directory(&self.current()?).join(IDENTITY);
        identity.is_dir().then_some(identity)
    }

    /// Uses the new certificate from now on. Returns its directory.
    ///
    /// # Errors
    /// It cannot take the place of the one before.
    pub(super) fn keep_identity(&self, name: &str) -> anyhow::Result<PathBuf> {
        let identity = self.directory(name).join(IDENTITY);
        let kept = make_private(&self.directory(name))
            .and_then(|()| removed(&identity))
            .and_then(|()| fs::rename(self.0.join(NEW_IDENTITY), &identity));
        kept.with_context(|| format!("cannot replace {}", identity.display()))?;
        Ok(identity)
    }

    /// Uses a cluster from now on.
    pub(super) fn choose(&self, name: &str) -> anyhow::Result<()> {
        write_private(&self.0.join(CURRENT), name)
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.0.join(CLUSTERS).join(name)
    }
}

/// Deletes a directory, if there is one.
pub(super) fn removed(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes a directory, and those above it, for this user alone.
fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cluster_wins_and_only_its_user_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_owned();
        let profile =
            Profile::of_user(|name| (name == "HOME").then(|| home.clone().into())).unwrap();
        assert_eq!((profile.conf_dir(), profile.names().unwrap().len()), (None, 0));
        for name in ["alpha", "beta"] {
            let mut site = Site::default();
            site.set([(HEAD_KEY, format!("http://{name}:8889/"))]);
            let kept = profile.keep(name, &site).unwrap();
            profile.choose(name).unwrap();
            assert_eq!(profile.conf_dir(), Some(kept.clone()));
            assert_eq!(profile.head(name), format!("http://{name}:8889/"));
            for entry in fs::read_dir(&kept).unwrap().flatten() {
                assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            }
            assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert_eq!(profile.current().as_deref(), Some("beta"));
        profile.choose("alpha").unwrap();
        assert!(profile.conf_dir().unwrap().ends_with(".config/corona/clusters/alpha"));
        fs::remove_dir_all(profile.directory("alpha")).unwrap();
        assert_eq!(profile.conf_dir(), None, "a cluster that is gone is none");
        assert_eq!(Profile::of_user(|_| None), None);
    }

    #[test]
    fn names_are_no_paths() {
        for name in ["alpha", "10.0.0.1", "fd00::1", "my-cluster_2"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a b", &"x".repeat(101)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
