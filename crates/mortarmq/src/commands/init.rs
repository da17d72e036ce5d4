//! `init`: a configuration with credentials, ready to be used.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::errors::Failure;
use crate::tokens::{Drawn, GrantLine, draw};

/// Write a configuration with two fresh tokens
///
/// One token may do everything, the other publish, consume and create topics. They are shown once; the file has their
/// digests only, and only its owner may read it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write; it must not exist
    #[arg(default_value = "mortarmq.toml")]
    file: PathBuf,
}

/// Writes it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let everything = ["*".to_owned()];
    let actions = ["produce", "consume", "create"];
    let grants = actions.into_iter().filter_map(|action| GrantLine::on(action, &everything)).collect();
    let (admin, app) = (draw("admin", vec![GrantLine::admin()])?, draw("app", grants)?);
    write_new(&args.file, &configuration(&admin, &app))?;
    let file = args.file.display();
    let text = format!(
        "wrote   {file}\n\
         admin   {admin}   (everything)\n\
         app     {app}   (publish, consume and create topics)\n\
         \n\
         The tokens are shown this once; the file has their digests only.\n\
         \n\
         \x20 mortarmq serve --config {file}\n\
         \x20 MORTARMQ_TOKEN={app} mortarmq topics create orders\n\
         \x20 MORTARMQ_TOKEN={admin} mortarmq balance\n",
        admin = admin.token,
        app = app.token,
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from_stdout)
}

/// Never over a file that is there: it may have tokens that are in use.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::local(
            format!("{} exists, and was left as it is", path.display()),
            "name another file; one token more for it: mortarmq hash-token NAME --produce TOPIC",
        ),
        _ => Failure::local(
            format!("cannot write {}: {error}", path.display()),
            "give a file in a folder that you may write to",
        ),
    })
}

fn configuration(admin: &Drawn, app: &Drawn) -> String {
    format!(
        "# A MortarMQ node. Check it: mortarmq config check FILE\n\
         # Every key, its default and its meaning: mortarmq serve --help\n\
         \n\
         # Everything is kept here.\n\
         data_dir = \"./data\"\n\
         \n\
         # Clients. Tokens and messages travel as they are: use it in a network that you trust.\n\
         listen_client = \"0.0.0.0:7188\"\n\
         \n\
         # Operators: metrics, health, and the routes behind most commands. This machine only, as it is here.\n\
         listen_admin = \"127.0.0.1:7190\"\n\
         \n\
         # Who may do what. One more: mortarmq hash-token NAME --produce TOPIC --consume TOPIC\n\
         tokens = [\n\
         \x20 {admin},\n\
         \x20 {app},\n\
         ]\n",
        admin = admin.line.toml(),
        app = app.line.toml(),
    )
}
