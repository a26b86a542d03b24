//! The pools file: groups, pools, their limits.
//!
//! Spec: cluster-manager/06 §4. It reads no file. Each load makes new settings: unlike in the
//! original, `preemptable` and `requestMax` can be reset (09 §4.9).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::fields::{Context, Field, TypeName, pool_name};
use super::general;
use super::problem::{Origin, Problem, ProblemKind};
use super::queues::{self, Target};
use super::suggest::similar;
use super::typed::{Wrong, whole};
use super::xml::{Element, trim};
use corona_model::queues::{MAX_DEPTH, Placement, QueueRules};
use corona_model::settings::{Pools, SizeRedirect};
use corona_model::types::{PerType, PoolName, ResourceType};

const GROUP: &str = "group";
const POOL: &str = "pool";
const SIZE_REDIRECT: &str = "redirectJobWithLimit";

/// The settings in the file. An unusable value is an error; one that is ignored, replaced or
/// probably a mistake is a warning. Of repeated elements the last one holds.
pub(super) fn read(root: &Element, context: Context, problems: &mut Vec<Problem>) -> Pools {
    let mut reader = PoolsReader {
        context,
        problems,
        pools: Pools::default(),
        groups: BTreeMap::new(),
        named: BTreeMap::new(),
        size_redirects: Vec::new(),
        parents: BTreeMap::new(),
        placements: Vec::new(),
    };
    for child in &root.children {
        if child.name == GROUP {
            reader.group(child, &[]);
        } else if child.name == queues::PLACE {
            let rule = reader.place(child, None);
            reader.pools.queues.placement.extend(rule);
        } else if !general::is_general(&child.name) {
            let meant = similar(&child.name, [GROUP, queues::PLACE]).map(Into::into);
            let kind = ProblemKind::UnknownElement { name: child.name.as_str().into(), meant };
            reader.problems.push(Problem::warning(child.origin.clone(), kind));
        } else if !context.one_file {
            let what = "has no effect in this file: it is read from the general file";
            reader.no_effect(child, child.name.clone(), what);
        }
    }
    reader.check_groups();
    reader.check_size_redirects();
    if !reader.pools.queues.is_empty() {
        let places = queues::Places {
            groups: &reader.groups,
            pools: &reader.named,
            placements: &reader.placements,
        };
        queues::check(&reader.pools, &places, reader.problems);
    }
    reader.pools
}

struct PoolsReader<'a> {
    context: Context,
    problems: &'a mut Vec<Problem>,
    pools: Pools,
    /// The place of each group.
    groups: BTreeMap<String, Origin>,
    /// The place of each pool.
    named: BTreeMap<PoolName, Origin>,
    /// Where redirects by size lead to, and where they stand.
    size_redirects: Vec<(PoolName, String, Origin)>,
    /// The group around each group.
    parents: BTreeMap<String, Option<String>>,
    /// Where placement rules stand, and the groups to which they lead.
    placements: Vec<(Origin, String)>,
}

