//! Writes an object in parts. It is seen when it is whole, or, of the output of a task, when its job is committed.

use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayloadMut;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::bucket::SharedBucket;
use super::parts::{MAX_PARTS, bytes_of, in_flight_beside};
use super::pending::{Place, Record};
use crate::given_up::{Unfinished, in_background};
use crate::path::FsPath;
use crate::{Answer, ErrorKind, FileWriter, FsError};

/// Bytes that a part grows by.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) struct Writer {
    bucket: SharedBucket,
    /// The object.
    path: FsPath,
    /// Whether an object of this name, which others have made meanwhile, is replaced.
    overwrite: bool,
    upload: Option<Upload>,
    /// The tags of the parts that are there.
    tags: Vec<Option<String>>,
    sending: JoinSet<Result<(usize, String), FsError>>,
    part: PutPayloadMut,
    sent: u64,
}

/// An upload that has begun. It is aborted when it is dropped before it is over.
struct Upload {
    bucket: SharedBucket,
    path: FsPath,
    id: Arc<str>,
    /// Where it is noted until the job is committed; none: it is completed when the writer is closed.
    record: Option<FsPath>,
    is_over: bool,
}

impl Upload {
    /// Begins one. If the caller is dropped meanwhile, it is aborted as soon as its name is known.
    async fn begin(bucket: SharedBucket, path: FsPath) -> Result<Upload, FsError> {
        let (sender, receiver) = oneshot::channel();
        let stopped = FsError::new(ErrorKind::Io, "create", &path, "the work was stopped");
        in_background(async move {
            let begun = bucket.begin_upload(&path).await.map(|id| Upload {
                bucket,
                path,
                id: id.into(),
                record: None,
                is_over: false,
            });
            // Without a receiver an upload is dropped, which gives it up; a request that failed may have begun one.
            !matches!(sender.send(begun), Err(Err(_)))
        });
        receiver.await.unwrap_or(Err(stopped))
    }

    async fn abort(&mut self) -> Result<(), FsError> {
        let aborted = abort(&self.bucket, &self.path, &self.id, self.record.as_ref()).await;
        self.is_over = true;
        aborted
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (bucket, path, id) = (self.bucket.clone(), self.path.clone(), self.id.clone());
        let record = self.record.take();
        in_background(async move {
            let aborted = abort(&bucket, &path, &id, record.as_ref()).await;
            if let Err(error) = &aborted {
                tracing::warn!(%error, "an upload that was given up, or its note, is left");
            }
            aborted.is_ok()
        });
    }
}

/// Aborts an upload, and deletes its note then.
async fn abort(
    bucket: &SharedBucket,
    path: &FsPath,
    id: &str,
    record: Option<&FsPath>,
) -> Result<(), FsError> {
    bucket.abort(path, id).await?;
    match record {
        Some(record) => bucket.delete(record).await,
        None => Ok(()),
    }
}

impl Writer {
    pub(super) fn new(bucket: SharedBucket, path: FsPath, overwrite: bool) -> Writer {
        Writer {
            bucket,
            path,
            overwrite,
            upload: None,
            tags: Vec::new(),
            sending: JoinSet::new(),
            part: empty_part(),
            sent: 0,
        }
    }

    /// One whose upload is noted at `record`, before anything is sent.
    pub(super) async fn noted(
        bucket: SharedBucket,
        record: FsPath,
        place: Place,
    ) -> Result<Writer, FsError> {
        let has_begun = bucket.is_there(&place.begun).await?;
        let mut writer = Writer::new(bucket, place.target, true);
        writer.upload().await?;
        let noted = writer.note(&record, has_begun.then_some(&place.begun));
        match noted.await {
            Ok(()) => Ok(writer),
            Err(error) => Err(writer.given_up(error).await),
        }
    }

