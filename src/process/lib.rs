//! What concerns the process itself: panics in tasks that others rely on, threads for work that blocks,
//! and the text forms in which Linux reports processes. It knows nothing of what the tasks do.

pub mod panics;
pub mod proc_text;
pub mod threads;
