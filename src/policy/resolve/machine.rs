//! Whether a file is a program of 32 bits for this machine's processor, from its first bytes (elf(5)).
//!
//! The kernel starts such a program as it does those of 64 bits, and its system calls have other numbers, which no filter of ours knows. What is
//! for another processor is left to the kernel, which refuses it or starts an emulator.

/// How much of a file is looked at: up to the machine in the header of an ELF file.
pub const HEADER_BYTES: usize = 20;

/// ELFCLASS32, and the machines of 32 bits that this one also runs.
const CLASS_32: u8 = 1;
const MACHINES_32: &[u16] = if cfg!(target_arch = "x86_64") {
    // EM_386, and x32.
    &[3, 62]
} else if cfg!(target_arch = "aarch64") {
    // EM_ARM
    &[40]
} else {
    &[]
};

/// Whether the file that begins so is one.
pub fn is_32_bit(beginning: &[u8]) -> bool {
    let Some(header) = beginning.first_chunk::<HEADER_BYTES>() else { return false };
    header.starts_with(b"\x7fELF")
        && header[4] == CLASS_32
        && MACHINES_32.contains(&u16::from_le_bytes([header[18], header[19]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_32_bits_is_known_by_its_header() {
        let header = |class: u8, machine: u16| {
            let mut header = b"\x7fELF".to_vec();
            header.resize(HEADER_BYTES, 0);
            header[4] = class;
            header[18..].copy_from_slice(&machine.to_le_bytes());
            header
        };
        for machine in MACHINES_32 {
            assert!(is_32_bit(&header(CLASS_32, *machine)), "{machine}");
            assert!(!is_32_bit(&header(2, *machine)), "{machine}");
        }
        // MIPS.
        assert!(!is_32_bit(&header(CLASS_32, 8)));
        assert!(!is_32_bit(b"#!/bin/sh\necho a script\n") && !is_32_bit(b"\x7fELF\x01"));
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(!is_32_bit(&own));
    }
}
