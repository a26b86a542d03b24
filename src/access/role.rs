//! What a holder of a certificate is to the cluster.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a holder of a certificate is to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything. The daemons of the head have it as well.
    Admin,
    /// A machine that runs tasks.
    Node,
    /// Runs jobs as one user.
    Submit,
    /// Sees pages and lists.
    Read,
}

/// A word that is no role.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown role {0:?}; roles are admin, node, submit and read")]
pub struct UnknownRole(pub String);

impl Role {
    /// All roles, in a fixed order.
    pub const ALL: [Role; 4] = [Role::Admin, Role::Node, Role::Submit, Role::Read];

    /// Its word in strings, certificates and files.
    pub fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Node => "node",
            Role::Submit => "submit",
            Role::Read => "read",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Role, UnknownRole> {
        let role = Role::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| UnknownRole(text.chars().take(32).collect()))
    }
}
