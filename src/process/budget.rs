//! What the machine allows a daemon, and its distribution among what the daemon does at a time: descriptors, memory
//! and threads. A process without a free descriptor accepts no connection and writes no file, and one without memory
//! is killed, so that what it has begun fails; it is better to begin less.
//!
//! The limits are read once, at the start. A use gets what the configuration allows, or its part, by weight, of what
//! the uses that are content leave. This file must not know the uses.

use std::sync::OnceLock;

use super::cgroups::Groups;
use super::procfs::Machine;

/// Descriptors for what has no use of its own: the log, libraries, threads that read and write for a moment.
const RESERVED_FILES: u64 = 128;
/// The same in memory: the program itself, and what it does for a moment.
const RESERVED_BYTES: u64 = 64 << 20;
/// The same in threads: those of the executor, of journals and of the log.
const RESERVED_THREADS: u64 = 64;
/// A limit below this may be too low for a cluster of usual size. Above it the configured maxima, which are
/// larger than what anybody needs, are no reason for a warning.
const SCARCE_FILES: u64 = 8192;
const SCARCE_BYTES: u64 = 256 << 20;
const SCARCE_THREADS: u64 = 1024;
/// In percent: what a daemon may take of a control group's memory, where nothing else should be, and of a machine's,
/// where other programs run.
const OF_GROUP: u64 = 90;
const OF_MACHINE: u64 = 50;

/// What is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Open files and connections.
    OpenFiles,
    /// Bytes of memory.
    Memory,
    /// Threads, and processes where a control group counts both.
    Threads,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::OpenFiles, Resource::Memory, Resource::Threads];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Resource::OpenFiles => "open_files",
            Resource::Memory => "memory_bytes",
            Resource::Threads => "threads",
        }
    }

    fn reserved(self) -> u64 {
        match self {
            Resource::OpenFiles => RESERVED_FILES,
            Resource::Memory => RESERVED_BYTES,
            Resource::Threads => RESERVED_THREADS,
        }
    }

    fn scarce(self) -> u64 {
        match self {
            Resource::OpenFiles => SCARCE_FILES,
            Resource::Memory => SCARCE_BYTES,
            Resource::Threads => SCARCE_THREADS,
        }
    }

    /// So much of it, for a sentence: `1,024 open files`.
    fn text(self, amount: u64) -> String {
        match self {
            Resource::OpenFiles => format!("{} open files", grouped(amount)),
            Resource::Memory => format!("{} MiB of memory", grouped(amount >> 20)),
            Resource::Threads => format!("{} threads", grouped(amount)),
        }
    }
}

/// What the machine allows this process; none: there is no limit, or it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open files and connections.
    pub open_files: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

impl Limits {
    /// Those of this process, as they are at the first look.
    pub fn of_process() -> Limits {
        static LIMITS: OnceLock<Limits> = OnceLock::new();
        *LIMITS.get_or_init(|| {
            let groups = Groups::of_process();
            let machine = Machine::now().memory_bytes;
            let parts = [
                (machine > 0).then_some(machine / 100 * OF_MACHINE),
                groups.memory().map(|memory| memory.limit_bytes / 100 * OF_GROUP),
            ];
            Limits {
                open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
                memory: parts.into_iter().flatten().min(),
                threads: groups.threads(),
            }
        })
    }

    /// How much there is of a resource.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::OpenFiles => self.open_files,
            Resource::Memory => self.memory,
            Resource::Threads => self.threads,
        }
    }
}

/// One use of what the machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its name for people, in the plural: `client connections`.
    pub name: &'static str,
    /// How many the configuration allows.
    pub wanted: usize,
    /// How many there are at least, however little the machine allows.
    pub least: usize,
    /// Its part, compared with the other uses, where there is too little for all.
    pub weight: u32,
    files: u64,
    memory: u64,
    threads: u64,
}

impl Use {
    /// So many, which need nothing yet.
    pub const fn new(name: &'static str, wanted: usize) -> Use {
        Use { name, wanted, least: 1, weight: 1, files: 0, memory: 0, threads: 0 }
    }

    /// With another weight than 1.
    pub const fn weight(self, weight: u32) -> Use {
        Use { weight, ..self }
    }

    /// With another least number than 1.
    pub const fn least(self, least: usize) -> Use {
        Use { least, ..self }
    }

    /// Each needs so many descriptors.
    pub const fn files(self, files: u64) -> Use {
        Use { files, ..self }
    }

