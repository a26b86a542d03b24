//! The general scheduling file and the pools file together: where they are, and both or nothing.
//!
//! Spec: cluster-manager/06 §3, §4. The files' contents are read in `general` and `pools`.

use std::path::{Path, PathBuf};

use super::fields::Context;
use super::files::{FileReader, FileStamp, is_there};
use super::problem::{ConfigErrors, Origin, Problem, ProblemKind, warnings_or_errors};
use super::properties::{MATERIALIZED_JSON, json_name, read_json};
use super::xml::{self, Element, Includes};
use super::{general, keys, pools};
use corona_model::settings::{Pools, Scheduling};
use corona_model::types::PerType;

/// The paths of both files, and the settings that their reading depends on.
///
/// This is all that a reload needs: keep it, call [`SchedulingFiles::load`] again when one of the
/// stamps of the last load has changed, and use the result only when it is `Ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingFiles {
    /// `cm.config.file`, as set.
    pub general: String,
    /// Where that is set.
    pub general_set_in: Origin,
    /// `cm.pools.config.file`, as set.
    pub pools: String,
    /// Where that is set.
    pub pools_set_in: Origin,
    /// Whether a general file is expected: it is named, or there is a configuration directory.
    pub named: bool,
    /// Where a file is looked for that is not at its path.
    pub conf_dir: Option<PathBuf>,
    /// How it is looked for there.
    pub lookup: Lookup,
    /// The types with slots: only their limits are read.
    pub legal_types: PerType<bool>,
    /// Whether only pools of the pools file may be used.
    pub configured_pools_only: bool,
    /// The resources that are counted: only their limits have an effect.
    pub counted: [bool; 4],
}

/// How a scheduling file is found that does not exist at its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookup {
    /// A relative path is looked for in the configuration directory, as in the original.
    #[default]
    AsGiven,
    /// And then its last name: for a configuration that was recorded elsewhere.
    AlsoByName,
}

/// The contents of both files.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedScheduling {
    /// The general scheduling file.
    pub scheduling: Scheduling,
    /// The pools file.
    pub pools: Pools,
    /// Warnings: values that may be mistakes.
    pub warnings: Vec<Problem>,
    /// The files that were read and those that were looked for, as they were before.
    pub files: Vec<FileStamp>,
}

impl SchedulingFiles {
    /// Reads both files. A missing file gives the defaults and, where one is expected, a warning.
    /// An error returns all problems of both files, and no settings.
    pub fn load(&self) -> Result<LoadedScheduling, ConfigErrors> {
        let mut files = FileReader::default();
        let mut problems = Vec::new();
        let (scheduling, pools) = self.read(&mut files, &mut problems);
        Ok(LoadedScheduling {
            scheduling,
            pools,
            warnings: warnings_or_errors(problems)?,
            files: files.into_stamps(),
        })
    }

    fn read(&self, files: &mut FileReader, problems: &mut Vec<Problem>) -> (Scheduling, Pools) {
        let general = self.locate(&self.general, files);
        let pools = self.locate(&self.pools, files);
        let context = Context {
            legal_types: self.legal_types,
            one_file: general.is_some() && general == pools,
            configured_pools_only: self.configured_pools_only,
            counted: self.counted,
        };
        let items = self.general_items(general.as_deref(), files, problems);
        let scheduling = general::read(&items, context, problems);
        general::check_waits(&items, &scheduling, problems);
        let there_are_pools = pools.is_some();
        let pools = self.read_pools(pools.as_deref(), context, files, problems);
        if there_are_pools {
            general::check_redirects(&items, &pools, problems);
        }
        (scheduling, pools)
    }

    /// The settings in the general file; none if it is missing or cannot be read.
    fn general_items(
        &self,
        path: Option<&Path>,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) -> Vec<general::Item> {
        if let Some(items) = self.json_items(files, problems) {
            return items;
        }
        let Some(path) = path else {
            if self.named {
                // The default name is that of both files.
                let used = match self.general == self.pools && !self.configured_pools_only {
                    true => format!("the defaults are used, and {NO_LIMITS}"),
                    false => "the defaults are used".to_owned(),
                };
                let (name, set_in) = (&self.general, &self.general_set_in);
                problems.push(self.absent(name, set_in, &used).of(keys::GENERAL_FILE.name));
            }
            return Vec::new();
        };
        match root(path, files) {
            Ok(root) => general::xml_items(&root),
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        }
    }

