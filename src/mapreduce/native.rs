//! Which jobs native tasks can run, and such a job's mapper, reducer and formats.
//!
//! A native task works like Hadoop Streaming: it passes lines to programs and takes lines from
//! them. A class that only Java can run is refused here by name, before anything starts, so that
//! its job runs in Java. Pure: it reads only the configuration.

use std::fmt;

use corona_config::{JobConf, keys};
use thiserror::Error;

use crate::commands::CommandList;
use crate::streaming_keys::{Fate, STREAMING_KEYS, StreamingKey};

/// Why native tasks cannot run a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotNative {
    /// A class that native tasks do not replace.
    #[error(
        "{key} is {value:?}, which native tasks do not run; nodes with Java do, if the job does not set \
         corona.task.native"
    )]
    Class {
        /// The key that names it.
        key: &'static str,
        /// The class.
        value: String,
    },
    /// A value that its key does not allow.
    #[error("{key}: value {value:?} cannot be used; {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The key's value.
        value: String,
        /// What it should have been.
        expected: String,
    },
    /// Neither a program nor a built-in step is named.
    #[error("the job names no program for its {0}")]
    NoProgram(&'static str),
    /// A built-in step that does not exist.
    #[error(
        "{key}: there is no built-in step {value:?}; there are cat, wc, sort, aggregate, grep TEXT, sh COMMAND, and commands of `corona run`"
    )]
    BuiltIn {
        /// The key.
        key: &'static str,
        /// The key's value.
        value: String,
    },
    /// A built-in step that has no effect there.
    #[error("{key}: the built-in step {value:?} is for mappers alone")]
    MapperAlone {
        /// The key.
        key: &'static str,
        /// The key's value.
        value: String,
    },
    /// A built-in step that maps nothing.
    #[error("{key}: the built-in step {value:?} is for combiners and reducers alone")]
    ReducerAlone {
        /// The key.
        key: &'static str,
        /// The key's value.
        value: String,
    },
    /// Options of a partitioner or a comparator that cannot be read.
    #[error("{key}: {options:?} is not of the form -k pos1[,pos2]")]
    KeyFields {
        /// The key.
        key: &'static str,
        /// The key's value.
        options: String,
    },
}

/// A codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// `DefaultCodec`: a zlib stream.
    Deflate,
    /// `GzipCodec`
    Gzip,
    /// `BZip2Codec`, for the output of a job.
    Bzip2,
}

impl Codec {
    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Codec::Deflate => ".deflate",
            Codec::Gzip => ".gz",
            Codec::Bzip2 => ".bz2",
        }
    }

    /// Its class of Java.
    pub fn class(self) -> &'static str {
        match self {
            Codec::Deflate => DEFAULT_CODEC,
            Codec::Gzip => GZIP_CODEC,
            Codec::Bzip2 => BZIP2_CODEC,
        }
    }

    /// The codec of this class of Java.
    pub fn named(class: &str) -> Option<Codec> {
        [Codec::Deflate, Codec::Gzip, Codec::Bzip2].into_iter().find(|codec| codec.class() == class)
    }

    /// The codec of a class that a key names.
    fn of_class(key: &'static str, class: &str) -> Result<Codec, NotNative> {
        let found = Codec::named(class.trim());
        found
            .filter(|codec| *codec != Codec::Bzip2 || key == OUTPUT_CODEC)
            .ok_or_else(|| NotNative::Class { key, value: class.trim().to_owned() })
    }
}

/// How a file of the input is compressed. Such a file is one split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputCodec {
    /// A zlib stream.
    Deflate,
    /// gzip, of one member or more.
    Gzip,
    /// bzip2, of one stream or more.
    Bzip2,
    /// xz, of one stream or more. The original does not know it.
    Xz,
    /// Zstandard, of one frame or more. The original does not know it.
    Zstd,
}

/// The endings of files that native tasks can read compressed, and the classes of their codecs.
pub const INPUT_CODECS: [(&str, InputCodec, Option<&str>); 5] = [
    (".deflate", InputCodec::Deflate, Some(DEFAULT_CODEC)),
    (".gz", InputCodec::Gzip, Some(GZIP_CODEC)),
    (".bz2", InputCodec::Bzip2, Some(BZIP2_CODEC)),
    (".xz", InputCodec::Xz, None),
    (".zst", InputCodec::Zstd, None),
];
/// The endings of files that native tasks refuse, since they are no text: those of other codecs of the
/// original, and of archives.
pub const REFUSED_ENDINGS: [&str; 9] =
    [".lzo", ".lzo_deflate", ".snappy", ".lzma", ".lzma_deflate", ".lz4", ".zip", ".7z", ".Z"];
