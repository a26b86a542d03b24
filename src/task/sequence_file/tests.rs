//! Against files that Hadoop 3.3.4 wrote, and against damage of every kind.

use std::io::{self, Read};

use corona_mapreduce::native::{Codec, SequenceCompression};
use proptest::prelude::*;

use super::*;

const TEXT: &str = "org.apache.hadoop.io.Text";
const LONG: &str = "org.apache.hadoop.io.LongWritable";
const MOST: usize = 1 << 20;

macro_rules! golden {
    ($name:literal) => {
        (&include_bytes!(concat!("../golden/sequence/", $name, ".seq"))[..], $name)
    };
}

fn text_of(file: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let lines = SequenceText::new(file, MOST).map_err(|error| error.to_string());
    lines?.read_to_end(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// The records that a split has.
fn of_split(file: &[u8], start: usize, end: usize) -> Result<Vec<Vec<u8>>, SequenceError> {
    let header = Header::read(&mut &file[..])?;
    let from = start.max(header.bytes as usize).min(file.len());
    let (start, end) = (start as u64, end as u64);
    let mut records = SequenceRecords::new(&file[from..], header, start, end, MOST)?;
    let (mut found, mut line) = (Vec::new(), Vec::new());
    while records.advance()? {
        records.put_line(true, &mut line)?;
        found.push(line.clone());
    }
    Ok(found)
}

/// The lines of each file, and the checksum of what Java prints: key, tab, value, newline.
#[test]
fn files_of_java_are_read_as_java_prints_them() {
    for ((file, name), lines, sum) in [
        (golden!("none-text"), 60, 0x7cb5_e4e0),
        (golden!("none-bytes"), 40, 0x90ca_c7b6),
        (golden!("none-numbers"), 40, 0x07c6_07e6),
        (golden!("none-small"), 20, 0xec00_a62d),
        (golden!("record-default"), 60, 0x1ab2_5178),
        (golden!("record-bzip2"), 20, 0xf2a5_8d43),
        (golden!("block-default"), 400, 0xdc3b_f183),
        (golden!("block-bzip2"), 200, 0x4a20_ecb2),
        (golden!("none-double"), 1, 0x1937_33f0),
        (golden!("block-empty"), 0, 0),
    ] {
        let text = text_of(file).unwrap();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), lines, "{name}");
        assert_eq!(crc32fast::hash(&text), sum, "{name}");
        // However it is cut, each record is read once, and in order.
        let all = of_split(file, 0, file.len()).unwrap();
        for size in [1, 7, 100, 1000, 2048] {
            let mut found = Vec::new();
            for start in (0..file.len()).step_by(size) {
                found.extend(of_split(file, start, (start + size).min(file.len())).unwrap());
            }
            assert!(found == all, "{name} in splits of {size}");
        }
    }
}

#[test]
fn bytes_stay_bytes_for_programs() {
    let (file, _) = golden!("none-bytes");
    let header = Header::read(&mut &file[..]).unwrap();
    let rest = &file[header.bytes as usize..];
    let mut records = SequenceRecords::new(rest, header, 0, u64::MAX, MOST).unwrap();
    let mut line = Vec::new();
    for _ in 0..3 {
        assert!(records.advance().unwrap());
    }
    assert_eq!(records.put_line(false, &mut line).unwrap(), 2);
    assert_eq!(line, [62, 69, b'\t', 93, 100, 107]);
    records.put_line(true, &mut line).unwrap();
    assert_eq!(line, b"3e 45\t5d 64 6b");
}

fn written(compression: SequenceCompression, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut file = SequenceFile::new(Vec::new(), LONG, TEXT, compression, [7; MARK_BYTES]).unwrap();
    for (key, value) in records {
        file.append(key, value).unwrap();
    }
    file.finish().unwrap()
}

fn record(number: i64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    crate::vint::put_text(&vec![b'v'; bytes], &mut value);
    (number.to_be_bytes().to_vec(), value)
}

const ALL: [SequenceCompression; 7] = [
    SequenceCompression::None,
    SequenceCompression::Records(Codec::Deflate),
    SequenceCompression::Records(Codec::Gzip),
    SequenceCompression::Records(Codec::Bzip2),
    SequenceCompression::Blocks { codec: Codec::Deflate, bytes: 500 },
    SequenceCompression::Blocks { codec: Codec::Gzip, bytes: 500 },
    SequenceCompression::Blocks { codec: Codec::Bzip2, bytes: 500 },
];

