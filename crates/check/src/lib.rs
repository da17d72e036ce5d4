//! The judge of histories: reads what clients of a broker recorded, and says whether the contract held.
//!
//! It knows nothing of any broker's insides and shares no code with this one's: it judges any broker by what its clients saw.
//! The format is `docs/reference/history.md`, the rules and verdicts are `docs/reference/verdicts.md`.
//!
//! [`check`] is all there is to call. How it works, in the order of a record's way:
//!
//! 1. `check` reads the files and sorts records by when they were answered; `intake` makes them small (`operation`), and
//!    puts what they say of the whole run into the `context`.
//! 2. `judge` gathers the records of each message (`message`). When nothing more is expected of one, it is put together
//!    (`pair`), all rules about one message are asked (`rules`, one file each), and it is forgotten.
//! 3. `finish`: what a rule needs of forgotten messages is read a second time (`look`); then come the rules about keys
//!    (`keys`, `rules/order`) and whole paths (`books`).
//! 4. `verdict` makes one word of it, `evidence` fetches the records that prove it, `report` prints it.
//!
//! The terms: `span` (certainly before), `lease`, `pair`; `search` has the states of a pair and looks for an order.
//! Start with `span`, `pair` and a rule, such as `rules/double_lease`.

mod books;
mod check;
mod context;
mod evidence;
mod finding;
mod finish;
mod intake;
mod judge;
mod keys;
mod lease;
mod location;
mod look;
mod message;
mod names;
mod operation;
mod options;
mod pair;
mod recent;
mod report;
mod rules;
mod search;
mod span;
mod verdict;

pub use check::{Progress, check};
pub use options::{Contract, Options};
pub use report::html::as_html;
pub use report::json::as_json;
pub use report::text::AsText;
pub use report::{FaultWindow, Finding, Mode, Read, RecordLine, Report, RuleLine, UnreadableLine};
pub use rules::Rule;
pub use verdict::Verdict;