/// The classes of other codecs whose endings are among them.
const REFUSED_CODECS: [&str; 6] = [
    "org.apache.hadoop.io.compress.SnappyCodec",
    "org.apache.hadoop.io.compress.LzmaCodec",
    "org.apache.hadoop.io.compress.Lz4Codec",
    "org.apache.hadoop.io.compress.Lz4hcCodec",
    "com.hadoop.compression.lzo.LzoCodec",
    "com.hadoop.compression.lzo.LzopCodec",
];

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotRead {
    /// No native task reads it.
    #[error("native tasks do not read files that end in {0}")]
    Ending(&'static str),
    /// The job says that it is not compressed.
    #[error("io.compression.codecs leaves out the codec of files that end in {0}")]
    LeftOut(&'static str),
}

/// How files of the input of a job may be compressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputCodecs {
    /// Those that the job does not have.
    left_out: Vec<InputCodec>,
}

impl InputCodecs {
    /// Reads the codecs of a job, all of them if it names none.
    ///
    /// # Errors
    /// It names one whose files are not known here.
    pub fn of(conf: &JobConf) -> Result<InputCodecs, NotNative> {
        const KEY: &str = "io.compression.codecs";
        let list = conf.get(KEY).unwrap_or_default();
        let classes: Vec<&str> =
            list.split(',').map(str::trim).filter(|class| !class.is_empty()).collect();
        let is_known = |class: &str| {
            REFUSED_CODECS.contains(&class)
                || INPUT_CODECS.iter().any(|(.., known)| *known == Some(class))
        };
        if let Some(other) = classes.iter().find(|class| !is_known(class)) {
            return Err(NotNative::Class { key: KEY, value: (*other).to_owned() });
        }
        let left_out = INPUT_CODECS.iter().filter(|(.., class)| {
            !classes.is_empty() && class.is_some_and(|class| !classes.contains(&class))
        });
        Ok(InputCodecs { left_out: left_out.map(|(_, codec, _)| *codec).collect() })
    }

    /// The codec of a file, by its name; none if it is not compressed.
    ///
    /// # Errors
    /// It is no text that native tasks can read.
    pub fn of_file(&self, name: &str) -> Result<Option<InputCodec>, NotRead> {
        if let Some(ending) = REFUSED_ENDINGS.into_iter().find(|ending| name.ends_with(ending)) {
            return Err(NotRead::Ending(ending));
        }
        match INPUT_CODECS.into_iter().find(|(ending, ..)| name.ends_with(ending)) {
            Some((ending, codec, _)) if self.left_out.contains(&codec) => {
                Err(NotRead::LeftOut(ending))
            }
            found => Ok(found.map(|(_, codec, _)| codec)),
        }
    }
}

impl InputCodec {
    /// Whether the original reads such files as this program does, not as text.
    pub fn is_of_original(self) -> bool {
        INPUT_CODECS.iter().any(|(_, codec, class)| *codec == self && class.is_some())
    }

    /// Whether a file that begins with these bytes, at least [`MAGIC_BYTES`] if it has them, can be compressed so. An
    /// empty one can.
    pub fn may_begin(self, head: &[u8]) -> bool {
        let begins = |magic: &[u8]| head.iter().zip(magic).all(|(found, due)| found == due);
        match self {
            // Method 8, and a check of the first two bytes.
            InputCodec::Deflate => match *head {
                [first, second, ..] => {
                    first & 0x0f == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31)
                }
                _ => true,
            },
            InputCodec::Gzip => begins(&[0x1f, 0x8b]),
            InputCodec::Bzip2 => begins(b"BZh"),
            InputCodec::Xz => begins(&[0xfd, b'7', b'z', b'X', b'Z', 0]),
            // A frame, or one that is skipped.
            InputCodec::Zstd => {
                begins(&[0x28, 0xb5, 0x2f, 0xfd])
                    || matches!(*head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
            }
        }
    }
}

/// How many bytes of a file show how it is compressed.
pub const MAGIC_BYTES: u64 = 6;

/// A step's effect on records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program, with its arguments as streaming splits them.
    Program(Vec<String>),
    /// Passes records on as they are.
    Cat,
    /// As a mapper, each word with a one; as a combiner or reducer, the sum of a word's numbers.
    Words,
    /// Passes each line on as a key.
    Sort,
    /// Passes on lines that contain this text.
    Grep(String),
    /// As a combiner or reducer, sums up the values of a key as the key says, such as `LongValueSum:word`.
    Aggregate,
    /// Runs the commands of a list, in a job without reduces.
    Commands(CommandList),
}

impl Step {
    /// The built-in step of this name, with its text or command; none if there is none.
    pub fn built_in(text: &str) -> Option<Step> {
        let text = text.trim();
        Some(match text.split_once(' ').unwrap_or((text, "")) {
            ("cat", "") => Step::Cat,
            ("wc", "") => Step::Words,
            ("sort", "") => Step::Sort,
            ("aggregate", "") => Step::Aggregate,
            ("grep", text) if !text.is_empty() => Step::Grep(text.to_owned()),
            ("commands", list) => Step::Commands(serde_json::from_str(&decoded(list)).ok()?),
            ("sh", command) if !command.is_empty() => {
                Step::Program(["sh", "-c", command].map(str::to_owned).into())
            }
            _ => return None,
        })
    }

    /// Whether it can combine the output of maps.
    pub fn combines(&self) -> bool {
        matches!(self, Step::Words | Step::Aggregate | Step::Program(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Program(words) => f.write_str(&words.join(" ")),
            Step::Cat => f.write_str("cat"),
            Step::Words => f.write_str("wc"),
            Step::Sort => f.write_str("sort"),
            Step::Aggregate => f.write_str("aggregate"),
            Step::Grep(text) => write!(f, "grep {text}"),
            Step::Commands(list) => write!(f, "commands {}", list.words.join(" ")),
        }
    }
}

/// A range of a key, as `sort -k` names it. Counted from 1; an end field of 0 is the end of the key, an end
/// character of 0 the end of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// The first field.
    pub begin_field: usize,
    /// The first character.
    pub begin_char: usize,
    /// The last field.
    pub end_field: usize,
    /// The last character.
    pub end_char: usize,
}

/// How keys are distributed to reduces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// By the hash of the key.
    Hash,
    /// By parts of the key.
    KeyFields {
        /// The separator of fields.
        separator: Vec<u8>,
        /// The parts.
        fields: Vec<KeyField>,
    },
}

/// A part of keys that they are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortField {
    /// The part.
    pub field: KeyField,
    /// Whether it is a number.
    pub numeric: bool,
    /// Whether the largest comes first.
    pub reverse: bool,
}

/// The order of the keys that a reduce gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// By the bytes of the key.
    #[default]
    Bytes,
    /// By parts of the key, the first one first.
    Fields {
        /// The separator of fields.
        separator: Vec<u8>,
        /// The parts.
        fields: Vec<SortField>,
    },
}

/// What a map reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// Lines, which have no keys: `TextInputFormat`.
    Lines,
    /// Lines whose keys are their places in the file, some of them for each map: `NLineInputFormat`.
    Placed,
    /// Lines of a key and a value: `KeyValueTextInputFormat`.
    KeyValue {
        /// The byte between them.
        separator: Vec<u8>,
    },
    /// Keys and values of sequence files.
    Sequence {
        /// Whether all become texts as Java's `toString` has them, as in `SequenceFileAsTextInputFormat`; with
        /// `SequenceFileInputFormat` bytes stay bytes.
        as_java: bool,
    },
}

