//! Programs of 32 bits, which the filter of a profile ends: it is said before they start, or when one has ended.
#![cfg(target_arch = "x86_64")]

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::cli::fixture::{Place, code, shown, stderr, stdout};

/// An ELF file of i386 that does `exit(7)`.
fn program() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    // mov eax, 1; mov ebx, 7; int 0x80
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let size = 52 + 32 + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let halves =
        |file: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    let words =
        |file: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    // ET_EXEC, EM_386; version, entry, program headers, section headers, flags.
    halves(&mut file, &[2, 3]);
    words(&mut file, &[1, BASE + 84, 52, 0, 0]);
    halves(&mut file, &[52, 32, 1, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    words(&mut file, &[1, 0, BASE, BASE, size, size, 5, 0x1000]);
    file.extend(code);
    file
}

fn place() -> Place {
    let place = Place::new();
    let path = place.work().join("old");
    fs::write(&path, program()).expect("a file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    place
}

#[test]
fn a_program_of_32_bits_is_refused_with_the_reason_before_it_starts() {
    let place = place();
    let outside = Command::new(place.work().join("old")).status().expect("it can be tried").code();
    if outside != Some(7) {
        println!("SKIPPED: this kernel runs no programs of 32 bits");
        return;
    }
    let refused = place.output(&[], &["./old"]);
    assert_eq!(code(&refused), 126, "{}", shown(&refused));
    assert!(
        stderr(&refused).contains("/old is a 32-bit program") && stderr(&refused).contains("workspace"),
        "{}",
        shown(&refused)
    );
    let within = place.output(&[], &["sh", "-c", "./old; echo $?"]);
    assert_eq!(stdout(&within), "126\n", "{}", shown(&within));
    assert!(stderr(&within).contains("it is a 32-bit program"), "{}", shown(&within));
    let more = "[profile.ungated]\nextends = \"workspace\"\ngate = { enabled = false }\n";
    fs::write(place.policies().join("ungated.toml"), more).expect("a file can be written");
    let ended = place.output(&["--profile", "ungated"], &["sh", "-c", "./old"]);
    assert_eq!(code(&ended), 159, "{}", shown(&ended));
    assert!(stderr(&ended).contains("32-bit"), "{}", shown(&ended));
}
