//! The configuration: files, once, into typed settings.
//!
//! Hadoop property files, the general scheduling file, the pools file and the host files are read
//! only here; no other crate sees a raw key. Every key is defined once, in [`keys`], with its
//! default and its unit. Each error or warning is a [`Problem`] with file, line, key and the
//! expected value; all problems of a load are reported together.
//!
//! [`load`] reads everything but the host files, which [`HostFiles::load`] reads, since they are
//! read again at other times. [`SchedulingFiles::load`] reads the two scheduling files again;
//! [`FileStamp::has_changed`] detects when that is needed. [`Source::load_task_tracker`] reads the
//! settings of a task tracker, [`JobConf`] the file of a job.
//!
//! It knows nothing of sockets and clocks, logs nothing and prints nothing.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::path::Path;

mod access;
mod check;
mod client;
mod fields;
mod file_systems;
mod files;
mod general;
mod high_availability;
mod hosts;
pub mod import;
mod job_conf;
mod job_tracker;
mod journal;
pub mod keys;
mod limits;
mod partitioning;
mod pools;
mod problem;
mod properties;
mod proxy_job_tracker;
mod queues;
mod quotas;
#[cfg(test)]
mod reference;
mod scheduling;
mod secret;
mod service;
mod settings;
mod suggest;
mod system;
mod task_tracker;
mod topology;
mod typed;
mod web;
mod xml;

pub use access::{AccessSettings, Networks, TlsMode, TlsSettings};
pub use client::{ClientSettings, ClientSource};
pub use files::FileStamp;
pub use high_availability::{GatewaySettings, HaAck, HaSettings, ZooKeeperSettings};
pub use hosts::{HostFile, HostFiles, LoadedHosts};
pub use job_conf::{JobConf, SiteProperties, WriteError};
pub use job_tracker::{
    AccessList, JobTrackerServiceSettings, JobTrackerWebSettings, LoadedJobTracker,
};
pub use journal::{JournalSettings, JournalSync};
pub use limits::{CallSettings, NameSettings, RackSettings};
pub use problem::{ConfigErrors, Origin, Problem, ProblemKind, Severity, SimilarKey};
pub use proxy_job_tracker::{
    ClassicHistories, CleanUp, LoadedProxyJobTracker, ProxyJobTrackerSettings,
};
pub use scheduling::{LoadedScheduling, Lookup, SchedulingFiles};
pub use secret::Secret;
pub use service::LoadedService;
pub use settings::{ClusterManagerSettings, Interfaces, NotifierSettings, WireSettings};
pub use suggest::similar;
pub use system::user_of_process;
pub use task_tracker::{
    CgroupSettings, ChildSettings, HealthSettings, JobFileSettings, JobTrackerCommand,
    JobTrackerSettings, LoadedTaskTracker, LocalSettings, MemorySettings, NativeTasks,
    RemoteJobTrackerSettings, TaskLogSettings, TaskTrackerSettings, TrackerHttpSettings,
};
pub use topology::Topology;
pub use typed::{HostPort, NotAnAddress};
pub use web::WebSettings;

use files::FileReader;
use problem::warnings_or_errors;
use properties::Properties;
use settings::SettingsReader;
use system::SystemProperties;

/// A configuration that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings, those of the scheduling files included.
    pub settings: ClusterManagerSettings,
    /// Warnings: values that may be mistakes.
    pub warnings: Vec<Problem>,
    /// The property files that were read or looked for.
    pub property_files: Vec<FileStamp>,
    /// The scheduling files that were read or looked for: when one of them changes it is time for
    /// [`SchedulingFiles::load`].
    pub scheduling_files: Vec<FileStamp>,
    /// The keys that were looked at, with the values in force.
    pub in_force: Vec<InForce>,
}

/// A key with the value that is used, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Its name, as files have it.
    pub key: &'static str,
    /// Its value, variables replaced.
    pub value: String,
    /// Where it is set.
    pub origin: Origin,
}

/// The result of checking a whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// All errors and warnings, in the order in which they were found.
    pub problems: Vec<Problem>,
    /// The keys that were looked at, in the order of the documentation, with the values that the
    /// files have, or their defaults.
    pub in_force: Vec<InForce>,
}

/// Where a configuration comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The directory with `core-site.xml` and `mapred-site.xml`; none for the defaults.
    pub conf_dir: Option<&'a Path>,
    /// `-D key=value`, in order. They change even final values of a file.
    pub overrides: &'a [(String, String)],
    /// How scheduling files are found that are not at their path.
    pub lookup: Lookup,
}

/// Loads a configuration: the property files of the directory, the overrides over them, the two
/// scheduling files that they name. Without a directory the defaults are used, and a cluster manager
/// starts with them. The errors are all that is wrong, not only the first.
///
/// Spec: cluster-manager/06 §1 to §4.
pub fn load(
    conf_dir: Option<&Path>,
    overrides: &[(String, String)],
) -> Result<Loaded, ConfigErrors> {
    Source { conf_dir, overrides, lookup: Lookup::AsGiven }.load()
}

impl Source<'_> {
    /// The same as [`load`], with a choice of how files are found.
    pub fn load(&self) -> Result<Loaded, ConfigErrors> {
        self.load_with(SystemProperties::of_process())
    }

    fn load_with(&self, system: SystemProperties) -> Result<Loaded, ConfigErrors> {
        let (loaded, problems) = self.read(system);
        Ok(Loaded { warnings: warnings_or_errors(problems)?, ..loaded })
    }

    /// Everything, with all problems beside it; wrong values are replaced by their defaults.
    fn read(&self, system: SystemProperties) -> (Loaded, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut files = FileReader::default();
        let properties =
            Properties::load(self.conf_dir, &[], self.overrides, system, &mut files, &mut problems);
        let reader = SettingsReader::new(self, &properties, &mut problems);
        let (mut settings, in_force) = reader.read();
        let mut scheduling_files = Vec::new();
        let told_here = match settings.scheduling_files.load() {
            Ok(loaded) => {
                settings.engine.scheduling = loaded.scheduling;
                settings.engine.pools = loaded.pools;
                scheduling_files = loaded.files;
                loaded.warnings
            }
            Err(errors) => errors.problems,
        };
        // Both loads look at the JSON file.
        let new: Vec<Problem> =
            told_here.into_iter().filter(|told| !problems.contains(told)).collect();
        problems.extend(new);
        let property_files = files.into_stamps();
        let warnings = Vec::new();
        (Loaded { settings, warnings, property_files, scheduling_files, in_force }, problems)
    }
}

#[cfg(test)]
mod tests;
