//! The distributed cache: files and archives that tasks share, each copied once.
//!
//! An entry is held while a [`Held`] of it exists. When the entries of a local directory exceed
//! their limits, unheld ones are deleted, the longest unused first. Spec: mapreduce/04 §4.4.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::unpack::{Kind, Limits, make_accessible, unpack};
use super::{LocaliseError, Slot, blocking, make_dir};
use crate::deletion::Deletion;
use crate::job_files::{JobFiles, Location};
use crate::layout;
use crate::local_dirs::{LocalDirs, any_number};
use corona_filesystem::write_checksums;

/// Bytes of an archive that one of its checksums covers: the default of `io.bytes.per.checksum`.
const BYTES_PER_CHECKSUM: u32 = 512;
/// The most entries that are known at a time, held or not.
const MAX_ENTRIES: usize = 100_000;

/// The distributed cache of a task tracker.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<CacheCore>,
}

struct CacheCore {
    dirs: Arc<LocalDirs>,
    files: Arc<dyn JobFiles>,
    deletion: Deletion,
    limits: Limits,
    entries: Mutex<HashMap<Key, Arc<Entry>>>,
    uses: AtomicU64,
}

/// One version of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    location: Location,
    /// When it was last changed; `None` for one that never is.
    modified_ms: Option<i64>,
    is_archive: bool,
}

#[derive(Debug, Default)]
struct Entry {
    slot: Slot<Local>,
    /// The number of the last use among all.
    used: AtomicU64,
    /// The place and size of the copy, once it is there: the local directory, its own directory in
    /// it, and bytes.
    taken: Mutex<Option<(PathBuf, PathBuf, u64)>>,
}

/// An entry on this machine.
#[derive(Clone, Debug)]
struct Local {
    path: PathBuf,
}

/// A file, or the directory of an unpacked archive, that stays while this lives.
#[derive(Clone)]
pub struct Held {
    /// Where it is.
    pub path: PathBuf,
    _entry: Arc<Entry>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.path).finish()
    }
}

/// A file of the cache, for the program that takes the place of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFile {
    location: String,
    modified_ms: Option<i64>,
    is_archive: bool,
    path: PathBuf,
    /// The local directory, its own directory in it, and the used space in bytes.
    taken: (PathBuf, PathBuf, u64),
    used: u64,
}

impl Cache {
    /// All files that are here, by their last use.
    pub(super) fn hand_over(&self) -> Vec<HandedFile> {
        let of = |(key, entry): (&Key, &Arc<Entry>)| {
            // One that is being copied is copied again.
            let path = entry.slot.try_lock().ok()?.as_ref()?.path.clone();
            Some(HandedFile {
                location: key.location.to_string(),
                modified_ms: key.modified_ms,
                is_archive: key.is_archive,
                path,
                taken: entry.taken()?,
                used: entry.used.load(Ordering::Relaxed),
            })
        };
        let mut files: Vec<HandedFile> = self.lock().iter().filter_map(of).collect();
        files.sort_by_key(|file| file.used);
        files
    }

    /// Takes files over that a former program has handed over, and deletes what else it has left, except where one of
    /// the held ones is.
    pub(super) fn take_over(&self, files: &[HandedFile], held: &[&PathBuf]) {
        let mut entries = self.lock();
        let mut own = HashSet::new();
        for file in files {
            let Ok(location) = Location::from_path(&file.location) else { continue };
            let HandedFile { modified_ms, is_archive, .. } = *file;
            let local = Local { path: file.path.clone() };
            let entry = Entry {
                slot: Arc::new(tokio::sync::Mutex::new(Some(local))),
                used: AtomicU64::new(file.used),
                taken: Mutex::new(Some(file.taken.clone())),
            };
            self.shared.uses.fetch_max(file.used.saturating_add(1), Ordering::Relaxed);
            entries.insert(Key { location, modified_ms, is_archive }, Arc::new(entry));
            own.extend(file.taken.1.file_name().map(ToOwned::to_owned));
        }
        for dir in self.shared.dirs.all(&layout::cache()) {
            let left = std::fs::read_dir(dir).into_iter().flatten().flatten();
            for left in left.filter(|left| !own.contains(&left.file_name())) {
                let path = left.path();
                if !held.iter().any(|held| held.starts_with(&path)) {
                    self.shared.discard(&path);
                }
            }
        }
    }

