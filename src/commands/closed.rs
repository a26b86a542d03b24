//! What makes a cluster of this machine a closed one: its certificate authority, and the certificate of its
//! head, in the directory of the head.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use corona::access::{Authority, Identity, TlsMode, TlsSettings, use_in_clients};

/// The certificate authority.
const AUTHORITY: &str = "access";
/// The certificate of the head.
const IDENTITY: &str = "identity";
/// Keys that a closed cluster sets itself.
pub(super) const KEYS: [&str; 3] =
    ["corona.tls", "corona.tls.directory", "corona.tls.authority.directory"];

/// Opens the certificate authority in this directory, or makes it there, and gives the head a certificate for
/// these hosts. Others get theirs at `at`. The calls of this process show the head's from now on.
pub(super) fn open(root: &Path, at: (&str, u16), hosts: &[String]) -> anyhow::Result<Authority> {
    let now = SystemTime::now();
    let authority = Authority::open_or_create(&root.join(AUTHORITY), now)?;
    let identity = root.join(IDENTITY);
    Identity::own(&identity, &authority, "head", at, hosts, now)?;
    use_in_clients(&required(&identity))?;
    Ok(authority)
}

/// Whether a closed cluster was ever started in this directory.
pub(super) fn is_closed(root: &Path) -> bool {
    root.join(AUTHORITY).exists()
}

/// The authority of a head that has been started in this directory.
///
/// # Errors
/// There is none, or a file cannot be used.
pub(super) fn authority(root: &Path) -> anyhow::Result<Authority> {
    Ok(Authority::open(&root.join(AUTHORITY))?)
}

/// The calls of this process show the certificate of the head in this directory.
///
/// # Errors
/// There is none, or it cannot be used.
pub(super) fn act_as_head(root: &Path) -> anyhow::Result<()> {
    Ok(use_in_clients(&required(&identity(root)))?)
}

/// The directory of the head's certificate.
pub(super) fn identity(root: &Path) -> PathBuf {
    root.join(IDENTITY)
}

/// The settings of the head's daemons.
pub(super) fn keys(root: &Path) -> Vec<(&'static str, String)> {
    let authority = ("corona.tls.authority.directory", root.join(AUTHORITY).display().to_string());
    required_keys(&root.join(IDENTITY)).into_iter().chain([authority]).collect()
}

/// TLS with the certificate in a directory, and without plain peers.
pub(super) fn required(directory: &Path) -> TlsSettings {
    TlsSettings {
        mode: TlsMode::Require,
        directory: Some(directory.to_owned()),
        ..TlsSettings::default()
    }
}

/// The keys of the same.
pub(super) fn required_keys(directory: &Path) -> [(&'static str, String); 2] {
    [
        ("corona.tls", TlsMode::Require.to_string()),
        ("corona.tls.directory", directory.display().to_string()),
    ]
}
