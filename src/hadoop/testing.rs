//! Helpers that the tests of this crate share.

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of golden samples as the specification writes them: hexadecimal digits, blanks
/// anywhere, and ASCII text in quotes.
pub(crate) fn unhex(sample: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (place, part) in sample.split('"').enumerate() {
        if place % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: String = part.split_whitespace().collect();
        assert!(digits.is_ascii() && digits.len().is_multiple_of(2), "{part}");
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).expect("digits"));
        }
    }
    bytes
}
