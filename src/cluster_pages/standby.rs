//! The pages of an instance that does not lead: they show its role, and where the leader is. The metrics of
//! instances.

use std::fmt::{self, Debug};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use maud::{Markup, html};
use tokio::sync::watch;

use crate::site::front;
use corona_access::{Gate, Peer};
use corona_api::cluster::{HaStatus, StandbyOfLeader, StandbyState, StandbyStatus};
use corona_config::{ClusterManagerSettings, Networks};
use corona_model::types::Millis;
use corona_process::now_ms;
use corona_standby::Role;
use corona_web::exchange::{self, Answer, Parameters};
use corona_web::frame::Frame;
use corona_web::prometheus::{self, Family, Shape, Text};
use corona_web::server::{Front, RequestBody, Site};

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, shape: Shape::Gauge, help }
}

const ROLE: Family = gauge("corona_ha_role", "1 for the role that this instance has, otherwise 0.");
const STANDBY_IN_SYNC: Family = gauge(
    "corona_ha_standby_in_sync",
    "1 for each standby that may take over, 0 for one that copies.",
);
const STANDBY_ACKNOWLEDGED: Family = gauge(
    "corona_ha_standby_acknowledged_record",
    "Number of the last record that a standby has stored.",
);
const STANDBY_SLOW: Family = gauge(
    "corona_ha_standby_slow",
    "1 for each standby that does not count because it delayed calls, otherwise 0.",
);
const ZOOKEEPER_CONNECTED: Family =
    gauge("corona_ha_zookeeper_connected", "1 if ZooKeeper can be reached, otherwise 0.");
const COPY_COMPLETE: Family = gauge(
    "corona_ha_copy_complete",
    "1 if this standby has a complete copy of the journal, otherwise 0.",
);
const LAST_RECORD: Family =
    gauge("corona_ha_last_record", "Number of the last record of this standby's copy.");
const RELAYED_CONNECTIONS: Family = gauge(
    "corona_ha_relayed_connections",
    "Connections that are relayed to the leader or wait for one.",
);

/// All metrics of instances. A test holds `docs/operate/metrics.md` against them.
#[cfg(test)]
pub(crate) const GAUGES: [Family; 8] = [
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
    front: Front,
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
        StandbyPages {
            status: Box::new(status),
            networks: settings.access.web_networks.clone(),
            front: front(settings, gate),
        }
    }
}

impl Site for StandbyPages {
    type Stream = Full<Bytes>;

    fn front(&self) -> &Front {
        &self.front
    }

    fn may_connect(&self, peer: SocketAddr) -> bool {
        self.networks.contain(peer.ip())
    }

    fn unreadiness(&self) -> Option<String> {
        Some((self.status)().error)
    }

    async fn metrics(self: Arc<Self>, _: Parameters) -> Answer {
        prometheus::answer(metrics(&(self.status)()))
    }

    async fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        _: Peer,
        _: watch::Receiver<bool>,
    ) -> Answer {
        let (path, status) = (request.uri().path(), (self.status)());
        if path.starts_with("/api/") {
            // A structure of texts and numbers has a form in JSON.
            let json = serde_json::to_string(&status).unwrap_or_default();
            return exchange::json(StatusCode::SERVICE_UNAVAILABLE, json);
        }
        let code = if path == "/" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        exchange::html(code, page(&status, path))
    }
}

/// All metrics of an instance that does not lead.
fn metrics(status: &StandbyStatus) -> String {
    let mut text = Text(String::new());
    write_role(&mut text, &status.ha.role);
    let StandbyState { zookeeper_connected, copy_complete, last_record, .. } = status.ha;
    text.family(ZOOKEEPER_CONNECTED).value(u8::from(zookeeper_connected));
    text.family(COPY_COMPLETE).value(u8::from(copy_complete));
    text.family(LAST_RECORD).value(last_record);
    text.family(RELAYED_CONNECTIONS).value(status.ha.relayed_connections);
    text.0
}

/// Adds the metrics of a leader.
pub(crate) fn write_leader_metrics(text: &mut Text, ha: &HaStatus) {
    write_role(text, &ha.role);
    for (family, value) in [
        (STANDBY_IN_SYNC, (|of| u64::from(of.in_sync)) as fn(&StandbyOfLeader) -> u64),
        (STANDBY_ACKNOWLEDGED, |of| of.acknowledged_record),
        (STANDBY_SLOW, |of| u64::from(of.slow)),
    ] {
        let mut samples = text.family(family);
        for standby in &ha.standbys {
            samples.labelled(&[("instance", &standby.instance)], value(standby));
        }
    }
}

fn write_role(text: &mut Text, role: &str) {
    let mut samples = text.family(ROLE);
    for known in Role::ALL {
        samples.labelled(&[("role", known.name())], u8::from(known.name() == role));
    }
}

/// The page at this path of the leader, as far as it can be shown here: where the leader is.
fn page(status: &StandbyStatus, path: &str) -> Markup {
    let StandbyState { role, instance, leader_pages, copy_complete, last_record, .. } = &status.ha;
    let content = html! {
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
    };
    let frame = Frame {
        title: role,
        host: instance,
        service: instance.clone(),
        links: vec![(Some("/metrics".into()), "Metrics")],
        now: Millis(now_ms()),
        ..Frame::default()
    };
    frame.page(&content)
}
