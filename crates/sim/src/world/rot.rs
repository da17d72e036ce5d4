//! Rot: bytes that were durable change or are gone. A single node has no other copy, so it must say what is damaged and end, or
//! hold what it cannot read and go on with all else (failure rule 3, P11); a wrong answer is never right.
//!
//! What a start was refused for is put right, as from a copy of the disk, and the next start must find everything as it was:
//! a refusal changes nothing.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use mortarmq_history::{Operate, OperateKind, Outcome, Record};
use mortarmq_node::ReadJob;
use mortarmq_shard::MessagePlace;
use mortarmq_storage::{Disk, MemoryDisk, ScrubStep};
use mortarmq_types::TopicIncarnation;

use super::World;
use super::event::{Event, Input};
use super::faults::DATA_DIR;
use crate::clients::value::{Held, read_value};
use crate::history::path_name;
use crate::plan::{Deed, FaultKind, Part, Way};

/// Bytes that rotted.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    kind: FaultKind,
    path: PathBuf,
    harm: Harm,
}

#[derive(Clone, Debug)]
enum Harm {
    /// A bit is another. Of the bytes around it, those that it stands among: elsewhere it is not this damage.
    Bit { offset: u64, bit: u8, around_from: u64, around: Vec<u8> },
    /// The file is another.
    File { good: Vec<u8>, bad: Vec<u8> },
}

/// Whether a node that runs may meet such rot: it never reads its journal again, and a file that it writes does not become another.
pub(super) fn can_rot_alive(part: Part, way: Way) -> bool {
    part != Part::Journal && way == Way::Flip
}

impl World {
    /// Bytes of a part rot, if there are any. What was written last is more at stake than the rest: of the journal its end is
    /// known.
    pub(super) fn rot(&mut self, node: usize, kind: FaultKind, journal_end: Option<(PathBuf, u64)>) {
        let FaultKind::Rot { part, way, place, .. } = kind else { return };
        let journal_step_bytes = self.settings.journal_file_bytes / 4;
        let machine = &mut self.nodes[node];
        let disk = machine.disk.clone();
        let files = files_of(&disk, part);
        let damage = match way {
            Way::Flip => flip(&disk, &files, place, journal_end),
            Way::Cut => cut(&disk, &files, place, (part == Part::Journal).then_some(journal_step_bytes)),
            Way::Old => machine.former.as_ref().and_then(|former| old(&disk, former, part, &files, place)),
        };
        let Some((path, harm)) = damage else { return };
        let machine = &mut self.nodes[node];
        let struck = Damage { kind, path, harm };
        if machine.damages.iter().filter(|damage| damage.path == struck.path).count() >= STRUCK_MAX {
            // One more could no longer be told from what is written there later.
            struck.mend(&machine.disk);
            return;
        }
        let path = &struck.path;
        self.trace.note(self.now_us, "rot", &[node as u64]);
        self.trace.explain(|| path.display().to_string());
        self.tally.fault(kind);
        self.nodes[node].rotten_dirs.extend(struck.path.parent().map(Path::to_path_buf));
        self.nodes[node].damages.push(struck);
    }

    /// Whether bytes of one of several nodes may rot: what the others have must be sound, and they must have everything.
    pub(super) fn may_rot(&self, node: usize) -> bool {
        let has_everything = |place: usize| {
            let machine = &self.nodes[place];
            let is_rejoining = machine.process.as_ref().is_some_and(|process| process.node.is_rejoining());
            let is_begun = machine.disk.exists(&Path::new(DATA_DIR).join("repairing")).unwrap_or(true);
            let is_rotten = machine.damages.iter().any(|damage| damage.is_there(&machine.disk));
            !is_rotten && !is_rejoining && !is_begun
        };
        // Where the journal of one rots while another one is brought up, two of the disks are lost.
        let is_whole = self.nodes.iter().all(|machine| machine.counts);
        is_whole && (0..self.nodes.len()).all(|place| place == node || has_everything(place))
    }

