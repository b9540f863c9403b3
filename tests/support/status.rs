//! Refusals: what a gRPC status says, by its code and its typed details, never by its text.

use std::collections::HashMap;

use tonic::Code;
use tonic_types::StatusExt;

/// A refusal, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// `ErrorInfo.reason`, empty when there is none.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: HashMap<String, String>,
    /// The fields of `BadRequest`.
    pub fields: Vec<String>,
    /// The subjects of `QuotaFailure`.
    pub quotas: Vec<String>,
    /// The sentence, for people.
    pub message: String,
}

impl From<tonic::Status> for Refusal {
    fn from(status: tonic::Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        if let Some(info) = info {
            assert_eq!(info.domain, "provost", "the domain of an ErrorInfo");
        }
        Self {
            code: status.code(),
            reason: info.map(|i| i.reason.clone()).unwrap_or_default(),
            metadata: info.map(|i| i.metadata.clone()).unwrap_or_default(),
            fields: details
                .bad_request()
                .map(|b| b.field_violations.iter().map(|v| v.field.clone()).collect())
                .unwrap_or_default(),
            quotas: details
                .quota_failure()
                .map(|q| q.violations.iter().map(|v| v.subject.clone()).collect())
                .unwrap_or_default(),
            message: status.message().to_owned(),
        }
    }
}

impl Refusal {
    /// A value of the metadata.
    pub fn meta(&self, key: &str) -> &str {
        self.metadata.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Fails unless this is INVALID_ARGUMENT that names the field.
    pub fn must_name_the_field(&self, field: &str) {
        assert_eq!(self.code, Code::InvalidArgument, "{self:?}");
        assert!(
            self.fields.iter().any(|f| f == field || f.starts_with(field)),
            "no violation of {field}: {self:?}"
        );
    }
}