    /// Each needs so many bytes of memory.
    pub const fn memory(self, memory: u64) -> Use {
        Use { memory, ..self }
    }

    /// Each needs so many threads.
    pub const fn threads(self, threads: u64) -> Use {
        Use { threads, ..self }
    }

    fn of_each(&self, resource: Resource) -> u64 {
        match resource {
            Resource::OpenFiles => self.files,
            Resource::Memory => self.memory,
            Resource::Threads => self.threads,
        }
    }

    fn needs(&self, resource: Resource) -> u64 {
        (self.wanted as u64).saturating_mul(self.of_each(resource))
    }
}

/// What one use may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The use.
    pub of: Use,
    /// How many are allowed at a time.
    pub allowed: usize,
    /// What allows no more, if that is less than is configured.
    pub limited_by: Option<Resource>,
}

/// What each use may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What is distributed.
    pub limits: Limits,
    /// The uses, each with how many are allowed.
    pub shares: Vec<Share>,
}

/// The distribution by which this process works.
static BUDGET: OnceLock<Budget> = OnceLock::new();

impl Budget {
    /// Distributes what these limits allow: each use has what it wants, or its part of what the others leave, and its
    /// least number at least.
    pub fn new(limits: Limits, uses: &[Use]) -> Budget {
        let whole = |of: &Use| Share { of: *of, allowed: of.wanted, limited_by: None };
        let mut shares: Vec<Share> = uses.iter().map(whole).collect();
        for resource in Resource::ALL {
            let Some(limit) = limits.of(resource) else { continue };
            let left = limit.saturating_sub(resource.reserved());
            for (share, part) in shares.iter_mut().zip(parts(left, resource, uses)) {
                let Some(part) = part else { continue };
                let count = part / share.of.of_each(resource).max(1);
                let count = usize::try_from(count).unwrap_or(usize::MAX).max(share.of.least);
                if count < share.allowed {
                    (share.allowed, share.limited_by) = (count, Some(resource));
                }
            }
        }
        Budget { limits, shares }
    }

    /// The distribution by which this process works, if it has one.
    pub fn of_process() -> Option<&'static Budget> {
        BUDGET.get()
    }

    /// Has this process work by it, which is shown then. The first one stays.
    pub fn adopt(&self) {
        let _ = BUDGET.set(self.clone());
    }

    fn share(&self, name: &str) -> Option<&Share> {
        self.shares.iter().find(|share| share.of.name == name)
    }

    /// How many of a use are allowed.
    pub fn of(&self, name: &str) -> usize {
        self.share(name).map_or(usize::MAX, |share| share.allowed)
    }

    /// What allows no more of a use, for a sentence: `1,024 open files`. None if the configuration does.
    pub fn reason(&self, name: &str) -> Option<String> {
        let resource = self.share(name)?.limited_by?;
        Some(resource.text(self.limits.of(resource)?))
    }

    /// One line for the log.
    pub fn text(&self) -> String {
        let limits: Vec<String> = Resource::ALL
            .into_iter()
            .filter_map(|resource| Some(resource.text(self.limits.of(resource)?)))
            .collect();
        let limits = if limits.is_empty() { "no limits".to_owned() } else { limits.join(", ") };
        format!("this process may use {limits}; {}", self.uses_text())
    }

    /// What each use may have, for people.
    pub fn uses_text(&self) -> String {
        let shares = self.shares.iter().map(|Share { of, allowed, limited_by }| match limited_by {
            Some(_) => format!("{} {allowed} (configured: {})", of.name, of.wanted),
            None => format!("{} {allowed}", of.name),
        });
        shares.collect::<Vec<String>>().join(", ")
    }

    /// What an operator should raise: of what there is little, so that a use has less than the configuration allows.
    pub fn scarce(&self) -> Vec<Resource> {
        let is_short =
            |resource: Resource| self.shares.iter().any(|it| it.limited_by == Some(resource));
        let is_little =
            |resource: Resource| self.limits.of(resource).is_some_and(|it| it < resource.scarce());
        Resource::ALL.into_iter().filter(|it| is_short(*it) && is_little(*it)).collect()
    }
}

