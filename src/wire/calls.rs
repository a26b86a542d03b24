//! The four services of the contract. The build script makes the tables from it, and the names of
//! arguments that are not those of the contract are noted there. Spec: cluster-manager/01 §6.

use super::service::{
    Argument, Exception, Framing, MethodTable, Outcome, Service, Undeclared, service,
};
use crate::decode::Reader;
use crate::encode::{Output, write_field, write_stop};
use crate::generated::*;

include!(concat!(env!("OUT_DIR"), "/services.rs"));
