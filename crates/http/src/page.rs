//! A stretch of a partition: how it is asked for, and how it is told as one JSON list.

use mortarmq_types::{Partition, Seq};

use crate::parameters::Parameters;
use crate::refusal::Refusal;

const ITEMS_DEFAULT: u64 = 100;
const ITEMS_MAX: u64 = 1000;
/// An answer that holds so much takes no further item: a question must not cost the memory of a thousand large messages.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// `?partition=&from=&max=`: from which message of which partition on, and how many at most.
pub(crate) struct Page {
    pub(crate) partition: Partition,
    pub(crate) from: Seq,
    pub(crate) max: u32,
}

impl Page {
    /// Reads the parameters; what is not given is the beginning of partition 0.
    ///
    /// # Errors
    /// The first parameter that is no number of its range.
    pub(crate) fn of(parameters: &Parameters) -> Result<Self, Refusal> {
        let partition = parameters.number("partition", 0..=u64::from(u16::MAX))?.unwrap_or(0);
        let from = parameters.number("from", 1..=u64::MAX)?.unwrap_or(1);
        let max = parameters.number("max", 1..=ITEMS_MAX)?.unwrap_or(ITEMS_DEFAULT);
        Ok(Self {
            partition: Partition::new(u16::try_from(partition).expect("the range ends at 16 bits")),
            from: Seq::new(from),
            max: u32::try_from(max).expect("at most ITEMS_MAX"),
        })
    }
}

/// An object with one list. It may hold fewer than there are: a reader goes on behind the last.
pub(crate) fn list<T>(name: &str, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) -> Vec<u8> {
    let mut line = format!("{{\"{name}\":[").into_bytes();
    for (number, item) in items.iter().enumerate() {
        if line.len() > ANSWER_BYTES_MAX {
            break;
        }
        if number > 0 {
            line.push(b',');
        }
        write(&mut line, item);
    }
    line.extend_from_slice(b"]}");
    line
}
