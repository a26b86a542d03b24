//! Names that differ from one run to the next: session ids and the addresses of session drivers.
//!
//! A session id is `<start>.<number>`, where `<start>` is the minute in which the cluster manager
//! started (spec: cluster-manager/02 §3.1). It also occurs inside other texts: job ids, paths, web
//! addresses. The directory of a session's history is derived from its id. Knows no bytes of the wire.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The live names of recorded sessions and addresses.
#[derive(Clone, Debug)]
pub(super) struct LiveNames {
    /// Sessions to a directory of histories: `corona.history.max.per.dir`, on both sides.
    sessions_per_log_dir: i32,
    /// Start stamps whose recorded numbers are not 1, 2, 3 and so on.
    gappy: HashSet<String>,
    /// Recorded start stamps whose sessions have other numbers in the live run.
    renumbered: HashSet<String>,
    /// Whole session ids, from recorded to live.
    sessions: HashMap<String, String>,
    /// The same, from live to recorded.
    recorded: HashMap<String, String>,
    /// Start stamps, from recorded to live.
    stamps: HashMap<String, String>,
    /// Addresses of session drivers, from recorded to live.
    drivers: HashMap<(String, i32), (String, i32)>,
}

/// The sessions to a directory if no configuration sets another number.
const USUAL_SESSIONS_PER_LOG_DIR: i32 = 1000;

/// Added to the number of an id that the recorded manager did not hand out, where the live run
/// numbers sessions otherwise: the number itself may belong to another session there.
const ELSEWHERE: i32 = 1_000_000_000;

impl Default for LiveNames {
    fn default() -> LiveNames {
        LiveNames::new(None, [])
    }
}

