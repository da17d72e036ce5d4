//! Goal: a reading gives every whole record of every file, and says of the rest where it stands and why.

use std::io::{self, Read, Write};
use std::path::Path;

use super::{Counts, Limits, Reader};
use crate::parse::Unreadable;
use crate::source::Source;

fn reader(files: &[&[u8]]) -> Reader {
    let source = |(index, bytes): (usize, &&[u8])| {
        Source::from_reader(Path::new(&format!("f{index}")), io::Cursor::new(bytes.to_vec())).unwrap()
    };
    Reader::new(files.iter().enumerate().map(source).collect(), Limits { line_bytes: 400 })
}

/// What a reading gives: `FILE:LINE` with the time of the call, or the reason.
fn read(mut reader: Reader) -> (Vec<String>, Counts) {
    let mut all = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        let what = match &line.content {
            Ok(record) => record.interval().map_or(0, |(call, _)| call).to_string(),
            Err(unreadable) => unreadable.to_string(),
        };
        all.push(format!("{}:{} {what}", line.at.file, line.at.line));
    }
    (all, reader.counts())
}

fn fault(call: u64) -> String {
    format!("{{\"op\":\"fault\",\"kind\":\"kill\",\"call\":{call}}}\n")
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::bulk::compress(text.as_bytes(), 1).unwrap()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn several_frames_and_members_are_one_file() {
    let frames = [zstd(&fault(1)), zstd(&(fault(2) + &fault(3)))].concat();
    let members = [gzip(&fault(1)), gzip(&(fault(2) + &fault(3)))].concat();
    for file in [frames, members] {
        assert_eq!(read(reader(&[&file])).0, ["0:1 1", "0:2 2", "0:3 3"]);
    }
}

#[test]
fn of_several_files_the_one_whose_next_line_was_called_first_comes_first() {
    let first = fault(10) + &fault(40) + &fault(20);
    let second = fault(15) + "\n\n" + &fault(30);
    let packed = zstd(&fault(12));
    let (lines, counts) = read(reader(&[first.as_bytes(), second.as_bytes(), &packed]));
    assert_eq!(lines, ["0:1 10", "2:1 12", "1:1 15", "1:4 30", "0:2 40", "0:3 20"]);
    assert_eq!(counts, Counts { records: 6, ..Counts::default() });
}

#[test]
fn a_bad_line_is_counted_and_the_reading_goes_on() {
    let text = fault(1) + "no json\n" + &"x".repeat(500) + "\n" + &fault(2);
    let (lines, counts) = read(reader(&[text.as_bytes()]));
    assert_eq!(lines.len(), 4);
    assert!(lines[1].starts_with("0:2 no JSON"), "{lines:?}");
    assert_eq!(lines[2..], ["0:3 a line of more than 400 bytes", "0:4 2"]);
    assert_eq!(counts, Counts { records: 2, unreadable: 2, ..Counts::default() });
}

#[test]
fn a_file_cut_at_any_byte_gives_its_whole_lines_and_says_torn() {
    let lines: Vec<String> = (100..110).map(fault).collect();
    let text = lines.concat();
    for cut in 0..text.len() {
        let whole = cut / lines[0].len();
        let is_record = cut % lines[0].len() == lines[0].len() - 1;
        let (_, counts) = read(reader(&[&text.as_bytes()[..cut]]));
        let torn = u64::from(cut % lines[0].len() != 0 && !is_record);
        let records = whole as u64 + u64::from(is_record);
        assert_eq!(counts, Counts { records, unreadable: torn, torn, damaged: 0 }, "cut at {cut}");
    }
    let pack: [fn(&str) -> Vec<u8>; 2] = [zstd, gzip];
    for pack in pack {
        let packed: Vec<Vec<u8>> = lines.iter().map(|line| pack(line)).collect();
        let file = packed.concat();
        let mut starts: Vec<usize> =
            packed.iter().scan(0, |sum, part| Some(std::mem::replace(sum, *sum + part.len()))).collect();
        starts.push(file.len());
        for cut in 0..file.len() {
            let whole = starts.iter().rposition(|start| *start <= cut).unwrap() as u64;
            let (_, counts) = read(reader(&[&file[..cut]]));
            // A frame cut in its last checksum has given its line already.
            assert!((whole..=whole + 1).contains(&counts.records), "cut at {cut}: {counts:?}");
            assert!(counts.unreadable <= 1, "cut at {cut}: {counts:?}");
            assert_eq!(counts.unreadable == 1, !starts.contains(&cut), "cut at {cut}: {counts:?}");
        }
    }
}

#[test]
fn a_damaged_packed_file_is_said_once_with_its_place() {
    let mut file = [zstd(&fault(1)), zstd(&fault(2)), zstd(&fault(3))].concat();
    let second = zstd(&fault(1)).len();
    file[second] ^= 0xff;
    let mut reader = reader(&[&file]);
    assert!(reader.next_line().unwrap().unwrap().content.is_ok());
    let line = reader.next_line().unwrap().unwrap();
    assert_eq!(line.at.line, 2);
    assert!(matches!(line.content, Err(Unreadable::Damaged { .. })), "{line:?}");
    assert!(reader.next_line().unwrap().is_none());
    assert_eq!(reader.counts().damaged, 1);
}

#[test]
fn a_disk_that_fails_is_an_error_and_no_damage() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no medium"))
        }
    }
    let start = io::Cursor::new(fault(1).into_bytes());
    let source = Source::from_reader(Path::new("disk"), start.chain(Failing)).unwrap();
    let mut reader = Reader::new(vec![source], Limits::default());
    assert!(reader.next_line().unwrap().is_some());
    let error = reader.next_line().unwrap_err();
    assert_eq!((error.path.as_path(), error.source.to_string()), (Path::new("disk"), "no medium".to_owned()));
}

#[test]
fn narads_words_hold_for_the_file_that_uses_them() {
    let narad =
        "{\"op\":\"meta\",\"call\":1,\"ret\":1}\n{\"op\":\"ack\",\"msg\":\"m\",\"path\":\"p\",\"call\":2,\"ret\":3}\n";
    let ours = "{\"op\":\"ack\",\"msg\":\"m\",\"path\":\"p\",\"call\":2,\"ret\":3}\n";
    let (_, counts) = read(reader(&[narad.as_bytes(), ours.as_bytes()]));
    assert_eq!(counts, Counts { records: 2, unreadable: 1, ..Counts::default() });
}
