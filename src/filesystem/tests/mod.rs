//! The whole client against a small HDFS with faults, and against what the original said.

mod faults;
mod files;
mod playback;
mod recordings;

use std::sync::Arc;
use std::time::Duration;

use corona_net::testing::{soon, until};

use crate::testing::MiniCluster;
use crate::{
    CreateOptions, FileReader, FileSystem, FileSystemSettings, FileSystems, FileWriter, FsError,
    FsPath,
};

/// Bytes of which no two chunks are the same.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 9) ^ (at >> 17)) as u8).collect()
}

/// A client of a small cluster.
struct TestClient {
    cluster: MiniCluster,
    systems: FileSystems,
    files: Arc<dyn FileSystem>,
}

impl TestClient {
    async fn new(data_nodes: usize) -> TestClient {
        TestClient::with(data_nodes, |_| {}).await
    }

    async fn with(data_nodes: usize, change: impl FnOnce(&mut FileSystemSettings)) -> TestClient {
        let cluster = MiniCluster::start(data_nodes).await;
        let mut settings = cluster.settings();
        change(&mut settings);
        let systems = FileSystems::new(settings).unwrap();
        let files = systems.resolve("/").unwrap().0;
        TestClient { cluster, systems, files }
    }

    fn path(&self, text: &str) -> FsPath {
        self.systems.resolve(text).unwrap().1
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        soon(async {
            let path = self.path(path);
            let mut writer = self.files.create(&path, CreateOptions::default()).await?;
            for piece in bytes.chunks(10_007) {
                writer.write(piece).await?;
            }
            writer.close().await
        })
        .await
    }

    async fn create(&self, path: &str) -> Box<dyn FileWriter> {
        soon(self.files.create(&self.path(path), CreateOptions::default())).await.unwrap()
    }

    async fn read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        soon(async {
            let mut reader = self.files.open(&self.path(path)).await?;
            all(&mut *reader).await
        })
        .await
    }
}

/// Reads from the position to the end.
async fn all(reader: &mut dyn FileReader) -> Result<Vec<u8>, FsError> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 10_000]);
    loop {
        match reader.read(&mut piece).await? {
            0 => return Ok(bytes),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}
