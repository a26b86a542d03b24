//! Why a program did not start, and what its exit status usually means.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The bytes of a file that the kernel looks at for its interpreter.
const MOST_HEAD_BYTES: u64 = 256;

/// The beginning of the file of a program.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// A script with this interpreter, without a carriage return that follows it.
    Script { interpreter: String, ends_in_return: bool },
    /// A script without an interpreter, or another text.
    Text,
    /// Anything else.
    Binary,
}

impl Head {
    fn of(path: &Path) -> Option<Head> {
        let mut head = Vec::new();
        File::open(path).ok()?.take(MOST_HEAD_BYTES).read_to_end(&mut head).ok()?;
        Some(Head::of_bytes(&head))
    }

    fn of_bytes(head: &[u8]) -> Head {
        let Some(line) = head.strip_prefix(b"#!") else {
            let is_text = !head.contains(&0) && !head.starts_with(b"\x7fELF");
            return if is_text { Head::Text } else { Head::Binary };
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let word = line.split(is_blank).find(|word| !word.is_empty()).unwrap_or_default();
        let interpreter = word.strip_suffix(b"\r").unwrap_or(word);
        Head::Script {
            interpreter: String::from_utf8_lossy(interpreter).into_owned(),
            ends_in_return: line.ends_with(b"\r"),
        }
    }
}

const RETURNS: &str = "the first line of the script ends in a carriage return, as Windows writes it; \
     remove all of them with: sed -i 's/\\r$//' FILE";

/// The file that a name without a slash stands for on the PATH.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Whether the system could not run a program that is a text, which a shell can run then.
pub(crate) fn is_for_the_shell(program: &Path, error: &io::Error) -> bool {
    is_no_format(error) && Head::of(program) == Some(Head::Text)
}

fn is_no_format(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
}

/// The hint for a program of a step that does not exist.
pub(crate) const NO_PROGRAM: &str = "it is neither a file of the job nor a program on the PATH of the task; give the \
                                     tasks a file of your own with --file FILE, or install the program on every node";

/// Why a program could not be started, where the system's error does not tell it. `missing` is the hint for one that
/// does not exist.
pub(crate) fn of_start(program: &Path, error: &io::Error, missing: &str) -> String {
    let why = match (error.kind(), Head::of(program)) {
        (_, Some(Head::Script { ends_in_return: true, .. })) => RETURNS.to_owned(),
        (io::ErrorKind::NotFound, Some(Head::Script { interpreter, .. })) => format!(
            "the script's interpreter {interpreter:?}, which its first line names, does not exist on \
             this machine"
        ),
        (io::ErrorKind::PermissionDenied, Some(Head::Script { interpreter, .. })) => {
            format!("the script or its interpreter {interpreter:?} is not executable")
        }
        (io::ErrorKind::NotFound, Some(_)) => {
            "the program's loader, which the program itself names, does not exist on this machine"
                .to_owned()
        }
        (io::ErrorKind::NotFound, None) => missing.to_owned(),
        (_, Some(_)) if is_no_format(error) => "it is no program for this machine".to_owned(),
        _ => return error.to_string(),
    };
    format!("{error}: {why}")
}

/// What separates words of a command, for a look at their names.
pub const BETWEEN: [char; 9] = [' ', '\t', '\n', '|', ';', '&', '(', ')', '<'];

/// The scripts that these words of a command give to interpreters such as `python3`, as far as their names show it.
pub fn scripts<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    const INTERPRETERS: [&str; 17] = [
        "python", "pypy", "perl", "ruby", "sh", "bash", "dash", "zsh", "ksh", "node", "php",
        "Rscript", "awk", "gawk", "mawk", "java", "lua",
    ];
    const ENDINGS: [&str; 10] =
        [".py", ".pl", ".rb", ".sh", ".awk", ".js", ".php", ".R", ".jar", ".lua"];
    let is_interpreter = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or_default();
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&name)
    };
    // With other characters, the shell would make another name of it.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_script = move |word: &str| {
        ENDINGS.iter().any(|ending| word.ends_with(ending)) && word.chars().all(is_plain)
    };
    let mut is_next = false;
    words.filter(move |word| {
        if is_interpreter(word) {
            is_next = true;
            return false;
        }
        // The first word behind an interpreter and its options.
        let is_named = is_next && !word.starts_with('-');
        is_next &= !is_named;
        is_named && is_script(word)
    })
}

