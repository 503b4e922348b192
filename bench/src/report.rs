//! Reports: measures a topic anew, and writes down the question, the machine, the command, what
//! came out, and where we lose. One command makes a whole report.
//!
//! This file decides what is in it; `machine` says where it was measured, `plot` and `flame` draw.

mod flame;
mod machine;
mod plot;

use machine::Machine;
use quorate::flush_probe::{self, Choice};
use quorate_ring::Engine;
use serde_json::Value;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the flush methods are compared, idle and again busy.
const METHODS_MEASURED: Duration = Duration::from_secs(8);

/// What counts as lost.
const LATENCY_RATIO_MAX: f64 = 1.10;
const BANDWIDTH_RATIO_MIN: f64 = 0.90;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to report on
    #[arg(value_parser = ["storage"])]
    topic: String,
    /// Where the report goes
    #[arg(long, default_value = "perf-reports")]
    out: PathBuf,
    /// Where the logs are written; must be on the disk that is meant
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Pairs of blocks for each row
    #[arg(long, default_value_t = 30)]
    pairs: usize,
    /// The report's date, as in its name
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let report = Report {
        arguments,
        name: format!("{}-{}", arguments.date, arguments.topic),
    };
    fs::create_dir_all(&arguments.out)?;
    let text = report.storage()?;
    let path = report.path("md");
    fs::write(&path, text)?;
    println!("{}", path.display());
    Ok(())
}

struct Report<'a> {
    arguments: &'a Arguments,
    name: String,
}

impl Report<'_> {
    fn path(&self, extension: &str) -> PathBuf {
        self.arguments
            .out
            .join(format!("{}.{extension}", self.name))
    }

    /// Runs this program with `arguments` and `--json`, and keeps what it says.
    fn measure(&self, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        eprintln!("quorate-bench {}", arguments.join(" "));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).arg("--json").arg("--dir");
        let output = command
            .arg(&self.arguments.dir)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{} failed: {}", arguments.join(" "), output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn storage(&self) -> Result<String, Box<dyn Error>> {
        let pairs = self.arguments.pairs.to_string();
        let log_arguments = ["log", "--cpu", "0", "--overlap", "10", "--pairs", &pairs];
        let log = self.measure(&log_arguments)?;
        let methods = flush_probe::probe(&self.arguments.dir, Engine::Uring, METHODS_MEASURED)?;
        let commit_arguments = [
            "commit",
            "--clients",
            "1",
            "--seconds",
            "5",
            "--reader",
            "50",
        ];
        let commit = self.measure(&commit_arguments)?;
        let open = self.measure(&["open"])?;
        let raw = serde_json::json!({
            "log": log, "flush_methods": methods, "commit_beside_reader": commit, "open": open,
        });
        fs::write(
            self.path("json"),
            serde_json::to_string_pretty(&raw)? + "\n",
        )?;
        fs::write(self.path("csv"), csv(&log["rows"]))?;
        plot::latency_by_size(&self.path("svg"), &log["rows"])?;
        let drawn = flame::draw(
            &self.arguments.out.join(format!("{}-flame.svg", self.name)),
            &["log", "--rolls", "0", "--pairs", "20", "--row", "1 x 256"],
            &self.arguments.dir,
        );
        let mut text = String::new();
        let out = &mut text;
        writeln!(
            out,
            "# The log against a bare ring, {}\n",
            self.arguments.date
        )?;
        out.push_str(QUESTION);
        writeln!(out, "{}\n", Machine::of(&self.arguments.dir)?)?;
        self.command(out)?;
        groups(out, &log, &self.name)?;
        rolls(out, &log["rolls"])?;
        overlap(out, &log["overlap"])?;
        flush_methods(out, &methods)?;
        reader(out, &commit[0])?;
        opening(out, &open)?;
        flamegraph(out, drawn, &self.name)?;
        lost(out, &log)?;
        Ok(text)
    }

    fn command(&self, out: &mut String) -> Result<(), Box<dyn Error>> {
        writeln!(
            out,
            "**Command** (commit {}), which writes this report with its data and pictures:\n\n\
             ```sh\nquorate-bench report {} --pairs {} --date {}\n```\n\n\
             All numbers: `{}.json`; the rows by size: `{}.csv`.\n",
            machine::commit(),
            self.arguments.topic,
            self.arguments.pairs,
            self.arguments.date,
            self.name,
            self.name
        )?;
        Ok(())
    }
}

const QUESTION: &str = "\
**Question.** What does the storage engine (group formation, marks, bookkeeping) add to the writes
and flushes that it is made of? Engine and bare ring do the same writes and flushes on the same CPU,
in alternating blocks; each pair of blocks gives a ratio, and the median of the pairs is shown with
its 95 % interval.\n\n";

