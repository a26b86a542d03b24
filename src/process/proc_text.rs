//! The two forms of numbers in `/proc`, proc(5). Reads no file.

/// The fields of `/proc/PID/stat` after the number and the name of the process.
#[derive(Debug)]
pub(crate) struct Stat<'a>(Vec<&'a str>);

impl<'a> Stat<'a> {
    /// The second field, the name, may hold anything between parentheses. `None` without one.
    pub(crate) fn of(stat: &'a str) -> Option<Stat<'a>> {
        let (_, rest) = stat.rsplit_once(')')?;
        Some(Stat(rest.split_whitespace().collect()))
    }

    /// A field by its number in proc(5), from 3 on; `None` where there is none.
    pub(crate) fn field(&self, number: usize) -> Option<&'a str> {
        self.0.get(number.checked_sub(3)?).copied()
    }

    /// The same where it is a number of 0 or more.
    pub(crate) fn number(&self, number: usize) -> Option<u64> {
        self.field(number)?.parse().ok()
    }
}

/// The first number after a name at the start of a line. The colon, if the file has one, is part of
/// the name: other names may begin with the same letters.
pub fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_any_name() {
        let names = ["cat", "a b", ")", "(", "a) b (c", ") R 9 9 9 9", ""];
        for name in names {
            let text = format!("42 ({name}) S 7 40 39 0 -1 18446744073709551616\n");
            let stat = Stat::of(&text).expect(name);
            // The field, its text, and the text as a number.
            let cases = [
                (0, None, None),
                (1, None, None),
                (2, None, None),
                (3, Some("S"), None),
                (4, Some("7"), Some(7)),
                (7, Some("0"), Some(0)),
                (8, Some("-1"), None),
                (9, Some("18446744073709551616"), None),
                (10, None, None),
                (usize::MAX, None, None),
            ];
            for (number, field, value) in cases {
                assert_eq!(stat.field(number), field, "field {number} behind {name:?}");
                assert_eq!(stat.number(number), value, "field {number} behind {name:?}");
            }
        }
    }

    #[test]
    fn a_line_may_end_early() {
        for text in ["", "42", "42 (a", "42 (a b S 7"] {
            assert!(Stat::of(text).is_none(), "{text:?}");
        }
        for text in ["42 (a)", "42 (a)\n"] {
            assert_eq!(Stat::of(text).expect(text).field(3), None, "{text:?}");
        }
    }

    #[test]
    fn a_number_is_found_by_its_name() {
        let text = "Inactive(anon):  7 kB\nInactive:   50 kB\nVmRSS:\t1234 kB\nThreads:\t7\n\
            Max open files            1024                 4096      files\n\
            Max processes             unlimited            unlimited processes\n\
            Shown: -3\nEmpty:\nTwice: 1\nTwice: 2\n";
        let cases = [
            ("Inactive:", Some(50)),
            ("Inactive(anon):", Some(7)),
            ("VmRSS:", Some(1234)),
            ("RSS:", None),
            ("Threads:", Some(7)),
            ("Max open files", Some(1024)),
            ("Max processes", None),
            ("Shown:", None),
            ("Empty:", None),
            ("Twice:", Some(1)),
            ("VmHWM:", None),
        ];
        for (name, number) in cases {
            assert_eq!(number_after(text, name), number, "{name}");
        }
    }
}
