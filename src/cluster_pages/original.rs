//! The original's addresses, for scripts and bookmarks: JSON tables in their exact shape, and
//! redirects from its pages to ours.
//!
//! Spec: cluster-manager/08 §2 and §3. Cells contain HTML as in the original, but texts from peers
//! are escaped, and only addresses of web pages become links.

use std::fmt::{self, Display, Write};

use hyper::StatusCode;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::exchange::{Answer, Parameters, encode_segment, respond, see_other, text};
use super::filter::Filter;
use super::gather::{Overview, Pools};
use super::pages::links::session_path;
use corona_engine::{PoolView, RetiredSession, RunningSession};
use corona_model::settings::{SchedulingMode, Settings, UNLIMITED};
use corona_model::types::{Millis, PerType, PoolName, ResourceType};

/// `/active_json.jsp`
pub(crate) fn active(
    sessions: &[RunningSession],
    kinds: &[ResourceType],
    filter: &Filter,
) -> Answer {
    let rows = sessions.iter().filter(|session| {
        let pool = &session.pool;
        filter.wants_session(&session.info.user_id, &pool.group, &pool.pool)
    });
    table(rows.map(|session| active_row(session, kinds)))
}

fn active_row(session: &RunningSession, kinds: &[ResourceType]) -> Vec<Value> {
    let RunningSession { handle, info, pool, .. } = session;
    let resources = format!("jobresources.jsp?id={}", encode_segment(handle));
    let mut row = vec![
        json!(id_cell(handle, info.url.as_deref())),
        json!(date(session.started)),
        json!(format!("<a href=\"{resources}\">{}</a>", Escaped(&info.name))),
        json!(Escaped(&info.user_id).to_string()),
        json!(Escaped(&pool.group).to_string()),
        json!(Escaped(&pool.pool).to_string()),
        json!(session.priority.name()),
    ];
    for kind in kinds {
        let counts = session.counts[*kind].now;
        row.extend([counts.granted, counts.pending, counts.requested].map(Value::from));
        row.extend(usage_cells(*kind, &session.usages));
    }
    row
}

/// `/retired_json.jsp`; `sessions` are the oldest first.
pub(crate) fn retired(
    sessions: &[RetiredSession],
    kinds: &[ResourceType],
    filter: &Filter,
) -> Answer {
    let rows = sessions.iter().filter(|session| {
        let pool = &session.pool;
        filter.wants_session(&session.info.user_id, &pool.group, &pool.pool)
    });
    table(rows.map(|session| retired_row(session, kinds)))
}

fn retired_row(session: &RetiredSession, kinds: &[ResourceType]) -> Vec<Value> {
    let RetiredSession { handle, info, pool, .. } = session;
    let mut row = vec![
        json!(id_cell(handle, info.url.as_deref())),
        json!(date(session.started)),
        json!(date(session.ended)),
        json!(Escaped(&info.name).to_string()),
        json!(Escaped(&info.user_id).to_string()),
        json!(Escaped(&pool.group).to_string()),
        json!(Escaped(&pool.pool).to_string()),
        json!(info.priority.unwrap_or_default().name()),
        json!(session.status.name()),
    ];
    for kind in kinds {
        row.push(session.fulfilled[*kind].into());
        row.extend(usage_cells(*kind, &session.usages));
    }
    row
}

/// `/pool_json.jsp`
pub(crate) fn pools(pools: &Pools, overview: &Overview, filter: &Filter) -> Answer {
    let wanted =
        pools.views.iter().filter(|view| filter.wants_pool(&view.group, view.pool.as_deref()));
    let mut totals = vec![0_i64; overview.kinds.len() * NUMBERS];
    let mut rows = Vec::new();
    for view in wanted {
        let numbers = pool_numbers(view, pools, overview);
        if view.pool.is_some() {
            for (total, number) in totals.iter_mut().zip(&numbers) {
                // Limits that are not there are left out of the sum.
                *total = total.saturating_add(number.unwrap_or(0));
            }
        }
        rows.push(pool_row(view, &numbers, &overview.settings));
    }
    let mut last: Vec<Value> =
        ["all pool groups", "all pools", "-", "-", "-", "-"].into_iter().map(Value::from).collect();
    last.extend(totals.into_iter().map(Value::from));
    rows.push(last);
    table(rows.into_iter())
}

