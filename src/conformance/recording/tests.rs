//! The format: its bytes, the entries that survive damage, and that no input makes the reader
//! misbehave.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use flate2::write::GzEncoder;
use flate2::{Compression, write::DeflateEncoder};
use proptest::prelude::*;

use super::layout::{block_head, header_bytes};
use super::*;
use crate::Traffic;
use crate::capture::{CaptureError, Ending, EventKind, Limits};

fn header() -> Header {
    Header {
        started_at_us: 0x0102_0304_0506_0708,
        origin: Origin::Relay,
        relay_callbacks: true,
        listener: "a:1".into(),
        upstream: "bé:2".into(),
    }
}

fn opened(us: u64, number: u64, service: Option<Offered>) -> Entry {
    let at = Duration::from_micros(us);
    let opening = Opening {
        client: "10.0.0.1:258".parse().unwrap(),
        server: "[::1]:772".parse().unwrap(),
        at,
        whole: true,
    };
    Entry { at, connection: ConnectionId(number), record: Record::Opened { opening, service } }
}

fn entry(us: u64, number: u64, record: Record) -> Entry {
    Entry { at: Duration::from_micros(us), connection: ConnectionId(number), record }
}

fn finished() -> Entry {
    entry(90, 0, Record::Finished(Unrecorded { connections: 3, bytes: 4 }))
}

/// One record of each kind.
fn every_kind() -> Vec<Entry> {
    vec![
        opened(10, 0, Some(Offered::ClusterManager)),
        entry(11, 0, Record::Accepted),
        entry(12, 0, Record::Data(Side::Client, b"hello".to_vec())),
        entry(13, 0, Record::Gap(Side::Server, 300, GapReason::BufferFull)),
        entry(14, 0, Record::End(Side::Client)),
        entry(15, 0, Record::Reset(Side::Server)),
        entry(16, 0, Record::Closed),
    ]
}

/// A recording with these blocks.
fn recorded(blocks: &[Vec<Entry>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = RecordingWriter::new(&mut file, &header()).unwrap();
    for block in blocks {
        for entry in block {
            writer.write(entry).unwrap();
        }
        writer.flush().unwrap();
    }
    assert_eq!(writer.whole_bytes(), file.len() as u64);
    file
}

fn read_back(file: &[u8]) -> Result<(Vec<Entry>, RecordingSummary), CaptureError> {
    let mut entries = Vec::new();
    let summary = read(file, &Limits::default(), |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })?;
    Ok((entries, summary))
}

/// A block around records that are bytes.
fn block_of(records: &[u8], claimed_bytes: usize) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(records).unwrap();
    let packed = encoder.finish().unwrap();
    [&block_head(&packed, claimed_bytes)[..], &packed].concat()
}

#[test]
fn the_header_has_the_bytes_of_the_document() {
    let expected = [
        &b"\x89CREC\r\n\x1a"[..],
        &[0, 1],
        &[0, 22],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[1],
        &[1],
        b"\x00\x03a:1",
        b"\x00\x05b\xc3\xa9:2",
    ]
    .concat();
    let checksum = crc32fast::hash(&expected).to_be_bytes();
    assert_eq!(header_bytes(&header()), [&expected[..], &checksum].concat());
}

