//! Java's `.properties` text: the form of configuration files and of meta.properties.
//!
//! Reads what `java.util.Properties.load` reads (comments, continued lines, `=`, `:` or white space
//! between key and value, escapes) and writes what `store` writes. Two differences, both on
//! purpose: the text is UTF-8, and a key that stands there twice is an error, since with Java's
//! "the last one wins" an operator reads one line and the node obeys another. It knows nothing of
//! which keys exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One `key = value` with the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The key, escapes resolved.
    pub key: String,
    /// The value, escapes resolved. White space at its end is kept, as Java does.
    pub value: String,
    /// Line of the key, from 1.
    pub line: usize,
}

/// Why a text is not a properties text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    /// `\u` without four hexadecimal digits, or half of a surrogate pair.
    #[error("\\u needs four hexadecimal digits that name a character")]
    BadUnicodeEscape {
        /// Where the entry begins.
        line: usize,
    },
    /// A line with a value but no key.
    #[error("no key before the separator")]
    EmptyKey {
        /// Where.
        line: usize,
    },
    /// The same key again.
    #[error("{key} stands already on line {first_line}; remove one of them")]
    DuplicateKey {
        /// Which.
        key: String,
        /// The earlier one.
        first_line: usize,
        /// The later one.
        line: usize,
    },
}

impl PropertiesError {
    /// The line on which the fault is, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::BadUnicodeEscape { line }
            | Self::EmptyKey { line }
            | Self::DuplicateKey { line, .. } => *line,
        }
    }
}

/// All entries of `text`, in the order in which they stand there.
///
/// # Errors
/// The first fault, with its line. Any text gets an answer; nothing panics.
pub fn parse(text: &str) -> Result<Vec<Property>, PropertiesError> {
    let mut properties = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (line, logical) in logical_lines(text) {
        let property = parse_entry(line, &logical)?;
        if let Some(first_line) = seen.insert(property.key.clone(), line) {
            let key = property.key;
            return Err(PropertiesError::DuplicateKey {
                key,
                first_line,
                line,
            });
        }
        properties.push(property);
    }
    Ok(properties)
}

/// `entries` as text that [`parse`] and Java read back, one a line, after `comments`.
#[must_use]
pub fn write(comments: &[&str], entries: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for comment in comments {
        text.push('#');
        text.push_str(comment);
        text.push('\n');
    }
    for (key, value) in entries {
        escape(key, true, &mut text);
        text.push('=');
        escape(value, false, &mut text);
        text.push('\n');
    }
    text
}

/// Lines with their continuations joined, blank lines and comments left out.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, natural) in text.split('\n').enumerate() {
        let content = natural.trim_start_matches(is_blank);
        let (line, mut logical) = match open.take() {
            Some(open) => open,
            None if content.is_empty() || content.starts_with(['#', '!']) => continue,
            None => (index + 1, String::new()),
        };
        if let Some(head) = without_continuation(content) {
            logical.push_str(head);
            open = Some((line, logical));
        } else {
            logical.push_str(content);
            lines.push((line, logical));
        }
    }
    lines.extend(open.filter(|(_, logical)| !logical.is_empty()));
    lines
}

