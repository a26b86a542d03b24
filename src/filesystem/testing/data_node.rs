//! A data node of the small cluster.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::{NAMESPACE, NameNode};
use crate::hdfs::transfer::{
    Ack, HEARTBEAT, Layout, Next, PacketHeader, ReadAnswer, ReadEnd, ReadReply, ReadRequest,
    Request, SumKind, Sums, VERSION, WriteRequest, request_bytes, verify,
};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::protocols::client_datanode::{ClientDatanode, Served};
use corona_hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona_hadoop::writables::{Block, DatanodeAdminState, DatanodeInfo, to_bytes};

/// The most bytes of a packet.
const MAX_PACKET: usize = 4 << 20;

/// What a data node does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Every connection is closed at once.
    pub is_dead: bool,
    /// A reader's connection is closed after so many bytes of the answer.
    pub close_after: Option<usize>,
    /// This byte of every block is another one when it is read.
    pub corrupt: Option<usize>,
    /// Readers get nothing, writers no acknowledgement.
    pub is_stuck: bool,
    /// A writer's connection is closed before this packet is acknowledged.
    pub die_at_packet: Option<usize>,
    /// This packet is answered with a failure.
    pub refuse_packet: Option<usize>,
    /// The last packet is acknowledged, and the name node never hears of the block.
    pub is_silent: bool,
}

/// A data node that keeps blocks in memory.
#[derive(Debug)]
pub struct DataNode {
    number: usize,
    port: u16,
    ipc_port: u16,
    name_node: Arc<NameNode>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    replicas: HashMap<i64, Replica>,
    faults: Faults,
    /// How packets to readers are laid out, how many bytes each has, and the checksums.
    layout: Layout,
    packet: usize,
    sums: Sums,
    reads: usize,
    writes: usize,
    heartbeats: usize,
    /// Status words of readers that were satisfied.
    verified: usize,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    generation: i64,
    bytes: Vec<u8>,
    is_final: bool,
}

