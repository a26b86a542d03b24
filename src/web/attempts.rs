//! Attempts to enter the token: one at a time for a peer, with a pause after each wrong one that
//! doubles. Other peers do not wait. It knows no token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use corona_net::Backoff;

/// The pause after the first wrong attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// A quiet peer is forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Peers that are remembered.
const MOST_PEERS: usize = 10_000;

/// The wrong attempts of peers.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, Wrong>>);

#[derive(Clone, Debug)]
struct Wrong {
    attempts: u32,
    pauses: Backoff,
    /// No attempt is looked at before this.
    until: Instant,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It was wrong; so many of this peer were.
    Wrong(u32),
    /// It was not looked at: an earlier one was wrong a short while ago.
    TooSoon,
}

impl Attempts {
    /// Checks an attempt of a peer, if it is time for one. Addresses that are one peer are given as one.
    pub fn check(
        &self,
        peer: IpAddr,
        now: Instant,
        is_right: impl FnOnce() -> bool,
    ) -> Result<(), Failed> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = peers.get(&peer).filter(|wrong| now < wrong.until + FORGOTTEN_AFTER).cloned();
        if earlier.as_ref().is_some_and(|wrong| now < wrong.until) {
            return Err(Failed::TooSoon);
        }
        if is_right() {
            peers.remove(&peer);
            return Ok(());
        }
        if peers.len() >= MOST_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, wrong| now < wrong.until);
            if peers.len() >= MOST_PEERS {
                return Err(Failed::TooSoon);
            }
        }
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut wrong = earlier.unwrap_or(Wrong { attempts: 0, pauses, until: now });
        let attempts = wrong.attempts.saturating_add(1);
        (wrong.attempts, wrong.until) = (attempts, now + wrong.pauses.pause());
        peers.insert(peer, wrong);
        Err(Failed::Wrong(attempts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_attempts_cost_their_peer_time_and_nobody_else() {
        let attempts = Attempts::default();
        let (attacker, innocent) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let start = Instant::now();
        let mut now = start;
        for (number, pause) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 64), (8, 64)]
        {
            assert_eq!(attempts.check(attacker, now, || false), Err(Failed::Wrong(number)));
            for _ in 0..200 {
                let unseen = || panic!("it is not looked at");
                assert_eq!(attempts.check(attacker, now, unseen), Err(Failed::TooSoon));
            }
            assert_eq!(attempts.check(innocent, now, || true), Ok(()));
            now += Duration::from_secs(pause);
        }
        assert_eq!(attempts.check(attacker, now, || true), Ok(()));
        assert_eq!(attempts.check(attacker, now, || false), Err(Failed::Wrong(1)), "forgiven");
    }
}
