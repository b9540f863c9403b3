//! What agents mean by `terminal/create`.
//!
//! Four forms are seen: a whole line in `command`, the same with an empty `args`, a shell with `-c` and the line, and
//! a real argument list. A line of one plain word is the name of a program; any other line is for the profile's shell.
//! Everything here is about form; what may run is the gateway's to say.

use agent_client_protocol_schema::v1::{CreateTerminalRequest, Error};
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    acp::errors,
    client,
    proto::v1::{self, create_terminal_request::Command},
};

/// Bytes that mean something to a shell, or part words.
const SHELL_BYTES: &[u8] = b"|&;<>()$`\\\"'*?[]#~=!{}%^";

/// How a command is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandForm {
    /// A program with its arguments.
    Argv,
    /// One word without anything else: a program, and where there is none of that name, a line for the shell.
    Word,
    /// A line for the shell.
    ShellLine,
}

/// Reads the parameters of a create; a mistake in them is named.
pub(in crate::acp) fn parse(params: Option<&RawValue>) -> Result<CreateTerminalRequest, Error> {
    let params = params.ok_or_else(|| errors::bad_parameter("params", "must not be absent"))?;
    serde_json::from_str(params.get()).map_err(|error| match bad_field(params) {
        Some((field, problem)) => errors::bad_parameter(&field, problem),
        None => errors::bad_parameter("terminal/create", error),
    })
}

/// The first field that is wrong by itself, and what is wrong with it; none where a field is missing or stands twice, which the
/// error names. Each is tried in a request that has nothing else.
fn bad_field(params: &RawValue) -> Option<(String, serde_json::Error)> {
    let fields: Map<String, Value> = serde_json::from_str(params.get()).ok()?;
    fields.into_iter().find_map(|(field, value)| {
        let mut request = json!({ "sessionId": "", "command": "" });
        request[field.as_str()] = value;
        let error = serde_json::from_value::<CreateTerminalRequest>(request).err()?;
        Some((field, error))
    })
}

/// The form of a request.
pub(super) fn form_of(request: &CreateTerminalRequest) -> CommandForm {
    if !request.args.is_empty() {
        return CommandForm::Argv;
    }
    let is_plain =
        |byte: u8| !byte.is_ascii_whitespace() && !byte.is_ascii_control() && !SHELL_BYTES.contains(&byte);
    if request.command.bytes().all(is_plain) { CommandForm::Word } else { CommandForm::ShellLine }
}

/// Whether a word that is no program may be something that only the shell knows: one with a slash never is.
pub(super) fn may_be_builtin(command: &str) -> bool {
    !command.contains('/')
}

