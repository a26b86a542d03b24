//! The election: what ZooKeeper shows goes to the role machine, and what that wants is asked of
//! ZooKeeper.
//!
//! | node under `corona.cm.ha.path` | content |
//! |---|---|
//! | `leader` | exists while an instance leads: an ephemeral node with a [`Leader`] |
//! | `succession` | who may lead next, with the number of the last leadership: a [`Succession`] |
//! | `lease` | written by the leader again and again, in a transaction that fails once somebody else has written `succession` |

use std::time::Duration;

use std::sync::Arc;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{
    Acls, CheckWriteError, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult,
    OneshotWatcher,
};

use super::instance_role::{InstanceRole, Leader, Order, Phase};
use super::lease::now;
use corona_config::ZooKeeperSettings;
use corona_standby::{Copy, Input, Succession};

/// How often a standby looks at ZooKeeper if no watch reports a change.
const LOOK: Duration = Duration::from_millis(500);
/// Between two attempts to reach ZooKeeper.
const RECONNECT: Duration = Duration::from_millis(300);

/// Why there is nothing to learn from ZooKeeper at the moment.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    ZooKeeper(#[from] ZkError),
    #[error("it did not answer in time")]
    Timeout,
    /// The lease is counted with the configured timeout, so a shorter one would be too short.
    #[error(
        "it grants sessions of {granted} ms at most, and corona.cm.ha.session.timeout.ms is {wanted}; \
         lower that key or raise maxSessionTimeout of ZooKeeper"
    )]
    ShortSession { granted: u128, wanted: u128 },
    #[error("the content of {0} cannot be read: {1}")]
    Content(String, serde_json::Error),
}

/// What a leader does next.
enum Next {
    Order(Order),
    Confirm,
    Resign,
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

    /// One session with ZooKeeper.
    async fn session(&mut self) -> Result<(), Unusable> {
        let client = connect(&self.settings).await?;
        client
            .mkdir(&self.settings.path, &CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .await
            .or_else(exists)?;
        let lease = self.node("lease");
        client
            .create(&lease, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .await
            .map(|_| ())
            .or_else(exists)?;
        self.is_connected.send_replace(true);
        tracing::info!("Connected to ZooKeeper at {}", self.settings.servers);
        loop {
            let phase = *self.instance_role.phase().borrow();
            match phase {
                Phase::Standby => self.stand_by(&client).await?,
                Phase::Leading(epoch) => return self.lead(&client, epoch).await,
                Phase::Fenced(_) => return Ok(()),
            }
        }
    }

    fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.settings.path)
    }

