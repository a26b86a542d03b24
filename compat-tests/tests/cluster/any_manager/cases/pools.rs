//! Pools: their names, and how slots are divided between them.

use serde_json::{Value as Json, json};

use crate::any_manager::world::CaseState;

pub(crate) const NAMES_OF_POOLS: &str = r#"
    'g'.'plain' => {"poolGroupName":"g","poolName":"plain"}
    'nogroup'.'nopool' => {"poolGroupName":"nogroup","poolName":"nopool"}
    'a b'.'c.d' => {"poolGroupName":"a b","poolName":"c.d"}
    ''.'' => {"poolGroupName":"","poolName":""}
    'g'.'' => {"poolGroupName":"g","poolName":""}
    with its whitelist => original: closed | ours: {"poolInfoString":{"poolGroupName":"g","poolName":"plain"},"whitelist":""} | D-2.3
"#;

pub(crate) fn names_of_pools(world: &mut CaseState<'_>) {
    let args = |group: &str, pool: &str| -> Json {
        let name = json!({ "poolGroupName": group, "poolName": pool });
        json!({ "a": { "poolInfoString": name, "jobInputSize": 1 } })
    };
    for (group, pool) in
        [("g", "plain"), ("nogroup", "nopool"), ("a b", "c.d"), ("", ""), ("g", "")]
    {
        world.step(&format!("'{group}'.'{pool}'"), "getActualPoolInfo", args(group, pool));
    }
    world.step("with its whitelist", "getActualPoolInfoV2", args("g", "plain"));
}

pub(crate) const FIRST_IN_FIRST_OUT: &str = "
    the first, the second, the third => 4 0 0, 2 0 0, 0 0 0
    after the first => 4 0 0, 2 0 0
";

/// Six map slots for three sessions that want four each.
pub(crate) fn first_in_first_out(world: &mut CaseState<'_>) {
    let first = world.session("first", "fifo");
    world.ask(&first, 1, 4);
    world.grants(&first, 4);
    let second = world.session("second", "fifo");
    world.ask(&second, 1, 4);
    world.grants(&second, 2);
    let third = world.session("third", "fifo");
    world.ask(&third, 1, 4);
    let held = [world.held(&first), world.held(&second), world.held(&third)].join(", ");
    world.note("the first, the second, the third", held);
    world.call("sessionEnd", json!({ "handle": first, "status": "SUCCESSFUL" }));
    world.grants(&second, 4);
    world.grants(&third, 2);
    let held = [world.held(&second), world.held(&third)].join(", ");
    world.note("after the first", held);
}

pub(crate) const A_MAXIMUM: &str = "
    in the capped pool => 3 0 0
    in another one => 1 0 0
";

pub(crate) fn a_maximum(world: &mut CaseState<'_>) {
    let capped = world.session("capped", "capped");
    world.ask(&capped, 1, 6);
    world.grants(&capped, 3);
    // The grant shows that slots were looked at again after the maximum was reached.
    let other = world.session("other", "plain");
    world.ask(&other, 1, 1);
    world.grants(&other, 1);
    let held = world.held(&capped);
    world.note("in the capped pool", held);
    let held = world.held(&other);
    world.note("in another one", held);
}

pub(crate) const WEIGHTS: &str = "
    with weights of 2 and 1 => 4 0 0, 2 0 0
";

pub(crate) fn weights(world: &mut CaseState<'_>) {
    let before = world.session("before", "plain");
    world.ask(&before, 1, 6);
    world.grants(&before, 6);
    let heavy = world.session("heavy", "heavy");
    world.ask(&heavy, 1, 6);
    let light = world.session("light", "light");
    world.ask(&light, 1, 6);
    world.call("sessionEnd", json!({ "handle": before, "status": "SUCCESSFUL" }));
    world.grants(&heavy, 4);
    world.grants(&light, 2);
    let held = [world.held(&heavy), world.held(&light)].join(", ");
    world.note("with weights of 2 and 1", held);
}

pub(crate) const A_MINIMUM_IS_TAKEN_BACK: &str = "
    taken back => 2 of MAP, forced false
    the one, the other => 4 0 0, 2 0 0
";

pub(crate) fn a_minimum_is_taken_back(world: &mut CaseState<'_>) {
    let rich = world.session("rich", "plain");
    world.ask(&rich, 1, 6);
    world.grants(&rich, 6);
    let poor = world.session("poor", "floor");
    world.ask(&poor, 1, 2);
    let revoked = world.revocations(&rich, 2);
    assert!(revoked.iter().all(|slot| slot["type"] == "MAP"), "{revoked:?}");
    let forced = world.peers.driver.until("force", |told| {
        let own =
            |(name, args): &&(String, Json)| name == "revokeResource" && args["handle"] == *rich;
        Some(told.iter().filter(own).any(|(_, args)| args["force"] != false))
    });
    world.note("taken back", format!("{} of MAP, forced {forced}", revoked.len()));
    world.grants(&poor, 2);
    let held = [world.held(&rich), world.held(&poor)].join(", ");
    world.note("the one, the other", held);
}
