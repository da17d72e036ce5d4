//! One file of a history as a stream of plain bytes, and as lines.

mod lines;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use lines::{Lines, Next};

/// How a file is packed; told by its first bytes when it is read, and by its name when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// zstd, one or more frames.
    Zstd,
    /// gzip, one or more members.
    Gzip,
}

impl Packing {
    /// The packing that a file of this name is written with: `.zst`, `.gz`, or plain.
    #[must_use]
    pub fn from_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("zst" | "zstd") => Self::Zstd,
            Some("gz") => Self::Gzip,
            _ => Self::Plain,
        }
    }

    /// The packing of a file that begins so.
    fn from_start(start: &[u8]) -> Self {
        match start {
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0x1f, 0x8b, ..] => Self::Gzip,
            _ => Self::Plain,
        }
    }
}

/// One file of a history, opened.
pub struct Source {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Box<dyn Read + Send>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) total_bytes: Option<u64>,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let total_bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self { total_bytes, ..Self::from_reader(path, file)? })
    }

    /// Takes bytes from elsewhere, such as standard input, under a name for the reports.
    ///
    /// # Errors
    /// When the first bytes cannot be read.
    pub fn from_reader(name: &Path, bytes: impl Read + Send + 'static) -> io::Result<Self> {
        let tally = Arc::new(Tally::default());
        let mut bytes = Tallied { inner: bytes, tally: Arc::clone(&tally) };
        let mut start = Vec::with_capacity(MAGIC_BYTES);
        (&mut bytes).take(MAGIC_BYTES as u64).read_to_end(&mut start)?;
        let packing = Packing::from_start(&start);
        let whole = io::Cursor::new(start).chain(bytes);
        let bytes: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(whole),
            Packing::Zstd => Box::new(zstd::Decoder::new(whole)?),
            Packing::Gzip => {
                Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(PACKED_BUFFER_BYTES, whole)))
            }
        };
        Ok(Self { path: name.to_owned(), bytes, tally, total_bytes: None })
    }
}

/// What was taken from the file itself, below a decompressor.
#[derive(Default)]
pub(crate) struct Tally {
    bytes: AtomicU64,
    failed: AtomicBool,
}

impl Tally {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the file itself could not be read: tells a broken disk from a broken file.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

struct Tallied<R> {
    inner: R,
    tally: Arc<Tally>,
}

impl<R: Read> Read for Tallied<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                self.tally.bytes.fetch_add(count as u64, Ordering::Relaxed);
                Ok(count)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.tally.failed.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

/// The longest start that tells how a file is packed.
const MAGIC_BYTES: usize = 4;

/// What is read at once from a packed file.
const PACKED_BUFFER_BYTES: usize = 128 << 10;
