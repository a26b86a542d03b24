//! The results of a list: one for each command, in a table of JSON lines that survives the end of this process
//! at any moment, and the outputs of the commands.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use corona::mapreduce::commands::CommandResult;

use corona_terminal::console::Console;

/// The name of the table.
const TABLE: &str = "results.jsonl";
/// The longest line of a result.
const MOST_LINE_BYTES: u64 = 1 << 20;
/// Bytes of outputs that are passed on at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Commands that have failed and are named at the end.
const MOST_NAMED: usize = 10;
/// The head of the table of `--log`.
const LOG_HEAD: &str = "id\tstatus\tsignal\tattempts\tseconds\tmemory_bytes\tnode\treason\n";

/// Where outputs of commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// Each to files of its own.
    Files,
    /// To stdout and stderr.
    Streams,
    /// Nowhere.
    None,
}

/// The results that are there.
pub(super) struct Results {
    directory: PathBuf,
    table: File,
    log: Option<Log>,
    sink: Sink,
    /// Whether results go to stdout, as lines of JSON.
    prints: bool,
    done: Numbers,
    failed: Vec<CommandResult>,
    failures: u64,
}

/// A set of numbers, for which there is a bit each.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Words of 64 bits, by their place.
    bits: BTreeMap<u64, u64>,
    count: u64,
}

