//! The four services, as tables. A test holds them against the contract.

use super::generated::{
    ActualPoolInfoArgs, ActualPoolInfoResponse, ClusterNodeInfo, DisallowedNode, HeartbeatArgs,
    InvalidPoolInfo, InvalidSessionHandle, KillSessionsArgs, NodeHeartbeatResponse,
    NodeUsageReport, PoolInfoStrings, ResourceGrant, ResourceRequest, ResourceType,
    RestartNodesArgs, RestartNodesResponse, RunningSession, SafeModeException, SessionInfo,
    SessionRegistrationData, SessionStatus,
};
use super::service::{
    Argument, Exception, Framing, Input, Outcome, Output, Service, Table, Undeclared, Wire,
    next_field, service, skip_field, write_field, write_stop,
};

service! {
    /// `ClusterManagerService`: the cluster manager, for nodes, sessions and operators.
    /// Spec: cluster-manager/01 §6.1.
    ClusterManager, ClusterManagerCall, ClusterManagerReply = "ClusterManagerService", Framed;

    get_actual_pool_info "getActualPoolInfo" GetActualPoolInfo { 1 args: Option<ActualPoolInfoArgs> }
        -> (value: PoolInfoStrings) throws [1 InvalidPoolInfo, 2 SafeModeException];
    get_actual_pool_info_v2 "getActualPoolInfoV2" GetActualPoolInfoV2
        { 1 args: Option<ActualPoolInfoArgs> }
        -> (value: ActualPoolInfoResponse) throws [1 InvalidPoolInfo, 2 SafeModeException];
    get_next_session_id "getNextSessionId" GetNextSessionId
        -> (value: String) throws [1 SafeModeException];
    session_start "sessionStart" SessionStart
        { 1 handle: Option<String>, 2 info: Option<SessionInfo> }
        -> (value: SessionRegistrationData) throws [1 InvalidSessionHandle, 2 SafeModeException];
    session_update_info "sessionUpdateInfo" SessionUpdateInfo
        { 1 handle: Option<String>, 2 info: Option<SessionInfo> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    session_end "sessionEnd" SessionEnd
        { 1 handle: Option<String>, 2 status: Option<SessionStatus> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    session_heartbeat "sessionHeartbeat" SessionHeartbeat { 1 handle: Option<String> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    session_heartbeat_v2 "sessionHeartbeatV2" SessionHeartbeatV2
        { 1 handle: Option<String>, 2 args: Option<HeartbeatArgs> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    request_resource "requestResource" RequestResource
        { 1 handle: Option<String>, 2 requests: Option<Vec<ResourceRequest>> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    release_resource "releaseResource" ReleaseResource
        { 1 handle: Option<String>, 2 ids: Option<Vec<i32>> }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    node_heartbeat "nodeHeartbeat" NodeHeartbeat { 1 node: Option<ClusterNodeInfo> }
        -> (value: NodeHeartbeatResponse) throws [1 DisallowedNode, 2 SafeModeException];
    node_feedback "nodeFeedback" NodeFeedback
        {
            1 handle: Option<String>,
            2 types: Option<Vec<ResourceType>>,
            3 reports: Option<Vec<NodeUsageReport>>
        }
        throws [1 InvalidSessionHandle, 2 SafeModeException];
    refresh_nodes "refreshNodes" RefreshNodes throws [1 SafeModeException];
    restart_nodes "restartNodes" RestartNodes { 1 args: Option<RestartNodesArgs> }
        -> (value: RestartNodesResponse) throws [1 SafeModeException];
    get_sessions "getSessions" GetSessions
        -> (value: Vec<RunningSession>) throws [1 SafeModeException];
    get_session_info "getSessionInfo" GetSessionInfo { 1 handle: Option<String> }
        -> (value: SessionInfo) throws [1 InvalidSessionHandle, 2 SafeModeException];
    kill_session "killSession" KillSession { 1 id: Option<String> } throws [1 SafeModeException];
    kill_sessions "killSessions" KillSessions { 1 args: Option<KillSessionsArgs> }
        throws [1 SafeModeException];
    set_safe_mode "setSafeMode" SetSafeMode { 1 safe_mode: bool } -> (value: bool);
    persist_state "persistState" PersistState -> (value: bool);
}

service! {
    /// `SessionDriverService`: a session, for the cluster manager's notifications.
    /// Spec: cluster-manager/01 §6.2.
    SessionDriver, SessionDriverCall, SessionDriverReply = "SessionDriverService", Bare;

    grant_resource "grantResource" GrantResource
        { 1 handle: Option<String>, 2 granted: Option<Vec<ResourceGrant>> };
    revoke_resource "revokeResource" RevokeResource
        { 1 handle: Option<String>, 2 revoked: Option<Vec<ResourceGrant>>, 3 force: bool };
    process_dead_node "processDeadNode" ProcessDeadNode
        { 1 handle: Option<String>, 2 node: Option<String> };
}

service! {
    /// `CoronaTaskTrackerService`: a task tracker. Spec: cluster-manager/01 §6.3.
    CoronaTaskTracker, CoronaTaskTrackerCall, CoronaTaskTrackerReply
        = "CoronaTaskTrackerService", Bare;

    purge_session "purgeSession" PurgeSession { 1 handle: Option<String> }
        throws [1 InvalidSessionHandle];
    blacklist_session "blacklistSession" BlacklistSession { 1 handle: Option<String> }
        throws [1 InvalidSessionHandle];
}

service! {
    /// `CoronaProxyJobTrackerService`: the proxy job tracker. Spec: cluster-manager/01 §6.4.
    ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply
        = "CoronaProxyJobTrackerService", Framed;

    set_cluster_manager_safe_mode_flag "setClusterManagerSafeModeFlag" SetClusterManagerSafeModeFlag
        { 1 flag: bool };
    get_cluster_manager_safe_mode_flag "getClusterManagerSafeModeFlag" GetClusterManagerSafeModeFlag
        -> (value: bool);
    get_system_dir "getSystemDir" GetSystemDir -> (value: String);
    clean_job_history_cache "cleanJobHistoryCache" CleanJobHistoryCache
        { 1 job_id: Option<String> };
}