/// Numbers of a pool for each type: Sessions, Requested, Granted, Share, Min, Max, Weight,
/// StarvingTime, AverageFirstWaitMs.
const NUMBERS: usize = 9;

/// Those of all types; `None` is a maximum that is not there.
fn pool_numbers(view: &PoolView, pools: &Pools, overview: &Overview) -> Vec<Option<i64>> {
    let first_wait = view.pool.as_ref().and_then(|pool| {
        let name = PoolName { group: view.group.clone(), pool: pool.clone() };
        pools.first_waits.java_ms.get(&name).copied()
    });
    let scheduling = &overview.settings.scheduling;
    let mut numbers = Vec::with_capacity(overview.kinds.len() * NUMBERS);
    for kind in overview.kinds.iter().copied() {
        let maximum = Some(view.maximum[kind]).filter(|most| *most != UNLIMITED).map(i64::from);
        // Values that a group lacks are 0 in the original.
        let (weight, starving) = match view.pool {
            Some(_) => (view.weight, view.starving_ms(kind, overview.now, scheduling) / 1000),
            None => (0.0, 0),
        };
        numbers.extend([
            Some(i64::try_from(view.sessions).unwrap_or(i64::MAX)),
            Some(view.counts[kind].requested),
            Some(view.counts[kind].granted),
            Some(whole_part(view.share[kind])),
            Some(view.minimum[kind].into()),
            maximum,
            Some(whole_part(weight)),
            Some(starving),
            Some(first_wait.and_then(|waits: PerType<Option<i64>>| waits[kind]).unwrap_or(0)),
        ]);
    }
    numbers
}

/// The whole part of a number.
#[allow(clippy::cast_possible_truncation, reason = "as Java casts: it saturates")]
pub(crate) fn whole_part(number: f64) -> i64 {
    number as i64
}

fn pool_row(view: &PoolView, numbers: &[Option<i64>], settings: &Settings) -> Vec<Value> {
    let name =
        |pool: &std::sync::Arc<str>| PoolName { group: view.group.clone(), pool: pool.clone() };
    let redirect =
        view.pool.as_ref().and_then(|pool| settings.scheduling.redirects.get(&name(pool)));
    let span = match redirect {
        Some(to) => format!(
            "<span class=\"ui-state-disabled\" title=\"Redirected to {}\">",
            Escaped(&to.to_string())
        ),
        None => "<span>".to_owned(),
    };
    let cell = |text: &str| json!(format!("{span}{}</span>", Escaped(text)));
    let mut row = vec![
        cell(&view.group),
        cell(view.pool.as_deref().unwrap_or("-")),
        json!(mode_name(view.mode)),
        json!(view.preemptable),
        json!(view.request_max),
        json!(view.priority),
    ];
    row.extend(numbers.iter().map(|number| number.map_or(json!("-"), Value::from)));
    row
}

/// The name of a mode in the configuration.
pub(crate) fn mode_name(mode: SchedulingMode) -> &'static str {
    match mode {
        SchedulingMode::Fifo => "FIFO",
        SchedulingMode::Fair => "FAIR",
        SchedulingMode::Deadline => "DEADLINE",
    }
}

/// The frame of all tables: two newlines before, one after, no blanks within.
fn table(rows: impl Iterator<Item = Vec<Value>>) -> Answer {
    let mut body = String::from("\n\n{\"aaData\":[");
    for (position, row) in rows.enumerate() {
        if position > 0 {
            body.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(body, "{}", Value::from(row));
    }
    body.push_str("]}\n");
    // As the original writes it, so that the text is harmless within a script too.
    let body = body.replace("</", "<\\/");
    respond(StatusCode::OK, "application/json; charset=UTF-8", body)
}

/// The id, as a link if the session has a page.
fn id_cell(handle: &str, url: Option<&str>) -> String {
    match url.and_then(web_address) {
        Some(url) => format!("<a href=\"{}\">{}</a>", Escaped(url), Escaped(handle)),
        None => Escaped(handle).to_string(),
    }
}

/// An address that a link may lead to: of a web page, not of a script.
pub(crate) fn web_address(url: &str) -> Option<&str> {
    let scheme = url.split_once("://")?.0.to_ascii_lowercase();
    let plain = !url.chars().any(|character| character.is_control() || character.is_whitespace());
    (plain && (scheme == "http" || scheme == "https")).then_some(url)
}

/// Three columns: memory at most, at a time at most, resident at most.
fn usage_cells(kind: ResourceType, usages: &[Vec<i64>; 3]) -> Vec<Value> {
    const COLUMNS: usize = 3;
    if kind == ResourceType::JobTracker {
        return Vec::new();
    }
    let usage = usages.get(kind.index()).map(Vec::as_slice).unwrap_or_default();
    (0..COLUMNS)
        .map(|column| match usage.get(column) {
            Some(bytes) => json!(HumanBytes(*bytes).to_string()),
            None => json!("0 B"),
        })
        .collect()
}

/// Bytes with one decimal, as the original writes them: `1.0 B`, `2.0 KB`, `4.7 GB`.
pub(crate) struct HumanBytes(pub(super) i64);

impl Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KB: f64 = 1024.0;
        let (divisor, unit) = match self.0.unsigned_abs() {
            0..0x400 => (1.0, "B"),
            0x400..0x10_0000 => (KB, "KB"),
            0x10_0000..0x4000_0000 => (KB * KB, "MB"),
            _ => (KB * KB * KB, "GB"),
        };
        write!(f, "{:.1} {unit}", self.0 as f64 / divisor)
    }
}