    /// Notes the upload. Errors: also that the job, which had begun, has ended meanwhile, so that nobody may look
    /// for uploads any more.
    async fn note(&mut self, record: &FsPath, begun: Option<&FsPath>) -> Result<(), FsError> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        upload.record = Some(record.clone());
        self.bucket.put(record, Record::begun(&upload.id).to_json()).await?;
        match begun {
            Some(begun) if !self.bucket.is_there(begun).await? => {
                let message = "the job has ended";
                Err(FsError::new(ErrorKind::Invalid, "create", &self.path, message))
            }
            _ => Ok(()),
        }
    }

    async fn upload(&mut self) -> Result<Arc<str>, FsError> {
        if self.upload.is_none() {
            self.upload = Some(Upload::begin(self.bucket.clone(), self.path.clone()).await?);
        }
        Ok(self.upload.as_ref().map(|upload| upload.id.clone()).unwrap_or_default())
    }

    async fn send(&mut self) -> Result<(), FsError> {
        if self.tags.len() >= MAX_PARTS {
            let message = format!(
                "an object has at most {MAX_PARTS} parts, which {} bytes have filled",
                self.sent
            );
            return Err(FsError::new(ErrorKind::Invalid, "write", &self.path, message));
        }
        let upload = self.upload().await?;
        let (bucket, path, number) = (self.bucket.clone(), self.path.clone(), self.tags.len());
        let bytes = std::mem::replace(&mut self.part, empty_part()).freeze();
        self.sent += bytes.content_length() as u64;
        self.tags.push(None);
        self.sending.spawn(async move {
            let tag = bucket.put_part(&path, &upload, number, bytes).await?;
            Ok((number, tag))
        });
        while self.sending.len() > in_flight_beside(self.tags.len()) {
            self.wait_for_part().await?;
        }
        Ok(())
    }

    async fn wait_for_part(&mut self) -> Result<(), FsError> {
        let Some(part) = self.sending.join_next().await else { return Ok(()) };
        let part = part.map_err(|error| FsError::stopped("write", &self.path, error));
        let (number, tag) = part??;
        if let Some(slot) = self.tags.get_mut(number) {
            *slot = Some(tag);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), FsError> {
        if self.upload.is_none() {
            let bytes = Bytes::from(std::mem::replace(&mut self.part, empty_part()).freeze());
            return match self.overwrite {
                true => Unfinished::during(self.bucket.put(&self.path, bytes.into())).await,
                false => Unfinished::during(self.bucket.put_new(&self.path, bytes)).await,
            };
        }
        // An upload has one part, if only an empty one.
        if !self.part.is_empty() || self.tags.is_empty() {
            self.send().await?;
        }
        while !self.sending.is_empty() {
            self.wait_for_part().await?;
        }
        let tags: Vec<String> = self.tags.iter().flatten().cloned().collect();
        let Some(upload) = &mut self.upload else { return Ok(()) };
        match &upload.record {
            Some(record) => {
                self.bucket.put(record, Record::sent(&upload.id, tags).to_json()).await?;
            }
            None if self.overwrite => {
                Unfinished::during(self.bucket.complete(&self.path, &upload.id, &tags)).await?;
            }
            None => {
                let completed = self.bucket.complete_new(&self.path, &upload.id, &tags);
                Unfinished::during(completed).await?;
            }
        }
        upload.is_over = true;
        Ok(())
    }

    /// Aborts the upload; the error stays the one of before.
    async fn given_up(mut self, error: FsError) -> FsError {
        if let Err(left) = self.abort_now().await {
            tracing::warn!(error = %left, "an upload that was given up is left");
        }
        error
    }

    async fn abort_now(&mut self) -> Result<(), FsError> {
        self.sending.shutdown().await;
        match self.upload.take() {
            Some(mut upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

fn empty_part() -> PutPayloadMut {
    PutPayloadMut::new().with_block_size(BLOCK_BYTES)
}

impl FileWriter for Writer {
    fn position(&self) -> u64 {
        self.sent + self.part.content_length() as u64
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut rest = bytes;
            while !rest.is_empty() {
                let of_part = bytes_of(self.tags.len());
                let room = of_part.saturating_sub(self.part.content_length()).min(rest.len());
                let (now, later) = rest.split_at(room);
                self.part.extend_from_slice(now);
                rest = later;
                if self.part.content_length() >= of_part {
                    self.send().await?;
                }
            }
            Ok(())
        })
    }

    fn flush(&mut self) -> Answer<'_, ()> {
        let message =
            "an object is seen only when it is whole: it cannot be read while it is written";
        let error = FsError::new(ErrorKind::Unsupported, "flush", &self.path, message);
        Box::pin(std::future::ready(Err(error)))
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            match self.finish().await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.given_up(error).await),
            }
        })
    }

    fn abort(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.abort_now().await })
    }
}
