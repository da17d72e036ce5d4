//! `bench-floor`: the server that `bench` measures a broker against; hidden, because it promises nothing.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::errors::Failure;
use crate::floor::{Floor, Kind};
use crate::output::note;

/// Run what `bench` measures a broker against: a server without promises, for as long as stdin is open
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What it does before it answers
    #[arg(long, value_enum)]
    kind: Kind,
    /// Where its file is made
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// A follower that has each batch on disk, or another one, before it answers
    #[arg(long, value_name = "HOST:PORT")]
    follower: Vec<SocketAddr>,
}

/// Runs it until stdin is closed: when `bench` ends, however it ends, so does its floor.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(mortarmq_server::socket_threads())
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let floor = runtime.block_on(Floor::start(args.kind, &args.folder, &args.follower));
    let floor = floor.map_err(|error| failed(&error))?;
    note(format_args!("a floor for measuring ({:?}): it keeps no promise", args.kind));
    let banner = format!("client  {}\nready\n", floor.address);
    std::io::Write::write_all(&mut std::io::stdout(), banner.as_bytes()).map_err(Failure::from_stdout)?;
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    loop {
        match ended.recv_timeout(LOOK_PERIOD) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(error) = floor.failed.try_recv() {
            return Err(failed(&error));
        }
    }
    runtime.shutdown_background();
    Ok(())
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::local(format!("the floor cannot run: {error}"), "set TMPDIR to a folder with free space")
}

/// How soon it is seen that the disk failed.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
