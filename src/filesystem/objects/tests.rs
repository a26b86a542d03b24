//! Buckets on a server of the test, which has what no real one has: as many objects as are wanted, and faults.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::given_up::tests::alone;

/// Objects of a page, and pages.
const PAGE: usize = 1000;
const PAGES: usize = 100;

/// An answer to the head of a request and its body.
type Answers = Arc<dyn Fn(&str, &str) -> (u16, String) + Send + Sync>;

/// The same to the line of a request and its body.
type LineAnswers = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

/// A server that answers by the line of a request and its body.
async fn serve(answers: LineAnswers) -> ObjectStore {
    let of_line = move |head: &str, body: &str| {
        answers(&format!("{}\n{body}", head.lines().next().unwrap_or_default()))
    };
    serve_whole(Arc::new(of_line)).await
}

async fn serve_whole(answers: Answers) -> ObjectStore {
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
        let (status, body) = answers(&text, &String::from_utf8_lossy(&body));
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nETag: \"tag\"\r\n\
             Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n{body}"
        );
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
async fn a_request_to_a_busy_store_is_given_up_in_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = serve(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        (503, "<Error><Code>SlowDown</Code></Error>".to_owned())
    }))
    .await;
    let path = FsPath::parse("s3://bucket/dir/_temporary").unwrap();
    let refused = store.bucket.abort_all(&path, None).await.unwrap_err();
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

/// A server whose requests are noted.
async fn noting(
    answers: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
) -> (ObjectStore, Noted) {
    let noted = Noted::default();
    let notes = noted.clone();
    let store = serve(Arc::new(move |request| {
        notes.lock().unwrap().push(request.to_owned());
        answers(request)
    }));
    (store.await, noted)
}

/// A server by the head of a request and its body, whose heads are noted.
async fn noting_whole(
    answers: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static,
) -> (ObjectStore, Noted) {
    let noted = Noted::default();
    let notes = noted.clone();
    let store = serve_whole(Arc::new(move |head, body| {
        notes.lock().unwrap().push(head.to_ascii_lowercase());
        answers(head, body)
    }));
    (store.await, noted)
}

type Noted = Arc<Mutex<Vec<String>>>;

fn is_asked(noted: &Noted, part: &str) -> bool {
    noted.lock().unwrap().iter().any(|request| request.contains(part))
}

fn at(text: &str) -> FsPath {
    FsPath::parse(text).unwrap()
}

