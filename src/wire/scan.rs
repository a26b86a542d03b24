//! Finds the end of a message in raw bytes, whatever its content.
//!
//! It works on bytes that arrive piece by piece: each byte is visited once, and no allocation
//! depends on a size that a message claims. It knows the encoding, not the contract. Spec:
//! cluster-manager/01 §2.2.

use thiserror::Error;

/// The type codes of the binary encoding.
pub(crate) mod code {
    pub(crate) const STOP: u8 = 0;
    pub(crate) const BOOL: u8 = 2;
    pub(crate) const BYTE: u8 = 3;
    pub(crate) const DOUBLE: u8 = 4;
    pub(crate) const I16: u8 = 6;
    pub(crate) const I32: u8 = 8;
    pub(crate) const I64: u8 = 10;
    pub(crate) const STRING: u8 = 11;
    pub(crate) const STRUCT: u8 = 12;
    pub(crate) const MAP: u8 = 13;
    pub(crate) const SET: u8 = 14;
    pub(crate) const LIST: u8 = 15;
}

/// Bytes that no peer following the protocol sends. The connection they came on is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// A frame whose length is zero or negative.
    #[error("a frame of {0} bytes")]
    FrameLength(i32),
    /// A frame or a message beyond the limit.
    #[error("{bytes} bytes where at most {limit} are allowed")]
    TooLarge {
        /// The announced size.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// The first four bytes of a message are not those of the strict encoding.
    #[error("a message that starts with {0:#010x}")]
    Version(u32),
    /// A text, list, set or map of negative length.
    #[error("a negative length, {0}")]
    NegativeLength(i32),
    /// A type code that the encoding does not have.
    #[error("unknown type code {0}")]
    TypeCode(u8),
    /// Elements of a type other than the contract's.
    #[error("elements of type {found} instead of {expected}")]
    ElementType {
        /// The code of the contract.
        expected: u8,
        /// The code that was sent.
        found: u8,
    },
    /// Structs and containers nested too deeply.
    #[error("nested more than {0} deep")]
    TooDeep(usize),
    /// A method name of unreasonable length.
    #[error("a method name of {0} bytes")]
    NameLength(usize),
    /// The typed reader refused a message that the check accepted.
    #[error("not readable")]
    Unreadable,
}

/// How much one message may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of the whole message.
    pub(crate) max_bytes: usize,
    /// Structs and containers inside one another.
    pub(crate) max_depth: usize,
}

/// Method names longer than this are refused. The longest of the contract has 29 bytes.
const MAX_NAME_BYTES: usize = 1024;

/// The start of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    /// CALL, REPLY, EXCEPTION or ONEWAY, or whatever a peer wrote.
    pub(crate) kind: u8,
    /// The method's name.
    pub(crate) name: &'a [u8],
    /// The sequence id.
    pub(crate) seqid: i32,
    /// Where the body starts.
    pub(crate) body: usize,
}

impl<'a> Header<'a> {
    /// Reads a strict header at the start of `bytes`; none when more bytes are needed.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<Header<'a>>, Malformed> {
        let Some(version) = u32_at(bytes, 0) else { return Ok(None) };
        if version & 0xffff_0000 != 0x8001_0000 {
            return Err(Malformed::Version(version));
        }
        let Some(length) = u32_at(bytes, 4) else { return Ok(None) };
        let length = length_of(length)?;
        if length > MAX_NAME_BYTES {
            return Err(Malformed::NameLength(length));
        }
        let end = 8 + length;
        let (Some(name), Some(seqid)) = (bytes.get(8..end), u32_at(bytes, end)) else {
            return Ok(None);
        };
        let [_, _, _, kind] = version.to_be_bytes();
        Ok(Some(Header { kind, name, seqid: seqid.cast_signed(), body: end + 4 }))
    }
}

/// The state of a search for the end of a message, kept between arrivals.
#[derive(Debug)]
pub(crate) struct Scanner {
    bounds: Bounds,
    /// Everything before this has been handled. May lie beyond the received bytes.
    position: usize,
    in_header: bool,
    open: Vec<Open>,
}

/// A struct or container whose end has not been seen.
#[derive(Debug)]
enum Open {
    Struct,
    Elements { code: u8, left: u32 },
    Pairs { key: u8, value: u8, left: u32, at_value: bool },
}

impl Scanner {
    /// For a message that starts at offset 0 of the input of [`Scanner::run`].
    pub(crate) fn message(bounds: Bounds) -> Scanner {
        Scanner { bounds, position: 0, in_header: true, open: vec![] }
    }

    /// The end of one value of a type code that starts at `position` of `bytes`; none when it is
    /// not all there. `depth` structs and containers are around it.
    pub(crate) fn skip(
        bytes: &[u8],
        code: u8,
        position: usize,
        bounds: Bounds,
        depth: usize,
    ) -> Result<Option<usize>, Malformed> {
        let max_depth = bounds.max_depth.saturating_sub(depth);
        let bounds = Bounds { max_depth, ..bounds };
        let mut scanner = Scanner { bounds, position, in_header: false, open: vec![] };
        match scanner.value(bytes, code)? {
            Some(()) => scanner.body(bytes),
            None => Ok(None),
        }
    }

    /// Continues. `bytes` starts where it started before and may have grown. Returns the end of the
    /// message, or none when more bytes are needed.
    pub(crate) fn run(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if self.in_header {
            let Some(header) = Header::parse(bytes)? else { return Ok(None) };
            self.in_header = false;
            self.position = header.body;
            self.enter(Open::Struct)?;
        }
        self.body(bytes)
    }

