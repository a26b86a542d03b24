//! Output for people: a table that is drawn again and again on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const COLUMNS: usize = 80;
/// Nodes shown; the others are counted.
const NODES: usize = 12;
/// Lines of news shown.
const NEWS: usize = 6;

/// All that is to be seen at one time.
pub(crate) struct Picture {
    pub(crate) handle: String,
    pub(crate) pool: String,
    pub(crate) elapsed: Duration,
    pub(crate) nodes: Vec<NodeLine>,
    pub(crate) pieces: usize,
    pub(crate) done: usize,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) revoked: u64,
    pub(crate) died: u64,
    pub(crate) failed_attempts: u64,
}

/// A node on which something ran.
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) host: String,
    /// Whether it is one that was wished for.
    pub(crate) is_near: bool,
    pub(crate) is_dead: bool,
    pub(crate) held: usize,
    pub(crate) done: usize,
}

/// The terminal, or stdout if that is no terminal.
pub(crate) struct Screen {
    is_terminal: bool,
    news: VecDeque<String>,
    /// Lines of the last picture, to be drawn over.
    drawn: usize,
    /// The count of done pieces in the last plain line.
    told_done: usize,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        let is_terminal = io::stdout().is_terminal();
        Screen { is_terminal, news: VecDeque::new(), drawn: 0, told_done: 0 }
    }

    /// How often it is worth drawing.
    pub(crate) fn redraw_interval(&self) -> Duration {
        Duration::from_millis(if self.is_terminal { 100 } else { 1000 })
    }

    /// Something has happened.
    pub(crate) fn tell(&mut self, started: Instant, what: String) -> io::Result<()> {
        let line = format!("{:6.1} s  {what}", started.elapsed().as_secs_f64());
        if !self.is_terminal {
            return writeln!(io::stdout(), "{line}");
        }
        self.news.push_back(line);
        if self.news.len() > NEWS {
            self.news.pop_front();
        }
        Ok(())
    }

    /// Draws the picture over the last one. Elsewhere than on a terminal, prints the progress
    /// whenever it has changed by a tenth.
    pub(crate) fn draw(&mut self, picture: &Picture) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_terminal {
            let step = picture.pieces.div_ceil(10).max(1);
            if picture.done / step > self.told_done / step {
                self.told_done = picture.done;
                writeln!(out, "{}", progress(picture))?;
            }
            return Ok(());
        }
        let lines = self.lines(picture);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in &lines {
            let line: String = line.chars().take(COLUMNS - 1).collect();
            text.push_str(&format!("\r{line}\x1b[K\n"));
        }
        // A picture that is shorter than the last one must erase the rest of it.
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// The last picture stays.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.drawn = 0;
        io::stdout().flush()
    }

    fn lines(&self, picture: &Picture) -> Vec<String> {
        let elapsed = picture.elapsed.as_secs_f64();
        let head = format!("session {}  pool {}", picture.handle, picture.pool);
        let mut lines = vec![
            format!("{head:<67} {elapsed:8.1} s"),
            String::new(),
            format!("{:<24} {:<18} {:<24} {:>9}", "node", "host", "slots held", "done"),
        ];
        lines.extend(picture.nodes.iter().take(NODES).map(node_line));
        if let Some(more) = picture.nodes.len().checked_sub(NODES).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        lines.push(String::new());
        lines.push(progress(picture));
        lines.push(String::new());
        lines.extend(self.news.iter().cloned());
        lines
    }
}

fn node_line(node: &NodeLine) -> String {
    let held = match (node.is_dead, node.held) {
        (true, _) => "dead".to_owned(),
        (false, held) if held > 20 => format!("{held}"),
        (false, held) => "#".repeat(held),
    };
    let near = if node.is_near { "*" } else { " " };
    let (name, host) = (cut(&node.name, 24), cut(&node.host, 16));
    format!("{name:<24} {host:<16}{near}  {held:<24} {:>8}", node.done)
}

fn progress(picture: &Picture) -> String {
    const WIDTH: usize = 20;
    let full = (picture.done * WIDTH).checked_div(picture.pieces).unwrap_or(WIDTH);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH.saturating_sub(full)));
    let Picture { pieces, done, running, waiting, revoked, died, failed_attempts, .. } = picture;
    let mut text = format!("[{bar}] {done}/{pieces}, {running} running, {waiting} waiting");
    for (count, what) in [(revoked, "taken back"), (died, "died"), (failed_attempts, "retries")] {
        if *count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}
