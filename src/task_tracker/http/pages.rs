//! Pages besides map output and logs. Their contents are made elsewhere.

use super::tasklog::LogBody;
use corona_web::exchange::Answer;

/// The resource at an address.
pub type Page = Answer<LogBody>;

/// Makes pages.
pub trait Pages: Send + Sync + 'static {
    /// The page at this path; `None` if there is none. It may block.
    fn page(&self, path: &str, query: &str) -> Option<Page>;

    /// All metrics. It may block.
    fn metrics(&self) -> String;

    /// Why the process does not work; `None` while it does. That takes neither time nor a disk.
    fn sickness(&self) -> Option<String>;
}

/// Has nothing to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPages;

impl Pages for NoPages {
    fn page(&self, _path: &str, _query: &str) -> Option<Page> {
        None
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn sickness(&self) -> Option<String> {
        None
    }
}
