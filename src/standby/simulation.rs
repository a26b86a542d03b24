//! Two instances, a coordination service and clients in virtual time, with everything that goes wrong:
//! crashes at any moment, power cuts with torn journals, stopped processes, clocks of other speeds,
//! partitions from the service and from each other, slow and broken replication. Seeded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Ack, Copy, Effect, Input, Machine, Role, Settings, Succession};
use corona_model::types::Millis;

const TIMEOUT_MS: i64 = 4000;
const SLOTS: usize = 8;
/// How long a sync to the disk takes.
const SYNC_MS: i64 = 5;

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most.unsigned_abs()) as i64
    }
}

/// A decision in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    epoch: u64,
    call: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Grant(usize),
    Free(usize),
}

/// The state that a journal leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Registry {
    slots: [Option<u64>; SLOTS],
    done: BTreeMap<u64, What>,
}

impl Registry {
    fn of(records: &[Record]) -> Registry {
        let mut registry = Registry::default();
        for record in records {
            let decided = match record.what {
                What::Grant(_) => registry.decide_grant(),
                free => Some(free),
            };
            assert_eq!(decided, Some(record.what), "one that never crashed decides the same");
            registry.apply(record);
        }
        registry
    }

    fn decide_grant(&self) -> Option<What> {
        self.slots.iter().position(Option::is_none).map(What::Grant)
    }

    fn apply(&mut self, record: &Record) {
        match record.what {
            What::Grant(slot) => {
                assert_eq!(self.slots[slot], None, "a slot is granted twice");
                self.slots[slot] = Some(record.call);
            }
            What::Free(slot) => self.slots[slot] = None,
        }
        self.done.insert(record.call, record.what);
    }
}

/// What a client asks for. It asks again until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Slot,
    Free(usize),
}

/// A request to the service, or its reply.
#[derive(Clone, Debug)]
enum Ask {
    Look,
    Campaign(Option<i32>, Succession),
    Confirm,
    Write(i32, Succession),
}

#[derive(Clone, Debug)]
enum Event {
    Beat,
    Look,
    Tick,
    /// The records up to this one are durable, in this copy of the journal.
    Synced(u64, u64),
    Heard(Input),
    Leave {
        call: u64,
        what: What,
        epoch: u64,
    },
    /// On the connection of this number, if that is still open.
    Copied(u64, Message),
}

#[derive(Clone, Debug)]
enum Message {
    /// To the standby: its copy is about to be replaced.
    Begin,
    All(Vec<Record>),
    One(u64, Record),
    /// To the leader.
    Stored(u64),
    Broken,
}

#[derive(Clone, Debug)]
enum Due {
    /// Something reaches a process, if that still runs.
    At(usize, u64, Event),
    Service(usize, u64, u64, Ask, Millis),
    Connect,
    Client,
    Trouble,
    Start(usize),
}

#[derive(Debug, Default)]
struct Disk {
    records: Vec<Record>,
    durable: usize,
    /// Which copy of a journal it is.
    copy: u64,
}

#[derive(Debug)]
struct Process {
    machine: Machine,
    session: u64,
    copy: Copy,
    registry: Registry,
    epoch: u64,
    /// Calls that wait for their record to be released.
    waiting: BTreeMap<u64, (u64, What)>,
    released: u64,
}

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    disk: Disk,
    process: Option<Process>,
    /// Which of its processes runs; events of earlier ones are dropped.
    life: u64,
    stopped_until: i64,
    cut_off_until: i64,
    clock: (i64, i64),
}

#[derive(Debug, Default)]
struct Service {
    sessions: BTreeMap<u64, i64>,
    leader: Option<(u64, Arc<str>)>,
    succession: Option<(i32, Succession)>,
}

/// What clients know.
#[derive(Debug, Default)]
struct Ledger {
    open: BTreeMap<u64, Wish>,
    held: BTreeMap<usize, u64>,
    answered: BTreeMap<u64, What>,
    /// The leadership of the last reply.
    epoch: u64,
}

