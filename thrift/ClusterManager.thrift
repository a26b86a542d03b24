/*
 * The contract of a Corona cluster on the wire: who calls whom, with what, and what comes back.
 *
 * Names of methods, field ids, types and requiredness are those that the original Java programs
 * use and must not change. The order of the fields is the order in which they are written.
 *
 * Everything travels in Thrift's strict binary encoding. Two kinds of stream carry it:
 *
 *   framed  each message is preceded by its length, four bytes, big-endian
 *   bare    messages follow one another with nothing between them
 *
 *   service                      served by             called by                            stream
 *   ClusterManagerService        cluster manager       nodes, job trackers, tools           framed
 *   SessionDriverService         each session          the cluster manager                  bare
 *   CoronaTaskTrackerService     each task tracker     nobody in the original               bare
 *   CoronaProxyJobTrackerService proxy job tracker     cluster manager, nodes, job trackers framed
 *
 * No method is one-way: a void method is answered too, with an empty result.
 *
 * src/wire/build.rs makes the Rust types and the calls of the services from it. The program also reads the whole file
 * when it runs, to check and to show messages. Notes in parentheses are for Rust alone: rs.name is
 * the name of a service or an argument there.
 */

namespace rs cluster_manager

/* ---- Names for plain types ---- */

/* Chosen by a session for each of its requests. Unique within the session over all resource types,
 * counted upwards from 1 by the Java job tracker. A grant carries the id of its request. */
typedef i32 ResourceRequestId

/* A session's id, "<time the cluster manager started>.<number>", such as "202611210003.1". */
typedef string SessionHandle

/* ---- Enumerations ---- */

/* What a slot of a node is for. */
enum ResourceType {
  MAP = 0,
  REDUCE = 1,
  /* A job tracker that runs on a node of the cluster instead of in the job's client. */
  JOBTRACKER = 2,
}

/* How urgent a session is among the sessions of its pool. */
enum SessionPriority {
  VERY_LOW = 0,
  LOW = 1,
  NORMAL = 2,
  HIGH = 3,
  VERY_HIGH = 4,
}

/* What has become of a session. The numbers start at 1. */
enum SessionStatus {
  RUNNING = 1,
  FAILED = 2,
  SUCCESSFUL = 3,
  KILLED = 4,
  /* Not heard from for too long, or not reachable for notifications. */
  TIMED_OUT = 5,
  KILLED_ABORTED = 6,
  /* Its job tracker and the cluster manager disagree about what was asked for. */
  FAILED_JOBTRACKER = 7,
}

/* ---- Places and amounts ---- */

/* Where somebody listens. */
struct InetAddress {
  /* A host name or a literal address. */
  1: required string host,
  2: required i32 port,
}

/* What a node has, or what one slot takes. An absent number counts as 0. */
struct ComputeSpecs {
  1: required i16 numCpus,
  /* Megabytes a second. */
  2: optional i16 networkMBps,
  3: optional i32 memoryMB,
  4: optional i32 diskGB,
}

/* ---- Nodes ---- */

/* Corona's own, not the original's: the program that sends a heartbeat. */
struct Program {
  /* The version, as the program prints it. */
  1: required string version,
  /* When it was started, also in the place of another one: milliseconds since the Unix epoch. */
  2: required i64 startedMs,
  /* Why it has not started again in place when it was asked for that last. */
  3: optional string refused,
}

/* A node's heartbeat: who it is, what it has and what it runs. */
struct ClusterNodeInfo {
  /* Unique in the cluster; chosen by the node. Not a host name. */
  1: required string name,
  /* The node's own Thrift listener. Its host decides about include and exclude lists and locality. */
  2: required InetAddress address,
  3: required ComputeSpecs total,
  /* Measured by the node. The cluster manager looks at memory and disk only. */
  4: optional ComputeSpecs free,
  /* Which types of slot the node serves. The text is opaque to the cluster manager and comes back
   * as appInfo in each grant of that type; Java job trackers expect "host:port" in it. */
  5: optional map<ResourceType, string> resourceInfos,
  /* Corona's own, not the original's: names of nodes on the same host that have ended, such as the processes
   * that this one replaces. Their slots and grants are lost at once. A node that names itself has ended, and
   * the rest of its report is of no interest. */
  100: optional list<string> ended,
  /* Corona's own: what runs the node. It starts again in place when the answer asks for it. */
  101: optional Program program,
}

/* The answer to a heartbeat. */
struct NodeHeartbeatResponse {
  /* True tells the node to end its process, so that whatever watches over it starts it anew. */
  1: required bool restartFlag,
  /* Corona's own, to nodes that name their program alone: the node is to start its program again in place, in
   * which its tasks go on. */
  100: optional bool restartInPlace,
}

/* How the tasks of a session fared on one node, counted by the session. */
struct NodeUsageReport {
  1: required string nodeName,
  2: required i32 numTotalTasks,
  3: required i32 numSucceeded,
  4: required i32 numKilled,
  5: required i32 numFailed,
  6: required i32 numTimeout,
  7: required i32 numSlow,
  8: required i32 numFailedConnections,
}