impl InputFormat {
    /// The format of this class; lines if it is another one.
    fn of_class(class: &str, separator: &str) -> InputFormat {
        match class {
            // As in the original, its first byte counts.
            KEY_VALUE_FORMAT => {
                InputFormat::KeyValue { separator: separator.bytes().take(1).collect() }
            }
            N_LINE_FORMAT => InputFormat::Placed,
            SEQUENCE_FORMAT => InputFormat::Sequence { as_java: false },
            SEQUENCE_AS_TEXT_FORMAT => InputFormat::Sequence { as_java: true },
            _ => InputFormat::Lines,
        }
    }
}

/// What the output of a job is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Lines, and how they are compressed.
    Text(Option<Codec>),
    /// Sequence files of texts.
    Sequence(SequenceCompression),
}

/// How a sequence file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCompression {
    /// It is not.
    None,
    /// Each value alone.
    Records(Codec),
    /// Keys and values in blocks.
    Blocks {
        /// By what.
        codec: Codec,
        /// Bytes of a block before they are compressed.
        bytes: usize,
    },
}

impl SequenceCompression {
    /// What compresses it.
    pub fn codec(self) -> Option<Codec> {
        match self {
            SequenceCompression::None => None,
            SequenceCompression::Records(codec) | SequenceCompression::Blocks { codec, .. } => {
                Some(codec)
            }
        }
    }
}

/// Bytes of a block of a sequence file, if a job does not say how many.
pub const SEQUENCE_BLOCK_BYTES: usize = 1_000_000;
/// The most bytes that a job may name: a reader here takes blocks of twice as much.
const MOST_SEQUENCE_BLOCK_BYTES: usize = 64 << 20;

/// How lines of a program become records, and records its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFormat {
    /// Between key and value of a line that it reads.
    pub input_separator: Vec<u8>,
    /// Between the fields of a line that it writes.
    pub output_separator: Vec<u8>,
    /// How many fields of a line are the key.
    pub key_fields: usize,
    /// Whether it gets no keys.
    pub ignores_key: bool,
}

/// A job as native tasks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeJob {
    /// The mapper.
    pub mapper: Step,
    /// The combiner.
    pub combiner: Option<Step>,
    /// The reducer. Without reduces, none runs.
    pub reducer: Step,
    /// How many reduces there are.
    pub reduces: u32,
    /// What maps read.
    pub input_format: InputFormat,
    /// Lines of the mapper.
    pub map_lines: LineFormat,
    /// Lines of the combiner: those of the reducer, if the job does not name the fields of their keys.
    pub combine_lines: LineFormat,
    /// Lines of the reducer.
    pub reduce_lines: LineFormat,
    /// How keys are distributed.
    pub partitioning: Partitioning,
    /// How keys are ordered.
    pub order: KeyOrder,
    /// How outputs of maps are compressed.
    pub map_output_codec: Option<Codec>,
    /// What the output of the job is written as.
    pub output_format: OutputFormat,
    /// Between key and value of the output.
    pub text_separator: Vec<u8>,
    /// Whether a program that ends with another status than 0 fails its task.
    pub exit_status_counts: bool,
    /// The prefix of lines of stderr that are meant for the task.
    pub reporter_prefix: String,
    /// How files of the input may be compressed.
    pub input_codecs: InputCodecs,
    /// Lines of so many bytes or more, their ends included, are left out. None: none are.
    pub line_bytes: Option<usize>,
}

/// The input format whose splits have [`LINES_OF_A_MAP`] lines each.
pub const N_LINE_FORMAT: &str = "org.apache.hadoop.mapred.lib.NLineInputFormat";
/// How many lines these are; one by default.
pub const LINES_OF_A_MAP: &str = "mapred.line.input.format.linespermap";
/// The input formats of sequence files.
pub const SEQUENCE_FORMATS: [&str; 2] = [SEQUENCE_FORMAT, SEQUENCE_AS_TEXT_FORMAT];
const SEQUENCE_FORMAT: &str = "org.apache.hadoop.mapred.SequenceFileInputFormat";
const SEQUENCE_AS_TEXT_FORMAT: &str = "org.apache.hadoop.mapred.SequenceFileAsTextInputFormat";
const SEQUENCE_OUTPUT_FORMAT: &str = "org.apache.hadoop.mapred.SequenceFileOutputFormat";
const KEY_VALUE_FORMAT: &str = "org.apache.hadoop.mapred.KeyValueTextInputFormat";
const KEY_FIELD_COMPARATOR: &str = "org.apache.hadoop.mapred.lib.KeyFieldBasedComparator";
const IDENTITY: &str = "org.apache.hadoop.mapred.lib.IdentityReducer";
const DEFAULT_CODEC: &str = "org.apache.hadoop.io.compress.DefaultCodec";
const GZIP_CODEC: &str = "org.apache.hadoop.io.compress.GzipCodec";
const BZIP2_CODEC: &str = "org.apache.hadoop.io.compress.BZip2Codec";
const OUTPUT_CODEC: &str = "mapred.output.compression.codec";

