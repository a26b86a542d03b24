//! Packets in the order of their times. Files of several interfaces or receive queues, and merged
//! ones, have packets that stand behind later ones.
//!
//! It looks a little ahead: the number of packets in memory is bounded. Behind a clock that was set back it
//! begins again; [`Clock`](super::clock::Clock) then lets time go on.

use std::collections::BTreeMap;
use std::mem;

use super::file::{Flow, Packet};

/// How many packets are looked at ahead.
const PACKETS: usize = 256;

/// How many bytes of packets are looked at ahead.
const BYTES: usize = 4 << 20;

/// A packet that is older than its forerunner by more than this was not overtaken: the clock was
/// set. In microseconds.
pub(super) const REACH_US: u64 = 1_000_000;

/// Packets that wait for earlier ones to turn up.
#[derive(Default)]
pub(super) struct Sorter {
    /// By time, and those of one time in the order of the file.
    waiting: BTreeMap<(u64, u64), Held>,
    waiting_bytes: usize,
    taken: u64,
    newest_us: u64,
    /// Buffers of processed packets, for reuse.
    spare: Vec<Vec<u8>>,
}

struct Held {
    link_type: u16,
    bytes: Vec<u8>,
}

impl Sorter {
    /// Takes a packet and hands out those that nothing earlier will follow. Errors: those of `out`.
    pub(super) fn take(
        &mut self,
        packet: &Packet<'_>,
        out: &mut dyn FnMut(Packet<'_>) -> Flow,
    ) -> Flow {
        let Some(at_us) = packet.at_us else {
            self.finish(out)?;
            return out(Packet { ..*packet });
        };
        if at_us.saturating_add(REACH_US) < self.newest_us {
            self.finish(out)?;
        }
        self.newest_us = self.newest_us.max(at_us);
        self.taken += 1;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(packet.bytes);
        self.waiting_bytes += bytes.len();
        let held = Held { link_type: packet.link_type, bytes };
        self.waiting.insert((at_us, self.taken), held);
        while self.waiting.len() > PACKETS || self.waiting_bytes > BYTES {
            self.release(out)?;
        }
        Ok(())
    }

    /// Hands out all that wait. Errors: those of `out`.
    pub(super) fn finish(&mut self, out: &mut dyn FnMut(Packet<'_>) -> Flow) -> Flow {
        while !self.waiting.is_empty() {
            self.release(out)?;
        }
        self.newest_us = 0;
        Ok(())
    }

    fn release(&mut self, out: &mut dyn FnMut(Packet<'_>) -> Flow) -> Flow {
        let Some(((at_us, _), held)) = self.waiting.pop_first() else { return Ok(()) };
        let Held { link_type, mut bytes } = held;
        self.waiting_bytes -= bytes.len();
        let next = out(Packet { at_us: Some(at_us), link_type, bytes: &bytes });
        bytes.clear();
        // A large packet's memory is not kept for small ones.
        if self.spare.len() < PACKETS && bytes.capacity() <= BYTES / PACKETS {
            self.spare.push(mem::take(&mut bytes));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ending;
    use super::*;

    /// The times of packets as they come out; their bytes are their places in the file.
    fn ordered(times: impl IntoIterator<Item = Option<u64>>) -> Vec<(Option<u64>, usize)> {
        let mut sorter = Sorter::default();
        let mut seen = vec![];
        let mut out = |packet: Packet<'_>| {
            let place = packet.bytes.try_into().map(usize::from_be_bytes).unwrap();
            seen.push((packet.at_us, place));
            Ok(())
        };
        for (place, at_us) in times.into_iter().enumerate() {
            let packet = Packet { at_us, link_type: 1, bytes: &place.to_be_bytes() };
            sorter.take(&packet, &mut out).unwrap();
            assert!(sorter.waiting.len() <= PACKETS);
        }
        sorter.finish(&mut out).unwrap();
        assert_eq!((sorter.waiting.len(), sorter.waiting_bytes), (0, 0));
        seen
    }

    #[test]
    fn packets_come_out_in_the_order_of_their_times() {
        let second = REACH_US;
        for (name, times, expected) in [
            ("as they are", vec![1, 2, 3], vec![0, 1, 2]),
            ("overtaken", vec![2, 3, 1], vec![2, 0, 1]),
            ("of one time", vec![5, 5, 4, 5], vec![2, 0, 1, 3]),
            ("a clock that was set back", vec![9 * second, 8, 7], vec![0, 2, 1]),
            ("and forward", vec![1, 9 * second, 2 + 9 * second], vec![0, 1, 2]),
        ] {
            let places: Vec<usize> =
                ordered(times.into_iter().map(Some)).into_iter().map(|(_, place)| place).collect();
            assert_eq!(places, expected, "{name}");
        }
        let without = ordered([Some(2), Some(1), None, Some(0)]);
        assert_eq!(without, [(Some(1), 1), (Some(2), 0), (None, 2), (Some(0), 3)]);
    }

    #[test]
    fn it_looks_only_so_far_ahead() {
        let count = 3 * PACKETS;
        let times = (1..=count as u64).chain([0]).map(Some);
        let (at, place) = ordered(times)[2 * PACKETS];
        assert_eq!((at, place), (Some(0), count), "it is told where it is found");
        let mut sorter = Sorter::default();
        let large = vec![0; BYTES];
        let mut told = 0;
        for at in 0..4 {
            let packet = Packet { at_us: Some(at), link_type: 1, bytes: &large };
            let mut out = |_: Packet<'_>| {
                told += 1;
                Ok(())
            };
            sorter.take(&packet, &mut out).unwrap();
        }
        assert_eq!((told, sorter.waiting.len(), sorter.spare.len()), (3, 1, 0));
    }

    #[test]
    fn a_reader_that_stops_gets_no_more_packets() {
        let mut sorter = Sorter::default();
        for at in 0..9 {
            let packet = Packet { at_us: Some(at), link_type: 1, bytes: b"x" };
            sorter.take(&packet, &mut |_| Ok(())).unwrap();
        }
        let mut told = 0;
        let ended = sorter.finish(&mut |_| {
            told += 1;
            Err(Ending::Stopped)
        });
        assert_eq!((ended, told), (Err(Ending::Stopped), 1));
    }
}
