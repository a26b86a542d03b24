//! Resources of nodes and requests, for clusters that count them instead of slots alone.
//!
//! See [resources.md](../../docs/operate/resources.md). A cluster counts none of them unless it is configured to;
//! then all amounts here are zero.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use crate::form::{FIFTH, Later, THIRD};
use crate::queues::Part;
use crate::types::{ComputeSpecs, PerType, ResourceType};

/// What nodes have and requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    /// Processors.
    Cpus,
    /// Megabytes of memory.
    Memory,
    /// Gigabytes of disk space.
    Disk,
    /// Megabytes a second.
    Network,
}

impl Dimension {
    /// All of them; each one's number is its place here.
    pub const ALL: [Dimension; 4] =
        [Dimension::Cpus, Dimension::Memory, Dimension::Disk, Dimension::Network];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Cpus => "cpus",
            Dimension::Memory => "memory",
            Dimension::Disk => "disk",
            Dimension::Network => "network",
        }
    }

    /// The dimension of this name.
    pub fn from_name(name: &str) -> Option<Dimension> {
        Dimension::ALL.into_iter().find(|dimension| dimension.name() == name)
    }

    /// The item of this dimension in a list with one item for each.
    #[allow(clippy::indexing_slicing, reason = "each of the four has its place in a list of four")]
    pub fn item<T>(self, all: &[T; 4]) -> &T {
        &all[self as usize]
    }

    /// The same item, to change it.
    #[allow(clippy::indexing_slicing, reason = "each of the four has its place in a list of four")]
    pub fn item_mut<T>(self, all: &mut [T; 4]) -> &mut T {
        &mut all[self as usize]
    }

    /// An amount with its unit, such as `1 CPU`.
    fn text(self, amount: u64) -> String {
        match self {
            Dimension::Cpus if amount == 1 => "1 CPU".to_owned(),
            Dimension::Cpus => format!("{amount} CPUs"),
            Dimension::Memory => format!("{amount} MB of memory"),
            Dimension::Disk => format!("{amount} GB of disk"),
            Dimension::Network => format!("{amount} MB/s of network"),
        }
    }

    /// An amount for people who compare it, such as `2.5 GB`.
    pub fn short(self, amount: u64) -> String {
        let in_thousands = |unit: &str, larger: &str| match amount {
            ..1_024 => format!("{amount} {unit}"),
            _ => {
                let tenths = (u128::from(amount) * 10 + 512) / 1_024;
                match tenths % 10 {
                    0 => format!("{} {larger}", tenths / 10),
                    tenth => format!("{}.{tenth} {larger}", tenths / 10),
                }
            }
        };
        match self {
            Dimension::Cpus => amount.to_string(),
            Dimension::Memory => in_thousands("MB", "GB"),
            Dimension::Disk => in_thousands("GB", "TB"),
            Dimension::Network => format!("{amount} MB/s"),
        }
    }

    /// The same with its name, such as `2.5 GB of memory`.
    pub fn brief(self, amount: u64) -> String {
        match self {
            Dimension::Cpus => self.text(amount),
            Dimension::Memory | Dimension::Disk | Dimension::Network => {
                format!("{} of {}", self.short(amount), self.name())
            }
        }
    }

    /// How what is free is spread over nodes: `120 GB of memory are free, the largest place has 3 GB`.
    pub fn spread(self, free: u64, largest: u64) -> String {
        let verb = if self == Dimension::Cpus && free == 1 { "is" } else { "are" };
        format!("{} {verb} free, the largest place has {}", self.brief(free), self.short(largest))
    }

    /// What a node uses, by its report of all and of what is free. Of CPUs it reports what is used, as the original's
    /// nodes do, and of the network nothing.
    pub fn used(self, total: &ComputeSpecs, free: &ComputeSpecs) -> Option<u64> {
        match self {
            Dimension::Cpus => self.of(free),
            Dimension::Memory | Dimension::Disk => {
                Some(self.of(total)?.saturating_sub(self.of(free)?))
            }
            Dimension::Network => None,
        }
    }

    /// What a report or a request says; absent numbers are absent.
    pub fn of(self, specs: &ComputeSpecs) -> Option<u64> {
        let number = match self {
            Dimension::Cpus => Some(i32::from(specs.num_cpus)),
            Dimension::Memory => specs.memory_mb,
            Dimension::Disk => specs.disk_gb,
            Dimension::Network => specs.network_mbps.map(i32::from),
        };
        number.map(|number| u64::try_from(number).unwrap_or(0))
    }
}

