//! The calls of one bucket, with errors in our words: those of the library, and those that it does not have.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corona_model::text::escape_markup;
use corona_net::Backoff;
use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::header::{CONTENT_LENGTH, IF_NONE_MATCH};
use hyper::{Method, Request, StatusCode};
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequestBody};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore as _,
    ObjectStoreExt as _, PutPayload, RetryConfig,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, sleep};

use super::access::ObjectAccess;
use super::fault;
use super::http::{Http, TOO_LARGE};
use super::pages::{Listed, MAX_STILL_PAGES, Mark};
use super::pending::path_of;
use crate::path::FsPath;
use crate::{ErrorKind, FsError};

/// What a query has as it is. Everything else is encoded, as signatures want it.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The pauses between tries.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Tries of one request, if they end so fast that its time does not.
const MAX_TRIES: usize = 1000;
/// Requests at a time for many objects.
pub(super) const MAX_PARALLEL: usize = 16;

/// A bucket and how it is reached.
#[derive(Debug)]
pub(super) struct Bucket {
    store: AmazonS3,
    client: HttpClient,
    address: String,
    server: String,
    region: String,
    /// How long a request is tried again.
    patience: Duration,
}

/// An upload that is neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upload {
    pub(super) key: String,
    pub(super) id: String,
}

/// A page of them, and where the next one begins.
type Uploads = (Vec<Upload>, Option<(String, String)>);

