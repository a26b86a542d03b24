//! The role of one instance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use corona_model::types::Millis;

/// What one instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It copies the leader's journal and relays connections to it.
    Standby,
    /// It decides.
    Leader,
    /// It has led. Nothing leaves it any more, and it does not become anything else.
    Fenced,
}

impl Role {
    /// All roles, in the order in which an instance has them.
    pub const ALL: [Role; 3] = [Role::Standby, Role::Leader, Role::Fenced];

    /// A word for logs, pages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Role::Standby => "standby",
            Role::Leader => "leader",
            Role::Fenced => "fenced",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether replies wait for a standby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// A reply leaves when the leader's own journal has its record.
    #[default]
    None,
    /// A reply leaves when every standby in the succession has its record as well.
    Standby,
}

/// What a machine is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of this instance.
    pub me: Arc<str>,
    /// After how long without a request the service ends a session.
    pub session_timeout_ms: i64,
    /// Whether replies wait for a standby.
    pub ack: Ack,
    /// A standby that is behind for longer, or whose [delays](DELAY_PART) add up to more, is taken out of
    /// the succession.
    pub ack_timeout_ms: i64,
}

/// A standby that is behind for more than this part of the timeout delays callers. What is beyond counts.
const DELAY_PART: i64 = 4;
/// Delays are forgotten at one millisecond for each of these. A standby that was taken out for its delays
/// comes back when all of them are forgotten: after this many timeouts without a new one.
const FORGET: i64 = 10;

/// The instances that may lead next. The coordination service stores it with a version that each change
/// increases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// The number of the last leadership.
    pub epoch: u64,
    /// The instances that have everything that was acknowledged.
    pub in_sync: BTreeSet<Arc<str>>,
}

/// What an instance would lead with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// A copy from the last leader, with all records up to its end.
    Live,
    /// What a start finds on its disk. After a power cut the last records may be missing, so an
    /// instance with a live copy goes first.
    Disk,
}

/// What has happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The service shows this: whether some instance leads, and the succession with its version.
    Seen {
        /// Whether there is a leader.
        is_led: bool,
        /// `None` before the first leader.
        succession: Option<(i32, Succession)>,
        /// What this instance has.
        copy: Copy,
    },
    /// The service has accepted a campaign that was sent at this time.
    Won {
        /// When the request was sent.
        sent: Millis,
        /// The version of the succession from now on.
        version: i32,
    },
    /// The service has refused the campaign, or its reply was lost.
    NotWon,
    /// It has confirmed the session in reply to a request that was sent at this time.
    Confirmed {
        /// When the request was sent.
        sent: Millis,
    },
    /// The session has ended, or another instance leads.
    SessionLost,
    /// The succession was written and has this version now.
    Written {
        /// The version.
        version: i32,
    },
    /// Another instance has changed the succession.
    NotWritten,
    /// Records up to this one wait for this instance's own journal, or are in it.
    Appended {
        /// The number of the record.
        number: u64,
    },
    /// This instance's own journal has the records up to this one.
    Committed {
        /// The number of the record.
        number: u64,
    },
    /// A standby has all records up to this one, and gets those that follow.
    CaughtUp {
        /// Its name.
        standby: Arc<str>,
        /// The number of the record.
        number: u64,
    },
    /// A standby has stored the records up to this one.
    Acknowledged {
        /// Its name.
        standby: Arc<str>,
        /// The number of the record.
        number: u64,
    },
    /// A standby has disconnected.
    Gone {
        /// Its name.
        standby: Arc<str>,
    },
    /// The leader hands over: it serves no more.
    SteppedDown,
    /// Time has passed.
    Tick,
}

/// What an instance has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the service, in one transaction, to make this instance the leader and to replace the
    /// succession of this version; `None` to make the first one.
    Campaign {
        /// The version that is replaced.
        version: Option<i32>,
        /// What replaces it.
        succession: Succession,
    },
    /// Lead.
    Lead {
        /// The number of the leadership.
        epoch: u64,
    },
    /// Replies and notifications of the records up to this one may leave.
    Release {
        /// The number of the record.
        number: u64,
    },
    /// Replace the succession of this version.
    Write {
        /// The version that is replaced.
        version: i32,
        /// What replaces it.
        succession: Succession,
    },
    /// A standby delays callers, and does not count until it has been fast for a while.
    Slow {
        /// Its name.
        standby: Arc<str>,
    },
    /// A standby that was slow counts again.
    Fast {
        /// Its name.
        standby: Arc<str>,
    },
    /// Stop: nothing may leave any more.
    Fence {
        /// The reason.
        why: FencedBecause,
    },
}

