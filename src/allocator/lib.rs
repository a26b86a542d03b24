//! The memory allocator of the program, for every binary that links this crate.
//!
//! It is a crate of its own so that the entry points of every allocation are always optimised: the
//! binary itself is compiled without optimisation in the profile `release`.

/// A cluster manager makes many small allocations that another thread frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
