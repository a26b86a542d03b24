//! `/tasklog`: the logs of a task, for people and for job clients.
//!
//! Spec: mapreduce/04 §4.11.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io::{Read, Take};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use form_urlencoded::parse;
use http_body_util::Either;
use hyper::body::{Bytes, Frame};
use hyper::{Response, StatusCode, header};

use super::{Page, text};
use crate::child::{LogFile, Logs};
use crate::ids::AttemptId;
use corona_process::threads::Threads;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The requested log.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    attempt: AttemptId,
    filter: Option<LogFile>,
    start: i64,
    end: i64,
    is_plain: bool,
    is_cleanup: bool,
}

impl Wanted {
    /// Reads a query. An error is the text of the answer.
    fn parse(query: &str) -> Result<Self, Cow<'static, str>> {
        let value = |name: &str| -> Option<String> {
            parse(query.as_bytes())
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        let number = |name: &str, default: i64| match value(name) {
            None => Ok(default),
            Some(text) => {
                text.parse::<i64>().map_err(|_| format!("Illegal value for {name}: {text}"))
            }
        };
        let attempt = value("taskid").ok_or("Argument taskid is required")?;
        let attempt = attempt.parse().map_err(|error| format!("taskid: {error}"))?;
        let filter = value("filter")
            .map(|filter| {
                LogFile::of_filter(&filter)
                    .ok_or_else(|| format!("Illegal value for filter: {filter}"))
            })
            .transpose()?;
        let is_true = |name| value(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let is_plain = is_true("plaintext");
        if is_plain && filter.is_none() {
            let told = "You must supply a value for `filter' (STDOUT, STDERR, or SYSLOG) if you \
                        set plainText = true";
            return Err(told.into());
        }
        let (start, end) = (number("start", 0)?, number("end", -1)?);
        Ok(Wanted { attempt, filter, start, end, is_plain, is_cleanup: is_true("cleanup") })
    }
}

/// Answers a request. Disks are read on these threads.
pub(super) async fn answer(logs: &Logs, threads: Arc<Threads>, query: &str) -> Page {
    let wanted = match Wanted::parse(query) {
        Ok(wanted) => wanted,
        Err(told) => return text(StatusCode::BAD_REQUEST, told.into_owned()),
    };
    let is_plain = wanted.is_plain;
    let logs = logs.clone();
    let log = match threads.run(move || open(&logs, &wanted)).await {
        Ok(log) => log,
        Err(told) => return text(StatusCode::GONE, told),
    };
    let mut response = Response::new(Either::Right(LogBody { threads, next: Next::Idle(log) }));
    let kind = match is_plain {
        true => "text/plain; charset=utf-8",
        false => "text/html; charset=utf-8",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    let nosniff = header::HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Opens the requested log. An error means that there is none.
fn open(logs: &Logs, wanted: &Wanted) -> Result<LogText, String> {
    let asked = wanted.filter.map_or(LogFile::ALL.to_vec(), |filter| vec![filter]);
    let attempt = &wanted.attempt;
    let mut left = VecDeque::new();
    for log in asked {
        let part = logs.open(attempt, log, wanted.is_cleanup, wanted.start, wanted.end);
        let Ok(part) = part else { continue };
        let title = format!("<br><b><u>{} logs</u></b><br>\n<pre>\n", log.file_name());
        left.push_back(Piece::Markup(title));
        left.push_back(Piece::Log(part.file.take(part.bytes)));
        left.push_back(Piece::Markup("</pre></td></tr></table><hr><br>\n".into()));
    }
    if left.is_empty() {
        let which = wanted.filter.map_or("any", LogFile::file_name);
        return Err(format!("Failed to retrieve {which} log for task: {attempt}"));
    }
    left.push_front(Piece::Markup(format!(
        "<html>\n<title>Task Logs: '{attempt}'</title>\n<body>\n<h1>Task Logs: '{attempt}'</h1><br>\n"
    )));
    left.push_back(Piece::Markup("</body></html>\n".into()));
    if wanted.is_plain {
        left.retain(|piece| matches!(piece, Piece::Log(_)));
    }
    Ok(LogText { left, is_plain: wanted.is_plain })
}

/// The part of a reply that is not sent yet.
struct LogText {
    left: VecDeque<Piece>,
    /// Whether logs are sent as they are, and not as text of a page.
    is_plain: bool,
}

/// A piece of an answer.
enum Piece {
    Markup(String),
    Log(Take<File>),
}

impl LogText {
    /// The next bytes; none at the end. It reads disks.
    fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES {
            let Some(piece) = self.left.front_mut() else { break };
            let log = match piece {
                Piece::Log(log) => log,
                Piece::Markup(text) => {
                    out.extend(std::mem::take(text).into_bytes());
                    self.left.pop_front();
                    continue;
                }
            };
            let mut buffer = vec![0; CHUNK_BYTES];
            match log.read(&mut buffer) {
                Ok(length @ 1..) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    if self.is_plain { out.extend(bytes) } else { escape(bytes, &mut out) }
                }
                // A log that cannot be read to its end is shown as far as it can.
                _ => drop(self.left.pop_front()),
            }
        }
        (!out.is_empty()).then(|| out.into())
    }
}

/// Appends bytes of a log as text of a page.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len());
    for byte in bytes {
        match byte {
            b'<' => out.extend(b"&lt;"),
            b'>' => out.extend(b"&gt;"),
            b'&' => out.extend(b"&amp;"),
            _ => out.push(*byte),
        }
    }
}

/// A log that is read as its reader takes it: nothing is read ahead, and no thread waits for the
/// reader.
pub struct LogBody {
    threads: Arc<Threads>,
    next: Next,
}

/// Where a log is that is sent.
enum Next {
    /// There is no reader now.
    Idle(LogText),
    /// A thread reads it.
    Reading(Pin<Box<dyn Future<Output = (LogText, Option<Bytes>)> + Send>>),
    /// The whole log has been sent.
    End,
}

impl hyper::body::Body for LogBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut reading = match std::mem::replace(&mut self.next, Next::End) {
            Next::End => return Poll::Ready(None),
            Next::Reading(reading) => reading,
            Next::Idle(mut log) => {
                let threads = self.threads.clone();
                Box::pin(async move {
                    let read = move || {
                        let bytes = log.next();
                        (log, bytes)
                    };
                    threads.run(read).await
                })
            }
        };
        match reading.as_mut().poll(context) {
            Poll::Pending => {
                self.next = Next::Reading(reading);
                Poll::Pending
            }
            Poll::Ready((_, None)) => Poll::Ready(None),
            Poll::Ready((log, Some(bytes))) => {
                self.next = Next::Idle(log);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }
}
