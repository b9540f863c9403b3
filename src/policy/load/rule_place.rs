//! The place of a rule in its file: for errors that name a line, and for an id that stands only once.

use std::{collections::BTreeMap, ops::Range};

use toml::Spanned;

use super::{MAX_RULES, ParsedFile, find_key, find_text};
use crate::{file_error::PolicyFileError, warning::RuleLocation};

/// The table of one rule.
pub(super) struct RulePlace<'a> {
    file: &'a ParsedFile<'a>,
    table: Range<usize>,
}

/// The rules of one kind in a file, each with its place. A table reaches to the next one of its kind.
pub(super) fn placed<'a, T>(
    file: &'a ParsedFile<'a>,
    rules: &'a [Spanned<T>],
) -> impl Iterator<Item = (&'a T, RulePlace<'a>)> {
    rules.iter().enumerate().map(move |(at, rule)| {
        let start = rule.span().start;
        let end = rules.get(at + 1).map_or(file.text.len(), |next| next.span().start);
        (rule.get_ref(), RulePlace { file, table: start..end.max(start) })
    })
}

impl RulePlace<'_> {
    /// An error at a key of the rule.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> PolicyFileError {
        self.file.error(find_key(self.file.text, self.table.clone(), key), problem)
    }

    /// An error at a text in the rule, or at a key where the text is not found.
    pub(super) fn wrong_text(&self, text: Option<&str>, key: &str, problem: String) -> PolicyFileError {
        match text.and_then(|text| find_text(self.file.text, self.table.clone(), text)) {
            Some(range) => self.file.error(range, problem),
            None => self.wrong(key, problem),
        }
    }

    /// Takes the id for this rule, of which there are `count` of its kind before it.
    ///
    /// # Errors
    /// Another rule of any kind has the id, or there are as many rules as there may be.
    pub(super) fn take_id(
        &self,
        id: &str,
        count: usize,
        locations: &mut BTreeMap<String, RuleLocation>,
        kind: &str,
    ) -> Result<(), PolicyFileError> {
        if let Some(origin) = locations.get(id) {
            return Err(self.wrong("id", format!("id: {id:?} is taken by {}:{}", origin.file, origin.line)));
        }
        if count >= MAX_RULES {
            return Err(self.wrong("id", format!("more than {MAX_RULES} {kind}")));
        }
        let line = self.file.line_at(self.table.start);
        locations.insert(id.to_owned(), RuleLocation { file: self.file.name.to_owned(), line });
        Ok(())
    }
}
