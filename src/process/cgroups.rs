//! Control groups, cgroups(7) of version 1 and 2: those of this process, what they allow it, and the numbers in the
//! kernel's files. It makes no groups, and must not know what runs in them.

use std::fs;
use std::path::{Path, PathBuf};

pub use super::proc_text::number_after;
use super::procfs::{Machine, us_to_ticks};

/// A limit of version 1 above this is none: the kernel has a number for it.
const NO_LIMIT: u64 = 1 << 60;
/// A processor, in parts of which limits are read.
const WHOLE_CPU: u64 = 1000;

/// The control groups of a process, one in each hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<Hierarchy>);

/// A mounted hierarchy, and the group of the process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Of version 1; version 2 has one hierarchy for all.
    controllers: Option<Vec<String>>,
    mount: PathBuf,
    /// The path of the group below the mount.
    below: PathBuf,
}

/// What control groups allow of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    /// Thousandths of a processor.
    pub thousandths: u64,
    /// Processor time that the limited group has used, in microseconds; none where it is not counted.
    pub used_us: Option<u64>,
}

/// What control groups allow of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The lowest limit of the group and those above it.
    pub limit_bytes: u64,
    /// What is left below the limits: free, or in use for data of files that can be discarded.
    pub available_bytes: u64,
}

impl Groups {
    /// Those of this process. None where they cannot be read.
    pub fn of_process() -> Groups {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Groups::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// Those in the texts of two files: `/proc/PID/mountinfo` and `/proc/PID/cgroup`.
    pub fn parse(mounts: &str, groups: &str) -> Groups {
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let hierarchies = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let has = |mount: &&Mount<'_>| match controllers {
                "" => mount.is_unified,
                of => {
                    let options = || mount.options.split(',');
                    !mount.is_unified && of.split(',').all(|one| options().any(|it| it == one))
                }
            };
            // In a container the path may be that of the host, and only a part of the hierarchy is mounted.
            let below = |mount: &Mount<'_>| Path::new(path).strip_prefix(mount.root).ok();
            let found = mounts.iter().filter(has);
            let best = found.clone().find(|mount| below(mount).is_some());
            let mount = best.or_else(|| found.clone().next())?;
            Some(Hierarchy {
                controllers: (!controllers.is_empty())
                    .then(|| controllers.split(',').map(str::to_owned).collect()),
                mount: mount.point(),
                below: below(mount).unwrap_or(Path::new("")).to_owned(),
            })
        });
        Groups(hierarchies.collect())
    }

    /// The directory of the group of version 2. None if it is not mounted, or is above what a container sees.
    pub fn unified(&self) -> Option<PathBuf> {
        let hierarchy = self.0.iter().find(|one| one.controllers.is_none())?;
        hierarchy.is_seen().then(|| hierarchy.mount.join(&hierarchy.below))
    }

    /// The hierarchies that may have limits of this controller.
    fn with(&self, controller: &str) -> impl Iterator<Item = &Hierarchy> {
        self.0.iter().filter(move |one| match &one.controllers {
            None => true,
            Some(of) => of.iter().any(|it| it == controller),
        })
    }

    /// What the groups allow of the memory. None without a limit.
    pub fn memory(&self) -> Option<MemoryLimit> {
        let limits = self.with("memory").flat_map(|hierarchy| {
            let [limit, used, cached] = match hierarchy.is_unified() {
                true => ["memory.max", "memory.current", "inactive_file "],
                false => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
            };
            hierarchy.levels().filter_map(move |group| {
                let limit_bytes = number_in(&group.join(limit)).filter(|it| *it < NO_LIMIT)?;
                let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                let cached = number_after(&stat, cached).unwrap_or(0);
                let used = number_in(&group.join(used)).unwrap_or(0).saturating_sub(cached);
                Some(MemoryLimit { limit_bytes, available_bytes: limit_bytes.saturating_sub(used) })
            })
        });
        limits.reduce(|one, other| MemoryLimit {
            limit_bytes: one.limit_bytes.min(other.limit_bytes),
            available_bytes: one.available_bytes.min(other.available_bytes),
        })
    }

    /// What the groups allow of the CPUs. None without a limit.
    pub fn cpus(&self) -> Option<CpuLimit> {
        let limits = self.with("cpu").flat_map(|hierarchy| {
            hierarchy.levels().filter_map(|group| {
                let thousandths = hierarchy.quota(&group)?;
                let used_us = match hierarchy.is_unified() {
                    true => fs::read_to_string(group.join("cpu.stat"))
                        .ok()
                        .and_then(|stat| number_after(&stat, "usage_usec ")),
                    false => self.counted_us(group.strip_prefix(&hierarchy.mount).ok()?),
                };
                Some(CpuLimit { thousandths, used_us })
            })
        });
        limits.min_by_key(|limit| limit.thousandths)
    }

    /// The processor time of a group of version 1, which another controller may count.
    fn counted_us(&self, below: &Path) -> Option<u64> {
        let counts = |one: &&Hierarchy| !one.is_unified();
        let hierarchy = self.with("cpuacct").find(counts)?;
        let file = hierarchy.mount.join(below).join("cpuacct.usage");
        number_in(&file).map(|nanoseconds| nanoseconds / 1000)
    }

    /// The threads that the groups allow this process: what others in the group have is not ours. None without a limit.
    pub fn threads(&self) -> Option<u64> {
        let limits = self.with("pids").flat_map(|hierarchy| {
            hierarchy.levels().filter_map(|group| {
                let most = number_in(&group.join("pids.max"))?;
                let others = number_in(&group.join("pids.current")).unwrap_or(0);
                Some(most.saturating_sub(others))
            })
        });
        limits.min()
    }
}