    /// Holds a file that is here at this path.
    pub(super) fn held_at(&self, path: &Path) -> Option<Held> {
        let is_there = |entry: &&Arc<Entry>| {
            let slot = entry.slot.try_lock();
            slot.is_ok_and(|slot| slot.as_ref().is_some_and(|local| local.path == path))
        };
        let entry = self.lock().values().find(is_there).cloned()?;
        Some(Held { path: path.to_owned(), _entry: entry })
    }

    pub(super) fn new(
        dirs: Arc<LocalDirs>,
        files: Arc<dyn JobFiles>,
        deletion: Deletion,
        limits: Limits,
    ) -> Self {
        let (entries, uses) = (Mutex::default(), AtomicU64::new(0));
        Cache { shared: Arc::new(CacheCore { dirs, files, deletion, limits, entries, uses }) }
    }

    /// A file, copied if this version of it is not here. `modified_ms` is when it must have been
    /// changed last; `None` if its name identifies the version. An archive is unpacked into a
    /// directory of its name, beside itself.
    pub async fn get(
        &self,
        location: &Location,
        modified_ms: Option<i64>,
        is_archive: bool,
    ) -> Result<Held, LocaliseError> {
        let key = Key { location: location.clone(), modified_ms, is_archive };
        let entry = self.entry(&key)?;
        let mut slot = entry.slot.clone().lock_owned().await;
        if let Some(local) = &*slot {
            return Ok(Held { path: local.path.clone(), _entry: entry });
        }
        let (shared, theirs) = (self.shared.clone(), entry.clone());
        let copying = tokio::spawn(async move {
            let local = shared.copy(&key, &theirs).await?;
            Ok(slot.insert(local).path.clone())
        });
        let held = match copying.await.unwrap_or(Err(LocaliseError::Stopped)) {
            Ok(path) => Ok(Held { path, _entry: entry }),
            Err(error) => {
                drop(entry);
                Err(error)
            }
        };
        self.make_room();
        held
    }

