//! The question before a job, a task or an attempt is ended, with the field for the token.

use corona_mapreduce::JobId;
use corona_web::operator::{Objection, token_field};
use corona_web::units::Name;
use maud::{Markup, html};

use super::{attempt_path, job_path, task_path};
use crate::pages::gather::Row;

/// The key of the token.
pub(in super::super) const TOKEN_KEY: &str = "corona.jt.web.kill.token";

/// What is to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Target {
    Job,
    /// All running attempts of the task of this name.
    Task(String),
    /// The attempt of this name.
    Attempt(String),
}

impl Target {
    /// The address of its page.
    pub(in super::super) fn path(&self, job: &JobId) -> String {
        match self {
            Target::Job => job_path(job),
            Target::Task(name) => task_path(job, name),
            Target::Attempt(name) => attempt_path(job, name),
        }
    }

    /// What it is called.
    pub(in super::super) fn name(&self, job: &JobId) -> String {
        match self {
            Target::Job => format!("job {job}"),
            Target::Task(name) => format!("the running attempts of task {name}"),
            Target::Attempt(name) => format!("attempt {name}"),
        }
    }

    fn consequence(&self) -> &'static str {
        match self {
            Target::Job => {
                "Its tasks are stopped, its output is removed, and its slots go to other jobs. This cannot be undone."
            }
            Target::Task(_) => "They count as killed: the task runs again on another slot.",
            Target::Attempt(_) => {
                "An attempt that was killed does not count against its task; one that failed does, and the job fails if too many do."
            }
        }
    }
}

/// The content of the page.
pub(in super::super) fn content(
    row: &Row,
    target: &Target,
    objection: Option<Objection>,
) -> Markup {
    let job = &row.description.id;
    let page = target.path(job);
    let name = target.name(job);
    html! {
        p.crumbs { a href=(page) { "Back" } }
        h1 { "End " (Name(&name)) "?" }
        @if let Some(objection) = objection {
            p.problem role="alert" { (objection.sentence()) " Nothing was ended." }
        }
        dl.facts {
            div.wide { dt { "Name of the job" } dd { (Name(&row.description.name)) } }
            div { dt { "User" } dd { (Name(&row.description.user)) } }
            div { dt { "Pool" } dd { (Name(&row.description.pool)) } }
        }
        p { (target.consequence()) }
        form.kill method="post" action={ (page) "/end" } {
            (token_field(objection, TOKEN_KEY))
            @if matches!(target, Target::Attempt(_)) {
                div.check {
                    input #fail type="checkbox" name="fail" value="1";
                    label for="fail" { "Count it as failed" }
                }
            }
            div.actions {
                button.danger type="submit" { "End it" }
                " "
                a.button href=(page) { "Leave it" }
            }
        }
    }
}
