//! Compiles the protobuf files to Rust with protox, so that no `protoc` binary is needed.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "proto/provost/v1/outcome.proto",
        "proto/provost/v1/sessions.proto",
        "proto/provost/v1/terminals.proto",
        "proto/provost/v1/approvals.proto",
        "proto/provost/v1/policies.proto",
        "proto/provost/v1/audit.proto",
        "proto/provost/v1/screens.proto",
        "proto/provost/supervisor/v1/supervisor.proto",
        "proto/provost/gate/v1/gate.proto",
        "proto/provost/net/v1/net.proto",
        "proto/provost/screen/v1/screen.proto",
        "proto/provost/state/v1/state.proto",
    ];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;

    // The public services only: reflection shows what callers may call, neither the supervisor's protocol nor what lies
    // in the state directory.
    let public = files.iter().filter(|file| file.starts_with("proto/provost/v1/"));
    let public = protox::compile(public, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    std::fs::write(out.join("provost_v1.bin"), prost::Message::encode_to_vec(&public))?;

    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
