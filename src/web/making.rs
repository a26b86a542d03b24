//! Answers that take a processor for a while: they are made on threads of their own, a bounded number
//! at a time.

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Either, Full};
use hyper::{Response, StatusCode};
use tokio::sync::Semaphore;

use crate::compression;
use crate::exchange::{self, Answer};

/// The least pause between two looks of one browser at the same page, in milliseconds.
pub const REFRESH_MS: u64 = 1000;
/// The same for a page that takes longer to make.
pub const SLOW_REFRESH_MS: u64 = 5000;
/// Rows from which a page takes longer to make.
const MANY_ROWS: usize = 5000;

/// The least pause between two looks at a page that is made of so many rows, in milliseconds.
pub fn refresh_ms(rows: usize) -> u64 {
    if rows > MANY_ROWS { SLOW_REFRESH_MS } else { REFRESH_MS }
}

/// Makes an answer on a thread that may take its time, when there is a place for it.
pub async fn make_answer<S: Send + 'static>(
    makers: &Semaphore,
    make: impl FnOnce() -> Answer<S> + Send + 'static,
) -> Answer<S> {
    let Ok(_place) = makers.acquire().await else {
        return exchange::text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|_| {
        exchange::text(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be made\n")
    })
}

/// Compresses whole answers where it is worthwhile; streams of events stay as they are. The work is
/// done where pages are made, and so takes no more threads than they.
pub async fn compress<S: Send + 'static>(
    answer: Answer<S>,
    is_accepted: bool,
    makers: &Semaphore,
) -> Answer<S> {
    let (mut head, body) = answer.into_parts();
    let Either::Left(body) = body else { return Response::from_parts(head, body) };
    let Ok(plain): Result<Bytes, _> = body.collect().await.map(Collected::to_bytes);
    compression::mark_varying(&mut head.headers);
    let kind = compression::content_type(&head.headers);
    if !is_accepted || !compression::is_worthwhile(kind, plain.len()) {
        return Response::from_parts(head, Either::Left(Full::new(plain)));
    }
    make_answer(makers, move || match compression::gzip(&plain) {
        Ok(packed) => {
            compression::mark_compressed(&mut head.headers);
            Response::from_parts(head, Either::Left(Full::new(packed)))
        }
        Err(_) => Response::from_parts(head, Either::Left(Full::new(plain))),
    })
    .await
}
