//! What audits are made of.

/// Turns what should be true into an error that says what is not.
pub(super) fn hold(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise()) }
}
