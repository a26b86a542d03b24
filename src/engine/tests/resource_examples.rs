//! The first example of `docs/operate/resources.md`.

use super::resources::{counting, node, taking};
use super::*;

#[test]
fn shares_of_different_resources_are_equal() {
    for (cpus, expected) in [(2, [7, 6]), (4, [3, 8])] {
        let mut world = counting(|_| {});
        for (handle, pool, cpus, memory_mb) in
            [("2026.1", "g.a", cpus, 50), ("2026.2", "g.b", 1, 100)]
        {
            world.start(handle, pool);
            world.ask(handle, taking(1..=20, cpus, memory_mb));
        }
        node(&mut world, "n1", 20, 1_000);
        assert_eq!(["2026.1", "2026.2"].map(|handle| world.holds(handle, Map)), expected);
    }
}