impl Numbers {
    /// Whether it is there.
    pub(super) fn has(&self, number: u64) -> bool {
        self.bits.get(&(number / 64)).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// False: it is there already.
    fn insert(&mut self, number: u64) -> bool {
        let word = self.bits.entry(number / 64).or_default();
        let bit = 1 << (number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }
}

/// What a table has, up to the end of its last whole line, which is returned.
fn read_table(
    path: &Path,
    table: &mut File,
    mut take: impl FnMut(CommandResult),
) -> anyhow::Result<u64> {
    let shown = || path.display().to_string();
    let mut reader = BufReader::new(table);
    let (mut whole, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = (&mut reader).take(MOST_LINE_BYTES).read_until(b'\n', &mut line);
        let read = read.with_context(shown)? as u64;
        // What is behind the last end of a line was written when the process ended.
        if read == 0 || line.last() != Some(&b'\n') {
            ensure!(read < MOST_LINE_BYTES, "{} is no table of results", path.display());
            return Ok(whole);
        }
        let result: CommandResult = serde_json::from_slice(&line)
            .with_context(|| format!("{} is no table of results", path.display()))?;
        whole += read;
        take(result);
    }
}

/// The numbers that have results in a directory, where another process may write.
///
/// # Errors
/// The file cannot be read, or is no table of results.
pub(super) fn numbers_in(directory: &Path) -> anyhow::Result<Numbers> {
    let path = directory.join(TABLE);
    let mut table = match File::open(&path) {
        Ok(table) => table,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Numbers::default()),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let mut done = Numbers::default();
    read_table(&path, &mut table, |result| {
        done.insert(result.id);
    })?;
    Ok(done)
}

impl Results {
    /// The results in a directory, which are read if there are some.
    ///
    /// # Errors
    /// A file cannot be read or written, or is no table of results.
    pub(super) fn open(
        directory: &Path,
        log: Option<&Path>,
        sink: Sink,
        prints: bool,
    ) -> anyhow::Result<Results> {
        let path = directory.join(TABLE);
        let shown = || path.display().to_string();
        let log = log.map(Log::open).transpose()?;
        let mut table = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&path)
            .with_context(shown)?;
        let (mut done, mut failed, mut failures) = (Numbers::default(), Vec::new(), 0);
        let whole = read_table(&path, &mut table, |result| {
            if done.insert(result.id) {
                note(result, &mut failed, &mut failures);
            }
        })?;
        table.set_len(whole).with_context(shown)?;
        let directory = directory.to_owned();
        Ok(Results { directory, table, log, sink, prints, done, failed, failures })
    }

    /// Deletes the empty files of a run without a job.
    pub(super) fn discard(self) {
        if self.done.count == 0 {
            // An empty table is one without results.
            let _ = fs::remove_file(self.directory.join(TABLE));
        }
        if let Some(Log { path, is_new: true, .. }) = &self.log {
            let _ = fs::remove_file(path);
        }
    }

    /// Whether the result of a command is there.
    pub(super) fn has(&self, number: u64) -> bool {
        self.done.has(number)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.done.count
    }

    /// How many of them are failures.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// The first ones that have failed, in the order of their numbers.
    pub(super) fn failed(&mut self) -> &[CommandResult] {
        self.failed.sort_by_key(|result| result.id);
        &self.failed
    }

    /// Takes the results of a task, but for those that are there already.
    ///
    /// # Errors
    /// The file cannot be read or is damaged, or something cannot be written.
    pub(super) fn collect(&mut self, part: &Path, console: &mut Console<'_>) -> anyhow::Result<()> {
        let shown = || part.display().to_string();
        let mut reader = BufReader::with_capacity(1 << 20, File::open(part).with_context(shown)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(MOST_LINE_BYTES).read_until(b'\n', &mut line);
            if read.with_context(shown)? == 0 {
                break;
            }
            let result: CommandResult = serde_json::from_slice(&line)
                .with_context(|| format!("{} has no results", part.display()))?;
            let outputs = result.stdout_bytes.saturating_add(result.stderr_bytes);
            if self.has(result.id) {
                skip(&mut reader, outputs).with_context(shown)?;
                continue;
            }
            self.take(&mut reader, result, console).with_context(shown)?;
        }
        self.table.sync_data().context("results.jsonl")
    }

    fn take(
        &mut self,
        reader: &mut impl Read,
        result: CommandResult,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        match self.sink {
            Sink::Files => {
                for (length, ending) in [(result.stdout_bytes, "out"), (result.stderr_bytes, "err")]
                {
                    let path = self.directory.join(format!("{}.{ending}", result.id));
                    keep(reader, length, &path)?;
                }
            }
            Sink::Streams => {
                pieces(reader, result.stdout_bytes, |piece| {
                    // Nobody may read it any more; the commands run all the same.
                    console.print_bytes(piece).map(drop)
                })?;
                pieces(reader, result.stderr_bytes, |piece| {
                    console.complain(&String::from_utf8_lossy(piece));
                    Ok(())
                })?;
            }
            Sink::None => {
                skip(reader, result.stdout_bytes.saturating_add(result.stderr_bytes))?;
            }
        }
        let mut line = serde_json::to_string(&result)?;
        line.push('\n');
        // The outputs are there before the result says so.
        self.table.write_all(line.as_bytes()).context("results.jsonl")?;
        if self.prints {
            console.print(&line)?;
        }
        if let Some(log) = &mut self.log {
            log.add(&result).context("the file of --log")?;
        }
        self.done.insert(result.id);
        note(result, &mut self.failed, &mut self.failures);
        Ok(())
    }
}

fn note(result: CommandResult, failed: &mut Vec<CommandResult>, failures: &mut u64) {
    if result.is_success() {
        return;
    }
    *failures += 1;
    if failed.len() < MOST_NAMED {
        failed.push(result);
    }
}

/// The table of `--log`.
struct Log {
    path: PathBuf,
    file: File,
    /// Whether it has no head yet.
    is_new: bool,
}

impl Log {
    fn open(path: &Path) -> anyhow::Result<Log> {
        let is_new = !path.exists();
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.with_context(|| path.display().to_string())?;
        Ok(Log { path: path.to_owned(), file, is_new })
    }

    fn add(&mut self, result: &CommandResult) -> io::Result<()> {
        let head = if std::mem::take(&mut self.is_new) { LOG_HEAD } else { "" };
        self.file.write_all(format!("{head}{}", log_line(result)).as_bytes())
    }
}

fn log_line(result: &CommandResult) -> String {
    let text = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let reason = result.reason.as_deref().unwrap_or("-").replace(['\t', '\n', '\r'], " ");
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{reason}\n",
        result.id,
        text(result.status.map(|it| it.to_string())),
        text(result.signal.map(|it| it.to_string())),
        result.attempts,
        result.seconds,
        text(result.memory_bytes.map(|it| it.to_string())),
        result.node,
    )
}

/// Writes so many bytes to a file; none if there are none, and an earlier one goes.
fn keep(reader: &mut impl Read, length: u64, path: &Path) -> anyhow::Result<()> {
    if length == 0 {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        };
    }
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    pieces(reader, length, |piece| file.write_all(piece))
        .with_context(|| path.display().to_string())
}

fn skip(reader: &mut impl Read, length: u64) -> anyhow::Result<()> {
    pieces(reader, length, |_| Ok(()))
}

