//! The rows of `docs/reference/compatibility.md` that can explain a difference.

/// Why a difference is none: a row of `docs/reference/compatibility.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The name of the row; for a free choice, how it begins.
    pub row: &'static str,
    /// The row's contents in one sentence.
    pub text: &'static str,
}

impl Rule {
    /// Which node serves a request is free when several are equally near.
    pub const FREE_NODE: Rule = Rule {
        row: "which node, when several are equally near",
        text: "Which node serves a request is free when several are equally near.",
    };
    /// Which of two equal sessions or tasks comes first is free.
    pub const FREE_ORDER: Rule = Rule {
        row: "which of two equal sessions or pools comes first",
        text: "Which of two equal sessions or tasks comes first is free.",
    };
    /// Grants come at once, not with the next turn of a scheduler thread.
    pub const PROMPT_GRANTS: Rule = Rule {
        row: "S-1",
        text: "Grants are made at once, not at the next turn of a scheduler thread.",
    };
    /// Overdue nodes and sessions are found at once, not at the next half interval.
    pub const PROMPT_EXPIRY: Rule = Rule {
        row: "S-8",
        text: "Overdue nodes and sessions are found at once, not at the next half interval.",
    };
    /// A pool that is new starves after its starving time, not at once.
    pub const NEW_POOL_WAITS: Rule = Rule {
        row: "D-7.3",
        text: "The starving time of a pool begins when the pool is first looked at; in the original \
               such a pool starves at once.",
    };
    /// A failed call is answered with an EXCEPTION message instead of a closed connection.
    pub const FAULT_INSTEAD_OF_CLOSE: Rule = Rule {
        row: "D-2.1",
        text: "A failed call is answered with an EXCEPTION message, not with a closed connection.",
    };
    /// Killing ignores unknown sessions.
    pub const KILLED_UNKNOWN: Rule =
        Rule { row: "D-2.2", text: "Killing ignores unknown sessions." };
    /// A pool without whitelist has an empty one.
    pub const NO_WHITELIST: Rule =
        Rule { row: "D-2.3", text: "A pool without whitelist has an empty one." };
    /// Without a pools file no pool has a limit.
    pub const NO_POOLS_FILE: Rule =
        Rule { row: "D-2.4", text: "Without a pools file no pool has a limit." };
    /// A session without a pool gets the default one.
    pub const NO_POOL: Rule =
        Rule { row: "D-2.5", text: "A session without a pool gets the default one." };
    /// A malformed handle is an invalid one.
    pub const MALFORMED_HANDLE: Rule =
        Rule { row: "D-2.6", text: "A malformed handle is an invalid one." };
    /// A node may change its reported capacity.
    pub const OFFER_CHANGED: Rule =
        Rule { row: "D-3.4", text: "A node may change or withdraw its service of a type." };

    /// All of them.
    pub const ALL: [Rule; 12] = [
        Self::FREE_NODE,
        Self::FREE_ORDER,
        Self::PROMPT_GRANTS,
        Self::PROMPT_EXPIRY,
        Self::NEW_POOL_WAITS,
        Self::FAULT_INSTEAD_OF_CLOSE,
        Self::KILLED_UNKNOWN,
        Self::NO_WHITELIST,
        Self::NO_POOLS_FILE,
        Self::NO_POOL,
        Self::MALFORMED_HANDLE,
        Self::OFFER_CHANGED,
    ];
}

impl Rule {
    /// Whether the protocol leaves the choice, so that neither side does better.
    pub fn is_free_choice(self) -> bool {
        [Self::FREE_NODE, Self::FREE_ORDER].contains(&self)
    }

    /// The row's name, short enough for a list.
    pub(crate) fn name(self) -> &'static str {
        if self.is_free_choice() { "free choice" } else { self.row }
    }
}