impl Hierarchy {
    fn is_unified(&self) -> bool {
        self.controllers.is_none()
    }

    /// Whether the group is below the mount, and not above it.
    fn is_seen(&self) -> bool {
        !self.below.components().any(|part| part.as_os_str() == "..")
    }

    /// The group and all above it, as far as they are seen.
    fn levels(&self) -> impl Iterator<Item = PathBuf> {
        let below = if self.is_seen() { self.below.as_path() } else { Path::new("") };
        below.ancestors().map(|below| self.mount.join(below))
    }

    /// The limit of a group's CPUs, in thousandths of one.
    fn quota(&self, group: &Path) -> Option<u64> {
        let (quota, period) = match self.is_unified() {
            true => {
                let text = fs::read_to_string(group.join("cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
            }
            // A quota of -1 is none.
            false => (
                number_in(&group.join("cpu.cfs_quota_us"))?,
                number_in(&group.join("cpu.cfs_period_us"))?,
            ),
        };
        quota.saturating_mul(WHOLE_CPU).checked_div(period)
    }
}

/// A line of `/proc/self/mountinfo` about a hierarchy.
struct Mount<'a> {
    /// The group that is mounted.
    root: &'a str,
    point: &'a str,
    is_unified: bool,
    options: &'a str,
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        let (fields, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let is_unified = match rest.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let mut fields = fields.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        Some(Mount { root, point, is_unified, options: rest.nth(1).unwrap_or_default() })
    }

    /// The kernel writes a space as a number.
    fn point(&self) -> PathBuf {
        self.point.replace("\\040", " ").into()
    }
}

impl Machine {
    /// The machine as this process may use it: with the limits of its control groups, and the CPUs on which it may
    /// run. Under a limit, what is used is what the limited group uses.
    pub fn allowed() -> Machine {
        let cpus = rustix::thread::sched_getaffinity(None).map_or(u32::MAX, |set| set.count());
        Machine::now().within(&Groups::of_process(), cpus)
    }

