//! What speaks other protocols than the gateway's own: the Agent Client Protocol, the Model Context Protocol, the exec-server protocol; and the
//! client that they share with the command line.

#![forbid(unsafe_code)]

pub mod acp;
pub mod client;
pub mod exec_server;
mod file_uri;
mod json_rpc;
pub mod local_http;
pub mod mcp;

use provost_base::{byte_text, output, printable, sandbox_program, signal, stdio, sys, wire};
use provost_proto as proto;
