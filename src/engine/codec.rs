//! Inputs, outcomes and images as bytes: the format of journals and standbys.
//!
//! The form is [postcard](https://docs.rs/postcard)'s: numbers take as many bytes as they need, nothing is
//! named, and reading allocates no more than there are bytes for. Each value begins with the version
//! of the form.

use corona_model::form;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The newest version of the format. Raise it when an existing variant or field of the encoded types
/// changes; a new variant at the end of an enumeration does not require it. Older formats are still
/// read, and written where they can express the value ([`form::Later`]), so that earlier versions of
/// the program can read it.
pub const VERSION: u8 = form::NEWEST;

/// Why bytes are not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// There are no bytes.
    #[error("there are no bytes")]
    Empty,
    /// They are of a later version than [`VERSION`].
    #[error(
        "form {0} of encoded values is not known to this version of the program, which reads up to {VERSION}"
    )]
    UnknownVersion(u8),
    /// They are damaged, or of another type.
    #[error("the bytes are not a value of the type: {0}")]
    Malformed(#[from] postcard::Error),
    /// More bytes follow than the value takes.
    #[error("{0} bytes follow the value")]
    TrailingBytes(usize),
}

/// Appends a value to `bytes`.
///
/// # Errors
/// If the type has no such form, as one with a list of unknown length. All types of this crate have.
pub fn encode_into<T: Serialize + ?Sized>(
    value: &T,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, CodecError> {
    let start = bytes.len();
    for version in form::FIRST..=VERSION {
        bytes.truncate(start);
        bytes.push(version);
        let (written, complete) = form::writing(version, || postcard::to_extend(value, bytes));
        bytes = written?;
        if complete {
            break;
        }
    }
    Ok(bytes)
}

/// A value as bytes.
///
/// # Errors
/// As [`encode_into`].
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    encode_into(value, Vec::new())
}

/// The value of these bytes.
///
/// # Errors
/// If they are not those of a value of the type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (version, bytes) = bytes.split_first().ok_or(CodecError::Empty)?;
    if !(form::FIRST..=VERSION).contains(version) {
        return Err(CodecError::UnknownVersion(*version));
    }
    let (value, rest) = form::reading(*version, || postcard::take_from_bytes(bytes))?;
    if !rest.is_empty() {
        return Err(CodecError::TrailingBytes(rest.len()));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::types::Millis;

    #[test]
    fn only_what_was_added_later_needs_a_later_form() {
        let mut settings = crate::settings::Settings::default();
        let changed = |settings: &crate::settings::Settings| {
            let settings = Box::new(settings.clone());
            encode(&Input::SettingsChanged { settings }).unwrap()
        };
        let plain = changed(&settings);
        assert_eq!(plain.first(), Some(&form::FIRST));
        settings.pools.queues.groups.insert("ads".into(), Default::default());
        let tree = changed(&settings);
        assert_eq!(tree.first(), Some(&form::SECOND));
        settings.resources.reservation.0 = corona_model::resources::ReserveAfter(5);
        let reserving = changed(&settings);
        assert_eq!(reserving.first(), Some(&form::THIRD));
        settings.resources.reservation_limit.0.0 = 5;
        let limiting = changed(&settings);
        assert_eq!(limiting.first(), Some(&form::FIFTH));
        let ads = settings.pools.queues.groups.get_mut("ads").unwrap();
        ads.quotas.minimum[1] = Some(corona_model::queues::Quota::Amount(5));
        let with_quotas = changed(&settings);
        assert_eq!(with_quotas.first(), Some(&form::SIXTH));
        for bytes in [plain, tree, reserving, limiting, with_quotas] {
            let Input::SettingsChanged { settings } = decode(&bytes).unwrap() else { panic!() };
            assert_eq!(changed(&settings), bytes);
        }
    }

    #[test]
    fn encoded_values_are_read_whole_and_trailing_bytes_refused() {
        let step = (Millis(1_790_000_000_000), Input::KillSession { handle: "2026.1".into() });
        let bytes = encode(&step).unwrap();
        assert!(bytes.len() < 20, "{}", bytes.len());
        assert_eq!(decode::<(Millis, Input)>(&bytes), Ok(step.clone()));
        assert_eq!(encode_into(&step, vec![7]).unwrap(), [&[7], &bytes[..]].concat());
        let longer = [&bytes[..], &[0, 0]].concat();
        let later = [&[VERSION + 1], &bytes[1..]].concat();
        for (bytes, error) in [
            (&[][..], "Empty"),
            (&bytes[..bytes.len() - 1], "Malformed"),
            (&longer, "TrailingBytes(2)"),
            (&later, "UnknownVersion(7)"),
        ] {
            let found = decode::<(Millis, Input)>(bytes).unwrap_err();
            assert!(format!("{found:?}").starts_with(error), "{found:?}");
        }
    }
}
