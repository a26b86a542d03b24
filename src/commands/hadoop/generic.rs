//! The options that all of the original's tools have, and where they find the cluster.

use std::collections::VecDeque;
use std::path::PathBuf;

use corona::config::{ClientSource, HostPort};

use super::super::arguments::{conf_dir_of_client, parse_override};
use super::names;
use super::table::{Fate, GENERIC, Opt};

/// What the generic options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Generic {
    pub(in crate::commands) conf_dir: Option<PathBuf>,
    /// Property files that are read after those of the directory.
    pub(in crate::commands) conf_files: Vec<PathBuf>,
    /// Keys and values that override the files.
    pub(in crate::commands) settings: Vec<(String, String)>,
    pub(in crate::commands) job_tracker: Option<HostPort>,
    pub(in crate::commands) files: Vec<String>,
    pub(in crate::commands) archives: Vec<String>,
}

impl Generic {
    /// Takes the options that stand first.
    ///
    /// # Errors
    /// A value is missing or wrong; the text says which.
    pub(in crate::commands) fn take_all(
        &mut self,
        words: &mut VecDeque<String>,
    ) -> Result<(), String> {
        while self.take(words)? {}
        Ok(())
    }

    /// Takes the first word if it is such an option, and its value. False: it is another word.
    pub(in crate::commands) fn take(
        &mut self,
        words: &mut VecDeque<String>,
    ) -> Result<bool, String> {
        let Some(word) = words.front() else { return Ok(false) };
        // The value may follow -D at once.
        let joined = word.strip_prefix("-D").filter(|rest| !rest.is_empty()).map(str::to_owned);
        let name = if joined.is_some() { "-D" } else { word };
        let Some(option) = GENERIC.iter().find(|option| option.name == name) else {
            return Ok(false);
        };
        words.pop_front();
        let value = joined.or_else(|| words.pop_front());
        let value = value.ok_or_else(|| format!("{}: expected {}", option.name, option.value))?;
        self.set(option, &value).map_err(|wrong| format!("{} {value}: {wrong}", option.name))?;
        Ok(true)
    }

    fn set(&mut self, option: &Opt, value: &str) -> Result<(), String> {
        match (option.name, option.fate) {
            ("-conf", _) => {
                if !PathBuf::from(value).is_file() {
                    return Err("there is no such file".to_owned());
                }
                self.conf_files.push(value.into());
            }
            ("-D", _) => {
                let (key, value) = parse_override(value)?;
                self.set_key(&key, &value)?;
            }
            ("-fs", _) => self.set_key("fs.default.name", value)?,
            ("-jt", _) => self.set_key("mapred.job.tracker", value)?,
            ("-files", _) => self.files.extend(listed(value)),
            ("-archives", _) => self.archives.extend(listed(value)),
            (_, Fate::NoMeaning(_)) => {}
            (_, Fate::Works(_) | Fate::Refused(_)) => return Err("is not known here".to_owned()),
        }
        Ok(())
    }

    /// Sets a key, under its name of this version.
    ///
    /// # Errors
    /// The job tracker is `local`, or not an address.
    pub(in crate::commands) fn set_key(&mut self, key: &str, value: &str) -> Result<(), String> {
        let key = names::of_this_version(key);
        match key {
            "mapred.job.tracker" if value == "local" => {
                return Err("no job runs in the client; name a job tracker".to_owned());
            }
            "mapred.job.tracker" => {
                let parsed = value.parse();
                self.job_tracker = Some(parsed.map_err(|wrong| format!("{wrong}"))?);
            }
            "fs.default.name" => self.settings.push((key.to_owned(), file_system(value))),
            _ => self.settings.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Finds the directory of the configuration, if none is named: `$HADOOP_CONF_DIR`, else that of the
    /// cluster of `corona login`.
    pub(in crate::commands) fn find_directory(&mut self) -> anyhow::Result<()> {
        let found = conf_dir_of_client(self.conf_dir.take(), |name| std::env::var_os(name))?;
        self.conf_dir = found;
        Ok(())
    }

    /// The source of settings.
    pub(in crate::commands) fn source(&self) -> ClientSource<'_> {
        ClientSource {
            conf_dir: self.conf_dir.as_deref(),
            further: &self.conf_files,
            overrides: &self.settings,
        }
    }
}

/// The items of a list with commas between.
fn listed(value: &str) -> impl Iterator<Item = String> + '_ {
    value.split(',').filter(|item| !item.is_empty()).map(str::to_owned)
}

/// The default file system that a short form of its name means.
fn file_system(value: &str) -> String {
    match value {
        "local" => "file:///".to_owned(),
        address if !address.contains("://") && !address.contains('/') => {
            format!("hdfs://{address}/")
        }
        uri => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(words: &[&str]) -> Result<(Generic, Vec<String>), String> {
        let mut words: VecDeque<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut generic = Generic::default();
        generic.take_all(&mut words)?;
        Ok((generic, words.into()))
    }

    #[test]
    fn generic_options_end_at_the_first_other_word() {
        let (generic, rest) = taken(&[
            "-D",
            "a=b c",
            "-Dmapreduce.job.reduces=3",
            "-fs",
            "nn:8020",
            "-jt",
            "jt:8021",
            "-files",
            "x.py,hdfs://nn/y#z",
            "-libjars",
            "a.jar",
            "-ls",
            "-D",
            "c=d",
        ])
        .unwrap();
        assert_eq!(rest, ["-ls", "-D", "c=d"]);
        let settings: Vec<(&str, &str)> =
            generic.settings.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(
            settings,
            [("a", "b c"), ("mapred.reduce.tasks", "3"), ("fs.default.name", "hdfs://nn:8020/")]
        );
        assert_eq!(generic.job_tracker.unwrap().to_string(), "jt:8021");
        assert_eq!(generic.files, ["x.py", "hdfs://nn/y#z"]);
        assert_eq!(taken(&["-fs", "local"]).unwrap().0.settings[0].1, "file:///");
    }

    #[test]
    fn wrong_generic_options_are_named() {
        for (words, expected) in [
            (&["-D"][..], "-D: expected <property=value>"),
            (&["-D", "x"], "-D x: expected key=value"),
            (&["-files"], "-files: expected <paths>"),
            (&["-jt", "local"], "-jt local: no job runs in the client; name a job tracker"),
            (&["-conf", "/none.xml"], "-conf /none.xml: there is no such file"),
        ] {
            assert_eq!(taken(words), Err(expected.to_owned()), "{words:?}");
        }
    }
}
