//! `corona pools explain`: why a queue has the slots that it has, level by level.

use std::fmt::Write;

use anyhow::bail;
use corona::api::cluster::{Pool, PoolCounts, Queue, ResourceLimit};
use corona::engine::types::ResourceType;
use corona::model::resources::Dimension;
use serde::Serialize;

use super::cluster::block_on;
use super::pools;
use super::web::Web;
use corona_terminal::console::{Console, OutputArguments, printable};

/// The explanation as JSON.
#[derive(Serialize)]
struct Explanation {
    /// The path of the queue.
    path: String,
    /// The queues from an outermost group to this one.
    levels: Vec<Level>,
}

/// One queue of the path.
#[derive(Serialize)]
struct Level {
    path: String,
    /// Why it has what it has, one line for each type that it uses or that is limited.
    types: Vec<Line>,
    /// What its rules add.
    rules: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    #[serde(rename = "type")]
    kind: ResourceType,
    text: String,
}

/// Reads and prints why a queue has what it has.
///
/// # Errors
/// When there are no pages, or no such queue.
pub(super) fn show(
    web: &Web,
    name: &str,
    output: OutputArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let all = block_on(pools::read(web))?.pools;
    let Some(queue) = all.iter().find(|queue| pools::is_named(queue, name)) else {
        bail!("{} list no queue {name}", web.who());
    };
    let path = pools::path(queue);
    let levels = all.iter().filter(|other| is_on(&pools::path(other), &path));
    let levels = levels.map(|level| explained(level, &all)).collect();
    let explanation = Explanation { path, levels };
    output.show(console, &explanation, |_| text(&explanation))
}

/// Whether a queue of the path `outer` is that of the path `inner`, or around it.
fn is_on(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn text(explanation: &Explanation) -> String {
    let mut text = String::new();
    for (depth, level) in explanation.levels.iter().enumerate() {
        let indent = "  ".repeat(depth);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{indent}{}", printable(&level.path));
        for Line { kind, text: line } in &level.types {
            let _ = writeln!(text, "{indent}  {kind}: {line}");
        }
        for rule in &level.rules {
            let _ = writeln!(text, "{indent}  {}", printable(rule));
        }
    }
    text
}

fn explained(level: &Pool, all: &[Pool]) -> Level {
    let path = pools::path(level);
    let siblings: Vec<&Pool> =
        all.iter().filter(|other| parent(&pools::path(other)) == parent(&path)).collect();
    let types = level.types.iter().filter(|(_, counts)| pools::says_something(counts));
    let types = types.map(|(kind, counts)| {
        let weights = siblings.iter().filter(|sibling| wants(sibling, *kind));
        let weights: f64 = weights.map(|sibling| weight(sibling)).sum();
        Line { kind: *kind, text: reason(level, counts, weights) }
    });
    let limits = level.resource_limits.iter().map(|(dimension, limit)| {
        let held = level.resources.get(dimension).copied().unwrap_or(0);
        resource(level, *dimension, held, *limit)
    });
    let rules = limits.chain(level.queue.iter().flat_map(rules)).collect();
    Level { types: types.collect(), rules, path }
}

/// What a queue holds of a resource that is limited.
fn resource(queue: &Pool, dimension: Dimension, held: u64, limit: ResourceLimit) -> String {
    let mut said = vec![format!("{}: holds {}", dimension.name(), dimension.short(held))];
    // A minimum is reached as soon as it is in one resource.
    let is_reached = queue.resource_limits.iter().any(|(dimension, limit)| {
        let held = queue.resources.get(dimension).copied().unwrap_or(0);
        limit.minimum.is_some_and(|least| held >= least)
    });
    said.extend(limit.minimum.map(|least| {
        let amount = dimension.short(least);
        match (held >= least, is_reached) {
            (false, false) => format!("below its guaranteed {amount}"),
            (false, true) => {
                format!("guaranteed {amount}, which it has reached in another resource")
            }
            (true, _) if held == least => format!("guaranteed {amount}"),
            (true, _) => {
                format!("guaranteed {amount}, {} beyond it", dimension.short(held - least))
            }
        }
    }));
    said.extend(limit.maximum.map(|most| {
        let amount = dimension.short(most);
        if held >= most {
            format!("at its maximum of {amount}")
        } else {
            format!("maximum {amount}")
        }
    }));
    said.join("; ")
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(parent, _)| parent)
}

fn wants(queue: &Pool, kind: ResourceType) -> bool {
    queue.types.get(&kind).is_some_and(|counts| counts.requested > 0)
}

fn weight(queue: &Pool) -> f64 {
    let of_group = queue.queue.as_ref().and_then(|queue| queue.weight);
    let of_pool = queue.settings.as_ref().map(|settings| settings.weight);
    of_pool.or(of_group).unwrap_or(1.0)
}

