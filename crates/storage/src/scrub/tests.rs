//! P11: damage of what was written long ago is found while a node goes on, and a node that goes on is no damage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mortarmq_types::{KeyHash, Seq, TopicIncarnation, WallTime};

use super::{PassDone, Scrub, ScrubStep};
use crate::disk::{Disk, DiskFile, MemoryDisk, SECTOR_BYTES};
use crate::verify::rig::{
    DATA_DIR, FOLDER, PARTITION, TOPIC, append, checkpoint, event, files, flip, folder, folder_with_writer, length,
    listed_bytes, open_journal, record, write_identity,
};
use crate::{Finding, FindingAt, LedgerRecord, SegmentOptions, SegmentRecord, SegmentWriter, VerifyError};

const ALL: u64 = u64::MAX;
const OTHER: TopicIncarnation = TopicIncarnation::new(0xB2);

fn scrub(disk: &MemoryDisk) -> Scrub {
    Scrub::new(Arc::new(disk.clone()), PathBuf::from(DATA_DIR))
}

/// The rest of a pass in steps of a budget, with a look at the world after each.
fn finish(scrub: &mut Scrub, budget_bytes: u64, mut after: impl FnMut(u64)) -> (PassDone, Vec<Finding>) {
    let mut findings = Vec::new();
    loop {
        match scrub.step(budget_bytes, &mut |finding| findings.push(finding)).expect("listed") {
            ScrubStep::Read { bytes } => after(bytes),
            ScrubStep::PassDone(done) => {
                assert_eq!(done.damaged, findings.len() as u64);
                assert!(findings.iter().all(|finding| finding.is_damage));
                return (done, findings);
            }
        }
    }
}

fn pass(disk: &MemoryDisk, budget_bytes: u64) -> (PassDone, Vec<Finding>) {
    let before = disk.operations();
    let found = finish(&mut scrub(disk), budget_bytes, |_| ());
    assert_eq!(disk.operations(), before, "nothing is changed");
    found
}

/// How many bytes of a file a pass reads.
fn read_bytes(disk: &MemoryDisk, path: &Path) -> u64 {
    if path.starts_with("data/topics") {
        return listed_bytes(disk, path);
    }
    if path.starts_with("data/journal") { 0 } else { length(disk, path) }
}

fn append_to(segments: &mut SegmentWriter, topic: TopicIncarnation, seqs: std::ops::Range<u64>) {
    let records: Vec<_> = seqs.clone().map(|seq| SegmentRecord { topic, ..record(seq) }).collect();
    let events: Vec<_> = seqs.map(|seq| LedgerRecord { topic, ..event(seq) }).collect();
    segments.append(&records).expect("appended");
    segments.append_ledger(&events).expect("appended");
    segments.flush().expect("flushed");
}

#[test]
fn a_sound_directory_is_read_as_far_as_it_is_listed_pass_after_pass() {
    let disk = folder();
    let all = files(&disk, Path::new(DATA_DIR));
    let read: Vec<u64> = all.iter().map(|(path, _)| read_bytes(&disk, path)).filter(|bytes| *bytes > 0).collect();
    let expected = PassDone { files: read.len() as u64, bytes: read.iter().sum(), damaged: 0 };
    let mut scrub = scrub(&disk);
    for budget_bytes in [ALL, 0, 1, 777, 1 << 20] {
        assert_eq!(finish(&mut scrub, budget_bytes, |_| ()), (expected, vec![]), "steps of {budget_bytes}");
    }
    // Where nothing is listed there is nothing to read.
    assert_eq!(pass(&MemoryDisk::new(), ALL), (PassDone::default(), vec![]));
    let young = MemoryDisk::new();
    write_identity(&young);
    open_journal(&young, None);
    assert_eq!(pass(&young, ALL).0, PassDone { files: 1, bytes: 40, damaged: 0 });
}

