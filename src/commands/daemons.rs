//! Daemons of a cluster that one process keeps running: each is a process of its own, is started again when
//! it ends, and stops with the process that keeps it. Their directory has their logs and numbers.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use corona::net::Backoff;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::daemon::{PARENT, REFUSED};
use super::signals::StopSignal;
use corona_terminal::console::Console;

/// How long a daemon may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a daemon may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a daemon is started again, and what it grows to while the daemon ends at once.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
/// A daemon that ran for so long does not end at once.
const LONG_RUN: Duration = Duration::from_secs(10);
/// A log that is larger is set aside, in place of the one that was set aside before.
const MOST_LOG_BYTES: u64 = 64 << 20;
/// The pause between two looks how large the logs are.
const LOG_LOOK: Duration = Duration::from_secs(60);
/// How the names of the files in `run` end: the number of the process of a daemon, and what is wrong with it.
pub(super) const PID: &str = "pid";
pub(super) const PROBLEM: &str = "problem";
/// Directories that every keeper of daemons needs.
pub(super) const CONF_FOLDER: &str = "conf";
const FOLDERS: [&str; 3] = [CONF_FOLDER, "logs", "run"];

/// The directory of daemons, which one process uses at a time.
pub(super) struct Home {
    pub(super) root: PathBuf,
    _lock: File,
}

impl Home {
    /// Opens a directory, and makes it and these directories in it if they do not exist. `who` uses it, in
    /// errors.
    ///
    /// # Errors
    /// Another process uses it, it cannot be written, or its name cannot be part of a configuration.
    pub(super) fn open(dir: &Path, who: &str, folders: &[&str]) -> anyhow::Result<Home> {
        let shown = dir.display();
        fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {shown}"))?;
        let root = dir.canonicalize().with_context(|| format!("cannot use {shown}"))?;
        let is_usable = |c: char| !matches!(c, ',' | '%' | '#') && !c.is_control();
        ensure!(
            root.to_str().is_some_and(|text| text.chars().all(is_usable) && !text.contains("${")),
            "--dir {}: a path with a comma, %, #, ${{ or characters that are not UTF-8 cannot be \
             written into a configuration; name another directory",
            root.display()
        );
        let lock = File::options().create(true).append(true).open(root.join("lock"));
        let lock = lock.with_context(|| format!("cannot write into {shown}"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another {who} uses {shown}; stop it, or name another directory")
            }
            Err(error) => return Err(error).context(format!("cannot lock {shown}/lock")),
        }
        for name in FOLDERS.iter().chain(folders) {
            let made = root.join(name);
            fs::create_dir_all(&made)
                .with_context(|| format!("cannot make the directory {}", made.display()))?;
        }
        Ok(Home { root, _lock: lock })
    }

    /// The directory of the configuration.
    pub(super) fn conf(&self) -> PathBuf {
        self.root.join(CONF_FOLDER)
    }

    /// A path in the directory, as text.
    pub(super) fn at(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

/// Sets logs of daemons aside that are larger, as `NAME.log.old`. The daemons go on to append to the same file; a line
/// that is written meanwhile may be lost. A log that cannot be set aside goes on to grow.
pub(super) fn set_large_logs_aside(dir: &Path, most_bytes: u64) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let log = entry.path();
        let is_log = log.extension().is_some_and(|extension| extension == "log");
        let is_large = entry.metadata().is_ok_and(|file| file.is_file() && file.len() > most_bytes);
        // An earlier one is replaced only by a whole one.
        let (copy, old) = (log.with_extension("log.new"), log.with_extension("log.old"));
        let set_aside = || fs::copy(&log, &copy).and_then(|_| fs::rename(&copy, &old));
        if is_log && is_large && set_aside().map_err(|_| fs::remove_file(&copy)).is_ok() {
            let _ = File::options().write(true).open(&log).and_then(|log| log.set_len(0));
        }
    }
}

/// What happens to daemons.
#[derive(Debug)]
pub(super) enum News {
    /// It serves.
    Ready { name: String },
    /// It ended, and is started again after a pause.
    Ended { name: String, how: String, last: String },
    /// It cannot be started, which is tried again after a pause.
    Failed { name: String, why: String },
    /// It was to start again in its process, and goes on as before.
    Refused { name: String, why: String },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Ready { name } => write!(f, "{name}: ready again"),
            News::Ended { name, how, last } if last.is_empty() => {
                write!(f, "{name}: ended ({how}); starting it again")
            }
            News::Ended { name, how, last } => {
                write!(f, "{name}: ended ({how}: {last}); starting it again")
            }
            News::Failed { name, why } => {
                write!(f, "{name}: cannot be started: {why}; trying again")
            }
            News::Refused { name, why } => write!(f, "{name}: not restarted: {why}"),
        }
    }
}

