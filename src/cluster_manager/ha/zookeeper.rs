//! The election: what ZooKeeper shows goes to the role machine, and what that wants is asked of
//! ZooKeeper.
//!
//! | node under `corona.cm.ha.path` | content |
//! |---|---|
//! | `leader` | exists while an instance leads: an ephemeral node with a [`Leader`] |
//! | `succession` | who may lead next, with the number of the last leadership: a [`Succession`] |
//! | `lease` | written by the leader again and again, in a transaction that fails once somebody else has written `succession` |

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::instance_role::{InstanceRole, Leader, Order, Phase};
use super::lease::now;
use corona_config::ZooKeeperSettings;
use corona_standby::{Copy, Input, Succession};
use corona_zookeeper::{Change, Client, Code, Error as ZkError, Lifetime, Options};

/// How often a standby looks at ZooKeeper if no watch reports a change.
const LOOK: Duration = Duration::from_millis(500);
/// Between two attempts to reach ZooKeeper.
const RECONNECT: Duration = Duration::from_millis(300);

/// Why there is nothing to learn from ZooKeeper at the moment.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    ZooKeeper(#[from] ZkError),
    /// The lease is counted with the configured timeout, so a shorter one would be too short.
    #[error(
        "it grants sessions of {granted} ms at most, and corona.cm.ha.session.timeout.ms is {wanted}; \
         lower that key or raise maxSessionTimeout of ZooKeeper"
    )]
    ShortSession { granted: u128, wanted: u128 },
    #[error("the content of {0} cannot be read: {1}")]
    Content(String, serde_json::Error),
}

/// The connection of an instance to ZooKeeper.
pub(super) struct Election {
    pub(super) settings: ZooKeeperSettings,
    pub(super) instance_role: Arc<InstanceRole>,
    /// How others reach this instance if it leads.
    pub(super) me: Leader,
    pub(super) orders: mpsc::Receiver<Order>,
    /// The leader that ZooKeeper last showed.
    pub(super) leader: watch::Sender<Option<Leader>>,
    /// Whether ZooKeeper showed a leader when it was last looked at.
    pub(super) is_led: watch::Sender<bool>,
    /// Whether ZooKeeper was heard lately.
    pub(super) is_connected: watch::Sender<bool>,
    /// What this instance would lead with. `None`: it cannot lead at the moment.
    pub(super) copy: watch::Receiver<Option<Copy>>,
    /// Becomes true when this instance is to give the leadership up.
    pub(super) resign: watch::Receiver<bool>,
}

impl Election {
    /// Takes part in the election until this instance has resigned or is fenced.
    pub(super) async fn run(mut self) {
        loop {
            let ended = self.session().await;
            self.is_connected.send_replace(false);
            if let Err(error) = ended {
                tracing::warn!(
                    "ZooKeeper at {} cannot be used: {error}; retrying",
                    self.settings.servers
                );
            }
            let has_resigned = *self.resign.borrow();
            self.instance_role.apply(match has_resigned {
                true => Input::SteppedDown,
                false => Input::SessionLost,
            });
            if has_resigned || self.is_fenced() {
                return;
            }
            sleep(RECONNECT).await;
        }
    }

    fn is_fenced(&self) -> bool {
        matches!(*self.instance_role.phase().borrow(), Phase::Fenced(_))
    }

    /// One session with ZooKeeper. It is closed at the end: a leadership ends with it at once, whatever the
    /// reason, and not only when the session has timed out.
    async fn session(&mut self) -> Result<(), Unusable> {
        let client = connect(&self.settings).await?;
        let (mut phase, mut resign) = (self.instance_role.phase(), self.resign.clone());
        let ended = tokio::select! {
            biased;
            _ = resign.wait_for(|resign| *resign) => Ok(()),
            _ = phase.wait_for(|phase| matches!(phase, Phase::Fenced(_))) => Ok(()),
            ended = self.take_part(&client) => ended,
        };
        let led = *self.instance_role.phase().borrow() != Phase::Standby;
        match (timeout(leave_limit(&self.settings), client.close()).await, led) {
            (Ok(Ok(())), true) => tracing::info!("Gave the leadership up"),
            (Ok(Ok(())), false) => {}
            (Ok(Err(error)), _) => {
                tracing::warn!("Could not end the session with ZooKeeper: {error}")
            }
            (Err(_), _) => tracing::warn!("Could not end the session with ZooKeeper in time"),
        }
        ended
    }

