//! Pools files made of the queue files of YARN's schedulers (`corona pools import`).
//!
//! What has a counterpart is translated, what has none is listed. Names become legal and unique.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::files::FileReader;
use super::problem::{Problem, ProblemKind};
use super::quotas;
use super::xml::{self, Element, Includes, trim};
use corona_model::queues::{Part, Quota, Quotas};
use corona_model::resources::Dimension;
use corona_model::text::escape_markup;

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
    let refused = |kind| Problem::error(root.origin.clone(), kind);
    let mut notes = Notes::default();
    let mut tree = match root.name.as_str() {
        "configuration" => match capacity(&root, &mut notes) {
            Some(tree) => tree,
            None if is_of_hadoop_1(&root) => return Err(refused(of_hadoop_1())),
            None => return Err(refused(ProblemKind::Incomplete(QUEUES))),
        },
        "allocations" => fair(&root, &mut notes),
        "queues" => return Err(refused(of_hadoop_1())),
        found => {
            return Err(refused(ProblemKind::NoEffect(format!(
                "the outermost element is <{found}>; {EXPECTED}"
            ))));
        }
    };
    if tree.root.inside.is_empty() && tree.places.is_empty() {
        return Err(refused(ProblemKind::NoEffect("names no queues".into())));
    }
    fit(&mut tree.root, &mut notes);
    tree.name_all(&mut notes);
    let mut pools_file = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for rule in &tree.rules {
        let _ = writeln!(pools_file, "  {rule}");
    }
    tree.root.write(1, &mut pools_file);
    pools_file.push_str("</configuration>\n");
    Ok(Imported { pools_file, notes: notes.lines() })
}

const EXPECTED: &str =
    "expected <configuration> of YARN's capacity scheduler or <allocations> of the fair scheduler";

/// Whether a file has queues of the capacity scheduler that came before YARN's.
fn is_of_hadoop_1(root: &Element) -> bool {
    properties(root).any(|(name, _)| {
        let prefixes = ["mapred.capacity-scheduler.", "mapred.queue."];
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    })
}

fn of_hadoop_1() -> ProblemKind {
    ProblemKind::NoEffect(format!("is a queue file of Hadoop 1, which had no tree; {EXPECTED}"))
}

/// What has no counterpart, and what is called otherwise.
#[derive(Debug, Default)]
struct Notes {
    lines: Vec<String>,
    /// Settings without a counterpart, by name, with the queues that have them.
    lost: BTreeMap<String, Vec<String>>,
}

impl Notes {
    /// Queues that are named for each setting that has no counterpart.
    const NAMED: usize = 5;

    fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// A setting of a queue has no counterpart.
    fn lose(&mut self, setting: &str, queue: &str, value: &str) {
        self.lost.entry(setting.to_owned()).or_default().push(format!("{queue} = {value}"));
    }

    fn lines(self) -> Vec<String> {
        let lost = self.lost.into_iter().map(|(setting, mut queues)| {
            let more = queues.len().saturating_sub(Notes::NAMED);
            queues.truncate(Notes::NAMED);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            format!("{setting} has no counterpart: {}{more}", queues.join(", "))
        });
        lost.chain(self.lines).collect()
    }
}

/// The queues of a file.
#[derive(Debug, Default)]
struct Tree {
    root: Node,
    /// Placement rules, as elements.
    rules: Vec<String>,
    /// Where the rules lead.
    places: Vec<Place>,
}

/// A placement rule: by what, to the group of this path, and whether it makes queues.
#[derive(Debug)]
struct Place {
    by: &'static str,
    path: String,
    create: bool,
}

