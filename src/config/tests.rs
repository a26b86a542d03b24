//! Whole configurations: directories of files and overrides into settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use corona_model::settings::{Partitioning, PoolSettings, SchedulingMode, Settings};
use corona_model::types::{PoolName, ResourceType};

/// A legal partitioning as a property.
const PARTITIONING: &str = "<property><name>cm.cpu.to.resource.partitioning</name>\
    <value>{\"1\":{\"MAP\":2,\"REDUCE\":1}}</value></property>";

pub(super) fn overrides(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// A service with these settings in force has read every key of these uses.
pub(super) fn every_key_is_read(in_force: &[InForce], usages: [keys::Use; 2]) {
    for key in keys::ALL.iter().filter(|key| usages.contains(&key.usage)) {
        assert!(in_force.iter().any(|read| read.key == key.name), "{}", key.name);
    }
}

/// Each of these keys, with this value, has the settings contain this text, which they did not before.
pub(super) fn values_reach_their_settings<S: std::fmt::Debug>(
    effects: &[(&str, &str, &str)],
    settings: impl Fn(&[(&str, &str)]) -> S,
) {
    let defaults = format!("{:?}", settings(&[]));
    for (key, value, effect) in effects {
        let shown = format!("{:?}", settings(&[(*key, *value)]));
        assert!(shown.contains(effect), "{key}: no {effect} in {shown}");
        assert!(!defaults.contains(effect), "{key}: {effect} is the default");
    }
}

/// Settings from overrides alone.
fn settings(pairs: &[(&str, &str)]) -> ClusterManagerSettings {
    load(None, &overrides(pairs)).unwrap().settings
}

/// A directory whose `core-site.xml` has this inside, on lines of its own.
fn directory(inside: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("<configuration>\n{inside}\n</configuration>");
    std::fs::write(dir.path().join("core-site.xml"), text).unwrap();
    std::fs::write(dir.path().join("corona.xml"), "<configuration/>").unwrap();
    dir
}

pub(super) fn property(name: &str, value: &str) -> String {
    format!("<property><name>{name}</name><value>{value}</value></property>")
}

/// Lines without the directory.
fn lines<'a>(problems: impl IntoIterator<Item = &'a Problem>, dir: &Path) -> Vec<String> {
    let prefix = format!("{}/", dir.display());
    problems.into_iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
}

fn fixture(name: &str) -> Loaded {
    let conf_dir =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fixtures/config").join(name);
    let source = Source { conf_dir: Some(&conf_dir), overrides: &[], lookup: Lookup::AlsoByName };
    source.load().unwrap_or_else(|errors| panic!("{name}: {errors}"))
}