impl NativeJob {
    /// Reads the configuration of a job.
    ///
    /// # Errors
    /// Native tasks cannot run it; the error has the reason.
    pub fn of(conf: &JobConf) -> Result<NativeJob, NotNative> {
        let reader = ConfReader { conf };
        for key in STREAMING_KEYS {
            reader.check(key)?;
        }
        let reduces = conf.get("mapred.reduce.tasks").and_then(|text| text.trim().parse().ok());
        let reduces = reduces.unwrap_or(1);
        let mapper = reader.mapper()?;
        if reduces > 0 && matches!(mapper, Step::Commands(_)) {
            let (key, value) = ("mapred.reduce.tasks", reduces.to_string());
            let expected = "commands have no reduces; expected 0".to_owned();
            return Err(NotNative::Value { key, value, expected });
        }
        let reducer = if reduces == 0 { Step::Cat } else { reader.reducer()? };
        let (map_lines, reduce_lines) = (reader.lines("map"), reader.lines("reduce"));
        let input_format = reader.input_format();
        let has_no_keys = input_format == InputFormat::Lines;
        Ok(NativeJob {
            combiner: if reduces == 0 { None } else { reader.combiner()? },
            mapper,
            reducer,
            reduces,
            input_format,
            map_lines: LineFormat {
                ignores_key: has_no_keys || map_lines.ignores_key,
                ..map_lines
            },
            combine_lines: LineFormat {
                key_fields: reader.combiner_fields().unwrap_or(reduce_lines.key_fields),
                ..reduce_lines.clone()
            },
            reduce_lines,
            partitioning: reader.partitioning()?,
            order: reader.order()?,
            map_output_codec: reader.codec(
                &keys::JOB_COMPRESS_MAP_OUTPUT,
                "mapred.map.output.compression.codec",
                DEFAULT_CODEC,
            )?,
            output_format: reader.output_format()?,
            text_separator: reader.text("mapred.textoutputformat.separator", "\t").into_bytes(),
            exit_status_counts: reader.text("stream.non.zero.exit.is.failure", "true") != "false",
            reporter_prefix: reader.text("stream.stderr.reporter.prefix", "reporter:"),
            input_codecs: InputCodecs::of(conf)?,
            line_bytes: conf
                .get("mapred.linerecordreader.maxlength")
                .and_then(|bytes| bytes.trim().parse().ok()),
        })
    }

    /// Whether a job asks for native tasks itself.
    pub fn is_marked(conf: &JobConf) -> bool {
        conf.is_true(&keys::JOB_NATIVE)
    }
}

struct ConfReader<'a> {
    conf: &'a JobConf,
}

