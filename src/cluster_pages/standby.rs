//! The pages of an instance that does not lead: they show its role, and where the leader is. The metrics of
//! instances.

use std::fmt::{self, Debug, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use maud::{DOCTYPE, html};
use tokio::net::TcpListener;
use tokio::sync::watch;

use corona_access::Gate;
use corona_api::cluster::{HaStatus, StandbyOfLeader, StandbyState, StandbyStatus};
use corona_config::{ClusterManagerSettings, Networks};
use corona_net::connections::{Connections, accept};
use corona_standby::Role;
use corona_web::http;
use corona_web::session;

/// A metric's name and meaning.
pub(crate) type Gauge = (&'static str, &'static str);

const ROLE: Gauge = ("corona_ha_role", "1 for the role that this instance has, otherwise 0.");
const STANDBY_IN_SYNC: Gauge =
    ("corona_ha_standby_in_sync", "1 for each standby that may take over, 0 for one that copies.");
const STANDBY_ACKNOWLEDGED: Gauge = (
    "corona_ha_standby_acknowledged_record",
    "Number of the last record that a standby has stored.",
);
const STANDBY_SLOW: Gauge = (
    "corona_ha_standby_slow",
    "1 for each standby that does not count because it delayed calls, otherwise 0.",
);
const ZOOKEEPER_CONNECTED: Gauge =
    ("corona_ha_zookeeper_connected", "1 if ZooKeeper can be reached, otherwise 0.");
const COPY_COMPLETE: Gauge = (
    "corona_ha_copy_complete",
    "1 if this standby has a complete copy of the journal, otherwise 0.",
);
const LAST_RECORD: Gauge =
    ("corona_ha_last_record", "Number of the last record of this standby's copy.");
const RELAYED_CONNECTIONS: Gauge = (
    "corona_ha_relayed_connections",
    "Connections that are relayed to the leader or wait for one.",
);

/// All metrics of instances. A test holds `docs/operate/metrics.md` against them.
#[cfg(test)]
pub(crate) const GAUGES: [Gauge; 8] = [
    ROLE,
    STANDBY_IN_SYNC,
    STANDBY_ACKNOWLEDGED,
    STANDBY_SLOW,
    ZOOKEEPER_CONNECTED,
    COPY_COMPLETE,
    LAST_RECORD,
    RELAYED_CONNECTIONS,
];

/// The pages of a standby, or of an instance that was fenced.
pub struct StandbyPages {
    /// What this instance is.
    status: Box<dyn Fn() -> StandbyStatus + Send + Sync>,
    /// Who may see the pages.
    networks: Networks,
    connections: Arc<Connections>,
    gate: Arc<Gate>,
}

impl Debug for StandbyPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandbyPages").field("status", &(self.status)()).finish_non_exhaustive()
    }
}

