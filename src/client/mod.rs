//! A connection to a gateway.
