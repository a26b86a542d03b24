//! What an object store has refused, as one line: what it is, which object, and what to do.

use std::error::Error;

use object_store::Error as StoreError;

use super::http::TOO_LARGE;
use crate::path::FsPath;
use crate::{ErrorKind, FsError};

/// Bytes of the words of a server that are repeated.
const MAX_WORDS: usize = 200;

/// The error of a call, in our words.
pub(super) fn told(error: &StoreError, call: &'static str, path: &FsPath, server: &str) -> FsError {
    let text = whole(error);
    let (kind, message) = match error {
        StoreError::InvalidPath { .. } => {
            (ErrorKind::Invalid, format!("its name cannot be that of an object: {error}"))
        }
        StoreError::Precondition { .. } => changed(),
        _ => of_text(&text, matches!(error, StoreError::NotFound { .. }), path),
    };
    let error = FsError::new(kind, call, path, cut(&message));
    match kind {
        ErrorKind::NotFound | ErrorKind::Invalid => error,
        _ => error.at(server),
    }
}

/// An object whose content is another one than it was.
pub(super) fn changed() -> (ErrorKind, String) {
    (
        ErrorKind::Invalid,
        "it has changed since it was listed or opened: the object is another one now".to_owned(),
    )
}

/// The error that an answer with this status and this body is.
pub(super) fn of_answer(
    status: u16,
    body: &str,
    call: &'static str,
    path: &FsPath,
    server: &str,
) -> FsError {
    let text = format!("status code: {status} {body}");
    let (kind, message) = of_text(&text, status == 404, path);
    FsError::new(kind, call, path, cut(&message)).at(server)
}

/// The error and its causes.
fn whole(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let more = found.to_string();
        // Mostly an error has the text of its cause.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = found.source();
    }
    text
}

fn of_text(text: &str, is_missing: bool, path: &FsPath) -> (ErrorKind, String) {
    let bucket = path.root().map(|root| root.authority().to_owned()).unwrap_or_default();
    let code = element(text, "Code").unwrap_or_default();
    let words = element(text, "Message").unwrap_or_default();
    let is = |status: &str| text.contains(&format!("status code: {status}"));
    if text.contains(TOO_LARGE) {
        return (ErrorKind::Malformed, TOO_LARGE.to_owned());
    }
    match code {
        "NoSuchBucket" => (ErrorKind::Invalid, format!("there is no bucket {bucket}")),
        "NoSuchKey" => (ErrorKind::NotFound, "No such file or directory".to_owned()),
        "NoSuchUpload" => (ErrorKind::NotFound, "the upload has been ended by somebody else".to_owned()),
        "PreconditionFailed" => changed(),
        "InvalidAccessKeyId" => {
            (ErrorKind::Permission, "the object store does not know the access key (AWS_ACCESS_KEY_ID, or the profile)".to_owned())
        }
        "SignatureDoesNotMatch" => (
            ErrorKind::Permission,
            "the secret key is not that of the access key (AWS_SECRET_ACCESS_KEY, or the profile)".to_owned(),
        ),
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (ErrorKind::Permission, "the session token has expired or is not valid (AWS_SESSION_TOKEN)".to_owned())
        }
        "RequestTimeTooSkewed" => (
            ErrorKind::Invalid,
            "the clock of this machine differs too much from that of the object store: set it, and try again".to_owned(),
        ),
        "AccessDenied" | "AllAccessDisabled" => {
            (ErrorKind::Permission, format!("Permission denied: the keys may not do this: {words}"))
        }
        "SlowDown" | "ServiceUnavailable" | "InternalError" => (
            ErrorKind::TooSlow,
            format!("the object store still answers {code} after retries; try again later, with fewer tasks at a time"),
        ),
        _ if code == "NotImplemented" || is("501") => {
            (ErrorKind::Unsupported, format!("the object store does not support this request: {words}"))
        }
        _ if is_missing => (ErrorKind::NotFound, "No such file or directory".to_owned()),
        _ if is("412") => changed(),
        _ if is("401") || is("403") => {
            let why = format!("Permission denied: the object store refuses it: {code} {words}");
            (ErrorKind::Permission, why.trim_end_matches([' ', ':']).to_owned())
        }
        _ if is("429") || is("50") => (
            ErrorKind::TooSlow,
            "the object store still answers that it is too busy after retries; try again later, with fewer tasks at a time"
                .to_owned(),
        ),
        _ if is("301") || text.contains("incorrectly configured region") => (
            ErrorKind::Invalid,
            format!("the bucket {bucket} is in another region: name it in AWS_REGION"),
        ),
        "" if text.contains("169.254.") || text.contains("/latest/api/token") => (
            ErrorKind::Permission,
            "there are no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile; the machine has no role \
             either"
                .to_owned(),
        ),
        "" if text.contains("HTTP error") => {
            (ErrorKind::Connection, format!("the object store does not answer: {}", last_cause(text)))
        }
        "" => (ErrorKind::Remote, text.to_owned()),
        code => (ErrorKind::Remote, format!("{code}: {words}")),
    }
}

