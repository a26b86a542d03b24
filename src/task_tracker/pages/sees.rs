//! Whether this node sees files as a client does, which leaves a file with a token where its job will write.

use std::fs;
use std::path::Path;

use corona_api::node::Unseen;
use corona_filesystem::sees_token;

/// Files that one question names.
const MOST_FILES: usize = 32;

/// Looks for what a query names: `marker` and `token`, and any number of `file`, each followed by its `bytes`.
/// The error is a sentence.
pub(super) fn look(query: &str) -> Result<Unseen, &'static str> {
    let (mut marker, mut token) = (None, String::new());
    let mut files: Vec<(String, u64)> = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "marker" => marker = Some(value.into_owned()),
            "token" => token = value.into_owned(),
            "file" => files.push((value.into_owned(), 0)),
            "bytes" => {
                let last = files.last_mut().ok_or("bytes: expected a file before it")?;
                last.1 = value.parse().map_err(|_| "bytes: expected a whole number")?;
            }
            _ => {}
        }
    }
    let is_path = |path: &String| path.starts_with('/') && !path.contains('\0');
    if files.len() > MOST_FILES || !files.iter().map(|(path, _)| path).chain(&marker).all(is_path) {
        return Err("expected at most 32 files, with absolute paths");
    }
    let is_marked = |path: &String| sees_token(Path::new(path), &token);
    let is_there = |(path, bytes): &(String, u64)| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() >= *bytes)
    };
    Ok(Unseen {
        marker: marker.filter(|path| !is_marked(path)),
        file: files.into_iter().find(|file| !is_there(file)).map(|(path, _)| path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_what_it_does_not_see() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        fs::write(path("mark"), "token").unwrap();
        fs::write(path("in put"), "12345").unwrap();
        let ask = |marker: &str, token: &str, file: &str, bytes: u64| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("marker", &path(marker)).append_pair("token", token);
            query.append_pair("file", &path(file)).append_pair("bytes", &bytes.to_string());
            look(&query.finish()).unwrap()
        };
        assert_eq!(ask("mark", "token", "in put", 5), Unseen::default());
        assert_eq!(ask("mark", "other", "in put", 5).marker, Some(path("mark")));
        assert_eq!(ask("none", "token", "in put", 5).marker, Some(path("none")));
        // It may have grown, but not shrunk.
        assert_eq!(ask("mark", "token", "in put", 4), Unseen::default());
        assert_eq!(ask("mark", "token", "in put", 6).file, Some(path("in put")));
        assert_eq!(ask("mark", "token", ".", 0).file, Some(path(".")));
        for wrong in ["file=relative", "marker=x", "bytes=1", "file=/a&bytes=many"] {
            assert!(look(wrong).is_err(), "{wrong}");
        }
        assert!(look(&"file=/a&".repeat(33)).is_err());
        assert_eq!(look("").unwrap(), Unseen::default());
    }
}
