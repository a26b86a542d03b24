//! Plots as SVG within the page. Colours and fonts are the page's, so that they follow light, dark and print.

use std::fmt::Write as _;

use corona_model::text::escape_markup;

/// A line of a plot.
pub(super) struct Line {
    /// The class that gives it its colour.
    pub(super) class: &'static str,
    pub(super) name: String,
    /// Points in time and value; the times ascend.
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 8.0;
/// Lines at round values.
const STEPS: f64 = 4.0;

/// Values over time, from 0 to a time. `time` and `value` put numbers into words.
pub(super) fn over_time(
    title: &str,
    lines: &[Line],
    until: f64,
    time: impl Fn(f64) -> String,
    value: impl Fn(f64) -> String,
) -> String {
    let all = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let top = round_up(all.fold(0.0, f64::max));
    let x = |at: f64| LEFT + (WIDTH - LEFT) * (at / until.max(1.0)).clamp(0.0, 1.0);
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value / top).clamp(0.0, 1.0));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape_markup(title)
    );
    for step in 0..=STEPS as i32 {
        let at = top * f64::from(step) / STEPS;
        let y = y(at);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            escape_markup(&value(at))
        );
        let at = until * f64::from(step) / STEPS;
        let anchor = if step == STEPS as i32 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            HEIGHT - 6.0,
            escape_markup(&time(at))
        );
    }
    for line in lines {
        let mut path = String::new();
        for (place, (at, value)) in line.points.iter().enumerate() {
            let command = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(*at), y(*value));
        }
        let _ = write!(
            svg,
            "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>",
            line.class,
            escape_markup(&line.name)
        );
    }
    svg + "</svg>"
}

/// The next number of the form 1, 2 or 5 times a power of ten, so that marks are round.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0].into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_path_for_each_line_within_its_frame() {
        let line =
            Line { class: "c0", name: "a<b".to_owned(), points: vec![(0.0, 3.0), (50.0, 7.0)] };
        let svg = over_time("used & due", &[line], 100.0, |at| format!("{at}"), |v| format!("{v}"));
        assert!(svg.contains("aria-label=\"used &amp; due\"") && svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("d=\"M64.0 113.0L392.0 29.0\""), "{svg}");
        assert_eq!(
            [0.0, 0.3, 1.0, 3.0, 41.0, 95.0].map(round_up),
            [1.0, 0.4, 1.0, 4.0, 50.0, 100.0]
        );
    }
}
