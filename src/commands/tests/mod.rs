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
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = ["corona"].iter().chain(words).map(OsString::from);
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
}
