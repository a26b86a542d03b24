//! The simulation itself: it is repeatable, it passes, and it finds faults.

use std::sync::Arc;

use super::*;
use corona_engine::{Observed, Reply, codec};
use corona_model::settings::{PoolSettings, UNLIMITED};
use corona_model::types::{PerType, SessionStatus};

pub(super) const SHORT: u64 = 1_500;

/// A short run with two levels of queues, without resources.
fn plan(seed: u64) -> Plan {
    Plan { seed, steps: SHORT, restarts: false, trees: false, resources: false }
}

#[test]
fn runs_pass() {
    // Many more and longer runs are compared in an optimised build: see scripts/test.
    let mut compared = 0;
    for (seed, line) in (1..=40).zip(kept_digests()) {
        let (_, digest) = run_with_digest(plan(seed)).unwrap();
        assert_eq!(format!("{seed} {digest}"), line, "an input or outcome of the run has changed");
        compared += 1;
    }
    assert_eq!(compared, 40);
}

/// A process that replaces another one leaves no ghost, whatever else happens.
#[test]
fn runs_with_nodes_that_restart_pass() {
    let mut all = Summary::default();
    for seed in 1..=20 {
        let run = run(Plan { restarts: true, ..plan(seed) });
        all.add(run.unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.what)));
    }
    assert!(all.dead_nodes > 200 && all.granted > 1000, "{all:?}");
}

/// Of runs of [`SHORT`] steps: a seed and its digest in each line, from seed 1 on.
fn kept_digests() -> impl Iterator<Item = &'static str> {
    let kept = include_str!("../../fixtures/simulation/short.txt");
    kept.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn a_seed_repeats_and_seeds_differ() {
    let summary = |seed| run(plan(seed)).unwrap();
    assert_eq!(summary(3), summary(3));
    assert_ne!(summary(3), summary(4));
}

/// An engine of which an image is made after some steps. From then on an engine made from the image
/// takes its place, and the first one runs beside it for comparison.
pub(super) struct Restored {
    first: Engine,
    restored: Option<Engine>,
    steps: u64,
    cut: u64,
}

impl Restored {
    pub(super) fn new(settings: &Settings, cut: u64) -> Restored {
        Restored { first: new_engine(settings), restored: None, steps: 0, cut }
    }
}

impl Subject for Restored {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        let mut outcome = self.first.apply(now, input.clone());
        if let Some(restored) = &mut self.restored {
            let first = std::mem::replace(&mut outcome, restored.apply(now, input));
            assert_eq!(outcome, first, "the engines decide differently");
            let demands = |engine: &Engine| (engine.wants_pass(), engine.next_deadline());
            assert_eq!(demands(restored), demands(&self.first));
            if self.steps.is_multiple_of(50) {
                assert_eq!(restored.image(), self.first.image());
            }
        }
        if self.steps == self.cut {
            self.restored = Some(restored(&self.first));
        }
        self.steps += 1;
        outcome
    }

    fn engine(&self) -> &Engine {
        self.restored.as_ref().unwrap_or(&self.first)
    }
}

/// The engine of the image of this one, by way of bytes, with another secret for its hash tables.
fn restored(engine: &Engine) -> Engine {
    let image = engine.image();
    let bytes = codec::encode(&image).unwrap();
    assert_eq!(codec::decode(&bytes).as_ref(), Ok(&image));
    let restored = Engine::from_image(codec::decode(&bytes).unwrap(), 1 << 50).unwrap();
    assert_eq!(restored.image(), image, "the engine of an image has another one");
    restored
}

#[test]
fn an_engine_restored_from_its_image_goes_on_as_the_first_one() {
    let kept: Vec<&str> = kept_digests().collect();
    for seed in 1..=400 {
        let steps = if seed <= 20 { SHORT } else { 300 };
        // Some are restored while all peers leave.
        let cut = Random::new(!seed).below(steps as usize + 50) as u64;
        let plan = Plan { steps, ..plan(seed) };
        let result = run_digested(plan, |settings: &Settings| Restored::new(settings, cut));
        let (_, digest) = result.unwrap_or_else(|failure| panic!("cut at {cut}: {failure}"));
        if steps == SHORT {
            let kept = kept[seed as usize - 1];
            assert_eq!(format!("{seed} {digest}"), kept, "cut at {cut}");
        }
    }
}

/// An engine whose inputs and outcomes are all encoded as bytes on the way.
struct Encoded(Engine);

impl Subject for Encoded {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        let bytes = codec::encode(&(now, &input)).unwrap();
        assert_eq!(codec::decode(&bytes), Ok((now, input.clone())));
        let outcome = self.0.apply(now, input);
        let bytes = codec::encode(&outcome).unwrap();
        assert_eq!(codec::decode(&bytes).as_ref(), Ok(&outcome));
        outcome
    }

    fn engine(&self) -> &Engine {
        &self.0
    }
}

