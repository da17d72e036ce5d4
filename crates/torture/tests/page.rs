//! Goal: docs/torture.md lists the scenarios that there are, and its results have the columns and the rows that are printed.

use std::path::Path;

use mortarmq_torture::{Class, scenarios, table};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/torture.md");
    std::fs::read_to_string(path).expect("the page is there")
}

#[test]
fn the_page_lists_every_scenario_as_the_program_does() {
    let list = table::markdown(&scenarios::all());
    assert!(page().contains(&list), "put this into docs/torture.md:\n{list}");
}

#[test]
fn the_results_of_the_page_have_the_columns_of_the_program_and_a_row_for_each_scenario() {
    let page = page();
    let columns: Vec<&str> = table::COLUMNS.to_vec();
    let words = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut lines = page.lines().skip_while(|line| words(line) != columns);
    assert!(lines.next().is_some(), "no line has the columns {columns:?}");
    let rows = lines.take_while(|line| !line.starts_with("```"));
    let names: Vec<String> = rows.filter_map(|row| words(row).into_iter().next()).collect();
    let known: Vec<&str> = scenarios::all().iter().map(|scenario| scenario.name).collect();
    assert_eq!(names, known);
}

#[test]
fn names_are_unique_and_each_class_has_one_scenario_in_the_short_share() {
    let all = scenarios::all();
    let mut names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    let classes =
        [Class::Kill, Class::Pause, Class::Power, Class::Disk, Class::Network, Class::Link, Class::Rot, Class::Clock];
    for class in classes {
        let short: Vec<_> = all.iter().filter(|scenario| scenario.class == class && scenario.is_short).collect();
        assert!(matches!(&*short, [one] if one.known.is_none()), "{class:?} has {} in the short share", short.len());
    }
}
