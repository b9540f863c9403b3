//! Calls that are refused (`EPERM`) whatever their arguments, family by family.

use libc::c_long;

use super::arch::Arch;

/// All of them.
pub(super) fn calls(machine: Arch) -> Vec<c_long> {
    [
        large_parts(machine),
        kernel_code(machine),
        keyrings(machine),
        namespaces_and_mounts(machine),
        whole_machine(machine),
        memory_layout(machine),
        only_x86(machine),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Large parts of the kernel that nobody who builds or tests needs.
fn large_parts(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(321, 280), // bpf
        machine.number(298, 241), // perf_event_open
        machine.number(323, 282), // userfaultfd: makes races in the kernel easy to win.
        machine.number(300, 262), // fanotify_init: sees what others open, and can make them wait.
    ]
}

/// The kernel's code.
fn kernel_code(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(175, 105), // init_module
        machine.number(313, 273), // finit_module
        machine.number(176, 106), // delete_module
        machine.number(246, 104), // kexec_load
        machine.number(320, 294), // kexec_file_load
    ]
}

/// Keyrings are not namespaced.
fn keyrings(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(250, 219), // keyctl
        machine.number(248, 217), // add_key
        machine.number(249, 218), // request_key
    ]
}

/// Namespaces and mounts: the sandbox's own, which stay as they were made. And what goes around the path, straight to
/// the file.
fn namespaces_and_mounts(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(308, 268), // setns
        machine.number(165, 40),  // mount
        machine.number(166, 39),  // umount2
        machine.number(155, 41),  // pivot_root
        machine.number(161, 51),  // chroot
        428,                      // open_tree
        429,                      // move_mount
        430,                      // fsopen
        431,                      // fsconfig
        432,                      // fsmount
        433,                      // fspick
        442,                      // mount_setattr
        467,                      // open_tree_attr
        machine.number(304, 265), // open_by_handle_at
    ]
}

/// The whole machine's.
fn whole_machine(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(167, 224), // swapon
        machine.number(168, 225), // swapoff
        machine.number(169, 142), // reboot
        machine.number(164, 170), // settimeofday
        machine.number(227, 112), // clock_settime
        machine.number(159, 171), // adjtimex
        machine.number(305, 266), // clock_adjtime
        machine.number(163, 89),  // acct
        machine.number(179, 60),  // quotactl
        443,                      // quotactl_fd
        machine.number(103, 116), // syslog
        machine.number(153, 58),  // vhangup
        machine.number(212, 18),  // lookup_dcookie
        machine.number(180, 42),  // nfsservctl
    ]
}

/// Memory of others by way of the machine's layout.
fn memory_layout(machine: Arch) -> Vec<c_long> {
    vec![
        machine.number(256, 238), // migrate_pages
        machine.number(279, 239), // move_pages
    ]
}

/// Calls that only x86 has.
fn only_x86(machine: Arch) -> Vec<c_long> {
    if machine != Arch::X86_64 {
        return Vec::new();
    }
    vec![
        172, // iopl
        173, // ioperm
        154, // modify_ldt
        156, // _sysctl
        136, // ustat
        139, // sysfs
        134, // uselib
        174, // create_module
        177, // get_kernel_syms
        178, // query_module
    ]
}
