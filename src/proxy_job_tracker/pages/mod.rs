//! The pages of finished jobs, for people and for programs: which address shows what.
//! The addresses of the original show the same as ours. Spec: mapreduce/08 §8.8.

mod api;
mod compare;
mod figures;
mod job;
mod list;
mod statistics;
mod tasks;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use corona_mapreduce::JobId;
use corona_web::exchange::{html as page, page_text, respond, text};
use corona_web::frame::Frame;
use corona_web::table::Head::Text;
use corona_web::table::simple_table;
use hyper::StatusCode;
use hyper::body::{self, Body, Bytes};
use maud::{Markup, html};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::ProxyContext;
use super::histories::{Contents, HistoryError, HistoryFile, Piece};
use super::http::{Page, PageBody, Parameters, begun};
use super::index::Query;

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A job that is shown.
pub(super) struct View<'a> {
    shared: &'a ProxyContext,
    contents: &'a Contents,
}

impl View<'_> {
    /// The address of a page of this job.
    fn link(&self, rest: &str) -> String {
        format!("/jobs/{}{rest}", self.contents.file.job)
    }

    fn job(&self) -> &JobId {
        &self.contents.file.job
    }
}

/// What is shown of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobView {
    Job,
    Tasks,
    Task,
    Counters,
    Analysis,
}

/// Answers with the page at an address, if there is one.
pub(super) async fn answer(
    shared: &Arc<ProxyContext>,
    path: &str,
    query: &Parameters,
) -> Option<Page> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let show = async |what, job: Option<&str>, task: Option<&str>| {
        page_of_job(shared, what, job, task, query).await
    };
    Some(match segments[..] {
        [""] | ["jobs"] => list_page(shared, list_query(query), query).await,
        ["coronajobhistory.jsp" | "jobhistory.jsp"] => {
            let mut wanted = list_query(query);
            // `user:name`, each may be missing.
            if let Some(search) = query.get("search") {
                let (user, name) = search.split_once(':').unwrap_or((search, ""));
                (wanted.user, wanted.name) = (user.to_owned(), name.to_owned());
            }
            list_page(shared, wanted, query).await
        }
        ["jobs", job] => show(JobView::Job, Some(job), None).await,
        ["jobs", job, "tasks"] => show(JobView::Tasks, Some(job), None).await,
        ["jobs", job, "tasks", task] => show(JobView::Task, Some(job), Some(task)).await,
        ["jobs", job, "counters", part] => show(JobView::Counters, Some(job), Some(part)).await,
        ["jobs", job, "analysis"] => show(JobView::Analysis, Some(job), None).await,
        ["jobs", job, "history"] => history(shared, job, query).await,
        ["jobs", job, "configuration"] => configuration(shared, Some(job), query).await,
        ["coronajobdetailshistory.jsp" | "jobdetailshistory.jsp"] => {
            show(JobView::Job, None, None).await
        }
        ["coronajobtaskshistory.jsp" | "jobtaskshistory.jsp"] => {
            show(JobView::Tasks, None, None).await
        }
        ["coronataskdetailshistory.jsp" | "taskdetailshistory.jsp"] => {
            show(JobView::Task, None, query.get("taskid").or(query.get("tipid"))).await
        }
        ["taskstatshistory.jsp"] => {
            show(JobView::Counters, None, query.get("attemptid").or(query.get("taskid"))).await
        }
        ["coronaanalysejobhistory.jsp" | "analysejobhistory.jsp"] => {
            show(JobView::Analysis, None, None).await
        }
        ["coronajobconf_history.jsp" | "jobconf_history.jsp"] => {
            configuration(shared, None, query).await
        }
        ["conf"] => respond(StatusCode::OK, "text/xml; charset=utf-8", settings(shared)),
        ["statistics"] => page(StatusCode::OK, statistics::page(shared, query)),
        ["compare"] => compare::answer(shared, query).await,
        ["api", "v1", ref rest @ ..] => api::answer(shared, rest, query).await?,
        _ => return None,
    })
}

async fn list_page(shared: &Arc<ProxyContext>, wanted: Query, query: &Parameters) -> Page {
    let (own, query) = (shared.clone(), query.clone());
    shared.front.make(move || page(StatusCode::OK, list::page(&own, &wanted, &query))).await
}

/// What the parameters of a list look for.
fn list_query(query: &Parameters) -> Query {
    let text = |name: &str| query.get(name).unwrap_or_default().trim().to_owned();
    let number = |name: &str| query.get(name).and_then(|text| text.trim().parse().ok());
    Query {
        text: text("q"),
        user: text("user"),
        name: text("name"),
        pool: text("pool"),
        state: text("state"),
        from_ms: number("from_ms").or_else(|| day(query.get("from"))),
        until_ms: number("until_ms").or_else(|| day(query.get("until"))),
    }
}

