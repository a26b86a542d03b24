//! The common parts of requests and responses of all pages.
//!
//! All responses have the same protections: nothing from other sites is loaded or run, and no other
//! site may frame a page or send its forms.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use corona_api::Failure;
use corona_model::text::escape_lines;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Body;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use maud::Markup;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::time::timeout;

/// What is sent back: all at once, or a stream, in the services that have one.
pub type Answer<S = Full<Bytes>> = Response<Either<Full<Bytes>, S>>;

/// Bytes of a form at most.
const FORM_BYTES: usize = 64 * 1024;
/// How long a form may take to arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(20);

/// All resources come from this server, and none is inline.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The parameters of a query or a form, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// From `name=value&name=value`, escaped as forms are.
    pub fn parse(text: &[u8]) -> Parameters {
        Parameters(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }

    /// The first value of this name, unless it is empty; without blanks around it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The same parameters with other values for some names; an empty value takes the name out.
    pub fn with(&self, changes: &[(&str, &str)]) -> Parameters {
        let kept = self.0.iter().filter(|(name, _)| changes.iter().all(|(own, _)| own != name));
        let new = changes.iter().filter(|(_, value)| !value.is_empty());
        let new = new.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Parameters(kept.cloned().chain(new).collect())
    }

    /// The address of a path with these parameters.
    pub fn address(&self, path: &str) -> String {
        if self.0.is_empty() {
            return path.to_owned();
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.0);
        format!("{path}?{}", query.finish())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Adds the parameters of a form.
    pub fn extend(&mut self, more: Parameters) {
        self.0.extend(more.0);
    }

    /// The first values of all parameters but these.
    pub fn others(&self, than: &[&str]) -> Vec<(&str, &str)> {
        let mut others: Vec<(&str, &str)> = Vec::new();
        for (name, value) in self.iter() {
            let is_new = !others.iter().any(|(own, _)| *own == name);
            if is_new && !than.contains(&name) {
                others.push((name, value));
            }
        }
        others
    }
}

/// Reads a form that was sent. `None` when it is too large, too slow, or something else.
pub async fn read_form<B>(headers: &HeaderMap, body: B) -> Option<Parameters>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return None;
    }
    let body = Limited::new(body, FORM_BYTES);
    let read = timeout(FORM_TIMEOUT, std::pin::pin!(body).collect()).await;
    Some(Parameters::parse(&read.ok()?.ok()?.to_bytes()))
}

/// Whether a form may come from this server's own page. Browsers send the origin; a client that
/// does not is no browser, and cannot be tricked by a page.
pub fn is_own_form(headers: &HeaderMap) -> bool {
    let header = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let site = header(&HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return false;
    }
    match (header(&ORIGIN), header(&HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
        }
        (Some(_), None) => false,
    }
}

/// A segment of a path as text.
pub fn decode_segment(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

/// Text as a segment of a path.
pub fn encode_segment(text: &str) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    // A segment of dots would be taken for a step in the tree of paths.
    if text.bytes().all(|byte| byte == b'.') {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, PLAIN).to_string()
}

/// An answer with its content type.
pub fn respond<S>(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer<S> {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// A page.
pub fn html<S>(status: StatusCode, page: Markup) -> Answer<S> {
    respond(status, "text/html; charset=utf-8", page_text(page))
}

/// The text of a page, in which names of peers cannot hide characters or turn what is around them.
pub fn page_text(page: impl Into<String>) -> String {
    let page = page.into();
    match escape_lines(&page) {
        Cow::Owned(escaped) => escaped,
        Cow::Borrowed(_) => page,
    }
}

/// A sentence for a person or a script.
pub fn text<S>(status: StatusCode, sentence: impl Into<String>) -> Answer<S> {
    respond(status, "text/plain; charset=utf-8", sentence.into())
}

/// An error in the form of its path: below `/api` a sentence becomes a [`Failure`].
pub async fn in_form_of<S>(path: &str, answer: Answer<S>) -> Answer<S> {
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_text = answer.headers().get(CONTENT_TYPE).is_some_and(is_plain_text);
    if !(is_error && is_text && (path == "/api" || path.starts_with("/api/"))) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let body = match body {
        Either::Left(sentence) => {
            let Ok(sentence) = sentence.collect().await;
            let error = String::from_utf8_lossy(&sentence.to_bytes()).trim_end().to_owned();
            let json = serde_json::to_string(&Failure { error }).unwrap_or_default();
            head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Either::Left(Full::new(json.into()))
        }
        Either::Right(stream) => Either::Right(stream),
    };
    Response::from_parts(head, body)
}

fn is_plain_text(kind: &HeaderValue) -> bool {
    kind.as_bytes().get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"text/plain"))
}

/// JSON in the form of this program's own interfaces.
pub fn json<S>(status: StatusCode, json: String) -> Answer<S> {
    respond(status, "application/json", json)
}

/// Another address is to be asked, by GET.
pub fn see_other<S>(address: &str) -> Answer<S> {
    let mut answer = text(StatusCode::SEE_OTHER, format!("see {address}\n"));
    // Addresses are made of escaped segments and parameters.
    if let Ok(address) = HeaderValue::from_str(address) {
        answer.headers_mut().insert(LOCATION, address);
    }
    answer
}

