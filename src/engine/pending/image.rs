//! The requests that wait for slots, and the indexes over them, in an [`Image`](crate::Image).
//!
//! The indexes are kept as they are, with the entries of requests that are gone: whether there are
//! any decides which sessions are tried again.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{Arrivals, Class, ClassIdx, ClassKey, Cursor, Pending, Places};
use crate::arena::{Arena, ArenaImage};
use crate::image::{ImageError, check};
use crate::lookup::{HashSeed, Lookup};
use crate::requests::Line;
use crate::topology::HostIdx;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingImage {
    cursor: Cursor,
    classes: ArenaImage<ClassImage>,
    places: Option<PlacesImage>,
    dismantled: ClassIdx,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ClassImage {
    excluded: Box<[HostIdx]>,
    need: u32,
    live: usize,
    hostless: Arrivals,
    hosted: Arrivals,
    unserved_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlacesImage {
    by_host: Vec<(u32, Arrivals)>,
    by_rack: Vec<(u32, Arrivals)>,
    live: usize,
}

impl Pending {
    pub(crate) fn image(&self) -> PendingImage {
        let by = |lists: &IndexMap<u32, Arrivals, _>| {
            lists.iter().map(|(place, list)| (*place, list.clone())).collect()
        };
        PendingImage {
            cursor: self.cursor,
            classes: self.classes.image(|_, class| ClassImage {
                excluded: class.key.excluded.clone(),
                need: class.key.need,
                live: class.live,
                hostless: class.hostless.clone(),
                hosted: class.hosted.clone(),
                unserved_at: class.unserved_at,
            }),
            places: self.places.as_ref().map(|places| PlacesImage {
                by_host: by(&places.by_host),
                by_rack: by(&places.by_rack),
                live: places.live,
            }),
            dismantled: self.dismantled,
        }
    }

    /// `line` has the requests themselves.
    pub(crate) fn from_image(
        image: PendingImage,
        line: Line,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let mut class_by_key = Lookup::new(seed);
        let classes = Arena::from_image(image.classes, |number, image: ClassImage| {
            let ClassImage { excluded, need, live, hostless, hosted, unserved_at } = image;
            let items = hostless.items.len() + hosted.items.len();
            check(live <= items, "a class of requests has too few entries")?;
            let key = Arc::new(ClassKey { excluded, need });
            let known = class_by_key.insert(key.clone(), number);
            check(known.is_none(), "a class of requests has two numbers")?;
            Ok(Class { key, live, hostless, hosted, unserved_at })
        })?;
        let places = image.places.map(|image| Places::from_image(image, seed)).transpose()?;
        let Line { head, tail, len } = line;
        Ok(Pending {
            head,
            tail,
            len,
            cursor: image.cursor,
            classes,
            class_by_key,
            places,
            front: None,
            dismantled: image.dismantled,
            seed,
        })
    }
}

impl Places {
    fn from_image(image: PlacesImage, seed: HashSeed) -> Result<Places, ImageError> {
        let PlacesImage { by_host, by_rack, live } = image;
        let mut places = Places { live, ..Places::new(seed) };
        for (lists, image) in [(&mut places.by_host, by_host), (&mut places.by_rack, by_rack)] {
            lists.reserve(image.len());
            for (place, list) in image {
                places.entries += list.items.len();
                lists.insert(place, list);
            }
        }
        check(live <= places.entries, "the places of requests have too few entries")?;
        Ok(places)
    }
}
