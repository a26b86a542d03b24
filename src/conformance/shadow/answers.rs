//! Compares the primary's answers with our own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::comparison::{Comparison, PutOff, UNFOLLOWED};
use super::connections::{OurAnswer, PendingCall};
use super::counts::LONGEST_ANSWER;
use super::notices::{HOLD, OUT_OF_REACH};
use crate::answers::{
    Verdict, answer_instead_of_close, by_handle, is_unknown_session, same_body, show,
};
use crate::inspect::{Shape, body_text};
use crate::report::{Finding, Rule, Subject};
use corona_engine::Observed;
use corona_model::types::{ResourceType, SessionStatus};
use corona_wire::value::{Message, MessageKind, Value};

impl Comparison {
    /// The primary has answered a call. A list of sessions that differs is judged once more when decisions
    /// that were on their way have come.
    pub(super) fn compare(&mut self, call: PendingCall, theirs: Message) {
        let answered_at = self.now;
        if let (true, OurAnswer::Message(ours)) = (call.call.name == "getSessions", &call.ours)
            && self.put_off.len() < MAX_PUT_OFF
        {
            let ours = ours.message.decode();
            if let Judged::Other(None) = self.judge(&call, &theirs, &ours, answered_at) {
                return self.put_off.push_back(PutOff { answered_at, call, theirs });
            }
        }
        self.conclude(&call, &theirs, answered_at);
    }

    /// Judges answers that were put off for long enough, or all.
    pub(super) fn judge_put_off(&mut self, all: bool) {
        let is_due = |now, first: &PutOff| all || first.answered_at.saturating_add(HOLD) <= now;
        while self.put_off.front().is_some_and(|first| is_due(self.now, first)) {
            let Some(PutOff { answered_at, call, theirs }) = self.put_off.pop_front() else {
                return;
            };
            self.conclude(&call, &theirs, answered_at);
        }
    }

    fn conclude(&mut self, pending: &PendingCall, theirs: &Message, answered_at: Duration) {
        let method = pending.call.name.as_str();
        let handle = pending.handle.as_deref();
        let ours = match &pending.ours {
            OurAnswer::NotCompared(reason) => {
                let ended = method == "sessionEnd" && theirs.kind == MessageKind::Reply;
                if let Some(handle) = handle
                    && (ended || is_unknown_session(theirs, handle))
                {
                    self.unfollowed.remove(handle);
                }
                return self.not_compared(method, reason);
            }
            OurAnswer::Close => {
                let closed = "the connection is closed";
                return self.answer_differs(pending, None, show(theirs), closed.to_owned());
            }
            OurAnswer::Message(ours) => &ours.message.decode(),
        };
        match self.judge(pending, theirs, ours, answered_at) {
            Judged::Equal => self.stats.call(method).equal += 1,
            Judged::NotCompared(reason) => self.not_compared(method, reason),
            Judged::Other(rule) => {
                let at = self.now;
                let place = format!("{method} {}", theirs.seqid);
                let both = (show(theirs), show(ours));
                let found = Finding::of_words(at, Subject::Call(method.to_owned()), place, both)
                    .with_messages(theirs, ours);
                let arguments = body_text(&pending.call.decode(), Shape::Short);
                self.call_differs(method, Finding { rule, arguments, ..found });
            }
        }
        if method == "sessionStart"
            && theirs.body.as_ref().is_ok_and(|body| body.field("success").is_none())
            && let Some(handle) = handle
        {
            self.ends_here(&handle.into());
        }
    }

    /// The primary has closed the connection instead of answering.
    pub(super) fn compare_close(&mut self, pending: &PendingCall) {
        let method = pending.call.name.as_str();
        let closed = || "the connection is closed".to_owned();
        match &pending.ours {
            OurAnswer::NotCompared(reason) => self.not_compared(method, reason),
            OurAnswer::Close => self.stats.call(method).equal += 1,
            OurAnswer::Message(ours) => {
                let ours = &ours.message.decode();
                let rule = match answer_instead_of_close(&pending.call.decode(), ours) {
                    Verdict::Explained(rule) => Some(rule),
                    _ => None,
                };
                self.answer_differs(pending, rule, closed(), show(ours));
            }
        }
    }

