//! All other file systems, through the command of a Hadoop installation: `hadoop fs`.
//!
//! One process for each question. Each has its own process group, which is killed when the time is
//! over or the caller has stopped waiting. Its output is read up to a limit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;

use super::{Answer, FileError, FileStatus, JobFiles, Location, unfinished};
use crate::programs::{RunError, first_line, run};

/// Characters that `hadoop fs` takes for a pattern.
const PATTERN: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// The program of a Hadoop install.
#[derive(Clone, Debug)]
pub struct HadoopCommand {
    /// The program, a path or a name to be found in `$PATH`.
    pub program: PathBuf,
    /// Time for one run.
    pub timeout: Duration,
    /// The largest file that is copied.
    pub max_bytes: u64,
}

impl JobFiles for HadoopCommand {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        Box::pin(async move {
            let args = ["-stat", "%b %Y %F"].map(OsString::from);
            let said = self.fs(location, args, None).await?;
            let unclear = || FileError::Command {
                location: location.clone(),
                said: format!("-stat printed {:?}", first_line(&said)),
            };
            let line = said.lines().next_back().unwrap_or_default();
            let mut fields = line.splitn(3, ' ');
            let bytes = fields.next().and_then(|bytes| bytes.parse().ok()).ok_or_else(unclear)?;
            let modified_ms = fields.next().and_then(|ms| ms.parse().ok()).ok_or_else(unclear)?;
            if fields.next() == Some("directory") {
                return Err(FileError::NotAFile(location.clone()));
            }
            Ok(FileStatus { bytes, modified_ms })
        })
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        Box::pin(async move {
            let too_large =
                || FileError::TooLarge { location: location.clone(), limit_bytes: self.max_bytes };
            if self.status(location).await?.bytes > self.max_bytes {
                return Err(too_large());
            }
            let part = RemovedOnDrop(unfinished(to));
            // The program does not write over a file.
            let _ = std::fs::remove_file(&part.0);
            self.fs(location, ["-copyToLocal".into()], Some(&part.0)).await?;
            let failed = |error| FileError::Write { path: to.to_owned(), error };
            let bytes = std::fs::metadata(&part.0).map_err(failed)?.len();
            if bytes > self.max_bytes {
                return Err(too_large());
            }
            std::fs::rename(&part.0, to).map_err(failed)?;
            Ok(bytes)
        })
    }
}

/// A copy that is removed unless it was renamed, also if the caller has stopped waiting.
struct RemovedOnDrop(PathBuf);

