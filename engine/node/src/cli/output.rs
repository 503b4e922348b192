//! Standard output as a value that can fail. `println!` would panic when the reader is gone.

use std::io::{self, StdoutLock, Write};

/// Standard output, buffered until [`Output::flush`].
pub(super) struct Output {
    out: io::BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(super) fn new() -> Self {
        Self {
            out: io::BufWriter::new(io::stdout().lock()),
        }
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: impl std::fmt::Display) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Adds a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        writeln!(self.out)
    }

    /// Shows what was added.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
