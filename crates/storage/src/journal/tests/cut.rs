//! Cutting a torn batch (`cut.rs`): whatever hits the start that does it, and the one after it, the next one goes on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{DATA_DIR, Opened, batch, membership, path, rotten};
use crate::disk::{Disk, MemoryDisk, SECTOR_BYTES};
use crate::journal::layout::BLOCK_BYTES;
use crate::journal::{Covered, Journal, JournalBatch, JournalError, JournalOptions};
use crate::verify;
use mortarmq_types::ShardId;

/// Up to so many outcomes of a power loss all are tried, else so many seeds.
const OUTCOMES_MAX: usize = 256;
const SEEDS: u64 = 6;
/// The torn batch stands behind a header and a batch of one block.
const PLACE: u64 = 2 * BLOCK_BYTES as u64;

/// What stands in the file where the torn batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// Zeros.
    Fresh,
    /// Older batches of one block each, of which one begins at the very place.
    OlderSmall,
    /// One older batch.
    OlderLarge,
}

const GROUNDS: [Ground; 3] = [Ground::Fresh, Ground::OlderSmall, Ground::OlderLarge];

/// A journal whose newest file holds one acknowledged batch and has room for one more of so many blocks.
struct Scene {
    disk: MemoryDisk,
    blocks: usize,
    acknowledged: Vec<JournalBatch>,
    newest_file: u64,
}

impl Scene {
    fn new(ground: Ground, blocks: usize) -> Self {
        let disk = MemoryDisk::new();
        let mut scene = Self { disk, blocks, acknowledged: Vec::new(), newest_file: 1 };
        let (mut journal, ..) = scene.recover(&scene.disk).expect("a new journal");
        let mut append = |journal: &mut Journal, blocks| {
            let batch = filling(scene.acknowledged.len() as u64 + 1, blocks);
            journal.append(&batch).expect("appended");
            scene.acknowledged.push(batch);
        };
        append(&mut journal, 1);
        if ground != Ground::Fresh {
            match ground {
                Ground::OlderLarge => append(&mut journal, blocks),
                Ground::Fresh | Ground::OlderSmall => (0..blocks).for_each(|_| append(&mut journal, 1)),
            }
            // The second file is full with one batch; the first is free then, and becomes the third.
            append(&mut journal, 1 + blocks);
            assert_eq!(journal.release(u64::MAX, 0).expect("released").files, 1);
            append(&mut journal, 1);
            scene.acknowledged.drain(..scene.acknowledged.len() - 2);
            scene.newest_file = 3;
        }
        assert_eq!(journal.end(), (&*path(scene.newest_file), PLACE));
        scene
    }

    fn options(&self) -> JournalOptions {
        let file_bytes = ((2 + self.blocks) * BLOCK_BYTES) as u64;
        JournalOptions { shard: ShardId::ZERO, file_bytes, zero_step_bytes: file_bytes, spare_files: 1 }
    }

    fn recover(&self, disk: &MemoryDisk) -> Opened {
        let mut batches = Vec::new();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let covered = (self.newest_file > 1).then_some(Covered { log_index: 1 });
        let (journal, recovered) =
            Journal::recover(disk, Path::new(DATA_DIR), self.options(), membership(), covered, &mut |batch| {
                batches.push(batch);
                Ok(())
            })?;
        Ok((journal, recovered, batches))
    }

    /// The batch that is torn.
    fn next(&self) -> JournalBatch {
        filling(self.acknowledged.last().expect("there is one").number + 1, self.blocks)
    }

    /// Another in its place.
    fn other(&self) -> JournalBatch {
        JournalBatch { clock: super::Clock::default(), ..self.next() }
    }

    /// The disk after a process that wrote so much of the next batch and ended.
    fn written_in_part(&self, bytes: usize) -> MemoryDisk {
        let disk = self.disk.after_process_kill();
        let (mut journal, ..) = self.recover(&disk).expect("recovered");
        disk.short_write_at(disk.operations() + 1, bytes);
        journal.append(&self.next()).expect_err("a write failed");
        disk
    }