/// `yyyy/MM/dd HH:mm:ss` in the machine's time zone.
fn date(at: Millis) -> String {
    let timestamp = Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    timestamp.to_zoned(TimeZone::system()).strftime("%Y/%m/%d %H:%M:%S").to_string()
}

/// Text that cannot end its surroundings.
pub(crate) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&apos;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// `/cm.jsp` and its like: to our pages, with the filters that were in the address.
pub(crate) fn cluster_page(parameters: &Parameters) -> Answer {
    let filters: Vec<(&str, &str)> = parameters
        .iter()
        .filter(|(name, value)| {
            matches!(*name, "users" | "poolGroups" | "poolInfos") && *value != "null"
        })
        .collect();
    match filters.is_empty() {
        true => see_other("/"),
        false => see_other(&Parameters::default().with(&filters).address("/sessions")),
    }
}

/// `/machines.jsp`
pub(crate) fn machines(parameters: &Parameters) -> Answer {
    let kind = parameters.text("resourceType").unwrap_or_default();
    let state = match parameters.text("type") {
        Some("alive") => "alive",
        Some("blacklisted") => "blacklisted",
        Some("excluded") => "excluded",
        // The original refuses an address without a type; here it leads to the page.
        Some("all") | None => "",
        Some("free") if ResourceType::from_name(kind).is_some() => "usable",
        Some("free") => {
            return text(StatusCode::BAD_REQUEST, "resourceType: one of MAP, REDUCE, JOBTRACKER\n");
        }
        Some(other) => return text(StatusCode::BAD_REQUEST, format!("Unknown type {other}\n")),
    };
    let kind = if state == "usable" { kind } else { "" };
    see_other(&Parameters::default().with(&[("state", state), ("type", kind)]).address("/nodes"))
}

