//! The HTTP service of the job tracker: pages, JSON, metrics, and the original's addresses.
//!
//! Routes a request to the function that makes its response. What is shown is gathered first
//! ([`gather`]); the response is made on a thread that may take its time. `docs/operate/job-tracker.md` lists
//! the addresses.

mod api;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod gather;
mod html;
pub(crate) mod manager;
mod metrics;
mod original;
pub(crate) mod sessions;
pub(crate) mod sources;
mod time_line;
pub(crate) mod trackers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use corona_access::{Gate, Peer};
use corona_config::HostPort;
use corona_mapreduce::{Counters, JobId, TaskKey};
use corona_model::types::Millis;
use corona_web::attempts::{Attempts, Failed};
use corona_web::budget;
use corona_web::events::{Stream, Wanted};
use corona_web::exchange::{self, Parameters};
use corona_web::frame::{Frame, Updates};
use corona_web::hosts::{Hosts, short_name};
use corona_web::making::{REFRESH_MS, SLOW_REFRESH_MS, refresh_ms};
use corona_web::operator::{Form, Objection, read_own_form};
use corona_web::server::{Front, RequestBody, Room, Site};
use corona_web::{prefix, prometheus};
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use maud::{Markup, html};
use serde::Serialize;
use tokio::sync::watch;

use corona_api::Failure;
use corona_api::jobs::{
    Ended, JobCounters, JobDetail, JobLimit, JobLimits, JobProperties, JobProperty, JobService,
    JobWaits, JobsByState, MemoryLimit, OpenFiles,
};

use self::api::Paging;
use self::gather::{Found, Looks, Row};
use self::html::end::Target;
use self::html::job_path;
use self::sources::PageSources;
use crate::clock::now;
use crate::jobs::job::{AskError, Job};
use crate::jobs::remote::RemoteJob;
use corona_job_engine::parent::ParentInput;
use corona_job_engine::{JobInput, JobReply, NodeUse};

/// What is sent back.
type Answer = exchange::Answer<Stream>;

/// The pages that every page leads to.
const SECTIONS: [(&str, &str); 3] =
    [("/", "Running jobs"), ("/ended", "Ended jobs"), ("/trackers", "Task trackers")];
/// Completion events in one answer.
const MOST_EVENTS: usize = 2000;

/// Everything that the pages show, and the ways to it.
pub(crate) struct Pages {
    sources: Arc<PageSources>,
    /// The name of this service: that of its web address, up to the first dot.
    host: Box<str>,
    /// Where the cluster manager's pages are, as far as a browser may reach them.
    cluster_manager: Option<String>,
    /// Where the proxy job tracker shows finished jobs.
    finished_jobs: Option<String>,
    looks: Looks,
    attempts: Attempts,
    front: Front,
}

impl Site for Pages {
    type Stream = Stream;

    fn front(&self) -> &Front {
        &self.front
    }

    fn may_connect(&self, peer: SocketAddr) -> bool {
        self.sources.settings.web.networks.contain(peer.ip())
    }

    async fn metrics(self: Arc<Self>, _: Parameters) -> Answer {
        let gauges = metrics::Gauges {
            started_ms: self.sources.started_ms,
            rows: self.sources.all_rows(),
            load: self.sources.store.load(),
            trackers: self.sources.cluster.count(),
            connections: self.front.open(),
            requests: self.front.requests(),
            refused: self.front.refused(),
            journals: self.sources.home.as_ref().and_then(|home| {
                // Those that wait have none.
                let waiting = self.sources.store.load().waiting;
                Some(home.job_names().ok()?.len().saturating_sub(waiting))
            }),
        };
        let meter = self.sources.meter.clone();
        self.front.make_metrics(move || prometheus::answer(metrics::render(&meter, &gauges))).await
    }

    async fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        caller: Peer,
        stop: watch::Receiver<bool>,
    ) -> Answer {
        let path_of_proxy = prefix::of(request.headers());
        let answer = self.answer_plain(request, caller, &stop).await;
        match path_of_proxy {
            Some(path) => prefix::below(answer, &path).await,
            None => answer,
        }
    }
}