    /// How the newest file is called.
    fn newest_name(&self, disk: &MemoryDisk) -> String {
        let names = disk.list(&Path::new(DATA_DIR).join("journal")).expect("listed");
        let number = format!("{:08}.", self.newest_file);
        names.into_iter().find(|name| name.starts_with(&number)).expect("it is there")
    }

    /// Gives the newest file the name that it has while it is cut.
    fn begin_cut(&self, disk: &MemoryDisk, offset: u64) -> std::path::PathBuf {
        let dir = Path::new(DATA_DIR).join("journal");
        let cut = dir.join(format!("{:08}.cut-{offset}", self.newest_file));
        disk.rename(&dir.join(self.newest_name(disk)), &cut).and_then(|()| disk.sync_dir(&dir)).expect("renamed");
        cut
    }

    /// Recovers: what was acknowledged is there, and of the next batch all or nothing. Then as much is there after a power loss,
    /// and what is appended in its place.
    fn check(&self, disk: &MemoryDisk, story: &dyn Fn() -> String) {
        let (mut journal, _, found) = self.recover(disk).unwrap_or_else(|error| panic!("{}: {error}", story()));
        let is_there = found.len() > self.acknowledged.len();
        let expected = [&self.acknowledged[..], &[self.next()][..usize::from(is_there)]].concat();
        assert!(found == expected, "{}: {} batches", story(), found.len());
        assert_eq!(self.newest_name(disk), format!("{:08}.journal", self.newest_file), "{}", story());
        let again =
            |disk: &MemoryDisk| self.recover(disk).unwrap_or_else(|error| panic!("{}, again: {error}", story()));
        let (_, recovered, found) = again(&disk.after_power_loss(1));
        assert!(found == expected && recovered.torn.is_none(), "{}: {} batches, again", story(), found.len());
        if !is_there {
            journal.append(&self.other()).unwrap_or_else(|error| panic!("{}: {error}", story()));
            let (.., found) = again(&disk.after_power_loss(2));
            assert!(found == [&self.acknowledged[..], &[self.other()]].concat(), "{}: the other", story());
        }
    }
}

/// A batch that fills so many blocks, no sector of it like another.
fn filling(number: u64, blocks: usize) -> JournalBatch {
    batch(number, &[blocks * BLOCK_BYTES - blocks * 192 - 300])
}

