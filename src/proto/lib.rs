//! The generated protobuf types and gRPC stubs. Nothing is written by hand here.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

/// `provost.v1`: the public API.
pub mod v1 {
    tonic::include_proto!("provost.v1");

    /// The descriptors of the public API, for gRPC reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/provost_v1.bin"));
}

/// `provost.supervisor.v1`: between the gateway and its supervisors.
pub mod supervisor {
    tonic::include_proto!("provost.supervisor.v1");
}

/// `provost.gate.v1`: between the gateway and the gates of its sandboxes.
pub mod gate {
    tonic::include_proto!("provost.gate.v1");
}

/// `provost.screen.v1`: between the gateway and the screen processes of its sandboxes.
pub mod screen {
    tonic::include_proto!("provost.screen.v1");
}

/// `provost.net.v1`: between the gateway and the net processes of its sandboxes.
pub mod net {
    tonic::include_proto!("provost.net.v1");
}

/// `provost.state.v1`: what a gateway leaves to the one after it.
pub mod state {
    tonic::include_proto!("provost.state.v1");
}