impl StandbyPages {
    /// The pages of an instance with these settings, for peers that the gate lets in. They show `status`.
    pub fn new(
        settings: &ClusterManagerSettings,
        gate: Arc<Gate>,
        status: impl Fn() -> StandbyStatus + Send + Sync + 'static,
    ) -> StandbyPages {
        let of = &settings.web;
        StandbyPages {
            status: Box::new(status),
            networks: settings.access.web_networks.clone(),
            connections: Connections::new(of.max_connections, of.max_connections_per_peer),
            gate,
        }
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let admit = |peer: SocketAddr| {
            let place = self.connections.admit(peer.ip()).ok()?;
            self.networks.contain(peer.ip()).then_some((place, ()))
        };
        let pages = self.clone();
        accept(listener, stop, &self.gate, admit, move |stream, peer, place, ()| {
            let pages = pages.clone();
            async move {
                let answer = |request: Request<Incoming>| {
                    let admitted = session::admit::<Full<Bytes>, _>(&pages.gate, &request, &peer);
                    let answer = match admitted {
                        Continue(admitted) => {
                            let answer = pages.answer(request.uri().path());
                            session::end(admitted.noted, answer.status());
                            answer.map(Either::Left)
                        }
                        Break(answer) => answer,
                    };
                    async move { answer }
                };
                http::serve(stream, &place, http::Limits::default(), answer).await;
            }
        })
        .await;
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let status = (self.status)();
        let json = |status_code, value: &StandbyStatus| {
            let mut text = String::new();
            // A structure of texts and numbers has a form in JSON.
            if let Ok(form) = serde_json::to_string(value) {
                text = form;
            }
            respond(status_code, "application/json", text)
        };
        match path {
            "/healthz" => respond(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".into()),
            "/readyz" => {
                let text = format!("{}\n", status.error);
                respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", text)
            }
            "/metrics" => respond(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                self.metrics(&status),
            ),
            path if path.starts_with("/api/") => json(StatusCode::SERVICE_UNAVAILABLE, &status),
            "/" => respond(StatusCode::OK, HTML, page(&status, path)),
            path => respond(StatusCode::SERVICE_UNAVAILABLE, HTML, page(&status, path)),
        }
    }

    fn metrics(&self, status: &StandbyStatus) -> String {
        let mut text = String::new();
        write_role(&mut text, &status.ha.role);
        let StandbyState { zookeeper_connected, copy_complete, last_record, .. } = status.ha;
        for (gauge, value) in [
            (ZOOKEEPER_CONNECTED, u64::from(zookeeper_connected)),
            (COPY_COMPLETE, u64::from(copy_complete)),
            (LAST_RECORD, last_record),
            (RELAYED_CONNECTIONS, status.ha.relayed_connections),
        ] {
            write_gauge(&mut text, gauge, &[(String::new(), value)]);
        }
        text
    }
}

/// Adds the metrics of a leader.
pub(crate) fn write_leader_metrics(text: &mut String, ha: &HaStatus) {
    write_role(text, &ha.role);
    for (gauge, value) in [
        (STANDBY_IN_SYNC, (|of| u64::from(of.in_sync)) as fn(&StandbyOfLeader) -> u64),
        (STANDBY_ACKNOWLEDGED, |of| of.acknowledged_record),
        (STANDBY_SLOW, |of| u64::from(of.slow)),
    ] {
        let line = |of: &StandbyOfLeader| (format!("{{instance=\"{}\"}}", of.instance), value(of));
        write_gauge(text, gauge, &ha.standbys.iter().map(line).collect::<Vec<_>>());
    }
}

fn write_role(text: &mut String, role: &str) {
    let lines = Role::ALL.map(|known| {
        let name = known.name();
        (format!("{{role=\"{name}\"}}"), u64::from(name == role))
    });
    write_gauge(text, ROLE, &lines);
}

fn write_gauge(text: &mut String, (name, help): Gauge, lines: &[(String, u64)]) {
    // Writing to a text never fails.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in lines {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

const HTML: &str = "text/html; charset=utf-8";
/// Nothing is loaded from anywhere.
const POLICY: &str = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'";

fn page(status: &StandbyStatus, path: &str) -> String {
    let StandbyState { role, instance, leader_pages, copy_complete, last_record, .. } = &status.ha;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Corona cluster manager: " (role) }
            }
            body {
                h1 { "This cluster manager is " @if role == "standby" { "a " } (role) }
                @if let Some(why) = &status.ha.fenced_because {
                    p { "It has led, and stopped: " (why) "." }
                }
                @match leader_pages {
                    Some(pages) => p {
                        "The leader's pages are at "
                        a href={ (pages.trim_end_matches('/')) (path) } { (pages) }
                        "."
                    },
                    None => p { "No leader is known." },
                }
                ul {
                    li { "Instance: " (instance) }
                    li { "ZooKeeper: " @if status.ha.zookeeper_connected { "connected" } @else { "not connected" } }
                    li {
                        "Copy of the journal: "
                        @if *copy_complete { "complete" } @else { "not complete" }
                        ", up to record " (last_record)
                    }
                    li { "Connections relayed: " (status.ha.relayed_connections) }
                }
            }
        }
    };
    corona_web::exchange::page_text(page)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
