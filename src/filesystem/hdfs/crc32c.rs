//! CRC-32C, which data nodes may use in the place of CRC-32: eight bytes a step, over tables.

/// The polynomial of Castagnoli, its bits in reverse.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

#[allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler"
)]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of some bytes.
#[allow(
    clippy::indexing_slicing,
    reason = "eight tables of 256 entries, each with an index of eight bits"
)]
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    let at = |table: usize, byte: u32| TABLES[table][(byte & 0xff) as usize];
    let mut sum = !0_u32;
    let (steps, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in steps {
        let low = sum ^ u32::from_le_bytes([*a, *b, *c, *d]);
        sum = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
        sum ^= at(3, (*e).into()) ^ at(2, (*f).into()) ^ at(1, (*g).into()) ^ at(0, (*h).into());
    }
    for byte in rest {
        sum = sum >> 8 ^ at(0, sum ^ u32::from(*byte));
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        // RFC 3720, appendix B.4.
        let ascending: Vec<u8> = (0..32).collect();
        let table: [(&[u8], u32); 5] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ];
        for (bytes, sum) in table {
            assert_eq!(hash(bytes), sum, "{bytes:?}");
        }
    }
}