/// Where a write of so many bytes may end early: within a mark, a header and a payload, and about the borders of sectors, also
/// in the midst and at the end.
fn ends(bytes: usize) -> Vec<usize> {
    let middle = bytes / 2 / SECTOR_BYTES * SECTOR_BYTES;
    let near = |sector: usize| [sector + 1, sector + 10, sector + 24, sector + 145, sector + 300, sector + 511];
    let mut ends: Vec<usize> =
        [0, middle - SECTOR_BYTES, middle, bytes - 2 * SECTOR_BYTES].into_iter().flat_map(near).collect();
    ends.extend([SECTOR_BYTES, middle, bytes - SECTOR_BYTES]);
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// What a test went through.
#[derive(Debug, Default)]
struct Seen {
    starts: u64,
    /// Starts that were hit while the file had its other name, and those that were not.
    hit_in_cut: u64,
    hit: u64,
    exhaustive: u64,
    known: BTreeSet<u64>,
}

impl Seen {
    /// The disks that are left where the power may go or a process may end, as far as they are new.
    fn left(&mut self, disk: &MemoryDisk) -> Vec<MemoryDisk> {
        let (is_exhaustive, outcomes) = disk.power_losses(OUTCOMES_MAX, 0..SEEDS);
        let outcomes: Vec<MemoryDisk> = outcomes.collect();
        self.exhaustive += u64::from(is_exhaustive);
        let mut left: Vec<MemoryDisk> = outcomes.into_iter().filter(|disk| self.known.insert(disk.digest())).collect();
        // What a kill leaves is not durable yet: it is another disk, although it reads the same.
        left.push(disk.after_process_kill());
        left
    }
}

/// Starts from a disk, hit at each operation in each way; what is left goes into `left`, of much of it a part.
fn hit_starts(scene: &Scene, found: &MemoryDisk, every: usize, seen: &mut Seen, left: &mut Vec<MemoryDisk>) {
    let whole = found.after_process_kill();
    scene.recover(&whole).expect("checked before");
    for operation in 1..=whole.operations() {
        let mut hits: Vec<MemoryDisk> = Vec::new();
        let crashed = found.after_process_kill();
        crashed.crash_at(operation);
        hits.push(crashed);
        let bytes = scene.blocks * BLOCK_BYTES;
        for end in ends(bytes).into_iter().skip(operation as usize % every).step_by(every) {
            let short = found.after_process_kill();
            short.short_write_at(operation, end);
            hits.push(short);
        }
        for disk in hits {
            assert!(scene.recover(&disk).is_err(), "operation {operation} is never reached");
            seen.hit += 1;
            let disks = seen.left(&disk);
            seen.hit_in_cut += u64::from(disks.iter().any(|disk| scene.newest_name(disk).contains("cut")));
            left.extend(disks);
        }
    }
}

/// Goal: a batch that was never acknowledged never keeps a node from starting, however often the power goes and writes end within
/// sectors meanwhile. Method: a batch torn in every way, over zeros and over older batches; starts that are hit at each operation,
/// up to three in a row, and what each may leave.
#[test]
fn p12_a_start_that_is_hit_while_it_cuts_a_torn_batch_is_made_again_however_often() {
    let mut seen = Seen::default();
    for ground in GROUNDS {
        for blocks in 1..=4 {
            let scene = Scene::new(ground, blocks);
            let bytes = blocks * BLOCK_BYTES;
            let mut found = Vec::new();
            // A batch without any of it, too: in a file that is used again a start has older batches before it.
            found.extend(seen.left(&scene.disk));
            for end in ends(bytes).into_iter().filter(|end| *end <= bytes - SECTOR_BYTES) {
                found.extend(seen.left(&scene.written_in_part(end)));
            }
            for (depth, (starts_max, every)) in [(16, 2), (24, 5), (24, 9), (200, usize::MAX)].into_iter().enumerate() {
                let step = found.len().div_ceil(starts_max);
                let mut left = Vec::new();
                for (number, disk) in found.iter().enumerate().skip(depth).step_by(step) {
                    let story = || format!("{ground:?}, {blocks} blocks, {depth} starts were hit, disk {number}");
                    let untouched = disk.after_process_kill();
                    scene.check(disk, &story);
                    seen.starts += 1;
                    if every < usize::MAX {
                        hit_starts(&scene, &untouched, every, &mut seen, &mut left);
                    }
                }
                found = left;
            }
        }
    }
    let Seen { starts, hit, hit_in_cut, exhaustive, known } = seen;
    println!(
        "{starts} starts, {hit} hit, {hit_in_cut} of them while they cut; {exhaustive} with all outcomes; {} disks",
        known.len()
    );
    assert!(starts > 2_000 && hit_in_cut > 5_000, "{starts} starts, {hit_in_cut} hit while they cut");
}

/// Goal: the same with every byte, as the simulator found it once. Method: the write ends at one byte, and then each operation of
/// the recovery at another.
#[test]
fn rule_3_a_cut_that_ends_within_any_byte_of_a_sector_is_made_again() {
    let mut cut_short = 0;
    for ground in GROUNDS {
        let scene = Scene::new(ground, 1);
        for (written, cleared) in [10, 24, 300, 1500]
            .into_iter()
            .flat_map(|written| (1..=26).chain(505..=540).chain([1030, 4095]).map(move |cleared| (written, cleared)))
        {
            let torn = scene.written_in_part(written).after_process_kill();
            let whole = torn.after_process_kill();
            scene.recover(&whole).expect("recovered");
            for operation in 1..=whole.operations() {
                let disk = torn.after_process_kill();
                disk.short_write_at(operation, cleared);
                cut_short += u64::from(scene.recover(&disk).is_err());
                for disk in [disk.after_process_kill(), disk.after_power_loss(written as u64)] {
                    scene.check(&disk, &|| format!("{ground:?}, {written} bytes, {cleared} of operation {operation}"));
                }
            }
        }
    }
    assert!(cut_short > 3_000, "{cut_short}");
}

#[test]
fn p1_a_start_writes_nothing_over_older_batches_behind_the_last() {
    for ground in [Ground::OlderSmall, Ground::OlderLarge] {
        let scene = Scene::new(ground, 3);
        let before = super::read(&scene.disk, 3);
        assert!(before[PLACE as usize..].iter().any(|byte| *byte != 0), "older batches stand there");
        let disk = scene.disk.after_process_kill();
        scene.recover(&disk).expect("recovered");
        assert!(before == super::read(&disk, 3), "{ground:?}");
    }
}

#[test]
fn p11_a_batch_before_the_cut_that_is_not_there_is_named_and_nothing_is_cut() {
    for ground in GROUNDS {
        let scene = Scene::new(ground, 2);
        let disk = scene.written_in_part(1500);
        // The last acknowledged batch lost its end, as if it were torn; all of it; a bit of it flipped.
        let begin = PLACE - BLOCK_BYTES as u64;
        for (from, to) in [(begin + 600, PLACE), (begin, PLACE), (begin + 200, begin + 201)] {
            let disk = disk.after_process_kill();
            let cut = scene.begin_cut(&disk, PLACE);
            let file = disk.open(&cut).expect("there");
            file.write_all_at(&vec![0; (to - from) as usize], from).and_then(|()| file.sync_data()).expect("written");
            let before = disk.contents(&cut).expect("there");
            let (found, offset, what) = rotten(scene.recover(&disk));
            assert_eq!((&found, offset), (&cut, begin), "{ground:?}: {what}");
            assert!(before == disk.contents(&cut).expect("there"), "nothing was changed");
        }
    }
}

#[test]
fn p11_a_damaged_header_of_a_file_that_is_cut_is_named() {
    // It holds no batch, so without its other name it could be one that was never finished.
    let disk = MemoryDisk::new();
    let (mut journal, ..) = super::recover(&disk).expect("a new journal");
    disk.short_write_at(disk.operations() + 1, 600);
    journal.append(&batch(1, &[3000])).expect_err("a write failed");
    let cut = Path::new(DATA_DIR).join("journal/00000001.cut-4096");
    disk.rename(&path(1), &cut).expect("renamed");
    disk.open(&cut).and_then(|file| file.write_all_at(&[0; BLOCK_BYTES], BLOCK_BYTES as u64)).expect("written");
    let sound = disk.after_process_kill();
    let (_, recovered, found) = super::recover(&sound).expect("recovered");
    assert_eq!((found.len(), recovered.torn.map(|torn| torn.offset), recovered.unfinished_file), (0, Some(4096), None));
    disk_flip(&disk, &cut, 1000);
    let (found, offset, what) = rotten(super::recover(&disk));
    assert_eq!((found, offset), (cut, 0), "{what}");
}

#[test]
fn p1_a_batch_where_the_name_says_the_cut_is_was_written_after_it_and_stays() {
    // That the file has its name back was forgotten: its directory could not be synced.
    for ground in GROUNDS {
        let scene = Scene::new(ground, 2);
        let disk = scene.disk.after_process_kill();
        let (mut journal, ..) = scene.recover(&disk).expect("recovered");
        let small = [filling(scene.next().number, 1), filling(scene.next().number + 1, 1)];
        journal.append(&small[0]).expect("appended");
        let one = disk.after_process_kill();
        scene.begin_cut(&one, PLACE);
        let (_, recovered, found) = scene.recover(&one).expect("recovered");
        assert_eq!((found.last(), recovered.torn), (Some(&small[0]), None), "{ground:?}");
        assert!(!scene.newest_name(&one).contains("cut"));
        // A torn one behind it is cut where it stands.
        disk.short_write_at(disk.operations() + 1, 700);
        journal.append(&small[1]).expect_err("a write failed");
        scene.begin_cut(&disk, PLACE);
        let (_, recovered, found) = scene.recover(&disk.after_process_kill()).expect("recovered");
        assert_eq!(found.last(), Some(&small[0]), "{ground:?}");
        assert_eq!(recovered.torn.map(|torn| torn.offset), Some(PLACE + BLOCK_BYTES as u64));
        // Damage to it is damage.
        let cut = scene.begin_cut(&one, PLACE + BLOCK_BYTES as u64);
        disk_flip(&one, &cut, PLACE + 700);
        assert_eq!(rotten(scene.recover(&one)).1, PLACE, "{ground:?}");
    }
}

fn disk_flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    disk.flip_bit(path, offset, 3).expect("there");
}

