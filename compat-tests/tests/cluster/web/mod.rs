//! The pages in a real browser, over the built program with emulated nodes and sessions.
//!
//! Pictures of all pages are left in `target/web`: light and dark, wide and narrow.

mod cluster;

use std::path::PathBuf;

use cluster::{Cluster, TOKEN};
use compat_tests::browser::Browser;
use compat_tests::repository;
use serde_json::{Value, json};

const MAP: &str = "MAP";
const REDUCE: &str = "REDUCE";

/// A name that would show itself in the page's window if it were not escaped.
const HOSTILE: &str = "</td><script>window.harmed = 1</script>\
                       <img src=x onerror=\"window.harmed = 2\">&lt;\"'";

/// Fourteen nodes, two of them with trouble, and sessions in several pools.
struct Busy {
    cluster: Cluster,
    /// Sessions by their purpose.
    nightly: String,
    near: String,
    adhoc: String,
}

fn busy(settings: &[(&str, &str)]) -> Busy {
    let mut cluster = Cluster::start(settings);
    for number in 1..=13 {
        let host = format!("node{number:02}.example.com");
        cluster.node(
            &format!("tracker_node{number:02}"),
            &host,
            if number % 3 == 0 { 4 } else { 8 },
        );
    }
    for (name, status) in [
        ("hourly report 2026-11-21T00", "SUCCESSFUL"),
        ("hourly report 2026-11-21T01", "FAILED"),
        ("ad-hoc: count of clicks", "KILLED"),
    ] {
        let handle = cluster.session(name, "bob", ("search", "crawl"));
        cluster.ask(&handle, MAP, 1..=6, &[]);
        cluster.heartbeat(&handle, 6);
        cluster.calls.end(&handle, status);
    }
    let nightly =
        cluster.session("nightly: join impressions with clicks", "alice", ("ads", "nightly"));
    cluster.ask(&nightly, MAP, 1..=60, &[]);
    cluster.ask(&nightly, REDUCE, 61..=70, &[]);
    cluster.heartbeat(&nightly, 70);
    let near = cluster.session("index: shard 7 of 64", "carol", ("search", "index"));
    cluster.ask(&near, MAP, 1..=3, &["absent.example.com"]);
    let adhoc = cluster.session("select country, count(*) from visits", "dave", ("ads", "adhoc"));
    cluster.ask(&adhoc, MAP, 1..=40, &[]);
    cluster.complain(&nightly, "tracker_node02");
    Busy { cluster, nightly, near, adhoc }
}

/// Where a picture goes.
fn picture(name: &str) -> PathBuf {
    let directory = repository().join("target/web");
    std::fs::create_dir_all(&directory).expect("a directory for pictures");
    directory.join(format!("{name}.png"))
}

/// How many tables show only a part of themselves.
const CUT_OFF: &str = "[...document.querySelectorAll('.scroll')] \
                       .filter((box) => box.scrollWidth > box.clientWidth).length";

/// Words of names that stand on two lines, though a line has room for them.
const BROKEN_WORDS: &str = "(() => { const broken = []; \
    for (const name of document.querySelectorAll('.word, .long, .facts dd')) { \
      const texts = document.createTreeWalker(name, NodeFilter.SHOW_TEXT); \
      while (texts.nextNode()) { \
        const text = texts.currentNode; \
        for (const { 0: word, index } of text.data.matchAll(/[\\w-]+/g)) { \
          const range = document.createRange(); \
          range.setStart(text, index); range.setEnd(text, index + word.length); \
          const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top))); \
          if (tops.size > 1 && word.length < 24) broken.push(word); \
        } \
      } \
    } \
    return broken; })()";

/// Names that two landmarks of the page share.
const TWIN_LANDMARKS: &str = "(() => { \
    const named = [...document.querySelectorAll('nav, section, [role=region], [role=search]')]; \
    const names = named.map((part) => (part.getAttribute('role') || part.tagName) + ' ' \
      + (part.getAttribute('aria-label') || \
         document.getElementById(part.getAttribute('aria-labelledby'))?.textContent || '')) \
      .map((name) => name.replace('SECTION', 'region')); \
    return names.filter((name, at) => names.indexOf(name) !== at); })()";

fn first_column(browser: &mut Browser, table: &str) -> Vec<String> {
    browser.texts(&format!("#{table} tbody th"))
}

