//! The HTTP service: pages, the original's JSON tables, events, metrics.
//!
//! Routes a request to the function that makes its response. The data are gathered first, in pieces
//! ([`gather`]); the response is made without the engine, on a thread that may take its time.
//! `docs/operate/web.md` lists the addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use maud::{Markup, html};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::interval;

use crate::exchange::{self, Answer, Parameters};
use crate::filter::Filter;
use crate::gather::{Gather, NodeCounts, Overview, Pools, count_nodes};
use crate::history::{History, Latencies, Sample};
use crate::metrics::exposition::{self, Gauges, WebCounts};
use crate::metrics::original::Records;
use crate::pages::kill::SAFE_MODE;
use crate::problems::{self, Problem, Sources};
use crate::standby::write_leader_metrics;
use crate::{Manager, QueueCounts, Restart, api, conf, original, pages};
use corona_access::{Gate, Peer};
use corona_api::cluster::JournalStatus;
use corona_config::{AccessSettings, ClusterManagerSettings, HostFiles, HostPort, Secret};
use corona_engine::{Input, Refusal, Reply};
use corona_model::types::{Millis, ResourceType};
use corona_net::Counters;
use corona_process::panics::restart_on_panic;
use corona_process::{machine_name_or_localhost, since_epoch_ms};
use corona_web::attempts::{Attempts, Failed};
use corona_web::events::{Stream, Wanted};
use corona_web::frame::{Frame, Updates};
use corona_web::hosts::{Hosts, short_name};
use corona_web::making::{REFRESH_MS, refresh_ms};
use corona_web::operator::{Form, Objection, read_own_form};
use corona_web::prometheus::{self, Text};
use corona_web::server::{Front, RequestBody, Room, Site, serve};

/// The pages that every page leads to.
const SECTIONS: [(&str, &str); 6] = [
    ("/", "Cluster"),
    ("/pools", "Pools"),
    ("/sessions", "Sessions"),
    ("/nodes", "Nodes"),
    ("/retired", "Retired"),
    ("/configuration", "Configuration"),
];
/// The driving task is taken for dead when it was not seen for longer than this.
const BEAT_LIMIT: Duration = Duration::from_secs(10);

/// Everything that the pages show, and the ways to it.
#[derive(Debug)]
pub struct Pages<M: Manager> {
    pub(crate) gather: Gather<M>,
    pub(crate) manager: Arc<M>,
    /// Counters of the Thrift server.
    wire: Arc<Counters>,
    /// When this process was started.
    pub(crate) started: Millis,
    pub(crate) history: History,
    access: AccessSettings,
    pub(crate) host_files: HostFiles,
    kill_token: Option<Secret>,
    /// The name of this cluster manager: that of its web address, up to the first dot.
    host: Box<str>,
    /// Where the job tracker service shows the jobs that run.
    running_jobs: Option<String>,
    /// Where the proxy job tracker shows finished jobs.
    finished_jobs: Option<String>,
    attempts: Attempts,
    pub(crate) front: Front,
}

/// Discards all copies when it is dropped.
struct ForgetsCopies<'a, M: Manager>(&'a Gather<M>);

