//! The list of commands: made once from what the user names, and read again for what is left of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use corona::mapreduce::commands::parse_line;

/// The longest line: longer arguments are refused by Linux.
const MOST_LINE_BYTES: usize = (128 << 10) - 1;
/// The most commands of a list.
const MOST_COMMANDS: u64 = 10_000_000;

/// Numbers from the first to the last one, with steps between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    first: u64,
    last: u64,
    step: u64,
}

/// Reads `A-B` or `A-B:STEP`.
pub(super) fn parse_numbers(text: &str) -> Result<Numbers, String> {
    let wrong = || "expected numbers such as 1-1000 or 0-100:10, the smaller one first".to_owned();
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let numbers = Numbers { first: number(first)?, last: number(last)?, step: number(step)? };
    let count =
        (numbers.last.checked_sub(numbers.first)).and_then(|it| it.checked_div(numbers.step));
    match count {
        None => Err(wrong()),
        Some(count) if count >= MOST_COMMANDS => {
            Err(format!("more than {MOST_COMMANDS} numbers; make several lists of them"))
        }
        Some(_) => Ok(numbers),
    }
}

/// What the values of a list come from.
pub(super) enum Source<'a> {
    /// One command, without a value.
    One,
    Numbers(Numbers),
    /// The lines of a file; `-` is stdin.
    Lines(&'a Path),
}

/// Writes the list of a source to a file.
///
/// # Errors
/// The source cannot be read or has no lines, or a line cannot be one of a command.
pub(super) fn write(source: &Source<'_>, to: &Path) -> anyhow::Result<()> {
    let file = File::create(to).with_context(|| to.display().to_string())?;
    let mut out = BufWriter::new(file);
    match source {
        Source::One => writeln!(out, "1\t")?,
        Source::Numbers(Numbers { first, last, step }) => {
            let mut number = *first;
            loop {
                writeln!(out, "{number}\t{number}")?;
                match number.checked_add(*step).filter(|next| next <= last) {
                    Some(next) => number = next,
                    None => break,
                }
            }
        }
        Source::Lines(path) if path.as_os_str() == "-" => {
            copy_lines(&mut io::stdin().lock(), "stdin", &mut out)?;
        }
        Source::Lines(path) => {
            let shown = path.display().to_string();
            let file = File::open(path).with_context(|| shown.clone())?;
            copy_lines(&mut BufReader::new(file), &shown, &mut out)?;
        }
    }
    out.flush().with_context(|| to.display().to_string())
}

/// Copies the lines that are not empty, with their numbers.
fn copy_lines(from: &mut impl BufRead, name: &str, to: &mut impl Write) -> anyhow::Result<()> {
    let (mut line, mut count) = (Vec::new(), 0_u64);
    for number in 1_u64.. {
        line.clear();
        let read = from.by_ref().take(MOST_LINE_BYTES as u64 + 2).read_until(b'\n', &mut line);
        if read.with_context(|| name.to_owned())? == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.is_empty() {
            continue;
        }
        let refused = |why: &str| format!("{name}, line {number}: {why}");
        ensure!(
            line.len() <= MOST_LINE_BYTES,
            refused(&format!("it has more than {MOST_LINE_BYTES} bytes, which no command takes"))
        );
        ensure!(!line.contains(&0), refused("it has a NUL byte, which no command takes"));
        ensure!(!line.contains(&b'\r'), refused("it has a carriage return in it"));
        ensure!(std::str::from_utf8(&line).is_ok(), refused("it is no UTF-8"));
        count += 1;
        ensure!(count <= MOST_COMMANDS, "{name} has more than {MOST_COMMANDS} lines");
        write!(to, "{number}\t")?;
        to.write_all(&line)?;
        to.write_all(b"\n")?;
    }
    ensure!(count > 0, "{name} has no lines: there is nothing to run");
    Ok(())
}

