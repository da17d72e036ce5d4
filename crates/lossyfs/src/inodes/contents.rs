//! The bytes of files, within the space there is.

use std::ops::Range;

use fuser::Errno;

use super::{Inodes, Kind};
use crate::file::{File, MAX_FILE_BYTES};

impl Inodes {
    /// Bytes of a file, fewer than `size` at its end.
    pub(crate) fn read(&self, inode: u64, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        match &self.inodes.get(&inode).ok_or(Errno::ESTALE)?.kind {
            Kind::File(file) => file.read(offset, size),
            Kind::Directory => Err(Errno::EISDIR),
        }
    }

    /// Writes bytes at an offset; how many found room. As on a real disk the last write before it is full is short, and
    /// the next one fails.
    pub(crate) fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.change_file(inode, |file, free_blocks| {
            in_memory(offset.saturating_add(bytes.len() as u64))?;
            let offset = in_memory(offset)?;
            let fitting = file.blocks().fitting(offset, bytes.len(), free_blocks);
            if fitting == 0 && !bytes.is_empty() {
                return Err(Errno::ENOSPC);
            }
            file.write(offset, &bytes[..fitting]);
            Ok(fitting)
        })
    }

    /// Cuts or grows a file. Growth makes a hole, which needs no space.
    pub(crate) fn set_len(&mut self, inode: u64, bytes: u64) -> Result<(), Errno> {
        self.change_file(inode, |file, _| {
            let length = in_memory(bytes)?;
            if length != file.len() {
                file.set_len(length);
            }
            Ok(())
        })
    }

    /// Reserves the space of a range, and grows the file to its end if asked.
    pub(crate) fn reserve(&mut self, inode: u64, range: Range<u64>, grows: bool) -> Result<(), Errno> {
        self.change_file(inode, |file, free_blocks| {
            let (start, end) = (in_memory(range.start)?, in_memory(range.end)?);
            let size = end.saturating_sub(start);
            if file.blocks().fitting(start, size, free_blocks) < size {
                return Err(Errno::ENOSPC);
            }
            if grows && end > file.len() {
                file.set_len(end);
            }
            file.reserve(start, size);
            Ok(())
        })
    }

    /// Flips bits of a durable byte.
    pub(crate) fn flip_bit(&mut self, inode: u64, offset: u64, mask: u8) -> Result<(), Errno> {
        self.change_file(inode, |file, _| file.flip_bit(in_memory(offset)?, mask).ok_or(Errno::EINVAL))
    }

    /// Makes every read that touches a range of a file fail.
    pub(crate) fn fail_reads(&mut self, inode: u64, range: Range<u64>) -> Result<(), Errno> {
        self.change_file(inode, |file, _| {
            file.fail_reads(range);
            Ok(())
        })
    }

    /// Makes all of a file readable again.
    pub(crate) fn heal_reads(&mut self, inode: u64) -> Result<(), Errno> {
        self.change_file(inode, |file, _| {
            file.heal_reads();
            Ok(())
        })
    }

    /// Changes a file, which is told how many blocks are free, and books what it occupies afterwards.
    fn change_file<T>(
        &mut self,
        inode: u64,
        change: impl FnOnce(&mut File, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let found = self.inodes.get_mut(&inode).ok_or(Errno::ESTALE)?;
        let (before, occupies_space) = (found.blocks(), found.occupies_space());
        let Kind::File(file) = &mut found.kind else { return Err(Errno::EISDIR) };
        let answer = change(file, self.space.free_blocks());
        if occupies_space {
            self.space.used_blocks = self.space.used_blocks - before + found.blocks();
        }
        answer
    }
}

fn in_memory(bytes: u64) -> Result<usize, Errno> {
    if bytes > MAX_FILE_BYTES {
        return Err(Errno::EFBIG);
    }
    usize::try_from(bytes).map_err(|_| Errno::EFBIG)
}
