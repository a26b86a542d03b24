//! Commands that delete, make and change files.

use corona::filesystem::{CreateOptions, FileStatus, FileSystem, FsError, Glob};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::super::remove::{Fate, Removal, move_to_trash};
use super::super::{Failure, MAX_FILES, Output, Shell, is_link};
use super::Line;

impl Shell {
    pub(super) async fn remove_all(
        &self,
        name: &str,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let recursive = name == "-rmr" || line.has("-R") || line.has("-r");
        let how = Removal {
            recursive,
            force: true,
            skip_trash: line.has("-skipTrash"),
            force_root: false,
        };
        for text in &line.words {
            let Some((files, path, found)) = output.reported(self.found(text).await) else {
                continue;
            };
            if found.is_empty() && !line.has("-f") && !Glob::is_pattern(path.path()) {
                output.fail(&format!("cannot remove {path}: No such file or directory."));
            }
            for status in found {
                if let Some(done) = output.reported(self.remove_one(&*files, &status, how).await) {
                    output.console.complain(&format!("{done}\n"));
                }
            }
        }
        Ok(())
    }

    async fn remove_one(
        &self,
        files: &dyn FileSystem,
        status: &FileStatus,
        how: Removal,
    ) -> Result<String, Failure> {
        let path = &status.path;
        if status.is_directory && !is_link(files, status) && !how.recursive {
            return Err(format!("Cannot remove directory \"{path}\", use -rmr instead").into());
        }
        let fate = self.fate(files, status, how).map_err(|refusal| {
            refusal.replace("; --force-root removes it", "; corona fs rm --force-root removes it")
        })?;
        match fate {
            Fate::Trash => {
                move_to_trash(files, path).await?;
                Ok(format!("Moved to trash: {path}"))
            }
            Fate::Deletion { .. } => match files.delete(path, how.recursive).await? {
                true => Ok(format!("Deleted {path}")),
                false => Err(format!("Delete failed {path}").into()),
            },
        }
    }