/// An amount of each dimension, in its unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Amounts(pub [u64; 4]);

impl Amounts {
    /// Nothing of anything.
    pub const ZERO: Amounts = Amounts([0; 4]);
    /// More of everything than there is.
    pub const MOST: Amounts = Amounts([u64::MAX; 4]);

    /// Whether each amount is at most that of `room`.
    #[inline]
    pub fn fits(&self, room: &Amounts) -> bool {
        self.0.iter().zip(&room.0).all(|(own, room)| own <= room)
    }

    /// The sum.
    #[inline]
    pub fn plus(self, more: Amounts) -> Amounts {
        self.with(more, u64::saturating_add)
    }

    /// The difference; nothing where there is less.
    #[inline]
    pub fn minus(self, less: Amounts) -> Amounts {
        self.with(less, u64::saturating_sub)
    }

    /// The smaller amount of each dimension.
    #[inline]
    pub fn least(self, other: Amounts) -> Amounts {
        self.with(other, u64::min)
    }

    /// The larger amount of each dimension.
    #[inline]
    pub fn most(self, other: Amounts) -> Amounts {
        self.with(other, u64::max)
    }

    /// The largest part that this is of `whole` in any dimension, in parts of 2^32. Dimensions of which
    /// there is nothing do not count.
    #[inline]
    pub fn dominant_share(&self, whole: &Amounts) -> i64 {
        let parts = self.0.iter().zip(&whole.0).filter(|(_, whole)| **whole > 0);
        // Most amounts are below 2^32, and a division of 64 bits is much faster.
        let part = |own: u64, whole: u64| match own >> 32 {
            0 => i64::try_from((own << 32) / whole).unwrap_or(i64::MAX),
            _ => i64::try_from((u128::from(own) << 32) / u128::from(whole)).unwrap_or(i64::MAX),
        };
        parts.map(|(own, whole)| part(*own, *whole)).max().unwrap_or(0)
    }

    /// The largest part that this is of `whole` in any dimension, for the weight, without rounding.
    pub fn portion(&self, whole: &Amounts, weight: f64) -> Portion {
        let weight = in_thousandths(weight);
        let parts = self.0.iter().zip(&whole.0).filter(|(_, whole)| **whole > 0);
        let portions = parts.map(|(own, whole)| Portion { own: *own, whole: *whole, weight });
        portions.max().unwrap_or(Portion { own: 0, whole: 1, weight })
    }

    /// Such as `2 CPUs, 2.5 GB of memory`; empty for none.
    pub fn brief(&self) -> String {
        let some = Dimension::ALL.into_iter().filter(|dimension| self[*dimension] > 0);
        some.map(|dimension| dimension.brief(self[dimension])).collect::<Vec<_>>().join(", ")
    }

    /// With so many binary digits, the others zero.
    pub fn rounded_up(self, digits: u32) -> Amounts {
        let up = |amount: u64| {
            let unit = 1_u64 << (u64::BITS - amount.leading_zeros()).saturating_sub(digits);
            amount.div_ceil(unit).saturating_mul(unit)
        };
        Amounts(self.0.map(up))
    }

    #[allow(clippy::indexing_slicing, reason = "all three lists have four items")]
    fn with(self, other: Amounts, both: impl Fn(u64, u64) -> u64) -> Amounts {
        Amounts(std::array::from_fn(|at| both(self.0[at], other.0[at])))
    }
}

/// A weight in thousandths. It is at least one, since portions for a weight of 0 would all be equal, and at most so large
/// that no product in a comparison overflows.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 2^50")]
fn in_thousandths(weight: f64) -> u64 {
    (weight * 1_000.0).round().clamp(1.0, (1_u64 << 50) as f64) as u64
}

/// A part of a whole for a weight. Portions are compared exactly: however large a cluster is, a small task counts,
/// and equal shares are equal.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    own: u64,
    whole: u64,
    /// In thousandths.
    weight: u64,
}