#[test]
fn inputs_and_outcomes_survive_their_form_as_bytes() {
    let start = Start { now: BEGIN, id_prefix: ID_PREFIX.into(), hash_seed: 3 };
    assert_eq!(codec::decode(&codec::encode(&start).unwrap()), Ok(start));
    for seed in 1..=20 {
        let encoded = |settings: &Settings| Encoded(new_engine(settings));
        let result = run_with(plan(seed), encoded);
        assert!(result.is_ok(), "{result:?}");
    }
}

/// Two engines with different secrets for their hash tables.
struct Twins(Engine, Engine);

impl Subject for Twins {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        let outcome = self.0.apply(now, input.clone());
        assert_eq!(outcome, self.1.apply(now, input), "the secret shows in the outcome");
        outcome
    }

    fn engine(&self) -> &Engine {
        &self.0
    }
}

#[test]
fn the_secret_of_the_hash_tables_does_not_show() {
    for seed in 1..=10 {
        let twins = |settings: &Settings| {
            let start = Start { now: BEGIN, id_prefix: ID_PREFIX.into(), hash_seed: seed << 40 };
            Twins(new_engine(settings), Engine::new(settings.clone(), start))
        };
        let result = run_with(plan(seed), twins);
        assert!(result.is_ok(), "{result:?}");
    }
}

/// An engine with faulty input or output.
pub(super) struct Faulty {
    pub(super) engine: Engine,
    pub(super) fault: Fault,
}

impl Faulty {
    /// An engine that begins with the settings as it hears them.
    pub(super) fn new(settings: &Settings, fault: Fault) -> Faulty {
        let start = Box::new(settings.clone());
        let heard = (fault.hears)(Input::SettingsChanged { settings: start });
        let Input::SettingsChanged { settings } = heard else { panic!("{}", fault.name) };
        Faulty { engine: new_engine(&settings), fault }
    }
}

/// A fault's effect on the inputs, the settings at the start included, and on the outcomes.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) hears: fn(Input) -> Input,
    pub(super) says: fn(&mut Vec<Effect>),
}

impl Subject for Faulty {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        let mut outcome = self.engine.apply(now, (self.fault.hears)(input));
        (self.fault.says)(&mut outcome.effects);
        outcome
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }
}

pub(super) fn hears(name: &'static str, hears: fn(Input) -> Input) -> Fault {
    Fault { name, hears, says: |_| {} }
}

pub(super) fn says(name: &'static str, says: fn(&mut Vec<Effect>)) -> Fault {
    Fault { name, hears: |input| input, says }
}

pub(super) fn with_settings(mut input: Input, change: impl FnOnce(&mut Settings)) -> Input {
    if let Input::SettingsChanged { settings } = &mut input {
        change(settings);
    }
    input
}

pub(super) fn each_pool(input: Input, change: impl Fn(&mut PoolSettings)) -> Input {
    with_settings(input, |settings| settings.pools.pools.values_mut().for_each(change))
}

pub(super) fn without_protection(mut input: Input) -> Input {
    if let Input::StartSession { info, .. } = &mut input {
        info.no_preempt = None;
    }
    input
}

fn drop_first_notice(effects: &mut Vec<Effect>, of: fn(&Notification) -> bool) {
    let found = effects.iter().position(
        |effect| matches!(effect, Effect::Notify { notification, .. } if of(notification)),
    );
    if let Some(at) = found {
        effects.remove(at);
    }
}

