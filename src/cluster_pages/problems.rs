//! Problems that need an operator's attention, for the cluster page and the API alike.

use super::gather::{NodeCounts, Overview, Pools};
use crate::operations::Operations;
use crate::{ConfigStatus, QueueCounts};
use corona_api::cluster::{self as api, Severity};
use corona_model::types::{Millis, PoolName, ResourceType};
use corona_web::units::{Count, Span, plural};

/// A queue of so many notifications is a problem.
const LONG_QUEUE: u64 = 1000;
/// A disk that accepts no record of the journal for so long is a problem.
const LONG_STALL_MS: u64 = 1000;
/// Versions that run side by side for longer than this are a problem.
const LONG_MIX_MS: i64 = 24 * 60 * 60 * 1000;
/// Pools that are named in one problem.
const NAMED: usize = 5;

/// A problem as a sentence that may start with a link: `link`, then `rest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// The beginning of the sentence, and the page to which it leads.
    pub(crate) link: Option<(String, String)>,
    /// The rest of the sentence, or all of it.
    pub(crate) rest: String,
}

impl Problem {
    fn plain(severity: Severity, sentence: impl Into<String>) -> Problem {
        Problem { severity, link: None, rest: sentence.into() }
    }

    fn linked(
        severity: Severity,
        text: impl Into<String>,
        page: impl Into<String>,
        rest: impl Into<String>,
    ) -> Problem {
        Problem { severity, link: Some((text.into(), page.into())), rest: rest.into() }
    }

    /// The same for the API.
    pub(crate) fn to_api(&self) -> api::Problem {
        let (start, page) = match &self.link {
            Some((text, page)) => (text.as_str(), Some(page.clone())),
            None => ("", None),
        };
        let text = format!("{start}{}", self.rest);
        api::Problem { severity: self.severity, text, page }
    }
}

/// The data in which problems are found.
pub(crate) struct Sources<'a> {
    pub(crate) overview: &'a Overview,
    pub(crate) nodes: &'a NodeCounts,
    pub(crate) pools: &'a Pools,
    pub(crate) queues: &'a QueueCounts,
    pub(crate) configuration: &'a ConfigStatus,
    pub(crate) operations: &'a Operations,
    pub(crate) journal: Option<&'a api::JournalStatus>,
    pub(crate) ha: Option<&'a api::HaStatus>,
    pub(crate) versions: &'a api::Versions,
}

/// All problems, in the order in which they are shown.
pub(crate) fn list(sources: &Sources<'_>) -> Vec<Problem> {
    use Severity::{Error, Warning};
    let Sources { overview, nodes, configuration, queues, .. } = sources;
    let mut problems = Vec::new();
    if overview.safe_mode {
        let sentence = "Safe mode is on: no slots are granted, and calls of sessions are refused.";
        problems.push(Problem::plain(Warning, sentence));
    }
    if let Some(standing) = sources.ha
        && !standing.standbys.iter().any(|standby| standby.in_sync)
    {
        let sentence = "No standby can take over: none has a complete copy of the journal.";
        problems.push(Problem::plain(Warning, sentence));
    }
    let standbys = sources.ha.map(|ha| &ha.standbys[..]).unwrap_or_default();
    for slow in standbys.iter().filter(|standby| standby.slow) {
        let sentence = format!(
            "Standby {} is slow: its disk or network delayed calls. It may not take over until it has been fast \
             for a while.",
            slow.instance
        );
        problems.push(Problem::plain(Warning, &sentence));
    }
    if let Some(first) = configuration.errors.first() {
        let more = configuration.errors.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let text = "Changed scheduling files are not in force";
        problems.push(Problem::linked(Error, text, "/configuration", format!(": {first}{more}")));
    }
    let warnings = configuration.warnings.len() as u64;
    if warnings > 0 {
        let text = plural(warnings, "warning", "warnings");
        let rest = " about the configuration";
        problems.push(Problem::linked(Warning, text, "/configuration", rest));
    }
    for (aim, reason) in sources.operations.failing(overview.now) {
        let sentence = format!("The last attempt to {aim} failed: {reason}.");
        problems.push(Problem::plain(Warning, sentence));
    }
    problems.extend(sources.journal.into_iter().flat_map(of_journal));
    if nodes.alive == 0 {
        problems.push(Problem::plain(Warning, "No node heartbeats."));
    }
    problems.extend(late(nodes, overview));
    problems.extend(of_nodes(nodes));
    problems.extend(starving(sources));
    problems.extend(mixed(sources.versions, overview.now));
    if queues.longest >= LONG_QUEUE {
        let longest = Count(queues.longest);
        let sentence = format!("One session has {longest} pending notifications.");
        problems.push(Problem::plain(Warning, sentence));
    }
    problems
}

fn of_journal(journal: &api::JournalStatus) -> impl Iterator<Item = Problem> {
    let stall = (journal.stalled_ms >= LONG_STALL_MS).then(|| {
        let span = Span(i64::try_from(journal.stalled_ms).unwrap_or(i64::MAX));
        let sentence = format!(
            "The disk has accepted no record of the journal for {span}: replies and notifications wait."
        );
        Problem::plain(Severity::Error, sentence)
    });
    let failure = journal.image_failure.as_ref().map(|failure| {
        let sentence = format!(
            "The last attempt to make an image of the journal failed: {failure}. The journal grows until one succeeds."
        );
        Problem::plain(Severity::Warning, sentence)
    });
    stall.into_iter().chain(failure)
}

