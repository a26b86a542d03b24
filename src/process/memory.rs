//! How the kernel gives memory to this process.

/// The variable of the environment, and its value, with which the allocator of a program of this project
/// takes memory in small pages from its first page on.
pub const SMALL_PAGES: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");

/// Has the kernel give this process memory in small pages from now on, so that a small process has
/// resident what it uses, and not 2 MiB for each place that it touches. Programs that the process
/// starts inherit that.
pub fn use_small_pages() {
    // A kernel without huge pages uses small ones anyway.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
