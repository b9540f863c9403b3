//! Front ends for agents: ACP, MCP, the exec-server of the Codex CLI.

pub mod acp;
pub mod exec_server;
pub mod mcp;
mod token_file;
