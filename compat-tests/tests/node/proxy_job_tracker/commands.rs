//! What `corona jobs` asks of it, and what it does without it.

use std::path::Path;
use std::process::Output;

use compat_tests::serving::free_address;
use compat_tests::{corona, repository};

use super::Proxy;

const JOB: &str = "job_202611221049.2_0001";

/// Lays out the recorded histories below a directory, as the recorded job trackers did.
pub(super) fn lay_out(root: &Path) {
    let done = root.join("history/202611221049.0/done");
    std::fs::create_dir_all(&done).unwrap();
    let recorded = repository().join("fixtures/recordings/job-clients/history");
    for entry in std::fs::read_dir(recorded).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), done.join(entry.file_name())).unwrap();
        }
    }
}

fn jobs(arguments: &[&str]) -> Output {
    // Where nothing is configured, and no job tracker listens.
    let nowhere = ["-D", "corona.jt.address=127.0.0.1:1"];
    corona(&[&["jobs"][..], arguments, &nowhere].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn corona_jobs_lists_finished_jobs_and_prints_histories() {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path());
    let proxy = Proxy::start(root.path(), &[]);
    let deadline = std::time::Instant::now() + compat_tests::task_tracker::PATIENCE;
    while !proxy.get("/api/v1/jobs").await.2.contains("\"total\":10") {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let at = proxy.http.to_string();
    let at = ["--proxy-job-tracker", &at];
    let listed = jobs(&[&["list", "--finished"], &at[..]].concat());
    let table = text(&listed.stdout);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert_eq!(table.lines().count(), 11, "{table}");
    let found = |more: &[&str]| {
        let output = jobs(&[&["list", "--finished", "--output", "json"], &at[..], more].concat());
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        found.as_array().unwrap().clone()
    };
    // The history counts killed attempts among the failed ones; here they are no failures.
    let recorded = found(&[]);
    let speculated = recorded.iter().find(|job| job["id"] == "job_202611221049.13_0001").unwrap();
    let failed = ["failed_maps", "failed_reduces"].map(|kind| &speculated["history"][kind]);
    assert_eq!(failed, [0, 0], "three attempts of each kind were killed");
    let bad = recorded.iter().find(|job| job["id"] == "job_202611221049.4_0001").unwrap();
    assert_eq!((&bad["state"], &bad["history"]["failed_maps"]), (&"failed".into(), &1.into()));
    let killed = found(&["--state", "killed", "--user", "root"]);
    assert!(!killed.is_empty() && killed.iter().all(|job| job["state"] == "killed"), "{killed:?}");
    assert_eq!(found(&["--user", "nobody"]), [] as [serde_json::Value; 0]);
    assert_eq!(found(&["--limit", "3"]).len(), 3);
    let history = jobs(&[&["history", JOB], &at[..]].concat());
    let recorded = repository().join("fixtures/recordings/job-clients/history").join(JOB);
    assert_eq!(text(&history.stdout), std::fs::read_to_string(recorded).unwrap());
    // What it does not have, and what it cannot be asked for, is asked of the job tracker.
    let missing = jobs(&[&["history", "job_202611221049.999_0001"], &at[..]].concat());
    let said = text(&missing.stderr);
    assert!(said.contains("404") && said.contains("; asking the job tracker\n"), "{said}");
    assert!(said.contains("the job tracker at 127.0.0.1:1"), "{said}");
    assert_eq!(missing.status.code(), Some(1));
    let closed = free_address().to_string();
    for (arguments, expected) in [
        (&["list", "--finished"][..], "name the pages of the proxy job tracker"),
        (&["list", "--finished", "--name", "x"], "name the pages of the proxy job tracker"),
        (
            &["list", "--finished", "--proxy-job-tracker", &closed],
            "the pages of the proxy job tracker at",
        ),
    ] {
        let failed = jobs(arguments);
        let said = text(&failed.stderr);
        assert!(said.contains(expected) && failed.status.code() == Some(1), "{said}");
    }
    assert_eq!(jobs(&["list", "--user", "x"]).status.code(), Some(2), "only with --finished");
}
