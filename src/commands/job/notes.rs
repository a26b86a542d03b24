//! Notes on what a job says that is allowed and probably not meant. Nothing here refuses a job.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use corona::api::cluster::Nodes;
use corona::config::keys;
use corona::filesystem::FsPath;
use corona::mapreduce::streaming_keys::{self, STREAMING_KEYS};
use corona::task::hints::{BETWEEN, scripts};

use super::conf::ShippedFile;
use super::inputs::Inputs;
use super::{CLUSTER_PATIENCE, Run, Steps};
use crate::commands::nodes;
use crate::commands::web::Web;
use corona_terminal::counted;

/// Characters of words that a shell replaces.
const REPLACED: [char; 7] = ['$', '*', '?', '[', '{', '~', '`'];

/// The notes on a job with these settings of `-D` and inputs.
pub(super) fn of(
    run: &Run,
    settings: &[(String, String)],
    inputs: &Inputs,
    output: &FsPath,
) -> Vec<String> {
    let mut notes: Vec<String> = settings.iter().filter_map(|(name, _)| of_setting(name)).collect();
    notes.extend(of_input(inputs));
    notes.extend(of_repeated(&run.input));
    notes.extend(of_output(output, inputs));
    notes.extend(of_commands(&run.steps, &|word| Path::new(word).is_file(), &is_on_path));
    notes
}

/// A setting that nothing reads, although one with a similar name exists.
fn of_setting(name: &str) -> Option<String> {
    if keys::find(name).is_some() || streaming_keys::find(name).is_some() {
        return None;
    }
    let meant = keys::meant(name, STREAMING_KEYS.iter().map(|key| key.name))?;
    Some(format!("-D {name}: corona reads no such setting; did you mean {meant}?"))
}

/// What the tasks of a job ask for of one node.
pub(in crate::commands) struct Asked {
    /// As the user has written it.
    said: String,
    what: Resource,
    amount: i64,
}

/// A resource of nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Memory,
    Cpus,
}

impl Asked {
    /// What settings of `-D` ask for.
    pub(in crate::commands) fn of(settings: &[(String, String)]) -> Vec<Asked> {
        const KEYS: [(&keys::Key, Resource); 4] = [
            (&keys::JOB_MAP_MEMORY, Resource::Memory),
            (&keys::JOB_REDUCE_MEMORY, Resource::Memory),
            (&keys::JOB_MAP_CPUS, Resource::Cpus),
            (&keys::JOB_REDUCE_CPUS, Resource::Cpus),
        ];
        let asked = settings.iter().filter_map(|(name, value)| {
            let (_, what) = KEYS.into_iter().find(|(key, _)| key.name == name)?;
            let amount = value.trim().parse().ok()?;
            Some(Asked { said: format!("-D {name}={value}"), what, amount })
        });
        asked.collect()
    }

    /// What `--memory` asks for, in MiB.
    pub(in crate::commands) fn memory(mib: i64) -> Asked {
        Asked { said: "--memory".to_owned(), what: Resource::Memory, amount: mib }
    }

    /// What `--cpus` asks for.
    pub(in crate::commands) fn cpus(cpus: u16) -> Asked {
        Asked { said: "--cpus".to_owned(), what: Resource::Cpus, amount: cpus.into() }
    }

    /// Why no node can ever serve it.
    fn too_much(&self, nodes: &Nodes) -> Option<String> {
        let totals = nodes.nodes.iter().filter_map(|node| node.total);
        let Asked { said, what, amount } = self;
        match what {
            Resource::Memory => {
                let most = i64::from(totals.filter_map(|total| total.memory_mb).max()?);
                (*amount > most).then(|| {
                    format!(
                        "{said}: no node has so much memory, the largest has {most} MiB; a task that \
                         uses so much fails on all of them: ask for less"
                    )
                })
            }
            Resource::Cpus => {
                let most = i64::from(totals.map(|total| total.cpus).max()?);
                (*amount > most).then(|| {
                    format!(
                        "{said}: no node has so many CPUs, the largest has {most}; a task may never \
                         start: ask for fewer"
                    )
                })
            }
        }
    }
}

/// The notes on a job whose tasks ask for more than any node has, as far as the cluster manager's pages show it
/// soon: at most one for each resource.
pub(in crate::commands) async fn of_asked(
    mut asked: Vec<Asked>,
    manager: Option<Web>,
) -> Vec<String> {
    let Some(manager) = manager.filter(|_| !asked.is_empty()) else { return Vec::new() };
    let read = tokio::time::timeout(CLUSTER_PATIENCE, nodes::read(&manager)).await;
    let Ok(Ok(nodes)) = read else { return Vec::new() };
    asked.sort_by_key(|asked| (asked.what, Reverse(asked.amount)));
    asked.dedup_by_key(|asked| asked.what);
    asked.iter().filter_map(|asked| asked.too_much(&nodes)).collect()
}

