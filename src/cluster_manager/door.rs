//! Limits on the texts and lists of calls, checked before anything else. Accepted texts are kept,
//! listed and logged unchanged.
//!
//! A call that exceeds a limit is refused with the error that makes a Java client stop and show the
//! message, because a retry would not help: the method's declared exception, or an application
//! fault if it declares none. It decides nothing about sessions and nodes.

use std::fmt;

use super::translate;
use corona_config::{CallSettings, ClusterManagerSettings};
use corona_model::settings::Bounds;
use corona_wire::Exception;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Answered};
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// The bounds in force.
#[derive(Clone, Debug)]
pub(super) struct Door {
    calls: CallSettings,
    requests: usize,
    nodes: usize,
    sessions: usize,
}

/// The value that exceeds a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    what: &'static str,
    found: usize,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    unit: &'static str,
    most: usize,
    key: &'static str,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Excess { what, found, bound: Bound { unit, most, key } } = self;
        write!(f, "{what} has {found} {unit}; at most {most} are allowed ({key})")
    }
}

impl Excess {
    /// The error of a method that declares `InvalidSessionHandle`.
    pub(super) fn of_session(self) -> Answer<Answered> {
        Answer::Exception(Exception::invalid_session_handle(self.to_string()))
    }
}

type Checked = Result<(), Excess>;

impl Door {
    pub(super) fn new(settings: &ClusterManagerSettings) -> Door {
        Door::of(settings.calls.clone(), &settings.engine.bounds)
    }

    /// With these bounds on calls and on the engine's tables.
    pub(super) fn of(calls: CallSettings, bounds: &Bounds) -> Door {
        Door {
            calls,
            requests: bounds.requests_per_session,
            nodes: bounds.nodes,
            sessions: bounds.sessions,
        }
    }

    /// The reply to a call that exceeds a bound. The elements of long lists are checked by
    /// [`Self::check_request`] and its neighbours.
    pub(super) fn objection(&self, call: &Call) -> Option<(Excess, Answer<Answered>)> {
        let excess = self.check(call).err()?;
        let answer = match call {
            Call::NodeHeartbeat { .. } => {
                Answer::Exception(Exception::disallowed_node(excess.to_string()))
            }
            Call::GetActualPoolInfo { .. } | Call::GetActualPoolInfoV2 { .. } => {
                Answer::Exception(Exception::invalid_pool_info(excess.to_string()))
            }
            Call::KillSession { .. } | Call::KillSessions { .. } => {
                translate::fault(excess.to_string())
            }
            _ => excess.of_session(),
        };
        Some((excess, answer))
    }

    fn check(&self, call: &Call) -> Checked {
        match call {
            Call::SessionStart { handle, info } | Call::SessionUpdateInfo { handle, info } => {
                self.handle(handle)?;
                info.as_ref().map_or(Ok(()), |info| self.session_info(info))
            }
            Call::SessionEnd { handle, .. }
            | Call::SessionHeartbeat { handle }
            | Call::GetSessionInfo { handle }
            | Call::RequestResource { handle, .. } => self.handle(handle),
            Call::SessionHeartbeatV2 { handle, args } => {
                self.handle(handle)?;
                let Some(args) = args else { return Ok(()) };
                self.list("the map of resource usages", args.resource_usages.len())?;
                let mut usages = args.resource_usages.values();
                usages.try_for_each(|usages| self.list("a list of resource usages", usages.len()))
            }
            Call::ReleaseResource { handle, ids } => {
                self.handle(handle)?;
                let count = ids.as_ref().map_or(0, Vec::len);
                within("the list of ids", count, self.requests())
            }
            Call::NodeHeartbeat { node: Some(node) } => self.node(node),
            Call::NodeFeedback { handle, types, reports } => {
                self.handle(handle)?;
                self.list("the list of types", types.as_ref().map_or(0, Vec::len))?;
                let count = reports.as_ref().map_or(0, Vec::len);
                let bound = Bound { unit: "entries", most: self.nodes, key: "corona.cm.max.nodes" };
                within("the list of reports", count, bound)
            }
            Call::KillSession { id } => self.handle(id),
            Call::KillSessions { args: Some(args) } => {
                let bound =
                    Bound { unit: "entries", most: self.sessions, key: "corona.cm.max.sessions" };
                within("the list of sessions", args.session_ids.len(), bound)?;
                self.name("the name of the administrator", &args.who)?;
                args.session_ids.iter().try_for_each(|id| self.id("the id of a session", id))
            }
            Call::GetActualPoolInfo { args: Some(args) }
            | Call::GetActualPoolInfoV2 { args: Some(args) } => self.pool(&args.pool_info_string),
            _ => Ok(()),
        }
    }

