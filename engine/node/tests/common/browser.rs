//! A headless Chromium, driven through chromedriver by the WebDriver protocol: JSON over HTTP.
//!
//! Needs the programs `chromium` and `chromedriver` (Debian: chromium, chromium-driver). Nothing
//! leaves this machine: the browser is told to do nothing by itself.

use super::http::exchange;
use super::{PortBlock, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A browser with one window. Ends when dropped.
pub struct Browser {
    driver: Child,
    address: String,
    session: String,
    _profile: TempDir,
    _ports: PortBlock,
}

impl Browser {
    /// Starts one.
    ///
    /// # Panics
    /// If the programs are not there or do not start.
    pub fn start() -> Self {
        let ports = PortBlock::acquire();
        let port = ports.base();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver (Debian: apt-get install chromium chromium-driver)");
        let mut browser = Self {
            driver,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            _profile: tempfile::tempdir().expect("a directory"),
            _ports: ports,
        };
        wait_for("chromedriver is ready", START_LIMIT, || {
            let status = browser.call("GET", "/status", &Value::Null).ok()?;
            status["ready"].as_bool().filter(|ready| *ready)
        });
        let made = browser
            .call("POST", "/session", &browser.capabilities())
            .expect("a session");
        browser.session = made["sessionId"].as_str().expect("an id").to_owned();
        browser
    }

    fn capabilities(&self) -> Value {
        let profile = self._profile.path().display();
        let arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1160,1060",
            format!("--user-data-dir={profile}"),
        ]);
        json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}})
    }

    /// One command of the WebDriver protocol; its value, or the error in words.
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let path = match &*self.session {
            "" => path.to_owned(),
            session => format!("/session/{session}{path}"),
        };
        let body = match method {
            "GET" | "DELETE" => String::new(),
            _ => body.to_string(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let answered = exchange(&self.address, request.as_bytes());
        let answered = answered.map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&answered.body).unwrap_or_default();
        match answered.status {
            200 => Ok(value["value"].clone()),
            _ => Err(format!("{method} {path}: {}", answered.body)),
        }
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        let opened = self.call("POST", "/url", &json!({"url": url}));
        opened.expect("a page");
    }

    /// What a function body gives, evaluated in the page.
    pub fn run(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.call("POST", "/execute/sync", &body).expect(script)
    }

    /// The text that somebody sees in the first element that `selector` finds; empty without one.
    pub fn text(&self, selector: &str) -> String {
        let script = format!(
            "const found = document.querySelector({selector:?}); \
             return found && found.checkVisibility() ? found.innerText : '';"
        );
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// What the page complained about in its console since the last call.
    pub fn complaints(&self) -> Vec<String> {
        let entries = self
            .call("POST", "/se/log", &json!({"type": "browser"}))
            .expect("the console");
        let entries = entries.as_array().cloned().unwrap_or_default();
        let words = |entry: &Value| entry["message"].as_str().map(str::to_owned);
        entries.iter().filter_map(words).collect()
    }

    /// Sets the size of the window.
    pub fn resize(&self, width: u32, height: u32) {
        let body = json!({"width": width, "height": height});
        self.call("POST", "/window/rect", &body).expect("a size");
    }

    /// Light or dark, as the operating system would say.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        let done = self.call("POST", "/goog/cdp/execute", &body);
        done.expect("an emulated medium");
    }

    /// A picture of the page, if `QUORATE_TEST_PICTURES` names a directory to keep it in.
    pub fn picture(&self, name: &str) {
        let Some(dir) = std::env::var_os("QUORATE_TEST_PICTURES") else {
            return;
        };
        let encoded = self
            .call("GET", "/screenshot", &Value::Null)
            .expect("a picture");
        let encoded = encoded.as_str().expect("base64").to_owned();
        let path = Path::new(&dir).join(format!("{name}.png.base64"));
        fs::write(path, encoded).expect("a file");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver then has no children left.
        let _ = self.call("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