    fn read_pools(
        &self,
        path: Option<&Path>,
        context: Context,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) -> Pools {
        let Some(path) = path else {
            // Without one the original only logs, and only in strict mode.
            if self.configured_pools_only || self.pools != keys::POOLS_FILE.default {
                let used = match self.configured_pools_only {
                    true => "no session can start, because only pools of this file may be used",
                    false => NO_LIMITS,
                };
                let (name, set_in) = (&self.pools, &self.pools_set_in);
                problems.push(self.absent(name, set_in, used).of(keys::POOLS_FILE.name));
            }
            return Pools::default();
        };
        match root(path, files) {
            Ok(root) => pools::read(&root, context, problems),
            Err(problem) => {
                // If both are the same file, its problems are reported once.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
                Pools::default()
            }
        }
    }

    /// The general settings of the JSON file, when there is one that has them.
    /// Spec: cluster-manager/06 §3.
    fn json_items(
        &self,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) -> Option<Vec<general::Item>> {
        let name = self.general.replace(keys::GENERAL_FILE.default, MATERIALIZED_JSON);
        if !name.ends_with(MATERIALIZED_JSON) {
            return None;
        }
        let path = self.locate(&name, files)?;
        let section = read_json(&path, files, problems)?;
        let section = section.get(&json_name(keys::GENERAL_FILE.default))?;
        Some(general::json_items(section, &Origin::file(&path), problems))
    }

    /// A file that is expected and is not there.
    fn absent(&self, name: &str, set_in: &Origin, used: &str) -> Problem {
        let directories: Vec<Box<str>> = match &self.conf_dir {
            Some(dir) if Path::new(name).is_relative() => {
                vec!["the working directory".into(), dir.display().to_string().into()]
            }
            _ => Vec::new(),
        };
        let kind =
            ProblemKind::Absent { path: name.into(), looked_in: directories, used: used.into() };
        Problem::warning(set_in.clone(), kind)
    }

    /// The first place with a file: the path from the working directory, then in the configuration
    /// directory. All places are noted, so that a file that appears is noticed.
    fn locate(&self, name: &str, files: &mut FileReader) -> Option<PathBuf> {
        let given = Path::new(name);
        let last = given.file_name().filter(|_| self.lookup == Lookup::AlsoByName);
        let in_conf_dir = |name: &Path| self.conf_dir.as_ref().map(|dir| dir.join(name));
        let places = [
            Some(given.to_path_buf()),
            in_conf_dir(given).filter(|_| given.is_relative()),
            last.and_then(|last| in_conf_dir(Path::new(last))),
        ];
        let mut places = places.into_iter().flatten().filter(|_| !name.is_empty());
        places.find(|place| {
            files.note(place);
            is_there(place)
        })
    }
}

fn root(path: &Path, files: &mut FileReader) -> Result<Element, Problem> {
    let root = xml::read(path, Includes::Plain, files)?;
    match root.name.as_str() {
        "configuration" => Ok(root),
        _ => Err(Problem::error(root.origin, ProblemKind::Root { found: root.name })),
    }
}

/// The consequence of a missing pools file.
const NO_LIMITS: &str = "no pool has a minimum, a maximum or a weight";

#[cfg(test)]
mod tests {
    use super::*;
    use corona_model::settings::SchedulingMode;
    use corona_model::types::PoolName;

    fn files_in(dir: &Path) -> SchedulingFiles {
        SchedulingFiles {
            general: "corona.xml".into(),
            general_set_in: Origin::Default,
            pools: "corona.xml".into(),
            pools_set_in: Origin::CommandLine,
            named: true,
            conf_dir: Some(dir.into()),
            lookup: Lookup::AsGiven,
            legal_types: PerType::all(true),
            configured_pools_only: false,
            counted: [false; 4],
        }
    }

    fn lines(problems: &[Problem], dir: &Path) -> Vec<String> {
        let prefix = format!("{}/", dir.display());
        problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
    }

