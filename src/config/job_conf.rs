//! The configuration of a job: its `job.xml` over the task tracker's own files, read and written as
//! the original does.
//!
//! A job's file comes from its user, so every bound of [`xml`](super::xml) holds for it, and it
//! cannot include other files. It knows nothing of where the file lies.

use std::fmt::Write as _;
use std::path::Path;

use thiserror::Error;

use super::Source;
use super::files::FileReader;
use super::keys::Key;
use super::problem::{ConfigErrors, Origin, Problem, Severity, warnings_or_errors};
use super::properties::Properties;
use super::settings::SettingsReader;
use super::system::SystemProperties;
use super::task_tracker::unusable;
use super::typed;
use super::xml::Includes;
use corona_model::files::FileSystemSettings;

/// The properties of a task tracker's own files. A job cannot change their final properties.
#[derive(Clone, Debug)]
pub struct SiteProperties(pub(super) Properties);

/// The properties of a job, those of the task tracker's files below them.
///
/// Spec: mapreduce/02 §2.12.
#[derive(Clone, Debug)]
pub struct JobConf {
    properties: Properties,
}

/// Why a configuration cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// XML has no way to write it.
    #[error("{name}: has the character U+{:04X}, which no XML file can hold", *.character as u32)]
    Character {
        /// The name of the property, cut if it is long.
        name: String,
        /// The first such character.
        character: char,
    },
}

impl JobConf {
    /// Reads a `job.xml` over the properties of the task tracker's files. An error is a file that
    /// cannot be used; a final that a job wants to change is left as it is, without a word.
    pub fn read(site: &SiteProperties, path: &Path) -> Result<Self, ConfigErrors> {
        let mut properties = site.0.clone();
        let mut problems = Vec::new();
        properties.load_xml(path, Includes::Plain, &mut FileReader::default(), &mut problems);
        warnings_or_errors(problems)?;
        Ok(JobConf { properties })
    }

    /// A job that sets nothing.
    pub fn of_site(site: &SiteProperties) -> Self {
        JobConf { properties: site.0.clone() }
    }

    /// Reads a `job.xml` that a task tracker has written, with everything of its own files in it. Errors: as
    /// [`Self::read`].
    pub fn localised(path: &Path) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let mut files = FileReader::default();
        let system = SystemProperties::of_process();
        let site = Properties::load(None, &[], &[], system, &mut files, &mut problems);
        JobConf::read(&SiteProperties(site), path)
    }

    /// The settings of file-system clients. Errors: a wrong value of one of their keys.
    pub fn file_systems(&self) -> Result<FileSystemSettings, ConfigErrors> {
        let mut problems = Vec::new();
        let user = self.properties.system_property("user.name").unwrap_or("nobody").to_owned();
        let source = Source::default();
        let reader = SettingsReader::new(&source, &self.properties, &mut problems);
        let settings = reader.read_file_systems(user);
        warnings_or_errors(problems)?;
        Ok(settings)
    }

    /// What a client's own files say of jobs: neither the settings of services nor secrets.
    pub(super) fn of_client(mut properties: Properties) -> Self {
        use super::keys::{ALL, Kind, Use};

        for key in ALL {
            let is_of_jobs = matches!(key.usage, Use::Job | Use::JobTracker);
            if !is_of_jobs || key.kind == Kind::Secret {
                properties.remove(key.name);
            }
        }
        JobConf { properties }
    }

    /// The value of a property, its variables replaced; `None` when it is not set. Where they lead
    /// back to themselves it stays as it is written.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut undefined = Vec::new();
        match self.properties.get(name, &mut undefined) {
            Ok(property) => property.map(|property| property.value),
            Err(_) => {
                self.properties.raw().find(|raw| raw.0 == name).map(|raw| raw.1.value.clone())
            }
        }
    }

    /// The names of all properties.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.raw().map(|(name, _)| name)
    }

    /// The value of a key, or its default; empty where it has none.
    pub fn text(&self, key: &Key) -> String {
        self.get(key.name).unwrap_or_else(|| key.default.to_owned())
    }

    /// The value of a key that is set and not empty.
    pub fn text_if_set(&self, key: &Key) -> Option<String> {
        self.get(key.name).filter(|value| !value.is_empty())
    }

    /// A whole number; the default where it is not set, cannot be read or is out of range, as in the
    /// original; `None` where there is no default either.
    pub fn number(&self, key: &Key) -> Option<i64> {
        key.number_of(self.get(key.name).as_deref())
    }

    /// `true` or `false`, exactly so written; else the default.
    pub fn is_true(&self, key: &Key) -> bool {
        match self.get(key.name).as_deref() {
            Some("true") => true,
            Some("false") => false,
            _ => key.default == "true",
        }
    }

    /// A list with commas between, blanks kept, empty items left out.
    pub fn list(&self, key: &Key) -> Vec<String> {
        let text = self.text(key);
        text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    /// Sets a property, a final one too.
    pub fn set(&mut self, name: &str, value: &str) {
        self.properties.set(name, value, Origin::Default);
    }

    /// Takes a property out.
    pub fn remove(&mut self, name: &str) {
        self.properties.remove(name);
    }

    /// Warnings about the values of keys that a job may set: their defaults are used.
    pub fn warnings(&self) -> Vec<Problem> {
        let mut warnings = Vec::new();
        for key in super::keys::ALL.iter().filter(|key| key.usage == super::keys::Use::Job) {
            let mut undefined = Vec::new();
            let Ok(Some(property)) = self.properties.get(key.name, &mut undefined) else {
                continue;
            };
            if let Err(wrong) = typed::check(key.kind, &property.value, key.unit) {
                let kind = unusable(&property.value, wrong);
                let severity = Severity::Warning;
                let subject = Some(key.name.to_owned());
                warnings.push(Problem { severity, origin: property.origin, subject, kind });
            }
        }
        warnings
    }

    /// The file as the original writes it: one line a property, raw values, the origin of each in a
    /// comment. No property is marked final. Spec: mapreduce/02 §2.12.
    pub fn to_xml(&self) -> Result<String, WriteError> {
        let mut xml = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n",
        );
        for (name, property) in self.properties.raw() {
            let refuse = |character| {
                let name = name.chars().filter(|c| !c.is_control()).take(100).collect();
                WriteError::Character { name, character }
            };
            let source = source(&property.origin);
            let name = escaped(name).map_err(refuse)?;
            let value = escaped(&property.value).map_err(refuse)?;
            // Writing to a string does not fail.
            let _ = writeln!(
                xml,
                "<property><!--Loaded from {source}--><name>{name}</name><value>{value}</value></property>"
            );
        }
        xml.push_str("</configuration>");
        Ok(xml)
    }
}

