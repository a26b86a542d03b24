//! How an object store is reached: its address, its region and the keys. They come from everybody's chain, or from the
//! file that a client has sent with its job.

use std::fmt;
use std::path::{Path, PathBuf};

use hyper::Uri;
use object_store::aws::AmazonS3Builder;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{ErrorKind, FsError};

/// The version of the form of [`ObjectAccess::to_json`].
const VERSION: u32 = 1;
/// Where the keys of a machine's role come from; no key is among them.
const OF_ROLE: [&str; 7] = [
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_METADATA_ENDPOINT",
];
/// Bytes of a profile file, and of access that a job brings.
const MAX_BYTES: u64 = 1 << 20;

/// The address and the keys of an object store.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectAccess {
    version: u32,
    /// Its address, such as `http://127.0.0.1:9000`; none for that of Amazon's region.
    endpoint: Option<String>,
    region: Option<String>,
    /// None: the keys of the machine's role.
    keys: Option<Keys>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

/// Without keys.
impl fmt::Debug for ObjectAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectAccess")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl ObjectAccess {
    /// The name of its file in the directory of a job.
    pub const FILE: &str = "object-access";
    /// The largest file of it.
    pub const MAX_BYTES: u64 = MAX_BYTES;

    /// Whether a path needs it.
    pub fn is_for(path: &str) -> bool {
        path.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3:"))
    }

    /// That of this process: its environment, else a profile, else the role of the machine.
    ///
    /// # Errors
    /// A part of a pair of keys is missing, or the profile that is asked for cannot be used.
    pub fn of_process() -> Result<ObjectAccess, FsError> {
        ObjectAccess::find(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<ObjectAccess, FsError> {
        let profile = Profile::find(variable)?;
        let keys = match Keys::of(
            variable,
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
        )? {
            Some(keys) => Some(keys),
            None => profile.keys()?,
        };
        let endpoint = variable("AWS_ENDPOINT_URL_S3")
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .or_else(|| profile.value("endpoint_url"));
        let region = variable("AWS_REGION")
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .or_else(|| profile.value("region"));
        if keys.is_none()
            && variable("AWS_EC2_METADATA_DISABLED")
                .is_some_and(|value| value.eq_ignore_ascii_case("true"))
        {
            return Err(refused(
                "there are no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
            ));
        }
        ObjectAccess { version: VERSION, endpoint, region, keys }.checked()
    }

    /// The same, if requests can be made with it. The client of a job chooses it. No text names a key.
    fn checked(self) -> Result<ObjectAccess, FsError> {
        // It is part of the host's name where no other is named, and of signatures in any case.
        let is_of_name = |byte: u8| match self.endpoint {
            Some(_) => byte.is_ascii_graphic() && byte != b'/',
            None => byte.is_ascii_alphanumeric() || byte == b'-',
        };
        if !self.region().bytes().all(is_of_name) {
            return Err(refused(
                "the region (AWS_REGION) may have letters, digits and hyphens only",
            ));
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(Keys { id, token, .. }) = &self.keys
            && !(is_plain(id) && token.as_deref().is_none_or(is_plain))
        {
            return Err(refused(
                "the access key (AWS_ACCESS_KEY_ID) or the session token (AWS_SESSION_TOKEN) has a blank, a line end or \
                 another character that no key has",
            ));
        }
        let address = self.address("bucket");
        let is_address = address.parse::<Uri>().is_ok()
            && Url::parse(&address).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.username().is_empty()
                    && url.password().is_none()
                    && url.query().is_none()
                    && url.fragment().is_none()
            });
        match is_address {
            true => Ok(self),
            false => Err(refused(
                "the address of the object store (AWS_ENDPOINT_URL, or endpoint_url of the profile) is not valid: expected one \
                 such as http://minio.example.com:9000",
            )),
        }
    }

    /// For a file that only nodes may read.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What [`ObjectAccess::to_json`] has made.
    ///
    /// # Errors
    /// It is of another form. The text names no key.
    pub fn from_json(bytes: &[u8]) -> Result<ObjectAccess, FsError> {
        let access: ObjectAccess = serde_json::from_slice(bytes)
            .map_err(|_| refused("the access to object stores of the job is malformed"))?;
        match access.version {
            VERSION => access.checked(),
            other => Err(refused(&format!(
                "the access to object stores of the job has the unknown version {other}; this version of corona reads \
                 {VERSION} only"
            ))),
        }
    }

    /// Reads what a client has sent with its job, from a file of this machine.
    ///
    /// # Errors
    /// It cannot be read, or is of another form.
    pub fn read(path: &Path) -> Result<ObjectAccess, FsError> {
        let bytes =
            read_bounded(path).map_err(|error| FsError::io("read", path.display(), &error))?;
        ObjectAccess::from_json(&bytes)
    }

    /// The address of a bucket, without a slash at its end.
    pub(super) fn address(&self, bucket: &str) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            None => format!("https://s3.{}.amazonaws.com/{bucket}", self.region()),
        }
    }

    /// The address of the store, for errors.
    pub(super) fn server(&self) -> String {
        match &self.endpoint {
            // Whatever stands before an `@` is nobody's business.
            Some(endpoint) => endpoint.rsplit('@').next().unwrap_or_default().to_owned(),
            None => format!("s3.{}.amazonaws.com", self.region()),
        }
    }

    pub(super) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("us-east-1")
    }

    /// Whether it has keys of its own, and not those of whatever machine uses it.
    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    pub(super) fn builder(&self, bucket: &str) -> AmazonS3Builder {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(self.region())
            .with_allow_http(true);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        match &self.keys {
            Some(Keys { id, secret, token }) => {
                builder = builder.with_access_key_id(id).with_secret_access_key(secret);
                if let Some(token) = token {
                    builder = builder.with_token(token);
                }
            }
            None => {
                for name in OF_ROLE {
                    if let (Ok(value), Ok(key)) =
                        (std::env::var(name), name.to_ascii_lowercase().parse())
                    {
                        builder = builder.with_config(key, value);
                    }
                }
            }
        }
        builder
    }
}

