//! The configuration file: JSON or TOML, by its extension.

use std::path::Path;

use super::ConfigError;

/// The keys and values of a file.
pub(super) fn read(path: &Path) -> Result<serde_json::Map<String, serde_json::Value>, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_path_buf(), source })?;
    let syntax = |reason: String| ConfigError::Syntax { path: path.to_path_buf(), reason };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => serde_json::from_str(&text).map_err(|error| syntax(error.to_string())),
        Some("toml") => toml::from_str(&text).map_err(|error| syntax(error.to_string())),
        _ => Err(syntax("its name ends in neither .json nor .toml".to_owned())),
    }
}
