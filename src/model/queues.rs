//! The rules of a tree of queues: everything that a pools file can say beyond the original's two levels.
//!
//! A *queue* is a group or a pool. Groups nest, and each group's name is unique in the file, so that
//! `group.pool` names one pool, and so does its path, such as `revenue.ads.etl`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::form::{Later, SIXTH};
use crate::types::{PerType, PoolName, SessionInfo};

/// Groups within groups at most, the outermost one counted.
pub const MAX_DEPTH: usize = 16;

/// The rules of all queues that have any; empty for a file of two levels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queues {
    /// The groups' rules, by name.
    pub groups: BTreeMap<Arc<str>, QueueRules>,
    /// The pools' rules.
    #[serde(with = "crate::settings::by_pool")]
    pub pools: BTreeMap<PoolName, QueueRules>,
    /// Where sessions go that name no queue; in order.
    pub placement: Vec<Placement>,
}

/// A queue's rules. The default ones are those of the original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueRules {
    /// The group around a group; none for the outermost ones.
    pub parent: Option<Arc<str>>,
    /// A group's weight among its siblings. That of a pool is in its settings.
    pub weight: f64,
    /// The part of the parent's minimum that is guaranteed, in place of a number of slots.
    pub minimum: PerType<Option<Part>>,
    /// The part of the parent's maximum that is the most, in place of a number of slots.
    pub maximum: PerType<Option<Part>>,
    /// The limits in resources, of all types together.
    pub quotas: Later<Quotas, SIXTH>,
    /// How the queues in a group are ordered.
    pub order: SiblingOrder,
    /// Whether others may use what is guaranteed and not used.
    pub lend: bool,
    /// Which grants may be taken back.
    pub preemption: PreemptionRule,
    /// Milliseconds for which a grant is safe from preemption; absent for those of the parent.
    pub min_runtime_ms: Option<i64>,
    /// Sessions that are given grants at a time; later ones wait for their turn.
    pub max_sessions: Option<u32>,
    /// Slots of each type that the sessions of one user hold at most.
    pub max_per_user: Option<u32>,
    /// As `max_sessions`, for each user.
    pub max_sessions_per_user: Option<u32>,
    /// Who may start sessions; absent for those of the parent.
    pub submit: Option<Submitters>,
    /// Whether no more sessions may start.
    pub draining: bool,
    /// Whether it is in no file any more, and stays until its sessions have ended.
    pub vanished: bool,
    /// Where sessions go that name this group and no pool of it; in order.
    pub placement: Vec<Placement>,
}

/// A queue's limits in resources, by dimension. They count in clusters that count the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quotas {
    /// The guaranteed amounts.
    pub minimum: [Option<Quota>; 4],
    /// The most.
    pub maximum: [Option<Quota>; 4],
}

/// A limit of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quota {
    /// So much, in the unit of the dimension.
    Amount(u64),
    /// A part of the limit of the group around the queue; for outermost groups of the cluster.
    Part(Part),
}

/// A part of a whole, in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part(pub u32);

/// How the queues in a group are ordered, and slots shared among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SiblingOrder {
    /// Those below their minimum, then the higher priority, then the fewest grants for the weight.
    #[default]
    Priority,
    /// The same without priorities.
    Fair,
    /// Strictly by what is guaranteed: the smallest part of the minimum in use, then those without a
    /// minimum.
    Capacity,
}

/// Which grants may be taken back for or from a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptionRule {
    /// Any above a share.
    #[default]
    Default,
    /// Queues inside take only from queues inside.
    Fence,
    /// None are taken from queues inside.
    Disabled,
}

/// Users and groups of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitters {
    /// Everybody.
    pub all: bool,
    /// By name.
    pub users: Vec<Arc<str>>,
    /// Every member of these.
    pub groups: Vec<Arc<str>>,
}

/// A rule that finds the queue of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// What the pool is named after.
    pub by: PlaceBy,
    /// The group of the pool.
    pub to: Arc<str>,
    /// Whether a pool that the file does not have is made.
    pub create: bool,
}

/// What a pool is named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceBy {
    /// The session's user.
    User,
    /// The first group of the session's user.
    Group,
    /// The pool that the session names.
    Name,
}

impl Default for QueueRules {
    fn default() -> Self {
        QueueRules {
            parent: None,
            weight: 1.0,
            minimum: PerType::all(None),
            maximum: PerType::all(None),
            quotas: Later::default(),
            order: SiblingOrder::default(),
            lend: true,
            preemption: PreemptionRule::default(),
            min_runtime_ms: None,
            max_sessions: None,
            max_per_user: None,
            max_sessions_per_user: None,
            submit: None,
            draining: false,
            vanished: false,
            placement: Vec::new(),
        }
    }
}

impl QueueRules {
    /// The rules of a queue that is in no file any more: it guarantees nothing, and takes no more sessions.
    pub fn vanished(&self) -> QueueRules {
        QueueRules {
            minimum: PerType::all(None),
            quotas: Later(Quotas { minimum: [None; 4], ..*self.quotas }),
            lend: true,
            draining: true,
            vanished: true,
            placement: Vec::new(),
            ..self.clone()
        }
    }
}

