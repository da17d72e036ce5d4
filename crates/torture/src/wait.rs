//! Waiting for conditions, and being told to stop meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Outcome};

/// Set once somebody asked for the end.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// From now on Ctrl-C, SIGTERM and SIGHUP end every wait of this process, so that what was started is put away. A second one
/// ends the process at once.
///
/// # Errors
/// When signals cannot be handled.
pub fn listen_for_stop() -> Outcome {
    let failed = crate::failure::machine("cannot handle signals");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(crate::failure::machine("no runtime for signals"))?;
    let listen = move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if STOPPED.swap(true, Ordering::AcqRel) {
                    std::process::exit(EXIT_AT_ONCE);
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// Whether somebody asked for the end.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// Waits until a condition holds; a failure of the condition ends the wait.
///
/// # Errors
/// Broken, naming what did not come, once the limit has passed.
pub(crate) fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let begun = Instant::now();
    loop {
        if is_stopped() {
            return Err(Failure::Stopped);
        }
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            return Err(Failure::Broken(format!("{what}: not within {} s", limit.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Lets time pass, where time itself is the fault.
///
/// # Errors
/// When somebody asked for the end.
pub(crate) fn pass(time: Duration) -> Outcome {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if is_stopped() {
            return Err(Failure::Stopped);
        }
        std::thread::sleep(LOOK_EVERY.min(time.saturating_sub(begun.elapsed())));
    }
    Ok(())
}

/// As a shell tells of SIGINT.
const EXIT_AT_ONCE: i32 = 130;
