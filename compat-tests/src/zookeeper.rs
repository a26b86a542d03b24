//! A ZooKeeper of the tests' own: the server of Debian's package `zookeeper`, on a port of this machine.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::serving::free_address;
use crate::skipping::{Missing, skip};

/// The server, with its libraries.
pub const JAR: &str = "/usr/share/java/zookeeper.jar";

/// A running server. It is ended when this is dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    child: Child,
    directory: TempDir,
    address: SocketAddr,
}

impl ZooKeeper {
    /// Starts a server with sessions of one to ten seconds. Where it is not installed, the test of this thread is skipped.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start() -> Option<ZooKeeper> {
        if !Path::new(JAR).exists() {
            skip(Missing::ZooKeeper);
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let address = free_address();
        let configuration = format!(
            "tickTime=500\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={}\n\
             admin.enableServer=false\nmaxClientCnxns=0\n",
            directory.path().join("data").display(),
            address.port()
        );
        fs::write(directory.path().join("zoo.cfg"), configuration).expect("a file");
        let child = run(directory.path());
        let mut server = ZooKeeper { child, directory, address };
        server.wait();
        Some(server)
    }

    /// Where it listens, as the configuration names servers.
    pub fn servers(&self) -> String {
        self.address.to_string()
    }

    /// Ends it.
    pub fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts it, with its former state.
    pub fn start_again(&mut self) {
        self.stop();
        self.child = run(self.directory.path());
        self.wait();
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < deadline, "ZooKeeper does not listen");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(directory: &Path) -> Child {
    Command::new("java")
        .args(["-Xmx64m", "-cp", JAR, "org.apache.zookeeper.server.ZooKeeperServerMain"])
        .arg(directory.join("zoo.cfg"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java")
}
