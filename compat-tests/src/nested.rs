//! A hostile message of Hadoop's RPC: an array in an array in an array. A decoder that follows them
//! needs more stack than there is.

use corona::hadoop::io::Writer;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::rpc::{ConnectionHeader, MAGIC};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;

/// Levels that need more than the 8 MiB that the first thread of a process has.
const LEVELS: usize = 100_000;

/// A parameter or a result: arrays of one item each, inside one another.
pub fn arrays() -> Vec<u8> {
    let mut one = Writer::new(100);
    one.utf8("[[I");
    one.i32(1);
    one.finish().expect("a small array").repeat(LEVELS)
}

/// Calls a method of a protocol with nested arrays, and waits until the server closes the connection.
///
/// # Panics
/// When the server does not close it, or replies.
pub async fn send_call(address: &str, protocol: &str) {
    let written = |write: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new(16 << 20);
        write(&mut writer);
        writer.finish().expect("a message")
    };
    let header = ConnectionHeader { protocol: protocol.to_owned(), user: None };
    let header = written(&|writer| header.encode(writer));
    let call = written(&|writer| {
        writer.i32(0);
        writer.utf8("getProtocolVersion");
        writer.i32(1);
        writer.put(&arrays());
    });
    let message = written(&|writer| {
        writer.put(&MAGIC);
        for part in [&header, &call] {
            let length = writer.count(part.len());
            writer.i32(length);
            writer.put(part);
        }
    });
    let conversation = async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        // The server may close it before it has read everything.
        let _ = stream.write_all(&message).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        assert_eq!(reply, b"", "{address} replies to {protocol}");
    };
    timeout(PATIENCE, conversation).await.expect("the server closes the connection");
}
