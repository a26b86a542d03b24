"""Whole sessions at a cluster manager, with Apache Thrift's library for Python.

  whole_sessions.py GENERATED

GENERATED is the directory that `thrift --gen py -out GENERATED` wrote the contract to. The program
is nodes, job trackers, proxy job tracker and operator in one. It first says where its proxy job
tracker listens; then it reads the port of a cluster manager on this machine from standard input
and goes through everything that peers ask of one. Each step is a line on standard output, the same
for each run, with S1, S2, ... for the ids of sessions. WholeSessions.java does the same.
"""

import sys
import threading
import time

sys.path.insert(0, sys.argv[1])

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import (
    TBufferedTransportFactory,
    TFramedTransport,
    TFramedTransportFactory,
)

from ClusterManager import (
    ClusterManagerService,
    CoronaProxyJobTrackerService,
    CoronaTaskTrackerService,
    SessionDriverService,
)
from ClusterManager.ttypes import (
    ActualPoolInfoArgs,
    ClusterNodeInfo,
    ComputeSpecs,
    DisallowedNode,
    HeartbeatArgs,
    InetAddress,
    InvalidSessionHandle,
    KillSessionsArgs,
    NodeUsageReport,
    PoolInfoStrings,
    ResourceRequest,
    ResourceType,
    RestartNodesArgs,
    SafeModeException,
    SessionInfo,
    SessionPriority,
    SessionStatus,
)

HOST = "127.0.0.1"
PATIENCE_S = 60
TYPES = ResourceType._VALUES_TO_NAMES
PRIORITIES = SessionPriority._VALUES_TO_NAMES


class Transcript:
    """Prints steps, with short names for the ids of sessions."""

    def __init__(self):
        self.handles = []

    def name(self, handle):
        self.handles.append(handle)

    def line(self, step):
        for number, handle in enumerate(self.handles, 1):
            step = step.replace(handle, f"S{number}")
        print(step, flush=True)


class Waiter:
    """Things that other threads bring about, waited for with a deadline."""

    def __init__(self):
        self.changed = threading.Condition()

    def change(self, action):
        with self.changed:
            action()
            self.changed.notify_all()

    def until(self, what, holds):
        with self.changed:
            if not self.changed.wait_for(holds, PATIENCE_S):
                sys.exit(f"{what}: did not come about in {PATIENCE_S} s")


class Driver(Waiter):
    """The sessions' side of the notifications."""

    def __init__(self):
        super().__init__()
        self.granted, self.revoked, self.forced, self.dead = {}, {}, [], []

    def grantResource(self, handle, granted):
        self.change(lambda: self.granted.setdefault(handle, []).extend(granted))

    def revokeResource(self, handle, revoked, force):
        def note():
            self.revoked.setdefault(handle, []).extend(revoked)
            self.forced.append(force)

        self.change(note)

    def processDeadNode(self, handle, node):
        self.change(lambda: self.dead.append((handle, node)))

    def grants(self, handle, count):
        self.until("grants", lambda: len(self.granted.get(handle, [])) >= count)
        return sorted(self.granted[handle], key=lambda grant: grant.id)


class ProxyJobTracker(Waiter):
    """Remembers the flag of safe mode."""

    def __init__(self):
        super().__init__()
        self.flags = []

    def setClusterManagerSafeModeFlag(self, flagValue):
        self.change(lambda: self.flags.append(flagValue))

    def getClusterManagerSafeModeFlag(self):
        return bool(self.flags and self.flags[-1])

    def getSystemDir(self):
        return "/system"

    def cleanJobHistoryCache(self, jobId):
        pass


def serve(processor, transports):
    """Serves on a free port of this machine and returns the port."""
    listener = TServerSocket(HOST, 0)
    listener.listen()
    port = listener.handle.getsockname()[1]
    listener.listen = lambda: None
    server = TThreadedServer(processor, listener, transports, TBinaryProtocolFactory())
    server.daemon = True
    threading.Thread(target=server.serve, daemon=True).start()
    return port


def connect(service, port):
    """A connection to a framed service."""
    socket = TSocket(HOST, port)
    socket.setTimeout(PATIENCE_S * 1000)
    transport = TFramedTransport(socket)
    transport.open()
    return service.Client(TBinaryProtocol(transport))


def node(name, host):
    specs = ComputeSpecs(numCpus=4, networkMBps=1000, memoryMB=65536, diskGB=1000)
    services = {kind: f"{name}/{TYPES[kind]}" for kind in sorted(TYPES)}
    return ClusterNodeInfo(name, InetAddress(host, 7001), specs, specs, services)


def heartbeats(port, alive):
    """Keeps node1 alive, on a connection of its own."""
    manager = connect(ClusterManagerService, port)
    while not alive.wait(0.2):
        manager.nodeHeartbeat(node("node1", HOST))


def slot(number, kind=ResourceType.MAP, hosts=None, excluded=None):
    specs = ComputeSpecs(numCpus=1)
    return ResourceRequest(number, hosts, specs, kind, excluded)


