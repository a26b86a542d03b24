//! What is worked out of a history for its pages: counts by kind of task, times by phase, and plots of
//! them.

use std::fmt::Write;

use corona_api::finished::FinishedTasks;
use corona_mapreduce::history::TaskRole;
use corona_mapreduce::{HistoryAttempt, HistoryTask, JobHistory, PartState};
use corona_model::types::{ResourceType, Span};
use corona_web::units::{Count, class_of};
use maud::{Markup, html};

/// Steps of a plot.
const STEPS: usize = 200;
/// The height of a plot in its own units.
const HEIGHT: f64 = 100.0;

/// The four kinds of tasks with their names for people.
pub(super) const ROLES: [(TaskRole, &str); 4] = [
    (TaskRole::Setup, "Setup"),
    (TaskRole::Map, "Map"),
    (TaskRole::Reduce, "Reduce"),
    (TaskRole::Cleanup, "Cleanup"),
];

/// Counts of the tasks of one kind and of their attempts.
pub(super) fn counts(history: &JobHistory, role: TaskRole) -> FinishedTasks {
    let mut counts = FinishedTasks::default();
    for task in history.tasks.values().filter(|task| task.role == role) {
        counts.tasks += 1;
        for attempt in &task.attempts {
            counts.attempts += 1;
            match attempt.state {
                PartState::Succeeded => counts.succeeded += 1,
                PartState::Failed => counts.failed += 1,
                PartState::Killed => counts.killed += 1,
                PartState::Unfinished => {}
            }
            if attempt.start_ms > 0 && (counts.start_ms == 0 || attempt.start_ms < counts.start_ms)
            {
                counts.start_ms = attempt.start_ms;
            }
            counts.finish_ms = counts.finish_ms.max(attempt.finish_ms);
        }
    }
    counts
}

/// All attempts at tasks of a kind.
pub(super) fn attempts(
    history: &JobHistory,
    role: TaskRole,
) -> impl Iterator<Item = (&HistoryTask, &HistoryAttempt)> {
    let tasks = history.tasks.values().filter(move |task| task.role == role);
    tasks.flat_map(|task| task.attempts.iter().map(move |attempt| (task, attempt)))
}

/// The time between two points; 0 where one is not known or they are in the wrong order.
pub(super) fn span(from_ms: i64, to_ms: i64) -> i64 {
    if from_ms <= 0 || to_ms <= 0 { 0 } else { to_ms.saturating_sub(from_ms).max(0) }
}

/// Where the time of all attempts went, in milliseconds.
pub(super) fn phases(history: &JobHistory) -> Vec<(&'static str, ResourceType, i64)> {
    let (mut map, mut shuffle, mut sort, mut reduce, mut wasted) = (0, 0, 0, 0, 0_i64);
    for (task, attempt) in history
        .tasks
        .values()
        .flat_map(|task| task.attempts.iter().map(move |attempt| (task, attempt)))
    {
        let whole = span(attempt.start_ms, attempt.finish_ms);
        match (attempt.state, task.role) {
            (PartState::Failed | PartState::Killed, _) => wasted = wasted.saturating_add(whole),
            (PartState::Succeeded, TaskRole::Map) => map += whole,
            (PartState::Succeeded, TaskRole::Reduce) => {
                shuffle += span(attempt.start_ms, attempt.shuffle_ms);
                sort += span(attempt.shuffle_ms, attempt.sort_ms);
                reduce += span(attempt.sort_ms, attempt.finish_ms);
            }
            _ => {}
        }
    }
    vec![
        ("Maps", ResourceType::Map, map),
        ("Shuffle", ResourceType::Reduce, shuffle),
        ("Sort", ResourceType::Reduce, sort),
        ("Reduce", ResourceType::Reduce, reduce),
        ("Failed and killed attempts", ResourceType::JobTracker, wasted),
    ]
}