impl Bucket {
    pub(super) fn open(
        access: &ObjectAccess,
        name: &str,
        silence: Duration,
        patience: Duration,
    ) -> Result<Bucket, FsError> {
        let (address, server) = (access.address(name), access.server());
        let failed =
            |why: String| FsError::new(ErrorKind::Invalid, "open", format!("s3://{name}"), why);
        let http = Http::new(address.starts_with("http://"), silence)
            .map_err(|error| failed(format!("no certificates for TLS: {error}")))?;
        let retries = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_PAUSE,
                max_backoff: LONGEST_PAUSE,
                base: 2.0,
            },
            max_retries: MAX_TRIES,
            // Without keys the machine is asked for its role; where it has none nothing answers.
            retry_timeout: if access.has_keys() {
                patience
            } else {
                patience.min(Duration::from_secs(20))
            },
        };
        let store =
            access.builder(name).with_retry(retries).with_http_connector(http.clone()).build();
        let store = store.map_err(|error| failed(error.to_string()))?;
        let region = access.region().to_owned();
        Ok(Bucket { store, client: HttpClient::new(http), address, server, region, patience })
    }

    /// Where it is, for errors.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The error of a call of the library.
    fn told(&self, call: &'static str, path: &FsPath) -> impl Fn(object_store::Error) -> FsError {
        move |error| fault::told(&error, call, path, &self.server)
    }

    pub(super) async fn head(&self, path: &FsPath) -> Result<ObjectMeta, FsError> {
        self.store.head(&key(path)?).await.map_err(self.told("open", path))
    }

    pub(super) async fn is_there(&self, path: &FsPath) -> Result<bool, FsError> {
        match self.head(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A page of what is below a prefix, one level deep or all.
    pub(super) async fn list(
        &self,
        path: &FsPath,
        prefix: &str,
        is_deep: bool,
        most: Option<usize>,
        from: Option<&Mark>,
    ) -> Result<Listed, FsError> {
        let options = PaginatedListOptions {
            delimiter: (!is_deep).then_some("/".into()),
            max_keys: most,
            page_token: from.map(|mark| mark.token.clone()),
            ..PaginatedListOptions::default()
        };
        let below = Some(prefix).filter(|prefix| !prefix.is_empty());
        let found = self.store.list_paginated(below, options).await;
        let PaginatedListResult { result, page_token } = found.map_err(self.told("list", path))?;
        let (objects, directories) = (result.objects, result.common_prefixes);
        let names = objects.iter().map(|object| &object.location).chain(&directories);
        // That of the directory itself has lost its slash.
        let is_below = |name: &&Key| {
            name.as_ref().starts_with(prefix) || prefix.strip_suffix('/') == Some(name.as_ref())
        };
        if let Some(other) = names.into_iter().find(|name| !is_below(name)) {
            return Err(self.malformed(path, &format!("its list has {other}, which is not in it")));
        }
        let next = Mark::behind(from, &objects, &directories, page_token)
            .map_err(|wrong| self.malformed(path, wrong))?;
        Ok(Listed { objects, directories, next })
    }

    /// The error of a list that cannot be read.
    pub(super) fn malformed(&self, path: &FsPath, message: &str) -> FsError {
        FsError::new(ErrorKind::Malformed, "list", path, message).at(&self.server)
    }

    /// Bytes of an object, if it is still the one with this tag.
    pub(super) async fn get(
        &self,
        path: &FsPath,
        range: std::ops::Range<u64>,
        tag: Option<&str>,
    ) -> Result<GetResult, FsError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: tag.map(str::to_owned),
            ..GetOptions::default()
        };
        let found =
            self.store.get_opts(&key(path)?, options).await.map_err(self.told("read", path))?;
        match (tag, &found.meta.e_tag) {
            // Not every server heeds the condition.
            (Some(wanted), Some(given)) if wanted != given => {
                let (kind, message) = fault::changed();
                Err(FsError::new(kind, "read", path, message))
            }
            _ => Ok(found),
        }
    }

    /// The next bytes of an object that is read.
    pub(super) async fn next_of(
        &self,
        path: &FsPath,
        body: &mut stream::BoxStream<'static, object_store::Result<Bytes>>,
    ) -> Result<Option<Bytes>, FsError> {
        body.next().await.transpose().map_err(self.told("read", path))
    }

    /// A whole small object.
    pub(super) async fn get_small(&self, path: &FsPath, most: u64) -> Result<Bytes, FsError> {
        let found = self.store.get(&key(path)?).await.map_err(self.told("read", path))?;
        if found.meta.size > most {
            let message = format!("it has {} bytes; at most {most} are expected", found.meta.size);
            return Err(FsError::new(ErrorKind::Malformed, "read", path, message));
        }
        found.bytes().await.map_err(self.told("read", path))
    }

    pub(super) async fn put(&self, path: &FsPath, bytes: Vec<u8>) -> Result<(), FsError> {
        let put = self.store.put(&key(path)?, PutPayload::from(bytes)).await;
        put.map(drop).map_err(self.told("create", path))
    }

    /// The same, if the store knows of no such object when the bytes are there. A store that does not know this condition
    /// writes it as [`Bucket::put`] does.
    pub(super) async fn put_new(&self, path: &FsPath, bytes: Bytes) -> Result<(), FsError> {
        let address = self.address_of(path)?;
        let asked = Asked { body: bytes.clone(), is_new: true, ..Asked::new(Method::PUT, address) };
        let (put, is_unsure) = self.ask_knowing("create", path, &asked).await;
        match put {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::Unsupported => {
                self.put(path, bytes.into()).await
            }
            // An earlier try, whose answer was lost, may have written it.
            Err(error) if error.kind == ErrorKind::AlreadyExists && is_unsure => {
                match self.get_small(path, bytes.len() as u64).await {
                    Ok(found) if found == bytes => Ok(()),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn copy(&self, from: &FsPath, to: &FsPath) -> Result<(), FsError> {
        self.store.copy(&key(from)?, &key(to)?).await.map_err(self.told("rename", from))
    }

    pub(super) async fn delete(&self, path: &FsPath) -> Result<(), FsError> {
        self.store.delete(&key(path)?).await.map_err(self.told("delete", path))
    }

    /// Deletes the object whose name is this one with a slash at its end, if there is one.
    pub(super) async fn delete_slashed(&self, path: &FsPath) -> Result<(), FsError> {
        let address = format!("{}/", self.address_of(path)?);
        self.ask("delete", path, &Asked::new(Method::DELETE, address)).await.map(drop)
    }

    fn address_of(&self, path: &FsPath) -> Result<String, FsError> {
        let name = key(path)?;
        let encoded = name.as_ref().split('/').map(|part| utf8_percent_encode(part, PLAIN));
        Ok(encoded.fold(self.address.clone(), |address, part| format!("{address}/{part}")))
    }

    /// Deletes many objects with few requests.
    pub(super) async fn delete_all(&self, path: &FsPath, keys: Vec<Key>) -> Result<(), FsError> {
        let keys = stream::iter(keys.into_iter().map(Ok)).boxed();
        let mut deleted = self.store.delete_stream(keys);
        while let Some(one) = deleted.next().await {
            match one.map_err(self.told("delete", path)) {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                one => drop(one?),
            }
        }
        Ok(())
    }

    pub(super) async fn begin_upload(&self, path: &FsPath) -> Result<String, FsError> {
        self.store.create_multipart(&key(path)?).await.map_err(self.told("create", path))
    }

    pub(super) async fn put_part(
        &self,
        path: &FsPath,
        id: &str,
        number: usize,
        bytes: PutPayload,
    ) -> Result<String, FsError> {
        let (key, id) = (key(path)?, id.to_owned());
        let part = self.store.put_part(&key, &id, number, bytes).await;
        part.map(|part| part.content_id).map_err(self.told("write", path))
    }

    pub(super) async fn complete(
        &self,
        path: &FsPath,
        id: &str,
        parts: &[String],
    ) -> Result<(), FsError> {
        let parts = parts.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
        let completed = self.store.complete_multipart(&key(path)?, &id.to_owned(), parts).await;
        completed.map(drop).map_err(self.told("complete", path))
    }

    /// The same, if the store knows of no such object, as [`Bucket::put_new`].
    pub(super) async fn complete_new(
        &self,
        path: &FsPath,
        id: &str,
        parts: &[String],
    ) -> Result<(), FsError> {
        let query = utf8_percent_encode(id, PLAIN);
        let address = format!("{}?uploadId={query}", self.address_of(path)?);
        let body = completing(parts).into();
        let asked = Asked { body, is_new: true, ..Asked::new(Method::POST, address) };
        let (completed, is_unsure) = self.ask_knowing("complete", path, &asked).await;
        match completed {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::Unsupported => {
                self.complete(path, id, parts).await
            }
            // An earlier try, whose answer was lost, has completed it if the upload is over and the object is there.
            Err(error)
                if is_unsure
                    && matches!(error.kind, ErrorKind::AlreadyExists | ErrorKind::NotFound) =>
            {
                match self.abort(path, id).await {
                    Ok(false) => self.head(path).await.map(drop).map_err(|_| error),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Aborts an upload. False: there was none.
    pub(super) async fn abort(&self, path: &FsPath, id: &str) -> Result<bool, FsError> {
        let aborted = self.store.abort_multipart(&key(path)?, &id.to_owned()).await;
        match aborted.map_err(self.told("abort", path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Aborts all uploads of an object and of those below it as a directory, `unless` this object is there by then. Returns
    /// how many there were.
    pub(super) async fn abort_all(
        &self,
        path: &FsPath,
        unless: Option<&FsPath>,
    ) -> Result<usize, FsError> {
        let name = path.path().trim_start_matches('/');
        let is_meant = |key: &str| {
            let rest = key.strip_prefix(name);
            rest.is_some_and(|rest| name.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let (mut count, mut still, mut from) = (0, 0, None::<(String, String)>);
        loop {
            let (mut page, next) = self.uploads(path, name, from.as_ref()).await?;
            page.retain(|upload| is_meant(&upload.key));
            // Looked for after the uploads: what comes with it is in no page before.
            if let Some(object) = unless
                && !page.is_empty()
                && self.is_there(object).await?
            {
                return Ok(count);
            }
            count += page.len();
            let aborted = stream::iter(page).map(|upload| async move {
                self.abort(&path_of(path, &upload.key), &upload.id).await
            });
            aborted
                .buffer_unordered(MAX_PARALLEL)
                .try_for_each(|_| std::future::ready(Ok(())))
                .await?;
            let Some(next) = next else { return Ok(count) };
            // The uploads of one object come in the order of time, which their names do not tell.
            still = match from.as_ref().map(|(key, _)| next.0.cmp(key)) {
                Some(Ordering::Equal) => still + 1,
                Some(Ordering::Less) => MAX_STILL_PAGES + 1,
                Some(Ordering::Greater) | None => 0,
            };
            if still > MAX_STILL_PAGES {
                let message = "a page of its unfinished uploads does not lie behind the one before";
                return Err(self.malformed(path, message));
            }
            from = Some(next);
        }
    }

    async fn uploads(
        &self,
        path: &FsPath,
        prefix: &str,
        from: Option<&(String, String)>,
    ) -> Result<Uploads, FsError> {
        let mut query = format!("uploads=&prefix={}", utf8_percent_encode(prefix, PLAIN));
        if let Some((key, id)) = from {
            let (key, id) = (utf8_percent_encode(key, PLAIN), utf8_percent_encode(id, PLAIN));
            query = format!(
                "key-marker={key}&prefix={}&upload-id-marker={id}&uploads=",
                utf8_percent_encode(prefix, PLAIN)
            );
        }
        let asked = Asked::new(Method::GET, format!("{}?{query}", self.address));
        let answer = self.ask("list", path, &asked).await?;
        let malformed = || self.malformed(path, "the list of uploads is malformed");
        let text = std::str::from_utf8(&answer).map_err(|_| malformed())?;
        uploads_of(text, prefix).ok_or_else(malformed)
    }

    /// Sends a signed request until it is answered or its time is over.
    async fn ask(
        &self,
        call: &'static str,
        path: &FsPath,
        asked: &Asked,
    ) -> Result<Bytes, FsError> {
        self.ask_knowing(call, path, asked).await.0
    }

    /// The same, with whether a try before the last one may have been carried out.
    async fn ask_knowing(
        &self,
        call: &'static str,
        path: &FsPath,
        asked: &Asked,
    ) -> (Result<Bytes, FsError>, bool) {
        let until = Instant::now() + self.patience;
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut is_unsure = false;
        loop {
            match self.try_once(call, path, asked).await {
                Err(error)
                    if matches!(error.kind, ErrorKind::TooSlow | ErrorKind::Connection)
                        && Instant::now() < until =>
                {
                    is_unsure = true;
                    sleep(pauses.pause()).await;
                }
                answer => return (answer, is_unsure),
            }
        }
    }

    async fn try_once(
        &self,
        call: &'static str,
        path: &FsPath,
        asked: &Asked,
    ) -> Result<Bytes, FsError> {
        let credential =
            self.store.credentials().get_credential().await.map_err(self.told(call, path))?;
        let mut request = Request::builder().method(asked.method.clone()).uri(&asked.address);
        if asked.is_new {
            request = request.header(IF_NONE_MATCH, "*");
        }
        // Else it is missing where there is no body, and stores refuse that.
        if matches!(asked.method, Method::PUT | Method::POST) {
            request = request.header(CONTENT_LENGTH, asked.body.len());
        }
        let body = match asked.body.is_empty() {
            true => HttpRequestBody::empty(),
            false => HttpRequestBody::from(asked.body.clone()),
        };
        let mut request = request
            .body(body)
            .map_err(|error| FsError::new(ErrorKind::Invalid, call, path, error.to_string()))?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .map_err(self.told(call, path))?;
        let response = self.client.execute(request).await.map_err(|error| {
            FsError::new(ErrorKind::Connection, call, path, error.to_string()).at(&self.server)
        })?;
        let status = response.status();
        let bytes = match response.into_body().bytes().await {
            Ok(bytes) => bytes,
            Err(error) if error.to_string().contains(TOO_LARGE) => {
                return Err(self.malformed(path, TOO_LARGE));
            }
            Err(_) => {
                let message = "the connection ended within the answer";
                let error = FsError::new(ErrorKind::Connection, call, path, message);
                return Err(error.at(&self.server));
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        // The status of a completion is sent before it has succeeded.
        let is_completing = asked.method == Method::POST;
        if status.is_success() && !(is_completing && text.contains("<Error>")) {
            return Ok(bytes);
        }
        let is_status =
            [StatusCode::PRECONDITION_FAILED, StatusCode::NOT_MODIFIED].contains(&status);
        if asked.is_new && (is_status || text.contains("<Code>PreconditionFailed</Code>")) {
            return Err(FsError::new(ErrorKind::AlreadyExists, call, path, "File exists"));
        }
        let mut error = fault::of_answer(status.as_u16(), &text, call, path, &self.server);
        // Another request for the object was on its way: it says nothing of what is there.
        if status == StatusCode::CONFLICT && asked.method == Method::PUT {
            error.kind = ErrorKind::TooSlow;
        }
        Err(error)
    }
}

/// A request that the library does not make.
struct Asked {
    method: Method,
    address: String,
    body: Bytes,
    /// Whether it is refused if there is such an object.
    is_new: bool,
}

impl Asked {
    fn new(method: Method, address: String) -> Asked {
        Asked { method, address, body: Bytes::new(), is_new: false }
    }
}

/// The body of a request that completes an upload of parts with these tags.
fn completing(tags: &[String]) -> String {
    let parts = tags.iter().zip(1..).map(|(tag, number)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", escape_markup(tag))
    });
    format!(
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{}</CompleteMultipartUpload>",
        parts.collect::<String>()
    )
}

/// The uploads of an answer, and where the next page begins. Only what has the prefix counts, whatever the server says.
fn uploads_of(xml: &str, prefix: &str) -> Option<Uploads> {
    let document = roxmltree::Document::parse(xml).ok()?;
    let root = document.root_element();
    let text = |node: roxmltree::Node<'_, '_>, name: &str| {
        let child = node.children().find(|child| child.tag_name().name() == name)?;
        Some(child.text().unwrap_or_default().to_owned())
    };
    let uploads = root.children().filter(|child| child.tag_name().name() == "Upload");
    let uploads =
        uploads.map(|node| Some(Upload { key: text(node, "Key")?, id: text(node, "UploadId")? }));
    let mut uploads = uploads.collect::<Option<Vec<_>>>()?;
    uploads.retain(|upload| upload.key.starts_with(prefix));
    let next = match text(root, "IsTruncated").as_deref() {
        Some("true") => Some((
            text(root, "NextKeyMarker")?,
            text(root, "NextUploadIdMarker").unwrap_or_default(),
        )),
        _ => None,
    };
    Some((uploads, next))
}

/// The name of the object at a path.
pub(super) fn key(path: &FsPath) -> Result<Key, FsError> {
    let named = Key::parse(path.path());
    named.map_err(|error| FsError::new(ErrorKind::Invalid, "path", path, error.to_string()))
}

/// A bucket that several own.
pub(super) type SharedBucket = Arc<Bucket>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_uploads_has_those_below_the_prefix_and_says_where_the_next_one_begins() {
        let xml = r#"<?xml version="1.0"?><ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <IsTruncated>true</IsTruncated><NextKeyMarker>out/b</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>
            <Upload><Key>out/a &amp; b</Key><UploadId>1</UploadId></Upload>
            <Upload><Key>other/a</Key><UploadId>9</UploadId></Upload>
            <Upload><Key>out/b</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>"#;
        let (page, next) = uploads_of(xml, "out/").unwrap();
        let keys: Vec<&str> = page.iter().map(|upload| upload.key.as_str()).collect();
        assert_eq!(keys, ["out/a & b", "out/b"]);
        assert_eq!(next, Some(("out/b".to_owned(), "2".to_owned())));
        let empty = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
        assert_eq!(uploads_of(empty, "out/").unwrap(), (Vec::new(), None));
        assert!(uploads_of("<html", "out/").is_none());
        assert!(uploads_of("<R><Upload><Key>out/a</Key></Upload></R>", "out/").is_none());
    }
}
