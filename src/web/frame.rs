//! The frame of the pages of all services. Contents are written with [`units`](crate::units).

use corona_model::types::Millis;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::files;
use crate::units::as_of;

/// An address and its text; left out without an address.
pub type Link<'a> = (Option<String>, &'a str);

/// When a browser reads a page again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Updates {
    /// Only when a person asks for it.
    #[default]
    None,
    /// From time to time.
    Polled,
    /// After the service's events.
    Events,
}

/// The frame around a page.
#[derive(Clone, Debug, Default)]
pub struct Frame<'a> {
    /// The page's name in the window.
    pub title: &'a str,
    /// The service's name in the window.
    pub host: &'a str,
    /// The service's name at the top.
    pub service: String,
    /// A mark beside it.
    pub mark: Option<Markup>,
    /// Addresses and names of the pages that every page leads to.
    pub sections: &'a [(&'a str, &'a str)],
    /// The address of the section to which the page belongs.
    pub section: Option<&'a str>,
    /// Pages of other services.
    pub elsewhere: Vec<Link<'a>>,
    /// Links at the end.
    pub links: Vec<Link<'a>>,
    /// When the page was made.
    pub now: Millis,
    /// The least pause between two looks of one browser; `None` for a page that does not change.
    pub refresh_ms: Option<u64>,
    /// When a browser reads it again.
    pub updates: Updates,
}

impl Frame<'_> {
    /// A whole page.
    pub fn page(&self, content: &Markup) -> Markup {
        let [before, after] = self.around();
        html! { (before) (content) (after) }
    }

    /// A page with only a sentence.
    pub fn notice(&self, sentence: &str) -> Markup {
        self.page(&html! { h1 { (self.title) } p { (sentence) } })
    }

    /// The parts of a page before and after its content.
    pub fn around(&self) -> [Markup; 2] {
        let body = html! {
            body data-refresh-ms=[self.refresh_ms]
                data-events=[(self.updates == Updates::Polled).then_some("none")] {}
        };
        let body = body.into_string().replace("</body>", "");
        let before = html! {
            (DOCTYPE)
            (PreEscaped("<html lang=\"en\">"))
            (files::head(self.title, self.host))
            (PreEscaped(body))
            a.skip href="#main" { "Skip to the content" }
            (self.top())
            (PreEscaped("<main id=\"main\" tabindex=\"-1\">"))
        };
        let after = html! {
            (PreEscaped("</main>"))
            footer { (as_of(self.now)) ul { (list(&self.links)) } }
            (PreEscaped("</body></html>"))
        };
        [before, after]
    }

    fn top(&self) -> Markup {
        let current = |path| (self.section == Some(path)).then_some("page");
        html! {
            header.top {
                div.name {
                    a.brand href="/" { span aria-hidden="true" { "◔ " } "Corona" }
                    span.host { (self.service) }
                    @if let Some(mark) = &self.mark { (mark) }
                }
                @if !self.sections.is_empty() {
                    nav aria-label="Pages" {
                        ul {
                            @for &(path, name) in self.sections {
                                li { a href=(path) aria-current=[current(path)] { (name) } }
                            }
                            (list(&self.elsewhere))
                        }
                    }
                }
                @if self.updates != Updates::None {
                    // The script shows and fills it.
                    div.live #live hidden {
                        button #live-toggle type="button" aria-pressed="true" { "Live" }
                        span #live-time {}
                    }
                }
            }
            @if self.updates != Updates::None {
                p.unseen #live-news role="status" aria-live="polite" {}
            }
        }
    }
}

fn list(links: &[Link<'_>]) -> Markup {
    html! {
        @for (address, text) in links {
            @if let Some(address) = address { li { a href=(address) { (text) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_load_nothing_from_elsewhere_and_hold_no_style_or_script_in_place() {
        let frame = Frame {
            title: "<title>",
            host: "h\"<",
            sections: &[("/", "Cluster"), ("/nodes", "Nodes")],
            section: Some("/nodes"),
            elsewhere: vec![(Some("//jt/".into()), "Running jobs"), (None, "Finished jobs")],
            refresh_ms: Some(1000),
            updates: Updates::Polled,
            ..Frame::default()
        };
        let page = frame.notice("a & b").into_string();
        for part in [
            "<title>&lt;title&gt; – h&quot;&lt; – Corona</title>",
            "<a href=\"/nodes\" aria-current=\"page\">Nodes</a>",
            "<li><a href=\"//jt/\">Running jobs</a></li></ul></nav>",
            "<body data-refresh-ms=\"1000\" data-events=\"none\"><a class=\"skip\"",
            "<p>a &amp; b</p></main><footer>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!(page.matches("aria-current").count(), 1);
        for unwanted in ["style=", "onclick", "<style", "http://", "https://", "javascript:"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
    }
}
