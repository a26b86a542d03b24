//! The output directory of a job: one that does not exist yet, or one that holds the output of an earlier
//! job and is replaced with `--overwrite`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use corona::filesystem::{FileStatus, FileSystem, FileSystems, FsPath};

use crate::commands::fs::protect::compared;
use corona::mapreduce::native::INPUT_CODECS;
use corona_terminal::console::printable;
use corona_terminal::counted;

/// The most entries of a directory that is replaced.
const MAX_ENTRIES: usize = 1_000_000;
/// Entries that are named when they are no output of a job.
const MOST_NAMED: usize = 3;

/// Where a job writes.
pub(super) struct Output {
    pub(super) files: Arc<dyn FileSystem>,
    pub(super) path: FsPath,
    /// What the directory has now; none if there is no such directory.
    earlier: Option<Vec<FileStatus>>,
}

impl Output {
    /// Finds the directory. `instead` says how the user names another one.
    ///
    /// # Errors
    /// It exists and is not to be replaced, has anything else than the output of a job, or is or has an input.
    pub(super) async fn find<'a>(
        systems: &FileSystems,
        directory: &str,
        overwrite: bool,
        instead: &str,
        mut inputs: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<Output> {
        let (files, path) = systems.resolve(directory)?;
        let Some(found) = files.find(&path).await? else {
            if files.root().scheme() == "file" {
                check_place(Path::new(path.path()), instead)?;
            }
            return Ok(Output { files, path, earlier: None });
        };
        // An input of another file system, or of none that is known, does not lie in it.
        let is_in_it = |input: &&str| {
            systems.resolve(input).is_ok_and(|(of, input)| {
                of.root().is_same(files.root())
                    && compared(&*of, &input).starts_with(compared(&*files, &path))
            })
        };
        if let Some(input) = inputs.find(is_in_it) {
            bail!(
                "the output {path} is or holds the input {input}, which is not overwritten: {instead}"
            );
        }
        ensure!(
            overwrite,
            "Output directory {path} already exists; nothing is overwritten: {instead}; --overwrite \
             replaces the output of an earlier job"
        );
        ensure!(
            found.is_directory,
            "{path} is a file, which --overwrite leaves as it is: {instead}"
        );
        let entries = files.list(&path, MAX_ENTRIES).await?;
        let others = others(&entries);
        if !others.is_empty() {
            let named: Vec<&str> = others.iter().take(MOST_NAMED).copied().collect();
            let left = others.len() - named.len();
            let more = if left > 0 { format!(" and {left} more") } else { String::new() };
            bail!(
                "{path} has more than the output of a job: {}{more}; --overwrite leaves it as it is: {instead}",
                printable(&named.join(", "))
            );
        }
        Ok(Output { files, path, earlier: Some(entries) })
    }

    /// Deletes the output of the earlier job, and nothing that has come since it was found.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let Some(earlier) = &self.earlier else { return Ok(()) };
        let deleted = async {
            for entry in earlier {
                self.files.delete(&entry.path, entry.is_directory).await?;
            }
            self.files.delete(&self.path, false).await
        };
        let count = counted(earlier.len() as u64, "file");
        deleted.await.with_context(|| format!("cannot replace {} ({count})", self.path))?;
        Ok(())
    }
}

/// Whether a directory of this machine that does not exist can be made where it is named. Who may make it is not asked: it is
/// made by tasks, whose user may be another one.
fn check_place(path: &Path, instead: &str) -> anyhow::Result<()> {
    let mut above = path.ancestors().skip(1);
    let Some(above) = above.find(|above| above.symlink_metadata().is_ok()) else { return Ok(()) };
    ensure!(
        above.is_dir(),
        "{} is no directory, so that the output {} cannot be made: {instead}",
        above.display(),
        path.display()
    );
    Ok(())
}

/// The names of entries that are no output of a job.
fn others(entries: &[FileStatus]) -> Vec<&str> {
    let is_of_job = |entry: &&FileStatus| match entry.path.name() {
        "_SUCCESS" => !entry.is_directory,
        "_logs" | "_temporary" => entry.is_directory,
        name => !entry.is_directory && is_part(name),
    };
    entries.iter().filter(|entry| !is_of_job(entry)).map(|entry| entry.path.name()).collect()
}

