//! The counters of every path, read all the time from every node that answers.

use std::time::Duration;

use mortarmq_history::{Record, Scrape};

use super::site::{Phase, Site};
use crate::operator::{Books, Operator};

/// Reads until the end, also while nodes are down.
pub(crate) fn run(site: &Site, operator: &Operator) {
    while site.phase() < Phase::End {
        for node in 0..site.nodes.len() {
            scrape(site, operator, node);
        }
        std::thread::sleep(SCRAPE_EVERY);
    }
}

fn scrape(site: &Site, operator: &Operator, node: usize) {
    let call = Site::now_ns();
    if let Some(books) = operator.books(&site.nodes[node].admin) {
        record(site, &books, node, call, Site::now_ns());
    }
}

/// Writes what a node told into the history.
pub(crate) fn record(site: &Site, books: &Books, node: usize, call: u64, ret: u64) {
    for path in &books.paths {
        site.recorder.record(&Record::Scrape(Scrape {
            path: path.path().into(),
            node: Some(node.to_string().into()),
            call,
            ret: Some(ret),
            commit: Some(books.commit_index),
            epoch: Some(books.epoch),
            counters: path.counters(),
            stale: books.stale,
        }));
    }
}

const SCRAPE_EVERY: Duration = Duration::from_millis(100);
