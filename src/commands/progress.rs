//! A line on stderr that tells how far the reading of a large file is, when somebody looks.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// A file that shows how much of it has been read. The line is gone when this is dropped.
pub(super) struct WatchedFile {
    file: File,
    size: u64,
    read: u64,
    shown_at: Instant,
    visible: bool,
    shown: bool,
}

/// Files that are read faster than this show nothing, and no change is shown sooner.
const PAUSE: Duration = Duration::from_millis(300);

impl WatchedFile {
    /// Opens the file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let visible = size > 0 && io::stderr().is_terminal();
        Ok(WatchedFile { file, size, read: 0, shown_at: Instant::now(), visible, shown: false })
    }
}

impl Read for WatchedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.file.read(buffer)?;
        self.read += size as u64;
        if self.visible && self.shown_at.elapsed() >= PAUSE {
            self.shown_at = Instant::now();
            self.shown = true;
            write_stderr(&format!("\r{}", bar(self.read, self.size)));
        }
        Ok(size)
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        if self.shown {
            write_stderr(&format!("\r{:79}\r", ""));
        }
    }
}

/// At most 79 columns, so that the cursor stays in the line of a terminal of 80.
fn bar(read: u64, size: u64) -> String {
    const WIDTH: u64 = 50;
    let read = read.min(size);
    let filled = read.saturating_mul(WIDTH).checked_div(size).unwrap_or(WIDTH) as usize;
    let megabytes = |bytes: u64| bytes >> 20;
    let count = format!("{} of {} MiB", megabytes(read), megabytes(size));
    format!("[{:<50}] {count:.26}", "#".repeat(filled))
}

#[expect(clippy::print_stderr, reason = "progress is for people, not for what reads the output")]
fn write_stderr(text: &str) {
    eprint!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_and_stays_within_the_line() {
        for (read, filled) in [(0, 0), (500, 25), (1_000, 50), (2_000, 50)] {
            assert_eq!(bar(read, 1_000).matches('#').count(), filled, "{read}");
        }
        for (read, size) in [(0, 0), (1 << 50, 1 << 50)] {
            assert!(bar(read, size).chars().count() < 80);
        }
    }

    #[test]
    fn a_watched_file_is_read_as_it_is() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut text = String::new();
        WatchedFile::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, std::fs::read_to_string(path).unwrap());
    }
}
