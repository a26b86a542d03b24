//! Reads an object by ranges, each on the condition that it is still the object that was opened.

use bytes::{Buf, Bytes};
use futures_util::stream::BoxStream;

use super::bucket::SharedBucket;
use super::fault;
use super::http::MAX_ANSWER_BYTES;
use crate::path::FsPath;
use crate::{Answer, ErrorKind, FileReader, FsError};

/// Bytes of one request: what is asked for and not read is lost when the reader goes elsewhere.
const RANGE_BYTES: u64 = MAX_ANSWER_BYTES;

pub(super) struct Reader {
    pub(super) bucket: SharedBucket,
    pub(super) path: FsPath,
    pub(super) length: u64,
    /// Names the content of the object.
    pub(super) tag: Option<String>,
    position: u64,
    end: u64,
    body: Option<Body>,
}

/// The answer to a request that is being read.
struct Body {
    bytes: BoxStream<'static, object_store::Result<Bytes>>,
    /// What has come and is not read.
    piece: Bytes,
    /// The end of its range.
    end: u64,
}

impl Reader {
    pub(super) fn new(
        bucket: SharedBucket,
        path: FsPath,
        length: u64,
        tag: Option<String>,
    ) -> Reader {
        Reader { bucket, path, length, tag, position: 0, end: u64::MAX, body: None }
    }

    /// The next bytes that are there; none at the end.
    async fn piece(&mut self) -> Result<Option<&mut Bytes>, FsError> {
        let end = self.length.min(self.end.max(self.position.saturating_add(1)));
        if self.position >= end {
            return Ok(None);
        }
        if self.body.as_ref().is_none_or(|body| body.end <= self.position) {
            let range = self.position..end.min(self.position.saturating_add(RANGE_BYTES));
            let until = range.end;
            let found = self.bucket.get(&self.path, range, self.tag.as_deref()).await?;
            if found.meta.size != self.length {
                let (kind, message) = fault::changed();
                return Err(FsError::new(kind, "read", &self.path, message));
            }
            // A server without tags at its lists has one here.
            self.tag = self.tag.take().or(found.meta.e_tag.clone());
            self.body = Some(Body { bytes: found.into_stream(), piece: Bytes::new(), end: until });
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        while body.piece.is_empty() {
            match self.bucket.next_of(&self.path, &mut body.bytes).await? {
                Some(piece) => body.piece = piece,
                None => {
                    let message = "the object store has sent less than was asked for";
                    let error = FsError::new(ErrorKind::Malformed, "read", &self.path, message);
                    return Err(error.at(self.bucket.server()));
                }
            }
        }
        Ok(Some(&mut body.piece))
    }
}

impl FileReader for Reader {
    fn length(&self) -> u64 {
        self.length
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) {
        let (from, left) = (self.position, self.body.as_ref().map_or(0, |body| body.piece.len()));
        let skipped = position.checked_sub(from).and_then(|skipped| usize::try_from(skipped).ok());
        match (skipped.filter(|skipped| *skipped <= left), &mut self.body) {
            (Some(skipped), Some(body)) => body.piece.advance(skipped),
            _ => self.body = None,
        }
        self.position = position;
    }

    fn read_until(&mut self, end: u64) {
        self.end = end;
    }

    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Answer<'a, usize> {
        Box::pin(async move {
            if buffer.is_empty() {
                return Ok(0);
            }
            let left = self.length.saturating_sub(self.position);
            let Some(piece) = self.piece().await? else { return Ok(0) };
            let most =
                buffer.len().min(piece.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
            let (Some(into), Some(from)) = (buffer.get_mut(..most), piece.get(..most)) else {
                return Ok(0);
            };
            into.copy_from_slice(from);
            piece.advance(most);
            self.position += most as u64;
            Ok(most)
        })
    }
}
