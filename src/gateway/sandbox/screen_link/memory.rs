//! The shared memory of one screen. The gateway makes and seals it, and copies out of it: nothing that the screen process does
//! to it can cause a fault.

use std::{fs::File, io, os::fd::OwnedFd, os::unix::fs::FileExt as _, sync::Arc};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use crate::display::{picture::FILE_BYTES, reader::Memory};

/// The gateway's end.
#[derive(Debug)]
pub(super) struct PictureMemory {
    file: File,
}

impl PictureMemory {
    pub(super) fn create() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"provost-screen", flags)?);
        file.set_len(FILE_BYTES)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Self { file })
    }

    /// To be handed to the screen process.
    pub(super) fn file(&self) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.file.try_clone()?.into()))
    }
}

impl Memory for PictureMemory {
    fn copy(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}
