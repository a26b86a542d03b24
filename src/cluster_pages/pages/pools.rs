//! Pools: the slots, share, minimum and maximum of each, as numbers and as bars on one scale.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::resources;
use crate::exchange::Parameters;
use crate::filter::Filter;
use crate::gather::{Overview, Pools};
use crate::original::mode_name;
use corona_engine::PoolView;
use corona_model::queues::{Part, PreemptionRule, SiblingOrder};
use corona_model::resources::{Amounts, Dimension};
use corona_model::settings::UNLIMITED;
use corona_model::text::natural_order;
use corona_model::types::{PerType, PoolName, ResourceType};
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Count, Name, Span, class_of};

const PATH: &str = "/pools";
/// The parameter that lists the groups whose queues are not shown.
const FOLDED: &str = "folded";

/// The content of the page.
pub(crate) fn content(pools: &Pools, overview: &Overview, parameters: &Parameters) -> Markup {
    html! {
        h1 { "Pools" }
        (search(parameters))
        div #pools data-live { (table(pools, overview, parameters)) }
        (legend())
    }
}

fn search(parameters: &Parameters) -> Markup {
    let fields = html! {
        (filter::search(parameters, "group or pool"))
        (filter::check(parameters, "busy", "Only with sessions"))
        @for name in ["poolGroups", "poolInfos", FOLDED] {
            @if let Some(value) = parameters.text(name) {
                input type="hidden" name=(name) value=(value);
            }
        }
    };
    filter::form(PATH, parameters, &fields)
}

fn table(pools: &Pools, overview: &Overview, parameters: &Parameters) -> Markup {
    let filter = Filter::new(parameters);
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let busy = parameters.text("busy").is_some();
    let named = |view: &PoolView| {
        let pool = view.pool.as_deref().unwrap_or_default();
        let name = format!("{}.{pool}", view.group).to_lowercase();
        name.contains(&text) || view.path.to_lowercase().contains(&text)
    };
    let chosen: Vec<&PoolView> = pools
        .views
        .iter()
        .filter(|view| filter.wants_pool(&view.group, view.pool.as_deref()))
        .filter(|view| (text.is_empty() || named(view)) && (!busy || view.sessions > 0))
        .filter(|view| !folded(parameters).any(|group| is_inside(&view.path, group)))
        .collect();
    let table = Table {
        id: "pool-table",
        caption: "Groups and pools",
        rows_are: ("group or pool", "groups and pools"),
        path: PATH,
        parameters,
        usual_sort: "name",
        // No pool has an empty name.
        key: |view: &PoolView| {
            format!("{}.{}", view.group, view.pool.as_deref().unwrap_or_default())
        },
        columns: columns(pools, overview, parameters),
        empty: "No pool matches.",
    };
    table.render(chosen, pools.views.len())
}

/// The groups whose queues are not shown, by their paths.
fn folded(parameters: &Parameters) -> impl Iterator<Item = &str> {
    parameters.text(FOLDED).unwrap_or_default().split(',').filter(|group| !group.is_empty())
}

/// Whether a queue of this path is in the group of that path.
fn is_inside(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'))
}

fn columns<'a>(
    pools: &'a Pools,
    overview: &'a Overview,
    parameters: &'a Parameters,
) -> Vec<Column<'a, PoolView>> {
    let is_tree = pools.views.iter().any(PoolView::is_of_tree);
    let name = move |view: &PoolView| {
        html! {
            @if is_tree && view.pool.is_none() { (fold(view, parameters)) " " }
            (name_cell(view, overview))
        }
    };
    let mut columns = vec![
        Column::text("name", "Pool", name).sorted_by(by_name),
        Column::number("sessions", "Sessions", |view: &PoolView| {
            i64::try_from(view.sessions).unwrap_or(i64::MAX)
        }),
    ];
    for kind in overview.kinds.iter().copied() {
        let scale = scale(&pools.views, kind);
        let key = format!("{}-granted", class_of(kind));
        let quota =
            Column::text(&key, "Slots (held / share)", move |view| quota(view, kind, scale))
                .sorted_by(move |a: &PoolView, b| {
                    a.counts[kind].granted.cmp(&b.counts[kind].granted)
                })
                .largest_first()
                .under(kind.name());
        let key = format!("{}-waiting", class_of(kind));
        let waiting =
            Column::number(&key, "Waiting", move |view: &PoolView| view.counts[kind].pending)
                .under(kind.name());
        columns.extend([quota, waiting]);
    }
    columns.extend(resources::holding_column(overview, |view: &PoolView| &view.holding));
    let remarks =
        move |view: &PoolView| html! { (settings(view)) (remarks(view, pools, overview)) };
    columns.push(Column::text("remarks", "Settings and remarks", remarks).wide());
    columns
}

