//! Any bytes in the place of a history, packed or plain, are read without panic; a line that is a record is written as one
//! that says the same.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mortarmq_history::{Dialect, Limits, Reader, Source, parse_line, write_line};

fuzz_target!(|input: &[u8]| {
    if let Ok(source) = Source::from_reader(Path::new("fuzz.jsonl"), Cursor::new(input.to_vec())) {
        let mut reader = Reader::new(vec![source], Limits::default());
        // A file that cannot be unpacked ends the reading; no line does.
        while let Ok(Some(line)) = reader.next_line() {
            if let Err(unreadable) = line.content {
                assert!(!unreadable.to_string().is_empty());
            }
        }
    }
    for line in input.split(|byte| *byte == b'\n') {
        let Ok(record) = parse_line(line, &mut Dialect::Ours) else { continue };
        let mut written = Vec::new();
        write_line(&mut written, &record);
        let again = parse_line(written.trim_ascii_end(), &mut Dialect::Ours);
        assert_eq!(again.as_ref(), Ok(&record), "{}", String::from_utf8_lossy(&written));
    }
});
