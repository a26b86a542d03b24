//! Whether a request may be answered: by the certificate of its connection, the session of a browser or
//! the token of a script.
//!
//! A browser opens a one-time link, `/access?code=`, gets a session and its cookie, and is sent to the
//! first page. Scripts send their token in `Authorization: Bearer`. Both only within TLS.

use bytes::Bytes;
use corona_access::{Gate, Peer, rights};
use http_body_util::{Either, Full};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, SET_COOKIE, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};

use crate::exchange::{Answer, Parameters, text};

/// The answer to a one-time link, and to a request that its peer may not make; `None` if it may.
pub fn answer<S, B>(
    gate: &Gate,
    request: &Request<B>,
    peer: &Peer,
    port: u16,
) -> Option<Answer<S>> {
    let (path, method) = (request.uri().path(), request.method());
    if path == rights::SESSION_PATH && method == Method::GET && peer.is_tls() {
        let query = request.uri().query().unwrap_or_default();
        return Some(begin(gate, query, peer, port));
    }
    let holder = session(request.headers(), port)
        .filter(|_| peer.is_tls())
        .and_then(|token| gate.holder(token, peer.address));
    let who = holder.as_ref().unwrap_or(peer);
    let objection = who.objection(|| rights::page(method.as_str(), path))?;
    tracing::debug!(peer = %who, path, objection, "Refused a request");
    if who.identified().is_some() {
        return Some(text(StatusCode::FORBIDDEN, format!("{objection}\n")));
    }
    let advice = match peer.is_tls() {
        true => "open the pages with `corona open`, or send a token in Authorization",
        false => "this port needs TLS: use https://, by `corona open`",
    };
    let mut refused = text(StatusCode::UNAUTHORIZED, format!("{objection}: {advice}\n"));
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(refused)
}

/// Begins the session of a browser.
fn begin<S>(gate: &Gate, query: &str, peer: &Peer, port: u16) -> Answer<S> {
    let query = Parameters::parse(query.as_bytes());
    let token = query.text("code").and_then(|code| gate.redeem(code));
    let Some(token) = token else {
        tracing::warn!(%peer, "A one-time link was used that is unknown, used or too old");
        let refused = "The link has been used or is too old. Run `corona open` again.\n";
        return text(StatusCode::FORBIDDEN, refused);
    };
    let cookie =
        format!("{}={token}; Path=/; Secure; HttpOnly; SameSite=Strict", cookie_name(port));
    // The link comes from another place, so the browser would not send the cookie with a redirection.
    let page = "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0;url=/\"><a href=\"/\">Continue</a>\n";
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from_static(page.as_bytes()))));
    let headers = answer.headers_mut();
    headers
        .insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A token has hexadecimal digits only.
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    answer
}

/// Browsers send the cookies of a host to all its ports.
fn cookie_name(port: u16) -> String {
    format!("corona-{port}")
}

/// The token of a request.
fn session(headers: &HeaderMap, port: u16) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) {
        return Some(token.trim());
    }
    let name = cookie_name(port);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| own.trim() == name).map(|(_, token)| token.trim())
}
