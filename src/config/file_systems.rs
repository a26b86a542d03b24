//! The settings of clients of file systems, and how they come from the keys. Spec: hdfs/01 §1.7.

use std::time::Duration;

use super::client::ClientSource;
use super::keys;
use super::problem::ConfigErrors;
use super::settings::SettingsReader;
use super::system::groups_of_process;
use super::typed::{self, Wrong};
use corona_model::files::FileSystemSettings;

/// Files that only clients of HDFS read, after the others.
const HDFS_FILES: [&str; 2] = ["hdfs-default.xml", "hdfs-site.xml"];

impl ClientSource<'_> {
    /// Reads the settings of file-system clients, from the files of HDFS as well. Errors: a file
    /// that cannot be read, or a wrong value of one of their keys.
    pub fn load_file_systems(&self) -> Result<FileSystemSettings, ConfigErrors> {
        let of_hdfs =
            self.conf_dir.into_iter().flat_map(|dir| HDFS_FILES.map(|file| dir.join(file)));
        let mut all: Vec<_> = of_hdfs.filter(|path| path.exists()).collect();
        all.extend_from_slice(self.further);
        ClientSource { further: &all, ..*self }.read(|reader| {
            let user = reader.user();
            reader.read_file_systems(user)
        })
    }
}

impl SettingsReader<'_> {
    pub(super) fn read_file_systems(mut self, user: String) -> FileSystemSettings {
        let ugi = self.text(&keys::FS_UGI);
        let mut ugi = ugi.split(',').map(|name| name.trim().to_owned());
        let configured = ugi.next().filter(|user| !user.is_empty());
        let groups = match configured {
            Some(_) => ugi.filter(|group| !group.is_empty()).collect(),
            None => groups_of_process(),
        };
        let name_nodes = [&keys::FS_NAME_0, &keys::FS_NAME_1].map(|key| self.text(key));
        let authority = |name: String| {
            let name = name.trim().trim_end_matches('/');
            name.strip_prefix("hdfs://").unwrap_or(name).to_owned()
        };
        let bytes_per_checksum = self.number(&keys::FS_SUM_BYTES);
        FileSystemSettings {
            default_fs: self.text(&keys::TT_DEFAULT_FS),
            name_nodes: name_nodes.into_iter().map(authority).filter(|at| !at.is_empty()).collect(),
            hdfs_class: self.text(&keys::FS_CLASS),
            hdfs_inner_class: self.text(&keys::FS_INNER_CLASS),
            socks_server: self.text(&keys::FS_SOCKS),
            is_secure: self.text(&keys::FS_SECURITY).trim().eq_ignore_ascii_case("kerberos"),
            user: configured.unwrap_or(user),
            groups,
            replication: self.number(&keys::FS_REPLICATION),
            block_bytes: self.value(&keys::FS_BLOCK, |text| {
                let bytes = typed::whole(text, 1, i64::MAX, "bytes")?.unsigned_abs();
                match bytes.is_multiple_of(u64::from(bytes_per_checksum)) {
                    true => Ok(bytes),
                    false => Err(Wrong::new(
                        "is no multiple of io.bytes.per.checksum",
                        format!("a multiple of {bytes_per_checksum}"),
                    )),
                }
            }),
            bytes_per_checksum,
            umask: self.umask(),
            packet_bytes: self.number(&keys::FS_PACKET),
            socket_timeout: self.span(&keys::FS_SOCKET_TIMEOUT),
            read_extension: self.span(&keys::FS_READ_EXTENSION),
            write_timeout: self.span(&keys::FS_WRITE_TIMEOUT),
            write_extension: self.span(&keys::FS_WRITE_EXTENSION),
            block_write_retries: self.number(&keys::FS_WRITE_RETRIES),
            locate_block_retries: self.number(&keys::FS_LOCATE_RETRIES),
            max_acquire_failures: self.number(&keys::FS_ACQUIRE_FAILURES),
            acquire_window: self.span(&keys::FS_ACQUIRE_WINDOW),
            call_timeout: self.span(&keys::FS_CALL_TIMEOUT),
            connect_patience: self.span(&keys::FS_CONNECT_PATIENCE),
            create_retries: self.number(&keys::FS_CREATE_RETRIES),
            create_pause: self.span(&keys::FS_CREATE_PAUSE),
            close_timeout: self.span(&keys::FS_CLOSE_TIMEOUT),
            safe_mode_wait: self.span(&keys::FS_SAFE_MODE_WAIT),
            lease_renewal: self.lease_renewal(),
            lease_renewal_retries: self.number(&keys::FS_LEASE_RETRIES),
            max_data_connections: self.number(&keys::FS_DATA_CONNECTIONS),
            max_name_node_connections: self.number(&keys::FS_NAME_CONNECTIONS),
            max_packet_bytes: self.number(&keys::FS_MAX_PACKET),
            object_patience: self.span(&keys::FS_OBJECT_PATIENCE),
            trash_minutes: self.number(&keys::FS_TRASH),
            buffer_dir: self.text(&keys::FS_BUFFER_DIR).into(),
        }
    }

    /// Half of the shorter limit.
    fn lease_renewal(&mut self) -> Duration {
        self.span(&keys::FS_SOFT_LEASE).min(self.span(&keys::FS_HARD_LEASE)) / 2
    }

    /// The old key is a decimal number and wins if it is set.
    fn umask(&mut self) -> u16 {
        let bits = |text: &str, radix, expected: &str| {
            let bits = u16::from_str_radix(text.trim(), radix).ok();
            let bits = bits.filter(|bits| *bits <= 0o777);
            bits.ok_or_else(|| Wrong::new("is no umask", expected))
        };
        match self.is_set(&keys::FS_OLD_UMASK) {
            true => self.value(&keys::FS_OLD_UMASK, |text| {
                bits(text, 10, "a decimal number such as 18, which is 022 in octal")
            }),
            false => {
                self.value(&keys::FS_UMASK, |text| bits(text, 8, "an octal number such as 022"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobConf;
    use crate::tests;

    fn load(overrides: &[(&str, &str)]) -> Result<FileSystemSettings, String> {
        let overrides = tests::overrides(overrides);
        let source = ClientSource { overrides: &overrides, ..ClientSource::default() };
        source.load_file_systems().map_err(|problems| problems.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_client() {
        let loaded = load(&[("hadoop.job.ugi", "alice,users,staff")]).unwrap();
        let expected = FileSystemSettings {
            user: "alice".to_owned(),
            groups: vec!["users".to_owned(), "staff".to_owned()],
            buffer_dir: "/tmp".into(),
            ..FileSystemSettings::default()
        };
        assert_eq!(loaded, expected);
        let own = load(&[]).unwrap();
        assert!(!own.user.is_empty());
    }

    #[test]
    fn every_key_of_files_is_read() {
        let default = load(&[("hadoop.job.ugi", "a")]).unwrap();
        let files = keys::ALL
            .iter()
            .filter(|key| matches!(key.usage, keys::Use::Files | keys::Use::FilesOwn));
        for key in files {
            let value = match key.name {
                "hadoop.job.ugi" => "b",
                "hadoop.security.authentication" => "kerberos",
                "dfs.umaskmode" => "077",
                "dfs.umask" => "63",
                "dfs.block.size" => "1024",
                "dfs.softlease.period" | "dfs.hardlease.period" => "20000",
                "corona.fs.max.packet.bytes" => "100000",
                "dfs.write.packet.size" => "4096",
                "corona.fs.buffer.dir" => "/buffer",
                _ if matches!(key.kind, keys::Kind::Int { .. } | keys::Kind::Long { .. }) => "7",
                _ => "x",
            };
            let value = if key.name == "io.bytes.per.checksum" { "1024" } else { value };
            let loaded = load(&[("hadoop.job.ugi", "a"), (key.name, value)]).unwrap();
            assert_ne!(loaded, default, "{}", key.name);
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        for (key, value, wrong) in [
            ("dfs.block.size", "1000", "is no multiple of io.bytes.per.checksum"),
            ("dfs.umaskmode", "999", "is no umask"),
            ("dfs.umask", "1000", "is no umask"),
            ("dfs.replication", "0", "is out of range"),
        ] {
            let told = load(&[(key, value)]).unwrap_err();
            assert!(told.contains(wrong) && told.contains(key), "{told}");
        }
    }

    #[test]
    fn files_of_hdfs_are_read_behind_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, value: &str| {
            let text = format!(
                "<configuration><property><name>dfs.replication</name><value>{value}</value></property></configuration>"
            );
            std::fs::write(dir.path().join(name), text).unwrap();
        };
        file("core-site.xml", "2");
        file("hdfs-site.xml", "1");
        let source = ClientSource { conf_dir: Some(dir.path()), ..ClientSource::default() };
        assert_eq!(source.load_file_systems().unwrap().replication, 1);
    }

    #[test]
    fn a_localised_job_has_them_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.xml");
        let job = |value: &str| {
            let text = format!(
                "<configuration><property><name>replicas</name><value>{value}</value></property>\
                 <property><name>dfs.replication</name><value>${{replicas}}</value></property></configuration>"
            );
            std::fs::write(&path, text).unwrap();
            JobConf::localised(&path).unwrap()
        };
        let files = [path.clone()];
        let source = ClientSource { further: &files, ..ClientSource::default() };
        assert_eq!(job("1").file_systems().unwrap(), source.load_file_systems().unwrap());
        assert_eq!(job("1").file_systems().unwrap().replication, 1);
        let told = job("0").file_systems().unwrap_err().to_string();
        assert!(told.contains("dfs.replication") && told.contains("is out of range"), "{told}");
    }
}