/// A queue with the attributes that it gets.
#[derive(Debug, Default)]
struct Node {
    /// Its path in the original file.
    path: String,
    name: String,
    is_group: bool,
    attributes: BTreeMap<&'static str, String>,
    /// Its limits in resources.
    quotas: Quotas,
    /// Of a pool; groups have none.
    priority: Option<i32>,
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
        let mut attributes = self.attributes.clone();
        let Quotas { minimum, maximum } = &self.quotas;
        for (name, quotas) in [("min", minimum), ("max", maximum)] {
            let Some(resources) = quotas::written(quotas) else { continue };
            let slots = attributes.remove(name).map(|slots| slots + ",").unwrap_or_default();
            attributes.insert(name, slots + &resources);
        }
        for (name, value) in &attributes {
            let _ = write!(tag, " {name}=\"{}\"", escape_markup(value));
        }
        if let Some(priority) = self.priority {
            let _ = writeln!(out, "{tag}><priority>{priority}</priority></{element}>");
            return;
        }
        if self.inside.is_empty() {
            let _ = writeln!(out, "{tag}/>");
            return;
        }
        let _ = writeln!(out, "{tag}>");
        self.inside.iter().for_each(|inner| inner.write(depth + 1, out));
        let _ = writeln!(out, "{indent}</{element}>");
    }

    fn note_paths(&self, paths: &mut Vec<String>) {
        paths.push(self.path.clone());
        self.inside.iter().for_each(|inner| inner.note_paths(paths));
    }

    /// The text of an attribute; empty where the queue does not have it.
    fn text(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// The number of an attribute, of slots or of per cent.
    fn number(&self, name: &str) -> Option<f64> {
        self.text(name).trim_end_matches('%').parse().ok()
    }

    fn find(&self, path: &str) -> Option<&Node> {
        if self.path == path {
            return Some(self);
        }
        self.inside.iter().find_map(|inner| inner.find(path))
    }
}

impl Tree {
    /// Gives legal names, unique ones to groups, and writes the placement rules with them.
    fn name_all(&mut self, notes: &mut Notes) {
        let mut taken = BTreeSet::new();
        name_groups(&mut self.root, "", &mut taken, notes);
        name_pools(&mut self.root, notes);
        for Place { by, path, create } in &self.places {
            match self.root.find(path) {
                Some(group) if group.is_group => {
                    let name = &group.name;
                    let rule = format!("<place by=\"{by}\" to=\"{name}\" create=\"{create}\"/>");
                    self.rules.push(rule);
                }
                _ => notes
                    .push(format!("placement by {by} to {path}: there is no such parent queue")),
            }
        }
    }
}

/// The first of `name`, `name-2`, `name-3` and so on that is free, which is taken then.
fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

fn legal_name(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).map(legal).collect()
}

fn rename(node: &mut Node, name: String, notes: &mut Notes) {
    if name != node.name {
        notes.push(format!("queue {} is called {name}", node.path));
        node.name = name;
    }
}

/// The outermost groups first, so that the inner one of two is called otherwise.
fn name_groups(node: &mut Node, around: &str, taken: &mut BTreeSet<String>, notes: &mut Notes) {
    let legal = legal_name(&node.name);
    let stem = if taken.contains(&legal) { format!("{around}-{legal}") } else { legal };
    rename(node, free_name(&stem, taken), notes);
    let own = node.name.clone();
    for inner in node.inside.iter_mut().filter(|inner| inner.is_group) {
        name_groups(inner, &own, taken, notes);
    }
}

/// A path must not lead to a pool and to a group, so pools are not called like the groups beside them.
fn name_pools(node: &mut Node, notes: &mut Notes) {
    let groups = node.inside.iter().filter(|inner| inner.is_group);
    let mut taken: BTreeSet<String> = groups.map(|group| group.name.clone()).collect();
    for inner in &mut node.inside {
        if inner.is_group {
            name_pools(inner, notes);
        } else {
            rename(inner, free_name(&legal_name(&inner.name), &mut taken), notes);
        }
    }
}

