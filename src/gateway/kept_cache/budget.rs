//! Counts what a generation takes, so that neither its bytes nor the number of its files is without a bound.

use super::error::KeepError;

/// What each file, directory and link takes at least.
const PAGE_BYTES: u64 = 4096;

/// What may still be taken.
#[derive(Debug)]
pub(super) struct Budget {
    max_bytes: u64,
    used_bytes: u64,
    files: u64,
}

impl Budget {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, used_bytes: 0, files: 0 }
    }

    /// A directory or a link: it takes a page.
    pub(super) fn add_entry(&mut self) -> Result<(), KeepError> {
        self.add(PAGE_BYTES)
    }

    /// A file of this length, of which holes count as well.
    pub(super) fn add_file(&mut self, length: u64) -> Result<(), KeepError> {
        self.files += 1;
        self.add(length.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX).max(PAGE_BYTES))
    }

    fn add(&mut self, bytes: u64) -> Result<(), KeepError> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.max_bytes {
            return Err(KeepError::TooLarge { max_bytes: self.max_bytes });
        }
        Ok(())
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn files(&self) -> u64 {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_empty_files_count_a_page_each_and_a_sparse_one_its_length() {
        let mut budget = Budget::new(4 * PAGE_BYTES);
        budget.add_file(0).unwrap();
        budget.add_file(1).unwrap();
        budget.add_entry().unwrap();
        assert_eq!((budget.used_bytes(), budget.files()), (3 * PAGE_BYTES, 2));
        budget.add_file(PAGE_BYTES).unwrap();
        assert!(matches!(budget.add_entry(), Err(KeepError::TooLarge { .. })));
        assert!(matches!(Budget::new(u64::MAX - 1).add_file(u64::MAX), Err(KeepError::TooLarge { .. })));
    }
}
