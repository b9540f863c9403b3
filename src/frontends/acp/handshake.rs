//! `initialize`: what the agent is told of the editor, and what may come back.
//!
//! The agent is offered terminals whatever the editor can do, because they are not the editor's. The version is held
//! at 1: version 2 has no client terminals, and an agent that speaks it runs its commands outside the gateway. An
//! agent that refuses version 1 is asked again as its editor asked, where that was for a later one. One that answers with a
//! version that its editor has not asked for is refused to the editor.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use agent_client_protocol_schema::{ProtocolVersion, v1::Error};
use serde_json::value::RawValue;

use super::{
    errors,
    lines::{self, RawObject},
};

/// How an editor shows terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalDisplay {
    /// It takes output and exits in `_meta` and shows them as a terminal.
    Terminal,
    /// As text content.
    Text,
}

/// Drafts of later versions: no version of the agent's is at or below the one that was asked for.
const UNSUPPORTED_VERSION_CODE: i64 = -32_022;

/// What an agent's answer to `initialize` means.
#[derive(Debug)]
pub(super) enum AnsweredVersion {
    /// It has client terminals.
    WithTerminals(McpTransport),
    /// It has none, and the editor speaks it.
    Later {
        /// The version.
        version: u64,
        /// How the agent takes MCP servers.
        transport: McpTransport,
    },
    /// It has none, and the editor has not asked for it: what the editor is told instead.
    Refused(Error),
}

/// How an agent takes MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum McpTransport {
    /// It starts them, as version 1 writes them and has every agent do.
    #[default]
    StdioUntyped,
    /// It starts them, as later versions write them.
    StdioTyped,
    /// It connects to them over HTTP.
    Http,
    /// Not at all.
    Unsupported,
}

/// What was learned from `initialize`.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    display: OnceLock<TerminalDisplay>,
    /// The agent has answered with a version that has no client terminals.
    is_later: AtomicBool,
}

impl Handshake {
    /// How the editor shows terminals; as text until it has said otherwise.
    pub(super) fn display(&self) -> TerminalDisplay {
        self.display.get().copied().unwrap_or(TerminalDisplay::Text)
    }

    /// The request as the agent is to see it. None where there is nothing to rewrite: the agent will refuse it.
    pub(super) fn rewrite(&self, line: &[u8], params: Option<&RawValue>) -> Option<Vec<u8>> {
        let mut params = RawObject::parse(params?)?;
        let version = params.get("protocolVersion").and_then(number);
        if version.is_some_and(|version| version > latest()) {
            params.set("protocolVersion", &ProtocolVersion::LATEST);
        }
        let owned = params.clone();
        let mut capabilities = owned.object("clientCapabilities").unwrap_or_default();
        let declared = capabilities
            .object("_meta")
            .and_then(|meta| meta.get("terminal_output").map(|value| value.get() == "true"));
        // The first one counts: an editor does not change while it runs.
        let _ = self.display.set(if declared == Some(true) {
            TerminalDisplay::Terminal
        } else {
            TerminalDisplay::Text
        });
        capabilities.set("terminal", &true);
        params.set("clientCapabilities", &capabilities);
        lines::with_params(line, &params)
    }

    /// The version that an editor asks for, where that is one without client terminals.
    pub(super) fn later_version(params: Option<&RawValue>) -> Option<f64> {
        let params = RawObject::parse(params?)?;
        params.get("protocolVersion").and_then(number).filter(|version| *version > latest())
    }

    /// What an answer means for an editor that has asked for this later version, or for none.
    pub(super) fn judge(&self, result: &RawValue, asked: Option<f64>) -> AnsweredVersion {
        let Some(result) = RawObject::parse(result) else {
            return AnsweredVersion::WithTerminals(McpTransport::default());
        };
        let version = result.get("protocolVersion").and_then(number).unwrap_or_default();
        if version <= latest() {
            let capabilities = result.object("agentCapabilities").unwrap_or_default();
            let servers = capabilities.object("mcpCapabilities").unwrap_or_default();
            let takes_http = servers.get("http").is_some_and(|value| value.get() == "true");
            return AnsweredVersion::WithTerminals(if takes_http {
                McpTransport::Http
            } else {
                McpTransport::StdioUntyped
            });
        }
        if asked.is_none_or(|asked| asked < version) {
            return AnsweredVersion::Refused(errors::internal(format!(
                "The agent answers with version {version} of the protocol, which this editor has not asked for, and in \
                 which the agent would run commands itself, outside Provost; use an agent that speaks version 1, or an \
                 editor that speaks version {version}, with `provost acp --confine-agent`."
            )));
        }
        self.is_later.store(true, Ordering::Release);
        let capabilities = result.object("capabilities").unwrap_or_default();
        let session = capabilities.object("session").unwrap_or_default();
        let servers = session.object("mcp").unwrap_or_default();
        let transport = if servers.object("stdio").is_some() {
            McpTransport::StdioTyped
        } else if servers.object("http").is_some() {
            McpTransport::Http
        } else {
            McpTransport::Unsupported
        };
        AnsweredVersion::Later { version: version as u64, transport }
    }

