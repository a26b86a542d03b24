//! The original's spellings, turned into this program's, so that scripts written for it keep
//! working. Knows strings only.
//!
//! Spec: cluster-manager/06 §7.

use std::ffi::OsString;

/// A command line for which the original prints its usage text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JavaUsage {
    /// For stderr.
    pub(super) text: String,
    /// Whether the user requested it.
    pub(super) asked_for: bool,
}

/// The commands of CoronaAdmin, without the two that take a number: theirs, ours.
const ADMIN: [(&str, &str); 6] = [
    ("-refreshNodes", "refresh-nodes"),
    ("-setSafeMode", "set-safe-mode"),
    ("-unsetSafeMode", "unset-safe-mode"),
    ("-persistState", "persist-state"),
    ("-forceSetSafeModeOnPJT", "force-set-safe-mode-on-pjt"),
    ("-forceUnsetSafeModeOnPJT", "force-unset-safe-mode-on-pjt"),
];
const RESTART: &str = "-restartTaskTracker";
const FORCE_RESTART: &str = "-forceRestartTaskTracker";

/// A command of CoronaAdmin, in its spelling.
#[cfg(test)]
pub(super) fn admin_commands() -> impl Iterator<Item = &'static str> {
    ADMIN.iter().map(|(theirs, _)| *theirs).chain([RESTART, FORCE_RESTART])
}

/// Generic options of Hadoop's tools that name something of no use here; each takes a value.
const IGNORED: [&str; 5] = ["-fs", "-jt", "-files", "-libjars", "-archives"];

