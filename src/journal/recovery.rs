//! Recovery of the contents of a journal from its files. Reads only; the log cuts off torn tails.

use std::error::Error;

use thiserror::Error as ThisError;

use super::frame::{self, Frame, Header, SEGMENT_HEADER};
use super::marker::Marker;
use super::storage::{Storage, StorageError};

/// A part of a journal's contents, in the order in which it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The state after the record of this number. It comes first, and at most once.
    Image {
        /// The number of the last record that it includes.
        number: u64,
        /// The stored bytes.
        bytes: &'a [u8],
    },
    /// A record behind the image. Numbers follow one another without a gap.
    Record {
        /// Its number.
        number: u64,
        /// The stored bytes.
        bytes: &'a [u8],
    },
}

/// Why the reader of an entry cannot use it.
pub type Rejected = Box<dyn Error + Send + Sync>;

/// The result of reading the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of the image; 0 without one.
    pub image: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Records behind the image.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// The number of the last record; 0 in an empty journal.
    pub last: u64,
    /// Bytes that were being written when the power went. Opening the journal moves them to a file whose
    /// name ends in `.torn`.
    pub torn_bytes: u64,
    /// Images that are damaged; an older one and the records behind it took their place.
    pub damaged_images: Vec<String>,
}

/// Why a journal cannot be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file is damaged at a place that was durable.
    #[error("{file}: damaged at byte {offset}: {what}")]
    Damaged {
        /// The name of the file.
        file: String,
        /// The place, in bytes from its start.
        offset: u64,
        /// The kind of damage.
        what: &'static str,
    },
    /// Records are missing between two files.
    #[error("{file}: starts with record {found}, but record {expected} is in no file")]
    Missing {
        /// The file behind the gap.
        file: String,
        /// The number that should come next.
        expected: u64,
        /// The number that comes next.
        found: u64,
    },
    /// Files are gone, or end earlier than they once did.
    #[error("{}", lost(*durable, *last))]
    Lost {
        /// Everything up to this record was durable, as the marker says.
        durable: u64,
        /// The last record that is left; 0 without any.
        last: u64,
    },
    /// The marker is that of another journal.
    #[error(
        "record {number} is another one than the marker beside the directory names: the directory \
         and the marker belong to different journals"
    )]
    Foreign {
        /// The number of the record.
        number: u64,
    },
    /// A file was written by another version of this program.
    #[error("{file}: has version {version}, and this program reads version {known}", known = frame::VERSION)]
    Version {
        /// The name of the file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// An entry is whole, but cannot be used.
    #[error("record {number}: {source}")]
    Rejected {
        /// The number of the record or image.
        number: u64,
        /// The reason.
        source: Rejected,
    },
}

fn lost(durable: u64, last: u64) -> String {
    match (durable, last) {
        (0, _) => "lost: a journal was begun here, and its files are gone".to_owned(),
        (_, 0) => {
            format!("lost: the journal was stored up to record {durable}, and no record is left")
        }
        _ => format!(
            "lost: the journal was stored up to record {durable}, and its files end with record {last}"
        ),
    }
}

/// Where writing continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The last segment.
    pub(crate) segment: String,
    /// Its bytes that count.
    pub(crate) length: u64,
    /// Its bytes in all.
    pub(crate) written: u64,
    /// The checksum of its last record; 0 without any.
    pub(crate) checksum: u32,
}

/// The files of a journal, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Numbers of images, ascending.
    pub(crate) images: Vec<u64>,
    /// First numbers of segments, ascending.
    pub(crate) segments: Vec<u64>,
    /// Files that were being written.
    pub(crate) unfinished: Vec<String>,
}