def show_pool(pool):
    return f"{pool.poolGroupName}.{pool.poolName}"


def show_info(info):
    return (
        f"{info.name} of {info.userId} in {show_pool(info.poolInfoStrings)}, "
        f"{PRIORITIES[info.priority]}, {info.url or 'no page'}"
    )


def show_grant(grant):
    address = f"{grant.address.host}:{grant.address.port}"
    return f"{grant.id} {TYPES[grant.type]} {grant.nodeName} {address} {grant.appInfo}"


def show_session(session):
    held = sorted(session.runningResources.items())
    held = ", ".join(f"{count} {TYPES[kind]}" for kind, count in held)
    priority = PRIORITIES[session.priority]
    return f"{session.handle} {session.name} in {show_pool(session.poolInfo)}, {priority}: {held}"


def refused(call):
    """The exception that a call ends with, in words."""
    try:
        return f"answered: {call()}"
    except InvalidSessionHandle as exception:
        return f"InvalidSessionHandle: {exception.handle}"
    except DisallowedNode as exception:
        return f"DisallowedNode: {exception.host}"
    except SafeModeException:
        return "SafeModeException"
    except TApplicationException as exception:
        text = f", {exception.message}" if exception.type == 1 else ""
        return f"TApplicationException {exception.type}{text}"
    except TException as exception:
        return f"{type(exception).__name__}: {exception}"


