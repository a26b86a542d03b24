//! Which files of attempts stay when they are not needed any more. Pure.

use regex::RegexBuilder;

use super::LocaliseError;
use crate::ids::AttemptId;
use crate::table::Keep;
use corona_config::{JobConf, keys};

/// Memory for the compiled pattern of a job, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The files of an attempt that stay, as the configuration of its job wants it.
///
/// Errors: the pattern is no regular expression. As in the original the attempt fails then.
pub(super) fn keep(conf: &JobConf, id: &AttemptId) -> Result<Keep, LocaliseError> {
    let keeps_failed = conf.is_true(&keys::JOB_KEEP_FAILED);
    let Some(pattern) = conf.text_if_set(&keys::JOB_KEEP_PATTERN) else {
        return Ok(if keeps_failed { Keep::Failed } else { Keep::Nothing });
    };
    // The whole name has to match.
    let whole =
        RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MAX_PATTERN_BYTES).build();
    let whole = whole.map_err(|error| LocaliseError::Pattern {
        key: keys::JOB_KEEP_PATTERN.name,
        why: error.to_string(),
    })?;
    Ok(match whole.is_match(id.as_str()) {
        true => Keep::All,
        false if keeps_failed => Keep::Failed,
        false => Keep::Job,
    })
}

/// Whether the files of a job itself stay when it is over.
pub(super) fn keeps_job(conf: &JobConf) -> bool {
    conf.is_true(&keys::JOB_KEEP_FAILED) || conf.text_if_set(&keys::JOB_KEEP_PATTERN).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localise::tests::conf;

    #[test]
    fn a_pattern_matches_whole_names() {
        let id: AttemptId = "attempt_20.1_0001_m_000012_0".parse().unwrap();
        let pattern = "keep.task.files.pattern";
        let failed = ("keep.failed.task.files", "true");
        let cases = [
            (vec![], Keep::Nothing),
            (vec![failed], Keep::Failed),
            (vec![(pattern, ".*_m_000012_0")], Keep::All),
            (vec![(pattern, ".*_m_00001[0-3]_\\d"), failed], Keep::All),
            (vec![(pattern, "_m_000012_0")], Keep::Job),
            (vec![(pattern, "x|.*_r_.*"), failed], Keep::Failed),
            (vec![(pattern, "a|attempt_20.1_0001_m_000012_0|b")], Keep::All),
        ];
        for (properties, expected) in cases {
            let conf = conf(&properties);
            assert_eq!(keep(&conf, &id).unwrap(), expected, "{properties:?}");
            assert_eq!(keeps_job(&conf), expected != Keep::Nothing, "{properties:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_none_or_takes_too_much_is_refused() {
        let id: AttemptId = "attempt_20.1_0001_m_000012_0".parse().unwrap();
        for pattern in ["(", "a{1000}{1000}{1000}", "(?=x)"] {
            let error = keep(&conf(&[("keep.task.files.pattern", pattern)]), &id).unwrap_err();
            assert!(error.to_string().starts_with("keep.task.files.pattern: "), "{error}");
        }
        // Time is linear in the name, whatever the pattern.
        let slow = conf(&[("keep.task.files.pattern", "(.*)*(.*)*(.*)*x")]);
        assert_eq!(keep(&slow, &id).unwrap(), Keep::Job);
    }
}
