//! The requests that wait for slots, and the indexes over them, in an [`Image`](crate::Image).
//!
//! The indexes are kept unchanged, with the entries of removed requests: their presence decides
//! which sessions are tried again.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{Arrivals, Class, ClassKey, Cursor, Pending, Places};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{HostIdx, Idx, RackIdx};
use crate::lookup::{HashSeed, Lookup};
use crate::requests::{PendingQueue, Wish};
use corona_model::form::Later;
use corona_model::resources::Amounts;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingImage {
    cursor: Cursor,
    classes: ArenaImage<ClassImage>,
    places: Option<PlacesImage>,
    dismantled: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ClassImage {
    excluded: Box<[HostIdx]>,
    need: u32,
    live: usize,
    hostless: Arrivals,
    hosted: Arrivals,
    unserved_at: Option<u64>,
    demand: Later<Amounts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlacesImage {
    by_host: Vec<(HostIdx, Arrivals)>,
    by_rack: Vec<(RackIdx, Arrivals)>,
    live: usize,
}

impl Pending {
    pub(crate) fn image(&self) -> PendingImage {
        PendingImage {
            cursor: self.cursor,
            classes: self.classes.image(|_, class| ClassImage {
                excluded: class.key.excluded.clone(),
                need: class.key.wish.need,
                demand: Later(class.key.wish.demand),
                live: class.live,
                hostless: class.hostless.clone(),
                hosted: class.hosted.clone(),
                unserved_at: class.unserved_at,
            }),
            places: self.places.as_ref().map(|places| PlacesImage {
                by_host: listed(&places.by_host),
                by_rack: listed(&places.by_rack),
                live: places.live,
            }),
            dismantled: self.dismantled,
        }
    }

    /// `line` has the requests themselves.
    pub(crate) fn from_image(
        image: PendingImage,
        line: PendingQueue,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let mut class_by_key = Lookup::new(seed);
        let classes = Arena::from_image(image.classes, |number, image: ClassImage| {
            let ClassImage { excluded, need, live, hostless, hosted, unserved_at, demand } = image;
            let items = hostless.items.len() + hosted.items.len();
            check(live <= items, "a class of requests has too few entries")?;
            let wish = Wish { need, demand: *demand };
            let key = Arc::new(ClassKey { excluded, wish });
            let known = class_by_key.insert(key.clone(), number);
            check(known.is_none(), "a class of requests has two numbers")?;
            Ok(Class { key, live, hostless, hosted, unserved_at })
        })?;
        let places = image.places.map(|image| Places::from_image(image, seed)).transpose()?;
        let PendingQueue { head, tail, len } = line;
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
        let lists = by_host.iter().map(|(_, list)| list);
        let lists = lists.chain(by_rack.iter().map(|(_, list)| list));
        let entries = lists.map(|list| list.items.len()).sum();
        let (by_host, by_rack) = (mapped(by_host, seed), mapped(by_rack, seed));
        let places = Places { by_host, by_rack, entries, live };
        check(live <= places.entries, "the places of requests have too few entries")?;
        Ok(places)
    }
}

type Lists<I> = IndexMap<I, Arrivals, ahash::RandomState>;

fn listed<I: Idx>(lists: &Lists<I>) -> Vec<(I, Arrivals)> {
    lists.iter().map(|(place, list)| (*place, list.clone())).collect()
}

fn mapped<I: Idx>(lists: Vec<(I, Arrivals)>, seed: HashSeed) -> Lists<I> {
    let mut map = IndexMap::with_capacity_and_hasher(lists.len(), seed.state());
    map.extend(lists);
    map
}
