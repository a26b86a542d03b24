//! The settings of command-line tools: where the cluster is.
//!
//! A tool must work on a machine that has only the files of a client, and with values that would
//! keep a cluster manager from starting. It looks at its own keys and at nothing else.

use std::path::{Path, PathBuf};

use super::Source;
use super::access::TlsSettings;
use super::files::FileReader;
use super::high_availability::GatewaySettings;
use super::job_conf::JobConf;
use super::keys;
use super::problem::{ConfigErrors, Problem, warnings_or_errors};
use super::properties::Properties;
use super::settings::SettingsReader;
use super::system::SystemProperties;
use super::typed::{self, HostPort};

/// Where a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Whether TLS is spoken.
    pub tls: TlsSettings,
    /// The cluster manager's Thrift service.
    pub server_address: HostPort,
    /// The cluster manager's pages. Port 0: it was chosen when the cluster manager was started.
    pub http_address: HostPort,
    /// The proxy job tracker's Thrift service.
    pub proxy_job_tracker_address: HostPort,
    /// The job tracker service.
    pub job_tracker: HostPort,
    /// The pages of finished jobs, which the proxy job tracker serves; `None` if their address is not
    /// configured.
    pub finished_jobs: Option<HostPort>,
    /// The pages of the job tracker service; `None` if their address is not configured.
    pub running_jobs: Option<HostPort>,
    /// The port of the pages of nodes; `None` if it is any free one.
    pub node_pages_port: Option<u16>,
    /// Nodes that restart together by default, at least 1.
    pub restart_batch: u32,
}

impl SettingsReader<'_> {
    /// The settings of a command-line tool; other keys are not read.
    pub(super) fn read_client(mut self) -> ClientSettings {
        ClientSettings {
            tls: self.tls(),
            server_address: self.value(&keys::SERVER_ADDRESS, typed::address),
            http_address: self.value(&keys::HTTP_ADDRESS, typed::address),
            proxy_job_tracker_address: self.value(&keys::PROXY_JOB_TRACKER_THRIFT, typed::address),
            job_tracker: self.value(&keys::JT_ADDRESS, typed::address),
            finished_jobs: self.finished_jobs(),
            running_jobs: self.running_jobs(),
            node_pages_port: self.port_beside(&keys::TT_HTTP_ADDRESS),
            restart_batch: self.number(&keys::RESTART_BATCH),
        }
    }
}

/// Where a tool's configuration comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientSource<'a> {
    /// The directory with `core-site.xml` and `mapred-site.xml`; none for the defaults.
    pub conf_dir: Option<&'a Path>,
    /// Property files that are read after those of the directory, in order: `-conf` of the original.
    pub further: &'a [PathBuf],
    /// `-D key=value`, in order. They change even final values of a file.
    pub overrides: &'a [(String, String)],
}