/// Why a leader is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FencedBecause {
    /// Nothing was heard from the service for two thirds of the session's timeout.
    #[error("nothing was heard from ZooKeeper for two thirds of the session's timeout")]
    LeaseOver,
    /// The session has ended.
    #[error("the ZooKeeper session has ended")]
    SessionLost,
    /// Another instance has written the succession.
    #[error("another instance leads")]
    Replaced,
    /// Its journal has stored nothing for the session's timeout, although records wait, and another
    /// instance may lead.
    #[error("its journal has stored nothing for the session's timeout: the disk hangs")]
    DiskHangs,
    /// It was asked to.
    #[error("it has handed over")]
    SteppedDown,
}

/// A standby as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyView {
    /// Its name.
    pub name: Arc<str>,
    /// The last record that it has acknowledged.
    pub acknowledged: u64,
    /// Whether it may lead next.
    pub in_sync: bool,
    /// Whether it was taken out because it delayed callers, and has not been fast for long enough.
    pub is_slow: bool,
}

/// The state machine of one instance: `apply(now, input)` returns what to do.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    now: Millis,
    state: RoleState,
}

#[derive(Debug)]
enum RoleState {
    Standby(Standby),
    Leader(Leader),
    Fenced(FencedBecause),
}

#[derive(Debug, Default)]
struct Standby {
    /// The campaign in flight.
    campaign: Option<Succession>,
    /// Since when there is no leader.
    vacant_since: Option<Millis>,
}

#[derive(Debug)]
struct Leader {
    epoch: u64,
    lease_until: Millis,
    /// The version of the succession, and its instances except this one.
    version: i32,
    written: BTreeSet<Arc<str>>,
    /// Who will be in it when the write in flight is done.
    writing: Option<BTreeSet<Arc<str>>>,
    /// The standbys that count. Each that is in the succession, or may be, is here.
    followers: BTreeMap<Arc<str>, Follower>,
    /// The delays of standbys, those included that are gone.
    delays: BTreeMap<Arc<str>, Delays>,
    appended: u64,
    committed: u64,
    /// Since when records wait that are not committed, or when some were committed last.
    waiting_since: Option<Millis>,
    released: u64,
}

#[derive(Clone, Copy, Debug)]
struct Follower {
    acknowledged: u64,
    is_gone: bool,
    /// Since when it has not acknowledged what is committed.
    behind_since: Option<Millis>,
}

/// By how much a standby has delayed callers lately.
#[derive(Clone, Copy, Debug)]
struct Delays {
    sum_ms: i64,
    /// Up to when they were forgotten.
    at: Millis,
    is_slow: bool,
}

impl Delays {
    fn none(at: Millis) -> Delays {
        Delays { sum_ms: 0, at, is_slow: false }
    }

    /// Delays that are forgotten with time.
    fn forget(&mut self, now: Millis) {
        let forgotten = now.since(self.at).max(0) / FORGET;
        self.sum_ms = (self.sum_ms - forgotten).max(0);
        self.at = self.at.plus_ms(forgotten * FORGET);
    }

    /// When nothing is left of them.
    fn forgotten_at(&self) -> Millis {
        self.at.plus_ms(self.sum_ms * FORGET)
    }
}

impl Machine {
    /// A standby.
    pub fn new(settings: Settings) -> Machine {
        Machine { settings, now: Millis(i64::MIN), state: RoleState::Standby(Standby::default()) }
    }

    /// What this instance is.
    pub fn role(&self) -> Role {
        match self.state {
            RoleState::Standby(_) => Role::Standby,
            RoleState::Leader(_) => Role::Leader,
            RoleState::Fenced(_) => Role::Fenced,
        }
    }

    /// When the lease ends; `None` if this instance does not lead.
    pub fn lease_until(&self) -> Option<Millis> {
        match &self.state {
            RoleState::Leader(leader) => Some(leader.lease_until),
            RoleState::Standby(_) | RoleState::Fenced(_) => None,
        }
    }

    /// The standbys of a leader.
    pub fn standbys(&self) -> Vec<StandbyView> {
        let RoleState::Leader(leader) = &self.state else { return Vec::new() };
        let followers = leader.followers.iter().filter(|(_, follower)| !follower.is_gone);
        let view = |(name, follower): (&Arc<str>, &Follower)| StandbyView {
            name: name.clone(),
            acknowledged: follower.acknowledged,
            in_sync: leader.written.contains(name),
            is_slow: leader.is_slow(name),
        };
        followers.map(view).collect()
    }

