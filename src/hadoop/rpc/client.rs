//! A client of one protocol: one connection, one call at a time.
//!
//! It connects at its first call, sends its identity and compares versions. When the connection has
//! been closed, or has been idle for long, the next call opens another, without that comparison, as
//! the original's clients do. A call is sent once: failures on the way are returned, because it is
//! not known how far the call came. Spec: mapreduce/01 §1.6, §1.7.

use tokio::time::{Instant, timeout};

use super::argument::Argument;
use super::call::Call;
use super::link::{CallError, ClientOptions, Link};
use super::protocol::{Protocol, SIGNATURE, VERSION};
use super::reply::Outcome;
use crate::object::Object;
use crate::writables::{InetAddress, ProtocolSignature};

/// A client of a protocol at an address.
#[derive(Debug)]
pub struct Client {
    address: InetAddress,
    protocol: &'static Protocol,
    options: ClientOptions,
    link: Option<Link>,
    next_id: i32,
    /// Whether versions have been compared.
    greeted: bool,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(
        address: InetAddress,
        protocol: &'static Protocol,
        options: ClientOptions,
    ) -> Client {
        Client { address, protocol, options, link: None, next_id: 0, greeted: false }
    }

    /// Where it connects to.
    pub fn address(&self) -> &InetAddress {
        &self.address
    }

    /// Whether an open connection exists that the next call will use. Its end may be detected late,
    /// so a call may fail nonetheless.
    pub fn is_connected(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| link.is_usable(self.options.max_idle))
    }

    /// Connects and compares versions, unless that has been done. Calls do it automatically; this
    /// is for callers that want to know first.
    pub async fn greet(&mut self) -> Result<(), CallError> {
        if self.greeted {
            return Ok(());
        }
        let Protocol { name, version, .. } = self.protocol;
        let (name, ours) = (name.to_string(), *version);
        let fingerprint = self.protocol.fingerprint();
        let parameters =
            vec![name.clone().into_object(), ours.into_object(), fingerprint.into_object()];
        match self.send::<ProtocolSignature>(SIGNATURE.name, parameters).await {
            Ok(_) => {}
            Err(CallError::Remote(error)) if error.is_no_such_method() => {
                let parameters = vec![name.into_object(), ours.into_object()];
                let theirs: i64 = self.send(VERSION.name, parameters).await?;
                if theirs != ours {
                    let protocol = self.protocol.name;
                    return Err(CallError::Version { protocol, theirs, ours });
                }
            }
            Err(error) => return Err(error),
        }
        self.greeted = true;
        Ok(())
    }

    /// Calls the protocol's method of this name and waits for its result. A future that is dropped
    /// before its end closes the connection, since the reply may still come.
    pub async fn call<T: Argument>(
        &mut self,
        method: &str,
        parameters: Vec<Object>,
    ) -> Result<T, CallError> {
        self.greet().await?;
        self.send(method, parameters).await
    }

    async fn send<T: Argument>(
        &mut self,
        method: &str,
        parameters: Vec<Object>,
    ) -> Result<T, CallError> {
        // While a call is in flight the link is not here, so that it is dropped with the future.
        let usable = self.link.take_if(|link| link.is_usable(self.options.max_idle));
        let mut link = match usable {
            Some(link) => link,
            None => self.connect().await?,
        };
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let call = Call { id, method: method.to_owned(), parameters };
        let exchange = link.exchange(&call, &self.options);
        let reply = match self.options.call_timeout {
            None => exchange.await?,
            Some(due) => timeout(due, exchange).await.map_err(|_| CallError::Timeout(due))??,
        };
        if let Outcome::Fatal(error) = reply.outcome {
            return Err(CallError::Refused(error));
        }
        if reply.id != id {
            return Err(CallError::OutOfSequence { expected: id, found: reply.id });
        }
        self.link = Some(link);
        match reply.outcome {
            Outcome::Value(object) => T::from_object(object)
                .map_err(|object| CallError::WrongResult(object.class().to_string(), T::CLASS)),
            Outcome::Error(error) | Outcome::Fatal(error) => Err(CallError::Remote(error)),
        }
    }

    /// Connects, with as many attempts as the options allow.
    async fn connect(&self) -> Result<Link, CallError> {
        let begun = Instant::now();
        loop {
            let due = self.options.attempt_timeout;
            let attempt = Link::open(&self.address, self.protocol.name, &self.options);
            let error = match timeout(due, attempt).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => error,
                Err(_) => std::io::ErrorKind::TimedOut.into(),
            };
            let pause = self.options.connect_pause;
            // A peer that is no member of the cluster any more will not become one in a moment.
            let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
            if is_refused || begun.elapsed() + pause > self.options.connect_patience {
                let address = self.address.clone();
                return Err(CallError::Connect { address, error });
            }
            tracing::debug!(address = %self.address, %error, "cannot connect yet; retrying");
            tokio::time::sleep(pause).await;
        }
    }
}