#[test]
fn p11_any_flipped_byte_that_is_listed_is_named_and_none_behind_it() {
    let disk = folder();
    let (mut found, mut ignored) = (0, 0);
    for (path, bytes) in files(&disk, Path::new(DATA_DIR)) {
        if path.starts_with("data/journal") {
            continue;
        }
        let listed = read_bytes(&disk, &path);
        for offset in 0..bytes.len() as u64 {
            flip(&disk, &path, offset);
            let (_, findings) = pass(&disk, ALL);
            flip(&disk, &path, offset);
            if offset >= listed {
                assert_eq!(findings, [], "{} byte {offset} is not listed", path.display());
                ignored += 1;
                continue;
            }
            let named = |finding: &Finding| finding.path == path && finding.offset <= offset;
            assert!(!findings.is_empty() && findings.iter().all(named), "{} {offset}: {findings:?}", path.display());
            found += 1;
        }
    }
    assert!(found > 3_000 && ignored > 400, "{found} and {ignored}");
}

#[test]
fn p11_a_damaged_record_is_named_by_its_place_in_small_steps_too() {
    let segment = Path::new(FOLDER).join("00000000000000000001.segment");
    let disk = folder();
    // The positions of the first and third record, and bytes of the fifth.
    for offset in [32, 32 + 2 * 148 + 8, 32 + 4 * 148 + 60] {
        flip(&disk, &segment, offset);
    }
    flip(&disk, &Path::new(DATA_DIR).join("checkpoints/00000000000000000003.checkpoint"), 87);
    assert_eq!(pass(&disk, ALL).0.damaged, 1, "without a list no file is known");
    flip(&disk, &Path::new(DATA_DIR).join("checkpoints/00000000000000000003.checkpoint"), 87);
    let (_, findings) = pass(&disk, ALL);
    let place = |seq| Some(FindingAt { topic: TOPIC, partition: PARTITION, seq: Some(Seq::new(seq)) });
    let found: Vec<_> = findings.iter().map(|finding| (&finding.path, finding.offset, finding.at)).collect();
    assert_eq!(found, [(&segment, 32, place(1)), (&segment, 328, place(3)), (&segment, 624, place(5))]);
    assert_eq!(pass(&disk, 1).1, findings);
}

#[test]
fn p11_a_damaged_image_keeps_no_file_from_being_read() {
    let disk = folder();
    let path = Path::new(DATA_DIR).join("checkpoints/00000000000000000003.checkpoint");
    let ledger = Path::new(FOLDER).join("0001.ledger");
    flip(&disk, &path, length(&disk, &path) - 1);
    flip(&disk, &ledger, 40);
    let (_, findings) = pass(&disk, ALL);
    let whats: Vec<_> = findings.iter().map(|finding| (&finding.path, finding.what.as_str())).collect();
    let of_ledger = "the entry's header fails its checksum; what follows it cannot be told";
    assert_eq!(whats, [(&path, "the image fails its checksum"), (&ledger, of_ledger)]);
}

#[test]
fn p11_missing_and_shortened_files_are_damage_while_they_are_listed() {
    let all = files(&folder(), Path::new(DATA_DIR));
    for (path, _) in &all {
        let disk = folder();
        if path.starts_with("data/journal") || path.starts_with("data/checkpoints") || read_bytes(&disk, path) == 0 {
            continue;
        }
        disk.remove(path).expect("removed");
        let (_, findings) = pass(&disk, ALL);
        assert_eq!(findings.len(), 1, "{}: {findings:?}", path.display());
        assert_eq!((&findings[0].path, findings[0].offset), (path, 0));
        assert!(findings[0].what.contains("missing"), "{findings:?}");
        if path.starts_with("data/topics") {
            let disk = folder();
            disk.open(path).and_then(|file| file.set_len(40)).expect("cut");
            let (_, findings) = pass(&disk, ALL);
            assert_eq!((&findings[0].path, findings[0].offset), (path, 40));
            // A newer checkpoint that lists it all the same does not excuse that it is gone.
            let (disk, mut segments) = folder_with_writer();
            let mut scrub = scrub(&disk);
            scrub.step(1, &mut |_| ()).expect("the identity");
            scrub.step(1, &mut |_| ()).expect("the checkpoint");
            checkpoint(&mut segments, 4);
            disk.remove(path).expect("removed");
            let (_, findings) = finish(&mut scrub, 1, |_| ());
            assert_eq!((findings.len(), &findings[0].path), (1, path), "{findings:?}");
        }
    }
}

