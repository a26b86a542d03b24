//! Writes an object in parts. It is seen when it is whole, or, of the output of a task, when its job is committed.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::bucket::SharedBucket;
use super::pending::Record;
use crate::path::FsPath;
use crate::{Answer, ErrorKind, FileWriter, FsError};

/// Bytes of the first parts. Stores want at least 5 MiB of all but the last one.
const PART_BYTES: usize = 8 << 20;
/// So many parts have one size, the next ones twice that: stores take at most 10,000 parts, which is 8 TiB so.
const PARTS_OF_A_SIZE: usize = 1000;
/// Parts that are being sent.
const MAX_IN_FLIGHT: usize = 2;

pub(super) struct Writer {
    bucket: SharedBucket,
    /// The object.
    path: FsPath,
    /// Where its upload is noted until the job is committed; none: it is completed when the writer is closed.
    record: Option<FsPath>,
    upload: Option<Arc<str>>,
    /// The tags of the parts that are there.
    tags: Vec<Option<String>>,
    sending: JoinSet<Result<(usize, String), FsError>>,
    buffer: Vec<u8>,
    sent: u64,
}

impl Writer {
    pub(super) fn new(bucket: SharedBucket, path: FsPath) -> Writer {
        Writer {
            bucket,
            path,
            record: None,
            upload: None,
            tags: Vec::new(),
            sending: JoinSet::new(),
            buffer: Vec::new(),
            sent: 0,
        }
    }

    /// One whose upload is noted at `record`, before anything is sent.
    pub(super) async fn noted(
        bucket: SharedBucket,
        path: FsPath,
        record: FsPath,
    ) -> Result<Writer, FsError> {
        let mut writer = Writer::new(bucket, path);
        let upload = writer.upload().await?;
        let noted = writer.bucket.put(&record, Record::begun(&upload).to_json()).await;
        writer.record = Some(record);
        match noted {
            Ok(()) => Ok(writer),
            Err(error) => Err(writer.given_up(error).await),
        }
    }

    async fn upload(&mut self) -> Result<Arc<str>, FsError> {
        if let Some(upload) = &self.upload {
            return Ok(upload.clone());
        }
        let upload: Arc<str> = self.bucket.begin_upload(&self.path).await?.into();
        Ok(self.upload.insert(upload).clone())
    }

    fn part_bytes(&self) -> usize {
        PART_BYTES << (self.tags.len() / PARTS_OF_A_SIZE).min(10)
    }

    async fn send(&mut self) -> Result<(), FsError> {
        while self.sending.len() >= MAX_IN_FLIGHT {
            self.wait_for_part().await?;
        }
        let upload = self.upload().await?;
        let (bucket, path, number) = (self.bucket.clone(), self.path.clone(), self.tags.len());
        let bytes = std::mem::take(&mut self.buffer);
        self.sent += bytes.len() as u64;
        self.tags.push(None);
        self.sending.spawn(async move {
            let tag = bucket.put_part(&path, &upload, number, bytes).await?;
            Ok((number, tag))
        });
        Ok(())
    }

    async fn wait_for_part(&mut self) -> Result<(), FsError> {
        let Some(part) = self.sending.join_next().await else { return Ok(()) };
        let stopped = |error: tokio::task::JoinError| {
            FsError::new(
                ErrorKind::Io,
                "write",
                &self.path,
                format!("the work was stopped: {error}"),
            )
        };
        let (number, tag) = part.map_err(stopped)??;
        if let Some(slot) = self.tags.get_mut(number) {
            *slot = Some(tag);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), FsError> {
        if self.upload.is_none() {
            let bytes = std::mem::take(&mut self.buffer);
            return self.bucket.put(&self.path, bytes).await;
        }
        // An upload has one part, if only an empty one.
        if !self.buffer.is_empty() || self.tags.is_empty() {
            self.send().await?;
        }
        while !self.sending.is_empty() {
            self.wait_for_part().await?;
        }
        let upload = self.upload().await?;
        let tags: Vec<String> = self.tags.iter().flatten().cloned().collect();
        match &self.record {
            None => self.bucket.complete(&self.path, &upload, &tags).await,
            Some(record) => self.bucket.put(record, Record::sent(&upload, tags).to_json()).await,
        }
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
        if let Some(upload) = self.upload.take() {
            self.bucket.abort(&self.path, &upload).await?;
        }
        match self.record.take() {
            Some(record) => self.bucket.delete(&record).await,
            None => Ok(()),
        }
    }
}

impl FileWriter for Writer {
    fn position(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut rest = bytes;
            while !rest.is_empty() {
                let room = self.part_bytes().saturating_sub(self.buffer.len()).min(rest.len());
                let (now, later) = rest.split_at(room);
                self.buffer.extend_from_slice(now);
                rest = later;
                if self.buffer.len() >= self.part_bytes() {
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
                Ok(()) => {
                    self.upload = None;
                    Ok(())
                }
                Err(error) => Err(self.given_up(error).await),
            }
        })
    }

    fn abort(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.abort_now().await })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (bucket, path, record) = (self.bucket.clone(), self.path.clone(), self.record.take());
        runtime.spawn(async move {
            let aborted = bucket.abort(&path, &upload).await;
            if let Err(error) = aborted {
                tracing::warn!(%error, "an upload that was given up is left");
            } else if let Some(record) = record
                && let Err(error) = bucket.delete(&record).await
            {
                tracing::warn!(%error, "the note of an upload that was given up is left");
            }
        });
    }
}
