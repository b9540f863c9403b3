//! Versions of the control protocol: which ones this build speaks, and which one two builds agree on. Pure.
//!
//! Supervisors outlive the gateways that started them, so that each build speaks its own version and the one before. A change
//! that an older supervisor would misunderstand needs a new version, and a test of its own.

/// The version of this build.
pub const CURRENT: u32 = 2;

/// The versions that a build of this one speaks: lowest and highest, both inclusive.
#[must_use]
pub fn spoken_by(version: u32) -> (u32, u32) {
    (version.saturating_sub(1).max(1), version)
}

/// The highest version of both ranges, if there is one.
#[must_use]
pub fn agree(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let highest = ours.1.min(theirs.1);
    (highest >= ours.0.max(theirs.0)).then_some(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_understand_one_another_and_strangers_do_not() {
        assert_eq!(agree((1, 2), (1, 2)), Some(2));
        assert_eq!(agree((1, 2), (2, 3)), Some(2));
        assert_eq!(agree((2, 3), (1, 2)), Some(2));
        assert_eq!(agree((1, 2), (3, 4)), None);
        assert_eq!(agree((3, 4), (1, 2)), None);
    }
}