    /// Looks at ZooKeeper, campaigns if there is a reason, and waits for the next change.
    async fn stand_by(&mut self, client: &Client) -> Result<(), Unusable> {
        let (leader, changed) = seen_leader(client, &self.node("leader"), &self.settings).await?;
        let succession = self.succession(client).await?;
        if leader.is_some() {
            self.leader.send_if_modified(|known| {
                let differs = *known != leader;
                known.clone_from(&leader);
                differs
            });
        }
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
            _ = changed.changed() => {}
            () = sleep(LOOK) => {}
            _ = self.copy.changed() => {}
        }
        Ok(())
    }

    async fn succession(&self, client: &Client) -> Result<Option<(i32, Succession)>, Unusable> {
        let node = self.node("succession");
        match self.within(client.get_data(&node)).await {
            Ok((bytes, stat)) => {
                let succession = serde_json::from_slice(&bytes)
                    .map_err(|error| Unusable::Content(node, error))?;
                Ok(Some((stat.version, succession)))
            }
            Err(Unusable::ZooKeeper(ZkError::NoNode)) => Ok(None),
            Err(error) => Err(error),
        }
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
        let mut writer = client.new_multi_writer();
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        writer.add_create(&self.node("leader"), &json(&leader), &ephemeral)?;
        let node = self.node("succession");
        match version {
            Some(_) => writer.add_set_data(&node, &json(&succession), version)?,
            None => {
                let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
                writer.add_create(&node, &json(&succession), &persistent)?;
            }
        }
        let outcome = timeout(self.settings.session_timeout, writer.commit()).await;
        match outcome {
            Ok(Ok(results)) => {
                let version = match results.last() {
                    Some(MultiWriteResult::SetData { stat }) => stat.version,
                    _ => 0,
                };
                // Connections that wait go here from now on.
                self.leader.send_replace(Some(leader));
                self.instance_role.apply(Input::Won { sent, version });
                Ok(())
            }
            Ok(Err(MultiWriteError::OperationFailed { source, .. })) => {
                tracing::debug!("Campaign refused: {source}");
                self.instance_role.apply(Input::NotWon);
                Ok(())
            }
            // Nobody knows whether it was accepted. With this session its leadership ends.
            Ok(Err(MultiWriteError::RequestFailed { source })) => Err(source.into()),
            Err(_) => Err(Unusable::Timeout),
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
        let (mut phase, mut resign) = (self.instance_role.phase(), self.resign.clone());
        loop {
            let next = tokio::select! {
                biased;
                _ = resign.wait_for(|resign| *resign) => Next::Resign,
                _ = phase.wait_for(|phase| matches!(phase, Phase::Fenced(_))) => return Ok(()),
                order = self.orders.recv() => order.map_or(Next::Resign, Next::Order),
                () = tokio::time::sleep_until(due) => Next::Confirm,
            };
            match next {
                Next::Order(Order::Write { version: expected, succession }) => {
                    match self.write(client, expected, &succession).await? {
                        Some(written) => {
                            version = written;
                            self.instance_role.apply(Input::Written { version });
                        }
                        None => self.instance_role.apply(Input::NotWritten),
                    }
                }
                Next::Order(Order::Campaign { .. }) => {}
                Next::Confirm => {
                    due = Instant::now() + beat;
                    self.confirm(client, version).await?;
                }
                Next::Resign => {
                    self.leave(client).await;
                    return Ok(());
                }
            }
        }
    }

    /// Writes the lease, if no other instance has written the succession. Whatever else fails, the lease says
    /// how long this instance may continue; the client connects again by itself while the session lasts.
    async fn confirm(&self, client: &Client, version: i32) -> Result<(), Unusable> {
        let sent = now();
        let mut writer = client.new_check_writer(&self.node("succession"), Some(version))?;
        writer.add_set_data(&self.node("lease"), self.me.instance.as_bytes(), None)?;
        match timeout(self.settings.session_timeout, writer.commit()).await {
            Ok(Ok(_)) => self.instance_role.apply(Input::Confirmed { sent }),
            Ok(Err(CheckWriteError::CheckFailed { source: ZkError::BadVersion })) => {
                tracing::error!("The succession was written by another instance");
                self.instance_role.apply(Input::NotWritten);
            }
            Ok(Err(error)) => ignored_while_it_lasts(client, ZkError::from(error))?,
            Err(_) => {}
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
            match self.within(client.set_data(&node, &json(succession), Some(expected))).await {
                Ok(stat) => return Ok(Some(stat.version)),
                Err(Unusable::ZooKeeper(error)) => ignored_while_it_lasts(client, error)?,
                Err(_) => {}
            }
            // An attempt whose reply was lost may have succeeded.
            match self.succession(client).await {
                Ok(Some((version, known))) if known == *succession => return Ok(Some(version)),
                Ok(Some((version, _))) if version == expected => {}
                Ok(_) => return Ok(None),
                Err(Unusable::ZooKeeper(error)) => ignored_while_it_lasts(client, error)?,
                Err(_) => {}
            }
            if self.is_fenced() {
                return Err(Unusable::Timeout);
            }
            sleep(RECONNECT / 3).await;
        }
    }

    /// Gives the leadership up at once, instead of when the session ends.
    async fn leave(&self, client: &Client) {
        let left = self.within(client.delete(&self.node("leader"), None)).await;
        match left {
            Ok(()) => tracing::info!("Gave the leadership up"),
            Err(error) => tracing::warn!("Could not give the leadership up: {error}"),
        }
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T, Unusable> {
        within(self.settings.session_timeout, asked).await
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
            loop {
                let (found, changed) = seen_leader(&client, &node, settings).await?;
                if found.is_some() {
                    leader.send_if_modified(|known| {
                        let differs = *known != found;
                        known.clone_from(&found);
                        differs
                    });
                }
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
    let connecting = Client::connector()
        .with_session_timeout(settings.session_timeout)
        .with_connection_timeout(settings.session_timeout / 3)
        .connect(&settings.servers);
    let client = within(settings.session_timeout, connecting).await?;
    let (granted, wanted) =
        (client.session_timeout().as_millis(), settings.session_timeout.as_millis());
    if granted < wanted {
        return Err(Unusable::ShortSession { granted, wanted });
    }
    Ok(client)
}

/// The leader, and a watch on changes.
async fn seen_leader(
    client: &Client,
    node: &str,
    settings: &ZooKeeperSettings,
) -> Result<(Option<Leader>, OneshotWatcher), Unusable> {
    let limit = settings.session_timeout;
    loop {
        match within(limit, client.get_and_watch_data(node)).await {
            Ok((bytes, _, changed)) => {
                let leader = serde_json::from_slice(&bytes)
                    .map_err(|error| Unusable::Content(node.to_owned(), error))?;
                return Ok((Some(leader), changed));
            }
            Err(Unusable::ZooKeeper(ZkError::NoNode)) => {
                let (found, changed) = within(limit, client.check_and_watch_stat(node)).await?;
                if found.is_none() {
                    return Ok((None, changed));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, ZkError>>,
) -> Result<T, Unusable> {
    Ok(timeout(limit, asked).await.map_err(|_| Unusable::Timeout)??)
}

fn exists(error: ZkError) -> Result<(), ZkError> {
    if error == ZkError::NodeExists { Ok(()) } else { Err(error) }
}

/// A failure of one request while the session lasts is no reason to give it up.
fn ignored_while_it_lasts(client: &Client, error: ZkError) -> Result<(), Unusable> {
    if client.state().is_terminated() {
        return Err(error.into());
    }
    tracing::warn!("A request to ZooKeeper failed: {error}; retrying within the session");
    Ok(())
}

/// Structures of texts and numbers have a form in JSON.
fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
