//! How a task works: the settings in a job's configuration beyond the definition of its steps.

use std::sync::Arc;
use std::time::Duration;

use corona_config::{JobConf, keys};
use corona_mapreduce::native::NativeJob;

use crate::fetch::ShuffleSettings;
use crate::segment::DataSettings;
use crate::shuffle::RetrySettings;
use crate::spill::SpillSettings;

/// Memory of a reduce whose job names none: the original's `-Xmx200m`.
const DEFAULT_HEAP_BYTES: u64 = 200 << 20;

/// How a task works.
#[derive(Clone, Debug)]
pub(crate) struct TaskSettings {
    /// The largest line, key or value.
    pub(crate) max_record_bytes: usize,
    /// Whether larger lines of the input are skipped.
    pub(crate) skips_bad_records: bool,
    /// Whether the job skips bad records, and a built-in mapper counts those that it has processed.
    pub(crate) counts_records: bool,
    /// The same for the groups of a built-in reducer.
    pub(crate) counts_groups: bool,
    /// What a program may write; 0 for any number of bytes.
    pub(crate) max_output_bytes: u64,
    /// Lines of stderr that become part of the reason of a failure.
    pub(crate) stderr_lines: usize,
    /// Pause between reports.
    pub(crate) report_interval: Duration,
    /// The output of a map.
    pub(crate) spill: SpillSettings,
    /// The shuffle of a reduce.
    pub(crate) shuffle: ShuffleSettings,
}

impl TaskSettings {
    /// The settings in the configuration of a job.
    pub(crate) fn of(conf: &JobConf, job: &NativeJob) -> TaskSettings {
        let number = |key: &keys::Key| {
            conf.number(key).and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
        };
        let count = |key: &keys::Key| usize::try_from(number(key)).unwrap_or(usize::MAX);
        let millis = |key: &keys::Key| Duration::from_millis(number(key));
        let few = |key: &keys::Key| u32::try_from(number(key)).unwrap_or(u32::MAX);
        let max_record_bytes = count(&keys::JOB_MAX_RECORD);
        let data = DataSettings {
            order: Arc::new(job.order.clone()),
            codec: job.map_output_codec,
            factor: count(&keys::JOB_SORT_FACTOR),
            max_record_bytes,
        };
        let sort_bytes = count(&keys::JOB_SORT_MB).saturating_mul(1 << 20);
        let spill_percent = part(conf, &keys::JOB_SORT_SPILL, 0.80);
        let memory_bytes = match number(&keys::JOB_SHUFFLE_MEMORY) {
            0 => heap_bytes(&conf.text(&keys::JOB_JAVA_OPTIONS)).unwrap_or(DEFAULT_HEAP_BYTES),
            bytes => bytes,
        };
        let memory_bytes = of(memory_bytes, part(conf, &keys::JOB_SHUFFLE_INPUT_PERCENT, 0.70));
        TaskSettings {
            max_record_bytes,
            skips_bad_records: conf.is_true(&keys::JOB_SKIP_BAD),
            counts_records: number(&keys::JOB_MAX_SKIPPED_RECORDS) > 0
                && conf.is_true(&keys::JOB_COUNT_RECORDS),
            counts_groups: number(&keys::JOB_MAX_SKIPPED_GROUPS) > 0
                && conf.is_true(&keys::JOB_COUNT_GROUPS),
            max_output_bytes: number(&keys::JOB_MAX_OUTPUT),
            stderr_lines: count(&keys::JOB_STDERR_LINES).min(1000),
            report_interval: millis(&keys::JOB_REPORT_INTERVAL),
            spill: SpillSettings {
                sort_bytes,
                spill_bytes: usize::try_from(of(sort_bytes as u64, spill_percent))
                    .unwrap_or(sort_bytes),
                combine_spills: count(&keys::JOB_COMBINE_SPILLS),
                reduces: job.reduces,
                data: data.clone(),
            },
            shuffle: ShuffleSettings {
                memory_bytes,
                merge_bytes: of(memory_bytes, part(conf, &keys::JOB_SHUFFLE_MERGE_PERCENT, 0.66)),
                connections: count(&keys::JOB_PARALLEL_COPIES),
                connect_timeout: millis(&keys::JOB_SHUFFLE_CONNECT_TIMEOUT),
                read_timeout: millis(&keys::JOB_SHUFFLE_READ_TIMEOUT),
                retries: RetrySettings {
                    report_after: few(&keys::JOB_SHUFFLE_MAX_FAILURES),
                    abort_after: few(&keys::JOB_SHUFFLE_ABORT),
                    pause: millis(&keys::JOB_SHUFFLE_PAUSE),
                },
                poll_interval: Duration::from_millis(
                    conf.get("mapred.event.sleep.ms")
                        .and_then(|ms| ms.trim().parse().ok())
                        .unwrap_or(1000),
                ),
                data,
            },
        }
    }
}

