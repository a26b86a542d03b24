//! `docs/reference/api.md`, the reference of the JSON API, made of the comments in the sources of its shapes.
//! A test holds the file to it, and writes it when `CORONA_WRITE_DOCS` is set.

use std::collections::HashMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A daemon's name for people, and the sources of its shapes. The first begins with the table of its paths.
const DAEMONS: [(&str, &[&str]); 4] = [
    (
        "Cluster manager",
        &[
            include_str!("cluster/mod.rs"),
            include_str!("cluster/operation.rs"),
            include_str!("cluster/status.rs"),
        ],
    ),
    ("Job tracker", &[include_str!("jobs.rs")]),
    ("Proxy job tracker", &[include_str!("finished.rs")]),
    ("Task tracker", &[include_str!("node.rs")]),
];

/// The shapes that all daemons serve.
const COMMON: [&str; 2] = [include_str!("lib.rs"), include_str!("events.rs")];

const HEAD: &str = "# The JSON API

Each daemon serves JSON below `/api/v1`. Every response with the status 200 has one of the shapes below, every response with a status of 400 or
more is a [Failure](#failure). A cluster manager that does not lead answers all paths with 503 and a [StandbyStatus](#standbystatus), which is a
failure that names the leader's pages. [command-line.md](command-line.md#json) has the rules on which programs may rely, and an overview of the
cluster manager's shapes.

*By type* is an object with the members `MAP`, `REDUCE` and `JOBTRACKER`, as far as the cluster has slots of the type; *by name* is an
object with other members. A member with `?` is left out if it has no value; one *or null* is not. Ignore unknown members.

This file is generated from the sources' comments: `CORONA_WRITE_DOCS=1 cargo test -p corona-api reference`
";

/// A struct or an enum, as its source has it.
#[derive(Clone, Debug)]
struct Shape {
    name: String,
    meaning: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Struct(Vec<Member>),
    /// The member that names the variant, if there is one, and the variants.
    Enum(Option<String>, Vec<Variant>),
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    of: String,
    /// Whether it is left out if it has no value.
    is_optional: bool,
    /// Whether it is `null` if it has no value.
    is_nullable: bool,
    is_flat: bool,
    meaning: String,
}

#[derive(Clone, Debug)]
struct Variant {
    name: String,
    meaning: String,
    members: Vec<Member>,
}

/// The text before an item: its comment and its attributes.
#[derive(Debug, Default)]
struct Before {
    comment: String,
    attributes: String,
}

impl Before {
    fn take(&mut self) -> Before {
        std::mem::take(self)
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let value = self.attributes.split(&format!("{name} = \"")).nth(1)?;
        Some(value.split('"').next()?.to_owned())
    }

    /// The comment without the marks of links within Rust.
    fn meaning(&self) -> String {
        self.comment.trim().replace("[`", "`").replace("`]", "`").replace('|', "\\|")
    }
}

/// All public shapes of a source, in its order.
fn shapes(source: &str) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut before = Before::default();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line == "mod tests {" {
            break;
        }
        if note(&mut before, line) {
            continue;
        }
        let item = before.take();
        let Some((keyword, name)) = line
            .strip_suffix(" {")
            .and_then(|line| line.strip_prefix("pub "))
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        let kind = match keyword {
            "struct" => Kind::Struct(members(&body)),
            "enum" => {
                let case = item.attribute("rename_all").unwrap_or_default();
                Kind::Enum(item.attribute("tag"), variants(&body, &case))
            }
            _ => continue,
        };
        // Types that are not sent are not listed.
        if item.attributes.contains("Serialize") {
            shapes.push(Shape { name: name.to_owned(), meaning: item.meaning(), kind });
        }
    }
    shapes
}

/// Takes comments and attributes; whether the line is one.
fn note(before: &mut Before, line: &str) -> bool {
    let line = line.trim();
    if let Some(comment) = line.strip_prefix("///") {
        before.comment.push_str(comment);
        return true;
    }
    if line.starts_with("#[") {
        before.attributes.push_str(line);
        return true;
    }
    false
}

fn members(body: &[&str]) -> Vec<Member> {
    let mut members = Vec::new();
    let mut before = Before::default();
    for line in body {
        if note(&mut before, line) {
            continue;
        }
        let about = before.take();
        let declared = line.trim().trim_start_matches("pub ").trim_end_matches(',');
        let Some((name, of)) = declared.split_once(": ") else { continue };
        let inner = of.strip_prefix("Option<").and_then(|of| of.strip_suffix('>'));
        let is_flat = about.attributes.contains("flatten");
        let is_left_out = about.attributes.contains("skip_serializing_if");
        members.push(Member {
            name: about.attribute("rename").unwrap_or_else(|| name.to_owned()),
            of: inner.unwrap_or(of).to_owned(),
            is_optional: is_left_out || (is_flat && inner.is_some()),
            is_nullable: inner.is_some() && !is_left_out && !is_flat,
            is_flat,
            meaning: about.meaning(),
        });
    }
    members
}

