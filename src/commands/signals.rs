//! The signals that ask the process to stop.

use std::fmt;
use std::future::{Future, pending};
use std::io;

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// A request to stop, from a terminal or a service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGINT: Ctrl-C at a terminal.
    Interrupt,
    /// SIGTERM: sent by `kill`, systemd and the original's scripts.
    Terminate,
    /// SIGHUP: sent by `systemctl reload`. The service is to start again in the same process.
    Hangup,
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Terminate => "SIGTERM",
            StopSignal::Hangup => "SIGHUP",
        })
    }
}

/// The SIGTERMs and SIGINTs since [`StopSignals::listen`]. Several that arrive before the first is
/// received may count as one.
pub(crate) struct StopSignals {
    /// None: they are ignored.
    interrupt: Option<Signal>,
    terminate: Signal,
}

impl StopSignals {
    /// As [`StopSignals::install`], for a command: SIGINT stays ignored if it is, as shells have it for commands in the
    /// background of a script, which the Ctrl-C of others does not concern.
    ///
    /// # Errors
    /// When the system refuses a handler.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn listen() -> io::Result<StopSignals> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        StopSignals::install(ignores_interrupts(&status))
    }

    /// Installs the handlers. They are in place when this returns, not when a signal is first waited
    /// for: a signal during a slow start is not lost. From then on neither signal ends the process by
    /// itself. A signal that arrives while they are being installed waits, unless another thread that
    /// exists by then takes it.
    ///
    /// # Errors
    /// When the system refuses a handler.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    fn install(ignores_interrupts: bool) -> io::Result<StopSignals> {
        // For a moment the system calls a handler whose own entry is not made yet, which drops the signal.
        let mut both = SigSet::empty();
        both.add(nix::sys::signal::Signal::SIGINT);
        both.add(nix::sys::signal::Signal::SIGTERM);
        let before = both.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let interrupt = || match ignores_interrupts {
            true => Ok(None),
            false => signal(SignalKind::interrupt()).map(Some),
        };
        let installed =
            interrupt().and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)));
        before.thread_set_mask()?;
        let (interrupt, terminate) = installed?;
        Ok(StopSignals { interrupt, terminate })
    }

    /// Waits for the next signal. A wait that is given up loses none.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let interrupt = async {
            match &mut self.interrupt {
                Some(interrupt) => interrupt.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = interrupt => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }
}

/// Whether a process has SIGINT ignored, by its `/proc/PID/status`.
fn ignores_interrupts(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SignalKind::interrupt().as_raw_value() - 1)) != 0)
}

/// A future that completes at the first SIGTERM or SIGINT after this call, and returns which it was. A service, and a
/// tool that runs until it is stopped, ends at SIGINT wherever it was started.
///
/// # Errors
/// As [`StopSignals::listen`].
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn shutdown_signal() -> io::Result<impl Future<Output = StopSignal>> {
    let mut signals = StopSignals::install(false)?;
    Ok(async move { signals.next().await })
}

/// Acts at each SIGHUP, as operators expect of a daemon.
///
/// # Errors
/// When the system refuses a handler.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn on_hangup(mut act: impl FnMut() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    Ok(tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;
    use std::time::Duration;

    use tokio::sync::Mutex;

    use super::*;

    /// Held by a test that sends signals: they go to the whole process, so two tests would hear each other.
    pub(crate) static SIGNALS: Mutex<()> = Mutex::const_new(());

    fn send_to_this_process(signal_name: &str) {
        let script = format!("kill -s {signal_name} \"$0\"");
        let pid = std::process::id().to_string();
        let status = Command::new("sh").args(["-c", &script, &pid]).status().unwrap();
        assert!(status.success());
    }

    #[test]
    fn a_shell_that_ignores_interrupts_has_its_commands_ignore_them() {
        for (ignored, expected) in [("INT", true), ("TERM", false), ("INT TERM", true)] {
            let script = format!("trap '' {ignored}; exec cat /proc/self/status");
            let mut shell = Command::new("env");
            shell.args(["--default-signal=INT", "sh", "-c", &script]);
            let output = shell.output().unwrap();
            let status = String::from_utf8(output.stdout).unwrap();
            assert_eq!(ignores_interrupts(&status), expected, "{status}");
        }
        for status in ["", "SigIgn:\tmany\n", "SigCgt:\t0000000000000002\n"] {
            assert!(!ignores_interrupts(status), "{status}");
        }
    }

    #[tokio::test]
    async fn tells_which_signal_came_even_when_it_came_before_the_wait() {
        let _alone = SIGNALS.lock().await;
        for (signal_name, expected) in
            [("TERM", StopSignal::Terminate), ("INT", StopSignal::Interrupt)]
        {
            let stop = shutdown_signal().unwrap();
            send_to_this_process(signal_name);
            let heard = tokio::time::timeout(Duration::from_secs(30), stop).await;
            assert_eq!(heard.unwrap(), expected);
        }
    }
}