/// The start of a day `2026-11-22`, of UTC, in milliseconds since the Unix epoch.
fn day(text: Option<&str>) -> Option<i64> {
    let mut parts = text?.trim().splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let fits =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !fits {
        return None;
    }
    // Days of the civil calendar, counted from March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400_000)
}

/// Where the history is that a request names: by a file, by a directory and a job, or by a job.
pub(super) async fn file_of(
    shared: &ProxyContext,
    job: Option<&str>,
    query: &Parameters,
) -> Result<HistoryFile, HistoryError> {
    let histories = &shared.histories;
    let file = query.get("logFile").or(query.get("jobhistoryfileloc"));
    if let (Some(file), None) = (file, job) {
        let file = histories.file_of(file).ok_or(HistoryError::NotFound)?;
        return histories.find_file(file).await?.ok_or(HistoryError::NotFound);
    }
    let job = job.or(query.get("jobid")).or(query.get("jobUniqueString")).unwrap_or_default();
    let job: JobId = job.parse().map_err(|_| HistoryError::NotFound)?;
    let directory = match query.get("historydir") {
        Some(directory) => Some(directory.to_owned()),
        None => match shared.index.job(job.as_str()) {
            Some(entry) if !entry.file.is_empty() => {
                let (directory, name) = (entry.directory.to_string(), entry.file.clone());
                let file = HistoryFile { directory, job, is_done: entry.is_done, name };
                return histories.find_file(file).await?.ok_or(HistoryError::NotFound);
            }
            Some(entry) => Some(entry.directory.to_string()),
            None => histories.directory_of(&job),
        },
    };
    let directory = directory.ok_or(HistoryError::NotFound)?;
    histories.find(&directory, &job).await?.ok_or(HistoryError::NotFound)
}

/// A page about a job. Its head is sent before its history is read.
async fn page_of_job(
    shared: &Arc<ProxyContext>,
    what: JobView,
    job: Option<&str>,
    part: Option<&str>,
    query: &Parameters,
) -> Page {
    let file = match file_of(shared, job, query).await {
        Ok(file) => file,
        Err(error) => return failed(shared, &error),
    };
    show(shared, what, file, part, query).await
}

/// The page of a job at the address `/proxy`.
pub(super) async fn job_page(shared: &Arc<ProxyContext>, file: HistoryFile) -> Page {
    show(shared, JobView::Job, file, None, &Parameters::parse(b"")).await
}

async fn show(
    shared: &Arc<ProxyContext>,
    what: JobView,
    file: HistoryFile,
    part: Option<&str>,
    query: &Parameters,
) -> Page {
    // What is not there must have its status, so that is looked up first.
    let counters = match (what, part) {
        (JobView::Counters, Some(part)) => match shared.histories.counters(&file, part).await {
            Ok(Some(counters)) => Some(counters),
            Ok(None) => return failed(shared, &HistoryError::NotFound),
            Err(error) => return failed(shared, &error),
        },
        _ => None,
    };
    let title = match what {
        JobView::Job | JobView::Tasks => file.job.to_string(),
        JobView::Task | JobView::Counters => part.unwrap_or(file.job.as_str()).to_owned(),
        JobView::Analysis => format!("Analysis of {}", file.job),
    };
    let [before, after] = around(shared, None, &title).around().map(page_text);
    let first = Bytes::from(before);
    let (shared, part) = (shared.clone(), part.map(str::to_owned));
    let query = query.clone();
    let rest = tokio::spawn(async move {
        let content = match shared.histories.read(&file).await {
            Ok(contents) => {
                make(shared, move |shared| {
                    let view = View { shared, contents: &contents };
                    let part = part.as_deref().unwrap_or_default();
                    match what {
                        JobView::Job => job::content(&view),
                        JobView::Tasks => tasks::list(&view, &query),
                        JobView::Task => tasks::one(&view, part),
                        JobView::Counters => {
                            tasks::counters(&view, part, counters.as_deref().unwrap_or_default())
                        }
                        JobView::Analysis => job::analysis(&view, &query),
                    }
                })
                .await
            }
            Err(error) => problem(&error),
        };
        Bytes::from(page_text(content) + &after)
    });
    begun(StatusCode::OK, HTML, PageBody::new(Late { first: Some(first), rest: Some(rest) }))
}

/// The file of a history as it is.
async fn history(shared: &Arc<ProxyContext>, job: &str, query: &Parameters) -> Page {
    let pieces = match file_of(shared, Some(job), query).await {
        Ok(file) => shared.histories.pieces(&file).await,
        Err(error) => Err(error),
    };
    match pieces {
        Ok(pieces) => begun(StatusCode::OK, TEXT, PageBody::new(Pieces(pieces))),
        Err(error) => text(status_of(&error), format!("{error}\n")),
    }
}

