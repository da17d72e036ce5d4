//! Requests by op and code: one counter for each pair, without a lock, because every request passes here.

use std::sync::atomic::{AtomicU64, Ordering};

use mortarmq_node::ErrorCode;
use mortarmq_wire::Op;

use super::series::Series;

/// One counter for each op and each code, and for each op answered OK.
#[derive(Debug)]
pub(super) struct Requests {
    /// Row by row: the op, in it OK and then every code, in the order of the registries.
    counts: Vec<AtomicU64>,
}

/// OK and every code.
const COLUMNS: usize = 1 + ErrorCode::ALL.len();

impl Requests {
    /// Everything at zero.
    pub(super) fn new() -> Self {
        Self { counts: (0..Op::ALL.len() * COLUMNS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts one request.
    pub(super) fn count(&self, op: Op, code: Option<ErrorCode>) {
        let row = Op::ALL.iter().position(|other| *other == op).expect("ALL holds every op");
        let column = code.map_or(0, column);
        self.counts[row * COLUMNS + column].fetch_add(1, Ordering::Relaxed);
    }

    /// The pairs that occurred, and how often the answer was to come back later.
    pub(super) fn series(&self) -> Vec<Series> {
        let help = "Requests answered, by op and code; OK where there was no error";
        let mut requests = Series::counter("mortarmq_requests", help);
        let (mut pushed_back, mut without_room) = (0, 0);
        for (op, row) in Op::ALL.iter().zip(self.counts.chunks(COLUMNS)) {
            let names = std::iter::once("OK").chain(ErrorCode::ALL.iter().map(|code| code.name()));
            for (name, count) in names.zip(row) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    requests.add(&[("op", op.name()), ("code", name)], count);
                }
            }
            pushed_back += row[column(ErrorCode::Backpressure)].load(Ordering::Relaxed);
            without_room += row[column(ErrorCode::StorageHighWatermark)].load(Ordering::Relaxed);
        }
        let total = |name, help, count| Series::counter(name, help).with(&[], count);
        vec![
            requests,
            total("mortarmq_backpressure", "Requests answered BACKPRESSURE", pushed_back),
            total("mortarmq_publishes_refused_for_space", "Publishes refused because the disk is full", without_room),
        ]
    }
}

fn column(code: ErrorCode) -> usize {
    1 + ErrorCode::ALL.iter().position(|other| *other == code).expect("ALL holds every code")
}
