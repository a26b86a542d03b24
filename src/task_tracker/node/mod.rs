//! The task tracker as a node of a cluster: its heartbeats, and the calls of the cluster manager.
//!
//! * [`host`]: names and addresses of this machine;
//! * [`heartbeats`]: the heartbeats to the cluster manager, and their replies;
//! * [`fitness`]: whether it can take new tasks, by its own look;
//! * [`former`]: the names of earlier processes of this node;
//! * [`health`]: the operator's health script;
//! * [`link`]: the state of the connection, for people;
//! * [`callbacks`]: the Thrift service;
//! * [`lock`], [`install`]: the locks of directories, and the requirements of Java.
//!
//! It decides nothing about tasks.

pub mod callbacks;
pub mod fitness;
mod former;
pub mod health;
pub mod heartbeats;
pub mod host;
pub mod install;
pub mod link;
pub mod lock;
