//! Requests and responses as all pages have them, and streams of events.

use bytes::Bytes;
use http_body_util::Either;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};

use super::events::Stream;

pub(super) use corona_web::exchange::*;

/// A response body: all at once, or a stream of events.
pub(super) type Answer = corona_web::exchange::Answer<Stream>;

/// A stream of events.
pub(super) fn stream(stream: Stream) -> Answer {
    let answer: Answer = respond(StatusCode::OK, "text/event-stream", Bytes::new());
    let mut answer = answer.map(|_| Either::Right(stream));
    // A proxy must not keep events back until there are more.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    answer.headers_mut().insert(unbuffered, HeaderValue::from_static("no"));
    answer
}
