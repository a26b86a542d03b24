//! The descriptors that the process may open, and their distribution among its uses. Each open file and each
//! connection is one. A process without a free one accepts no connection and writes no file, so that what it
//! has begun fails; it is better to begin less.

use std::io;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for what has no use of its own: the log, libraries, threads that read and write for a moment.
const RESERVED: u64 = 128;
/// A limit below this may be too low for a cluster of usual size. Above it the configured maxima, which are
/// larger than what anybody needs, are no reason for a warning.
const SCARCE: u64 = 8192;
/// What a thread that finds no free descriptor waits before it looks again, and how often it does.
const PAUSE: Duration = Duration::from_millis(50);
const TRIES: u32 = 200;

/// Raises the soft limit to the hard limit; the soft limit of many systems is 1,024. Returns the limit that
/// holds now, none if there is none.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, "the limit of open files and connections cannot be raised");
            current
        }
    }
}

/// The distribution by which this process works.
static BUDGET: OnceLock<Budget> = OnceLock::new();

/// One use of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its name for people, in the plural: `client connections`.
    pub name: &'static str,
    /// How many the configuration allows.
    pub wanted: usize,
    /// Descriptors of each.
    pub each: u32,
    /// Its part of the descriptors, compared with the other uses, where there are too few for all.
    pub weight: u32,
}

/// What each use may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The limit of the process; none if there is none.
    pub limit: Option<u64>,
    /// The uses, each with how many are allowed.
    pub uses: Vec<(Use, usize)>,
}

impl Budget {
    /// Distributes the descriptors of this limit: each use has what it wants, or its part of what the others
    /// leave, and one at least.
    pub fn new(limit: Option<u64>, uses: &[Use]) -> Budget {
        let mut allowed: Vec<usize> = uses.iter().map(|of| of.wanted).collect();
        if let Some(limit) = limit {
            let mut left = limit.saturating_sub(RESERVED);
            let mut open: Vec<usize> = (0..uses.len()).collect();
            loop {
                let weights: u64 = open.iter().map(|at| u64::from(uses[*at].weight)).sum();
                let part = |at: usize| left * u64::from(uses[at].weight) / weights.max(1);
                let (content, short): (Vec<usize>, Vec<usize>) =
                    open.iter().partition(|at| uses[**at].needs() <= part(**at));
                if content.is_empty() {
                    for at in short {
                        let count = part(at) / u64::from(uses[at].each.max(1));
                        allowed[at] = usize::try_from(count).unwrap_or(usize::MAX).max(1);
                    }
                    break;
                }
                left -= content.iter().map(|at| uses[*at].needs()).sum::<u64>();
                open = short;
            }
        }
        Budget { limit, uses: uses.iter().copied().zip(allowed).collect() }
    }

    /// The distribution by which this process works, if it has one.
    pub fn of_process() -> Option<&'static Budget> {
        BUDGET.get()
    }

    /// Has this process work by it, which is shown then. The first one stays.
    pub fn adopt(&self) {
        let _ = BUDGET.set(self.clone());
    }

    /// The limit, for a sentence: `1,024 open files`.
    pub fn limit_text(&self) -> Option<String> {
        let digits = self.limit?.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|group| std::str::from_utf8(group).unwrap_or_default())
            .collect();
        Some(format!("{} open files", groups.join(",")))
    }

    /// How many of a use are allowed.
    pub fn of(&self, name: &str) -> usize {
        self.uses.iter().find(|(of, _)| of.name == name).map_or(usize::MAX, |(_, allowed)| *allowed)
    }

    /// One line for the log.
    pub fn text(&self) -> String {
        let limit = self.limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
        format!("open files and connections: {limit}; {}", self.uses_text())
    }

    /// What each use may have, for people.
    pub fn uses_text(&self) -> String {
        let uses = self.uses.iter().map(|(of, allowed)| match *allowed < of.wanted {
            true => format!("{} {allowed} (configured: {})", of.name, of.wanted),
            false => format!("{} {allowed}", of.name),
        });
        uses.collect::<Vec<String>>().join(", ")
    }

    /// Whether a use has less than the configuration allows, and the limit is one that an operator should raise.
    pub fn is_scarce(&self) -> bool {
        self.limit.is_some_and(|limit| limit < SCARCE)
            && self.uses.iter().any(|(of, allowed)| *allowed < of.wanted)
    }
}