/// By the paths: a group is followed by the queues in it.
fn by_name(a: &PoolView, b: &PoolView) -> Ordering {
    let (mut others, mut own) = (b.path.split('.'), a.path.split('.'));
    loop {
        match (own.next(), others.next()) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => return natural_order(a, b),
            (own, other) => return own.cmp(&other),
        }
    }
}

fn name_cell(view: &PoolView, overview: &Overview) -> Markup {
    let Some(pool) = &view.pool else {
        let address = sessions_address("poolGroups", &view.group);
        return html! {
            a.groupname href=(address) { span.word { (Name(&view.group)) } }
            span.note { "group" (inside(view)) }
        };
    };
    let name = PoolName { group: view.group.clone(), pool: pool.clone() };
    let redirect = overview.settings.scheduling.redirects.get(&name);
    html! {
        a href=(sessions_address("poolInfos", &name.to_string())) { span.word { (Name(&name)) } }
        @if let Some(to) = redirect { span.note { "redirected to " (Name(to)) } }
        @if view.is_of_tree() { span.note { (Name(&view.path)) } }
    }
}

/// A link that hides the queues of a group, or shows them again.
fn fold(view: &PoolView, parameters: &Parameters) -> Markup {
    let path = &*view.path;
    let others: Vec<&str> = folded(parameters).filter(|group| *group != path).collect();
    let is_folded = folded(parameters).any(|group| group == path);
    let after = if is_folded { others } else { others.into_iter().chain([path]).collect() };
    let address = parameters.with(&[(FOLDED, &after.join(",")), ("page", "")]).address(PATH);
    let (sign, verb) = if is_folded { ("\u{25b8}", "Show") } else { ("\u{25be}", "Hide") };
    html! {
        a.fold href=(address) data-swap aria-expanded=(if is_folded { "false" } else { "true" })
            aria-label=(format!("{verb} the queues of {path}")) { (sign) }
    }
}

/// The path of the group around a group.
fn inside(view: &PoolView) -> Markup {
    let around = view.parent.as_ref().and(view.path.rsplit_once('.'));
    html! { @if let Some((around, _)) = around { " in " (Name(around)) } }
}

pub(super) fn sessions_address(parameter: &str, value: &str) -> String {
    Parameters::default().with(&[(parameter, value)]).address("/sessions")
}

/// The largest number among all bars of a type, so that they can be compared.
pub(super) fn scale(views: &[PoolView], kind: ResourceType) -> f64 {
    let largest = views.iter().map(|view| {
        let due = view.share[kind].max(f64::from(view.minimum[kind]));
        due.max(view.counts[kind].granted as f64)
    });
    largest.fold(1.0, f64::max)
}

/// A bar with the pool's grants, marks for its share and minimum, a shade from its maximum on; and
/// the same as numbers.
pub(super) fn quota(view: &PoolView, kind: ResourceType, scale: f64) -> Markup {
    let at = |slots: f64| format!("{:.1}", (slots / scale * 100.0).clamp(0.0, 100.0));
    let granted = view.counts[kind].granted.max(0) as f64;
    let minimum = f64::from(view.minimum[kind]);
    let maximum = Some(view.maximum[kind]).filter(|most| *most != UNLIMITED).map(f64::from);
    let share = view.share[kind];
    if granted == 0.0 && share == 0.0 && minimum == 0.0 && maximum.is_none() {
        return html! { span.note { "–" } };
    }
    html! {
        div.quota {
            svg.bar.(class_of(kind)) viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
                rect.track y="2" width="100" height="8" {}
                @if let Some(maximum) = maximum.filter(|maximum| *maximum < scale) {
                    rect.beyond x=(at(maximum)) y="2" width="100" height="8" {}
                }
                rect.fill y="2" width=(at(granted)) height="8" {}
                @if minimum > 0.0 { line.minimum x1=(at(minimum)) x2=(at(minimum)) y1="0" y2="12" {} }
                @if share > 0.0 { line.share x1=(at(share)) x2=(at(share)) y1="0" y2="12" {} }
            }
            span.numbers {
                strong { (Count(view.counts[kind].granted)) }
                " / " (format!("{share:.1}"))
                @if minimum > 0.0 { ", min " (Count(minimum)) }
                @if let Some(maximum) = maximum { ", max " (Count(maximum)) }
            }
        }
    }
}