/// Why a request has no answer of its own.
enum Nothing {
    /// There is nothing of this name.
    NotFound(&'static str),
    /// It is there and does not answer.
    Busy(AskError),
    /// The request makes no sense.
    Wrong(String),
    /// Something else, with its status.
    Other(StatusCode, String),
}

impl From<AskError> for Nothing {
    fn from(error: AskError) -> Nothing {
        match error {
            AskError::Gone => Nothing::NotFound("The details of this job are not kept any more."),
            error => Nothing::Busy(error),
        }
    }
}

impl Nothing {
    /// Why a job has no details here.
    fn of(found: Found) -> Nothing {
        match found {
            Found::OnNode(_, job) => on_node(job.pages().as_deref()),
            Found::Waiting(..) => Nothing::NotFound("The job waits to begin: it has no tasks yet."),
            Found::Whole(..) | Found::Retired(_) => AskError::Gone.into(),
        }
    }

    fn parts(self) -> (StatusCode, String) {
        match self {
            Nothing::NotFound(sentence) => (StatusCode::NOT_FOUND, sentence.to_owned()),
            Nothing::Busy(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Nothing::Wrong(sentence) => (StatusCode::BAD_REQUEST, sentence),
            Nothing::Other(status, sentence) => (status, sentence),
        }
    }
}

const NO_JOB: Nothing = Nothing::NotFound("This service knows no job with this id.");
const NO_TASK: Nothing = Nothing::NotFound("The job has no task with this name.");
const NO_ATTEMPT: Nothing = Nothing::NotFound("The job has no attempt with this name.");
const NO_PAGE: Nothing = Nothing::NotFound("There is nothing at this address.");
const NO_API_PATH: Nothing = Nothing::NotFound("no such path in the API; /api/v1 lists its paths");

impl Pages {
    pub(crate) fn new(sources: Arc<PageSources>, gate: Arc<Gate>) -> Pages {
        let web = &sources.settings.web;
        let own = &*sources.settings.http_address.host;
        let names =
            web.hosts.iter().map(|name| &**name).chain([own, &*sources.name, &*sources.at.host]);
        let room = Room {
            connections: web.max_connections,
            of_peer: web.max_connections_per_peer,
            probes: web.probe_connections,
        };
        Pages {
            host: short_name(&sources.at.host).into(),
            cluster_manager: sources.settings.cluster_manager_pages.page_address(),
            finished_jobs: sources
                .settings
                .finished_job_pages
                .as_ref()
                .and_then(HostPort::page_address),
            looks: Looks::default(),
            attempts: Attempts::default(),
            front: Front::new(
                ("job tracker", "corona.jt.web.hosts"),
                room,
                Hosts::of_machine(names),
                gate,
            ),
            sources,
        }
    }

    /// The answer to a request that is not answered in front.
    async fn answer_plain<B: RequestBody>(
        &self,
        request: Request<B>,
        caller: Peer,
        stop: &watch::Receiver<bool>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let parameters = Parameters::parse(head.uri.query().unwrap_or_default().as_bytes());
        let segments: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|segment| exchange::decode_segment(segment).into_owned())
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match head.method {
            Method::GET | Method::HEAD => {}
            Method::POST => {
                let form = read_own_form(&head.headers, body).await;
                return self.post(&segments, &form, caller.address).await;
            }
            _ => {
                let sentence = "only GET, HEAD and POST are supported\n";
                return exchange::text(StatusCode::METHOD_NOT_ALLOWED, sentence);
            }
        }
        match segments[..] {
            ["api", "v1", "events"] => self.events(&head.headers, &parameters, caller, stop),
            ["api", "v1", ref rest @ ..] => match self.api(rest, parameters).await {
                Ok(answer) => answer,
                Err(nothing) => refuse_program(nothing),
            },
            ["api", ..] => refuse_program(NO_PAGE),
            [file] if file.contains('.') => match original::redirect(file, &parameters) {
                Some(address) => exchange::see_other(&address),
                None => self.refuse(NO_PAGE),
            },
            _ => match self.page(&segments, parameters).await {
                Ok(answer) => answer,
                Err(nothing) => self.refuse(nothing),
            },
        }
    }

