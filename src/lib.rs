//! Corona: a cluster manager for Hadoop Corona, compatible on the wire with the original Java one.
//!
//! The rooms of the crate, from the inside out. A room may use the ones above it, never one below.
//!
//! * [`engine`] decides: a pure state machine of nodes, sessions and the fair scheduler. It has no
//!   sockets, threads, clock, randomness or files; time and inputs are arguments.
//! * [`simulation`] runs seeded random clusters around the engine and checks what must always hold.
//!   A run is a seed; a run that fails gives the inputs that show it.
//! * [`config`] reads the configuration files, once, into typed settings, the engine's among them.
//!   Nobody else sees a raw key.
//! * [`wire`] moves messages: Thrift over TCP as Corona's peers speak it, with limits on what a peer
//!   may cost. It knows no cluster, and nothing outside it sees an encoded byte.
//! * [`hadoop`] moves Hadoop's own messages, with limits as strict: what task trackers, job trackers
//!   and the processes of tasks say to each other. It knows no cluster either.
//! * `web` has what the pages of all services have in common, `panics` what becomes of a fault in a task
//!   that others rely on, and `proc_text` the forms in which Linux tells numbers.
//! * [`cluster_manager`] is the live service: the engine behind one short mutex, since handlers on
//!   all threads then apply their inputs without a switch of tasks, and a pass is short enough not
//!   to hold them up; timers, notifications to sessions, pages. It holds no rule of scheduling.
//! * [`session_driver`] is the client's side of a session: slots for a job tracker, or for any other
//!   framework, from any cluster manager. It knows nothing of ours.
//! * [`task_tracker`] is what a node does with tasks: directories, files of jobs, processes, logs, map
//!   output, heartbeats, what job trackers and tasks are told. It knows nothing of our cluster
//!   manager.
//! * [`conformance`] records what passes in front of a cluster manager and imports packet captures,
//!   shows what was said, plays recorded peers against a cluster manager and compares what it does
//!   with what was recorded.
//! * [`load`] emulates nodes and sessions in great numbers against any cluster manager, measures, and
//!   checks what comes back.

pub mod cluster_manager;
#[cfg(test)]
mod compatibility_tests;
pub mod config;
pub mod conformance;
pub mod engine;
pub mod hadoop;
pub mod load;
mod panics;
mod proc_text;
pub mod session_driver;
pub mod simulation;
pub mod task_tracker;
mod web;
pub mod wire;
