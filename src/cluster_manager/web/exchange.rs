//! Requests and responses as all pages have them, and streams of events.

use super::events::Stream;

pub(super) use corona_web::exchange::*;

/// A response body: all at once, or a stream of events.
pub(super) type Answer = corona_web::exchange::Answer<Stream>;
