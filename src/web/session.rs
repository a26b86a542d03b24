//! Whether a request may be answered: by the certificate of its connection, the session of a browser or
//! the token of a script.
//!
//! A browser opens a one-time link, `/access?code=`, and presses its button; programs that look at the links of a
//! message press none. It gets a session and its cookie, and is sent to the first page. A browser sends a cookie
//! to every port of the host, so a session sees what the role read sees, and changes something only by the forms
//! that ask for the operator's token. Scripts send their token in `Authorization: Bearer`. Both only within TLS.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use corona_access::{
    Gate, Noted, Peer, PlainPeer, PlainPeers, last_actions, last_actions_as_text, rights,
};
use hyper::header::{
    ACCEPT, AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue, LOCATION, SET_COOKIE,
    WWW_AUTHENTICATE,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use maud::{DOCTYPE, html};
use tokio::sync::watch;

use crate::exchange::{self, Answer, Parameters, is_own_form, text};

/// Who makes a request that may be answered.
#[derive(Debug)]
pub struct Admitted {
    /// The peer, or the member whose session or token it has shown; of a session, with what that may do.
    pub who: Peer,
    /// What is noted of the request.
    pub noted: Noted,
}

/// Who makes a request, or the answer to one that is answered here: a one-time link, and what its peer may not do.
pub fn admit<S, B>(
    gate: &Gate,
    request: &Request<B>,
    peer: &Peer,
) -> ControlFlow<Answer<S>, Admitted> {
    let (path, method) = (request.uri().path(), request.method());
    if gate.is_off() {
        return Continue(Admitted { who: peer.clone(), noted: Noted::default() });
    }
    // It is everybody's, so no page of a service may be at this path.
    if path == rights::SESSION_PATH {
        return Break(match peer.is_tls() {
            true => begin(gate, request, peer),
            false => unknown(request, peer, "access to this cluster is needed"),
        });
    }
    let shown = shown(gate, request.headers(), peer);
    let is_form = method == Method::POST && rights::is_operators_form(path);
    let who = match &shown {
        Credential::Nothing => peer.clone(),
        Credential::Session(holder) if !is_form => holder.as_observer(),
        Credential::Session(holder) | Credential::Token(holder) => holder.clone(),
    };
    let needed = || rights::page(method.as_str(), path);
    let objection = who.objection(needed).map(|objection| match &shown {
        Credential::Session(holder) if holder.objection(needed).is_none() => {
            "the session of a browser may not do this; send a token".to_owned()
        }
        _ => objection,
    });
    let Some(objection) = objection else {
        let noted = who.note(method.as_str(), path);
        let answer = match (method, path) {
            (&Method::GET, rights::PEERS_PATH) => Some(text(StatusCode::OK, plain_peers())),
            (&Method::GET, rights::AUDIT_PATH) => Some(audit(request)),
            _ => None,
        };
        return match answer {
            Some(answer) => Break(answer),
            None => Continue(Admitted { who, noted }),
        };
    };
    tracing::debug!(peer = %who, path, objection, "Refused a request");
    Break(match who.identified() {
        Some(_) => text(StatusCode::FORBIDDEN, format!("{objection}\n")),
        None => unknown(request, peer, &objection),
    })
}

/// Serves a connection until the access of a member ends that has made the last request with a session or a token,
/// or this itself. One that has shown its certificate loses the connection in any case.
pub async fn serve<F: Future<Output = ()>>(peer: &Peer, serving: impl FnOnce(Last) -> F) {
    let (last, mut shown) = watch::channel(peer.clone());
    let revoked = async {
        loop {
            let who = shown.borrow_and_update().clone();
            tokio::select! {
                () = who.access_ends() => return,
                changed = shown.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = serving(Last(Arc::new(last))) => {}
        () = revoked => {}
    }
}

/// Notes what became of a request.
pub fn end(noted: Noted, status: StatusCode) {
    let is_done = status.is_success() || status.is_redirection();
    noted.end(if is_done { Ok(()) } else { Err(&status) });
}

/// Who has made the last request of a connection.
#[derive(Clone, Debug)]
pub struct Last(Arc<watch::Sender<Peer>>);

impl Last {
    /// This is who makes the next one.
    pub fn is(&self, who: Peer) {
        self.0.send_replace(who);
    }
}

/// What a request shows of its maker beside the certificate of its connection.
enum Credential {
    Nothing,
    /// The session of a browser.
    Session(Peer),
    /// The token of a script.
    Token(Peer),
}

fn shown(gate: &Gate, headers: &HeaderMap, peer: &Peer) -> Credential {
    if !peer.is_tls() {
        return Credential::Nothing;
    }
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) {
        return gate
            .holder(token.trim(), peer.address)
            .map_or(Credential::Nothing, Credential::Token);
    }
    let session = gate.cookie_name().and_then(|name| cookie(headers, &name));
    let holder = session.and_then(|session| gate.browser(session, peer.address));
    holder.map_or(Credential::Nothing, Credential::Session)
}

/// The answer to a peer that has shown nothing.
fn unknown<S, B>(request: &Request<B>, peer: &Peer, objection: &str) -> Answer<S> {
    if !peer.is_tls()
        && let Some(address) = within_tls(request)
        && let Ok(location) = HeaderValue::try_from(&address)
    {
        // For now: the cluster may be opened again.
        let mut answer = text(StatusCode::TEMPORARY_REDIRECT, format!("see {address}\n"));
        answer.headers_mut().insert(LOCATION, location);
        return answer;
    }
    let advice = match peer.is_tls() {
        true => "open a link of 'corona open' for this address, or send a token in Authorization",
        false => "this port needs TLS: use https://",
    };
    let mut refused = text(StatusCode::UNAUTHORIZED, format!("{objection}: {advice}\n"));
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

/// The same address within TLS, for a browser that has followed a link of a cluster that was open.
fn within_tls<B>(request: &Request<B>) -> Option<String> {
    let header = |name| request.headers().get(name)?.to_str().ok();
    let is_browser = header(ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    let host: Authority = header(HOST)?.parse().ok()?;
    let path = request.uri().path_and_query()?;
    (is_browser && is_look).then(|| format!("https://{host}{path}"))
}

/// Shows the button of a one-time link, or begins the session of the browser that has pressed it.
fn begin<S, B>(gate: &Gate, request: &Request<B>, peer: &Peer) -> Answer<S> {
    let query = Parameters::parse(request.uri().query().unwrap_or_default().as_bytes());
    let code = query.text("code").unwrap_or_default();
    match *request.method() {
        Method::GET => exchange::html(StatusCode::OK, button(code)),
        Method::POST if is_own_form(request.headers()) => begun(gate, code, peer),
        Method::POST => text(StatusCode::FORBIDDEN, "The form of another site was sent.\n"),
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are supported\n"),
    }
}

fn button(code: &str) -> maud::Markup {
    let address = Parameters::default().with(&[("code", code)]).address(rights::SESSION_PATH);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Corona" }
            }
            body {
                p { "This link lets this browser see the pages of a cluster for twelve hours." }
                form method="post" action=(address) {
                    button type="submit" autofocus { "Open the pages" }
                }
            }
        }
    }
}

fn begun<S>(gate: &Gate, code: &str, peer: &Peer) -> Answer<S> {
    let (Some(session), Some(name)) = (gate.redeem(code), gate.cookie_name()) else {
        tracing::warn!(%peer, "A one-time link was used that is unknown, used or too old");
        let refused = "The link has been used or is too old. Get another one.\n";
        return text(StatusCode::FORBIDDEN, refused);
    };
    let cookie = format!("{name}={session}; Path=/; Secure; HttpOnly; SameSite=Strict");
    let mut answer = text(StatusCode::SEE_OTHER, "see /\n");
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    // A session has printable characters only.
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

/// The last actions, as text or as JSON.
fn audit<S, B>(request: &Request<B>) -> Answer<S> {
    let query = Parameters::parse(request.uri().query().unwrap_or_default().as_bytes());
    match query.text("output") {
        // It is made of texts and numbers.
        Some("json") => {
            let json = serde_json::to_string(&last_actions()).unwrap_or_default();
            exchange::json(StatusCode::OK, json)
        }
        _ => text(StatusCode::OK, last_actions_as_text()),
    }
}

/// The peers without TLS that this process has counted, a line for each address.
fn plain_peers() -> String {
    let (peers, others) = PlainPeers::of_process().counts();
    let line = |name: &str, peer: PlainPeer| format!("{name} {} {}\n", peer.served, peer.refused);
    let known = peers.into_iter().map(|(address, peer)| line(&address.to_string(), peer));
    let others = (others != PlainPeer::default()).then(|| line("others", others));
    std::iter::once("address served refused\n".to_owned()).chain(known).chain(others).collect()
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| own.trim() == name).map(|(_, value)| value.trim())
}
