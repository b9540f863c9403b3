//! The filter's answers, as a small classic BPF machine gives them.

use libc::c_long;

use super::{
    AnonymousPrograms,
    arch::Arch,
    bytecode::{
        ALLOW, AND, JUMP_AT_LEAST, JUMP_EQUAL, JUMP_IF_ANY_BIT, KILL_PROCESS, LOAD, NOTIFY, RETURN, errno,
    },
    conditional,
    families::{FAMILIES, Protocol},
    forbidden,
    notified::{ExecNonce, Listener},
    program,
    table::Numbers,
    unimplemented,
};

struct Call {
    arch: u32,
    number: c_long,
    arguments: [u64; 6],
}

fn call(number: c_long, arguments: &[u64]) -> Call {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    Call { arch: Arch::X86_64.audit_arch(), number, arguments: all }
}

/// A small classic BPF machine, for what the kernel would answer.
fn judge(program: &[u8], call: &Call) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&(call.number as u32).to_ne_bytes());
    data.extend_from_slice(&call.arch.to_ne_bytes());
    data.extend_from_slice(&0_u64.to_ne_bytes());
    for argument in call.arguments {
        data.extend_from_slice(&argument.to_ne_bytes());
    }
    let code: Vec<_> = program.chunks_exact(8).collect();
    let mut accumulator = 0_u32;
    let mut at = 0_usize;
    loop {
        let one = code[at];
        let operation = u16::from_ne_bytes([one[0], one[1]]);
        let value = u32::from_ne_bytes([one[4], one[5], one[6], one[7]]);
        let jump = |taken: bool| 1 + usize::from(if taken { one[2] } else { one[3] });
        at += match operation {
            LOAD => {
                let from = value as usize;
                accumulator = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
                1
            }
            AND => {
                accumulator &= value;
                1
            }
            JUMP_EQUAL => jump(accumulator == value),
            JUMP_AT_LEAST => jump(accumulator >= value),
            JUMP_IF_ANY_BIT => jump(accumulator & value != 0),
            RETURN => return value,
            other => panic!("no such operation {other:#x}"),
        };
    }
}

const EPERM: u32 = errno(libc::EPERM);
const ENOSYS: u32 = errno(libc::ENOSYS);

fn answers(number: c_long, arguments: &[u64]) -> u32 {
    judge(&program(Arch::X86_64, AnonymousPrograms::Allowed, Listener::None), &call(number, arguments))
}

#[test]
fn ordinary_calls_are_allowed() {
    for number in [0, 1, 9, 57, 59, 60, 231, 435, 101, 322] {
        assert_eq!(answers(number, &[]), ALLOW, "{number}");
    }
    assert_eq!(answers(257, &[0, 0, 0o101, 0o644]), ALLOW, "openat that creates");
    assert_eq!(answers(56, &[0x0120_0011]), ALLOW, "clone as fork does it");
    assert_eq!(answers(56, &[0x003d_0f00]), ALLOW, "clone of a thread");
}

#[test]
fn sockets_are_of_the_families_that_a_network_namespace_holds() {
    for call in [41, 53] {
        for family in FAMILIES {
            assert_eq!(answers(call, &[u64::from(family.number)]), ALLOW, "{family:?}");
        }
        for family in [0, 9, 15, 17, 29, 30, 38, 40] {
            assert_eq!(answers(call, &[family]), errno(libc::EAFNOSUPPORT), "{family}");
        }
    }
}

#[test]
fn set_id_modes_are_refused_wherever_a_mode_can_be_given() {
    for (number, arguments) in [
        (90, [0, 0o4755, 0, 0]),
        (91, [0, 0o2755, 0, 0]),
        (268, [0, 0, 0o4755, 0]),
        (452, [0, 0, 0o6755, 0]),
        (85, [0, 0o4755, 0, 0]),
        (2, [0, 0o101, 0o4755, 0]),
        (257, [0, 0, 0o101, 0o4755]),
        (257, [0, 0, 0o20_200_002, 0o4755]),
        (133, [0, 0o104_755, 0, 0]),
        (259, [0, 0, 0o104_755, 0]),
    ] {
        assert_eq!(answers(number, &arguments), EPERM, "{number}");
    }
    assert_eq!(answers(257, &[0, 0, 0, 0o4755]), ALLOW, "a mode without creation means nothing");
    assert_eq!(answers(90, &[0, 0o1777]), ALLOW, "the sticky bit is harmless");
    assert_eq!(answers(437, &[]), ENOSYS);
    assert_eq!(answers(83, &[0, 0o6755]), ALLOW, "mkdir makes nothing with these bits");
}

