//! Errors and warnings of a configuration, and their places: one type, one clear line of text each.
//!
//! It knows nothing of the files' formats.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use corona_model::text::escape;
use thiserror::Error;

/// Whether a problem keeps the configuration from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A value is ignored or replaced; the effect may not be the intended one.
    Warning,
    /// The configuration is refused.
    Error,
}

/// Where a value or a problem comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, and the line in it (from 1) where that is known.
    File {
        /// The file, as it was opened.
        path: Arc<Path>,
        /// The line, from 1.
        line: Option<u32>,
    },
    /// `-D key=value`.
    CommandLine,
    /// Not set anywhere: the default.
    Default,
}

impl Origin {
    /// A file as a whole.
    pub(super) fn file(path: &Path) -> Self {
        Origin::File { path: path.into(), line: None }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line: None } => write!(f, "{}", path.display()),
            Origin::CommandLine => f.write_str("-D"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One error or warning: `<file>:<line>: <key or element>: <problem>; expected <correct form>`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Problem {
    /// Whether the configuration can be used all the same.
    pub severity: Severity,
    /// Where it is.
    pub origin: Origin,
    /// The key, or the element with the names around it, such as `group g: pool p: minMAP`.
    pub subject: Option<String>,
    /// The kind of problem.
    pub kind: ProblemKind,
}

impl Problem {
    /// A problem that keeps the configuration from being used.
    pub(super) fn error(origin: Origin, kind: ProblemKind) -> Self {
        Problem { severity: Severity::Error, origin, subject: None, kind }
    }

    /// A problem that is only reported.
    pub(super) fn warning(origin: Origin, kind: ProblemKind) -> Self {
        Problem { severity: Severity::Warning, origin, subject: None, kind }
    }

    /// The same problem, of this key or element.
    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The same problem as a warning.
    pub(super) fn into_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = OneLine(f);
        write!(line, "{}: ", self.origin)?;
        if let Some(subject) = &self.subject {
            write!(line, "{subject}: ")?;
        }
        write!(line, "{}", self.kind)
    }
}

/// Escapes hidden characters: names and messages may quote a file, whose contents must not break,
/// colour or turn the line.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&escape(text))
    }
}

/// The kind of problem, without its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemKind {
    /// The operating system refused, or it is not a file.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// A file that is named somewhere is not there.
    #[error("file {path} does not exist{}; {used}", LookedIn(.looked_in))]
    Absent {
        /// The file, as it is named.
        path: Box<str>,
        /// The directories in which a relative path was looked for, if there are several.
        looked_in: Vec<Box<str>>,
        /// The effect of its absence.
        used: Box<str>,
    },
    /// More than is read of any configuration.
    #[error("is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The bound that it exceeds.
        limit_bytes: u64,
    },
    /// The bytes are not text.
    #[error("is not text: {0}; expected UTF-8, ISO-8859-1, or UTF-16 with a byte order mark")]
    Encoding(String),
    /// Not well-formed.
    #[error("is not well-formed XML: {0}")]
    Xml(String),
    /// Well-formed, perhaps, but beyond a limit of the reader.
    #[error("is refused: {0}")]
    Bound(String),
    /// An `xi:include` that cannot be followed.
    #[error("xi:include: {0}")]
    Include(String),
    /// Not a JSON document of the expected shape.
    #[error("is not usable JSON: {0}")]
    Json(String),
    /// The outermost element is another one.
    #[error("the outermost element is <{found}>; expected <configuration>")]
    Root {
        /// Its name.
        found: String,
    },
    /// An element that means nothing at its place.
    #[error("unknown element <{name}>{}", Meant(.meant))]
    UnknownElement {
        /// The element's name, as the file has it.
        name: Box<str>,
        /// A known element that is spelled like it.
        meant: Option<Box<str>>,
    },
    /// A key in one of our name spaces that nothing reads.
    #[error("unknown key, ignored{}", MeantKey(.meant))]
    UnknownKey {
        /// A known key that is spelled like it.
        meant: Option<SimilarKey>,
    },
    /// An element without the child or attribute that it needs.
    #[error("has no {0}")]
    Incomplete(&'static str),
    /// An element with something else in it than text.
    #[error("starts with an element or an instruction; expected text")]
    NotText,
    /// A value that cannot be used.
    #[error("value {:?} {wrong}; expected {expected}", Excerpt(.value))]
    Value {
        /// The value as it was read, variables replaced.
        value: Box<str>,
        /// The fault, such as `is not a whole number`.
        wrong: Box<str>,
        /// The expected form.
        expected: Box<str>,
    },
    /// An unusable value that is replaced by another one.
    #[error("value {:?} {wrong}; {used}", Excerpt(.value))]
    Replaced {
        /// The value as it was read.
        value: Box<str>,
        /// The fault, such as `is negative`.
        wrong: Box<str>,
        /// The replacement, such as `60000 is used`.
        used: Box<str>,
    },
    /// A key that must be set is not.
    #[error("is not set; expected {expected}")]
    Required {
        /// The expected form.
        expected: String,
    },
    /// A later resource sets a key that an earlier one made final. The wording is the original's.
    #[error("a attempt to override final parameter: {0};  Ignoring.")]
    Final(String),
    /// A `${name}` without a value.
    #[error("value {:?} has the undefined variable {variable}, which is not replaced", Excerpt(.value))]
    UndefinedVariable {
        /// The value after the replacements that were possible.
        value: String,
        /// The variable, `${...}`.
        variable: String,
    },
    /// Something that has no effect here.
    #[error("{0}")]
    NoEffect(String),
}

