//! The commands that make and run nodes: format, random-uuid, server, dev.

use super::CliError;
use super::args::{DevArgs, FormatArgs, ServerArgs};
use super::output::Output;
use crate::config::{ServerConfig, uuid};
use crate::dev::{self, DevOptions, VoterLogging};
use crate::flush_probe::{self, Choice};
use crate::format::{self, FormatError, FormatRequest, Formatted, Meta};
use crate::io_engine;
use crate::meta_properties;
use crate::server;
use quorate_storage::check_data_dir;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};
use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Formats the data directory that the configuration names and says what it has become.
pub(super) fn format(args: &FormatArgs) -> Result<(), CliError> {
    let config = ServerConfig::from_file(&args.config)?;
    let request = FormatRequest {
        cluster_id: args.cluster_id.as_deref(),
        ignore_formatted: args.ignore_formatted,
        now_s: unix_s(),
    };
    check_file_system(&config)?;
    let formatted = format::format(&config, request)?;
    let (verb, meta) = match &formatted {
        Formatted::New(meta) => ("formatted", meta),
        Formatted::Already(meta) => ("was already formatted, nothing changed:", meta),
    };
    let Meta {
        cluster_id,
        node_id,
        directory_id,
    } = meta;
    let mut out = Output::new();
    out.line(format_args!(
        "{} {verb} for node {node_id} of cluster {cluster_id}, directory id {}",
        config.log_dir.join(meta_properties::FILE_NAME).display(),
        uuid::encode(*directory_id)
    ))?;
    choose_flush_method(&config, args.flush_method.as_deref(), &mut out)?;
    Ok(out.flush()?)
}

/// Stores how the log is to be flushed: as told, or as tried out, once for a device.
fn choose_flush_method(
    config: &ServerConfig,
    told: Option<&str>,
    out: &mut Output,
) -> Result<(), CliError> {
    let dir = &config.log_dir;
    let device = flush_probe::device_of(dir)?;
    let choice = match told {
        Some(method) => Choice {
            method: method.into(),
            device,
            rows: Vec::new(),
        },
        None => {
            let is_known = |choice: &Choice| choice.device == device;
            if flush_probe::read(dir).is_ok_and(|found| found.as_ref().is_some_and(is_known)) {
                return Ok(());
            }
            let engine = match io_engine::choose(config.io_engine) {
                Ok(engine) => engine,
                Err(error) => {
                    out.line(format_args!("flush methods are not tried out: {error}"))?;
                    return Ok(());
                }
            };
            flush_probe::probe(dir, engine, flush_probe::MEASURED)?
        }
    };
    flush_probe::write(dir, &choice)?;
    Ok(out.line(choice)?)
}

/// Says before there is data that a file system cannot keep it. A directory that is somebody's
/// already is left to the checks of formatting.
fn check_file_system(config: &ServerConfig) -> Result<(), CliError> {
    let dir = &config.log_dir;
    if Meta::read(dir).map_err(FormatError::from)?.is_none() {
        fs::create_dir_all(dir).map_err(|source| FormatError::Io {
            operation: "create the directory",
            path: dir.clone(),
            source,
        })?;
        check_data_dir(dir)?;
    }
    Ok(())
}

/// Prints a random id.
pub(super) fn random_uuid() -> Result<(), CliError> {
    let mut out = Output::new();
    out.line(uuid::encode(uuid::random()?))?;
    Ok(out.flush()?)
}

/// Runs a node until it is told to stop.
pub(super) fn server(args: &ServerArgs) -> Result<(), CliError> {
    if let Some(parent) = args.die_with_parent {
        die_with(parent)?;
    }
    let config = ServerConfig::from_file(&args.config)?;
    Ok(server::run(config)?)
}

/// Runs voters on this machine, or one of them in the foreground.
pub(super) fn dev(args: DevArgs, logging: VoterLogging) -> Result<(), CliError> {
    let options = DevOptions {
        voters: args.voters,
        dir: args.dir,
        base_port: args.base_port,
        json: args.json,
        logging,
        now_s: unix_s(),
    };
    match args.only {
        None => Ok(dev::run(&options)?),
        Some(id) => Ok(server::run(dev::only(&options, id)?)?),
    }
}

/// Stops this process gracefully when `parent` ends, so that voters don't outlive their supervisor.
///
/// Not by PR_SET_PDEATHSIG: that comes once for each thread of a killed parent, and a second
/// SIGTERM cuts a graceful stop short.
fn die_with(parent: i32) -> Result<(), CliError> {
    let gone = CliError::ParentGone { parent };
    let Some(pid) = Pid::from_raw(parent) else {
        return Err(gone);
    };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Err(gone);
    };
    // It may have ended before, and its id may be somebody else's by now.
    if getppid() != Some(pid) {
        return Err(gone);
    }
    let watch = move || {
        let mut ends = [PollFd::new(&handle, PollFlags::IN)];
        while poll(&mut ends, None) == Err(Errno::INTR) {}
        // To this process: there is nobody who could refuse it.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let thread = thread::Builder::new().name("parent-watch".into());
    thread.spawn(watch)?;
    Ok(())
}

#[allow(clippy::disallowed_methods)] // the command line is where time comes in
fn unix_s() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs())
}
