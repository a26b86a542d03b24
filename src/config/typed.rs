//! Texts of the property files as values: whole numbers, truth values, addresses.
//!
//! The rules are the original's, but a value that it silently replaces by the default is an error
//! here. Spec: cluster-manager/06 §1.4.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::sync::Arc;

use super::keys::Kind;
use super::secret::Secret;

/// A host and a port that can be listened on or connected to. The host is not resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Host name or literal address, an IPv6 address without its brackets.
    pub host: Arc<str>,
    /// TCP port; 0 means any free one.
    pub port: u16,
}

impl fmt::Display for HostPort {
    /// `host:port`, an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl HostPort {
    /// The address of pages that are served here, for a link: `http://host:port/`. `None` if nobody can
    /// know it: any free port, or all addresses of a machine.
    pub fn page_address(&self) -> Option<String> {
        let is_any = matches!(&*self.host, "0.0.0.0" | "::");
        (self.port != 0 && !is_any).then(|| format!("http://{self}/"))
    }
}

impl FromStr for HostPort {
    type Err = NotAnAddress;

    /// By the rules of the configuration files.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        address(text).map_err(|Wrong { wrong, expected }| NotAnAddress { wrong, expected })
    }
}

/// Why a text is no address, or no list of networks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; expected {expected}")]
pub struct NotAnAddress {
    /// The fault.
    pub wrong: String,
    /// The expected form.
    pub expected: String,
}

/// Why a text is not a value: its fault, and the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) wrong: String,
    pub(super) expected: String,
}

impl Wrong {
    pub(super) fn new(wrong: impl Into<String>, expected: impl Into<String>) -> Self {
        Wrong { wrong: wrong.into(), expected: expected.into() }
    }
}

/// A whole number between two bounds: decimal, or hexadecimal after `0x`. No blanks.
pub(super) fn whole(text: &str, least: i64, most: i64, unit: &str) -> Result<i64, Wrong> {
    let expected = || match unit {
        "" => format!("a whole number from {least} to {most}"),
        "ms" => format!("milliseconds, {least} to {most}"),
        unit => format!("{unit}, {least} to {most}"),
    };
    let number = digits(text).ok_or_else(|| {
        let blank = if text.trim() != text { " (blanks count)" } else { "" };
        Wrong::new(format!("is not a whole number{blank}"), expected())
    })?;
    i64::try_from(number)
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| Wrong::new("is out of range", expected()))
}

/// The same as a number of another type.
pub(super) fn number<T: TryFrom<i64>>(text: &str, least: i64, most: i64) -> Result<T, Wrong> {
    T::try_from(whole(text, least, most, "")?)
        .map_err(|_| Wrong::new("is out of range", "a smaller number"))
}

/// The number, held at the ends of 128 bits: the caller's range is smaller.
fn digits(text: &str) -> Option<i128> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if negative => (rest, 10),
        None => (rest.strip_prefix('+').unwrap_or(rest), 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).unwrap_or(i128::MAX);
    Some(if negative { -number } else { number })
}

/// `true` or `false` in any case.
pub(super) fn boolean(text: &str) -> Result<bool, Wrong> {
    match text.to_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Wrong::new("is neither true nor false", "true or false")),
    }
}

/// `host:port`, or a URI with both, by the rules of Java's URI class.
pub(super) fn address(text: &str) -> Result<HostPort, Wrong> {
    let refuse = |wrong: &str| {
        Err(Wrong::new(wrong, "host:port, such as localhost:8888, 0.0.0.0:8888 or [::1]:8888"))
    };
    if !text.contains(':') {
        return refuse("is not a host:port pair");
    }
    let authority = if text.contains('/') {
        match text.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !scheme.contains('/') => {
                rest.split('/').next().unwrap_or_default()
            }
            _ => return refuse("is not a host:port pair"),
        }
    } else {
        text
    };
    let authority = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let Some((host, port)) = authority.rsplit_once(':') else {
        return refuse("has no port");
    };
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(literal) if is_ipv6(literal) => literal,
        Some(_) => return refuse("has no legal IPv6 address in its brackets"),
        None if is_host_name(host) => host,
        None => return refuse("has no legal host name"),
    };
    if port.is_empty() || !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return refuse("has no port");
    }
    match port.parse() {
        Ok(port) => Ok(HostPort { host: host.into(), port }),
        Err(_) => refuse("has a port above 65535"),
    }
}

/// A host name or an IPv4 address; none for an empty text. More is legal than by the rules of URIs,
/// such as names of containers; a colon is not, since it ends the host in an address.
pub(super) fn host(text: &str) -> Result<Option<String>, Wrong> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match text {
        "" => Ok(None),
        name if name.bytes().all(fits) => Ok(Some(name.to_owned())),
        _ => Err(Wrong::new("is not a legal host name", "a host name or an IPv4 address")),
    }
}

