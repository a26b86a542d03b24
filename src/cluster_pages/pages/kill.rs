//! The question before a session is ended, with the field for the token.

use maud::{Markup, html};

use super::links::session_path;
use crate::gather::Overview;
use corona_engine::RunningSession;
use corona_web::operator::{Objection, token_field};
use corona_web::units::{Count, Name, class_of};

/// The key of the token.
pub(super) const TOKEN_KEY: &str = "corona.cm.web.kill.token";
/// The engine refuses it.
pub(crate) const SAFE_MODE: Objection =
    Objection::Refused("Safe mode is on: nothing can be changed.");

/// The content of the page.
pub(crate) fn content(
    session: &RunningSession,
    overview: &Overview,
    objection: Option<Objection>,
) -> Markup {
    let page = session_path(&session.handle);
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
            (token_field(objection, TOKEN_KEY))
            div.actions {
                button.danger type="submit" { "End the session" }
                " "
                a.button href=(page) { "Keep it" }
            }
        }
    }
}
