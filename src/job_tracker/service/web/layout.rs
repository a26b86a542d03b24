//! The frame of all pages. Their contents are written with [`units`](corona_web::units).

use maud::{DOCTYPE, Markup, html};

use corona_model::types::Millis;
use corona_web::files;
use corona_web::units::as_of;

/// The pages that every page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Running,
    Ended,
    Trackers,
}

impl Section {
    const ALL: [(Section, &str, &str); 3] = [
        (Section::Running, "/", "Running jobs"),
        (Section::Ended, "/ended", "Ended jobs"),
        (Section::Trackers, "/trackers", "Task trackers"),
    ];
}

/// What is around a page.
#[derive(Clone, Debug)]
pub(super) struct Frame<'a> {
    /// The page, for people: the heading and the window.
    pub(super) title: &'a str,
    /// The section that it belongs to.
    pub(super) section: Option<Section>,
    /// The name of this service.
    pub(super) host: &'a str,
    /// When it was made.
    pub(super) now: Millis,
    /// The least pause between two looks of one browser; `None` for a page that does not change.
    pub(super) refresh_ms: Option<u64>,
    /// Where the cluster manager's pages are.
    pub(super) cluster_manager: Option<&'a str>,
    /// Where the proxy job tracker shows finished jobs.
    pub(super) finished_jobs: Option<&'a str>,
}

/// A whole page.
pub(super) fn page(frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (files::head(frame.title, frame.host))
            body data-refresh-ms=[frame.refresh_ms] data-events="none" {
                a.skip href="#main" { "Skip to the content" }
                (head(frame))
                main #main tabindex="-1" { (content) }
                footer {
                    (as_of(frame.now))
                    ul {
                        @if let Some(address) = frame.finished_jobs {
                            li { a href=(address) { "Finished jobs" } }
                        }
                        li { a href="/api/v1" { "API" } }
                        li { a href="/metrics" { "Metrics" } }
                    }
                }
            }
        }
    }
}

fn head(frame: &Frame<'_>) -> Markup {
    html! {
        header.top {
            div.name {
                a.brand href="/" { span aria-hidden="true" { "◔ " } "Corona" }
                span.host { (frame.host) " jobs" }
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
                    @if let Some(address) = frame.cluster_manager {
                        li { a href=(address) { "Cluster" } }
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

/// A page that only says something.
pub(super) fn notice(frame: &Frame<'_>, sentence: &str) -> Markup {
    page(frame, &html! { h1 { (frame.title) } p { (sentence) } })
}