impl Portion {
    /// Whether this is less than a part of another portion, in thousandths.
    pub fn is_below(self, thousandths: u64, other: Portion) -> bool {
        let own = Portion { weight: self.weight.saturating_mul(thousandths), ..self };
        let other = Portion { weight: other.weight.saturating_mul(1_000), ..other };
        own < other
    }

    /// The product of three numbers, its last 64 bits apart.
    fn product(first: u64, second: u64, third: u64) -> (u128, u64) {
        const LAST: u128 = 0xffff_ffff_ffff_ffff;
        let both = u128::from(first) * u128::from(second);
        let low = (both & LAST) * u128::from(third);
        ((both >> 64) * u128::from(third) + (low >> 64), (low & LAST) as u64)
    }
}

impl Ord for Portion {
    fn cmp(&self, other: &Self) -> Ordering {
        Portion::product(self.own, other.whole, other.weight).cmp(&Portion::product(
            other.own,
            self.whole,
            self.weight,
        ))
    }
}

impl PartialOrd for Portion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Portion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Portion {}

impl Index<Dimension> for Amounts {
    type Output = u64;
    #[inline]
    fn index(&self, dimension: Dimension) -> &u64 {
        dimension.item(&self.0)
    }
}

impl IndexMut<Dimension> for Amounts {
    #[inline]
    fn index_mut(&mut self, dimension: Dimension) -> &mut u64 {
        dimension.item_mut(&mut self.0)
    }
}

/// Such as `2 CPUs and 4096 MB of memory`; `nothing` for none.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = Dimension::ALL
            .into_iter()
            .filter(|dimension| self[*dimension] > 0)
            .map(|dimension| dimension.text(self[dimension]))
            .collect();
        match texts.split_last() {
            None => f.write_str("nothing"),
            Some((last, [])) => f.write_str(last),
            Some((last, first)) => write!(f, "{} and {last}", first.join(", ")),
        }
    }
}

/// Which resources a cluster counts, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The dimensions that are counted: `corona.cm.resources`. None for slots alone.
    pub counted: [bool; 4],
    /// How much of what a node reports is given out: `corona.cm.overcommit.<dimension>`
    pub overcommit: [Part; 4],
    /// What a request takes that does not say it: `corona.cm.request.default.<TYPE>.<dimension>`
    pub requested: PerType<Amounts>,
    /// How long a request waits before a node is reserved for it.
    pub reservation: Later<ReserveAfter, THIRD>,
    /// How long a node is reserved at most.
    pub reservation_limit: Later<ReservationLimit, FIFTH>,
}

/// How long a node is reserved for a request at most, in milliseconds: `corona.cm.reservation.limit.ms`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationLimit(pub i64);

impl ReservationLimit {
    /// The default: an hour.
    pub const DEFAULT_MS: i64 = 3_600_000;
}

impl Default for ReservationLimit {
    fn default() -> Self {
        ReservationLimit(ReservationLimit::DEFAULT_MS)
    }
}

/// How long a request that an empty node could serve waits before one is reserved for it, in milliseconds:
/// `corona.cm.reservation.after.ms`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveAfter(pub i64);

impl ReserveAfter {
    /// No node is ever reserved, as in settings of earlier versions.
    pub const NEVER: ReserveAfter = ReserveAfter(i64::MAX);
}

impl Default for ReserveAfter {
    fn default() -> Self {
        ReserveAfter::NEVER
    }
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            counted: [false; 4],
            overcommit: [Part::WHOLE; 4],
            requested: PerType::all(Amounts([1, 1_024, 10, 10])),
            reservation: Later::default(),
            reservation_limit: Later::default(),
        }
    }
}

impl Resources {
    /// Whether any are counted.
    pub fn are_counted(&self) -> bool {
        self.counted.contains(&true)
    }

