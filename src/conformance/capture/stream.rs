//! One direction of a TCP connection: segments in any order in, bytes in their order out.
//!
//! It knows nothing of addresses or of the other direction. Its memory is bounded by [`Limits`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::{EventKind, Limits};

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Sequence number of the next byte to hand out; `None` before anything was seen.
    next: Option<u32>,
    /// Bytes handed out or given up, which is the offset that `next` stands for.
    done: u64,
    /// Data from beyond a hole: offset, arrival and bytes.
    waiting: BTreeMap<u64, (Duration, Vec<u8>)>,
    waiting_bytes: usize,
    /// When the first data from beyond the present hole came.
    hole_since: Option<Duration>,
    /// The offset up to which the other side has acknowledged everything.
    acknowledged: Option<u64>,
    /// Where the sender ended the stream.
    end: Option<u64>,
    ended: bool,
    /// Events of one direction never go back in time.
    latest: Duration,
}

/// A piece of a stream, as a segment carries it.
pub(super) struct SegmentPiece<'a> {
    pub(super) at: Duration,
    /// Sequence number of its first byte.
    pub(super) sequence: u32,
    pub(super) data: &'a [u8],
    /// Bytes that were sent, which may be more than were captured.
    pub(super) sent_bytes: i64,
    /// Whether the stream ends after it.
    pub(super) fin: bool,
}

/// The cost of one entry of the waiting data beside its bytes.
const ENTRY_BYTES: usize = 64;

/// The distance from `next` to `sequence`; numbers wrap.
fn distance(sequence: u32, next: u32) -> i64 {
    i64::from(sequence.wrapping_sub(next).cast_signed())
}

/// Receives the events of a [`Direction`] with their times.
pub(super) type Sink<'a> = &'a mut dyn FnMut(Duration, EventKind);

impl Direction {
    /// The stream begins after this sequence number, which belongs to the SYN.
    pub(super) fn begin(&mut self, syn_sequence: u32) {
        if self.next.is_none() {
            self.next = Some(syn_sequence.wrapping_add(1));
        }
    }

    /// Whether the sequence number of a SYN fits the segments seen before it.
    pub(super) fn could_begin_with(&self, syn_sequence: u32) -> bool {
        self.done == 0 && self.next.is_none_or(|next| next == syn_sequence.wrapping_add(1))
    }

    /// Data that waits beyond holes, in bytes of memory.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether the sender ended the stream and everything before the end has been handed out.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Takes a piece of the stream and emits the data that are now in order.
    pub(super) fn piece(&mut self, piece: &SegmentPiece<'_>, limits: &Limits, out: Sink<'_>) {
        let next = *self.next.get_or_insert(piece.sequence);
        let distance = distance(piece.sequence, next);
        let Some(end) = self.done.checked_add_signed(distance + piece.sent_bytes) else {
            // The whole piece lies before the first byte that was seen.
            return;
        };
        if piece.fin {
            self.end = Some(self.end.map_or(end, |known| known.min(end)));
        }
        let (offset, unseen) = match self.done.checked_add_signed(distance) {
            Some(offset) => (offset, 0),
            None => (0, distance.unsigned_abs() - self.done),
        };
        let unseen = usize::try_from(unseen).unwrap_or(usize::MAX);
        self.keep(piece.at, offset, piece.data.get(unseen..).unwrap_or_default());
        self.hand_out(piece.at, true, out);
        while self.waiting_bytes > limits.waiting_bytes {
            self.give_up(out);
        }
    }

    /// The other side acknowledges everything before `sequence`.
    pub(super) fn acknowledge(&mut self, sequence: u32) {
        let Some(next) = self.next else { return };
        if let Some(offset) = self.done.checked_add_signed(distance(sequence, next)) {
            self.acknowledged = Some(self.acknowledged.map_or(offset, |known| known.max(offset)));
        }
    }

    /// Gives up a hole that will not be filled: the receiver has acknowledged those bytes, so the
    /// capture missed them; or nothing has been acknowledged for much longer.
    pub(super) fn lose_patience(&mut self, now: Duration, limits: &Limits, out: Sink<'_>) {
        let Some(since) = self.hole_since else { return };
        let waited = now.saturating_sub(since);
        let Some(resumes_at) = self.waiting.keys().next().copied() else { return };
        let received = self.acknowledged.is_some_and(|offset| offset >= resumes_at);
        let unseen = self.acknowledged.is_none();
        if (received && waited >= limits.hole_patience)
            || (unseen && waited >= limits.hole_patience * 10)
        {
            self.give_up(out);
        }
    }

