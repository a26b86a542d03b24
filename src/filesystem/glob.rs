//! Patterns of file names: `*`, `?`, `[a-z]`, `[^a-z]`, `{a,b}`, as Hadoop's `globStatus` knows them.

use crate::path::FsPath;
use crate::{ErrorKind, FileStatus, FileSystem, FsError, Listing, OddEntry};

/// The most paths that braces may make of one pattern.
const MAX_ALTERNATIVES: usize = 1000;
/// The most files that a pattern may name.
const MAX_MATCHES: usize = 1_000_000;

/// The pattern of one part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(char),
    Any,
    One,
    /// Whether one of the ranges matches, or none of them.
    Set(bool, Vec<(char, char)>),
}

impl Glob {
    /// Whether a text is more than a name.
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?', '[', '{'])
    }

    /// Reads the pattern of one part of a path, without braces.
    ///
    /// # Errors
    /// What is wrong: a set that is not closed, or a range without an end.
    pub fn parse(text: &str) -> Result<Glob, &'static str> {
        let mut parts = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            parts.push(match letter {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => {
                    let is_negated = letters.next_if_eq(&'^').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        let unclosed = "Expecting set closure character or end of range, or }";
                        let from = letters.next().ok_or(unclosed)?;
                        if from == ']' {
                            break;
                        }
                        let mut to = from;
                        if letters.next_if_eq(&'-').is_some() {
                            to = letters.next().ok_or(unclosed)?;
                            if to == ']' {
                                return Err("Incomplete character set range");
                            }
                        }
                        ranges.push((from, to));
                    }
                    if ranges.is_empty() {
                        return Err("Unexpected end of set");
                    }
                    Part::Set(!is_negated, ranges)
                }
                literal => Part::Literal(literal),
            });
        }
        Ok(Glob { parts })
    }

    /// Whether the whole name fits.
    pub fn matches(&self, name: &str) -> bool {
        // The usual walk with one place to return to: no pattern takes more than the product of both
        // lengths.
        let name: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut back: Option<(usize, usize)> = None;
        loop {
            let fits = match (self.parts.get(part), name.get(at)) {
                (None, None) => return true,
                (Some(Part::Any), _) => {
                    back = Some((part + 1, at));
                    part += 1;
                    continue;
                }
                (Some(Part::One), Some(_)) => true,
                (Some(Part::Literal(due)), Some(found)) => due == found,
                (Some(Part::Set(is_in, ranges)), Some(found)) => {
                    ranges.iter().any(|(from, to)| (from..=to).contains(&found)) == *is_in
                }
                _ => false,
            };
            if fits {
                (part, at) = (part + 1, at + 1);
                continue;
            }
            match &mut back {
                Some((after, from)) if *from < name.len() => {
                    *from += 1;
                    (part, at) = (*after, *from);
                }
                _ => return false,
            }
        }
    }
}

/// The texts that a pattern with braces stands for. Braces may hold slashes and braces.
fn alternatives(text: &str) -> Result<Vec<String>, &'static str> {
    const UNCLOSED: &str = "Expecting set closure character or end of range, or }";
    let Some(open) = text.find('{') else { return Ok(vec![text.to_owned()]) };
    let (before, inner) = text.split_at(open);
    let mut depth = 0;
    let (mut choices, mut start) = (Vec::new(), open + 1);
    for (at, letter) in inner.char_indices() {
        let at = open + at;
        match letter {
            '{' => depth += 1,
            ',' if depth == 1 => {
                choices.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    choices.push(text.get(start..at).unwrap_or_default());
                    let after = text.get(at + 1..).unwrap_or_default();
                    let mut all = Vec::new();
                    for choice in choices {
                        all.extend(alternatives(&format!("{before}{choice}{after}"))?);
                        if all.len() > MAX_ALTERNATIVES {
                            return Err("its braces stand for too many names");
                        }
                    }
                    return Ok(all);
                }
            }
            _ => {}
        }
    }
    Err(UNCLOSED)
}