/// The daemons that run.
pub(super) struct Daemons {
    program: PathBuf,
    daemons: Vec<Daemon>,
    tell: mpsc::Sender<News>,
    pub(super) news: mpsc::Receiver<News>,
}

/// A daemon that is kept running.
struct Daemon {
    name: String,
    stop: watch::Sender<bool>,
    /// Has it end, and start again from the file that is there by now.
    replace: Arc<Notify>,
    pid: PathBuf,
    keeper: JoinHandle<()>,
}

/// How a program takes the place of the one that a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Its process ends, and another one starts.
    Process,
    /// It starts again in its process, as after SIGHUP from others.
    InPlace,
}

impl Daemons {
    /// None yet, for this directory.
    ///
    /// # Errors
    /// The program, or the directory, cannot be read.
    pub(super) fn new(home: &Home) -> anyhow::Result<Daemons> {
        // The file as it is now: one that is replaced meanwhile has another version.
        let program = std::env::current_exe().context("cannot find this program")?;
        for entry in fs::read_dir(home.root.join("run"))? {
            // Numbers of processes of an earlier run would mislead.
            let _ = fs::remove_file(entry?.path());
        }
        let (tell, news) = mpsc::channel(100);
        Ok(Daemons { program, daemons: Vec::new(), tell, news })
    }

    /// Starts a daemon and keeps it running.
    pub(super) fn launch(
        &mut self,
        name: &str,
        command: &[&str],
        home: &Home,
        settings: &[(&str, String)],
    ) {
        let log = home.root.join("logs").join(format!("{name}.log"));
        let mut arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        arguments.push("--conf-dir".to_owned());
        arguments.push(home.conf().display().to_string());
        for (key, value) in settings {
            arguments.extend(["-D".to_owned(), format!("{key}={value}")]);
        }
        let (stop, stopped) = watch::channel(false);
        let (replace, pid) =
            (Arc::<Notify>::default(), home.root.join("run").join(format!("{name}.{PID}")));
        let keeper = Keeper {
            name: name.to_owned(),
            program: self.program.clone(),
            arguments,
            log,
            pid: pid.clone(),
            replace: replace.clone(),
            problem: home.root.join("run").join(format!("{name}.{PROBLEM}")),
            directory: home.root.clone(),
            tell: self.tell.clone(),
            stopped,
        };
        let keeper = tokio::spawn(keeper.keep());
        self.daemons.push(Daemon { name: name.to_owned(), stop, replace, pid, keeper });
    }

