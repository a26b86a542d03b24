//! The question before a session is ended, with the field for the token.

use maud::{Markup, html};

use super::session::path;
use crate::web::gather::Overview;
use corona_engine::RunningSession;
use corona_web::units::{Count, Name, class_of};

/// What stands above the question when it is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::web) enum Objection {
    /// The token is not the configured one.
    WrongToken,
    /// The last wrong token of the sender is too short a while ago.
    TooSoon,
    /// The form could not be read.
    Unreadable,
    /// The form comes from another site, as its headers say.
    Foreign,
    /// The engine refuses it.
    SafeMode,
}

impl Objection {
    /// The reason of the refusal. The page adds its consequence.
    pub(in crate::web) fn sentence(self) -> &'static str {
        match self {
            Objection::WrongToken => "Wrong token.",
            Objection::TooSoon => {
                "A wrong token was entered from your address. Wait for up to a minute and try again."
            }
            Objection::Unreadable => "The request was rejected: its form could not be read.",
            Objection::Foreign => {
                "The request was rejected: it did not come from this page. A proxy must forward the Host header unchanged. The log has the received headers Host and Origin."
            }
            Objection::SafeMode => "Safe mode is on: nothing can be changed.",
        }
    }
}

/// The content of the page.
pub(in crate::web) fn content(
    session: &RunningSession,
    overview: &Overview,
    objection: Option<Objection>,
) -> Markup {
    let page = path(&session.handle);
    html! {
        p.crumbs { a href=(page) { "Session " (session.handle) } }
        h1 { "End session " (session.handle) "?" }
        @if let Some(objection) = objection {
            p.problem role="alert" { (objection.sentence()) " The session is still running." }
        }
        dl.facts {
            div.wide { dt { "Name" } dd { (Name(&session.info.name)) } }
            div { dt { "User" } dd { (Name(&session.info.user_id)) } }
            div { dt { "Pool" } dd { (Name(&session.scheduling_pool)) } }
            @for kind in &overview.kinds {
                div {
                    dt { (kind) }
                    dd {
                        span.dot.(class_of(*kind)) {}
                        (Count(session.counts[*kind].now.granted)) " running, "
                        (Count(session.counts[*kind].now.pending)) " waiting"
                    }
                }
            }
        }
        p { "Its tasks are stopped and its slots are granted to other sessions. This cannot be undone." }
        form.kill method="post" action=(format!("{page}/kill")) {
            (token_field(objection))
            div.actions {
                button.danger type="submit" { "End the session" }
                " "
                a.button href=(page) { "Keep it" }
            }
        }
    }
}

/// The field for the token in a form of an operator.
pub(super) fn token_field(objection: Option<Objection>) -> Markup {
    let wrong = objection == Some(Objection::WrongToken);
    html! {
        div {
            label for="token" { "Token" }
            input #token type="password" name="token" required autocomplete="off"
                aria-describedby="token-help" aria-invalid=[wrong.then_some("true")];
            p.note #token-help { "The value of corona.cm.web.kill.token." }
        }
    }
}
