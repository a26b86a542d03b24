//! A service of the contract: an enumeration of calls, one of replies, and the table that joins
//! them to their names and fields on the wire.
//!
//! The tables themselves are in [`calls`](super::calls). Here are the traits that they implement,
//! the macro that turns a table into types, and the errors for peers.

use std::fmt::Debug;

use thiserror::Error;

use super::decode::{Decode, Reader};
use super::encode::{Output, Wire, write_field};
use super::generated::{DisallowedNode, InvalidPoolInfo, InvalidSessionHandle, SafeModeException};
use super::schema::{ServiceSchema, schema};

/// How messages follow one another on a stream. Spec: cluster-manager/01 §1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each message, or group of messages, is preceded by its length.
    Framed,
    /// Nothing is between messages.
    Bare,
}

/// One of the four services of the contract.
///
/// The supertrait is made by a macro and is of no use outside this room.
pub trait Service: MethodTable {
    /// The service's name in the contract.
    const NAME: &'static str;
    /// The kind of stream on which its peers talk.
    const FRAMING: Framing;
    /// The service as the contract describes it.
    #[allow(clippy::expect_used, reason = "a test compares each table with the contract")]
    fn schema() -> &'static ServiceSchema {
        schema().service(Self::NAME).expect("a test compares each table with the contract")
    }

    /// The name of the method that a call calls.
    fn method_name(call: &Self::Call) -> &'static str;
}

/// An error that the contract declares. It reaches the caller if the method that was called
/// declares it; a server that answers with another one closes the connection.
/// Spec: cluster-manager/01 §3, §5.4.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Exception {
    /// The session is unknown, or not allowed to do this.
    #[error("invalid session handle: {}", .0.handle)]
    InvalidSessionHandle(InvalidSessionHandle),
    /// The host is not allowed in the cluster.
    #[error("disallowed node: {}", .0.host)]
    DisallowedNode(DisallowedNode),
    /// The pool cannot be used.
    #[error("invalid pool: {}", .0.pool_info)]
    InvalidPoolInfo(InvalidPoolInfo),
    /// The cluster manager is in safe mode.
    #[error("the cluster manager is in safe mode")]
    SafeMode(SafeModeException),
}

impl Exception {
    /// [`Exception::InvalidSessionHandle`] with a handle or a sentence.
    pub fn invalid_session_handle(handle: impl Into<String>) -> Exception {
        InvalidSessionHandle { handle: handle.into() }.into()
    }

    /// [`Exception::DisallowedNode`] with the host.
    pub fn disallowed_node(host: impl Into<String>) -> Exception {
        DisallowedNode { host: host.into() }.into()
    }

    /// [`Exception::InvalidPoolInfo`] with a sentence.
    pub fn invalid_pool_info(sentence: impl Into<String>) -> Exception {
        InvalidPoolInfo { pool_info: sentence.into() }.into()
    }

    /// [`Exception::SafeMode`].
    pub fn safe_mode() -> Exception {
        SafeModeException {}.into()
    }
}

/// An error outside the contract: the body of an EXCEPTION message, `TApplicationException`.
/// Spec: cluster-manager/01 §3.1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind:?}: {message}")]
pub struct ApplicationFault {
    /// The kind of failure.
    pub kind: FaultKind,
    /// The text; empty when the peer sent none.
    pub message: String,
}

/// The type of an [`ApplicationFault`], a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// 0
    Unknown,
    /// 1: the service has no such method.
    UnknownMethod,
    /// 2
    InvalidMessageType,
    /// 3
    WrongMethodName,
    /// 4
    BadSequenceId,
    /// 5
    MissingResult,
    /// 6
    InternalError,
    /// 7: a required field is missing.
    ProtocolError,
    /// A number that has no name.
    Other(i32),
}

impl FaultKind {
    const NAMED: [FaultKind; 8] = [
        Self::Unknown,
        Self::UnknownMethod,
        Self::InvalidMessageType,
        Self::WrongMethodName,
        Self::BadSequenceId,
        Self::MissingResult,
        Self::InternalError,
        Self::ProtocolError,
    ];

    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Other(number) => number,
            named => {
                (0..).zip(Self::NAMED).find(|(_, kind)| *kind == named).map_or(0, |(at, _)| at)
            }
        }
    }

    /// The kind with this number.
    pub fn from_number(number: i32) -> FaultKind {
        let named = usize::try_from(number).ok().and_then(|index| Self::NAMED.get(index));
        named.copied().unwrap_or(Self::Other(number))
    }
}

/// The content of a result.
#[derive(Debug)]
pub enum Outcome<R> {
    /// The value, or the fact that a void method is done.
    Reply(R),
    /// A declared exception.
    Exception(Exception),
    /// Neither, though the method is not void.
    Nothing,
}

/// The answer does not belong to the method: a reply of another one, or an exception that it does
/// not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the method cannot be answered with this")]
pub struct Undeclared;

