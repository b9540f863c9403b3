//! Provost: a sandboxed command-execution gateway. `ARCHITECTURE.md` is the map.
//!
//! A program that embeds it starts a gateway with [`embed`], calls one with [`client`] and the messages of [`proto`], and gives an ACP
//! client confined terminals with [`acp`]. The rest is the command line, which the programs of this package call, and tests of a part name
//! the member that has it.

#![forbid(unsafe_code)]

pub mod cli;

pub use provost_frontends::{acp, client};
pub use provost_gateway::{
    ApprovalConfig, Approvers, Config, DieWithGateway, Embedded, IdRange, JournalConfig, MetricsAddress,
    NameFiles, OnStop, PolicySource, Quotas, Retention, ServeError, SyncRule, TrustedRoots, WithoutGateway,
    embed, runtime,
};
pub use provost_proto as proto;

use provost_base::{byte_text, output, printable, signal, stdio, sys};
use provost_frontends::{exec_server, local_http, mcp};
use provost_gateway::{self as gateway, kept_cache, sandbox};
use provost_journal as journal;
use provost_policy::{self as policy, network, resolve};
