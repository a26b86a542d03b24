//! The built program as a cluster manager: its calls, pages, state file and limits, and clients that
//! others wrote.

mod any_manager;
mod failover;
mod hostile;
mod instances;
mod kills;
mod mixed_resources;
mod monitoring;
mod process;
mod session_driver;
mod stalls;
mod state_file;
mod thrift_clients;
mod web;