    fn body(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while let Some(open) = self.open.last_mut() {
            let code = match open {
                Open::Struct => match bytes.get(self.position) {
                    None => return Ok(None),
                    Some(&code::STOP) => {
                        self.position += 1;
                        self.open.pop();
                        continue;
                    }
                    Some(&code) => {
                        // The type, the id, and at least one byte of a value.
                        if bytes.len() < self.position + 4 {
                            return Ok(None);
                        }
                        self.position += 3;
                        if self.value(bytes, code)?.is_none() {
                            self.position -= 3;
                            return Ok(None);
                        }
                        continue;
                    }
                },
                Open::Elements { left: 0, .. } | Open::Pairs { left: 0, .. } => {
                    self.open.pop();
                    continue;
                }
                Open::Elements { code, left } => {
                    *left -= 1;
                    *code
                }
                Open::Pairs { key, value, left, at_value } => {
                    *left -= u32::from(*at_value);
                    *at_value = !*at_value;
                    if *at_value { *key } else { *value }
                }
            };
            let level = self.open.len() - 1;
            if self.value(bytes, code)?.is_none() {
                self.give_back(level);
                return Ok(None);
            }
        }
        Ok((self.position <= bytes.len()).then_some(self.position))
    }

    /// Undoes the counting of an element that is not all there.
    fn give_back(&mut self, level: usize) {
        match self.open.get_mut(level) {
            Some(Open::Elements { left, .. }) => *left += 1,
            Some(Open::Pairs { left, at_value, .. }) => {
                *at_value = !*at_value;
                *left += u32::from(*at_value);
            }
            Some(Open::Struct) | None => {}
        }
    }

    /// Passes a value, or opens it. None, with nothing changed, when its start is not there.
    fn value(&mut self, bytes: &[u8], code: u8) -> Result<Option<()>, Malformed> {
        let at = self.position;
        match code {
            code::STRING => {
                let Some(length) = u32_at(bytes, at) else { return Ok(None) };
                self.advance(4 + length_of(length)? as u64)?;
            }
            code::STRUCT => {
                if at > bytes.len() {
                    return Ok(None);
                }
                self.enter(Open::Struct)?;
            }
            code::LIST | code::SET => {
                let (Some(&element), Some(size)) = (bytes.get(at), u32_at(bytes, at + 1)) else {
                    return Ok(None);
                };
                self.advance(5)?;
                self.elements(element, length_of(size)?)?;
            }
            code::MAP => {
                let head = (bytes.get(at), bytes.get(at + 1), u32_at(bytes, at + 2));
                let (Some(&key), Some(&value), Some(size)) = head else { return Ok(None) };
                self.advance(6)?;
                self.pairs(key, value, length_of(size)?)?;
            }
            fixed => {
                let size = fixed_size(fixed).ok_or(Malformed::TypeCode(fixed))?;
                if at > bytes.len() {
                    return Ok(None);
                }
                self.advance(size as u64)?;
            }
        }
        Ok(Some(()))
    }

    fn elements(&mut self, code: u8, count: usize) -> Result<(), Malformed> {
        if count == 0 {
            return Ok(());
        }
        self.room(count as u64 * least_size(code)?)?;
        match fixed_size(code) {
            Some(size) => self.advance(count as u64 * size as u64),
            None => self.enter(Open::Elements { code, left: of_length(count) }),
        }
    }

    fn pairs(&mut self, key: u8, value: u8, count: usize) -> Result<(), Malformed> {
        if count == 0 {
            return Ok(());
        }
        self.room(count as u64 * (least_size(key)? + least_size(value)?))?;
        match (fixed_size(key), fixed_size(value)) {
            (Some(a), Some(b)) => self.advance(count as u64 * (a + b) as u64),
            _ => self.enter(Open::Pairs { key, value, left: of_length(count), at_value: false }),
        }
    }

    fn enter(&mut self, open: Open) -> Result<(), Malformed> {
        if self.open.len() >= self.bounds.max_depth {
            return Err(Malformed::TooDeep(self.bounds.max_depth));
        }
        self.open.push(open);
        Ok(())
    }

    /// Whether `bytes` more fit the largest message allowed.
    fn room(&self, bytes: u64) -> Result<(), Malformed> {
        let bytes = (self.position as u64).saturating_add(bytes);
        let limit = self.bounds.max_bytes;
        if bytes > limit as u64 { Err(Malformed::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    fn advance(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.room(bytes)?;
        self.position = self.position.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }
}

/// The size of a value of a type whose values all have the same.
pub(crate) fn fixed_size(code: u8) -> Option<usize> {
    match code {
        code::BOOL | code::BYTE => Some(1),
        code::I16 => Some(2),
        code::I32 => Some(4),
        code::I64 | code::DOUBLE => Some(8),
        _ => None,
    }
}

/// The fewest bytes that a value of a type takes.
fn least_size(code: u8) -> Result<u64, Malformed> {
    match code {
        code::STRUCT => Ok(1),
        code::STRING => Ok(4),
        code::LIST | code::SET => Ok(5),
        code::MAP => Ok(6),
        other => fixed_size(other).map(|size| size as u64).ok_or(Malformed::TypeCode(other)),
    }
}

/// A count that was sent as 31 bits.
fn of_length(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A length as it was sent, checked for its sign.
pub(crate) fn length_of(raw: u32) -> Result<usize, Malformed> {
    let signed = raw.cast_signed();
    usize::try_from(signed).map_err(|_| Malformed::NegativeLength(signed))
}

/// Two bytes, big-endian.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_be_bytes)
}

/// Four bytes, big-endian.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_be_bytes)
}

/// Eight bytes, big-endian.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_be_bytes)
}
