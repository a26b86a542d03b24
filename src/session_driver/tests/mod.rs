//! A peer that follows a script.
