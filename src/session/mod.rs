//! Sessions: trust domains opened by a principal.
