//! The cluster manager of an instance: the real engine, the notifications that sessions have not
//! acknowledged, and the journal that leads back to both.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corona_engine::{Effect, Engine, Image, Input, Notification, Outcome, codec};
use corona_model::types::Millis;
use serde::{Deserialize, Serialize};

/// Records behind the last image after which another one is made.
const RECORDS_OF_AN_IMAGE: usize = 200;

/// A record of the journal.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The leadership in which it was written.
    pub(super) epoch: u64,
    /// An encoded [`Step`].
    step: Arc<[u8]>,
    /// The outcome that the leader saw, encoded.
    outcome: Arc<[u8]>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Step {
    /// Sessions with the serial number of the last notification that they have acknowledged.
    acknowledged: Vec<(Arc<str>, u64)>,
    at: Millis,
    input: Input,
}

/// A notification that was not acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) serial: u64,
    /// The record that it follows from.
    pub(super) record: u64,
    pub(super) notification: Notification,
}

/// Pending notifications by session, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Outbox {
    last: u64,
    sessions: BTreeMap<Arc<str>, VecDeque<Pending>>,
}

/// The state that a journal leads to.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) engine: Engine,
    outbox: Outbox,
    /// Acknowledgements that are written with the next record.
    acknowledged: Vec<(Arc<str>, u64)>,
    /// The number of the last record.
    last: u64,
}

impl Manager {
    /// Applies an input, and returns its record with the outcome.
    pub(super) fn apply(&mut self, epoch: u64, at: Millis, input: Input) -> (Record, Outcome) {
        let acknowledged = std::mem::take(&mut self.acknowledged);
        let step = Step { acknowledged, at: at.max(self.engine.now()), input };
        let bytes = codec::encode(&step).unwrap();
        let outcome = self.step(step);
        let record =
            Record { epoch, step: bytes.into(), outcome: codec::encode(&outcome).unwrap().into() };
        (record, outcome)
    }

    fn step(&mut self, Step { acknowledged, at, input }: Step) -> Outcome {
        self.last += 1;
        for (handle, serial) in acknowledged {
            self.outbox.drop_up_to(&handle, serial);
        }
        let outcome = self.engine.apply(at, input);
        for effect in &outcome.effects {
            match effect {
                Effect::Notify { handle, notification, .. } => {
                    self.outbox.last += 1;
                    let (serial, record) = (self.outbox.last, self.last);
                    let notification = notification.clone();
                    let pending = Pending { serial, record, notification };
                    self.outbox.sessions.entry(handle.clone()).or_default().push_back(pending);
                }
                Effect::ForgetSession { handle } => drop(self.outbox.sessions.remove(handle)),
                Effect::ResumeNotifications | Effect::Record(_) => {}
            }
        }
        outcome
    }

    /// The oldest notification of each session.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&Arc<str>, &Pending)> {
        let sessions = self.outbox.sessions.iter();
        sessions.filter_map(|(handle, pending)| Some((handle, pending.front()?)))
    }

    /// A session has acknowledged its notifications up to this serial number.
    pub(super) fn acknowledge(&mut self, handle: &Arc<str>, serial: u64) {
        self.outbox.drop_up_to(handle, serial);
        self.acknowledged.push((handle.clone(), serial));
    }

    fn image(&self) -> Arc<[u8]> {
        codec::encode(&(self.engine.image(), &self.outbox)).unwrap().into()
    }
}

impl Outbox {
    fn drop_up_to(&mut self, handle: &str, serial: u64) {
        let Some(pending) = self.sessions.get_mut(handle) else { return };
        while pending.front().is_some_and(|first| first.serial <= serial) {
            pending.pop_front();
        }
        if pending.is_empty() {
            self.sessions.remove(handle);
        }
    }
}

/// A journal: an image, and the records behind it. Empty while a copy arrives.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    image: Option<Arc<[u8]>>,
    /// The number of the record in which the image was made.
    first: u64,
    records: Vec<Record>,
    /// The number of the last record that is durable.
    pub(super) durable: u64,
    /// The number of this copy of a journal.
    pub(super) copy: u64,
}

impl Disk {
    /// A journal that starts with this engine.
    pub(super) fn of(engine: Engine) -> Disk {
        let manager =
            Manager { engine, outbox: Outbox::default(), acknowledged: Vec::new(), last: 0 };
        Disk { image: Some(manager.image()), ..Disk::default() }
    }

    /// The number of the last record.
    pub(super) fn last(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// A record that no image has replaced.
    pub(super) fn record(&self, number: u64) -> Option<&Record> {
        self.records.get(number.checked_sub(self.first + 1)? as usize)
    }

    pub(super) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The journal up to a record.
    pub(super) fn up_to(&self, number: u64) -> Disk {
        let mut part = self.clone();
        part.records.truncate(number.saturating_sub(self.first) as usize);
        part.durable = part.durable.min(part.last());
        part
    }

    /// What arrives on another disk. An image is durable as soon as it is stored.
    pub(super) fn into_copy(self, copy: u64) -> Disk {
        Disk { copy, durable: self.first, ..self }
    }

    /// The state that it leads to; `None` while a copy arrives. Each outcome must be the one that the
    /// leader saw, which never crashed in between.
    pub(super) fn manager(&self, hash_seed: u64) -> Option<Manager> {
        let (image, outbox): (Image, Outbox) = codec::decode(self.image.as_ref()?).unwrap();
        let engine = Engine::from_image(image, hash_seed).unwrap();
        let mut manager = Manager { engine, outbox, acknowledged: Vec::new(), last: self.first };
        let mut epoch = 0;
        for record in &self.records {
            assert!(epoch <= record.epoch, "a record of an old leader was taken");
            epoch = record.epoch;
            let step = codec::decode(&record.step).unwrap();
            let outcome = manager.step(step);
            let same = *codec::encode(&outcome).unwrap() == *record.outcome;
            assert!(same, "one that never crashed decided otherwise than {outcome:?}");
        }
        manager.engine.audit().unwrap();
        Some(manager)
    }

    /// Replaces many durable records by an image.
    pub(super) fn make_image(&mut self, hash_seed: u64) {
        if self.durable < self.first + RECORDS_OF_AN_IMAGE as u64 {
            return;
        }
        let Some(manager) = self.up_to(self.durable).manager(hash_seed) else { return };
        self.image = Some(manager.image());
        self.records.drain(..(self.durable - self.first) as usize);
        self.first = self.durable;
    }
}
