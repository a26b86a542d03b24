//! Resources that are counted: what the cluster and its nodes give out, what grants take of it, what is really used.
//! Nothing is shown while only slots are counted.

use maud::{Markup, html};

use crate::gather::Overview;
use crate::places::Places;
use corona_engine::{Holding, NodeView};
use corona_model::resources::Dimension;
use corona_web::table::Column;
use corona_web::table::Head::{Number, Text};
use corona_web::table::framed;
use corona_web::units::percent;

/// The heading of a resource.
fn title(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Cpus => "CPUs",
        Dimension::Memory => "Memory",
        Dimension::Disk => "Disk",
        Dimension::Network => "Network",
    }
}

/// The resources of the cluster, as cards.
pub(super) fn cards(places: &Places, overview: &Overview) -> Markup {
    html! {
        @for dimension in overview.settings.resources.dimensions() { (card(places, dimension)) }
    }
}

fn card(places: &Places, dimension: Dimension) -> Markup {
    let (capacity, granted) = (places.capacity[dimension], places.granted[dimension]);
    let (free, largest) = (places.free[dimension], places.largest[dimension]);
    let id = format!("resource-{}", dimension.name());
    let part = percent(granted as f64, capacity as f64);
    html! {
        article.card.resource aria-labelledby=(id) {
            h3 #(id) { (title(dimension)) }
            p.big {
                strong { (format!("{part:.0}")) span.unit { " %" } }
                span { "granted" }
            }
            (bar(granted, capacity, None))
            dl.facts.small {
                div { dt { "Granted" } dd { (dimension.short(granted)) } }
                div { dt { "Free" } dd { (dimension.short(free)) } }
                div { dt { "All" } dd { (dimension.short(capacity)) } }
                div { dt { "Largest place" } dd { (dimension.short(largest)) } }
            }
            p.note { (dimension.spread(free, largest)) "." }
        }
    }
}

/// A bar that is full to what is granted of the capacity, with a mark at what is really used, and a shade from the
/// capacity on where more is granted or used. The numbers stand beside it as text.
fn bar(granted: u64, capacity: u64, used: Option<u64>) -> Markup {
    let scale = capacity.max(granted).max(used.unwrap_or(0)).max(1) as f64;
    let at = |amount: u64| format!("{:.1}", percent(amount as f64, scale));
    let is_beyond = (capacity as f64) < scale;
    html! {
        svg.bar.resource viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
            rect.track y="2" width="100" height="8" {}
            rect.fill y="2" width=(at(granted)) height="8" {}
            @if is_beyond { rect.beyond x=(at(capacity)) y="2" width="100" height="8" {} }
            @if let Some(used) = used { line.share x1=(at(used)) x2=(at(used)) y1="0" y2="12" {} }
        }
    }
}

/// The resources of a node: capacity, granted, really used.
pub(super) fn of_node(node: &NodeView, overview: &Overview) -> Markup {
    let resources = &overview.settings.resources;
    if !resources.are_counted() {
        return html! {};
    }
    let short = |dimension: Dimension, amount: Option<u64>| match amount {
        Some(amount) => dimension.short(amount),
        None => "–".to_owned(),
    };
    let used = |dimension: Dimension| dimension.used(&node.total, &node.free);
    html! {
        h2 #resources-title { "Resources" }
        (framed("resources", "resource-table", &[
            Text("Resource"), Text("Granted"), Number("Left"), Number("Really used"),
            Number("Reported"),
        ], &html! {
            @for dimension in resources.dimensions() {
                tr data-key=(dimension.name()) {
                    th scope="row" { (title(dimension)) }
                    td.wide data-label="Granted" { (granted(node, dimension)) }
                    td.n data-label="Left" { (dimension.short(node.spare()[dimension])) }
                    td.n data-label="Really used" { (short(dimension, used(dimension))) }
                    td.n data-label="Reported" {
                        (short(dimension, dimension.of(&node.total)))
                    }
                }
            }
        }))
        p.note {
            "The bars are full to what grants take of what the node gives out; the marks are what is really used, by tasks and anything else."
        }
    }
}

/// What grants take of a node, as a bar and as numbers.
fn granted(node: &NodeView, dimension: Dimension) -> Markup {
    let (capacity, held) = (node.capacity[dimension], node.held[dimension]);
    html! {
        div.used {
            (bar(held, capacity, dimension.used(&node.total, &node.free)))
            span { (dimension.short(held)) " of " (dimension.short(capacity)) }
        }
    }
}

/// A column for each resource that is counted, for a table of nodes.
pub(super) fn node_columns<'a>(overview: &Overview) -> Vec<Column<'a, NodeView>> {
    let column = |dimension: Dimension| {
        Column::text(dimension.name(), title(dimension), move |row: &NodeView| {
            html! {
                (granted(row, dimension))
                @if let Some(used) = dimension.used(&row.total, &row.free) {
                    span.note { (dimension.short(used)) " really used" }
                }
            }
        })
        .sorted_by(move |a: &NodeView, b| a.held[dimension].cmp(&b.held[dimension]))
        .largest_first()
    };
    overview.settings.resources.dimensions().map(column).collect()
}

/// A column with what grants take of the resources, if these are counted.
pub(super) fn holding_column<'a, Row: 'a>(
    overview: &Overview,
    of: fn(&Row) -> &Holding,
) -> Option<Column<'a, Row>> {
    let column = Column::text("resources", "Share of resources", move |row: &Row| holding(of(row)))
        .sorted_by(move |a: &Row, b| of(a).dominant_share.total_cmp(&of(b).dominant_share))
        .largest_first();
    overview.settings.resources.are_counted().then_some(column)
}

/// The dominant share in percent, and the amounts.
pub(super) fn holding(holding: &Holding) -> Markup {
    let amounts = holding.held.brief();
    html! {
        @if amounts.is_empty() {
            span.note { "–" }
        } @else {
            (format!("{:.1} %", holding.dominant_share * 100.0))
            span.note { (amounts) }
        }
    }
}