/// Changes everything a node may change, behind every single step of a pass.
#[test]
fn a_node_that_goes_on_is_no_damage_at_any_moment_of_a_pass() {
    let rig = || {
        let (disk, mut segments) = folder_with_writer();
        append_to(&mut segments, OTHER, 1..16);
        checkpoint(&mut segments, 4);
        (disk, segments)
    };
    let mut steps = 0;
    finish(&mut scrub(&rig().0), 1, |_| steps += 1);
    assert!(steps > 100, "{steps}");
    for changed_at in 0..steps {
        // The topic that is read first, that which is read last, both; and the dropped files' own checkpoint goes too.
        for dropped in [&[TOPIC][..], &[OTHER], &[TOPIC, OTHER], &[]] {
            let (disk, mut segments) = rig();
            let (mut scrub, mut step) = (scrub(&disk), 0);
            let (done, findings) = finish(&mut scrub, 1, |_| {
                if step == changed_at {
                    append(&mut segments, 19..22);
                    dropped.iter().for_each(|topic| segments.drop_topic(*topic));
                    checkpoint(&mut segments, 5);
                    append_to(&mut segments, TopicIncarnation::new(0xC3), 1..3);
                    checkpoint(&mut segments, 6);
                }
                step += 1;
            });
            assert_eq!(findings, [], "changed after step {changed_at}, dropped {dropped:?}");
            assert!(done.files > 2, "{done:?}");
            assert_eq!(finish(&mut scrub, ALL, |_| ()).1, []);
        }
    }
}

#[test]
fn p11_a_newer_checkpoint_that_cannot_be_read_excuses_nothing_for_long() {
    let (disk, mut segments) = folder_with_writer();
    append_to(&mut segments, OTHER, 1..16);
    checkpoint(&mut segments, 4);
    let mut scrub = scrub(&disk);
    for _ in 0..8 {
        scrub.step(1, &mut |finding| panic!("{finding:?}")).expect("listed");
    }
    segments.drop_topic(OTHER);
    checkpoint(&mut segments, 5);
    let newer = Path::new(DATA_DIR).join("checkpoints/00000000000000000005.checkpoint");
    flip(&disk, &newer, 90);
    // Whether the dropped files are damage cannot be told now; the checkpoint is told by the pass that begins with it.
    assert_eq!(finish(&mut scrub, ALL, |_| ()).1, []);
    let (_, findings) = finish(&mut scrub, ALL, |_| ());
    assert_eq!((findings.len(), &findings[0].path), (1, &newer), "{findings:?}");
}

#[test]
fn a_checkpoint_that_makes_room_between_listing_and_opening_is_no_damage() {
    let (disk, mut segments) = folder_with_writer();
    checkpoint(&mut segments, 4);
    let expected = pass(&disk, ALL);
    let scrub_with = |stale: &[&str]| {
        let counting = Counting { disk: disk.clone(), ..Counting::default() };
        *counting.stale_names.lock().expect("sound") = stale.iter().map(|name| (*name).to_owned()).collect();
        finish(&mut Scrub::new(Arc::new(counting), PathBuf::from(DATA_DIR)), ALL, |_| ())
    };
    let gone = "00000000000000000003.checkpoint";
    assert_eq!(scrub_with(&[gone]), expected);
    // One that is listed again and not there is damage.
    let (_, findings) = scrub_with(&[gone, gone]);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].path.ends_with(gone) && findings[0].what.starts_with("cannot read"), "{findings:?}");
}