/// Whether two lists are the same.
pub(super) fn is_same(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
    let (mut one, mut other) = (BufReader::new(open(one)?), BufReader::new(open(other)?));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        if left.get(..length) != right.get(..length) {
            return Ok(false);
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Writes the lines of a list whose commands are wanted to another file. Gives their number.
pub(super) fn select(
    from: &Path,
    to: &Path,
    is_wanted: impl Fn(u64) -> bool,
) -> anyhow::Result<u64> {
    let file = File::open(from).with_context(|| from.display().to_string())?;
    let mut out = BufWriter::new(File::create(to).with_context(|| to.display().to_string())?);
    let mut count = 0;
    for line in BufReader::new(file).lines() {
        let line = line.with_context(|| from.display().to_string())?;
        let Some((number, _)) = parse_line(&line) else {
            bail!("{} is no list of commands", from.display());
        };
        if is_wanted(number) {
            writeln!(out, "{line}")?;
            count += 1;
        }
    }
    out.flush().with_context(|| to.display().to_string())?;
    Ok(count)
}

/// Cuts a list into parts of so many lines: the first byte and the length of each.
pub(super) fn cut(list: &Path, lines: u64) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut file = File::open(list).with_context(|| list.display().to_string())?;
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut parts, mut start, mut at, mut count) = (Vec::new(), 0, 0_u64, 0);
    loop {
        let skipped = reader.skip_until(b'\n')?;
        if skipped == 0 {
            break;
        }
        at += skipped as u64;
        count += 1;
        if count == lines {
            parts.push((start, at - start));
            (start, count) = (at, 0);
        }
    }
    if at > start {
        parts.push((start, at - start));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn numbers_are_read() {
        let numbers = |first, last, step| Ok(Numbers { first, last, step });
        assert_eq!(parse_numbers("1-1000"), numbers(1, 1000, 1));
        assert_eq!(parse_numbers("0-100:10"), numbers(0, 100, 10));
        assert_eq!(parse_numbers("7"), numbers(7, 7, 1));
        for wrong in ["", "2-1", "1-2:0", "a-b", "1-", "1-99999999999", "-1"] {
            assert!(parse_numbers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_written_cut_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&Source::Numbers(parse_numbers("0-10:5").unwrap()), &at("numbers")).unwrap();
        assert_eq!(fs::read_to_string(at("numbers")).unwrap(), "0\t0\n5\t5\n10\t10\n");
        fs::write(at("lines"), "one\r\n\nthree\t3\nfour").unwrap();
        write(&Source::Lines(&at("lines")), &at("list")).unwrap();
        assert_eq!(fs::read_to_string(at("list")).unwrap(), "1\tone\n3\tthree\t3\n4\tfour\n");
        assert_eq!(cut(&at("list"), 2).unwrap(), [(0, 16), (16, 7)]);
        assert_eq!(cut(&at("list"), 9).unwrap(), [(0, 23)]);
        assert_eq!(select(&at("list"), &at("rest"), |number| number != 3).unwrap(), 2);
        assert_eq!(fs::read_to_string(at("rest")).unwrap(), "1\tone\n4\tfour\n");
        assert!(is_same(&at("list"), &at("list")).unwrap());
        assert!(!is_same(&at("list"), &at("rest")).unwrap());
    }

    #[test]
    fn lines_that_no_command_takes_are_refused_by_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (text, expected) in [
            (&b"a\nb\0c\n"[..], "lines, line 2: it has a NUL byte"),
            (b"\xff\n", "lines, line 1: it is no UTF-8"),
            (b"a\rb\n", "lines, line 1: it has a carriage return in it"),
            (&[b'x'; 200_000], "lines, line 1: it has more than 131071 bytes"),
            (b"\n\n", "lines has no lines: there is nothing to run"),
        ] {
            fs::write(at("lines"), text).unwrap();
            let refused = write(&Source::Lines(&at("lines")), &at("list")).unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused:#}");
        }
    }
}
