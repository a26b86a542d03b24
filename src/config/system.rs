//! The few system properties of a Java process that configuration files refer to.
//!
//! The only place of this room that looks at the process and its environment.

use std::collections::BTreeMap;

/// Values for `${user.name}` and the like. They come before properties of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SystemProperties(pub(super) BTreeMap<&'static str, String>);

impl SystemProperties {
    /// Those of this process: `user.name`, `user.home`, `user.dir`, `java.io.tmpdir`, `os.name`.
    /// One that cannot be found is left out.
    pub(super) fn of_process() -> Self {
        let (name, home) = account_of_process().unzip();
        let variable = |name| std::env::var(name).ok();
        let directory = std::env::current_dir().ok().map(|path| path.display().to_string());
        let found = [
            ("user.name", name.or_else(|| variable("USER"))),
            ("user.home", home.or_else(|| variable("HOME"))),
            ("user.dir", directory),
            ("java.io.tmpdir", Some("/tmp".into())),
            ("os.name", Some("Linux".into())),
        ];
        let found = found.into_iter().filter_map(|(name, value)| Some((name, value?)));
        SystemProperties(found.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// The name of the user as whom this process acts, if the machine's list of accounts has one.
pub fn user_of_process() -> Option<String> {
    Some(account_of_process()?.0)
}

fn account_of_process() -> Option<(String, String)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    account_of(&accounts, effective_user(&status)?)
}

/// The names of the groups of this process, its own one first; empty if they cannot be found.
pub(super) fn groups_of_process() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names = Vec::new();
    for number in numbers("Gid:").into_iter().take(1).chain(numbers("Groups:")) {
        let name = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == number).then(|| name.to_owned())
        });
        names.extend(name.filter(|name| !names.contains(name)));
    }
    names
}

/// The number of the user as whom a process acts. The owner of its directory is another one where its memory is
/// hidden.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Name and home of a user, from the text of `/etc/passwd`.
fn account_of(accounts: &str, uid: u32) -> Option<(String, String)> {
    accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            [name, _, id, _, _, home, ..] if id.parse() == Ok(uid) => {
                Some(((*name).to_owned(), (*home).to_owned()))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_the_effective_one() {
        assert_eq!(effective_user("Name:\tx\nUid:\t0\t1001\t0\t0\n"), Some(1001));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn the_account_is_found_by_its_number() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\nbroken\ncm:x:1001:1001::/home/cm:/bin/sh\n";
        assert_eq!(account_of(accounts, 1001), Some(("cm".into(), "/home/cm".into())));
        assert_eq!(account_of(accounts, 7), None);
    }

    #[test]
    fn a_process_has_a_directory_and_a_temporary_one() {
        let system = SystemProperties::of_process();
        assert_eq!(system.get("java.io.tmpdir"), Some("/tmp"));
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(system.get("user.dir"), Some(here.as_str()));
        assert_eq!(system.get("java.version"), None);
        let groups = groups_of_process();
        assert!(groups.iter().all(|group| !group.is_empty()), "{groups:?}");
    }
}
