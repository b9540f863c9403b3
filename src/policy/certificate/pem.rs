//! Certificates in the text form that programs read.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Bytes of base64 in one line (RFC 7468, 2).
const LINE_BYTES: usize = 64;

/// The certificates (DER) of a text, in their order. What else is in it, and what cannot be read, is left out.
pub fn read_certificates(text: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(text).flatten().map(|certificate| certificate.to_vec()).collect()
}

/// Likewise, those by which a server can be verified.
pub fn read_trust_anchors(text: &[u8]) -> Vec<Vec<u8>> {
    let is_anchor = |one: &Vec<u8>| RootCertStore::empty().add(CertificateDer::from(one.as_slice())).is_ok();
    read_certificates(text).into_iter().filter(is_anchor).collect()
}

/// A certificate (DER) as text.
pub fn write_certificate(certificate: &[u8]) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, further) = rest.split_at(LINE_BYTES.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = further;
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_other_texts_are_left_out() {
        let (one, two) = (vec![7_u8; 100], vec![9_u8; 48]);
        let text = format!("# a comment\n{}between\n{}", write_certificate(&one), write_certificate(&two));
        assert!(text.lines().all(|line| line.len() <= LINE_BYTES));
        assert_eq!(read_certificates(text.as_bytes()), [one, two]);
        assert!(read_certificates(b"no certificate").is_empty());
    }
}
