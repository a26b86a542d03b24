//! Sessions of browsers and tokens of scripts: a member asks for one over TLS with its certificate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::certificate::Identified;
use crate::string::{Secret, sha256};

/// How long the code of a one-time link can be used.
pub(crate) const CODE_VALID: Duration = Duration::from_secs(120);
/// How long a session or a token lasts.
pub(crate) const TOKEN_VALID: Duration = Duration::from_secs(12 * 3600);
/// Codes, and sessions with tokens, at a time; the oldest one gives way.
const MAX_EACH: usize = 1024;

/// The codes and tokens that one daemon has given out. They end with it.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    codes: Kept,
    tokens: Kept,
}

/// By the hash of the secret.
#[derive(Debug, Default)]
struct Kept(HashMap<[u8; 32], (Arc<Identified>, Instant)>);

impl Kept {
    fn add(
        &mut self,
        identified: Arc<Identified>,
        valid: Duration,
        now: Instant,
    ) -> Option<String> {
        let secret = Secret::random().ok()?.expose();
        self.0.retain(|_, (_, until)| *until > now);
        if self.0.len() >= MAX_EACH {
            let oldest = self.0.iter().min_by_key(|(_, (_, until))| *until);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.0.remove(&hash));
        }
        self.0.insert(sha256(secret.as_bytes()), (identified, now + valid));
        Some(secret)
    }

    fn get(&self, secret: &str, now: Instant) -> Option<Arc<Identified>> {
        let (identified, until) = self.0.get(&sha256(secret.as_bytes()))?;
        (*until > now).then(|| identified.clone())
    }

    fn take(&mut self, secret: &str, now: Instant) -> Option<Arc<Identified>> {
        let (identified, until) = self.0.remove(&sha256(secret.as_bytes()))?;
        (until > now).then_some(identified)
    }
}

impl Sessions {
    /// A code for a one-time link.
    pub(crate) fn code(&self, identified: Arc<Identified>, now: Instant) -> Option<String> {
        self.lock().codes.add(identified, CODE_VALID, now)
    }

    /// A token for a script.
    pub(crate) fn token(&self, identified: Arc<Identified>, now: Instant) -> Option<String> {
        self.lock().tokens.add(identified, TOKEN_VALID, now)
    }

    /// The token of a session for a code, which can be used once.
    pub(crate) fn redeem(&self, code: &str, now: Instant) -> Option<String> {
        let mut given = self.lock();
        let identified = given.codes.take(code, now)?;
        given.tokens.add(identified, TOKEN_VALID, now)
    }

    /// Who has this token.
    pub(crate) fn holder(&self, token: &str, now: Instant) -> Option<Arc<Identified>> {
        self.lock().tokens.get(token, now)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        // Each change is one call, so it can be used after a panic too.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;
    use crate::table::GrantId;

    fn alice() -> Arc<Identified> {
        let (role, name) = (Role::Submit, "alice".to_owned());
        Arc::new(Identified { role, name, grant: GrantId::HEAD })
    }

    #[test]
    fn a_code_gives_one_session_and_both_end() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let code = sessions.code(alice(), now).unwrap();
        assert_eq!(sessions.holder(&code, now), None, "a code is no token");
        let token = sessions.redeem(&code, now + CODE_VALID / 2).unwrap();
        assert_eq!(sessions.redeem(&code, now), None, "it was used");
        assert_eq!(sessions.holder(&token, now).unwrap().name, "alice");
        assert_eq!(sessions.holder(&token, now + 2 * TOKEN_VALID), None);
        let late = sessions.code(alice(), now).unwrap();
        assert_eq!(sessions.redeem(&late, now + CODE_VALID), None);
    }

    #[test]
    fn the_oldest_of_too_many_gives_way() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let token = |age: usize| sessions.token(alice(), now + Duration::from_millis(age as u64));
        let tokens: Vec<_> = (0..MAX_EACH + 1).map(|age| token(age).unwrap()).collect();
        assert_eq!(sessions.holder(&tokens[0], now), None);
        assert!(tokens[1..].iter().all(|token| sessions.holder(token, now).is_some()));
        assert_eq!(sessions.lock().tokens.0.len(), MAX_EACH);
    }
}