/// The command line, the program's name first, in this program's spelling. Arguments after `--`
/// stay as they are.
///
/// # Errors
/// A text like the original's, where it would print its usage.
pub(super) fn accept_java_spellings(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, JavaUsage> {
    let mut given = arguments.into_iter();
    let mut line: Vec<OsString> = given.by_ref().take(2).collect();
    let tool = match line.get(1).and_then(|word| word.to_str()) {
        Some("admin") => Tool::Admin,
        Some("client") => Tool::Client,
        _ => Tool::Other,
    };
    let mut words = given.peekable();
    if tool == Tool::Client && words.peek().is_none() {
        return Err(client_usage());
    }
    let mut options_ended = false;
    while let Some(word) = words.next() {
        options_ended |= word == "--";
        let text = word.to_str().filter(|text| is_java(text)).unwrap_or_default().to_owned();
        if options_ended || text.is_empty() {
            line.push(word);
        } else if text == "-recoverFromDisk" {
            line.push("--recover-from-disk".into());
        } else if tool == Tool::Other {
            line.push(word);
        } else if text == "-conf" {
            line.push("--conf-file".into());
        } else if IGNORED.contains(&&*text) {
            words.next();
        } else {
            let rest: Vec<OsString> = words.by_ref().collect();
            let translated = match tool {
                Tool::Admin => admin(&text, &rest)?,
                _ => client(&text, &rest)?,
            };
            // The command is the last of the original's words.
            line.extend(translated);
            break;
        }
    }
    Ok(line)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Admin,
    Client,
    Other,
}

/// One dash and a word: `-conf`, `-setSafeMode`. Not `-D`, which is spelled alike in both.
fn is_java(text: &str) -> bool {
    let word = text.strip_prefix('-').unwrap_or_default();
    word.len() > 1 && !word.starts_with(['-', 'D'])
}

/// A command of CoronaAdmin and its arguments.
fn admin(command: &str, rest: &[OsString]) -> Result<Vec<OsString>, JavaUsage> {
    let owned = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    if let Some((_, ours)) = ADMIN.iter().find(|(java, _)| *java == command) {
        return Ok([owned(&[ours]), rest.to_vec()].concat());
    }
    let restart = match command {
        RESTART => owned(&["restart-nodes"]),
        FORCE_RESTART => owned(&["restart-nodes", "--force"]),
        "-help" => return Err(JavaUsage { text: admin_usage(rest), asked_for: true }),
        _ => {
            let text = format!("{}: Unknown command\n{}", name(command), admin_usage(&[]));
            return Err(JavaUsage { text, asked_for: false });
        }
    };
    let Some((number, rest)) = rest.split_first().filter(|(word, _)| !is_option(word)) else {
        return Ok([restart, rest.to_vec()].concat());
    };
    match number.to_str().and_then(|number| number.parse::<i32>().ok()) {
        Some(batch @ 1..) => {
            Ok([restart, owned(&[&format!("--batch={batch}")]), rest.to_vec()].concat())
        }
        // The configured number, as in the original.
        Some(_) => Ok([restart, rest.to_vec()].concat()),
        None => {
            let number = number.to_string_lossy();
            let text = format!("{}\n{number:?} is not a number of nodes\n", name(command));
            Err(JavaUsage { text, asked_for: false })
        }
    }
}

fn is_option(word: &OsString) -> bool {
    word.to_str().is_some_and(|text| text.starts_with("--") || text.starts_with("-D"))
}

/// A command of CoronaClient and its arguments.
fn client(command: &str, rest: &[OsString]) -> Result<Vec<OsString>, JavaUsage> {
    let operands = rest.iter().take_while(|word| !is_option(word)).count();
    let ours = match (command, operands) {
        ("-list", 0) => "list",
        ("-kill", 1) => "kill",
        ("-kill", _) => {
            let text = "Usage: CoronaClient -kill <session id>\n".into();
            return Err(JavaUsage { text, asked_for: false });
        }
        _ => return Err(client_usage()),
    };
    Ok([vec![ours.into()], rest.to_vec()].concat())
}

fn client_usage() -> JavaUsage {
    let text = "Usage: CoronaClient\n\t\t[-list]\n\t\t[-kill <session id>]\n".into();
    JavaUsage { text, asked_for: false }
}

/// The command without its dash.
fn name(command: &str) -> &str {
    command.get(1..).unwrap_or_default()
}

/// The original's usage text, or only its part about one command if that is named.
fn admin_usage(asked: &[OsString]) -> String {
    if asked.first().is_some_and(|command| command == "-refreshNodes") {
        return "Usage: java CoronaAdmin [-refreshNodes]\n".into();
    }
    let others = ["-restartTaskTracker [n]", "-forceRestartTaskTracker [n]", "-help [cmd]"];
    let words = ADMIN.map(|(theirs, _)| theirs).into_iter().chain(others);
    let commands: String = words.map(|words| format!("           [{words}]\n")).collect();
    format!(
        "Usage: java CoronaAdmin\n{commands}\n\
         Generic options: -conf <file> and -D <key=value> before the command.\n\
         'corona admin --help' shows the spellings of this program.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, JavaUsage> {
        let words = accept_java_spellings(line.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn java_spellings_become_ours() {
        for (given, expected) in [
            ("corona cluster-manager", "corona cluster-manager"),
            (
                "corona cluster-manager -recoverFromDisk",
                "corona cluster-manager --recover-from-disk",
            ),
            ("corona x --recover-from-disk", "corona x --recover-from-disk"),
            ("corona x -recoverfromdisk", "corona x -recoverfromdisk"),
            ("corona x -- -recoverFromDisk", "corona x -- -recoverFromDisk"),
            ("corona x -setSafeMode", "corona x -setSafeMode"),
            ("corona admin -setSafeMode", "corona admin set-safe-mode"),
            ("corona admin -unsetSafeMode", "corona admin unset-safe-mode"),
            ("corona admin -persistState", "corona admin persist-state"),
            ("corona admin -refreshNodes", "corona admin refresh-nodes"),
            ("corona admin -forceSetSafeModeOnPJT", "corona admin force-set-safe-mode-on-pjt"),
            ("corona admin -forceUnsetSafeModeOnPJT", "corona admin force-unset-safe-mode-on-pjt"),
            ("corona admin -restartTaskTracker", "corona admin restart-nodes"),
            ("corona admin -restartTaskTracker 7", "corona admin restart-nodes --batch=7"),
            ("corona admin -restartTaskTracker 0", "corona admin restart-nodes"),
            ("corona admin -restartTaskTracker -5", "corona admin restart-nodes"),
            ("corona admin -forceRestartTaskTracker", "corona admin restart-nodes --force"),
            (
                "corona admin -forceRestartTaskTracker 7",
                "corona admin restart-nodes --force --batch=7",
            ),
            (
                "corona admin -conf c.xml -D a=b -Dc=d -fs local -jt h:1 -setSafeMode",
                "corona admin --conf-file c.xml -D a=b -Dc=d set-safe-mode",
            ),
            (
                "corona admin -files a,b -libjars c -archives d -conf e -restartTaskTracker 2 -Df=g",
                "corona admin --conf-file e restart-nodes --batch=2 -Df=g",
            ),
            ("corona admin set-safe-mode -D a=b", "corona admin set-safe-mode -D a=b"),
            ("corona admin --conf-dir /c -setSafeMode", "corona admin --conf-dir /c set-safe-mode"),
            ("corona admin -h", "corona admin -h"),
            ("corona admin", "corona admin"),
            ("corona client -list", "corona client list"),
            ("corona client -kill 2026.1", "corona client kill 2026.1"),
            (
                "corona client -D a=b -conf c.xml -kill 2026.1",
                "corona client -D a=b --conf-file c.xml kill 2026.1",
            ),
            ("corona client -kill 2026.1 --timeout 3", "corona client kill 2026.1 --timeout 3"),
            ("corona client --help", "corona client --help"),
        ] {
            assert_eq!(translated(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn wrong_usage_is_told_in_the_words_of_the_original() {
        for (line, start, asked_for) in [
            ("corona admin -sudo", "sudo: Unknown command\nUsage: java CoronaAdmin\n", false),
            ("corona admin -D a=b -setsafemode", "setsafemode: Unknown command\n", false),
            ("corona admin -restartTaskTracker ten", "restartTaskTracker\n\"ten\" is not", false),
            ("corona admin -restartTaskTracker 99999999999", "restartTaskTracker\n", false),
            ("corona admin -help", "Usage: java CoronaAdmin\n           [-refreshNodes]\n", true),
            ("corona admin -help -setSafeMode", "Usage: java CoronaAdmin\n  ", true),
            ("corona admin -help -refreshNodes", "Usage: java CoronaAdmin [-refreshNodes]\n", true),
            ("corona client", "Usage: CoronaClient\n\t\t[-list]\n\t\t[-kill <session", false),
            ("corona client -list all", "Usage: CoronaClient\n\t\t[-list]", false),
            ("corona client -kill", "Usage: CoronaClient -kill <session id>\n", false),
            ("corona client -kill 1 2", "Usage: CoronaClient -kill <session id>\n", false),
            ("corona client -stop", "Usage: CoronaClient\n", false),
        ] {
            let usage = translated(line).unwrap_err();
            assert!(usage.text.starts_with(start), "{line}: {}", usage.text);
            assert!(usage.text.ends_with('\n'), "{line}");
            assert_eq!(usage.asked_for, asked_for, "{line}");
        }
    }
}
