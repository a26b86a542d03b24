//! How the two ends of a connection check each other's certificate.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct,
    DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::certificate;
use crate::revoked::Revoked;
use crate::string::CaHash;

/// The protocol on connections that get certificates, codes and lists.
pub(crate) const ACCESS_PROTOCOL: &[u8] = b"corona-access/1";
/// What browsers speak.
const HTTP: &[u8] = b"http/1.1";

/// The implementation of cryptography; never that of the process. AES with 128 bits comes first: it is as far from
/// being broken as the rest of TLS 1.3, and the fastest where processors know it.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = rustls::crypto::ring::default_provider();
        provider
            .cipher_suites
            .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
        Arc::new(provider)
    });
    PROVIDER.clone()
}

/// The authority that a client accepts.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// The one whose certificate is known.
    Authority(CertificateDer<'static>),
    /// The one that an access string names; the server shows its certificate.
    Pinned(CaHash),
}

/// The methods by which both ends check that a peer has the key of its certificate.
macro_rules! signatures_of_tls_1_3 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.3 is spoken only".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &provider().signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

#[derive(Debug)]
struct ClusterServers(Trust);

impl ServerCertVerifier for ClusterServers {
    /// Servers are known by their role, not by a name: their addresses change.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = match &self.0 {
            Trust::Authority(authority) => Some(authority),
            Trust::Pinned(hash) => pinned(intermediates, *hash),
        };
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = authority.ok_or(unknown)?;
        let roots = roots(authority)?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_of_tls_1_3!();
}

/// Accepts any certificate: its key is what gets another one.
#[derive(Debug)]
struct AnyKey;

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures_of_tls_1_3!();
}

/// The certificate with this hash among those that a server shows.
pub(crate) fn pinned<'a, 'b>(
    shown: &'a [CertificateDer<'b>],
    hash: CaHash,
) -> Option<&'a CertificateDer<'b>> {
    shown.iter().find(|certificate| CaHash::of(certificate) == hash)
}

fn roots(authority: &CertificateDer<'_>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(roots)
}

/// Checks certificates of clients. One of revoked access is refused in the handshake, so that its holder learns why.
pub(crate) fn members(
    authority: &CertificateDer<'_>,
    revoked: Arc<Revoked>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let roots = Arc::new(roots(authority)?);
    // Browsers have none.
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let signed = builder.allow_unauthenticated().build();
    let signed = signed.map_err(|error| Error::General(error.to_string()))?;
    Ok(Arc::new(Members { signed, revoked }))
}

/// Accepts certificates that the authority has signed and whose access was not revoked.
#[derive(Debug)]
struct Members {
    signed: Arc<dyn ClientCertVerifier>,
    revoked: Arc<Revoked>,
}

impl ClientCertVerifier for Members {
    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(certificate, intermediates, now)?;
        let member = certificate::identified(certificate);
        let member = member.map_err(|error| Error::General(error.to_string()))?;
        if self.revoked.contains(member.grant) {
            tracing::warn!(%member, "A member whose access has been revoked has called");
            return Err(CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    signatures_of_tls_1_3!();
}

/// The certificate chain and key of one end.
pub(crate) type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What a client needs for a connection.
pub(crate) fn client(
    trust: Trust,
    (chain, key): ChainAndKey,
    protocol: Option<&[u8]>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(ClusterServers(trust)));
    let mut config = builder.with_client_auth_cert(chain, key)?;
    config.alpn_protocols = protocol.map(|protocol| vec![protocol.to_vec()]).unwrap_or_default();
    config.enable_sni = false;
    // Each connection is checked whole.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// What a server needs for connections of members and browsers.
pub(crate) fn server(
    members: Arc<dyn ClientCertVerifier>,
    shown: ChainAndKey,
) -> Result<ServerConfig, Error> {
    let mut config = server_with(members, shown)?;
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok(config)
}

/// What a server needs for connections of [`ACCESS_PROTOCOL`].
pub(crate) fn access_server(shown: ChainAndKey) -> Result<ServerConfig, Error> {
    let mut config = server_with(Arc::new(AnyKey), shown)?;
    config.alpn_protocols = vec![ACCESS_PROTOCOL.to_vec()];
    Ok(config)
}

fn server_with(
    verifier: Arc<dyn ClientCertVerifier>,
    (chain, key): ChainAndKey,
) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    // A resumed connection shows no certificate: whether it is still valid would not be looked at.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// A failed handshake, with the reason in one line. A peer that replies with something else than TLS is
/// `Unsupported`; one that only closes the connection may be too busy. Access that was revoked is
/// `PermissionDenied`.
pub(crate) fn explained(error: &io::Error) -> io::Error {
    let kind = match tls(error) {
        Some(Error::InvalidMessage(_)) => io::ErrorKind::Unsupported,
        Some(Error::AlertReceived(AlertDescription::CertificateRevoked)) => {
            io::ErrorKind::PermissionDenied
        }
        _ => error.kind(),
    };
    io::Error::new(kind, explain(error))
}

/// An error of a connection after its handshake: TLS 1.3 reports there that a certificate is not accepted.
pub(crate) fn explained_later(error: io::Error) -> io::Error {
    if tls(&error).is_some() { explained(&error) } else { error }
}

fn tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|error| error.downcast_ref())
}

/// Why a handshake failed, in one line.
pub(crate) fn explain(error: &io::Error) -> String {
    use AlertDescription as Alert;

    let text = match tls(error) {
        Some(Error::InvalidCertificate(problem)) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the peer's certificate is of another cluster"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the peer's certificate has expired, or one of the two clocks is wrong"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the peer's certificate is not valid yet: one of the two clocks is wrong"
            }
            CertificateError::Revoked => "the peer's access has been revoked",
            _ => return format!("the peer's certificate is not accepted: {problem:?}"),
        },
        Some(Error::AlertReceived(alert)) => match alert {
            Alert::UnknownCA | Alert::DecryptError => {
                "the peer does not accept our certificate: it is of another cluster"
            }
            Alert::CertificateExpired | Alert::BadCertificate => {
                "the peer does not accept our certificate: it has expired, or one of the two clocks is wrong"
            }
            Alert::CertificateRevoked => {
                "our access to this cluster has been revoked; a new string from its administrator gives it back"
            }
            Alert::CertificateRequired => "the peer needs a certificate",
            _ => return format!("the peer ended the TLS handshake with the alert {alert:?}"),
        },
        Some(Error::InvalidMessage(_)) => "the peer does not speak TLS on this port",
        Some(Error::NoCertificatesPresented) => "the peer shows no certificate",
        _ if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        ) =>
        {
            "the peer closed the connection during the TLS handshake; it may not speak TLS (corona.tls)"
        }
        _ => return error.to_string(),
    };
    text.to_owned()
}
