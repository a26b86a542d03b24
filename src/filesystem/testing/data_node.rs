//! A data node of the small cluster.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::{NAMESPACE, NameNode};
use crate::hdfs::transfer::{
    Ack, HEADER_BYTES, HEARTBEAT, Layout, Next, PacketHeader, ReadAnswer, ReadEnd, ReadReply,
    ReadRequest, Request, SUM_BYTES, SumKind, Sums, VERSION, WriteRequest, request_bytes, verify,
};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::protocols::client_datanode::{ClientDatanode, Served};
use corona_hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona_hadoop::writables::{Block, DatanodeAdminState, DatanodeInfo, LocatedBlock, to_bytes};

/// The most bytes of a packet.
const MAX_PACKET: usize = 4 << 20;
/// Bytes that are sent and received in one step, where there are so many.
const SENT_TOGETHER: usize = 128 << 10;
/// Packets that were received and are not acknowledged.
const MAX_UNACKNOWLEDGED: usize = 1024;

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
    /// Readers get packets without data, and no end.
    pub sends_nothing: bool,
    /// A writer's connection is closed before this packet is acknowledged.
    pub die_at_packet: Option<usize>,
    /// This packet is answered with a failure.
    pub refuse_packet: Option<usize>,
    /// The last packet is acknowledged, and the name node never hears of the block.
    pub is_silent: bool,
    /// It cannot recover a block, though it does everything else.
    pub recovers_nothing: bool,
    /// Blocks that it had before are not found.
    pub refuses_old: bool,
}

/// A data node that keeps blocks in memory.
#[derive(Debug)]
pub struct DataNode {
    number: usize,
    port: u16,
    ipc_port: u16,
    name_node: Arc<NameNode>,
    state: Mutex<DataNodeState>,
}

#[derive(Debug)]
struct DataNodeState {
    replicas: HashMap<i64, Replica>,
    /// Memory of replicas that were deleted.
    spare: Vec<Vec<u8>>,
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
    refused_recoveries: usize,
    peers: Vec<Weak<DataNode>>,
}

