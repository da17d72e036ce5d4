//! The file of a recorder: each append is one frame or member of whole lines.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::source::Packing;

pub(super) struct PackedFile {
    file: File,
    packer: Packer,
}

enum Packer {
    Plain,
    Zstd(zstd::bulk::Compressor<'static>),
    Gzip,
}

impl PackedFile {
    pub(super) fn create(path: &Path, packing: Packing) -> io::Result<Self> {
        let packer = match packing {
            Packing::Plain => Packer::Plain,
            Packing::Zstd => {
                let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
                compressor.include_checksum(true)?;
                Packer::Zstd(compressor)
            }
            Packing::Gzip => Packer::Gzip,
        };
        Ok(Self { file: File::create(path)?, packer })
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        match &mut self.packer {
            Packer::Plain => self.file.write_all(lines),
            Packer::Zstd(compressor) => self.file.write_all(&compressor.compress(lines)?),
            Packer::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(lines)?;
                self.file.write_all(&encoder.finish()?)
            }
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match self.file.sync_data() {
            // A pipe or a terminal has nothing to sync.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// Level 3 packs these lines no better than 1, and slower.
const ZSTD_LEVEL: i32 = 1;
