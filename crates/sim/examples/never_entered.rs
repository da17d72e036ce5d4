//! Compares the functions that simulated lives never enter with the list of those that are known, `never-entered.txt`, in which
//! each has a reason. `never-entered.sh` measures and calls this, with the list as the argument and what `llvm-cov export` says
//! as the input.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let list = std::env::args().nth(1).expect("the list is the first argument");
    let list = std::fs::read_to_string(list).expect("the list can be read");
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).collect();
    let known: BTreeSet<String> = rows.iter().map(|(function, _)| (*function).to_owned()).collect();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a text");
    let found = never_entered(&serde_json::from_str(&text).expect("what llvm-cov writes"));
    let news: Vec<&String> = found.difference(&known).collect();
    let gone: Vec<&String> = known.difference(&found).collect();
    let bare: Vec<&str> = rows.iter().filter(|(_, reason)| reason.is_empty()).map(|(function, _)| *function).collect();
    news.iter().for_each(|function| println!("never entered, and not in the list: {function}"));
    gone.iter().for_each(|function| println!("in the list, but entered or gone: {function}"));
    bare.iter().for_each(|function| println!("in the list without a reason: {function}"));
    println!("{} functions are never entered", found.len());
    if news.is_empty() && gone.is_empty() && bare.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Functions of which no copy was ever entered, each as its file and its name.
fn never_entered(export: &serde_json::Value) -> BTreeSet<String> {
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut entered: BTreeMap<(String, u64), bool> = BTreeMap::new();
    for function in export["data"][0]["functions"].as_array().into_iter().flatten() {
        let (Some(file), Some(line)) = (function["filenames"][0].as_str(), function["regions"][0][0].as_u64()) else {
            continue;
        };
        let is_entered = function["count"].as_u64() > Some(0);
        *entered.entry((file.to_owned(), line)).or_default() |= is_entered;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let mut found = BTreeSet::new();
    for ((file, line), _) in entered.iter().filter(|(_, is_entered)| !**is_entered) {
        // The export names every crate there is.
        let Ok(relative) = Path::new(file).strip_prefix(&here) else { continue };
        let relative = relative.display().to_string();
        if !CRATES.iter().any(|name| relative.starts_with(&format!("crates/{name}/src/"))) {
            continue;
        }
        let read = || std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect();
        let source = sources.entry(file.clone()).or_insert_with(read);
        let at = usize::try_from(*line).unwrap_or(0).saturating_sub(1);
        // What has no name of its own is a part of a function that has one.
        let Some(name) = source.get(at).and_then(|text| name_in(text)) else { continue };
        found.insert(format!("{relative} {name}"));
    }
    found
}

/// The name of the function that begins in a line.
fn name_in(text: &str) -> Option<&str> {
    let (before, behind) = text.split_once("fn ")?;
    let is_word = before.is_empty() || before.ends_with(' ');
    let end = behind.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    (is_word && end > 0).then(|| &behind[..end])
}

/// What the simulator plays.
const CRATES: [&str; 5] = ["node", "shard", "delivery", "replica", "storage"];