#[test]
fn files_are_read_as_they_were_written() {
    for compression in ALL {
        let records: Vec<_> = (0..300).map(|n| record(n, n as usize % 50)).collect();
        let file = written(compression, &records);
        let expected: Vec<Vec<u8>> =
            (0..300).map(|n| format!("{n}\t{}", "v".repeat(n % 50)).into_bytes()).collect();
        for size in [30, 1000, file.len()] {
            let parts = (0..file.len()).step_by(size);
            let parts = parts.flat_map(|start| of_split(&file, start, start + size).unwrap());
            assert!(parts.eq(expected.iter().cloned()), "{compression:?} {size}");
        }
        let marks = file.windows(MARK_BYTES).filter(|bytes| **bytes == [7; MARK_BYTES]).count();
        assert!(marks > 2, "{compression:?}: {marks}");
    }
}

#[test]
fn large_records_are_left_out_and_reported() {
    for compression in ALL {
        let records = [record(1, 10), record(2, 5000), record(3, 10)];
        let file = written(compression, &records);
        let header = Header::read(&mut &file[..]).unwrap();
        let rest = &file[header.bytes as usize..];
        let mut records = SequenceRecords::new(rest, header, 0, u64::MAX, 2000).unwrap();
        assert!(records.advance().unwrap(), "{compression:?}");
        let error = records.advance().unwrap_err().to_string();
        assert_eq!(error, "a record has more than 2000 bytes (corona.task.max.record.bytes)");
        // No key changes the limit of those that read whole files.
        let mut lines = SequenceText::new(&file[..], 2000).unwrap();
        let error = lines.read_to_end(&mut Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "a record has more than 2000 bytes", "{compression:?}");
        assert!(records.advance().unwrap(), "{compression:?}");
        let mut line = Vec::new();
        records.put_line(true, &mut line).unwrap();
        assert_eq!(line, b"3\tvvvvvvvvvv");
        assert!(!records.advance().unwrap(), "{compression:?}");
    }
}

/// A file with this header of version 6, and these bytes behind it.
fn made(key: &str, value: &str, flags: [u8; 2], codec: Option<&str>, rest: &[u8]) -> Vec<u8> {
    made_of(6, key, value, flags, codec, rest)
}

/// The same of a version. The fifth brought the codec's name, the sixth metadata.
fn made_of(
    version: u8,
    key: &str,
    value: &str,
    flags: [u8; 2],
    codec: Option<&str>,
    rest: &[u8],
) -> Vec<u8> {
    let mut file = [&b"SEQ"[..], &[version]].concat();
    for name in [Some(key), Some(value)].into_iter().flatten() {
        crate::vint::put_text(name.as_bytes(), &mut file);
    }
    file.extend(flags);
    if let Some(codec) = codec {
        crate::vint::put_text(codec.as_bytes(), &mut file);
    }
    if version >= 6 {
        file.extend([0; 4]);
    }
    file.extend([7; MARK_BYTES]);
    file.extend(rest);
    file
}

#[test]
fn earlier_versions_have_a_shorter_header() {
    let records = [record(1, 10), record(2, 3000), record(3, 10)];
    for (compression, flags) in [(ALL[0], [0, 0]), (ALL[1], [1, 0]), (ALL[4], [1, 1])] {
        let latest = written(compression, &records);
        let header = Header::read(&mut &latest[..]).unwrap();
        let rest = &latest[header.bytes as usize..];
        let codec = compression.codec().map(|codec| codec.class());
        for version in [4, 5, 6] {
            let named = codec.filter(|_| version >= 5);
            let file = made_of(version, LONG, TEXT, flags, named, rest);
            assert_eq!(text_of(&file), text_of(&latest), "{version} {compression:?}");
            // Also from a mark in the middle.
            let split = |file: &[u8], before: u64| {
                let start = file.len() - rest.len() + 20;
                of_split(file, start, file.len()).map(|lines| (lines, before)).unwrap()
            };
            assert_eq!(split(&file, 0), split(&latest, 0), "{version} {compression:?}");
        }
    }
}

/// The original takes the bytes of the mark alone for one, which a record may have.
#[test]
fn a_mark_without_its_escape_is_a_part_of_a_record() {
    let mut value = vec![20];
    value.extend([7; MARK_BYTES]);
    value.extend(b"abcd");
    let records: Vec<_> = (0..200).map(|n| (i64::to_be_bytes(n).to_vec(), value.clone())).collect();
    let file = written(ALL[0], &records);
    let all = of_split(&file, 0, file.len()).unwrap();
    assert_eq!(all.len(), 200);
    for size in [1, 50, 333] {
        let starts = (0..file.len()).step_by(size);
        let found = starts.flat_map(|start| of_split(&file, start, start + size).unwrap());
        assert!(found.eq(all.iter().cloned()), "{size}");
    }
}

#[test]
fn a_block_is_bounded_as_a_whole() {
    // Four parts of 6 MB, each of which would fit.
    let part = [vint_of(6_000_000), vec![0; 6_000_000]].concat();
    let codec = "org.apache.hadoop.io.compress.DefaultCodec";
    let rest = [&ESCAPE[..], &[7; MARK_BYTES], &[1], &part.repeat(4)].concat();
    let file = made(TEXT, TEXT, [1, 1], Some(codec), &rest);
    let error = text_of(&file).unwrap_err();
    assert!(error.contains("a compressed block has more than 18874368 bytes"), "{error}");
    let of_task = of_split(&file, 0, file.len()).unwrap_err().to_string();
    assert!(of_task.contains("18874368 bytes: raise corona.task.max.record.bytes"), "{of_task}");
}