    /// The stream of events, of one job or of all.
    fn events(
        &self,
        headers: &HeaderMap,
        parameters: &Parameters,
        reader: Peer,
        stop: &watch::Receiver<bool>,
    ) -> Answer {
        if !self.sources.shows_jobs() {
            let sentence = "corona.jt.viewers does not admit everybody: events are not shown";
            return refuse_program(Nothing::Other(StatusCode::FORBIDDEN, sentence.to_owned()));
        }
        let meant = parameters.text("job").map(|job| match job.parse() {
            Ok(id) => self.sources.meant(id).as_str().to_owned(),
            Err(_) => job.to_owned(),
        });
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
        let wanted = Wanted { job: meant.map(Into::into), reader: Some(reader) };
        self.sources.events.answer(last, parameters, wanted, stop.clone())
    }

    fn job(&self, id: &str) -> Result<Found, Nothing> {
        self.sources.found(id).ok_or(NO_JOB)
    }

    /// A job whose details are kept.
    fn whole(&self, id: &str) -> Result<(Row, Job), Nothing> {
        match self.job(id)? {
            Found::Whole(row, job) => Ok((row, job)),
            found => Err(Nothing::of(found)),
        }
    }

    async fn page(&self, segments: &[&str], parameters: Parameters) -> Result<Answer, Nothing> {
        let manager = self.cluster_manager.clone();
        Ok(match *segments {
            [""] => self.jobs(html::jobs::List::Running, parameters).await,
            ["ended"] => self.jobs(html::jobs::List::Ended, parameters).await,
            ["trackers"] => {
                let trackers = self.sources.cluster.trackers();
                let refresh = refresh_ms(trackers.len());
                self.make("/trackers", "Task trackers", Some(refresh), move || {
                    html::trackers::content(&trackers, manager.as_deref(), &parameters)
                })
                .await
            }
            ["jobs", id] => self.job_page(id).await?,
            ["jobs", id, "tasks"] => {
                let (row, job) = self.whole(id)?;
                let detail = self.sources.detail(&self.looks, &job).await?;
                let refresh = row.progress.finished_at.is_none();
                let refresh = refresh.then(|| refresh_ms(detail.tasks.len()));
                let title = format!("Tasks of {}", row.description.id);
                self.make(section(&row), &title, refresh, move || {
                    html::tasks::content(&row, &detail, &parameters)
                })
                .await
            }
            ["jobs", id, "failures"] => {
                let (row, job) = self.whole(id)?;
                let tasks = gather::ended_attempts(&job).await?;
                let attempts = tasks.iter().flat_map(|task| &task.view.attempts);
                let places = self.sources.places(attempts.map(|attempt| &*attempt.node));
                let refresh = row.progress.finished_at.is_none().then_some(SLOW_REFRESH_MS);
                let title = format!("Failures of {}", row.description.id);
                self.make(section(&row), &title, refresh, move || {
                    html::failures::content(&row, &tasks, &places, &parameters)
                })
                .await
            }
            ["jobs", id, "tasks", name] => {
                let view = self.task_view(id, name, |key| key.1.is_none()).await?.0;
                let refresh = view.row.progress.finished_at.is_none().then_some(REFRESH_MS);
                self.make(section(&view.row), &format!("Task {name}"), refresh, move || {
                    html::task::task(&view)
                })
                .await
            }
            ["jobs", id, "attempts", name] => {
                let (view, number) = self.task_view(id, name, |key| key.1.is_some()).await?;
                let number = number.ok_or(NO_ATTEMPT)?;
                let known = |it: &corona_job_engine::AttemptView| it.attempt.number == number;
                if !view.task.view.attempts.iter().any(known) {
                    return Err(NO_ATTEMPT);
                }
                let refresh = view.row.progress.finished_at.is_none().then_some(REFRESH_MS);
                self.make(section(&view.row), &format!("Attempt {name}"), refresh, move || {
                    html::task::attempt(&view, number).unwrap_or_default()
                })
                .await
            }
            ["jobs", id, "configuration"] => {
                let row = self.job(id)?.row();
                let properties = self.properties(&row.description.id).await?;
                let title = format!("Configuration of {}", row.description.id);
                self.make(section(&row), &title, None, move || {
                    html::configuration::content(&row.description.id, &properties, &parameters)
                })
                .await
            }
            ["jobs", id, "history"] => {
                let row = self.job(id)?.row();
                exchange::text(StatusCode::OK, self.history(&row.description.id).await?)
            }
            ["jobs", id, "end"] => self.end_page(id, Target::Job, None).await?,
            ["jobs", id, "tasks", name, "end"] => {
                self.end_page(id, Target::Task(name.to_owned()), None).await?
            }
            ["jobs", id, "attempts", name, "end"] => {
                self.end_page(id, Target::Attempt(name.to_owned()), None).await?
            }
            _ => return Err(NO_PAGE),
        })
    }

