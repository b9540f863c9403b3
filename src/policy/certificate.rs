//! Certificates by which the TLS of commands is opened for named hosts, and nothing else. Pure but for the keys that it makes.
//!
//! An authority is a key whose certificate says for which hosts it may sign, and until when: a certificate that it signs for another host,
//! or for an address, is valid nowhere. Where keys are kept, and for which hosts there is an authority, is decided elsewhere.
//!
//! Programs read certificates as text (PEM), and Java reads them from a key store of type JKS with trusted certificates alone, which every
//! version of Java knows. The store's checksum is keyed by a password that everybody knows. It shows that the file is whole and protects
//! nothing: that commands cannot write the file does.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::network::name::HostName;

/// How long the certificate of an authority is valid.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// A clock inside may stand this far behind.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The library has refused.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// The certificate of the authority does not let it sign for this host.
    #[error("the authority may not sign for {0}")]
    Host(HostName),
    /// A stored name is none.
    #[error("a stored authority is for {0:?}, which is no name of a host")]
    StoredHost(String),
    /// It is valid no more.
    #[error("the authority has expired")]
    Expired,
}

/// A key that signs for its hosts. Not printed by anything.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    name: String,
    certificate: Vec<u8>,
    hosts: BTreeSet<HostName>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// What an authority is restored from.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorityParts {
    /// The common name of its subject.
    pub name: String,
    /// DER.
    pub certificate: Vec<u8>,
    /// PKCS #8, DER.
    pub key: Vec<u8>,
    /// For which it signs, and all names below them.
    pub hosts: Vec<String>,
    /// Since when.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
}

/// A certificate for one host, and its key.
#[derive(Clone)]
pub struct HostCertificate {
    /// DER.
    pub certificate: Vec<u8>,
    /// PKCS #8, DER.
    pub key: Vec<u8>,
    /// The certificate of the authority (DER), which those who trust it have: it names all of its hosts, and is sent to nobody.
    pub issuer: Vec<u8>,
}

impl Authority {
    /// Makes one for these hosts and all names below them. `name` is its own among all authorities.
    ///
    /// # Errors
    /// [`CertificateError::Make`].
    pub fn create(name: &str, hosts: BTreeSet<HostName>, now: SystemTime) -> Result<Self, CertificateError> {
        let (not_before, not_after) = (now - CLOCK_TOLERANCE, now + AUTHORITY_LIFETIME);
        let key = KeyPair::generate()?;
        let mut params = subject(name);
        (params.not_before, params.not_after) =
            (date_time_ymd(1970, 1, 1) + seconds(not_before), date_time_ymd(1970, 1, 1) + seconds(not_after));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: hosts
                .iter()
                .map(|host| GeneralSubtree::DnsName(host.as_str().to_owned()))
                .collect(),
            // Names of hosts constrain no addresses (RFC 5280, 4.2.1.10).
            excluded_subtrees: vec![
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(Ipv4Addr::UNSPECIFIED.into(), 0)),
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(Ipv6Addr::UNSPECIFIED.into(), 0)),
            ],
        });
        let certificate = params.self_signed(&key)?.der().to_vec();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, name: name.to_owned(), certificate, hosts, not_before, not_after })
    }

    /// Restores one.
    ///
    /// # Errors
    /// [`CertificateError`]: a part is none.
    pub fn restore(parts: AuthorityParts) -> Result<Self, CertificateError> {
        let AuthorityParts { name, certificate, key, hosts, not_before, not_after } = parts;
        let host = |text: String| HostName::parse(&text).map_err(|_| CertificateError::StoredHost(text));
        let hosts = hosts.into_iter().map(host).collect::<Result<_, _>>()?;
        let issuer = Issuer::new(subject(&name), KeyPair::try_from(key)?);
        Ok(Self { issuer, name, certificate, hosts, not_before, not_after })
    }

    /// What it is restored from.
    pub fn parts(&self) -> AuthorityParts {
        AuthorityParts {
            name: self.name.clone(),
            certificate: self.certificate.clone(),
            key: self.issuer.key().serialize_der(),
            hosts: self.hosts.iter().map(ToString::to_string).collect(),
            not_before: self.not_before,
            not_after: self.not_after,
        }
    }

    /// Its certificate (DER).
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether it may sign for a host, or for all names below it.
    pub fn covers(&self, host: &HostName) -> bool {
        self.hosts.iter().any(|own| own == host || host.is_below(own))
    }

    /// Signs for a host, with a new key.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn issue(&self, host: &HostName, now: SystemTime) -> Result<HostCertificate, CertificateError> {
        if !self.covers(host) {
            return Err(CertificateError::Host(host.clone()));
        }
        if now >= self.not_after {
            return Err(CertificateError::Expired);
        }
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (
            date_time_ymd(1970, 1, 1) + seconds(self.not_before),
            date_time_ymd(1970, 1, 1) + seconds(self.not_after),
        );
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Provost session");
        params.subject_alt_names = vec![SanType::DnsName(host.as_str().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(HostCertificate {
            certificate: certificate.der().to_vec(),
            key: key.serialize_der(),
            issuer: self.certificate.clone(),
        })
    }
}

/// What an issuer is known by, and what it may do.
fn subject(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Provost session");
    params.distinguished_name.push(DnType::CommonName, name);
    // It signs no further authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Since 1970. Certificates know whole seconds.
fn seconds(at: SystemTime) -> Duration {
    Duration::from_secs(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

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

    fn host(name: &str) -> HostName {
        HostName::parse(name).unwrap()
    }

    #[test]
    fn an_authority_signs_for_its_hosts_and_those_below_them_and_is_restored() {
        let now = SystemTime::now();
        let made = Authority::create("one", [host("a.test")].into(), now).unwrap();
        let restored = Authority::restore(made.parts()).unwrap();
        assert!(restored.parts() == made.parts());
        for authority in [made, restored] {
            for covered in ["a.test", "x.a.test"] {
                let signed = authority.issue(&host(covered), now).unwrap();
                assert_eq!(signed.issuer, authority.certificate());
            }
            for other in ["test", "xa.test", "a.test.example"] {
                let refused = authority.issue(&host(other), now);
                assert!(matches!(refused, Err(CertificateError::Host(_))), "{other}");
            }
            let late = authority.issue(&host("a.test"), authority.not_after());
            assert!(matches!(late, Err(CertificateError::Expired)));
        }
    }

    #[test]
    fn what_is_written_is_read_and_other_texts_are_left_out() {
        let (one, two) = (vec![7_u8; 100], vec![9_u8; 48]);
        let text = format!("# a comment\n{}between\n{}", write_certificate(&one), write_certificate(&two));
        assert!(text.lines().all(|line| line.len() <= LINE_BYTES));
        assert_eq!(read_certificates(text.as_bytes()), [one, two]);
        assert!(read_certificates(b"no certificate").is_empty());
    }

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