impl ConfReader<'_> {
    fn text(&self, key: &str, default: &str) -> String {
        self.conf.get(key).filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    }

    /// Checks that native tasks can heed the value of a key.
    fn check(&self, key: &'static StreamingKey) -> Result<(), NotNative> {
        match key.fate {
            Fate::Only(allowed) => self.only(key.name, allowed),
            Fate::Heeded(form) => {
                let value = self.conf.get(key.name).filter(|value| !value.is_empty());
                let Some(value) = value else { return Ok(()) };
                match form.wrong(key.name, &value) {
                    Some(expected) => Err(NotNative::Value { key: key.name, value, expected }),
                    None => Ok(()),
                }
            }
            Fate::By(_) | Fate::Meaningless => Ok(()),
        }
    }

    fn only(&self, key: &'static str, allowed: &[&str]) -> Result<(), NotNative> {
        match self.conf.get(key).filter(|value| !value.is_empty()) {
            Some(value) if !allowed.contains(&value.trim()) => Err(NotNative::Class { key, value }),
            _ => Ok(()),
        }
    }

    fn input_format(&self) -> InputFormat {
        let separator = self.text("key.value.separator.in.input.line", "\t");
        InputFormat::of_class(self.text("mapred.input.format.class", "").trim(), &separator)
    }

    fn output_format(&self) -> Result<OutputFormat, NotNative> {
        let is_named = self.conf.get(OUTPUT_CODEC).is_some();
        let codec = |default| self.codec(&keys::JOB_COMPRESS_OUTPUT, OUTPUT_CODEC, default);
        if self.text("mapred.output.format.class", "").trim() != SEQUENCE_OUTPUT_FORMAT {
            let default = if is_named { DEFAULT_CODEC } else { GZIP_CODEC };
            return codec(default).map(OutputFormat::Text);
        }
        let Some(codec) = codec(DEFAULT_CODEC)? else {
            return Ok(OutputFormat::Sequence(SequenceCompression::None));
        };
        let key = "mapred.output.compression.type";
        Ok(OutputFormat::Sequence(match self.text(key, "RECORD").trim() {
            "NONE" => SequenceCompression::None,
            "BLOCK" => SequenceCompression::Blocks { codec, bytes: self.sequence_block_bytes()? },
            _ => SequenceCompression::Records(codec),
        }))
    }

    fn sequence_block_bytes(&self) -> Result<usize, NotNative> {
        let key = "io.seqfile.compress.blocksize";
        let Some(value) = self.conf.get(key) else { return Ok(SEQUENCE_BLOCK_BYTES) };
        let bytes = value.trim().parse().ok();
        let expected = || format!("expected a whole number from 1 to {MOST_SEQUENCE_BLOCK_BYTES}");
        bytes
            .filter(|bytes| (1..=MOST_SEQUENCE_BLOCK_BYTES).contains(bytes))
            .ok_or_else(|| NotNative::Value { key, value, expected: expected() })
    }

    fn mapper(&self) -> Result<Step, NotNative> {
        if let Some(step) = self.built_in(&keys::JOB_MAPPER)? {
            return match step {
                Step::Aggregate => {
                    let value = step.to_string();
                    Err(NotNative::ReducerAlone { key: keys::JOB_MAPPER.name, value })
                }
                step => Ok(step),
            };
        }
        self.only("mapred.map.runner.class", &["org.apache.hadoop.streaming.PipeMapRunner"])?;
        let class = self.text("mapred.mapper.class", "");
        match class.trim() {
            "org.apache.hadoop.streaming.PipeMapper" => {
                self.program("stream.map.streamprocessor").ok_or(NotNative::NoProgram("mapper"))
            }
            // The original's default passes on the place of a line as the key.
            "" => Err(NotNative::NoProgram("mapper")),
            _ => Err(NotNative::Class { key: "mapred.mapper.class", value: class }),
        }
    }

    fn combiner(&self) -> Result<Option<Step>, NotNative> {
        if let Some(step) = self.built_in(&keys::JOB_COMBINER)? {
            if step.combines() {
                return Ok(Some(step));
            }
            let value = step.to_string();
            return Err(NotNative::MapperAlone { key: keys::JOB_COMBINER.name, value });
        }
        let class = self.text("mapred.combiner.class", "");
        match class.trim() {
            "" => Ok(None),
            "org.apache.hadoop.streaming.PipeCombiner" => {
                let program = self.program("stream.combine.streamprocessor");
                program.map(Some).ok_or(NotNative::NoProgram("combiner"))
            }
            _ => Err(NotNative::Class { key: "mapred.combiner.class", value: class }),
        }
    }

    fn reducer(&self) -> Result<Step, NotNative> {
        if let Some(step) = self.built_in(&keys::JOB_REDUCER)? {
            if matches!(step, Step::Grep(_) | Step::Commands(_)) {
                let value = step.to_string();
                return Err(NotNative::MapperAlone { key: keys::JOB_REDUCER.name, value });
            }
            return Ok(step);
        }
        let class = self.text("mapred.reducer.class", IDENTITY);
        match class.trim() {
            IDENTITY => Ok(Step::Cat),
            "org.apache.hadoop.streaming.PipeReducer" => {
                // Without a program the original passes records on.
                Ok(self.program("stream.reduce.streamprocessor").unwrap_or(Step::Cat))
            }
            _ => Err(NotNative::Class { key: "mapred.reducer.class", value: class }),
        }
    }

    fn built_in(&self, key: &keys::Key) -> Result<Option<Step>, NotNative> {
        let Some(value) = self.conf.text_if_set(key) else { return Ok(None) };
        match Step::built_in(&value) {
            Some(step) => Ok(Some(step)),
            None => Err(NotNative::BuiltIn { key: key.name, value }),
        }
    }

    /// The words of a program. None without one.
    fn program(&self, key: &str) -> Option<Step> {
        let command = decoded(&self.conf.get(key)?);
        let words = words(&command);
        (!words.is_empty() && command != "NONE").then_some(Step::Program(words))
    }

    fn lines(&self, side: &str) -> LineFormat {
        let separator = |key: String| self.text(&key, "\t").into_bytes();
        let fields = self.conf.get(&format!("stream.num.{side}.output.key.fields"));
        let ignores_key = self.text(&format!("stream.{side}.input.ignoreKey"), "false") == "true";
        LineFormat {
            input_separator: separator(format!("stream.{side}.input.field.separator")),
            output_separator: separator(format!("stream.{side}.output.field.separator")),
            key_fields: fields.and_then(|text| text.trim().parse().ok()).unwrap_or(1),
            ignores_key,
        }
    }

    fn combiner_fields(&self) -> Option<usize> {
        let fields = self.conf.number(&keys::JOB_COMBINER_FIELDS)?;
        usize::try_from(fields).ok().filter(|fields| *fields > 0)
    }

    fn partitioning(&self) -> Result<Partitioning, NotNative> {
        let class = self.text("mapred.partitioner.class", "");
        match class.trim() {
            "" | "org.apache.hadoop.mapred.lib.HashPartitioner" => Ok(Partitioning::Hash),
            "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner" => {
                let count = self.conf.get("num.key.fields.for.partition");
                let fields = match count {
                    Some(count) => key_fields_of_count(count.trim().parse().unwrap_or(0)),
                    None => {
                        let options = self.key_options("mapred.text.key.partitioner.options")?;
                        options.into_iter().map(|sorted| sorted.field).collect()
                    }
                };
                Ok(Partitioning::KeyFields { separator: self.key_separator(), fields })
            }
            _ => Err(NotNative::Class { key: "mapred.partitioner.class", value: class }),
        }
    }

    fn order(&self) -> Result<KeyOrder, NotNative> {
        let class = self.text("mapred.output.key.comparator.class", "");
        if class.trim() != KEY_FIELD_COMPARATOR {
            return Ok(KeyOrder::Bytes);
        }
        let fields = self.key_options("mapred.text.key.comparator.options")?;
        if fields.is_empty() {
            return Ok(KeyOrder::Bytes);
        }
        Ok(KeyOrder::Fields { separator: self.key_separator(), fields })
    }

    fn key_options(&self, key: &'static str) -> Result<Vec<SortField>, NotNative> {
        let options = self.text(key, "");
        key_fields(&options).ok_or(NotNative::KeyFields { key, options })
    }

    fn key_separator(&self) -> Vec<u8> {
        self.text("map.output.key.field.separator", "\t").into_bytes()
    }

    fn codec(
        &self,
        switch: &keys::Key,
        key: &'static str,
        default: &str,
    ) -> Result<Option<Codec>, NotNative> {
        if !self.conf.is_true(switch) {
            return Ok(None);
        }
        Codec::of_class(key, &self.text(key, default)).map(Some)
    }
}

fn key_fields_of_count(count: usize) -> Vec<KeyField> {
    let whole = KeyField { begin_field: 1, begin_char: 1, end_field: count, end_char: 0 };
    if count >= 1 { vec![whole] } else { Vec::new() }
}

/// The whole key.
const WHOLE: KeyField = KeyField { begin_field: 1, begin_char: 1, end_field: 0, end_char: 0 };

/// The parts of a key that options name, such as `-k1,2 -k3.1,3.4nr`. `-n`, `-r` and `-nr` are for parts
/// that name no order. None: they cannot be read.
fn key_fields(options: &str) -> Option<Vec<SortField>> {
    let mut all = SortField { field: WHOLE, numeric: false, reverse: false };
    let mut fields = Vec::new();
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        match (word, word.strip_prefix("-k")) {
            ("-n", _) => all.numeric = true,
            ("-r", _) => all.reverse = true,
            ("-nr", _) => (all.numeric, all.reverse) = (true, true),
            // Without a part the original leaves it out.
            (_, Some("")) => match words.next() {
                Some(text) => fields.push(SortField::parse(text)?),
                None => break,
            },
            (_, Some(text)) => fields.push(SortField::parse(text)?),
            _ => {}
        }
    }
    for field in fields.iter_mut().filter(|field| !field.numeric && !field.reverse) {
        (field.numeric, field.reverse) = (all.numeric, all.reverse);
    }
    if fields.is_empty() && !options.is_empty() {
        fields.push(all);
    }
    Some(fields)
}