    /// One request of a call.
    pub(super) fn check_request(&self, request: &wire::ResourceRequest) -> Checked {
        self.hosts("the list of preferred hosts", request.hosts.as_deref())?;
        self.hosts("the list of excluded hosts", request.exclude_hosts.as_deref())
    }

    /// One report of a call.
    pub(super) fn check_report(&self, report: &wire::NodeUsageReport) -> Checked {
        self.id("the name of a node", &report.node_name)
    }

    fn session_info(&self, info: &wire::SessionInfo) -> Checked {
        self.host(&info.address.host)?;
        self.name("the name of the session", &info.name)?;
        self.name("the name of the user", &info.user_id)?;
        if let Some(groups) = &info.group_ids {
            self.list("the list of groups", groups.len())?;
            groups.iter().try_for_each(|group| self.name("the name of a group", group))?;
        }
        if let Some(pool) = &info.pool_info_strings {
            self.pool(pool)?;
        }
        let url = info.url.as_ref().map_or(0, String::len);
        let most = self.calls.url_bytes;
        within("the URL", url, Bound { unit: "bytes", most, key: "corona.cm.max.url.bytes" })
    }

    fn node(&self, node: &wire::ClusterNodeInfo) -> Checked {
        self.id("the name of the node", &node.name)?;
        self.host(&node.address.host)?;
        let ended = node.ended.as_deref().unwrap_or_default();
        self.list("the list of ended nodes", ended.len())?;
        ended.iter().try_for_each(|name| self.id("the name of an ended node", name))?;
        let Some(services) = &node.resource_infos else { return Ok(()) };
        self.list("the map of resource infos", services.len())?;
        services.values().try_for_each(|service| self.id("a resource info", service))
    }

    fn pool(&self, pool: &wire::PoolInfoStrings) -> Checked {
        self.name("the name of the pool group", &pool.pool_group_name)?;
        self.name("the name of the pool", &pool.pool_name)
    }

    fn hosts(&self, what: &'static str, hosts: Option<&[String]>) -> Checked {
        let Some(hosts) = hosts else { return Ok(()) };
        let most = self.calls.hosts_per_request;
        let bound = Bound { unit: "entries", most, key: "corona.cm.max.hosts.per.request" };
        within(what, hosts.len(), bound)?;
        hosts.iter().try_for_each(|host| self.host(host))
    }

    fn handle(&self, handle: &Option<String>) -> Checked {
        handle.as_ref().map_or(Ok(()), |handle| self.id("the id of the session", handle))
    }

    fn id(&self, what: &'static str, id: &str) -> Checked {
        let most = self.calls.id_bytes;
        within(what, id.len(), Bound { unit: "bytes", most, key: "corona.cm.max.id.bytes" })
    }

    fn host(&self, host: &str) -> Checked {
        let bound =
            Bound { unit: "bytes", most: self.calls.host_bytes, key: "corona.cm.max.host.bytes" };
        within("the name of a host", host.len(), bound)
    }

    fn name(&self, what: &'static str, name: &str) -> Checked {
        let most = self.calls.name_bytes;
        within(what, name.len(), Bound { unit: "bytes", most, key: "corona.cm.max.name.bytes" })
    }

    fn list(&self, what: &'static str, count: usize) -> Checked {
        let most = self.calls.list_entries;
        within(what, count, Bound { unit: "entries", most, key: "corona.cm.max.list.entries" })
    }

    fn requests(&self) -> Bound {
        let key = "corona.cm.max.requests.per.session";
        Bound { unit: "entries", most: self.requests, key }
    }
}

