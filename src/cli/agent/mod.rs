//! Front ends for agents: ACP, MCP, the exec-server of the Codex CLI.

pub(super) mod acp;
pub(super) mod exec_server;
pub(super) mod mcp;
mod token_file;
