//! Hadoop's old string encoding: each UTF-16 code unit becomes one to three bytes, halves of
//! surrogate pairs too. Spec: mapreduce/01 §1.5.3.

/// The longest string of this encoding, in bytes.
const MAX_BYTES: usize = 0xffff;
/// The longest string with characters beyond ASCII, in UTF-16 code units.
const MAX_UNITS: usize = MAX_BYTES / 3;

/// The encoding of `text` without its length, at most 65,535 bytes: a longer string is cut. The
/// original cuts a string with a character beyond ASCII after 21,845 units, so this one does too.
#[allow(clippy::cast_possible_truncation, reason = "six bits each, or what is left of sixteen")]
pub(super) fn encode(text: &str) -> Vec<u8> {
    if text.is_ascii() {
        let kept = text.len().min(MAX_BYTES);
        return text.as_bytes().get(..kept).unwrap_or_default().to_vec();
    }
    let mut encoded = Vec::new();
    for unit in text.encode_utf16().take(MAX_UNITS) {
        let low = |shift: u16| 0x80 | (unit >> shift & 0x3f) as u8;
        match unit {
            0..=0x7f => encoded.push(unit as u8),
            0x80..=0x7ff => encoded.extend([0xc0 | (unit >> 6) as u8, low(0)]),
            _ => encoded.extend([0xe0 | (unit >> 12) as u8, low(6), low(0)]),
        }
    }
    encoded
}

/// The string of these bytes. The original checks nothing: the highest bits of a byte determine the
/// length of its unit. A unit that the bytes cut short, or half of a pair, becomes U+FFFD.
pub(super) fn decode(bytes: &[u8]) -> String {
    if bytes.is_ascii() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().map(|byte| u16::from(*byte));
    while let Some(first) = rest.next() {
        let mut more = || rest.next().map(|byte| byte & 0x3f);
        let unit = match first {
            0..=0x7f => Some(first),
            0xe0.. => more().zip(more()).map(|(b, c)| (first & 0xf) << 12 | b << 6 | c),
            _ => more().map(|b| (first & 0x1f) << 6 | b),
        };
        units.push(unit.unwrap_or(0xfffd));
    }
    String::from_utf16_lossy(&units)
}