    async fn jobs(&self, list: html::jobs::List, parameters: Parameters) -> Answer {
        let (section, title) = match list {
            html::jobs::List::Running => ("/", "Running jobs"),
            html::jobs::List::Ended => ("/ended", "Ended jobs"),
        };
        let (rows, hidden) = (self.sources.rows(), !self.sources.shows_jobs());
        let refresh = refresh_ms(rows.len());
        let load = self.sources.store.load();
        self.make(section, title, Some(refresh), move || {
            html::jobs::content(list, &rows, &load, now(), hidden, &parameters)
        })
        .await
    }

    async fn job_page(&self, id: &str) -> Result<Answer, Nothing> {
        let found = self.job(id)?;
        let row = found.row();
        let (detail, kept) = match &found {
            Found::Whole(_, job) => (Some(self.sources.detail(&self.looks, job).await?), None),
            Found::OnNode(_, job) => (None, job.counters().map(Arc::unwrap_or_clone)),
            Found::Waiting(..) => (None, None),
            Found::Retired(retired) => (None, Some(retired.counters.clone())),
        };
        let waits = match found.is_waiting() {
            true => Some(self.sources.waits(&row.description.id).await),
            false => None,
        };
        let tasks = detail.as_ref().map_or(0, |detail| detail.tasks.len());
        let refresh = row.progress.finished_at.is_none().then(|| refresh_ms(tasks));
        let section = section(&row);
        let title = format!("Job {}", row.description.id);
        let view = html::job::View {
            row,
            detail,
            kept,
            job_tracker: found.job_tracker(),
            note: found.note(),
            waits,
            may_be_ended: self.sources.settings.web.kill_token.is_some(),
            cluster_manager: self.cluster_manager.clone(),
            now: now(),
        };
        Ok(self.make(section, &title, refresh, move || html::job::content(&view)).await)
    }

    /// What pages of a task and of an attempt show.
    async fn task_view(
        &self,
        id: &str,
        name: &str,
        is_wanted: impl Fn(&(TaskKey, Option<u32>)) -> bool,
    ) -> Result<(html::task::View, Option<u32>), Nothing> {
        let (row, job) = self.whole(id)?;
        let keys = api::keys(&row.description.id, name).filter(is_wanted);
        let (key, number) = keys.ok_or(NO_TASK)?;
        let task = gather::task(&job, key).await?.ok_or(NO_TASK)?;
        let places = self.sources.places(task.view.attempts.iter().map(|it| &*it.node));
        let may_be_ended = self.sources.settings.web.kill_token.is_some();
        let view = html::task::View { row, task, places, may_be_ended, now: now() };
        Ok((view, number))
    }

    async fn properties(&self, job: &JobId) -> Result<Vec<JobProperty>, Nothing> {
        let found = self.sources.job_properties(job).await;
        found.map_err(|error| Nothing::Other(StatusCode::NOT_FOUND, error.to_string()))
    }

    async fn history(&self, job: &JobId) -> Result<String, Nothing> {
        let found = self.sources.history_text(job).await;
        found.map_err(|error| Nothing::Other(StatusCode::NOT_FOUND, error.to_string()))
    }

    async fn api(&self, segments: &[&str], parameters: Parameters) -> Result<Answer, Nothing> {
        let paging = || Paging::of(&parameters).map_err(Nothing::Wrong);
        Ok(match *segments {
            [] | [""] => self.json(api::index).await,
            ["status"] => {
                let status = self.status().await;
                self.json(move || status).await
            }
            ["jobs"] => {
                let (rows, paging) = (self.sources.rows(), paging()?);
                self.checked(move || api::jobs(rows, &parameters, &paging, now().0)).await
            }
            ["jobs", id, ref path @ ..] => self.api_of_job(id, path, parameters).await?,
            _ => return Err(NO_API_PATH),
        })
    }

