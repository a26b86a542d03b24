//! Texts of wrong usage for people: what the parser of options does not say.

use std::ffi::OsString;

use clap::CommandFactory;

/// What the standard library says of a text that is no number, and what is said instead.
const NUMBERS: [(&str, &str); 6] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];

/// Options of Hadoop's streaming and of similar tools, and what there is instead in `corona job run`.
const INSTEAD: [(&str, &str); 18] = [
    ("numReduceTasks", "--reduces COUNT"),
    ("reducers", "--reduces COUNT"),
    ("num-reducers", "--reduces COUNT"),
    ("reduce-tasks", "--reduces COUNT"),
    ("map-tasks", MAPS),
    ("maps", MAPS),
    ("mappers", MAPS),
    ("num-mappers", MAPS),
    ("numMapTasks", MAPS),
    ("cmdenv", "--env NAME=VALUE"),
    ("files", "--file FILE, once for each"),
    ("cacheFile", "--file FILE"),
    ("archives", "--archive FILE, once for each"),
    ("cacheArchive", "--archive FILE"),
    ("jobconf", "-D KEY=VALUE"),
    ("partitioner", "--partition-by FIELDS"),
    ("queue", "-D mapred.fairscheduler.pool=POOL"),
    ("conf", "--conf-dir DIR, or -D KEY=VALUE"),
];
const MAPS: &str =
    "--split-size SIZE, the part of the input for each map, or -D mapred.map.tasks=COUNT";
/// Options whose value is a command.
const COMMANDS: [&str; 3] = ["--mapper", "--combiner", "--reducer"];

/// The text of a wrong usage, as the parser of options has made it for these arguments.
pub(super) fn explained(text: &str, arguments: &[OsString]) -> String {
    let mut text = text.to_owned();
    for (found, instead) in NUMBERS {
        let found = format!(": {found}\n");
        text = text.replacen(&found, &format!(": {instead}\n"), 1);
    }
    let words: Vec<&str> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let Some(tip) = tip(&text, &words) else { return text };
    let mut parts: Vec<&str> = text.split("\n\n").filter(|it| !it.starts_with(TIP)).collect();
    let tip = format!("{TIP}{tip}");
    parts.insert(1.min(parts.len()), tip.trim_end());
    parts.join("\n\n")
}

const TIP: &str = "  tip: ";

/// What was probably meant, where the parser cannot know it.
fn tip(text: &str, words: &[&str]) -> Option<String> {
    let quoted = |start: &str| text.strip_prefix(start)?.split('\'').next();
    if let Some(option) = quoted("error: unexpected argument '") {
        return of_argument(option, words);
    }
    if let Some(name) = quoted("error: unrecognized subcommand '") {
        let other = match words.first() {
            Some(&"job") => "jobs",
            Some(&"jobs") => "job",
            _ => return None,
        };
        command(&[other, name])?;
        return Some(format!("write 'corona {other} {name}'"));
    }
    (text.starts_with("error: invalid value '") && text.contains("' for '<JOB>': "))
        .then(|| "'corona jobs list --all' lists the ids of jobs".to_owned())
}

/// The subcommand of these names.
fn command(names: &[&str]) -> Option<clap::Command> {
    let command = super::Cli::command();
    names.iter().try_fold(command, |command, name| command.find_subcommand(name).cloned())
}

