//! The variables that a command's network implies, unless they are set: how tools learn of a proxy, of certificates, and that there is no
//! network.

use std::collections::BTreeSet;

use super::{profile::Network, set::SecretGrant};
use crate::network::name::HostName;

/// Variables of commands without a network, unless they are set: these tools try a refused name again for up to a minute, in
/// silence (npm: twice, after 10 and 60 s).
const WITHOUT_NETWORK: [(&str, &str); 3] =
    [("npm_config_fetch_retries", "0"), ("PIP_RETRIES", "0"), ("CARGO_NET_RETRY", "0")];

/// The address of the HTTP proxy in a sandbox.
pub const PROXY_ADDRESS: &str = "http://127.0.0.1:3128";

/// Variables of commands with the network `proxy`, unless they are set: how tools learn of the proxy. All are sent to the HTTP proxy,
/// because several tools fail when a variable names a SOCKS proxy and a part of theirs is not installed.
const WITH_PROXY: [(&str, &str); 9] = [
    ("HTTP_PROXY", PROXY_ADDRESS),
    ("HTTPS_PROXY", PROXY_ADDRESS),
    ("ALL_PROXY", PROXY_ADDRESS),
    ("http_proxy", PROXY_ADDRESS),
    ("https_proxy", PROXY_ADDRESS),
    ("all_proxy", PROXY_ADDRESS),
    ("NO_PROXY", "localhost,127.0.0.1,::1,sandbox"),
    ("no_proxy", "localhost,127.0.0.1,::1,sandbox"),
    // Node's own fetch looks at the others only then.
    ("NODE_USE_ENV_PROXY", "1"),
];

/// Where commands find the certificates by which TLS of theirs is opened: a directory that they can only read.
pub const CERTIFICATES_DIRECTORY: &str = "/run/provost/certificates";

/// In that directory: the host's trusted roots and the session's own.
pub const BUNDLE_FILE: &str = "bundle.pem";

/// In that directory: the session's own alone.
pub const SESSION_FILE: &str = "session.pem";

/// In that directory: as [`BUNDLE_FILE`], in a form that Java reads.
pub const JAVA_FILE: &str = "bundle.jks";

/// The variable that every Java machine reads. It says so on standard error.
const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// Variables of commands whose TLS is opened, unless they are set: how tools learn of the certificates. The files of
/// [`CERTIFICATES_DIRECTORY`].
const WITH_OPENED_TLS: [(&str, &str); 10] = [
    ("SSL_CERT_FILE", BUNDLE_FILE),
    ("CURL_CA_BUNDLE", BUNDLE_FILE),
    ("REQUESTS_CA_BUNDLE", BUNDLE_FILE),
    ("PIP_CERT", BUNDLE_FILE),
    ("GIT_SSL_CAINFO", BUNDLE_FILE),
    ("CARGO_HTTP_CAINFO", BUNDLE_FILE),
    ("npm_config_cafile", BUNDLE_FILE),
    ("AWS_CA_BUNDLE", BUNDLE_FILE),
    // These add to the roots that the program has.
    ("NODE_EXTRA_CA_CERTS", SESSION_FILE),
    ("DENO_CERT", SESSION_FILE),
];

/// What rules about connections do to the TLS of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenedTls {
    /// The names, with all below them, for which the session has certificates; empty: it is opened to none.
    pub hosts: BTreeSet<HostName>,
    /// The secrets that its requests may be given, which it never has.
    pub secrets: Vec<SecretGrant>,
}

/// The value of a variable in the place of a secret that requests are given.
pub fn placeholder(secret: &str) -> String {
    format!("provost-placeholder-{secret}")
}

/// The variables that a command's network implies, unless they are set.
pub fn implied_by_network(network: Network, opened: &OpenedTls) -> Vec<(String, String)> {
    let fixed: &[(&str, &str)] = match network {
        Network::None => &WITHOUT_NETWORK,
        Network::Proxy => &WITH_PROXY,
        Network::Host => &[],
    };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let file = |(name, file): &(&str, &str)| ((*name).to_owned(), format!("{CERTIFICATES_DIRECTORY}/{file}"));
    let certificates = WITH_OPENED_TLS.iter().filter(|_| !opened.hosts.is_empty()).map(file);
    let java_options = || {
        let store = format!("-Djavax.net.ssl.trustStore={CERTIFICATES_DIRECTORY}/{JAVA_FILE}");
        (JAVA_OPTIONS.to_owned(), format!("{store} -Djavax.net.ssl.trustStoreType=JKS"))
    };
    let java = (!opened.hosts.is_empty()).then(java_options);
    let placeholders = opened.secrets.iter().map(|secret| (secret.name.clone(), placeholder(&secret.name)));
    fixed.iter().map(owned).chain(certificates).chain(java).chain(placeholders).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{environment::merge_to_list, profile::Profile},
        *,
    };

    #[test]
    fn what_opened_tls_implies_is_for_the_proxy_and_gives_way_to_what_is_set() {
        let secret = SecretGrant { name: "TOKEN".into(), file: "/s".into() };
        let hosts = [HostName::parse("a.test").unwrap()].into();
        let opened = OpenedTls { hosts, secrets: vec![secret] };
        let mut profile = Profile::default();
        profile.environment.set.insert("GIT_SSL_CAINFO".into(), "/own".into());
        let merged = |opened| {
            let implied = implied_by_network(Network::Proxy, opened);
            merge_to_list(&profile, implied, &[], &[])
        };
        let has = |list: &[bytes::Bytes], entry: &str| list.iter().any(|one| one == entry.as_bytes());
        let with = merged(&opened);
        for entry in [
            "GIT_SSL_CAINFO=/own",
            "SSL_CERT_FILE=/run/provost/certificates/bundle.pem",
            "NODE_EXTRA_CA_CERTS=/run/provost/certificates/session.pem",
            "TOKEN=provost-placeholder-TOKEN",
        ] {
            assert!(has(&with, entry), "{entry}");
        }
        let without = merged(&OpenedTls::default());
        assert!(
            has(&without, "GIT_SSL_CAINFO=/own") && !without.iter().any(|one| one.starts_with(b"SSL_CERT"))
        );
    }
}
