//! The built-in step `aggregate`: what the original's `ValueAggregatorReducer` and `ValueAggregatorCombiner` do.
//! The key of a record names how its values are summed up: `LongValueSum:word`.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{TaskError, cut};
use crate::run::RecordStream;
use crate::spill::{Collector, Combiner};
use crate::vint;

/// The most bytes of different values that are kept of one key.
const MOST_BYTES: usize = 64 << 20;
/// What the entry of a value takes besides it, some more or less.
const ENTRY_BYTES: usize = 64;
/// The most bytes of a key or a value that an error shows.
const MOST_SHOWN_BYTES: usize = 200;

/// What is known of the values of a key.
#[derive(Debug)]
enum Summary {
    Sum(i64),
    Decimal(f64),
    Most(i64),
    Least(i64),
    Last(Option<Vec<u8>>),
    First(Option<Vec<u8>>),
    Different { values: BTreeSet<Vec<u8>>, bytes: usize },
    Histogram { counts: BTreeMap<Vec<u8>, i64>, bytes: usize },
}

impl Summary {
    /// An empty summary of a kind, by its name in the original; the case does not count.
    fn of(kind: &str) -> Option<Summary> {
        Some(match kind.to_ascii_lowercase().as_str() {
            "longvaluesum" => Summary::Sum(0),
            "doublevaluesum" => Summary::Decimal(0.0),
            "longvaluemax" => Summary::Most(i64::MIN),
            "longvaluemin" => Summary::Least(i64::MAX),
            "stringvaluemax" => Summary::Last(None),
            "stringvaluemin" => Summary::First(None),
            "uniqvaluecount" => Summary::Different { values: BTreeSet::new(), bytes: 0 },
            "valuehistogram" => Summary::Histogram { counts: BTreeMap::new(), bytes: 0 },
            _ => return None,
        })
    }

    fn add(&mut self, value: &[u8]) -> Result<(), String> {
        match self {
            // Java's long numbers wrap around.
            Summary::Sum(sum) => *sum = sum.wrapping_add(whole(value)?),
            Summary::Decimal(sum) => *sum += decimal(value)?,
            Summary::Most(most) => *most = whole(value)?.max(*most),
            Summary::Least(least) => *least = whole(value)?.min(*least),
            Summary::Last(last) => {
                if last.as_deref().is_none_or(|last| value > last) {
                    *last = Some(value.to_owned());
                }
            }
            Summary::First(first) => {
                if first.as_deref().is_none_or(|first| value < first) {
                    *first = Some(value.to_owned());
                }
            }
            Summary::Different { values, bytes } => {
                if !values.contains(value) {
                    grow(bytes, value)?;
                    values.insert(value.to_owned());
                }
            }
            Summary::Histogram { counts, bytes } => {
                let tab = value.iter().rposition(|byte| *byte == b'\t');
                let (text, count) = match tab {
                    Some(at) => {
                        let count = value.get(at + 1..).unwrap_or_default();
                        (value.get(..at).unwrap_or_default(), whole(count)?)
                    }
                    None => (value, 1),
                };
                match counts.get_mut(text) {
                    Some(before) => *before = before.wrapping_add(count),
                    None => {
                        grow(bytes, text)?;
                        counts.insert(text.to_owned(), count);
                    }
                }
            }
        }
        Ok(())
    }

    /// The values that stand for all that were added.
    fn combined(&self) -> Vec<Vec<u8>> {
        match self {
            Summary::Different { values, .. } => values.iter().cloned().collect(),
            Summary::Histogram { counts, .. } => {
                let counted = |(text, count): (&Vec<u8>, &i64)| {
                    [text, &b"\t"[..], count.to_string().as_bytes()].concat()
                };
                counts.iter().map(counted).collect()
            }
            other => vec![other.report()],
        }
    }

    fn report(&self) -> Vec<u8> {
        match self {
            Summary::Sum(number) | Summary::Most(number) | Summary::Least(number) => {
                number.to_string().into_bytes()
            }
            Summary::Decimal(sum) => of_java(*sum).into_bytes(),
            Summary::Last(text) | Summary::First(text) => text.clone().unwrap_or_default(),
            Summary::Different { values, .. } => values.len().to_string().into_bytes(),
            Summary::Histogram { counts, .. } => histogram(counts.values().copied().collect()),
        }
    }
}

fn grow(bytes: &mut usize, value: &[u8]) -> Result<(), String> {
    *bytes = bytes.saturating_add(value.len() + ENTRY_BYTES);
    match *bytes > MOST_BYTES {
        true => Err(format!("has more than {MOST_BYTES} bytes of different values")),
        false => Ok(()),
    }
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().map(str::trim)
}

fn whole(value: &[u8]) -> Result<i64, String> {
    let number = text(value).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("has the value {:?}, which is no whole number", shown(value)))
}

fn decimal(value: &[u8]) -> Result<f64, String> {
    let number = text(value).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("has the value {:?}, which is no number", shown(value)))
}

/// Different values, the least, middle and largest count, their mean and its deviation.
fn histogram(mut counts: Vec<i64>) -> Vec<u8> {
    counts.sort_unstable();
    let (Some(least), Some(middle), Some(most)) =
        (counts.first(), counts.get(counts.len() / 2), counts.last())
    else {
        return b"0".to_vec();
    };
    let sum = counts.iter().fold(0_i64, |sum, count| sum.wrapping_add(*count));
    let mean = sum as f64 / counts.len() as f64;
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum();
    let deviation = (squares / counts.len() as f64).sqrt();
    let (mean, deviation) = (of_java(mean), of_java(deviation));
    format!("{}\t{least}\t{middle}\t{most}\t{mean}\t{deviation}", counts.len()).into_bytes()
}