fn settings(view: &PoolView) -> Markup {
    if view.pool.is_none() {
        return html! {
            @if view.weight != 1.0 { span.tag { "weight " (view.weight) } }
            @if view.rules.order != SiblingOrder::default() {
                span.tag { (view.rules.order.name()) }
            }
            (rules(view))
        };
    }
    html! {
        span.tag { (mode_name(view.mode)) }
        @if view.weight != 1.0 { span.tag { "weight " (view.weight) } }
        @if view.priority != 0 { span.tag { "priority " (view.priority) } }
        @if !view.preemptable { span.tag { "not preemptable" } }
        @if view.request_max { span.tag { "request max" } }
        @if !view.configured { span.tag { "not configured" } }
        (rules(view))
    }
}

/// The rules of a tree of queues that differ from the default ones.
fn rules(view: &PoolView) -> Markup {
    let rules = &view.rules;
    let limit = |name: &str, limit: Option<u32>| limit.map(|limit| format!("{name} {limit}"));
    let parts = |name: &str, parts: PerType<Option<Part>>| {
        let part = |kind| parts[kind].map(|part: Part| format!("{name} {kind} {part}"));
        ResourceType::ALL.into_iter().filter_map(part).collect::<Vec<_>>()
    };
    let amounts = |name: &str, amounts: Amounts| {
        let some = Dimension::ALL
            .into_iter()
            .filter(|dimension| amounts[*dimension] > 0 && amounts[*dimension] < u64::MAX);
        some.map(|dimension| format!("{name} {}", dimension.brief(amounts[dimension])))
            .collect::<Vec<_>>()
    };
    let resources =
        [amounts("min", view.minimum_amounts), amounts("max", view.maximum_amounts)].concat();
    let preemption = rules.preemption;
    let said = [
        (!rules.lend).then(|| "does not lend".to_owned()),
        (preemption != PreemptionRule::Default)
            .then(|| format!("preemption {}", preemption.name())),
        rules.min_runtime_ms.map(|ms| format!("grants safe for {}", corona_model::types::Span(ms))),
        limit("sessions at most", rules.max_sessions),
        limit("sessions of a user at most", rules.max_sessions_per_user),
        limit("slots of a user at most", rules.max_per_user),
    ];
    html! {
        @for text in parts("min", rules.minimum).into_iter().chain(parts("max", rules.maximum)) {
            span.tag { (text) }
        }
        @for text in resources { span.tag { (text) } }
        @for text in said.into_iter().flatten() { span.tag { (text) } }
        @if rules.vanished {
            span.badge.warn { "draining, in no file any more" }
        } @else if rules.draining {
            span.badge.warn { "draining" }
        }
        @if view.sessions_waiting > 0 {
            span.note { (Count(view.sessions_waiting)) " waiting for their turn" }
        }
    }
}

fn remarks(view: &PoolView, pools: &Pools, overview: &Overview) -> Markup {
    let Some(pool) = &view.pool else { return html! {} };
    let name = PoolName { group: view.group.clone(), pool: pool.clone() };
    let scheduling = &overview.settings.scheduling;
    let starving = overview.kinds.iter().filter_map(|kind| {
        view.starved_ms(*kind, overview.now, scheduling).map(|starved_ms| (*kind, starved_ms))
    });
    let waits = pools.first_waits.granted_ms.get(&name);
    let waits = overview.kinds.iter().filter_map(|kind| {
        let wait_ms = waits?[*kind]?;
        (wait_ms >= 1000).then_some((*kind, wait_ms))
    });
    html! {
        @for (kind, starved_ms) in starving {
            span.badge.warn { "starved of " (kind) " slots for " (Span(starved_ms)) }
        }
        @for (kind, wait_ms) in waits {
            span.note { "first " (kind) " slot after " (Span(wait_ms)) " on average" }
        }
    }
}

fn legend() -> Markup {
    html! {
        section.legend aria-labelledby="legend-title" {
            h2 #legend-title { "How to read the bars" }
            dl {
                div {
                    dt { svg.bar.map viewBox="0 0 24 12" aria-hidden="true" { rect.fill y="2" width="24" height="8" {} } }
                    dd { "slots that the pool holds; all bars of a type have the same scale" }
                }
                div {
                    dt { svg.bar.map viewBox="0 0 24 12" aria-hidden="true" { line.share x1="12" x2="12" y1="0" y2="12" {} } }
                    dd { "its share of the slots in use, by weight and demand" }
                }
                div {
                    dt { svg.bar.map viewBox="0 0 24 12" aria-hidden="true" { line.minimum x1="12" x2="12" y1="0" y2="12" {} } }
                    dd { "its minimum, which is guaranteed" }
                }
                div {
                    dt { svg.bar.map viewBox="0 0 24 12" aria-hidden="true" { rect.beyond y="2" width="24" height="8" {} } }
                    dd { "beyond its maximum" }
                }
            }
        }
    }
}
