//! HDFS, and files of jobs at a job tracker, read by the task tracker itself.

use std::path::Path;
use std::time::Duration;

use corona_filesystem::{ErrorKind, FileSystem, FileSystems, FsError, FsPath, copy_to_local};
use tokio::time::timeout;

use super::{Answer, FileError, FileStatus, JobFiles, Location};

/// Files of HDFS and of job trackers, over their own protocols.
#[derive(Debug)]
pub struct NativeFiles {
    /// Clients of name nodes.
    pub systems: FileSystems,
    /// Time for one copy.
    pub timeout: Duration,
    /// The largest file that is copied.
    pub max_bytes: u64,
}

impl NativeFiles {
    /// Whether it can read this location: its scheme is HDFS's or a job tracker's, and nothing in the
    /// configuration asks for another client.
    pub fn reads(&self, location: &Location) -> bool {
        matches!(location.scheme(), Some("hdfs" | "corona")) && self.find(location).is_ok()
    }

    fn find(
        &self,
        location: &Location,
    ) -> Result<(std::sync::Arc<dyn FileSystem>, FsPath), FsError> {
        self.systems.of(&FsPath::parse(&location.to_string())?)
    }

    /// Does something within the time for one copy.
    async fn within<T>(
        &self,
        location: &Location,
        work: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FileError> {
        match timeout(self.timeout, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) if error.kind == ErrorKind::NotFound => {
                Err(FileError::Missing(location.clone()))
            }
            Ok(Err(error)) if error.kind == ErrorKind::IsADirectory => {
                Err(FileError::NotAFile(location.clone()))
            }
            Ok(Err(error)) => Err(FileError::Hdfs(Box::new(error))),
            Err(_) => Err(FileError::Timeout { location: location.clone(), timeout: self.timeout }),
        }
    }
}

impl JobFiles for NativeFiles {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        Box::pin(self.within(location, async {
            let (files, path) = self.find(location)?;
            let status = files.status(&path).await?;
            match status.is_directory {
                true => {
                    Err(FsError::new(ErrorKind::IsADirectory, "status", path, "Is a directory"))
                }
                false => Ok(FileStatus { bytes: status.bytes, modified_ms: status.modified_ms }),
            }
        }))
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        Box::pin(async move {
            if self.status(location).await?.bytes > self.max_bytes {
                let limit_bytes = self.max_bytes;
                return Err(FileError::TooLarge { location: location.clone(), limit_bytes });
            }
            self.within(location, async {
                let (files, path) = self.find(location)?;
                copy_to_local(&*files, &path, to, self.max_bytes, &mut |_| {}).await
            })
            .await
        })
    }
}

#[cfg(test)]
mod tests {
    use corona_filesystem::testing::{Faults, MiniCluster};
    use corona_filesystem::{CreateOptions, FileSystemSettings};

    use super::*;

    async fn files(cluster: &MiniCluster, bytes: &[u8]) -> (NativeFiles, Location) {
        let systems = FileSystems::new(cluster.settings()).unwrap();
        let (hdfs, path) = systems.resolve("/jobs/job.jar").unwrap();
        let mut writer = hdfs.create(&path, CreateOptions::default()).await.unwrap();
        writer.write(bytes).await.unwrap();
        writer.close().await.unwrap();
        hdfs.set_times(&path, Some(1_700_000_000_123), None).await.unwrap();
        let location = Location::from_path(&path.to_string()).unwrap();
        let timeout = Duration::from_secs(60);
        (NativeFiles { systems, timeout, max_bytes: 1 << 20 }, location)
    }

    #[tokio::test]
    async fn a_file_of_a_job_comes_from_hdfs_without_a_process() {
        let cluster = MiniCluster::start(2).await;
        let bytes = vec![7; 200_000];
        let (files, location) = files(&cluster, &bytes).await;
        assert!(files.reads(&location));
        let status = files.status(&location).await.unwrap();
        assert_eq!(status, FileStatus { bytes: 200_000, modified_ms: 1_700_000_000_123 });
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("job.jar");
        cluster.data_nodes[0].set_faults(Faults { is_dead: true, ..Faults::default() });
        assert_eq!(files.fetch(&location, &to).await.unwrap(), 200_000);
        assert!(std::fs::read(&to).unwrap() == bytes);
        assert!(files.systems.counters().local_read_bytes.get() >= 200_000);
        let small = NativeFiles { max_bytes: 100, ..files };
        let error = small.fetch(&location, &to).await.unwrap_err();
        assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
        let missing = Location::from_path(&format!("hdfs://{}/no", cluster.address())).unwrap();
        let error = small.status(&missing).await.unwrap_err();
        assert!(matches!(error, FileError::Missing(_)), "{error}");
        let directory = Location::from_path(&format!("hdfs://{}/jobs", cluster.address())).unwrap();
        let error = small.status(&directory).await.unwrap_err();
        assert!(matches!(error, FileError::NotAFile(_)), "{error}");
    }

    #[tokio::test]
    async fn files_for_another_client_are_left_to_it() {
        let settings = FileSystemSettings {
            hdfs_class: "com.example.OtherFileSystem".to_owned(),
            ..FileSystemSettings::default()
        };
        let systems = FileSystems::new(settings).unwrap();
        let files = NativeFiles { systems, timeout: Duration::from_secs(60), max_bytes: 1 };
        for text in ["hdfs://nn/a", "hftp://nn/a", "/a"] {
            assert!(!files.reads(&Location::from_path(text).unwrap()), "{text}");
        }
    }
}