impl<M: Manager> Drop for ForgetsCopies<'_, M> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl<M: Manager> Pages<M> {
    /// The pages of a cluster manager with these settings, for peers that the gate lets in. `wire` are the
    /// counters of its Thrift server.
    pub fn new(
        manager: Arc<M>,
        wire: Arc<Counters>,
        gate: Arc<Gate>,
        of_manager: &ClusterManagerSettings,
    ) -> Pages<M> {
        let (settings, host) = (&of_manager.web, &*of_manager.http_address.host);
        Pages {
            gather: Gather::new(manager.clone(), settings.tracker_port),
            started: manager.look(|_, now| now),
            wire,
            history: History::new(settings.sample_period),
            kill_token: settings.kill_token.clone(),
            host: short_name(host).into(),
            running_jobs: settings.running_jobs.as_ref().and_then(HostPort::page_address),
            finished_jobs: settings.finished_jobs.as_ref().and_then(HostPort::page_address),
            attempts: Attempts::default(),
            front: front(of_manager, gate),
            access: of_manager.access.clone(),
            host_files: of_manager.host_files.clone(),
            manager,
        }
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let (pages, stop_sampling) = (self.clone(), stop.clone());
        let sampling = tokio::spawn(async move {
            let sample = || pages.clone().sample(stop_sampling.clone());
            restart_on_panic("the sampler of the pages", sample).await;
        });
        serve(self, listener, stop).await;
        let _ = sampling.await;
    }

    /// Takes samples until `stop` becomes true.
    async fn sample(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut due = interval(self.history.period());
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = due.tick() => self.take_sample(),
            }
        }
    }

    /// Ends the reuse of copies, so that the next answers show a change that was just made.
    pub fn forget_copies(&self) {
        self.gather.forget();
    }

    /// Has the present copies reused for as long as a test may take.
    #[cfg(feature = "testing")]
    pub fn keep_copies(&self) {
        self.gather.keep_copies();
    }

    /// Adds the present use of slots and the latencies up to now to the history.
    pub fn take_sample(&self) {
        let Overview { now, slots, .. } = self.gather.overview();
        self.history.add(Sample { at: now, slots }, self.manager.metrics());
    }

    /// The page at a path; `None` if there is none.
    async fn page(self: Arc<Self>, segments: &[&str], parameters: Parameters) -> Option<Answer> {
        let overview = self.gather.overview();
        let answered = match segments {
            [""] => self.cluster_page(overview).await,
            ["pools"] => {
                let pools = self.gather.pools().await;
                let refresh = refresh_ms(pools.views.len());
                self.make("/pools", "Pools", overview, Some(refresh), move |overview| {
                    pages::pools::content(&pools, overview, &parameters)
                })
                .await
            }
            ["sessions"] => {
                let sessions = self.gather.sessions().await;
                let refresh = refresh_ms(sessions.len());
                self.make("/sessions", "Sessions", overview, Some(refresh), move |overview| {
                    pages::sessions::content(&sessions, overview, &parameters)
                })
                .await
            }
            ["sessions", handle] => {
                let handle = exchange::decode_segment(handle).into_owned();
                self.session_page(&handle, overview, parameters).await
            }
            ["sessions", handle, "kill"] => {
                let handle = exchange::decode_segment(handle).into_owned();
                self.kill_page(&handle, None).await
            }
            ["nodes"] => {
                let nodes = self.gather.nodes().await;
                let refresh = refresh_ms(nodes.len());
                self.make("/nodes", "Nodes", overview, Some(refresh), move |overview| {
                    pages::nodes::content(&nodes, overview, &parameters)
                })
                .await
            }
            ["nodes", name] => {
                let name = exchange::decode_segment(name).into_owned();
                self.node_page(&name, overview, parameters).await
            }
            ["nodes", name, "clear-blacklist"] => {
                let name = exchange::decode_segment(name).into_owned();
                self.clear_blacklist_page(&name, None).await
            }
            ["retired"] => {
                let retired = self.gather.retired().await;
                let refresh = refresh_ms(retired.len());
                self.make("/retired", "Retired", overview, Some(refresh), move |overview| {
                    pages::retired::content(&retired, overview, &parameters)
                })
                .await
            }
            ["configuration"] => {
                let status = self.manager.configuration();
                let loaded_at = Millis(since_epoch_ms(status.loaded_at));
                let title = "Configuration";
                let refresh = Some(REFRESH_MS);
                self.make("/configuration", title, overview, refresh, move |_| {
                    pages::configuration::content(&status, loaded_at, &parameters)
                })
                .await
            }
            _ => return None,
        };
        Some(answered)
    }

    async fn cluster_page(&self, overview: Overview) -> Answer {
        let nodes = count_nodes(&self.gather.nodes().await, &overview.hosts);
        let pools = self.gather.pools().await;
        let queues = self.manager.queues();
        let journal = self.manager.journal();
        let view = pages::cluster::View {
            problems: self.problems(&overview, &nodes, &pools, &queues, journal.as_ref()),
            journal,
            ha: self.manager.ha(),
            nodes,
            pools,
            queues,
            samples: self.history.samples(),
            span: self.history.span(),
            lately: self.history.lately(self.manager.metrics()),
            since_start: Latencies::of(self.manager.metrics()),
            events: self.manager.events().notable(),
            overview: overview.clone(),
        };
        let refresh = Some(REFRESH_MS);
        self.make("/", "Cluster", overview, refresh, move |_| pages::cluster::content(&view)).await
    }

    pub(crate) fn problems(
        &self,
        overview: &Overview,
        nodes: &NodeCounts,
        pools: &Pools,
        queues: &QueueCounts,
        journal: Option<&JournalStatus>,
    ) -> Vec<Problem> {
        let (configuration, operations) =
            (&self.manager.configuration(), self.manager.operations());
        let ha = self.manager.ha();
        let versions = &self.manager.versions(self.started);
        let sources = Sources {
            overview,
            nodes,
            pools,
            queues,
            configuration,
            operations,
            journal,
            ha: ha.as_ref(),
            versions,
        };
        problems::list(&sources)
    }

    async fn session_page(
        &self,
        handle: &str,
        overview: Overview,
        parameters: Parameters,
    ) -> Answer {
        let title = format!("Session {handle}");
        let Some(session) = self.gather.session(handle) else {
            let retired = self.gather.retired().await;
            let ended = retired.into_iter().rev().find(|session| *session.handle == *handle);
            let Some(ended) = ended else {
                return self.not_found("No running or retired session has this id.");
            };
            let finished_jobs = self.finished_jobs.clone();
            return self
                .make("/retired", &title, overview, None, move |overview| {
                    pages::session::ended(&ended, overview, finished_jobs.as_deref())
                })
                .await;
        };
        let view = pages::session::View {
            session,
            grants: self.gather.grants(handle).await.unwrap_or_default(),
            waits: self.gather.waits(handle).await,
            may_be_killed: self.kill_token.is_some(),
        };
        let refresh = Some(refresh_ms(view.grants.len()));
        self.make("/sessions", &title, overview, refresh, move |overview| {
            pages::session::running(&view, overview, &parameters)
        })
        .await
    }

    /// The question whether to end a session, perhaps asked again.
    async fn kill_page(&self, handle: &str, objection: Option<Objection>) -> Answer {
        if self.kill_token.is_none() {
            let sentence = "Ending sessions over HTTP is off: corona.cm.web.kill.token is not set.";
            return self.say(StatusCode::FORBIDDEN, "Not allowed", sentence);
        }
        let Some(session) = self.gather.session(handle) else {
            return self.not_found("No session with this id is running.");
        };
        let overview = self.gather.overview();
        let title = format!("End session {handle}");
        let mut page = self
            .make("/sessions", &title, overview, None, move |overview| {
                pages::kill::content(&session, overview, objection)
            })
            .await;
        if let Some(objection) = objection {
            *page.status_mut() = Denial::Objection(objection).status();
        }
        page
    }

    /// Has this instance hand over to a standby, if the sender may make administrative calls.
    fn step_down(&self, headers: &HeaderMap, peer: SocketAddr) -> Answer {
        let refuse = |status, error: String| api::refuse((status, error));
        if self.manager.ha().is_none() {
            let error = "there is no standby: corona.cm.ha.zookeeper is not set".to_owned();
            return refuse(StatusCode::CONFLICT, error);
        }
        if !self.may_administer(peer) || !exchange::is_own_form(headers) {
            return api::refuse(may_not_administer(peer));
        }
        match self.manager.step_down() {
            Ok(()) => {
                tracing::info!("{} asked this leader to step down", peer.ip());
                exchange::json(StatusCode::OK, "{\"stepping_down\":true}".to_owned())
            }
            Err(why) => refuse(StatusCode::CONFLICT, why),
        }
    }

    /// Drains a node or lets it serve again, if the sender may make administrative calls.
    async fn drain(&self, name: &str, form: Option<Parameters>, peer: SocketAddr) -> Answer {
        let Some(form) = form.filter(|_| self.may_administer(peer)) else {
            return api::refuse(may_not_administer(peer));
        };
        let on = match form.text("on") {
            Some("1") => true,
            Some("0") => false,
            _ => return api::refuse((StatusCode::BAD_REQUEST, "on: expected 0 or 1".to_owned())),
        };
        let applied = self.apply(Input::DrainNode { node: name.into(), on }).await;
        if applied.is_err() {
            let error = "the cluster manager is in safe mode: no node can be drained".to_owned();
            return api::refuse((StatusCode::SERVICE_UNAVAILABLE, error));
        }
        if self.gather.node(name).is_none() {
            return api::refuse(api::no_such_node(name));
        }
        let done = if on { "drains" } else { "lets serve again" };
        tracing::info!("{} {done} node {name}", peer.ip());
        self.make_json(move || corona_api::cluster::NodeDraining { draining: on }).await
    }

    /// Has a node start again at its next heartbeat, if the sender may make administrative calls.
    async fn restart(&self, name: &str, form: Option<Parameters>, peer: SocketAddr) -> Answer {
        let Some(form) = form.filter(|_| self.may_administer(peer)) else {
            return api::refuse(may_not_administer(peer));
        };
        let how = match form.text("how") {
            Some("in-place") => Restart::InPlace,
            Some("exit") => Restart::Exit,
            _ => {
                let error = "how: expected in-place or exit".to_owned();
                return api::refuse((StatusCode::BAD_REQUEST, error));
            }
        };
        if self.gather.node(name).is_none() {
            return api::refuse(api::no_such_node(name));
        }
        let in_place = how == Restart::InPlace;
        if in_place && self.manager.programs().of_node(name).is_none() {
            let error = format!("node {name} does not know how to restart in place");
            return api::refuse((StatusCode::CONFLICT, error));
        }
        let method = if in_place { " in place" } else { "" };
        tracing::info!("{} has node {name} restart{method}", peer.ip());
        self.manager.restart(name, how);
        self.make_json(move || corona_api::cluster::NodeRestarting { in_place }).await
    }

    /// Makes a change for an operator, who sees it in the next answer.
    async fn apply(&self, input: Input) -> Result<Reply, Refusal> {
        // The change stands, also when its sender does not wait until it is committed.
        let _at_the_end = ForgetsCopies(&self.gather);
        self.manager.apply(input).await
    }

    /// Ends a session, if the sender knows the token and may make administrative calls.
    async fn kill(&self, handle: &str, form: Form, peer: SocketAddr) -> Answer {
        let action = format!("end session {handle}");
        match self.authorise(&form, peer, &action) {
            Ok(()) => {}
            Err(Denial::Objection(objection)) => {
                return self.kill_page(handle, Some(objection)).await;
            }
            Err(Denial::NoToken) => return self.kill_page(handle, None).await,
            Err(denial) => return self.say(denial.status(), "Not allowed", denial.sentence()),
        }
        if self.gather.session(handle).is_none() {
            return self.not_found("No session with this id is running.");
        }
        tracing::info!("Killing session {handle}");
        match self.apply(Input::KillSession { handle: handle.into() }).await {
            Err(Refusal::SafeMode) => self.kill_page(handle, Some(SAFE_MODE)).await,
            Ok(_) | Err(_) => {
                tracing::info!("{} killed session {handle}", peer.ip());
                exchange::see_other(&pages::links::session_path(handle))
            }
        }
    }

    fn may_administer(&self, peer: SocketAddr) -> bool {
        self.access.admin_networks.contain(peer.ip())
    }

    /// Whether the sender of a form knows the token and may make administrative calls. `action`
    /// names the attempt in the log.
    fn authorise(&self, form: &Form, peer: SocketAddr, action: &str) -> Result<(), Denial> {
        let token = self.kill_token.as_ref().ok_or(Denial::NoToken)?;
        if !self.may_administer(peer) {
            return Err(Denial::Elsewhere);
        }
        let form = form.as_ref().map_err(|objection| Denial::Objection(*objection))?;
        let is_right = || token.is(form.get("token").unwrap_or_default());
        match self.attempts.check(corona_net::peer_of(peer.ip()), Instant::now(), is_right) {
            Ok(()) => Ok(()),
            Err(Failed::Wrong(attempts)) => {
                tracing::warn!("Wrong token to {action} from {}, attempt {attempts}", peer.ip());
                Err(Denial::Objection(Objection::WrongToken))
            }
            Err(Failed::TooSoon) => Err(Denial::Objection(Objection::TooSoon)),
        }
    }

    async fn node_page(&self, name: &str, overview: Overview, parameters: Parameters) -> Answer {
        let Some(detail) = self.gather.node(name) else {
            return self.not_found("There is no node with this name.");
        };
        let view = pages::node::View {
            detail,
            grants: self.gather.node_grants(name).await,
            may_be_changed: self.kill_token.is_some(),
        };
        let refresh = Some(refresh_ms(view.grants.len()));
        self.make("/nodes", &format!("Node {name}"), overview, refresh, move |overview| {
            pages::node::content(&view, overview, &parameters)
        })
        .await
    }

    /// The question whether to lift a blacklisting, perhaps asked again.
    async fn clear_blacklist_page(&self, name: &str, objection: Option<Objection>) -> Answer {
        if self.kill_token.is_none() {
            let denial = Denial::NoToken;
            return self.say(denial.status(), "Not allowed", denial.sentence());
        }
        let Some(detail) = self.gather.node(name) else {
            return self.not_found("There is no node with this name.");
        };
        let title = format!("Lift the blacklisting of node {name}");
        let overview = self.gather.overview();
        let mut page = self
            .make("/nodes", &title, overview, None, move |overview| {
                pages::node::question(&detail, overview, objection)
            })
            .await;
        if let Some(objection) = objection {
            *page.status_mut() = Denial::Objection(objection).status();
        }
        page
    }

    /// Lifts a blacklisting from the form of the page.
    async fn clear_blacklist_by_form(&self, name: &str, form: &Form, peer: SocketAddr) -> Answer {
        match self.clear_blacklist(name, form, peer).await {
            Ok(_) => exchange::see_other(&pages::links::node_path(name)),
            Err(Denial::Objection(objection)) => {
                self.clear_blacklist_page(name, Some(objection)).await
            }
            Err(Denial::UnknownNode) => self.not_found("There is no node with this name."),
            Err(denial) => self.say(denial.status(), "Not allowed", denial.sentence()),
        }
    }

    /// Lifts the blacklisting of a node, for the type in the form or for all. Returns the types for
    /// which it was blacklisted.
    pub(crate) async fn clear_blacklist(
        &self,
        name: &str,
        form: &Form,
        peer: SocketAddr,
    ) -> Result<Vec<ResourceType>, Denial> {
        self.authorise(form, peer, &format!("lift the blacklisting of node {name}"))?;
        let kind = match form.as_ref().ok().and_then(|form| form.text("type")) {
            None => None,
            Some(name) => Some(ResourceType::from_name(name).ok_or(Denial::UnknownType)?),
        };
        if self.gather.node(name).is_none() {
            return Err(Denial::UnknownNode);
        }
        match self.apply(Input::ClearBlacklist { node: name.into(), kind }).await {
            Ok(Reply::BlacklistCleared { kinds }) => {
                tracing::info!("{} lifted the blacklisting of node {name}", peer.ip());
                Ok(kinds)
            }
            Ok(_) => Ok(Vec::new()),
            Err(_) => Err(Denial::Objection(SAFE_MODE)),
        }
    }

    /// Makes a page on a thread that may take its time.
    async fn make(
        &self,
        section: &str,
        title: &str,
        overview: Overview,
        refresh_ms: Option<u64>,
        content: impl FnOnce(&Overview) -> Markup + Send + 'static,
    ) -> Answer {
        let frame = self.frame(Some(section), title, overview.now, overview.safe_mode);
        let [before, after] = Frame { refresh_ms, ..frame }.around();
        self.front
            .make(move || {
                let content = content(&overview);
                exchange::html(StatusCode::OK, html! { (before) (content) (after) })
            })
            .await
    }

    /// A page with a sentence.
    fn say(&self, status: StatusCode, title: &str, sentence: &str) -> Answer {
        let now = self.manager.look(|_, now| now);
        let frame = self.frame(None, title, now, self.manager.metrics().safe_mode());
        exchange::html(status, frame.notice(sentence))
    }

    fn frame<'a>(
        &'a self,
        section: Option<&'a str>,
        title: &'a str,
        now: Millis,
        safe_mode: bool,
    ) -> Frame<'a> {
        let mark = html! {
            span #safe-mode data-live {
                @if safe_mode { strong.badge.warn { "Safe mode" } }
            }
        };
        Frame {
            title,
            host: &self.host,
            service: self.host.to_string(),
            mark: Some(mark),
            sections: &SECTIONS,
            section,
            elsewhere: vec![
                (self.running_jobs.clone(), "Running jobs"),
                (self.finished_jobs.clone(), "Finished jobs"),
            ],
            links: vec![(Some("/api/v1".into()), "API"), (Some("/metrics".into()), "Metrics")],
            now,
            refresh_ms: None,
            updates: Updates::Events,
        }
    }

    fn not_found(&self, sentence: &str) -> Answer {
        self.say(StatusCode::NOT_FOUND, "Not found", sentence)
    }

    async fn answer_metrics(&self, parameters: &Parameters) -> Answer {
        let form = parameters.get("format").unwrap_or_default().to_owned();
        if !["", "prometheus", "json", "text"].contains(&&*form) {
            let sentence = "format: one of prometheus, json, text\n";
            return exchange::text(StatusCode::BAD_REQUEST, sentence);
        }
        let (metrics, gauges) = (self.manager.metrics().clone(), self.gauges().await);
        let ha = self.manager.ha();
        self.front
            .make_metrics(move || {
                let original = || Records::new(&metrics, &gauges, &machine_name_or_localhost());
                match &*form {
                    // The original sends its JSON under this name too.
                    "json" => exchange::respond(
                        StatusCode::OK,
                        "text/html; charset=utf-8",
                        original().to_json(),
                    ),
                    "text" => exchange::text(StatusCode::OK, original().to_text()),
                    _ => {
                        let mut text = Text(exposition::render(&metrics, &gauges));
                        if let Some(standing) = &ha {
                            write_leader_metrics(&mut text, standing);
                        }
                        prometheus::answer(text.0)
                    }
                }
            })
            .await
    }

    async fn gauges(&self) -> Gauges {
        let overview = self.gather.overview();
        let nodes = count_nodes(&self.gather.nodes().await, &overview.hosts);
        let pools = self.gather.pools().await;
        Gauges {
            overview,
            nodes,
            pools,
            queues: self.manager.queues(),
            wire: self.wire.clone(),
            journal: self.manager.journal(),
            configuration: self.manager.configuration(),
            web: WebCounts {
                connections: self.front.open() as u64,
                subscribers: self.manager.events().subscribers() as u64,
                requests: self.front.requests(),
                refused: self.front.refused(),
            },
        }
    }

    /// The original's addresses; `None` for any other.
    async fn answer_as_the_original(
        &self,
        segments: &[&str],
        parameters: &Parameters,
    ) -> Option<Answer> {
        let [file] = segments else { return None };
        let answered = match *file {
            "active_json.jsp" => {
                let (sessions, filter) = (self.gather.sessions().await, Filter::new(parameters));
                let kinds = self.gather.overview().kinds;
                self.front.make(move || original::active(&sessions, &kinds, &filter)).await
            }
            "retired_json.jsp" => {
                let (retired, filter) = (self.gather.retired().await, Filter::new(parameters));
                let kinds = self.gather.overview().kinds;
                self.front.make(move || original::retired(&retired, &kinds, &filter)).await
            }
            "pool_json.jsp" => {
                let (pools, filter) = (self.gather.pools().await, Filter::new(parameters));
                let overview = self.gather.overview();
                self.front.make(move || original::pools(&pools, &overview, &filter)).await
            }
            "cm.jsp" | "cm_old.jsp" | "index.html" => original::cluster_page(parameters),
            "machines.jsp" => original::machines(parameters),
            "jobresources.jsp" => original::job_resources(parameters),
            "conf" => conf::answer(&self.manager.configuration().in_force, parameters),
            _ => return None,
        };
        Some(answered)
    }
}

