//! The dashboards and alert rules of the documentation, checked against the metrics of the built
//! programs: each expression names metrics and labels that exist, and uses each as its type allows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use compat_tests::PATIENCE;
use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::cluster_manager::ClusterManager;
use compat_tests::task_tracker::node::Home;
use compat_tests::{corona_program, repository};
use corona::hadoop::protocols::job_aggregator::CoronaJobAggregatorClient;
use corona::hadoop::rpc::{ClientOptions, User};
use corona::hadoop::writables::{Counters, InetAddress, JobStats};
use serde_json::Value;

/// Files with alerts, without the ends of their names.
const PROGRAMS_WITH_ALERTS: &[&str] = &["corona", "corona-proxy-job-tracker"];

/// All metrics of the proxy job tracker that are neither on its dashboard nor in an alert.
const NOT_SHOWN: [&str; 3] = [
    "corona_proxy_job_tracker_job_counters_total",
    "corona_proxy_job_tracker_pool_job_counters_total",
    "corona_proxy_job_tracker_statistics_left_out_total",
];

/// Labels that Prometheus and Grafana add.
const ADDED: &[&str] = &["job", "instance", "le", "__rate_interval"];

/// A metric as it is served.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
    has_samples: bool,
}

type Metrics = BTreeMap<String, Metric>;

/// An expression and its place.
#[derive(Debug)]
struct Expression {
    place: String,
    text: String,
    /// Labels that its legend or its alert shows.
    shown: BTreeSet<String>,
}

#[test]
fn dashboards_and_alerts_ask_for_what_is_served() {
    let expressions = expressions();
    assert!(expressions.len() > 80, "{}", expressions.len());
    let servers = [
        Server::demo(),
        Server::counting_resources(),
        Server::task_tracker(),
        Server::job_tracker(),
        Server::proxy_job_tracker(),
    ];
    let deadline = Instant::now() + PATIENCE;
    let metrics = loop {
        let mut metrics = Metrics::new();
        for server in &servers {
            read(&server.metrics(), &mut metrics);
        }
        let wrong: Vec<String> =
            expressions.iter().flat_map(|expression| faults(expression, &metrics)).collect();
        if wrong.is_empty() {
            break metrics;
        }
        // Some metrics have labels only once something has happened, such as the start of a session.
        assert!(Instant::now() < deadline, "{}", wrong.join("\n"));
        std::thread::sleep(Duration::from_millis(100));
    };
    let asked = expressions.iter().flat_map(|expression| metrics_in(&expression.text));
    let shown: BTreeSet<&str> = asked.map(|word| family(word, &metrics)).collect();
    let own = metrics.keys().filter(|name| name.starts_with("corona_proxy_job_tracker_"));
    let not_shown: Vec<&String> = own.filter(|name| !shown.contains(name.as_str())).collect();
    assert_eq!(not_shown, NOT_SHOWN);
}

#[test]
fn prometheus_accepts_the_rules_and_they_fire_when_they_should() {
    let directory = repository().join("docs/prometheus");
    let promtool = |arguments: [&str; 3]| {
        Command::new("promtool").args(arguments).current_dir(&directory).output()
    };
    for program in PROGRAMS_WITH_ALERTS {
        let (rules, tests) = (format!("{program}.rules.yml"), format!("{program}.test.yml"));
        let text = std::fs::read_to_string(directory.join(&tests)).unwrap();
        for alert in alerts(&directory.join(&rules)) {
            let name = alert.place.strip_prefix("alert ").unwrap();
            // Once where it is silent, and once where it fires.
            let silent = format!("alertname: {name}}}");
            assert!(text.contains(&silent), "{tests} has no case in which {name} is silent");
            let fires = format!("alertname: {name}\n        exp_alerts:");
            assert!(text.contains(&fires), "{tests} has no case in which {name} fires");
        }
        match promtool(["check", "rules", &rules]) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return skip(Missing::Promtool);
            }
            checked => {
                let checked = checked.unwrap();
                assert!(checked.status.success(), "{checked:?}");
                let tested = promtool(["test", "rules", &tests]).unwrap();
                assert!(tested.status.success(), "{tested:?}");
            }
        }
    }
}