#[test]
fn all_pages_fit_light_and_dark_wide_and_narrow() {
    let mut busy = busy(&[("corona.cm.web.sample.period.ms", "20")]);
    let mut browser = Browser::start();
    // Activity for the plots: a session that requests more and releases it.
    let wave = busy.cluster.session("hourly report 2026-11-21T02", "bob", ("search", "crawl"));
    for turn in 0..40 {
        let first = 1000 * (turn + 1);
        let count = 8 + 40 * (turn % 10) / 9;
        busy.cluster.ask(&wave, MAP, first..=first + count, &[]);
        busy.cluster.ask(&wave, REDUCE, first + 500..=first + 500 + count / 2, &[]);
        browser.value("new Promise((done) => setTimeout(done, 100))");
        busy.cluster.calls.release(&wave, first..=first + count - count / 4);
        busy.cluster.calls.release(&wave, first + 500..=first + 500 + count / 2);
    }
    let session = format!("/sessions/{}", busy.nightly);
    let ended = busy.cluster.address("/retired");
    let pages = [
        ("cluster", "/"),
        ("pools", "/pools"),
        ("sessions", "/sessions"),
        ("session", &*session),
        ("waiting", &*format!("/sessions/{}", busy.near)),
        ("kill", &*format!("{session}/kill")),
        ("nodes", "/nodes"),
        ("silent", "/nodes?state=silent"),
        ("retired", "/retired"),
        ("configuration", "/configuration?set=1"),
        ("missing", "/nothing/here"),
    ];
    for (name, path) in pages {
        for (width, dark) in
            [(1920, false), (1280, false), (1280, true), (400, false), (360, false), (360, true)]
        {
            browser.look_through(width, dark);
            browser.open(&busy.cluster.address(path));
            let wider = "document.documentElement.scrollWidth - window.innerWidth";
            assert_eq!(browser.value(wider), 0, "{path} is wider than {width}");
            if width < 600 {
                assert_eq!(browser.value(CUT_OFF), 0, "{path}: a table is wider than {width}");
            }
            let broken = browser.value(BROKEN_WORDS);
            assert_eq!(broken, json!([]), "{path} at {width}: words are broken");
            let twins = browser.value(TWIN_LANDMARKS);
            assert_eq!(twins, json!([]), "{path}: landmarks of the same name");
            let scheme = if dark { "dark" } else { "light" };
            browser.picture(&picture(&format!("{name}-{scheme}-{width}")));
        }
    }
    let complaints = browser.complaints();
    let other = complaints.iter().filter(|complaint| !complaint.contains("/nothing/here"));
    assert_eq!(other.count(), 0, "{complaints:?}");
    browser.open(&ended);
    assert_eq!(first_column(&mut browser, "retired-table").len(), 3);
}

#[test]
fn pages_follow_the_cluster_without_a_reload() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.open(&busy.cluster.address("/sessions"));
    browser.value("window.untouched = true");
    let before = first_column(&mut browser, "session-table");
    assert_eq!(before, [&busy.nightly, &busy.near, &busy.adhoc].map(String::as_str));
    // The element with the focus keeps it.
    browser
        .value(&format!("document.querySelector('a[href=\"/sessions/{}\"]').focus()", busy.near));

    let new = busy.cluster.session("comes while you look", "erin", ("search", "crawl"));
    browser.until("the new session is shown", |browser| {
        first_column(browser, "session-table").contains(&new)
    });
    busy.cluster.calls.end(&busy.adhoc, "SUCCESSFUL");
    browser.until("the ended session is gone", |browser| {
        !first_column(browser, "session-table").contains(&busy.adhoc)
    });
    assert_eq!(browser.value("window.untouched"), true);
    assert_eq!(browser.text(":focus"), busy.near);
    browser.until("it is read out", |browser| {
        let news = browser.text("#live-news");
        news.contains("session started") || news.contains("session ended")
    });

    assert_eq!(browser.complaints(), [""; 0]);
}

/// The place of the first element that fits, slightly inside of it.
fn place_of(browser: &mut Browser, selector: &str) -> Value {
    browser.value(&format!(
        "(() => {{ const element = document.querySelector({}); element.scrollIntoView({{ block: 'center' }}); \
         const box = element.getBoundingClientRect(); return [box.x + 8, box.y + box.height / 2]; }})()",
        json!(selector)
    ))
}