    /// Whether a standby is in the succession, or may be. Its copy must not be replaced meanwhile.
    pub fn may_lead(&self, standby: &str) -> bool {
        let RoleState::Leader(leader) = &self.state else { return true };
        leader.may_lead(standby)
    }

    /// When time alone changes something.
    pub fn next_deadline(&self) -> Option<Millis> {
        let RoleState::Leader(leader) = &self.state else { return None };
        let settings = &self.settings;
        let slow = leader.followers.iter().filter_map(|(name, follower)| {
            let delays = leader.delays.get(name);
            match (follower.behind_since, delays) {
                (Some(since), Some(delays)) if !delays.is_slow => {
                    let left = (settings.ack_timeout_ms - delays.sum_ms).max(0);
                    let most = settings.ack_timeout_ms.min(settings.delay_ms() + left);
                    Some(since.plus_ms(most + 1))
                }
                (Some(since), None) => Some(since.plus_ms(settings.ack_timeout_ms + 1)),
                (None, Some(delays)) if delays.is_slow => Some(delays.forgotten_at()),
                _ => None,
            }
        });
        let hangs = leader.waiting_since.filter(|_| !leader.written.is_empty());
        let hangs = hangs.map(|since| since.plus_ms(self.settings.session_timeout_ms));
        slow.chain(hangs).chain([leader.lease_until]).min()
    }

    /// Applies an input. A time before the last one counts as the last one.
    pub fn apply(&mut self, now: Millis, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        let now = self.now;
        let settings = &self.settings;
        let mut effects = Vec::new();
        let next = match &mut self.state {
            RoleState::Standby(standby) => standby.apply(settings, now, input, &mut effects),
            RoleState::Leader(leader) => leader.apply(settings, now, input, &mut effects),
            RoleState::Fenced(_) => None,
        };
        if let Some(next) = next {
            if let RoleState::Fenced(why) = next {
                effects.push(Effect::Fence { why });
            }
            self.state = next;
        }
        effects
    }
}

impl Settings {
    fn lease_ms(&self) -> i64 {
        self.session_timeout_ms * 2 / 3
    }

    /// For how long a standby may be behind without delaying callers by much.
    fn delay_ms(&self) -> i64 {
        self.ack_timeout_ms / DELAY_PART
    }

    /// How long an instance with an old copy lets others go first.
    fn courtesy_ms(&self) -> i64 {
        self.session_timeout_ms * 3 / 2
    }
}

impl Standby {
    fn apply(
        &mut self,
        settings: &Settings,
        now: Millis,
        input: Input,
        effects: &mut Vec<Effect>,
    ) -> Option<RoleState> {
        match input {
            Input::Seen { is_led, succession, copy } => {
                if is_led {
                    self.vacant_since = None;
                } else {
                    let since = *self.vacant_since.get_or_insert(now);
                    self.campaign(settings, now.since(since), succession, copy, effects);
                }
                None
            }
            Input::NotWon | Input::SessionLost => {
                self.campaign = None;
                None
            }
            Input::Won { sent, version } => {
                let Succession { epoch, .. } = self.campaign.take()?;
                let lease_until = sent.plus_ms(settings.lease_ms());
                if now >= lease_until {
                    return Some(RoleState::Fenced(FencedBecause::LeaseOver));
                }
                effects.push(Effect::Lead { epoch });
                Some(RoleState::Leader(Leader {
                    epoch,
                    lease_until,
                    version,
                    written: BTreeSet::new(),
                    writing: None,
                    followers: BTreeMap::new(),
                    delays: BTreeMap::new(),
                    appended: 0,
                    committed: 0,
                    waiting_since: None,
                    released: 0,
                }))
            }
            _ => None,
        }
    }

    /// Campaigns if this instance may lead.
    fn campaign(
        &mut self,
        settings: &Settings,
        vacant_ms: i64,
        succession: Option<(i32, Succession)>,
        copy: Copy,
        effects: &mut Vec<Effect>,
    ) {
        if self.campaign.is_some() {
            return;
        }
        let (version, epoch) = match succession {
            None => (None, 0),
            Some((version, Succession { epoch, in_sync })) => {
                let has_all = in_sync.contains(&settings.me);
                let others_first = copy == Copy::Disk && in_sync.len() > 1;
                if !has_all || (others_first && vacant_ms < settings.courtesy_ms()) {
                    return;
                }
                (Some(version), epoch)
            }
        };
        let succession = Succession { epoch: epoch + 1, in_sync: [settings.me.clone()].into() };
        self.campaign = Some(succession.clone());
        effects.push(Effect::Campaign { version, succession });
    }
}

