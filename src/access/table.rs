//! The table of access strings: what was given, to become what, until when and how often.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::authority::AuthorityError;
use crate::certificate::VALID;
use crate::role::Role;
use crate::seconds;
use crate::string::Secret;

/// The version of the file's form.
const VERSION: u32 = 1;
/// Entries of a table.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Entries of daemons of the head that have room behind those.
const OWN_ENTRIES: usize = 1_000;
/// What users of the machine have done that no daemon has noted yet.
const MAX_ACTS: usize = 1_000;

/// The number of an access string; certificates that were issued for it name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GrantId(u32);

impl GrantId {
    /// The certificates of the head's own daemons before they had an entry each; they get one when they are renewed.
    pub const HEAD: GrantId = GrantId(0);

    /// As a number.
    pub fn number(self) -> u32 {
        self.0
    }

    fn random() -> Option<GrantId> {
        let mut bytes = [0; 4];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(GrantId(u32::from_be_bytes(bytes)))
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for GrantId {
    type Err = String;

    fn from_str(text: &str) -> Result<GrantId, String> {
        let is_id = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_id.then(|| u32::from_str_radix(text, 16).ok()).flatten();
        let expected = || "the id of an access string has 8 hexadecimal digits".to_owned();
        number.map(GrantId).ok_or_else(expected)
    }
}

impl From<GrantId> for String {
    fn from(id: GrantId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for GrantId {
    type Error = String;

    fn try_from(text: String) -> Result<GrantId, String> {
        text.parse()
    }
}

/// Access that is to be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewGrant {
    /// What its holders become.
    pub role: Role,
    /// The user, for `submit`: as whom jobs run.
    #[serde(default)]
    pub user: Option<String>,
    /// How long the string can be used; `None` is without end. Certificates live on.
    #[serde(default)]
    pub valid_secs: Option<u64>,
    /// How many members it lets in; `None` is any number.
    #[serde(default)]
    pub uses: Option<u32>,
}

impl fmt::Display for NewGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.role.fmt(f)?;
        self.user.iter().try_for_each(|user| write!(f, " as {user}"))
    }
}

/// An access string without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub id: GrantId,
    /// What its holders become.
    pub role: Role,
    /// The user, for `submit`.
    #[serde(default)]
    pub user: Option<String>,
    /// In seconds since 1970.
    pub created: u64,
    /// In seconds since 1970; `None` is never.
    #[serde(default)]
    pub expires: Option<u64>,
    /// Members that it still lets in; `None` is any number.
    #[serde(default)]
    pub uses_left: Option<u32>,
    /// Whether it was revoked, with all certificates that were issued for it.
    #[serde(default)]
    pub revoked: bool,
    /// Certificates issued for it, renewals included.
    #[serde(default)]
    pub issued: u64,
    /// When the last one was, in seconds since 1970.
    #[serde(default)]
    pub last_issued: Option<u64>,
    /// Who got the last one.
    #[serde(default)]
    pub last_name: Option<String>,
    /// Whether no string leads to it: its certificates are those of a daemon beside the authority.
    #[serde(default)]
    pub own: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    entry: Entry,
    /// The SHA-256 of the secret.
    secret: String,
}

/// All access strings of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    version: u32,
    grants: Vec<Stored>,
    /// What users of the machine have done, until a daemon notes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    acts: Vec<Act>,
}

/// What a user of the machine has done with the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Act {
    /// In seconds since 1970.
    pub(crate) at: u64,
    pub(crate) user: String,
    pub(crate) action: String,
}

/// Why a secret gives no certificate, and a certificate is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("the access string is unknown here: it was replaced, or belongs to another cluster")]
    Unknown,
    #[error("the access string has been revoked")]
    Revoked,
    #[error("the access string has expired")]
    Expired,
    #[error("the access string has been used as often as it may be")]
    Used,
}

impl Table {
    pub(crate) fn empty() -> Table {
        Table { version: VERSION, grants: vec![], acts: vec![] }
    }

    /// Reads the file's content.
    ///
    /// Errors: what is wrong with it.
    pub(crate) fn read(content: &[u8]) -> Result<Table, String> {
        crate::files::versioned(content, VERSION)
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec_pretty(self).map_err(|error| error.to_string())
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.grants.iter().map(|stored| &stored.entry)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.grants.len() >= MAX_ENTRIES
    }

    /// Adds an entry; `None` if there are no random numbers.
    pub(crate) fn add(
        &mut self,
        new: &NewGrant,
        secret: &Secret,
        now: SystemTime,
    ) -> Option<GrantId> {
        let id = loop {
            let id = GrantId::random()?;
            if id != GrantId::HEAD && self.entries().all(|entry| entry.id != id) {
                break id;
            }
        };
        let entry = Entry {
            id,
            role: new.role,
            user: new.user.clone(),
            created: seconds(now),
            expires: new.valid_secs.map(|valid| seconds(now).saturating_add(valid)),
            uses_left: new.uses,
            revoked: false,
            issued: 0,
            last_issued: None,
            last_name: None,
            own: false,
        };
        self.grants.push(Stored { entry, secret: secret.hash() });
        Some(id)
    }

