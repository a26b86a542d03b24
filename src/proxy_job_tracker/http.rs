//! The web server: which page is at which address, for browsers, clients and scripts.
//! Spec: mapreduce/08 §8.8.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION,
    ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Shared;
use super::histories::HistoryError;
use super::relay::{Failed, read_form};
use super::sessions::Target;
use corona_mapreduce::JobId;
use corona_net::connections::{Connections, accept};
use corona_net::http;
use corona_web::exchange::POLICY;
pub(super) use corona_web::exchange::Parameters;
use corona_web::{compression, files, prometheus};

/// The body of a reply. Its errors end the connection.
pub(super) type PageBody = UnsyncBoxBody<Bytes, std::io::Error>;
/// A reply.
pub(super) type Page = Response<PageBody>;

/// The largest form, in bytes, and how long it may take to arrive.
const MAX_FORM: usize = 64 << 10;
const FORM_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves pages until `stop` becomes true.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener, stop: watch::Receiver<bool>) {
    let settings = &shared.settings;
    let connections = Connections::new(settings.max_connections, settings.max_connections_per_peer);
    let admit = |peer: std::net::SocketAddr| match connections.admit(peer.ip()) {
        Ok(place) => Some((place, ())),
        Err(_) => {
            tracing::warn!(%peer, "web connection refused: the limit of connections is reached");
            None
        }
    };
    accept(listener, stop, admit, |stream, _, place, ()| {
        let shared = shared.clone();
        async move {
            let answer = |request| {
                let shared = shared.clone();
                async move { shared.answer(request).await }
            };
            http::serve(stream, &place, http::Limits::default(), answer).await;
        }
    })
    .await;
}

impl Shared {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Page {
        let takes_gzip = compression::is_accepted(request.headers());
        let path = request.uri().path().to_owned();
        let query = Parameters::parse(request.uri().query().unwrap_or_default().as_bytes());
        match (&*path, request.method()) {
            ("/healthz" | "/readyz", _) => text(StatusCode::OK, "ok\n"),
            ("/proxy", &Method::GET | &Method::HEAD) => self.proxy(&query).await,
            ("/proxy", &Method::POST) => self.proxy_post(request, query).await,
            ("/metrics", &Method::GET | &Method::HEAD) => {
                let metrics = super::metrics::render(&self);
                whole(StatusCode::OK, prometheus::CONTENT_TYPE, metrics, takes_gzip)
            }
            (_, &Method::GET | &Method::HEAD) => match path.strip_prefix("/static/") {
                Some(name) => static_file(name, takes_gzip),
                None => super::pages::answer(&self, &path, &query, takes_gzip)
                    .await
                    .unwrap_or_else(|| text(StatusCode::NOT_FOUND, "No such page\n")),
            },
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are supported\n"),
        }
    }

    /// A job, wherever it is: its job tracker's pages while it runs, then its history.
    async fn proxy(self: Arc<Self>, query: &Parameters) -> Page {
        let job = match query.get("jobid").map(str::parse::<JobId>) {
            Some(Ok(job)) => Some(job),
            Some(Err(_)) => {
                let job = query.get("jobid").unwrap_or_default();
                // The original answers 500.
                let sentence = format!("JobId string : {job} is not properly formed\n");
                return text(StatusCode::BAD_REQUEST, sentence);
            }
            None => None,
        };
        let session = job.as_ref().and_then(session_of);
        let (host, port) = (query.get("host"), query.get("port"));
        if let (Some(host), Some(port)) = (host, port) {
            let announced = match Target::of(host, port) {
                Some(target) => self.sessions.announced(&target, session.as_deref()).await,
                None => None,
            };
            if let Some(target) = &announced {
                let path = relayed_path(query, &["host", "port", "path", "jobhistoryfileloc"]);
                match self.relay.pass(target, &path, None).await {
                    Ok(page) => return page,
                    Err(Failed::Busy) => return busy(),
                    Err(error) => tracing::info!(%target, %error, "a job tracker does not answer"),
                }
            }
            if let Some(page) = self.history(query).await {
                return page;
            }
            return could_not_connect(host, port, announced.is_some());
        }
        if let Some(page) = self.history(query).await {
            return page;
        }
        let url = match &session {
            Some(session) => self.sessions.url(session).await,
            None => None,
        };
        let is_http = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        match url.filter(is_http).and_then(|url| HeaderValue::from_str(&url).ok()) {
            Some(url) => {
                let mut page = text(StatusCode::FOUND, "");
                page.headers_mut().insert(LOCATION, url);
                page
            }
            None => missing_parameters(),
        }
    }

    /// The page of a job that has a history. A running one has too, so with neither host nor port its
    /// job tracker comes first.
    async fn history(self: &Arc<Self>, query: &Parameters) -> Option<Page> {
        let place = super::pages::place_of(self, None, query).await;
        match place {
            Ok(place) if place.is_done || query.get("host").is_some() => {
                Some(super::pages::job_page(self, place).await)
            }
            Ok(place) => {
                let session = session_of(&place.job)?;
                match self.sessions.url(&session).await {
                    Some(_) => None,
                    None => Some(super::pages::job_page(self, place).await),
                }
            }
            Err(HistoryError::NotFound) => None,
            Err(error) => {
                tracing::warn!(%error, "cannot look for the history of a job");
                None
            }
        }
    }