/// Attempts that ran at each of [`STEPS`] times between two points.
pub(super) fn running(history: &JobHistory, role: TaskRole, from_ms: i64, to_ms: i64) -> Vec<u64> {
    let width = span(from_ms, to_ms).max(1);
    let step = |at: i64| scaled(at.saturating_sub(from_ms).clamp(0, width), width, STEPS);
    let mut changes = vec![0_i64; STEPS + 2];
    for (_, attempt) in attempts(history, role) {
        if span(attempt.start_ms, attempt.finish_ms) == 0 {
            continue;
        }
        if let Some(change) = changes.get_mut(step(attempt.start_ms)) {
            *change += 1;
        }
        if let Some(change) = changes.get_mut(step(attempt.finish_ms) + 1) {
            *change -= 1;
        }
    }
    let mut now = 0;
    let sums = changes.iter().take(STEPS).map(|change| {
        now += change;
        u64::try_from(now).unwrap_or(0)
    });
    sums.collect()
}

/// The place of `part` from 0 to `whole` in so many steps.
fn scaled(part: i64, whole: i64, steps: usize) -> usize {
    usize::try_from(i128::from(part) * steps as i128 / i128::from(whole)).unwrap_or(0)
}

/// How many attempts took how long, in [`STEPS`] / 4 steps up to the longest.
pub(super) fn durations(history: &JobHistory, role: TaskRole) -> (Vec<u64>, i64) {
    const BARS: usize = STEPS / 4;
    let spans: Vec<i64> = attempts(history, role)
        .filter(|(_, attempt)| attempt.state == PartState::Succeeded)
        .map(|(_, attempt)| span(attempt.start_ms, attempt.finish_ms))
        .collect();
    let longest = spans.iter().copied().max().unwrap_or(0).max(1);
    let mut bars = vec![0; BARS];
    for span in spans {
        if let Some(bar) = bars.get_mut(scaled(span, longest, BARS - 1)) {
            *bar += 1;
        }
    }
    (bars, longest)
}

/// An area in SVG, with a sentence that says the same.
pub(super) fn plot(
    kind: ResourceType,
    title: &str,
    id: &str,
    values: &[u64],
    ends: (&str, &str),
) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0);
    let mut edge = String::new();
    let y = |value: u64| HEIGHT - value as f64 / most.max(1) as f64 * HEIGHT;
    for (at, value) in values.iter().enumerate() {
        let letter = if at == 0 { 'M' } else { 'L' };
        // Writing to a string does not fail.
        let _ = write!(edge, "{letter}{at} {:.1}H{}", y(*value), at + 1);
    }
    let area = format!("{edge}V{HEIGHT}H0Z");
    html! {
        figure.plot.(class_of(kind)) {
            svg viewBox=(format!("0 0 {} {HEIGHT}", values.len().max(1))) preserveAspectRatio="none"
                role="img" aria-labelledby=(id) {
                title #(id) { (title) ": at most " (Count(most)) }
                @for quarter in 0..=4 {
                    line.grid x1="0" x2=(values.len()) y1=(quarter * 25) y2=(quarter * 25) {}
                }
                @if most > 0 {
                    path.area d=(area) {}
                    path.edge d=(edge) {}
                }
            }
            figcaption {
                span { (ends.0) }
                span.range { (title) ", at most " (Count(most)) }
                span { (ends.1) }
            }
        }
    }
}

/// How long something took: more exact the shorter it was.
pub(super) struct Took(pub(super) i64);

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("0 s"),
            ms @ 1..100 => write!(f, "{ms} ms"),
            ms @ 100..10_000 => write!(f, "{:.1} s", ms as f64 / 1000.0),
            ms => Span(ms).fmt(f),
        }
    }
}

impl maud::Render for Took {
    fn render_to(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(out, "{self}");
    }
}

/// A span, or a dash where it is not known.
pub(super) fn shown_span(from_ms: i64, to_ms: i64) -> String {
    match from_ms <= 0 || to_ms <= 0 {
        true => "–".to_owned(),
        false => Took(span(from_ms, to_ms)).to_string(),
    }
}
