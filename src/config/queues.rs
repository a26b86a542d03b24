//! The attributes of groups and pools in the pools file: the rules of a tree of queues.
//!
//! A file without any of them, and without groups in groups, has two levels as in the original, whose
//! settings are elements; see `pools`.

use std::collections::BTreeMap;

use super::fields::{Context, Field};
use super::problem::{Origin, Problem, ProblemKind};
use super::quotas::{self, Limit, Member};
use super::suggest::similar;
use super::typed::{self, Wrong, whole};
use super::xml::Element;
use corona_model::queues::{
    Part, PlaceBy, Placement, PreemptionRule, QueueRules, SiblingOrder, Submitters,
};
use corona_model::resources::Dimension;
use corona_model::settings::{Pools, SchedulingMode};
use corona_model::types::{PerType, PoolName, ResourceType};

/// The element of a placement rule.
pub(super) const PLACE: &str = "place";

const NAMES: [&str; 13] = [
    "weight",
    "min",
    "max",
    "order",
    "lend",
    "preemption",
    "minRuntime",
    "maxSessions",
    "maxPerUser",
    "maxSessionsPerUser",
    "submit",
    "state",
    "name",
];

/// The settings of a queue that attributes change.
pub(super) struct Target<'a> {
    pub(super) minimum: &'a mut PerType<i32>,
    pub(super) maximum: &'a mut PerType<i32>,
    pub(super) rules: &'a mut QueueRules,
    /// The weight and mode of a pool; a group has its own in its rules.
    pub(super) pool: Option<(&'a mut f64, &'a mut Option<SchedulingMode>)>,
}

/// Reads the attributes of a group or a pool.
pub(super) fn attributes(
    element: &Element,
    subject: &str,
    context: Context,
    target: &mut Target<'_>,
    problems: &mut Vec<Problem>,
) {
    // Limits of one type go before those of all types, wherever they stand.
    let (all, each): (Vec<_>, Vec<_>) =
        element.attributes().partition(|(name, _)| ["min", "max"].contains(name));
    for (name, text) in all.into_iter().chain(each) {
        if name == "name" {
            continue;
        }
        let subject = format!("{subject}: {name}");
        let field = Field { subject: &subject, text, origin: &element.origin };
        if limited(name, context).is_some() {
            problems.extend(quotas::without_effect(&field, context.counted));
        }
        if let Err(problem) = attribute(name, &field, context, target) {
            problems.push(problem);
        }
    }
    let rules = &target.rules;
    let any = |numbers: &PerType<i32>, parts: &PerType<Option<Part>>| {
        numbers.0.iter().any(|number| *number > 0)
            || parts.0.iter().flatten().any(|part| part.0 > 0)
    };
    let has_minimum = any(target.minimum, &rules.minimum) || rules.quotas.minimum != [None; 4];
    if !rules.lend && !has_minimum && target.pool.is_some() {
        let what = "has no effect: there is no minimum that others could use";
        problems.push(warning(element, format!("{subject}: lend"), what));
    }
}

