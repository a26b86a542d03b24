//! A configuration as it is written to a stream; files are another matter.
//! Spec: mapreduce/02 §2.12.

use super::writable;
use crate::io::formats::{List, Plain, Text, VInt};

writable! {
    /// Names and values, in no defined order.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Configuration: "org.apache.hadoop.conf.Configuration" {
        /// Later ones replace earlier ones of the same name.
        pub properties: Vec<Property> as List<VInt, Plain>,
    }
}

writable! {
    /// A name and its value.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Property {
        /// The key.
        pub name: String as Text,
        /// The value, with references unexpanded.
        pub value: String as Text,
    }
}
