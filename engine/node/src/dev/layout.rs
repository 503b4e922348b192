//! What `quorate dev` keeps on disk: `<dir>/voter-<id>/` with the voter's data and
//! `server.properties`.
//!
//! Made once. Later starts take the files as they are, so an operator may edit them; only files
//! that are still as they were made are made anew, for another base port or after a move of the
//! directory.

use super::{DevError, DevOptions};
use crate::config::{ServerConfig, uuid};
use crate::format::{self, FormatError, FormatRequest};
use crate::meta_properties;
use quorate_raft::{Endpoint, NodeId};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const VOTERS: u8 = 3;
const BASE_PORT: u16 = 9092;
/// Distance of a voter's peer port from its client port.
const PEER_PORTS: u16 = 100;
/// Distance of its admin port.
const ADMIN_PORTS: u16 = 150;
const PROPERTIES: &str = "server.properties";

/// One voter's place.
#[derive(Clone, Debug)]
pub(super) struct VoterPlan {
    pub id: NodeId,
    pub dir: PathBuf,
    pub config: ServerConfig,
}

impl VoterPlan {
    /// Where it serves clients.
    pub(super) fn address(&self) -> Option<&Endpoint> {
        let listener = self.config.client_listeners.first();
        listener.map(|listener| &listener.advertised)
    }

    /// Where it serves its peers.
    pub(super) fn peer_address(&self) -> &Endpoint {
        &self.config.raft_listener().advertised
    }

    /// Where it shows itself, unless it does not.
    pub(super) fn page_address(&self) -> Option<String> {
        let listener = self.config.admin_listener.as_ref();
        listener.map(|endpoint| format!("http://{endpoint}/"))
    }

    /// Where its process writes its log.
    pub(super) fn log_path(&self) -> PathBuf {
        self.dir.join("log.txt")
    }
}

/// The whole directory, ready for a start.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub dir: PathBuf,
    pub cluster_id: String,
    /// Ids from 1, ascending.
    pub voters: Vec<VoterPlan>,
}

impl Layout {
    /// The quorum in `options.dir`, made if there is none.
    pub(super) fn prepare(options: &DevOptions) -> Result<Self, DevError> {
        if has_voters(&options.dir)? {
            return Self::existing(options);
        }
        let count = options.voters.unwrap_or(VOTERS);
        let base_port = options.base_port.unwrap_or(BASE_PORT);
        check_ports(base_port, count)?;
        fs::create_dir_all(&options.dir)
            .map_err(DevError::io("create the directory", &options.dir))?;
        quorate_storage::check_data_dir(&options.dir)?;
        let dir = absolute(&options.dir)?;
        let plan = Plan {
            dir: &dir,
            base_port,
            count,
        };
        plan.make(options.now_s)?;
        Self::existing(options)
    }

    /// The quorum in `options.dir`.
    pub(super) fn existing(options: &DevOptions) -> Result<Self, DevError> {
        if !has_voters(&options.dir)? {
            let dir = options.dir.clone();
            return Err(DevError::NothingThere { dir });
        }
        let dir = absolute(&options.dir)?;
        let first = read_config(&dir, 1)?;
        let found = first.voters.len();
        match options.voters.map(usize::from) {
            Some(asked) if asked != found => {
                return Err(DevError::OtherVoters { dir, found, asked });
            }
            _ => {}
        }
        follow_changes(&dir, &first, options.base_port)?;
        let mut voters = Vec::new();
        let mut cluster_id = String::new();
        for id in (1..).take(found) {
            let plan = VoterPlan {
                id,
                dir: voter_dir(&dir, id),
                config: read_config(&dir, id)?,
            };
            cluster_id = read_cluster_id(&dir, &plan)?;
            voters.push(plan);
        }
        Ok(Self {
            dir,
            cluster_id,
            voters,
        })
    }
}

/// What decides the content of all files: where, from which port on, how many.
#[derive(Clone, Copy)]
struct Plan<'a> {
    dir: &'a Path,
    base_port: u16,
    count: u8,
}

