//! A file system for tests that loses unsynced writes on command.
//!
//! It is mounted over FUSE, kept in memory, and behaves like a disk behind a page cache: what a process wrote reads back
//! at once, and only an fsync makes it durable. [`LossyFs::lose_power`] then does to the rest what a power loss may do:
//! every pending write is kept, dropped or torn at sectors, every pending name kept or dropped, in no order. It also
//! fails syncs, writes and reads on demand, fills up, stalls and rots. The real binary and shell tools run on it at full
//! speed. It knows nothing of the broker.
//!
//! A test mounts one, starts a process on it, kills the process, loses the power with a seed, and starts the process
//! again. There is no need to mount anew: handles opened before the loss are stale.
//!
//! # Limits
//! Hard and symbolic links, special files, shared memory maps and `O_SYNC` are refused; times and owners are not kept;
//! `sync(2)` and `syncfs(2)` make nothing durable. The kernel lets nobody write to a file while it is synced, so a process
//! that wrongly counts such a write as covered is not caught here.
//!
//! # Where to start reading
//! [`mount`](LossyFs) is what a test holds. `file` is one file's bytes (what is durable, what is seen, what lies between),
//! `names` the same for directories, `power` what a loss leaves of both. `inodes` joins them into a tree, `operations`
//! answers the kernel, `sync` is the way of an fsync.

mod blocks;
mod faults;
mod file;
mod handles;
mod inodes;
mod mount;
mod names;
mod operations;
mod power;
mod random;
mod state;
mod sync;

pub use mount::LossyFs;
pub use power::Loss;
