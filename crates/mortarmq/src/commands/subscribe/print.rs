//! `sub` without a command: print, then ack. Acks are under way while the next messages are printed.

use std::collections::VecDeque;

use mortarmq_client::{Consumer, Delivery, SettleError, SettleReceipt};

use super::{Args, row};
use crate::errors::Failure;
use crate::output::{Rows, note};
use crate::session::{self, Stop};

/// Prints and acks until told to end, or until enough is settled.
pub(super) async fn consume(
    args: &Args,
    consumer: &mut Consumer,
    rows: &mut Rows,
    stop: &mut Stop,
) -> Result<(), Failure> {
    let mut acks: VecDeque<SettleReceipt> = VecDeque::new();
    // With --no-ack, what was shown stays leased until the end, or it would come again at once.
    let mut shown: Vec<Delivery> = Vec::new();
    let mut settled: u64 = 0;
    while !args.is_enough(settled + shown.len() as u64) {
        let is_all_taken = args.is_enough(settled + acks.len() as u64);
        tokio::select! {
            biased;
            () = stop.wanted() => break,
            answer = first(&mut acks), if !acks.is_empty() => settled += u64::from(is_done(answer)?),
            next = consumer.next(), if !is_all_taken && acks.len() < MAX_ACKS => {
                let Some(delivery) = next else { break };
                let delivery = delivery.map_err(|error| session::failure(&error))?;
                rows.push(row(&delivery))?;
                if args.no_ack {
                    shown.push(delivery);
                } else {
                    acks.push_back(delivery.ack());
                }
            }
        }
    }
    while !acks.is_empty() {
        is_done(first(&mut acks).await)?;
    }
    Ok(())
}

/// The answer to the oldest ack. It stays in the queue until it is there, because `select!` may drop this future.
async fn first(acks: &mut VecDeque<SettleReceipt>) -> Answer {
    let answer = acks.front_mut().expect("the caller has looked").await;
    acks.pop_front();
    answer
}

type Answer = Result<(), SettleError>;

/// Whether the message is settled by this ack. One that has moved on is no failure: it will be delivered again.
fn is_done(answer: Answer) -> Result<bool, Failure> {
    match answer {
        Ok(()) => Ok(true),
        Err(SettleError::LeaseLost) => {
            note("an ack came too late: the message was delivered again since");
            Ok(false)
        }
        Err(SettleError::UnknownDelivery) => {
            note("an ack came too late: its delivery has ended");
            Ok(false)
        }
        Err(SettleError::Failed(error)) => Err(session::failure(&error)),
    }
}

/// Acks under way; as many as a group's window by default.
const MAX_ACKS: usize = 256;