#[test]
fn p11_sound_bytes_that_are_not_those_listed_are_damage() {
    // Another life of the folder: the same place, sequences and lengths, and every entry sound.
    let (disk, other) = (folder(), MemoryDisk::new());
    let options = SegmentOptions { segment_bytes: 1_000, push_bytes: 700 };
    let mut segments = SegmentWriter::open(Arc::new(other.clone()), Path::new(DATA_DIR), options).expect("opened");
    for seq in 1..16 {
        // Other bytes of a record alone would not do: as each ends with its CRC32C, that of the file stays the same.
        let (published_at, key_hash) = (WallTime::new(5), KeyHash::new(9));
        segments.append(&[SegmentRecord { published_at, key_hash, ..record(seq) }]).expect("appended");
        segments.append_ledger(&[LedgerRecord { payload: vec![9; 30].into(), ..event(seq) }]).expect("appended");
    }
    segments.flush().expect("flushed");
    for name in ["00000000000000000001.segment", "00000000000000000001.index", "0001.ledger"] {
        let path = Path::new(FOLDER).join(name);
        let disk = disk.after_process_kill();
        let mut bytes = vec![0; listed_bytes(&disk, &path) as usize];
        other.open(&path).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("as long");
        disk.open(&path).and_then(|file| file.write_all_at(&bytes, 0)).expect("written");
        let (_, findings) = pass(&disk, ALL);
        let at = Some(FindingAt { topic: TOPIC, partition: PARTITION, seq: None });
        assert_eq!((findings.len(), &findings[0].path, findings[0].offset), (1, &path, 0), "{findings:?}");
        assert_eq!(findings[0].at, at);
        assert!(findings[0].what.ends_with("fail the checksum that the checkpoint lists"), "{findings:?}");
    }
}

#[test]
fn a_step_reads_little_more_than_its_budget_and_a_pass_reads_everything_once() {
    let disk = MemoryDisk::new();
    write_identity(&disk);
    let options = SegmentOptions { segment_bytes: 6 << 20, push_bytes: 4 << 20 };
    let mut segments = SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options).expect("opened");
    let large = |seq: u64, bytes: usize| {
        let mut bytes = vec![seq as u8; bytes];
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        SegmentRecord { record: bytes.into(), ..record(seq) }
    };
    // One record is larger than what is read at once.
    let records = (1..=2_000).map(|seq| large(seq, if seq == 700 { LARGEST_RECORD - 4 } else { 5_000 }));
    segments.append(&records.collect::<Vec<_>>()).expect("appended");
    segments.append_ledger(&(1..=20_000).map(event).collect::<Vec<_>>()).expect("appended");
    checkpoint(&mut segments, 1);
    let counting = Counting { disk: disk.clone(), ..Counting::default() };
    let mut scrub = Scrub::new(Arc::new(counting.clone()), PathBuf::from(DATA_DIR));
    let (budget_bytes, ahead_bytes) = (64 << 10, 2 * WINDOW_BYTES + LARGEST_RECORD as u64);
    let (mut charged, mut read_before, mut longest) = (0, 0, 0);
    let (done, findings) = finish(&mut scrub, budget_bytes, |bytes| {
        let read = counting.read_bytes();
        charged += bytes;
        assert!(bytes <= budget_bytes + LARGEST_RECORD as u64 + 64, "a step of {bytes}");
        assert!(read - read_before <= budget_bytes + ahead_bytes, "{} at once", read - read_before);
        assert!(read <= charged + ahead_bytes, "{read} read for {charged}");
        longest = longest.max(bytes);
        read_before = read;
    });
    assert_eq!(findings, []);
    assert!(longest > LARGEST_RECORD as u64 && charged > done.bytes);
    let reads = counting.reads.lock().expect("sound").clone();
    let larger: Vec<u64> = reads.iter().copied().filter(|read| *read > WINDOW_BYTES).collect();
    assert_eq!(larger, [LARGEST_RECORD.next_multiple_of(SECTOR_BYTES) as u64], "a record, and else a window");
    let read = counting.read_bytes();
    assert!(done.bytes > 12 << 20 && read >= done.bytes, "{read} of {done:?}");
    // The segment is read a second time only around the large record; indexes are read with their segments too.
    assert!(read < done.bytes + done.bytes / 8, "{read} of {done:?}");
}