/// The gateway's request.
pub(super) fn to_gateway(
    request: &CreateTerminalRequest,
    gateway_session: &str,
    form: CommandForm,
) -> Result<v1::CreateTerminalRequest, Error> {
    if request.command.is_empty() {
        return Err(errors::bad_parameter("command", "must not be empty"));
    }
    let cwd = match &request.cwd {
        Some(cwd) if !cwd.is_absolute() => {
            return Err(errors::bad_parameter("cwd", "must be an absolute path"));
        }
        Some(cwd) => cwd.to_str().ok_or_else(|| errors::bad_parameter("cwd", "must be text"))?.to_owned(),
        None => String::new(),
    };
    let mut env: Vec<v1::EnvVar> = Vec::with_capacity(request.env.len());
    for variable in &request.env {
        // The last one of two with one name counts, as in a shell.
        env.retain(|earlier| earlier.name != variable.name);
        env.push(v1::EnvVar {
            name: variable.name.clone(),
            value: variable.value.clone(),
            ..Default::default()
        });
    }
    Ok(v1::CreateTerminalRequest {
        session_id: gateway_session.to_owned(),
        command: Some(match form {
            CommandForm::ShellLine => Command::ShellLine(request.command.clone()),
            CommandForm::Word | CommandForm::Argv => Command::Program(request.command.clone()),
        }),
        args: request.args.clone(),
        env,
        cwd,
        output_byte_limit: request.output_byte_limit,
        ..client::new_terminal()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<CreateTerminalRequest, Error> {
        parse(Some(&RawValue::from_string(json.to_owned()).unwrap()))
    }

    fn form(command: &str, args: &[&str]) -> CommandForm {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        form_of(&CreateTerminalRequest::new("s", command).args(args))
    }

    #[test]
    fn the_forms_are_told_apart() {
        assert_eq!(form("ls", &[]), CommandForm::Word);
        assert_eq!(form("./build.sh", &[]), CommandForm::Word);
        assert_eq!(form("ls", &["-l"]), CommandForm::Argv);
        assert_eq!(form("/bin/bash", &["-c", "ls | wc"]), CommandForm::Argv);
        for line in ["ls -l", "ls;", "A=1", "$X", "a\nb", " ls", "~/x", "`x`", "a&&b", "'a b'", "{a,b}"] {
            assert_eq!(form(line, &[]), CommandForm::ShellLine, "{line}");
        }
    }

    #[test]
    fn absent_null_and_empty_are_one() {
        for json in [
            r#"{"sessionId":"s","command":"ls"}"#,
            r#"{"sessionId":"s","command":"ls","args":null,"env":null,"cwd":null,"outputByteLimit":null}"#,
            r#"{"sessionId":"s","command":"ls","args":[],"env":[],"_meta":null,"unknown":{"x":1}}"#,
        ] {
            let request = to_gateway(&parsed(json).unwrap(), "g", CommandForm::Word).unwrap();
            assert!(request.args.is_empty() && request.env.is_empty() && request.cwd.is_empty());
            assert_eq!(request.output_byte_limit, None);
        }
    }

    #[test]
    fn what_is_malformed_is_invalid_params() {
        for fields in [
            r#""command":5"#,
            r#""command":"ls","cwd":7"#,
            r#""command":"ls","outputByteLimit":-1"#,
            r#""command":"ls","outputByteLimit":1.5"#,
            r#""command":"ls","outputByteLimit":"9""#,
            r#""command":"ls","args":"x""#,
            r#""command":"ls","args":[1]"#,
            r#""command":"ls","env":[{"name":"A"}]"#,
            r#""args":[]"#,
        ] {
            let error = parsed(&format!(r#"{{"sessionId":"s",{fields}}}"#)).unwrap_err();
            assert_eq!(i32::from(error.code), -32602, "{fields}");
        }
        assert_eq!(i32::from(parse(None).unwrap_err().code), -32602);
        for cwd in ["", "relative", "./x"] {
            let request = CreateTerminalRequest::new("s", "ls").cwd(std::path::PathBuf::from(cwd));
            assert_eq!(
                i32::from(to_gateway(&request, "g", CommandForm::Word).unwrap_err().code),
                -32602,
                "{cwd:?}"
            );
        }
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        for (fields, named) in [
            (r#""command":5"#, "command: "),
            (r#""command":"ls","cwd":7"#, "cwd: "),
            (r#""command":"ls","outputByteLimit":-1"#, "outputByteLimit: "),
            (r#""command":"ls","args":[1]"#, "args: "),
            (r#""command":"ls","env":[{"name":"A"}]"#, "env: missing field `value`"),
            (r#""args":[]"#, "terminal/create: missing field `command`"),
        ] {
            let error = parsed(&format!(r#"{{"sessionId":"s",{fields}}}"#)).unwrap_err();
            assert!(error.message.starts_with(named), "{fields}: {}", error.message);
        }
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let json = r#"{"sessionId":"s","command":"ls","env":[{"name":"A","value":"1"},{"name":"B","value":"2"},{"name":"A","value":"3"}]}"#;
        let env = to_gateway(&parsed(json).unwrap(), "g", CommandForm::Word).unwrap().env;
        let pairs: Vec<_> = env.iter().map(|v| (v.name.as_str(), v.value.as_str())).collect();
        assert_eq!(pairs, [("B", "2"), ("A", "3")]);
    }
}
