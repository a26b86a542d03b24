//! Changes that an operator makes from a page: the form with the token, and why it is not accepted.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::HeaderMap;
use maud::{Markup, html};

use super::exchange::{Parameters, is_own_form, read_form};

/// A form that was sent, or why it is not taken.
pub type Form = Result<Parameters, Objection>;

/// What is wrong with a form that was sent, or with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The token is not the configured one.
    WrongToken,
    /// The last wrong token of the sender is too short a while ago.
    TooSoon,
    /// The form could not be read.
    Unreadable,
    /// The form comes from another site, as its headers say.
    Foreign,
    /// The service refuses it, with this sentence.
    Refused(&'static str),
}

impl Objection {
    /// The reason of the refusal. The page adds its consequence.
    pub fn sentence(self) -> &'static str {
        match self {
            Objection::WrongToken => "Wrong token.",
            Objection::TooSoon => {
                "A wrong token was entered from your address. Wait for up to a minute and try again."
            }
            Objection::Unreadable => "The request was rejected: its form could not be read.",
            Objection::Foreign => {
                "The request was rejected: it did not come from this page. A proxy must forward the Host header unchanged. The log has the received headers Host and Origin."
            }
            Objection::Refused(sentence) => sentence,
        }
    }

    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Objection::WrongToken | Objection::Foreign => StatusCode::FORBIDDEN,
            Objection::TooSoon => StatusCode::TOO_MANY_REQUESTS,
            Objection::Unreadable => StatusCode::BAD_REQUEST,
            Objection::Refused(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Reads a form that one of these pages has sent.
pub async fn read_own_form<B>(headers: &HeaderMap, body: B) -> Form
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    if !is_own_form(headers) {
        let seen = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (origin, host) = (seen("origin").unwrap_or_default(), seen("host").unwrap_or_default());
        tracing::warn!(
            "Rejected a form that did not come from this page: Origin is {origin:?} and Host is {host:?}; \
             a proxy must pass on both unchanged"
        );
        return Err(Objection::Foreign);
    }
    read_form(headers, body).await.ok_or(Objection::Unreadable)
}

/// The field for the token in a form of an operator; the token is the value of `key`.
pub fn token_field(objection: Option<Objection>, key: &str) -> Markup {
    let wrong = objection == Some(Objection::WrongToken);
    html! {
        div {
            label for="token" { "Token" }
            input #token type="password" name="token" required autocomplete="off"
                aria-describedby="token-help" aria-invalid=[wrong.then_some("true")];
            p.note #token-help { "The value of " (key) "." }
        }
    }
}