fn variants(body: &[&str], case: &str) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut before = Before::default();
    let mut lines = body.iter();
    while let Some(line) = lines.next() {
        if note(&mut before, line) {
            continue;
        }
        let about = before.take();
        let name = line.trim().trim_end_matches(" {").trim_end_matches(',');
        let (name, members) = match name.split_once('(') {
            Some((name, of)) => (name, vec![all_members(of.trim_end_matches(')'))]),
            None if line.ends_with('{') => {
                let body = lines.by_ref().take_while(|line| line.trim() != "},").copied();
                (name, members(&body.collect::<Vec<_>>()))
            }
            None => (name, Vec::new()),
        };
        // Stands for variants of later versions.
        if !about.attributes.contains("serde(other)") && !name.is_empty() {
            let name = in_case(name, case);
            variants.push(Variant { name, meaning: about.meaning(), members });
        }
    }
    variants
}

/// The members of another shape.
fn all_members(of: &str) -> Member {
    Member {
        name: String::new(),
        of: of.to_owned(),
        is_optional: false,
        is_nullable: false,
        is_flat: true,
        meaning: String::new(),
    }
}

fn in_case(name: &str, case: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.chars().enumerate() {
        if case == "snake_case" && at > 0 && letter.is_uppercase() {
            text.push('_');
        }
        match case {
            "" => text.push(letter),
            _ => text.extend(letter.to_lowercase()),
        }
    }
    text
}

/// A Rust type in words, with a link to its shape.
fn words(of: &str, shapes: &HashMap<&str, &Shape>) -> String {
    let of = of.rsplit("::").next().unwrap_or(of);
    let inner = |name: &str| of.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(of) = inner("Vec") {
        return format!("list of {}", words(of, shapes));
    }
    if let Some(of) = inner("ByType") {
        return format!("by type: {}", words(of, shapes));
    }
    if let Some(of) = inner("BTreeMap").and_then(|of| of.strip_prefix("String, ")) {
        return format!("by name: {}", words(of, shapes));
    }
    if let Some(of) = inner("ByResource") {
        return format!("by resource (`cpus`, `memory`, `disk`, `network`): {}", words(of, shapes));
    }
    match of {
        "String" | "Arc<str>" => "text".into(),
        "SessionStatus" => {
            "`FAILED`, `SUCCESSFUL`, `KILLED`, `TIMED_OUT`, `KILLED_ABORTED` or `FAILED_JOBTRACKER`"
                .into()
        }
        "bool" => "true or false".into(),
        "f32" | "f64" => "number".into(),
        "ResourceType" => "`MAP`, `REDUCE` or `JOBTRACKER`".into(),
        "i16" | "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "whole number".into(),
        name => match shapes.get(name) {
            Some(_) => format!("[{name}](#{})", name.to_lowercase()),
            None => panic!("the type {name} has no words"),
        },
    }
}

fn write_members(out: &mut String, members: &[Member], shapes: &HashMap<&str, &Shape>) {
    for member in members {
        let Member { name, of, is_optional, is_nullable, is_flat, meaning } = member;
        let or_null = if *is_nullable { " or null" } else { "" };
        let of = words(of, shapes) + or_null;
        let _ = match (is_flat, is_optional) {
            (true, false) => writeln!(
                out,
                "| | {of} | {} |",
                format!("all of its members: {meaning}").trim_end_matches(": ")
            ),
            (true, true) => writeln!(out, "| | {of}? | all of its members: {meaning} |"),
            (false, false) => writeln!(out, "| `{name}` | {of} | {meaning} |"),
            (false, true) => writeln!(out, "| `{name}`? | {of} | {meaning} |"),
        };
    }
}