/// A list of these names, of objects of so many bytes.
fn listed(names: &[&str], bytes: u64) -> (u16, String) {
    let objects: String = names
        .iter()
        .map(|name| {
            format!(
                "<Contents><Key>{name}</Key><Size>{bytes}</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        })
        .collect();
    (200, format!("<ListBucketResult>{objects}</ListBucketResult>"))
}

/// The answer to HEAD has no body, so that of the list says why.
#[tokio::test]
async fn a_refused_status_is_explained() {
    let (store, _) = noting(|request| {
        let body = "<Error><Code>InvalidAccessKeyId</Code></Error>";
        (403, if request.starts_with("HEAD") { String::new() } else { body.to_owned() })
    })
    .await;
    let refused = store.status(&at("s3://bucket/a")).await.unwrap_err().to_string();
    assert!(refused.contains("does not know the access key"), "{refused}");
}

#[tokio::test]
async fn lists_whose_pages_go_round_end_with_an_error() {
    let (store, _) = noting(|request| {
        if request.starts_with("HEAD") {
            return (404, String::new());
        }
        if request.contains("uploads=") {
            let next = if request.contains("key-marker=dir%2Fb") { "dir/a" } else { "dir/b" };
            let xml = format!(
                "<R><IsTruncated>true</IsTruncated><NextKeyMarker>{next}</NextKeyMarker>\
                 <NextUploadIdMarker>1</NextUploadIdMarker></R>"
            );
            return (200, xml);
        }
        if request.starts_with("POST") {
            return (
                200,
                "<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>".to_owned(),
            );
        }
        // The tokens 1, 2, 1, 2 and so on.
        let (number, token) = if request.contains("token=1") { (1, 2) } else { (0, 1) };
        let this = page(number);
        let (objects, _) = this.split_once("<IsTruncated>").unwrap();
        let next = format!("<NextContinuationToken>{token}</NextContinuationToken>");
        (200, format!("{objects}<IsTruncated>true</IsTruncated>{next}</ListBucketResult>"))
    })
    .await;
    let path = at("s3://bucket/dir");
    let wrong = [
        (&store as &dyn FileSystem).list(&path, usize::MAX).await.unwrap_err(),
        store.summary(&path).await.unwrap_err(),
        store.delete_below(&path).await.unwrap_err(),
        store.complete(&path).await.unwrap_err(),
        store.bucket.abort_all(&path, None).await.unwrap_err(),
    ];
    for wrong in wrong {
        assert_eq!(wrong.kind, ErrorKind::Malformed, "{wrong}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_refused() {
    let (store, noted) = noting(|request| match request.starts_with("HEAD") {
        true => (404, String::new()),
        false => (200, "x".repeat(usize::try_from(http::MAX_ANSWER_BYTES).unwrap() + 1)),
    })
    .await;
    let path = at("s3://bucket/dir");
    for wrong in [
        store.list_page(&path, None).await.unwrap_err(),
        store.bucket.begin_upload(&path).await.unwrap_err(),
        store.bucket.abort_all(&path, None).await.unwrap_err(),
    ] {
        assert_eq!(wrong.kind, ErrorKind::Malformed, "{wrong}");
        assert!(wrong.to_string().contains(http::TOO_LARGE), "{wrong}");
    }
    assert_eq!(noted.lock().unwrap().len(), 3, "none is asked for again");
}

#[tokio::test]
async fn a_list_with_names_of_elsewhere_is_refused() {
    let (store, noted) = noting(|request| match request.starts_with("GET") {
        true => listed(&["victim/part-0"], 3),
        false => (404, String::new()),
    })
    .await;
    let wrong = store.delete(&at("s3://bucket/dir"), true).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::Malformed);
    assert!(wrong.to_string().contains("victim/part-0"), "{wrong}");
    assert!(!is_asked(&noted, "DELETE") && !is_asked(&noted, "POST"));
}

#[tokio::test]
async fn backslashes_and_dots_in_names_lead_nowhere() {
    const NAME: &str = r"dir/x\..\..\victim/_temporary/_committed/part-0";
    let (store, noted) = noting(|request| match request {
        list if list.contains("delimiter=") => listed(&["dir/a", r"dir/x\..\..\victim"], 3),
        list if list.contains("list-type=2") => listed(&["dir/a", NAME], 3),
        note if note.starts_with("GET") => {
            (200, r#"{"version":1,"upload":"id","parts":["tag"]}"#.to_owned())
        }
        many if many.starts_with("POST") => {
            (200, "<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>".to_owned())
        }
        abort if abort.contains("uploadId") => {
            (404, "<Error><Code>NoSuchUpload</Code></Error>".to_owned())
        }
        delete if delete.starts_with("DELETE") => (204, String::new()),
        // The job goes on.
        begun if begun.contains("_temporary/_begun ") => (200, String::new()),
        _ => (404, String::new()),
    })
    .await;
    let path = at("s3://bucket/dir");
    let listing = store.list_page(&path, None).await.unwrap();
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.odd.first().unwrap().name, r"x\..\..\victim");
    let wrong = (&store as &dyn FileSystem).list(&path, 10).await.unwrap_err().to_string();
    assert!(wrong.contains("victim"), "{wrong}");

    assert!(store.delete(&path, true).await.unwrap());
    assert!(is_asked(&noted, r"<Key>dir/x\..\..\victim/part-0</Key>"), "{noted:?}");
    assert!(is_asked(&noted, NAME), "{noted:?}");
    for elsewhere in ["/bucket/victim", "<Key>victim"] {
        assert!(!is_asked(&noted, elsewhere), "{noted:?}");
    }
}

/// A server with one note of a committed task, whose upload is there no more, and perhaps the mark of a job that goes on.
async fn with_note(note: &'static str, has_begun: bool) -> (ObjectStore, Noted) {
    noting(move |request| match request {
        uploads if uploads.contains("?uploads=") => {
            (200, "<R><IsTruncated>false</IsTruncated></R>".to_owned())
        }
        list if list.contains("list-type=2") => listed(&["out/_temporary/_committed/part-0"], 3),
        head if head.starts_with("HEAD /bucket/out/_temporary/_begun ") => {
            (if has_begun { 200 } else { 404 }, String::new())
        }
        head if head.starts_with("HEAD") => (404, String::new()),
        get if get.starts_with("GET") => (200, note.to_owned()),
        abort if abort.contains("uploadId=") => {
            (404, "<Error><Code>NoSuchUpload</Code></Error>".to_owned())
        }
        several if several.starts_with("POST") => {
            let deleted = "<Deleted><Key>out/_temporary/_committed/part-0</Key></Deleted>";
            (200, format!("<DeleteResult>{deleted}</DeleteResult>"))
        }
        _ => (204, String::new()),
    })
    .await
}

#[tokio::test]
async fn a_late_note_does_not_take_the_output_of_a_job_that_has_ended() {
    let note = r#"{"version":1,"upload":"late","parts":["\"tag\""]}"#;
    for has_begun in [false, true] {
        let (store, noted) = with_note(note, has_begun).await;
        assert!(store.delete(&at("s3://bucket/out/_temporary"), true).await.unwrap());
        assert!(is_asked(&noted, "out/_temporary/_committed/part-0</Key>"), "{noted:?}");
        let takes_output = is_asked(&noted, "<Key>out/part-0</Key>");
        assert_eq!(takes_output, has_begun, "{noted:?}");
        // The mark of the job goes after what it is looked for.
        let place = |part: &str| {
            let noted = noted.lock().unwrap();
            noted.iter().position(|request| request.contains(part))
        };
        let ended = place("<Key>out/_temporary/_begun</Key>");
        assert!(ended > place("<Key>out/_temporary/_committed/part-0</Key>"), "{noted:?}");
        assert!(ended > place("<Key>out/part-0</Key>"), "{noted:?}");
    }
}

#[tokio::test]
async fn objects_that_are_no_notes_are_deleted_like_others() {
    let path = at("s3://bucket/out/_temporary");
    let (store, noted) = with_note("a file of somebody", true).await;
    assert!(store.delete(&path, true).await.unwrap());
    assert!(is_asked(&noted, "out/_temporary/_committed/part-0</Key>"), "{noted:?}");
    assert!(!is_asked(&noted, "<Key>out/part-0</Key>"), "{noted:?}");
    // A note that only another version understands has an upload, which would be left.
    let (store, noted) = with_note(r#"{"version":2,"upload":"x","parts":null}"#, true).await;
    let refused = store.delete(&path, true).await.unwrap_err().to_string();
    assert!(refused.contains("unknown version 2"), "{refused}");
    assert!(!is_asked(&noted, "POST") && !is_asked(&noted, "DELETE"), "{noted:?}");
}

#[tokio::test]
async fn a_directory_of_only_its_own_object_is_empty() {
    let (store, noted) = noting(|request| match request {
        list if list.contains("prefix=full%2F") => listed(&["full/", "full/a"], 0),
        list if list.starts_with("GET") => listed(&["dir/"], 0),
        delete if delete.starts_with("DELETE") => (204, String::new()),
        _ => (404, String::new()),
    })
    .await;
    let wrong = store.delete(&at("s3://bucket/full"), false).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::NotEmpty);
    assert!(!is_asked(&noted, "DELETE"));
    assert!(store.delete(&at("s3://bucket/dir"), false).await.unwrap());
    assert!(is_asked(&noted, "DELETE /bucket/dir/ "), "{noted:?}");
}

#[tokio::test]
async fn an_object_is_renamed_neither_onto_itself_nor_onto_another_one() {
    let (store, noted) = noting(|request| match request {
        head if head.starts_with("HEAD /bucket/a/x ") => (200, String::new()),
        head if head.starts_with("HEAD /bucket/b/x ") => (200, String::new()),
        list if list.contains("prefix=a%2F&") || list.contains("prefix=a%2F ") => {
            listed(&["a/x"], 0)
        }
        list if list.contains("prefix=b%2F&") || list.contains("prefix=b%2F ") => {
            listed(&["b/x"], 0)
        }
        list if list.starts_with("GET") => listed(&[], 0),
        _ => (404, String::new()),
    })
    .await;
    for (to, kind) in [
        ("s3://bucket/a/x", ErrorKind::Invalid),
        ("s3://bucket/a", ErrorKind::Invalid),
        ("s3://bucket/b", ErrorKind::AlreadyExists),
        ("s3://bucket/b/x", ErrorKind::AlreadyExists),
    ] {
        let refused = store.rename(&at("s3://bucket/a/x"), &at(to)).await.unwrap_err();
        assert_eq!(refused.kind, kind, "{to}: {refused}");
    }
    assert!(!is_asked(&noted, "PUT") && !is_asked(&noted, "DELETE"));
}

/// A server that keeps objects by their names, refuses to overwrite them if it is asked to, and does to its answers what the
/// test wants: it has written then.
fn keeping(
    knows_condition: bool,
    fault: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
) -> impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static {
    let objects = Mutex::new(std::collections::HashMap::<String, String>::new());
    move |head: &str, body: &str| {
        let mut objects = objects.lock().unwrap();
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let is_refused = head.to_ascii_lowercase().contains("if-none-match: *");
        let name = target.split('?').next().unwrap().to_owned();
        let writes = method == "PUT" || method == "POST" && target.contains("uploadId=");
        if writes && is_refused && !knows_condition {
            return (501, "<Error><Code>NotImplemented</Code></Error>".to_owned());
        }
        if writes && is_refused && objects.contains_key(&name) {
            return (412, "<Error><Code>PreconditionFailed</Code></Error>".to_owned());
        }
        match method {
            "PUT" | "POST" if writes && !target.contains("partNumber") => {
                objects.insert(name.clone(), body.to_owned());
                let done = "<R><ETag>\"tag\"</ETag></R>".to_owned();
                fault(target).unwrap_or((200, done))
            }
            "POST" => (200, "<R><UploadId>1</UploadId></R>".to_owned()),
            "PUT" => (200, String::new()),
            // The upload that is aborted is there as long as it is not completed.
            "DELETE" if objects.contains_key(&name) => {
                (404, "<Error><Code>NoSuchUpload</Code></Error>".to_owned())
            }
            "DELETE" => (204, String::new()),
            _ if target.contains("list-type=2") => listed(&[], 0),
            _ => match objects.get(&name) {
                Some(text) => (200, text.clone()),
                None => (404, String::new()),
            },
        }
    }
}

/// Writes an object that must be new: small, or in parts.
async fn put_new(store: &ObjectStore, path: &FsPath, bytes: &[u8]) -> Result<(), FsError> {
    let mut writer = store.create(path, CreateOptions::default()).await?;
    writer.write(bytes).await?;
    writer.close().await
}

#[tokio::test]
async fn of_two_writers_of_a_new_object_one_is_refused() {
    let path = at("s3://bucket/a");
    for length in [10, 9 << 20] {
        let (store, noted) = noting_whole(keeping(true, |_| None)).await;
        let bytes = |byte| vec![byte; length];
        // Both have seen that there is none.
        let mut writers = Vec::new();
        for byte in [b'1', b'2'] {
            let mut writer = store.create(&path, CreateOptions::default()).await.unwrap();
            writer.write(&bytes(byte)).await.unwrap();
            writers.push(writer);
        }
        let last = writers.pop().unwrap();
        writers.pop().unwrap().close().await.unwrap();
        assert_eq!(last.close().await.unwrap_err().kind, ErrorKind::AlreadyExists);
        // That with `overwrite` replaces it.
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let mut writer = store.create(&path, options).await.unwrap();
        writer.write(&bytes(b'3')).await.unwrap();
        writer.close().await.unwrap();
        let conditions =
            noted.lock().unwrap().iter().filter(|it| it.contains("none-match")).count();
        assert_eq!(conditions, 2, "{length}");
    }
}

#[tokio::test]
async fn stores_that_do_not_know_the_condition_are_asked_without_it() {
    for length in [10, 9 << 20] {
        let (store, _) = noting_whole(keeping(false, |_| None)).await;
        put_new(&store, &at("s3://bucket/a"), &vec![b'x'; length]).await.unwrap();
        assert!(!store.status(&at("s3://bucket/a")).await.unwrap().is_directory);
    }
}

#[tokio::test]
async fn a_new_object_waits_for_another_request_for_it_and_may_be_empty() {
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let conflict = move |_: &str| {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        is_first.then(|| (409, "<Error><Code>ConditionalRequestConflict</Code></Error>".to_owned()))
    };
    let (store, noted) = noting_whole(keeping(true, conflict)).await;
    put_new(&store, &at("s3://bucket/a"), b"").await.unwrap();
    let noted = noted.lock().unwrap();
    let puts = noted.iter().filter(|request| request.starts_with("put"));
    // Stores refuse a request whose length is not named.
    let with_length = puts.clone().filter(|it| it.contains("content-length: 0"));
    assert_eq!((puts.count(), with_length.count()), (2, 2), "{noted:?}");
}

#[tokio::test]
async fn a_new_object_whose_answer_was_lost_is_not_taken_for_that_of_another() {
    for length in [10, 9 << 20] {
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let lost = move |_: &str| {
            let is_first = is_first.swap(false, Ordering::Relaxed);
            is_first.then(|| (503, "<Error><Code>SlowDown</Code></Error>".to_owned()))
        };
        let (store, _) = noting_whole(keeping(true, lost)).await;
        put_new(&store, &at("s3://bucket/a"), &vec![b'x'; length]).await.unwrap();
        let refused = put_new(&store, &at("s3://bucket/a"), &vec![b'x'; length]).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::AlreadyExists);
    }
}

#[tokio::test]
async fn a_writer_that_is_dropped_while_its_upload_begins_leaves_none() {
    let _alone = alone().await;
    let entered = Arc::new(tokio::sync::Semaphore::new(0));
    let seen = entered.clone();
    let (store, noted) = noting(move |request| match request {
        begin if begin.starts_with("POST") => {
            seen.add_permits(1);
            (200, "<R><UploadId>late</UploadId></R>".to_owned())
        }
        _ => (404, "<Error><Code>NoSuchUpload</Code></Error>".to_owned()),
    })
    .await;
    let path = at("s3://bucket/out/_temporary/_attempt_1/part-0");
    let mut writer = store.create(&path, CreateOptions::default());
    tokio::select! {
        biased;
        permit = entered.acquire() => permit.unwrap().forget(),
        _ = &mut writer => unreachable!("its upload has not begun"),
    }
    drop(writer);
    assert!(crate::all_given_up().await);
    assert!(is_asked(&noted, "DELETE /bucket/out/part-0?uploadId=late "), "{noted:?}");
}

/// The answer of a bucket without objects, where each upload has the id 1.
fn of_an_empty_bucket(request: &str) -> (u16, String) {
    match request {
        begin if begin.starts_with("POST") => (200, "<R><UploadId>1</UploadId></R>".to_owned()),
        head if head.starts_with("HEAD") => (404, String::new()),
        list if list.contains("list-type=2") => listed(&[], 0),
        _ => (200, String::new()),
    }
}

#[tokio::test]
async fn an_upload_that_cannot_be_aborted_is_reported_as_left() {
    let _alone = alone().await;
    let (store, noted) = noting(|request| match request {
        delete if delete.starts_with("DELETE") => {
            (403, "<Error><Code>AccessDenied</Code></Error>".to_owned())
        }
        other => of_an_empty_bucket(other),
    })
    .await;
    let mut writer = store.create(&at("s3://bucket/a"), CreateOptions::default()).await.unwrap();
    writer.write(&vec![b'x'; 9 << 20]).await.unwrap();
    drop(writer);
    assert!(!crate::all_given_up().await);
    assert!(is_asked(&noted, "DELETE /bucket/a?uploadId=1 "), "{noted:?}");
}

#[tokio::test]
async fn an_abort_that_is_interrupted_is_done_again() {
    let _alone = alone().await;
    let deletes = Arc::new(tokio::sync::Semaphore::new(0));
    let seen = deletes.clone();
    let (store, _) = noting(move |request| match request {
        delete if delete.starts_with("DELETE") => {
            seen.add_permits(1);
            (204, String::new())
        }
        other => of_an_empty_bucket(other),
    })
    .await;
    let mut writer = store.create(&at("s3://bucket/a"), CreateOptions::default()).await.unwrap();
    writer.write(&vec![b'x'; 9 << 20]).await.unwrap();
    let abort = writer.abort();
    tokio::select! {
        biased;
        permit = deletes.acquire() => permit.unwrap().forget(),
        done = abort => unreachable!("{done:?} without a request"),
    }
    assert!(crate::all_given_up().await);
    assert_eq!(deletes.available_permits(), 1);
}

#[tokio::test]
async fn an_object_whose_last_request_is_interrupted_is_reported_as_left() {
    let _alone = alone().await;
    for (length, last) in [(10, "PUT /bucket/a "), (9 << 20, "POST /bucket/a?uploadId=1 ")] {
        for overwrite in [false, true] {
            let entered = Arc::new(tokio::sync::Semaphore::new(0));
            let seen = entered.clone();
            let (store, noted) = noting(move |request| match request {
                request if request.starts_with(last) => {
                    seen.add_permits(1);
                    (200, String::new())
                }
                other => of_an_empty_bucket(other),
            })
            .await;
            let options = CreateOptions { overwrite, ..CreateOptions::default() };
            let mut writer = store.create(&at("s3://bucket/a"), options).await.unwrap();
            writer.write(&vec![b'x'; length]).await.unwrap();
            assert!(crate::all_given_up().await);
            let close = writer.close();
            tokio::select! {
                biased;
                permit = entered.acquire() => permit.unwrap().forget(),
                done = close => unreachable!("{done:?} before its last request"),
            }
            assert!(!crate::all_given_up().await, "{noted:?}");
        }
    }
}

#[tokio::test]
async fn an_upload_that_begins_while_its_job_ends_is_aborted() {
    let heads = AtomicUsize::new(0);
    let (store, noted) = noting(move |request| match request {
        // It ends between the two looks.
        begun if begun.starts_with("HEAD /bucket/out/_temporary/_begun ") => {
            (if heads.fetch_add(1, Ordering::Relaxed) == 0 { 200 } else { 404 }, String::new())
        }
        begin if begin.starts_with("POST") => (200, "<R><UploadId>1</UploadId></R>".to_owned()),
        _ => (200, String::new()),
    })
    .await;
    let path = at("s3://bucket/out/_temporary/_attempt_1/part-0");
    let refused = store.create(&path, CreateOptions::default()).await.err().unwrap();
    assert!(refused.to_string().contains("the job has ended"), "{refused}");
    assert!(is_asked(&noted, "DELETE /bucket/out/part-0?uploadId=1 "), "{noted:?}");
    assert!(is_asked(&noted, "<Key>out/_temporary/_attempt_1/part-0</Key>"), "{noted:?}");
}

#[tokio::test]
async fn a_late_set_up_leaves_the_uploads_of_its_running_job() {
    let looks = AtomicUsize::new(0);
    let (store, noted) = noting(move |request| match request {
        // The set-up that was faster ends between the two looks, and a task begins to upload.
        begun if begun.starts_with("HEAD /bucket/out/_temporary/_begun ") => {
            (if looks.fetch_add(1, Ordering::Relaxed) == 0 { 404 } else { 200 }, String::new())
        }
        _ if request.contains("?uploads=") => {
            let of_task = "<Upload><Key>out/part-0</Key><UploadId>1</UploadId></Upload>";
            (200, format!("<R>{of_task}</R>"))
        }
        _ => (200, String::new()),
    })
    .await;
    store.mkdirs(&at("s3://bucket/out/_temporary"), None).await.unwrap();
    assert!(is_asked(&noted, "?uploads=") && !is_asked(&noted, "DELETE "), "{noted:?}");
}

#[tokio::test]
async fn the_end_of_an_attempt_does_not_ask_for_uploads_where_none_can_be() {
    let note = "out/_temporary/_attempt_1/part-0";
    let (store, noted) = noting(move |request| match request {
        list if list.contains("list-type=2") => listed(&[note], 50),
        get if get.starts_with("GET") => {
            (200, String::from_utf8(Record::begun("1").to_json()).unwrap())
        }
        delete if delete.starts_with("DELETE") => (204, String::new()),
        head if head.starts_with("HEAD") => (404, String::new()),
        _ => (200, "<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>".to_owned()),
    })
    .await;
    assert!(store.delete(&at("s3://bucket/out/_temporary/_attempt_1"), true).await.unwrap());
    assert!(is_asked(&noted, "DELETE /bucket/out/part-0?uploadId=1 "), "{noted:?}");
    assert!(!is_asked(&noted, "?uploads="), "{noted:?}");
}

#[tokio::test]
async fn uploads_that_killed_programs_have_left_are_aborted_by_rm_and_by_the_next_job() {
    let left = "<R><Upload><Key>out</Key><UploadId>1</UploadId></Upload>\
                <Upload><Key>out/a</Key><UploadId>2</UploadId></Upload>\
                <Upload><Key>outer</Key><UploadId>3</UploadId></Upload></R>";
    for is_allowed in [true, false] {
        let (store, noted) = noting(move |request| match request {
            _ if request.contains("?uploads=") && !is_allowed => {
                (403, "<Error><Code>AccessDenied</Code></Error>".to_owned())
            }
            _ if request.contains("?uploads=") => (200, left.to_owned()),
            _ if request.contains("list-type=2") => listed(&[], 0),
            delete if delete.starts_with("DELETE") => (204, String::new()),
            put if put.starts_with("PUT") => (200, String::new()),
            _ => (404, String::new()),
        })
        .await;
        assert!(!store.delete(&at("s3://bucket/out"), false).await.unwrap());
        assert!(!is_asked(&noted, "uploads="));
        assert_eq!(store.delete(&at("s3://bucket/out"), true).await.unwrap(), is_allowed);
        for (upload, is_meant) in
            [("out?uploadId=1 ", true), ("out/a?uploadId=2 ", true), ("uploadId=3", false)]
        {
            assert_eq!(is_asked(&noted, upload), is_allowed && is_meant, "{upload}: {noted:?}");
        }
        noted.lock().unwrap().clear();
        let made = store.mkdirs(&at("s3://bucket/out/_temporary"), None).await;
        assert_eq!(made.is_ok(), is_allowed);
        assert_eq!(is_asked(&noted, "out/a?uploadId=2 "), is_allowed);
        assert_eq!(is_asked(&noted, "PUT /bucket/out/_temporary/_begun "), is_allowed);
    }
}
