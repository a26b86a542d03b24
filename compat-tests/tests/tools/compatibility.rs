//! Holds the table of addresses, `docs/reference/compatibility/pages.md`, to the built program and to the
//! documentation of the pages. Calls, fields, keys, members and commands are held to their tables
//! by tests beside them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use compat_tests::{repository, start_plain};

/// The addresses of the cluster manager's table with their states.
fn table() -> Vec<(String, String)> {
    let text = document("docs/reference/compatibility/pages.md");
    // That of job trackers is held to them by a test beside them.
    let (text, _) = text.split_once("\n## Job trackers\n").expect("a section of job trackers");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `/"));
    let rows: Vec<_> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            let address = format!("/{}", cells.next().unwrap_or_default().trim_end_matches('`'));
            (address, cells.next().unwrap_or_default().to_owned())
        })
        .collect();
    assert!(rows.len() > 30, "{rows:?}");
    rows
}

fn document(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn get(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    stream
}

/// The status of an answer to a GET.
fn status(address: SocketAddr, path: &str) -> u16 {
    let mut stream = get(address, path);
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let head = String::from_utf8_lossy(&head).into_owned();
    head.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{head}"))
}

#[test]
fn every_address_answers_as_its_state_says() {
    let manager = start_plain();
    let http = manager.http().expect("it serves pages");
    for (address, state) in table() {
        if address.contains('{') {
            continue;
        }
        let expected: &[u16] = match state.as_str() {
            "done" | "own" | "changed" => &[200],
            // 400: it leads on for a parameter that this request does not have.
            "moved" => &[303, 400],
            "left out" => &[404],
            other => panic!("{address}: {other:?} is no state"),
        };
        let status = status(http, &address);
        assert!(expected.contains(&status), "{address}: {state}, but {status}");
    }
}

/// Whatever a page leads to has a row, `/static/{name}` for `/static/style.css`.
#[test]
fn every_address_that_a_page_leads_to_has_a_row() {
    let manager = start_plain();
    let http = manager.http().expect("it serves pages");
    let rows = table();
    let mut found = vec!["/".to_owned()];
    let mut looked_at = 0;
    while let Some(path) = found.get(looked_at).cloned() {
        looked_at += 1;
        assert!(looked_at < 1000, "{found:?}");
        let has_row = rows.iter().any(|(row, _)| match row.split_once('{') {
            Some((start, _)) => path.starts_with(start) && path.len() > start.len(),
            None => *row == path,
        });
        assert!(has_row, "docs/reference/compatibility/pages.md has no row of {path}");
        if path.starts_with("/static/") || path.starts_with("/api/") {
            continue;
        }
        let mut body = String::new();
        get(http, &path).read_to_string(&mut body).unwrap();
        for attribute in ["href=\"/", "src=\"/", "action=\"/"] {
            for rest in body.split(attribute).skip(1) {
                let end = rest.find(['"', '?', '#']).unwrap();
                let address = format!("/{}", &rest[..end]);
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
    }
    assert!(looked_at > 5, "{found:?}");
}

/// Each address in the tables of the documentation has a row.
#[test]
fn every_documented_address_has_a_row() {
    let rows: Vec<String> = table().into_iter().map(|(address, _)| address).collect();
    let mut looked_at = 0;
    for path in ["docs/operate/web.md", "docs/reference/command-line.md"] {
        let text = document(path);
        let firsts = text.lines().filter_map(|line| line.strip_prefix("| `/"));
        for first in firsts.filter_map(|rest| rest.split(" | ").next()) {
            for address in format!("`/{first}").split('`').filter(|part| part.starts_with('/')) {
                let address = address.split('?').next().unwrap_or_default();
                if address.ends_with("...") {
                    continue;
                }
                assert!(rows.iter().any(|row| row == address), "{path}: no row of {address}");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 25, "{looked_at} addresses are documented");
}