/// Lowers minima that a pools file may not have: those above their maxima, those that add up to more than
/// there is around them, and parts of nothing.
fn fit(node: &mut Node, notes: &mut Notes) {
    for (least, most) in [("min", "max"), ("minMAP", "maxMAP"), ("minREDUCE", "maxREDUCE")] {
        if let (Some(minimum), Some(maximum)) = (node.number(least), node.number(most))
            && minimum > maximum
        {
            let (was, maximum) = (node.text(least), node.text(most).to_owned());
            notes.push(format!("{}: {least} {was} is above its {most} {maximum}", node.path));
            node.set(least, maximum);
        }
        let mut rest = match least {
            "min" => node.number(least).filter(|part| *part > 0.0).map_or(0.0, |_| 100.0),
            _ => node.number(most).unwrap_or(f64::INFINITY),
        };
        for inner in &mut node.inside {
            let Some(minimum) = inner.number(least).filter(|minimum| *minimum > 0.0) else {
                continue;
            };
            if minimum <= rest + 1e-6 {
                rest -= minimum;
                continue;
            }
            let what = match rest > 0.0 {
                true => "is more than the other queues leave",
                false => "is a part of nothing",
            };
            notes.push(format!("{}: {least} {} {what}", inner.path, inner.text(least)));
            inner.attributes.remove(least);
        }
    }
    Dimension::ALL.into_iter().for_each(|dimension| fit_resource(node, dimension, notes));
    node.inside.iter_mut().for_each(|inner| fit(inner, notes));
}

/// The same for the minima of a resource.
fn fit_resource(node: &mut Node, dimension: Dimension, notes: &mut Notes) {
    let name = dimension.name();
    let amount = |quota: Option<Quota>| match quota {
        Some(Quota::Amount(amount)) => Some(amount),
        _ => None,
    };
    let most = amount(*dimension.item(&node.quotas.maximum));
    let minimum = dimension.item_mut(&mut node.quotas.minimum);
    if let (Some(least), Some(most)) = (amount(*minimum), most)
        && least > most
    {
        let [was, most_text] = [least, most].map(|amount| dimension.short(amount));
        notes.push(format!("{}: min {name}={was} is above its max {name}={most_text}", node.path));
        *minimum = Some(Quota::Amount(most));
    }
    let of_nothing = minimum.is_none();
    let (mut rest, mut parts_left) = (most.unwrap_or(u64::MAX), Part::WHOLE.0);
    for inner in &mut node.inside {
        let minimum = dimension.item_mut(&mut inner.quotas.minimum);
        let Some(least) = *minimum else { continue };
        let what = match least {
            Quota::Amount(amount) if amount <= rest => {
                rest -= amount;
                continue;
            }
            Quota::Part(part) if !of_nothing && part.0 <= parts_left => {
                parts_left -= part.0;
                continue;
            }
            Quota::Part(_) if of_nothing => "is a part of nothing",
            Quota::Amount(_) | Quota::Part(_) => "is more than the other queues leave",
        };
        let least = quotas::text(dimension, least);
        notes.push(format!("{}: min {name}={least} {what}", inner.path));
        *minimum = None;
    }
}