    async fn api_of_job(
        &self,
        id: &str,
        path: &[&str],
        parameters: Parameters,
    ) -> Result<Answer, Nothing> {
        let paging = || Paging::of(&parameters).map_err(Nothing::Wrong);
        Ok(match *path {
            [] => {
                let found = self.job(id)?;
                let row = found.row();
                let detail = match &found {
                    Found::Whole(_, job) => Some(self.sources.detail(&self.looks, job).await?),
                    Found::OnNode(..) | Found::Waiting(..) | Found::Retired(_) => None,
                };
                let note = found.note();
                let pages = found.job_tracker().flatten();
                let session = self.sources.session(&row.description.id);
                let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
                self.json(move || JobDetail {
                    note: text(note),
                    job_tracker_pages: text(pages),
                    session: text(session),
                    ..api::one_job(&row, detail.as_deref())
                })
                .await
            }
            ["nodes", node] => {
                let node = node.to_owned();
                let of = match self.job(id)? {
                    Found::Whole(_, job) => job.look(move |job| job.use_of_node(&node)).await?,
                    // The slots of its job tracker are known to the cluster manager, and a job that waits or has
                    // ended needs nothing.
                    Found::OnNode(..) | Found::Waiting(..) | Found::Retired(_) => {
                        NodeUse::default()
                    }
                };
                self.json(move || api::use_of_node(of)).await
            }
            ["tasks"] => {
                let ((row, job), paging) = (self.whole(id)?, paging()?);
                let detail = self.sources.detail(&self.looks, &job).await?;
                self.checked(move || api::tasks(&row.description.id, &detail, &parameters, &paging))
                    .await
            }
            ["tasks", name] => {
                let view = self.task_view(id, name, |key| key.1.is_none()).await?.0;
                self.json(move || api::task(&view.row.description.id, &view.task, &view.places))
                    .await
            }
            ["attempts", name] => {
                let (view, number) = self.task_view(id, name, |key| key.1.is_some()).await?;
                let (job, places) = (&view.row.description.id, &view.places);
                let attempt = number.and_then(|it| api::one_attempt(job, &view.task, it, places));
                let attempt = attempt.ok_or(NO_ATTEMPT)?;
                self.json(move || attempt).await
            }
            ["failures"] => {
                let (row, job) = self.whole(id)?;
                let tasks = gather::ended_attempts(&job).await?;
                let attempts = tasks.iter().flat_map(|task| &task.view.attempts);
                let places = self.sources.places(attempts.map(|attempt| &*attempt.node));
                self.json(move || api::failures(&row.description.id, &tasks, &places)).await
            }
            ["counters"] => self.counters(id).await?,
            ["events"] => {
                let (row, job) = self.whole(id)?;
                let limit = paging()?.limit.min(MOST_EVENTS);
                let from = match parameters.text("from").map(str::parse) {
                    None => 0,
                    Some(Ok(from)) => from,
                    Some(Err(_)) => {
                        return Err(Nothing::Wrong("from: expected a number of events".to_owned()));
                    }
                };
                let events = job.look(move |job| job.events(from, limit)).await?;
                self.json(move || api::events(&row.description.id, from, &events)).await
            }
            ["waits"] => self.waits(id).await?,
            ["configuration"] => {
                let row = self.job(id)?.row();
                let properties = self.properties(&row.description.id).await?;
                self.json(move || JobProperties { properties }).await
            }
            ["history"] => {
                let row = self.job(id)?.row();
                exchange::text(StatusCode::OK, self.history(&row.description.id).await?)
            }
            _ => return Err(NO_API_PATH),
        })
    }

    async fn counters(&self, id: &str) -> Result<Answer, Nothing> {
        Ok(match self.job(id)? {
            Found::Whole(_, job) => {
                let detail = self.sources.detail(&self.looks, &job).await?;
                self.json(move || JobCounters {
                    maps: Some(api::counters(&detail.by_kind.map)),
                    reduces: Some(api::counters(&detail.by_kind.reduce)),
                    total: api::counters(&detail.counters),
                })
                .await
            }
            Found::OnNode(_, job) => {
                let counters = job.counters().ok_or_else(|| on_node(job.pages().as_deref()))?;
                self.json(move || total(&counters)).await
            }
            Found::Waiting(..) => self.json(JobCounters::default).await,
            Found::Retired(retired) => self.json(move || total(&retired.counters)).await,
        })
    }