#[test]
fn rule_3_only_the_newest_file_is_cut() {
    // Another file follows: its header says what the one before held, so its batch was acknowledged.
    let scene = Scene::new(Ground::Fresh, 1);
    let disk = scene.disk.after_process_kill();
    let (mut journal, ..) = scene.recover(&disk).expect("recovered");
    [scene.next(), filling(3, 1)].iter().for_each(|batch| journal.append(batch).expect("appended"));
    let cut = scene.begin_cut(&disk, PLACE);
    assert_eq!(scene.recover(&disk.after_process_kill()).expect("the name means nothing").2.len(), 3);
    // Even if that one was only begun.
    let begun = scene.written_in_part(1500).after_process_kill();
    scene.begin_cut(&begun, PLACE);
    drop(begun.create_new(&path(2)).expect("created"));
    assert_eq!(rotten(scene.recover(&begun)).1, PLACE);
    let file = disk.open(&cut).expect("there");
    file.write_all_at(&[0; 512], PLACE + 512).and_then(|()| file.sync_data()).expect("written");
    let (found, offset, what) = rotten(scene.recover(&disk));
    assert_eq!((found, offset), (cut, PLACE), "{what}");
}

#[test]
fn p11_two_files_of_one_number_are_refused_and_named() {
    let scene = Scene::new(Ground::Fresh, 1);
    let copy = Path::new(DATA_DIR).join("journal/00000001.cut-8192");
    scene.disk.create_new(&copy).and_then(|file| file.write_all_at(&super::read(&scene.disk, 1), 0)).expect("written");
    let (found, offset, what) = rotten(scene.recover(&scene.disk));
    assert_eq!((&found, offset, &*what), (&copy, 0, "there is another file of this number"));
    let mut findings = Vec::new();
    verify(&scene.disk, Path::new(DATA_DIR), &mut |finding| findings.push(finding)).expect("data");
    let of_copy: Vec<_> = findings.iter().filter(|finding| finding.path == copy && finding.is_damage).collect();
    assert!(of_copy.len() == 1 && of_copy[0].what == what, "{findings:?}");
}

