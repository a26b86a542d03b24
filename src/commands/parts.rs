//! The parts of a cluster of this program alone, and their configuration: `corona head` and `corona join`
//! run them on several machines, `corona mini-cluster` on one.

use std::fs;
use std::path::Path;

use anyhow::Context;
use corona::config::keys;
use corona::model::text::{escape_markup, word_of_line};

use super::arguments::Override;
use super::daemons::{Daemons, Home};
use super::invitation::write_private;

/// Directories of the parts of a head.
pub(super) const HEAD_FOLDERS: [&str; 5] =
    ["cluster-manager", "job-tracker", "proxy-job-tracker", "history", "tmp"];

/// Times that suit a small cluster: a small job takes a second or two.
const FAST: &[(&str, &str)] = &[
    ("corona.clustermanager.heartbeat.interval", "1000"),
    ("corona.jobtracker.heartbeat.interval", "200"),
    ("mapreduce.tasktracker.outofband.heartbeat", "true"),
    ("mapred.event.sleep.ms", "100"),
    ("corona.pjt.index.interval.ms", "500"),
    ("corona.task.report.ms", "500"),
    ("corona.task.shuffle.retry.ms", "1000"),
    ("mapred.tasktracker.tasks.sleeptime.before.sigkill", "1000"),
    ("corona.jt.exclusion.wait.ms", "2000"),
];

/// Where the parts of a head are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeadAddresses {
    /// The name that all machines know.
    pub(super) host: String,
    pub(super) thrift: u16,
    pub(super) pages: u16,
    pub(super) job_tracker: u16,
    pub(super) job_pages: u16,
    /// Thrift, Hadoop RPC and pages of the proxy job tracker.
    pub(super) proxy: Option<[u16; 3]>,
    /// The port of the pages of all nodes, from which the cluster manager's pages link to them.
    pub(super) nodes: u16,
}

/// A configuration that is being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Site(Vec<(String, String)>);

/// Whether the value of a key is only for the daemons that use it.
pub(super) fn is_secret(key: &str) -> bool {
    keys::find(key).is_some_and(|key| key.kind == keys::Kind::Secret)
}

impl Site {
    /// Sets keys; each replaces an earlier value.
    pub(super) fn set<'a>(&mut self, settings: impl IntoIterator<Item = (&'a str, String)>) {
        for (key, value) in settings {
            self.0.retain(|(known, _)| known != key);
            self.0.push((key.to_owned(), value));
        }
    }

    /// Sets what users have set, over everything before.
    pub(super) fn override_with(&mut self, overrides: &[Override]) {
        self.set(overrides.iter().map(|(key, value)| (&**key, value.clone())));
    }

    /// The settings, in their order.
    pub(super) fn settings(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of a key.
    #[cfg(test)]
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
    }

    /// What clients and nodes need to find the parts of a head.
    pub(super) fn of_cluster(at: &HeadAddresses) -> Site {
        let address = |port: u16| format!("{}:{port}", at.host);
        let mut site = Site::default();
        site.set([
            ("cm.server.address", address(at.thrift)),
            ("cm.server.http.address", address(at.pages)),
            ("corona.jt.address", address(at.job_tracker)),
            ("mapred.job.tracker", address(at.job_tracker)),
            ("mapred.job.tracker.http.address", address(at.job_pages)),
            ("mapred.task.tracker.http.address", address(at.nodes)),
            ("fs.default.name", "file:///".to_owned()),
            ("corona.tt.native.tasks", "streaming".to_owned()),
        ]);
        if let Some([thrift, rpc, pages]) = at.proxy {
            site.set([
                ("corona.proxy.job.tracker.thriftaddr", address(thrift)),
                ("corona.proxy.job.tracker.rpcaddr", address(rpc)),
                ("mapred.job.tracker.corona.proxyaddr", address(pages)),
            ]);
        }
        site.set(FAST.iter().map(|(key, value)| (*key, (*value).to_owned())));
        site
    }

    /// Where the parts of a head keep their files.
    pub(super) fn add_files_of_head(&mut self, home: &Home) {
        let system = format!("file:{}", home.at("system"));
        self.set([
            ("hadoop.tmp.dir", home.at("tmp")),
            ("cm.state", home.at("cluster-manager/cm.state")),
            ("corona.cm.journal.dir", home.at("cluster-manager/journal")),
            ("corona.sessions.log.dir", format!("file:{}", home.at("history"))),
            ("corona.jt.data.dir", home.at("job-tracker")),
            ("corona.pjt.data.dir", home.at("proxy-job-tracker")),
            ("corona.system.dir", system.clone()),
            ("mapred.system.dir", system),
        ]);
    }

    /// Writes `core-site.xml`, each time, and files for the user's own settings if there are none. `who`
    /// writes it.
    pub(super) fn write(&self, directory: &Path, who: &str) -> anyhow::Result<()> {
        let mut xml = format!(
            "<?xml version=\"1.0\"?>\n<!-- {who} writes this file at each start. Put settings of your \
             own into\n     mapred-site.xml, which has the last word. -->\n<configuration>\n"
        );
        for (key, value) in &self.0 {
            xml.push_str(&format!(
                "  <property><name>{}</name><value>{}</value></property>\n",
                escape_markup(key),
                escape_markup(value)
            ));
        }
        xml.push_str("</configuration>\n");
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        match self.0.iter().any(|(key, _)| is_secret(key)) {
            true => write_private(&directory.join("core-site.xml"), &xml)?,
            false => write("core-site.xml", &xml)?,
        }
        for name in ["mapred-site.xml", "corona.xml"] {
            if !directory.join(name).exists() {
                write(name, "<?xml version=\"1.0\"?>\n<configuration>\n</configuration>\n")?;
            }
        }
        Ok(())
    }
}