    /// The primary has handed out something that is no new session id.
    pub(super) fn id_differs(&mut self, theirs: &Message, ours: &str) {
        let method = "getNextSessionId";
        let at = self.now;
        let both = (show(theirs), ours.to_owned());
        let place = format!("{method} {}", theirs.seqid);
        let found = Finding::of_words(at, Subject::Call(method.to_owned()), place, both);
        self.call_differs(method, found);
    }

    fn judge(
        &mut self,
        pending: &PendingCall,
        theirs: &Message,
        ours: &Message,
        answered_at: Duration,
    ) -> Judged {
        let same_head =
            (theirs.kind, &theirs.name, theirs.seqid) == (ours.kind, &ours.name, ours.seqid);
        if same_head && same_body(theirs, ours) {
            return Judged::Equal;
        }
        if let Some(handle) = &pending.handle {
            let gone = (is_unknown_session(theirs, handle), is_unknown_session(ours, handle));
            match gone {
                (false, true) => return self.gone_here(handle),
                (true, false) => return self.gone_there(handle),
                _ => {}
            }
        }
        if is_safe_mode(theirs) != is_safe_mode(ours) {
            return Judged::NotCompared("calls while it was not known whether safe mode is on");
        }
        match (same_head, &theirs.body, &ours.body) {
            (true, Ok(theirs), Ok(ours)) if pending.call.name == "getSessions" => {
                let times = [pending.at, answered_at];
                match answered_at.saturating_sub(pending.at) > LONGEST_ANSWER {
                    true => Judged::NotCompared("lists of sessions that took too long"),
                    false => self.judge_sessions(theirs, ours, times),
                }
            }
            _ => Judged::Other(None),
        }
    }

    /// The primary knows a session that is not known here.
    fn gone_here(&mut self, handle: &Arc<str>) -> Judged {
        let was_overdue = self.expired.has(handle);
        let has_ended = self.books.ended.has(handle);
        self.is_not_followed(handle);
        match (was_overdue, has_ended) {
            (true, _) => Judged::Other(Some(Rule::PROMPT_EXPIRY)),
            (false, true) => Judged::Other(None),
            (false, false) => Judged::NotCompared(UNFOLLOWED),
        }
    }

    /// The primary does not know a session that is known here. It ends here, too.
    fn gone_there(&mut self, handle: &Arc<str>) -> Judged {
        let port = self.books.sessions.get(handle).map_or(0, |session| session.driver_port);
        self.ends_here(handle);
        match self.troubled_ports.has(&port) {
            true => Judged::NotCompared(OUT_OF_REACH),
            false => Judged::Other(None),
        }
    }

    /// A session ends, since it does not run at the primary.
    fn ends_here(&mut self, handle: &Arc<str>) {
        let status = SessionStatus::TimedOut;
        self.oracle.observe(self.now, Observed::Ended { handle: handle.clone(), status });
        self.session_ended(handle);
    }

    fn judge_sessions(&mut self, theirs: &Value, ours: &Value, times: [Duration; 2]) -> Judged {
        let (Some(theirs), Some(ours)) = (by_handle(theirs), by_handle(ours)) else {
            return Judged::Other(None);
        };
        let mut rule = None;
        for (handle, theirs) in &theirs {
            let name: Arc<str> = handle.as_str().into();
            match ours.get(handle) {
                Some(ours) if ours == theirs => {}
                // It has ended since.
                Some(_) if !self.books.sessions.contains_key(&name) => {}
                Some(ours) => match self.judge_session(&name, theirs, ours, times) {
                    Some(found) => rule = Some(found),
                    None => return Judged::Other(None),
                },
                None if self.unfollowed.contains(&name) => {}
                None if self.expired.has(&name) => rule = Some(Rule::PROMPT_EXPIRY),
                // It was ended or started by a concurrent call.
                None if self.has_crossed() => {}
                None if self.books.ended.has(&name) => return Judged::Other(None),
                None => self.is_not_followed(handle),
            }
        }
        let only_here = |handle: &&String| !theirs.contains_key(*handle);
        if ours.keys().any(|handle| only_here(&handle)) && !self.has_crossed() {
            return Judged::Other(None);
        }
        rule.map_or(Judged::Equal, |rule| Judged::Other(Some(rule)))
    }

