//! Addresses of pages, which other pages name.

use std::net::Ipv6Addr;

use maud::{Markup, html};

use crate::exchange::encode_segment;
use crate::gather::Overview;
use corona_web::units::Name;

/// The address of a node's page.
pub(crate) fn node_path(name: &str) -> String {
    format!("/nodes/{}", encode_segment(name))
}

/// The name of a node, which leads to its page.
pub(super) fn node_link(name: &str) -> Markup {
    html! { a href=(node_path(name)) { (Name(name)) } }
}

/// The address of the pages of the task tracker on a host; `None` for a host that no address can name.
pub(super) fn tracker_page(host: &str, overview: &Overview) -> Option<String> {
    let port = overview.tracker_port?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    match host.parse::<Ipv6Addr>() {
        Ok(address) => Some(format!("http://[{address}]:{port}/")),
        Err(_) => (!host.is_empty() && host.chars().all(is_plain))
            .then(|| format!("http://{host}:{port}/")),
    }
}

/// The address of a session's page.
pub(crate) fn session_path(handle: &str) -> String {
    format!("/sessions/{}", encode_segment(handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::overview;

    #[test]
    fn the_page_of_a_task_tracker_is_on_the_nodes_host() {
        let overview = Overview { tracker_port: Some(50060), ..overview() };
        for (host, page) in [
            ("n1.example.com", Some("http://n1.example.com:50060/")),
            ("10.0.0.1", Some("http://10.0.0.1:50060/")),
            ("fe80::1", Some("http://[fe80::1]:50060/")),
            ("", None),
            ("n1/../x", None),
            ("user@n1", None),
            ("n1:80", None),
            ("<n1>", None),
        ] {
            assert_eq!(tracker_page(host, &overview).as_deref(), page, "{host}");
        }
        let unknown = Overview { tracker_port: None, ..overview };
        assert_eq!(tracker_page("n1", &unknown), None);
    }
}