impl Plan<'_> {
    /// Writes the files of all voters and formats their directories, for one new cluster.
    fn make(self, now_s: u64) -> Result<(), DevError> {
        let source = Path::new("/dev/urandom");
        let cluster_id = uuid::encode(uuid::random().map_err(DevError::io("read", source))?);
        for id in 1..=NodeId::from(self.count) {
            self.write_properties(id)?;
            let request = FormatRequest {
                cluster_id: Some(&cluster_id),
                ignore_formatted: false,
                now_s,
            };
            format::format(&read_config(self.dir, id)?, request)?;
        }
        Ok(())
    }

    fn write_properties(self, id: NodeId) -> Result<(), DevError> {
        let dir = voter_dir(self.dir, id);
        fs::create_dir_all(&dir).map_err(DevError::io("create the directory", &dir))?;
        let text = self.properties(id)?;
        meta_properties::write_durably(&dir, PROPERTIES, text.as_bytes())
            .map_err(DevError::io("write server.properties in", &dir))
    }

    /// The text of voter `id`'s configuration.
    fn properties(self, id: NodeId) -> Result<String, DevError> {
        let admin_port = self.client_port(id) + ADMIN_PORTS;
        let rest = self.properties_without_admin(id)?;
        Ok(format!("{rest}admin.listener=127.0.0.1:{admin_port}\n"))
    }

    /// The text as it was made before there were admin listeners.
    fn properties_without_admin(self, id: NodeId) -> Result<String, DevError> {
        let peer_port = |id: NodeId| self.client_port(id) + PEER_PORTS;
        let voters =
            (1..=NodeId::from(self.count)).map(|id| format!("{id}@127.0.0.1:{}", peer_port(id)));
        let voters: Vec<_> = voters.collect();
        let log_dir = voter_dir(self.dir, id);
        let unusable = |path: &&str| path.contains([',', '\n', '\r']) || path.ends_with(' ');
        let path = log_dir.to_str().filter(|path| !unusable(path));
        let path = path.ok_or_else(|| DevError::UnusablePath {
            dir: self.dir.to_owned(),
        })?;
        Ok(format!(
            "# Voter {id} of {}, made by quorate dev. docs/configuration.md has all keys.\n\
             node.id={id}\n\
             process.roles=controller\n\
             controller.quorum.voters={}\n\
             listeners=CLIENT://127.0.0.1:{},CONTROLLER://127.0.0.1:{}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n",
            self.count,
            voters.join(","),
            self.client_port(id),
            peer_port(id),
            path.replace('\\', "\\\\"),
        ))
    }

    /// Whether `text` is one that was made for voter `id`, and never edited.
    fn has_made(self, id: NodeId, text: &str) -> Result<bool, DevError> {
        Ok(text == self.properties(id)? || text == self.properties_without_admin(id)?)
    }

    /// Makes the files anew that are of a time without admin listeners. A missing one is found
    /// later.
    fn add_admin_listeners(self) -> Result<(), DevError> {
        for id in 1..=NodeId::from(self.count) {
            let text = fs::read_to_string(properties_path(self.dir, id));
            if text.is_ok_and(|text| {
                self.properties_without_admin(id)
                    .is_ok_and(|old| text == old)
            }) {
                self.write_properties(id)?;
            }
        }
        Ok(())
    }

    fn client_port(self, id: NodeId) -> u16 {
        let rank = u16::try_from(id - 1).expect("ids are 1 to 15");
        self.base_port + rank
    }
}

/// Makes all files anew if the base port or the place of the directory changed since, or if they
/// are of a time without admin listeners.
fn follow_changes(
    dir: &Path,
    first: &ServerConfig,
    base_port: Option<u16>,
) -> Result<(), DevError> {
    let old_dir = first.log_dir.parent().unwrap_or(&first.log_dir);
    let listener = first.client_listeners.first();
    let old_port = listener.map(|listener| listener.bind.port);
    let moved = old_dir != dir;
    let (Some(old_port), Ok(count)) = (old_port, u8::try_from(first.voters.len())) else {
        // Edited beyond recognition: taken as it is.
        return Ok(());
    };
    let port = base_port.unwrap_or(old_port);
    let plan = |dir, base_port| Plan {
        dir,
        base_port,
        count,
    };
    let (old, new) = (plan(old_dir, old_port), plan(dir, port));
    if !moved && port == old_port {
        return new.add_admin_listeners();
    }
    check_ports(port, count)?;
    for id in 1..=NodeId::from(count) {
        let path = properties_path(dir, id);
        let text = fs::read_to_string(&path).map_err(DevError::io("read", &path))?;
        // Made anew already if a change was interrupted.
        if !old.has_made(id, &text)? && !new.has_made(id, &text)? {
            let reason = if moved {
                "the directory's new place"
            } else {
                "--base-port"
            };
            return Err(DevError::Edited { path, reason });
        }
    }
    // Voter 1 last: the next start compares with its file.
    for id in (1..=NodeId::from(count)).rev() {
        new.write_properties(id)?;
    }
    Ok(())
}

