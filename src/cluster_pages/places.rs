//! The counted resources of all nodes, and how what is free is spread over them.

use corona_engine::NodeView;
use corona_model::resources::{Amounts, Dimension};

/// What nodes have of the counted resources. Nothing while only slots are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// What all nodes give out.
    pub(crate) capacity: Amounts,
    /// What grants take.
    pub(crate) granted: Amounts,
    /// What is left on nodes that may be given more by any request.
    pub(crate) free: Amounts,
    /// The most of each resource that one of these nodes has left.
    pub(crate) largest: Amounts,
}

impl Places {
    /// Those of these nodes. What is left on a node that is kept for a request is nobody else's.
    pub(crate) fn of(nodes: &[NodeView]) -> Places {
        let mut places = Places::default();
        for node in nodes {
            places.capacity = places.capacity.plus(node.capacity);
            places.granted = places.granted.plus(node.held);
            if !node.is_open() || node.reserved_for.is_some() {
                continue;
            }
            let spare = node.spare();
            places.free = places.free.plus(spare);
            for dimension in Dimension::ALL {
                places.largest[dimension] = places.largest[dimension].max(spare[dimension]);
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node_view;

    #[test]
    fn only_nodes_that_may_be_given_more_have_free_resources() {
        let node = |cpus, memory, held| NodeView {
            capacity: Amounts([cpus, memory, 0, 0]),
            held,
            ..node_view("n")
        };
        let some = |held| node(4, 1_000, Amounts([1, held, 0, 0]));
        let excluded = NodeView { allowed: false, ..node(9, 9_000, Amounts::ZERO) };
        let late = NodeView { late: true, skipped: true, ..node(9, 9_000, Amounts::ZERO) };
        // One that reports less than its grants take.
        let overfull = node(2, 100, Amounts([3, 500, 0, 0]));
        let places = Places::of(&[some(300), some(900), excluded, late, overfull]);
        assert_eq!(places.capacity, Amounts([28, 20_100, 0, 0]));
        assert_eq!(places.granted, Amounts([5, 1_700, 0, 0]));
        assert_eq!(places.free, Amounts([6, 800, 0, 0]));
        assert_eq!(places.largest, Amounts([3, 700, 0, 0]));
        assert_eq!(Places::of(&[]), Places::default());
    }
}
