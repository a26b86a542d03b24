//! `corona events`: past and new events of a cluster, or of jobs.
//!
//! Reads the stream of events of this program's cluster manager or job tracker service; the original has none.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use corona::api::stream::{EventReader, StreamedEvent};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::cluster::{WebArguments, block_on};
use super::times::Date;
use super::web::{StreamEnd, Web};
use corona_terminal::console::{Console, FormArguments, TextForm, harmless_json, printable};

const EXAMPLES: &str = "\
Examples:
  The latest events:
    corona events
  New events as they happen:
    corona events --follow
  New ends of sessions and losses of nodes, as JSON, one object per line:
    corona events --follow --last 0 --event session_ended --event node_lost \\
        --output json
  What happens to a job of a job tracker service:
    corona events --http-address jt.example.com:50030 --follow \\
        --about job_202611210005.1_0001

A cluster manager keeps its last 4,096 events; docs/operate/web.md lists them,
and docs/operate/job-tracker.md those of a job tracker service.
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// Show events: sessions, grants, nodes, pools, safe mode
///
/// Reads the pages at cm.server.http.address of this program's cluster
/// manager; the original serves no events.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Continue with new events until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// Maximum number of past events
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    last: usize,

    /// Only events with this name, such as node_lost; may be repeated
    #[arg(long, value_name = "EVENT")]
    event: Vec<String>,

    /// Only events about this session, node, pool (GROUP.POOL), job, task or attempt
    #[arg(long, value_name = "NAME")]
    about: Option<String>,

    #[command(flatten)]
    form: FormArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// The pause before a stream that ended is reopened.