struct World {
    numbers: Numbers,
    now: i64,
    queue: BTreeMap<(i64, u64), Due>,
    sequence: u64,
    ack: Ack,
    always: bool,
    nodes: Vec<Node>,
    service: Service,
    ledger: Ledger,
    /// The connection of a standby to its leader: its number, the leader, and when the last message of
    /// each direction arrives.
    connection: Option<(u64, usize, [i64; 2])>,
    parted_until: i64,
    leaders: u64,
}

impl World {
    fn new(seed: u64, ack: Ack, always: bool) -> World {
        let mut numbers = Numbers(seed);
        let nodes = ["a", "b"].map(|name| Node {
            name: name.into(),
            disk: Disk::default(),
            process: None,
            life: 0,
            stopped_until: 0,
            cut_off_until: 0,
            clock: (numbers.below(1_000_000), 900 + numbers.below(200)),
        });
        let mut world = World {
            numbers,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            ack,
            always,
            nodes: nodes.into(),
            service: Service::default(),
            ledger: Ledger::default(),
            connection: None,
            parted_until: 0,
            leaders: 0,
        };
        for due in [Due::Start(0), Due::Start(1), Due::Connect, Due::Client, Due::Trouble] {
            world.after(0, due);
        }
        world
    }

    fn after(&mut self, ms: i64, due: Due) {
        self.sequence += 1;
        self.queue.insert((self.now + ms, self.sequence), due);
    }

    fn latency(&mut self) -> i64 {
        match self.numbers.below(20) {
            0 => self.numbers.below(400),
            _ => self.numbers.below(10),
        }
    }

    fn local(&self, node: usize) -> Millis {
        let (offset, speed) = self.nodes[node].clock;
        Millis(offset + self.now * speed / 1000)
    }

    fn run(&mut self, until: i64) {
        while let Some(((at, _), due)) = self.queue.pop_first() {
            if at > until {
                return;
            }
            self.now = at;
            self.step(due);
        }
    }

