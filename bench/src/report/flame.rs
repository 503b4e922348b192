//! A flamegraph of this program while it measures, by `perf`.

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options as FoldOptions};
use inferno::flamegraph::{self, Options};
use std::error::Error;
use std::fs::{self, File};
use std::io::Cursor;
use std::path::Path;
use std::process::{Command, Stdio};

/// Samples a second; odd, so as not to keep step with timers.
const FREQUENCY: &str = "1997";

/// Runs this program with `arguments` and draws where its time went.
pub(super) fn draw(path: &Path, arguments: &[&str], dir: &Path) -> Result<(), Box<dyn Error>> {
    let data = super::temporary(dir, "perf.data");
    let drawn = record(&data, arguments, dir).and_then(|()| render(&data, path));
    let _ = fs::remove_file(&data);
    drawn
}

fn record(data: &Path, arguments: &[&str], dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-F",
        FREQUENCY,
        "--call-graph",
        "dwarf,16384",
        "-o",
    ]);
    perf.arg(data)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(arguments);
    perf.arg("--dir").arg(dir);
    let status = perf.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.map_err(|error| format!("perf cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("perf record failed: {status}").into());
    }
    Ok(())
}

fn render(data: &Path, path: &Path) -> Result<(), Box<dyn Error>> {
    let script = Command::new("perf")
        .args(["script", "-i"])
        .arg(data)
        .output()?;
    let mut folded = Vec::new();
    Folder::from(FoldOptions::default()).collapse(Cursor::new(script.stdout), &mut folded)?;
    let mut options = Options::default();
    options.title = "quorate-bench log: engine and bare ring, one record at a time".to_owned();
    let lines = std::str::from_utf8(&folded)?.lines();
    flamegraph::from_lines(&mut options, lines, File::create(path)?)?;
    Ok(())
}
