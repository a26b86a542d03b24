//! A storage in memory that separates written from durable, and can fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use corona_model::random::Random;

use crate::{Storage, StorageError, StorageFile};

/// Bytes that a disk writes together: after a power cut each such piece is there or not.
const SECTOR: usize = 16;

#[derive(Clone, Debug, Default)]
struct Content {
    written: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct Disk {
    /// Files by number; names lead to them.
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Operations that still succeed; `None` is without a limit.
    operations_left: Option<u64>,
    operations: u64,
    /// The operation that was broken off was a write of which some bytes are there.
    partial: bool,
}

/// Shared by all who have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Disk>>);

struct MemoryFile {
    memory: Memory,
    number: usize,
}

impl Memory {
    /// After so many operations all further ones fail, as after a crash.
    pub(crate) fn fail_after(&self, operations: u64) {
        self.lock().operations_left = Some(operations);
    }

    /// Operations that changed something so far.
    pub(crate) fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// What a crash of the process leaves: all that was written.
    pub(crate) fn after_process_crash(&self) -> Memory {
        let disk = self.lock();
        let disk = Disk {
            files: disk.files.clone(),
            names: disk.names.clone(),
            durable_names: disk.durable_names.clone(),
            ..Disk::default()
        };
        Memory(Arc::new(Mutex::new(disk)))
    }

    /// What a power cut leaves: what was durable, and any part of what was not.
    pub(crate) fn after_power_cut(&self, random: &mut Random) -> Memory {
        let disk = self.lock();
        let mut files = Vec::new();
        for content in &disk.files {
            let Content { written, durable } = content;
            // What was written over is there or not.
            let is_over = written.len() == durable.len() && random.below(2) == 0;
            let durable = if is_over { written } else { durable };
            // The length of a file may be known before its bytes are there.
            let grown = written.len().saturating_sub(durable.len());
            let length = durable.len() + random.below(grown + 1);
            let mut left = durable.clone();
            left.truncate(written.len());
            while left.len() < length {
                let from = left.len();
                let to = (from + SECTOR).min(length);
                match random.below(3) {
                    0 => left.extend(vec![0; to - from]),
                    _ => left.extend(&written[from..to]),
                }
            }
            files.push(Content { written: left.clone(), durable: left });
        }
        // Each change of a name that was not made durable has happened or not; all or none of
        // them here, which is what renames within one directory look like on a journaling file
        // system.
        let names = if random.below(2) == 0 { &disk.names } else { &disk.durable_names };
        let disk =
            Disk { files, names: names.clone(), durable_names: names.clone(), ..Disk::default() };
        Memory(Arc::new(Mutex::new(disk)))
    }

    /// Changes a byte of a file.
    pub(crate) fn flip(&self, name: &str, at: usize) {
        self.damage(name, |bytes| bytes[at] ^= 0x55);
    }

    /// Changes the bytes of a file.
    pub(crate) fn damage(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.lock();
        let number = disk.names[name];
        damage(&mut disk.files[number].written);
        disk.files[number].durable = disk.files[number].written.clone();
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// An operation that changes something, if it may still be made.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Disk) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut disk = self.lock();
        disk.operations += 1;
        match &mut disk.operations_left {
            Some(0) => return Err(refused("change")),
            Some(left) => *left -= 1,
            None => {}
        }
        change(&mut disk)
    }
}

fn refused(operation: &'static str) -> StorageError {
    let source = std::io::Error::other("no");
    StorageError::System { path: "memory".into(), operation, source }
}

impl Storage for Memory {
    fn list(&self) -> Result<Vec<String>, StorageError> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        let disk = self.lock();
        let number = disk.names.get(name).ok_or_else(|| refused("read"))?;
        Ok(disk.files[*number].written.clone())
    }

    fn create(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        let number = self.change(|disk| {
            if disk.names.contains_key(name) {
                return Err(refused("create"));
            }
            disk.files.push(Content::default());
            let number = disk.files.len() - 1;
            disk.names.insert(name.to_owned(), number);
            Ok(number)
        })?;
        Ok(Arc::new(MemoryFile { memory: self.clone(), number }))
    }

    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        let number = *self.lock().names.get(name).ok_or_else(|| refused("append"))?;
        Ok(Arc::new(MemoryFile { memory: self.clone(), number }))
    }

    fn truncate(&self, name: &str, length: u64) -> Result<(), StorageError> {
        self.change(|disk| {
            let number = *disk.names.get(name).ok_or_else(|| refused("truncate"))?;
            let content = &mut disk.files[number];
            content.written.truncate(length as usize);
            content.durable = content.written.clone();
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.change(|disk| {
            let number = disk.names.remove(from).ok_or_else(|| refused("rename"))?;
            disk.names.insert(to.to_owned(), number);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.change(|disk| disk.names.remove(name).map(|_| ()).ok_or_else(|| refused("remove")))
    }

    fn replace(&self, name: &str, bytes: &[u8], durably: bool) -> Result<(), StorageError> {
        self.change(|disk| {
            let Disk { files, names, durable_names, .. } = disk;
            let number = *names.entry(name.to_owned()).or_insert_with(|| {
                files.push(Content::default());
                files.len() - 1
            });
            let content = &mut files[number];
            content.written.resize(content.written.len().max(bytes.len()), 0);
            content.written[..bytes.len()].copy_from_slice(bytes);
            if durably {
                content.durable = content.written.clone();
                durable_names.insert(name.to_owned(), number);
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.change(|disk| {
            disk.durable_names = disk.names.clone();
            Ok(())
        })
    }
}

impl StorageFile for MemoryFile {
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        let mut disk = self.memory.lock();
        disk.operations += 1;
        let number = self.number;
        match &mut disk.operations_left {
            Some(0) => {
                // Some of it arrives, once.
                if !disk.partial {
                    disk.partial = true;
                    let half = bytes.len() / 2;
                    disk.files[number].written.extend(&bytes[..half]);
                }
                return Err(refused("write"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        disk.files[number].written.extend(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        let number = self.number;
        self.memory.change(|disk| {
            disk.files[number].durable = disk.files[number].written.clone();
            Ok(())
        })
    }
}