const PAUSE: Duration = Duration::from_secs(3);
/// The longest silence of a live stream: it sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// Reads and prints.
///
/// # Errors
/// When there are no pages, or no events.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let Arguments { follow, last, event, about, form, web } = arguments;
    let web = web.find()?;
    let mut printer = Printer {
        wanted: Wanted { events: event, about },
        form: form.output,
        // Which of them are wanted is only known here, so all are read that are kept.
        past: Some(VecDeque::new()),
        last,
        last_id: None,
        console,
    };
    block_on(async {
        read(&web, "/api/v1/events?last=1000000&follow=0", &mut printer).await?;
        printer.print_past()?;
        if !follow {
            return anyhow::Ok(());
        }
        loop {
            // Behind the last event that was seen; where none was, from now on.
            if let Err(error) = read(&web, "/api/v1/events", &mut printer).await {
                printer.console.complain(&format!(
                    "corona: {}; retrying every {} s\n",
                    super::one_line(&error),
                    PAUSE.as_secs()
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a stream to its end.
async fn read(web: &Web, path: &str, printer: &mut Printer<'_, '_>) -> anyhow::Result<()> {
    let mut reader = EventReader::default();
    let last_id = printer.last_id.clone();
    let end = web
        .stream(path, last_id.as_deref(), SILENCE, |piece| {
            for event in reader.push(piece) {
                printer.take(event)?;
            }
            Ok(())
        })
        .await?;
    match end {
        StreamEnd::Ended => Ok(()),
        StreamEnd::NoApi => Err(without_events(web).await),
    }
}

/// The error for pages without events, which names the service whose pages they are.
async fn without_events(web: &Web) -> anyhow::Error {
    for (path, service) in
        [("/api/v1/statistics", "a proxy job tracker"), ("/api/v1/tracker", "a node")]
    {
        if web.found::<IgnoredAny>(path).await.is_some() {
            return anyhow!(
                "the pages at {} are those of {service}, which has no events; name those of a \
                 cluster manager or of a job tracker service with --http-address",
                web.url()
            );
        }
    }
    anyhow!(
        "{} have no events: this is the original cluster manager, or an older version",
        web.who()
    )
}

/// Which events are wanted.
struct Wanted {
    /// Their names; all if there is none.
    events: Vec<String>,
    /// The session, node, pool, job, task or attempt that they concern.
    about: Option<String>,
}

impl Wanted {
    fn wants(&self, name: &str, data: &Map<String, Value>) -> bool {
        let text = |member| data.get(member).and_then(Value::as_str).unwrap_or_default();
        let is_about = |wanted: &String| {
            let pool = format!("{}.{}", text("group"), text("pool"));
            let names = ["session", "node", "job", "task", "attempt"].map(text);
            names.contains(&wanted.as_str()) || pool == *wanted
        };
        (self.events.is_empty() || self.events.iter().any(|event| event == name))
            && self.about.as_ref().is_none_or(is_about)
    }
}

/// Prints the selected events, past ones when all of them are known.
struct Printer<'a, 'b> {
    wanted: Wanted,
    form: TextForm,
    /// The last lines of the past; none when it is over.
    past: Option<VecDeque<String>>,
    last: usize,
    last_id: Option<String>,
    console: &'a mut Console<'b>,
}

impl Printer<'_, '_> {
    fn take(&mut self, event: StreamedEvent) -> anyhow::Result<()> {
        if event.id.is_some() {
            self.last_id = event.id;
        }
        // An event without JSON is of no version that this one knows.
        let Ok(Value::Object(data)) = serde_json::from_str(&event.data) else { return Ok(()) };
        if event.name != "missed" && !self.wanted.wants(&event.name, &data) {
            return Ok(());
        }
        let line = match self.form {
            TextForm::Text => text(&event.name, &data),
            TextForm::Json => json(&event.name, data)?,
        };
        match &mut self.past {
            None => Ok(self.console.print(&line)?),
            Some(past) => {
                past.push_back(line);
                if past.len() > self.last {
                    past.pop_front();
                }
                Ok(())
            }
        }
    }

    fn print_past(&mut self) -> anyhow::Result<()> {
        let past = self.past.take().unwrap_or_default();
        Ok(self.console.print(&past.into_iter().collect::<String>())?)
    }
}

fn json(name: &str, data: Map<String, Value>) -> anyhow::Result<String> {
    let mut object = Map::new();
    object.insert("event".into(), name.into());
    object.extend(data);
    Ok(harmless_json(&serde_json::to_string(&object)?).into_owned() + "\n")
}

/// A line such as `2026-11-21 00:05:39  node tt-1 joined`.
fn text(name: &str, data: &Map<String, Value>) -> String {
    let member = |member: &str| match data.get(member) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "?".to_owned(),
    };
    let is = |flag: &str| data.get(flag).and_then(Value::as_bool).unwrap_or_default();
    let pool = || format!("{}.{}", member("group"), member("pool"));
    let what = match name {
        "session_started" => {
            format!("session {} started in {}: {}", member("session"), pool(), member("name"))
        }
        "session_granted" => {
            format!(
                "session {} was granted {} {}",
                member("session"),
                member("count"),
                member("type")
            )
        }
        "session_revoked" => {
            format!("session {} lost {} {}", member("session"), member("count"), member("type"))
        }
        "session_ended" => format!("session {} ended {}", member("session"), member("status")),
        "node_added" => format!("node {} joined", member("node")),
        "node_lost" if is("expired") => format!("node {} expired", member("node")),
        "node_lost" => format!("node {} left to restart", member("node")),
        "node_blacklisted" => {
            format!("node {} was blacklisted for {}", member("node"), member("type"))
        }
        "node_draining" if is("on") => {
            format!("node {} drains: it is granted nothing", member("node"))
        }
        "node_draining" => format!("node {} does not drain any more", member("node")),
        "node_revoked" if is("on") => format!(
            "node {} is granted nothing: its access {} was revoked",
            member("node"),
            member("access")
        ),
        "node_revoked" => format!("node {} has access again", member("node")),
        "pool_starving" => format!(
            "pool {} is starved of {} below its {}, it holds {}",
            pool(),
            member("type"),
            member("cause"),
            member("granted")
        ),
        "safe_mode" => format!("safe mode was turned {}", if is("on") { "ON" } else { "off" }),
        "privileged_action" => {
            let who = match (data.get("role"), data.get("access")) {
                (Some(Value::String(role)), Some(Value::String(access))) => {
                    format!("{role} {} (access {access})", member("name"))
                }
                _ => member("name"),
            };
            format!("{who} from {}: {}: {}", member("from"), member("action"), member("outcome"))
        }
        "configuration_reloaded" => "changed configuration files are in force".to_owned(),
        "leader_elected" => {
            format!("instance {} leads, with epoch {}", member("instance"), member("epoch"))
        }
        "stepping_down" => format!("instance {} was asked to step down", member("instance")),
        "standby_ready" => format!("standby {} may take over", member("instance")),
        "standby_lost" => format!("standby {} may not take over any more", member("instance")),
        "job_submitted" => {
            format!("{} was submitted by {}: {}", member("job"), member("user"), member("name"))
        }
        "job_launched" => format!(
            "{} has {} maps and {} reduces",
            member("job"),
            member("maps"),
            member("reduces")
        ),
        "job_running" => format!("{} runs", member("job")),
        "job_ended" => format!("{} ended {}", member("job"), member("state")),
        "attempt_launched" => format!("{} was launched on {}", member("attempt"), member("node")),
        "attempt_succeeded" => format!("{} succeeded on {}", member("attempt"), member("node")),
        "attempt_failed" | "attempt_killed" => {
            let how = if name == "attempt_failed" { "failed" } else { "was killed" };
            format!("{} {how} on {}: {}", member("attempt"), member("node"), member("reason"))
        }
        "task_succeeded" => format!("{} succeeded", member("task")),
        "task_failed" => format!("{} failed: {}", member("task"), member("reason")),
        "missed" if data.contains_key("count") => {
            format!("{} events were missed", member("count"))
        }
        "missed" => "the program was restarted; events were missed".to_owned(),
        // Of a later version.
        other => {
            let members = data.iter().filter(|(member, _)| *member != "time_ms");
            let members: Vec<String> =
                members.map(|(name, _)| format!("{name}={}", member(name))).collect();
            format!("{other} {}", members.join(" "))
        }
    };
    let time = match data.get("time_ms").and_then(Value::as_i64) {
        Some(time) => Date(time).to_string(),
        None => " ".repeat(19),
    };
    format!("{time}  {}\n", printable(what.trim_end()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, name: &str, data: &str) -> StreamedEvent {
        StreamedEvent { id: Some(id.into()), name: name.into(), data: data.into() }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn every_event_reads_well() {
        let cases = [
            (
                "session_started",
                json!({"session": "1.1", "name": "Sleep\n", "group": "g", "pool": "p"}),
                "session 1.1 started in g.p: Sleep",
            ),
            (
                "job_submitted",
                json!({"job": "job_1", "name": "n", "user": "u"}),
                "job_1 was submitted by u: n",
            ),
            (
                "job_launched",
                json!({"job": "job_1", "maps": 4, "reduces": 2}),
                "job_1 has 4 maps and 2 reduces",
            ),
            ("job_running", json!({"job": "job_1"}), "job_1 runs"),
            ("job_ended", json!({"job": "job_1", "state": "FAILED"}), "job_1 ended FAILED"),
            (
                "attempt_launched",
                json!({"job": "job_1", "attempt": "attempt_1", "node": "n1"}),
                "attempt_1 was launched on n1",
            ),
            (
                "attempt_failed",
                json!({"attempt": "attempt_1", "node": "n1", "reason": "no\nluck"}),
                "attempt_1 failed on n1: no\\nluck",
            ),
            (
                "attempt_killed",
                json!({"attempt": "attempt_1", "node": "n1", "reason": "too slow"}),
                "attempt_1 was killed on n1: too slow",
            ),
            ("task_succeeded", json!({"task": "task_1", "reason": null}), "task_1 succeeded"),
            (
                "session_granted",
                json!({"session": "1.1", "type": "MAP", "count": 3}),
                "session 1.1 was granted 3 MAP",
            ),
            (
                "session_revoked",
                json!({"session": "1.1", "type": "MAP", "count": 3}),
                "session 1.1 lost 3 MAP",
            ),
            (
                "session_ended",
                json!({"session": "1.1", "status": "KILLED"}),
                "session 1.1 ended KILLED",
            ),
            ("node_added", json!({"node": "n\u{1b}"}), r"node n\u{1b} joined"),
            ("node_lost", json!({"node": "n", "expired": true}), "node n expired"),
            ("node_lost", json!({"node": "n", "expired": false}), "node n left to restart"),
            (
                "node_blacklisted",
                json!({"node": "n", "type": "MAP"}),
                "node n was blacklisted for MAP",
            ),
            (
                "node_draining",
                json!({"node": "n", "on": true}),
                "node n drains: it is granted nothing",
            ),
            ("node_draining", json!({"node": "n", "on": false}), "node n does not drain any more"),
            (
                "node_revoked",
                json!({"node": "n", "access": "0000002a", "on": true}),
                "node n is granted nothing: its access 0000002a was revoked",
            ),
            (
                "node_revoked",
                json!({"node": "n", "access": "0000002a", "on": false}),
                "node n has access again",
            ),
            (
                "pool_starving",
                json!({"group": "g", "pool": "p", "type": "MAP", "cause": "share", "granted": 2}),
                "pool g.p is starved of MAP below its share, it holds 2",
            ),
            ("safe_mode", json!({"on": true}), "safe mode was turned ON"),
            ("configuration_reloaded", json!({}), "changed configuration files are in force"),
            (
                "privileged_action",
                json!({"changes": "cluster", "role": "admin", "name": "ann", "access": "1f3a9c04",
                       "from": "10.0.0.9:7", "action": "POST /api/v1/step-down", "outcome": "done"}),
                "admin ann (access 1f3a9c04) from 10.0.0.9:7: POST /api/v1/step-down: done",
            ),
            (
                "privileged_action",
                json!({"changes": "cluster", "role": null, "name": "root (uid 0)", "access": null,
                       "from": "this machine", "action": "revoke access 1f3a9c04", "outcome": "done"}),
                "root (uid 0) from this machine: revoke access 1f3a9c04: done",
            ),
            (
                "leader_elected",
                json!({"instance": "cm1:8890", "epoch": 3}),
                "instance cm1:8890 leads, with epoch 3",
            ),
            (
                "stepping_down",
                json!({"instance": "cm1:8890"}),
                "instance cm1:8890 was asked to step down",
            ),
            ("standby_ready", json!({"instance": "cm2:8890"}), "standby cm2:8890 may take over"),
            (
                "standby_lost",
                json!({"instance": "cm2:8890"}),
                "standby cm2:8890 may not take over any more",
            ),
            ("missed", json!({"count": 6}), "6 events were missed"),
            ("missed", json!({}), "the program was restarted; events were missed"),
            ("moon", json!({"phase": "full", "day": 3, "time_ms": 0}), "moon day=3 phase=full"),
        ];
        for (name, data, expected) in cases {
            let Value::Object(data) = data else { panic!("{name}") };
            let line = text(name, &data);
            let (_, shown) = line.split_at(21);
            assert_eq!(shown, format!("{expected}\n"), "{name}");
        }
    }

    #[test]
    fn filters_pick_events() {
        let data = |value: Value| match value {
            Value::Object(data) => data,
            other => panic!("{other}"),
        };
        let session = data(json!({"session": "1.1", "group": "g", "pool": "p"}));
        let node = data(json!({"node": "n", "job": "j"}));
        let wanted = |events: &[&str], about: Option<&str>| Wanted {
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            about: about.map(str::to_owned),
        };
        for (wanted, of_session, of_node) in [
            (wanted(&[], None), true, true),
            (wanted(&["node_lost"], None), false, true),
            (wanted(&["node_lost", "session_started"], None), true, true),
            (wanted(&[], Some("1.1")), true, false),
            (wanted(&[], Some("g.p")), true, false),
            (wanted(&[], Some("n")), false, true),
            (wanted(&[], Some("j")), false, true),
            (wanted(&["node_lost"], Some("1.1")), false, false),
        ] {
            assert_eq!(wanted.wants("session_started", &session), of_session);
            assert_eq!(wanted.wants("node_lost", &node), of_node);
        }
    }

    #[test]
    fn of_the_past_the_last_ones_are_printed() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        let mut printer = Printer {
            wanted: Wanted { events: vec!["node_added".into()], about: None },
            form: TextForm::Json,
            past: Some(VecDeque::new()),
            last: 2,
            last_id: None,
            console: &mut console,
        };
        let added = |number: u32| {
            event(&format!("7-{number}"), "node_added", &format!("{{\"node\":\"{number}\"}}"))
        };
        for number in 1..=4 {
            printer.take(added(number)).unwrap();
        }
        printer.take(event("7-5", "safe_mode", "{\"on\":true}")).unwrap();
        printer.take(event("7-6", "node_added", "no JSON")).unwrap();
        printer.print_past().unwrap();
        printer.take(added(7)).unwrap();
        assert_eq!(printer.last_id.as_deref(), Some("7-7"));
        let lines = [3, 4, 7].map(|n| format!("{{\"event\":\"node_added\",\"node\":\"{n}\"}}\n"));
        assert_eq!(String::from_utf8(out).unwrap(), lines.concat());
    }
}
