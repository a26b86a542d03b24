//! The files of an open journal: writing to the last segment, starting the next one, images, and
//! the removal of files that an image makes superfluous. No threads: each call completes its work,
//! so that a test can crash between any two steps.

use std::sync::Arc;

use super::frame::{self, SEGMENT_HEADER};
use super::marker::{MARKER, Marker};
use super::recovery::{Entry, Files, OpenError, Recovered, Rejected, Tail, recover};
use super::storage::{Storage, StorageError, StorageFile};

/// Images that are kept. The older one is for the case that the newest is damaged, so the records
/// behind the older one are kept as well.
const IMAGES_KEPT: usize = 2;
/// Torn tails that are kept.
const TORN_KEPT: usize = 8;
/// The ending of files with torn tails. Their names begin with the number of the record that is torn.
const TORN_SUFFIX: &str = ".torn";

/// The segments of an open journal.
pub(crate) struct Log {
    storage: Arc<dyn Storage>,
    segment: Arc<dyn StorageFile>,
    /// The first number and the bytes of the segment.
    first: u64,
    length: u64,
    /// The number of the last record that was written.
    last: u64,
    segment_bytes: u64,
    /// Whether the journal has a marker.
    is_marked: bool,
}

impl Log {
    /// Recovers the stored state, cuts off a torn tail, and opens the journal for writing.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        segment_bytes: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<(), Rejected>,
    ) -> Result<(Log, Recovered), OpenError> {
        let (recovered, tail) = recover(&*storage, visit)?;
        for name in Files::of(&*storage)?.unfinished {
            storage.remove(&name)?;
        }
        if let Some(tail) = &tail {
            keep_torn(&*storage, tail, recovered.last + 1)?;
        }
        let last = recovered.last;
        let checksum = tail.as_ref().map_or(0, |tail| tail.checksum);
        let whole = tail.filter(|tail| tail.length >= SEGMENT_HEADER as u64);
        let (segment, first, length) = match whole {
            Some(tail) => {
                if tail.length < tail.written {
                    storage.truncate(&tail.segment, tail.length)?;
                }
                let first = frame::segment_of(&tail.segment).unwrap_or(last + 1);
                let segment = storage.append(&tail.segment)?;
                // Records that a crash of the process left written may not be durable.
                segment.sync()?;
                (segment, first, tail.length)
            }
            None => {
                let name = frame::segment_name(last + 1);
                if storage.list()?.contains(&name) {
                    storage.remove(&name)?;
                }
                let segment = start_segment(&*storage, last + 1)?;
                (segment, last + 1, SEGMENT_HEADER as u64)
            }
        };
        storage.sync()?;
        if last > 0 {
            Marker { number: last, checksum }.write(&*storage, true)?;
        }
        let is_marked = last > 0 || storage.list()?.iter().any(|name| name == MARKER);
        Ok((Log { storage, segment, first, length, last, segment_bytes, is_marked }, recovered))
    }

    /// The number of the last record that was written.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of the segment that is being written.
    pub(crate) fn segment_length(&self) -> u64 {
        self.length
    }

    /// The file of the segment that is being written.
    pub(crate) fn segment(&self) -> &Arc<dyn StorageFile> {
        &self.segment
    }

    /// Whether the next write waits for the disk: it starts another segment, or is the first one.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.is_full() || !self.is_marked
    }

    fn is_full(&self) -> bool {
        self.length >= self.segment_bytes && self.last >= self.first
    }

    /// Writes records, the last of which is `last`. They are not durable yet, but those of earlier
    /// segments are.
    pub(crate) fn write(&mut self, records: &[u8], last: u64) -> Result<(), StorageError> {
        if !self.is_marked {
            Marker::default().write(&*self.storage, true)?;
            self.is_marked = true;
        }
        if self.is_full() {
            self.segment.sync()?;
            self.segment = start_segment(&*self.storage, self.last + 1)?;
            self.first = self.last + 1;
            self.length = SEGMENT_HEADER as u64;
        }
        self.segment.write(records)?;
        self.length += records.len() as u64;
        self.last = last;
        Ok(())
    }
}

/// Copies a torn tail to a file of its own, which is durable when this returns. Old ones are removed.
fn keep_torn(storage: &dyn Storage, tail: &Tail, number: u64) -> Result<(), StorageError> {
    if tail.length == tail.written {
        return Ok(());
    }
    let names = storage.list()?;
    let bytes = storage.read(&tail.segment)?;
    let start = usize::try_from(tail.length).unwrap_or(usize::MAX).min(bytes.len());
    let name = (0..u32::MAX)
        .map(|copy| format!("{number:020}.{copy}{TORN_SUFFIX}"))
        .find(|name| !names.contains(name))
        .unwrap_or_default();
    let file = storage.create(&name)?;
    if let Err(error) =
        file.write(bytes.get(start..).unwrap_or_default()).and_then(|()| file.sync())
    {
        storage.remove(&name)?;
        // A start on a full disk cuts the tail, which makes room, and keeps the copies of earlier ones.
        return if error.is_lack_of_room() { Ok(()) } else { Err(error) };
    }
    let mut torn: Vec<&String> = names.iter().filter(|name| name.ends_with(TORN_SUFFIX)).collect();
    torn.sort_unstable();
    for name in torn.iter().rev().skip(TORN_KEPT - 1) {
        storage.remove(name)?;
    }
    storage.sync()
}

/// Makes a segment whose first record will be `first`. It is durable when this returns.
fn start_segment(storage: &dyn Storage, first: u64) -> Result<Arc<dyn StorageFile>, StorageError> {
    let segment = storage.create(&frame::segment_name(first))?;
    segment.write(&frame::segment_header(first))?;
    segment.sync()?;
    storage.sync()?;
    Ok(segment)
}

/// Stores the state after the record `number`, which must be durable, and removes files that it
/// makes superfluous.
pub(crate) fn store_image(
    storage: &dyn Storage,
    number: u64,
    pieces: &[&[u8]],
) -> Result<(), StorageError> {
    let name = frame::image_name(number);
    let new = format!("{name}{}", frame::NEW_SUFFIX);
    if storage.list()?.contains(&new) {
        storage.remove(&new)?;
    }
    let file = storage.create(&new)?;
    file.write(&frame::image_header(number, pieces))?;
    for piece in pieces {
        file.write(piece)?;
    }
    file.sync()?;
    storage.rename(&new, &name)?;
    storage.sync()?;
    remove_superfluous(storage)
}

/// Makes a journal that continues from an image of another one: the next record has the number
/// after it. The storage must hold no journal.
///
/// # Errors
/// The storage cannot be written.
pub fn seed(storage: &dyn Storage, number: u64, image: &[u8]) -> Result<(), StorageError> {
    store_image(storage, number, &[image])
}

/// Removes images except the last two, and segments whose records are all in the older of these.
fn remove_superfluous(storage: &dyn Storage) -> Result<(), StorageError> {
    let files = Files::of(storage)?;
    let Some(kept_from) = files.images.len().checked_sub(IMAGES_KEPT) else { return Ok(()) };
    let Some((superfluous, [oldest, ..])) = files.images.split_at_checked(kept_from) else {
        return Ok(());
    };
    for number in superfluous {
        storage.remove(&frame::image_name(*number))?;
    }
    // A segment ends where the next one starts.
    for pair in files.segments.windows(2) {
        if let [first, next] = pair
            && *next <= oldest + 1
        {
            storage.remove(&frame::segment_name(*first))?;
        }
    }
    storage.sync()
}
