//! Times of two cluster managers, compared by kind: how long each took from a cause to its decision.
//!
//! A pair is one decision that both made. A kind differs if its median does, or if too many of its
//! pairs do. It knows no clock, and its memory is bounded however many pairs there are.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{CountTable, Fact, TableRow};
use super::{Finding, Rule, Subject};

/// The kinds of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interval {
    /// From a request that prefers no host to its grant.
    GrantAnywhere,
    /// From a request to its grant on a preferred host.
    GrantPreferred,
    /// From a request to its grant on another host than it prefers.
    GrantElsewhere,
    /// From the last request of the same type to a revocation.
    Revocation,
    /// From the last heartbeat of a node to the notification of its death.
    NodeExpiry,
}

impl Interval {
    /// For a column of a table.
    pub fn name(self) -> &'static str {
        match self {
            Interval::GrantAnywhere => "grant, no host preferred",
            Interval::GrantPreferred => "grant on preferred host",
            Interval::GrantElsewhere => "grant on another host",
            Interval::Revocation => "revocation",
            Interval::NodeExpiry => "death of a node",
        }
    }

    /// What is measured, as a sentence continues.
    fn words(self) -> &'static str {
        match self {
            Interval::GrantAnywhere => "from a request without preferred hosts to its grant",
            Interval::GrantPreferred => "from a request to its grant on a preferred host",
            Interval::GrantElsewhere => "from a request to its grant on another host",
            Interval::Revocation => "from the last request to a revocation",
            Interval::NodeExpiry => "from the last heartbeat of a node to the report of its death",
        }
    }

    /// The settings that may be the cause of a difference.
    fn settings(self) -> &'static str {
        match self {
            Interval::GrantPreferred | Interval::GrantElsewhere => {
                "nodeLocalityWaitMAP and rackLocalityWaitMAP in the file of cm.config.file"
            }
            Interval::GrantAnywhere => {
                "weights, minima, maxima and order of the pools in the file of cm.pools.config.file"
            }
            Interval::Revocation => {
                "starvingTimeForMinimum, starvingTimeForShare, shareStarvingRatio and \
                 minPreemptPeriod in the file of cm.config.file"
            }
            Interval::NodeExpiry => "cm.node.expiryinterval",
        }
    }
}

/// How much two times may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// In either direction.
    pub time: Duration,
    /// How much earlier than the original this program may find a node dead: half of the expiry
    /// interval. Spec: cluster-manager/05 §5.
    pub early_expiry: Duration,
}

/// How late the original may make a decision that was possible at once: one pass of its scheduler
/// and a missed wake-up. Spec: cluster-manager/05 §4, 09 §4.6.
const TURN: Duration = Duration::from_millis(1_200);

/// The usual tolerance.
pub const USUAL_TOLERANCE: Duration = Duration::from_millis(500);

/// More outliers than this part of a kind are a difference.
const OUTLIERS_PERCENT: u64 = 5;

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { time: USUAL_TOLERANCE, early_expiry: Duration::ZERO }
    }
}

/// All kinds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    tolerance: Tolerance,
    kinds: BTreeMap<Interval, Pairs>,
}

/// The pairs of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// How many.
    pub compared: u64,
    /// Earlier on the side that is judged than the tolerance allows.
    pub early: u64,
    /// Later.
    pub late: u64,
    /// Of the early ones, those that a slow turn of the original explains.
    prompt: u64,
    recorded: Spread,
    live: Spread,
    difference: Spread,
    /// The first pair that is early or late: its time, its place, and both times.
    first: Option<(Duration, String, Duration, Duration)>,
}

/// A pair: the same decision on both sides.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// When the decision of the side that is recorded or in service was made.
    pub(crate) at: Duration,
    pub(crate) place: String,
    pub(crate) recorded: Duration,
    pub(crate) live: Duration,
}

impl Times {
    pub(crate) fn new(tolerance: Tolerance) -> Times {
        Times { tolerance, kinds: BTreeMap::new() }
    }

    /// The tolerance in either direction.
    pub fn tolerance(&self) -> Duration {
        self.tolerance.time
    }

