//! Histories: what the clients of a broker did and saw, as lines of JSON.
//!
//! This crate is the format alone: record types, a reader and a writer. It knows nothing of any broker, this one
//! included, and judges nothing; that is the work of `check`, which reads what this crate reads. The format is described
//! in `docs/reference/history.md`.
//!
//! - [`Record`] is one line; it borrows its texts from the line. [`record`] has its parts, [`words`] its words.
//! - [`Reader`] reads one or more files, plain, zstd or gzip, in constant memory:
//!
//! ```no_run
//! # fn main() -> Result<(), mortarmq_history::ReadError> {
//! use mortarmq_history::{Limits, Reader, Record};
//!
//! let mut reader = Reader::open(&["history.jsonl.zst".into(), "faults.jsonl".into()], Limits::default())?;
//! while let Some(line) = reader.next_line()? {
//!     match line.content {
//!         Ok(Record::Publish(publish)) => println!("{} published at {}", publish.msg, publish.call),
//!         Ok(_) => {}
//!         Err(unreadable) => println!("{}:{}: {unreadable}", line.at.file, line.at.line),
//!     }
//! }
//! println!("{} records, {} unreadable lines", reader.counts().records, reader.counts().unreadable);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Recorder`] writes a history while it happens; it makes a caller wait rather than drop a record.
//!
//! A line that is no record is an item like any other, so one bad line never ends a reading; only a file that cannot be
//! opened or read does. The lines of one file come in its order; of several files, always the one whose next line was
//! called first. That keeps their times together when each is roughly in order, and promises nothing when not.

mod parse;
mod reader;
mod recorder;
mod source;

pub mod record;
pub mod words;

pub use parse::{Dialect, Unreadable, VERSION, parse_line};
pub use reader::{Counts, Limits, LineAt, ReadError, ReadLine, Reader};
pub use record::{
    Balance, Counters, Deliver, End, Extend, Fault, Nack, Operate, PathInfo, Publish, Pull, Record, Run, Scrape, Settle,
};
pub use recorder::{Options, RecordError, Recorder, write_line};
pub use source::{Packing, Source};
pub use words::{Cause, FAULT_KINDS, NackTo, OperateKind, Order, Outcome};
