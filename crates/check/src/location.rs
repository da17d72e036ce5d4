//! Where a record stands: file and line, in eight bytes.

/// File and line of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location(u64);

/// Bits of the line: room for 280 billion lines a file, and 65,536 files.
const LINE_BITS: u32 = 48;

impl Location {
    /// A place in the file with this number.
    ///
    /// # Panics
    /// If there are more than 65,536 files or more lines than fit: the reader refuses such input.
    pub(crate) fn new(file: usize, line: u64) -> Self {
        assert!(file < 1 << (64 - LINE_BITS) && line < 1 << LINE_BITS, "file {file}, line {line} out of range");
        Self(((file as u64) << LINE_BITS) | line)
    }
}
