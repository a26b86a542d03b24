//! The syntax of the command line, and the look of its help.

use anyhow::anyhow;
use clap::CommandFactory;

use super::*;

#[test]
fn definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_is_in_the_table_of_compatibility() {
    let table = include_str!("../../../docs/reference/compatibility/commands.md");
    for command in Cli::command().get_subcommands() {
        let row = format!("| `corona {}` |", command.get_name());
        assert!(table.contains(&row), "docs/reference/compatibility/commands.md has no row {row}");
    }
    for row in table.lines().filter_map(|line| line.strip_prefix("| `corona ")) {
        let line = row.split('`').next().unwrap_or_default();
        let mut command = Cli::command();
        for word in line.split(' ') {
            let is_there = match word.strip_prefix("--") {
                Some(option) => {
                    command.get_arguments().any(|argument| argument.get_long() == Some(option))
                }
                None => {
                    command.find_subcommand(word).cloned().map(|found| command = found).is_some()
                }
            };
            assert!(is_there, "there is no corona {line}");
        }
    }
    let theirs = java::admin_commands().chain(["-recoverFromDisk", "-help", "-list", "-kill"]);
    for option in theirs {
        let row = format!("| `{option}` |");
        assert!(table.contains(&row), "docs/reference/compatibility/commands.md has no row {row}");
    }
}

#[test]
fn exit_status_tells_usage_from_success() {
    let usage = ExitCode::from(2);
    for (line, expected) in [
        ("--version", ExitCode::SUCCESS),
        ("--help", ExitCode::SUCCESS),
        ("cluster-manager --help", ExitCode::SUCCESS),
        ("admin --help", ExitCode::SUCCESS),
        ("admin restart-nodes --help", ExitCode::SUCCESS),
        ("help", ExitCode::SUCCESS),
        ("help sessions", ExitCode::SUCCESS),
        ("help sessions list", ExitCode::SUCCESS),
        ("sessions help list", ExitCode::SUCCESS),
        ("help no-such-command", usage),
        ("version", ExitCode::SUCCESS),
        ("", usage),
        ("no-such-command", usage),
        ("cluster-manager --no-such-option", usage),
        ("cluster-manager stray", usage),
        ("cluster-manager -D no-equals-sign", usage),
        ("admin", usage),
        ("admin set-safe-mode stray", usage),
        ("admin -setSafeMode stray", usage),
        ("admin restart-nodes --batch 0", usage),
        ("admin restart-nodes --batch many", usage),
        ("admin set-safe-mode --address nowhere", usage),
        ("admin set-safe-mode --timeout 0", usage),
        ("sessions", usage),
        ("sessions info", usage),
        ("sessions kill", usage),
        ("sessions list --output xml", usage),
        ("nodes", usage),
        ("pools stray", usage),
        ("pools info", usage),
        ("pools --group g list", usage),
        ("sessions list --watch=0", usage),
        ("events --last many", usage),
        ("check-config stray", usage),
        ("client", usage),
        ("record", usage),
        ("record --listen localhost:0 --upstream localhost:1", usage),
        ("record --listen nowhere --upstream localhost:1 --out f", usage),
        ("record --listen localhost:0 --upstream localhost:1 --out f --max-buffer 0", usage),
        ("inspect", usage),
        ("inspect f --port 50030", usage),
        ("inspect f --port page=50030", usage),
        ("inspect f --from yesterday", usage),
        ("import f", usage),
        ("completions", usage),
        ("completions csh", usage),
    ] {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        assert_eq!(corona_words(&words).status, expected, "{line:?}");
    }
}

#[test]
fn failure_has_status_one_and_one_line() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console::of_test(&mut out, &mut err);
    let failed = conclude(Err(anyhow!("no such directory\n  there")), &mut console);
    assert_eq!(failed, ExitCode::from(1));
    assert_eq!(conclude(Ok(ExitCode::SUCCESS), &mut console), ExitCode::SUCCESS);
    assert_eq!(err, b"corona: no such directory there\n");
}

#[test]
fn a_missing_right_names_the_user_who_needs_it() {
    let said = of_rights("/j/lock: cannot open: Permission denied (os error 13)", 7);
    assert_eq!(said, "; this process runs as user 7, which needs the right to do so");
    // The answer of a name node, which knows users by name.
    assert_eq!(of_rights("Permission denied: user=a, access=WRITE", 7), "");
}

#[test]
fn error_and_causes_fit_one_line() {
    let error = anyhow!("bad token:\n  line 3\r\n").context("cannot read core-site.xml");
    assert_eq!(one_line(&error), "cannot read core-site.xml: bad token: line 3");
}

