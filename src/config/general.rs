//! The general scheduling file: locality waits, preemption times, redirects.
//!
//! Spec: cluster-manager/06 §3. It reads no file: it is given the items of the XML or the JSON form.

use std::fmt::Display;

use serde_json::Value;

use super::fields::{Context, Field, TypeName, pool_name};
use super::problem::{Origin, Problem, ProblemKind};
use super::suggest::similar;
use super::typed::number;
use super::xml::{Element, trim};
use corona_model::settings::{Pools, Scheduling};
use corona_model::types::{PoolName, ResourceType};

/// One setting, in either form.
#[derive(Clone, Debug)]
pub(super) struct Item {
    name: String,
    origin: Origin,
    /// The text, or why there is none; a redirect has none.
    text: Result<String, Problem>,
    source: String,
    destination: String,
}

const NODE_WAIT: &str = "nodeLocalityWait";
const RACK_WAIT: &str = "rackLocalityWait";
const REDIRECT: &str = "redirect";
/// The name in the JSON form under which the waits stand.
const JSON_WAITS: &str = "localityWaits";
const NAMES: [&str; 10] = [
    "defaultSchedulingMode",
    "shareStarvingRatio",
    "grantsPerIteration",
    "minPreemptPeriod",
    "starvingTimeForShare",
    "starvingTimeForMinimum",
    "preemptedTaskMaxRunningTime",
    "preemptionRounds",
    "scheduleFromNodeToSession",
    REDIRECT,
];

/// Whether an element of this name belongs into the general file.
pub(super) fn is_general(name: &str) -> bool {
    NAMES.contains(&name) || is_wait(name)
}

fn is_wait(name: &str) -> bool {
    name.starts_with(NODE_WAIT) || name.starts_with(RACK_WAIT)
}

/// The items of the XML form: the elements directly inside the outermost one.
pub(super) fn xml_items(root: &Element) -> Vec<Item> {
    let attribute = |child: &Element, name| child.attribute(name).unwrap_or_default().to_owned();
    root.children
        .iter()
        .map(|child| Item {
            name: child.name.clone(),
            origin: child.origin.clone(),
            text: child.text().map(|text| trim(text.unwrap_or_default()).to_owned()),
            source: attribute(child, "source"),
            destination: attribute(child, "destination"),
        })
        .collect()
}

/// The items of the JSON form: the waits stand deeper, redirects are a list.
pub(super) fn json_items(
    section: &Value,
    origin: &Origin,
    problems: &mut Vec<Problem>,
) -> Vec<Item> {
    let mut refuse = |subject: &str, what: &str| {
        let kind = ProblemKind::Json(what.to_owned());
        problems.push(Problem::error(origin.clone(), kind).of(subject));
    };
    let item = |name: &str, text: String| Item {
        name: name.to_owned(),
        origin: origin.clone(),
        text: Ok(text),
        source: String::new(),
        destination: String::new(),
    };
    let Value::Object(section) = section else {
        refuse("corona", "it is not an object");
        return Vec::new();
    };
    let mut items = Vec::new();
    for (name, value) in section {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            (JSON_WAITS, Value::Object(waits)) => {
                let set = waits.iter().filter(|(_, value)| !value.is_null());
                items.extend(set.map(|(name, value)| item(name, plain(value))));
            }
            (REDIRECT, Value::Array(redirects)) => {
                let text =
                    |redirect: &Value, name| redirect.get(name).map(plain).unwrap_or_default();
                items.extend(redirects.iter().map(|redirect| Item {
                    source: text(redirect, "source"),
                    destination: text(redirect, "destination"),
                    ..item(name, String::new())
                }));
            }
            (JSON_WAITS, _) => refuse(name, "it is not an object"),
            (REDIRECT, _) => refuse(name, "it is not a list"),
            (name, _) if is_wait(name) => refuse(name, "it is outside localityWaits"),
            (name, value) => items.push(item(name, plain(value))),
        }
    }
    items
}

