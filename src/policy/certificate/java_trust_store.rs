//! Certificates in the form that Java reads: a key store of type JKS with trusted certificates alone, which every version of Java knows.
//!
//! Its checksum is keyed by a password that everybody knows. It shows that the file is whole and protects nothing: that commands cannot write
//! the file does.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// The password of Java's own key stores.
pub const JAVA_STORE_PASSWORD: &str = "changeit";

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const CERTIFICATE_TYPE: &str = "X.509";
/// Is in every checksum of this form.
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// A key store that trusts these certificates (DER).
pub fn write_java_trust_store(certificates: &[Vec<u8>]) -> Vec<u8> {
    let fitting: Vec<&Vec<u8>> = certificates.iter().filter(|one| u32::try_from(one.len()).is_ok()).collect();
    let mut store = Vec::new();
    let number = |store: &mut Vec<u8>, number: usize| {
        store.extend(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    };
    let text = |store: &mut Vec<u8>, text: &str| {
        store.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        store.extend(text.as_bytes());
    };
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    number(&mut store, fitting.len());
    for (index, certificate) in fitting.into_iter().enumerate() {
        store.extend(TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut store, &format!("root-{index}"));
        // When it was added: nobody looks at it.
        store.extend(0_u64.to_be_bytes());
        text(&mut store, CERTIFICATE_TYPE);
        number(&mut store, certificate.len());
        store.extend(certificate);
    }
    let mut checksum = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let password: Vec<u8> = JAVA_STORE_PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    checksum.update(&password);
    checksum.update(WHITENER);
    checksum.update(&store);
    store.extend(checksum.finish().as_ref());
    store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_its_certificates_in_order_and_a_checksum() {
        let store = write_java_trust_store(&[vec![7; 300], vec![9; 10]]);
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!(store[12..24], *b"\0\0\0\x02\0\x06root-0");
        assert_eq!(store[32..43], *b"\0\x05X.509\0\0\x01\x2c");
        assert!(store[43..343].iter().all(|byte| *byte == 7));
        assert_eq!(store.len(), 343 + 31 + 10 + 20);
    }
}
