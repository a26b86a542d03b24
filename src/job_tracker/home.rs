//! The directory of what must survive a restart: the ports that others know, and a directory for each
//! job. One process at a time can use it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use corona_model::form::FileVersion;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The file that is locked, and the one with the ports.
const LOCK: &str = "lock";
const PORTS: &str = "ports.json";
const JOBS: &str = "jobs";

/// The beginning of the name of the directory of a job that is being removed.
const REMOVED: &str = "removed-";

/// Removes the directory of a job; if it is not there, that is well. One that is half removed must not look
/// like one whose journal is lost.
pub(crate) fn remove_job(directory: &Path) -> io::Result<()> {
    let Some(name) = directory.file_name() else { return Ok(()) };
    let removed = directory.with_file_name(format!("{REMOVED}{}", name.to_string_lossy()));
    match fs::rename(directory, &removed) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::remove_dir_all(removed),
    }
}

/// The directory, locked.
#[derive(Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    ports: Ports,
    _lock: File,
}

/// The ports of the last run; 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ports {
    pub(crate) rpc: u16,
    pub(crate) notifications: u16,
    pub(crate) pages: u16,
}

/// The version of the form of the file of ports. One that had no version was the first.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct PortsFile {
    #[serde(flatten)]
    version: FileVersion,
    #[serde(flatten, default)]
    ports: Ports,
}

impl Ports {
    /// Those that a file keeps. Without it, or if it is damaged or of another version, any port will do.
    fn read(path: &Path) -> Ports {
        let text = fs::read(path).unwrap_or_default();
        match serde_json::from_slice::<PortsFile>(&text) {
            Ok(PortsFile { version: FileVersion { version: VERSION }, ports }) => ports,
            Ok(PortsFile { version: FileVersion { version }, .. }) => {
                tracing::warn!(path = %path.display(), "form {version} is not known to this version of the program; any ports are taken");
                Ports::default()
            }
            Err(_) => Ports::default(),
        }
    }
}

/// Why the directory cannot be used.
#[derive(Debug, Error)]
pub enum HomeError {
    /// The system refuses.
    #[error("corona.jt.data.dir {path}: cannot {what}: {error}", path = path.display())]
    System {
        /// Which file or directory.
        path: PathBuf,
        /// What was to be done.
        what: &'static str,
        /// Why it cannot.
        error: io::Error,
    },
    /// Another process uses it.
    #[error("corona.jt.data.dir {path}: another job tracker uses it", path = path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl Home {
    /// Makes the directory, if it does not exist, and locks it.
    pub(crate) fn open(directory: &Path) -> Result<Home, HomeError> {
        let failed = |path: &Path, what| {
            let path = path.to_owned();
            move |error| HomeError::System { path, what, error }
        };
        let jobs = directory.join(JOBS);
        fs::create_dir_all(&jobs).map_err(failed(&jobs, "make the directory"))?;
        let path = directory.join(LOCK);
        let lock = File::options().create(true).append(true).open(&path);
        let lock = lock.map_err(failed(&path, "open"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(HomeError::InUse { path: directory.to_owned() });
            }
            Err(error) => return Err(failed(&path, "lock")(error.into())),
        }
        let ports = Ports::read(&directory.join(PORTS));
        Ok(Home { directory: directory.to_owned(), ports, _lock: lock })
    }

    /// The ports of the last run.
    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    /// Notes the ports of this run.
    pub(crate) fn remember_ports(&self, ports: Ports) -> Result<(), HomeError> {
        let path = self.directory.join(PORTS);
        let kept = PortsFile { version: FileVersion { version: VERSION }, ports };
        let text = serde_json::to_vec(&kept).map_err(io::Error::from);
        let failed = |error| HomeError::System { path: path.clone(), what: "write", error };
        fs::write(&path, text.map_err(failed)?).map_err(failed)
    }

    /// The file whose lock this process holds.
    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join(LOCK)
    }

    /// The directory with an entry for each job.
    pub(crate) fn jobs(&self) -> PathBuf {
        self.directory.join(JOBS)
    }

    /// The directory with the outputs that tasks have left for their users.
    pub(crate) fn outputs(&self) -> PathBuf {
        self.directory.join("outputs")
    }

    /// The directory with what is known of jobs that have ended.
    pub(crate) fn finished(&self) -> PathBuf {
        self.directory.join("finished")
    }

    /// The file with the ids that were given out.
    pub(crate) fn ids(&self) -> PathBuf {
        self.directory.join("ids")
    }

    /// The file with the builds of task trackers.
    pub(crate) fn builds(&self) -> PathBuf {
        self.directory.join("builds.json")
    }

    /// The directory with what the cluster manager is owed.
    pub(crate) fn owed(&self) -> PathBuf {
        self.directory.join("owed")
    }

    /// The names of the entries. What was being removed is removed.
    pub(crate) fn job_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.jobs())? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            match name.starts_with(REMOVED) {
                true => {
                    // It hides no other job.
                    if let Err(error) = fs::remove_dir_all(self.jobs().join(&name)) {
                        tracing::warn!(name, %error, "cannot remove the rest of a job; it is tried again at the next start");
                    }
                }
                false => names.push(name),
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_uses_it_and_the_next_one_knows_the_ports() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let home = Home::open(&path).unwrap();
        assert_eq!(home.ports(), Ports::default());
        let ports = Ports { rpc: 8021, notifications: 8022, pages: 3 };
        home.remember_ports(ports).unwrap();
        assert!(matches!(Home::open(&path), Err(HomeError::InUse { .. })));
        drop(home);
        assert_eq!(Home::open(&path).unwrap().ports(), ports);
        let jobs = path.join(JOBS);
        for name in ["job_1", "job_2", "removed-job_3"] {
            fs::create_dir_all(jobs.join(name).join("journal")).unwrap();
        }
        remove_job(&jobs.join("job_2")).unwrap();
        remove_job(&jobs.join("job_2")).unwrap();
        assert_eq!(Home::open(&path).unwrap().job_names().unwrap(), ["job_1"]);
        assert_eq!(fs::read_dir(&jobs).unwrap().count(), 1);
        let fixture = include_str!("../../fixtures/versions/job-tracker-ports.json");
        assert_eq!(fs::read_to_string(path.join(PORTS)).unwrap(), fixture.trim_end());
        for (text, expected) in [
            (fixture, ports),
            // That of the first program had no version.
            (r#"{"rpc":8021,"notifications":8022,"pages":3}"#, ports),
            (r#"{"version":2,"rpc":8021,"notifications":8022,"pages":3}"#, Ports::default()),
            (r#"{"version":2}"#, Ports::default()),
            ("{", Ports::default()),
        ] {
            fs::write(path.join(PORTS), text).unwrap();
            assert_eq!(Home::open(&path).unwrap().ports(), expected, "{text}");
        }
    }
}
