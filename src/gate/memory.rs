//! Reads strings from the memory of a caller that waits in its exec.
//!
//! Other processes may change that memory at any time. So what was read is only what is evaluated; at the exec it is compared
//! with what the new program really has.

use nix::errno::Errno;

use crate::sys::{ptrace, remote_memory};

/// The longest path with its NUL (PATH_MAX, limits.h).
const MAX_PATH_BYTES: usize = 4096;
/// The longest argument with its NUL (MAX_ARG_STRLEN, execve(2)).
const MAX_STRING_BYTES: usize = 131_072;
/// All strings of one array, with their pointers: what the kernel takes at most (execve(2), "Limits on size of arguments and
/// environment").
const MAX_ARRAY_BYTES: usize = 6 << 20;

const PAGE_BYTES: u64 = 4096;
/// What is compared at once.
const COMPARED_BYTES: usize = 64 << 10;

/// The memory of a thread's process, with the page that was read last.
#[derive(Debug)]
pub(super) struct CallerMemory {
    thread: i32,
    /// Absent: none was read.
    page_address: Option<u64>,
    page: [u8; PAGE_BYTES as usize],
}

impl CallerMemory {
    pub(super) fn of(thread: i32) -> Self {
        Self { thread, page_address: None, page: [0; PAGE_BYTES as usize] }
    }

    /// A path as execve(2) reads it.
    ///
    /// # Errors
    /// `EFAULT` and `ENAMETOOLONG` as execve(2); others: it cannot be read.
    pub(super) fn path(&mut self, address: u64) -> Result<Vec<u8>, Errno> {
        self.string(address, MAX_PATH_BYTES, Errno::ENAMETOOLONG)
    }

    /// An array of strings as execve(2) reads it. A null pointer is an empty array.
    ///
    /// # Errors
    /// `EFAULT` and `E2BIG` as execve(2); others: it cannot be read.
    pub(super) fn strings(&mut self, array: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let mut bytes = 0;
        let mut pointers = Vec::new();
        if array != 0 {
            let mut at = array;
            loop {
                let pointer = self.word(at)?;
                if pointer == 0 {
                    break;
                }
                pointers.push(pointer);
                bytes += size_of::<u64>();
                if bytes > MAX_ARRAY_BYTES {
                    return Err(Errno::E2BIG);
                }
                at = at.checked_add(size_of::<u64>() as u64).ok_or(Errno::EFAULT)?;
            }
        }
        let mut strings = Vec::with_capacity(pointers.len());
        for pointer in pointers {
            let string = self.string(pointer, MAX_STRING_BYTES, Errno::E2BIG)?;
            bytes += string.len() + 1;
            if bytes > MAX_ARRAY_BYTES {
                return Err(Errno::E2BIG);
            }
            strings.push(string);
        }
        Ok(strings)
    }

    fn string(&mut self, address: u64, bound: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let (mut at, mut string) = (address, Vec::new());
        loop {
            let part = self.rest_of_page(at)?;
            let end = part.iter().position(|byte| *byte == 0);
            string.extend_from_slice(&part[..end.unwrap_or(part.len())]);
            // With its NUL.
            if string.len() + 1 > bound {
                return Err(too_long);
            }
            if end.is_some() {
                return Ok(string);
            }
            at = next_page(at)?;
        }
    }

    fn word(&mut self, address: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        let first = self.rest_of_page(address)?;
        let length = first.len().min(8);
        bytes[..length].copy_from_slice(&first[..length]);
        if length < 8 {
            let rest = self.rest_of_page(next_page(address)?)?;
            bytes[length..].copy_from_slice(rest.get(..8 - length).ok_or(Errno::EFAULT)?);
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The bytes from an address to the end of its page.
    fn rest_of_page(&mut self, address: u64) -> Result<&[u8], Errno> {
        let start = address - address % PAGE_BYTES;
        if self.page_address != Some(start) {
            self.page_address = None;
            match remote_memory::read(self.thread, start, &mut self.page) {
                Ok(count) if count == self.page.len() => self.page_address = Some(start),
                other => return Err(other.err().unwrap_or(Errno::EFAULT)),
            }
        }
        Ok(&self.page[(address - start) as usize..])
    }
}

/// Whether a process that stands at its exec has so many arguments, and these, each with its NUL. The kernel writes the strings one
/// after the other, and their count and addresses where the stack begins (`create_elf_tables` in fs/binfmt_elf.c).
///
/// # Errors
/// `ENODATA`: it is a program of another word size; else its stack cannot be read.
pub(super) fn begins_with_arguments(process: i32, count: usize, expected: &[u8]) -> Result<bool, Errno> {
    let stack = ptrace::stack_pointer(process)?;
    let mut first = [0; 16];
    read_whole(process, stack, &mut first)?;
    let [has, mut at] =
        [0, 8].map(|from| u64::from_ne_bytes(std::array::from_fn(|index| first[from + index])));
    if has != count as u64 {
        return Ok(false);
    }
    let mut part = vec![0; expected.len().min(COMPARED_BYTES)];
    for wanted in expected.chunks(COMPARED_BYTES) {
        let part = &mut part[..wanted.len()];
        read_whole(process, at, part)?;
        if part != wanted {
            return Ok(false);
        }
        at = at.checked_add(wanted.len() as u64).ok_or(Errno::EFAULT)?;
    }
    Ok(true)
}

fn read_whole(process: i32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    match remote_memory::read(process, address, into)? {
        count if count == into.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

fn next_page(address: u64) -> Result<u64, Errno> {
    (address - address % PAGE_BYTES).checked_add(PAGE_BYTES).ok_or(Errno::EFAULT)
}
