//! Counters of tasks and jobs: their sums, their text form, and a form that takes little memory.
//! Spec: mapreduce/02 §2.4, mapreduce/08 §8.4.
//!
//! A job of many tasks has the same names in each of them. So [`CounterNames`] keeps each name of a job
//! once, and the counters of a task are [`PackedCounters`]: some bytes for each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Groups of counters, in the order in which they were first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Their names differ.
    pub groups: Vec<CounterGroup>,
}

/// A group of counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterGroup {
    /// Mostly the name of the Java enum whose constants are the counters.
    pub name: Arc<str>,
    /// The name for people.
    pub display_name: Arc<str>,
    /// In the order in which they were first seen. Their names differ.
    pub counters: Vec<Counter>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name within the group.
    pub name: Arc<str>,
    /// The name for people.
    pub display_name: Arc<str>,
    /// A sum beyond 64 bits stays at the largest or smallest number.
    pub value: i64,
}

/// Why a text is not the form of counters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("counters: expected {expected} at byte {at}")]
pub struct NotCounters {
    /// Where.
    pub at: usize,
    /// The expected text.
    pub expected: &'static str,
}

impl Counters {
    /// The value of a counter, if there is one of that name in that group.
    pub fn get(&self, group: &str, counter: &str) -> Option<i64> {
        let group = self.groups.iter().find(|candidate| &*candidate.name == group)?;
        group.counters.iter().find(|candidate| &*candidate.name == counter).map(|found| found.value)
    }

    /// Sets a counter whose names for people are its names.
    pub fn set(&mut self, group: &str, counter: &str, value: i64) {
        *self.counter(&group.into(), &group.into(), &counter.into(), &counter.into()) = value;
    }

    /// Adds the values of others.
    pub fn add(&mut self, others: &Counters) {
        for group in &others.groups {
            for counter in &group.counters {
                let value = self.counter(
                    &group.name,
                    &group.display_name,
                    &counter.name,
                    &counter.display_name,
                );
                *value = value.saturating_add(counter.value);
            }
        }
    }

    fn counter(
        &mut self,
        group: &Arc<str>,
        group_display: &Arc<str>,
        counter: &Arc<str>,
        display: &Arc<str>,
    ) -> &mut i64 {
        let is_group = |candidate: &CounterGroup| candidate.name == *group;
        let group = found_or_added(&mut self.groups, is_group, || {
            let (name, display_name) = (group.clone(), group_display.clone());
            CounterGroup { name, display_name, counters: Vec::new() }
        });
        let is_counter = |candidate: &Counter| candidate.name == *counter;
        let counter = found_or_added(&mut group.counters, is_counter, || {
            let (name, display_name) = (counter.clone(), display.clone());
            Counter { name, display_name, value: 0 }
        });
        &mut counter.value
    }

    /// The compact text form of history files and pages:
    /// `{(group)(display name)[(counter)(display name)(value)]}`, without separators.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for group in &self.groups {
            out.push('{');
            block(&mut out, &group.name);
            block(&mut out, &group.display_name);
            for counter in &group.counters {
                out.push('[');
                block(&mut out, &counter.name);
                block(&mut out, &counter.display_name);
                // Writing to a string does not fail.
                let _ = write!(out, "({})]", counter.value);
            }
            out.push('}');
        }
        out
    }

    /// Reads the compact text form.
    ///
    /// # Errors
    /// The text has another form.
    pub fn of_text(text: &str) -> Result<Counters, NotCounters> {
        let mut rest = Blocks { text, at: 0 };
        let mut counters = Counters::default();
        while rest.at < text.len() {
            rest.expect('{', "{")?;
            let (name, display_name) = (rest.block()?, rest.block()?);
            let mut group = CounterGroup { name, display_name, counters: Vec::new() };
            while rest.take('[') {
                let (name, display_name) = (rest.block()?, rest.block()?);
                let value = rest.block()?;
                let value = value
                    .parse()
                    .map_err(|_| NotCounters { at: rest.at, expected: "a whole number" })?;
                group.counters.push(Counter { name, display_name, value });
                rest.expect(']', "]")?;
            }
            rest.expect('}', "} or [")?;
            counters.groups.push(group);
        }
        Ok(counters)
    }
}

