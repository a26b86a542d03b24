//! A report as a picture: how long things took, up to the rare ones, and how often they happened
//! over time. Plain SVG that every browser shows.

use std::fmt::Write as _;

use super::plan::number;
use super::report::{Report, Timing};

/// Lines of a chart; of more measures, those that were seen most.
const LINES: usize = 8;
/// Colours that remain distinct for colour-blind people.
const COLOURS: [&str; LINES] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8a6d00"];
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 800.0;

/// The plot area of a chart, in pixels.
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// Draws a report.
pub fn svg(report: &Report) -> String {
    let mut measures: Vec<&Timing> = report.measures.iter().collect();
    measures.sort_by_key(|timing| std::cmp::Reverse(timing.count));
    measures.truncate(LINES);
    let seconds = report.measured_ms as f64 / 1_000.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let title = format!("{} on {}, {seconds:.1} s", report.scenario, report.manager);
    text(&mut svg, (20.0, 28.0), "start", "font-size=\"17\" font-weight=\"bold\"", &title);
    for (line, words) in report.plan.iter().take(5).enumerate() {
        text(&mut svg, (20.0, 48.0 + 15.0 * line as f64), "start", "fill=\"#555\"", words);
    }
    let errors: u64 = report.errors.iter().map(|fault| fault.count).sum();
    let verdict = match errors {
        0 => ("#009e73", "all that came back was right".to_owned()),
        errors => ("#c00", format!("{} errors", number(errors))),
    };
    let attributes = format!("fill=\"{}\" font-weight=\"bold\"", verdict.0);
    text(&mut svg, (WIDTH - 20.0, 28.0), "end", &attributes, &verdict.1);
    latencies(&mut svg, &measures, &Area { left: 80.0, top: 160.0, width: 600.0, height: 270.0 });
    rates(
        &mut svg,
        report,
        &measures,
        &Area { left: 80.0, top: 510.0, width: 600.0, height: 230.0 },
    );
    for (line, timing) in measures.iter().enumerate() {
        let y = 170.0 + 34.0 * line as f64;
        let colour = COLOURS[line % LINES];
        let _ = writeln!(
            svg,
            "<line x1=\"700\" y1=\"{y}\" x2=\"724\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>"
        );
        text(&mut svg, (732.0, y + 4.0), "start", "", &name(timing));
        let rate = format!("{} a second", number(timing.per_second.round() as u64));
        text(&mut svg, (732.0, y + 18.0), "start", "fill=\"#777\" font-size=\"11\"", &rate);
    }
    svg + "</svg>\n"
}

/// The share of all on the x axis, each step ten times as rare as the one before; the time on the y
/// axis, each step ten times as long.
fn latencies(svg: &mut String, measures: &[&Timing], area: &Area) {
    let points = |timing: &Timing| timing.percentiles.clone();
    let times = measures.iter().flat_map(|timing| points(timing)).map(|(_, us)| us);
    let times: Vec<f64> = times.filter(|us| *us > 0.0).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let (low, high) = if times.is_empty() {
        (0.0, 1.0)
    } else {
        (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0))
    };
    let y = |us: f64| area.y((us.max(1e-9).log10() - low) / (high - low));
    // 0 is at the median and below it, 1 at 90 %, 2 at 99 % and so on.
    let rarity = |share: f64| -(1.0 - share / 100.0).max(1e-6).log10();
    let x = |share: f64| area.left + area.width * (rarity(share) / 6.0).clamp(0.0, 1.0);
    frame(svg, area, "how long it took, by the share that took no longer");
    for step in low as i32..=high as i32 {
        let us = 10_f64.powi(step);
        grid_line(svg, area, y(us), &time(us));
    }
    for (share, label) in [
        (0.0, "0"),
        (50.0, "50 %"),
        (90.0, "90 %"),
        (99.0, "99 %"),
        (99.9, "99.9 %"),
        (99.99, "99.99 %"),
        (99.999, "99.999 %"),
    ] {
        tick(svg, area, x(share), label);
    }
    for (line, timing) in measures.iter().enumerate() {
        // A value rarer than one in all is the longest; it would be a flat line to the edge.
        let rarest = 100.0 * (1.0 - 1.0 / timing.count.max(1) as f64);
        let told = timing.percentiles.iter().filter(|(share, _)| *share <= rarest);
        let mut path: Vec<(f64, f64)> = told.map(|(share, us)| (x(*share), y(*us))).collect();
        path.push((x(rarest), y(timing.max_us)));
        polyline(svg, line, &path);
    }
}

/// How often each happened in a second, over time.
fn rates(svg: &mut String, report: &Report, measures: &[&Timing], area: &Area) {
    let step = report.timeline.step_ms.max(1) as f64 / 1_000.0;
    let mut names: Vec<&str> = vec![];
    for timing in measures {
        if !names.contains(&timing.name.as_str()) {
            names.push(&timing.name);
        }
    }
    let lines: Vec<(usize, &Vec<u64>)> = names
        .iter()
        .filter_map(|name| {
            let colour = measures.iter().position(|timing| timing.name == **name)?;
            Some((colour, report.timeline.seen.get(*name)?))
        })
        .collect();
    let most = lines.iter().flat_map(|(_, seen)| seen.iter()).max().copied().unwrap_or(0);
    let high = round_up((most as f64 / step).max(1.0));
    let steps = lines.iter().map(|(_, seen)| seen.len()).max().unwrap_or(0).max(2);
    let x = |at: usize| area.left + area.width * at as f64 / (steps - 1) as f64;
    frame(svg, area, "how often it happened in a second, over time");
    for quarter in 0..=4 {
        let rate = high * f64::from(quarter) / 4.0;
        grid_line(svg, area, area.y(rate / high), &number(rate.round() as u64));
    }
    for quarter in 0..=4 {
        let at = (steps - 1) as f64 * step * f64::from(quarter) / 4.0;
        let x = area.left + area.width * f64::from(quarter) / 4.0;
        tick(svg, area, x, &format!("{at:.1} s"));
    }
    for (colour, seen) in lines {
        let points = seen.iter().enumerate();
        let points: Vec<(f64, f64)> =
            points.map(|(at, seen)| (x(at), area.y(*seen as f64 / step / high))).collect();
        polyline(svg, colour, &points);
    }
}