/// The endings of compressed parts that jobs in Java write, beside those that jobs here read.
const OF_JAVA: [&str; 3] = [".lzo", ".lzo_deflate", ".snappy"];

/// Whether a file has the name of a part of an output, such as `part-00007.gz`.
pub(super) fn is_part(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("part-") else { return false };
    let rest = rest.strip_prefix("m-").or(rest.strip_prefix("r-")).unwrap_or(rest);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let ending = rest.get(digits..).unwrap_or_default();
    let mut endings = INPUT_CODECS.iter().map(|(known, ..)| *known).chain(OF_JAVA);
    digits >= 5 && (ending.is_empty() || endings.any(|known| known == ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn parts_of_outputs_are_known_by_their_names() {
        for name in
            ["part-00000", "part-00012.gz", "part-123456.deflate", "part-m-00000", "part-r-00001"]
        {
            assert!(is_part(name), "{name}");
        }
        for name in [
            "part-",
            "part-1",
            "part-0000x",
            "part-00000~",
            "part-00000.bak",
            "part-00000.csv",
            "apart-00000",
            "part-x-00000",
        ] {
            assert!(!is_part(name), "{name}");
        }
    }

    #[test]
    fn only_the_output_of_a_job_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let source = corona::config::ClientSource::default();
        let systems = FileSystems::new(source.load_file_systems().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let out = dir.path().join("out");
        let uri = format!("file:{}", out.display());
        let find_of = |overwrite, input: &str| {
            let inputs = std::iter::once(input);
            let instead = "name a new directory with --output";
            let found = Output::find(&systems, &uri, overwrite, instead, inputs);
            runtime.block_on(found).map_err(|error| error.to_string())
        };
        let find = |overwrite, input: &str| find_of(overwrite, &format!("{uri}{input}"));
        let make = |names: &[&str]| {
            let _ = fs::remove_dir_all(&out);
            for name in names {
                let path = out.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
        };
        assert!(find(false, "2/in").is_ok());
        let job = ["_SUCCESS", "part-00000", ".part-00000.crc", "_logs/history/x", "_temporary/x"];
        make(&job);
        let refused = find(false, "2/in").err().unwrap();
        assert!(
            refused.contains("already exists; nothing is overwritten: name a new directory with"),
            "{refused}"
        );
        for (overwrite, input) in
            [(false, ""), (true, ""), (false, "/part-00000"), (true, "/part-00000")]
        {
            let refused = find(overwrite, input).err().unwrap();
            assert!(refused.contains("which is not overwritten: name a new"), "{refused}");
            assert!(!refused.contains("--overwrite"), "{refused}");
        }
        // However the input is named.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        for input in [&out, &link].map(|dir| dir.join("part-00000").display().to_string()) {
            let refused = find_of(true, &input).err().unwrap();
            assert!(refused.contains("which is not overwritten"), "{input}: {refused}");
        }
        for (more, named) in [
            (&["notes.txt"][..], "notes.txt"),
            (&["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
            (&["part-00001/x"], "part-00001"),
        ] {
            make(&[&job, more].concat());
            let refused = find(true, "2/in").err().unwrap();
            let expected = format!("has more than the output of a job: {named};");
            assert!(refused.contains(&expected), "{refused}");
        }
        make(&job);
        let found = find(true, "2/in").unwrap();
        // What comes after the look is not deleted with it.
        fs::write(out.join("late"), "x").unwrap();
        let refused = runtime.block_on(found.clear()).unwrap_err();
        assert!(format!("{refused:#}").contains("cannot replace"), "{refused:#}");
        assert!(out.join("late").exists());
        make(&job);
        runtime.block_on(find(true, "2/in").unwrap().clear()).unwrap();
        assert!(!out.exists());
        make(&[]);
        fs::create_dir(&out).unwrap();
        runtime.block_on(find(true, "2/in").unwrap().clear()).unwrap();
        assert!(!out.exists());
        fs::write(&out, "x").unwrap();
        assert!(find(true, "2/in").err().unwrap().contains("is a file"));
        let below = check_place(&out.join("below"), "name another one").unwrap_err().to_string();
        assert!(
            below.contains("is no directory") && below.ends_with("name another one"),
            "{below}"
        );
    }
}
