//! Places that cannot be read and writes that end short: what is sound is served, what is not is named.

use mortarmq_types::Seq;

use super::{
    AppendError, Disk, FlushError, LedgerRecord, MemoryDisk, PARTITION, Path, ReadError, TOPIC, forty, open, read,
    record, segment_path, seqs, stored,
};

#[test]
fn p11_a_record_that_cannot_be_read_is_named_and_holds_back_no_other() {
    let disk = MemoryDisk::new();
    let (writer, records) = forty(&disk);
    let reader = writer.reader();
    let path = segment_path(1, "segment");
    // Record 10 stands behind nine positions and their contents; one byte of it cannot be read.
    let begin: u64 = 32 + records[..9].iter().map(|record| 44 + record.record.len() as u64).sum::<u64>();
    disk.fail_reads(&path, begin + 50..begin + 51).expect("there");
    let all = |from, to| seqs(&read(&reader, from, to, usize::MAX).expect("read"));
    assert_eq!(all(1, 10), (1..10).collect::<Vec<_>>());
    assert_eq!(all(1, 41), (1..10).collect::<Vec<_>>(), "those before it come");
    assert_eq!(all(11, 41), (11..41).collect::<Vec<_>>());
    match read(&reader, 10, 41, usize::MAX).expect_err("unreadable") {
        ReadError::Io { path: found, offset, .. } => assert_eq!((found, offset), (path.clone(), begin)),
        other => panic!("not unreadable but: {other}"),
    }
    disk.fail_reads(&path, 0..0).expect("there");
    assert_eq!(all(1, 41).len(), 40);
}

#[test]
fn p11_an_index_line_that_cannot_be_read_is_named_and_holds_back_no_record() {
    let disk = MemoryDisk::new();
    let (writer, _) = forty(&disk);
    let reader = writer.reader();
    let path = segment_path(1, "index");
    let line = 32 + 4 * 24;
    disk.fail_reads(&path, line + 3..line + 4).expect("there");
    for seq in 1..=40 {
        // Where it begins, the records before it tell.
        assert_eq!(read(&reader, seq, seq + 1, usize::MAX).expect("read"), [stored(&record(seq, seq as usize * 10))]);
    }
    for seq in (1..=40).filter(|seq| *seq != 5) {
        assert_eq!(reader.read_index(TOPIC, PARTITION, Seq::new(seq), 1).expect("read")[0].seq, Seq::new(seq));
    }
    match reader.read_index(TOPIC, PARTITION, Seq::new(5), 9).expect_err("unreadable") {
        ReadError::Io { path: found, offset, .. } => assert_eq!((found, offset), (path, line)),
        other => panic!("not unreadable but: {other}"),
    }
}

#[test]
fn p11_a_ledger_that_cannot_be_read_is_named_with_the_offset() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    for seq in 1..=5 {
        let payload = vec![seq as u8; 100].into();
        let first_seq = Seq::new(seq);
        let event = LedgerRecord { topic: TOPIC, partition: PARTITION, first_seq, count: 1, payload };
        writer.append_ledger(&[event]).expect("appended");
    }
    writer.flush().expect("flushed");
    let path = segment_path(1, "x").with_file_name("0001.ledger");
    // The payload of the third entry.
    let payload = 32 + 2 * 124 + 24;
    disk.fail_reads(&path, payload + 9..payload + 10).expect("there");
    let life = |seq| writer.reader().read_ledger(TOPIC, PARTITION, Seq::new(seq));
    for seq in [1, 2, 4, 5] {
        assert_eq!(life(seq).expect("read"), [vec![seq as u8; 100]]);
    }
    match life(3).expect_err("unreadable") {
        ReadError::Io { path: found, offset, .. } => assert_eq!((found, offset), (path, payload)),
        other => panic!("not unreadable but: {other}"),
    }
}

#[test]
fn rule_2_a_write_that_ends_short_shows_no_record_and_the_writer_takes_nothing_more() {
    for bytes in [1, 32, 50, 200, 5000] {
        let disk = MemoryDisk::new();
        let mut writer = open(&disk);
        writer.append(&[record(1, 100)]).expect("appended");
        writer.flush().expect("flushed");
        writer.append(&[record(2, 100), record(3, 100)]).expect("appended");
        let begun = disk.operations();
        let (mut failed, mut operation) = (0, begun + 1);
        // The segment, then its index.
        while failed < 2 {
            let disk = MemoryDisk::new();
            let mut writer = open(&disk);
            writer.append(&[record(1, 100)]).expect("appended");
            writer.flush().expect("flushed");
            writer.append(&[record(2, 100), record(3, 100)]).expect("appended");
            disk.short_write_at(operation, bytes);
            assert!(matches!(writer.flush(), Err(FlushError::Io { .. })), "{bytes} bytes at {operation}");
            assert_eq!(seqs(&read(&writer.reader(), 1, 9, usize::MAX).expect("read")), [1], "{bytes} at {operation}");
            assert!(matches!(writer.append(&[record(4, 1)]), Err(AppendError::Poisoned)));
            let left = disk.list(Path::new("data/topics/00000000000000a1/3")).expect("listed");
            assert_eq!(left.len(), 2);
            (failed, operation) = (failed + 1, operation + 1);
        }
    }
}
