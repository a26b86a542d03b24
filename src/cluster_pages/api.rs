//! `/api/v1/...`: from the path and query of a request to its JSON. The shapes are in [`api`].

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::exchange::{self, Answer};
use super::gather::{Overview, Pools, count_nodes, silent_hosts};
use super::history;
use super::problems::Problem;
use super::site::Denial;
use crate::answers::{self, PoolRemarks, by_type};
use crate::metrics::Snapshot;
use crate::{ConfigStatus, Manager, Pages};
use corona_api::cluster::{
    self as api, BlacklistCleared, Cluster, Configuration, ConfigurationValue, History,
    HostFileStatus, HostFilesStatus, Latencies, LatenciesOf, Latency, NodeProblem, Paging, Sample,
    SilentHosts, Slots, Status,
};
use corona_api::{Failure, Index, IndexEntry};
use corona_config::{HostFile, HostFiles, InForce};
use corona_engine::{NodeView, PoolView};
use corona_model::settings::Hosts;
use corona_model::types::{PerType, PoolName, ResourceType};
use corona_process::since_epoch_ms;
use corona_web::budget;
use corona_web::operator::Form;

/// The prefix of all paths of the API.
pub(crate) const PREFIX: &str = "/api/v1/";

fn host_files(files: &HostFiles, hosts: &Hosts) -> HostFilesStatus {
    let status = |file: &Option<HostFile>, hosts: usize| {
        let path = file.as_ref()?.path.display().to_string();
        Some(HostFileStatus { path, hosts })
    };
    HostFilesStatus {
        include: status(&files.include, hosts.include.len()),
        exclude: status(&files.exclude, hosts.exclude.len()),
    }
}

impl<M: Manager> Pages<M> {
    /// The answer for a path behind [`PREFIX`].
    pub(crate) async fn answer_api(&self, path: &str, query: &str) -> Answer {
        let answered = match path.split_once('/') {
            None => self.answer_list(path, query).await,
            Some(("nodes", name)) => self.answer_node(name).await,
            Some(("sessions", handle)) => self.answer_session(handle).await,
            Some(_) => Err(no_such_path()),
        };
        answered.unwrap_or_else(refuse)
    }

    async fn answer_list(&self, path: &str, query: &str) -> Result<Answer, Refused> {
        let paging = || paging(query).map_err(|wrong| (StatusCode::BAD_REQUEST, wrong));
        let overview = self.gather.overview();
        Ok(match path {
            "cluster" => {
                let cluster =
                    cluster(&overview, &self.gather.nodes().await, self.manager.queues().calls);
                self.make_json(move || cluster).await
            }
            "status" => {
                let status = self.status(&overview).await;
                self.make_json(move || status).await
            }
            "nodes" => {
                let (paging, nodes) = (paging()?, self.gather.nodes().await);
                let problem = problem(query).map_err(|wrong| (StatusCode::BAD_REQUEST, wrong))?;
                let list = move || {
                    let mut list = {
                        let resources = &overview.settings.resources;
                        answers::nodes(overview.now, resources, &nodes, problem, &paging)
                    };
                    for node in &mut list.nodes {
                        add_program(&overview, node);
                    }
                    list
                };
                self.make_json(list).await
            }
            "pools" => {
                let pools = self.gather.pools().await;
                self.make_json(move || all_pools(&pools, &overview)).await
            }
            "sessions" => {
                let (paging, sessions) = (paging()?, self.gather.sessions().await);
                let list = move || {
                    let Overview { now, kinds, settings, .. } = &overview;
                    let mut list =
                        answers::sessions(*now, kinds, &settings.resources, &sessions, &paging);
                    for session in &mut list.sessions {
                        session.program = program_of_session(&overview, &session.handle);
                    }
                    list
                };
                self.make_json(list).await
            }
            "retired" => {
                let (limit, retired) = (paging()?.limit, self.gather.retired().await);
                let Overview { now, kinds, .. } = overview;
                self.make_json(move || answers::retired(now, &kinds, &retired, limit)).await
            }
            "configuration" => {
                let status = self.manager.configuration();
                self.make_json(move || configuration(&status)).await
            }
            "silent-hosts" => {
                let nodes = self.gather.nodes().await;
                self.make_json(move || silent(&nodes, &overview)).await
            }
            "history" => {
                let history = history(&self.history, &overview.kinds);
                self.make_json(move || history).await
            }
            "latencies" => {
                let latencies = Latencies {
                    last_minute: latencies(&self.history.lately(self.manager.metrics())),
                    since_start: latencies(&history::Latencies::of(self.manager.metrics())),
                };
                self.make_json(move || latencies).await
            }
            _ => return Err(no_such_path()),
        })
    }

