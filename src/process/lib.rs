//! The process itself: panics in tasks that other parts rely on, threads for work that blocks, what the
//! machine and its control groups allow it and how that is distributed, Linux's statistics of processes and of the machine, the
//! size of pages, counts of durations, and what it hands to the program that takes its place. It must not know the
//! tasks' purpose.
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

pub mod budget;
pub mod cgroups;
pub mod descriptors;
pub mod handover;
pub mod histogram;
pub mod memory;
pub mod panics;
mod proc_text;
pub mod procfs;
pub mod sockets;
pub mod threads;

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// When this program was started, also in the place of another one: milliseconds since the Unix epoch. The first
/// call counts, which `main` makes.
pub fn started_ms() -> i64 {
    static STARTED: OnceLock<i64> = OnceLock::new();
    *STARTED.get_or_init(now_ms)
}

/// The time of the machine's clock, in milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    since_epoch_ms(SystemTime::now())
}

/// A time in milliseconds since the Unix epoch; 0 if it is before that.
pub fn since_epoch_ms(time: SystemTime) -> i64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The name of this machine, as its operating system has it.
///
/// # Errors
/// It cannot be read.
pub fn machine_name() -> io::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().to_owned())
}

/// The name of this machine, or `localhost` if it has none.
pub fn machine_name_or_localhost() -> String {
    let name = machine_name().ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// Work in a box: its code is compiled once, with the crate that makes it. The code of an `async fn`
/// is compiled with whatever crate waits for it, each time.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
