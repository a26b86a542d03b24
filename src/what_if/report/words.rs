//! Numbers and sentences as people read them, the same in text and on the page.

pub use corona_model::text::grouped as number;
use corona_model::types::Span;

use super::{Check, Comparison, Report, TOLERATED};
use crate::measure::{LackResult, ResourceResult, Run};

/// A time, such as `350 ms`, `4.2 s` or `3 min 5 s`.
pub fn time(ms: f64) -> String {
    match ms {
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 59_950.0 => format!("{:.1} s", ms / 1_000.0),
        ms => Span(ms.round() as i64).to_string(),
    }
}

/// A time in at most 7 characters, such as `350ms`, `4.2s`, `3m05s` or `7d02h`.
pub fn short_time(ms: f64) -> String {
    let seconds = (ms / 1_000.0).round() as u64;
    match seconds {
        _ if ms < 999.5 => format!("{ms:.0}ms"),
        _ if ms < 59_950.0 => format!("{:.1}s", ms / 1_000.0),
        ..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// What a run did not do, as sentences.
pub fn undone(run: &Run) -> Vec<String> {
    let of = &run.cluster;
    if let Some(at_ms) = run.stopped_at_ms {
        let open = number(of.unfinished);
        let at = time(at_ms as f64);
        return vec![format!(
            "{}: it was stopped at {at}, before the end of {open} sessions.",
            run.name
        )];
    }
    let lines = [
        (of.unserved, "requests were never served"),
        (of.unfinished, "sessions did not end"),
        (of.refused, "sessions could not start, for instance because their pool may not be used"),
        (of.late, "sessions ended after their deadline"),
    ];
    let kept = of.reservations.filter(|kept| kept.made > 0 || kept.rooms > 0).map(|kept| {
        format!(
            "{}: nodes were reserved {} times; {} of the requests were served there, and {} reservations took too long. \
             For {} requests room was made by preemption.",
            run.name,
            number(kept.made),
            number(kept.served),
            number(kept.expired),
            number(kept.rooms)
        )
    });
    let some = lines.into_iter().filter(|(count, _)| *count > 0);
    let some = some.map(|(count, what)| format!("{}: {} {what}.", run.name, number(count)));
    some.chain(kept).collect()
}

/// What requests that waited lacked, such as `memory 82 %, slots 18 %`.
pub fn lacks(lacks: &[LackResult]) -> String {
    let each = lacks.iter().filter(|lack| lack.share >= 0.005);
    let each = each.map(|lack| format!("{} {:.0} %", lack.of, lack.share * 100.0));
    each.collect::<Vec<_>>().join(", ")
}

/// What the words of [`lacks`] mean.
pub const LACKS: &str = "what a node needs more of so that the requests fit, as a share of the time for which they wait; \
                         several: of more than one; reserved: nodes are kept for others; other: they fit, and wait for \
                         limits, their turn or locality";

/// The most that is free on one node, on average.
pub fn largest(of: &ResourceResult) -> String {
    of.resource.short(of.largest.round() as u64)
}

/// A share of 1, such as `71.2 %`.
pub fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// By how much a figure is wrong. Beyond ten times, it does not matter by how much.
pub fn error(part: f64) -> String {
    if part > 10.0 { "more than 1,000 %".to_owned() } else { share(part) }
}

/// The workload in a line.
pub fn workload(report: &Report) -> String {
    format!(
        "{}, {} sessions, {} tasks, {} nodes",
        Span(report.until_ms),
        number(report.sessions as u64),
        number(report.tasks as u64),
        number(report.nodes as u64)
    )
}

/// The verdict of the check.
pub fn verdict(check: &Check) -> String {
    match check.error {
        None => "The input has no times of its own, so it is not known how true the simulation is."
            .to_owned(),
        Some(error) if error <= TOLERATED => format!(
            "With nothing changed, the simulation comes out as recorded, within {}.",
            self::error(error)
        ),
        Some(error) => format!(
            "WARNING: with nothing changed, the simulation differs from the recording by up to {}. Do not \
             trust differences between runs that are smaller.",
            self::error(error)
        ),
    }
}

/// A figure of the check.
pub fn figure(unit: &str, value: f64) -> String {
    if unit == "ms" { time(value) } else { share(value) }
}

/// How sessions fare in a run.
pub fn comparison(comparison: &Comparison) -> String {
    let Comparison { name, faster, slower, same, median, .. } = comparison;
    format!(
        "{name}: {} sessions faster, {} slower, {} as before; in the middle they take {} of the time.",
        number(*faster as u64),
        number(*slower as u64),
        number(*same as u64),
        share(*median)
    )
}