    /// This machine within control groups, on so many CPUs.
    fn within(mut self, groups: &Groups, cpus: u32) -> Machine {
        if let Some(MemoryLimit { limit_bytes, available_bytes }) = groups.memory() {
            self.memory_bytes = self.memory_bytes.min(limit_bytes);
            self.available_bytes = self.available_bytes.min(available_bytes);
        }
        let all = self.cpus;
        self.cpus = all.min(cpus);
        let Some(CpuLimit { thousandths, used_us }) = groups.cpus() else { return self };
        let whole = u32::try_from(thousandths / WHOLE_CPU).unwrap_or(u32::MAX).max(1);
        // The limit is above what the machine has.
        let whole_machine = u64::from(all).saturating_mul(WHOLE_CPU);
        if thousandths >= whole_machine {
            return self;
        }
        self.cpus = self.cpus.min(whole);
        if let Some(used_us) = used_us {
            self.busy_ticks = us_to_ticks(used_us);
            let part = u128::from(self.total_ticks) * u128::from(thousandths);
            self.total_ticks = u64::try_from(part / u128::from(whole_machine)).unwrap_or(u64::MAX);
        }
        self
    }
}

/// The number that is all of a file. None if it is not there, or has a word, such as `max`.
pub fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up tree of the kernel's files, with version 1 and 2.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = tree.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            tree
        }

        /// The groups of a process, where all hierarchies have this group at their mounts.
        fn mounted(&self, root: &str, groups: &str) -> Groups {
            let dir = self.0.path().display();
            let mounts = format!(
                "24 1 0:22 / /proc rw - proc proc rw\n\
                 31 23 0:28 / {dir} rw - tmpfs tmpfs rw,mode=755\n\
                 32 31 0:29 {root} {dir}/v1/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                 33 31 0:32 {root} {dir}/v1/memory rw,relatime - cgroup cgroup rw,memory\n\
                 34 31 0:36 {root} {dir}/v1/pids rw,relatime - cgroup cgroup rw,pids\n\
                 41 31 0:38 {root} {dir}/v2 rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
            );
            Groups::parse(&mounts, groups)
        }

        fn of(&self, groups: &str) -> Groups {
            self.mounted("/", groups)
        }
    }

    #[test]
    fn the_least_limit_of_the_groups_above_a_process_counts() {
        let tree = Tree::new(&[
            ("v2/a/b/memory.max", "max"),
            ("v2/a/memory.max", "2000000"),
            ("v2/a/b/pids.max", "300"),
            ("v2/a/b/pids.current", "100"),
            ("v2/a/pids.max", "1000"),
            ("v1/memory/x/memory.limit_in_bytes", "3000"),
            ("v1/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("v1/pids/x/pids.max", "70"),
        ]);
        let limit = |groups: &str| tree.of(groups).memory().map(|memory| memory.limit_bytes);
        assert_eq!(limit("0::/a/b\n"), Some(2_000_000));
        assert_eq!(tree.of("0::/a/b\n").threads(), Some(200));
        assert_eq!(limit("0::/another\n"), None);
        assert_eq!(limit("4:memory:/x\n3:pids:/x\n"), Some(3_000));
        assert_eq!(tree.of("4:memory:/x\n3:pids:/x\n").threads(), Some(70));
        assert_eq!(limit("4:memory:/\n"), None);
        assert_eq!(limit("4:memory:/x\n0::/a/b\n"), Some(3_000));
        for nonsense in ["", "nonsense\n\n1:\n", "9:name=systemd:/x\n", "5:hugetlb:/x\n"] {
            assert_eq!(tree.of(nonsense).memory(), None, "{nonsense:?}");
        }
        assert_eq!(Groups::parse("1 2 3 - cgroup2\n - \n", "0::/a\n"), Groups::default());
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let tree = Tree::new(&[
            ("v2/memory.max", "5000"),
            ("v2/inner/memory.max", "4000"),
            ("v1/memory/memory.limit_in_bytes", "700"),
        ]);
        let limit =
            |root, groups: &str| tree.mounted(root, groups).memory().map(|it| it.limit_bytes);
        // The path of the host, at a mount of which only the container's group is there.
        assert_eq!(limit("/docker/1", "0::/docker/1/inner\n"), Some(4000));
        assert_eq!(limit("/docker/1", "0::/docker/1\n"), Some(5000));
        assert_eq!(limit("/docker/1", "0::/docker/2\n"), Some(5000));
        assert_eq!(limit("/docker/1", "4:memory:/docker/1\n"), Some(700));
        assert_eq!(limit("/", "0::/host/container\n"), Some(5000));
        assert_eq!(limit("/", "0::/../../inner\n"), Some(5000));
    }

    #[test]
    fn data_of_files_counts_as_available() {
        let tree = Tree::new(&[
            ("v2/a/memory.max", "1000"),
            ("v2/a/memory.current", "600"),
            ("v2/a/memory.stat", "anon 1\ninactive_file 250\nactive_file 3"),
            ("v2/a/b/memory.max", "900"),
            ("v2/a/b/memory.current", "100"),
            ("v1/memory/x/memory.limit_in_bytes", "500"),
            ("v1/memory/x/memory.usage_in_bytes", "800"),
            ("v1/memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 400"),
        ]);
        let memory = |groups: &str| {
            tree.of(groups).memory().map(|memory| (memory.limit_bytes, memory.available_bytes))
        };
        assert_eq!(memory("0::/a/b\n"), Some((900, 650)));
        assert_eq!(memory("4:memory:/x\n"), Some((500, 100)));
    }

    #[test]
    fn quotas_of_processors_are_read_in_both_versions() {
        let tree = Tree::new(&[
            ("v2/a/cpu.max", "150000 100000"),
            ("v2/a/cpu.stat", "usage_usec 5000000\nuser_usec 1"),
            ("v2/a/b/cpu.max", "max 100000"),
            ("v2/a/c/cpu.max", "5 0"),
            ("v2/a/d/cpu.max", "x"),
            ("v1/cpu,cpuacct/x/cpu.cfs_quota_us", "50000"),
            ("v1/cpu,cpuacct/x/cpu.cfs_period_us", "100000"),
            ("v1/cpu,cpuacct/x/cpuacct.usage", "7000000"),
            ("v1/cpu,cpuacct/cpu.cfs_quota_us", "-1"),
            ("v1/cpu,cpuacct/cpu.cfs_period_us", "100000"),
        ]);
        let cpus = |groups: &str| tree.of(groups).cpus().map(|it| (it.thousandths, it.used_us));
        for group in ["a", "a/b", "a/c", "a/d"] {
            assert_eq!(cpus(&format!("0::/{group}\n")), Some((1500, Some(5_000_000))), "{group}");
        }
        assert_eq!(cpus("5:cpu,cpuacct:/x\n"), Some((500, Some(7_000))));
        assert_eq!(cpus("5:cpu,cpuacct:/\n"), None);
        assert_eq!(cpus("2:cpuacct:/x\n"), None);
        assert_eq!(cpus("5:cpu,cpuacct:/x\n0::/a\n"), Some((500, Some(7_000))));
    }

    #[test]
    fn a_machine_has_no_more_than_its_groups_allow() {
        let machine = Machine {
            memory_bytes: 8_000,
            available_bytes: 3_000,
            cpus: 4,
            busy_ticks: 900_000,
            total_ticks: 4_000_000,
            ..Machine::default()
        };
        let tree = Tree::new(&[
            ("v2/a/cpu.max", "150000 100000"),
            ("v2/a/cpu.stat", "usage_usec 5000000"),
            ("v2/a/memory.max", "5000"),
            ("v2/a/memory.current", "1000"),
            ("v2/wide/cpu.max", "900000 100000"),
            ("v2/wide/memory.max", "9000"),
            ("v2/narrow/cpu.max", "20000 100000"),
        ]);
        assert_eq!(machine.within(&Groups::default(), u32::MAX), machine);
        assert_eq!(machine.within(&tree.of("0::/wide\n"), 4), machine);
        assert_eq!(machine.within(&Groups::default(), 3), Machine { cpus: 3, ..machine });
        let limited = machine.within(&tree.of("0::/a\n"), 4);
        let ticks = rustix::param::clock_ticks_per_second();
        let expected = Machine {
            memory_bytes: 5_000,
            available_bytes: 3_000,
            cpus: 1,
            busy_ticks: 5 * ticks,
            total_ticks: 1_500_000,
            ..machine
        };
        assert_eq!(limited, expected);
        // Of one and a half processors, three quarters of one are a half.
        let used = Machine { busy_ticks: limited.busy_ticks + 75, ..limited };
        let later = Machine { total_ticks: limited.total_ticks + 150, ..used };
        assert_eq!(later.cpu_usage_since(&limited), Some(0.5));
        assert_eq!(machine.within(&tree.of("0::/narrow\n"), 4).cpus, 1);
        let own = Machine::allowed();
        assert!(own.cpus > 0 && own.memory_bytes > own.available_bytes, "{own:?}");
    }

    #[test]
    fn the_own_group_of_version_2_is_found_in_two_files() {
        let mounts = "24 1 0:22 / /proc rw - proc proc rw\n\
            30 1 0:27 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let unified = |groups: &str| Groups::parse(mounts, groups).unified();
        let service = "1:name=systemd:/x\n0::/system.slice/corona.service\n";
        let expected = "/sys/fs/cgroup/uni fied/system.slice/corona.service";
        assert_eq!(unified(service), Some(expected.into()));
        assert_eq!(unified("0::/\n"), Some("/sys/fs/cgroup/uni fied/".into()));
        assert_eq!(unified("0::/../x\n"), None);
        assert_eq!(unified("1:cpu:/\n"), None);
        let version_1 = "30 1 0:27 / /c rw - cgroup c rw\n";
        assert_eq!(Groups::parse(version_1, service).unified(), None);
    }
}