    pub(crate) fn add(&mut self, kind: Interval, pair: Pair) {
        let Pair { at, place, recorded, live } = pair;
        let early_by = recorded.saturating_sub(live);
        let late_by = live.saturating_sub(recorded);
        let Tolerance { time, early_expiry } = self.tolerance;
        let allowed = match kind {
            Interval::NodeExpiry => time.saturating_add(early_expiry),
            _ => time,
        };
        let pairs = self.kinds.entry(kind).or_default();
        pairs.compared += 1;
        pairs.recorded.add(ms(recorded));
        pairs.live.add(ms(live));
        pairs.difference.add(ms(live).saturating_sub(ms(recorded)));
        let (is_early, is_late) = (early_by > allowed, late_by > time);
        pairs.early += u64::from(is_early);
        pairs.late += u64::from(is_late);
        pairs.prompt += u64::from(is_early && early_by <= TURN.saturating_add(time));
        if (is_early || is_late) && pairs.first.is_none() {
            pairs.first = Some((at, place, recorded, live));
        }
    }

    /// A decision that came later than recorded, as a row of the compatibility table explains.
    pub(crate) fn explained(&mut self, kind: Interval, pair: &Pair) {
        let pairs = self.kinds.entry(kind).or_default();
        pairs.compared += 1;
        pairs.recorded.add(ms(pair.recorded));
        pairs.live.add(ms(pair.live));
        pairs.difference.add(0);
    }

    /// All kinds that were compared.
    pub fn kinds(&self) -> impl Iterator<Item = (Interval, &Pairs)> {
        self.kinds.iter().map(|(kind, pairs)| (*kind, pairs))
    }

    /// The number of all pairs.
    pub fn compared(&self) -> u64 {
        self.kinds.values().map(|pairs| pairs.compared).sum()
    }

    /// The differences, at most one of a kind.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.kinds.iter().filter_map(|(kind, pairs)| self.finding(*kind, pairs)).collect()
    }

    fn finding(&self, kind: Interval, pairs: &Pairs) -> Option<Finding> {
        let (at, place, recorded, live) = pairs.first.as_ref()?;
        let outliers = pairs.early + pairs.late;
        let allowed = ms(self.tolerance.time);
        let early = match kind {
            Interval::NodeExpiry => allowed.saturating_add(ms(self.tolerance.early_expiry)),
            _ => allowed,
        };
        let median = pairs.difference.median();
        let median_differs = median > allowed || median < -early;
        // A slot that one request got later is one that another got earlier.
        let balanced = pairs.early.min(pairs.late) * 3 >= pairs.early.max(pairs.late);
        let is_grant = matches!(
            kind,
            Interval::GrantAnywhere | Interval::GrantPreferred | Interval::GrantElsewhere
        );
        let others = outliers - pairs.prompt;
        let rule = match () {
            () if is_grant && balanced => Some(Rule::FREE_ORDER),
            () if median_differs && kind == Interval::GrantAnywhere && others == 0 => {
                // Nothing makes such a request wait but the turn of a scheduler.
                Some(Rule::PROMPT_GRANTS)
            }
            () if median_differs => None,
            () if others == 0 => Some(Rule::PROMPT_GRANTS),
            () if others * 100 <= pairs.compared * OUTLIERS_PERCENT => return None,
            () => None,
        };
        let side = |median: i64, first: Duration| {
            let first = ms(first);
            match pairs.compared {
                1 => format!("{first} ms"),
                count => format!("median {median} ms of {count}; there {first} ms"),
            }
        };
        let both = (
            side(pairs.recorded.median(), *recorded),
            format!(
                "{}; {outliers} of {} differ by more than {allowed} ms. Settings that may be the \
                 cause: {}",
                side(pairs.live.median(), *live),
                pairs.compared,
                kind.settings()
            ),
        );
        let place = format!("the time {}, first {place}", kind.words());
        let found = Finding::of_words(*at, Subject::Time, place, both);
        Some(Finding { rule, ..found })
    }
}

impl Pairs {
    /// The median on the side that is recorded or in service, in milliseconds.
    pub fn recorded_ms(&self) -> i64 {
        self.recorded.median()
    }

    /// The median on the side that is judged, in milliseconds.
    pub fn live_ms(&self) -> i64 {
        self.live.median()
    }
}

/// The line about times in a report.
pub(crate) fn fact(times: &Times) -> Fact {
    let outliers: u64 = times.kinds().map(|(_, pairs)| pairs.early + pairs.late).sum();
    let (all, tolerance) = (times.compared(), times.tolerance().as_millis());
    let line = format!("{all} compared: {outliers} differ by more than {tolerance} ms");
    Fact::new("Times", line)
}

