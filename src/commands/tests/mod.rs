//! Command lines as a whole: their calls, output and exit status.

mod check_config;
mod daemons;
mod fs;
mod hadoop;
mod journal;
mod line;
mod peers;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::Value;

use super::*;

/// The results of a command line.
struct Done {
    status: ExitCode,
    out: String,
    err: String,
}

/// Runs a command line without the program's name; blanks are between the words.
fn corona(line: &str) -> Done {
    corona_words(&line.split(' ').collect::<Vec<_>>())
}

fn corona_words(words: &[&str]) -> Done {
    run_as("corona", words)
}

/// Runs the program under this name.
fn run_as(program: &str, words: &[&str]) -> Done {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = std::iter::once(&program).chain(words).map(OsString::from);
    let status = run(words, &mut Console::of_test(&mut out, &mut err));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { status, out: text(out), err: text(err) }
}

impl Done {
    #[track_caller]
    fn is(self, status: u8, out: &str, err: &str) {
        assert_eq!(
            (self.out.as_str(), self.err.as_str(), self.status),
            (out, err, ExitCode::from(status))
        );
    }

    /// It has failed, with nothing but one line, which starts with this text.
    #[track_caller]
    fn fails(&self, start: &str) {
        self.fails_with(start);
        assert!(self.err.starts_with(start), "{start} is not the start of: {}", self.err);
    }

    /// It has failed, with nothing but one line, which contains this text.
    #[track_caller]
    fn fails_with(&self, part: &str) {
        assert_eq!((self.out.as_str(), self.status), ("", ExitCode::from(1)), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.contains(part), "{part} is not in: {}", self.err);
    }

    /// What it has printed for a program.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}
