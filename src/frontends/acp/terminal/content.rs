//! Terminals inside tool calls: found, and put into words that an editor knows.
//!
//! Pure: from the fields of an update to the fields of another one. An editor that shows terminals itself is told of
//! them in `_meta`; any other gets text in the place of the terminal.

use agent_client_protocol_schema::v1::{ContentBlock, TerminalExitStatus, TextContent, ToolCallContent};
use serde_json::{json, value::RawValue};

use crate::acp::lines::RawObject;

/// Bytes of output that are shown of one terminal, at most.
pub(in crate::acp) const SHOWN_BYTES: usize = 16 << 10;
/// What the gateway's ids begin with, and how long they are.
const ID_PREFIX: &str = "term_";
const ID_LENGTH: usize = ID_PREFIX.len() + 26;

/// One block of a tool call's content.
#[derive(Debug, Clone)]
pub(in crate::acp) enum Block {
    /// Not ours: the text that it was.
    Other(Box<RawValue>),
    /// A terminal of the gateway's, by its id.
    Terminal(String),
}

impl Block {
    /// The id, of a terminal.
    pub(in crate::acp) fn terminal(&self) -> Option<&str> {
        match self {
            Self::Terminal(id) => Some(id),
            Self::Other(_) => None,
        }
    }

    /// How much there is of it to keep.
    pub(in crate::acp) fn length(&self) -> usize {
        match self {
            Self::Terminal(id) => id.len(),
            Self::Other(raw) => raw.get().len(),
        }
    }
}

/// The blocks of a content list; none where there is no list.
pub(in crate::acp) fn blocks(content: &RawValue) -> Option<Vec<Block>> {
    let raw: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    Some(raw.into_iter().map(block).collect())
}

fn block(raw: &RawValue) -> Block {
    let terminal = RawObject::parse(raw).and_then(|fields| {
        let is_terminal = fields.text("type").is_some_and(|kind| kind == "terminal");
        is_terminal.then(|| fields.text("terminalId")).flatten()
    });
    match terminal {
        Some(id) if is_gateway_id(&id) => Block::Terminal(id),
        Some(_) | None => Block::Other(raw.to_owned()),
    }
}

/// Whether an id is of the gateway's form. An agent may have terminals of its own to show, which are not.
pub(super) fn is_gateway_id(id: &str) -> bool {
    id.len() == ID_LENGTH && id.starts_with(ID_PREFIX)
}

/// The text that stands for a terminal: its output, fenced so that no editor reads marks in it, and how it ended where
/// that was not well.
pub(in crate::acp) fn text_block(output: &str, exit: Option<&TerminalExitStatus>) -> Box<RawValue> {
    let mut text = String::new();
    if !output.is_empty() {
        let fence = "`".repeat(longest_run_of_backticks(output).max(2) + 1);
        let line_end = if output.ends_with('\n') { "" } else { "\n" };
        text = format!("{fence}\n{output}{line_end}{fence}");
    }
    if let Some(end) = exit.and_then(describe_exit) {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&end);
    }
    let content = ToolCallContent::from(ContentBlock::Text(TextContent::new(text)));
    serde_json::value::to_raw_value(&content).expect("the protocol's types are always JSON")
}

/// `_meta` of a tool call, with what announces a terminal.
pub(in crate::acp) fn with_terminal_info(meta: Option<&RawValue>, id: &str, cwd: &str) -> RawObject<'static> {
    let mut meta = meta.and_then(RawObject::parse).unwrap_or_default().into_owned();
    meta.set("terminal_info", &json!({ "terminal_id": id, "cwd": cwd }));
    meta
}

/// `_meta` of an update that brings output.
pub(in crate::acp) fn terminal_output(id: &str, data: &str) -> serde_json::Value {
    json!({ "terminal_output": { "terminal_id": id, "data": data } })
}

/// `_meta` of an update that brings the end.
pub(in crate::acp) fn terminal_exit(id: &str, exit: &TerminalExitStatus) -> serde_json::Value {
    json!({ "terminal_exit": { "terminal_id": id, "exit_code": exit.exit_code, "signal": exit.signal } })
}

/// Nothing of a success.
fn describe_exit(exit: &TerminalExitStatus) -> Option<String> {
    let cause = exit.meta.as_ref().and_then(|meta| meta.get("provost")?.get("cause")?.as_str());
    let reason = match cause {
        Some("time_limit") => " (time limit)",
        Some("idle_limit") => " (no output for too long)",
        Some("memory_limit") => " (memory limit)",
        Some("sandbox_lost") => " (the sandbox was lost)",
        Some("killed") => " (stopped)",
        Some(_) | None => "",
    };
    match (exit.exit_code, &exit.signal) {
        (_, Some(signal)) => Some(format!("Ended by {signal}{reason}.")),
        (Some(0) | None, None) => None,
        (Some(code), None) => Some(format!("Exited with code {code}{reason}.")),
    }
}

fn longest_run_of_backticks(text: &str) -> usize {
    let runs = text.split(|character| character != '`');
    runs.map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn terminals_of_the_gateway_are_found_and_others_left() {
        let id = "term_01M7Z4JZQMSXS95H2S1BXAEPJZ";
        let content = format!(
            r#"[{{"type":"diff","x":1.0}},{{"type":"terminal","terminalId":"{id}","_meta":{{}}}},{{"type":"terminal","terminalId":"call_1"}}]"#
        );
        let blocks = blocks(&raw(&content)).unwrap();
        assert!(matches!(&blocks[0], Block::Other(raw) if raw.get() == r#"{"type":"diff","x":1.0}"#));
        assert!(matches!(&blocks[1], Block::Terminal(found) if found == id));
        assert!(matches!(&blocks[2], Block::Other(_)));
    }

    #[test]
    fn output_cannot_leave_its_fence() {
        let block = text_block("a\n```\nb", None);
        let value: serde_json::Value = serde_json::from_str(block.get()).unwrap();
        assert_eq!(value["type"], "content");
        assert_eq!(value["content"]["text"], "````\na\n```\nb\n````");
    }

    #[test]
    fn an_end_that_was_not_well_is_said() {
        let of = |exit: TerminalExitStatus| {
            let value: serde_json::Value = serde_json::from_str(text_block("", Some(&exit)).get()).unwrap();
            value["content"]["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(of(TerminalExitStatus::new().exit_code(0)), "");
        assert_eq!(of(TerminalExitStatus::new().exit_code(3)), "Exited with code 3.");
        assert_eq!(
            of(TerminalExitStatus::new().exit_code(137).signal("SIGKILL".to_owned())),
            "Ended by SIGKILL."
        );
    }

    #[test]
    fn what_meta_held_stays() {
        let meta = with_terminal_info(Some(&raw(r#"{"a":1.0}"#)), "t", "/w");
        assert_eq!(
            serde_json::to_string(&meta).unwrap(),
            r#"{"a":1.0,"terminal_info":{"terminal_id":"t","cwd":"/w"}}"#
        );
    }
}
