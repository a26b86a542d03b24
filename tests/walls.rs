//! The walls between the rooms, as far as the compiler does not hold them: which crates a room may
//! depend on, and the names that its sources may not contain.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace that a room may depend on. Tests of a room may use more.
const FLOORS: &[(&str, &[&str])] = &[
    ("access", &["config"]),
    ("allocator", &[]),
    ("model", &[]),
    ("api", &["model"]),
    ("process", &[]),
    ("logging", &["model"]),
    ("engine", &["model"]),
    ("simulation", &["engine", "model", "process"]),
    ("terminal", &["model"]),
    ("simulate", &["allocator", "job_simulation", "simulation", "terminal"]),
    ("config", &["model"]),
    ("mapreduce", &["config", "model"]),
    ("job_engine", &["mapreduce", "model"]),
    ("job_wire", &["hadoop", "job_engine", "mapreduce", "model"]),
    (
        "job_tracker",
        &[
            "access",
            "api",
            "config",
            "filesystem",
            "hadoop",
            "job_engine",
            "job_wire",
            "journal",
            "mapreduce",
            "model",
            "net",
            "process",
            "session_driver",
            "web",
        ],
    ),
    (
        "job_simulation",
        &[
            "engine",
            "hadoop",
            "job_engine",
            "job_wire",
            "mapreduce",
            "model",
            "process",
            "simulation",
        ],
    ),
    (
        "proxy_job_tracker",
        &[
            "access",
            "api",
            "config",
            "filesystem",
            "hadoop",
            "mapreduce",
            "model",
            "net",
            "process",
            "web",
            "wire",
        ],
    ),
    ("net", &["access"]),
    ("wire", &["access", "net"]),
    ("hadoop", &["access", "net"]),
    ("filesystem", &["hadoop", "model", "net", "process"]),
    ("journal", &["process"]),
    ("web", &["access", "api", "model", "net", "process"]),
    ("standby", &["model"]),
    ("zookeeper", &[]),
    (
        "cluster_pages",
        &["access", "api", "config", "engine", "model", "net", "process", "standby", "web", "wire"],
    ),
    (
        "cluster_manager",
        &[
            "access",
            "api",
            "cluster_pages",
            "config",
            "engine",
            "journal",
            "model",
            "net",
            "process",
            "standby",
            "web",
            "wire",
            "zookeeper",
        ],
    ),
    ("session_driver", &["net", "wire"]),
    (
        "conformance",
        &[
            "access",
            "cluster_manager",
            "config",
            "engine",
            "hadoop",
            "model",
            "net",
            "process",
            "web",
            "wire",
        ],
    ),
    ("what_if", &["conformance", "engine", "mapreduce", "model", "wire"]),
    ("demo", &["api", "cluster_manager", "config", "model", "session_driver", "wire"]),
    ("load", &["access", "hadoop", "model", "net", "process", "session_driver", "wire"]),
    ("task", &["access", "config", "filesystem", "hadoop", "mapreduce", "net", "process"]),
    (
        "task_tracker",
        &[
            "access",
            "api",
            "config",
            "filesystem",
            "hadoop",
            "mapreduce",
            "model",
            "net",
            "process",
            "web",
            "wire",
        ],
    ),
];

/// Names that the sources of a room must not contain, and why.
struct Wall {
    room: &'static str,
    forbidden: &'static [&'static str],
    why: &'static str,
}

const PURE: &[&str] = &[
    "tokio",
    "std::net",
    "std::fs",
    "std::thread",
    "Instant",
    "SystemTime",
    "tracing",
    "RandomState::new",
    "HashMap::new",
    "HashSet",
];

const WALLS: &[Wall] = &[
    Wall { room: "model", forbidden: PURE, why: "the model is plain data" },
    Wall { room: "standby", forbidden: PURE, why: "roles are decided without socket and clock" },
    Wall { room: "engine", forbidden: PURE, why: "the engine is pure and deterministic" },
    Wall {
        room: "mapreduce",
        forbidden: &["tokio", "std::net", "std::thread", "Instant", "SystemTime"],
        why: "the vocabulary of jobs knows no socket and no clock",
    },
    Wall { room: "job_engine", forbidden: PURE, why: "the job engine is pure and deterministic" },
    Wall {
        room: "config",
        forbidden: &["tokio", "std::net::Tcp", "std::net::Udp"],
        why: "configuration is read before anything runs",
    },
    Wall {
        room: "net",
        forbidden: &["thrift", "hadoop", "maud", "serde", "hyper"],
        why: "limits on connections hold for whatever is spoken on them",
    },
    Wall {
        room: "cluster_manager",
        forbidden: &["thrift::", "TBinary"],
        why: "nothing outside the wire sees an encoded byte",
    },
    Wall {
        room: "session_driver",
        forbidden: &["thrift::", "TBinary", "corona_model", "hyper"],
        why: "a session knows the wire's calls and its own types, and any cluster manager",
    },
];

