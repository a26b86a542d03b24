//! Sessions of browsers and tokens of scripts: a member asks for one over TLS with its certificate.
//!
//! Both are tokens, signed with the key of the daemon that gives them, so daemons with the same certificate, such
//! as those of a head, accept each other's, and they outlive a restart. They end with the access of their member.
//! Neither is accepted as the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{KeyPair, SigningKey};

use crate::certificate::{Identified, PublicKey};
use crate::seconds;
use crate::string::{Secret, hex, sha256, unhex_all};

/// How long the code of a one-time link can be used.
pub(crate) const CODE_VALID: Duration = Duration::from_secs(120);
/// How long a session or a token lasts.
pub(crate) const TOKEN_VALID: Duration = Duration::from_secs(12 * 3600);
/// Codes at a time; the oldest one gives way.
const MAX_CODES: usize = 1024;
/// Characters of a token at most.
const MAX_TOKEN: usize = 1024;
/// What holds a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A script, in `Authorization`.
    Script,
    /// A browser, in a cookie.
    Browser,
}

impl Kind {
    /// Prefix of the signed text, so that no other signature made with the key is a valid token of this kind.
    fn signed(self) -> &'static str {
        match self {
            Kind::Script => "corona token 1 ",
            Kind::Browser => "corona session 1 ",
        }
    }
}

/// The codes of one-time links that one daemon has given out. They end with it.
#[derive(Debug, Default)]
pub(crate) struct Codes(Mutex<Given>);

/// By the hash of the code: whose it is and until when.
type Given = HashMap<[u8; 32], (Arc<Identified>, Instant)>;

impl Codes {
    /// A code for a one-time link; `None` if the system has no random numbers.
    pub(crate) fn give(&self, identified: Arc<Identified>, now: Instant) -> Option<String> {
        let code = Secret::random().ok()?.expose();
        let mut given = self.lock();
        given.retain(|_, (_, until)| *until > now);
        if given.len() >= MAX_CODES {
            let oldest = given.iter().min_by_key(|(_, (_, until))| *until);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| given.remove(&hash));
        }
        given.insert(sha256(code.as_bytes()), (identified, now + CODE_VALID));
        Some(code)
    }

    /// Who got this code. It can be used once.
    pub(crate) fn redeem(&self, code: &str, now: Instant) -> Option<Arc<Identified>> {
        let (identified, until) = self.lock().remove(&sha256(code.as_bytes()))?;
        (until > now).then_some(identified)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        // Each change is one call, so it can be used after a panic too.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token for this member; `None` if it cannot be signed.
pub(crate) fn token(
    kind: Kind,
    key: &KeyPair,
    member: &Identified,
    now: SystemTime,
) -> Option<String> {
    let until = seconds(now) + TOKEN_VALID.as_secs();
    let text = format!("{until}/{}", member.path());
    let signature = key.sign(format!("{}{text}", kind.signed()).as_bytes()).ok()?;
    Some(format!("{text}/{}", hex(&signature)))
}

/// The member whom a token of the daemon with this key names, and when the token ends.
pub(crate) fn holder(
    kind: Kind,
    key: &PublicKey,
    token: &str,
    now: SystemTime,
) -> Option<(Identified, SystemTime)> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let (text, signature) = token.rsplit_once('/')?;
    let (until, path) = text.split_once('/')?;
    // First, since it costs less than the signature.
    let until: u64 = until.parse().ok()?;
    let is_valid = seconds(now) < until;
    let signed = format!("{}{text}", kind.signed());
    (is_valid && key.has_signed(signed.as_bytes(), &unhex_all(signature)?)).then_some(())?;
    Some((Identified::from_path(path)?, UNIX_EPOCH.checked_add(Duration::from_secs(until))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate;
    use crate::role::Role;
    use crate::table::GrantId;

    fn alice() -> Identified {
        Identified { role: Role::Submit, name: "alice".to_owned(), grant: GrantId::HEAD }
    }

    #[test]
    fn a_code_is_used_once_and_in_time() {
        let (codes, now) = (Codes::default(), Instant::now());
        let code = codes.give(Arc::new(alice()), now).unwrap();
        assert_eq!(codes.redeem(&code, now + CODE_VALID / 2).unwrap().name, "alice");
        assert_eq!(codes.redeem(&code, now), None, "it was used");
        let late = codes.give(Arc::new(alice()), now).unwrap();
        assert_eq!(codes.redeem(&late, now + CODE_VALID), None);
    }

    #[test]
    fn the_oldest_of_too_many_codes_gives_way() {
        let (codes, now) = (Codes::default(), Instant::now());
        let give = |age| codes.give(Arc::new(alice()), now + Duration::from_millis(age)).unwrap();
        let given: Vec<_> = (0..=MAX_CODES as u64).map(give).collect();
        assert_eq!(codes.lock().len(), MAX_CODES);
        assert_eq!(codes.redeem(&given[0], now), None);
        assert!(given[1..].iter().all(|code| codes.redeem(code, now).is_some()));
    }

    #[test]
    fn a_token_names_its_member_until_it_ends_and_cannot_be_changed() {
        let keys = [certificate::new_key().unwrap(), certificate::new_key().unwrap()];
        let public = keys
            .each_ref()
            .map(|key| PublicKey::of(&certificate::self_signed(key).unwrap().into()).unwrap());
        let now = SystemTime::now();
        let ends = UNIX_EPOCH + Duration::from_secs(seconds(now + TOKEN_VALID));
        let holder = |key, token: &str, now| holder(Kind::Script, key, token, now);
        let session = token(Kind::Browser, &keys[0], &alice(), now).unwrap();
        let token = token(Kind::Script, &keys[0], &alice(), now).unwrap();
        assert_eq!(holder(&public[0], &token, now + TOKEN_VALID / 2), Some((alice(), ends)));
        assert_eq!(holder(&public[0], &token, now + TOKEN_VALID), None, "it has ended");
        assert_eq!(holder(&public[1], &token, now), None, "another daemon's");
        assert_eq!(holder(&public[0], &session, now), None, "a browser's");
        assert_eq!(super::holder(Kind::Browser, &public[0], &token, now), None, "a script's");
        for (from, to) in [("submit", "admin"), ("alice", "root"), ("/", "//"), ("1", "9")] {
            let changed = token.replacen(from, to, 1);
            assert_eq!(holder(&public[0], &changed, now), None, "{changed}");
        }
        for wrong in ["", "/", "a/b/c/d/e", "99999999999/admin/x/00000000/00", &"/".repeat(9999)] {
            assert_eq!(holder(&public[0], wrong, now), None, "{wrong}");
        }
    }
}
