//! A data folder made by a node: small, and with everything in it that a node keeps.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use mortarmq_node::Request;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{PublishRunBuilder, SettleKind};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Partition, ProducerId, ProducerSeq, TopicIncarnation};
use mortarmq_wire::{RecordBody, write_body};

use crate::support::{CONNECTION, Rig, RigOptions, settle, subscribe};

/// One value is so many zeros.
pub(crate) const ZEROS: usize = 700;

/// Nothing is served from memory; files are as small as they can be.
pub(crate) fn options() -> RigOptions {
    RigOptions {
        journal_file_bytes: 12 << 10,
        zero_steps: 1,
        spare_files: 4,
        segment_bytes: 700,
        recent_bytes: 0,
        ..RigOptions::default()
    }
}

/// A message as it is published.
pub(crate) struct Message<'a> {
    pub(crate) topic: TopicIncarnation,
    pub(crate) partition: Partition,
    /// Of the one producer; 0 for a message without one.
    pub(crate) number: u64,
    pub(crate) key: &'a [u8],
    pub(crate) headers: &'a [(&'a [u8], &'a [u8])],
    pub(crate) value: &'a [u8],
}

pub(crate) fn publish(rig: &mut Rig, message: &Message<'_>) {
    let mut body = BytesMut::new();
    let headers = (!message.headers.is_empty()).then_some(message.headers);
    write_body(&mut body, message.key, headers, message.value).expect("a small body");
    let (body_read, _) = RecordBody::parse(&body, headers.is_some()).expect("just written");
    let payload_bytes = body_read.payload_len();
    let record = NewRecord {
        producer_id: ProducerId::new(if message.number == 0 { 0 } else { 9 }),
        producer_seq: ProducerSeq::new(message.number),
        key: message.key,
        has_headers: headers.is_some(),
        body: &body,
    };
    let mut run = PublishRunBuilder::default();
    let bytes = |bytes: usize| u32::try_from(bytes).expect("small");
    run.add(message.topic, message.partition, bytes(payload_bytes), bytes(message.value.len()), &record);
    let replies = rig.ask(CONNECTION, vec![Request::Publish(run.take().expect("one record"))]).expect("no crash");
    assert!(replies[0].result.is_ok(), "{replies:?}");
}

/// Topics with keys, headers and a value of zeros in the last batch; acks, nacks and releases in the ledgers; a
/// checkpoint and messages behind it; a journal that was rolled over, released and recycled, of which a file ends in zeros
/// and the last one in what an earlier use left.
pub(crate) fn build() -> (MemoryDisk, RigOptions) {
    // How many batches it takes for that, nobody need know.
    (0..18)
        .find_map(|attempt| build_with(attempt / 6, attempt % 6))
        .expect("files end in zeros and in an older generation")
}

fn build_with(before_large: u64, before_zeros: u64) -> Option<(MemoryDisk, RigOptions)> {
    let mut rig = Rig::start(&MemoryDisk::new(), options()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let orders = rig.declare("orders", 2).expect("no crash");
    let audit = rig.declare("audit", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(orders, "billing", 1, 70, 3)]).expect("no crash");
    let mut number = 0_u64;
    let mut round = |rig: &mut Rig, rounds: u64| {
        for _ in 0..rounds {
            number += 1;
            let key: &[u8] = [&b""[..], b"anna", b"bert"][(number % 3) as usize];
            let headers: &[(&[u8], &[u8])] = if number.is_multiple_of(4) { &[(b"kind", b"order")] } else { &[] };
            let value = format!("value {number} {}", "x".repeat((number * 7 % 50) as usize));
            let (topic, partition, number) = if number.is_multiple_of(5) {
                (audit, Partition::ZERO, 0)
            } else {
                (orders, Partition::ANY, number - number / 5)
            };
            publish(rig, &Message { topic, partition, number, key, headers, value: value.as_bytes() });
            for delivery in rig.take_deliveries() {
                let kind = match delivery.seq.get() % 4 {
                    0 => SettleKind::Nack { delay_ms: 1, error: "no such customer".to_owned() },
                    1 if delivery.attempt.get() == 1 => SettleKind::Release,
                    _ => SettleKind::Ack,
                };
                rig.ask(CONNECTION, vec![settle(1, &delivery, kind)]).expect("no crash");
            }
        }
    };
    round(&mut rig, 12);
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
    round(&mut rig, 6);
    let publish_value = |rig: &mut Rig, value: &[u8]| {
        let (topic, partition) = (audit, Partition::ZERO);
        publish(rig, &Message { topic, partition, number: 0, key: b"", headers: &[], value });
    };
    (0..before_large).for_each(|_| publish_value(&mut rig, b"filler"));
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
    assert_eq!(rig.checkpoints, 2);
    // Too large for what is left of a file.
    publish_value(&mut rig, "x".repeat(4000).as_bytes());
    round(&mut rig, 1);
    (0..before_zeros).for_each(|_| publish_value(&mut rig, b"filler"));
    publish_value(&mut rig, &[0; ZEROS]);
    let journal: Vec<_> = files(&rig.disk).into_iter().filter(|(path, _)| is_journal(path)).collect();
    let ends_in_zeros = |(_, file): &(PathBuf, Vec<u8>)| file.ends_with(&[0; 4096]);
    let is_wanted = journal.iter().any(ends_in_zeros) && ends_in_an_older_generation(&journal.last()?.1);
    let options = RigOptions { now: rig.now, ..options() };
    is_wanted.then(|| (rig.disk.after_process_kill(), options))
}

pub(crate) fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "journal")
}

/// Whether the last block of a journal file is of another use than the file itself, and the one before is not.
fn ends_in_an_older_generation(file: &[u8]) -> bool {
    let generation = |block: &[u8]| block[..8].to_vec();
    let blocks: Vec<_> = file.chunks(4096).map(generation).collect();
    blocks.len() == 3 && blocks[1] == blocks[0] && blocks[2] != blocks[0] && blocks[2] != [0; 8]
}

/// Every file of the data folder with its bytes.
pub(crate) fn files(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut unvisited = vec![PathBuf::from("data")];
    while let Some(path) = unvisited.pop() {
        if let Ok(names) = disk.list(&path) {
            unvisited.extend(names.iter().map(|name| path.join(name)));
        } else {
            let bytes = read(disk, &path);
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

pub(crate) fn read(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).expect("there");
    let mut bytes = vec![0; usize::try_from(file.len().expect("length")).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}