impl DataNode {
    pub(super) async fn start(
        number: usize,
        name_node: Arc<NameNode>,
        stopped: watch::Receiver<bool>,
    ) -> (Arc<DataNode>, Vec<JoinHandle<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let ipc = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = |listener: &TcpListener| listener.local_addr().expect("its address").port();
        let state = State {
            replicas: HashMap::new(),
            faults: Faults::default(),
            layout: if number.is_multiple_of(2) { Layout::Inline } else { Layout::SumsFirst },
            packet: if number.is_multiple_of(2) { 4096 } else { 65_536 },
            sums: Sums { kind: SumKind::Crc32, covered: 512 },
            reads: 0,
            writes: 0,
            heartbeats: 0,
            verified: 0,
        };
        let node = Arc::new(DataNode {
            number,
            port: port(&listener),
            ipc_port: port(&ipc),
            name_node,
            state: Mutex::new(state),
        });
        let services = Services::new().offer(Served::new(node.clone()));
        let rpc = tokio::spawn(Server::new(ipc, services, Limits::default()).run(stopped));
        let accepting = tokio::spawn(accept(listener, node.clone()));
        (node, vec![rpc, accepting])
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the name node describes it.
    pub fn info(&self) -> DatanodeInfo {
        DatanodeInfo {
            name: format!("127.0.0.1:{}", self.port),
            storage: format!("DS-{}-127.0.0.1-{}", self.number, self.port),
            info_port: 50_075,
            ipc_port: self.ipc_port,
            capacity: 1 << 40,
            used: 0,
            remaining: 1 << 40,
            last_update_ms: 0,
            transfers: 0,
            rack: "/default-rack".to_owned(),
            host: "127.0.0.1".to_owned(),
            admin_state: DatanodeAdminState::Normal,
        }
    }

    /// Does this wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// How bytes are laid out for readers, how many each packet has, and how they are checked.
    pub fn set_layout(&self, layout: Layout, packet: usize, sums: Sums) {
        let mut state = self.lock();
        (state.layout, state.packet, state.sums) = (layout, packet, sums);
    }

    /// Reads and writes that have begun.
    pub fn uses(&self) -> (usize, usize) {
        let state = self.lock();
        (state.reads, state.writes)
    }

    /// Heartbeats of writers.
    pub fn heartbeats(&self) -> usize {
        self.lock().heartbeats
    }

    /// Readers that said that all checksums were right.
    pub fn verified(&self) -> usize {
        self.lock().verified
    }

    /// The bytes of a replica; none if there is none.
    pub fn replica(&self, block: i64) -> Option<Vec<u8>> {
        self.lock().replicas.get(&block).map(|replica| replica.bytes.clone())
    }

    fn faults(&self) -> Faults {
        self.lock().faults
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if self.faults().is_dead {
            return Ok(());
        }
        let mut inbox = Inbox::default();
        match inbox.decode(&mut stream, Request::decode).await? {
            Request::Read(read) => self.read(&mut stream, &mut inbox, read).await,
            Request::Write(write) => self.write(&mut stream, &mut inbox, write).await,
        }
    }

    async fn read(
        &self,
        stream: &mut TcpStream,
        inbox: &mut Inbox,
        read: ReadRequest,
    ) -> io::Result<()> {
        if read.namespace != NAMESPACE {
            return Ok(());
        }
        let (replica, faults, layout, packet, sums) = {
            let mut state = self.lock();
            state.reads += 1;
            let replica = state.replicas.get(&read.block).cloned();
            (replica, state.faults, state.layout, state.packet, state.sums)
        };
        if faults.is_stuck {
            return std::future::pending().await;
        }
        let end = read.offset.saturating_add(read.length);
        let is_there = |replica: &Replica| {
            read.generation <= replica.generation
                && read.offset >= 0
                && (read.offset..=replica.bytes.len() as i64).contains(&end)
        };
        let Some(mut replica) = replica.filter(is_there) else {
            return stream.write_all(&bytes(&ReadAnswer::Status(1))).await;
        };
        let (first, whole) =
            (read.offset as usize / sums.covered * sums.covered, replica.bytes.len());
        let last = (end as usize).next_multiple_of(sums.covered).min(whole);
        let reply = ReadReply { sums, first_chunk: first as i64 };
        let mut answer = bytes(&ReadAnswer::Packets(reply));
        let clean = replica.bytes.clone();
        if let Some(byte) = faults.corrupt.and_then(|at| replica.bytes.get_mut(at)) {
            *byte ^= 1;
        }
        let (mut at, mut seqno) = (first, 0);
        while at < last {
            let length = packet.next_multiple_of(sums.covered).min(last - at);
            let (mut front, mut data) = (Vec::new(), Vec::new());
            let chunks = clean[at..at + length].chunks(sums.covered);
            for (sent, good) in replica.bytes[at..at + length].chunks(sums.covered).zip(chunks) {
                data.extend_from_slice(sent);
                let sum = sums.kind.sum(good).map(u32::to_be_bytes);
                let place = if layout == Layout::Inline { &mut data } else { &mut front };
                place.extend(sum.into_iter().flatten());
            }
            let header = PacketHeader {
                payload: front.len() + data.len(),
                layout,
                offset: at as i64,
                seqno,
                flags: u8::from(at + length == last),
                data: length,
            };
            answer.extend(header.bytes());
            answer.extend(front);
            answer.extend(data);
            (at, seqno) = (at + length, seqno + 1);
        }
        answer.extend([0; 4]);
        let end = ReadEnd { finalized: replica.is_final, visible: whole as i64 };
        answer.extend(bytes(&end));
        let sent = faults.close_after.unwrap_or(usize::MAX).min(answer.len());
        stream.write_all(&answer[..sent]).await?;
        if sent == answer.len() && inbox.decode(stream, |reader| reader.i16()).await? == 5 {
            self.lock().verified += 1;
        }
        Ok(())
    }

    async fn write(
        &self,
        stream: &mut TcpStream,
        inbox: &mut Inbox,
        write: WriteRequest,
    ) -> io::Result<()> {
        self.lock().writes += 1;
        let is_new = !self.lock().replicas.contains_key(&write.block);
        let is_wrong = write.namespace != NAMESPACE
            || write.client.is_empty()
            || write.depth as usize != write.targets.len() + 1;
        if is_wrong || !is_new {
            return Ok(());
        }
        let mut next = None;
        if let Some((target, behind)) = write.targets.split_first() {
            let name = target.name.clone();
            let connected = async {
                let mut next = TcpStream::connect(&name).await?;
                next.set_nodelay(true)?;
                let request = WriteRequest {
                    depth: write.depth - 1,
                    targets: behind.to_vec(),
                    ..write.clone()
                };
                next.write_all(&request_bytes(&Request::Write(request))).await?;
                let mut inbox = Inbox::default();
                let bad = inbox.decode(&mut next, |reader| reader.text()).await?;
                Ok::<_, io::Error>((next, inbox, bad))
            };
            let bad = match connected.await {
                Ok((connected, inbox, bad)) => {
                    next = Some((connected, inbox));
                    bad
                }
                Err(_) => name,
            };
            if !bad.is_empty() {
                return stream.write_all(&text(&bad)).await;
            }
        }
        stream.write_all(&text("")).await?;
        let replica = Replica { generation: write.generation, bytes: Vec::new(), is_final: false };
        self.lock().replicas.insert(write.block, replica);
        self.receive(stream, inbox, &write, next).await
    }

    async fn receive(
        &self,
        stream: &mut TcpStream,
        inbox: &mut Inbox,
        write: &WriteRequest,
        mut next: Option<(TcpStream, Inbox)>,
    ) -> io::Result<()> {
        let nodes = write.targets.len() + 1;
        for number in 0.. {
            let decode = |reader: &mut Reader<'_>| {
                PacketHeader::decode(reader, VERSION, write.sums, MAX_PACKET)
            };
            let Next::Packet(header) = inbox.decode(stream, decode).await? else {
                return Err(io::Error::other("an end without a last packet"));
            };
            if header.layout != Layout::SumsFirst {
                return Err(io::Error::other("a client writes checksums first"));
            }
            let mut payload = inbox.take(stream, header.payload).await?;
            let is_last = header.is_last();
            if is_last && inbox.decode(stream, |reader| reader.i32()).await? != 0 {
                return Err(io::Error::other("no end behind the last packet"));
            }
            let faults = self.faults();
            if faults.is_dead || faults.die_at_packet == Some(number) {
                return Ok(());
            }
            if faults.is_stuck {
                return std::future::pending().await;
            }
            let mut ack = Ack { seqno: header.seqno, bad: None };
            if let Some((next, from_next)) = &mut next {
                next.write_all(&header.bytes()).await?;
                next.write_all(&payload).await?;
                if is_last {
                    next.write_all(&[0; 4]).await?;
                }
                let behind = from_next.decode(next, |reader| Ack::decode(reader, nodes - 1)).await;
                ack.bad = match behind {
                    Ok(behind) => behind.bad.map(|bad| bad + 1),
                    Err(_) => Some(1),
                };
            }
            if header.seqno == HEARTBEAT {
                self.lock().heartbeats += 1;
            } else {
                let data = verify(&header, write.sums, &mut payload)
                    .map_err(|wrong| io::Error::other(format!("{wrong:?}")))?;
                let mut state = self.lock();
                let replica = state.replicas.entry(write.block).or_default();
                // Gaps and holes end the connection. Spec: hdfs/01 §1.6.2.
                if header.offset as usize != replica.bytes.len() {
                    return Err(io::Error::other("a gap"));
                }
                replica.bytes.extend_from_slice(&payload[data]);
                if is_last {
                    replica.is_final = true;
                    let bytes = replica.bytes.len() as i64;
                    drop(state);
                    if !faults.is_silent {
                        self.name_node.received(write.block, self.number, bytes);
                    }
                }
            }
            if faults.refuse_packet == Some(number) {
                ack.bad = Some(0);
            }
            stream.write_all(&ack.bytes(nodes)).await?;
            if is_last || ack.bad.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl ClientDatanode for DataNode {
    async fn get_block_info(
        &self,
        _caller: &Caller,
        namespace: i32,
        block: Block,
    ) -> Result<Option<Block>, Fault> {
        if namespace != NAMESPACE {
            return Err(Fault::io("another namespace"));
        }
        let state = self.lock();
        let replica = state.replicas.get(&block.id);
        Ok(replica.map(|replica| Block { bytes: replica.bytes.len() as i64, ..block }))
    }
}

async fn accept(listener: TcpListener, node: Arc<DataNode>) {
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let node = node.clone();
        serving.spawn(async move {
            if let Err(error) = node.serve(stream).await {
                tracing::debug!(%error, "a connection to a data node of a test ended");
            }
        });
        while serving.try_join_next().is_some() {}
    }
}

fn bytes(object: &impl Writable) -> Vec<u8> {
    to_bytes(object, 1 << 20).unwrap_or_default()
}

fn text(text: &str) -> Vec<u8> {
    let mut writer = corona_hadoop::io::Writer::new(1 << 16);
    writer.text(text);
    writer.finish().unwrap_or_default()
}

/// What has arrived and is not looked at.
#[derive(Debug, Default)]
struct Inbox(Vec<u8>);

impl Inbox {
    async fn decode<T>(
        &mut self,
        stream: &mut TcpStream,
        decode: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> io::Result<T> {
        loop {
            let mut reader = Reader::partial(&self.0, MAX_PACKET);
            match decode(&mut reader) {
                Ok(value) => {
                    let read = reader.position();
                    self.0.drain(..read);
                    return Ok(value);
                }
                Err(DecodeError::Truncated) => self.more(stream).await?,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    async fn take(&mut self, stream: &mut TcpStream, bytes: usize) -> io::Result<Vec<u8>> {
        while self.0.len() < bytes {
            self.more(stream).await?;
        }
        Ok(self.0.drain(..bytes).collect())
    }

    async fn more(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        match stream.read_buf(&mut self.0).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
