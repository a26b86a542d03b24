//! Errors that travel: Java exceptions by class and text. Spec: mapreduce/01 §1.4.

use std::fmt;

use thiserror::Error;

use crate::io::formats::{Format, WString, Writable};
use crate::io::{DecodeError, Reader, Writer};

/// The class of every error for which the original has no better one. No client distinguishes
/// others.
const IO_EXCEPTION: &str = "java.io.IOException";

/// The longest text of an error that is sent, in characters.
const MAX_TEXT_CHARS: usize = 16 * 1024;

/// Why a method fails: a Java exception.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{class}: {message}")]
pub struct Fault {
    class: &'static str,
    message: String,
}

impl Fault {
    /// A `java.io.IOException` with this message.
    pub fn io(message: impl Into<String>) -> Fault {
        Fault { class: IO_EXCEPTION, message: message.into() }
    }

    /// An exception that no caller expects, such as `java.lang.RuntimeException`: callers get it
    /// inside a `java.io.IOException`.
    pub fn unexpected(class: &str, message: &str) -> Fault {
        Fault::io(format!("{class}: {message}"))
    }

    /// An exception of this class, which callers know. Its text begins with the class.
    pub fn of(class: &'static str, message: impl Into<String>) -> Fault {
        Fault { class, message: message.into() }
    }

    /// The parameters do not fit the method.
    pub(super) fn illegal_argument(message: &str) -> Fault {
        Fault::unexpected("java.lang.IllegalArgumentException", message)
    }

    /// The interface has no such method. Clients look for this one after the handshake.
    pub(super) fn no_such_method(method: &str) -> Fault {
        Fault::unexpected("java.lang.NoSuchMethodException", method)
    }
}

/// An error as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// The class of the exception.
    pub class: Option<String>,
    /// The class and the message; the original adds where it was thrown, in further lines.
    pub text: Option<String>,
}

impl RemoteError {
    /// The class and the message, without the stack trace.
    pub fn first_line(&self) -> &str {
        let text = self.text.as_deref().or(self.class.as_deref()).unwrap_or("no reason given");
        text.lines().next().unwrap_or_default()
    }

    /// The message without its class and without the stack trace. It may have several lines.
    pub fn message(&self) -> &str {
        let text = self.text.as_deref().or(self.class.as_deref()).unwrap_or("no reason given");
        let text = text.split("\n\tat ").next().unwrap_or_default().trim_end();
        let own = self.class.as_deref().and_then(|class| text.strip_prefix(class));
        own.and_then(|rest| rest.strip_prefix(':')).map_or(text, str::trim_start)
    }

    /// Whether the method does not exist there.
    pub fn is_no_such_method(&self) -> bool {
        const BEGINNING: &str = "java.io.IOException: java.lang.NoSuchMethodException";
        self.class.as_deref() == Some(IO_EXCEPTION) && self.first_line().starts_with(BEGINNING)
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.first_line())
    }
}

impl From<Fault> for RemoteError {
    fn from(fault: Fault) -> RemoteError {
        let mut text: String = fault.to_string().chars().take(MAX_TEXT_CHARS).collect();
        text.push('\n');
        RemoteError { class: Some(fault.class.to_owned()), text: Some(text) }
    }
}

impl Writable for RemoteError {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let class = WString::decode(reader)?;
        Ok(RemoteError { class, text: WString::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        WString::encode(&self.class, writer);
        WString::encode(&self.text, writer);
    }
}
