//! Job trackers. So far this is [`engine`], which decides everything about one job and does nothing.

pub mod engine;
