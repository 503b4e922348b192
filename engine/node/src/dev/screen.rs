//! Where the supervisor's words go: a table redrawn in place on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};

/// Up by some lines, then erase to the end of the screen.
const ERASE_BELOW: &str = "\x1b[J";
/// Lines longer than the terminal is wide are cut, so that a table stays as many lines as it has.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Standard output as the supervisor uses it.
pub(super) struct Screen<W: Write> {
    out: W,
    is_terminal: bool,
    table: Vec<String>,
    /// Lines of the table that are on the terminal now.
    drawn: usize,
}

impl Screen<io::Stdout> {
    pub(super) fn stdout() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        Self::new(out, is_terminal)
    }
}

impl<W: Write> Screen<W> {
    fn new(out: W, is_terminal: bool) -> Self {
        Self {
            out,
            is_terminal,
            table: Vec::new(),
            drawn: 0,
        }
    }

    /// Whether a table can be redrawn in place.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        self.erase()?;
        writeln!(self.out, "{line}")?;
        self.draw()
    }

    /// The table as it is now. Nothing happens elsewhere than on a terminal, or without a change.
    pub(super) fn show(&mut self, table: Vec<String>) -> io::Result<()> {
        if !self.is_terminal || (table == self.table && self.drawn > 0) {
            return Ok(());
        }
        self.erase()?;
        self.table = table;
        self.draw()
    }

    fn erase(&mut self) -> io::Result<()> {
        if self.drawn > 0 {
            write!(self.out, "\r\x1b[{}A{ERASE_BELOW}", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        if !self.table.is_empty() {
            write!(self.out, "{WRAP_OFF}")?;
            for line in &self.table {
                writeln!(self.out, "{line}")?;
            }
            write!(self.out, "{WRAP_ON}")?;
            self.drawn = self.table.len();
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_terminal: bool, steps: impl FnOnce(&mut Screen<Vec<u8>>)) -> String {
        let mut screen = Screen::new(Vec::new(), is_terminal);
        steps(&mut screen);
        String::from_utf8(screen.out).unwrap()
    }

    #[test]
    fn a_table_is_redrawn_in_place_below_what_was_said() {
        let text = written(true, |screen| {
            screen.show(vec!["a".into(), "b".into()]).unwrap();
            screen.say("gone").unwrap();
            screen.show(vec!["c".into()]).unwrap();
        });
        let erase = "\r\x1b[2A\x1b[J";
        let table = "\x1b[?7la\nb\n\x1b[?7h";
        let last = "\x1b[?7lc\n\x1b[?7h";
        assert_eq!(text, format!("{table}{erase}gone\n{table}{erase}{last}"));
    }

    #[test]
    fn an_unchanged_table_is_not_drawn_again() {
        let text = written(true, |screen| {
            screen.show(vec!["a".into()]).unwrap();
            screen.show(vec!["a".into()]).unwrap();
        });
        assert_eq!(text.matches('a').count(), 1);
    }

    #[test]
    fn elsewhere_there_are_plain_lines_and_no_table() {
        let text = written(false, |screen| {
            screen.show(vec!["a".into()]).unwrap();
            screen.say("gone").unwrap();
        });
        assert_eq!(text, "gone\n");
    }
}
