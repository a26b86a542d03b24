//! The task trackers that report to this service, and where their pages are.

use std::collections::HashMap;

use corona_config::HostPort;
use corona_hadoop::writables::TaskTrackerStatus;

use super::sources::PageSources;

/// The addresses of the pages of task trackers, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(HashMap<String, String>);

impl Places {
    /// The address of a tracker's pages, with a slash at its end.
    pub(super) fn of(&self, tracker: &str) -> Option<&str> {
        self.0.get(tracker).map(String::as_str)
    }
}

/// The address of a tracker's pages; none if what it reports cannot be one.
pub(super) fn address(tracker: &TaskTrackerStatus) -> Option<String> {
    page_address(&tracker.host, u16::try_from(tracker.http_port).ok()?)
}

/// The address of pages where a peer says that they are; none if they cannot be there.
pub(crate) fn page_address(host: &str, port: u16) -> Option<String> {
    let is_host = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
    let at = HostPort { host: host.into(), port };
    (is_host && port > 0).then(|| format!("http://{at}/"))
}

impl PageSources {
    /// Where the pages of these trackers are, as far as they were heard of lately.
    pub(super) fn places<'a>(&self, trackers: impl Iterator<Item = &'a str>) -> Places {
        let wanted: std::collections::HashSet<&str> = trackers.collect();
        let known = self.cluster.trackers();
        let wanted = known.iter().filter(|tracker| wanted.contains(tracker.name.as_str()));
        Places(wanted.filter_map(|it| Some((it.name.clone(), address(it)?))).collect())
    }
}
