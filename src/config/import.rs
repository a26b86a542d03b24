//! Pools files made of the queue files of YARN's schedulers (`corona pools import`).
//!
//! What has a counterpart is translated, what has none is listed. Names become legal and unique.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::files::FileReader;
use super::problem::{Problem, ProblemKind};
use super::xml::{self, Element, Includes, trim};

/// The result of a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The pools file.
    pub pools_file: String,
    /// What has no counterpart, and what is called otherwise, one line each.
    pub notes: Vec<String>,
}

/// Translates a `capacity-scheduler.xml` or a `fair-scheduler.xml`.
///
/// # Errors
/// If the file cannot be read, or is neither.
pub fn import(path: &Path) -> Result<Imported, Problem> {
    let root = xml::read(path, Includes::Followed, &mut FileReader::default())?;
    let mut notes = Vec::new();
    let mut tree = match root.name.as_str() {
        "configuration" => {
            let (path, kind) = (&root.origin, ProblemKind::Incomplete(QUEUES));
            let none = || Problem::error(path.clone(), kind);
            capacity(&root, &mut notes).ok_or_else(none)?
        }
        "allocations" => fair(&root, &mut notes),
        _ => return Err(Problem::error(root.origin, ProblemKind::Root { found: root.name })),
    };
    notes.extend(tree.name_all());
    let mut pools_file = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for rule in &tree.rules {
        let _ = writeln!(pools_file, "  {rule}");
    }
    tree.root.write(1, &mut pools_file);
    pools_file.push_str("</configuration>\n");
    Ok(Imported { pools_file, notes })
}

/// The queues of a file.
#[derive(Debug, Default)]
struct Tree {
    root: Node,
    /// Placement rules, as elements.
    rules: Vec<String>,
    /// The groups to which the rules lead, by their paths.
    places: Vec<(String, String)>,
}

/// A queue with the attributes that it gets.
#[derive(Debug, Default)]
struct Node {
    /// Its path in the original file.
    path: String,
    name: String,
    is_group: bool,
    attributes: BTreeMap<&'static str, String>,
    inside: Vec<Node>,
}

impl Node {
    fn new(path: &str, is_group: bool) -> Node {
        let name = path.rsplit('.').next().unwrap_or(path).to_owned();
        Node { path: path.to_owned(), name, is_group, ..Node::default() }
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.attributes.insert(name, value.into());
    }

    fn write(&self, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        let element = if self.is_group { "group" } else { "pool" };
        let mut tag = format!("{indent}<{element} name=\"{}\"", self.name);
        for (name, value) in &self.attributes {
            let _ = write!(tag, " {name}=\"{}\"", quoted(value));
        }
        if self.inside.is_empty() {
            let _ = writeln!(out, "{tag}/>");
            return;
        }
        let _ = writeln!(out, "{tag}>");
        self.inside.iter().for_each(|inner| inner.write(depth + 1, out));
        let _ = writeln!(out, "{indent}</{element}>");
    }

    fn find(&self, path: &str) -> Option<&Node> {
        if self.path == path {
            return Some(self);
        }
        self.inside.iter().find_map(|inner| inner.find(path))
    }
}

impl Tree {
    /// Gives legal names, unique ones to groups. Returns what was renamed.
    fn name_all(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        name_inside(&mut self.root, "", &mut BTreeSet::new(), &mut notes);
        for (by, path) in &self.places {
            match self.root.find(path) {
                Some(group) if group.is_group => self
                    .rules
                    .push(format!("<place by=\"{by}\" to=\"{}\" create=\"true\"/>", group.name)),
                _ => notes
                    .push(format!("placement by {by} to {path}: there is no such parent queue")),
            }
        }
        notes
    }
}

fn name_inside(
    node: &mut Node,
    around: &str,
    groups: &mut BTreeSet<String>,
    notes: &mut Vec<String>,
) {
    let legal: String = node.name.chars().flat_map(char::to_lowercase).map(legal).collect();
    let mut name = legal.clone();
    if node.is_group {
        if groups.contains(&name) {
            name = format!("{around}-{legal}");
        }
        let stem = name.clone();
        let mut number = 2;
        while !groups.insert(name.clone()) {
            name = format!("{stem}-{number}");
            number += 1;
        }
    }
    if name != node.name {
        notes.push(format!("queue {} is called {name}", node.path));
        node.name = name;
    }
    let own = node.name.clone();
    let mut pools = BTreeSet::new();
    for inner in &mut node.inside {
        name_inside(inner, &own, groups, notes);
        if !inner.is_group {
            let stem = inner.name.clone();
            let mut number = 2;
            while !pools.insert(inner.name.clone()) {
                inner.name = format!("{stem}-{number}");
                number += 1;
            }
        }
    }
}

