//! The machine's Java and Hadoop installations for Java tasks, and their missing parts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::child::{Install, JavaVersion, Native};
use crate::job_files::HadoopCommand;
use crate::programs::{RunError, first_line, run};
use corona_config::{ChildSettings, JobFileSettings, NativeTasks, keys};

/// How long the Hadoop install may take to print its class path, and Java its properties.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where Java looks for native libraries if it does not report it: HotSpot's directories on Linux.
const LIBRARY_DIRS: &str = "/usr/java/packages/lib:/usr/lib64:/lib64:/lib:/usr/lib";

/// The programs that were found on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    /// The Java and the Hadoop install that tasks are started with.
    pub install: Install,
    /// Why no Java task can run, with advice; `None` if no problem is known.
    pub java_problem: Option<String>,
    /// Whether Java tasks are expected here: streaming jobs need Java, or the configuration names an installation.
    pub expects_java: bool,
    /// The version of Java, if it has reported it.
    pub java_version: Option<JavaVersion>,
}

/// The configured values, else those of the environment (`variable`), else those that the Hadoop
/// install and Java print. Without a class path or without Java, tasks of Java fail and others run;
/// that is a warning in the log too.
pub async fn find(
    child: &ChildSettings,
    files: &JobFileSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> FoundProgram {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = child.java_home.clone().or_else(|| set("JAVA_HOME").map(PathBuf::from));
    let java = home.map_or_else(|| "java".into(), |home| home.join("bin/java"));
    let class_path = child.class_path.clone().or_else(|| set("MAPREDUCE_TASK_SYSTEM_CLASSPATH"));
    let names_install = class_path.is_some()
        || child.java_home.is_some()
        || files.hadoop_command != Path::new(keys::TT_HADOOP_COMMAND.default);
    let class_path = match class_path {
        Some(class_path) => Ok(class_path),
        None => class_path_of_install(files).await,
    };
    // Without a class path nothing is ever started with it.
    let asked = match &class_path {
        Ok(_) => properties(&java).await,
        Err(_) => Ok(String::new()),
    };
    let java_version = asked.as_deref().ok().and_then(version);
    let libraries = match class_path.is_ok() {
        true => asked.map(|printed| {
            default_library_path(&printed).unwrap_or_else(|| LIBRARY_DIRS.to_owned())
        }),
        false => Ok(String::new()),
    };
    let java_problem = class_path.as_ref().err().or(libraries.as_ref().err()).cloned();
    let expects_java = child.native_tasks != NativeTasks::Streaming || names_install;
    match &java_problem {
        Some(problem) if expects_java => {
            tracing::warn!("no Java task can run on this node: {problem}")
        }
        Some(problem) => tracing::info!("tasks run without Java on this node: {problem}"),
        None => {}
    }
    let library_path = match &*child.library_path {
        "" => libraries.unwrap_or_default(),
        configured => configured.to_owned(),
    };
    let class_path = class_path.unwrap_or_default();
    // Without a name of its own the program is looked for where programs are.
    let program = std::env::current_exe().unwrap_or_else(|_| "corona".into());
    let native = Native { program, allowed: child.native_tasks };
    let install = Install { java, class_path, library_path, native };
    FoundProgram { install, java_problem, expects_java, java_version }
}

/// The build of the Hadoop installation, as its `VersionInfo` prints it, for job trackers of this node. None if
/// there is no installation; then they learn it from the first task tracker that refuses theirs.
pub async fn build_version(install: &Install) -> Option<String> {
    if install.class_path.is_empty() {
        return None;
    }
    let mut command = Command::new(&install.java);
    command.args(["-cp", &install.class_path, "org.apache.hadoop.util.VersionInfo"]);
    let printed = match run(command, TIMEOUT).await {
        Ok(printed) => printed.stdout,
        Err(error) => {
            tracing::warn!(?error, "the build of the Hadoop installation is not known");
            return None;
        }
    };
    let mut lines = printed.lines();
    let build = lines.find_map(|line| line.strip_prefix("Build Version "))?.trim();
    Some(build.to_owned()).filter(|build| !build.is_empty())
}

/// Errors: the problem, and advice.
async fn class_path_of_install(files: &JobFileSettings) -> Result<String, String> {
    let program = files.hadoop_command.clone();
    let timeout = files.timeout.min(TIMEOUT);
    let install = HadoopCommand { program, timeout, max_bytes: files.max_bytes };
    install.class_path().await.map_err(|error| {
        format!(
            "there is no class path for it ({error}); set corona.tt.hadoop.command or \
             corona.tt.child.class.path"
        )
    })
}

/// The properties of this Java: among them its version, and where it looks for native libraries by
/// default, which a Java task tracker hands on to its tasks. It is asked once; the variable
/// `LD_LIBRARY_PATH` has its part in the latter.
///
/// Errors: the problem with this Java, and advice.
async fn properties(java: &Path) -> Result<String, String> {
    let mut command = Command::new(java);
    command.args(["-XshowSettings:properties", "-version"]);
    let shown = java.display();
    let failed = |why: &str| format!("{shown}: {why}; set JAVA_HOME or corona.tt.java.home");
    let printed = run(command, TIMEOUT).await.map_err(|error| match error {
        RunError::Io(error) => failed(&error.to_string()),
        RunError::Timeout { .. } => failed(&format!("did not end within {} s", TIMEOUT.as_secs())),
    })?;
    if !printed.status.success() {
        return Err(failed(&format!("{} ({})", first_line(&printed.stderr), printed.status)));
    }
    Ok(format!("{}\n{}", printed.stderr, printed.stdout))
}

/// The version among the properties that Java prints.
fn version(properties: &str) -> Option<JavaVersion> {
    let value = |name: &str| {
        let mut lines = properties.lines().map(str::trim_start);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ").map(str::trim))
    };
    let number = value("java.specification.version")?;
    let number = number.strip_prefix("1.").unwrap_or(number).parse().ok()?;
    let exact = value("java.vm.version").or_else(|| value("java.runtime.version"))?;
    Some(JavaVersion { number, exact: exact.to_owned() })
}

/// The property `java.library.path` among those that Java prints: `name = value`, paths with each of
/// their parts on a line of its own, further in.
fn default_library_path(properties: &str) -> Option<String> {
    let mut lines = properties.lines();
    let first = lines.find_map(|line| line.trim_start().strip_prefix("java.library.path ="))?;
    let more = lines.take_while(|line| line.starts_with("        ") && !line.contains(" = "));
    let parts = [first].into_iter().chain(more).map(str::trim).filter(|part| !part.is_empty());
    Some(parts.collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use corona_config::Source;

    #[tokio::test]
    async fn the_build_is_that_of_the_installation() {
        let dir = tempfile::tempdir().unwrap();
        let java = dir.path().join("java");
        let script = "#!/bin/sh\n\
            [ \"$*\" = '-cp /core.jar org.apache.hadoop.util.VersionInfo' ] || exit 1\n\
            echo 'Hadoop 0.20'\necho 'Compiled by me on a day'\n\
            echo 'Build Version 0.20 from r1 by me on a day'\n";
        fs::write(&java, script).unwrap();
        fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).unwrap();
        let native = Native { program: "corona".into(), allowed: corona_config::NativeTasks::None };
        let install = |class_path: &str| Install {
            java: java.clone(),
            class_path: class_path.to_owned(),
            library_path: String::new(),
            native: native.clone(),
        };
        let build = build_version(&install("/core.jar")).await;
        assert_eq!(build.as_deref(), Some("0.20 from r1 by me on a day"));
        for none in ["/other.jar", ""] {
            assert_eq!(build_version(&install(none)).await, None, "{none}");
        }
    }

    #[tokio::test]
    async fn configuration_precedes_environment_and_install() {
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
            (vec![none], &[("JAVA_HOME", "")], "java", ""),
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
            let FoundProgram { install, java_problem: problem, .. } =
                find(&settings.child, &settings.files, variable).await;
            assert_eq!(install.java, PathBuf::from(java), "{set:?}");
            assert_eq!(install.class_path, class_path, "{set:?}");
            let problem = problem.unwrap();
            match class_path {
                "" => assert_eq!(
                    problem,
                    "there is no class path for it (/no/such/program: No such file or directory (os \
                     error 2)); set corona.tt.hadoop.command or corona.tt.child.class.path"
                ),
                _ => assert_eq!(
                    problem,
                    format!(
                        "{java}: No such file or directory (os error 2); set JAVA_HOME or \
                         corona.tt.java.home"
                    )
                ),
            }
        }
    }

    #[tokio::test]
    async fn java_is_expected_unless_the_cluster_runs_without_it() {
        let streaming = ("corona.tt.native.tasks", "streaming");
        let path = ("corona.tt.child.class.path", "/own.jar");
        let home = ("corona.tt.java.home", "/jdk");
        let command = ("corona.tt.hadoop.command", "/no/such/program");
        let variable = ("MAPREDUCE_TASK_SYSTEM_CLASSPATH", "/env.jar");
        let table = [
            (vec![], None, true),
            (vec![("corona.tt.native.tasks", "jobs")], None, true),
            (vec![streaming], None, false),
            (vec![streaming, path], None, true),
            (vec![streaming, home], None, true),
            (vec![streaming, command], None, true),
            (vec![streaming], Some(variable), true),
        ];
        for (set, variable, expected) in table {
            let overrides: Vec<(String, String)> =
                set.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            let source = Source { overrides: &overrides, ..Source::default() };
            let settings = source.load_task_tracker().unwrap().settings;
            let variable = |name: &str| {
                variable.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
            };
            let found = find(&settings.child, &settings.files, variable).await;
            assert_eq!(found.expects_java, expected, "{set:?}");
        }
    }

    /// The output of Debian's Java 17, shortened.
    const PRINTED: &str = "Property settings:
    file.encoding = UTF-8
    java.io.tmpdir = /tmp
    java.library.path = /usr/java/packages/lib
        /usr/lib/x86_64-linux-gnu/jni
        /usr/lib
    java.runtime.name = OpenJDK Runtime Environment

openjdk version \"17.0.15\" 2025-04-15
";

    #[test]
    fn the_library_path_is_read_from_what_java_prints() {
        let read = |text: &str| default_library_path(text);
        let expected = "/usr/java/packages/lib:/usr/lib/x86_64-linux-gnu/jni:/usr/lib";
        assert_eq!(read(PRINTED).as_deref(), Some(expected));
        assert_eq!(read("    java.library.path = /lib\n").as_deref(), Some("/lib"));
        assert_eq!(read("    java.library.path =\n    a = b\n").as_deref(), Some(""));
        assert_eq!(read("Property settings:\n    a = b\n"), None);
    }

    #[test]
    fn the_version_is_read_from_what_java_prints() {
        let read = |specification: &str, vm: &str| {
            version(&format!(
                "Property settings:\n    java.specification.version = {specification}\n    java.vm.version = {vm}\n"
            ))
        };
        let java = |number, exact: &str| Some(JavaVersion { number, exact: exact.to_owned() });
        assert_eq!(read("17", "17.0.15+6"), java(17, "17.0.15+6"));
        assert_eq!(read("1.8", "25.4-b01"), java(8, "25.4-b01"));
        assert_eq!(read("x", "25.4-b01"), None);
        assert_eq!(version(PRINTED), None);
    }

    #[tokio::test]
    async fn java_is_asked_where_libraries_are() {
        let dir = tempfile::tempdir().unwrap();
        let java = dir.path().join("bin/java");
        fs::create_dir(dir.path().join("bin")).unwrap();
        let home = &*dir.path().display().to_string();
        let broken = format!(
            "{}: no memory (exit status: 1); set JAVA_HOME or corona.tt.java.home",
            java.display()
        );
        let own = "/own:/native";
        let printed = "/usr/java/packages/lib:/usr/lib/x86_64-linux-gnu/jni:/usr/lib";
        for (script, configured, libraries, problem) in [
            (format!("cat >&2 <<'END'\n{PRINTED}END"), "", printed, None),
            (format!("cat >&2 <<'END'\n{PRINTED}END"), own, own, None),
            ("echo another Java >&2".into(), "", LIBRARY_DIRS, None),
            ("echo no memory >&2; exit 1".into(), own, own, Some(broken)),
        ] {
            fs::write(&java, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).unwrap();
            let set = [
                ("corona.tt.java.home", home),
                ("corona.tt.child.class.path", "/a.jar"),
                ("corona.tt.library.path", configured),
            ];
            let overrides = set.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let source = Source { overrides: &overrides, ..Source::default() };
            let settings = source.load_task_tracker().unwrap().settings;
            let found = find(&settings.child, &settings.files, |_| None).await;
            assert_eq!((&*found.install.library_path, found.java_problem), (libraries, problem));
        }
    }
}
