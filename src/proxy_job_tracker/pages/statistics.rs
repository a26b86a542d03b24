//! What job trackers have reported of finished jobs, added up.

use corona_web::table::Head::{Number, Text};
use corona_web::table::simple_table;
use corona_web::units::{Count, Name, plural};
use maud::{Markup, html};

use super::{Parameters, ProxyContext, frame_in};
use crate::metrics::counters;
use crate::statistics::Sum;

/// Statistics by which pools are compared, by the original's names.
const OF_POOLS: [(&str, &str); 6] = [
    ("maps_launched", "Maps launched"),
    ("maps_completed", "Maps completed"),
    ("maps_failed", "Maps failed"),
    ("reduces_launched", "Reduces launched"),
    ("reduces_completed", "Reduces completed"),
    ("reduces_failed", "Reduces failed"),
];

pub(super) fn page(shared: &ProxyContext, query: &Parameters) -> Markup {
    let sums = shared.statistics.sums();
    let pool = query.text("pool");
    let chosen = match pool {
        Some(pool) => sums.pools.get(pool),
        None => Some(&sums.all),
    };
    let content = html! {
        h1 { "Statistics of finished jobs" }
        p {
            "Sums of what job trackers have reported since this program was started: "
            (plural(sums.jobs, "job", "jobs")) ", and errors of tasks in "
            (plural(sums.errors, "report", "reports"))
            ". Names are those of the original; "
            a href="/metrics" { "/metrics" } " has them for Prometheus."
        }
        @if sums.left_out > 0 {
            p.problem.warn { (Count(sums.left_out)) " counters or pools found no room and are left out." }
        }
        @match (pool, chosen) {
            (Some(pool), Some(sum)) => {
                p.crumbs { a href="/statistics" { "All pools" } }
                (table(sum, &format!("Pool {pool}")))
            },
            (Some(pool), None) => { p.problem.warn { "No job of the pool " (pool) " has been reported." } },
            (None, _) => { (pools(&sums.pools)) (table(&sums.all, "All jobs")) },
        }
    };
    frame_in(shared, Some("/statistics"), "Statistics", &content)
}

fn pools(pools: &std::collections::BTreeMap<String, Sum>) -> Markup {
    let address = |pool: &str| Parameters::default().with(&[("pool", pool)]).address("/statistics");
    html! {
        div.table-head {
            h2 { "Pools" }
            p.count { (plural(pools.len() as u64, "pool", "pools")) }
        }
        div.scroll {
            table.rows #pools {
                thead { tr { th { "Pool" } @for (_, title) in OF_POOLS { th.n { (title) } } } }
                tbody {
                    @for (pool, sum) in pools {
                        tr {
                            th scope="row" { a href=(address(pool)) { (Name(pool)) } }
                            @for (name, title) in OF_POOLS {
                                td.n data-label=(title) { (Count(sum.stats.get(name).copied().unwrap_or(0))) }
                            }
                        }
                    }
                }
            }
            @if pools.is_empty() { p.empty { "No job tracker has reported a job yet." } }
        }
    }
}

fn table(sum: &Sum, title: &str) -> Markup {
    let stats = sum.stats.iter().map(|(name, value)| ((*name).to_owned(), *value));
    let all: Vec<(String, i64)> = stats.chain(counters(sum)).collect();
    html! {
        div.table-head {
            h2 { (title) }
            p.count { (plural(all.len() as u64, "sum", "sums")) }
        }
        div.scroll {
            (simple_table(Some("sums"), &[Text("Name"), Number("Sum")], &html! {
                @for (name, value) in &all {
                    tr { th scope="row" { span.long { (name) } } td.n data-label="Sum" { (Count(*value)) } }
                }
            }))
            @if all.is_empty() { p.empty { "Nothing has been reported." } }
        }
    }
}