/// The command that starts the cluster of a configuration, if one of this program has written it.
pub(super) fn start_of(conf_dir: &Path) -> Option<String> {
    let text = fs::read_to_string(conf_dir.join("core-site.xml")).ok()?;
    let writers = ["corona mini-cluster", "corona head"];
    let who =
        writers.into_iter().find(|who| text.contains(&format!("<!-- {who} writes this file")))?;
    let home = conf_dir.canonicalize().ok()?.parent()?.display().to_string();
    let is_closed = text.contains("<name>corona.tls</name><value>require</value>");
    let closed = if is_closed && who == "corona mini-cluster" { " --closed" } else { "" };
    Some(format!("{who}{closed} --dir {}", word_of_line(&home)))
}

/// A node, and where it keeps its files.
pub(super) struct NodePart<'a> {
    /// The name of its daemon.
    pub(super) name: &'a str,
    /// The name under which others reach it.
    pub(super) host: &'a str,
    pub(super) http_port: u16,
    pub(super) directory: &'a Path,
}

impl NodePart<'_> {
    fn settings(&self) -> [(&'static str, String); 5] {
        let at = |name: &str| self.directory.join(name).display().to_string();
        [
            ("slave.host.name", self.host.to_owned()),
            ("mapred.task.tracker.http.address", format!("{}:{}", self.host, self.http_port)),
            ("mapred.local.dir", at("local")),
            ("hadoop.log.dir", at("logs")),
            ("hadoop.tmp.dir", at("tmp")),
        ]
    }
}

impl Daemons {
    /// Starts the cluster manager, and the proxy job tracker before it: that is notified when safe mode ends at
    /// the start. Waits until both are ready.
    pub(super) async fn start_cluster_manager(&mut self, home: &Home) -> anyhow::Result<()> {
        self.launch("proxy-job-tracker", &["proxy-job-tracker"], home, &[]);
        self.until_ready(&["proxy-job-tracker".to_owned()]).await?;
        // A state file, of 'corona admin persist-state', must not keep it from going on.
        self.launch("cluster-manager", &["cluster-manager", "--prefer-journal"], home, &[]);
        self.until_ready(&["cluster-manager".to_owned()]).await
    }

    /// Starts a node.
    pub(super) fn start_node(&mut self, home: &Home, node: &NodePart<'_>) {
        self.launch(node.name, &["task-tracker"], home, &node.settings());
    }

    /// Starts the job tracker, and waits until it and these nodes are ready.
    pub(super) async fn start_job_tracker(
        &mut self,
        home: &Home,
        nodes: Vec<String>,
    ) -> anyhow::Result<()> {
        self.launch("job-tracker", &["job-tracker"], home, &[]);
        let mut awaited = nodes;
        awaited.push("job-tracker".to_owned());
        self.until_ready(&awaited).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_settings_replace_earlier_ones_and_are_escaped() {
        let mut site = Site::default();
        site.set([("a", "1".to_owned()), ("b", "<&>".to_owned())]);
        site.override_with(&[("a".into(), "2".into())]);
        assert_eq!((site.get("a"), site.get("c")), (Some("2"), None));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mapred-site.xml"), "mine").unwrap();
        site.write(dir.path(), "a test").unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let xml = read("core-site.xml");
        assert!(xml.contains("<name>b</name><value>&lt;&amp;&gt;</value>"), "{xml}");
        assert!(xml.contains("a test writes this file") && !xml.contains("<value>1</value>"));
        assert_eq!(read("mapred-site.xml"), "mine");
        assert!(read("corona.xml").contains("<configuration>"));
    }

    #[test]
    fn the_configuration_of_a_cluster_tells_how_it_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let spaced = dir.path().canonicalize().unwrap().join("my cluster");
        fs::create_dir_all(spaced.join("conf")).unwrap();
        let mut closed = Site::default();
        closed.set([("corona.tls", "require".to_owned())]);
        closed.write(&spaced.join("conf"), "corona mini-cluster").unwrap();
        let expected = format!("corona mini-cluster --closed --dir '{}'", spaced.display());
        assert_eq!(start_of(&spaced.join("conf")), Some(expected));

        let conf = dir.path().canonicalize().unwrap().join("conf");
        fs::create_dir(&conf).unwrap();
        assert_eq!(start_of(&conf), None);
        for (who, starts) in [("corona mini-cluster", true), ("corona head", true), ("x", false)] {
            Site::default().write(&conf, who).unwrap();
            let expected = format!("{who} --dir {}", dir.path().canonicalize().unwrap().display());
            assert_eq!(start_of(&conf), starts.then_some(expected));
        }
    }
}
