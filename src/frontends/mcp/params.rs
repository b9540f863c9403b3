//! Requests whose parameters the library cannot read: it hands them on as requests of methods that it does not know.

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CancelTaskParams, CustomRequest, ErrorCode, GetTaskParams,
        InitializeRequestParams, PaginatedRequestParams, UpdateTaskParams,
    },
};
use serde::de::DeserializeOwned;

use crate::printable;

/// The longest problem that is told, in bytes.
const PROBLEM_MAX_BYTES: usize = 512;

/// What such a request is answered with: that its parameters are wrong if the method is one of this server's.
pub(super) fn error(request: &CustomRequest) -> ErrorData {
    let problem = match request.method.as_str() {
        "initialize" => problem::<InitializeRequestParams>(request),
        "tools/call" => problem::<CallToolRequestParams>(request),
        "tools/list" => problem::<PaginatedRequestParams>(request),
        "tasks/get" => problem::<GetTaskParams>(request),
        "tasks/update" => problem::<UpdateTaskParams>(request),
        "tasks/cancel" => problem::<CancelTaskParams>(request),
        unknown => {
            let unknown = printable::bounded_line(unknown, PROBLEM_MAX_BYTES).into_owned();
            return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, unknown, None);
        }
    };
    let message = format!("the parameters of {} cannot be read: {problem}", request.method);
    ErrorData::invalid_params(printable::bounded_line(&message, PROBLEM_MAX_BYTES).into_owned(), None)
}

fn problem<T: DeserializeOwned>(request: &CustomRequest) -> String {
    match request.params_as::<T>() {
        Err(error) => error.to_string(),
        Ok(None) => "they are missing".to_owned(),
        // It is what stands around them.
        Ok(Some(_)) => "they are malformed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_are_wrong_are_told_apart_from_a_method_that_is_not_there() {
        for (method, params, code, said) in [
            ("tools/call", Some(json!({ "name": 5 })), ErrorCode::INVALID_PARAMS, "invalid type"),
            (
                "tools/call",
                Some(json!({ "name": "x", "arguments": [] })),
                ErrorCode::INVALID_PARAMS,
                "invalid type",
            ),
            ("tools/call", Some(json!({})), ErrorCode::INVALID_PARAMS, "missing field `name`"),
            ("tools/call", None, ErrorCode::INVALID_PARAMS, "they are missing"),
            ("tasks/get", None, ErrorCode::INVALID_PARAMS, "they are missing"),
            ("prompts/get", None, ErrorCode::METHOD_NOT_FOUND, "prompts/get"),
        ] {
            let answer = error(&CustomRequest::new(method, params.clone()));
            assert_eq!(answer.code, code, "{method} {params:?}: {answer:?}");
            assert!(answer.message.contains(said), "{method} {params:?}: {answer:?}");
        }
    }
}