    async fn take_part(&mut self, client: &Client) -> Result<(), Unusable> {
        let mut path = String::new();
        for name in self.settings.path.split('/').filter(|name| !name.is_empty()) {
            path.push('/');
            path.push_str(name);
            client.create(&path, b"", Lifetime::Persistent).await.or_else(exists)?;
        }
        client.create(&self.node("lease"), b"", Lifetime::Persistent).await.or_else(exists)?;
        self.is_connected.send_replace(true);
        tracing::info!("Connected to ZooKeeper at {}", self.settings.servers);
        loop {
            let phase = *self.instance_role.phase().borrow();
            match phase {
                Phase::Standby => self.stand_by(client).await?,
                Phase::Leading(epoch) => return self.lead(client, epoch).await,
                Phase::Fenced(_) => return Ok(()),
            }
        }
    }

    fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.settings.path)
    }

    /// Looks at ZooKeeper, campaigns if there is a reason, and waits for the next change.
    async fn stand_by(&mut self, client: &Client) -> Result<(), Unusable> {
        let mut changed = client.events();
        changed.mark_unchanged();
        let leader = seen_leader(client, &self.node("leader")).await?;
        let succession = self.succession(client).await?;
        show(&self.leader, &leader);
        self.is_led.send_replace(leader.is_some());
        let copy = *self.copy.borrow_and_update();
        if let Some(copy) = copy {
            let is_led = leader.is_some();
            self.instance_role.apply(Input::Seen { is_led, succession, copy });
        }
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Campaign { version, succession } = order {
                self.campaign(client, version, succession).await?;
                return Ok(());
            }
        }
        tokio::select! {
            changed = changed.changed() => changed.map_err(|_| ZkError::SessionOver)?,
            () = sleep(LOOK) => {}
            _ = self.copy.changed() => {}
        }
        Ok(())
    }

    async fn succession(&self, client: &Client) -> Result<Option<(i32, Succession)>, Unusable> {
        let node = self.node("succession");
        let Some((bytes, version)) = client.get(&node).await? else { return Ok(None) };
        let succession =
            serde_json::from_slice(&bytes).map_err(|error| Unusable::Content(node, error))?;
        Ok(Some((version, succession)))
    }

    /// Asks for the leadership.
    async fn campaign(
        &mut self,
        client: &Client,
        version: Option<i32>,
        succession: Succession,
    ) -> Result<(), Unusable> {
        let sent = now();
        let leader = Leader { epoch: succession.epoch, ..self.me.clone() };
        let (path, data) = (self.node("succession"), json(&succession));
        let changes = vec![
            Change::Create {
                path: self.node("leader"),
                data: json(&leader),
                lifetime: Lifetime::Session,
            },
            match version {
                Some(_) => Change::Set { path, data, version },
                None => Change::Create { path, data, lifetime: Lifetime::Persistent },
            },
        ];
        match client.transact(changes).await {
            Ok(versions) => {
                let version = versions.last().copied().unwrap_or_default();
                // Connections that wait go here from now on.
                self.leader.send_replace(Some(leader));
                self.instance_role.apply(Input::Won { sent, version });
                Ok(())
            }
            Err(refused @ ZkError::ChangeRefused { .. }) => {
                tracing::debug!("Campaign refused: {refused}");
                self.instance_role.apply(Input::NotWon);
                Ok(())
            }
            // Nobody knows whether it was accepted. With this session its leadership ends.
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the lease until it is over.
    async fn lead(&mut self, client: &Client, epoch: u64) -> Result<(), Unusable> {
        let beat = self.settings.session_timeout / 6;
        let (mut version, _) = match self.succession(client).await? {
            Some((version, known)) if known.epoch == epoch => (version, known),
            _ => return Ok(()),
        };
        let mut due = Instant::now();
        loop {
            let order = tokio::select! {
                biased;
                order = self.orders.recv() => order,
                () = tokio::time::sleep_until(due) => {
                    due = Instant::now() + beat;
                    self.confirm(client, version).await?;
                    continue;
                }
            };
            match order {
                Some(Order::Write { version: expected, succession }) => {
                    match self.write(client, expected, &succession).await? {
                        Some(written) => {
                            version = written;
                            self.instance_role.apply(Input::Written { version });
                        }
                        None => self.instance_role.apply(Input::NotWritten),
                    }
                }
                Some(Order::Campaign { .. }) => {}
                None => return Ok(()),
            }
        }
    }

    /// Writes the lease, if no other instance has written the succession. Whatever else fails, the lease says
    /// how long this instance may continue; the client connects again by itself while the session lasts.
    async fn confirm(&self, client: &Client, version: i32) -> Result<(), Unusable> {
        let sent = now();
        let data = self.me.instance.as_bytes().to_vec();
        let changes = vec![
            Change::Check { path: self.node("succession"), version },
            Change::Set { path: self.node("lease"), data, version: None },
        ];
        match client.transact(changes).await {
            Ok(_) => self.instance_role.apply(Input::Confirmed { sent }),
            Err(ZkError::ChangeRefused { place: 0, code: Code::BAD_VERSION }) => {
                tracing::error!("The succession was written by another instance");
                self.instance_role.apply(Input::NotWritten);
            }
            Err(error) => ignored_while_it_lasts(client, error)?,
        }
        Ok(())
    }

    /// Writes the succession. Returns its version, or `None` if somebody else has written it.
    async fn write(
        &self,
        client: &Client,
        expected: i32,
        succession: &Succession,
    ) -> Result<Option<i32>, Unusable> {
        let node = self.node("succession");
        loop {
            match client.set(&node, &json(succession), Some(expected)).await {
                Ok(version) => return Ok(Some(version)),
                Err(error) => ignored_while_it_lasts(client, error)?,
            }
            // An attempt whose reply was lost may have succeeded.
            match self.succession(client).await {
                Ok(Some((version, known))) if known == *succession => return Ok(Some(version)),
                Ok(Some((version, _))) if version == expected => {}
                Ok(_) => return Ok(None),
                Err(Unusable::ZooKeeper(error)) => ignored_while_it_lasts(client, error)?,
                Err(_) => {}
            }
            sleep(RECONNECT / 3).await;
        }
    }
}

/// Follows the leader that ZooKeeper shows, forever. The last one is kept while ZooKeeper cannot be
/// reached.
pub(super) async fn follow_leader(
    settings: &ZooKeeperSettings,
    leader: &watch::Sender<Option<Leader>>,
) {
    let node = format!("{}/leader", settings.path);
    loop {
        let failed = async {
            let client = connect(settings).await?;
            let mut changed = client.events();
            loop {
                changed.mark_unchanged();
                show(leader, &seen_leader(&client, &node).await?);
                // A change that the watch does not report, such as the end of the session.
                let _ = timeout(Duration::from_secs(10), changed.changed()).await;
            }
        };
        let failed: Result<(), Unusable> = failed.await;
        if let Err(error) = failed {
            tracing::warn!("ZooKeeper at {} cannot be used: {error}; retrying", settings.servers);
        }
        sleep(RECONNECT).await;
    }
}

async fn connect(settings: &ZooKeeperSettings) -> Result<Client, Unusable> {
    let options = Options {
        servers: settings.servers.split(',').map(str::to_owned).collect(),
        session_timeout: settings.session_timeout,
        connect_timeout: settings.session_timeout / 6,
    };
    let client = Client::connect(options).await?;
    let (granted, wanted) =
        (client.session_timeout().as_millis(), settings.session_timeout.as_millis());
    if granted < wanted {
        let _ = timeout(leave_limit(settings), client.close()).await;
        return Err(Unusable::ShortSession { granted, wanted });
    }
    Ok(client)
}

/// How long the end of a session may take. Another instance waits for it, and for at most the session's timeout.
pub(super) fn leave_limit(settings: &ZooKeeperSettings) -> Duration {
    settings.session_timeout / 6
}

/// The leader. [`Client::events`] reports changes afterwards.
async fn seen_leader(client: &Client, node: &str) -> Result<Option<Leader>, Unusable> {
    let Some((bytes, _)) = client.get_and_watch(node).await? else { return Ok(None) };
    let leader = serde_json::from_slice(&bytes);
    Ok(Some(leader.map_err(|error| Unusable::Content(node.to_owned(), error))?))
}

/// Shows a leader that was seen. Without one, the last one stays known.
fn show(shown: &watch::Sender<Option<Leader>>, seen: &Option<Leader>) {
    if seen.is_some() {
        shown.send_if_modified(|known| {
            let differs = known != seen;
            known.clone_from(seen);
            differs
        });
    }
}

fn exists(error: ZkError) -> Result<(), ZkError> {
    if error.is(Code::NODE_EXISTS) { Ok(()) } else { Err(error) }
}

/// A failure of one request while the session lasts is no reason to give it up.
fn ignored_while_it_lasts(client: &Client, error: ZkError) -> Result<(), Unusable> {
    if client.is_over() || matches!(error, ZkError::SessionOver) {
        return Err(error.into());
    }
    tracing::warn!("A request to ZooKeeper failed: {error}; retrying within the session");
    Ok(())
}

/// Structures of texts and numbers have a form in JSON.
fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