impl LiveNames {
    /// For a recording in which these ids are handed out.
    pub(super) fn new<'a>(
        sessions_per_log_dir: Option<i32>,
        handed_out: impl IntoIterator<Item = &'a str>,
    ) -> LiveNames {
        let mut numbers: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (stamp, number) in handed_out.into_iter().filter_map(split) {
            // A number that is too large is a gap as well.
            numbers.entry(stamp).or_default().insert(number.parse().unwrap_or(u64::MAX));
        }
        let gappy = numbers.iter().filter(|(_, numbers)| {
            numbers.last().is_some_and(|last| *last != numbers.len() as u64)
        });
        LiveNames {
            sessions_per_log_dir: sessions_per_log_dir.unwrap_or(USUAL_SESSIONS_PER_LOG_DIR),
            gappy: gappy.map(|(stamp, _)| (*stamp).to_owned()).collect(),
            renumbered: HashSet::new(),
            sessions: HashMap::new(),
            recorded: HashMap::new(),
            stamps: HashMap::new(),
            drivers: HashMap::new(),
        }
    }

    /// The recorded manager handed out one id where the live one handed out another. False when
    /// one of them is no session id.
    pub(super) fn session(&mut self, recorded: &str, live: &str) -> bool {
        let (Some((old, old_number)), Some((new, new_number))) = (split(recorded), split(live))
        else {
            return false;
        };
        if self.gappy.contains(old) || old_number != new_number {
            self.renumbered.insert(old.to_owned());
        }
        self.stamps.insert(old.to_owned(), new.to_owned());
        self.sessions.insert(recorded.to_owned(), live.to_owned());
        self.recorded.insert(live.to_owned(), recorded.to_owned());
        true
    }

    /// Whether the live id of a recorded session is known, or is the client's own choice.
    pub(super) fn is_known(&self, recorded: &str) -> bool {
        self.sessions.contains_key(recorded) || split(recorded).is_none()
    }

    /// A session driver listens at another address than the recorded one.
    pub(super) fn driver(&mut self, recorded: (String, i32), live: (String, i32)) {
        self.drivers.insert(recorded, live);
    }

    /// The live address of a recorded session driver.
    pub(super) fn live_driver(&self, host: &str, port: i32) -> Option<&(String, i32)> {
        self.drivers.get(&(host.to_owned(), port))
    }

    /// The recorded id of a live session; the id itself if it was never mapped, as with a client's
    /// own choice.
    pub(super) fn recorded_session(&self, live: &str) -> String {
        if let Some(recorded) = self.recorded.get(live) {
            return recorded.clone();
        }
        let old = split(live).and_then(|(stamp, number)| {
            let (old, _) = self.stamps.iter().find(|(_, new)| *new == stamp)?;
            let moved = number.parse::<i32>().ok().filter(|_| self.renumbered.contains(old));
            let moved = moved.and_then(|number| number.checked_sub(ELSEWHERE));
            match moved.filter(|number| *number >= 0) {
                Some(number) => Some(format!("{old}.{number}")),
                None => Some(format!("{old}.{number}")),
            }
        });
        old.unwrap_or_else(|| live.to_owned())
    }

    /// A recorded text as the live run has it: ids and stamps within it are replaced.
    pub(super) fn live_text(&self, recorded: &str) -> String {
        let mut live = String::with_capacity(recorded.len());
        let mut rest = recorded;
        while let Some((before, stamp, after)) = next_stamp(rest) {
            live.push_str(before);
            let number = after.strip_prefix('.').map_or("", leading_digits);
            if number.is_empty() {
                live.push_str(self.stamps.get(stamp).map_or(stamp, String::as_str));
                rest = after;
            } else {
                live.push_str(&self.live_session(stamp, number));
                rest = after.get(1 + number.len()..).unwrap_or_default();
            }
        }
        live.push_str(rest);
        live
    }

    /// The recorded directory of a session's history as the live run has it. `session` is the
    /// recorded id. A directory that does not follow from the id keeps its number.
    /// Spec: cluster-manager/05 §3.1.
    pub(super) fn live_log_dir(&self, session: &str, recorded: &str) -> String {
        let translated = || {
            let (parent, name) = recorded.rsplit_once('/')?;
            let ((stamp, directory), (own, number)) = (split(name)?, split(session)?);
            let live = self.live_session(own, number);
            let (live_stamp, live_number) = split(&live)?;
            let follows = stamp == own && self.log_dir_of(number) == directory.parse().ok();
            let live_directory = match self.log_dir_of(live_number).filter(|_| follows) {
                Some(directory) => directory.to_string(),
                None => directory.to_owned(),
            };
            let live_stamp =
                if stamp == own { live_stamp } else { self.stamps.get(stamp)?.as_str() };
            Some(format!("{}/{live_stamp}.{live_directory}", self.live_text(parent)))
        };
        translated().unwrap_or_else(|| self.live_text(recorded))
    }

    fn log_dir_of(&self, number: &str) -> Option<i32> {
        number.parse::<i32>().ok()?.checked_div(self.sessions_per_log_dir)
    }

    /// The live id of a recorded session. One that was not handed out in the recording keeps its
    /// number only where that cannot be the number of another session.
    fn live_session(&self, stamp: &str, number: &str) -> String {
        let whole = format!("{stamp}.{number}");
        if let Some(live) = self.sessions.get(&whole) {
            return live.clone();
        }
        let Some(live_stamp) = self.stamps.get(stamp) else { return whole };
        let parsed = number.parse::<i32>().ok().filter(|_| self.renumbered.contains(stamp));
        match parsed.and_then(|number| number.checked_add(ELSEWHERE)) {
            Some(moved) => format!("{live_stamp}.{moved}"),
            None => format!("{live_stamp}.{number}"),
        }
    }
}

/// Digits of a start stamp, `yyyyMMddHHmm`.
const STAMP_DIGITS: usize = 12;

/// Splits a session id into its stamp and its number.
fn split(id: &str) -> Option<(&str, &str)> {
    let (stamp, number) = id.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (stamp.len() == STAMP_DIGITS && digits(stamp) && digits(number)).then_some((stamp, number))
}