fn within(what: &'static str, found: usize, bound: Bound) -> Checked {
    if found > bound.most { Err(Excess { what, found, bound }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use corona_wire::generated::{ResourceType, SessionInfo};

    /// Every bound has a value of its own.
    fn door() -> Door {
        let calls = CallSettings {
            name_bytes: 100,
            url_bytes: 110,
            host_bytes: 120,
            id_bytes: 130,
            hosts_per_request: 4,
            list_entries: 3,
        };
        Door { calls, requests: 5, nodes: 6, sessions: 7 }
    }

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn info(change: impl FnOnce(&mut SessionInfo)) -> SessionInfo {
        let address = wire::InetAddress::new(text(120), 1);
        let (name, user) = (text(100), text(100));
        let groups = vec![text(100); 3];
        let pool = wire::PoolInfoStrings::new(text(100), text(100));
        let url = text(110);
        let mut info = SessionInfo::new(address, name, user, groups, pool, None, None, url, None);
        change(&mut info);
        info
    }

    fn node(change: impl FnOnce(&mut wire::ClusterNodeInfo)) -> Call {
        let address = wire::InetAddress::new(text(120), 1);
        let total = wire::ComputeSpecs::new(1, None, None, None);
        let apps: BTreeMap<_, _> = (0..3).map(|kind| (ResourceType(kind), text(130))).collect();
        let mut node =
            wire::ClusterNodeInfo::new(text(130), address, total, None, apps, None, None);
        change(&mut node);
        Call::NodeHeartbeat { node: Some(node) }
    }

    fn start(change: impl FnOnce(&mut SessionInfo)) -> Call {
        Call::SessionStart { handle: Some(text(130)), info: Some(info(change)) }
    }

    fn update(change: impl FnOnce(&mut SessionInfo)) -> Call {
        Call::SessionUpdateInfo { handle: Some(text(130)), info: Some(info(change)) }
    }

    fn beat(kinds: i32, usages: usize) -> Call {
        let usages = (0..kinds).map(|kind| (ResourceType(kind), vec![0; usages])).collect();
        let args = Some(wire::HeartbeatArgs::new(1, 1, usages, None));
        Call::SessionHeartbeatV2 { handle: Some(text(130)), args }
    }

    fn feedback(types: usize, reports: usize) -> Call {
        let report = wire::NodeUsageReport::new(text(130), 0, 0, 0, 0, 0, 0, 0);
        Call::NodeFeedback {
            handle: Some(text(130)),
            types: Some(vec![ResourceType::MAP; types]),
            reports: Some(vec![report; reports]),
        }
    }

    fn kill(sessions: usize, id_bytes: usize, who_bytes: usize) -> Call {
        let args = wire::KillSessionsArgs::new(vec![text(id_bytes); sessions], text(who_bytes));
        Call::KillSessions { args: Some(args) }
    }

    fn release(ids: i32) -> Call {
        Call::ReleaseResource { handle: Some(text(130)), ids: Some((0..ids).collect()) }
    }

    fn pool_of(bytes: usize) -> Call {
        let pool = wire::PoolInfoStrings::new(text(100), text(bytes));
        Call::GetActualPoolInfo { args: Some(wire::ActualPoolInfoArgs::new(pool, 1)) }
    }

    #[test]
    fn values_at_every_bound_pass() {
        for call in [
            start(|_| {}),
            update(|_| {}),
            node(|_| {}),
            beat(3, 3),
            feedback(3, 6),
            kill(7, 130, 100),
            release(5),
            pool_of(100),
            Call::KillSession { id: Some(text(130)) },
            Call::GetSessionInfo { handle: Some(text(130)) },
            Call::SessionEnd { handle: None, status: None },
            Call::GetSessions,
        ] {
            assert_eq!(door().check(&call), Ok(()), "{call:?}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn values_beyond_a_bound_are_refused_with_the_method_s_own_error() {
        let long_handle = || Some(text(131));
        let request = Call::RequestResource { handle: long_handle(), requests: Some(vec![]) };
        let cases: Vec<(Call, &str, &str)> = vec![
            (
                start(|info| info.name.push('x')),
                "session",
                "the name of the session has 101 bytes; at most 100 are allowed (corona.cm.max.name.bytes)",
            ),
            (start(|info| info.user_id.push('x')), "session", "the name of the user has 101"),
            (
                start(|info| info.address.host.push('x')),
                "session",
                "the name of a host has 121 bytes; at most 120 are allowed (corona.cm.max.host.bytes)",
            ),
            (
                start(|info| info.url = Some(text(111))),
                "session",
                "the URL has 111 bytes; at most 110 are allowed (corona.cm.max.url.bytes)",
            ),
            (
                start(|info| info.group_ids = Some(vec![text(101)])),
                "session",
                "the name of a group has 101",
            ),
            (
                start(|info| info.group_ids = Some(vec![text(1); 4])),
                "session",
                "the list of groups has 4 entries; at most 3 are allowed (corona.cm.max.list.entries)",
            ),
            (
                start(|info| info.pool_info_strings.as_mut().unwrap().pool_name.push('x')),
                "session",
                "the name of the pool has 101",
            ),
            (
                start(|info| info.pool_info_strings.as_mut().unwrap().pool_group_name.push('x')),
                "session",
                "the name of the pool group has 101",
            ),
            (update(|info| info.name.push('x')), "session", "the name of the session has 101"),
            (
                Call::SessionStart { handle: long_handle(), info: None },
                "session",
                "the id of the session has 131 bytes; at most 130 are allowed (corona.cm.max.id.bytes)",
            ),
            (
                Call::SessionEnd { handle: long_handle(), status: None },
                "session",
                "the id of the session has 131",
            ),
            (
                Call::SessionHeartbeat { handle: long_handle() },
                "session",
                "the id of the session has 131",
            ),
            (
                Call::GetSessionInfo { handle: long_handle() },
                "session",
                "the id of the session has 131",
            ),
            (request, "session", "the id of the session has 131"),
            (beat(4, 1), "session", "the map of resource usages has 4 entries"),
            (beat(1, 4), "session", "a list of resource usages has 4 entries"),
            (
                release(6),
                "session",
                "the list of ids has 6 entries; at most 5 are allowed (corona.cm.max.requests.per.session)",
            ),
            (feedback(4, 1), "session", "the list of types has 4 entries"),
            (
                feedback(1, 7),
                "session",
                "the list of reports has 7 entries; at most 6 are allowed (corona.cm.max.nodes)",
            ),
            (node(|node| node.name.push('x')), "node", "the name of the node has 131"),
            (node(|node| node.address.host.push('x')), "node", "the name of a host has 121"),
            (
                node(|node| {
                    node.resource_infos
                        .as_mut()
                        .unwrap()
                        .insert(ResourceType(9), text(1))
                        .map_or((), drop)
                }),
                "node",
                "the map of resource infos has 4",
            ),
            (
                node(|node| node.resource_infos = Some([(ResourceType(0), text(131))].into())),
                "node",
                "a resource info has 131",
            ),
            (pool_of(101), "pool", "the name of the pool has 101"),
            (
                kill(8, 1, 1),
                "fault",
                "the list of sessions has 8 entries; at most 7 are allowed (corona.cm.max.sessions)",
            ),
            (kill(1, 131, 1), "fault", "the id of a session has 131"),
            (kill(1, 1, 101), "fault", "the name of the administrator has 101"),
            (Call::KillSession { id: long_handle() }, "fault", "the id of the session has 131"),
        ];
        for (call, kind, expected) in cases {
            let (excess, answer) = door().objection(&call).unwrap_or_else(|| panic!("{expected}"));
            assert!(excess.to_string().starts_with(expected), "{excess}\n{expected}");
            let (found, text) = match answer {
                Answer::Exception(Exception::InvalidSessionHandle(e)) => ("session", e.handle),
                Answer::Exception(Exception::DisallowedNode(e)) => ("node", e.host),
                Answer::Exception(Exception::InvalidPoolInfo(e)) => ("pool", e.pool_info),
                Answer::Fault(fault) => ("fault", fault.message),
                other => panic!("{other:?}"),
            };
            assert_eq!((found, text), (kind, excess.to_string()));
        }
    }

    #[test]
    fn elements_of_long_lists_have_bounds_too() {
        let hosts = |count, bytes| Some(vec![text(bytes); count]);
        let request = |prefer, exclude| {
            wire::ResourceRequest::new(1, prefer, None, ResourceType::MAP, exclude)
        };
        let door = door();
        assert_eq!(door.check_request(&request(hosts(4, 120), hosts(4, 120))), Ok(()));
        for (request, expected) in [
            (
                request(hosts(5, 1), None),
                "the list of preferred hosts has 5 entries; at most 4 are allowed (corona.cm.max.hosts.per.request)",
            ),
            (request(None, hosts(5, 1)), "the list of excluded hosts has 5"),
            (request(hosts(1, 121), None), "the name of a host has 121"),
            (request(None, hosts(1, 121)), "the name of a host has 121"),
        ] {
            let excess = door.check_request(&request).unwrap_err().to_string();
            assert!(excess.starts_with(expected), "{excess}");
        }
        let report = |bytes| wire::NodeUsageReport::new(text(bytes), 0, 0, 0, 0, 0, 0, 0);
        assert_eq!(door.check_report(&report(130)), Ok(()));
        let excess = door.check_report(&report(131)).unwrap_err().to_string();
        assert!(excess.starts_with("the name of a node has 131"), "{excess}");
    }
}
