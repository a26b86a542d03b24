//! Invariants that must always hold: the engine's state agrees with the peers' view, nothing waits
//! without a reason, and no pool starves for longer than configured.
//!
//! Found the naive way, from the [`Model`] alone; the engine is only looked at from outside.

use std::collections::BTreeMap;

use super::model::{Model, Name, Node, Wish, WishState};
use super::queues::{Queue, Shares};
use super::resources::Numbers;
use corona_engine::{
    Competition, Effect, Engine, Input, Notification, Outcome, SlotCounts, WaitReason,
    WaitingRequests,
};
use corona_model::types::{Millis, PoolName, ResourceType};

/// The engine's state agrees with the messages to the peers.
pub(super) fn compare(model: &Model, engine: &Engine, now: Millis) -> Result<(), String> {
    if engine.safe_mode() != model.safe_mode {
        return Err("safe mode".into());
    }
    compare_nodes(model, engine)?;
    compare_sessions(model, engine, now)?;
    compare_pools(model, engine)?;
    let late = model.nodes.values().filter(|node| node.late).count();
    equal(|| "late nodes".into(), engine.late_nodes(), late)?;
    let oldest = model.nodes.values().map(|node| node.heard).min();
    equal(|| "the oldest heartbeat".into(), engine.oldest_heartbeat(), oldest)?;
    for kind in ResourceType::ALL {
        let nodes = || model.nodes.values();
        let total = nodes().map(|node| u64::from(model.slots(node, kind))).sum();
        let serving = nodes().filter(|node| node.apps[kind].is_some());
        let served = serving.map(|node| u64::from(model.slots(node, kind))).sum();
        let used = nodes().map(|node| u64::from(node.used[kind])).sum();
        let (seen, expected) = (engine.slots(kind), SlotCounts { total: served, used });
        equal(|| format!("slots of {kind}"), seen, expected)?;
        let (seen, expected) = (engine.slots_of_all_nodes(kind), SlotCounts { total, used });
        equal(|| format!("slots of {kind} of all nodes"), seen, expected)?;
    }
    Ok(())
}

fn compare_nodes(model: &Model, engine: &Engine) -> Result<(), String> {
    let views = engine.nodes();
    equal(|| "nodes".into(), views.len(), model.nodes.len())?;
    for (view, (name, node)) in views.iter().zip(&model.nodes) {
        let what = || format!("node {name}");
        equal(what, &view.name, name)?;
        equal(what, &view.address, &node.address)?;
        equal(what, &view.apps, &node.apps)?;
        equal(what, view.last_heartbeat, node.heard)?;
        equal(what, view.late, node.late)?;
        equal(what, view.allowed, !node.shut)?;
        equal(what, view.draining, node.draining)?;
        equal(what, view.revoked, node.revoked)?;
        equal(what, view.sessions, node.visitors.len())?;
        for kind in ResourceType::ALL {
            let total = u64::from(model.slots(node, kind));
            let slots = SlotCounts { total, used: u64::from(node.used[kind]) };
            equal(what, view.slots[kind], slots)?;
            equal(what, view.blacklisted[kind], model.blacklisted(node, kind))?;
        }
    }
    Ok(())
}

fn compare_sessions(model: &Model, engine: &Engine, now: Millis) -> Result<(), String> {
    let views = engine.sessions_at(now);
    equal(|| "sessions".into(), views.len(), model.sessions.len())?;
    for view in views {
        let what = || format!("session {}", view.handle);
        let session = model.sessions.get(&view.handle).ok_or_else(what)?;
        equal(what, &view.scheduling_pool, &session.pool)?;
        for kind in ResourceType::ALL {
            equal(what, view.counts[kind].now, session.counts[kind])?;
        }
        let held = engine.grants(&view.handle).unwrap_or_default();
        let held = held.iter().map(|view| {
            let grant = &view.grant;
            (grant.id, grant.kind, &grant.node_name, grant.granted_at)
        });
        let told = session.wishes.iter().filter_map(|(id, wish)| match &wish.state {
            WishState::Holds { node, at } => Some((*id, wish.kind, node, *at)),
            _ => None,
        });
        if !held.clone().eq(told.clone()) {
            let (held, told): (Vec<_>, Vec<_>) = (held.collect(), told.collect());
            return Err(format!("{}: holds {held:?}, was told {told:?}", what()));
        }
    }
    Ok(())
}

