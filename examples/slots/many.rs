//! The costs of many sessions in one process: time, memory and threads.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use corona::process::procfs::Usage;
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
    let before = Usage::own();
    report(&format!("before: {}", words(&before)))?;
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
    let after = Usage::own();
    report(&format!("{count} sessions in {:.2} s: {}", took.as_secs_f64(), words(&after)))?;
    if let (Some(before), Some(after)) = (before.resident_bytes, after.resident_bytes) {
        let each = after.saturating_sub(before) as f64 / 1024.0 / count.max(1) as f64;
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
fn words(usage: &Usage) -> String {
    match (usage.resident_bytes, usage.threads) {
        (Some(bytes), Some(threads)) => {
            format!("{:.1} MB resident, {threads} threads", bytes as f64 / f64::from(1 << 20))
        }
        _ => "memory and threads unknown".to_owned(),
    }
}
