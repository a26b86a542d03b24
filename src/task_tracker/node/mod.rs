//! The node that a task tracker is: what it says to the cluster manager, and what it hears from it.
//!
//! * [`host`]: names and addresses of this machine;
//! * [`heartbeats`]: what it has, told again and again, and all that can come back;
//! * [`link`]: how the connection stands, for people;
//! * [`callbacks`]: its Thrift service;
//! * [`lock`], [`install`]: what it has to itself, and what it has to run Java with.
//!
//! It decides nothing about tasks.

pub mod callbacks;
pub mod heartbeats;
pub mod host;
pub mod install;
pub mod link;
pub mod lock;
