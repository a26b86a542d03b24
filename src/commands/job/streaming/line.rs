//! The options of a streaming job, as the original reads them.

use std::collections::VecDeque;
use std::path::Path;

use crate::commands::hadoop::generic::Generic;
use crate::commands::hadoop::table::{Fate, STREAMING, StreamOpt, Values};

/// The options of a streaming job. Generic ones may stand between its own.
pub(super) struct Line {
    pub(super) generic: Generic,
    values: Vec<(&'static str, String)>,
}

impl Line {
    /// Reads the words of a line.
    ///
    /// # Errors
    /// An option is not known, is refused, has no value or a wrong one, or is missing.
    pub(super) fn of(generic: Generic, mut words: VecDeque<String>) -> Result<Line, String> {
        let mut line = Line { generic, values: Vec::new() };
        // What -jobconf says counts after -D, wherever it stands.
        let mut late = Vec::new();
        loop {
            line.generic.take_all(&mut words)?;
            let Some(word) = words.pop_front() else { break };
            let Some(known) = STREAMING.iter().find(|known| known.option.name == word) else {
                return Err(match word.starts_with('-') {
                    true => format!("Unrecognized option: {word}"),
                    false => format!(
                        "{word:?} belongs to no option; a command of several words is quoted, such as \
                         -mapper 'python3 map.py'"
                    ),
                });
            };
            if let Fate::Refused(why) = known.option.fate {
                return Err(format!("{word} is refused: {why}"));
            }
            let values = values_of(known, &mut words)?;
            match known.option.name {
                "-jobconf" => late.extend(values),
                "-dfs" => {
                    for value in values {
                        line.generic.set_key("fs.default.name", &value)?;
                    }
                }
                "-additionalconfspec" => {
                    line.generic.conf_files.extend(values.into_iter().map(Into::into));
                }
                name => line.values.extend(values.into_iter().map(|value| (name, value))),
            }
        }
        for setting in late {
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("-jobconf {setting}: expected <n>=<v>"))?;
            line.generic.set_key(key, value)?;
        }
        line.check()?;
        Ok(line)
    }

    fn check(&self) -> Result<(), String> {
        if self.has("-help") || self.has("-info") {
            return Ok(());
        }
        for required in ["-input", "-output"] {
            if !self.has(required) {
                return Err(format!("Required argument: {required} <path>"));
            }
        }
        if self.output().contains("${") {
            return Err("-output: the name must not have ${, which tasks replace".to_owned());
        }
        let missing = self.all("-file").find(|file| !Path::new(file).exists());
        match missing {
            Some(file) => Err(format!("File: {file} does not exist, or is not readable.")),
            None => Ok(()),
        }
    }

    pub(super) fn has(&self, option: &str) -> bool {
        self.values.iter().any(|(name, _)| *name == option)
    }

    /// The last value of an option.
    pub(super) fn last(&self, option: &str) -> Option<&str> {
        let last = self.values.iter().rev().find(|(name, _)| *name == option);
        last.map(|(_, value)| &**value)
    }

    /// All values of an option.
    pub(super) fn all<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.values.iter().filter(move |(name, _)| *name == option);
        values.map(|(_, value)| &**value)
    }

    pub(super) fn output(&self) -> &str {
        self.last("-output").unwrap_or_default()
    }

    /// The inputs: each value is a list with commas between, but for those in braces.
    pub(super) fn inputs(&self) -> Vec<String> {
        self.all("-input").flat_map(paths).collect()
    }
}

fn values_of(known: &StreamOpt, words: &mut VecDeque<String>) -> Result<Vec<String>, String> {
    let is_value = |word: &String| !STREAMING.iter().any(|it| it.option.name == word);
    let mut values = Vec::new();
    let most = match known.values {
        Values::None => return Ok(vec![String::new()]),
        Values::One | Values::Each => 1,
        Values::Many => usize::MAX,
    };
    while values.len() < most
        && let Some(word) = words.front()
        // Behind a value, only an option begins with a hyphen.
        && is_value(word)
        && (values.is_empty() || !word.starts_with('-'))
    {
        values.extend(words.pop_front());
    }
    match values.iter().any(|value| value.is_empty()) || values.is_empty() {
        true => Err(format!(
            "Missing argument for option:{}",
            known.option.name.trim_start_matches('-')
        )),
        false => Ok(values),
    }
}

/// The paths of a list with commas between. A comma in braces is part of a pattern.
fn paths(list: &str) -> Vec<String> {
    let (mut paths, mut path, mut depth) = (Vec::new(), String::new(), 0_u32);
    for letter in list.chars() {
        match letter {
            ',' if depth == 0 => paths.push(std::mem::take(&mut path)),
            letter => {
                match letter {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                path.push(letter);
            }
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Line, String> {
        Line::of(Generic::default(), text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_read_as_the_original_reads_them() {
        let line = line(
            "-D a=1 -input x,y{1,2} z -input w -output out -mapper cat -Dc=d -cmdenv A=b -cmdenv B=c \
             -jobconf mapred.reduce.tasks=4 -D mapred.reduce.tasks=3 -verbose",
        )
        .unwrap();
        assert_eq!(line.inputs(), ["x", "y{1,2}", "z", "w"]);
        assert_eq!((line.output(), line.last("-mapper")), ("out", Some("cat")));
        assert_eq!(line.all("-cmdenv").collect::<Vec<_>>(), ["A=b", "B=c"]);
        assert!(line.has("-verbose") && !line.has("-debug"));
        let settings: Vec<String> =
            line.generic.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(settings, ["a=1", "c=d", "mapred.reduce.tasks=3", "mapred.reduce.tasks=4"]);
    }

    #[test]
    fn wrong_lines_are_refused_in_one_line() {
        for (text, expected) in [
            ("-output o", "Required argument: -input <path>"),
            ("-input i", "Required argument: -output <path>"),
            ("-input i -output o -x", "Unrecognized option: -x"),
            (
                "-input i -output o -io typedbytes",
                "-io is refused: of later versions: programs read",
            ),
            ("-input i -output o -inputreader x", "-inputreader is refused: readers of records"),
            ("-input -output o", "Missing argument for option:input"),
            ("-input i -output", "Missing argument for option:output"),
            ("-input i -output o -inputreader X", "-inputreader is refused: "),
            ("-input i -output o -mapper python map.py", "\"map.py\" belongs to no option; "),
            ("-input i -output o -jobconf x", "-jobconf x: expected <n>=<v>"),
            ("-input i -output o -file /none/x", "File: /none/x does not exist"),
            ("-input i -output o${x}", "-output: the name must not have ${"),
        ] {
            let wrong = line(text).err().unwrap();
            assert!(wrong.starts_with(expected), "{text}: {wrong}");
        }
    }
}
