//! Commands that show files and what they have.

use std::io::Read;

use std::time::Duration;

use corona::filesystem::{FileReader, FileStatus, FileSystem};
use corona::mapreduce::native::InputCodecs;
use corona::task::codec::{InputCodec, input_reader};
use corona::task::sequence_file::{self, SequenceText};
use jiff::Timestamp;
use tokio::runtime::Handle;

use super::super::{MAX_FILES, Output, Shell, print_all, printed, worded};
use super::Line;

/// Bytes that `-head` and `-tail` show.
const END_BYTES: u64 = 1024;
/// The pause between two looks of `-tail -f`.
const TAIL_PAUSE: Duration = Duration::from_secs(5);
/// Decompressed bytes that are printed at a time.
const PIECE_BYTES: usize = 64 << 10;
/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The largest record of a sequence file that is printed.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// What is in a file.
enum Content {
    /// Text, which may be compressed.
    Text(Option<InputCodec>),
    /// Keys and values.
    Sequence,
}

/// The paths of a command, which are the home directory if there are none.
fn or_home(words: &[String]) -> Vec<String> {
    match words.is_empty() {
        true => vec![".".to_owned()],
        false => words.to_vec(),
    }
}

impl Shell {
    pub(super) async fn ls(
        &self,
        name: &str,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let is_recursive = name != "-ls" || line.has("-R");
        for text in or_home(&line.words) {
            let Some((files, found)) = self.listed(&text, output).await else { continue };
            let has_header = found.len() == 1 && !is_recursive;
            for status in found {
                let is_listed = status.is_directory && !line.has("-d");
                let items = match is_listed {
                    true => self.entries(&*files, &status, output).await,
                    false => vec![status],
                };
                if has_header && !items.is_empty() {
                    output.say(&format!("Found {} items", items.len()))?;
                }
                self.print_items(&*files, items, name == "-lsrx", is_recursive, output).await?;
            }
        }
        Ok(())
    }

    /// Prints the lines of items, each followed by those of what it has if the command is recursive.
    async fn print_items(
        &self,
        files: &dyn FileSystem,
        items: Vec<FileStatus>,
        has_blocks: bool,
        is_recursive: bool,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let lines = |items: Vec<FileStatus>| {
            let lines = printed(&items, has_blocks);
            items.into_iter().zip(lines).rev().collect::<Vec<_>>()
        };
        let mut waiting = lines(items);
        while let Some((item, line)) = waiting.pop() {
            output.console.print(&format!("{line}\n"))?;
            if is_recursive && item.is_directory && !super::super::is_link(files, &item) {
                waiting.extend(lines(self.entries(files, &item, output).await));
            }
        }
        Ok(())
    }

    /// What a directory has. What cannot be listed is reported.
    async fn entries(
        &self,
        files: &dyn FileSystem,
        directory: &FileStatus,
        output: &mut Output<'_, '_>,
    ) -> Vec<FileStatus> {
        match files.list_all(&directory.path, MAX_FILES).await {
            Ok(listing) => {
                for odd in &listing.odd {
                    output.fail(&worded(&odd.error("list", &directory.path)));
                }
                listing.entries
            }
            Err(error) => {
                let (path, reason) = (&directory.path, error.first_line());
                output.fail(&format!("could not get get listing for '{path}' : {reason}"));
                Vec::new()
            }
        }
    }

    pub(super) async fn du(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in or_home(words) {
            let Some((files, found)) = self.listed(&text, output).await else { continue };
            let mut items = Vec::new();
            for status in found {
                match status.is_directory {
                    true => items.extend(self.entries(&*files, &status, output).await),
                    false => items.push(status),
                }
            }
            let mut sizes = Vec::with_capacity(items.len());
            for item in &items {
                sizes.push(size(&*files, item, output).await);
            }
            output.say(&format!("Found {} items", items.len()))?;
            let widest = sizes.iter().map(|size| size.to_string().len()).fold(10, usize::max) + 2;
            for (item, size) in items.iter().zip(sizes) {
                output.say(&format!("{size:<widest$}{}", item.path))?;
            }
        }
        Ok(())
    }

    pub(super) async fn dus(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in or_home(words) {
            let Some((files, found)) = self.listed(&text, output).await else { continue };
            for status in found {
                let size = size(&*files, &status, output).await;
                output.console.print(&format!("{}\t{size}\n", status.path))?;
            }
        }
        Ok(())
    }