#[test]
fn wrong_expressions_are_found() {
    let mut metrics = Metrics::new();
    read(
        "# TYPE corona_a gauge\ncorona_a{type=\"MAP\"} 1\n# TYPE corona_b_total counter\n\
         corona_b_total 1\n# TYPE corona_c histogram\ncorona_c_bucket{le=\"1\"} 1\n\
         # TYPE corona_d gauge\n",
        &mut metrics,
    );
    let check = |text: &str, shown: &str| {
        let shown = BTreeSet::from([shown.to_owned()]);
        faults(&Expression { place: "here".into(), text: text.into(), shown }, &metrics).len()
    };
    for (expression, shown, expected) in [
        ("corona_a{job=\"$job\"} > 0", "type", 0),
        ("corona_x > 0", "job", 1),
        ("corona_a{kind=\"MAP\"}", "job", 1),
        ("corona_a", "kind", 1),
        ("sum by (kind) (corona_a)", "job", 1),
        ("corona_d", "job", 1),
        ("rate(corona_a[5m])", "job", 1),
        ("corona_b_total", "job", 1),
        ("increase(corona_b_total[5m]) > corona_a", "instance", 0),
        ("rate(corona_c_bucket[5m])", "le", 0),
        ("rate(corona_c[5m])", "job", 1),
        ("label_join(corona_a{type=\"MAP\"}, \"made\", \".\", \"type\")", "made", 0),
        ("label_join(corona_a{type=\"MAP\"}, \"made\", \".\", \"type\")", "type2", 1),
    ] {
        assert_eq!(check(expression, shown), expected, "{expression} {shown}");
    }
}

/// A program that serves metrics.
struct Server {
    address: String,
    _child: Option<Ended>,
    /// What must live as long as it.
    _kept: Option<Box<dyn std::any::Any>>,
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon with these properties: its process, its output, and the first line of that.
fn daemon(command: &str, properties: &[String]) -> (Child, BufReader<ChildStdout>, String) {
    let mut child = Command::new(corona_program())
        .arg(command)
        .args(properties.iter().flat_map(|property| ["-D", property]))
        .env_remove("RUST_LOG")
        .env_remove("HADOOP_CONF_DIR")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    lines.read_line(&mut ready).unwrap();
    (child, lines, ready)
}

impl Server {
    /// A cluster manager with all that a cluster has.
    fn demo() -> Server {
        let mut child = Command::new(corona_program())
            .args(["demo", "--port", "0", "--thrift-port", "0", "--speed", "10"])
            .args(["--output", "json"])
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["pages"].as_str().unwrap().trim_end_matches('/');
        let address = address.trim_start_matches("http://").to_owned();
        // Its output is read until it ends, so that it never waits for this test.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Server { address, _child: Some(Ended(child)), _kept: None }
    }

    /// A cluster manager that counts resources.
    fn counting_resources() -> Server {
        let root = tempfile::tempdir().unwrap();
        let pools = root.path().join("pools.xml");
        let group = "<configuration><group name=\"g\"><pool name=\"p\"/></group></configuration>";
        std::fs::write(&pools, group).unwrap();
        let pools = pools.display().to_string();
        let settings = [("corona.cm.resources", "cpus,memory"), ("cm.pools.config.file", &pools)];
        let manager = compat_tests::start_with(&settings);
        let address = manager.http().expect("its pages").to_string();
        Server { address, _child: None, _kept: Some(Box::new((manager, root))) }
    }

    fn task_tracker() -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let root = tempfile::tempdir().unwrap();
        let (manager, node) = runtime.block_on(async {
            let manager = ClusterManager::start();
            let node = Home::new(root.path(), manager.address(), manager.proxy()).start().await;
            (manager, node)
        });
        let mut words = node.ready().split_whitespace().skip_while(|word| *word != "http");
        let address = words.nth(1).expect("the address of the pages").to_owned();
        let kept = Box::new((node, manager, root, runtime));
        Server { address, _child: None, _kept: Some(kept) }
    }

    /// A job tracker service without jobs; no cluster manager has to answer it.
    fn job_tracker() -> Server {
        let root = tempfile::tempdir().unwrap();
        let own = [
            "cm.server.address=127.0.0.1:1".to_owned(),
            "corona.jt.address=127.0.0.1:0".to_owned(),
            "mapred.job.tracker.http.address=127.0.0.1:0".to_owned(),
            format!("corona.jt.data.dir={}", root.path().join("jt").display()),
            format!("corona.system.dir=file:{}", root.path().join("system").display()),
        ];
        let (child, lines, ready) = daemon("job-tracker", &own);
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let address =
            address.unwrap_or_else(|| panic!("{ready:?}")).trim_end_matches('/').to_owned();
        Server { address, _child: Some(Ended(child)), _kept: Some(Box::new((lines, root))) }
    }

