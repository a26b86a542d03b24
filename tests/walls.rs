//! The walls between the rooms of the crate, as far as the text of the sources shows them.

use std::fs;
use std::path::{Path, PathBuf};

/// What a room must not name, and why.
struct Wall {
    room: &'static str,
    forbidden: &'static [&'static str],
    why: &'static str,
}

const WALLS: &[Wall] = &[
    Wall {
        room: "engine",
        forbidden: &[
            "tokio",
            "std::net",
            "std::fs",
            "std::thread",
            "Instant",
            "SystemTime",
            "thrift",
            "crate::wire",
            "crate::config",
            "crate::cluster_manager",
            "RandomState::new",
            "HashMap::new",
            "HashSet",
        ],
        why: "the engine is pure and deterministic",
    },
    Wall {
        room: "wire",
        forbidden: &["crate::engine", "crate::config", "crate::cluster_manager"],
        why: "the wire knows no cluster",
    },
    Wall {
        room: "config",
        forbidden: &["crate::wire", "crate::cluster_manager", "tokio"],
        why: "configuration is read before anything runs",
    },
    Wall {
        room: "cluster_manager",
        forbidden: &["thrift::", "TBinary"],
        why: "nothing outside the wire sees an encoded byte",
    },
    Wall {
        room: "session_driver",
        forbidden: &[
            "crate::engine::{",
            "crate::engine::Engine",
            "crate::engine::settings",
            "crate::cluster_manager",
            "crate::config",
            "crate::conformance",
            "thrift::",
            "TBinary",
        ],
        why: "a session knows the wire and the engine's plain types, and any cluster manager",
    },
];

#[test]
fn no_room_reaches_through_a_wall() {
    let mut breaches = Vec::new();
    for wall in WALLS {
        let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(wall.room);
        let files = sources(&room);
        assert!(!files.is_empty(), "{} has no sources", room.display());
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