impl SortField {
    /// Reads a part of a key as `sort -k` names it, `field[.char][nr][,field[.char][nr]]`, such as
    /// `2,2nr`; none if it is not of that form.
    pub fn parse(text: &str) -> Option<SortField> {
        let position = |text: &str, char_default: usize| {
            let numbers = text.trim_end_matches(['n', 'r']);
            let orders = text.get(numbers.len()..).unwrap_or_default();
            let (field, char) = match numbers.split_once('.') {
                None => (numbers.parse().ok()?, char_default),
                Some((field, char)) => (field.parse().ok()?, char.parse().ok()?),
            };
            Some((field, char, orders.contains('n'), orders.contains('r')))
        };
        let (begin, end) = match text.split_once(',') {
            None => (text, None),
            Some((begin, end)) => (begin, Some(end)),
        };
        let (begin_field, begin_char, n1, r1): (usize, usize, bool, bool) = position(begin, 1)?;
        let (end_field, end_char, n2, r2) =
            end.map_or(Some((0, 0, false, false)), |end| position(end, 0))?;
        let field = KeyField { begin_field, begin_char, end_field, end_char };
        let is_right = begin_field >= 1 && begin_char >= 1;
        is_right.then_some(SortField { field, numeric: n1 || n2, reverse: r1 || r2 })
    }
}

