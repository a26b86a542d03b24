//! Built-in steps, for a first job without programs: `cat`, `wc`, `sort` and `grep`.

use corona_mapreduce::native::{LineFormat, Step};
use memchr::memmem::Finder;

use crate::error::{TaskError, cut};
use crate::run::RecordStream;
use crate::spill::{Collector, Combiner};
use crate::vint;

/// The most bytes of a key or a value that an error shows.
const MOST_SHOWN_BYTES: usize = 200;

/// A built-in mapper. A program or a reducer is none: it gives nothing.
#[derive(Debug)]
pub struct Mapper<'a> {
    step: &'a Step,
    lines: &'a LineFormat,
    finder: Option<Finder<'a>>,
}

impl<'a> Mapper<'a> {
    /// The mapper of a step.
    pub fn new(step: &'a Step, lines: &'a LineFormat) -> Mapper<'a> {
        let finder = match step {
            Step::Grep(text) => Some(Finder::new(text.as_bytes())),
            _ => None,
        };
        Mapper { step, lines, finder }
    }

    /// Takes a line of the input.
    #[inline]
    pub fn map(&self, line: &[u8], to: &mut (impl Collector + ?Sized)) -> Result<(), TaskError> {
        match self.step {
            Step::Words => {
                let words = line.split(|byte| byte.is_ascii_whitespace());
                words.filter(|word| !word.is_empty()).try_for_each(|word| to.collect(word, b"1"))
            }
            Step::Sort => to.collect(line, b""),
            Step::Grep(_) => match &self.finder {
                Some(finder) if finder.find(line).is_some() => to.collect(line, b""),
                _ => Ok(()),
            },
            Step::Cat => {
                let (key, value) = split(line, &self.lines.output_separator, self.lines.key_fields);
                to.collect(key, value)
            }
            Step::Program(_) | Step::Aggregate | Step::Commands(_) => Ok(()),
        }
    }
}

/// Splits a line into key and value behind so many fields. A line with fewer is a key.
#[inline]
pub fn split<'a>(line: &'a [u8], separator: &[u8], fields: usize) -> (&'a [u8], &'a [u8]) {
    let mut from = 0;
    for field in 1.. {
        let rest = line.get(from..).unwrap_or_default();
        let found = match separator {
            [one] => memchr::memchr(*one, rest),
            _ => memchr::memmem::find(rest, separator),
        };
        let Some(at) = found else { return (line, &[]) };
        if field >= fields {
            let end = from + at;
            let value = line.get(end + separator.len()..).unwrap_or_default();
            return (line.get(..end).unwrap_or_default(), value);
        }
        from += at + separator.len();
    }
    (line, &[])
}

/// Sums the numbers of each key. A record without a value counts as one, as a word of a program that
/// writes no numbers; another value that is no whole number is an error.
#[derive(Clone, Copy, Debug)]
pub struct Sum;

impl Combiner for Sum {
    fn combine(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        to: &mut dyn Collector,
    ) -> Result<(), TaskError> {
        sum(run, to)
    }
}

/// The same for a reducer.
pub(crate) fn sum(
    run: &mut (dyn RecordStream + Send),
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    let mut key = Vec::new();
    let mut total: Option<i64> = None;
    while run.advance()? {
        let number = number(vint::text(run.key()), vint::text(run.value()))?;
        match total {
            Some(so_far) if key == run.key() => {
                let sum = so_far.checked_add(number);
                total = Some(sum.ok_or_else(|| too_large(vint::text(&key)))?);
            }
            before => {
                if let Some(sum) = before {
                    to.collect(vint::text(&key), sum.to_string().as_bytes())?;
                }
                key.clear();
                key.extend_from_slice(run.key());
                total = Some(number);
            }
        }
    }
    match total {
        Some(sum) => to.collect(vint::text(&key), sum.to_string().as_bytes()),
        None => Ok(()),
    }
}

/// The number in the value of a record.
#[inline]
pub(crate) fn number(key: &[u8], value: &[u8]) -> Result<i64, TaskError> {
    if matches!(value, b"1" | b"") {
        return Ok(1);
    }
    let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| {
        TaskError::Task(format!(
            "builtin:wc sums whole numbers of 64 bits, and the value of {:?} is {:?}",
            shown(key),
            cut(&String::from_utf8_lossy(value), MOST_SHOWN_BYTES)
        ))
    })
}

/// A sum of this key is no whole number of 64 bits any more.
pub(crate) fn too_large(key: &[u8]) -> TaskError {
    TaskError::Task(format!("builtin:wc: the sum of {:?} does not fit into 64 bits", shown(key)))
}

/// A key for an error.
fn shown(key: &[u8]) -> String {
    cut(&String::from_utf8_lossy(key), MOST_SHOWN_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Found, texts};

    #[test]
    fn built_in_mappers() {
        let lines = LineFormat {
            input_separator: b"\t".to_vec(),
            output_separator: b"\t".to_vec(),
            key_fields: 1,
            ignores_key: true,
        };
        for (step, line, expected) in [
            (Step::Words, "a  bc\ta ", &[("a", "1"), ("bc", "1"), ("a", "1")][..]),
            (Step::Sort, "a\tb", &[("a\tb", "")]),
            (Step::Grep("b".into()), "abc", &[("abc", "")]),
            (Step::Grep("x".into()), "abc", &[]),
            (Step::Cat, "a\tb\tc", &[("a", "b\tc")]),
            (Step::Cat, "a", &[("a", "")]),
        ] {
            let mut found = Found::default();
            Mapper::new(&step, &lines).map(line.as_bytes(), &mut found).unwrap();
            let found: Vec<_> = found.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(found, expected, "{step}");
        }
    }

    fn summed(records: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let mut found = Found::default();
        let summed = Sum.combine(&mut texts(records), &mut found);
        summed.map(|()| found.0).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_that_is_no_number_is_refused_and_a_missing_one_counts_as_one() {
        let found = summed(&[("a", "1"), ("a", "-3"), ("a", ""), ("b", " 5 "), ("c", "")]).unwrap();
        let found: Vec<_> = found.iter().map(|(key, sum)| (key.as_str(), sum.as_str())).collect();
        assert_eq!(found, [("a", "-1"), ("b", "5"), ("c", "1")]);
        for wrong in ["foo", "2.5", "1e3", "9223372036854775808", "0x1"] {
            let refused = summed(&[("a", "1"), ("word", wrong)]).unwrap_err();
            let expected = format!(
                "builtin:wc sums whole numbers of 64 bits, and the value of \"word\" is {wrong:?}"
            );
            assert_eq!(refused, expected);
        }
        let most = i64::MAX.to_string();
        let refused = summed(&[("a", &most), ("a", "1")]).unwrap_err();
        assert_eq!(refused, "builtin:wc: the sum of \"a\" does not fit into 64 bits");
    }

    #[test]
    fn keys_of_several_fields() {
        for (line, separator, fields, expected) in [
            ("a.b.c", ".", 2, ("a.b", "c")),
            ("a.b", ".", 2, ("a.b", "")),
            ("a--b", "--", 1, ("a", "b")),
            ("", "\t", 1, ("", "")),
            ("\tb", "\t", 1, ("", "b")),
        ] {
            let (key, value) = split(line.as_bytes(), separator.as_bytes(), fields);
            assert_eq!((key, value), (expected.0.as_bytes(), expected.1.as_bytes()), "{line}");
        }
    }
}