fn legal(character: char) -> char {
    match character {
        '0'..='9' | 'a'..='z' | '-' | '_' => character,
        _ => '-',
    }
}

fn quoted(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// A part such as `12.5%` of a number of per cent, which has two decimals at most; `None` for any other text.
fn percent(text: &str) -> Option<String> {
    let number: f64 = text.trim().trim_end_matches('%').trim().parse().ok()?;
    // Rounded down: the sum of parts must not be more than all.
    let cut = |number: f64| (number * 100.0 + 1e-6).floor() / 100.0;
    (0.0..=100.0).contains(&number).then(|| format!("{}%", cut(number)))
}

/// The property without which a file is not one of the capacity scheduler.
const QUEUES: &str = "property yarn.scheduler.capacity.root.queues";
const CAPACITY: &str = "yarn.scheduler.capacity.";

/// A list of users and groups without the ends of lines around it.
fn acl(text: &str) -> &str {
    text.trim_matches(['\n', '\r', '\t']).trim_end()
}

/// The properties of the capacity scheduler. `None` if they name no queue.
fn capacity(root: &Element, notes: &mut Vec<String>) -> Option<Tree> {
    let mut properties: BTreeMap<String, String> = BTreeMap::new();
    for property in root.children.iter().filter(|child| child.name == "property") {
        let text = |name: &str| {
            let child = property.children.iter().find(|child| child.name == name)?;
            Some(child.text().ok().flatten().unwrap_or_default())
        };
        let name = text("name").unwrap_or_default();
        if let Some(name) = trim(name).strip_prefix(CAPACITY) {
            let value = text("value").unwrap_or_default();
            // A blank at the start of a list of users and groups means that there are no users.
            let value = if name.contains(".acl_") { acl(value) } else { trim(value) };
            properties.insert(name.to_owned(), value.to_owned());
        }
    }
    properties.get("root.queues")?;
    let mut tree = Tree::default();
    let mut used = BTreeSet::new();
    tree.root = capacity_queue("root", &properties, &mut used, notes, 0);
    tree.root.set("min", "100%");
    if let Some(mappings) = properties.get("queue-mappings") {
        used.insert("queue-mappings".to_owned());
        for mapping in mappings.split(',').map(str::trim).filter(|mapping| !mapping.is_empty()) {
            let parts: Vec<&str> = mapping.split(':').map(str::trim).collect();
            let queue = parts.last().copied().unwrap_or_default();
            let of = |suffix: &str| match queue.strip_suffix(suffix) {
                Some("") => Some("root".to_owned()),
                Some(parent) => Some(full(&tree.root, parent.strip_suffix('.')?)),
                None => None,
            };
            let place = match parts.as_slice() {
                ["u", "%user", _] => of("%user")
                    .map(|path| ("user", path))
                    .or_else(|| of("%primary_group").map(|path| ("group", path))),
                _ => None,
            };
            match place {
                Some((by, path)) => tree.places.push((by.to_owned(), path)),
                None => notes.push(format!("queue-mappings: {mapping} has no counterpart")),
            }
        }
    }
    for (name, value) in properties.iter().filter(|(name, _)| !used.contains(*name)) {
        notes.push(format!("{CAPACITY}{name} = {value} has no counterpart"));
    }
    Some(tree)
}

/// The path of a queue that a rule names by its path or its last name.
fn full(root: &Node, name: &str) -> String {
    fn by_name<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
        let own = node.name == name || node.path == name;
        if own { Some(node) } else { node.inside.iter().find_map(|inner| by_name(inner, name)) }
    }
    by_name(root, name).map_or_else(|| name.to_owned(), |node| node.path.clone())
}

