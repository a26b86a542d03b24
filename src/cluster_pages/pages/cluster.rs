//! The cluster at a glance: problems, slots, speed of decisions, recent events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::links::{node_link, session_path};
use super::plot;
use super::pools::{quota, scale, sessions_address};
use super::resources;
use crate::QueueCounts;
use crate::gather::{NodeCounts, Overview, Pools};
use crate::history::{Latencies, Sample};
use crate::metrics::Snapshot;
use crate::problems::Problem;
use corona_api::cluster::{HaStatus, JournalStatus, Severity};
use corona_api::events::Event;
use corona_engine::PoolView;
use corona_model::types::{Millis, ResourceType};
use corona_web::budget;
use corona_web::events::Published;
use corona_web::table::{Column, fixed_table};
use corona_web::units::{
    Bytes, Clock, Count, Name, ShortSpan, Span, Time, bar, class_of, percent, plural,
};

/// Events that are shown.
const EVENTS: usize = 20;
/// Pools that are shown.
const POOLS: usize = 6;

/// The data of the page.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) overview: Overview,
    pub(crate) nodes: NodeCounts,
    pub(crate) pools: Arc<Pools>,
    pub(crate) queues: QueueCounts,
    pub(crate) journal: Option<JournalStatus>,
    pub(crate) ha: Option<HaStatus>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) span: Duration,
    pub(crate) lately: Latencies,
    pub(crate) since_start: Latencies,
    pub(crate) events: Vec<Arc<Published>>,
}

/// The content of the page.
pub(crate) fn content(view: &View) -> Markup {
    let overview = &view.overview;
    html! {
        h1 { "Cluster" }
        div #facts data-live { (facts(view)) }
        div #journal data-live { (journal(view)) }
        @if let Some(ha) = &view.ha {
            div #role data-live { (role(ha)) }
        }
        section aria-labelledby="problems-title" {
            h2 #problems-title { "Problems" }
            div #problems data-live { (problems(&view.problems)) }
        }
        section aria-labelledby="slots-title" {
            h2 #slots-title { "Slots" }
            div.cards #slots data-live {
                @for kind in &overview.kinds { (slots(view, *kind)) }
                @if overview.kinds.is_empty() {
                    p { "No type has slots: see cm.cpu.to.resource.partitioning." }
                }
            }
        }
        @if overview.settings.resources.are_counted() {
            section aria-labelledby="resources-title" {
                h2 #resources-title { "Resources" }
                div.cards #resources data-live { (resources::cards(&view.nodes.places, overview)) }
            }
        }
        div.columns {
            div {
                section aria-labelledby="latency-title" {
                    h2 #latency-title { "Latency" }
                    div #latency data-live { (latencies(view)) }
                }
                section aria-labelledby="busy-title" {
                    h2 #busy-title { "Busiest pools" }
                    div #busy data-live { (busiest_pools(view)) }
                }
            }
            section aria-labelledby="events-title" {
                h2 #events-title { "Recent events" }
                div #events data-live { (events(&view.events)) }
            }
        }
    }
}

fn facts(view: &View) -> Markup {
    let Overview { now, first_started, sessions, .. } = &view.overview;
    html! {
        dl.facts {
            div { dt { "Sessions" } dd { a href="/sessions" { (Count(*sessions)) } } }
            div {
                dt { "Nodes" }
                dd {
                    a href="/nodes" { (Count(view.nodes.alive)) }
                    @if view.nodes.late > 0 {
                        span.note { a href="/nodes?state=late" { (Count(view.nodes.late)) " late" } }
                    }
                }
            }
            div { dt { "Pending notifications" } dd { (Count(view.queues.calls)) } }
            div { dt { "Safe mode" } dd { (if view.overview.safe_mode { "on" } else { "off" }) } }
            div {
                dt { "First started" }
                dd { (Time(*first_started)) " (" (Span(now.since(*first_started))) " ago)" }
            }
            (budget::facts(&budget::now()))
        }
    }
}

/// The role among several instances.
fn role(ha: &HaStatus) -> Markup {
    html! {
        dl.facts {
            div {
                dt { "Role" }
                dd { (ha.role) span.note { (ha.instance) ", epoch " (Count(ha.epoch)) } }
            }
            div {
                dt { "Standbys" }
                dd {
                    @if ha.standbys.is_empty() { "none" }
                    @for standby in &ha.standbys {
                        (standby.instance)
                        span.note { @if standby.in_sync { "may take over" } @else if standby.slow { "slow" } @else { "copying" } }
                    }
                }
            }
        }
    }
}

/// The state from which the next start resumes. All sizes are of files.
fn journal(view: &View) -> Markup {
    let Some(journal) = &view.journal else {
        return html! {
            dl.facts { div { dt { "Journal" } dd { "none" } } }
        };
    };
    let bytes = |bytes: u64| Bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    let now = view.overview.now;
    html! {
        dl.facts {
            div {
                dt { "Journal" }
                dd {
                    (bytes(journal.bytes))
                    span.note { (Count(journal.last_record)) " records, sync " (journal.sync) }
                }
            }
            div {
                dt { "Last image" }
                dd {
                    @match journal.image_ms {
                        Some(made) => { (Span(now.since(Millis(made)).max(0))) " ago" }
                        None => { "none yet" }
                    }
                    span.note { (bytes(journal.tail_bytes)) " of records since" }
                }
            }
            div {
                dt { "Recovery at the start" }
                dd {
                    @match &journal.recovery {
                        Some(recovery) => {
                            (Count(recovery.took_ms)) " ms"
                            span.note { (Count(recovery.records)) " records" }
                        }
                        None => { "none" }
                    }
                }
            }
        }
    }
}