/// The first run of exactly as many digits as a stamp has: the text before it, the run, and the
/// rest.
fn next_stamp(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let start = from + text.get(from..)?.find(|c: char| c.is_ascii_digit())?;
        let digits = leading_digits(text.get(start..)?);
        let end = start + digits.len();
        if digits.len() == STAMP_DIGITS {
            return Some((text.get(..start)?, digits, text.get(end..)?));
        }
        from = end;
    }
}

fn leading_digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> LiveNames {
        let mut names = LiveNames::default();
        names.session("202611210043.1", "203001010000.7");
        names.session("202611210043.12", "203001010000.8");
        names
    }

    #[test]
    fn ids_are_replaced_wherever_they_stand() {
        for (recorded, live) in [
            ("202611210043.1", "203001010000.7"),
            ("202611210043.12", "203001010000.8"),
            ("job_202611210043.1_0001", "job_203001010000.7_0001"),
            ("?a=202611210043.12&b=202611210043.1", "?a=203001010000.8&b=203001010000.7"),
            // It was not handed out, and its number may be another session's.
            ("202611210043.3", "203001010000.1000000003"),
            ("202611210043.2147483647", "203001010000.2147483647"),
            ("at 202611210043", "at 203001010000"),
            ("at 202611210043.", "at 203001010000."),
            // Other digits stay as they are.
            ("127.0.0.1:40759", "127.0.0.1:40759"),
            ("1202611210043.1", "1202611210043.1"),
            ("209911210043.1", "209911210043.1"),
            ("", ""),
        ] {
            assert_eq!(names().live_text(recorded), live, "{recorded}");
        }
    }

    #[test]
    fn live_ids_lead_back() {
        assert_eq!(names().recorded_session("203001010000.8"), "202611210043.12");
        assert_eq!(names().recorded_session("203001010000.99"), "202611210043.99");
        assert_eq!(names().recorded_session("203001010000.1000000003"), "202611210043.3");
        assert_eq!(names().recorded_session("bogus"), "bogus");
    }

    #[test]
    fn ids_that_were_not_handed_out_keep_their_numbers_if_all_others_do() {
        let handed_out = ["202611210043.1", "202611210043.2"];
        let mut names = LiveNames::new(None, handed_out);
        names.session("202611210043.1", "203001010000.1");
        assert_eq!(names.live_text("202611210043.3"), "203001010000.3");

        // Clients that were not recorded have the first ids.
        let mut names = LiveNames::new(None, ["202611210043.1", "202611210043.3"]);
        names.session("202611210043.1", "203001010000.1");
        assert_eq!(names.live_text("202611210043.2"), "203001010000.1000000002");
        names.session("202611210043.3", "203001010000.2");
        assert_eq!(names.live_text("202611210043.3"), "203001010000.2");
    }

    #[test]
    fn the_directory_of_a_history_follows_from_the_live_id() {
        let mut names = LiveNames::new(Some(100), ["202611210043.2001", "202611210043.20"]);
        names.session("202611210043.2001", "203001010000.7");
        names.session("202611210043.2345", "203001010000.345");
        names.session("202611210043.20", "203001010000.8");
        for (session, recorded, live) in [
            ("202611210043.2001", "/tmp/history/202611210043.20", "/tmp/history/203001010000.0"),
            ("202611210043.2345", "/tmp/history/202611210043.23", "/tmp/history/203001010000.3"),
            // A path that does not follow from the recorded id is not expected to follow from the live id.
            ("202611210043.2345", "/tmp/history/202611210043.20", "/tmp/history/203001010000.20"),
            ("202611210043.2345", "/tmp/history/202611210044.23", "/tmp/history/202611210044.23"),
            ("202611210043.5", "/tmp/202611210043.2001/x", "/tmp/203001010000.7/x"),
            ("mine", "/tmp/history/202611210043.20", "/tmp/history/203001010000.8"),
        ] {
            assert_eq!(names.live_log_dir(session, recorded), live, "{session} {recorded}");
        }
    }
}
