//! `s3:`: objects of a store that speaks Amazon's protocol, by the crate `object_store`.
//!
//! Objects have names with slashes, and directories exist as long as there are objects below them. An object is seen
//! when it is whole, and never changes: who replaces it makes another one, which readers of the old one notice.
//! `access.rs` has the address and the keys, `bucket.rs` the calls, `http.rs` the connections, `pending.rs` the output
//! of tasks, `pages.rs` the pages of lists, `parts.rs` the sizes of parts, `fault.rs` the words of errors.

mod access;
mod bucket;
mod fault;
mod http;
mod pages;
mod parts;
mod pending;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;

pub use access::ObjectAccess;
use bucket::{Bucket, MAX_PARALLEL, SharedBucket};
use pages::Mark;
use pending::{
    BEGUN, MAX_RECORD_BYTES, Place, Record, TEMPORARY, has_notes_alone, output_of, path_of,
    reach_of,
};
use reader::Reader;
use writer::Writer;

use crate::path::{FsPath, Root};
use crate::{
    Answer, CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FileSystemSettings,
    FileWriter, FsError, OddEntry, Page, Summary,
};

/// The scheme.
pub(crate) const SCHEME: &str = "s3";
/// Everybody whom the store lets in may read and write.
const MODE: u16 = 0o666;
const DIRECTORY_MODE: u16 = 0o777;

/// A bucket as a file system.
#[derive(Debug)]
pub struct ObjectStore {
    root: Root,
    bucket: SharedBucket,
    owner: String,
    block_bytes: u64,
}

impl ObjectStore {
    /// The bucket that the root names.
    ///
    /// # Errors
    /// It cannot be the name of a bucket, or the access cannot be used.
    pub fn new(
        root: &Root,
        access: &ObjectAccess,
        settings: &FileSystemSettings,
    ) -> Result<ObjectStore, FsError> {
        let name = root.authority();
        let is_name = (3..=63).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        if !is_name {
            let message = "names no bucket: s3://BUCKET/NAME, where BUCKET has 3 to 63 letters, digits, dots and dashes";
            return Err(FsError::new(ErrorKind::Invalid, "open", root, message));
        }
        let bucket = Bucket::open(access, name, settings.socket_timeout, settings.object_patience)?;
        Ok(ObjectStore {
            root: root.clone(),
            bucket: Arc::new(bucket),
            owner: settings.user.clone(),
            block_bytes: settings.block_bytes,
        })
    }

    fn check(&self, call: &'static str, path: &FsPath) -> Result<(), FsError> {
        (self as &dyn FileSystem).check(call, path)
    }

    fn file(&self, path: FsPath, meta: &ObjectMeta) -> FileStatus {
        FileStatus {
            bytes: meta.size,
            replication: 1,
            block_bytes: self.block_bytes,
            modified_ms: meta.last_modified.timestamp_millis(),
            permission: MODE,
            owner: self.owner.clone(),
            version: meta.e_tag.clone(),
            ..FileStatus::empty(path)
        }
    }

    fn directory(&self, path: FsPath) -> FileStatus {
        FileStatus {
            is_directory: true,
            permission: DIRECTORY_MODE,
            owner: self.owner.clone(),
            ..FileStatus::empty(path)
        }
    }