fn vint_of(number: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::vint::put(number, &mut bytes);
    bytes
}

#[test]
fn damaged_and_unknown_files_are_refused_in_one_line() {
    let plain = |rest: &[u8]| made(TEXT, TEXT, [0, 0], None, rest);
    let blocks = |rest: &[u8]| {
        let codec = "org.apache.hadoop.io.compress.DefaultCodec";
        made(TEXT, TEXT, [1, 1], Some(codec), &[&ESCAPE[..], &[7; MARK_BYTES], rest].concat())
    };
    let huge = [0x8c, 0x7f, 0xff, 0xff, 0xff];
    let cut = |file: &[u8], bytes: usize| file[..file.len() - bytes].to_vec();
    for (file, expected) in [
        (vec![], "it is no sequence file: it does not begin with SEQ"),
        (b"SE".to_vec(), "it is no sequence file"),
        (b"a line\n".to_vec(), "it is no sequence file"),
        (b"SEQ\x06".to_vec(), "the sequence file ends in the middle of its header"),
        (b"SEQ\x03".to_vec(), "version 3 of sequence files is not read; 4 to 6 are"),
        (b"SEQ\x07".to_vec(), "version 7 of sequence files is not read"),
        ([b"SEQ\x06", &huge[..]].concat(), "a name has 2147483647 bytes"),
        (b"SEQ\x06\xff".to_vec(), "-1 is no length"),
        (made("com.x.Key", TEXT, [0, 0], None, &[]), "its keys are of the class \"com.x.Key\""),
        (made(TEXT, TEXT, [1, 0], Some("com.x.Codec"), &[]), "it is compressed by \"com.x.Codec\""),
        (plain(&[0]), "ends in the middle of a record"),
        (plain(&[0, 0, 0, 2, 0, 0, 0, 1, 0]), "ends in the middle of a record"),
        (plain(&[0, 0, 0, 2, 0, 0, 0, 3]), "a record of 2 bytes has a key of 3"),
        (plain(&[0x80, 0, 0, 0, 0, 0, 0, 3]), "-2147483648 is no length"),
        (plain(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1]), "ends in the middle of a record"),
        (plain(&[0, 0, 0, 2, 0, 0, 0, 1, 9, 0]), "a key is no Text: "),
        (plain(&[0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]), "a value is no Text: "),
        (plain(&[&ESCAPE[..], &[8; MARK_BYTES]].concat()), "a mark is not that of the header"),
        (blocks(&[]), "ends in the middle of a record or block"),
        (blocks(&[1, 3, 1, 2, 3, 0, 0, 0]), "a block cannot be unpacked: "),
        (
            blocks(&[&[1][..], &huge].concat()),
            "a compressed block has more than 18874368 bytes, or the file is damaged",
        ),
        (blocks(&[0xff, 0, 0, 0, 0]), "-1 is no length"),
        (cut(golden!("none-text").0, 1), "ends in the middle of a record"),
        (cut(golden!("block-default").0, 1), "ends in the middle of a record"),
    ] {
        let error = text_of(&file).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
    }
    // A header is not read without end.
    let before_metadata = cut(&plain(&[]), MARK_BYTES + 4);
    let mut endless = io::Cursor::new(before_metadata).chain(io::repeat(0x7f));
    let error = Header::read(&mut endless).unwrap_err().to_string();
    assert!(error.contains("its header has more than 1048576 bytes"), "{error}");
}

#[test]
fn a_small_file_of_huge_content_needs_little_memory() {
    // 64 MiB of zeros in a few kilobytes: a value, and one of a block.
    let zeros = vec![0; 64 << 20];
    for compression in [ALL[1], ALL[4]] {
        let file = written(compression, &[(vec![0; 8], zeros.clone())]);
        assert!(file.len() < 100_000);
        let error = text_of(&file).unwrap_err();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }
}

proptest! {
    /// Whatever a file has, reading ends without a panic.
    #[test]
    fn changed_files_are_read_or_refused(
        which in 0_usize..4,
        changes in prop::collection::vec((0_usize..2000, any::<u8>()), 1..8),
    ) {
        let files = [
            golden!("none-bytes").0,
            golden!("record-default").0,
            golden!("block-default").0,
            golden!("block-bzip2").0,
        ];
        let mut file = files[which].to_vec();
        for (at, byte) in changes {
            if let Some(place) = file.get_mut(at) {
                *place = byte;
            }
        }
        let _ = text_of(&file);
        let _ = of_split(&file, 500, 1500);
    }
}