    fn entry(&self, key: &Key) -> Result<Arc<Entry>, LocaliseError> {
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(key) {
            let (what, limit) = ("files in the distributed cache", MAX_ENTRIES);
            return Err(LocaliseError::TooMany { what, limit });
        }
        let entry = entries.entry(key.clone()).or_default().clone();
        entry.used.store(self.shared.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(entry)
    }

    /// Removes entries that are not held while a local directory exceeds its limits.
    fn make_room(&self) {
        let mut discarded = Vec::new();
        {
            let mut entries = self.lock();
            // Copies that failed leave an entry that holds nothing.
            entries.retain(|_, entry| Arc::strong_count(entry) > 1 || entry.taken().is_some());
            let mut sums: HashMap<PathBuf, (u64, usize)> = HashMap::new();
            for (dir, _, bytes) in entries.values().filter_map(|entry| entry.taken()) {
                let sum = sums.entry(dir).or_default();
                *sum = (sum.0.saturating_add(bytes), sum.1 + 1);
            }
            let settings = self.shared.dirs.settings();
            let exceeds =
                |sum: &(u64, usize)| sum.0 > settings.cache_bytes || sum.1 > settings.cache_entries;
            if !sums.values().any(exceeds) {
                return;
            }
            let mut free: Vec<(u64, Key)> = entries
                .iter()
                .filter(|(_, entry)| Arc::strong_count(entry) == 1)
                .map(|(key, entry)| (entry.used.load(Ordering::Relaxed), key.clone()))
                .collect();
            free.sort_by_key(|(used, _)| *used);
            for (_, key) in free {
                let Some((dir, own, bytes)) = entries.get(&key).and_then(|entry| entry.taken())
                else {
                    continue;
                };
                let Some(sum) = sums.get_mut(&dir).filter(|sum| exceeds(sum)) else { continue };
                *sum = (sum.0.saturating_sub(bytes), sum.1.saturating_sub(1));
                entries.remove(&key);
                discarded.push(own);
            }
        }
        for own in discarded {
            self.shared.discard(&own);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Entry>>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn taken(&self) -> Option<(PathBuf, PathBuf, u64)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CacheCore {
    async fn copy(&self, key: &Key, entry: &Entry) -> Result<Local, LocaliseError> {
        let status = self.files.status(&key.location).await?;
        if key.modified_ms.is_some_and(|expected| !is_same_time(expected, status.modified_ms)) {
            return Err(LocaliseError::Changed(key.location.clone()));
        }
        let number = any_number().cast_signed().to_string();
        let below = layout::cache().join(number);
        let relative = below.join(name_in_cache(&key.location));
        // The contents of the archive are beside it.
        let file = match key.is_archive {
            true => relative.join(key.location.name()),
            false => relative.clone(),
        };
        let dirs = self.dirs.clone();
        let place = blocking(move || Ok(dirs.for_write(&file, Some(status.bytes))?)).await?;
        let Some(dir) = self.dirs.usable().into_iter().find(|dir| place.starts_with(dir)) else {
            return Err(LocaliseError::Stopped);
        };
        let own = dir.join(below);
        let copied = self.copy_to(key, &place, &own).await;
        match copied {
            Ok(bytes) => {
                let path = dir.join(relative);
                let taken = Some((dir, own, bytes));
                *entry.taken.lock().unwrap_or_else(PoisonError::into_inner) = taken;
                Ok(Local { path })
            }
            Err(error) => {
                self.discard(&own);
                Err(error)
            }
        }
    }

    /// Copies and unpacks, and returns the used space.
    async fn copy_to(&self, key: &Key, place: &Path, own: &Path) -> Result<u64, LocaliseError> {
        self.files.fetch(&key.location, place).await?;
        let kind = Kind::of(key.location.name()).filter(|_| key.is_archive);
        let (limits, place, own) = (self.limits, place.to_owned(), own.to_owned());
        blocking(move || {
            let dir = place.parent().unwrap_or(&own).to_owned();
            if let Some(kind) = kind {
                // As the original's copy leaves it, for jobs that list the directory.
                write_checksums(&place, BYTES_PER_CHECKSUM)
                    .map_err(|error| LocaliseError::Io { path: place.clone(), error })?;
                unpack(&place, kind, &dir, &limits)?;
            }
            make_accessible(&own).map_err(|error| LocaliseError::Io { path: own, error })
        })
        .await
    }

    fn discard(&self, own: &Path) {
        // Moving aside is short, and mostly happens beside a copy that is not.
        if let Err(error) = self.deletion.discard(own) {
            tracing::warn!(path = %own.display(), %error, "cannot delete a cached file");
        }
    }
}

/// Host and path, as the original lays out its cache.
fn name_in_cache(location: &Location) -> PathBuf {
    let root = location.host().or(location.scheme()).unwrap_or("file");
    let root: String = root.chars().filter(|c| !matches!(c, '/' | '\0')).collect();
    let mut name = PathBuf::from(if root.trim_matches('.').is_empty() { "file" } else { &root });
    name.extend(location.path().split('/').filter(|part| !matches!(*part, "" | ".")));
    name
}

/// Some clients know times of files to the second only.
fn is_same_time(expected_ms: i64, found_ms: i64) -> bool {
    expected_ms == found_ms
        || (expected_ms % 1000 == 0 && expected_ms.div_euclid(1000) == found_ms.div_euclid(1000))
}

/// Makes a link to something in the cache; a name that is not that of one file is refused.
pub(super) fn link(held: &Held, work: &Path, name: &str) -> Result<(), LocaliseError> {
    let path = work.join(name);
    let failed = |error| LocaliseError::Io { path: path.clone(), error };
    let mut parts = Path::new(name).components();
    let (Some(std::path::Component::Normal(_)), None) = (parts.next(), parts.next()) else {
        let wrong =
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "is not a valid name of a link");
        return Err(failed(wrong));
    };
    make_dir(work)?;
    match std::os::unix::fs::symlink(&held.path, &path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_original() {
        let cases = [
            ("hdfs://nn:8020/a/b.jar", "nn/a/b.jar"),
            ("file:/a/b", "file/a/b"),
            ("/a//./b", "file/a/b"),
            ("hdfs://..:1/a", "file/a"),
        ];
        for (location, expected) in cases {
            let location = Location::from_path(location).unwrap();
            assert_eq!(name_in_cache(&location), PathBuf::from(expected));
        }
    }

    #[test]
    fn times_to_the_second_are_the_same() {
        let cases =
            [(1234, 1234, true), (1000, 1999, true), (1000, 2000, false), (1001, 1002, false)];
        for (expected, found, same) in cases {
            assert_eq!(is_same_time(expected, found), same, "{expected} {found}");
        }
    }
}
