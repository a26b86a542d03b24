//! Capture files: classic pcap and pcapng, read packet by packet with a fixed amount of memory.
//!
//! Does not look inside packets. A file that ends in the middle of a packet is good up to the last
//! whole one.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use super::{CaptureError, Ending, Limits};

/// One captured packet, as its bytes lie in the file.
pub(super) struct Packet<'a> {
    /// Microseconds since the Unix epoch; `None` in a block that carries no time.
    pub(super) at_us: Option<u64>,
    /// How the bytes begin, as in the registry of link types.
    pub(super) link_type: u16,
    /// The captured bytes, which may be fewer than were sent.
    pub(super) bytes: &'a [u8],
}

/// Whether reading continues after a packet.
pub(super) type Flow = Result<(), Ending>;

/// Passes every packet of `source` to `sink` in the order of the file, until the end, damage, or an
/// [`Ending`] that `sink` returns. A file without one readable header is an error.
pub(super) fn read_packets(
    source: impl Read + Send,
    limits: &Limits,
    mut sink: impl FnMut(Packet<'_>) -> Flow,
) -> Result<Ending, CaptureError> {
    let failure = Arc::new(Mutex::new(None));
    let source = WholeReads { source, failure: Arc::clone(&failure) };
    let ending = read_blocks(source, limits, &mut sink);
    match failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
        // The end of a compressed file is missing, or damaged.
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ending.and(Ok(Ending::Truncated))
        }
        Some(error) if error.kind() == io::ErrorKind::InvalidInput => {
            ending.and(Ok(Ending::Damaged))
        }
        Some(error) => Err(CaptureError::Read(error)),
        None => ending,
    }
}

fn read_blocks(
    source: impl Read + Send,
    limits: &Limits,
    sink: &mut dyn FnMut(Packet<'_>) -> Flow,
) -> Result<Ending, CaptureError> {
    let mut reader = create_reader(limits.packet_bytes.saturating_add(BLOCK_OVERHEAD), source)
        .map_err(|_| CaptureError::NotACapture)?;
    let mut interfaces = Interfaces::default();
    let mut stuck_at = None;
    loop {
        let ended = match reader.next() {
            Ok((size, block)) => {
                let next = interfaces.take_block(&block, limits, sink);
                reader.consume(size);
                next.err()
            }
            Err(PcapError::Eof) => Some(Ending::Complete),
            Err(PcapError::UnexpectedEof) => Some(Ending::Truncated),
            Err(PcapError::BufferTooSmall) => Some(Ending::LimitReached("packet size")),
            Err(PcapError::Incomplete(_)) => {
                // A block that claims more than the buffer holds would be requested forever.
                let position = (reader.consumed(), reader.data().len());
                if stuck_at.replace(position) == Some(position) && !reader.reader_exhausted() {
                    Some(Ending::LimitReached("packet size"))
                } else {
                    reader.refill().is_err().then_some(Ending::Damaged)
                }
            }
            Err(_) => Some(Ending::Damaged),
        };
        if let Some(ending) = ended {
            return Ok(ending);
        }
    }
}

/// Room for the header and options of a block around the packet itself.
const BLOCK_OVERHEAD: usize = 64 * 1024;

/// The link types and clocks of the interfaces of a section; a classic file has one of them.
#[derive(Default)]
struct Interfaces(Vec<Interface>);

struct Interface {
    link_type: u16,
    /// Ticks of this interface's clock in a second.
    ticks_per_second: u64,
    /// Seconds to add to every time.
    offset_s: i64,
}

impl Interfaces {
    fn take_block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        limits: &Limits,
        sink: &mut dyn FnMut(Packet<'_>) -> Flow,
    ) -> Flow {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let nanoseconds = header.is_nanosecond_precision();
                self.0 = vec![Interface {
                    link_type: link_type(header.network.0),
                    ticks_per_second: if nanoseconds { 1_000_000_000 } else { 1_000_000 },
                    offset_s: 0,
                }];
                Ok(())
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.0.first() else { return Ok(()) };
                let us = u64::from(packet.ts_usec) * 1_000_000 / interface.ticks_per_second;
                sink(Packet {
                    at_us: Some(u64::from(packet.ts_sec) * 1_000_000 + us),
                    link_type: interface.link_type,
                    bytes: packet.data,
                })
            }
            PcapBlockOwned::NG(block) => self.take_ng_block(block, limits, sink),
        }
    }

    fn take_ng_block(
        &mut self,
        block: &Block<'_>,
        limits: &Limits,
        sink: &mut dyn FnMut(Packet<'_>) -> Flow,
    ) -> Flow {
        match block {
            Block::SectionHeader(_) => self.0.clear(),
            Block::InterfaceDescription(described) => {
                if self.0.len() >= limits.interfaces {
                    return Err(Ending::LimitReached("interfaces"));
                }
                self.0.push(Interface {
                    link_type: link_type(described.linktype.0),
                    ticks_per_second: ticks_per_second(described.if_tsresol),
                    offset_s: described.if_tsoffset,
                });
            }
            Block::EnhancedPacket(packet) => {
                let index = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
                let Some(interface) = self.0.get(index) else { return Ok(()) };
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                return sink(Packet {
                    at_us: Some(interface.micros(ticks)),
                    link_type: interface.link_type,
                    bytes: packet.packet_data(),
                });
            }
            Block::SimplePacket(packet) => {
                let Some(interface) = self.0.first() else { return Ok(()) };
                return sink(Packet {
                    at_us: None,
                    link_type: interface.link_type,
                    bytes: packet.packet_data(),
                });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Interface {
    fn micros(&self, ticks: u64) -> u64 {
        let us = u128::from(ticks) * 1_000_000 / u128::from(self.ticks_per_second);
        let us = i128::try_from(us).unwrap_or(i128::MAX);
        let us = us.saturating_add(i128::from(self.offset_s) * 1_000_000);
        u64::try_from(us.max(0)).unwrap_or(u64::MAX)
    }
}

/// The resolution option of pcapng: a negative power of 2 with the top bit set, else of 10.
fn ticks_per_second(option: u8) -> u64 {
    let exponent = u32::from(option & 0x7f);
    let base: u64 = if option & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(exponent).unwrap_or(1_000_000)
}

/// The upper half of a classic file's link type indicates whether frames have a check sequence.
fn link_type(number: i32) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or_default()
}

/// Fills the buffer at every read, so that a pipe looks like a file, and keeps the error of a
/// failed read, which the parser does not hand on.
struct WholeReads<R> {
    source: R,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl<R: Read> Read for WholeReads<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(space) = buffer.get_mut(filled..).filter(|space| !space.is_empty()) {
            match self.source.read(space) {
                Ok(0) => break,
                Ok(size) => filled += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What was read before is handed on.
                    *self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                        Some(error);
                    break;
                }
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_resolutions() {
        for (option, expected) in [(6, 1_000_000), (9, 1_000_000_000), (0x80 | 10, 1024), (0, 1)] {
            assert_eq!(ticks_per_second(option), expected);
        }
        assert_eq!(ticks_per_second(99), 1_000_000, "nonsense counts as the default");
    }

    #[test]
    fn times_with_an_offset_stay_in_range() {
        let clock =
            |offset_s| Interface { link_type: 1, ticks_per_second: 1_000_000_000, offset_s };
        assert_eq!(clock(2).micros(1_500_000_000), 3_500_000);
        assert_eq!(clock(-9).micros(1_500_000_000), 0);
        assert_eq!(clock(i64::MAX).micros(u64::MAX), u64::MAX);
    }
}
