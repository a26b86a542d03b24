//! The file system that a path names, made when it is first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::hdfs::Hdfs;
use crate::job_files::JobTrackerFiles;
use crate::local::LocalFiles;
use crate::objects::{self, ObjectAccess, ObjectStore};
use crate::path::{FsPath, Root};
use crate::{Counters, ErrorKind, FileSystem, FileSystemSettings, FsError};

/// The most name nodes that are known at a time, and buckets.
const MAX_NAME_NODES: usize = 64;

/// The scheme of the files of jobs that a job tracker gives.
const JOB_TRACKER: &str = "corona";

/// Schemes that exist and are not supported, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("har", "Hadoop archives are not supported; unpack the archive, or use hadoop fs"),
    ("hftp", "reading over the name node's pages is not supported; use hdfs"),
    ("hsftp", "reading over the name node's pages is not supported; use hdfs"),
    ("webhdfs", "reading over the name node's pages is not supported; use hdfs"),
    ("viewfs", "mount tables of clients are not supported; name the file system itself"),
    ("raid", "files of HDFS RAID are not supported"),
    ("s3n", "write s3: in its place"),
    ("s3a", "write s3: in its place"),
    ("gs", OBJECTS),
    ("kfs", "is not supported; copy the files first"),
    ("ftp", DOWNLOADS),
    ("http", DOWNLOADS),
    ("https", DOWNLOADS),
    ("ramfs", "is not supported; copy the files first"),
];
const OBJECTS: &str = "only object stores with the protocol of S3 are supported; copy the files first, for example with aws s3 cp --recursive, to a \
                       directory that all machines see";
const DOWNLOADS: &str = "is not supported; copy the files first, for example with curl -O, to a directory that all machines see";

/// All file systems of one configuration.
#[derive(Debug)]
pub struct FileSystems {
    settings: Arc<FileSystemSettings>,
    default: Root,
    local: Arc<LocalFiles>,
    hdfs: Mutex<HashMap<Root, Arc<Hdfs>>>,
    buckets: Mutex<HashMap<Root, Arc<ObjectStore>>>,
    access: Access,
    counters: Arc<Counters>,
}

/// Whose keys of object stores are used.
#[derive(Clone, Debug)]
enum Access {
    /// Those of this process, when they are first needed.
    OfProcess,
    /// These, which came with a job.
    Given(Arc<ObjectAccess>),
    /// None: files of another user, whose keys are not known.
    Unknown,
}

impl FileSystems {
    /// As configured.
    ///
    /// # Errors
    /// The default file system is none.
    pub fn new(settings: FileSystemSettings) -> Result<FileSystems, FsError> {
        let default = Root::of_default(&settings.default_fs)?;
        let local = Arc::new(LocalFiles::new(&settings));
        Ok(FileSystems {
            settings: Arc::new(settings),
            default,
            local,
            hdfs: Mutex::default(),
            buckets: Mutex::default(),
            access: Access::OfProcess,
            counters: Arc::default(),
        })
    }

    /// The same as another user, with the rights of that user on HDFS. On this machine the rights are those
    /// of the process. Object stores want the keys that came with a job of the user. Connections are not shared.
    pub fn as_user(&self, user: &str, access: Option<Arc<ObjectAccess>>) -> FileSystems {
        let settings = FileSystemSettings {
            user: user.to_owned(),
            groups: vec![user.to_owned()],
            ..FileSystemSettings::clone(&self.settings)
        };
        FileSystems {
            settings: Arc::new(settings),
            default: self.default.clone(),
            local: self.local.clone(),
            hdfs: Mutex::default(),
            buckets: Mutex::default(),
            access: access.map_or(Access::Unknown, Access::Given),
            counters: self.counters.clone(),
        }
    }

    /// The same with the keys of object stores that came with a job, if any came.
    #[must_use]
    pub fn with_access(mut self, access: Option<ObjectAccess>) -> FileSystems {
        self.access = access.map_or(Access::Unknown, |access| Access::Given(Arc::new(access)));
        self
    }