/// The item of a list that is meant; it is added if there is none.
#[allow(clippy::indexing_slicing, reason = "the place of an item that was found or added")]
fn found_or_added<T>(
    list: &mut Vec<T>,
    is_meant: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    let at = list.iter().position(is_meant).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

/// The group of the counters that a job tracker computes. Spec: mapreduce/09 §F.
pub const JOB_GROUP: &str = "org.apache.hadoop.mapred.JobInProgress$Counter";

const ESCAPED: [char; 7] = ['{', '}', '[', ']', '(', ')', '\\'];

fn block(out: &mut String, text: &str) {
    out.push('(');
    for character in text.chars() {
        if ESCAPED.contains(&character) {
            out.push('\\');
        }
        out.push(character);
    }
    out.push(')');
}

struct Blocks<'a> {
    text: &'a str,
    at: usize,
}

impl Blocks<'_> {
    fn take(&mut self, wanted: char) -> bool {
        let found = self.text[self.at..].starts_with(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, wanted: char, expected: &'static str) -> Result<(), NotCounters> {
        if self.take(wanted) { Ok(()) } else { Err(NotCounters { at: self.at, expected }) }
    }

    fn block(&mut self) -> Result<Arc<str>, NotCounters> {
        self.expect('(', "(")?;
        let mut inside = String::new();
        let mut characters = self.text[self.at..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                ')' => {
                    self.at += at + 1;
                    return Ok(inside.into());
                }
                '\\' => match characters.next() {
                    Some((_, escaped)) => inside.push(escaped),
                    None => break,
                },
                plain => inside.push(plain),
            }
        }
        Err(NotCounters { at: self.text.len(), expected: ")" })
    }
}

/// How many different counters the tasks of one job may have together. The original has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterLimits {
    /// Groups.
    pub groups: usize,
    /// Counters in all groups.
    pub counters: usize,
    /// Bytes of one name.
    pub name_bytes: usize,
}

/// The names of all counters of a job's tasks, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterNames {
    groups: Vec<Names>,
    /// The group and the names of each counter, by its number.
    counters: Vec<(u32, Names)>,
    /// The numbers of groups and their counters by name.
    index: BTreeMap<Arc<str>, GroupIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Names {
    name: Arc<str>,
    display_name: Arc<str>,
}

