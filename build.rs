//! Passes the source of a release to the program: the commit of the git checkout and its date, or
//! the values of `CORONA_COMMIT` and `CORONA_COMMIT_DATE`, which builds of packages set. Without
//! any of them the version is the package's alone. Nothing here can fail a build.

#![allow(clippy::print_stdout, reason = "that is how a build script speaks")]

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["CORONA_COMMIT", "CORONA_COMMIT_DATE"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let Some((commit, date)) = of_environment().or_else(of_checkout) else {
        println!("cargo::rustc-env=CORONA_VERSION={version}");
        return;
    };
    println!("cargo::rustc-env=CORONA_VERSION={version} ({commit} {date})");
    println!("cargo::rustc-env=CORONA_COMMIT={commit}");
    println!("cargo::rustc-env=CORONA_COMMIT_DATE={date}");
}

fn of_environment() -> Option<(String, String)> {
    let word = |variable| env::var(variable).ok().filter(|word| is_plain(word));
    Some((word("CORONA_COMMIT")?, word("CORONA_COMMIT_DATE")?))
}

/// Debug builds are left out: each commit would build the program again.
fn of_checkout() -> Option<(String, String)> {
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let root = env::var("CARGO_MANIFEST_DIR").ok().filter(|_| is_release)?;
    // Sources inside another project's checkout are not of its commit.
    let top = git(&root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(&root).canonicalize().ok()? {
        return None;
    }
    // Written at each commit and checkout.
    let log = git(&root, &["rev-parse", "--git-path", "logs/HEAD"])?;
    let log = Path::new(&root).join(log);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let commit = git(&root, &["rev-parse", "--short=10", "HEAD"])?;
    let date = git(&root, &["show", "--no-patch", "--format=%cs", "HEAD"])?;
    Some((commit, date)).filter(|(commit, date)| is_plain(commit) && is_plain(date))
}

/// The output of git, on one line; none when git is missing or refuses.
fn git(directory: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty() && !text.contains('\n'))
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}