/* Asks the cluster manager to have all nodes restart, a batch at a time. */
struct RestartNodesArgs {
  /* True restarts nodes that run tasks as well. */
  1: required bool force,
  /* Nodes in one batch. */
  2: required i32 batchSize,
}

struct RestartNodesResponse {
}

/* ---- Requests and grants ---- */

/* One wish for one slot. */
struct ResourceRequest {
  1: required ResourceRequestId id,
  /* Hosts to be near to. Absent or empty: anywhere. */
  2: optional list<string> hosts,
  /* Only numCpus decides; absent counts as one CPU. */
  3: optional ComputeSpecs specs,
  4: required ResourceType type,
  /* Hosts that must not be used. */
  5: optional list<string> excludeHosts,
}

/* One slot, given to a session or, in a revocation, taken back from it. */
struct ResourceGrant {
  /* The id of the request that it answers. */
  1: required ResourceRequestId id,
  2: required string nodeName,
  3: required InetAddress address,
  /* Milliseconds since the Unix epoch, by the cluster manager's clock. */
  4: required i64 grantedTime,
  5: required ResourceType type,
  /* What the node said of its service for this type, unchanged. */
  6: optional string appInfo,
}

/* ---- Pools ---- */

/* The name of a pool. */
struct PoolInfoStrings {
  1: required string poolGroupName,
  2: required string poolName,
}

/* Asks where a job would end up after redirections. */
struct ActualPoolInfoArgs {
  1: required PoolInfoStrings poolInfoString,
  /* Bytes. A pool may send jobs above a limit elsewhere. */
  2: required i64 jobInputSize,
}

struct ActualPoolInfoResponse {
  1: required PoolInfoStrings poolInfoString,
  /* The text of the pool's whitelist; empty when it has none. */
  2: required string whitelist,
}

/* ---- Sessions ---- */

/* What a session says of itself. */
struct SessionInfo {
  /* Where its SessionDriverService listens. */
  1: required InetAddress address,
  2: required string name,
  3: required string userId,
  4: optional list<string> groupIds,
  5: optional PoolInfoStrings poolInfoStrings,
  6: optional SessionPriority priority,
  /* True asks that its slots not be taken back for others. */
  7: optional bool noPreempt,
  /* A page about the session. */
  8: optional string url,
  /* Milliseconds since the Unix epoch. The Java job tracker never sends it. */
  9: optional i64 deadline,
}

/* The second form of a session's heartbeat. The two ids let the cluster manager notice that it and
 * the session have lost step. */
struct HeartbeatArgs {
  /* The largest id in the session's latest requestResource. */
  1: required ResourceRequestId requestId,
  /* The largest id in the latest grantResource that the session has seen. */
  2: required ResourceRequestId grantId,
  /* Bytes, for each type: maximum memory, maximum momentary memory, maximum resident size. */
  3: required map<ResourceType, list<i64>> resourceUsages,
  /* Corona's own: what runs the session. */
  100: optional Program program,
}

/* What a new session should know of the cluster manager. */
struct ClusterManagerInfo {
  /* The original always leaves it empty. */
  1: required string url,
  /* The directory for the history of the session's jobs. */
  2: required string jobHistoryLocation,
}

/* The answer to sessionStart. */
struct SessionRegistrationData {
  1: required SessionHandle handle,
  2: required ClusterManagerInfo clusterManagerInfo,
  /* The pool after redirection. */
  3: required PoolInfoStrings poolInfoStrings,
}

/* One line of the list of sessions. */
struct RunningSession {
  1: required SessionHandle handle,
  2: required string name,
  3: required string userId,
  4: required PoolInfoStrings poolInfo,
  5: optional SessionPriority priority,
  6: optional i64 deadline,
  /* Slots held, for each type. */
  7: optional map<ResourceType, i32> runningResources,
}

struct KillSessionsArgs {
  1: required list<SessionHandle> sessionIds,
  /* Who asked; for the log. */
  2: required string who,
}

/* ---- Exceptions: the errors that a method may name. Any other failure closes the connection. ---- */

/* The session is not known. A Java job tracker ends its job when it sees this, except on sessionEnd. */
exception InvalidSessionHandle {
  /* The handle in question, or a sentence that says what is wrong. */
  1: required string handle,
}

/* The host is not allowed in the cluster. A Java task tracker shuts itself down when it sees this. */
exception DisallowedNode {
  1: required string host,
}

/* The pool cannot be used. */
exception InvalidPoolInfo {
  /* A sentence that says why. */
  1: required string poolInfo,
}

/* The cluster manager is in safe mode and changes nothing. Callers wait until the proxy job tracker
 * says that safe mode is over, then call again. */
exception SafeModeException {
}

/* ---- Services ---- */