impl<M: Manager> Site for Pages<M> {
    type Stream = Stream;

    fn front(&self) -> &Front {
        &self.front
    }

    fn may_connect(&self, peer: SocketAddr) -> bool {
        self.access.web_networks.contain(peer.ip())
    }

    fn sickness(&self) -> Option<String> {
        sickness(self.manager.metrics().since_beat())
    }

    fn unreadiness(&self) -> Option<String> {
        let metrics = self.manager.metrics();
        unreadiness(metrics.safe_mode(), metrics.since_beat())
    }

    async fn metrics(self: Arc<Self>, parameters: Parameters) -> Answer {
        self.answer_metrics(&parameters).await
    }

    async fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        caller: Peer,
        stop: watch::Receiver<bool>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let peer = caller.address;
        let path = head.uri.path().to_owned();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let mut parameters = Parameters::parse(query.as_bytes());
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match (&head.method, &segments[..]) {
            (&Method::POST, ["sessions", handle, "kill"]) => {
                let form = read_own_form(&head.headers, body).await;
                let handle = exchange::decode_segment(handle).into_owned();
                return self.kill(&handle, form, peer).await;
            }
            (&Method::POST, ["nodes", name, "clear-blacklist"]) => {
                let form = read_own_form(&head.headers, body).await;
                let name = exchange::decode_segment(name).into_owned();
                return self.clear_blacklist_by_form(&name, &form, peer).await;
            }
            (&Method::POST, ["api", "v1", "nodes", name, "clear-blacklist"]) => {
                let form = read_own_form(&head.headers, body).await;
                let name = exchange::decode_segment(name).into_owned();
                return self.clear_blacklist_by_api(&name, &form, peer).await;
            }
            (&Method::POST, ["api", "v1", "nodes", name, "drain"]) => {
                let name = exchange::decode_segment(name).into_owned();
                let is_own = exchange::is_own_form(&head.headers);
                let form = exchange::read_form(&head.headers, body).await.filter(|_| is_own);
                return self.drain(&name, form, peer).await;
            }
            (&Method::POST, ["api", "v1", "nodes", name, "restart"]) => {
                let name = exchange::decode_segment(name).into_owned();
                let is_own = exchange::is_own_form(&head.headers);
                let form = exchange::read_form(&head.headers, body).await.filter(|_| is_own);
                return self.restart(&name, form, peer).await;
            }
            (&Method::POST, ["api", "v1", "step-down"]) => {
                return self.step_down(&head.headers, peer);
            }
            // The original takes both, and scripts may send either.
            (&Method::POST, ["active_json.jsp" | "retired_json.jsp" | "pool_json.jsp"]) => {
                let form = exchange::read_form(&head.headers, body).await.unwrap_or_default();
                let form: Vec<(&str, &str)> = form.iter().collect();
                parameters = parameters.with(&form);
            }
            (&Method::GET | &Method::HEAD, _) => {}
            _ => {
                let sentence = "only GET and HEAD are supported\n";
                return exchange::text(StatusCode::METHOD_NOT_ALLOWED, sentence);
            }
        }
        if let ["api", "v1", "events"] = segments[..] {
            let last = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
            let wanted = Wanted { job: None, reader: Some(caller) };
            return self.manager.events().answer(last, &parameters, wanted, stop);
        }
        match segments[..] {
            ["api", "v1"] | ["api", "v1", ""] => return api::index(),
            ["api", "v1", ..] => {
                let path = path.strip_prefix(api::PREFIX).unwrap_or_default();
                return self.answer_api(path, &query).await;
            }
            ["api", ..] => return api::no_such_address(),
            _ => {}
        }
        if let Some(answered) = self.answer_as_the_original(&segments, &parameters).await {
            return answered;
        }
        match self.clone().page(&segments, parameters).await {
            Some(answered) => answered,
            None => self.not_found("There is nothing at this address."),
        }
    }
}

