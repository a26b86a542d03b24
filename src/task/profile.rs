//! The profile of a task: a program that watches the one of the job, or what both processes have used.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::error::TaskError;

/// The size of the blocks in which the kernel counts what disks transfer, in bytes.
const BLOCK_BYTES: i64 = 512;

/// How a task is profiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// These words precede those of the program.
    Program(Vec<String>),
    /// What the task has used is written to this file.
    Usage(PathBuf),
}

impl Profile {
    /// The way that a job names. Options, which begin with a hyphen, are for Java.
    pub(crate) fn of(params: &str, file: &Path) -> Profile {
        let params = params.trim();
        if params.is_empty() || params.starts_with('-') {
            return Profile::Usage(file.to_owned());
        }
        let path = file.display().to_string();
        let words = params.split_whitespace();
        Profile::Program(words.map(|word| word.replace("%s", &path)).collect())
    }

    /// The words with which a program is started.
    pub(crate) fn words(&self) -> &[String] {
        match self {
            Profile::Program(words) => words,
            Profile::Usage(_) => &[],
        }
    }

    /// Writes what this process and the programs that it has waited for have used. `began` is the start
    /// of the work.
    pub(crate) fn write(&self, began: Instant) -> Result<(), TaskError> {
        let Profile::Usage(file) = self else { return Ok(()) };
        let mut text = format!("wall ms {}\n", began.elapsed().as_millis());
        for (name, who) in
            [("programs", UsageWho::RUSAGE_CHILDREN), ("task", UsageWho::RUSAGE_SELF)]
        {
            let usage = getrusage(who).map_err(|error| TaskError::local(file)(error.into()))?;
            text.push_str(&lines(name, &usage));
        }
        std::fs::write(file, text).map_err(TaskError::local(file))
    }
}

fn lines(who: &str, usage: &Usage) -> String {
    let ms = |time: TimeVal| time.num_milliseconds();
    let lines = [
        ("user ms", ms(usage.user_time())),
        ("system ms", ms(usage.system_time())),
        ("peak resident KiB", usage.max_rss()),
        ("page faults", usage.minor_page_faults()),
        ("page faults with a read", usage.major_page_faults()),
        ("disk bytes read", usage.block_reads().saturating_mul(BLOCK_BYTES)),
        ("disk bytes written", usage.block_writes().saturating_mul(BLOCK_BYTES)),
        ("waits", usage.voluntary_context_switches()),
        ("preemptions", usage.involuntary_context_switches()),
    ];
    lines.iter().map(|(name, value)| format!("{who} {name} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_java_are_none_of_a_program() {
        let file = Path::new("/logs/a b/profile.out");
        for params in ["", "-agentlib:hprof=cpu=samples,file=%s", " -Xprof"] {
            assert_eq!(Profile::of(params, file), Profile::Usage(file.to_owned()), "{params}");
        }
        let profile = Profile::of("perf record -o %s  --", file);
        assert_eq!(profile.words(), ["perf", "record", "-o", "/logs/a b/profile.out", "--"]);
    }

    #[test]
    fn resources_of_programs_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("profile.out");
        let status = std::process::Command::new("true").status().unwrap();
        assert!(status.success());
        Profile::of("", &file).write(Instant::now()).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let value = |name: &str| -> i64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
        };
        for who in ["programs", "task"] {
            assert!(value(&format!("{who} peak resident KiB")) > 100, "{text}");
            assert!(value(&format!("{who} page faults ")) > 10, "{text}");
        }
        assert_eq!(text.lines().count(), 19);
    }
}
