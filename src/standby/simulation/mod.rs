//! Two instances, a coordination service, nodes and sessions in virtual time, with everything that goes
//! wrong: crashes at any moment, power cuts with torn journals, stopped processes, disks that are slow or hang,
//! clocks of other speeds, partitions from the service and from each other, slow and broken replication. Seeded. Each instance has
//! the real role machine and the real engine; the journal and the connections are models.

mod clients;
mod manager;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::Arc;

use self::clients::Clients;
use self::manager::{Disk, Manager, Record};
use super::{Ack, Copy, Effect, Input, Machine, Role, Settings, Succession};
use corona_engine::{Input as Call, Notification, Refusal, Reply};
use corona_model::types::Millis;

const TIMEOUT_MS: i64 = 4000;
/// How long a run takes.
const RUN_MS: i64 = 60_000;
/// How long a sync to the disk takes.
const SYNC_MS: i64 = 5;
/// How long a write to a slow disk takes at most.
const SLOW_MS: i64 = 3000;

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most.unsigned_abs()) as i64
    }
}

/// A defect of the program that the simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Replies and notifications leave whether or not the lease holds.
    NoLease,
    /// They leave when the leader's own journal has the record.
    NoWait,
    /// An instance that is not in the succession may lead.
    AnyInstanceLeads,
    /// Some inputs are not in the journal.
    InputLeftOut,
    /// A leader does not look at what waits for its disk.
    DiskNotWatched,
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
    /// The same, written and not durable.
    Stored(u64, u64),
    Heard(Input),
    /// A reply or a notification is sent.
    Leave {
        letter: Letter,
        epoch: u64,
    },
    /// A session has acknowledged its notifications up to this serial number.
    Acknowledged(Arc<str>, u64),
    /// On the connection of this number, if that is still open.
    Copied(u64, Message),
}

#[derive(Clone, Debug)]
enum Letter {
    Reply(u64, Result<Reply, Refusal>),
    Notify(Arc<str>, u64, Notification),
}

#[derive(Clone, Debug)]
enum Message {
    /// To the standby: its copy is about to be replaced.
    Begin,
    All(Box<Disk>),
    One(u64, Record),
    /// To the leader.
    Stored(u64),
    Broken,
}

#[derive(Clone, Debug)]
enum Delivery {
    /// Something reaches a process, if that still runs.
    At(usize, u64, Event),
    Service(usize, u64, u64, Ask, Millis),
    Connect,
    Client,
    Trouble,
    Start(usize),
}

#[derive(Debug)]
struct Process {
    machine: Machine,
    session: u64,
    copy: Copy,
    /// Of a leader.
    manager: Option<Manager>,
    epoch: u64,
    /// Replies that wait for their record to be released.
    waiting: BTreeMap<u64, (u64, Result<Reply, Refusal>)>,
    /// Sessions that have not acknowledged the notification that was sent last.
    in_flight: BTreeSet<Arc<str>>,
    released: u64,
    /// Since when records of a leader wait for its disk, or when some were stored last.
    waiting_since: Option<i64>,
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
    /// Until then its disk takes long for each record.
    slow_until: i64,
    /// When the last write to it is done.
    written_at: i64,
    clock: (i64, i64),
}

#[derive(Debug, Default)]
struct Service {
    sessions: BTreeMap<u64, i64>,
    leader: Option<(u64, Arc<str>)>,
    succession: Option<(i32, Succession)>,
}

struct SimulatedInstances {
    numbers: Numbers,
    now: i64,
    queue: BTreeMap<(i64, u64), Delivery>,
    sequence: u64,
    ack: Ack,
    always: bool,
    planted: Option<Planted>,
    nodes: Vec<Node>,
    service: Service,
    clients: Clients,
    /// The connection of a standby to its leader: its number, the leader, and when the last message of
    /// each direction arrives.
    connection: Option<(u64, usize, [i64; 2])>,
    parted_until: i64,
    leaders: u64,
}

