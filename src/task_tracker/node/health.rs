//! The health script of a node: a program of the operator that reports whether the node can run tasks.
//!
//! A node is unhealthy while the last run of the script printed a line that begins with `ERROR`, did
//! not end in time, or could not be started. An exit status other than 0 counts as healthy, so that a
//! mistake in the script takes no node out of service. Spec: the original's `NodeHealthCheckerService`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::programs::{RunError, run_for};
use corona_config::HealthSettings;
use corona_hadoop::writables::NodeHealth;
use corona_model::text::cut;
use corona_process::now_ms;

/// How much of the script's output is looked at, in bytes.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// How much of it is reported, in bytes: each heartbeat carries it.
const MAX_REPORT_BYTES: usize = 16 << 10;
/// The beginning of a line that reports a problem.
const ERROR: &str = "ERROR";

/// Runs the script at once and after each pause. Every result goes to `results`.
pub async fn watch_health(settings: HealthSettings, results: watch::Sender<NodeHealth>) {
    if !is_executable(&settings.script) {
        let path = settings.script.display();
        tracing::error!(%path, "the health script is no executable file; the health of this node is not checked");
        return;
    }
    let mut ticks = interval(settings.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let last = results.borrow().clone();
        let result = check(&settings, &last).await;
        if (result.is_healthy, &result.report) != (last.is_healthy, &last.report) {
            match result.is_healthy {
                true => tracing::info!("the health script reports a healthy node"),
                false => {
                    tracing::error!(
                        report = result.report,
                        "the health script reports an unhealthy node"
                    );
                }
            }
        }
        results.send_replace(result);
    }
}

/// One run of the script. A failed one leaves the time of the last good one, as in the original.
async fn check(settings: &HealthSettings, last: &NodeHealth) -> NodeHealth {
    let mut script = Command::new(&settings.script);
    script.args(&settings.args);
    let unhealthy = |report: &str| NodeHealth {
        is_healthy: false,
        report: beginning(report).to_owned(),
        last_reported_ms: last.last_reported_ms,
    };
    match run_for(script, settings.timeout, MAX_OUTPUT_BYTES).await {
        Ok(printed) if printed.status.success() && has_errors(&printed.stdout) => {
            unhealthy(&printed.stdout)
        }
        Ok(_) => NodeHealth { is_healthy: true, report: String::new(), last_reported_ms: now_ms() },
        Err(RunError::Timeout { .. }) => unhealthy("Node health script timed out"),
        Err(RunError::Io(error)) => unhealthy(&error.to_string()),
    }
}

fn has_errors(output: &str) -> bool {
    output.lines().any(|line| line.starts_with(ERROR))
}

/// The first part of a report, which ends between two characters.
fn beginning(report: &str) -> &str {
    cut(report, MAX_REPORT_BYTES)
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use corona_process::panics::until;

    struct TestScript {
        dir: tempfile::TempDir,
        settings: HealthSettings,
    }

    fn world(script: &str) -> TestScript {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("health.sh");
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = HealthSettings {
            script: path,
            args: vec!["a b".into(), "c".into()],
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(60),
        };
        TestScript { dir, settings }
    }

    async fn result(script: &str) -> NodeHealth {
        check(&world(script).settings, &NodeHealth::default()).await
    }

    #[tokio::test]
    async fn a_line_that_begins_with_error_makes_a_node_unhealthy() {
        let before = now_ms();
        for script in ["exit 0", "echo no ERROR here", "echo ERROR; exit 3", "echo ERROR >&2"] {
            let healthy = result(script).await;
            assert!(healthy.is_healthy && healthy.last_reported_ms >= before, "{script}");
            assert_eq!(healthy.report, "", "{script}");
        }
        let sick = result("echo fine; echo \"ERROR disk $1 of $#\"").await;
        let report = "fine\nERROR disk a b of 2\n".to_owned();
        assert_eq!(sick, NodeHealth { is_healthy: false, report, last_reported_ms: 0 });
    }

    #[tokio::test]
    async fn a_script_that_hangs_or_prints_without_end_makes_a_node_unhealthy() {
        for script in ["sleep 600 & wait", "exec yes ERROR", "trap '' TERM; while :; do :; done"] {
            let mut world = world(script);
            world.settings.timeout = Duration::from_millis(300);
            let sick = check(&world.settings, &NodeHealth::default()).await;
            assert!(!sick.is_healthy, "{script}");
            assert_eq!(sick.report, "Node health script timed out");
        }
        let long = result("yes ERROR | head -c 100000").await;
        assert_eq!((long.is_healthy, long.report.len()), (false, MAX_REPORT_BYTES));
    }

    #[tokio::test]
    async fn the_result_follows_the_script() {
        let world = world("[ -e $(dirname $0)/sick ] && echo ERROR sick; exit 0");
        let sick = world.dir.path().join("sick");
        let (results, mut seen) = watch::channel(NodeHealth::default());
        let (stop, stopped) = watch::channel(false);
        let watching = tokio::spawn(until(stopped, watch_health(world.settings.clone(), results)));
        let limit = Duration::from_secs(60);
        let mut wait = async |is_healthy: bool| {
            let wanted = |health: &NodeHealth| {
                health.is_healthy == is_healthy && (!is_healthy || health.last_reported_ms > 0)
            };
            tokio::time::timeout(limit, seen.wait_for(wanted)).await.unwrap().unwrap().clone()
        };
        wait(true).await;
        fs::write(&sick, "").unwrap();
        assert_eq!(wait(false).await.report, "ERROR sick\n");
        fs::remove_file(&sick).unwrap();
        wait(true).await;
        stop.send_replace(true);
        tokio::time::timeout(limit, watching).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn without_an_executable_script_nothing_is_checked() {
        let world = world("");
        fs::set_permissions(&world.settings.script, fs::Permissions::from_mode(0o644)).unwrap();
        let (results, seen) = watch::channel(NodeHealth::default());
        watch_health(world.settings, results).await;
        assert_eq!(*seen.borrow(), NodeHealth::default());
    }
}