/// A part of something, as a number from 0 to 1; the default if the text is none, which is refused before.
fn part(conf: &JobConf, key: &keys::Key, default: f64) -> f64 {
    let value: Option<f64> = conf.text(key).trim().parse().ok();
    value.filter(|part| (0.0..=1.0).contains(part)).unwrap_or(default)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to `bytes`")]
fn of(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// The size in the first `-Xmx` of Java options.
fn heap_bytes(options: &str) -> Option<u64> {
    let size = options.split_whitespace().find_map(|option| option.strip_prefix("-Xmx"))?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = match size.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(key: &str, value: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        std::fs::write(&path, "<configuration/>").unwrap();
        let site = corona_config::Source::default().load_task_tracker().unwrap().site;
        let mut conf = JobConf::read(&site, &path).unwrap();
        for (key, value) in
            [("corona.task.mapper", "cat"), ("mapred.reduce.tasks", "1"), (key, value)]
        {
            conf.set(key, value);
        }
        format!("{:?}", TaskSettings::of(&conf, &NativeJob::of(&conf).unwrap()))
    }

    #[test]
    fn every_key_of_native_tasks_is_read() {
        for (key, value, expected) in [
            ("corona.task.max.record.bytes", "2048", "max_record_bytes: 2048"),
            ("corona.task.skip.bad.records", "true", "skips_bad_records: true"),
            ("mapred.skip.map.max.skip.records", "1", "counts_records: true"),
            ("mapred.skip.reduce.max.skip.groups", "1", "counts_groups: true"),
            ("mapred.skip.map.auto.incr.proc.count", "true", "counts_records: false"),
            ("mapred.skip.reduce.auto.incr.proc.count", "true", "counts_groups: false"),
            ("corona.task.max.output.bytes", "7", "max_output_bytes: 7"),
            ("corona.task.stderr.lines", "7", "stderr_lines: 7"),
            ("corona.task.report.ms", "7", "report_interval: 7ms"),
            ("io.sort.mb", "7", "sort_bytes: 7340032"),
            ("io.sort.spill.percent", "0.5", "spill_bytes: 52428800"),
            ("io.sort.factor", "7", "factor: 7"),
            ("min.num.spills.for.combine", "7", "combine_spills: 7"),
            ("mapred.reduce.parallel.copies", "7", "connections: 7"),
            ("mapred.child.java.opts", "-Xmx100m", "memory_bytes: 73400320"),
            ("mapred.job.reduce.total.mem.bytes", "1000", "memory_bytes: 700"),
            ("mapred.job.shuffle.input.buffer.percent", "0.5", "memory_bytes: 104857600"),
            ("mapred.job.shuffle.merge.percent", "0.5", "merge_bytes: 73400320"),
            ("mapreduce.reduce.shuffle.connect.timeout", "7", "connect_timeout: 7ms"),
            ("mapreduce.reduce.shuffle.read.timeout", "7", "read_timeout: 7ms"),
            ("mapreduce.reduce.shuffle.maxfetchfailures", "7", "report_after: 7"),
            ("corona.task.shuffle.abort.failures", "7", "abort_after: 7"),
            ("corona.task.shuffle.retry.ms", "7", "pause: 7ms"),
        ] {
            let settings = settings(key, value);
            assert!(settings.contains(expected), "{key}: {settings}");
        }
    }

    #[test]
    fn java_options_say_how_much_memory_there_is() {
        for (options, expected) in [
            ("-Xmx200m", Some(200 << 20)),
            ("-server -Xmx2G -Xss1m -Xmx1m", Some(2 << 30)),
            ("-Xmx1024", Some(1024)),
            ("-Xmx64k", Some(64 << 10)),
            ("-Xmx1x", None),
            ("-Xmxm", None),
            ("", None),
        ] {
            assert_eq!(heap_bytes(options), expected, "{options}");
        }
    }
}
