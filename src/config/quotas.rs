//! The limits of queues in a pools file: slots, resources, or parts of what is around them.
//!
//! `min="10"` and `max="25%"` are slots, `min="cpus=40,memory=200g"` and `max="memory=50%"` resources; a list may
//! have both.

use super::fields::Field;
use super::problem::{Origin, Problem, ProblemKind};
use super::suggest::similar;
use super::typed::{Wrong, number};
use corona_model::queues::{Part, QueueRules, Quota, SiblingOrder};
use corona_model::resources::Dimension;
use corona_model::types::{PerType, ResourceType};

/// What one attribute says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) slots: Option<Limit>,
    pub(super) quotas: [Option<Quota>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Slots(i32),
    Part(Part),
}

/// The name that stands for all resources.
const ALL: &str = "resources";

const FORM: &str = "slots, such as 40, a part of the group around it, such as 25%, or resources, such as \
                    cpus=40,memory=200g";

/// More than any cluster has, and so little that sums over all queues are exact.
const MOST: u64 = 1 << 40;

/// Reads an attribute; that of one type may have slots only.
pub(super) fn limits(field: &Field<'_>, of_one_type: bool) -> Result<Limits, Problem> {
    let mut limits = Limits::default();
    let twice = |name: &str| field.refused(Wrong::new(format!("limits {name} twice"), FORM));
    for item in field.text.split(',').map(str::trim) {
        let Some((name, amount)) = item.split_once('=') else {
            if limits.slots.replace(slots(field, item)?).is_some() {
                return Err(twice("slots"));
            }
            continue;
        };
        if of_one_type {
            let wrong = "names resources, which are limited for all types together";
            return Err(field.refused(Wrong::new(wrong, "slots, or the resources in min or max")));
        }
        for dimension in dimensions(field, name.trim())? {
            let quota = quota(field, dimension, amount.trim(), name.trim() == ALL)?;
            if dimension.item_mut(&mut limits.quotas).replace(quota).is_some() {
                return Err(twice(dimension.name()));
            }
        }
    }
    Ok(limits)
}

/// Warns of limits of resources that the cluster does not count.
pub(super) fn without_effect(field: &Field<'_>, counted: [bool; 4]) -> Vec<Problem> {
    let names = field.text.split(',').filter_map(|item| item.split_once('='));
    let why =
        names.filter_map(|(name, _)| match (name.trim(), Dimension::from_name(name.trim())) {
            (name, Some(dimension)) if !*dimension.item(&counted) => {
                Some(format!("has no effect on {name}: corona.cm.resources does not count it"))
            }
            (ALL, _) if counted == [false; 4] => {
                Some(format!("has no effect on {ALL}: corona.cm.resources counts none"))
            }
            _ => None,
        });
    let warning = |why| Problem::warning(field.origin.clone(), ProblemKind::NoEffect(why));
    why.map(|why| warning(why).of(field.subject)).collect()
}

fn slots(field: &Field<'_>, text: &str) -> Result<Limit, Problem> {
    if let Some(part) = part(field, text) {
        return part.map(Limit::Part);
    }
    let slots = number(text, 0, i32::MAX.into());
    slots.map(Limit::Slots).map_err(|_| field.refused(Wrong::new("is not a limit", FORM)))
}

/// The part that a text with a sign of per cent names.
fn part(field: &Field<'_>, text: &str) -> Option<Result<Part, Problem>> {
    let percents = text.strip_suffix('%')?;
    let part = hundredths(percents).map(Part).filter(|part| *part <= Part::WHOLE);
    let wrong = || field.refused(Wrong::new("is not a part", "0% to 100%, such as 12.5%"));
    Some(part.ok_or_else(wrong))
}

fn dimensions(field: &Field<'_>, name: &str) -> Result<Vec<Dimension>, Problem> {
    match Dimension::from_name(name) {
        Some(dimension) => Ok(vec![dimension]),
        None if name == ALL => Ok(Dimension::ALL.to_vec()),
        None => {
            let known = Dimension::ALL.map(Dimension::name);
            let mut expected = format!("{}, or {ALL} for all of them", known.join(", "));
            if let Some(meant) = similar(name, known) {
                expected.push_str(&format!("; did you mean {meant}?"));
            }
            let wrong = format!("limits {name:?}, which is not a resource");
            Err(field.refused(Wrong::new(wrong, expected)))
        }
    }
}

fn quota(
    field: &Field<'_>,
    dimension: Dimension,
    text: &str,
    of_all: bool,
) -> Result<Quota, Problem> {
    if let Some(part) = part(field, text) {
        return part.map(Quota::Part);
    }
    let amount = amount(dimension, text).filter(|amount| !of_all && *amount <= MOST);
    amount.map(Quota::Amount).ok_or_else(|| {
        let expected = match dimension {
            _ if of_all => "a part of the group around it, such as 25%",
            Dimension::Cpus => "a number of CPUs, or a part such as 25%",
            Dimension::Memory => "megabytes, 200g or 2t, or a part such as 25%",
            Dimension::Disk => "gigabytes, or 2t, or a part such as 25%",
            Dimension::Network => "megabytes a second, or 10g, or a part such as 25%",
        };
        let name = if of_all { ALL } else { dimension.name() };
        let wrong = format!("has {text:?}, which is not a limit of {name}");
        field.refused(Wrong::new(wrong, expected))
    })
}

