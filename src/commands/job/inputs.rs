//! What a job reads: the files that its inputs name, cut into splits as Hadoop's `FileInputFormat` does.
//! Spec: mapreduce/05 §5.2.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use corona::config::JobConf;
use corona::filesystem::{
    BlockHosts, ErrorKind, FileStatus, FileSystem, FileSystems, FsError, FsPath, Glob, Listing,
    expand,
};
use corona::mapreduce::native::{
    InputCodec, InputCodecs, LINES_OF_A_MAP, MAGIC_BYTES, N_LINE_FORMAT, NativeJob, NotRead,
    SEQUENCE_FORMATS,
};
use corona::model::text::shell_word;
use corona::task::sequence_file;
use serde::Serialize;
use tokio::task::JoinSet;

/// The most files of a job, and of one directory.
const MAX_FILES: usize = 1_000_000;
/// The most splits of a job: what a job tracker takes by default.
const MAX_SPLITS: usize = 500_000;
/// Files whose blocks are looked up at a time.
const LOOK_UPS: usize = 16;
/// Bytes of a file that are read at a time to find its lines.
const PIECE_BYTES: usize = 256 << 10;
/// A last split may be so much larger than the others, in tenths.
const SLOP_TENTHS: u128 = 11;
/// The smallest split of a sequence file, as the original has it.
const LEAST_SEQUENCE_BYTES: u64 = 2000;
/// The file with keys and values of a map file, which is a directory.
const MAP_FILE_DATA: &str = "data";

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
    /// The version of the file, and its length, where files have versions.
    #[serde(skip)]
    pub(super) version: Option<(Arc<str>, u64)>,
}

/// How files of a job are chosen and cut.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// How large splits are.
    size: SplitSize,
    /// How many lines each has, in place of a size.
    lines: Option<u64>,
    /// Whether directories inside the named ones are read.
    is_recursive: bool,
    /// How files may be compressed.
    codecs: InputCodecs,
    /// Whether they are sequence files, whatever the endings of their names are.
    is_sequence: bool,
    /// Whether no task of Java reads them, which would take more of them for text.
    is_native: bool,
}

/// The size of splits.
#[derive(Clone, Copy, Debug)]
enum SplitSize {
    /// So many bytes.
    Bytes(u64),
    /// A block of the file, or less if so many maps are wanted, but not below a size.
    Block { maps: u64, least: u64 },
}

impl SplitSize {
    /// The size of the splits of a file, if all files together have so many bytes.
    fn of(self, total: u64, block: u64) -> u64 {
        let size = match self {
            SplitSize::Bytes(bytes) => bytes,
            SplitSize::Block { maps, least } => least.max(block.min(total / maps.max(1))),
        };
        size.max(1)
    }
}

impl Selection {
    /// As a job says it; with `split_bytes`, splits have that size.
    ///
    /// # Errors
    /// The configuration has a value that cannot be used.
    pub(super) fn of(conf: &JobConf, split_bytes: Option<u64>) -> anyhow::Result<Selection> {
        let number = |key: &str| match conf.get(key).filter(|text| !text.is_empty()) {
            None => Ok(1),
            Some(text) => {
                text.trim().parse::<i64>().map(|number| number.max(0).unsigned_abs()).map_err(
                    |_| anyhow!("{key}: value {text:?} cannot be used; expected a whole number"),
                )
            }
        };
        if let Some(class) = conf.get("mapred.input.pathFilter.class").filter(|c| !c.is_empty()) {
            bail!(
                "mapred.input.pathFilter.class is {class:?}: the files that this class chooses are not \
                 known without Java; name a split file with corona job submit --splits"
            );
        }
        let format = conf.get("mapred.input.format.class").unwrap_or_default();
        let has_lines = format == N_LINE_FORMAT;
        let is_sequence = SEQUENCE_FORMATS.contains(&format.as_str());
        let lines = has_lines.then(|| number(LINES_OF_A_MAP)).transpose()?;
        let (maps, least) = (number("mapred.map.tasks")?, number("mapred.min.split.size")?);
        let least = least.max(if is_sequence { LEAST_SEQUENCE_BYTES } else { 0 });
        Ok(Selection {
            lines,
            size: split_bytes.map_or(SplitSize::Block { maps, least }, SplitSize::Bytes),
            is_recursive: conf.get("mapred.input.dir.recursive").as_deref() == Some("true"),
            codecs: InputCodecs::of(conf)?,
            is_sequence,
            is_native: NativeJob::is_marked(conf),
        })
    }

