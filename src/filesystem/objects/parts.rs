//! How large the parts of an upload are. Nobody knows how large its object becomes, and stores take a bounded number of
//! parts, so parts grow; what a writer keeps in memory is bounded.

/// Parts that stores take.
pub(super) const MAX_PARTS: usize = 10_000;
/// Bytes that a writer keeps at most: the part that is filled, and those that are sent.
const MAX_MEMORY: usize = 1 << 30;
/// Parts that are sent at a time.
const MAX_IN_FLIGHT: usize = 2;
/// How many parts have a size, in the order of the parts. Stores want at least 5 MiB of all but the last one.
const STEPS: [(usize, usize); 7] = [
    (800, 8 << 20),
    (800, 16 << 20),
    (800, 32 << 20),
    (800, 64 << 20),
    (400, 128 << 20),
    (400, 256 << 20),
    (400, 512 << 20),
];
/// The size of all further ones.
const LARGEST: usize = 1 << 30;

/// Bytes of a part, which is not the last one, by its number from 0.
pub(super) fn bytes_of(part: usize) -> usize {
    let mut before = 0;
    let found = STEPS.iter().find(|(count, _)| {
        before += count;
        part < before
    });
    found.map_or(LARGEST, |(_, bytes)| *bytes)
}

/// How many earlier parts may be in flight while a part is filled.
pub(super) fn in_flight_beside(part: usize) -> usize {
    (MAX_MEMORY / bytes_of(part)).saturating_sub(1).min(MAX_IN_FLIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn an_object_may_have_five_tebibytes_in_parts_that_stores_take() {
        let sizes = || (0..MAX_PARTS).map(bytes_of);
        assert!(sizes().is_sorted());
        assert!(sizes().all(|bytes| (5 << 20..=5 * GIB as usize).contains(&bytes)));
        assert!(sizes().map(|bytes| bytes as u64).sum::<u64>() >= 5 << 40);
    }

    #[test]
    fn the_parts_that_a_writer_keeps_are_bounded() {
        let kept = |part| (in_flight_beside(part) + 1) * bytes_of(part);
        assert!((0..2 * MAX_PARTS).all(|part| kept(part) <= MAX_MEMORY));
        // As docs/use/objects.md has it: the memory of objects up to a size.
        for (up_to, most) in
            [(6, 24), (18, 48), (43, 96), (93, 192), (143, 384), (243, 768), (5120, 1024)]
        {
            let (mut end, mut part) = (0, 0);
            while end < up_to * GIB && part < MAX_PARTS {
                end += bytes_of(part) as u64;
                part += 1;
            }
            let found = (0..part).map(kept).max().unwrap();
            assert_eq!(found >> 20, most, "{up_to} GiB");
        }
    }
}