/// A string without its quotes, anything else as it is written.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The settings that the items make. An unusable value is an error; a value that the original logs
/// and replaces by the default is a warning. Of repeated items the last one holds.
pub(super) fn read(items: &[Item], context: Context, problems: &mut Vec<Problem>) -> Scheduling {
    let mut scheduling = Scheduling::default();
    for item in items {
        if let Err(problem) = read_item(item, context, &mut scheduling, problems) {
            problems.push(problem);
        }
    }
    scheduling
}

fn read_item(
    item: &Item,
    context: Context,
    scheduling: &mut Scheduling,
    problems: &mut Vec<Problem>,
) -> Result<(), Problem> {
    if item.name == REDIRECT {
        return read_redirect(item, scheduling);
    }
    for (prefix, waits) in [
        (NODE_WAIT, &mut scheduling.node_locality_wait_ms),
        (RACK_WAIT, &mut scheduling.rack_locality_wait_ms),
    ] {
        match context.type_of(&item.name, prefix, &item.origin, problems) {
            TypeName::Legal(kind) => {
                waits[kind] = time(&item.field()?, 0, problems)?;
                return Ok(());
            }
            TypeName::WithoutSlots => return Ok(()),
            TypeName::None => {}
        }
    }
    if !NAMES.contains(&item.name.as_str()) {
        problems.extend(unknown(item, context));
        return Ok(());
    }
    read_setting(&item.field()?, scheduling, problems)
}

fn read_setting(
    field: &Field<'_>,
    scheduling: &mut Scheduling,
    problems: &mut Vec<Problem>,
) -> Result<(), Problem> {
    let default = Scheduling::default();
    match field.subject {
        "defaultSchedulingMode" => scheduling.default_mode = field.mode()?,
        "shareStarvingRatio" => {
            let ratio = field.double()?;
            let legal = (0.0..=1.0).contains(&ratio);
            let fallback = default.share_starving_ratio;
            scheduling.share_starving_ratio =
                legal_or(legal, ratio, fallback, field, "is not between 0 and 1", problems);
        }
        "grantsPerIteration" => {
            // The original means to check this and tests another number. Spec: 09 §6.14.
            let grants = number(field.text, 1, i32::MAX.into());
            scheduling.grants_per_pass = grants.map_err(|wrong| field.refused(wrong))?;
        }
        "minPreemptPeriod" => {
            scheduling.min_preempt_period_ms =
                time(field, default.min_preempt_period_ms, problems)?;
        }
        "starvingTimeForShare" => {
            scheduling.starving_time_for_share_ms =
                time(field, default.starving_time_for_share_ms, problems)?;
        }
        "starvingTimeForMinimum" => {
            scheduling.starving_time_for_minimum_ms =
                time(field, default.starving_time_for_minimum_ms, problems)?;
        }
        "preemptedTaskMaxRunningTime" => {
            scheduling.preempted_task_max_running_time_ms =
                time(field, default.preempted_task_max_running_time_ms, problems)?;
        }
        "preemptionRounds" => {
            let rounds = u32::try_from(field.int()?);
            let fallback = default.preemption_rounds;
            let (legal, rounds) = (rounds.is_ok(), rounds.unwrap_or_default());
            scheduling.preemption_rounds =
                legal_or(legal, rounds, fallback, field, "is negative", problems);
        }
        // Both directions of matching give the same here; the value is only looked at.
        "scheduleFromNodeToSession" => {
            field.truth(problems);
        }
        _ => {}
    }
    Ok(())
}

/// A span in milliseconds; a negative one is replaced.
fn time(field: &Field<'_>, fallback: i64, problems: &mut Vec<Problem>) -> Result<i64, Problem> {
    let span = field.long()?;
    Ok(legal_or(span >= 0, span, fallback, field, "is negative", problems))
}

/// The value if it is legal; else the fallback, with a problem.
fn legal_or<T: Display>(
    legal: bool,
    value: T,
    fallback: T,
    field: &Field<'_>,
    wrong: &str,
    problems: &mut Vec<Problem>,
) -> T {
    if legal {
        return value;
    }
    problems.push(field.replaced(wrong, &fallback));
    fallback
}