fn with_requests(mut input: Input, change: fn(&mut corona_model::types::ResourceRequest)) -> Input {
    if let Input::RequestResources { requests, .. } = &mut input {
        requests.iter_mut().for_each(change);
    }
    input
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn faults() -> Vec<Fault> {
    vec![
        hears("releases leave one out", |mut input| {
            if let Input::ReleaseResources { ids, .. } = &mut input {
                ids.pop();
            }
            input
        }),
        hears("all requests take one slot", |input| {
            with_requests(input, |request| request.specs = None)
        }),
        hears("excluded hosts are used", |input| {
            with_requests(input, |request| request.exclude_hosts.clear())
        }),
        hears("wanted hosts do not matter", |input| {
            with_requests(input, |request| request.hosts.clear())
        }),
        hears("feedback is not heard", |input| match input {
            Input::NodeFeedback { .. } => Input::NodeFeedback {
                handle: "nobody".into(),
                kinds: Vec::new(),
                reports: Vec::new(),
            },
            input => input,
        }),
        hears("host files are not read", |input| match input {
            Input::HostsChanged { .. } => Input::HostsChanged { hosts: Default::default() },
            input => input,
        }),
        hears("sessions cannot be protected", without_protection),
        hears("heartbeats do not tell free memory", |mut input| {
            if let Input::HeartbeatNode { report, .. } = &mut input {
                report.free = None;
            }
            input
        }),
        hears("killed sessions live on", |input| match input {
            Input::KillSession { .. } => Input::KillSession { handle: "nobody".into() },
            input => input,
        }),
        hears("pools have no maximum", |input| {
            each_pool(input, |pool| pool.maximum = PerType::all(UNLIMITED))
        }),
        hears("groups have no maximum", |input| {
            with_settings(input, |settings| {
                for group in settings.pools.groups.values_mut() {
                    group.maximum = PerType::all(UNLIMITED);
                }
            })
        }),
        hears("pools cannot be protected", |input| {
            each_pool(input, |pool| pool.preemptable = true)
        }),
        hears("old grants are taken back", |input| {
            with_settings(input, |settings| settings.scheduling.preemption_rounds += 3)
        }),
        hears("waits are longer", |input| {
            with_settings(input, |settings| {
                for wait in &mut settings.scheduling.node_locality_wait_ms.0 {
                    *wait *= 3;
                }
            })
        }),
        hears("waits are shorter", |input| {
            with_settings(input, |settings| {
                for wait in &mut settings.scheduling.node_locality_wait_ms.0 {
                    *wait /= 3;
                }
            })
        }),
        hears("nobody starves", |input| {
            with_settings(input, |settings| {
                settings.scheduling.starving_time_for_share_ms = i64::MAX;
                settings.scheduling.starving_time_for_minimum_ms = i64::MAX;
            })
        }),
        hears("nodes expire late", |input| {
            with_settings(input, |settings| settings.node_expiry_ms *= 2)
        }),
        hears("reserved memory is given away", |input| {
            with_settings(input, |settings| settings.reserved_memory_mb = 0)
        }),
        says("grants are told twice", |effects| {
            let grants = effects.iter().find(|effect| {
                let granted = |notification: &_| matches!(notification, Notification::Granted(_));
                matches!(effect, Effect::Notify { notification, .. } if granted(notification))
            });
            effects.extend(grants.cloned());
        }),
        says("grants are not told", |effects| {
            drop_first_notice(effects, |notice| matches!(notice, Notification::Granted(_)));
        }),
        says("what is taken back is not told", |effects| {
            drop_first_notice(effects, |notice| matches!(notice, Notification::Revoked(_)));
        }),
        says("dead nodes are not told", |effects| {
            drop_first_notice(effects, |notice| matches!(notice, Notification::DeadNode(_)));
        }),
        says("sessions stay with the notifier", |effects| {
            effects.retain(|effect| !matches!(effect, Effect::ForgetSession { .. }));
        }),
    ]
}

#[test]
fn each_fault_is_found_within_four_hundred_seeds() {
    for fault in faults() {
        let faulty = |settings: &Settings| Faulty::new(settings, fault);
        let found = (1..=400).find_map(|seed| run_with(plan(seed), faulty).err());
        let failure = found.unwrap_or_else(|| panic!("nobody sees that {}", fault.name));
        check_prefix(&failure, faulty);
    }
}

/// Each fault is found in one of six hundred runs.
pub(super) fn check_faults_are_found(
    faults: impl IntoIterator<Item = Fault>,
    plan: impl Fn(u64) -> Plan,
) {
    for fault in faults {
        let faulty = |settings: &Settings| Faulty::new(settings, fault);
        let found = (1..=600).find_map(|seed| run_with(plan(seed), faulty).err());
        assert!(found.is_some(), "nobody sees that {}", fault.name);
    }
}

/// An engine that is restored from its image in the middle of a run ends it as one that is not.
pub(super) fn check_restored(plan: impl Fn(u64) -> Plan) {
    for seed in 1..=100 {
        let steps = 400;
        let cut = Random::new(!seed).below(450) as u64;
        let plan = Plan { steps, ..plan(seed) };
        let result = run_digested(plan, |settings: &Settings| Restored::new(settings, cut));
        let (_, digest) = result.unwrap_or_else(|failure| panic!("cut at {cut}: {failure}"));
        let (_, straight) = run_with_digest(plan).unwrap();
        assert_eq!(digest, straight, "seed {seed} cut at {cut}");
    }
}

/// The inputs that are given fail, with the last of them and not before.
fn check_prefix(failure: &Failure, subject: impl Fn(&Settings) -> Faulty) {
    let History { settings, inputs } = &failure.history;
    // Closer checks may be kinder to waits, so a run fails with those with which it was found.
    let fails_at_the_end = [1, AUDIT_EVERY].into_iter().any(|audit_every| {
        let mut watch = Watch::new(subject(settings), settings.clone(), audit_every);
        let failed_at = inputs.iter().position(|(now, input)| watch.step(*now, input).is_err());
        match failed_at {
            Some(place) => place + 1 == inputs.len(),
            None => inputs.last().is_some_and(|(now, _)| watch.inspect(*now).is_err()),
        }
    });
    assert!(fails_at_the_end, "{failure}");
    assert!(run_with(failure.plan, subject).is_err(), "{failure} cannot be repeated");
}

#[test]
fn a_panic_is_a_failure_with_its_inputs() {
    struct Panics(Engine);
    impl Subject for Panics {
        fn apply(&mut self, now: Millis, input: Input) -> Outcome {
            assert!(!matches!(input, Input::ReleaseResources { .. }), "cannot release");
            self.0.apply(now, input)
        }
        fn engine(&self) -> &Engine {
            &self.0
        }
    }
    let failure = run_with(plan(1), |settings: &Settings| Panics(new_engine(settings)));
    let failure = failure.unwrap_err();
    assert!(failure.what.contains("panic: cannot release"), "{failure}");
    let last = failure.history.inputs.last();
    assert!(matches!(last, Some((_, Input::ReleaseResources { .. }))), "{last:?}");
    assert!(replay(&failure.history).is_ok(), "the sound engine takes them");
}

#[test]
fn histories_survive_json() {
    // Whatever peers and operators do in a run can be written down and played again.
    for seed in 1..=5 {
        let mut history = History { settings: Settings::default(), inputs: Vec::new() };
        attempt(plan(seed), new_engine, 1, Some(&mut history)).unwrap();
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
    }
}

/// Names in the inputs of a run, for decisions of another cluster manager about them.
#[derive(Default)]
struct Named {
    requests: Vec<(Arc<str>, i32)>,
    nodes: Vec<Arc<str>>,
}

impl Named {
    fn note(&mut self, input: &Input) {
        match input {
            Input::RequestResources { handle, requests, .. }
            | Input::MoreRequests { handle, requests, .. } => {
                self.requests.extend(requests.iter().map(|request| (handle.clone(), request.id)));
            }
            Input::HeartbeatNode { report, .. } => self.nodes.push(report.name.clone()),
            _ => {}
        }
    }

    fn observed(&self, random: &mut Random) -> Option<Observed> {
        if self.requests.is_empty() || self.nodes.is_empty() {
            return None;
        }
        // Mostly recent names: earlier sessions have ended.
        let late = self.requests.len().saturating_sub(40);
        let (handle, id) = random.pick(&self.requests[late..]).clone();
        Some(match random.below(20) {
            0..=9 => Observed::Granted { handle, id, node: random.pick(&self.nodes).clone() },
            10..=13 => Observed::Waiting { handle, id },
            14..=17 => Observed::Lost { handle, id },
            18 => Observed::Ended { handle, status: SessionStatus::Killed },
            _ => Observed::Identity { id_prefix: ID_PREFIX.into(), sessions_numbered: 1 << 20 },
        })
    }
}

/// A shadow applies the decisions of another cluster manager, whether or not they agree with its
/// own.
#[test]
fn observed_decisions_keep_the_books_and_the_images_exact() {
    let mut entered = 0;
    for seed in 1..=60 {
        let mut history = History { settings: Settings::default(), inputs: Vec::new() };
        let plan = Plan { steps: 400, ..plan(seed) };
        attempt(plan, new_engine, 1, Some(&mut history)).unwrap();
        let mut random = Random::new(!seed);
        let mut named = Named::default();
        let mut first = new_engine(&history.settings);
        let mut second = new_engine(&history.settings);
        for (step, (now, input)) in history.inputs.into_iter().enumerate() {
            named.note(&input);
            let observed = random.percent(30).then(|| named.observed(&mut random)).flatten();
            for input in std::iter::once(input).chain(observed.map(Input::Observed)) {
                let outcome = first.apply(now, input.clone());
                assert_eq!(second.apply(now, input), outcome, "seed {seed}, step {step}");
                entered += u32::from(outcome.reply == Ok(Reply::Observed { entered: true }));
            }
            if step % 16 == 0 {
                first.audit().unwrap_or_else(|wrong| panic!("seed {seed}, step {step}: {wrong}"));
            }
            if random.percent(5) {
                second = restored(&second);
            }
        }
        assert_eq!(first.image(), second.image(), "seed {seed}");
    }
    assert!(entered > 500, "{entered}");
}
