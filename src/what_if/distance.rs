//! How much longer tasks take away from their preferred hosts, as far as a history shows it.

use crate::workload::Task;

/// So many tasks on either side show a difference, of one session or of all.
const LEAST_SEEN: usize = 10;
/// Factors below this are taken for chance, and those above the other one as well.
const SMALLEST: f64 = 1.02;
const LARGEST: f64 = 20.0;

/// What all sessions show together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Distance {
    /// How many times as long a task takes away from its hosts; none if that is not shown.
    factor: Option<f64>,
    near: usize,
    away: usize,
}

impl Distance {
    /// From the times of each session's tasks, each with whether it ran away from its hosts. Sessions have tasks of
    /// different sizes, so that each time counts as a part of the median of its own session near its hosts.
    pub(crate) fn learn(sessions: impl Iterator<Item = Vec<(i64, bool)>>) -> Distance {
        let (mut near, mut away) = (Vec::new(), Vec::new());
        for times in sessions {
            let usual = median(parts(&times, false, 1.0)).filter(|usual| *usual > 0.0);
            let Some(usual) = usual.filter(|_| times.iter().any(|(_, is_away)| *is_away)) else {
                continue;
            };
            near.extend(parts(&times, false, usual));
            away.extend(parts(&times, true, usual));
        }
        let (near_seen, away_seen) = (near.len(), away.len());
        Distance { factor: factor(near, away), near: near_seen, away: away_seen }
    }

    /// The factor of a session: its own if it has enough tasks of both sides, also where they show no difference, or that
    /// of all sessions.
    pub(crate) fn of_session(&self, times: &[(i64, bool)]) -> Option<f64> {
        let (near, away) = (parts(times, false, 1.0), parts(times, true, 1.0));
        if near.len().min(away.len()) < LEAST_SEEN { self.factor } else { factor(near, away) }
    }

    /// Gives a task that was seen on one side its length on the other one.
    pub(crate) fn apply(task: &mut Task, factor: f64, is_away: bool) {
        let seen = task.ms as f64;
        match is_away {
            true => (task.ms, task.away_ms) = ((seen / factor).round() as i64, Some(task.ms)),
            false => task.away_ms = Some((seen * factor).round() as i64),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let Distance { near, away, .. } = self;
        match self.factor {
            Some(factor) => format!(
                "A task takes {factor:.2} times as long where none of its preferred hosts is: so did {away} tasks beside \
                 {near} on preferred hosts of the same sessions. Sessions with at least {LEAST_SEEN} of both have a \
                 factor of their own."
            ),
            None if *away < LEAST_SEEN || *near < LEAST_SEEN => {
                "A task takes as long on any host: too few are known to have run on their preferred hosts, or away from \
                 them."
                    .to_owned()
            }
            None => format!(
                "A task takes as long on any host: {away} away from their preferred hosts took less than {SMALLEST} or more \
                 than {LARGEST} times as long as {near} on these in the same sessions, which is taken for chance."
            ),
        }
    }
}

fn parts(times: &[(i64, bool)], of_away: bool, usual: f64) -> Vec<f64> {
    let side = times.iter().filter(|(_, is_away)| *is_away == of_away);
    side.map(|(ms, _)| *ms as f64 / usual).collect()
}

fn factor(near: Vec<f64>, away: Vec<f64>) -> Option<f64> {
    if near.len() < LEAST_SEEN || away.len() < LEAST_SEEN {
        return None;
    }
    let factor = median(away)? / median(near).filter(|near| *near > 0.0)?;
    (SMALLEST..=LARGEST).contains(&factor).then_some(factor)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
