//! What a gateway's refusal says in addition to its message: its reason, its details, the rule that denies; and what an agent can do about
//! it, in the same words in every front end.
//!
//! Tells refusals apart by the gateway's code and details, never by the text of a message.

use std::collections::BTreeMap;

use tonic::Status;
use tonic_types::StatusExt as _;

/// The gateway's reason, such as POLICY_DENIED; empty if the status has none.
pub fn reason_of(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// The gateway's reason, or else the name of the status code in capitals.
pub(crate) fn reason_or_code_of(status: &Status) -> String {
    match reason_of(status) {
        reason if reason.is_empty() => format!("{:?}", status.code()).to_ascii_uppercase(),
        reason => reason,
    }
}

/// One of the gateway's details.
pub(crate) fn detail_of(status: &Status, name: &str) -> Option<String> {
    status.get_details_error_info()?.metadata.remove(name)
}

/// All of the gateway's details, by name.
pub fn details_of(status: &Status) -> BTreeMap<String, String> {
    status.get_details_error_info().map(|info| info.metadata.into_iter().collect()).unwrap_or_default()
}

/// The field of the request that cannot be used.
pub fn bad_field_of(status: &Status) -> Option<String> {
    let violations = status.get_details_bad_request()?.field_violations;
    violations.into_iter().next().map(|violation| violation.field)
}

/// The message after the name of the field that cannot be used, unless the message has the name already.
pub(crate) fn message_with_field(status: &Status, field: Option<&str>) -> String {
    let message = status.message();
    match field {
        Some(field) if !message.contains(field) => format!("{field}: {message}"),
        _ => message.to_owned(),
    }
}

/// As [`message_with_field`], with the gateway's name of the field.
pub(crate) fn message_with_bad_field(status: &Status) -> String {
    message_with_field(status, bad_field_of(status).as_deref())
}

/// The message of a denial without its full stop, and with the rule that denies, once: the gateway's own message often names it,
/// as `(rule "x" denies: COMMAND)` or `rule "x" denies: COMMAND`.
pub(crate) fn message_with_rule(status: &Status) -> String {
    let text = status.message().trim_end_matches('.');
    let rule = detail_of(status, "rule").map(|rule| format!("rule {rule:?}"));
    match rule {
        Some(rule) if !text.contains(&rule) => format!("{text} ({rule})"),
        _ => text.to_owned(),
    }
}

/// What to do when policy has refused a command, by the gateway's reason.
pub(crate) fn advice_when_denied(reason: &str) -> &'static str {
    match reason {
        "APPROVAL_DENIED" => "do it another way, or ask the user what they would allow",
        "APPROVAL_EXPIRED" => "nobody answered in time; ask the user, then send it again",
        "APPROVAL_REQUIRED" => "a person must allow it first; ask the user, then send it again",
        _ => "do it another way, or ask the user to change the policy",
    }
}

/// What to do when a command could not be started, by the gateway's reason; empty if there is no advice.
pub(crate) fn advice_when_not_started(reason: &str) -> &'static str {
    match reason {
        "COMMAND_NOT_FOUND" => {
            "name a program that is installed in the sandbox, where only system directories and the workspace are"
        }
        "CWD_GONE" | "CWD_NOT_A_DIRECTORY" => "give the path of a directory in the workspace as cwd",
        "ARGUMENT_LIST_TOO_LONG" => "put long input into a file and pass its name",
        "CONFINEMENT_UNAVAILABLE" => {
            "nothing ran; the user can see what this host lacks with `provost doctor`"
        }
        "ROOT_GONE" => "the workspace was removed or replaced; open another session on it",
        "SANDBOX_LOST" => "the sandbox has ended with all that ran in it; try again",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic::Code;
    use tonic_types::ErrorDetails;

    use super::*;

    fn denied(message: &str, rule: &str) -> Status {
        let metadata = HashMap::from([("rule".to_owned(), rule.to_owned())]);
        let details = ErrorDetails::with_error_info("POLICY_DENIED", "provost", metadata);
        Status::with_error_details(Code::PermissionDenied, message, details)
    }

    #[test]
    fn a_denial_names_its_rule_once() {
        for (message, rule, expected) in [
            ("pushing is for people.", "no-push", "pushing is for people (rule \"no-push\")"),
            (
                "pushing is for people (rule \"no-push\" denies: git push)",
                "no-push",
                "pushing is for people (rule \"no-push\" denies: git push)",
            ),
            ("rule \"no-push\" denies: git push", "no-push", "rule \"no-push\" denies: git push"),
            // Another rule, whose name begins in the same way.
            (
                "rule \"no-push-force\" denies: git push",
                "no-push",
                "rule \"no-push-force\" denies: git push (rule \"no-push\")",
            ),
        ] {
            assert_eq!(message_with_rule(&denied(message, rule)), expected);
        }
        assert_eq!(message_with_rule(&Status::permission_denied("not yours.")), "not yours");
    }

    #[test]
    fn a_status_without_details_has_the_name_of_its_code_as_reason() {
        assert_eq!(reason_or_code_of(&denied("", "x")), "POLICY_DENIED");
        let bare = Status::permission_denied("no");
        assert_eq!((reason_of(&bare).as_str(), reason_or_code_of(&bare).as_str()), ("", "PERMISSIONDENIED"));
        assert!(details_of(&bare).is_empty() && detail_of(&bare, "rule").is_none());
    }

    #[test]
    fn a_bad_field_is_named_once() {
        let status = |message: &str| {
            let details = ErrorDetails::with_bad_request_violation("cwd", "is not absolute");
            Status::with_error_details(Code::InvalidArgument, message, details)
        };
        let with_field = |status: Status| message_with_bad_field(&status);
        assert_eq!(with_field(status("is not absolute")), "cwd: is not absolute");
        assert_eq!(with_field(status("cwd is not absolute")), "cwd is not absolute");
        assert_eq!(with_field(Status::invalid_argument("no")), "no");
    }
}