/// What was meant by an argument that the parser does not expect.
fn of_argument(option: &str, words: &[&str]) -> Option<String> {
    let is_of_job_run = |name: &str| {
        let run = command(&["job", "run"]);
        run.is_some_and(|run| run.get_arguments().any(|it| it.get_long() == Some(name)))
    };
    let path = (words.first().copied().unwrap_or_default(), words.get(1).copied());
    if let Some(word) = one_hyphen(option, words) {
        let name = word.trim_start_matches('-');
        return Some(match path.0 {
            "fs" => {
                format!("write 'corona fs {name}', or 'corona hadoop fs {word}' as Hadoop has it")
            }
            "job" if is_of_job_run(name) => {
                format!("'{word}' is read as options of one letter; write '--{name}'")
            }
            "job" => return of_name(name, word),
            _ => format!("'{word}' is read as options of one letter; options have two hyphens"),
        });
    }
    let at = words.iter().position(|word| *word == option || is_of_group(option, word))?;
    let before = words.get(..at)?;
    let named = before.iter().rposition(|word| word.starts_with("--"));
    let (owner, values) = match named {
        Some(named) => (before.get(named).copied(), before.len() - named - 1),
        None => (None, 0),
    };
    let is_of_command = owner.is_some_and(|owner| COMMANDS.contains(&owner)) && values > 0;
    if is_of_command && !option.starts_with("--") {
        let rest = words.iter().skip(named? + 1);
        let rest = rest.take_while(|word| !word.starts_with("--") && !word.starts_with("-D"));
        let whole: Vec<&str> = rest.copied().collect();
        let (owner, whole) = (owner?, whole.join(" "));
        return Some(format!("a command of several words is quoted: {owner} '{whole}'"));
    }
    if option.strip_prefix('-').is_some_and(|number| number.parse::<u64>().is_ok()) {
        return Some(format!("{} takes no negative number", owner?));
    }
    if owner == Some("--compress-output") && values == 0 {
        return Some("write --compress-output=gzip or --compress-output=deflate".to_owned());
    }
    if let Some(name) = option.strip_prefix("--") {
        let group = path.0;
        if let Some(action) = has_later(group, name, words) {
            return Some(format!(
                "options stand behind the action: corona {group} {action} {option}"
            ));
        }
        return match path {
            ("job", Some("run")) => of_name(name, option),
            ("job" | "jobs" | "run", _) if is_of_job_run(name) => {
                Some(format!("--{name} is an option of 'corona job run'"))
            }
            _ => None,
        };
    }
    match path {
        ("job", Some("run")) => Some(format!("inputs are named by --input: --input {option}")),
        ("run", _) if !option.starts_with('-') && !words.contains(&"--") => {
            Some(format!("the command stands behind --: corona run [OPTIONS] -- {option}"))
        }
        _ => None,
    }
}

/// The action that has this option and was written behind it.
fn has_later<'a>(group: &str, name: &str, words: &[&'a str]) -> Option<&'a str> {
    let at = words.iter().position(|word| word.strip_prefix("--") == Some(name))?;
    let has = |action: &&&str| {
        let found = command(&[group, **action]);
        found.is_some_and(|found| found.get_arguments().any(|it| it.get_long() == Some(name)))
    };
    words.get(at..)?.iter().find(has).copied()
}

/// What there is for an option of other tools, which was written as this word.
fn of_name(name: &str, word: &str) -> Option<String> {
    let (_, instead) = INSTEAD.iter().find(|(other, _)| *other == name)?;
    Some(format!("in place of {word}, there is {instead}"))
}

/// The word of an option of Hadoop, which has one hyphen: `-input` is read as `-i`, which there is not.
fn one_hyphen<'a>(option: &str, words: &[&'a str]) -> Option<&'a str> {
    let is_word = |word: &str| {
        word.len() > 2
            && word.bytes().skip(1).all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    };
    words.iter().copied().find(|word| is_of_group(option, word) && is_word(word))
}

