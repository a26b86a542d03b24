//! Conformance: what passed between the programs of a cluster, taken from packet captures, played
//! against a cluster manager, and compared with what that one does.
//!
//! Knows the wire and what each call means to a peer. It knows nothing of the engine or of the
//! live service: they are what is judged here.

//!
//! The path of a recording: [`capture`] turns packets into connections, [`conversation`] cuts those
//! into messages, [`setup`] tells with which configuration they were recorded, [`launch`] starts a
//! manager with it, and [`replay`] plays the clients against that manager and judges it.

pub mod capture;
pub mod conversation;
pub mod launch;
pub mod replay;
pub mod setup;