/// Why a queue has its slots of a type. `weights` are those of all siblings with requests.
fn reason(queue: &Pool, counts: &PoolCounts, weights: f64) -> String {
    let PoolCounts { requested, granted, share, minimum, maximum, .. } = *counts;
    let waiting = counts.waiting.unwrap_or(requested - granted);
    let mut said = vec![format!("holds {granted}, {waiting} waiting, due {share:.1}")];
    let own = weight(queue);
    if requested > 0 && weights > own {
        said.push(format!("weight {own} of {weights} among those with requests"));
    }
    let parts = queue.queue.as_ref();
    if minimum > 0 {
        said.push(match granted.cmp(&minimum) {
            std::cmp::Ordering::Less if requested <= granted => {
                format!("guaranteed {minimum}, {} of them unused", minimum - granted)
            }
            std::cmp::Ordering::Less => format!("below its guaranteed {minimum}"),
            std::cmp::Ordering::Equal => format!("guaranteed {minimum}"),
            std::cmp::Ordering::Greater => {
                format!("guaranteed {minimum}, {} beyond it", granted - minimum)
            }
        });
    }
    if let Some(maximum) = maximum {
        said.push(match granted >= maximum {
            true => format!("at its maximum of {maximum}"),
            false => format!("maximum {maximum}"),
        });
    }
    if waiting <= 0 && requested <= granted {
        said.push("it asks for no more".into());
    }
    if parts.is_some_and(|queue| queue.sessions_waiting > 0) {
        said.push("some sessions wait for their turn".into());
    }
    said.join("; ")
}

/// The rules of a queue that decide something.
fn rules(queue: &Queue) -> Vec<String> {
    let parts = |what: &str, parts: &corona::api::cluster::ByType<String>| {
        let each =
            parts.iter().map(|(kind, part)| format!("{what} of {kind}: {part} of the parent's"));
        each.collect::<Vec<_>>()
    };
    let mut said = parts("minimum", &queue.minimum_parts);
    said.extend(parts("maximum", &queue.maximum_parts));
    let some = [
        (!queue.lend).then(|| "keeps what is guaranteed and unused free for itself".to_owned()),
        (queue.preemption == "fence")
            .then(|| "queues inside take slots only from each other".into()),
        (queue.preemption == "disabled").then(|| "no slots are taken back from here".into()),
        (queue.state == "draining").then(|| "takes no more sessions".into()),
        queue.max_sessions.map(|most| {
            format!(
                "serves {most} sessions at a time; {} wait for their turn",
                queue.sessions_waiting
            )
        }),
        queue
            .max_sessions_per_user
            .map(|most| format!("serves {most} sessions of a user at a time")),
        queue.max_per_user.map(|most| format!("a user holds {most} slots of each type at most")),
        queue.min_runtime_ms.map(|ms| format!("grants are safe for {} s", ms / 1000)),
    ];
    said.extend(some.into_iter().flatten());
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_on_a_path_by_whole_names() {
        for (outer, inner, expected) in [
            ("a", "a.b.c", true),
            ("a.b.c", "a.b.c", true),
            ("a.b", "a.bc", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(is_on(outer, inner), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn limits_in_resources_are_explained() {
        let limit = |minimum, maximum| ResourceLimit { minimum, maximum };
        let limits = |memory| Pool {
            resources: [(Dimension::Cpus, 4), (Dimension::Memory, memory)].into(),
            resource_limits: [
                (Dimension::Cpus, limit(Some(8), Some(4))),
                (Dimension::Memory, limit(Some(2_048), Some(4_096))),
            ]
            .into(),
            ..Pool::default()
        };
        for (memory, cpus_text, memory_text) in [
            (
                1_024,
                "cpus: holds 4; below its guaranteed 8; at its maximum of 4",
                "memory: holds 1 GB; below its guaranteed 2 GB; maximum 4 GB",
            ),
            (
                3_072,
                "cpus: holds 4; guaranteed 8, which it has reached in another resource; at its maximum of 4",
                "memory: holds 3 GB; guaranteed 2 GB, 1 GB beyond it; maximum 4 GB",
            ),
        ] {
            let pool = limits(memory);
            let rules = explained(&pool, &[]).rules;
            assert_eq!(rules, [cpus_text, memory_text]);
        }
    }

    #[test]
    fn a_queue_is_explained_by_its_limits_and_siblings() {
        let counts = |granted, minimum, maximum| PoolCounts {
            requested: 20,
            granted,
            waiting: Some(20 - granted),
            share: 7.5,
            minimum,
            maximum,
            ..PoolCounts::default()
        };
        let queue = Pool::default();
        for (counts, expected) in [
            (counts(5, 8, None), "holds 5, 15 waiting, due 7.5; below its guaranteed 8"),
            (
                counts(9, 8, Some(9)),
                "holds 9, 11 waiting, due 7.5; guaranteed 8, 1 beyond it; at its maximum of 9",
            ),
        ] {
            assert_eq!(reason(&queue, &counts, 1.0), expected);
        }
        let shared = reason(&queue, &counts(5, 0, None), 4.0);
        assert!(shared.ends_with("weight 1 of 4 among those with requests"), "{shared}");
    }
}
