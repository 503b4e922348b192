//! A configuration file's entries, matched against the table of keys and read as typed values.
//!
//! Older names are resolved here, unknown ones refused. What values mean together is
//! [`super::ServerConfig`]'s matter.

use super::keys::{self, Absent, Key, Kind};
use super::{ConfigError, ValueFault};
use crate::properties::{self, Property};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The entries of one file, by the key's own name.
pub(super) struct Values {
    path: PathBuf,
    entries: BTreeMap<&'static str, Property>,
}

impl Values {
    /// Matches the entries of `text` with the table.
    ///
    /// # Errors
    /// Text that is no properties text, a key that is not in the table, a key given under two names
    /// with different values.
    pub(super) fn new(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let syntax = |source| ConfigError::Syntax {
            path: path.to_owned(),
            source,
        };
        let mut values = Self {
            path: path.to_owned(),
            entries: BTreeMap::new(),
        };
        for mut property in properties::parse(text).map_err(syntax)? {
            let trimmed = property.value.trim_end();
            property.value.truncate(trimmed.len());
            values.add(property)?;
        }
        Ok(values)
    }

    fn add(&mut self, property: Property) -> Result<(), ConfigError> {
        let Some(key) = keys::find(&property.key) else {
            return Err(ConfigError::UnknownKey {
                path: self.path.clone(),
                line: property.line,
                nearest: keys::nearest(&property.key),
                key: property.key,
                value: property.value,
            });
        };
        let Some(earlier) = self.entries.get(key.name) else {
            self.entries.insert(key.name, property);
            return Ok(());
        };
        if earlier.value == property.value {
            return Ok(());
        }
        Err(ConfigError::AliasConflict {
            path: self.path.clone(),
            first: Box::new(earlier.clone()),
            second: Box::new(property),
        })
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The entry as it stands in the file. An empty value counts as absent, as in Kafka's
    /// templates.
    pub(super) fn entry(&self, key: &Key) -> Option<&Property> {
        self.entries
            .get(key.name)
            .filter(|entry| !entry.value.is_empty())
    }

    /// The text of `key` or its default; `None` if it is absent and the default is derived.
    ///
    /// # Errors
    /// The key must be given and is not.
    pub(super) fn text(&self, key: &'static Key) -> Result<Option<&str>, ConfigError> {
        if let Some(entry) = self.entry(key) {
            return Ok(Some(&entry.value));
        }
        match key.default {
            Absent::Value(text) => Ok(Some(text)),
            Absent::Derived(_) => Ok(None),
            Absent::Required => Err(self.missing(key)),
        }
    }

    /// The number of `key`; `None` if it is absent and the default is derived.
    ///
    /// # Errors
    /// Not a number, or not in the key's range.
    pub(super) fn int<N: TryFrom<i64>>(&self, key: &'static Key) -> Result<Option<N>, ConfigError> {
        let Kind::Int { min, max, .. } = key.kind else {
            panic!("{} is no number", key.name)
        };
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let number = text.parse().ok();
        let allowed = number.filter(|number| (min..=max).contains(number));
        let fits = allowed.and_then(|number| N::try_from(number).ok());
        fits.map(Some).ok_or_else(|| self.invalid(key, None))
    }

    /// The number of a key that always has one.
    ///
    /// # Errors
    /// As [`Values::int`].
    pub(super) fn set_int<N: TryFrom<i64>>(&self, key: &'static Key) -> Result<N, ConfigError> {
        let number = self.int(key)?;
        Ok(number.expect("the key has a default or is required"))
    }

    /// The truth value of `key`.
    ///
    /// # Errors
    /// Neither `true` nor `false`.
    pub(super) fn bool(&self, key: &'static Key) -> Result<bool, ConfigError> {
        match self.text(key)? {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(self.invalid(key, None)),
        }
    }

    /// The value that `choices` pairs with the word of `key`.
    ///
    /// # Errors
    /// Another word.
    pub(super) fn one_of<T: Copy>(
        &self,
        key: &'static Key,
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let text = self.text(key)?;
        let choice = choices.iter().find(|(word, _)| Some(*word) == text);
        choice
            .map(|(_, choice)| *choice)
            .ok_or_else(|| self.invalid(key, None))
    }

    /// The error of a value that is not allowed, with `fault` beside the table's words if there is
    /// more to say.
    pub(super) fn invalid(&self, key: &'static Key, fault: Option<ValueFault>) -> ConfigError {
        let Some(entry) = self.entries.get(key.name) else {
            return self.missing(key);
        };
        ConfigError::InvalidValue {
            path: self.path.clone(),
            entry: Box::new(entry.clone()),
            allowed: key.kind,
            fault: fault.map(Box::new),
        }
    }

    /// The error of a key that must be given.
    pub(super) fn missing(&self, key: &'static Key) -> ConfigError {
        ConfigError::MissingKey {
            path: self.path.clone(),
            key: key.name,
            allowed: key.kind,
        }
    }
}
