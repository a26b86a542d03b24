//! The configuration of a job: what the options say, in the keys that native tasks read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use corona::config::JobConf;
use corona::config::keys::{self, Key, Kind, Use};
use corona::mapreduce::native::{KeyField, NativeJob, SortField, Step};
use corona::model::types::SessionPriority;

use super::{OutputCodec, Steps, UsageError, archive};

/// Characters for which a command is given to the shell.
const SHELL: &str = "|&;<>()$`\\\"'*?[]#~=%!{}\n\t";
const TILDE: &str = "a shell replaces ~ by the home directory only at the start of a word and without quotes; write \
                     it so, or the whole name (./~ is a file of that name)";
/// What the name of a built-in step follows.
const BUILT_IN: &str = "builtin:";
const STREAMING: &str = "org.apache.hadoop.streaming.";
/// The keys of the text between the fields of lines.
const SEPARATORS: [&str; 5] = [
    "stream.map.output.field.separator",
    "stream.reduce.output.field.separator",
    "stream.reduce.input.field.separator",
    "map.output.key.field.separator",
    "mapred.textoutputformat.separator",
];

/// A file for the tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShippedFile {
    /// Where it is here.
    pub(super) path: PathBuf,
    /// Its name in the working directory of tasks.
    pub(super) name: String,
}

/// A variable for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    name: String,
    value: String,
}

