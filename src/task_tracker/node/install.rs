//! What the machine has to run Java tasks with.

use std::path::PathBuf;
use std::time::Duration;

use crate::child::Install;
use crate::job_files::HadoopCommand;
use corona_config::{ChildSettings, JobFileSettings};

/// How long the Hadoop install may take to tell its class path.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is configured, else what the environment says (`variable`), else what the Hadoop install
/// tells. Without any class path tasks of Java fail, and others run: that is told to the log.
pub async fn find(
    child: &ChildSettings,
    files: &JobFileSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> Install {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = child.java_home.clone().or_else(|| set("JAVA_HOME").map(PathBuf::from));
    let java = home.map_or_else(|| "java".into(), |home| home.join("bin/java"));
    let class_path = child.class_path.clone().or_else(|| set("MAPREDUCE_TASK_SYSTEM_CLASSPATH"));
    let class_path = match class_path {
        Some(class_path) => class_path,
        None => asked(files).await,
    };
    Install { java, class_path, library_path: child.library_path.clone() }
}

async fn asked(files: &JobFileSettings) -> String {
    let program = files.hadoop_command.clone();
    let timeout = files.timeout.min(TIMEOUT);
    let install = HadoopCommand { program, timeout, max_bytes: files.max_bytes };
    install.class_path().await.unwrap_or_else(|error| {
        tracing::warn!(
            "tasks of Java cannot run, as there is no class path for them: {error}; set \
             corona.tt.hadoop.command or corona.tt.child.class.path"
        );
        String::new()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use corona_config::Source;

    #[tokio::test]
    async fn what_is_configured_comes_first_then_the_environment_then_the_install() {
        let dir = tempfile::tempdir().unwrap();
        let hadoop = dir.path().join("hadoop");
        fs::write(&hadoop, "#!/bin/sh\necho /conf:/core.jar\n").unwrap();
        fs::set_permissions(&hadoop, fs::Permissions::from_mode(0o755)).unwrap();
        let hadoop = &*hadoop.display().to_string();
        let command = ("corona.tt.hadoop.command", hadoop);
        let home = ("corona.tt.java.home", "/jdk");
        let path = ("corona.tt.child.class.path", "/own.jar");
        let variables =
            [("JAVA_HOME", "/env/jdk"), ("MAPREDUCE_TASK_SYSTEM_CLASSPATH", "/env.jar")];
        let none = ("corona.tt.hadoop.command", "/no/such/program");
        let table = [
            (vec![command, home, path], &variables[..], "/jdk/bin/java", "/own.jar"),
            (vec![command], &variables, "/env/jdk/bin/java", "/env.jar"),
            (vec![command], &variables[..1], "/env/jdk/bin/java", "/conf:/core.jar"),
            (vec![command], &[("JAVA_HOME", "")], "java", "/conf:/core.jar"),
            (vec![none], &[], "java", ""),
        ];
        for (set, variables, java, class_path) in table {
            let overrides: Vec<(String, String)> =
                set.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            let source = Source { overrides: &overrides, ..Source::default() };
            let settings = source.load_task_tracker().unwrap().settings;
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let install = find(&settings.child, &settings.files, variable).await;
            assert_eq!(install.java, PathBuf::from(java), "{set:?}");
            assert_eq!(install.class_path, class_path, "{set:?}");
        }
    }
}
