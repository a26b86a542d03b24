//! `corona pools`: the slots and limits of pools, and their pending requests.
//!
//! No call of the protocol returns pools, so they are read from the pages, this program's or the
//! original's.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use corona::api::cluster::{ByType, Pool, PoolCounts, Pools};
use corona::engine::types::ResourceType;

use super::cluster::{WebArguments, block_on};
use super::java_pages;
use super::pool_explain;
use super::pool_import::Import;
use super::pool_info;
use super::resources;
use super::watch::WatchArguments;
use super::web::{Answer, Web};
use corona_terminal::console::{Console, OutputArguments};
use corona_terminal::table::{Cell, Column, Table, Tone, number};

const EXAMPLES: &str = "\
A group is followed by the queues in it. Types that a pool neither uses nor limits are
left out. SHARE is the number of slots that the pool is due now, MIN its
guaranteed slots, MAX its limit.

Examples:
  One group:
    corona pools --group research
  A pool with its settings and its sessions:
    corona pools info research.nightly
  Watch the pools while you change a file:
    corona pools list --watch

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// List and describe pools: slots that they hold, wait for and are due
///
/// Reads the pages at cm.server.http.address, of this cluster manager or of
/// the original. Without an action it lists the pools.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(super) struct Arguments {
    #[command(flatten)]
    list: List,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    List(List),
    #[command(aliases = ["describe", "show"])]
    Info(Info),
    /// Say why a queue has the slots that it has, level by level
    Explain(Info),
    Import(Import),
}

