//! The frame of all pages. Their contents are written with [`units`](corona_web::units).

use maud::{DOCTYPE, Markup, html};

use corona_model::types::Millis;
use corona_web::files;
use corona_web::units::as_of;

/// The pages that every page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Cluster,
    Pools,
    Sessions,
    Nodes,
    Retired,
    Configuration,
}

impl Section {
    const ALL: [(Section, &str, &str); 6] = [
        (Section::Cluster, "/", "Cluster"),
        (Section::Pools, "/pools", "Pools"),
        (Section::Sessions, "/sessions", "Sessions"),
        (Section::Nodes, "/nodes", "Nodes"),
        (Section::Retired, "/retired", "Retired"),
        (Section::Configuration, "/configuration", "Configuration"),
    ];
}

/// The frame around a page.
#[derive(Clone, Debug)]
pub(super) struct Frame<'a> {
    /// The page, for people: the heading and the window.
    pub(super) title: &'a str,
    /// The section that it belongs to.
    pub(super) section: Option<Section>,
    /// The name of this cluster manager.
    pub(super) host: &'a str,
    pub(super) safe_mode: bool,
    /// When it was made.
    pub(super) now: Millis,
    /// The least pause between two looks of one browser; `None` for a page that does not change.
    pub(super) refresh_ms: Option<u64>,
    /// Where the job tracker service shows the jobs that run.
    pub(super) running_jobs: Option<&'a str>,
    /// Where the proxy job tracker shows finished jobs.
    pub(super) finished_jobs: Option<&'a str>,
}

/// A whole page.
pub(super) fn page(frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (files::head(frame.title, frame.host))
            body data-refresh-ms=[frame.refresh_ms] {
                a.skip href="#main" { "Skip to the content" }
                (head(frame))
                main #main tabindex="-1" { (content) }
                (foot(frame))
            }
        }
    }
}

fn head(frame: &Frame<'_>) -> Markup {
    html! {
        header.top {
            div.name {
                a.brand href="/" { span aria-hidden="true" { "◔ " } "Corona" }
                span.host { (frame.host) }
                span #safe-mode data-live {
                    @if frame.safe_mode { strong.badge.warn { "Safe mode" } }
                }
            }
            nav aria-label="Pages" {
                ul {
                    @for (section, path, name) in Section::ALL {
                        li {
                            a href=(path) aria-current=[(frame.section == Some(section)).then_some("page")] {
                                (name)
                            }
                        }
                    }
                    @if let Some(address) = frame.running_jobs {
                        li { a href=(address) { "Running jobs" } }
                    }
                    @if let Some(address) = frame.finished_jobs {
                        li { a href=(address) { "Finished jobs" } }
                    }
                }
            }
            // The script shows and fills it.
            div.live #live hidden {
                button #live-toggle type="button" aria-pressed="true" { "Live" }
                span #live-time {}
            }
        }
        p.unseen #live-news role="status" aria-live="polite" {}
    }
}

fn foot(frame: &Frame<'_>) -> Markup {
    html! {
        footer {
            (as_of(frame.now))
            ul {
                li { a href="/api/v1" { "API" } }
                li { a href="/metrics" { "Metrics" } }
            }
        }
    }
}

/// A page with only a sentence.
pub(super) fn notice(frame: &Frame<'_>, sentence: &str) -> Markup {
    page(frame, &html! { h1 { (frame.title) } p { (sentence) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_load_nothing_from_elsewhere_and_hold_no_style_or_script_in_place() {
        let frame = Frame {
            title: "<title>",
            section: Some(Section::Nodes),
            host: "h\"<",
            safe_mode: true,
            now: Millis(0),
            refresh_ms: Some(1000),
            running_jobs: None,
            finished_jobs: None,
        };
        let page = notice(&frame, "a & b").into_string();
        assert!(page.contains("<title>&lt;title&gt; – h&quot;&lt; – Corona</title>"), "{page}");
        assert!(page.contains("<a href=\"/nodes\" aria-current=\"page\">Nodes</a>"), "{page}");
        assert_eq!(page.matches("aria-current").count(), 1);
        for unwanted in ["style=", "onclick", "<style", "http://", "https://", "javascript:"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
        let page = notice(&Frame { finished_jobs: Some("http://pjt:1/"), ..frame.clone() }, "")
            .into_string();
        assert!(page.contains("<a href=\"http://pjt:1/\">Finished jobs</a>"), "{page}");
        let page = notice(&Frame { running_jobs: Some("http://jt:1/"), ..frame }, "").into_string();
        assert!(page.contains("<a href=\"http://jt:1/\">Running jobs</a>"), "{page}");
    }
}
