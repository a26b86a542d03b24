//! An append-only log of records, with images that stand for everything before them.
//!
//! A journal is a directory. Records are numbered from 1, framed with length, number and checksum,
//! and appended to segments. An image is the state after the record of its number; it makes older
//! segments superfluous. After a crash the newest whole image and the records behind it lead back
//! to the last state that was acknowledged:
//!
//! ```
//! use corona_journal::{DiskStorage, Entry, Journal, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = &directory.path().join("journal");
//! let storage = DiskStorage::open(path)?;
//! let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(()))?;
//! journal.append(b"first")?;
//! journal.close()?;
//!
//! let mut found = Vec::new();
//! let (_journal, recovered) = Journal::open(DiskStorage::open(path)?, Options::default(), |entry| {
//!     if let Entry::Record { number, bytes } = entry {
//!         found.push((number, bytes.to_vec()));
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(found, [(1, b"first".to_vec())]);
//! assert_eq!(recovered.last, 1);
//! # Ok(())
//! # }
//! ```
//!
//! It does not interpret the records.
//!
//! # What survives what
//!
//! A record is *committed* once a crash of the process cannot lose it, and *durable* once a power cut
//! cannot. With [`Sync::Always`] both are the same; with [`Sync::Write`] records become durable in
//! the background, at most an interval later.
//!
//! A tail that was being written when the power went is cut off, and kept in a file of its own. Two
//! things limit the cut: each record contains the number up to which everything was durable when it was
//! appended, and a marker beside the directory has the number up to which everything was durable
//! lately. Damage before that is no torn tail, and files that end before it are lost, so the journal is
//! not opened: [`check()`] finds the place, [`repair`] makes the journal usable again. Without a marker
//! an empty directory is a first start.

// It reads bytes of peers: nothing in them may end the program, or become another number.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod check;
mod frame;
mod log;
mod marker;
mod recovery;
mod storage;
mod tap;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod writer;
mod writers;

pub use self::check::{Repaired, Report, SegmentReport, check, repair, show, show_all};
pub use self::frame::{NoRecord, RECORD_HEADER, first_record, frame_record, image_name, records};
pub use self::log::seed;
pub use self::recovery::{Entry, OpenError, Recovered, Rejected};
pub use self::storage::{DiskStorage, Storage, StorageError, StorageFile, Unsynced};
pub use self::tap::{Tap, Tapped};
pub use self::writer::{Failed, Journal, Options, Status, Sync};
pub use self::writers::Writers;