/// What each use gets of a resource of which so much is left; none if it gets what it wants.
fn parts(mut left: u64, resource: Resource, uses: &[Use]) -> Vec<Option<u64>> {
    let mut parts = vec![None; uses.len()];
    let mut open: Vec<(&Use, &mut Option<u64>)> =
        uses.iter().zip(&mut parts).filter(|(of, _)| of.of_each(resource) > 0).collect();
    loop {
        let weights: u64 = open.iter().map(|(of, _)| u64::from(of.weight)).sum();
        let part = |of: &Use| {
            let part = u128::from(left) * u128::from(of.weight) / u128::from(weights.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let (content, short): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(of, _)| of.needs(resource) <= part(of));
        if content.is_empty() {
            short.into_iter().for_each(|(of, its_part)| *its_part = Some(part(of)));
            return parts;
        }
        left -= content.iter().map(|(of, _)| of.needs(resource)).sum::<u64>();
        open = short;
    }
}

/// A number as people read it: `1,048,576`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses(wanted: [usize; 3]) -> [Use; 3] {
        [
            Use::new("jobs", wanted[0]).weight(4).files(4),
            Use::new("clients", wanted[1]).weight(4).files(1),
            Use::new("pages", wanted[2]).files(1),
        ]
    }

    fn files(open_files: Option<u64>) -> Limits {
        Limits { open_files, ..Limits::default() }
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
            let budget = Budget::new(files(limit), &uses(wanted));
            let found = ["jobs", "clients", "pages"].map(|name| budget.of(name));
            assert_eq!(found, allowed, "{limit:?} {wanted:?}");
            assert_eq!(!budget.scarce().is_empty(), allowed != wanted, "{limit:?} {wanted:?}");
        }
    }

    #[test]
    fn a_use_has_what_its_scarcest_resource_allows() {
        let uses = [
            Use::new("jobs", 5000).weight(3).files(3).memory(1 << 20),
            Use::new("MiB of calls", 1024).memory(1 << 20).least(16),
            Use::new("threads for disks", 512).threads(1),
        ];
        let limits = |files, mib: u64, threads| Limits {
            open_files: Some(files),
            memory: Some(mib << 20),
            threads: Some(threads),
        };
        for (limits, jobs, mib, threads, reason) in [
            (limits(1 << 20, 1 << 20, 1 << 20), 5000, 1024, 512, None),
            (limits(1024, 1 << 20, 1 << 20), 298, 1024, 512, Some("1,024 open files")),
            (limits(1 << 20, 464, 100), 300, 100, 36, Some("464 MiB of memory")),
            (limits(1024, 10, 0), 1, 16, 1, Some("10 MiB of memory")),
        ] {
            let budget = Budget::new(limits, &uses);
            let found =
                (budget.of("jobs"), budget.of("MiB of calls"), budget.of("threads for disks"));
            assert_eq!(found, (jobs, mib, threads), "{limits:?}");
            assert_eq!(budget.reason("jobs").as_deref(), reason, "{limits:?}");
        }
    }

    #[test]
    fn the_log_names_what_is_less_than_configured() {
        let limits = Limits { memory: Some(3 << 30), ..files(Some(1024)) };
        let budget = Budget::new(limits, &uses([5000, 16384, 10]));
        let expected = "this process may use 1,024 open files, 3,072 MiB of memory; \
                        jobs 110 (configured: 5000), clients 443 (configured: 16384), pages 10";
        assert_eq!(budget.text(), expected);
        assert_eq!(budget.of("another"), usize::MAX);
        assert_eq!(budget.scarce(), [Resource::OpenFiles]);
        assert_eq!(budget.reason("pages"), None);
        let text = Budget::new(Limits::default(), &[]).text();
        assert!(text.starts_with("this process may use no limits"), "{text}");
        for (number, text) in [(7, "7"), (100, "100"), (1000, "1,000"), (1_048_576, "1,048,576")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn limits_of_this_process_are_known() {
        let own = Limits::of_process();
        assert!(own.open_files.is_some() && own.memory.is_some(), "{own:?}");
    }

    proptest! {
        #[test]
        fn no_more_is_promised_than_there_is(
            limit in 200..1_000_000_u64,
            wanted in prop::array::uniform3(0..100_000_usize),
        ) {
            let budget = Budget::new(files(Some(limit)), &uses(wanted));
            let used: u64 = budget.shares.iter().map(|share| {
                share.allowed as u64 * share.of.of_each(Resource::OpenFiles)
            }).sum();
            prop_assert!(used <= limit, "{used}");
            for share in &budget.shares {
                prop_assert!(share.allowed <= share.of.wanted.max(1));
            }
        }
    }
}
