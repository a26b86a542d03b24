//! Notes on what a job says that is allowed and probably not meant. Nothing here refuses a job.

use std::path::Path;

use corona::config::keys;
use corona::mapreduce::streaming_keys::{self, STREAMING_KEYS};

use super::conf::ShippedFile;
use super::inputs::Inputs;
use super::{Run, Steps};
use corona_terminal::counted;

/// What separates words of a command, for a look at their names.
const BETWEEN: [char; 9] = [' ', '\t', '\n', '|', ';', '&', '(', ')', '<'];
/// Characters of words that a shell replaces.
const REPLACED: [char; 7] = ['$', '*', '?', '[', '{', '~', '`'];

/// The notes on a job with these settings of `-D` and inputs.
pub(super) fn of(run: &Run, settings: &[(String, String)], inputs: &Inputs) -> Vec<String> {
    let mut notes: Vec<String> = settings.iter().filter_map(|(name, _)| of_setting(name)).collect();
    notes.extend(of_input(inputs));
    notes.extend(of_commands(&run.steps, &|word| Path::new(word).is_file(), &is_on_path));
    notes
}

/// A setting that nothing reads, although one with a similar name exists.
fn of_setting(name: &str) -> Option<String> {
    if keys::find(name).is_some() || streaming_keys::find(name).is_some() {
        return None;
    }
    let meant = keys::meant(name, STREAMING_KEYS.iter().map(|key| key.name))?;
    Some(format!("-D {name}: corona reads no such setting; did you mean {meant}?"))
}

fn of_input(inputs: &Inputs) -> Option<String> {
    let files = counted(inputs.files as u64, "file");
    (inputs.bytes == 0).then(|| format!("the input is empty ({files}), and so will the output be"))
}

/// Files of this directory that commands name and tasks do not get. `is_file` and `is_program` look at
/// names.
fn of_commands(
    steps: &Steps,
    is_file: &dyn Fn(&str) -> bool,
    is_program: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let shipped = [&steps.file[..], &steps.archive[..]].concat();
    let commands = [
        ("--mapper", Some(&steps.mapper)),
        ("--combiner", steps.combiner.as_ref()),
        ("--reducer", steps.reducer.as_ref()),
    ];
    let mut notes = Vec::new();
    for (option, command) in commands {
        let Some(command) = command else { continue };
        let command = match command.strip_prefix("builtin:") {
            Some(step) => step.strip_prefix("sh ").unwrap_or_default(),
            None => command,
        };
        if command.contains(' ') && is_file(command) {
            notes.push(format!(
                "{option} {command}: the name of this file has a blank; quote it for the shell of the tasks: \
                 {option} \"'{command}'\""
            ));
            continue;
        }
        for (number, word) in command.split(BETWEEN).filter(|word| !word.is_empty()).enumerate() {
            let word = word.trim_matches(['"', '\'']);
            let is_of_path = number == 0 && !word.contains('/') && is_program(word);
            if word.starts_with(['-', '/'])
                || word.contains(REPLACED)
                || is_of_path
                || !is_file(word)
            {
                continue;
            }
            notes.extend(of_file(option, word, &shipped));
        }
    }
    notes.dedup();
    notes
}

/// The note on a file of this directory that a command names, if tasks do not get it under this name.
fn of_file(option: &str, word: &str, shipped: &[ShippedFile]) -> Option<String> {
    let plain = word.strip_prefix("./").unwrap_or(word);
    let first = plain.split('/').next().unwrap_or_default();
    if shipped.iter().any(|file| file.name == first) {
        return None;
    }
    Some(match shipped.iter().find(|file| file.path == Path::new(plain)) {
        Some(file) => format!(
            "{option} names {word}, but --file gives it to the tasks as {}, in their working directory",
            file.name
        ),
        None => format!(
            "{option} names {word}, a file of this directory, which the tasks do not get; if they need it, \
             add --file {plain}"
        ),
    })
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        steps: Steps,
    }

    fn notes(line: &[&str]) -> Vec<String> {
        let steps = Line::parse_from([&["x"], line].concat()).steps;
        let files = ["map.py", "scripts/map.py", "./my map.sh", "cat", "./map.py"];
        of_commands(&steps, &|word| files.contains(&word), &|word| word == "cat")
    }

    #[test]
    fn files_that_tasks_do_not_get_are_noted() {
        for (line, expected) in [
            (&["--mapper", "python3 map.py"][..], "which the tasks do not get"),
            (&["--mapper", "./map.py"], "add --file map.py"),
            (&["--mapper", "cat | python3 'map.py' -x"], "add --file map.py"),
            (&["--mapper", "cat", "--reducer", "builtin:sh ./map.py"], "--reducer names ./map.py"),
            (&["--mapper", "python3 scripts/map.py"], "add --file scripts/map.py"),
            (
                &["--mapper", "python3 scripts/map.py", "--file", "scripts/map.py"],
                "gives it to the tasks as map.py",
            ),
            (&["--mapper", "./my map.sh"], "\"'./my map.sh'\""),
        ] {
            let notes = notes(line);
            assert!(notes.len() == 1 && notes[0].contains(expected), "{line:?}: {notes:?}");
        }
        for line in [
            &["--mapper", "cat"][..],
            &["--mapper", "python3 map.py", "--file", "map.py"],
            &["--mapper", "scripts/map.py", "--file", "scripts"],
            &["--mapper", "builtin:grep map.py"],
            &["--mapper", "python3 other.py"],
        ] {
            assert_eq!(notes(line), Vec::<String>::new(), "{line:?}");
        }
    }

    #[test]
    fn mistyped_settings_and_empty_inputs_are_noted() {
        let meant = of_setting("mapred.map.max.atempts").unwrap();
        assert!(meant.ends_with("did you mean mapred.map.max.attempts?"), "{meant}");
        for name in ["mapred.map.max.attempts", "corona.task.native", "my.own.key", ""] {
            assert_eq!(of_setting(name), None, "{name}");
        }
        let empty = of_input(&Inputs::default()).unwrap();
        assert_eq!(empty, "the input is empty (0 files), and so will the output be");
        assert_eq!(of_input(&Inputs { files: 1, bytes: 1, splits: Vec::new() }), None);
    }
}