#[test]
fn without_any_file_the_defaults_are_those_of_the_original() {
    let loaded = load(None, &[]).unwrap();
    assert_eq!(loaded.warnings, []);
    let slots = ResourceType::ALL.into_iter().map(|kind| (kind, 1)).collect();
    let engine =
        Settings { partitioning: Partitioning([(1, slots)].into()), ..Settings::default() };
    let address = |host: &str, port| HostPort { host: host.into(), port };
    let expected = ClusterManagerSettings {
        server_address: address("localhost", 8888),
        interfaces: Interfaces::Loopback,
        http_address: address("localhost", 8889),
        socket_timeout: Some(Duration::from_secs(60)),
        proxy_job_tracker_address: address("localhost", 50036),
        proxy_job_tracker_expected: false,
        notifier: NotifierSettings {
            poll_interval: Duration::from_secs(1),
            retry_start: Duration::from_secs(5),
            retry_factor: 4,
            retry_max: 5,
            max_queue: 100_000,
            max_reply_bytes: 64 << 10,
        },
        state_file: "cm.state".into(),
        compress_state: false,
        journal: JournalSettings {
            directory: Some("cm.state.journal".into()),
            sync: JournalSync::Write,
            sync_interval: Duration::from_millis(100),
            segment_bytes: 16 << 20,
            image_bytes: 32 << 20,
        },
        ha: None,
        scheduling_files: SchedulingFiles {
            general: "corona.xml".into(),
            general_set_in: Origin::Default,
            pools: "corona.xml".into(),
            pools_set_in: Origin::Default,
            named: false,
            conf_dir: None,
            lookup: Lookup::AsGiven,
            legal_types: engine.partitioning.legal_types(),
            configured_pools_only: false,
            counted: [false; 4],
        },
        reload_period: Duration::from_secs(60),
        host_files: HostFiles::default(),
        topology: Topology::DefaultRack,
        restart_batch: 1000,
        access: AccessSettings::default(),
        tls: TlsSettings::default(),
        web: WebSettings {
            kill_token: None,
            sample_period: Duration::from_secs(10),
            max_connections: 256,
            max_connections_per_peer: 64,
            probe_connections: 8,
            hosts: vec![],
            max_subscribers: 64,
            tracker_port: Some(50060),
            running_jobs: None,
            finished_jobs: None,
        },
        wire: WireSettings {
            max_frame_bytes: 64 << 20,
            max_depth: 64,
            max_connections: 100_000,
            max_inflight_bytes: 128 << 20,
            max_total_inflight_bytes: 1 << 30,
            frame_timeout: Duration::from_secs(60),
        },
        calls: CallSettings {
            name_bytes: 4096,
            url_bytes: 4096,
            host_bytes: 1024,
            id_bytes: 1024,
            hosts_per_request: 10_000,
            list_entries: 1000,
        },
        names: NameSettings {
            max_lookups: 64,
            max_lookups_per_peer: 8,
            timeout: Duration::from_secs(10),
            keep: Duration::from_secs(30),
        },
        racks: RackSettings {
            max_lookups: 16,
            max_lookups_per_peer: 4,
            timeout: Duration::from_secs(60),
            max_names_per_call: 10_000,
        },
        engine,
    };
    assert_eq!(loaded.settings, expected);
}

#[test]
fn every_used_key_is_read_and_in_force() {
    let loaded = load(None, &overrides(&[("cm.state", "/var/${user.home}")])).unwrap();
    let read: Vec<&str> = loaded.in_force.iter().map(|in_force| in_force.key).collect();
    // Those that are only looked at when another one asks for them.
    let conditional = [
        "topology.script.number.args",
        "topology.node.rackid.header",
        "hadoop.configured.node.mapping",
    ];
    for key in keys::ALL.iter().filter(|key| matches!(key.usage, keys::Use::Used | keys::Use::Own))
    {
        let expected = !conditional.contains(&key.name);
        assert!(
            read.contains(&key.name) == expected || key.name == "hadoop.tmp.dir",
            "{}",
            key.name
        );
    }
    let state = loaded.in_force.iter().find(|in_force| in_force.key == "cm.state").unwrap();
    assert_eq!(state.origin, Origin::CommandLine);
    assert!(!state.value.contains('$'), "{}", state.value);
}

#[test]
fn late_nodes_are_found_by_the_interval_of_heartbeats() {
    let (heartbeats, interval) =
        ("corona.cm.node.late.heartbeats", "corona.clustermanager.heartbeat.interval");
    for (set, expected) in [
        (&[][..], 12_000),
        (&[(heartbeats, "1")], 3_000),
        (&[(interval, "500")], 2_000),
        (&[(heartbeats, "2147483647"), (interval, "2147483647")], 2_147_483_647 * 2_147_483_647),
        (&[(heartbeats, "0")], i64::MAX),
    ] {
        let loaded = load(None, &overrides(set)).unwrap();
        assert_eq!(loaded.settings.engine.node_late_ms, expected, "{set:?}");
    }
    for wrong in ["-1", "4.5", "many"] {
        let problem = load(None, &overrides(&[(heartbeats, wrong)])).unwrap_err().to_string();
        assert!(problem.contains(heartbeats) && problem.contains(wrong), "{problem}");
    }
    let skip = overrides(&[("corona.cm.node.late.skip", "true")]);
    assert!(load(None, &skip).unwrap().settings.engine.skip_late_nodes);
}

