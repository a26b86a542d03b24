//! Certificates: what they name, how they are made and how they are read.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
    SignatureAlgorithm,
};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::role::Role;
use crate::string::hex;
use crate::table::GrantId;

/// How long a certificate is valid.
pub(crate) const VALID: Duration = Duration::from_secs(30 * DAY);
/// The age at which a certificate is renewed.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(20 * DAY);
/// By how much the clock of a peer may be behind that of the authority.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);
/// How long an authority is valid: longer than any cluster lives.
const AUTHORITY_VALID: Duration = Duration::from_secs(50 * 365 * DAY);
const DAY: u64 = 24 * 3600;

/// Characters of a user's or host's name in a certificate.
const MAX_NAME: usize = 128;

/// How a certificate says whom it names.
const SCHEME: &str = "corona://";

/// Who a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Its role.
    pub role: Role,
    /// The user for `submit`, the host for `node`, and a name for logs otherwise.
    pub name: String,
    /// The access string that the certificate was issued for.
    pub grant: GrantId,
}

impl Identified {
    /// The user as whom its holder runs jobs.
    pub fn user(&self) -> Option<&str> {
        (self.role == Role::Submit).then_some(&*self.name)
    }

    /// The user that it is, whatever it claims to be; `None` for members that act for all users: daemons and nodes.
    pub(crate) fn own_user(&self) -> Option<String> {
        match self.role {
            Role::Submit => Some(self.name.clone()),
            // It names itself, so it must not be called like an account.
            Role::Read => Some(format!("{}:{}", self.role, self.name)),
            Role::Admin | Role::Node => None,
        }
    }

    fn uri(&self) -> String {
        format!("{SCHEME}{}", self.path())
    }

    fn from_uri(uri: &str) -> Option<Identified> {
        Identified::from_path(uri.strip_prefix(SCHEME)?)
    }

    /// `role/name/access`
    pub(crate) fn path(&self) -> String {
        format!("{}/{}/{}", self.role, self.name, self.grant)
    }

    pub(crate) fn from_path(path: &str) -> Option<Identified> {
        let mut parts = path.split('/');
        let (role, name, grant) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !is_name(name) {
            return None;
        }
        let (role, grant) = (role.parse().ok()?, grant.parse().ok()?);
        Some(Identified { role, name: name.to_owned(), grant })
    }
}

impl fmt::Display for Identified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (access {})", self.role, self.name, self.grant)
    }
}

/// Whether a certificate can name this user or host.
pub(crate) fn is_name(name: &str) -> bool {
    let is_legal = |b: u8| b.is_ascii_alphanumeric() || b"-._@$".contains(&b);
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_legal)
}

/// Bytes that are no certificate of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum CertificateError {
    #[error("the certificate cannot be read")]
    Malformed,
    #[error("the certificate names no role of a cluster")]
    NoRole,
    #[error("the certificate's key is not an ECDSA key on the curve P-256")]
    Key,
    #[error("the certificate cannot be made")]
    Unsigned,
}

/// Who the certificate names. Its signature must have been checked.
pub(crate) fn identified(
    certificate: &CertificateDer<'_>,
) -> Result<Arc<Identified>, CertificateError> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let parsed = parsed.map_err(|_| CertificateError::Malformed)?;
    let mut found = parsed.valid_uri_names().filter_map(Identified::from_uri);
    let identified = found.next().ok_or(CertificateError::NoRole)?;
    match found.next() {
        None => Ok(Arc::new(identified)),
        Some(_) => Err(CertificateError::NoRole),
    }
}

/// A public key on the curve P-256.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PublicKey([u8; POINT_BYTES]);

/// An uncompressed point.
const POINT_BYTES: usize = 65;
/// What precedes the point in the DER form: the algorithm and the curve.
const POINT_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl PublicKey {
    /// The key of a certificate.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<PublicKey, CertificateError> {
        let parsed = webpki::EndEntityCert::try_from(certificate);
        let parsed = parsed.map_err(|_| CertificateError::Malformed)?;
        let info = parsed.subject_public_key_info();
        let point = info.as_ref().strip_prefix(&POINT_PREFIX).ok_or(CertificateError::Key)?;
        point.try_into().map(PublicKey).map_err(|_| CertificateError::Key)
    }

    /// The beginning of its hash.
    pub(crate) fn name(&self) -> String {
        hex(&crate::string::sha256(&self.0)[..4])
    }

    /// Whether the holder of the key has signed these bytes.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0);
        key.verify(bytes, signature).is_ok()
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A new key.
pub(crate) fn new_key() -> Result<KeyPair, CertificateError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| CertificateError::Unsigned)
}

/// The certificate of an authority, in DER.
pub(crate) fn authority(key: &KeyPair, now: SystemTime) -> Result<Vec<u8>, CertificateError> {
    let mut params = authority_params();
    params.serial_number = Some(serial()?);
    params.not_before = (now - CLOCK_TOLERANCE).into();
    params.not_after = (now + AUTHORITY_VALID).into();
    let signed = params.self_signed(key).map_err(|_| CertificateError::Unsigned)?;
    Ok(signed.der().to_vec())
}

/// Signs with the key of an authority.
pub(crate) fn issuer(key: KeyPair) -> Issuer<'static, KeyPair> {
    Issuer::new(authority_params(), key)
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Corona cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A certificate for a key, in DER. Pages are shown under `hosts`: names and addresses.
pub(crate) fn issue(
    issuer: &Issuer<'static, KeyPair>,
    key: &PublicKey,
    identified: &Identified,
    hosts: &[String],
    now: SystemTime,
) -> Result<Vec<u8>, CertificateError> {
    let params = params(identified, hosts, now)?;
    let signed = params.signed_by(key, issuer).map_err(|_| CertificateError::Unsigned)?;
    Ok(signed.der().to_vec())
}

/// A certificate that only shows that its holder has the key.
pub(crate) fn self_signed(key: &KeyPair) -> Result<Vec<u8>, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("new member");
    let signed = params.self_signed(key).map_err(|_| CertificateError::Unsigned)?;
    Ok(signed.der().to_vec())
}

fn params(
    identified: &Identified,
    hosts: &[String],
    now: SystemTime,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&identified.name);
    params.serial_number = Some(serial()?);
    params.not_before = (now - CLOCK_TOLERANCE).into();
    params.not_after = (now + VALID).into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let text = |text: &str| Ia5String::try_from(text).map_err(|_| CertificateError::Unsigned);
    params.subject_alt_names.push(SanType::URI(text(&identified.uri())?));
    for host in hosts {
        params.subject_alt_names.push(match host.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(text(host)?),
        });
    }
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn serial() -> Result<SerialNumber, CertificateError> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CertificateError::Unsigned)?;
    // Positive, and of the same length for all.
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// The hash of a certificate, for logs.
pub(crate) fn fingerprint(certificate: &[u8]) -> String {
    hex(&crate::string::sha256(certificate)[..8])
}
