//! `corona pools`: who has how much, who may have how much, and who waits.
//!
//! No call of the protocol tells of pools, so they are read from the pages, this program's or the
//! original's.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use corona::cluster_manager::api::{Pool, PoolCounts, Pools};
use corona::engine::types::ResourceType;

use super::cluster::{WebArguments, block_on};
use super::console::{Console, Form, OutputArguments};
use super::java_pages;
use super::table::{Cell, Column, Table, Tone, number};
use super::web::{Answer, Web};

const EXAMPLES: &str = "\
A group is followed by its pools. A type is left out where a pool has nothing
of it and no limits. SHARE is what the pool is due now, in slots; MIN what it
is guaranteed; MAX what it may have at most.

Examples:
  One group, with the settings of its pools:
    corona pools --group research --output json

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// See the pools: slots that they hold, wait for and are due
///
/// Reads the pages at cm.server.http.address, of this cluster manager or of
/// the original.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Only this group
    #[arg(long)]
    group: Option<String>,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Reads and prints.
///
/// # Errors
/// When there are no pages, or none that can be read.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let (address, timeout) = arguments.web.find()?;
    let mut pools = block_on(read(&Web::new(address, timeout)))?;
    if let Some(group) = &arguments.group {
        pools.pools.retain(|pool| pool.group == *group);
    }
    match arguments.output.output {
        Form::Json => console.print_json(&pools)?,
        Form::Table if pools.pools.is_empty() => console.print("No pools.\n")?,
        Form::Table => {
            let text = table(&pools.pools).render(console, arguments.output.wide);
            console.print(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(web: &Web) -> anyhow::Result<Pools> {
    match web.api("/api/v1/pools").await? {
        Answer::Found(pools) => Ok(pools),
        Answer::NotFound(what) => bail!("{} tell of no pools: {what}", web.who()),
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
    if pools.iter().any(|pool| pool.redirected_to.is_some()) {
        columns.push(Column::text("REDIRECTED TO", 13));
    }
    let mut table = Table::new(&columns);
    for pool in pools {
        let mut lines = pool.types.iter().filter(|(_, counts)| says_something(counts));
        let counts_or_nothing = match lines.next() {
            Some(line) => counts(line),
            None => <[Cell; 6]>::default(),
        };
        let to = pool.redirected_to.as_ref().map(|to| format!("{}.{}", to.group, to.pool));
        let to = to.map(Cell::from);
        table.row(head(pool).into_iter().chain(counts_or_nothing).chain(to));
        for line in lines {
            table.row(
                [Cell::default(), Cell::default(), Cell::default()].into_iter().chain(counts(line)),
            );
        }
    }
    table
}

fn says_something(counts: &PoolCounts) -> bool {
    *counts != PoolCounts { waiting: counts.waiting.map(|_| 0), ..PoolCounts::default() }
}

/// Name, mode and sessions.
fn head(pool: &Pool) -> [Cell; 3] {
    let mode = pool.settings.as_ref().map(|settings| settings.mode.as_str());
    let name = match &pool.pool {
        None => Cell::new(pool.group.as_str(), Tone::Strong),
        Some(name) => format!("  {name}").into(),
    };
    [name, mode.unwrap_or_default().into(), pool.sessions.to_string().into()]
}

fn counts((kind, counts): (&ResourceType, &PoolCounts)) -> [Cell; 6] {
    let starved = counts.waiting.unwrap_or(counts.requested - counts.granted) > 0
        && counts.granted < counts.minimum;
    let granted = counts.granted.to_string();
    [
        kind.name().into(),
        Cell::new(granted, if starved { Tone::Bad } else { Tone::Plain }),
        number(counts.waiting),
        format!("{:.0}", counts.share.trunc()).into(),
        counts.minimum.to_string().into(),
        number(counts.maximum),
    ]
}
