//! Whether a request may be answered: by the certificate of its connection, the session of a browser or
//! the token of a script.
//!
//! A browser opens a one-time link, `/access?code=`, gets a session and its cookie, and is sent to the
//! first page. Scripts send their token in `Authorization: Bearer`. Both only within TLS.

use corona_access::{Gate, Peer, PlainPeer, PlainPeers, last_actions, rights};
use hyper::header::{
    ACCEPT, AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue, LOCATION, SET_COOKIE,
    WWW_AUTHENTICATE,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use maud::{DOCTYPE, html};

use crate::exchange::{self, Answer, Parameters, text};

/// Who makes a request: the member whose session or token comes with it, otherwise the peer.
pub fn caller<B>(gate: &Gate, request: &Request<B>, peer: &Peer) -> Peer {
    let holder = gate
        .cookie_name()
        .filter(|_| peer.is_tls())
        .and_then(|cookie| token(request.headers(), &cookie))
        .and_then(|token| gate.holder(token, peer.address));
    holder.unwrap_or_else(|| peer.clone())
}

/// The answer to a one-time link, and to a request that its [`caller`] may not make; `None` if it may.
pub fn answer<S, B>(gate: &Gate, request: &Request<B>, caller: &Peer) -> Option<Answer<S>> {
    if gate.is_off() {
        return None;
    }
    let (path, method) = (request.uri().path(), request.method());
    if path == rights::SESSION_PATH && matches!(*method, Method::GET | Method::HEAD) {
        // No site sees this path: it is open to everybody.
        let query = request.uri().query().unwrap_or_default();
        return Some(match (method, caller.is_tls()) {
            (&Method::GET, true) => begin(gate, query, caller),
            _ => unknown(request, caller, "a session begins with its link, within TLS"),
        });
    }
    let Some(objection) = caller.objection(|| rights::page(method.as_str(), path)) else {
        caller.note(method.as_str(), path);
        return match (method, path) {
            (&Method::GET, rights::PEERS_PATH) => Some(text(StatusCode::OK, plain_peers())),
            (&Method::GET, rights::AUDIT_PATH) => Some(text(StatusCode::OK, last_actions())),
            _ => None,
        };
    };
    tracing::debug!(peer = %caller, path, objection, "Refused a request");
    if caller.identified().is_some() {
        return Some(text(StatusCode::FORBIDDEN, format!("{objection}\n")));
    }
    Some(unknown(request, caller, &objection))
}

/// The answer to a peer that has to show who it is.
fn unknown<S, B>(request: &Request<B>, peer: &Peer, objection: &str) -> Answer<S> {
    if !peer.is_tls()
        && let Some(address) = within_tls(request)
        && let Ok(to) = HeaderValue::try_from(&address)
    {
        let mut answer = text(StatusCode::PERMANENT_REDIRECT, format!("see {address}\n"));
        answer.headers_mut().insert(LOCATION, to);
        return answer;
    }
    let advice = match peer.is_tls() {
        true => "open a one-time link of this daemon, or send a token in Authorization",
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

/// Begins the session of a browser.
fn begin<S>(gate: &Gate, query: &str, peer: &Peer) -> Answer<S> {
    let query = Parameters::parse(query.as_bytes());
    let token = query.text("code").and_then(|code| gate.redeem(code));
    let (Some(token), Some(name)) = (token, gate.cookie_name()) else {
        tracing::warn!(%peer, "A one-time link was used that is unknown, used or too old");
        let refused = "The link has been used or is too old. Get another one.\n";
        return text(StatusCode::FORBIDDEN, refused);
    };
    let cookie = format!("{name}={token}; Path=/; Secure; HttpOnly; SameSite=Strict");
    // The link comes from another place, so the browser would not send the cookie with a redirection.
    let page = html! {
        (DOCTYPE)
        meta http-equiv="refresh" content="0;url=/";
        a href="/" { "Continue" }
    };
    let mut answer = exchange::html(StatusCode::OK, page);
    // A token has printable characters only.
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

/// The peers without TLS that this process has counted, a line for each address.
fn plain_peers() -> String {
    let (peers, others) = PlainPeers::of_process().counts();
    let line = |name: &str, peer: PlainPeer| format!("{name} {} {}\n", peer.served, peer.refused);
    let known = peers.into_iter().map(|(address, peer)| line(&address.to_string(), peer));
    let others = (others != PlainPeer::default()).then(|| line("others", others));
    std::iter::once("address served refused\n".to_owned()).chain(known).chain(others).collect()
}

/// The token of a request.
fn token<'a>(headers: &'a HeaderMap, cookie: &str) -> Option<&'a str> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) {
        return Some(token.trim());
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| own.trim() == cookie).map(|(_, token)| token.trim())
}
