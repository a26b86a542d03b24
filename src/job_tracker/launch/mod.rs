//! Task trackers, as jobs see them.
//!
//! * `cluster`: which report; `hosts`: which the cluster manager lists; `reach`: which have died without a word;
//! * `launcher`: a connection and a queue of orders for each; `builds`: what they compare before they take orders.

pub(crate) mod builds;
pub(crate) mod cluster;
pub(crate) mod hosts;
pub(crate) mod launcher;
pub(crate) mod reach;