    /// A proxy job tracker with the report of one job; no cluster manager has to answer it.
    fn proxy_job_tracker() -> Server {
        let root = tempfile::tempdir().unwrap();
        let below = |name: &str| root.path().join(name).display().to_string();
        let own = [
            "cm.server.address=127.0.0.1:1".to_owned(),
            "corona.proxy.job.tracker.thriftaddr=127.0.0.1:0".to_owned(),
            "corona.proxy.job.tracker.rpcaddr=127.0.0.1:0".to_owned(),
            "mapred.job.tracker.corona.proxyaddr=127.0.0.1:0".to_owned(),
            format!("corona.sessions.log.dir=file:{}", below("sessions")),
            format!("corona.system.dir=file:{}", below("system")),
            format!("corona.pjt.data.dir={}", below("data")),
        ];
        let (child, lines, ready) = daemon("proxy-job-tracker", &own);
        let after = |word: &str| {
            let mut words = ready.split_whitespace().skip_while(|other| *other != word);
            words.nth(1).unwrap_or_else(|| panic!("{ready:?}")).to_owned()
        };
        report_job(after("rpc").parse().unwrap());
        let kept = Box::new((lines, root));
        Server { address: after("http"), _child: Some(Ended(child)), _kept: Some(kept) }
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = &self.address;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }
}

/// Reports a finished job to a proxy job tracker, as job trackers do.
fn report_job(rpc: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = InetAddress { host: rpc.ip().to_string(), port: rpc.port() };
        let user = User { name: "alice".into(), groups: vec![] };
        let mut proxy = CoronaJobAggregatorClient::new(address, ClientOptions::new(user));
        let job = Some("job_202611221049.2_0001".to_owned());
        let (pool, counters) = (Some("default.p".to_owned()), Counters { groups: vec![] });
        proxy.report_job_stats(job, pool, JobStats::default(), counters).await.unwrap();
    });
}

/// Takes the families of a text for Prometheus in.
fn read(text: &str, metrics: &mut Metrics) {
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            metrics.entry(name.to_owned()).or_default().kind = kind.trim().to_owned();
        } else if line.starts_with(|first: char| first.is_ascii_lowercase()) && line.contains(' ') {
            let name = line.split(['{', ' ']).next().unwrap();
            let Some(metric) = metrics.get_mut(family(name, metrics)) else { continue };
            metric.has_samples = true;
            metric.labels.extend(labels_in_braces(line));
        }
    }
}

/// The family of a series: that of a histogram has several.
fn family<'a>(name: &'a str, metrics: &Metrics) -> &'a str {
    let ending = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
    ending.filter(|family| metrics.contains_key(*family)).unwrap_or(name)
}

/// The names before `=`, `!=` and `=~` between braces.
fn labels_in_braces(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let (mut word, mut inside, mut quoted) = (String::new(), false, false);
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' => {
                inside = true;
                word.clear();
            }
            '}' => inside = false,
            '=' | '!' if inside && !word.is_empty() => {
                labels.insert(std::mem::take(&mut word));
            }
            c if c.is_ascii_alphanumeric() || c == '_' => word.push(c),
            _ => word.clear(),
        }
    }
    labels
}

/// The labels in the parentheses after `by`, `on`, `without` and `ignoring`.
fn grouping_labels(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for word in ["by (", "on (", "without (", "ignoring ("] {
        for (at, _) in text.match_indices(word) {
            let list = text[at + word.len()..].split(')').next().unwrap();
            labels.extend(list.split(',').map(|label| label.trim().to_owned()));
        }
    }
    labels
}

/// The labels that `label_join` and `label_replace` make: the first text outside of braces behind each.
fn made_labels(text: &str) -> Vec<&str> {
    let calls = ["label_join(", "label_replace("].into_iter();
    calls
        .flat_map(|call| text.match_indices(call).map(move |(at, _)| &text[at + call.len()..]))
        .filter_map(|arguments| {
            let behind = arguments.find('}').map_or(arguments, |end| &arguments[end..]);
            behind.split('"').nth(1)
        })
        .collect()
}

