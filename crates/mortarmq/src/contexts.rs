//! Contexts: brokers by name, in the user's config folder, so that nobody types addresses and tokens again and again.
//!
//! A context gives the defaults of `--server`, `--admin`, `--token` and `--tls-ca`: a flag wins over the environment, that
//! over the context, that over what is built in. A command that asks no broker never reads the file.

mod defaults;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::errors::{Failure, nearest};
use crate::output::note;

pub(crate) use defaults::parse;

/// Which context counts. It is looked at before the other arguments get their defaults ([`parse`]).
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ContextArg {
    /// Take addresses and token from this context, whichever is in use
    #[arg(long, env = "MORTARMQ_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

/// What is known of one broker. No secret is shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// `--server`, addresses with commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// `--admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<String>,
    /// `--token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// `--tls-ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_ca: Option<String>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Context").field("server", &self.server).finish_non_exhaustive()
    }
}

/// All contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one that counts where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// By name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads those of this user; none where there is no file.
    ///
    /// # Errors
    /// When the file is there and cannot be used.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(path) = path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                let what = format!("cannot read {}: {error}", path.display());
                return Err(Failure::local(what, "make it readable for you, or remove it"));
            }
        };
        let is_open = std::fs::metadata(&path).is_ok_and(|file| file.mode() & 0o077 != 0);
        if is_open && text.contains("\"token\"") {
            let shown = path.display();
            note(format_args!("warning: others may read {shown}, and it has tokens: chmod 600 {shown}"));
        }
        serde_json::from_str(&text).map_err(|error| {
            // The parser's text names a place and a field, never a value of ours.
            let what =
                format!("{} is not understood: line {}, column {}", path.display(), error.line(), error.column());
            Failure::local(what, "put it right, or remove it and add the contexts anew: mortarmq context add NAME")
        })
    }

    /// The context that counts: this one if it is named, else the current one.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(crate) fn pick(&self, name: Option<&str>) -> Result<Option<&Context>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        self.contexts.get(name).map(Some).ok_or_else(|| self.unknown(name))
    }

    /// There is no context of this name.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        let known: Vec<String> = self.contexts.keys().cloned().collect();
        let remedy = match nearest(name, &known) {
            Some(near) => format!("did you mean \"{near}\"?      (all of them: mortarmq context list)"),
            None => format!("add it: mortarmq context add {name} --server HOST:PORT      (all: mortarmq context list)"),
        };
        Failure::arguments(format!("no context is named \"{name}\""), remedy)
    }

    /// Writes them, for their owner alone to read. A crash leaves the former ones or these.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let path = path().ok_or_else(|| {
            Failure::local("there is no folder for contexts", "set HOME or XDG_CONFIG_HOME, then repeat")
        })?;
        let json = serde_json::to_string_pretty(self).expect("names and texts are always JSON");
        replace(&path, json.as_bytes()).map_err(|error| {
            Failure::local(
                format!("cannot write {}: {error}", path.display()),
                "look at the folder's owner and its room",
            )
        })
    }
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let result = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(bytes)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    })();
    if result.is_err() {
        // Nothing with a secret in it stays behind.
        let _ = std::fs::remove_file(&aside);
    }
    result
}

/// Where contexts are kept.
///
/// # Source
/// XDG Base Directory Specification: `$XDG_CONFIG_HOME`, else `$HOME/.config`; a relative one is to be ignored.
pub(crate) fn path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("mortarmq").join("contexts.json"))
}

#[cfg(test)]
mod tests {
    use super::{Context, Contexts};

    #[test]
    fn nothing_that_is_printed_has_a_token() {
        let context = Context { token: Some("mq_secret".to_owned()), ..Context::default() };
        let all = Contexts { current: None, contexts: [("a".to_owned(), context)].into() };
        assert!(!format!("{all:?}").contains("mq_secret"));
    }

    #[test]
    fn the_named_one_wins_over_the_current_and_a_wrong_name_is_told() {
        let named = |server: &str| Context { server: Some(server.to_owned()), ..Context::default() };
        let contexts = [("a".to_owned(), named("a:1")), ("b".to_owned(), named("b:1"))].into();
        let all = Contexts { current: Some("a".to_owned()), contexts };
        let server = |name| all.pick(name).expect("known").and_then(|context| context.server.as_deref());
        assert_eq!((server(None), server(Some("b"))), (Some("a:1"), Some("b:1")));
        assert!(all.pick(Some("c")).is_err());
        assert!(Contexts::default().pick(None).expect("none is no error").is_none());
    }
}