/// The whole file.
fn reference() -> String {
    let common: Vec<Shape> = COMMON.iter().flat_map(|source| shapes(source)).collect();
    let daemons = DAEMONS.map(|(name, sources)| {
        let of: Vec<Shape> = sources.iter().flat_map(|source| shapes(source)).collect();
        (name, sources[0], of)
    });
    let all = daemons.iter().flat_map(|(_, _, of)| of).chain(&common);
    let by_name: HashMap<&str, &Shape> = all.map(|shape| (&*shape.name, shape)).collect();
    let count = daemons.iter().map(|(_, _, of)| of.len()).sum::<usize>() + common.len();
    assert_eq!(by_name.len(), count, "two shapes have the same name, and so the same heading");
    let mut out = HEAD.to_owned();
    for (name, source, of) in &daemons {
        let _ = write!(out, "\n## {name}\n\n{}\n\n", opening(source));
        write_paths(&mut out, source, &by_name);
        of.iter().for_each(|shape| write_shape(&mut out, shape, &by_name));
    }
    out.push_str("\n## All daemons\n");
    common.iter().for_each(|shape| write_shape(&mut out, shape, &by_name));
    out
}

/// The first paragraph of a source.
fn opening(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    lines.collect::<Vec<_>>().join("\n")
}

fn write_paths(out: &mut String, source: &str, by_name: &HashMap<&str, &Shape>) {
    out.push_str("| path | shape |\n|---|---|\n");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    for row in rows.filter(|row| row.starts_with('`') || row.starts_with("any,")) {
        let mut row = format!("| {row}");
        for name in by_name.keys() {
            let link = format!("[{name}](#{})", name.to_lowercase());
            row = row.replace(&format!("[`{name}`]"), &link);
        }
        let row = row.replace("[`Paging`]", "`limit` and `after`");
        let _ = writeln!(out, "{row}");
    }
}

fn write_shape(out: &mut String, shape: &Shape, by_name: &HashMap<&str, &Shape>) {
    let _ = write!(out, "\n### {}\n\n{}\n\n", shape.name, shape.meaning);
    match &shape.kind {
        Kind::Struct(members) => {
            out.push_str("| member | value | meaning |\n|---|---|---|\n");
            write_members(out, members, by_name);
        }
        Kind::Enum(tag, variants) => {
            let of = tag.as_ref().map_or_else(String::new, |tag| format!("`{tag}`, "));
            let _ = writeln!(out, "| {of}member | value | meaning |\n|---|---|---|");
            for Variant { name, meaning, members } in variants {
                let _ = writeln!(out, "| **`\"{name}\"`** | | {meaning} |");
                write_members(out, members, by_name);
            }
        }
    }
}

#[test]
fn the_reference_of_the_api_is_made_of_its_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    let made = reference();
    if env::var_os("CORONA_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(
        made == written,
        "docs/reference/api.md does not agree with the comments of the shapes; the first line that differs: {differs:?}. \
         CORONA_WRITE_DOCS=1 cargo test -p corona-api reference writes it"
    );
}

#[test]
fn shapes_are_read_as_serde_writes_them() {
    let source = "
/// The kind of thing, see [`Other`].
#[derive(Debug, Serialize)]
pub struct Thing {
    /// Its kind.
    #[serde(rename = \"type\")]
    pub kind: ResourceType,
    /// Perhaps
    /// a list.
    #[serde(default, skip_serializing_if = \"Option::is_none\")]
    pub list: Option<Vec<String>>,
    /// Its end.
    pub ended_ms: Option<i64>,
}

#[derive(Debug)]
pub struct Inner {
    pub secret: u8,
}

/// Why.
#[derive(Serialize)]
#[serde(tag = \"reason\", rename_all = \"snake_case\")]
pub enum Why {
    /// So.
    JustSo,
    /// More.
    MuchMore {
        /// How much.
        count: u64,
    },
    /// Later.
    #[serde(other)]
    Other,
}
";
    let shapes = shapes(source);
    let names: Vec<&str> = shapes.iter().map(|shape| &*shape.name).collect();
    assert_eq!(names, ["Thing", "Why"]);
    assert_eq!(shapes[0].meaning, "The kind of thing, see `Other`.");
    let Kind::Struct(members) = &shapes[0].kind else { panic!("{shapes:?}") };
    let read: Vec<_> = members
        .iter()
        .map(|one| (&*one.name, &*one.of, one.is_optional, one.is_nullable))
        .collect();
    let expected = [
        ("type", "ResourceType", false, false),
        ("list", "Vec<String>", true, false),
        ("ended_ms", "i64", false, true),
    ];
    assert_eq!(read, expected);
    assert_eq!(members[1].meaning, "Perhaps a list.");
    let Kind::Enum(tag, variants) = &shapes[1].kind else { panic!("{shapes:?}") };
    assert_eq!(tag.as_deref(), Some("reason"));
    let read: Vec<_> = variants.iter().map(|one| (&*one.name, one.members.len())).collect();
    assert_eq!(read, [("just_so", 0), ("much_more", 1)]);
}
