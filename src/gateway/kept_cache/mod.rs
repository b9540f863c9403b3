//! Caches that outlive their session, as an earlier one has left them: where they lie, who finds them, how much there
//! may be.
//!
//! Each is a line of generations: directories that never change. Sessions read one below a layer of their own, and
//! what a session has written to its layer makes the next generation when it has ended, by links to the one before
//! and copies of what is new. Nothing is ever mounted to be written, so that sessions which run at the same time do
//! not meet.
//!
//! Commands of any kind have made what is copied. So only plain files, directories and symbolic links are, without
//! extended attributes, set-id bits and owners, by descriptors and never through a link; and they are written with
//! the rights of the caller whose they are.

mod budget;
mod error;
mod generation;
mod keeping;
mod scope;
mod store;
mod tree;

pub use self::{
    error::KeepError,
    keeping::Kept,
    scope::{LayerName, Scope},
    store::{KeptCaches, ListedCache, OpenedCache},
};
