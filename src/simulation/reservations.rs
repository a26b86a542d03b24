//! Nodes that are kept for requests: each has a reason, serves nobody else, and ends.

use super::model::{Model, Name, Wish, WishState};
use corona_engine::Record;
use corona_model::types::{Millis, ResourceType};

/// The request for which a node is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reserved {
    pub(super) handle: Name,
    pub(super) id: i32,
    pub(super) kind: ResourceType,
}

impl Model {
    /// Enters what the engine records about nodes that are kept. `free` if it may end reservations that have
    /// a reason: other settings are in force.
    pub(super) fn note_reservation(
        &mut self,
        now: Millis,
        record: &Record,
        free: bool,
    ) -> Result<(), String> {
        match record {
            Record::NodeReserved { node, handle, kind, id } => {
                let reserved = Reserved { handle: handle.clone(), id: *id, kind: *kind };
                self.check_reserved(now, node, &reserved)
                    .map_err(|what| format!("{node} is kept for {reserved:?}: {what}"))?;
                let pool = self.sessions.get(handle).map(|session| session.pool.clone());
                pool.into_iter().for_each(|pool| drop(self.expired.remove(&pool)));
                self.reserved.insert(node.clone(), reserved);
                self.reserved_since.insert(node.clone(), now);
            }
            Record::ReservationExpired { node, handle, kind, id, kept_ms } => {
                let ended = Reserved { handle: handle.clone(), id: *id, kind: *kind };
                let known = self.reserved.remove(node);
                let kept = self.kept_ms(node, now);
                let limit_ms = self.settings.resources.reservation_limit.0.0;
                if known.as_ref() != Some(&ended) || kept != *kept_ms || kept < limit_ms {
                    return Err(format!("{node} was kept for {known:?} for {kept} ms: {record:?}"));
                }
                if let Some(session) = self.sessions.get(handle) {
                    self.expired.insert(session.pool.clone(), (Some(node.clone()), now));
                }
            }
            Record::ReservationEnded { node, handle, kind, id, served } => {
                let ended = Reserved { handle: handle.clone(), id: *id, kind: *kind };
                let known = self.reserved.remove(node);
                if known.as_ref() != Some(&ended) {
                    return Err(format!("{node} was kept for {known:?}, not for {ended:?}"));
                }
                if *served {
                    self.served.push((node.clone(), ended));
                } else if !free && self.has_reason(node, &ended) {
                    return Err(format!(
                        "{node} is kept for {ended:?} no longer, without a reason"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// To be called after each outcome: requests that were served by their nodes hold them.
    pub(super) fn check_served(&mut self) -> Result<(), String> {
        for (name, reserved) in std::mem::take(&mut self.served) {
            let wish = self.wish_of(&reserved);
            let holds = wish.is_some_and(
                |wish| matches!(&wish.state, WishState::Holds { node, .. } if *node == name),
            );
            if !holds {
                return Err(format!("{name} was kept for {reserved:?}, which has nothing there"));
            }
        }
        Ok(())
    }

    /// Whether a node is kept for another request than this one.
    pub(super) fn is_kept_from(&self, node: &Name, handle: &Name, id: i32) -> bool {
        let kept = self.reserved.get(node);
        kept.is_some_and(|reserved| (&reserved.handle, reserved.id) != (handle, id))
    }

    /// Whether a node was kept for this request until now, wherever its input is.
    pub(super) fn was_kept_for(&self, node: &Name, handle: &Name, id: i32) -> bool {
        let is_it = |reserved: &Reserved| (&reserved.handle, reserved.id) == (handle, id);
        self.served.iter().any(|(name, reserved)| name == node && is_it(reserved))
    }

    /// To be called when the engine has nothing left to do: no node is kept that could serve by now, or for a
    /// request that does not wait.
    pub(super) fn check_reservations(&self, now: Millis) -> Result<(), String> {
        for (node, reserved) in &self.reserved {
            // They are looked at once in a second.
            if self.kept_ms(node, now) > self.settings.resources.reservation_limit.0.0 + 1_001 {
                return Err(format!("{node} is kept for {reserved:?} without end"));
            }
            let wish = self.wish_of(reserved);
            let waits = wish.filter(|wish| wish.state == WishState::Waits);
            let Some(wish) = waits else {
                return Err(format!("{node} is kept for {reserved:?}, which does not wait"));
            };
            if self.could_serve_now(node, wish) {
                return Err(format!("{node} is kept for {reserved:?}, which it could serve"));
            }
        }
        Ok(())
    }

    fn kept_ms(&self, node: &Name, now: Millis) -> i64 {
        self.reserved_since.get(node).map_or(0, |since| now.since(*since))
    }

    fn wish_of(&self, reserved: &Reserved) -> Option<&Wish> {
        self.sessions.get(&reserved.handle)?.wishes.get(&reserved.id)
    }

    fn could_serve_now(&self, name: &Name, wish: &Wish) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        self.room(node, wish.kind) >= self.need(wish)
            && self.has_resources(name, wish)
            && !wish.excluded.contains(&node.address.host)
    }

    /// Whether a node could serve a request if nothing ran there.
    fn could_serve_empty(&self, name: &Name, wish: &Wish) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        self.serves(node, wish.kind)
            && self.slots(node, wish.kind) >= self.need(wish)
            && self.has_capacity(node, wish)
            && !wish.excluded.contains(&node.address.host)
    }

    /// Whether a node is still worth being kept: the request waits, and has to wait for the node alone.
    fn has_reason(&self, node: &Name, reserved: &Reserved) -> bool {
        let wish = self.wish_of(reserved).filter(|wish| wish.state == WishState::Waits);
        wish.is_some_and(|wish| {
            self.could_serve_empty(node, wish) && !self.could_serve_now(node, wish)
        })
    }

    fn check_reserved(&self, now: Millis, node: &Name, reserved: &Reserved) -> Result<(), String> {
        let session = self.sessions.get(&reserved.handle).ok_or("no such session")?;
        let wish = session.wishes.get(&reserved.id).ok_or("never asked for")?;
        let pool_of = |other: &Reserved| {
            self.sessions.get(&other.handle).is_some_and(|other| other.pool == session.pool)
        };
        let others = || self.nodes.keys().filter(|node| !self.reserved.contains_key(*node));
        let again = self.expired.get(&session.pool);
        let waited_ms = now.since(again.map_or(wish.asked, |(_, at)| wish.asked.max(*at)));
        let could_be_another =
            || others().any(|other| other != node && self.could_serve_empty(other, wish));
        let in_vain =
            again.is_some_and(|(last, _)| last.as_ref() == Some(node)) && could_be_another();
        for (holds, otherwise) in [
            (self.counts_resources(), "only slots are counted"),
            (wish.state == WishState::Waits && wish.kind == reserved.kind, "not waited for"),
            (waited_ms >= self.settings.resources.reservation.0.0, "before its wait is over"),
            (!self.reserved.contains_key(node), "it is kept already"),
            (!in_vain, "it was kept in vain, and there is another one"),
            (!self.reserved.values().any(pool_of), "its pool has a node already"),
            (self.reserved.len() < (self.nodes.len() / 20).max(1), "too many are kept"),
            (self.could_serve_empty(node, wish), "it can never serve it"),
            (!others().any(|node| self.could_serve_now(node, wish)), "another has room"),
            (self.may_be_given(session, wish.kind, wish), "its queues are full"),
        ] {
            if !holds {
                return Err(otherwise.into());
            }
        }
        Ok(())
    }
}
