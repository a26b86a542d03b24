//! The costs of many sessions in one process: time, memory and threads.

use std::fs;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use corona::session_driver::{DriverHost, Options, ResourceType, SessionStatus, SlotRequest};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Sessions that start or end at the same time.
const AT_A_TIME: usize = 50;
/// Requests of each session, so that its books are not empty.
const REQUESTS: usize = 10;

/// Starts the sessions on one listener, lets each ask for a few slots, looks, and ends them.
pub(crate) async fn measure(count: usize, options: &Options) -> anyhow::Result<()> {
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await?;
    let before = Usage::now();
    report(&format!("before: {before}"))?;
    let started = Instant::now();
    let mut starting = JoinSet::new();
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        if starting.len() >= AT_A_TIME
            && let Some(session) = starting.join_next().await
        {
            sessions.push(session??);
        }
        let (host, options) = (host.clone(), options.clone());
        starting.spawn(async move { host.start(options).await });
    }
    while let Some(session) = starting.join_next().await {
        sessions.push(session??);
    }
    let took = started.elapsed();
    for (driver, _) in &sessions {
        driver.request(vec![SlotRequest::new(ResourceType::Map); REQUESTS])?;
    }
    while sessions.iter().any(|(driver, _)| driver.traffic().waiting_calls > 0) {
        sleep(Duration::from_millis(10)).await;
    }
    let after = Usage::now();
    report(&format!("{count} sessions in {:.2} s: {after}", took.as_secs_f64()))?;
    if let (Some(before), Some(after)) = (before.resident_kb, after.resident_kb) {
        let each = after.saturating_sub(before) as f64 / count.max(1) as f64;
        report(&format!("each: {each:.1} KB with {REQUESTS} requests, no thread of its own"))?;
    }
    let started = Instant::now();
    let mut ending = JoinSet::new();
    for (driver, events) in sessions {
        if ending.len() >= AT_A_TIME {
            ending.join_next().await;
        }
        ending.spawn(async move {
            driver.end(SessionStatus::Successful).await;
            drop(events);
        });
    }
    while ending.join_next().await.is_some() {}
    report(&format!("ended in {:.2} s", started.elapsed().as_secs_f64()))?;
    Ok(())
}

fn report(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// The resource use of the process, as Linux reports it; unknown elsewhere.
struct Usage {
    resident_kb: Option<u64>,
    threads: Option<u64>,
}

impl Usage {
    fn now() -> Usage {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Usage { resident_kb: number("VmRSS:"), threads: number("Threads:") }
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.resident_kb, self.threads) {
            (Some(resident_kb), Some(threads)) => {
                write!(f, "{:.1} MB resident, {threads} threads", resident_kb as f64 / 1024.0)
            }
            _ => f.write_str("memory and threads unknown"),
        }
    }
}
