//! The temporary output of a job that has ended without its clean-up: its session was ended, or nothing ran
//! its clean-up in time. Then no slot is left on which a task could remove it.

use std::sync::Arc;

use corona_config::JobConf;
use corona_filesystem::{FileSystems, FsError, ObjectAccess};
use corona_mapreduce::JobId;

use crate::submit::submission::output;
use crate::submit::submission::read_staged;

/// The committers that keep unfinished output in [`TEMPORARY`], in both forms of the interface.
const FILE_COMMITTERS: [&str; 2] = [
    "org.apache.hadoop.mapred.FileOutputCommitter",
    "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter",
];
/// Where they keep it, below the directory of the output. Spec: mapreduce/06 (b).
const TEMPORARY: &str = "_temporary";

/// The directory of a job's unfinished output; none if it has no output, or a committer of its own whose
/// doings only its class knows.
pub(crate) fn temporary_output(conf: &JobConf) -> Option<String> {
    let committer = conf.get("mapred.output.committer.class");
    let is_known = committer.is_none_or(|class| FILE_COMMITTERS.contains(&&*class));
    let output = output(conf).filter(|_| is_known)?;
    Some(below(&output))
}

/// The directory of unfinished output of a job with this output.
pub(crate) fn below(output: &str) -> String {
    format!("{}/{TEMPORARY}", output.trim_end_matches('/'))
}

/// Entries of a directory of unfinished output that are looked at.
const MAX_ENTRIES: usize = 1_000_000;

/// The access of a job to the object store of its output, as its client has put it into its directory; none for
/// another output.
pub(crate) async fn access_to(
    output: &str,
    files: &FileSystems,
    job_dir: &str,
) -> Result<Option<Arc<ObjectAccess>>, FsError> {
    if !ObjectAccess::is_for(output) {
        return Ok(None);
    }
    let read = read_staged(files, job_dir, ObjectAccess::FILE, ObjectAccess::MAX_BYTES);
    let access = ObjectAccess::from_json(&read.await?)?;
    // The role of this machine is not for what a job names.
    Ok(Some(access).filter(ObjectAccess::has_keys).map(Arc::new))
}

/// Removes what attempts of one job have left there, and the directory if nothing else is in it. Another job
/// may write to the same output by now. Returns how many attempts there were.
pub(crate) async fn sweep(
    files: &FileSystems,
    temporary: &str,
    job: &JobId,
) -> Result<usize, FsError> {
    let (system, path) = files.resolve(temporary)?;
    if system.find(&path).await?.is_none() {
        return Ok(0);
    }
    let (of_job, mut attempts) = (format!("_{}_", job.as_str().replacen("job", "attempt", 1)), 0);
    let entries = system.list(&path, MAX_ENTRIES).await?;
    let all = entries.len();
    for entry in entries {
        if entry.path.name().starts_with(&of_job) {
            system.delete(&entry.path, true).await?;
            attempts += 1;
        }
    }
    if attempts > 0 && attempts == all {
        // Not what has come meanwhile.
        let _ = system.delete(&path, false).await;
    }
    Ok(attempts)
}

/// Removes it. In an object store there may be unfinished uploads though nothing is seen.
pub(crate) async fn remove(files: &FileSystems, temporary: &str) -> Result<bool, FsError> {
    let (system, path) = files.resolve(temporary)?;
    system.delete(&path, true).await
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;

    use super::*;
    use crate::submit::submission::tests::conf;

    fn temporary(properties: &[(&str, &str)]) -> Option<String> {
        temporary_output(&conf(properties))
    }

    #[test]
    fn only_what_file_committers_leave_is_removed() {
        let (output, committer) = ("mapred.output.dir", "mapred.output.committer.class");
        assert_eq!(temporary(&[]), None);
        assert_eq!(temporary(&[(output, "")]), None);
        assert_eq!(temporary(&[(output, "hdfs://nn/out/")]).unwrap(), "hdfs://nn/out/_temporary");
        let relative = [(output, "out"), ("mapred.working.dir", "hdfs://nn/user/alice")];
        assert_eq!(temporary(&relative).unwrap(), "hdfs://nn/user/alice/out/_temporary");
        let known = [(output, "/out"), (committer, FILE_COMMITTERS[0])];
        assert_eq!(temporary(&known).unwrap(), "/out/_temporary");
        assert_eq!(temporary(&[(output, "/out"), (committer, "com.example.Own")]), None);
    }

    #[tokio::test]
    async fn it_is_removed_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            FileSystemSettings { default_fs: "file:///".into(), ..FileSystemSettings::default() };
        let files = FileSystems::new(settings).unwrap();
        let (temporary, part) = (dir.path().join("out/_temporary"), dir.path().join("out/part-0"));
        std::fs::create_dir_all(temporary.join("attempt")).unwrap();
        std::fs::write(temporary.join("attempt/part-1"), "").unwrap();
        std::fs::write(&part, "").unwrap();
        let path = format!("file:{}", temporary.display());
        assert!(remove(&files, &path).await.unwrap());
        assert!(!temporary.exists() && part.exists());
        assert!(!remove(&files, &path).await.unwrap(), "there is none");
    }
}
