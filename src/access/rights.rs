//! What each role may do: a row for every call of every service and every kind of page. What has no row
//! is for administrators. `docs/operate/access.md` has the same tables.

use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::role::Role;

/// The roles that may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Everybody, with access or without.
    pub const EVERYBODY: Rights = Rights(0xff);
    /// Administrators only.
    pub const ADMIN: Rights = Rights(1 << Role::Admin as u8);
    /// Nodes, and administrators.
    pub const NODE: Rights = Rights::ADMIN.and(Role::Node);
    /// Those who submit jobs, and administrators.
    pub const SUBMIT: Rights = Rights::ADMIN.and(Role::Submit);
    /// Those who submit jobs, nodes (where job trackers and tasks run), and administrators.
    pub const JOBS: Rights = Rights::SUBMIT.and(Role::Node);
    /// All roles.
    pub const MEMBERS: Rights = Rights::JOBS.and(Role::Read);

    const fn and(self, role: Role) -> Rights {
        Rights(self.0 | 1 << role as u8)
    }

    /// Whether this role may.
    pub fn allow(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether peers without access may.
    pub fn is_everybody(self) -> bool {
        self == Rights::EVERYBODY
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_everybody() {
            return f.write_str("everybody");
        }
        let roles = Role::ALL.into_iter().filter(|role| self.allow(*role)).map(Role::name);
        f.write_str(&roles.collect::<Vec<_>>().join(", "))
    }
}

/// What a call or a page needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The Thrift service, the RPC protocol, or the method of HTTP.
    pub of: &'static str,
    /// The call, or the path; `*` at its end matches any rest.
    pub name: &'static str,
    /// Who may.
    pub rights: Rights,
}

const fn row(of: &'static str, name: &'static str, rights: Rights) -> Row {
    Row { of, name, rights }
}

const MANAGER: &str = "ClusterManagerService";
const DRIVER: &str = "SessionDriverService";
const NODE: &str = "CoronaTaskTrackerService";
const PROXY: &str = "CoronaProxyJobTrackerService";

/// The calls of the Thrift services. A session's calls need its owner as well.
pub static THRIFT: &[Row] = &[
    row(MANAGER, "getActualPoolInfo", Rights::MEMBERS),
    row(MANAGER, "getActualPoolInfoV2", Rights::MEMBERS),
    row(MANAGER, "getNextSessionId", Rights::JOBS),
    row(MANAGER, "sessionStart", Rights::JOBS),
    row(MANAGER, "sessionUpdateInfo", Rights::JOBS),
    row(MANAGER, "sessionEnd", Rights::JOBS),
    row(MANAGER, "sessionHeartbeat", Rights::JOBS),
    row(MANAGER, "sessionHeartbeatV2", Rights::JOBS),
    row(MANAGER, "requestResource", Rights::JOBS),
    row(MANAGER, "releaseResource", Rights::JOBS),
    row(MANAGER, "nodeHeartbeat", Rights::NODE),
    row(MANAGER, "nodeFeedback", Rights::JOBS),
    row(MANAGER, "refreshNodes", Rights::ADMIN),
    row(MANAGER, "restartNodes", Rights::ADMIN),
    row(MANAGER, "getSessions", Rights::MEMBERS),
    row(MANAGER, "getSessionInfo", Rights::MEMBERS),
    row(MANAGER, "killSession", Rights::ADMIN),
    row(MANAGER, "killSessions", Rights::ADMIN),
    row(MANAGER, "setSafeMode", Rights::ADMIN),
    row(MANAGER, "persistState", Rights::ADMIN),
    row(DRIVER, "grantResource", Rights::ADMIN),
    row(DRIVER, "revokeResource", Rights::ADMIN),
    row(DRIVER, "processDeadNode", Rights::ADMIN),
    row(NODE, "purgeSession", Rights::ADMIN),
    row(NODE, "blacklistSession", Rights::ADMIN),
    row(PROXY, "setClusterManagerSafeModeFlag", Rights::ADMIN),
    row(PROXY, "getClusterManagerSafeModeFlag", Rights::MEMBERS),
    row(PROXY, "getSystemDir", Rights::MEMBERS),
    row(PROXY, "cleanJobHistoryCache", Rights::JOBS),
];

const INTER_TRACKER: &str = "org.apache.hadoop.mapred.InterTrackerProtocol";
const JOB_SUBMISSION: &str = "org.apache.hadoop.mapred.JobSubmissionProtocol";
const CORONA_TASK_TRACKER: &str = "org.apache.hadoop.mapred.CoronaTaskTrackerProtocol";
const INTER_CORONA_JOB_TRACKER: &str = "org.apache.hadoop.mapred.InterCoronaJobTrackerProtocol";
const JOB_AGGREGATOR: &str = "org.apache.hadoop.mapred.CoronaJobAggregator";
const JOB_FILES: &str = "corona.JobFiles";
const CLUSTER_MANAGER_SAFE_MODE: &str = "org.apache.hadoop.mapred.ClusterManagerSafeModeProtocol";

