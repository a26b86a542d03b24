//! The line that is all that a new member of a cluster is given:
//! `corona1:<role>:<host:port>:<hash of the CA>:<secret>`.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

use crate::role::{Role, UnknownRole};

/// Starts every access string; the number is the version of its form.
const PREFIX: &str = "corona1";
/// More characters than any access string has.
const MAX_CHARACTERS: usize = 1024;
/// More characters than a host's name has.
const MAX_HOST: usize = 253;

/// An access string. `Display` writes the secret, `Debug` does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessString {
    /// What its holder becomes.
    pub role: Role,
    /// The head's host: a name or an address; an IPv6 address without its brackets.
    pub host: String,
    /// The port of the head where certificates are issued.
    pub port: u16,
    /// The authority that the first contact must show.
    pub ca: CaHash,
    /// The proof that its holder was given access.
    pub secret: Secret,
}

/// The SHA-256 of an authority's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaHash([u8; 32]);

/// 32 random bytes. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Why a text is not an access string.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StringError {
    /// It starts with something else.
    #[error("not an access string: it starts with \"{PREFIX}:\"")]
    NotAccess,
    /// It is of another version of this program.
    #[error(
        "the access string has the form {0:?}, and this version of corona reads {PREFIX:?} only"
    )]
    Version(String),
    /// Parts are missing.
    #[error("the access string is truncated: {0} is missing; copy the whole line")]
    Truncated(&'static str),
    /// The role is unknown.
    #[error("the access string has an {0}")]
    Role(#[from] UnknownRole),
    /// The address is not a host and a port.
    #[error("the access string has the illegal address {0:?}, where host:port is expected")]
    Address(String),
    /// The hash of the authority has another length or other characters.
    #[error("the access string has a damaged hash of the CA: 64 hexadecimal digits are expected")]
    Hash,
    /// The secret has another length or other characters.
    #[error("the access string has a damaged secret: 64 hexadecimal digits are expected")]
    Secret,
    /// It is longer than any access string.
    #[error("the access string is longer than {MAX_CHARACTERS} characters")]
    TooLong,
}

impl CaHash {
    /// The hash of a certificate in DER.
    pub(crate) fn of(certificate: &[u8]) -> CaHash {
        CaHash(sha256(certificate))
    }
}

impl Secret {
    /// Draws a secret.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn random() -> Result<Secret, ring::error::Unspecified> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// What is kept of it.
    pub(crate) fn hash(&self) -> String {
        hex(&sha256(&self.0))
    }

    /// The secret as it travels.
    pub(crate) fn expose(&self) -> String {
        hex(&self.0)
    }

    /// Reads a secret as it travels.
    pub(crate) fn read(text: &str) -> Option<Secret> {
        unhex(text).map(Secret)
    }
}

impl fmt::Display for AccessString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessString { role, host, port, ca, secret } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{PREFIX}:{role}:{open}{host}{close}:{port}:{ca}:{}", secret.expose())
    }
}

impl FromStr for AccessString {
    type Err = StringError;

    fn from_str(text: &str) -> Result<AccessString, StringError> {
        let text = text.trim();
        if text.len() > MAX_CHARACTERS {
            return Err(StringError::TooLong);
        }
        let (form, rest) = text.split_once(':').unwrap_or((text, ""));
        if form != PREFIX {
            let version = form.strip_prefix("corona").unwrap_or_default();
            let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
            return Err(if is_version {
                StringError::Version(form.to_owned())
            } else {
                StringError::NotAccess
            });
        }
        let (role, rest) = part(rest, "the role")?;
        let role = role.parse()?;
        let (host, rest) = host(rest)?;
        let (port_text, rest) = part(rest, "the port")?;
        let port = port_text.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| StringError::Address(format!("{host}:{port_text}")))?;
        let (ca, secret) = part(rest, "the hash of the CA")?;
        if secret.is_empty() {
            return Err(StringError::Truncated("the secret"));
        }
        if secret.len() < 64 && secret.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(StringError::Truncated("the end of the secret"));
        }
        let ca = ca.parse()?;
        let secret = Secret::read(secret).ok_or(StringError::Secret)?;
        Ok(AccessString { role, host: host.to_owned(), port, ca, secret })
    }
}

/// The next part, which ends with a colon, and the rest.
fn part<'a>(rest: &'a str, name: &'static str) -> Result<(&'a str, &'a str), StringError> {
    match rest.split_once(':') {
        Some((part, rest)) if !part.is_empty() => Ok((part, rest)),
        // The last part that is there may be whole, but what follows is missing.
        None if !rest.is_empty() => Err(StringError::Truncated(after(name))),
        _ => Err(StringError::Truncated(name)),
    }
}

/// What is missing when a part is the last one.
fn after(name: &'static str) -> &'static str {
    match name {
        "the role" => "the address",
        "the port" => "the hash of the CA",
        _ => "the secret",
    }
}

/// The host, without the brackets of an IPv6 address, and the rest.
fn host(rest: &str) -> Result<(&str, &str), StringError> {
    let illegal = || StringError::Address(rest.chars().take(64).collect());
    if let Some(bracketed) = rest.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or(StringError::Truncated("the port"))?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| illegal())?;
        let rest = rest.strip_prefix(':').ok_or(StringError::Truncated("the port"))?;
        return Ok((host, rest));
    }
    let Some((host, rest)) = rest.split_once(':') else {
        return Err(StringError::Truncated(if rest.is_empty() {
            "the address"
        } else {
            "the port"
        }));
    };
    let is_legal = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if host.is_empty() || host.len() > MAX_HOST || !host.bytes().all(is_legal) {
        return Err(illegal());
    }
    Ok((host, rest))
}

impl FromStr for CaHash {
    type Err = StringError;

    fn from_str(text: &str) -> Result<CaHash, StringError> {
        unhex(text).map(CaHash).ok_or(StringError::Hash)
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaHash({self})")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads lower-case hexadecimal digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    unhex_all(text)?.try_into().ok()
}

/// Reads lower-case hexadecimal digits of any number of bytes.
pub(crate) fn unhex_all(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
