//! The built program as a task tracker, among a cluster manager, job trackers and tasks of tests.

mod alone;

use std::future::Future;
use std::path::Path;

/// The program that tasks of tests run.
fn test_task() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_test-task"))
}

/// Runs a test whose servers go on while it waits.
fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let result = runtime.block_on(test);
    runtime.shutdown_background();
    result
}
