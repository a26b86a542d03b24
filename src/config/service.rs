//! What a service that works with files of jobs reads: its own settings, the properties that jobs
//! inherit, and how file systems are reached.

use super::files::FileReader;
use super::problem::warnings_or_errors;
use super::properties::Properties;
use super::settings::SettingsReader;
use super::system::SystemProperties;
use super::{ClientSource, ConfigErrors, InForce, Problem, SiteProperties, Source, keys};
use corona_model::files::FileSystemSettings;

/// A service's configuration that can be used.
#[derive(Clone, Debug)]
pub struct LoadedService<S> {
    /// Its settings, checked.
    pub settings: S,
    /// All properties of the files, over which those of a job are laid.
    pub site: SiteProperties,
    /// How files of HDFS are read.
    pub file_systems: FileSystemSettings,
    /// The user that the process runs as, if that can be found.
    pub user: Option<String>,
    /// What may not be meant so.
    pub warnings: Vec<Problem>,
    /// The keys that were looked at, with the values in force.
    pub in_force: Vec<InForce>,
    /// The options with which another process of this program reads the same configuration.
    pub arguments: Vec<String>,
}

impl Source<'_> {
    /// Reads the property files, and the settings with `read`. The errors are all that is wrong.
    pub(crate) fn load_service<S>(
        &self,
        read: impl FnOnce(SettingsReader<'_>) -> (S, Vec<InForce>),
    ) -> Result<LoadedService<S>, ConfigErrors> {
        let mut problems = Vec::new();
        let mut files = FileReader::default();
        let system = SystemProperties::of_process();
        let user = system.get("user.name").map(str::to_owned);
        let properties =
            Properties::load(self.conf_dir, &[], self.overrides, system, &mut files, &mut problems);
        let reader = SettingsReader::new(self, &properties, &mut problems);
        let (settings, in_force) = read(reader);
        let warnings = warnings_or_errors(problems)?;
        let mut site = SiteProperties(properties);
        // The configurations of jobs are shown to many.
        for key in keys::ALL.iter().filter(|key| key.kind == keys::Kind::Secret) {
            site.0.remove(key.name);
        }
        let source = ClientSource {
            conf_dir: self.conf_dir,
            overrides: self.overrides,
            ..ClientSource::default()
        };
        let file_systems = source.load_file_systems()?;
        let arguments = self.arguments();
        Ok(LoadedService { settings, site, file_systems, user, warnings, in_force, arguments })
    }

    fn arguments(&self) -> Vec<String> {
        let absolute = |dir: &std::path::Path| {
            std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string()
        };
        let conf_dir = self.conf_dir.map(|dir| ["--conf-dir".to_owned(), absolute(dir)]);
        let overrides =
            self.overrides.iter().map(|(key, value)| ["-D".to_owned(), format!("{key}={value}")]);
        conf_dir.into_iter().chain(overrides).flatten().collect()
    }
}