/// The line without its last backslash, if that backslash continues it (is not itself escaped).
fn without_continuation(content: &str) -> Option<&str> {
    let backslashes = content.len() - content.trim_end_matches('\\').len();
    (backslashes % 2 == 1).then(|| &content[..content.len() - 1])
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Splits at the first separator that is not escaped: white space, or one `=` or `:` with white
/// space around it.
fn parse_entry(line: usize, logical: &str) -> Result<Property, PropertiesError> {
    let key_end = key_end(logical);
    let rest = logical[key_end..].trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    let key = unescape(line, &logical[..key_end])?;
    if key.is_empty() {
        return Err(PropertiesError::EmptyKey { line });
    }
    let value = unescape(line, rest.trim_start_matches(is_blank))?;
    Ok(Property { key, value, line })
}

fn key_end(logical: &str) -> usize {
    let mut escaped = false;
    for (at, c) in logical.char_indices() {
        if !escaped && (is_blank(c) || c == '=' || c == ':') {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    logical.len()
}

fn unescape(line: usize, raw: &str) -> Result<String, PropertiesError> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else { break };
        rest = &rest[c.len_utf8()..];
        match c {
            't' => text.push('\t'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            'f' => text.push('\u{c}'),
            'u' => {
                let (c, after) =
                    unicode_escape(rest).ok_or(PropertiesError::BadUnicodeEscape { line })?;
                text.push(c);
                rest = after;
            }
            other => text.push(other),
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// The character of four hex digits (or `hhhh\uhhhh` for a surrogate pair) at the start of `text`,
/// and what follows it.
fn unicode_escape(text: &str) -> Option<(char, &str)> {
    let (unit, rest) = hex_unit(text)?;
    if let Some(c) = char::from_u32(unit) {
        return Some((c, rest));
    }
    let (low, after) = hex_unit(rest.strip_prefix("\\u")?)?;
    let units = [u16::try_from(unit).ok()?, u16::try_from(low).ok()?];
    let c = char::decode_utf16(units).next()?.ok()?;
    Some((c, after))
}

fn hex_unit(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

/// Escapes as `java.util.Properties.store`: in keys every space, in values only a leading one.
fn escape(text: &str, is_key: bool, out: &mut String) {
    for (at, c) in text.char_indices() {
        match c {
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '=' | ':' | '#' | '!' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04X}").expect("a String takes everything");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, usize)> {
        let entry = |p: Property| (p.key, p.value, p.line);
        parse(text).unwrap().into_iter().map(entry).collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        let (key, value, _) = all.remove(0);
        (key, value)
    }

    #[test]
    fn equals_colon_and_white_space_separate_key_from_value() {
        for text in [
            "a=b c",
            "a:b c",
            "a b c",
            "a\tb c",
            "  a \t=  b c",
            "a : b c",
        ] {
            assert_eq!(one(text), ("a".into(), "b c".into()), "{text:?}");
        }
    }

    #[test]
    fn only_the_first_separator_counts() {
        assert_eq!(
            one("listeners=CONTROLLER://h:1"),
            ("listeners".into(), "CONTROLLER://h:1".into())
        );
        assert_eq!(one("a==b"), ("a".into(), "=b".into()));
        assert_eq!(one("a"), ("a".into(), String::new()));
    }

    #[test]
    fn comments_and_blank_lines_count_as_lines() {
        let text = "# one\n\n  ! two=2\nkey=value\r\n\rlast:1";
        assert_eq!(
            pairs(text),
            [
                ("key".into(), "value".into(), 4),
                ("last".into(), "1".into(), 6)
            ]
        );
    }

    #[test]
    fn a_backslash_at_the_end_continues_the_line_without_its_indent() {
        let text = "voters=1@a:1,\\\n    2@b:2,\\\n    3@c:3\nnext=1";
        assert_eq!(
            pairs(text),
            [
                ("voters".into(), "1@a:1,2@b:2,3@c:3".into(), 1),
                ("next".into(), "1".into(), 4)
            ]
        );
    }

    #[test]
    fn an_escaped_backslash_at_the_end_continues_nothing() {
        assert_eq!(
            pairs("path=c\\\\\nnext=1"),
            [
                ("path".into(), "c\\".into(), 1),
                ("next".into(), "1".into(), 2)
            ]
        );
    }

    #[test]
    fn a_continued_line_may_begin_like_a_comment() {
        assert_eq!(one("a=1\\\n#2"), ("a".into(), "1#2".into()));
    }

    #[test]
    fn a_comment_cannot_be_continued() {
        assert_eq!(one("# comment \\\na=1"), ("a".into(), "1".into()));
    }

    #[test]
    fn escapes_stand_for_characters() {
        assert_eq!(
            one("a\\ b\\=c=\\t\\u00e4\\z\\\\"),
            ("a b=c".into(), "\täz\\".into())
        );
        assert_eq!(one("a=\\uD83D\\uDE00"), ("a".into(), "😀".into()));
    }

    #[test]
    fn a_broken_unicode_escape_names_its_line() {
        for text in [
            "\na=\\u12",
            "\na=\\u12g4",
            "\na=\\uD83D",
            "\na=\\uD83Dx",
            "\na=\\u+123",
        ] {
            let fault = PropertiesError::BadUnicodeEscape { line: 2 };
            assert_eq!(parse(text), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn a_key_given_twice_names_both_lines() {
        let fault = PropertiesError::DuplicateKey {
            key: "node.id".into(),
            first_line: 1,
            line: 3,
        };
        assert_eq!(parse("node.id=1\n\nnode.id: 1"), Err(fault));
    }

    #[test]
    fn a_value_without_key_is_an_error() {
        assert_eq!(parse(" = 5"), Err(PropertiesError::EmptyKey { line: 1 }));
    }

    #[test]
    fn what_is_written_reads_back() {
        let entries = [
            ("plain", "value"),
            ("with space", " leading and trailing "),
            ("a=b:c#d!e\\", "x=y:z\t\n\r\u{c}ä😀"),
            ("empty", ""),
        ];
        let text = write(&["comment"], &entries);
        assert!(text.is_ascii());
        let read: Vec<_> = parse(&text).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|p| (p.key.as_str(), p.value.as_str()))
            .collect();
        assert_eq!(read, entries);
    }
}
