//! The primary's answers, compared with our own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::{Asked, Ours};
use super::run::{Run, UNFOLLOWED};
use crate::inspect::{Shape, body_text};
use crate::replay::judge::{Verdict, answer_instead_of_close, by_handle, same_body};
use crate::replay::values::{is_unknown_session, show};
use crate::replay::{About, Finding, Rule};
use corona_engine::Observed;
use corona_model::types::SessionStatus;
use corona_wire::calls::{ClusterManager, ClusterManagerCall};
use corona_wire::value::{Message, MessageKind, Value};

impl Run {
    /// The primary has answered a call.
    pub(super) fn compare(&mut self, asked: &Asked, theirs: &Message) {
        let method = asked.call.name.as_str();
        let handle = asked.handle.as_deref();
        let ours = match &asked.ours {
            Ours::Nothing(reason) => {
                let ended = method == "sessionEnd" && theirs.kind == MessageKind::Reply;
                if let Some(handle) = handle
                    && (ended || is_unknown_session(theirs, handle))
                {
                    self.unfollowed.remove(handle);
                }
                return self.not_compared(method, reason);
            }
            Ours::Close => {
                let closed = "the connection is closed";
                return self.answer_differs(asked, None, show(theirs), closed.to_owned());
            }
            Ours::Answer(ours) => &ours.message.decode(),
        };
        match self.judge(asked, theirs, ours) {
            Judged::Equal => self.figures().call(method).equal += 1,
            Judged::NotCompared(reason) => self.not_compared(method, reason),
            Judged::Other(rule) => {
                let at = self.figures().ran_for();
                let place = format!("{method} {}", theirs.seqid);
                let both = (show(theirs), show(ours));
                let found = Finding::of_words(at, About::Call(method.to_owned()), place, both)
                    .with_messages(theirs, ours);
                let arguments = body_text(&asked.call.decode(), Shape::Short);
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
    pub(super) fn compare_close(&mut self, asked: &Asked) {
        let method = asked.call.name.as_str();
        let closed = || "the connection is closed".to_owned();
        match &asked.ours {
            Ours::Nothing(reason) => self.not_compared(method, reason),
            Ours::Close => self.figures().call(method).equal += 1,
            Ours::Answer(ours) => {
                let ours = &ours.message.decode();
                let rule = match answer_instead_of_close(&asked.call.decode(), ours) {
                    Verdict::Explained(rule) => Some(rule),
                    _ => None,
                };
                self.answer_differs(asked, rule, closed(), show(ours));
            }
        }
    }

    /// Goes along with the primary's safe mode, of which it may be the only one to know.
    pub(super) async fn follow_safe_mode(&mut self, asked: &Asked, theirs: &Message) {
        let succeeded = |value: bool| {
            let body = theirs.body.as_ref().ok();
            body.and_then(|body| body.field("success")) == Some(&Value::Bool(value))
        };
        let is_call = asked.call.name == "setSafeMode";
        let wanted = match is_call.then(|| asked.call.call::<ClusterManager>()) {
            Some(Ok(ClusterManagerCall::SetSafeMode { safe_mode })) => Some(safe_mode),
            _ => None,
        };
        let on = match wanted {
            Some(false) => Some(false),
            Some(true) if succeeded(true) => Some(true),
            _ if is_safe_mode(theirs) => Some(true),
            _ => None,
        };
        let is_on = self.manager.look(|engine| engine.safe_mode());
        match (on, is_on) {
            (Some(true), false) if !is_call => {
                self.begin_anew("the primary is in safe mode").await;
                self.manager.set_safe_mode(true);
            }
            (Some(on), is_on) if on != is_on => self.manager.set_safe_mode(on),
            (None, true) if matches!(&asked.ours, Ours::Answer(ours) if ours.is_safe_mode) => {
                self.manager.set_safe_mode(false);
                self.begin_anew("the primary is no longer in safe mode").await;
            }
            _ => {}
        }
    }

    /// An id of the primary is none.
    pub(super) fn id_differs(&mut self, theirs: &Message, ours: &str) {
        let method = "getNextSessionId";
        let at = self.figures().ran_for();
        let both = (show(theirs), ours.to_owned());
        let place = format!("{method} {}", theirs.seqid);
        let found = Finding::of_words(at, About::Call(method.to_owned()), place, both);
        self.call_differs(method, found);
    }

    fn judge(&mut self, asked: &Asked, theirs: &Message, ours: &Message) -> Judged {
        let same_head =
            (theirs.kind, &theirs.name, theirs.seqid) == (ours.kind, &ours.name, ours.seqid);
        if same_head && same_body(theirs, ours) {
            return Judged::Equal;
        }
        if let Some(handle) = &asked.handle {
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
            (true, Ok(theirs), Ok(ours)) if asked.call.name == "getSessions" => {
                self.judge_sessions(theirs, ours)
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
            true => Judged::NotCompared("sessions whose drivers could not be reached"),
            false => Judged::Other(None),
        }
    }

    /// A session ends, since it does not run at the primary.
    fn ends_here(&mut self, handle: &Arc<str>) {
        let status = SessionStatus::TimedOut;
        self.manager.observe(Observed::Ended { handle: handle.clone(), status });
        self.session_ended(handle);
    }

    fn judge_sessions(&mut self, theirs: &Value, ours: &Value) -> Judged {
        let (Some(theirs), Some(ours)) = (by_handle(theirs), by_handle(ours)) else {
            return Judged::Other(None);
        };
        let mut rule = None;
        for (handle, theirs) in &theirs {
            let name: Arc<str> = handle.as_str().into();
            match ours.get(handle) {
                Some(ours) if ours == theirs => {}
                Some(ours) => match self.judge_session(&name, theirs, ours) {
                    Some(found) => rule = Some(found),
                    None => return Judged::Other(None),
                },
                None if self.unfollowed.contains_key(&name) => {}
                None if self.expired.has(&name) => rule = Some(Rule::PROMPT_EXPIRY),
                // It was ended or started by a call that was under way.
                None if self.crossed() => {}
                None if self.books.ended.has(&name) => return Judged::Other(None),
                None => self.is_not_followed(handle),
            }
        }
        let only_here = |handle: &&String| !theirs.contains_key(*handle);
        if ours.keys().any(|handle| only_here(&handle)) && !self.crossed() {
            return Judged::Other(None);
        }
        rule.map_or(Judged::Equal, |rule| Judged::Other(Some(rule)))
    }

    /// One session on both sides: only the number of its running resources may differ, while grants
    /// are on their way.
    fn judge_session(&self, handle: &Arc<str>, theirs: &Value, ours: &Value) -> Option<Rule> {
        let fields = |value: &Value| match value {
            Value::Struct(fields) => {
                let others = fields.iter().filter(|(name, _)| *name != "runningResources");
                Some(others.cloned().collect::<BTreeMap<_, _>>())
            }
            _ => None,
        };
        let under_way = || {
            let session = self.books.sessions.get(handle);
            session.is_some_and(|session| session.waiting() > 0 || session.is_moving())
        };
        let same = fields(theirs).is_some() && fields(theirs) == fields(ours);
        (same && under_way()).then_some(Rule::PROMPT_GRANTS)
    }

    /// A call that is not compared.
    pub(super) fn not_compared(&self, method: &str, reason: &'static str) {
        let mut figures = self.figures();
        figures.call(method).not_compared += 1;
        figures.not_compared(reason);
    }

    fn answer_differs(&self, asked: &Asked, rule: Option<Rule>, theirs: String, ours: String) {
        let at = self.figures().ran_for();
        let method = asked.call.name.clone();
        let place = format!("{method} {}", asked.call.seqid);
        let about = About::Call(method.clone());
        let found = Finding::of_words(at, about, place, (theirs, ours));
        let arguments = body_text(&asked.call.decode(), Shape::Short);
        self.call_differs(&method, Finding { rule, arguments, ..found });
    }

    fn call_differs(&self, method: &str, finding: Finding) {
        let mut figures = self.figures();
        let tally = figures.call(method);
        match finding.rule {
            Some(_) => tally.explained += 1,
            None => tally.different += 1,
        }
        figures.keep(finding);
    }
}

/// What an answer is worth.
enum Judged {
    Equal,
    /// Another one; a row may allow it.
    Other(Option<Rule>),
    NotCompared(&'static str),
}

/// Whether an answer is the declared exception for safe mode. Its struct has no fields, and no
/// method has an exception of this name for anything else.
fn is_safe_mode(answer: &Message) -> bool {
    let body = answer.body.as_ref().ok();
    let exception = ["e", "f"].into_iter().filter_map(|name| body?.field(name));
    exception
        .into_iter()
        .any(|exception| matches!(exception, Value::Struct(fields) if fields.is_empty()))
}
