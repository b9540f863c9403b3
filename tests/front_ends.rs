//! How people, agents and programs meet Provost: the command line, ACP, MCP, exec-server, the gRPC libraries of other languages, and what
//! the pages show.

mod support;

mod acp;
mod cli;
mod clients;
mod exec_server;
mod firsthour;
mod lifecycle;
mod mcp;
mod shown;
