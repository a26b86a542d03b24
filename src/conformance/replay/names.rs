//! Names that differ from one run to the next: session ids and the addresses of session drivers.
//!
//! A session id is `<start>.<number>`, where `<start>` is the minute in which the cluster manager
//! started (spec: cluster-manager/02 §3.1). It also stands inside other texts: job ids, paths, web
//! addresses. Knows no bytes of the wire.

use std::collections::HashMap;

/// What recorded names are called in the run under test.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Whole session ids, from recorded to live.
    sessions: HashMap<String, String>,
    /// The same, from live to recorded.
    recorded: HashMap<String, String>,
    /// Start stamps, from recorded to live.
    stamps: HashMap<String, String>,
    /// Addresses of session drivers, from recorded to live.
    drivers: HashMap<(String, i32), (String, i32)>,
}

impl Names {
    /// The recorded manager handed out one id where the live one handed out another. False when
    /// one of them is no session id.
    pub(super) fn session(&mut self, recorded: &str, live: &str) -> bool {
        let (Some((old, _)), Some((new, _))) = (split(recorded), split(live)) else {
            return false;
        };
        self.stamps.insert(old.to_owned(), new.to_owned());
        self.sessions.insert(recorded.to_owned(), live.to_owned());
        self.recorded.insert(live.to_owned(), recorded.to_owned());
        true
    }

    /// A session driver listens at another address than the recorded one.
    pub(super) fn driver(&mut self, recorded: (String, i32), live: (String, i32)) {
        self.drivers.insert(recorded, live);
    }

    /// The live address of a recorded session driver.
    pub(super) fn live_driver(&self, host: &str, port: i32) -> Option<&(String, i32)> {
        self.drivers.get(&(host.to_owned(), port))
    }

    /// The recorded id of a live session; the id itself when it was never mapped, which is what a
    /// client's own choice looks like.
    pub(super) fn recorded_session(&self, live: &str) -> String {
        if let Some(recorded) = self.recorded.get(live) {
            return recorded.clone();
        }
        let old = split(live).and_then(|(stamp, number)| {
            let (old, _) = self.stamps.iter().find(|(_, new)| *new == stamp)?;
            Some(format!("{old}.{number}"))
        });
        old.unwrap_or_else(|| live.to_owned())
    }

    /// A recorded text as the live run has it: ids and stamps within it are replaced.
    pub(super) fn live_text(&self, recorded: &str) -> String {
        let mut live = String::with_capacity(recorded.len());
        let mut rest = recorded;
        while let Some((before, stamp, after)) = next_stamp(rest) {
            live.push_str(before);
            rest = after;
            let number = after.strip_prefix('.').map_or("", leading_digits);
            let whole = format!("{stamp}.{number}");
            if let Some(session) = self.sessions.get(&whole) {
                live.push_str(session);
                rest = after.get(1 + number.len()..).unwrap_or_default();
            } else {
                live.push_str(self.stamps.get(stamp).map_or(stamp, String::as_str));
            }
        }
        live.push_str(rest);
        live
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

/// The first run of exactly as many digits as a stamp has: what is before it, it, and the rest.
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

    fn names() -> Names {
        let mut names = Names::default();
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
            // Neither was handed out: only the stamp is known.
            ("202611210043.3", "203001010000.3"),
            ("/sessions/202611210043.0", "/sessions/203001010000.0"),
            ("at 202611210043", "at 203001010000"),
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
        assert_eq!(names().recorded_session("bogus"), "bogus");
    }
}
