//! A small framework that is not MapReduce: it runs each line of a file as a command, on a slot of its own.
//!
//! ```text
//! framework HOST:PORT DIRECTORY COMMANDS [CPUS MEMORY_MB]
//! ```
//!
//! HOST:PORT is the cluster manager's Thrift address. CPUS and MEMORY_MB are what each command needs of its node, in a cluster
//! that counts resources. DIRECTORY keeps what must survive a restart of the framework:
//! the session, and which command runs on which slot; also the output of each command, as `NUMBER.out`.
//! The commands are started on this machine, which is where the nodes of `corona mini-cluster` are; `Commands::launch`
//! is the place for `ssh`, or for an agent on the nodes.
//!
//! The cluster manager may restart: the session driver sees to that. The framework itself may be killed at any time: started again
//! in the same directory, it goes on with its session, and with the commands that still run.

mod commands;
mod state;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use corona_session_driver::{
    ComputeSpecs, DriverHost, Event, Grant, Options, ResourceType, SessionDriver, SessionEvents,
    SessionStatus, SlotRequest,
};
use tokio::time::{MissedTickBehavior, interval};

use commands::Commands;
use state::State;

/// How often the framework looks which commands have ended.
const LOOK: Duration = Duration::from_millis(100);
/// Between heartbeats: more often than sessions expire in any sensible cluster.
const HEARTBEAT: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(([manager, directory, commands], slot)) = usage(&arguments) else {
        eprintln!("usage: framework HOST:PORT DIRECTORY COMMANDS [CPUS MEMORY_MB]");
        return ExitCode::from(2);
    };
    match run(manager, directory.into(), commands.into(), slot).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("framework: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments, and what is requested for each command.
fn usage(arguments: &[String]) -> Option<([&str; 3], SlotRequest)> {
    let slot = SlotRequest::new(ResourceType::Map);
    match arguments {
        [manager, directory, commands] => Some(([manager, directory, commands], slot)),
        [manager, directory, commands, cpus, memory_mb] => {
            let specs =
                ComputeSpecs::cpus(cpus.parse().ok()?).with_memory_mb(memory_mb.parse().ok()?);
            Some(([manager, directory, commands], slot.with_specs(specs)))
        }
        _ => None,
    }
}

async fn run(
    manager: &str,
    directory: PathBuf,
    commands: PathBuf,
    slot: SlotRequest,
) -> Result<(), Box<dyn Error>> {
    let user = std::env::var("USER").unwrap_or_else(|_| "nobody".to_owned());
    let mut options = Options::new(manager.parse()?, user);
    options.name = Some("a list of commands".to_owned());
    options.timers.heartbeat_interval = HEARTBEAT;
    let commands = Commands::read(&commands, directory.clone())?;
    let (state, driver, events) = match State::read(&directory)? {
        Some(state) => resume(state, options).await?,
        None => {
            let (driver, events) = SessionDriver::start(options).await?;
            (State::new(directory, driver.save()), driver, events)
        }
    };
    println!("session {}", driver.handle());
    let mut framework = Framework { commands, slot, state, driver };
    framework.begin()?;
    framework.work(events).await?;
    let ending = framework.driver.end(SessionStatus::Successful).await;
    println!("the session {ending}");
    framework.state.remove()
}

/// Goes on with the session of an earlier process. It takes notifications where it did.
async fn resume(
    state: State,
    mut options: Options,
) -> Result<(State, SessionDriver, SessionEvents), Box<dyn Error>> {
    let session = state.session().clone();
    if let Some(address) = &session.notifications {
        options.listen.port = address.port;
    }
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await?;
    let (driver, events) = host.resume(session, options).await?;
    Ok((state, driver, events))
}

struct Framework {
    commands: Commands,
    /// What each command needs.
    slot: SlotRequest,
    state: State,
    driver: SessionDriver,
}

impl Framework {
    /// Releases slots on which no command runs, starts those that an earlier process was about to start, and asks for a slot
    /// for each of the others.
    fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        let snapshot = self.driver.snapshot();
        let unused = snapshot.slots.iter().map(|slot| slot.request.id);
        self.driver.release(unused.filter(|id| self.state.running(*id).is_none()))?;
        for number in self.state.all_running() {
            self.commands.launch(number)?;
        }
        self.request(self.state.waiting(self.commands.count()).len())
    }

    /// What may be sent is written down before: a request that nobody remembers must not get its id a second time.
    fn request(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        self.state.save(&self.driver, count)?;
        self.driver.request(vec![self.slot.clone(); count])?;
        Ok(())
    }

    async fn work(&mut self, mut events: SessionEvents) -> Result<(), Box<dyn Error>> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.state.done() < self.commands.count() {
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Granted(grants)) => self.begin_on(grants)?,
                    Some(Event::Revoked(lost) | Event::DeadNode { lost, .. }) => {
                        for lost in &lost {
                            if let Some(number) = self.state.lost(lost.request.id) {
                                println!("command {number}: its slot is lost, and it waits for another");
                                self.commands.stop(number)?;
                            }
                        }
                        self.request(lost.len())?;
                    }
                    Some(Event::Ended(ending)) => {
                        return Err(format!("the session has ended: {ending}").into());
                    }
                    Some(_) => {}
                    None => return Err("the session has ended".into()),
                },
                _ = look.tick() => self.finish()?,
            }
        }
        Ok(())
    }

    /// Which command runs on which slot is written down before it starts.
    fn begin_on(&mut self, grants: Vec<Grant>) -> Result<(), Box<dyn Error>> {
        let mut begun = Vec::new();
        for grant in grants {
            match self.state.waiting(self.commands.count()).first() {
                Some(number) => {
                    println!("command {number} on {}", grant.node_name);
                    self.state.run(grant.id, *number);
                    begun.push(*number);
                }
                None => drop(self.driver.release([grant.id])?),
            }
        }
        self.state.save(&self.driver, 0)?;
        begun.into_iter().try_for_each(|number| self.commands.launch(number))
    }

    /// Releases the slots of commands that have ended.
    fn finish(&mut self) -> Result<(), Box<dyn Error>> {
        let mut released = Vec::new();
        for number in self.state.all_running() {
            if let Some(status) = self.commands.status(number) {
                println!("command {number} has ended with status {status}");
                released.extend(self.state.end(number));
            }
        }
        if !released.is_empty() {
            self.driver.release(released)?;
            self.state.save(&self.driver, 0)?;
        }
        Ok(())
    }
}