    /// Passes on a form: kill, priority, and what else a job tracker's pages offer.
    async fn proxy_post(self: Arc<Self>, request: Request<Incoming>, query: Parameters) -> Page {
        if is_of_another_site(&request) {
            return text(StatusCode::FORBIDDEN, "The form is not of a page of this server.\n");
        }
        let Some(form) = read_form(request.into_body(), MAX_FORM, FORM_TIMEOUT).await else {
            return text(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The form is too long, or did not arrive.\n",
            );
        };
        let mut query = query;
        query.extend(Parameters::parse(&form));
        let (Some(host), Some(port), Some(path)) =
            (query.get("host"), query.get("port"), query.get("path"))
        else {
            return missing_parameters();
        };
        let session = query.get("jobid").and_then(|job| job.parse::<JobId>().ok());
        let session = session.as_ref().and_then(session_of);
        let target = match Target::of(host, port) {
            Some(target) => self.sessions.announced(&target, session.as_deref()).await,
            None => None,
        };
        let Some(target) = target else { return could_not_connect(host, port, false) };
        let fields = query.others(&["host", "port", "path"]);
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        match self.relay.pass(&target, &slashed(path), Some(form)).await {
            Ok(page) => page,
            Err(Failed::Busy) => busy(),
            Err(error) => {
                tracing::info!(%target, %error, "a job tracker does not answer to a form");
                could_not_connect(host, port, true)
            }
        }
    }

    /// Forgets the history of a job that is in memory.
    pub(super) fn forget_history(&self, job: &str) {
        self.histories.forget(job);
    }
}

/// The session of a job: `202611210043.7` of `job_202611210043.7_0001`.
pub(super) fn session_of(job: &JobId) -> Option<String> {
    let rest = job.as_str().strip_prefix("job_")?;
    rest.rsplit_once('_').map(|(session, _)| session.to_owned())
}

/// The path that a job tracker gets, with the other parameters.
fn relayed_path(query: &Parameters, than: &[&str]) -> String {
    let path = slashed(query.get("path").unwrap_or_default());
    let others = query.others(than);
    if others.is_empty() {
        return path;
    }
    let joint = if path.contains('?') { '&' } else { '?' };
    let begun = format!("{path}{joint}");
    let start = begun.len();
    form_urlencoded::Serializer::for_suffix(begun, start).extend_pairs(others).finish()
}

fn slashed(path: &str) -> String {
    let rest = path.trim_start_matches('/');
    // What no path may contain is encoded; the rest is the job tracker's business.
    let mut out = String::from("/");
    for byte in rest.bytes() {
        match byte {
            b'!' | b'$'..=b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Whether a browser says that a form is of a page of another server.
fn is_of_another_site(request: &Request<Incoming>) -> bool {
    let header =
        |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = header(ORIGIN) else { return false };
    let own = header(HOST).unwrap_or_default();
    origin.split_once("://").is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(own))
}

/// The original's text.
fn could_not_connect(host: &str, port: &str, is_announced: bool) -> Page {
    let unknown = if is_announced { "" } else { " No running job has announced this address." };
    let sentence = format!(
        "Could not connect to Job Tracker at {host}:{port}. The job may have completed or been \
         killed. Please go to the Cluster Manager UI and click on your job again, or retry the \
         tracking URL if available.{unknown}"
    );
    text(StatusCode::OK, sentence)
}

fn missing_parameters() -> Page {
    text(StatusCode::BAD_REQUEST, "Missing mandatory host and/or port parameters\n")
}

fn busy() -> Page {
    text(StatusCode::SERVICE_UNAVAILABLE, "Too many requests to this job tracker are waiting.\n")
}

fn static_file(name: &str, takes_gzip: bool) -> Page {
    let Some((kind, content)) = files::file(name) else {
        return text(StatusCode::NOT_FOUND, "No such file\n");
    };
    let mut page = whole(StatusCode::OK, kind, content, takes_gzip);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    page.headers_mut().insert(CACHE_CONTROL, forever);
    page
}

/// A short text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Page {
    whole(status, "text/plain; charset=utf-8", text, false)
}

/// A reply whose body is there.
pub(super) fn whole(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
    takes_gzip: bool,
) -> Page {
    let body = body.into();
    let is_packed = takes_gzip && compression::is_worthwhile(kind, body.len());
    let packed = is_packed.then(|| compression::gzip(&body)).and_then(Result::ok);
    let is_packed = packed.is_some();
    let body = Full::new(packed.unwrap_or(body));
    let mut page = begun(status, kind, body_of(body));
    if is_packed {
        compression::mark_compressed(page.headers_mut());
    }
    compression::mark_varying(page.headers_mut());
    page
}

fn body_of(body: Full<Bytes>) -> PageBody {
    PageBody::new(http_body_util::BodyExt::map_err(body, |never| match never {}))
}

/// A reply with the headers of all pages of this program.
pub(super) fn begun(status: StatusCode, kind: &'static str, body: PageBody) -> Page {
    let mut page = Response::new(body);
    *page.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
    ] {
        page.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_passed_on_once_and_encoded() {
        let query =
            Parameters::parse(b"host=h&port=1&path=a.jsp&jobid=j&x=a%26b&x=c&jobhistoryfileloc=/f");
        let than = ["host", "port", "path", "jobhistoryfileloc"];
        assert_eq!(relayed_path(&query, &than), "/a.jsp?jobid=j&x=a%26b");
        let query = Parameters::parse(b"path=//a.jsp%3Fb=c%20d%0D%0AX:+y");
        assert_eq!(relayed_path(&query, &["path"]), "/a.jsp?b=c%20d%0D%0AX:%20y");
    }

    #[test]
    fn the_session_of_a_job_is_in_its_id() {
        let session = |job: &str| session_of(&job.parse().unwrap());
        assert_eq!(session("job_202611210043.7_0001").as_deref(), Some("202611210043.7"));
        assert_eq!(session("job_202611210043_0001").as_deref(), Some("202611210043"));
    }
}
