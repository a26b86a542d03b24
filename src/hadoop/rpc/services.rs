//! A server's protocols, and how a call finds its method. Spec: mapreduce/01 §1.3, §1.4, §1.6.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use super::argument::{Argument, Parameters};
use super::call::Call;
use super::fault::Fault;
use super::header::Caller;
use super::protocol::{Method, Protocol, SIGNATURE, VERSION};
use crate::object::{Class, Object};
use crate::writables::ProtocolSignature;
use corona_access::{Rights, rights};

/// What the original throws at callers without a right.
const ACCESS_CONTROL: &str = "org.apache.hadoop.security.AccessControlException";

/// A result that is being worked out.
pub type Answer = Pin<Box<dyn Future<Output = Result<Object, Fault>> + Send>>;

/// The implementation of a protocol.
pub trait Service: Send + Sync + 'static {
    /// The protocol whose methods it answers.
    fn protocol(&self) -> &'static Protocol;

    /// Carries out a call of this method of the protocol. The parameters have the classes that the
    /// method declares, but may be null.
    fn call(
        self: Arc<Self>,
        caller: Arc<Caller>,
        method: &'static Method,
        parameters: Vec<Object>,
    ) -> Answer;
}

/// The protocols that a server offers.
#[derive(Clone, Default)]
pub struct Services {
    offered: Vec<Arc<dyn Service>>,
    known: Vec<&'static str>,
}

/// The target of a connection.
#[derive(Clone)]
pub(super) enum Target {
    Offered(Arc<dyn Service>),
    /// Errors: the protocol exists, but not here.
    Known,
}

impl Services {
    /// No protocol at all.
    pub fn new() -> Services {
        Services::default()
    }

    /// Offers a protocol.
    #[must_use]
    pub fn offer(mut self, service: impl Service) -> Services {
        self.offered.push(Arc::new(service));
        self
    }

    /// Makes these protocols known: calls of one that is not offered get an error, as from the
    /// original. Connections of any other lose their connection.
    #[must_use]
    pub fn know(mut self, protocols: &[&'static Protocol]) -> Services {
        self.known.extend(protocols.iter().map(|protocol| protocol.name));
        self
    }

    /// The target of connections with the protocol of this name; none if it is unknown.
    pub(super) fn target(&self, name: &str) -> Option<Target> {
        let known = || self.known.iter().find(|known| **known == name);
        let offered = self.offered(name).map(|service| Target::Offered(service.clone()));
        offered.or_else(|| known().map(|_| Target::Known))
    }

    fn offered(&self, name: &str) -> Option<&Arc<dyn Service>> {
        self.offered.iter().find(|service| service.protocol().name == name)
    }

    /// Finds the method of a call and starts to carry it out.
    pub(super) fn call(&self, target: Target, caller: Arc<Caller>, call: Call) -> Answer {
        let classes: Vec<Class> = call.parameters.iter().map(Object::class).collect();
        if SIGNATURE.is(&call.method, &classes) || VERSION.is(&call.method, &classes) {
            if let Some(objection) = caller.peer.objection(|| Rights::MEMBERS) {
                let text = format!("{}: {objection}", call.method);
                return ready(Err(Fault::of(ACCESS_CONTROL, text)));
            }
            return ready(self.handshake(&call.method, call.parameters));
        }
        let service = match target {
            Target::Offered(service) => service,
            Target::Known => {
                let message = "object is not an instance of declaring class";
                return ready(Err(Fault::illegal_argument(message)));
            }
        };
        let protocol = service.protocol();
        let mut methods = protocol.methods.iter();
        match methods.find(|method| method.is(&call.method, &classes)) {
            Some(method) => {
                let rights = || rights::hadoop(protocol.name, method.name);
                if let Some(objection) = caller.peer.objection(rights) {
                    let method = method.name;
                    tracing::warn!(peer = %caller.peer, method, objection, "Refused a call");
                    return ready(Err(Fault::of(ACCESS_CONTROL, format!("{method}: {objection}"))));
                }
                let noted = caller.peer.note(protocol.name, method.name);
                let answer = service.call(caller, method, call.parameters);
                if noted.is_nothing() {
                    return answer;
                }
                Box::pin(async move {
                    let outcome = answer.await;
                    noted.end(outcome.as_ref().map(drop).map_err(|fault| fault as &dyn Display));
                    outcome
                })
            }
            None => ready(Err(no_such_method(protocol.name, &call.method, &classes))),
        }
    }

    /// Answers for any protocol that is offered, whichever the connection is for. The original gives
    /// a list of methods to a client with another fingerprint; without a list such a client simply
    /// tries its calls.
    fn handshake(&self, method: &str, parameters: Vec<Object>) -> Result<Object, Fault> {
        let mut parameters = Parameters::new(parameters);
        let name: String = parameters.take()?;
        let Some(service) = self.offered(&name) else {
            return Err(Fault::io(format!("Unknown protocol: {name}")));
        };
        let version = service.protocol().version;
        Ok(match method == SIGNATURE.name {
            true => ProtocolSignature { version, methods: None }.into_object(),
            false => version.into_object(),
        })
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let offered = self.offered.iter().map(|service| service.protocol().name);
        f.debug_list().entries(offered).finish()
    }
}

fn ready(result: Result<Object, Fault>) -> Answer {
    Box::pin(std::future::ready(result))
}

fn no_such_method(protocol: &str, method: &str, classes: &[Class]) -> Fault {
    let classes: Vec<String> = classes.iter().map(ToString::to_string).collect();
    Fault::no_such_method(&format!("{protocol}.{method}({})", classes.join(",")))
}
