"""A small framework in Python: it runs each line of a file as a command, on a slot of its own.

  framework.py GENERATED HOST:PORT COMMANDS

GENERATED is the directory that `thrift --gen py -out GENERATED thrift/ClusterManager.thrift` wrote to,
HOST:PORT the cluster manager's Thrift address, COMMANDS the file. The commands are started on this machine,
which is where the nodes of `corona mini-cluster` are. README.md explains the rules that it follows.
"""

import queue
import subprocess
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import (
    TBufferedTransportFactory,
    TFramedTransport,
    TTransportException,
)

from ClusterManager import ClusterManagerService, SessionDriverService
from ClusterManager.ttypes import (
    ComputeSpecs,
    InetAddress,
    InvalidSessionHandle,
    PoolInfoStrings,
    ResourceRequest,
    ResourceType,
    SafeModeException,
    SessionInfo,
    SessionPriority,
    SessionStatus,
)

HEARTBEAT_S = 5
CALL_TIMEOUT_S = 60
PAUSE_S = 0.5
LOOK_S = 0.1


class Notifications:
    """What the cluster manager calls. It waits for the replies, so each only joins a queue."""

    def __init__(self):
        self.events = queue.Queue()

    def grantResource(self, handle, granted):
        self.events.put(("granted", granted))

    def revokeResource(self, handle, revoked, force):
        self.events.put(("revoked", [grant.id for grant in revoked]))

    def processDeadNode(self, handle, node):
        self.events.put(("dead", node))

    def serve(self, host):
        """Listens on a free port and returns it. These messages have no length in front of them."""
        listener = TServerSocket(host, 0)
        listener.listen()
        port = listener.handle.getsockname()[1]
        listener.listen = lambda: None
        processor = SessionDriverService.Processor(self)
        server = TThreadedServer(
            processor, listener, TBufferedTransportFactory(), TBinaryProtocolFactory()
        )
        server.daemon = True
        threading.Thread(target=server.serve, daemon=True).start()
        return port


class Manager:
    """The cluster manager. A call is made until it is answered, however long the cluster manager is away."""

    def __init__(self, host, port):
        self.host, self.port, self.client = host, port, None

    def call(self, method, *arguments):
        while True:
            try:
                if self.client is None:
                    self.connect()
                return getattr(self.client, method)(*arguments)
            except (SafeModeException, OSError, EOFError, TTransportException) as error:
                print(f"{method}: {type(error).__name__}; trying again", file=sys.stderr)
                self.client = None
                time.sleep(PAUSE_S)

    def connect(self):
        """These messages are framed."""
        socket = TSocket(self.host, self.port)
        socket.setTimeout(CALL_TIMEOUT_S * 1000)
        transport = TFramedTransport(socket)
        transport.open()
        self.client = ClusterManagerService.Client(TBinaryProtocol(transport))


class Framework:
    def __init__(self, manager, host, commands):
        self.manager, self.host = manager, host
        self.waiting = list(enumerate(commands, 1))
        # By the id of the request: its node, the command, and the process.
        self.running = {}
        self.requested, self.next_id = set(), 1
        self.notifications = Notifications()

    def start(self):
        address = InetAddress(self.host, self.notifications.serve(self.host))
        pool = PoolInfoStrings("default", "defaultpool")
        info = SessionInfo(
            address, "a list of commands", "me", None, pool, SessionPriority.NORMAL, False
        )
        self.handle = self.manager.call("getNextSessionId")
        self.manager.call("sessionStart", self.handle, info)
        print(f"session {self.handle}", flush=True)

    def request(self, count):
        """Ids ascend, and none is used twice in a session."""
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.requested.update(ids)
        specs = ComputeSpecs(numCpus=1)
        wanted = [ResourceRequest(id, None, specs, ResourceType.MAP, None) for id in ids]
        self.manager.call("requestResource", self.handle, wanted)

    def release(self, ids):
        self.requested.difference_update(ids)
        if ids:
            self.manager.call("releaseResource", self.handle, ids)

    def granted(self, grants):
        unneeded = []
        for grant in grants:
            if grant.id in self.running:
                continue  # It was sent twice.
            if grant.id not in self.requested or not self.waiting:
                unneeded.append(grant.id)
                continue
            number, line = self.waiting.pop(0)
            print(f"command {number} on {grant.nodeName}", flush=True)
            process = subprocess.Popen(["sh", "-c", line], start_new_session=True)
            self.running[grant.id] = (grant.nodeName, (number, line), process)
        self.release(unneeded)

    def lost(self, ids):
        """The cluster manager counts a lost slot as free, and its request until that is released."""
        lost = [id for id in ids if id in self.running]
        for id in lost:
            _, command, process = self.running.pop(id)
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
            process.wait()
            self.waiting.insert(0, command)
        self.request(len(lost))
        self.release(lost)

    def finish(self):
        ended = [id for id, (_, _, process) in self.running.items() if process.poll() is not None]
        for id in ended:
            _, (number, _), process = self.running.pop(id)
            print(f"command {number} has ended with status {process.returncode}", flush=True)
        self.release(ended)

    def work(self):
        self.request(len(self.waiting))
        heartbeat = time.monotonic() + HEARTBEAT_S
        while self.waiting or self.running:
            try:
                kind, value = self.notifications.events.get(timeout=LOOK_S)
                if kind == "granted":
                    self.granted(value)
                elif kind == "revoked":
                    self.lost(value)
                else:
                    self.lost([id for id, (node, _, _) in self.running.items() if node == value])
            except queue.Empty:
                pass
            self.finish()
            if time.monotonic() >= heartbeat:
                self.manager.call("sessionHeartbeat", self.handle)
                heartbeat = time.monotonic() + HEARTBEAT_S


def main():
    host, port = sys.argv[2].rsplit(":", 1)
    with open(sys.argv[3], encoding="utf-8") as file:
        commands = file.read().splitlines()
    framework = Framework(Manager(host, int(port)), "127.0.0.1", commands)
    framework.start()
    try:
        framework.work()
    except InvalidSessionHandle as gone:
        sys.exit(f"the session has ended: {gone.handle}")
    framework.manager.call("sessionEnd", framework.handle, SessionStatus.SUCCESSFUL)


main()