#[test]
fn a_click_is_not_lost_to_a_refresh() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.look_through(1280, false);
    // New sessions come in at the top and move the target.
    browser.open(&busy.cluster.address("/sessions?sort=-id"));
    browser.value(
        "window.clicked = []; window.refreshed = 0; \
         new MutationObserver(() => window.refreshed++) \
           .observe(document.getElementById('as-of'), { subtree: true, childList: true, characterData: true }); \
         document.addEventListener('click', (event) => { \
           event.preventDefault(); window.clicked.push(event.target.getAttribute('href')); })",
    );
    let target = format!("/sessions/{}", busy.near);
    let link = format!("a[href=\"{target}\"]");
    // The long ones last longer than the pause between two refreshes.
    let presses = [1500, 110, 110, 110, 110, 110, 1500, 110, 110, 110, 110, 110, 1500];
    for (number, held_ms) in presses.into_iter().enumerate() {
        let place = place_of(&mut browser, &link);
        browser.mouse("mousePressed", &place);
        let before = browser.value("window.refreshed");
        let new = busy.cluster.session("comes while a button is down", "erin", ("search", "crawl"));
        browser.value(&format!("new Promise((done) => setTimeout(done, {held_ms}))"));
        assert_eq!(browser.value("window.refreshed"), before, "nothing moves under the pointer");
        browser.mouse("mouseReleased", &place);
        assert_eq!(browser.value("window.clicked.length"), number + 1, "a click was lost");
        assert_eq!(browser.value("window.clicked.at(-1)"), json!(target));
        // The refresh is made up for; the next press aims at a target that does not move.
        browser.until("the new session is shown", |browser| {
            first_column(browser, "session-table").contains(&new)
        });
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_selection_the_focus_and_the_place_survive_refreshes() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.look_through(1280, false);
    browser.open(&busy.cluster.address("/sessions?sort=-map-waiting"));
    let link = format!("a[href=\"/sessions/{}\"]", busy.adhoc);
    browser.value(&format!(
        "(() => {{ const link = document.querySelector({0}); link.closest('tr').known = true; \
         document.querySelector('#session-table thead a').focus(); scrollTo(0, 60); \
         getSelection().selectAllChildren(link); }})()",
        json!(link)
    ));
    let selected = |browser: &mut Browser| browser.value("getSelection().toString()");
    assert_eq!(selected(&mut browser), json!(busy.adhoc));
    let place = browser.value("scrollY");
    let state = format!(
        "[document.querySelector({0})?.closest('tr').known, \
         document.activeElement.closest('thead') !== null, scrollY]",
        json!(link)
    );
    // Its own row changes, and its place among the others.
    let waiting = format!("tr[data-key=\"{}\"] [data-label=\"MAP: waiting\"]", busy.adhoc);
    let before = browser.text(&waiting);
    busy.cluster.calls.release(&busy.adhoc, 13..=40);
    browser.until("its numbers change", |browser| browser.text(&waiting) != before);
    let new = busy.cluster.session("waits for more than all others", "erin", ("search", "crawl"));
    busy.cluster.ask(&new, MAP, 1..=500, &[]);
    browser.until("the order changes", |browser| {
        first_column(browser, "session-table").first() == Some(&new)
    });
    assert_eq!(selected(&mut browser), json!(busy.adhoc));
    assert_eq!(browser.value(&state), json!([true, true, place]));
    // Even after its end the text can be copied, and is marked as outdated until then.
    busy.cluster.calls.end(&busy.adhoc, "SUCCESSFUL");
    browser.until("the row is marked", |browser| browser.texts("tr.gone").len() == 1);
    assert_eq!(selected(&mut browser), json!(busy.adhoc));
    browser.until("the header says what is not new", |browser| {
        browser.text("#live-time").contains("except what is selected")
    });
    browser.value("getSelection().removeAllRanges()");
    browser.until("the row goes", |browser| {
        !first_column(browser, "session-table").contains(&busy.adhoc)
    });
    assert_eq!(browser.value("document.activeElement.closest('thead') !== null"), true);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_pause_lasts_from_page_to_page() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.open(&busy.cluster.address("/pools"));
    browser.click("#live-toggle");
    browser.open(&busy.cluster.address("/sessions"));
    assert_eq!(browser.text("#live-toggle"), "Paused");
    let pressed = "document.getElementById('live-toggle').getAttribute('aria-pressed')";
    assert_eq!(browser.value(pressed), "false");
    let unseen = busy.cluster.session("comes during the pause", "erin", ("search", "crawl"));
    browser.value("new Promise((done) => setTimeout(done, 2500))");
    assert!(!first_column(&mut browser, "session-table").contains(&unseen));
    // The requested page comes nevertheless.
    browser.click("th a[href*='sort=user']");
    browser.until("the asked order", |browser| {
        first_column(browser, "session-table").contains(&unseen)
    });
    browser.click("#live-toggle");
    let new = busy.cluster.session("comes behind the pause", "erin", ("search", "crawl"));
    browser.until("looks go on", |browser| first_column(browser, "session-table").contains(&new));
    browser.open(&busy.cluster.address("/sessions"));
    assert_eq!(browser.text("#live-toggle"), "Live");
    let seen = busy.cluster.session("comes after the pause", "erin", ("search", "crawl"));
    browser
        .until("refreshes go on", |browser| first_column(browser, "session-table").contains(&seen));
}

