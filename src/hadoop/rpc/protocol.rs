//! Protocols as lists of methods, and the fingerprints by which two ends compare them.
//! Spec: mapreduce/01 §1.6.

use crate::object::Class;

/// A Java interface whose methods can be called.
#[derive(Debug)]
pub struct Protocol {
    /// The interface's name.
    pub name: &'static str,
    /// The version that both ends should have.
    pub version: i64,
    /// Its methods, without those of [`HANDSHAKE`].
    pub methods: &'static [Method],
    /// The fingerprint of the original's whole interface, where `methods` are only a part of it.
    pub whole_fingerprint: Option<i32>,
}

/// A method of a protocol.
#[derive(Debug)]
pub struct Method {
    /// Its name. Methods of one protocol may share a name and differ in their parameters.
    pub name: &'static str,
    /// The classes of its parameters.
    pub parameters: &'static [&'static str],
    /// The class of its result.
    pub returns: &'static str,
}

/// The methods that every protocol has.
pub const HANDSHAKE: &[Method] = &[SIGNATURE, VERSION];

/// The first call of a client.
pub(super) const SIGNATURE: Method = Method {
    name: "getProtocolSignature",
    parameters: &["java.lang.String", "long", "int"],
    returns: "org.apache.hadoop.ipc.ProtocolSignature",
};

/// The call if that does not exist.
pub(super) const VERSION: Method = Method {
    name: "getProtocolVersion",
    parameters: &["java.lang.String", "long"],
    returns: "long",
};

impl Method {
    /// The number of the method in a list of hashes.
    pub fn hash(&self) -> i32 {
        let start =
            string_hash(self.name).wrapping_add(31_i32.wrapping_mul(string_hash(self.returns)));
        let classes = self.parameters.iter();
        classes.fold(start, |hash, class| hash.wrapping_mul(31) ^ string_hash(class))
    }

    /// Whether it is called like this, with parameters that are declared as these classes.
    pub(super) fn is(&self, name: &str, classes: &[Class]) -> bool {
        self.name == name
            && self.parameters.len() == classes.len()
            && self.parameters.iter().zip(classes).all(|(own, class)| class.is_named(own))
    }
}

impl Protocol {
    /// The number of all methods, those of the handshake included.
    pub fn fingerprint(&self) -> i32 {
        if let Some(fingerprint) = self.whole_fingerprint {
            return fingerprint;
        }
        let mut hashes: Vec<i32> = HANDSHAKE.iter().chain(self.methods).map(Method::hash).collect();
        hashes.sort_unstable();
        hashes.into_iter().fold(1, |hash, method| 31_i32.wrapping_mul(hash).wrapping_add(method))
    }
}

/// Java's hash of a string.
fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_original() {
        assert_eq!(string_hash(""), 0);
        assert_eq!(string_hash("hello"), 99_162_322);
        assert_eq!(SIGNATURE.hash(), -1_603_691_201);
        assert_eq!(VERSION.hash(), -156_921_003);
    }
}