/// A text as Java's `URLEncoder` writes it.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => encoded.push('+'),
            b'-' | b'_' | b'.' | b'*' => encoded.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The result of Java's `URLDecoder` for a text. An invalid escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        let escape = behind.first_chunk::<2>().filter(|_| *byte == b'%');
        let escape = escape.and_then(|digits| std::str::from_utf8(digits).ok());
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of a command as streaming splits them: at blanks, with quotes around blanks.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for character in command.chars() {
        let is_end = match (quote, character) {
            (None, '\'' | '"') => {
                quote = Some(character);
                true
            }
            (Some(open), close) if open == close => {
                quote = None;
                true
            }
            (None, ' ') => true,
            _ => false,
        };
        match is_end {
            false => word.push(character),
            true if !word.is_empty() => words.push(std::mem::take(&mut word)),
            true => {}
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use corona_config::Source;

    const STREAMING: &[(&str, &str)] = &[
        ("mapred.mapper.class", "org.apache.hadoop.streaming.PipeMapper"),
        ("mapred.map.runner.class", "org.apache.hadoop.streaming.PipeMapRunner"),
        ("mapred.reducer.class", "org.apache.hadoop.streaming.PipeReducer"),
        ("mapred.input.format.class", "org.apache.hadoop.mapred.TextInputFormat"),
        ("mapred.output.format.class", "org.apache.hadoop.mapred.TextOutputFormat"),
        ("mapred.output.key.class", "org.apache.hadoop.io.Text"),
        ("mapred.output.value.class", "org.apache.hadoop.io.Text"),
        ("stream.map.streamprocessor", "sed+-e+%27s%2Fa+b%2Fc%2F%27"),
        ("stream.reduce.streamprocessor", "uniq+-c"),
    ];

    fn conf(properties: &[(&str, &str)]) -> JobConf {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        std::fs::write(&path, "<configuration/>").unwrap();
        let mut conf =
            JobConf::read(&Source::default().load_task_tracker().unwrap().site, &path).unwrap();
        for (name, value) in properties {
            conf.set(name, value);
        }
        conf
    }

    /// A streaming job with these changes.
    pub(crate) fn with(changes: &[(&str, &str)]) -> Result<NativeJob, NotNative> {
        NativeJob::of(&conf(&[STREAMING, changes].concat()))
    }

    #[test]
    fn a_streaming_job_is_read_as_its_client_wrote_it() {
        let job = with(&[("mapred.reduce.tasks", "3")]).unwrap();
        let words = |words: &[&str]| Step::Program(words.iter().map(|&w| w.to_owned()).collect());
        assert_eq!(job.mapper, words(&["sed", "-e", "s/a b/c/"]));
        assert_eq!(job.reducer, words(&["uniq", "-c"]));
        assert_eq!((job.combiner, job.reduces), (None, 3));
        assert_eq!((job.map_output_codec, job.output_format), (None, OutputFormat::Text(None)));
        assert_eq!(job.map_lines.output_separator, b"\t");
        assert!(job.map_lines.ignores_key && !job.reduce_lines.ignores_key);
    }

    #[test]
    fn jobs_that_need_java_are_refused_by_name() {
        for (key, value) in [
            ("mapred.mapper.class", "com.x.Mapper"),
            ("mapred.reducer.class", "com.x.Reducer"),
            ("mapred.combiner.class", "com.x.Combiner"),
            ("mapred.partitioner.class", "com.x.Partitioner"),
            (
                "mapred.input.format.class",
                "org.apache.hadoop.mapred.SequenceFileAsBinaryInputFormat",
            ),
            ("mapred.output.key.comparator.class", "com.x.Comparator"),
            ("mapred.mapoutput.key.class", "org.apache.hadoop.io.LongWritable"),
            ("mapred.mapper.new-api", "true"),
            ("mapred.text.key.partitioner.options", "-kx"),
            ("corona.task.mapper", "awk"),
            ("corona.task.mapper", "aggregate"),
            ("corona.task.combiner", "grep x"),
            ("corona.task.reducer", "grep x"),
        ] {
            let fields = (
                "mapred.partitioner.class",
                "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner",
            );
            let refused = with(&[fields, (key, value)]).unwrap_err().to_string();
            assert!(refused.contains(key), "{key}: {refused}");
        }
        let compressed = [
            ("mapred.compress.map.output", "true"),
            ("mapred.map.output.compression.codec", "com.hadoop.compression.lzo.LzoCodec"),
        ];
        assert!(with(&compressed).unwrap_err().to_string().contains("LzoCodec"));
        assert_eq!(NativeJob::of(&conf(&[])), Err(NotNative::NoProgram("mapper")));
    }

    #[test]
    fn built_in_steps_and_codecs() {
        let job = with(&[
            ("corona.task.mapper", "grep a b"),
            ("corona.task.combiner", "wc"),
            ("corona.task.reducer", "sort"),
            ("mapred.compress.map.output", "true"),
            ("mapred.output.compress", "true"),
        ]);
        let job = job.unwrap();
        assert_eq!(job.mapper, Step::Grep("a b".to_owned()));
        assert_eq!((job.combiner, job.reducer), (Some(Step::Words), Step::Sort));
        assert_eq!(job.map_output_codec, Some(Codec::Deflate));
        assert_eq!(job.output_format, OutputFormat::Text(Some(Codec::Gzip)));
    }

    #[test]
    fn commands_of_a_list_have_no_reduces() {
        let list = CommandList { words: vec!["echo".into(), "${x}".into()], ..Default::default() };
        let text = format!("commands {}", encoded(&serde_json::to_string(&list).unwrap()));
        let mapper = ("corona.task.mapper", text.as_str());
        let job = with(&[mapper, ("mapred.reduce.tasks", "0")]).unwrap();
        assert_eq!(job.mapper, Step::Commands(list));
        let refused = with(&[mapper]).unwrap_err().to_string();
        assert!(refused.contains("commands have no reduces"), "{refused}");
        assert!(with(&[("corona.task.mapper", "commands x")]).is_err());
    }

    #[test]
    fn the_input_has_keys_where_its_format_has_them() {
        let format = ("mapred.input.format.class", KEY_VALUE_FORMAT);
        let job = with(&[]).unwrap();
        assert_eq!((job.input_format, job.map_lines.ignores_key), (InputFormat::Lines, true));
        let job = with(&[format, ("key.value.separator.in.input.line", ",;")]).unwrap();
        let expected = InputFormat::KeyValue { separator: b",".to_vec() };
        assert_eq!((job.input_format, job.map_lines.ignores_key), (expected, false));
        let job = with(&[format, ("stream.map.input.ignoreKey", "true")]).unwrap();
        assert!(job.map_lines.ignores_key);
    }

    #[test]
    fn files_are_read_by_their_endings() {
        let codecs = |list: &str| InputCodecs::of(&conf(&[("io.compression.codecs", list)]));
        let all = codecs("").unwrap();
        for (name, codec) in [
            ("/a/b.gz", Ok(Some(InputCodec::Gzip))),
            ("/a/b.deflate", Ok(Some(InputCodec::Deflate))),
            ("/a/b.bz2", Ok(Some(InputCodec::Bzip2))),
            ("/a/b.xz", Ok(Some(InputCodec::Xz))),
            ("/a/b.zst", Ok(Some(InputCodec::Zstd))),
            ("/a/b.txt", Ok(None)),
            ("/a/b.lzo", Err(NotRead::Ending(".lzo"))),
            ("/a/b.zip", Err(NotRead::Ending(".zip"))),
        ] {
            assert_eq!(all.of_file(name), codec, "{name}");
        }
        let own: Vec<bool> = INPUT_CODECS.iter().map(|(_, c, _)| c.is_of_original()).collect();
        assert_eq!(own, [true, true, true, false, false]);
        // The default of the original's sites.
        let site = [DEFAULT_CODEC, GZIP_CODEC, BZIP2_CODEC, REFUSED_CODECS[0]].join(",");
        assert_eq!(codecs(&site), Ok(all));
        let few = codecs(&format!("{DEFAULT_CODEC}, {BZIP2_CODEC}")).unwrap();
        assert_eq!(few.of_file("a.bz2"), Ok(Some(InputCodec::Bzip2)));
        for (codec, head) in [
            (InputCodec::Deflate, &[0x78, 0x9c][..]),
            (InputCodec::Gzip, &[0x1f, 0x8b, 8]),
            (InputCodec::Bzip2, b"BZh9"),
            (InputCodec::Xz, b"\xfd7zXZ\0"),
            (InputCodec::Zstd, b"\x28\xb5\x2f\xfd\0"),
            (InputCodec::Zstd, b"\x51\x2a\x4d\x18\0"),
        ] {
            assert!(codec.may_begin(head) && codec.may_begin(b""), "{codec:?}");
            assert!(!codec.may_begin(b"a line"), "{codec:?}");
        }
        assert_eq!(few.of_file("a.gz"), Err(NotRead::LeftOut(".gz")));
        let refused = with(&[("io.compression.codecs", "com.x.Codec")]).unwrap_err().to_string();
        assert!(refused.starts_with("io.compression.codecs is \"com.x.Codec\""), "{refused}");
    }

    #[test]
    fn sequence_files_are_compressed_as_the_job_says() {
        let format = ("mapred.output.format.class", SEQUENCE_OUTPUT_FORMAT);
        let compressed = ("mapred.output.compress", "true");
        let blocks = ("mapred.output.compression.type", "BLOCK");
        let of = |changes: &[(&str, &str)]| match with(&[&[format], changes].concat()).unwrap() {
            NativeJob { output_format: OutputFormat::Sequence(compression), .. } => compression,
            job => panic!("{job:?}"),
        };
        let codec = Codec::Deflate;
        assert_eq!(of(&[]), SequenceCompression::None);
        assert_eq!(of(&[blocks]), SequenceCompression::None);
        assert_eq!(of(&[compressed]), SequenceCompression::Records(codec));
        let default = SequenceCompression::Blocks { codec, bytes: SEQUENCE_BLOCK_BYTES };
        assert_eq!(of(&[compressed, blocks]), default);
        let (codec, small) = ((OUTPUT_CODEC, GZIP_CODEC), ("io.seqfile.compress.blocksize", "7"));
        let expected = SequenceCompression::Blocks { codec: Codec::Gzip, bytes: 7 };
        assert_eq!(of(&[compressed, blocks, codec, small]), expected);
        let none = ("mapred.output.compression.type", "NONE");
        assert_eq!(of(&[compressed, none]), SequenceCompression::None);
        // The size of blocks is that of a site, which does not concern jobs without them.
        for wrong in ["0", "-1", "many", "1.5", "67108865"] {
            let size = ("io.seqfile.compress.blocksize", wrong);
            assert_eq!(of(&[compressed, size]), SequenceCompression::Records(Codec::Deflate));
            with(&[size]).unwrap();
            let refused = with(&[format, compressed, blocks, size]).unwrap_err().to_string();
            assert!(refused.contains(wrong) && refused.contains("from 1 to 67108864"), "{refused}");
        }
        let largest = ("io.seqfile.compress.blocksize", " 67108864");
        let expected = SequenceCompression::Blocks { codec: Codec::Deflate, bytes: 64 << 20 };
        assert_eq!(of(&[compressed, blocks, largest]), expected);
        let [own, as_text] = SEQUENCE_FORMATS.map(|class| {
            let job = with(&[("mapred.input.format.class", class)]).unwrap();
            assert!(!job.map_lines.ignores_key);
            job.input_format
        });
        assert_eq!(own, InputFormat::Sequence { as_java: false });
        assert_eq!(as_text, InputFormat::Sequence { as_java: true });
    }

    #[test]
    fn bzip2_compresses_output_alone() {
        let output = [("mapred.output.compress", "true"), (OUTPUT_CODEC, BZIP2_CODEC)];
        assert_eq!(with(&output).unwrap().output_format, OutputFormat::Text(Some(Codec::Bzip2)));
        let maps = ("mapred.map.output.compression.codec", BZIP2_CODEC);
        assert!(with(&[("mapred.compress.map.output", "true"), maps]).is_err());
    }

    #[test]
    fn a_combiner_may_have_keys_of_more_fields_than_the_reducer() {
        let fields = |changes: &[(&str, &str)]| {
            let job = with(changes).unwrap();
            (job.combine_lines.key_fields, job.reduce_lines.key_fields)
        };
        let reducer = ("stream.num.reduce.output.key.fields", "3");
        assert_eq!(fields(&[]), (1, 1));
        // The original splits the lines of both with one number.
        assert_eq!(fields(&[reducer, ("stream.num.map.output.key.fields", "2")]), (3, 3));
        assert_eq!(fields(&[("corona.task.combiner.key.fields", "2")]), (2, 1));
        assert_eq!(fields(&[reducer, ("corona.task.combiner.key.fields", "0")]), (3, 3));
    }

    #[test]
    fn options_of_partitioner_and_comparator() {
        let field = |begin_field, begin_char, end_field, end_char| KeyField {
            begin_field,
            begin_char,
            end_field,
            end_char,
        };
        for (options, expected) in [
            ("", Some(vec![])),
            ("-n", Some(vec![(WHOLE, true, false)])),
            ("-nr", Some(vec![(WHOLE, true, true)])),
            ("-x", Some(vec![(WHOLE, false, false)])),
            ("-k", Some(vec![(WHOLE, false, false)])),
            ("-k2", Some(vec![(field(2, 1, 0, 0), false, false)])),
            (
                "-k 1,2nr -k3.2,3.4",
                Some(vec![(field(1, 1, 2, 0), true, true), (field(3, 2, 3, 4), false, false)]),
            ),
            ("-k1n -r -k2", Some(vec![(WHOLE, true, false), (field(2, 1, 0, 0), false, true)])),
            ("-k1r,1n", Some(vec![(field(1, 1, 1, 0), true, true)])),
            ("-k0,1", None),
            ("-k1,x", None),
            ("-k1x", None),
        ] {
            let found = key_fields(options).map(|found| {
                let parts = found.iter().map(|part| (part.field, part.numeric, part.reverse));
                parts.collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{options}");
        }
    }

    #[test]
    fn keys_are_ordered_as_the_comparator_of_streaming_jobs_says() {
        let comparator = ("mapred.output.key.comparator.class", KEY_FIELD_COMPARATOR);
        assert_eq!(with(&[]).unwrap().order, KeyOrder::Bytes);
        assert_eq!(with(&[comparator]).unwrap().order, KeyOrder::Bytes);
        let options = ("mapred.text.key.comparator.options", "-k2nr");
        let separator = ("map.output.key.field.separator", ".");
        let field = KeyField { begin_field: 2, begin_char: 1, end_field: 0, end_char: 0 };
        let order = with(&[comparator, options, separator]).unwrap().order;
        assert_eq!(
            order,
            KeyOrder::Fields {
                separator: b".".to_vec(),
                fields: vec![SortField { field, numeric: true, reverse: true }],
            }
        );
        // Without the comparator, its options have no effect.
        assert_eq!(with(&[options]).unwrap().order, KeyOrder::Bytes);
        let wrong = ("mapred.text.key.comparator.options", "-kx");
        let refused = with(&[comparator, wrong]).unwrap_err().to_string();
        assert!(refused.starts_with("mapred.text.key.comparator.options: \"-kx\""), "{refused}");
    }

    #[test]
    fn commands_are_split_as_streaming_does() {
        for (command, expected) in [
            ("cat", &["cat"][..]),
            ("  a  b ", &["a", "b"]),
            ("sh -c 'a \"b\" c'", &["sh", "-c", "a \"b\" c"]),
            ("a\"b c\"d", &["a", "b c", "d"]),
            ("", &[]),
        ] {
            assert_eq!(words(command), expected, "{command}");
        }
        assert_eq!(decoded("a+b%2Bc%zz%"), "a b+c%zz%");
        let text = "${x} {\"words\":[\"ä\"]} a+b%*-_.";
        assert_eq!(decoded(&encoded(text)), text);
        assert!(!encoded(text).contains(['$', '{', ' ']));
    }
}