    /// One session on both sides: only the number of its running resources may differ, by the decisions
    /// that were on their way.
    fn judge_session(
        &self,
        handle: &Arc<str>,
        theirs: &Value,
        ours: &Value,
        times: [Duration; 2],
    ) -> Option<Rule> {
        let (their_counts, theirs) = parted(theirs)?;
        let (our_counts, ours) = parted(ours)?;
        let session = self.books.sessions.get(handle)?;
        if theirs != ours || !their_counts.keys().eq(our_counts.keys()) {
            return None;
        }
        let [called, _] = times;
        let mut rule = Rule::PROMPT_GRANTS;
        for ((kind, theirs), ours) in their_counts.into_iter().zip(our_counts.into_values()) {
            let slack = session.slack(kind, times);
            let fewer = ours.saturating_sub(theirs).saturating_sub(slack.fewer);
            let more = theirs.saturating_sub(ours).saturating_sub(slack.more);
            if fewer.max(more) == 0 {
                continue;
            }
            let may_be_lost = session.has_lost_nodes(called);
            if !may_be_lost || fewer.max(more) > self.oracle.lost(handle, kind, self.now) {
                return None;
            }
            rule = Rule::PROMPT_EXPIRY;
        }
        Some(rule)
    }

    /// A call that is not compared.
    pub(super) fn not_compared(&mut self, method: &str, reason: &'static str) {
        self.stats.call(method).not_compared += 1;
        self.stats.not_compared(reason);
    }

    fn answer_differs(
        &mut self,
        pending: &PendingCall,
        rule: Option<Rule>,
        theirs: String,
        ours: String,
    ) {
        let at = self.now;
        let method = pending.call.name.clone();
        let place = format!("{method} {}", pending.call.seqid);
        let about = Subject::Call(method.clone());
        let found = Finding::of_words(at, about, place, (theirs, ours));
        let arguments = body_text(&pending.call.decode(), Shape::Short);
        self.call_differs(&method, Finding { rule, arguments, ..found });
    }

    fn call_differs(&mut self, method: &str, finding: Finding) {
        self.stats.call(method).differs(finding.rule);
        self.stats.keep(finding);
    }
}

/// A listed session: its running resources by type, and its other fields.
type Parted<'a> = (BTreeMap<ResourceType, u64>, BTreeMap<&'a str, &'a Value>);

fn parted(session: &Value) -> Option<Parted<'_>> {
    const COUNTS: &str = "runningResources";
    let (Value::Struct(fields), Some(Value::Map(counts))) = (session, session.field(COUNTS)) else {
        return None;
    };
    let count = |(kind, count): &(Value, Value)| match (kind, count) {
        (Value::Enum(kind, _), Value::I32(count)) => {
            Some((ResourceType::from_number(*kind)?, u64::try_from(*count).ok()?))
        }
        _ => None,
    };
    let others = fields.iter().filter(|(name, _)| *name != COUNTS);
    let others = others.map(|(name, value)| (*name, value)).collect();
    Some((counts.iter().map(count).collect::<Option<_>>()?, others))
}

/// Lists of sessions that are judged later, at a time.
const MAX_PUT_OFF: usize = 100;

/// The judgement of an answer.
enum Judged {
    Equal,
    /// Another one; a row may allow it.
    Other(Option<Rule>),
    NotCompared(&'static str),
}

/// Whether an answer is the declared exception for safe mode. Its struct has no fields, and no
/// method has an exception of this name for anything else.
pub(super) fn is_safe_mode(answer: &Message) -> bool {
    let body = answer.body.as_ref().ok();
    let exception = ["e", "f"].into_iter().filter_map(|name| body?.field(name));
    exception
        .into_iter()
        .any(|exception| matches!(exception, Value::Struct(fields) if fields.is_empty()))
}