fn problems(problems: &[Problem]) -> Markup {
    html! {
        @if problems.is_empty() {
            p.fine { span aria-hidden="true" { "✓ " } "None." }
        } @else {
            ul.problems {
                @for Problem { severity, link, rest } in problems {
                    li.bad[*severity == Severity::Error].warn[*severity != Severity::Error] {
                        strong.unseen {
                            @if *severity == Severity::Error { "Error: " } @else { "Warning: " }
                        }
                        @if let Some((text, page)) = link { a href=(page) { (text) } }
                        (rest)
                    }
                }
            }
        }
    }
}

fn slots(view: &View, kind: ResourceType) -> Markup {
    let slots = view.overview.slots[kind];
    let free = slots.total.saturating_sub(slots.used);
    let unusable = view.nodes.unusable_slots[kind];
    let outermost = |pool: &&PoolView| pool.pool.is_none() && pool.parent.is_none();
    let groups = view.pools.views.iter().filter(outermost);
    let waiting: i64 = groups.map(|group| group.counts[kind].pending).sum();
    let used_percent = percent(slots.used as f64, slots.total as f64);
    html! {
        article.card.(class_of(kind)) aria-labelledby=(format!("slots-{}", class_of(kind))) {
            h3 #(format!("slots-{}", class_of(kind))) { (kind) }
            p.big {
                strong { (format!("{used_percent:.0}")) span.unit { " %" } }
                span { "in use" }
            }
            (bar(kind, slots.used, slots.total))
            dl.facts.small {
                div { dt { "Used" } dd { (Count(slots.used)) } }
                div {
                    dt { "Free" }
                    dd {
                        a href=(format!("/nodes?state=usable&type={kind}")) { (Count(free)) }
                        @if unusable > 0 {
                            span.note { (Count(unusable)) " on unusable nodes" }
                        }
                    }
                }
                div { dt { "All" } dd { (Count(slots.total)) } }
                div { dt { "Requests waiting" } dd { (Count(waiting)) } }
            }
            (plot::utilisation(kind, &view.samples, view.span))
        }
    }
}

fn latencies(view: &View) -> Markup {
    type Row = (&'static str, &'static str, fn(&Latencies) -> &Snapshot);
    let rows: [Row; 4] = [
        ("Request to grant", "from the arrival of a request to its grant", |all| {
            &all.request_to_grant
        }),
        ("Grant to delivered", "from the grant to the session's reply", |all| {
            &all.grant_to_delivered
        }),
        ("Scheduler pass", "one pass over all types", |all| &all.pass),
        ("Wait for the engine", "before a call or a pass", |all| &all.lock_wait),
    ];
    let mut columns = vec![Column::text("measure", "Measure", |(name, meaning, _): &Row| {
        html! { (name) span.note { (meaning) } }
    })];
    for (of, time) in [(&view.lately, "Last minute"), (&view.since_start, "Since the start")] {
        let quantile = |title, part: f64| {
            Column::text(title, title, move |(.., of_row): &Row| match of_row(of).quantile(part) {
                Some(span) => html! { (ShortSpan(span)) },
                None => html! { "–" },
            })
            .numeric()
            .under(time)
        };
        let count = Column::text("count", "Count", |(.., part): &Row| {
            html! { (Count(part(of).count())) }
        });
        columns.extend([
            quantile("Median", 0.5),
            quantile("99 %", 0.99),
            count.numeric().under(time),
        ]);
    }
    html! {
        // The section around it is the region.
        div.scroll tabindex="0" role="group" aria-labelledby="latency-title" {
            (fixed_table("latency-table", &columns, &rows, |(name, ..)| (*name).to_owned()))
        }
    }
}

/// The pools with the largest demand: slots that they hold and requests that wait.
fn busiest_pools(view: &View) -> Markup {
    let kinds = &view.overview.kinds;
    let views = &view.pools.views;
    let demand = |pool: &PoolView| -> i64 {
        kinds.iter().map(|kind| pool.counts[*kind].granted + pool.counts[*kind].pending).sum()
    };
    let mut busiest: Vec<&PoolView> =
        views.iter().filter(|pool| pool.pool.is_some() && demand(pool) > 0).collect();
    busiest.sort_by_key(|pool| Reverse(demand(pool)));
    let shown: Vec<&PoolView> = busiest.iter().copied().take(POOLS).collect();
    html! {
        @if shown.is_empty() {
            p { "No pool holds slots or waits for any." }
        } @else {
            div.scroll tabindex="0" role="group" aria-labelledby="busy-title" {
                (fixed_table("busy-table", &busy_columns(views, kinds), &shown, |pool| name_of(pool)))
            }
            @if busiest.len() > POOLS {
                p { a href="/pools?busy=1" { "All " (Count(busiest.len())) " busy pools" } }
            }
        }
    }
}

