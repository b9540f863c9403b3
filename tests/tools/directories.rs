//! Projects on disk: written with fixed times, compared byte by byte.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Writes a file, with its directories.
pub(crate) fn write(work: &Path, name: &str, content: &str) {
    let path = work.join(name);
    fs::create_dir_all(path.parent().expect("below the project")).expect("directories can be made");
    fs::write(path, content).expect("files can be written");
}

/// Writes `files` files of `bytes` bytes that do not compress, the same ones every time.
pub(crate) fn write_noise(directory: &Path, files: u64, bytes: usize) {
    fs::create_dir_all(directory).expect("directories can be made");
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for n in 0..files {
        let file = File::create(directory.join(format!("noise-{n:04}"))).expect("files can be made");
        let mut file = BufWriter::with_capacity(1 << 16, file);
        for _ in 0..bytes / 8 {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            file.write_all(&state.to_le_bytes()).expect("files can be written");
        }
    }
}

/// Gives every file and directory the same modification time: some tools write it into what they make.
pub(crate) fn fix_times(directory: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in below(directory).into_values() {
        File::open(path).and_then(|file| file.set_modified(time)).expect("times can be set");
    }
}

/// What differs between two directories: kinds, permissions, owners, targets of links, and bytes.
pub(crate) fn differences(one: &Path, other: &Path, except: fn(&Path) -> bool) -> Vec<String> {
    let (ours, theirs) = (below(one), below(other));
    let mut differences = Vec::new();
    for name in theirs.keys().filter(|name| !ours.contains_key(*name)) {
        differences.push(format!("{} is only in {}", name.display(), other.display()));
    }
    for (name, path) in ours {
        let Some(their_path) = theirs.get(&name) else {
            differences.push(format!("{} is only in {}", name.display(), one.display()));
            continue;
        };
        let difference = if except(&name) { None } else { difference(&path, their_path) };
        differences.extend(difference.map(|what| format!("{}: {what}", name.display())));
    }
    differences
}

fn difference(one: &Path, other: &Path) -> Option<String> {
    let (a, b) = (one.symlink_metadata().expect("is there"), other.symlink_metadata().expect("is there"));
    if a.file_type() != b.file_type() {
        return Some(format!("{:?} and {:?}", a.file_type(), b.file_type()));
    }
    if (a.permissions().mode(), a.uid(), a.gid()) != (b.permissions().mode(), b.uid(), b.gid()) {
        return Some(format!(
            "mode {:o} of {}:{} and mode {:o} of {}:{}",
            a.permissions().mode(),
            a.uid(),
            a.gid(),
            b.permissions().mode(),
            b.uid(),
            b.gid()
        ));
    }
    if a.is_symlink() {
        return (fs::read_link(one).ok() != fs::read_link(other).ok()).then(|| "other targets".to_owned());
    }
    (a.is_file() && !same_bytes(one, other)).then(|| format!("other bytes ({} and {})", a.len(), b.len()))
}

/// Whether two files have the same bytes.
pub(crate) fn same_bytes(one: &Path, other: &Path) -> bool {
    let (mut one, mut other) = (File::open(one).expect("opens"), File::open(other).expect("opens"));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        a.clear();
        b.clear();
        Read::by_ref(&mut one).take(1 << 20).read_to_end(&mut a).expect("reads");
        Read::by_ref(&mut other).take(1 << 20).read_to_end(&mut b).expect("reads");
        if a != b {
            return false;
        }
        if a.is_empty() {
            return true;
        }
    }
}

/// Everything below a directory: path from there to path.
fn below(directory: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(&next).expect("directories can be read") {
            let path = entry.expect("entries can be read").path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path.clone());
            }
            found.insert(path.strip_prefix(directory).expect("below").to_owned(), path);
        }
    }
    found
}
