//! Where commands print, with its width and colours.
//!
//! Texts from peers pass through [`printable`], so that they cannot send commands to the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
pub use corona_model::text::{escape as printable, escape_json as harmless_json};
use serde::Serialize;

use crate::wrap::wrapped;

/// Columns of a terminal of unknown width.
const USUAL_WIDTH: usize = 80;
/// Lines of a terminal of unknown height.
const USUAL_HEIGHT: usize = 24;
/// The minimum width at which columns of a table have contents.
const LEAST_WIDTH: usize = 40;

/// The two output streams of a command, and the properties of stdout.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Columns that a line may have; none for any number.
    pub width: Option<usize>,
    /// Lines of the terminal; none where stdout is no terminal.
    pub height: Option<usize>,
    /// Whether terminal codes for colours may be sent.
    pub colours: bool,
    /// Whether JSON is written on one line.
    json_lines: bool,
    answers: Answers,
}

/// Where answers to questions come from.
#[derive(Clone, Copy, Debug)]
enum Answers {
    /// Nobody can answer.
    Nobody,
    Stdin,
    /// The lines of a test that are left.
    #[cfg(any(test, feature = "testing"))]
    Test(&'static str),
}

impl Answers {
    /// The next line; empty at the end.
    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        match self {
            Answers::Nobody => return None,
            // What cannot be read is no yes.
            Answers::Stdin => drop(io::stdin().read_line(&mut line)),
            #[cfg(any(test, feature = "testing"))]
            Answers::Test(left) => {
                let (first, rest) = left.split_once('\n').unwrap_or_default();
                (line, *left) = (first.to_owned(), rest);
            }
        }
        Some(line)
    }
}

impl<'a> Console<'a> {
    /// The streams of the process. The width is that of the terminal, or
    /// `$COLUMNS` when it is set; where stdout is no terminal nothing is cut.
    /// Colours: on a terminal, unless `$NO_COLOR` is set or the terminal is
    /// dumb.
    pub fn of_process(out: &'a mut io::Stdout, err: &'a mut io::Stderr) -> Self {
        let size = out.is_terminal().then(|| terminal_size::terminal_size_of(&*out));
        let terminal = size.map(|size| size.map(|(width, _)| usize::from(width.0)));
        let height =
            size.map(|size| size.map_or(USUAL_HEIGHT, |(_, height)| usize::from(height.0)));
        let variable = |name: &str| std::env::var_os(name);
        let (width, colours) = look(terminal, variable);
        let can_answer = io::stdin().is_terminal() && err.is_terminal();
        let answers = if can_answer { Answers::Stdin } else { Answers::Nobody };
        Console { out, err, width, height, colours, json_lines: false, answers }
    }