    async fn waits(&self, id: &str) -> Result<Answer, Nothing> {
        let found = self.job(id)?;
        let row = found.row();
        let waits = match found.is_waiting() {
            true => self.sources.waits(&row.description.id).await,
            false => Ok(Vec::new()),
        };
        let (requested, note) = (row.progress.requested, found.note());
        Ok(self
            .json(move || {
                let (waits, error) = match waits {
                    Ok(waits) => (Some(waits), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                let note = note.map(|note| note.to_string());
                JobWaits { requested_slots: requested, waits, error, note }
            })
            .await)
    }

    async fn status(&self) -> JobService {
        let rows = self.sources.all_rows();
        let (load, budget) = (self.sources.store.load(), budget::now());
        let count = |state| rows.iter().filter(|row| row.progress.state == state).count();
        use corona_mapreduce::JobState;
        let from = Some(load.from.to_string());
        JobService {
            version: env!("CARGO_PKG_VERSION").into(),
            now_ms: now().0,
            started_ms: self.sources.started_ms,
            jobs: JobsByState {
                prep: count(JobState::Prep),
                running: count(JobState::Running),
                succeeded: count(JobState::Succeeded),
                failed: count(JobState::Failed),
                killed: count(JobState::Killed),
            },
            limits: JobLimits {
                running_jobs: JobLimit { used: load.used, limit: load.most, from },
                running_jobs_memory_bytes: Some(MemoryLimit {
                    used: load.memory_used,
                    limit: load.memory.most,
                    from: load.memory.from.to_string(),
                }),
                waiting_jobs: JobLimit { used: load.waiting, limit: load.most_waiting, from: None },
            },
            open_files: OpenFiles {
                used: budget.open_files.used,
                limit: budget.open_files.limit,
                uses: budget.uses.clone(),
            },
            budget: Some(budget),
            task_trackers: self.sources.cluster.count(),
            jobs_are_shown: self.sources.shows_jobs(),
        }
    }

    /// A form that was sent.
    async fn post(&self, segments: &[&str], form: &Form, peer: SocketAddr) -> Answer {
        let (id, target, by_program) = match *segments {
            ["jobs", id, "end"] => (id, Target::Job, false),
            ["jobs", id, "tasks", name, "end"] => (id, Target::Task(name.to_owned()), false),
            ["jobs", id, "attempts", name, "end"] => (id, Target::Attempt(name.to_owned()), false),
            ["api", "v1", "jobs", id, "end"] => (id, Target::Job, true),
            ["api", "v1", "jobs", id, "tasks", name, "end"] => {
                (id, Target::Task(name.to_owned()), true)
            }
            ["api", "v1", "jobs", id, "attempts", name, "end"] => {
                (id, Target::Attempt(name.to_owned()), true)
            }
            // Hive ends its job so, without a token.
            [file] if file.ends_with(".jsp") => {
                let sentence = "The pages end nothing without a token: use hadoop job -kill.";
                return self.say(StatusCode::FORBIDDEN, "Not allowed", sentence);
            }
            _ => return self.refuse(NO_PAGE),
        };
        let ended = self.end(id, &target, form, peer).await;
        match (ended, by_program) {
            (Ok(job), false) => exchange::see_other(&target.path(&job)),
            (Ok(job), true) => json_answer(&Ended { ended: target.name(&job) }),
            (Err(Denied::Objection(objection)), true) => {
                let sentence = objection.sentence().to_owned();
                refuse_program(Nothing::Other(objection.status(), sentence))
            }
            (Err(Denied::Nothing(nothing)), true) => refuse_program(nothing),
            (Err(Denied::Objection(objection)), false) => {
                let page = self.end_page(id, target, Some(objection)).await;
                page.unwrap_or_else(|nothing| self.refuse(nothing))
            }
            (Err(Denied::Nothing(nothing)), false) => self.refuse(nothing),
        }
    }

    /// Ends something, if the sender knows the token and may do so.
    async fn end(
        &self,
        id: &str,
        target: &Target,
        form: &Form,
        peer: SocketAddr,
    ) -> Result<JobId, Denied> {
        let web = &self.sources.settings.web;
        let token = web.kill_token.as_ref().ok_or(Denied::Nothing(no_token()))?;
        if !web.admin_networks.contain(peer.ip()) {
            let sentence = "Nothing may be ended from your address (corona.jt.admin.networks).";
            return Err(Denied::Nothing(Nothing::Other(
                StatusCode::FORBIDDEN,
                sentence.to_owned(),
            )));
        }
        let form = form.as_ref().map_err(|objection| Denied::Objection(*objection))?;
        let is_right = || token.is(form.get("token").unwrap_or_default());
        match self.attempts.check(corona_net::peer_of(peer.ip()), Instant::now(), is_right) {
            Ok(()) => {}
            Err(Failed::Wrong(attempts)) => {
                tracing::warn!("Wrong token to end a job from {}, attempt {attempts}", peer.ip());
                return Err(Denied::Objection(Objection::WrongToken));
            }
            Err(Failed::TooSoon) => return Err(Denied::Objection(Objection::TooSoon)),
        }
        let (row, job) = match (self.job(id)?, target) {
            (Found::OnNode(row, job), Target::Job) => {
                return self.end_on_node(&row, &job, peer).await;
            }
            (Found::Waiting(row, _), Target::Job) => {
                let id = row.description.id.clone();
                tracing::info!("{} ends {}", peer.ip(), target.name(&id));
                self.sources.store.kill_waiting(&id).await;
                // One that was about to begin runs.
                match self.job(id.as_str())? {
                    Found::OnNode(row, job) => return self.end_on_node(&row, &job, peer).await,
                    Found::Whole(row, job) => (row, job),
                    Found::Waiting(..) | Found::Retired(_) => return Ok(id),
                }
            }
            (Found::Whole(row, job), _) => (row, job),
            (found, _) => return Err(Nothing::of(found).into()),
        };
        let id = row.description.id.clone();
        let name = target.name(&id);
        tracing::info!("{} ends {name}", peer.ip());
        let inputs = match target {
            Target::Job => vec![JobInput::KillJob],
            Target::Attempt(name) => {
                let (key, number) = html::task::attempt_key(&id, name).ok_or(NO_ATTEMPT)?;
                let fail = form.text("fail").is_some();
                vec![JobInput::KillAttempt { attempt: key.attempt(number), fail }]
            }
            Target::Task(name) => {
                let key = gather::task_key(&id, name).ok_or(NO_TASK)?;
                let task = gather::task(&job, key).await.map_err(Nothing::from)?.ok_or(NO_TASK)?;
                let live = task.view.attempts.iter().filter(|attempt| attempt.state.is_live());
                live.map(|it| JobInput::KillAttempt { attempt: it.attempt, fail: false }).collect()
            }
        };
        for input in inputs {
            match job.apply(input).await {
                Ok(JobReply::Killed(false)) if matches!(target, Target::Attempt(_)) => {
                    let sentence =
                        "The attempt has not reported yet, or is ending. Nothing was ended.";
                    return Err(Nothing::Other(StatusCode::CONFLICT, sentence.to_owned()).into());
                }
                Ok(_) | Err(AskError::Refused(corona_job_engine::JobRefusal::Ended)) => {}
                Err(AskError::Refused(corona_job_engine::JobRefusal::UnknownAttempt)) => {
                    return Err(NO_ATTEMPT.into());
                }
                Err(error) => return Err(Nothing::from(error).into()),
            }
        }
        Ok(id)
    }

    /// Ends a job that a job tracker on a node runs.
    async fn end_on_node(
        &self,
        row: &Row,
        job: &RemoteJob,
        peer: SocketAddr,
    ) -> Result<JobId, Denied> {
        let id = &row.description.id;
        tracing::info!("{} ends {}", peer.ip(), Target::Job.name(id));
        match job.apply(ParentInput::KillJob).await {
            // It is refused by a job that is over.
            Ok(_) | Err(AskError::Gone) => Ok(id.clone()),
            Err(error) => Err(Nothing::from(error).into()),
        }
    }

    /// The question whether to end something, perhaps asked again.
    async fn end_page(
        &self,
        id: &str,
        target: Target,
        objection: Option<Objection>,
    ) -> Result<Answer, Nothing> {
        if self.sources.settings.web.kill_token.is_none() {
            return Err(no_token());
        }
        let row = match (self.job(id)?, &target) {
            (Found::OnNode(row, _), Target::Job) | (Found::Whole(row, _), _) => row,
            (found, _) => return Err(Nothing::of(found)),
        };
        if row.progress.finished_at.is_some() {
            return Ok(exchange::see_other(&job_path(&row.description.id)));
        }
        let title = format!("End {}", target.name(&row.description.id));
        let section = section(&row);
        let mut page = self
            .make(section, &title, None, move || html::end::content(&row, &target, objection))
            .await;
        if let Some(objection) = objection {
            *page.status_mut() = objection.status();
        }
        Ok(page)
    }

    /// Makes a page on a thread that may take its time.
    async fn make(
        &self,
        section: &str,
        title: &str,
        refresh_ms: Option<u64>,
        content: impl FnOnce() -> Markup + Send + 'static,
    ) -> Answer {
        let [before, after] = Frame { refresh_ms, ..self.frame(Some(section), title) }.around();
        self.front
            .make(move || exchange::html(StatusCode::OK, html! { (before) (content()) (after) }))
            .await
    }

    /// The answer of a function that checks its parameters.
    async fn checked<T: Serialize>(
        &self,
        make: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Answer {
        self.front
            .make(move || match make() {
                Ok(value) => json_answer(&value),
                Err(sentence) => refuse_program(Nothing::Wrong(sentence)),
            })
            .await
    }

    async fn json<T: Serialize>(&self, make: impl FnOnce() -> T + Send + 'static) -> Answer {
        self.front.make(move || json_answer(&make())).await
    }

    /// A page that says a sentence.
    fn say(&self, status: StatusCode, title: &str, sentence: &str) -> Answer {
        exchange::html(status, self.frame(None, title).notice(sentence))
    }

    fn frame<'a>(&'a self, section: Option<&'a str>, title: &'a str) -> Frame<'a> {
        Frame {
            title,
            host: &self.host,
            service: format!("{} jobs", self.host),
            sections: &SECTIONS,
            section,
            elsewhere: vec![(self.cluster_manager.clone(), "Cluster")],
            links: vec![
                (self.finished_jobs.clone(), "Finished jobs"),
                (Some("/api/v1".into()), "API"),
                (Some("/metrics".into()), "Metrics"),
            ],
            now: now(),
            updates: Updates::Polled,
            ..Frame::default()
        }
    }

    fn refuse(&self, nothing: Nothing) -> Answer {
        let (status, sentence) = nothing.parts();
        let title = match status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN => "Not allowed",
            StatusCode::SERVICE_UNAVAILABLE => "Try again",
            _ => "Not possible",
        };
        self.say(status, title, &sentence)
    }
}

/// The answer to a question about a job that only its job tracker on a node can answer.
fn on_node(pages: Option<&str>) -> Nothing {
    let sentence = match pages {
        Some(pages) => format!("A job tracker on a node runs this job; its pages are at {pages}"),
        None => "A job tracker on a node runs this job, and its pages are not known.".to_owned(),
    };
    Nothing::Other(StatusCode::NOT_FOUND, sentence)
}

/// Why nothing is ended.
enum Denied {
    Objection(Objection),
    Nothing(Nothing),
}

impl From<Nothing> for Denied {
    fn from(nothing: Nothing) -> Denied {
        Denied::Nothing(nothing)
    }
}

fn no_token() -> Nothing {
    let sentence = "Ending jobs and tasks over HTTP is off: corona.jt.web.kill.token is not set.";
    Nothing::Other(StatusCode::FORBIDDEN, sentence.to_owned())
}

/// The answer to a program that gets nothing else.
fn refuse_program(nothing: Nothing) -> Answer {
    let (status, error) = nothing.parts();
    exchange::json(status, serde_json::to_string(&Failure { error }).unwrap_or_default())
}

/// The members are sorted by name, whatever the order in the shape: a value sorts them.
fn json_answer(shape: &impl Serialize) -> Answer {
    let value = serde_json::to_value(shape).unwrap_or_default();
    exchange::json(StatusCode::OK, value.to_string())
}

/// Counters of which only the sums are known.
fn total(counters: &Counters) -> JobCounters {
    JobCounters { total: api::counters(counters), ..JobCounters::default() }
}

fn section(row: &Row) -> &'static str {
    match row.progress.finished_at {
        Some(Millis(_)) => "/ended",
        None => "/",
    }
}
