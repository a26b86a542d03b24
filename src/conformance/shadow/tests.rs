//! A shadow with its relay, in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::*;
use crate::relay::{Relay, RelayOptions, feed};
use crate::report::times::USUAL_TOLERANCE;

/// The results of a shadow at work to which nothing happens.
pub(super) fn watched(primary: &str) -> Watched {
    let loaded = corona_config::load(None, &[]).unwrap();
    let options = ShadowOptions {
        primary: primary.to_owned(),
        patience: PATIENCE,
        time_tolerance: USUAL_TOLERANCE,
    };
    let configuration = Configuration::read(&loaded).unwrap();
    let stepper = Stepper::new(configuration, &options, Millis(0)).unwrap();
    Watched(Arc::new(SharedStepper::new(stepper, Instant::now())))
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_panic_is_a_difference_and_not_the_end() {
    let nobody = corona_net::testing::nobody();
    let primary = nobody.address().to_string();
    let relay = Relay::bind(RelayOptions::new("127.0.0.1:0".parse().unwrap(), primary.clone()));
    let relay = relay.unwrap();
    let address = relay.address();
    let (own, entries) = feed(1 << 20, "full");
    let (stop, stopped) = watch::channel(false);
    let relaying = tokio::spawn(relay.run(vec![own], stopped));
    let load = || corona_config::load(None, &[]).map_err(|_| "wrong defaults".to_owned());
    let read = Arc::new(AtomicUsize::new(0));
    let times = read.clone();
    let configuration = Box::new(move || {
        assert!(times.fetch_add(1, Ordering::SeqCst) > 0, "out of luck");
        load()
    });
    let options = ShadowOptions { primary, patience: PATIENCE, time_tolerance: USUAL_TOLERANCE };
    let shadow = Shadow::start(load().unwrap(), configuration, options, entries, None).unwrap();

    // The primary is not there, so the shadow resynchronises and reads the configuration.
    let mut client = TcpStream::connect(address).await.unwrap();
    let closed = timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "nobody answers");
    let watched = shadow.stats();
    let begun = async {
        while watched.now().beginnings == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, begun).await.expect("it restarts after the panic");
    assert_eq!(read.load(Ordering::SeqCst), 2);
    stop.send_replace(true);
    relaying.await.unwrap();
    let finished = tokio::task::spawn_blocking(move || shadow.finish()).await.unwrap();
    let summary = text(&watched.now(), 80);
    assert!(finished && !watched.now().agrees(), "{summary}");
    assert!(summary.contains("  here      panic: out of luck\n"), "{summary}");
}
