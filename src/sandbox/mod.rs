//! The gateway's side of a sandbox: plan, launch, control.
