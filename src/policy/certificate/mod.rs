//! Certificates by which the TLS of commands is opened for named hosts, and nothing else. Pure.
//!
//! An authority is constrained to its hosts by its own certificate: one that it signs for another host, or for an address, is valid
//! nowhere. Where keys are kept, and for which hosts there is an authority, is decided elsewhere.

#![forbid(unsafe_code)]

mod authority;
mod java_trust_store;
mod pem;

pub use authority::{AUTHORITY_LIFETIME, Authority, AuthorityParts, CertificateError, HostCertificate};
pub use java_trust_store::{JAVA_STORE_PASSWORD, write_java_trust_store};
pub use pem::{read_certificates, read_trust_anchors, write_certificate};