    /// Whether the agent speaks a version in which it shows terminals of its own: nothing of them is to be rewritten.
    pub(super) fn is_later(&self) -> bool {
        self.is_later.load(Ordering::Acquire)
    }
}

/// Whether an answer is the error of an agent that does not speak the version that it was asked for.
pub(super) fn refuses_version(line: &[u8]) -> bool {
    let code = serde_json::from_slice::<RawObject<'_>>(line)
        .ok()
        .and_then(|answer| answer.object("error")?.get("code").map(|code| code.get().to_owned()));
    code.and_then(|code| code.parse().ok()) == Some(UNSUPPORTED_VERSION_CODE)
}

fn latest() -> f64 {
    f64::from(ProtocolVersion::LATEST.as_u16())
}

/// A number, however it is written.
fn number(raw: &RawValue) -> Option<f64> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(params: &str) -> (Handshake, String) {
        let handshake = Handshake::default();
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let line = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}}"#, params.get());
        let line = handshake.rewrite(line.as_bytes(), Some(&params)).unwrap();
        (handshake, String::from_utf8(line).unwrap())
    }

    #[test]
    fn terminals_are_offered_whatever_the_editor_said_and_the_rest_stays() {
        for given in [
            r#"{"protocolVersion":1,"clientCapabilities":{"terminal":false,"x":[1.0]}}"#,
            r#"{"protocolVersion":1,"clientCapabilities":{"x":[1.0],"terminal":null}}"#,
        ] {
            let (handshake, line) = rewritten(given);
            assert!(line.contains(r#""terminal":true"#) && line.contains(r#""x":[1.0]"#), "{line}");
            assert_eq!(line.matches("\"terminal\"").count(), 1);
            assert_eq!(handshake.display(), TerminalDisplay::Text);
        }
        for given in [r#"{"protocolVersion":1}"#, r#"{"protocolVersion":1,"clientCapabilities":null}"#] {
            assert!(rewritten(given).1.contains(r#""clientCapabilities":{"terminal":true}"#));
        }
    }

    #[test]
    fn the_version_is_held_at_one() {
        for (given, expected) in
            [("2", "1"), ("65535", "1"), ("1e9", "1"), ("1", "1"), ("0", "0"), ("\"2\"", "\"2\"")]
        {
            let (_, line) = rewritten(&format!(r#"{{"protocolVersion":{given}}}"#));
            assert!(line.contains(&format!(r#""protocolVersion":{expected},"#)), "{line}");
        }
    }

    #[test]
    fn a_later_version_is_refused_to_an_editor_that_has_not_asked_for_it() {
        let judge = |result: &str, asked| {
            Handshake::default().judge(&RawValue::from_string(result.to_owned()).unwrap(), asked)
        };
        for asked in [None, Some(2.0)] {
            assert!(matches!(judge(r#"{"protocolVersion":3}"#, asked), AnsweredVersion::Refused(_)));
            for version in ["0", "1", "null", "\"2\""] {
                let answer = judge(&format!(r#"{{"protocolVersion":{version}}}"#), asked);
                assert!(matches!(answer, AnsweredVersion::WithTerminals(_)), "{version}: {answer:?}");
            }
        }
        for (capabilities, expected) in [
            ("{}", McpTransport::Unsupported),
            (r#"{"session":{"mcp":{"stdio":null}}}"#, McpTransport::Unsupported),
            (r#"{"session":{"mcp":{"stdio":{},"http":{}}}}"#, McpTransport::StdioTyped),
            (r#"{"session":{"mcp":{"http":{},"sse":{}}}}"#, McpTransport::Http),
        ] {
            let result = format!(r#"{{"protocolVersion":2,"capabilities":{capabilities}}}"#);
            let AnsweredVersion::Later { version: 2, transport } = judge(&result, Some(2.0)) else {
                panic!("{capabilities} is of version 2");
            };
            assert_eq!(transport, expected, "{capabilities}");
        }
        for (servers, expected) in [
            ("null", McpTransport::StdioUntyped),
            (r#"{"http":false,"sse":true}"#, McpTransport::StdioUntyped),
            (r#"{"http":true,"sse":true}"#, McpTransport::Http),
        ] {
            let result =
                format!(r#"{{"protocolVersion":1,"agentCapabilities":{{"mcpCapabilities":{servers}}}}}"#);
            let AnsweredVersion::WithTerminals(transport) = judge(&result, None) else {
                panic!("{servers} is of version 1");
            };
            assert_eq!(transport, expected, "{servers}");
        }
    }

    #[test]
    fn only_the_error_about_versions_has_the_agent_asked_again() {
        assert!(refuses_version(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no"}}"#));
        assert!(!refuses_version(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#));
        assert!(!refuses_version(br#"{"jsonrpc":"2.0","id":1,"result":{"code":-32022}}"#));
    }

    #[test]
    fn an_editor_that_shows_terminals_is_remembered() {
        let (handshake, _) =
            rewritten(r#"{"protocolVersion":1,"clientCapabilities":{"_meta":{"terminal_output":true}}}"#);
        assert_eq!(handshake.display(), TerminalDisplay::Terminal);
    }
}
