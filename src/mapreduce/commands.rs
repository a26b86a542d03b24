//! Lists of commands: what the tasks of such a job run, and the results that they write.
//!
//! A line of the list has the number of a command, a tab, and the value that stands for `{}`. A result is a
//! line of JSON, followed by what the command has written to stdout and to stderr.

use corona_model::text::shell_word;
use serde::{Deserialize, Serialize};

/// What stands for the value of a line in a command.
const VALUE: &str = "{}";

/// The command of all lines, and how it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandList {
    /// The program and its arguments, in which `{}` stands for the value.
    pub words: Vec<String>,
    /// Whether the value is quoted for a shell.
    #[serde(default)]
    pub is_quoted: bool,
    /// How often a command that has failed is tried again.
    #[serde(default)]
    pub retries: u32,
    /// How long a command may take, in milliseconds; 0 for any time.
    #[serde(default)]
    pub time_ms: u64,
}

impl CommandList {
    /// The words of the command of a line with this value.
    pub fn words_of(&self, value: &str) -> Vec<String> {
        let value = match self.is_quoted {
            true => shell_word(value),
            false => value.to_owned(),
        };
        self.words.iter().map(|word| word.replace(VALUE, &value)).collect()
    }
}

/// The number and the value in a line of a list; none if it is no such line.
pub fn parse_line(line: &str) -> Option<(u64, &str)> {
    let (number, value) = line.split_once('\t')?;
    Some((number.parse().ok()?, value))
}

/// The result of a command: how its last attempt ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// The number of the command, which it has as `CORONA_TASK_ID`.
    pub id: u64,
    /// The exit status; none if a signal has ended it.
    pub status: Option<i32>,
    /// The signal that has ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it was not started, or was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it was started.
    pub attempts: u32,
    /// How long the last attempt took.
    pub seconds: f64,
    /// The most memory of its first process, as far as that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The machine that it ran on.
    pub node: String,
    /// Bytes of stdout, which follow the line.
    pub stdout_bytes: u64,
    /// Bytes of stderr, which follow those of stdout.
    pub stderr_bytes: u64,
}

impl CommandResult {
    /// Whether the command has succeeded.
    pub fn is_success(&self) -> bool {
        self.status == Some(0) && self.reason.is_none()
    }

    /// How it ended, for people.
    pub fn how(&self) -> String {
        match (&self.reason, self.status, self.signal) {
            (Some(reason), ..) => reason.clone(),
            (None, Some(status), _) => format!("exit status {status}"),
            (None, None, Some(signal)) => format!("signal {signal}"),
            (None, None, None) => "an unknown end".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_their_place() {
        let list = |words: &[&str], is_quoted| CommandList {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            is_quoted,
            ..CommandList::default()
        };
        assert_eq!(
            list(&["convert", "{}.png", "{}"], false).words_of("a b"),
            ["convert", "a b.png", "a b"]
        );
        let shell = list(&["sh", "-c", "wc -l <{}"], true);
        assert_eq!(shell.words_of("it's; rm x")[2], r"wc -l <'it'\''s; rm x'");
    }

    #[test]
    fn lines_have_a_number_and_a_value() {
        assert_eq!(parse_line("7\ta\tb"), Some((7, "a\tb")));
        assert_eq!(parse_line("7\t"), Some((7, "")));
        for wrong in ["", "7", "x\ta", "-1\ta"] {
            assert_eq!(parse_line(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ends_are_worded() {
        let result = |status, signal| CommandResult { status, signal, ..CommandResult::default() };
        assert_eq!(result(Some(3), None).how(), "exit status 3");
        assert_eq!(result(None, Some(9)).how(), "signal 9");
        assert!(result(Some(0), None).is_success() && !result(None, Some(9)).is_success());
    }
}