#[test]
fn resources_are_counted_as_configured() {
    use corona_model::queues::Part;
    use corona_model::resources::{Amounts, Resources};
    let resources = |set: &[(&str, &str)]| {
        load(None, &overrides(set)).map(|loaded| loaded.settings.engine.resources.0)
    };
    assert_eq!(resources(&[("corona.cm.resources", "slots")]).unwrap(), Resources::default());
    for (text, counted) in
        [("cpus,memory", [true, true, false, false]), ("network, disk", [false, false, true, true])]
    {
        assert_eq!(resources(&[("corona.cm.resources", text)]).unwrap().counted, counted, "{text}");
    }
    let set = resources(&[
        ("corona.cm.overcommit.cpus", "250"),
        ("corona.cm.overcommit.network", "90"),
        ("corona.cm.request.default.MAP.memory", "700"),
        ("corona.cm.request.default.REDUCE.cpus", "2"),
        ("corona.cm.request.default.JOBTRACKER.network", "3"),
    ]);
    let set = set.unwrap();
    assert_eq!(set.overcommit, [25_000, 10_000, 10_000, 9_000].map(Part));
    let expected = [[1, 700, 10, 10], [2, 1_024, 10, 10], [1, 1_024, 10, 3]].map(Amounts);
    assert_eq!(set.requested.0, expected);
    for (key, wrong) in [
        ("corona.cm.resources", ""),
        ("corona.cm.resources", "memory,slots"),
        ("corona.cm.resources", "Memory"),
        ("corona.cm.overcommit.disk", "0"),
        ("corona.cm.request.default.MAP.cpus", "0"),
    ] {
        let problem = resources(&[(key, wrong)]).unwrap_err().to_string();
        assert!(problem.contains(key), "{key}={wrong}: {problem}");
    }
}

#[test]
fn with_a_directory_the_partitioning_must_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let refused = load(Some(dir.path()), &[]).unwrap_err();
    let expected = format!(
        "{}: cm.cpu.to.resource.partitioning: is not set; expected a JSON object of slots by CPU \
         count, such as {{\"1\":{{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}}} (in mapred-site.xml or \
         core-site.xml)",
        dir.path().display()
    );
    assert_eq!(refused.to_string(), expected);
    let set = overrides(&[("cm.cpu.to.resource.partitioning", "{\"1\":{\"MAP\":1}}")]);
    assert!(load(Some(dir.path()), &set).is_ok());
}