#[test]
fn a_set_group_id_bit_is_notified_where_there_is_a_listener_and_never_with_a_set_user_id_bit() {
    let bytes: [u8; 24] = std::array::from_fn(|index| 0xa0 + index as u8);
    let words: Vec<u64> = bytes.chunks(8).map(|one| u64::from_ne_bytes(one.try_into().unwrap())).collect();
    let nonce = ExecNonce::new(bytes);
    let on = |x86_64: c_long, aarch64: c_long| [(Arch::X86_64, x86_64), (Arch::Aarch64, aarch64)];
    let calls = on(91, 52).map(|call| (call, 1)).into_iter();
    let calls = calls.chain(on(268, 53).map(|call| (call, 2))).chain(on(452, 452).map(|call| (call, 2)));
    for ((machine, number), index) in calls.chain([((Arch::X86_64, 90), 1)]) {
        for (listener, notified) in [
            (Listener::None, EPERM),
            (Listener::Supervisor(&nonce), NOTIFY),
            (Listener::Gate(&nonce), NOTIFY),
        ] {
            let filter = program(machine, AnonymousPrograms::Allowed, listener);
            let answer = |mode: u64, unused: &[u64]| {
                let mut arguments = [0; 6];
                arguments[index] = mode;
                arguments[3..3 + unused.len()].copy_from_slice(unused);
                judge(&filter, &Call { arch: machine.audit_arch(), ..call(number, &arguments) })
            };
            for (mode, expected) in [
                (0o755, ALLOW),
                (0o1777, ALLOW),
                (0o2000 << 32, ALLOW),
                (0o42775, notified),
                (0o3777, notified),
                (0o4755, EPERM),
                (0o6755, EPERM),
                (1 << 40 | 0o6000, EPERM),
            ] {
                assert_eq!(answer(mode, &[]), expected, "{machine:?} {number} {mode:o} {listener:?}");
            }
            // Only the supervisor is under the filter itself, and only by one call.
            let is_supervisors = matches!(listener, Listener::Supervisor(_)) && [268, 53].contains(&number);
            for mode in [0o2775, 0o755] {
                let expected = if is_supervisors { ALLOW } else { answer(mode, &[]) };
                assert_eq!(answer(mode, &words), expected, "{machine:?} {number} {listener:?}");
            }
            for bit in 0..64 {
                for word in 0..3 {
                    let mut wrong = words.clone();
                    wrong[word] ^= 1 << bit;
                    assert_eq!(answer(0o2775, &wrong), notified, "bit {bit} of {word}");
                    assert_eq!(answer(0o4755, &wrong), EPERM, "bit {bit} of {word}");
                }
            }
            let bpf = if machine == Arch::X86_64 { 321 } else { 280 };
            let bpf = Call { arch: machine.audit_arch(), ..call(bpf, &[]) };
            assert_eq!(judge(&filter, &bpf), EPERM, "the next rules still see the number");
        }
    }
}

#[test]
fn namespaces_are_refused_in_clone_and_unshare() {
    for bit in [0x2_0000_u64, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        assert_eq!(answers(56, &[bit | 17]), EPERM, "clone {bit:#x}");
        assert_eq!(answers(272, &[bit]), EPERM, "unshare {bit:#x}");
    }
    assert_eq!(answers(272, &[0x80]), EPERM);
    assert_eq!(answers(272, &[0x400]), ALLOW, "unshare of descriptors");
}

#[test]
fn typing_into_a_terminal_is_refused_whatever_the_upper_half_says() {
    assert_eq!(answers(16, &[0, 0x5412]), EPERM);
    assert_eq!(answers(16, &[0, 0xdead_0000_0000_5412]), EPERM);
    assert_eq!(answers(16, &[0, 0x1_0000_5412]), EPERM);
    assert_eq!(answers(16, &[0, 0x541C]), EPERM);
    assert_eq!(answers(16, &[0, 0x5413]), ALLOW);
}

