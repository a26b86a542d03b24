//! An engine that goes through the journal: after a start, to make an image, and to show what happened. Pure.

use std::sync::Arc;

use thiserror::Error;

use super::entry::{Base, Entry, Step};
use super::outbox::Outbox;
use corona_engine::codec::CodecError;
use corona_engine::{Effect, Engine, ImageError, Input, Outcome};
use corona_journal::{OpenError, Recovered, Storage};
use corona_model::types::Millis;

/// An engine and the notifications that its sessions have not acknowledged.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) engine: Engine,
    pub(crate) outbox: Outbox,
    /// The time of the last input.
    pub(crate) now: Millis,
}

/// An entry that does not fit to those before it.
#[derive(Debug, Error)]
pub(crate) enum Misfit {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("the journal does not begin with a state")]
    NoBase,
    #[error("a heartbeat of node {0}, which is not known")]
    UnknownNode(Arc<str>),
}

/// Looks on while an engine goes through a journal.
pub trait JournalWatcher {
    /// The journal begins with this state, or goes on from it.
    fn state(&mut self, engine: &Engine);
    /// The engine has taken an input.
    fn input(&mut self, at: Millis, input: &Input, outcome: &Outcome);
}

/// Shows all that a journal leads to, from its oldest state on.
///
/// # Errors
/// Something of the journal cannot be used. Everything before it was shown.
pub fn watch_journal(
    storage: &dyn Storage,
    watcher: &mut dyn JournalWatcher,
) -> Result<Recovered, OpenError> {
    let mut reader = Reader::new(0);
    corona_journal::show_all(storage, |entry| Ok(reader.visit_watched(entry, Some(watcher))?))
}

impl Follower {
    /// Continues from a state.
    pub(crate) fn new(base: Base, hash_seed: u64) -> Result<Follower, Misfit> {
        let now = base.engine.now();
        let engine = Engine::from_image(base.engine, hash_seed)?;
        Ok(Follower { engine, outbox: base.outbox, now })
    }

    /// The present state.
    pub(crate) fn base(&self) -> Base {
        Base { engine: self.engine.image(), outbox: self.outbox.clone() }
    }

    fn step(&mut self, step: Step, watcher: Watcher<'_, '_>) -> Result<(), Misfit> {
        let Step { heard, acknowledged, input } = step;
        for (at, node) in heard {
            let report = self.engine.last_report(&node).ok_or(Misfit::UnknownNode(node))?;
            self.apply(at, Input::HeartbeatNode { report, rack: None }, None);
        }
        for (handle, serial) in acknowledged {
            self.outbox.acknowledge(&handle, serial);
        }
        if let Some((at, input)) = input {
            self.apply(at, input, watcher);
        }
        Ok(())
    }

    fn apply(&mut self, at: Millis, input: Input, watcher: Watcher<'_, '_>) {
        self.now = self.now.max(at);
        let watched = watcher.map(|watcher| (watcher, input.clone()));
        let outcome = self.engine.apply(at, input);
        if let Some((watcher, input)) = watched {
            watcher.input(at, &input, &outcome);
        }
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, to, notification } => {
                    self.outbox.push(handle, to, notification);
                }
                Effect::ForgetSession { handle } => self.outbox.forget(&handle),
                Effect::ResumeNotifications | Effect::Record(_) => {}
            }
        }
    }
}

type Watcher<'a, 'b> = Option<&'a mut (dyn JournalWatcher + 'b)>;

/// Goes through the entries of a journal.
#[derive(Debug)]
pub(crate) struct Reader {
    hash_seed: u64,
    follower: Option<Follower>,
}

impl Reader {
    pub(crate) fn new(hash_seed: u64) -> Reader {
        Reader { hash_seed, follower: None }
    }

    /// Takes what the journal shows, the image first.
    pub(crate) fn visit(&mut self, entry: corona_journal::Entry<'_>) -> Result<(), Misfit> {
        self.visit_watched(entry, None)
    }

    fn visit_watched(
        &mut self,
        entry: corona_journal::Entry<'_>,
        watcher: Watcher<'_, '_>,
    ) -> Result<(), Misfit> {
        use corona_journal::Entry::{Image, Record};
        let base = match entry {
            Image { bytes, .. } => Base::decode(bytes)?,
            Record { bytes, .. } => match Entry::decode(bytes)? {
                Entry::Base(base) => *base,
                Entry::Step(step) => {
                    return self.follower.as_mut().ok_or(Misfit::NoBase)?.step(*step, watcher);
                }
            },
        };
        let follower = self.follower.insert(Follower::new(base, self.hash_seed)?);
        if let Some(watcher) = watcher {
            watcher.state(&follower.engine);
        }
        Ok(())
    }

    /// The state after all entries; `None` without any.
    pub(crate) fn finish(self) -> Option<Follower> {
        self.follower
    }
}
