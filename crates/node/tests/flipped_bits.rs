//! Goal: one flipped bit in any byte that counts is named with file and offset, and what it touches is never served (P11).
//! Method: a node makes a small data folder with everything in it; then one bit of every byte is flipped in turn, and
//! `verify`, a start and every read are held against what the sound folder gives.

mod support;

#[path = "flipped_bits/folder.rs"]
mod folder;
#[path = "flipped_bits/reads.rs"]
mod reads;
#[path = "flipped_bits/torn_zeros.rs"]
mod torn_zeros;
#[path = "flipped_bits/units.rs"]
mod units;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use mortarmq_storage::{Finding, MemoryDisk, verify};
use reads::Served;
use support::{Rig, RigOptions};
use units::{Kind, Unit, units};

/// A sound folder and what a node serves of it.
struct Sound {
    disk: MemoryDisk,
    options: RigOptions,
    units: Vec<Unit>,
    served: Served,
}

impl Sound {
    fn new() -> Self {
        let (disk, options) = folder::build();
        let units = units(&disk);
        assert_eq!(findings(&disk), [], "the folder is sound");
        let mut rig = Rig::start(&disk.after_process_kill(), options).expect("a sound folder");
        assert!(rig.from_checkpoint);
        let mut served = reads::look(&mut rig).expect("no crash");
        reads::deliver(&mut rig, &mut served).expect("no crash");
        assert!(served.failures().is_empty() && served.deliveries.len() == served.peeks.len(), "{served:?}");
        Self { disk, options, units, served }
    }
}

fn findings(disk: &MemoryDisk) -> Vec<Finding> {
    let mut findings = Vec::new();
    verify(disk, Path::new("data"), &mut |finding| findings.push(finding)).expect("data");
    findings
}

/// One of a byte's bits, another for each byte and the same in every run.
fn bit_of(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as u8
}

/// Whether an offset names the damage to a byte: it lies in what is checked together with the byte, at or before it.
fn names(unit: &Unit, byte: u64, offset: u64) -> bool {
    (unit.begin..=byte).contains(&offset)
}

/// Whether it belongs to an index. What that says is read from the records where it is damaged, so no read fails; verify and
/// the scrub name it.
fn is_index(unit: &Unit) -> bool {
    unit.path.extension().is_some_and(|extension| extension == "index")
}

/// Whether a text names the damage to a byte: the file, and an offset as [`names`] asks for.
fn text_names(unit: &Unit, byte: u64, text: &str) -> bool {
    let Some((_, behind)) = text.split_once(&format!("{} is damaged at offset ", unit.path.display())) else {
        return false;
    };
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().is_ok_and(|offset| names(unit, byte, offset))
}

/// Calls `check` for every byte of the units, on both cores, with the bit flipped on a copy of the disk; counts the bytes by
/// the kind of unit and by what `check` says of them.
fn sweep(
    sound: &Sound,
    wanted: fn(Kind) -> bool,
    check: impl Fn(&MemoryDisk, &Unit, u64) -> &'static str + Sync,
) -> BTreeMap<(Kind, &'static str), u64> {
    const THREADS: u64 = 2;
    let counts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (counts, check) = (&counts, &check);
            scope.spawn(move || {
                for unit in sound.units.iter().filter(|unit| wanted(unit.kind)) {
                    for byte in unit.bytes.clone().filter(|byte| byte % THREADS == thread) {
                        let disk = sound.disk.after_process_kill();
                        disk.flip_bit(&unit.path, byte, bit_of(byte)).expect("there");
                        let what = check(&disk, unit, byte);
                        *counts.lock().expect("no panic").entry((unit.kind, what)).or_insert(0) += 1;
                    }
                }
            });
        }
    });
    counts.into_inner().expect("no panic")
}

