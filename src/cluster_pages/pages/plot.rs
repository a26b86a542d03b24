//! The plot of the use of slots over the last hour: an area in SVG, with an equivalent sentence.

use std::fmt::Write;
use std::time::Duration;

use maud::{Markup, html};

use crate::history::{SAMPLES, Sample};
use corona_model::types::ResourceType;
use corona_web::units::{Span, class_of};

/// The height of the plot in its own units. Its width is one unit for each sample.
const HEIGHT: f64 = 100.0;

/// The plot for one type. `span` is the time that it covers when there are enough samples.
pub(crate) fn utilisation(kind: ResourceType, samples: &[Sample], span: Duration) -> Markup {
    let percents: Vec<f64> = samples.iter().map(|sample| sample.percent(kind)).collect();
    let span = Span(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)).to_string();
    let title = format!("plot-{}", class_of(kind));
    html! {
        figure.plot.(class_of(kind)) {
            svg viewBox=(format!("0 0 {SAMPLES} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-labelledby=(title) {
                title #(title) { (kind) " slots in use: " (sentence(&percents)) }
                @for quarter in 0..=4 {
                    line.grid x1="0" x2=(SAMPLES) y1=(quarter * 25) y2=(quarter * 25) {}
                }
                @if !percents.is_empty() {
                    path.area d=(area(&percents)) {}
                    path.edge d=(edge(&percents)) {}
                }
            }
            figcaption {
                span { (span) " ago" }
                span.range { (sentence(&percents)) }
                span { "now" }
            }
        }
    }
}

fn sentence(percents: &[f64]) -> String {
    if percents.is_empty() {
        return "no sample yet".to_owned();
    }
    let least = percents.iter().copied().fold(100.0, f64::min);
    let most = percents.iter().copied().fold(0.0, f64::max);
    let mean = percents.iter().sum::<f64>() / percents.len() as f64;
    // Rounded, a little less than nothing would be -0.
    let [least, most, mean] = [least, most, mean].map(|percent| percent.round() + 0.0);
    format!("{least:.0} to {most:.0} %, mean {mean:.0} %")
}

/// Places of the samples, the last one at the right edge.
fn points(percents: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    let first = SAMPLES.saturating_sub(percents.len());
    let y = |percent: &f64| HEIGHT - percent * HEIGHT / 100.0;
    percents.iter().enumerate().map(move |(at, percent)| (first + at, y(percent)))
}

/// A line with steps: each value holds until the next sample.
fn edge(percents: &[f64]) -> String {
    let mut path = String::new();
    for (position, (x, y)) in points(percents).enumerate() {
        // Writing to a string does not fail.
        let _ = match position {
            0 => write!(path, "M{x} {y:.1}h1"),
            _ => write!(path, "V{y:.1}h1"),
        };
    }
    path
}

fn area(percents: &[f64]) -> String {
    let first = SAMPLES.saturating_sub(percents.len());
    format!("{}V{HEIGHT}H{first}Z", edge(percents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_engine::SlotCounts;
    use corona_model::types::{Millis, PerType};

    fn samples(used: &[u64]) -> Vec<Sample> {
        let sample = |(at, used): (usize, &u64)| Sample {
            at: Millis(at as i64),
            slots: PerType::all(SlotCounts { total: 4, used: *used }),
        };
        used.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn the_last_sample_is_at_the_right_edge() {
        let percents = [0.0, 50.0, 100.0];
        assert_eq!(edge(&percents), "M357 100.0h1V50.0h1V0.0h1");
        assert_eq!(area(&percents), "M357 100.0h1V50.0h1V0.0h1V100H357Z");
    }

    #[test]
    fn a_sentence_says_what_the_plot_shows() {
        let span = Duration::from_secs(3600);
        let html = utilisation(ResourceType::Map, &samples(&[1, 2, 6]), span).into_string();
        assert!(html.contains("MAP slots in use: 25 to 100 %, mean 58 %"), "{html}");
        assert!(html.contains("1 h 0 min ago"));
        let html = utilisation(ResourceType::Map, &[], span).into_string();
        assert!(html.contains("no sample yet") && !html.contains("<path"), "{html}");
    }
}
