//! The counters of a job in a few lines: what it read and wrote, its attempts and its time.

use corona::model::text::grouped;

use super::Counter;

/// Groups of counters of the original.
pub(super) const TASK: &str = "org.apache.hadoop.mapred.Task$Counter";
pub(super) const JOB: &str = "org.apache.hadoop.mapred.JobInProgress$Counter";

/// The lines of a summary; empty if no counter of them is known.
pub(in crate::commands) fn summary(counters: &[Counter], seconds: Option<f64>) -> String {
    let value = |group: &str, name: &str| {
        let found = counters.iter().find(|counter| counter.group == group && counter.name == name);
        found.map(|counter| counter.value)
    };
    let records = |line: &str, records: &str, bytes: &str| {
        let (records, bytes) = (value(TASK, records), value(TASK, bytes));
        let parts = [(records, "record"), (bytes, "byte")];
        let parts = parts.iter().filter_map(|(count, unit)| Some(units((*count)?, unit)));
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| format!("{line:<13} {}\n", parts.join(", ")))
    };
    let attempts = |line: &str, launched: &str, failed: &str| {
        let launched = value(JOB, launched)?;
        let failed = value(JOB, failed).filter(|failed| *failed > 0);
        // The original counts attempts that were launched, and tasks that failed.
        let failed = failed.map(|failed| format!(", {} failed", units(failed, "task")));
        let failed = failed.unwrap_or_default();
        Some(format!("{line:<13} {} launched{failed}\n", units(launched, "attempt")))
    };
    let slots = |name: &str| Some(value(JOB, name)? as f64 / 1000.0);
    let times = [
        (seconds, "s"),
        (slots("SLOTS_MILLIS_MAPS"), "s in slots of maps"),
        (slots("SLOTS_MILLIS_REDUCES"), "s in slots of reduces"),
    ];
    let times = times.iter().filter_map(|(time, what)| Some(format!("{:.1} {what}", (*time)?)));
    let times: Vec<String> = times.collect();
    let time = (!times.is_empty()).then(|| format!("{:<13} {}\n", "time", times.join(", ")));
    // Without reduces, what maps write is the output.
    let has_reduces = value(JOB, "TOTAL_LAUNCHED_REDUCES").is_some_and(|count| count > 0);
    let output = match has_reduces {
        true => records("output", "REDUCE_OUTPUT_RECORDS", ""),
        false => None,
    };
    let lines = [
        records("map input", "MAP_INPUT_RECORDS", "MAP_INPUT_BYTES"),
        records("map output", "MAP_OUTPUT_RECORDS", "MAP_OUTPUT_BYTES"),
        has_reduces
            .then(|| records("shuffle", "REDUCE_INPUT_RECORDS", "REDUCE_SHUFFLE_BYTES"))
            .flatten(),
        output,
        attempts("maps", "TOTAL_LAUNCHED_MAPS", "NUM_FAILED_MAPS"),
        attempts("reduces", "TOTAL_LAUNCHED_REDUCES", "NUM_FAILED_REDUCES"),
        time,
    ];
    lines.into_iter().flatten().collect()
}

/// Whether maps had records, and the job has written none: its programs may not do what was meant.
pub(in crate::commands) fn wrote_nothing(counters: &[Counter]) -> bool {
    let value = |group: &str, name: &str| {
        let found = counters.iter().find(|counter| counter.group == group && counter.name == name);
        found.map_or(0, |counter| counter.value)
    };
    let output = match value(JOB, "TOTAL_LAUNCHED_REDUCES") {
        0 => "MAP_OUTPUT_RECORDS",
        _ => "REDUCE_OUTPUT_RECORDS",
    };
    value(TASK, "MAP_INPUT_RECORDS") > 0 && value(TASK, output) == 0
}

/// `1 record`, `1,234 records`.
fn units(count: i64, unit: &str) -> String {
    let sign = if count < 0 { "-" } else { "" };
    let plural = if count == 1 { "" } else { "s" };
    format!("{sign}{} {unit}{plural}", grouped(count.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(group: &str, name: &str, value: i64) -> Counter {
        let text = String::from;
        Counter {
            group: text(group),
            group_name: text(group),
            name: text(name),
            display_name: text(name),
            value,
        }
    }

    #[test]
    fn a_summary_has_what_was_read_written_and_tried() {
        let all = [
            counter(TASK, "MAP_INPUT_RECORDS", 1_234_567),
            counter(TASK, "MAP_INPUT_BYTES", 12),
            counter(TASK, "MAP_OUTPUT_RECORDS", 5),
            counter(TASK, "REDUCE_INPUT_RECORDS", 5),
            counter(TASK, "REDUCE_SHUFFLE_BYTES", 70),
            counter(TASK, "REDUCE_OUTPUT_RECORDS", 3),
            counter(JOB, "TOTAL_LAUNCHED_MAPS", 4),
            counter(JOB, "NUM_FAILED_MAPS", 1),
            counter(JOB, "TOTAL_LAUNCHED_REDUCES", 2),
            counter(JOB, "SLOTS_MILLIS_MAPS", 1_500),
            counter("own", "MAP_INPUT_RECORDS", 9),
        ];
        let expected = "\
map input     1,234,567 records, 12 bytes
map output    5 records
shuffle       5 records, 70 bytes
output        3 records
maps          4 attempts launched, 1 task failed
reduces       2 attempts launched
time          2.3 s, 1.5 s in slots of maps
";
        assert_eq!(summary(&all, Some(2.345)), expected);
        assert_eq!(summary(&all[..2], None), "map input     1,234,567 records, 12 bytes\n");
        assert_eq!(summary(&[], None), "");
    }

    #[test]
    fn one_record_is_no_plural() {
        let one = [counter(TASK, "MAP_INPUT_RECORDS", 1), counter(TASK, "MAP_INPUT_BYTES", 1)];
        assert_eq!(summary(&one, None), "map input     1 record, 1 byte\n");
        assert_eq!(units(-1_234_567, "byte"), "-1,234,567 bytes");
    }

    #[test]
    fn a_job_that_wrote_nothing_is_known() {
        let input = counter(TASK, "MAP_INPUT_RECORDS", 3);
        let reduces = counter(JOB, "TOTAL_LAUNCHED_REDUCES", 1);
        let maps_wrote = |count| counter(TASK, "MAP_OUTPUT_RECORDS", count);
        let reduces_wrote = |count| counter(TASK, "REDUCE_OUTPUT_RECORDS", count);
        for (counters, expected) in [
            (vec![input.clone(), maps_wrote(0)], true),
            (vec![input.clone(), maps_wrote(2)], false),
            (vec![input.clone(), maps_wrote(2), reduces.clone(), reduces_wrote(0)], true),
            (vec![input.clone(), maps_wrote(2), reduces.clone(), reduces_wrote(1)], false),
            (vec![input, reduces], true),
            (vec![maps_wrote(0)], false),
            (vec![], false),
        ] {
            assert_eq!(wrote_nothing(&counters), expected, "{counters:?}");
        }
    }
}
