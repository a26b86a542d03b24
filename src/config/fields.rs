//! Values of the scheduling files, and how they are read. It must not know what they mean.

use super::keys;
use super::problem::{Origin, Problem, ProblemKind};
use super::suggest::similar;
use super::typed::{self, Wrong};
use corona_model::settings::SchedulingMode;
use corona_model::types::{PerType, PoolName, ResourceType};

/// The settings that the reading of both files depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) legal_types: PerType<bool>,
    /// Whether the same file contains both kinds of settings.
    pub(super) one_file: bool,
    pub(super) configured_pools_only: bool,
    pub(super) counted: [bool; 4],
}

impl Context {
    /// The names that start so and end with a type that has slots.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let kinds = ResourceType::ALL.into_iter().filter(|kind| self.legal_types[*kind]);
        kinds.map(|kind| format!("{prefix}{kind}")).collect()
    }

    /// The type of a name like `minMAP`; a type without slots has no settings and is a problem.
    pub(super) fn type_of(
        &self,
        name: &str,
        prefix: &str,
        origin: &Origin,
        problems: &mut Vec<Problem>,
    ) -> TypeName {
        let Some(kind) = name.strip_prefix(prefix).and_then(ResourceType::from_name) else {
            return TypeName::None;
        };
        if self.legal_types[kind] {
            return TypeName::Legal(kind);
        }
        let key = keys::PARTITIONING.name;
        let kind = ProblemKind::NoEffect(format!("has no effect: {key} has no slots of {kind}"));
        problems.push(Problem::warning(origin.clone(), kind).of(name));
        TypeName::WithoutSlots
    }
}

/// The kind of a name that may end with a type.
pub(super) enum TypeName {
    Legal(ResourceType),
    WithoutSlots,
    None,
}

/// A value of one of the files with all that a problem needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) subject: &'a str,
    pub(super) text: &'a str,
    pub(super) origin: &'a Origin,
}

impl Field<'_> {
    /// The value cannot be used.
    pub(super) fn refused(&self, wrong: Wrong) -> Problem {
        let Wrong { wrong, expected } = wrong;
        let kind = ProblemKind::Value {
            value: self.text.into(),
            wrong: wrong.into(),
            expected: expected.into(),
        };
        Problem::error(self.origin.clone(), kind).of(self.subject)
    }

    /// Something else is used.
    pub(super) fn replaced(&self, wrong: &str, used: impl std::fmt::Display) -> Problem {
        let kind = ProblemKind::Replaced {
            value: self.text.into(),
            wrong: wrong.into(),
            used: format!("{used} is used").into(),
        };
        Problem::warning(self.origin.clone(), kind).of(self.subject)
    }

    pub(super) fn int(&self) -> Result<i32, Problem> {
        let number = typed::number(self.text, i32::MIN.into(), i32::MAX.into());
        number.map_err(|wrong| self.refused(wrong))
    }

    pub(super) fn long(&self) -> Result<i64, Problem> {
        typed::whole(self.text, i64::MIN, i64::MAX, "").map_err(|wrong| self.refused(wrong))
    }

    /// A finite number as Java reads it, a trailing `f` or `d` included.
    pub(super) fn double(&self) -> Result<f64, Problem> {
        let text = self.text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(self.text);
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.refused(Wrong::new("is not a number", "a number such as 1.5")))
    }

    /// "true" in any case; anything else is false, and a problem unless it is "false".
    pub(super) fn truth(&self, problems: &mut Vec<Problem>) -> bool {
        let is = |text| self.text.eq_ignore_ascii_case(text);
        if !is("true") && !is("false") {
            problems.push(self.replaced("is neither true nor false", "false"));
        }
        is("true")
    }

    /// A scheduling mode. The original accepts more names, and ends its process at the first
    /// preemption. Spec: cluster-manager/09 §1.6.
    pub(super) fn mode(&self) -> Result<SchedulingMode, Problem> {
        match self.text {
            "FIFO" => Ok(SchedulingMode::Fifo),
            "FAIR" => Ok(SchedulingMode::Fair),
            "DEADLINE" => Ok(SchedulingMode::Deadline),
            other => {
                let expected = match similar(other, ["FIFO", "FAIR", "DEADLINE"]) {
                    Some(meant) => format!("FIFO, FAIR or DEADLINE; did you mean {meant}?"),
                    None => "FIFO, FAIR or DEADLINE".to_owned(),
                };
                Err(self.refused(Wrong::new("is not a scheduling mode", expected)))
            }
        }
    }
}

/// The two parts of `group.pool`: split at each dot, empty parts at the end dropped, two left.
pub(super) fn pool_name(text: &str) -> Option<PoolName> {
    let mut parts: Vec<&str> = text.split('.').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    match parts.as_slice() {
        [group, pool] => Some(PoolName::new(group, pool)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_names() {
        let cases = [
            ("a.b", Some(("a", "b"))),
            ("a.b.", Some(("a", "b"))),
            (".b", Some(("", "b"))),
            ("a", None),
            ("a.", None),
            ("a.b.c", None),
            ("a..b", None),
            ("", None),
            (".", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(group, pool)| PoolName::new(group, pool));
            assert_eq!(pool_name(text), expected, "{text:?}");
        }
    }
}
