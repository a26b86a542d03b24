//! Checks that audits and the restoration of images are made of.

/// Returns the error of `otherwise` unless the condition holds.
pub(super) fn hold(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

/// An image that is not one of an engine: damaged, or made by hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the image of the engine contradicts itself: {what}")]
pub struct ImageError {
    what: String,
}

impl ImageError {
    pub(super) fn new(what: impl Into<String>) -> ImageError {
        ImageError { what: what.into() }
    }
}

/// `Ok` if `condition` holds.
pub(super) fn check(condition: bool, what: &str) -> Result<(), ImageError> {
    if condition { Ok(()) } else { Err(ImageError::new(what)) }
}