    /// Whether a node refuses to go on because of what rotted, and names it. What it names is put right then.
    pub(super) fn is_refusal(&mut self, node: usize, error: &str) -> bool {
        let machine = &mut self.nodes[node];
        let names = |damage: &Damage| error.contains(&*damage.path.to_string_lossy());
        let Some(found) = machine.damages.iter().position(names) else { return false };
        let says_where = ["offset", "version", "missing", "lost bytes", "cannot read", "damaged"];
        if !says_where.iter().any(|word| error.contains(word)) {
            return false;
        }
        let path = machine.damages[found].path.clone();
        let (named, left) =
            std::mem::take(&mut machine.damages).into_iter().partition::<Vec<_>, _>(|damage| damage.path == path);
        machine.damages = left;
        // One upon the other: the last goes first.
        let (named, unmended): (Vec<_>, Vec<_>) =
            named.into_iter().rev().partition(|damage| damage.mend(&machine.disk));
        machine.damages.extend(unmended.into_iter().rev().filter(|damage| matches!(damage.harm, Harm::Bit { .. })));
        if named.is_empty() {
            self.fail(format!("P11: {} was changed before it was refused: {error}", path.display()));
        }
        self.trace.note(self.now_us, "refused", &[node as u64]);
        self.trace.explain(|| error.to_owned());
        named.iter().for_each(|damage| self.tally.refuse(damage.kind));
        self.tally.reach("rot refused");
        true
    }

