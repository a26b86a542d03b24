//! What is deleted, and what never is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corona_filesystem::testing::MiniCluster;
use corona_filesystem::{CreateOptions, FileSystems};

use super::{PATIENCE, Running};

/// An hour, in milliseconds.
const AGE: &str = "3600000";

fn settings(mode: &str) -> Vec<(&str, &str)> {
    vec![
        ("corona.pjt.clean.up", mode),
        ("mapred.job.file.expirethreshold", AGE),
        ("mapred.job.history.expirethreshold", AGE),
        ("mapred.cache.shared.expire_threshold", AGE),
    ]
}

fn make_old(path: &Path) {
    let old = SystemTime::now() - Duration::from_secs(7200);
    let times = fs::FileTimes::new().set_modified(old).set_accessed(old);
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

/// Makes directories and files of all forms; returns those that expire.
fn lay_out(root: &Path) -> Vec<std::path::PathBuf> {
    let (system, sessions) = (root.join("system"), root.join("sessions"));
    let expired = [
        system.join("job_1.2_0003"),
        sessions.join("202611221049.0"),
        system.join("CAR/files/old.txt"),
        system.join("CAR/archives/old.zip"),
        system.join("CAR/libjars/old.jar"),
    ];
    let kept = [
        system.join("job_1.2_0004"),
        system.join("job_1_0003"),
        system.join("job_1.2_0003x"),
        system.join("elsewhere"),
        sessions.join("202611221049.1"),
        sessions.join("202611221049"),
        sessions.join("202611221049.0.bak"),
    ];
    for path in &kept {
        fs::create_dir_all(path.join("inside")).unwrap();
    }
    for path in &expired {
        match path.extension().is_some_and(|kind| kind != "0")
            && path.to_str().unwrap().contains("CAR")
        {
            true => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            false => fs::create_dir_all(path.join("inside/deeper")).unwrap(),
        }
    }
    // Files of the names of directories, files that were used, and a directory in the shared cache.
    fs::write(system.join("job_9.9_0009"), "x").unwrap();
    fs::write(system.join("CAR/files/new.txt"), "x").unwrap();
    fs::create_dir_all(system.join("CAR/files/directory")).unwrap();
    // Links to what must stay.
    let outside = root.join("outside");
    fs::create_dir_all(outside.join("inside")).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    symlink(&outside, system.join("job_5.5_0005")).unwrap();
    symlink(&outside, sessions.join("5.5")).unwrap();
    symlink(outside.join("precious"), system.join("CAR/files/link")).unwrap();
    for path in
        expired.iter().chain(kept[1..].iter().filter(|path| !path.ends_with("202611221049.1")))
    {
        make_old(path);
    }
    for path in ["job_9.9_0009", "CAR/files/directory"] {
        make_old(&system.join(path));
    }
    make_old(&outside);
    make_old(&outside.join("precious"));
    expired.to_vec()
}

fn everything(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.join("system"), root.join("sessions"), root.join("outside")];
    while let Some(path) = waiting.pop() {
        found.push(path.display().to_string());
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

async fn until_counted(proxy: &Running, outcome: &str, count: usize) {
    let line =
        format!("corona_proxy_job_tracker_clean_up_total{{outcome=\"{outcome}\"}} {count}\n");
    let counted = tokio::time::timeout(PATIENCE, async {
        while !proxy.get("/metrics").await.1.contains(&line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let is_counted = counted.await.is_ok();
    assert!(is_counted, "not {line}: {}", proxy.get("/metrics").await.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_files_are_deleted_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let expired = lay_out(root.path());
    let before = everything(root.path());
    let proxy = Running::start(root.path(), &settings("delete")).await;
    until_counted(&proxy, "deleted", expired.len()).await;
    drop(proxy);
    let is_expired = |path: &&String| {
        expired.iter().any(|gone| {
            path.starts_with(gone.to_str().unwrap())
                && !path.ends_with("0.bak")
                && !path.contains("0003x")
                && !path.contains("0.bak/")
        })
    };
    let left: Vec<String> = before.iter().filter(|path| !is_expired(path)).cloned().collect();
    assert_eq!(everything(root.path()), left);
    assert!(root.path().join("outside/precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_reports_what_would_be_deleted() {
    let root = tempfile::tempdir().unwrap();
    let expired = lay_out(root.path());
    let before = everything(root.path());
    let proxy = Running::start(root.path(), &settings("report")).await;
    until_counted(&proxy, "reported", expired.len()).await;
    assert_eq!(everything(root.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_cache_behind_a_link_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let system = root.path().join("system");
    let outside = root.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    make_old(&outside.join("precious"));
    fs::create_dir_all(system.join("CAR/archives")).unwrap();
    symlink(&outside, system.join("CAR/files")).unwrap();
    fs::write(system.join("CAR/archives/old.zip"), "x").unwrap();
    make_old(&system.join("CAR/archives/old.zip"));
    let proxy = Running::start(root.path(), &settings("delete")).await;
    until_counted(&proxy, "deleted", 1).await;
    assert!(outside.join("precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_files_on_hdfs_are_deleted_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let cluster = MiniCluster::start(2).await;
    let files = FileSystems::new(cluster.settings()).unwrap();
    let (system, _) = files.resolve("/").unwrap();
    let now = i64::try_from(
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis(),
    );
    let old = now.unwrap() - 7_200_000;
    let expired =
        ["/system/job_1.2_0003", "/sessions/202611221049.0", "/system/CAR/libjars/old.jar"];
    let kept = [
        ("/system/job_1.2_0004", false),
        ("/system/job_1_0003", true),
        ("/system/elsewhere", true),
        ("/sessions/202611221049.1", false),
        ("/sessions/202611221049", true),
        ("/system/CAR/libjars/new.jar", false),
        ("/elsewhere/job_1.2_0003", true),
    ];
    for (path, is_old) in expired.iter().map(|path| (*path, true)).chain(kept) {
        let (_, path) = files.resolve(path).unwrap();
        if path.name().ends_with(".jar") {
            let mut writer = system.create(&path, CreateOptions::default()).await.unwrap();
            writer.write(b"x").await.unwrap();
            writer.close().await.unwrap();
        } else {
            system.mkdirs(&path.join("inside"), None).await.unwrap();
        }
        if is_old {
            let accessed = path.name().ends_with(".jar").then_some(old);
            system.set_times(&path, Some(old), accessed).await.unwrap();
        }
    }
    let default = format!("hdfs://{}/", cluster.address());
    let of_hdfs = [
        ("fs.default.name", &*default),
        ("corona.sessions.log.dir", "/sessions"),
        ("corona.system.dir", "/system"),
    ];
    // First only reported.
    let settings_of = |mode| [&settings(mode)[..], &of_hdfs].concat();
    let proxy = Running::start(root.path(), &settings_of("report")).await;
    until_counted(&proxy, "reported", expired.len()).await;
    drop(proxy);
    let is_there = async |path: &str| {
        let (system, path) = files.resolve(path).unwrap();
        system.find(&path).await.unwrap().is_some()
    };
    for path in expired {
        assert!(is_there(path).await, "{path}");
    }
    let proxy = Running::start(root.path(), &settings_of("delete")).await;
    until_counted(&proxy, "deleted", expired.len()).await;
    for path in expired {
        assert!(!is_there(path).await, "{path}");
    }
    for (path, _) in kept {
        assert!(is_there(path).await, "{path}");
    }
}