    pub(super) async fn remove_empty(
        &self,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in &line.words {
            let Some((files, found)) = self.named(text, output).await else { continue };
            for status in found {
                let path = &status.path;
                let removed = async {
                    if !status.is_directory || is_link(&*files, &status) {
                        return Err(format!("{path} is not a directory").into());
                    }
                    if files.list(path, MAX_FILES).await?.is_empty() {
                        return Ok(files.delete(path, false).await?);
                    }
                    match line.has("-ignore-fail-on-non-empty") {
                        true => Ok(false),
                        false => {
                            let why = "use -rmr instead";
                            Err(Failure(format!("Cannot remove directory \"{path}\", {why}")))
                        }
                    }
                };
                if output.reported(removed.await) == Some(true) {
                    output.console.complain(&format!("Deleted {path}\n"));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn make_directories(
        &self,
        words: &[String],
        may_exist: bool,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in words {
            output.reported(self.make_directory(text, may_exist).await);
        }
        Ok(())
    }

    pub(super) async fn make_empty(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        for text in words {
            let made = async {
                let (files, path, found) = self.looked_up(text).await?;
                match found {
                    Some(found) if found.is_directory => {
                        return Err(format!("{text} is a directory").into());
                    }
                    Some(found) if found.bytes > 0 => {
                        return Err(format!("{text} must be a zero-length file").into());
                    }
                    _ => {}
                }
                let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
                files.create(&path, options).await?.close().await?;
                Ok::<_, Failure>(())
            };
            output.reported(made.await);
        }
        Ok(())
    }

    pub(super) async fn touch(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some(touch) = output.reported(Touch::of(words)) else { return Ok(()) };
        for text in touch.paths {
            let touched = async {
                let (files, path, found) = self.looked_up(text).await?;
                if found.is_none() {
                    if !touch.creates {
                        return Err(format!("File doesn't exist: {text}").into());
                    }
                    files.create(&path, CreateOptions::default()).await?.close().await?;
                }
                let at = touch.at_ms.unwrap_or_else(|| Timestamp::now().as_millisecond());
                let (read, written) = (touch.accessed.then_some(at), touch.modified.then_some(at));
                files.set_times(&path, written, read).await?;
                Ok::<_, Failure>(())
            };
            output.reported(touched.await);
        }
        Ok(())
    }

    pub(super) async fn replicate(
        &self,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((count, paths)) = line.words.split_first() else { return Ok(()) };
        let count = match count.parse::<i16>() {
            Ok(count) if count >= 1 => count,
            Ok(_) => {
                output.fail("replication must be >= 1");
                return Ok(());
            }
            Err(_) => {
                output.fail("Illegal replication, a positive integer expected");
                return Ok(());
            }
        };
        for text in paths {
            let Some((files, found)) = self.named(text, output).await else { continue };
            let mut waiting: Vec<(FileStatus, bool)> =
                found.into_iter().map(|status| (status, true)).collect();
            while let Some((status, is_named)) = waiting.pop() {
                let path = &status.path;
                if !status.is_directory {
                    if output.reported(files.set_replication(path, count).await).is_some() {
                        output.say(&format!("Replication {count} set: {path}"))?;
                    }
                } else if is_named || line.has("-R") {
                    let entries = output.reported(files.list(path, MAX_FILES).await);
                    let entries = entries.unwrap_or_default().into_iter().rev();
                    waiting.extend(entries.map(|entry| (entry, false)));
                }
            }
        }
        Ok(())
    }

    /// Changes modes or owners, of all that is below as well with `-R`.
    pub(super) async fn change(
        &self,
        name: &str,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((wanted, paths)) = line.words.split_first() else { return Ok(()) };
        let Some(change) = output.reported(Change::of(name, wanted)) else { return Ok(()) };
        for text in paths {
            let Some((files, found)) = self.named(text, output).await else { continue };
            let mut waiting = found;
            while let Some(status) = waiting.pop() {
                if let Err(error) = change.make(&*files, &status).await {
                    let (what, path, why) = (change.what(), &status.path, error.first_line());
                    output.fail(&format!("changing {what} of '{path}':{why}"));
                    continue;
                }
                if status.is_directory && line.has("-R") && !is_link(&*files, &status) {
                    let entries = output.reported(files.list(&status.path, MAX_FILES).await);
                    waiting.extend(entries.unwrap_or_default().into_iter().rev());
                }
            }
        }
        Ok(())
    }
}

/// What `-touch` is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Touch<'a> {
    creates: bool,
    accessed: bool,
    modified: bool,
    at_ms: Option<i64>,
    paths: &'a [String],
}

impl<'a> Touch<'a> {
    fn of(words: &'a [String]) -> Result<Touch<'a>, String> {
        let mut touch =
            Touch { creates: true, accessed: false, modified: false, at_ms: None, paths: words };
        while let Some((word, rest)) = touch.paths.split_first()
            && word.starts_with('-')
        {
            touch.paths = rest;
            match word.strip_prefix("--") {
                Some(long) => touch.long(long)?,
                None => touch.letters(word.trim_start_matches('-'))?,
            }
        }
        if !touch.accessed && !touch.modified {
            (touch.accessed, touch.modified) = (true, true);
        }
        Ok(touch)
    }

    fn long(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("no-create", "") => self.creates = false,
            ("date", "") => {
                let date = self.next().ok_or("expected date after '--date' option")?;
                self.at_ms = Some(date_ms(date)?);
            }
            ("date", date) => self.at_ms = Some(date_ms(date)?),
            _ => return Err(format!("invalid option: --{option}")),
        }
        Ok(())
    }

    fn letters(&mut self, letters: &str) -> Result<(), String> {
        for letter in letters.chars() {
            match letter {
                'a' => self.accessed = true,
                'm' => self.modified = true,
                'c' => self.creates = false,
                'd' => {
                    let date = self.next().ok_or("expected date after 'd' option")?;
                    self.at_ms = Some(date_ms(date)?);
                }
                'u' => {
                    let wrong = "expected timestamp after 'u' option";
                    let time = self.next().ok_or(wrong)?;
                    self.at_ms = Some(time.parse().map_err(|_| wrong)?);
                }
                other => return Err(format!("invalid option: {other}")),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<&'a str> {
        let (next, rest) = self.paths.split_first()?;
        self.paths = rest;
        Some(next)
    }
}

fn date_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("Unable to parse date: {text}");
    let date = DateTime::strptime("%Y-%m-%d %H:%M:%S", text).map_err(|_| wrong())?;
    let zoned = date.to_zoned(TimeZone::system()).map_err(|_| wrong())?;
    Ok(zoned.timestamp().as_millisecond())
}

/// A change of modes or owners.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Mode(Vec<Clause>),
    Owner { owner: Option<String>, group: Option<String> },
}

/// A part of a mode: whose bits, and how they change.
#[derive(Debug, PartialEq, Eq)]
struct Clause {
    /// The bits of all that are meant, such as 0o700 for the owner.
    whose: u16,
    how: char,
    bits: u16,
    /// Whether execution is meant where it makes sense: `X`.
    if_executable: bool,
}

impl Change {
    fn of(name: &str, wanted: &str) -> Result<Change, String> {
        match name {
            "-chmod" => clauses(wanted).map(Change::Mode).ok_or_else(|| {
                format!("chmod : mode '{wanted}' does not match the expected pattern.")
            }),
            "-chgrp" => Change::owners(&format!(":{wanted}")),
            _ => Change::owners(wanted),
        }
    }

    fn owners(wanted: &str) -> Result<Change, String> {
        let (owner, group) = wanted.trim().split_once(':').unwrap_or((wanted.trim(), ""));
        let is_name =
            |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@".contains(c));
        if !is_name(owner) || !is_name(group) {
            return Err(format!("'{wanted}' does not match expected pattern for [owner][:group]."));
        }
        if owner.is_empty() && group.is_empty() {
            return Err(format!("'{wanted}' names neither owner nor group."));
        }
        let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Ok(Change::Owner { owner: some(owner), group: some(group) })
    }

    fn what(&self) -> &'static str {
        match self {
            Change::Mode(_) => "permissions",
            Change::Owner { .. } => "ownership",
        }
    }

    async fn make(&self, files: &dyn FileSystem, status: &FileStatus) -> Result<(), FsError> {
        let path = &status.path;
        match self {
            Change::Mode(clauses) => {
                let mode = changed(clauses, status.permission, status.is_directory);
                match mode == status.permission {
                    true => Ok(()),
                    false => files.set_permission(path, mode).await,
                }
            }
            Change::Owner { owner, group } => {
                let owner = owner.as_deref().filter(|owner| *owner != status.owner);
                let group = group.as_deref().filter(|group| *group != status.group);
                match (owner, group) {
                    (None, None) => Ok(()),
                    _ => files.set_owner(path, owner, group).await,
                }
            }
        }
    }
}

/// Reads a mode: three octal digits, or parts such as `u+rw` with commas between.
fn clauses(text: &str) -> Option<Vec<Clause>> {
    let digits = text.trim().trim_start_matches('+');
    if digits.len() == 3 && digits.chars().all(|digit| digit.is_digit(8)) {
        let bits = u16::from_str_radix(digits, 8).ok()?;
        return Some(vec![Clause { whose: 0o777, how: '=', bits, if_executable: false }]);
    }
    text.split(',').map(|part| clause(part.trim())).collect()
}

fn clause(part: &str) -> Option<Clause> {
    let (mut whose, mut how, mut bits, mut if_executable) = (0, None, 0, false);
    for letter in part.chars() {
        match (letter, how) {
            ('u', None) => whose |= 0o700,
            ('g', None) => whose |= 0o070,
            ('o', None) => whose |= 0o007,
            ('a', None) => whose |= 0o777,
            ('+' | '-' | '=', _) if bits == 0 && !if_executable => how = Some(letter),
            ('r', Some(_)) => bits |= 0o444,
            ('w', Some(_)) => bits |= 0o222,
            ('x', Some(_)) => bits |= 0o111,
            ('X', Some(_)) => if_executable = true,
            _ => return None,
        }
    }
    let whose = if whose == 0 { 0o777 } else { whose };
    (bits != 0 || if_executable).then_some(())?;
    Some(Clause { whose, how: how?, bits, if_executable })
}

/// A mode with changes.
fn changed(clauses: &[Clause], mode: u16, is_directory: bool) -> u16 {
    clauses.iter().fold(mode, |mode, clause| {
        let executes = is_directory || mode & 0o111 != 0;
        let extra = if clause.if_executable && executes { 0o111 } else { 0 };
        let bits = (clause.bits | extra) & clause.whose;
        match clause.how {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => (mode & !clause.whose) | bits,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_changed_as_chmod_does() {
        for (text, mode, is_directory, expected) in [
            ("754", 0o600, false, Some(0o754)),
            ("u=rwx,g=rx,o=r", 0o000, false, Some(0o754)),
            ("+x", 0o644, false, Some(0o755)),
            ("a+r,g-w", 0o620, false, Some(0o644)),
            ("go-rwx", 0o777, true, Some(0o700)),
            ("+X", 0o644, false, Some(0o644)),
            ("+X", 0o644, true, Some(0o755)),
            ("o=", 0o644, false, None),
            ("75", 0o644, false, None),
            ("u+q", 0o644, false, None),
            ("rwx", 0o644, false, None),
        ] {
            let found = clauses(text).map(|clauses| changed(&clauses, mode, is_directory));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn owners_and_groups() {
        let owner = |owner: Option<&str>, group: Option<&str>| {
            let text = |name: Option<&str>| name.map(str::to_owned);
            Ok(Change::Owner { owner: text(owner), group: text(group) })
        };
        assert_eq!(Change::of("-chown", "ann"), owner(Some("ann"), None));
        assert_eq!(Change::of("-chown", "ann:staff"), owner(Some("ann"), Some("staff")));
        assert_eq!(Change::of("-chown", "ann:"), owner(Some("ann"), None));
        assert_eq!(Change::of("-chgrp", "staff"), owner(None, Some("staff")));
        assert!(Change::of("-chown", ":").is_err());
        assert!(Change::of("-chown", "a b").is_err());
    }

    #[test]
    fn options_of_touch() {
        let touch = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Touch::of(&words).map(|it| (it.creates, it.accessed, it.modified, it.at_ms))
        };
        assert_eq!(touch(&["x"]), Ok((true, true, true, None)));
        assert_eq!(touch(&["-acu", "5", "x"]), Ok((false, true, false, Some(5))));
        assert_eq!(touch(&["--no-create", "-m", "x"]), Ok((false, false, true, None)));
        assert!(touch(&["-d", "2012-01-02 03:04:05", "x"]).unwrap().3.is_some());
        assert_eq!(touch(&["-q", "x"]), Err("invalid option: q".to_owned()));
        assert_eq!(touch(&["-u", "x"]), Err("expected timestamp after 'u' option".to_owned()));
    }
}