#[test]
fn wrong_values_are_refused_with_what_was_expected() {
    let cases = [
        (
            "cm.cpu.to.resource.partitioning",
            "",
            "value \"\" is not JSON: EOF while parsing a value; expected a JSON object of slots by CPU count, such as {\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}",
        ),
        (
            "cm.cpu.to.resource.partitioning",
            "{\"65\":{}}",
            "value '{\"65\":{}}' has an illegal entry: Number of CPUs: 65 is not in range 0-64; expected a JSON object of slots by CPU count, such as {\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}",
        ),
        (
            "cm.server.address",
            "8888",
            "value \"8888\" is not a host:port pair; expected host:port, such as localhost:8888, 0.0.0.0:8888 or [::1]:8888",
        ),
        (
            "cm.server.http.address",
            "h:70000",
            "value \"h:70000\" has a port above 65535; expected host:port, such as localhost:8888, 0.0.0.0:8888 or [::1]:8888",
        ),
        (
            "cm.server.sotimeout",
            "-1",
            "value \"-1\" is out of range; expected milliseconds, 0 to 2147483647",
        ),
        (
            "cm.node.expiryinterval",
            "10m",
            "value \"10m\" is not a whole number; expected milliseconds, 1 to 2147483647",
        ),
        (
            "cm.node.expiryinterval",
            " 5",
            "value \" 5\" is not a whole number (blanks count); expected milliseconds, 1 to 2147483647",
        ),
        (
            "cm.session.expiryinterval",
            "-5",
            "value \"-5\" is out of range; expected milliseconds, 0 to 2147483647",
        ),
        (
            "cm.configured.pools.only",
            "yes",
            "value \"yes\" is neither true nor false; expected true or false",
        ),
        (
            "cm.heartbeat.delay.max",
            "9223372036854775807",
            "value \"9223372036854775807\" is out of range; expected milliseconds, 0 to 31557600000000",
        ),
        (
            "corona.history.max.per.dir",
            "0",
            "value \"0\" is out of range; expected sessions, 1 to 2147483647",
        ),
        (
            "corona.cm.wire.max.depth",
            "1000000",
            "value \"1000000\" is out of range; expected levels, 8 to 256",
        ),
        (
            "topology.node.switch.mapping.impl",
            "com.example.Mine",
            "value \"com.example.Mine\" is not a known class; expected one of org.apache.hadoop.net.ScriptBasedMapping, org.apache.hadoop.net.IPv4AddressTruncationMapping, org.apache.hadoop.net.IPv6AddressTruncationMapping, org.apache.hadoop.net.StaticMapping",
        ),
    ];
    for (key, value, expected) in cases {
        let refused = load(None, &overrides(&[(key, value)])).unwrap_err();
        assert_eq!(refused.to_string(), format!("-D: {key}: {expected}"));
    }
}

#[test]
fn all_errors_are_told_together_with_file_and_line() {
    let dir = directory(
        &[
            property("cm.node.expiryinterval", "soon"),
            property("cm.compress.state", "maybe"),
            PARTITIONING.to_owned(),
            property("cm.loop", "x") + &property("cm.state", "${cm.state}"),
            property("cm.notifier.retry.max", "99"),
        ]
        .join("\n"),
    );
    std::fs::write(dir.path().join("mapred-site.xml"), "<configuration>\n<property>").unwrap();
    std::fs::write(
        dir.path().join("corona.xml"),
        "<configuration>\n\n<grantsPerIteration>-1</grantsPerIteration></configuration>",
    )
    .unwrap();
    let refused = load(Some(dir.path()), &[]).unwrap_err();
    assert_eq!(
        lines(&refused.problems, dir.path()),
        [
            "mapred-site.xml:2: is not well-formed XML: <property> is never closed",
            "core-site.xml:2: cm.node.expiryinterval: value \"soon\" is not a whole number; expected milliseconds, 1 to 2147483647",
            "default: cm.session.expiryinterval: value \"0\" is computed from cm.notifier.retry.* and becomes too large; expected milliseconds, 1 to 2147483647, or fewer retries",
            "core-site.xml:5: cm.state: value \"${cm.state}\" needs more than 20 replacements of variables; expected variables that do not lead back to themselves",
            "core-site.xml:3: cm.compress.state: value \"maybe\" is neither true nor false; expected true or false",
            "core-site.xml:5: cm.loop: unknown key, ignored",
            "corona.xml:3: grantsPerIteration: value \"-1\" is out of range; expected a whole number from 1 to 2147483647",
        ]
    );
    assert_eq!(refused.errors().count(), 6);
}