impl PoolsReader<'_> {
    /// Reads a group; `around` are the groups around it, from the outermost one on.
    fn group(&mut self, element: &Element, around: &[&str]) {
        let name = element.attribute("name").unwrap_or_default();
        let subject = format!("group {name}");
        if name.is_empty() {
            self.no_effect(element, GROUP.into(), "has no name");
        }
        if !self.may_stand(element, name, around) {
            return;
        }
        let mut group = self.pools.groups.remove(name).unwrap_or_default();
        let mut rules = self.pools.queues.groups.remove(name).unwrap_or_default();
        rules.parent = around.last().map(|parent| (*parent).into());
        let mut target = Target {
            minimum: &mut group.minimum,
            maximum: &mut group.maximum,
            rules: &mut rules,
            pool: None,
        };
        queues::attributes(element, &subject, self.context, &mut target, self.problems);
        for field in &element.children {
            let subject = format!("{subject}: {}", field.name);
            match field.name.as_str() {
                POOL => self.pool(name, field),
                GROUP => self.group(field, &[around, &[name]].concat()),
                queues::PLACE => rules.placement.extend(self.place(field, Some(name))),
                SIZE_REDIRECT => {
                    if let Err(problem) = self.size_redirect(name, field, &subject) {
                        self.problems.push(problem);
                    }
                }
                "weight" | "priority" | "schedulingMode" => {
                    let what = "has no effect on a group: only pools have one";
                    self.no_effect(field, subject, what);
                }
                _ => {
                    let (minimum, maximum) = (&mut group.minimum, &mut group.maximum);
                    if !self.limit(field, &subject, minimum, maximum) {
                        self.unknown(field, &subject);
                    }
                }
            }
        }
        self.check_limits(element, &subject, group.minimum, group.maximum);
        self.groups.insert(name.to_owned(), element.origin.clone());
        self.pools.groups.insert(name.into(), group);
        if rules != QueueRules::default() {
            self.pools.queues.groups.insert(name.into(), rules);
        }
    }

    /// Whether a group of the name may be in those groups. If not, that is a problem.
    fn may_stand(&mut self, element: &Element, name: &str, around: &[&str]) -> bool {
        let parent = around.last().map(|parent| (*parent).to_owned());
        let what = if around.len() >= MAX_DEPTH {
            format!("is in {} groups; expected at most {MAX_DEPTH} levels", around.len())
        } else if parent.is_some() && name.is_empty() {
            "a group in a group needs a name".to_owned()
        } else {
            match self.parents.get(name) {
                Some(other) if *other != parent => {
                    let other = match other {
                        Some(other) => format!("there is one in group {other}"),
                        None => "there is an outermost one".to_owned(),
                    };
                    format!(
                        "the name is not unique: {other}. Sessions name a pool by its innermost \
                         group, so each group needs a name of its own"
                    )
                }
                _ => {
                    self.parents.insert(name.to_owned(), parent);
                    return true;
                }
            }
        };
        let problem = Problem::error(element.origin.clone(), ProblemKind::NoEffect(what));
        self.problems.push(problem.of(format!("group {name}")));
        false
    }

    fn place(&mut self, element: &Element, group: Option<&str>) -> Option<Placement> {
        let rule = queues::place(element, group, self.problems)?;
        let to = element.attribute("to").or(group).unwrap_or_default();
        self.placements.push((element.origin.clone(), to.to_owned()));
        Some(rule)
    }

    fn pool(&mut self, group: &str, element: &Element) {
        let name = PoolName::new(group, element.attribute("name").unwrap_or_default());
        let subject = format!("pool {name}");
        if name.pool.is_empty() {
            let what = "a pool has no name, so no session can use it; expected <pool name=\"...\">";
            self.no_effect(element, format!("group {group}"), what);
        } else if !name.is_legal() {
            let what = match self.context.configured_pools_only {
                true => {
                    "no session can use it: only 0-9 a-z - _ are legal in names while \
                     cm.configured.pools.only is true"
                }
                false => {
                    "its settings are for no session: only 0-9 a-z - _ are legal in names, and \
                     sessions that ask for it are scheduled in default.defaultpool"
                }
            };
            self.no_effect(element, subject.clone(), what);
        }
        let mut settings = match self.pools.pools.entry(name.clone()) {
            Entry::Vacant(_) => Default::default(),
            Entry::Occupied(known) => {
                let known = known.remove();
                let what = "Already added pool info; the later values win";
                self.no_effect(element, subject.clone(), what);
                known
            }
        };
        let mut rules = self.pools.queues.pools.remove(&name).unwrap_or_default();
        let mut target = Target {
            minimum: &mut settings.minimum,
            maximum: &mut settings.maximum,
            rules: &mut rules,
            pool: Some((&mut settings.weight, &mut settings.mode)),
        };
        queues::attributes(element, &subject, self.context, &mut target, self.problems);
        for field in &element.children {
            let subject = format!("{subject}: {}", field.name);
            let (minimum, maximum) = (&mut settings.minimum, &mut settings.maximum);
            if self.limit(field, &subject, minimum, maximum) {
                continue;
            }
            if !POOL_FIELDS.contains(&field.name.as_str()) {
                self.unknown(field, &subject);
            } else if let Err(problem) = self.pool_field(field, &subject, &mut settings) {
                self.problems.push(problem);
            }
        }
        self.check_limits(element, &subject, settings.minimum, settings.maximum);
        self.named.insert(name.clone(), element.origin.clone());
        if rules != QueueRules::default() {
            self.pools.queues.pools.insert(name.clone(), rules);
        }
        self.pools.pools.insert(name, settings);
    }

    fn pool_field(
        &mut self,
        element: &Element,
        subject: &str,
        settings: &mut corona_model::settings::PoolSettings,
    ) -> Result<(), Problem> {
        let field = text_of(element, subject)?;
        match element.name.as_str() {
            "weight" => settings.weight = self.weight(&field)?,
            "priority" => settings.priority = field.int()?,
            "schedulingMode" => settings.mode = Some(field.mode()?),
            "preemptable" => settings.preemptable = field.truth(self.problems),
            "requestMax" => settings.request_max = field.truth(self.problems),
            "whitelist" => settings.whitelist = Some(field.text.into()),
            _ => {}
        }
        Ok(())
    }

    /// Whether the element is a limit for a type, which is then set.
    fn limit(
        &mut self,
        element: &Element,
        subject: &str,
        minimum: &mut PerType<i32>,
        maximum: &mut PerType<i32>,
    ) -> bool {
        for (prefix, limits) in [("min", minimum), ("max", maximum)] {
            let kind =
                match self.context.type_of(&element.name, prefix, &element.origin, self.problems) {
                    TypeName::Legal(kind) => kind,
                    TypeName::WithoutSlots => return true,
                    TypeName::None => continue,
                };
            match text_of(element, subject).and_then(|field| Ok((field, field.int()?))) {
                Err(problem) => self.problems.push(problem),
                Ok((_, limit @ 0..)) => limits[kind] = limit,
                Ok((field, _)) => {
                    self.problems.push(field.replaced("is negative", 0));
                    limits[kind] = 0;
                }
            }
            return true;
        }
        false
    }

    fn weight(&mut self, field: &Field<'_>) -> Result<f64, Problem> {
        let weight = field.double()?;
        if weight >= 0.0 {
            // Not -0, which would turn the order around.
            return Ok(weight.abs());
        }
        self.problems.push(field.replaced("is negative", "1"));
        Ok(1.0)
    }

    /// Jobs above a size go from one pool of the group to another. Spec: cluster-manager/06 §4.3.
    fn size_redirect(
        &mut self,
        group: &str,
        element: &Element,
        subject: &str,
    ) -> Result<(), Problem> {
        let attribute = |name| element.attribute(name).unwrap_or_default();
        let pool = |name: &str| pool_name(&format!("{group}.{name}"));
        let (source, destination) = (attribute("source"), attribute("destination"));
        let (Some(source), Some(destination)) = (pool(source), pool(destination)) else {
            let what = format!(
                "Illegal redirect source {source:?} or destination {destination:?}, ignored; \
                 expected pools of the group"
            );
            self.no_effect(element, subject.to_owned(), &what);
            return Ok(());
        };
        let text = attribute("inputSizeLimit");
        let field = Field { subject, text, origin: &element.origin };
        let limit = whole(text, i64::MIN, i64::MAX, "").map_err(|wrong| {
            let expected = format!("inputSizeLimit in bytes, {}", wrong.expected);
            field.refused(Wrong::new(wrong.wrong, expected))
        })?;
        if limit <= 0 {
            let what = format!("Illegal redirect limit {limit}. Limit must be > 0; ignored");
            self.no_effect(element, subject.to_owned(), &what);
            return Ok(());
        }
        let at = (destination.clone(), subject.to_owned(), element.origin.clone());
        self.size_redirects.push(at);
        let redirect = SizeRedirect { input_size_limit_bytes: limit, destination };
        self.pools.size_redirects.insert(source, redirect);
        Ok(())
    }

    fn check_limits(
        &mut self,
        element: &Element,
        subject: &str,
        minimum: PerType<i32>,
        maximum: PerType<i32>,
    ) {
        for kind in ResourceType::ALL {
            let (least, most) = (minimum[kind], maximum[kind]);
            if least > most {
                let what = format!("min{kind} {least} is above max{kind} {most}");
                self.no_effect(element, subject.to_owned(), &what);
            }
        }
    }

    /// Warns where pools cannot have their minima, as their group may not hold that much.
    fn check_groups(&mut self) {
        let mut told = Vec::new();
        let in_tree = |group: &str| self.pools.queues.groups.contains_key(group);
        for (group, limits) in self.pools.groups.iter().filter(|(group, _)| !in_tree(group)) {
            let of_group = |pool: &PoolName| *pool.group == **group;
            for kind in ResourceType::ALL {
                let most = limits.maximum[kind];
                let pools = self.pools.pools.iter().filter(|(pool, _)| of_group(pool));
                let minima: Vec<(&PoolName, i32)> =
                    pools.map(|(pool, settings)| (pool, settings.minimum[kind])).collect();
                let above: Vec<_> = minima.iter().filter(|(_, least)| *least > most).collect();
                for (pool, least) in &above {
                    let what =
                        format!("min{kind} {least} is above max{kind} {most} of its group {group}");
                    told.push((self.named.get(*pool), format!("pool {pool}"), what));
                }
                let sum: i64 = minima.iter().map(|(_, least)| i64::from(*least)).sum();
                if above.is_empty() && sum > i64::from(most) {
                    let what = format!(
                        "the min{kind} of its pools add up to {sum}, which is above max{kind} {most}"
                    );
                    told.push((self.groups.get(&**group), format!("group {group}"), what));
                }
            }
        }
        for (origin, subject, what) in told {
            let origin = origin.cloned().unwrap_or(Origin::Default);
            let problem = Problem::warning(origin, ProblemKind::NoEffect(what));
            self.problems.push(problem.of(subject));
        }
    }

    /// Warns of redirects by size into pools that the file does not have.
    fn check_size_redirects(&mut self) {
        for (destination, subject, origin) in &self.size_redirects {
            if !self.pools.pools.contains_key(destination) {
                let kind = general::unconfigured(destination, &self.pools);
                self.problems.push(Problem::warning(origin.clone(), kind).of(subject));
            }
        }
    }

    /// An element that means nothing in a group or a pool.
    fn unknown(&mut self, element: &Element, subject: &str) {
        let limits = ["min", "max"].map(|prefix| self.context.names(prefix)).concat();
        // A group has its queues, rules and redirects, and a pool its fields.
        let own: &[&str] = if subject.starts_with("pool ") { &POOL_FIELDS } else { &GROUP_FIELDS };
        let known = own.iter().copied().chain(limits.iter().map(String::as_str));
        let meant = similar(&element.name, known).map(Into::into);
        let kind = ProblemKind::UnknownElement { name: element.name.as_str().into(), meant };
        self.problems.push(Problem::warning(element.origin.clone(), kind).of(subject));
    }

    fn no_effect(&mut self, element: &Element, subject: String, what: &str) {
        let kind = ProblemKind::NoEffect(what.to_owned());
        self.problems.push(Problem::warning(element.origin.clone(), kind).of(subject));
    }
}

