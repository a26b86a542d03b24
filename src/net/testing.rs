//! What tests share: waiting for what should happen soon, which may take long on a busy machine, and an address where
//! nothing listens.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{ListenOn, Reserved};

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address of loopback where nothing listens, as long as this is held: no other test gets its port.
pub fn nobody() -> Reserved {
    Reserved::new(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into()))
        .unwrap_or_else(|error| panic!("no port is free: {error}"))
}

/// The result of work that should end soon.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("nothing happened"))
}

/// Waits until there is something.
pub async fn some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until something is true.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    some(what, || holds().then_some(())).await;
}
