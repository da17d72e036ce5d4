use super::{SegmentJob, start};
use crate::event::Event;
use crate::inbox::{Inbox, inbox};
use crate::room;
use bytes::BytesMut;
use mortarmq_node::SegmentWork;
use mortarmq_node::drive::{Room, Segments};
use mortarmq_shard::Shard;
use mortarmq_shard::record::{NewRecord, write_record};
use mortarmq_storage::{
    CheckpointMeta, Disk, Journal, JournalOptions, MemoryDisk, SegmentOptions, SegmentReader, SegmentRecord,
    SegmentWriter, load_checkpoint,
};
use mortarmq_types::{
    CommitIndex, Epoch, KeyHash, Partition, ProducerId, ProducerSeq, Seq, ShardId, TopicIncarnation, WallTime,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CAPACITY_BYTES: u64 = 64 * MIB;
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn data() -> &'static Path {
    Path::new("data")
}

/// A record of a topic, about so many bytes long.
fn work(topic: u64, seq: u64, bytes: u64) -> Vec<SegmentWork> {
    let mut record = BytesMut::new();
    let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
    let body = vec![0; usize::try_from(bytes).expect("small")];
    write_record(&mut record, &NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &body });
    vec![SegmentWork::Append(SegmentRecord {
        topic: TopicIncarnation::new(topic),
        partition: Partition::ZERO,
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(1),
        epoch: Epoch::new(1),
        published_at: WallTime::ZERO,
        key_hash: KeyHash::default(),
        payload_bytes: 0,
        expires_at_ms: 0,
        record: record.freeze(),
    })]
}

struct Bench {
    disk: MemoryDisk,
    room: Arc<Room>,
    reader: SegmentReader,
    jobs: Sender<SegmentJob>,
    thread: JoinHandle<()>,
    events: Inbox,
}

impl Bench {
    fn new(reserve_bytes: u64) -> Self {
        let disk = MemoryDisk::new();
        disk.create_dir_all(data()).expect("a folder");
        disk.set_capacity(Some(CAPACITY_BYTES));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (sender, events) = inbox();
        let room = room::open(Arc::clone(&shared), data(), reserve_bytes, 0, sender.clone()).expect("opened");
        let room = Arc::new(room);
        // A checkpoint can be gone on from only with a journal.
        let options = JournalOptions::new(ShardId::ZERO);
        Journal::recover(Arc::clone(&shared), data(), options, bytes::Bytes::new(), None, &mut |_| Ok(()))
            .expect("a new journal");
        let writer = SegmentWriter::open(shared, data(), SegmentOptions::default()).expect("an empty folder");
        let reader = writer.reader();
        let (jobs, thread) = start(Segments::new(writer), None, sender, Arc::clone(&room)).expect("a thread");
        Self { disk, room, reader, jobs, thread, events }
    }

    /// Takes all room but so much, and what is held in reserve.
    fn leave(&self, bytes: u64) {
        self.disk.set_capacity(None);
        self.disk.set_capacity(Some(CAPACITY_BYTES));
        let held = CAPACITY_BYTES - self.disk.free_bytes(data()).expect("looked");
        self.disk.set_capacity(Some(held + bytes));
    }

    fn send(&self, ticket: u64, work: Vec<SegmentWork>) {
        self.jobs.send(SegmentJob::Work { ticket, work }).expect("the thread runs");
    }

    fn checkpoint(&self, log_index: u64) {
        let meta = CheckpointMeta { log_index, ..CheckpointMeta::default() };
        let image = Box::new(Shard::default().image());
        self.jobs.send(SegmentJob::Checkpoint { meta, image, holds: None }).expect("the thread runs");
    }

    /// The next word of the writer; nothing within the time is none.
    fn next(&mut self, within: Duration) -> Option<Told> {
        loop {
            match self.events.next_within(within)? {
                Event::SegmentsWritten { ticket } => return Some(Told::Written(ticket)),
                Event::CheckpointWritten { log_index, .. } => return Some(Told::Checkpoint(log_index)),
                Event::CheckpointPutOff { log_index } => return Some(Told::PutOff(log_index)),
                Event::Disk { .. } => {}
                _ => panic!("no other word of the segment writer"),
            }
        }
    }

