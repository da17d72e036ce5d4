//! `sub --exec CMD`: one process per message, several at once, never two for one key.

mod process;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_client::{Consumer, Delivery, SettleError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::process::{Ending, run};
use super::{Args, row};
use crate::errors::Failure;
use crate::output::{Cell, Rows, note};
use crate::session::{self, Stop};

/// Runs commands until told to end, or until enough is settled. Commands that run then are waited for and settle as ever;
/// whoever does not want to wait says so by telling it a second time.
pub(super) async fn consume(
    args: &Args,
    command: &str,
    consumer: &mut Consumer,
    rows: &mut Rows,
    stop: &mut Stop,
) -> Result<(), Failure> {
    let mut pool = Pool {
        command: Arc::from(command),
        topic: Arc::from(args.topic.as_str()),
        running: JoinSet::new(),
        keys: BTreeSet::new(),
        waiting: Vec::new(),
        is_stopped: watch::Sender::new(false),
    };
    let mut acked: u64 = 0;
    // Set by a wish to end or a failure: nothing new is started then.
    let mut end: Option<Result<(), Failure>> = None;
    loop {
        let wants_more = end.is_none() && !args.is_enough(acked + pool.busy());
        if !wants_more && pool.running.is_empty() {
            return end.unwrap_or(Ok(()));
        }
        let result = tokio::select! {
            biased;
            () = stop.wanted() => {
                pool.leave(end.is_some());
                Step::End
            }
            ended = pool.running.join_next(), if !pool.running.is_empty() => {
                let done = ended.expect("something runs").expect("a worker does not panic");
                match pool.ended(done, rows) {
                    Ok(is_acked) => {
                        acked += u64::from(is_acked);
                        Step::GoOn
                    }
                    Err(failure) => Step::Fail(failure),
                }
            }
            next = consumer.next(), if wants_more && pool.busy() < u64::from(args.workers) => match next {
                Some(Ok(delivery)) => {
                    pool.start(delivery);
                    Step::GoOn
                }
                Some(Err(error)) => Step::Fail(session::failure(&error)),
                None => Step::End,
            }
        };
        let ending = match result {
            Step::GoOn => continue,
            Step::End => Ok(()),
            Step::Fail(failure) => Err(failure),
        };
        pool.waiting.clear();
        // The first reason is the one that is told.
        end.get_or_insert(ending);
    }
}

/// What one turn of the loop came to.
enum Step {
    GoOn,
    End,
    Fail(Failure),
}

/// The commands that run.
struct Pool {
    command: Arc<str>,
    topic: Arc<str>,
    running: JoinSet<Done>,
    /// Keys with a running command. The client hands over a key's next message only when the one before is settled; but
    /// when a lease is lost its message may come again while the command still ends.
    keys: BTreeSet<(u16, Bytes)>,
    /// Messages whose key has a running command.
    waiting: Vec<Delivery>,
    /// Becomes true when the commands are to end at once.
    is_stopped: watch::Sender<bool>,
}

/// A command that has ended, and how its message was settled.
struct Done {
    row: Vec<Cell>,
    key: (u16, Bytes),
    is_settled: bool,
    answer: Result<(), SettleError>,
}

impl Pool {
    /// Commands that run, and messages that wait for one of them.
    fn busy(&self) -> u64 {
        (self.running.len() + self.waiting.len()) as u64
    }

    /// Somebody wants to go: the first time what runs may end by itself, the second time it is told to.
    fn leave(&self, is_repeated: bool) {
        if is_repeated {
            self.is_stopped.send_replace(true);
        } else if !self.running.is_empty() {
            note(format_args!(
                "commands that still run: {}; waiting for them, once more stops them",
                self.running.len()
            ));
        }
    }

    fn start(&mut self, delivery: Delivery) {
        let key = (delivery.partition.get(), delivery.key.clone());
        if !delivery.key.is_empty() && !self.keys.insert(key.clone()) {
            self.waiting.push(delivery);
            return;
        }
        let (command, topic) = (self.command.clone(), self.topic.clone());
        let is_stopped = self.is_stopped.subscribe();
        self.running.spawn(async move {
            let row = row(&delivery);
            let ending = run(&command, &topic, &delivery, is_stopped).await;
            // What dies in a dead-letter topic stays there.
            let is_rejected = matches!(ending, Ending::Rejected(_)) && !topic.starts_with(DEAD_LETTERS);
            let is_settled = is_rejected || matches!(ending, Ending::Succeeded);
            let answer = match ending {
                Ending::Succeeded => delivery.ack().await,
                Ending::Rejected(text) => delivery.dead_letter(&text).await,
                Ending::Failed(text) => delivery.nack(0, &text).await,
                // Given back, so that it counts no attempt.
                Ending::Stopped => delivery.release().await,
            };
            Done { row, key, is_settled, answer }
        });
    }

    /// Whether the message is settled: acked, or dead.
    fn ended(&mut self, done: Done, rows: &mut Rows) -> Result<bool, Failure> {
        self.keys.remove(&done.key);
        if let Some(place) = self
            .waiting
            .iter()
            .position(|delivery| (delivery.partition.get(), &delivery.key) == (done.key.0, &done.key.1))
        {
            let delivery = self.waiting.remove(place);
            self.start(delivery);
        }
        if !session::is_settled(done.answer)? {
            note("a command ended after its lease: the message has moved on");
        } else if done.is_settled {
            rows.push(done.row)?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// How the names of dead-letter topics begin.
const DEAD_LETTERS: &str = "$dlq.";
