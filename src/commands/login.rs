//! `corona login`: gives a user's commands the cluster that they are for.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use corona::access::Role;
use corona::process::machine_name_or_localhost;

use super::closed::required_keys;
use super::cluster::block_on;
use super::head::conf_dir_of_own_head;
use super::invitation::Invitation;
use super::profile::{Profile, check_name, removed};
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  With the line that 'corona head' prints:
    corona login corona1:submit:alpha:8889:...
  The same from stdin, so that neither the history of the shell nor a list of
  processes shows the line: enter the command, then paste the line
    corona login -
  A second cluster, under a name of its own, and back to the first one:
    corona login corona1:submit:beta:8889:... --name tests
    corona login --name alpha
  Which clusters there are, and which one is in use:
    corona login

  Forget a cluster:
    corona logout tests

Afterwards 'corona job run', 'jobs', 'nodes', 'pools', 'status' and so on are
for this cluster, unless --conf-dir, $HADOOP_CONF_DIR or an address names
another one. The profiles are in $XDG_CONFIG_HOME/corona, by default
~/.config/corona.
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// Use a cluster: commands find it without further options
///
/// Without a string and --name it lists the clusters.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The string that 'corona head' prints for users; @FILE: the first line of
    /// a file, -: of stdin
    #[arg(value_name = "STRING")]
    string: Option<String>,

    /// Name of the cluster [default: the name of its head]; without a string:
    /// which cluster to use from now on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Logs in, changes the cluster, or lists all.
///
/// # Errors
/// The string is wrong, the head does not answer, or the profile cannot be written.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let profile = Profile::of_user(|name| std::env::var_os(name));
    let profile = profile.context("there is neither $XDG_CONFIG_HOME nor $HOME")?;
    match (&arguments.string, &arguments.name) {
        (Some(string), name) => login(string, name.as_deref(), &profile, console)?,
        (None, Some(name)) => {
            ensure!(
                profile.names()?.contains(name),
                "there is no cluster {name}; 'corona login' lists them"
            );
            profile.choose(name)?;
            console.print(&format!("using {name}: {}\n", profile.head(name)))?;
        }
        (None, None) => list(&profile, console)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn login(
    string: &str,
    name: Option<&str>,
    profile: &Profile,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    Invitation::hide(string, Role::Submit, profile.root()?)?;
    let invitation = Invitation::read(string, Role::Submit);
    Invitation::forget_given(profile.root()?);
    let invitation = invitation?;
    let name = name.unwrap_or(&invitation.access.host);
    check_name(name).map_err(|wrong| anyhow!("--name {name:.100?}: {wrong}"))?;
    let (known, pages) = (profile.names()?.iter().any(|it| it == name), invitation.pages());
    let before = profile.head(name);
    if known && before != pages {
        bail!("{name} is the cluster at {before} already: give this one another name with --name");
    }
    let fresh = profile.new_identity()?;
    let facts = block_on(async {
        // Before the string is used.
        invitation.reach_job_tracker().await?;
        invitation.enrol(&fresh, &machine_name_or_localhost()).await?;
        invitation.learn().await
    });
    if facts.is_err() {
        // An error of its own would hide that one.
        let _ = removed(&fresh);
    }
    let facts = facts?;
    let identity = profile.keep_identity(name)?;
    let mut site = facts.site(&invitation.addresses());
    site.set(required_keys(&identity));
    site.set([(super::profile::HEAD_KEY, invitation.pages())]);
    let directory: PathBuf = profile.keep(name, &site)?;
    profile.choose(name)?;
    console.print(&format!(
        "using {name}: {}\nprofile {}\n",
        invitation.pages(),
        directory.display()
    ))?;
    Ok(())
}

/// Forget a cluster of 'corona login'
///
/// Removes the profile, with the certificate, and names what it removes. The
/// access itself ends with 'corona access revoke'.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  corona logout
  corona logout tests

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.")]
pub(super) struct LogoutArguments {
    /// Which cluster [default: the one in use]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Forgets a cluster.
///
/// # Errors
/// There is none, or its profile cannot be removed.
pub(super) fn logout(
    arguments: LogoutArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let profile = Profile::of_user(|name| std::env::var_os(name));
    let profile = profile.context("there is neither $XDG_CONFIG_HOME nor $HOME")?;
    let name = arguments.name.or_else(|| profile.current());
    let name = name.context("no cluster is in use; 'corona login' lists all")?;
    let is_known = profile.names()?.contains(&name) || profile.lost().as_ref() == Some(&name);
    ensure!(is_known, "there is no cluster {name}; 'corona login' lists them");
    let (access, pages) = (profile.access(&name), profile.head(&name));
    let directory = profile.forget(&name)?;
    let access = access.map_or_else(String::new, |id| {
        format!("access {id} stays valid until an administrator revokes it\n")
    });
    console.print(&format!("forgot {name}: {pages}\nremoved {}\n{access}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn list(profile: &Profile, console: &mut Console<'_>) -> anyhow::Result<()> {
    let (names, current) = (profile.names()?, profile.current());
    if names.is_empty()
        && let Some(conf_dir) = conf_dir_of_own_head()
    {
        let text = "no login is needed: this user has started the head on this machine, and commands find it";
        return Ok(console.print(&format!("{text} ({})\n", conf_dir.display()))?);
    }
    if names.is_empty() {
        bail!("no cluster is known: name the string that 'corona head' prints for users");
    }
    for name in names {
        let mark = if current.as_ref() == Some(&name) { "*" } else { " " };
        console.print(&format!("{mark} {name}  {}\n", profile.head(&name)))?;
    }
    Ok(())
}
