//! Looking at a journal from outside, and the way on when it is damaged.

use super::frame;
use super::marker::{MARKER, Marker};
use super::recovery::{
    Beginning, Entry, Files, OpenError, Recovered, Rejected, recover, recover_from, scan,
};
use super::storage::{Storage, StorageError};

/// The contents of a journal's files.
#[derive(Debug, Default)]
pub struct Report {
    /// Images and whether they are whole, the oldest first: number, bytes, whole.
    pub images: Vec<(u64, u64, bool)>,
    /// Segments, the oldest first.
    pub segments: Vec<SegmentReport>,
    /// The record up to which the marker says that everything was durable; `None` without a marker.
    pub marker: Option<u64>,
    /// The state that opening it would recover, or the reason why it cannot be opened.
    pub outcome: Option<Result<Recovered, OpenError>>,
}

/// The contents of a segment.
#[derive(Debug)]
pub struct SegmentReport {
    /// The name of the file.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// The number of its first record.
    pub first: u64,
    /// Whole records from its start.
    pub records: u64,
    /// Bytes behind them: a torn tail, or damage.
    pub bytes_behind: u64,
    /// Why it cannot be used as it is.
    pub problem: Option<OpenError>,
}

/// Looks at every file of a journal. Nothing is changed.
///
/// # Errors
/// A file cannot be read.
pub fn check(storage: &dyn Storage) -> Result<Report, StorageError> {
    // First: of a running cluster manager it grows.
    let marker = match Marker::read(storage) {
        Ok(marker) => marker.map(|marker| marker.number),
        Err(OpenError::Storage(error)) => return Err(error),
        // The outcome has it.
        Err(_) => None,
    };
    let files = Files::of(storage)?;
    let mut report = Report { marker, ..Report::default() };
    for number in &files.images {
        let bytes = storage.read(&frame::image_name(*number))?;
        let is_whole = frame::read_image(&bytes).is_ok_and(|(found, _)| found == *number);
        report.images.push((*number, bytes.len() as u64, is_whole));
    }
    for (place, first) in files.segments.iter().enumerate() {
        let name = frame::segment_name(*first);
        let bytes = storage.read(&name)?;
        let is_last = place + 1 == files.segments.len();
        let (mut records, mut length) = (0, 0);
        let scanned = scan(&name, &bytes, *first, is_last, marker, &mut |record| {
            records += 1;
            length += record.len();
            Ok(())
        });
        let length = length + frame::SEGMENT_HEADER.min(bytes.len());
        report.segments.push(SegmentReport {
            name,
            bytes: bytes.len() as u64,
            first: *first,
            records,
            bytes_behind: (bytes.len() - length) as u64,
            problem: scanned.err(),
        });
    }
    report.outcome = Some(recover(storage, &mut |_| Ok(())).map(|(recovered, _)| recovered));
    Ok(report)
}

/// Reads a journal as opening it would, without changing anything. Returns the findings.
///
/// # Errors
/// It could not be opened. Everything before the damage was shown.
pub fn show(
    storage: &dyn Storage,
    mut visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<Recovered, OpenError> {
    recover(storage, &mut visit).map(|(recovered, _)| recovered)
}

/// The same from as early on as the files lead to a state.
///
/// # Errors
/// As [`show`].
pub fn show_all(
    storage: &dyn Storage,
    mut visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
) -> Result<Recovered, OpenError> {
    recover_from(storage, Beginning::Oldest, &mut visit).map(|(recovered, _)| recovered)
}

/// The result of a repair.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The number of the last record that is left.
    pub last: u64,
    /// Files that were given another name, with that name.
    pub set_aside: Vec<(String, String)>,
}

/// The ending of files that a repair has set aside.
const ASIDE: &str = ".damaged";

/// Makes a damaged journal one that can be opened again: the records after the damage are set
/// aside, so the state is the one before the first damaged record. They stay in the directory under
/// a name that ends in `.damaged`, as does the marker of a journal whose files are lost. A journal that can be opened is left as it is.
///
/// # Errors
/// A file cannot be read or written, or there is nothing whole to begin with.
pub fn repair(storage: &dyn Storage) -> Result<Repaired, OpenError> {
    let mut repaired = Repaired::default();
    // Each round sets a file aside, so it ends.
    loop {
        let error = match recover(storage, &mut |_| Ok(())) {
            Ok((recovered, tail)) => {
                repaired.last = recovered.last;
                if repaired.last > 0 && !repaired.set_aside.is_empty() {
                    let checksum = tail.map_or(0, |tail| tail.checksum);
                    Marker { number: repaired.last, checksum }.write(storage, true)?;
                }
                return Ok(repaired);
            }
            Err(error) => error,
        };
        let files = Files::of(storage)?;
        match &error {
            OpenError::Damaged { file, offset, .. } => match frame::segment_of(file) {
                Some(first) => {
                    for later in files.segments.iter().filter(|later| **later > first) {
                        set_aside(storage, &frame::segment_name(*later), &mut repaired)?;
                    }
                    let bytes = storage.read(file)?;
                    set_aside(storage, file, &mut repaired)?;
                    let kept = usize::try_from(*offset).unwrap_or(0).min(bytes.len());
                    if kept >= frame::SEGMENT_HEADER {
                        copy(storage, file, bytes.get(..kept).unwrap_or(&bytes))?;
                    }
                }
                None => return Err(error),
            },
            OpenError::Missing { file, expected, .. } => match frame::segment_of(file) {
                // Without its beginning none of the records can be used.
                Some(first) if *expected > 1 => {
                    for later in files.segments.iter().filter(|later| **later >= first) {
                        set_aside(storage, &frame::segment_name(*later), &mut repaired)?;
                    }
                }
                Some(_) => return Err(error),
                // The records end before the image: it stands for all of them.
                None => {
                    for segment in &files.segments {
                        set_aside(storage, &frame::segment_name(*segment), &mut repaired)?;
                    }
                }
            },
            // What is left is whole.
            OpenError::Lost { .. } | OpenError::Foreign { .. } => {
                set_aside(storage, MARKER, &mut repaired)?;
            }
            _ => return Err(error),
        }
        storage.sync()?;
    }
}

fn set_aside(
    storage: &dyn Storage,
    name: &str,
    repaired: &mut Repaired,
) -> Result<(), StorageError> {
    let names = storage.list()?;
    let aside = (0..)
        .map(|number| match number {
            0 => format!("{name}{ASIDE}"),
            _ => format!("{name}.{number}{ASIDE}"),
        })
        .find(|aside| !names.contains(aside))
        .unwrap_or_default();
    if name == MARKER {
        // It may be on another disk than the directory.
        copy(storage, &aside, &storage.read(name)?)?;
        storage.remove(name)?;
    } else {
        storage.rename(name, &aside)?;
    }
    repaired.set_aside.push((name.to_owned(), aside));
    Ok(())
}

fn copy(storage: &dyn Storage, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
    let file = storage.create(name)?;
    file.write(bytes)?;
    file.sync()
}