fn attribute(
    name: &str,
    field: &Field<'_>,
    context: Context,
    target: &mut Target<'_>,
) -> Result<(), Problem> {
    if let Some((of_maximum, kinds)) = limited(name, context) {
        let limits = quotas::limits(field, !["min", "max"].contains(&name))?;
        let rules = &mut *target.rules;
        let (numbers, parts, quotas) = match of_maximum {
            true => (&mut *target.maximum, &mut rules.maximum, &mut rules.quotas.maximum),
            false => (&mut *target.minimum, &mut rules.minimum, &mut rules.quotas.minimum),
        };
        for kind in kinds {
            match limits.slots {
                Some(Limit::Slots(slots)) => (numbers[kind], parts[kind]) = (slots, None),
                Some(Limit::Part(part)) => parts[kind] = Some(part),
                None => {}
            }
        }
        for (quota, limit) in quotas.iter_mut().zip(limits.quotas) {
            *quota = limit.or(*quota);
        }
        return Ok(());
    }
    let rules = &mut *target.rules;
    match name {
        "weight" => {
            let weight = field.double()?;
            if weight < 0.0 {
                return Err(field.refused(Wrong::new("is negative", "a weight such as 1.5")));
            }
            match &mut target.pool {
                Some((of_pool, _)) => **of_pool = weight.abs(),
                None => rules.weight = weight.abs(),
            }
        }
        "order" => match &mut target.pool {
            Some((_, mode)) => **mode = Some(order_of_sessions(field)?),
            None => rules.order = order_of_queues(field)?,
        },
        "lend" => rules.lend = typed::boolean(field.text).map_err(|wrong| field.refused(wrong))?,
        "preemption" => rules.preemption = preemption(field, target.pool.is_some())?,
        "minRuntime" => {
            let least = whole(field.text, 0, i64::MAX / 4, "ms");
            rules.min_runtime_ms = Some(least.map_err(|wrong| field.refused(wrong))?);
        }
        "maxSessions" => rules.max_sessions = Some(count(field)?),
        "maxPerUser" => rules.max_per_user = Some(count(field)?),
        "maxSessionsPerUser" => rules.max_sessions_per_user = Some(count(field)?),
        "submit" => rules.submit = Some(submitters(field.text)),
        "state" => {
            rules.draining = match field.text {
                "running" => false,
                "draining" => true,
                _ => return Err(choice(field, "is not a state", &["running", "draining"])),
            }
        }
        name => {
            let limits = ["min", "max"].map(|prefix| context.names(prefix)).concat();
            let known = NAMES.into_iter().chain(limits.iter().map(String::as_str));
            let meant = similar(name, known).map(|meant| format!("; did you mean {meant}?"));
            let what = format!("is not an attribute of queues{}", meant.unwrap_or_default());
            let kind = ProblemKind::NoEffect(what);
            return Err(Problem::error(field.origin.clone(), kind).of(field.subject));
        }
    }
    Ok(())
}

/// Whether a name is that of a limit: whether of a maximum, and of which types.
fn limited(name: &str, context: Context) -> Option<(bool, Vec<ResourceType>)> {
    let (of_maximum, kind) = match (name.strip_prefix("min"), name.strip_prefix("max")) {
        (Some(kind), _) => (false, kind),
        (_, Some(kind)) => (true, kind),
        _ => return None,
    };
    let legal = |kind: &ResourceType| context.legal_types[*kind];
    let kinds: Vec<ResourceType> = match kind {
        "" => ResourceType::ALL.into_iter().filter(legal).collect(),
        kind => ResourceType::from_name(kind).filter(legal).into_iter().collect(),
    };
    (!kinds.is_empty()).then_some((of_maximum, kinds))
}

fn count(field: &Field<'_>) -> Result<u32, Problem> {
    typed::number(field.text, 1, i32::MAX.into()).map_err(|wrong| field.refused(wrong))
}

fn order_of_queues(field: &Field<'_>) -> Result<SiblingOrder, Problem> {
    match field.text {
        "PRIORITY" => Ok(SiblingOrder::Priority),
        "FAIR" => Ok(SiblingOrder::Fair),
        "CAPACITY" => Ok(SiblingOrder::Capacity),
        "FIFO" | "DEADLINE" => {
            let wrong = "orders sessions, and a group holds queues";
            Err(field.refused(Wrong::new(wrong, "PRIORITY, FAIR or CAPACITY")))
        }
        _ => Err(choice(field, "is not an order of queues", &["PRIORITY", "FAIR", "CAPACITY"])),
    }
}

fn order_of_sessions(field: &Field<'_>) -> Result<SchedulingMode, Problem> {
    if field.text == "PRIORITY" {
        let wrong =
            "orders queues, and a pool holds sessions, whose priority goes first in each order";
        return Err(field.refused(Wrong::new(wrong, "FIFO, FAIR or DEADLINE")));
    }
    field.mode()
}