/// The files that a path with patterns names, sorted. Without a pattern: the one file, or none if it
/// does not exist. Directories that cannot be read are an error.
pub async fn expand(files: &dyn FileSystem, path: &FsPath) -> Result<Vec<FileStatus>, FsError> {
    let illegal = |wrong: &str| {
        let message = format!("Illegal file pattern: {wrong}");
        FsError::new(ErrorKind::Invalid, "glob", path, message)
    };
    if !Glob::is_pattern(path.path()) {
        return Ok(files.find(path).await?.into_iter().collect());
    }
    let mut found: Vec<FileStatus> = Vec::new();
    for text in alternatives(path.path()).map_err(illegal)? {
        let mut roots = vec![FsPath::within(path.root().unwrap_or(files.root()), "/")?];
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
        let mut statuses = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let mut next = Vec::new();
            statuses.clear();
            for root in roots {
                if !Glob::is_pattern(part) {
                    let entry = root.join(part);
                    // Only the last part must be looked at: a listing of what is not there is empty.
                    match is_last {
                        true => statuses.extend(files.find(&entry).await?),
                        false => next.push(entry),
                    }
                    continue;
                }
                let glob = Glob::parse(part).map_err(illegal)?;
                for entry in entries(files, &root, &glob).await? {
                    if glob.matches(entry.path.name()) {
                        match is_last {
                            true => statuses.push(entry),
                            false if entry.is_directory => next.push(entry.path),
                            false => {}
                        }
                    }
                }
                if next.len() + statuses.len() > MAX_MATCHES {
                    return Err(illegal("it names too many files"));
                }
            }
            roots = next;
        }
        found.append(&mut statuses);
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.dedup_by(|one, other| one.path == other.path);
    Ok(found)
}

/// What lies in a directory; nothing for a file and for what does not exist. Errors: also that an entry
/// that cannot be used fits the pattern, unless its name is that of a hidden file.
async fn entries(
    files: &dyn FileSystem,
    path: &FsPath,
    glob: &Glob,
) -> Result<Vec<FileStatus>, FsError> {
    match files.list_all(path, MAX_MATCHES).await {
        Ok(Listing { entries, odd }) => {
            let fits =
                |odd: &&OddEntry| !odd.name.starts_with(['.', '_']) && glob.matches(&odd.name);
            match odd.iter().find(fits) {
                Some(odd) => Err(odd.error("glob", path)),
                None => Ok(entries.into_iter().filter(|entry| entry.path != *path).collect()),
            }
        }
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_patterns() {
        let table = [
            ("*", "abc", true),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "aXbYbZc", true),
            ("?b", "ab", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[^a-c]x", "dx", true),
            ("[^a-c]x", "ax", false),
            ("[abc-e]", "d", true),
            ("part-0000[0-3]", "part-00002", true),
            ("a.b", "axb", false),
            ("é?", "éß", true),
        ];
        for (pattern, name, expected) in table {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern} {name}");
        }
        for wrong in ["[", "[a", "[]", "[a-]", "[a-", "[^]"] {
            assert!(Glob::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn braces_stand_for_many_texts() {
        let table = [
            ("/a", vec!["/a"]),
            ("/{a,b}/c", vec!["/a/c", "/b/c"]),
            ("/{a/x,b}", vec!["/a/x", "/b"]),
            ("/{a,{b,c}d}", vec!["/a", "/bd", "/cd"]),
            ("/{,x}", vec!["/", "/x"]),
        ];
        for (text, expected) in table {
            assert_eq!(alternatives(text).unwrap(), expected, "{text}");
        }
        assert!(alternatives("/{a").is_err());
        assert!(alternatives(&"{a,b}".repeat(20)).is_err());
    }

    proptest! {
        #[test]
        fn no_pattern_panics_or_takes_long(pattern in "[a*?\\[\\]^{},-]{0,40}", name in "a{0,60}") {
            if let Ok(glob) = Glob::parse(&pattern) {
                glob.matches(&name);
            }
            let _ = alternatives(&pattern);
        }
    }
}
