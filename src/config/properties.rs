//! Hadoop property files: names and values, finals, later over earlier, variables.
//!
//! Spec: cluster-manager/06 §1. It knows no meaning of a key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::files::{FileReader, is_there};
use super::keys::Key;
use super::problem::{Origin, Problem, ProblemKind};
use super::suggest::similar;
use super::system::SystemProperties;
use super::xml::{self, Element, Includes};

/// The resources of a configuration directory, in the order in which they are read.
const RESOURCES: [&str; 5] =
    ["core-default.xml", "core-site.xml", "mapred-default.xml", "mapred-site.xml", DEPRECATED];
/// Read last, with a warning.
const DEPRECATED: &str = "hadoop-site.xml";
/// The file that may hold any resource as JSON, and is then read instead of the XML file.
pub(super) const MATERIALIZED_JSON: &str = "config.materialized_JSON";
/// The original's own `core-default.xml`, as far as values are built on it.
const BUILT_IN: [Key; 1] = [super::keys::TEMPORARY_DIR];
/// The most variables that are replaced in one value.
const MAX_SUBSTITUTIONS: usize = 20;
/// The longest value that is made by replacing variables.
const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// Names and raw values, and where they come from.
#[derive(Clone, Debug)]
pub(super) struct Properties {
    values: BTreeMap<String, Property>,
    finals: BTreeSet<String>,
    system: SystemProperties,
}

/// The line in which the same file has set a value before.
fn earlier_line(before: &Origin, now: &Origin) -> Option<u32> {
    match (before, now) {
        (
            Origin::File { path: before, line: Some(line) },
            Origin::File { path: now, line: Some(_) },
        ) if before == now => Some(*line),
        _ => None,
    }
}

/// A value as written in a file, or with its variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) value: String,
    pub(super) origin: Origin,
}

impl Properties {
    /// Reads the resources of a directory, those that exist, then further files, and puts the
    /// overrides on top, which change even finals. Problems are added to the list; the rest is read
    /// nevertheless.
    pub(super) fn load(
        conf_dir: Option<&Path>,
        further: &[PathBuf],
        overrides: &[(String, String)],
        system: SystemProperties,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut properties =
            Properties { values: BTreeMap::new(), finals: BTreeSet::new(), system };
        for key in BUILT_IN {
            properties.set(key.name, key.default, Origin::Default);
        }
        if let Some(conf_dir) = conf_dir {
            properties.load_directory(conf_dir, files, problems);
        }
        for path in further {
            properties.load_xml(path, Includes::Followed, files, problems);
        }
        for (name, value) in overrides {
            properties.set(name, value, Origin::CommandLine);
        }
        properties
    }

    /// A value with its variables replaced. Spec: cluster-manager/06 §1.3. An error is a chain of
    /// variables that does not end; an undefined variable is a warning in the list.
    pub(super) fn get(
        &self,
        name: &str,
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Property>, Problem> {
        match self.values.get(name) {
            None => Ok(None),
            Some(property) => self.expanded(name, property, problems).map(Some),
        }
    }

    /// All names with where they are set.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.values.iter().map(|(name, property)| (name.as_str(), &property.origin))
    }

    /// The same for a value that is not in any file, such as a default.
    pub(super) fn expanded(
        &self,
        name: &str,
        property: &Property,
        problems: &mut Vec<Problem>,
    ) -> Result<Property, Problem> {
        let origin = || property.origin.clone();
        let mut value = property.value.clone();
        for _ in 0..MAX_SUBSTITUTIONS {
            let Some(variable) = first_variable(&value) else {
                return Ok(Property { value, origin: origin() });
            };
            let inner = &value[variable.start + 2..variable.end - 1];
            let raw = || self.values.get(inner).map(|property| property.value.as_str());
            let Some(replacement) = self.system.get(inner).or_else(raw).map(str::to_owned) else {
                let variable = value[variable].to_owned();
                let kind = ProblemKind::UndefinedVariable { value: value.clone(), variable };
                problems.push(Problem::warning(origin(), kind).of(name));
                return Ok(Property { value, origin: origin() });
            };
            value.replace_range(variable, &replacement);
            if value.len() > MAX_EXPANDED_BYTES {
                let bound =
                    format!("with its variables it is longer than {MAX_EXPANDED_BYTES} bytes");
                return Err(Problem::error(origin(), ProblemKind::Bound(bound)).of(name));
            }
        }
        if first_variable(&value).is_none() {
            return Ok(Property { value, origin: origin() });
        }
        let kind = ProblemKind::Value {
            value: property.value.as_str().into(),
            wrong: format!("needs more than {MAX_SUBSTITUTIONS} replacements of variables").into(),
            expected: "variables that do not lead back to themselves".into(),
        };
        Err(Problem::error(origin(), kind).of(name))
    }