    fn step(&mut self, due: Due) {
        match due {
            Due::Start(node) => self.start(node),
            Due::At(node, life, event) => {
                let Node { life: current, stopped_until, process, .. } = &self.nodes[node];
                if *current != life || process.is_none() {
                    return;
                }
                let wait = stopped_until - self.now;
                if wait > 0 {
                    self.after(wait, Due::At(node, life, event));
                } else {
                    self.happen(node, life, event);
                }
            }
            Due::Service(node, life, session, ask, sent) => {
                self.serve(node, life, session, ask, sent);
            }
            Due::Connect => self.connect(),
            Due::Client => self.client(),
            Due::Trouble => self.trouble(),
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        self.sequence += 1;
        let session = self.sequence;
        self.service.sessions.insert(session, self.now);
        let Node { name, disk, life, process, .. } = &mut self.nodes[node];
        let settings = Settings {
            me: name.clone(),
            session_timeout_ms: TIMEOUT_MS,
            ack: self.ack,
            ack_timeout_ms: 1000,
        };
        *life += 1;
        disk.durable = disk.records.len();
        let registry = Registry::of(&disk.records);
        *process = Some(Process {
            machine: Machine::new(settings),
            session,
            copy: Copy::Disk,
            registry,
            epoch: 0,
            waiting: BTreeMap::new(),
            released: 0,
        });
        let life = *life;
        self.after(0, Due::At(node, life, Event::Look));
        self.after(1, Due::At(node, life, Event::Beat));
    }

    fn end(&mut self, node: usize) {
        self.nodes[node].process = None;
        self.nodes[node].stopped_until = 0;
        self.disconnect();
        let pause = 50 + self.numbers.below(3 * TIMEOUT_MS);
        self.after(pause, Due::Start(node));
    }

    fn happen(&mut self, node: usize, life: u64, event: Event) {
        match event {
            Event::Beat => {
                let Some(process) = &self.nodes[node].process else { return };
                if process.machine.role() == Role::Leader {
                    self.ask(node, Ask::Confirm);
                }
                self.after(TIMEOUT_MS / 6, Due::At(node, life, Event::Beat));
            }
            Event::Look => {
                self.ask(node, Ask::Look);
                self.after(200, Due::At(node, life, Event::Look));
            }
            Event::Tick => self.apply(node, Input::Tick),
            Event::Synced(copy, number) => {
                let disk = &mut self.nodes[node].disk;
                if disk.copy != copy {
                    return;
                }
                disk.durable = disk.durable.max((number as usize).min(disk.records.len()));
                if self.always {
                    self.stored(node, number);
                }
            }
            Event::Heard(input) => self.apply(node, input),
            Event::Leave { call, what, epoch } => self.leave(node, call, what, epoch),
            Event::Copied(number, message) => {
                let current = self.connection.as_ref().map(|(number, ..)| *number);
                if matches!(message, Message::Broken) || current == Some(number) {
                    self.copied(node, life, message);
                }
            }
        }
    }

    fn apply(&mut self, node: usize, input: Input) {
        let now = self.local(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        let effects = process.machine.apply(now, input);
        let deadline = process.machine.next_deadline();
        for effect in effects {
            self.carry_out(node, effect);
        }
        if let Some(deadline) = deadline {
            let wait = (deadline.since(now) * 1000 / self.nodes[node].clock.1).max(0) + 1;
            let life = self.nodes[node].life;
            self.after(wait, Due::At(node, life, Event::Tick));
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Campaign { version, succession } => {
                self.ask(node, Ask::Campaign(version, succession));
            }
            Effect::Write { version, succession } => {
                self.ask(node, Ask::Write(version, succession))
            }
            Effect::Lead { epoch } => {
                self.leaders += 1;
                let disk = &self.nodes[node].disk;
                let registry = Registry::of(&disk.records);
                if self.ack == Ack::Standby {
                    for (call, what) in &self.ledger.answered {
                        assert_eq!(registry.done.get(call), Some(what), "acknowledged, and lost");
                    }
                }
                // What it has copied may not be durable yet.
                let number = if self.always { disk.durable } else { disk.records.len() } as u64;
                if let Some(process) = &mut self.nodes[node].process {
                    process.registry = registry;
                    process.epoch = epoch;
                }
                self.apply(node, Input::Committed { number });
            }
            Effect::Release { number } => self.release(node, number),
            Effect::Drop { .. } => self.disconnect(),
            // The process begins anew.
            Effect::Fence { .. } => self.end(node),
        }
    }

    /// Sends a request to the service.
    fn ask(&mut self, node: usize, ask: Ask) {
        let sent = self.local(node);
        let Node { process, life, cut_off_until, .. } = &self.nodes[node];
        let Some(process) = process else { return };
        let (session, life, cut_off) = (process.session, *life, *cut_off_until > self.now);
        if !cut_off {
            let latency = self.latency();
            self.after(latency, Due::Service(node, life, session, ask, sent));
        } else if matches!(ask, Ask::Campaign(..)) {
            self.after(100, Due::At(node, life, Event::Heard(Input::NotWon)));
        } else if matches!(ask, Ask::Write(..)) {
            // It is repeated until it succeeds or the lease is over.
            let again = (self.nodes[node].cut_off_until - self.now).max(0) + 1;
            self.after(again, Due::Service(node, life, session, ask, sent));
        }
    }

    fn serve(&mut self, node: usize, life: u64, session: u64, ask: Ask, sent: Millis) {
        let now = self.now;
        self.service.sessions.retain(|_, heard| now - *heard < TIMEOUT_MS);
        let Service { sessions, leader, succession } = &mut self.service;
        if leader.as_ref().is_some_and(|(session, _)| !sessions.contains_key(session)) {
            *leader = None;
        }
        let Some(heard) = sessions.get_mut(&session) else {
            let lost = Due::At(node, life, Event::Heard(Input::SessionLost));
            if let Some(process) = &mut self.nodes[node].process
                && process.machine.role() == Role::Standby
            {
                self.sequence += 1;
                process.session = self.sequence;
                self.service.sessions.insert(self.sequence, now);
            }
            self.after(1, lost);
            return;
        };
        *heard = now;
        let is_current = |version: Option<i32>, known: &Option<(i32, Succession)>| {
            version == known.as_ref().map(|(version, _)| *version)
        };
        let input = match ask {
            Ask::Look => {
                let Some(process) = &self.nodes[node].process else { return };
                let copy = process.copy;
                Input::Seen { is_led: leader.is_some(), succession: succession.clone(), copy }
            }
            Ask::Campaign(version, new) => {
                if leader.is_none() && is_current(version, succession) {
                    let version = version.map_or(0, |version| version + 1);
                    *leader = Some((session, self.nodes[node].name.clone()));
                    *succession = Some((version, new));
                    Input::Won { sent, version }
                } else {
                    Input::NotWon
                }
            }
            Ask::Confirm => match leader {
                Some((own, _)) if *own == session => Input::Confirmed { sent },
                _ => Input::SessionLost,
            },
            Ask::Write(version, new) => {
                if is_current(Some(version), succession) {
                    *succession = Some((version + 1, new));
                    Input::Written { version: version + 1 }
                } else {
                    Input::NotWritten
                }
            }
        };
        let latency = self.latency();
        self.after(latency, Due::At(node, life, Event::Heard(input)));
    }

    /// This node's own journal has the records up to this one.
    fn stored(&mut self, node: usize, number: u64) {
        let Some(process) = &self.nodes[node].process else { return };
        match process.machine.role() {
            Role::Leader => {
                self.apply(node, Input::Committed { number });
                // It is sent on once it is committed.
                let record = self.nodes[node].disk.records.get(number as usize - 1).copied();
                if let Some(record) = record {
                    self.send(node, Message::One(number, record));
                }
            }
            Role::Standby => self.send(node, Message::Stored(number)),
            Role::Fenced => {}
        }
    }

    fn append(&mut self, node: usize, record: Record) -> u64 {
        let Node { disk, life, .. } = &mut self.nodes[node];
        disk.records.push(record);
        let (number, life) = (disk.records.len() as u64, *life);
        let (sync, copy) = (if self.always { SYNC_MS } else { 100 }, disk.copy);
        self.after(sync, Due::At(node, life, Event::Synced(copy, number)));
        if !self.always {
            self.stored(node, number);
        }
        number
    }

    fn release(&mut self, node: usize, number: u64) {
        let Node { process, life, .. } = &mut self.nodes[node];
        let (Some(process), life) = (process, *life) else { return };
        process.released = process.released.max(number);
        let later = process.waiting.split_off(&(number + 1));
        let (now, epoch) = (std::mem::replace(&mut process.waiting, later), process.epoch);
        for (call, what) in now.into_values() {
            let pause = self.numbers.below(2);
            self.after(pause, Due::At(node, life, Event::Leave { call, what, epoch }));
        }
    }

    /// A reply passes the check of the lease, and leaves.
    fn leave(&mut self, node: usize, call: u64, what: What, epoch: u64) {
        let now = self.local(node);
        let Some(process) = &self.nodes[node].process else { return };
        if process.machine.lease_until().is_none_or(|until| now >= until) {
            return;
        }
        let ledger = &mut self.ledger;
        assert!(ledger.epoch <= epoch, "{}: notified by two leaders", self.now);
        ledger.epoch = epoch;
        let Some(wish) = ledger.open.remove(&call) else { return };
        {
            match (wish, what) {
                (Wish::Slot, What::Grant(slot)) => {
                    let other = ledger.held.insert(slot, call);
                    // Without acknowledgements a grant may be lost with its leader.
                    let may_be = other.is_none() || self.ack == Ack::None;
                    assert!(may_be, "slot {slot} is granted twice");
                }
                (Wish::Free(_), What::Free(_)) => {}
                _ => panic!("another reply: {wish:?} {what:?}"),
            }
        }
        ledger.answered.insert(call, what);
    }

    /// Clients call every instance that believes to lead.
    fn client(&mut self) {
        let pause = 5 + self.numbers.below(30);
        self.after(pause, Due::Client);
        if self.ledger.open.len() < 6 {
            let held: Vec<usize> = self.ledger.held.keys().copied().collect();
            // Most slots are in use most of the time, and never all clients wait for one.
            let wishes_slots = self.ledger.open.values().filter(|wish| **wish == Wish::Slot);
            let wish = match self.numbers.below(2) {
                below if !held.is_empty() && (below == 1 || wishes_slots.count() > 3) => {
                    let slot = held[self.numbers.below(held.len() as i64) as usize];
                    // From here on it may be granted to others.
                    self.ledger.held.remove(&slot);
                    Wish::Free(slot)
                }
                _ => Wish::Slot,
            };
            self.sequence += 1;
            self.ledger.open.insert(self.sequence, wish);
        }
        let open: Vec<(u64, Wish)> = self.ledger.open.iter().map(|(c, w)| (*c, *w)).collect();
        let Some((call, wish)) = open.get(self.numbers.below(8) as usize).copied() else { return };
        for node in 0..self.nodes.len() {
            self.call(node, call, wish);
        }
    }

    fn call(&mut self, node: usize, call: u64, wish: Wish) {
        let Node { process, stopped_until, disk, life, .. } = &self.nodes[node];
        let Some(process) = process else { return };
        if process.machine.role() != Role::Leader || *stopped_until > self.now {
            return;
        }
        let (epoch, life, last) = (process.epoch, *life, disk.records.len() as u64);
        if let Some(what) = process.registry.done.get(&call).copied() {
            // The same call again. What the reply says must be released as well.
            if process.released >= last {
                self.after(0, Due::At(node, life, Event::Leave { call, what, epoch }));
            }
            return;
        }
        let what = match wish {
            Wish::Slot => process.registry.decide_grant(),
            Wish::Free(slot) => Some(What::Free(slot)),
        };
        let Some(what) = what else { return };
        let record = Record { epoch, call, what };
        let number = last + 1;
        if let Some(process) = &mut self.nodes[node].process {
            process.registry.apply(&record);
            process.waiting.insert(number, (call, what));
        }
        assert_eq!(self.append(node, record), number);
    }

    /// A standby connects to the leader that the service shows.
    fn connect(&mut self) {
        self.after(100, Due::Connect);
        if self.connection.is_some() || self.parted_until > self.now {
            return;
        }
        let Some((_, name)) = self.service.leader.clone() else { return };
        let Some(leader) = self.nodes.iter().position(|node| node.name == name) else { return };
        let standby = 1 - leader;
        let of = |node: usize| self.nodes[node].process.as_ref();
        let (Some(leading), Some(following)) = (of(leader), of(standby)) else { return };
        let is_stopped = self.nodes[leader].stopped_until > self.now;
        if leading.machine.role() != Role::Leader
            || following.machine.role() != Role::Standby
            || is_stopped
            // Its copy is replaced, so it must not lead from now on.
            || leading.machine.may_lead(&self.nodes[standby].name)
        {
            return;
        }
        self.sequence += 1;
        self.connection = Some((self.sequence, leader, [0, 0]));
        self.send(leader, Message::Begin);
        let Node { disk, .. } = &self.nodes[leader];
        let committed = if self.always { disk.durable } else { disk.records.len() };
        let all = disk.records[..committed].to_vec();
        self.send(leader, Message::All(all));
    }

    fn disconnect(&mut self) {
        let Some((_, leader, _)) = self.connection.take() else { return };
        let life = self.nodes[leader].life;
        let noticed = self.numbers.below(500);
        self.after(noticed, Due::At(leader, life, Event::Copied(0, Message::Broken)));
    }

    fn send(&mut self, from: usize, message: Message) {
        let latency = self.latency();
        let now = self.now;
        let Some((number, leader, last)) = &mut self.connection else { return };
        if matches!(message, Message::One(..) | Message::All(_)) && *leader != from {
            return;
        }
        let direction = usize::from(*leader == from);
        // Messages of a direction arrive in order.
        last[direction] = last[direction].max(now + latency) + 1;
        let (at, number, to) = (last[direction], *number, 1 - from);
        let life = self.nodes[to].life;
        self.after(at - now, Due::At(to, life, Event::Copied(number, message)));
    }

    fn copied(&mut self, node: usize, life: u64, message: Message) {
        let other = self.nodes[1 - node].name.clone();
        let Node { process, disk, .. } = &mut self.nodes[node];
        let Some(process) = process else { return };
        match (process.machine.role(), message) {
            (Role::Standby, Message::Begin) => {
                process.copy = Copy::Disk;
                *disk = Disk { copy: disk.copy + 1, ..Disk::default() };
            }
            (Role::Standby, Message::All(records)) => {
                process.copy = Copy::Live;
                disk.records = records;
                let (number, copy) = (disk.records.len() as u64, disk.copy);
                if self.always {
                    self.after(SYNC_MS, Due::At(node, life, Event::Synced(copy, number)));
                } else {
                    self.send(node, Message::Stored(number));
                }
            }
            (Role::Standby, Message::One(number, record)) => {
                if number == disk.records.len() as u64 + 1 {
                    self.append(node, record);
                } else if number > disk.records.len() as u64 {
                    // It was stopped, and something was left out: it copies everything again.
                    self.disconnect();
                }
            }
            (Role::Leader, Message::Stored(number)) => {
                let is_known = process.machine.standbys().iter().any(|known| known.name == other);
                let standby = other;
                self.apply(
                    node,
                    match is_known {
                        true => Input::Acknowledged { standby, number },
                        false => Input::CaughtUp { standby, number },
                    },
                );
            }
            (Role::Leader, Message::Broken) => self.apply(node, Input::Gone { standby: other }),
            _ => {}
        }
    }

    fn trouble(&mut self) {
        let pause = 200 + self.numbers.below(4 * TIMEOUT_MS);
        self.after(pause, Due::Trouble);
        let node = self.numbers.below(2) as usize;
        let long = self.numbers.below(3 * TIMEOUT_MS);
        match self.numbers.below(8) {
            0 if self.nodes[node].process.is_some() => self.end(node),
            1 if self.always && self.nodes[node].process.is_some() => {
                // A power cut: of what is not durable, any part may be there.
                let Disk { records, durable, .. } = &self.nodes[node].disk;
                let open = (records.len() - (*durable).min(records.len())) as i64;
                let kept = self.numbers.below(open + 1) as usize;
                let Disk { records, durable, .. } = &mut self.nodes[node].disk;
                records.truncate(*durable + kept);
                self.end(node);
            }
            2 | 3 => self.nodes[node].stopped_until = self.now + long,
            4 | 5 => self.nodes[node].cut_off_until = self.now + long,
            6 => {
                self.parted_until = self.now + long;
                self.disconnect();
            }
            _ => self.disconnect(),
        }
    }
}

fn simulate(seed: u64, ack: Ack, always: bool) -> (u64, usize) {
    let mut world = World::new(seed, ack, always);
    world.run(200_000);
    for node in &world.nodes {
        Registry::of(&node.disk.records);
        let epochs: Vec<u64> = node.disk.records.iter().map(|record| record.epoch).collect();
        assert!(epochs.is_sorted(), "a record of an old leader was taken");
    }
    let in_sync: BTreeSet<_> =
        world.service.succession.iter().flat_map(|(_, known)| &known.in_sync).collect();
    assert!(!in_sync.is_empty());
    (world.leaders, world.ledger.answered.len())
}

#[test]
fn nothing_acknowledged_is_lost_and_nobody_hears_two_leaders() {
    let seeds = std::env::var("CORONA_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let (mut leaders, mut answered) = (0, 0);
    for seed in 1..=seeds.unwrap_or(12) {
        for (ack, always) in [(Ack::Standby, false), (Ack::Standby, true), (Ack::None, false)] {
            let (led, heard) = std::panic::catch_unwind(|| simulate(seed, ack, always))
                .unwrap_or_else(|_| panic!("seed {seed} {ack:?}, always: {always}"));
            leaders += led;
            answered += heard;
        }
    }
    // It did happen: leaders have changed, and clients were served.
    let runs = 3 * seeds.unwrap_or(12);
    assert!(leaders > 5 * runs && answered as u64 > 1000 * runs, "{leaders} {answered}");
}
