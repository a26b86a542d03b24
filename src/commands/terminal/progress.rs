//! A progress line on stderr, if it is a terminal, while a large file is read or a replay runs.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use corona::conformance::replay::Progress;
use tokio::sync::watch;

/// A file that shows how much of it has been read. Dropping it removes the
/// line.
pub(crate) struct WatchedFile {
    file: File,
    size: u64,
    read: u64,
    shown_at: Instant,
    visible: bool,
    shown: bool,
}

/// The time before the first line, and between updates.
const PAUSE: Duration = Duration::from_millis(300);

impl WatchedFile {
    /// Opens the file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
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
            let megabytes = |bytes: u64| bytes >> 20;
            let count = format!("{} of {} MiB", megabytes(self.read), megabytes(self.size));
            write_stderr(&format!("\r{}", bar(self.read, self.size, &count)));
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

/// Shows the progress of a replay until it ends. Must be called within a tokio
/// runtime.
pub(crate) fn follow(mut progress: watch::Receiver<Progress>) {
    if !io::stderr().is_terminal() {
        return;
    }
    tokio::spawn(async move {
        let mut pause = tokio::time::interval(PAUSE);
        // The sender is dropped when the replay has ended.
        while progress.has_changed().is_ok() {
            let Progress { played, of } = *progress.borrow_and_update();
            let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let count = format!("{:.0} of {:.0} s", played.as_secs_f64(), of.as_secs_f64());
            write_stderr(&format!("\r{}", bar(ms(played), ms(of), &count)));
            pause.tick().await;
        }
    });
}

/// Removes the line of [`follow`]. The runtime must have ended.
pub(crate) fn clear() {
    if io::stderr().is_terminal() {
        write_stderr(&format!("\r{:79}\r", ""));
    }
}

/// A line that shows which file is copied and the progress of that, once the copies take a while.
/// Dropping this removes the line.
pub(crate) struct CopyProgress {
    began: Instant,
    shown_at: Option<Instant>,
    visible: bool,
}

impl CopyProgress {
    /// For the copies of one command.
    pub(crate) fn new() -> Self {
        CopyProgress { began: Instant::now(), shown_at: None, visible: io::stderr().is_terminal() }
    }

    /// Shows the copied bytes of this file's total. For a source without an end, the total is the
    /// bytes read.
    pub(crate) fn show(&mut self, name: &str, bytes: u64, of: u64) {
        if self.visible && self.shown_at.unwrap_or(self.began).elapsed() >= PAUSE {
            self.shown_at = Some(Instant::now());
            let megabytes = |bytes: u64| bytes >> 20;
            let name = super::console::printable(name);
            let count = format!("{}/{} MiB {name}", megabytes(bytes), megabytes(of));
            write_stderr(&format!("\r{}", bar(bytes, of, &count)));
        }
    }
}

impl Drop for CopyProgress {
    fn drop(&mut self) {
        if self.shown_at.is_some() {
            write_stderr(&format!("\r{:79}\r", ""));
        }
    }
}

/// A line with a bar: at most 79 columns, so that the cursor stays in the line of a terminal of 80.
pub(crate) fn bar(done: u64, all: u64, count: &str) -> String {
    const WIDTH: u64 = 50;
    let filled = done.min(all).saturating_mul(WIDTH).checked_div(all).unwrap_or(WIDTH) as usize;
    // As wide as it may be, so that nothing is left of a longer line before.
    format!("[{:<50}] {count:<26.26}", "#".repeat(filled))
}

#[expect(clippy::print_stderr, reason = "progress is for people, not for what reads the output")]
pub(crate) fn write_stderr(text: &str) {
    eprint!("{text}");
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
