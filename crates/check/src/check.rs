//! Reads a history, sorts it, has it judged and reports.

use mortarmq_history::{ReadError, Reader, Record};

use crate::context::Context;
use crate::evidence;
use crate::finish::Finished;
use crate::intake::{Content, Item, take};
use crate::judge::Judge;
use crate::location::Location;
use crate::names::Names;
use crate::operation::{MsgId, Operation};
use crate::options::Options;
use crate::report::{Report, UnreadableLine};
use crate::verdict;

/// How far a reading is, for showing it.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The bytes read of all files, as they lie on the disk.
    pub bytes_read: u64,
    /// The bytes of all files; none if that is not known.
    pub bytes_total: Option<u64>,
    /// Records read.
    pub records: u64,
    /// Whether this is a second reading of the files.
    pub is_again: bool,
}

/// Judges a history. `open` opens its files from the start, and may be asked to do so several times; `progress` is told
/// now and then how far the reading is.
///
/// # Errors
/// When a file cannot be opened or read. Bad content is no error: it is counted and told in the report.
pub fn check(
    open: &dyn Fn() -> Result<Reader, ReadError>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ReadError> {
    let mut reading = read(open()?, options, Window::Narrow, progress)?;
    if let Err(Again::Late) = reading {
        reading = read(open()?, options, Window::Wide, progress)?;
    }
    if reading.is_err() {
        reading = read(open()?, options, Window::All, progress)?;
    }
    let Ok(mut reading) = reading else { unreachable!("a reading that keeps everything is never given up") };
    let mut names = std::mem::take(&mut reading.judge.names);
    let finished = reading
        .judge
        .finish(&mut |each: &mut dyn FnMut(MsgId, &Operation)| read_again(open()?, &mut names, each, progress))?;
    let evidence = if finished.sink.findings.is_empty() {
        evidence::Evidence::default()
    } else {
        evidence::collect(open()?, &finished.sink.findings)?
    };
    let Reading { judge, unreadable, counts } = reading;
    let Finished { sink, pairs, backlog } = finished;
    let outcome =
        verdict::Facts { context: &judge.context, counts: &judge.counts, read: counts, sink: &sink, pairs, backlog };
    Ok(Report::new(&outcome, &names, evidence, unreadable))
}

/// A first reading.
struct Reading {
    judge: Judge,
    /// The first lines that are no records.
    unreadable: Vec<UnreadableLine>,
    counts: mortarmq_history::Counts,
}

/// How many records are sorted before they are handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    /// So few that they stay in the processor's cache, and more than recorders are ever behind one another.
    Narrow,
    /// For calls that were answered, or given up, long after they were made.
    Wide,
    /// Everything is kept, and judged when everything has been read.
    All,
}

impl Window {
    fn records(self) -> usize {
        match self {
            Self::Narrow => 16_384,
            Self::Wide => 262_144,
            Self::All => usize::MAX / 2,
        }
    }
}

/// Why everything must be read once more.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// A record came later than those that were sorted together with it.
    Late,
    /// More happened at once than is kept of what was judged.
    Blurred,
}