#[test]
fn a_step_ends_with_the_entry_that_uses_the_budget_up() {
    let disk = folder();
    let counting = Counting { disk, ..Counting::default() };
    let mut scrub = Scrub::new(Arc::new(counting.clone()), PathBuf::from(DATA_DIR));
    for budget_bytes in [0, 1] {
        assert_eq!(scrub.step(budget_bytes, &mut |_| ()).expect("listed"), ScrubStep::Read { bytes: 4096 });
    }
    let read = counting.read_bytes();
    // Whoever stops calling has stopped it.
    drop(scrub);
    assert_eq!(counting.read_bytes(), read);
}

#[test]
fn a_directory_that_cannot_be_listed_ends_the_pass_and_not_the_scrub() {
    let counting = Counting { disk: folder(), ..Counting::default() };
    let mut scrub = Scrub::new(Arc::new(counting.clone()), PathBuf::from(DATA_DIR));
    counting.refuses_lists.store(true, Ordering::Relaxed);
    let error = scrub.step(ALL, &mut |finding| panic!("{finding:?}")).expect_err("refused");
    assert!(matches!(error, VerifyError::Io { .. }), "{error}");
    counting.refuses_lists.store(false, Ordering::Relaxed);
    let (done, findings) = finish(&mut scrub, ALL, |_| ());
    assert_eq!((done, findings), pass(&counting.disk, ALL));
}

/// As much as is read at once, and a record that is longer.
const WINDOW_BYTES: u64 = 1 << 20;
const LARGEST_RECORD: usize = 1_500_000;

/// A disk that notes every read.
#[derive(Clone, Default)]
struct Counting {
    disk: MemoryDisk,
    reads: Arc<Mutex<Vec<u64>>>,
    total: Arc<AtomicU64>,
    refuses_lists: Arc<AtomicBool>,
    /// What listing the checkpoints finds first: names that were there a moment ago.
    stale_names: Arc<Mutex<Vec<String>>>,
}

struct CountingFile(Arc<dyn DiskFile>, Counting);

impl Counting {
    fn read_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

impl Disk for Counting {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        panic!("{} is made", dir.display())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        panic!("{} is synced", dir.display())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if self.refuses_lists.load(Ordering::Relaxed) {
            return Err(io::Error::other("refused"));
        }
        let names = self.disk.list(dir)?;
        let stale = if dir.ends_with("checkpoints") { self.stale_names.lock().expect("sound").pop() } else { None };
        Ok(stale.map_or(names, |name| vec![name]))
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        panic!("{} is made", path.display())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        panic!("{} is opened to be written to", path.display())
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CountingFile(self.disk.open(path)?, self.clone())))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        panic!("{} is removed", path.display())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        panic!("{} is removed", dir.display())
    }

    fn rename(&self, from: &Path, _: &Path) -> io::Result<()> {
        panic!("{} is renamed", from.display())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }
}

impl DiskFile for CountingFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.reads.lock().expect("sound").push(buffer.len() as u64);
        self.1.total.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, _: &[u8], offset: u64) -> io::Result<()> {
        panic!("a write at {offset}")
    }

    fn sync_data(&self) -> io::Result<()> {
        panic!("a sync")
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        panic!("cut to {bytes}")
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        panic!("grown to {bytes}")
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
