//! `corona hadoop`, and this program under the name `hadoop`: the commands of the original's users, for
//! scripts that were written for it.
//!
//! Words and exit statuses are the original's where scripts read them. What each command and option does
//! here is data, in `table.rs`; `docs/reference/hadoop-commands.md` shows it.

pub(super) mod generic;
mod names;
pub(super) mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::{EXIT_FAILED, fs, job, jobs, one_line, version};
use corona_terminal::console::{Console, printable};
use generic::Generic;
pub(super) use names::class_of_this_version;
use table::Fate;

/// The version of the original whose commands these are.
const ORIGINAL: &str = "0.20";
/// The name under which the program is the original's `hadoop`.
const NAME: &str = "hadoop";
/// The class that the jar of streaming jobs begins with.
const STREAMING: &str = "org.apache.hadoop.streaming.HadoopStreaming";
/// The original's -1.
const EXIT_MINUS_ONE: u8 = 255;

const HELP: &str = "\
Commands:
  version               print the version
  fs | dfs              files: hadoop fs -help
  jar FILE [OPTION]...  run a streaming job, if FILE is a *streaming*.jar
  job                   jobs: hadoop job
  coronaadmin           as corona admin
  coronaclient          as corona client

Examples:
  corona hadoop --config cluster/conf fs -ls /logs
  corona hadoop jar hadoop-streaming.jar -D mapred.reduce.tasks=2 \\
    -input logs -output words -mapper map.py -reducer red.py \\
    -file map.py -file red.py
  mkdir bin && ln -s $(command -v corona) bin/hadoop
  HADOOP_HOME=. python3 job.py -r hadoop input.txt

docs/reference/hadoop-commands.md says of each command and option whether it
works here.";

/// Run commands of Hadoop: files, streaming jobs and job clients, without Java
///
/// A program that is started under the name hadoop does the same.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// A command of Hadoop with its options
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(required = true)]
    words: Vec<OsString>,
}

/// Whether the program was started as the original's `hadoop`.
pub(super) fn is_name(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == NAME)
}

/// Runs a command.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> ExitCode {
    run_words(arguments.words, console)
}

/// Runs the words behind the name of the program.
pub(super) fn run_words(words: Vec<OsString>, console: &mut Console<'_>) -> ExitCode {
    let mut texts = VecDeque::with_capacity(words.len());
    for word in words {
        match word.into_string() {
            Ok(text) if !text.contains('\0') => texts.push_back(text),
            Ok(text) => return refuse(&format!("{text:?} is no text"), console),
            Err(word) => return refuse(&format!("{word:?} is no text"), console),
        }
    }
    match dispatch(texts, console) {
        Ok(status) => status,
        Err(error) => {
            console.complain(&format!("{NAME}: {}\n", one_line(&error)));
            ExitCode::from(EXIT_MINUS_ONE)
        }
    }
}

fn refuse(why: &str, console: &mut Console<'_>) -> ExitCode {
    console.complain(&format!("{NAME}: {}\n", printable(why)));
    ExitCode::from(EXIT_FAILED)
}

fn dispatch(mut words: VecDeque<String>, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let mut generic = Generic::default();
    if words.front().is_some_and(|word| word == "--config") {
        words.pop_front();
        match words.pop_front() {
            Some(directory) => generic.conf_dir = Some(directory.into()),
            None => return Ok(refuse("--config: expected a directory", console)),
        }
    }
    let Some(name) = words.pop_front() else {
        console.complain(&format!("Usage: {NAME} [--config DIR] COMMAND\n\n{HELP}\n"));
        return Ok(ExitCode::from(EXIT_FAILED));
    };
    let Some(command) = table::find(table::COMMANDS, &name) else {
        let why = format!(
            "{name} is no command, and a class needs Java: run it with the original's hadoop; the \
             commands that work here are version, fs, dfs, jar, job, coronaadmin and coronaclient"
        );
        return Ok(refuse(&why, console));
    };
    if let Fate::Refused(why) = command.fate {
        return Ok(refuse(&format!("{name}: {why}"), console));
    }
    match command.name {
        "version" => {
            console.print(&format!("Hadoop {ORIGINAL}\nCorona {}\n", version::VERSION))?;
            return Ok(ExitCode::SUCCESS);
        }
        "coronaadmin" | "coronaclient" => {
            let tool = name.trim_start_matches("corona").to_owned();
            let conf = generic.conf_dir.map(|dir| [OsString::from("--conf-dir"), dir.into()]);
            let line = ["corona".to_owned(), tool].into_iter().map(OsString::from);
            let line = line.chain(conf.into_iter().flatten());
            return Ok(super::run(line.chain(words.into_iter().map(OsString::from)), console));
        }
        _ => {}
    }
    if command.name == "jar" {
        return jar(generic, words, console);
    }
    if let Err(wrong) = generic.take_all(&mut words) {
        return Ok(refuse(&wrong, console));
    }
    generic.find_directory()?;
    let words: Vec<String> = words.into();
    match command.name {
        "job" => jobs::hadoop::run(&words, &generic, console),
        _ => fs::hadoop::run(&words, generic.source(), console),
    }
}

/// Runs the job of a jar, if it is one of streaming.
fn jar(
    mut generic: Generic,
    mut words: VecDeque<String>,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let Some(file) = words.pop_front() else {
        console.complain("RunJar jarFile [mainClass] args...\n");
        return Ok(ExitCode::from(EXIT_MINUS_ONE));
    };
    let path = Path::new(&file);
    let of_streaming = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("streaming") && name.ends_with(".jar")
    });
    let names_class = words.front().is_some_and(|word| word == STREAMING);
    if !of_streaming && !names_class {
        let why = match jar_fault(path) {
            Some(fault) => format!("Error opening job jar: {file}: {fault}"),
            None => format!(
                "{file} needs Java, which is not started here: run it with the original's hadoop jar"
            ),
        };
        return Ok(refuse(&why, console));
    }
    if names_class {
        words.pop_front();
    }
    generic.find_directory()?;
    job::streaming::run(generic, words, console)
}

/// Why a file cannot be a jar; none if it can.
fn jar_fault(path: &Path) -> Option<String> {
    let mut first = [0; 2];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    match read {
        Ok(()) if first == *b"PK" => None,
        Ok(()) => Some("it is no jar".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Some("it is no jar".to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}