    /// A property of the process, such as `user.name`.
    pub(super) fn system_property(&self, name: &str) -> Option<&str> {
        self.system.get(name)
    }

    /// All names with their raw values, in the order of the names.
    pub(super) fn raw(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.values.iter().map(|(name, property)| (name.as_str(), property))
    }

    /// Takes a name out, a final one too.
    pub(super) fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// Sets a value, of a final name too.
    pub(super) fn set(&mut self, name: &str, value: &str, origin: Origin) {
        self.values.insert(name.to_owned(), Property { value: value.to_owned(), origin });
    }

    /// Sets a value unless the name is final.
    fn offer(&mut self, name: &str, value: &str, origin: &Origin, problems: &mut Vec<Problem>) {
        if self.finals.contains(name) {
            let kind = ProblemKind::Final(name.to_owned());
            problems.push(Problem::warning(origin.clone(), kind));
        } else {
            if let Some(before) = self.values.get(name)
                && let Some(line) = earlier_line(&before.origin, origin)
            {
                let text =
                    format!("is set in line {line} of this file as well; the later value is used");
                let kind = ProblemKind::NoEffect(text);
                problems.push(Problem::warning(origin.clone(), kind).of(name));
            }
            self.set(name, value, origin.clone());
        }
    }

    fn load_directory(
        &mut self,
        conf_dir: &Path,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) {
        if !conf_dir.is_dir() {
            let kind = ProblemKind::Unreadable("not a directory".into());
            return problems.push(Problem::error(Origin::file(conf_dir), kind));
        }
        let json_path = conf_dir.join(MATERIALIZED_JSON);
        let json = read_json(&json_path, files, problems);
        for resource in RESOURCES {
            let path = conf_dir.join(resource);
            let section = json.as_ref().and_then(|json| json.get(&json_name(resource)));
            if let Some(Value::Object(section)) = section {
                self.load_json(section, &Origin::file(&json_path), 0, problems);
            } else if is_there(&path) {
                self.load_xml(&path, Includes::Followed, files, problems);
            } else {
                files.note(&path);
                continue;
            }
            if resource == DEPRECATED {
                let kind = ProblemKind::NoEffect(
                    "this file is deprecated; move its properties to core-site.xml or mapred-site.xml"
                        .into(),
                );
                problems.push(Problem::warning(Origin::file(&path), kind));
            }
        }
    }

    /// Puts a file's settings on top; finals of earlier ones stay as they are.
    pub(super) fn load_xml(
        &mut self,
        path: &Path,
        includes: Includes,
        files: &mut FileReader,
        problems: &mut Vec<Problem>,
    ) {
        match xml::read(path, includes, files) {
            Err(problem) => problems.push(problem),
            Ok(root) => {
                if root.name != "configuration" {
                    let kind = ProblemKind::Root { found: root.name.clone() };
                    problems.push(Problem::warning(root.origin.clone(), kind));
                }
                self.load_configuration(&root, problems);
            }
        }
    }

    fn load_configuration(&mut self, configuration: &Element, problems: &mut Vec<Problem>) {
        for child in &configuration.children {
            if child.name == "configuration" {
                self.load_configuration(child, problems);
                continue;
            }
            if child.name != "property" {
                let meant = similar(&child.name, ["property", "configuration"]).map(Into::into);
                let kind = ProblemKind::UnknownElement { name: child.name.as_str().into(), meant };
                problems.push(Problem::warning(child.origin.clone(), kind));
            }
            if let Err(problem) = self.load_property(child, problems) {
                problems.push(problem);
            }
        }
    }

