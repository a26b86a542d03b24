//! The state file: the state that a cluster manager saves in safe mode, so that another one, Java
//! or ours, can continue from it.
//!
//! Spec: cluster-manager/07. [`read`] reads every file that the original writes, and the original
//! reads files of [`write`]. A file has no version and no checksum, so errors are found by reading
//! it completely, and reported with their place in the document.

mod java_json;
mod layout;
mod reading;
mod replace;
#[cfg(test)]
mod tests;
mod writing;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use thiserror::Error;

use self::java_json::JavaJson;
pub(super) use self::reading::{Oddity, id_prefix};
pub(super) use self::replace::{OUTDATED, RECOVERED, set_aside};
use super::undelivered::Undelivered;
use corona_engine::snapshot::EngineState;
use corona_model::types::Millis;

/// Bytes of JSON that are read. A million requests take about a gigabyte in the original's
/// layout; a compressed file can claim any size.
const MAX_JSON_BYTES: u64 = 4 << 30;

/// The state of a cluster manager that must outlive it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedState {
    pub(super) engine: EngineState,
    /// Pending notifications by session.
    pub(super) undelivered: Vec<Undelivered>,
}

/// Why a state file cannot be read.
#[derive(Debug, Error)]
pub enum StateFileError {
    /// The system cannot read it, or it is damaged or too large.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not JSON, or not the JSON of a state.
    #[error(transparent)]
    Content(#[from] Wrong),
}

/// Something wrong at a place in the document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{what}", if place.is_empty() { String::new() } else { format!("{place}: ") })]
pub struct Wrong {
    /// Such as `sessionManager.sessions["202611210032.1"].idToGrant["3"]`; empty for the whole.
    pub place: String,
    /// The error found there.
    pub what: String,
}

impl Wrong {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Wrong {
        Wrong { place: place.into(), what: what.into() }
    }
}

/// Reads a file, compressed or not. `now` stands for the times that files of older versions do
/// not have.
pub(super) fn read(path: &Path, now: Millis) -> Result<(SavedState, Vec<Oddity>), StateFileError> {
    let document = read_document(File::open(path)?, MAX_JSON_BYTES)?;
    Ok(reading::state_of(document, now)?)
}

/// Writes a file in the place of one that may be there, which is kept as `<path>.previous`.
///
/// # Errors
/// The system's error. The old file is then still in its place.
pub(super) fn write(path: &Path, compress: bool, state: &SavedState) -> io::Result<()> {
    replace::replace(path, |file| {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        write_to(&mut out, compress, state)?;
        out.flush()
    })
}

/// Reads a state file, compressed or not, and returns it as this program writes it, without
/// compression. Takes the bytes of the file, of the original or of this program.
///
/// # Errors
/// The error that makes the file useless for a recovery.
pub fn rewritten_state(file: &[u8]) -> Result<Vec<u8>, StateFileError> {
    let (state, _) = reading::state_of(read_document(file, MAX_JSON_BYTES)?, Millis(0))?;
    let mut written = Vec::new();
    write_to(&mut written, false, &state)?;
    Ok(written)
}

fn write_to(out: &mut dyn Write, compress: bool, state: &SavedState) -> io::Result<()> {
    let document = writing::document_of(state);
    if compress {
        let mut gzip = GzEncoder::new(out, Compression::default());
        serde_json::to_writer(&mut gzip, &document)?;
        gzip.finish()?;
    } else {
        let mut json = serde_json::Serializer::with_formatter(out, JavaJson::default());
        document.serialize(&mut json)?;
    }
    Ok(())
}

fn read_document<T: DeserializeOwned>(file: impl Read, limit: u64) -> Result<T, StateFileError> {
    const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
    let mut file = BufReader::with_capacity(1 << 16, file);
    if file.fill_buf()?.starts_with(GZIP_MAGIC) {
        read_json(&mut Bounded { inner: MultiGzDecoder::new(file), limit, left: limit })
    } else {
        read_json(&mut Bounded { inner: file, limit, left: limit })
    }
}

/// One type of reader for all files: the code that reads each structure is then there once.
fn read_json<T: DeserializeOwned>(json: &mut dyn Read) -> Result<T, StateFileError> {
    let json = BufReader::with_capacity(1 << 16, json);
    let mut json = serde_json::Deserializer::from_reader(json);
    let document = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let place = place(error.path());
        wrong(place, error.into_inner())
    })?;
    json.end().map_err(|error| wrong(String::new(), error))?;
    Ok(document)
}

fn wrong(place: String, error: serde_json::Error) -> StateFileError {
    if error.is_io() {
        io::Error::from(error).into()
    } else {
        Wrong::new(place, error.to_string()).into()
    }
}

/// Names as they stand where they are plain words, in brackets otherwise.
fn place(path: &serde_path_to_error::Path) -> String {
    let mut place = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => place += &format!("[{index}]"),
            Segment::Map { key } if key.chars().all(|c| c.is_ascii_alphabetic() || c == '_') => {
                if !place.is_empty() {
                    place.push('.');
                }
                place += key;
            }
            Segment::Map { key } => place += &format!("[{key:?}]"),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    place
}

/// Reads no more than a limit, and fails where there is more.
#[derive(Debug)]
struct Bounded<R> {
    inner: R,
    limit: u64,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.inner.read(buffer)?;
        match self.left.checked_sub(size as u64) {
            Some(left) => self.left = left,
            None => {
                let text = format!("more than {} bytes, which is no state file", self.limit);
                return Err(io::Error::other(text));
            }
        }
        Ok(size)
    }
}