/// Whether a word such as `-input` was read as several options of one letter, the first of which is `option`.
fn is_of_group(option: &str, word: &str) -> bool {
    option.len() == 2 && option.starts_with('-') && option != "--" && word.starts_with(option)
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    fn said(words: &[&str]) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = corona_terminal::console::Console::of_test(&mut out, &mut err);
        let status = super::super::run(words.iter().map(OsString::from), &mut console);
        assert_eq!(status, ExitCode::from(2), "{words:?}");
        assert!(out.is_empty());
        String::from_utf8(err).unwrap()
    }

    #[test]
    fn numbers_are_expected_in_words_for_people() {
        for (number, expected) in [
            ("abc", "expected a whole number"),
            ("", "expected a whole number"),
            ("99999999999999999999", "the number is too large"),
        ] {
            let text = said(&["corona", "jobs", "list", "--timeout", number]);
            assert!(text.contains(&format!("': {expected}\n")), "{number}: {text}");
        }
    }

    #[test]
    fn an_option_of_hadoop_gets_a_tip() {
        let text = said(&["corona", "job", "run", "-input", "a", "-output", "b", "-mapper", "cat"]);
        let start = "error: unexpected argument '-i' found\n\n  tip: '-input' is read as options of one letter; \
                     write '--input'\n\nUsage: ";
        assert!(text.starts_with(start), "{text}");
        for words in
            [&["corona", "job", "run", "-1"][..], &["corona", "job", "run", "--reduce", "-3"]]
        {
            assert!(!said(words).contains("one letter"), "{words:?}");
        }
    }

    #[test]
    fn wrong_words_get_the_tip_that_helps() {
        const JOB: &str = "corona job run --input in --output out --mapper cat";
        for (line, expected) in [
            ("--reducer uniq -c", "a command of several words is quoted: --reducer 'uniq -c'"),
            ("--combiner sort -k1 --reduces 2", "is quoted: --combiner 'sort -k1'"),
            ("--reducer python3 sum.py", "is quoted: --reducer 'python3 sum.py'"),
            ("--reduces -1", "--reduces takes no negative number"),
            ("--compress-output zip", "write --compress-output=gzip or --compress-output=deflate"),
            ("--map-tasks 4", "in place of --map-tasks, there is --split-size SIZE"),
            ("-numReduceTasks 4", "in place of -numReduceTasks, there is --reduces COUNT"),
            ("-cmdenv A=b", "there is --env NAME=VALUE"),
            ("--reducer uniq -c -D a=b", "--reducer 'uniq -c'"),
            ("--file a.py b.py", "inputs are named by --input: --input b.py"),
        ] {
            let line = format!("{JOB} {line}");
            let text = said(&line.split(' ').collect::<Vec<_>>());
            assert!(text.contains("\n\n  tip: ") && text.contains(expected), "{line}: {text}");
            assert_eq!(text.matches("tip:").count(), 1, "{line}: {text}");
        }
        for (line, expected) in [
            ("corona job run in/a.txt --output out --mapper cat", "--input in/a.txt"),
            ("corona job --input in", "--input is an option of 'corona job run'"),
            ("corona run --input in", "--input is an option of 'corona job run'"),
            ("corona jobs --mapper cat", "--mapper is an option of 'corona job run'"),
            ("corona jobs run --input in", "tip: write 'corona job run'"),
            ("corona job list", "tip: write 'corona jobs list'"),
            ("corona jobs --json list", "behind the action: corona jobs list --json"),
            ("corona jobs --conf-dir X list", "behind the action: corona jobs list --conf-dir"),
            ("corona jobs logs foo", "'corona jobs list --all' lists the ids of jobs"),
            ("corona run --array 1-9 echo {}", "corona run [OPTIONS] -- echo"),
            ("corona run ls", "the command stands behind --: corona run [OPTIONS] -- ls"),
            ("corona fs -ls /", "write 'corona fs ls', or 'corona hadoop fs -ls' as Hadoop has it"),
        ] {
            let text = said(&line.split(' ').collect::<Vec<_>>());
            assert!(text.contains(expected), "{line}: {text}");
            assert_eq!(text.matches("tip:").count(), 1, "{line}: {text}");
        }
    }

    #[test]
    fn each_option_of_other_tools_has_one_here() {
        let run = command(&["job", "run"]).unwrap();
        for (other, instead) in INSTEAD {
            let option = instead.split([' ', ',']).next().unwrap();
            let found = match option.strip_prefix("--") {
                Some(name) => run.get_arguments().any(|it| it.get_long() == Some(name)),
                None => option == "-D",
            };
            assert!(found, "{other}: {option}");
            assert!(!run.get_arguments().any(|it| it.get_long() == Some(other)), "{other}");
        }
    }
}
