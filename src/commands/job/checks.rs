//! What can be seen to be wrong with the files and commands of a job before a job tracker is called.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::conf::{self, ShippedFile};
use super::{Steps, UsageError};
use corona_terminal::console::printable;

/// Checks that the files for the tasks are here, that no two have one name, and that a shell can read the commands.
///
/// # Errors
/// One of them is wrong.
pub(super) fn check(steps: &Steps) -> anyhow::Result<()> {
    names(steps)?;
    for file in &steps.file {
        is_readable("--file", file)?;
    }
    for archive in &steps.archive {
        is_readable("--archive", archive)?;
        let shown = archive.path.display();
        ensure!(
            !archive.path.is_dir(),
            "--archive {shown}: this is a directory; use --file {shown}"
        );
    }
    for (option, command) in steps.commands() {
        is_read_by_a_shell(option, command)?;
    }
    Ok(())
}

fn names(steps: &Steps) -> anyhow::Result<()> {
    let shipped = [&steps.file[..], &steps.archive].concat();
    let Some((one, other)) = conf::same_name(&shipped) else { return Ok(()) };
    let option = |file| match steps.archive.contains(file) {
        true => "--archive",
        false => "--file",
    };
    bail!(UsageError(format!(
        "{} {} and {} {} both have the name {:?} in the working directory of tasks; expected different \
         names, such as {}#NAME",
        option(one),
        one.path.display(),
        option(other),
        other.path.display(),
        one.name,
        other.path.display(),
    )));
}

fn is_readable(option: &str, file: &ShippedFile) -> anyhow::Result<()> {
    let path = &file.path;
    let looked = fs::metadata(path).and_then(|found| match found.is_file() {
        true => File::open(path).map(drop),
        false => Ok(()),
    });
    looked.with_context(|| format!("{option} {}", path.display()))
}

/// Has a shell read a command that a shell will run, and run nothing.
fn is_read_by_a_shell(option: &str, command: &str) -> anyhow::Result<()> {
    let Some(script) = conf::script(command) else { return Ok(()) };
    let mut shell = Command::new("sh");
    shell.args(["-n", "-c", script]).stdin(Stdio::null());
    // Without a shell here, those of the nodes find out.
    let Ok(read) = shell.output() else { return Ok(()) };
    if read.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&read.stderr);
    let said = said.lines().next().unwrap_or_default().trim();
    // The shells of nodes may know more than the one here, such as `<(sort b)`.
    if ["\"(\" unexpected", "unexpected token `('"].iter().any(|more| said.contains(more)) {
        return Ok(());
    }
    bail!(UsageError(format!(
        "{option} {script}: a shell cannot read this command ({}); a quote or a bracket in it has no end, or is \
         one too many. Put single quotes around the whole command, and double quotes inside",
        printable(said)
    )));
}

#[cfg(test)]
mod tests {

    use super::*;

    fn checked(line: &[&str]) -> Result<(), String> {
        let steps = Steps::of_line(line);
        check(&steps).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn commands_that_no_shell_can_read_are_refused() {
        for command in ["grep 'x", "builtin:sh echo $(", "cat | | sort", "(cat"] {
            for line in [
                &["--mapper", command][..],
                &["--mapper", "cat", "--combiner", command],
                &["--mapper", "cat", "--reducer", command],
            ] {
                let refused = checked(line).unwrap_err();
                assert!(refused.contains("a shell cannot read this command"), "{refused}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made").display().to_string();
        // Nothing is run.
        let line = format!("touch '{made}'; grep \"it's\" | cat");
        checked(&["--mapper", &line, "--reducer", "uniq -c"]).unwrap();
        checked(&["--mapper", "builtin:grep 'x", "--reducer", "cat"]).unwrap();
        checked(&["--mapper", "sort <(cat)", "--reducer", "cat"]).unwrap();
        assert!(!dir.path().join("made").exists());
    }

    #[test]
    fn files_for_the_tasks_are_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("a.py"), "").unwrap();
        fs::create_dir_all(at("b.zip")).unwrap();
        let (file, directory, none) = (&*at("a.py"), &*at("b.zip"), &*at("none.py"));
        checked(&["--mapper", "cat", "--file", file, "--file", directory]).unwrap();
        let refused = checked(&["--mapper", "cat", "--file", none]).unwrap_err();
        assert_eq!(refused, format!("--file {none}: No such file or directory (os error 2)"));
        let refused = checked(&["--mapper", "cat", "--archive", directory]).unwrap_err();
        assert!(refused.ends_with(&format!("use --file {directory}")), "{refused}");
        let again = format!("{directory}#a.py");
        let refused = checked(&["--mapper", "cat", "--file", file, "--file", &again]).unwrap_err();
        assert!(refused.contains("both have the name \"a.py\""), "{refused}");
    }
}