/// A number as Java's `Double.toString` writes it.
fn of_java(number: f64) -> String {
    let size = number.abs();
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

fn shown(bytes: &[u8]) -> String {
    cut(&String::from_utf8_lossy(bytes), MOST_SHOWN_BYTES).to_owned()
}

/// Whether the records of a key become one, or only fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Combiner,
    Reducer,
}

/// Sums up in a map, so that less goes to reduces.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate;

impl Combiner for Aggregate {
    fn combine(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        to: &mut dyn Collector,
    ) -> Result<(), TaskError> {
        each_key(run, Side::Combiner, to)
    }
}

/// Sums up the values of each key.
pub(crate) fn reduce(
    run: &mut (dyn RecordStream + Send),
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    each_key(run, Side::Reducer, to)
}

fn each_key(
    run: &mut (dyn RecordStream + Send),
    side: Side,
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    let (mut key, mut summary) = (Vec::new(), None);
    while run.advance()? {
        if summary.is_none() || key != run.key() {
            if let Some(summary) = &summary {
                emit(&key, summary, side, to)?;
            }
            key.clear();
            key.extend_from_slice(run.key());
            summary = Some(new(&key)?);
        }
        let value = vint::text(run.value());
        let added = summary.as_mut().map_or(Ok(()), |summary| summary.add(value));
        added.map_err(|why| wrong(&key, &why))?;
    }
    match &summary {
        Some(summary) => emit(&key, summary, side, to),
        None => Ok(()),
    }
}

/// The kind and the name in a key.
fn parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = vint::text(key);
    let at = text.iter().position(|byte| *byte == b':')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn new(key: &[u8]) -> Result<Summary, TaskError> {
    let kind = parts(key).and_then(|(kind, _)| std::str::from_utf8(kind).ok());
    kind.and_then(Summary::of).ok_or_else(|| {
        wrong(
            key,
            "does not begin with LongValueSum:, DoubleValueSum:, LongValueMax:, LongValueMin:, \
             StringValueMax:, StringValueMin:, UniqValueCount: or ValueHistogram:",
        )
    })
}

fn wrong(key: &[u8], why: &str) -> TaskError {
    TaskError::Task(format!("aggregate: the key {:?} {why}", shown(vint::text(key))))
}

fn emit(
    key: &[u8],
    summary: &Summary,
    side: Side,
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    match side {
        Side::Combiner => {
            let values = summary.combined();
            values.iter().try_for_each(|value| to.collect(vint::text(key), value))
        }
        Side::Reducer => {
            let name = parts(key).map(|(_, name)| name).unwrap_or_default();
            to.collect(name, &summary.report())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Found, texts};

    fn summed(records: &[(&str, &str)], side: Side) -> Result<Vec<(String, String)>, String> {
        let mut found = Found::default();
        let done = each_key(&mut texts(records), side, &mut found);
        done.map(|()| found.0).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_summed_up_as_their_keys_say() {
        for (kind, values, expected) in [
            ("LongValueSum", &["1", "2", " 4 "][..], "7"),
            ("longvaluesum", &["-1"], "-1"),
            ("DoubleValueSum", &["1.5", "2"], "3.5"),
            ("DoubleValueSum", &["1e10"], "1.0E10"),
            ("LongValueMax", &["3", "9", "-1"], "9"),
            ("LongValueMin", &["3", "9", "-1"], "-1"),
            ("StringValueMax", &["b", "c", "a"], "c"),
            ("StringValueMin", &["b", "c", "a"], "a"),
            ("UniqValueCount", &["a", "b", "a"], "2"),
            ("ValueHistogram", &["a", "a\t2", "b", "c\t5"], "3\t1\t3\t5\t3.0\t1.632993161855452"),
        ] {
            let key = format!("{kind}:x:y");
            let records: Vec<(&str, &str)> = values.iter().map(|value| (&*key, *value)).collect();
            let found = summed(&records, Side::Reducer).unwrap();
            assert_eq!(found, [("x:y".to_owned(), expected.to_owned())], "{kind}");
            // What a combiner leaves sums up to the same.
            let combined = summed(&records, Side::Combiner).unwrap();
            assert!(combined.iter().all(|(left, _)| *left == key), "{combined:?}");
            let combined: Vec<(&str, &str)> =
                combined.iter().map(|(key, value)| (&**key, &**value)).collect();
            assert_eq!(summed(&combined, Side::Reducer).unwrap(), found, "{kind}");
        }
        let two = [("LongValueSum:a", "1"), ("LongValueSum:b", "2")];
        assert_eq!(summed(&two, Side::Reducer).unwrap().len(), 2);
        assert_eq!(summed(&[], Side::Reducer).unwrap().len(), 0);
    }

    #[test]
    fn other_keys_and_values_are_refused_by_name() {
        for (key, value, expected) in [
            ("word", "1", "aggregate: the key \"word\" does not begin with LongValueSum:"),
            ("Sum:x", "1", "aggregate: the key \"Sum:x\" does not begin with"),
            ("LongValueSum:x", "a", "has the value \"a\", which is no whole number"),
            ("DoubleValueSum:x", "a", "has the value \"a\", which is no number"),
        ] {
            let refused = summed(&[(key, value)], Side::Reducer).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
