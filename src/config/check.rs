//! The check of a whole configuration: what every daemon reads from it, and what it names on this machine.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs;
use std::path::Path;

use super::files::FileReader;
use super::keys::{self, Kind};
use super::problem::{Origin, Problem, ProblemKind};
use super::properties::Properties;
use super::settings::SettingsReader;
use super::system::SystemProperties;
use super::topology::Topology;
use super::{Checked, HostPort, InForce, Source};

impl Source<'_> {
    /// Reads everything that the daemons read, including the host files, looks for what it names on this
    /// machine, and reports all problems. Spec: cluster-manager/06.
    pub fn check(&self) -> Checked {
        let (loaded, mut problems) = self.read(SystemProperties::of_process());
        match loaded.settings.host_files.load() {
            Ok(hosts) => problems.extend(hosts.warnings),
            Err(errors) => problems.extend(errors.problems),
        }
        let mut in_force = loaded.in_force;
        let (of_others, more) = self.other_daemons();
        let new: Vec<Problem> =
            of_others.into_iter().filter(|problem| !problems.contains(problem)).collect();
        problems.extend(new);
        for value in more {
            if !in_force.iter().any(|known| known.key == value.key) {
                in_force.push(value);
            }
        }
        if let Topology::Script { path, .. } = &loaded.settings.topology
            && !path.is_file()
        {
            let kind = ProblemKind::Absent {
                path: path.display().to_string().into(),
                looked_in: Vec::new(),
                used: "no host can be put into a rack".into(),
            };
            let key = keys::TOPOLOGY_SCRIPT.name;
            problems.push(Problem::warning(set_in(&in_force, key), kind).of(key));
        }
        if let Some(directory) = &loaded.settings.journal.directory {
            problems.extend(directory_problem(&in_force, &keys::JOURNAL_DIR, directory));
        }
        problems.extend(local_directories(&in_force));
        problems.extend(unresolved(&in_force, resolves));
        in_force.sort_by_key(|value| keys::ALL.iter().position(|key| key.name == value.key));
        Checked { problems, in_force }
    }

    /// The problems and the values of the daemons other than the cluster manager. That a key is not set is
    /// none: the daemon may run elsewhere.
    fn other_daemons(&self) -> (Vec<Problem>, Vec<InForce>) {
        let (mut problems, mut in_force) = (Vec::new(), Vec::new());
        // What is wrong with the files themselves was found before.
        let (mut files, mut known) = (FileReader::default(), Vec::new());
        let system = SystemProperties::of_process();
        let properties =
            Properties::load(self.conf_dir, &[], self.overrides, system, &mut files, &mut known);
        let mut read = |read: fn(SettingsReader<'_>) -> Vec<InForce>| {
            in_force.extend(read(SettingsReader::new(self, &properties, &mut problems)));
        };
        read(|reader| reader.read_task_tracker().1);
        read(|reader| reader.read_job_tracker().1);
        read(|reader| reader.read_proxy_job_tracker().1);
        problems.retain(|problem| {
            !matches!(problem.kind, ProblemKind::Required { .. })
                && problem.origin != Origin::Default
        });
        let mut once: Vec<Problem> = Vec::new();
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        (once, in_force)
    }
}

/// Where a key is set.
fn set_in(in_force: &[InForce], key: &str) -> Origin {
    let set = in_force.iter().find(|value| value.key == key);
    set.map_or(Origin::Default, |value| value.origin.clone())
}

/// A directory that is named and cannot be one.
fn directory_problem(in_force: &[InForce], key: &keys::Key, path: &Path) -> Option<Problem> {
    let origin = set_in(in_force, key.name);
    if origin == Origin::Default {
        return None;
    }
    let wrong = |wrong: &str| {
        let (value, wrong) = (path.display().to_string().into(), wrong.into());
        let expected = "a directory, or a name in one that exists".into();
        Problem::error(origin.clone(), ProblemKind::Value { value, wrong, expected }).of(key.name)
    };
    if path.exists() {
        return (!path.is_dir()).then(|| wrong("is not a directory"));
    }
    // A directory that is missing is made, and those above it.
    let above = path.ancestors().skip(1).find(|above| above.exists())?;
    (!above.is_dir()).then(|| wrong("lies in something that is not a directory"))
}

/// The local directories of nodes that are missing here, and those that cannot be made.
fn local_directories(in_force: &[InForce]) -> Vec<Problem> {
    let key = &keys::TT_LOCAL_DIRS;
    let Some(value) = in_force.iter().find(|value| value.key == key.name) else {
        return Vec::new();
    };
    if value.origin == Origin::Default {
        return Vec::new();
    }
    let paths = value.value.split(',').map(str::trim).filter(|path| path.starts_with('/'));
    let problem = |path: &str| {
        if let Some(problem) = directory_problem(in_force, key, Path::new(path)) {
            return Some(problem);
        }
        let text = format!(
            "directory {path} does not exist on this machine; a task tracker here makes it when it starts"
        );
        let is_missing = !Path::new(path).exists();
        is_missing.then(|| {
            Problem::warning(value.origin.clone(), ProblemKind::NoEffect(text)).of(key.name)
        })
    };
    paths.filter_map(problem).collect()
}

