//! Terminals: one command each, from request to release.