impl Names {
    /// Takes over a name for people where there was none: a task that has not reported yet has the
    /// counters with which it was launched, whose names for people are their names.
    fn learn(&mut self, display_name: &Arc<str>, limits: &CounterLimits) {
        let is_known = self.display_name != self.name || *display_name == self.name;
        if !is_known && display_name.len() <= limits.name_bytes {
            self.display_name = display_name.clone();
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct GroupIndex {
    group: u32,
    counters: BTreeMap<Arc<str>, u32>,
}

/// The values of a task's counters; [`CounterNames`] has their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedCounters(Box<[u8]>);

impl PackedCounters {
    /// Whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    fn of(mut values: Vec<(u32, i64)>) -> PackedCounters {
        values.sort_by_key(|(counter, _)| *counter);
        let mut bytes = Vec::with_capacity(values.len() * 4);
        let mut before = 0;
        for (counter, value) in values {
            put(&mut bytes, (counter - before).into());
            // The sign goes into the lowest bit, so that small negative values stay small.
            put(&mut bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
            before = counter;
        }
        PackedCounters(bytes.into())
    }

    fn values(&self) -> impl Iterator<Item = (u32, i64)> {
        let (mut at, mut counter) = (0, 0);
        std::iter::from_fn(move || {
            let step = take(&self.0, &mut at)?;
            let value = take(&self.0, &mut at)?;
            // Broken bytes end the list.
            counter = u32::try_from(step).ok()?.checked_add(counter)?;
            Some((counter, (value >> 1).cast_signed() ^ -(value & 1).cast_signed()))
        })
    }
}

/// Appends seven bits in each byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// The group of the counters of tasks that the original defines, and what it calls them for people. A task may
/// report them by their names first.
const TASK_GROUP: (&str, &str) = ("org.apache.hadoop.mapred.Task$Counter", "Map-Reduce Framework");
const TASK_COUNTERS: [(&str, &str); 17] = [
    ("MAP_INPUT_RECORDS", "Map input records"),
    ("MAP_INPUT_BYTES", "Map input bytes"),
    ("MAP_OUTPUT_RECORDS", "Map output records"),
    ("MAP_OUTPUT_BYTES", "Map output bytes"),
    ("MAP_SKIPPED_RECORDS", "Map skipped records"),
    ("COMBINE_INPUT_RECORDS", "Combine input records"),
    ("COMBINE_OUTPUT_RECORDS", "Combine output records"),
    ("REDUCE_INPUT_GROUPS", "Reduce input groups"),
    ("REDUCE_SHUFFLE_BYTES", "Reduce shuffle bytes"),
    ("REDUCE_INPUT_RECORDS", "Reduce input records"),
    ("REDUCE_OUTPUT_RECORDS", "Reduce output records"),
    ("REDUCE_SKIPPED_RECORDS", "Reduce skipped records"),
    ("REDUCE_SKIPPED_GROUPS", "Reduce skipped groups"),
    ("SPILLED_RECORDS", "Spilled Records"),
    ("PHYSICAL_MEMORY_BYTES", "Total physical memory in bytes"),
    ("VIRTUAL_MEMORY_BYTES", "Total virtual memory in bytes"),
    ("CPU_MILLISECONDS", "Total cumulative CPU milliseconds"),
];

/// The name of a group for people.
fn display_of_group(group: &CounterGroup) -> Arc<str> {
    match (&*group.name == TASK_GROUP.0, group.display_name == group.name) {
        (true, true) => TASK_GROUP.1.into(),
        _ => group.display_name.clone(),
    }
}

/// The name of a counter for people.
fn display_of(group: &CounterGroup, counter: &Counter) -> Arc<str> {
    let is_raw = counter.display_name == counter.name && &*group.name == TASK_GROUP.0;
    let known = TASK_COUNTERS.iter().find(|(name, _)| is_raw && *name == &*counter.name);
    known.map_or_else(|| counter.display_name.clone(), |(_, display)| (*display).into())
}

impl CounterNames {
    /// The values of these counters, and how many are left out because their names would exceed a limit.
    pub fn pack(&mut self, counters: &Counters, limits: &CounterLimits) -> (PackedCounters, usize) {
        let (mut values, mut left_out) = (Vec::new(), 0);
        for group in &counters.groups {
            let known = self.index.get(&group.name);
            if let Some(names) = known.and_then(|known| self.groups.get_mut(known.group as usize)) {
                names.learn(&display_of_group(group), limits);
            }
            for counter in &group.counters {
                match self.number(group, counter, limits) {
                    Some(number) => values.push((number, counter.value)),
                    None => left_out += 1,
                }
            }
        }
        // A report that names a counter twice means the later value.
        values.reverse();
        values.sort_by_key(|(number, _)| *number);
        values.dedup_by_key(|(number, _)| *number);
        (PackedCounters::of(values), left_out)
    }

    fn number(
        &mut self,
        group: &CounterGroup,
        counter: &Counter,
        limits: &CounterLimits,
    ) -> Option<u32> {
        let known = self.index.get(&group.name);
        if let Some(number) = known.and_then(|known| known.counters.get(&counter.name)) {
            let (_, names) = self.counters.get_mut(*number as usize)?;
            names.learn(&display_of(group, counter), limits);
            return Some(*number);
        }
        let names = [&group.name, &group.display_name, &counter.name, &counter.display_name];
        let fits = names.iter().all(|name| name.len() <= limits.name_bytes)
            && self.counters.len() < limits.counters
            && (known.is_some() || self.groups.len() < limits.groups);
        if !fits {
            return None;
        }
        let number = u32::try_from(self.counters.len()).ok()?;
        let next_group = u32::try_from(self.groups.len()).ok()?;
        let entry = self.index.entry(group.name.clone()).or_insert_with(|| {
            let display_name = display_of_group(group);
            self.groups.push(Names { name: group.name.clone(), display_name });
            GroupIndex { group: next_group, counters: BTreeMap::new() }
        });
        let names = Names { name: counter.name.clone(), display_name: display_of(group, counter) };
        entry.counters.insert(names.name.clone(), number);
        self.counters.push((entry.group, names));
        Some(number)
    }

    /// The value of one counter.
    pub fn value(&self, packed: &PackedCounters, group: &str, counter: &str) -> Option<i64> {
        let wanted = *self.index.get(group)?.counters.get(counter)?;
        packed.values().find(|(number, _)| *number == wanted).map(|(_, value)| value)
    }

    /// The counters with their names.
    pub fn unpack(&self, packed: &PackedCounters) -> Counters {
        self.sum([packed])
    }

    /// The sums of the counters of several tasks.
    pub fn sum<'a>(&self, all: impl IntoIterator<Item = &'a PackedCounters>) -> Counters {
        let mut sums: Vec<Option<i64>> = vec![None; self.counters.len()];
        for packed in all {
            for (number, value) in packed.values() {
                if let Some(sum) = sums.get_mut(number as usize) {
                    *sum = Some(sum.unwrap_or(0).saturating_add(value));
                }
            }
        }
        let mut groups: Vec<Vec<Counter>> = vec![Vec::new(); self.groups.len()];
        for ((group, names), sum) in self.counters.iter().zip(sums) {
            let Some(value) = sum else { continue };
            let Names { name, display_name } = names.clone();
            if let Some(group) = groups.get_mut(*group as usize) {
                group.push(Counter { name, display_name, value });
            }
        }
        let groups = self.groups.iter().zip(groups).filter(|(_, counters)| !counters.is_empty());
        let groups = groups.map(|(names, counters)| {
            let Names { name, display_name } = names.clone();
            CounterGroup { name, display_name, counters }
        });
        Counters { groups: groups.collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: CounterLimits = CounterLimits { groups: 2, counters: 3, name_bytes: 8 };

    fn counters(values: &[(&str, &str, i64)]) -> Counters {
        let mut counters = Counters::default();
        for (group, counter, value) in values {
            counters.set(group, counter, *value);
        }
        counters
    }

    #[test]
    fn counters_of_tasks_have_the_names_of_the_original_for_people_from_the_first_report_on() {
        const GROUP: &str = "org.apache.hadoop.mapred.Task$Counter";
        let mut names = CounterNames::default();
        let mut raw = Counters::default();
        raw.set(GROUP, "REDUCE_SHUFFLE_BYTES", 7);
        raw.set(GROUP, "REDUCE_COPY_CPU", 1);
        raw.set("own", "REDUCE_SHUFFLE_BYTES", 2);
        let limits = CounterLimits { groups: 2, counters: 3, name_bytes: 100 };
        let (packed, _) = names.pack(&raw, &limits);
        let shown = names.unpack(&packed);
        let displays: Vec<(&str, Vec<&str>)> = shown
            .groups
            .iter()
            .map(|group| {
                let counters = group.counters.iter().map(|counter| &*counter.display_name);
                (&*group.display_name, counters.collect())
            })
            .collect();
        let expected = [
            ("Map-Reduce Framework", vec!["Reduce shuffle bytes", "REDUCE_COPY_CPU"]),
            ("own", vec!["REDUCE_SHUFFLE_BYTES"]),
        ];
        assert_eq!(displays, expected);
    }

    #[test]
    fn names_for_people_are_learnt_from_later_reports() {
        let mut names = CounterNames::default();
        let (at_launch, _) = names.pack(&counters(&[("G", "BYTES", 0)]), &LIMITS);
        let shown = |names: &CounterNames| names.unpack(&at_launch).to_text();
        assert_eq!(shown(&names), "{(G)(G)[(BYTES)(BYTES)(0)]}");
        for (reported, expected) in [
            ("{(G)(For us all)[(BYTES)(Too long a name)(1)]}", "{(G)(G)[(BYTES)(BYTES)(0)]}"),
            ("{(G)(Group)[(BYTES)(Bytes)(1)]}", "{(G)(Group)[(BYTES)(Bytes)(0)]}"),
            ("{(G)(G)[(BYTES)(BYTES)(1)]}", "{(G)(Group)[(BYTES)(Bytes)(0)]}"),
            ("{(G)(Other)[(BYTES)(Other)(1)]}", "{(G)(Group)[(BYTES)(Bytes)(0)]}"),
        ] {
            names.pack(&Counters::of_text(reported).unwrap(), &LIMITS);
            assert_eq!(shown(&names), expected, "{reported}");
        }
    }

    #[test]
    fn the_text_form_is_that_of_the_original() {
        let odd = counters(&[("My.Group=x", "odd {name} (1)", 12)]);
        let text = r"{(My.Group=x)(My.Group=x)[(odd \{name\} \(1\))(odd \{name\} \(1\))(12)]}";
        assert_eq!(odd.to_text(), text);
        assert_eq!(Counters::of_text(text), Ok(odd));
        assert_eq!(Counters::of_text(""), Ok(Counters::default()));
        for broken in
            ["{", "{(a)", "{(a)(b)", "{(a)(b)[(c)(d)(e)]}", "x", "{(a)(b\\", "{(a)(b)[(c)(d)(1)}"]
        {
            assert!(Counters::of_text(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn any_counters_survive_their_text(names in proptest::collection::vec("[a-c(){}\\[\\]\\\\=\". é]{0,6}", 4), value: i64) {
            let mut given = Counters::default();
            given.set(&names[0], &names[1], value);
            given.set(&names[2], &names[3], 0);
            prop_assert_eq!(Counters::of_text(&given.to_text()), Ok(given));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[(){}\\[\\]\\\\a1é]{0,20}") {
            let _ = Counters::of_text(&text);
        }

        #[test]
        fn packed_counters_keep_their_values(values in proptest::collection::vec(any::<i64>(), 0..40)) {
            let mut given = Counters::default();
            for (number, value) in values.iter().enumerate() {
                given.set("g", &format!("c{number}"), *value);
            }
            let mut names = CounterNames::default();
            let limits = CounterLimits { groups: 1, counters: 40, name_bytes: 10 };
            let (packed, left_out) = names.pack(&given, &limits);
            prop_assert_eq!(left_out, 0);
            prop_assert_eq!(names.unpack(&packed), given);
        }
    }

    #[test]
    fn sums_are_of_all_tasks() {
        let mut names = CounterNames::default();
        let (one, _) = names.pack(&counters(&[("a", "x", 1), ("b", "y", i64::MAX)]), &LIMITS);
        let (two, _) = names.pack(&counters(&[("b", "y", 5), ("a", "x", -3)]), &LIMITS);
        let sum = names.sum([&one, &two]);
        assert_eq!((sum.get("a", "x"), sum.get("b", "y")), (Some(-2), Some(i64::MAX)));
    }

    #[test]
    fn a_task_with_too_many_counters_loses_them_and_others_keep_theirs() {
        let mut names = CounterNames::default();
        let (innocent, _) = names.pack(&counters(&[("a", "x", 1)]), &LIMITS);
        let many: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| ("a", &**name, 1)).collect();
        let (greedy, left_out) = names.pack(&counters(&many), &LIMITS);
        assert_eq!((left_out, names.unpack(&greedy).groups[0].counters.len()), (98, 2));
        let others = counters(&[("b", "long name", 1), ("c", "z", 1)]);
        assert_eq!(names.pack(&others, &LIMITS).1, 2);
        let (again, left_out) = names.pack(&counters(&[("a", "x", 7)]), &LIMITS);
        assert_eq!((left_out, names.unpack(&again).get("a", "x")), (0, Some(7)));
        assert_eq!(names.unpack(&innocent).get("a", "x"), Some(1));
    }
}