impl Leader {
    fn apply(
        &mut self,
        settings: &Settings,
        now: Millis,
        input: Input,
        effects: &mut Vec<Effect>,
    ) -> Option<RoleState> {
        // Before anything else: what arrives now may have waited while this process was stopped.
        if now >= self.lease_until {
            return Some(RoleState::Fenced(FencedBecause::LeaseOver));
        }
        match input {
            Input::Confirmed { sent } => {
                self.lease_until = self.lease_until.max(sent.plus_ms(settings.lease_ms()));
            }
            Input::SessionLost => return Some(RoleState::Fenced(FencedBecause::SessionLost)),
            Input::NotWritten => return Some(RoleState::Fenced(FencedBecause::Replaced)),
            Input::SteppedDown => return Some(RoleState::Fenced(FencedBecause::SteppedDown)),
            Input::Appended { number } => {
                self.appended = self.appended.max(number);
                if self.appended > self.committed {
                    self.waiting_since.get_or_insert(now);
                }
            }
            Input::Committed { number } if number > self.committed => {
                self.committed = number;
                self.waiting_since = (self.appended > number).then_some(now);
            }
            Input::CaughtUp { standby, number } => {
                let follower =
                    Follower { acknowledged: number, is_gone: false, behind_since: None };
                self.followers.insert(standby, follower);
            }
            Input::Acknowledged { standby, number } => {
                if let Some(follower) = self.followers.get_mut(&standby)
                    && number > follower.acknowledged
                {
                    follower.acknowledged = number;
                    let since = follower.behind_since.take().unwrap_or(now);
                    let delay = now.since(since) - settings.delay_ms();
                    if delay > 0 {
                        let delays = self.delays.entry(standby).or_insert(Delays::none(now));
                        delays.sum_ms += delay;
                    }
                }
            }
            Input::Gone { standby } => {
                if let Some(follower) = self.followers.get_mut(&standby) {
                    follower.is_gone = true;
                }
            }
            Input::Written { version } => {
                self.version = version;
                self.written = self.writing.take().unwrap_or_default();
            }
            Input::Seen { .. }
            | Input::Won { .. }
            | Input::NotWon
            | Input::Committed { .. }
            | Input::Tick => {}
        }
        if self.disk_hangs(settings, now) {
            return Some(RoleState::Fenced(FencedBecause::DiskHangs));
        }
        self.look_at_followers(settings, now, effects);
        self.write(settings, effects);
        self.release(settings, effects);
        None
    }

    /// Whether another instance should lead because nothing is committed here. Without another one, waiting
    /// for the disk is all that can be done.
    fn disk_hangs(&self, settings: &Settings, now: Millis) -> bool {
        let waits = |since| now.since(since) >= settings.session_timeout_ms;
        self.waiting_since.is_some_and(waits) && !self.written.is_empty()
    }

    /// Takes note of followers that delay callers, or do so no longer, and forgets those that may not lead any more.
    fn look_at_followers(&mut self, settings: &Settings, now: Millis, effects: &mut Vec<Effect>) {
        let committed = self.committed;
        self.delays.values_mut().for_each(|delays| delays.forget(now));
        for (name, follower) in &mut self.followers {
            if follower.acknowledged >= committed || follower.is_gone {
                follower.behind_since = None;
            } else {
                follower.behind_since.get_or_insert(now);
            }
            let behind_ms = follower.behind_since.map_or(0, |since| now.since(since));
            let delay_ms = (behind_ms - settings.delay_ms()).max(0);
            if delay_ms == 0 && !self.delays.contains_key(name) {
                continue;
            }
            let delays = self.delays.entry(name.clone()).or_insert(Delays::none(now));
            let is_over = behind_ms > settings.ack_timeout_ms
                || delays.sum_ms + delay_ms > settings.ack_timeout_ms;
            if is_over {
                delays.sum_ms = settings.ack_timeout_ms;
                delays.at = now;
            }
            match (delays.is_slow, is_over) {
                (false, true) => effects.push(Effect::Slow { standby: name.clone() }),
                (true, false) if delays.sum_ms == 0 && delay_ms == 0 && !follower.is_gone => {
                    delays.is_slow = false;
                    effects.push(Effect::Fast { standby: name.clone() });
                }
                _ => {}
            }
            delays.is_slow |= is_over;
        }
        let known = &self.followers;
        self.delays.retain(|name, delays| {
            delays.sum_ms > 0 || (delays.is_slow && known.contains_key(name))
        });
        let mut followers = std::mem::take(&mut self.followers);
        followers.retain(|name, follower| !follower.is_gone || self.may_lead(name));
        self.followers = followers;
    }

