//! Programs that are run to their end for their output, within limits of time and size.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use corona_process::handover::unheld;

/// The number of bytes that are kept of each stream of output, unless another one is given.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// How a program ended, and the beginning of its output.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Why a program's output is unknown.
#[derive(Debug)]
pub(super) enum RunError {
    /// It cannot be started, or not be waited for.
    Io(io::Error),
    /// It had not ended in time. It is ended, with its process group.
    Timeout {
        /// The beginning of what it printed.
        stdout: String,
    },
}

/// Runs a program to its end, in its own process group, which is killed when the time is over or
/// the caller has stopped waiting.
pub(super) async fn run(command: Command, limit: Duration) -> Result<Printed, RunError> {
    run_for(command, limit, MAX_OUTPUT_BYTES).await
}

/// The same, with the number of bytes that are kept of each stream.
pub(super) async fn run_for(
    mut command: Command,
    limit: Duration,
    max_bytes: usize,
) -> Result<Printed, RunError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = unheld(|| command.spawn()).map_err(RunError::Io)?;
    let mut group = KilledOnDrop(child.id());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let all = async {
        let kept = (bounded(out, &mut stdout, max_bytes), bounded(err, &mut stderr, max_bytes));
        tokio::join!(kept.0, kept.1, child.wait()).2
    };
    let ended = tokio::time::timeout(limit, all).await;
    let text = |kept: Vec<u8>| String::from_utf8_lossy(&kept).into_owned();
    let Ok(status) = ended else {
        return Err(RunError::Timeout { stdout: text(stdout) });
    };
    // Its number may now be given to another process.
    group.0 = None;
    let status = status.map_err(RunError::Io)?;
    Ok(Printed { status, stdout: text(stdout), stderr: text(stderr) })
}

/// The first line that is not blank.
pub(super) fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

/// Kills the process group of a process that was not waited for to its end.
struct KilledOnDrop(Option<u32>);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = pid.and_then(rustix::process::Pid::from_raw) {
            // When it has ended, nothing is left to do.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The bytes of a stream, up to a bound; the rest is read and dropped.
async fn bounded(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, max_bytes: usize) {
    let Some(mut stream) = stream else { return };
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let room = max_bytes.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}
