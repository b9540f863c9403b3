//! A gateway with rules by which TLS is opened, and servers of HTTPS with certificates of the tests' own authority.

use std::{fs, ops::Deref, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{fixture::Fixture, python_server::PythonServer};

/// The port of the servers; plain HTTP is on the next one.
pub(crate) const PORT: u16 = 19_443;

/// The value of the secret, which no command is given.
pub(crate) const SECRET: &str = "s3cret-of-the-vault-7f1c";

const RULES: &str = r#"
[secrets.VAULT_TOKEN]
file = "DIRECTORY/token"

[[connect]]
id = "vault"
decision = "allow"
host = ["vault.test", "*.vault.test"]
address = ["127.83.0.0/16"]
port = [19443, 19444]
method = ["GET", "POST"]
path = ["/v1/**", "/ws", "/echo", "/to"]
tls = "terminate"
credential = { header = "authorization", secret = "VAULT_TOKEN", format = "Bearer {}" }
matches = ["GET https://vault.test:19443/v1/x", "POST https://a.vault.test:19443/v1/x"]
rejects = ["GET https://vault.test:19443/v2", "DELETE https://vault.test:19443/v1/x"]

[[connect]]
id = "closed-part"
decision = "deny"
host = ["vault.test"]
path = ["/v1/private/**"]
reason = "it is closed"

[[connect]]
id = "carried"
decision = "allow"
host = ["carried.test"]
address = ["127.83.0.0/16"]
port = [19443, 19444]

[[connect]]
id = "asked"
decision = "ask"
host = ["asked.test"]
address = ["127.83.0.0/16"]
port = [19443]
reason = "it has a secret"
tls = "terminate"
credential = { header = "x-key", secret = "VAULT_TOKEN" }

[[connect]]
id = "bad-servers"
decision = "allow"
host = ["expired.test", "wrong.test", "own.test"]
address = ["127.83.0.0/16"]
port = [19443]
tls = "terminate"
"#;

/// The gateway, its usual servers, and these.
pub(crate) struct OpenedFixture {
    fixture: Fixture,
    /// With the certificates of the servers.
    pub certificates: TempDir,
    _server: PythonServer,
}

impl Deref for OpenedFixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl OpenedFixture {
    pub(crate) fn start() -> Self {
        Self::start_as(None)
    }

    /// With a gateway of this user, when the tests run as root.
    pub(crate) fn start_as(user: Option<u32>) -> Self {
        let certificates = tempfile::Builder::new().prefix("provost-tls-").tempdir().expect("a directory");
        let directory = certificates.path();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        make_certificates(directory);
        let further = format!("trusted_roots = \"{}\"", directory.join("root.pem").display());
        let fixture = Fixture::start_with(user, &further);
        let token = directory.join("token");
        fs::write(&token, format!("{SECRET}\n")).expect("a file");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        if let Some(user) = user.filter(|_| crate::support::is_root()) {
            std::os::unix::fs::chown(&token, Some(user), Some(user)).expect("root may");
        }
        let arguments = [fixture.address.as_str(), &PORT.to_string()];
        let server = PythonServer::start(include_str!("opened_server.py"), &arguments, directory);
        let opened = Self { fixture, certificates, _server: server };
        opened.reload(&opened.with_rules(&opened.policy_text()));
        opened
    }

    /// A policy with the rules of these tests.
    fn with_rules(&self, text: &str) -> String {
        format!("{text}\n{}", RULES.replace("DIRECTORY", &self.certificates.path().display().to_string()))
    }

    /// What a server says of a header with this value.
    pub(crate) fn digest(value: &str) -> String {
        let digest = Sha256::digest(value.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A root, and by it certificates for the right names, for another one, and of the past; and one of a private authority.
fn make_certificates(directory: &Path) {
    let script = "set -e
        key() { openssl ecparam -name prime256v1 -genkey -noout -out $1.key; }
        key root
        openssl req -x509 -key root.key -days 2 -subj '/CN=Test root' -out root.pem
        sign() {
            key $1
            printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' \"$2\" > $1.ext
            openssl req -new -key $1.key -subj \"/CN=$1\" -out $1.csr
            openssl x509 -req -in $1.csr -CA $4.pem -CAkey $4.key -CAcreateserial -extfile $1.ext -out $1.pem $3
        }
        sign vault DNS:vault.test,DNS:*.vault.test,DNS:carried.test,DNS:later.test,DNS:asked.test '-days 2' root
        sign other DNS:other.test '-days 2' root
        sign expired DNS:expired.test '-days -1' root
        key private
        openssl req -x509 -key private.key -days 2 -subj '/CN=Private root' -out private.pem
        sign own DNS:own.test '-days 2' private
        chmod 644 *.key *.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(directory).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