fn compare_pools(model: &Model, engine: &Engine) -> Result<(), String> {
    let views = engine.pools();
    for view in &views {
        let what = || format!("pool {}.{:?}", view.group, view.pool);
        let counts = match &view.pool {
            Some(pool) => {
                model.pools.get(&PoolName { group: view.group.clone(), pool: pool.clone() })
            }
            None => None,
        };
        let counts = counts.copied().unwrap_or_default();
        for kind in ResourceType::ALL {
            let counts = match view.pool {
                Some(_) => counts[kind],
                None => model.counts_in(&Queue::Group(view.group.clone()), kind),
            };
            equal(what, view.counts[kind], counts)?;
        }
        let useless = view.pool.is_some() && !view.configured && view.sessions == 0;
        equal(what, useless, false)?;
    }
    let in_use = views.iter().filter(|view| view.pool.is_some() && view.sessions > 0).count();
    equal(|| "pools with sessions".into(), in_use, model.pools.len())
}

/// Every request that waits has a reason with a text, and when the engine has nothing left to do,
/// the reason is not that it has something left to do.
pub(super) fn explained(
    model: &Model,
    engine: &Engine,
    now: Millis,
    quiet: bool,
) -> Result<(), String> {
    let mut shares: BTreeMap<ResourceType, Shares> = BTreeMap::new();
    for (handle, session) in &model.sessions {
        let reasons = engine.explain(handle, now).unwrap_or_default();
        let bad = reasons.iter().find(|each| !is_good_english(&each.text));
        if let Some(bad) = bad {
            return Err(format!("{handle}: why requests wait reads {:?}", bad.text));
        }
        for WaitingRequests { kind, reason, .. } in &reasons {
            // Limits that are parts follow the slots in the next pass.
            if let (true, WaitReason::NoFreeSlot { competition, .. }) = (quiet, reason) {
                let shares = shares.entry(*kind).or_insert_with(|| model.pool_shares(*kind));
                due(competition, shares)?;
            }
        }
        for kind in ResourceType::ALL {
            let of_kind = || reasons.iter().filter(|each| each.kind == kind);
            let count: u64 = of_kind().map(|each| each.count).sum();
            let what = || format!("requests of {handle} for {kind} with a reason to wait");
            equal(what, count as i64, session.counts[kind].pending)?;
            let idle = of_kind().find(|each| matches!(each.reason, WaitReason::NextPass { .. }));
            if let Some(idle) = idle.filter(|_| quiet) {
                return Err(format!("{handle}: {idle:?}, but there is no next pass"));
            }
        }
    }
    Ok(())
}

/// The share that is shown is what the pool is due.
fn due(shown: &Competition, shares: &Shares) -> Result<(), String> {
    let Competition { pool, share, .. } = shown;
    let due = shares.get(pool).copied().unwrap_or(0.0);
    match (share - due).abs() < TOLERANCE {
        true => Ok(()),
        false => Err(format!("pool {pool} is shown a share of {share:.3}, and is due {due:.3}")),
    }
}

/// Whether a text has no part about nothing and no plural of one.
fn is_good_english(text: &str) -> bool {
    // Sessions may give a request the number 0.
    let padded = format!(" {text} ").replace(" request 0 ", " request N ");
    let wrong = |part: &&str| padded.contains(*part);
    !text.is_empty()
        && ![" 0 ", " 0.0", " 1 are ", " 1 slots", " 1 grants", " 1 nodes", "; ;", "  "]
            .iter()
            .any(wrong)
}