fn capacity_queue(
    path: &str,
    properties: &BTreeMap<String, String>,
    used: &mut BTreeSet<String>,
    notes: &mut Vec<String>,
    depth: usize,
) -> Node {
    let mut property = |name: &str| {
        let key = format!("{path}.{name}");
        let value = properties.get(&key)?;
        used.insert(key);
        Some(value.as_str())
    };
    let queues = property("queues").unwrap_or_default();
    let queues: Vec<&str> =
        queues.split(',').map(str::trim).filter(|queue| !queue.is_empty()).collect();
    let is_group = !queues.is_empty() || path == "root";
    let mut node = Node::new(path, is_group);
    if let Some(capacity) = property("capacity").filter(|_| path != "root") {
        match (percent(capacity), capacity.strip_suffix('w')) {
            (Some(part), _) => {
                node.set("weight", part.trim_end_matches('%'));
                node.set("min", part);
            }
            (None, Some(weight)) => node.set("weight", weight),
            (None, None) => notes.push(format!("{path}: capacity {capacity} has no counterpart")),
        }
    }
    match property("maximum-capacity") {
        None | Some("-1" | "100") => {}
        Some(_) if path == "root" => {}
        Some(most) => match percent(most) {
            Some(part) => node.set("max", part),
            None => notes.push(format!("{path}: maximum-capacity {most} has no counterpart")),
        },
    }
    if property("state").is_some_and(|state| state.eq_ignore_ascii_case("STOPPED")) {
        node.set("state", "draining");
    }
    if let Some(who) = property("acl_submit_applications")
        && !(who == "*" && path == "root")
    {
        node.set("submit", who);
    }
    if let Some(most) =
        property("max-parallel-apps").filter(|most| most.parse::<u32>().is_ok_and(|most| most > 0))
    {
        node.set("maxSessions", most);
    }
    match property("ordering-policy") {
        Some("fifo") if !is_group => node.set("order", "FIFO"),
        Some("fair") if !is_group => node.set("order", "FAIR"),
        Some("utilization" | "priority-utilization") | None => {}
        Some(other) => notes.push(format!("{path}: ordering-policy {other} has no counterpart")),
    }
    if property("disable_preemption").is_some_and(|off| off.eq_ignore_ascii_case("true")) {
        node.set("preemption", "disabled");
    }
    if depth >= corona_model::queues::MAX_DEPTH - 1 {
        notes.push(format!("{path}: the queues in it are too deep"));
        return node;
    }
    let mut seen = BTreeSet::new();
    for queue in queues {
        let path = format!("{path}.{queue}");
        if !seen.insert(queue) {
            notes.push(format!("{path}: it is listed twice, and counts once"));
            continue;
        }
        node.inside.push(capacity_queue(&path, properties, used, notes, depth + 1));
    }
    node
}

/// The elements of the fair scheduler.
fn fair(root: &Element, notes: &mut Vec<String>) -> Tree {
    let mut tree = Tree::default();
    let mut order = None;
    tree.root = Node::new("root", true);
    for child in &root.children {
        let text = trim(child.text().ok().flatten().unwrap_or_default()).to_owned();
        match child.name.as_str() {
            "queue" | "pool" => fair_queue(child, &mut tree.root, notes, 0),
            "userMaxAppsDefault" | "userMaxJobsDefault"
                if text.parse::<u32>().is_ok_and(|most| most > 0) =>
            {
                tree.root.set("maxSessionsPerUser", text);
            }
            "defaultQueueSchedulingPolicy"
            | "defaultQueueSchedulingMode"
            | "defaultPoolSchedulingMode" => {
                order = fair_order(&text);
                if order.is_none() {
                    notes.push(format!("{} {text} has no counterpart", child.name));
                }
            }
            "queuePlacementPolicy" => {
                for rule in &child.children {
                    fair_rule(rule, &mut tree, notes);
                }
            }
            "user" => {
                let name = child.attribute("name").unwrap_or_default();
                notes.push(format!("limits of user {name} alone have no counterpart"));
            }
            name => notes.push(format!("{name} {text} has no counterpart")),
        }
    }
    // Without a policy, sessions of a queue share it.
    set_order(&mut tree.root, order.unwrap_or("FAIR"));
    if tree.root.inside.is_empty() {
        notes.push("the file has no queues".to_owned());
    }
    tree
}

fn set_order(node: &mut Node, order: &'static str) {
    if !node.is_group {
        node.attributes.entry("order").or_insert_with(|| order.to_owned());
    }
    node.inside.iter_mut().for_each(|inner| set_order(inner, order));
}

