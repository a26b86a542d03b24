//! Answers that take a processor for a while: they are made on threads of their own, a bounded number
//! at a time.

use std::sync::Arc;

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

/// Makes something on a thread that may take its time, when there is a place for it. `None` if that panicked.
pub(crate) async fn make<T: Send + 'static>(
    makers: &Arc<Semaphore>,
    make: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // The semaphore is never closed.
    let place = makers.clone().acquire_owned().await.ok()?;
    let made = tokio::task::spawn_blocking(move || {
        // Held while the answer is made, also after the reader has disconnected.
        let _place = place;
        make()
    });
    made.await.ok()
}

/// Makes an answer in this way.
pub(crate) async fn make_answer<S: Send + 'static>(
    makers: &Arc<Semaphore>,
    answer: impl FnOnce() -> Answer<S> + Send + 'static,
) -> Answer<S> {
    make(makers, answer).await.unwrap_or_else(|| {
        exchange::text(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be made\n")
    })
}

/// Compresses whole answers where it is worthwhile; streams of events stay as they are. The work is
/// done where pages are made, and so takes no more threads than they.
pub(crate) async fn compress<S: Send + 'static>(
    answer: Answer<S>,
    is_accepted: bool,
    makers: &Arc<Semaphore>,
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