fn preemption(field: &Field<'_>, of_pool: bool) -> Result<PreemptionRule, Problem> {
    match field.text {
        "default" => Ok(PreemptionRule::Default),
        "disabled" => Ok(PreemptionRule::Disabled),
        "fence" if of_pool => {
            let wrong = "is for groups: a fence is around the queues that take from each other";
            Err(field.refused(Wrong::new(wrong, "default or disabled")))
        }
        "fence" => Ok(PreemptionRule::Fence),
        _ => {
            let known = ["default", "fence", "disabled"];
            Err(choice(field, "is not a rule of preemption", &known))
        }
    }
}

/// Users, a blank, and groups of users, as Hadoop's access lists have them; `*` for everybody.
fn submitters(text: &str) -> Submitters {
    let names = |names: &str| {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(Into::into).collect()
    };
    let (users, groups) = text.split_once(' ').unwrap_or((text, ""));
    Submitters { all: text.trim() == "*", users: names(users), groups: names(groups) }
}

fn choice(field: &Field<'_>, wrong: &str, known: &[&str]) -> Problem {
    let mut expected = known.join(" or ");
    if let Some(meant) = similar(field.text, known.iter().copied()) {
        expected.push_str(&format!("; did you mean {meant}?"));
    }
    field.refused(Wrong::new(wrong, expected))
}

/// A placement rule of a group, or of sessions that name no queue.
pub(super) fn place(
    element: &Element,
    group: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<Placement> {
    let subject = group.map_or(PLACE.to_owned(), |group| format!("group {group}: {PLACE}"));
    let field = |name: &str| Field {
        subject: &subject,
        text: element.attribute(name).unwrap_or_default(),
        origin: &element.origin,
    };
    let by = match field("by").text {
        "user" => PlaceBy::User,
        "group" => PlaceBy::Group,
        "name" => PlaceBy::Name,
        _ => {
            let known = ["user", "group", "name"];
            problems.push(choice(&field("by"), "is nothing to place by (attribute by)", &known));
            return None;
        }
    };
    let to = match (element.attribute("to"), group) {
        (Some(to), _) => to.rsplit('.').next().unwrap_or(to).into(),
        (None, Some(group)) => group.into(),
        (None, None) => {
            problems.push(element.error(ProblemKind::Incomplete("to=\"GROUP\"")));
            return None;
        }
    };
    let create = match element.attribute("create").map(typed::boolean) {
        None => false,
        Some(Ok(create)) => create,
        Some(Err(wrong)) => {
            problems.push(field("create").refused(wrong));
            return None;
        }
    };
    for (name, _) in element.attributes() {
        if !["by", "to", "create"].contains(&name) {
            problems.push(warning(element, subject.clone(), &format!("{name} has no effect")));
        }
    }
    Some(Placement { by, to, create })
}

/// Where the parts of a file are, for what is wrong with them together.
pub(super) struct Places<'a> {
    pub(super) groups: &'a BTreeMap<String, Origin>,
    pub(super) pools: &'a BTreeMap<PoolName, Origin>,
    /// Placement rules: the file's place, and the group to which it leads as written.
    pub(super) placements: &'a [(Origin, String)],
}

