//! The arguments of a remote job tracker: the words that a task tracker passes to the
//! original's. Spec: mapreduce/05, mapreduce/04 §4.12.

use corona_hadoop::writables::{InetAddress, TaskAttemptId};
use corona_mapreduce::JobId;
use thiserror::Error;

/// The inputs of a remote job tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The job that it runs.
    pub job: JobId,
    /// The name under which the parent knows this job tracker.
    pub attempt: TaskAttemptId,
    /// Where the parent listens.
    pub parent: InetAddress,
    /// The name of this node, and the port of its task tracker's pages.
    pub node: Option<(String, String)>,
}

/// Why words are no arguments.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotArguments {
    /// Some are missing.
    #[error("expected JOB ATTEMPT PARENT_HOST PARENT_PORT [NODE_HOST NODE_HTTP_PORT]")]
    TooFew,
    /// One of them is not of its form.
    #[error("{word:?} is not {expected}")]
    Word {
        /// The argument, as it was given.
        word: String,
        /// What belongs in its place.
        expected: &'static str,
    },
    /// The attempt is one of another job.
    #[error("{0} does not belong to {1}")]
    OtherJob(TaskAttemptId, JobId),
}

impl Arguments {
    /// Reads the words. Those after the sixth are descriptions of failures, with which the original
    /// tests itself, or a number of the task tracker; they have no effect.
    ///
    /// # Errors
    /// The first word that is missing or not of its form.
    pub fn parse(words: &[String]) -> Result<Arguments, NotArguments> {
        let [job, attempt, host, port, rest @ ..] = words else {
            return Err(NotArguments::TooFew);
        };
        let wrong = |word: &str, expected| {
            let word = word.chars().take(200).collect();
            NotArguments::Word { word, expected }
        };
        let id: JobId = job.parse().map_err(|_| wrong(job, "the id of a job"))?;
        let attempt_id: TaskAttemptId =
            attempt.parse().map_err(|_| wrong(attempt, "the id of an attempt"))?;
        if attempt_id.job().to_string() != id.as_str() {
            return Err(NotArguments::OtherJob(attempt_id, id));
        }
        let port = port.parse().map_err(|_| wrong(port, "a port"))?;
        if host.is_empty() {
            return Err(wrong(host, "a host"));
        }
        let node = match rest {
            [node, http, ..] if !node.is_empty() => Some((node.clone(), http.clone())),
            _ => None,
        };
        let parent = InetAddress { host: host.clone(), port };
        Ok(Arguments { job: id, attempt: attempt_id, parent, node })
    }

    /// The name of this job tracker in the history of its job. Spec: mapreduce/05 §5.8.
    pub fn tracker(&self) -> String {
        match &self.node {
            Some((host, port)) => format!("{host}:{port}:{}", self.attempt),
            None => format!("null:null:{}", self.attempt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Arguments::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_words_of_the_recorded_job_tracker() {
        // As recorded, with the number that task trackers add.
        let line = "job_202611210044.1_0001 attempt_202611210044.1_0001_m_100003_0 localhost 33271 \
                    localhost 18061 -1731256069";
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.parent.to_string(), "localhost:33271");
        let tracker = "localhost:18061:attempt_202611210044.1_0001_m_100003_0";
        assert_eq!(arguments.tracker(), tracker);
        let (short, _) = line.split_once(" localhost 18061").unwrap();
        let arguments = parse(short).unwrap();
        assert_eq!(arguments.node, None);
        assert!(arguments.tracker().starts_with("null:null:attempt_"));
    }

    #[test]
    fn words_that_are_none_are_named() {
        let attempt = "attempt_20.1_0001_m_100000_0";
        for (line, told) in [
            ("job_20.1_0001".to_owned(), "expected JOB ATTEMPT"),
            (format!("../x {attempt} p 7"), "\"../x\" is not the id of a job"),
            ("job_20.1_0001 attempt p 7".to_owned(), "is not the id of an attempt"),
            (format!("job_20.1_0001 {attempt} p 70000"), "\"70000\" is not a port"),
            (format!("job_20.1_0002 {attempt} p 7"), "does not belong to job_20.1_0002"),
        ] {
            let error = parse(&line).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
