//! Setups that several benchmarks use.

use std::path::Path;

use corona::cluster_manager::{Beginning, ClusterManager};
use corona::config;

/// A cluster manager on free ports of this machine. Its journal lies in the directory if
/// `CORONA_JOURNAL` is `write` or `always`; there is none if the variable is not set, or `none`.
pub(crate) async fn cluster_manager(directory: &Path) -> ClusterManager {
    let path = directory.join("journal").display().to_string();
    let sync = std::env::var("CORONA_JOURNAL").unwrap_or("none".to_owned());
    let (path, sync) = match &*sync {
        "none" => ("none", "write"),
        sync => (&*path, sync),
    };
    let overrides = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("corona.cm.journal.dir", path),
        ("corona.cm.journal.sync", sync),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let loaded = config::load(None, &overrides).expect("the defaults are sound");
    ClusterManager::bind(loaded, Beginning::Resume).await.expect("the manager starts")
}