/// A file of the program itself. Its address has the version in it, so that it may be kept.
pub fn file<S>(content_type: &'static str, content: &'static str) -> Answer<S> {
    let mut answer = respond(StatusCode::OK, content_type, content);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    answer.headers_mut().insert(CACHE_CONTROL, forever);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_kept_changed_and_escaped() {
        let parameters = Parameters::parse(b"q=a+b%26c&sort=name&q=second&empty=");
        assert_eq!(parameters.get("q"), Some("a b&c"));
        assert_eq!(parameters.get("empty"), Some(""));
        assert_eq!(parameters.text("empty"), None);
        assert_eq!(parameters.text("none"), None);
        let changed = parameters.with(&[("sort", "user"), ("q", ""), ("page", "2")]);
        assert_eq!(changed.address("/sessions"), "/sessions?empty=&sort=user&page=2");
        assert_eq!(parameters.with(&[("q", "<&\"")]).text("q"), Some("<&\""));
        assert_eq!(Parameters::default().address("/"), "/");
    }

    #[test]
    fn segments_come_back_as_they_were() {
        for name in ["202611210005.1", "a/b?c#d%e", "..", ".", "é <script>"] {
            let segment = encode_segment(name);
            assert!(segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
            assert!(!segment.bytes().all(|b| b == b'.'), "{segment}");
            assert_eq!(decode_segment(&segment), name);
        }
        assert_eq!(encode_segment("202611210005.1"), "202611210005.1");
    }

    #[test]
    fn forms_of_other_sites_are_told_apart() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            pairs.iter().map(pair).collect::<HeaderMap>()
        };
        for (own, pairs) in [
            (true, &[][..]),
            (true, &[("origin", "http://cm:50032"), ("host", "cm:50032")]),
            (true, &[("origin", "https://CM"), ("host", "cm"), ("sec-fetch-site", "same-origin")]),
            (false, &[("origin", "http://evil:50032"), ("host", "cm:50032")]),
            (false, &[("origin", "null"), ("host", "cm:50032")]),
            (false, &[("origin", "http://cm:50032")]),
            (false, &[("sec-fetch-site", "cross-site"), ("host", "cm")]),
            (false, &[("sec-fetch-site", "same-site"), ("host", "cm")]),
        ] {
            assert_eq!(is_own_form(&headers(pairs)), own, "{pairs:?}");
        }
    }

    #[tokio::test]
    async fn forms_are_read_within_bounds() {
        let form = |kind: &'static str| {
            let kind = HeaderValue::from_static(kind);
            HeaderMap::from_iter([(CONTENT_TYPE, kind)])
        };
        let urlencoded = form("application/x-www-form-urlencoded; charset=UTF-8");
        let body = |text: &str| Full::new(Bytes::from(text.to_owned()));
        let read = read_form(&urlencoded, body("token=a%20b")).await.unwrap();
        assert_eq!(read.get("token"), Some("a b"));
        assert_eq!(read_form(&form("text/plain"), body("token=a")).await, None);
        assert_eq!(read_form(&urlencoded, body(&"x".repeat(FORM_BYTES + 1))).await, None);
    }

    #[test]
    fn hidden_characters_of_names_are_shown_on_pages() {
        let name = "a\u{202e}b\u{200b}";
        let page = maud::html! { p title=(name) { (name) "\n" } };
        let shown = r"a\u{202e}b\u{200b}";
        assert_eq!(page_text(page), format!("<p title=\"{shown}\">{shown}\n</p>"));
    }

    #[test]
    fn every_answer_is_protected() {
        for answer in [
            text::<Full<Bytes>>(StatusCode::OK, "a"),
            see_other("/sessions"),
            file("text/css", ""),
            json(StatusCode::NOT_FOUND, "{}".into()),
        ] {
            let headers = answer.headers();
            let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }

    #[tokio::test]
    async fn errors_below_the_api_are_failures_and_all_else_stays_as_it_is() {
        let read = async |path: &str, answer: Answer| {
            let (head, body) = in_form_of(path, answer).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let kind = head.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
            (kind, String::from_utf8(body.to_vec()).unwrap())
        };
        let denied = || text(StatusCode::FORBIDDEN, "not \"you\"\n");
        for path in ["/api", "/api/v1", "/api/v1/nodes", "/api/none"] {
            let (kind, body) = read(path, denied()).await;
            assert_eq!(kind, "application/json", "{path}");
            assert_eq!(body, r#"{"error":"not \"you\""}"#);
        }
        for path in ["/", "/apis", "/nodes/api/v1"] {
            assert_eq!(read(path, denied()).await.1, "not \"you\"\n", "{path}");
        }
        let own = json(StatusCode::NOT_FOUND, r#"{"error":"a","more":1}"#.into());
        assert_eq!(read("/api/v1", own).await.1, r#"{"error":"a","more":1}"#);
        assert_eq!(read("/api/v1", text(StatusCode::OK, "ok")).await.1, "ok");
    }
}
