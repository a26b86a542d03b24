//! The whole state of an engine as data, and an engine restored from it that continues exactly like
//! the original: it has the same outcome for each further input.
//!
//! Unlike [`snapshot`](super::snapshot), which holds the state that the original keeps over a
//! restart, an image has everything that a decision can depend on: the numbers of things and the
//! order in which they are used again, the order of every list, cursors, waits, clocks and counts.
//! It omits derived state: indexes by name and id, totals, and the queues of the scheduler, which
//! are rebuilt. Each part of the engine has its part of the image in a file `image.rs`.
//!
//! Also omitted is state that outcomes do not depend on: the key of the hash tables, and memory
//! kept for later use.
//!
//! **The form of an image is a promise** to versions to come, which read journals of this one: see
//! [`codec::VERSION`](super::codec::VERSION).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Engine;
use super::check::ImageError;
use super::lookup::HashSeed;
use super::nodes::{Nodes, NodesImage};
use super::remains::{Remains, RemainsImage};
use super::restarts::{Restarts, RestartsImage};
use super::scheduler::{Scheduler, SchedulerImage};
use super::sessions::{Sessions, SessionsImage};
use super::settings::{Hosts, Settings};
use super::topology::{Topology, TopologyImage};
use super::types::Millis;

/// The whole state of an engine, see the module's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    settings: Settings,
    started: Millis,
    now: Millis,
    inputs: u64,
    id_prefix: Arc<str>,
    sessions_numbered: i64,
    safe_mode: bool,
    hosts: Hosts,
    topology: TopologyImage,
    nodes: NodesImage,
    sessions: SessionsImage,
    scheduler: SchedulerImage,
    restarts: RestartsImage,
    remains: RemainsImage,
}

impl Image {
    /// The time of the engine's last input.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// How many inputs the engine had taken. See [`Engine::inputs`].
    pub fn inputs(&self) -> u64 {
        self.inputs
    }
}

impl Engine {
    /// The whole state of the engine. Takes time and memory in proportion to all that the engine
    /// holds.
    pub fn image(&self) -> Image {
        Image {
            settings: Settings::clone(&self.settings),
            started: self.started,
            now: self.now,
            inputs: self.inputs,
            id_prefix: self.id_prefix.clone(),
            sessions_numbered: self.sessions_numbered,
            safe_mode: self.safe_mode,
            hosts: Hosts::clone(&self.hosts),
            topology: self.topology.image(),
            nodes: self.nodes.image(),
            sessions: self.sessions.image(),
            scheduler: self.scheduler.image(),
            restarts: self.restarts.image(),
            remains: self.remains.image(),
        }
    }

    /// Rebuilds the engine from this image, with a secret key of its own for its hash tables, see
    /// [`Start::hash_seed`](super::Start::hash_seed). The whole image is [audited](Self::audit).
    ///
    /// # Errors
    /// If the image contradicts itself.
    pub fn from_image(image: Image, hash_seed: u64) -> Result<Engine, ImageError> {
        let seed = HashSeed(hash_seed);
        let settings = image.settings;
        let topology = Topology::from_image(image.topology, seed)?;
        let resources = &settings.resources;
        let mut nodes = Nodes::from_image(image.nodes, &topology, &settings, seed)?;
        let mut sessions = Sessions::from_image(image.sessions, &topology, resources, seed)?;
        let remains = Remains::from_image(image.remains, &topology, resources, seed)?;
        let scheduler = Scheduler::from_image(image.scheduler, &settings, &mut sessions, seed)?;
        for node in scheduler.reserved_nodes() {
            nodes.mark_reserved(node)?;
        }
        nodes.count_grants(|session, req| {
            let requests = &sessions.get(session)?.requests;
            Some((requests.get(req)?.kind, requests.wish(req)))
        })?;
        let engine = Engine {
            legal: settings.partitioning.legal_types(),
            settings: Arc::new(settings),
            started: image.started,
            now: image.now,
            inputs: image.inputs,
            id_prefix: image.id_prefix,
            sessions_numbered: image.sessions_numbered,
            safe_mode: image.safe_mode,
            hosts: Arc::new(image.hosts),
            remains,
            topology,
            nodes,
            sessions,
            scheduler,
            restarts: Restarts::from_image(image.restarts)?,
        };
        engine.audit().map_err(ImageError::new)?;
        Ok(engine)
    }
}
