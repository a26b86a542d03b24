//! Resolves the host names of peers.
//!
//! A look-up takes as long as the system's resolver needs, and cannot be cancelled. So look-ups run
//! on separate threads, with a bound on their number and a quota for each peer: slow names delay
//! neither other work nor the look-ups for other peers. Callers wait at most for the time limit,
//! and results are cached for a short time. Literal addresses need no look-up.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corona_config::NameSettings;
use corona_net::peer_of;
use corona_net::permits::{Permit, Permits};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest name that is looked up; DNS has none that is longer.
const MAX_NAME_BYTES: usize = 255;
/// Names whose addresses are kept; with more, nothing is kept until some have expired.
const MAX_KEPT: usize = 10_000;

/// Finds the addresses of a name. It may block.
#[derive(Clone)]
pub(super) struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// The resolver of the system.
    pub(super) fn system() -> Resolver {
        Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// Any other way to find addresses.
    pub(super) fn new(
        resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver(Arc::new(resolve))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// The addresses of a host, at least one.
pub(super) type Addresses = Arc<[IpAddr]>;

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NameError {
    /// It cannot be a host name.
    #[error("{0:?} is not a host name")]
    Illegal(String),
    /// The resolver found none.
    #[error("no address of {host} was found: {error}")]
    NotFound { host: String, error: String },
    /// The resolver takes too long, or look-ups of the same peer do.
    #[error("no address of {host} was found within {} ms", limit.as_millis())]
    TimedOut { host: String, limit: Duration },
}

/// Look-ups and their results.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Resolver,
    permits: Arc<Permits<IpAddr>>,
    timeout: Duration,
    keep: Duration,
    known: Mutex<HashMap<Box<str>, KnownName>>,
}

type Answer = Result<Addresses, NameError>;

#[derive(Debug)]
enum KnownName {
    /// A look-up is in flight.
    Wanted(watch::Receiver<Option<Answer>>),
    Found {
        addresses: Addresses,
        until: Instant,
    },
}

impl Names {
    pub(super) fn new(settings: &NameSettings, resolver: Resolver) -> Arc<Names> {
        Arc::new(Names {
            resolver,
            permits: Permits::new(settings.max_lookups, settings.max_lookups_per_peer),
            timeout: settings.timeout,
            keep: settings.keep,
            known: Mutex::default(),
        })
    }

    /// The addresses of a host that `peer` has named.
    pub(super) async fn addresses(self: &Arc<Self>, host: &str, peer: IpAddr) -> Answer {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok([address].into());
        }
        if host.is_empty() || host.len() > MAX_NAME_BYTES || host.contains('\0') {
            return Err(NameError::Illegal(host.chars().take(MAX_NAME_BYTES).collect()));
        }
        let found = timeout(self.timeout, self.find(host, peer_of(peer))).await;
        found.unwrap_or_else(|_| {
            Err(NameError::TimedOut { host: host.to_owned(), limit: self.timeout })
        })
    }

    async fn find(self: &Arc<Self>, host: &str, peer: IpAddr) -> Answer {
        let mut wanted = match self.kept(host) {
            Some(Ok(addresses)) => return Ok(addresses),
            Some(Err(wanted)) => wanted,
            None => {
                let permit = self.permits.take(peer).await;
                match self.start(host, permit) {
                    Ok(wanted) => wanted,
                    Err(answer) => return answer,
                }
            }
        };
        let answer = wanted.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| Err(not_found(host, "the look-up failed")))
    }

    /// The state of a host: its addresses, or the look-up in flight.
    fn kept(&self, host: &str) -> Option<Result<Addresses, watch::Receiver<Option<Answer>>>> {
        match self.known().get(host)? {
            KnownName::Wanted(wanted) => Some(Err(wanted.clone())),
            KnownName::Found { addresses, until } if Instant::now() < *until => {
                Some(Ok(addresses.clone()))
            }
            KnownName::Found { .. } => None,
        }
    }

    /// Starts a look-up, unless another caller was faster.
    fn start(
        self: &Arc<Self>,
        host: &str,
        permit: Permit<IpAddr>,
    ) -> Result<watch::Receiver<Option<Answer>>, Answer> {
        let (answer, wanted) = watch::channel(None);
        {
            let mut known = self.known();
            match known.get(host) {
                Some(KnownName::Wanted(wanted)) => return Ok(wanted.clone()),
                Some(KnownName::Found { addresses, until }) if Instant::now() < *until => {
                    return Err(Ok(addresses.clone()));
                }
                _ => {}
            }
            known.insert(host.into(), KnownName::Wanted(wanted.clone()));
        }
        let lookup = Lookup { names: self.clone(), host: host.into(), answer };
        let run = move || {
            let _permit = permit;
            lookup.run();
        };
        let started = thread::Builder::new().name("name look-up".to_owned()).spawn(run);
        // Without a thread the look-up is dropped, and its waiters see its end.
        started.map(|_| wanted).map_err(|error| Err(not_found(host, &error.to_string())))
    }

    /// No panic happens while the lock is held.
    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, KnownName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found(host: &str, error: &str) -> NameError {
    NameError::NotFound { host: host.to_owned(), error: error.to_owned() }
}

/// A look-up, until it ends, however that may be.
struct Lookup {
    names: Arc<Names>,
    host: Box<str>,
    answer: watch::Sender<Option<Answer>>,
}