#[test]
fn keys_without_effect_are_told_when_someone_may_miss_it() {
    let dir = directory(
        &[
            PARTITIONING.to_owned(),
            property("cm.notifier.numnotifiers", "4"),
            property("hadoop.http.max.threads", "many"),
            property("hadoop.http.filter.initializers", "com.example.Guard"),
            property("cm.pools.config.document.generator", " "),
            property("cm.sesion.expiryinterval", "5"),
            property("corona.cm.max.session", "5"),
            property("mapred.fairscheduler.pool", "a.b"),
            property("mapred.anything", "x"),
        ]
        .join("\n"),
    );
    let loaded = load(Some(dir.path()), &[]).unwrap();
    assert_eq!(
        lines(&loaded.warnings, dir.path()),
        [
            "core-site.xml:4: hadoop.http.max.threads: value \"many\" is not a whole number; expected threads, -1 to 2147483647",
            "core-site.xml:5: hadoop.http.filter.initializers: has no effect: Java servlet filters. If one of them restricts access to the pages, use a proxy instead.",
            "core-site.xml:7: cm.sesion.expiryinterval: unknown key, ignored; did you mean cm.session.expiryinterval? It is not set, so its default 0 is used",
            "core-site.xml:8: corona.cm.max.session: unknown key, ignored; did you mean corona.cm.max.sessions? It is not set, so its default 100000 is used",
        ]
    );
}

#[test]
fn the_command_line_wins_over_a_final_value() {
    let fixed = "<property><name>cm.server.address</name><value>localhost:1</value><final>true</final></property>";
    let dir = directory(&format!("{PARTITIONING}{fixed}"));
    let port = |pairs: &[(&str, &str)]| {
        load(Some(dir.path()), &overrides(pairs)).unwrap().settings.server_address.port
    };
    assert_eq!(port(&[]), 1);
    assert_eq!(
        port(&[("cm.server.address", "localhost:2"), ("cm.server.address", "localhost:3")]),
        3
    );
}

#[test]
fn values_reach_their_fields() {
    let set = settings(&[
        ("cm.server.sotimeout", "0"),
        ("cm.node.reserved.memory.mb", "0x10"),
        ("cm.notifier.retry.max", "2"),
        ("cm.hosts", "/etc/hosts.allow"),
        ("cm.configured.pools.only", "TRUE"),
        ("corona.cm.max.nodes", "7"),
        ("cm.state", "${java.io.tmpdir}/state"),
    ]);
    assert_eq!(set.socket_timeout, None);
    assert_eq!(set.engine.reserved_memory_mb, 16);
    assert_eq!(set.engine.session_expiry_ms, 25_000);
    assert_eq!(
        set.host_files,
        HostFiles {
            include: Some(HostFile {
                path: "/etc/hosts.allow".into(),
                set_in: Origin::CommandLine
            }),
            exclude: None
        }
    );
    assert!(set.engine.configured_pools_only && set.scheduling_files.configured_pools_only);
    assert_eq!(set.engine.bounds.nodes, 7);
    assert_eq!(set.state_file, PathBuf::from("/tmp/state"));
    assert_eq!(
        settings(&[("cm.session.expiryinterval", "120000")]).engine.session_expiry_ms,
        120_000
    );
}

#[test]
fn topologies() {
    let class = |name: &str| format!("org.apache.hadoop.net.{name}");
    let key = "topology.node.switch.mapping.impl";
    let script = ("topology.script.file.name", "bin/rack");
    let topology = |name: &str, more: &[(&str, &str)]| {
        let class = class(name);
        settings(&[&[(key, class.as_str())], more].concat()).topology
    };
    assert_eq!(topology("ScriptBasedMapping", &[]), Topology::DefaultRack);
    assert_eq!(
        topology("ScriptBasedMapping", &[script, ("topology.script.number.args", "1")]),
        Topology::Script { path: "bin/rack".into(), args_per_call: 1 }
    );
    assert_eq!(
        topology("IPv4AddressTruncationMapping", &[script]),
        Topology::Ipv4Truncation { header: "/".into() }
    );
    assert_eq!(
        topology("IPv6AddressTruncationMapping", &[("topology.node.rackid.header", "/dc1/")]),
        Topology::Ipv6Truncation { header: "/dc1/".into() }
    );
    assert_eq!(
        topology("StaticMapping", &[("hadoop.configured.node.mapping", "a=/r1,b=/r2")]),
        Topology::Static { racks: [("a".into(), "/r1".into()), ("b".into(), "/r2".into())].into() }
    );
}

