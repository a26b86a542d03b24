//! What each role may do.

use std::fmt;

use crate::role::Role;

/// The roles that may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Everybody, with access or without.
    pub const EVERYBODY: Rights = Rights(0xff);
    /// Administrators only.
    pub const ADMIN: Rights = Rights(1 << Role::Admin as u8);
    /// Nodes, and administrators.
    pub const NODE: Rights = Rights::ADMIN.and(Role::Node);
    /// Those who submit jobs, and administrators.
    pub const SUBMIT: Rights = Rights::ADMIN.and(Role::Submit);
    /// Those who submit jobs, nodes (where job trackers and tasks run), and administrators.
    pub const JOBS: Rights = Rights::SUBMIT.and(Role::Node);
    /// All roles.
    pub const MEMBERS: Rights = Rights::JOBS.and(Role::Read);

    const fn and(self, role: Role) -> Rights {
        Rights(self.0 | 1 << role as u8)
    }

    /// Whether this role may.
    pub fn allow(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether peers without access may.
    pub fn is_everybody(self) -> bool {
        self == Rights::EVERYBODY
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_everybody() {
            return f.write_str("everybody");
        }
        let roles = Role::ALL.into_iter().filter(|role| self.allow(*role)).map(Role::name);
        f.write_str(&roles.collect::<Vec<_>>().join(", "))
    }
}
