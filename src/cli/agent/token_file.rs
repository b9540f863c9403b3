//! The file with the token of an HTTP endpoint: made with a new token, or read if it is this user's alone.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{
    cli::console::error::CliError,
    local_http::{TOKEN_MAX_CHARACTERS, Token},
    printable,
    sys::random,
};

/// Bytes of a new token.
const TOKEN_BYTES: usize = 32;

/// The token in the file, which is made if it is not there.
pub(super) fn token_in(file: &Path) -> Result<Token, CliError> {
    let text = match create(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(file).map_err(|error| {
            CliError::caused_by(format!("cannot use the token in {}", printable::path(file)), error)
        })?,
        Err(error) => {
            return Err(CliError::caused_by(
                format!("cannot make the token {}", printable::path(file)),
                error,
            ));
        }
    };
    Token::parse(text.trim()).ok_or_else(|| {
        CliError::message_only(format!("{} has no token", printable::path(file)))
            .with_advice("remove it, and a new one is made")
    })
}

fn create(file: &Path) -> io::Result<String> {
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let token = URL_SAFE_NO_PAD.encode(random::bytes::<TOKEN_BYTES>()?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    Ok(token)
}

/// Of a regular file of this user that nobody else can open.
fn read(file: &Path) -> io::Result<String> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let status = file.metadata()?;
    let is_own = status.uid() == nix::unistd::geteuid().as_raw();
    if !status.is_file() || !is_own || status.mode() & 0o077 != 0 {
        let message = "it is not a file of this user with the mode 0600";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut text = String::new();
    file.take(TOKEN_MAX_CHARACTERS as u64 + 2).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/token");
        token_in(&file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert!(text.trim().len() >= 43);
        token_in(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }

    #[test]
    fn a_file_that_others_can_open_or_a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        token_in(&file).unwrap();
        let link = directory.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(token_in(&link).is_err());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(token_in(&file).is_err());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "short").unwrap();
        assert!(token_in(&file).is_err());
    }
}
