//! Resources that a cluster counts, for people: what there is, what grants take, how the rest is spread over nodes.

use corona::api::cluster::{ByResource, ClusterResource, Node, NodeResource};
use corona::model::resources::{Amounts, Dimension};
use corona_terminal::table::{Cell, Column, Table, number};

/// The heading of a resource in a table.
pub(super) fn heading(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Cpus => "CPUS",
        Dimension::Memory => "MEMORY",
        Dimension::Disk => "DISK",
        Dimension::Network => "NETWORK",
    }
}

/// Amounts with their names: `2 CPUs, 2.5 GB of memory`; none if there are none.
pub(super) fn brief(amounts: &ByResource<u64>) -> Option<String> {
    let mut all = Amounts::ZERO;
    for (dimension, amount) in amounts {
        all[*dimension] = *amount;
    }
    Some(all.brief()).filter(|text| !text.is_empty())
}

/// The dominant share in percent, and the amounts; none where only slots are counted.
pub(super) fn holding(amounts: &ByResource<u64>, dominant_share: Option<f64>) -> Option<String> {
    let share = percent(dominant_share?);
    Some(match brief(amounts) {
        Some(amounts) => format!("{share} ({amounts})"),
        None => share,
    })
}

/// A part in percent.
pub(super) fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// How what is free is spread over nodes, a line for each resource.
pub(super) fn spread(resources: &ByResource<ClusterResource>) -> String {
    let lines = resources
        .iter()
        .map(|(dimension, of)| format!("{}.\n", dimension.spread(of.free, of.largest_free)));
    lines.collect()
}

/// The resources of the cluster.
pub(super) fn of_cluster(resources: &ByResource<ClusterResource>) -> Table {
    let mut table = Table::new(&[
        Column::whole("RESOURCE"),
        Column::number("GRANTED"),
        Column::number("TOTAL"),
        Column::number("FREE"),
        Column::number("LARGEST PLACE"),
    ]);
    for (dimension, of) in resources {
        let short = |amount| Cell::from(dimension.short(amount));
        let amounts = [of.granted, of.capacity, of.free, of.largest_free].map(short);
        table.row([Cell::from(dimension.name())].into_iter().chain(amounts));
    }
    table
}

/// The resources of a node.
pub(super) fn of_node(resources: &ByResource<NodeResource>) -> Table {
    let mut table = Table::new(&[
        Column::whole("RESOURCE"),
        Column::number("GRANTED"),
        Column::number("GIVES OUT"),
        Column::number("REALLY USED"),
        Column::number("REPORTS"),
    ]);
    for (dimension, of) in resources {
        let short = |amount: u64| dimension.short(amount);
        table.row([
            dimension.name().into(),
            short(of.granted).into(),
            short(of.capacity).into(),
            number(of.used.map(short)),
            number(of.total.map(short)),
        ]);
    }
    table
}

/// What grants take of a resource of a node, and what it gives out: `2.5 GB/4 GB`.
pub(super) fn granted(node: &Node, dimension: Dimension) -> Cell {
    let of = node.resources.get(&dimension);
    number(of.map(|of| format!("{}/{}", dimension.short(of.granted), dimension.short(of.capacity))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_said_in_short() {
        let none = ByResource::new();
        assert_eq!((brief(&none), holding(&none, None)), (None, None));
        let some = ByResource::from([
            (Dimension::Cpus, 2),
            (Dimension::Memory, 2_560),
            (Dimension::Disk, 0),
        ]);
        let said = holding(&some, Some(0.1234)).unwrap();
        assert_eq!(said, "12.3% (2 CPUs, 2.5 GB of memory)");
        assert_eq!(holding(&none, Some(0.0)).unwrap(), "0.0%");
        let of = |free, largest_free| ClusterResource {
            free,
            largest_free,
            ..ClusterResource::default()
        };
        let cluster =
            [(Dimension::Cpus, of(60, 3)), (Dimension::Memory, of(122_880, 3_072))].into();
        let expected = "60 CPUs are free, the largest place has 3.\n\
                        120 GB of memory are free, the largest place has 3 GB.\n";
        assert_eq!(spread(&ByResource::new()), "");
        assert_eq!(spread(&cluster), expected);
    }
}
