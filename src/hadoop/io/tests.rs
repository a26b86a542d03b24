//! The encodings against bytes that the original wrote, and against nonsense.

use proptest::prelude::*;

use super::{DecodeError, Reader, TooLarge, Writer, formats::*};
use crate::testing::{hex, unhex};

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new(1 << 20);
    write(&mut writer);
    writer.finish().unwrap()
}

#[test]
fn integers_of_variable_length() {
    // Spec: mapreduce/02 §2.1.
    let table = [
        (0, "00"),
        (-1, "ff"),
        (127, "7f"),
        (-112, "90"),
        (128, "8f80"),
        (-113, "8770"),
        (255, "8fff"),
        (-128, "877f"),
        (256, "8e0100"),
        (65535, "8effff"),
        (65536, "8d010000"),
        (40001, "8e9c41"),
        (105_537, "8d019c41"),
        (2_147_483_647, "8c7fffffff"),
        (-2_147_483_648, "847fffffff"),
        (i64::MAX, "887fffffffffffffff"),
        (i64::MIN, "807fffffffffffffff"),
    ];
    for (value, bytes) in table {
        assert_eq!(hex(&written(|w| w.vlong(value))), bytes, "{value}");
        assert_eq!(Reader::new(&unhex(bytes)).vlong(), Ok(value), "{bytes}");
        let truncated = unhex(bytes);
        let truncated = &truncated[..truncated.len() - 1];
        let mut reader = Reader::partial(truncated, 100);
        assert_eq!(reader.vlong(), Err(DecodeError::Truncated), "{bytes}");
        if let Ok(value) = i32::try_from(value) {
            assert_eq!(hex(&written(|w| w.vint(value))), bytes, "{value}");
        }
    }
    assert_eq!(Reader::new(&unhex("8b0100000005")).vint(), Ok(5), "the low 32 bits count");
    assert_eq!(Reader::new(&unhex("8d000001")).vint(), Ok(1), "leading zeros are read");
}

#[test]
fn strings() {
    let text = "aé€😀";
    assert_eq!(hex(&written(|w| w.text(text))), "0a61c3a9e282acf09f9880");
    assert_eq!(hex(&written(|w| w.utf8(text))), "000c61c3a9e282aceda0bdedb880");
    assert_eq!(hex(&written(|w| w.wstring(Some(text)))), "0000000a61c3a9e282acf09f9880");
    assert_eq!(hex(&written(|w| w.wstring(None))), "ffffffff");
    let read = |bytes: &str, read: fn(&mut Reader<'_>) -> Result<String, DecodeError>| {
        read(&mut Reader::new(&unhex(bytes)))
    };
    assert_eq!(read("0a61c3a9e282acf09f9880", |r| r.text()), Ok(text.to_owned()));
    assert_eq!(read("000c61c3a9e282aceda0bdedb880", |r| r.utf8()), Ok(text.to_owned()));
    assert_eq!(read("0261ff", |r| r.text()), Ok("a\u{fffd}".to_owned()), "not UTF-8");
    assert_eq!(read("0003eda0bd", |r| r.utf8()), Ok("\u{fffd}".to_owned()), "half of a pair");
    assert_eq!(read("0002e261", |r| r.utf8()), Ok("\u{fffd}".to_owned()), "cut short");
    assert_eq!(read("0001c3", |r| r.utf8()), Ok("\u{fffd}".to_owned()), "cut short");
    assert_eq!(read("00010000", |r| r.utf8()), Ok("\0".to_owned()));
    assert_eq!(read("ff", |r| r.text()), Err(DecodeError::Length { length: -1, left: 0 }));
    assert_eq!(Reader::new(&[0xff]).nullable_text(), Ok(None));
    assert_eq!(Reader::new(&unhex("ffffffff")).wstring(), Ok(None));
    let null: Result<String, _> = WString::decode(&mut Reader::new(&unhex("ffffffff")));
    assert_eq!(null, Err(DecodeError::Null));
}

#[test]
fn strings_too_long_for_the_old_encoding_are_cut() {
    for (text, kept) in [
        ("x".repeat(65_535), 65_535),
        ("x".repeat(65_536), 65_535),
        ("é".repeat(21_845), 2 * 21_845),
        ("é".repeat(30_000), 2 * 21_845),
        ("€".repeat(30_000), 65_535),
    ] {
        let bytes = written(|w| w.utf8(&text));
        assert_eq!(bytes.len(), 2 + kept);
        let read = Reader::new(&bytes).utf8().unwrap();
        assert!(text.starts_with(&read));
    }
}

#[test]
fn a_length_beyond_what_can_follow_is_refused() {
    let bytes = unhex("7fffffff61");
    let whole = Bytes::decode(&mut Reader::new(&bytes));
    assert_eq!(whole, Err(DecodeError::Length { length: 0x7fff_ffff, left: 1 }));
    let partial = Bytes::decode(&mut Reader::partial(&bytes, 1 << 20));
    assert!(matches!(partial, Err(DecodeError::Length { .. })));
    let more_may_come = Bytes::decode(&mut Reader::partial(&unhex("0000000261"), 1 << 20));
    assert_eq!(more_may_come, Err(DecodeError::Truncated));
    let list: Result<Vec<i64>, _> = List::<Int, Long>::decode(&mut Reader::new(&bytes));
    assert!(matches!(list, Err(DecodeError::Length { length: 0x7fff_ffff, .. })));
    let negative: Result<Vec<i64>, _> = List::<VInt, Long>::decode(&mut Reader::new(&[0x90]));
    assert!(matches!(negative, Err(DecodeError::Length { length: -112, .. })));
}

#[test]
fn a_writer_keeps_its_limit() {
    let mut writer = Writer::new(5);
    writer.i32(1);
    assert_eq!(writer.len(), 4);
    writer.i16(1);
    writer.bool(true);
    assert_eq!(writer.finish(), Err(TooLarge { max_bytes: 5 }), "nothing after what was left out");
}

proptest! {
    #[test]
    fn written_values_are_read_back(value: i64, small: i32, text: String, bytes: Vec<u8>) {
        let encoded = written(|w| {
            w.vlong(value);
            w.vint(small);
            w.text(&text);
            w.utf8(&text);
            Bytes::encode(&bytes, w);
        });
        let mut reader = Reader::new(&encoded);
        prop_assert_eq!(reader.vlong(), Ok(value));
        prop_assert_eq!(reader.vint(), Ok(small));
        prop_assert_eq!(reader.text(), Ok(text.clone()));
        prop_assert_eq!(reader.utf8(), Ok(text));
        prop_assert_eq!(Bytes::decode(&mut reader), Ok(bytes));
        prop_assert_eq!(reader.rest(), b"");
    }

    #[test]
    fn old_strings_of_any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = super::utf8::decode(&bytes);
        let again = super::utf8::decode(&super::utf8::encode(&text));
        prop_assert_eq!(text, again);
    }
}
