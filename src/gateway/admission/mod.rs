//! What one user may hold of the gateway before, and without, a session: connections, calls, bytes of requests and of
//! answers, the rate of HTTP/2 frames, and the time of its workers.
//!
//! A user is the uid that the kernel reports for a connection. A bound closes or refuses what belongs to that user and
//! touches nothing of another one. Nothing here knows what a request says.

mod calls;
mod connection;
mod descriptor_reserve;
mod responses;
mod scheduler;
mod shares;

pub(super) use calls::{AdmissionLayer, REQUEST_MAX_BYTES};
pub(super) use connection::Connection;
pub(super) use descriptor_reserve::{
    BACKOFF_MIN, DescriptorReserve, descriptors_max, raise_descriptor_limit,
};
pub(super) use shares::{Admission, ConnectionRefusal};
