//! A task's actions other than calls, good and bad.

use std::io::Write;
use std::process::{Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, Itself};

/// Time after which processes exit by themselves, so that none is left if a test fails.
const LEFT_BEHIND_SECONDS: &str = "600";

/// Starts a process that stays in the task's group, and one that leaves it.
pub(super) fn fork(itself: &Itself) -> Result<(), Failure> {
    for (what, words) in [("near", &["sleep"][..]), ("away", &["setsid", "sleep"][..])] {
        let mut command = Command::new(words.first().copied().unwrap_or("sleep"));
        command.args(words.iter().skip(1)).arg(LEFT_BEHIND_SECONDS);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        itself.note(what, &command.spawn()?.id().to_string())?;
    }
    Ok(())
}

/// Waits until the test releases it.
pub(super) async fn rest(itself: &Itself) {
    while !itself.notes.may_go(&itself.name) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Ends by a signal.
#[allow(clippy::disallowed_methods, reason = "that is what the test wants")]
pub(super) fn abort() -> ! {
    std::process::abort()
}

/// A signal with a waiter has no other effect.
pub(super) fn ignore_term(itself: &Itself) -> Result<(), Failure> {
    let mut terms = signal(SignalKind::terminate())?;
    let notes = itself.notes.clone();
    let name = itself.name.clone();
    tokio::spawn(async move {
        while terms.recv().await.is_some() {
            // The test looks for it; without it, it fails.
            let _ = notes.add(&name, "ignored", "SIGTERM");
        }
    });
    itself.note("ignores", "SIGTERM")
}

/// Writes numbered lines.
pub(super) fn flood(mib: u64) -> Result<(), Failure> {
    const LINE: usize = 64;
    let mut out = std::io::stdout().lock();
    for number in 0..(mib << 20) / LINE as u64 {
        writeln!(out, "{number:0width$}", width = LINE - 1)?;
    }
    Ok(out.flush()?)
}

/// Takes memory and touches it, and keeps it until the end.
pub(super) fn take_memory(itself: &Itself, mib: u64) -> Result<(), Failure> {
    let bytes = usize::try_from(mib << 20)?;
    let taken: &'static mut [u8] = Vec::leak(vec![1_u8; bytes]);
    let sum: u64 = taken.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
    itself.note("memory", &sum.to_string())
}