    async fn status(&self, overview: &Overview) -> Status {
        let nodes = self.gather.nodes().await;
        let counts = count_nodes(&nodes, &overview.hosts);
        let pools = self.gather.pools().await;
        let journal = self.manager.journal();
        let queues = self.manager.queues();
        let problems = self.problems(overview, &counts, &pools, &queues, journal.as_ref());
        let (safe_mode, proxy_job_tracker) = self.manager.safe_mode(overview.safe_mode);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            now_ms: overview.now.0,
            first_started_ms: overview.first_started.0,
            process_started_ms: self.started.0,
            uptime_ms: overview.now.since(self.started),
            budget: Some(budget::now()),
            safe_mode,
            proxy_job_tracker,
            nodes: nodes.len(),
            sessions: overview.sessions,
            pending_notifications: queues.calls,
            slots: slots(overview.slots, &overview.kinds),
            resources: answers::cluster_resources(&overview.settings.resources, &counts.places),
            journal,
            ha: self.manager.ha(),
            state_file: self.manager.state_file(),
            host_files: Some(host_files(&self.host_files, &overview.hosts)),
            operations: self.manager.operations().to_api(),
            problems: problems.iter().map(Problem::to_api).collect(),
            versions: Some(self.manager.versions(self.started)),
        }
    }

    async fn answer_session(&self, encoded: &str) -> Result<Answer, Refused> {
        let handle: Cow<'_, str> = percent_decode_str(encoded).decode_utf8_lossy();
        let view = self.gather.session(&handle);
        let view =
            view.ok_or_else(|| (StatusCode::NOT_FOUND, format!("no session {handle} is running")))?;
        let grants = self.gather.grants(&handle).await.unwrap_or_default();
        let waits = self.gather.waits(&handle).await;
        let overview = self.gather.overview();
        let detail = move || {
            let Overview { now, kinds, settings, .. } = &overview;
            let mut detail =
                answers::session_detail(*now, kinds, &settings.resources, &view, grants, waits);
            detail.session.program = program_of_session(&overview, &detail.session.handle);
            detail
        };
        Ok(self.make_json(detail).await)
    }

    async fn answer_node(&self, encoded: &str) -> Result<Answer, Refused> {
        let name: Cow<'_, str> = percent_decode_str(encoded).decode_utf8_lossy();
        let view = self.gather.node(&name).ok_or_else(|| no_such_node(&name))?;
        let grants = self.gather.node_grants(&name).await;
        let overview = self.gather.overview();
        let detail = move || {
            let settings = &overview.settings;
            let mut detail = answers::node_detail(
                overview.now,
                &settings.faults,
                &settings.resources,
                view,
                grants,
            );
            add_program(&overview, &mut detail.node);
            detail
        };
        Ok(self.make_json(detail).await)
    }

    /// Lifts a blacklisting for a program that sends the token as a form.
    pub(crate) async fn clear_blacklist_by_api(
        &self,
        name: &str,
        form: &Form,
        peer: SocketAddr,
    ) -> Answer {
        let (status, error) = match self.clear_blacklist(name, form, peer).await {
            Ok(cleared) => return self.make_json(move || BlacklistCleared { cleared }).await,
            Err(Denial::UnknownNode) => no_such_node(name),
            Err(denial) => (denial.status(), denial.sentence().to_owned()),
        };
        refuse((status, error))
    }

    /// Makes an answer on a thread that may take its time.
    pub(crate) async fn make_json<T: Serialize>(
        &self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Answer {
        let serialise = move || match serde_json::to_string(&make()) {
            Ok(json) => exchange::json(StatusCode::OK, json),
            Err(error) => exchange::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        self.front.make(serialise).await
    }
}

pub(crate) type Refused = (StatusCode, String);

pub(crate) fn no_such_node(name: &str) -> Refused {
    (StatusCode::NOT_FOUND, format!("there is no node {name}"))
}

fn no_such_path() -> Refused {
    (StatusCode::NOT_FOUND, "no such path in the API; /api/v1 lists its paths".into())
}

pub(crate) fn refuse((status, error): Refused) -> Answer {
    exchange::json(status, serde_json::to_string(&Failure { error }).unwrap_or_default())
}

/// The answer for an address below `/api` that this version does not have.
pub(crate) fn no_such_address() -> Answer {
    refuse(no_such_path())
}

/// `/api/v1`: the list of paths.
pub(crate) fn index() -> Answer {
    let path = |(path, meaning): &(&str, &str)| IndexEntry {
        path: format!("{PREFIX}{path}"),
        meaning: (*meaning).to_owned(),
    };
    let index = Index {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        paths: api::PATHS.iter().map(path).collect(),
    };
    exchange::json(StatusCode::OK, serde_json::to_string(&index).unwrap_or_default())
}

fn add_program(overview: &Overview, node: &mut api::Node) {
    node.program = overview.programs.of_node(&node.name);
    node.heard = overview.programs.has_heard(&node.name);
}

fn program_of_session(overview: &Overview, handle: &str) -> Option<api::Program> {
    overview.programs.of_session(handle)
}

fn cluster(overview: &Overview, nodes: &[NodeView], pending_notifications: usize) -> Cluster {
    let counts = count_nodes(nodes, &overview.hosts);
    Cluster {
        version: env!("CARGO_PKG_VERSION").into(),
        now_ms: overview.now.0,
        started_ms: overview.first_started.0,
        safe_mode: overview.safe_mode,
        nodes: nodes.len(),
        nodes_late: usize::try_from(counts.late).unwrap_or(usize::MAX),
        unusable_slots: by_type(overview.kinds.iter().copied(), |kind| counts.unusable_slots[kind]),
        sessions: overview.sessions,
        pending_notifications,
        slots: slots(overview.slots, &overview.kinds),
        resources: answers::cluster_resources(&overview.settings.resources, &counts.places),
    }
}

fn slots(counts: PerType<corona_engine::SlotCounts>, kinds: &[ResourceType]) -> api::ByType<Slots> {
    by_type(kinds.iter().copied(), |kind| Slots {
        total: counts[kind].total,
        used: counts[kind].used,
    })
}

fn all_pools(pools: &Pools, overview: &Overview) -> api::Pools {
    let scheduling = &overview.settings.scheduling;
    let pool = |view: &PoolView| {
        let remarks = view.pool.as_ref().map(|pool| {
            let name = PoolName { group: view.group.clone(), pool: pool.clone() };
            let starved_ms = |kind| view.starved_ms(kind, overview.now, scheduling);
            PoolRemarks {
                starved_ms: PerType(ResourceType::ALL.map(starved_ms)),
                first_wait_ms: pools.first_waits.granted_ms.get(&name).copied().unwrap_or_default(),
                redirected_to: scheduling.redirects.get(&name).cloned(),
            }
        });
        answers::pool(view, remarks.as_ref(), &overview.kinds, &overview.settings.resources)
    };
    api::Pools { now_ms: Some(overview.now.0), pools: pools.views.iter().map(pool).collect() }
}

/// `/api/v1/configuration`
fn configuration(status: &ConfigStatus) -> Configuration {
    let value = |set: &InForce| ConfigurationValue {
        key: set.key.to_owned(),
        value: set.value.clone(),
        origin: set.origin.to_string(),
    };
    Configuration {
        loaded_ms: since_epoch_ms(status.loaded_at),
        reloads: status.reloads,
        failures: status.failures,
        errors: status.errors.clone(),
        warnings: status.warnings.clone(),
        values: status.in_force.iter().map(value).collect(),
    }
}

/// `/api/v1/silent-hosts`
fn silent(nodes: &[NodeView], overview: &Overview) -> SilentHosts {
    let mut hosts: Vec<Arc<str>> = silent_hosts(nodes, &overview.hosts).cloned().collect();
    hosts.sort_unstable();
    SilentHosts {
        now_ms: overview.now.0,
        included: !overview.hosts.include.is_empty(),
        hosts: hosts.iter().map(|host| host.to_string()).collect(),
    }
}

/// `/api/v1/history`
fn history(history: &history::History, kinds: &[ResourceType]) -> History {
    let samples = history.samples();
    History {
        period_ms: u64::try_from(history.period().as_millis()).unwrap_or(u64::MAX),
        samples: samples
            .iter()
            .map(|sample| Sample { at_ms: sample.at.0, slots: slots(sample.slots, kinds) })
            .collect(),
    }
}

/// One half of `/api/v1/latencies`.
fn latencies(of: &history::Latencies) -> LatenciesOf {
    LatenciesOf {
        request_to_grant: latency(&of.request_to_grant),
        grant_to_delivered: latency(&of.grant_to_delivered),
        pass: latency(&of.pass),
        engine_wait: latency(&of.lock_wait),
    }
}

fn latency(snapshot: &Snapshot) -> Latency {
    let quantile = |part| {
        let span = snapshot.quantile(part)?;
        Some(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    };
    Latency {
        count: snapshot.count(),
        median_us: quantile(0.5),
        percentile_99_us: quantile(0.99),
        percentile_99_9_us: quantile(0.999),
    }
}

/// `limit` and `after`; other parameters are passed over. The error is a sentence.
fn paging(query: &str) -> Result<Paging, String> {
    let mut paging = Paging::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => match value.parse() {
                Ok(limit @ 1..=Paging::MOST) => paging.limit = limit,
                _ => return Err(format!("limit: expected a number from 1 to {}", Paging::MOST)),
            },
            "after" => paging.after = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(paging)
}

/// `problem`. The error is a sentence.
fn problem(query: &str) -> Result<Option<NodeProblem>, String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let Some((_, wanted)) = pairs.find(|(name, _)| name == "problem") else { return Ok(None) };
    let known = NodeProblem::NAMED;
    let found = known.iter().find(|(name, _)| *name == wanted).map(|(_, problem)| *problem);
    let names = || known.map(|(name, _)| name).join(", ");
    found.map(Some).ok_or_else(|| format!("problem: expected one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_nodes_are_asked_for_by_the_names_that_they_are_served_with() {
        assert_eq!(problem("limit=1"), Ok(None));
        for (name, named) in NodeProblem::NAMED {
            assert_eq!(serde_json::to_value(named).unwrap(), name);
            assert_eq!(problem(&format!("problem={name}")), Ok(Some(named)));
        }
        let wrong = "problem: expected one of late, excluded, draining, revoked, below_reserve, blacklisted";
        assert_eq!(problem("problem=dead").unwrap_err(), wrong);
    }

    #[test]
    fn paging_of_a_query() {
        let paging_of =
            |limit, after: Option<&str>| Ok(Paging { limit, after: after.map(str::to_owned) });
        for (query, expected) in [
            ("", paging_of(1000, None)),
            ("limit=1", paging_of(1, None)),
            ("limit=2000&after=a%20b+c%C3%A9", paging_of(2000, Some("a b cé"))),
            ("after=", paging_of(1000, Some(""))),
            ("colour=red", paging_of(1000, None)),
            ("after=%ff", paging_of(1000, Some("\u{fffd}"))),
        ] {
            assert_eq!(paging(query), expected, "{query}");
        }
        for query in ["limit=0", "limit=2001", "limit=", "limit=-1", "limit=x", "limit=1&limit=0"] {
            assert!(paging(query).unwrap_err().contains("1 to 2000"), "{query}");
        }
    }
}