impl Area {
    /// The height of a share of the axis, 0 at the bottom.
    fn y(&self, share: f64) -> f64 {
        self.top + self.height * (1.0 - share.clamp(0.0, 1.0))
    }
}

fn frame(svg: &mut String, area: &Area, title: &str) {
    let Area { left, top, width, height } = area;
    text(svg, (*left, top - 12.0), "start", "font-size=\"13\" font-weight=\"bold\"", title);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" \
         stroke=\"#999\"/>"
    );
}

fn grid_line(svg: &mut String, area: &Area, y: f64, label: &str) {
    let right = area.left + area.width;
    let left = area.left;
    let _ = writeln!(
        svg,
        "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e5e5e5\"/>"
    );
    text(svg, (left - 8.0, y + 4.0), "end", "", label);
}

fn tick(svg: &mut String, area: &Area, x: f64, label: &str) {
    let bottom = area.top + area.height;
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e5e5e5\"/>",
        area.top
    );
    text(svg, (x, bottom + 16.0), "middle", "", label);
}

fn polyline(svg: &mut String, colour: usize, points: &[(f64, f64)]) {
    let colour = COLOURS[colour % LINES];
    let _ = write!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"");
    for (x, y) in points {
        let _ = write!(svg, "{x:.1},{y:.1} ");
    }
    svg.push_str("\"/>\n");
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, attributes: &str, words: &str) {
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {attributes}>");
    for character in words.chars() {
        match character {
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            '&' => svg.push_str("&amp;"),
            other if other.is_control() => svg.push('\u{fffd}'),
            other => svg.push(other),
        }
    }
    svg.push_str("</text>\n");
}

fn name(timing: &Timing) -> String {
    let part = timing.part.as_ref().map(|part| format!("{part} ")).unwrap_or_default();
    part + &timing.name
}

fn time(us: f64) -> String {
    match us {
        us if us < 1.0 => format!("{us} µs"),
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1_000.0),
        us => format!("{:.0} s", us / 1_000_000.0),
    }
}

/// The next of 1, 2, 5, 10, 20, 50, ...
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, FaultKind, Timeline};

    fn report() -> Report {
        let timing = |name: &str, count, max_us| Timing {
            name: name.into(),
            part: None,
            count,
            per_second: 10.0,
            median_us: 20.0,
            percentile_99_us: 30.0,
            percentile_99_9_us: 40.0,
            max_us,
            mean_us: 21.0,
            percentiles: vec![(0.0, 10.0), (50.0, 20.0), (99.0, 30.0), (100.0, max_us)],
        };
        let seen = [("a <b>", vec![1, 2, 3]), ("c", vec![0, 0, 9])];
        Report {
            scenario: "churn & more".into(),
            manager: "127.0.0.1:9090".into(),
            plan: vec!["one line".into()],
            measured_ms: 300,
            measures: vec![timing("a <b>", 200, 99.0), timing("c", 1, 2_000_000.0)],
            counts: Default::default(),
            process: None,
            timeline: Timeline {
                step_ms: 100,
                seen: seen.map(|(name, seen)| (name.into(), seen)).into(),
            },
            errors: vec![],
            stopped_early: false,
        }
    }

    #[test]
    fn a_plot_is_sound_xml_with_a_line_for_each_measure_in_each_chart() {
        let svg = svg(&report());
        let document = roxmltree::Document::parse(&svg).expect("sound XML");
        let count =
            |tag: &str| document.descendants().filter(|node| node.tag_name().name() == tag).count();
        assert_eq!(count("polyline"), 4);
        for words in ["churn &amp; more on 127.0.0.1:9090, 0.3 s", "a &lt;b&gt;", "10 a second"] {
            assert!(svg.contains(words), "{words} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn every_point_lies_in_its_chart() {
        let svg = svg(&report());
        for points in svg.split("points=\"").skip(1) {
            let points = points.split('"').next().unwrap();
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((80.0..=680.0).contains(&x), "{point}");
                assert!((160.0..=430.0).contains(&y) || (510.0..=740.0).contains(&y), "{point}");
            }
        }
    }

    #[test]
    fn nothing_and_errors_can_be_drawn() {
        let fault = Fault { kind: FaultKind::Stalled, count: 1_234, first: String::new() };
        let empty = Report {
            measures: vec![],
            timeline: Timeline::default(),
            measured_ms: 0,
            errors: vec![fault],
            ..report()
        };
        let svg = svg(&empty);
        assert!(roxmltree::Document::parse(&svg).is_ok());
        assert!(svg.contains("1,234 errors") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, round) in
            [(1.0, 1.0), (1.1, 2.0), (4.0, 5.0), (60.0, 100.0), (123_456.0, 200_000.0)]
        {
            assert_eq!(round_up(value), round, "{value}");
        }
    }
}
