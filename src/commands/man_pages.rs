//! `corona man-pages`: manual pages, generated from the same texts as `--help`, for packages.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_mangen::Man;

use super::Cli;
use corona_terminal::console::Console;

/// Write a manual page for each command into a directory
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The directory, which exists
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages.
pub(super) fn run(arguments: &Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    for (name, page) in pages()? {
        let path = arguments.directory.join(name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        console.print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages by file name, such as `corona-nodes-list.1`.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut below = vec![("corona".to_owned(), command)];
    while let Some((name, command)) = below.pop() {
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let subcommands: Vec<(String, clap::Command)> = visible
            .map(|command| (format!("{name}-{}", command.get_name()), command.clone()))
            .collect();
        let names = subcommands.iter().map(|(name, _)| name.as_str());
        pages.push((format!("{name}.1"), page(&name, command, names)?));
        below.extend(subcommands);
    }
    pages.sort();
    Ok(pages)
}

fn page<'a>(
    name: &str,
    command: clap::Command,
    subcommands: impl Iterator<Item = &'a str>,
) -> anyhow::Result<Vec<u8>> {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let version = concat!("corona ", env!("CARGO_PKG_VERSION"));
    // Its names, `corona-nodes-list` and `corona nodes list`, were set when the command was built.
    let man = Man::new(command)
        .title(name.to_uppercase())
        .section("1")
        .source(version)
        .manual("Corona")
        .date("");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_options {
        man.render_options_section(&mut page)?;
    }
    let subcommands: Vec<&str> = subcommands.collect();
    if !subcommands.is_empty() {
        writeln!(page, ".SH COMMANDS")?;
        for name in &subcommands {
            writeln!(page, ".TP\n.BR {} (1)", escaped(name))?;
        }
    }
    write_notes(&mut page, &notes)?;
    writeln!(page, ".SH SEE ALSO\n.BR corona (1)")?;
    writeln!(page, ".PP\nThe documentation in /usr/share/doc/corona/.")?;
    Ok(page)
}

/// The text below the options in `--help`: examples as they are, the rest as text.
fn write_notes(page: &mut Vec<u8>, notes: &str) -> anyhow::Result<()> {
    let (examples, rest) = match notes.strip_prefix("Examples:\n") {
        Some(text) => text.split_once("\n\n").unwrap_or((text, "")),
        None => ("", notes),
    };
    if !examples.is_empty() {
        writeln!(page, ".SH EXAMPLES\n.nf")?;
        for line in examples.lines() {
            writeln!(page, "{}", escaped(line.strip_prefix("  ").unwrap_or(line)))?;
        }
        writeln!(page, ".fi")?;
    }
    if !rest.trim().is_empty() {
        writeln!(page, ".SH NOTES")?;
        for line in rest.trim().lines() {
            match line.trim() {
                "" => writeln!(page, ".PP")?,
                // Each sentence of this kind has a line of its own.
                text if text.starts_with("Exit status") => {
                    writeln!(page, ".PP\n{}", escaped(text))?;
                }
                text => writeln!(page, "{}", escaped(text))?,
            }
        }
    }
    Ok(())
}

/// A line of text, which no character makes a command of the formatter.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = pages().unwrap();
        let text = |name: &str| {
            let (_, page) = pages.iter().find(|(page, _)| page == name).unwrap();
            String::from_utf8(page.clone()).unwrap()
        };
        let all = text("corona.1");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = text(&format!("corona-{}.1", command.get_name()));
            for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
                let plain = section.replace('"', "");
                assert!(page.contains(section) || page.contains(&plain), "{section}: {page}");
            }
            let name = command.get_name().replace('-', "\\-");
            assert!(all.contains(&format!(".BR corona\\-{name} (1)")), "{name}: {all}");
        }
        let page = text("corona-cluster-manager.1");
        assert!(page.contains("\n.SH EXAMPLES\n.nf\n"), "{page}");
        assert!(page.contains("\n  corona cluster\\-manager\n"), "{page}");
        assert!(!all.contains("man\\-pages"), "hidden commands have no page");
    }

    #[test]
    fn text_never_becomes_a_command_of_the_formatter() {
        for (line, expected) in
            [(".TH x", "\\&.TH x"), ("'x", "\\&'x"), ("a\\b", "a\\eb"), ("--x", "\\-\\-x")]
        {
            assert_eq!(escaped(line), expected);
        }
    }
}
