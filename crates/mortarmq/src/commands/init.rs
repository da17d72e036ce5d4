//! `init`: a configuration with credentials and TLS, ready to be used; or one for each node of a cluster.

pub(crate) mod certificates;
mod cluster;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use self::certificates::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};
use crate::errors::Failure;
use crate::output::shell_word;
use crate::tokens::{Drawn, DrawnUser, GrantLine, draw, draw_user};

/// Write a configuration with two fresh tokens, a user and a certificate
///
/// One token may do everything, the other publish, consume and create topics. The user may do everything with a password, over
/// HTTP. All three are shown once; the file has their digests only. Beside it come a CA, a certificate that it issued and its key, valid for ten years. Only their owner may read
/// what is secret.
///
/// With --nodes it is written for each node of a cluster into a folder of its own, with a secret that all share, and a certificate
/// by which they know each other.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write; it must not exist
    #[arg(default_value = "mortarmq.toml")]
    file: PathBuf,
    /// One more name of this machine for its certificate: clients must use one that it has. Can be repeated
    #[arg(long = "name", value_name = "HOST_OR_IP")]
    names: Vec<String>,
    /// The hosts by which the nodes of a cluster reach each other, separated by commas: node 0 first
    #[arg(long, value_name = "HOST,HOST,...", value_delimiter = ',')]
    nodes: Vec<String>,
}

/// Who is let in.
struct Credentials {
    admin: Drawn,
    app: Drawn,
    user: DrawnUser,
}

impl Credentials {
    fn draw() -> Result<Self, Failure> {
        let everything = ["*".to_owned()];
        let actions = ["produce", "consume", "create"];
        let grants = actions.into_iter().filter_map(|action| GrantLine::on(action, &everything)).collect();
        let (admin, app) = (draw("admin", vec![GrantLine::admin()])?, draw("app", grants)?);
        Ok(Self { admin, app, user: draw_user(USER, vec![GrantLine::admin()])? })
    }
}

/// Writes it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if !args.nodes.is_empty() {
        return cluster::run(args);
    }
    let drawn = Credentials::draw()?;
    let names = certificates::names(&args.names)?;
    let made = certificates::make(std::slice::from_ref(&names))?;
    let paths = Paths::beside(&args.file)?;
    let mut files = vec![
        (args.file.clone(), configuration(&drawn, &paths, "0.0.0.0", "")?, SECRET),
        (paths.ca.clone(), made.ca, PUBLIC),
    ];
    for issued in made.issued {
        files.push((paths.certificate.clone(), issued.certificate, PUBLIC));
        files.push((paths.key.clone(), issued.key, SECRET));
    }
    write_all(&files)?;
    let Credentials { admin, app, user } = drawn;
    let text = format!(
        "wrote   {file}, and beside it {CA_FILE}, {CERTIFICATE_FILE}, {KEY_FILE}\n\
         admin   {admin}   (everything)\n\
         app     {app}   (publish, consume and create topics)\n\
         user    {USER} {password}   (everything, over HTTP: curl --cacert {CA_FILE} --user {USER})\n\
         names   {names}   (of the certificate; more: --name HOST_OR_IP)\n\
         \n\
         Tokens and password are shown this once; the file has their digests only. Give {CA_FILE} to whoever connects;\n\
         {KEY_FILE} is the broker's alone.\n\
         \n\
         \x20 mortarmq serve --config {config}\n\
         \x20 export MORTARMQ_TLS_CA={ca} MORTARMQ_TOKEN={app}\n\
         \x20 mortarmq topics create orders && mortarmq pub orders hello\n\
         \x20 MORTARMQ_TOKEN={admin} mortarmq balance\n",
        file = args.file.display(),
        admin = admin.token,
        app = app.token,
        password = user.password,
        names = names.join(", "),
        config = shell_word(&args.file),
        ca = shell_word(&paths.ca),
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from_stdout)
}

/// Where the files of TLS go. The configuration names them in full, as a node may be started from any folder.
struct Paths {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Paths {
    fn beside(file: &Path) -> Result<Self, Failure> {
        let full = std::path::absolute(file)
            .map_err(|error| Failure::local(format!("{} is no path: {error}", file.display()), "name another file"))?;
        let beside = |name| full.with_file_name(name);
        Ok(Self { ca: beside(CA_FILE), certificate: beside(CERTIFICATE_FILE), key: beside(KEY_FILE) })
    }
}

/// Writes every file or none: half of them would be of no use, and in the way of the next try.
fn write_all(files: &[(PathBuf, String, u32)]) -> Result<(), Failure> {
    for (index, (path, text, mode)) in files.iter().enumerate() {
        let result = write_new(path, text, *mode);
        if result.is_err() {
            for (written, _, _) in &files[..index] {
                // What stays is named by the next try.
                let _ = std::fs::remove_file(written);
            }
            return result;
        }
    }
    Ok(())
}

/// Never over a file that is there: it may have tokens or keys that are in use.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::local(
            format!("{} exists, and was left as it is", path.display()),
            "name a file in another folder; one token more for this one: mortarmq hash-token NAME --produce TOPIC",
        ),
        _ => cannot_write(path, &error),
    })?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        cannot_write(path, &error)
    })
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::local(format!("cannot write {}: {error}", path.display()), "give a file in a folder that you may write to")
}

/// Clients are taken at every address of the kind of `any`; `more` comes behind the files of TLS.
fn configuration(drawn: &Credentials, paths: &Paths, any: &str, more: &str) -> Result<String, Failure> {
    Ok(format!(
        "# A MortarMQ node. Check it: mortarmq config check FILE\n\
         # Every key, its default and its meaning: mortarmq serve --help\n\
         \n\
         # Everything is kept here.\n\
         data_dir = \"./data\"\n\
         \n\
         # Clients.\n\
         listen_client = \"{any}:7188\"\n\
         \n\
         # Operators: metrics, health, and the routes behind most commands. This machine only, as it is here.\n\
         listen_admin = \"127.0.0.1:7190\"\n\
         \n\
         # Every listener speaks TLS. Those who connect need the CA: {CA_FILE}.\n\
         tls_cert = {certificate}\n\
         tls_key = {key}\n\
         \n\
         {more}\
         # Who may do what. One more: mortarmq hash-token NAME --produce TOPIC --consume TOPIC\n\
         tokens = [\n\
         \x20 {admin},\n\
         \x20 {app},\n\
         ]\n\
         \n\
         # Who may do what with a password, over HTTP. One more: mortarmq hash-password NAME --consume TOPIC\n\
         users = [\n\
         \x20 {user},\n\
         ]\n",
        certificate = quoted(&paths.certificate)?,
        key = quoted(&paths.key)?,
        admin = drawn.admin.line.toml(),
        app = drawn.app.line.toml(),
        user = drawn.user.line.toml(),
    ))
}

/// A path as a string of TOML, whose escapes are those of JSON.
fn quoted(path: &Path) -> Result<String, Failure> {
    let Some(text) = path.to_str() else {
        let what = format!("{} cannot be written into a configuration", path.display());
        return Err(Failure::local(what, "use a folder whose name is text"));
    };
    Ok(serde_json::Value::from(text).to_string())
}

/// The user who may do everything.
const USER: &str = "admin";
const PUBLIC: u32 = 0o644;
const SECRET: u32 = 0o600;
