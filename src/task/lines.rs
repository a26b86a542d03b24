//! Lines of a stream, and which of them belong to a split. Spec: mapreduce/05 §5.2.
//!
//! A line ends with a line feed, a carriage return, or both. A split that does not begin at 0 leaves out
//! the line that reaches into it, and reads the line that reaches out of it to its end. Pure: it knows
//! only [`Read`].

use std::io::{self, Read};

use memchr::memchr2;
use thiserror::Error;

/// Why there is no next line.
#[derive(Debug, Error)]
pub enum LineError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line is larger than a task may hold.
    #[error("a line has more than {limit} bytes (corona.task.max.record.bytes)")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    inner: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    is_over: bool,
    max_bytes: usize,
}

/// A line, and the bytes that it took with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLine<'a> {
    /// Its text, without its end.
    pub text: &'a [u8],
    /// Its bytes, those of its end included.
    pub bytes: usize,
}

impl<R: Read> Lines<R> {
    /// The lines of a stream, read with a buffer of this size at first. A longer line than `max_bytes`
    /// is an error.
    pub fn new(inner: R, buffer_bytes: usize, max_bytes: usize) -> Lines<R> {
        let buffer = vec![0; buffer_bytes.max(2)];
        Lines { inner, buffer, from: 0, to: 0, is_over: false, max_bytes }
    }

