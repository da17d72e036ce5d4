//! Commands in the pages of docs: each must be one that this binary takes.

use clap::CommandFactory;

use crate::cli::Cli;

/// Splits a line as a shell does, as far as the pages go: words, quotes, and nothing behind a pipe or a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_open) = (Vec::new(), String::new(), None, false);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.push(letter),
            (None, '\'' | '"') => (quote, is_open) = (Some(letter), true),
            (None, '|' | ';' | '&' | '>') => break,
            (None, '#') if word.is_empty() => break,
            (None, ' ') if word.is_empty() && !is_open => {}
            (None, ' ') => {
                words.push(std::mem::take(&mut word));
                is_open = false;
            }
            (None, letter) => word.push(letter),
        }
    }
    if !word.is_empty() || is_open {
        words.push(word);
    }
    words
}

#[test]
fn every_command_of_a_page_is_one_that_this_binary_takes() {
    let mut pages = vec!["docs/concepts.md".to_owned()];
    let runbooks = std::fs::read_dir(super::file("docs/runbooks")).expect("there are runbooks");
    pages.extend(runbooks.map(|page| format!("docs/runbooks/{}", page.expect("read").file_name().to_string_lossy())));
    let mut seen = 0;
    for page in pages {
        for line in super::read(&page).lines() {
            let Some(rest) = line.trim_start().strip_prefix("$ ").filter(|rest| rest.starts_with("mortarmq ")) else {
                continue;
            };
            let words = words(rest);
            if let Err(error) = Cli::command().try_get_matches_from(&words) {
                panic!("{page}: {rest}: {error}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