/// Checks a name of a file or directory.
pub(super) fn parse_uri(text: &str) -> Result<String, String> {
    if text.starts_with('~') {
        return Err(TILDE.to_owned());
    }
    match text.trim().is_empty() {
        true => Err("expected the name of a file or directory".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Reads `FILE[#NAME]` of an archive.
pub(super) fn parse_archive(text: &str) -> Result<ShippedFile, String> {
    let archive = parse_file(text)?;
    match archive::ending(&archive.path) {
        Some(_) => Ok(archive),
        None => Err("expected a .jar, .zip, .tar, .tar.gz or .tgz".to_owned()),
    }
}

/// Reads `FILE[#NAME]`.
pub(super) fn parse_file(text: &str) -> Result<ShippedFile, String> {
    if text.starts_with('~') {
        return Err(TILDE.to_owned());
    }
    let (path, name) = match text.rsplit_once('#') {
        Some((path, name)) => (PathBuf::from(path), Some(name.to_owned())),
        None => (PathBuf::from(text), None),
    };
    let of_path = || path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = name.or_else(of_path).unwrap_or_default();
    // The list of files has commas between them, and the name stands behind a #.
    let is_plain = !name.is_empty() && name != "." && name != "..";
    if !is_plain || name.contains(['/', ',', '#', '%']) || name.chars().any(char::is_control) {
        return Err("expected FILE or FILE#NAME, the name without / , # and %".to_owned());
    }
    Ok(ShippedFile { path, name })
}

/// Checks a command of `--mapper` or `--reducer`.
pub(super) fn parse_command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected a command, or builtin:NAME".to_owned());
    }
    match text.strip_prefix(BUILT_IN) {
        Some(step) if Step::built_in(step).is_none() => {
            Err("there is no such built-in step; expected builtin:cat, builtin:wc, builtin:sort, \
             'builtin:grep TEXT' or 'builtin:sh COMMAND'"
                .to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// Checks a command of `--combiner`.
pub(super) fn parse_combiner(text: &str) -> Result<String, String> {
    let command = parse_command(text)?;
    let step = command.strip_prefix(BUILT_IN).and_then(Step::built_in);
    match step.is_none_or(|step| step.combines()) {
        true => Ok(command),
        false => Err("this built-in step combines nothing; expected builtin:wc, \
                      'builtin:sh COMMAND' or a command"
            .to_owned()),
    }
}

/// Checks a part of a key.
pub(super) fn parse_key_part(text: &str) -> Result<String, String> {
    match SortField::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("expected FIELD[.CHAR][nr][,FIELD[.CHAR][nr]] as sort -k has it, counted from \
                     1, such as 2,2nr"
                .to_owned())
        }
    }
}

/// Checks a text between fields. One that ends a line can stand between none.
pub(super) fn parse_separator(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(['\n', '\r']) {
        true => Err("expected a text without line ends".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Reads `NAME=VALUE`.
pub(super) fn parse_variable(text: &str) -> Result<Variable, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("a name has letters, digits and _ only".to_owned());
    }
    Ok(Variable { name: name.to_owned(), value: value.to_owned() })
}

/// The variables of streaming programs, separated by blanks.
const STREAMING_VARIABLES: &str = "stream.addenvironment";

/// The configuration of a job, and the options that have set its keys.
pub(super) struct Chosen<'a> {
    pub(super) conf: &'a mut JobConf,
    by: BTreeMap<String, &'static str>,
}

impl<'a> Chosen<'a> {
    pub(super) fn new(conf: &'a mut JobConf) -> Chosen<'a> {
        Chosen { conf, by: BTreeMap::new() }
    }

    /// Sets a key as this option says.
    pub(super) fn set(&mut self, option: &'static str, key: &str, value: &str) {
        self.own(option, key);
        self.conf.set(key, value);
    }

    /// The option decides what the key would say, whether or not it sets it.
    fn own(&mut self, option: &'static str, key: &str) {
        self.by.insert(key.to_owned(), option);
    }

    /// Sets the keys of `-D`.
    ///
    /// # Errors
    /// One says something else than an option.
    pub(super) fn override_with(self, settings: &[(String, String)]) -> anyhow::Result<()> {
        for (key, value) in settings {
            if let Some(option) = self.by.get(key)
                && self.conf.get(key).as_ref() != Some(value)
            {
                let wrong = format!("-D {key}={value} contradicts {option}; leave one of them out");
                bail!(UsageError(wrong));
            }
        }
        for (key, value) in settings {
            self.conf.set(key, value);
        }
        Ok(())
    }
}

/// What all jobs have.
pub(super) fn base(conf: &mut JobConf) {
    for (key, value) in [
        ("corona.task.native", "true"),
        ("mapred.create.symlink", "yes"),
        ("mapred.input.format.class", "org.apache.hadoop.mapred.TextInputFormat"),
        ("mapred.output.format.class", "org.apache.hadoop.mapred.TextOutputFormat"),
        ("mapred.output.key.class", "org.apache.hadoop.io.Text"),
        ("mapred.output.value.class", "org.apache.hadoop.io.Text"),
        // Kept apart from what a job reads.
        ("hadoop.job.history.user.location", "none"),
    ] {
        conf.set(key, value);
    }
}

/// What the options of the steps say.
pub(super) fn steps(chosen: &mut Chosen<'_>, steps: &Steps) {
    step(chosen, &MAPPER, Some(&steps.mapper));
    step(chosen, &COMBINER, steps.combiner.as_deref());
    step(chosen, &REDUCER, steps.reducer.as_deref());
    keys_of(chosen, steps);
    for variable in &steps.env {
        set_variable(chosen, variable);
    }
    if let Some(codec) = steps.compress_output {
        let class = match codec {
            OutputCodec::Gzip => "GzipCodec",
            OutputCodec::Deflate => "DefaultCodec",
        };
        let class = format!("org.apache.hadoop.io.compress.{class}");
        chosen.set("--compress-output", "mapred.output.compress", "true");
        chosen.set("--compress-output", "mapred.output.compression.codec", &class);
    }
    if steps.compress_map_output {
        chosen.set("--compress-map-output", "mapred.compress.map.output", "true");
    }
    if steps.skip_bad_records {
        chosen.set("--skip-bad-records", "corona.task.skip.bad.records", "true");
    }
    for (option, key, count) in [
        ("--max-skipped-records", "mapred.skip.map.max.skip.records", steps.max_skipped_records),
        ("--max-skipped-groups", "mapred.skip.reduce.max.skip.groups", steps.max_skipped_groups),
        (
            "--max-failed-maps",
            "mapred.max.map.failures.percent",
            steps.max_failed_maps.map(u32::from),
        ),
    ] {
        if let Some(count) = count {
            chosen.set(option, key, &count.to_string());
        }
    }
}

/// What the options say of fields, keys and their order.
fn keys_of(chosen: &mut Chosen<'_>, steps: &Steps) {
    if let Some(separator) = &steps.separator {
        for key in SEPARATORS {
            chosen.set("--separator", key, separator);
        }
    }
    if let Some(fields) = steps.key_fields {
        let (option, fields) = ("--key-fields", fields.to_string());
        chosen.set(option, "stream.num.map.output.key.fields", &fields);
        // The lines of the reducer keep their form: what follows their first field is a value.
        chosen.set(option, "corona.task.combiner.key.fields", &fields);
    }
    if let Some(fields) = &steps.partition_by {
        let class = "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner";
        chosen.set("--partition-by", "mapred.partitioner.class", class);
        let options = format!("-k{fields}");
        chosen.set("--partition-by", "mapred.text.key.partitioner.options", &options);
    }
    if !steps.sort_by.is_empty() {
        let class = "org.apache.hadoop.mapred.lib.KeyFieldBasedComparator";
        chosen.set("--sort-by", "mapred.output.key.comparator.class", class);
        let parts: Vec<String> = steps.sort_by.iter().map(|part| format!("-k{part}")).collect();
        chosen.set("--sort-by", "mapred.text.key.comparator.options", &parts.join(" "));
    }
}

/// Sets a variable of the programs. Readers of a job's file drop a property without a value, as the
/// original's do, so an empty one is set as streaming does.
fn set_variable(chosen: &mut Chosen<'_>, Variable { name, value }: &Variable) {
    let key = format!("corona.task.env.{name}");
    if !value.is_empty() {
        chosen.set("--env", &key, value);
        return;
    }
    chosen.own("--env", &key);
    chosen.conf.remove(&key);
    let others = chosen.conf.get(STREAMING_VARIABLES).unwrap_or_default();
    let all = format!("{others} {name}=");
    chosen.set("--env", STREAMING_VARIABLES, all.trim_start());
}

/// One of the steps of a job, and the keys that say what it is.
struct Role {
    option: &'static str,
    own_key: &'static str,
    class_key: &'static str,
    class: &'static str,
    program_key: &'static str,
}

const MAPPER: Role = Role {
    option: "--mapper",
    own_key: "corona.task.mapper",
    class_key: "mapred.mapper.class",
    class: "PipeMapper",
    program_key: "stream.map.streamprocessor",
};
const COMBINER: Role = Role {
    option: "--combiner",
    own_key: "corona.task.combiner",
    class_key: "mapred.combiner.class",
    class: "PipeCombiner",
    program_key: "stream.combine.streamprocessor",
};
const REDUCER: Role = Role {
    option: "--reducer",
    own_key: "corona.task.reducer",
    class_key: "mapred.reducer.class",
    class: "PipeReducer",
    program_key: "stream.reduce.streamprocessor",
};

/// What a shell runs for a command, if one does.
pub(super) fn script(command: &str) -> Option<&str> {
    match command.strip_prefix(BUILT_IN) {
        Some(step) => step.trim_start().strip_prefix("sh "),
        None => command.contains(|c| SHELL.contains(c)).then_some(command),
    }
}

fn step(chosen: &mut Chosen<'_>, role: &Role, command: Option<&str>) {
    let Some(command) = command else {
        if role.option == REDUCER.option {
            chosen.conf.set(role.own_key, "cat");
        }
        return;
    };
    for key in [role.own_key, role.class_key, role.program_key] {
        chosen.own(role.option, key);
    }
    if let Some(name) = command.strip_prefix(BUILT_IN) {
        chosen.conf.set(role.own_key, name);
    } else if let Some(script) = script(command) {
        chosen.conf.set(role.own_key, &format!("sh {script}"));
    } else {
        chosen.conf.set(role.class_key, &format!("{STREAMING}{}", role.class));
        // No character of such a command has a meaning in a URL but + and a blank.
        let encoded = command.replace('+', "%2B").replace(' ', "+");
        chosen.conf.set(role.program_key, &encoded);
    }
}

/// Two files or archives for the tasks that would have one name.
pub(super) fn same_name(files: &[ShippedFile]) -> Option<(&ShippedFile, &ShippedFile)> {
    let mut rest = files;
    while let [first, later @ ..] = rest {
        if let Some(other) = later.iter().find(|other| other.name == first.name) {
            return Some((first, other));
        }
        rest = later;
    }
    None
}

/// How many reduces there are.
pub(super) fn reduces(conf: &JobConf) -> u32 {
    let reduces = conf.get("mapred.reduce.tasks");
    reduces.and_then(|text| text.trim().parse().ok()).unwrap_or(1)
}

/// Checks that a job has no more tasks than its configuration allows, as Hadoop's client does.
pub(super) fn check_tasks(conf: &JobConf, maps: usize) -> anyhow::Result<()> {
    let most = conf.get("mapred.jobtracker.maxtasks.per.job");
    let most = most.and_then(|text| text.trim().parse::<i32>().ok()).unwrap_or(-1);
    let tasks = maps.saturating_add(reduces(conf) as usize);
    let is_allowed = most == -1 || usize::try_from(most).is_ok_and(|most| tasks <= most);
    anyhow::ensure!(
        is_allowed,
        "The number of tasks for this job {tasks} exceeds the configured limit {most} \
         (mapred.jobtracker.maxtasks.per.job)"
    );
    Ok(())
}

/// Adds items to a list.
pub(super) fn add(conf: &mut JobConf, key: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let before = conf.get(key).filter(|list| !list.is_empty());
    let all: Vec<&str> =
        before.as_deref().into_iter().chain(items.iter().map(String::as_str)).collect();
    conf.set(key, &all.join(","));
}

/// Checks that native tasks can run the job, and that they do what its options mean.
pub(super) fn check(
    conf: &JobConf,
    steps: &Steps,
    settings: &[(String, String)],
) -> anyhow::Result<()> {
    check_settings(conf, settings).map_err(UsageError)?;
    check_steps(conf, steps).map_err(UsageError)?;
    let job = NativeJob::of(conf).context("the job cannot be run")?;
    check_key_parts(conf, steps, &job).map_err(UsageError)?;
    check_sums(conf, steps, &job).map_err(UsageError)?;
    Ok(())
}

/// Checks that each step that is named runs.
fn check_steps(conf: &JobConf, steps: &Steps) -> Result<(), String> {
    let named = [("--reducer", &steps.reducer), ("--combiner", &steps.combiner)];
    match named.iter().find(|(_, step)| step.is_some()) {
        Some((option, _)) if reduces(conf) == 0 => Err(format!(
            "{option} has no effect without reduces, where the output is what the mappers write; leave it \
             out, or choose one reduce or more with --reduces"
        )),
        _ => Ok(()),
    }
}

/// Checks the settings of jobs among those of `-D` that are numbers, booleans or shares. Tasks would use the
/// default of a key in place of a wrong value, as the original does.
pub(in crate::commands) fn check_settings(
    conf: &JobConf,
    settings: &[(String, String)],
) -> Result<(), String> {
    for (name, value) in settings {
        if SEPARATORS.contains(&name.as_str()) {
            parse_separator(value).map_err(|wrong| format!("-D {name}: {wrong}"))?;
        }
        let of_job = |key: &&Key| matches!(key.usage, Use::Job | Use::JobTracker);
        let Some(key) = keys::find(name).filter(of_job) else { continue };
        let Some(value) = conf.get(key.name) else { continue };
        if value.is_empty() && key.default.is_empty() {
            // It takes out the value of a file.
            continue;
        }
        let wrong = wrong_share(key, &value).or_else(|| wrong_priority(key, &value));
        if let Some(wrong) = wrong.or_else(|| wrong_value(key, &value)) {
            return Err(format!("-D {name}: value {value:?} {wrong}"));
        }
    }
    Ok(())
}

/// Why a text is no share, for the keys that have one. With spills at 0 each record would be one.
fn wrong_share(key: &Key, value: &str) -> Option<String> {
    let least = match key.name {
        name if name == keys::JOB_SORT_SPILL.name => f64::MIN_POSITIVE,
        name if name == keys::JOB_SHUFFLE_INPUT_PERCENT.name => 0.0,
        name if name == keys::JOB_SHUFFLE_MERGE_PERCENT.name => 0.0,
        _ => return None,
    };
    let is_share = value.trim().parse().is_ok_and(|share: f64| share >= least && share <= 1.0);
    let from = if least > 0.0 { "above 0" } else { "from 0" };
    (!is_share).then(|| format!("is no share; expected a number {from} up to 1, such as 0.8"))
}

/// Why a text is no priority of a job.
fn wrong_priority(key: &Key, value: &str) -> Option<String> {
    let is_one = || SessionPriority::ALL.iter().any(|priority| priority.name() == value);
    let names = SessionPriority::ALL.map(SessionPriority::name).join(", ");
    (key.name == keys::JOB_PRIORITY.name && !is_one())
        .then(|| format!("is no priority; expected one of {names}"))
}

/// Checks the priority of a job. A job tracker would take a wrong one for the usual one.
pub(super) fn check_priority(conf: &JobConf) -> Result<(), String> {
    let value = conf.text_if_set(&keys::JOB_PRIORITY).unwrap_or_else(|| "NORMAL".to_owned());
    match wrong_priority(&keys::JOB_PRIORITY, &value) {
        Some(wrong) => Err(format!("{}: value {value:?} {wrong}", keys::JOB_PRIORITY.name)),
        None => Ok(()),
    }
}

/// Why a text is no value of a key, as jobs read it.
fn wrong_value(key: &Key, value: &str) -> Option<String> {
    match key.kind {
        Kind::Boolean if !["true", "false"].contains(&value) => {
            Some("is neither true nor false; expected one of them, in lower case".to_owned())
        }
        _ => key.wrong(value),
    }
}

/// The separator of the parts of a key.
fn key_separator(conf: &JobConf) -> String {
    let separator = conf.get("map.output.key.field.separator");
    separator.filter(|text| !text.is_empty()).unwrap_or_else(|| "\t".to_owned())
}

/// Checks the parts of the key that options name.
fn check_key_parts(conf: &JobConf, steps: &Steps, job: &NativeJob) -> Result<(), String> {
    let sorted = steps.sort_by.iter().map(|part| ("--sort-by", part));
    let partitioned = steps.partition_by.iter().map(|part| ("--partition-by", part));
    let separator = key_separator(conf);
    let fields = key_fields(&separator, job);
    for (option, part) in sorted.chain(partitioned) {
        // With a longer one, the original and native tasks take other parts than those that are named.
        if separator.len() > 1 {
            return Err(format!(
                "{option} {part} cannot be used with the separator {separator:?}; expected a \
                 separator of one byte"
            ));
        }
        let begin = SortField::parse(part).map_or(1, |sorted| sorted.field.begin_field);
        if fields.is_some_and(|fields| begin > fields) {
            return Err(format!("{option} {part} needs --key-fields {begin} or more"));
        }
    }
    Ok(())
}

/// Checks that the built-in step that sums gets all lines of a key together. Parts of keys that are equal
/// do not order them, as in the original.
fn check_sums(conf: &JobConf, steps: &Steps, job: &NativeJob) -> Result<(), String> {
    let option = match (&job.combiner, &job.reducer) {
        (_, Step::Words) => "--reducer",
        (Some(Step::Words), _) => "--combiner",
        _ => return Ok(()),
    };
    let separator = key_separator(conf);
    let fields = match &job.mapper {
        // A word has no blanks in it.
        Step::Words if separator.trim().is_empty() => Some(1),
        _ => key_fields(&separator, job),
    };
    let is_whole = |part: &String| {
        SortField::parse(part).is_some_and(|sorted| {
            let KeyField { begin_field, begin_char, end_field, end_char } = sorted.field;
            let is_last = end_char == 0 && fields.is_some_and(|fields| end_field >= fields);
            (begin_field, begin_char) == (1, 1) && (end_field == 0 || is_last) && !sorted.numeric
        })
    };
    if steps.sort_by.is_empty() || steps.sort_by.iter().any(is_whole) {
        return Ok(());
    }
    Err(format!(
        "{option} {BUILT_IN}wc needs all lines of a key together, but --sort-by compares parts of \
         keys only; add --sort-by 1, which compares whole keys, as the last one"
    ))
}

/// The most fields of a key, as far as the job's options limit them.
fn key_fields(separator: &str, job: &NativeJob) -> Option<usize> {
    // The other built-in steps make keys of lines and words, whatever fields these have.
    let cuts_lines = matches!(job.mapper, Step::Program(_) | Step::Cat);
    let is_same = job.map_lines.output_separator == separator.as_bytes();
    (cuts_lines && is_same).then_some(job.map_lines.key_fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_name_for_tasks() {
        let file =
            |path: &str, name: &str| Ok(ShippedFile { path: path.into(), name: name.to_owned() });
        for (text, expected) in [
            ("map.py", file("map.py", "map.py")),
            ("/a/map.py", file("/a/map.py", "map.py")),
            ("../x#y", file("../x", "y")),
        ] {
            assert_eq!(parse_file(text), expected, "{text}");
        }
        for wrong in ["", "/", "a#", "a#b/c", "a#..", "a,b", "50%"] {
            assert!(parse_file(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_files_with_one_name_are_noticed() {
        let files = |texts: &[&str]| -> Vec<ShippedFile> {
            texts.iter().map(|text| parse_file(text).unwrap()).collect()
        };
        assert_eq!(same_name(&files(&["a/x", "b/y", "b/x#z"])), None);
        let files = files(&["a/x", "b/y", "c/z#x"]);
        assert_eq!(same_name(&files), Some((&files[0], &files[2])));
    }

    #[test]
    fn steps_and_parts_of_keys_are_checked() {
        for right in ["cat", "builtin:cat", "builtin:grep x", "builtin:sh cat; true"] {
            assert_eq!(parse_command(right).as_deref(), Ok(right));
        }
        for wrong in ["", " ", "builtin:", "builtin:awk", "builtin:grep", "builtin:sh"] {
            assert!(parse_command(wrong).unwrap_err().contains("expected "), "{wrong}");
        }
        for right in ["uniq -c", "builtin:wc", "builtin:sh cat"] {
            assert_eq!(parse_combiner(right).as_deref(), Ok(right));
        }
        for wrong in ["", "builtin:cat", "builtin:awk"] {
            assert!(parse_combiner(wrong).unwrap_err().contains("expected "), "{wrong}");
        }
        for right in ["1", "1,2", "2,2nr", "3.2,3.4n"] {
            assert_eq!(parse_key_part(right).as_deref(), Ok(right));
        }
        for wrong in ["", "0", "zz", "1,x", "2 -k3"] {
            assert!(parse_key_part(wrong).unwrap_err().contains("such as 2,2nr"), "{wrong}");
        }
    }

    /// The refusal of a job with these options, if it is refused.
    fn refusal(options: &[&str]) -> Option<String> {
        let steps = Steps::of_line(options);
        let source = corona::config::ClientSource::default();
        let mut conf = source.job_conf().unwrap();
        base(&mut conf);
        super::steps(&mut Chosen::new(&mut conf), &steps);
        check(&conf, &steps, &[]).err().map(|error| error.downcast::<UsageError>().unwrap().0)
    }

    #[test]
    fn settings_do_not_contradict_options() {
        let line = "--mapper cat --separator , --key-fields 2 --sort-by 2 --env A=1 --env EMPTY= \
                    --compress-output --max-failed-maps 5";
        let steps = Steps::of_line(&line.split(' ').collect::<Vec<_>>());
        let check = |key: &str, value: &str| {
            let mut conf = corona::config::ClientSource::default().job_conf().unwrap();
            base(&mut conf);
            let mut chosen = Chosen::new(&mut conf);
            chosen.set("--output", "mapred.output.dir", "file:/new");
            super::steps(&mut chosen, &steps);
            let settings = [(key.to_owned(), value.to_owned())];
            let done = chosen.override_with(&settings);
            done.map(|()| conf.get(key)).map_err(|error| error.downcast::<UsageError>().unwrap().0)
        };
        for (key, value, option) in [
            ("mapred.output.dir", "file:/existing", "--output"),
            ("corona.task.mapper", "wc", "--mapper"),
            ("mapred.mapper.class", "org.example.Mapper", "--mapper"),
            ("stream.map.streamprocessor", "wc", "--mapper"),
            ("map.output.key.field.separator", ";", "--separator"),
            ("stream.num.map.output.key.fields", "3", "--key-fields"),
            ("mapred.text.key.comparator.options", "-k1", "--sort-by"),
            ("corona.task.env.A", "2", "--env"),
            ("corona.task.env.EMPTY", "2", "--env"),
            ("mapred.output.compress", "false", "--compress-output"),
            ("mapred.max.map.failures.percent", "6", "--max-failed-maps"),
        ] {
            let refused = check(key, value).unwrap_err();
            let expected = format!("-D {key}={value} contradicts {option}; leave one of them out");
            assert_eq!(refused, expected);
        }
        for (key, value) in [
            ("mapred.output.dir", "file:/new"),
            ("stream.num.map.output.key.fields", "2"),
            ("corona.task.reducer", "wc"),
            ("mapred.combiner.class", "org.example.Combiner"),
            ("io.sort.mb", "7"),
            ("corona.task.env.B", "2"),
        ] {
            assert_eq!(check(key, value), Ok(Some(value.to_owned())), "{key}");
        }
        let mut conf = corona::config::ClientSource::default().job_conf().unwrap();
        conf.set(STREAMING_VARIABLES, "C=3");
        super::steps(&mut Chosen::new(&mut conf), &steps);
        assert_eq!(conf.get(STREAMING_VARIABLES).as_deref(), Some("C=3 EMPTY="));
        assert_eq!(conf.get("corona.task.env.A").as_deref(), Some("1"));
    }

    #[test]
    fn line_ends_separate_no_fields() {
        for wrong in ["", "\n", "\r", "a\nb"] {
            assert!(parse_separator(wrong).unwrap_err().contains("line ends"), "{wrong:?}");
        }
        assert_eq!(parse_separator("\t"), Ok("\t".to_owned()));
        let conf = corona::config::ClientSource::default().job_conf().unwrap();
        let of_d = [("mapred.textoutputformat.separator".to_owned(), "\n".to_owned())];
        let refused = check_settings(&conf, &of_d).unwrap_err();
        assert!(refused.starts_with("-D mapred.textoutputformat.separator: expected"), "{refused}");
    }

    #[test]
    fn parts_of_keys_need_a_separator_of_one_byte() {
        let with = |separator, option| {
            let fields = ["--mapper", "cat", "--key-fields", "2"];
            refusal(&[&fields[..], &["--separator", separator, option, "2,2"]].concat())
        };
        for option in ["--sort-by", "--partition-by"] {
            let refused = with("::", option).unwrap();
            assert_eq!(
                refused,
                format!(
                    "{option} 2,2 cannot be used with the separator \"::\"; expected a separator \
                     of one byte"
                )
            );
            assert_eq!(with(":", option), None);
        }
        assert_eq!(refusal(&["--mapper", "cat", "--separator", "::"]), None);
    }

    #[test]
    fn parts_of_keys_lie_in_the_key() {
        for (options, expected) in [
            (
                &["cat", "--sort-by", "2,2nr"][..],
                Some("--sort-by 2,2nr needs --key-fields 2 or more"),
            ),
            (
                &["builtin:cat", "--partition-by", "4", "--key-fields", "3"],
                Some("--partition-by 4 needs --key-fields 4 or more"),
            ),
            (
                &["cat", "--sort-by", "1", "--sort-by", "2", "--separator", ","],
                Some("--sort-by 2 needs --key-fields 2 or more"),
            ),
            (&["cat", "--sort-by", "2,2nr", "--key-fields", "2"], None),
            (&["cat", "--partition-by", "1,2"], None),
            // The key is the whole line.
            (&["builtin:sort", "--sort-by", "2,2nr"], None),
        ] {
            let refused = refusal(&[&["--mapper"], options].concat());
            assert_eq!(refused.as_deref(), expected, "{options:?}");
        }
    }

    #[test]
    fn sums_need_an_order_of_whole_keys() {
        let with = |role, parts: &[&str]| {
            let steps = ["--mapper", "builtin:wc", role, "builtin:wc"];
            let parts = parts.iter().flat_map(|part| ["--sort-by", part]);
            refusal(&steps.into_iter().chain(parts).collect::<Vec<_>>())
        };
        for role in ["--reducer", "--combiner"] {
            for parts in [&["1.1,1.1"][..], &["1n"], &["1.2"], &["1,1n"], &["1,1.2"]] {
                let refused = with(role, parts).unwrap();
                assert!(refused.starts_with(&format!("{role} builtin:wc needs")), "{refused}");
            }
            for parts in [&[][..], &["1"], &["1r"], &["1.1,1.1nr", "1"], &["1,1"], &["1,1r"]] {
                assert_eq!(with(role, parts), None, "{parts:?}");
            }
        }
        assert_eq!(refusal(&["--mapper", "builtin:wc", "--sort-by", "1.1,1.1"]), None);
    }

    #[test]
    fn settings_of_jobs_have_values() {
        let check = |name: &str, value: &str| {
            let mut conf = corona::config::ClientSource::default().job_conf().unwrap();
            conf.set(name, value);
            check_settings(&conf, &[(name.to_owned(), value.to_owned())])
        };
        let whole = "is not a whole number; expected";
        let range = "is out of range; expected";
        let share =
            |from: &str| format!("is no share; expected a number {from} up to 1, such as 0.8");
        let boolean = "is neither true nor false; expected one of them, in lower case";
        for (name, value, wrong) in [
            ("mapred.reduce.tasks", "x", format!("{whole} tasks, 0 to 2147483647")),
            ("mapred.reduce.tasks", "-1", format!("{range} tasks, 0 to 2147483647")),
            ("io.sort.mb", "0", format!("{range} MiB, 1 to 2047")),
            ("io.sort.factor", "1", format!("{range} files, 2 to 10000")),
            ("mapred.map.max.attempts", "0", format!("{range} attempts, 1 to 2147483647")),
            ("io.sort.spill.percent", "0", share("above 0")),
            ("mapred.job.shuffle.merge.percent", "NaN", share("from 0")),
            ("mapred.compress.map.output", "TRUE", boolean.to_owned()),
            (
                "mapred.job.priority",
                "high",
                "is no priority; expected one of VERY_LOW, LOW, NORMAL, HIGH, VERY_HIGH".to_owned(),
            ),
            ("corona.job.map.cpus", "0", format!("{range} CPUs, 1 to 1024")),
            ("corona.job.reduce.cpus", "many", format!("{whole} CPUs, 1 to 1024")),
            ("corona.job.map.disk.gb", "-1", format!("{range} GB, 1 to 2147483647")),
            ("corona.job.reduce.network.mbps", "40000", format!("{range} MB/s, 1 to 32767")),
            ("mapred.job.map.memory.mb", "2g", format!("{whole} MiB, -1 to 1099511627776")),
        ] {
            let refused = check(name, value).unwrap_err();
            assert_eq!(refused, format!("-D {name}: value {value:?} {wrong}"));
        }
        for (name, value) in [
            ("mapred.reduce.tasks", "3"),
            ("io.sort.spill.percent", "1"),
            ("mapred.job.shuffle.input.buffer.percent", "0"),
            ("mapred.compress.map.output", "true"),
            ("mapred.child.ulimit", ""),
            ("corona.task.mapper", "any text"),
            ("own.key", "x"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name} {value}");
        }
    }

    #[test]
    fn variables_have_plain_names() {
        let expected = Variable { name: "A_1".into(), value: "x=y, z".into() };
        assert_eq!(parse_variable("A_1=x=y, z"), Ok(expected));
        for wrong in ["", "A", "=x", "A-B=x", "A B=x"] {
            assert!(parse_variable(wrong).is_err(), "{wrong}");
        }
    }
}
