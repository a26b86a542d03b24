//! The certificate authority of a cluster: a directory with its key, its certificate and the table of
//! access strings.
//!
//! Every change reads the table, changes it and replaces it while it holds a lock, so that a running
//! head, commands beside it and other instances that share the directory see one table.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rcgen::{Issuer, KeyPair};
use rustix::fs::{FlockOperation, flock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use crate::certificate::{self, Identified, PublicKey, is_name};
use crate::files::{self, FileError, Stamp, damaged, file};
use crate::role::Role;
use crate::seconds;
use crate::string::{AccessString, CaHash, Secret};
use crate::table::{Act, Denied, Entry, GrantId, MAX_ENTRIES, NewGrant, Table};

const KEY: &str = "ca.key";
const CERTIFICATE: &str = "ca.pem";
const TABLE: &str = "access.json";
const LOCK: &str = "lock";

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// The table as it was read last. Each change of it makes another file.
    known: Mutex<Option<(Stamp, Arc<Table>)>>,
    /// The user of this machine who acts; none in a daemon, which notes itself what its peers do.
    user: Option<String>,
}

/// Why the authority cannot do something.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// There is none in the directory.
    #[error("there is no certificate authority in {0}")]
    Missing(PathBuf),
    /// There is one already.
    #[error("there is a certificate authority in {0} already")]
    Exists(PathBuf),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The table has no room.
    #[error("there are {MAX_ENTRIES} access strings already; revoke some")]
    Full,
    /// Access for `submit` names its user.
    #[error("access to submit jobs needs the name of a user")]
    NoUser,
    /// Access for other roles names no user.
    #[error("only access to submit jobs names a user")]
    NeedlessUser,
    /// The user or the host cannot be in a certificate.
    #[error(
        "{0:?} cannot be in a certificate: letters, digits and -._@$ are allowed, at most 128 characters"
    )]
    Name(String),
    /// No such access string.
    #[error("there is no access string {0}")]
    NoGrant(GrantId),
    /// The secret or the certificate gives nothing.
    #[error("{0}")]
    Denied(String),
    /// A certificate could not be made.
    #[error("{0}")]
    Certificate(String),
}

/// A certificate that was issued, and what it is.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) certificate: Vec<u8>,
    pub(crate) identified: Identified,
}

impl Authority {
    /// Makes an authority in a directory.
    ///
    /// # Errors
    /// There is one already, or the directory cannot be written.
    pub fn create(directory: &Path, now: SystemTime) -> Result<Authority, AuthorityError> {
        let key = certificate::new_key().map_err(failed)?;
        let certificate = certificate::authority(&key, now).map_err(failed)?;
        Authority::write(directory, &key.serialize_pem(), &pem(&certificate), &Table::empty())?;
        tracing::info!(
            directory = %directory.display(),
            certificate = certificate::fingerprint(&certificate),
            "Created a certificate authority"
        );
        Authority::open(directory)
    }