    /// Checks that the file of the program can be started, and says which version it has by now.
    pub(super) async fn installed_version(&self) -> anyhow::Result<String> {
        let mut asked = Command::new(&self.program);
        asked.arg("version").stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(START_TIMEOUT, asked.output()).await;
        let shown = self.program.display();
        let output = output.with_context(|| format!("{shown} version does not end"))?;
        let output = output.with_context(|| format!("cannot run {shown}"))?;
        ensure!(output.status.success(), "{shown} version: {}", self::shown(output.status));
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// Has a daemon start again from the file that is there by now, and waits until it serves.
    ///
    /// # Errors
    /// It refuses and goes on as before, or it does not serve in time. Then it is still started again when it ends.
    pub(super) async fn renew(&mut self, name: &str, how: Renewal) -> anyhow::Result<()> {
        let daemon = self.daemons.iter().find(|daemon| daemon.name == name);
        let daemon = daemon.with_context(|| format!("there is no {name}"))?;
        match how {
            Renewal::Process => daemon.replace.notify_one(),
            Renewal::InPlace => hang_up(&daemon.pid),
        }
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        let mut last = String::new();
        loop {
            match tokio::time::timeout_at(deadline, self.news.recv()).await {
                Ok(Some(News::Ready { name: ready })) if ready == name => return Ok(()),
                Ok(Some(News::Ready { .. })) => {}
                Ok(Some(News::Refused { name: refused, why })) if refused == name => {
                    bail!("{name} goes on as before: {why}")
                }
                Ok(Some(news)) => last = news.to_string(),
                Ok(None) => bail!("a part of the program failed"),
                Err(_) => bail!("{name} does not serve after {START_TIMEOUT:?}; {last}"),
            }
        }
    }

    /// Waits until these daemons serve for the first time.
    pub(super) async fn until_ready(&mut self, names: &[String]) -> anyhow::Result<()> {
        let mut awaited: Vec<&String> = names.iter().collect();
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        while !awaited.is_empty() {
            let news = tokio::time::timeout_at(deadline, self.news.recv()).await;
            match news {
                Ok(Some(News::Ready { name })) => awaited.retain(|other| **other != name),
                Ok(Some(News::Failed { name, why })) => bail!("{name} cannot be started: {why}"),
                // It serves already.
                Ok(Some(News::Refused { .. })) => {}
                Ok(Some(News::Ended { name, how, last })) => {
                    let last = last.strip_prefix("corona: ").unwrap_or(&last);
                    bail!("{name} cannot start: {}", if last.is_empty() { &how } else { last })
                }
                Ok(None) => bail!("a part of the program failed"),
                Err(_) => {
                    let names: Vec<&str> = awaited.iter().map(|name| name.as_str()).collect();
                    let seconds = START_TIMEOUT.as_secs();
                    bail!("not ready after {seconds} s: {}", names.join(", "))
                }
            }
        }
        Ok(())
    }

    /// Reports what happens to the daemons until a signal comes, or `change` completes.
    pub(super) async fn watch<T>(
        &mut self,
        home: &Home,
        console: &mut Console<'_>,
        mut stop: Pin<&mut impl Future<Output = StopSignal>>,
        change: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(change);
        let mut look = tokio::time::interval(LOG_LOOK);
        loop {
            tokio::select! {
                _ = look.tick() => set_large_logs_aside(&home.root.join("logs"), MOST_LOG_BYTES),
                news = self.news.recv() => match news {
                    Some(news) => console.complain(&format!("{news}\n")),
                    None => return None,
                },
                signal = &mut stop => {
                    console.complain(&format!("stopping after {signal}\n"));
                    return None;
                }
                changed = &mut change => return Some(changed),
            }
        }
    }

    /// Stops the daemons, the last one first. Running jobs resume at the next start.
    pub(super) async fn stop(mut self) {
        while let Some(Daemon { stop, keeper, .. }) = self.daemons.pop() {
            stop.send_replace(true);
            // News that nobody reads must not block it.
            self.news.close();
            // A panic has ended the daemon with it.
            let _ = keeper.await;
        }
    }
}

/// Keeps one daemon running.
struct Keeper {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    pid: PathBuf,
    /// What is wrong with it, while something is.
    problem: PathBuf,
    directory: PathBuf,
    tell: mpsc::Sender<News>,
    stopped: watch::Receiver<bool>,
    replace: Arc<Notify>,
}

/// How a run of a daemon ended.
enum RunEnd {
    Stopped,
    /// Another program takes its place.
    Replaced,
    ByItself(News),
}

impl Keeper {
    async fn keep(self) {
        let mut stopped = self.stopped.clone();
        let mut pauses = PAUSES;
        loop {
            let began = Instant::now();
            let news = match self.run(&mut stopped).await {
                RunEnd::Stopped => return,
                RunEnd::Replaced => continue,
                RunEnd::ByItself(news) => news,
            };
            // People miss the file if it cannot be written, and nothing else.
            let _ = fs::write(&self.problem, format!("{news}\n"));
            // Nobody listens only when all is over.
            let _ = self.tell.send(news).await;
            if began.elapsed() >= LONG_RUN {
                pauses.reset();
            }
            tokio::select! {
                () = tokio::time::sleep(pauses.pause()) => {}
                _ = wait_for(&mut stopped) => return,
            }
        }
    }

    /// Runs it once.
    async fn run(&self, stopped: &mut watch::Receiver<bool>) -> RunEnd {
        let name = self.name.clone();
        let from = fs::metadata(&self.log).map_or(0, |log| log.len());
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(error) => {
                return RunEnd::ByItself(News::Failed { name, why: format!("{error:#}") });
            }
        };
        let ended = tokio::select! {
            status = self.follow(&mut child) => Ok(status),
            () = self.replace.notified() => Err(RunEnd::Replaced),
            _ = wait_for(stopped) => Err(RunEnd::Stopped),
        };
        if ended.is_err() {
            end(&mut child).await;
        }
        let _ = fs::remove_file(&self.pid);
        let how = match ended {
            Ok(Ok(status)) => shown(status),
            Ok(Err(error)) => error.to_string(),
            Err(end) => return end,
        };
        RunEnd::ByItself(News::Ended { name, how, last: last_line(&self.log, from) })
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot open {}", self.log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env_remove("HADOOP_CONF_DIR")
            .env_remove("NOTIFY_SOCKET")
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            // Ctrl-C at the terminal reaches this process alone, which stops them in order.
            .process_group(0);
        let child = command.spawn().context("the program cannot be started")?;
        if let Some(pid) = child.id() {
            // A file that cannot be written is missed by people only.
            let _ = fs::write(&self.pid, format!("{pid}\n"));
        }
        Ok(child)
    }