fn fair_order(policy: &str) -> Option<&'static str> {
    match policy.to_ascii_lowercase().rsplit('.').next() {
        Some("fifo" | "fifopolicy") => Some("FIFO"),
        Some("fair" | "fairsharepolicy") => Some("FAIR"),
        _ => None,
    }
}

fn fair_queue(element: &Element, around: &mut Node, notes: &mut Vec<String>, depth: usize) {
    let given = element.attribute("name").unwrap_or_default();
    let name = given.strip_prefix("root.").unwrap_or(given);
    if given == "root" && around.path == "root" {
        fair_settings(element, around, notes, depth);
        return;
    }
    if depth >= corona_model::queues::MAX_DEPTH - 1 {
        notes.push(format!("{}.{name}: is too deep", around.path));
        return;
    }
    let is_queue = |child: &Element| ["queue", "pool"].contains(&child.name.as_str());
    let is_group =
        element.children.iter().any(is_queue) || element.attribute("type") == Some("parent");
    let mut node = Node::new(&format!("{}.{name}", around.path), is_group);
    node.name = name.to_owned();
    fair_settings(element, &mut node, notes, depth);
    around.inside.push(node);
}

fn fair_settings(element: &Element, node: &mut Node, notes: &mut Vec<String>, depth: usize) {
    for child in &element.children {
        let text = trim(child.text().ok().flatten().unwrap_or_default());
        let path = node.path.clone();
        let none = |notes: &mut Vec<String>| {
            notes.push(format!("{path}: {} {text} has no counterpart", child.name));
        };
        let number = text.parse::<u32>().is_ok();
        match child.name.as_str() {
            "queue" | "pool" => fair_queue(child, node, notes, depth + 1),
            "weight" if text.parse::<f64>().is_ok_and(|weight| weight >= 0.0) => {
                node.set("weight", text);
            }
            "minMaps" if number => node.set("minMAP", text),
            "maxMaps" if number => node.set("maxMAP", text),
            "minReduces" if number => node.set("minREDUCE", text),
            "maxReduces" if number => node.set("maxREDUCE", text),
            "maxResources" => match percent(text).filter(|_| text.ends_with('%')) {
                Some(part) => node.set("max", part),
                None => none(notes),
            },
            "maxRunningApps" | "maxRunningJobs" if number && text != "0" => {
                node.set("maxSessions", text);
            }
            "schedulingPolicy" | "schedulingMode" if !node.is_group => match fair_order(text) {
                Some(order) => node.set("order", order),
                None => none(notes),
            },
            "aclSubmitApps" => {
                let who = child.text().ok().flatten().unwrap_or_default();
                node.set("submit", acl(who));
            }
            "allowPreemptionFrom" if text.eq_ignore_ascii_case("false") => {
                node.set("preemption", "disabled");
            }
            "allowPreemptionFrom" => {}
            _ => none(notes),
        }
    }
}

