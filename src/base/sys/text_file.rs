//! Files that people write: configuration, keys. Reads a regular file of a bounded length and nothing else, so that a pipe
//! is not waited for and a device is not read without end.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::fcntl::OFlag;

/// The text of a regular file of at most that many bytes.
///
/// # Errors
/// Those of open(2) and read(2); `InvalidInput` for what is no regular file, `FileTooLarge` for a longer one, `InvalidData` for
/// what is no UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let options = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(options.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    let read = file.take(most_bytes + 1).read_to_string(&mut text)?;
    if read as u64 > most_bytes {
        let message = format!("it has more than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("text"), "abc").unwrap();
        assert_eq!(read_text(&at("text"), 3).unwrap(), "abc");
        let refused = |path: &Path, most| read_text(path, most).unwrap_err().kind();
        assert_eq!(refused(&at("text"), 2), io::ErrorKind::FileTooLarge);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for other in [&at("pipe"), Path::new("/dev/zero"), directory.path()] {
            assert_eq!(refused(other, 9), io::ErrorKind::InvalidInput, "{}", other.display());
        }
        assert_eq!(refused(&at("none"), 9), io::ErrorKind::NotFound);
    }
}
