//! `/tasklog`: the logs of a task, for people and for job clients.
//!
//! Spec: mapreduce/04 §4.11.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};

use form_urlencoded::parse;
use http_body_util::Either;
use hyper::body::{Bytes, Frame};
use hyper::{Response, StatusCode, header};
use tokio::sync::mpsc;

use super::{Body, text};
use crate::child::{LogFile, LogPart, Logs};
use crate::ids::AttemptId;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for a reader.
const CHUNKS: usize = 4;

/// What is asked for.
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
    /// Reads a query. An error is what to tell.
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

/// Answers a request.
pub(super) async fn answer(logs: &Logs, query: &str) -> Response<Body> {
    let wanted = match Wanted::parse(query) {
        Ok(wanted) => wanted,
        Err(told) => return text(StatusCode::BAD_REQUEST, told.into_owned()),
    };
    let is_plain = wanted.is_plain;
    let logs = logs.clone();
    let opened = tokio::task::spawn_blocking(move || open(&logs, &wanted).map(|o| (wanted, o)));
    let (wanted, parts) = match opened.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(told)) => return text(StatusCode::GONE, told),
        Err(_) => return text(StatusCode::SERVICE_UNAVAILABLE, "The task tracker stops"),
    };
    let (sender, chunks) = mpsc::channel(CHUNKS);
    // It ends with the log, or when nobody reads any more.
    tokio::task::spawn_blocking(move || send(&wanted, parts, &sender));
    let mut response = Response::new(Either::Right(LogBody { chunks }));
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

/// Opens what is asked for, or tells that there is nothing.
fn open(logs: &Logs, wanted: &Wanted) -> Result<Vec<(LogFile, LogPart)>, String> {
    let asked = wanted.filter.map_or(LogFile::ALL.to_vec(), |filter| vec![filter]);
    let mut parts = Vec::new();
    for log in asked {
        let part = logs.open(&wanted.attempt, log, wanted.is_cleanup, wanted.start, wanted.end);
        parts.extend(part.ok().map(|part| (log, part)));
    }
    if !parts.is_empty() {
        return Ok(parts);
    }
    let which = wanted.filter.map_or("any", LogFile::file_name);
    Err(format!("Failed to retrieve {which} log for task: {}", wanted.attempt))
}

/// Writes the page, or the log alone. An error is that nobody reads any more.
fn send(wanted: &Wanted, parts: Vec<(LogFile, LogPart)>, to: &mpsc::Sender<Bytes>) {
    // The reader has gone; so is the reason to write.
    let _ = try_send(wanted, parts, to);
}

fn try_send(
    wanted: &Wanted,
    parts: Vec<(LogFile, LogPart)>,
    to: &mpsc::Sender<Bytes>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    let say = |text: String| match wanted.is_plain {
        true => Ok(()),
        false => to.blocking_send(text.into()),
    };
    let attempt = &wanted.attempt;
    say(format!(
        "<html>\n<title>Task Logs: '{attempt}'</title>\n<body>\n<h1>Task Logs: '{attempt}'</h1><br>\n"
    ))?;
    for (log, part) in parts {
        say(format!("<br><b><u>{} logs</u></b><br>\n<pre>\n", log.file_name()))?;
        let mut log = part.file.take(part.bytes);
        let mut buffer = vec![0; CHUNK_BYTES];
        // A log that cannot be read to its end is shown as far as it can.
        while let Ok(length @ 1..) = log.read(&mut buffer) {
            let bytes = buffer.get(..length).unwrap_or_default();
            let chunk = if wanted.is_plain { bytes.to_vec() } else { escaped(bytes) };
            to.blocking_send(chunk.into())?;
        }
        say("</pre></td></tr></table><hr><br>\n".into())?;
    }
    say("</body></html>\n".into())
}

/// Bytes of a log as text of a page.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'<' => out.extend(b"&lt;"),
            b'>' => out.extend(b"&gt;"),
            b'&' => out.extend(b"&amp;"),
            _ => out.push(*byte),
        }
    }
    out
}

/// A log that is read while it is sent.
#[derive(Debug)]
pub(super) struct LogBody {
    chunks: mpsc::Receiver<Bytes>,
}

impl hyper::body::Body for LogBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.chunks.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