/* The cluster manager, for nodes, sessions and operators. */
service ClusterManagerService {
  /* Where a job of the given size would run when sent to the given pool. */
  PoolInfoStrings getActualPoolInfo(1: ActualPoolInfoArgs a (rs.name = "args"))
    throws (1: InvalidPoolInfo e, 2: SafeModeException f),

  /* The same, with the pool's whitelist. */
  ActualPoolInfoResponse getActualPoolInfoV2(1: ActualPoolInfoArgs a (rs.name = "args"))
    throws (1: InvalidPoolInfo e, 2: SafeModeException f),

  /* A fresh id to start a session with. Nothing is remembered of it. */
  string getNextSessionId() throws (1: SafeModeException e),

  /* Registers a session. */
  SessionRegistrationData sessionStart(1: SessionHandle handle, 2: SessionInfo info)
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Replaces url, name, priority and deadline of a session. Counts as a heartbeat. */
  void sessionUpdateInfo(1: SessionHandle handle, 2: SessionInfo info)
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Ends a session and takes its slots back. */
  void sessionEnd(1: SessionHandle handle, 2: SessionStatus status)
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Keeps a session alive. */
  void sessionHeartbeat(1: SessionHandle handle)
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Keeps a session alive and compares what both sides have seen. A Java job tracker falls back to
   * sessionHeartbeat for good when this is answered with an application fault. */
  void sessionHeartbeatV2(1: SessionHandle handle, 2: HeartbeatArgs heartbeatArgs (rs.name = "args"))
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Asks for slots. They are granted by grantResource, never in this answer. */
  void requestResource(1: SessionHandle handle, 2: list<ResourceRequest> requestList (rs.name = "requests"))
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Gives slots back, withdraws requests and forgets requests whose grants are gone, all by id. */
  void releaseResource(1: SessionHandle handle, 2: list<ResourceRequestId> idList (rs.name = "ids"))
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* A node is alive. The first heartbeat of a name adds the node. */
  NodeHeartbeatResponse nodeHeartbeat(1: ClusterNodeInfo node)
    throws (1: DisallowedNode e, 2: SafeModeException f),

  /* How nodes behaved, as a session saw it at its end. */
  void nodeFeedback(
      1: SessionHandle handle,
      2: list<ResourceType> resourceTypes (rs.name = "types"),
      3: list<NodeUsageReport> stats (rs.name = "reports"))
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Reads the lists of included and excluded hosts again. */
  void refreshNodes() throws (1: SafeModeException e),

  /* Has all nodes restart, a batch at a time. */
  RestartNodesResponse restartNodes(1: RestartNodesArgs restartNodesArgs (rs.name = "args"))
    throws (1: SafeModeException e),

  /* All sessions, in no particular order. */
  list<RunningSession> getSessions() throws (1: SafeModeException e),

  /* What one session has said of itself. */
  SessionInfo getSessionInfo(1: SessionHandle handle)
    throws (1: InvalidSessionHandle e, 2: SafeModeException f),

  /* Ends a session as killed. */
  void killSession(1: string sessionId (rs.name = "id")) throws (1: SafeModeException e),

  /* Ends several sessions as killed. */
  void killSessions(1: KillSessionsArgs killSessionsArgs (rs.name = "args")) throws (1: SafeModeException e),

  /* Turns safe mode on or off here and at the proxy job tracker. False: it did not work. */
  bool setSafeMode(1: bool safeMode),

  /* Writes the state file; only in safe mode. False: it did not work. */
  bool persistState(),
} (rs.name = "ClusterManager", stream = "framed")

/* A session, for the cluster manager's notifications. The session queues each and answers at once.
 * After a lost answer the same notification may come again. */
service SessionDriverService {
  /* Slots for requests. */
  void grantResource(1: SessionHandle handle, 2: list<ResourceGrant> granted),

  /* Slots that are taken back. The original sends empty lists at times, and force always false. */
  void revokeResource(1: SessionHandle handle, 2: list<ResourceGrant> revoked, 3: bool force),

  /* A node is gone with all that ran on it. */
  void processDeadNode(1: SessionHandle handle, 2: string node),
} (rs.name = "SessionDriver", stream = "bare")

/* A task tracker, about sessions that it runs tasks for. */
service CoronaTaskTrackerService {
  /* Ends what the session runs here and forgets it. */
  void purgeSession(1: SessionHandle handle) throws (1: InvalidSessionHandle e),

  /* Takes no more tasks of the session. */
  void blacklistSession(1: SessionHandle handle) throws (1: InvalidSessionHandle e),
} (rs.name = "CoronaTaskTracker", stream = "bare")

/* The proxy job tracker: what stays reachable when jobs and the cluster manager come and go. */
service CoronaProxyJobTrackerService {
  /* The cluster manager enters or leaves safe mode. */
  void setClusterManagerSafeModeFlag(1: bool flagValue (rs.name = "flag")),

  /* Whether the cluster manager is in safe mode. Peers poll this until it is over. */
  bool getClusterManagerSafeModeFlag(),

  /* The directory that jobs share their files in. */
  string getSystemDir(),

  /* Drops what is remembered of the history of a job. */
  void cleanJobHistoryCache(1: string jobId),
} (rs.name = "ProxyJobTracker", stream = "framed")