    /// The next line. None at the end.
    pub fn next_line(&mut self) -> Result<Option<TextLine<'_>>, LineError> {
        let mut searched = 0;
        loop {
            let rest = self.buffer.get(self.from..self.to).unwrap_or_default();
            let found = memchr2(b'\n', b'\r', rest.get(searched..).unwrap_or_default());
            let found = found.map(|at| at + searched);
            let end = match found {
                // The byte after a carriage return decides where the line ends.
                Some(at)
                    if rest.get(at) == Some(&b'\r') && at + 1 == rest.len() && !self.is_over =>
                {
                    None
                }
                Some(at) if rest.get(at..at + 2) == Some(b"\r\n") => Some((at, at + 2)),
                Some(at) => Some((at, at + 1)),
                None if self.is_over => Some((rest.len(), rest.len())),
                None => None,
            };
            if let Some((text, bytes)) = end {
                if text > self.max_bytes {
                    return Err(LineError::TooLong { limit: self.max_bytes });
                }
                if bytes == 0 {
                    return Ok(None);
                }
                let start = self.from;
                self.from += bytes;
                let text = self.buffer.get(start..start + text).unwrap_or_default();
                return Ok(Some(TextLine { text, bytes }));
            }
            searched = found.unwrap_or(rest.len());
            if rest.len() > self.max_bytes {
                return Err(LineError::TooLong { limit: self.max_bytes });
            }
            self.fill()?;
        }
    }

    /// Leaves out the line that is next, however large it is. Returns the bytes that it took.
    pub fn skip_line(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let rest = self.buffer.get(self.from..self.to).unwrap_or_default();
            let taken = match memchr2(b'\n', b'\r', rest) {
                Some(at) if rest.get(at) == Some(&b'\n') => Some(at + 1),
                Some(at) if rest.get(at + 1) == Some(&b'\n') => Some(at + 2),
                Some(at) if at + 1 < rest.len() || self.is_over => Some(at + 1),
                // What follows the carriage return has not been read yet.
                Some(at) => {
                    self.from += at;
                    skipped += at as u64;
                    None
                }
                None => {
                    self.from = self.to;
                    skipped += rest.len() as u64;
                    self.is_over.then_some(0)
                }
            };
            if let Some(taken) = taken {
                self.from += taken;
                return Ok(skipped + taken as u64);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.to == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let space = self.buffer.get_mut(self.to..).unwrap_or_default();
        loop {
            match self.inner.read(space) {
                Ok(0) => self.is_over = true,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

/// The lines of a split.
#[derive(Debug)]
pub struct SplitLines<R> {
    lines: Lines<R>,
    start: u64,
    at: u64,
    end: u64,
}

impl<R: Read> SplitLines<R> {
    /// The lines of the bytes from `start` to `end` of a file. `inner` reads the file from
    /// [`first_byte`]`(start)`. Without an end, all lines.
    pub fn new(
        inner: R,
        start: u64,
        end: Option<u64>,
        max_bytes: usize,
    ) -> Result<SplitLines<R>, LineError> {
        let mut lines = Lines::new(inner, 256 << 10, max_bytes);
        let mut at = first_byte(start);
        if start > 0 {
            // It belongs to the split before, whatever its size.
            at += lines.skip_line()?;
        }
        Ok(SplitLines { lines, start, at, end: end.unwrap_or(u64::MAX) })
    }

    /// The next line.
    pub fn next_line(&mut self) -> Result<Option<TextLine<'_>>, LineError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let line = self.lines.next_line()?;
        self.at += line.map_or(0, |line| line.bytes as u64);
        Ok(line)
    }

    /// Leaves out the next line, however large it is.
    pub fn skip_line(&mut self) -> io::Result<()> {
        self.at += self.lines.skip_line()?;
        Ok(())
    }

    /// Where the next line begins.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// How much of the split has been read, from 0 to 1.
    pub fn progress(&self) -> f32 {
        progress(self.at, self.start, self.end)
    }
}

/// How much of a split from `start` to `end` has been read at a place, from 0 to 1.
pub(crate) fn progress(at: u64, start: u64, end: u64) -> f32 {
    if end == u64::MAX || end <= start {
        return 0.0;
    }
    (at.saturating_sub(start) as f32 / (end - start) as f32).min(1.0)
}

/// Where a file is read from for a split: one byte earlier, so that a line that ends there is seen.
pub fn first_byte(start: u64) -> u64 {
    start.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8], buffer: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(text, buffer, 1 << 20);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(line.text.to_vec());
        }
        found
    }

    fn of_split(text: &[u8], start: u64, end: u64) -> Vec<Vec<u8>> {
        let from = first_byte(start) as usize;
        let mut lines =
            SplitLines::new(&text[from.min(text.len())..], start, Some(end), 1 << 20).unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(line.text.to_vec());
        }
        found
    }

    #[test]
    fn ends_of_lines() {
        for (text, expected) in [
            (&b""[..], vec![]),
            (b"a", vec!["a"]),
            (b"a\n", vec!["a"]),
            (b"a\r\nb\rc\n\nd\r", vec!["a", "b", "c", "", "d"]),
            (b"\r\r\n\n", vec!["", "", ""]),
        ] {
            for buffer in [2, 3, 100] {
                let found: Vec<_> =
                    all(text, buffer).into_iter().map(|l| String::from_utf8(l).unwrap()).collect();
                assert_eq!(found, expected, "{text:?} {buffer}");
            }
        }
    }

    #[test]
    fn lines_are_left_out_whatever_their_size() {
        for (text, bytes, rest) in [
            (&b"abc\nd"[..], 4, "d"),
            (b"a\rd", 2, "d"),
            (b"a\r\nd", 3, "d"),
            (b"abcdefgh\r\nd", 10, "d"),
            (b"\nd", 1, "d"),
            (b"abc\r", 4, ""),
            (b"abc", 3, ""),
            (b"", 0, ""),
        ] {
            for buffer in [2, 3, 100] {
                let mut lines = Lines::new(text, buffer, 1);
                assert_eq!(lines.skip_line().unwrap(), bytes, "{text:?} {buffer}");
                let line = lines.next_line().unwrap().map_or(&b""[..], |line| line.text);
                assert_eq!(line, rest.as_bytes(), "{text:?} {buffer}");
            }
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut lines = Lines::new(io::repeat(b'x'), 64, 1000);
        assert!(matches!(lines.next_line(), Err(LineError::TooLong { limit: 1000 })));
        assert!(lines.buffer.len() <= 4096);
    }

    proptest! {
        /// However a file is cut, each line is read once, and in order.
        #[test]
        fn splits_share_the_lines(text in "[ab\r\n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..5)) {
            let text = text.into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let mut found = Vec::new();
            for pair in cuts.windows(2) {
                found.extend(of_split(&text, pair[0] as u64, pair[1] as u64));
            }
            prop_assert_eq!(found, all(&text, 100));
        }
    }
}