impl Drop for RemovedOnDrop {
    fn drop(&mut self) {
        // It mostly has its name by now.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl HadoopCommand {
    /// The class path of the install. Spec: mapreduce/04 §4.5 (5).
    pub async fn class_path(&self) -> Result<String, FileError> {
        let location = self.as_location();
        let said = self.run(&location, vec!["classpath".into()]).await?;
        let path = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        path.map(str::to_owned).ok_or_else(|| FileError::Command {
            location,
            said: "classpath printed nothing".into(),
        })
    }

    fn as_location(&self) -> Location {
        let root = std::path::absolute(&self.program).unwrap_or_else(|_| "/".into());
        Location::from_path(&root.to_string_lossy()).unwrap_or_else(|_| Location::root())
    }

    /// Runs `hadoop fs` on a location and returns its standard output.
    async fn fs(
        &self,
        location: &Location,
        args: impl IntoIterator<Item = OsString>,
        to: Option<&Path>,
    ) -> Result<String, FileError> {
        let whole = location.to_string();
        if whole.contains(PATTERN) {
            let reason = "hadoop fs takes its name for a pattern";
            return Err(FileError::Unsupported { location: location.clone(), reason });
        }
        let mut arguments = vec!["fs".into()];
        arguments.extend(args);
        arguments.push(whole.into());
        arguments.extend(to.map(|path| path.as_os_str().to_owned()));
        self.run(location, arguments).await
    }

    async fn run(
        &self,
        location: &Location,
        arguments: Vec<OsString>,
    ) -> Result<String, FileError> {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let printed = run(command, self.timeout).await.map_err(|error| match error {
            RunError::Io(error) => FileError::Run { program: self.program.clone(), error },
            RunError::Timeout { .. } => {
                FileError::Timeout { location: location.clone(), timeout: self.timeout }
            }
        })?;
        if printed.status.success() {
            return Ok(printed.stdout);
        }
        Err(refused(location, &printed.stderr, printed.status))
    }
}

/// The program's message: the line of `-stat:` or `-copyToLocal:`, else the first line.
fn refused(location: &Location, err: &str, status: ExitStatus) -> FileError {
    let of_command = err.lines().find_map(|line| {
        let (command, said) = line.split_once(": ")?;
        ["stat", "copyToLocal", "get"].contains(&command.trim_start_matches('-')).then_some(said)
    });
    let said = of_command.unwrap_or_else(|| first_line(err));
    let lower = said.to_ascii_lowercase();
    if lower.contains("no such file") || lower.contains("does not exist") {
        return FileError::Missing(location.clone());
    }
    let said = if said.is_empty() { status.to_string() } else { said.chars().take(500).collect() };
    FileError::Command { location: location.clone(), said }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use corona_net::testing::until;

    /// A program that answers as `hadoop` does.
    fn install(dir: &Path, script: &str) -> HadoopCommand {
        let program = dir.join("hadoop");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        HadoopCommand { program, timeout: Duration::from_secs(600), max_bytes: 1000 }
    }

    fn jar() -> Location {
        Location::from_path("hdfs://nn:8020/user/a b/job.jar").unwrap()
    }

    const GOOD: &str = r#"
        case "$2" in
            -stat) [ "$3" = "%b %Y %F" ] && [ "$4" = "hdfs://nn:8020/user/a b/job.jar" ] || exit 9
                echo "5 1700000000123 regular file";;
            -copyToLocal) printf 12345 > "$4";;
        esac"#;

    #[tokio::test]
    async fn a_file_is_copied_and_its_length_and_time_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let files = install(dir.path(), GOOD);
        let status = files.status(&jar()).await.unwrap();
        assert_eq!(status, FileStatus { bytes: 5, modified_ms: 1_700_000_000_123 });
        let to = dir.path().join("to");
        assert_eq!(files.fetch(&jar(), &to).await.unwrap(), 5);
        assert_eq!(fs::read_to_string(&to).unwrap(), "12345");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn the_class_path_is_what_the_install_prints_last() {
        let dir = tempfile::tempdir().unwrap();
        let files = install(dir.path(), "echo a warning; echo /conf:/lib/core.jar; echo");
        assert_eq!(files.class_path().await.unwrap(), "/conf:/lib/core.jar");
        let files = install(dir.path(), "true");
        let told = files.class_path().await.unwrap_err().to_string();
        assert!(told.ends_with("hadoop: classpath printed nothing"), "{told}");
    }

    #[tokio::test]
    async fn errors_say_what_the_program_said() {
        let missing = "echo 'WARN a.b: c' >&2; echo 'stat: cannot stat `x'\"'\"': No such file or directory' >&2; exit 255";
        let cases = [
            (missing, "File does not exist: hdfs://nn:8020/user/a b/job.jar"),
            (
                "echo >&2; echo 'Call failed' >&2; exit 1",
                "hdfs://nn:8020/user/a b/job.jar: Call failed",
            ),
            ("exit 3", "hdfs://nn:8020/user/a b/job.jar: exit status: 3"),
            ("echo '0 0 directory'", "hdfs://nn:8020/user/a b/job.jar is not a file"),
            ("echo what", "hdfs://nn:8020/user/a b/job.jar: -stat printed \"what\""),
            (
                "echo '1001 0 regular file'",
                "hdfs://nn:8020/user/a b/job.jar is larger than 1000 bytes",
            ),
        ];
        for (script, expected) in cases {
            let dir = tempfile::tempdir().unwrap();
            let files = install(dir.path(), script);
            let error = files.fetch(&jar(), &dir.path().join("to")).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[tokio::test]
    async fn a_file_that_grew_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            HadoopCommand { max_bytes: 5, ..install(dir.path(), &GOOD.replace("12345", "123456")) };
        let error = files.fetch(&jar(), &dir.path().join("to")).await.unwrap_err();
        assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn one_that_hangs_or_floods_is_ended_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let script = "sleep 60 & echo $! > \"$(dirname \"$0\")/pid\"; yes";
        let files =
            HadoopCommand { timeout: Duration::from_millis(1500), ..install(dir.path(), script) };
        let error = files.status(&jar()).await.unwrap_err();
        assert_eq!(error.to_string(), "hdfs://nn:8020/user/a b/job.jar: no answer within 1500 ms");
        // On a stalled machine it may not have started yet; then there is nothing to end.
        let Ok(pid) = fs::read_to_string(dir.path().join("pid")) else { return };
        let Ok(pid) = pid.trim().parse::<u32>() else { return };
        let stat = PathBuf::from(format!("/proc/{pid}/stat"));
        until("it ends", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")))
            .await;
    }

    #[tokio::test]
    async fn patterns_and_missing_programs_are_refused() {
        let files = HadoopCommand {
            program: "/no/such/hadoop".into(),
            timeout: Duration::from_secs(600),
            max_bytes: 1,
        };
        let told = files.status(&jar()).await.unwrap_err().to_string();
        assert_eq!(told, "/no/such/hadoop: No such file or directory (os error 2)");
        let location = Location::from_path("hdfs://nn/a*").unwrap();
        let told = files.status(&location).await.unwrap_err().to_string();
        assert_eq!(told, "hdfs://nn/a* cannot be fetched: hadoop fs takes its name for a pattern");
    }
}