impl ClientSource<'_> {
    /// The token that actions of operators need over HTTP; none if none is configured. Errors: a file
    /// that cannot be read, or a token that is too short.
    pub fn operator_token(&self) -> Result<Option<String>, ConfigErrors> {
        self.read(|reader| reader.read_operator_token())
    }

    /// The settings of `corona gateway`. Errors: as [`Self::load`].
    pub fn gateway(&self) -> Result<GatewaySettings, ConfigErrors> {
        self.read(|reader| reader.read_gateway())
    }

    /// Reads the property files. Errors: a file that cannot be read, or a wrong value of a key that
    /// a tool needs. Warnings are not reported. Spec: cluster-manager/06 §1, §7.3.
    pub fn load(&self) -> Result<ClientSettings, ConfigErrors> {
        self.read(|reader| reader.read_client())
    }

    /// Whether and how TLS is spoken, whatever is wrong with other keys. Errors: as [`Self::load`].
    pub fn tls(&self) -> Result<TlsSettings, ConfigErrors> {
        self.read(|mut reader| reader.tls())
    }

    /// The configuration of a job before anything is said of the job itself: what the files and
    /// overrides say of jobs, and properties that are not this program's. Errors: as [`Self::load`].
    pub fn job_conf(&self) -> Result<JobConf, ConfigErrors> {
        let mut problems = Vec::new();
        let properties = self.properties(&mut problems);
        warnings_or_errors(problems)?;
        Ok(JobConf::of_client(properties))
    }

    fn properties(&self, problems: &mut Vec<Problem>) -> Properties {
        let (mut files, system) = (FileReader::default(), SystemProperties::of_process());
        let ClientSource { conf_dir, further, overrides } = *self;
        Properties::load(conf_dir, further, overrides, system, &mut files, problems)
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(SettingsReader<'_>) -> T,
    ) -> Result<T, ConfigErrors> {
        let mut problems = Vec::new();
        let properties = self.properties(&mut problems);
        let ClientSource { conf_dir, overrides, .. } = *self;
        let source = Source { conf_dir, overrides, ..Source::default() };
        let value = read(SettingsReader::new(&source, &properties, &mut problems));
        warnings_or_errors(problems)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsMode;
    use crate::tests::property;

    fn file(properties: &[(&str, &str)]) -> String {
        let properties = properties.iter().map(|(name, value)| property(name, value));
        format!("<configuration>{}</configuration>", properties.collect::<String>())
    }

    #[test]
    fn without_files_the_defaults_are_used() {
        let settings = ClientSource::default().load().unwrap();
        assert_eq!(settings.server_address.to_string(), "localhost:8888");
        assert_eq!(settings.http_address.to_string(), "localhost:8889");
        assert_eq!(settings.proxy_job_tracker_address.to_string(), "localhost:50036");
        assert_eq!(settings.restart_batch, 1000);
    }

    #[test]
    fn later_files_win_over_the_directory_and_overrides_over_all() {
        let dir = tempfile::tempdir().unwrap();
        let further = dir.path().join("client.xml");
        let site = [
            ("cm.server.address", "a:1"),
            ("cm.server.http.address", "a:2"),
            ("corona.node.restart.batch", "3"),
            // Wrong, and nothing to a tool.
            ("cm.node.expiryinterval", "soon"),
        ];
        std::fs::write(dir.path().join("core-site.xml"), file(&site)).unwrap();
        let client = [("cm.server.address", "b:1"), ("cm.server.http.address", "b:2")];
        std::fs::write(&further, file(&client)).unwrap();
        let settings = ClientSource {
            conf_dir: Some(dir.path()),
            further: &[further],
            overrides: &[("cm.server.http.address".into(), "c:2".into())],
        };
        let settings = settings.load().unwrap();
        assert_eq!(settings.server_address.to_string(), "b:1");
        assert_eq!(settings.http_address.to_string(), "c:2");
        assert_eq!(settings.restart_batch, 3);
    }

    #[test]
    fn the_token_of_operators_is_read_where_it_is_needed_and_never_shown() {
        let token = |text: &str| {
            let overrides = [("corona.cm.web.kill.token".to_owned(), text.to_owned())];
            let source = ClientSource { overrides: &overrides, ..ClientSource::default() };
            assert!(source.load().is_ok(), "other commands do not look at it");
            source.operator_token().map_err(|problems| problems.to_string())
        };
        assert_eq!(token("a token for tests"), Ok(Some("a token for tests".into())));
        assert_eq!(token(""), Ok(None));
        let problem = token("short").unwrap_err();
        assert!(problem.contains("too short") && !problem.contains("\"short\""), "{problem}");
        assert_eq!(ClientSource::default().operator_token().unwrap(), None);
    }

    #[test]
    fn how_tls_is_spoken_is_known_beside_other_mistakes() {
        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut overrides = vec![set("cm.server.address", "nowhere"), set("corona.tls", "require")];
        let source = ClientSource { overrides: &overrides, ..ClientSource::default() };
        assert_eq!(source.tls().unwrap().mode, TlsMode::Require);
        assert!(source.load().is_err());
        overrides.push(set("corona.tls", "requires"));
        let source = ClientSource { overrides: &overrides, ..ClientSource::default() };
        let refused = source.tls().unwrap_err().to_string();
        assert!(refused.starts_with("-D: corona.tls: value \"requires\""), "{refused}");
    }

    #[test]
    fn a_wrong_value_of_its_own_and_a_missing_file_are_told() {
        let wrong = [("cm.server.address".to_owned(), "nowhere".to_owned())];
        let source = ClientSource { overrides: &wrong, ..ClientSource::default() };
        let told = source.load().unwrap_err().to_string();
        assert!(told.starts_with("-D: cm.server.address: value \"nowhere\""), "{told}");

        let further = [PathBuf::from("/no/such/client.xml")];
        let source = ClientSource { further: &further, ..ClientSource::default() };
        let told = source.load().unwrap_err().to_string();
        assert!(told.starts_with("/no/such/client.xml: cannot be read"), "{told}");
    }
}
