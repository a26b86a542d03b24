//! What the tests of the whole share: starting the built binary and playing recorded peers.
