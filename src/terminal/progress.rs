//! A progress line on stderr, if it is a terminal, while files are read or copied.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// The time before the first line, and between updates.
pub const PAUSE: Duration = Duration::from_millis(300);

/// A line of progress on stderr, if that is a terminal. Dropping it removes the line.
pub struct ProgressLine {
    shown_at: Instant,
    visible: bool,
    shown: bool,
}

impl Default for ProgressLine {
    fn default() -> Self {
        let visible = io::stderr().is_terminal();
        ProgressLine { shown_at: Instant::now(), visible, shown: false }
    }
}

impl ProgressLine {
    /// Shows a text in place of the last one, unless that is too early.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.visible && self.shown_at.elapsed() >= PAUSE {
            (self.shown_at, self.shown) = (Instant::now(), true);
            write_stderr(&format!("\r{}", text()));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            clear_line();
        }
    }
}

/// A file that shows how much of it has been read.
pub struct WatchedFile {
    file: File,
    size: u64,
    read: u64,
    line: ProgressLine,
}

impl WatchedFile {
    /// Opens the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(WatchedFile { file, size, read: 0, line: ProgressLine::default() })
    }
}

impl Read for WatchedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.file.read(buffer)?;
        self.read += size as u64;
        if self.size > 0 {
            self.line.show(|| {
                let count = format!("{} of {} MiB", self.read >> 20, self.size >> 20);
                bar(self.read, self.size, &count)
            });
        }
        Ok(size)
    }
}

/// A line that shows which file is copied and the progress of that, once the copies take a while.
#[derive(Default)]
pub struct CopyProgress(ProgressLine);

impl CopyProgress {
    /// Shows the copied bytes of this file's total. For a source without an end, the total is the
    /// bytes read.
    pub fn show(&mut self, name: &str, bytes: u64, of: u64) {
        self.0.show(|| {
            let name = crate::console::printable(name);
            bar(bytes, of, &format!("{}/{} MiB {name}", bytes >> 20, of >> 20))
        });
    }
}

/// A line with a bar: at most 79 columns, so that the cursor stays in the line of a terminal of 80.
pub fn bar(done: u64, all: u64, count: &str) -> String {
    const WIDTH: u64 = 50;
    let filled = done.min(all).saturating_mul(WIDTH).checked_div(all).unwrap_or(WIDTH) as usize;
    // As wide as it may be, so that nothing is left of a longer line before.
    format!("[{:<50}] {count:<26.26}", "#".repeat(filled))
}

#[expect(clippy::print_stderr, reason = "progress is for people, not for what reads the output")]
/// Writes progress to stderr, past the console.
pub fn write_stderr(text: &str) {
    eprint!("{text}");
}

/// Removes a line of progress from stderr.
pub fn clear_line() {
    write_stderr(&format!("\r{:79}\r", ""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_and_stays_within_the_line() {
        for (read, filled) in [(0, 0), (1, 0), (500, 25), (1_000, 50), (2_000, 50)] {
            assert_eq!(bar(read, 1_000, "x").matches('#').count(), filled, "{read}");
        }
        for (read, size) in [(0, 0), (1 << 50, 1 << 50), (u64::MAX / 50, u64::MAX / 50)] {
            assert!(bar(read, size, &"x".repeat(100)).chars().count() < 80);
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
