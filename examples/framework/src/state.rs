//! What must survive a restart of the framework: its session, and which command runs on which slot.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use corona_session_driver::{SavedSession, SessionDriver};
use serde::{Deserialize, Serialize};

const FILE: &str = "state.json";

#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    session: SavedSession,
    /// The number of the command on the slot of each request.
    running: BTreeMap<i32, usize>,
    done: BTreeSet<usize>,
    #[serde(skip)]
    directory: PathBuf,
}

impl State {
    pub fn new(directory: PathBuf, session: SavedSession) -> State {
        State { session, running: BTreeMap::new(), done: BTreeSet::new(), directory }
    }

    /// The state that an earlier process has left, if there is one.
    pub fn read(directory: &Path) -> Result<Option<State>, Box<dyn Error>> {
        match fs::read(directory.join(FILE)) {
            Ok(text) => {
                let state: State = serde_json::from_slice(&text)?;
                Ok(Some(State { directory: directory.to_owned(), ..state }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the state, as it is before this many more requests.
    pub fn save(&mut self, driver: &SessionDriver, requests: usize) -> Result<(), Box<dyn Error>> {
        self.session = driver.save();
        self.session.last_id = self.session.last_id.saturating_add(i32::try_from(requests)?);
        let new = self.directory.join("state.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self)?)?;
        file.sync_all()?;
        Ok(fs::rename(new, self.directory.join(FILE))?)
    }

    /// Everything is done.
    pub fn remove(&self) -> Result<(), Box<dyn Error>> {
        Ok(fs::remove_file(self.directory.join(FILE))?)
    }

    pub fn session(&self) -> &SavedSession {
        &self.session
    }

    /// The command on the slot of a request.
    pub fn running(&self, request: i32) -> Option<usize> {
        self.running.get(&request).copied()
    }

    pub fn all_running(&self) -> Vec<usize> {
        self.running.values().copied().collect()
    }

    /// The commands, of so many, that need a slot.
    pub fn waiting(&self, count: usize) -> Vec<usize> {
        let is_running = |number: &usize| self.running.values().any(|running| running == number);
        (1..=count).filter(|number| !self.done.contains(number) && !is_running(number)).collect()
    }

    pub fn done(&self) -> usize {
        self.done.len()
    }

    pub fn run(&mut self, request: i32, number: usize) {
        self.running.insert(request, number);
    }

    /// The slot of a request is lost. Returns the command that ran there.
    pub fn lost(&mut self, request: i32) -> Option<usize> {
        self.running.remove(&request)
    }

    /// A command has ended. Returns its request.
    pub fn end(&mut self, number: usize) -> Option<i32> {
        self.done.insert(number);
        let (request, _) = self.running.iter().find(|(_, running)| **running == number)?;
        let request = *request;
        self.running.remove(&request);
        Some(request)
    }
}