    #[test]
    fn one_file_may_hold_both() {
        let dir = tempfile::tempdir().unwrap();
        let text = "<configuration><defaultSchedulingMode>FAIR</defaultSchedulingMode>\
            <group name='g'><pool name='p'/></group></configuration>";
        std::fs::write(dir.path().join("corona.xml"), text).unwrap();
        let loaded = files_in(dir.path()).load().unwrap();
        assert_eq!(loaded.scheduling.default_mode, SchedulingMode::Fair);
        assert!(loaded.pools.pools.contains_key(&PoolName::new("g", "p")));
        assert_eq!(loaded.warnings, []);
    }

    #[test]
    fn elements_of_the_other_file_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("corona.xml"),
            "<configuration><group name='g'/></configuration>",
        )
        .unwrap();
        std::fs::write(
            dir.path().join("pools.xml"),
            "<configuration><preemptionRounds>1</preemptionRounds></configuration>",
        )
        .unwrap();
        let files = SchedulingFiles { pools: "pools.xml".into(), ..files_in(dir.path()) };
        let loaded = files.load().unwrap();
        assert_eq!(
            lines(&loaded.warnings, dir.path()),
            [
                "corona.xml:1: group: has no effect in this file: groups are read from the pools file",
                "pools.xml:1: preemptionRounds: has no effect in this file: it is read from the general file",
            ]
        );
    }

    #[test]
    fn missing_files_give_defaults_and_where_they_are_expected_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let expected = files_in(dir.path());
        let no_limits = "no pool has a minimum, a maximum or a weight";
        let there = "does not exist in the working directory or DIR";
        let both = format!(
            "default: cm.config.file: file corona.xml {there}; the defaults are used, and {no_limits}"
        );
        let general =
            format!("default: cm.config.file: file corona.xml {there}; the defaults are used");
        let pools = format!(
            "-D: cm.pools.config.file: file corona.xml {there}; no session can start, because only pools \
             of this file may be used"
        );
        let other = format!("-D: cm.pools.config.file: file p.xml {there}; {no_limits}");
        let absolute =
            format!("-D: cm.pools.config.file: file /no/p.xml does not exist; {no_limits}");
        let cases = [
            (expected.clone(), vec![both]),
            (SchedulingFiles { named: false, conf_dir: None, ..expected.clone() }, vec![]),
            (
                SchedulingFiles { configured_pools_only: true, ..expected.clone() },
                vec![general.clone(), pools],
            ),
            (
                SchedulingFiles { pools: "p.xml".into(), ..expected.clone() },
                vec![general.clone(), other],
            ),
            (SchedulingFiles { pools: "/no/p.xml".into(), ..expected }, vec![general, absolute]),
        ];
        for (files, warnings) in cases {
            let loaded = files.load().unwrap();
            assert_eq!(
                (&loaded.scheduling, &loaded.pools),
                (&Scheduling::default(), &Pools::default())
            );
            let place = dir.path().display().to_string();
            let told = lines(&loaded.warnings, dir.path());
            let told: Vec<String> = told.iter().map(|line| line.replace(&place, "DIR")).collect();
            assert_eq!(told, warnings);
        }
        let loaded = files_in(dir.path()).load().unwrap();
        std::fs::write(dir.path().join("corona.xml"), "<configuration/>").unwrap();
        assert!(loaded.files.iter().any(FileStamp::has_changed), "a file that appears is noticed");
    }

    #[test]
    fn all_problems_of_both_files_are_told_and_nothing_is_used() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("corona.xml"),
            "<configuration>\n<defaultSchedulingMode>PRIORITY</defaultSchedulingMode>\n\
             <grantsPerIteration>0</grantsPerIteration>\n<what/></configuration>",
        )
        .unwrap();
        std::fs::write(dir.path().join("pools.xml"), "<pools/>").unwrap();
        let files = SchedulingFiles { pools: "pools.xml".into(), ..files_in(dir.path()) };
        let refused = files.load().unwrap_err();
        assert_eq!(
            lines(&refused.problems, dir.path()),
            [
                "corona.xml:2: defaultSchedulingMode: value \"PRIORITY\" is not a scheduling mode; expected FIFO, FAIR or DEADLINE",
                "corona.xml:3: grantsPerIteration: value \"0\" is out of range; expected a whole number from 1 to 2147483647",
                "corona.xml:4: unknown element <what>",
                "pools.xml:1: the outermost element is <pools>; expected <configuration>",
            ]
        );
        assert_eq!(refused.errors().count(), 3);
    }

    #[test]
    fn waits_and_redirects_without_effect_are_warned_of_at_their_line() {
        let dir = tempfile::tempdir().unwrap();
        let general = "<configuration>\n<nodeLocalityWaitMAP>8000</nodeLocalityWaitMAP>\n\
            <redirect source='a.b' destination='ads.nightlyy'/>\n\
            <redirect source='a.c' destination='ads.nightly'/>\n\
            <redirect source='a.d' destination='research.x'/></configuration>";
        let pools =
            "<configuration><group name='ads'><pool name='nightly'/></group></configuration>";
        std::fs::write(dir.path().join("corona.xml"), general).unwrap();
        std::fs::write(dir.path().join("pools.xml"), pools).unwrap();
        let files = SchedulingFiles { pools: "pools.xml".into(), ..files_in(dir.path()) };
        let unconfigured = "is not in the pools file, so it has no limits and no weight";
        let expected = [
            "corona.xml:2: nodeLocalityWaitMAP: 8000 ms has no effect without rackLocalityWaitMAP, \
             which switches the wait on; set rackLocalityWaitMAP to any number but 0"
                .to_owned(),
            format!(
                "corona.xml:3: redirect: destination ads.nightlyy {unconfigured}; did you mean \
                 ads.nightly?"
            ),
            format!("corona.xml:5: redirect: destination research.x {unconfigured}"),
        ];
        assert_eq!(lines(&files.load().unwrap().warnings, dir.path()), expected);
        // Without any pools file the warning is of the file.
        let files = SchedulingFiles { pools: "none.xml".into(), ..files };
        let told = lines(&files.load().unwrap().warnings, dir.path());
        assert!(!told.iter().any(|line| line.contains("redirect")), "{told:?}");
    }

    #[test]
    fn a_broken_file_for_both_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("corona.xml"), "<configuration>").unwrap();
        assert_eq!(files_in(dir.path()).load().unwrap_err().problems.len(), 1);
    }

    #[test]
    fn files_are_looked_for_at_their_path_then_in_the_directory_then_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let mode = |mode: &str| {
            format!(
                "<configuration><defaultSchedulingMode>{mode}</defaultSchedulingMode></configuration>"
            )
        };
        std::fs::write(dir.path().join("general.xml"), mode("FAIR")).unwrap();
        std::fs::write(elsewhere.path().join("general.xml"), mode("DEADLINE")).unwrap();
        let absolute = |name: &str| elsewhere.path().join(name).display().to_string();
        let cases = [
            ("general.xml".to_owned(), Lookup::AsGiven, SchedulingMode::Fair),
            (absolute("general.xml"), Lookup::AsGiven, SchedulingMode::Deadline),
            (absolute("x/general.xml"), Lookup::AsGiven, SchedulingMode::Fifo),
            (absolute("x/general.xml"), Lookup::AlsoByName, SchedulingMode::Fair),
            (String::new(), Lookup::AlsoByName, SchedulingMode::Fifo),
        ];
        for (general, lookup, expected) in cases {
            let files =
                SchedulingFiles { general: general.clone(), lookup, ..files_in(dir.path()) };
            assert_eq!(files.load().unwrap().scheduling.default_mode, expected, "{general}");
        }
    }

    #[test]
    fn the_json_file_stands_before_the_general_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("corona.xml"),
            "<configuration><group name='g'/></configuration>",
        )
        .unwrap();
        let json = dir.path().join("config.materialized_JSON");
        std::fs::write(&json, r#"{"corona": {"defaultSchedulingMode": "FAIR"}}"#).unwrap();
        let loaded = files_in(dir.path()).load().unwrap();
        assert_eq!(loaded.scheduling.default_mode, SchedulingMode::Fair);
        assert!(loaded.pools.groups.contains_key("g"), "pools are still read from the XML file");
        assert_eq!(loaded.warnings, []);

        for other in [r#"{"mapred_site": {}}"#, "{"] {
            std::fs::write(&json, other).unwrap();
            assert_eq!(files_in(dir.path()).load().unwrap().scheduling, Scheduling::default());
        }
        std::fs::write(&json, r#"{"corona": []}"#).unwrap();
        let refused = files_in(dir.path()).load().unwrap_err();
        assert_eq!(
            lines(&refused.problems, dir.path()),
            ["config.materialized_JSON: corona: is not usable JSON: it is not an object"]
        );
    }
}