impl Lookup {
    fn run(self) {
        let answer = match (self.names.resolver.0)(&self.host) {
            Ok(addresses) if addresses.is_empty() => Err(not_found(&self.host, "it has none")),
            Ok(addresses) => Ok(addresses.into()),
            Err(error) => Err(not_found(&self.host, &error.to_string())),
        };
        self.names.keep(&self.host, answer.as_ref().ok());
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        // After a panic, or if it was never started.
        if self.answer.borrow().is_none() {
            self.names.keep(&self.host, None);
        }
    }
}

impl Names {
    /// Records that a look-up has ended, and its result.
    fn keep(&self, host: &str, found: Option<&Addresses>) {
        let mut known = self.known();
        known.remove(host);
        let Some(addresses) = found.filter(|_| !self.keep.is_zero()).cloned() else { return };
        let now = Instant::now();
        if known.len() >= MAX_KEPT {
            known.retain(|_, known| match known {
                KnownName::Wanted(_) => true,
                KnownName::Found { until, .. } => now < *until,
            });
        }
        if known.len() < MAX_KEPT {
            known.insert(host.into(), KnownName::Found { addresses, until: now + self.keep });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn settings() -> NameSettings {
        NameSettings {
            max_lookups: 4,
            max_lookups_per_peer: 2,
            timeout: SOON,
            keep: Duration::from_secs(60),
        }
    }

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn one(address: [u8; 4]) -> Addresses {
        [IpAddr::from(address)].into()
    }

    /// Names that begin with `slow` are found once the gate opens; `absent` never is.
    fn resolver(gate: &Arc<(Mutex<bool>, std::sync::Condvar)>) -> (Resolver, Arc<AtomicUsize>) {
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), gate.clone());
        let counted = asked.clone();
        let resolver = Resolver::new(move |host: &str| {
            counted.fetch_add(1, Ordering::SeqCst);
            if host.starts_with("slow") {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
            }
            match host {
                "absent" => Err(io::Error::other("no such host")),
                "broken" => panic!("as the test wants it"),
                _ => Ok(vec![[192, 0, 2, 1].into()]),
            }
        });
        (resolver, asked)
    }

    fn open(gate: &(Mutex<bool>, std::sync::Condvar)) {
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    }

    #[tokio::test]
    async fn literal_addresses_need_no_look_up_and_names_are_found_once() {
        let gate = Arc::default();
        let (resolver, asked) = resolver(&gate);
        let names = Names::new(&settings(), resolver.clone());
        for literal in ["192.0.2.7", "2001:db8::1"] {
            let expected: Addresses = [literal.parse().unwrap()].into();
            assert_eq!(names.addresses(literal, peer(1)).await, Ok(expected));
        }
        for illegal in ["", "a\0b", &"x".repeat(256)] {
            let error = names.addresses(illegal, peer(1)).await.unwrap_err();
            assert!(matches!(error, NameError::Illegal(_)), "{error}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        for _ in 0..3 {
            assert_eq!(names.addresses("name", peer(1)).await, Ok(one([192, 0, 2, 1])));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        for times in [2, 3] {
            let error = names.addresses("absent", peer(1)).await.unwrap_err();
            assert!(error.to_string().contains("no such host"), "{error}");
            assert_eq!(asked.load(Ordering::SeqCst), times, "failures are not kept");
        }
        let error = names.addresses("broken", peer(1)).await.unwrap_err();
        assert!(matches!(error, NameError::NotFound { .. }), "{error}");

        let names = Names::new(&NameSettings { keep: Duration::ZERO, ..settings() }, resolver);
        let before = asked.load(Ordering::SeqCst);
        for _ in 0..2 {
            names.addresses("name", peer(1)).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), before + 2);
        assert_eq!(names.known().len(), 0);
    }

    #[tokio::test]
    async fn slow_names_of_a_peer_do_not_delay_those_of_others() {
        let gate = Arc::default();
        let (resolver, asked) = resolver(&gate);
        let limit = Duration::from_millis(50);
        let names = Names::new(&NameSettings { timeout: limit, ..settings() }, resolver);
        let all: Vec<_> = (0..100)
            .map(|number| {
                let names = names.clone();
                tokio::spawn(async move {
                    names.addresses(&format!("slow{number}"), peer(1)).await.unwrap_err()
                })
            })
            .collect();
        for slow in all {
            assert!(matches!(slow.await.unwrap(), NameError::TimedOut { .. }));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "a part of the threads");
        assert_eq!(names.addresses("name", peer(2)).await, Ok(one([192, 0, 2, 1])));
        // Their threads are still busy; a name that is looked up already is not looked up again.
        names.addresses("slow0", peer(2)).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        open(&gate);
        let found = async { while names.addresses("slow0", peer(1)).await.is_err() {} };
        timeout(SOON, found).await.unwrap();
    }

    #[tokio::test]
    async fn many_who_want_the_same_name_share_one_look_up() {
        let both = Arc::new(Barrier::new(2));
        let (asked, meet) = (Arc::new(AtomicUsize::new(0)), both.clone());
        let counted = asked.clone();
        let resolver = Resolver::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            meet.wait();
            Ok(vec![peer(9)])
        });
        let names = Names::new(&settings(), resolver);
        let all: Vec<_> = (0..50)
            .map(|number| {
                let names = names.clone();
                tokio::spawn(async move { names.addresses("name", peer(number)).await })
            })
            .collect();
        tokio::task::spawn_blocking(move || both.wait()).await.unwrap();
        for found in all {
            assert_eq!(found.await.unwrap(), Ok(one([10, 0, 0, 9])));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
