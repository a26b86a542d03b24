//! Shapes in SVG: the tasks of a job as a heat map, and its attempts over time. What they show stands
//! beside them as text.

use std::fmt::Write as _;

use corona_mapreduce::{JobId, TaskKind};
use corona_model::types::Millis;
use corona_web::units::{Clock, Count};
use maud::{Markup, html};

use super::{STANDINGS, kind_name, standing_name, task_path};
use crate::pages::time_line::{LINES, PIECES, TimeLine};
use corona_job_engine::{TaskOutline, TaskStanding};

/// Cells in a row of a heat map, and all of them.
const ACROSS: usize = 50;
const MOST_CELLS: usize = 500;
/// The side of a cell, with its gap.
const SIDE: usize = 10;

/// The tasks of a kind: a cell for each, or for a few neighbours where there are many.
pub(in super::super) fn heat_map(job: &JobId, kind: TaskKind, tasks: &[&TaskOutline]) -> Markup {
    let each = tasks.len().div_ceil(MOST_CELLS).max(1);
    let cells: Vec<&[&TaskOutline]> = tasks.chunks(each).collect();
    let rows = cells.len().div_ceil(ACROSS).max(1);
    let title = format!("heat-{}", kind_name(kind));
    html! {
        svg.heat.(kind_name(kind)) viewBox=(format!("0 0 {} {}", ACROSS * SIDE, rows * SIDE))
            role="img" aria-labelledby=(title) {
            title #(title) { "Tasks by state: " (sentence(tasks)) }
            @for (at, cell) in cells.iter().enumerate() { (square(job, at, cell)) }
        }
        @if each > 1 { p.note { "Each square is " (Count(each)) " tasks." } }
    }
}

fn square(job: &JobId, at: usize, tasks: &[&TaskOutline]) -> Markup {
    let Some(first) = tasks.first() else { return html! {} };
    let worst = |task: &&&TaskOutline| match task.standing {
        TaskStanding::Complete => 0,
        TaskStanding::Killed => 1,
        TaskStanding::Pending => 2,
        TaskStanding::Running => 3,
        TaskStanding::Failed => 4,
    };
    let standing = tasks.iter().max_by_key(worst).map_or(first.standing, |task| task.standing);
    let had_failures = tasks.iter().any(|task| task.failed > 0);
    let mean = tasks.iter().map(|task| f64::from(task.progress)).sum::<f64>() / tasks.len() as f64;
    let name = job.task(first.task);
    let label = match tasks {
        [task] => format!(
            "{name}: {}, {}{}",
            standing_name(task.standing),
            super::percent(task.progress),
            if task.failed > 0 {
                format!(", {} failed attempts", task.failed)
            } else {
                String::new()
            }
        ),
        many => format!("{} tasks from {name} on: {}", many.len(), sentence(many)),
    };
    let (x, y) = (at % ACROSS * SIDE, at / ACROSS * SIDE);
    let side = SIDE - 1;
    // A running one is the fuller, the further it is.
    let opacity = format!("{:.2}", 0.25 + 0.75 * mean.clamp(0.0, 1.0));
    html! {
        a href=(task_path(job, &name)) tabindex="-1" data-key=(at) {
            rect.ground x=(x) y=(y) width=(side) height=(side) {}
            rect class=(standing_name(standing)) x=(x) y=(y) width=(side) height=(side)
                fill-opacity=[(standing == TaskStanding::Running).then_some(opacity)] {}
            @if had_failures && standing != TaskStanding::Failed {
                circle.retried cx=(x + side - 2) cy=(y + 2) r="1.5" {}
            }
            title { (label) }
        }
    }
}

/// How many tasks stand how.
pub(in super::super) fn sentence(tasks: &[&TaskOutline]) -> String {
    let mut text = String::new();
    for standing in STANDINGS {
        let count = tasks.iter().filter(|task| task.standing == standing).count();
        if count > 0 {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{}{} {}",
                if text.is_empty() { "" } else { ", " },
                Count(count),
                standing_name(standing)
            );
        }
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

/// What the colours of a heat map mean.
pub(in super::super) fn heat_legend() -> Markup {
    html! {
        p.legend-line {
            @for standing in STANDINGS {
                span {
                    svg.heat.swatch viewBox="0 0 10 10" aria-hidden="true" {
                        rect.ground width="10" height="10" {}
                        rect class=(standing_name(standing)) width="10" height="10" {}
                    }
                    (standing_name(standing))
                }
            }
            span {
                svg.heat.swatch viewBox="0 0 10 10" aria-hidden="true" {
                    rect.ground width="10" height="10" {}
                    circle.retried cx="5" cy="5" r="3" {}
                }
                "attempts failed"
            }
        }
    }
}

/// The height of a time line in its own units.
const HEIGHT: f64 = 100.0;

/// Attempts at work over the time of a job, what they do above each other.
pub(in super::super) fn time_line(line: &TimeLine) -> Markup {
    let most = line.most().max(1.0);
    let mut below = vec![0.0; PIECES];
    let areas: Vec<(&str, String)> = LINES
        .iter()
        .zip(&line.lines)
        .map(|(name, counts)| {
            let above: Vec<f64> = below.iter().zip(counts).map(|(a, b)| a + b).collect();
            let path = area(&below, &above, most);
            below = above;
            (*name, path)
        })
        .collect();
    html! {
        figure.plot.line {
            svg viewBox=(format!("0 0 {PIECES} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-labelledby="line-title" {
                title #line-title {
                    "Attempts at work over time, at most " (Count(line.most().round())) " at a time"
                }
                @for quarter in 0..=4 {
                    line.grid x1="0" x2=(PIECES) y1=(quarter * 25) y2=(quarter * 25) {}
                }
                @for (name, path) in &areas { path class={ "piece " (name) } d=(path) {} }
            }
            figcaption {
                span { (Clock(Millis(line.from_ms))) }
                span.range { "at most " (Count(line.most().round())) " at a time" }
                span { (Clock(Millis(line.to_ms))) }
            }
        }
        p.legend-line {
            @for name in LINES {
                span {
                    svg.plot.swatch viewBox="0 0 10 10" aria-hidden="true" {
                        rect class={ "piece " (name) } width="10" height="10" {}
                    }
                    (name)
                }
            }
        }
    }
}

/// The area between two lines, in steps.
fn area(below: &[f64], above: &[f64], most: f64) -> String {
    let y = |count: f64| HEIGHT - count / most * HEIGHT;
    let mut path = String::new();
    // Writing to a string does not fail.
    for (at, count) in above.iter().enumerate() {
        let start = if at == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{start}{at} {0:.2}H{1}", y(*count), at + 1);
    }
    for (at, count) in below.iter().enumerate().rev() {
        let _ = write!(path, "V{:.2}H{at}", y(*count));
    }
    path.push('Z');
    path
}
