//! Finished jobs, as the proxy job tracker lists them from their histories.

use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use corona::api::finished::{FinishedJob, FinishedJobDetail, FinishedJobs};
use corona::config::HostPort;
use serde::Serialize;

use super::cluster::block_on;
use super::times::Date;
use super::web::{Answer, Web};
use corona_terminal::table::{Cell, Column, Table, Tone};

/// Which finished jobs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Finished jobs")]
pub(super) struct Wanted {
    /// Only jobs of this user
    #[arg(long, requires = "finished")]
    user: Option<String>,

    /// Only jobs with this in their name
    #[arg(long, requires = "finished")]
    name: Option<String>,

    /// Only jobs of this pool
    #[arg(long, requires = "finished")]
    pool: Option<String>,

    /// Only jobs in this state: succeeded, failed, killed or incomplete
    #[arg(long, requires = "finished")]
    #[arg(value_parser = ["succeeded", "failed", "killed", "incomplete"])]
    state: Option<String>,

    /// Jobs at most, those that were submitted last
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "finished")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

/// A finished job.
#[derive(Debug, Serialize)]
pub(super) struct Finished {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<Facts>,
}

/// What the history of a finished job says of it.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    name: String,
    pool: String,
    submit_ms: i64,
    finish_ms: i64,
    maps: u32,
    reduces: u32,
    failed_maps: u32,
    failed_reduces: u32,
}

impl From<FinishedJob> for Finished {
    fn from(job: FinishedJob) -> Finished {
        let FinishedJob { id, name, user, pool, state, submit_ms, finish_ms, .. } = job;
        let FinishedJob { maps, reduces, failed_maps, failed_reduces, .. } = job;
        let facts =
            Facts { name, pool, submit_ms, finish_ms, maps, reduces, failed_maps, failed_reduces };
        Finished { id, state, user, history: Some(facts) }
    }
}

impl Wanted {
    /// Whether only histories can answer.
    pub(super) fn needs_histories(&self) -> bool {
        self.name.is_some() || self.pool.is_some()
    }

    /// Whether a job of a job tracker is one of these.
    pub(super) fn wants(&self, job: &Finished) -> bool {
        self.user.as_ref().is_none_or(|user| *user == job.user)
            && self.state.as_ref().is_none_or(|state| *state == job.state)
    }

    /// Jobs at most.
    pub(super) fn limit(&self) -> usize {
        self.limit.into()
    }

    /// The jobs that the proxy job tracker lists, and how many there are.
    ///
    /// # Errors
    /// It does not answer, or not with a list.
    pub(super) fn list(&self, from: &Web) -> anyhow::Result<(Vec<Finished>, usize)> {
        let limit = self.limit.to_string();
        let fields = [
            ("user", &self.user),
            ("name", &self.name),
            ("pool", &self.pool),
            ("state", &self.state),
            ("limit", &Some(limit)),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let path = format!("/api/v1/jobs?{}", query.finish());
        match block_on(from.api::<FinishedJobs>(&path))? {
            Answer::Found(found) => {
                Ok((found.jobs.into_iter().map(Finished::from).collect(), found.total))
            }
            Answer::NotFound(_) | Answer::NoApi => {
                Err(anyhow!("{} list no finished jobs", from.who()))
            }
        }
    }
}

/// The pages of the proxy job tracker at this address.
pub(super) fn pages(address: HostPort, timeout: Duration) -> Web {
    Web::of("proxy job tracker", address, timeout)
}

/// How a job has ended: none if its history does not say so.
pub(super) fn state(from: &Web, job: &str) -> Option<String> {
    match block_on(from.api::<FinishedJobDetail>(&format!("/api/v1/jobs/{job}"))) {
        Ok(Answer::Found(found)) if found.state != "incomplete" => Some(found.state.to_uppercase()),
        _ => None,
    }
}

/// The history of a job.
///
/// # Errors
/// The proxy job tracker does not answer, or has none.
pub(super) fn history(from: &Web, job: &str) -> anyhow::Result<String> {
    let text = block_on(from.page(&format!("/jobs/{job}/history")));
    text.with_context(|| format!("no history of {job}"))
}

/// The jobs for people. The narrow form fits in 80 columns: it has no numbers of tasks, and shorter times.
pub(super) fn table(jobs: &[Finished], narrow: bool) -> Table {
    let mut columns = vec![
        Column::whole("JOB"),
        Column::whole("STATE"),
        Column::text("USER", 5),
        Column::text("POOL", 5),
        Column::whole("SUBMITTED"),
        Column::number("SECONDS"),
    ];
    if !narrow {
        columns.extend([Column::number("MAPS"), Column::number("REDUCES")]);
    }
    columns.push(Column::text("NAME", 5));
    let mut table = Table::new(&columns);
    for job in jobs {
        let tone = match &*job.state {
            "failed" => Tone::Bad,
            "succeeded" => Tone::Plain,
            _ => Tone::Notable,
        };
        let of = |shown: fn(&Facts) -> String| job.history.as_ref().map(shown).unwrap_or_default();
        let submitted = match narrow {
            true => of(|facts| Date(facts.submit_ms).to_the_minute()),
            false => of(|facts| Date(facts.submit_ms).to_string()),
        };
        let mut row: Vec<Cell> = vec![
            job.id.clone().into(),
            Cell::new(job.state.clone(), tone),
            job.user.clone().into(),
            of(|facts| facts.pool.clone()).into(),
            submitted.into(),
            of(seconds).into(),
        ];
        if !narrow {
            row.push(of(|facts| facts.maps.to_string()).into());
            row.push(of(|facts| facts.reduces.to_string()).into());
        }
        row.push(of(|facts| facts.name.clone()).into());
        table.row(row);
    }
    table
}

/// From the submission to the end; nothing for a job without an end.
fn seconds(facts: &Facts) -> String {
    let took_ms = facts.finish_ms - facts.submit_ms;
    if facts.finish_ms == 0 { String::new() } else { (took_ms / 1000).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_terminal::console::Console;

    #[test]
    fn the_narrow_table_fits_in_80_columns() {
        let facts = Facts {
            name: "a long name of a job that counts words".to_owned(),
            pool: "group.longpool".to_owned(),
            submit_ms: 1_795_708_800_000,
            finish_ms: 1_795_795_200_000,
            maps: 100_000,
            reduces: 1_000,
            failed_maps: 0,
            failed_reduces: 0,
        };
        let job = Finished {
            id: "job_202611260930_0001".to_owned(),
            state: "incomplete".to_owned(),
            user: "annabella".to_owned(),
            history: Some(facts),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        console.width = Some(80);
        let jobs = [job];
        assert!(!table(&jobs, false).fits(&console, false));
        let text = table(&jobs, true).render(&console, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = text.lines().nth(1).unwrap();
        assert!(row.starts_with("job_202611260930_0001") && row.contains("86400"), "{text}");
    }
}
