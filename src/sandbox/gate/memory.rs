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

const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;
/// Pages of a caller that are kept: path, arguments and their addresses mostly lie in two to four.
const KEPT_PAGES: usize = 8;
/// What is compared at once.
const COMPARED_BYTES: usize = 64 << 10;
/// What is read of a new stack at once: addresses, strings and environment of most programs.
const STACK_BYTES: usize = 2 * PAGE;

/// The memory of a thread's process, with the pages that were read last.
#[derive(Debug)]
pub(super) struct CallerMemory {
    thread: i32,
    /// The addresses of the pages that are kept, at most [`KEPT_PAGES`], each with its place in `bytes`.
    kept: Vec<u64>,
    bytes: Vec<u8>,
    /// The place that the next page gets when all are taken.
    next: usize,
}

impl CallerMemory {
    pub(super) fn of(thread: i32) -> Self {
        Self {
            thread,
            kept: Vec::with_capacity(KEPT_PAGES),
            bytes: Vec::with_capacity(KEPT_PAGES * PAGE),
            next: 0,
        }
    }

    /// Reads the pages of these addresses by one call, as far as they can be read and have room: what is asked for next is mostly in
    /// them. A page that was not read is read when it is needed, and fails then.
    pub(super) fn expect(&mut self, addresses: &[u64]) {
        let first = self.kept.len();
        for address in addresses {
            let start = page_of(*address);
            if self.kept.len() < KEPT_PAGES && *address != 0 && !self.kept.contains(&start) {
                self.kept.push(start);
            }
        }
        if first == self.kept.len() {
            return;
        }
        self.bytes.resize(self.kept.len() * PAGE, 0);
        let read =
            remote_memory::read_pages(self.thread, &self.kept[first..], &mut self.bytes[first * PAGE..]);
        // The rest was not there, or is not there any more.
        self.kept.truncate(first + read.unwrap_or_default() / PAGE);
        self.bytes.truncate(self.kept.len() * PAGE);
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
        self.expect(&pointers);
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
        let start = page_of(address);
        let at = match self.kept.iter().position(|kept| *kept == start) {
            Some(at) => at,
            None => self.read_page(start)?,
        };
        Ok(&self.bytes[at * PAGE + (address - start) as usize..(at + 1) * PAGE])
    }

    /// Reads a page: the place that it has now.
    fn read_page(&mut self, start: u64) -> Result<usize, Errno> {
        let at = if self.kept.len() < KEPT_PAGES {
            self.kept.push(start);
            self.bytes.resize(self.kept.len() * PAGE, 0);
            self.kept.len() - 1
        } else {
            self.next = (self.next + 1) % KEPT_PAGES;
            self.next
        };
        // No page has this address.
        self.kept[at] = u64::MAX;
        match remote_memory::read(self.thread, start, &mut self.bytes[at * PAGE..(at + 1) * PAGE])? {
            PAGE => {
                self.kept[at] = start;
                Ok(at)
            }
            _ => Err(Errno::EFAULT),
        }
    }
}

/// Whether a process that stands at its exec has so many arguments, and these, each with its NUL. The kernel writes the strings one
/// after the other, and their count and addresses where the stack begins (`create_elf_tables` in fs/binfmt_elf.c).
///
/// # Errors
/// `ENODATA`: it is a program of another word size; else its stack cannot be read.
pub(super) fn begins_with_arguments(process: i32, count: usize, expected: &[u8]) -> Result<bool, Errno> {
    let stack = ptrace::stack_pointer(process)?;
    // Mostly the strings lie in the pages that are read with the addresses.
    let mut beginning = [0; STACK_BYTES];
    let read = remote_memory::read(process, stack, &mut beginning)?;
    let beginning = &beginning[..read];
    let word = |at: usize| {
        let bytes = beginning.get(at..at + 8).ok_or(Errno::EFAULT)?;
        bytes.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::EFAULT)
    };
    if word(0)? != count as u64 {
        return Ok(false);
    }
    let mut at = word(8)?;
    let inside = usize::try_from(at.wrapping_sub(stack)).ok();
    if let Some(known) = inside.and_then(|from| beginning.get(from..)?.get(..expected.len())) {
        return Ok(known == expected);
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

fn page_of(address: u64) -> u64 {
    address - address % PAGE_BYTES
}

fn next_page(address: u64) -> Result<u64, Errno> {
    page_of(address).checked_add(PAGE_BYTES).ok_or(Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};

    use super::*;

    fn own() -> CallerMemory {
        CallerMemory::of(std::process::id().cast_signed())
    }

    fn address(text: &CStr) -> u64 {
        text.as_ptr() as u64
    }

    /// Never mapped: it is below what mmap(2) gives to anybody.
    const UNREADABLE: u64 = 8;

    #[test]
    fn strings_are_read_whole_however_many_pages_they_take() {
        let words: Vec<CString> =
            (0..2_000).map(|length| CString::new("x".repeat(length % 700)).unwrap()).collect();
        let mut array: Vec<u64> = words.iter().map(|word| address(word)).collect();
        array.push(0);
        let read = own().strings(array.as_ptr() as u64).unwrap();
        assert!(read.iter().map(Vec::as_slice).eq(words.iter().map(|word| word.to_bytes())));
    }

    #[test]
    fn what_cannot_be_read_fails_where_it_is_needed_and_nowhere_else() {
        let (path, array) = (c"/bin/true", [address(c"one"), address(c"two"), 0]);
        let (path, array) = (address(path), array.as_ptr() as u64);
        for expected in
            [[UNREADABLE, path, array], [path, UNREADABLE, array], [array, path, u64::MAX], [0; 3]]
        {
            let mut memory = own();
            memory.expect(&expected);
            assert_eq!(memory.path(path).unwrap(), b"/bin/true");
            assert_eq!(memory.path(UNREADABLE), Err(Errno::EFAULT));
            assert_eq!(memory.strings(array).unwrap(), [b"one", b"two"]);
            assert_eq!(memory.strings(UNREADABLE), Err(Errno::EFAULT));
        }
    }

    #[test]
    fn a_path_has_a_bound() {
        let path = CString::new(vec![b'p'; MAX_PATH_BYTES]).unwrap();
        assert_eq!(own().path(address(&path)), Err(Errno::ENAMETOOLONG));
        assert_eq!(own().path(address(&path) + 1).unwrap().len(), MAX_PATH_BYTES - 1);
    }
}