#[derive(Debug, Default)]
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
        let state = DataNodeState {
            replicas: HashMap::new(),
            spare: Vec::new(),
            faults: Faults::default(),
            layout: if number.is_multiple_of(2) { Layout::Inline } else { Layout::SumsFirst },
            packet: if number.is_multiple_of(2) { 4096 } else { 65_536 },
            sums: Sums { kind: SumKind::Crc32, covered: 512 },
            reads: 0,
            writes: 0,
            heartbeats: 0,
            verified: 0,
            refused_recoveries: 0,
            peers: Vec::new(),
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

    fn lock(&self) -> MutexGuard<'_, DataNodeState> {
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

    /// Recoveries of blocks that it refused.
    pub fn refused_recoveries(&self) -> usize {
        self.lock().refused_recoveries
    }

    /// The bytes of a replica; none if there is none.
    pub fn replica(&self, block: i64) -> Option<Vec<u8>> {
        self.lock().replicas.get(&block).map(|replica| replica.bytes.clone())
    }

    /// Deletes all replicas. Their memory is used again, so that a benchmark of a client does not
    /// measure how it is had.
    pub fn forget_replicas(&self) {
        let mut state = self.lock();
        let replicas = std::mem::take(&mut state.replicas).into_values();
        state.spare.extend(replicas.map(|replica| replica.bytes));
        state.spare.iter_mut().for_each(Vec::clear);
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
        let (faults, layout, packet, sums) = {
            let mut state = self.lock();
            state.reads += 1;
            (state.faults, state.layout, state.packet, state.sums)
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
        let found = self.lock().replicas.get(&read.block).filter(|replica| is_there(replica)).map(
            |replica| ReadEnd { finalized: replica.is_final, visible: replica.bytes.len() as i64 },
        );
        let Some(last) = found else {
            return stream.write_all(&bytes(&ReadAnswer::Status(1))).await;
        };
        let whole = last.visible as usize;
        let first = read.offset as usize / sums.covered * sums.covered;
        let until = (end as usize).next_multiple_of(sums.covered).min(whole);
        let reply = ReadReply { sums, first_chunk: first as i64 };
        let mut answer = bytes(&ReadAnswer::Packets(reply));
        let (mut at, mut seqno, mut left) = (first, 0, faults.close_after.unwrap_or(usize::MAX));
        while at < until {
            let length = packet.next_multiple_of(sums.covered).min(until - at);
            let length = if faults.sends_nothing { 0 } else { length };
            let header = PacketHeader {
                payload: 0,
                layout,
                offset: at as i64,
                seqno,
                flags: u8::from(at + length == until),
                data: length,
            };
            self.add_packet(&mut answer, read.block, header, sums, faults.corrupt);
            (at, seqno) = (at + length, seqno + 1);
            // Several small packets at a time.
            let is_enough = answer.len() >= SENT_TOGETHER || faults.sends_nothing;
            if is_enough && !send(stream, &mut answer, &mut left).await? {
                return Ok(());
            }
        }
        answer.extend([0; 4]);
        answer.extend(bytes(&last));
        if send(stream, &mut answer, &mut left).await?
            && inbox.decode(stream, |reader| reader.i16()).await? == 5
        {
            self.lock().verified += 1;
        }
        Ok(())
    }

    /// Adds a packet with bytes of a replica, of which one may be made another one.
    fn add_packet(
        &self,
        answer: &mut Vec<u8>,
        block: i64,
        header: PacketHeader,
        sums: Sums,
        corrupt: Option<usize>,
    ) {
        let state = self.lock();
        let from = header.offset as usize;
        let replica = state.replicas.get(&block);
        let clean = replica.and_then(|replica| replica.bytes.get(from..from + header.data));
        let clean = clean.unwrap_or_default();
        let start = answer.len();
        let payload = header.data + SUM_BYTES * sums.count(from as u64, header.data);
        answer.extend(PacketHeader { payload, ..header }.bytes());
        let sum = |chunk: &[u8]| sums.kind.sum(chunk).map(u32::to_be_bytes).into_iter().flatten();
        let chunks = clean.chunks(sums.covered);
        let flipped = corrupt.and_then(|at| at.checked_sub(from)).filter(|at| *at < header.data);
        let place = match (header.layout, sums.kind) {
            (Layout::Inline, _) => {
                for chunk in chunks {
                    answer.extend_from_slice(chunk);
                    answer.extend(sum(chunk));
                }
                let behind = payload - header.data;
                flipped.map(|at| at + if behind > 0 { at / sums.covered * SUM_BYTES } else { 0 })
            }
            (Layout::SumsFirst, _) => {
                answer.extend(chunks.flat_map(sum));
                answer.extend_from_slice(clean);
                flipped.map(|at| at + payload - header.data)
            }
        };
        if let Some(byte) = place.and_then(|at| answer.get_mut(start + HEADER_BYTES + at)) {
            *byte ^= 1;
        }
    }

    async fn write(
        &self,
        stream: &mut TcpStream,
        inbox: &mut Inbox,
        write: WriteRequest,
    ) -> io::Result<()> {
        self.lock().writes += 1;
        let is_wrong = write.namespace != NAMESPACE
            || write.client.is_empty()
            || write.depth as usize != write.targets.len() + 1;
        if is_wrong || !self.may_write(&write) {
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
        self.receive(stream, inbox, &write, next).await
    }

    /// Whether there is such a replica, if there should be one, which gets the new generation.
    fn may_write(&self, write: &WriteRequest) -> bool {
        let mut state = self.lock();
        let is_refused = state.faults.refuses_old;
        if write.appended_at.is_none() && !write.recovery {
            let bytes = state.spare.pop().unwrap_or_default();
            let replica = Replica { generation: write.generation, bytes, is_final: false };
            return state.replicas.insert(write.block, replica).is_none();
        }
        let replica = state.replicas.get_mut(&write.block);
        match (replica, write.appended_at) {
            // A block that is appended to has the length that the client received. It need not be
            // final: the name node of a test closes files without asking data nodes.
            (Some(replica), Some(bytes)) => {
                let is_it =
                    replica.bytes.len() as i64 == bytes && replica.generation < write.generation;
                if is_it && !is_refused {
                    (replica.generation, replica.is_final) = (write.generation, false);
                }
                is_it && !is_refused
            }
            (Some(replica), None) => replica.generation == write.generation && !is_refused,
            (None, _) => false,
        }
    }

    /// A replica that is to be recovered: its length, if it is not of an earlier generation.
    fn recoverable(&self, block: Block) -> Option<i64> {
        let state = self.lock();
        let replica = state.replicas.get(&block.id).filter(|_| !state.faults.is_dead)?;
        (replica.generation >= block.generation).then_some(replica.bytes.len() as i64)
    }

    fn truncate(&self, block: Block) {
        if let Some(replica) = self.lock().replicas.get_mut(&block.id) {
            replica.bytes.truncate(usize::try_from(block.bytes).unwrap_or(0));
            (replica.generation, replica.is_final) = (block.generation, false);
        }
    }

    /// Who else there is.
    pub(super) fn set_peers(&self, peers: Vec<Weak<DataNode>>) {
        self.lock().peers = peers;
    }

    async fn receive(
        &self,
        stream: &mut TcpStream,
        inbox: &mut Inbox,
        write: &WriteRequest,
        mut next: Option<(TcpStream, Inbox)>,
    ) -> io::Result<()> {
        let nodes = write.targets.len() + 1;
        let (mut from, to) = stream.split();
        let (mut to_next, from_next) = match &mut next {
            Some((next, inbox)) => {
                let (from, to) = next.split();
                (Some(to), Some((from, inbox)))
            }
            None => (None, None),
        };
        let (acks, due) = mpsc::channel(MAX_UNACKNOWLEDGED);
        let receiving = async {
            for number in 0.. {
                let packet = inbox.packet(&mut from, write.sums).await?;
                let (header, is_last) = (packet.header, packet.header.is_last());
                let faults = self.faults();
                if faults.is_dead || faults.die_at_packet == Some(number) {
                    return Err(io::Error::other("it dies"));
                }
                if faults.is_stuck {
                    return std::future::pending().await;
                }
                if let Some(next) = &mut to_next {
                    // That it has failed is what its acknowledgement says.
                    let _ = next.write_all(inbox.bytes(&packet)).await;
                }
                self.store(write, &packet, inbox, faults)?;
                inbox.take(&packet);
                let is_refused = faults.refuse_packet == Some(number);
                let sent = acks.send((header.seqno, is_refused, is_last)).await;
                if is_last || is_refused || sent.is_err() {
                    break;
                }
            }
            // The connection stays open until all is acknowledged.
            Ok(())
        };
        tokio::try_join!(receiving, acknowledge(to, from_next, due, nodes)).map(drop)
    }

    /// Keeps the bytes of a packet.
    fn store(
        &self,
        write: &WriteRequest,
        packet: &Packet,
        inbox: &mut Inbox,
        faults: Faults,
    ) -> io::Result<()> {
        let header = packet.header;
        let mut state = self.lock();
        if header.seqno == HEARTBEAT {
            state.heartbeats += 1;
            return Ok(());
        }
        let payload = inbox.payload(packet);
        let data = verify(&header, write.sums, payload)
            .map_err(|wrong| io::Error::other(format!("{wrong:?}")))?;
        let replica = state.replicas.entry(write.block).or_default();
        if replica.generation != write.generation {
            return Err(io::Error::other("somebody else writes the block by now"));
        }
        // Gaps and holes end the connection. Spec: hdfs/01 §1.6.2.
        if header.offset as usize != replica.bytes.len() {
            return Err(io::Error::other("a gap"));
        }
        replica.bytes.extend_from_slice(payload.get(data).unwrap_or_default());
        let stored = replica.bytes.len() as i64;
        replica.is_final = header.is_last();
        drop(state);
        self.name_node.stored(write.block, stored);
        if header.is_last() && !faults.is_silent {
            self.name_node.received(write.block, self.number, stored);
        }
        Ok(())
    }
}

/// Acknowledges packets in their order, each when the nodes behind have.
async fn acknowledge(
    mut to: WriteHalf<'_>,
    mut next: Option<(ReadHalf<'_>, &mut Inbox)>,
    mut due: mpsc::Receiver<(i64, bool, bool)>,
    nodes: usize,
) -> io::Result<()> {
    while let Some((seqno, is_refused, is_last)) = due.recv().await {
        let mut ack = Ack { seqno, bad: None };
        if let Some((from_next, inbox)) = &mut next {
            let behind = inbox.decode(from_next, |reader| Ack::decode(reader, nodes - 1)).await;
            ack.bad = match behind {
                Ok(behind) => behind.bad.map(|bad| bad + 1),
                Err(_) => Some(1),
            };
        }
        if is_refused {
            ack.bad = Some(0);
        }
        to.write_all(&ack.bytes(nodes)).await?;
        if ack.bad.is_some() {
            return Err(io::Error::other("a node of the pipeline has failed"));
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Sends what is there, up to so many bytes in all. False: that was the last.
async fn send(stream: &mut TcpStream, bytes: &mut Vec<u8>, left: &mut usize) -> io::Result<bool> {
    let sent = bytes.len().min(*left);
    stream.write_all(bytes.get(..sent).unwrap_or_default()).await?;
    *left -= sent;
    let is_all = sent == bytes.len();
    bytes.clear();
    Ok(is_all)
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

    /// As in the original: the shortest replica among those that are not of an earlier generation
    /// says how long all of them are.
    async fn recover_block(
        &self,
        _caller: &Caller,
        namespace: i32,
        block: Block,
        _keep_length: bool,
        nodes: Vec<DatanodeInfo>,
    ) -> Result<Option<LocatedBlock>, Fault> {
        let faults = self.faults();
        if namespace != NAMESPACE || faults.recovers_nothing || faults.is_dead {
            self.lock().refused_recoveries += 1;
            return Err(Fault::io(format!("Cannot recover {block:?}")));
        }
        if faults.is_stuck {
            return std::future::pending().await;
        }
        let peers: Vec<_> = self.lock().peers.iter().filter_map(Weak::upgrade).collect();
        let is_asked = |peer: &&Arc<DataNode>| {
            let name = peer.info().name;
            nodes.iter().any(|node| node.name == name)
        };
        let found = peers.iter().filter(is_asked);
        let found: Vec<_> =
            found.filter_map(|peer| Some((peer, peer.recoverable(block)?))).collect();
        let Some(bytes) = found.iter().map(|(_, bytes)| *bytes).min() else { return Ok(None) };
        let generation = self.name_node.next_generation(block.id)?;
        let block = Block { bytes, generation, ..block };
        found.iter().for_each(|(peer, _)| peer.truncate(block));
        let locations: Vec<_> = found.iter().map(|(peer, _)| peer.info()).collect();
        self.name_node.synchronised(block, &locations)?;
        Ok(Some(LocatedBlock { corrupt: false, offset: 0, block, locations }))
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

/// What has arrived, and from where on it was not looked at.
#[derive(Debug, Default)]
struct Inbox {
    arrived: Vec<u8>,
    next: usize,
}

/// A packet that lies in the inbox, with the end mark behind the last one of a block.
struct Packet {
    header: PacketHeader,
    start: usize,
    payload: usize,
    end: usize,
}

impl Inbox {
    async fn decode<T>(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        decode: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> io::Result<T> {
        loop {
            let mut reader = Reader::partial(self.waiting(), MAX_PACKET);
            match decode(&mut reader) {
                Ok(value) => {
                    self.next += reader.position();
                    return Ok(value);
                }
                Err(DecodeError::Truncated) => self.more(stream).await?,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn waiting(&self) -> &[u8] {
        self.arrived.get(self.next..).unwrap_or_default()
    }

    /// Waits for a whole packet, which stays in the inbox until it is taken.
    async fn packet(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        sums: Sums,
    ) -> io::Result<Packet> {
        let (header, head) = loop {
            let mut reader = Reader::partial(self.waiting(), MAX_PACKET);
            match PacketHeader::decode(&mut reader, VERSION, sums, MAX_PACKET) {
                Ok(Next::Packet(header)) => break (header, reader.position()),
                Ok(Next::End) => return Err(io::Error::other("an end without a last packet")),
                Err(DecodeError::Truncated) => self.more(stream).await?,
                Err(error) => return Err(io::Error::other(error)),
            }
        };
        if header.layout != Layout::SumsFirst {
            return Err(io::Error::other("a client writes checksums first"));
        }
        let mark = if header.is_last() { 4 } else { 0 };
        while self.waiting().len() < head + header.payload + mark {
            self.more(stream).await?;
        }
        let (start, payload) = (self.next, self.next + head);
        let end = payload + header.payload + mark;
        if self.arrived.get(end - mark..end).unwrap_or_default().iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("no end behind the last packet"));
        }
        Ok(Packet { header, start, payload, end })
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        self.arrived.get(packet.start..packet.end).unwrap_or_default()
    }

    fn payload(&mut self, packet: &Packet) -> &mut [u8] {
        let end = packet.payload + packet.header.payload;
        self.arrived.get_mut(packet.payload..end).unwrap_or_default()
    }

    fn take(&mut self, packet: &Packet) {
        self.next = packet.end;
    }

    async fn more(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        self.arrived.drain(..self.next);
        self.next = 0;
        self.arrived.reserve(SENT_TOGETHER);
        match stream.read_buf(&mut self.arrived).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