#[test]
fn a_partitioning_without_types_is_told() {
    let loaded =
        load(None, &overrides(&[("cm.cpu.to.resource.partitioning", "{\"1\":{}}")])).unwrap();
    let told = "-D: cm.cpu.to.resource.partitioning: names no type: no node can be used";
    assert_eq!(lines(&loaded.warnings, Path::new("-")), [told]);
}

#[test]
fn recorded_configurations_load() {
    for name in [
        "fair_two_pools",
        "locality_wait",
        "min_and_max",
        "node_locality",
        "preempt",
        "session_expiry",
        "strict_pools",
    ] {
        let loaded = fixture(name);
        assert_eq!(loaded.warnings, [], "{name}");
        assert_eq!(loaded.settings.engine.partitioning.0.len(), 4, "{name}");
        let port = loaded.settings.server_address.port;
        assert!([18800, 18888].contains(&port), "{name}: {port}");
    }
}

#[test]
fn recorded_values_are_read() {
    let pool = |group: &str, pool: &str| PoolName::new(group, pool);
    let fair = fixture("fair_two_pools").settings.engine;
    assert_eq!(fair.scheduling.default_mode, SchedulingMode::Fair);
    assert_eq!(fair.pools.pools[&pool("g", "heavy")].weight, 2.0);
    assert_eq!(fair.pools.pools[&pool("g", "light")], PoolSettings::default());

    let preempt = fixture("preempt").settings;
    assert_eq!(preempt.proxy_job_tracker_address.port, 18036);
    assert_eq!(preempt.engine.scheduling.share_starving_ratio, 0.9);
    assert_eq!(preempt.engine.scheduling.min_preempt_period_ms, 2000);
    assert_eq!(preempt.engine.scheduling.preempted_task_max_running_time_ms, 60_000);
    let pools = &preempt.engine.pools;
    assert_eq!(pools.groups["group_a"].minimum[ResourceType::Map], 2);
    assert_eq!(pools.pools[&pool("group_a", "pool_a")].minimum[ResourceType::Reduce], 1);
    assert!(pools.pools.contains_key(&pool("group_b", "pool_b")));

    assert!(fixture("strict_pools").settings.engine.configured_pools_only);
    let locality = fixture("node_locality").settings.topology;
    assert_eq!(locality, Topology::Ipv4Truncation { header: "/".into() });
    let waits = fixture("locality_wait").settings.engine.scheduling;
    assert_eq!(waits.node_locality_wait_ms[ResourceType::Map], 2000);
    assert_eq!(waits.rack_locality_wait_ms[ResourceType::Map], 1000);
}

#[test]
fn broken_json_that_both_loads_read_is_told_once() {
    let dir = directory(PARTITIONING);
    std::fs::write(dir.path().join("config.materialized_JSON"), "{").unwrap();
    let loaded = load(Some(dir.path()), &[]).unwrap();
    assert_eq!(
        lines(&loaded.warnings, dir.path()),
        [
            "config.materialized_JSON: is not usable JSON: EOF while parsing an object at line 1 column 1; the XML files are read"
        ]
    );
}

#[test]
fn a_file_in_the_way_is_an_error_and_not_a_missing_file() {
    let dir = directory(PARTITIONING);
    std::fs::create_dir(dir.path().join("mapred-site.xml")).unwrap();
    // Looking into a file as if it were a directory fails otherwise than by absence.
    let pools = dir.path().join("corona.xml/pools.xml").display().to_string();
    let refused =
        load(Some(dir.path()), &overrides(&[("cm.pools.config.file", &pools)])).unwrap_err();
    assert_eq!(
        lines(&refused.problems, dir.path()),
        [
            "mapred-site.xml: cannot be read: not a file",
            "corona.xml/pools.xml: cannot be read: Not a directory (os error 20)",
        ]
    );
}