fn of_input(inputs: &Inputs) -> Option<String> {
    let files = counted(inputs.files as u64, "file");
    (inputs.bytes == 0).then(|| {
        format!(
            "the input is empty ({files}), and so will the output be; files whose names begin with _ or . do \
             not count"
        )
    })
}

/// An output in a directory that is an input: a later job stops at it, or reads it.
fn of_output(output: &FsPath, inputs: &Inputs) -> Option<String> {
    let lies_in = |directory: &&FsPath| {
        output.root() == directory.root() && Path::new(output.path()).starts_with(directory.path())
    };
    let directory = inputs.directories.iter().find(lies_in)?;
    Some(format!(
        "the output {output} lies in the input {directory}, where a later job with this input finds it; name a \
         directory beside it with --output"
    ))
}

/// An input that is named more than once, which is read as often.
fn of_repeated(inputs: &[String]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let input = inputs.iter().find(|input| !seen.insert(*input))?;
    Some(format!(
        "--input names {input} more than once, so its lines are read as often; name it once"
    ))
}

/// Files of this directory that commands name and tasks do not get. `is_file` and `is_program` look at
/// names.
fn of_commands(
    steps: &Steps,
    is_file: &dyn Fn(&str) -> bool,
    is_program: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let shipped = [&steps.file[..], &steps.archive[..]].concat();
    let mut notes = Vec::new();
    for (option, command) in steps.commands() {
        let command = match command.strip_prefix("builtin:") {
            Some(step) => step.strip_prefix("sh ").unwrap_or_default(),
            None => command,
        };
        if command.contains(' ') && is_file(command) {
            notes.push(format!(
                "{option} {command}: the name of this file has a blank; quote it for the shell of the tasks: \
                 {option} \"'{command}'\""
            ));
            continue;
        }
        let words = || command.split(BETWEEN).filter(|word| !word.is_empty());
        let scripts: Vec<&str> = scripts(words()).collect();
        for (number, word) in words().enumerate() {
            let word = word.trim_matches(['"', '\'']);
            let is_of_path = number == 0 && !word.contains('/') && is_program(word);
            if word.starts_with(['-', '/']) || word.contains(REPLACED) || is_of_path {
                continue;
            }
            let is_own = scripts.contains(&word) || number == 0 && word.starts_with("./");
            match is_file(word) {
                true => notes.extend(of_file(option, word, &shipped)),
                false if is_own => notes.extend(of_missing(option, word, &shipped)),
                false => {}
            }
        }
    }
    notes.dedup();
    notes
}

/// The note on a file of this directory that a command names, if tasks do not get it under this name.
fn of_file(option: &str, word: &str, shipped: &[ShippedFile]) -> Option<String> {
    let plain = word.strip_prefix("./").unwrap_or(word);
    if is_shipped(plain, shipped) {
        return None;
    }
    Some(match shipped.iter().find(|file| file.path == Path::new(plain)) {
        Some(ShippedFile { name, .. }) => format!(
            "{option} names {word}, but --file gives it to the tasks as {name}, in their working directory; \
             write {name} in the command"
        ),
        None => format!(
            "{option} names {word}, a file of this directory, which the tasks do not get; if they need it, \
             add --file {plain}{}",
            match plain.rsplit_once('/') {
                Some((_, name)) => format!(", and write {name} in the command"),
                None => String::new(),
            }
        ),
    })
}

/// The note on a script that tasks do not get, and that is not here.
fn of_missing(option: &str, word: &str, shipped: &[ShippedFile]) -> Option<String> {
    let plain = word.strip_prefix("./").unwrap_or(word);
    let name = plain.rsplit('/').next().unwrap_or_default();
    (!is_shipped(plain, shipped)).then(|| {
        format!(
            "{option} names {word}, which is neither here nor a file of the job; if the tasks need it, add \
             --file DIRECTORY/{name}"
        )
    })
}

