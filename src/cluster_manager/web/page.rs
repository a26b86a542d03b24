//! The page that shows the state at a glance, as HTML for people.

use std::fmt::{self, Write};

use crate::engine::types::{Millis, ResourceType};
use crate::engine::{Engine, PoolView, RunningSession};

/// Rows of a table that are shown at most.
const MAX_ROWS: usize = 1000;

/// The whole page.
pub(super) fn render(engine: &Engine, now: Millis, pending_calls: usize) -> String {
    let mut page = String::with_capacity(16 * 1024);
    // Writing to a string does not fail.
    let _ = write_page(&mut page, engine, now, pending_calls);
    page
}

fn write_page(
    page: &mut String,
    engine: &Engine,
    now: Millis,
    pending_calls: usize,
) -> fmt::Result {
    let safe_mode = if engine.safe_mode() { "ON" } else { "OFF" };
    let up = Duration(now.since(engine.started()));
    write!(page, "{HEAD}<h1>Corona cluster manager</h1><p>Up for {up}. Safe mode: {safe_mode}.")?;
    write!(
        page,
        " Nodes: {}. Sessions: {}. Notifications waiting: {pending_calls}.</p>",
        engine.node_count(),
        engine.session_count()
    )?;
    write_slots(page, engine)?;
    write_pools(page, &engine.pools())?;
    write_sessions(page, &engine.sessions_at(now), now)?;
    page.write_str("</main></body></html>\n")
}

const HEAD: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta name=\"viewport\" content=\"width=device-width\"><title>Corona cluster manager</title>\
    <style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem}\
    main{max-width:70rem;margin:auto}table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}\
    th,td{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #8884}\
    td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}caption{text-align:left;\
    font-weight:600;font-size:1.2rem;padding:.25rem 0}</style></head><body><main>";

fn write_slots(page: &mut String, engine: &Engine) -> fmt::Result {
    page.write_str(
        "<table><caption>Slots</caption><thead><tr><th>Type<th class=n>Used<th class=n>Free\
         <th class=n>All</tr></thead><tbody>",
    )?;
    for kind in engine.legal_types() {
        let slots = engine.slots(kind);
        let free = slots.total.saturating_sub(slots.used);
        write!(
            page,
            "<tr><th scope=row>{kind}<td class=n>{}<td class=n>{free}<td class=n>{}</tr>",
            slots.used, slots.total
        )?;
    }
    page.write_str("</tbody></table>")
}

fn write_pools(page: &mut String, pools: &[PoolView]) -> fmt::Result {
    page.write_str(
        "<table><caption>Pools</caption><thead><tr><th>Group<th>Pool<th class=n>Sessions\
         <th class=n>Maps granted<th class=n>waiting<th class=n>Reduces granted\
         <th class=n>waiting</tr></thead><tbody>",
    )?;
    for pool in pools.iter().filter(|pool| pool.pool.is_some()).take(MAX_ROWS) {
        let name = pool.pool.as_deref().unwrap_or_default();
        write!(page, "<tr><td>{}<td>{}", Escaped(&pool.group), Escaped(name))?;
        write!(page, "<td class=n>{}", pool.sessions)?;
        for kind in [ResourceType::Map, ResourceType::Reduce] {
            let counts = pool.counts[kind];
            write!(page, "<td class=n>{}<td class=n>{}", counts.granted, counts.pending)?;
        }
        page.write_str("</tr>")?;
    }
    write_rest(page, pools.len(), 7)?;
    page.write_str("</tbody></table>")
}

fn write_sessions(page: &mut String, sessions: &[RunningSession], now: Millis) -> fmt::Result {
    page.write_str(
        "<table><caption>Sessions</caption><thead><tr><th>Session<th>Name<th>User<th>Pool\
         <th>Priority<th class=n>Runs for<th class=n>Maps granted<th class=n>waiting\
         <th class=n>Reduces granted<th class=n>waiting</tr></thead><tbody>",
    )?;
    for session in sessions.iter().take(MAX_ROWS) {
        page.write_str("<tr>")?;
        let pool = session.scheduling_pool.to_string();
        for text in [&session.handle, &session.info.name, &session.info.user_id, &pool.into()] {
            write!(page, "<td>{}", Escaped(text))?;
        }
        let runs_for = Duration(now.since(session.started));
        write!(page, "<td>{}<td class=n>{runs_for}", session.priority.name())?;
        for kind in [ResourceType::Map, ResourceType::Reduce] {
            let counts = session.counts[kind].now;
            write!(page, "<td class=n>{}<td class=n>{}", counts.granted, counts.pending)?;
        }
        page.write_str("</tr>")?;
    }
    write_rest(page, sessions.len(), 10)?;
    page.write_str("</tbody></table>")
}

fn write_rest(page: &mut String, rows: usize, columns: usize) -> fmt::Result {
    match rows.checked_sub(MAX_ROWS) {
        None | Some(0) if rows > 0 => Ok(()),
        None | Some(0) => write!(page, "<tr><td colspan={columns}>none</tr>"),
        Some(more) => write!(page, "<tr><td colspan={columns}>and {more} more</tr>"),
    }
}

/// Text that cannot end what is around it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Milliseconds, for people.
struct Duration(i64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, ..) => write!(f, "{days} d {hours} h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (ms, text) in [
            (0, "0 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(Duration(ms).to_string(), text);
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let hostile = "<script>alert('x')</script>&\"";
        let escaped = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;";
        assert_eq!(Escaped(hostile).to_string(), escaped);
    }
}