/// List groups and pools
#[derive(Args, Clone, Debug)]
struct List {
    /// Only this group
    #[arg(long)]
    group: Option<String>,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Describe a pool or a group: settings, limits, slots, sessions
#[derive(Args, Clone, Debug)]
struct Info {
    /// The pool, or a group; its path where groups are in groups
    #[arg(value_name = "GROUP[.POOL]")]
    pool: String,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Reads and prints.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Some(Action::Info(Info { pool, output, watch, web })) => {
            let web = web.find()?;
            watch.run(console, |console| pool_info::show(&web, &pool, output, console))?;
        }
        Some(Action::Explain(Info { pool, output, watch, web })) => {
            let web = web.find()?;
            watch.run(console, |console| pool_explain::show(&web, &pool, output, console))?;
        }
        Some(Action::Import(import)) => import.run(console)?,
        Some(Action::List(list)) => list.run(console)?,
        None => arguments.list.run(console)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl List {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let List { group, output, watch, web } = self;
        let web = web.find()?;
        watch.run(console, |console| {
            let mut pools = block_on(read(&web))?;
            if let Some(group) = &group {
                pools.pools.retain(|pool| pool.group == *group);
            }
            output.show(console, &pools, |console| match pools.pools.is_empty() {
                true => "No pools.\n".to_owned(),
                false => table(&pools.pools).render(console, output.wide),
            })
        })
    }
}

pub(super) async fn read(web: &Web) -> anyhow::Result<Pools> {
    match web.api("/api/v1/pools").await? {
        Answer::Found(pools) => Ok(pools),
        Answer::NotFound(what) => bail!("{} list no pools: {what}", web.who()),
        Answer::NoApi => java_pages::pools(web).await,
    }
}

fn table(pools: &[Pool]) -> Table {
    let mut columns = vec![
        Column::text("POOL", 12),
        Column::whole("MODE"),
        Column::number("SESSIONS"),
        Column::whole("TYPE"),
        Column::number("HOLDS"),
        Column::number("WAITS"),
        Column::number("SHARE"),
        Column::number("MIN"),
        Column::number("MAX"),
    ];
    let is_counted = pools.iter().any(|pool| pool.dominant_share.is_some());
    if is_counted {
        columns.insert(COLUMNS_OF_HEAD, Column::number("RESOURCES"));
    }
    if pools.iter().any(|pool| pool.redirected_to.is_some()) {
        columns.push(Column::text("REDIRECTED TO", 13));
    }
    let mut table = Table::new(&columns);
    for (pool, shares) in pools.iter().zip(whole_shares(pools)) {
        let mut lines = pool.types.iter().filter(|(_, counts)| says_something(counts));
        let counts = |line: (&ResourceType, &PoolCounts)| {
            counts(line, shares.get(line.0).copied().unwrap_or_default())
        };
        let counts_or_nothing = match lines.next() {
            Some(line) => counts(line),
            None => <[Cell; 6]>::default(),
        };
        let to = pool.redirected_to.as_ref().map(|to| format!("{}.{}", to.group, to.pool));
        let to = to.map(Cell::from);
        let share = || number(pool.dominant_share.map(resources::percent));
        let share = is_counted.then(share);
        table.row(head(pool).into_iter().chain(share).chain(counts_or_nothing).chain(to));
        let before = COLUMNS_OF_HEAD + usize::from(is_counted);
        for line in lines {
            table.row(std::iter::repeat_n(Cell::default(), before).chain(counts(line)));
        }
    }
    table
}

pub(super) fn says_something(counts: &PoolCounts) -> bool {
    *counts != PoolCounts { waiting: counts.waiting.map(|_| 0), ..PoolCounts::default() }
}

/// The names from an outermost group to a queue, with dots between.
pub(super) fn path(queue: &Pool) -> String {
    match (&queue.queue, &queue.pool) {
        (Some(queue), _) => queue.path.clone(),
        (None, Some(pool)) => format!("{}.{pool}", queue.group),
        (None, None) => queue.group.clone(),
    }
}

/// Whether a queue is meant by its path, or by its innermost group and its pool.
pub(super) fn is_named(queue: &Pool, name: &str) -> bool {
    let short = match &queue.pool {
        Some(pool) => format!("{}.{pool}", queue.group) == name,
        None => queue.group == name,
    };
    short || path(queue) == name
}

const COLUMNS_OF_HEAD: usize = 3;

/// Name, mode and sessions.
fn head(pool: &Pool) -> [Cell; COLUMNS_OF_HEAD] {
    let mode = pool.settings.as_ref().map(|settings| settings.mode.as_str());
    let depth = path(pool).matches('.').count();
    let name = match &pool.pool {
        None => Cell::new(format!("{}{}", "  ".repeat(depth), pool.group), Tone::Strong),
        Some(name) => format!("{}{name}", "  ".repeat(depth.max(1))).into(),
    };
    [name, mode.unwrap_or_default().into(), pool.sessions.to_string().into()]
}

fn counts((kind, counts): (&ResourceType, &PoolCounts), share: i64) -> [Cell; 6] {
    let starved = counts.waiting.unwrap_or(counts.requested - counts.granted) > 0
        && counts.granted < counts.minimum;
    let granted = counts.granted.to_string();
    [
        kind.name().into(),
        Cell::new(granted, if starved { Tone::Bad } else { Tone::Plain }),
        number(counts.waiting),
        share.to_string().into(),
        counts.minimum.to_string().into(),
        number(counts.maximum),
    ]
}

/// The shares of groups and pools in whole slots. A group is followed by its pools, whose shown
/// shares add up to the group's.
fn whole_shares(pools: &[Pool]) -> Vec<ByType<i64>> {
    let mut whole = Vec::with_capacity(pools.len());
    for family in pools.chunk_by(|a, b| a.group == b.group) {
        let mut shares = vec![ByType::new(); family.len()];
        for kind in ResourceType::ALL {
            let of = |pool: &Pool| pool.types.get(&kind).map_or(0.0, |counts| counts.share);
            let exact: Vec<f64> = family.iter().map(of).collect();
            let rounded = match family.first() {
                Some(group) if group.pool.is_none() => whole_shares_of(&exact),
                _ => exact.iter().map(|share| share.round() as i64).collect(),
            };
            for (shares, share) in shares.iter_mut().zip(rounded) {
                shares.insert(kind, share);
            }
        }
        whole.extend(shares);
    }
    whole
}

/// Rounds the share of a group and those of its pools, which follow it. The slots that rounding
/// down leaves over go to the pools that lose most by it. Where the shares of the pools do not add
/// up to the group's, as when their minima exceed it, each is rounded alone.
fn whole_shares_of(exact: &[f64]) -> Vec<i64> {
    let mut whole: Vec<i64> = exact.iter().map(|share| share.round() as i64).collect();
    let (Some((group, members)), Some(due)) = (exact.split_first(), whole.first().copied()) else {
        return whole;
    };
    let sum: f64 = members.iter().sum();
    if (sum - group).abs() >= 0.5 {
        return whole;
    }
    let mut by_loss: Vec<usize> = (0..members.len()).collect();
    by_loss.sort_by(|a, b| members[*b].fract().total_cmp(&members[*a].fract()));
    let mut left = due - members.iter().map(|share| share.floor() as i64).sum::<i64>();
    for member in by_loss {
        let extra = left.clamp(0, 1);
        whole[member + 1] = members[member].floor() as i64 + extra;
        left -= extra;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_add_up() {
        for (exact, whole) in [
            (&[0.98, 0.98][..], &[1, 1][..]),
            (&[3.99, 0.0, 4.0], &[4, 0, 4]),
            (&[3.98, 1.99, 1.99], &[4, 2, 2]),
            (&[1.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], &[1, 1, 0, 0]),
            (&[10.0, 2.5, 2.5, 5.0], &[10, 3, 2, 5]),
            (&[10.0, 3.3, 3.3, 3.4], &[10, 3, 3, 4]),
            // Minima beyond the group's share, and a group of a Java cluster manager.
            (&[2.0, 3.0, 3.0], &[2, 3, 3]),
            (&[0.0, 1.0], &[0, 1]),
            (&[0.0], &[0]),
            (&[], &[]),
        ] {
            assert_eq!(whole_shares_of(exact), whole, "{exact:?}");
        }
    }
}