/// Hands on so many bytes.
fn pieces(
    reader: &mut impl Read,
    length: u64,
    mut to: impl FnMut(&[u8]) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES))];
    let mut left = length;
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = reader.read(piece.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            bail!("it ends within the output of a command");
        }
        to(piece.get(..read).unwrap_or_default())?;
        left -= read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(directory: &Path, name: &str, results: &[(u64, i32, &str, &str)]) -> PathBuf {
        let path = directory.join(name);
        let mut bytes = Vec::new();
        for (id, status, out, err) in results {
            let result = CommandResult {
                id: *id,
                status: Some(*status),
                attempts: 1,
                node: "n".to_owned(),
                stdout_bytes: out.len() as u64,
                stderr_bytes: err.len() as u64,
                ..CommandResult::default()
            };
            bytes.extend(serde_json::to_vec(&result).unwrap());
            bytes.extend([b"\n", out.as_bytes(), err.as_bytes()].concat());
        }
        fs::write(&path, bytes).unwrap();
        path
    }

    fn collected(directory: &Path, sink: Sink, parts: &[PathBuf]) -> (Results, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        let mut results =
            Results::open(directory, Some(&directory.join("log")), sink, false).unwrap();
        for part in parts {
            results.collect(part, &mut console).unwrap();
        }
        (results, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn each_result_is_taken_once_and_outputs_go_where_they_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let one = part(dir.path(), "part-00000", &[(1, 0, "a\n", ""), (2, 3, "", "no\n")]);
        let again = part(dir.path(), "part-00001", &[(2, 0, "late", ""), (900, 0, "c", "d")]);
        let parts = [one, again];
        let (mut results, out, err) = collected(dir.path(), Sink::Streams, &parts);
        assert_eq!((out.as_str(), err.as_str()), ("a\nc", "no\nd"));
        assert_eq!((results.count(), results.failures()), (3, 1));
        assert_eq!(results.failed()[0].how(), "exit status 3");
        assert!(results.has(900) && !results.has(3));
        let known = numbers_in(dir.path()).unwrap();
        assert!(known.has(900) && !known.has(3));
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(log.starts_with(LOG_HEAD) && log.contains("\n2\t3\t-\t1\t0\t-\tn\t-\n"), "{log}");
        // What a process that ended had not written to its end does not count.
        let table = dir.path().join("results.jsonl");
        let text = fs::read_to_string(&table).unwrap();
        fs::write(&table, &text[..text.len() - 5]).unwrap();
        let (results, out, _) = collected(dir.path(), Sink::Streams, &parts);
        assert_eq!((out.as_str(), results.count()), ("c", 3));
        assert_eq!(fs::read_to_string(&table).unwrap(), text);
    }

    #[test]
    fn outputs_are_kept_in_files_and_damaged_parts_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let whole = part(dir.path(), "part-00000", &[(1, 0, "a\n", ""), (2, 0, "", "e")]);
        let (_, out, _) = collected(dir.path(), Sink::Files, std::slice::from_ref(&whole));
        assert_eq!(out, "");
        assert_eq!(fs::read_to_string(dir.path().join("1.out")).unwrap(), "a\n");
        assert_eq!(fs::read_to_string(dir.path().join("2.err")).unwrap(), "e");
        assert!(!dir.path().join("1.err").exists());
        let bytes = fs::read(&whole).unwrap();
        fs::remove_file(dir.path().join("results.jsonl")).unwrap();
        fs::write(&whole, &bytes[..bytes.len() - 1]).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        let mut results = Results::open(dir.path(), None, Sink::None, true).unwrap();
        let refused = format!("{:#}", results.collect(&whole, &mut console).unwrap_err());
        assert!(refused.contains("it ends within the output of a command"), "{refused}");
        assert_eq!(results.count(), 1);
        assert!(String::from_utf8(out).unwrap().starts_with("{\"id\":1,"));
        // A file of somebody else is left as it is.
        let foreign = "x".repeat(MOST_LINE_BYTES as usize);
        fs::write(dir.path().join("results.jsonl"), &foreign).unwrap();
        assert!(Results::open(dir.path(), None, Sink::Files, false).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("results.jsonl")).unwrap(), foreign);
    }

    #[test]
    fn large_numbers_have_results_too() {
        let mut numbers = Numbers::default();
        for number in [0, 20_240_101_000_000, u64::MAX] {
            assert!(numbers.insert(number) && !numbers.insert(number) && numbers.has(number));
        }
        assert_eq!(numbers.count, 3);
    }
}
