//! What the kernel asks of the file system.
//!
//! Nothing is cached in the kernel: names and attributes are good for no time, and files are read and written past the
//! page cache. So what a power loss dropped is never seen again. Locks (`flock`, `fcntl`) are the kernel's own.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, FileType as ModeType, OFlags};

use crate::blocks::BLOCK_BYTES;
use crate::inodes::{MAX_NAME_BYTES, NewNode};
use crate::state::{Shared, State};

/// How long the kernel may believe an answer.
const NO_TIME: Duration = Duration::ZERO;

/// Inode numbers are never used again, so they need no generation.
const GENERATION: Generation = Generation(0);

/// What `statfs` reports without a limit: far more than fits into memory.
const UNLIMITED_BLOCKS: u64 = (1 << 40) / BLOCK_BYTES as u64;

/// Inodes that `statfs` reports as free; nothing limits them.
const FREE_INODES: u64 = 1 << 20;

/// Answers the kernel from the shared state.
pub(crate) struct Operations(pub(crate) Arc<Shared>);

impl Operations {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        act(&mut self.0.lock())
    }

    fn make(&self, parent: INodeNo, name: &OsStr, node: NewNode, mode: u32) -> Result<FileAttr, Errno> {
        self.with(|state| {
            let inode = state.inodes.make(parent.0, name, node, permissions(mode))?;
            state.inodes.attributes(inode)
        })
    }
}

impl Filesystem for Operations {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let answer = self.with(|state| {
            let inode = *state.inodes.listing(parent.0)?.get(name).ok_or(Errno::ENOENT)?;
            state.inodes.attributes(inode)
        });
        answer_entry(reply, answer);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(reply, self.with(|state| state.inodes.attributes(inode.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let answer = self.with(|state| {
            if let Some(mode) = mode {
                state.inodes.set_permissions(inode.0, permissions(mode))?;
            }
            if let Some(size) = size {
                state.inodes.set_len(inode.0, size)?;
            }
            state.inodes.attributes(inode.0)
        });
        answer_attributes(reply, answer);
    }

    fn mknod(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: u32, reply: ReplyEntry) {
        if ModeType::from_raw_mode(mode) != ModeType::RegularFile {
            return reply.error(Errno::EOPNOTSUPP);
        }
        answer_entry(reply, self.make(parent, name, NewNode::File, mode));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        answer_entry(reply, self.make(parent, name, NewNode::Directory, mode));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(|state| state.inodes.remove(parent.0, name, NewNode::File)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(|state| state.inodes.remove(parent.0, name, NewNode::Directory)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let replaces = flags.is_empty();
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        answer_empty(reply, self.with(|state| state.inodes.rename(from, to, replaces)));
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if is_refused(flags.0) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        // The kernel cuts a file opened with O_TRUNC by a setattr of its own.
        match self.with(|state| state.open(inode.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, flags: i32, reply: ReplyCreate) {
        if is_refused(flags) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.with(|state| state.create(parent.0, name, permissions(mode))) {
            Ok((attributes, handle)) => {
                let handle = FileHandle(handle);
                reply.created(&NO_TIME, &attributes, GENERATION, handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.with(|state| state.read(handle.0, offset, size as usize)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // For a file opened with O_APPEND the kernel has put the end here.
        match self.with(|state| state.write(handle.0, offset, bytes)) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.lock().close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.sync(handle.0, reply);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.with(|state| state.open(inode.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut state = self.0.lock();
        let (directory, entries) = match state.entries(handle.0, first) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        // The kernel finds its own way up, so that ".." may carry any number.
        let dots = [".", ".."].map(|name| (directory, true, OsStr::new(name)));
        let names = entries.iter().map(|entry| (entry.inode, entry.is_directory, entry.name.as_os_str()));
        for (at, (inode, is_directory, name)) in dots.into_iter().chain(names).enumerate().skip(first) {
            let kind = if is_directory { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(inode), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.lock().close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.sync(handle.0, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let state = self.0.lock();
        let (space, inodes) = (state.inodes.space(), state.inodes.count());
        let blocks = space.capacity_blocks.unwrap_or(UNLIMITED_BLOCKS);
        let free = blocks.saturating_sub(space.used_blocks);
        let (block_bytes, name_bytes) = (BLOCK_BYTES as u32, MAX_NAME_BYTES as u32);
        reply.statfs(blocks, free, free, inodes + FREE_INODES, FREE_INODES, block_bytes, name_bytes, block_bytes);
    }

    fn access(&self, _: &Request, inode: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        answer_empty(reply, self.with(|state| state.inodes.attributes(inode.0).map(drop)));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if !FallocateFlags::KEEP_SIZE.contains(mode) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let range = offset..offset.saturating_add(length);
        let answer = self.with(|state| {
            let inode = state.handles.find(handle.0)?.inode;
            state.inodes.reserve(inode, range, mode.is_empty())
        });
        answer_empty(reply, answer);
    }
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// A write that is to be durable when it returns is not modelled, and must not pretend to be.
fn is_refused(flags: i32) -> bool {
    OFlags::from_bits_retain(flags.cast_unsigned()).contains(OFlags::DSYNC)
}

fn answer_entry(reply: ReplyEntry, answer: Result<FileAttr, Errno>) {
    match answer {
        Ok(attributes) => reply.entry(&NO_TIME, &attributes, GENERATION),
        Err(error) => reply.error(error),
    }
}

fn answer_attributes(reply: ReplyAttr, answer: Result<FileAttr, Errno>) {
    match answer {
        Ok(attributes) => reply.attr(&NO_TIME, &attributes),
        Err(error) => reply.error(error),
    }
}

fn answer_empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