    fn load_property(
        &mut self,
        element: &Element,
        problems: &mut Vec<Problem>,
    ) -> Result<(), Problem> {
        let (mut name, mut value, mut is_final) = (None, None, false);
        for field in &element.children {
            match field.name.as_str() {
                "name" => name = field.text()?.map(xml::trim).or(name),
                "value" => value = field.text()?.map(|text| (text, &field.origin)).or(value),
                "final" => {
                    if let Some(text) = field.text()? {
                        is_final = text == "true";
                        warn_of_nearly_final(field, text, problems);
                    }
                }
                _ => {}
            }
        }
        let Some(name) = name else {
            if element.name == "property" {
                let kind = ProblemKind::Incomplete("<name>, it is ignored");
                problems.push(element.error(kind).into_warning());
            }
            return Ok(());
        };
        if let Some((value, origin)) = value {
            self.offer(name, value, origin, problems);
        }
        if is_final {
            self.finals.insert(name.to_owned());
        }
        Ok(())
    }

    /// Spec: cluster-manager/06 §1.2, the alternative source.
    fn load_json(
        &mut self,
        section: &Map<String, Value>,
        origin: &Origin,
        depth: usize,
        problems: &mut Vec<Problem>,
    ) {
        for (key, value) in section {
            let name = key.replace('_', ".").replace("..", "_");
            let text = match value {
                Value::Null => continue,
                // The parser refuses deep documents; this does not rely on it.
                Value::Object(inner) if depth < 128 => {
                    self.load_json(inner, origin, depth + 1, problems);
                    continue;
                }
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                Value::Array(_) | Value::Object(_) => {
                    let kind = ProblemKind::Replaced {
                        value: value.to_string().into(),
                        wrong: "is not a single value".into(),
                        used: "an empty text is used".into(),
                    };
                    problems.push(Problem::warning(origin.clone(), kind).of(&*name));
                    String::new()
                }
            };
            self.offer(&name, &text, origin, problems);
        }
    }
}

fn warn_of_nearly_final(field: &Element, text: &str, problems: &mut Vec<Problem>) {
    let plain = text.trim().to_lowercase();
    if text != "true" && plain != "false" {
        let kind = ProblemKind::Replaced {
            value: text.into(),
            wrong: "is not exactly \"true\"".into(),
            used: "the property is not final".into(),
        };
        problems.push(field.error(kind).into_warning());
    }
}