#[test]
fn only_the_plain_personality_is_allowed() {
    for allowed in [0, 0xffff_ffff, 0x0004_0000] {
        assert_eq!(answers(135, &[allowed]), ALLOW, "{allowed:#x}");
    }
    for refused in [8, 0x0040_0000, 0x0044_0000] {
        assert_eq!(answers(135, &[refused]), EPERM, "{refused:#x}");
    }
}

#[test]
fn limits_and_scheduling_of_the_supervisor_are_out_of_reach() {
    assert_eq!(answers(302, &[0, 7, 0x7fff_0000_0000]), ALLOW, "prlimit of oneself");
    assert_eq!(answers(302, &[1, 7, 0]), ALLOW, "to read another's limits");
    for new in [0x7fff_0000_0000, 0x1000, 0x1000_0000_0000_0000] {
        assert_eq!(answers(302, &[1, 7, new]), EPERM, "{new:#x}");
        assert_eq!(answers(302, &[77, 7, new]), EPERM, "{new:#x}");
        assert_eq!(answers(302, &[0xdead_0000_0000_0001, 7, new]), EPERM, "{new:#x}");
    }
    for call in [142, 144, 203, 314] {
        assert_eq!(answers(call, &[0]), ALLOW, "{call}");
        assert_eq!(answers(call, &[77]), ALLOW, "{call}");
        assert_eq!(answers(call, &[1]), EPERM, "{call}");
        assert_eq!(answers(call, &[0xdead_0000_0000_0001]), EPERM, "{call}");
    }
    for (call, process, user) in [(141, 0, 2), (251, 1, 3)] {
        assert_eq!(answers(call, &[process, 0, 19]), ALLOW, "{call}");
        assert_eq!(answers(call, &[process, 77, 19]), ALLOW, "{call}");
        assert_eq!(answers(call, &[process, 1, 19]), EPERM, "{call}");
        assert_eq!(answers(call, &[process + 1, 1, 19]), EPERM, "{call} of a group");
        assert_eq!(answers(call, &[user, 0, 19]), EPERM, "{call} of a user");
        assert_eq!(answers(call, &[user, 1000, 19]), EPERM, "{call} of a user");
    }
}

#[test]
fn no_tracer_holds_back_the_end_of_what_it_traces() {
    for request in [0x4200, 0x4206, 21] {
        assert_eq!(answers(101, &[request, 77, 0, 0x3f]), ALLOW, "{request:#x}");
        assert_eq!(answers(101, &[request, 77, 0, 0x40]), EPERM, "{request:#x}");
        assert_eq!(answers(101, &[request, 77, 0, 0x10_007f]), EPERM, "{request:#x}");
    }
    assert_eq!(answers(101, &[7, 77, 0, 0x40]), ALLOW, "PTRACE_CONT has no options");
}

#[test]
fn other_machines_and_x32_are_refused() {
    let mut foreign = call(1, &[]);
    foreign.arch = 0x4000_0003;
    assert_eq!(
        judge(&program(Arch::X86_64, AnonymousPrograms::Allowed, Listener::None), &foreign),
        KILL_PROCESS
    );
    assert_eq!(answers(0x4000_0001, &[]), EPERM);
}

