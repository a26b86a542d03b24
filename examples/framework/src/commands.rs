//! The commands, and the processes that run them. A process outlives the framework: what it is and how it has ended is in
//! files of the directory.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts the command `$2` once, however often this is called; `$1` is its number.
const SCRIPT: &str = r#"
mkdir "$1.started" 2>/dev/null || exit 0
echo $$ >"$1.started/pid"
sh -c "$2" >"$1.out" 2>&1
echo $? >"$1.started/new"
mv "$1.started/new" "$1.status"
"#;

pub struct Commands {
    lines: Vec<String>,
    directory: PathBuf,
}

impl Commands {
    /// Reads the commands, one in each line, and makes the directory for their output.
    pub fn read(file: &Path, directory: PathBuf) -> Result<Commands, Box<dyn Error>> {
        fs::create_dir_all(&directory)?;
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Commands { lines: text.lines().map(str::to_owned).collect(), directory })
    }

    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Starts a command, unless it has been started before.
    pub fn launch(&self, number: usize) -> Result<(), Box<dyn Error>> {
        let line =
            self.lines.get(number.wrapping_sub(1)).ok_or("the file of commands is shorter")?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", &number.to_string(), line]);
        command.current_dir(&self.directory).stdin(Stdio::null()).process_group(0);
        let mut child = command.stdout(Stdio::null()).spawn()?;
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// The status with which a command has ended.
    pub fn status(&self, number: usize) -> Option<String> {
        let status = fs::read_to_string(self.directory.join(format!("{number}.status"))).ok()?;
        Some(status.trim().to_owned())
    }

    /// Stops a command, so that it can be started again.
    pub fn stop(&self, number: usize) -> Result<(), Box<dyn Error>> {
        let started = self.directory.join(format!("{number}.started"));
        if let Ok(pid) = fs::read_to_string(started.join("pid")) {
            let group = format!("-{}", pid.trim());
            // It may have ended meanwhile.
            let _ =
                Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        }
        match fs::remove_dir_all(started) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