/// The document of a JSON file that may be missing. An unusable file is a warning, since the XML
/// files are then read instead, as in the original.
pub(super) fn read_json(
    path: &Path,
    files: &mut FileReader,
    problems: &mut Vec<Problem>,
) -> Option<Map<String, Value>> {
    if !is_there(path) {
        files.note(path);
        return None;
    }
    let refused = |what: String| {
        Problem::warning(
            Origin::file(path),
            ProblemKind::Json(format!("{what}; the XML files are read")),
        )
    };
    let document = files.read(path).map_err(Problem::into_warning).and_then(|bytes| {
        serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))
    });
    match document {
        Ok(Value::Object(document)) => Some(document),
        Ok(_) => {
            problems.push(refused("it is not an object".into()));
            None
        }
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

/// The key of a resource in the JSON file: `core_site` for `core-site.xml`.
pub(super) fn json_name(resource: &str) -> String {
    resource.replace("-custom.xml", "").replace(".xml", "").replace('-', "_")
}

/// The place of the first `${name}`; the name has no `}`, `$` or blank and is not empty.
fn first_variable(text: &str) -> Option<std::ops::Range<usize>> {
    text.match_indices("${").find_map(|(start, _)| {
        let name = &text[start + 2..];
        let length = name.find(['}', '$', ' '])?;
        (length > 0 && name[length..].starts_with('}')).then_some(start..start + 2 + length + 1)
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::{self, property};
    use proptest::prelude::*;

    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn system() -> SystemProperties {
        SystemProperties([("user.name", "cm".to_owned()), ("os.name", "Linux".to_owned())].into())
    }

    /// Loads these files of a directory and the overrides.
    fn load(files: &[(&str, &str)], overrides: &[(&str, &str)]) -> (Properties, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let overrides = tests::overrides(overrides);
        let mut problems = Vec::new();
        let mut reader = FileReader::default();
        let properties = Properties::load(
            Some(dir.path()),
            &[],
            &overrides,
            system(),
            &mut reader,
            &mut problems,
        );
        let prefix = format!("{}/", dir.path().display());
        (properties, problems.iter().map(|p| p.to_string().replace(&prefix, "")).collect())
    }

    fn configuration(inside: &str) -> String {
        format!("<configuration>{inside}</configuration>")
    }

    /// The raw values of `core-site.xml` with this inside, without the built-in ones.
    fn core(inside: &str) -> (Vec<(String, String)>, Vec<String>) {
        let (properties, problems) = load(&[("core-site.xml", &configuration(inside))], &[]);
        let set = properties.values.into_iter().filter(|(_, p)| p.origin != Origin::Default);
        (set.map(|(name, property)| (name, property.value)).collect(), problems)
    }

    #[test]
    fn rules_of_property_files() {
        let nothing: Pairs<'_> = &[];
        let cases: [(&str, Pairs<'_>, &[&str]); 15] = [
            ("<property><name> a\n</name><value> v </value></property>", &[("a", " v ")], &[]),
            ("<property><name>a</name><value/></property>", nothing, &[]),
            ("<property><name>a</name><value></value></property>", nothing, &[]),
            ("<property><name>a</name></property>", nothing, &[]),
            (
                "<property><value>v</value></property>",
                nothing,
                &["core-site.xml:1: property: has no <name>, it is ignored"],
            ),
            (
                "<property><value>v</value><description>d</description><name>a</name></property>",
                &[("a", "v")],
                &[],
            ),
            (
                "<!-- <property> --><property><!-- c --><name>a</name><value>v<!-- c -->w</value></property>",
                &[("a", "vw")],
                &[],
            ),
            (
                "<property><name>a</name><value>1</value></property><property><name>a</name><value>2</value></property>",
                &[("a", "2")],
                &[
                    "core-site.xml:1: a: is set in line 1 of this file as well; the later value is used",
                ],
            ),
            (
                "<property><name>a</name><value>1</value></property><property><name>a</name><value/></property>",
                &[("a", "1")],
                &[],
            ),
            (
                "<property><name>a</name><value>1</value><final>true</final></property>\n<property><name>a</name><value>2</value></property>",
                &[("a", "1")],
                &["core-site.xml:2: a attempt to override final parameter: a;  Ignoring."],
            ),
            (
                "<property><name>a</name><final>true</final></property><property><name>a</name><value>2</value></property>",
                nothing,
                &["core-site.xml:1: a attempt to override final parameter: a;  Ignoring."],
            ),
            (
                "<property><name>a</name><value>1</value><final> true</final></property><property><name>a</name><value>2</value></property>",
                &[("a", "2")],
                &[
                    "core-site.xml:1: final: value \" true\" is not exactly \"true\"; the property is not final",
                    "core-site.xml:1: a: is set in line 1 of this file as well; the later value is used",
                ],
            ),
            (
                "<configuration><property><name>a</name><value>1</value></property><configuration><property><name>b</name><value>2</value></property></configuration></configuration>",
                &[("a", "1"), ("b", "2")],
                &[],
            ),
            (
                "<prop><name>a</name><value>1</value></prop>",
                &[("a", "1")],
                &["core-site.xml:1: unknown element <prop>"],
            ),
            (
                "<property><name>a</name><value><b/></value></property>",
                nothing,
                &[
                    "core-site.xml:1: value: starts with an element or an instruction; expected text",
                ],
            ),
        ];
        for (inside, expected, warnings) in cases {
            let expected: Vec<(String, String)> =
                expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            assert_eq!(
                core(inside),
                (expected, warnings.iter().map(|w| (*w).into()).collect()),
                "{inside}"
            );
        }
    }

    #[test]
    fn later_files_win_unless_final_and_the_command_line_wins_always() {
        let site = |name: &str, text: String| (name.to_owned(), configuration(&text));
        let files = [
            site("core-default.xml", property("order", "1") + &property("kept", "default")),
            site(
                "core-site.xml",
                property("order", "2")
                    + "<property><name>fixed</name><value>core</value><final>true</final></property>",
            ),
            site("mapred-default.xml", property("order", "3")),
            site("mapred-site.xml", property("order", "4") + &property("fixed", "mapred")),
            site("hadoop-site.xml", property("order", "5")),
            site("other.xml", property("order", "6")),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        let value = |properties: &Properties, name: &str| {
            properties.get(name, &mut Vec::new()).unwrap().map(|property| property.value)
        };

        let (properties, problems) = load(&files, &[]);
        assert_eq!(value(&properties, "order").as_deref(), Some("5"));
        assert_eq!(value(&properties, "kept").as_deref(), Some("default"));
        assert_eq!(value(&properties, "fixed").as_deref(), Some("core"));
        assert_eq!(
            problems,
            [
                "mapred-site.xml:1: a attempt to override final parameter: fixed;  Ignoring.",
                "hadoop-site.xml: this file is deprecated; move its properties to core-site.xml or mapred-site.xml",
            ]
        );

        let (properties, _) = load(&files, &[("fixed", "line"), ("order", "7")]);
        assert_eq!(value(&properties, "order").as_deref(), Some("7"));
        assert_eq!(value(&properties, "fixed").as_deref(), Some("line"));
    }

    #[test]
    fn an_included_configuration_counts_as_a_nested_one() {
        let (properties, problems) = load(
            &[
                (
                    "core-site.xml",
                    "<configuration xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='more.xml'/></configuration>",
                ),
                ("more.xml", &configuration(&property("a", "1"))),
            ],
            &[],
        );
        assert_eq!(problems, [""; 0]);
        let property = properties.get("a", &mut Vec::new()).unwrap().unwrap();
        assert_eq!(property.value, "1");
        assert!(property.origin.to_string().ends_with("/more.xml:1"), "{}", property.origin);
    }

    #[test]
    fn broken_files_are_errors_and_another_root_is_a_warning() {
        let cases = [
            (
                "<configuration>",
                "core-site.xml:1: is not well-formed XML: <configuration> is never closed",
            ),
            ("", "core-site.xml: is not well-formed XML: the document does not have a root node"),
            (
                "<conf/>",
                "core-site.xml:1: the outermost element is <conf>; expected <configuration>",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(load(&[("core-site.xml", text)], &[]).1, [expected]);
        }
        let (properties, _) = load(
            &[(
                "core-site.xml",
                "<conf><property><name>a</name><value>1</value></property></conf>",
            )],
            &[],
        );
        assert!(properties.values.contains_key("a"));
    }

    #[test]
    fn the_json_file_stands_before_the_xml_files() {
        let json = r#"{"core_site": {"cm_server_sotimeout": 5, "a__b": true, "c": null, "d": "t", "e": 1.5, "f": [1],
            "g": {"h_i": 99999999999}}, "mapred_site": 7}"#;
        let (properties, problems) = load(
            &[
                ("config.materialized_JSON", json),
                ("core-site.xml", &configuration(&property("x", "1"))),
                ("mapred-site.xml", &configuration(&property("y", "2"))),
            ],
            &[],
        );
        let set: Vec<(&str, &str)> = properties
            .values
            .iter()
            .filter(|(_, property)| property.origin != Origin::Default)
            .map(|(name, property)| (name.as_str(), property.value.as_str()))
            .collect();
        let expected = [
            ("a_b", "true"),
            ("cm.server.sotimeout", "5"),
            ("d", "t"),
            ("e", "1.5"),
            ("f", ""),
            ("h.i", "99999999999"),
            ("y", "2"),
        ];
        assert_eq!(set, expected);
        assert_eq!(
            problems,
            [
                "config.materialized_JSON: f: value \"[1]\" is not a single value; an empty text is used"
            ]
        );
    }

    #[test]
    fn finals_hold_against_json_and_broken_json_gives_way_to_xml() {
        let fixed = "<property><name>a.b</name><value>1</value><final>true</final></property>";
        let (properties, problems) = load(
            &[
                ("core-site.xml", &configuration(fixed)),
                ("config.materialized_JSON", r#"{"mapred_site": {"a_b": 2}}"#),
            ],
            &[],
        );
        assert_eq!(properties.values["a.b"].value, "1");
        assert_eq!(
            problems,
            ["config.materialized_JSON: a attempt to override final parameter: a.b;  Ignoring."]
        );

        for (json, what) in
            [("{", "EOF while parsing an object at line 1 column 1"), ("[]", "it is not an object")]
        {
            let (properties, problems) = load(
                &[
                    ("core-site.xml", &configuration(&property("a", "1"))),
                    ("config.materialized_JSON", json),
                ],
                &[],
            );
            assert_eq!(properties.values["a"].value, "1");
            assert_eq!(
                problems,
                [format!(
                    "config.materialized_JSON: is not usable JSON: {what}; the XML files are read"
                )]
            );
        }
    }

    #[test]
    fn variables_are_replaced() {
        let set = [
            ("a", "1"),
            ("b", "${a}${a}"),
            ("user.name", "from a file"),
            ("loop", "${loop}"),
            ("twenty", &"${a}".repeat(20)),
            ("many", &"${a}".repeat(21)),
            ("grow", &format!("{}{}", "x".repeat(100_000), "${grow}")),
            ("tmp", "${hadoop.tmp.dir}/x"),
            ("unknown", "${a} ${nobody} ${a}"),
            ("nested", "${${a}}"),
            ("odd", "${} ${a b} $a ${ ${a} }"),
        ];
        let (properties, _) = load(&[], &set);
        let cases = [
            ("a", Ok("1"), None),
            ("b", Ok("11"), None),
            ("user.name", Ok("from a file"), None),
            ("tmp", Ok("/tmp/hadoop-cm/x"), None),
            ("twenty", Ok("11111111111111111111"), None),
            ("unknown", Ok("1 ${nobody} ${a}"), Some("${nobody}")),
            ("nested", Ok("${1}"), Some("${1}")),
            ("odd", Ok("${} ${a b} $a ${ 1 }"), None),
            (
                "loop",
                Err(
                    "-D: loop: value \"${loop}\" needs more than 20 replacements of variables; expected variables that do not lead back to themselves",
                ),
                None,
            ),
            ("many", Err("needs more than 20 replacements"), None),
            (
                "grow",
                Err("-D: grow: is refused: with its variables it is longer than 1048576 bytes"),
                None,
            ),
        ];
        for (name, expected, undefined) in cases {
            let mut problems = Vec::new();
            match (properties.get(name, &mut problems), expected) {
                (Ok(property), Ok(value)) => assert_eq!(property.unwrap().value, value, "{name}"),
                (Err(problem), Err(text)) => {
                    assert!(problem.to_string().contains(text), "{problem}")
                }
                (got, _) => panic!("{name}: {got:?}"),
            }
            let variables: Vec<&str> = problems
                .iter()
                .map(|problem| match &problem.kind {
                    ProblemKind::UndefinedVariable { variable, .. } => variable.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(variables, undefined.into_iter().collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn the_process_comes_before_the_files() {
        let (properties, _) = load(&[], &[("user.name", "file"), ("who", "${user.name}")]);
        assert_eq!(properties.get("who", &mut Vec::new()).unwrap().unwrap().value, "cm");
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut problems = Vec::new();
        let absent = Path::new("/nonexistent/conf");
        Properties::load(
            Some(absent),
            &[],
            &[],
            system(),
            &mut FileReader::default(),
            &mut problems,
        );
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["/nonexistent/conf: cannot be read: not a directory"]);
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "[${}a ]{0,60}|\\PC{0,60}") {
            let (properties, _) = load(&[], &[("v", &value), ("a", "${v}")]);
            let _ = properties.get("v", &mut Vec::new());
        }
    }
}
