//! Pages besides map output and logs. Their contents are made elsewhere.

use http_body_util::Either;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use super::Body;
use corona_web::compression;

/// All resources come from this server, and none is inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The resource at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status of the answer.
    pub status: StatusCode,
    /// The type of its body.
    pub content_type: &'static str,
    /// Whether it never changes at its address.
    pub is_constant: bool,
    /// The bytes of its body.
    pub body: Bytes,
}

impl Page {
    /// A page that is rendered each time.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Page {
        Page { status, content_type, is_constant: false, body: body.into() }
    }
}

/// Makes pages.
pub trait Pages: Send + Sync + 'static {
    /// The page at this path; `None` if there is none. It may block.
    fn page(&self, path: &str, query: &str) -> Option<Page>;

    /// The page at this path, if that takes neither time nor a disk: so it is answered however many
    /// pages are being made.
    fn probe(&self, _path: &str) -> Option<Page> {
        None
    }
}

/// Has nothing to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPages;

impl Pages for NoPages {
    fn page(&self, _path: &str, _query: &str) -> Option<Page> {
        None
    }
}

/// The answer that a page is, compressed if its reader takes that and it becomes smaller.
pub(super) fn respond_packed(page: Page, takes_gzip: bool) -> Response<Body> {
    let is_packed = takes_gzip && compression::is_worthwhile(page.content_type, page.body.len());
    match is_packed.then(|| compression::gzip(&page.body)) {
        Some(Ok(packed)) => {
            let mut answer = respond(Page { body: packed, ..page });
            compression::mark_compressed(answer.headers_mut());
            answer
        }
        _ => respond(page),
    }
}

/// The answer that a page is.
pub(super) fn respond(page: Page) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(page.body)));
    *response.status_mut() = page.status;
    let headers = response.headers_mut();
    let kept = if page.is_constant { "public, max-age=31536000, immutable" } else { "no-store" };
    for (name, value) in [
        (header::CONTENT_TYPE, page.content_type),
        (header::CACHE_CONTROL, kept),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    compression::mark_varying(headers);
    response
}