    /// How a file is compressed as a whole.
    fn codec_of(&self, name: &str) -> Result<Option<InputCodec>, NotRead> {
        if self.is_sequence { Ok(None) } else { self.codecs.of_file(name) }
    }
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
    /// The directories that are named.
    pub(super) directories: Vec<FsPath>,
}

impl Inputs {
    /// Finds the files that these inputs name. A directory or a pattern means its files, except
    /// those whose names begin with `_` or `.`.
    ///
    /// # Errors
    /// An input names nothing, or something that cannot be read as lines: none is left out without a word.
    pub(super) async fn find(
        systems: &FileSystems,
        inputs: &[String],
        selection: &Selection,
    ) -> anyhow::Result<Inputs> {
        let mut named: Vec<(Arc<dyn FileSystem>, FileStatus)> = Vec::new();
        let mut found = Inputs::default();
        for input in inputs {
            let (files, path) = systems.resolve(input)?;
            let matches = matching(&*files, &path).await.map_err(unreachable)?;
            if matches.is_empty() {
                let is_pattern = Glob::is_pattern(path.path());
                bail!(NoSuchInput { input: input.clone(), path, is_pattern });
            }
            for status in matches {
                if !status.is_directory {
                    named.push((files.clone(), status));
                    continue;
                }
                found.directories.push(status.path.clone());
                let mut waiting = vec![status.path];
                while let Some(directory) = waiting.pop() {
                    for entry in not_hidden(&*files, input, &directory).await? {
                        let data = match selection.is_sequence && entry.is_directory {
                            true => files.find(&entry.path.join(MAP_FILE_DATA)).await?,
                            false => None,
                        };
                        let data = data.filter(|data| !data.is_directory);
                        let entry = data.unwrap_or(entry);
                        match entry.is_directory {
                            false => named.push((files.clone(), entry)),
                            true if selection.is_recursive => waiting.push(entry.path),
                            true => bail!(
                                "input {input}: {} is a directory inside; add \
                                 -D mapred.input.dir.recursive=true to read all that is below, or name files \
                                 by a pattern such as '{directory}/*.txt'",
                                entry.path
                            ),
                        }
                    }
                    ensure!(
                        named.len() + waiting.len() <= MAX_FILES,
                        "input {input}: it has more than {MAX_FILES} files"
                    );
                }
            }
        }
        let total = named.iter().fold(0_u64, |sum, (_, file)| sum.saturating_add(file.bytes));
        for (file, blocks) in with_blocks(named, selection).await? {
            let lines = match selection.lines {
                Some(lines) => Some(cut_by_lines(systems, &file.path, lines).await?),
                None => None,
            };
            found.add(&file, &blocks, total, lines, selection)?;
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

    fn add(
        &mut self,
        file: &FileStatus,
        blocks: &[BlockHosts],
        total: u64,
        lines: Option<Vec<(u64, u64)>>,
        selection: &Selection,
    ) -> anyhow::Result<()> {
        let path = file.path.to_string();
        ensure!(
            !path.contains('\\'),
            "input {path}: names with a backslash cannot be read, since Hadoop reads it as a slash; \
             rename the file or leave it out"
        );
        let codec = selection.codec_of(&path).with_context(|| format!("input {path}"))?;
        ensure!(
            selection.is_native || codec.is_none_or(InputCodec::is_of_original),
            "input {path}: tasks of Java would read it as text; set corona.task.native=true"
        );
        ensure!(
            lines.is_none() || codec.is_none(),
            "input {path}: a compressed file cannot be cut by lines; unpack it, or use TextInputFormat"
        );
        self.files += 1;
        self.bytes = self.bytes.saturating_add(file.bytes);
        let size = match codec {
            // A compressed file is read by one map.
            Some(_) => u64::MAX,
            None => selection.size.of(total, file.block_bytes),
        };
        // Any host may have the lines, as in the original.
        let blocks = if lines.is_some() { &[] } else { blocks };
        let version = file.version.as_deref().map(|version| (Arc::from(version), file.bytes));
        for (start, length) in lines.unwrap_or_else(|| cut(file.bytes, size)) {
            ensure!(
                self.splits.len() < MAX_SPLITS,
                "the inputs make more than {MAX_SPLITS} splits; use a larger --split-size"
            );
            let hosts = hosts_of(blocks, start, length);
            let (path, version) = (path.clone(), version.clone());
            self.splits.push(InputSplit { path, start, length, hosts, version });
        }
        Ok(())
    }
}

/// An input that names nothing.
#[derive(Debug)]
pub(super) struct NoSuchInput {
    /// As the user has written it.
    input: String,
    pub(super) path: FsPath,
    pub(super) is_pattern: bool,
}

impl fmt::Display for NoSuchInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSuchInput { input, path, is_pattern } = self;
        let what = match is_pattern {
            true => "no file or directory matches this pattern",
            false => "there is no such file or directory",
        };
        write!(f, "input {input}: {what} ({path})")?;
        match input.contains(',') {
            true => write!(
                f,
                "; several inputs have blanks between them: --input {}",
                input.split(',').map(str::trim).collect::<Vec<_>>().join(" ")
            ),
            false => Ok(()),
        }
    }
}

