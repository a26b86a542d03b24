#![doc = include_str!("README.md")]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod books;
mod contact;
mod conversation;
mod driver;
mod events;
mod host;
mod link;
mod options;
mod outgoing;
pub mod slots;
mod snapshot;
#[cfg(test)]
mod tests;
mod translate;
mod types;

pub use books::{IdsExhausted, Lost, Slot, Standing, Standings, Totals};
pub use contact::{Contact, Silence};
pub use driver::{DriverError, SessionDriver, StartError, Traffic};
pub use events::{Ending, Event, SessionEvents};
pub use host::{DriverHost, address_towards};
pub use link::{CallFailure, system_dir};
pub use options::{
    Bounds, CallerLimits, Endpoint, EndpointError, Listen, Options, ProgramVersion, Timers,
};
pub use outgoing::InfoUpdate;
pub use snapshot::{SavedSession, Snapshot};
pub use types::{
    Address, ComputeSpecs, Grant, NodeUsage, PoolName, PoolNameError, Request, ResourceType,
    SessionPriority, SessionStatus, SlotRequest,
};