/// Reads everything once.
fn read(
    mut reader: Reader,
    options: &Options,
    window: Window,
    progress: &mut dyn FnMut(Progress),
) -> Result<Result<Reading, Again>, ReadError> {
    let keeps_all = window == Window::All;
    let keep_finished = if keeps_all { usize::MAX } else { options.keep_finished };
    let mut judge = Judge::new(Context::new(Options { keep_finished, ..options.clone() }), keeps_all);
    let mut sorter = Sorter::new(window.records());
    let mut unreadable = Vec::new();
    loop {
        if sorter.is_full() {
            progress(progress_of(&reader, false));
            if !sorter.release(&mut judge) {
                return Ok(Err(Again::Late));
            }
        }
        let Some(line) = reader.next_line()? else { break };
        match &line.content {
            Ok(record) => {
                // A path that becomes known late changes what was judged before.
                if matches!(record, Record::Run(_)) && sorter.has_released() {
                    return Ok(Err(Again::Late));
                }
                if let Some(item) = take(record, line.at, &mut judge.names, &mut judge.context) {
                    sorter.push(item);
                }
            }
            Err(reason) if unreadable.len() < MAX_UNREADABLE_SHOWN => {
                let reason = reason.to_string();
                unreadable.push((line.at, reason));
            }
            Err(_) => {}
        }
    }
    if !sorter.release_all(&mut judge) {
        return Ok(Err(Again::Late));
    }
    if judge.sequences.is_blurred || judge.commit_order.is_blurred {
        return Ok(Err(Again::Blurred));
    }
    progress(progress_of(&reader, false));
    let shown = unreadable.into_iter().map(|(at, reason)| UnreadableLine { place: reader.name(at), reason });
    Ok(Ok(Reading { judge, unreadable: shown.collect(), counts: reader.counts() }))
}

/// Reads everything once more, and hands out each record of a message.
fn read_again(
    mut reader: Reader,
    names: &mut Names,
    each: &mut dyn FnMut(MsgId, &Operation),
    progress: &mut dyn FnMut(Progress),
) -> Result<(), ReadError> {
    // What records say of the whole run is known already.
    let mut scratch = Context::default();
    while let Some(line) = reader.next_line()? {
        let Ok(record) = &line.content else { continue };
        let item = take(record, line.at, names, &mut scratch);
        if let Some(Item { msg: Some(msg), content: Content::Operation(operation), .. }) = item {
            each(msg, &operation);
        }
        if reader.counts().records.is_multiple_of(TOLD_EVERY) {
            progress(progress_of(&reader, true));
        }
    }
    Ok(())
}

fn progress_of(reader: &Reader, is_again: bool) -> Progress {
    Progress {
        bytes_read: reader.bytes_read(),
        bytes_total: reader.bytes_total(),
        records: reader.counts().records,
        is_again,
    }
}

/// Brings records into the order of their answers, as far as they are nearly so already.
struct Sorter {
    /// Records are large: each stays where it is until it is handed on, and their places are sorted.
    slots: Vec<Option<Item>>,
    free: Vec<usize>,
    order: Vec<((u64, Location), usize)>,
    released_to: Option<u64>,
    window: usize,
}

impl Sorter {
    fn new(window: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), order: Vec::new(), released_to: None, window }
    }

    fn push(&mut self, item: Item) {
        let order = item.order();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(item);
                slot
            }
            None => {
                self.slots.push(Some(item));
                self.slots.len() - 1
            }
        };
        self.order.push((order, slot));
    }

    fn is_full(&self) -> bool {
        self.order.len() >= 2 * self.window
    }

    fn has_released(&self) -> bool {
        self.released_to.is_some()
    }

    /// Hands on the earlier half; whether nothing earlier had been missing before.
    fn release(&mut self, judge: &mut Judge) -> bool {
        self.hand_on(self.window, judge)
    }

    fn release_all(&mut self, judge: &mut Judge) -> bool {
        self.hand_on(self.order.len(), judge)
    }

    fn hand_on(&mut self, count: usize, judge: &mut Judge) -> bool {
        self.order.sort();
        let first = self.order.first().map(|((moment, _), _)| *moment);
        if first.zip(self.released_to).is_some_and(|(first, released_to)| first < released_to) {
            return false;
        }
        for ((moment, _), slot) in self.order.drain(..count) {
            self.released_to = Some(moment);
            self.free.push(slot);
            self.slots[slot].take().into_iter().for_each(|item| judge.take(item));
        }
        true
    }
}

/// After so many records of a second reading its progress is told.
const TOLD_EVERY: u64 = 65_536;
/// So many unreadable lines are shown; all are counted.
const MAX_UNREADABLE_SHOWN: usize = 20;
