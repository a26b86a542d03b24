//! The contents of the pages, from what was gathered. No page asks a job.

pub(super) mod configuration;
pub(super) mod end;
pub(super) mod failures;
pub(super) mod job;
pub(super) mod jobs;
pub(super) mod shapes;
pub(super) mod task;
pub(super) mod tasks;
pub(super) mod trackers;

use corona_mapreduce::{Counters, JobId, JobState, TaskKind, TaskState};
use corona_model::types::{Millis, ResourceType};
use corona_web::exchange::encode_segment;
use corona_web::units::{Count, Name, Span, bar};
use maud::{Markup, html};

use crate::whole_part;
use corona_job_engine::TaskStanding;

/// The address of a job's page.
pub(super) fn job_path(id: &JobId) -> String {
    format!("/jobs/{}", encode_segment(id.as_str()))
}

/// The address of a task's page, by the name of the task.
pub(super) fn task_path(id: &JobId, task: &str) -> String {
    format!("{}/tasks/{}", job_path(id), encode_segment(task))
}

/// The address of an attempt's page, by the name of the attempt.
pub(super) fn attempt_path(id: &JobId, attempt: &str) -> String {
    format!("{}/attempts/{}", job_path(id), encode_segment(attempt))
}

/// The type of slot whose colour a kind has.
pub(super) fn slot_type(kind: TaskKind) -> ResourceType {
    match kind {
        TaskKind::Map => ResourceType::Map,
        TaskKind::Reduce => ResourceType::Reduce,
    }
}

pub(super) fn kind_name(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Map => "map",
        TaskKind::Reduce => "reduce",
    }
}

pub(super) fn state_badge(state: JobState) -> Markup {
    let class = match state {
        JobState::Prep | JobState::Running => "",
        JobState::Succeeded => "good",
        JobState::Failed => "bad",
        JobState::Killed => "warn",
    };
    html! { span class={ "badge " (class) } { (state.name()) } }
}

/// A standing, as addresses and the interface for programs name it.
pub(super) fn standing_name(standing: TaskStanding) -> &'static str {
    match standing {
        TaskStanding::Pending => "pending",
        TaskStanding::Running => "running",
        TaskStanding::Complete => "complete",
        TaskStanding::Failed => "failed",
        TaskStanding::Killed => "killed",
    }
}

pub(super) const STANDINGS: [TaskStanding; 5] = [
    TaskStanding::Pending,
    TaskStanding::Running,
    TaskStanding::Complete,
    TaskStanding::Failed,
    TaskStanding::Killed,
];

pub(super) fn standing_badge(standing: TaskStanding) -> Markup {
    let class = match standing {
        TaskStanding::Pending | TaskStanding::Running => "",
        TaskStanding::Complete => "good",
        TaskStanding::Failed => "bad",
        TaskStanding::Killed => "warn",
    };
    html! { span class={ "badge " (class) } { (standing_name(standing)) } }
}

pub(super) fn attempt_badge(state: TaskState) -> Markup {
    let class = match state {
        TaskState::Succeeded => "good",
        TaskState::Failed | TaskState::FailedUnclean => "bad",
        TaskState::Killed | TaskState::KilledUnclean => "warn",
        TaskState::Running | TaskState::Unassigned | TaskState::CommitPending => "",
    };
    html! { span class={ "badge " (class) } { (state.name()) } }
}

/// A part from 0 to 1 in percent. What is not whole is not shown as whole.
pub(super) fn percent(part: f32) -> String {
    let percent = (f64::from(part) * 100.0).clamp(0.0, 100.0);
    format!("{:.0} %", if percent < 100.0 { percent.floor() } else { percent })
}

/// A bar that is full to a part from 0 to 1, in the colour of a kind.
pub(super) fn part_bar(kind: TaskKind, part: f32) -> Markup {
    bar(slot_type(kind), whole_part(f64::from(part) * 1000.0).into(), 1000)
}

/// The time between two points; `–` where one of them is not known.
pub(super) fn between(from_ms: i64, to_ms: i64) -> String {
    match (from_ms, to_ms) {
        (..=0, _) | (_, ..=0) => "–".to_owned(),
        (from, to) => took(to.saturating_sub(from)),
    }
}

/// A span; short ones with their milliseconds.
pub(super) fn took(ms: i64) -> String {
    match ms {
        ..=0 => "0 ms".to_owned(),
        1..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        ms => Span(ms).to_string(),
    }
}

/// A point in time; `–` where it is not known.
pub(super) fn time(ms: i64) -> Markup {
    match ms {
        ..=0 => html! { "–" },
        ms => html! { (corona_web::units::Time(Millis(ms))) },
    }
}

/// A table of counters with these columns: by group and counter.
pub(super) fn counter_table(columns: &[(&str, &Counters)]) -> Markup {
    let Some((_, all)) = columns.last() else { return html! {} };
    html! {
        h2 #counters-title { "Counters" }
        @if all.groups.is_empty() {
            p { "No task has reported a counter yet." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="counters-title" {
                table.rows #counter-table {
                    thead {
                        tr {
                            th scope="col" { "Counter" }
                            th scope="col" { "Group" }
                            @for (title, _) in columns { th.n scope="col" { (title) } }
                        }
                    }
                    tbody {
                        @for group in &all.groups {
                            @for counter in &group.counters {
                                tr data-key={ (group.name) " " (counter.name) } {
                                    th scope="row" title=(counter.name) {
                                        span.word { (Name(&counter.display_name)) }
                                    }
                                    td data-label="Group" {
                                        span.word title=(group.name) { (Name(&group.display_name)) }
                                    }
                                    @for (title, counters) in columns {
                                        td.n data-label=(title) {
                                            @match counters.get(&group.name, &counter.name) {
                                                Some(value) => (Count(value)),
                                                None => "–",
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A text of a peer in its own lines.
pub(super) fn text_block(text: &str) -> Markup {
    html! { pre.text tabindex="0" { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_parts_read_well() {
        for (ms, text) in
            [(-5, "0 ms"), (7, "7 ms"), (1250, "1.2 s"), (59_940, "59.9 s"), (61_000, "1 min 1 s")]
        {
            assert_eq!(took(ms), text);
        }
        assert_eq!(between(0, 5), "–");
        assert_eq!(between(5, 0), "–");
        assert_eq!(between(5, 25), "20 ms");
        for (part, text) in [(0.0, "0 %"), (0.999, "99 %"), (1.0, "100 %"), (7.0, "100 %")] {
            assert_eq!(percent(part), text);
        }
    }
}