/// A key that may have been meant where another one is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimilarKey {
    /// The key that may have been meant.
    pub name: &'static str,
    /// Its default, which is used; none when the key is set as well.
    pub default: Option<&'static str>,
}

/// The end of a problem that may be a typing error.
struct Meant<'a>(&'a Option<Box<str>>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean <{name}>?"),
            None => Ok(()),
        }
    }
}

/// The same for keys.
struct MeantKey<'a>(&'a Option<SimilarKey>);

impl fmt::Display for MeantKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(SimilarKey { name, default }) = self.0 else { return Ok(()) };
        write!(f, "; did you mean {name}? ")?;
        match default {
            None => f.write_str("It is set as well"),
            Some("") => f.write_str("It is not set"),
            Some(default) => write!(f, "It is not set, so its default {default} is used"),
        }
    }
}

/// Where a file was looked for.
struct LookedIn<'a>(&'a [Box<str>]);

impl fmt::Display for LookedIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.0.iter().enumerate() {
            write!(f, "{}{place}", if index == 0 { " in " } else { " or " })?;
        }
        Ok(())
    }
}

/// The start of a value, so that a line stays a line. Quotation marks inside are not escaped where
/// the others are around it.
struct Excerpt<'a>(&'a str);

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 200;
        let (start, more) = match self.0.char_indices().nth(LONGEST) {
            Some((end, _)) => (self.0.get(..end).unwrap_or_default(), "..."),
            None => (self.0, ""),
        };
        if !start.contains('"') || start.contains('\'') {
            return write!(f, "{start:?}{more}");
        }
        f.write_char('\'')?;
        for character in start.chars() {
            match character {
                '"' => f.write_char('"')?,
                other => write!(f, "{}", other.escape_debug())?,
            }
        }
        write!(f, "'{more}")
    }
}

/// A configuration that is refused: every problem that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
pub struct ConfigErrors {
    /// All problems, warnings included, in the order in which they were found. At least one of
    /// them is an error.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// The problems for which the configuration is refused.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error)
    }
}

impl fmt::Display for ConfigErrors {
    /// The errors, one a line, without the warnings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.errors().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// The warnings, when there is no error among the problems; else all problems.
pub(super) fn warnings_or_errors(problems: Vec<Problem>) -> Result<Vec<Problem>, ConfigErrors> {
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        Err(ConfigErrors { problems })
    } else {
        Ok(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_that_says_where_what_and_what_instead() {
        let origin =
            Origin::File { path: Path::new("/etc/corona/core-site.xml").into(), line: Some(7) };
        let kind = ProblemKind::Value {
            value: "ten\nsecs".into(),
            wrong: "is not a whole number".into(),
            expected: "milliseconds, 1 to 2147483647".into(),
        };
        assert_eq!(
            Problem::error(origin, kind).of("cm.node.expiryinterval").to_string(),
            "/etc/corona/core-site.xml:7: cm.node.expiryinterval: value \"ten\\nsecs\" is not a whole \
             number; expected milliseconds, 1 to 2147483647"
        );
    }

    #[test]
    fn texts_of_files_cannot_break_the_line() {
        for (text, shown) in [
            ("expected '>' not '\n' at 2:1", "expected '>' not '\\n' at 2:1"),
            ("\u{1b}[31m\0", "\\u{1b}[31m\\u{0}"),
            ("ß\r\n", "ß\\r\\n"),
            ("", ""),
        ] {
            let problem = Problem::error(Origin::Default, ProblemKind::NoEffect(text.to_owned()));
            let line = problem.of(text).to_string();
            assert!(line.ends_with(&format!("{shown}: {shown}")), "{line:?}");
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let kind = ProblemKind::Value {
            value: "é".repeat(1000).into(),
            wrong: "is long".into(),
            expected: "less".into(),
        };
        let line = Problem::error(Origin::CommandLine, kind).of("k").to_string();
        assert!(
            line.starts_with("-D: k: value \"éé") && line.ends_with("\"... is long; expected less")
        );
        assert!(line.chars().count() < 260, "{line}");
    }

    #[test]
    fn quotation_marks_in_a_value_are_not_escaped() {
        for (value, shown) in [
            (r#"{"1": 2}"#, r#"'{"1": 2}'"#),
            ("{\"1\":\n\\}", r#"'{"1":\n\\}'"#),
            (r#"it's "quoted""#, r#""it's \"quoted\"""#),
            ("it's", r#""it's""#),
        ] {
            assert_eq!(format!("{:?}", Excerpt(value)), shown);
        }
    }

    #[test]
    fn a_similar_key_is_named_with_the_value_that_is_used() {
        for (default, end) in [
            (Some("localhost:8888"), "It is not set, so its default localhost:8888 is used"),
            (Some(""), "It is not set"),
            (None, "It is set as well"),
        ] {
            let meant = Some(SimilarKey { name: "cm.server.address", default });
            let expected = format!("unknown key, ignored; did you mean cm.server.address? {end}");
            assert_eq!(ProblemKind::UnknownKey { meant }.to_string(), expected);
        }
    }

    #[test]
    fn only_errors_refuse() {
        let warning = Problem::warning(Origin::Default, ProblemKind::UnknownKey { meant: None });
        let error = Problem::error(Origin::CommandLine, ProblemKind::NotText);
        assert_eq!(warnings_or_errors(vec![warning.clone()]), Ok(vec![warning.clone()]));
        let refused = warnings_or_errors(vec![warning, error.clone()]).unwrap_err();
        assert_eq!(refused.to_string(), error.to_string());
        assert_eq!(refused.problems.len(), 2);
    }
}