/// The methods of the protocols of Hadoop RPC. Changes of a job need its owner as well.
pub static HADOOP: &[Row] = &[
    row(INTER_TRACKER, "heartbeat", Rights::NODE),
    row(INTER_TRACKER, "getBuildVersion", Rights::MEMBERS),
    row(INTER_TRACKER, "getTaskCompletionEvents", Rights::NODE),
    row(INTER_TRACKER, "getSystemDir", Rights::MEMBERS),
    row(INTER_TRACKER, "getFilesystemName", Rights::MEMBERS),
    row(INTER_TRACKER, "reportTaskTrackerError", Rights::NODE),
    row(JOB_SUBMISSION, "submitJob", Rights::SUBMIT),
    row(JOB_SUBMISSION, "getJobProfile", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getJobStatus", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getJobCounters", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getMapTaskReports", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getReduceTaskReports", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getSetupTaskReports", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getCleanupTaskReports", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getTaskCompletionEvents", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getTaskDiagnostics", Rights::MEMBERS),
    row(JOB_SUBMISSION, "killJob", Rights::SUBMIT),
    row(JOB_SUBMISSION, "killTask", Rights::SUBMIT),
    row(JOB_SUBMISSION, "setJobPriority", Rights::SUBMIT),
    row(JOB_SUBMISSION, "getNewJobId", Rights::SUBMIT),
    row(JOB_SUBMISSION, "getSystemDir", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getFilesystemName", Rights::MEMBERS),
    row(JOB_SUBMISSION, "jobsToComplete", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getAllJobs", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getQueues", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getQueueInfo", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getJobsFromQueue", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getQueueAclsForCurrentUser", Rights::MEMBERS),
    row(JOB_SUBMISSION, "getClusterStatus", Rights::MEMBERS),
    row(CORONA_TASK_TRACKER, "submitActions", Rights::NODE),
    row(CORONA_TASK_TRACKER, "startCoronaJobTracker", Rights::NODE),
    row(INTER_CORONA_JOB_TRACKER, "reportRemoteCoronaJobTracker", Rights::NODE),
    row(INTER_CORONA_JOB_TRACKER, "getNewJobTrackerAddress", Rights::NODE),
    row(INTER_CORONA_JOB_TRACKER, "pushCoronaJobTrackerStateUpdate", Rights::NODE),
    row(INTER_CORONA_JOB_TRACKER, "getCoronaJobTrackerState", Rights::NODE),
    row(INTER_CORONA_JOB_TRACKER, "getAndSetCommitting", Rights::NODE),
    row(JOB_AGGREGATOR, "reportJobStats", Rights::JOBS),
    row(JOB_AGGREGATOR, "reportJobErrorCounters", Rights::JOBS),
    row(JOB_FILES, "status", Rights::JOBS),
    row(JOB_FILES, "list", Rights::JOBS),
    row(JOB_FILES, "read", Rights::JOBS),
    // Tasks, which call as their node, write output.
    row(JOB_FILES, "create", Rights::JOBS),
    row(JOB_FILES, "write", Rights::JOBS),
    row(JOB_FILES, "rename", Rights::JOBS),
    row(JOB_FILES, "mkdirs", Rights::JOBS),
    row(JOB_FILES, "delete", Rights::JOBS),
    row(JOB_FILES, "unseen", Rights::SUBMIT),
    row(JOB_FILES, "cluster", Rights::MEMBERS),
    row(CLUSTER_MANAGER_SAFE_MODE, "getClusterManagerSafeModeFlag", Rights::MEMBERS),
    row(CLUSTER_MANAGER_SAFE_MODE, "setClusterManagerSafeModeFlag", Rights::ADMIN),
];

/// The pages and JSON paths of all daemons; the first row that matches counts. HEAD needs what GET does.
pub static PAGES: &[Row] = &[
    row("GET", "/healthz", Rights::EVERYBODY),
    // Gives what its code gives.
    row("GET", SESSION_PATH, Rights::EVERYBODY),
    row("POST", SESSION_PATH, Rights::EVERYBODY),
    row("GET", PEERS_PATH, Rights::MEMBERS),
    row("GET", AUDIT_PATH, Rights::ADMIN),
    row("GET", "/mapOutput", Rights::NODE),
    // Whether files of the machine are there.
    row("GET", "/api/v1/sees", Rights::NODE),
    row("GET", "*", Rights::MEMBERS),
    row("POST", "*", Rights::ADMIN),
];

/// The path of one-time links: `?code=` follows.
pub const SESSION_PATH: &str = "/access";

/// The path of the peers without TLS that a daemon has counted.
pub const PEERS_PATH: &str = "/access/peers";

/// The path of the last actions of members at a daemon.
pub const AUDIT_PATH: &str = "/access/audit";

/// The pages of any daemon, as clients name them.
pub const HTTP: &str = "HTTP";
/// The copy of the journal at the leader of several instances.
pub const INSTANCE: &str = "corona.Instance";
/// The tasks of a node call it on loopback.
const UMBILICAL: &str = "org.apache.hadoop.mapred.TaskUmbilicalProtocol";

/// The roles that a server of this Thrift service or RPC protocol may have; no other peer is accepted as one.
/// The caller has a role, too: the head itself calls job trackers on nodes, clients call the head's.
pub(crate) fn servers(service: &str, caller: Role) -> &'static [Role] {
    match service {
        INSTANCE | MANAGER | PROXY | JOB_AGGREGATOR | CLUSTER_MANAGER_SAFE_MODE | JOB_FILES => {
            &[Role::Admin]
        }
        JOB_SUBMISSION if matches!(caller, Role::Submit | Role::Read) => &[Role::Admin],
        // They are where sessions are, and get no more than what their session has asked for.
        DRIVER => &[Role::Admin, Role::Node, Role::Submit],
        // Task trackers and job trackers, with their pages.
        _ => &[Role::Admin, Role::Node],
    }
}

/// Whether this service is never called within TLS: file systems are no part of the cluster, and tasks call
/// their own machine.
pub(crate) fn is_plain(service: &str) -> bool {
    service == UMBILICAL || service.starts_with("org.apache.hadoop.hdfs.")
}

/// What a call of a Thrift service needs.
pub fn thrift(service: &str, call: &str) -> Rights {
    of_call(THRIFT, service, call)
}

/// What a call of Hadoop RPC needs. The comparison of versions has no row: it is every member's.
pub fn hadoop(protocol: &str, call: &str) -> Rights {
    of_call(HADOOP, protocol, call)
}

/// What a request of HTTP needs: what its path needs as it is written, and as it is read.
pub fn page(method: &str, path: &str) -> Rights {
    let method = if method == "HEAD" { "GET" } else { method };
    let read = percent_decode_str(path).decode_utf8_lossy();
    Rights(of_path(method, path).0 & of_path(method, &read).0)
}

fn of_path(method: &str, path: &str) -> Rights {
    let fits = |row: &&Row| {
        let is_path = match row.name.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == row.name,
        };
        row.of == method && is_path
    };
    PAGES.iter().find(fits).map_or(Rights::ADMIN, |row| row.rights)
}

