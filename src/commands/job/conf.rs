//! The configuration of a job: what the options say, in the keys that native tasks read.

use std::path::PathBuf;

use anyhow::Context;
use corona::config::JobConf;
use corona::config::keys::{self, Key, Kind, Use};
use corona::mapreduce::native::{KeyField, NativeJob, SortField, Step};

use super::{OutputCodec, Steps, UsageError};

/// Characters for which a command is given to the shell.
const SHELL: &str = "|&;<>()$`\\\"'*?[]#~=%!{}\n\t";
/// What the name of a built-in step follows.
const BUILT_IN: &str = "builtin:";
const STREAMING: &str = "org.apache.hadoop.streaming.";

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

/// Reads `FILE[#NAME]`.
pub(super) fn parse_file(text: &str) -> Result<ShippedFile, String> {
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

/// Checks a text that must not be empty.
pub(super) fn parse_separator(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a text".to_owned()) } else { Ok(text.to_owned()) }
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
pub(super) fn steps(conf: &mut JobConf, steps: &Steps) {
    step(conf, "mapper", &steps.mapper);
    if let Some(combiner) = &steps.combiner {
        step(conf, "combiner", combiner);
    }
    step(conf, "reducer", steps.reducer.as_deref().unwrap_or("builtin:cat"));
    let mut set = |key: &str, value: &str| conf.set(key, value);
    if let Some(separator) = &steps.separator {
        for side in ["map", "reduce"] {
            set(&format!("stream.{side}.output.field.separator"), separator);
        }
        set("stream.reduce.input.field.separator", separator);
        set("map.output.key.field.separator", separator);
        set("mapred.textoutputformat.separator", separator);
    }
    if let Some(fields) = steps.key_fields {
        set("stream.num.map.output.key.fields", &fields.to_string());
        // The lines of the reducer keep their form: what follows their first field is a value.
        set("corona.task.combiner.key.fields", &fields.to_string());
    }
    if let Some(fields) = &steps.partition_by {
        set("mapred.partitioner.class", "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner");
        set("mapred.text.key.partitioner.options", &format!("-k{fields}"));
    }
    if !steps.sort_by.is_empty() {
        set(
            "mapred.output.key.comparator.class",
            "org.apache.hadoop.mapred.lib.KeyFieldBasedComparator",
        );
        let parts: Vec<String> = steps.sort_by.iter().map(|part| format!("-k{part}")).collect();
        set("mapred.text.key.comparator.options", &parts.join(" "));
    }
    for Variable { name, value } in &steps.env {
        set(&format!("corona.task.env.{name}"), value);
    }
    if let Some(codec) = steps.compress_output {
        let class = match codec {
            OutputCodec::Gzip => "GzipCodec",
            OutputCodec::Deflate => "DefaultCodec",
        };
        set("mapred.output.compress", "true");
        set("mapred.output.compression.codec", &format!("org.apache.hadoop.io.compress.{class}"));
    }
    if steps.compress_map_output {
        set("mapred.compress.map.output", "true");
    }
    if steps.skip_bad_records {
        set("corona.task.skip.bad.records", "true");
    }
    for (key, count) in [
        ("mapred.skip.map.max.skip.records", steps.max_skipped_records),
        ("mapred.skip.reduce.max.skip.groups", steps.max_skipped_groups),
    ] {
        if let Some(count) = count {
            set(key, &count.to_string());
        }
    }
    if let Some(percent) = steps.max_failed_maps {
        set("mapred.max.map.failures.percent", &percent.to_string());
    }
}

fn step(conf: &mut JobConf, role: &str, command: &str) {
    let key = format!("corona.task.{role}");
    if let Some(name) = command.strip_prefix(BUILT_IN) {
        conf.set(&key, name);
    } else if command.contains(|c| SHELL.contains(c)) {
        conf.set(&key, &format!("sh {command}"));
    } else {
        let (class_key, class, program) = match role {
            "mapper" => ("mapred.mapper.class", "PipeMapper", "map"),
            "combiner" => ("mapred.combiner.class", "PipeCombiner", "combine"),
            _ => ("mapred.reducer.class", "PipeReducer", "reduce"),
        };
        conf.set(class_key, &format!("{STREAMING}{class}"));
        // No character of such a command has a meaning in a URL but + and a blank.
        let encoded = command.replace('+', "%2B").replace(' ', "+");
        conf.set(&format!("stream.{program}.streamprocessor"), &encoded);
    }
}

/// Two files for the tasks that would have one name.
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
    let job = NativeJob::of(conf).context("the job cannot be run")?;
    check_key_parts(conf, steps, &job).map_err(UsageError)?;
    check_sums(conf, steps, &job).map_err(UsageError)?;
    Ok(())
}

/// Checks the settings of jobs among those of `-D` that are numbers, booleans or shares. Tasks would use the
/// default of a key in place of a wrong value, as the original does.
fn check_settings(conf: &JobConf, settings: &[(String, String)]) -> Result<(), String> {
    for (name, _) in settings {
        let of_job = |key: &&Key| matches!(key.usage, Use::Job | Use::JobTracker);
        let Some(key) = keys::find(name).filter(of_job) else { continue };
        let Some(value) = conf.get(key.name) else { continue };
        if value.is_empty() && key.default.is_empty() {
            // It takes out the value of a file.
            continue;
        }
        if let Some(wrong) = wrong_share(key, &value).or_else(|| wrong_value(key, &value)) {
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
        #[derive(clap::Parser)]
        struct Options {
            #[command(flatten)]
            steps: Steps,
        }
        let parsed = <Options as clap::Parser>::try_parse_from([&["test"], options].concat());
        let steps = parsed.unwrap().steps;
        let source = corona::config::ClientSource::default();
        let mut conf = source.job_conf().unwrap();
        base(&mut conf);
        super::steps(&mut conf, &steps);
        check(&conf, &steps, &[]).err().map(|error| error.downcast::<UsageError>().unwrap().0)
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
