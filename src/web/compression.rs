//! Compression of responses for clients that accept it: gzip, at the cheapest level.
//!
//! It knows no page and no connection. The caller chooses the thread.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY,
};

/// Shorter bodies travel in one packet either way.
const LEAST_BYTES: usize = 1024;

/// Whether a request accepts a compressed answer: `gzip` or `*`, unless with `q=0`.
pub fn is_accepted(request: &HeaderMap) -> bool {
    let codings = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in codings.flat_map(|value| value.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
        let wanted = !matches!(weight, Some(Ok(weight)) if weight <= 0.0);
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return wanted,
            "*" => any = wanted,
            _ => {}
        }
    }
    any
}

/// Whether a body of this content type and length becomes smaller, and is sent as a whole.
pub fn is_worthwhile(content_type: &str, length: usize) -> bool {
    length >= LEAST_BYTES && is_text(content_type)
}

/// Informs caches that the answer depends on the request's `Accept-Encoding`.
pub fn mark_varying(answer: &mut HeaderMap) {
    if is_text(content_type(answer)) {
        answer.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// Marks the body as compressed.
pub fn mark_compressed(answer: &mut HeaderMap) {
    answer.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
}

/// The content type of an answer; empty if it has none.
pub fn content_type(answer: &HeaderMap) -> &str {
    answer.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

fn is_text(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/") && kind != "text/event-stream"
        || matches!(kind, "application/json" | "application/xml" | "image/svg+xml")
}

/// The body, compressed.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn gzip(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn readers_say_what_they_take() {
        for (accepted, values) in [
            (false, &[][..]),
            (false, &[""]),
            (true, &["gzip"]),
            (true, &["gzip, deflate, br, zstd"]),
            (true, &["br;q=1.0, GZIP ; q=0.2"]),
            (true, &["br", "x-gzip"]),
            (true, &["*"]),
            (true, &["*;q=0, gzip"]),
            (false, &["gzip;q=0"]),
            (false, &["gzip;q=0.000, *"]),
            (false, &["br, deflate"]),
            (false, &["*;q=0"]),
            (false, &["identity"]),
        ] {
            let mut request = HeaderMap::new();
            for value in values {
                request.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&request), accepted, "{values:?}");
        }
    }

    #[test]
    fn only_long_texts_are_worthwhile() {
        for (worthwhile, kind, length) in [
            (true, "text/html; charset=utf-8", 1024),
            (true, "application/json", 5000),
            (true, "text/plain; version=0.0.4; charset=utf-8", 5000),
            (true, "image/svg+xml", 5000),
            (false, "text/html; charset=utf-8", 1023),
            (false, "text/event-stream", 5000),
            (false, "application/octet-stream", 5000),
        ] {
            assert_eq!(is_worthwhile(kind, length), worthwhile, "{kind} {length}");
        }
    }

    #[test]
    fn a_compressed_body_is_the_same_and_much_smaller() {
        let row = "<tr data-key=\"node\"><td data-label=\"Sessions\">12</td></tr>";
        let body: String =
            (0..2000).map(|number| row.replace("node", &number.to_string())).collect();
        let packed = gzip(body.as_bytes()).unwrap();
        assert!(packed.len() < body.len() / 8, "{} of {}", packed.len(), body.len());
        let mut unpacked = String::new();
        GzDecoder::new(&*packed).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, body);
    }
}