/// A number of a row, as text with so many digits.
fn number(row: &Value, key: &str, digits: usize) -> String {
    let value = row[key].as_f64();
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

fn list(rows: &Value) -> &[Value] {
    rows.as_array().map_or(&[], Vec::as_slice)
}

fn is_busy(row: &Value) -> bool {
    let shape = row["shape"].as_str().unwrap_or_default();
    shape.ends_with("without a pause")
}

fn is_lost(row: &Value) -> bool {
    let ratio = row["ratio"].as_f64().unwrap_or(f64::NAN);
    match is_busy(row) {
        true => ratio < BANDWIDTH_RATIO_MIN,
        false => ratio > LATENCY_RATIO_MAX,
    }
}

fn csv(rows: &Value) -> String {
    let keys = [
        "shape",
        "group_bytes",
        "pairs",
        "engine_p50_us",
        "engine_p99_us",
        "raw_p50_us",
        "raw_p99_us",
        "ratio",
        "ratio_low",
        "ratio_high",
        "enters_per_group",
    ];
    let mut text = keys.join(",") + "\n";
    for row in list(rows) {
        let cells: Vec<String> = keys.iter().map(|key| row[key].to_string()).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

fn groups(out: &mut String, log: &Value, name: &str) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "| group | bytes | engine p50 us | p99 | ring p50 us | p99 | ratio | 95 % |\n\
         |---|---|---|---|---|---|---|---|"
    )?;
    for row in list(&log["rows"]) {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {}{} | {} to {} |",
            row["shape"].as_str().unwrap_or_default(),
            row["group_bytes"],
            number(row, "engine_p50_us", 1),
            number(row, "engine_p99_us", 1),
            number(row, "raw_p50_us", 1),
            number(row, "raw_p99_us", 1),
            number(row, "ratio", 3),
            if is_lost(row) { " (lost)" } else { "" },
            number(row, "ratio_low", 3),
            number(row, "ratio_high", 3),
        )?;
    }
    writeln!(
        out,
        "\nThe ratio is of latency, engine to ring; without a pause it is of bandwidth.\n\n\
         ![latency by size of group]({name}.svg)\n\n\
         `latency_ratio_to_raw` {} (goal: at most {LATENCY_RATIO_MAX}), \
         `bandwidth_ratio_to_raw` {} (goal: at least {BANDWIDTH_RATIO_MIN}).\n",
        number(log, "latency_ratio_to_raw", 3),
        number(log, "bandwidth_ratio_to_raw", 3)
    )?;
    Ok(())
}

fn rolls(out: &mut String, rolls: &Value) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "## Where segments end\n\nOne append of 8 KB at a time, segments of 8 MiB.\n\n\
         | appends | count | p50 us | p99 | p99.9 |\n|---|---|---|---|---|"
    )?;
    for (name, key) in [
        ("the next segment is ready", "quiet"),
        ("it is being prepared", "preparing"),
    ] {
        writeln!(
            out,
            "| {name} | {} | {} | {} | {} |",
            rolls[key],
            number(rolls, &format!("{key}_p50_us"), 1),
            number(rolls, &format!("{key}_p99_us"), 1),
            number(rolls, &format!("{key}_p999_us"), 1)
        )?;
    }
    writeln!(
        out,
        "\nThe first append after a roll takes {} us in the median of {} rolls, {} us at most: \
         {} us over the quiet 99th percentile (goal: at most 300).\n",
        number(rolls, "first_p50_us", 1),
        rolls["rolls"],
        number(rolls, "first_max_us", 1),
        number(rolls, "first_over_quiet_p99_us", 1)
    )?;
    Ok(())
}

fn overlap(out: &mut String, rows: &Value) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "## Should a group be written while the one before is flushed?\n\nBare rings. What a \
         commit sees under load is half the distance of two groups and the latency of one.\n\n\
         | group bytes | serial groups/s | commit us | overlapped groups/s | commit us |\n\
         |---|---|---|---|---|"
    )?;
    for row in list(rows) {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            row["group_bytes"],
            number(row, "serial_groups_per_s", 0),
            number(row, "serial_commit_us", 1),
            number(row, "overlapped_groups_per_s", 0),
            number(row, "overlapped_commit_us", 1)
        )?;
    }
    out.push('\n');
    Ok(())
}

fn flush_methods(out: &mut String, methods: &Choice) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "## Flush methods\n\nThe engine with groups of one record, as `quorate format` compares \
         them, but for longer. Busy: a spinning thread on every CPU.\n\n\
         | method | groups | idle p50 us | idle p99 | busy p50 us | busy p99 | |\n\
         |---|---|---|---|---|---|---|"
    )?;
    for row in &methods.rows {
        let chosen = if row.method == methods.method {
            "chosen"
        } else {
            ""
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {chosen} |",
            row.method,
            row.groups,
            row.idle_p50_us,
            row.idle_p99_us,
            row.busy_p50_us,
            row.busy_p99_us
        )?;
    }
    out.push('\n');
    Ok(())
}

fn reader(out: &mut String, commit: &Value) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "## Commits beside a reader\n\nThree voters on this machine, one client, and a consumer \
         that reads the old part of the log at {} MB/s: p99 {} us, {} times that of the rounds \
         without it (median of rounds in turn; goal: at most 1.5).\n",
        number(commit, "reader_mb_per_s", 1),
        number(commit, "p99_us", 1),
        number(commit, "p99_ratio_with_reader", 2)
    )?;
    Ok(())
}

fn opening(out: &mut String, open: &Value) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "## Opening and scanning\n\n```json\n{}\n```\n",
        serde_json::to_string_pretty(open)?
    )?;
    Ok(())
}

fn flamegraph(
    out: &mut String,
    drawn: Result<(), Box<dyn Error>>,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    match drawn {
        Ok(()) => writeln!(
            out,
            "## Where the time goes\n\n![flamegraph of engine and ring, one record at a time]\
             ({name}-flame.svg)\n"
        )?,
        Err(error) => writeln!(out, "No flamegraph: {error}.\n")?,
    }
    Ok(())
}

fn lost(out: &mut String, log: &Value) -> Result<(), Box<dyn Error>> {
    let lost: Vec<&Value> = list(&log["rows"])
        .iter()
        .filter(|row| is_lost(row))
        .collect();
    writeln!(out, "## What we lose\n")?;
    if lost.is_empty() {
        writeln!(out, "No row misses its goal.")?;
    }
    for row in lost {
        let shape = row["shape"].as_str().unwrap_or_default();
        writeln!(out, "- {shape}: ratio {}", number(row, "ratio", 3))?;
    }
    Ok(())
}

/// Where a picture of `name` would be.
fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("quorate-bench-{}-{name}", std::process::id()))
}
