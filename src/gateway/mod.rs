//! The gateway: composition, listening, drain.
