//! Secrets (S9): a command that is given one has it, and nobody else ever sees its value.

mod apart;
mod given;
mod masked;
mod refused;
mod screen;
mod signing;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    sync::Arc,
};

use crate::support::{Command, Gateway, Options, Session, eventually};

/// The value. Its beginning comes back within it, and it ends as it begins.
pub(crate) const VALUE: &str = "tok-tok-s3cr3t/0123456789+abcdef=tok";

/// What stands in its place in output.
pub(crate) fn covered() -> String {
    "*".repeat(VALUE.len())
}

/// A gateway whose profile "armed" gives the secret `TOKEN`, and whose rule gives `RULED` to `printenv`.
pub(crate) struct Armed {
    pub(crate) gateway: Arc<Gateway>,
    /// The file of `TOKEN`.
    pub(crate) file: PathBuf,
}

impl Armed {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        let user = options.user;
        let gateway = Gateway::start_with(options);
        let file = gateway.directory().join("token");
        write_secret(&file, VALUE, 0o600);
        let ruled = gateway.directory().join("ruled");
        write_secret(&ruled, "another-value-altogether", 0o600);
        if let Some(user) = user {
            for secret in [&file, &ruled] {
                chown(secret, Some(user), Some(user)).expect("root can give a file away");
            }
        }
        let policy = format!(
            "[secrets.TOKEN]\nfile = {file:?}\n[secrets.RULED]\nfile = {ruled:?}\n\
             [profile.armed]\nextends = 'workspace'\nsecrets = ['TOKEN']\n\
             [[rule]]\nid = 'ruled'\ndecision = 'allow'\nargv = ['printenv', '**']\neffects.secrets = ['RULED']\n\
             [[rule]]\nid = 'held'\ndecision = 'allow'\nargv = ['dash', '-c', '**']\neffects.secrets = ['RULED']\n\
             [[rule]]\nid = 'never'\ndecision = 'deny'\nargv = ['chown', '**']\nreason = 'never'\n\
             [[rule]]\nid = 'careful'\ndecision = 'ask'\nargv = ['mkfifo', '**']\nreason = 'ask first'\n"
        );
        let directory = gateway.directory().join("policies");
        fs::write(directory.join("secrets.new"), policy).expect("a policy can be written");
        fs::rename(directory.join("secrets.new"), directory.join("secrets.toml"))
            .expect("it can be put in place");
        let armed = Self { gateway, file };
        let session = match user {
            Some(user) => Session::open_as(&armed.gateway, user).await,
            None => Session::open(&armed.gateway).await,
        };
        loop {
            match with_secret(session.command("true")).try_create().await {
                Ok(terminal) => break terminal.release().await,
                Err(refusal) => assert_eq!(refusal.meta("rule"), "profile.exists", "{refusal:?}"),
            }
            tokio::task::yield_now().await;
        }
        session.close().await;
        armed
    }

    /// Fails if the gateway has written the value, or a good part of it, into its log or its state.
    pub(crate) fn must_have_told_nobody(&self) {
        let log = self.gateway.log_tail();
        assert!(!log.contains(&VALUE[4..20]), "{log}");
        let mut directories = vec![self.gateway.state.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let kind = entry.file_type().expect("an entry has a type");
                if kind.is_dir() {
                    directories.push(entry.path());
                } else if kind.is_file() {
                    let content = fs::read(entry.path()).unwrap_or_default();
                    let found = content.windows(16).any(|part| part == &VALUE.as_bytes()[4..20]);
                    assert!(!found, "{} holds the secret", entry.path().display());
                }
            }
        }
    }
}

pub(crate) fn write_secret(path: &PathBuf, value: &str, mode: u32) {
    let aside = path.with_extension("new");
    fs::write(&aside, format!("{value}\n")).expect("a secret can be written");
    fs::set_permissions(&aside, fs::Permissions::from_mode(mode)).expect("the file is ours");
    fs::rename(aside, path).expect("it can be put in place");
}

/// The command, under the profile that gives it the secret.
pub(crate) fn with_secret(command: Command) -> Command {
    command.with(|request| request.profile = "armed".into())
}

/// Runs a test's body with a gateway and a session, and looks for the value everywhere after it.
pub(crate) async fn armed(body: impl AsyncFnOnce(&Armed, &Session)) {
    let armed = Armed::start().await;
    let session = Session::open(&armed.gateway).await;
    body(&armed, &session).await;
    session.close().await;
    armed.must_have_told_nobody();
    eventually("the end of the gateway", || {
        armed.gateway.stop();
        Some(())
    })
    .await;
    armed.must_have_told_nobody();
}
