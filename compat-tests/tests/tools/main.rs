//! The built program's tools: the client commands, recording and replaying, the shadow, load and
//! the demonstration; and the fuzz targets.

mod any_hdfs;
mod command_line;
mod compatibility;
mod demo;
mod fuzzing;
mod hostile_servers;
mod load;
mod record;
mod recordings;
mod replay;
mod resources;
mod shadow;
mod what_if;
mod what_if_truth;