impl std::error::Error for NoSuchInput {}

/// What to do about a name node that cannot be reached.
fn unreachable(error: FsError) -> anyhow::Error {
    match error.kind {
        ErrorKind::Connection | ErrorKind::NoSuchHost | ErrorKind::TooSlow => anyhow!(
            "input {error}; no name node answers there: check its address, or name a file of this \
             machine without hdfs:"
        ),
        _ => error.into(),
    }
}

/// What an input names: what its pattern matches, else what has its name.
async fn matching(files: &dyn FileSystem, path: &FsPath) -> Result<Vec<FileStatus>, FsError> {
    let mut matches = expand(files, path).await;
    if let Ok(matches) = &mut matches
        && Glob::is_pattern(path.name())
    {
        matches.retain(|status| !is_hidden(status.path.name()));
    }
    let has_none = match &matches {
        Ok(matches) => matches.is_empty(),
        Err(error) => error.kind == ErrorKind::Invalid,
    };
    if has_none
        && Glob::is_pattern(path.path())
        && let Some(named) = files.find(path).await?
    {
        return Ok(vec![named]);
    }
    matches
}

/// What a directory has, but for hidden files.
async fn not_hidden(
    files: &dyn FileSystem,
    input: &str,
    directory: &FsPath,
) -> anyhow::Result<Vec<FileStatus>> {
    let Listing { mut entries, odd } = files.list_all(directory, MAX_FILES).await?;
    if let Some(odd) = odd.iter().find(|odd| !is_hidden(&odd.name)) {
        let error = odd.error("list", directory);
        bail!("input {input}: {error}; rename or remove it, or leave it out by a pattern");
    }
    entries.retain(|entry| !is_hidden(entry.path.name()));
    Ok(entries)
}

/// Whether a file of this name is no input unless it is named, as logs and marks of jobs.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.'])
}

/// The paths in a list with commas between, as Hadoop's `StringUtils` splits it: a backslash precedes a comma
/// that is part of a path, and a backslash that is.
pub(super) fn paths_of(list: &str) -> anyhow::Result<Vec<String>> {
    let (mut paths, mut path) = (Vec::new(), String::new());
    let mut letters = list.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' => paths.push(std::mem::take(&mut path)),
            '\\' => match letters.next() {
                Some(escaped @ (',' | '\\')) => path.push(escaped),
                _ => bail!(
                    "{list:?} is no list of paths: a backslash stands before a comma or a backslash \
                     of a path"
                ),
            },
            letter => path.push(letter),
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
    Ok(paths)
}