fn read_redirect(item: &Item, scheduling: &mut Scheduling) -> Result<(), Problem> {
    match (pool_name(&item.source), pool_name(&item.destination)) {
        (Some(source), Some(destination)) => {
            scheduling.redirects.insert(source, destination);
            Ok(())
        }
        _ => {
            let kind = ProblemKind::NoEffect(format!(
                "Illegal redirect source {:?} or destination {:?}, ignored; expected group.pool",
                item.source, item.destination
            ));
            Err(Problem::warning(item.origin.clone(), kind).of(REDIRECT))
        }
    }
}

/// Warns of locality waits without effect. Spec: cluster-manager/04 §7, 09 §7.1.
pub(super) fn check_waits(items: &[Item], scheduling: &Scheduling, problems: &mut Vec<Problem>) {
    for item in items.iter().filter(|item| is_wait(&item.name)) {
        let of = |prefix| item.name.strip_prefix(prefix).and_then(ResourceType::from_name);
        let (kind, is_node_wait) = match (of(NODE_WAIT), of(RACK_WAIT)) {
            (Some(kind), _) => (kind, true),
            (None, Some(kind)) => (kind, false),
            (None, None) => continue,
        };
        let node = scheduling.node_locality_wait_ms[kind];
        let rack = scheduling.rack_locality_wait_ms[kind];
        let what = match (kind, node, rack) {
            (_, 0, 0) => continue,
            (ResourceType::Map, node, 0) if is_node_wait => format!(
                "{node} ms has no effect without {RACK_WAIT}{kind}, which switches the wait on; \
                 set {RACK_WAIT}{kind} to any number but 0"
            ),
            (ResourceType::Map, 0, _) if !is_node_wait => format!(
                "has no effect without {NODE_WAIT}{kind}, which sets how long a request waits"
            ),
            (ResourceType::Map, ..) => continue,
            _ => format!("has no effect: only MAP requests wait for a near node, not {kind}"),
        };
        let problem = Problem::warning(item.origin.clone(), ProblemKind::NoEffect(what));
        problems.push(problem.of(&*item.name));
    }
}

/// Warns of redirects into pools that the pools file does not have.
pub(super) fn check_redirects(items: &[Item], pools: &Pools, problems: &mut Vec<Problem>) {
    for item in items.iter().filter(|item| item.name == REDIRECT) {
        let Some(destination) = pool_name(&item.destination) else { continue };
        if pool_name(&item.source).is_none() || pools.pools.contains_key(&destination) {
            continue;
        }
        let problem = Problem::warning(item.origin.clone(), unconfigured(&destination, pools));
        problems.push(problem.of(REDIRECT));
    }
}

/// A pool that is named as the destination of a redirect, and nowhere else.
pub(super) fn unconfigured(destination: &PoolName, pools: &Pools) -> ProblemKind {
    let name = destination.to_string();
    let known: Vec<String> = pools.pools.keys().map(ToString::to_string).collect();
    let mut what =
        format!("destination {name} is not in the pools file, so it has no limits and no weight");
    if let Some(meant) = similar(&name, known.iter().map(String::as_str)) {
        what.push_str(&format!("; did you mean {meant}?"));
    }
    ProblemKind::NoEffect(what)
}

fn unknown(item: &Item, context: Context) -> Option<Problem> {
    let origin = item.origin.clone();
    if item.name != "group" {
        let waits = [NODE_WAIT, RACK_WAIT].map(|prefix| context.names(prefix)).concat();
        let known = NAMES.into_iter().chain(waits.iter().map(String::as_str));
        let meant = similar(&item.name, known).map(Into::into);
        let kind = ProblemKind::UnknownElement { name: item.name.as_str().into(), meant };
        return Some(Problem::warning(origin, kind));
    }
    let what = "has no effect in this file: groups are read from the pools file";
    let problem = Problem::warning(origin, ProblemKind::NoEffect(what.into())).of("group");
    Some(problem).filter(|_| !context.one_file)
}

impl Item {
    fn field(&self) -> Result<Field<'_>, Problem> {
        let text = self.text.as_ref().map_err(Clone::clone)?;
        Ok(Field { subject: &self.name, text, origin: &self.origin })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::files::FileReader;
    use crate::xml::{self, Includes};
    use corona_model::settings::SchedulingMode;
    use corona_model::types::PerType;