impl SimulatedInstances {
    fn new(seed: u64, ack: Ack, always: bool, planted: Option<Planted>) -> SimulatedInstances {
        let mut numbers = Numbers(seed);
        let disk = Disk::of(Clients::engine());
        let nodes = ["a", "b"].map(|name| Node {
            name: name.into(),
            disk: disk.clone(),
            process: None,
            life: 0,
            stopped_until: 0,
            cut_off_until: 0,
            slow_until: 0,
            written_at: 0,
            clock: (numbers.below(1_000_000), 900 + numbers.below(200)),
        });
        let mut world = SimulatedInstances {
            numbers,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            ack,
            always,
            planted,
            nodes: nodes.into(),
            service: Service::default(),
            clients: Clients::new(ack == Ack::Standby),
            connection: None,
            parted_until: 0,
            leaders: 0,
        };
        for due in [
            Delivery::Start(0),
            Delivery::Start(1),
            Delivery::Connect,
            Delivery::Client,
            Delivery::Trouble,
        ] {
            world.after(0, due);
        }
        world
    }

    fn after(&mut self, ms: i64, due: Delivery) {
        self.sequence += 1;
        self.queue.insert((self.now + ms, self.sequence), due);
    }

    fn latency(&mut self) -> i64 {
        match self.numbers.below(20) {
            0 => self.numbers.below(400),
            _ => self.numbers.below(10),
        }
    }

