//! The history and the configuration of a job, from the files that it writes.

use corona_api::jobs::JobProperty;
use corona_filesystem::FsError;
use corona_mapreduce::JobId;

use super::sources::PageSources;

/// The largest file that is shown, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Placeholder for a redacted value.
const HIDDEN: &str = "(hidden)";

/// Why a file of a job cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoFile {
    #[error("No history of this job is known.")]
    Unknown,
    #[error("The file has {0} bytes, more than a page shows. It is {1}.")]
    TooLarge(u64, String),
    #[error("The file cannot be read: {0}")]
    Files(#[from] FsError),
}

impl PageSources {
    /// The history of a job as far as it is written.
    pub(super) async fn history_text(&self, job: &JobId) -> Result<String, NoFile> {
        self.job_file(job, job.as_str()).await
    }

    /// The properties of a job.
    pub(super) async fn job_properties(&self, job: &JobId) -> Result<Vec<JobProperty>, NoFile> {
        Ok(properties(&self.job_file(job, &format!("{job}_conf.xml")).await?))
    }

    async fn job_file(&self, job: &JobId, name: &str) -> Result<String, NoFile> {
        let log_path = self.sessions.get(job).ok_or(NoFile::Unknown)?.log_path;
        // It moves when the job ends.
        let mut last = NoFile::Unknown;
        for path in [
            format!("{log_path}/{name}"),
            format!("{log_path}/done/{name}"),
            format!("{log_path}/{name}"),
        ] {
            let (files, at) = self.files.resolve(&path)?;
            let mut reader = match files.open(&at).await {
                Ok(reader) => reader,
                Err(error) => {
                    last = error.into();
                    continue;
                }
            };
            let length = reader.length();
            if length > MAX_BYTES {
                return Err(NoFile::TooLarge(length, path));
            }
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            reader.read_exact_at(0, &mut bytes).await?;
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        Err(last)
    }
}

/// The properties in a file of the form that this program writes: one in each line. Those whose names
/// say that they are secret are hidden.
fn properties(xml: &str) -> Vec<JobProperty> {
    let part = |text: &str, name: &str| -> Option<String> {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(unescaped(value))
    };
    let property = |text: &str| {
        let name = part(text, "name")?;
        let value = part(text, "value")?;
        let value = if is_secret(&name) && !value.is_empty() { HIDDEN.to_owned() } else { value };
        Some(JobProperty { name, value })
    };
    xml.split("<property>").skip(1).filter_map(property).collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["password", "passwd", "secret", "accesskey", "kill.token", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

/// Text of XML as it was. What is no escape stays.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let Some((escape, after)) = from.get(1..).and_then(|from| from.split_once(';')) else {
            rest = from;
            break;
        };
        let number =
            |text: &str, radix| u32::from_str_radix(text, radix).ok().and_then(char::from_u32);
        let character = match escape {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match (escape.strip_prefix("#x"), escape.strip_prefix('#')) {
                (Some(hex), _) => number(hex, 16),
                (None, Some(decimal)) => number(decimal, 10),
                (None, None) => None,
            },
        };
        match character {
            Some(character) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push('&');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let job_xml = dir.path().join("job.xml");
        let written = "<configuration><property><name>a&lt;b</name><value>x &amp; \"y\"\nz</value></property>\
             <property><name>my.Password</name><value>hunter2</value></property></configuration>";
        std::fs::write(&job_xml, written).unwrap();
        let loaded = corona_config::Source::default().load_job_tracker().unwrap();
        let conf = corona_config::JobConf::read(&loaded.site, &job_xml).unwrap().to_xml().unwrap();
        let found = properties(&conf);
        let value =
            |name: &str| found.iter().find(|it| it.name == name).map(|it| it.value.as_str());
        assert_eq!(value("a<b"), Some("x & \"y\"\nz"));
        assert_eq!(value("my.Password"), Some(HIDDEN));
        assert!(!format!("{found:?}").contains("hunter2"));
    }

    #[test]
    fn escapes_are_undone_once_and_others_stay() {
        for (text, plain) in [
            ("", ""),
            ("&lt;&amp;lt;&#65;&#x42;", "<&lt;AB"),
            ("a & b &c; &#xD800; &", "a & b &c; &#xD800; &"),
            ("&", "&"),
        ] {
            assert_eq!(unescaped(text), plain, "{text}");
        }
        assert_eq!(properties("<property><name>a</name></property><property>"), []);
    }
}