    fn context() -> Context {
        let mut legal_types = PerType::all(true);
        legal_types[ResourceType::JobTracker] = false;
        Context { legal_types, one_file: false, configured_pools_only: false, counted: [true; 4] }
    }

    fn lines(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    /// The settings and problems of a file `f` with this inside `configuration`.
    fn xml(inside: &str) -> (Scheduling, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, format!("<configuration>{inside}</configuration>")).unwrap();
        let root = xml::read(&path, Includes::Plain, &mut FileReader::default()).unwrap();
        let mut problems = Vec::new();
        let scheduling = read(&xml_items(&root), context(), &mut problems);
        let prefix = format!("{}/", dir.path().display());
        (scheduling, lines(&problems).iter().map(|line| line.replace(&prefix, "")).collect())
    }

    fn json(text: &str) -> (Scheduling, Vec<String>) {
        let mut problems = Vec::new();
        let section = serde_json::from_str(text).unwrap();
        let items = json_items(&section, &Origin::file(Path::new("j")), &mut problems);
        let scheduling = read(&items, context(), &mut problems);
        (scheduling, lines(&problems))
    }

    #[test]
    fn every_setting() {
        let (scheduling, problems) = xml("
            <nodeLocalityWaitMAP> 10 </nodeLocalityWaitMAP>
            <rackLocalityWaitMAP>20</rackLocalityWaitMAP>
            <nodeLocalityWaitREDUCE>30</nodeLocalityWaitREDUCE>
            <defaultSchedulingMode>DEADLINE</defaultSchedulingMode>
            <shareStarvingRatio>0.9</shareStarvingRatio>
            <grantsPerIteration>7</grantsPerIteration>
            <minPreemptPeriod>1</minPreemptPeriod>
            <starvingTimeForShare>2</starvingTimeForShare>
            <starvingTimeForMinimum>3</starvingTimeForMinimum>
            <preemptedTaskMaxRunningTime>4</preemptedTaskMaxRunningTime>
            <preemptionRounds>5</preemptionRounds>
            <scheduleFromNodeToSession>TRUE</scheduleFromNodeToSession>
            <redirect source='a.b' destination='c.d'/>
            <redirect source='a.e' destination='c.f'>text</redirect>");
        assert_eq!(problems, [""; 0]);
        let expected = Scheduling {
            node_locality_wait_ms: PerType([10, 30, 0]),
            rack_locality_wait_ms: PerType([20, 0, 0]),
            default_mode: SchedulingMode::Deadline,
            share_starving_ratio: 0.9,
            grants_per_pass: 7,
            min_preempt_period_ms: 1,
            starving_time_for_share_ms: 2,
            starving_time_for_minimum_ms: 3,
            preempted_task_max_running_time_ms: 4,
            preemption_rounds: 5,
            redirects: [
                (PoolName::new("a", "b"), PoolName::new("c", "d")),
                (PoolName::new("a", "e"), PoolName::new("c", "f")),
            ]
            .into(),
        };
        assert_eq!(scheduling, expected);
        assert_eq!(
            json(
                r#"{"localityWaits": {"nodeLocalityWaitMAP": 10, "rackLocalityWaitMAP": "20", "nodeLocalityWaitREDUCE": 30, "rackLocalityWaitREDUCE": null},
                "defaultSchedulingMode": "DEADLINE", "shareStarvingRatio": 0.9, "grantsPerIteration": 7, "minPreemptPeriod": 1,
                "starvingTimeForShare": "2", "starvingTimeForMinimum": 3, "preemptedTaskMaxRunningTime": 4, "preemptionRounds": 5,
                "scheduleFromNodeToSession": true,
                "redirect": [{"source": "a.b", "destination": "c.d"}, {"source": "a.e", "destination": "c.f"}]}"#
            ),
            (expected, Vec::new())
        );
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn wrong_values() {
        let whole = "is not a whole number; expected a whole number from";
        let cases: [(&str, &[&str]); 19] = [
            (
                "<nodeLocalityWaitMAP/>",
                &[&format!(
                    "f:1: nodeLocalityWaitMAP: value \"\" {whole} -9223372036854775808 to 9223372036854775807"
                )],
            ),
            (
                "<rackLocalityWaitREDUCE>-1</rackLocalityWaitREDUCE>",
                &["f:1: rackLocalityWaitREDUCE: value \"-1\" is negative; 0 is used"],
            ),
            (
                "<nodeLocalityWaitJOBTRACKER>x</nodeLocalityWaitJOBTRACKER>",
                &[
                    "f:1: nodeLocalityWaitJOBTRACKER: has no effect: cm.cpu.to.resource.partitioning has no slots of JOBTRACKER",
                ],
            ),
            (
                "<nodeLocalityWaitGPU>1</nodeLocalityWaitGPU>",
                &["f:1: unknown element <nodeLocalityWaitGPU>"],
            ),
            (
                "<defaultSchedulingMode>fair</defaultSchedulingMode>",
                &[
                    "f:1: defaultSchedulingMode: value \"fair\" is not a scheduling mode; expected FIFO, FAIR or DEADLINE; did you mean FAIR?",
                ],
            ),
            (
                "<defaultSchedulingMode>FAIR_PREEMPT</defaultSchedulingMode>",
                &[
                    "f:1: defaultSchedulingMode: value \"FAIR_PREEMPT\" is not a scheduling mode; expected FIFO, FAIR or DEADLINE",
                ],
            ),
            (
                "<shareStarvingRatio>1.5</shareStarvingRatio>",
                &["f:1: shareStarvingRatio: value \"1.5\" is not between 0 and 1; 0.7 is used"],
            ),
            (
                "<shareStarvingRatio>NaN</shareStarvingRatio>",
                &[
                    "f:1: shareStarvingRatio: value \"NaN\" is not a number; expected a number such as 1.5",
                ],
            ),
            (
                "<grantsPerIteration>0</grantsPerIteration>",
                &[
                    "f:1: grantsPerIteration: value \"0\" is out of range; expected a whole number from 1 to 2147483647",
                ],
            ),
            (
                "<minPreemptPeriod>-1</minPreemptPeriod>",
                &["f:1: minPreemptPeriod: value \"-1\" is negative; 60000 is used"],
            ),
            (
                "<preemptionRounds>-1</preemptionRounds>",
                &["f:1: preemptionRounds: value \"-1\" is negative; 10 is used"],
            ),
            (
                "<preemptionRounds>2147483648</preemptionRounds>",
                &[
                    "f:1: preemptionRounds: value \"2147483648\" is out of range; expected a whole number from -2147483648 to 2147483647",
                ],
            ),
            (
                "<scheduleFromNodeToSession>yes</scheduleFromNodeToSession>",
                &[
                    "f:1: scheduleFromNodeToSession: value \"yes\" is neither true nor false; false is used",
                ],
            ),
            (
                "<redirect source='a' destination='b.c'/>",
                &[
                    "f:1: redirect: Illegal redirect source \"a\" or destination \"b.c\", ignored; expected group.pool",
                ],
            ),
            (
                "<redirect source='a.b'/>",
                &[
                    "f:1: redirect: Illegal redirect source \"a.b\" or destination \"\", ignored; expected group.pool",
                ],
            ),
            (
                "<minPreemptPeriod><b/></minPreemptPeriod>",
                &["f:1: minPreemptPeriod: starts with an element or an instruction; expected text"],
            ),
            (
                "<preemptionRound>1</preemptionRound>",
                &["f:1: unknown element <preemptionRound>; did you mean <preemptionRounds>?"],
            ),
            (
                "<rackLocalityWaitMap>1</rackLocalityWaitMap>",
                &[
                    "f:1: unknown element <rackLocalityWaitMap>; did you mean <rackLocalityWaitMAP>?",
                ],
            ),
            (
                "<group/>\n<nonsense><a/></nonsense>",
                &[
                    "f:1: group: has no effect in this file: groups are read from the pools file",
                    "f:2: unknown element <nonsense>",
                ],
            ),
        ];
        for (inside, expected) in cases {
            let (scheduling, problems) = xml(inside);
            assert_eq!(problems, expected, "{inside}");
            assert_eq!(scheduling, Scheduling::default(), "{inside}");
        }
    }

    #[test]
    fn waits_that_make_nobody_wait_are_warned_of() {
        let waits = |text: &str| {
            let mut problems = Vec::new();
            let section = serde_json::from_str(&format!("{{\"localityWaits\": {text}}}")).unwrap();
            let items = json_items(&section, &Origin::file(Path::new("j")), &mut problems);
            let scheduling = read(&items, context(), &mut problems);
            check_waits(&items, &scheduling, &mut problems);
            lines(&problems)
        };
        for fine in [
            "{}",
            r#"{"nodeLocalityWaitMAP": 0, "rackLocalityWaitMAP": 0, "nodeLocalityWaitREDUCE": 0}"#,
            r#"{"nodeLocalityWaitMAP": 8000, "rackLocalityWaitMAP": 1}"#,
        ] {
            assert_eq!(waits(fine), [""; 0], "{fine}");
        }
        for (text, start) in [
            (
                r#"{"nodeLocalityWaitMAP": 8000}"#,
                "j: nodeLocalityWaitMAP: 8000 ms has no effect without rackLocalityWaitMAP",
            ),
            (
                r#"{"nodeLocalityWaitMAP": 8000, "rackLocalityWaitMAP": 0}"#,
                "j: nodeLocalityWaitMAP: 8000 ms has no effect without rackLocalityWaitMAP",
            ),
            (
                r#"{"rackLocalityWaitMAP": 8000}"#,
                "j: rackLocalityWaitMAP: has no effect without nodeLocalityWaitMAP",
            ),
            (
                r#"{"nodeLocalityWaitREDUCE": 8000}"#,
                "j: nodeLocalityWaitREDUCE: has no effect: only MAP requests wait",
            ),
        ] {
            let told = waits(text);
            assert!(told.len() == 1 && told[0].starts_with(start), "{text}: {told:?}");
        }
    }

    #[test]
    fn every_element_is_documented() {
        let document = include_str!("../../docs/reference/configuration.md");
        let waits = [NODE_WAIT, RACK_WAIT].map(|wait| format!("{wait}<T>"));
        for name in NAMES.into_iter().chain(waits.iter().map(String::as_str)) {
            assert!(document.contains(&format!("\n| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn the_last_of_repeated_elements_holds() {
        let (scheduling, _) =
            xml("<preemptionRounds>1</preemptionRounds><preemptionRounds>2</preemptionRounds>\
            <redirect source='a.b' destination='c.d'/><redirect source='a.b' destination='e.f'/>");
        assert_eq!(scheduling.preemption_rounds, 2);
        assert_eq!(scheduling.redirects[&PoolName::new("a", "b")], PoolName::new("e", "f"));
    }

    #[test]
    fn wrong_json() {
        let cases = [
            ("[]", "j: corona: is not usable JSON: it is not an object"),
            (
                r#"{"localityWaits": 1}"#,
                "j: localityWaits: is not usable JSON: it is not an object",
            ),
            (r#"{"redirect": {}}"#, "j: redirect: is not usable JSON: it is not a list"),
            (
                r#"{"nodeLocalityWaitMAP": 1}"#,
                "j: nodeLocalityWaitMAP: is not usable JSON: it is outside localityWaits",
            ),
            (
                r#"{"redirect": [1]}"#,
                "j: redirect: Illegal redirect source \"\" or destination \"\", ignored; expected group.pool",
            ),
            (
                r#"{"preemptionRounds": [1]}"#,
                "j: preemptionRounds: value \"[1]\" is not a whole number; expected a whole number from -2147483648 to 2147483647",
            ),
            (r#"{"other": 1}"#, "j: unknown element <other>"),
        ];
        for (text, expected) in cases {
            assert_eq!(json(text), (Scheduling::default(), vec![expected.to_owned()]), "{text}");
        }
        assert_eq!(json(r#"{"preemptionRounds": null}"#), (Scheduling::default(), Vec::new()));
    }

    proptest! {
        #[test]
        fn no_text_panics(name in 0..NAMES.len(), text in "[^<&\\p{C}]{0,20}") {
            let name = NAMES[name];
            xml(&format!("<{name}>{text}</{name}>"));
        }
    }
}
