//! What the options of a streaming job say, in the keys that native tasks read.

use std::path::{Path, PathBuf};

use corona::config::JobConf;
use corona::mapreduce::native::encoded;

use super::super::conf::{self, ShippedFile};
use super::line::Line;
use crate::commands::hadoop::class_of_this_version;

const IDENTITY_MAPPER: &str = "org.apache.hadoop.mapred.lib.IdentityMapper";
const IDENTITY_REDUCER: &str = "org.apache.hadoop.mapred.lib.IdentityReducer";
const STREAMING: &str = "org.apache.hadoop.streaming.";
const MAPRED: &str = "org.apache.hadoop.mapred.";
/// What `-reducer` names when there is none.
const NONE: &str = "NONE";
/// The reducer that sums up as its values say.
const AGGREGATE: &str = "aggregate";

/// The steps of a job, its files and what else its options say.
pub(super) struct Steps {
    keys: Vec<(&'static str, String)>,
    /// Files and archives of the cache that are not on this machine.
    remote_files: Vec<String>,
    remote_archives: Vec<String>,
    pub(super) files: Vec<ShippedFile>,
    pub(super) archives: Vec<ShippedFile>,
}

impl Steps {
    /// What the options say.
    ///
    /// # Errors
    /// A class needs Java, a file does not exist or has another one's name, or a number is none.
    pub(super) fn of(line: &Line) -> Result<Steps, String> {
        let mut steps = Steps {
            keys: Vec::new(),
            remote_files: Vec::new(),
            remote_archives: Vec::new(),
            files: Vec::new(),
            archives: Vec::new(),
        };
        steps.ship(line)?;
        steps.mapper(line)?;
        steps.combiner(line)?;
        steps.reducer(line)?;
        steps.formats(line)?;
        if let Some(count) = line.last("-numReduceTasks") {
            let number: u32 = count
                .parse()
                .map_err(|_| format!("-numReduceTasks {count}: expected a whole number"))?;
            steps.set_key("mapred.reduce.tasks", number);
        }
        if line.last("-reducer") == Some(NONE) {
            steps.set_key("mapred.reduce.tasks", 0);
        }
        for (option, key) in [
            ("-mapdebug", "mapred.map.task.debug.script"),
            ("-reducedebug", "mapred.reduce.task.debug.script"),
        ] {
            if let Some(script) = line.last(option) {
                steps.set_key(key, script);
            }
        }
        let variables: Vec<&str> = line.all("-cmdenv").collect();
        if let Some(wrong) = variables.iter().find(|it| !it.contains('=')) {
            return Err(format!("-cmdenv {wrong}: expected <n>=<v>"));
        }
        if !variables.is_empty() {
            steps.set_key("stream.addenvironment", variables.join(" "));
        }
        Ok(steps)
    }

    /// Sets the keys of a job, over those of its configuration.
    pub(super) fn set(&self, conf: &mut JobConf) {
        // A job without a name has that of its mapper, as others of this program.
        if conf.get("mapred.job.name").is_none() {
            conf.set("mapred.job.name", "streamjob");
        }
        for (key, value) in &self.keys {
            conf.set(key, value);
        }
        for key in ["mapred.partitioner.class", "mapred.output.key.comparator.class"] {
            if let Some(class) = conf.get(key) {
                conf.set(key, class_of_this_version(&class));
            }
        }
        conf::add(conf, "mapred.cache.files", &self.remote_files);
        conf::add(conf, "mapred.cache.archives", &self.remote_archives);
    }

    fn set_key(&mut self, key: &'static str, value: impl ToString) {
        self.keys.push((key, value.to_string()));
    }

    fn mapper(&mut self, line: &Line) -> Result<(), String> {
        match line.last("-mapper") {
            None | Some(IDENTITY_MAPPER) => self.set_key("corona.task.mapper", "cat"),
            Some(command) => {
                let command = self.command("-mapper", command, line)?;
                self.set_key("mapred.mapper.class", format!("{STREAMING}PipeMapper"));
                self.set_key("mapred.map.runner.class", format!("{STREAMING}PipeMapRunner"));
                self.set_key("stream.map.streamprocessor", encoded(&command));
            }
        }
        Ok(())
    }

    fn combiner(&mut self, line: &Line) -> Result<(), String> {
        if let Some(command) = line.last("-combiner") {
            let command = self.command("-combiner", command, line)?;
            self.set_key("mapred.combiner.class", format!("{STREAMING}PipeCombiner"));
            self.set_key("stream.combine.streamprocessor", encoded(&command));
        }
        Ok(())
    }

