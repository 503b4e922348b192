//! Brings the clients here by their package managers, at the versions pinned in this directory,
//! into a cache outside of the repository.
//!
//! The cache is `$QUORATE_INTEROP_CACHE`, else `~/.cache/quorate-interop`. What is there already at
//! the right version is not brought again. A tool that is missing is named in one line.

use crate::common::{Finished, run, s};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Downloads over a slow line.
const INSTALL_LIMIT: Duration = s(240);
/// The Maven plugin that copies a project's dependencies.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// What a client is written in, or comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// Debian's package.
    Kcat,
    /// pip, into a virtual environment.
    Python,
    /// Maven.
    Java,
    /// Go modules.
    Go,
    /// npm.
    Node,
}

/// A toolchain with its clients in place.
pub struct Ready {
    toolchain: Toolchain,
    cache: PathBuf,
}

impl Toolchain {
    /// Where its programs and version pins are.
    fn sources(self) -> PathBuf {
        let name = match self {
            Self::Kcat => "kcat",
            Self::Python => "python",
            Self::Java => "java",
            Self::Go => "go",
            Self::Node => "node",
        };
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/interop")
            .join(name)
    }

    /// The files that decide what is in the cache.
    fn pins(self) -> &'static [&'static str] {
        match self {
            Self::Kcat => &[],
            Self::Python => &["requirements.txt"],
            Self::Java => &["pom.xml"],
            Self::Go => &["go.mod", "go.sum", "client.go"],
            Self::Node => &["package.json"],
        }
    }

    /// Brings the clients here, unless they are.
    ///
    /// # Panics
    /// If a tool is missing or fails, saying what to install.
    pub fn prepare(self) -> Ready {
        let sources = self.sources();
        let root = cache_root();
        fs::create_dir_all(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
        let cache = root.join(sources.file_name().expect("a name"));
        // Two at a time would bring the same twice, into the same place.
        let lock = File::create(cache.with_extension("lock")).expect("a lock file");
        lock.lock().expect("a lock on a file");

        self.check_tools();
        let stamp = cache.join("stamp");
        let pins: String = self
            .pins()
            .iter()
            .map(|name| read(&sources.join(name)))
            .collect();
        let ready = Ready {
            toolchain: self,
            cache,
        };
        if fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == pins) {
            return ready;
        }
        let _ = fs::remove_dir_all(&ready.cache); // of other versions, or half done
        fs::create_dir_all(&ready.cache).expect("a directory in the cache");
        ready.install(&sources);
        fs::write(stamp, pins).expect("a stamp in the cache");
        ready
    }

    fn check_tools(self) {
        match self {
            Self::Kcat => require_kcat(),
            Self::Python => require("python3", &["--version"], "Python 3 with venv"),
            Self::Java => {
                require("mvn", &["--version"], "Maven");
                require_java();
            }
            Self::Go => require("go", &["version"], "Go 1.26 or later"),
            Self::Node => {
                require("node", &["--version"], "Node.js");
                require("npm", &["--version"], "npm");
            }
        }
    }
}

impl Ready {
    /// Runs one of its programs.
    pub fn command(&self, program: &str) -> Command {
        let path = self.toolchain.sources().join(program);
        match self.toolchain {
            Toolchain::Kcat => Command::new(path),
            Toolchain::Python => with(Command::new(self.cache.join("venv/bin/python")), &[path]),
            Toolchain::Java => {
                let mut java = Command::new("java");
                java.arg("-cp").arg(self.cache.join("lib/*"));
                with(java, &[path])
            }
            Toolchain::Go => Command::new(self.cache.join(program)),
            Toolchain::Node => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", self.cache.join("node_modules"));
                with(node, &[path])
            }
        }
    }

    fn install(&self, sources: &Path) {
        match self.toolchain {
            Toolchain::Kcat => {}
            Toolchain::Python => self.install_python(sources),
            Toolchain::Java => {
                let mut mvn = Command::new("mvn");
                mvn.args(["-q", "-B", MAVEN_COPY, "-f"])
                    .arg(sources.join("pom.xml"));
                mvn.arg(format!(
                    "-DoutputDirectory={}",
                    self.cache.join("lib").display()
                ));
                install(mvn);
            }
            Toolchain::Go => {
                let mut go = Command::new("go");
                go.env("GOTOOLCHAIN", "local")
                    .env("GOFLAGS", "-mod=readonly");
                go.arg("build")
                    .arg("-o")
                    .arg(self.cache.join("client"))
                    .arg(".");
                go.current_dir(sources);
                install(go);
            }
            Toolchain::Node => {
                fs::copy(
                    sources.join("package.json"),
                    self.cache.join("package.json"),
                )
                .expect("a copy in the cache");
                let mut npm = Command::new("npm");
                npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
                npm.arg("--ignore-scripts").current_dir(&self.cache);
                install(npm);
            }
        }
    }

    fn install_python(&self, sources: &Path) {
        let venv = self.cache.join("venv");
        install(with(
            Command::new("python3"),
            &["-m".as_ref(), "venv".as_ref(), venv.as_os_str()],
        ));
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
        ]);
        pip.arg("-r").arg(sources.join("requirements.txt"));
        install(pip);
    }
}

