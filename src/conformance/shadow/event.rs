//! The inputs of a shadow: the traffic of the relay, and answers to its questions. A run is the list of
//! its inputs, and can be written down and read again.

use serde::{Deserialize, Serialize};

use crate::capture::ConnectionId;
use crate::recording::{Record, Unrecorded};
use corona_cluster_manager::{DecisionSettings, Found, Lookup};
use corona_config::{ConfigErrors, Loaded};
use corona_model::settings::{Hosts, Settings};

/// Something that happens to a shadow.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something passes the relay.
    Passed(ConnectionId, Record),
    /// Anything else.
    Learnt(Learnt),
}

/// An answer to a question, or another input that is not traffic.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Learnt {
    /// Time has passed, and everything that passed the relay has been seen.
    Idle,
    /// So much has been left out by the relay since the start, because the shadow was too slow.
    LeftOut(Unrecorded),
    /// The sessions that run at the primary, or why it does not list them. Asked for with
    /// [`Want::Sessions`].
    Sessions(Result<Vec<String>, String>),
    /// The present configuration, or the problem with it. Requested with [`Want::Configuration`].
    Configuration(Result<Box<Configuration>, String>),
    /// A call can be answered now. Asked for with [`Want::Lookup`].
    Found(Found),
    /// The scheduling files have changed.
    Settings(Box<Settings>),
    /// This program panicked in the step before.
    Panicked(String),
    /// The run is over.
    End,
}

/// The question that the next event must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// The primary's sessions: [`Learnt::Sessions`].
    Sessions,
    /// The configuration: [`Learnt::Configuration`].
    Configuration,
    /// Something that a call needs: [`Learnt::Found`].
    Lookup(Lookup),
}

/// The configuration of this program's cluster manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The settings on which its decisions depend, those of the scheduling files included.
    pub settings: DecisionSettings,
    /// The contents of the host files.
    pub hosts: Hosts,
}

impl Configuration {
    /// The configuration that was loaded, with the contents of its host files.
    ///
    /// # Errors
    /// The host files cannot be read.
    pub fn read(loaded: &Loaded) -> Result<Configuration, ConfigErrors> {
        let hosts = loaded.settings.host_files.load()?.hosts;
        Ok(Configuration { settings: DecisionSettings::of(&loaded.settings), hosts })
    }
}