fn name_of(pool: &PoolView) -> String {
    format!("{}.{}", pool.group, pool.pool.as_deref().unwrap_or_default())
}

fn busy_columns<'a>(
    views: &'a [PoolView],
    kinds: &'a [ResourceType],
) -> Vec<Column<'a, &'a PoolView>> {
    type Row<'a> = &'a PoolView;
    let mut columns = vec![
        Column::text("pool", "Pool", |pool: &Row<'a>| {
            let name = name_of(pool);
            html! { a href=(sessions_address("poolInfos", &name)) { span.word { (Name(&name)) } } }
        }),
        Column::text("sessions", "Sessions", |pool: &Row<'a>| html! { (Count(pool.sessions)) })
            .numeric(),
    ];
    columns.extend(kinds.iter().map(|kind| {
        let title = format!("{kind} (held / share)");
        Column::text("kind", title, |pool: &Row<'a>| quota(pool, *kind, scale(views, *kind)))
    }));
    let waiting = |pool: &Row<'a>| kinds.iter().map(|kind| pool.counts[*kind].pending).sum::<i64>();
    columns.push(Column::number("waiting", "Requests waiting", waiting));
    columns
}

fn events(events: &[Arc<Published>]) -> Markup {
    html! {
        @if events.is_empty() {
            p { "No events since the start." }
        } @else {
            ol.events {
                @for event in events.iter().take(EVENTS) {
                    li data-key=(event.number()) {
                        span.when { (Clock(event.at)) }
                        span { (sentence(&event.event)) }
                    }
                }
            }
        }
    }
}

fn session_link(session: &str) -> Markup {
    html! { a href=(session_path(session)) { (session) } }
}

fn slots_were(count: u64, kind: ResourceType) -> String {
    plural(count, &format!("{kind} slot was"), &format!("{kind} slots were"))
}

fn sentence(event: &Event) -> Markup {
    match event {
        Event::SessionStarted { session, name, group, pool } => html! {
            "Session " (session_link(session)) " started in " (Name(format!("{group}.{pool}"))) ": " (Name(name))
        },
        Event::SessionGranted { session, kind, count } => html! {
            (slots_were(*count, *kind)) " granted to session " (session_link(session))
        },
        Event::SessionRevoked { session, kind, count } => html! {
            (slots_were(*count, *kind)) " preempted from session " (session_link(session))
        },
        Event::SessionEnded { session, status } => html! {
            "Session " (session_link(session)) " ended: " (status.name())
        },
        Event::NodeAdded { node } => html! { "Node " (node_link(node)) " joined" },
        Event::NodeLost { node, expired: true } => {
            html! { "Node " (Name(node)) " was lost: its heartbeats stopped" }
        }
        Event::NodeLost { node, expired: false } => html! { "Node " (Name(node)) " restarted" },
        Event::NodeLate { node, silent_ms } => html! {
            "Node " (Name(node)) " is late: no heartbeat for " (Span(*silent_ms))
        },
        Event::NodeOnTime { node } => html! { "Node " (Name(node)) " is on time again" },
        Event::NodeBlacklisted { node, kind } => html! {
            "Node " (node_link(node)) " was blacklisted for " (kind)
        },
        Event::BlacklistCleared { node, kind } => html! {
            "The blacklisting of node " (node_link(node)) " for " (kind) " was lifted"
        },
        Event::NodeDraining { node, on: true } => html! {
            "Node " (node_link(node)) " drains: it is granted nothing"
        },
        Event::NodeDraining { node, on: false } => html! {
            "Node " (node_link(node)) " does not drain any more"
        },
        Event::NodeRevoked { node, access, on: true } => html! {
            "Node " (node_link(node)) " is granted nothing: its access " (access) " was revoked"
        },
        Event::NodeRevoked { node, on: false, .. } => html! {
            "Node " (node_link(node)) " has access again"
        },
        Event::PoolStarving { group, pool, kind, cause, granted } => html! {
            "Pool " (Name(format!("{group}.{pool}"))) " is below its " (cause) ": it holds "
            (Count(granted)) " " (kind) (if *granted == 1 { " slot" } else { " slots" })
        },
        Event::SafeMode { on: true } => html! { "Safe mode was turned on" },
        Event::SafeMode { on: false } => html! { "Safe mode was turned off" },
        Event::ConfigurationReloaded => html! { "Scheduling files were reloaded" },
        Event::LeaderElected { instance, epoch } => html! {
            "Instance " (Name(instance)) " leads, with epoch " (epoch)
        },
        Event::SteppingDown { instance } => html! {
            "Instance " (Name(instance)) " was asked to step down"
        },
        Event::StandbyReady { instance } => html! {
            "Standby " (Name(instance)) " may take over"
        },
        Event::StandbyLost { instance } => html! {
            "Standby " (Name(instance)) " may not take over any more"
        },
        // Not among the notable events of a cluster manager.
        _ => html! {},
    }
}