impl Files {
    pub(crate) fn of(storage: &dyn Storage) -> Result<Files, StorageError> {
        let mut files = Files::default();
        for name in storage.list()? {
            if let Some(number) = frame::image_of(&name) {
                files.images.push(number);
            } else if let Some(first) = frame::segment_of(&name) {
                files.segments.push(first);
            } else if name.ends_with(frame::NEW_SUFFIX) {
                files.unfinished.push(name);
            }
        }
        files.images.sort_unstable();
        files.segments.sort_unstable();
        Ok(files)
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With the newest whole image: the shortest way to the last state.
    NewestImage,
    /// With the first record behind which all others are there, or the oldest whole image before it.
    Oldest,
}

/// Shows the newest whole image and the records behind it.
pub(crate) fn recover(
    storage: &dyn Storage,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<(Recovered, Option<Tail>), OpenError> {
    recover_from(storage, Beginning::NewestImage, visit)
}

/// Shows a whole image and the records behind it.
pub(crate) fn recover_from(
    storage: &dyn Storage,
    beginning: Beginning,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<(Recovered, Option<Tail>), OpenError> {
    let marker = Marker::read(storage)?;
    let mut files = Files::of(storage)?;
    let mut recovered = Recovered::default();
    if let (Beginning::Oldest, Some(first)) = (beginning, files.segments.first().copied()) {
        // Images before the first record lead to nothing, and record 1 is a whole state.
        files.images.retain(|number| first > 1 && number.saturating_add(1) >= first);
        files.images.reverse();
    }
    first_image(storage, &files, &mut recovered, visit)?;
    recovered.last = recovered.image;
    let mut tail = None;
    // Segments that end before the image need not be read.
    let needed = files.segments.partition_point(|first| *first <= recovered.image + 1);
    let mut expected = None;
    for (place, first) in files.segments.iter().enumerate().skip(needed.saturating_sub(1)) {
        let name = frame::segment_name(*first);
        let expected_here = expected.unwrap_or((*first).min(recovered.image + 1));
        if *first != expected_here {
            return Err(OpenError::Missing { file: name, expected: expected_here, found: *first });
        }
        let bytes = storage.read(&name)?;
        let is_last = place + 1 == files.segments.len();
        let image = recovered.image;
        let durable = marker.map(|marker| marker.number);
        let scanned = scan(&name, &bytes, *first, is_last, durable, &mut |record| {
            if let Some(Marker { number, checksum }) = marker
                && (record.number == number && record.checksum != checksum && checksum != 0)
            {
                return Err(OpenError::Foreign { number });
            }
            if record.number <= image {
                return Ok(());
            }
            recovered.records += 1;
            recovered.record_bytes += record.len() as u64;
            recovered.last = record.number;
            let (number, bytes) = (record.number, record.payload);
            visit(Entry::Record { number, bytes })
                .map_err(|source| OpenError::Rejected { number, source })
        })?;
        expected = Some(scanned.next);
        if is_last {
            recovered.torn_bytes = (bytes.len() - scanned.length) as u64;
            let (length, written) = (scanned.length as u64, bytes.len() as u64);
            tail = Some(Tail { segment: name, length, written, checksum: scanned.checksum });
        }
    }
    if let Some(next) = expected
        && next <= recovered.image
    {
        // An image is written after its records are durable, so they cannot be fewer.
        let file = frame::image_name(recovered.image);
        return Err(OpenError::Missing { file, expected: next, found: recovered.image });
    }
    if let Some(Marker { number: durable, .. }) = marker
        && (recovered.last < durable || (tail.is_none() && recovered.image == 0))
    {
        return Err(OpenError::Lost { durable, last: recovered.last });
    }
    Ok((recovered, tail))
}

/// Shows the newest whole image and the records behind it up to `last`, of a journal that is open.
/// Returns the number of the last record that was shown or that the image includes.
pub(crate) fn read(
    storage: &dyn Storage,
    last: u64,
    mut visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<u64, OpenError> {
    let files = Files::of(storage)?;
    let mut recovered = Recovered::default();
    first_image(storage, &files, &mut recovered, &mut visit)?;
    let mut shown = recovered.image;
    let needed = files.segments.partition_point(|first| *first <= shown + 1);
    for first in files.segments.iter().skip(needed.saturating_sub(1)) {
        let name = frame::segment_name(*first);
        if *first > shown + 1 {
            return Err(OpenError::Missing { file: name, expected: shown + 1, found: *first });
        }
        let bytes = storage.read(&name)?;
        // The end of any of them may have been written after the list was made.
        scan(&name, &bytes, *first, true, None, &mut |record| {
            if record.number <= shown || record.number > last {
                return Ok(());
            }
            shown = record.number;
            let (number, bytes) = (record.number, record.payload);
            visit(Entry::Record { number, bytes })
                .map_err(|source| OpenError::Rejected { number, source })
        })?;
        if shown >= last {
            break;
        }
    }
    if shown < last {
        let file = frame::segment_name(shown + 1);
        return Err(OpenError::Missing { file, expected: shown + 1, found: last });
    }
    Ok(shown)
}

/// Shows the first whole one of these images, from the last one on.
fn first_image(
    storage: &dyn Storage,
    files: &Files,
    recovered: &mut Recovered,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<(), OpenError> {
    for number in files.images.iter().rev() {
        let name = frame::image_name(*number);
        let bytes = storage.read(&name)?;
        match frame::read_image(&bytes) {
            Ok((found, payload)) if found == *number => {
                recovered.image = *number;
                recovered.image_bytes = bytes.len() as u64;
                return visit(Entry::Image { number: *number, bytes: payload })
                    .map_err(|source| OpenError::Rejected { number: *number, source });
            }
            Err(Header::Version(version)) => {
                return Err(OpenError::Version { file: name, version });
            }
            _ => recovered.damaged_images.push(name),
        }
    }
    // Without an image the first record must have number 1.
    match (recovered.damaged_images.first(), files.segments.first()) {
        (Some(file), first) if first != Some(&1) => Err(OpenError::Damaged {
            file: file.clone(),
            offset: 0,
            what: "the image is not whole, and there is no older one",
        }),
        (None, Some(first)) if *first != 1 => Err(OpenError::Missing {
            file: frame::segment_name(*first),
            expected: 1,
            found: *first,
        }),
        _ => Ok(()),
    }
}

/// The valid part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Bytes up to the end of the last whole record.
    pub(crate) length: usize,
    /// The number of the record that comes next.
    pub(crate) next: u64,
    /// The checksum of the last record; 0 without any.
    pub(crate) checksum: u32,
}

/// Goes through the records of a segment. Only the last segment may end with a torn record, and only behind
/// `durable`, which the journal's marker says.
pub(crate) fn scan(
    name: &str,
    bytes: &[u8],
    first: u64,
    is_last: bool,
    durable: Option<u64>,
    visit: &mut dyn FnMut(Frame<'_>) -> Result<(), OpenError>,
) -> Result<Scanned, OpenError> {
    let damaged = |offset: usize, what| OpenError::Damaged {
        file: name.to_owned(),
        offset: offset as u64,
        what,
    };
    let was_durable = |number: u64| durable.is_some_and(|durable| number <= durable);
    match frame::read_segment_header(bytes) {
        Header::Good(found) if found == first => {}
        Header::Good(_) => return Err(damaged(0, "the header is that of another segment")),
        Header::Version(version) => {
            return Err(OpenError::Version { file: name.to_owned(), version });
        }
        // It is durable before anything behind it, and the first one before there is a marker.
        Header::Bad
            if is_last
                && bytes.len() <= SEGMENT_HEADER
                && !was_durable(first)
                && (first > 1 || durable.is_none()) =>
        {
            return Ok(Scanned { length: 0, next: first, checksum: 0 });
        }
        Header::Bad => return Err(damaged(0, "the header of the segment is not whole")),
    }
    let mut scanned = Scanned { length: SEGMENT_HEADER, next: first, checksum: 0 };
    while let Some(rest @ [_, ..]) = bytes.get(scanned.length..) {
        match frame::read_record(rest).filter(|record| record.number == scanned.next) {
            Some(record) => {
                visit(record)?;
                let length = scanned.length + record.len();
                scanned = Scanned { length, next: scanned.next + 1, checksum: record.checksum };
            }
            None if !is_last => {
                return Err(damaged(scanned.length, "a record is not whole, and others follow"));
            }
            None if was_durable(scanned.next) || is_torn_after_durable(rest, scanned.next) => {
                return Err(damaged(scanned.length, "a record that was durable is not whole"));
            }
            None => break,
        }
    }
    Ok(scanned)
}

/// Whether a later record shows that `number` was durable when it was appended.
fn is_torn_after_durable(bytes: &[u8], number: u64) -> bool {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= frame::RECORD_HEADER) {
        match frame::read_record(rest).filter(|record| record.number >= number) {
            Some(record) if record.durable >= number => return true,
            Some(record) => at += record.len(),
            None => at += 1,
        }
    }
    false
}
