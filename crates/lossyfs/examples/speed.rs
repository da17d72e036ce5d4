//! How fast the file system is: `cargo run -p mortarmq-lossyfs --example speed`.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use mortarmq_lossyfs::LossyFs;

const RECORD: [u8; 4096] = [7; 4096];
const CHUNK_BYTES: usize = 1 << 20;
const STREAM_CHUNKS: u64 = 512;
const RUN: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    LossyFs::is_available()?;
    let folder = tempfile::tempdir()?;
    let fs = LossyFs::mount(folder.path())?;
    let file = File::create_new(folder.path().join("appended"))?;
    report("append 4 KiB + fdatasync", &file, |at| at)?;
    let file = File::create_new(folder.path().join("recycled"))?;
    file.write_all_at(&vec![0; 64 << 20], 0)?;
    file.sync_data()?;
    report("overwrite 4 KiB of 64 MiB + fdatasync", &file, |at| at % 16_384)?;
    stream(&File::create_new(folder.path().join("stream"))?)?;
    drop(fs);
    Ok(())
}

fn report(what: &str, file: &File, block: impl Fn(u64) -> u64) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut writes = 0;
    while start.elapsed() < RUN {
        file.write_all_at(&RECORD, block(writes) * RECORD.len() as u64)?;
        file.sync_data()?;
        writes += 1;
    }
    println!("{what}: {:.0} /s", writes as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn stream(file: &File) -> Result<(), Box<dyn Error>> {
    let mut chunk = vec![3; CHUNK_BYTES];
    for pass in ["write new", "write again"] {
        let start = Instant::now();
        for at in 0..STREAM_CHUNKS {
            file.write_all_at(&chunk, at * CHUNK_BYTES as u64)?;
        }
        file.sync_data()?;
        println!(
            "{pass} in chunks of 1 MiB + fdatasync: {:.0} MiB/s",
            STREAM_CHUNKS as f64 / start.elapsed().as_secs_f64()
        );
    }
    let start = Instant::now();
    for at in 0..STREAM_CHUNKS {
        file.read_exact_at(&mut chunk, at * CHUNK_BYTES as u64)?;
    }
    println!("read in chunks of 1 MiB: {:.0} MiB/s", STREAM_CHUNKS as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