#[test]
fn all_times_of_a_page_are_the_servers() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.look_through(1280, false);
    browser.move_to("America/Los_Angeles");
    browser.open(&busy.cluster.address("/"));
    let zone = browser.text("footer");
    assert!(zone.contains("All times are in the server’s time zone, "), "{zone}");
    let first = browser.text("#live-time");
    busy.cluster.session("comes while you look", "erin", ("search", "crawl"));
    browser.until("a refresh", |browser| browser.text("#live-time") != first);
    let shown = browser.value(
        "(() => { const asOf = document.getElementById('as-of'); \
         return [document.getElementById('live-time').textContent, \
                 'updated ' + asOf.dataset.clock, \
                 asOf.textContent.split(' ')[1], asOf.dataset.clock.split(' ')[0]]; })()",
    );
    assert_eq!(shown[0], shown[1]);
    assert_eq!(shown[2], shown[3]);
    let clock = shown[3].as_str().expect("a time");
    assert!(clock.len() == 8 && !shown[0].as_str().unwrap().contains('M'), "24 hours: {clock}");
}

#[test]
fn the_cluster_page_follows_nodes_and_safe_mode() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.open(&busy.cluster.address("/"));
    let problems = browser.text("#problems");
    for problem in
        ["1 node is blacklisted", "hosts of the include file do not heartbeat", "warning"]
    {
        assert!(problems.contains(problem), "{problem} is not in {problems}");
    }
    assert!(browser.text("#facts").contains("Nodes\n13"));
    busy.cluster.node("tracker_node14", "node14.example.com", 8);
    browser.until("the node is counted", |browser| browser.text("#facts").contains("Nodes\n14"));
    assert!(browser.text("#events").contains("tracker_node14 joined"));
    // Without a proxy job tracker safe mode cannot be switched on: nothing changes.
    busy.cluster.calls.call("setSafeMode", &json!({ "safeMode": true }));
    assert_eq!(browser.text("#safe-mode"), "");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn tables_are_sorted_and_filtered_with_and_without_scripts() {
    let busy = busy(&[]);
    let mut browser = Browser::start();
    let (nightly, near, adhoc) = (&*busy.nightly, &*busy.near, &*busy.adhoc);
    for scripts in [true, false] {
        browser.allow_scripts(scripts);
        browser.open(&busy.cluster.address("/sessions"));
        let shown = |browser: &mut Browser, what: &str, rows: &[&str]| {
            browser.until(what, |browser| {
                browser.value("document.readyState") == "complete"
                    && first_column(browser, "session-table") == rows
            });
        };
        shown(&mut browser, "by id", &[nightly, near, adhoc]);
        browser.click("th a[href*='sort=user']");
        shown(&mut browser, "by user", &[nightly, near, adhoc]);
        browser.click("th a[href*='sort=-user']");
        shown(&mut browser, "by user, backwards", &[adhoc, near, nightly]);
        let sorted =
            browser.value("document.querySelector('th[aria-sort]').getAttribute('aria-sort')");
        assert_eq!(sorted, "descending");
        assert!(browser.value("location.search").as_str().unwrap().contains("sort=-user"));

        browser.click("#q");
        browser.write("SHARD");
        if !scripts {
            browser.press("Enter", 13);
        }
        shown(&mut browser, "filtered", &[near]);
        let query = browser.value("location.search");
        assert!(query.as_str().unwrap().contains("q=SHARD"), "{query}");
        assert!(query.as_str().unwrap().contains("sort=-user"), "{query}");
        assert!(browser.text("#sessions .count").starts_with("1 of 3"));
        browser.click("form.filter a[data-swap]");
        shown(&mut browser, "all again", &[nightly, near, adhoc]);
    }
}

