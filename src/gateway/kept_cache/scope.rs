//! Which sessions share a kept cache, and the name under which a session's layer of one is known. Pure.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of the hash that names a scope's directory.
const KEY_BYTES: usize = 16;
/// What stands between the parts of a cache's place in a directory's name.
const SEPARATOR: &str = "+";
/// What a layer's name begins with.
const LAYER: &str = "layer";
/// What the name of an overlay begins with.
const OVERLAY: &str = "cache";

/// Sessions of one principal in which everything here is the same find one another's caches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The profile's name.
    pub profile: String,
    /// Its content: a changed profile begins with nothing.
    pub confinement: u64,
    /// The network.
    pub network: String,
    /// The roots that commands may write to, sorted; none: sessions with any roots.
    pub roots: Option<Vec<String>>,
    /// As the profile has it.
    pub max_bytes: u64,
    /// As the profile has it.
    pub max_age: Duration,
}

impl Scope {
    /// The name of its directory.
    pub(super) fn key(&self) -> ScopeKey {
        let mut hash = Sha256::new();
        let confinement = self.confinement.to_string();
        let roots = self.roots.iter().flatten().map(String::as_str);
        let is_of_roots = if self.roots.is_some() { "roots" } else { "any" };
        for part in [&self.profile, &confinement, &self.network, is_of_roots].into_iter().chain(roots) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        ScopeKey(digest[..KEY_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The name of a scope's directory: of hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ScopeKey(String);

impl ScopeKey {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 2 * KEY_BYTES && text.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A session's layer above a kept cache, by the name under which its sandboxes hold it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayerName {
    pub(super) key: String,
    /// The cache's directory, relative to a home.
    pub place: PathBuf,
}

impl LayerName {
    pub(super) fn new(key: &ScopeKey, place: &std::path::Path) -> Self {
        Self { key: key.as_str().to_owned(), place: place.to_owned() }
    }

    /// Reads the name of a layer. `None` for the name of anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, place) = text.strip_prefix(LAYER)?.strip_prefix(' ')?.split_once(' ')?;
        let place = PathBuf::from(place);
        let is_plain = place.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let key = ScopeKey::parse(key)?;
        (is_plain && !place.as_os_str().is_empty()).then_some(Self { key: key.0, place })
    }

    /// The name of what the commands see: the overlay of this layer.
    #[must_use]
    pub fn overlay_name(&self) -> String {
        format!("{OVERLAY} {} {}", self.key, self.place.display())
    }

    /// Reads the name of an overlay.
    #[must_use]
    pub fn parse_overlay_name(text: &str) -> Option<Self> {
        Self::parse(&format!("{LAYER}{}", text.strip_prefix(OVERLAY)?))
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LAYER} {} {}", self.key, self.place.display())
    }
}

/// The name of the directory of the cache at this place.
pub(super) fn directory_name(place: &std::path::Path) -> String {
    place.to_string_lossy().replace('/', SEPARATOR)
}

/// What [`directory_name`] was made of.
pub(super) fn place_of(directory_name: &str) -> PathBuf {
    PathBuf::from(directory_name.replace(SEPARATOR, "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope {
            profile: "build".into(),
            confinement: 7,
            network: "proxy".into(),
            roots: Some(vec!["/a".into(), "/b".into()]),
            max_bytes: 1,
            max_age: Duration::from_secs(1),
        }
    }

    #[test]
    fn whatever_differs_makes_another_scope_and_bounds_do_not() {
        let all = [
            scope(),
            Scope { profile: "buil".into(), ..scope() },
            Scope { confinement: 8, ..scope() },
            Scope { network: "none".into(), ..scope() },
            Scope { roots: None, ..scope() },
            Scope { roots: Some(Vec::new()), ..scope() },
            Scope { roots: Some(vec!["/a/b".into()]), ..scope() },
        ];
        let keys: std::collections::BTreeSet<_> = all.iter().map(Scope::key).collect();
        assert_eq!(keys.len(), all.len());
        assert_eq!(Scope { max_bytes: 2, ..scope() }.key(), scope().key());
    }

    #[test]
    fn a_layers_name_is_read_as_it_was_written_and_leads_nowhere_else() {
        let name = LayerName::new(&scope().key(), std::path::Path::new(".cargo/registry"));
        assert_eq!(LayerName::parse(&name.to_string()), Some(name.clone()));
        assert_eq!(LayerName::parse_overlay_name(&name.overlay_name()), Some(name.clone()));
        assert_eq!(LayerName::parse_overlay_name("cache .cargo/registry"), None, "the session's alone");
        assert_eq!(place_of(&directory_name(&name.place)), name.place);
        let key = scope().key();
        let wrong =
            ["tmp", "layer", "layer x .npm", &format!("layer {} ../x", key.as_str())].map(LayerName::parse);
        assert_eq!(wrong, [None, None, None, None]);
        assert_eq!(LayerName::parse(&format!("layer {} /etc", key.as_str())), None);
        assert_eq!(LayerName::parse(&format!("layer ../{} .npm", key.as_str())), None);
    }
}
