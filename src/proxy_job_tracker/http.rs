//! The web server: which page is at which address, for browsers, clients and scripts.
//! Spec: mapreduce/08 §8.8.

use std::sync::Arc;

use http_body_util::Either;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};
use tokio::sync::watch;

use super::ProxyContext;
use super::histories::HistoryError;
use super::relay::{Address, Wanted};
use super::sessions::Target;
use corona_access::Peer;
use corona_config::HostPort;
use corona_mapreduce::JobId;
pub(super) use corona_web::exchange::Parameters;
use corona_web::exchange::{self, Answer, respond, text};
use corona_web::operator::{Objection, read_own_form};
use corona_web::prometheus;
use corona_web::server::{Front, RequestBody, Site};

/// A body that is sent piece by piece. Its errors end the connection.
pub(super) type PageBody = UnsyncBoxBody<Bytes, std::io::Error>;
/// A reply.
pub(super) type Page = Answer<PageBody>;

impl Site for ProxyContext {
    type Stream = PageBody;

    fn front(&self) -> &Front {
        &self.front
    }

    async fn metrics(self: Arc<Self>, _: Parameters) -> Page {
        let own = self.clone();
        self.front.make_metrics(move || prometheus::answer(super::metrics::render(&own))).await
    }

    async fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        caller: Peer,
        _stop: watch::Receiver<bool>,
    ) -> Page {
        let caller = &caller;
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let query = Parameters::parse(head.uri.query().unwrap_or_default().as_bytes());
        if let Some(place) = path.strip_prefix("/proxy/") {
            let rest = head.uri.path_and_query().map_or("", |both| both.as_str());
            let rest = rest.strip_prefix("/proxy/").unwrap_or(place);
            return match head.method {
                Method::GET | Method::HEAD => self.page_at(caller, rest, None).await,
                Method::POST => match read_own_form(&head.headers, body).await {
                    Ok(form) => self.page_at(caller, rest, Some(form)).await,
                    Err(objection) => refuse_form(&objection),
                },
                _ => wrong_method(),
            };
        }
        match (path, &head.method) {
            ("/proxy", &Method::POST) => self.proxy_post(caller, &head.headers, body, query).await,
            ("/proxy", &Method::GET | &Method::HEAD) => self.proxy(caller, &query).await,
            (_, &Method::GET | &Method::HEAD) => {
                super::pages::answer(&self, path, &query).await.unwrap_or_else(no_page)
            }
            _ => wrong_method(),
        }
    }
}

impl ProxyContext {
    /// Where the cluster manager's pages are. They may listen on all addresses of its machine.
    pub(super) fn cluster_pages(&self) -> Option<String> {
        let pages = &self.settings.cluster_manager_pages;
        let host = self.settings.cluster_manager.host.clone();
        pages.page_address().or_else(|| HostPort { host, port: pages.port }.page_address())
    }

    /// A page of a job tracker, at `HOST:PORT/PAGE`, where links of its pages lead. When the job tracker
    /// has ended, a page of a job leads to its history.
    async fn page_at(
        self: Arc<Self>,
        caller: &Peer,
        address: &str,
        form: Option<Parameters>,
    ) -> Page {
        let (place, page) = address.split_once('/').unwrap_or((address, ""));
        let place = exchange::decode_segment(place);
        let (host, port) = place.rsplit_once(':').unwrap_or((&place, ""));
        let segments = page.split(['/', '?']).map(exchange::decode_segment);
        let job = segments.filter_map(|segment| segment.parse::<JobId>().ok()).next();
        let announced = match Target::of(host, port) {
            Some(target) => {
                self.sessions.announced(&target, job.as_ref().and_then(JobId::session)).await
            }
            None => None,
        };
        let is_form = form.is_some();
        if let Some(target) = &announced {
            let form = form.map(|form| encoded(form.iter()));
            let wanted = Wanted { caller, address: Address::Path, path: &slashed(page), form };
            if let Some(page) = self.relayed(target, wanted).await {
                return page;
            }
        }
        match job.filter(|_| !is_form) {
            Some(job) => {
                exchange::see_other(&format!("/jobs/{}", exchange::encode_segment(job.as_str())))
            }
            None => could_not_connect(host, port, announced.is_some()),
        }
    }