#[test]
fn both_machines_refuse_what_matters_by_their_own_numbers() {
    let arm = program(Arch::Aarch64, AnonymousPrograms::Allowed, Listener::None);
    let mut bpf = call(280, &[]);
    bpf.arch = Arch::Aarch64.audit_arch();
    assert_eq!(judge(&arm, &bpf), EPERM);
    assert_eq!(answers(321, &[]), EPERM);
    let mut write = call(64, &[]);
    write.arch = Arch::Aarch64.audit_arch();
    assert_eq!(judge(&arm, &write), ALLOW);
    assert_eq!(answers(425, &[]), ENOSYS);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_numbers_are_the_c_library_s() {
    assert_eq!(libc::SYS_bpf, 321);
    assert_eq!(libc::SYS_openat, 257);
    assert_eq!(libc::SYS_openat2, 437);
    assert_eq!(libc::SYS_mount_setattr, 442);
    assert_eq!(libc::SYS_fchmodat2, 452);
    assert_eq!(libc::SYS_personality, 135);
    assert_eq!(libc::SYS_unshare, 272);
    assert_eq!(libc::SYS_prlimit64, 302);
    assert_eq!(libc::SYS_sched_setparam, 142);
    assert_eq!(libc::SYS_sched_setscheduler, 144);
    assert_eq!(libc::SYS_sched_setaffinity, 203);
    assert_eq!(libc::SYS_sched_setattr, 314);
    assert_eq!(libc::SYS_setpriority, 141);
    assert_eq!(libc::SYS_ioprio_set, 251);
    assert_eq!(libc::SYS_ptrace, 101);
    assert_eq!(libc::SYS_fcntl, 72);
    assert_eq!(libc::F_SETLEASE, 1_024);
}

#[test]
fn sockets_are_of_the_protocols_that_programs_use() {
    for (family, allowed, refused) in [
        (2_u64, [0_u64, 1, 6, 17, 58].as_slice(), [33_u64, 115, 132, 136, 255, 256, 262].as_slice()),
        (10, &[0, 1, 6, 17, 58], &[33, 115, 132, 136, 255, 256, 262]),
        (16, &[0, 4, 15], &[6, 7, 9, 11, 12, 16, 20, 21]),
        (1, &[0, 1, 16], &[]),
    ] {
        for protocol in allowed {
            assert_eq!(answers(41, &[family, 2, *protocol]), ALLOW, "{family} {protocol}");
        }
        for protocol in refused {
            let answer = answers(41, &[family, 2 | 0o2_000_000, *protocol | 1 << 40]);
            assert_eq!(answer, errno(libc::EPROTONOSUPPORT), "{family} {protocol}");
        }
    }
}

#[test]
fn what_the_host_has_a_fixed_number_of_is_refused() {
    assert_eq!(answers(9, &[0, 4096, 3, 0x4_0022]), EPERM, "mmap of a huge page");
    assert_eq!(answers(9, &[0, 4096, 3, 0x22]), ALLOW);
    assert_eq!(answers(319, &[0, 5]), EPERM, "memfd_create of huge pages");
    assert_eq!(answers(319, &[0, 3]), ALLOW);
    assert_eq!(answers(29, &[0, 4096, 0o4600]), EPERM, "shmget of huge pages");
    for option in [26, 50, 51, 52] {
        assert_eq!(answers(54, &[3, 1, option]), EPERM, "{option}");
        assert_eq!(answers(54, &[3, 6, option]), ALLOW, "{option} of another level");
    }
    assert_eq!(answers(54, &[3, 1, 2]), ALLOW, "SO_REUSEADDR");
    assert_eq!(answers(206, &[1]), ENOSYS);
}

#[test]
fn memory_that_can_become_a_program_is_refused_where_a_profile_lists_programs() {
    for (machine, number) in [(Arch::X86_64, 319), (Arch::Aarch64, 279)] {
        let sealed = program(machine, AnonymousPrograms::Refused, Listener::None);
        let answer =
            |flags: u64| judge(&sealed, &Call { arch: machine.audit_arch(), ..call(number, &[0, flags]) });
        assert_eq!(answer(0), EPERM, "the kernel makes it executable");
        assert_eq!(answer(0x10 | 1), EPERM, "MFD_EXEC");
        assert_eq!(answer(8 | 4), EPERM, "of huge pages");
        assert_eq!(answer(8 | 2 | 1), ALLOW, "sealed");
        assert_eq!(
            judge(
                &program(machine, AnonymousPrograms::Allowed, Listener::None),
                &Call { arch: machine.audit_arch(), ..call(number, &[0, 0x11]) }
            ),
            ALLOW
        );
    }
}

#[test]
fn what_watches_or_answers_for_others_is_refused() {
    assert_eq!(answers(300, &[]), EPERM, "fanotify_init");
    assert_eq!(answers(447, &[]), ENOSYS, "memfd_secret");
    assert_eq!(answers(469, &[]), ALLOW, "file_setattr");
    for later in [470, 471, 600, 0x3fff_ffff] {
        assert_eq!(answers(later, &[]), ENOSYS, "{later}: nobody has judged it");
    }
    assert_eq!(answers(0x4000_0000, &[]), EPERM, "x32");
    for judged in [451, 457, 458, 459, 460, 461] {
        assert_eq!(answers(judged, &[]), ENOSYS, "{judged}");
    }
    assert_eq!(answers(317, &[1, 8]), EPERM, "a listener");
    assert_eq!(answers(317, &[1, 9]), EPERM, "a listener, and another flag");
    assert_eq!(answers(317, &[1, 32]), EPERM, "what belongs to a listener");
    assert_eq!(answers(317, &[1, 64]), EPERM, "a flag of a later kernel");
    assert_eq!(answers(317, &[1, 1]), ALLOW, "a filter of one's own");
    for command in [0x541D_u64, 0x5423, 0x1_0000_5423] {
        assert_eq!(answers(16, &[0, command]), EPERM, "{command:#x}");
    }
    for lease in [1_024_u64, 1_040, 0x1_0000_0400] {
        assert_eq!(answers(72, &[3, lease, 1]), EPERM, "fcntl {lease:#x} makes others wait");
    }
    for command in [0_u64, 1, 2, 3, 4, 6, 7, 37, 1_025, 1_026, 1_030, 1_031, 1_033] {
        assert_eq!(answers(72, &[3, command, 1_024]), ALLOW, "fcntl {command}");
    }
}

#[test]
fn with_a_gate_every_exec_is_notified_that_does_not_have_the_nonce_in_its_unused_registers() {
    let bytes: [u8; 24] = std::array::from_fn(|index| 0xa0 + index as u8);
    let words: Vec<u64> = bytes.chunks(8).map(|one| u64::from_ne_bytes(one.try_into().unwrap())).collect();
    for (machine, execve, execveat) in [(Arch::X86_64, 59, 322), (Arch::Aarch64, 221, 281)] {
        let gated = program(machine, AnonymousPrograms::Allowed, Listener::Gate(&ExecNonce::new(bytes)));
        let answer = |number, arguments: &[u64]| {
            judge(&gated, &Call { arch: machine.audit_arch(), ..call(number, arguments) })
        };
        let known = [1, 2, 3, words[0], words[1], words[2]];
        assert_eq!(answer(execve, &known), ALLOW);
        assert_eq!(answer(execveat, &[1, 2, 3, 4, 5, words[2]]), ALLOW);
        assert_eq!(answer(execve, &[1, 2, 3]), NOTIFY);
        assert_eq!(answer(execveat, &[1, 2, 3, 4, 5]), NOTIFY);
        for bit in 0..64 {
            for register in 3..6 {
                let mut wrong = known;
                wrong[register] ^= 1 << bit;
                assert_eq!(answer(execve, &wrong), NOTIFY, "bit {bit} of register {register}");
            }
            assert_eq!(answer(execveat, &[1, 2, 3, 4, 5, words[2] ^ 1 << bit]), NOTIFY, "bit {bit}");
        }
        let plain = program(machine, AnonymousPrograms::Allowed, Listener::None);
        for number in [execve, execveat] {
            let call = Call { arch: machine.audit_arch(), ..call(number, &[]) };
            assert_eq!(judge(&plain, &call), ALLOW, "without a gate");
        }
        let brk = if machine == Arch::X86_64 { 12 } else { 214 };
        assert_eq!(answer(brk, &[]), ALLOW, "the next rules still see the number");
        let bpf = if machine == Arch::X86_64 { 321 } else { 280 };
        assert_eq!(answer(bpf, &[]), EPERM, "the next rules still see the number");
    }
}

#[test]
fn with_a_gate_a_clone_that_shares_a_directory_is_notified_and_clone3_is_the_supervisors() {
    let bytes: [u8; 24] = std::array::from_fn(|index| 0xa0 + index as u8);
    let words: Vec<u64> = bytes.chunks(8).map(|one| u64::from_ne_bytes(one.try_into().unwrap())).collect();
    let (clone_fs, clone_thread, vfork) = (0x200, 0x1_0000, 0x4100);
    for (machine, clone, clone3) in [(Arch::X86_64, 56, 435), (Arch::Aarch64, 220, 435)] {
        let gated = program(machine, AnonymousPrograms::Allowed, Listener::Gate(&ExecNonce::new(bytes)));
        let plain = program(machine, AnonymousPrograms::Allowed, Listener::None);
        let answer = |filter: &[u8], number, arguments: &[u64]| {
            judge(filter, &Call { arch: machine.audit_arch(), ..call(number, arguments) })
        };
        for (flags, expected) in [
            (17, ALLOW),
            (vfork | 17, ALLOW),
            (clone_fs | clone_thread, ALLOW),
            (clone_fs | 17, NOTIFY),
            (clone_fs | vfork, NOTIFY),
            (clone_fs | 0x1000_0000, EPERM),
            (clone_fs | clone_thread | 0x2000_0000, EPERM),
        ] {
            assert_eq!(answer(&gated, clone, &[flags]), expected, "{flags:#x}");
            let without = if expected == NOTIFY { ALLOW } else { expected };
            assert_eq!(answer(&plain, clone, &[flags]), without, "{flags:#x} without a gate");
        }
        assert_eq!(answer(&gated, clone3, &[1, 88, words[0], words[1]]), ALLOW);
        assert_eq!(answer(&gated, clone3, &[1, 88, words[0], words[1] ^ 1]), ENOSYS);
        assert_eq!(answer(&gated, clone3, &[1, 88]), ENOSYS);
        assert_eq!(answer(&plain, clone3, &[1, 88]), ALLOW);
    }
}

/// The rows of docs/confinement.md that say what the filter refuses.
fn rows() -> Vec<String> {
    let number = |number: Option<c_long>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let call = |name: &str, numbers: Numbers, answer: &str, reason: &str| {
        let (x86_64, aarch64) = (number(numbers.x86_64), number(numbers.aarch64));
        format!("| {name} | {x86_64} | {aarch64} | {answer} | {reason} |")
    };
    let conditions = conditional::RULES.iter().chain([
        &conditional::CLONE,
        &conditional::MEMFD,
        &conditional::SEALED_MEMFD,
    ]);
    let conditions = conditions.map(|rule| call(rule.name, rule.numbers, rule.refused, rule.reason));
    let unimplemented =
        unimplemented::CALLS.iter().map(|one| call(one.name, one.numbers, "`ENOSYS`", one.reason));
    let forbidden = forbidden::CALLS.iter().map(|one| call(one.name, one.numbers, "`EPERM`", one.reason));
    let families = FAMILIES.iter().map(|family| {
        let protocols: Vec<&str> = family.protocols.iter().map(|Protocol { name, .. }| *name).collect();
        let protocols = if protocols.is_empty() { "all".to_owned() } else { protocols.join(", ") };
        format!("| {} | {} | {protocols} | {} |", family.name, family.number, family.reason)
    });
    conditions.chain(unimplemented).chain(forbidden).chain(families).collect()
}

#[test]
fn the_page_has_every_entry_with_its_reason_and_no_other() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/confinement.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let section =
        page.split("\n## What the system call filter refuses\n").nth(1).expect("the page has the section");
    let is_entry = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| call |") && !line.starts_with("| family |")
    };
    let on_page: Vec<&str> = section.lines().filter(is_entry).collect();
    assert_eq!(on_page, rows(), "docs/confinement.md should have:\n{}", rows().join("\n"));
}

#[test]
fn no_call_is_in_two_tables_and_every_reason_says_something() {
    let mut seen = std::collections::BTreeMap::new();
    let listed =
        forbidden::CALLS.iter().chain(unimplemented::CALLS).map(|one| (one.name, one.numbers, one.reason));
    let conditions = conditional::RULES.iter().chain([&conditional::CLONE, &conditional::MEMFD]);
    for (name, numbers, reason) in listed.chain(conditions.map(|rule| (rule.name, rule.numbers, rule.reason)))
    {
        assert!(reason.len() > 5, "{name}");
        for (machine, number) in [("x86_64", numbers.x86_64), ("aarch64", numbers.aarch64)] {
            let Some(number) = number else { continue };
            assert_eq!(seen.insert((machine, number), name), None, "{machine} {number}");
        }
    }
}