fn check_ports(base_port: u16, count: u8) -> Result<(), DevError> {
    let last = u32::from(base_port) + u32::from(ADMIN_PORTS) + u32::from(count) - 1;
    if last > u32::from(u16::MAX) {
        return Err(DevError::PortsTooHigh { base_port, last });
    }
    Ok(())
}

fn voter_dir(dir: &Path, id: NodeId) -> PathBuf {
    dir.join(format!("voter-{id}"))
}

fn properties_path(dir: &Path, id: NodeId) -> PathBuf {
    voter_dir(dir, id).join(PROPERTIES)
}

fn absolute(dir: &Path) -> Result<PathBuf, DevError> {
    fs::canonicalize(dir).map_err(DevError::io("find the directory", dir))
}

/// Whether a voter's directory, of whatever id, is in `dir`.
fn has_voters(dir: &Path) -> Result<bool, DevError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(DevError::io("read the directory", dir)(error)),
    };
    for entry in entries {
        let name = entry.map_err(DevError::io("read the directory", dir))?;
        if name.file_name().to_string_lossy().starts_with("voter-") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_config(dir: &Path, id: NodeId) -> Result<ServerConfig, DevError> {
    let path = properties_path(dir, id);
    if !path.exists() {
        let dir = dir.to_owned();
        return Err(DevError::Incomplete { dir, missing: path });
    }
    Ok(ServerConfig::from_file(&path)?)
}

/// The cluster of a voter whose data is all there.
fn read_cluster_id(dir: &Path, voter: &VoterPlan) -> Result<String, DevError> {
    match format::check_formatted(&voter.config) {
        Ok(meta) => Ok(meta.cluster_id),
        Err(FormatError::NotFormatted { .. }) => Err(DevError::Incomplete {
            dir: dir.to_owned(),
            missing: voter.config.log_dir.join(meta_properties::FILE_NAME),
        }),
        Err(FormatError::LogMissing { missing, .. }) => Err(DevError::Incomplete {
            dir: dir.to_owned(),
            missing,
        }),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> DevOptions {
        DevOptions {
            voters: None,
            dir: dir.to_owned(),
            base_port: None,
            json: false,
            logging: super::super::VoterLogging::default(),
            now_s: 0,
        }
    }

    fn addresses(layout: &Layout) -> Vec<(String, String)> {
        let addresses = |voter: &VoterPlan| {
            let client = voter.address().unwrap();
            (client.to_string(), voter.peer_address().to_string())
        };
        layout.voters.iter().map(addresses).collect()
    }

    /// Made directly: the file system under the tests need not be one for logs.
    fn made(dir: &Path, base_port: u16, count: u8) -> Layout {
        let dir = &absolute(dir).unwrap();
        let plan = Plan {
            dir,
            base_port,
            count,
        };
        plan.make(0).unwrap();
        Layout::existing(&options(dir)).unwrap()
    }

    #[test]
    fn voters_have_the_documented_ports_and_one_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let layout = made(dir.path(), 9092, 3);
        let expected = [
            ("127.0.0.1:9092", "127.0.0.1:9192"),
            ("127.0.0.1:9093", "127.0.0.1:9193"),
            ("127.0.0.1:9094", "127.0.0.1:9194"),
        ];
        let expected = expected.map(|(client, peer)| (client.to_owned(), peer.to_owned()));
        assert_eq!(addresses(&layout), expected);
        for voter in &layout.voters {
            let meta = format::check_formatted(&voter.config).unwrap();
            assert_eq!(meta.cluster_id, layout.cluster_id);
            assert_eq!(meta.node_id, voter.id);
            assert_eq!(voter.config.voters.len(), 3);
        }
    }

    #[test]
    fn another_number_of_voters_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path(), 9092, 3);
        let asked = |voters| {
            Layout::existing(&DevOptions {
                voters: Some(voters),
                ..options(dir.path())
            })
        };
        assert_eq!(asked(3).unwrap().voters.len(), 3);
        let fault = asked(5).unwrap_err().to_string();
        assert!(
            fault.contains("with 3 voters") && fault.contains("asks for 5"),
            "{fault}"
        );
    }

    #[test]
    fn another_base_port_or_place_changes_all_files() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        fs::create_dir(&old).unwrap();
        let cluster_id = made(&old, 9092, 2).cluster_id;
        let place = dir.path().join("new\\place");
        fs::rename(&old, &place).unwrap();
        let moved = DevOptions {
            base_port: Some(20_000),
            ..options(&place)
        };
        let layout = Layout::existing(&moved).unwrap();
        assert_eq!(layout.cluster_id, cluster_id);
        let ports = addresses(&layout);
        assert_eq!(ports[1].0, "127.0.0.1:20001");
        assert_eq!(ports[1].1, "127.0.0.1:20101");
        let config = &layout.voters[1].config;
        assert_eq!(config.log_dir, absolute(&place).unwrap().join("voter-2"));
    }

    #[test]
    fn files_of_a_time_without_admin_listeners_get_one_unless_edited() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path(), 9092, 2);
        let without = |id: NodeId| {
            let path = properties_path(dir.path(), id);
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("admin."));
            fs::write(
                &path,
                lines.map(|line| format!("{line}\n")).collect::<String>(),
            )
            .unwrap();
        };
        without(1);
        without(2);
        let layout = Layout::existing(&options(dir.path())).unwrap();
        let pages: Vec<_> = layout.voters.iter().map(VoterPlan::page_address).collect();
        let expected = ["http://127.0.0.1:9242/", "http://127.0.0.1:9243/"];
        assert_eq!(pages, expected.map(|page| Some(page.to_owned())));
    }

    #[test]
    fn an_edited_file_is_taken_as_it_is_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path(), 9092, 2);
        let path = properties_path(dir.path(), 2);
        let text = fs::read_to_string(&path).unwrap() + "quorate.cores=fused\n";
        fs::write(&path, &text).unwrap();
        let layout = Layout::existing(&options(dir.path())).unwrap();
        assert_eq!(layout.voters[1].config.cores, crate::config::Cores::Fused);
        let elsewhere = DevOptions {
            base_port: Some(20_000),
            ..options(dir.path())
        };
        let fault = Layout::existing(&elsewhere).unwrap_err().to_string();
        assert!(
            fault.contains("was edited") && fault.contains("--base-port"),
            "{fault}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_voter_that_lost_its_data_is_not_made_anew() {
        for lost in ["voter-1", "voter-2", "voter-2/__cluster_metadata-0"] {
            let dir = tempfile::tempdir().unwrap();
            made(dir.path(), 9092, 3);
            fs::remove_dir_all(dir.path().join(lost)).unwrap();
            let fault = Layout::prepare(&options(dir.path())).unwrap_err();
            assert!(
                matches!(fault, DevError::Incomplete { .. }),
                "{lost}: {fault}"
            );
            assert!(!dir.path().join(lost).exists());
        }
    }

    #[test]
    fn without_a_quorum_no_single_voter_runs() {
        let dir = tempfile::tempdir().unwrap();
        for dir in [dir.path().to_owned(), dir.path().join("none")] {
            let fault = super::super::only(&options(&dir), 1).unwrap_err();
            assert!(matches!(fault, DevError::NothingThere { .. }), "{fault}");
        }
        made(dir.path(), 9092, 3);
        assert_eq!(
            super::super::only(&options(dir.path()), 3).unwrap().node_id,
            3
        );
        let fault = super::super::only(&options(dir.path()), 4).unwrap_err();
        assert!(matches!(fault, DevError::NoSuchVoter { voters: 3, .. }));
    }

    #[test]
    fn ports_that_do_not_exist_are_refused() {
        assert!(check_ports(65_383, 3).is_ok());
        let fault = check_ports(65_384, 3).unwrap_err();
        assert!(matches!(fault, DevError::PortsTooHigh { last: 65_536, .. }));
    }
}
