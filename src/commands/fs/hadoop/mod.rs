//! `corona hadoop fs`: the commands of the original's `FsShell`, with its words and its exit statuses.

mod change;
mod copy;
mod show;

use std::process::ExitCode;
use std::sync::Arc;

use corona::config::ClientSource;
use corona::filesystem::{FileStatus, FileSystem, FileSystems, Glob, LocalFiles};

use super::{Ended, Output, Shell, stopped, unless_stopped};
use crate::commands::cluster::block_on_two_threads;
use crate::commands::hadoop::table::{self, Command, Fate};
use corona_terminal::console::{Console, printable};

/// The original's -1.
const FAILED: u8 = 255;

/// The words of a command after its name, as its options and what else there is.
struct Line {
    options: Vec<&'static str>,
    words: Vec<String>,
}

impl Line {
    fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }

    /// Reads the words of a command.
    ///
    /// # Errors
    /// An option is not known, has no value or is refused, or the number of words is wrong.
    fn of(command: &'static Command, words: &[String]) -> Result<Line, String> {
        let mut line = Line { options: Vec::new(), words: Vec::new() };
        // Modes, flags and formats of these begin with a hyphen as well.
        let options_end = ["-chmod", "-chown", "-chgrp", "-test", "-touch", "-stat"];
        let options_end = options_end.contains(&command.name);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let is_option = word.len() > 1 && word.starts_with('-');
            let option = command.options.iter().find(|option| option.name == word);
            match option {
                None if is_option && !options_end => return Err(format!("Illegal option {word}")),
                Some(option) if !options_end || line.words.is_empty() => {
                    if let Fate::Refused(why) = option.fate {
                        return Err(format!("{word} is refused: {why}"));
                    }
                    if !option.value.is_empty() && rest.next().is_none() {
                        return Err(format!("{word}: expected {}", option.value));
                    }
                    line.options.push(option.name);
                }
                _ => line.words.push(word.clone()),
            }
        }
        let (least, most) = command.count;
        match (least..=most).contains(&line.words.len()) {
            true => Ok(line),
            false => Err("Illegal number of arguments".to_owned()),
        }
    }
}

