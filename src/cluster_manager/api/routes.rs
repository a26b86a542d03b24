//! From the path and query of a request to the JSON of its answer.

use std::borrow::Cow;

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::{Failure, Paging, answers};
use crate::cluster_manager::core::Core;

/// What is in front of all paths of the API.
pub(in crate::cluster_manager) const PREFIX: &str = "/api/v1/";

/// Status and JSON for a path behind [`PREFIX`]. It looks at the engine and serialises without it;
/// large answers take milliseconds, so it is for a thread that may block.
pub(in crate::cluster_manager) fn answer(
    core: &Core,
    pending_notifications: usize,
    path: &str,
    query: &str,
) -> (StatusCode, String) {
    let answered = match path.split_once('/') {
        None => list(core, pending_notifications, path, query),
        Some(("sessions", handle)) => session(core, handle),
        Some(_) => Err(no_such_path()),
    };
    match answered {
        Ok(json) => (StatusCode::OK, json),
        Err((status, error)) => (status, json(&Failure { error }).unwrap_or_default()),
    }
}

type Refused = (StatusCode, String);

fn list(
    core: &Core,
    pending_notifications: usize,
    path: &str,
    query: &str,
) -> Result<String, Refused> {
    let paging = || paging(query).map_err(|wrong| (StatusCode::BAD_REQUEST, wrong));
    match path {
        "cluster" => json(&answers::cluster(core, pending_notifications)),
        "nodes" => json(&answers::nodes(core, &paging()?)),
        "pools" => json(&answers::pools(core)),
        "sessions" => json(&answers::sessions(core, &paging()?)),
        "retired" => json(&answers::retired(core, paging()?.limit)),
        _ => Err(no_such_path()),
    }
}

fn session(core: &Core, encoded: &str) -> Result<String, Refused> {
    let handle: Cow<'_, str> = percent_decode_str(encoded).decode_utf8_lossy();
    match answers::session_detail(core, &handle) {
        Some(detail) => json(&detail),
        None => Err((StatusCode::NOT_FOUND, format!("no session {handle} is running"))),
    }
}

fn no_such_path() -> Refused {
    (StatusCode::NOT_FOUND, "no such path in the API".into())
}

fn json(value: &impl Serialize) -> Result<String, Refused> {
    serde_json::to_string(value)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// `limit` and `after`; other parameters are passed over. The error is a sentence.
fn paging(query: &str) -> Result<Paging, String> {
    let mut paging = Paging::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => match value.parse() {
                Ok(limit @ 1..=Paging::MOST) => paging.limit = limit,
                _ => return Err(format!("limit: expected a number from 1 to {}", Paging::MOST)),
            },
            "after" => paging.after = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(paging)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_of_a_query() {
        let paging_of =
            |limit, after: Option<&str>| Ok(Paging { limit, after: after.map(str::to_owned) });
        for (query, expected) in [
            ("", paging_of(1000, None)),
            ("limit=1", paging_of(1, None)),
            ("limit=2000&after=a%20b+c%C3%A9", paging_of(2000, Some("a b cé"))),
            ("after=", paging_of(1000, Some(""))),
            ("colour=red", paging_of(1000, None)),
            ("after=%ff", paging_of(1000, Some("\u{fffd}"))),
        ] {
            assert_eq!(paging(query), expected, "{query}");
        }
        for query in ["limit=0", "limit=2001", "limit=", "limit=-1", "limit=x", "limit=1&limit=0"] {
            assert!(paging(query).unwrap_err().contains("1 to 2000"), "{query}");
        }
    }
}