/// Why an operator's action is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The configuration has no token.
    NoToken,
    /// The sender may not make administrative calls.
    Elsewhere,
    /// The form's content is wrong, or the time.
    Objection(Objection),
    /// There is no such node.
    UnknownNode,
    /// There is no such type.
    UnknownType,
}

impl Denial {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Denial::NoToken | Denial::Elsewhere => StatusCode::FORBIDDEN,
            Denial::Objection(objection) => objection.status(),
            Denial::UnknownNode => StatusCode::NOT_FOUND,
            Denial::UnknownType => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Denial::NoToken => "Changes over HTTP are off: corona.cm.web.kill.token is not set.",
            Denial::Elsewhere => "Administrative calls are not accepted from your address.",
            Denial::Objection(objection) => objection.sentence(),
            Denial::UnknownNode => "There is no node with this name.",
            Denial::UnknownType => "type: one of MAP, REDUCE, JOBTRACKER",
        }
    }
}

/// The problem with a process whose driving task was last seen so long ago, if any.
fn sickness(since_beat: Duration) -> Option<String> {
    (since_beat > BEAT_LIMIT).then(|| "the engine is not driven".to_owned())
}

/// Why a process takes no work, if it takes none.
fn unreadiness(is_in_safe_mode: bool, since_beat: Duration) -> Option<String> {
    is_in_safe_mode.then(|| "safe mode".to_owned()).or_else(|| sickness(since_beat))
}