    /// The dimensions that are counted.
    pub fn dimensions(&self) -> impl Iterator<Item = Dimension> + '_ {
        Dimension::ALL.into_iter().filter(|dimension| *dimension.item(&self.counted))
    }

    /// Slots that a request takes: its CPUs, where only slots are counted, at least 1.
    pub fn slots(&self, specs: Option<ComputeSpecs>) -> u16 {
        match specs {
            Some(specs) if !self.are_counted() => u16::try_from(specs.num_cpus).unwrap_or(1).max(1),
            _ => 1,
        }
    }

    /// What a request takes: in each dimension that is counted at least 1.
    pub fn demand(&self, kind: ResourceType, specs: Option<ComputeSpecs>) -> Amounts {
        let mut demand = Amounts::ZERO;
        let specs = specs.filter(|specs| !says_nothing(specs));
        for dimension in self.dimensions() {
            let asked = specs.and_then(|specs| dimension.of(&specs)).filter(|asked| *asked > 0);
            demand[dimension] = asked.unwrap_or(self.requested[kind][dimension]).max(1);
        }
        demand
    }

    /// What a node gives out of what it reports, less what it must keep.
    pub fn capacity(&self, total: &ComputeSpecs, kept: Amounts) -> Amounts {
        let mut capacity = Amounts::ZERO;
        for dimension in self.dimensions() {
            let total = i64::try_from(dimension.of(total).unwrap_or(0)).unwrap_or(i64::MAX);
            let given = dimension.item(&self.overcommit).of(total);
            capacity[dimension] = u64::try_from(given).unwrap_or(0).saturating_sub(kept[dimension]);
        }
        capacity
    }
}