    /// The files that are damaged, as they are.
    pub(super) fn damaged_files(&self, node: usize) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let machine = &self.nodes[node];
        let contents = |damage: &Damage| (damage.path.clone(), machine.disk.contents(&damage.path).ok());
        machine.damages.iter().map(contents).collect()
    }

    /// A start that is refused has changed nothing of what it names (P11).
    pub(super) fn expect_unchanged(&mut self, node: usize, before: &[(PathBuf, Option<Vec<u8>>)], error: &str) {
        let machine = &self.nodes[node];
        let is_changed = |(path, contents): &&(PathBuf, Option<Vec<u8>>)| {
            error.contains(&*path.to_string_lossy()) && machine.disk.contents(path).ok() != *contents
        };
        if let Some((path, _)) = before.iter().find(is_changed) {
            self.fail(format!("P11: {} was changed by a start that refuses it: {error}", path.display()));
        }
    }

    /// A node started with what rotted: in its journal it has written over it, or it never mattered, as where a file is another.
    pub(super) fn rot_let_it_start(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        let disk = &machine.disk;
        let is_over = |damage: &Damage| match damage.harm {
            Harm::Bit { .. } => matches!(damage.kind, FaultKind::Rot { part: Part::Journal, .. }),
            Harm::File { .. } => true,
        };
        let (over, left) = std::mem::take(&mut machine.damages).into_iter().partition::<Vec<_>, _>(is_over);
        // What is left of it in a file that is no journal file yet would be met when it becomes one, under another name.
        over.iter().filter(|damage| matches!(damage.harm, Harm::Bit { .. })).for_each(|damage| _ = damage.mend(disk));
        machine.damages = left;
    }

    /// Whether what a read says is what rotted.
    pub(super) fn is_rotten(&self, node: usize, reason: &str) -> bool {
        self.nodes[node].damages.iter().any(|damage| reason.contains(&*damage.path.to_string_lossy()))
    }

    /// A dead letter was made of a message that cannot be read: it says so, and has no value.
    pub(super) fn letter_lost_its_value(&mut self, node: usize, from: MessagePlace, reason: &str) {
        let state = self.nodes[node].process.as_ref().map(|process| process.node.shard().state());
        if self.has_peers() && state.is_some_and(|state| !state.topics.contains_key(&from.topic)) {
            // It goes with its topic and all dead letters of it, so nobody mends it any more.
            return;
        }
        if !self.is_rotten(node, reason) || self.has_peers() {
            return self.fail(format!("P4: a copy's source {from:?} cannot be read: {reason}"));
        }
        let machine = &self.nodes[node];
        let Some(process) = &machine.process else { return };
        // As the judge does, the world looks where nobody else can: what stood there before.
        let mended: Vec<&Damage> = machine.damages.iter().rev().filter(|damage| damage.mend(&machine.disk)).collect();
        let read = process.reader.read_records(from.topic, from.partition, from.seq, from.seq.next(), usize::MAX);
        mended.into_iter().rev().for_each(|damage| damage.strike_again(&machine.disk));
        let records = read.unwrap_or_default();
        let record = records.first().and_then(|found| mortarmq_shard::record::open_record(&found.record).ok());
        let Some(known) = record.and_then(|record| read_value(&record)) else {
            let place = (from.topic, from.partition.get(), from.seq.get());
            if self.delivered_where_it_rots(place).is_none() {
                self.fail(format!("a dead letter lost its value, and the world does not know which: {from:?}"));
            }
            return;
        };
        self.tally.reach("dead letter without its value");
        // The message of a letter of a letter is known by the place where it died first.
        let place = self.origin(from.topic, &known).unwrap_or((from.topic, from.partition.get(), from.seq.get()));
        self.lost_values.insert(place, known.message);
    }

    /// What cannot be read is taken back from its member, who never saw it, and with it what was leased behind it in its key.
    pub(super) fn record_taken_back(&mut self, job: &ReadJob) {
        let ReadJob::Records { topic, .. } = *job else { return };
        let (incarnation, groups) = match self.letters.get(&topic) {
            Some(source) => (*source, vec![None]),
            None => {
                let Some(known) = self.topics.incarnation(topic) else { return };
                (topic, (0..self.topics.get(known.topic).groups.len()).map(Some).collect())
            }
        };
        for group in groups {
            let Some(path) = path_name(&self.topics, incarnation, group) else { continue };
            let record = Record::Operate(Operate {
                client: None,
                kind: OperateKind::Revoke,
                path: Cow::Owned(path),
                msg: None,
                call: self.now_ns(),
                ret: None,
                outcome: Outcome::Unknown,
                commit: None,
                epoch: None,
            });
            self.histories.record(incarnation, &record);
        }
    }

    /// The message of a dead letter that was made without its value.
    pub(crate) fn lost_value(&self, letters: TopicIncarnation, known: &Held) -> Option<String> {
        let place = self.origin(letters, known)?;
        self.lost_values.get(&place).or_else(|| self.delivered_where_it_rots(place)).cloned()
    }

    /// What was delivered from a place whose partition was struck by rot. A start makes letters again without the world looking
    /// on; what died was delivered before.
    fn delivered_where_it_rots(&self, place: (TopicIncarnation, u16, u64)) -> Option<&String> {
        let dir = Path::new(DATA_DIR).join("topics").join(place.0.to_hex()).join(place.1.to_string());
        self.nodes[0].rotten_dirs.contains(&dir).then(|| self.delivered_from.get(&place))?
    }

    /// Where the message of a dead letter died.
    fn origin(&self, letters: TopicIncarnation, known: &Held) -> Option<(TopicIncarnation, u16, u64)> {
        let state = self.nodes[0].process.as_ref()?.node.shard().state();
        let source = state.topics.get(&letters)?.name.strip_prefix("$dlq.")?;
        let (topic, _) = state.topics.iter().find(|(_, topic)| topic.name == source)?;
        let (partition, seq) = known.origin_place?;
        Some((*topic, partition, seq))
    }

    /// Work is over: what rotted and let the node start is put right, and the node tries again what it could not read.
    pub(super) fn mend_at_the_end(&mut self) {
        // Several nodes repair by themselves what is read.
        if self.settings.mends == 0 || self.has_peers() {
            return;
        }
        for node in 0..self.nodes.len() {
            let machine = &mut self.nodes[node];
            // One upon the other: the last goes first.
            let damages = std::mem::take(&mut machine.damages).into_iter().rev();
            let (mended, left): (Vec<_>, Vec<_>) = damages.partition(|damage| damage.mend(&machine.disk));
            machine.damages = left;
            if !mended.is_empty() {
                self.restart(node);
            }
        }
    }

    /// Nothing moves any more, and nobody puts right what rotted, or nobody can: a dead letter that a start made again without its
    /// value stays as it is, and so does a message that was made of it before. An operator drops what a path owes of it.
    pub(super) fn purge_unreadable(&mut self) {
        if self.has_peers() {
            return;
        }
        let Some(process) = &self.nodes[0].process else { return };
        let state = process.node.shard().state();
        let mut deeds = Vec::new();
        for path in state.paths.values() {
            let nobody_mends = self.settings.mends == 0;
            let is_held = path.partitions.made().any(|(_, partition)| {
                let is_redriven = |seq| partition.sources().any(|(redriven, _)| redriven == seq);
                partition.held().any(|(seq, _)| nobody_mends || is_redriven(seq))
            });
            let Some(topic) = state.topics.get(&path.topic).filter(|_| is_held) else { continue };
            let name = topic.name.strip_prefix("$dlq.").unwrap_or(&topic.name);
            let places = 0..self.topics.len();
            let Some(place) = places.into_iter().find(|place| self.topics.get(*place).name == name) else { continue };
            let mut groups = self.topics.get(place).groups.iter();
            let group =
                topic.paths.iter().find(|(_, id)| state.paths.get(id).is_some_and(|found| std::ptr::eq(found, path)));
            let number = group.and_then(|(group, _)| groups.position(|known| known.name == **group));
            deeds.push(match number {
                Some(group) if name == topic.name => Deed::Purge { topic: place as u64, group: group as u64 },
                _ => Deed::PurgeLetters { topic: place as u64, count: 10_000 },
            });
        }
        for deed in deeds {
            self.tally.reach("what cannot be read was purged");
            self.purge(deed);
        }
    }

    /// Keeps the disk as it is now, for files that become what they were.
    pub(super) fn keep_former(&mut self, node: usize) {
        if self.keeps_former && self.loss.one_in(3) {
            self.nodes[node].former = Some(self.nodes[node].disk.after_process_kill());
        }
    }

    /// The scrub reads on: it finds nothing but what rotted.
    pub(super) fn scrub(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut found = Vec::new();
        let step = process.scrub.step(SCRUB_STEP_BYTES, &mut |finding| found.push(finding));
        let pause_ms = match step {
            Ok(ScrubStep::Read { .. }) => 50,
            Ok(ScrubStep::PassDone(_)) => {
                self.tally.reach("everything scrubbed");
                self.settings.scrub_ms
            }
            Err(_) if self.nodes[node].struck().is_some() => return self.after_disk(node),
            Err(error) => return self.fail(format!("the scrub could not go on: {error}")),
        };
        for finding in found.into_iter().filter(|finding| finding.is_damage) {
            if self.nodes[node].struck().is_some() {
                continue;
            }
            if !self.nodes[node].damages.iter().any(|damage| damage.path == finding.path) {
                return self.fail(format!("P11: the scrub finds damage where there is none: {finding:?}"));
            }
            self.tally.reach("the scrub found rot");
            if let Some(stretch) = finding.stretch() {
                self.give(node, Input::Damaged { stretch, is_waited_for: false });
            }
        }
        let life = self.nodes[node].life;
        self.at(self.now_us + pause_ms * 1000, Event::Scrub { node, life });
    }
}