#[test]
fn records_have_the_bytes_of_the_document() {
    let mut bytes = Vec::new();
    for entry in every_kind() {
        super::layout::push_entry(&mut bytes, &entry);
    }
    super::layout::push_entry(&mut bytes, &finished());
    let head = |kind: u8, us: u8, length: u8| {
        [&[kind][..], &[0, 0, 0, 0, 0, 0, 0, us], &[0; 8], &[0, 0, 0, length]].concat()
    };
    let opened = [
        &[4, 10, 0, 0, 1, 1, 2][..],
        &[6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 4],
        &[1, 1],
    ]
    .concat();
    let expected = [
        [head(1, 10, 28), opened].concat(),
        head(2, 11, 0),
        [head(3, 12, 6), b"\0hello".to_vec()].concat(),
        [head(6, 13, 10), vec![1, 0, 0, 0, 0, 0, 0, 1, 44, 2]].concat(),
        [head(4, 14, 1), vec![0]].concat(),
        [head(5, 15, 1), vec![1]].concat(),
        head(7, 16, 0),
        [head(8, 90, 16), vec![0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4]].concat(),
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn a_block_has_the_bytes_of_the_document() {
    let file = recorded(&[every_kind()]);
    let block = &file[header_bytes(&header()).len()..];
    let packed = &block[16..];
    assert_eq!(&block[..4], b"CBLK");
    assert_eq!(block[4..8], (packed.len() as u32).to_be_bytes());
    let sum = crc32fast::hash(&[&block[4..12], packed].concat());
    assert_eq!(block[12..16], sum.to_be_bytes());
}

#[test]
fn recordings_survive_writing_and_reading() {
    let mut entries = every_kind();
    let (read, summary) = read_back(&recorded(&[entries.clone(), vec![finished()]])).unwrap();
    assert_eq!(read, entries);
    assert_eq!(summary.header, header());
    assert_eq!(summary.ending, Ending::Complete);
    assert_eq!(summary.unrecorded, Some(Unrecorded { connections: 3, bytes: 4 }));
    // Without the last record it is unknown whether there was more.
    entries.truncate(2);
    let (read, summary) = read_back(&recorded(&[entries.clone()])).unwrap();
    assert_eq!((read, summary.ending, summary.unrecorded), (entries, Ending::Truncated, None));
}

#[test]
fn data_of_any_size_fits() {
    let large: Vec<u8> = (0..MAX_BLOCK_BYTES + 5).map(|number| (number % 251) as u8).collect();
    let entries = vec![
        opened(1, 0, None),
        entry(2, 0, Record::Data(Side::Server, large.clone())),
        finished(),
    ];
    let (read, summary) = read_back(&recorded(&[entries])).unwrap();
    assert_eq!(summary.ending, Ending::Complete);
    let pieces = read.iter().filter_map(|entry| match &entry.record {
        Record::Data(Side::Server, data) => Some(data.as_slice()),
        _ => None,
    });
    assert_eq!(pieces.collect::<Vec<_>>().concat(), large);
}

#[test]
fn connections_are_numbered_in_the_order_of_their_opening() {
    let data = |number| entry(5, number, Record::Data(Side::Client, b"x".to_vec()));
    let closed = |number| entry(6, number, Record::Closed);
    let file = recorded(&[vec![
        opened(1, 700, None),
        opened(2, 5, None),
        data(5),
        data(700),
        data(9),
        closed(5),
        data(5),
        opened(7, 5, None),
        data(5),
    ]]);
    let numbers: Vec<u64> =
        read_back(&file).unwrap().0.iter().map(|entry| entry.connection.0).collect();
    assert_eq!(numbers, [0, 1, 1, 0, 1, 2, 2]);
}

#[test]
fn hostile_files_end_within_limits() {
    let start = header_bytes(&header());
    let accepted = {
        let mut bytes = Vec::new();
        super::layout::push_entry(&mut bytes, &opened(1, 0, None));
        bytes
    };
    let bomb = vec![0; 64 << 20];
    let mut long_record = accepted.clone();
    long_record[17..21].copy_from_slice(&u32::MAX.to_be_bytes());
    let huge = |packed: u32, unpacked: u32| {
        [&b"CBLK"[..], &packed.to_be_bytes(), &unpacked.to_be_bytes(), &[0; 4]].concat()
    };
    let unknown = [&[99][..], &[0; 16], &[0, 0, 0, 2], &[1, 2], &accepted].concat();
    for (name, block, entries, ending) in [
        ("unpacks to more than it says", block_of(&bomb, 100), 0, Ending::Damaged),
        ("unpacks to less than it says", block_of(&accepted, 1_000), 0, Ending::Damaged),
        ("a record longer than its block", block_of(&long_record, 49), 0, Ending::Damaged),
        ("packed too large", huge(u32::MAX, 1), 0, Ending::Damaged),
        ("unpacked too large", huge(1, u32::MAX), 0, Ending::Damaged),
        ("no block", vec![7; 40], 0, Ending::Damaged),
        ("an unknown kind is passed over", block_of(&unknown, 72), 1, Ending::Truncated),
        ("good", block_of(&accepted, 49), 1, Ending::Truncated),
    ] {
        let (read, summary) = read_back(&[&start[..], &block].concat()).unwrap();
        assert_eq!((read.len(), summary.ending), (entries, ending), "{name}");
    }
    let many: Vec<Entry> = (0..10).map(|number| opened(number, number, None)).collect();
    let limits = Limits { connections: 4, ..Limits::default() };
    let summary = read(&*recorded(&[many]), &limits, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(summary.ending, Ending::LimitReached("connections"));
}

#[test]
fn other_versions_and_damaged_headers_are_reported() {
    let mut other = recorded(&[]);
    other[9] = 2;
    assert!(matches!(read_back(&other), Err(CaptureError::UnknownVersion(2))));
    let mut damaged = recorded(&[]);
    damaged[14] ^= 1;
    assert!(matches!(read_back(&damaged), Err(CaptureError::DamagedHeader)));
    let mut long = recorded(&[]);
    long[10] = 0xff;
    assert!(matches!(read_back(&long), Err(CaptureError::DamagedHeader)));
    assert!(matches!(read_back(b"\x89CREC"), Err(CaptureError::NotACapture)));
    assert!(matches!(read_back(&recorded(&[])[..20]), Err(CaptureError::DamagedHeader)));
}

#[test]
fn traffic_is_the_same_from_a_packed_recording() {
    let file = recorded(&[every_kind(), vec![finished()]]);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&file).unwrap();
    for (name, bytes) in [("plain", file), ("gzip", encoder.finish().unwrap())] {
        let traffic = Traffic::read(&*bytes, &Limits::default()).unwrap();
        assert_eq!(traffic.recording, Some(header()), "{name}");
        assert_eq!(traffic.services.get(&ConnectionId(0)), Some(&Offered::ClusterManager));
        let connection = &traffic.capture.connections[0];
        assert!(connection.accepted, "{name}");
        let seen: Vec<_> = connection.events.iter().map(|event| event.what.clone()).collect();
        let data = EventKind::Data(b"hello".to_vec());
        assert_eq!(
            seen,
            [data, EventKind::Missing(300), EventKind::End, EventKind::Reset],
            "{name}"
        );
    }
    assert!(matches!(
        Traffic::read(&b"GET / HTTP/1.0\r\n\r\n"[..], &Limits::default()),
        Err(CaptureError::NotACapture)
    ));
}

fn records() -> impl Strategy<Value = Record> {
    let side = || prop_oneof![Just(Side::Client), Just(Side::Server)];
    prop_oneof![
        Just(Record::Accepted),
        (side(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(side, data)| Record::Data(side, data)),
        side().prop_map(Record::End),
        side().prop_map(Record::Reset),
        (side(), any::<u64>()).prop_map(|(side, bytes)| Record::Gap(
            side,
            bytes,
            GapReason::NotCaptured
        )),
    ]
}

/// Blocks of entries on connection 0, which is opened first.
fn blocks() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let entries = || {
        prop::collection::vec((any::<u32>(), records()), 1..8).prop_map(|entries| {
            let entry = |(us, record)| entry(u64::from(us), 0, record);
            entries.into_iter().map(entry).collect::<Vec<_>>()
        })
    };
    prop::collection::vec(entries(), 1..5).prop_map(|mut blocks| {
        blocks.insert(0, vec![opened(0, 0, None)]);
        blocks
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn written_blocks_are_read_up_to_any_cut(blocks in blocks(), cut in any::<prop::sample::Index>()) {
        let file = recorded(&blocks);
        let all = blocks.concat();
        let (read, _) = read_back(&file).unwrap();
        prop_assert_eq!(&read, &all);
        let cut = cut.index(file.len());
        let ends: Vec<usize> = (0..=blocks.len()).map(|count| recorded(&blocks[..count]).len()).collect();
        match read_back(&file[..cut]) {
            Ok((read, summary)) => {
                let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
                prop_assert_eq!(read, blocks[..whole].concat());
                prop_assert_eq!(summary.ending, Ending::Truncated);
            }
            Err(_) => prop_assert!(cut < ends[0]),
        }
    }

    #[test]
    fn a_flipped_bit_leaves_a_prefix(
        blocks in blocks(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut file = recorded(&blocks);
        let all = blocks.concat();
        let place = place.index(file.len());
        file[place] ^= 1 << bit;
        if let Ok((read, _)) = read_back(&file) {
            prop_assert!(read.len() < all.len());
            prop_assert!(all.starts_with(&read));
        }
    }

    #[test]
    fn noise_is_survived(noise in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = read_back(&noise);
        let _ = read_back(&[header_bytes(&header()), noise.clone()].concat());
        let block = block_of(&noise, noise.len());
        let _ = read_back(&[header_bytes(&header()), block].concat());
    }
}
