//! The files of the repository, read once.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source;

/// A repository: its root folder, and how to list what is in it.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
}

/// A Rust source file of a crate.
#[derive(Clone, Debug)]
pub struct RustFile {
    /// The folder name of its crate.
    pub crate_name: String,
    /// The path relative to the root, with `/`.
    pub path: String,
    /// The path relative to the crate's folder, with `/`.
    pub path_in_crate: String,
    /// The text as it stands in the file.
    pub text: String,
    /// Whether the whole file is test code: in `tests/`, or declared by a module that only tests compile.
    pub is_test: bool,
}

impl Workspace {
    /// The repository this crate stands in.
    #[must_use]
    pub fn here() -> Self {
        Self::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
    }

    /// A repository at a folder; tests build bad ones.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The absolute path of a file given relative to the root.
    #[must_use]
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The text of a file given relative to the root.
    ///
    /// # Errors
    /// When the file cannot be read or is not UTF-8.
    pub fn read(&self, relative: &str) -> io::Result<String> {
        fs::read_to_string(self.path(relative))
    }

    /// The folder names in `crates/` that hold a `Cargo.toml`, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn crate_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path("crates"))? {
            let entry = entry?;
            if entry.path().join("Cargo.toml").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Every Rust file below `src/` and `tests/` of every crate, sorted by path.
    ///
    /// # Errors
    /// When a file or folder cannot be read.
    pub fn rust_files(&self) -> io::Result<Vec<RustFile>> {
        let mut files = Vec::new();
        for crate_name in self.crate_names()? {
            let folder = format!("crates/{crate_name}");
            let mut paths = Vec::new();
            for part in ["src", "tests"] {
                list_files(&self.path(&format!("{folder}/{part}")), &format!("{folder}/{part}"), &mut paths)?;
            }
            for path in paths.into_iter().filter(|path| path.ends_with(".rs")) {
                let path_in_crate = path[folder.len() + 1..].to_owned();
                let is_test = path_in_crate.starts_with("tests/");
                let text = self.read(&path)?;
                files.push(RustFile { crate_name: crate_name.clone(), path, path_in_crate, text, is_test });
            }
        }
        mark_test_modules(&mut files);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// Every file of the repository that is tracked, or neither tracked nor ignored. Without git (an unpacked
    /// archive) every file outside `target`.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn repository_files(&self) -> io::Result<Vec<String>> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output();
        if let Ok(output) = listed
            && output.status.success()
        {
            let names = String::from_utf8_lossy(&output.stdout);
            let files: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
            // A tracked file that was deleted but not yet committed is listed and is not there.
            return Ok(files.into_iter().filter(|name| self.path(name).is_file()).map(str::to_owned).collect());
        }
        let mut files = Vec::new();
        list_files(&self.root, "", &mut files)?;
        files.retain(|file| !file.starts_with("target/") && !file.starts_with(".git/"));
        Ok(files)
    }
}

/// Appends every file below `folder`, named with `prefix` in front. A folder that does not exist holds none.
fn list_files(folder: &Path, prefix: &str, files: &mut Vec<String>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.file_type()?.is_dir() {
            list_files(&entry.path(), &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Marks the files of modules declared as `#[cfg(test)] mod name;`.
fn mark_test_modules(files: &mut [RustFile]) {
    let mut test_stems = BTreeSet::new();
    for file in files.iter() {
        let folder = module_folder(&file.path);
        for name in source::test_module_files(&source::code_only(&file.text)) {
            test_stems.insert(format!("{folder}/{name}"));
        }
    }
    for file in files.iter_mut() {
        let declared = test_stems
            .iter()
            .any(|stem| file.path == format!("{stem}.rs") || file.path.starts_with(&format!("{stem}/")));
        file.is_test = file.is_test || declared;
    }
}

/// The folder where the modules that a file declares live: its own for a root or `mod.rs`, else one named after it.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}