fn equal<T: PartialEq + std::fmt::Debug>(
    what: impl Fn() -> String,
    seen: T,
    expected: T,
) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    Err(format!("{}: the engine shows {seen:?}, the peers know {expected:?}", what()))
}

/// Requests that could be served but are not: allowed only while they wait for a near node.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitLimits {
    waiting_since: BTreeMap<(Name, ResourceType), Millis>,
}

impl WaitLimits {
    /// A session that gets a grant may start to wait again.
    pub(super) fn note(&mut self, input: &Input, outcome: &Outcome) {
        if matches!(input, Input::SettingsChanged { .. }) {
            self.waiting_since.clear();
        }
        for effect in &outcome.effects {
            match effect {
                Effect::Notify { handle, notification: Notification::Granted(grants), .. } => {
                    for grant in grants {
                        self.waiting_since.remove(&(handle.clone(), grant.kind));
                    }
                }
                Effect::ForgetSession { handle } => {
                    self.waiting_since.retain(|(waits, _), _| waits != handle);
                }
                _ => {}
            }
        }
    }

    /// To be called when the engine has nothing left to do at `now`.
    pub(super) fn check(&mut self, model: &Model, now: Millis) -> Result<(), String> {
        for kind in ResourceType::ALL {
            let nodes = model.nodes.iter().map(|node| (node, model.room(node.1, kind)));
            let nodes = nodes.filter(|((name, _), _)| !model.reserved.contains_key(*name));
            let nodes: Vec<_> = nodes.filter(|(_, room)| *room > 0).collect();
            for (handle, session) in &model.sessions {
                let key = (handle.clone(), kind);
                let mut allowed: BTreeMap<(u32, Numbers), bool> = BTreeMap::new();
                let mut reachable: Vec<(i32, bool)> = Vec::new();
                for (id, wish) in &session.wishes {
                    let waits = wish.kind == kind && wish.state == WishState::Waits;
                    let near = if waits { nearest(model, wish, &nodes) } else { None };
                    let Some(near) = near else { continue };
                    let (need, demand) = (model.need(wish), model.demand(wish));
                    let may = || model.may_be_given(session, kind, wish);
                    if *allowed.entry((need, demand)).or_insert_with(may) {
                        reachable.push((*id, near));
                    }
                }
                if reachable.is_empty() {
                    self.waiting_since.remove(&key);
                    continue;
                }
                let scheduling = &model.settings.scheduling;
                let waits =
                    kind == ResourceType::Map && scheduling.rack_locality_wait_ms[kind] != 0;
                let since = *self.waiting_since.entry(key).or_insert(now);
                let over = now.since(since) > scheduling.node_locality_wait_ms[kind];
                let overdue = reachable.iter().find(|(_, near)| *near || !waits || over);
                if let Some((id, _)) = overdue {
                    return Err(format!(
                        "{handle}: request {id} of {kind} waits while a slot that it may use is \
                         free, seen since {since:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether the request could be served, and if so whether without any wait.
fn nearest(model: &Model, wish: &Wish, nodes: &[((&Name, &Node), u32)]) -> Option<bool> {
    let need = model.need(wish);
    let usable = nodes.iter().filter(|((name, node), room)| {
        *room >= need
            && !wish.excluded.contains(&node.address.host)
            && model.has_resources(name, wish)
    });
    let near = usable
        .map(|((_, node), _)| wish.hosts.is_empty() || wish.hosts.contains(&node.address.host));
    near.max()
}

/// Pools that should be given slots of others and are not.
#[derive(Clone, Debug, Default)]
pub(super) struct Fairness {
    starving_since: BTreeMap<(PoolName, ResourceType), Millis>,
}

/// Shares of the engine may be lower by this, since its search stops near the solution.
const TOLERANCE: f64 = 0.1;

impl Fairness {
    /// To be called after each input. `quiet` when the engine has nothing left to do at `now`.
    pub(super) fn check(
        &mut self,
        model: &Model,
        now: Millis,
        input: &Input,
        outcome: &Outcome,
        quiet: bool,
    ) -> Result<(), String> {
        let disturbs = matches!(input, Input::SettingsChanged { .. } | Input::SetSafeMode { .. });
        let revoked = outcome.effects.iter().any(|effect| {
            matches!(effect, Effect::Notify { notification: Notification::Revoked(_), .. })
        });
        if disturbs || revoked {
            self.starving_since.clear();
        }
        // A pool without pending requests has all that it wants.
        self.starving_since.retain(|(pool, kind), _| {
            model.pools.get(pool).is_some_and(|counts| counts[*kind].pending > 0)
        });
        // Nothing is taken back where resources are counted.
        if !matches!(input, Input::Pass) || model.safe_mode || model.counts_resources() {
            return Ok(());
        }
        [ResourceType::Map, ResourceType::Reduce]
            .into_iter()
            .try_for_each(|kind| self.check_kind(model, kind, now, quiet))
    }

    fn check_kind(
        &mut self,
        model: &Model,
        kind: ResourceType,
        now: Millis,
        quiet: bool,
    ) -> Result<(), String> {
        let scheduling = &model.settings.scheduling;
        let clocks =
            [scheduling.starving_time_for_share_ms, scheduling.starving_time_for_minimum_ms];
        if !model.pools.values().any(|counts| counts[kind].pending > 0) || clocks.contains(&0) {
            self.starving_since.retain(|(_, of), _| *of != kind);
            return Ok(());
        }
        let shares = model.pool_shares(kind);
        let victims: Vec<&PoolName> = shares
            .iter()
            .filter(|(pool, share)| can_give(model, pool, **share, kind, now))
            .map(|(pool, _)| pool)
            .collect();
        for (pool, share) in &shares {
            let counts = model.pools.get(pool).map(|counts| counts[kind]).unwrap_or_default();
            let granted = counts.granted as f64;
            let (_, pending) = model.usable(pool, kind);
            let fence = model.fence(pool);
            let victims = victims.iter().any(|victim| {
                fence.as_ref().is_none_or(|fence| model.around(victim).contains(fence))
            });
            let due = ((share - TOLERANCE) * scheduling.share_starving_ratio).ceil();
            let starves = pending > 0 && granted < due && share - granted >= 1.0 + TOLERANCE;
            let key = (pool.clone(), kind);
            if !starves || !victims {
                self.starving_since.remove(&key);
                continue;
            }
            let since = *self.starving_since.entry(key).or_insert(now);
            let patience_ms =
                clocks[0].saturating_add(scheduling.min_preempt_period_ms).saturating_add(3000);
            if quiet && now.since(since) > patience_ms {
                return Err(format!(
                    "pool {pool} has {granted} slots of {kind} of its share of {share:.3} since \
                     {since:?}, and nothing is taken from others"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a pool has so much more than its share that at least one of its sessions has as well,
/// and all that it has may be taken.
fn can_give(model: &Model, pool: &PoolName, share: f64, kind: ResourceType, now: Millis) -> bool {
    let limit_ms = model.settings.scheduling.preempted_task_max_running_time_ms;
    let settings = model.settings.pools.pools.get(pool);
    let Some(counts) = model.pools.get(pool) else { return false };
    let sessions = || model.sessions.values().filter(|session| session.pool == *pool);
    let young = |wish: &Wish| match wish.state {
        WishState::Holds { at, .. } => {
            wish.kind != kind || (model.safe_ms(pool)..limit_ms).contains(&now.since(at))
        }
        _ => true,
    };
    settings.is_none_or(|pool| pool.preemptable)
        && !model.is_protected(pool)
        && counts[kind].granted as f64 - share >= sessions().count() as f64 * (1.0 + TOLERANCE)
        && sessions().all(|session| !session.no_preempt && session.wishes.values().all(young))
}