const GROUP_FIELDS: [&str; 4] = [GROUP, POOL, queues::PLACE, SIZE_REDIRECT];
const POOL_FIELDS: [&str; 6] =
    ["weight", "priority", "schedulingMode", "preemptable", "requestMax", "whitelist"];

fn text_of<'a>(element: &'a Element, subject: &'a str) -> Result<Field<'a>, Problem> {
    let text = element.text().map_err(|problem| problem.of(subject))?;
    Ok(Field { subject, text: trim(text.unwrap_or_default()), origin: &element.origin })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::FileReader;
    use crate::xml::{self, Includes};
    use corona_model::queues::{
        Part, PlaceBy, PreemptionRule, Quota, Quotas, SiblingOrder, Submitters,
    };
    use corona_model::settings::{GroupSettings, PoolSettings, SchedulingMode, UNLIMITED};
    use corona_model::types::ResourceType::{Map, Reduce};

    /// The settings and problems of a file `f` with this inside `configuration`.
    fn pools(inside: &str, strict: bool) -> (Pools, Vec<String>) {
        pools_of(inside, strict, [true; 4])
    }

    /// The same in a cluster that counts these resources.
    fn pools_of(inside: &str, strict: bool, counted: [bool; 4]) -> (Pools, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, format!("<configuration>{inside}</configuration>")).unwrap();
        let root = xml::read(&path, Includes::Plain, &mut FileReader::default()).unwrap();
        let mut legal_types = PerType::all(true);
        legal_types[ResourceType::JobTracker] = false;
        let context =
            Context { legal_types, one_file: false, configured_pools_only: strict, counted };
        let mut problems = Vec::new();
        let pools = read(&root, context, &mut problems);
        let prefix = format!("{}/", dir.path().display());
        (pools, problems.iter().map(|p| p.to_string().replace(&prefix, "")).collect())
    }

    #[test]
    fn groups_in_groups_with_all_attributes() {
        let (pools, problems) = pools(
            "<place by='user' to='students'/>
             <group name='company' minMAP='40' min='10'>
               <group name='ads' weight='2' min='25%' minREDUCE='7' maxMAP='62.5%' order='FAIR'
                      lend='false' preemption='fence' minRuntime='60000' maxSessions='5'
                      maxPerUser='6' maxSessionsPerUser='2' submit='ann,bob staff' state='draining'>
                 <place by='group' create='true'/>
                 <pool name='etl' weight='3' order='FIFO' max='9' submit='*'/>
               </group>
             </group>
             <group name='students'/>",
            false,
        );
        assert_eq!(problems, [] as [&str; 0]);
        let company = &pools.groups["company"];
        assert_eq!((company.minimum[Map], company.minimum[Reduce]), (40, 10));
        let place = |by, to: &str, create| Placement { by, to: to.into(), create };
        let ads = QueueRules {
            parent: Some("company".into()),
            weight: 2.0,
            minimum: PerType([Some(Part(2_500)), None, None]),
            maximum: PerType([Some(Part(6_250)), None, None]),
            quotas: Default::default(),
            order: SiblingOrder::Fair,
            lend: false,
            preemption: PreemptionRule::Fence,
            min_runtime_ms: Some(60_000),
            max_sessions: Some(5),
            max_per_user: Some(6),
            max_sessions_per_user: Some(2),
            submit: Some(Submitters {
                all: false,
                users: vec!["ann".into(), "bob".into()],
                groups: vec!["staff".into()],
            }),
            draining: true,
            vanished: false,
            placement: vec![place(PlaceBy::Group, "ads", true)],
        };
        assert_eq!(pools.queues.groups["ads"], ads);
        assert_eq!(pools.queues.placement, [place(PlaceBy::User, "students", false)]);
        let etl = PoolName::new("ads", "etl");
        let settings = &pools.pools[&etl];
        assert_eq!((settings.weight, settings.mode), (3.0, Some(SchedulingMode::Fifo)));
        assert_eq!((settings.maximum[Map], settings.maximum[Reduce]), (9, 9));
        assert!(pools.queues.pools[&etl].submit.as_ref().is_some_and(|submit| submit.all));
    }

    #[test]
    fn mistakes_in_trees_are_told_with_their_place() {
        let cases = [
            (
                "<group name='a'><group name='b'/></group>\n<group name='b'/>",
                "f:2: group b: the name is not unique: there is one in group a. Sessions name a \
                 pool by its innermost group, so each group needs a name of its own",
            ),
            (
                "<group name='a'><group name='b' min='10%'/></group>",
                "f:1: group a.b: minMAP 10% is a part of nothing: group a has no minMAP",
            ),
            (
                "<group name='a' min='60%'/><group name='b' min='50%'/>",
                "f:1: group b: the minMAP of the outermost groups add up to 110%, more than 100%",
            ),
            (
                "<group name='a' max='5'><pool name='p' min='3'/><group name='b' min='3'/></group>",
                "f:1: group a: the minMAP of the queues in it add up to 6, which is above maxMAP 5",
            ),
            ("<place by='user' to='nobody'/>", "f:1: place: there is no group nobody"),
            (
                "<group name='a' minMAP='cpus=4,memory=2g'/>",
                "f:1: group a: minMAP: value \"cpus=4,memory=2g\" names resources, which are limited \
                 for all types together; expected slots, or the resources in min or max",
            ),
            (
                "<group name='a'>\n<pool name='p' max='10,memry=2g'/></group>",
                "f:2: pool a.p: max: value \"10,memry=2g\" limits \"memry\", which is not a resource; \
                 expected cpus, memory, disk, network, or resources for all of them; did you mean memory?",
            ),
            (
                "<group name='a' max='memory=2x'/>",
                "f:1: group a: max: value \"memory=2x\" has \"2x\", which is not a limit of memory; \
                 expected megabytes, 200g or 2t, or a part such as 25%",
            ),
            (
                "<group name='a' max='resources=5'/>",
                "f:1: group a: max: value \"resources=5\" has \"5\", which is not a limit of resources; \
                 expected a part of the group around it, such as 25%",
            ),
            (
                "<group name='a' max='cpus=5,cpus=25%'/>",
                "f:1: group a: max: value \"cpus=5,cpus=25%\" limits cpus twice; expected slots, such \
                 as 40, a part of the group around it, such as 25%, or resources, such as \
                 cpus=40,memory=200g",
            ),
            (
                "<group name='a' max='cpus=101%'/>",
                "f:1: group a: max: value \"cpus=101%\" is not a part; expected 0% to 100%, such as 12.5%",
            ),
            (
                "<group name='a' min='memory=3g' max='memory=2g'/>",
                "f:1: group a: min memory=3 GB is above max memory=2 GB",
            ),
            (
                "<group name='a' min='cpus=4'><group name='b' min='memory=10%'/></group>",
                "f:1: group a.b: min memory=10% is a part of nothing: group a has no min memory",
            ),
            (
                "<group name='a' min='cpus=60%'/>\n<group name='b' min='cpus=50%'/>",
                "f:2: group b: the min cpus of the outermost groups add up to 110%, more than 100%",
            ),
            (
                "<group name='a' max='cpus=5'><pool name='p' min='cpus=3'/><group name='b' min='cpus=3'/></group>",
                "f:1: group a: the min cpus of the queues in it add up to 6, which is above max cpus=5",
            ),
            (
                "<group name='a' order='CAPACITY'><pool name='p' min='cpus=3'/><pool name='q' min='3'/></group>",
                "f:1: group a: order CAPACITY compares minima, and that of pool a.p is in resources, \
                 that of pool a.q in slots",
            ),
            (
                "<group name='a' order='FIFO'/>",
                "f:1: group a: order: value \"FIFO\" orders sessions, and a group holds queues; \
                 expected PRIORITY, FAIR or CAPACITY",
            ),
            (
                "<group name='a'><pool name='p' preemption='fence'/></group>",
                "f:1: pool a.p: preemption: value \"fence\" is for groups: a fence is around the \
                 queues that take from each other; expected default or disabled",
            ),
            (
                "<group name='a' wieght='2'/>",
                "f:1: group a: wieght: is not an attribute of queues; did you mean weight?",
            ),
            (
                "<group name='a' maxSessions='0'/>",
                "f:1: group a: maxSessions: value \"0\" is out of range; expected a whole number \
                 from 1 to 2147483647",
            ),
        ];
        for (file, expected) in cases {
            let (_, problems) = pools(file, false);
            assert_eq!(problems.first().map(String::as_str), Some(expected), "{file}");
        }
        let deep = (0..20).fold(String::new(), |inside, level| {
            format!("<group name='g{level}'>{inside}</group>")
        });
        let (_, problems) = pools(&deep, false);
        assert_eq!(problems, ["f:1: group g3: is in 16 groups; expected at most 16 levels"]);
    }

    #[test]
    fn limits_of_resources_that_are_not_counted_are_told() {
        let file = "<group name='a' min='3,cpus=4,disk=2t' max='resources=50%'/>";
        let told = |dimension| {
            format!(
                "f:1: group a: min: has no effect on {dimension}: corona.cm.resources does not count it"
            )
        };
        let none = "f:1: group a: max: has no effect on resources: corona.cm.resources counts none";
        for (counted, expected) in [
            ([true; 4], vec![]),
            ([true, true, false, false], vec![told("disk")]),
            ([false; 4], vec![told("cpus"), told("disk"), none.to_owned()]),
        ] {
            assert_eq!(pools_of(file, false, counted).1, expected);
        }
    }

    #[test]
    fn limits_in_resources_and_per_cent() {
        let (pools, problems) = pools(
            "<group name='a' min='10, cpus=40,memory=200g' max='25%,resources=50%'>
               <pool name='p' min='memory=12.5%' max='disk=2t' lend='false'/>
             </group>",
            false,
        );
        assert_eq!(problems, [] as [&str; 0]);
        let group = &pools.queues.groups["a"];
        assert_eq!((pools.groups["a"].minimum[Map], group.maximum[Map]), (10, Some(Part(2_500))));
        let amount = |amount| Some(Quota::Amount(amount));
        let half = Some(Quota::Part(Part(5_000)));
        let quotas =
            Quotas { minimum: [amount(40), amount(204_800), None, None], maximum: [half; 4] };
        assert_eq!(*group.quotas, quotas);
        let pool = &pools.queues.pools[&PoolName::new("a", "p")];
        let eighth = Some(Quota::Part(Part(1_250)));
        let quotas = Quotas {
            minimum: [None, eighth, None, None],
            maximum: [None, None, amount(2_048), None],
        };
        assert_eq!((*pool.quotas, pool.minimum), (quotas, PerType::all(None)));
    }

    #[test]
    fn every_setting() {
        let (pools, problems) = pools(
            "<group name='g'>
               <minMAP>1</minMAP><maxMAP>9</maxMAP>
               <redirectJobWithLimit source='p' destination='q' inputSizeLimit='100'/>
               <pool name='p'>
                 <minMAP> 2 </minMAP><maxREDUCE>3</maxREDUCE>
                 <weight>2.5</weight><priority>-4</priority><schedulingMode>FAIR</schedulingMode>
                 <preemptable>False</preemptable><requestMax>true</requestMax><whitelist> a,b </whitelist>
               </pool>
               <pool name='q'/>
             </group>
             <group name='empty'/>",
            true,
        );
        assert_eq!(problems, [""; 0]);
        let group = GroupSettings {
            minimum: PerType([1, 0, 0]),
            maximum: PerType([9, UNLIMITED, UNLIMITED]),
        };
        assert_eq!(
            pools.groups,
            [("g".into(), group), ("empty".into(), GroupSettings::default())].into()
        );
        let p = PoolSettings {
            minimum: PerType([2, 0, 0]),
            maximum: PerType([UNLIMITED, 3, UNLIMITED]),
            weight: 2.5,
            priority: -4,
            mode: Some(SchedulingMode::Fair),
            preemptable: false,
            request_max: true,
            whitelist: Some("a,b".into()),
        };
        let (name, other) = (PoolName::new("g", "p"), PoolName::new("g", "q"));
        assert_eq!(
            pools.pools,
            [(name.clone(), p), (other.clone(), PoolSettings::default())].into()
        );
        let redirect = SizeRedirect { input_size_limit_bytes: 100, destination: other };
        assert_eq!(pools.size_redirects, [(name, redirect)].into());
    }

    #[test]
    fn every_element_is_documented() {
        let document = include_str!("../../docs/reference/configuration.md");
        for name in POOL_FIELDS.into_iter().chain([SIZE_REDIRECT, "min<T>", "max<T>"]) {
            assert!(document.contains(&format!("\n| `{name}` | ")), "{name}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn problems_are_reported_with_their_place() {
        let in_pool =
            |inside: &str| format!("<group name='g'><pool name='p'>{inside}</pool></group>");
        let in_group = |inside: &str| format!("<group name='g'>{inside}</group>");
        let cases: [(&str, &str); 29] = [
            ("<pool name='p'/>", "f:1: unknown element <pool>"),
            ("<group/>", "f:1: group: has no name"),
            (
                "<preemptionRounds>1</preemptionRounds>",
                "f:1: preemptionRounds: has no effect in this file: it is read from the general file",
            ),
            (
                &in_group("<weight>2</weight>"),
                "f:1: group g: weight: has no effect on a group: only pools have one",
            ),
            (
                &in_group("<schedulingMode>PRIORITY</schedulingMode>"),
                "f:1: group g: schedulingMode: has no effect on a group: only pools have one",
            ),
            (
                &in_group("<minmap>1</minmap>"),
                "f:1: group g: minmap: unknown element <minmap>; did you mean <minMAP>?",
            ),
            (
                &in_pool("<maxMaps>1</maxMaps>"),
                "f:1: pool g.p: maxMaps: unknown element <maxMaps>; did you mean <maxMAP>?",
            ),
            (
                &in_pool("<schedulingMode>Fair</schedulingMode>"),
                "f:1: pool g.p: schedulingMode: value \"Fair\" is not a scheduling mode; expected FIFO, FAIR or DEADLINE; did you mean FAIR?",
            ),
            ("<grup name='g'/>", "f:1: unknown element <grup>; did you mean <group>?"),
            (
                &in_group("<maxMAP>400</maxMAP>\n<pool name='p'><minMAP>500</minMAP></pool>"),
                "f:2: pool g.p: minMAP 500 is above maxMAP 400 of its group g",
            ),
            (
                &in_group(
                    "<maxMAP>400</maxMAP>\n<pool name='p'><minMAP>300</minMAP></pool>\
                     <pool name='q'><minMAP>300</minMAP></pool>",
                ),
                "f:1: group g: the minMAP of its pools add up to 600, which is above maxMAP 400",
            ),
            (
                &in_group(
                    "<pool name='p'/>\n<redirectJobWithLimit source='p' destination='qq' inputSizeLimit='1'/>",
                ),
                "f:2: group g: redirectJobWithLimit: destination g.qq is not in the pools file, so it has no limits and no weight",
            ),
            (
                &in_group("<minMAP>5</minMAP><maxMAP>4</maxMAP>"),
                "f:1: group g: minMAP 5 is above maxMAP 4",
            ),
            (
                &in_group("<maxMAP>-5</maxMAP>"),
                "f:1: group g: maxMAP: value \"-5\" is negative; 0 is used",
            ),
            (
                &in_group("<maxMAP>2147483648</maxMAP>"),
                "f:1: group g: maxMAP: value \"2147483648\" is out of range; expected a whole number from -2147483648 to 2147483647",
            ),
            (
                &in_group("<minJOBTRACKER>x</minJOBTRACKER>"),
                "f:1: minJOBTRACKER: has no effect: cm.cpu.to.resource.partitioning has no slots of JOBTRACKER",
            ),
            (
                &in_group("<pool/>"),
                "f:1: group g: a pool has no name, so no session can use it; expected <pool name=\"...\">",
            ),
            (
                &in_group("<pool name='p'/>\n<pool name='p'/>"),
                "f:2: pool g.p: Already added pool info; the later values win",
            ),
            (
                &in_group("<redirectJobWithLimit source='' destination='b' inputSizeLimit='1'/>"),
                "f:1: group g: redirectJobWithLimit: Illegal redirect source \"\" or destination \"b\", ignored; expected pools of the group",
            ),
            (
                &in_group("<redirectJobWithLimit source='a' destination='b' inputSizeLimit='0'/>"),
                "f:1: group g: redirectJobWithLimit: Illegal redirect limit 0. Limit must be > 0; ignored",
            ),
            (
                &in_group("<redirectJobWithLimit source='a' destination='b'/>"),
                "f:1: group g: redirectJobWithLimit: value \"\" is not a whole number; expected inputSizeLimit in bytes, a whole number from -9223372036854775808 to 9223372036854775807",
            ),
            (
                &in_pool("<minMAP>many</minMAP>"),
                "f:1: pool g.p: minMAP: value \"many\" is not a whole number; expected a whole number from -2147483648 to 2147483647",
            ),
            (
                &in_pool("<minMAP>3</minMAP><maxMAP>2</maxMAP>"),
                "f:1: pool g.p: minMAP 3 is above maxMAP 2",
            ),
            (
                &in_pool("<weight>-0.5</weight>"),
                "f:1: pool g.p: weight: value \"-0.5\" is negative; 1 is used",
            ),
            (
                &in_pool("<weight>inf</weight>"),
                "f:1: pool g.p: weight: value \"inf\" is not a number; expected a number such as 1.5",
            ),
            (
                &in_pool("<schedulingMode>PRIORITY</schedulingMode>"),
                "f:1: pool g.p: schedulingMode: value \"PRIORITY\" is not a scheduling mode; expected FIFO, FAIR or DEADLINE",
            ),
            (
                &in_pool("<preemptable>no</preemptable>"),
                "f:1: pool g.p: preemptable: value \"no\" is neither true nor false; false is used",
            ),
            (
                &in_pool("<blacklist>x</blacklist>"),
                "f:1: pool g.p: blacklist: unknown element <blacklist>",
            ),
            (
                &in_pool("<priority><b/></priority>"),
                "f:1: pool g.p: priority: starts with an element or an instruction; expected text",
            ),
        ];
        for (inside, expected) in cases {
            assert_eq!(pools(inside, false).1, [expected], "{inside}");
        }
    }

    #[test]
    fn illegal_names_are_told_where_they_shut_sessions_out() {
        let file = "<group name='G'><pool name='p'/></group>";
        let told = "f:1: pool G.p: its settings are for no session: only 0-9 a-z - _ are legal in names, and sessions that ask for it are scheduled in default.defaultpool";
        assert_eq!(pools(file, false).1, [told]);
        let told = "f:1: pool G.p: no session can use it: only 0-9 a-z - _ are legal in names while cm.configured.pools.only is true";
        assert_eq!(pools(file, true).1, [told]);
    }

    #[test]
    fn later_elements_win_and_groups_named_twice_are_one() {
        let (pools, _) = pools(
            "<group name='g'><minMAP>1</minMAP><pool name='p'><preemptable>false</preemptable>\
             <minMAP>1</minMAP></pool></group><group name='g'><maxMAP>5</maxMAP>\
             <pool name='p'><preemptable>true</preemptable></pool></group>",
            false,
        );
        let group = &pools.groups["g"];
        assert_eq!((group.minimum[ResourceType::Map], group.maximum[ResourceType::Map]), (1, 5));
        let pool = &pools.pools[&PoolName::new("g", "p")];
        assert_eq!((pool.preemptable, pool.minimum[ResourceType::Map]), (true, 1));
    }

    #[test]
    fn whitelists_may_be_empty() {
        let (pools, _) = pools("<group name='g'><pool name='p'><whitelist/></pool></group>", false);
        assert_eq!(pools.pools[&PoolName::new("g", "p")].whitelist.as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn no_text_panics(name in "(min|max)(MAP|REDUCE|JOBTRACKER|X)|weight|priority|whitelist", text in "[^<&\\p{C}]{0,20}") {
            pools(&format!("<group name='g'><pool name='p'><{name}>{text}</{name}></pool><{name}>{text}</{name}></group>"), true);
        }
    }
}
