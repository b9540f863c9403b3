//! Calls that fail as if the kernel did not have them (`ENOSYS`), so that programs fall back to calls that the
//! filter can check.

use super::table::{ListedCall, Numbers, listed};

/// All of them.
pub(super) const CALLS: &[ListedCall] = &[
    listed(
        "io_setup",
        Numbers::new(206, 0),
        "the host has one number of contexts for all (`fs.aio-max-nr`); libraries go on with threads",
    ),
    listed("memfd_secret", Numbers::same(447), "memory that not even the kernel can look into"),
    listed("io_uring_setup", Numbers::same(425), "a second way to make calls, out of this filter's sight"),
    listed("io_uring_enter", Numbers::same(426), "as io_uring_setup"),
    listed("io_uring_register", Numbers::same(427), "as io_uring_setup"),
    listed("cachestat", Numbers::same(451), "which pages of the host's files others have read"),
    listed("statmount", Numbers::same(457), "mounts; programs read `/proc/self/mountinfo`"),
    listed("listmount", Numbers::same(458), "as statmount"),
    listed("lsm_get_self_attr", Numbers::same(459), "what `/proc/self/attr` says"),
    listed("lsm_set_self_attr", Numbers::same(460), "past `/proc/self/attr`, which is read-only"),
    listed("lsm_list_modules", Numbers::same(461), "which security modules the host has"),
    listed(
        "openat2",
        Numbers::same(437),
        "its mode lies in memory, where a filter cannot look for set-id bits; programs use openat",
    ),
];
