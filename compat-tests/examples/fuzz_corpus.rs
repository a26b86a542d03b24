//! Writes the first inputs of the fuzz targets, made from the recordings and fixtures:
//! `fuzz_corpus DIRECTORY` makes `DIRECTORY/<target>/seed-<number>`.

use std::path::PathBuf;

use compat_tests::fuzzing::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    let directory: PathBuf =
        std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()).into();
    for target in TARGETS {
        let folder = directory.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds(target).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:04}")), seed)?;
        }
    }
    Ok(())
}