#[test]
fn the_folder_holds_everything_that_a_node_keeps() {
    let sound = Sound::new();
    let mut bytes: BTreeMap<Kind, u64> = BTreeMap::new();
    for unit in &sound.units {
        *bytes.entry(unit.kind).or_default() += unit.bytes.end - unit.bytes.start;
    }
    println!("bytes by kind: {bytes:?}");
    assert_eq!(bytes.len(), 19, "every kind of byte is there: {bytes:?}");
    let last = sound.units.iter().rfind(|unit| unit.kind == Kind::JournalBatch).expect("a batch");
    let file = folder::read(&sound.disk, &last.path);
    let batch = &file[last.bytes.start as usize..last.bytes.end as usize];
    // Read without the marks.
    let payload: Vec<u8> = batch.chunks(512).flat_map(|sector| &sector[24..]).copied().collect();
    let last_used = payload.iter().rposition(|byte| *byte != 0).expect("the record's checksum");
    let longest = payload[..last_used].split(|byte| *byte != 0).map(<[u8]>::len).max();
    assert!(longest >= Some(folder::ZEROS), "the last batch holds a value of zeros: {longest:?}");
    let stages: String = sound.served.traces.values().flatten().cloned().collect();
    for word in ["leased", "lease_ended", "acked", "nacked", "released", "no such customer"] {
        assert!(stages.contains(word), "{word} is in no trace");
    }
}

#[test]
fn p11_verify_names_a_flipped_bit_in_every_byte_that_counts() {
    let sound = Sound::new();
    let counts = sweep(
        &sound,
        |_| true,
        |disk, unit, byte| {
            let findings = findings(disk);
            let story = || format!("{:?}, byte {byte}: {findings:?}", unit);
            assert!(findings.iter().all(|finding| finding.path == unit.path), "another file is blamed: {}", story());
            let named = findings.iter().any(|finding| names(unit, byte, finding.offset));
            assert!(named || findings.is_empty(), "named in the wrong place: {}", story());
            let is_damage = findings.iter().any(|finding| finding.is_damage && names(unit, byte, finding.offset));
            if unit.kind.is_used() {
                assert!(is_damage, "not named as damage: {}", story());
            }
            match (named, is_damage) {
                (true, true) => "damage",
                (true, false) => "note",
                (false, _) => "unseen",
            }
        },
    );
    println!("verify: {counts:?}");
    for ((kind, what), bytes) in &counts {
        let is_known = match kind {
            Kind::OlderPayload | Kind::Spare => *what == "unseen",
            Kind::NotListed => *what == "note",
            // A bit that makes the first byte of a sector what the next batch's would be looks like a write cut short.
            Kind::Unwritten | Kind::OlderMark => *what != "unseen" && (*what == "damage" || *bytes < 4),
            _ => *what == "damage",
        };
        assert!(is_known, "{kind:?}: {bytes} bytes are {what}: {counts:?}");
    }
}

#[test]
fn p11_a_start_refuses_a_flipped_bit_in_journal_and_checkpoint_and_no_unused_byte_changes_what_is_served() {
    let sound = Sound::new();
    let counts = sweep(
        &sound,
        |kind| kind.stops_the_start() || !kind.is_used(),
        |disk, unit, byte| {
            let story = || format!("{unit:?}, byte {byte}");
            let mut rig = match Rig::start(disk, sound.options) {
                Ok(rig) => rig,
                Err(crash) => {
                    assert!(text_names(unit, byte, &crash.0), "{}: refused without a name: {}", story(), crash.0);
                    return "refused";
                }
            };
            assert!(!unit.kind.stops_the_start(), "P11: {}: the start goes over it", story());
            // To read everything takes longer than all the rest.
            if byte.is_multiple_of(8) {
                let served = reads::look(&mut rig).expect("no crash");
                served.must_be_part_of(&sound.served, &story);
                assert!(served.failures().is_empty(), "{}: {:?}", story(), served.failures());
            }
            "started"
        },
    );
    println!("start: {counts:?}");
    for ((kind, what), bytes) in &counts {
        let is_known = match kind {
            Kind::OlderPayload | Kind::Spare | Kind::NotListed => *what == "started",
            Kind::Unwritten | Kind::OlderMark => *what == "refused" || *bytes < 4,
            _ => *what == "refused",
        };
        assert!(is_known, "{kind:?}: {bytes} bytes, {what}: {counts:?}");
    }
}

