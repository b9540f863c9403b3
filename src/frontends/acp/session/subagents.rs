//! Sessions that an agent opens for its subagents, and announces in the session that they belong to.
//!
//! Where such a child works is what the agent says, and the agent is not who is trusted with that: a child runs its commands
//! in the session of the gateway's that its parent has, with the parent's directories and no others, and only where they start
//! is the child's own. Its terminals are its own as well. It ends with its parent, and an editor's session is never made one.

use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::acp::wire::raw_object::RawObject;

/// The longest id, and the longest path: what has a longer one is not heeded.
const ID_MAX_BYTES: usize = 1 << 10;
const PATH_MAX_BYTES: usize = 4 << 10;

/// What an update announces of a child.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::acp) struct SubagentAnnouncement {
    pub(in crate::acp) parent: String,
    pub(in crate::acp) child: String,
    pub(in crate::acp) start: StartDirectory,
}

/// Where the commands of a child start that name no directory.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::acp) enum StartDirectory {
    /// As before.
    Unchanged,
    /// Where its parent's do.
    Inherited,
    /// Here.
    At(PathBuf),
}

/// Reads a `session/update`; none where it announces nobody.
pub(in crate::acp) fn parse_announcement(params: &RawValue) -> Option<SubagentAnnouncement> {
    // Most updates are text, and are not looked into.
    memchr::memmem::find(params.get().as_bytes(), b"subagent_update")?;
    let params = RawObject::parse(params)?;
    let update = RawObject::parse(params.borrowed("update")?)?;
    if update.text("sessionUpdate")? != "subagent_update" {
        return None;
    }
    let placement = match update.get("cwd") {
        None => StartDirectory::Unchanged,
        Some(cwd) if cwd.get() == "null" => StartDirectory::Inherited,
        Some(_) => StartDirectory::At(update.text("cwd")?.into()),
    };
    let fits = |placement: &StartDirectory| match placement {
        StartDirectory::At(directory) => directory.as_os_str().len() <= PATH_MAX_BYTES,
        StartDirectory::Unchanged | StartDirectory::Inherited => true,
    };
    let child = update.text("sessionId")?;
    if child.len() > ID_MAX_BYTES || !fits(&placement) {
        return None;
    }
    Some(SubagentAnnouncement { parent: params.text("sessionId")?, child, start: placement })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(update: &str) -> Option<StartDirectory> {
        let params = format!(r#"{{"sessionId":"p","update":{{{update}}}}}"#);
        let params = RawValue::from_string(params).unwrap();
        let announced = parse_announcement(&params)?;
        assert_eq!((&*announced.parent, &*announced.child), ("p", "c"));
        Some(announced.start)
    }

    #[test]
    fn a_child_is_announced_with_its_place_or_without() {
        let update = r#""sessionUpdate":"subagent_update","sessionId":"c""#;
        assert_eq!(placement(update), Some(StartDirectory::Unchanged));
        assert_eq!(placement(&format!(r#"{update},"cwd":null"#)), Some(StartDirectory::Inherited));
        assert_eq!(placement(&format!(r#"{update},"cwd":"/x""#)), Some(StartDirectory::At("/x".into())));
        assert_eq!(placement(&format!(r#"{update},"cwd":7"#)), None);
        assert_eq!(placement(r#""sessionUpdate":"plan","sessionId":"c","x":"subagent_update""#), None);
    }
}