    /// Hands out all that is left, holes and all: the capture or the connection has ended.
    pub(super) fn finish(&mut self, now: Duration, out: Sink<'_>) {
        while !self.waiting.is_empty() {
            self.give_up(out);
        }
        if let Some(end) = self.end.filter(|end| !self.ended && *end > self.done) {
            let missing = end - self.done;
            self.advance(missing);
            self.emit(now, EventKind::Missing(missing), out);
            self.hand_out(now, false, out);
        }
    }

    fn keep(&mut self, at: Duration, offset: u64, data: &[u8]) {
        let skip = usize::try_from(self.done.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(fresh) = data.get(skip..).filter(|fresh| !fresh.is_empty()) else { return };
        let offset = offset.max(self.done);
        let (_, waiting) = match self.waiting.entry(offset) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.waiting_bytes += ENTRY_BYTES;
                place.insert((at, Vec::new()))
            }
        };
        if let Some(more) = fresh.get(waiting.len()..) {
            waiting.extend_from_slice(more);
            self.waiting_bytes += more.len();
        }
    }

    /// Emits pieces that wait at or before the present offset. Data that waited for a hole to be
    /// filled reached its reader `now`; with a hole given up, when it came.
    fn hand_out(&mut self, now: Duration, filled: bool, out: Sink<'_>) {
        while let Some(entry) = self.waiting.first_entry().filter(|e| *e.key() <= self.done) {
            let (offset, (came, mut data)) = entry.remove_entry();
            self.waiting_bytes -= ENTRY_BYTES + data.len();
            let known = usize::try_from(self.done - offset).unwrap_or(usize::MAX);
            let allowed = self.end.map_or(u64::MAX, |end| end.saturating_sub(offset));
            data.truncate(usize::try_from(allowed).unwrap_or(usize::MAX));
            data.drain(..known.min(data.len()));
            if !data.is_empty() {
                self.advance(data.len() as u64);
                self.emit(if filled { now } else { came }, EventKind::Data(data), out);
            }
        }
        self.hole_since = self.waiting.values().map(|(came, _)| *came).min();
        if !self.ended && self.end.is_some_and(|end| end <= self.done) {
            self.ended = true;
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.hole_since = None;
            self.emit(now, EventKind::End, out);
        }
    }

    fn give_up(&mut self, out: Sink<'_>) {
        let Some((&resumes_at, &(came, _))) = self.waiting.first_key_value() else { return };
        let missing = resumes_at.saturating_sub(self.done);
        self.advance(missing);
        self.emit(came, EventKind::Missing(missing), out);
        self.hand_out(came, false, out);
    }

    fn advance(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        self.next = self.next.map(|next| next.wrapping_add((bytes & 0xffff_ffff) as u32));
    }

    fn emit(&mut self, at: Duration, what: EventKind, out: Sink<'_>) {
        self.latest = self.latest.max(at);
        out(self.latest, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments as (time, sequence, data, fin), the limits, and the expected output, as text.
    fn check(
        name: &str,
        begin: Option<u32>,
        segments: &[(u64, u32, &str, bool)],
        finish: bool,
        expected: &str,
    ) {
        let limits = Limits { waiting_bytes: 2 * ENTRY_BYTES + 8, ..Limits::default() };
        let mut direction = Direction::default();
        let mut seen = Vec::new();
        let mut out = |at: Duration, what: EventKind| seen.push(text(at, &what));
        if let Some(sequence) = begin {
            direction.begin(sequence);
        }
        for (ms, sequence, data, fin) in segments {
            let at = Duration::from_millis(*ms);
            direction.piece(&piece(at, *sequence, data, *fin), &limits, &mut out);
            direction.lose_patience(at, &limits, &mut out);
        }
        if finish {
            direction.finish(Duration::from_secs(100), &mut out);
        }
        assert_eq!(seen.join(" "), expected, "{name}");
    }

    fn piece(at: Duration, sequence: u32, data: &str, fin: bool) -> SegmentPiece<'_> {
        let data = data.as_bytes();
        SegmentPiece { at, sequence, data, sent_bytes: data.len() as i64, fin }
    }

    fn text(at: Duration, what: &EventKind) -> String {
        let what = match what {
            EventKind::Data(data) => String::from_utf8_lossy(data).into_owned(),
            EventKind::Missing(bytes) => format!("-{bytes}"),
            EventKind::End => "end".to_owned(),
            EventKind::Reset => "reset".to_owned(),
        };
        format!("{}:{what}", at.as_millis())
    }

    #[test]
    fn segments_become_a_stream() {
        check(
            "in order",
            Some(9),
            &[(1, 10, "ab", false), (2, 12, "c", true)],
            false,
            "1:ab 2:c 2:end",
        );
        check("sent twice", Some(9), &[(1, 10, "ab", false), (2, 10, "ab", false)], false, "1:ab");
        check(
            "sent again with more",
            Some(9),
            &[(1, 10, "ab", false), (2, 10, "abcd", false)],
            false,
            "1:ab 2:cd",
        );
        check(
            "out of order: the reader had it when the hole was filled",
            Some(9),
            &[(1, 12, "cd", false), (2, 10, "ab", false)],
            false,
            "2:ab 2:cd",
        );
        check(
            "overlapping pieces beyond a hole",
            Some(9),
            &[(1, 12, "cde", false), (2, 13, "def", false), (3, 10, "abc", false)],
            false,
            "3:abc 3:de 3:f",
        );
        check(
            "from the middle",
            None,
            &[(5, 70, "xy", false), (6, 72, "z", false)],
            false,
            "5:xy 6:z",
        );
        check(
            "before the middle",
            None,
            &[(5, 70, "xy", false), (6, 60, "old", false)],
            false,
            "5:xy",
        );
        check(
            "over the beginning of what was seen",
            None,
            &[(5, 70, "x", false), (6, 68, "--xyz", true)],
            false,
            "5:x 6:yz 6:end",
        );
        check(
            "sequence numbers wrap",
            Some(u32::MAX - 1),
            &[(1, u32::MAX, "ab", false), (2, 1, "cd", true)],
            false,
            "1:ab 2:cd 2:end",
        );
        check(
            "an end that comes early waits",
            Some(9),
            &[(1, 12, "", true), (2, 10, "ab", false)],
            false,
            "2:ab 2:end",
        );
        check(
            "nothing counts after the end",
            Some(9),
            &[(1, 10, "a", true), (2, 11, "b", false)],
            false,
            "1:a 1:end",
        );
        check(
            "keep-alive probes are not data",
            Some(9),
            &[(1, 10, "ab", false), (2, 11, "?", false)],
            false,
            "1:ab",
        );
    }

    #[test]
    fn a_hole_that_is_never_filled_is_reported() {
        let beyond = [(1, 15, "xy", false), (2, 17, "z", false)];
        check("at the end", Some(9), &beyond, true, "1:-5 1:xy 2:z");
        check(
            "end of stream unseen data",
            Some(9),
            &[(1, 15, "", true)],
            true,
            "100000:-5 100000:end",
        );
        check(
            "too much waits",
            Some(9),
            &[(1, 12, "0123", false), (2, 20, "01234", false)],
            false,
            "1:-2 1:0123",
        );
        check(
            "nobody acknowledges, and time passes",
            Some(9),
            &[(1, 12, "ab", false), (11_002, 14, "c", false)],
            false,
            "1:-2 1:ab 11002:c",
        );
    }

    #[test]
    fn acknowledged_data_that_was_not_captured_is_given_up_soon() {
        let limits = Limits::default();
        let mut direction = Direction::default();
        direction.begin(9);
        let mut seen = Vec::new();
        let mut out = |at: Duration, what: EventKind| seen.push(text(at, &what));
        let early = Duration::from_millis(1);
        direction.piece(&piece(early, 12, "ab", false), &limits, &mut out);
        direction.acknowledge(14);
        direction.lose_patience(Duration::from_millis(500), &limits, &mut out);
        direction.lose_patience(Duration::from_millis(1_001), &limits, &mut out);
        assert_eq!(seen, ["1:-2", "1:ab"]);
    }
}