#[test]
fn p11_a_read_names_a_flipped_bit_in_segment_index_and_ledger_and_never_serves_it() {
    let sound = Sound::new();
    let counts = sweep(
        &sound,
        |kind| kind.is_used() && !kind.stops_the_start(),
        |disk, unit, byte| {
            let story = || format!("{unit:?}, byte {byte}");
            let mut rig = match Rig::start(disk, sound.options) {
                Ok(rig) => rig,
                Err(crash) => {
                    // The start writes behind what is listed, so it opens the files that go on, and names their headers.
                    assert!(text_names(unit, byte, &crash.0), "{}: {}", story(), crash.0);
                    let is_header = matches!(unit.kind, Kind::SegmentHeader | Kind::IndexHeader | Kind::LedgerHeader);
                    assert!(is_header, "{}: the start reads it: {}", story(), crash.0);
                    return "refused by the start";
                }
            };
            let mut served = reads::look(&mut rig).unwrap_or_else(|crash| panic!("{}: {}", story(), crash.0));
            let failed_peeks = served.peeks.values().filter(|read| read.is_err()).count();
            let failures = served.failures();
            if is_index(unit) {
                assert!(failures.is_empty(), "{}: what it says stands in the records too: {failures:?}", story());
                reads::deliver(&mut rig, &mut served).expect("no crash");
                served.must_be_part_of(&sound.served, &story);
                return "read from the records";
            }
            assert!(!failures.is_empty(), "P11: {}: no read fails", story());
            for failure in failures {
                assert!(text_names(unit, byte, failure), "{}: {failure}", story());
            }
            match unit.kind {
                Kind::Record => assert_eq!(failed_peeks, 1, "{}: others are held back", story()),
                Kind::LedgerHeader | Kind::LedgerEntryHeader | Kind::LedgerEvent => {
                    assert_eq!(failed_peeks, 0, "{}: the ledger holds back messages", story());
                }
                _ => {}
            }
            if let Err(crash) = reads::deliver(&mut rig, &mut served) {
                // A delivery is noted in the ledger, whose file was damaged.
                assert!(text_names(unit, byte, &crash.0), "{}: {}", story(), crash.0);
            }
            served.must_be_part_of(&sound.served, &story);
            let held = served.peeks.iter().filter(|(_, read)| read.is_err()).map(|(place, _)| place);
            for place in held {
                assert!(!served.deliveries.contains_key(place), "P11: {}: {place:?} is delivered", story());
            }
            "named by the read"
        },
    );
    println!("reads: {counts:?}");
}

#[test]
fn p11_a_running_node_never_serves_a_flipped_bit_listed_or_not() {
    // One node, on whose disk one bit after the other flips and flips back. The headers of files that are open are not
    // read again.
    let sound = Sound::new();
    let mut rig = Rig::start(&sound.disk.after_process_kill(), sound.options).expect("a sound folder");
    let mut expected = reads::look(&mut rig).expect("no crash");
    let listed: BTreeMap<_, _> =
        units(&sound.disk).into_iter().map(|unit| ((unit.path, unit.begin), unit.kind)).collect();
    let is_header = |unit: &Unit| unit.begin == 0;
    let of_topics: Vec<Unit> = units(&rig.disk.after_process_kill())
        .into_iter()
        .filter(|unit| unit.path.starts_with("data/topics") && !is_header(unit))
        .collect();
    let mut not_listed = 0;
    for unit in of_topics {
        let is_not_listed = listed.get(&(unit.path.clone(), unit.begin)) == Some(&Kind::NotListed);
        // One value is large, and its bytes are much alike.
        let step = if unit.bytes.end - unit.bytes.start > 1000 { 16 } else { 1 };
        for byte in unit.bytes.clone().step_by(step) {
            rig.disk.flip_bit(&unit.path, byte, bit_of(byte)).expect("there");
            let served = reads::look(&mut rig).expect("no crash");
            let story = || format!("{unit:?}, byte {byte}");
            expected.deliveries.clear();
            served.must_be_part_of(&expected, &story);
            let failures = served.failures();
            assert_eq!(failures.is_empty(), is_index(&unit), "P11: {}: {failures:?}", story());
            assert!(failures.iter().all(|failure| text_names(&unit, byte, failure)), "{}: {failures:?}", story());
            rig.disk.flip_bit(&unit.path, byte, bit_of(byte)).expect("there");
            not_listed += u64::from(is_not_listed);
        }
    }
    assert!(not_listed > 800, "only {not_listed} bytes that no checkpoint lists");
    assert_eq!(reads::look(&mut rig).expect("no crash").peeks, expected.peeks, "all bits are flipped back");
}
