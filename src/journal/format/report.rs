//! The result of verifying a journal: whether it is as it was written, and where it is not.
//!
//! Data only; `verify` makes it. Bounded, however much is wrong.

use serde::Serialize;

use super::{chain::ChainHead, record::Record};

/// The maximum number of faults in a report; further ones are counted.
pub const MAX_FAULTS: usize = 100;
/// The maximum number of notices in a report; further ones are counted.
pub const MAX_NOTICES: usize = 100;

/// What verifying found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Records read.
    pub records: u64,
    /// The number of the first record there is.
    pub first_sequence: Option<u64>,
    /// The last record.
    pub last: Option<ChainHead>,
    /// Its wall time.
    pub last_time: Option<String>,
    /// The last record that the key given has signed, with all before it.
    pub signed_through: Option<u64>,
    /// A last line that was not written to its end.
    pub torn_line: Option<TornLine>,
    /// What is wrong, the first bad record first.
    pub faults: Vec<JournalFault>,
    /// Faults beyond [`MAX_FAULTS`].
    pub more_faults: u64,
    /// What the journal says about itself that a reader should know.
    pub notices: Vec<JournalNotice>,
    /// Notices beyond [`MAX_NOTICES`].
    pub more_notices: u64,
}

/// Whether the journal is as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// All is as it was written.
    Intact,
    /// All is as it was written but for a last line that was not finished, as after a crash.
    Torn,
    /// It is not as it was written.
    Broken,
}

impl VerifyReport {
    /// Whether the journal is as it was written.
    pub fn integrity(&self) -> Integrity {
        match (&self.faults[..], &self.torn_line) {
            ([], None) => Integrity::Intact,
            ([], Some(_)) => Integrity::Torn,
            ([_, ..], _) => Integrity::Broken,
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalFault {
    /// In which file.
    pub file: String,
    /// In which line, 1-based; one past the last where something is missing at the end.
    pub line: u64,
    /// The number of the record that is bad or missing.
    pub sequence: u64,
    /// Of which kind.
    pub kind: FaultKind,
    /// In a sentence.
    pub problem: String,
}

/// What was done to a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A record is not the one that was written.
    Changed,
    /// Records are missing.
    Removed,
    /// A record stands in another place.
    Reordered,
    /// A record stands where none was written.
    Inserted,
    /// Records are missing at the end.
    Truncated,
    /// A whole file is missing.
    MissingFile,
    /// The file `head` is missing or cannot be read.
    Head,
    /// A checkpoint was not signed by the key.
    BadSignature,
    /// A key was given, and nothing is signed.
    Unsigned,
}

impl FaultKind {
    /// As `-o json` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Reordered => "reordered",
            Self::Inserted => "inserted",
            Self::Truncated => "truncated",
            Self::MissingFile => "missing_file",
            Self::Head => "head",
            Self::BadSignature => "bad_signature",
            Self::Unsigned => "unsigned",
        }
    }
}

/// A last line without its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TornLine {
    /// In which file.
    pub file: String,
    /// In which line.
    pub line: u64,
    /// Where it begins.
    pub offset: u64,
}

/// A record of the journal about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalNotice {
    /// Its number.
    pub sequence: u64,
    /// What it says.
    pub record: Record,
}