/// An amount in the unit of the dimension.
fn amount(dimension: Dimension, text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').filter(|unit| !unit.is_empty()).unwrap_or(&unit);
    let times: u64 = match (dimension, unit) {
        (_, "") | (Dimension::Memory | Dimension::Network, "m") | (Dimension::Disk, "g") => 1,
        (Dimension::Memory | Dimension::Network, "g") | (Dimension::Disk, "t") => 1 << 10,
        (Dimension::Memory, "t") => 1 << 20,
        _ => return None,
    };
    number.checked_mul(times)
}

/// The hundredths of a number with at most two decimals.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    let decimals: u32 = format!("{decimals:0<2}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(decimals)
}

/// Limits in resources as a YARN's file writes them: `1024 mb, 1 vcores`, `memory-mb=1024, vcores=1`,
/// `[memory=1024,vcores=1]`, `50% memory, 30% cpu`. `None` for any other text.
pub(super) fn of_yarn(text: &str) -> Option<[Option<Quota>; 4]> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(&text);
    let mut quotas = [None; 4];
    for item in text.split(',').map(str::trim) {
        let (name, amount) = match item.split_once('=') {
            Some((name, amount)) => (name.trim(), amount.trim()),
            None => {
                let at =
                    item.find(|character: char| !character.is_ascii_digit() && character != '.');
                let (number, unit) = item.split_at(at?);
                match unit.strip_prefix('%') {
                    Some(unit) => (unit.trim(), &item[..=number.len()]),
                    None => (unit.trim(), number),
                }
            }
        };
        let dimension = match name {
            "vcores" | "vcore" | "cpu" => Dimension::Cpus,
            "memory" | "memory-mb" | "mb" => Dimension::Memory,
            _ => return None,
        };
        let quota = match amount.strip_suffix('%') {
            Some(percents) => Quota::Part(Part(hundredths(percents)?).min(Part::WHOLE)),
            None => Quota::Amount(self::amount(dimension, amount)?.min(MOST)),
        };
        if dimension.item_mut(&mut quotas).replace(quota).is_some() {
            return None;
        }
    }
    Some(quotas)
}

/// Limits as a pools file writes them.
pub(super) fn written(quotas: &[Option<Quota>; 4]) -> Option<String> {
    let some = Dimension::ALL.into_iter().zip(quotas).filter_map(|(dimension, quota)| {
        Some(match (*quota)? {
            Quota::Amount(amount) => format!("{}={amount}", dimension.name()),
            Quota::Part(part) => format!("{}={part}", dimension.name()),
        })
    });
    let some: Vec<String> = some.collect();
    (!some.is_empty()).then(|| some.join(","))
}

/// A limit as people write it.
pub(super) fn text(dimension: Dimension, quota: Quota) -> String {
    match quota {
        Quota::Amount(amount) => dimension.short(amount),
        Quota::Part(part) => part.to_string(),
    }
}