fn fair_rule(rule: &Element, tree: &mut Tree, notes: &mut Vec<String>) {
    let create = rule.attribute("create") != Some("false");
    let place = match rule.attribute("name").unwrap_or_default() {
        // That is what sessions get which name a queue.
        "specified" => return,
        "user" if create => Some(("user", "root".to_owned())),
        "primaryGroup" if create => Some(("group", "root".to_owned())),
        "nestedUserQueue" => rule
            .children
            .iter()
            .find(|inner| inner.attribute("name") == Some("default"))
            .and_then(|inner| inner.attribute("queue"))
            .map(|queue| ("user", full(&tree.root, queue)))
            .filter(|_| create),
        _ => None,
    };
    match place {
        Some((by, path)) => tree.places.push((by.to_owned(), path)),
        None => {
            let name = rule.attribute("name").unwrap_or_default();
            notes.push(format!("placement rule {name} has no counterpart"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str) -> Imported {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queues.xml");
        std::fs::write(&path, text).unwrap();
        import(&path).unwrap()
    }

    #[test]
    fn parts_that_are_rounded_are_no_more_than_all_and_names_count_once() {
        let property = |name: &str, value: &str| {
            format!("<property><name>{CAPACITY}{name}</name><value>{value}</value></property>")
        };
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let mut file = property("root.queues", &format!("{},a", names.join(",")));
        for name in names {
            file += &property(&format!("root.{name}.capacity"), "14.2857143");
        }
        let Imported { pools_file, notes } =
            imported(&format!("<configuration>{file}</configuration>"));
        assert_eq!(pools_file.matches("min=\"14.28%\"").count(), 7, "{pools_file}");
        assert_eq!(notes, ["root.a: it is listed twice, and counts once"]);
    }

    #[test]
    fn queues_of_the_capacity_scheduler() {
        let property = |name: &str, value: &str| {
            format!("<property><name>{CAPACITY}{name}</name><value>{value}</value></property>")
        };
        let file: String = [
            ("root.queues", "Prod,dev"),
            ("root.Prod.capacity", "70"),
            ("root.Prod.acl_submit_applications", " staff"),
            ("root.Prod.user-limit-factor", "2"),
            ("root.dev.capacity", "30"),
            ("root.dev.maximum-capacity", "62.5"),
            ("root.dev.queues", "eng"),
            ("root.dev.eng.capacity", "100"),
            ("root.dev.eng.ordering-policy", "fair"),
            ("queue-mappings", "u:%user:dev.%user,u:ann:eng"),
        ]
        .map(|(name, value)| property(name, value))
        .concat();
        let Imported { pools_file, notes } =
            imported(&format!("<configuration>{file}</configuration>"));
        assert_eq!(
            pools_file.lines().skip(2).collect::<Vec<_>>(),
            [
                "  <place by=\"user\" to=\"dev\" create=\"true\"/>",
                "  <group name=\"root\" min=\"100%\">",
                "    <pool name=\"prod\" min=\"70%\" submit=\" staff\" weight=\"70\"/>",
                "    <group name=\"dev\" max=\"62.5%\" min=\"30%\" weight=\"30\">",
                "      <pool name=\"eng\" min=\"100%\" order=\"FAIR\" weight=\"100\"/>",
                "    </group>",
                "  </group>",
                "</configuration>",
            ]
        );
        assert_eq!(
            notes,
            [
                "queue-mappings: u:ann:eng has no counterpart",
                "yarn.scheduler.capacity.root.Prod.user-limit-factor = 2 has no counterpart",
                "queue root.Prod is called prod",
            ]
        );
    }

    #[test]
    fn files_of_other_schedulers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (text, expected) in [
            ("<configuration/>", "has no property yarn.scheduler.capacity.root.queues"),
            ("<queues/>", "the outermost element is <queues>; expected <configuration>"),
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = import(&path).unwrap_err().to_string();
            assert!(problem.ends_with(expected), "{problem}");
        }
    }

    #[test]
    fn queues_of_the_fair_scheduler() {
        let Imported { pools_file, notes } = imported(
            "<allocations>
               <queue name='a' type='parent'><weight>2.0</weight>
                 <queue name='x'><maxRunningApps>5</maxRunningApps><minResources>1024 mb, 1 vcores</minResources></queue>
               </queue>
               <queue name='b'><queue name='a'><schedulingPolicy>fifo</schedulingPolicy>
                 <queue name='y'><maxResources>40.0%</maxResources></queue></queue></queue>
               <pool name='old'><minMaps>5</minMaps></pool>
               <userMaxAppsDefault>3</userMaxAppsDefault>
               <queuePlacementPolicy><rule name='specified'/><rule name='user'/><rule name='reject'/></queuePlacementPolicy>
             </allocations>",
        );
        assert_eq!(
            pools_file.lines().skip(2).collect::<Vec<_>>(),
            [
                "  <place by=\"user\" to=\"root\" create=\"true\"/>",
                "  <group name=\"root\" maxSessionsPerUser=\"3\">",
                "    <group name=\"a\" weight=\"2.0\">",
                "      <pool name=\"x\" maxSessions=\"5\" order=\"FAIR\"/>",
                "    </group>",
                "    <group name=\"b\">",
                "      <group name=\"b-a\">",
                "        <pool name=\"y\" max=\"40%\" order=\"FAIR\"/>",
                "      </group>",
                "    </group>",
                "    <pool name=\"old\" minMAP=\"5\" order=\"FAIR\"/>",
                "  </group>",
                "</configuration>",
            ]
        );
        assert_eq!(
            notes,
            [
                "root.a.x: minResources 1024 mb, 1 vcores has no counterpart",
                "root.b.a: schedulingPolicy fifo has no counterpart",
                "placement rule reject has no counterpart",
                "queue root.b.a is called b-a",
            ]
        );
    }
}
