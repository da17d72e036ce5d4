//! docs/reference/settings.md: every key of topics and groups.

use mortarmq_shard::settings::{Scope, Setting};
use std::fmt::Write as _;

const HEAD: &str = "# Settings of topics and groups

One set of keys everywhere: `mortarmq topics create NAME --set KEY=VALUE`, `topics set`, `groups set`, `sub --set`, the options of
DECLARE and SUB, and HTTP bodies. Group keys given on a topic are the defaults of groups made later. `mortarmq defaults set` changes what
a new topic begins with. What a change does while messages are on their way is told in
[operations](operations.md#settings-one-set-of-keys-everywhere-declare-and-sub-options---set-keyvalue-http-bodies-describe-the-topology-file).

This page is printed from the code, and a test holds it to it.
";

fn default(setting: Setting) -> String {
    match setting.range().show(setting.default_value()) {
        serde_json::Value::String(word) => word,
        other => other.to_string(),
    }
}

#[test]
fn every_setting_is_on_the_page_and_nothing_else() {
    let mut page = HEAD.to_owned();
    for (scope, title) in [(Scope::Topic, "Of a topic"), (Scope::Group, "Of a group")] {
        let _ = write!(page, "\n## {title}\n\n| key | default | takes | meaning |\n|---|---|---|---|\n");
        for setting in Setting::ALL.iter().filter(|setting| setting.scope() == scope) {
            let (key, takes) = (setting.key(), super::cell(&setting.range().accepted()));
            let _ = writeln!(page, "| `{key}` | `{}` | {takes} | {} |", default(*setting), setting.meaning());
        }
    }
    page += "\nA group has a `start` too, fixed when it is made: `earliest` (the default), `latest`, or `{\"0\":41,…}`, a sequence for each\npartition.\n";
    super::holds("docs/reference/settings.md", &page);
}
