//! The process itself: panics in tasks that other parts rely on, threads for work that blocks, and
//! Linux's statistics of processes and of the machine, the size of pages, and what it hands to
//! the program that takes its place. It must not know the tasks' purpose.

pub mod descriptors;
pub mod handover;
pub mod memory;
pub mod panics;
mod proc_text;
pub mod procfs;
pub mod sockets;
pub mod threads;

use std::pin::Pin;

/// Work in a box: its code is compiled once, with the crate that makes it. The code of an `async fn`
/// is compiled with whatever crate waits for it, each time.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
