//! How the kernel gives memory to this process, and when the allocator returns it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable of the environment, and its value, with which the allocator of a program of this project
/// takes memory in small pages from its first page on. It reads it before the program begins.
pub const SMALL_PAGES: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");

/// The same, and it returns pages 10 ms after their last use instead of a second.
pub const FRUGAL: [(&str, &str); 2] = [SMALL_PAGES, ("MIMALLOC_PURGE_DELAY", "10")];

/// Begins the program again, as the same process, unless it was started with [`FRUGAL`]; values that the
/// environment has stay. Also has the kernel give memory in small pages, so that a small process has resident
/// what it uses, and not 2 MiB for each place that it touches. Programs that the process starts inherit both.
///
/// Must come first in a program: what it has done so far is lost.
pub fn be_frugal() {
    // A kernel without huge pages uses small ones anyway.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let missing = || FRUGAL.into_iter().filter(|(name, _)| env::var_os(name).is_none());
    let (Some(_), Ok(program)) = (missing().next(), env::current_exe()) else { return };
    let mut words = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = words.next() {
        again.arg0(name);
    }
    // It returns only if the program cannot be started, for example because its file was replaced.
    let _ = again.args(words).envs(missing()).exec();
}
