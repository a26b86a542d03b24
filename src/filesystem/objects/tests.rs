//! Buckets on a server of the test, which has what no real one has: as many objects as are wanted, and faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Objects of a page, and pages.
const PAGE: usize = 1000;
const PAGES: usize = 100;

/// An answer to the line of a request.
type Answers = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

async fn serve(answers: Answers) -> ObjectStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client, answers.clone()));
        }
    });
    let json = format!(
        r#"{{"version":1,"endpoint":"http://{address}","region":null,"keys":{{"id":"K","secret":"S","token":null}}}}"#
    );
    let access = ObjectAccess::from_json(json.as_bytes()).unwrap();
    let settings = FileSystemSettings {
        object_patience: std::time::Duration::from_millis(300),
        ..FileSystemSettings::default()
    };
    let root = FsPath::parse("s3://bucket/").unwrap();
    ObjectStore::new(root.root().unwrap(), &access, &settings).unwrap()
}

async fn answer(mut client: TcpStream, answers: Answers) {
    let mut head = Vec::new();
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            match client.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let length = text.to_ascii_lowercase();
        let length = length
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        client.read_exact(&mut body).await.unwrap();
        let (status, body) = answers(text.lines().next().unwrap_or_default());
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
        if client.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A page of a list with a number, and the mark of the next one.
fn page(number: usize) -> String {
    let objects: String = (0..PAGE)
        .map(|n| {
            format!(
                "<Contents><Key>dir/{:06}</Key><Size>3</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>\"tag\"</ETag></Contents>",
                number * PAGE + n
            )
        })
        .collect();
    let next = match number + 1 < PAGES {
        true => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>",
            number + 1
        ),
        false => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    format!("<ListBucketResult>{objects}{next}</ListBucketResult>")
}

#[tokio::test]
async fn a_hundred_thousand_objects_are_listed_by_pages() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = serve(Arc::new(move |line| {
        count.fetch_add(1, Ordering::Relaxed);
        let token = line
            .split("continuation-token=")
            .nth(1)
            .map(|rest| rest.split(['&', ' ']).next().unwrap());
        (200, page(token.map_or(0, |token| token.parse().unwrap())))
    }))
    .await;
    let path = FsPath::parse("s3://bucket/dir").unwrap();
    let (mut from, mut objects, mut last) = (None, 0, None);
    loop {
        let page = store.list_page(&path, from).await.unwrap();
        assert!(page.entries.len() <= PAGE);
        for entry in page.entries {
            assert!(last < Some(entry.path.clone()), "each once, in order");
            assert_eq!((entry.bytes, entry.version.as_deref()), (3, Some("\"tag\"")));
            last = Some(entry.path);
            objects += 1;
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((objects, asked.load(Ordering::Relaxed)), (PAGE * PAGES, PAGES));
}

#[tokio::test]
async fn a_list_whose_pages_are_all_one_ends() {
    let store = serve(Arc::new(|line| match line.starts_with("HEAD") {
        true => (404, String::new()),
        false => (200, page(3)),
    }))
    .await;
    let path = FsPath::parse("s3://bucket/dir").unwrap();
    let wrong = (&store as &dyn FileSystem).list(&path, usize::MAX).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::Malformed);
    assert_eq!(store.summary(&path).await.unwrap_err().kind, ErrorKind::Malformed);
}

#[tokio::test]
async fn a_request_to_a_busy_store_is_given_up_in_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = serve(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        (503, "<Error><Code>SlowDown</Code></Error>".to_owned())
    }))
    .await;
    let path = FsPath::parse("s3://bucket/dir/_temporary").unwrap();
    let refused = store.bucket.abort_below(&path, "dir/").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooSlow, "{refused}");
    let first = asked.swap(0, Ordering::Relaxed);
    assert!((2..20).contains(&first), "{first}");
    let refused = store.status(&path).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooSlow, "{refused}");
    assert!(asked.load(Ordering::Relaxed) >= 2);
}

#[tokio::test]
async fn an_object_that_a_server_gives_without_the_condition_is_refused_if_it_is_another_one() {
    let store = serve(Arc::new(|_| (200, "abc".to_owned()))).await;
    let path = FsPath::parse("s3://bucket/a").unwrap();
    let found = FileStatus::of_version(path, 3, "\"old\"".to_owned());
    let mut reader = store.open_found(&found).await.unwrap();
    // Not a part, and of no tag: whatever it is, it is not read as the one that was listed.
    assert!(reader.read(&mut [0; 3]).await.is_err());
}

#[test]
fn directories_are_counted_once_each() {
    let paths = ["", "a", "a/b", "a/b", "a/c", "d/b"];
    let counts: Vec<u64> = paths.windows(2).map(|pair| new_directories(pair[0], pair[1])).collect();
    assert_eq!(counts, [1, 1, 0, 1, 2]);
}

#[test]
fn names_that_are_no_buckets_are_refused() {
    let settings = FileSystemSettings::default();
    for text in ["s3:/x", "s3://ab/x", "s3://user@bucket/x", "s3://a:1000/x"] {
        let path = FsPath::parse(text).unwrap();
        let refused = ObjectStore::new(path.root().unwrap(), &ObjectAccess::default(), &settings);
        assert!(refused.unwrap_err().to_string().contains("names no bucket"), "{text}");
    }
}