/// `/jobresources.jsp`
pub(crate) fn job_resources(parameters: &Parameters) -> Answer {
    match parameters.text("id") {
        Some(id) => see_other(&session_path(id)),
        None => see_other("/sessions"),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};

    use super::*;
    use crate::gather::FirstWaits;
    use crate::metrics::exposition::tests::pool_view;
    use crate::testing::{overview, retired_session, running_session};

    async fn body(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The rows, after a look at the frame.
    async fn rows(answer: Answer) -> Vec<Value> {
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json; charset=UTF-8");
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
        let body = body(answer).await;
        assert!(body.starts_with("\n\n{\"aaData\":[") && body.ends_with("]}\n"), "{body:?}");
        assert!(!body.contains("</"), "{body}");
        let mut value: Value = serde_json::from_str(&body).unwrap();
        serde_json::from_value(value["aaData"].take()).unwrap()
    }

    const KINDS: [ResourceType; 3] = ResourceType::ALL;

    #[tokio::test]
    async fn active_rows_have_the_columns_of_the_original() {
        let mut session = running_session("202611210005.1");
        session.info.name = "nm".into();
        session.info.user_id = "u1".into();
        session.pool = PoolName::new("g", "p");
        let counts = &mut session.counts[ResourceType::Map].now;
        (counts.granted, counts.pending, counts.requested) = (2, 1, 3);
        session.usages[0] = vec![1, 2048, 5_046_586_573];
        let filter = Filter::default();
        let rows = rows(active(std::slice::from_ref(&session), &KINDS, &filter)).await;
        let expected = json!([
            "202611210005.1",
            date(session.started),
            "<a href=\"jobresources.jsp?id=202611210005.1\">nm</a>",
            "u1",
            "g",
            "p",
            "NORMAL",
            2,
            1,
            3,
            "1.0 B",
            "2.0 KB",
            "4.7 GB",
            0,
            0,
            0,
            "0 B",
            "0 B",
            "0 B",
            0,
            0,
            0
        ]);
        assert_eq!(rows, [expected]);
    }

    #[tokio::test]
    async fn only_the_scheduled_types_have_columns() {
        let kinds = [ResourceType::Map, ResourceType::JobTracker];
        let filter = Filter::default();
        let active = rows(active(&[running_session("1.1")], &kinds, &filter)).await;
        assert_eq!(active[0].as_array().unwrap().len(), 7 + 6 + 3);
        let retired = rows(retired(&[retired_session("1.1")], &kinds, &filter)).await;
        assert_eq!(retired[0].as_array().unwrap().len(), 9 + 4 + 1);
    }

    #[tokio::test]
    async fn hostile_names_and_addresses_are_text() {
        let mut session = running_session("2026<b>.1");
        session.info.name = "</a><script>alert('x')</script>\"&".into();
        session.info.user_id = "<u>".into();
        for (url, cell) in [
            ("javascript:alert(1)", "2026&lt;b&gt;.1"),
            ("JAVASCRIPT://%0aalert(1)", "2026&lt;b&gt;.1"),
            ("http://a b", "2026&lt;b&gt;.1"),
            ("", "2026&lt;b&gt;.1"),
            ("HTTP://h/?a=1&b=\"", "<a href=\"HTTP://h/?a=1&amp;b=&quot;\">2026&lt;b&gt;.1</a>"),
        ] {
            session.info.url = Some(url.into());
            let filter = Filter::default();
            let rows = rows(active(std::slice::from_ref(&session), &KINDS, &filter)).await;
            assert_eq!(rows[0][0], cell, "{url}");
            assert_eq!(
                rows[0][2],
                "<a href=\"jobresources.jsp?id=2026%3Cb%3E.1\">&lt;/a&gt;&lt;script&gt;\
                 alert(&apos;x&apos;)&lt;/script&gt;&quot;&amp;</a>"
            );
            assert_eq!(rows[0][3], "&lt;u&gt;");
        }
    }

    #[tokio::test]
    async fn pools_come_with_their_sums() {
        let name = PoolName::new("g", "p");
        let pools_seen = Pools {
            views: vec![pool_view("g", None), pool_view("g", Some("p")), pool_view("g", Some("q"))],
            first_waits: FirstWaits {
                java_ms: [(name.clone(), PerType([Some(560), None, None]))].into(),
                ..FirstWaits::default()
            },
        };
        let mut overview = overview();
        let mut settings = Settings::default();
        settings.scheduling.redirects.insert(name, PoolName::new("g", "<q>"));
        overview.settings = settings.into();
        let all = rows(pools(&pools_seen, &overview, &Filter::default())).await;
        assert_eq!(all.len(), 4);
        let group = json!(["<span>g</span>", "<span>-</span>", "FAIR", true, false, 0]);
        let first = |row: &Value, count| Value::from(row.as_array().unwrap()[..count].to_vec());
        assert_eq!(first(&all[0], 6), group);
        let numbers = |row: &Value| Value::from(row.as_array().unwrap()[6..15].to_vec());
        assert_eq!(numbers(&all[0]), json!([3, 6, 4, 3, 1, "-", 0, 0, 0]));
        assert_eq!(numbers(&all[1]), json!([3, 6, 4, 3, 1, "-", 1, -180, 560]));
        assert_eq!(all[1][6 + 9 + 5], 7, "the maximum of REDUCE");
        let span = "<span class=\"ui-state-disabled\" title=\"Redirected to g.&lt;q&gt;\">";
        assert_eq!(all[1][0], format!("{span}g</span>"));
        assert_eq!(all[1][1], format!("{span}p</span>"));
        assert_eq!(first(&all[3], 6), json!(["all pool groups", "all pools", "-", "-", "-", "-"]));
        assert_eq!(numbers(&all[3]), json!([6, 12, 8, 6, 2, 0, 2, -360, 560]));
        assert_eq!(all[3][6 + 9 + 5], 14);
        let filter = Filter::new(&Parameters::parse(b"poolInfos=g.q"));
        let some = rows(pools(&pools_seen, &overview, &filter)).await;
        assert_eq!(some.len(), 2, "one pool, and the sums");
    }

    #[test]
    fn sizes_are_written_as_the_original_does() {
        for (bytes, text) in [
            (0, "0.0 B"),
            (1, "1.0 B"),
            (1023, "1023.0 B"),
            (1024, "1.0 KB"),
            (1024 * 1024 - 1, "1024.0 KB"),
            (1024 * 1024, "1.0 MB"),
            (5_046_586_573, "4.7 GB"),
            (-2048, "-2.0 KB"),
            (i64::MIN, "-8589934592.0 GB"),
        ] {
            assert_eq!(HumanBytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn pages_of_the_original_lead_to_ours() {
        let to = |answer: Answer| answer.headers()[LOCATION].to_str().unwrap().to_owned();
        let query = |text: &str| Parameters::parse(text.as_bytes());
        assert_eq!(to(cluster_page(&query(""))), "/");
        assert_eq!(to(cluster_page(&query("users=null&toKillSessionId=1"))), "/");
        assert_eq!(to(cluster_page(&query("users=a%26b&x=1"))), "/sessions?users=a%26b");
        assert_eq!(to(job_resources(&query("id=2026.1"))), "/sessions/2026.1");
        assert_eq!(to(job_resources(&query("id=../x"))), "/sessions/..%2Fx");
        for (asked, place) in [
            ("type=alive", "/nodes?state=alive"),
            ("type=blacklisted&resourceType=MAP", "/nodes?state=blacklisted"),
            ("type=excluded", "/nodes?state=excluded"),
            ("type=all", "/nodes"),
            ("", "/nodes"),
            ("type=", "/nodes"),
            ("type=free&resourceType=MAP", "/nodes?state=usable&type=MAP"),
        ] {
            assert_eq!(to(machines(&query(asked))), place);
        }
        for asked in ["type=odd", "type=free", "type=free&resourceType=X"] {
            assert_eq!(machines(&query(asked)).status(), StatusCode::BAD_REQUEST, "{asked}");
        }
    }

    /// The rows of a recorded answer, slashes as they are.
    fn recorded(text: &str) -> Vec<Vec<Value>> {
        assert!(text.starts_with("\n\n{\"aaData\":[") && text.ends_with("]}\n"));
        let mut value: Value = serde_json::from_str(text).unwrap();
        serde_json::from_value(value["aaData"].take()).unwrap()
    }

    fn word(cell: &Value) -> &str {
        cell.as_str().unwrap()
    }

    /// The text of a link, and its address.
    fn link(cell: &Value) -> (&str, Option<&str>) {
        match word(cell).strip_prefix("<a href=\"") {
            None => (word(cell), None),
            Some(rest) => {
                let (url, rest) = rest.split_once("\">").unwrap();
                (rest.strip_suffix("</a>").unwrap(), Some(url))
            }
        }
    }

    fn millis(date: &Value) -> Millis {
        let date = jiff::civil::DateTime::strptime("%Y/%m/%d %H:%M:%S", word(date)).unwrap();
        Millis(date.to_zoned(TimeZone::system()).unwrap().timestamp().as_millisecond())
    }

    /// The original's row, except for the one deliberate difference: addresses are escaped.
    fn escaped(mut row: Vec<Value>) -> Value {
        row[0] = json!(word(&row[0]).replace('&', "&amp;"));
        row.into()
    }

    #[tokio::test]
    async fn running_sessions_read_as_recorded() {
        let recorded = recorded(include_str!("../../fixtures/web/active_json.json"));
        for row in recorded {
            let (handle, url) = link(&row[0]);
            let mut session = running_session(handle);
            session.info.url = url.map(Into::into);
            session.started = millis(&row[1]);
            session.info.name = link(&row[2]).0.into();
            session.info.user_id = word(&row[3]).into();
            session.pool = PoolName::new(word(&row[4]), word(&row[5]));
            for (kind, at) in
                [(ResourceType::Map, 7), (ResourceType::Reduce, 13), (ResourceType::JobTracker, 19)]
            {
                let counts = &mut session.counts[kind].now;
                counts.granted = row[at].as_i64().unwrap();
                counts.pending = row[at + 1].as_i64().unwrap();
                counts.requested = row[at + 2].as_i64().unwrap();
                session.usages[kind.index()] = vec![0, 0, 0];
            }
            let ours = rows(active(&[session], &KINDS, &Filter::default())).await;
            assert_eq!(ours, [escaped(row)]);
        }
    }

    #[tokio::test]
    async fn ended_sessions_read_as_recorded() {
        let recorded = recorded(include_str!("../../fixtures/web/retired_json.json"));
        for row in recorded {
            let (handle, url) = link(&row[0]);
            let mut session = retired_session(handle);
            session.info.url = url.map(Into::into);
            (session.started, session.ended) = (millis(&row[1]), millis(&row[2]));
            session.info.name = word(&row[3]).into();
            session.info.user_id = word(&row[4]).into();
            session.pool = PoolName::new(word(&row[5]), word(&row[6]));
            session.fulfilled = PerType([9, 13, 17].map(|at: usize| row[at].as_i64().unwrap()));
            session.usages = [vec![0, 0, 0], vec![0, 0, 0], vec![]];
            let ours = rows(retired(&[session], &KINDS, &Filter::default())).await;
            assert_eq!(ours, [escaped(row)]);
        }
    }

    /// But for the starving time of job trackers, which is a time since the epoch there.
    #[tokio::test]
    async fn pools_read_as_recorded() {
        const STARVING_OF_JOB_TRACKERS: usize = 6 + 2 * NUMBERS + 7;
        const PATIENCE_S: i64 = 30;
        let mut recorded = recorded(include_str!("../../fixtures/web/pool_json.json"));
        let mut overview = overview();
        overview.now = Millis(3_600_000);
        let mut settings = Settings::default();
        settings.scheduling.starving_time_for_minimum_ms = PATIENCE_S * 1000;
        settings.scheduling.starving_time_for_share_ms = PATIENCE_S * 1000;
        overview.settings = settings.into();
        let text = |cell: &Value| {
            let text = word(cell).strip_prefix("<span>").unwrap();
            text.strip_suffix("</span>").unwrap().to_owned()
        };
        let mut pools_seen = Pools::default();
        let (sums, pool_rows) = recorded.split_last_mut().unwrap();
        sums[STARVING_OF_JOB_TRACKERS] = json!(0);
        for row in pool_rows {
            let (group, pool) = (text(&row[0]), text(&row[1]));
            let pool = Some(&*pool).filter(|pool| *pool != "-");
            if pool.is_some() {
                row[STARVING_OF_JOB_TRACKERS] = json!(-PATIENCE_S);
                let sum = sums[STARVING_OF_JOB_TRACKERS].as_i64().unwrap();
                sums[STARVING_OF_JOB_TRACKERS] = json!(sum - PATIENCE_S);
            }
            let mut view = pool_view(&group, pool);
            view.mode = if row[2] == "FIFO" { SchedulingMode::Fifo } else { SchedulingMode::Fair };
            let mut waits = PerType::all(None);
            for kind in KINDS {
                let number = |at: usize| row[6 + kind.index() * NUMBERS + at].as_i64();
                view.sessions = number(0).unwrap() as usize;
                view.counts[kind].requested = number(1).unwrap();
                view.counts[kind].granted = number(2).unwrap();
                view.share[kind] = number(3).unwrap() as f64 + 0.99;
                view.minimum[kind] = number(4).unwrap() as i32;
                view.maximum[kind] = number(5).map_or(UNLIMITED, |most| most as i32);
                view.weight = number(6).unwrap() as f64;
                let lacking_s = number(7).unwrap() + PATIENCE_S;
                view.lacks[kind].share_since = Some(Millis(overview.now.0 - lacking_s * 1000));
                waits[kind] = number(8);
            }
            if let Some(pool) = pool {
                pools_seen.first_waits.java_ms.insert(PoolName::new(&group, pool), waits);
            }
            pools_seen.views.push(view);
        }
        let ours = rows(pools(&pools_seen, &overview, &Filter::default())).await;
        let recorded: Vec<Value> = recorded.into_iter().map(Value::from).collect();
        assert_eq!(ours, recorded);
    }
}
