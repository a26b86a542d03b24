//! The expected text of each step of a case:
//!
//! ```text
//! sessionHeartbeat of nobody => InvalidSessionHandle: x
//! killSession of nobody => original: closed | ours: ok | D-2.2
//! ```

/// The kind of cluster manager under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Original,
    Ours,
}

/// The lines of a case.
pub(crate) struct Expected(Vec<ExpectedLine>);

struct ExpectedLine {
    step: &'static str,
    original: &'static str,
    ours: &'static str,
    /// The row of the compatibility table, where the two differ.
    row: Option<&'static str>,
}

impl Expected {
    /// # Panics
    /// When a line is not of one of the two forms, or names an unknown difference.
    pub(crate) fn read(text: &'static str) -> Expected {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Expected(
            lines
                .map(|line| ExpectedLine::read(line).unwrap_or_else(|| panic!("{line}")))
                .collect(),
        )
    }

    pub(crate) fn names_a_difference(&self) -> bool {
        self.rows().next().is_some()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter_map(|line| line.row)
    }

    /// Compares the steps that were seen with those of this kind; the error names the first one
    /// that differs.
    pub(crate) fn judge(&self, steps: &[(String, String)], kind: Kind) -> Result<(), String> {
        let mut seen = steps.iter();
        for line in &self.0 {
            let (wanted, other) = match kind {
                Kind::Original => (line.original, line.ours),
                Kind::Ours => (line.ours, line.original),
            };
            let Some((step, outcome)) = seen.next() else {
                return Err(format!("{}: it did not come to that", line.step));
            };
            if step == line.step && outcome == wanted {
                continue;
            }
            let gone = match line.row {
                Some(row) if outcome == other => format!("; row {row} says that they differ"),
                _ => String::new(),
            };
            let line = line.step;
            return Err(format!("wanted {line} => {wanted}\n   was {step} => {outcome}{gone}"));
        }
        match seen.next() {
            Some((step, outcome)) => Err(format!("nothing is expected of {step} => {outcome}")),
            None => Ok(()),
        }
    }
}

impl ExpectedLine {
    fn read(line: &'static str) -> Option<ExpectedLine> {
        let (step, rest) = line.split_once(" => ")?;
        let Some(rest) = rest.strip_prefix("original: ") else {
            return Some(ExpectedLine { step, original: rest, ours: rest, row: None });
        };
        let (original, rest) = rest.split_once(" | ours: ")?;
        let (ours, row) = rest.rsplit_once(" | ")?;
        (original != ours).then_some(ExpectedLine { step, original, ours, row: Some(row) })
    }
}

#[test]
fn a_difference_that_is_gone_fails_like_one_that_is_new() {
    let expected = Expected::read("one => a\n two => original: b | ours: c | D-1.1\n");
    let steps = |two: &str| {
        [("one", "a"), ("two", two)].map(|(step, what)| (step.to_owned(), what.to_owned()))
    };
    assert_eq!(expected.judge(&steps("b"), Kind::Original), Ok(()));
    assert_eq!(expected.judge(&steps("c"), Kind::Ours), Ok(()));
    let gone = expected.judge(&steps("c"), Kind::Original).unwrap_err();
    assert!(gone.contains("row D-1.1 says that they differ"), "{gone}");
    let new = expected.judge(&steps("d"), Kind::Ours).unwrap_err();
    assert!(new.contains("wanted two => c") && !new.contains("D-1.1"), "{new}");
    assert!(expected.judge(&steps("c")[..1], Kind::Ours).is_err());
    assert!(expected.names_a_difference());
}