    /// Streams of a test.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(out: &'a mut Vec<u8>, err: &'a mut Vec<u8>) -> Self {
        let width = Some(USUAL_WIDTH);
        Console {
            out,
            err,
            width,
            height: None,
            colours: false,
            json_lines: false,
            answers: Answers::Nobody,
        }
    }

    /// The same where somebody answers.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_answers(self, answers: &'static str) -> Self {
        Console { answers: Answers::Test(answers), ..self }
    }

    /// Asks a question on stderr. None: nobody can answer. What is no yes is a no.
    pub fn confirm(&mut self, question: &str) -> Option<bool> {
        if matches!(self.answers, Answers::Nobody) {
            return None;
        }
        self.complain(&format!("{} [y/N] ", printable(question)));
        let answer = self.answers.next()?;
        Some(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    }

    /// The output of a command on stdout, for a console with the same
    /// properties. JSON is on one line.
    pub fn capture(
        &mut self,
        command: impl FnOnce(&mut Console<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let mut text = Vec::new();
        let Console { width, height, colours, .. } = *self;
        let mut inner = Console {
            out: &mut text,
            err: &mut *self.err,
            width,
            height,
            colours,
            json_lines: true,
            answers: Answers::Nobody,
        };
        command(&mut inner)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes to stdout and flushes. A closed pipe, as with `| head`, is not an
    /// error.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Writes bytes to stdout as they are. False: the pipe is closed, as with `| head`.
    pub fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self.out.write_all(bytes).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Writes to stderr. Failures are ignored.
    pub fn complain(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes()).and_then(|()| self.err.flush());
    }

    /// Writes a text that is safe for a terminal to stderr, in lines of the width.
    pub fn complain_wrapped(&mut self, text: &str) {
        self.complain(&wrapped(text, "", self.width));
    }

    /// Writes a value as JSON to stdout: indented, unless the output is one
    /// value per line.
    pub fn print_json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = match self.json_lines {
            true => serde_json::to_string(value)?,
            false => serde_json::to_string_pretty(value)?,
        };
        text.push('\n');
        Ok(self.print(&text)?)
    }

    fn show(
        &mut self,
        as_json: bool,
        result: &impl Serialize,
        text: impl FnOnce(&Console<'_>) -> String,
    ) -> anyhow::Result<()> {
        if as_json {
            return self.print_json(result);
        }
        let text = text(self);
        Ok(self.print(&text)?)
    }
}

/// Width and colours. `terminal` is none when stdout is no terminal, else its width if known.
fn look(
    terminal: Option<Option<usize>>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> (Option<usize>, bool) {
    let columns = variable("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    let columns = columns.filter(|columns| *columns > 0);
    let width = columns.or(terminal.map(|width| width.unwrap_or(USUAL_WIDTH)));
    let wanted = variable("NO_COLOR").is_none_or(|value| value.is_empty());
    let able = variable("TERM").is_none_or(|value| value != "dumb");
    (width.map(|width| width.max(LEAST_WIDTH)), terminal.is_some() && wanted && able)
}

/// The form of the result of a command that shows tables.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArguments {
    /// Output as text for people or as JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Table)]
    #[arg(default_value_if("json", "true", "json"))]
    pub output: Form,

    /// The same as --output json
    #[arg(long)]
    json: bool,

    /// Do not truncate to the terminal width (nodes list: show more columns)
    #[arg(long)]
    pub wide: bool,
}

impl OutputArguments {
    /// Prints a result: as JSON, or as the text that people get.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn show(
        &self,
        console: &mut Console<'_>,
        result: &impl Serialize,
        text: impl FnOnce(&Console<'_>) -> String,
    ) -> anyhow::Result<()> {
        console.show(self.output == Form::Json, result, text)
    }
}

/// The form of the result of a command without tables.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct FormArguments {
    /// Output as text for people or as JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextForm::Text)]
    #[arg(default_value_if("json", "true", "json"))]
    pub output: TextForm,

    /// The same as --output json
    #[arg(long)]
    json: bool,
}

impl FormArguments {
    /// Prints a result: as JSON, or as the text that people get.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn show(
        &self,
        console: &mut Console<'_>,
        result: &impl Serialize,
        text: impl FnOnce(&Console<'_>) -> String,
    ) -> anyhow::Result<()> {
        console.show(self.output == TextForm::Json, result, text)
    }
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "a comment on a variant is a text of --help")]
pub enum Form {
    #[value(alias = "text")]
    Table,
    Json,
}

/// The form of a result that is no table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "a comment on a variant is a text of --help")]
pub enum TextForm {
    #[default]
    #[value(alias = "table")]
    Text,
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_and_colours() {
        type Case = (Option<Option<usize>>, &'static [(&'static str, &'static str)]);
        let cases: [(Case, (Option<usize>, bool)); 12] = [
            ((None, &[]), (None, false)),
            ((None, &[("COLUMNS", "100")]), (Some(100), false)),
            ((Some(None), &[]), (Some(80), true)),
            ((Some(Some(132)), &[]), (Some(132), true)),
            ((Some(Some(132)), &[("COLUMNS", "90")]), (Some(90), true)),
            ((Some(Some(132)), &[("COLUMNS", "wide")]), (Some(132), true)),
            ((Some(Some(132)), &[("COLUMNS", "0")]), (Some(132), true)),
            ((Some(Some(10)), &[]), (Some(40), true)),
            ((Some(Some(80)), &[("NO_COLOR", "1")]), (Some(80), false)),
            ((Some(Some(80)), &[("NO_COLOR", "")]), (Some(80), true)),
            ((Some(Some(80)), &[("TERM", "dumb")]), (Some(80), false)),
            ((Some(Some(80)), &[("TERM", "xterm")]), (Some(80), true)),
        ];
        for ((terminal, variables), expected) in cases {
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
            };
            assert_eq!(look(terminal, variable), expected, "{terminal:?} {variables:?}");
        }
    }

    #[test]
    fn questions_are_asked_where_somebody_can_answer() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        assert_eq!(console.confirm("delete it?"), None);
        let mut console = console.with_answers("y\nYES\nno\n\nyesterday\n");
        let answers: Vec<_> = (0..6).map(|_| console.confirm("delete \u{1b}?")).collect();
        assert_eq!(answers, [true, true, false, false, false, false].map(Some));
        assert_eq!(String::from_utf8(err).unwrap(), "delete \\u{1b}? [y/N] ".repeat(6));
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        struct Refusing(io::ErrorKind);
        impl Write for Refusing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for (kind, fine) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)]
        {
            let (mut out, mut err) = (Refusing(kind), Vec::new());
            let mut console = Console {
                out: &mut out,
                err: &mut err,
                width: None,
                height: None,
                colours: false,
                json_lines: false,
                answers: Answers::Nobody,
            };
            assert_eq!(console.print("x").is_ok(), fine, "{kind:?}");
        }
    }
}
