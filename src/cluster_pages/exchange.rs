//! Requests and responses as all pages have them, and streams of events.

use corona_web::events::Stream;

pub(crate) use corona_web::exchange::*;

/// A response body: all at once, or a stream of events.
pub(crate) type Answer = corona_web::exchange::Answer<Stream>;
