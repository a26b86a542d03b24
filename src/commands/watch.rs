//! `--watch`: repeats a command until Ctrl-C.

use std::time::Duration;

use clap::Args;

use super::times::Date;
use corona_terminal::console::Console;

/// Whether and how often a command repeats itself.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(super) struct WatchArguments {
    /// Repeat every SECONDS until Ctrl-C [default: 2]; JSON is one line each
    /// time
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = parse_seconds
    )]
    watch: Option<Duration>,
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("expected seconds from 0.1 to 86400")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl WatchArguments {
    /// Runs the command once, or repeatedly. Only a failure of the first run
    /// ends it, because a cluster manager may restart in between.
    ///
    /// # Errors
    /// Those of the first time, and when stdout cannot be written.
    pub(super) fn run(
        self,
        console: &mut Console<'_>,
        command: impl FnMut(&mut Console<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let pause = |pause| {
            std::thread::sleep(pause);
            true
        };
        self.run_with(console, command, pause)
    }

    /// The same with a pause that returns whether to continue.
    fn run_with(
        self,
        console: &mut Console<'_>,
        mut command: impl FnMut(&mut Console<'_>) -> anyhow::Result<()>,
        mut pause: impl FnMut(Duration) -> bool,
    ) -> anyhow::Result<()> {
        let Some(period) = self.watch else { return command(console) };
        let mut text = console.capture(&mut command)?;
        loop {
            let shown = match console.height {
                Some(height) => screen(&text, period, height),
                None => text,
            };
            console.print(&shown)?;
            if !pause(period) {
                return Ok(());
            }
            text = match console.capture(&mut command) {
                Ok(text) => text,
                Err(error) if console.height.is_some() => {
                    format!("corona: {}\n", super::one_line(&error))
                }
                Err(error) => {
                    console.complain(&format!("corona: {}\n", super::one_line(&error)));
                    String::new()
                }
            };
        }
    }
}

/// A terminal's screen with the text, as far as there is room, below a line with the time.
fn screen(text: &str, period: Duration, height: usize) -> String {
    const CLEAR: &str = "\x1b[H\x1b[J";
    let now = jiff::Timestamp::now().as_millisecond();
    let mut shown = format!("{CLEAR}Every {} s, at {}\n\n", period.as_secs_f64(), Date(now));
    // The two lines above, and one for the cursor.
    let room = height.saturating_sub(3).max(1);
    let lines = text.lines().count();
    let whole = if lines > room { room - 1 } else { lines };
    for line in text.lines().take(whole) {
        shown.push_str(line);
        shown.push('\n');
    }
    if lines > whole {
        shown.push_str(&format!("... {} more lines\n", lines - whole));
    }
    shown
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// The output of a command that prints how often it ran, and fails the second time.
    fn watched(watch: Option<u64>, height: Option<usize>, times: usize) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        console.height = height;
        let (mut runs, mut left) = (0, times);
        let command = |console: &mut Console<'_>| {
            runs += 1;
            if runs == 2 {
                bail!("gone");
            }
            console.print_json(&serde_json::json!({"run": runs}))
        };
        let pause = |_| {
            left -= 1;
            left > 0
        };
        let watch = WatchArguments { watch: watch.map(Duration::from_secs) };
        watch.run_with(&mut console, command, pause).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(out), text(err))
    }

    #[test]
    fn a_command_repeats_itself_only_where_it_is_asked_to() {
        assert_eq!(watched(None, None, 3).0, "{\n  \"run\": 1\n}\n");
        let (out, err) = watched(Some(2), None, 3);
        assert_eq!(out, "{\"run\":1}\n{\"run\":3}\n");
        assert_eq!(err, "corona: gone\n");
    }

    #[test]
    fn a_terminal_shows_one_state_at_a_time() {
        let (out, err) = watched(Some(2), Some(24), 3);
        let screens: Vec<&str> = out.split("\x1b[H\x1b[J").skip(1).collect();
        let bodies: Vec<&str> = screens.iter().map(|s| s.split_once("\n\n").unwrap().1).collect();
        assert_eq!(bodies, ["{\"run\":1}\n", "corona: gone\n", "{\"run\":3}\n"]);
        assert!(screens.iter().all(|screen| screen.starts_with("Every 2 s, at ")));
        assert_eq!(err, "");
    }

    #[test]
    fn a_screen_is_not_scrolled() {
        let lines = |count: usize| (1..=count).map(|line| format!("{line}\n")).collect::<String>();
        let period = Duration::from_secs(1);
        for (count, height) in [(7, 10), (8, 10), (100, 24), (5, 1)] {
            let shown = screen(&lines(count), period, height);
            assert!(shown.lines().count() < height.max(5), "{count} {height}: {shown}");
            let all = count <= height.saturating_sub(3);
            assert_eq!(shown.contains("more lines"), !all, "{count} {height}");
        }
        assert!(screen(&lines(100), period, 24).ends_with("20\n... 80 more lines\n"));
    }

    #[test]
    fn seconds_are_checked() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "", "NaN", "inf", "1e9", "2s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