/// A script that an interpreter was to run, if it is not in the working directory `work` of the task.
fn missing_script<'a>(words: &'a [String], work: &Path) -> Option<&'a str> {
    let is_missing = |word: &&str| !work.join(word).exists();
    let changes_directory = |command: &str| command.split(BETWEEN).any(|word| word == "cd");
    match words {
        // The script is looked for elsewhere.
        [_, _, command] if changes_directory(command) => None,
        [shell, option, command] if shell == "sh" && option == "-c" => {
            scripts(command.split(BETWEEN).filter(|word| !word.is_empty())).find(is_missing)
        }
        words => scripts(words.iter().map(String::as_str)).find(is_missing),
    }
}

/// What to do about a script that is missing.
fn of_missing(script: &str, work: &Path) -> String {
    let name = script.rsplit('/').next().unwrap_or_default();
    if work.join(name).exists() {
        return format!(
            "{script} is {name} in the working directory of the tasks; write {name} in the command"
        );
    }
    let renamed = match name == script.strip_prefix("./").unwrap_or(script) {
        true => String::new(),
        false => format!(", and write {name} in the command"),
    };
    format!(
        "{script} is not among the files of the job; give it to the tasks with --file {script}{renamed}"
    )
}

/// What an exit status of a program usually means, as a line; empty if nothing is known. `program` is the
/// file that was started, `work` the working directory of the task.
pub(crate) fn of_status(words: &[String], program: &Path, work: &Path, code: i32) -> String {
    if let Some(script) = missing_script(words, work) {
        return format!("\n({})", of_missing(script, work));
    }
    let script = match words {
        [shell, option, command] if shell == "sh" && option == "-c" => {
            last_program(command).map(PathBuf::from)
        }
        _ => None,
    };
    let last = script.as_deref().unwrap_or(program);
    let hint = match code {
        1 if is_grep(last) => {
            "grep exits with 1 where no line matches, as in a split without a match. If that is no \
             failure, use 'builtin:grep TEXT', or append || [ $? -eq 1 ] to the command, or set \
             -D stream.non.zero.exit.is.failure=false"
        }
        126 | 127
            if matches!(Head::of(program), Some(Head::Script { ends_in_return: true, .. })) =>
        {
            RETURNS
        }
        137 => {
            "137: signal 9 ended the program, as the system does when memory runs out. Give each task less \
             to read with --split-size 16m or more --reduces, or a program that keeps less in memory; where \
             nodes limit memory, -D mapred.job.map.memory.mb=MIB or mapred.job.reduce.memory.mb raises it"
        }
        139 => {
            "139: signal 11 ended the program: it used memory that is not its own, a fault of the program; \
             run it here on a part of the input to find it"
        }
        _ if Head::of(program) == Some(Head::Text) => {
            "the program has no first line such as #!/usr/bin/env python3, so the shell ran it as a \
             script of its own; add that line, or name the interpreter in the command: python3 FILE"
        }
        126 => {
            "126: a shell found a program that it could not execute: name its interpreter in the command, as \
             in python3 FILE or sh FILE, or make it executable with chmod +x FILE; a program for another \
             kind of machine does not run"
        }
        127 => {
            "127: a shell or env did not find a program, whose name is on stderr: give the tasks a file of \
             your own with --file FILE and start it as ./FILE, or install the program on every node"
        }
        _ => return String::new(),
    };
    format!("\n({hint})")
}

/// The program whose status a shell returns for a simple command or a pipeline.
fn last_program(command: &str) -> Option<&str> {
    let last = command.rsplit(['|', ';', '&', '\n']).find(|part| !part.trim().is_empty())?;
    last.split_whitespace().find(|word| !word.contains('='))
}

