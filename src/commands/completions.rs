//! `corona completions`: scripts with which a shell completes command lines.
//!
//! Commands, options and their values come from the definition of the command line. Two things that
//! it cannot know are added: the keys of the configuration behind `-D`, and the handles of running
//! sessions and the names of nodes, for which the script runs `corona sessions list` and
//! `corona nodes list`.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell as Generator, generate};

use corona::config::keys;

use super::Cli;
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  bash, for all users:
    corona completions bash > /etc/bash_completion.d/corona
  zsh, in a directory of $fpath:
    corona completions zsh > /usr/local/share/zsh/site-functions/_corona
  fish:
    corona completions fish > ~/.config/fish/completions/corona.fish";

/// Print a completion script for a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let generator = match arguments.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    generate(generator, &mut Cli::command(), "corona", &mut script);
    let script = String::from_utf8_lossy(&script);
    console.print(&match arguments.shell {
        Shell::Bash => with_names_for_bash(&script),
        Shell::Zsh => with_names_for_zsh(&script),
        Shell::Fish => with_names_for_fish(&script),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The keys for `-D`, separated by blanks. Keys of single jobs are set
/// elsewhere.
fn key_names() -> String {
    let keys = keys::ALL.iter().filter(|key| key.usage != keys::Use::Job);
    keys.map(|key| key.name).collect::<Vec<_>>().join(" ")
}

/// A command that prints the handles of running sessions, or nothing if the
/// cluster manager does not reply.
const HANDLES: &str = "corona sessions list --timeout 2 2>/dev/null | awk 'NR > 1 { print $1 }'";
/// The same for names of nodes.
const NODES: &str = "corona nodes list --timeout 2 2>/dev/null | awk 'NR > 1 { print $1 }'";

/// Bash has one completion function for everything; it is used where there is
/// nothing better.
fn with_names_for_bash(script: &str) -> String {
    format!(
        r#"{script}
_corona_with_names() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [[ $prev == -D ]]; then
        compopt -o nospace 2>/dev/null
        COMPREPLY=($(compgen -S = -W "{keys}" -- "$cur"))
        return 0
    fi
    if [[ $COMP_CWORD -gt 2 && $cur != -* && $prev != -* ]]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
            "sessions info"|"sessions kill"|"sessions explain")
                COMPREPLY=($(compgen -W "$({HANDLES})" -- "$cur"))
                return 0
                ;;
            "nodes info"|"nodes drain"|"nodes clear-blacklist")
                COMPREPLY=($(compgen -W "$({NODES})" -- "$cur"))
                return 0
                ;;
        esac
    fi
    _corona "$@"
}}

complete -F _corona_with_names -o bashdefault -o default corona
"#,
        keys = key_names(),
    )
}

/// Zsh names a function for each value; where it would offer files, names are offered instead.
fn with_names_for_zsh(script: &str) -> String {
    let script = script
        .replace(":KEY=VALUE:_default", ":KEY=VALUE:_corona_keys")
        .replace("s handle, as shown in the list:_default", "s handle:_corona_handles")
        .replace("Handles, as shown in the list:_default", "Handles:_corona_handles")
        .replace("s name, as shown in the list:_default", "s name:_corona_nodes");
    let functions = format!(
        r#"_corona_keys() {{
    local -a keys
    keys=({keys})
    compadd -q -S = -- $keys
}}

_corona_handles() {{
    local -a handles
    handles=(${{(f)"$({HANDLES})"}})
    compadd -- $handles
}}

_corona_nodes() {{
    local -a nodes
    nodes=(${{(f)"$({NODES})"}})
    compadd -- $nodes
}}

"#,
        keys = key_names(),
    );
    // The script ends by calling its function or by registering it.
    match script.rfind("if [ \"$funcstack[1]\" = \"_corona\" ]") {
        Some(end) => {
            let (definitions, end) = script.split_at(end);
            format!("{definitions}{functions}{end}")
        }
        None => script + &functions,
    }
}

/// Fish has a line for each option; further lines extend the completions.
fn with_names_for_fish(script: &str) -> String {
    let is_key = |line: &str| line.contains(" -s D ") && line.ends_with(" -r");
    let lines = script.lines().map(|line| match is_key(line) {
        true => format!("{line} -f -a \"(__corona_keys)\"\n"),
        false => format!("{line}\n"),
    });
    let seen = |command| {
        format!("__fish_corona_using_subcommand {command}; and __fish_seen_subcommand_from")
    };
    let (sessions, nodes) = (seen("sessions"), seen("nodes"));
    format!(
        r#"function __corona_keys
    string split " " "{keys}" | string replace -r '$' '='
end

function __corona_handles
    {HANDLES}
end

function __corona_nodes
    {NODES}
end

{lines}complete -c corona -n "{sessions} info kill explain" -f -a "(__corona_handles)"
complete -c corona -n "{nodes} info drain clear-blacklist" -f -a "(__corona_nodes)"
"#,
        keys = key_names(),
        lines = lines.collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(generator: Generator) -> String {
        let mut script = Vec::new();
        generate(generator, &mut Cli::command(), "corona", &mut script);
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn keys_and_handles_are_offered() {
        let bash = with_names_for_bash(&script(Generator::Bash));
        let zsh = with_names_for_zsh(&script(Generator::Zsh));
        let fish = with_names_for_fish(&script(Generator::Fish));
        for script in [&bash, &zsh, &fish] {
            assert!(script.contains(" cm.node.expiryinterval "), "{script}");
            assert!(script.contains(HANDLES) && script.contains(NODES), "{script}");
            for word in ["cluster-manager", "restart-nodes", "explain", "check-config"] {
                assert!(script.contains(word), "{word} is not in {script}");
            }
        }
        // Each replacement had something to replace.
        assert!(!zsh.contains(":KEY=VALUE:_default"));
        assert!(zsh.matches(":_corona_keys'").count() > 5, "{zsh}");
        assert_eq!(zsh.matches(":_corona_handles'").count(), 3, "{zsh}");
        assert_eq!(zsh.matches(":_corona_nodes'").count(), 2, "{zsh}");
        assert!(zsh.find("_corona_keys() {") < zsh.find("if [ \"$funcstack[1]\""));
        assert!(fish.matches("(__corona_keys)").count() > 5, "{fish}");
    }
}
