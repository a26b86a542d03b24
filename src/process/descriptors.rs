//! The descriptors that the process may open. Each open file and each connection is one. [`super::budget`]
//! distributes them.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a thread that finds no free descriptor waits before it looks again, and how often it does.
const PAUSE: Duration = Duration::from_millis(50);
const TRIES: u32 = 200;

/// Raises the soft limit to the hard limit; the soft limit of many systems is 1,024. Returns the limit that
/// holds now, none if there is none.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, "the limit of open files and connections cannot be raised");
            current
        }
    }
}

/// Whether an operation failed only because no descriptor was free.
pub fn is_lack(error: &io::Error) -> bool {
    const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
    const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Opens a file on a thread that may block, again while no descriptor is free, for at most ten seconds.
///
/// # Errors
/// Those of `open`.
pub fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..TRIES {
        match open() {
            Err(error) if is_lack(&error) => sleep(PAUSE),
            result => return result,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_waited_for_and_other_errors_are_not() {
        let mut errors = vec![24, 23];
        let opened = patiently(|| match errors.pop() {
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Ok(7),
        });
        assert_eq!(opened.unwrap(), 7);
        let mut tries = 0;
        let refused = patiently(|| {
            tries += 1;
            Err::<(), _>(io::Error::from_raw_os_error(13))
        });
        assert_eq!((refused.unwrap_err().raw_os_error(), tries), (Some(13), 1));
    }
}