/// The text of a property's comment.
fn source(origin: &Origin) -> &str {
    match origin {
        Origin::File { path, .. } => path
            .file_name()
            .and_then(|name| name.to_str())
            .filter(|name| !name.contains("--") && !name.ends_with('-') && escaped(name).is_ok())
            .unwrap_or("a file"),
        Origin::CommandLine | Origin::Default => "Source_Code",
    }
}

/// Text for an element. A carriage return is written by its number, or a reader makes it a new line.
fn escaped(text: &str) -> Result<String, char> {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' | '\u{20}'..='\u{fffd}' | '\u{10000}'.. => out.push(character),
            refused => return Err(refused),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Source, keys};
    use super::*;
    use crate::tests::{self, property};

    fn site(overrides: &[(&str, &str)], mapred_site: &str) -> SiteProperties {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mapred-site.xml"), mapred_site).unwrap();
        let mut overrides = tests::overrides(overrides);
        overrides.push((keys::PARTITIONING.name.into(), keys::PARTITIONING.default.into()));
        Source { conf_dir: Some(dir.path()), overrides: &overrides, ..Source::default() }
            .load_task_tracker()
            .unwrap()
            .site
    }

    fn job(site: &SiteProperties, inside: &str) -> Result<JobConf, ConfigErrors> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        std::fs::write(&path, format!("<configuration>{inside}</configuration>")).unwrap();
        JobConf::read(site, &path)
    }

    #[test]
    fn a_job_changes_what_the_site_does_not_make_final() {
        let fixed = "<property><name>b</name><value>site</value><final>true</final></property>";
        let own = property("a", "site");
        let site = site(&[], &format!("<configuration>{fixed}{own}</configuration>"));
        let conf = job(&site, &[property("a", "job"), property("b", "job")].concat()).unwrap();
        assert_eq!(conf.get("a").as_deref(), Some("job"));
        assert_eq!(conf.get("b").as_deref(), Some("site"));
        assert_eq!(conf.get("c"), None);
    }

    #[test]
    fn values_of_keys() {
        let site = site(&[], "<configuration/>");
        let set = [
            ("base", "/data"),
            ("mapred.jar", "${base}/job.jar"),
            ("mapred.task.timeout", "5"),
            ("mapred.job.map.memory.mb", "much"),
            ("mapred.map.child.ulimit", "12x"),
            ("mapred.cache.files", "a,,b c,"),
            ("mapred.cache.shared.enabled", "TRUE"),
            ("mapreduce.job.user.classpath.first", "true"),
            ("loop", "${pool}"),
            ("pool", "${loop}"),
        ];
        let text: String = set.iter().map(|(name, value)| property(name, value)).collect();
        let conf = job(&site, &text).unwrap();
        assert_eq!(conf.text(&keys::JOB_JAR), "/data/job.jar");
        assert_eq!(conf.text(&keys::JOB_JAVA_OPTIONS), "-Xmx200m");
        assert_eq!(conf.text_if_set(&keys::JOB_MAP_JAVA_OPTIONS), None);
        assert_eq!(conf.number(&keys::JOB_TASK_TIMEOUT), Some(5));
        assert_eq!(conf.number(&keys::JOB_MAP_MEMORY), Some(5120));
        assert_eq!(conf.number(&keys::JOB_MAP_ULIMIT), None);
        assert_eq!(conf.list(&keys::JOB_CACHE_FILES), ["a", "b c"]);
        assert!(!conf.is_true(&keys::JOB_SHARED_CACHE));
        assert!(conf.is_true(&keys::JOB_USER_CLASSES_FIRST));
        assert_eq!(conf.get("loop").as_deref(), Some("${pool}"));
        let warnings: Vec<_> = conf.warnings().into_iter().map(|w| w.subject.unwrap()).collect();
        assert_eq!(warnings, ["mapred.map.child.ulimit", "mapred.job.map.memory.mb"]);
    }

    #[test]
    fn the_file_is_written_raw_and_one_line_a_property() {
        let site = site(&[("from.line", "1")], "<configuration/>");
        let inside = property("a.b", "x &lt; ${hadoop.tmp.dir} &amp; \u{e4}&#13;\n");
        let mut conf = job(&site, &inside).unwrap();
        conf.set("mapred.task.id", "attempt_1");
        conf.remove("hadoop.tmp.dir");
        conf.remove(keys::PARTITIONING.name);
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n\
            <property><!--Loaded from job.xml--><name>a.b</name><value>x &lt; ${hadoop.tmp.dir} &amp; \u{e4}&#13;\n</value></property>\n\
            <property><!--Loaded from Source_Code--><name>from.line</name><value>1</value></property>\n\
            <property><!--Loaded from Source_Code--><name>mapred.task.id</name><value>attempt_1</value></property>\n\
            </configuration>";
        assert_eq!(conf.to_xml().unwrap(), expected);

        conf.set("bad", "\u{1}");
        let refused = conf.to_xml().unwrap_err().to_string();
        assert_eq!(refused, "bad: has the character U+0001, which no XML file can hold");
    }

    #[test]
    fn a_recorded_job_file_reads_back_as_it_was() {
        let site = site(&[], "<configuration/>");
        let job_file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/task_tracker/job.xml");
        let conf = JobConf::read(&site, Path::new(job_file)).unwrap();
        assert_eq!(
            conf.get("mapred.reducer.class").as_deref(),
            Some("org.apache.hadoop.examples.SleepJob")
        );
        let original = std::fs::read_to_string(job_file).unwrap();
        // A property with an empty value is none.
        let written = conf.to_xml().unwrap();
        let without_comment = |line: &str| -> String {
            let (before, rest) = line.split_once("<!--").unwrap();
            format!("{before}{}", rest.split_once("-->").unwrap().1)
        };
        let lines = |text: &str| -> std::collections::BTreeSet<String> {
            text.lines()
                .filter(|line| line.starts_with("<property>") && !line.contains("<value/>"))
                .map(without_comment)
                .collect()
        };
        let (original, written) = (lines(&original), lines(&written));
        assert!(original.len() > 150);
        assert_eq!(original.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn a_job_includes_no_other_file() {
        let site = site(&[], "<configuration/>");
        let include =
            "<xi:include xmlns:xi=\"http://www.w3.org/2001/XInclude\" href=\"/etc/passwd\"/>";
        let conf = job(&site, &format!("{include}{}", property("a", "1"))).unwrap();
        assert_eq!(conf.get("a").as_deref(), Some("1"));
    }

    proptest! {
        #[test]
        fn values_survive_writing_and_reading(name in "[a-z.]{1,8}[<&>\"']?[a-z]", value in "[ \\t\\n\\r<>&\"'${}a-z\u{e4}\u{10348}]{0,20}\\PC?") {
            let site = site(&[], "<configuration/>");
            let mut conf = job(&site, "").unwrap();
            conf.set(&name, &value);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("job.xml");
            if let Ok(xml) = conf.to_xml() {
                std::fs::write(&path, xml).unwrap();
                let read = JobConf::read(&site, &path).unwrap();
                let raw = read.properties.raw().find(|raw| raw.0 == name).map(|raw| raw.1.value.as_str());
                // An empty value is read as none.
                prop_assert_eq!(raw.unwrap_or(""), value);
            }
        }
    }
}