fn is_grep(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    matches!(name, "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "ack")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let script = |interpreter: &str, ends_in_return| Head::Script {
            interpreter: interpreter.to_owned(),
            ends_in_return,
        };
        for (head, expected) in [
            (&b"#!/bin/sh\necho"[..], script("/bin/sh", false)),
            (b"#! /usr/bin/env python3\n", script("/usr/bin/env", false)),
            (b"#!/bin/sh\r\necho\r\n", script("/bin/sh", true)),
            (b"#!/usr/bin/env python3\r\n", script("/usr/bin/env", true)),
            (b"#!", script("", false)),
            (b"echo a\n", Head::Text),
            (b"", Head::Text),
            (b"\x7fELF\x02", Head::Binary),
            (b"a\0b", Head::Binary),
        ] {
            assert_eq!(Head::of_bytes(head), expected, "{head:?}");
        }
    }

    #[test]
    fn statuses_have_hints() {
        let hint = |words: &[&str], code| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            of_status(&words, Path::new(&words[0]), Path::new("/"), code)
        };
        for words in [
            &["grep", "x"][..],
            &["/bin/egrep", "-v", "x"],
            &["sh", "-c", "cat | LC_ALL=C grep 'a b'"],
            &["sh", "-c", "sort; grep x;"],
        ] {
            assert!(hint(words, 1).contains("no line matches"), "{words:?}");
            assert_eq!(hint(words, 2), "", "{words:?}");
        }
        for words in [&["sed", "s/grep//"][..], &["sh", "-c", "grep x | sort"], &["sh", "-c", ""]] {
            assert_eq!(hint(words, 1), "", "{words:?}");
        }
        assert!(hint(&["sh", "-c", "no-such-program"], 127).contains("start it as ./FILE"));
        assert!(hint(&["sh", "-c", "./data"], 126).contains("could not execute"));
        for words in [&["python3", "count.py"][..], &["sh", "-c", "cat | python3 count.py -x"]] {
            assert!(hint(words, 2).contains("--file count.py)"), "{words:?}");
        }
        for words in [&["sed", "-f", "a.sed"][..], &["fgrep", "foo.js"], &["sh", "-c", "sort a.py"]]
        {
            assert_eq!(hint(words, 2), "", "{words:?}");
        }
        assert!(hint(&["grep", "foo.js"], 1).contains("no line matches"));
    }

    #[test]
    fn scripts_stand_behind_interpreters() {
        for (command, expected) in [
            ("python3 count.py", &["count.py"][..]),
            ("/usr/bin/python3.11 -u lib/count.py --by x.py", &["lib/count.py"]),
            ("cat | perl a.pl|sort; ruby b.rb", &["a.pl", "b.rb"]),
            ("java -Xmx1g -jar x.jar", &["x.jar"]),
            ("awk -f sum.awk", &["sum.awk"]),
            ("grep foo.js", &[]),
            ("python3 -m package", &[]),
            ("python3 'a b.py'", &[]),
            ("sh -c 'x.sh'", &[]),
            ("cat $HOME/a.py", &[]),
        ] {
            let words = command.split(BETWEEN).filter(|word| !word.is_empty());
            assert_eq!(scripts(words).collect::<Vec<_>>(), expected, "{command}");
        }
    }

    #[test]
    fn a_script_with_another_name_in_the_working_directory_is_found_there() {
        let work = tempfile::tempdir().unwrap();
        let said = |script| of_missing(script, work.path());
        assert!(said("mapper.py").ends_with("with --file mapper.py"), "{}", said("mapper.py"));
        assert!(
            said("./mapper.py").ends_with("with --file ./mapper.py"),
            "{}",
            said("./mapper.py")
        );
        let other = said("scripts/mapper.py");
        assert!(
            other.ends_with("--file scripts/mapper.py, and write mapper.py in the command"),
            "{other}"
        );
        std::fs::write(work.path().join("mapper.py"), "").unwrap();
        let other = said("scripts/mapper.py");
        assert!(other.ends_with("; write mapper.py in the command"), "{other}");
        assert!(!other.contains("not among"), "{other}");
    }

    #[test]
    fn a_text_without_an_interpreter_is_named_when_it_fails() {
        let work = tempfile::tempdir().unwrap();
        let script = work.path().join("script.py");
        std::fs::write(&script, "import sys\n").unwrap();
        let words = ["./script.py".to_owned()];
        let hint = |code| of_status(&words, &script, work.path(), code);
        assert!(hint(2).contains("no first line such as #!"), "{}", hint(2));
        assert!(hint(127).contains("no first line such as #!"), "{}", hint(127));
        for killed in [137, 139] {
            assert!(hint(killed).starts_with(&format!("\n({killed}: signal ")), "{}", hint(killed));
        }
    }
}