    fn reducer(&mut self, line: &Line) -> Result<(), String> {
        match line.last("-reducer") {
            None | Some(IDENTITY_REDUCER) => self.set_key("mapred.reducer.class", IDENTITY_REDUCER),
            Some(NONE) => {}
            Some(name) if name.eq_ignore_ascii_case(AGGREGATE) => {
                self.set_key("corona.task.combiner", AGGREGATE);
                self.set_key("corona.task.reducer", AGGREGATE);
            }
            Some(command) => {
                let command = self.command("-reducer", command, line)?;
                self.set_key("mapred.reducer.class", format!("{STREAMING}PipeReducer"));
                self.set_key("stream.reduce.streamprocessor", encoded(&command));
            }
        }
        Ok(())
    }

    fn formats(&mut self, line: &Line) -> Result<(), String> {
        if let Some(format) = line.last("-inputformat") {
            let class = class_of(
                format,
                "TextInputFormat",
                &[
                    "KeyValueTextInputFormat",
                    "lib.NLineInputFormat",
                    "SequenceFileInputFormat",
                    "SequenceFileAsTextInputFormat",
                ],
            )
            .ok_or_else(|| needs_java("-inputformat", format))?;
            self.set_key("mapred.input.format.class", class);
        }
        if let Some(format) = line.last("-outputformat") {
            let class = class_of(format, "TextOutputFormat", &["SequenceFileOutputFormat"])
                .ok_or_else(|| needs_java("-outputformat", format))?;
            self.set_key("mapred.output.format.class", class);
        }
        if let Some(class) = line.last("-partitioner") {
            self.set_key("mapred.partitioner.class", class_of_this_version(class));
        }
        Ok(())
    }

    /// The command of a step. A program that `-file` names by its path is in the working directory of tasks.
    fn command(&self, option: &str, command: &str, line: &Line) -> Result<String, String> {
        let command = command.trim();
        if command.is_empty() {
            return Err(format!("{option}: expected a command"));
        }
        if is_class(command) && !self.files.iter().any(|file| file.name == command) {
            return Err(needs_java(option, command));
        }
        let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let real = |path: &str| Path::new(path).canonicalize().ok();
        let is_shipped = real(program).is_some_and(|program| {
            program.is_file() && line.all("-file").any(|file| real(file).as_ref() == Some(&program))
        });
        let name = Path::new(program).file_name().and_then(|name| name.to_str());
        Ok(match name.filter(|_| is_shipped) {
            Some(name) if arguments.is_empty() => name.to_owned(),
            Some(name) => format!("{name} {arguments}"),
            None => command.to_owned(),
        })
    }

