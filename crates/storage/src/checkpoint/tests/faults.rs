//! Places that cannot be read and writes that end short, in checkpoints and in the files that they list.

use std::path::Path;

use super::{DATA_DIR, checkpoint_file, load, meta, read, record, with_checkpoint};
use crate::checkpoint::{CheckpointError, load_checkpoint};

#[test]
fn p11_a_checkpoint_that_cannot_be_read_is_named_with_its_offset_and_none_is_taken_in_its_place() {
    let (disk, mut writer) = with_checkpoint();
    writer.append(&[record(1, 0, 13, 300)]).expect("appended");
    // Larger than one piece of a read.
    writer.checkpoint(&meta(31), &vec![9; 150_000]).expect("a checkpoint");
    let path = checkpoint_file(31);
    let bytes = read(&disk, &path).len() as u64;
    for place in [0, 100, 70_000, bytes - 1] {
        disk.fail_reads(&path, place..place + 1).expect("there");
        let operations = disk.operations();
        match load_checkpoint(&disk, Path::new(DATA_DIR)).expect_err("unreadable") {
            CheckpointError::Unreadable { path: found, offset, .. } => {
                assert_eq!((found, offset), (path.clone(), place / 65_536 * 65_536), "byte {place}");
            }
            other => panic!("byte {place}: not unreadable but: {other}"),
        }
        assert_eq!(disk.operations(), operations, "nothing is changed");
    }
    disk.fail_reads(&path, 0..0).expect("there");
    assert_eq!(load(&disk).meta.log_index, 31);
}

#[test]
fn rule_2_a_write_that_ends_short_makes_no_checkpoint_and_loses_none() {
    let prepare = || {
        let (disk, mut writer) = with_checkpoint();
        writer.append(&[record(1, 0, 13, 300), record(1, 2, 13, 700)]).expect("appended");
        (disk, writer)
    };
    let operations = {
        let (disk, mut writer) = prepare();
        let before = disk.operations();
        writer.checkpoint(&meta(31), b"more").expect("a checkpoint");
        before + 1..=disk.operations()
    };
    for operation in operations {
        for bytes in [1, 100, 600] {
            let (disk, mut writer) = prepare();
            disk.short_write_at(operation, bytes);
            writer.checkpoint(&meta(31), b"more").expect_err("a write failed");
            let refused = writer.checkpoint(&meta(31), b"more").expect_err("poisoned");
            assert!(matches!(refused, CheckpointError::Poisoned), "operation {operation}: {refused}");
            for disk in [disk.after_process_kill(), disk.after_power_loss(operation)] {
                let found = load(&disk);
                // With all names and bytes in place, the failed sync of the directory alone may have made it count.
                assert!(found.meta == meta(30) || found.meta == meta(31), "operation {operation}: {:?}", found.meta);
                let mut writer = super::open_writer(&disk);
                writer.restore(&found.files).unwrap_or_else(|error| panic!("operation {operation}: {error}"));
                if found.meta == meta(30) {
                    writer.append(&[record(1, 0, 13, 300), record(1, 2, 13, 700)]).expect("appended again");
                }
                writer.checkpoint(&meta(32), b"more").expect("a checkpoint");
            }
        }
    }
}