impl Damage {
    /// Puts the bytes right; says whether they were still damaged.
    fn mend(&self, disk: &MemoryDisk) -> bool {
        let Ok(found) = disk.contents(&self.path) else { return false };
        match &self.harm {
            Harm::Bit { offset, bit, around_from, around } => {
                let from = usize::try_from(*around_from).unwrap_or(usize::MAX);
                let Some(found) = found.get(from..from.saturating_add(around.len())) else { return false };
                let place = usize::try_from(offset - around_from).expect("a few bytes");
                // Near by others may have struck since, or be mended.
                let others = found.iter().zip(around).filter(|(found, struck)| found != struck).count();
                found[place] == around[place]
                    && others <= OTHERS_MAX
                    && disk.flip_bit(&self.path, *offset, *bit).is_ok()
            }
            Harm::File { good, bad } => found == *bad && disk.replace(&self.path, good.clone()).is_ok(),
        }
    }

    /// Whether the bytes are still damaged.
    fn is_there(&self, disk: &MemoryDisk) -> bool {
        let is_there = self.mend(disk);
        if is_there {
            self.strike_again(disk);
        }
        is_there
    }

    fn strike_again(&self, disk: &MemoryDisk) {
        let struck = match &self.harm {
            Harm::Bit { offset, bit, .. } => disk.flip_bit(&self.path, *offset, *bit),
            Harm::File { bad, .. } => disk.replace(&self.path, bad.clone()),
        };
        struck.expect("it was there a moment ago");
    }
}

/// The files of a part, in order.
fn files_of(disk: &MemoryDisk, part: Part) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let _ = walk(disk, Path::new(DATA_DIR), &mut files);
    files.retain(|path| match part {
        Part::Identity => path.file_name().is_some_and(|name| name == "identity"),
        Part::Journal | Part::Segment | Part::Index | Part::Ledger | Part::Checkpoint => {
            path.extension().is_some_and(|extension| extension.to_string_lossy() == part.to_string())
        }
    });
    files.sort();
    files
}