class Story:
    def __init__(self, port, driver, driver_port, proxy):
        self.port, self.driver, self.proxy = port, driver, proxy
        self.driver_port = driver_port
        self.manager = connect(ClusterManagerService, port)
        self.transcript = Transcript()
        self.say = self.transcript.line

    def info(self, name, pool):
        address = InetAddress(HOST, self.driver_port)
        pool = PoolInfoStrings("g", pool)
        return SessionInfo(address, name, "carol", None, pool, SessionPriority.NORMAL, False)

    def start(self, name, pool):
        handle = self.manager.getNextSessionId()
        self.transcript.name(handle)
        data = self.manager.sessionStart(handle, self.info(name, pool))
        place = data.clusterManagerInfo
        directory = place.jobHistoryLocation.rsplit("/", 1)[0]
        self.say(
            f"sessionStart: {data.handle} in {show_pool(data.poolInfoStrings)}, "
            f"page '{place.url}', history below {directory}"
        )
        return handle

    def sessions(self):
        sessions = sorted(self.manager.getSessions(), key=lambda session: session.handle)
        self.say("getSessions: " + ("; ".join(map(show_session, sessions)) or "none"))

    def nodes_join(self):
        self.say(f"persistState: {int(self.manager.persistState())}")
        answer = self.manager.nodeHeartbeat(node("node1", HOST))
        self.say(f"nodeHeartbeat: restart {int(answer.restartFlag)}")
        stranger = refused(lambda: self.manager.nodeHeartbeat(node("node9", "127.0.0.9")))
        self.say(f"nodeHeartbeat of an excluded host: {stranger}")
        alive = threading.Event()
        threading.Thread(target=heartbeats, args=(self.port, alive), daemon=True).start()
        return alive

    def pools(self):
        args = ActualPoolInfoArgs(PoolInfoStrings("g", "hog"), 1 << 40)
        self.say(f"getActualPoolInfo: {show_pool(self.manager.getActualPoolInfo(args))}")
        answer = self.manager.getActualPoolInfoV2(args)
        pool = show_pool(answer.poolInfoString)
        self.say(f"getActualPoolInfoV2: {pool}, whitelist '{answer.whitelist}'")

    def first_session(self):
        manager = self.manager
        handle = self.start("a job", "hog")
        again = refused(lambda: manager.sessionStart(handle, self.info("again", "hog")))
        self.say(f"sessionStart again: {again}")
        self.say(f"getSessionInfo: {show_info(manager.getSessionInfo(handle))}")
        manager.requestResource(
            handle,
            [slot(1), slot(2, hosts=[HOST]), slot(3, excluded=["127.0.0.9"]), slot(4)],
        )
        manager.requestResource(handle, [slot(5, ResourceType.REDUCE)])
        for grant in self.driver.grants(handle, 5):
            self.say(f"grantResource: {show_grant(grant)}")
            now_ms = time.time() * 1000
            if abs(now_ms - grant.grantedTime) > PATIENCE_S * 1000:
                sys.exit(f"granted at {grant.grantedTime}, now is {now_ms}")
        manager.sessionHeartbeat(handle)
        used = {kind: [1, 2, 3] for kind in sorted(TYPES)}
        latest = self.driver.granted[handle][-1].id
        manager.sessionHeartbeatV2(handle, HeartbeatArgs(5, latest, used))
        self.sessions()
        info = self.info("a renamed job", "hog")
        info.priority, info.url, info.deadline = SessionPriority.HIGH, "http://page", 7
        manager.sessionUpdateInfo(handle, info)
        self.say(f"getSessionInfo: {show_info(manager.getSessionInfo(handle))}")
        return handle

    def second_session(self, first):
        manager = self.manager
        handle = self.start("a poor job", "poor")
        manager.requestResource(handle, [slot(1), slot(2)])
        self.driver.until("revocation", lambda: len(self.driver.revoked.get(first, [])) >= 2)
        revoked = self.driver.revoked[first]
        kinds = sorted({TYPES[grant.type] for grant in revoked})
        forced = sorted({int(force) for force in self.driver.forced})
        self.say(f"revokeResource: {len(revoked)} of {kinds[0]}, force {forced[0]}")
        for grant in self.driver.grants(handle, 2):
            self.say(f"grantResource: {show_grant(grant)}")
        report = NodeUsageReport("node1", 2, 2, 0, 0, 0, 0, 0)
        manager.nodeFeedback(handle, [ResourceType.MAP], [report])
        manager.releaseResource(first, [1, 2, 3, 4])
        manager.releaseResource(handle, [1])
        self.sessions()
        return handle

    def errors(self, second):
        manager = self.manager
        self.say(f"sessionHeartbeat: {refused(lambda: manager.sessionHeartbeat('x'))}")
        self.say(f"getSessionInfo: {refused(lambda: manager.getSessionInfo('x'))}")
        self.say(f"sessionEnd: {refused(lambda: manager.sessionEnd('x', SessionStatus.KILLED))}")
        nothing = refused(lambda: manager.requestResource(second, None))
        self.say(f"requestResource without a list: {nothing}")
        other = connect(CoronaTaskTrackerService, self.port)
        self.say(f"purgeSession: {refused(lambda: other.purgeSession(second))}")
        third = self.start("a confused job", "hog")
        lost = HeartbeatArgs(9, 0, {})
        self.say(f"sessionHeartbeatV2: {refused(lambda: manager.sessionHeartbeatV2(third, lost))}")
        manager.killSession(second)
        manager.killSessions(KillSessionsArgs([third, "x"], "carol"))
        gone = refused(lambda: manager.releaseResource(second, [2]))
        self.say(f"releaseResource of a killed session: {gone}")

    def nodes_leave(self, first, alive):
        alive.set()
        self.driver.until("dead node", lambda: (first, "node1") in self.driver.dead)
        self.say("processDeadNode: S1 node1")
        answer = self.manager.nodeHeartbeat(node("node1", HOST))
        self.say(f"nodeHeartbeat: restart {int(answer.restartFlag)}")
        self.manager.refreshNodes()
        self.manager.restartNodes(RestartNodesArgs(True, 10))
        deadline = time.monotonic() + PATIENCE_S
        while not self.manager.nodeHeartbeat(node("node1", HOST)).restartFlag:
            if time.monotonic() > deadline:
                sys.exit("node1 is not told to restart")
            time.sleep(0.05)
        self.say("restartNodes: node1 is told")

    def safe_mode(self, first):
        manager = self.manager
        self.say(f"setSafeMode: {int(manager.setSafeMode(True))}")
        self.proxy.until("safe mode", lambda: self.proxy.getClusterManagerSafeModeFlag())
        for name, call in [
            ("getNextSessionId", lambda: manager.getNextSessionId()),
            ("getSessions", lambda: manager.getSessions()),
            ("sessionHeartbeat", lambda: manager.sessionHeartbeat(first)),
            ("nodeHeartbeat", lambda: manager.nodeHeartbeat(node("node1", HOST))),
        ]:
            self.say(f"{name}: {refused(call)}")
        self.say(f"persistState: {int(manager.persistState())}")
        self.say(f"setSafeMode: {int(manager.setSafeMode(False))}")
        self.proxy.until("safe mode", lambda: not self.proxy.getClusterManagerSafeModeFlag())
        self.say("setClusterManagerSafeModeFlag: 1, then 0")

    def end(self, first):
        self.manager.sessionEnd(first, SessionStatus.SUCCESSFUL)
        self.say(f"getSessionInfo: {refused(lambda: self.manager.getSessionInfo(first))}")
        self.sessions()


def main():
    driver, proxy = Driver(), ProxyJobTracker()
    # A session driver is talked to without lengths in front of messages.
    bare = TBufferedTransportFactory()
    driver_port = serve(SessionDriverService.Processor(driver), bare)
    framed = TFramedTransportFactory()
    proxy_port = serve(CoronaProxyJobTrackerService.Processor(proxy), framed)
    print(f"proxy job tracker on {proxy_port}", flush=True)
    story = Story(int(sys.stdin.readline()), driver, driver_port, proxy)
    alive = story.nodes_join()
    story.pools()
    first = story.first_session()
    second = story.second_session(first)
    story.errors(second)
    story.nodes_leave(first, alive)
    story.safe_mode(first)
    story.end(first)


main()
