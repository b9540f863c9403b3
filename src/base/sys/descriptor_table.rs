//! Whether two threads have one table of descriptors: kcmp(2).

/// `KCMP_FILES` of linux/kcmp.h.
const KCMP_FILES: libc::c_long = 2;

/// Whether what one of these threads opens the other one has, too. Where the kernel does not say: no.
pub fn is_shared(one: u32, other: u32) -> bool {
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: kcmp(2) takes numbers, reads no memory of the caller and writes none.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0_i64, 0_i64) };
    compared == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_their_table_and_processes_do_not() {
        let own = std::process::id();
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let threads = threads.filter_map(|one| one.unwrap().file_name().to_str()?.parse().ok());
        let (mut count, mut shared) = (0, 0);
        for thread in threads {
            count += 1;
            shared += u32::from(is_shared(own, thread));
        }
        assert!(count >= 1 && shared == count);
        assert!(!is_shared(own, 1) || own == 1);
    }
}