    fn is_readable(&self, topic: u64, seq: u64) -> bool {
        let (topic, seq) = (TopicIncarnation::new(topic), Seq::new(seq));
        let found = self.reader.read_records(topic, Partition::ZERO, seq, seq.next(), usize::MAX);
        found.is_ok_and(|records| records.len() == 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Written(u64),
    Checkpoint(u64),
    PutOff(u64),
}

#[test]
fn rule_8_a_full_disk_pauses_the_writer_until_there_is_room() {
    let mut bench = Bench::new(0);
    bench.leave(0);
    bench.send(7, work(1, 1, 100));
    assert_eq!(bench.next(SHORT), None, "nothing is written");
    bench.send(8, work(1, 2, 100));
    assert_eq!(bench.next(SHORT), None);
    assert!(bench.room.is_full());
    bench.disk.set_capacity(None);
    assert_eq!(bench.next(LONG), Some(Told::Written(8)), "without another word from the loop");
    assert!(bench.is_readable(1, 1) && bench.is_readable(1, 2) && !bench.room.is_full());
}

#[test]
fn rule_8_segments_take_from_the_reserve_but_for_its_last_quarter() {
    let mut bench = Bench::new(16 * MIB);
    bench.leave(0);
    let mut written = 0;
    loop {
        bench.send(written + 1, work(1, written + 1, MIB));
        if bench.next(SHORT) != Some(Told::Written(written + 1)) {
            break;
        }
        written += 1;
    }
    assert!((10..=12).contains(&written), "{written} MiB written");
    assert_eq!((bench.room.reserve_bytes(), bench.room.is_low()), (4 * MIB, true));
    // The rest of it is for the checkpoint, which begins with what waits.
    bench.checkpoint(9);
    assert_eq!(bench.next(LONG), Some(Told::Written(written + 1)));
    assert_eq!(bench.next(LONG), Some(Told::Checkpoint(9)));
    assert!(bench.is_readable(1, written + 1));
}

#[test]
fn rule_8_a_checkpoint_without_room_is_put_off_and_the_one_before_stays_good() {
    let mut bench = Bench::new(0);
    bench.checkpoint(3);
    assert_eq!(bench.next(LONG), Some(Told::Checkpoint(3)));
    bench.leave(0);
    bench.checkpoint(5);
    assert_eq!(bench.next(LONG), Some(Told::PutOff(5)), "and not waited for");
    let loaded = load_checkpoint(&bench.disk.after_process_kill(), data()).expect("good").expect("there");
    assert_eq!(loaded.meta.log_index, 3);
    bench.disk.set_capacity(None);
    bench.checkpoint(6);
    assert_eq!(bench.next(LONG), Some(Told::Checkpoint(6)), "the writer goes on");
}

#[test]
fn rule_8_a_deleted_topic_makes_room_although_its_own_records_wait_for_some() {
    let mut bench = Bench::new(0);
    bench.send(1, work(1, 1, 8 * MIB));
    assert_eq!(bench.next(LONG), Some(Told::Written(1)));
    bench.leave(MIB);
    bench.send(2, work(1, 2, 8 * MIB));
    bench.send(3, work(2, 1, 2 * MIB));
    assert_eq!(bench.next(SHORT), None);
    bench.send(4, vec![SegmentWork::DropTopic(TopicIncarnation::new(1))]);
    bench.checkpoint(9);
    // What waited for the deleted topic is gone, the other still waits, and a checkpoint begins with it. So it is put off
    // until there is as much room as that needs; what the deleted topic held on disk is freed by it.
    let mut told = bench.next(LONG);
    while told == Some(Told::PutOff(9)) {
        bench.leave(3 * MIB);
        bench.checkpoint(9);
        told = bench.next(LONG);
    }
    assert_eq!(told, Some(Told::Written(4)));
    while told != Some(Told::Checkpoint(9)) {
        told = bench.next(LONG);
        if told == Some(Told::PutOff(9)) {
            bench.checkpoint(9);
        }
    }
    assert!(bench.is_readable(2, 1) && !bench.is_readable(1, 1));
    assert!(bench.disk.free_bytes(data()).expect("looked") > 8 * MIB, "the topic's files are gone");
}

#[test]
fn rule_8_a_full_disk_does_not_hold_up_a_stop() {
    let mut bench = Bench::new(0);
    bench.leave(0);
    bench.send(7, work(1, 1, 100));
    drop(bench.jobs);
    bench.thread.join().expect("it ends");
    assert!(
        std::iter::from_fn(|| bench.events.pop()).all(|event| matches!(event, Event::Disk { .. })),
        "and claims nothing"
    );
}