impl Queues {
    /// Whether there are none: the file has two levels.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.pools.is_empty() && self.placement.is_empty()
    }

    /// The groups from an outermost one to this one.
    pub fn path(&self, group: &Arc<str>) -> Vec<Arc<str>> {
        let mut path = vec![group.clone()];
        while let Some(parent) = path.last().and_then(|group| self.named_parent(group)) {
            path.push(parent.clone());
            if path.len() > 2 * MAX_DEPTH {
                // No file has that, even with groups that have vanished from an earlier one.
                return vec![group.clone()];
            }
        }
        path.reverse();
        path
    }

    /// The path of a group as people write it: `revenue.ads`.
    pub fn path_text(&self, group: &Arc<str>) -> Arc<str> {
        match self.named_parent(group) {
            None => group.clone(),
            Some(_) => self.path(group).join(".").into(),
        }
    }

    /// The group around a group.
    pub fn parent(&self, group: &Arc<str>) -> Option<Arc<str>> {
        self.named_parent(group)?;
        self.path(group).into_iter().rev().nth(1)
    }

    fn named_parent(&self, group: &str) -> Option<&Arc<str>> {
        self.groups.get(group)?.parent.as_ref()
    }

    /// The name on the wire for a name that may be a path: `ads.etl` for `revenue.ads.etl`, wherever that was
    /// cut into group and pool. A name that is no path of the tree stays as it is.
    pub fn resolved(&self, name: &PoolName) -> PoolName {
        let whole = format!("{}.{}", name.group, name.pool);
        let found = whole.rsplit_once('.').and_then(|(path, pool)| {
            let (_, last) = path.rsplit_once('.')?;
            let group: Arc<str> = last.into();
            let is_path = *self.path_text(&group) == *path;
            is_path.then(|| PoolName { group, pool: pool.into() })
        });
        found.unwrap_or_else(|| name.clone())
    }
}

impl Submitters {
    /// Whether a session may be started by whom it names.
    pub fn allow(&self, info: &SessionInfo) -> bool {
        let member =
            |group: &Arc<str>| info.group_ids.as_ref().is_some_and(|groups| groups.contains(group));
        self.all || self.users.contains(&info.user_id) || self.groups.iter().any(member)
    }
}

impl Part {
    /// The whole.
    pub const WHOLE: Part = Part(10_000);

    /// The part of a number, rounded down.
    pub fn of(self, whole: i64) -> i64 {
        self.times(whole).div_euclid(i128::from(Part::WHOLE.0)).try_into().unwrap_or(i64::MAX)
    }

    /// The part of a number, rounded up.
    pub fn at_least_of(self, whole: i64) -> i64 {
        let unit = i128::from(Part::WHOLE.0);
        (self.times(whole) + unit - 1).div_euclid(unit).try_into().unwrap_or(i64::MAX)
    }

    /// The part of an amount, rounded down.
    pub fn of_amount(self, whole: u64) -> u64 {
        u64::try_from(self.of(i64::try_from(whole).unwrap_or(i64::MAX))).unwrap_or(0)
    }

    /// The part of an amount, rounded up.
    pub fn at_least_of_amount(self, whole: u64) -> u64 {
        u64::try_from(self.at_least_of(i64::try_from(whole).unwrap_or(i64::MAX))).unwrap_or(0)
    }

    fn times(self, whole: i64) -> i128 {
        i128::from(self.0) * i128::from(whole.max(0))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, rest) if rest % 10 == 0 => write!(f, "{whole}.{}%", rest / 10),
            (whole, rest) => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

impl SiblingOrder {
    /// Its name in the pools file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Priority => "PRIORITY",
            Self::Fair => "FAIR",
            Self::Capacity => "CAPACITY",
        }
    }
}

impl PreemptionRule {
    /// Its name in the pools file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fence => "fence",
            Self::Disabled => "disabled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_towards_safety_and_read_as_written() {
        let third = Part(3_333);
        assert_eq!((third.of(10), third.at_least_of(10)), (3, 4));
        assert_eq!((Part::WHOLE.of(7), Part::WHOLE.at_least_of(7)), (7, 7));
        assert_eq!((third.of(-5), third.at_least_of(0)), (0, 0));
        let shown = [2_500, 1_250, 1_205, 10_000].map(|part| Part(part).to_string());
        assert_eq!(shown, ["25%", "12.5%", "12.05%", "100%"]);
    }

    #[test]
    fn a_path_leads_to_the_innermost_group() {
        let mut queues = Queues::default();
        let inside = QueueRules { parent: Some("revenue".into()), ..QueueRules::default() };
        queues.groups.insert("ads".into(), inside);
        assert_eq!(*queues.path_text(&"ads".into()), *"revenue.ads");
        let name = |group: &str| PoolName::new(group, "etl");
        assert_eq!(queues.resolved(&name("revenue.ads")), name("ads"));
        assert_eq!(queues.resolved(&name("ads")), name("ads"));
        assert_eq!(queues.resolved(&name("other.ads")), name("other.ads"));
        // As programs cut it that know two levels.
        assert_eq!(queues.resolved(&PoolName::new("revenue", "ads.etl")), name("ads"));
        let other = PoolName::new("revenue", "other.etl");
        assert_eq!(queues.resolved(&other), other);
    }
}
