//! Run by `.ci/long` alone.

pub(super) mod codex;
mod codex_by_url;