    async fn status_now(&self, call: &'static str, path: &FsPath) -> Result<FileStatus, FsError> {
        self.check(call, path)?;
        if path.parent().is_none() {
            // Also that there is no such bucket.
            self.bucket.list(path, "", false, Some(1), None).await?;
            return Ok(self.directory(path.clone()));
        }
        let refused = match self.bucket.head(path).await {
            Ok(meta) => return Ok(self.file(path.clone(), &meta)),
            // The answer to this call has no body that says more; that of the next one has.
            Err(error) if matches!(error.kind, ErrorKind::TooSlow | ErrorKind::Connection) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let below = self.bucket.list(path, &prefix(path), false, Some(1), None).await?;
        match below.objects.is_empty() && below.directories.is_empty() {
            false => Ok(self.directory(path.clone())),
            true => Err(refused),
        }
    }

    async fn page(&self, path: &FsPath, from: Option<Vec<u8>>) -> Result<Page, FsError> {
        self.check("list", path)?;
        let is_first = from.is_none();
        let mark = from.map(|from| serde_json::from_slice::<Mark>(&from)).transpose();
        let mark =
            mark.map_err(|_| self.bucket.malformed(path, "the mark of a page cannot be read"))?;
        let prefix = prefix(path);
        let found = self.bucket.list(path, &prefix, false, None, mark.as_ref()).await?;
        let (objects, directories) = (found.objects, found.directories);
        if is_first && objects.is_empty() && directories.is_empty() {
            let status = self.status_now("list", path).await?;
            let entries = if status.is_directory { Vec::new() } else { vec![status] };
            return Ok(Page { entries, ..Page::default() });
        }
        let mut page = Page::default();
        for object in &objects {
            // The directory itself has an object of its name and a slash, if something else has made one.
            if let Some(name) = object.location.as_ref().strip_prefix(&prefix) {
                add(&mut page, path, name, |path| self.file(path, object));
            }
        }
        for directory in &directories {
            if let Some(name) = directory.as_ref().strip_prefix(&prefix) {
                add(&mut page, path, name, |path| self.directory(path));
            }
        }
        page.entries.sort_by(|one, other| one.path.cmp(&other.path));
        page.odd.sort_by(|one, other| one.name.cmp(&other.name));
        page.next = found.next.map(|mark| serde_json::to_vec(&mark).unwrap_or_default());
        Ok(page)
    }

    fn reader(&self, status: &FileStatus) -> Result<Box<dyn FileReader>, FsError> {
        if status.is_directory {
            return Err(FsError::is_a_directory("open", &status.path));
        }
        let FileStatus { path, bytes, version, .. } = status.clone();
        Ok(Box::new(Reader::new(self.bucket.clone(), path, bytes, version)))
    }

    async fn writer(
        &self,
        path: &FsPath,
        options: &CreateOptions,
    ) -> Result<Box<dyn FileWriter>, FsError> {
        self.check("create", path)?;
        if let Some(place) = Place::of(path).filter(|place| !place.is_committed) {
            let writer = Writer::noted(self.bucket.clone(), path.clone(), place);
            return Ok(Box::new(writer.await?));
        }
        if path.path().starts_with(&format!("/{TEMPORARY}/")) || path.parent().is_none() {
            let message = "a whole bucket cannot be an output: name a directory in it";
            return Err(FsError::new(ErrorKind::Invalid, "create", path, message));
        }
        match self.status_now("create", path).await {
            Ok(found) if found.is_directory => {
                return Err(FsError::is_a_directory("create", path));
            }
            Ok(_) if !options.overwrite => {
                return Err(FsError::new(ErrorKind::AlreadyExists, "create", path, "File exists"));
            }
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Box::new(Writer::new(self.bucket.clone(), path.clone(), options.overwrite)))
    }

    async fn record(&self, path: &FsPath) -> Result<Record, FsError> {
        Record::from_json(path, &self.bucket.get_small(path, MAX_RECORD_BYTES).await?)
    }

    /// Moves a note to those of committed tasks, in place of that of an earlier attempt.
    async fn commit(&self, note: &FsPath, place: &Place) -> Result<(), FsError> {
        let record = self.record(note).await?;
        if record.parts.is_none() {
            let message = "its upload is not complete";
            return Err(FsError::new(ErrorKind::Invalid, "commit", note, message));
        }
        self.bucket.put(&place.committed, record.to_json()).await?;
        self.bucket.delete(note).await
    }

    async fn rename_now(&self, from: &FsPath, to: &FsPath) -> Result<(), FsError> {
        self.check("rename", from)?;
        self.check("rename", to)?;
        if let Some(place) =
            Place::of(from).filter(|place| !place.is_committed && place.target == *to)
        {
            return self.commit(from, &place).await;
        }
        if self.status_now("rename", from).await?.is_directory {
            let message = "is a directory, which object stores do not rename: copy what is below it, and delete it";
            return Err(FsError::new(ErrorKind::Unsupported, "rename", from, message));
        }
        let files: &dyn FileSystem = self;
        let mut to = to.clone();
        let mut found = files.find(&to).await?;
        if found.as_ref().is_some_and(|found| found.is_directory) {
            to = to.join(from.name());
            found = files.find(&to).await?;
        }
        if to == *from {
            return Err(FsError::new(ErrorKind::Invalid, "rename", from, "is the same object"));
        }
        if found.is_some() {
            return Err(FsError::new(ErrorKind::AlreadyExists, "rename", &to, "File exists"));
        }
        self.bucket.copy(from, &to).await?;
        self.bucket.delete(from).await
    }

    /// Aborts the upload of a note. That of a committed task may be complete, if the end of the job was interrupted:
    /// then its object goes. After the end of the job an object of that name is of another attempt, or of nobody here.
    async fn give_up(&self, note: &FsPath, place: &Place) -> Result<(), FsError> {
        let bytes = match self.bucket.get_small(note, MAX_RECORD_BYTES).await {
            Ok(bytes) => bytes,
            // It has gone, or is too large for a note.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Malformed) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // What somebody else has put there is deleted like any other object.
        let Some(record) = Record::if_any(note, &bytes)? else { return Ok(()) };
        if self.bucket.abort(&place.target, &record.upload).await? || !place.is_committed {
            return Ok(());
        }
        match self.bucket.is_there(&place.begun).await? {
            true => self.bucket.delete(&place.target).await,
            false => Ok(()),
        }
    }

    /// Deletes an object, with the upload that it notes.
    async fn delete_one(&self, path: &FsPath) -> Result<(), FsError> {
        if let Some(place) = Place::of(path) {
            self.give_up(path, &place).await?;
        }
        self.bucket.delete(path).await
    }

    /// Deletes all below a directory, and aborts what is uploaded there. Returns whether there was anything.
    async fn delete_below(&self, path: &FsPath) -> Result<bool, FsError> {
        let Some(output) = output_of(path).filter(|output| output.parent().is_some()) else {
            let was_there = self.delete_all_but(path, None).await?;
            return Ok(self.abort_if_allowed(path).await? || was_there);
        };
        // As long as it is there, what is interrupted here can be done again.
        let begun = path.join(BEGUN);
        let mut was_there = self.delete_all_but(path, Some(&begun)).await?;
        // Also the uploads of attempts that were killed before they could note them.
        was_there |= self.bucket.abort_all(&output, None).await? > 0;
        self.bucket.delete(&begun).await?;
        // What begins from here on sees that the job has ended. What has begun before may have come meanwhile.
        was_there |= self.delete_all_but(path, None).await?;
        Ok(self.bucket.abort_all(&output, None).await? > 0 || was_there)
    }

    /// Aborts the uploads of an object, and of those below it as a directory, where the store and the keys allow it.
    /// Returns whether there were any.
    async fn abort_if_allowed(&self, path: &FsPath) -> Result<bool, FsError> {
        if has_notes_alone(path) {
            return Ok(false);
        }
        match self.bucket.abort_all(path, None).await {
            Ok(count) => Ok(count > 0),
            Err(error) if matches!(error.kind, ErrorKind::Connection | ErrorKind::TooSlow) => {
                Err(error)
            }
            Err(error) => {
                tracing::warn!(%error, "unfinished uploads are left, if there are any");
                Ok(false)
            }
        }
    }

    /// Deletes all objects below a directory but one. Returns whether there were any.
    async fn delete_all_but(&self, path: &FsPath, kept: Option<&FsPath>) -> Result<bool, FsError> {
        let (prefix, mut token, mut was_there) = (prefix(path), None, false);
        loop {
            let mut found = self.bucket.list(path, &prefix, true, None, token.as_ref()).await?;
            was_there |= !found.objects.is_empty();
            let is_kept =
                |object: &ObjectMeta| kept == Some(&path_of(path, object.location.as_ref()));
            found.objects.retain(|object| !is_kept(object));
            self.delete_page(path, found.objects).await?;
            match found.next {
                Some(next) => token = Some(next),
                None => return Ok(was_there),
            }
        }
    }

    async fn delete_page(&self, path: &FsPath, objects: Vec<ObjectMeta>) -> Result<(), FsError> {
        let reach = &reach_of(path);
        let given_up = objects.iter().map(|object| async move {
            let note = path_of(path, object.location.as_ref());
            if let Some(place) = Place::in_reach(&note, reach)? {
                self.give_up(&note, &place).await?;
            }
            // The library names an object without the slash at its end, with which consoles make directories.
            match object.size {
                0 => self.bucket.delete_slashed(&note).await,
                _ => Ok(()),
            }
        });
        each(given_up.collect()).await?;
        let names = objects.into_iter().map(|object| object.location).collect();
        self.bucket.delete_all(path, names).await
    }

    /// Deletes a directory that has only the empty object of its name and a slash.
    async fn delete_empty(&self, path: &FsPath) -> Result<bool, FsError> {
        let prefix = prefix(path);
        let found = self.bucket.list(path, &prefix, true, Some(2), None).await?;
        let is_itself = |object: &ObjectMeta| {
            object.size == 0 && prefix.strip_suffix('/') == Some(object.location.as_ref())
        };
        if !found.objects.iter().all(is_itself) || found.next.is_some() || prefix.is_empty() {
            let message = "Directory is not empty";
            return Err(FsError::new(ErrorKind::NotEmpty, "delete", path, message));
        }
        self.bucket.delete_slashed(path).await?;
        Ok(!found.objects.is_empty())
    }

    async fn delete_now(&self, path: &FsPath, recursive: bool) -> Result<bool, FsError> {
        self.check("delete", path)?;
        match self.status_now("delete", path).await {
            Ok(found) if !found.is_directory => {
                self.delete_one(path).await?;
                if recursive {
                    self.abort_if_allowed(path).await?;
                }
                Ok(true)
            }
            Ok(_) if recursive => self.delete_below(path).await,
            Ok(_) => self.delete_empty(path).await,
            // Uploads may be there though nothing is seen.
            Err(error) if error.kind == ErrorKind::NotFound && output_of(path).is_some() => {
                self.delete_below(path).await
            }
            Err(error) if error.kind == ErrorKind::NotFound && recursive => {
                self.abort_if_allowed(path).await
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Completes the uploads of committed tasks, and deletes their notes when all are complete.
    async fn complete(&self, output: &FsPath) -> Result<(), FsError> {
        self.check("commit", output)?;
        let committed = Place::all_committed(output);
        let (prefix, mut token, mut notes) = (prefix(&committed), None, Vec::new());
        loop {
            let found = self.bucket.list(&committed, &prefix, true, None, token.as_ref()).await?;
            let objects: Vec<_> = found.objects.into_iter().map(|object| object.location).collect();
            let completed = objects.iter().map(|key| async move {
                let note = path_of(output, key.as_ref());
                match Place::in_reach(&note, output)? {
                    Some(place) => self.complete_one(&note, &place).await,
                    None => Ok(()),
                }
            });
            each(completed.collect()).await?;
            notes.extend(objects);
            match found.next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        self.bucket.delete_all(&committed, notes).await
    }

    async fn complete_one(&self, note: &FsPath, place: &Place) -> Result<(), FsError> {
        let record = match self.record(note).await {
            Ok(record) => record,
            // Somebody else has completed it, and deleted the note.
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let parts = record.parts.unwrap_or_default();
        match self.bucket.complete(&place.target, &record.upload, &parts).await {
            // An earlier try has completed it.
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.bucket.head(&place.target).await.map(drop).map_err(|_| error)
            }
            completed => completed,
        }
    }
}

/// Does all of these, some at a time.
async fn each(work: Vec<impl Future<Output = Result<(), FsError>>>) -> Result<(), FsError> {
    let done = stream::iter(work).buffer_unordered(MAX_PARALLEL);
    done.try_for_each(|()| std::future::ready(Ok(()))).await
}

/// Adds an entry of a directory, or that it cannot be named.
fn add(page: &mut Page, path: &FsPath, name: &str, status: impl FnOnce(FsPath) -> FileStatus) {
    let why = match path.entry(name) {
        Ok(_) if name.contains('\\') => r"has a \, which stands for / where files are named",
        Ok(entry) => return page.entries.push(status(entry)),
        Err(error) => error.wrong,
    };
    page.odd.push(OddEntry { name: name.to_owned(), why: why.to_owned() });
}

/// What the names of the objects below a directory begin with.
fn prefix(directory: &FsPath) -> String {
    match directory.path().trim_start_matches('/') {
        "" => String::new(),
        below => format!("{below}/"),
    }
}

impl FileSystem for ObjectStore {
    fn root(&self) -> &Root {
        &self.root
    }

    fn unsupported(&self, call: &'static str, path: &FsPath) -> FsError {
        FsError::new(ErrorKind::Unsupported, call, path, "is not supported for objects")
    }

    fn status<'a>(&'a self, path: &'a FsPath) -> Answer<'a, FileStatus> {
        Box::pin(self.status_now("status", path))
    }

    fn list_page<'a>(&'a self, path: &'a FsPath, from: Option<Vec<u8>>) -> Answer<'a, Page> {
        Box::pin(self.page(path, from))
    }

    fn open<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileReader>> {
        Box::pin(async move { self.reader(&self.status_now("open", path).await?) })
    }

    fn open_found<'a>(&'a self, found: &'a FileStatus) -> Answer<'a, Box<dyn FileReader>> {
        Box::pin(async move {
            self.check("open", &found.path)?;
            self.reader(found)
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a FsPath,
        options: CreateOptions,
    ) -> Answer<'a, Box<dyn FileWriter>> {
        Box::pin(async move { self.writer(path, &options).await })
    }

    fn is_seen_whole(&self) -> bool {
        true
    }

    fn rename<'a>(&'a self, from: &'a FsPath, to: &'a FsPath) -> Answer<'a, ()> {
        Box::pin(self.rename_now(from, to))
    }

    fn delete<'a>(&'a self, path: &'a FsPath, recursive: bool) -> Answer<'a, bool> {
        Box::pin(self.delete_now(path, recursive))
    }

    /// Directories come with the objects in them. That of unfinished output is there from the beginning of its job
    /// to its end, so that late attempts see that it is over. Before it there is no output, so uploads that are there
    /// are those that killed programs have left.
    fn mkdirs<'a>(&'a self, path: &'a FsPath, _permission: Option<u16>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("mkdirs", path)?;
            let Some(output) = output_of(path) else { return Ok(()) };
            let begun = path.join(BEGUN);
            if self.bucket.is_there(&begun).await? {
                return Ok(());
            }
            if output.parent().is_some() {
                self.bucket.abort_all(&output, Some(&begun)).await?;
            }
            self.bucket.put(&begun, BEGUN.as_bytes().to_vec()).await
        })
    }

    fn summary<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Summary> {
        Box::pin(async move {
            let status = self.status_now("summary", path).await?;
            if !status.is_directory {
                return Ok(Summary { bytes: status.bytes, files: 1, directories: 0 });
            }
            let (prefix, mut token, mut sum) =
                (prefix(path), None, Summary { directories: 1, ..Summary::default() });
            let mut last = String::new();
            loop {
                let found = self.bucket.list(path, &prefix, true, None, token.as_ref()).await?;
                for object in &found.objects {
                    let Some(below) = object.location.as_ref().strip_prefix(&prefix) else {
                        continue;
                    };
                    sum.files += 1;
                    sum.bytes = sum.bytes.saturating_add(object.size);
                    // They come in the order of their names, so that each directory is met once.
                    let directory = below.rsplit_once('/').map_or("", |(directory, _)| directory);
                    sum.directories += new_directories(&last, directory);
                    directory.clone_into(&mut last);
                }
                match found.next {
                    Some(next) => token = Some(next),
                    None => return Ok(sum),
                }
            }
        })
    }

    fn complete_output<'a>(&'a self, directory: &'a FsPath) -> Answer<'a, bool> {
        Box::pin(async move { self.complete(directory).await.map(|()| true) })
    }
}

/// How many directories a path has that the one before does not lie in.
fn new_directories(last: &str, directory: &str) -> u64 {
    let (mut last, mut is_new, mut count) = (last.split('/'), false, 0);
    for part in directory.split('/').filter(|part| !part.is_empty()) {
        is_new |= last.next() != Some(part);
        count += u64::from(is_new);
    }
    count
}
