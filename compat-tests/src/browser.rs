//! A headless Chromium, spoken to over two pipes: its debugging protocol without a port, a socket
//! or a driver program.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub use crate::PATIENCE;

/// The browser's error for a page that it has left before it replied.
const NAVIGATED: &str = "Inspected target navigated or closed";

/// Messages of the browser that may wait to be read.
const MESSAGES_WAITING: usize = 4096;

/// A browser with one page. It is ended when this is dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    page: String,
    /// Complaints of the page: errors in scripts, refused content, dialogs.
    complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with an empty page.
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().expect("a directory for the browser's profile");
        let mut child = Command::new("sh")
            // The protocol is on descriptors 3 and 4.
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--hide-scrollbars"])
            .args(["--disable-component-update", "--disable-sync", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromium can be started (Debian: chromium)");
        let commands = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = sync_channel(MESSAGES_WAITING);
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let parsed = serde_json::from_slice(&message).expect("the protocol is JSON");
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            last_id: 0,
            page: String::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let target = loop {
            let targets = self.command("Target.getTargets", json!({}));
            let pages = targets["targetInfos"].as_array().cloned().unwrap_or_default();
            if let Some(page) = pages.iter().find(|target| target["type"] == "page") {
                break page["targetId"].clone();
            }
            assert!(Instant::now() < deadline, "the browser has no page");
        };
        let attached =
            self.command("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        self.page = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.command(domain, json!({}));
        }
        // As if the page were visible.
        self.command("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
    }

    /// Sends a command and waits for its result.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        match self.answer(method, parameters) {
            Ok(result) => result,
            Err(error) => panic!("{method}: {error}"),
        }
    }

    /// Sends a command and waits for its result, or for the browser's error.
    fn answer(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.page.is_empty() {
            message["sessionId"] = json!(self.page);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser reads");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next(deadline);
            if message["id"] == id {
                return match message.get("error") {
                    None => Ok(message["result"].clone()),
                    Some(error) => Err(error.clone()),
                };
            }
        }
    }

    fn next(&mut self, deadline: Instant) -> Value {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.messages.recv_timeout(left) {
            Ok(message) => {
                self.note(&message);
                message
            }
            Err(RecvTimeoutError::Timeout) => panic!("the browser does not answer"),
            Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended"),
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            Some("Page.javascriptDialogOpening") => self.complaints.push(parameters.to_string()),
            _ => {}
        }
    }

    /// Opens an address and waits until its page is complete.
    pub fn open(&mut self, address: &str) {
        let opened = self.command("Page.navigate", json!({ "url": address }));
        assert!(opened.get("errorText").is_none(), "{address}: {opened}");
        let loader = opened["loaderId"].clone();
        self.until(&format!("{address} is there"), |browser| {
            let frame = browser.command("Page.getFrameTree", json!({}));
            frame["frameTree"]["frame"]["loaderId"] == loader
                && browser.value("document.readyState") == "complete"
        });
    }

    /// The value of an expression in the page; in the next page if the browser has left this one before
    /// it replied.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let deadline = Instant::now() + PATIENCE;
        let result = loop {
            match self.answer("Runtime.evaluate", parameters.clone()) {
                Ok(result) => break result,
                Err(error) => assert!(
                    error["message"] == NAVIGATED && Instant::now() < deadline,
                    "{expression}: {error}"
                ),
            }
        };
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The text of the first element that fits, as a person sees it.
    pub fn text(&mut self, selector: &str) -> String {
        let selector = json!(selector);
        let text = self.value(&format!("document.querySelector({selector})?.innerText ?? ''"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// The texts of all elements that fit.
    pub fn texts(&mut self, selector: &str) -> Vec<String> {
        let selector = json!(selector);
        let texts = self.value(&format!(
            "[...document.querySelectorAll({selector})].map((element) => element.innerText)"
        ));
        serde_json::from_value(texts).expect("texts")
    }

    /// Clicks on the first element that fits, where a person would, as soon as there is one.
    pub fn click(&mut self, selector: &str) {
        let quoted = json!(selector);
        self.until(&format!("something that fits {selector}"), |browser| {
            browser.value(&format!("document.querySelector({quoted}) !== null")) == true
        });
        let place = self.value(&format!(
            "(() => {{ const element = document.querySelector({quoted}); if (!element) return null; \
             element.scrollIntoView({{ block: 'center' }}); const box = element.getBoundingClientRect(); \
             return [box.x + Math.min(box.width / 2, 20), box.y + box.height / 2]; }})()"
        ));
        assert!(place.is_array(), "what fits {selector} is gone again");
        self.mouse("mousePressed", &place);
        self.mouse("mouseReleased", &place);
    }

    /// Moves, presses or releases the left button of a mouse at a place `[x, y]` of the window.
    pub fn mouse(&mut self, kind: &str, place: &Value) {
        let event = json!({
            "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1
        });
        self.command("Input.dispatchMouseEvent", event);
    }

    /// Shows times as in another time zone, as far as the browser decides on that.
    pub fn move_to(&mut self, zone: &str) {
        self.command("Emulation.setTimezoneOverride", json!({ "timezoneId": zone }));
    }

    /// Types text into the element with the focus.
    pub fn write(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key, such as `Tab`.
    pub fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text
            });
            self.command("Input.dispatchKeyEvent", event);
        }
    }

    /// Waits until something holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Browser) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            if Instant::now() > deadline {
                let page = self.value("document.body.innerText");
                panic!("{what}: not in time; the page is:\n{}", page.as_str().unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Shows pages as on a window or a telephone of this width, in a light or dark surrounding.
    pub fn look_through(&mut self, width: u32, dark: bool) {
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600
        });
        self.command("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", media);
    }

    /// Lets scripts of pages run, or not.
    pub fn allow_scripts(&mut self, allowed: bool) {
        self.command("Emulation.setScriptExecutionDisabled", json!({ "value": !allowed }));
    }

    /// Writes a picture of the whole page.
    pub fn picture(&mut self, file: &Path) {
        let picture =
            self.command("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let picture = from_base64(picture["data"].as_str().expect("a picture"));
        std::fs::write(file, picture).expect("the picture can be written");
    }

    /// The complaints of the page so far. The list is empty afterwards.
    pub fn complaints(&mut self) -> Vec<String> {
        self.value("0");
        std::mem::take(&mut self.complaints)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(value).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
