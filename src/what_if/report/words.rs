//! Numbers and sentences as people read them, the same in text and on the page.

use corona_model::types::Span;

use super::{Check, Comparison, Report, TOLERATED};

/// A time, such as `350 ms`, `4.2 s` or `3 min 5 s`.
pub fn time(ms: f64) -> String {
    match ms {
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 59_950.0 => format!("{:.1} s", ms / 1_000.0),
        ms => Span(ms.round() as i64).to_string(),
    }
}

/// A share of 1, such as `71.2 %`.
pub fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A number with its thousands set apart.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
            share(error)
        ),
        Some(error) => format!(
            "WARNING: with nothing changed, the simulation differs from the recording by up to {}. Do not \
             trust differences between runs that are smaller.",
            share(error)
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