/// Rooms whose time is an argument, and the files in them that may read the clock: the outermost layer, and
/// tests of it.
const CLOCKS: &[(&str, &[&str])] = &[
    ("conformance/replay", &["live.rs", "peers.rs"]),
    ("conformance/shadow", &["driver.rs", "http.rs", "mod.rs", "tests.rs"]),
];

#[test]
fn only_the_outermost_layer_reads_a_clock() {
    for (name, allowed) in CLOCKS {
        for file in sources(&room(name)) {
            if allowed.iter().any(|allowed| file.ends_with(allowed)) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for clock in ["Instant::now", "SystemTime::now", "sleep(", "sleep_until", "timeout_at"]
            {
                assert!(!text.contains(clock), "{}: {clock}", file.display());
            }
        }
    }
}

#[test]
fn no_room_reaches_through_a_wall() {
    let mut breaches = Vec::new();
    for wall in WALLS {
        let files = sources(&room(wall.room));
        assert!(!files.is_empty(), "{} has no sources", wall.room);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                for name in wall.forbidden.iter().filter(|name| code.contains(**name)) {
                    let place = format!("{}:{}", file.display(), number + 1);
                    breaches.push(format!("{place}: {name} ({})", wall.why));
                }
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn every_room_depends_only_on_the_floors_below_it() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("Cargo.toml").exists() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let (_, allowed) = FLOORS
            .iter()
            .find(|(room, _)| *room == name)
            .unwrap_or_else(|| panic!("no floor is named for {name}"));
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let dependency = line.strip_prefix("corona-").and_then(|rest| rest.split('.').next());
            if let (Some(dependency), "[dependencies]") = (dependency, section) {
                let dependency = dependency.replace('-', "_");
                assert!(allowed.contains(&&*dependency), "{name} must not use {dependency}");
            }
        }
    }
}

/// The code map of the documentation goes from the inside out, and has every room.
#[test]
fn the_code_map_has_every_room_behind_those_that_it_uses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/develop/architecture.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `src/")?.split_once("/`"));
    let rooms: Vec<&str> = rows.map(|(room, _)| room).collect();
    for (room, used) in FLOORS {
        let place = rooms.iter().position(|listed| listed == room);
        let before = &rooms[..place.unwrap_or_else(|| panic!("{room} is not in the code map"))];
        for used in *used {
            assert!(before.contains(used), "{room} is listed before {used}, which it uses");
        }
    }
}

/// A module that has files of its own is `name/mod.rs`, everywhere.
#[test]
fn modules_are_laid_out_in_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "compat-tests", "tests", "benches"] {
        for file in sources(&root.join(folder)) {
            let folder = file.with_extension("");
            assert!(!folder.is_dir(), "{}: use mod.rs in the folder", file.display());
        }
    }
}

/// Rooms without examples in their documentation are left out of the search for examples, which compiles each by itself.
/// One that gets an example is searched again.
#[test]
fn examples_in_the_documentation_are_run() {
    let mut looked_at = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let room = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(room.join("Cargo.toml")) else { continue };
        for file in sources(&room) {
            let text = fs::read_to_string(&file).unwrap();
            let mut is_code = false;
            for line in text.lines().map(str::trim_start) {
                let line = line.strip_prefix("/// ").or(line.strip_prefix("//! "));
                let Some(fence) = line.and_then(|line| line.strip_prefix("```")) else { continue };
                is_code = !is_code;
                if is_code
                    && (fence.is_empty()
                        || fence.starts_with("rust")
                        || fence.starts_with("no_run"))
                {
                    looked_at += 1;
                    let is_run = !manifest.contains("doctest = false");
                    assert!(is_run, "{}: remove `doctest = false` from its crate", file.display());
                }
            }
        }
    }
    assert!(looked_at > 0);
}

fn room(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

fn sources(room: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(room).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
