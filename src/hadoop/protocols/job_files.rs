//! Calls by which clients and task trackers of this program send and fetch the files of jobs where the
//! machines of a cluster share no directory. The original has no such protocol.
//!
//! A path is absolute: the id of a job, and a path in the job's directory. What is below [`OUTPUT`] there is
//! written by the tasks of the job while it runs, and kept after its end until its user deletes it.

use super::macros::protocol;
use crate::writables::{FilePiece, JobFilePage, JobFileStatus};

/// The class of the error of a job tracker that cannot answer for the moment.
pub const BUSY: &str = "java.util.concurrent.TimeoutException";

/// The name of the directory of a job's output.
pub const OUTPUT: &str = "output";

protocol! {
    /// The job tracker as a keeper of the files of jobs.
    pub trait JobFiles as "corona.JobFiles", version 1, client JobFilesClient {
        /// A file or a directory; none if there is none.
        "status" fn status(path: String) -> Option<JobFileStatus>;

        /// Entries of a directory whose names come behind `after`, if it names one.
        "list" fn list(path: String, after: Option<String>) -> JobFilePage;

        /// Bytes of a file from a place on, at most so many; fewer only at the end of the file.
        "read" fn read(path: String, position: i64, most: i32) -> FilePiece;

        /// Makes an empty file, and directories above it. With `overwrite` there may be one already. A call
        /// with the `id` of an earlier one is the same call, which arrives late, and changes nothing.
        "create" fn create(path: String, overwrite: bool, id: i64) -> ();

        /// Writes at a place of a file that is not behind its end.
        "write" fn write(path: String, position: i64, piece: FilePiece) -> ();

        /// Gives a file of a job another name in the same job, which must be free.
        "rename" fn rename(from: String, to: String) -> ();

        /// Makes a directory, and those above it.
        "mkdirs" fn mkdirs(path: String) -> ();

        /// Deletes a file, or a directory with all that is in it. False: there was none.
        "delete" fn delete(path: String) -> bool;

        /// Which machines do not see the file `marker`, whose content is `token`, or these files with at
        /// least these lengths: a sentence, or none if all do.
        "unseen" fn unseen(
            marker: String,
            token: String,
            files: Vec<String>,
            lengths: Vec<i64>
        ) -> Option<String>;

        /// What nodes and clients need to know of the cluster that they join, as JSON; none of one that was
        /// not made by `corona head`.
        "cluster" fn cluster() -> Option<String>;
    }
}
