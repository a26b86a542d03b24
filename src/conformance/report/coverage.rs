//! How much was compared, in a sentence that stands beside the verdict.

/// The messages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Compared in every detail.
    pub(crate) exact: u64,
    /// Different, which a row of the compatibility table or a free choice explains.
    pub(crate) by_a_row: u64,
    pub(crate) not_compared: u64,
}

/// The coverage of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) calls: Kind,
    pub(crate) notices: Kind,
    /// Grants that are the same on the same node, and those that are a free choice.
    pub(crate) grants: [u64; 2],
    /// Pairs of times.
    pub(crate) times: u64,
}

impl Kind {
    fn all(self) -> u64 {
        self.exact + self.by_a_row + self.not_compared
    }

    fn sentence(self, name: &str) -> String {
        let Kind { exact, by_a_row, not_compared } = self;
        let mut sentence = format!("{name} {exact} exactly");
        for (count, how) in [(by_a_row, "explained"), (not_compared, "not at all")] {
            if count > 0 {
                sentence += &format!(", {count} {how}");
            }
        }
        sentence
    }

    /// Whether less than half was compared in every detail.
    fn is_low(self) -> bool {
        self.exact * 2 < self.all()
    }
}

impl Coverage {
    /// Whether the verdict rests on the smaller part of what could have been compared.
    pub(crate) fn is_low(&self) -> bool {
        self.calls.is_low() || self.notices.is_low()
    }

    /// The reason for a low coverage, to continue a sentence with.
    pub(crate) fn remark(&self) -> String {
        let of = |kind: Kind, name: &str| {
            let what =
                format!("only {} of {} {name} were compared exactly", kind.exact, kind.all());
            kind.is_low().then_some(what)
        };
        let all = [of(self.calls, "calls"), of(self.notices, "notifications")];
        let all: Vec<String> = all.into_iter().flatten().collect();
        if all.is_empty() { String::new() } else { format!(", but {}", all.join(" and ")) }
    }

    /// All of it.
    pub(crate) fn sentence(&self) -> String {
        let [same, free] = self.grants;
        let grants = format!("grants {same} exactly, {free} as a free choice");
        let times = match self.times {
            0 => "no times".to_owned(),
            times => format!("{times} times"),
        };
        format!(
            "Compared: {}; {}; {grants}; {times}.",
            self.calls.sentence("calls"),
            self.notices.sentence("notifications")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_coverage_is_told_and_nothing_is_hidden() {
        let kind = |exact, by_a_row, not_compared| Kind { exact, by_a_row, not_compared };
        let mut coverage =
            Coverage { calls: kind(9, 1, 0), notices: kind(4, 14, 1), grants: [3, 12], times: 0 };
        assert!(coverage.is_low());
        assert_eq!(coverage.remark(), ", but only 4 of 19 notifications were compared exactly");
        assert_eq!(
            coverage.sentence(),
            "Compared: calls 9 exactly, 1 explained; notifications 4 exactly, 14 explained, 1 not at \
             all; grants 3 exactly, 12 as a free choice; no times."
        );
        (coverage.notices, coverage.times) = (Kind::default(), 7);
        assert!(!coverage.is_low() && coverage.remark().is_empty());
        assert!(coverage.sentence().ends_with("; 7 times."), "{}", coverage.sentence());
    }
}
