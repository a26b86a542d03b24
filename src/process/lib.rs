//! The process itself: panics in tasks that other parts rely on, threads for work that blocks, and the
//! text forms in which Linux reports processes. It must not know what the tasks do.

pub mod panics;
pub mod proc_text;
pub mod threads;