/// Makes the content of a page on a thread that may take its time.
async fn make(
    shared: Arc<ProxyContext>,
    make: impl FnOnce(&ProxyContext) -> Markup + Send + 'static,
) -> Markup {
    let own = shared.clone();
    let made = own.front.make_part(move || make(&shared)).await;
    made.unwrap_or_else(|| html! { p.problem.bad { "The page could not be made." } })
}

async fn configuration(shared: &Arc<ProxyContext>, job: Option<&str>, query: &Parameters) -> Page {
    let file = match (query.get("jobLogDir"), query.get("jobUniqueString")) {
        (Some(directory), Some(job)) => {
            let path = format!("{}/{job}", directory.trim_end_matches('/'));
            shared.histories.file_of(&path).ok_or(HistoryError::NotFound)
        }
        _ => file_of(shared, job, query).await,
    };
    let read = match file {
        Ok(file) => shared.histories.conf(&file).await.map(|conf| (file, conf)),
        Err(error) => Err(error),
    };
    let (file, conf) = match read {
        Ok(read) => read,
        Err(error) => return failed(shared, &error),
    };
    let content = html! {
        p.crumbs { a href="/" { "Jobs" } " / " a href={ "/jobs/" (file.job) } { (file.job) } }
        h1 { "Job Configuration: JobId - " (file.job) }
        div.scroll {
            (simple_table(None, &[Text("name"), Text("value")], &html! {
                @for (name, value) in &conf {
                    tr {
                        th scope="row" { span.long { (name) } }
                        td data-label="value" { span.long { (value) } }
                    }
                }
            }))
        }
    };
    let title = format!("Configuration of {}", file.job);
    page(StatusCode::OK, frame(shared, &title, &content))
}

/// The status of a reply in place of a history.
fn status_of(error: &HistoryError) -> StatusCode {
    match error {
        HistoryError::NotFound => StatusCode::NOT_FOUND,
        HistoryError::Busy | HistoryError::Late => StatusCode::SERVICE_UNAVAILABLE,
        HistoryError::Files(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A page that says why there is no other.
pub(super) fn failed(shared: &ProxyContext, error: &HistoryError) -> Page {
    page(status_of(error), frame(shared, "No history", &problem(error)))
}

fn problem(error: &HistoryError) -> Markup {
    html! {
        p.crumbs { a href="/" { "Jobs" } }
        h1 { "This job cannot be shown" }
        p.problem.bad { (error.to_string()) }
    }
}

/// A whole page around its content.
fn frame(shared: &ProxyContext, title: &str, content: &Markup) -> Markup {
    frame_in(shared, None, title, content)
}

/// The pages that every page leads to.
const SECTIONS: [(&str, &str); 3] =
    [("/", "Finished jobs"), ("/compare", "Compare"), ("/statistics", "Statistics")];

/// The same for a page at the address of a section.
fn frame_in(shared: &ProxyContext, section: Option<&str>, title: &str, content: &Markup) -> Markup {
    around(shared, section, title).page(content)
}

fn around<'a>(shared: &'a ProxyContext, section: Option<&'a str>, title: &'a str) -> Frame<'a> {
    Frame {
        title,
        host: &shared.host,
        service: format!("proxy job tracker {}", shared.host),
        sections: &SECTIONS,
        section,
        elsewhere: vec![(shared.cluster_pages(), "Cluster")],
        links: vec![(Some("/api/v1/jobs".into()), "API"), (Some("/metrics".into()), "Metrics")],
        now: super::now(),
        ..Frame::default()
    }
}

/// A body whose first part is there.
struct Late {
    first: Option<Bytes>,
    rest: Option<JoinHandle<Bytes>>,
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(rest) = &self.rest {
            rest.abort();
        }
    }
}

impl Body for Late {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<body::Frame<Bytes>, std::io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(body::Frame::data(first))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        match Pin::new(rest).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(made) => {
                self.rest = None;
                let made = made.map(body::Frame::data).map_err(std::io::Error::other);
                Poll::Ready(Some(made))
            }
        }
    }
}

/// A file as it is read.
struct Pieces(mpsc::Receiver<Piece>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<body::Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|piece| Some(piece?.map(body::Frame::data)))
    }
}

/// The values of all keys that the service reads, in the form of a configuration file.
fn settings(shared: &ProxyContext) -> String {
    let properties = html! {
        configuration {
            @for value in &shared.in_force {
                property { name { (value.key) } value { (value.value) } }
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", properties.into_string())
}

/// A short text for a request that cannot be answered.
fn bad_request(sentence: &str) -> Page {
    text(StatusCode::BAD_REQUEST, format!("{sentence}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_points_in_time() {
        for (text, ms) in [
            ("1970-01-01", Some(0)),
            ("2026-11-22", Some(1_795_305_600_000)),
            ("2024-02-29", Some(1_709_164_800_000)),
            ("2024-13-01", None),
            ("today", None),
            ("", None),
        ] {
            assert_eq!(day(Some(text)), ms, "{text}");
        }
    }
}
