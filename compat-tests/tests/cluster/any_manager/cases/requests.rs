//! Requests, grants and releases.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::any_manager::world::{CaseState, request};

pub(crate) const ODD_REQUESTS: &str = "
    an empty list => ok
    without a list => original: closed | ours: fault 6 | D-2.1
    a type that nobody knows => fault 7: Required field 'type' was not present! Struct: ResourceRequest(id:7, specs:ComputeSpecs(numCpus:1), type:null)
    the same id twice => ok
    an unknown host => ok
    release of what was never asked for => ok
    release without a list => original: closed | ours: fault 6 | D-2.1
    release of what waits => ok
";

pub(crate) fn odd_requests(world: &mut CaseState<'_>) {
    // It takes all slots, so that everything else waits.
    let before = world.session("before", "plain");
    world.ask(&before, 1, 6);
    world.grants(&before, 6);
    let handle = world.session("odd", "plain");
    let requests = |list: Json| json!({ "handle": handle, "requestList": list });
    world.step("an empty list", "requestResource", requests(json!([])));
    world.step("without a list", "requestResource", json!({ "handle": handle }));
    let mut odd = request(7, "MAP");
    odd["type"] = json!(77);
    world.step("a type that nobody knows", "requestResource", requests(json!([odd])));
    // The original takes the rest of that message for the next call.
    world.hang_up();
    let same = json!([request(1, "MAP"), request(1, "MAP")]);
    world.step("the same id twice", "requestResource", requests(same));
    let mut far = request(2, "MAP");
    far["hosts"] = json!(["10.9.9.9"]);
    world.step("an unknown host", "requestResource", requests(json!([far])));
    let release = |ids: Json| json!({ "handle": handle, "idList": ids });
    let never = release(json!([99]));
    world.step("release of what was never asked for", "releaseResource", never);
    world.step("release without a list", "releaseResource", json!({ "handle": handle }));
    world.step("release of what waits", "releaseResource", release(json!([1, 2])));
}

pub(crate) const GRANTS_BY_TYPE_AND_NODE: &str = "
    grants => JOBTRACKER n2 10.1.1.2:50000 10.1.1.2:3 x1, JOBTRACKER n4 10.1.1.1:50000 10.1.1.1:3 x1, MAP n2 10.1.1.2:50000 10.1.1.2:1 x2, MAP n4 10.1.1.1:50000 10.1.1.1:1 x4, REDUCE n2 10.1.1.2:50000 10.1.1.2:2 x1, REDUCE n4 10.1.1.1:50000 10.1.1.1:2 x2
    holds => 6 3 2
    holds after a release of two => 6 3 2
    the waiting ones came after the release => 7, 8
    the next session => 6 0 0
";

pub(crate) fn grants_by_type_and_node(world: &mut CaseState<'_>) {
    let handle = world.session("first", "plain");
    world.ask(&handle, 1, 8);
    let reduces = (9..12).map(|id| request(id, "REDUCE"));
    let trackers = (12..14).map(|id| request(id, "JOBTRACKER"));
    let others: Vec<_> = reduces.chain(trackers).collect();
    world.request(&handle, json!(others));
    let grants = world.grants(&handle, 11);
    let mut places = BTreeMap::new();
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    for grant in &grants {
        let address = format!("{}:{}", text(&grant["address"]["host"]), grant["address"]["port"]);
        let (kind, node) = (text(&grant["type"]), text(&grant["nodeName"]));
        let place = format!("{kind} {node} {address} {}", text(&grant["appInfo"]));
        *places.entry(place).or_insert(0) += 1;
    }
    let places = places.iter().map(|(place, count)| format!("{place} x{count}"));
    world.note("grants", places.collect::<Vec<_>>().join(", "));
    let held = world.held(&handle);
    world.note("holds", held);
    let release = json!({ "handle": handle, "idList": [1, 2] });
    assert_eq!(world.call("releaseResource", release), "ok");
    let grants = world.grants(&handle, 13);
    let held = world.held(&handle);
    world.note("holds after a release of two", held);
    let late = grants.iter().filter_map(|grant| grant["id"].as_i64());
    let late = late.filter(|id| (7..9).contains(id)).map(|id| id.to_string());
    world.note("the waiting ones came after the release", late.collect::<Vec<_>>().join(", "));
    let next = world.session("next", "plain");
    world.ask(&next, 1, 6);
    world.call("sessionEnd", json!({ "handle": handle, "status": "SUCCESSFUL" }));
    world.grants(&next, 6);
    let held = world.held(&next);
    world.note("the next session", held);
}

pub(crate) const PLACES: &str = "
    near a host => n2, n2
    not on a host => n4
";

pub(crate) fn places(world: &mut CaseState<'_>) {
    let handle = world.session("choosy", "plain");
    let mut near = [request(1, "MAP"), request(2, "MAP")];
    near.iter_mut().for_each(|request| request["hosts"] = json!(["10.1.1.2"]));
    world.request(&handle, json!(near));
    let nodes = |grants: Vec<Json>| {
        let nodes: Vec<_> = grants.iter().filter_map(|grant| grant["nodeName"].as_str()).collect();
        nodes.join(", ")
    };
    let grants = world.grants(&handle, 2);
    world.note("near a host", nodes(grants));
    let mut elsewhere = request(3, "REDUCE");
    elsewhere["excludeHosts"] = json!(["10.1.1.2"]);
    world.request(&handle, json!([elsewhere]));
    let grants = world.grants(&handle, 3).into_iter().filter(|grant| grant["id"] == 3).collect();
    world.note("not on a host", nodes(grants));
}
