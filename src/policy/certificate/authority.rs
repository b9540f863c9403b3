//! An authority: a key whose certificate says for which hosts it may sign, and until when.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
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
}
