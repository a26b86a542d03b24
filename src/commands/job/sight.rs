//! Whether the machines of the cluster see the files of a job as this one does. Only files of machines
//! (`file:`) are asked for: HDFS is the same everywhere.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use corona::filesystem::{FileSystem, FsPath};
use corona::hadoop::protocols::job_files::BUSY;
use corona::hadoop::rpc::CallError;
use tokio::time::sleep;

use super::output::{Output, is_part};
use crate::commands::invitation::random_token;
use crate::commands::jobs::Caller;
use corona_terminal::console::printable;

/// Inputs that are asked for.
const MOST_FILES: usize = 16;
/// Bytes of their names.
const MOST_NAME_BYTES: usize = 8 << 10;
/// How long an output that others have written may take to be seen: clients of network file systems keep
/// for so long that there was none.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(65);
const PAUSE: Duration = Duration::from_millis(500);
/// Entries of an output.
const MAX_ENTRIES: usize = 1_000_000;

/// What the machines must see.
pub(super) struct Sight {
    /// The directory that has, or will have, the output.
    output: Option<PathBuf>,
    /// Inputs, and how long they are at least.
    inputs: Vec<(String, u64)>,
}

/// A file with a token, which goes when it was looked for.
struct Mark {
    path: PathBuf,
    token: String,
}

impl Mark {
    /// None where this user may not write: then it is not known who sees the directory.
    fn leave_in(directory: &Path) -> Option<Mark> {
        let token = random_token().ok()?;
        let mark = Mark { path: directory.join(format!(".corona-{token}")), token };
        let mut file = File::create_new(&mark.path).ok()?;
        // The job tracker and the nodes may run as other users.
        let readable = Permissions::from_mode(0o644);
        file.set_permissions(readable).and_then(|()| file.write_all(mark.token.as_bytes())).ok()?;
        Some(mark)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // A file that stays is hidden and small.
        let _ = fs::remove_file(&self.path);
    }
}

impl Sight {
    /// Of a job with this output and these splits: path, first byte behind its end.
    pub(super) fn new<'a>(output: &Output, splits: impl Iterator<Item = (&'a str, u64)>) -> Sight {
        let is_local = output.files.root().scheme() == "file";
        let existing = |path: &FsPath| {
            let path = Path::new(path.path());
            path.ancestors().skip(1).find(|above| above.is_dir()).map(Path::to_owned)
        };
        let mut inputs = BTreeMap::<&str, u64>::new();
        for (path, end) in splits {
            if let Some(path) = path.strip_prefix("file:") {
                let length = inputs.entry(path).or_default();
                *length = end.max(*length);
            }
        }
        Sight {
            output: is_local.then(|| existing(&output.path)).flatten(),
            inputs: some_of(inputs.into_iter().collect()),
        }
    }

    /// Fails unless the job tracker's machine and the nodes see all that.
    ///
    /// # Errors
    /// One of them does not, or the job tracker cannot be asked.
    pub(super) async fn check(&self, caller: &Caller) -> anyhow::Result<()> {
        match self.unseen(caller).await? {
            None => Ok(()),
            Some(unseen) => bail!(
                "{unseen}: all machines must see the input and the output of a job; name a directory that \
                 all of them mount at the same path, or one on HDFS"
            ),
        }
    }

    /// Which machine does not see all that, as a sentence for people; none if all do, as far as is known.
    ///
    /// # Errors
    /// The job tracker cannot be asked.
    pub(super) async fn unseen(&self, caller: &Caller) -> anyhow::Result<Option<String>> {
        if self.output.is_none() && self.inputs.is_empty() {
            return Ok(None);
        }
        let mark = self.output.as_deref().and_then(Mark::leave_in);
        let (marker, token) = match &mark {
            Some(Mark { path, token }) => (path.display().to_string(), token.clone()),
            None => Default::default(),
        };
        let (files, lengths): (Vec<String>, Vec<i64>) = self
            .inputs
            .iter()
            .map(|(path, length)| (path.clone(), i64::try_from(*length).unwrap_or(i64::MAX)))
            .unzip();
        match caller.files().unseen(marker, token, files, lengths).await {
            Ok(unseen) => Ok(unseen.map(|unseen| printable(&unseen).into_owned())),
            Err(CallError::Remote(error)) if error.class.as_deref() == Some(BUSY) => {
                bail!("{}: {}", caller.who, printable(error.message()))
            }
            // One that does not know the question: an earlier version, or the original.
            Err(CallError::Closed | CallError::Remote(_)) => Ok(None),
            Err(error) => Err(anyhow!(error).context(format!("{} does not answer", caller.who))),
        }
    }
}

/// The first, the last, and some between.
fn some_of(inputs: Vec<(&str, u64)>) -> Vec<(String, u64)> {
    let step = inputs.len().div_ceil(MOST_FILES).max(1);
    let last = inputs.len().saturating_sub(1);
    let chosen = inputs.into_iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    let mut bytes = 0;
    let within = chosen.take_while(|(_, (path, _))| {
        bytes += path.len();
        bytes <= MOST_NAME_BYTES
    });
    within.map(|(_, (path, length))| (path.to_owned(), length)).collect()
}

/// Waits until the output of a job that has succeeded is seen here, with so many parts.
///
/// # Errors
/// It is not.
pub(super) async fn see_output(output: &Output, parts: usize) -> anyhow::Result<()> {
    let (files, path): (&dyn FileSystem, &FsPath) = (&*output.files, &output.path);
    let began = Instant::now();
    loop {
        let seen = match files.find(path).await? {
            None => None,
            Some(_) => {
                let entries = files.list(path, MAX_ENTRIES).await?;
                Some(entries.iter().filter(|entry| is_part(entry.path.name())).count())
            }
        };
        if seen.is_some_and(|seen| seen >= parts) {
            return Ok(());
        }
        if began.elapsed() >= OUTPUT_PATIENCE || files.root().scheme() != "file" {
            let here = match seen {
                None => "the directory does not exist here".to_owned(),
                Some(seen) => format!("only {seen} of {parts} parts are here"),
            };
            bail!(
                "the job tracker reports success, but this machine does not see the output {path}: \
                 {here}; the machines do not share the directory"
            );
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_inputs_stand_for_all() {
        assert_eq!(some_of(Vec::new()), []);
        let names: Vec<String> = (0..100).map(|number| format!("/in/{number:02}")).collect();
        let all: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
        let some = some_of(all.clone());
        assert!(some.len() <= MOST_FILES + 1, "{some:?}");
        assert_eq!((&*some[0].0, &*some[some.len() - 1].0), ("/in/00", "/in/99"));
        assert_eq!(some_of(all[..3].to_vec()).len(), 3);
        let long = "x".repeat(5_000);
        assert_eq!(some_of(vec![(&long, 1), (&long, 1)]).len(), 1);
    }

    #[test]
    fn a_mark_goes_when_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mark = Mark::leave_in(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&mark.path).unwrap(), mark.token);
        drop(mark);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Mark::leave_in(&dir.path().join("none")).is_none());
    }
}
