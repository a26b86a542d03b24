//! A connection to a data node, with a time limit on everything. It ends with its owner.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::HdfsContext;
use crate::{ErrorKind, FsError};
use corona_hadoop::writables::DatanodeInfo;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Whether the data node is on this machine.
    pub(super) is_local: bool,
    /// The place among the connections that may be open.
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Connects to the address by which the name node knows the data node, not to its host's name.
    /// Spec: hdfs/01 §1.1.
    pub(super) async fn open(
        shared: &HdfsContext,
        node: &DatanodeInfo,
        due: Duration,
        call: &'static str,
    ) -> Result<Connection, FsError> {
        let failed = |error: io::Error| {
            let kind = crate::error::kind_of_connecting(&error);
            FsError::new(kind, call, "", format!("no connection: {error}")).at(&node.name)
        };
        let permit = shared.data_connections.clone().acquire_owned().await;
        let permit = permit.map_err(|closed| failed(io::Error::other(closed)))?;
        let stream = match timeout(due, TcpStream::connect(&node.name)).await {
            Ok(connected) => connected.map_err(failed)?,
            Err(_) => return Err(too_slow(call, node, "no connection", due)),
        };
        stream.set_nodelay(true).map_err(failed)?;
        let ends = (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
        let is_local = ends.0.ip() == ends.1.ip();
        Ok(Connection { stream, is_local, _permit: permit })
    }
}

/// A data node that takes too long.
pub(super) fn too_slow(
    call: &'static str,
    node: &DatanodeInfo,
    what: &str,
    due: Duration,
) -> FsError {
    let message = format!("{what} within {} ms", due.as_millis());
    FsError::new(ErrorKind::TooSlow, call, "", message).at(&node.name)
}
