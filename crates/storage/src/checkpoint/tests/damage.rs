//! P11 and failure rule 3: a checkpoint that is not as it was written is named and refused, as are files that lost bytes.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use mortarmq_types::Seq;

use super::{
    DATA_DIR, checkpoint_file, files_below, load, load_checkpoint, meta, open_writer, read, topics, with_checkpoint,
};
use crate::checkpoint::layout::{HEADER_BYTES, VERSION, parse};
use crate::checkpoint::{CheckpointError, CheckpointFile, encode_head};
use crate::disk::{Disk, MemoryDisk};

fn overwrite(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path).expect("opened");
    file.set_len(0).expect("cut");
    file.write_all_at(bytes, 0).expect("written");
    file.sync_data().expect("synced");
}

/// The file and offset of a checkpoint that was found damaged.
fn damaged(disk: &MemoryDisk) -> (PathBuf, u64) {
    match load_checkpoint(disk, Path::new(DATA_DIR)) {
        Err(CheckpointError::Damaged { path, offset, .. }) => (path, offset),
        Err(other) => panic!("not damaged but: {other}"),
        Ok(found) => panic!("loaded {:?}", found.map(|found| found.meta)),
    }
}

#[test]
fn rule_3_a_flipped_bit_in_any_byte_of_a_checkpoint_is_named_and_refused() {
    let (disk, _) = with_checkpoint();
    // An older one, sound, is no way out: the journal no longer goes back so far.
    let older = checkpoint_file(29);
    disk.create_new(&older).expect("created");
    let (path, bytes) = (checkpoint_file(30), read(&disk, &checkpoint_file(30)));
    let image_at = bytes.len() - b"the state".len();
    let pieces = [0, HEADER_BYTES, HEADER_BYTES + 16, image_at];
    for byte in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[byte] ^= 1 << bit;
            overwrite(&disk, &path, &flipped);
            let piece = pieces.iter().rfind(|start| **start <= byte).expect("a piece");
            assert_eq!(damaged(&disk), (path.clone(), *piece as u64), "byte {byte} bit {bit}");
        }
    }
    assert!(disk.exists(&path).expect("looked") && disk.exists(&older).expect("looked"), "nothing was removed");
    overwrite(&disk, &path, &bytes);
    assert_eq!(load(&disk).meta, meta(30));
}

#[test]
fn rule_3_a_checkpoint_of_any_other_length_is_refused() {
    let (disk, _) = with_checkpoint();
    let (path, bytes) = (checkpoint_file(30), read(&disk, &checkpoint_file(30)));
    for length in 0..bytes.len() {
        overwrite(&disk, &path, &bytes[..length]);
        let offset = if (12..HEADER_BYTES).contains(&length) { 0 } else { length };
        assert_eq!(damaged(&disk), (path.clone(), offset as u64), "length {length}");
    }
    overwrite(&disk, &path, &[&bytes[..], b"x"].concat());
    assert_eq!(damaged(&disk), (path.clone(), bytes.len() as u64));
    // Under another name it claims to be newer than it is.
    overwrite(&disk, &path, &bytes);
    disk.rename(&path, &checkpoint_file(31)).expect("renamed");
    assert_eq!(damaged(&disk), (checkpoint_file(31), 0));
}

#[test]
fn p11_a_sound_checkpoint_of_an_unknown_version_is_refused_by_number() {
    let (disk, _) = with_checkpoint();
    let (path, mut bytes) = (checkpoint_file(30), read(&disk, &checkpoint_file(30)));
    bytes[4..6].copy_from_slice(&9u16.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    overwrite(&disk, &path, &bytes);
    let error = load_checkpoint(&disk, Path::new(DATA_DIR)).expect_err("unknown version");
    assert_eq!(error.to_string(), format!("{} has version 9; this build reads version {VERSION}", path.display()));
}

#[test]
fn rule_3_a_listed_file_that_lost_bytes_or_is_missing_is_named_and_nothing_is_touched() {
    let (disk, mut writer) = with_checkpoint();
    writer.append(&[super::record(1, 0, 13, 700)]).expect("appended");
    writer.flush().expect("flushed");
    let files = load(&disk).files;
    for listed in files.list() {
        let path = Path::new(DATA_DIR).join(&listed.path);
        for length in [Some(listed.bytes - 1), Some(0), None] {
            let disk = disk.after_process_kill();
            match length {
                Some(length) => disk.open(&path).expect("opened").set_len(length).expect("cut"),
                None => disk.remove(&path).expect("removed"),
            }
            let before = files_below(&disk, &topics());
            match open_writer(&disk).restore(&files) {
                Err(CheckpointError::Rotten { path: found, found_bytes, expected_bytes }) => {
                    assert_eq!((found, found_bytes, expected_bytes), (path.clone(), length, listed.bytes));
                }
                other => panic!("{} with {length:?} bytes: {other:?}", listed.path),
            }
            assert_eq!(files_below(&disk, &topics()), before);
        }
    }
    let error = CheckpointError::Rotten { path: "a".into(), found_bytes: None, expected_bytes: 9 };
    assert_eq!(error.to_string(), "a has lost bytes: it is missing where the checkpoint lists 9");
}

#[test]
fn a_list_that_makes_no_sense_is_refused_at_its_entry_whatever_its_checksum_says() {
    let (disk, _) = with_checkpoint();
    let path = Path::new("x.checkpoint");
    let good = load(&disk).files.list().to_vec();
    let parsed = |list: &[CheckpointFile]| {
        let head = encode_head(&meta(5), list, b"").expect("encoded");
        parse(path, 5, &Bytes::from(head))
    };
    assert_eq!(parsed(&good).expect("sound").files.list(), good);
    let entry_at = |list: &[CheckpointFile], position: usize| {
        let before: usize = list[..position].iter().map(|file| 30 + file.path.len()).sum();
        (HEADER_BYTES + 16 + before) as u64
    };
    let refused = |position: usize, change: &dyn Fn(&mut Vec<CheckpointFile>)| {
        let mut list = good.clone();
        change(&mut list);
        match parsed(&list) {
            Err(CheckpointError::Damaged { offset, .. }) => assert_eq!(offset, entry_at(&list, position)),
            other => panic!("{other:?}"),
        }
    };
    for outside in [
        "../0000000000000001/0/00000000000000000001.segment",
        "topics/0000000000000001/0/../0/00000000000000000001.segment",
        "topics/0000000000000001/0/1.segment",
        "topics/0000000000000001/00/00000000000000000001.segment",
        "topics/0000000000000001/0/00000000000000000001.checkpoint",
        "/topics",
        "",
    ] {
        refused(1, &|list| list[1].path = outside.to_owned());
    }
    let index = good.iter().position(|file| file.path.ends_with(".index")).expect("an index");
    refused(index, &|list| list[index].bytes += 24);
    refused(index, &|list| list[index].end_seq = Seq::MAX);
    refused(good.len() - 1, &|list| {
        list.retain(|file| file.path != good[index].path);
    });
    refused(1, &|list| list[1] = list[0].clone());
    refused(1, &|list| list[1].first_seq = list[1].first_seq.next());
    refused(1, &|list| list[0].end_seq = list[0].end_seq.next());
    refused(0, &|list| list[0].end_seq = Seq::ZERO);
    refused(1, &|list| list.swap(1, 2));
    refused(good.len() - 1, &|list| list.last_mut().expect("one").bytes = 31);
}