/// The list of these paths.
pub(super) fn list_of(paths: &[String]) -> String {
    let escaped = |path: &String| path.replace('\\', r"\\").replace(',', r"\,");
    paths.iter().map(escaped).collect::<Vec<_>>().join(",")
}

/// Why tasks cannot read what has this path, as far as this machine knows: only files of machines are looked at.
/// Pipes and devices, and the open files of this process, have another content for each reader.
fn look(path: &FsPath, codec: Option<InputCodec>, is_sequence: bool) -> Result<(), String> {
    const OWN: [&str; 4] = ["/dev/fd/", "/dev/stdin", "/proc/self/", "/proc/thread-self/"];
    if path.root().is_none_or(|root| root.scheme() != "file") {
        return Ok(());
    }
    let path = path.path();
    // What cannot be looked at has its own error later.
    let is_other = || std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if OWN.iter().any(|own| path.starts_with(own)) || is_other() {
        return Err("is not a regular file; nodes cannot read it".to_owned());
    }
    if codec.is_none() && !is_sequence {
        return Ok(());
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC_BYTES).read_to_end(&mut head));
    if is_sequence && read.is_ok() && !head.starts_with(sequence_file::MAGIC) {
        return Err("is no sequence file, which -inputformat or mapred.input.format.class says it is: it does not \
                    begin with SEQ"
            .to_owned());
    }
    if read.is_err() || codec.is_none_or(|codec| codec.may_begin(&head)) {
        return Ok(());
    }
    let plain = path.rsplit_once('.').map_or(path, |(plain, _)| plain);
    Err(format!(
        "is not compressed as the ending of its name says, which decides how it is read; if it is plain text, rename \
         it: mv {} {}",
        shell_word(path),
        shell_word(plain)
    ))
}

/// Finds the blocks of files, some files at a time.
async fn with_blocks(
    files: Vec<(Arc<dyn FileSystem>, FileStatus)>,
    selection: &Selection,
) -> anyhow::Result<Vec<(FileStatus, Vec<BlockHosts>)>> {
    let mut found = Vec::with_capacity(files.len());
    let mut waiting = JoinSet::new();
    let mut files = files.into_iter().enumerate();
    loop {
        while waiting.len() < LOOK_UPS {
            let Some((number, (system, file))) = files.next() else { break };
            // Those that are not read are refused later.
            let codec = selection.codec_of(file.path.path()).ok().flatten();
            let codec = codec.filter(|codec| selection.is_native || codec.is_of_original());
            let is_sequence = selection.is_sequence;
            waiting.spawn(async move {
                let path = file.path.clone();
                let looked =
                    tokio::task::spawn_blocking(move || look(&path, codec, is_sequence)).await;
                let blocks = match looked.unwrap_or(Ok(())) {
                    Ok(()) => system.blocks(&file.path, file.bytes).await.map_err(Into::into),
                    Err(wrong) => Err(anyhow!("input {} {wrong}", file.path.path())),
                };
                (number, file, blocks)
            });
        }
        let Some(looked) = waiting.join_next().await else { break };
        let (number, file, blocks) = looked.context("a look-up of blocks has ended")?;
        let blocks = blocks?;
        found.push((number, file, blocks));
    }
    found.sort_unstable_by_key(|(number, ..)| *number);
    Ok(found.into_iter().map(|(_, file, blocks)| (file, blocks)).collect())
}

/// Bytes of a split on a rack or a host.
#[derive(Default)]
struct Share<'a> {
    bytes: u64,
    /// The block that was counted last: a rack counts each block once.
    block: Option<u64>,
    hosts: BTreeMap<&'a str, u64>,
}

