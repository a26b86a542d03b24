import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TException;
import org.apache.thrift.TProcessor;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransportFactory;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * Whole sessions at a cluster manager, with Apache Thrift's library for Java and the classes that
 * {@code thrift --gen java} makes of the contract.
 *
 * <p>The program is nodes, job trackers, proxy job tracker and operator in one. It first says where
 * its proxy job tracker listens; then it reads the port of a cluster manager on this machine from
 * standard input and goes through everything that peers ask of one. Each step is a line on standard
 * output, the same for each run, with S1, S2, ... for the ids of sessions. whole_sessions.py does
 * the same.
 */
public final class WholeSessions {
  private static final String HOST = "127.0.0.1";
  private static final long PATIENCE_MS = 60_000;

  /** A call that may fail. */
  private interface Call {
    Object run() throws TException;
  }

  /** Waits, with a deadline, for what other threads bring about under the lock of {@code lock}. */
  private static void until(Object lock, String what, BooleanSupplier holds) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
    synchronized (lock) {
      while (!holds.getAsBoolean()) {
        long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (left <= 0) {
          throw new IllegalStateException(what + ": did not come about in " + PATIENCE_MS + " ms");
        }
        lock.wait(left);
      }
    }
  }

  /** The sessions' side of the notifications. */
  private static final class Driver implements SessionDriverService.Iface {
    final Map<String, List<ResourceGrant>> granted = new HashMap<>();
    final Map<String, List<ResourceGrant>> revoked = new HashMap<>();
    final TreeSet<Boolean> forced = new TreeSet<>();
    final List<String> dead = new ArrayList<>();

    @Override
    public synchronized void grantResource(String handle, List<ResourceGrant> grants) {
      granted.computeIfAbsent(handle, key -> new ArrayList<>()).addAll(grants);
      notifyAll();
    }

    @Override
    public synchronized void revokeResource(
        String handle, List<ResourceGrant> grants, boolean force) {
      revoked.computeIfAbsent(handle, key -> new ArrayList<>()).addAll(grants);
      forced.add(force);
      notifyAll();
    }

    @Override
    public synchronized void processDeadNode(String handle, String node) {
      dead.add(handle + " " + node);
      notifyAll();
    }

    private static int count(Map<String, List<ResourceGrant>> grants, String handle) {
      return grants.getOrDefault(handle, Collections.emptyList()).size();
    }

    /** At least so many grants, by id. */
    List<ResourceGrant> grants(String handle, int atLeast) throws Exception {
      until(this, "grants", () -> count(granted, handle) >= atLeast);
      synchronized (this) {
        List<ResourceGrant> grants = new ArrayList<>(granted.get(handle));
        grants.sort(Comparator.comparingInt(grant -> grant.id));
        return grants;
      }
    }

    List<ResourceGrant> revocations(String handle, int atLeast) throws Exception {
      until(this, "revocation", () -> count(revoked, handle) >= atLeast);
      synchronized (this) {
        return new ArrayList<>(revoked.get(handle));
      }
    }
  }

  /** Remembers the flag of safe mode. */
  private static final class ProxyJobTracker implements CoronaProxyJobTrackerService.Iface {
    private boolean flag;

    @Override
    public synchronized void setClusterManagerSafeModeFlag(boolean flagValue) {
      flag = flagValue;
      notifyAll();
    }

    @Override
    public synchronized boolean getClusterManagerSafeModeFlag() {
      return flag;
    }

    @Override
    public String getSystemDir() {
      return "/system";
    }

    @Override
    public void cleanJobHistoryCache(String jobId) {}
  }

  /** Serves on a free port of this machine and returns the port. */
  private static int serve(TProcessor processor, TTransportFactory transports) throws Exception {
    ServerSocket socket = new ServerSocket();
    socket.bind(new InetSocketAddress(HOST, 0));
    TThreadPoolServer.Args args =
        new TThreadPoolServer.Args(new TServerSocket(socket))
            .processor(processor)
            .transportFactory(transports)
            .protocolFactory(new TBinaryProtocol.Factory(true, true));
    TThreadPoolServer server = new TThreadPoolServer(args);
    Thread thread = new Thread(server::serve);
    thread.setDaemon(true);
    thread.start();
    return socket.getLocalPort();
  }

  /** A connection to a framed service. */
  private static TProtocol connect(int port) throws TException {
    TFramedTransport transport =
        new TFramedTransport(new TSocket(HOST, port, (int) PATIENCE_MS));
    transport.open();
    return new TBinaryProtocol(transport, true, true);
  }

  private static ClusterNodeInfo node(String name, String host) {
    ComputeSpecs specs = specs(4).setNetworkMBps((short) 1000).setMemoryMB(65536).setDiskGB(1000);
    Map<ResourceType, String> services = new TreeMap<>();
    for (ResourceType type : ResourceType.values()) {
      services.put(type, name + "/" + type);
    }
    return new ClusterNodeInfo(name, new InetAddress(host, 7001), specs)
        .setFree(specs)
        .setResourceInfos(services);
  }

  private static ComputeSpecs specs(int cpus) {
    return new ComputeSpecs((short) cpus);
  }

  private static ResourceRequest slot(int id, ResourceType type) {
    return new ResourceRequest(id, type).setSpecs(specs(1));
  }

  private static String show(PoolInfoStrings pool) {
    return pool.poolGroupName + "." + pool.poolName;
  }

  private static String show(SessionInfo info) {
    return String.format(
        "%s of %s in %s, %s, %s",
        info.name,
        info.userId,
        show(info.poolInfoStrings),
        info.priority,
        info.isSetUrl() ? info.url : "no page");
  }

  private static String show(ResourceGrant grant) {
    return String.format(
        "%d %s %s %s:%d %s",
        grant.id,
        grant.type,
        grant.nodeName,
        grant.address.host,
        grant.address.port,
        grant.appInfo);
  }

  private static String show(RunningSession session) {
    String held =
        new TreeMap<>(session.runningResources)
            .entrySet().stream()
                .map(entry -> entry.getValue() + " " + entry.getKey())
                .collect(Collectors.joining(", "));
    return String.format(
        "%s %s in %s, %s: %s",
        session.handle, session.name, show(session.poolInfo), session.priority, held);
  }

  /** The exception that a call ends with, in words. */
  private static String refused(Call call) {
    try {
      return "answered: " + call.run();
    } catch (InvalidSessionHandle exception) {
      return "InvalidSessionHandle: " + exception.handle;
    } catch (DisallowedNode exception) {
      return "DisallowedNode: " + exception.host;
    } catch (SafeModeException exception) {
      return "SafeModeException";
    } catch (TApplicationException exception) {
      boolean unknown = exception.getType() == TApplicationException.UNKNOWN_METHOD;
      String text = unknown ? ", " + exception.getMessage() : "";
      return "TApplicationException " + exception.getType() + text;
    } catch (TException exception) {
      return exception.toString();
    }
  }

  private static int number(boolean truth) {
    return truth ? 1 : 0;
  }

  private final List<String> handles = new ArrayList<>();
  private final int port;
  private final Driver driver;
  private final int driverPort;
  private final ProxyJobTracker proxy;
  private final ClusterManagerService.Client manager;

  private WholeSessions(int port, Driver driver, int driverPort, ProxyJobTracker proxy)
      throws TException {
    this.port = port;
    this.driver = driver;
    this.driverPort = driverPort;
    this.proxy = proxy;
    this.manager = new ClusterManagerService.Client(connect(port));
  }

  /** Prints a step, with short names for the ids of sessions. */
  private void say(String step) {
    for (int place = 0; place < handles.size(); place++) {
      step = step.replace(handles.get(place), "S" + (place + 1));
    }
    System.out.println(step);
  }

  private SessionInfo info(String name, String pool) {
    return new SessionInfo(new InetAddress(HOST, driverPort), name, "carol")
        .setPoolInfoStrings(new PoolInfoStrings("g", pool))
        .setPriority(SessionPriority.NORMAL)
        .setNoPreempt(false);
  }

  private String start(String name, String pool) throws TException {
    String handle = manager.getNextSessionId();
    handles.add(handle);
    SessionRegistrationData data = manager.sessionStart(handle, info(name, pool));
    ClusterManagerInfo place = data.clusterManagerInfo;
    String directory = place.jobHistoryLocation;
    say(
        String.format(
            "sessionStart: %s in %s, page '%s', history below %s",
            data.handle,
            show(data.poolInfoStrings),
            place.url,
            directory.substring(0, directory.lastIndexOf('/'))));
    return handle;
  }

  private void sessions() throws TException {
    String sessions =
        manager.getSessions().stream()
            .sorted(Comparator.comparing(session -> session.handle))
            .map(session -> show(session))
            .collect(Collectors.joining("; "));
    say("getSessions: " + (sessions.isEmpty() ? "none" : sessions));
  }

  private CountDownLatch nodesJoin() throws TException {
    say("persistState: " + number(manager.persistState()));
    say("nodeHeartbeat: restart " + number(manager.nodeHeartbeat(node("node1", HOST)).restartFlag));
    String stranger = refused(() -> manager.nodeHeartbeat(node("node9", "127.0.0.9")));
    say("nodeHeartbeat of an excluded host: " + stranger);
    CountDownLatch dies = new CountDownLatch(1);
    Thread heartbeats =
        new Thread(
            () -> {
              try {
                // A connection of its own, so that it never waits for others.
                ClusterManagerService.Client own = new ClusterManagerService.Client(connect(port));
                while (!dies.await(200, TimeUnit.MILLISECONDS)) {
                  own.nodeHeartbeat(node("node1", HOST));
                }
              } catch (TException | InterruptedException exception) {
                exception.printStackTrace();
              }
            });
    heartbeats.setDaemon(true);
    heartbeats.start();
    return dies;
  }

  private void pools() throws TException {
    ActualPoolInfoArgs args = new ActualPoolInfoArgs(new PoolInfoStrings("g", "hog"), 1L << 40);
    say("getActualPoolInfo: " + show(manager.getActualPoolInfo(args)));
    ActualPoolInfoResponse answer = manager.getActualPoolInfoV2(args);
    String pool = show(answer.poolInfoString);
    say("getActualPoolInfoV2: " + pool + ", whitelist '" + answer.whitelist + "'");
  }

  private String firstSession() throws Exception {
    String handle = start("a job", "hog");
    String again = refused(() -> manager.sessionStart(handle, info("again", "hog")));
    say("sessionStart again: " + again);
    say("getSessionInfo: " + show(manager.getSessionInfo(handle)));
    manager.requestResource(
        handle,
        Arrays.asList(
            slot(1, ResourceType.MAP),
            slot(2, ResourceType.MAP).setHosts(Arrays.asList(HOST)),
            slot(3, ResourceType.MAP).setExcludeHosts(Arrays.asList("127.0.0.9")),
            slot(4, ResourceType.MAP)));
    manager.requestResource(handle, Arrays.asList(slot(5, ResourceType.REDUCE)));
    for (ResourceGrant grant : driver.grants(handle, 5)) {
      say("grantResource: " + show(grant));
      if (Math.abs(System.currentTimeMillis() - grant.grantedTime) > PATIENCE_MS) {
        throw new IllegalStateException("granted at " + grant.grantedTime);
      }
    }
    manager.sessionHeartbeat(handle);
    Map<ResourceType, List<Long>> used = new TreeMap<>();
    for (ResourceType type : ResourceType.values()) {
      used.put(type, Arrays.asList(1L, 2L, 3L));
    }
    int latest;
    synchronized (driver) {
      List<ResourceGrant> grants = driver.granted.get(handle);
      latest = grants.get(grants.size() - 1).id;
    }
    manager.sessionHeartbeatV2(handle, new HeartbeatArgs(5, latest, used));
    sessions();
    SessionInfo info = info("a renamed job", "hog");
    info.setPriority(SessionPriority.HIGH).setUrl("http://page").setDeadline(7);
    manager.sessionUpdateInfo(handle, info);
    say("getSessionInfo: " + show(manager.getSessionInfo(handle)));
    return handle;
  }

  private String secondSession(String first) throws Exception {
    String handle = start("a poor job", "poor");
    manager.requestResource(
        handle, Arrays.asList(slot(1, ResourceType.MAP), slot(2, ResourceType.MAP)));
    List<ResourceGrant> revoked = driver.revocations(first, 2);
    say(
        String.format(
            "revokeResource: %d of %s, force %d",
            revoked.size(), revoked.get(0).type, number(driver.forced.last())));
    for (ResourceGrant grant : driver.grants(handle, 2)) {
      say("grantResource: " + show(grant));
    }
    NodeUsageReport report = new NodeUsageReport("node1", 2, 2, 0, 0, 0, 0, 0);
    manager.nodeFeedback(handle, Arrays.asList(ResourceType.MAP), Arrays.asList(report));
    manager.releaseResource(first, Arrays.asList(1, 2, 3, 4));
    manager.releaseResource(handle, Arrays.asList(1));
    sessions();
    return handle;
  }

  private void errors(String second) throws TException {
    say("sessionHeartbeat: " + refused(() -> nothing(() -> manager.sessionHeartbeat("x"))));
    say("getSessionInfo: " + refused(() -> manager.getSessionInfo("x")));
    say("sessionEnd: " + refused(() -> nothing(() -> manager.sessionEnd("x", SessionStatus.KILLED))));
    String empty = refused(() -> nothing(() -> manager.requestResource(second, null)));
    say("requestResource without a list: " + empty);
    CoronaTaskTrackerService.Client other = new CoronaTaskTrackerService.Client(connect(port));
    say("purgeSession: " + refused(() -> nothing(() -> other.purgeSession(second))));
    String third = start("a confused job", "hog");
    HeartbeatArgs lost = new HeartbeatArgs(9, 0, new HashMap<>());
    say(
        "sessionHeartbeatV2: "
            + refused(() -> nothing(() -> manager.sessionHeartbeatV2(third, lost))));
    manager.killSession(second);
    manager.killSessions(new KillSessionsArgs(Arrays.asList(third, "x"), "carol"));
    String gone = refused(() -> nothing(() -> manager.releaseResource(second, Arrays.asList(2))));
    say("releaseResource of a killed session: " + gone);
  }

  /** A call without a value. */
  private interface VoidCall {
    void run() throws TException;
  }

  private static Object nothing(VoidCall call) throws TException {
    call.run();
    return "nothing";
  }

  private void nodesLeave(String first, CountDownLatch dies) throws Exception {
    dies.countDown();
    until(driver, "dead node", () -> driver.dead.contains(first + " node1"));
    say("processDeadNode: S1 node1");
    say("nodeHeartbeat: restart " + number(manager.nodeHeartbeat(node("node1", HOST)).restartFlag));
    manager.refreshNodes();
    manager.restartNodes(new RestartNodesArgs(true, 10));
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
    while (!manager.nodeHeartbeat(node("node1", HOST)).restartFlag) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException("node1 is not told to restart");
      }
      Thread.sleep(50);
    }
    say("restartNodes: node1 is told");
  }

  private void safeMode(String first) throws Exception {
    say("setSafeMode: " + number(manager.setSafeMode(true)));
    until(proxy, "safe mode", proxy::getClusterManagerSafeModeFlag);
    say("getNextSessionId: " + refused(() -> manager.getNextSessionId()));
    say("getSessions: " + refused(() -> manager.getSessions()));
    say("sessionHeartbeat: " + refused(() -> nothing(() -> manager.sessionHeartbeat(first))));
    say("nodeHeartbeat: " + refused(() -> manager.nodeHeartbeat(node("node1", HOST))));
    say("persistState: " + number(manager.persistState()));
    say("setSafeMode: " + number(manager.setSafeMode(false)));
    until(proxy, "safe mode", () -> !proxy.getClusterManagerSafeModeFlag());
    say("setClusterManagerSafeModeFlag: 1, then 0");
  }

  private void end(String first) throws TException {
    manager.sessionEnd(first, SessionStatus.SUCCESSFUL);
    say("getSessionInfo: " + refused(() -> manager.getSessionInfo(first)));
    sessions();
  }

  public static void main(String[] arguments) throws Exception {
    Driver driver = new Driver();
    ProxyJobTracker proxy = new ProxyJobTracker();
    // A session driver is talked to without lengths in front of messages.
    int driverPort = serve(new SessionDriverService.Processor<>(driver), new TTransportFactory());
    int proxyPort =
        serve(
            new CoronaProxyJobTrackerService.Processor<>(proxy), new TFramedTransport.Factory());
    System.out.println("proxy job tracker on " + proxyPort);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    int port = Integer.parseInt(input.readLine().trim());
    WholeSessions story = new WholeSessions(port, driver, driverPort, proxy);
    CountDownLatch dies = story.nodesJoin();
    story.pools();
    String first = story.firstSession();
    String second = story.secondSession(first);
    story.errors(second);
    story.nodesLeave(first, dies);
    story.safeMode(first);
    story.end(first);
    // Threads of the servers would keep the program alive.
    System.exit(0);
  }
}
