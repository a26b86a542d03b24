//! `cm.cpu.to.resource.partitioning`: slots of a node by its CPU count, as JSON.
//!
//! Spec: cluster-manager/06 §2, with the texts of the original. It reads no file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::typed::Wrong;
use corona_model::settings::Partitioning;
use corona_model::types::ResourceType;

/// The expected form.
pub(super) const EXPECTED: &str = "a JSON object of slots by CPU count, such as {\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}";
/// The largest CPU count and the most slots of a type.
const MOST: i64 = 64;

/// The partitioning in a text. CPU counts without any type are dropped.
pub(super) fn parse(text: &str) -> Result<Partitioning, Wrong> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| Wrong::new(not_json(text, &error), EXPECTED))?;
    let Value::Object(entries) = document else {
        return Err(Wrong::new("is JSON, but not an object", EXPECTED));
    };
    let mut partitioning = BTreeMap::new();
    for (cpus, slots) in &entries {
        let cpus = cpu_count(cpus).map_err(illegal)?;
        let slots = slots_of(slots).map_err(illegal)?;
        if !slots.is_empty() {
            partitioning.insert(cpus, slots);
        }
    }
    Ok(Partitioning(partitioning))
}

/// The reason why a text is not JSON, and where. The value is usually one long line, so the place
/// is a character of it and the text around.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    const AROUND: usize = 12;
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    // A column counts bytes of its line, from 1; 0 is the end of the line before.
    let lines = text.split('\n').take(error.line().saturating_sub(1));
    let at = lines.map(|line| line.len() + 1).sum::<usize>() + error.column().saturating_sub(1);
    let before = text.char_indices().take_while(|(index, _)| *index < at).count();
    let skipped = before.saturating_sub(AROUND);
    let near: String = text.chars().skip(skipped).take(2 * AROUND + 1).collect();
    let near = near.replace(char::is_control, " ");
    match near.trim() {
        "" => format!("is not JSON: {what}"),
        near => format!("is not JSON: {what}, at character {} near {near}", before + 1),
    }
}

fn illegal(what: String) -> Wrong {
    Wrong::new(format!("has an illegal entry: {what}"), EXPECTED)
}

fn cpu_count(text: &str) -> Result<u16, String> {
    let count: i32 = text.parse().map_err(|_| format!("{text:?} is not a whole number of CPUs"))?;
    u16::try_from(count)
        .ok()
        .filter(|count| i64::from(*count) <= MOST)
        .ok_or_else(|| format!("Number of CPUs: {count} is not in range 0-64"))
}

fn slots_of(value: &Value) -> Result<BTreeMap<ResourceType, u32>, String> {
    let Value::Object(entries) = value else {
        return Err(format!("Resource Partitioning: {value} is not a object"));
    };
    let mut slots = BTreeMap::new();
    for (kind, count) in entries {
        let count = count
            .as_i64()
            .filter(|count| (0..=MOST).contains(count))
            .and_then(|count| u32::try_from(count).ok())
            .ok_or_else(|| format!("Resource Partition value: {count} is not a valid number"))?;
        let kind = ResourceType::from_name(kind).ok_or_else(|| {
            format!(
                "Cannot correctly parse resource type {kind}, must be one of [MAP, REDUCE, JOBTRACKER]"
            )
        })?;
        slots.insert(kind, count);
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_by_cpu_count() {
        let parsed =
            parse(r#"{"1":{"MAP":2,"REDUCE":0},"24":{"JOBTRACKER":3},"64":{},"0":{"MAP":64}}"#);
        let slots = |pairs: &[(ResourceType, u32)]| pairs.iter().copied().collect();
        let expected = BTreeMap::from([
            (0, slots(&[(ResourceType::Map, 64)])),
            (1, slots(&[(ResourceType::Map, 2), (ResourceType::Reduce, 0)])),
            (24, slots(&[(ResourceType::JobTracker, 3)])),
        ]);
        assert_eq!(parsed, Ok(Partitioning(expected)));
    }

    #[test]
    fn the_original_s_complaints() {
        let json = "is not JSON: ";
        let entry = "has an illegal entry: ";
        let cases = [
            ("", json, "EOF while parsing a value"),
            ("{", json, "EOF while parsing an object, at character 1 near {"),
            ("{} x", json, "trailing characters, at character 4 near {} x"),
            (
                r#"{"1":{"MAP":1,"REDUCE":1},"2":{"MAP":2,"REDUCE":2,},"4":{"MAP":4}}"#,
                json,
                r#"trailing comma, at character 51 near ,"REDUCE":2,},"4":{"MAP":"#,
            ),
            (
                "{\"1\":\n{\"MAP\" 1}}",
                json,
                r#"expected `:`, at character 14 near "1": {"MAP" 1}}"#,
            ),
            ("[]", "is JSON, ", "but not an object"),
            (r#"{"65":{}}"#, entry, "Number of CPUs: 65 is not in range 0-64"),
            (r#"{"-1":{}}"#, entry, "Number of CPUs: -1 is not in range 0-64"),
            (r#"{"x":{}}"#, entry, "\"x\" is not a whole number of CPUs"),
            (r#"{"1":7}"#, entry, "Resource Partitioning: 7 is not a object"),
            (r#"{"1":{"MAP":65}}"#, entry, "Resource Partition value: 65 is not a valid number"),
            (r#"{"1":{"MAP":-1}}"#, entry, "Resource Partition value: -1 is not a valid number"),
            (r#"{"1":{"MAP":1.0}}"#, entry, "Resource Partition value: 1.0 is not a valid number"),
            (
                r#"{"1":{"MAP":"1"}}"#,
                entry,
                "Resource Partition value: \"1\" is not a valid number",
            ),
            (
                r#"{"1":{"map":1}}"#,
                entry,
                "Cannot correctly parse resource type map, must be one of [MAP, REDUCE, JOBTRACKER]",
            ),
        ];
        for (text, start, rest) in cases {
            let wrong = parse(text).unwrap_err();
            assert_eq!(wrong, Wrong::new(format!("{start}{rest}"), EXPECTED), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}", nearly in r#"[{}:",0-9A-Z]{0,40}"#) {
            let _ = (parse(&text), parse(&nearly));
        }
    }
}