    /// The answer of a job tracker, or the page that replaces it; none where the history of the job may replace it.
    async fn relayed(&self, target: &Target, wanted: Wanted<'_>) -> Option<Page> {
        match self.relay.pass(&self.sessions, target, wanted).await {
            Ok(page) => Some(page),
            Err(error) => {
                tracing::info!(%target, %error, "a job tracker does not answer");
                error.page()
            }
        }
    }

    /// A job, wherever it is: its job tracker's pages while it runs, then its history.
    async fn proxy(self: Arc<Self>, caller: &Peer, query: &Parameters) -> Page {
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
        let session = job.as_ref().and_then(JobId::session);
        let (host, port) = (query.get("host"), query.get("port"));
        if let (Some(host), Some(port)) = (host, port) {
            let announced = match Target::of(host, port) {
                Some(target) => self.sessions.announced(&target, session).await,
                None => None,
            };
            if let Some(target) = &announced {
                let path = relayed_path(query, &["host", "port", "path", "jobhistoryfileloc"]);
                let address = Address::Query;
                let wanted = Wanted { caller, address, path: &path, form: None };
                if let Some(page) = self.relayed(target, wanted).await {
                    return page;
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
        let url = match session {
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
        let file = super::pages::file_of(self, None, query).await;
        match file {
            Ok(file) if file.is_done || query.get("host").is_some() => {
                Some(super::pages::job_page(self, file).await)
            }
            Ok(file) => {
                let session = file.job.session()?;
                match self.sessions.url(session).await {
                    Some(_) => None,
                    None => Some(super::pages::job_page(self, file).await),
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
    async fn proxy_post(
        self: Arc<Self>,
        caller: &Peer,
        headers: &HeaderMap,
        body: impl RequestBody,
        mut query: Parameters,
    ) -> Page {
        match read_own_form(headers, body).await {
            Ok(form) => query.extend(form),
            Err(objection) => return refuse_form(&objection),
        }
        let (Some(host), Some(port), Some(path)) =
            (query.get("host"), query.get("port"), query.get("path"))
        else {
            return missing_parameters();
        };
        let session = query.get("jobid").and_then(|job| job.parse::<JobId>().ok());
        let session = session.as_ref().and_then(JobId::session);
        let target = match Target::of(host, port) {
            Some(target) => self.sessions.announced(&target, session).await,
            None => None,
        };
        let Some(target) = target else { return could_not_connect(host, port, false) };
        let form = Some(encoded(query.others(&["host", "port", "path"])));
        let wanted = Wanted { caller, address: Address::Query, path: &slashed(path), form };
        match self.relay.pass(&self.sessions, &target, wanted).await {
            Ok(page) => page,
            Err(error) => {
                tracing::info!(%target, %error, "a job tracker does not answer to a form");
                error.page().unwrap_or_else(|| could_not_connect(host, port, true))
            }
        }
    }

    /// Forgets the history of a job that is in memory.
    pub(super) fn forget_history(&self, job: &str) {
        self.histories.forget(job);
    }
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

/// The original's text. An address that requests are not relayed to is refused.
fn could_not_connect(host: &str, port: &str, is_announced: bool) -> Page {
    let (status, unknown) = match is_announced {
        true => (StatusCode::OK, ""),
        false => (StatusCode::FORBIDDEN, " No running job has announced this address."),
    };
    let sentence = format!(
        "Could not connect to Job Tracker at {host}:{port}. The job may have completed or been \
         killed. Please go to the Cluster Manager UI and click on your job again, or retry the \
         tracking URL if available.{unknown}"
    );
    text(status, sentence)
}

/// The fields of a form as browsers send them.
fn encoded<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

fn refuse_form(objection: &Objection) -> Page {
    text(objection.status(), format!("{}\n", objection.sentence()))
}

fn wrong_method() -> Page {
    let sentence = "only GET and HEAD are supported, and POST for /proxy\n";
    text(StatusCode::METHOD_NOT_ALLOWED, sentence)
}

fn missing_parameters() -> Page {
    text(StatusCode::BAD_REQUEST, "Missing mandatory host and/or port parameters\n")
}

fn no_page() -> Page {
    text(StatusCode::NOT_FOUND, "There is nothing at this address.\n")
}

/// A reply whose body is sent piece by piece.
pub(super) fn begun(status: StatusCode, kind: &'static str, body: PageBody) -> Page {
    respond(status, kind, Bytes::new()).map(|_: Either<_, PageBody>| Either::Right(body))
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
}
