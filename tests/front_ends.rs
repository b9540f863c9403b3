//! How people, agents and programs meet Provost: the command line, ACP, MCP, exec-server, the gRPC libraries of other languages, and what
//! the pages show.

use provost_test_support as support;

support::test_program!();

mod acp;
mod cli;
mod clients;
mod exec_server;
mod firsthour;
mod lifecycle;
mod mcp;
mod shown;
