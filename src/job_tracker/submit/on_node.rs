//! Which jobs are to be run by a job tracker on a node, and the settings of their parents.

use corona_config::{JobConf, keys};
use corona_job_engine::parent::ParentSettings;

/// How long other hosts than those that failed are waited for, in milliseconds.
const EXCLUSION_WAIT_MS: i64 = 3_000;

/// The settings of a job that is to be run by a remote job tracker; none for one that is not. At
/// most `max_state_bytes` of state are kept for it.
pub(crate) fn parent_settings(
    conf: &JobConf,
    maps: u32,
    reduces: u32,
    max_state_bytes: usize,
) -> Option<ParentSettings> {
    let number = |key| conf.number(key).unwrap_or(0);
    let count = |key| u32::try_from(number(key).max(0)).unwrap_or(u32::MAX);
    let threshold = conf.number(&keys::JOB_REMOTE_THRESHOLD);
    let is_large = threshold.is_some_and(|threshold| i64::from(maps) > threshold);
    if !is_large && !conf.is_true(&keys::JOB_FORCE_REMOTE) {
        return None;
    }
    // A job that would start over needs another id, which its users do not know.
    let restores = conf.is_true(&keys::JOB_REMOTE_RESTORES);
    Some(ParentSettings {
        maps,
        reduces,
        max_restarts: if restores { count(&keys::JOB_REMOTE_RESTARTS) } else { 0 },
        start_attempts: count(&keys::JOB_REMOTE_STARTS),
        start_timeout_ms: number(&keys::JOB_REMOTE_START_TIMEOUT).saturating_mul(1000),
        exclude_failed: conf.is_true(&keys::JOB_REMOTE_EXCLUDES),
        exclusion_wait_ms: EXCLUSION_WAIT_MS,
        max_state_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::submission::tests::conf;

    fn settings(properties: &[(&str, &str)], maps: u32) -> Option<ParentSettings> {
        parent_settings(&conf(properties), maps, 2, 1)
    }

    #[test]
    fn large_and_forced_jobs_are_run_on_nodes() {
        const THRESHOLD: &str = "mapred.coronajobtracker.remote.threshold";
        const FORCE: (&str, &str) = ("mapred.coronajobtracker.forceremote", "true");
        const RESTARTS: (&str, &str) = ("mapred.coronajobtracker.restart.count", "3");
        assert_eq!(settings(&[], 1_000_000), None);
        assert_eq!(settings(&[(THRESHOLD, "10")], 10), None);
        let large = settings(&[(THRESHOLD, "10")], 11).unwrap();
        let expected = ParentSettings {
            maps: 11,
            reduces: 2,
            max_restarts: 0,
            start_attempts: 4,
            start_timeout_ms: 60_000,
            exclude_failed: true,
            exclusion_wait_ms: EXCLUSION_WAIT_MS,
            max_state_bytes: 1,
        };
        assert_eq!(large, expected);
        assert_eq!(settings(&[FORCE, RESTARTS], 0).unwrap().max_restarts, 3);
        let no_state = ("mapred.coronajobtracker.remote.state.restoring", "false");
        assert_eq!(settings(&[FORCE, RESTARTS, no_state], 0).unwrap().max_restarts, 0);
    }
}