fn is_ipv6(literal: &str) -> bool {
    let (address, zone) = literal.split_once('%').unwrap_or((literal, "0"));
    address.parse::<Ipv6Addr>().is_ok()
        && !zone.is_empty()
        && zone.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Labels of letters, digits and inner hyphens, the last one led by a letter; or an IPv4 address.
fn is_host_name(host: &str) -> bool {
    if host.parse::<std::net::Ipv4Addr>().is_ok() {
        return true;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    host.split('.').all(is_label) && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// A directory of a service, which may be on HDFS.
pub(super) fn directory(text: &str) -> Result<String, Wrong> {
    match text.trim_start().starts_with("s3:") {
        false => Ok(text.to_owned()),
        true => Err(Wrong::new(
            "is in an object store, where services keep no files",
            "a directory of hdfs: or file:",
        )),
    }
}

/// A secret that is not easily guessed; none for an empty text.
pub(super) fn secret(text: &str) -> Result<Option<Secret>, Wrong> {
    const SHORTEST: usize = 16;
    match text.len() {
        0 => Ok(None),
        SHORTEST.. => Ok(Some(Secret::new(text))),
        _ => Err(Wrong::new("is too short", format!("at least {SHORTEST} characters"))),
    }
}

/// Whether a text can be a value of this kind; kinds without a form of their own take any.
pub(super) fn check(kind: Kind, text: &str, unit: &str) -> Result<(), Wrong> {
    match kind {
        Kind::Int { least, most } | Kind::Long { least, most } => {
            whole(text, least, most, unit).map(|_| ())
        }
        Kind::Boolean => boolean(text).map(|_| ()),
        Kind::Address => address(text).map(|_| ()),
        Kind::Path | Kind::Text | Kind::Class | Kind::List | Kind::Partitioning => Ok(()),
        Kind::Secret => secret(text).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_secret_has_sixteen_characters() {
        assert_eq!(secret("").unwrap(), None);
        assert!(secret("fifteen letters").is_err());
        assert!(secret("a sixteenth one.").unwrap().is_some());
    }

    #[test]
    fn whole_numbers() {
        let not_a_number = "is not a whole number";
        let cases = [
            ("0", Ok(0)),
            ("12", Ok(12)),
            ("+12", Ok(12)),
            ("-3", Ok(-3)),
            ("0x10", Ok(16)),
            ("0XfF", Ok(255)),
            ("-0x1", Ok(-1)),
            ("256", Err("is out of range")),
            ("-4", Err("is out of range")),
            ("99999999999999999999999999999999999999999999999999", Err("is out of range")),
            ("", Err(not_a_number)),
            ("-", Err(not_a_number)),
            ("0x", Err(not_a_number)),
            ("--1", Err(not_a_number)),
            ("-+1", Err(not_a_number)),
            ("0x-1", Err(not_a_number)),
            ("1.0", Err(not_a_number)),
            ("1e3", Err(not_a_number)),
            ("1_000", Err(not_a_number)),
            ("ten", Err(not_a_number)),
            (" 1", Err("is not a whole number (blanks count)")),
        ];
        for (text, expected) in cases {
            let number = whole(text, -3, 255, "ms").map_err(|wrong| wrong.wrong);
            assert_eq!(number, expected.map_err(str::to_owned), "{text:?}");
        }
        assert_eq!(whole("x", 1, 5, "ms").unwrap_err().expected, "milliseconds, 1 to 5");
        assert_eq!(whole("x", 1, 5, "nodes").unwrap_err().expected, "nodes, 1 to 5");
        assert_eq!(whole("x", 1, 5, "").unwrap_err().expected, "a whole number from 1 to 5");
        assert_eq!(whole("-9223372036854775808", i64::MIN, i64::MAX, ""), Ok(i64::MIN));
        assert!(whole("9223372036854775808", i64::MIN, i64::MAX, "").is_err());
    }

    #[test]
    fn truth_values() {
        for (text, expected) in [
            ("true", Some(true)),
            ("FALSE", Some(false)),
            ("True", Some(true)),
            ("yes", None),
            ("1", None),
            (" true", None),
            ("", None),
        ] {
            assert_eq!(boolean(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn addresses() {
        let good = [
            ("localhost:8888", "localhost", 8888, "localhost:8888"),
            ("localhost:0", "localhost", 0, "localhost:0"),
            ("0.0.0.0:80", "0.0.0.0", 80, "0.0.0.0:80"),
            ("a-1.example.com:65535", "a-1.example.com", 65535, "a-1.example.com:65535"),
            ("example.com.:1", "example.com.", 1, "example.com.:1"),
            ("[::1]:9", "::1", 9, "[::1]:9"),
            ("[fe80::1%eth0]:9", "fe80::1%eth0", 9, "[fe80::1%eth0]:9"),
            ("hdfs://nn:9000/path", "nn", 9000, "nn:9000"),
            ("user@host:1", "host", 1, "host:1"),
        ];
        for (text, host, port, shown) in good {
            let address = address(text).unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{text}");
            assert_eq!(address.to_string(), shown);
        }
        let bad = [
            ("8888", "is not a host:port pair"),
            ("", "is not a host:port pair"),
            ("localhost", "is not a host:port pair"),
            ("nn:9000/path", "is not a host:port pair"),
            ("://h:1/", "is not a host:port pair"),
            ("localhost:", "has no port"),
            ("localhost:http", "has no port"),
            ("localhost:+1", "has no port"),
            ("localhost:65536", "has a port above 65535"),
            (":8888", "has no legal host name"),
            ("under_score:1", "has no legal host name"),
            ("-a:1", "has no legal host name"),
            ("a..b:1", "has no legal host name"),
            ("1.2.3.400:1", "has no legal host name"),
            (" localhost:1", "has no legal host name"),
            ("::1:9", "has no legal host name"),
            ("[::g]:9", "has no legal IPv6 address in its brackets"),
            ("[::1%]:9", "has no legal IPv6 address in its brackets"),
            ("[::1]", "has no legal host name"),
        ];
        for (text, wrong) in bad {
            assert_eq!(address(text).unwrap_err().wrong, wrong, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}", address_like in "[\\[\\]@:/.%0-9a-f_-]{0,20}") {
            for text in [text, address_like] {
                let _ = (whole(&text, -5, 5, ""), boolean(&text), address(&text));
            }
        }

        #[test]
        fn a_number_reads_back(number: i64) {
            prop_assert_eq!(whole(&number.to_string(), i64::MIN, i64::MAX, ""), Ok(number));
        }
    }
}
