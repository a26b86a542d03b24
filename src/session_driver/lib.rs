//! The client's side of a session: what a job tracker, or any framework that is not MapReduce, uses
//! to get slots from a cluster manager, Java or ours.
//!
//! ```no_run
//! use corona_model::types::{ResourceType, SessionStatus};
//! use corona_session_driver::{Event, Options, SessionDriver, SlotRequest};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new("cm.example.com:50031".parse()?, "me");
//! let (driver, mut events) = SessionDriver::start(options).await?;
//! let slot = SlotRequest::new(ResourceType::Map).near(["host1.example.com"]);
//! driver.request(vec![slot; 10])?;
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::Granted(grants) => {
//!             // Run something on each of them, then give it back.
//!             driver.release(grants.iter().map(|grant| grant.id))?;
//!             break;
//!         }
//!         Event::Revoked(lost) | Event::DeadNode { lost, .. } => {
//!             driver.replace(&lost)?;
//!         }
//!         Event::Ended(ending) => return Err(ending.to_string().into()),
//!     }
//! }
//! driver.end(SessionStatus::Successful).await;
//! # Ok(())
//! # }
//! ```
//!
//! [`SessionDriver`] takes the owner's requests, [`SessionEvents`] report events, [`books`] track
//! every slot from the request to the release, on [`slots`]. A session is one task; a
//! [`DriverHost`] receives the notifications of many.
//!
//! It uses the wire and the engine's plain types. It knows nothing of the engine's inside and
//! nothing of our cluster manager: the other end may be the original.
//! Spec: cluster-manager/05 §6, 01 §7, 07 §6.

pub mod books;
mod contact;
mod conversation;
mod driver;
mod events;
mod host;
mod link;
mod options;
mod outgoing;
pub mod slots;
#[cfg(test)]
mod tests;
mod translate;

pub use books::{Lost, SlotBooks, SlotRequest};
pub use contact::{Contact, Silence};
pub use driver::{DriverError, Resumed, SessionDriver, StartError, Traffic};
pub use events::{Ending, Event, SessionEvents};
pub use host::{DriverHost, address_towards};
pub use link::{CallFailure, system_dir};
pub use options::{Bounds, Endpoint, EndpointError, Listen, Options, Timers};
pub use outgoing::{InfoUpdate, NodeUsage};
