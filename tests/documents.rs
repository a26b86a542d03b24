//! The documents lead where they say: each link between them has a target, each path to a document that a source names
//! exists, and each page is found from the README in two clicks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The path below the root, with `/`.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The files of the project that a person reads or writes.
fn files() -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap_or_default();
            let is_configuration = [".ci", ".config", ".gitattributes", ".github"].contains(&file);
            if file.starts_with('.') && !is_configuration
                || file.starts_with("target")
                || file.ends_with(".lock")
            {
                continue;
            }
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All documents in Markdown, by path.
fn documents() -> BTreeMap<String, String> {
    let documents =
        files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    documents.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

/// The targets of a document's links, with their lines: `[text](target)` and `src="target"`, outside of blocks of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = vec![];
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        if is_code || line.starts_with("    ") {
            continue;
        }
        for (opening, closing) in [("](", ')'), ("src=\"", '"')] {
            for (start, _) in line.match_indices(opening) {
                let target =
                    line[start + opening.len()..].split(closing).next().unwrap_or_default();
                if !target.contains("://")
                    && !target.starts_with("mailto:")
                    && !target.contains(' ')
                {
                    found.push((number, target));
                }
            }
        }
    }
    found
}

/// The anchors of a document: its headings as GitHub and most other renderers name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        };
        let anchor: String = heading.trim().chars().filter_map(kept).collect();
        let copies = (0..).map(|n| if n == 0 { anchor.clone() } else { format!("{anchor}-{n}") });
        let free = copies.into_iter().find(|copy| !found.contains(copy)).unwrap();
        found.insert(free);
    }
    found
}

/// The path below the root to which a link in a document leads.
fn target_of(document: &str, link: &str) -> String {
    let mut path = PathBuf::from(document);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{document}: {link} leaves the project"),
            part => path.push(part),
        }
    }
    path.display().to_string()
}

#[test]
fn every_link_of_the_documents_has_a_target() {
    let documents = documents();
    let (mut looked_at, mut wrong) = (0, vec![]);
    for (document, text) in &documents {
        for (line, link) in links(text) {
            looked_at += 1;
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { document.clone() } else { target_of(document, path) };
            if !root().join(&target).exists() {
                wrong.push(format!("{document}:{line}: {link}: there is no {target}"));
            } else if let (Some(anchor), Some(text)) = (anchor, documents.get(&target))
                && !anchors(text).contains(anchor)
            {
                wrong.push(format!("{document}:{line}: {link}: {target} has no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 300, "{looked_at} links");
}

/// The paths below `docs/` in a text: `docs/use/jobs.md`, also behind `../`.
fn paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = vec![];
    for (number, line) in (1..).zip(text.lines()) {
        for (start, _) in line.match_indices("docs/") {
            let before = &line[..start];
            let is_path = before.ends_with("../") && !before.ends_with("/../")
                || before.ends_with("../../")
                || !before.ends_with(|c: char| c.is_alphanumeric() || "/.-_".contains(c));
            let end =
                line[start..].find(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c)));
            let end = end.map_or(line.len(), |end| start + end);
            let is_pattern = line[end..].starts_with('\\')
                || line[end..].starts_with(['*', '{', '$', '"', '#']) && line[..end].ends_with('/');
            if is_path && !is_pattern {
                found.push((number, line[start..end].trim_end_matches(['.', '/'])));
            }
        }
    }
    found
}

#[test]
fn every_path_to_a_document_exists() {
    let (mut looked_at, mut wrong) = (0, vec![]);
    for path in files() {
        let file = name(&path);
        if file == "tests/documents.rs" {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (line, path) in paths(&text) {
            looked_at += 1;
            if !root().join(path).exists() {
                wrong.push(format!("{file}:{line}: there is no {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 100, "{looked_at} paths");
}

/// The pages to which a document links.
fn pages(documents: &BTreeMap<String, String>, document: &str) -> BTreeSet<String> {
    let links = links(&documents[document]).into_iter().filter(|(_, link)| !link.starts_with('#'));
    links.map(|(_, link)| target_of(document, link.split('#').next().unwrap_or_default())).collect()
}

/// From the README to the list of pages, and from there to the page.
#[test]
fn every_page_is_found_in_two_clicks() {
    let documents = documents();
    assert!(pages(&documents, "README.md").contains("docs/README.md"));
    let found = pages(&documents, "docs/README.md");
    let is_chapter =
        |page: &str| page.starts_with("docs/reference/spec/") && !page.ends_with("spec/README.md");
    let is_page = |page: &&String| {
        page.starts_with("docs/") && *page != "docs/README.md" && !is_chapter(page)
    };
    let missing: Vec<&String> =
        documents.keys().filter(is_page).filter(|page| !found.contains(*page)).collect();
    assert!(missing.is_empty(), "docs/README.md does not link to {missing:?}");
    for folder in fs::read_dir(root().join("docs")).unwrap() {
        let path = folder.unwrap().path();
        let is_flat =
            path.extension().is_some_and(|end| end == "md") && !path.ends_with("README.md");
        assert!(
            !is_flat,
            "{}: a page belongs into use, operate, reference or develop",
            path.display()
        );
    }
}

/// The four ways in stand at the top of the list of pages, before any other link.
#[test]
fn newcomers_find_their_way_first() {
    let documents = documents();
    let links = links(&documents["docs/README.md"]);
    let first: Vec<&str> = links.iter().map(|(_, link)| *link).take(7).collect();
    for page in [
        "use/mini-cluster.md",
        "use/jobs.md",
        "operate/several-machines.md",
        "operate/migration.md",
        "use/session-driver.md",
    ] {
        assert!(first.contains(&page), "{page} is not among {first:?}");
    }
}

#[test]
fn links_paths_and_anchors_are_found_in_text() {
    let text = "See [a](b.md#c) and [d](#e).\n```\n[no](no.md)\n```\n<img src=\"f.png\"> [g](https://h/docs/i)";
    assert_eq!(links(text), [(1, "b.md#c"), (1, "#e"), (5, "f.png")]);
    assert_eq!(target_of("docs/use/jobs.md", "../operate/web.md"), "docs/operate/web.md");
    let text = "//! `docs/use/jobs.md`.\ninclude_str!(\"../../docs/a.md\"), share/docs/x, docs/prometheus/*.yml, docs/{a,b}";
    assert_eq!(paths(text), [(1, "docs/use/jobs.md"), (2, "docs/a.md")]);
    let text = "# A `b` (c)\n## What is it?\n## What is it?\n```\n# no\n```";
    let found = anchors(text);
    assert_eq!(found.iter().collect::<Vec<_>>(), ["a-b-c", "what-is-it", "what-is-it-1"]);
}