impl Keys {
    /// Those under three names: the id, the secret and the token.
    fn of(
        value: &dyn Fn(&str) -> Option<String>,
        names: [&str; 3],
    ) -> Result<Option<Keys>, FsError> {
        let [id, secret, token] = names;
        match (value(id), value(secret)) {
            (Some(key), Some(secret)) => Ok(Some(Keys { id: key, secret, token: value(token) })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(refused(&format!("there is {secret} and no {id}"))),
            (Some(_), None) => Err(refused(&format!("there is {id} and no {secret}"))),
        }
    }
}

/// The settings of one profile, of both files; the first that has a name counts.
#[derive(Default)]
struct Profile {
    name: String,
    is_wanted: bool,
    settings: Vec<(String, String)>,
}

impl Profile {
    fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Profile, FsError> {
        let wanted = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let mut profile = Profile {
            is_wanted: wanted.is_some(),
            name: wanted.unwrap_or_else(|| "default".to_owned()),
            settings: Vec::new(),
        };
        let home = variable("HOME").map(PathBuf::from);
        let mut is_there = false;
        for (own, usual) in
            [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")]
        {
            let path = variable(own).map(PathBuf::from);
            let path = path.or_else(|| Some(home.as_ref()?.join(".aws").join(usual)));
            let Some(path) = path else { continue };
            match read_bounded(&path) {
                Ok(text) => is_there |= profile.add(&String::from_utf8_lossy(&text)),
                // Few people have them.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) if !profile.is_wanted => {}
                Err(error) => return Err(FsError::io("open", path.display(), &error)),
            }
        }
        match is_there || !profile.is_wanted {
            true => Ok(profile),
            false => Err(refused(&format!(
                "there is no profile {:?}, which AWS_PROFILE names",
                profile.name
            ))),
        }
    }

    /// Adds the settings of a file. False: it has no such profile.
    fn add(&mut self, text: &str) -> bool {
        let (mut is_in_it, mut is_there) = (false, false);
        for line in text.lines() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                let name = header.split(']').next().unwrap_or_default().trim();
                let name = name.strip_prefix("profile ").unwrap_or(name).trim();
                is_in_it = name == self.name;
                is_there |= is_in_it;
            } else if is_in_it
                && !line.starts_with(['#', ';'])
                && let Some((name, value)) = line.split_once('=')
            {
                self.settings.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        is_there
    }

    fn value(&self, name: &str) -> Option<String> {
        let found = self.settings.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }

    fn keys(&self) -> Result<Option<Keys>, FsError> {
        let names = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
        let keys = Keys::of(&|name| self.value(name), names).map_err(|error| FsError {
            message: format!("profile {:?}: {}", self.name, error.message),
            ..error
        })?;
        if keys.is_none() && self.is_wanted {
            return Err(refused(&format!(
                "the profile {:?} has no keys (single sign-on, roles and other programs are not asked): run \
                 eval \"$(aws configure export-credentials --format env)\" before",
                self.name
            )));
        }
        Ok(keys)
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut found = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut found)?;
    Ok(found)
}

fn refused(message: &str) -> FsError {
    FsError::new(ErrorKind::Permission, "credentials", "s3:", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<ObjectAccess, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ObjectAccess::find(&variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_comes_before_profiles_and_these_before_the_role_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(
            at("credentials"),
            "# mine\n[default]\naws_access_key_id = DID\naws_secret_access_key=dsecret\n[other]\naws_access_key_id=OID\n\
             aws_secret_access_key = os/+=ecret\naws_session_token = otoken\n[half]\naws_access_key_id=H\n",
        )
        .unwrap();
        std::fs::write(
            at("config"),
            "[default]\nregion = eu-west-1\n[profile other]\nregion=eu-north-1\nendpoint_url = http://h:1/\n[profile sso]\nsso_session=x\n",
        )
        .unwrap();
        let (credentials, config) = (at("credentials"), at("config"));
        let with = |more: &[(&str, &str)]| {
            let mut all =
                vec![("AWS_SHARED_CREDENTIALS_FILE", &*credentials), ("AWS_CONFIG_FILE", &*config)];
            all.extend_from_slice(more);
            find(&all)
        };
        let keys = |access: &ObjectAccess| access.keys.as_ref().map(|keys| keys.id.clone());
        let found = with(&[]).unwrap();
        assert_eq!((keys(&found).as_deref(), found.region()), (Some("DID"), "eu-west-1"));
        assert_eq!(found.address("b"), "https://s3.eu-west-1.amazonaws.com/b");
        let found = with(&[("AWS_PROFILE", "other")]).unwrap();
        let Keys { id, secret, token } = found.keys.clone().unwrap();
        assert_eq!((&*id, &*secret, token.as_deref()), ("OID", "os/+=ecret", Some("otoken")));
        assert_eq!(found.address("b"), "http://h:1/b");
        let own = [
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_ENDPOINT_URL", "http://e"),
        ];
        let found = with(&own).unwrap();
        assert_eq!((keys(&found).as_deref(), &*found.address("b")), (Some("E"), "http://e/b"));
        assert_eq!(keys(&find(&[]).unwrap()), None);
        for (variables, wrong) in [
            (&[("AWS_PROFILE", "none")][..], "there is no profile \"none\""),
            (
                &[("AWS_PROFILE", "half")],
                "profile \"half\": there is aws_access_key_id and no aws_secret",
            ),
            (&[("AWS_PROFILE", "sso")], "has no keys"),
            (&[("AWS_ACCESS_KEY_ID", "E")], "no AWS_SECRET_ACCESS_KEY"),
        ] {
            let told = with(variables).unwrap_err();
            assert!(told.contains(wrong), "{told}");
        }
        for (wrong, expected) in [
            (("AWS_ENDPOINT_URL", "foo"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "h:9000"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "ftp://h"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://h:99999"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://1.2.3.256"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://a b"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://user:secret@h"), "AWS_ENDPOINT_URL"),
            (("AWS_ENDPOINT_URL", "http://h/?a=b"), "AWS_ENDPOINT_URL"),
            (("AWS_REGION", "eu west"), "AWS_REGION"),
            (("AWS_ACCESS_KEY_ID", "K\n"), "AWS_ACCESS_KEY_ID"),
            (("AWS_SESSION_TOKEN", "té"), "AWS_SESSION_TOKEN"),
        ] {
            let keys = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "s")];
            // The first one of a name counts.
            let told = find(&[&[wrong], &keys[..]].concat()).unwrap_err();
            assert!(told.contains(expected) && !told.contains("secret"), "{wrong:?}: {told}");
        }
        let hostile = br#"{"version":1,"endpoint":"foo","region":null,"keys":null}"#;
        assert!(ObjectAccess::from_json(hostile).unwrap_err().to_string().contains("not valid"));
        let told = find(&[("AWS_EC2_METADATA_DISABLED", "true")]).unwrap_err();
        assert!(told.contains("there are no keys"), "{told}");
    }

    #[test]
    fn keys_are_in_the_file_for_nodes_and_in_no_text() {
        let own = [
            ("AWS_ACCESS_KEY_ID", "KEYID"),
            ("AWS_SECRET_ACCESS_KEY", "SECRET"),
            ("AWS_SESSION_TOKEN", "TOKEN"),
        ];
        let access = find(&own).unwrap();
        // Later versions must read it.
        let first = include_bytes!("../../../fixtures/versions/object-access.json");
        assert_eq!(ObjectAccess::from_json(first).unwrap(), access);
        let json = access.to_json();
        assert_eq!(ObjectAccess::from_json(&json).unwrap(), access);
        let shown = format!("{access:?}");
        assert!(["KEYID", "SECRET", "TOKEN"].iter().all(|key| !shown.contains(key)), "{shown}");
        let newer = String::from_utf8(json).unwrap().replace("\"version\":1", "\"version\":2");
        let told = ObjectAccess::from_json(newer.as_bytes()).unwrap_err().to_string();
        assert!(told.contains("unknown version 2") && !told.contains("SECRET"), "{told}");
        let told = ObjectAccess::from_json(b"{\"version\":1,\"keys\":\"SECRET\"}")
            .unwrap_err()
            .to_string();
        assert!(told.contains("malformed") && !told.contains("SECRET"), "{told}");
    }
}
