//! Why a case failed: the rule was broken, or the backend refused, was silent or went away.

use std::{fmt, io, time::Duration};

use serde_json::Value;

/// Why a case did not hold.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What was seen is not what the rule says.
    #[error("{0}")]
    Unmet(String),
    /// A request that should have been answered with a result was refused.
    #[error("{method} was refused: {refusal}")]
    Refused {
        /// The request.
        method: String,
        /// The answer.
        refusal: Refusal,
    },
    /// A request was not answered.
    #[error("{what}: nothing came within {waited:?}")]
    Silent {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// The other side is gone.
    #[error("the connection ended: {0}")]
    Ended(&'static str),
    /// The case's own workspace failed it.
    #[error("the suite cannot use its workspace: {0}")]
    Workspace(#[from] io::Error),
}

/// A JSON-RPC error, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Its code.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// Its data.
    pub data: Option<Value>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)
    }
}

/// Ends the case with [`Fault::Unmet`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err($crate::fault::Fault::Unmet(format!($($sentence)+)));
        }
    };
}

pub(super) use ensure;
