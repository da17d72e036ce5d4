//! docs/reference/errors.md: every code of the registry.

use mortarmq_wire::ErrorCode;
use mortarmq_wire::errors::Standing;
use std::fmt::Write as _;

const HEAD: &str = "# Error codes

Every error that a client sees has a code. `refused`: nothing was stored, and nothing will be. `unknown`: it may have been stored;
repeat with the same producer number, and it is stored at most once. An answer says its own outcome, and that counts: a request that
was on its way when the node stopped is `unknown`, whatever its code. `mortarmq explain CODE` prints one row, by name or number.

This page is printed from the registry, and a test holds it to it.

| code | name | outcome | again? | closes | meaning | what to do |
|---|---|---|---|---|---|---|
";

const PEERS: &str = "
## Between nodes

Never sent to clients; they stand in logs and metrics.

| code | name | meaning | what to do |
|---|---|---|---|
";

#[test]
fn every_code_is_on_the_page_and_nothing_else() {
    let (mut page, mut peers) = (HEAD.to_owned(), PEERS.to_owned());
    for code in ErrorCode::ALL {
        let (number, name) = (code.number(), code.name());
        let (meaning, remedy) = (super::cell(code.meaning()), super::cell(code.remedy()));
        if code.standing() == Standing::Client {
            let yes = |is: bool| if is { "yes" } else { "no" };
            let (again, closes) = (yes(code.retry_helps()), yes(code.closes()));
            let outcome = code.outcome();
            let _ =
                writeln!(page, "| 0x{number:04X} | `{name}` | {outcome} | {again} | {closes} | {meaning} | {remedy} |");
        } else {
            let _ = writeln!(peers, "| 0x{number:04X} | `{name}` | {meaning} | {remedy} |");
        }
    }
    super::holds("docs/reference/errors.md", &(page + &peers));
}