/// The versions that are pinned, by the names that `docs/clients.md` uses. librdkafka's comes with
/// its Rust crate.
pub fn pinned_versions() -> Vec<(&'static str, String)> {
    let find = |file: PathBuf, before: &str, after: char| {
        let text = read(&file);
        let rest = text.split_once(before).map(|(_, rest)| rest);
        let version = rest.and_then(|rest| rest.split(after).next());
        let none = || panic!("{before:?} is not in {}", file.display());
        version.unwrap_or_else(none).trim().to_owned()
    };
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let crate_version = find(lock, "name = \"rdkafka-sys\"\nversion = \"", '"');
    let (_, librdkafka) = crate_version.split_once('+').expect("librdkafka's version");
    let python = |before| {
        find(
            Toolchain::Python.sources().join("requirements.txt"),
            before,
            '\n',
        )
    };
    let (java, go, node) = (Toolchain::Java, Toolchain::Go, Toolchain::Node);
    let jar = "<artifactId>kafka-clients</artifactId>\n      <version>";
    vec![
        ("librdkafka", librdkafka.to_owned()),
        ("confluent-kafka", python("confluent-kafka==")),
        ("kafka-python", python("kafka-python==")),
        ("aiokafka", python("aiokafka==")),
        ("Java", find(java.sources().join("pom.xml"), jar, '<')),
        (
            "franz-go",
            find(go.sources().join("go.mod"), "twmb/franz-go v", '\n'),
        ),
        (
            "kafkajs",
            find(node.sources().join("package.json"), "\"kafkajs\": \"", '"'),
        ),
    ]
}

fn cache_root() -> PathBuf {
    if let Some(root) = env::var_os("QUORATE_INTEROP_CACHE") {
        return root.into();
    }
    let home = env::var_os("HOME").expect("HOME or QUORATE_INTEROP_CACHE");
    PathBuf::from(home).join(".cache/quorate-interop")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn with<A: AsRef<OsStr>>(mut command: Command, arguments: &[A]) -> Command {
    command.args(arguments);
    command
}

fn is_here(tool: &str, arguments: &[&str]) -> Option<Finished> {
    Command::new(tool).args(arguments).output().ok()?; // no such program
    Some(run(with(Command::new(tool), arguments), "", s(60)))
}

fn require(tool: &str, arguments: &[&str], name: &str) {
    let found = is_here(tool, arguments).is_some_and(|finished| finished.status.success());
    assert!(
        found,
        "the feature `interop` needs {name}: `{tool}` is not here"
    );
}

/// A JDK, since the program is run from its source.
fn require_java() {
    let finished = is_here("javac", &["-version"]);
    let version = finished.map(|finished| finished.stdout + &finished.stderr);
    let major = version.as_deref().and_then(|version| {
        version
            .trim()
            .strip_prefix("javac ")?
            .split('.')
            .next()?
            .parse::<u32>()
            .ok()
    });
    assert!(
        major.is_some_and(|major| major >= 17),
        "the feature `interop` needs a JDK of 17 or later; javac says {version:?}"
    );
}

/// kcat, from Debian's packages if this user may install it.
fn require_kcat() {
    if is_here("kcat", &["-V"]).is_some() {
        return;
    }
    let may_install = rustix::process::geteuid().is_root() && is_here("apt-get", &["-v"]).is_some();
    assert!(
        may_install,
        "the feature `interop` needs kcat: install it (apt-get install kcat, as root)"
    );
    let apt_get = |arguments: &[&str]| {
        let mut command = with(
            Command::new("apt-get"),
            &["-q", "-o", "DPkg::Lock::Timeout=120"],
        );
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments);
        run(command, "", INSTALL_LIMIT)
    };
    let package = ["install", "-y", "--no-install-recommends", "kcat"];
    if !apt_get(&package).status.success() {
        apt_get(&["update"]).expect_success();
        apt_get(&package).expect_success();
    }
}

fn install(command: Command) {
    let what = format!("{command:?}");
    let finished = run(command, "", INSTALL_LIMIT);
    assert!(
        finished.status.success(),
        "{what} failed; a client of the feature `interop` is missing:\n{}{}",
        finished.stdout,
        finished.stderr
    );
}