/// The preferred hosts of a split: those of its block, or, if it has several, as many as the last block
/// has replicas, from the racks and the hosts with most of its bytes.
fn hosts_of(blocks: &[BlockHosts], start: u64, length: u64) -> Vec<String> {
    let end = start.saturating_add(length);
    let overlap = |block: &BlockHosts| {
        let block_end = block.start.saturating_add(block.length);
        block_end.min(end).saturating_sub(block.start.max(start))
    };
    // The blocks are in order and without gaps.
    let first = blocks.partition_point(|block| block.start.saturating_add(block.length) <= start);
    let rest = blocks.get(first..).unwrap_or_default();
    let parts: Vec<&BlockHosts> = rest.iter().take_while(|block| block.start < end).collect();
    if let [block] = parts[..] {
        return block.hosts.iter().map(|host| host.name.clone()).collect();
    }
    let mut racks: BTreeMap<&str, Share<'_>> = BTreeMap::new();
    for block in &parts {
        for host in &block.hosts {
            let rack = racks.entry(&host.rack).or_default();
            if rack.block.replace(block.start) != Some(block.start) {
                rack.bytes += overlap(block);
            }
            *rack.hosts.entry(&host.name).or_default() += overlap(block);
        }
    }
    let mut racks: Vec<Share<'_>> = racks.into_values().collect();
    racks.sort_by_key(|rack| std::cmp::Reverse(rack.bytes));
    let hosts = racks.into_iter().flat_map(|rack| {
        let mut hosts: Vec<(&str, u64)> = rack.hosts.into_iter().collect();
        hosts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        hosts
    });
    let replicas = parts.last().map_or(0, |block| block.hosts.len());
    hosts.take(replicas).map(|(name, _)| name.to_owned()).collect()
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

/// Cuts a file into splits of so many lines, or into one: the first byte and the length of each. A file without lines has
/// none. Spec: `NLineInputFormat`.
async fn cut_by_lines(
    systems: &FileSystems,
    path: &FsPath,
    lines: u64,
) -> anyhow::Result<Vec<(u64, u64)>> {
    let (files, path) = systems.of(path)?;
    let mut reader = files.open(&path).await?;
    let (mut piece, mut ends) = (vec![0; PIECE_BYTES], LineEnds::of(lines));
    loop {
        let read = reader.read(&mut piece).await?;
        if read == 0 {
            return Ok(ends.finish());
        }
        ends.add(piece.get(..read).unwrap_or_default());
        ensure!(
            ends.splits.len() <= MAX_SPLITS,
            "input {path}: it makes more than {MAX_SPLITS} splits; use a larger {LINES_OF_A_MAP}"
        );
    }
}

/// Finds where lines end, by a newline, a carriage return, or both.
struct LineEnds {
    /// Lines of a split; 0 for all.
    of_a_split: u64,
    splits: Vec<(u64, u64)>,
    start: u64,
    at: u64,
    lines: u64,
    /// Whether the last byte was a carriage return, which a newline may follow.
    is_open: bool,
}

impl LineEnds {
    fn of(of_a_split: u64) -> LineEnds {
        LineEnds { of_a_split, splits: Vec::new(), start: 0, at: 0, lines: 0, is_open: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let ends_before = self.is_open && *byte != b'\n';
            if ends_before {
                self.end_line();
            }
            self.is_open = *byte == b'\r';
            self.at += 1;
            if *byte == b'\n' {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.lines += 1;
        if self.lines == self.of_a_split {
            self.end_split();
        }
    }

    fn end_split(&mut self) {
        self.splits.push((self.start, self.at - self.start));
        (self.start, self.lines) = (self.at, 0);
    }

    fn finish(mut self) -> Vec<(u64, u64)> {
        if self.at > self.start {
            self.end_split();
        }
        self.splits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    use corona::filesystem::HostOfBlock;

    /// What is found at these places of this machine.
    fn find(inputs: &[String], selection: &Selection) -> Result<Inputs, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let source = corona::config::ClientSource::default();
        let systems = FileSystems::new(source.load_file_systems().unwrap()).unwrap();
        let found = runtime.block_on(Inputs::find(&systems, inputs, selection));
        found.map_err(|error| format!("{error:#}"))
    }

    /// What a job with these properties selects.
    fn selection(properties: &[(&str, &str)], split_bytes: Option<u64>) -> Selection {
        let source = corona::config::ClientSource::default();
        let mut conf = source.job_conf().unwrap();
        for (name, value) in properties {
            conf.set(name, value);
        }
        Selection::of(&conf, split_bytes).unwrap()
    }

    #[test]
    fn splits_are_as_large_as_the_original_makes_them() {
        let mib = 1 << 20;
        for (properties, total, block, expected) in [
            (&[][..], 1000 * mib, 64 * mib, 64 * mib),
            (&[], 10 * mib, 64 * mib, 10 * mib),
            (&[("mapred.map.tasks", "20")], 1000 * mib, 64 * mib, 50 * mib),
            (&[("mapred.map.tasks", "2")], 1000 * mib, 64 * mib, 64 * mib),
            (&[("mapred.map.tasks", "0")], 1000 * mib, 64 * mib, 64 * mib),
            (&[("mapred.map.tasks", "2000")], 1000, 64 * mib, 1),
            (&[("mapred.min.split.size", "100")], 1000 * mib, 64, 100),
            (&[("mapred.map.tasks", "20"), ("mapred.min.split.size", "600")], 1000, 64, 600),
            (&[("mapred.min.split.size", "-1")], 0, 64, 1),
        ] {
            let size = selection(properties, None).size.of(total, block);
            assert_eq!(size, expected, "{properties:?} {total} {block}");
            assert_eq!(selection(properties, Some(7)).size.of(total, block), 7);
        }
        let source = corona::config::ClientSource::default();
        for (name, value, expected) in [
            ("mapred.min.split.size", "64m", "expected a whole number"),
            ("mapred.input.pathFilter.class", "com.x.Filter", "com.x.Filter"),
            ("io.compression.codecs", "com.x.Codec", "com.x.Codec"),
        ] {
            let mut conf = source.job_conf().unwrap();
            conf.set(name, value);
            let refused = Selection::of(&conf, None).unwrap_err().to_string();
            assert!(refused.starts_with(name) && refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn splits_of_lines_end_where_lines_end() {
        for (text, lines, expected) in [
            (&b""[..], 1, &[][..]),
            (b"a\nbb\n", 1, &[(0, 2), (2, 3)]),
            (b"a\nbb", 1, &[(0, 2), (2, 2)]),
            (b"a\r\nb\rc\r\n", 1, &[(0, 3), (3, 2), (5, 3)]),
            (b"a\r", 1, &[(0, 2)]),
            (b"\n\r\r\n", 1, &[(0, 1), (1, 1), (2, 2)]),
            (b"1\n2\n3\n4\n5\n", 2, &[(0, 4), (4, 4), (8, 2)]),
            (b"1\n2\n", 9, &[(0, 4)]),
            (b"1\n2\n", 0, &[(0, 4)]),
        ] {
            // Whatever the pieces are in which it is read.
            for piece in 1..=text.len().max(1) {
                let mut ends = LineEnds::of(lines);
                text.chunks(piece).for_each(|piece| ends.add(piece));
                assert_eq!(ends.finish(), expected, "{text:?} by {lines}, pieces of {piece}");
            }
        }
        let lines = |properties: &[_]| selection(properties, None).lines;
        let of_lines = ("mapred.input.format.class", N_LINE_FORMAT);
        assert_eq!(lines(&[]), None);
        assert_eq!(lines(&[of_lines]), Some(1));
        assert_eq!(lines(&[of_lines, (LINES_OF_A_MAP, "7")]), Some(7));
    }

    #[test]
    fn sequence_files_are_cut_whatever_their_names_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("maps/part-00000")).unwrap();
        for (name, bytes) in [("a.gz", 5000), ("maps/part-00000/data", 100)] {
            std::fs::write(at(name), [b"SEQ\x06".to_vec(), vec![0; bytes - 4]].concat()).unwrap();
        }
        std::fs::write(at("maps/part-00000/index"), "SEQ").unwrap();
        std::fs::write(at("text"), "a line").unwrap();
        for class in SEQUENCE_FORMATS {
            let format = ("mapred.input.format.class", class);
            let selection = selection(&[format, ("mapred.map.tasks", "100")], None);
            let find = |name: &str| find(&[format!("file:{}", at(name).display())], &selection);
            let splits = find("a.gz").unwrap().splits;
            let lengths: Vec<u64> = splits.iter().map(|split| split.length).collect();
            assert_eq!(lengths, [2000, 2000, 1000]);
            // A directory with a file `data` is a map file.
            let splits = find("maps").unwrap().splits;
            assert_eq!(splits.len(), 1);
            assert!(splits[0].path.ends_with("/maps/part-00000/data"), "{splits:?}");
            let refused = find("text").unwrap_err();
            assert!(refused.contains("/text is no sequence file, which"), "{refused}");
        }
    }

    #[test]
    fn lists_of_paths_have_the_escapes_of_the_original() {
        for (list, paths) in [
            ("", &[][..]),
            ("/a,/b", &["/a", "/b"]),
            (r"/a\,b,/c", &["/a,b", "/c"]),
            (r"/{a\,b}/*", &["/{a,b}/*"]),
            (r"/a\\\,b\\,/c", &[r"/a\,b\", "/c"]),
        ] {
            let found = paths_of(list).unwrap();
            assert_eq!(found, paths, "{list}");
            assert_eq!(list_of(&found), list);
        }
        assert_eq!(paths_of("/a,,/b,").unwrap(), ["/a", "/b"]);
        for wrong in [r"/a\b", r"/a\"] {
            assert!(paths_of(wrong).is_err(), "{wrong}");
        }
    }

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
    fn splits_prefer_the_hosts_with_most_of_their_bytes() {
        let block = |number: u64, hosts: &[(&str, &str)]| BlockHosts {
            start: number * 100,
            length: 100,
            hosts: hosts
                .iter()
                .map(|&(rack, name)| HostOfBlock { rack: rack.to_owned(), name: name.to_owned() })
                .collect(),
        };
        let blocks = [
            block(0, &[("/a", "a1"), ("/b", "b1")]),
            block(1, &[("/a", "a2"), ("/b", "b1")]),
            block(2, &[("/b", "b2"), ("/c", "c1"), ("/c", "c2")]),
        ];
        for (start, length, expected) in [
            (0, 100, &["a1", "b1"][..]),
            (120, 10, &["a2", "b1"]),
            // Both racks have all bytes of it: the one with the lower name, and its host with most.
            (50, 130, &["a2", "a1"]),
            // The rack b has most of it, and of its hosts b1.
            (100, 200, &["b1", "b2", "a2"]),
            (190, 110, &["b2", "b1", "c1"]),
            (0, 0, &[]),
            (300, 5, &[]),
        ] {
            assert_eq!(hosts_of(&blocks, start, length), expected, "{start} {length}");
        }
        assert_eq!(hosts_of(&[], 0, 100), [""; 0]);
    }

    #[test]
    fn inputs_are_files_directories_and_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("sub/below")).unwrap();
        for (name, text) in [
            ("a.txt", &b"12345"[..]),
            ("b.gz", b"\x1f\x8b"),
            ("plain.gz", b"plain"),
            ("empty.gz", b""),
            ("sub/c", b"123"),
            ("sub/_log", b"x"),
            ("_SUCCESS", b""),
            (".a.txt.swp", b"x"),
            ("d.lzo", b"x"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let find = |inputs: &[&str]| {
            let inputs: Vec<String> =
                inputs.iter().map(|name| format!("file:{}", at(name).display())).collect();
            find(&inputs, &selection(&[], Some(2)))
        };
        let none = |input: &str| {
            let path = format!("file:{}", at(input).display());
            format!("input {path}: no file or directory matches this pattern ({path})")
        };
        let found = find(&["a.*", "b.gz"]).unwrap();
        assert_eq!((found.files, found.bytes), (2, 7));
        assert_eq!(find(&["empty.gz"]).unwrap().files, 1);
        let parts: Vec<(u64, u64)> =
            found.splits.iter().map(|split| (split.start, split.length)).collect();
        assert_eq!(parts, [(0, 2), (2, 2), (0, 2), (4, 1)]);
        assert_eq!(find(&["*a*", "[_.]*", "a.txt"]).unwrap_err(), none("[_.]*"));
        assert_eq!(find(&["_SUCCESS", "{a,.a}.*"]).unwrap().files, 2);
        for (input, expected) in [
            ("none*", "no file or directory matches this pattern"),
            ("none", "there is no such file or directory"),
            ("sub", "below is a directory inside; add -D mapred.input.dir.recursive=true"),
            ("a.txt,b.txt", "several inputs have blanks between them: --input file:"),
            ("plain.gz", "rename it: mv '"),
            ("d.lzo", "native tasks do not read files that end in .lzo"),
        ] {
            let refused = find(&[input]).unwrap_err();
            assert!(refused.contains(expected), "{input}: {refused}");
        }
        let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(pipe.unwrap().success());
        let not_read = "is not a regular file; nodes cannot read it";
        for input in ["pipe", "a.txt pi*"] {
            let refused = find(&input.split(' ').collect::<Vec<_>>()).unwrap_err();
            assert_eq!(refused, format!("input {} {not_read}", at("pipe").display()));
        }
        let own = FsPath::parse("file:/dev/stdin").unwrap();
        let other = FsPath::parse("hdfs:/dev/stdin").unwrap();
        assert!(look(&own, None, false).is_err() && look(&other, None, false).is_ok());
        for name in ["[x].txt", "[", r"back\slash"] {
            std::fs::write(at(name), "1").unwrap();
        }
        assert_eq!(find(&["[x].txt", "["]).unwrap().files, 2);
        std::fs::write(at("x.txt"), "22").unwrap();
        assert_eq!(find(&["[x].txt"]).unwrap().bytes, 2);
        assert!(find(&["{"]).unwrap_err().contains("Illegal file pattern"));
        let refused = find(&["back*"]).unwrap_err();
        assert!(refused.contains("names with a backslash cannot be read"), "{refused}");
        std::fs::remove_dir(at("sub/below")).unwrap();
        assert_eq!(find(&["sub"]).unwrap().files, 1);
    }

    /// What a directory has must not be missing in the result because nobody could read it.
    #[test]
    fn no_file_of_a_directory_is_left_out_without_a_word() {
        let find = |input: &std::path::Path, pattern: &str, properties: &[(&str, &str)]| {
            let inputs = [format!("file:{}{pattern}", input.display())];
            find(&inputs, &selection(properties, None)).map(|found| found.files)
        };
        let native = [("corona.task.native", "true")];
        for (name, is_link, expected) in [
            (&b"caf\xe9"[..], false, "caf\\xe9: its name is not UTF-8; rename or remove it"),
            (b"gone", true, "gone: is a link that leads nowhere; rename or remove it"),
            (b"a.zip", false, "native tasks do not read files that end in .zip"),
            (b"a.xz", false, "set corona.task.native=true"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a"), "1").unwrap();
            let odd = dir.path().join(std::ffi::OsStr::from_bytes(name));
            match is_link {
                true => std::os::unix::fs::symlink("/no/such/file", &odd).unwrap(),
                false => std::fs::write(&odd, "1").unwrap(),
            }
            for pattern in ["", "/*"] {
                let refused = find(dir.path(), pattern, &[]).unwrap_err();
                let expected =
                    if pattern.is_empty() { expected } else { expected.split(';').next().unwrap() };
                assert!(refused.contains(expected), "{pattern}: {refused}");
            }
            // Hidden ones do not belong to the input.
            std::fs::rename(&odd, dir.path().join(".hidden")).unwrap();
            assert_eq!(find(dir.path(), "", &[]), Ok(1));
            assert_eq!(find(dir.path(), "/*", &[]), Ok(1));
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("b/c/_temporary")).unwrap();
        for name in ["a", "b/c/d.xz", "b/c/_temporary/e", "b/.f"] {
            std::fs::write(dir.path().join(name), b"\xfd7zXZ\0").unwrap();
        }
        let recursive = ("mapred.input.dir.recursive", "true");
        assert!(find(dir.path(), "", &native).unwrap_err().contains("mapred.input.dir.recursive"));
        assert_eq!(find(dir.path(), "", &[native[0], recursive]), Ok(2));
    }
}