    /// Reports that a daemon is ready, and waits for its end.
    async fn follow(&self, child: &mut Child) -> io::Result<ExitStatus> {
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            // Its first line says that it is ready. A later one says that it is again, in the place of another program, or
            // that it goes on as before. The end of the lines is its end, or near.
            let mut is_first = true;
            while let Ok(Some(line)) = lines.next_line().await {
                let name = self.name.clone();
                let is_first = std::mem::take(&mut is_first);
                if let Some((_, why)) = line.split_once(REFUSED) {
                    let _ = self.tell.send(News::Refused { name, why: why.to_owned() }).await;
                } else if is_first || line.contains(" ready: ") {
                    let _ = fs::remove_file(&self.problem);
                    let _ = self.tell.send(News::Ready { name }).await;
                }
            }
        }
        child.wait().await
    }
}

/// Passes SIGHUP on to the daemon whose number is in this file: it starts again in place.
pub(super) fn hang_up(pid: &Path) {
    // Without one there is nothing to start again.
    let number = fs::read_to_string(pid).ok().and_then(|text| text.trim().parse().ok());
    if let Some(daemon) = number.and_then(Pid::from_raw) {
        let _ = kill_process(daemon, Signal::HUP);
    }
}

async fn wait_for(stopped: &mut watch::Receiver<bool>) -> bool {
    stopped.wait_for(|stopped| *stopped).await.is_ok()
}

/// Ends a daemon: asks it first.
async fn end(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn shown(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;

    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last line of a log from a place on, if it is a complaint of this program.
fn last_line(log: &Path, from: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};

    const TAIL: u64 = 8 << 10;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL))))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let tail = read().unwrap_or_default();
    let last = tail.lines().last().unwrap_or_default().trim();
    if last.starts_with("corona: ") { last.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(path: &Path, commands: &str) {
        use std::os::unix::fs::PermissionsExt;

        fs::write(path, format!("#!/bin/sh\n{commands}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn a_daemon_that_cannot_be_started_for_a_while_is_tried_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path(), "test", &[]).unwrap();
        let mut daemons = Daemons::new(&home).unwrap();
        daemons.program = home.root.join("program");
        daemons.launch("part", &[], &home, &[]);
        let problem = home.root.join("run/part.problem");
        for _ in 0..2 {
            let news = daemons.news.recv().await.unwrap();
            assert!(matches!(&news, News::Failed { name, .. } if name == "part"), "{news:?}");
            let shown = fs::read_to_string(&problem).unwrap();
            assert!(shown.contains("part: cannot be started"), "{shown}");
        }
        script(&daemons.program, "echo ready; exit 3");
        let news = loop {
            match daemons.news.recv().await.unwrap() {
                News::Failed { .. } => {}
                news => break news,
            }
        };
        assert!(matches!(news, News::Ready { .. }), "{news:?}");
        let News::Ended { how, .. } = daemons.news.recv().await.unwrap() else { panic!() };
        assert_eq!(how, "status 3");
        assert!(fs::read_to_string(&problem).unwrap().contains("ended (status 3)"));
        daemons.stop().await;
    }

    #[tokio::test]
    async fn a_daemon_that_refuses_to_start_again_in_its_process_says_why_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path(), "test", &[]).unwrap();
        let mut daemons = Daemons::new(&home).unwrap();
        daemons.program = home.root.join("program");
        let refusing =
            "trap 'echo part not restarted: no room' HUP; echo ready; while :; do sleep 0.02; done";
        script(&daemons.program, refusing);
        daemons.launch("part", &[], &home, &[]);
        daemons.until_ready(&["part".to_owned()]).await.unwrap();
        let error = daemons.renew("part", Renewal::InPlace).await.unwrap_err();
        assert_eq!(error.to_string(), "part goes on as before: no room");
        daemons.stop().await;
    }
}
