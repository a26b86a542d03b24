//! What the machine allows a service, and how the service distributes it, for JSON and on pages.

use corona_api::{BudgetStatus, ResourceStatus, UseStatus};
use corona_process::budget::{Budget, Resource, Share};
use corona_process::procfs::Usage;
use maud::{Markup, html};

/// That of this process now. It reads files of the kernel.
pub fn now() -> BudgetStatus {
    let (own, budget) = (Usage::own(), Budget::of_process());
    let limit = |resource| budget.and_then(|budget| budget.limits.of(resource));
    let shares = budget.into_iter().flat_map(|budget| &budget.shares);
    BudgetStatus {
        open_files: ResourceStatus { used: own.open_files, limit: own.open_files_limit },
        memory_bytes: ResourceStatus { used: own.resident_bytes, limit: limit(Resource::Memory) },
        threads: ResourceStatus { used: own.threads, limit: limit(Resource::Threads) },
        uses: shares.map(use_status).collect(),
    }
}

/// The same for a page, as entries of a list of facts.
pub fn facts(budget: &BudgetStatus) -> Markup {
    let of = |ResourceStatus { used, limit }: ResourceStatus, unit: u64| {
        let text = |number: u64| (number / unit).to_string();
        let used = used.map_or_else(|| "?".to_owned(), text);
        limit.map_or_else(|| used.clone(), |limit| format!("{used} of {}", text(limit)))
    };
    let uses: Vec<String> = budget.uses.iter().map(text).collect();
    html! {
        div { dt { "Open files" } dd { (of(budget.open_files, 1)) } }
        div { dt { "Own memory, MiB" } dd { (of(budget.memory_bytes, 1 << 20)) } }
        div { dt { "Own threads" } dd { (of(budget.threads, 1)) } }
        @if !uses.is_empty() {
            div.wide { dt { "At a time" } dd { (uses.join(", ")) } }
        }
    }
}

fn use_status(Share { of, allowed, limited_by }: &Share) -> UseStatus {
    UseStatus {
        name: of.name.to_owned(),
        allowed: *allowed,
        configured: of.wanted,
        limited_by: limited_by.map(|resource| resource.name().to_owned()),
    }
}

fn text(UseStatus { name, allowed, configured, limited_by }: &UseStatus) -> String {
    match limited_by {
        Some(_) => format!("{name} {allowed} (configured: {configured})"),
        None => format!("{name} {allowed}"),
    }
}

#[cfg(test)]
mod tests {
    use corona_process::budget::{Limits, Use};

    use super::*;

    #[test]
    fn a_budget_is_shown_with_what_is_less_than_configured() {
        let limits = Limits { open_files: Some(228), memory: Some(1 << 30), threads: None };
        let uses = [Use::new("jobs", 5).files(1), Use::new("pages", 1000).files(1)];
        Budget::new(limits, &uses).adopt();
        let status = now();
        let shown: Vec<String> = status.uses.iter().map(text).collect();
        assert_eq!(shown, ["jobs 5", "pages 95 (configured: 1000)"]);
        assert_eq!(status.uses[1].limited_by.as_deref(), Some("open_files"));
        assert_eq!(status.memory_bytes.limit, Some(1 << 30));
        assert!(status.threads.used.is_some_and(|used| used > 0));
        let page = facts(&status).into_string();
        assert!(page.contains("of 1024") && page.contains("pages 95 (configured: 1000)"), "{page}");
    }
}