    /// The access to object stores, if one of them has been named: others that work on the same files need it.
    ///
    /// # Errors
    /// No access can be used.
    pub fn used_access(&self) -> Result<Option<Arc<ObjectAccess>>, FsError> {
        match self.buckets.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            true => Ok(None),
            false => self.access().map(Some),
        }
    }

    fn access(&self) -> Result<Arc<ObjectAccess>, FsError> {
        match &self.access {
            Access::OfProcess => ObjectAccess::of_process().map(Arc::new),
            Access::Given(access) => Ok(access.clone()),
            Access::Unknown => {
                let message = "the job has brought no keys of object stores";
                Err(FsError::new(ErrorKind::Permission, "open", "s3:", message))
            }
        }
    }

    /// What is counted over all of them.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The file system of paths that name none.
    pub fn default_root(&self) -> &Root {
        &self.default
    }

    /// Reads a path as users write it: one without a file system is in the default one, a relative
    /// one below the user's home.
    pub fn resolve(&self, text: &str) -> Result<(Arc<dyn FileSystem>, FsPath), FsError> {
        self.of(&FsPath::parse(text)?)
    }

    /// The file system of a path, and the path in full.
    pub fn of(&self, path: &FsPath) -> Result<(Arc<dyn FileSystem>, FsPath), FsError> {
        // The directory of relative paths is the file system's business.
        let root = path.qualified_root(&self.default)?;
        let files: Arc<dyn FileSystem> = match root.scheme() {
            "file" => self.local.clone(),
            "hdfs" => self.name_node(&root, path)?,
            objects::SCHEME => self.bucket(&root)?,
            JOB_TRACKER => Arc::new(JobTrackerFiles::new(&root, &self.settings)?),
            scheme => {
                let known = REFUSED.iter().find(|(refused, _)| *refused == scheme);
                let why = known.map_or("there is no such file system here", |(_, why)| why);
                let message = format!("scheme {scheme}: {why}");
                return Err(FsError::new(ErrorKind::Unsupported, "open", path, message));
            }
        };
        let whole = path.qualified(&self.default, files.home().path())?;
        Ok((files, whole))
    }

    fn bucket(&self, root: &Root) -> Result<Arc<ObjectStore>, FsError> {
        if let Some(known) = self.buckets.lock().unwrap_or_else(PoisonError::into_inner).get(root) {
            return Ok(known.clone());
        }
        let store = Arc::new(ObjectStore::new(root, &*self.access()?, &self.settings)?);
        let mut known = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // One at least stays, so that it is known that there were some.
        if known.len() >= MAX_NAME_NODES {
            known.clear();
        }
        Ok(known.entry(root.clone()).or_insert(store).clone())
    }

    fn name_node(&self, root: &Root, path: &FsPath) -> Result<Arc<Hdfs>, FsError> {
        let mut known = self.hdfs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hdfs)) = known.iter().find(|(other, _)| other.is_same(root)) {
            return Ok(hdfs.clone());
        }
        // Unused ones can be made again.
        if known.len() >= MAX_NAME_NODES {
            known.retain(|_, hdfs| Arc::strong_count(hdfs) > 1);
        }
        if known.len() >= MAX_NAME_NODES {
            let message = format!("more than {MAX_NAME_NODES} name nodes are in use");
            return Err(FsError::new(ErrorKind::Invalid, "open", path, message));
        }
        let further = match root.is_same(&self.default) {
            true => self.settings.name_nodes.as_slice(),
            false => &[],
        };
        let hdfs = Hdfs::new(root, further, self.settings.clone(), self.counters.clone())?;
        let hdfs = Arc::new(hdfs);
        known.insert(root.clone(), hdfs.clone());
        Ok(hdfs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn systems(settings: FileSystemSettings) -> FileSystems {
        FileSystems::new(settings).unwrap()
    }

    fn on(default: &str) -> FileSystemSettings {
        FileSystemSettings {
            default_fs: default.to_owned(),
            user: "alice".to_owned(),
            ..FileSystemSettings::default()
        }
    }

    #[test]
    fn a_path_is_of_the_file_system_that_it_names() {
        let systems = systems(on("hdfs://nn:9000/"));
        for (text, expected) in [
            ("a", "hdfs://nn:9000/user/alice/a"),
            ("/a", "hdfs://nn:9000/a"),
            ("hdfs:///a", "hdfs://nn:9000/a"),
            ("hdfs://other/a", "hdfs://other/a"),
            ("file:///a", "file:/a"),
            ("corona://JT:8881/job_1/a", "corona://jt:8881/job_1/a"),
            ("../bob/a", "hdfs://nn:9000/user/bob/a"),
            ("../../a", "hdfs://nn:9000/a"),
        ] {
            assert_eq!(systems.resolve(text).unwrap().1.to_string(), expected);
        }
        let above = systems.resolve("../../../a").err().unwrap();
        assert!(above.to_string().contains("leads above the root"), "{above}");
        let one = systems.resolve("hdfs://NN:9000/x").unwrap().0;
        let other = systems.resolve("/y").unwrap().0;
        assert!(Arc::ptr_eq(&one, &other), "one client for one name node");
        let of_bob = systems.as_user("bob", None);
        let (theirs, home) = of_bob.resolve("a").unwrap();
        assert_eq!(home.to_string(), "hdfs://nn:9000/user/bob/a");
        assert!(!Arc::ptr_eq(&one, &theirs), "no connection is shared with another user");
    }

    #[test]
    fn a_relative_path_of_this_machine_starts_at_the_working_directory() {
        let systems = systems(on("file:///"));
        let here = std::env::current_dir().unwrap();
        let beside = here.with_file_name("a");
        for (text, expected) in
            [("a", here.join("a")), ("../a", beside.clone()), ("x/../../a", beside)]
        {
            let (_, path) = systems.resolve(text).unwrap();
            assert_eq!(path.to_string(), format!("file:{}", expected.display()), "{text}");
        }
    }

    #[test]
    fn unsupported_file_systems_are_refused_by_name() {
        let named = systems(on("hdfs://nn:9000/"));
        for scheme in ["har", "hftp", "viewfs", "s3n", "gs", "webhdfs", "what"] {
            let error = named.resolve(&format!("{scheme}://x/a")).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("scheme {scheme}: ")), "{error}");
        }
        let raid = "org.apache.hadoop.hdfs.DistributedRaidFileSystem";
        let cases = [
            (
                FileSystemSettings { hdfs_class: "com.x.Fs".to_owned(), ..on("hdfs://nn/") },
                "com.x.Fs",
            ),
            (FileSystemSettings { socks_server: "s:1".to_owned(), ..on("hdfs://nn/") }, "SOCKS"),
            (FileSystemSettings { is_secure: true, ..on("hdfs://nn/") }, "Kerberos"),
            (
                FileSystemSettings {
                    hdfs_class: raid.to_owned(),
                    hdfs_inner_class: "com.y.Fs".to_owned(),
                    ..on("hdfs://nn/")
                },
                "com.y.Fs",
            ),
        ];
        for (settings, named) in cases {
            let error = systems(settings).resolve("/a").err().unwrap();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.to_string().contains(named), "{error}");
        }
        let unknown = named.as_user("bob", None).resolve("s3://bucket/a").err().unwrap();
        assert!(unknown.to_string().contains("has brought no keys"), "{unknown}");
        assert_eq!(named.used_access().unwrap(), None);
        let incomplete = systems(on("file:///")).resolve("hdfs:/a").err().unwrap();
        assert!(incomplete.to_string().contains("no host"), "{incomplete}");
    }
}