    /// An entry for a daemon beside the authority: the one that its certificate names, if that is still good, or
    /// another one. No secret leads to it. `None` if there are no random numbers.
    ///
    /// Errors: there is no room.
    pub(crate) fn own(
        &mut self,
        former: Option<GrantId>,
        name: &str,
        now: SystemTime,
    ) -> Result<Option<Entry>, AuthorityError> {
        let is_good = |entry: &Entry| entry.own && !entry.revoked && former == Some(entry.id);
        if self.entries().any(is_good) {
            return Ok(former.and_then(|id| self.issue_own(id, name, now)));
        }
        // Strings leave room for the daemons of the head, so that it starts in any case.
        if self.grants.len() >= MAX_ENTRIES + OWN_ENTRIES {
            return Err(AuthorityError::Full);
        }
        let new = NewGrant { role: Role::Admin, user: None, valid_secs: None, uses: Some(0) };
        let Ok(secret) = Secret::random() else { return Ok(None) };
        let id = self.add(&new, &secret, now);
        Ok(id.and_then(|id| self.issue_own(id, name, now)))
    }

    fn issue_own(&mut self, id: GrantId, name: &str, now: SystemTime) -> Option<Entry> {
        let stored = self.find(|stored| stored.entry.id == id)?;
        stored.entry.own = true;
        stored.entry.issue(name, now);
        Some(stored.entry.clone())
    }

    /// Keeps what a user has done, for a daemon that notes it. Of too many the first ones are forgotten.
    pub(crate) fn keep_act(&mut self, act: Act) {
        if self.acts.len() >= MAX_ACTS {
            self.acts.remove(0);
        }
        self.acts.push(act);
    }

    /// Whether nothing is to be noted.
    pub(crate) fn has_no_acts(&self) -> bool {
        self.acts.is_empty()
    }

    /// What is to be noted, once.
    pub(crate) fn take_acts(&mut self) -> Vec<Act> {
        std::mem::take(&mut self.acts)
    }

    /// Whether there was such an entry.
    pub(crate) fn revoke(&mut self, id: GrantId) -> bool {
        self.find(|stored| stored.entry.id == id)
            .map(|stored| stored.entry.revoked = true)
            .is_some()
    }

    /// Gives an entry another secret.
    pub(crate) fn rotate(&mut self, id: GrantId, secret: &Secret) -> Result<&Entry, Denied> {
        let stored = self.find(|stored| stored.entry.id == id).ok_or(Denied::Unknown)?;
        if stored.entry.revoked {
            return Err(Denied::Revoked);
        }
        stored.secret = secret.hash();
        Ok(&stored.entry)
    }

    /// Where the entry of a secret is that gives a certificate.
    pub(crate) fn usable(&self, secret: &Secret, now: SystemTime) -> Result<usize, Denied> {
        // Hashes of secrets of 32 random bytes: comparing them shows nothing about a secret.
        let hash = secret.hash();
        let mut all = self.grants.iter().enumerate();
        let (at, stored) = all.find(|(_, stored)| stored.secret == hash).ok_or(Denied::Unknown)?;
        let entry = &stored.entry;
        if entry.revoked {
            return Err(Denied::Revoked);
        }
        if entry.expires.is_some_and(|expires| expires <= seconds(now)) {
            return Err(Denied::Expired);
        }
        if entry.uses_left == Some(0) {
            return Err(Denied::Used);
        }
        Ok(at)
    }

    /// Uses a secret once.
    pub(crate) fn enrol(
        &mut self,
        secret: &Secret,
        name: &str,
        now: SystemTime,
    ) -> Result<Entry, Denied> {
        let at = self.usable(secret, now)?;
        let entry = &mut self.grants.get_mut(at).ok_or(Denied::Unknown)?.entry;
        entry.uses_left = entry.uses_left.map(|left| left.saturating_sub(1));
        entry.issue(name, now);
        Ok(entry.clone())
    }

    /// Renews a certificate that was issued for this entry.
    pub(crate) fn renew(
        &mut self,
        id: GrantId,
        name: &str,
        now: SystemTime,
    ) -> Result<Entry, Denied> {
        let stored = self.find(|stored| stored.entry.id == id).ok_or(Denied::Unknown)?;
        if stored.entry.revoked {
            return Err(Denied::Revoked);
        }
        stored.entry.issue(name, now);
        Ok(stored.entry.clone())
    }

    /// Forgets entries that give nothing any more, once all certificates issued for them have
    /// expired.
    pub(crate) fn prune(&mut self, now: SystemTime) {
        let now = seconds(now);
        let kept = VALID + Duration::from_secs(24 * 3600);
        self.grants.retain(|Stored { entry, .. }| {
            let is_expired = entry.expires.is_some_and(|expires| expires <= now);
            let is_over = entry.revoked || is_expired || entry.uses_left == Some(0);
            let last = entry.last_issued.unwrap_or(entry.created);
            !is_over || last.saturating_add(kept.as_secs()) > now
        });
    }

    fn find(&mut self, is: impl Fn(&Stored) -> bool) -> Option<&mut Stored> {
        self.grants.iter_mut().find(|stored| is(stored))
    }
}

impl Entry {
    fn issue(&mut self, name: &str, now: SystemTime) {
        self.issued = self.issued.saturating_add(1);
        self.last_issued = Some(seconds(now));
        self.last_name = Some(name.to_owned());
    }
}