/// What the last of the causes says.
fn last_cause(text: &str) -> &str {
    text.rsplit("HTTP error: ").next().unwrap_or(text)
}

/// The text of an element of XML that has only text.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(inner, _)| inner.trim())
}

fn cut(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let mut end = line.len().min(2 * MAX_WORDS);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_one_line_that_names_the_object_and_what_to_do() {
        let path = FsPath::parse("s3://bucket/dir/a").unwrap();
        for (status, body, kind, expected) in [
            (
                404,
                "<Error><Code>NoSuchBucket</Code></Error>",
                ErrorKind::Invalid,
                "there is no bucket bucket",
            ),
            (404, "", ErrorKind::NotFound, "No such file or directory"),
            (
                403,
                "<Error><Code>InvalidAccessKeyId</Code></Error>",
                ErrorKind::Permission,
                "AWS_ACCESS_KEY_ID",
            ),
            (
                403,
                "<Error><Code>SignatureDoesNotMatch</Code></Error>",
                ErrorKind::Permission,
                "AWS_SECRET_ACCESS_KEY",
            ),
            (
                403,
                "<Error><Code>RequestTimeTooSkewed</Code></Error>",
                ErrorKind::Invalid,
                "the clock of this machine",
            ),
            (
                400,
                "<Error><Code>ExpiredToken</Code></Error>",
                ErrorKind::Permission,
                "the session token has expired",
            ),
            (403, "", ErrorKind::Permission, "refuses it"),
            (
                503,
                "<Error><Code>SlowDown</Code></Error>",
                ErrorKind::TooSlow,
                "SlowDown after retries",
            ),
            (500, "", ErrorKind::TooSlow, "after retries"),
            (501, "", ErrorKind::Unsupported, "does not support this request"),
            (412, "", ErrorKind::Invalid, "it has changed since"),
            (301, "", ErrorKind::Invalid, "AWS_REGION"),
            (
                400,
                "<Error>\n<Code>Odd</Code><Message>much\n\u{1b}more</Message></Error>",
                ErrorKind::Remote,
                "Odd: much",
            ),
        ] {
            let error = of_answer(status, body, "open", &path, "h:1");
            assert_eq!(error.kind, kind, "{error}");
            let told = error.to_string();
            assert!(told.starts_with("s3://bucket/dir/a: ") && told.contains(expected), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn the_words_of_a_server_are_bounded() {
        let path = FsPath::parse("s3://bucket/a").unwrap();
        let body = format!("<Code>Odd</Code><Message>{}</Message>", "é".repeat(100_000));
        assert!(of_answer(400, &body, "open", &path, "h").message.len() <= 2 * MAX_WORDS);
    }
}