    /// The files that the options name.
    fn ship(&mut self, line: &Line) -> Result<(), String> {
        for file in line.all("-file") {
            self.ship_file(Path::new(file))?;
        }
        let generic = &line.generic;
        for uri in generic.files.iter().map(String::as_str).chain(line.all("-cacheFile")) {
            match local(uri, false)? {
                Ok(file) => self.files.push(file),
                Err(remote) => self.remote_files.push(remote),
            }
        }
        for uri in generic.archives.iter().map(String::as_str).chain(line.all("-cacheArchive")) {
            match local(uri, true)? {
                Ok(archive) => self.archives.push(archive),
                Err(remote) => self.remote_archives.push(remote),
            }
        }
        let all = [&self.files[..], &self.archives[..]].concat();
        match conf::same_name(&all) {
            Some((one, other)) if one.path != other.path => Err(format!(
                "{} and {} both have the name {:?} in the working directory of tasks; name one of them \
                 with #NAME",
                one.path.display(),
                other.path.display(),
                one.name
            )),
            Some(_) => {
                self.files.dedup();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A file of `-file`; of a directory, what it has.
    fn ship_file(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let paths: Vec<PathBuf> = match path.is_dir() {
            false => vec![path.to_owned()],
            true => {
                let entries =
                    std::fs::read_dir(path).map_err(|error| format!("-file {shown}: {error}"))?;
                let paths = entries.map(|entry| entry.map(|entry| entry.path()));
                paths
                    .collect::<Result<_, _>>()
                    .map_err(|error| format!("-file {shown}: {error}"))?
            }
        };
        for path in paths {
            let text = path.display().to_string();
            let file = conf::parse_file(&text).map_err(|wrong| format!("-file {text}: {wrong}"))?;
            if !self.files.contains(&file) {
                self.files.push(file);
            }
        }
        Ok(())
    }
}

/// A file of this machine, or the URI of another one with the name of its link.
fn local(uri: &str, is_archive: bool) -> Result<Result<ShippedFile, String>, String> {
    let text = uri.strip_prefix("file://").or(uri.strip_prefix("file:")).unwrap_or(uri);
    if text.contains("://") {
        let name = text.rsplit('/').next().unwrap_or_default();
        let remote = if text.contains('#') { text.to_owned() } else { format!("{text}#{name}") };
        return Ok(Err(remote));
    }
    let parse = if is_archive { conf::parse_archive } else { conf::parse_file };
    let file = parse(text).map_err(|wrong| format!("{uri}: {wrong}"))?;
    match file.path.exists() {
        true => Ok(Ok(file)),
        false => Err(format!("File {uri} does not exist.")),
    }
}

/// The class of a format by its whole or its simple name.
fn class_of(name: &str, default: &str, others: &[&str]) -> Option<String> {
    let simple = name.strip_prefix(MAPRED).unwrap_or(name);
    (simple == default || others.contains(&simple)).then(|| format!("{MAPRED}{simple}"))
}

fn needs_java(option: &str, class: &str) -> String {
    format!("{option} {class}: the class needs Java; the original's hadoop jar runs it")
}

/// Whether a command is the name of a class of Java rather than that of a program.
fn is_class(command: &str) -> bool {
    let parts: Vec<&str> = command.split('.').collect();
    let is_name = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
    };
    let starts_large = |part: &&str| part.starts_with(|c: char| c.is_ascii_uppercase());
    parts.len() > 2 && parts.iter().all(is_name) && parts.last().is_some_and(starts_large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::hadoop::generic::Generic;

    fn steps(words: &[&str]) -> Result<Vec<String>, String> {
        let words = ["-input", "i", "-output", "o"].iter().chain(words);
        let line = Line::of(Generic::default(), words.map(|word| (*word).to_owned()).collect())?;
        let steps = Steps::of(&line)?;
        Ok(steps.keys.iter().map(|(key, value)| format!("{key}={value}")).collect())
    }

    #[test]
    fn commands_become_programs_and_classes_are_known() {
        let found = steps(&["-mapper", "sed -e 's/a b/c/'", "-reducer", "NONE"]).unwrap();
        assert!(found.contains(&"stream.map.streamprocessor=sed+-e+%27s%2Fa+b%2Fc%2F%27".into()));
        assert!(found.contains(&"mapred.reduce.tasks=0".into()), "{found:?}");
        let found = steps(&["-mapper", IDENTITY_MAPPER, "-reducer", "aggregate"]).unwrap();
        assert!(found.contains(&"corona.task.mapper=cat".into()), "{found:?}");
        assert!(found.contains(&"corona.task.reducer=aggregate".into()), "{found:?}");
        for (words, expected) in [
            (&["-mapper", "org.x.My"][..], "-mapper org.x.My: the class needs Java"),
            (&["-inputformat", "org.x.My"], "-inputformat org.x.My: the class needs Java"),
            (&["-outputformat", "SequenceFileAsBinaryOutputFormat"], "-outputformat SequenceFileA"),
            (&["-numReduceTasks", "many"], "-numReduceTasks many: expected a whole number"),
            (&["-cmdenv", "A"], "-cmdenv A: expected <n>=<v>"),
            (&["-cacheFile", "/none/x"], "File /none/x does not exist."),
        ] {
            let wrong = steps(words).unwrap_err();
            assert!(wrong.starts_with(expected), "{words:?}: {wrong}");
        }
    }

    #[test]
    fn programs_that_are_shipped_are_in_the_working_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map.py");
        std::fs::write(&path, "x").unwrap();
        let path = path.to_str().unwrap();
        let mapper = format!("{path} -v 1");
        let found = steps(&["-mapper", &mapper, "-file", path]).unwrap();
        assert!(found.contains(&"stream.map.streamprocessor=map.py+-v+1".into()), "{found:?}");
    }

    #[test]
    fn files_elsewhere_stay_where_they_are() {
        let remote = |uri| local(uri, false).unwrap().unwrap_err();
        assert_eq!(remote("hdfs://nn:8020/a/b.txt"), "hdfs://nn:8020/a/b.txt#b.txt");
        assert_eq!(remote("hdfs://nn:8020/a/b.txt#c"), "hdfs://nn:8020/a/b.txt#c");
    }
}
