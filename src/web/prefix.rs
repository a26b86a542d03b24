//! Pages behind a proxy that shows them below a path of its own: their links lead through it.

use http_body_util::{BodyExt, Collected, Either, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName};

use crate::exchange::Answer;

/// The header in which a proxy names the path below which it shows a service.
pub const HEADER: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// The longest path of a proxy, in bytes.
const MAX_BYTES: usize = 512;
/// The attributes that hold addresses of pages.
const ATTRIBUTES: [&str; 2] = [" href", " action"];
/// What comes between such an attribute and an address of the service.
const JOINT: &str = "=\"/";

/// The path that a request names; `None` if it is not a plain one.
pub fn of(headers: &HeaderMap) -> Option<String> {
    let path = headers.get(HEADER)?.to_str().ok()?;
    let is_plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%:".contains(&b));
    let is_path = path.starts_with('/') && !path.ends_with('/') && !path.contains("//");
    (is_plain && is_path && path.len() <= MAX_BYTES).then(|| path.to_owned())
}

/// The same page with its links below a path. Files of the program stay where they are, as every service
/// has them.
pub async fn below<S>(answer: Answer<S>, path: &str) -> Answer<S> {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let Either::Left(body) = body else { return Response::from_parts(head, body) };
    let Ok(page): Result<Bytes, _> = body.collect().await.map(Collected::to_bytes);
    let page = match std::str::from_utf8(&page) {
        Ok(text) => links_below(text, path).into(),
        Err(_) => page,
    };
    Response::from_parts(head, Either::Left(Full::new(page)))
}

/// Quotes in texts and values are escaped, so what looks like an attribute is one.
fn links_below(page: &str, path: &str) -> String {
    let mut out = String::with_capacity(page.len() + page.len() / 8);
    let mut rest = page;
    while let Some(at) = rest.find(JOINT) {
        let (before, after) = rest.split_at(at + JOINT.len() - 1);
        out.push_str(before);
        let name = &before[..at];
        let is_link = ATTRIBUTES.iter().any(|attribute| name.ends_with(attribute));
        if is_link && !after.starts_with("//") && !after.starts_with("/static/") {
            out.push_str(path);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;
    use hyper::header::HeaderValue;

    #[test]
    fn links_of_a_page_lead_below_the_path_and_nothing_else_changes() {
        let page = "<link href=\"/static/a.css\"><a class=\"x\" href=\"/\">=\"/</a> \
                    <a href=\"/jobs/j?a=1&amp;b=/c\">href=&quot;/x&quot;</a><a href=\"//h/x\"></a>\
                    <form method=\"get\" action=\"/jobs/j\"><input value=\"/v\"></form>\
                    <a href=\"http://h/x\"></a>";
        let expected =
            page.replace("href=\"/\"", "href=\"/p/h:1/\"").replace("\"/jobs/j", "\"/p/h:1/jobs/j");
        assert_eq!(links_below(page, "/p/h:1"), expected);
    }

    #[tokio::test]
    async fn only_pages_are_changed() {
        use crate::exchange::{json, respond};
        let text = "<a href=\"/x\">";
        for (answer, expected) in [
            (respond(StatusCode::OK, "text/html; charset=utf-8", text), "<a href=\"/p/x\">"),
            (json(StatusCode::OK, text.to_owned()), text),
        ] {
            let answer: Answer = below(answer, "/p").await;
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn a_path_is_plain() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_static(value));
            of(&headers)
        };
        assert_eq!(of("/proxy/h:1").as_deref(), Some("/proxy/h:1"));
        for wrong in ["", "/", "p", "//elsewhere", "/p/", "/p\"x", "/a b", "/<p>"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