/// Whether tasks have what has this name below their working directory.
fn is_shipped(name: &str, shipped: &[ShippedFile]) -> bool {
    let first = name.split('/').next().unwrap_or_default();
    shipped.iter().any(|file| file.name == first)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn notes(line: &[&str]) -> Vec<String> {
        let steps = Steps::of_line(line);
        let files = ["map.py", "scripts/map.py", "./my map.sh", "cat", "./map.py"];
        of_commands(&steps, &|word| files.contains(&word), &|word| word == "cat")
    }

    #[test]
    fn files_that_tasks_do_not_get_are_noted() {
        for (line, expected) in [
            (&["--mapper", "python3 map.py"][..], "which the tasks do not get"),
            (&["--mapper", "./map.py"], "add --file map.py"),
            (&["--mapper", "cat | python3 'map.py' -x"], "add --file map.py"),
            (&["--mapper", "cat", "--reducer", "builtin:sh ./map.py"], "--reducer names ./map.py"),
            (&["--mapper", "python3 scripts/map.py"], "add --file scripts/map.py"),
            (
                &["--mapper", "python3 scripts/map.py", "--file", "scripts/map.py"],
                "gives it to the tasks as map.py",
            ),
            (&["--mapper", "python3 scripts/map.py"], "and write map.py in the command"),
            (&["--mapper", "./my map.sh"], "\"'./my map.sh'\""),
            (&["--mapper", "python3 other.py"], "neither here nor a file of the job"),
            (&["--mapper", "./other | tr a b"], "names ./other, which is neither here"),
        ] {
            let notes = notes(line);
            assert!(notes.len() == 1 && notes[0].contains(expected), "{line:?}: {notes:?}");
        }
        for line in [
            &["--mapper", "cat"][..],
            &["--mapper", "python3 map.py", "--file", "map.py"],
            &["--mapper", "scripts/map.py", "--file", "scripts"],
            &["--mapper", "builtin:grep map.py"],
            &["--mapper", "grep other.py"],
            &["--mapper", "python3 lib/other.py", "--file", "lib"],
            &["--mapper", "./run", "--file", "x#run"],
        ] {
            assert_eq!(notes(line), Vec::<String>::new(), "{line:?}");
        }
    }

    #[test]
    fn more_than_any_node_has_is_noted() {
        let node = |mib: Option<i32>| json!({ "name": "n", "problems": [], "total": { "cpus": 1, "memory_mb": mib } });
        let nodes = |nodes: &[Value]| -> Nodes {
            serde_json::from_value(json!({ "total": nodes.len(), "nodes": nodes })).unwrap()
        };
        let settings = [
            ("mapred.job.reduce.memory.mb", "70000"),
            ("mapred.reduce.tasks", "9"),
            ("corona.job.map.cpus", "3"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let asked = Asked::of(&settings);
        let [memory, cpus] = &asked[..] else { panic!("two are resources") };
        let few = nodes(&[node(Some(100)), node(None), node(Some(60_000))]);
        let note = memory.too_much(&few).unwrap();
        let said = "-D mapred.job.reduce.memory.mb=70000";
        assert!(note.starts_with(said) && note.contains("the largest has 60000 MiB"), "{note}");
        let note = cpus.too_much(&few).unwrap();
        let said = "-D corona.job.map.cpus=3: no node has so many CPUs, the largest has 1; ";
        assert!(note.starts_with(said), "{note}");
        let enough = nodes(&[node(Some(100)), node(Some(70_000))]);
        assert_eq!(memory.too_much(&enough), None);
        assert_eq!(Asked::cpus(1).too_much(&enough), None);
        assert_eq!(memory.too_much(&nodes(&[node(None)])), None);
        assert_eq!(cpus.too_much(&nodes(&[])), None);
    }

    #[test]
    fn mistyped_settings_and_empty_inputs_are_noted() {
        let meant = of_setting("mapred.map.max.atempts").unwrap();
        assert!(meant.ends_with("did you mean mapred.map.max.attempts?"), "{meant}");
        for name in ["mapred.map.max.attempts", "corona.task.native", "my.own.key", ""] {
            assert_eq!(of_setting(name), None, "{name}");
        }
        let empty = of_input(&Inputs::default()).unwrap();
        assert!(empty.starts_with("the input is empty (0 files), and so will the output be"));
        assert_eq!(of_input(&Inputs { files: 1, bytes: 1, ..Inputs::default() }), None);
        let path = |text: &str| FsPath::parse(text).unwrap();
        let inputs = Inputs { directories: vec![path("file:/a/in")], ..Inputs::default() };
        assert!(of_output(&path("file:/a/in/out"), &inputs).unwrap().contains("lies in the input"));
        assert_eq!(of_output(&path("file:/a/input"), &inputs), None);
        let repeated = |inputs: &[&str]| {
            of_repeated(&inputs.iter().map(|&input| input.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(repeated(&["a", "b"]), None);
        assert!(repeated(&["a", "b", "a"]).unwrap().contains("--input names a more than once"));
    }
}