#[test]
fn a_change_of_the_pools_file_is_noticed_and_loaded() {
    let dir =
        directory(&format!("{PARTITIONING}{}", property("cm.pools.config.file", "pools.xml")));
    let pools = dir.path().join("pools.xml");
    let pool = |name: &str| {
        format!("<configuration><group name='g'><pool name='{name}'/></group></configuration>")
    };
    std::fs::write(&pools, pool("first")).unwrap();
    let loaded = load(Some(dir.path()), &[]).unwrap();
    assert!(loaded.scheduling_files.iter().all(|stamp| !stamp.has_changed()));

    std::fs::write(&pools, pool("the_second")).unwrap();
    assert!(loaded.scheduling_files.iter().any(FileStamp::has_changed));
    let again = loaded.settings.scheduling_files.load().unwrap();
    assert!(again.pools.pools.contains_key(&PoolName::new("g", "the_second")));

    std::fs::write(&pools, "<configuration><group name='g'>").unwrap();
    let refused = loaded.settings.scheduling_files.load().unwrap_err();
    assert_eq!(
        lines(&refused.problems, dir.path()),
        ["pools.xml:1: is not well-formed XML: <group> is never closed"]
    );
}

/// Overrides, and the one problem that they make.
#[test]
fn settings_that_do_not_go_together_are_told() {
    const PORT: &str = "-D: cm.server.http.address: value";
    const OTHER: &str = "expected another port, or 0 for any free one";
    let address = "cm.server.address";
    let pages = "cm.server.http.address";
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<String>);
    let cases: [Case<'_>; 13] = [
        (
            &[(address, "cm:7000"), (pages, "0.0.0.0:7000")],
            Some(format!(
                "{PORT} \"0.0.0.0:7000\" has the port of cm.server.address, cm:7000; {OTHER}"
            )),
        ),
        (
            &[(pages, "localhost:8888")],
            Some(format!(
                "{PORT} \"localhost:8888\" has the port of cm.server.address, localhost:8888; {OTHER}"
            )),
        ),
        (
            &[(address, "cm:8889")],
            Some(format!(
                "default: cm.server.http.address: value \"localhost:8889\" has the port of \
                 cm.server.address, cm:8889; {OTHER}"
            )),
        ),
        // Calls are taken on the loopback interface only.
        (&[(pages, "10.1.2.3:8888")], None),
        (&[(address, "cm:0"), (pages, "cm:0")], None),
        (
            &[("cm.node.expiryinterval", "1000")],
            Some(
                "-D: cm.node.expiryinterval: 1000 ms is less than two intervals of \
                 corona.clustermanager.heartbeat.interval, 3000 ms: nodes are lost while they work"
                    .into(),
            ),
        ),
        (
            &[
                ("cm.node.expiryinterval", "6000"),
                ("corona.clustermanager.heartbeat.interval", "3001"),
            ],
            Some(
                "-D: cm.node.expiryinterval: 6000 ms is less than two intervals of \
                 corona.clustermanager.heartbeat.interval, 3001 ms: nodes are lost while they work"
                    .into(),
            ),
        ),
        (&[("cm.node.expiryinterval", "6000")], None),
        (
            &[
                ("cm.node.expiryinterval", "6000"),
                ("corona.clustermanager.heartbeat.interval", "x"),
            ],
            // It is compared with nothing, and wrong by itself.
            Some(
                "-D: corona.clustermanager.heartbeat.interval: value \"x\" is not a whole number; \
                 expected milliseconds, 1 to 2147483647"
                    .into(),
            ),
        ),
        (
            &[("cm.session.expiryinterval", "1000")],
            Some(
                "-D: cm.session.expiryinterval: 1000 ms is less than two intervals of \
                 cm.notifier.pollinterval, 1000 ms, at which job trackers heartbeat at most: \
                 sessions are ended while they work"
                    .into(),
            ),
        ),
        (&[("cm.session.expiryinterval", "2000")], None),
        (&[("cm.session.expiryinterval", "1000"), ("cm.notifier.pollinterval", "100")], None),
        (&[("cm.session.expiryinterval", "0")], None),
    ];
    for (pairs, expected) in cases {
        let problems = match load(None, &overrides(pairs)) {
            Ok(loaded) => loaded.warnings,
            Err(refused) => refused.problems,
        };
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(lines(&problems, Path::new("-")), expected, "{pairs:?}");
    }
}