fn late(nodes: &NodeCounts, overview: &Overview) -> Option<Problem> {
    let settings = &overview.settings;
    let text = plural(nodes.late, "node is late", "nodes are late");
    let granted = if settings.skip_late_nodes { "granted nothing" } else { "still granted slots" };
    let span = Span(settings.node_late_ms);
    let rest = format!(": no heartbeat for more than {span}, {granted}");
    (nodes.late > 0).then(|| Problem::linked(Severity::Warning, text, "/nodes?state=late", rest))
}

fn of_nodes(nodes: &NodeCounts) -> impl Iterator<Item = Problem> {
    let kinds = [
        (
            nodes.dead,
            "silent",
            "host of the include file does not heartbeat",
            "hosts of the include file do not heartbeat",
        ),
        (nodes.blacklisted, "blacklisted", "node is blacklisted", "nodes are blacklisted"),
        (
            nodes.excluded,
            "excluded",
            "node is excluded by the host files",
            "nodes are excluded by the host files",
        ),
        (nodes.draining, "draining", "node drains", "nodes drain"),
        (
            nodes.revoked,
            "revoked",
            "node is without access: it was revoked",
            "nodes are without access: it was revoked",
        ),
        (
            nodes.below_reserve,
            "below-reserve",
            "node is short of memory or disk",
            "nodes are short of memory or disk",
        ),
    ];
    kinds.into_iter().filter(|(count, ..)| *count > 0).map(|(count, state, one, many)| {
        let text = plural(count, one, many);
        Problem::linked(Severity::Warning, text, format!("/nodes?state={state}"), "")
    })
}

/// Versions that have run side by side for long.
fn mixed(versions: &api::Versions, now: Millis) -> Option<Problem> {
    let mixed_ms = now.since(Millis(versions.mixed_since_ms?));
    if mixed_ms <= LONG_MIX_MS {
        return None;
    }
    let of = |version: &api::VersionCount| {
        let counts = [
            (
                version.instances,
                "instance of the cluster manager",
                "instances of the cluster manager",
            ),
            (version.nodes, "node", "nodes"),
            (version.sessions, "session", "sessions"),
        ];
        let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
        let counts = counts.map(|(count, one, many)| plural(count as u64, one, many));
        format!("{} ({})", version.version, counts.collect::<Vec<_>>().join(", "))
    };
    let named: Vec<String> = versions.versions.iter().take(NAMED).map(of).collect();
    let more = versions.versions.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let sentence = format!(
        "Versions have been mixed for {}: {}{more}. What remains to be upgraded: corona admin upgrade-check.",
        Span(mixed_ms),
        named.join(", "),
    );
    Some(Problem::plain(Severity::Warning, sentence))
}

/// One sentence about pools that lack their due.
fn starving(sources: &Sources<'_>) -> Option<Problem> {
    let Overview { kinds, settings, now, .. } = sources.overview;
    let pools = sources.pools.views.iter().filter_map(|pool| {
        let name = PoolName { group: pool.group.clone(), pool: pool.pool.clone()? };
        let starves =
            |kind: &&ResourceType| pool.starved_ms(**kind, *now, &settings.scheduling).is_some();
        kinds.iter().find(starves).map(|_| name)
    });
    let pools: Vec<PoolName> = pools.collect();
    if pools.is_empty() {
        return None;
    }
    let mut rest = String::from(": ");
    let names: Vec<String> = pools.iter().take(NAMED).map(ToString::to_string).collect();
    rest.push_str(&names.join(", "));
    let more = pools.len().saturating_sub(NAMED);
    if more > 0 {
        rest.push_str(&format!(" and {more} more"));
    }
    let text = plural(pools.len() as u64, "pool is starved", "pools are starved");
    Some(Problem::linked(Severity::Warning, text, "/pools", rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::tests::journal_status;

    #[test]
    fn a_disk_that_stalls_and_an_image_that_fails_are_problems() {
        let calm = api::JournalStatus { stalled_ms: 999, ..journal_status() };
        assert_eq!(of_journal(&calm).count(), 0);
        let image_failure = Some("the journal failed: x: cannot write: y".to_owned());
        let both = api::JournalStatus { stalled_ms: 3_000, image_failure, ..calm };
        let told: Vec<api::Problem> = of_journal(&both).map(|it| it.to_api()).collect();
        let texts: Vec<(Severity, &str)> =
            told.iter().map(|problem| (problem.severity, &*problem.text)).collect();
        assert_eq!(
            texts,
            [
                (
                    Severity::Error,
                    "The disk has accepted no record of the journal for 3 s: replies and \
                     notifications wait."
                ),
                (
                    Severity::Warning,
                    "The last attempt to make an image of the journal failed: the journal failed: \
                     x: cannot write: y. The journal grows until one succeeds."
                ),
            ]
        );
    }
}
