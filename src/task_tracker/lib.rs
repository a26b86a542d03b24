//! The task tracker: it runs the tasks that job trackers send to a node.
//!
//! * [`ids`]: names of jobs and attempts, checked, since they become names of directories.
//! * [`layout`]: the paths of all files, relative to a local directory.
//! * [`local_dirs`]: the local directories: which are usable, where new files go, where files are.
//! * [`deletion`]: moves files aside at once and deletes them later.
//! * [`job_files`]: files of jobs, from `file:` natively, from elsewhere through a Hadoop install.
//! * [`localise`]: the files of jobs that tasks need, each copied to this machine once.
//! * [`child`]: processes of tasks, their command lines, logs and memory.
//! * [`machine_stats`]: the resources of the node and their use.
//! * `programs`: programs that are run for their output.
//! * [`map_output`]: the places of the parts of finished maps' outputs.
//! * [`http`]: serves these, and the logs of tasks.
//! * [`attempt`]: the decisions about an attempt, without effects.
//! * [`table`]: the decisions about all jobs and attempts: the effects of each action, call and
//!   report.
//! * [`tracker`]: the tracker at work, between job trackers and the processes of tasks.
//! * [`node`]: heartbeats to the cluster manager, and its calls.
//! * [`job_trackers`]: job trackers that run here, each as a process.
//! * [`pages`]: its state, for people and programs.
//! * [`service`]: all parts, put together;
//! * [`handover`]: what it hands to the program that takes its place in the same process.
//!
//! It knows no scheduling, and not which cluster manager it talks to.

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

pub mod attempt;
pub mod child;
pub mod deletion;
pub mod handover;
pub mod http;
pub mod job_files;
pub mod job_trackers;
pub mod layout;
pub mod local_dirs;
pub mod localise;
pub mod machine_stats;
pub mod map_output;
pub mod node;
pub mod pages;
mod programs;
pub mod service;
pub mod table;
pub mod tracker;

pub use corona_mapreduce::ids;