/// The medians by kind. `sides` are the heads of the two columns.
pub(crate) fn table(times: &Times, sides: [&'static str; 2]) -> CountTable<'static> {
    let unsigned = |ms: i64| ms.max(0).unsigned_abs();
    let row = |(kind, pairs): (Interval, &Pairs)| {
        let outliers = pairs.early + pairs.late;
        TableRow {
            method: kind.name(),
            differs: times.finding(kind, pairs).is_some_and(|finding| finding.rule.is_none()),
            counts: [
                pairs.compared,
                unsigned(pairs.recorded_ms()),
                unsigned(pairs.live_ms()),
                outliers,
            ],
        }
    };
    let [recorded, live] = sides;
    CountTable {
        heading: "Median times by kind",
        heads: ["Time to", "Compared", recorded, live, "Outliers"],
        rows: times.kinds().map(row).collect(),
    }
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds, counted in steps: exact below a second, then coarser.
#[derive(Clone, Debug, Default, PartialEq)]
struct Spread {
    counts: BTreeMap<i64, u64>,
    all: u64,
}

/// A larger time counts as this one: a day, in milliseconds.
const LONGEST_MS: i64 = 86_400_000;

impl Spread {
    fn add(&mut self, ms: i64) {
        let ms = ms.clamp(-LONGEST_MS, LONGEST_MS);
        let step = match ms.abs() {
            0..=999 => 1,
            1_000..=99_999 => 100,
            _ => 10_000,
        };
        *self.counts.entry(ms / step * step).or_default() += 1;
        self.all += 1;
    }

    /// The middle one, the lower of two; 0 if there is none.
    fn median(&self) -> i64 {
        let mut before = 0;
        let middle = self.all.div_ceil(2);
        for (value, count) in &self.counts {
            before += count;
            if before >= middle {
                return *value;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The finding about pairs of one kind, recorded and live, in milliseconds.
    fn found(kind: Interval, pairs: &[(u64, u64)]) -> Option<Option<Rule>> {
        let early_expiry = Duration::from_secs(4);
        let mut times = Times::new(Tolerance { early_expiry, ..Tolerance::default() });
        for (recorded, live) in pairs {
            let [recorded, live] = [recorded, live].map(|ms| Duration::from_millis(*ms));
            times.add(kind, Pair { at: Duration::ZERO, place: String::new(), recorded, live });
        }
        times.findings().first().map(|finding| finding.rule)
    }

    #[test]
    fn medians_and_outliers_decide() {
        use Interval::{GrantAnywhere, GrantElsewhere, GrantPreferred, NodeExpiry, Revocation};
        let many = |pair: (u64, u64), count: usize, more: &[(u64, u64)]| {
            [vec![pair; count], more.to_vec()].concat()
        };
        let (turn, order) = (Some(Rule::PROMPT_GRANTS), Some(Rule::FREE_ORDER));
        for (name, kind, pairs, expected) in [
            ("nothing", GrantAnywhere, vec![], None),
            ("the same", GrantAnywhere, vec![(3, 5), (1_000, 1_400)], None),
            ("a wait of 1 s is gone", GrantElsewhere, vec![(1_003, 2)], Some(None)),
            ("a wait of 2 s is gone", GrantPreferred, vec![(2_003, 2)], Some(None)),
            ("a wait is new", GrantElsewhere, vec![(2, 2_003)], Some(None)),
            ("a slow turn", GrantAnywhere, vec![(1_003, 2)], Some(turn)),
            (
                "a slow turn among others",
                GrantPreferred,
                many((2, 2), 9, &[(1_100, 3)]),
                Some(turn),
            ),
            ("more than a turn", GrantAnywhere, vec![(1_800, 2)], Some(None)),
            ("one much later", GrantAnywhere, many((2, 2), 9, &[(2, 5_000)]), Some(None)),
            ("one of many", GrantAnywhere, many((2, 2), 99, &[(2, 5_000)]), None),
            ("exchanged", GrantAnywhere, vec![(5_000, 2), (2, 5_000)], Some(order)),
            ("starving is gone", Revocation, vec![(1_500, 1)], Some(None)),
            ("expired at once", NodeExpiry, vec![(12_000, 8_000)], None),
            ("expired too early", NodeExpiry, vec![(12_000, 2_000)], Some(None)),
            ("expired late", NodeExpiry, vec![(8_000, 12_000)], Some(None)),
        ] {
            assert_eq!(found(kind, &pairs), expected, "{name}");
        }
    }

    #[test]
    fn a_spread_is_bounded() {
        let mut spread = Spread::default();
        for ms in -200_000..200_000 {
            spread.add(ms * 1_000);
        }
        assert!(spread.counts.len() < 25_000, "{}", spread.counts.len());
        assert_eq!((spread.all, spread.median().abs() <= 1_000), (400_000, true));
    }
}