/// Runs a command: its name, then its words.
pub(in crate::commands) fn run(
    words: &[String],
    source: ClientSource<'_>,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let Some((name, words)) = words.split_first() else {
        console.complain(&usage(None));
        return Ok(FAILED.into());
    };
    let shown = name.strip_prefix('-').unwrap_or(name);
    let Some(command) = table::find(table::FS, name) else {
        console.complain(&printable(&format!("{shown}: Unknown command")));
        console.complain(&format!("\n{}", usage(None)));
        return Ok(FAILED.into());
    };
    if let Fate::Refused(why) = command.fate {
        console.complain(&format!("{shown}: is refused: {why}\n"));
        return Ok(FAILED.into());
    }
    if command.name == "-help" {
        console.print(&help(words.first().map(String::as_str)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = match Line::of(command, words) {
        Ok(line) => line,
        Err(wrong) => {
            console.complain(&format!("{shown}: {}\n", printable(&wrong)));
            console.complain(&usage(Some(command)));
            return Ok(FAILED.into());
        }
    };
    let settings = source.load_file_systems()?;
    let shell = Shell {
        local: LocalFiles::new(&settings),
        systems: FileSystems::new(settings.clone())?,
        settings,
    };
    let mut output = Output::of_command(console, shown_of(command));
    let writes = ["-put", "-copyFromLocal", "-moveFromLocal", "-cp"].contains(&command.name);
    let work = shell.command(command, &line, &mut output);
    let status = block_on_two_threads(unless_stopped(writes, work))?;
    let has_failed = output.has_failed;
    let status = match status? {
        Ended::Done(status) => status,
        Ended::Stopped { by, is_given_up } => return Ok(stopped(by, is_given_up, console)),
    };
    Ok(match (status, has_failed) {
        (_, true) => FAILED.into(),
        (status, false) => status.into(),
    })
}

fn shown_of(command: &'static Command) -> &'static str {
    command.name.strip_prefix('-').unwrap_or(command.name)
}

/// The usage of one command, or of all.
fn usage(of: Option<&Command>) -> String {
    let line = |command: &Command| {
        let arguments = [command.name, command.arguments].join(" ");
        format!("[{}]", arguments.trim_end())
    };
    match of {
        Some(command) => format!("Usage: java FsShell {}\n", line(command)),
        None => {
            let known = table::FS.iter().filter(|it| !matches!(it.fate, Fate::Refused(_)));
            let lines = known.map(|command| format!("           {}\n", line(command)));
            format!("Usage: java FsShell\n{}", lines.collect::<String>())
        }
    }
}

/// The usage of the command that is asked for, with what is known of it.
fn help(name: Option<&str>) -> String {
    let name = name.map(|name| format!("-{}", name.trim_start_matches('-')));
    let named = name.and_then(|name| table::find(table::FS, &name));
    let Some(command) = named else { return usage(None) };
    let mut text = format!("{} {}\n", command.name, command.arguments);
    let note = match command.fate {
        Fate::Works(note) | Fate::NoMeaning(note) => note.to_owned(),
        Fate::Refused(why) => format!("is refused: {why}"),
    };
    if !note.is_empty() {
        text.push_str(&format!("    {note}\n"));
    }
    for option in command.options {
        let note = match option.fate {
            Fate::Works(note) => note.to_owned(),
            Fate::NoMeaning(why) => format!("has no meaning here: {why}"),
            Fate::Refused(why) => format!("is refused: {why}"),
        };
        text.push_str(format!("    {} {note}", option.name).trim_end());
        text.push('\n');
    }
    text
}

impl Shell {
    /// Runs a command. The status counts if nothing has failed.
    async fn command(
        &self,
        command: &'static Command,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<u8> {
        let words = &line.words[..];
        match command.name {
            "-ls" | "-lsr" | "-lsrx" => self.ls(command.name, line, output).await?,
            "-du" => self.du(words, output).await?,
            "-dus" => self.dus(words, output).await?,
            "-count" => self.count(words, output).await?,
            "-cat" => self.cat_all(words, output).await?,
            "-text" | "-decompress" => self.text(command.name, words, output).await?,
            "-head" => self.head(words, output).await?,
            "-tail" => self.tail(words, line.has("-f"), output).await?,
            "-stat" => self.stat_form(words, output).await?,
            "-test" => return self.test(words, output).await,
            "-mv" => self.move_all(words, output).await?,
            "-cp" => self.copy_all(words, output).await?,
            "-put" | "-copyFromLocal" | "-moveFromLocal" => {
                self.put_all(command.name, line, output).await?;
            }
            "-get" | "-copyToLocal" => self.get_all(line, output).await?,
            "-getmerge" => self.merge(words, output).await?,
            "-rm" | "-rmr" => self.remove_all(command.name, line, output).await?,
            "-rmdir" => self.remove_empty(line, output).await?,
            "-mkdir" => self.make_directories(words, line.has("-p"), output).await?,
            "-touchz" => self.make_empty(words, output).await?,
            "-touch" => self.touch(words, output).await?,
            "-setrep" => self.replicate(line, output).await?,
            "-chmod" | "-chown" | "-chgrp" => self.change(command.name, line, output).await?,
            other => output.fail(&format!("{other} is not known here")),
        }
        Ok(0)
    }

    /// What a path or a pattern names, which may be nothing for a pattern. What is not found is reported, as
    /// the original's `getFileStatus` words it.
    async fn named(
        &self,
        text: &str,
        output: &mut Output<'_, '_>,
    ) -> Option<(Arc<dyn FileSystem>, Vec<FileStatus>)> {
        let (files, path, found) = output.reported(self.found(text).await)?;
        if found.is_empty() && !Glob::is_pattern(path.path()) {
            output.fail(&format!("File does not exist: {path}"));
            return None;
        }
        Some((files, found))
    }

    /// The same, but nothing at all is reported as well, as the original's lists word it.
    async fn listed(
        &self,
        text: &str,
        output: &mut Output<'_, '_>,
    ) -> Option<(Arc<dyn FileSystem>, Vec<FileStatus>)> {
        let (files, _, found) = output.reported(self.found(text).await)?;
        if found.is_empty() {
            output.fail(&format!("Cannot access {text}: No such file or directory."));
            return None;
        }
        Some((files, found))
    }
}