impl Use {
    fn needs(self) -> u64 {
        (self.wanted as u64).saturating_mul(self.each.into())
    }
}

/// Whether an operation failed only because no descriptor was free.
pub fn is_lack(error: &io::Error) -> bool {
    const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
    const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Opens a file on a thread that may block, again while no descriptor is free, for at most ten seconds.
///
/// # Errors
/// Those of `open`.
pub fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..TRIES {
        match open() {
            Err(error) if is_lack(&error) => sleep(PAUSE),
            result => return result,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses(wanted: [usize; 3]) -> [Use; 3] {
        let of = |name, wanted, each, weight| Use { name, wanted, each, weight };
        [of("jobs", wanted[0], 4, 4), of("clients", wanted[1], 1, 4), of("pages", wanted[2], 1, 1)]
    }

    #[test]
    fn descriptors_are_distributed_by_weight_and_what_one_use_leaves_goes_to_the_others() {
        let table = [
            // limit, wanted, allowed
            (None, [5000, 16384, 256], [5000, 16384, 256]),
            (Some(1 << 20), [5000, 16384, 256], [5000, 16384, 256]),
            (Some(1024), [5000, 16384, 256], [99, 398, 99]),
            (Some(1024), [5000, 16384, 10], [110, 443, 10]),
            (Some(1024), [5, 16384, 10], [5, 866, 10]),
            (Some(64), [5000, 16384, 256], [1, 1, 1]),
            (Some(0), [0, 1, 1], [0, 1, 1]),
        ];
        for (limit, wanted, allowed) in table {
            let budget = Budget::new(limit, &uses(wanted));
            let found = ["jobs", "clients", "pages"].map(|name| budget.of(name));
            assert_eq!(found, allowed, "{limit:?} {wanted:?}");
            assert_eq!(budget.is_scarce(), allowed != wanted, "{limit:?} {wanted:?}");
        }
    }

    #[test]
    fn the_log_names_what_is_less_than_configured() {
        let budget = Budget::new(Some(1024), &uses([5000, 16384, 10]));
        let expected = "open files and connections: 1024; jobs 110 (configured: 5000), \
                        clients 443 (configured: 16384), pages 10";
        assert_eq!(budget.text(), expected);
        assert_eq!(budget.of("another"), usize::MAX);
        assert_eq!(budget.limit_text().unwrap(), "1,024 open files");
        for (limit, text) in [(7, "7"), (100, "100"), (1000, "1,000"), (1_048_576, "1,048,576")] {
            let budget = Budget::new(Some(limit), &[]);
            assert_eq!(budget.limit_text().unwrap(), format!("{text} open files"));
        }
        assert_eq!(Budget::new(None, &[]).limit_text(), None);
    }

    proptest! {
        #[test]
        fn no_more_descriptors_are_promised_than_there_are(
            limit in 200..1_000_000_u64,
            wanted in prop::array::uniform3(0..100_000_usize),
        ) {
            let uses = uses(wanted);
            let budget = Budget::new(Some(limit), &uses);
            let used: u64 = budget.uses.iter().map(|(of, allowed)| {
                *allowed as u64 * u64::from(of.each)
            }).sum();
            prop_assert!(used <= limit, "{used}");
            for (of, allowed) in &budget.uses {
                prop_assert!(*allowed <= of.wanted.max(1));
            }
        }
    }

    #[test]
    fn a_lack_of_descriptors_is_waited_for_and_other_errors_are_not() {
        let mut errors = vec![24, 23];
        let opened = patiently(|| match errors.pop() {
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Ok(7),
        });
        assert_eq!(opened.unwrap(), 7);
        let mut tries = 0;
        let refused = patiently(|| {
            tries += 1;
            Err::<(), _>(io::Error::from_raw_os_error(13))
        });
        assert_eq!((refused.unwrap_err().raw_os_error(), tries), (Some(13), 1));
    }
}
