//! The configurations of a cluster: one folder for each node, to be carried to its machine as it is.
//!
//! Files are named without their folder: a node finds them in the folder in which it is started, wherever that is by then.

use std::io::Write;
use std::net::Ipv6Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::certificates::{self, CA_FILE, CERTIFICATE_FILE, KEY_FILE};
use super::{Args, Credentials, PUBLIC, Paths, SECRET, USER, configuration, write_all};
use crate::errors::Failure;
use crate::output::shell_word;
use crate::tokens::random_text;

/// Writes them.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let hosts = hosts(&args.nodes)?;
    let lists: Vec<Vec<String>> = hosts
        .iter()
        .map(|host| certificates::names_of([host].into_iter().chain(&args.names)))
        .collect::<Result<_, _>>()?;
    let (drawn, secret, made) = (Credentials::draw()?, random_text::<24>()?, certificates::make(&lists)?);
    let paths = Paths { ca: CA_FILE.into(), certificate: CERTIFICATE_FILE.into(), key: KEY_FILE.into() };
    let name = args.file.file_name().map_or_else(|| "mortarmq.toml".into(), PathBuf::from);
    let mut files = Vec::new();
    for (node, issued) in made.issued.into_iter().enumerate() {
        let folder = folder(&args.file, node);
        let more = section(node, &hosts, &secret);
        files.push((folder.join(&name), configuration(&drawn, &paths, any(&hosts[node]), &more)?, SECRET));
        files.push((folder.join(CA_FILE), made.ca.clone(), PUBLIC));
        files.push((folder.join(CERTIFICATE_FILE), issued.certificate, PUBLIC));
        files.push((folder.join(KEY_FILE), issued.key, SECRET));
    }
    let folders: Vec<PathBuf> = (0..hosts.len()).map(|node| folder(&args.file, node)).collect();
    make_all(&folders)?;
    if let Err(failure) = write_all(&files) {
        // Those that hold something that was there before stay.
        folders.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
        return Err(failure);
    }
    tell(&hosts, &folders, &name, &drawn)
}

fn tell(hosts: &[String], folders: &[PathBuf], name: &Path, drawn: &Credentials) -> Result<(), Failure> {
    let list: Vec<String> =
        folders.iter().zip(hosts).map(|(folder, host)| format!("{} ({host})", folder.display())).collect();
    let ca = folders.first().map(|folder| folder.join(CA_FILE)).unwrap_or_default();
    let text = format!(
        "wrote   {list}\n\
         admin   {admin}   (everything)\n\
         app     {app}   (publish, consume and create topics)\n\
         user    {USER} {password}   (everything, over HTTP: curl --cacert {CA_FILE} --user {USER})\n\
         \n\
         Tokens and password are shown this once; the files have their digests only. Carry each folder to its machine and start\n\
         the node in it. The cluster begins when all nodes are up. Give {CA_FILE} to whoever connects; all else is the nodes' alone.\n\
         \n\
         \x20 mortarmq serve --config {name}\n\
         \x20 export MORTARMQ_TLS_CA={ca} MORTARMQ_TOKEN={app}\n\
         \x20 mortarmq topics create orders --server {servers}\n",
        list = list.join(", "),
        admin = drawn.admin.token,
        app = drawn.app.token,
        password = drawn.user.password,
        name = shell_word(name),
        ca = shell_word(&ca),
        servers = hosts.iter().map(|host| bracketed(host)).collect::<Vec<_>>().join(","),
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from_stdout)
}

/// What a node is told of its cluster.
fn section(node: usize, hosts: &[String], secret: &str) -> String {
    let peer = |(id, host): (usize, &String)| {
        let host = bracketed(host);
        format!("\x20 {{ id = {id}, peer = \"{host}:7189\", client = \"{host}:7188\" }},\n")
    };
    let any = any(&hosts[node]);
    let peers: String = hosts.iter().enumerate().map(peer).collect();
    format!(
        "# All nodes, the same on each, and which of them this one is.\n\
         node_id = {node}\n\
         peers = [\n\
         {peers}\
         ]\n\
         listen_peer = \"{any}:7189\"\n\
         \n\
         # What the nodes show each other. Links are encrypted, and the certificate names the host of this node above.\n\
         peer_secret = \"{secret}\"\n\
         peer_tls_cert = \"{CERTIFICATE_FILE}\"\n\
         peer_tls_key = \"{KEY_FILE}\"\n\
         peer_tls_ca = \"{CA_FILE}\"\n\
         \n"
    )
}

fn hosts(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut each = given.to_vec();
    each.sort_unstable();
    each.dedup();
    if each.len() != given.len() || !(2..=NODES_MOST).contains(&given.len()) {
        let what = format!("a cluster has 2 to {NODES_MOST} nodes, each on a host of its own");
        return Err(Failure::arguments(what, "name each once: --nodes 10.0.0.1,10.0.0.2,10.0.0.3"));
    }
    Ok(given.to_vec())
}

/// Every address of a node that is known by this host; that of IPv6 is every one of IPv4 too.
fn any(host: &str) -> &'static str {
    if is_ipv6(host) { "[::]" } else { "0.0.0.0" }
}

/// As it stands before a port.
fn bracketed(host: &str) -> String {
    if is_ipv6(host) { format!("[{host}]") } else { host.to_owned() }
}

fn is_ipv6(host: &str) -> bool {
    host.parse::<Ipv6Addr>().is_ok()
}

fn folder(file: &Path, node: usize) -> PathBuf {
    file.with_file_name(format!("node{node}"))
}

/// Makes every folder that is not there.
fn make_all(folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            Failure::local(
                format!("cannot make {}: {error}", folder.display()),
                "name a file in a folder that you may write to",
            )
        })?;
    }
    Ok(())
}

/// As many as a cluster has at most.
const NODES_MOST: usize = 9;

#[cfg(test)]
mod tests {
    use super::{hosts, section};

    #[test]
    fn a_node_is_told_of_all_and_listens_where_the_others_reach_it() {
        let hosts: Vec<String> = ["10.0.0.1", "node-b.example", "fd00::3"].map(str::to_owned).to_vec();
        let first = section(0, &hosts, "a secret");
        assert!(first.contains("node_id = 0\n") && first.contains("listen_peer = \"0.0.0.0:7189\""), "{first}");
        let third = section(2, &hosts, "a secret");
        assert!(third.contains("node_id = 2\n") && third.contains("listen_peer = \"[::]:7189\""), "{third}");
        let line = "{ id = 2, peer = \"[fd00::3]:7189\", client = \"[fd00::3]:7188\" },";
        assert!([first, third].iter().all(|text| text.contains(line) && text.contains("\"node-b.example:7189\"")));
    }

    #[test]
    fn a_cluster_has_some_nodes_each_on_its_own_host() {
        let given = |count: usize| (0..count).map(|node| format!("10.0.0.{node}")).collect::<Vec<_>>();
        assert!([2, 3, 9].iter().all(|count| hosts(&given(*count)).is_ok()));
        assert!([1, 10].iter().all(|count| hosts(&given(*count)).is_err()));
        assert!(hosts(&[given(2), given(1)].concat()).is_err(), "twice the same");
    }
}