/// Whether this is the path of a form that asks for the operator's token.
pub fn is_operators_form(path: &str) -> bool {
    const FORMS: [&str; 3] = ["kill", "clear-blacklist", "end"];
    let last = path.rsplit('/').next().unwrap_or_default();
    FORMS.contains(&last) && !["/api/", "/proxy/"].iter().any(|start| path.starts_with(start))
}

/// What a call changes, if it is one that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The cluster, or the access to it.
    Cluster,
    /// A job.
    Jobs,
}

/// What the call changes, unless it is one that daemons make among themselves.
pub(crate) fn change(service: &str, call: &str) -> Option<Change> {
    const OF_JOBS: [&str; 4] = ["submitJob", "killJob", "killTask", "setJobPriority"];
    let is_administrative = match service {
        MANAGER | PROXY => thrift(service, call) == Rights::ADMIN,
        CLUSTER_MANAGER_SAFE_MODE => hadoop(service, call) == Rights::ADMIN,
        "POST" => page(service, call) == Rights::ADMIN,
        JOB_SUBMISSION => return OF_JOBS.contains(&call).then_some(Change::Jobs),
        _ => false,
    };
    is_administrative.then_some(Change::Cluster)
}

fn of_call(rows: &[Row], of: &str, name: &str) -> Rights {
    let found = rows.iter().find(|row| row.name == name && row.of == of);
    found.map_or(Rights::ADMIN, |row| row.rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_needs_the_same_however_it_is_written() {
        for (path, rights) in [
            ("/api/v1/sees", Rights::NODE),
            ("/mapOutput", Rights::NODE),
            (AUDIT_PATH, Rights::ADMIN),
            ("/jobs/a", Rights::MEMBERS),
        ] {
            for method in ["GET", "HEAD"] {
                assert_eq!(page(method, path), rights, "{method} {path}");
                let last = path.len() - 1;
                let escaped = format!("{}%{:02x}", &path[..last], path.as_bytes()[last]);
                assert_eq!(page(method, &escaped), rights, "{method} {escaped}");
            }
        }
        for (path, is_form) in [
            ("/sessions/s/kill", true),
            ("/jobs/j/end", true),
            ("/api/v1/nodes/n/clear-blacklist", false),
            ("/api/v1/step-down", false),
            ("/proxy", false),
            ("/proxy/h:1/jobs/j/end", false),
        ] {
            assert_eq!(is_operators_form(path), is_form, "{path}");
        }
        // Only the page by its plain name is open to everybody.
        assert_eq!(page("GET", "/%68ealthz"), Rights::MEMBERS);
        assert_eq!(page("HEAD", "/healthz"), Rights::EVERYBODY);
        assert_eq!(page("POST", "/%70roxy"), Rights::ADMIN);
    }
}
