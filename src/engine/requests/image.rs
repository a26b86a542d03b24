//! A session's requests in an [`Image`](crate::Image).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Ids, NOWHERE, QueueLinks, Request, RequestState, Requests, Seq, Wanted};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{ClassIdx, HostIdx, Idx, IdxVec, NodeIdx, ReqIdx, SlotIdx};
use crate::input::Asked;
use crate::lookup::HashSeed;
use crate::topology::Topology;
use crate::types::{ComputeSpecs, Millis, PerType, ResourceType};
use corona_model::resources::Resources;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestsImage {
    requests: ArenaImage<RequestImage>,
    last_seq: Seq,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RequestImage {
    id: i32,
    kind: ResourceType,
    hosts: Wanted,
    excluded: Box<[HostIdx]>,
    state: StateImage,
    asked: Asked,
    specs: Option<ComputeSpecs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum StateImage {
    /// `seq` is the place in the order of arrival.
    Pending {
        class: ClassIdx,
        seq: Seq,
    },
    Granted {
        node: NodeIdx,
        slot: SlotIdx,
        at: Millis,
    },
    Lost,
}

/// The pending requests of one type, in the order in which they came.
pub(crate) struct PendingQueue {
    pub(crate) head: ReqIdx,
    pub(crate) tail: ReqIdx,
    pub(crate) len: usize,
}

impl Requests {
    pub(crate) fn image(&self) -> RequestsImage {
        let requests = self.slab.image(|req, request| RequestImage {
            id: request.id,
            kind: request.kind,
            hosts: request.hosts.clone(),
            excluded: request.excluded.clone(),
            state: match request.state {
                RequestState::Pending { class } => {
                    StateImage::Pending { class, seq: self.places[req].seq }
                }
                RequestState::Granted { node, slot, at } => StateImage::Granted { node, slot, at },
                RequestState::Lost => StateImage::Lost,
            },
            asked: self.asked(req),
            specs: self.specs(req),
        });
        RequestsImage { requests, last_seq: self.last_seq }
    }

    /// The requests, and the pending ones by type.
    pub(crate) fn from_image(
        image: RequestsImage,
        topology: &Topology,
        resources: &Resources,
        seed: HashSeed,
    ) -> Result<(Self, PerType<PendingQueue>), ImageError> {
        let RequestsImage { requests: image, last_seq } = image;
        let numbers = image.entries.len();
        let mut places = IdxVec::of(NOWHERE, numbers);
        let mut asked = IdxVec::of(Asked { at: Millis(0), input: 0 }, numbers);
        let mut specs = IdxVec::of(None, numbers);
        let mut by_id = Ids::new(seed);
        let mut waiting = PerType::<Vec<(Seq, ReqIdx)>>::default();
        let slab = Arena::from_image(image, |req: ReqIdx, image: RequestImage| {
            check(by_id.get(image.id).is_none(), "two requests have one id")?;
            by_id.insert(image.id, req, numbers);
            image.hosts.iter().try_for_each(|host| topology.check_placed(*host))?;
            image.excluded.iter().try_for_each(|host| topology.check_host(*host))?;
            asked[req] = image.asked;
            specs[req] = image.specs;
            let RequestImage { id, kind, hosts, excluded, specs, .. } = image;
            let mut request = Request::new(id, kind, resources.slots(specs), hosts, excluded);
            request.state = match image.state {
                StateImage::Pending { class, seq } => {
                    check(0 < seq && seq <= last_seq, "a request comes out of its turn")?;
                    waiting[kind].push((seq, req));
                    RequestState::Pending { class }
                }
                StateImage::Granted { node, slot, at } => RequestState::Granted { node, slot, at },
                StateImage::Lost => RequestState::Lost,
            };
            Ok(request)
        })?;
        let lines = waiting.0.map(|mut waiting| {
            waiting.sort_unstable();
            let mut prev = ReqIdx::NONE;
            for (seq, req) in &waiting {
                places[*req] = QueueLinks { seq: *seq, prev, next: ReqIdx::NONE };
                if let Some(before) = places.get_mut(prev) {
                    before.next = *req;
                }
                prev = *req;
            }
            let head = waiting.first().map_or(ReqIdx::NONE, |(_, req)| *req);
            PendingQueue { head, tail: prev, len: waiting.len() }
        });
        let demands = IdxVec::new();
        let mut all = Requests { slab, by_id, places, asked, specs, demands, last_seq };
        if resources.are_counted() {
            all.revalue(resources);
        }
        Ok((all, PerType(lines)))
    }
}

/// As a list.
impl Serialize for Wanted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hosts = smallvec::SmallVec::<[HostIdx; 8]>::deserialize(deserializer)?;
        Ok(hosts.into_iter().collect())
    }
}
