//! How the kernel gives memory to this process.

/// Has the kernel give this process memory in small pages from now on, so that a small process has
/// resident what it uses, and not 2 MiB for each place that it touches. Programs that the process
/// starts inherit that.
pub fn use_small_pages() {
    // A kernel without huge pages uses small ones anyway.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
