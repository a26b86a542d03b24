//! The original's filters: whose sessions, and which pools. Spec: cluster-manager/08 §2.

use std::collections::BTreeSet;

use super::exchange::Parameters;

/// Which rows are wanted. An empty set wants them all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    users: BTreeSet<String>,
    pool_groups: BTreeSet<String>,
    /// `group.pool`
    pool_infos: BTreeSet<String>,
}

impl Filter {
    pub(crate) fn new(parameters: &Parameters) -> Filter {
        let mut pool_infos = list(parameters, "poolInfos");
        // Others mean nothing, as in the original.
        pool_infos.retain(|pool| pool.matches('.').count() == 1);
        Filter {
            users: list(parameters, "users"),
            pool_groups: list(parameters, "poolGroups"),
            pool_infos,
        }
    }

    /// Whether a session of this user and pool is wanted.
    pub(crate) fn wants_session(&self, user: &str, group: &str, pool: &str) -> bool {
        (self.users.is_empty() || self.users.contains(user)) && self.wants_pool(group, Some(pool))
    }

    /// Whether this pool, or group, is wanted.
    pub(crate) fn wants_pool(&self, group: &str, pool: Option<&str>) -> bool {
        let all = self.pool_groups.is_empty() && self.pool_infos.is_empty();
        let named = |pool: &str| self.pool_infos.contains(&format!("{group}.{pool}"));
        all || self.pool_groups.contains(group) || pool.is_some_and(named)
    }
}

/// A list with commas between. The original's script writes `null` for none.
fn list(parameters: &Parameters, name: &str) -> BTreeSet<String> {
    let text = parameters.text(name).filter(|text| *text != "null").unwrap_or_default();
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_either_groups_or_pools() {
        let rows = [("u1", "g", "p"), ("u1", "g", "q"), ("u2", "h", "p"), ("u2", "h", "q")];
        for (query, wanted) in [
            ("", "gp gq hp hq"),
            ("users=null&poolGroups=null&poolInfos=null", "gp gq hp hq"),
            ("users=", "gp gq hp hq"),
            ("users=u1", "gp gq"),
            ("users=u1,u2&poolGroups=h", "hp hq"),
            ("poolGroups=g&poolInfos=h.q", "gp gq hq"),
            ("poolInfos=g.p,h.p", "gp hp"),
            ("poolInfos=g.p,%20h.q", "gp hq"),
            ("poolInfos=odd,too.many.dots", "gp gq hp hq"),
            ("users=u1&poolInfos=h.p", ""),
        ] {
            let filter = Filter::new(&Parameters::parse(query.as_bytes()));
            let shown = rows
                .iter()
                .filter(|(user, group, pool)| filter.wants_session(user, group, pool))
                .map(|(_, group, pool)| format!("{group}{pool}"))
                .collect::<Vec<_>>();
            assert_eq!(shown.join(" "), wanted, "{query}");
        }
    }

    #[test]
    fn a_group_is_wanted_by_name_only() {
        let filter = Filter::new(&Parameters::parse(b"poolGroups=g&poolInfos=h.q"));
        assert!(filter.wants_pool("g", None));
        assert!(!filter.wants_pool("h", None));
        assert!(filter.wants_pool("h", Some("q")));
    }
}