/// Checks what the queues in a group, or the outermost groups, say of a resource together.
pub(super) fn check(
    around: Option<&Member<'_>>,
    members: &[Member<'_>],
    dimension: Dimension,
    problems: &mut Vec<Problem>,
) {
    let name = dimension.name();
    let quotas = |member: &Member<'_>| member.rules.map(|rules| rules.quotas).unwrap_or_default();
    let least = |member: &Member<'_>| *dimension.item(&quotas(member).minimum);
    let most = |member: &Member<'_>| *dimension.item(&quotas(member).maximum);
    let is_nothing = |quota: Option<Quota>| {
        matches!(quota, None | Some(Quota::Amount(0) | Quota::Part(Part(0))))
    };
    let (mut amounts, mut parts) = (0_u64, 0_u64);
    for member in members {
        let is_above = match (least(member), most(member)) {
            (Some(Quota::Amount(least)), Some(Quota::Amount(most))) => least > most,
            (Some(Quota::Part(least)), Some(Quota::Part(most))) => least > most,
            _ => false,
        };
        if let (true, Some(least), Some(most)) = (is_above, least(member), most(member)) {
            let (least, most) = (text(dimension, least), text(dimension, most));
            problems.push(member.error(format!("min {name}={least} is above max {name}={most}")));
        }
        match least(member) {
            Some(Quota::Amount(amount)) => amounts = amounts.saturating_add(amount),
            Some(Quota::Part(part)) => {
                parts += u64::from(part.0);
                if let Some(around) =
                    around.filter(|around| part.0 > 0 && is_nothing(least(around)))
                {
                    let group = &around.subject;
                    problems.push(member.error(format!(
                        "min {name}={part} is a part of nothing: {group} has no min {name}"
                    )));
                }
            }
            None => {}
        }
    }
    if let (true, Some(last)) = (parts > u64::from(Part::WHOLE.0), members.last()) {
        let sum = Part(u32::try_from(parts).unwrap_or(u32::MAX));
        let of = around.map_or("of the outermost groups", |_| "of the queues in it");
        let what = format!("the min {name} {of} add up to {sum}, more than 100%");
        problems.push(around.unwrap_or(last).error(what));
    }
    if let Some(around) = around
        && let Some(Quota::Amount(most)) = most(around)
        && amounts > most
    {
        let (sum, most) = (dimension.short(amounts), dimension.short(most));
        problems.push(around.error(format!(
            "the min {name} of the queues in it add up to {sum}, which is above max {name}={most}"
        )));
    }
}

/// In strict order by guarantees these must be comparable: all slots, or all resources.
pub(super) fn check_order(
    around: &Member<'_>,
    members: &[Member<'_>],
    problems: &mut Vec<Problem>,
) {
    if around.rules.is_none_or(|rules| rules.order != SiblingOrder::Capacity) {
        return;
    }
    let of_resources =
        |member: &&Member<'_>| member.rules.is_some_and(|rules| rules.quotas.minimum != [None; 4]);
    let of_slots = |member: &&Member<'_>| {
        let has = |kind| member.minimum[kind] > 0 || member.least(kind).is_some();
        !of_resources(member) && ResourceType::ALL.into_iter().any(has)
    };
    if let (Some(one), Some(other)) =
        (members.iter().find(of_resources), members.iter().find(of_slots))
    {
        problems.push(around.error(format!(
            "order CAPACITY compares minima, and that of {} is in resources, that of {} in slots",
            one.subject, other.subject
        )));
    }
}

/// A queue of a file with all that is checked of it.
pub(super) struct Member<'a> {
    pub(super) subject: String,
    pub(super) origin: Option<&'a Origin>,
    pub(super) minimum: PerType<i32>,
    pub(super) maximum: PerType<i32>,
    pub(super) rules: Option<&'a QueueRules>,
}

impl Member<'_> {
    pub(super) fn least(&self, kind: ResourceType) -> Option<Part> {
        self.rules.and_then(|rules| rules.minimum[kind])
    }

    pub(super) fn most(&self, kind: ResourceType) -> Option<Part> {
        self.rules.and_then(|rules| rules.maximum[kind])
    }

    pub(super) fn is_group(&self) -> bool {
        self.subject.starts_with("group ")
    }

    pub(super) fn error(&self, what: String) -> Problem {
        let origin = self.origin.cloned().unwrap_or(Origin::Default);
        Problem::error(origin, ProblemKind::NoEffect(what)).of(self.subject.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_yarn_are_read_in_all_its_forms() {
        let amounts = [Some(Quota::Amount(8)), Some(Quota::Amount(4_096)), None, None];
        let shares = [Some(Quota::Part(Part(3_000))), Some(Quota::Part(Part(1_250))), None, None];
        let (both, parts) = (Some(amounts), Some(shares));
        let memory = Some([None, Some(Quota::Amount(5)), None, None]);
        for (text, expected) in [
            ("4096 mb, 8 vcores", both),
            ("4096mb,8vcores", both),
            ("vcores=8, memory-mb=4096", both),
            ("[memory=4096,vcores=8]", both),
            ("[memory=4GB,vcores=8]", both),
            ("12.5% memory, 30% cpu", parts),
            ("vcores=30%, memory-mb=12.5%", parts),
            ("5 mb", memory),
            ("50%", None),
            ("1024 mb, 2 gpus", None),
            ("1 mb, 2 mb", None),
            ("", None),
            ("mb", None),
            ("é=1", None),
        ] {
            assert_eq!(of_yarn(text), expected, "{text}");
        }
        assert_eq!(written(&amounts).unwrap(), "cpus=8,memory=4096");
        assert_eq!(written(&shares).unwrap(), "cpus=30%,memory=12.5%");
        assert_eq!(written(&[None; 4]), None);
    }

    #[test]
    fn amounts_have_units_that_people_write() {
        use Dimension::{Cpus, Disk, Memory, Network};
        for (dimension, text, expected) in [
            (Cpus, "40", Some(40)),
            (Cpus, "40m", None),
            (Memory, "4096", Some(4_096)),
            (Memory, "4096 mb", Some(4_096)),
            (Memory, "200g", Some(204_800)),
            (Memory, "200GB", Some(204_800)),
            (Memory, "2t", Some(2 << 20)),
            (Memory, "b", None),
            (Memory, "1.5g", None),
            (Memory, "-1", None),
            (Memory, "99999999999999999999", None),
            (Memory, "18446744073709551615t", None),
            (Disk, "10", Some(10)),
            (Disk, "10g", Some(10)),
            (Disk, "2t", Some(2_048)),
            (Disk, "10m", None),
            (Network, "10g", Some(10_240)),
            (Network, "", None),
        ] {
            assert_eq!(amount(dimension, text), expected, "{text}");
        }
    }
}
