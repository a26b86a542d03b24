//! What a job reads: the files that its inputs name, cut into splits as Hadoop's `FileInputFormat` does.
//! Spec: mapreduce/05 §5.2.

use anyhow::{bail, ensure};
use corona::filesystem::{FileStatus, FileSystems, expand};
use corona::mapreduce::native::Codec;
use serde::Serialize;

/// The most files of a job, and of one directory.
const MAX_FILES: usize = 1_000_000;
/// The most splits of a job: what a job tracker takes by default.
const MAX_SPLITS: usize = 500_000;
/// A last split may be so much larger than the others, in tenths.
const SLOP_TENTHS: u128 = 11;

/// What one map reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct InputSplit {
    /// The file.
    pub(super) path: String,
    /// Its first byte.
    pub(super) start: u64,
    /// How many bytes.
    pub(super) length: u64,
    /// Hosts that have these bytes.
    pub(super) hosts: Vec<String>,
}

/// The files of a job.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// How many there are.
    pub(super) files: usize,
    /// Bytes of all.
    pub(super) bytes: u64,
    /// What the maps read.
    pub(super) splits: Vec<InputSplit>,
}

impl Inputs {
    /// Finds the files that these inputs name. A directory stands for its files, except those whose
    /// names begin with `_` or `.`. Splits have `split_bytes`, else a block of the file.
    ///
    /// # Errors
    /// An input names nothing, or something that cannot be read as lines.
    pub(super) async fn find(
        systems: &FileSystems,
        inputs: &[String],
        split_bytes: Option<u64>,
    ) -> anyhow::Result<Inputs> {
        let mut found = Inputs::default();
        for input in inputs {
            let (files, path) = systems.resolve(input)?;
            let matches = expand(&*files, &path).await?;
            ensure!(
                !matches.is_empty(),
                "input {input}: there is no such file or directory ({path})"
            );
            for status in matches {
                if !status.is_directory {
                    found.add(&status, split_bytes)?;
                    continue;
                }
                for entry in files.list(&status.path, MAX_FILES).await? {
                    if entry.path.name().starts_with(['_', '.']) {
                        continue;
                    }
                    if entry.is_directory {
                        bail!(
                            "input {input}: {} is a directory; add a pattern such as {}/*",
                            entry.path,
                            status.path
                        );
                    }
                    found.add(&entry, split_bytes)?;
                }
            }
        }
        // The largest first: the job does not wait for one that was begun last.
        found.splits.sort_by(|one, other| {
            other
                .length
                .cmp(&one.length)
                .then_with(|| (&one.path, one.start).cmp(&(&other.path, other.start)))
        });
        Ok(found)
    }

    fn add(&mut self, file: &FileStatus, split_bytes: Option<u64>) -> anyhow::Result<()> {
        let path = file.path.to_string();
        let codec = Codec::of_file(&path).map_err(|ending| {
            anyhow::anyhow!("input {path}: files that end in {ending} cannot be read")
        })?;
        self.files += 1;
        self.bytes = self.bytes.saturating_add(file.bytes);
        let size = match codec {
            // A compressed file is read by one map.
            Some(_) => u64::MAX,
            None => split_bytes.unwrap_or(file.block_bytes).max(1),
        };
        for (start, length) in cut(file.bytes, size) {
            ensure!(
                self.splits.len() < MAX_SPLITS,
                "the inputs make more than {MAX_SPLITS} splits; use a larger --split-size"
            );
            self.splits.push(InputSplit { path: path.clone(), start, length, hosts: Vec::new() });
        }
        Ok(())
    }
}

/// The splits of a file: first byte and length. An empty file has one.
fn cut(bytes: u64, size: u64) -> Vec<(u64, u64)> {
    let (mut splits, mut start) = (Vec::new(), 0);
    // At most a tenth more than a split is left for the last one.
    while u128::from(bytes - start) * 10 > u128::from(size) * SLOP_TENTHS {
        splits.push((start, size));
        start += size;
        if splits.len() > MAX_SPLITS {
            break;
        }
    }
    if start < bytes || bytes == 0 {
        splits.push((start, bytes - start));
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cut_as_hadoop_cuts_it() {
        for (bytes, size, expected) in [
            (0, 10, vec![(0, 0)]),
            (5, 10, vec![(0, 5)]),
            (11, 10, vec![(0, 11)]),
            (12, 10, vec![(0, 10), (10, 2)]),
            (30, 10, vec![(0, 10), (10, 10), (20, 10)]),
            (31, 10, vec![(0, 10), (10, 10), (20, 11)]),
            (7, u64::MAX, vec![(0, 7)]),
            (3, 1, vec![(0, 1), (1, 1), (2, 1)]),
        ] {
            assert_eq!(cut(bytes, size), expected, "{bytes} {size}");
        }
    }

    #[test]
    fn inputs_are_files_directories_and_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("sub/below")).unwrap();
        for (name, text) in [
            ("a.txt", "12345"),
            ("b.gz", "xx"),
            ("sub/c", "123"),
            ("sub/_log", "x"),
            ("d.lzo", "x"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let source = corona::config::ClientSource::default();
        let systems = FileSystems::new(source.load_file_systems().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let find = |inputs: &[&str]| {
            let inputs: Vec<String> =
                inputs.iter().map(|name| format!("file:{}", at(name).display())).collect();
            let found = runtime.block_on(Inputs::find(&systems, &inputs, Some(2)));
            found.map_err(|error| error.to_string())
        };
        let found = find(&["a.*", "b.gz"]).unwrap();
        assert_eq!((found.files, found.bytes), (2, 7));
        let parts: Vec<(u64, u64)> =
            found.splits.iter().map(|split| (split.start, split.length)).collect();
        assert_eq!(parts, [(0, 2), (2, 2), (0, 2), (4, 1)]);
        for (input, expected) in [
            ("none*", "there is no such file or directory"),
            ("sub", "below is a directory; add a pattern such as"),
            ("d.lzo", "files that end in .lzo cannot be read"),
        ] {
            let refused = find(&[input]).unwrap_err();
            assert!(refused.contains(expected), "{input}: {refused}");
        }
        std::fs::remove_dir(at("sub/below")).unwrap();
        assert_eq!(find(&["sub"]).unwrap().files, 1);
    }
}