#[test]
fn an_address_that_is_set_opens_every_interface() {
    for (pairs, interfaces) in [
        (
            &[("cm.server.address", "manager:1"), ("corona.loopback.only", "true")][..],
            Interfaces::Loopback,
        ),
        (&[][..], Interfaces::Loopback),
        (&[("cm.server.address", "localhost:8888")], Interfaces::All),
    ] {
        assert_eq!(settings(pairs).interfaces, interfaces, "{pairs:?}");
    }
    let proxy = [("corona.proxy.job.tracker.thriftaddr", "localhost:50036")];
    assert!(settings(&proxy).proxy_job_tracker_expected);
}

#[test]
fn missing_files_are_told_where_they_are_named() {
    let named = [
        ("cm.hosts.exclude", "/no/excluded"),
        ("topology.script.file.name", "/no/script"),
        ("cm.pools.config.file", "poolz.xml"),
    ];
    let inside: Vec<String> = std::iter::once(PARTITIONING.to_owned())
        .chain(named.map(|(key, file)| property(key, file)))
        .collect();
    let dir = directory(&inside.join("\n"));
    let checked = Source { conf_dir: Some(dir.path()), ..Source::default() }.check();
    let place = dir.path().display().to_string();
    let told = lines(&checked.problems, dir.path());
    let told: Vec<String> = told.iter().map(|line| line.replace(&place, "DIR")).collect();
    assert_eq!(
        told,
        [
            "core-site.xml:5: cm.pools.config.file: file poolz.xml does not exist in the working \
             directory or DIR; no pool has a minimum, a maximum or a weight",
            "core-site.xml:3: cm.hosts.exclude: file /no/excluded does not exist; no host is excluded",
            "core-site.xml:4: topology.script.file.name: file /no/script does not exist; no host can \
             be put into a rack",
        ]
    );
}

proptest! {
    #[test]
    fn no_value_of_any_key_panics(index in 0..keys::ALL.len(), value in "\\PC{0,30}|[0-9xX.:/${}a-z-]{0,30}") {
        let key = keys::ALL[index].name;
        let _ = load(None, &overrides(&[(key, &value), ("cm.state", "${cm.hosts}")]));
    }

    #[test]
    fn no_file_panics(inside in "(<[a-z]{0,3}>|</[a-z]{0,3}>|<property><name>cm.state</name>|<value>|</value></property>|<final>true</final>|\\$\\{|\\PC){0,12}") {
        let dir = directory(&inside);
        std::fs::write(dir.path().join("corona.xml"), format!("<configuration>{inside}</configuration>")).unwrap();
        std::fs::write(dir.path().join("config.materialized_JSON"), &inside).unwrap();
        let _ = load(Some(dir.path()), &[]);
    }
}

#[test]
fn secrets_are_used_and_never_shown() {
    let token = "correct horse battery";
    let loaded = load(None, &overrides(&[("corona.cm.web.kill.token", token)])).unwrap();
    assert!(loaded.settings.web.kill_token.as_ref().unwrap().is(token));
    assert!(!format!("{loaded:?}").contains(token));
    for odd in ["sesame", "with a ${variable} that is not defined"] {
        let loaded = load(None, &overrides(&[("corona.cm.web.kill.token", odd)]));
        let told = match loaded {
            Ok(loaded) => loaded.warnings.iter().map(ToString::to_string).collect::<String>(),
            Err(errors) => errors.to_string(),
        };
        assert!(told.contains("corona.cm.web.kill.token: value \"(hidden)\""), "{told}");
        assert!(!told.contains(odd), "{told}");
    }
}
