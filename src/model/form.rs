//! Values that were added to encoded types later, without changing the bytes of the values before.
//!
//! The form of journals names no fields, so a reader has to know which ones there are. A [`Later`] is
//! encoded only if it has a value other than the default; [`writing`] then says that the bytes need
//! a later version of the form. In bytes of earlier versions there is none, which means the default.

use std::cell::Cell;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The first version of the form, without anything that was added.
pub const FIRST: u8 = 1;
/// The version with queues in a tree and counted resources.
pub const SECOND: u8 = 2;
/// The version with reservations of nodes.
pub const THIRD: u8 = 3;
/// The version with the access of nodes.
pub const FOURTH: u8 = 4;
/// The version with preemption where resources are counted.
pub const FIFTH: u8 = 5;
/// The version with limits of queues in resources.
pub const SIXTH: u8 = 6;
/// The newest version.
pub const NEWEST: u8 = SIXTH;

thread_local! {
    /// The version of the bytes that this thread reads or writes at this moment.
    static VERSION: Cell<u8> = const { Cell::new(NEWEST) };
    /// Whether a value was met that the version cannot express.
    static BEYOND: Cell<bool> = const { Cell::new(false) };
}

/// Restores the version at the end, whatever happens in between.
struct During(u8);

impl During {
    fn version(version: u8) -> Self {
        During(VERSION.replace(version))
    }
}

impl Drop for During {
    fn drop(&mut self) {
        VERSION.set(self.0);
    }
}

/// Calls `read`, which reads bytes of this version.
pub fn reading<T>(version: u8, read: impl FnOnce() -> T) -> T {
    let _during = During::version(version);
    read()
}

/// Calls `write`, which writes bytes of this version. Returns whether the version can express all that was written.
pub fn writing<T>(version: u8, write: impl FnOnce() -> T) -> (T, bool) {
    let _during = During::version(version);
    BEYOND.set(false);
    let written = write();
    (written, !BEYOND.replace(false))
}

/// The version of a file of JSON: the first one where it names none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct FileVersion {
    /// Its number.
    pub version: u32,
}

impl Default for FileVersion {
    fn default() -> Self {
        FileVersion { version: 1 }
    }
}

/// A value that versions of the form before `SINCE` do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Later<T, const SINCE: u8 = SECOND>(pub T);

impl<T: Serialize + Default + PartialEq, const SINCE: u8> Serialize for Later<T, SINCE> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() || VERSION.get() >= SINCE {
            return self.0.serialize(serializer);
        }
        if self.0 != T::default() {
            BEYOND.set(true);
        }
        // Takes no bytes.
        serializer.serialize_unit()
    }
}

impl<'de, T: Deserialize<'de> + Default, const SINCE: u8> Deserialize<'de> for Later<T, SINCE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() || VERSION.get() >= SINCE {
            return T::deserialize(deserializer).map(Later);
        }
        Ok(Later::default())
    }
}

impl<T, const SINCE: u8> std::ops::Deref for Later<T, SINCE> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const SINCE: u8> std::ops::DerefMut for Later<T, SINCE> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
