//! The paths of all files, relative to a local directory. Tasks use the same names.
//!
//! Spec: mapreduce/04 §4.4.

use std::path::{Path, PathBuf};

use super::ids::{AttemptId, JobId};

/// All that belongs to jobs.
pub const TRACKER: &str = "taskTracker";
/// Files that wait for their deletion.
pub const DISCARDED: &str = "toBeDeleted";
/// One file for each process that was started, for the next run of the task tracker to find.
pub const PROCESSES: &str = "corona-processes";
/// The configuration of a job or of an attempt.
pub const JOB_XML: &str = "job.xml";
/// The directory that a task runs in, and the directory that the tasks of a job share.
pub const WORK: &str = "work";

/// All that belongs to one job.
pub fn job(job: &JobId) -> PathBuf {
    [TRACKER, "jobcache", job.as_str()].iter().collect()
}

/// The configuration of a job.
pub fn job_xml(id: &JobId) -> PathBuf {
    job(id).join(JOB_XML)
}

/// The access of a job to object stores, in a directory that other users do not see into.
pub fn job_access(id: &JobId) -> PathBuf {
    job(id).join("access").join("object-access")
}

/// The directory that the tasks of a job share: `job.local.dir`.
pub fn job_work(id: &JobId) -> PathBuf {
    job(id).join(WORK)
}

/// The jar of a job, unpacked beside itself.
pub fn job_jar(id: &JobId) -> PathBuf {
    job(id).join("jars").join("job.jar")
}

/// All that belongs to one attempt. A clean-up attempt has the same name and another directory.
pub fn attempt(id: &AttemptId, is_cleanup: bool) -> PathBuf {
    let name = if is_cleanup { format!("{id}.cleanup") } else { id.to_string() };
    job(id.job()).join(name)
}

/// Where a map puts its output, and a reduce its fetched data.
pub fn output(id: &AttemptId) -> PathBuf {
    attempt(id, false).join("output")
}

/// The file of a map's output, which reduces fetch.
pub fn map_output(id: &AttemptId) -> PathBuf {
    output(id).join("file.out")
}

/// Where the parts of a map's output begin and end.
pub fn map_output_index(id: &AttemptId) -> PathBuf {
    output(id).join("file.out.index")
}

/// The directory that a job tracker runs in. Not below its job, whose directory is replaced by the first
/// of the job's tasks that comes here.
pub fn job_tracker_work(id: &AttemptId) -> PathBuf {
    [TRACKER, "jobtrackers", id.as_str(), WORK].iter().collect()
}

/// The configuration of its job, as a job tracker looks for it in that directory.
pub fn job_tracker_xml(id: &AttemptId) -> PathBuf {
    job_tracker_work(id).join(format!("{}.xml", id.job().as_str()))
}

/// Entries of the distributed cache.
pub fn cache() -> PathBuf {
    Path::new(TRACKER).join("archive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_tasks_look_for() {
        let id: AttemptId = "attempt_20.1_0001_m_000000_0".parse().unwrap();
        let in_job = "taskTracker/jobcache/job_20.1_0001";
        let cases = [
            (job_xml(id.job()), "/job.xml"),
            (job_work(id.job()), "/work"),
            (job_jar(id.job()), "/jars/job.jar"),
            (attempt(&id, true), "/attempt_20.1_0001_m_000000_0.cleanup"),
            (map_output(&id), "/attempt_20.1_0001_m_000000_0/output/file.out"),
            (map_output_index(&id), "/attempt_20.1_0001_m_000000_0/output/file.out.index"),
        ];
        for (path, expected) in cases {
            assert_eq!(path.to_str().unwrap(), format!("{in_job}{expected}"));
        }
        assert_eq!(
            job_tracker_xml(&id).to_str().unwrap(),
            "taskTracker/jobtrackers/attempt_20.1_0001_m_000000_0/work/job_20.1_0001.xml"
        );
    }
}
