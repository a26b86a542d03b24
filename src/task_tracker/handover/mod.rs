//! What a task tracker hands to the program that takes its place in the same process, so that tasks go on: its
//! listeners and connections as descriptors, and a text with all that it knows.
//!
//! The text is JSON with a version. Objects of Hadoop in it are the bytes that travel on the wire. It is never stored.

pub mod encoded;

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use corona_hadoop::rpc::KeptConnection;
use corona_process::handover::{self, Handed};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::job_trackers::HandedJobTracker;
use super::node::heartbeats::HandedNode;
use super::tracker::HandedTracker;

/// The version of the form.
pub const VERSION: u32 = 1;
/// How many listeners there are.
const LISTENERS: usize = 4;

/// All that a task tracker knows and has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedState {
    /// Its name in the cluster, and what the cluster manager is still to learn from it.
    pub node: HandedNode,
    /// Jobs, attempts and their processes.
    pub tracker: HandedTracker,
    /// Remote job trackers that run here.
    pub job_trackers: Vec<HandedJobTracker>,
    /// Directories of job trackers that were being started. Programs that do not read them leave them to their next start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<PathBuf>,
}

/// What a task tracker has kept for the next one.
#[derive(Debug)]
pub struct KeptTracker {
    /// What it knew, as its text says.
    pub state: HandedState,
    /// Its sockets, open and bound.
    pub listeners: Listeners<TcpListener>,
    /// Connections of job trackers.
    pub actions: Vec<KeptConnection>,
    /// Connections of tasks.
    pub umbilical: Vec<KeptConnection>,
}

/// Where a task tracker listens.
#[derive(Debug)]
pub struct Listeners<L> {
    /// Pages and map outputs, over HTTP.
    pub web: L,
    /// Actions of job trackers, over Hadoop RPC.
    pub actions: L,
    /// Tasks of this machine, over Hadoop RPC.
    pub umbilical: L,
    /// The cluster manager, over Thrift.
    pub callbacks: L,
}

/// The text about the descriptors: first those of the listeners, then those of connections of job trackers, then those
/// of tasks.
#[derive(Debug, Serialize, Deserialize)]
struct Text {
    version: u32,
    /// What the next program must read before what arrives, of each connection.
    actions: Vec<Vec<u8>>,
    umbilical: Vec<Vec<u8>>,
    state: HandedState,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// Why nothing can be taken over.
#[derive(Debug, Error)]
pub enum NotHanded {
    /// A program of another version has left it. The form that it has.
    #[error("its form {0} is not known to this version of the program, which reads form {VERSION}")]
    Version(u32),
    /// It is not JSON of the expected shape.
    #[error("its text cannot be read: {0}")]
    Text(#[from] serde_json::Error),
    /// Its file cannot be read.
    #[error("its text cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Sockets are missing. How many there are.
    #[error("{0} of {LISTENERS} listeners have arrived")]
    Listeners(usize),
}

impl KeptTracker {
    /// For another program.
    ///
    /// # Errors
    /// The text cannot be made.
    pub fn into_handed(self) -> io::Result<Handed> {
        let KeptTracker { state, listeners, actions, umbilical } = self;
        let received = |connections: &[KeptConnection]| {
            connections.iter().map(|connection| connection.received.clone()).collect()
        };
        let text = Text {
            version: VERSION,
            actions: received(&actions),
            umbilical: received(&umbilical),
            state,
        };
        let Listeners { web, actions: orders, umbilical: tasks, callbacks } = listeners;
        let listeners = [web, orders, tasks, callbacks].map(OwnedFd::from);
        let connections = actions.into_iter().chain(umbilical);
        let connections = connections.map(|connection| connection.stream.into());
        let descriptors = listeners.into_iter().chain(connections).collect();
        let text = handover::Text::written(|writer| Ok(serde_json::to_writer(writer, &text)?))?;
        Ok(Handed { text, descriptors })
    }

    /// What another program has handed over. Connections for which there was no room end.
    ///
    /// # Errors
    /// It is of another version, or damaged.
    pub fn read(handed: Handed) -> Result<KeptTracker, NotHanded> {
        let Handed { mut text, descriptors } = handed;
        let Version { version } = serde_json::from_reader(text.reader()?)?;
        if version != VERSION {
            return Err(NotHanded::Version(version));
        }
        let Text { actions, umbilical, state, .. } = serde_json::from_reader(text.reader()?)?;
        drop(text);
        let count = descriptors.len().min(LISTENERS);
        let mut descriptors = descriptors.into_iter();
        let listeners: Vec<TcpListener> =
            descriptors.by_ref().take(LISTENERS).map(Into::into).collect();
        let listeners: [TcpListener; LISTENERS] =
            listeners.try_into().map_err(|_| NotHanded::Listeners(count))?;
        let [web, orders, tasks, callbacks] = listeners;
        let listeners = Listeners { web, actions: orders, umbilical: tasks, callbacks };
        let mut connections = |received: Vec<Vec<u8>>| -> Vec<KeptConnection> {
            let streams = descriptors.by_ref().take(received.len());
            let connections = streams.zip(received);
            connections
                .map(|(stream, received)| KeptConnection { stream: stream.into(), received })
                .collect()
        };
        let actions = connections(actions);
        let umbilical = connections(umbilical);
        Ok(KeptTracker { state, listeners, actions, umbilical })
    }
}

impl HandedState {
    /// The numbers of all processes.
    pub fn pids(&self) -> Vec<i32> {
        let job_trackers = self.job_trackers.iter().map(HandedJobTracker::child);
        self.tracker.children().iter().chain(job_trackers).map(|child| child.pid).collect()
    }

    /// The notes of all processes.
    pub fn notes(&self) -> Vec<PathBuf> {
        let job_trackers = self.job_trackers.iter().map(HandedJobTracker::child);
        self.tracker.children().iter().chain(job_trackers).map(|child| child.note.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
