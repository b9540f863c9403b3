//! What a signature would be for: texts that are signed with ssh-keygen(1) name a namespace (PROTOCOL.sshsig of OpenSSH), all else that an
//! agent signs is a login or unknown.

use super::wire::Reader;

/// What every such text begins with. A login begins with the length of a session's identifier, of which this is no possible value.
const MAGIC: &[u8] = b"SSHSIG";
const NAMESPACE_MAX_BYTES: usize = 64;

/// What is to be signed is no text of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no signature of a text in a namespace: a login, for example")]
pub struct NotSigned;

/// The namespace of a text that is to be signed: letters, digits, "-", "_", "." and "@".
///
/// # Errors
/// [`NotSigned`].
pub fn namespace(data: &[u8]) -> Result<String, NotSigned> {
    read(data).ok_or(NotSigned)
}

fn read(data: &[u8]) -> Option<String> {
    let mut rest = Reader(data.strip_prefix(MAGIC)?);
    let (namespace, reserved) = (rest.string()?, rest.string()?);
    let (algorithm, hash) = (rest.string()?, rest.string()?);
    rest.end()?;
    let hash_bytes = match algorithm {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    let is_name = (1..=NAMESPACE_MAX_BYTES).contains(&namespace.len()) && namespace.iter().all(is_plain);
    if !is_name || !reserved.is_empty() || hash.len() != hash_bytes {
        return None;
    }
    String::from_utf8(namespace.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh_agent::wire::put_string;

    fn text(namespace: &[u8], reserved: &[u8], algorithm: &[u8], hash: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for part in [namespace, reserved, algorithm, hash] {
            put_string(&mut bytes, part);
        }
        bytes
    }

    #[test]
    fn a_namespace_is_read_only_from_a_text_that_is_whole() {
        let whole = text(b"git", b"", b"sha512", &[7; 64]);
        assert_eq!(namespace(&whole).unwrap(), "git");
        assert_eq!(namespace(&text(b"file", b"", b"sha256", &[7; 32])).unwrap(), "file");
        for end in 0..whole.len() {
            assert_eq!(namespace(&whole[..end]), Err(NotSigned), "{end} bytes");
        }
        let login = [&32_u32.to_be_bytes()[..], &[1; 32], &[50], &[0, 0, 0, 3], b"git"].concat();
        for other in [
            login,
            [&whole[..], b"x"].concat(),
            text(b"git", b"x", b"sha512", &[7; 64]),
            text(b"git", b"", b"sha1", &[7; 20]),
            text(b"git", b"", b"sha512", &[7; 32]),
            text(b"", b"", b"sha512", &[7; 64]),
            text(b"git\0", b"", b"sha512", &[7; 64]),
            text(b" git", b"", b"sha512", &[7; 64]),
            text(&[b'g'; 65], b"", b"sha512", &[7; 64]),
        ] {
            assert_eq!(namespace(&other), Err(NotSigned), "{other:?}");
        }
    }
}