/// The table behind a [`Service`], as the macro writes it. Methods go by their place in it.
pub trait MethodTable: Sized + Send + Sync + 'static {
    /// The calls: one variant for each method. An argument that a peer left out is `None`, which is
    /// `null` to the original; a truth value that was left out is `false`. A number that its
    /// enumeration does not have is absent, except in lists and as the key of a map, where it is
    /// kept.
    type Call: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// The replies: one variant for each method, with its value unless it is void.
    type Reply: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// Names of the methods on the wire.
    const METHODS: &'static [&'static str];
    /// The place of the method with this name.
    fn place(name: &str) -> Option<usize>;
    /// The place of the method that a call calls.
    fn place_of_call(call: &Self::Call) -> usize;
    /// Reads a struct of arguments.
    fn read_args(place: usize, reader: &mut Reader<'_>) -> Option<Self::Call>;
    /// Writes a struct of arguments.
    fn write_args(call: &Self::Call, output: &mut Output<'_>) -> thrift::Result<()>;
    /// Reads a struct of a result.
    fn read_result(place: usize, reader: &mut Reader<'_>) -> Option<Outcome<Self::Reply>>;
    /// Writes a struct of a result for the method at a place.
    fn write_result(
        place: usize,
        result: Result<&Self::Reply, &Exception>,
        output: &mut Output<'_>,
    ) -> thrift::Result<Result<(), Undeclared>>;
}

/// An argument of a method. Only those of a primitive type are always there.
pub(crate) trait Argument: Sized {
    /// The value of its field.
    type Value: Decode;
    /// From its field, where there is one.
    fn from_field(value: Option<Self::Value>) -> Self;
    /// Writes it with its field, unless it is absent.
    fn write_argument(&self, id: i16, output: &mut Output<'_>) -> thrift::Result<()>;
}

impl<T: Wire> Argument for Option<T> {
    type Value = T;

    fn from_field(value: Option<T>) -> Self {
        value
    }

    fn write_argument(&self, id: i16, output: &mut Output<'_>) -> thrift::Result<()> {
        self.as_ref().map_or(Ok(()), |value| write_field(id, value, output))
    }
}

impl Argument for bool {
    type Value = bool;

    fn from_field(value: Option<bool>) -> Self {
        value.unwrap_or_default()
    }

    fn write_argument(&self, id: i16, output: &mut Output<'_>) -> thrift::Result<()> {
        write_field(id, self, output)
    }
}

macro_rules! exceptions {
    ($($variant:ident($name:ident)),* $(,)?) => { $(
        impl From<$name> for Exception {
            fn from(exception: $name) -> Exception {
                Exception::$variant(exception)
            }
        }

        impl<'a> TryFrom<&'a Exception> for &'a $name {
            type Error = Undeclared;

            fn try_from(exception: &'a Exception) -> Result<&'a $name, Undeclared> {
                match exception {
                    Exception::$variant(exception) => Ok(exception),
                    _ => Err(Undeclared),
                }
            }
        }
    )* };
}

exceptions! {
    InvalidSessionHandle(InvalidSessionHandle), DisallowedNode(DisallowedNode),
    InvalidPoolInfo(InvalidPoolInfo), SafeMode(SafeModeException),
}

/// Turns the table of a service into its types. A row reads
///
/// ```text
/// snake_case "nameOnTheWire" Variant { 1 argument: Type, ... } -> (value: Type)
///     throws [1 Exception, ...];
/// ```
///
/// where arguments and value may be left out.
macro_rules! service {
    (
        $(#[$doc:meta])*
        $service:ident, $call:ident, $reply:ident = $name:literal, $framing:ident;
        $(
            $method:ident $wire:literal $variant:ident
            $( { $( $id:literal $arg:ident : $type:ty ),+ } )?
            $( -> ($value:ident : $returns:ty) )?
            $( throws [ $( $exception_id:literal $exception:ident ),+ ] )?;
        )+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $service {}

        #[doc = concat!("A call of [`", stringify!($service), "`].")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $call {
            $(
                #[doc = concat!("`", $wire, "`")]
                $variant $( { $( $arg: $type ),+ } )?,
            )+
        }

        #[doc = concat!("The answer to a call of [`", stringify!($service), "`] that went well.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $reply {
            $(
                #[doc = concat!("`", $wire, "`")]
                $variant $( ($returns) )?,
            )+
        }

        impl Service for $service {
            const NAME: &'static str = $name;
            const FRAMING: Framing = Framing::$framing;

            fn method_name(call: &$call) -> &'static str {
                match call {
                    $( $call::$variant { .. } => $wire, )+
                }
            }
        }

        const _: () = {
            /// Places of the methods.
            #[derive(Clone, Copy)]
            enum MethodIndex { $( $variant, )+ }

            const PLACES: &[MethodIndex] = &[ $( MethodIndex::$variant, )+ ];

            fn known(place: usize) -> thrift::Result<MethodIndex> {
                let unknown = || thrift::Error::from("no such method");
                PLACES.get(place).copied().ok_or_else(unknown)
            }

            impl MethodTable for $service {
                type Call = $call;
                type Reply = $reply;
                const METHODS: &'static [&'static str] = &[ $( $wire, )+ ];

                fn place(name: &str) -> Option<usize> {
                    match name {
                        $( $wire => Some(MethodIndex::$variant as usize), )+
                        _ => None,
                    }
                }

                fn place_of_call(call: &$call) -> usize {
                    match call {
                        $( $call::$variant { .. } => MethodIndex::$variant as usize, )+
                    }
                }

                fn read_args(place: usize, reader: &mut Reader<'_>) -> Option<$call> {
                    match *PLACES.get(place)? {
                        $( MethodIndex::$variant => {
                            $( $( let mut $arg = None; )+ )?
                            while let Some((id, code)) = reader.field()? {
                                match id {
                                    $( $( $id => reader.field_value(code, &mut $arg)?, )+ )?
                                    _ => reader.skip(code)?,
                                }
                            }
                            Some($call::$variant $( {
                                $( $arg: <$type as Argument>::from_field($arg) ),+
                            } )?)
                        } )+
                    }
                }

                fn write_args(call: &$call, output: &mut Output<'_>) -> thrift::Result<()> {
                    match call {
                        $( $call::$variant $( { $( $arg ),+ } )? => {
                            $( $( $arg.write_argument($id, output)?; )+ )?
                        } )+
                    }
                    write_stop(output);
                    Ok(())
                }

                fn read_result(place: usize, reader: &mut Reader<'_>) -> Option<Outcome<$reply>> {
                    match *PLACES.get(place)? {
                        $( MethodIndex::$variant => {
                            $( let mut $value: Option<$returns> = None; )?
                            #[allow(unused_mut)]
                            let mut exception: Option<Exception> = None;
                            while let Some((id, code)) = reader.field()? {
                                match id {
                                    $( 0 => reader.field_value(code, &mut $value)?, )?
                                    $( $( $exception_id => {
                                        let mut thrown: Option<$exception> = None;
                                        reader.field_value(code, &mut thrown)?;
                                        exception = thrown.map(Into::into).or(exception);
                                    } )+ )?
                                    _ => reader.skip(code)?,
                                }
                            }
                            $(
                                if let Some($value) = $value {
                                    return Some(Outcome::Reply($reply::$variant($value)));
                                }
                            )?
                            if let Some(exception) = exception {
                                return Some(Outcome::Exception(exception));
                            }
                            Some(service!(@nothing $reply::$variant $( $returns )?))
                        } )+
                    }
                }

                fn write_result(
                    place: usize,
                    result: Result<&$reply, &Exception>,
                    output: &mut Output<'_>,
                ) -> thrift::Result<Result<(), Undeclared>> {
                    match (known(place)?, result) {
                        $(
                            (MethodIndex::$variant, Ok(service!(@pattern $reply::$variant $($value)?))) => {
                                $( write_field(0, $value, output)?; )?
                            }
                            $( $(
                                (MethodIndex::$variant, Err(exception))
                                    if <&$exception>::try_from(exception).is_ok() =>
                                {
                                    let Ok(exception) = <&$exception>::try_from(exception) else {
                                        return Ok(Err(Undeclared));
                                    };
                                    write_field($exception_id, exception, output)?;
                                }
                            )+ )?
                        )+
                        _ => return Ok(Err(Undeclared)),
                    }
                    write_stop(output);
                    Ok(Ok(()))
                }
            }
        };

        impl crate::client::Client<$service> {
            $(
                #[doc = concat!("Calls `", $wire, "` and waits for its answer.")]
                pub async fn $method(
                    &mut self,
                    $( $( $arg: impl Into<$type>, )+ )?
                ) -> Result<service!(@type $( $returns )?), crate::client::CallError> {
                    let call = $call::$variant $( { $( $arg: $arg.into() ),+ } )?;
                    match self.call(&call).await? {
                        service!(@pattern $reply::$variant $($value)?) =>
                            Ok(service!(@value $($value)?)),
                        #[allow(unreachable_patterns)]
                        _ => Err(crate::client::CallError::MissingResult),
                    }
                }
            )+
        }
    };
    (@type) => { () };
    (@type $returns:ty) => { $returns };
    (@value) => { () };
    (@value $value:ident) => { $value };
    (@pattern $reply:ident::$variant:ident) => { $reply::$variant };
    (@pattern $reply:ident::$variant:ident $value:ident) => { $reply::$variant($value) };
    (@nothing $reply:ident::$variant:ident) => { Outcome::Reply($reply::$variant) };
    (@nothing $reply:ident::$variant:ident $returns:ty) => { Outcome::Nothing };
}
pub(crate) use service;
