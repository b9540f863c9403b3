//! `initialize`: what the agent is told of the editor, and what may come back.
//!
//! The agent is offered terminals whatever the editor can do, because they are not the editor's. The version is held
//! at 1: version 2 has no client terminals, and an agent that spoke it would run its commands outside the gateway. An
//! agent that answers with a later one all the same is refused to the editor.

use std::sync::OnceLock;

use agent_client_protocol_schema::{ProtocolVersion, v1::Error};
use serde_json::value::RawValue;

use super::{encode, errors, raw_object::RawObject};

/// How an editor shows terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::acp) enum TerminalDisplay {
    /// It takes output and exits in `_meta` and shows them as a terminal.
    Terminal,
    /// As text content.
    Text,
}

/// What was learned from `initialize`.
#[derive(Debug, Default)]
pub(in crate::acp) struct Handshake {
    display: OnceLock<TerminalDisplay>,
}

impl Handshake {
    /// How the editor shows terminals; as text until it has said otherwise.
    pub(in crate::acp) fn display(&self) -> TerminalDisplay {
        self.display.get().copied().unwrap_or(TerminalDisplay::Text)
    }

    /// The request as the agent is to see it. None where there is nothing to rewrite: the agent will refuse it.
    pub(in crate::acp) fn rewrite(&self, line: &[u8], params: Option<&RawValue>) -> Option<Vec<u8>> {
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
        encode::with_params(line, &params)
    }

    /// What the editor is told instead, where the agent's answer is of a version that has no client terminals.
    pub(in crate::acp) fn refuse(&self, result: &RawValue) -> Option<Error> {
        let version = RawObject::parse(result)?.get("protocolVersion").and_then(number)?;
        (version > latest()).then(|| {
            errors::internal(format!(
                "The agent answers with version {version} of the protocol, in which it would run commands itself, \
                 outside Provost; use an agent that speaks version 1, or confine the whole agent with \
                 --confine-agent."
            ))
        })
    }
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
        for (given, told) in
            [("2", "1"), ("65535", "1"), ("1e9", "1"), ("1", "1"), ("0", "0"), ("\"2\"", "\"2\"")]
        {
            let (_, line) = rewritten(&format!(r#"{{"protocolVersion":{given}}}"#));
            assert!(line.contains(&format!(r#""protocolVersion":{told},"#)), "{line}");
        }
    }

    #[test]
    fn an_agent_that_insists_on_a_later_version_is_refused() {
        let refuse =
            |result: &str| Handshake::default().refuse(&RawValue::from_string(result.to_owned()).unwrap());
        assert!(refuse(r#"{"protocolVersion":2}"#).is_some());
        assert!(refuse(r#"{"protocolVersion":1}"#).is_none());
        assert!(refuse(r#"{"protocolVersion":0}"#).is_none());
    }

    #[test]
    fn an_editor_that_shows_terminals_is_remembered() {
        let (handshake, _) =
            rewritten(r#"{"protocolVersion":1,"clientCapabilities":{"_meta":{"terminal_output":true}}}"#);
        assert_eq!(handshake.display(), TerminalDisplay::Terminal);
    }
}
