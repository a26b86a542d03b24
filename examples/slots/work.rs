//! The work: pieces that each need a slot for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use corona::session_driver::{
    Ending, Event, Grant, Lost, Options, ResourceType, SessionDriver, SessionEvents, SessionStatus,
    SlotRequest,
};
use tokio::time::{interval, sleep_until};

use crate::screen::{NodeLine, Picture, Screen};

/// Pieces of work, the slots that they run on, and the session that gets those slots.
pub(crate) struct Work {
    driver: SessionDriver,
    events: SessionEvents,
    near: Vec<String>,
    hold: Duration,
    started: Instant,
    pieces: usize,
    done: usize,
    /// By the id of the request.
    running: BTreeMap<i32, Piece>,
    nodes: BTreeMap<String, Node>,
}

/// A piece that runs.
struct Piece {
    node: String,
    ends: Instant,
}

#[derive(Default)]
struct Node {
    host: String,
    done: usize,
    dead: bool,
}

impl Work {
    /// Starts a session and asks for a slot for each piece.
    pub(crate) async fn start(
        options: Options,
        pieces: usize,
        near: &[String],
        hold: Duration,
    ) -> anyhow::Result<Work> {
        let (driver, events) = SessionDriver::start(options).await?;
        let slot = SlotRequest::new(ResourceType::Map).near(near.iter().map(String::as_str));
        driver.request(vec![slot; pieces])?;
        Ok(Work {
            driver,
            events,
            near: near.to_vec(),
            hold,
            started: Instant::now(),
            pieces,
            done: 0,
            running: BTreeMap::new(),
            nodes: BTreeMap::new(),
        })
    }

    /// Works until all is done, the session has ended, or a person presses Ctrl-C. Returns whether
    /// all is done.
    pub(crate) async fn run(&mut self, screen: &mut Screen) -> anyhow::Result<bool> {
        let (handle, pool) = (self.driver.handle(), self.driver.pool());
        screen.tell(self.started, format!("session {handle} in pool {pool}"))?;
        let mut redraw = interval(screen.redraw_interval());
        while self.done < self.pieces {
            let next_end = self.running.values().map(|piece| piece.ends).min();
            let wake = next_end.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                event = self.events.next() => match event {
                    Some(Event::Ended(ending)) => anyhow::bail!("the session has ended: {ending}"),
                    None => anyhow::bail!("the session has ended"),
                    Some(event) => self.learn(event, screen)?,
                },
                () = sleep_until(wake.into()) => self.finish_pieces()?,
                _ = redraw.tick() => {}
                stopped = tokio::signal::ctrl_c() => {
                    stopped?;
                    screen.tell(self.started, "stopped".into())?;
                    self.end(SessionStatus::Killed, screen).await?;
                    return Ok(false);
                }
            }
            screen.draw(&self.picture())?;
        }
        self.end(SessionStatus::Successful, screen).await?;
        Ok(true)
    }

    async fn end(&self, status: SessionStatus, screen: &mut Screen) -> anyhow::Result<()> {
        let ending: std::sync::Arc<Ending> = self.driver.end(status).await;
        screen.tell(self.started, format!("the session {ending}"))?;
        screen.draw(&self.picture())?;
        screen.finish()?;
        Ok(())
    }

    fn learn(&mut self, event: Event, screen: &mut Screen) -> anyhow::Result<()> {
        match event {
            Event::Granted(grants) => {
                let nodes: BTreeSet<_> = grants.iter().map(|grant| &*grant.node_name).collect();
                let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
                screen
                    .tell(self.started, format!("{} on {nodes}", slots(grants.len(), "granted")))?;
                for grant in grants {
                    self.begin_piece(grant);
                }
            }
            Event::Revoked(lost) => {
                let text = slots(lost.len(), "taken back");
                self.begin_again(&lost, text, screen)?;
            }
            Event::DeadNode { node, lost } => {
                self.nodes.entry(node.to_string()).or_default().dead = true;
                let text = format!("{node} is dead, {}", slots(lost.len(), "lost"));
                self.begin_again(&lost, text, screen)?;
            }
            // The caller has handled the end.
            _ => {}
        }
        Ok(())
    }

    fn begin_piece(&mut self, grant: Grant) {
        let node = self.nodes.entry(grant.node_name.to_string()).or_default();
        node.host = grant.address.host.to_string();
        node.dead = false;
        let ends = Instant::now() + self.hold;
        self.running.insert(grant.id, Piece { node: grant.node_name.to_string(), ends });
    }

    fn finish_pieces(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let is_over = |(_, piece): &(&i32, &Piece)| piece.ends <= now;
        let over: Vec<_> = self.running.iter().filter(is_over).map(|(id, _)| *id).collect();
        for piece in over.iter().filter_map(|id| self.running.remove(id)) {
            self.done += 1;
            self.nodes.entry(piece.node).or_default().done += 1;
        }
        self.driver.release(over)?;
        Ok(())
    }

    fn begin_again(
        &mut self,
        lost: &[Lost],
        text: String,
        screen: &mut Screen,
    ) -> anyhow::Result<()> {
        for lost in lost {
            self.running.remove(&lost.request.id);
        }
        let again = self.driver.replace(lost)?.len();
        let again = if again > 0 { ", asked for again" } else { "" };
        screen.tell(self.started, format!("{text}{again}"))?;
        Ok(())
    }

    fn picture(&self) -> Picture {
        let line = |(name, node): (&String, &Node)| NodeLine {
            name: name.clone(),
            host: node.host.clone(),
            is_near: self.near.contains(&node.host),
            is_dead: node.dead,
            held: self.running.values().filter(|piece| piece.node == *name).count(),
            done: node.done,
        };
        let snapshot = self.driver.snapshot();
        let (standings, totals) = (snapshot.standings(ResourceType::Map), snapshot.totals);
        Picture {
            handle: self.driver.handle().to_string(),
            pool: self.driver.pool().to_string(),
            elapsed: self.started.elapsed(),
            nodes: self.nodes.iter().map(line).collect(),
            pieces: self.pieces,
            done: self.done,
            running: standings.granted,
            waiting: standings.wanted + standings.pending,
            revoked: totals.revoked,
            died: totals.died,
            failed_attempts: self.driver.traffic().failed_attempts,
        }
    }
}

fn slots(count: usize, what: &str) -> String {
    let noun = if count == 1 { "slot" } else { "slots" };
    format!("{count} {noun} {what}")
}
