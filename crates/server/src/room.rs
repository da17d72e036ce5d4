//! The disk watch, and what of the room on the disk is logged. Who gets how much of it, `mortarmq_node::drive` decides.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use mortarmq_node::drive::{Room, RoomNews, Waiting};
use mortarmq_storage::Disk;

use crate::event::Event;
use crate::inbox::EventSender;

/// Opens the reserve of a data directory; what the loop must hear goes to `events`.
///
/// # Errors
/// The disk's; lack of room is none.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    data_dir: &Path,
    reserve_bytes: u64,
    journal_file_bytes: u64,
    events: EventSender,
) -> io::Result<Room> {
    let shown = data_dir.to_path_buf();
    Room::open(disk, data_dir, reserve_bytes, journal_file_bytes, move |news| tell(&shown, &events, news))
}

fn tell(data_dir: &Path, events: &EventSender, news: RoomNews<'_>) {
    let data_dir = data_dir.display();
    match news {
        RoomNews::State(state) => events.send(Event::Disk { state }),
        RoomNews::Short { state, held_bytes } => tracing::warn!(
            free_bytes = state.free_bytes,
            held_bytes,
            "the disk is nearly full: publishes are refused, acks and deliveries go on; free space where {data_dir} \
             lies, or delete topics"
        ),
        RoomNews::Enough { state, held_bytes } => {
            tracing::info!(free_bytes = state.free_bytes, held_bytes, "the disk has room again: publishes go on")
        }
        RoomNews::Given { bytes, left_bytes, wanted_for } => {
            tracing::debug!(bytes, left_bytes, ?wanted_for, "given from the reserve");
        }
        RoomNews::Grew { held_bytes } => tracing::debug!(held_bytes, "the reserve grew"),
        RoomNews::CannotCut(error) => tracing::error!(%error, "the disk reserve cannot be cut"),
        RoomNews::CannotGrow(error) => tracing::debug!(%error, "the disk reserve cannot grow"),
    }
}

/// A thread waits for room until what this returns is dropped. The operator is told what waits with it.
pub(crate) fn wait(room: &Arc<Room>, refused: &str, meanwhile: &str) -> Waiting {
    let data_dir = room.data_dir().display();
    tracing::warn!(
        "{refused}, and what was held in reserve for it is used up; {meanwhile}; free space where {data_dir} lies"
    );
    room.wait()
}

/// Looks at the disk once a second, until the other end of `ended` is gone.
pub(crate) fn watch(room: &Room, ended: &Receiver<()>) {
    while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        room.check();
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long who waits for room waits before the next try.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