fn legal(character: char) -> char {
    match character {
        '0'..='9' | 'a'..='z' | '-' | '_' => character,
        _ => '-',
    }
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

/// The properties of a file, in order.
fn properties(root: &Element) -> impl Iterator<Item = (&str, &str)> {
    root.children.iter().filter(|child| child.name == "property").map(|property| {
        let text = |name: &str| {
            let child = property.children.iter().find(|child| child.name == name)?;
            Some(child.text().ok().flatten().unwrap_or_default())
        };
        (trim(text("name").unwrap_or_default()), text("value").unwrap_or_default())
    })
}

/// Properties of all queues that are about application masters, resources and places in racks, which
/// nothing here has.
const FOREIGN: [&str; 9] = [
    "maximum-applications",
    "maximum-am-resource-percent",
    "resource-calculator",
    "node-locality-delay",
    "rack-locality-additional-delay",
    "queue-mappings-override.enable",
    "application.fail-fast",
    "per-node-heartbeat.multiple-assignments-enabled",
    "per-node-heartbeat.maximum-container-assignments",
];

/// Settings of one queue that are about the same, or change nothing with this value.
fn changes_nothing(setting: &str, value: &str) -> bool {
    let foreign = ["maximum-applications", "maximum-am-resource-percent", "maximum-allocation-mb"];
    foreign.contains(&setting)
        || matches!(
            (setting, value),
            ("user-limit-factor", "1" | "1.0")
                | ("minimum-user-limit-percent", "100")
                | ("accessible-node-labels" | "acl_administer_queue", "*")
                | ("priority", "0")
        )
}

/// The properties of the capacity scheduler. `None` if they name no queue.
fn capacity(root: &Element, notes: &mut Notes) -> Option<Tree> {
    let mut of_file: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in properties(root) {
        if let Some(name) = name.strip_prefix(CAPACITY) {
            // A blank at the start of a list of users and groups means that there are no users.
            let value = if name.contains(".acl_") { acl(value) } else { trim(value) };
            of_file.insert(name.to_owned(), value.to_owned());
        }
    }
    let properties = of_file;
    properties.get("root.queues")?;
    let mut tree = Tree::default();
    let mut used = BTreeSet::new();
    tree.root = capacity_queue("root", &properties, &mut used, notes, 0, false);
    tree.root.set("min", "100%");
    if let Some(mappings) = properties.get("queue-mappings") {
        used.insert("queue-mappings".to_owned());
        for mapping in mappings.split(',').map(str::trim).filter(|mapping| !mapping.is_empty()) {
            match capacity_place(mapping, &tree.root, &properties) {
                Some(place) => tree.places.push(place),
                None => notes.push(format!("queue-mappings: {mapping} has no counterpart")),
            }
        }
    }
    let mut paths = Vec::new();
    tree.root.note_paths(&mut paths);
    let lost = properties.iter().filter(|(name, _)| !used.contains(*name));
    for (name, value) in lost.filter(|(name, _)| !FOREIGN.contains(&name.as_str())) {
        let setting = |path: &&String| name.strip_prefix(path.as_str())?.strip_prefix('.');
        let of_queue = paths.iter().filter_map(|path| Some((path, setting(&path)?)));
        match of_queue.max_by_key(|(path, _)| path.len()) {
            Some((_, setting)) if changes_nothing(setting, value) => {}
            Some((path, setting)) => notes.lose(setting, path, value),
            None => notes.push(format!("{CAPACITY}{name} = {value} has no counterpart")),
        }
    }
    Some(tree)
}

/// The rule of a queue mapping. Queues are made where the scheduler may make them.
fn capacity_place(
    mapping: &str,
    root: &Node,
    properties: &BTreeMap<String, String>,
) -> Option<Place> {
    let parts: Vec<&str> = mapping.split(':').map(str::trim).collect();
    let ["u", "%user", queue] = parts.as_slice() else { return None };
    let of = |by: &'static str, suffix: &str| {
        let around = queue.strip_suffix(suffix)?;
        let path = match around.strip_suffix('.') {
            Some(parent) => full(root, parent),
            None if around.is_empty() => "root".to_owned(),
            None => return None,
        };
        let makes = ["auto-create-child-queue.enabled", "auto-queue-creation-v2.enabled"];
        let create = makes.iter().any(|name| {
            let enabled = properties.get(&format!("{path}.{name}"));
            enabled.is_some_and(|enabled| enabled.eq_ignore_ascii_case("true"))
        });
        Some(Place { by, path, create })
    };
    of("user", "%user").or_else(|| of("group", "%primary_group"))
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
    notes: &mut Notes,
    depth: usize,
    priorities: bool,
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
    let makes = ["auto-create-child-queue.enabled", "auto-queue-creation-v2.enabled"]
        .map(|name| property(name).is_some_and(|on| on.eq_ignore_ascii_case("true")));
    let is_group = !queues.is_empty() || path == "root" || makes.contains(&true);
    let mut node = Node::new(path, is_group);
    if let Some(capacity) = property("capacity").filter(|_| path != "root") {
        match (percent(capacity), capacity.strip_suffix('w')) {
            (Some(part), _) => {
                node.set("weight", part.trim_end_matches('%'));
                node.set("min", part);
            }
            (None, Some(weight)) => node.set("weight", weight),
            (None, None) => match quotas::of_yarn(capacity) {
                Some(resources) => node.quotas.minimum = resources,
                None => notes.push(format!("{path}: capacity {capacity} has no counterpart")),
            },
        }
    }
    match property("maximum-capacity") {
        None | Some("-1" | "100") => {}
        Some(_) if path == "root" => {}
        Some(most) => match (percent(most), quotas::of_yarn(most)) {
            (Some(part), _) => node.set("max", part),
            (None, Some(resources)) => node.quotas.maximum = resources,
            (None, None) => {
                notes.push(format!("{path}: maximum-capacity {most} has no counterpart"));
            }
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
    let mut inner_priorities = false;
    match property("ordering-policy") {
        Some("fifo") if !is_group => node.set("order", "FIFO"),
        Some("fair") if !is_group => node.set("order", "FAIR"),
        Some("utilization") | None => {}
        Some("priority-utilization") => inner_priorities = true,
        Some(other) => notes.push(format!("{path}: ordering-policy {other} has no counterpart")),
    }
    let priority = property("priority").and_then(|priority| priority.parse::<i32>().ok());
    match priority.filter(|priority| *priority != 0) {
        None => {}
        Some(priority) if priorities && !is_group => node.priority = Some(priority),
        Some(priority) if priorities => {
            notes.lose("priority of a parent queue", path, &priority.to_string())
        }
        Some(priority) => notes.push(format!(
            "{path}: priority {priority} counts only where ordering-policy is priority-utilization"
        )),
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
        let inner = capacity_queue(&path, properties, used, notes, depth + 1, inner_priorities);
        node.inside.push(inner);
    }
    node
}

/// The elements of the fair scheduler.
fn fair(root: &Element, notes: &mut Notes) -> Tree {
    let mut tree = Tree::default();
    let (mut order, mut sessions) = (None, None);
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
            "queueMaxAppsDefault" | "queueMaxJobsDefault" | "poolMaxJobsDefault"
                if text.parse::<u32>().is_ok_and(|most| most > 0) =>
            {
                sessions = Some(text);
            }
            // There are no application masters that hold slots.
            "queueMaxAMShareDefault" => {}
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
    if let Some(most) = sessions {
        tree.root.inside.iter_mut().for_each(|inner| set_sessions(inner, &most));
    }
    tree
}

/// Sets the most sessions of the queues that say nothing about it, groups too, as the scheduler does.
fn set_sessions(node: &mut Node, most: &str) {
    node.attributes.entry("maxSessions").or_insert_with(|| most.to_owned());
    node.inside.iter_mut().for_each(|inner| set_sessions(inner, most));
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

fn fair_queue(element: &Element, around: &mut Node, notes: &mut Notes, depth: usize) {
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
    if name.is_empty() {
        notes.push(format!("a queue in {} has no name", around.path));
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

fn fair_settings(element: &Element, node: &mut Node, notes: &mut Notes, depth: usize) {
    for child in &element.children {
        let text = trim(child.text().ok().flatten().unwrap_or_default());
        let path = node.path.clone();
        let none = |notes: &mut Notes| notes.lose(&child.name, &path, text);
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
            "maxResources" => {
                let part = percent(text).filter(|_| text.ends_with('%'));
                match (part, quotas::of_yarn(text)) {
                    (Some(part), _) => node.set("max", part),
                    (None, Some(resources)) => node.quotas.maximum = resources,
                    (None, None) => none(notes),
                }
            }
            "minResources" => match quotas::of_yarn(text) {
                Some(resources) => node.quotas.minimum = resources,
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
            "allowPreemptionFrom" | "maxAMShare" => {}
            _ => none(notes),
        }
    }
}

fn fair_rule(rule: &Element, tree: &mut Tree, notes: &mut Notes) {
    let create = rule.attribute("create") != Some("false");
    let place = match rule.attribute("name").unwrap_or_default() {
        // That is what sessions get which name a queue.
        "specified" => return,
        "user" => Some(("user", "root".to_owned())),
        "primaryGroup" => Some(("group", "root".to_owned())),
        "nestedUserQueue" => rule
            .children
            .iter()
            .find(|inner| inner.attribute("name") == Some("default"))
            .and_then(|inner| inner.attribute("queue"))
            .map(|queue| ("user", full(&tree.root, queue))),
        _ => None,
    };
    match place {
        Some((by, path)) => tree.places.push(Place { by, path, create }),
        None => {
            let name = rule.attribute("name").unwrap_or_default();
            notes.push(format!("placement rule {name} has no counterpart"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Context;
    use crate::pools;
    use corona_model::types::PerType;

    fn imported(text: &str) -> Imported {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queues.xml");
        std::fs::write(&path, text).unwrap();
        import(&path).unwrap()
    }

    #[test]
    fn parts_that_are_rounded_are_no_more_than_all_and_names_count_once() {
        let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| format!("root.{name}.capacity"));
        let mut properties = vec![("root.queues", "a,b,c,d,e,f,g,a")];
        properties.extend(names.iter().map(|name| (name.as_str(), "14.2857143")));
        let Imported { pools_file, notes } = capacity_file(&properties);
        assert_eq!(pools_file.matches("min=\"14.28%\"").count(), 7, "{pools_file}");
        assert_eq!(notes, ["root.a: it is listed twice, and counts once"]);
    }

    #[test]
    fn queues_of_the_capacity_scheduler() {
        let Imported { pools_file, notes } = capacity_file(&[
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
        ]);
        assert_eq!(
            pools_file.lines().skip(2).collect::<Vec<_>>(),
            [
                "  <place by=\"user\" to=\"dev\" create=\"false\"/>",
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
                "user-limit-factor has no counterpart: root.Prod = 2",
                "queue-mappings: u:ann:eng has no counterpart",
                "queue root.Prod is called prod",
            ]
        );
    }

    #[test]
    fn quotas_in_resources_are_taken_over_as_far_as_they_fit() {
        let imported = imported(
            "<allocations><queue name='a' type='parent'><maxResources>4096 mb, 8 vcores</maxResources>
               <queue name='x'><minResources>vcores=6, memory-mb=3000</minResources>
                 <maxResources>vcores=50%, memory-mb=2048</maxResources></queue>
               <queue name='y'><minResources>1024 mb, 4 vcores</minResources></queue>
               <queue name='z'><minResources>50% memory, 30% cpu</minResources></queue>
               <queue name='w'><maxResources>100 mb, 2 gpus</maxResources></queue>
             </queue></allocations>",
        );
        assert_eq!(problems_of(&imported), [""; 0]);
        let Imported { pools_file, notes } = imported;
        for line in [
            "<group name=\"a\" max=\"cpus=8,memory=4096\">",
            "<pool name=\"x\" max=\"cpus=50%,memory=2048\" min=\"cpus=6,memory=2048\" order=\"FAIR\"/>",
            "<pool name=\"y\" min=\"memory=1024\" order=\"FAIR\"/>",
            "<pool name=\"z\" order=\"FAIR\"/>",
        ] {
            assert!(pools_file.contains(line), "{line} in {pools_file}");
        }
        assert_eq!(
            notes,
            [
                "maxResources has no counterpart: root.a.w = 100 mb, 2 gpus",
                "root.a.y: min cpus=4 is more than the other queues leave",
                "root.a.z: min cpus=30% is a part of nothing",
                "root.a.z: min memory=50% is a part of nothing",
                "root.a.x: min memory=2.9 GB is above its max memory=2 GB",
            ]
        );
        let imported = capacity_file(&[
            ("root.queues", "a"),
            ("root.a.capacity", "[memory=10240,vcores=12]"),
            ("root.a.maximum-capacity", "[memory=20480,vcores=24]"),
        ]);
        let line = "<pool name=\"a\" max=\"cpus=24,memory=20480\" min=\"cpus=12,memory=10240\"";
        assert!(imported.pools_file.contains(line), "{}", imported.pools_file);
        assert_eq!(problems_of(&imported), [""; 0]);
    }

    /// What `check-config` says about the pools file that a queue file becomes.
    fn problems_of(imported: &Imported) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pools.xml");
        std::fs::write(&path, &imported.pools_file).unwrap();
        let root = xml::read(&path, Includes::Plain, &mut FileReader::default()).unwrap();
        let legal_types = PerType::all(true);
        let counted = [true; 4];
        let context =
            Context { legal_types, one_file: false, configured_pools_only: false, counted };
        let mut problems = Vec::new();
        pools::read(&root, context, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    fn capacity_file(properties: &[(&str, &str)]) -> Imported {
        let property = |(name, value): &(&str, &str)| {
            format!("<property><name>{CAPACITY}{name}</name><value>{value}</value></property>")
        };
        let file: String = properties.iter().map(property).collect();
        imported(&format!("<configuration>{file}</configuration>"))
    }

    fn has(imported: &Imported, lines: &[&str]) {
        for line in lines {
            let found = imported.pools_file.lines().any(|of_file| of_file.trim() == *line);
            assert!(found, "{line} is not in {}", imported.pools_file);
        }
        assert_eq!(problems_of(imported), [] as [&str; 0]);
    }

    #[test]
    fn minima_that_no_pools_file_may_have_are_lowered_and_named() {
        let file = capacity_file(&[
            ("root.queues", "a,b,c"),
            ("root.a.capacity", "60"),
            ("root.a.maximum-capacity", "40"),
            ("root.b.capacity", "70"),
            ("root.c.capacity", "3w"),
            ("root.c.queues", "x"),
            ("root.c.x.capacity", "100"),
        ]);
        has(
            &file,
            &[
                "<pool name=\"a\" max=\"40%\" min=\"40%\" weight=\"60\"/>",
                "<pool name=\"b\" weight=\"70\"/>",
                "<group name=\"c\" weight=\"3\">",
                "<pool name=\"x\" weight=\"100\"/>",
            ],
        );
        assert_eq!(
            file.notes,
            [
                "root.b: min 70% is more than the other queues leave",
                "root.a: min 60% is above its max 40%",
                "root.c.x: min 100% is a part of nothing",
            ]
        );
        let file = imported(
            "<allocations><queue name='g'><maxMaps>5</maxMaps>
               <queue name='x'><minMaps>4</minMaps><maxMaps>3</maxMaps></queue>
               <queue name='y'><minMaps>4</minMaps></queue></queue></allocations>",
        );
        has(
            &file,
            &[
                "<pool name=\"x\" maxMAP=\"3\" minMAP=\"3\" order=\"FAIR\"/>",
                "<pool name=\"y\" order=\"FAIR\"/>",
            ],
        );
    }

    #[test]
    fn the_default_of_sessions_counts_for_queues_that_say_nothing() {
        let file = imported(
            "<allocations><queueMaxAppsDefault>7</queueMaxAppsDefault>
               <queue name='g'><queue name='x'/><queue name='y'><maxRunningApps>2</maxRunningApps></queue></queue>
             </allocations>",
        );
        assert_eq!(file.notes, [] as [&str; 0]);
        has(
            &file,
            &[
                "<group name=\"root\">",
                "<group name=\"g\" maxSessions=\"7\">",
                "<pool name=\"x\" maxSessions=\"7\" order=\"FAIR\"/>",
                "<pool name=\"y\" maxSessions=\"2\" order=\"FAIR\"/>",
            ],
        );
    }

    #[test]
    fn placement_rules_make_queues_where_the_scheduler_did() {
        let rules = |create: &str| {
            imported(&format!(
                "<allocations><queue name='a'/><queuePlacementPolicy>
                   <rule name='user' {create}/></queuePlacementPolicy></allocations>"
            ))
        };
        has(&rules(""), &["<place by=\"user\" to=\"root\" create=\"true\"/>"]);
        has(&rules("create='false'"), &["<place by=\"user\" to=\"root\" create=\"false\"/>"]);
        let mapped = |on: &str| {
            capacity_file(&[
                ("root.queues", "people"),
                ("root.people.capacity", "100"),
                ("root.people.auto-create-child-queue.enabled", on),
                ("root.people.queues", if on == "true" { "" } else { "ann" }),
                ("queue-mappings", "u:%user:people.%user"),
            ])
        };
        for on in ["true", "false"] {
            let rule = format!("<place by=\"user\" to=\"people\" create=\"{on}\"/>");
            has(&mapped(on), &[&rule]);
        }
    }

    #[test]
    fn priorities_count_where_the_scheduler_looked_at_them() {
        let file = capacity_file(&[
            ("root.queues", "a,b"),
            ("root.ordering-policy", "priority-utilization"),
            ("root.a.capacity", "50"),
            ("root.a.priority", "3"),
            ("root.b.capacity", "50"),
            ("root.b.priority", "1"),
            ("root.b.queues", "x"),
            ("root.b.x.capacity", "100"),
            ("root.b.x.priority", "2"),
        ]);
        has(&file, &["<pool name=\"a\" min=\"50%\" weight=\"50\"><priority>3</priority></pool>"]);
        assert_eq!(
            file.notes,
            [
                "priority of a parent queue has no counterpart: root.b = 1",
                "root.b.x: priority 2 counts only where ordering-policy is priority-utilization",
            ]
        );
    }

    #[test]
    fn queues_that_would_be_called_alike_are_not() {
        let file = imported(
            "<allocations><queue name='Dev' type='parent'><queue name='a.b'/><queue name='a-b'/></queue>
               <queue name='dev'/><queue/><queue name='x' type='parent'><queue name='DEV' type='parent'/></queue>
             </allocations>",
        );
        has(
            &file,
            &[
                "<group name=\"dev\">",
                "<pool name=\"a-b\" order=\"FAIR\"/>",
                "<pool name=\"a-b-2\" order=\"FAIR\"/>",
                "<pool name=\"dev-2\" order=\"FAIR\"/>",
                "<group name=\"x-dev\"/>",
            ],
        );
        assert_eq!(
            file.notes,
            [
                "a queue in root has no name",
                "queue root.Dev is called dev",
                "queue root.x.DEV is called x-dev",
                "queue root.Dev.a.b is called a-b",
                "queue root.Dev.a-b is called a-b-2",
                "queue root.dev is called dev-2",
            ]
        );
    }

    #[test]
    fn settings_without_a_counterpart_are_listed_once_and_those_that_change_nothing_never() {
        let mut properties = vec![
            ("root.queues", "a,b,c,d,e,f,g"),
            ("maximum-applications", "10000"),
            ("node-locality-delay", "40"),
            ("root.a.user-limit-factor", "1"),
            ("root.a.state", "RUNNING"),
            ("root.a.maximum-am-resource-percent", "0.5"),
            ("root.a.acl_administer_queue", "*"),
        ];
        let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| format!("root.{name}.lifetime"));
        properties.extend(names.iter().map(|name| (name.as_str(), "9")));
        let file = capacity_file(&properties);
        assert_eq!(
            file.notes,
            [
                "lifetime has no counterpart: root.a = 9, root.b = 9, root.c = 9, root.d = 9, root.e = 9, and 2 more"
            ]
        );
    }

    #[test]
    fn files_of_other_schedulers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (text, expected) in [
            ("<configuration/>", "has no property yarn.scheduler.capacity.root.queues"),
            (
                "<pools/>",
                "the outermost element is <pools>; expected <configuration> of YARN's capacity scheduler or \
                 <allocations> of the fair scheduler",
            ),
            ("<allocations/>", "names no queues"),
            (
                "<configuration><property><name>yarn.scheduler.capacity.root.queues</name>\
                 <value> </value></property></configuration>",
                "names no queues",
            ),
            (
                "<queues><queue><name>default</name></queue></queues>",
                "is a queue file of Hadoop 1, which had no tree; expected <configuration> of YARN's \
                 capacity scheduler or <allocations> of the fair scheduler",
            ),
            (
                "<configuration><property><name>mapred.capacity-scheduler.queue.a.capacity</name>\
                 <value>5</value></property></configuration>",
                "is a queue file of Hadoop 1, which had no tree; expected <configuration> of YARN's \
                 capacity scheduler or <allocations> of the fair scheduler",
            ),
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
                "      <pool name=\"x\" maxSessions=\"5\" min=\"cpus=1,memory=1024\" order=\"FAIR\"/>",
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
                "schedulingPolicy has no counterpart: root.b.a = fifo",
                "placement rule reject has no counterpart",
                "queue root.b.a is called b-a",
            ]
        );
    }
}