/// The addresses that are set and have a name that this machine does not know.
fn unresolved(in_force: &[InForce], resolves: impl Fn(&str, u16) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut known, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for value in in_force {
        let is_address = keys::find(value.key).is_some_and(|key| key.kind == Kind::Address);
        if !is_address || value.origin == Origin::Default {
            continue;
        }
        let Ok(address) = value.value.parse::<HostPort>() else { continue };
        let host = address.host.to_string();
        if !known.contains(&host) && !unknown.contains(&host) {
            let found = resolves(&host, address.port);
            if found { &mut known } else { &mut unknown }.insert(host.clone());
        }
        if unknown.contains(&host) {
            let kind = ProblemKind::Replaced {
                value: value.value.as_str().into(),
                wrong: format!("has the name {host}, which this machine cannot resolve").into(),
                used: "connections to it fail here".into(),
            };
            problems.push(Problem::warning(value.origin.clone(), kind).of(value.key));
        }
    }
    problems
}

fn resolves(host: &str, port: u16) -> bool {
    (host, port).to_socket_addrs().is_ok_and(|mut found| found.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{self, property};

    fn check(overrides: &[(&str, &str)], xml: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let site = format!("<configuration>\n{xml}\n</configuration>");
        std::fs::write(dir.path().join("core-site.xml"), site).unwrap();
        let overrides = tests::overrides(overrides);
        let source =
            Source { conf_dir: Some(dir.path()), overrides: &overrides, ..Source::default() };
        let name = dir.path().display().to_string();
        let checked = source.check();
        checked.problems.iter().map(|problem| problem.to_string().replace(&name, "DIR")).collect()
    }

    #[test]
    fn keys_of_every_daemon_are_checked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let below = file.path().join("local");
        let below = below.to_str().unwrap();
        for (key, value, expected) in [
            ("corona.tt.native.tasks", "yes", "value \"yes\" "),
            ("corona.jt.max.jobs", "many", "value \"many\" is not a whole number"),
            ("corona.pjt.index.max.jobs", "x", "value \"x\" is not a whole number"),
            ("corona.jt.adress", "h:1", "unknown key, ignored; did you mean corona.jt.address?"),
            (
                "corona.taks.native",
                "true",
                "unknown key, ignored; did you mean corona.task.native?",
            ),
            ("mapred.local.dir", "/no/such/dir", "directory /no/such/dir does not exist on this"),
            ("mapred.local.dir", below, "lies in something that is not a directory"),
            ("corona.cm.journal.dir", below, "lies in something that is not a directory"),
            ("corona.jt.address", "no.such.host.invalid:8021", "which this machine cannot resolve"),
        ] {
            let found = check(&[], &property(key, value));
            let of_key = found
                .iter()
                .filter(|problem| problem.starts_with(&format!("DIR/core-site.xml:2: {key}: ")));
            let of_key: Vec<_> = of_key.collect();
            assert_eq!(of_key.len(), 1, "{key}={value}: {found:#?}");
            assert!(of_key[0].contains(expected), "{key}={value}: {of_key:?}");
        }
        let own = check(&[], &property("corona.task.env.ANYTHING", "x"));
        assert!(own.iter().all(|problem| !problem.contains("unknown key")), "{own:#?}");
    }

    #[test]
    fn keys_that_are_set_twice_are_reported() {
        let twice = [property("cm.server.address", "localhost:1"), property("io.sort.mb", "7")];
        let again = property("cm.server.address", "localhost:2");
        let found = check(&[], &[twice.concat(), again].join("\n"));
        let expected = "DIR/core-site.xml:3: cm.server.address: is set in line 2 of this file as well; \
                        the later value is used";
        assert_eq!(found.iter().filter(|problem| *problem == expected).count(), 1, "{found:#?}");
        let overridden = check(&[("cm.server.address", "localhost:3")], &twice.concat());
        assert!(overridden.iter().all(|problem| !problem.contains("as well")), "{overridden:#?}");
    }

    #[test]
    fn names_are_looked_up_once() {
        let value = |key, value: &str, origin| InForce { key, value: value.to_owned(), origin };
        let asked = std::cell::RefCell::new(Vec::new());
        let in_force = [
            value("cm.server.address", "known:1", Origin::CommandLine),
            value("cm.server.http.address", "unknown:1", Origin::CommandLine),
            value("corona.jt.address", "unknown:2", Origin::CommandLine),
            value("mapred.job.tracker.http.address", "default:2", Origin::Default),
        ];
        let found = unresolved(&in_force, |host, _| {
            asked.borrow_mut().push(host.to_owned());
            host == "known"
        });
        assert_eq!((found.len(), asked.into_inner()), (2, vec!["known".into(), "unknown".into()]));
    }
}