#[test]
fn rule_8_a_torn_batch_is_cut_on_a_full_disk() {
    for ground in GROUNDS {
        let scene = Scene::new(ground, 2);
        let disk = scene.written_in_part(1500).after_process_kill();
        disk.set_capacity(Some(0));
        let (_, recovered, found) = scene.recover(&disk).expect("it needs no room");
        assert_eq!((recovered.torn.is_some(), found), (true, scene.acknowledged.clone()), "{ground:?}");
    }
}

#[test]
fn p11_verify_notes_a_cut_that_was_begun_and_names_damage_before_it() {
    for ground in GROUNDS {
        let scene = Scene::new(ground, 2);
        let disk = scene.written_in_part(1500).after_process_kill();
        let cut = scene.begin_cut(&disk, PLACE);
        // As the zeros of a start left it that ended within a sector.
        disk.open(&cut).and_then(|file| file.write_all_at(&[0; 700], PLACE)).expect("written");
        let look = |disk: &MemoryDisk| {
            let mut findings = Vec::new();
            verify(disk, Path::new(DATA_DIR), &mut |finding| findings.push(finding)).expect("data");
            findings.retain(|finding| finding.path == cut);
            findings
        };
        let findings = look(&disk);
        assert_eq!(findings.len(), 1, "{ground:?}: {findings:?}");
        assert_eq!((findings[0].is_damage, findings[0].offset), (false, PLACE), "{findings:?}");
        for offset in (0..PLACE).step_by(37) {
            disk_flip(&disk, &cut, offset);
            let findings = look(&disk);
            let is_named = |finding: &crate::Finding| finding.is_damage && finding.offset <= offset;
            assert!(findings.iter().any(is_named), "{ground:?}, byte {offset}: {findings:?}");
            let error = scene.recover(&disk).err().expect("damage stops a start");
            assert!(matches!(&error, JournalError::Rotten { path, .. } if *path == cut), "byte {offset}: {error}");
            disk_flip(&disk, &cut, offset);
        }
        scene.check(&disk, &|| format!("{ground:?}"));
    }
}
