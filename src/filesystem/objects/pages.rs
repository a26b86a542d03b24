//! Where the pages of lists begin. A server must get on with its pages, so that every list has an end.

use object_store::ObjectMeta;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};

/// Pages in a row that may bring no later name.
pub(super) const MAX_STILL_PAGES: u32 = 100;

/// Where the next page of a list of objects begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) token: String,
    /// The last name that has come.
    last: String,
    /// Pages in a row without a later one.
    still: u32,
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) objects: Vec<ObjectMeta>,
    pub(super) directories: Vec<Key>,
    pub(super) next: Option<Mark>,
}

impl Mark {
    /// That behind a page. Errors: the page does not lie behind the one before.
    pub(super) fn behind(
        before: Option<&Mark>,
        objects: &[ObjectMeta],
        directories: &[Key],
        token: Option<String>,
    ) -> Result<Option<Mark>, &'static str> {
        let directories = || directories.iter().map(|directory| format!("{directory}/"));
        // The library names an object without the slash at its end, which only empty ones have: its name is one of two.
        let latest = |object: &ObjectMeta| match object.size {
            0 => format!("{}/", object.location),
            _ => object.location.to_string(),
        };
        let first = objects.iter().map(latest).chain(directories()).min();
        let earliest = objects.iter().map(|object| object.location.to_string());
        let last = earliest.chain(directories()).max();
        let (last_before, still) =
            before.map_or((None, 0), |mark| (Some(&mark.last), mark.still.saturating_add(1)));
        if first.as_ref().zip(last_before).is_some_and(|(first, last)| first <= last) {
            return Err("a page of its list does not lie behind the one before");
        }
        let Some(token) = token else { return Ok(None) };
        match last.filter(|last| last_before.is_none_or(|before| last > before)) {
            Some(last) => Ok(Some(Mark { token, last, still: 0 })),
            None if still > MAX_STILL_PAGES => Err("the pages of its list bring nothing"),
            None => {
                let last = last_before.cloned().unwrap_or_default();
                Ok(Some(Mark { token, last, still }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, size: u64) -> ObjectMeta {
        let last_modified = Default::default();
        ObjectMeta {
            location: Key::parse(name).unwrap(),
            last_modified,
            size,
            e_tag: None,
            version: None,
        }
    }

    #[test]
    fn pages_lie_behind_each_other() {
        let token = || Some("t".to_owned());
        let first = Mark::behind(None, &[object("d/a", 1), object("d/b!", 1)], &[], token());
        let first = first.unwrap().unwrap();
        // The object `d/b/`.
        let second =
            Mark::behind(Some(&first), &[object("d/b", 0), object("d/c", 1)], &[], token());
        let second = second.unwrap().unwrap();
        assert_eq!((second.last.as_str(), second.still), ("d/c", 0));
        for earlier in ["d/a", "d/b", "d/c"] {
            assert!(Mark::behind(Some(&second), &[object(earlier, 1)], &[], token()).is_err());
            assert!(
                Mark::behind(Some(&second), &[object("d/d", 1), object(earlier, 1)], &[], None)
                    .is_err()
            );
        }
        assert!(Mark::behind(Some(&second), &[], &[Key::parse("d/b").unwrap()], None).is_err());
        let directory = Mark::behind(Some(&second), &[], &[Key::parse("d/d").unwrap()], token());
        assert_eq!(directory.unwrap().unwrap().last, "d/d/");
        assert_eq!(Mark::behind(Some(&second), &[object("d/d", 1)], &[], None), Ok(None));
    }

    #[test]
    fn pages_without_anything_have_an_end() {
        for page in [vec![], vec![object("d", 0)]] {
            let (mut mark, mut count) = (None, 0);
            while let Ok(next) = Mark::behind(mark.as_ref(), &page, &[], Some("t".to_owned())) {
                mark = next;
                count += 1;
                assert!(count <= MAX_STILL_PAGES + 1);
            }
            assert_eq!(count, MAX_STILL_PAGES + 1);
        }
    }
}
