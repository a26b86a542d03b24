//! The task tracker: what a node does with the tasks that job trackers send it.
//!
//! * [`ids`]: names of jobs and attempts, checked, since they become names of directories.
//! * [`layout`]: where everything lies, relative to a local directory.
//! * [`local_dirs`]: the local directories: which are usable, where new files go, where files are.
//! * [`deletion`]: what is no longer needed is moved aside at once and deleted later.
//! * [`job_files`]: files of jobs, from `file:` natively, from elsewhere through a Hadoop install.
//! * [`localise`]: what a task needs of its job, brought to this machine, each thing once.
//! * [`child`]: processes of tasks, their command lines, logs and memory.
//! * [`procfs`], [`figures`]: what the kernel tells of processes and of the machine.
//! * `programs`: programs that are run for what they print.
//! * [`map_output`]: where the parts of finished maps' outputs lie.
//! * [`http`]: serves these, and the logs of tasks.
//! * [`attempt`]: what becomes of an attempt at a task, decided and not done.
//! * [`table`]: the same of all jobs and attempts: what each action, call and report changes.
//! * [`tracker`]: the tracker at work, between job trackers and the processes of tasks.
//! * [`node`]: what it says to the cluster manager, and what comes back.
//! * [`job_trackers`]: job trackers that run here, each as a process.
//! * [`pages`]: how it stands, for people and programs.
//! * [`service`]: all of it, put together.
//!
//! It knows no scheduling, and whose cluster manager it is.

pub mod attempt;
pub mod child;
pub mod deletion;
pub mod figures;
pub mod http;
pub mod job_files;
pub mod job_trackers;
pub mod layout;
pub mod local_dirs;
pub mod localise;
pub mod map_output;
pub mod node;
pub mod pages;
pub mod procfs;
mod programs;
pub mod service;
pub mod table;
pub mod tracker;

pub use corona_mapreduce::ids;
