//! This machine, as a node with a configuration would find it. No broker is asked, and none is in the way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortarmq_server::{Config, ConfigError, file_system, free_bytes};
use mortarmq_transport::{Acceptor, Mutual};

use super::{Row, limits};
use crate::bench::measure_disk_in;
use crate::commands::serve;
use crate::errors::{Failure, chain};

/// Looks at configuration, limits, and the disk of the data folder.
pub(super) fn examine(file: Option<&Path>, data_dir: Option<&Path>) -> Result<Vec<Row>, Failure> {
    let flags: Vec<(String, String)> = data_dir
        .map(|folder| {
            let folder = folder.to_str().ok_or_else(|| {
                Failure::arguments(format!("{} is no text", folder.display()), "give a folder whose name is text")
            })?;
            Ok(("data_dir".to_owned(), folder.to_owned()))
        })
        .transpose()?
        .into_iter()
        .collect();
    let (config, who_may) = match serve::try_load(file, flags.clone()) {
        Ok((config, _)) => {
            let row = who_may(&config);
            (config, row)
        }
        Err(error @ ConfigError::NotLoopback { .. }) => {
            let row = Row::finding("access", error.to_string(), "mortarmq init mortarmq-safe.toml");
            // The rest of it is looked at all the same.
            let here = ["listen_client", "listen_admin", "listen_ws"];
            let here = here.map(|key| (key.to_owned(), "127.0.0.1:0".to_owned()));
            let (config, _) = serve::load(file, flags.into_iter().chain(here).collect())?;
            (config, row)
        }
        Err(error) => return Err(serve::refused(&error)),
    };
    let mut rows = vec![who_may];
    rows.extend(tls(&config));
    rows.extend(peer_tls(&config));
    rows.push(open_files(&config));
    rows.extend(disk(&config)?);
    Ok(rows)
}

fn who_may(config: &Config) -> Row {
    const CHECK: &str = "access";
    let mut addresses = [config.listen_client, config.listen_admin].into_iter().chain(config.listen_ws);
    let is_reached = addresses.any(|address| !address.ip().to_canonical().is_loopback());
    match (is_reached, !config.asks_for_credentials(), config.tls.is_some()) {
        (false, true, _) => Row::ok(CHECK, "this machine only; no credentials are asked for"),
        (false, false, _) => Row::ok(CHECK, "this machine only; every listener asks for credentials"),
        (true, _, true) => Row::ok(CHECK, "every listener asks for credentials, over TLS"),
        (true, _, false) => Row::finding(
            CHECK,
            "others can reach it without TLS: credentials and messages can be read on their way",
            "mortarmq init mortarmq-tls.toml      (then take over its tls_cert and tls_key)",
        ),
    }
}

fn tls(config: &Config) -> Option<Row> {
    const CHECK: &str = "tls";
    let files = config.tls.as_ref()?;
    Some(match Acceptor::from_files(&files.certificate, &files.key) {
        Ok(_) => Row::ok(CHECK, "certificate and key can be used"),
        Err(error) => Row::finding(
            CHECK,
            chain(&error),
            "mortarmq init mortarmq-tls.toml      (writes a CA, a certificate and its key)",
        ),
    })
}

fn peer_tls(config: &Config) -> Option<Row> {
    const CHECK: &str = "peer_tls";
    let cluster = config.cluster.as_ref()?;
    let Some((files, host)) = cluster.tls_of(config.node_id) else {
        let is_reached = !cluster.listen_peer.ip().to_canonical().is_loopback();
        return is_reached.then(|| {
            let detail = "what the nodes say to each other can be read on its way, and is only sealed";
            Row::finding(
                CHECK,
                detail,
                "set peer_tls_cert, peer_tls_key and peer_tls_ca on every node, or keep to a network of your own",
            )
        });
    };
    let remedy = format!(
        "openssl x509 -in {} -noout -enddate -ext subjectAltName,extendedKeyUsage",
        crate::output::shell_word(&files.certificate)
    );
    Some(match (Mutual::check(files, host, Duration::ZERO), Mutual::check(files, host, SOON)) {
        (Err(error), _) => Row::finding(CHECK, chain(&error), remedy),
        (Ok(()), Err(error)) => {
            Row::finding(CHECK, format!("in {} days: {}", SOON.as_secs() / DAY_S, chain(&error)), remedy)
        }
        (Ok(()), Ok(())) => Row::ok(CHECK, format!("the other nodes accept the certificate for {host}")),
    })
}

fn open_files(config: &Config) -> Row {
    // A node raises the limit as far as it may.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    limits::open_files(most, config.max_connections, 1 + u32::from(config.listen_ws.is_some()))
}

fn disk(config: &Config) -> Result<Vec<Row>, Failure> {
    let (folder, is_there) = nearest(&config.data_dir)?;
    let mut rows = Vec::new();
    if !is_there {
        let detail = format!("{} is not there yet; looked at {}", config.data_dir.display(), folder.display());
        rows.push(Row::ok("data_dir", detail));
    }
    rows.push(match file_system(&folder) {
        Ok(found) => limits::file_system(&found),
        Err(error) => Row::unknown("file_system", error.to_string(), limits::df(Some(&folder))),
    });
    // What is held in reserve already is not wanted a second time.
    let reserve = std::fs::metadata(config.data_dir.join("reserve")).map_or(0, |file| file.len());
    let needed = config.disk_reserve_bytes.saturating_sub(reserve)
        + config.snapshot_journal_bytes
        + 2 * config.journal_file_bytes;
    rows.push(match free_bytes(&folder) {
        Some(free) => limits::free_space(free, needed, Some(&folder)),
        None => Row::unknown("free_space", "the system does not tell", limits::df(Some(&folder))),
    });
    rows.push(fsync(&folder));
    Ok(rows)
}

/// Writes in a file without a name: nothing of it stays, whatever happens.
fn fsync(folder: &Path) -> Row {
    let measured = tempfile::tempfile_in(folder).and_then(|file| measure_disk_in(file, BLOCKS, LIMIT));
    match measured {
        Ok(floor) => limits::fsync(floor.latency.quantile_us(0.5), floor.latency.quantile_us(0.99), floor.syncs),
        Err(error) => Row::finding(
            "fsync",
            format!("{} cannot be written: {error}", folder.display()),
            format!("ls -ld {}      (run this as the user that the node runs as)", crate::output::shell_word(folder)),
        ),
    }
}

/// The folder, or the nearest above it that is there.
fn nearest(folder: &Path) -> Result<(PathBuf, bool), Failure> {
    let full = std::path::absolute(folder)
        .map_err(|error| Failure::arguments(format!("{} is no path: {error}", folder.display()), "name a folder"))?;
    let found = full.ancestors().find(|folder| folder.is_dir()).unwrap_or(&full);
    Ok((found.to_path_buf(), found == full))
}

/// 1 MiB: little to write on a disk that is nearly full.
const BLOCKS: u64 = 256;
const LIMIT: Duration = Duration::from_millis(500);
const DAY_S: u64 = 24 * 3600;
/// A certificate that ends sooner is told of: enough time to make another one.
const SOON: Duration = Duration::from_secs(14 * DAY_S);
