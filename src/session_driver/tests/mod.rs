//! Sessions at a cluster manager that follows a script: well behaved, and not.

mod calls_out;
mod ends;
mod notifications;
mod peer;
mod starts;