    pub(super) async fn count(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in or_home(words) {
            let Some((files, _, found)) = output.reported(self.found(&text).await) else {
                continue;
            };
            if found.is_empty() {
                output.has_failed = true;
                output.console.complain(&format!("Can not find listing for {text}\n"));
            }
            for status in found {
                if let Some(sum) = output.reported(files.summary(&status.path).await) {
                    output.say(&format!(
                        "{:>12} {:>12} {:>18} {}",
                        sum.directories, sum.files, sum.bytes, status.path
                    ))?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn cat_all(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in words {
            let Some((files, found)) = self.named(text, output).await else { continue };
            for status in found {
                let Some(mut reader) = opened(&*files, &status, output).await else { continue };
                let printed = print_all(&mut *reader, output).await?;
                if output.reported(printed) == Some(false) {
                    // Nobody reads what would follow.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Prints files as text: `-text` knows gzip by its first bytes, `-decompress` codecs by their endings.
    pub(super) async fn text(
        &self,
        command: &str,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in words {
            let Some((files, found)) = self.named(text, output).await else { continue };
            for status in found {
                let Some(mut reader) = opened(&*files, &status, output).await else { continue };
                let content = match command {
                    "-text" => of_first_bytes(&mut *reader).await,
                    _ => of_ending(&status),
                };
                let printed = match content {
                    Ok(content) => print_content(reader, content, output).await?,
                    Err(wrong) => Err(wrong),
                };
                output.reported(printed);
            }
        }
        Ok(())
    }

    pub(super) async fn head(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in words {
            let Some((files, found)) = self.named(text, output).await else { continue };
            for status in found.iter().take(1) {
                let Some(mut reader) = opened(&*files, status, output).await else { continue };
                let length = reader.length().min(END_BYTES);
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                if output.reported(reader.read_exact_at(0, &mut bytes).await).is_some() {
                    bytes.push(b'\n');
                    output.console.print_bytes(&bytes)?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn tail(
        &self,
        words: &[String],
        follows: bool,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some(text) = words.first() else { return Ok(()) };
        let mut from = None;
        loop {
            let Some((files, found)) = self.named(text, output).await else { return Ok(()) };
            let Some(status) = found.first() else { return Ok(()) };
            let Some(mut reader) = opened(&*files, status, output).await else { return Ok(()) };
            let length = reader.length();
            reader
                .seek(from.map_or(length.saturating_sub(END_BYTES), |from: u64| from.min(length)));
            let printed = print_all(&mut *reader, output).await?;
            if output.reported(printed) != Some(true) || !follows {
                return Ok(());
            }
            from = Some(length);
            tokio::time::sleep(TAIL_PAUSE).await;
        }
    }

    pub(super) async fn stat_form(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let (form, text) = match words {
            [form, text] => (&**form, text),
            [text] => ("%y", text),
            _ => return Ok(()),
        };
        for status in self.to_stat(text, output).await {
            output.say(&formed(form, &status))?;
        }
        Ok(())
    }

    /// The status of `-test` is its answer.
    pub(super) async fn test(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<u8> {
        let [flag, text] = words else { return Ok(1) };
        let Some((_, path, found)) = output.reported(self.looked_up(text).await) else {
            return Ok(0);
        };
        let holds = match (&**flag, found) {
            ("-e", found) => found.is_some(),
            ("-z", Some(found)) => found.bytes == 0,
            ("-d", Some(found)) => found.is_directory,
            ("-z" | "-d", None) => {
                output.fail(&format!("File does not exist: {path}"));
                false
            }
            (flag, _) => {
                match flag.strip_prefix('-').filter(|letter| letter.chars().count() == 1) {
                    Some(letter) => output.fail(&format!("Unknown flag: {letter}")),
                    None => output.fail(&format!("Not a flag: {flag}")),
                }
                false
            }
        };
        Ok(u8::from(!holds))
    }
}

/// Bytes of a file, or of all below a directory. What cannot be summed up is reported.
async fn size(files: &dyn FileSystem, item: &FileStatus, output: &mut Output<'_, '_>) -> u64 {
    if !item.is_directory {
        return item.bytes;
    }
    output.reported(files.summary(&item.path).await).map_or(0, |sum| sum.bytes)
}

/// Opens a file. What cannot be opened is reported.
pub(super) async fn opened(
    files: &dyn FileSystem,
    status: &FileStatus,
    output: &mut Output<'_, '_>,
) -> Option<Box<dyn FileReader>> {
    if status.is_directory {
        output.fail("Source must be a file.");
        return None;
    }
    output.reported(files.open(&status.path).await)
}

/// What a file has, by its first bytes.
async fn of_first_bytes(reader: &mut dyn FileReader) -> Result<Content, String> {
    let length = reader.length().min(sequence_file::MAGIC.len() as u64);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    reader.read_exact_at(0, &mut bytes).await.map_err(|error| worded(&error))?;
    reader.seek(0);
    reader.read_until(u64::MAX);
    Ok(match bytes == *sequence_file::MAGIC {
        true => Content::Sequence,
        false => Content::Text(bytes.starts_with(&GZIP).then_some(InputCodec::Gzip)),
    })
}

fn of_ending(status: &FileStatus) -> Result<Content, String> {
    let codec = InputCodecs::default().of_file(&status.path.to_string());
    match codec.map_err(|why| format!("{}: {why}", status.path))? {
        Some(codec) => Ok(Content::Text(Some(codec))),
        None => Err(format!("Cannot find codec for {}", status.path)),
    }
}

/// Prints the rest of a file. The outer error is that of the output.
async fn print_content(
    reader: Box<dyn FileReader>,
    content: Content,
    output: &mut Output<'_, '_>,
) -> anyhow::Result<Result<(), String>> {
    let (pieces, mut printed) = tokio::sync::mpsc::channel(4);
    let (handle, length) = (Handle::current(), reader.length());
    tokio::task::spawn_blocking(move || {
        let file = Blocking { reader, handle };
        let mut file: Box<dyn Read> = match content {
            Content::Text(codec) => input_reader(codec, file),
            Content::Sequence => match SequenceText::new(file, MAX_RECORD_BYTES) {
                Ok(lines) => Box::new(lines),
                Err(error) => {
                    let _ = pieces.blocking_send(Err(std::io::Error::other(error)));
                    return;
                }
            },
        };
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece).map(|read| {
                piece.truncate(read);
                piece
            });
            let is_end = read.as_ref().map_or(true, Vec::is_empty);
            // Without a receiver nobody reads what would follow.
            if pieces.blocking_send(read).is_err() || is_end {
                return;
            }
        }
    });
    while let Some(piece) = printed.recv().await {
        match piece {
            Ok(piece) => {
                if !output.console.print_bytes(&piece)? {
                    break;
                }
            }
            Err(error) => return Ok(Err(format!("{error} (of a file of {length} bytes)"))),
        }
    }
    Ok(Ok(()))
}

/// A file for a thread that may wait.
struct Blocking {
    reader: Box<dyn FileReader>,
    handle: Handle,
}

impl Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.handle.block_on(self.reader.read(buffer)).map_err(std::io::Error::other)
    }
}

/// A line of `-stat`.
fn formed(form: &str, status: &FileStatus) -> String {
    let mut text = String::new();
    let mut letters = form.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let Some(letter) = letters.next() else { break };
        let part = match letter {
            'b' => status.bytes.to_string(),
            'F' if status.is_directory => "directory".to_owned(),
            'F' => "regular file".to_owned(),
            'n' => status.path.name().to_owned(),
            'o' => status.block_bytes.to_string(),
            'r' => status.replication.to_string(),
            'y' => utc(status.modified_ms),
            'Y' => status.modified_ms.to_string(),
            other => other.to_string(),
        };
        text.push_str(&part);
    }
    text
}

fn utc(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona::filesystem::FsPath;

    #[test]
    fn forms_of_stat() {
        let status = FileStatus {
            path: FsPath::parse("hdfs://nn/a/b").unwrap(),
            is_directory: false,
            bytes: 7,
            replication: 3,
            block_bytes: 64,
            modified_ms: 86_400_000,
            accessed_ms: 0,
            permission: 0o644,
            owner: String::new(),
            group: String::new(),
            version: None,
        };
        for (form, expected) in [
            ("%b %n %o %r", "7 b 64 3"),
            ("%y|%Y", "1970-01-02 00:00:00|86400000"),
            ("%F%%%x%", "regular file%x"),
        ] {
            assert_eq!(formed(form, &status), expected, "{form}");
        }
    }
}