fn walk(disk: &MemoryDisk, dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for name in disk.list(dir)? {
        let path = dir.join(name);
        match disk.open(&path) {
            Ok(_) => files.push(path),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => walk(disk, &path, files)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The files that hold anything, and what.
fn filled(disk: &MemoryDisk, files: &[PathBuf]) -> Vec<(PathBuf, Vec<u8>)> {
    let contents = files.iter().filter_map(|path| Some((path.clone(), disk.contents(path).ok()?)));
    contents.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

fn flip(
    disk: &MemoryDisk,
    files: &[PathBuf],
    place: u64,
    journal_end: Option<(PathBuf, u64)>,
) -> Option<(PathBuf, Harm)> {
    let is_newest = place & NEWEST != 0;
    let mut files = filled(disk, files);
    if is_newest {
        // The last of each folder.
        let folders: Vec<Option<PathBuf>> =
            files.iter().map(|(path, _)| path.parent().map(Path::to_path_buf)).collect();
        let mut place = 0;
        files.retain(|_| {
            place += 1;
            folders.get(place) != Some(&folders[place - 1])
        });
    }
    let (path, bytes) = &files[choose(files.len(), place)?];
    let place = place / FILES_MAX;
    let (path, end) = match &journal_end {
        Some((path, end)) if is_newest => (path, *end),
        _ => (path, bytes.len() as u64),
    };
    let reach = if is_newest { end.min(NEWEST_BYTES) } else { end };
    let offset = end - 1 - (place / 2 / 8).checked_rem(reach)?;
    let bit = (place / 2 % 8) as u8;
    disk.flip_bit(path, offset, bit).ok()?;
    let around_from = offset.saturating_sub(AROUND_BYTES);
    let bytes = disk.contents(path).ok()?;
    let end = bytes.len().min((offset + AROUND_BYTES) as usize);
    let around = bytes[around_from as usize..end].to_vec();
    Some((path.clone(), Harm::Bit { offset, bit, around_from, around }))
}

fn cut(disk: &MemoryDisk, files: &[PathBuf], place: u64, journal_step_bytes: Option<u64>) -> Option<(PathBuf, Harm)> {
    let files = filled(disk, files);
    let (file, place) = (choose(files.len(), place)?, place / FILES_MAX);
    let (path, good) = &files[file];
    // Some end within their header.
    let within = if place.is_multiple_of(4) { good.len().min(HEADER_BYTES) } else { good.len() };
    let length = place / 4 % within as u64;
    if let Some(step_bytes) = journal_step_bytes
        && file + 1 == files.len()
        && length.is_multiple_of(step_bytes)
    {
        // A newest file that ends where it once ended shows nothing of what followed: one node cannot tell.
        return None;
    }
    let bad = good[..usize::try_from(length).ok()?].to_vec();
    disk.replace(path, bad.clone()).ok()?;
    Some((path.clone(), Harm::File { good: good.clone(), bad }))
}

fn old(disk: &MemoryDisk, former: &MemoryDisk, part: Part, files: &[PathBuf], place: u64) -> Option<(PathBuf, Harm)> {
    let mut changed: Vec<(PathBuf, Vec<u8>, Vec<u8>)> = Vec::new();
    let formers = files_of(former, part);
    for (path, good) in filled(disk, files) {
        // A checkpoint never changes; what may stand in its place is the one before.
        let before = if part == Part::Checkpoint { formers.first() } else { formers.iter().find(|old| **old == path) };
        let bad = before.and_then(|before| former.contents(before).ok());
        changed.extend(bad.filter(|bad| *bad != good).map(|bad| (path, good, bad)));
    }
    if part == Part::Journal && changed.last().map(|(path, ..)| path) == files.last() {
        // Of the newest file nothing else tells how far it went: one node cannot tell.
        changed.pop();
    }
    let (path, good, bad) = changed.swap_remove(choose(changed.len(), place)?);
    disk.replace(&path, bad.clone()).ok()?;
    Some((path, Harm::File { good, bad }))
}

fn choose(count: usize, place: u64) -> Option<usize> {
    usize::try_from(place % FILES_MAX).ok()?.checked_rem(count)
}

/// Behind this no file has its header.
const HEADER_BYTES: usize = 4096;
/// A place counts files up to here, then bytes and bits in one of them.
const FILES_MAX: u64 = 1024;
/// The bit of a place that says that it is among what was written last.
pub(crate) const NEWEST: u64 = FILES_MAX;
const NEWEST_BYTES: u64 = 4096;
const AROUND_BYTES: u64 = 16;
/// Bytes near by that may be others than when a bit rotted.
const OTHERS_MAX: usize = 12;
/// A file is struck so often at a time: what was done to it must be told from what is written there meanwhile.
const STRUCK_MAX: usize = 2;
/// Read by the scrub at once, as in the server.
const SCRUB_STEP_BYTES: u64 = 256 << 10;