    /// How long a task of a process waits for a processor.
    fn scheduling(&mut self) -> i64 {
        match self.numbers.below(4) {
            0 => self.numbers.below(TIMEOUT_MS),
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

    fn step(&mut self, due: Delivery) {
        match due {
            Delivery::Start(node) => self.start(node),
            Delivery::At(node, life, event) => {
                let Node { life: current, stopped_until, process, .. } = &self.nodes[node];
                if *current != life || process.is_none() {
                    return;
                }
                let wait = stopped_until - self.now;
                if wait > 0 {
                    self.after(wait, Delivery::At(node, life, event));
                } else {
                    self.happen(node, life, event);
                }
            }
            Delivery::Service(node, life, session, ask, sent) => {
                self.serve(node, life, session, ask, sent);
            }
            Delivery::Connect => self.connect(),
            Delivery::Client => self.client(),
            Delivery::Trouble => self.trouble(),
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
        let waits = self.planted != Some(Planted::NoWait);
        let settings = Settings {
            me: name.clone(),
            session_timeout_ms: TIMEOUT_MS,
            ack: if waits { self.ack } else { Ack::None },
            ack_timeout_ms: 1000,
        };
        *life += 1;
        disk.durable = disk.last();
        *process = Some(Process {
            machine: Machine::new(settings),
            session,
            copy: Copy::Disk,
            manager: None,
            epoch: 0,
            waiting: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            released: 0,
            waiting_since: None,
        });
        let life = *life;
        self.after(0, Delivery::At(node, life, Event::Look));
        self.after(1, Delivery::At(node, life, Event::Beat));
    }

    fn end(&mut self, node: usize) {
        self.nodes[node].process = None;
        self.nodes[node].stopped_until = 0;
        self.disconnect();
        let pause = 50 + self.numbers.below(3 * TIMEOUT_MS);
        self.after(pause, Delivery::Start(node));
    }

    fn happen(&mut self, node: usize, life: u64, event: Event) {
        match event {
            Event::Beat => {
                let Some(process) = &self.nodes[node].process else { return };
                if process.machine.role() == Role::Leader {
                    self.ask(node, Ask::Confirm);
                    self.decide(node, None, Call::Tick);
                    let number = self.nodes[node].disk.last();
                    if self.planted != Some(Planted::DiskNotWatched) {
                        self.apply(node, Input::Appended { number });
                    }
                }
                let seed = self.numbers.below(1 << 20) as u64;
                self.nodes[node].disk.make_image(seed);
                self.after(TIMEOUT_MS / 6, Delivery::At(node, life, Event::Beat));
            }
            Event::Look => {
                self.ask(node, Ask::Look);
                self.after(200, Delivery::At(node, life, Event::Look));
            }
            Event::Tick => self.apply(node, Input::Tick),
            Event::Synced(copy, number) => {
                let disk = &mut self.nodes[node].disk;
                if disk.copy != copy {
                    return;
                }
                disk.durable = disk.durable.max(number.min(disk.last()));
                if self.always {
                    self.stored(node, number);
                }
            }
            Event::Stored(copy, number) => {
                if self.nodes[node].disk.copy == copy {
                    self.stored(node, number);
                }
            }
            Event::Heard(input) => self.apply(node, input),
            Event::Leave { letter, epoch } => self.leave(node, letter, epoch),
            Event::Acknowledged(handle, serial) => {
                let Some(process) = &mut self.nodes[node].process else { return };
                process.in_flight.remove(&handle);
                if let Some(manager) = &mut process.manager {
                    manager.acknowledge(&handle, serial);
                }
                self.notify(node);
            }
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
            self.after(wait, Delivery::At(node, life, Event::Tick));
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
                let seed = self.numbers.below(1 << 20) as u64;
                let disk = &self.nodes[node].disk;
                let Some(manager) = disk.manager(seed) else { panic!("it leads without a copy") };
                self.clients.check_leader(&manager.engine);
                // What it has copied may not be durable yet.
                let number = if self.always { disk.durable } else { disk.last() };
                let silent_since = manager.engine.now();
                if let Some(process) = &mut self.nodes[node].process {
                    process.manager = Some(manager);
                    process.epoch = epoch;
                }
                // The time without a leader does not count as silence.
                let ms = self.local(node).since(silent_since);
                self.decide(node, None, Call::HeldUp { ms });
                self.apply(node, Input::Committed { number });
            }
            Effect::Release { number } => self.release(node, number),
            // It stays connected.
            Effect::Slow { .. } | Effect::Fast { .. } => {}
            // The process restarts.
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
            self.after(latency, Delivery::Service(node, life, session, ask, sent));
        } else if matches!(ask, Ask::Campaign(..)) {
            self.after(100, Delivery::At(node, life, Event::Heard(Input::NotWon)));
        } else if matches!(ask, Ask::Write(..)) {
            // It is repeated until it succeeds or the lease is over.
            let again = (self.nodes[node].cut_off_until - self.now).max(0) + 1;
            self.after(again, Delivery::Service(node, life, session, ask, sent));
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
            let lost = Delivery::At(node, life, Event::Heard(Input::SessionLost));
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
                let (copy, mut succession) = (process.copy, succession.clone());
                if let Some((_, known)) = &mut succession
                    && self.planted == Some(Planted::AnyInstanceLeads)
                {
                    known.in_sync.insert(self.nodes[node].name.clone());
                }
                Input::Seen { is_led: leader.is_some(), succession, copy }
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
        self.after(latency, Delivery::At(node, life, Event::Heard(input)));
    }

    /// This node's own journal has the records up to this one.
    fn stored(&mut self, node: usize, number: u64) {
        let last = self.nodes[node].disk.last();
        let now = self.now;
        let Some(process) = &mut self.nodes[node].process else { return };
        match process.machine.role() {
            Role::Leader => {
                process.waiting_since = (number < last).then_some(now);
                self.apply(node, Input::Committed { number });
                // It is sent on once it is committed.
                let record = self.nodes[node].disk.record(number).cloned();
                if let Some(record) = record {
                    self.send(node, Message::One(number, record));
                }
            }
            Role::Standby => self.send(node, Message::Stored(number)),
            Role::Fenced => {}
        }
    }

    fn append(&mut self, node: usize, record: Record) -> u64 {
        let now = self.now;
        let slow_ms = self.numbers.below(SLOW_MS);
        let Node { disk, life, slow_until, written_at, process, .. } = &mut self.nodes[node];
        disk.push(record);
        if let Some(process) = process.as_mut().filter(|it| it.machine.role() == Role::Leader) {
            process.waiting_since.get_or_insert(now);
        }
        let (number, life, copy) = (disk.last(), *life, disk.copy);
        // Writes that arrive during a slow one are done together with it.
        if *slow_until > now && *written_at <= now {
            *written_at = now + slow_ms;
        }
        let wait = (*written_at - now).max(0);
        let sync = wait + if self.always { SYNC_MS } else { 100 };
        self.after(sync, Delivery::At(node, life, Event::Synced(copy, number)));
        if !self.always && wait > 0 {
            self.after(wait, Delivery::At(node, life, Event::Stored(copy, number)));
        } else if !self.always {
            self.stored(node, number);
        }
        number
    }

    /// No instance leads for long if its disk hangs and another one could lead.
    fn check_disks(&self) {
        // Its clock may be slow, and it does not look all the time.
        const MOST_MS: i64 = TIMEOUT_MS * 3 / 2;
        for Node { process, name, stopped_until, .. } in &self.nodes {
            let Some(process) = process else { continue };
            let waits = process.waiting_since.is_some_and(|since| self.now - since > MOST_MS);
            let could_hand_over = process.machine.standbys().iter().any(|standby| standby.in_sync);
            let is_stuck = waits && could_hand_over && *stopped_until <= self.now;
            assert!(!is_stuck, "{name} leads, although its disk hangs");
        }
    }

    fn release(&mut self, node: usize, number: u64) {
        let Node { process, life, .. } = &mut self.nodes[node];
        let (Some(process), life) = (process, *life) else { return };
        process.released = process.released.max(number);
        let later = process.waiting.split_off(&(number + 1));
        let (now, epoch) = (std::mem::replace(&mut process.waiting, later), process.epoch);
        for (call, reply) in now.into_values() {
            let pause = self.scheduling();
            let letter = Letter::Reply(call, reply);
            self.after(pause, Delivery::At(node, life, Event::Leave { letter, epoch }));
        }
        self.notify(node);
    }

    /// Sends each session its next notification, if its record is released.
    fn notify(&mut self, node: usize) {
        let Node { process, life, .. } = &mut self.nodes[node];
        let Some(Process { manager: Some(manager), in_flight, released, epoch, .. }) = process
        else {
            return;
        };
        let (life, epoch) = (*life, *epoch);
        let mut letters = Vec::new();
        for (handle, pending) in manager.heads() {
            if pending.record <= *released && in_flight.insert(handle.clone()) {
                let notification = pending.notification.clone();
                letters.push(Letter::Notify(handle.clone(), pending.serial, notification));
            }
        }
        for letter in letters {
            let pause = self.scheduling();
            self.after(pause, Delivery::At(node, life, Event::Leave { letter, epoch }));
        }
    }

    /// A reply or a notification passes the check of the lease, and leaves.
    fn leave(&mut self, node: usize, letter: Letter, epoch: u64) {
        let now = self.local(node);
        let Some(process) = &self.nodes[node].process else { return };
        let is_over = process.machine.lease_until().is_none_or(|until| now >= until);
        if is_over && self.planted != Some(Planted::NoLease) {
            return;
        }
        match letter {
            Letter::Reply(call, reply) => self.clients.answer(epoch, call, &reply),
            Letter::Notify(handle, serial, notification) => {
                self.clients.notify(epoch, &handle, &notification);
                let (latency, life) = (self.latency(), self.nodes[node].life);
                self.after(latency, Delivery::At(node, life, Event::Acknowledged(handle, serial)));
            }
        }
    }

    /// Clients call every instance that believes to lead.
    fn client(&mut self) {
        let pause = 10 + self.numbers.below(140);
        self.after(pause, Delivery::Client);
        self.check_disks();
        let Some((call, input)) = self.clients.next_call(&mut self.numbers) else { return };
        for node in 0..self.nodes.len() {
            self.call(node, call, input.clone());
        }
    }

    fn call(&mut self, node: usize, call: u64, input: Call) {
        let Node { process, stopped_until, .. } = &self.nodes[node];
        let Some(process) = process else { return };
        if process.machine.role() != Role::Leader || *stopped_until > self.now {
            return;
        }
        self.decide(node, Some(call), input);
        while self.wants_pass(node) {
            self.decide(node, None, Call::Pass);
        }
    }

    /// Has a leader's engine apply an input of this call at the present time.
    fn decide(&mut self, node: usize, call: Option<u64>, input: Call) {
        let at = self.local(node);
        let is_left_out =
            self.planted == Some(Planted::InputLeftOut) && self.numbers.below(100) == 0;
        let Node { process, disk, .. } = &mut self.nodes[node];
        let Some(Process { manager: Some(manager), epoch, waiting, .. }) = process else { return };
        let (record, outcome) = manager.apply(*epoch, at, input);
        if is_left_out {
            return;
        }
        waiting.extend(call.map(|call| (disk.last() + 1, (call, outcome.reply))));
        self.append(node, record);
    }

    fn wants_pass(&self, node: usize) -> bool {
        let process = self.nodes[node].process.as_ref();
        let manager = process.and_then(|process| process.manager.as_ref());
        manager.is_some_and(|manager| manager.engine.wants_pass())
    }

    /// A standby connects to the leader that the service shows.
    fn connect(&mut self) {
        self.after(100, Delivery::Connect);
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
        let committed = if self.always { disk.durable } else { disk.last() };
        let all = disk.up_to(committed);
        self.send(leader, Message::All(Box::new(all)));
    }

    fn disconnect(&mut self) {
        let Some((_, leader, _)) = self.connection.take() else { return };
        let life = self.nodes[leader].life;
        let noticed = self.numbers.below(500);
        self.after(noticed, Delivery::At(leader, life, Event::Copied(0, Message::Broken)));
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
        self.after(at - now, Delivery::At(to, life, Event::Copied(number, message)));
    }

    fn copied(&mut self, node: usize, life: u64, message: Message) {
        let other = self.nodes[1 - node].name.clone();
        let Node { process, disk, .. } = &mut self.nodes[node];
        let Some(process) = process else { return };
        match (process.machine.role(), message) {
            (Role::Standby, Message::Begin) => {
                process.copy = Copy::Disk;
                *disk = Disk::default().into_copy(disk.copy + 1);
            }
            (Role::Standby, Message::All(all)) => {
                process.copy = Copy::Live;
                // An image is made durable when it is stored.
                *disk = all.into_copy(disk.copy);
                let (number, copy) = (disk.last(), disk.copy);
                if self.always {
                    self.after(SYNC_MS, Delivery::At(node, life, Event::Synced(copy, number)));
                } else {
                    self.send(node, Message::Stored(number));
                }
            }
            (Role::Standby, Message::One(number, record)) => {
                if number == disk.last() + 1 {
                    self.append(node, record);
                } else if number > disk.last() {
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
        self.after(pause, Delivery::Trouble);
        let node = self.numbers.below(2) as usize;
        let long = self.numbers.below(3 * TIMEOUT_MS);
        match self.numbers.below(9) {
            8 => self.nodes[node].slow_until = self.now + long,
            0 if self.nodes[node].process.is_some() => self.end(node),
            1 if self.always && self.nodes[node].process.is_some() => {
                // A power cut: of what is not durable, any part may be there.
                let disk = &self.nodes[node].disk;
                let durable = disk.durable.min(disk.last());
                let kept = self.numbers.below((disk.last() - durable) as i64 + 1) as u64;
                self.nodes[node].disk = disk.up_to(durable + kept);
                self.end(node);
            }
            2 | 3 => self.nodes[node].stopped_until = self.now + long,
            4 | 5 => self.nodes[node].cut_off_until = self.now + long,
            6 => {
                self.parted_until = self.now + long;
                self.disconnect();
            }
            _ if self.numbers.below(2) == 0 => self.disconnect(),
            _ => {
                let written_at = &mut self.nodes[node].written_at;
                *written_at = (self.now + long).max(*written_at);
            }
        }
    }
}

/// Leaders, calls that were answered, and grants that arrived.
type Sums = [u64; 3];

fn simulate(seed: u64, ack: Ack, always: bool, planted: Option<Planted>) -> Sums {
    let mut world = SimulatedInstances::new(seed, ack, always, planted);
    world.run(RUN_MS);
    for node in &world.nodes {
        node.disk.manager(seed);
    }
    let in_sync: BTreeSet<_> =
        world.service.succession.iter().flat_map(|(_, known)| &known.in_sync).collect();
    assert!(!in_sync.is_empty());
    [world.leaders, world.clients.answered, world.clients.granted]
}

#[test]
fn nothing_acknowledged_is_lost_and_no_peer_hears_two_leaders() {
    let seeds = std::env::var("CORONA_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(4);
    let mut sums = [0; 3];
    for seed in 1..=seeds {
        for (ack, always) in [(Ack::Standby, false), (Ack::Standby, true), (Ack::None, false)] {
            let counted = catch_unwind(|| simulate(seed, ack, always, None))
                .unwrap_or_else(|_| panic!("seed {seed} {ack:?}, always: {always}"));
            sums.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count);
        }
    }
    // It did happen: leaders have changed, and clients were served.
    let [leaders, answered, granted] = sums.map(|sum| sum / (3 * seeds));
    assert!(leaders > 1 && answered > 100 && granted > 30, "{sums:?}");
}

/// Each defect shows itself within some seeds.
#[test]
fn planted_defects_are_found() {
    use Planted::*;
    for (planted, expected) in [
        (NoLease, ["notified by two leaders"; 2]),
        (NoWait, ["lost", "acknowledged"]),
        (AnyInstanceLeads, ["lost", "granted"]),
        (InputLeftOut, ["otherwise", "lost"]),
        (DiskNotWatched, ["its disk hangs"; 2]),
    ] {
        let found = (1..=100).find_map(|seed| {
            let panic = catch_unwind(|| simulate(seed, Ack::Standby, true, Some(planted))).err()?;
            let text = panic.downcast_ref::<String>().cloned();
            Some((seed, text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()))))
        });
        let Some((seed, text)) = found else { panic!("{planted:?} is not found") };
        let text = text.unwrap_or_default();
        assert!(
            expected.iter().any(|expected| text.contains(expected)),
            "{planted:?}, seed {seed}: {text}"
        );
    }
}
