//! How a task is profiled: the option of Java, or the file that a native task writes. Pure.
//!
//! Spec: the original's `TaskRunner` and `JobConf.getProfileTaskRange`.

use std::path::{Path, PathBuf};

use super::LogFile;
use corona_config::{JobConf, keys};

/// The variable that names the file for the profile of a native task.
pub(super) const FILE: &str = "CORONA_PROFILE";

/// The option of Java for a task whose job wants it to be profiled; `None` for other tasks.
pub(super) fn option(conf: &JobConf, is_map: bool, task_log_dir: &Path) -> Option<String> {
    let file = file(conf, is_map, task_log_dir)?;
    let params = conf.text(&keys::JOB_PROFILE_PARAMS);
    Some(params.replace("%s", &file.display().to_string()))
}

/// The file for the profile of a task whose job wants it to be profiled; `None` for other tasks.
pub(super) fn file(conf: &JobConf, is_map: bool, task_log_dir: &Path) -> Option<PathBuf> {
    if !conf.is_true(&keys::JOB_PROFILE) {
        return None;
    }
    let ranges = if is_map { &keys::JOB_PROFILE_MAPS } else { &keys::JOB_PROFILE_REDUCES };
    let partition = conf.get("mapred.task.partition")?.parse().ok()?;
    is_in(&conf.text(ranges), partition).then(|| task_log_dir.join(LogFile::Profile.file_name()))
}

/// Whether a number is in one of the ranges of a text such as `0-2,5,7-`. A range that cannot be read
/// has no numbers.
fn is_in(ranges: &str, number: u64) -> bool {
    ranges.split(',').map(str::trim).filter(|range| !range.is_empty()).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bound = |text: &str, open: u64| match text.trim() {
            "" => Some(open),
            text => text.parse().ok(),
        };
        let bounds = bound(first, 0).zip(bound(last, u64::MAX));
        bounds.is_some_and(|(first, last)| (first..=last).contains(&number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localise::tests::conf;

    #[test]
    fn ranges_of_tasks() {
        let cases: [(&str, &[u64]); 8] = [
            ("0-2", &[0, 1, 2]),
            ("", &[]),
            ("3", &[3]),
            ("1,5-", &[1, 5, 6, 7, 8, 9]),
            ("-1", &[0, 1]),
            ("-", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            ("x-3,2-1,a,7", &[7]),
            (" 2 - 3 ,9", &[2, 3, 9]),
        ];
        for (ranges, expected) in cases {
            let inside: Vec<u64> = (0..10).filter(|number| is_in(ranges, *number)).collect();
            assert_eq!(inside, expected, "{ranges:?}");
        }
    }

    #[test]
    fn a_profiled_task_has_the_option_of_its_job() {
        let dir = Path::new("/logs/A");
        let option = |partition: &str, is_map: bool, more: &[(&str, &str)]| {
            let own = [("mapred.task.profile", "true"), ("mapred.task.partition", partition)];
            super::option(&conf(&[&own, more].concat()), is_map, dir)
        };
        let hprof = "-agentlib:hprof=cpu=samples,heap=sites,force=n,thread=y,verbose=n,\
                     file=/logs/A/profile.out";
        assert_eq!(option("2", true, &[]).as_deref(), Some(hprof));
        assert_eq!(option("3", true, &[]), None);
        let own = [("mapred.task.profile.params", "-Xprof"), ("mapred.task.profile.reduces", "3")];
        assert_eq!(option("3", false, &own).as_deref(), Some("-Xprof"));
        assert_eq!(option("3", true, &own), None);
        assert_eq!(super::option(&conf(&[("mapred.task.partition", "0")]), true, dir), None);
    }
}