/// The front of a cluster manager with these settings.
pub(crate) fn front(settings: &ClusterManagerSettings, gate: Arc<Gate>) -> Front {
    let web = &settings.web;
    let room = Room {
        connections: web.max_connections,
        of_peer: web.max_connections_per_peer,
        probes: web.probe_connections,
    };
    let names = web.hosts.iter().map(|name| &**name).chain([&*settings.http_address.host]);
    Front::new(("cluster manager", "corona.cm.web.hosts"), room, Hosts::of_machine(names), gate)
}

/// The refusal of an administrative call.
fn may_not_administer(peer: SocketAddr) -> api::Refused {
    let error = format!("{} may not make administrative calls", peer.ip().to_canonical());
    (StatusCode::FORBIDDEN, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_and_readiness_say_why_not() {
        assert_eq!(sickness(BEAT_LIMIT), None);
        let late = sickness(BEAT_LIMIT + Duration::from_millis(1));
        assert_eq!(late.as_deref(), Some("the engine is not driven"));
        assert_eq!(unreadiness(false, BEAT_LIMIT), None);
        assert_eq!(unreadiness(false, BEAT_LIMIT * 2), late);
        assert_eq!(unreadiness(true, BEAT_LIMIT * 2).as_deref(), Some("safe mode"));
    }
}
