//! A report as a text of 80 columns.

use corona::load::{Fault, ProcessUse, Report, Timing, number};

use corona_terminal::console::{Console, printable};
use corona_terminal::table::{Column, Table, Tone};

/// Writes the report. The most important lines come last, where a reader looks
/// first.
pub(super) fn text(report: &Report, console: &Console<'_>) -> String {
    let seconds = report.measured_ms as f64 / 1_000.0;
    let early = if report.stopped_early { ", stopped early" } else { "" };
    let mut text = format!(
        "{} on {}, {seconds:.1} s measured{early}\n\n",
        printable(&report.scenario),
        printable(&report.manager)
    );
    if !report.measures.is_empty() {
        text += &timings(&report.measures, console);
    }
    if !report.counts.is_empty() {
        text.push('\n');
        for (name, count) in &report.counts {
            text += &format!("{:>15}  {}\n", number(*count), printable(name));
        }
    }
    if let Some(process) = &report.process {
        text += &format!("\n{}\n", process_text(process, seconds));
    }
    text.push('\n');
    text += &verdict(&report.errors, console);
    text
}

fn timings(timings: &[Timing], console: &Console<'_>) -> String {
    let mut table = Table::new(&[
        Column::text("WHAT", 12),
        Column::number("COUNT"),
        Column::number("PER S"),
        Column::number("MEDIAN"),
        Column::number("99%"),
        Column::number("99.9%"),
        Column::number("MAX"),
    ]);
    for timing in timings {
        let name = match &timing.part {
            Some(part) => format!("{part} {}", timing.name),
            None => timing.name.clone(),
        };
        table.row([
            name.into(),
            number(timing.count).into(),
            number(timing.per_second.round() as u64).into(),
            time(timing.median_us).into(),
            time(timing.percentile_99_us).into(),
            time(timing.percentile_99_9_us).into(),
            time(timing.max_us).into(),
        ]);
    }
    table.render(console, false)
}

fn process_text(process: &ProcessUse, seconds: f64) -> String {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "cluster manager: {:.2} of a processor, {:.0} MiB, at most {:.0} MiB, {} threads",
        process.cpu_seconds / seconds.max(1e-9),
        megabytes(process.resident_bytes),
        megabytes(process.peak_resident_bytes),
        process.threads,
    )
}

fn verdict(errors: &[Fault], console: &Console<'_>) -> String {
    if errors.is_empty() {
        return "All responses were correct.\n".into();
    }
    let mut text = String::new();
    for Fault { kind, count, first } in errors {
        let head = format!("ERROR: {} {}", number(*count), kind.text());
        text += &Tone::Bad.paint(&head, console.colours);
        text += &format!("\n  first: {}\n", printable(first));
    }
    text
}

/// A time with three digits.
pub(super) fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1_000.0, "ms"),
        us => (us / 1_000_000.0, "s"),
    };
    let places = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.places$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (us, shown) in [
            (0.5, "0.50 µs"),
            (9.994, "9.99 µs"),
            (9.996, "10.0 µs"),
            (123.4, "123 µs"),
            (999.6, "1.00 ms"),
            (1_234.0, "1.23 ms"),
            (99_960.0, "100 ms"),
            (999_600.0, "1.00 s"),
            (65_000_000.0, "65.0 s"),
        ] {
            assert_eq!(time(us), shown, "{us}");
        }
    }
}
