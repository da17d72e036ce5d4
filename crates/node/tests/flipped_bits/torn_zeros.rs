//! Goal: a value full of zeros in the last batch fools nothing: whatever subset of the batch's blocks or sectors is lost, it
//! is torn and cut, never half there, and never called rotten; written whole, damage to it is rotten and never cut.

use std::ops::Range;
use std::path::{Path, PathBuf};

use mortarmq_node::{Query, QueryAnswer};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Partition, Seq};

use super::folder::{Message, files, is_journal, publish, read};
use super::support::{CONNECTION, Rig, RigOptions};
use super::{findings, reads};

const SECTOR: usize = 512;
const BLOCK: usize = 4096;
/// A batch of three blocks.
const ZEROS: usize = 9000;

fn options() -> RigOptions {
    RigOptions { journal_file_bytes: 32 << 10, spare_files: 3, recent_bytes: 0, ..RigOptions::default() }
}

/// A disk before and after its last batch, which holds the zeros.
struct LastBatch {
    before: MemoryDisk,
    after: MemoryDisk,
    options: RigOptions,
    path: PathBuf,
    bytes: Range<usize>,
    /// The message in it.
    seq: u64,
}

/// Publishes the zeros where zeros stood before, or else where an earlier use of the file stands.
fn last_batch(over_zeros: bool) -> LastBatch {
    let mut rig = Rig::start(&MemoryDisk::new(), options()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("audit", 1).expect("no crash");
    let zeros = [0; ZEROS];
    for seq in 1..50 {
        let value: &[u8] = if seq % 2 == 0 { &zeros } else { b"filler" };
        let before = rig.disk.after_process_kill();
        publish(&mut rig, &Message { topic, partition: Partition::ZERO, number: 0, key: b"", headers: &[], value });
        let after = rig.disk.after_process_kill();
        let journal =
            files(&after).into_iter().map(|(path, _)| path).rfind(|path| is_journal(path)).expect("a journal");
        if value.len() == ZEROS && before.exists(&journal).expect("looked") {
            let (mut old, new) = (read(&before, &journal), read(&after, &journal));
            // Room for a batch is filled with zeros and synced before it is written.
            old.resize(new.len(), 0);
            let differs = |(old, new): (&[u8], &[u8])| old != new;
            let begin = old.chunks(BLOCK).zip(new.chunks(BLOCK)).position(differs).expect("it was written") * BLOCK;
            let bytes = begin..begin + 3 * BLOCK;
            if old[bytes.clone()].iter().all(|byte| *byte == 0) == over_zeros {
                let options = RigOptions { now: rig.now, ..options() };
                return LastBatch { before, after, options, path: journal, bytes, seq };
            }
        }
        if !over_zeros && seq % 10 == 5 {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump().expect("no crash");
        }
    }
    panic!("no batch of zeros stands where it should");
}

impl LastBatch {
    /// The disk on which only those pieces of the batch have arrived for which `arrived` says so.
    fn in_part(&self, piece: usize, arrived: impl Fn(usize) -> bool) -> MemoryDisk {
        let disk = self.before.after_process_kill();
        let new = read(&self.after, &self.path);
        let file = disk.open(&self.path).expect("there");
        file.set_len(new.len() as u64).expect("filled");
        for (_, begin) in self.bytes.clone().step_by(piece).enumerate().filter(|(number, _)| arrived(*number)) {
            file.write_all_at(&new[begin..begin + piece], begin as u64).expect("written");
        }
        disk
    }

    /// Starts on a disk: the message is there as a whole, or not at all and its number is free.
    fn check(&self, disk: &MemoryDisk, is_whole: bool, is_begun: bool, story: &str) {
        let found = findings(disk);
        assert!(found.iter().all(|finding| !finding.is_damage), "{story}: {found:?}");
        let is_noted = found.iter().any(|finding| finding.offset == self.bytes.start as u64);
        assert_eq!(is_noted, is_begun && !is_whole, "{story}: {found:?}");
        let mut rig = Rig::start(disk, self.options).unwrap_or_else(|crash| panic!("{story}: {}", crash.0));
        assert_eq!(rig.torn, is_begun && !is_whole, "{story}");
        let (topic, state) = rig.node.shard().state().topics.first_key_value().expect("a topic");
        let (topic, last) = (*topic, state.partitions[0].last_seq.get());
        assert_eq!(last, if is_whole { self.seq } else { self.seq - 1 }, "{story}");
        rig.connect(CONNECTION);
        let value = &[7; 50];
        publish(&mut rig, &Message { topic, partition: Partition::ZERO, number: 0, key: b"", headers: &[], value });
        let (from, max) = (Seq::new(self.seq), 2);
        let peek = Query::Peek { topic: "audit".to_owned(), partition: Partition::ZERO, from, max };
        let Ok(QueryAnswer::Peek(view)) = rig.query(peek).expect("no crash").result else { panic!("{story}: a peek") };
        let values: Vec<&[u8]> = view.messages.iter().map(|message| &message.value[..]).collect();
        let zeros = [0; ZEROS];
        let expected: &[&[u8]] = if is_whole { &[&zeros, value] } else { &[value] };
        assert_eq!(values, expected, "{story}: never half");
        assert!(reads::look(&mut rig).expect("no crash").failures().is_empty(), "{story}");
    }
}

#[test]
fn rule_3_a_last_batch_of_zeros_is_cut_whatever_subset_of_it_is_lost_and_never_half_there() {
    for over_zeros in [true, false] {
        let last = last_batch(over_zeros);
        for arrived in 0..8_u32 {
            let disk = last.in_part(BLOCK, |block| arrived >> block & 1 == 1);
            let story = format!("over zeros {over_zeros}, blocks {arrived:03b}");
            last.check(&disk, arrived == 7, arrived != 0, &story);
        }
        for sector in 0..24 {
            let story = format!("over zeros {over_zeros}, sector {sector}");
            last.check(&last.in_part(SECTOR, |at| at == sector), false, true, &format!("{story} alone"));
            last.check(&last.in_part(SECTOR, |at| at != sector), false, true, &format!("{story} lost"));
        }
        for seed in 1..150_u64 {
            let arrived = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let disk = last.in_part(SECTOR, |sector| arrived >> sector & 1 == 1);
            let story = format!("over zeros {over_zeros}, sectors {arrived:024b}");
            last.check(&disk, arrived == (1 << 24) - 1, arrived != 0, &story);
        }
    }
}

#[test]
fn rule_3_damage_in_a_last_batch_of_zeros_that_was_written_whole_is_rotten() {
    let last = last_batch(true);
    for byte in last.bytes.clone().step_by(61) {
        let disk = last.after.after_process_kill();
        disk.flip_bit(&last.path, byte as u64, (byte % 8) as u8).expect("there");
        let crash = Rig::start(&disk, last.options).err().expect("rotten").0;
        let named = format!("{} is damaged at offset {}", last.path.display(), last.bytes.start);
        assert!(crash.contains(&named), "byte {byte}: {crash}");
        assert_eq!(read(&disk, &last.path)[last.bytes.clone()].len(), 3 * BLOCK);
        let finding = findings(&disk).into_iter().next().expect("found");
        assert!(finding.is_damage && finding.path == Path::new(&last.path), "byte {byte}: {finding:?}");
    }
}
