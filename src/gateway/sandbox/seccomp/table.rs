//! Entries of the tables: which call, under which number on which machine, and the reason for its entry.

use libc::c_long;

use super::arch::Arch;

/// The numbers of a call; a machine without a number does not have the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) x86_64: Option<c_long>,
    pub(super) aarch64: Option<c_long>,
}

impl Numbers {
    pub(super) const fn new(x86_64: c_long, aarch64: c_long) -> Self {
        Self { x86_64: Some(x86_64), aarch64: Some(aarch64) }
    }

    /// Calls from 424 on have the same number everywhere.
    pub(super) const fn same(number: c_long) -> Self {
        Self::new(number, number)
    }

    pub(super) const fn only_x86_64(number: c_long) -> Self {
        Self { x86_64: Some(number), aarch64: None }
    }

    pub(super) const fn on(self, machine: Arch) -> Option<c_long> {
        match machine {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// A call that is refused whatever its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedCall {
    pub(super) numbers: Numbers,
    /// For readers, and for the table in docs/confinement.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) name: &'static str,
    /// Likewise.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) reason: &'static str,
}

pub(super) const fn listed(name: &'static str, numbers: Numbers, reason: &'static str) -> ListedCall {
    ListedCall { numbers, name, reason }
}

/// The numbers that a table has on a machine.
pub(super) fn numbers(table: &'static [ListedCall], machine: Arch) -> impl Iterator<Item = c_long> {
    table.iter().filter_map(move |call| call.numbers.on(machine))
}