    /// Opens the authority of a directory.
    ///
    /// # Errors
    /// There is none, its files cannot be read, or others may read its key.
    pub fn open(directory: &Path) -> Result<Authority, AuthorityError> {
        let certificate_path = directory.join(CERTIFICATE);
        let content = files::read(&certificate_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => AuthorityError::Missing(directory.to_owned()),
            _ => file(&certificate_path)(error).into(),
        })?;
        let certificate = CertificateDer::from_pem_slice(&content)
            .map_err(|error| damaged(&certificate_path, error))?;
        let key_path = directory.join(KEY);
        let key = files::read_private(&key_path).map_err(file(&key_path))?;
        let key = String::from_utf8(key).map_err(|error| damaged(&key_path, error))?;
        let key = KeyPair::from_pem(&key).map_err(|error| damaged(&key_path, error))?;
        let issuer = certificate::issuer(key);
        let directory = directory.to_owned();
        let authority =
            Authority { directory, certificate, issuer, known: Mutex::default(), user: None };
        authority.table()?;
        Ok(authority)
    }

    /// Opens the authority of a directory, or makes one there.
    ///
    /// # Errors
    /// See [`Authority::open`] and [`Authority::create`].
    pub fn open_or_create(directory: &Path, now: SystemTime) -> Result<Authority, AuthorityError> {
        match Authority::open(directory) {
            Err(AuthorityError::Missing(_)) => Authority::create(directory, now),
            opened => opened,
        }
    }

    /// Writes the files. The certificate comes last: without it there is no authority.
    fn write(
        directory: &Path,
        key: &str,
        certificate: &str,
        table: &Table,
    ) -> Result<(), AuthorityError> {
        files::make_private(directory).map_err(file(directory))?;
        let _locked = locked(directory)?;
        let certificate_path = directory.join(CERTIFICATE);
        if certificate_path.exists() {
            return Err(AuthorityError::Exists(directory.to_owned()));
        }
        let table = table.write().map_err(|error| damaged(directory, error))?;
        for (name, content) in [
            (KEY, key.as_bytes()),
            (TABLE, table.as_slice()),
            (CERTIFICATE, certificate.as_bytes()),
        ] {
            let path = directory.join(name);
            files::replace(&path, content).map_err(file(&path))?;
        }
        Ok(())
    }

    /// Has the cluster manager note what is done from now on, as done by this user of the machine.
    #[must_use]
    pub fn acting_for(self, user: String) -> Authority {
        Authority { user: Some(user), ..self }
    }

    /// The hash that access strings name.
    pub fn ca_hash(&self) -> CaHash {
        CaHash::of(&self.certificate)
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Gives access, by a string that names this address of the head.
    ///
    /// # Errors
    /// A user is missing or too many, the table is full, or a file cannot be written.
    pub fn grant(
        &self,
        new: &NewGrant,
        (host, port): (&str, u16),
        now: SystemTime,
    ) -> Result<(GrantId, AccessString), AuthorityError> {
        match &new.user {
            None if new.role == Role::Submit => return Err(AuthorityError::NoUser),
            Some(_) if new.role != Role::Submit => return Err(AuthorityError::NeedlessUser),
            Some(user) if !is_name(user) => return Err(AuthorityError::Name(user.clone())),
            _ => {}
        }
        let secret = Secret::random().map_err(failed)?;
        let id = self.change(|table| {
            table.prune(now);
            if table.is_full() {
                return Err(AuthorityError::Full);
            }
            let id = table.add(new, &secret, now);
            let id = id.ok_or_else(|| failed("the system has no random numbers"))?;
            self.keep_act(table, || format!("create access {id} for {new}"));
            Ok(id)
        })?;
        tracing::info!(%id, role = %new.role, user = new.user, "Created an access string");
        Ok((id, self.string(new.role, host, port, secret)))
    }

    fn string(&self, role: Role, host: &str, port: u16, secret: Secret) -> AccessString {
        AccessString { role, host: host.to_owned(), port, ca: self.ca_hash(), secret }
    }

    /// All access strings, in the order in which they were created.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, AuthorityError> {
        Ok(self.table()?.entries().cloned().collect())
    }

    /// Takes access back: the string and all certificates that were issued for it.
    ///
    /// # Errors
    /// There is no such string, or a file cannot be written.
    pub fn revoke(&self, id: GrantId) -> Result<(), AuthorityError> {
        self.change(|table| {
            table.revoke(id).then_some(()).ok_or(AuthorityError::NoGrant(id))?;
            self.keep_act(table, || format!("revoke access {id}"));
            Ok(())
        })?;
        tracing::info!(%id, "Revoked an access string and its certificates");
        Ok(())
    }

    /// Replaces the secret of a string. Certificates that were issued for it stay valid.
    ///
    /// # Errors
    /// There is no such string, it was revoked, or a file cannot be written.
    pub fn rotate(
        &self,
        id: GrantId,
        (host, port): (&str, u16),
    ) -> Result<AccessString, AuthorityError> {
        let secret = Secret::random().map_err(failed)?;
        let role = self.change(|table| {
            let role = match table.rotate(id, &secret) {
                Ok(entry) => entry.role,
                Err(Denied::Unknown) => return Err(AuthorityError::NoGrant(id)),
                Err(denied) => return Err(AuthorityError::Denied(denied.to_string())),
            };
            self.keep_act(table, || format!("replace the secret of access {id}"));
            Ok(role)
        })?;
        tracing::info!(%id, "Replaced the secret of an access string");
        Ok(self.string(role, host, port, secret))
    }

    /// Whether this string would let a member in.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn accepts(&self, string: &AccessString, now: SystemTime) -> Result<bool, AuthorityError> {
        Ok(self.table()?.usable(&string.secret, now).is_ok())
    }

    fn keep_act(&self, table: &mut Table, action: impl FnOnce() -> String) {
        if let Some(user) = self.user.clone() {
            table.keep_act(Act { at: seconds(SystemTime::now()), user, action: action() });
        }
    }

    /// What users of the machine have done since the last call.
    pub(crate) fn take_acts(&self) -> Result<Vec<Act>, AuthorityError> {
        if self.table()?.has_no_acts() {
            return Ok(vec![]);
        }
        self.change(|table| Ok(table.take_acts()))
    }

    /// The strings whose certificates are not accepted.
    pub(crate) fn revoked(&self) -> Result<Vec<GrantId>, AuthorityError> {
        let table = self.table()?;
        Ok(table.entries().filter(|entry| entry.revoked).map(|entry| entry.id).collect())
    }

    /// Whether a secret gives a certificate, without using it.
    pub(crate) fn check(&self, secret: &Secret, now: SystemTime) -> Result<(), AuthorityError> {
        self.table()?.usable(secret, now).map(drop).map_err(denied)
    }

    /// Exchanges a secret for a certificate.
    pub(crate) fn enrol(
        &self,
        secret: &Secret,
        key: &PublicKey,
        name: &str,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Issued, AuthorityError> {
        if !is_name(name) {
            return Err(AuthorityError::Name(name.to_owned()));
        }
        let entry = self.change(|table| table.enrol(secret, name, now).map_err(denied))?;
        self.issue(key, of_entry(entry, name), hosts, now)
    }

    /// Renews a certificate, for the same key.
    pub(crate) fn renew(
        &self,
        identified: &Identified,
        key: &PublicKey,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Issued, AuthorityError> {
        let Identified { name, grant, .. } = identified;
        if *grant == GrantId::HEAD {
            return self.issue_own(key, name, hosts, None, now);
        }
        let entry = self.change(|table| table.renew(*grant, name, now).map_err(denied))?;
        self.issue(key, of_entry(entry, name), hosts, now)
    }

    /// Issues a certificate for a daemon of the head, which is reached under these hosts. `former` is what its
    /// certificate before names.
    pub(crate) fn issue_own(
        &self,
        key: &PublicKey,
        name: &str,
        hosts: &[String],
        former: Option<GrantId>,
        now: SystemTime,
    ) -> Result<Issued, AuthorityError> {
        if !is_name(name) {
            return Err(AuthorityError::Name(name.to_owned()));
        }
        let entry = self.change(|table| {
            table.prune(now);
            let entry = table.own(former, name, now)?;
            entry.ok_or_else(|| failed("the system has no random numbers"))
        })?;
        self.issue(key, of_entry(entry, name), hosts, now)
    }

    fn issue(
        &self,
        key: &PublicKey,
        identified: Identified,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Issued, AuthorityError> {
        let certificate = certificate::issue(&self.issuer, key, &identified, hosts, now);
        let certificate = certificate.map_err(failed)?;
        tracing::info!(
            role = %identified.role,
            name = identified.name,
            access = %identified.grant,
            certificate = certificate::fingerprint(&certificate),
            "Issued a certificate"
        );
        Ok(Issued { certificate, identified })
    }

    /// The table. It is read again when its file was replaced, by whomever.
    pub(crate) fn table(&self) -> Result<Arc<Table>, AuthorityError> {
        let path = self.directory.join(TABLE);
        // A table that replaces this one meanwhile is read the next time.
        let stamp = files::stamp(&path).map_err(file(&path))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = known.as_ref().filter(|(of, _)| *of == stamp) {
            return Ok(table.clone());
        }
        let content = files::read_private(&path).map_err(file(&path))?;
        let table = Table::read(&content).map_err(|problem| damaged(&path, problem))?;
        let table = Arc::new(table);
        *known = Some((stamp, table.clone()));
        Ok(table)
    }

    /// Changes the table, unless `change` fails.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Table) -> Result<T, AuthorityError>,
    ) -> Result<T, AuthorityError> {
        let _locked = locked(&self.directory)?;
        let mut table = Table::clone(&*self.table()?);
        let changed = change(&mut table)?;
        let path = self.directory.join(TABLE);
        let content = table.write().map_err(|problem| damaged(&path, problem))?;
        files::replace(&path, &content).map_err(file(&path))?;
        Ok(changed)
    }
}

/// Holds the lock of the directory for as long as the file is open.
fn locked(directory: &Path) -> Result<File, AuthorityError> {
    let path = directory.join(LOCK);
    let opened =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = opened.map_err(file(&path))?;
    loop {
        match flock(&lock, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(file(&path)(error.into()).into()),
        }
    }
}

fn of_entry(entry: Entry, name: &str) -> Identified {
    let name = entry.user.unwrap_or_else(|| name.to_owned());
    Identified { role: entry.role, name, grant: entry.id }
}

/// A certificate in PEM.
pub(crate) fn pem(certificate: &[u8]) -> String {
    let pem = pem::Pem::new("CERTIFICATE", certificate);
    let form = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem, form)
}

fn denied(denied: Denied) -> AuthorityError {
    AuthorityError::Denied(denied.to_string())
}

fn failed(error: impl ToString) -> AuthorityError {
    AuthorityError::Certificate(error.to_string())
}