/// Checks what the queues of a tree say together.
pub(super) fn check(pools: &Pools, places: &Places<'_>, problems: &mut Vec<Problem>) {
    for (origin, to) in places.placements {
        let group = to.rsplit('.').next().unwrap_or(to);
        let path = pools.queues.path_text(&group.into());
        let known = places.groups.contains_key(group) && (*path == **to || *group == **to);
        if !known {
            let names = places.groups.keys().map(String::as_str);
            let meant = similar(to, names).map(|meant| format!("; did you mean {meant}?"));
            let what = format!("there is no group {to}{}", meant.unwrap_or_default());
            problems.push(Problem::error(origin.clone(), ProblemKind::NoEffect(what)).of(PLACE));
        }
    }
    let mut inside: BTreeMap<Option<&str>, Vec<Member<'_>>> = BTreeMap::new();
    for (name, limits) in &pools.groups {
        let rules = pools.queues.groups.get(name);
        let parent = rules.and_then(|rules| rules.parent.as_deref());
        let origin = places.groups.get(&**name);
        let (minimum, maximum) = (limits.minimum, limits.maximum);
        let subject = format!("group {}", pools.queues.path_text(name));
        let member = Member { subject, origin, minimum, maximum, rules };
        inside.entry(parent).or_default().push(member);
    }
    for (name, settings) in &pools.pools {
        let subject = format!("pool {}.{}", pools.queues.path_text(&name.group), name.pool);
        let (minimum, maximum) = (settings.minimum, settings.maximum);
        let (origin, rules) = (places.pools.get(name), pools.queues.pools.get(name));
        let member = Member { subject, origin, minimum, maximum, rules };
        inside.entry(Some(&name.group)).or_default().push(member);
    }
    for (group, members) in inside {
        let around = group.map(|group| {
            let limits = pools.groups.get(group).cloned().unwrap_or_default();
            Member {
                subject: format!("group {}", pools.queues.path_text(&group.into())),
                origin: places.groups.get(group),
                minimum: limits.minimum,
                maximum: limits.maximum,
                rules: pools.queues.groups.get(group),
            }
        });
        for kind in ResourceType::ALL {
            check_members(around.as_ref(), &members, kind, problems);
        }
        for dimension in Dimension::ALL {
            quotas::check(around.as_ref(), &members, dimension, problems);
        }
        if let Some(around) = &around {
            quotas::check_order(around, &members, problems);
        }
    }
}

fn check_members(
    around: Option<&Member<'_>>,
    members: &[Member<'_>],
    kind: ResourceType,
    problems: &mut Vec<Problem>,
) {
    for member in members {
        if let (Some(least), Some(most)) = (member.least(kind), member.most(kind))
            && least > most
        {
            problems.push(member.error(format!("min{kind} {least} is above max{kind} {most}")));
        }
        let nothing = around.is_some_and(|around| {
            around.least(kind).map_or(around.minimum[kind] == 0, |part| part.0 == 0)
        });
        if let Some(least) = member.least(kind).filter(|least| least.0 > 0)
            && nothing
        {
            let group = around.map_or("", |around| around.subject.as_str());
            problems.push(member.error(format!(
                "min{kind} {least} is a part of nothing: {group} has no min{kind}"
            )));
        }
    }
    let parts: u64 =
        members.iter().filter_map(|member| member.least(kind)).map(|part| u64::from(part.0)).sum();
    let whole = u64::from(Part::WHOLE.0);
    if let (true, Some(last)) = (parts > whole, members.last()) {
        let sum = Part(u32::try_from(parts).unwrap_or(u32::MAX));
        let told = around.unwrap_or(last);
        let of = around.map_or("of the outermost groups", |_| "of the queues in it");
        problems.push(told.error(format!("the min{kind} {of} add up to {sum}, more than 100%")));
    }
    let of_tree =
        |around: &&Member<'_>| around.rules.is_some() || members.iter().any(Member::is_group);
    let Some(around) = around.filter(of_tree) else { return };
    let numbers = members.iter().filter(|member| member.least(kind).is_none());
    let sum: i64 = numbers.map(|member| i64::from(member.minimum[kind])).sum();
    if around.most(kind).is_none() && sum > i64::from(around.maximum[kind]) {
        let most = around.maximum[kind];
        problems.push(around.error(format!(
            "the min{kind} of the queues in it add up to {sum}, which is above max{kind} {most}"
        )));
    }
}

fn warning(element: &Element, subject: String, what: &str) -> Problem {
    Problem::warning(element.origin.clone(), ProblemKind::NoEffect(what.to_owned())).of(subject)
}