    fn is_slow(&self, name: &str) -> bool {
        self.delays.get(name).is_some_and(|delays| delays.is_slow)
    }

    fn may_lead(&self, name: &str) -> bool {
        let writing = self.writing.as_ref();
        self.written.contains(name) || writing.is_some_and(|set| set.contains(name))
    }

    /// Has the succession written if it is not as it should be.
    fn write(&mut self, settings: &Settings, effects: &mut Vec<Effect>) {
        if self.writing.is_some() {
            return;
        }
        // Records that were released before a follower counted may still be on their way to it.
        let has_all = |name: &Arc<str>, follower: &Follower| {
            settings.ack == Ack::None
                || self.written.contains(name)
                || follower.acknowledged >= self.released
        };
        let here = self.followers.iter().filter(|(_, follower)| !follower.is_gone);
        let here = here.filter(|(name, _)| !self.is_slow(name));
        let here = here.filter(|(name, follower)| has_all(name, follower));
        let wanted: BTreeSet<_> = here.map(|(name, _)| name.clone()).collect();
        if wanted == self.written {
            return;
        }
        let in_sync = wanted.iter().cloned().chain([settings.me.clone()]).collect();
        let succession = Succession { epoch: self.epoch, in_sync };
        effects.push(Effect::Write { version: self.version, succession });
        self.writing = Some(wanted);
    }

