//! `corona events`: past and new events of a cluster, or of jobs.
//!
//! Reads the stream of events of this program's cluster manager or job tracker service; the original has none.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use corona::api::events::{AttemptEnded, Dated, Event, Subjects, TaskEnded};
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
    fn wants(&self, name: &str, subjects: impl FnOnce() -> Subjects) -> bool {
        (self.events.is_empty() || self.events.iter().any(|event| event == name))
            && self.about.as_ref().is_none_or(|wanted| subjects().include(wanted))
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
        // An event without JSON is of no version that this one knows.
        let members = event.members();
        if event.id.is_some() {
            self.last_id = event.id;
        }
        let Some(members) = members else { return Ok(()) };
        let subjects = || Subjects::of(&members);
        if event.name != "missed" && !self.wanted.wants(&event.name, subjects) {
            return Ok(());
        }
        let line = match self.form {
            TextForm::Text => text(&event.name, members),
            TextForm::Json => harmless_json(&serde_json::to_string(&members)?).into_owned() + "\n",
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

/// A line such as `2026-11-21 00:05:39  node tt-1 joined`.
fn text(name: &str, members: Map<String, Value>) -> String {
    let time = members.get("time_ms").and_then(Value::as_i64);
    let time = time.map_or_else(|| " ".repeat(19), |time| Date(time).to_string());
    let known = Dated::of(members.clone()).and_then(|dated| sentence(&dated.event));
    let what = known.unwrap_or_else(|| other(name, &members));
    format!("{time}  {}\n", printable(what.trim_end()))
}

/// `None` for events without a sentence.
fn sentence(event: &Event) -> Option<String> {
    Some(match event {
        Event::SessionStarted { session, name, group, pool } => {
            format!("session {session} started in {group}.{pool}: {name}")
        }
        Event::SessionGranted { session, kind, count } => {
            format!("session {session} was granted {count} {kind}")
        }
        Event::SessionRevoked { session, kind, count } => {
            format!("session {session} lost {count} {kind}")
        }
        Event::SessionEnded { session, status } => {
            format!("session {session} ended {}", status.name())
        }
        Event::NodeAdded { node } => format!("node {node} joined"),
        Event::NodeLost { node, expired: true } => format!("node {node} expired"),
        Event::NodeLost { node, .. } => format!("node {node} left to restart"),
        Event::NodeBlacklisted { node, kind } => format!("node {node} was blacklisted for {kind}"),
        Event::NodeDraining { node, on: true } => {
            format!("node {node} drains: it is granted nothing")
        }
        Event::NodeDraining { node, .. } => format!("node {node} does not drain any more"),
        Event::NodeRevoked { node, access, on: true } => {
            format!("node {node} is granted nothing: its access {access} was revoked")
        }
        Event::NodeRevoked { node, .. } => format!("node {node} has access again"),
        Event::PoolStarving { group, pool, kind, cause, granted } => {
            format!(
                "pool {group}.{pool} is starved of {kind} below its {cause}, it holds {granted}"
            )
        }
        Event::SafeMode { on } => {
            format!("safe mode was turned {}", if *on { "ON" } else { "off" })
        }
        Event::PrivilegedAction { role, name, access, from, action, outcome, .. } => {
            let who = match (role, access) {
                (Some(role), Some(access)) => format!("{role} {name} (access {access})"),
                _ => name.clone(),
            };
            format!("{who} from {from}: {action}: {outcome}")
        }
        Event::ConfigurationReloaded => "changed configuration files are in force".to_owned(),
        Event::LeaderElected { instance, epoch } => {
            format!("instance {instance} leads, with epoch {epoch}")
        }
        Event::SteppingDown { instance } => format!("instance {instance} was asked to step down"),
        Event::StandbyReady { instance } => format!("standby {instance} may take over"),
        Event::StandbyLost { instance } => format!("standby {instance} may not take over any more"),
        Event::JobSubmitted { job, name, user } => format!("{job} was submitted by {user}: {name}"),
        Event::JobLaunched { job, maps, reduces } => {
            format!("{job} has {maps} maps and {reduces} reduces")
        }
        Event::JobRunning { job } => format!("{job} runs"),
        Event::JobEnded { job, state } => format!("{job} ended {state}"),
        Event::AttemptLaunched { attempt, node, .. } => format!("{attempt} was launched on {node}"),
        Event::AttemptSucceeded(AttemptEnded { attempt, node, .. }) => {
            format!("{attempt} succeeded on {node}")
        }
        Event::AttemptFailed(AttemptEnded { attempt, node, reason, .. }) => {
            format!("{attempt} failed on {node}: {}", reason.as_deref()?)
        }
        Event::AttemptKilled(AttemptEnded { attempt, node, reason, .. }) => {
            format!("{attempt} was killed on {node}: {}", reason.as_deref()?)
        }
        Event::TaskSucceeded(TaskEnded { task, .. }) => format!("{task} succeeded"),
        Event::TaskFailed(TaskEnded { task, reason, .. }) => {
            format!("{task} failed: {}", reason.as_deref()?)
        }
        Event::Missed { count: Some(count) } => format!("{count} events were missed"),
        Event::Missed { count: None } => "the program was restarted; events were missed".to_owned(),
        Event::NodeLate { .. } | Event::NodeOnTime { .. } | Event::BlacklistCleared { .. } => {
            return None;
        }
    })
}

/// An event of a later version, with its members as they are.
fn other(name: &str, members: &Map<String, Value>) -> String {
    let members = members.iter().filter(|(member, _)| !matches!(&***member, "event" | "time_ms"));
    let members = members.map(|(member, value)| match value {
        Value::String(text) => format!("{member}={text}"),
        other => format!("{member}={other}"),
    });
    format!("{name} {}", members.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, name: &str, data: &str) -> StreamedEvent {
        StreamedEvent { id: Some(id.into()), name: name.into(), data: data.into() }
    }

    fn members(name: &str, data: &Value) -> Map<String, Value> {
        event("1", name, &data.to_string()).members().unwrap()
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
                json!({"job": "job_1", "attempt": "attempt_1", "purpose": "MAP", "node": "n1", "reason": "no\nluck"}),
                "attempt_1 failed on n1: no\\nluck",
            ),
            (
                "attempt_killed",
                json!({"job": "job_1", "attempt": "attempt_1", "purpose": "MAP", "node": "n1", "reason": "too slow"}),
                "attempt_1 was killed on n1: too slow",
            ),
            (
                "task_succeeded",
                json!({"job": "job_1", "task": "task_1", "purpose": "MAP", "reason": null}),
                "task_1 succeeded",
            ),
            ("node_late", json!({"node": "n", "silent_ms": 9}), "node_late node=n silent_ms=9"),
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
            let line = text(name, members(name, &data));
            let (_, shown) = line.split_at(21);
            assert_eq!(shown, format!("{expected}\n"), "{name}");
        }
    }

    #[test]
    fn filters_pick_events() {
        let session =
            || Subjects::of(&members("", &json!({"session": "1.1", "group": "g", "pool": "p"})));
        let node = || Subjects::of(&members("", &json!({"node": "n", "job": "j"})));
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
            assert_eq!(wanted.wants("session_started", session), of_session);
            assert_eq!(wanted.wants("node_lost", node), of_node);
        }
        // A member of another form hides no other one.
        let odd = || Subjects::of(&members("", &json!({"node": "n", "task": 5})));
        assert!(wanted(&[], Some("n")).wants("node_lost", odd));
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
