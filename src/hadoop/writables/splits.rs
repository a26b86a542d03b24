//! The input of maps: splits, and the file that contains a job's splits. Spec: mapreduce/02 §2.11.

use super::writable;
use crate::io::formats::{Bytes, Format, List, Long, Plain, Text, Utf8, VInt, Writable};
use crate::io::{DecodeError, Reader, Writer};

writable! {
    /// The input of a map, opaque to all but the map: also the whole of a `split.dta` file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Split {
        /// The Java class of the split.
        pub class: String as Text,
        /// The split as that class, or its serialiser, wrote it.
        pub data: Vec<u8> as Bytes,
    }
}

writable! {
    /// A split as it lies in a job's split file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RawSplit: "org.apache.hadoop.mapred.JobClient$RawSplit" {
        /// The Java class of the split.
        pub class: String as Text,
        /// The bytes that the map will read.
        pub length: i64 as Long,
        /// The split as that class, or its serialiser, wrote it.
        pub data: Vec<u8> as Bytes,
        /// The hosts that have those bytes.
        pub hosts: Vec<String> as List<VInt, Text>,
    }
}

writable! {
    /// A piece of a file, for jobs of the old Java interface.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FileSplit: "org.apache.hadoop.mapred.FileSplit" {
        /// The file.
        pub path: String as Utf8,
        /// The first byte.
        pub start: i64 as Long,
        /// How many bytes.
        pub length: i64 as Long,
    }
}

writable! {
    /// The content of a file that a split is of, where that has a name. It follows a [`FileSplit`] for native tasks;
    /// the original has no such thing, and does not read so far.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FileVersion: "corona.FileVersion" {
        /// Names the content.
        pub version: String as Utf8,
        /// Bytes of the whole file.
        pub bytes: i64 as Long,
    }
}

writable! {
    /// A piece of a file, for jobs of the new Java interface.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MapReduceFileSplit: "org.apache.hadoop.mapreduce.lib.input.FileSplit" {
        /// The file.
        pub path: String as Text,
        /// The first byte.
        pub start: i64 as Long,
        /// How many bytes.
        pub length: i64 as Long,
    }
}

/// A job's split file, `job.split`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitFile {
    /// The splits, one for each map.
    pub splits: Vec<RawSplit>,
}

impl SplitFile {
    const MAGIC: &'static [u8] = b"SPL";
    const VERSION: i32 = 0;
}

impl SplitFile {
    /// Reads the header before the splits and returns their number. Errors: also a file with
    /// another header, or one of another version.
    pub fn begin(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
        let magic = reader.take(Self::MAGIC.len())?;
        if magic != Self::MAGIC {
            let value = magic.iter().fold(0, |value, byte| value << 8 | i64::from(*byte));
            return Err(DecodeError::Number { kind: "header of a split file", value });
        }
        match reader.vint()? {
            Self::VERSION => {}
            other => {
                let value = other.into();
                return Err(DecodeError::Number { kind: "version of a split file", value });
            }
        }
        let count = reader.vint()?;
        reader.length(count.into())
    }
}

impl Writable for SplitFile {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = SplitFile::begin(reader)?;
        let splits = (0..count).map(|_| RawSplit::decode(reader)).collect::<Result<_, _>>()?;
        Ok(SplitFile { splits })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.put(Self::MAGIC);
        writer.vint(Self::VERSION);
        List::<VInt, Plain>::encode(&self.splits, writer);
    }
}
