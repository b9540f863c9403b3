//! The net process of a sandbox with the network `proxy`: it takes the connections of the sandbox's programs and carries those
//! that the gateway allows. It answers their questions for names with addresses of the sandbox's own.
//!
//! It alone has the host's network. It decides nothing: it asks the gateway about every name, every address and every HTTP request,
//! and dials the very address that was allowed. It has an id of its own where there is one, no file, no capability, and ends with
//! the gateway's socket.
//!
//! Files in order of import: `limits`, `program`, `end_report`, `link`, `resolver`, `budget`, `open`, `outcome`, `tls`, `connector`, `prefixed`,
//! `idle`, `websocket`, `target`, `send`, `http`, `tunnel`, `socks`, `accept`,
//! `transparent`, `unix`, `names`, `confine`, `listen`.

mod accept;
mod budget;
mod confine;
mod connector;
mod end_report;
mod http;
mod idle;
mod limits;
mod link;
mod listen;
mod names;
mod open;
mod outcome;
mod overrides;
mod prefixed;
mod program;
mod resolver;
mod send;
mod socks;
mod target;
mod tls;
mod transparent;
mod tunnel;
mod unix;
mod websocket;

use std::process::exit;

pub(crate) use crate::wire::net::PROCESS_NAME;

/// Exit codes: the set-up failed; the gateway has closed the socket.
const EXIT_SETUP_FAILED: i32 = 90;
const EXIT_GATEWAY_GONE: i32 = 0;

/// Serves one sandbox until its gateway closes the socket.
pub(crate) fn main() -> ! {
    let Ok(confined) = confine::confine() else { exit(EXIT_SETUP_FAILED) };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        exit(EXIT_SETUP_FAILED)
    };
    match runtime.block_on(listen::serve(confined)) {
        Ok(()) => exit(EXIT_GATEWAY_GONE),
        Err(_) => exit(EXIT_SETUP_FAILED),
    }
}
