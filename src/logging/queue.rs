//! The queue of log lines between the program and the thread that writes them.
//!
//! Logging must neither block on a stuck terminal or pipe, nor wake another thread for each line:
//! on a machine with idle processors that costs more than answering a call. So lines are queued in
//! memory; the first one wakes the writing thread, which waits a moment for more and writes them
//! together.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How long the first line waits for further ones.
const LINGER: Duration = Duration::from_millis(10);
/// Maximum of queued bytes; further lines are lost and counted.
const MOST_BYTES: usize = 4 << 20;
/// How long the end of the program waits for queued lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The writing end of the queue. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue(Arc<LogQueueCore>);

/// Keep this as long as the program logs; dropping it writes the queued lines,
/// for up to a second.
#[must_use]
pub struct LogGuard(Arc<LogQueueCore>);

struct LogQueueCore {
    waiting: Mutex<Waiting>,
    /// There is a line, or the end has come.
    news: Condvar,
    /// All has been written, after the end has come.
    finished: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    lost: u64,
    /// Whether the writing thread waits for a line, and not for more of them.
    is_idle: bool,
    is_over: bool,
    is_finished: bool,
}

impl LogQueueCore {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes received lines until the end.
    fn write_to(&self, mut sink: impl Write, tell: impl Fn(u64) -> String) {
        let mut taken = Vec::new();
        loop {
            let mut waiting = self.waiting();
            while waiting.lines.is_empty() && waiting.lost == 0 && !waiting.is_over {
                waiting.is_idle = true;
                waiting = self.news.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            waiting.is_idle = false;
            let more_may_come = |waiting: &mut Waiting| !waiting.is_over;
            let lingered = self.news.wait_timeout_while(waiting, LINGER, more_may_come);
            let (mut waiting, _) = lingered.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut taken, &mut waiting.lines);
            let lost = std::mem::take(&mut waiting.lost);
            let is_last = taken.is_empty() && lost == 0 && waiting.is_over;
            waiting.is_finished = is_last;
            drop(waiting);
            if is_last {
                return self.finished.notify_all();
            }
            // There is no other place to report a failure of the log.
            let _ = sink.write_all(&taken);
            if lost > 0 {
                let _ = sink.write_all(tell(lost).as_bytes());
            }
            let _ = sink.flush();
            taken.clear();
            taken.shrink_to(MOST_BYTES / 16);
        }
    }
}

/// Starts a thread that writes lines to `sink`. If lines were lost, it writes the result of `tell`
/// with their number.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(
    sink: impl Write + Send + 'static,
    tell: impl Fn(u64) -> String + Send + 'static,
) -> io::Result<(LogQueue, LogGuard)> {
    let shared = Arc::new(LogQueueCore {
        waiting: Mutex::default(),
        news: Condvar::new(),
        finished: Condvar::new(),
    });
    let writing = shared.clone();
    thread::Builder::new().name("log".into()).spawn(move || writing.write_to(sink, tell))?;
    Ok((LogQueue(shared.clone()), LogGuard(shared)))
}

/// Takes a line, whole, by one `write`.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting();
        if waiting.lines.len() + line.len() > MOST_BYTES {
            waiting.lost += 1;
        } else {
            waiting.lines.extend_from_slice(line);
        }
        if std::mem::take(&mut waiting.is_idle) {
            drop(waiting);
            self.0.news.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for LogQueue {
    type Writer = LogQueue;

    fn make_writer(&'w self) -> LogQueue {
        self.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.is_over = true;
        self.0.news.notify_one();
        let unfinished = |waiting: &mut Waiting| !waiting.is_finished;
        // Lines for a sink that takes nothing are lost.
        drop(self.0.finished.wait_timeout_while(waiting, END_TIMEOUT, unfinished));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A sink that reports the bytes written to it, and writes no more than it is allowed.
    struct Gate {
        told: SyncSender<Vec<u8>>,
        let_through: Receiver<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.let_through.recv();
            let _ = self.told.send(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lost(lines: u64) -> String {
        format!("{lines}\n")
    }

    fn gate() -> (Gate, SyncSender<()>, Receiver<Vec<u8>>) {
        let ((told, written), (open, let_through)) = (sync_channel(4096), sync_channel(1));
        (Gate { told, let_through }, open, written)
    }

    #[test]
    fn lines_come_whole_in_their_order_and_the_last_ones_before_the_end() {
        let (gate, open, written) = gate();
        drop(open);
        let (queue, guard) = start(gate, lost).unwrap();
        for number in 0..1000 {
            writeln!(queue.clone(), "line {number}").unwrap();
        }
        drop(guard);
        let text = written.try_iter().flatten().collect::<Vec<u8>>();
        let expected: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_sink_that_takes_nothing_holds_nobody_up_and_what_is_lost_is_counted() {
        let (gate, open, written) = gate();
        let (mut queue, guard) = start(gate, lost).unwrap();
        let line = vec![b'x'; MOST_BYTES / 4];
        // At most as much as may wait is taken by the thread, and as much waits behind it.
        for _ in 0..20 {
            queue.write_all(&line).unwrap();
        }
        assert!(queue.0.waiting().lines.len() <= MOST_BYTES);
        drop(open);
        drop(guard);
        let text = written.try_iter().flatten().collect::<Vec<u8>>();
        let kept = text.iter().filter(|byte| **byte == b'x').count() / line.len();
        let said = String::from_utf8(text.into_iter().filter(|byte| *byte != b'x').collect());
        let said = said.unwrap();
        let lost: usize = said.lines().map(|count| count.parse::<usize>().unwrap()).sum();
        assert!((4..=8).contains(&kept), "{kept}");
        assert_eq!(kept + lost, 20, "{said}");
    }

    #[test]
    fn the_end_does_not_wait_for_a_sink_that_takes_nothing() {
        let (gate, _open, _written) = gate();
        let (mut queue, guard) = start(gate, lost).unwrap();
        queue.write_all(b"unseen\n").unwrap();
        drop(guard);
    }
}