/// The names of the metrics in an expression.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("corona_") || word.starts_with("process_"))
}

/// All that is wrong with an expression.
fn faults(expression: &Expression, metrics: &Metrics) -> Vec<String> {
    let Expression { place, text, shown } = expression;
    let mut faults = Vec::new();
    let mut labels: BTreeSet<&str> = ADDED.iter().copied().collect();
    labels.extend(made_labels(text));
    let words: Vec<&str> = metrics_in(text).collect();
    if words.is_empty() {
        faults.push(format!("{place}: no metric in {text}"));
    }
    for word in words {
        let Some(metric) = metrics.get(family(word, metrics)) else {
            faults.push(format!("{place}: nobody serves {word}"));
            continue;
        };
        labels.extend(metric.labels.iter().map(String::as_str));
        if !metric.has_samples {
            faults.push(format!("{place}: {word} has no samples"));
        }
        let (before, _) = text.split_once(word).unwrap();
        let is_rated = ["rate(", "increase("].iter().any(|call| before.ends_with(call));
        if is_rated == (metric.kind == "gauge") {
            faults.push(format!("{place}: {word} is a {}: {text}", metric.kind));
        }
        if (metric.kind == "histogram") != word.ends_with("_bucket") {
            faults.push(format!("{place}: {word} is a {}", metric.kind));
        }
    }
    let asked = labels_in_braces(text).into_iter().chain(grouping_labels(text));
    for label in asked.chain(shown.iter().cloned()) {
        if !labels.contains(label.as_str()) {
            faults.push(format!("{place}: no label {label} in {text}"));
        }
    }
    faults
}

/// All expressions of the documentation.
fn expressions() -> Vec<Expression> {
    let docs = repository().join("docs");
    let mut all = Vec::new();
    for dashboard in [
        "corona.json",
        "corona-task-trackers.json",
        "corona-job-tracker.json",
        "corona-proxy-job-tracker.json",
    ] {
        let text = std::fs::read_to_string(docs.join("grafana").join(dashboard)).unwrap();
        let dashboard_json: Value = serde_json::from_str(&text).unwrap();
        let mut ids = BTreeSet::new();
        for panel in dashboard_json["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_i64().unwrap()), "{dashboard}: {panel}");
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().into_iter().flatten() {
                all.push(Expression {
                    place: format!("{dashboard}, {title}"),
                    text: target["expr"].as_str().unwrap().to_owned(),
                    shown: shown_labels(target["legendFormat"].as_str().unwrap_or_default()),
                });
            }
        }
        for variable in dashboard_json["templating"]["list"].as_array().unwrap() {
            if let Some(query) = variable["query"]["query"].as_str() {
                let query = query.strip_prefix("label_values(").unwrap();
                let (metric, label) = query.trim_end_matches(')').rsplit_once(", ").unwrap();
                all.push(Expression {
                    place: format!("{dashboard}, {}", variable["name"]),
                    text: metric.to_owned(),
                    shown: BTreeSet::from([label.to_owned()]),
                });
            }
        }
    }
    for program in PROGRAMS_WITH_ALERTS {
        all.extend(alerts(&docs.join(format!("prometheus/{program}.rules.yml"))));
    }
    all
}

/// The alerts of a file, each of whose expressions is on one line.
fn alerts(path: &Path) -> Vec<Expression> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut alerts: Vec<Expression> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            let place = format!("alert {name}");
            alerts.push(Expression { place, text: String::new(), shown: BTreeSet::new() });
        } else if let Some(alert) = alerts.last_mut() {
            if let Some(expression) = line.strip_prefix("expr: ") {
                alert.text = expression.to_owned();
            }
            let labels = line.split("$labels.").skip(1);
            let label = |rest: &str| rest.split([' ', '}']).next().unwrap().to_owned();
            alert.shown.extend(labels.map(label));
        }
    }
    alerts
}

/// The labels between double braces.
fn shown_labels(legend: &str) -> BTreeSet<String> {
    let parts = legend.split("{{").skip(1);
    parts.map(|part| part.split("}}").next().unwrap().trim().to_owned()).collect()
}