/// Every command that gives a result can give it to a program. Exceptions: commands that make a
/// script or pages, print exactly the original's output, or serve until they are stopped.
#[test]
fn every_command_has_a_form_for_programs() {
    fn without(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        if command.has_subcommands() {
            let below = command.get_subcommands().filter(|below| below.get_name() != "help");
            below.for_each(|below| without(below, &path, found));
        } else if !command
            .get_arguments()
            .any(|option| matches!(option.get_long(), Some("output" | "json")))
        {
            found.push(path.trim_start_matches(" corona ").to_owned());
        }
    }
    let mut cli = Cli::command();
    cli.build();
    let mut found = Vec::new();
    without(&cli, "", &mut found);
    let left_out = [
        "join",
        "login",
        "logout",
        "open",
        "cluster-manager",
        "task-tracker",
        "job-tracker",
        "proxy-job-tracker",
        "gateway",
        "access init",
        "access create",
        "access revoke",
        "access rotate",
        "access enrol",
        "client list",
        "client kill",
        "hadoop",
        "mini-cluster",
        "completions",
        "man-pages",
        "task-child",
    ];
    assert_eq!(found, left_out);
}

#[test]
fn wrong_values_of_a_job_are_wrong_usage() {
    const RUN: [&str; 9] =
        ["corona", "job", "run", "--input", "in", "--output", "out", "--mapper", "cat"];
    for (wrong, value, option, expected) in [
        (&["--mapper", ""][..], "", "--mapper <CMD>", "expected a command"),
        (&["--mapper", "builtin:awk"], "builtin:awk", "--mapper <CMD>", "expected builtin:cat"),
        (&["--reducer", " "], " ", "--reducer <CMD>", "expected a command"),
        (&["--combiner", "builtin:cat"], "builtin:cat", "--combiner <CMD>", "expected builtin:wc"),
        (&["--sort-by", "zz"], "zz", "--sort-by <FIELDS>", "such as 2,2nr"),
        (&["--partition-by", "0"], "0", "--partition-by <FIELDS>", "such as 2,2nr"),
        (&["--separator", ""], "", "--separator <TEXT>", "expected a text"),
    ] {
        let rest = if wrong[0] == "--mapper" { &RUN[..7] } else { &RUN };
        let error = Cli::try_parse_from([rest, wrong].concat()).unwrap_err().to_string();
        let first = error.lines().next().unwrap_or_default();
        let start = format!("error: invalid value '{value}' for '{option}': ");
        assert!(first.starts_with(&start) && first.contains(expected), "{error}");
        assert_eq!(corona_words(&[&rest[1..], wrong].concat()).status, ExitCode::from(2));
    }
    let files = ["--file", "a/x", "--file", "b/y#x"];
    let done = corona_words(&[&RUN[1..], &files].concat());
    let expected = "corona: --file a/x and --file b/y both have the name \"x\" in the working \
                    directory of tasks; expected different names, such as b/y#NAME\n";
    done.is(2, "", expected);
}

#[test]
fn a_mistyped_command_is_recognised() {
    let mut cli = Cli::command();
    for (typed, meant) in [("sesions", "sessions"), ("statsu", "status"), ("node", "nodes")] {
        let error = cli.try_get_matches_from_mut(["corona", typed]).unwrap_err().to_string();
        assert!(error.contains(&format!("'{meant}'")), "{error}");
    }
}

#[test]
fn the_version_is_printed_for_people_and_for_programs() {
    let text = corona("version").out;
    assert!(text.starts_with(&format!("corona {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let json = corona("version --output json").json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

/// The help of a command and of all below it.
fn help_pages(command: &mut clap::Command) -> Vec<String> {
    let mut pages = vec![command.render_long_help().to_string(), command.render_help().to_string()];
    pages.extend(command.get_subcommands_mut().flat_map(help_pages));
    pages
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    let mut cli = Cli::command();
    cli.build();
    let pages = help_pages(&mut cli);
    assert!(pages.len() >= 40, "{}", pages.len());
    for line in pages.iter().flat_map(|page| page.lines()) {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
}

#[test]
fn java_usage_goes_to_stderr() {
    let done = corona("admin -help");
    assert_eq!((done.status, done.out.as_str()), (ExitCode::SUCCESS, ""));
    assert!(done.err.starts_with("Usage: java CoronaAdmin\n           [-refreshNodes]\n"));
    let done = corona("admin -sudo");
    assert_eq!(done.status, ExitCode::from(2));
    assert!(done.err.starts_with("sudo: Unknown command\nUsage: java CoronaAdmin\n"));
    corona("client -kill").is(2, "", "Usage: CoronaClient -kill <session id>\n");
}
