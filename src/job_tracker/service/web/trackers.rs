//! The task trackers that report to this service, and where their pages are.

use std::collections::HashMap;

use corona_hadoop::writables::TaskTrackerStatus;

use super::shown::Shown;

/// The addresses of the pages of task trackers, by their names.
#[derive(Clone, Debug, Default)]
pub(in crate::service) struct Places(HashMap<String, String>);

impl Places {
    /// The address of a tracker's pages, with a slash at its end.
    pub(super) fn of(&self, tracker: &str) -> Option<&str> {
        self.0.get(tracker).map(String::as_str)
    }
}

/// The address of a tracker's pages; none if what it reports cannot be one.
pub(super) fn address(tracker: &TaskTrackerStatus) -> Option<String> {
    let host = &tracker.host;
    let is_host = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
    let port = u16::try_from(tracker.http_port).ok().filter(|port| *port > 0)?;
    is_host.then(|| match host.contains(':') {
        true => format!("http://[{host}]:{port}/"),
        false => format!("http://{host}:{port}/"),
    })
}

impl Shown {
    /// Where the pages of these trackers are, as far as they were heard of lately.
    pub(super) fn places<'a>(&self, trackers: impl Iterator<Item = &'a str>) -> Places {
        let wanted: std::collections::HashSet<&str> = trackers.collect();
        let known = self.cluster.trackers();
        let wanted = known.iter().filter(|tracker| wanted.contains(tracker.name.as_str()));
        Places(wanted.filter_map(|it| Some((it.name.clone(), address(it)?))).collect())
    }
}
