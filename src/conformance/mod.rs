//! Conformance: what passed between the programs of a cluster, taken from packet captures, played
//! against a cluster manager, and compared with what that one does.
//!
//! Knows the wire and what each call means to a peer. It knows nothing of the engine or of the
//! live service: they are what is judged here.

pub mod capture;
pub mod conversation;
pub mod launch;
pub mod replay;
pub mod setup;
