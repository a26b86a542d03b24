//! A macro that makes of a list of methods a trait, its server's side and its client's side.

/// Declares a protocol: its name, version and methods with their names on the wire. Generates
/// `PROTOCOL`, the trait of servers, `Served` to offer it, and a client.
macro_rules! protocol {
    (
        $(#[$doc:meta])*
        pub trait $trait:ident as $name:literal, version $version:literal,
            $(fingerprint $fingerprint:literal,)? client $client:ident
        {
            $(
                $(#[$method_doc:meta])*
                $wire:literal fn $method:ident($($parameter:ident: $type:ty),*) -> $result:ty;
            )*
        }
    ) => {
        /// The protocol's name, version and methods.
        pub static PROTOCOL: $crate::rpc::Protocol = $crate::rpc::Protocol {
            name: $name,
            version: $version,
            whole_fingerprint: $crate::protocols::macros::optional!($($fingerprint)?),
            methods: &[$($crate::rpc::Method {
                name: $wire,
                parameters: &[$(<$type as $crate::rpc::Argument>::CLASS),*],
                returns: <$result as $crate::rpc::Argument>::CLASS,
            },)*],
        };

        $(#[$doc])*
        pub trait $trait: Send + Sync + 'static {
            $(
                $(#[$method_doc])*
                #[allow(clippy::too_many_arguments, reason = "the original's methods have them")]
                fn $method(
                    &self,
                    caller: &$crate::rpc::Caller,
                    $($parameter: $type,)*
                ) -> impl Future<Output = Result<$result, $crate::rpc::Fault>> + Send;
            )*
        }

        /// Offers the protocol to clients of a [`Server`](crate::rpc::Server).
        #[derive(Debug)]
        pub struct Served<H>(std::sync::Arc<H>);

        impl<H: $trait> Served<H> {
            /// Calls go to this one.
            pub fn new(by: std::sync::Arc<H>) -> Served<H> {
                Served(by)
            }
        }

        impl<H: $trait> $crate::rpc::Service for Served<H> {
            fn protocol(&self) -> &'static $crate::rpc::Protocol {
                &PROTOCOL
            }

            fn call(
                self: std::sync::Arc<Self>,
                caller: std::sync::Arc<$crate::rpc::Caller>,
                method: &'static $crate::rpc::Method,
                parameters: Vec<$crate::object::Object>,
            ) -> $crate::rpc::Answer {
                #[allow(unused_mut, reason = "some methods have no parameters")]
                let mut parameters = $crate::rpc::Parameters::new(parameters);
                match method.name {
                    $($wire => Box::pin(async move {
                        $(let $parameter: $type = parameters.take()?;)*
                        let result: $result = self.0.$method(&caller, $($parameter),*).await?;
                        Ok($crate::rpc::Argument::into_object(result))
                    }),)*
                    other => {
                        let fault = $crate::rpc::Fault::io(other);
                        Box::pin(std::future::ready(Err(fault)))
                    }
                }
            }
        }

        /// Calls the protocol's methods at one address. See [`Client`](crate::rpc::Client)
        /// for when it connects, and for the errors of all its calls.
        #[derive(Debug)]
        pub struct $client($crate::rpc::Client);

        impl $client {
            /// A client that has not connected yet.
            pub fn new(
                address: $crate::writables::InetAddress,
                options: $crate::rpc::ClientOptions,
            ) -> $client {
                $client($crate::rpc::Client::new(address, &PROTOCOL, options))
            }

            /// The client, for operations that concern no method.
            pub fn client(&mut self) -> &mut $crate::rpc::Client {
                &mut self.0
            }

            /// Connects and compares versions, if that has not been done.
            pub async fn greet(&mut self) -> Result<(), $crate::rpc::CallError> {
                self.0.greet().await
            }

            $(
                $(#[$method_doc])*
                #[allow(clippy::too_many_arguments, reason = "the original's methods have them")]
                pub async fn $method(
                    &mut self,
                    $($parameter: $type,)*
                ) -> Result<$result, $crate::rpc::CallError> {
                    let parameters =
                        vec![$($crate::rpc::Argument::into_object($parameter)),*];
                    self.0.call($wire, parameters).await
                }
            )*
        }
    };
}

/// Something that may not be there, as an `Option`.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(super) use optional;
pub(super) use protocol;