/// Whether these are the numbers that the original's job trackers send for each task, whatever it needs.
/// Reduces differ from maps in the network.
pub fn says_nothing(specs: &ComputeSpecs) -> bool {
    let ComputeSpecs { num_cpus, network_mbps, memory_mb, disk_gb } = *specs;
    (num_cpus, memory_mb, disk_gb) == (1, Some(1_024), Some(10))
        && matches!(network_mbps, Some(10 | 50))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(num_cpus: i16, memory_mb: Option<i32>, disk_gb: Option<i32>) -> ComputeSpecs {
        ComputeSpecs { num_cpus, network_mbps: Some(10), memory_mb, disk_gb }
    }

    fn counting(counted: [bool; 4]) -> Resources {
        let requested = PerType([3, 4, 5].map(|cpus| Amounts([cpus, 300, 30, 3])));
        Resources { counted, requested, ..Resources::default() }
    }

    #[test]
    fn requests_take_what_they_say_or_the_default() {
        use ResourceType::{Map, Reduce};
        let both = counting([true, true, false, false]);
        for (kind, asked, slots, demand) in [
            (Map, None, 1, [3, 300, 0, 0]),
            (Map, Some(specs(7, Some(50), Some(9))), 1, [7, 50, 0, 0]),
            (Reduce, Some(specs(1, Some(1_024), Some(10))), 1, [4, 300, 0, 0]),
            (Map, Some(specs(1, Some(1_024), Some(9))), 1, [1, 1_024, 0, 0]),
            (Map, Some(specs(-1, Some(-1), None)), 1, [3, 300, 0, 0]),
        ] {
            assert_eq!((both.slots(asked), both.demand(kind, asked)), (slots, Amounts(demand)));
        }
        let slots = counting([false; 4]);
        for (asked, expected) in [(None, 1), (Some(-3), 1), (Some(0), 1), (Some(7), 7)] {
            let asked = asked.map(|cpus| specs(cpus, None, None));
            assert_eq!((slots.slots(asked), slots.demand(Map, asked)), (expected, Amounts::ZERO));
        }
    }

    #[test]
    fn nodes_give_a_part_of_what_they_have_less_what_they_keep() {
        let mut resources = counting([true, true, true, false]);
        resources.overcommit[0] = Part(15_000);
        resources.overcommit[1] = Part(9_050);
        let kept = Amounts([0, 100, 50, 0]);
        let capacity = |total| resources.capacity(&total, kept);
        assert_eq!(capacity(specs(3, Some(1_000), Some(10))), Amounts([4, 805, 0, 0]));
        assert_eq!(capacity(specs(-1, None, Some(60))), Amounts([0, 0, 10, 0]));
    }

    #[test]
    fn the_largest_part_is_the_dominant_share() {
        let whole = Amounts([10, 1_000, 0, 0]);
        let share = |cpus, memory| Amounts([cpus, memory, 7, 0]).dominant_share(&whole);
        assert_eq!(share(5, 100), 1 << 31);
        assert_eq!(share(1, 750), 3 << 30);
        assert_eq!(Amounts([u64::MAX; 4]).dominant_share(&Amounts([1; 4])), i64::MAX);
        assert_eq!(share(0, 0), 0);
    }

    #[test]
    fn portions_are_compared_exactly_in_clusters_of_any_size() {
        // 50,000 nodes of 20 TB: a megabyte is less than a part of 2^32.
        let whole = Amounts([3_200_000, 50_000 * 20 * 1_024 * 1_024, 0, 0]);
        let memory = |own| Amounts([0, own, 0, 0]);
        assert_eq!(memory(1).dominant_share(&whole), 0);
        let of = |amounts: Amounts, weight| amounts.portion(&whole, weight);
        assert!(of(memory(1), 1.0) > of(memory(0), 1.0));
        assert!(of(memory(7), 1.0) < of(memory(8), 1.0));
        // A third of the CPUs is a third of the memory, and two thirds with twice the weight.
        let odd = Amounts([3, 3_000_000_000_001 * 3, 0, 0]);
        let third = |own: [u64; 2], weight| Amounts([own[0], own[1], 0, 0]).portion(&odd, weight);
        assert_eq!(third([1, 0], 1.0), third([0, 3_000_000_000_001], 1.0));
        assert_eq!(third([1, 0], 1.0), third([0, 6_000_000_000_002], 2.0));
        assert!(third([1, 0], 1.0) < third([0, 3_000_000_000_002], 1.0));
        assert!(third([1, 0], 1.0) < third([1, 0], 0.999));
        let most = Amounts([u64::MAX; 4]).portion(&Amounts([u64::MAX; 4]), f64::MAX);
        assert_eq!(most, Amounts([5, 1, 1, 1]).portion(&Amounts([5; 4]), f64::MAX));
        let (half, two_thirds) = (third([1, 0], 1.0), third([2, 0], 1.0));
        assert!(half.is_below(501, two_thirds) && !half.is_below(500, two_thirds));
        assert!(!half.is_below(0, two_thirds));
    }

    #[test]
    fn free_resources_are_compared_in_a_sentence() {
        let spread = |dimension: Dimension, free, largest| dimension.spread(free, largest);
        for (said, expected) in [
            (
                spread(Dimension::Memory, 122_880, 3_072),
                "120 GB of memory are free, the largest place has 3 GB",
            ),
            (
                spread(Dimension::Memory, 2_560, 1_000),
                "2.5 GB of memory are free, the largest place has 1000 MB",
            ),
            (spread(Dimension::Cpus, 60, 3), "60 CPUs are free, the largest place has 3"),
            (spread(Dimension::Cpus, 1, 1), "1 CPU is free, the largest place has 1"),
            (
                spread(Dimension::Disk, 2_048, 0),
                "2 TB of disk are free, the largest place has 0 GB",
            ),
            (
                spread(Dimension::Network, 5_000, 7),
                "5000 MB/s of network are free, the largest place has 7 MB/s",
            ),
        ] {
            assert_eq!(said, expected);
        }
        assert_eq!(Amounts([2, 2_560, 0, 0]).brief(), "2 CPUs, 2.5 GB of memory");
        assert_eq!(Amounts::ZERO.brief(), "");
        assert_eq!(Dimension::Memory.short(u64::MAX), "18014398509481984 GB");
    }

    #[test]
    fn a_node_uses_the_part_that_is_not_free_except_of_cpus() {
        let (total, free) = (specs(8, Some(1_000), None), specs(3, Some(400), Some(-1)));
        let used = Dimension::ALL.map(|dimension| dimension.used(&total, &free));
        assert_eq!(used, [Some(3), Some(600), None, None]);
        let none = specs(8, Some(1_000), Some(50));
        assert_eq!(Dimension::Disk.used(&none, &free), Some(50), "less than nothing is free");
    }

    #[test]
    fn amounts_read_as_a_sentence() {
        assert_eq!(Amounts::ZERO.to_string(), "nothing");
        assert_eq!(Amounts([1, 0, 0, 0]).to_string(), "1 CPU");
        let all = Amounts([2, 512, 3, 4]).to_string();
        assert_eq!(all, "2 CPUs, 512 MB of memory, 3 GB of disk and 4 MB/s of network");
    }
}