#[test]
fn a_session_says_why_it_waits() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    browser.open(&busy.cluster.address(&format!("/sessions/{}", busy.near)));
    let why = browser.text("#wait-table");
    assert!(why.contains("for a slot on absent.example.com"), "{why}");
    assert!(why.contains("1–3"), "{why}");
    browser.open(&busy.cluster.address(&format!("/sessions/{}", busy.adhoc)));
    let why = browser.text("#wait-table");
    assert!(why.contains("pool ads.adhoc holds 12 grants, its maximum"), "{why}");
    assert_eq!(first_column(&mut browser, "grant-table").len(), 12);
    busy.cluster.calls.release(&busy.adhoc, 1..=40);
    browser.until("nothing waits any more", |browser| {
        browser.text("#session").contains("No request is waiting.")
    });
    // The page becomes that of an ended session by itself.
    busy.cluster.calls.end(&busy.adhoc, "FAILED");
    browser.until("the end is shown", |browser| browser.text("main").contains("FAILED"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_session_is_ended_from_its_page_with_the_token_only() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    let page = format!("/sessions/{}", busy.adhoc);
    browser.open(&busy.cluster.address(&page));
    browser.click("a.danger");
    let there = |browser: &mut Browser, title: &str| {
        browser.until(title, |browser| {
            browser.value("document.readyState") == "complete"
                && browser.text("h1").starts_with(title)
        });
    };
    there(&mut browser, "End session");
    let send = |browser: &mut Browser, token: &str| {
        browser.click("#token");
        browser.write(token);
        browser.value("window.asked = true");
        browser.click("button.danger");
        browser.until("the answer is there", |browser| {
            browser.value("window.asked") == Value::Null
                && browser.value("document.readyState") == "complete"
        });
    };
    send(&mut browser, "not the token at all");
    assert!(browser.text("[role=alert]").contains("Wrong token"));
    browser.picture(&picture("wrong-token-light-1280"));
    assert!(busy.cluster.running().contains(&busy.adhoc));
    // After a wrong one the next is not looked at for a moment.
    browser.until("the right token counts", |browser| {
        send(browser, TOKEN);
        browser.text("h1").starts_with("Session")
    });
    there(&mut browser, "Session");
    assert!(browser.text("main").contains("KILLED"), "{}", browser.text("main"));
    assert!(!busy.cluster.running().contains(&busy.adhoc));
    let complaints = browser.complaints();
    // A browser notes the refusals.
    let refusals = ["403", "429"];
    let is_refusal = |complaint: &String| refusals.iter().any(|status| complaint.contains(status));
    assert!(complaints.iter().all(is_refusal), "{complaints:?}");
}

#[test]
fn a_hostile_name_is_shown_as_text() {
    let mut busy = busy(&[]);
    let mut browser = Browser::start();
    let handle = busy.cluster.session(HOSTILE, HOSTILE, ("search", "crawl"));
    busy.cluster.node(HOSTILE, "node14.example.com", 1);
    browser.look_through(1280, false);
    for path in ["/", "/sessions", &format!("/sessions/{handle}"), "/nodes"] {
        browser.open(&busy.cluster.address(path));
        assert!(browser.text("main").contains(HOSTILE), "{path}: {}", browser.text("main"));
        assert_eq!(browser.value("window.harmed ?? null"), Value::Null, "{path}");
    }
    // A part that is put in later is no way in either.
    browser.open(&busy.cluster.address("/sessions"));
    let late = busy.cluster.session(&format!("later {HOSTILE}"), "mallory", ("search", "crawl"));
    browser.until("the new session is shown", |browser| {
        first_column(browser, "session-table").contains(&late)
    });
    assert_eq!(browser.value("window.harmed ?? null"), Value::Null);
    browser.picture(&picture("hostile-light-1280"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_keyboard_reaches_the_content_and_the_tables() {
    let busy = busy(&[]);
    let mut browser = Browser::start();
    browser.look_through(1280, false);
    browser.open(&busy.cluster.address("/pools"));
    browser.press("Tab", 9);
    assert_eq!(browser.text(":focus"), "Skip to the content");
    let visible = "document.activeElement.getBoundingClientRect().top >= 0";
    assert_eq!(browser.value(visible), true, "it can be seen while it has the focus");
    browser.press("Enter", 13);
    browser.until("the content has the focus", |browser| {
        browser.value("document.activeElement.id") == "main"
    });
    // From there on: the filter, the headings of the table, the table itself.
    let mut seen = Vec::new();
    for _ in 0..40 {
        browser.press("Tab", 9);
        let on = browser.value(
            "[document.activeElement.tagName, document.activeElement.className, \
             getComputedStyle(document.activeElement).outlineStyle].join(' ')",
        );
        seen.push(on.as_str().unwrap_or_default().to_owned());
    }
    for wanted in
        ["INPUT  solid", "BUTTON  solid", "DIV scroll solid", "A  solid", "A groupname solid"]
    {
        assert!(seen.iter().any(|on| on == wanted), "{wanted} is not in {seen:?}");
    }
    assert!(seen.iter().all(|on| on.ends_with("solid") || on.starts_with("BODY")), "{seen:?}");
}
