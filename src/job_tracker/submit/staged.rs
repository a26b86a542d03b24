//! The files of a job that its client has put into the directory of the job. They are read with rights that the
//! client does not have, so links are refused, and sizes are bounded.

use corona_filesystem::{ErrorKind, FileSystems, FsError};

/// The largest `job.xml`, in bytes.
pub(crate) const MAX_CONF_BYTES: u64 = 16 << 20;
/// Its name, and that of the split file, in the system directory and here.
pub(crate) const CONF: &str = "job.xml";
pub(crate) const SPLITS: &str = "job.split";

/// A whole file that a client has put into the directory of its job, of at most so many bytes.
pub(crate) async fn read_staged(
    files: &FileSystems,
    directory: &str,
    name: &str,
    most: u64,
) -> Result<Vec<u8>, FsError> {
    let (files, directory) = files.resolve(directory)?;
    let path = directory.join(name);
    let mut reader = files.open_staged(&directory, name).await?;
    let length = reader.length();
    if length > most {
        let message = format!("it has {length} bytes; at most {most} are allowed");
        return Err(FsError::new(ErrorKind::Invalid, "read", &path, message));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    reader.read_exact_at(0, &mut bytes).await?;
    Ok(bytes)
}