    fn release(&mut self, settings: &Settings, effects: &mut Vec<Effect>) {
        let counts = |name: &Arc<str>| !self.is_slow(name) || self.may_lead(name);
        let counting = self.followers.iter().filter(|(name, _)| counts(name));
        let slowest = counting.map(|(_, follower)| follower.acknowledged).min();
        let number = match (settings.ack, slowest) {
            (Ack::Standby, Some(slowest)) => self.committed.min(slowest),
            (Ack::None, _) | (_, None) => self.committed,
        };
        if number > self.released {
            self.released = number;
            effects.push(Effect::Release { number });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(ack: Ack) -> Machine {
        let settings =
            Settings { me: "a".into(), session_timeout_ms: 3000, ack, ack_timeout_ms: 500 };
        Machine::new(settings)
    }

    fn succession(epoch: u64, in_sync: &[&str]) -> Succession {
        Succession { epoch, in_sync: in_sync.iter().map(|name| Arc::from(*name)).collect() }
    }

    fn vacant(succession: Option<(i32, Succession)>, copy: Copy) -> Input {
        Input::Seen { is_led: false, succession, copy }
    }

    /// A machine that leads from time 0 on.
    fn leader(ack: Ack) -> Machine {
        let mut machine = machine(ack);
        machine.apply(Millis(0), vacant(None, Copy::Disk));
        let effects = machine.apply(Millis(0), Input::Won { sent: Millis(0), version: 0 });
        assert_eq!(effects, [Effect::Lead { epoch: 1 }]);
        machine
    }

    #[test]
    fn only_an_instance_that_has_everything_campaigns() {
        for (known, copy, campaigns) in [
            (None, Copy::Disk, Some((None, 1))),
            (Some((4, succession(7, &["a", "b"]))), Copy::Live, Some((Some(4), 8))),
            (Some((4, succession(7, &["b"]))), Copy::Live, None),
            (Some((4, succession(7, &["a"]))), Copy::Disk, Some((Some(4), 8))),
            // Another one may have more than what was found on the disk.
            (Some((4, succession(7, &["a", "b"]))), Copy::Disk, None),
        ] {
            let expected = campaigns.map(|(version, epoch)| Effect::Campaign {
                version,
                succession: succession(epoch, &["a"]),
            });
            let effects = machine(Ack::None).apply(Millis(0), vacant(known.clone(), copy));
            assert_eq!(effects.into_iter().next(), expected, "{known:?} {copy:?}");
        }
    }

    #[test]
    fn an_instance_with_an_old_copy_leads_if_nobody_else_does() {
        let mut machine = machine(Ack::None);
        let known = Some((4, succession(7, &["a", "b"])));
        assert_eq!(machine.apply(Millis(0), vacant(known.clone(), Copy::Disk)), []);
        let seen = Input::Seen { is_led: true, succession: known.clone(), copy: Copy::Disk };
        machine.apply(Millis(4000), seen);
        assert_eq!(machine.apply(Millis(5000), vacant(known.clone(), Copy::Disk)), []);
        assert_eq!(machine.apply(Millis(9499), vacant(known.clone(), Copy::Disk)), []);
        assert_eq!(machine.apply(Millis(9500), vacant(known.clone(), Copy::Disk)).len(), 1);
        // One campaign at a time.
        assert_eq!(machine.apply(Millis(9600), vacant(known.clone(), Copy::Disk)), []);
        machine.apply(Millis(9700), Input::NotWon);
        assert_eq!(machine.apply(Millis(9800), vacant(known, Copy::Disk)).len(), 1);
    }

    #[test]
    fn a_leader_that_hears_nothing_is_fenced_for_good() {
        let mut machine = leader(Ack::None);
        machine.apply(Millis(900), Input::Confirmed { sent: Millis(800) });
        assert_eq!(machine.lease_until(), Some(Millis(2800)));
        assert_eq!(machine.next_deadline(), Some(Millis(2800)));
        assert_eq!(machine.apply(Millis(2799), Input::Tick), []);
        // The confirmation was there in time, and this process was not.
        let late = machine.apply(Millis(2800), Input::Confirmed { sent: Millis(2700) });
        assert_eq!(late, [Effect::Fence { why: FencedBecause::LeaseOver }]);
        assert_eq!((machine.role(), machine.lease_until()), (Role::Fenced, None));
        assert_eq!(machine.apply(Millis(2801), vacant(None, Copy::Live)), []);
    }

    #[test]
    fn a_campaign_that_took_too_long_is_not_led_from() {
        let mut machine = machine(Ack::None);
        machine.apply(Millis(0), vacant(None, Copy::Disk));
        let effects = machine.apply(Millis(2000), Input::Won { sent: Millis(0), version: 0 });
        assert_eq!(effects, [Effect::Fence { why: FencedBecause::LeaseOver }]);
    }

    #[test]
    fn replies_wait_for_each_standby_that_may_lead() {
        let mut machine = leader(Ack::Standby);
        let mut step = |input| machine.apply(Millis(1), input);
        let release = |number| Effect::Release { number };
        let write = |version, in_sync: &[&str]| Effect::Write {
            version,
            succession: succession(1, in_sync),
        };
        assert_eq!(step(Input::Committed { number: 5 }), [release(5)]);
        let caught_up = Input::CaughtUp { standby: "b".into(), number: 5 };
        assert_eq!(step(caught_up.clone()), [write(0, &["a", "b"])]);
        // It counts from here on, written or not.
        assert_eq!(step(Input::Committed { number: 7 }), []);
        assert_eq!(step(Input::Written { version: 1 }), []);
        assert_eq!(step(Input::Acknowledged { standby: "b".into(), number: 6 }), [release(6)]);
        // It is disconnected, and may still lead until the new succession is written.
        assert_eq!(step(Input::Gone { standby: "b".into() }), [write(1, &["a"])]);
        assert_eq!(step(Input::Committed { number: 8 }), []);
        assert_eq!(step(Input::Written { version: 2 }), [release(8)]);
        // It comes back, and goes before that is written.
        assert_eq!(step(Input::CaughtUp { standby: "b".into(), number: 8 }).len(), 1);
        assert_eq!(step(Input::Gone { standby: "b".into() }), []);
        assert_eq!(step(Input::Committed { number: 9 }), []);
        assert_eq!(step(Input::Written { version: 3 }), [write(3, &["a"])]);
        assert_eq!(step(Input::Written { version: 4 }), [release(9)]);
    }

    #[test]
    fn a_standby_that_lacks_what_was_released_may_not_lead_yet() {
        let mut machine = leader(Ack::Standby);
        machine.apply(Millis(1), Input::Committed { number: 7 });
        // It has caught up with what there was when the copy began.
        let caught_up = Input::CaughtUp { standby: "b".into(), number: 5 };
        assert_eq!(machine.apply(Millis(2), caught_up), []);
        assert!(!machine.may_lead("b"));
        // What comes now waits for it.
        assert_eq!(machine.apply(Millis(3), Input::Committed { number: 8 }), []);
        let acknowledged = |number| Input::Acknowledged { standby: "b".into(), number };
        assert_eq!(machine.apply(Millis(4), acknowledged(6)), []);
        let write = Effect::Write { version: 0, succession: succession(1, &["a", "b"]) };
        assert_eq!(machine.apply(Millis(5), acknowledged(7)), [write]);
        assert!(machine.may_lead("b"));
        let release = Effect::Release { number: 8 };
        assert_eq!(machine.apply(Millis(6), acknowledged(8)), [release]);
    }

    #[test]
    fn without_acknowledgements_replies_wait_for_nobody() {
        let mut machine = leader(Ack::None);
        machine.apply(Millis(1), Input::CaughtUp { standby: "b".into(), number: 0 });
        let effects = machine.apply(Millis(2), Input::Committed { number: 3 });
        assert_eq!(effects, [Effect::Release { number: 3 }]);
    }

    #[test]
    fn a_standby_that_falls_behind_is_taken_out() {
        let mut machine = leader(Ack::Standby);
        machine.apply(Millis(1), Input::CaughtUp { standby: "b".into(), number: 0 });
        machine.apply(Millis(1), Input::Written { version: 1 });
        machine.apply(Millis(100), Input::Committed { number: 3 });
        assert_eq!(machine.next_deadline(), Some(Millis(601)));
        assert_eq!(machine.apply(Millis(600), Input::Tick), []);
        let effects = machine.apply(Millis(601), Input::Tick);
        let write = Effect::Write { version: 1, succession: succession(1, &["a"]) };
        assert_eq!(effects, [Effect::Slow { standby: "b".into() }, write]);
        assert_eq!(
            machine.apply(Millis(602), Input::Written { version: 2 }),
            [Effect::Release { number: 3 }]
        );
        let [standby] = &machine.standbys()[..] else { panic!("it is still connected") };
        assert!(standby.is_slow && !standby.in_sync, "{standby:?}");
    }

    /// A leader with a standby that stores everything that has arrived with one write of `write_ms`, which
    /// changes at `changes_at`. A record is committed every 20 ms, and ZooKeeper answers at once.
    struct Pair {
        machine: Machine,
        now: i64,
        version: i32,
        committed: Vec<i64>,
        released: u64,
        /// The write in flight: its last record, and when it is done.
        writing: Option<(u64, i64)>,
        acknowledged: u64,
        waits: Vec<i64>,
        turns: Vec<&'static str>,
    }

    impl Pair {
        fn new() -> Pair {
            let settings = Settings {
                me: "a".into(),
                session_timeout_ms: 6000,
                ack: Ack::Standby,
                ack_timeout_ms: 2000,
            };
            let mut machine = Machine::new(settings);
            machine.apply(Millis(0), vacant(None, Copy::Disk));
            machine.apply(Millis(0), Input::Won { sent: Millis(0), version: 0 });
            let mut pair = Pair {
                machine,
                now: 0,
                version: 0,
                committed: vec![],
                released: 0,
                writing: None,
                acknowledged: 0,
                waits: vec![],
                turns: vec![],
            };
            pair.apply(Input::CaughtUp { standby: "b".into(), number: 0 });
            pair
        }

        fn apply(&mut self, input: Input) {
            let mut inputs = vec![input];
            while let Some(input) = inputs.pop() {
                for effect in self.machine.apply(Millis(self.now), input) {
                    match effect {
                        Effect::Release { number } => {
                            let records = self.released as usize..number as usize;
                            let waits = self.committed[records].iter().map(|at| self.now - at);
                            self.waits.extend(waits);
                            self.released = number;
                        }
                        Effect::Write { .. } => {
                            self.version += 1;
                            inputs.push(Input::Written { version: self.version });
                        }
                        Effect::Slow { .. } => self.turns.push("slow"),
                        Effect::Fast { .. } => self.turns.push("fast"),
                        effect => panic!("{effect:?}"),
                    }
                }
            }
        }

        fn run(&mut self, ms: i64, write_ms: i64) {
            for _ in 0..ms / 20 {
                self.now += 20;
                self.apply(Input::Confirmed { sent: Millis(self.now) });
                self.committed.push(self.now);
                self.apply(Input::Committed { number: self.committed.len() as u64 });
                if let Some((number, done)) = self.writing
                    && self.now >= done
                {
                    self.acknowledged = number;
                    self.apply(Input::Acknowledged { standby: "b".into(), number });
                    self.writing = None;
                }
                let last = self.committed.len() as u64;
                if self.writing.is_none() && self.acknowledged < last {
                    self.writing = Some((last, self.now + write_ms));
                }
            }
        }

        fn in_sync(&self) -> bool {
            self.machine.standbys().iter().any(|standby| standby.in_sync)
        }
    }

    #[test]
    fn a_standby_with_a_slow_disk_leaves_and_stays_out_until_it_has_been_fast() {
        for write_ms in [700, 1500, 1900, 2500, 10_000] {
            let mut pair = Pair::new();
            pair.run(60_000, 20);
            assert!(pair.in_sync() && pair.waits.iter().all(|wait| *wait <= 60), "{write_ms}");
            // As long as its disk is slow.
            pair.waits.clear();
            pair.run(600_000, write_ms);
            assert_eq!(
                (pair.turns.as_slice(), pair.in_sync()),
                (&["slow"][..], false),
                "{write_ms}"
            );
            let delayed = pair.waits.iter().filter(|wait| **wait > 100).count();
            // For less than 20 s of the 600 s.
            assert!(delayed < 1000, "{write_ms}: {delayed} of {} calls", pair.waits.len());
            assert!(pair.waits.iter().all(|wait| *wait <= 4100), "{write_ms}");
            // It is fast again, and has to be for a while.
            pair.run(10_000, 20);
            assert!(!pair.in_sync(), "{write_ms}");
            pair.run(40_000, 20);
            assert_eq!((pair.turns.as_slice(), pair.in_sync()), (&["slow", "fast"][..], true));
        }
    }

    #[test]
    fn a_standby_whose_disk_stalls_now_and_then_stays() {
        let mut pair = Pair::new();
        for _ in 0..20 {
            pair.run(1000, 1000);
            pair.run(15_000, 20);
        }
        assert_eq!((pair.turns.as_slice(), pair.in_sync()), (&[][..], true));
    }

    #[test]
    fn a_slow_standby_that_connects_again_is_still_slow() {
        let mut pair = Pair::new();
        pair.run(60_000, 1500);
        assert!(!pair.in_sync());
        pair.apply(Input::Gone { standby: "b".into() });
        assert_eq!(pair.machine.standbys(), []);
        let number = pair.committed.len() as u64;
        pair.apply(Input::CaughtUp { standby: "b".into(), number });
        assert!(!pair.in_sync());
        pair.writing = None;
        pair.acknowledged = number;
        pair.run(40_000, 20);
        assert!(pair.in_sync(), "{:?}", pair.turns);
    }

    #[test]
    fn a_leader_whose_disk_hangs_lets_another_instance_lead() {
        let step = |machine: &mut Machine, at: i64, input| {
            let at = Millis(at);
            // ZooKeeper answers all the time.
            let mut effects = machine.apply(at, Input::Confirmed { sent: at });
            effects.extend(machine.apply(at, input));
            effects
        };
        let hangs = [Effect::Fence { why: FencedBecause::DiskHangs }];
        for (with_standby, committed_meanwhile, expected) in
            [(true, false, &hangs[..]), (true, true, &[]), (false, false, &[])]
        {
            let mut machine = leader(Ack::None);
            step(&mut machine, 1, Input::Appended { number: 4 });
            step(&mut machine, 1, Input::Committed { number: 4 });
            if with_standby {
                step(&mut machine, 2, Input::CaughtUp { standby: "b".into(), number: 4 });
                step(&mut machine, 2, Input::Written { version: 1 });
            }
            step(&mut machine, 1000, Input::Appended { number: 6 });
            if committed_meanwhile {
                step(&mut machine, 2000, Input::Committed { number: 5 });
                let acknowledged = Input::Acknowledged { standby: "b".into(), number: 5 };
                step(&mut machine, 2000, acknowledged);
            }
            assert_eq!(step(&mut machine, 2500, Input::Appended { number: 7 }), []);
            assert_eq!(step(&mut machine, 3999, Input::Tick), []);
            let due = machine.next_deadline() == Some(Millis(4000));
            assert_eq!(due, with_standby && !committed_meanwhile);
            let context = (with_standby, committed_meanwhile);
            assert_eq!(step(&mut machine, 4000, Input::Tick), expected, "{context:?}");
            if committed_meanwhile {
                assert_eq!(step(&mut machine, 5000, Input::Tick), hangs);
            }
        }
    }

    #[test]
    fn each_sign_of_another_leader_fences() {
        for (input, why) in [
            (Input::SessionLost, FencedBecause::SessionLost),
            (Input::NotWritten, FencedBecause::Replaced),
            (Input::SteppedDown, FencedBecause::SteppedDown),
        ] {
            assert_eq!(leader(Ack::None).apply(Millis(1), input), [Effect::Fence { why }]);
        }
    }
}
